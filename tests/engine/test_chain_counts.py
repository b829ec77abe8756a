from __future__ import annotations

import random

import pytest
from engine.engines import ENGINES
from hypothesis import given, settings
from hypothesis import strategies as st
from learn.miner.chain_oracle import count_rules, triples, walk_all
from real_data import DATA, needs_data

from rulewright import read_facts
from rulewright.data import KnowledgeBase
from rulewright.engine import Engine
from rulewright.engine.chain_counts import ChainTables, name_steps


def random_graph(seed: int) -> KnowledgeBase:
    chance = random.Random(seed)
    return KnowledgeBase.from_triples(
        (f"e{chance.randrange(5)}", f"r{chance.randrange(3)}", f"e{chance.randrange(5)}")
        for _ in range(chance.randint(1, 25))
    )


def by_steps(names, found, length, *columns, head=False):
    """Return counts by body, or by head and body, as a walk gives them."""
    steps = [
        tuple((names[number // 2], bool(number % 2)) for number in numbers)
        for numbers in zip(*(found[name].tolist() for name in name_steps(length)), strict=True)
    ]
    keys = [(names[h], body) for h, body in zip(found["h"].tolist(), steps, strict=True)] if head else steps
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, zip(*(found[column].tolist() for column in columns), strict=True), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("inverses", [True, False])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_statements_count_what_a_walk_counts(make, inverses, seed):
    kb = random_graph(seed)
    names = list(kb.predicates)
    with make(kb) as engine:
        engine.rows_at_once = (7, 10**6)[seed % 2]  # few rows: in parts
        tables = ChainTables(engine, len(names), inverses=inverses)
        for length in (1, 2, 3):
            walked = walk_all(triples(kb), length, inverses=inverses)
            loops = {steps: sum(nodes[0] == nodes[-1] for nodes in found) for steps, found in walked.items()}
            counted = by_steps(names, tables.count_loops(length), length, "n")
            assert counted == {steps: (n,) for steps, n in loops.items() if n}
            counted = by_steps(names, tables.count_bodies(length), length, "n")
            assert counted == {steps: (len(found),) for steps, found in walked.items()}
            if length > 1:
                assert tables.count_walks(length) == sum(map(len, walked.values()))
            if length == 2:
                middles = {steps: (len({nodes[1] for nodes in found}),) for steps, found in walked.items()}
                assert by_steps(names, tables.count_bodies(2), 2, "middles") == middles
        symmetric = {name for name, is_so in zip(names, tables.find_symmetric().tolist(), strict=True) if is_so}
        pairs = {name: set(kb.tuples(name)) for name in names}
        assert symmetric == {name for name in names if pairs[name] == {pair[::-1] for pair in pairs[name]}}


@pytest.mark.slow
@pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)
@pytest.mark.parametrize("loops", ["skip", "against"])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), inverses=st.booleans())
def test_supports_and_ends_are_those_of_a_walk(make, loops, seed, inverses):
    kb = random_graph(seed)
    names = list(kb.predicates)
    with make(kb) as engine:
        engine.rows_at_once = (7, 10**6)[seed % 2]  # few rows: in parts
        tables = ChainTables(engine, len(names), inverses=inverses)
        for length in (1, 2, 3, 4) if len(kb.tables()["ee"]) < 12 else (1, 2):
            expected = count_rules(kb, length, loops=loops, inverses=inverses)
            ways = (True, False) if length == 2 else (False,)
            for few_paths in ways:
                if length == 1:
                    found = tables.count_single_supports()
                    hidden = [0] * len(found["h"])
                else:
                    found = tables.count_supports(length, few_paths=few_paths, loops=loops == "against")
                    found = {name: column[found["n"] > 0] for name, column in found.items()}
                    hidden = found["hidden_pairs"].tolist()
                counted = by_steps(names, found, length, "n", "pairs", head=True)
                assert counted == {key: (each["support"], each["support_pairs"]) for key, each in expected.items()}
            if not counted:
                continue
            ends = tables.count_ends(found, length, loops=loops == "against")
            marked = tables.count_marks(found, length, loops=loops == "against")
            walks, seen = walk_all(triples(kb), length, inverses=inverses), {}
            for row, key in enumerate(counted):
                pairs = {(nodes[0], nodes[-1]) for nodes in walks[key[1]]}
                pairs = frozenset(pair for pair in pairs if loops == "against" or pair[0] != pair[1])
                marks = int(marked["mark0"][row]), int(marked["mark1"][row])
                assert seen.setdefault(pairs, marks) == marks
                if length > 1:
                    figures = int(ends["pairs"][row]) - hidden[row], int(ends["known"][row]) - hidden[row]
                    assert figures == (expected[key]["body_pairs"], expected[key]["known_pairs"])
            assert len(set(seen.values())) == len(seen)


@needs_data
@pytest.mark.slow
def test_triangles_are_counted_without_all_paths_of_two_edges(tmp_path):
    """In one order of the joins they take 11 GB, which DuckDB chose for all facts of this graph, not for a part."""
    parts = [(DATA / "kbc" / "fb15k237" / f"{split}.tsv").read_text() for split in ("train", "valid", "test")]
    (tmp_path / "all.tsv").write_text("".join(parts))
    kb = read_facts(tmp_path / "all.tsv")
    with Engine(kb, memory_limit="1GB") as engine:
        engine.connection.execute("SET max_temp_directory_size = '0KB'")  # nothing goes to disk
        counts = ChainTables(engine, len(kb.predicates)).count_supports(2)
    assert int(counts["n"].sum()) == 8_083_939
