from __future__ import annotations

import random
import sys
from unittest import mock

import pytest
from engine.oracle import PREDICATES, head_for, random_body, random_kb
from hypothesis import given, settings
from hypothesis import strategies as st
from reason.naive import Naive, stratified
from reason.programs import random_graph, recursive_rules

from rulewright import apply
from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.errors import DataError, UnknownNameError
from rulewright.logic import PredicateDeclaration, Rule, RuleSet, parse_rules


def as_facts(inferred) -> dict[tuple, tuple[float, set[int]]]:
    return {
        (fact.predicate, *fact.args): (fact.score, {inferred.sources.index(rule) for rule in fact.rules})
        for fact in inferred
    }


def random_rules(chance: random.Random, *, negation: float) -> list[Rule]:
    rules: list[Rule] = []
    while len(rules) < 4:
        body = [each for each in random_body(chance, atoms=2) if each.positive or chance.random() < negation]
        head = head_for(chance, body)
        if head is not None:
            rules.append(Rule(head, tuple(each.formula() for each in body), chance.choice((0.3, 0.5, 0.9, 1.0))))
    return rules


def check_against_naive(chance: random.Random, kb: KnowledgeBase, rules: RuleSet, max_rounds: int | None) -> None:
    how, min_score = chance.choice(("max", "noisy-or")), chance.choice((0.0, 0.0, 0.4))
    options = {"min_score": min_score, "max_rounds": max_rounds}
    if max_rounds != 1 and stratified(rules.rules) is None:
        with pytest.raises(DataError, match="itself rests on"):
            apply(rules, kb, aggregation=how, **options)
        return
    naive = Naive(kb, rules.rules, how=how, **options)
    inferred = apply(rules, kb, aggregation=how, **options)
    # equal rules are one source to look up, so compare the numbers of their first occurrence
    first = rules.rules.index
    assert {
        key: (pytest.approx(score), {first(rules.rules[number]) for number in numbers}, number_of_round)
        for key, (score, numbers, number_of_round) in naive.facts.items()
    } == {(fact.predicate, *fact.args): (fact.score, set(map(first, fact.rules)), fact.round) for fact in inferred}
    scores = [fact.score for fact in inferred]
    assert scores == sorted(scores, reverse=True)
    assert inferred.facts.n_facts == len({key[: 2 if key[0] == "lab" else None] for key in naive.facts})
    assert inferred.completed.n_facts == kb.n_facts + inferred.facts.n_facts


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_one_round_equals_the_naive_one(seed):
    chance = random.Random(seed)
    rules = RuleSet(random_rules(chance, negation=1.0), predicates=PREDICATES)
    check_against_naive(chance, random_kb(chance), rules, 1)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_fixed_point_equals_the_naive_one_with_classes_and_numbers(seed):
    chance = random.Random(seed)
    rules = RuleSet(random_rules(chance, negation=0.4), predicates=PREDICATES)
    check_against_naive(chance, random_kb(chance), rules, chance.choice((None, None, 2)))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_the_fixed_point_equals_the_naive_one_with_recursion_and_negation(seed):
    chance = random.Random(seed)
    with mock.patch.multiple(
        sys.modules["rulewright.reason.apply"], _FEWEST_RULES=chance.choice((1, 16)), _MOST_MEETINGS=1
    ):  # few rules in a statement
        rounds = chance.choice((None, None, None, 2, 3))
        check_against_naive(chance, random_graph(chance), recursive_rules(chance), rounds)


@pytest.fixture
def family() -> KnowledgeBase:
    return KnowledgeBase.from_triples(
        [("ann", "parent_of", "bob"), ("bob", "parent_of", "cid"), ("ann", "spouse_of", "al")]
    )


def test_new_predicates_get_their_types_from_the_body():
    builder = KnowledgeBaseBuilder([PredicateDeclaration("teaches", ("person", "course"))])
    builder.add("teaches", ["ann", "logic"])
    rules = parse_rules("taught_by(C, P) :- teaches(P, C). busy(P) :- taught_by(_, P).")
    inferred = apply(rules, builder.build())
    assert inferred.kb.predicate("taught_by").types == ("course", "person")
    assert inferred.kb.predicate("busy").types == ("person",)
    assert [(str(fact), fact.round) for fact in inferred] == [("busy(ann)", 2), ("taught_by(logic, ann)", 1)]


def test_a_rule_alone_and_a_list_of_rules_will_do(family):
    rules = parse_rules("child_of(X, Y) :- parent_of(Y, X).").rules
    assert len(apply(rules[0], family)) == len(apply(list(rules), family)) == 2


def test_hard_formulas_give_facts_or_are_checked(family):
    rules = parse_rules(
        "hard parent_of(X, Y) => child_of(Y, X). hard !(parent_of(X, Y) & spouse_of(X, Z)). "
        "hard parent_of(X, Y) => spouse_of(X, Y) | spouse_of(Y, X)."
    )
    inferred = apply(rules, family)
    assert {str(fact) for fact in inferred} == {"child_of(bob, ann)", "child_of(cid, bob)"}
    assert all(fact.score == 1 for fact in inferred)
    assert [(str(each.formula), each.groundings) for each in inferred.violations] == [
        (str(rules.formulas[1]), 1),
        (str(rules.formulas[2]), 2),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("2.5 parent_of(X, Y) => child_of(Y, X).", "a weight is no score"),
        ("learn parent_of(X, Y) => child_of(Y, X).", "its weight is not known"),
        ("hard parent_of(X, Y) | child_of(Y, X).", "no premise binds"),
        ("template s(X, Y) :- ?P(X, Y) where ?P in *.", "a template has no facts to give"),
        ("p(X) :- parent_of(X).", "parent_of has 2 arguments in the facts and 1 in the rules"),
        ("p(zoe) :- parent_of(X, Y).", "zoe in the head is not an entity"),
    ],
)
def test_what_has_no_meaning_here_is_refused_by_name(family, text, message):
    with pytest.raises(DataError) as caught:
        apply(parse_rules(text), family)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_predicates_and_options(family):
    with pytest.raises(UnknownNameError, match="did you mean 'parent_of'"):
        apply(parse_rules("p(X) :- parent_off(X, Y)."), family)
    with pytest.raises(DataError, match="aggregation must be"):
        apply(parse_rules("p(X) :- parent_of(X, Y)."), family, aggregation="sum")
    with pytest.raises(UnknownNameError, match="unknown type 'person'"):
        apply(parse_rules("predicate p(person). p(X) :- parent_of(X, Y)."), family)


def test_scores_below_the_minimum_are_left_out_and_progress_is_reported(family):
    reports = []
    rules = parse_rules("0.4 :: child_of(X, Y) :- parent_of(Y, X). 0.9 :: child_of(X, ann) :- parent_of(ann, X).")
    inferred = apply(rules, family, min_score=0.5, progress=lambda *report: reports.append(report))
    assert [(str(fact), fact.score, len(fact.rules)) for fact in inferred] == [("child_of(bob, ann)", 0.9, 1)]
    assert reports == [("round 1", done, 2) for done in range(3)]
    assert repr(inferred) == "Inferred(1 new facts)"
    assert inferred[0] == inferred[:1][0] == inferred[-1]


def test_what_is_observed_false_is_not_inferred():
    builder = KnowledgeBaseBuilder()
    builder.add("friend", ["ann", "bob"])
    builder.add("friend", ["bob", "ann"], truth=False)
    assert len(apply(parse_rules("friend(X, Y) :- friend(Y, X)."), builder.build())) == 0
