"""Rules and hard formulas read as clauses over atoms by index: what the consistency loss and the decoder work with."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from math import isfinite
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.errors import DataError, UnknownNameError, unknown_name
from rulewright.inject.atom_space import AtomSpace, statement_formulas
from rulewright.logic import (
    Atom,
    Comparison,
    Literal,
    Membership,
    Number,
    PredicateDeclaration,
    Rule,
    Statement,
    Symbol,
    Template,
    Term,
    Unit,
    Variable,
    WeightedFormula,
    cnf,
    exclusive_clauses,
    unify,
    units,
)

ClauseSource: TypeAlias = Rule | WeightedFormula

TRUE = frozenset({1})
"""The classes of which an atom without classes is one when it holds."""

_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class ClauseAtom(NamedTuple):
    """A predicate of some terms that is of one of some classes, all by index.

    An argument is a variable of the clause, or ``~entity_index`` where it is a constant. Atoms without classes have the
    classes 0 (false) and 1 (true), so that ``classes`` is {1}.
    """

    predicate: str
    args: tuple[int, ...]
    classes: frozenset[int] = TRUE


@dataclass(frozen=True, slots=True)
class Order:
    """Two numbers compared: each side is a variable, or None for a number, and the numbers it may be, by entity index.

    A side without a variable has one number.
    """

    operator: str
    left: int | None
    left_numbers: tuple[float, ...]
    right: int | None
    right_numbers: tuple[float, ...]

    def holds(self, entities: Sequence[Any]) -> npt.NDArray[np.bool_]:
        """Return where it holds; ``entities`` has an array of entity indices for each variable."""
        left, right = (
            np.asarray(numbers[0] if variable is None else np.asarray(numbers)[entities[variable]])
            for variable, numbers in ((self.left, self.left_numbers), (self.right, self.right_numbers))
        )
        return np.asarray(_COMPARE[self.operator](left, right), dtype=bool)


@dataclass(frozen=True, slots=True)
class AtomClause:
    """Whenever every body atom holds, one of the head atoms holds; for all assignments that it is asked for.

    A chain or Horn rule has one head, a denial (``hard !(a(X, Y) & b(X, Y))``) none; negated body atoms of a rule
    stand among the heads. No atom is there twice.

    Attributes:
        body: the atoms that must all hold.
        heads: the atoms one of which holds then.
        variables: the names of the variables, by index.
        types: their types.
        apart: pairs of arguments, the first of them a variable, that must be different entities; where variables are
            distinct, all pairs of one type.
        orders: comparisons of numbers that must hold.
        confidence: that of a rule; 1 for a formula.
        source: the statement that says so.
        constants: entities that must exist besides those of its atoms, by type and index.
    """

    body: tuple[ClauseAtom, ...]
    heads: tuple[ClauseAtom, ...]
    variables: tuple[str, ...]
    types: tuple[str, ...]
    apart: tuple[tuple[int, int], ...]
    orders: tuple[Order, ...]
    confidence: float
    source: ClauseSource
    constants: tuple[tuple[str, int], ...] = ()

    @property
    def atoms(self) -> tuple[ClauseAtom, ...]:
        """All atoms, those of the body first."""
        return self.body + self.heads

    def is_asked(self, entities: Sequence[Any]) -> npt.NDArray[np.bool_] | bool:
        """Return for which assignments the clause is asked; ``entities`` has an array of indices for each variable.

        The arrays may be columns of assignments, or broadcast against each other.
        """
        asked: Any = True
        for one, other in self.apart:
            asked = asked & (np.asarray(entities[one]) != (~other if other < 0 else np.asarray(entities[other])))
        for order in self.orders:
            asked = asked & order.holds(entities)
        return asked if isinstance(asked, bool) else np.asarray(asked)

    def reorder_variables(self, order: Sequence[int]) -> AtomClause:
        """Return the clause with variable ``order[i]`` at index i."""
        new_index = {variable: index for index, variable in enumerate(order)}

        def rename(argument: int) -> int:
            return argument if argument < 0 else new_index[argument]

        body, heads = (
            tuple(atom._replace(args=tuple(map(rename, atom.args))) for atom in atoms)
            for atoms in (self.body, self.heads)
        )
        return replace(
            self,
            body=body,
            heads=heads,
            variables=tuple(self.variables[variable] for variable in order),
            types=tuple(self.types[variable] for variable in order),
            apart=tuple((rename(one), rename(other)) for one, other in self.apart),
            orders=tuple(
                replace(
                    comparison,
                    left=comparison.left if comparison.left is None else rename(comparison.left),
                    right=comparison.right if comparison.right is None else rename(comparison.right),
                )
                for comparison in self.orders
            ),
        )


def read_clauses(
    space: AtomSpace, *, reader: str, keep_confidences: bool = False, keep_weights: bool = False
) -> tuple[AtomClause, ...]:
    """Read the rules and hard formulas of a space as clauses; refuse by name what has no meaning for a labelling.

    Clauses that are equal up to the names of variables are kept once, or with ``keep_confidences`` once for each
    confidence and with ``keep_weights`` once for each ``@{weight: …}``; clauses that always hold are left out.
    ``reader`` is the name that a refusal gives.

    >>> space = AtomSpace("0.9 :: c(X, Z) :- a(X, Y), b(Z, Y). hard !(a(X, Y) & p(X)).")
    >>> for clause in read_clauses(space, reader="RuleDecoder"):
    ...     print(*(atom[:2] for atom in clause.body), "->", *(atom[:2] for atom in clause.heads))
    ('a', (0, 1)) ('b', (2, 1)) -> ('c', (0, 2))
    ('a', (0, 1)) ('p', (0,)) ->
    """
    clauses: dict[object, AtomClause] = {}
    for statement in space.rules:
        source = _check_statement(statement, reader)
        for literals in _disjunctions(source):
            clause = read_disjunction(space, literals, source, reader=reader)
            if clause is not None:
                weight = source.annotations.number("weight") if isinstance(source, Rule) and keep_weights else None
                key = (_canonical_form(clause), clause.confidence if keep_confidences else None, weight)
                clauses.setdefault(key, clause)
    return tuple(clauses.values())


class CostedClauses(NamedTuple):
    """Clauses, what one broken grounding of each costs, and the positions of the statements that they are of."""

    clauses: tuple[AtomClause, ...]
    costs: tuple[float, ...]
    statements: tuple[int, ...]


def read_costed_clauses(space: AtomSpace, costs: Sequence[float], *, reader: str) -> CostedClauses:
    """Read the statements of a space as clauses, with what it costs to break them.

    ``costs`` has a number of at least 0 for each statement, infinite where it must hold; those of 0 are left out. The
    clauses of a statement with a finite cost together count its false groundings: one for every assignment to all its
    variables that makes it false. The alternatives of a rule are rules of their own; a formula that is no single clause
    becomes clauses of which an assignment that falsifies it falsifies one.

    >>> space = AtomSpace("c(X) :- a(X) ; b(X). 2.0 a(X) & b(Y).")
    >>> read = read_costed_clauses(space, [0.5, 2.0], reader="RuleDecoder")
    >>> for clause, cost in zip(read.clauses, read.costs):
    ...     print(*(atom.predicate for atom in clause.body), "->", *(atom.predicate for atom in clause.heads), cost)
    a -> c 0.5
    b -> c 0.5
    -> a 2.0
    a -> b 2.0
    >>> [clause.variables for clause in read.clauses[2:]]
    [('X', 'Y'), ('X', 'Y')]
    """
    found: list[tuple[AtomClause, float, int]] = []
    known: set[object] = set()
    for index, (statement, cost) in enumerate(zip(space.rules, costs, strict=True)):
        if cost == 0:
            continue
        source = _check_statement(statement, reader, has_cost=True)
        if isfinite(cost):
            found += [(clause, cost, index) for clause in _read_counted(space, source, reader)]
            continue
        for literals in _disjunctions(source):
            clause = read_disjunction(space, literals, source, reader=reader)
            if clause is not None and (key := _canonical_form(clause)) not in known:
                known.add(key)
                found.append((clause, cost, index))
    return CostedClauses(tuple(c for c, _, _ in found), tuple(c for _, c, _ in found), tuple(i for _, _, i in found))


def _read_counted(space: AtomSpace, source: ClauseSource, reader: str) -> Iterator[AtomClause]:
    """Yield clauses of which every assignment that makes a statement, or an alternative of it, false breaks one."""
    if isinstance(source, Rule):
        disjunctions = [(literals, [literal.unit for literal in literals]) for literals in _disjunctions(source)]
    else:
        every = [*units(source.formula)]
        disjunctions = [(clause.literals, every) for clause in exclusive_clauses(source.formula)]
    for literals, counted in disjunctions:
        clause = read_disjunction(space, literals, source, reader=reader, counted=counted)
        if clause is not None:
            yield clause


def _check_statement(statement: Statement, reader: str, *, has_cost: bool = False) -> ClauseSource:
    if isinstance(statement, Template):
        raise DataError(f"{reader} takes rules, and a template is none until a learner has filled it: {statement}")
    if not isinstance(statement, Rule | WeightedFormula):
        raise DataError(f"{reader} takes rules and hard formulas, got {statement!r}")
    if isinstance(statement, WeightedFormula) and statement.kind != "hard" and not has_cost:
        why = "the weight is not known" if statement.kind == "learn" else "a weight is no confidence"
        raise DataError(f"{reader} takes rules and hard formulas, and {why}; use a LogicLayer for: {statement}")
    return statement


def _disjunctions(source: ClauseSource) -> Iterator[tuple[Literal, ...]]:
    """Yield the literals of which one must be true: a rule gives one set for each alternative of its body."""
    if isinstance(source, Rule):
        for alternative in source.alternatives():
            yield (*(literal.negated() for literal in alternative), Literal(source.head))
    else:
        for clause in cnf(source.formula):
            yield clause.literals


def read_disjunction(
    space: AtomSpace,
    literals: Sequence[Literal],
    source: ClauseSource,
    *,
    reader: str,
    counted: Iterable[Unit] | None = None,
) -> AtomClause | None:
    """Read literals of which one must be true as a clause; None where that always holds.

    ``counted`` are the units of a statement whose groundings are counted: the variables are all of theirs, in their
    order, and the clause may be one that no labelling fulfils.
    """
    atoms, equal, unequal, orders = _sort_literals(literals)
    if not atoms and counted is None:
        raise DataError(f"no{' two different' if space.distinct else ''} entities can satisfy {source}")
    types = _read_types(space, source)
    binding = unify(equal)
    if binding is None:
        return None
    if space.distinct and any(isinstance(term, Variable) for term in binding.values()):
        return None  # different variables, which are never one entity
    indexer = _TermIndexer(space, types, binding, source, reader)
    every = [indexer.read_atom(unit) for unit in counted or () if not isinstance(unit, Comparison)]
    sides = merge_atoms(space, [(indexer.read_atom(unit), positive) for unit, positive in atoms])
    if sides is None:
        return None
    if sides == ((), ()) and counted is None:
        raise DataError(f"no entities can satisfy {source}")
    decided = [indexer.read_order(comparison) for comparison in orders]
    apart = indexer.read_apart(unequal, every or [*sides[0], *sides[1]])
    if apart is None or False in decided:
        return None
    return AtomClause(
        *sides,
        tuple(map(str, indexer.variables)),
        tuple(types[variable] for variable in indexer.variables),
        apart,
        tuple(order for order in decided if isinstance(order, Order)),
        source.confidence if isinstance(source, Rule) else 1.0,
        source,
        tuple(dict.fromkeys(_name_constants(space, every))),
    )


def _name_constants(space: AtomSpace, atoms: Iterable[ClauseAtom]) -> Iterator[tuple[str, int]]:
    """Yield the types and indices of the constants of atoms."""
    for atom in atoms:
        for argument, type_name in zip(atom.args, space.predicates[atom.predicate].types, strict=True):
            if argument < 0:
                yield type_name, ~argument


class IndexedLiterals(NamedTuple):
    """Atoms with their signs, by index of given variables, and the comparisons under which they are asked.

    ``equal`` and ``apart`` are pairs of arguments that must be the same entity, and different ones.
    """

    atoms: tuple[tuple[ClauseAtom, bool], ...]
    equal: tuple[tuple[int, int], ...]
    apart: tuple[tuple[int, int], ...]
    orders: tuple[Order, ...]


def index_literals(
    space: AtomSpace,
    literals: Sequence[Literal],
    types: Mapping[Variable, str],
    source: ClauseSource,
    *,
    reader: str,
) -> IndexedLiterals | None:
    """Read literals of which one must be true over the variables of ``types``; None where that always holds.

    Unlike in `read_disjunction`, all variables stay, whichever of them are equal.
    """
    atoms, equal, unequal, orders = _sort_literals(literals)
    _read_types(space, source)
    indexer = _TermIndexer(space, types, {}, source, reader)
    indexer.variables.update((variable, index) for index, variable in enumerate(types))
    read = tuple((indexer.read_atom(unit), positive) for unit, positive in atoms)
    apart = indexer.read_apart(unequal, [atom for atom, _ in read])
    decided = [indexer.read_order(comparison) for comparison in orders]
    if apart is None or False in decided:
        return None
    pairs = []
    for left, right in equal:
        type_name = next((types[term] for term in (left, right) if isinstance(term, Variable)), None)
        if type_name is not None:
            pairs.append((indexer.read_term(left, type_name), indexer.read_term(right, type_name)))
        elif left != right:
            return None
    return IndexedLiterals(read, tuple(pairs), apart, tuple(order for order in decided if isinstance(order, Order)))


def _sort_literals(
    literals: Iterable[Literal],
) -> tuple[list[tuple[Atom | Membership, bool]], list[tuple[Term, Term]], list[tuple[Term, Term]], list[Comparison]]:
    """Return atoms with their signs, and what must hold for the other literals to be of no help: terms that are equal,
    terms that differ, and orders."""
    atoms: list[tuple[Atom | Membership, bool]] = []
    equal: list[tuple[Term, Term]] = []
    unequal: list[tuple[Term, Term]] = []
    orders: list[Comparison] = []
    for literal in literals:
        if not isinstance(literal.unit, Comparison):
            atoms.append((literal.unit, literal.positive))
            continue
        asked = literal.unit.opposite() if literal.positive else literal.unit
        if asked.operator == "=":
            equal.append((asked.left, asked.right))
        elif asked.operator == "!=":
            unequal.append((asked.left, asked.right))
        else:
            orders.append(asked)
    return atoms, equal, unequal, orders


class _TermIndexer:
    """The terms of one clause by index: variables in the order in which atoms have them."""

    def __init__(
        self,
        space: AtomSpace,
        types: Mapping[Variable, str],
        binding: Mapping[Variable, Term],
        source: ClauseSource,
        reader: str,
    ) -> None:
        self.space, self.types, self.binding, self.source, self.reader = space, types, binding, source, reader
        self.variables: dict[Variable, int] = {}

    def read_term(self, term: Term, type_name: str) -> int:
        if isinstance(term, Variable):
            term = self.binding.get(term, term)
        if isinstance(term, Variable):
            return self.variables.setdefault(term, len(self.variables))
        return ~self.space.constant_index(term, type_name, statement_formulas(self.source)[0])

    def read_atom(self, unit: Atom | Membership) -> ClauseAtom:
        declaration = self.space.predicates[str(unit.predicate)]
        args = tuple(
            self.read_term(term, type_name) for term, type_name in zip(unit.args, declaration.types, strict=True)
        )
        if self.space.distinct:
            for (one, first), (other, second) in combinations(zip(args, declaration.types, strict=True), 2):
                if one == other and first == second:
                    raise DataError(
                        f"{self.reader} has no label for an entity with itself, as {unit} asks in: {self.source}"
                    )
        classes = TRUE
        if isinstance(unit, Membership):
            classes = frozenset((declaration.classes or ()).index(class_name) for class_name in unit.classes)
        return ClauseAtom(declaration.name, args, classes)

    def read_apart(
        self, unequal: Sequence[tuple[Term, Term]], atoms: Iterable[ClauseAtom]
    ) -> tuple[tuple[int, int], ...] | None:
        """Return which arguments must differ; None where two of them cannot."""
        pairs: dict[tuple[int, int], None] = {}
        for term in (term for sides in unequal for term in sides):
            if isinstance(term, Variable):  # it may be in no atom of this clause
                self.read_term(term, self.types[term])
        names = list(self.variables)
        types = [self.types[name] for name in names]
        if self.space.distinct:
            pairs.update(dict.fromkeys((a, b) for a, b in combinations(range(len(names)), 2) if types[a] == types[b]))
            for atom in atoms:  # no atom of an entity with itself
                sides = zip(atom.args, self.space.predicates[atom.predicate].types, strict=True)
                for (one, first), (other, second) in combinations(sides, 2):
                    if first == second and (one < 0) != (other < 0):
                        pairs[max(one, other), min(one, other)] = None
        for left, right in unequal:
            type_name = next((self.types[term] for term in (left, right) if isinstance(term, Variable)), None)
            if type_name is None:  # two constants
                if left == right:
                    return None
                continue
            one, other = (self.read_term(term, type_name) for term in (left, right))
            if one == other:
                return None
            if one < 0 and other < 0:
                continue
            if one < 0 or 0 <= other < one:
                one, other = other, one
            if other < 0 or types[one] == types[other]:
                pairs[one, other] = None
        return tuple(pairs)

    def read_order(self, comparison: Comparison) -> Order | bool:
        """Read a comparison of numbers, decided where it has no variable."""
        sides: list[tuple[int | None, tuple[float, ...]]] = []
        for term in comparison.args:
            bound = self.binding.get(term, term) if isinstance(term, Variable) else term
            try:
                if isinstance(bound, Variable):
                    names = self.space.entity_indices.get(self.types[bound])
                    if names is None:
                        raise DataError(
                            f"{self.reader} needs the names of type {self.types[bound]} as numbers to decide "
                            f"{comparison}: domains={{{self.types[bound]!r}: […]}}, in: {self.source}"
                        )
                    sides.append((self.read_term(bound, self.types[bound]), tuple(map(float, names))))
                else:
                    sides.append((None, (float(bound.value if isinstance(bound, Number) else bound.name),)))
            except DataError:
                raise
            except ValueError:
                raise DataError(
                    f"{self.reader} compares numbers, and not all of {bound} are, in: {self.source}"
                ) from None
        order = Order(comparison.operator, *sides[0], *sides[1])
        return order if order.left is not None or order.right is not None else bool(order.holds([]))


def _read_types(space: AtomSpace, source: ClauseSource) -> dict[Variable, str]:
    """Return the types of a statement's variables; with relations, other predicates must have been declared."""
    types: dict[Variable, str] = {}
    compared: list[Term] = []
    known = {declaration.name for declaration in space.rules.predicates} | space.closed
    for unit in (unit for formula in statement_formulas(source) for unit in units(formula)):
        if isinstance(unit, Comparison):
            compared += unit.args
            continue
        name = str(unit.predicate)
        if space.relations is not None and name not in space.relations and name not in known:
            raise UnknownNameError(f"{unknown_name('relation', name, space.relations)} — in: {source}")
        types.update(
            (term, type_name)
            for term, type_name in zip(unit.args, space.predicates[name].types, strict=True)
            if isinstance(term, Variable)
        )
    for term in compared:
        if isinstance(term, Variable) and term not in types:
            raise DataError(f"variable {term} occurs only in a comparison, so it has no type, in: {source}")
    return types


def merge_atoms(
    space: AtomSpace, literals: Iterable[tuple[ClauseAtom, bool]]
) -> tuple[tuple[ClauseAtom, ...], tuple[ClauseAtom, ...]] | None:
    """Return body and heads, each atom once; None where the clause always holds."""
    inside: dict[tuple[str, tuple[int, ...]], frozenset[int]] = {}  # the classes with which the clause may be false
    is_head: dict[tuple[str, tuple[int, ...]], bool] = {}
    for atom, positive in literals:
        key = (atom.predicate, atom.args)
        every = all_classes(space.predicates[atom.predicate])
        inside[key] = inside.get(key, every) & (every - atom.classes if positive else atom.classes)
        is_head[key] = positive and is_head.get(key, True)
    body, heads = [], []
    for (name, args), classes in inside.items():
        every = all_classes(space.predicates[name])
        if not classes:
            return None
        if classes == every:
            continue
        if is_head[name, args]:
            heads.append(ClauseAtom(name, args, every - classes))
        else:
            body.append(ClauseAtom(name, args, classes))
    return tuple(body), tuple(heads)


def all_classes(declaration: PredicateDeclaration) -> frozenset[int]:
    """Return the indices of a predicate's classes; 0 and 1, false and true, where it has none."""
    return frozenset(range(2 if declaration.classes is None else len(declaration.classes)))


def _canonical_form(clause: AtomClause) -> Rule:
    """Return a value that is equal for clauses that differ in names of variables and order only.

    A rule's canonical form does this for a body; so all parts of a clause stand in one body, marked by their names.
    """

    def term(argument: int) -> Term:
        return Variable(f"V{argument}") if argument >= 0 else Symbol(str(~argument))

    parts = [
        Atom(f"{sign}{sorted(atom.classes)}{atom.predicate}", (Symbol("any"), *map(term, atom.args)))
        for sign, side in (("+", clause.heads), ("-", clause.body))
        for atom in side
    ]
    for one, other in clause.apart:
        parts += [Atom("!=", (term(one), term(other))), Atom("!=", (term(other), term(one)))]
    for order in clause.orders:
        sides = [
            Symbol(str(numbers[0])) if variable is None else term(variable)
            for variable, numbers in ((order.left, order.left_numbers), (order.right, order.right_numbers))
        ]
        parts.append(Atom(order.operator, tuple(sides)))
    return Rule(Atom("clause", (Symbol("any"),)), tuple(parts)).canonical()


def is_pair_rule(clause: AtomClause, relations: Iterable[str]) -> bool:
    """Return whether a clause is a Horn rule over relations of distinct entities whose head's entities the body has."""
    pairs = len(clause.variables) * (len(clause.variables) - 1) // 2
    bound = {argument for atom in clause.body for argument in atom.args}
    return (
        len(clause.heads) == 1
        and bound.issuperset(clause.heads[0].args)
        and all(atom.predicate in relations and len({*atom.args}) == 2 and min(atom.args) >= 0 for atom in clause.atoms)
        and len({pair for pair in clause.apart if min(pair) >= 0}) == pairs
        and not clause.orders
    )
