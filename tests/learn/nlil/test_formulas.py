"""Crisp rules: what is printed is what was measured."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from learn.nlil.plain_space import visible_facts
from learn.nlil.small_worlds import SIZE, graphs, random_attentions, read_some

from rulewright.data import KnowledgeBase
from rulewright.data.facts import group_by_signature
from rulewright.engine import Engine
from rulewright.learn.nlil.facts import FactGraph, HiddenFacts, StatementCodes, Vocabulary
from rulewright.learn.nlil.formulas import (
    FALSE,
    TRUE,
    PathLiteral,
    RuleReader,
    RuleWriter,
    conjoin,
    match_conjunctions,
    negate,
)
from rulewright.learn.nlil.questions import LearningTask
from rulewright.logic import Atom, Rule, Symbol, substitute


def hide_facts(kb: KnowledgeBase, hidden: HiddenFacts, question: tuple[int, ...]) -> KnowledgeBase:
    facts = visible_facts(kb, hidden, question)
    columns = {}
    for name in kb.predicates:
        rows = [args for predicate, args in facts if predicate == name]
        if rows:
            columns[name] = [np.array(column, dtype=np.int32) for column in zip(*rows, strict=True)]
    return kb.with_facts(group_by_signature(kb.predicates, columns))


def engine_says(rule: Rule, kb: KnowledgeBase, question: tuple[int, ...]) -> bool:
    labels = kb.domains["entity"].labels_of(np.array(question))
    values = {variable: Symbol(label) for variable, label in zip(rule.head.args, labels, strict=True)}
    body = [substitute(part, values) for part in rule.body]  # type: ignore[arg-type]
    with Engine(kb, threads=1) as engine:
        return engine.count(body) > 0


@pytest.mark.slow
@settings(max_examples=12)
@given(kb=graphs(), seed=st.integers(0, 1000), arity=st.integers(1, 2))
def test_hard_scores_are_what_the_engine_says_of_the_printed_rule(kb: KnowledgeBase, seed: int, arity: int) -> None:
    target = "a" if arity == 1 else "p"
    task = LearningTask.for_targets(FactGraph(kb), (target,))
    codes = StatementCodes(arity, task.graph.vocabulary)
    attentions = random_attentions(kb, arity, seed=seed, groups=3, levels=1)
    random = np.random.default_rng(seed)
    writer, reader = RuleWriter(target, codes), RuleReader(codes, task.hidden)
    read = read_some(attentions, reader, len(codes), seed)
    allowed = {part for formula in read for part in formula if writer.why_not(part) is None}
    conjunctions = {part for part in allowed if not writer.write_auxiliary(part)}  # others: test_counting
    columns = [np.arange(SIZE)] if arity == 1 else list(random.integers(0, SIZE, (2, 4)))
    matched = match_conjunctions(conjunctions, task, columns, block=3)
    for conjunction in conjunctions:
        rule = writer.write(conjunction)
        rows = set(matched[conjunction].tolist())
        for row, question in enumerate(zip(*(column.tolist() for column in columns), strict=True)):
            assert (row in rows) == engine_says(rule, hide_facts(kb, task.hidden, question), question), str(rule)


def test_formulas_are_simplified() -> None:
    a, b = PathLiteral(1, (), None), PathLiteral(2, (), None)
    one, two = (frozenset([frozenset([(literal, True)])]) for literal in (a, b))
    assert conjoin(one, negate(one)) == FALSE
    assert negate(negate(one)) == one
    assert negate(conjoin(negate(one), negate(two))) == one | two  # ∨ follows from ∧ and ¬
    assert negate(TRUE) == FALSE
    assert negate(FALSE) == TRUE
    assert conjoin(one, TRUE) == one
    leads = frozenset([frozenset([(PathLiteral(0, (1,), None), True)])])
    further = frozenset([frozenset([(PathLiteral(2, (1, 3), None), True)])])
    assert conjoin(leads, further) == further


def test_tautologies_and_what_the_language_cannot_say_are_refused() -> None:
    codes = StatementCodes(1, Vocabulary(("succ",), ("even", "zero")))
    reader, writer = RuleReader(codes, HiddenFacts(marks=(1,))), RuleWriter("even", codes)
    assert reader.make_literal(1, (), ()) == FALSE  # even(X) cannot explain even(X)
    assert reader.make_literal(0, (0, 0), ()) == TRUE
    assert writer.why_not(frozenset()) == "always true"
    lacks = frozenset([(PathLiteral(0, (1,), None), False), (PathLiteral(2, (), None), True)])
    assert writer.why_not(lacks) is None  # an auxiliary predicate says that something does not exist
    assert list(map(str, writer.write_auxiliary(lacks))) == ["has_succ(X) :- succ(X, Z1). @{auxiliary: true}"]
    assert str(writer.write(lacks)) == "even(X) :- zero(X), !has_succ(X)."
    taken = RuleWriter("even", codes, ["has_succ"]).write(lacks)
    assert str(taken) == "even(X) :- zero(X), !has_succ_1(X)."
    own = frozenset([(PathLiteral(1, (1,), None), False), (PathLiteral(2, (), None), True)])
    assert writer.why_not(own) == "rests on the absence of its own target"
    assert writer.why_not(frozenset([(PathLiteral(2, (), None), False)])) == "leaves an argument free"


def test_rules_are_written_along_their_paths() -> None:
    vocabulary = Vocabulary(("succ", "less"), ("even", "zero"))
    about_one = RuleWriter("even", StatementCodes(1, vocabulary))
    rule = about_one.write(frozenset([(PathLiteral(1, (2, 2), None), True), (PathLiteral(2, (), None), False)]), 0.5)
    assert str(rule) == "0.5 :: even(X) :- succ(Z1, X), succ(Z2, Z1), even(Z2), !zero(X)."
    about_two = RuleWriter("less", StatementCodes(2, vocabulary))
    rule = about_two.write(frozenset([(PathLiteral(2, (1, 5), (2,)), True)]))
    assert str(rule) == "less(X, Y) :- succ(X, Z1), even(Z1), succ(Z2, Y), less(Z1, Z2)."
    assert rule.head == Atom("less", about_two.head)
