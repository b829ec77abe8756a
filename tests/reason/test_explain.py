from __future__ import annotations

import itertools
import json
import random
from math import prod
from xml.etree import ElementTree

import pytest
from engine.oracle import PREDICATES, head_for, random_body, random_kb
from hypothesis import given, settings
from hypothesis import strategies as st
from reason.naive import Naive, stratified
from reason.programs import random_graph, recursive_rules
from reason.verify import Verifier, verify

from rulewright import apply, complete, explain
from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.errors import DataError, UnknownNameError
from rulewright.logic import (
    Comparison,
    Literal,
    Membership,
    PredicateDeclaration,
    Rule,
    RuleSet,
    parse_rules,
    variables,
)
from rulewright.reason import Explainer, Proof


class AllProofs:
    """Every proof, by trying every assignment of every rule over the fixed point."""

    def __init__(self, kb: KnowledgeBase, rules) -> None:
        self.known = {(name, *args) for name, args in kb.facts()}
        model = Naive(kb, rules)
        self.groundings: dict[tuple, set[tuple]] = {}
        for number, rule in enumerate(rules):
            for body in rule.alternatives():
                for assignment in model.oracle.groundings(body):
                    premises = [self._facts(each, assignment, model) for each in body if _is_positive(each)]
                    for chosen in itertools.product(*premises):
                        self.groundings.setdefault(model._key(rule.head, assignment), set()).add((number, chosen))
        self.confidences = [rule.confidence for rule in rules]

    @staticmethod
    def _facts(literal: Literal, assignment, model: Naive):
        args = tuple(model.oracle._value(term, assignment) for term in literal.unit.args)
        values = [(each,) for each in literal.unit.classes] if isinstance(literal.unit, Membership) else [()]
        name = literal.unit.predicate
        return [(name, *args, *value) for value in values if (*args, *value) in model.oracle.true[name]]

    def of(self, fact: tuple, depth: int, above: frozenset = frozenset()):
        """Yield proofs by rules as (fact, number, premises); a premise is a fact or again a proof."""
        if depth == 0:
            return
        for number, premises in self.groundings.get(fact, ()):
            ways = []
            for each in premises:
                if each in above | {fact}:
                    ways.append([])
                else:
                    ways.append([each] if each in self.known else list(self.of(each, depth - 1, above | {fact})))
            for chosen in itertools.product(*ways):
                yield (fact, number, chosen)

    def score(self, proof) -> float:
        if not self.is_proof(proof):
            return 1.0
        return self.confidences[proof[1]] * prod(self.score(each) for each in proof[2])

    @staticmethod
    def is_proof(value) -> bool:
        return len(value) == 3 and isinstance(value[0], tuple)

    def leaves(self, proof) -> set:
        if not self.is_proof(proof):
            return {proof}
        return set().union(*(self.leaves(each) for each in proof[2]))


def _is_positive(literal: Literal) -> bool:
    return literal.positive and not isinstance(literal.unit, Comparison)


def plain(proof: Proof, first):
    """Write a proof as the oracle does; of equal rules the first stands for all."""
    fact = plain_fact(proof.fact)
    return (
        fact
        if proof.source is None
        else (fact, first(proof.source), tuple(plain(each, first) for each in proof.premises))
    )


def plain_fact(fact) -> tuple:
    args = tuple(getattr(term, "name", None) or float(term.value) for term in fact.args)
    return (fact.predicate, *args, *(fact.classes if isinstance(fact, Membership) else ()))


def renumbered(proof, first, rules):
    if not AllProofs.is_proof(proof):
        return proof
    return proof[0], first(rules[proof[1]]), tuple(renumbered(each, first, rules) for each in proof[2])


def check_all_proofs(chance: random.Random, kb: KnowledgeBase, rules: RuleSet) -> None:
    if stratified(rules.rules) is None:
        return
    oracle = AllProofs(kb, rules.rules)
    inferred = list(apply(rules, kb, max_rounds=None))
    first = rules.rules.index
    goals = [(fact.predicate, *fact.args) for fact in chance.sample(inferred, min(2, len(inferred)))]
    goals += chance.sample(sorted(oracle.known, key=str), 1)
    verifier = Verifier(rules, kb)
    with Explainer(rules, kb) as explainer:
        for goal in goals:
            depth = chance.choice((1, 2, 3))
            known = [goal] if goal in oracle.known else []
            expected = [renumbered(each, first, rules.rules) for each in itertools.islice(oracle.of(goal, depth), 400)]
            if len(expected) == 400:
                continue
            found = explainer.explain(goal, k=None, depth=depth)
            assert sorted(map(str, (plain(each, first) for each in found.proofs))) == sorted(
                {str(each) for each in [*known, *expected]}
            )
            scores = [each.score for each in found.proofs]
            assert scores == sorted(scores, reverse=True)
            assert scores == pytest.approx(sorted(map(oracle.score, dict.fromkeys([*known, *expected])), reverse=True))
            assert found.status == ("known" if known else "inferred" if expected else "unknown")
            for proof in found.proofs:
                verifier.check(proof)
                assert proof.depth <= depth
            shared = [oracle.leaves(each) for each in [*known, *expected]]
            assert {plain_fact(each) for each in found.critical} == (set.intersection(*shared) if shared else set())
            assert bool(found.why_not) == (
                not found.proofs and any(rule.head.predicate == goal[0] for rule in rules.rules)
            )
            best = explainer.explain(goal, k=2, depth=depth)
            assert [each.score for each in best.proofs] == pytest.approx(scores[:2])
        for fact in inferred[:1]:
            assert explainer.explain((fact.predicate, *fact.args)).score <= fact.score + 1e-12
            assert explainer.explain((fact.predicate, *fact.args), depth=12).score == pytest.approx(fact.score)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_all_proofs_are_found_best_first_and_verified(seed):
    chance = random.Random(seed)
    check_all_proofs(chance, random_graph(chance), recursive_rules(chance))


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_all_proofs_with_classes_and_numbers(seed):
    chance = random.Random(seed)
    rules: list[Rule] = []
    while len(rules) < 3:
        body = [each for each in random_body(chance, atoms=2) if each.positive or chance.random() < 0.4]
        head = head_for(chance, body)
        if head is not None:
            rules.append(Rule(head, tuple(each.formula() for each in body), chance.choice((0.5, 0.9, 1.0))))
    check_all_proofs(chance, random_kb(chance), RuleSet(rules, predicates=PREDICATES))


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_near_miss_misses_exactly_what_it_says(seed):
    chance = random.Random(seed)
    kb, rules = random_graph(chance), recursive_rules(chance)
    if stratified(rules.rules) is None:
        return
    model = Naive(kb, rules.rules)
    goal = (chance.choice("pqv"), chance.choice(("a", "C")), chance.choice(("a", "C", "e")))
    goal = goal[:2] if goal[0] == "v" else goal
    found = explain(rules, kb, goal)
    for miss in found.why_not:
        rule = rules.rules[miss.rule_index]
        assert len(miss.held) + len(miss.missing) == len(rule.alternatives()[0])
        assert len(miss.missing) == len(found.why_not[0].missing)
        for each in miss.held:
            assert next(model.oracle.groundings([each]), None) is not None
        for each in miss.missing:
            if not isinstance(each, Comparison) and not variables(each):
                assert next(model.oracle.groundings([each]), None) is None


@pytest.fixture
def family() -> KnowledgeBase:
    return KnowledgeBase.from_triples(
        [
            ("ann", "parent_of", "bob"),
            ("bob", "parent_of", "cid"),
            ("ann", "spouse_of", "al"),
            ("al", "parent_of", "bob"),
        ]
    )


RULES = parse_rules(
    """
    0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).
    0.8 :: grandparent_of(X, Z) :- spouse_of(X, Y), grandparent_of(Y, Z), X != Z.
    odd(X) :- spouse_of(_, X), !parent_of(X, _x), X != bob.
""".replace("!parent_of(X, _x)", "!parent_of(X, X)")
)


def test_text_json_and_drawing_of_a_deep_proof(family):
    found = explain(RULES, family, "grandparent_of(ann, cid)", k=None, depth=2)
    assert [each.score for each in found.proofs] == pytest.approx([0.9, 0.72])
    assert str(found) == (
        "grandparent_of(ann, cid)  0.9\n"
        "└─ by 0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).\n"
        "   ├─ parent_of(ann, bob)  known\n"
        "   └─ parent_of(bob, cid)  known\n"
        "grandparent_of(ann, cid)  0.72\n"
        "└─ by 0.8 :: grandparent_of(X, Z) :- spouse_of(X, Y), grandparent_of(Y, Z), X != Z.\n"
        "   ├─ spouse_of(ann, al)  known\n"
        "   ├─ grandparent_of(al, cid)  0.9\n"
        "   │  └─ by 0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).\n"
        "   │     ├─ parent_of(al, bob)  known\n"
        "   │     └─ parent_of(bob, cid)  known\n"
        "   └─ ann != cid\n"
        "rests on parent_of(bob, cid)"
    )
    told = json.loads(json.dumps(found.as_dict()))
    assert told["status"] == "inferred" and told["critical"][0]["args"] == ["bob", "cid"]
    assert told["proofs"][1]["premises"][1]["premises"][0] == {
        "fact": "parent_of(al, bob)",
        "predicate": "parent_of",
        "args": ["al", "bob"],
        "score": 1.0,
    }
    texts = [each.text for each in ElementTree.fromstring(found.svg(1)).iter("{http://www.w3.org/2000/svg}text")]
    assert "spouse_of(ann, al)" in texts and "ann != cid" in texts


def test_absent_facts_are_told(family):
    found = explain(RULES, family, "odd(al)")
    assert "no parent_of(al, al)" in str(found)
    missed = explain(RULES, family, "odd(bob)")
    assert missed.status == "unknown" and not missed.proofs
    assert "bob != bob is missing" in str(missed)


def test_a_fact_that_is_known_or_observed_false_says_so():
    builder = KnowledgeBaseBuilder([PredicateDeclaration("label", ("token",), ("b", "o"))])
    builder.add("friend", ["ann", "bob"])
    builder.add("friend", ["bob", "ann"], truth=False)
    builder.add("label", ["t"], value="b")
    rules = parse_rules(
        "predicate label(token) in {b, o}. friend(X, Y) :- friend(Y, X). label(T) in {o} :- label(T) in {b}."
    )
    kb = builder.build()
    known = explain(rules, kb, "friend(ann, bob)", k=3)
    assert (known.status, known.score, len(known.proofs), known.critical) == ("known", 1.0, 1, (known.fact,))
    false = explain(rules, kb, "friend(bob, ann)")
    assert false.status == "false" and len(false.proofs) == 1 and "observed to be false" in str(false)
    assert explain(rules, kb, "label(t) in {o}").status == "false"
    assert explain(rules, kb, ("label", "t", "b")).status == "known"


@pytest.mark.slow
def test_recursion_is_chained_only_as_far_as_needed():
    kb = KnowledgeBase.from_triples([(f"n{i}", "next", f"n{i + 1}") for i in range(9)])
    rules = parse_rules("far(X, Y) :- next(X, Y). 0.9 :: far(X, Z) :- far(X, Y), next(Y, Z).")
    with Explainer(rules, kb) as explainer:
        assert explainer.explain("far(n0, n1)").depth == 1
        deep = explainer.explain("far(n0, n9)")
        assert deep.proofs[0].depth == 9 and deep.score == pytest.approx(0.9**8)
        assert len(deep.critical) == 9
        assert not explainer.explain("far(n0, n9)", depth=8)
        assert explainer.explain("far(n9, n0)").status == "unknown"
    with Explainer(rules, kb, max_facts=12) as bounded:
        stopped = bounded.explain("far(n0, n9)")
        assert not stopped and "max_facts=12" in stopped.note and not stopped.complete


def test_no_rule_concludes_it(family):
    found = explain(RULES, family, "spouse_of(cid, bob)")
    assert found.why_not == () and "no rule concludes spouse_of" in str(found)


@pytest.mark.parametrize(
    ("fact", "message"),
    [
        ("parent_of(ann)", "parent_of has 2 arguments"),
        ("parent_of(ann, X)", "X in parent_of(ann, X) is a variable"),
        ("parent_of(ann, bob) & parent_of(bob, cid)", "expected a fact such as"),
        ("parent_of(ann, 3)", "must be an entity"),
        (("parent_of", "ann"), "parent_of has 2 arguments"),
    ],
)
def test_what_is_no_fact_is_refused(family, fact, message):
    with pytest.raises(DataError) as caught:
        explain(RULES, family, fact)
    assert message in str(caught.value)


def test_unknown_names_and_options(family):
    with pytest.raises(UnknownNameError, match="did you mean 'parent_of'"):
        explain(RULES, family, "parent_off(ann, bob)")
    with pytest.raises(UnknownNameError, match="did you mean 'ann'"):
        explain(RULES, family, "parent_of(anne, bob)")
    with pytest.raises(DataError, match="k must be >= 1 or None, got 0"):
        explain(RULES, family, "parent_of(ann, bob)", k=0)


@pytest.mark.slow
def test_a_wrong_proof_is_not_verified(family):
    found = explain(RULES, family, "grandparent_of(ann, cid)").proofs[0]
    verify(found, RULES, family)
    leaf = Proof(found.fact)
    wrong = [
        (leaf, "no known fact"),
        (Proof(found.fact, 0.5, found.source, found.rule_index, found.premises), "its score must be 0.9"),
        (Proof(found.fact, 0.9, found.source, found.rule_index, found.premises[::-1]), "is no instance of"),
        (Proof(found.fact, 0.9, found.source, found.rule_index, found.premises[:1]), "not the premises"),
        (Proof(found.fact, 0.9, found.source, 1, found.premises), "not among the rules"),
    ]
    for proof, message in wrong:
        with pytest.raises(DataError, match=message):
            verify(proof, RULES, family)


def test_hostile_names_are_escaped_in_the_drawing():
    kb = KnowledgeBase.from_triples([("<script>alert(1)</script>", "likes", '"&\u202eabc')])
    found = explain(
        parse_rules("likes(X, Y) :- likes(Y, X)."), kb, ("likes", '"&\u202eabc', "<script>alert(1)</script>")
    )
    drawing = found.svg()
    assert "<script>" not in drawing
    ElementTree.fromstring(drawing)


def test_rules_about_one_entity_with_constants_and_numbers_are_explained():
    kb = KnowledgeBase.from_facts(
        [
            ("age", "ann", 70),
            ("age", "bob", 30),
            ("father_of", "cid", "bob"),
            ("lives_in", "ann", "rome"),
            ("old", "zoe"),
        ]
    )
    rules = parse_rules(
        "0.9 :: retired(X) :- age(X, A), A > 64. 0.8 :: male(X) :- father_of(X, Y). "
        "0.7 :: speaks(X, italian) :- lives_in(X, rome)."
    )
    kb = kb.add([("speaks", "bob", "italian")])
    expected = {
        "retired(ann)": ["age(ann, 70.0)"],
        "male(cid)": ["father_of(cid, bob)"],
        "speaks(ann, italian)": ["lives_in(ann, rome)"],
    }
    for fact, leaves in expected.items():
        told = explain(rules, kb, fact)
        assert [str(leaf) for leaf in told.proofs[0].leaves()] == leaves
        assert told.svg().startswith("<svg ")
        assert told.score == next(new.score for new in apply(rules, kb) if str(new) == fact)
    assert "70.0 > 64" in str(explain(rules, kb, "retired(ann)"))
    assert [str(link.fact) for link in complete(rules, kb)] == [
        "retired(ann)",
        "male(cid)",
        "speaks(ann, italian)",
    ]
