from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learn.miner.chain_oracle import count_rules, triples, walk_all
from real_data import DATA, needs_data

from rulewright import read_facts
from rulewright.data import KnowledgeBase
from rulewright.engine import Engine
from rulewright.engine import chain_counts as chains
from rulewright.engine.chain_counts import Incidence


@pytest.mark.parametrize("inverses", [True, False])
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_products_count_what_a_walk_counts(inverses, seed):
    chance = random.Random(seed)
    kb = KnowledgeBase.from_triples(
        (f"e{chance.randrange(5)}", f"r{chance.randrange(3)}", f"e{chance.randrange(5)}")
        for _ in range(chance.randint(1, 25))
    )
    names = list(kb.predicates)
    incidence = Incidence(kb.tables()["ee"], len(names), inverses=inverses)

    def by_steps(found, *columns):
        places = [name for name in found if name[0] == "p" and name[1:].isdigit()]
        steps = [
            tuple((names[number // 2], bool(number % 2)) for number in numbers)
            for numbers in zip(*(found[place].tolist() for place in places), strict=True)
        ]
        return dict(zip(steps, zip(*(found[column].tolist() for column in columns), strict=True), strict=True))

    for length in (1, 2):
        walked = walk_all(triples(kb), length, inverses=inverses)
        loops = {steps: sum(nodes[0] == nodes[-1] for nodes in found) for steps, found in walked.items()}
        assert by_steps(incidence.loops(length), "n") == {steps: (n,) for steps, n in loops.items() if n}
        assert by_steps(incidence.bodies(length), "n") == {steps: (len(found),) for steps, found in walked.items()}
    assert by_steps(incidence.bodies(2), "middles") == {
        steps: (len({nodes[1] for nodes in found}),) for steps, found in walked.items()
    }
    for which in ("skip", "against"):
        expected = count_rules(kb, 1, loops=which, inverses=inverses, circular=True)
        found = incidence.support()
        known = incidence.known(found["h"], found["p0"], loops=which == "against")
        columns = zip(*(found[name].tolist() for name in ("h", "p0", "n")), known.tolist(), strict=True)
        counted = {(names[h], ((names[p // 2], bool(p % 2)),)): (n, k) for h, p, n, k in columns if p != 2 * h}
        assert counted == {key: (each["support"], each["known_pairs"]) for key, each in expected.items()}


@needs_data
@pytest.mark.slow
def test_triangles_are_counted_without_all_paths_of_two_edges(tmp_path):
    """In one order of the joins they take 11 GB, which DuckDB chose for all facts of this graph, not for a part."""
    parts = [(DATA / "kbc" / "fb15k237" / f"{split}.tsv").read_text() for split in ("train", "valid", "test")]
    (tmp_path / "all.tsv").write_text("".join(parts))
    kb = read_facts(tmp_path / "all.tsv")
    table = kb.tables()["ee"]
    with Engine(kb, memory_limit="1GB") as engine:
        engine.run("SET max_temp_directory_size = '0KB'")  # nothing goes to disk
        engine.put("edge", chains.edges(table))
        engine.put("head", chains.heads(table))
        counts = engine.run(chains.support_counts(2))
    assert int(counts["n"].sum()) == 8_083_939
