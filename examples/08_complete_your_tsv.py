"""Complete a graph that you have as a TSV file: learn rules, read them, ask questions, measure on facts held back."""

from pathlib import Path

import rulewright as rw
from rulewright.data.generators import family
from rulewright.evaluate.ranking import evaluate_ranking
from rulewright.reason.ranking import RuleRanker

# Any file of lines head ⟨tab⟩ relation ⟨tab⟩ tail will do; here a family stands in for yours.
people = family(120, seed=2).kb
pairs = [(name, *pair) for name in people.predicates for pair in people.tuples(name) if len(pair) == 2]
Path("graph.tsv").write_text("".join(f"{head}\t{name}\t{tail}\n" for name, head, tail in pairs))

graph, held_back = rw.read_facts("graph.tsv").hold_out(0.1, seed=0)
mixture = rw.PathMixture(max_length=2, constants=0, folder="learned").fit(graph)  # interrupted, it goes on from there

for rule in mixture.rules_.rules[:3]:
    print(rule)

scores = evaluate_ranking(mixture, graph, held_back)
print(f"\nheld-back facts: MRR {scores.mrr:.3f}, among the first three {scores.hits(3):.3f}")

relation = max(held_back.predicates, key=held_back.count)
head, tail = next(iter(held_back.tuples(relation)))
print(f"\n{relation}({head}, ?) is {tail}; the rules say:")
for entity, score in mixture.ranker_.answers(relation, head, 3):
    print(f"  {score:6.2f}  {entity}")

# The rules are text. Read back, and edited if you like, they rank as before.
mixture.rules_.save("learned.rules")
again = RuleRanker.of(rw.read_rules("learned.rules"), graph, aggregation="weight")
assert abs(evaluate_ranking(again, graph, held_back).mrr - scores.mrr) < 1e-9
