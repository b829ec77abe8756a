"""Crisp rules: what is printed is what was measured."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from learn.nlil.plain_space import visible_facts
from learn.nlil.small_worlds import SIZE, graphs, random_attentions

from rulewright.data import KnowledgeBase
from rulewright.data.facts import group_by_signature
from rulewright.engine import Engine
from rulewright.learn.nlil.facts import FactGraph, Hidden, Vocabulary
from rulewright.learn.nlil.formulas import (
    FALSE,
    TRUE,
    Literal,
    Reader,
    Writer,
    both,
    drawn,
    likeliest,
    negated,
    rows_of,
    rows_where,
)
from rulewright.learn.nlil.frontier import Reach, Statements
from rulewright.logic import Atom, Rule, Symbol, substitute


def without(kb: KnowledgeBase, hidden: Hidden, question: tuple[int, ...]) -> KnowledgeBase:
    facts = visible_facts(kb, hidden, question)
    columns = {}
    for name in kb.predicates:
        rows = [args for each, args in facts if each == name]
        if rows:
            columns[name] = [np.array(column, dtype=np.int32) for column in zip(*rows, strict=True)]
    return kb.with_facts(group_by_signature(kb.predicates, columns))


def engine_says(rule: Rule, kb: KnowledgeBase, question: tuple[int, ...]) -> bool:
    labels = kb.domains["entity"].labels_of(np.array(question))
    values = {variable: Symbol(label) for variable, label in zip(rule.head.args, labels, strict=True)}
    body = [substitute(part, values) for part in rule.body]  # type: ignore[arg-type]
    with Engine(kb, threads=1) as engine:
        return engine.count(body) > 0


@settings(max_examples=12)
@given(kb=graphs(), seed=st.integers(0, 1000), arity=st.integers(1, 2))
def test_hard_scores_are_what_the_engine_says_of_the_printed_rule(kb: KnowledgeBase, seed: int, arity: int) -> None:
    vocabulary, graph = Vocabulary.of(kb), FactGraph(kb)
    numbers = Statements.of(graph, arity)
    hidden = Hidden(marks=(1,)) if arity == 1 else Hidden(step=1)
    attentions = random_attentions(kb, arity, seed=seed, groups=3, levels=1)
    random = np.random.default_rng(seed)
    writer = Writer("a" if arity == 1 else "p", vocabulary, numbers)
    reader = Reader(vocabulary, numbers, hidden)
    read = [*reader.read(attentions, lambda: likeliest), *reader.read(attentions, lambda: drawn(random))]
    conjunctions = {each for formula in read for each in formula if writer.why_not(each) is None}
    columns = [np.arange(SIZE)] if arity == 1 else list(random.integers(0, SIZE, (2, 4)))
    literals = {literal for each in conjunctions for literal, _ in each}
    holds = rows_where(literals, Reach(graph, steps=2, arity=arity), columns, hidden, block=3)
    for conjunction in conjunctions:
        rule = writer.rule(conjunction)
        rows = set(rows_of(conjunction, holds, len(columns[0])).tolist())
        for number, question in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            assert (number in rows) == engine_says(rule, without(kb, hidden, question), question), str(rule)


def test_formulas_are_simplified() -> None:
    a, b = Literal(1, (), None), Literal(2, (), None)
    one, two = (frozenset([frozenset([(each, True)])]) for each in (a, b))
    assert both(one, negated(one)) == FALSE
    assert negated(negated(one)) == one
    assert negated(both(negated(one), negated(two))) == one | two  # ∨ follows from ∧ and ¬
    assert negated(TRUE) == FALSE
    assert negated(FALSE) == TRUE
    assert both(one, TRUE) == one
    leads = frozenset([frozenset([(Literal(0, (1,), None), True)])])
    further = frozenset([frozenset([(Literal(2, (1, 3), None), True)])])
    assert both(leads, further) == further


def test_tautologies_and_what_the_language_cannot_say_are_refused() -> None:
    vocabulary, numbers = Vocabulary(("succ",), ("even", "zero")), Statements(1, 2, 3)
    reader, writer = Reader(vocabulary, numbers, Hidden(marks=(1,))), Writer("even", vocabulary, numbers)
    assert reader.literal(1, (), ()) == FALSE  # even(X) cannot explain even(X)
    assert reader.literal(0, (0, 0), ()) == TRUE
    assert writer.why_not(frozenset()) == "always true"
    lacks = frozenset([(Literal(0, (1,), None), False), (Literal(2, (), None), True)])
    assert writer.why_not(lacks) == "says that something does not exist"
    assert writer.why_not(frozenset([(Literal(2, (), None), False)])) == "leaves an argument free"


def test_rules_are_written_along_their_paths() -> None:
    vocabulary = Vocabulary(("succ", "less"), ("even", "zero"))
    about_one = Writer("even", vocabulary, Statements(1, 4, 3))
    rule = about_one.rule(frozenset([(Literal(1, (2, 2), None), True), (Literal(2, (), None), False)]), 0.5)
    assert str(rule) == "0.5 :: even(X) :- succ(Z1, X), succ(Z2, Z1), even(Z2), !zero(X)."
    about_two = Writer("less", vocabulary, Statements(2, 4, 3))
    rule = about_two.rule(frozenset([(Literal(2, (1, 5), (2,)), True)]))
    assert str(rule) == "less(X, Y) :- succ(X, Z1), even(Z1), succ(Z2, Y), less(Z1, Z2)."
    assert rule.head == Atom("less", about_two.head)
