"""Comparing rules: substitution, unification, standard form, subsumption."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias, TypeVar

from rulewright.logic.rules import Head, Rule
from rulewright.logic.terms import (
    And,
    Atom,
    Comparison,
    Formula,
    Iff,
    Implies,
    Literal,
    Membership,
    Not,
    Or,
    Term,
    Variable,
)

Substitution: TypeAlias = Mapping[Variable, Term]
AnyFormula = TypeVar("AnyFormula", bound=Formula)


def substitute(formula: AnyFormula, mapping: Substitution) -> AnyFormula:
    """Replace variables by terms, all at once.

    >>> from rulewright.logic import parse_formula
    >>> x, y, z = Variable("X"), Variable("Y"), Variable("Z")
    >>> print(substitute(parse_formula("p(X, Y) => q(X)"), {x: y, y: z}))
    p(Y, Z) => q(Y)
    """
    return _substitute(formula, mapping)  # type: ignore[return-value]


def _substitute(formula: Formula, mapping: Substitution) -> Formula:
    match formula:
        case Atom(predicate, args):
            return Atom(predicate, tuple(_replaced(term, mapping) for term in args))
        case Membership(atom, classes):
            return Membership(substitute(atom, mapping), classes)
        case Comparison(operator, left, right):
            return Comparison(operator, _replaced(left, mapping), _replaced(right, mapping))
        case Not(inner):
            return Not(_substitute(inner, mapping))
        case And(parts):
            return And(tuple(_substitute(part, mapping) for part in parts))
        case Or(parts):
            return Or(tuple(_substitute(part, mapping) for part in parts))
        case Implies(premise, conclusion):
            return Implies(_substitute(premise, mapping), _substitute(conclusion, mapping))
        case Iff(left_side, right_side):
            return Iff(_substitute(left_side, mapping), _substitute(right_side, mapping))


def _replaced(term: Term, mapping: Substitution) -> Term:
    return mapping.get(term, term) if isinstance(term, Variable) else term


def unify(left: Atom, right: Atom) -> dict[Variable, Term] | None:
    """Return the most general substitution that makes two atoms equal, or None.

    >>> from rulewright.logic import parse_atom
    >>> found = unify(parse_atom("p(X, X, b)"), parse_atom("p(Y, a, Z)"))
    >>> {str(variable): str(term) for variable, term in found.items()}
    {'X': 'a', 'Y': 'a', 'Z': 'b'}
    >>> unify(parse_atom("p(X, X)"), parse_atom("p(a, b)")) is None
    True
    """
    if left.predicate != right.predicate or left.arity != right.arity:
        return None
    bound: dict[Variable, Term] = {}

    def resolved(term: Term) -> Term:
        while isinstance(term, Variable) and term in bound:
            term = bound[term]
        return term

    for one, other in zip(left.args, right.args, strict=True):
        one, other = resolved(one), resolved(other)
        if one == other:
            continue
        if isinstance(one, Variable):
            bound[one] = other
        elif isinstance(other, Variable):
            bound[other] = one
        else:
            return None
    return {variable: resolved(variable) for variable in bound}


def subsumes(general: Rule, specific: Rule) -> bool:
    """Tell whether every fact that ``specific`` gives, ``general`` gives too, by θ-subsumption.

    True when some substitution maps the general head onto the specific one and every literal of a general
    alternative into each specific alternative.

    >>> from rulewright.logic import parse_rule
    >>> subsumes(parse_rule("p(X, Y) :- q(X, Y)."), parse_rule("p(A, B) :- q(A, B), r(B, c)."))
    True
    >>> subsumes(parse_rule("p(X, Y) :- q(X, Y)."), parse_rule("p(A, B) :- q(B, A)."))
    False
    """
    return all(
        any(_maps_into(general.head, one, specific.head, other) for one in general.alternatives())
        for other in specific.alternatives()
    )


def _maps_into(head: Head, body: Sequence[Literal], target_head: Head, target: Sequence[Literal]) -> bool:
    # A head stands on the other side of the implication: to give a narrower choice of classes is to give more.
    start = next(_matches(Literal(head, False), Literal(target_head, False), {}), None)
    if start is None:
        return False

    def search(position: int, mapping: Mapping[Variable, Term]) -> bool:
        if position == len(body):
            return True
        return any(
            search(position + 1, extended)
            for candidate in target
            for extended in _matches(body[position], candidate, mapping)
        )

    return search(0, start)


def _matches(literal: Literal, target: Literal, mapping: Mapping[Variable, Term]) -> Iterator[Mapping[Variable, Term]]:
    one, other = literal.unit, target.unit
    if literal.positive != target.positive or type(one) is not type(other) or len(one.args) != len(other.args):
        return
    match one, other:
        case Comparison(), Comparison():
            same = one.operator == other.operator
        case Membership(), Membership():
            same = one.predicate == other.predicate and _fits(one, other, literal.positive)
        case _:
            same = one.predicate == other.predicate  # type: ignore[union-attr]
    extended = dict(mapping)
    for term, image in zip(one.args, other.args, strict=True):
        if isinstance(term, Variable):
            same = same and extended.setdefault(term, image) == image
        else:
            same = same and term == image
    if same:
        yield extended


def _fits(general: Membership, specific: Membership, positive: bool) -> bool:
    wide, narrow = (general, specific) if positive else (specific, general)
    return set(narrow.classes) <= set(wide.classes)
