import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder, Value, signature
from rulewright.data.vocabulary import lay_out_domains
from rulewright.errors import DataError, UnknownNameError
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration

PREDICATES = {
    each.name: each
    for each in [
        PredicateDeclaration("tall", ("person",)),
        PredicateDeclaration("likes", ("person", "person")),
        PredicateDeclaration("reads", ("person", "book")),
        PredicateDeclaration("gives", ("person", "book", "person")),
        PredicateDeclaration("age", ("person", "number")),
        PredicateDeclaration("mood", ("person",), ("good", "bad", "so-so")),
        PredicateDeclaration("bond", ("person", "person"), ("kin", "none")),
    ]
}
STEMS = ["a", "b'", "ü\t", ""]
WORLDS = ["w0", "w1", "w2"]


@dataclass
class Naive:
    """The same facts as the knowledge base beside it, in a dictionary."""

    kb: KnowledgeBase
    facts: dict[str, dict[tuple[Value, ...], bool | str]] = field(default_factory=dict)

    def tuples(self, name: str, truth: bool) -> list[tuple[Value, ...]]:
        rows = self.facts.get(name, {}).items()
        if PREDICATES[name].classes is not None:
            return [(*args, str(value)) for args, value in rows if truth]
        return [args for args, value in rows if value is truth]


def all_facts(kb: KnowledgeBase, *, truth: bool = True) -> Counter[tuple[str, tuple[Value, ...]]]:
    return Counter(kb.facts(truth=truth))


@st.composite
def bases(draw: st.DrawFn, *, worlds: bool | None = None) -> Naive:
    with_worlds = draw(st.booleans()) if worlds is None else worlds
    builder = KnowledgeBaseBuilder(PREDICATES.values(), closed=draw(st.sampled_from([(), ("likes",), ("tall", "age")])))
    for name in WORLDS if with_worlds else []:
        builder.world(name)
        for kind in ("person", "book"):
            builder.entity(f"{STEMS[0]}@{name}", type=kind, world=name)
    facts: dict[str, dict[tuple[Value, ...], bool | str]] = {}
    for _ in range(draw(st.integers(0, 25))):
        declaration = draw(st.sampled_from(list(PREDICATES.values())))
        world = draw(st.sampled_from(WORLDS)) if with_worlds else None
        args: list[Value] = []
        for kind in declaration.types:
            stem = draw(st.sampled_from(STEMS))
            number = draw(st.sampled_from([0.0, 1.0, -2.5]))
            args.append(number if kind == NUMBER_TYPE else stem if world is None else f"{stem}@{world}")
        outcome = draw(st.booleans()) if declaration.classes is None else draw(st.sampled_from(declaration.classes))
        known = facts.setdefault(declaration.name, {})
        if known.setdefault(tuple(args), outcome) == outcome:
            value = outcome if isinstance(outcome, str) else None
            builder.add(declaration.name, args, truth=outcome is not False, value=value, world=world)
    return Naive(builder.build(), facts)


def possible(kb: KnowledgeBase, declaration: PredicateDeclaration) -> Iterator[tuple[Value, ...]]:
    values = [
        [0.0, 1.0, -2.5, 7.0] if kind == NUMBER_TYPE else [*kb.domains[kind].labels.tolist(), "nobody"]
        for kind in declaration.types
    ]
    if declaration.classes is not None:
        values.append([*declaration.classes, "no class"])
    return product(*values)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(bases())
def test_facts_come_out_as_they_went_in(naive: Naive) -> None:
    kb = naive.kb
    for name, declaration in PREDICATES.items():
        for truth in (True, False):
            expected = naive.tuples(name, truth)
            columns = kb.columns(name, truth=truth)
            assert kb.tuples(name, truth=truth) == expected
            assert kb.count(name, truth=truth) == len(expected)
            assert len(columns) == len(signature(declaration))
            for place, column in zip(signature(declaration), columns, strict=True):
                assert column.dtype == (np.float64 if place == "n" else np.int32)
            for args in possible(kb, declaration):
                assert kb.contains(name, *args, truth=truth) == (args in expected)
    assert kb.n_facts == sum(len(naive.tuples(name, True)) for name in PREDICATES)
    assert kb.n_false_facts == sum(len(naive.tuples(name, False)) for name in PREDICATES)
    assert kb.n_entities == sum(len(domain) for domain in kb.domains.values())
    assert list(kb.facts()) == [(name, args) for name in PREDICATES for args in naive.tuples(name, True)]


@settings(max_examples=60, deadline=None)
@given(bases(), st.floats(0, 1), st.integers(0, 5), st.sampled_from([None, ["likes"], ["likes", "tall", "mood"], []]))
def test_holding_out_divides_the_true_facts(
    naive: Naive, share: float, seed: int, predicates: list[str] | None
) -> None:
    kb = naive.kb
    kept, hidden = kb.hold_out(share, seed=seed, predicates=predicates)
    assert all_facts(kept) + all_facts(hidden) == all_facts(kb)
    assert all_facts(kept, truth=False) == all_facts(kb, truth=False)
    assert hidden.n_false_facts == 0
    chosen = PREDICATES if predicates is None else predicates
    sizes = Counter(signature(PREDICATES[name]) for name in chosen for _ in naive.tuples(name, True))
    assert hidden.n_facts == sum(round(share * size) for size in sizes.values())
    assert {name for name, _ in hidden.facts()} <= set(chosen)
    again = kb.hold_out(share, seed=seed, predicates=predicates)
    assert [list(part.facts()) for part in again] == [list(kept.facts()), list(hidden.facts())]


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_is_a_share(share: float) -> None:
    with pytest.raises(DataError, match=r"share must lie in \[0, 1\]"):
        KnowledgeBase.from_triples([("a", "r", "b")]).hold_out(share)


@settings(max_examples=60, deadline=None)
@given(bases(worlds=True), st.sets(st.sampled_from(WORLDS)))
def test_worlds_are_chosen_by_their_facts(naive: Naive, names: set[str]) -> None:
    part = naive.kb.in_worlds(names)
    for truth in (True, False):
        expected = [
            (name, args)
            for name in PREDICATES
            for args in naive.tuples(name, truth)
            if str(args[0]).rpartition("@")[2] in names
        ]
        assert list(part.facts(truth=truth)) == expected
    assert part.domains == naive.kb.domains
    world_of = naive.kb.entity_worlds
    assert world_of is not None
    labels = [label for domain in naive.kb.domains.values() for label in domain.labels]
    assert [naive.kb.worlds[number] for number in world_of] == [label.rpartition("@")[2] for label in labels]


def test_worlds_that_are_not_there() -> None:
    with pytest.raises(DataError, match="one world"):
        KnowledgeBase.from_triples([("a", "r", "b")]).in_worlds(["w"])
    builder = KnowledgeBaseBuilder()
    builder.add("r", ["a", "b"], world="first")
    with pytest.raises(UnknownNameError, match="unknown world 'frst'; did you mean 'first'"):
        builder.build().in_worlds(["frst"])


def test_facts_of_numbers_alone_belong_to_every_world() -> None:
    builder = KnowledgeBaseBuilder()
    builder.world("w")
    builder.add("prime", [7])
    kb = builder.build()
    assert kb.in_worlds(["w"]).tuples("prime") == [(7.0,)]


@settings(max_examples=60, deadline=None)
@given(bases(), st.sampled_from(["tall", "likes", "reads"]))
def test_a_matrix_has_a_one_for_each_true_fact(naive: Naive, name: str) -> None:
    kb, declaration = naive.kb, PREDICATES[name]
    labels = [kb.domains[kind].labels.tolist() for kind in declaration.types]
    expected = np.zeros([len(each) for each in labels])
    for args in naive.tuples(name, True):
        expected[tuple(each.index(arg) for each, arg in zip(labels, args, strict=True))] = 1
    found = kb.matrix(name)
    assert found.shape == (len(labels[0]), len(labels[1]) if len(labels) == 2 else 1)
    np.testing.assert_array_equal(found.toarray(), expected.reshape(found.shape))


@pytest.mark.parametrize("name", ["gives", "age", "mood"])
def test_only_entities_one_or_two_have_a_matrix(name: str) -> None:
    kb = KnowledgeBaseBuilder(PREDICATES.values()).build()
    with pytest.raises(DataError, match="only predicates over one or two entities have a matrix"):
        kb.matrix(name)


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(bases(), st.sampled_from([name for name in PREDICATES if name != "age"]), st.data())
def test_a_tensor_says_what_is_observed(naive: Naive, name: str, data: st.DataObject) -> None:
    kb, declaration = naive.kb, PREDICATES[name]
    world = data.draw(st.sampled_from([None, *kb.worlds]))
    labels = [
        [label for label in kb.domains[kind].labels if world is None or label.endswith(f"@{world}")]
        for kind in declaration.types
    ]
    value, observed = kb.tensor(name, world=world)
    assert value.shape == observed.shape == tuple(map(len, labels))
    facts = naive.facts.get(name, {})
    for index in product(*(range(len(each)) for each in labels)):
        outcome = facts.get(tuple(each[place] for each, place in zip(labels, index, strict=True)))
        assert observed[index].item() == (outcome is not None or name in kb.closed)
        if declaration.classes is None:
            assert value[index].item() is (outcome is True)
        elif outcome is not None:
            assert declaration.classes[int(value[index].item())] == outcome


def test_tensors_refuse_numbers_and_unknown_worlds() -> None:
    kb = KnowledgeBase.from_facts([("age", "ann", 3), ("tall", "ann")])
    with pytest.raises(DataError, match="has a numeric argument and so no dense tensor"):
        kb.tensor("age")
    with pytest.raises(UnknownNameError, match="unknown world"):
        kb.tensor("tall", world="w")


@settings(max_examples=40, deadline=None)
@given(bases())
def test_a_summary_counts_everything(naive: Naive) -> None:
    kb = naive.kb
    test, _ = kb.hold_out(0.5)
    summary = kb.with_splits({"test": test}).summary()
    assert (summary.entities, summary.worlds, summary.facts, summary.false_facts) == (
        kb.n_entities,
        len(kb.worlds),
        kb.n_facts,
        kb.n_false_facts,
    )
    assert summary.types == {name: len(domain) for name, domain in kb.domains.items()}
    assert summary.splits == {"test": test.n_facts + test.n_false_facts}
    for each in summary.predicates:
        declaration = PREDICATES[each.name]
        assert (each.types, each.classes, each.closed) == (
            declaration.types,
            declaration.classes,
            each.name in kb.closed,
        )
        assert (each.facts, each.false_facts) == tuple(len(naive.tuples(each.name, truth)) for truth in (True, False))
    assert json.loads(json.dumps(summary.as_dict()))["facts"] == kb.n_facts
    table = str(summary).partition("predicate ")[2].splitlines()[1:]
    assert len({len(line) for line in table}) == 1


def test_columns_are_views_of_the_table() -> None:
    kb = KnowledgeBase.from_triples([("a", "r", "b"), ("b", "s", "c"), ("c", "r", "a")])
    table = kb.tables()["ee"]
    for name in ("r", "s"):
        for column, whole in zip(kb.columns(name), table.columns, strict=True):
            assert np.shares_memory(column, whole)
    assert table.columns_of(kb.predicate_index("s"))[0].tolist() == [1]


def test_what_stays_is_shared() -> None:
    kb = KnowledgeBase.from_triples([("a", "r", "b"), ("b", "r", "c")])
    changed = kb.with_splits({"test": kb.with_facts({})})
    assert changed.columns("r")[0].base is kb.columns("r")[0].base
    assert changed.domains["entity"] is kb.domains["entity"]
    assert kb.splits == {}
    assert changed.split("test").n_facts == 0


def test_an_empty_knowledge_base() -> None:
    kb = KnowledgeBaseBuilder().build()
    assert (kb.n_facts, kb.n_false_facts, kb.n_entities, list(kb.facts())) == (0, 0, 0, [])
    assert repr(kb) == "KnowledgeBase(0 entities, 0 predicates, 0 facts)"
    assert [part.n_facts for part in kb.hold_out(0.5)] == [0, 0]
    assert kb.summary().facts == 0
    assert str(kb.summary()).startswith("entities        0")
    assert kb.entity_worlds is None
    with pytest.raises(UnknownNameError, match="no predicate is known here"):
        kb.columns("likes")


def test_declared_predicates_without_facts() -> None:
    kb = KnowledgeBaseBuilder(PREDICATES.values()).build()
    for name in PREDICATES:
        assert (kb.count(name), kb.tuples(name), kb.tuples(name, truth=False)) == (0, [], [])
    assert kb.matrix("likes").shape == (0, 0)
    assert tuple(kb.tensor("gives")[0].shape) == (0, 0, 0)


def test_questions_about_numbers() -> None:
    kb = KnowledgeBase.from_facts([("age", "ann", 42)])
    assert kb.contains("age", "ann", 42)
    assert not kb.contains("age", "ann", 42.5)
    with pytest.raises(DataError, match="argument 2 of age is a number, got 'old'"):
        kb.contains("age", "ann", "old")
    with pytest.raises(DataError, match="age has 2 arguments, got 1"):
        kb.contains("age", "ann")


def test_repr_counts_all_facts_of_a_split() -> None:
    builder = KnowledgeBaseBuilder()
    builder.add("r", ["a", "b"])
    builder.add("r", ["b", "a"], split="test")
    builder.add("r", ["b", "b"], split="test", truth=False)
    assert repr(builder.build()) == "KnowledgeBase(2 entities, 1 predicate, 1 fact, test: 2)"


def test_names_that_are_not_declared() -> None:
    domains = lay_out_domains([("person", ["ann"], None)])
    with pytest.raises(UnknownNameError, match="unknown type 'place'"):
        KnowledgeBase(domains, [PredicateDeclaration("in", ("place",))], {})
    with pytest.raises(UnknownNameError, match="unknown predicate 'near'"):
        KnowledgeBase(domains, [], {}, closed=["near"])


@given(
    st.sets(st.tuples(st.integers(0, 6), st.integers(0, 2), st.integers(0, 6)), min_size=1, max_size=40),
    st.floats(0, 1),
    st.integers(0, 9),
)
def test_what_is_held_out_names_nothing_that_is_not_kept(drawn, share, seed):
    kb = KnowledgeBase.from_triples((f"e{h}", f"r{r}", f"e{t}") for h, r, t in sorted(drawn))
    kept, out = kb.hold_out(share, seed=seed, keep_names=True)
    assert sorted([*kept.facts(), *out.facts()]) == sorted(kb.facts())
    assert out.n_facts <= round(share * kb.n_facts)
    assert {name for name, _ in kept.facts()} == set(kb.predicates)
    assert {arg for _, args in kept.facts() for arg in args} == {arg for _, args in kb.facts() for arg in args}
    again, _ = kb.hold_out(share, seed=seed, keep_names=True)
    assert list(again.facts()) == list(kept.facts())


def test_labels_of_samples() -> None:
    kb = KnowledgeBase.from_labels({"a": np.array([1, 0, 1]), "b": [False, False, False]})
    assert kb.tuples("a") == [("0",), ("2",)] and kb.count("b") == 0 and kb.n_entities == 3
    assert KnowledgeBase.from_labels(np.eye(3), ["a", "b", "c"]).tuples("c") == [("2",)]
    for labels, names, words in (
        (np.eye(3), None, "no names"),
        (np.eye(3), ["a"], "got .3, 3. and 1 names"),
        ({"a": [1], "b": [1, 0]}, None, "arrays of one length"),
        ({}, None, "got none"),
        ({"a": [0.3]}, None, "true or false"),
        ({"a": [1]}, ["a"], "a mapping has its own"),
    ):
        with pytest.raises(DataError, match=words):
            KnowledgeBase.from_labels(labels, names)
