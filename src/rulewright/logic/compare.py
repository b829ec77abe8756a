"""Comparing rules: substitution, standard form, subsumption."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias, TypeVar

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
    >>> x, y, z = Variable("X"), Variable("Y"), Variable("Z")
    >>> print(substitute(parse_formula("p(X, Y) => q(X)"), {x: y, y: z}))
    p(Y, Z) => q(Y)
    """
    return _substitute(formula, mapping)  # type: ignore[return-value]


def _substitute(formula: Formula, mapping: Substitution) -> Formula:
    match formula:
        case Atom(predicate, args):
            return Atom(predicate, tuple(_replace(term, mapping) for term in args))
        case Membership(atom, classes):
            return Membership(substitute(atom, mapping), classes)
        case Comparison(operator, left, right):
            return Comparison(operator, _replace(left, mapping), _replace(right, mapping))
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


def _replace(term: Term, mapping: Substitution) -> Term:
    return mapping.get(term, term) if isinstance(term, Variable) else term


def subsumes(general: Rule, specific: Rule) -> bool:
    """Return whether every fact that ``specific`` gives, ``general`` gives too, by θ-subsumption.

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
            wide, narrow = (one, other) if literal.positive else (other, one)
            same = one.predicate == other.predicate and set(narrow.classes) <= set(wide.classes)
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


def canonical(rule: Rule) -> Rule:
    """Return the rule with variables X0, X1, … and its body in standard order, without confidence and annotations.

    Two rules have the same canonical form exactly when they differ in variable names, body order and the order of
    classes only; alternatives are multiplied out, put in order and kept once. A rule and its mirror (every relation
    inverted) are one rule here, for an inverse is written with swapped arguments.

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
    ordered = sorted({_order_literals(alternative, names) for alternative in rule.alternatives()})
    bodies = [tuple(_literal(key).formula() for key in order) for order in ordered]
    head = substitute(rule.head, {variable: Variable(f"X{index}") for variable, index in names.items()})
    if isinstance(head, Membership):
        head = Membership(head.atom, tuple(sorted(head.classes)))
    if len(bodies) == 1:
        return Rule(head, bodies[0])
    return Rule(head, (Or(tuple(body[0] if len(body) == 1 else And(body) for body in bodies)),))


# A term as a sortable key, (rank, index or value, name), and a literal: (negated, rank, predicate or operator, classes,
# terms); the rank tells the sorts of terms and units apart.
_TermKey: TypeAlias = tuple[int, int | float, str]
_Key: TypeAlias = tuple[bool, int, str, tuple[str, ...], tuple[_TermKey, ...]]


def _term_key(term: Term, names: Mapping[Variable, int], fresh: dict[Variable, int]) -> _TermKey:
    match term:
        case Variable():
            if term in names:
                return (0, names[term], "")
            return (0, fresh.setdefault(term, len(names) + len(fresh)), "")
        case Number(value):
            return (1, value, "")
        case Symbol(name):
            return (2, 0, name)


def _key(literal: Literal, names: Mapping[Variable, int], fresh: dict[Variable, int]) -> _Key:
    terms = tuple(_term_key(term, names, fresh) for term in literal.unit.args)
    match literal.unit:
        case Atom(predicate):
            return (not literal.positive, 0, str(predicate), (), terms)
        case Membership(atom, classes):
            return (not literal.positive, 1, str(atom.predicate), tuple(sorted(classes)), terms)
        case Comparison(operator):
            return (not literal.positive, 2, operator, (), terms)


def _literal(key: _Key) -> Literal:
    negated, rank, name, classes, terms = key
    args = tuple(map(_term, terms))
    unit: Unit = Atom(name, args) if rank != 2 else Comparison(name, *args)  # type: ignore[arg-type]
    return Literal(Membership(unit, classes) if rank == 1 else unit, not negated)  # type: ignore[arg-type]


def _term(key: _TermKey) -> Term:
    rank, value, name = key
    if rank == 0:
        return Variable(f"X{value}")
    return Number(value) if rank == 1 else Symbol(name)


def _order_literals(body: Sequence[Literal], names: Mapping[Variable, int]) -> tuple[_Key, ...]:
    """Take the literal with the smallest key next, and number its new variables, until all are taken.

    Where keys are equal, literals whose new variables occur nowhere else can change places, so that any of them
    will do; otherwise the variables' ranks decide.
    """
    known, left = dict(names), list(body)
    ranks: Mapping[Variable, int] = {}
    taken: list[_Key] = []
    while left:
        keyed = [(_key(literal, known, fresh := dict[Variable, int]()), literal, fresh) for literal in left]
        smallest = min(key for key, _, _ in keyed)
        tied = [(literal, fresh) for key, literal, fresh in keyed if key == smallest]
        if len(tied) > 1:
            uses = Counter(term for literal in left for term in set(literal.unit.args))
            private = [(literal, fresh) for literal, fresh in tied if all(uses[variable] == 1 for variable in fresh)]
            if not private:
                ranks = ranks or _ranks(body, names)
            tied = private or sorted(tied, key=lambda tie: [ranks[variable] for variable in tie[1]])
        literal, fresh = tied[0]
        left.remove(literal)
        taken.append(smallest)
        known.update(fresh)
    return tuple(taken)


class _Edge(NamedTuple):
    """A literal as an edge of a graph over variables: all but the variables as one label."""

    label: int
    variables: tuple[Variable, ...]


_Colours: TypeAlias = Mapping[Variable, int]


def _ranks(body: Sequence[Literal], names: Mapping[Variable, int]) -> _Colours:
    """Number all variables of a body in a way that depends on its structure alone, not on names or order."""
    labels = [_key(literal, {}, {}) for literal in body]
    indices = {label: index for index, label in enumerate(sorted(set(labels)))}
    edges = [
        _Edge(indices[label], tuple(term for term in literal.unit.args if isinstance(term, Variable)))
        for label, literal in zip(labels, body, strict=True)
    ]
    variables = (variable for edge in edges for variable in edge.variables)
    return _separate(edges, {variable: names.get(variable, len(names)) for variable in variables})


def _separate(edges: Sequence[_Edge], colours: _Colours) -> _Colours:
    """Refine colours until every variable has its own.

    Where structure does not tell variables apart, parts that hang together only through variables already told
    apart are solved one by one. Within one part each variable of a cell is set apart in turn, and the smallest
    outcome is taken; one of several variables that can change places stands for all of them.
    """
    colours = _refine(edges, colours)
    cells: dict[int, list[Variable]] = defaultdict(list)
    for variable, colour in colours.items():
        cells[colour].append(variable)
    undecided = [cell for cell in cells.values() if len(cell) > 1]
    if not undecided:
        return colours
    parts = _connected([variable for cell in undecided for variable in cell], edges)
    if len(parts) > 1:
        return _separate_parts(parts, edges, colours)
    outcomes: list[_Colours] = []
    tried: list[Variable] = []
    for variable in min(undecided, key=lambda cell: (len(cell), colours[cell[0]])):
        if not any(_interchangeable(variable, other, edges) for other in tried):
            tried.append(variable)
            outcomes.append(
                _separate(edges, {name: 2 * colour - (name == variable) for name, colour in colours.items()})
            )
    return min(outcomes, key=lambda outcome: _form(edges, outcome))


def _separate_parts(parts: Iterable[set[Variable]], edges: Sequence[_Edge], colours: _Colours) -> _Colours:
    solved = []
    for part in parts:
        touching = [edge for edge in edges if not part.isdisjoint(edge.variables)]
        outcome = _separate(touching, {name: colours[name] for edge in touching for name in edge.variables})
        solved.append((sorted(colours[variable] for variable in part), _form(touching, outcome), part, outcome))
    solved.sort(key=lambda item: item[:2])
    keys = {variable: (colour, 0, 0) for variable, colour in colours.items()}
    for position, (_, _, part, outcome) in enumerate(solved):
        keys.update({variable: (colours[variable], position, outcome[variable]) for variable in part})
    return _rank_keys(keys)


def _refine(edges: Sequence[_Edge], colours: _Colours) -> _Colours:
    """Tell variables apart by the edges they are in and the colours there, as long as that tells more apart."""
    while True:
        seen: dict[Variable, list[tuple[int, int, tuple[int, ...]]]] = {variable: [] for variable in colours}
        for label, variables in edges:
            around = tuple(colours[variable] for variable in variables)
            for position, variable in enumerate(variables):
                seen[variable].append((label, position, around))
        finer = _rank_keys({variable: (colours[variable], sorted(seen[variable])) for variable in colours})
        if len(set(finer.values())) == len(set(colours.values())):
            return finer
        colours = finer


def _rank_keys(keys: Mapping[Variable, Any]) -> _Colours:
    ordered: list[Any] = []
    for key in sorted(keys.values()):
        if not ordered or ordered[-1] != key:
            ordered.append(key)
    return {variable: bisect_left(ordered, key) for variable, key in keys.items()}


def _form(edges: Iterable[_Edge], colours: _Colours) -> list[tuple[int, tuple[int, ...]]]:
    return sorted((edge.label, tuple(colours[variable] for variable in edge.variables)) for edge in edges)


def _connected(variables: Sequence[Variable], edges: Iterable[_Edge]) -> list[set[Variable]]:
    parts = [{variable} for variable in variables]
    for edge in edges:
        touched = [part for part in parts if not part.isdisjoint(edge.variables)]
        if len(touched) > 1:
            parts = [part for part in parts if part not in touched]
            parts.append(set().union(*touched))
    return parts


def _interchangeable(one: Variable, other: Variable, edges: Sequence[_Edge]) -> bool:
    swap = {one: other, other: one}
    swapped = Counter(
        _Edge(edge.label, tuple(swap.get(variable, variable) for variable in edge.variables)) for edge in edges
    )
    return swapped == Counter(edges)
