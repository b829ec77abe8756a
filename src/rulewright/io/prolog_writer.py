"""Facts and rules as Prolog programs, as far as Prolog can say them."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator

from rulewright.data import KnowledgeBase, Value
from rulewright.errors import DataError
from rulewright.files import write_text
from rulewright.io.prolog_text import atom
from rulewright.io.refusals import only_true_facts
from rulewright.logic import (
    Comparison,
    Head,
    Literal,
    Membership,
    Number,
    Rule,
    RuleSet,
    Statement,
    Symbol,
    Term,
    Variable,
)
from rulewright.logic.printer import number
from rulewright.logic.terms import Comparator

_WRITTEN: dict[Comparator, str] = {"<": "<", "<=": "=<", ">": ">", ">=": ">=", "=": "==", "!=": "\\=="}


def write(kb: KnowledgeBase, path: str | os.PathLike[str]) -> None:
    """Write the true facts of one world as a Prolog program; what it cannot say is refused."""
    only_true_facts(kb, "a Prolog program")
    lines = [f"{_head(name, map(_constant, args))}.\n" for name, args in kb.facts()]
    write_text(path, "".join(lines) or "% no facts\n")


def write_rules(rules: RuleSet, path: str | os.PathLike[str]) -> None:
    """Write rules as a Prolog program; formulas with weights, templates and classes are refused."""
    write_text(path, "".join(f"{_clause(statement)}\n" for statement in rules) or "% no rules\n")


def _constant(value: Value) -> str:
    if isinstance(value, str):
        return atom(value)
    if not math.isfinite(value):
        raise DataError(f"Prolog cannot write the number {value}")
    return _numeral(value)


def _numeral(value: int | float) -> str:
    """Write a number with a point before an exponent, as ISO Prolog asks: 1e22 is 1.0e22."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2.0**53 and number(value) != "-0.0":
        value = int(value)
    text = number(value)
    return re.sub(r"^(-?\d+)e", r"\1.0e", text)


def _head(name: str, args: Iterator[str] | map[str]) -> str:
    return f"{atom(name)}({', '.join(args)})"


def _clause(statement: Statement) -> str:
    if not isinstance(statement, Rule):
        raise DataError(f"Prolog has rules and no formulas with weights or templates, so it cannot say: {statement}")
    try:
        bodies = [", ".join(map(_literal, _in_order(body))) for body in statement.alternatives()]
        head = _unit(statement.head)
    except DataError as error:
        raise DataError(f"{error}, so this cannot be written: {statement}") from None
    confidence = "" if statement.confidence == 1 else f"{_numeral(statement.confidence)}::"
    return f"{confidence}{head} :- {' ; '.join(bodies)}."


def _in_order(body: tuple[Literal, ...]) -> list[Literal]:
    """Put each negation and comparison behind the atoms that bind its variables, and change nothing else."""
    waiting = list(body)
    bound: set[Term] = set()
    ordered: list[Literal] = []
    while waiting:
        ready = next(each for each in waiting if _binds(each) or set(_variables(each)) <= bound)
        waiting.remove(ready)
        ordered.append(ready)
        if _binds(ready):
            bound |= set(ready.unit.args)
    return ordered


def _binds(literal: Literal) -> bool:
    return literal.positive and not isinstance(literal.unit, Comparison)


def _variables(literal: Literal) -> list[Term]:
    return [term for term in literal.unit.args if isinstance(term, Variable)]


def _literal(literal: Literal) -> str:
    unit = literal.unit
    if isinstance(unit, Comparison):
        left, right = map(_term, unit.args)
        kinds = {type(term) for term in unit.args}
        operator = _WRITTEN[unit.operator]
        if unit.operator in ("=", "!=") and Number in kinds and Symbol not in kinds:
            operator = "=:=" if unit.operator == "=" else "=\\="
        return f"{left} {operator} {right}"
    return _unit(unit) if literal.positive else f"\\+ {_unit(unit)}"


def _unit(unit: Head) -> str:
    if isinstance(unit, Membership):
        raise DataError("Prolog has no classes")
    return _head(str(unit.predicate), map(_term, unit.args))


def _term(term: Term) -> str:
    match term:
        case Variable(name):
            return name
        case Symbol(name):
            return atom(name)
        case Number(value):
            return _numeral(value)
