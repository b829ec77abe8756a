"""Facts that stay in an engine: mine, apply and explain a graph that need not fit into memory.

Here DuckDB has them, in a file. With engine="local[2]" or engine="spark://host:7077" and a folder in place of the
database, Spark does the same (docs/scale.md).
"""

from pathlib import Path

import rulewright as rw
from rulewright.data.generators import family

# Any folder of Parquet, TSV or N-Triples files will do; here a family, of which 1 % of the facts is missing or wrong,
# stands in for yours.
people = family(2_000, noise=0.01, seed=1).kb
triples = [(head, name, tail) for name in people.predicates for head, *tails in people.tuples(name) for tail in tails]
Path("family").mkdir(exist_ok=True)
for part in range(4):
    rw.write_facts(rw.KnowledgeBase.from_triples(triples[part::4]), f"family/part-{part}.parquet")

with rw.store_facts("family", database="family.duckdb", memory_limit="500MB") as kb:
    print(kb)
    kb.engine.on_expectation = lambda expectation: print(f"to come: {expectation}")  # before each long statement

    miner = rw.RuleMiner(max_length=2, min_confidence=0.9, targets=["grandparent_of", "uncle_of"]).fit(kb)
    print(f"\n{miner.note_}")
    for rule in miner.rules_.rules[:3]:
        print(rule)

    print()
    inferred = rw.apply(miner.rules_, kb)
    print(f"\n{len(inferred):,} new facts, such as")
    for fact in inferred[:3]:  # these come to Python, the others stay
        print(f"  {fact}  {fact.score:.3f}")
    inferred.write("new.parquet")

    print(f"\n{rw.explain(miner.rules_, kb, str(inferred[0]))}")

# The file keeps the facts, and what was done last. Opened again, nothing is read a second time.
with rw.store_facts("family.duckdb") as kb:
    print(f"\nagain: {kb}, and {rw.read_facts('new.parquet').n_facts:,} new facts in new.parquet")
