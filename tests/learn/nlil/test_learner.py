"""The learner from end to end, and what it does with bad input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.data.generators import even_successor, planted
from rulewright.engine import Engine
from rulewright.errors import DataError, NotFittedError, UnknownNameError
from rulewright.learn.nlil.learner import NLILLearner
from rulewright.learn.nlil.search import Objective
from rulewright.logic import PredicateDeclaration, RuleSet, parse_rules

pytestmark = pytest.mark.slow

QUICK = {"levels": 0, "layers": 1, "width": 16, "epochs": 15, "rate": 0.005, "seeds": 2, "slots": 5, "rounds": 2}
EVEN = {"levels": 0, "layers": 1, "seeds": 0, "slots": 13, "epochs": 40, "rate": 0.002, "rounds": 9}


def family(pairs: int = 25) -> KnowledgeBase:
    """Return parents, and grandparents by them; whom people like has nothing to do with it."""
    random = np.random.default_rng(0)
    facts = []
    for number in range(pairs):
        a, b, c = (f"{kind}{number}" for kind in "abc")
        facts += [("parent", a, b), ("parent", b, c), ("grandparent", a, c)]
        facts += [("likes", a, f"c{random.integers(pairs)}"), ("likes", b, f"a{random.integers(pairs)}")]
    return KnowledgeBase.from_facts(facts)


def scenes(count: int = 60) -> KnowledgeBase:
    """Return worlds of different size in which what is worn is a hat or a shirt, by what is beside it."""
    builder = KnowledgeBaseBuilder(
        [PredicateDeclaration(name, ("entity",)) for name in ("person", "hat", "shirt", "rare")]
        + [PredicateDeclaration(name, ("entity", "entity")) for name in ("wears", "above")]
    )
    for number in range(count):
        world = f"w{number}"
        builder.world(world)
        for person in range(1 + number % 3):
            who, hat, shirt = (f"{world}{kind}{person}" for kind in "phs")
            for name, args in (
                ("person", [who]),
                ("hat", [hat]),
                ("shirt", [shirt]),
                ("wears", [who, hat]),
                ("wears", [who, shirt]),
                ("above", [hat, who]),
            ):
                builder.add(name, args, world=world)
    return builder.build()


@pytest.mark.parametrize("seed", [0, 1])
def test_even_numbers_are_explained_with_zero(seed: int) -> None:
    kb = even_successor(12).kb
    learner = NLILLearner(targets=["even"], held_out=0, min_support=1, min_precision=1.0, seed=seed, **EVEN).fit(kb)
    wanted = parse_rules("even(X) :- zero(X). even(X) :- even(Y), succ(Y, Z), succ(Z, X).")
    assert {each.canonical() for each in learner.rules_.rules} == {each.canonical() for each in wanted.rules}
    assert learner.learned_["even"].grounded is not False
    numbers = np.arange(13)
    np.testing.assert_array_equal(learner.scores("even", [numbers]) > 0.5, numbers % 2 == 0)
    with pytest.raises(DataError, match="relaxed"):
        learner.scores("even", [numbers], soft=True)


def test_relaxed_rules_have_soft_scores() -> None:
    numbers = np.arange(13)
    options = {**EVEN, "objective": "relaxed", "epochs": 5, "rounds": 1}
    learner = NLILLearner(targets=["even"], held_out=0, min_support=1, **options).fit(even_successor(12).kb)
    soft = learner.scores("even", [numbers], soft=True)
    assert soft.shape == (13,)
    assert bool(((soft > 0) & (soft < 1)).all())


def test_a_relation_is_explained_and_measured_on_what_was_held_out() -> None:
    kb = family()
    learner = NLILLearner(targets=["grandparent"], **QUICK).fit(kb)
    rule = learner.rules_.rules[0]
    assert str(rule.canonical()) == "grandparent(X0, X1) :- parent(X0, X2), parent(X2, X1)."
    assert rule.confidence == 1.0
    assert learner.learned_["grandparent"].measured_on == "held out"
    assert rule.annotations["coverage"] == 1.0
    with Engine(kb) as engine:
        counts = engine.support(rule.head, rule.body)
    assert (rule.annotations["support"], rule.annotations["body"]) == (counts.heads, counts.body_heads)
    assert rule.annotations["held_out_support"] == len(learner.learned_["grandparent"].held_out)
    pairs = [np.array(each) for each in kb.columns("grandparent")]
    assert bool((learner.scores("grandparent", pairs) == 1.0).all())
    assert bool((learner.scores("grandparent", pairs[::-1]) == 0.0).all())


def test_classes_are_told_apart_with_their_own_label_hidden() -> None:
    kb = scenes()
    learner = NLILLearner(targets=["person", "hat", "shirt"], exclusive=True, **QUICK).fit(kb)
    found = learner.classify()
    assert found.recall(1) > 0.95
    assert found.recall(3) == 1.0
    assert all("weight" in rule.annotations for rule in learner.rules_.rules)
    # the label of the entity asked about plays no part: called a shirt, a hat scores as before
    hats, shirts = kb.columns("hat")[0], kb.columns("shirt")[0]
    columns = {name: list(kb.columns(name)) for name in kb.predicates if kb.count(name)}
    columns |= {"hat": [hats[1:]], "shirt": [np.append(shirts, hats[0])]}
    other = KnowledgeBase.from_columns(kb.domains, kb.predicates.values(), columns, worlds=kb.worlds)
    place = int(np.flatnonzero(found.entities == hats[0])[0])
    np.testing.assert_array_equal(learner.classify(other).scores[place], found.scores[place])


@pytest.mark.parametrize(("objective", "tick", "file"), [("relaxed", 6, "state.json"), ("counted", 20, "round.json")])
def test_what_is_learned_is_the_same_for_the_same_seed_and_after_an_interruption(
    tmp_path: Path, objective: Objective, tick: int, file: str
) -> None:
    kb = family(15)
    options = {**QUICK, "objective": objective, "targets": ["likes"], "min_precision": 0.0, "min_support": 1}
    once = NLILLearner(folder=tmp_path / "a", **options).fit(kb)
    assert once.learned_["likes"].n_read
    ticks = 0

    def stop(name: str, done: int, total: int) -> None:
        nonlocal ticks
        ticks += 1
        if ticks == tick:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        NLILLearner(folder=tmp_path / "b", progress=stop, **options).fit(kb)
    assert (tmp_path / "b" / "likes" / "round_0" / file).exists()
    resumed = NLILLearner(folder=tmp_path / "b", **options).fit(kb)
    assert str(resumed.rules_) == str(once.rules_)
    assert resumed.learned_["likes"].n_read == once.learned_["likes"].n_read
    with pytest.raises(DataError, match="another run"):
        NLILLearner(folder=tmp_path / "a", **{**options, "rate": 0.001}).fit(kb)


def test_targets_in_processes_of_their_own_give_the_same_rules() -> None:
    kb = family(12)
    options = {**QUICK, "epochs": 4, "rounds": 1}
    one = NLILLearner(targets=["grandparent", "parent"], **options).fit(kb)
    two = NLILLearner(targets=["grandparent", "parent"], processes=2, **options).fit(kb)
    assert str(one.rules_) == str(two.rules_)


def test_what_cannot_be_explained_is_reported() -> None:
    kb = KnowledgeBase.from_facts([("p", "a", "b"), ("p", "b", "c"), ("lonely", "x"), ("lonely", "y"), ("age", "a", 3)])
    learner = NLILLearner(targets=["lonely"], **QUICK).fit(kb)
    assert learner.rules_ == RuleSet()
    assert learner.without_rules_["lonely"].startswith("nothing occurs near its facts")
    with pytest.raises(DataError, match="no predicate of one or two entities"):
        NLILLearner(targets=["age"]).fit(kb)
    with pytest.raises(UnknownNameError, match="lonley"):
        NLILLearner(targets=["lonley"]).fit(kb)
    empty = KnowledgeBase.from_columns(kb.domains, [*kb.predicates.values()], {"p": list(kb.columns("p"))})
    with pytest.raises(DataError, match="no target has a fact to learn from"):
        NLILLearner(targets=["lonely"]).fit(empty)
    with pytest.raises(DataError, match="is about two"):
        NLILLearner(targets=["p", "lonely"], exclusive=True).fit(kb)


def test_a_graph_of_one_node() -> None:
    kb = KnowledgeBase.from_facts([("p", "a", "a"), ("q", "a", "a"), ("u", "a")])
    learner = NLILLearner(min_support=1, **{**QUICK, "epochs": 2, "rounds": 1}).fit(kb)
    assert set(learner.learned_) == {"p", "q", "u"}
    assert all(rule.confidence == 1.0 for rule in learner.rules_.rules)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"slots": 0}, "slots must be >= 1, got 0"),
        ({"levels": -1}, "levels must be >= 0, got -1"),
        ({"sharpest": 0.0}, r"sharpest must lie in \(0, 1\], got 0.0"),
        ({"held_out": 1.0}, "held_out must lie in"),
        ({"truth": "maybe"}, "truth must be"),
        ({"width": 30}, "width must be a multiple of heads"),
        ({"targets": 3}, "targets must be a name, a list of names or None"),
    ],
)
def test_wrong_options_are_named(options: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        NLILLearner(**options)  # type: ignore[arg-type]


def test_fit_comes_first() -> None:
    with pytest.raises(NotFittedError, match="fit"):
        NLILLearner(exclusive=True).classify()
    with pytest.raises(DataError, match="exclusive=True"):
        NLILLearner().classify()
    with pytest.raises(NotFittedError, match="fit"):
        NLILLearner().scores("p", [np.zeros(1, dtype=np.int64)])


def three_marks(seed: int) -> KnowledgeBase:
    """Return eight marks by chance, and a target that three of them settle: ``m0``, neither ``m1`` nor ``m2``."""
    marks = np.random.default_rng(seed).random((300, 8)) < 0.4
    facts = [(f"m{mark}", f"e{entity}") for entity, mark in zip(*np.nonzero(marks), strict=True)]
    facts += [("t", f"e{entity}") for entity in np.flatnonzero(marks[:, 0] & ~marks[:, 1] & ~marks[:, 2])]
    return KnowledgeBase.from_facts(facts)


@pytest.mark.parametrize("epochs", [0, 4])
def test_rounds_go_on_from_the_best_rules_of_earlier_ones(epochs: int) -> None:
    learner = NLILLearner(targets="t", negation=True, layers=1, width=16, epochs=epochs, rounds=8).fit(three_marks(0))
    assert [str(rule.canonical()) for rule in learner.rules_.rules] == ["t(X0) :- m0(X0), !m1(X0), !m2(X0)."]
    assert learner.learned_["t"].recall == 1


@pytest.mark.slow
def test_training_makes_better_rules_of_as_many_draws() -> None:
    best = {0: 0.0, 4: 0.0}  # by epochs: F1 of the best rule, summed over graphs
    for epochs in best:
        for seed in range(5):
            kb = planted("tree", seed=seed).kb
            learner = NLILLearner(targets="target", epochs=epochs, layers=1, min_precision=0.1, seed=seed).fit(kb)
            best[epochs] += max(
                2 * (rule.support or 0) / ((rule.annotations.number("body") or 0) + kb.count("target"))
                for rule in learner.rules_.rules
            )
    assert best[4] > best[0], best
