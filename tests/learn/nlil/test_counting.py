"""What is counted is what the engine counts, on all facts; and what is asked beside the facts is no fact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learn.nlil.small_worlds import graphs, random_attentions, read_some

from rulewright.data import Domain, KnowledgeBase
from rulewright.engine import Engine
from rulewright.evaluate import explain_counts, share_interval
from rulewright.learn.nlil.facts import FactGraph, StatementCodes
from rulewright.learn.nlil.formulas import RuleReader, RuleWriter
from rulewright.learn.nlil.learner import NLILLearner
from rulewright.learn.nlil.questions import LearningTask, add_wrong_pairs
from rulewright.learn.nlil.selection import BodyWalks, PairCounter, WrittenRule, count_rules
from rulewright.logic import PredicateDeclaration, Rule, RuleSet, parse_rule
from rulewright.reason.apply import apply


def drawn_rules(kb: KnowledgeBase, task: LearningTask, seed: int) -> tuple[RuleWriter, set[WrittenRule]]:
    """Return rules as random attentions have it, with conjunctions and negations."""
    codes = StatementCodes(task.arity, task.graph.vocabulary)
    attentions = random_attentions(kb, task.arity, seed=seed, groups=6, levels=1, steps=1)
    read = read_some(attentions, RuleReader(codes, task.hidden), len(codes), seed)
    writer = RuleWriter(task.targets[0], codes)
    return writer, {(0, body) for formula in read for body in formula if writer.why_not(body) is None}


def engine_counts(rule: Rule, engine: Engine) -> tuple[int, int]:
    counts = engine.support(rule.head, rule.body)
    return counts.heads, counts.body_heads


@settings(max_examples=15, deadline=None)
@given(kb=graphs(), seed=st.integers(0, 10_000), arity=st.integers(1, 2))
def test_rules_are_counted_as_the_engine_counts_them(kb: KnowledgeBase, seed: int, arity: int) -> None:
    target = "a" if arity == 1 else "p"
    task = LearningTask.for_targets(FactGraph(kb), (target,))
    writer, rules = drawn_rules(kb, task, seed)
    if arity == 1:
        counted = count_rules(rules, task, task.all_questions())
    else:
        facts = task.target_facts()
        others = np.setdiff1d(task.entities_with_facts(0), facts[0])
        counted = PairCounter(BodyWalks(task), facts, others, most=None).count(rules)
    assert len(counted) == len(rules)
    auxiliary = dict.fromkeys(definition for _, body in rules for definition in writer.write_auxiliary(body))
    with Engine(apply(RuleSet([*auxiliary]), kb).completed, threads=1) as engine:
        for rule in counted:
            written = writer.write(rule.conjunction)
            assert (rule.support, rule.body_count) == engine_counts(written, engine), str(written)


@settings(max_examples=8, deadline=None)
@given(kb=graphs(), seed=st.integers(0, 10_000))
def test_every_rule_that_is_kept_is_printed_with_the_counts_of_the_engine(kb: KnowledgeBase, seed: int) -> None:
    options = {"layers": 1, "width": 8, "epochs": 0, "rounds": 2, "samples": 10, "min_precision": 0.1, "held_out": 0.4}
    learner = NLILLearner(targets=["a", "p"] if kb.count("p") else ["a"], negation=True, seed=seed, **options).fit(kb)
    defined = apply(learner.auxiliary_, kb).completed  # what some rules ask not to exist
    for rule in learner.rules_.rules:
        if rule.annotations.get("auxiliary"):
            continue
        counts = explain_counts(rule, defined, limit=0)
        support, body = counts.support_heads, counts.body_heads
        figures = rule.annotations
        assert (figures["support"], figures["body"]) == (support, body), str(rule)
        assert rule.confidence == round(support / body, 4)
        assert figures["coverage"] == round(counts.coverage, 4)
        assert figures.number("held_out_body") is None or figures.number("held_out_body") <= body  # type: ignore[operator]


def test_a_sample_of_first_arguments_estimates_the_precision_on_all() -> None:
    random = np.random.default_rng(0)
    facts = {("p", f"x{i}", f"y{j}") for i, j in random.integers(0, 300, (900, 2)).tolist()}
    facts |= {("t", x, y) for _, x, y in sorted(facts) if int(x[1:]) < 60 and int(y[1:]) % 3}
    kb = KnowledgeBase.from_facts(sorted(facts))
    task = LearningTask.for_targets(FactGraph(kb), ("t",))
    known = task.target_facts()
    others = np.setdiff1d(task.entities_with_facts(0), known[0])
    codes = StatementCodes(2, task.graph.vocabulary)
    body = RuleReader(codes, task.hidden).make_literal(codes.vocabulary.step_operator("p") - 1, (), ())
    rules = {(0, conjunction) for conjunction in body}
    walks = BodyWalks(task)
    (exact,) = PairCounter(walks, known, others, most=None).count(rules)
    assert not PairCounter(walks, known, others, most=len(others)).is_sampled
    samples = [PairCounter(walks, known, others, most=30, seed=seed) for seed in range(40)]
    assert all(sample.is_sampled for sample in samples)
    precisions = [sample.count(rules)[0].precision for sample in samples]
    assert exact.precision < 0.25
    assert np.mean(precisions) == pytest.approx(exact.precision, rel=0.05)


def typed_graph() -> KnowledgeBase:
    """Return people who own things; one in ten pairs is a fact."""
    random = np.random.default_rng(1)
    people, things = (Domain(name, [f"{name}{i}" for i in range(40)]) for name in ("person", "thing"))
    declared = [PredicateDeclaration("owns", ("person", "thing")), PredicateDeclaration("knows", ("person", "person"))]
    pairs = np.argwhere(random.random((40, 40)) < 0.1)
    kb = KnowledgeBase.from_columns({"person": people, "thing": things}, declared, {})
    starts = [kb.domains[name].start for name in ("person", "thing")]
    columns = {"owns": [pairs[:, 0] + starts[0], pairs[:, 1] + starts[1]], "knows": list(pairs.T + starts[0])}
    return KnowledgeBase.from_columns(kb.domains, declared, columns)


def test_wrong_pairs_are_no_facts_and_exchange_either_argument_within_its_type() -> None:
    kb = typed_graph()
    task = LearningTask.for_targets(FactGraph(kb), ("owns",))
    facts = task.target_facts()
    some = tuple(column[:40] for column in facts)
    false = (np.array([kb.domains["person"].start]), np.array([kb.domains["thing"].start]))
    questions = add_wrong_pairs(some, facts, task, ratio=4, seed=0, false=false)
    known = set(zip(*(column.tolist() for column in facts), strict=True))
    pairs = list(zip(*(column.tolist() for column in questions.arguments), strict=True))
    assert all((pair in known) == bool(true) for pair, true in zip(pairs, questions.truth[:, 0], strict=True))
    assert (false[0][0], false[1][0]) in pairs or (false[0][0], false[1][0]) in known
    wrong = [column[~questions.truth[:, 0]] for column in questions.arguments]
    for column, name in zip(wrong, ("person", "thing"), strict=True):
        domain = kb.domains[name]
        assert bool(((column >= domain.start) & (column < domain.start + len(domain))).all())
    assert len(set(wrong[0].tolist()) - set(some[0].tolist())) > 10  # first arguments that none of the facts has
    assert len(set(wrong[1].tolist()) - set(some[1].tolist())) > 5


def test_a_share_of_few_cases_has_a_wide_interval() -> None:
    support, body = np.array([0, 0, 2, 30, 200]), np.array([0, 3, 2, 50, 200])
    low, high = share_interval(support, body)
    shares = support[1:] / body[1:]
    assert bool(((low[1:] <= shares) & (shares <= high[1:])).all())
    assert (low[0], high[0]) == (0.0, 1.0)
    assert low[2] < 0.35 < 0.95 < low[4]
    assert high[2] == high[4] == 1.0


def siblings(families: int = 24) -> KnowledgeBase:
    """Return families of a brother, a sister and a third, whose child has the brother as uncle."""
    facts: list[tuple[str, ...]] = []
    for number in range(families):
        brother, sister, third, child = (f"{name}{number}" for name in ("brother", "sister", "third", "child"))
        pairs = itertools.permutations((brother, sister, third), 2)
        facts += [("male", brother), ("female", sister), ("female" if number % 2 else "male", third)]
        facts += [("sibling", *pair) for pair in pairs]
        facts += [("parent", third, child), ("uncle", brother, child)]
    return KnowledgeBase.from_facts(facts)


def test_a_rule_that_is_right_half_of_the_time_is_said_to_be_and_the_better_one_is_found() -> None:
    kb = siblings()
    chain = explain_counts(parse_rule("uncle(X, Y) :- sibling(X, Z), parent(Z, Y)."), kb)
    assert (chain.support, chain.body) == (24, 48)
    learner = NLILLearner(targets=["uncle"], layers=1, width=16, epochs=0, rounds=6).fit(kb)
    best = learner.rules_.rules[0]
    assert "male(X)" in map(str, best.body)
    assert best.confidence == 1.0 and best.annotations["support"] == 24


def test_few_cases_that_were_held_out_are_not_trusted_alone() -> None:
    random = np.random.default_rng(3)
    facts: list[tuple[str, ...]] = []
    for number in range(60):
        has_a, has_b = (random.random(2) < 0.5).tolist()
        facts += [("item", f"x{number}")] + [("a", f"x{number}")] * has_a + [("b", f"x{number}")] * has_b
        facts += [("t", f"x{number}")] * (has_a and not has_b)
    kb = KnowledgeBase.from_facts(facts)
    learner = NLILLearner(targets=["t"], negation=True, layers=1, width=16, epochs=0, rounds=3).fit(kb)
    assert [str(rule.canonical()) for rule in learner.rules_.rules] == ["t(X0) :- a(X0), !b(X0)."]
    (rule,) = learner.rules_.rules
    held_out = rule.annotations.number("held_out_body")
    assert held_out is not None and held_out < 10
    assert rule.annotations.number("held_out_low") < 0.9  # type: ignore[operator]
    assert rule.annotations["held_out_high"] == 1.0


def owners(kind: str, people: int = 60, seed: int = 0) -> KnowledgeBase:
    """Return people who are a or not, and b or not; with ``lacks``, b is an edge to something instead."""
    random = np.random.default_rng(seed)
    facts: list[tuple[str, ...]] = []
    for number in range(people):
        has_a, has_b = (random.random(2) < 0.5).tolist()
        who = f"x{number}"
        facts += [("item", who)] + [("a", who)] * has_a
        facts += [("b", who, f"y{number}") if kind == "lacks" else ("b", who)] * has_b
        facts += [("t", who)] * ((has_a != has_b) if kind == "xor" else (has_a and not has_b))
    return KnowledgeBase.from_facts(facts)


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("and", ["t(X0) :- a(X0), !b(X0)."]),
        ("xor", ["t(X0) :- a(X0), !b(X0).", "t(X0) :- b(X0), !a(X0)."]),
        ("lacks", ["has_b(X0) :- b(X0, X1).", "t(X0) :- a(X0), !has_b(X0)."]),
    ],
)
def test_negations_are_learned(kind: str, wanted: list[str]) -> None:
    kb = owners(kind)
    learner = NLILLearner(targets="t", negation=True, layers=1, width=16, epochs=0, rounds=6).fit(kb)
    assert sorted(str(rule.canonical()) for rule in learner.rules_.rules) == wanted
    others = kb.remove([("t", *fact) for fact in kb.tuples("t")])
    again = {fact.args for fact in apply(learner.rules_, others) if fact.predicate == "t"}
    assert again == set(kb.tuples("t"))


def test_a_target_with_too_few_facts_is_not_trained_for() -> None:
    learner = NLILLearner(targets="p").fit(KnowledgeBase.from_facts([("p", "a", "b")]))
    assert learner.without_rules_ == {"p": "it has fewer facts than min_support=2; 0 rules were read"}
    assert learner.learned_["p"].generators == ()
