"""Statements as English sentences, for people who do not read logic.

A predicate's name is read as a phrase: ``parent_of(X, Y)`` is "X is a parent of Y", ``lives_in(X, Y)`` "X lives in Y",
``country(X, Y)`` "X has country Y", ``male(X)`` "X is male", ``rain`` "rain". Of a name that is a path or an address
only the last part is read, unless two names of the statement end alike. Where that reads badly, ``phrases`` gives the
words, with ``{0}``, ``{1}``, … for the arguments.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from rulewright.logic import rules as r
from rulewright.logic import terms as t
from rulewright.logic.printer import quote

_PREPOSITION = re.compile("of|in|to|at|by|for|from|with|on|than|as|near|under|over|behind|above")
_COMPARISONS = {
    "<": "is less than",
    "<=": "is at most",
    ">": "is greater than",
    ">=": "is at least",
    "=": "is the same as",
    "!=": "is different from",
}


def english(statement: r.Statement | t.Formula, phrases: Mapping[str, str] | None = None) -> str:
    """Return a statement as one sentence, or a formula as a clause.

    >>> from rulewright.logic import parse_rule
    >>> print(english(parse_rule("0.99 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z).")))
    If X is a spouse of Y and Y is a parent of Z, then X is a parent of Z, in 99 % of cases.
    >>> print(english(parse_rule("older(X, Y) :- age(X, A), age(Y, B), A > B."), {"older": "{0} is older than {1}"}))
    If X has age A, Y has age B and A is greater than B, then X is older than Y.
    """
    words = _Words(phrases or {}, _predicates(statement))
    match statement:
        case r.Rule(head, body, confidence):
            sentence = f"if {words.all_of(body)}, then {words.formula(head)}"
            sentence += "" if confidence == 1 else f", in {100 * confidence:.3g} % of cases"
        case r.WeightedFormula(formula, strength, weight):
            beginnings = {
                "hard": "it always holds that",
                "learn": "to some degree, still to be learned, it holds that",
                "soft": f"with weight {weight or 0!r} it holds that",
            }
            sentence = f"{beginnings[strength]} {words.formula(formula)}"
        case r.Template(head, body, domains):
            sentence = f"find rules of the form: if {words.all_of(body)}, then {words.formula(head)}"
            for hole, names in domains:
                among = "any predicate" if names is None else _join([*map(quote, names)], "or")
                sentence += f"; ?{hole.name} is {among}"
        case _:
            return words.formula(statement)
    return f"{sentence[0].upper()}{sentence[1:]}."


def _join(parts: list[str], joined: str) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} {joined} {parts[-1]}"


def short_name(name: str) -> str:
    """Return the last part of a name that is written as a path or an address, else the name.

    >>> short_name("/people/person/nationality"), short_name("http://example.org/ns#knows"), short_name("parent_of")
    ('nationality', 'knows', 'parent_of')
    """
    if not re.match(r"/|[a-z][a-z0-9+.-]*:", name):
        return name
    last = re.split(r"[/#:]", name.rstrip("/#:"))[-1]
    return last or name


def _predicates(statement: r.Statement | t.Formula) -> set[str]:
    match statement:
        case r.Rule(head, body) | r.Template(head, body):
            formulas: tuple[t.Formula, ...] = (head, *body)
        case r.WeightedFormula(formula):
            formulas = (formula,)
        case _:
            formulas = (statement,)
    atoms = (t.atom_of(unit) for formula in formulas for unit in t.units(formula))
    return {atom.predicate for atom in atoms if atom is not None and isinstance(atom.predicate, str)}


class _Words:
    """Puts formulas into words, given what some predicates are called."""

    def __init__(self, phrases: Mapping[str, str], predicates: set[str]) -> None:
        self._phrases = phrases
        ends = Counter(short_name(name) for name in predicates)
        self._spoken = {name: _spoken(short_name(name) if ends[short_name(name)] == 1 else name) for name in predicates}

    def _said(self, predicate: str | t.PredicateVariable) -> str:
        return f"?{predicate.name}" if isinstance(predicate, t.PredicateVariable) else self._spoken[predicate]

    def all_of(self, parts: tuple[t.Formula, ...]) -> str:
        return _join([self._part(part) for part in parts], "and")

    def _part(self, formula: t.Formula) -> str:
        """Put a part of a longer phrase into words; what is itself a list is kept together."""
        if isinstance(formula, t.Or):
            return f"either {self.formula(formula)}"
        return f"({self.formula(formula)})" if isinstance(formula, t.Implies | t.Iff) else self.formula(formula)

    def formula(self, formula: t.Formula) -> str:
        match formula:
            case t.Atom(predicate, args):
                return self._atom(predicate, [_term(arg) for arg in args])
            case t.Membership(atom, classes):
                names = _join([*map(quote, classes)], "or")
                of = f" of {_join([_term(arg) for arg in atom.args], 'and')}" if atom.args else ""
                return f"the {self._said(atom.predicate)}{of} is {names}"
            case t.Comparison(operator, left, right):
                return f"{_term(left)} {_COMPARISONS[operator]} {_term(right)}"
            case t.Not(inner):
                return f"it is not so that {self._part(inner)}"
            case t.And(parts):
                return f"both {self.all_of(parts)}" if len(parts) == 2 else self.all_of(parts)
            case t.Or(parts):
                return _join([self._part(part) for part in parts], "or")
            case t.Implies(premise, conclusion):
                return f"if {self._part(premise)} then {self._part(conclusion)}"
            case t.Iff(left_side, right_side):
                return f"{self._part(left_side)} exactly if {self._part(right_side)}"

    def _atom(self, predicate: str | t.PredicateVariable, args: list[str]) -> str:
        phrase = self._phrases.get(str(predicate))
        if phrase is not None:
            return re.sub(
                r"\{(\d+)\}", lambda match: args[int(match[1])] if int(match[1]) < len(args) else match[0], phrase
            )
        said = self._said(predicate)
        if not args:
            return said
        if len(args) == 1:
            return f"{args[0]} is {said}"
        if len(args) > 2 or isinstance(predicate, t.PredicateVariable):
            return f"{said} holds of {_join(args, 'and')}"
        return f"{args[0]} {_verb(said)} {args[1]}"


def _verb(said: str) -> str:
    """Make the words of a relation into what stands between its two arguments.

    >>> [_verb(name) for name in ("parent of", "lives in", "born in", "is boss of", "contains", "wearing", "country")]
    ['is a parent of', 'lives in', 'is born in', 'is boss of', 'contains', 'is wearing', 'has country']
    """
    first, *rest = said.split()
    if first in ("is", "has", "was", "can") or (first.endswith("s") and not first.endswith(("ss", "us"))):
        return said
    if first.endswith(("ed", "ing", "born", "made", "won", "known")):
        return f"is {said}"
    if rest and _PREPOSITION.fullmatch(rest[-1]):
        return f"is {said}" if _PREPOSITION.fullmatch(first) else f"is {'an' if first[0] in 'aeiou' else 'a'} {said}"
    return f"has {said}"


def _spoken(predicate: str) -> str:
    """Return the words of a predicate's name, or the name itself in quotes where it has none."""
    if not re.fullmatch(r"[a-z][a-z0-9]*(?:_[a-z0-9]+)*|[a-z]+(?:[A-Z][a-z0-9]*)+", predicate):
        return quote(predicate)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", predicate.replace("_", " ")).lower()


def _term(term: t.Term) -> str:
    match term:
        case t.Variable(name):
            return name
        case t.Symbol(name):
            return quote(name)
        case t.Number(value):
            return repr(value)
