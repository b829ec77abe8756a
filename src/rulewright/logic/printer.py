"""Every value of the rule language as its text; ``parse(write(value)) == value``."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from rulewright.logic import rules as r
from rulewright.logic import terms as t

RESERVED = frozenset({"predicate", "closed", "hard", "learn", "template", "where", "in"})
_BARE = re.compile(r"[a-z][A-Za-z0-9_]*\Z")
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
# Besides quotes: what a text file cannot hold, what ends a line, and what changes the order a line is shown in.
_ESCAPED = re.compile(r"[\\'\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@lru_cache(maxsize=65536)
def quote(name: str) -> str:
    r"""Write a name bare where it is a lower-case word, in single quotes otherwise.

    >>> print(quote("parent_of"), quote("P17"), quote("it's"), quote("42"), quote("in"))
    parent_of 'P17' 'it\'s' '42' 'in'
    """
    if _BARE.match(name) and name not in RESERVED:
        return name
    return "'" + _ESCAPED.sub(_escape, name) + "'"


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"


# How tightly each connective binds; a part is put in parentheses when it binds no tighter than it must.
_TIGHTNESS: Mapping[type, int] = {t.Iff: 1, t.Implies: 2, t.Or: 3, t.And: 4, t.Not: 5}
_UNIT = 6


def _write_unit(value: object) -> str:
    match value:
        case t.Variable(name):
            return name
        case str():
            return quote(value)
        case t.Atom(predicate, ()):
            return _write_unit(predicate)
        case t.Atom(predicate, args):
            return f"{_write_unit(predicate)}({', '.join(map(_write_unit, args))})"
        case t.Symbol(name):
            return quote(name)
        case t.Number(figure):
            return repr(figure)
        case t.PredicateVariable(name):
            return f"?{name}"
        case t.Membership(atom, classes):
            return f"{_write_unit(atom)} in {{{', '.join(map(quote, classes))}}}"
        case t.Comparison(operator, left, right):
            return f"{_write_unit(left)} {operator} {_write_unit(right)}"
    raise TypeError(f"not part of the rule language: {value!r}")


class Notation(NamedTuple):
    """How formulas are written: the signs of the connectives, and a function for what has none."""

    write_unit: Callable[[t.Unit], str]
    negation: str
    conjunction: str
    disjunction: str
    implication: str = ""
    equivalence: str = ""


_FORMULA = Notation(_write_unit, "!", " & ", " | ", " => ", " <=> ")
_BODY = Notation(_write_unit, "!", ", ", " ; ")


def write_formula(formula: t.Formula, notation: Notation = _FORMULA, at_least: int = 0) -> str:
    """Write a formula, in parentheses where it binds less tightly than ``at_least``."""
    tightness = _TIGHTNESS.get(type(formula), _UNIT)
    match formula:
        case t.Not(t.Comparison() | t.Membership() as inner):
            # without the parentheses the negation would seem to reach the left side only
            written = f"{notation.negation}({notation.write_unit(inner)})"
        case t.Not(inner):
            written = notation.negation + write_formula(inner, notation, tightness)
        case t.And(parts):
            written = notation.conjunction.join(write_formula(part, notation, tightness + 1) for part in parts)
        case t.Or(parts):
            written = notation.disjunction.join(write_formula(part, notation, tightness + 1) for part in parts)
        case t.Implies(premise, conclusion):
            sides = write_formula(premise, notation, tightness + 1), write_formula(conclusion, notation, tightness)
            written = notation.implication.join(sides)
        case t.Iff(left, right):
            sides = write_formula(left, notation, tightness), write_formula(right, notation, tightness + 1)
            written = notation.equivalence.join(sides)
        case _:
            written = notation.write_unit(formula)
    return written if tightness >= at_least else f"({written})"


def write_body(parts: tuple[t.Formula, ...], notation: Notation = _BODY) -> str:
    """Write the body of a rule: ``,`` for and, ``;`` for or."""
    if len(parts) == 1 and isinstance(parts[0], t.Or):
        return write_formula(parts[0], notation)
    return notation.conjunction.join(write_formula(part, notation, _TIGHTNESS[t.And] + 1) for part in parts)


def _write_annotation(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return quote(value) if value not in ("true", "false") else f"'{value}'"
        case tuple():
            return "[" + ", ".join(map(_write_annotation, value)) + "]"
        case Mapping():
            return "{" + ", ".join(f"{quote(key)}: {_write_annotation(item)}" for key, item in value.items()) + "}"
    raise TypeError(f"not an annotation: {value!r}")


def write(value: object) -> str:
    """Return the text of any value of the rule language; statements end with their full stop."""
    match value:
        case r.Rule(head, conjuncts, confidence, annotations):
            prefix = "" if confidence == 1 else f"{confidence!r} :: "
            statement = f"{prefix}{_write_unit(head)} :- {write_body(conjuncts)}."
        case r.WeightedFormula(formula, strength, weight, annotations):
            statement = f"{strength if weight is None else repr(weight)} {write_formula(formula)}."
        case r.Template(head, conjuncts, domains, annotations):
            listed = ", ".join(
                f"{_write_unit(hole)} in " + ("*" if names is None else f"{{{', '.join(map(quote, names))}}}")
                for hole, names in domains
            )
            where = f" where {listed}" if domains else ""
            statement = f"template {_write_unit(head)} :- {write_body(conjuncts)}{where}."
        case r.PredicateDeclaration(name, types, classes):
            values = "" if classes is None else f" in {{{', '.join(map(quote, classes))}}}"
            args = f"({', '.join(map(quote, types))})" if types else ""
            return f"predicate {quote(name)}{args}{values}."
        case t.Literal(unit, positive):
            return write_formula(unit if positive else t.Not(unit))
        case t.Not() | t.And() | t.Or() | t.Implies() | t.Iff():
            return write_formula(value)
        case _:
            return _write_unit(value)
    return f"{statement} @{_write_annotation(annotations)}" if annotations else statement
