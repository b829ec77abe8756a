"""Every value of the rule language as its text; ``parse(text(value)) == value``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

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


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    return _ESCAPES.get(character) or f"\\u{ord(character):04x}"


def number(value: int | float) -> str:
    """Write a number so that it reads back as the same number.

    >>> number(1e22), number(0.1), number(-3)
    ('1e+22', '0.1', '-3')
    """
    return repr(value)


# How tightly each connective binds; a part is put in parentheses when it binds no tighter than it must.
_TIGHTNESS: Mapping[type, int] = {t.Iff: 1, t.Implies: 2, t.Or: 3, t.And: 4, t.Not: 5}
_UNIT = 6
_FORMULA_SIGNS: Mapping[type, str] = {t.And: " & ", t.Or: " | "}
_BODY_SIGNS: Mapping[type, str] = {t.And: ", ", t.Or: " ; "}


def _unit(value: object) -> str:
    match value:
        case t.Variable(name):
            return name
        case str():
            return quote(value)
        case t.Atom(predicate, args):
            return f"{_unit(predicate)}({', '.join(map(_unit, args))})"
        case t.Symbol(name):
            return quote(name)
        case t.Number(figure):
            return number(figure)
        case t.PredicateVariable(name):
            return f"?{name}"
        case t.Membership(atom, classes):
            return f"{_unit(atom)} in {{{', '.join(map(quote, classes))}}}"
        case t.Comparison(operator, left, right):
            return f"{_unit(left)} {operator} {_unit(right)}"
    raise TypeError(f"not part of the rule language: {value!r}")


def _formula(value: t.Formula, at_least: int, signs: Mapping[type, str]) -> str:
    tightness = _TIGHTNESS.get(type(value), _UNIT)
    match value:
        case t.Not(t.Comparison() | t.Membership() as inner):
            written = f"!({_unit(inner)})"  # without the parentheses "!" would seem to reach the left side only
        case t.Not(inner):
            written = "!" + _formula(inner, tightness, signs)
        case t.And(parts) | t.Or(parts):
            written = signs[type(value)].join(_formula(part, tightness + 1, signs) for part in parts)
        case t.Implies(premise, conclusion):
            written = f"{_formula(premise, tightness + 1, signs)} => {_formula(conclusion, tightness, signs)}"
        case t.Iff(left, right):
            written = f"{_formula(left, tightness, signs)} <=> {_formula(right, tightness + 1, signs)}"
        case _:
            written = _unit(value)
    return written if tightness >= at_least else f"({written})"


def body(parts: tuple[t.Formula, ...]) -> str:
    """Write a rule's body: ``,`` for and, ``;`` for or."""
    if len(parts) == 1 and isinstance(parts[0], t.Or):
        return _formula(parts[0], 0, _BODY_SIGNS)
    return ", ".join(_formula(part, _TIGHTNESS[t.And] + 1, _BODY_SIGNS) for part in parts)


def _annotation(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return number(value)
        case str():
            return quote(value) if value not in ("true", "false") else f"'{value}'"
        case tuple():
            return "[" + ", ".join(map(_annotation, value)) + "]"
        case Mapping():
            return "{" + ", ".join(f"{quote(key)}: {_annotation(each)}" for key, each in value.items()) + "}"
    raise TypeError(f"not an annotation: {value!r}")


def _annotated(statement: str, annotations: Mapping[str, object]) -> str:
    return f"{statement}. @{_annotation(annotations)}" if annotations else f"{statement}."


def text(value: object) -> str:
    """Return the text of any value of the rule language; statements end with their full stop."""
    match value:
        case r.Rule(head, conjuncts, confidence, annotations):
            prefix = "" if confidence == 1 else f"{number(confidence)} :: "
            return _annotated(f"{prefix}{_unit(head)} :- {body(conjuncts)}", annotations)
        case r.WeightedFormula(formula, kind, weight, annotations):
            prefix = number(weight) if weight is not None else kind
            return _annotated(f"{prefix} {_formula(formula, 0, _FORMULA_SIGNS)}", annotations)
        case r.Template(head, conjuncts, domains, annotations):
            statement = f"template {_unit(head)} :- {body(conjuncts)}"
            if domains:
                statement += " where " + ", ".join(
                    f"{_unit(hole)} in " + ("*" if names is None else f"{{{', '.join(map(quote, names))}}}")
                    for hole, names in domains
                )
            return _annotated(statement, annotations)
        case r.PredicateDeclaration(name, types, classes):
            values = "" if classes is None else f" in {{{', '.join(map(quote, classes))}}}"
            return f"predicate {quote(name)}({', '.join(map(quote, types))}){values}."
        case t.Literal(unit, positive):
            return _formula(unit if positive else t.Not(unit), 0, _FORMULA_SIGNS)
        case t.Not() | t.And() | t.Or() | t.Implies() | t.Iff():
            return _formula(value, 0, _FORMULA_SIGNS)
    return _unit(value)
