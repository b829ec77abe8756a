"""Adding and removing facts equals building anew from the facts that there are then."""

from __future__ import annotations

import numpy as np
import pytest
from fact_strategies import contents, knowledge_bases
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.data.index import SortedRows
from rulewright.errors import DataError, UnknownNameError
from rulewright.logic import PredicateDeclaration


def facts_of(kb: KnowledgeBase) -> dict[bool, set[object]]:
    return {truth: set(kb.facts(truth=truth)) for truth in (True, False)}


@settings(max_examples=100, deadline=None)
@given(knowledge_bases(), st.randoms(use_true_random=False))
def test_what_is_removed_and_added_again_changes_nothing(kb, chance):
    chosen = {letters: chance.sample(range(len(table)), len(table) // 2) for letters, table in kb.tables().items()}
    parts = []
    for side in (True, False):
        keep = {
            letters: np.isin(np.arange(len(table)), chosen[letters]) == side for letters, table in kb.tables().items()
        }
        parts.append({letters: table.keep_rows(keep[letters]) for letters, table in kb.tables().items()})
    held = kb.with_facts(parts[0])
    removed = kb.remove(held)
    assert facts_of(removed) == facts_of(kb.with_facts(parts[1], kb.tables(truth=False)))
    assert contents(removed.add(held)) == contents(kb)
    assert removed.domains == kb.domains
    again = kb.add(kb.with_splits({}))
    assert contents(again) == contents(kb)
    assert again.duplicates == 2 * kb.duplicates + kb.n_facts + kb.n_false_facts


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("pqr"), st.sampled_from("abcd"), st.sampled_from("abcd"))), st.integers(0, 20)
)
def test_tuples_are_added_as_if_they_had_been_there(facts, size):
    kb = KnowledgeBase.from_facts(facts[:size]).add(facts[size:])
    whole = KnowledgeBase.from_facts(facts)
    assert contents(kb) == contents(whole)
    assert kb.n_facts + kb.duplicates == len(facts)
    assert {name: domain.labels.tolist() for name, domain in kb.domains.items()} == {
        name: domain.labels.tolist() for name, domain in whole.domains.items()
    }
    gone = sorted(set(facts[size:]))
    assert facts_of(kb.remove(gone))[True] == {(name, (h, t)) for name, h, t in set(facts) - set(gone)}


def typed() -> KnowledgeBase:
    builder = KnowledgeBaseBuilder(
        [
            PredicateDeclaration("reads", ("person", "book")),
            PredicateDeclaration("mood", ("person",), ("good", "bad")),
            PredicateDeclaration("age", ("person", "number")),
        ]
    )
    builder.add("reads", ["ann", "emma"])
    builder.add("mood", ["ann"], value="good")
    builder.add("age", ["ann", 42])
    builder.add("reads", ["bob", "emma"], truth=False)
    builder.add("reads", ["ann", "ivanhoe"], split="test")
    return builder.build()


def test_types_classes_numbers_and_splits_stay_right():
    kb = typed()
    more = kb.add([("reads", "cid", "emma"), ("mood", "cid", "bad"), ("age", "cid", 7), ("owns", "cid", "dog")])
    assert [(name, domain.start, len(domain)) for name, domain in more.domains.items()] == [
        ("person", 0, 3),
        ("book", 3, 2),
        ("entity", 5, 2),
    ]
    assert more.tuples("reads") == [("ann", "emma"), ("cid", "emma")]
    assert more.tuples("mood") == [("ann", "good"), ("cid", "bad")] and more.tuples("age")[1] == ("cid", 7.0)
    assert more.split("test").tuples("reads") == [("ann", "ivanhoe")] and more.split("test").domains is not kb.domains
    assert more.tuples("reads", truth=False) == [("bob", "emma")]
    assert more.remove([("reads", "bob", "emma")], truth=False).n_false_facts == 0
    # types that are left open are those of the declaration
    assert kb.add(KnowledgeBase.from_triples([("dan", "reads", "emma")])).tuples("reads") == [
        ("ann", "emma"),
        ("dan", "emma"),
    ]
    assert kb.domains["person"].labels.tolist() == ["ann", "bob"], "the old one is as it was"


def test_worlds():
    builder = KnowledgeBaseBuilder()
    builder.add("p", ["a", "b"], world="w0")
    kb = builder.build()
    more = KnowledgeBaseBuilder()
    more.add("p", ["c", "d"], world="w1")
    both = kb.add(more.build())
    assert both.worlds == ("w0", "w1") and both.in_worlds(["w1"]).tuples("p") == [("c", "d")]
    assert kb.add([("p", "b", "a")]).n_facts == 2
    with pytest.raises(DataError, match="'c' would be an entity of type entity in no world, while others"):
        kb.add([("p", "a", "c")])
    with pytest.raises(DataError, match="belongs to world 'w1' and cannot stand in world 'w0'"):
        moved = KnowledgeBaseBuilder()
        moved.add("p", ["c", "d"], world="w0")
        both.add(moved.build())
    with pytest.raises(DataError, match="two worlds"):
        both.add([("p", "a", "c")])
    with pytest.raises(DataError, match="in world 'w0', while others of that type belong to no world"):
        KnowledgeBase.from_triples([("x", "p", "y")]).add(kb)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda kb: kb.add([("reads", "bob", "emma")]), "both true and false"),
        (lambda kb: kb.add([("mood", "ann", "bad")]), "two classes for the same arguments"),
        (lambda kb: kb.add([("reads", "ann")]), "has 2 arguments, got 1"),
        (lambda kb: kb.add([("age", "ann", "old")]), "argument 2 of age is a number"),
        (lambda kb: kb.add(KnowledgeBase.from_facts([("reads", "ann")])), "was declared as .*, cannot be"),
        (lambda kb: kb.add(kb), "have no splits, got test"),
        (lambda kb: kb.remove([("reads", "ann", "dune")]), r"cannot remove reads\(ann, dune\): it is not known"),
        (lambda kb: kb.remove([("reads", "x", "y"), ("reads", "y", "x")]), r"reads\(x, y\) and 1 more: it is not"),
        (lambda kb: kb.remove([("age", "ann", 41)]), r"cannot remove age\(ann, 41.0\)"),
    ],
)
def test_what_cannot_be_is_refused(change, message):
    with pytest.raises(DataError, match=message):
        change(typed())


def test_an_unknown_predicate_cannot_be_removed():
    with pytest.raises(UnknownNameError, match="unknown predicate 'read'"):
        typed().remove([("read", "ann", "emma")])


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 12), st.integers(1, 4), st.integers(0, 2**32))
def test_sorted_rows_find_every_row(rows, width, seed):
    random = np.random.default_rng(seed)
    columns = list(np.unique(random.integers(0, 4, (rows, width)), axis=0).T)
    shuffled = random.permutation(len(columns[0]))
    columns = [column[shuffled] for column in columns]
    ordered = SortedRows(columns)
    listed = list(zip(*(column.tolist() for column in columns), strict=True))
    wanted = [random.integers(-1, 6, 20) for _ in range(width)]
    for prefix in range(1, width + 1):
        starts, ends = ordered.ranges(wanted[:prefix])
        for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
            values = tuple(int(column[index]) for column in wanted[:prefix])
            found = sorted(listed[position] for position in ordered.order[start:end])
            assert found == sorted(row for row in listed if row[:prefix] == values)
    for position in range(1, width):
        starts, ends = ordered.ranges_by(position, wanted[0], wanted[position])
        for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
            found = sorted(listed[ordered.order[row]] for row in ordered.rows_by(position)[start:end])
            values = int(wanted[0][index]), int(wanted[position][index])
            assert found == sorted(row for row in listed if (row[0], row[position]) == values)
    assert [row >= 0 for row in ordered.find(wanted)] == [
        tuple(int(column[index]) for column in wanted) in listed for index in range(20)
    ]
