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
    Number,
    Or,
    Symbol,
    Term,
    Unit,
    Variable,
)

Substitution: TypeAlias = Mapping[Variable, Term]
AnyFormula = TypeVar("AnyFormula", bound=Formula)


def substitute(formula: AnyFormula, mapping: Substitution) -> AnyFormula:
    """Replace variables by terms, all at once.

    >>> from rulewright.logic import parse_formula
    >>> x, y = Variable("X"), Variable("Y")
    >>> print(substitute(parse_formula("p(X, Y) => q(X)"), {x: y, y: Symbol("ann")}))
    p(Y, ann) => q(Y)
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


def canonical(rule: Rule) -> Rule:
    """Return the rule with variables X0, X1, … and its body in standard order, without confidence and annotations.

    Two rules have the same canonical form exactly when they differ in variable names and body order only;
    alternatives are multiplied out and put in order too. A rule and its mirror (every relation inverted) are
    one rule here, for an inverse is written with swapped arguments.

    >>> from rulewright.logic import parse_rule
    >>> one = parse_rule("0.8 :: p(A, C) :- q(A, B), r(C, B).")
    >>> other = parse_rule("p(V, W) :- r(W, U), q(V, U).")
    >>> print(one.canonical(), one.canonical() == other.canonical())
    p(X0, X1) :- q(X0, X2), r(X1, X2). True
    """
    names: dict[Variable, int] = {}
    for term in rule.head.args:
        if isinstance(term, Variable):
            names.setdefault(term, len(names))
    ordered = sorted({_smallest_order(alternative, names) for alternative in rule.alternatives()})
    head = substitute(rule.head, {variable: _standard(number) for variable, number in names.items()})
    bodies = [tuple(_literal_from(key).formula() for key in order) for order in ordered]
    if len(bodies) == 1:
        return Rule(head, bodies[0])
    return Rule(head, (Or(tuple(body[0] if len(body) == 1 else And(body) for body in bodies)),))


# A literal as a sortable key: (negated, kind, predicate or operator, classes, terms).
_Key: TypeAlias = tuple[bool, int, str, tuple[str, ...], tuple[tuple[int, int | float, str], ...]]


def _standard(number: int) -> Variable:
    return Variable(f"X{number}")


def _term_key(term: Term, names: Mapping[Variable, int], fresh: dict[Variable, int]) -> tuple[int, int | float, str]:
    match term:
        case Variable():
            if term in names:
                return (0, names[term], "")
            return (0, fresh.setdefault(term, len(names) + len(fresh)), "")
        case Number(value):
            return (1, value, "int" if isinstance(value, int) else "")
        case Symbol(name):
            return (2, 0, name)


def _literal_key(literal: Literal, names: Mapping[Variable, int], fresh: dict[Variable, int]) -> _Key:
    terms = tuple(_term_key(term, names, fresh) for term in literal.unit.args)
    match literal.unit:
        case Comparison(operator):
            return (not literal.positive, 2, operator, (), terms)
        case Membership(atom, classes):
            return (not literal.positive, 1, str(atom.predicate), tuple(sorted(classes)), terms)
        case Atom(predicate):
            return (not literal.positive, 0, str(predicate), (), terms)


def _literal_from(key: _Key) -> Literal:
    negated, kind, name, classes, terms = key
    args = tuple(_term_from(each) for each in terms)
    unit: Unit = Atom(name, args) if kind != 2 else Comparison(name, *args)  # type: ignore[arg-type]
    return Literal(Membership(unit, classes) if kind == 1 else unit, not negated)  # type: ignore[arg-type]


def _term_from(key: tuple[int, int | float, str]) -> Term:
    kind, number, name = key
    if kind == 0:
        return _standard(int(number))
    return Number(number) if kind == 1 else Symbol(name)


def _smallest_order(body: Sequence[Literal], names: Mapping[Variable, int]) -> tuple[_Key, ...]:
    """Find the smallest sequence of keys over all orders of a body.

    Always taking a smallest next key is enough; only ties need both tries, and ties between literals whose new
    variables occur nowhere else need one, for such literals can change places.
    """
    best: tuple[_Key, ...] | None = None
    stack: list[tuple[tuple[_Key, ...], tuple[int, ...], dict[Variable, int]]] = [
        ((), tuple(range(len(body))), dict(names))
    ]
    while stack:
        taken, left, known = stack.pop()
        if best is not None and taken > best[: len(taken)]:
            continue
        if not left:
            best = taken if best is None or taken < best else best
            continue
        keyed = [(index, fresh := dict[Variable, int](), _literal_key(body[index], known, fresh)) for index in left]
        smallest = min(key for _, _, key in keyed)
        tied = [(index, fresh) for index, fresh, key in keyed if key == smallest]
        private = [each for each in tied if not _shares(body, each[0], left, each[1])]
        for index, fresh in [*private[:1], *(each for each in tied if each not in private)]:
            rest = tuple(other for other in left if other != index)
            stack.append(((*taken, smallest), rest, {**known, **fresh}))
    assert best is not None
    return best


def _shares(body: Sequence[Literal], index: int, left: Sequence[int], fresh: Mapping[Variable, int]) -> bool:
    return any(term in fresh for other in left if other != index for term in body[other].unit.args)


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
    start = next(_matches(Literal(head), Literal(target_head), {}), None)
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
