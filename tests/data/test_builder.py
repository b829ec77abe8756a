import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.data import ENTITY_TYPE, KnowledgeBase, KnowledgeBaseBuilder, Value
from rulewright.errors import DataError, RulewrightError, UnknownNameError
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration

LABELS = ["a", "b", "c", "", "it's", 'say "x"', "tab\there", "naïve 日本", "0", "X"]
DECLARED = [
    PredicateDeclaration("likes", ("person", "person")),
    PredicateDeclaration("reads", ("person", "book", "number")),
    PredicateDeclaration("mood", ("person",), ("good", "bad", "it's so-so")),
]
NAMES = ["likes", "reads", "mood", "free", "other"]


@dataclass(frozen=True)
class Addition:
    predicate: str
    args: tuple[Value, ...]
    truth: bool
    value: str | None
    world: str | None
    split: str


@dataclass
class Model:
    """What a builder should hold, as plainly as it can be said."""

    declared: dict[str, PredicateDeclaration]
    worlds: list[str] = field(default_factory=list)
    entities: dict[str, dict[str, str | None]] = field(default_factory=dict)
    facts: dict[str, dict[str, dict[tuple[Value, ...], bool | str]]] = field(default_factory=lambda: {"": {}})
    duplicates: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for declaration in self.declared.values():
            self.know_types(declaration)

    def know_types(self, declaration: PredicateDeclaration) -> None:
        for kind in declaration.types:
            if kind != NUMBER_TYPE:
                self.entities.setdefault(kind, {})

    def accepts(self, fact: Addition, declaration: PredicateDeclaration) -> bool:
        if len(fact.args) != len(declaration.types):
            return False
        for kind, arg in zip(declaration.types, fact.args, strict=True):
            if isinstance(arg, str) == (kind == NUMBER_TYPE):
                return False
            if isinstance(arg, str):
                if self.entities.get(kind, {}).get(arg, fact.world) != fact.world:
                    return False
            elif not math.isfinite(arg):
                return False
        if declaration.classes is None:
            return fact.value is None
        return fact.truth and fact.value in declaration.classes

    def add(self, fact: Addition) -> bool:
        """Take a fact up; returns whether it is accepted."""
        if fact.predicate in self.declared:
            declaration = self.declared[fact.predicate]
        else:
            if fact.value is not None or not fact.args:
                return False
            types = tuple(ENTITY_TYPE if isinstance(arg, str) else NUMBER_TYPE for arg in fact.args)
            declaration = PredicateDeclaration(fact.predicate, types)
        if not self.accepts(fact, declaration):
            return False
        outcome = fact.truth if fact.value is None else fact.value
        known = self.facts.setdefault(fact.split, {}).setdefault(fact.predicate, {})
        if known.get(fact.args, outcome) != outcome:
            return False
        self.duplicates[fact.split] = self.duplicates.get(fact.split, 0) + (fact.args in known)
        known[fact.args] = outcome
        self.declared[fact.predicate] = declaration
        self.know_types(declaration)
        for kind, arg in zip(declaration.types, fact.args, strict=True):
            if isinstance(arg, str):
                self.entities[kind].setdefault(arg, fact.world)
                if fact.world is not None and fact.world not in self.worlds:
                    self.worlds.append(fact.world)
        return True

    def tuples(self, split: str, name: str, truth: bool) -> list[tuple[Value, ...]]:
        rows = self.facts[split].get(name, {}).items()
        if self.declared[name].classes is not None:
            return [(*args, str(value)) for args, value in rows if truth]
        return [args for args, value in rows if value is truth]


numbers = st.sampled_from([0, 1, -1, 2.5, -0.0, math.inf, math.nan])
arguments = st.lists(st.one_of(st.sampled_from(LABELS), st.sampled_from(LABELS), numbers), max_size=3).map(tuple)


@st.composite
def additions(draw: st.DrawFn, *, worlds: bool) -> Addition:
    name = draw(st.sampled_from(NAMES))
    declaration = next((each for each in DECLARED if each.name == name), None)
    if declaration is not None and draw(st.integers(0, 4)):
        labels = st.sampled_from(LABELS[:5])
        args: tuple[Value, ...] = draw(
            st.tuples(*(numbers if kind == NUMBER_TYPE else labels for kind in declaration.types))
        )
    else:
        args = draw(arguments)
    has_classes = name == "mood" if draw(st.integers(0, 9)) else draw(st.booleans())
    return Addition(
        name,
        args,
        truth=draw(st.booleans()) if not has_classes else draw(st.integers(0, 9)) > 0,
        value=draw(st.sampled_from(["good", "bad", "it's so-so", "unheard of"])) if has_classes else None,
        world=draw(st.sampled_from(["w1", "w1", "w2", None] if worlds else [None])),
        split=draw(st.sampled_from(["", "", "test"])),
    )


def assert_equal(kb: KnowledgeBase, model: Model) -> None:
    assert dict(kb.predicates) == model.declared
    assert list(kb.worlds) == model.worlds
    for split, base in {"": kb, **kb.splits}.items():
        assert base.duplicates == model.duplicates.get(split, 0)
    assert {name: domain.labels.tolist() for name, domain in kb.domains.items()} == {
        name: list(labels) for name, labels in model.entities.items()
    }
    if model.worlds:
        for name, labels in model.entities.items():
            worlds = kb.domains[name].worlds
            assert worlds is not None
            assert [kb.worlds[number] for number in worlds] == list(labels.values())
    assert set(kb.splits) == set(model.facts) - {""}
    for split, base in {"": kb, **kb.splits}.items():
        for name in model.declared:
            for truth in (True, False):
                assert base.tuples(name, truth=truth) == model.tuples(split, name, truth)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.data(), st.booleans())
def test_a_builder_holds_what_a_plain_model_holds(data: st.DataObject, worlds: bool) -> None:
    model = Model({each.name: each for each in DECLARED})
    builder = KnowledgeBaseBuilder(DECLARED)
    for fact in data.draw(st.lists(additions(worlds=worlds), max_size=30)):
        try:
            builder.add(
                fact.predicate, fact.args, truth=fact.truth, value=fact.value, world=fact.world, split=fact.split
            )
            accepted = True
        except RulewrightError as error:
            assert "\n" not in str(error)
            accepted = False
        assert accepted == model.add(fact), fact
    stray = any(world is None for labels in model.entities.values() for world in labels.values())
    if model.worlds and stray:
        with pytest.raises(DataError, match="belongs to no world while others do"):
            builder.build()
    else:
        assert_equal(builder.build(), model)


def test_columns_are_32_bit_ids_and_64_bit_numbers() -> None:
    kb = KnowledgeBase.from_facts([("age", "ann", 42), ("likes", "ann", "bob"), ("likes", "bob", "ann")])
    assert [column.dtype for column in kb.columns("likes")] == [np.int32, np.int32]
    assert [column.dtype for column in kb.columns("age")] == [np.int32, np.float64]


@pytest.mark.parametrize(
    ("predicate", "args", "options", "message"),
    [
        ("likes", ["ann"], {}, "likes has 2 arguments, got 1"),
        ("likes", ["ann", 3], {}, "argument 2 of likes has type person, got the number 3"),
        ("reads", ["ann", "ulysses", "long"], {}, "argument 3 of reads is a number, got 'long'"),
        ("reads", ["ann", "ulysses", math.nan], {}, "argument 3 of reads must be finite, got nan"),
        ("reads", ["ann", "ulysses", 10**400], {}, "argument 3 of reads must be finite"),
        ("likes", ["ann", "bob"], {"value": "good"}, "likes has no classes, got 'good'"),
        ("mood", ["ann"], {}, "mood is multi-class: a fact of it names one class"),
        ("mood", ["ann"], {"value": "good", "truth": False}, "mood is multi-class"),
        ("mood", ["ann"], {"value": "god"}, "unknown class of mood 'god'; did you mean 'good'"),
        ("new", ["ann"], {"value": "x"}, "new has classes; declare them first"),
        ("new", [], {}, "new has no argument, and facts are about entities"),
    ],
)
def test_a_wrong_fact_is_refused_by_name(
    predicate: str, args: list[Value], options: dict[str, object], message: str
) -> None:
    builder = KnowledgeBaseBuilder(DECLARED)
    with pytest.raises(RulewrightError, match=message):
        builder.add(predicate, args, **options)  # type: ignore[arg-type]
    kb = builder.build()
    assert (kb.n_entities, kb.n_facts, "new" in kb.predicates) == (0, 0, False)


def test_contradictions_say_what_was_and_what_is() -> None:
    builder = KnowledgeBaseBuilder(DECLARED)
    builder.add("likes", ["ann", "bob"])
    builder.add("mood", ["ann"], value="good")
    with pytest.raises(DataError, match=r"likes\(ann, bob\) was true above and is false here"):
        builder.add("likes", ["ann", "bob"], truth=False)
    with pytest.raises(DataError, match=r"mood\(ann\) was 'good' above and is 'bad' here"):
        builder.add("mood", ["ann"], value="bad")


def test_splits_may_differ_and_are_no_duplicates() -> None:
    builder = KnowledgeBaseBuilder()
    builder.add("likes", ["ann", "bob"])
    builder.add("likes", ["ann", "bob"], split="test")
    builder.add("likes", ["bob", "ann"], split="test", truth=False)
    kb = builder.build()
    assert kb.duplicates == 0
    assert (kb.n_facts, kb.split("test").n_facts, kb.split("test").n_false_facts) == (1, 1, 1)
    assert kb.split("test").domains["entity"] is kb.domains["entity"]


def test_a_fact_refused_for_its_world_leaves_no_trace() -> None:
    builder = KnowledgeBaseBuilder()
    builder.add("likes", ["ann", "bob"], world="w1")
    with pytest.raises(DataError, match="'bob' belongs to world 'w1' and cannot stand in world 'w2'"):
        builder.add("likes", ["cid", "bob"], world="w2")
    builder.add("likes", ["cid", "bob"], world="w1")
    kb = builder.build()
    assert kb.worlds == ("w1",)
    assert kb.tuples("likes") == [("ann", "bob"), ("cid", "bob")]


def test_entities_and_worlds_may_be_without_facts() -> None:
    builder = KnowledgeBaseBuilder([PredicateDeclaration("likes", ("person", "person"))])
    builder.world("empty")
    assert builder.entity("ann", type="person", world="full") == 0
    assert builder.entity("bob", type="person", world="full") == 1
    assert builder.entity("ann", type="person", world="full") == 0
    kb = builder.build()
    assert kb.worlds == ("empty", "full")
    assert kb.domains["person"].members(1).tolist() == [0, 1]
    assert kb.tuples("likes") == []


def test_numbers_have_no_entities() -> None:
    with pytest.raises(DataError, match="number is the type of numeric arguments"):
        KnowledgeBaseBuilder().entity("three", type=NUMBER_TYPE)


def test_declarations_must_agree() -> None:
    builder = KnowledgeBaseBuilder()
    builder.add("likes", ["ann", "bob"])
    builder.declare(PredicateDeclaration("likes", (ENTITY_TYPE, ENTITY_TYPE)))
    with pytest.raises(DataError, match="likes was declared as"):
        builder.declare(PredicateDeclaration("likes", ("person", "person")))
    builder.add("age", ["ann", 3])
    with pytest.raises(DataError, match="age was used before as"):
        builder.declare(PredicateDeclaration("age", ("person", "number")))


def test_closed_predicates() -> None:
    builder = KnowledgeBaseBuilder(closed=["likes", "never_seen"])
    builder.add("likes", ["ann", "bob"])
    builder.add("tall", ["ann"])
    builder.close("tall")
    assert builder.build().closed == {"likes", "tall"}


def test_an_unknown_split_is_refused() -> None:
    builder = KnowledgeBaseBuilder()
    builder.add("likes", ["ann", "bob"], split="test")
    with pytest.raises(UnknownNameError, match="unknown split 'tst'; did you mean 'test'"):
        builder.build().split("tst")


def test_shared_types_belong_to_no_world_and_to_all() -> None:
    builder = KnowledgeBaseBuilder([PredicateDeclaration("word", ("token", "word"))], shared=["word"])
    for world in ("s1", "s2"):
        builder.add("word", [f"{world}#0", "and"], world=world)
    kb = builder.build()
    assert list(kb.domains["word"].labels) == ["and"]
    assert kb.domains["word"].worlds is None
    assert kb.entity_worlds is not None
    assert kb.entity_worlds.tolist() == [0, 1, -1]
    assert kb.in_worlds(["s2"]).tuples("word") == [("s2#0", "and")]
    value, _ = kb.tensor("word", world="s1")
    assert value.tolist() == [[True]]


def test_a_type_is_shared_before_its_first_entity() -> None:
    builder = KnowledgeBaseBuilder([PredicateDeclaration("word", ("token", "word"))])
    builder.add("word", ["t", "and"], world="s1")
    with pytest.raises(DataError, match="share it before its first fact"):
        builder.share("word")


def test_facts_that_name_shared_entities_alone_hold_in_every_world() -> None:
    builder = KnowledgeBaseBuilder([PredicateDeclaration("common", ("word",))], shared=["word"])
    builder.add("common", ["and"])
    builder.add("long", ["t1"], world="s1")
    builder.add("long", ["t2"], world="s2")
    kb = builder.build().in_worlds(["s2"])
    assert kb.tuples("common") == [("and",)]
    assert kb.tuples("long") == [("t2",)]


def test_a_split_without_facts_is_still_one() -> None:
    builder = KnowledgeBaseBuilder()
    builder.add("p", ["a"])
    builder.split("test")
    assert builder.build().split("test").n_facts == 0
