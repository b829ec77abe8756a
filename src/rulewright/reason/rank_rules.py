"""Rules read for ranking: each answers its head's relation in both directions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase
from rulewright.engine.walks import Path, check_relation, mirrored
from rulewright.errors import DataError
from rulewright.logic import (
    And,
    Atom,
    Comparison,
    Formula,
    Implies,
    Not,
    Rule,
    RuleSet,
    Statement,
    Symbol,
    Template,
    Term,
    Variable,
)
from rulewright.reason.evidence import ANSWER, ANY, ASKED, CLOSED, WAYS, RuleTable, Ways

Weighted = tuple[RuleTable, npt.NDArray[np.float64]]


@dataclass
class _Columns:
    paths: dict[Path, int] = field(default_factory=dict)
    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    ways: set[str] = field(default_factory=set)

    def add(self, path: Path, kind: int, constant: int, end: int, weight: float) -> None:
        number = self.paths.setdefault(path, len(self.paths))
        self.rows.append((number, kind, constant, end))
        self.weights.append(weight)

    def table(self, relation: int) -> Weighted:
        path, kind, constant, end = np.array(self.rows, dtype=np.int64).reshape(-1, 4).T
        if len(self.ways) > 1:
            raise DataError(f"the rules of one relation must agree in what many ways count, got {sorted(self.ways)}")
        ways = cast(Ways, next(iter(self.ways), "once"))
        return RuleTable(relation, tuple(self.paths), path, kind, constant, end, ways), np.array(self.weights)


def tables_of(rules: RuleSet, kb: KnowledgeBase, *, weighted: bool) -> dict[int, Weighted]:
    """Return the table of every question: its rules with their confidence, or with ``weighted`` their weights.

    Weights are the annotations ``weight`` for ``r(X, ?)`` and ``weight_inverse`` for ``r(?, X)``; a rule that has
    neither weighs ``−log(1 − confidence)``. ``ways`` says what many ways along a path count (`truth`). Rules are chains
    whose ends are variables or entities; with ``weighted``, formulas ``w q(X, Y) => !r(X, Y)``, ``w X = Y => !r(X, Y)``
    and ``w r(X, c)`` too.
    """
    found: dict[int, _Columns] = {}
    for statement in rules:
        if isinstance(statement, Template):
            raise DataError(f"a template has no facts to give until a learner has filled it: {statement}")
        head, body, sign = _read(statement, weighted)
        relation = check_relation(kb, str(head.predicate))
        ends, steps = _walked(head, body, kb, statement)
        ahead, back = _weights(statement, weighted, sign)
        near, far, last = ends
        if near is None and far is None:
            forward = (steps, CLOSED, ANY, ANY)
            backward = (mirrored(steps), CLOSED, ANY, ANY)
        else:
            constant = near if far is None else far
            assert constant is not None
            kinds = (ANSWER, ASKED) if near is None else (ASKED, ANSWER)
            forward, backward = ((steps, kind, constant, last) for kind in kinds)
        for number, row, weight in ((2 * relation, forward, ahead), (2 * relation + 1, backward, back)):
            if weight:
                columns = found.setdefault(number, _Columns())
                columns.add(*row, weight)
                if weighted and row[1] == CLOSED:
                    columns.ways.add(_ways(statement))
    return {number: columns.table(number) for number, columns in found.items()}


def _ways(statement: Statement) -> str:
    ways = str(statement.annotations.get("ways", "once"))
    if ways not in WAYS:
        raise DataError(f"ways must be one of {', '.join(WAYS)}, got {ways!r}: {statement}")
    return ways


def _weights(statement: Statement, weighted: bool, sign: float) -> tuple[float, float]:
    notes = statement.annotations
    given = [notes.number(name) for name in ("weight", "weight_inverse")]
    if isinstance(statement, Rule):
        if not weighted:
            return statement.confidence, statement.confidence
        if given == [None, None]:
            usual = -float(np.log1p(-min(statement.confidence, 0.999)))
            return usual, usual
    elif given == [None, None]:
        given = [sign * float(getattr(statement, "weight", 0.0) or 0.0)] * 2
    return given[0] or 0.0, given[1] or 0.0


def _read(statement: Statement, weighted: bool) -> tuple[Atom, Sequence[Formula], float]:
    """Return head, body and whether the statement speaks for its head (1) or against it (−1)."""
    if isinstance(statement, Rule):
        if isinstance(statement.head, Atom) and statement.head.arity == 2:
            return statement.head, statement.body, 1.0
    elif weighted and not isinstance(statement, Template) and statement.kind == "soft":
        match statement.formula:
            case Implies(And(parts), Not(Atom() as head)) if head.arity == 2:
                return head, parts, -1.0
            case Implies(premise, Not(Atom() as head)) if head.arity == 2:
                return head, () if isinstance(premise, Comparison) else (premise,), -1.0
            case Atom() as head if head.arity == 2:
                return head, (), 1.0
    raise DataError(f"ranking takes chain rules, got: {statement}")


def _walked(
    head: Atom, body: Sequence[Formula], kb: KnowledgeBase, statement: Statement
) -> tuple[tuple[int | None, int | None, int], Path]:
    """Walk a body from the head's first variable: the head's constants, the body's last entity, and the steps."""
    types = kb.predicate(str(head.predicate)).types
    near, far = (_entity(term, kind, kb) for term, kind in zip(head.args, types, strict=True))
    start, goal = (head.args[1], None) if near is not None else (head.args[0], head.args[1] if far is None else None)
    left = [part for part in body if not (isinstance(part, Comparison) and part.operator == "!=")]
    place, steps, last = start, [], ANY
    seen: set[Term] = {start}
    while left:
        atom = next((part for part in left if isinstance(part, Atom) and part.arity == 2 and place in part.args), None)
        if atom is None or (near is not None and far is not None):
            raise DataError(f"ranking takes chain rules, got: {statement}")
        left.remove(atom)
        inverse = atom.args[0] != place
        place = atom.args[0 if inverse else 1]
        steps.append(2 * check_relation(kb, str(atom.predicate)) + inverse)
        kind = kb.predicate(str(atom.predicate)).types[0 if inverse else 1]
        entity = _entity(place, kind, kb)
        if place in seen or (entity is not None and left):
            raise DataError(f"ranking takes chain rules, got: {statement}")
        last = ANY if entity is None else entity
        seen.add(place)
    if goal is not None and body and place != goal and not isinstance(body[0], Comparison):
        raise DataError(f"ranking takes chain rules, got: {statement}")
    return (near, far, last), tuple(steps)


def _entity(term: Term, kind: str, kb: KnowledgeBase) -> int | None:
    if isinstance(term, Variable):
        return None
    if not isinstance(term, Symbol):
        raise DataError(f"{term} is a number and no entity")
    return kb.domains[kind].id_of(term.name)
