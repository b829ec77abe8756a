"""Rules about one entity, against rules that are written out and counted one by one."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.data import Domain, KnowledgeBase
from rulewright.data.generators import family
from rulewright.learn import RuleMiner
from rulewright.learn.miner import properties
from rulewright.learn.miner.confidence import TRUST, bound_shares
from rulewright.learn.miner.filters import NAMED_TRUST, RuleFilters
from rulewright.learn.miner.properties import PropertyCounter
from rulewright.logic import (
    Atom,
    Membership,
    PredicateDeclaration,
    Rule,
    Symbol,
    Variable,
    parse_rule,
)
from rulewright.reason import apply, explain, rank

from .rule_oracle import count_rule

ENTITIES = ["a", "b", "c", "d", "e"]
X, Y = Variable("V0"), Variable("V1")


@st.composite
def knowledge_bases(draw) -> KnowledgeBase:
    """Small graphs with self-loops, several relations of one pair, hubs, unary facts and classes."""
    entity = st.integers(0, len(ENTITIES) - 1)
    pairs = st.sets(st.tuples(entity, entity), max_size=12)
    singles = st.sets(entity, max_size=5)
    declarations = [
        PredicateDeclaration("p", ("thing", "thing")),
        PredicateDeclaration("q", ("thing", "thing")),
        PredicateDeclaration("u", ("thing",)),
        PredicateDeclaration("v", ("thing",)),
        PredicateDeclaration("label", ("thing",), ("red", "blue")),
    ]
    columns = {name: [np.array(column, dtype=np.int32) for column in zip(*draw(pairs), strict=True)] for name in "pq"}
    columns |= {name: [np.array(sorted(draw(singles)), dtype=np.int32)] for name in "uv"}
    coloured = draw(st.dictionaries(entity, st.integers(0, 1), max_size=5))
    columns["label"] = [np.array(column, dtype=np.int32) for column in zip(*coloured.items(), strict=True)]
    columns = {name: parts for name, parts in columns.items() if parts and len(parts[0])}
    return KnowledgeBase.from_columns({"thing": Domain("thing", ENTITIES)}, declarations, columns)


def unary_atoms(variable: Variable) -> list:
    atoms = [Atom("u", (variable,)), Atom("v", (variable,))]
    return [*atoms, *(Membership(Atom("label", (variable,)), (colour,)) for colour in ("red", "blue"))]


def named_atoms() -> list[Atom]:
    ends = [(name, Symbol(entity)) for name in "pq" for entity in ENTITIES]
    return [Atom(name, args) for name, end in ends for args in ((X, end), (end, X))]


def walk_atoms() -> list[Atom]:
    return [Atom(name, args) for name in "pq" for args in ((X, Y), (Y, X))]


def find_general(body: tuple) -> tuple | None:
    """Return the body that says less: an edge to anything instead of to a constant or to a unary fact."""
    first = body[0]
    if len(body) == 2:
        return (first,)
    if isinstance(first, Membership) or len(first.args) == 1 or Y in first.args:
        return None
    return (Atom(first.predicate, tuple(term if term == X else Y for term in first.args)),)


def list_rules(kb: KnowledgeBase, *, min_support: int, min_confidence: float, circular: bool) -> dict:
    """Count every rule of the form, and return those that should be found."""

    def measure(head, body) -> dict[str, int]:
        return count_rule(Rule(head, body), kb, circular=circular)

    heads = [*unary_atoms(X), *named_atoms()]
    bodies = [(atom,) for atom in [*unary_atoms(X), *named_atoms(), *walk_atoms()]]
    bodies += list(product(walk_atoms(), unary_atoms(Y)))
    found = {}
    for head, body in product(heads, bodies):
        counts = measure(head, body)
        if counts["support_pairs"] < min_support or (head,) == body:
            continue
        constants = [{term for term in part.args if isinstance(term, Symbol)} for part in (head, body[0])]
        if constants[0] & constants[1]:
            continue
        cases = (np.array([counts[name]]) for name in ("support_pairs", "body_pairs"))
        confidence = bound_shares(*cases, trust=NAMED_TRUST if constants[0] | constants[1] else TRUST)[0]
        of_head = count_rule(Rule(head, (head,)), kb, circular=True)["body_pairs"]
        if confidence < min_confidence or confidence <= of_head / len(ENTITIES):
            continue
        if (general := find_general(body)) is not None:
            less = measure(head, general)
            if confidence <= less["support_pairs"] / less["body_pairs"]:
                continue
        found[Rule(head, body).canonical()] = counts | {"confidence": confidence}
    return found


def choose_filters(*, min_support: int, circular: bool) -> RuleFilters:
    return RuleFilters(
        targets=None,
        min_support=min_support,
        min_named_support=min_support,
        min_confidence=0.05,
        min_coverage=0.0,
        min_relation_facts=1,
        inverses=True,
        repeated=True,
        circular=circular,
        unary=True,
        constants=True,
        confidence="beta",
    )


@settings(max_examples=30, deadline=None)
@given(knowledge_bases(), st.integers(1, 2), st.booleans())
def test_rules_and_counts_equal_those_of_all_rules_written_out(kb, min_support, circular):
    filters = choose_filters(min_support=min_support, circular=circular)
    mined = {rule.canonical(): rule for rule in PropertyCounter(kb, filters).mine()}
    wanted = list_rules(kb, min_support=min_support, min_confidence=0.05, circular=circular)
    assert set(mined) == set(wanted)
    for key, counts in wanted.items():
        rule = mined[key]
        assert rule.confidence == pytest.approx(counts["confidence"])
        assert rule.annotations["support"] == counts["support"]
        assert rule.annotations["body"] == counts["body"]
        assert rule.annotations["pairs"] == pytest.approx(counts["support_pairs"] / counts["body_pairs"], abs=1e-6)
        assert rule.annotations["pca"] == pytest.approx(counts["support_pairs"] / counts["known_pairs"], abs=1e-6)
        assert rule.annotations["coverage"] == pytest.approx(counts["support_pairs"] / counts["facts"], abs=1e-6)


def test_what_fathers_are_is_found():
    """`male(X) ← father_of(X, Y)`, and a unary fact at the end of a step."""
    made = family(60, missing=0.1, seed=3)
    rules = RuleMiner(max_length=1, min_confidence=0.5, min_support=2).fit(made.kb).rules_
    found = {rule.canonical(): rule for rule in rules.rules}
    for text in (
        "male(X) :- father_of(X, Y).",
        "female(X) :- mother_of(X, Y).",
        "male(X) :- spouse_of(X, Y), female(Y).",
    ):
        rule = found[parse_rule(text).canonical()]
        counts = count_rule(rule, made.kb)
        assert (rule.annotations["support"], rule.annotations["body"]) == (counts["support"], counts["body"])
        assert parse_rule(str(rule)) == rule
    given = apply(rules, made.kb, min_score=0.5)
    hidden = {("male", *values) for values in made.hidden.tuples("male")}
    assert hidden & {(fact.predicate, *fact.args) for fact in given}


def test_constants_are_named_where_many_share_them():
    facts = [(f"p{index}", "born_in", "ghent" if index < 8 else "paris") for index in range(20)]
    facts += [
        (f"p{index}", "speaks", "dutch" if index < 8 else "french") for index in range(20) if index not in (3, 12)
    ]
    kb = KnowledgeBase.from_triples(facts)
    rules = RuleMiner(max_length=1, min_confidence=0.3, min_support=2).fit(kb).rules_
    best = {str(rule.head): str(rule.body[0]) for rule in reversed(rules.rules) if str(rule.head).startswith("speaks")}
    assert best == {"speaks(V0, dutch)": "born_in(V0, ghent)", "speaks(V0, french)": "born_in(V0, paris)"}
    given = {str(fact) for fact in apply(rules, kb)}
    assert {"speaks(p3, dutch)", "speaks(p12, french)"} <= given
    assert rank(rules, kb, "speaks(p3, X)")[0].entity == "dutch"
    assert "born_in(p3, ghent)" in str(explain(rules, kb, "speaks(p3, dutch)"))
    assert not any(isinstance(term, Symbol) for rule in without_constants(kb) for term in rule.head.args)


def without_constants(kb: KnowledgeBase) -> tuple[Rule, ...]:
    return RuleMiner(max_length=1, min_confidence=0.3, constants=False).fit(kb).rules_.rules


def test_too_many_rules_are_cut_and_it_is_said(monkeypatch):
    monkeypatch.setattr(properties, "MAX_BODIES", 1)
    kb = family(60, seed=1).kb
    options = {"max_length": 1, "min_confidence": 0.1, "min_support": 2, "confidence": "beta", "targets": ["male"]}
    miner = RuleMiner(**options, constants=False).fit(kb)
    (kept,) = [rule for rule in miner.rules_.rules if len(rule.head.args) == 1]
    assert "are kept: at most 1 for one head" in miner.note_
    monkeypatch.undo()
    assert RuleMiner(**options, constants=False).fit(kb).rules_.rules[0] == kept


def test_constants_that_take_too_long_are_left_out_and_it_is_said(monkeypatch):
    monkeypatch.setattr(properties, "MAX_JOINS", 100)
    facts = [(f"p{index}", f"r{kind}", f"c{index % (kind + 1)}") for index in range(40) for kind in range(4)]
    miner = RuleMiner(max_length=1, min_confidence=0.1).fit(KnowledgeBase.from_triples(facts))
    assert "are named in no rule" in miner.note_


@pytest.mark.parametrize("facts", [[("u", "a")], [("u", "a"), ("v", "a")], [("p", "a", "a")], [("age", "a", 3)]])
def test_tiny_graphs(facts):
    kb = KnowledgeBase.from_facts([*facts, ("q", "b", "c")])
    for rule in RuleMiner(max_length=2, min_confidence=0.0, min_support=1).fit(kb).rules_.rules:
        assert rule.annotations["support"] <= rule.annotations["body"]


def test_a_limit_of_time_keeps_what_was_counted(monkeypatch):
    monkeypatch.setattr(properties, "JOINS_AT_ONCE", 50)
    kb = family(60, seed=1).kb
    filters = choose_filters(min_support=2, circular=False)
    everything = {rule.canonical() for rule in PropertyCounter(kb, filters).mine()}
    late = PropertyCounter(kb, replace(filters, deadline=0.0))
    some = {rule.canonical() for rule in late.mine()}
    assert some < everything
    assert "time was up when rules about one entity were counted for" in late.notes[0]
