from __future__ import annotations

import random
import sys
from dataclasses import replace
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
    how, min_score = chance.choice(("max", "max-plus", "noisy-or")), chance.choice((0.0, 0.0, 0.4))
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
    inferred = apply(rules, builder.build(), max_rounds=None)
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
    assert reports == [("round 1", 0, 2), ("round 1", 2, 2)]
    assert repr(inferred) == "Inferred(1 new facts)"
    assert inferred[0] == inferred[:1][0] == inferred[-1]


def test_what_is_observed_false_is_not_inferred():
    builder = KnowledgeBaseBuilder()
    builder.add("friend", ["ann", "bob"])
    builder.add("friend", ["bob", "ann"], truth=False)
    assert len(apply(parse_rules("friend(X, Y) :- friend(Y, X)."), builder.build())) == 0


def ranking_key(fact) -> tuple:
    """The negated confidences of the rules for a fact, the best first; one with more of them is better."""
    return (*sorted(-rule.confidence for rule in fact.rules), 0.0)


@pytest.mark.parametrize("how", ["max", "max-plus", "noisy-or"])
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), max_facts=st.integers(1, 12), fewest=st.sampled_from([1, 2, 16]))
def test_a_cut_leaves_the_best_with_the_scores_they_have_among_all(how, seed, max_facts, fewest):
    chance = random.Random(seed)
    confidences = (0.2, 0.3, 0.5, 0.5, 0.9)
    rules = RuleSet(
        dict.fromkeys(
            replace(rule, confidence=chance.choice(confidences)) for rule in recursive_rules(chance, 8).rules
        ),
        predicates=recursive_rules(chance, 1).predicates,
    )
    kb = random_graph(chance)
    everything = apply(rules, kb, aggregation=how)
    with mock.patch.multiple(sys.modules["rulewright.reason.apply"], _FEWEST_RULES=fewest):
        few = apply(rules, kb, aggregation=how, max_facts=max_facts)
    assert few.exact
    assert len(few) == min(max_facts, len(everything))
    scores = {str(fact): fact.score for fact in everything}
    assert all(fact.score == pytest.approx(scores[str(fact)]) for fact in few)
    if how == "noisy-or":  # what the most confident rules give, and what all rules make of it
        kept, strongest = {str(fact) for fact in few}, [max(rule.confidence for rule in fact.rules) for fact in few]
        for fact in everything:
            if str(fact) not in kept and fact.score > few[-1].score + 1e-9:
                assert max(rule.confidence for rule in fact.rules) <= max(strongest)
    else:
        length = 1 if how == "max" else None
        best = sorted(ranking_key(fact)[:length] for fact in everything)[:max_facts]
        assert [ranking_key(fact)[:length] for fact in few] == best
    cut = len(everything) > max_facts
    assert ("max_facts" in few.note) == cut
    if cut and how == "max":
        lowest = few[-1].score
        left_out = [fact for fact in everything if fact.score == lowest]
        kept = [fact for fact in few if fact.score == lowest]
        assert ("some are left out" in few.note) == (len(kept) < len(left_out))


def test_a_cut_does_not_hide_what_reaches_the_minimum_score():
    triples = [(f"a{i}", "weak", f"b{j}") for i in range(20) for j in range(20)] + [("a1", "strong", "b1")]
    rules = parse_rules("0.1 :: new(X, Y) :- weak(X, Y). 0.9 :: new(X, Y) :- strong(X, Y).")
    for how in ("max", "max-plus", "noisy-or"):
        kb = KnowledgeBase.from_triples(triples)
        few = apply(rules, kb, aggregation=how, max_facts=10, min_score=0.5)
        assert [(str(fact), round(fact.score, 6)) for fact in few] == [
            ("new(a1, b1)", 0.91 if how == "noisy-or" else 0.9)
        ]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32), how=st.sampled_from(["max", "noisy-or"]))
def test_what_a_further_round_would_add_is_told(seed, how):
    chance = random.Random(seed)
    rules, kb = recursive_rules(chance), random_graph(chance)
    once = apply(rules, kb, aggregation=how)
    if stratified(rules.rules) is None or "may give more" in once.note:
        return
    strata = len(stratified(rules.rules))
    twice = apply(rules, kb, aggregation=how, max_rounds=2)
    if strata > 1:
        return
    before = {str(fact): fact.score for fact in once}
    new = sum(str(fact) not in before for fact in twice)
    better = sum(fact.score > before[str(fact)] + 1e-12 for fact in twice if str(fact) in before)
    parts = [f"{new:,} more facts"] * bool(new) + [f"better scores to {better:,}"] * bool(better)
    expected = f"every rule was applied once; a further round would give {' and '.join(parts)}" if parts else ""
    assert once.note == expected
    assert once.complete == (not expected)


def test_what_rests_on_the_absence_of_what_others_give_is_told():
    kb = KnowledgeBase.from_facts([("a", "x"), ("a", "y"), ("p", "x", "z")])
    rules = parse_rules("has_p(X) :- p(X, Y). t(X) :- a(X), !has_p(X).")
    once, whole = apply(rules, kb), apply(rules, kb, max_rounds=None)
    assert {str(fact) for fact in once} == {str(fact) for fact in whole} == {"has_p(x)", "t(y)"}
    assert not once.note and not whole.note  # what is to be absent comes first
    chained = parse_rules("has_p(X) :- q(X). q(X) :- p(X, Y). t(X) :- a(X), !has_p(X).")
    once, whole = apply(chained, kb), apply(chained, kb, max_rounds=None)
    assert {str(fact) for fact in once} == {"q(x)", "t(x)", "t(y)"}
    assert "the absence of what further rounds may give: max_rounds=None" in once.note and not once.complete
    assert {str(fact) for fact in whole} == {"q(x)", "has_p(x)", "t(y)"} and not whole.note


def test_a_cut_in_a_later_round_is_said_to_give_lower_bounds():
    kb = KnowledgeBase.from_triples([(f"n{i}", "e", f"n{i + 1}") for i in range(30)])
    rules = parse_rules("p(X, Y) :- e(X, Y). 0.9 :: p(X, Z) :- p(X, Y), e(Y, Z).")
    few = apply(rules, kb, max_rounds=None, max_facts=70)
    assert len(few) == 70 and not few.exact
    assert "lower bounds" in few.note
    assert apply(rules, kb, max_rounds=None).complete


def test_a_limit_of_time_keeps_what_there_is():
    kb = KnowledgeBase.from_triples((f"n{i}", "next", f"n{i + 1}") for i in range(300))
    rules = parse_rules("later(X, Y) :- next(X, Y). later(X, Z) :- later(X, Y), next(Y, Z).")
    everything = {str(fact) for fact in apply(rules, kb, max_rounds=None)}
    inferred = apply(rules, kb, max_rounds=None, time_limit=0.3)
    assert {str(fact) for fact in inferred} < everything
    assert not inferred.exact
    assert inferred.note.startswith("stopped after 0.3 s in round ")
    assert apply(rules, kb, max_rounds=None, time_limit=300).exact


def test_propositions_are_refused_by_name() -> None:
    kb = KnowledgeBase.from_triples([("a", "p", "b")])
    for text, name in (("wet :- p(X, Y).", "wet"), ("q(X) :- p(X, Y), rain.", "rain"), ("hard !rain.", "rain")):
        with pytest.raises(DataError, match=f"{name} has no argument, and facts are about entities"):
            apply(parse_rules(text), kb)


def test_one_round_settles_first_what_must_be_absent() -> None:
    rules = parse_rules("0.9 :: t(X) :- a(X), !has_b(X). has_b(X) :- b(X, Y), !c(Y). c(X) :- d(X). s(X) :- t(X).")
    facts = [("a", "x"), ("a", "y"), ("a", "z"), ("b", "x", "u"), ("b", "y", "v"), ("d", "v"), ("t", "u")]
    inferred = apply(rules, KnowledgeBase.from_facts(facts))
    assert sorted(map(str, inferred)) == ["c(v)", "has_b(x)", "s(u)", "t(y)", "t(z)"]
    assert {fact.round for fact in inferred} == {1} and inferred.rounds == 1
    assert "the absence of what further rounds may give" in inferred.note
    assert apply(RuleSet(rules.rules[:3]), KnowledgeBase.from_facts(facts)).note == ""  # nothing rests on what is new


def test_one_round_of_rules_that_rest_on_their_own_absence_looks_at_known_facts() -> None:
    rules = parse_rules("p(X) :- a(X), !q(X). q(X) :- a(X), !p(X). r(X) :- a(X), !p(X).")
    inferred = apply(rules, KnowledgeBase.from_facts([("a", "x"), ("a", "y"), ("q", "x")]))
    assert sorted(map(str, inferred)) == ["p(y)", "q(y)", "r(x)"]
    assert "the absence of what further rounds may give" in inferred.note
