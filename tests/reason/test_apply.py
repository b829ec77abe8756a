from __future__ import annotations

import itertools
import random

import pytest
from engine.oracle import PREDICATES, Oracle, head_for, random_body, random_kb
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright import apply
from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.engine import Engine
from rulewright.errors import DataError, UnknownNameError
from rulewright.logic import Membership, PredicateDeclaration, Rule, RuleSet, parse_rules
from rulewright.reason.program import Program
from rulewright.reason.witness import witness


def as_facts(inferred) -> dict[tuple, tuple[float, set[int]]]:
    return {
        (fact.predicate, *fact.args): (fact.score, {inferred.sources.index(rule) for rule in fact.rules})
        for fact in inferred
    }


@settings(max_examples=120, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_one_round_equals_the_oracle(seed):
    chance = random.Random(seed)
    kb = random_kb(chance)
    rules = []
    while len(rules) < 3:
        body = random_body(chance, atoms=3)
        head = head_for(chance, body)
        if head is not None:
            rules.append(Rule(head, tuple(each.formula() for each in body), chance.choice((0.3, 0.5, 0.9, 1.0))))
    how = chance.choice(("max", "noisy-or"))
    oracle = Oracle(kb)
    given_by: dict[tuple, set[int]] = {}
    for number, rule in enumerate(rules):
        for body in rule.alternatives():
            for args in oracle.derived(rule.head, body):
                value = (rule.head.classes[0],) if isinstance(rule.head, Membership) else ()
                given_by.setdefault((rule.head.predicate, *args, *value), set()).add(number)
    inferred = apply(RuleSet(rules, predicates=PREDICATES), kb, aggregation=how)
    found = as_facts(inferred)
    # equal rules are one source to look up, so compare the numbers of their first occurrence
    first = {number: rules.index(rule) for number, rule in enumerate(rules)}
    assert {key: rules for key, (_, rules) in found.items()} == {
        key: {first[number] for number in numbers} for key, numbers in given_by.items()
    }
    for key, (score, _) in found.items():
        confidences = [rules[number].confidence for number in given_by[key]]
        product = 1.0
        for confidence in confidences:
            product *= 1 - confidence
        assert score == pytest.approx(max(confidences) if how == "max" else 1 - product)
    scores = [fact.score for fact in inferred]
    assert scores == sorted(scores, reverse=True)
    assert inferred.facts.n_facts == len(inferred) == len(scores)
    assert inferred.completed.n_facts == kb.n_facts + len(inferred)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_every_witness_is_a_true_grounding_of_its_rule(seed):
    chance = random.Random(seed)
    kb = random_kb(chance)
    body = random_body(chance, atoms=3)
    head = head_for(chance, body)
    if head is None:
        return
    rule = Rule(head, tuple(each.formula() for each in body))
    rules = RuleSet([rule], predicates=PREDICATES)
    program, oracle = Program.of(rules, kb), Oracle(kb)
    with Engine(program.kb) as engine:
        for fact in itertools.islice(apply(rules, kb), 5):
            ground = witness(program.derivations, fact.args, engine)
            assert ground is not None
            assert oracle.count(ground) == 1
        types = next(each.types for each in PREDICATES if each.name == head.predicate)
        nothing = ["nobody" if each != "number" else -1.0 for each in types]
        assert witness(program.derivations, nothing, engine) is None


@pytest.fixture
def family() -> KnowledgeBase:
    return KnowledgeBase.from_triples(
        [("ann", "parent_of", "bob"), ("bob", "parent_of", "cid"), ("ann", "spouse_of", "al")]
    )


def test_new_predicates_get_their_types_from_the_body():
    builder = KnowledgeBaseBuilder([PredicateDeclaration("teaches", ("person", "course"))])
    builder.add("teaches", ["ann", "logic"])
    inferred = apply(parse_rules("taught_by(C, P) :- teaches(P, C). busy(P) :- taught_by(_, P)."), builder.build())
    assert inferred.kb.predicate("taught_by").types == ("course", "person")
    assert inferred.kb.predicate("busy").types == ("person",)
    assert [str(fact) for fact in inferred] == ["taught_by(logic, ann)"]


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


def test_scores_below_the_minimum_are_left_out_and_progress_is_told(family):
    told = []
    rules = parse_rules("0.4 :: child_of(X, Y) :- parent_of(Y, X). 0.9 :: child_of(X, ann) :- parent_of(ann, X).")
    inferred = apply(rules, family, min_score=0.5, progress=lambda done, total: told.append((done, total)))
    assert [(str(fact), fact.score, len(fact.rules)) for fact in inferred] == [("child_of(bob, ann)", 0.9, 2)]
    assert told == [(1, 2), (2, 2)]
    assert repr(inferred) == "Inferred(1 new facts)"
    assert inferred[0] == inferred[:1][0] == inferred[-1]


def test_what_is_observed_false_is_not_inferred():
    builder = KnowledgeBaseBuilder()
    builder.add("friend", ["ann", "bob"])
    builder.add("friend", ["bob", "ann"], truth=False)
    assert len(apply(parse_rules("friend(X, Y) :- friend(Y, X)."), builder.build())) == 0
