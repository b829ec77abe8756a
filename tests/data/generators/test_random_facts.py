from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.data import Value
from rulewright.data.generators import random_graph
from rulewright.data.generators.generated import sorted_distinct
from rulewright.data.index import encode_rows
from rulewright.errors import DataError, UnknownNameError
from rulewright.logic import NUMBER_TYPE

DECLARATIONS = """
predicate tall(person).
predicate likes(person, person).
predicate gives(person, book, person).
predicate age(person, number).
predicate limit(number).
predicate mood(person) in {good, bad}.
predicate view(person, book) in {yes, no, 'don\\'t know'}.
closed likes.
"""


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 9), st.integers(0, 5), st.integers(1, 4), st.floats(0, 0.5), st.floats(0, 1), st.integers(0, 99))
def test_random_facts_are_distinct_typed_and_in_one_world(
    people: int, books: int, worlds: int, density: float, false_share: float, seed: int
) -> None:
    sizes = {"person": people, "book": books}
    generated = random_graph(
        sizes, DECLARATIONS, density=density, worlds=worlds, false_share=false_share, numbers=7, seed=seed
    )
    kb = generated.kb
    assert {name: len(domain) for name, domain in kb.domains.items()} == sizes
    assert len(kb.worlds) == (worlds if worlds > 1 else 0)
    assert kb.closed == {"likes"}
    world_of = kb.entity_worlds if worlds > 1 else np.zeros(people + books, dtype=np.int32)
    assert world_of is not None
    shares = [
        np.bincount(domain.worlds, minlength=worlds) for domain in kb.domains.values() if domain.worlds is not None
    ]
    assert all(share.max() - share.min() <= 1 for share in shares)
    for name, declaration in kb.predicates.items():
        members = [kb.domains[kind].members().tolist() for kind in declaration.types if kind != NUMBER_TYPE]
        room = sum(len({int(world_of[each]) for each in row}) <= 1 for row in product(*members))
        room *= 7 if NUMBER_TYPE in declaration.types else 1
        true, false = (list(zip(*kb.columns(name, truth=truth), strict=True)) for truth in (True, False))
        assert len(true) == round(density * room)
        assert len(false) == (round(false_share * len(true)) if declaration.classes is None else 0)
        args = [row[: declaration.arity] for row in true + false]
        assert len(set(args)) == len(args)
        for row in args:
            places = set()
            for kind, value in zip(declaration.types, row, strict=True):
                if kind == NUMBER_TYPE:
                    assert value in range(7)
                else:
                    assert value in kb.domains[kind].members()
                    places.add(int(world_of[value]))
            assert len(places) <= 1
        assert all(row[-1] in range(len(declaration.classes)) for row in true if declaration.classes is not None)


def test_every_possible_fact_can_be_drawn() -> None:
    kb = random_graph({"a": 2, "b": 3}, "predicate p(a, b). predicate q(b, number).", density=1, numbers=2).kb
    assert sorted(kb.tuples("p")) == sorted(product(["a_0", "a_1"], ["b_0", "b_1", "b_2"]))
    assert sorted(kb.tuples("q")) == sorted(product(["b_0", "b_1", "b_2"], [0.0, 1.0]))


def test_facts_are_spread_evenly_or_as_told() -> None:
    declarations = "predicate p(e, e). predicate q(e, e). predicate r(e, e)."
    kb = random_graph({"e": 50}, declarations, facts=1000).kb
    assert [kb.count(name) for name in "pqr"] == [334, 333, 333]
    kb = random_graph({"e": 50}, declarations, facts={"q": 7}).kb
    assert [kb.count(name) for name in "pqr"] == [0, 7, 0]


def test_draws_are_uniform() -> None:
    counts: Counter[tuple[Value, ...]] = Counter()
    for seed in range(600):
        counts.update(random_graph({"e": 4}, "predicate p(e, e).", facts=3, seed=seed).kb.tuples("p"))
    assert len(counts) == 16
    assert max(abs(count - 600 * 3 / 16) for count in counts.values()) < 50


def test_large_graphs_have_no_repeated_facts() -> None:
    kb = random_graph({"e": 2_000}, "predicate p(e, e). predicate q(e, e, e).", facts=300_000, worlds=10).kb
    for name in "pq":
        columns = kb.columns(name)
        assert len(columns[0]) == 150_000
        assert len(sorted_distinct(encode_rows(columns, [2_000] * len(columns)))) == 150_000
        assert len({tuple(column // 200) for column in columns}) == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"facts": 5, "density": 0.5}, "give either facts or density"),
        ({}, "give either facts or density"),
        ({"facts": -1}, "facts must be >= 0, got -1"),
        ({"facts": {"p": -1}}, "the facts of p must be >= 0, got -1"),
        ({"facts": {"pp": 1}}, "unknown predicate 'pp'"),
        ({"facts": 10}, "p has room for 9 facts, got a wish for 10"),
        ({"density": 1.0, "false_share": 0.5}, "p has room for 9 facts, got a wish for 13"),
        ({"density": 2}, r"density must lie in \[0, 1\], got 2"),
        ({"facts": 1, "worlds": 0}, "worlds must be >= 1, got 0"),
        ({"facts": 1, "numbers": 0}, "numbers must be >= 1, got 0"),
        ({"facts": 1, "false_share": -1}, "false_share must be >= 0, got -1"),
        ({"facts": 1, "sizes": {"e": -1}}, "the size of e must be >= 0, got -1"),
        ({"facts": 1, "sizes": {"f": 1}}, "unknown type 'e'"),
        ({"facts": 1, "declarations": "predicate p(e, e, e, e, e, e, e).", "sizes": {"e": 1000}}, "more than can be"),
    ],
)
def test_impossible_graphs(options: dict[str, object], message: str) -> None:
    settings = {"sizes": {"e": 3}, "declarations": "predicate p(e, e).", **options}
    with pytest.raises((DataError, UnknownNameError), match=message):
        random_graph(**settings)  # type: ignore[arg-type]
