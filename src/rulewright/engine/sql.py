"""Rule bodies as plain, portable SQL.

The facts of a signature stand in one table ``fact_<signature>(p, a0, a1, …)``: ``p`` is the predicate's number, the
other columns are ids, numbers or a class. A conjunctive body becomes one SELECT: a table for each positive atom,
equalities for shared variables, NOT EXISTS for negated atoms. Nothing here is special to one database.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, signature
from rulewright.errors import DataError
from rulewright.logic import (
    NUMBER_TYPE,
    Atom,
    Comparison,
    Formula,
    Head,
    Literal,
    Membership,
    Not,
    Number,
    PredicateVariable,
    Symbol,
    Term,
    Unit,
    Variable,
    variables,
)

Body = Sequence[Literal | Formula]
TableNames = Callable[[str], str]

_COMPARATORS = {"<": "<", "<=": "<=", ">": ">", ">=": ">=", "=": "=", "!=": "<>"}


def table_name(kind: str, *, truth: bool = True) -> str:
    """Return the name of the table that holds the facts of a signature."""
    return f"{'fact' if truth else 'false'}_{kind}"


def literals(body: Body) -> tuple[Literal, ...]:
    """Read the parts of a conjunctive body as literals; anything deeper is refused."""
    return tuple(_literal(part) for part in body)


def _literal(part: Literal | Formula) -> Literal:
    match part:
        case Literal(Comparison() as comparison, False) | Not(Comparison() as comparison):
            return Literal(comparison.opposite())
        case Literal():
            return part
        case Not(Atom() | Membership() as unit):
            return Literal(unit, False)
        case Atom() | Membership() | Comparison():
            return Literal(part)
    raise DataError(f"a conjunctive body has atoms, negated atoms and comparisons, got {part}")


@dataclass
class Join:
    """A conjunctive body on its way to SQL: where each variable stands, and what must hold.

    >>> from rulewright.logic import parse_rule
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob")])
    >>> rule = parse_rule("grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).")
    >>> print(Join.of(rule.body, kb).select("COUNT(*)"))
    SELECT COUNT(*) FROM fact_ee AS t0, fact_ee AS t1 WHERE t0.p = 0 AND t1.p = 0 AND t1.a0 = t0.a1
    """

    kb: KnowledgeBase
    places: dict[Variable, str] = field(default_factory=dict)
    types: dict[Variable, str] = field(default_factory=dict)
    predicates: dict[PredicateVariable, str] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, body: Body, kb: KnowledgeBase, *, distinct: bool = False) -> Join:
        """Translate a body; with ``distinct`` no two of its variables stand for the same entity."""
        join = cls(kb)
        parts = literals(body)
        for literal in parts:
            if literal.positive and not isinstance(literal.unit, Comparison):
                join.add(literal.unit)
        for literal in parts:
            if isinstance(literal.unit, Comparison):
                join.conditions.append(join.comparison(literal.unit))
            elif not literal.positive:
                join.conditions.append(join.absent(literal.unit))
        if distinct:
            join._keep_apart()
        return join

    def select(self, columns: str, suffix: str = "") -> str:
        """Return the statement that selects ``columns`` of every grounding."""
        sources = ", ".join(self.sources) or "(SELECT 1 AS one) AS unit"
        where = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        return f"SELECT {columns} FROM {sources}{where}{suffix}"

    def add(self, unit: Atom | Membership, table: TableNames | None = None) -> str:
        """Join the facts of a positive atom, or what another table of its signature holds; returns the alias."""
        alias = f"t{len(self.sources)}"
        kind, matches = self._matches(unit, alias, binding=True)
        self.sources.append(f"{(table or table_name)(kind)} AS {alias}")
        self.conditions += matches
        return alias

    def absent(self, unit: Atom | Membership, *, truth: bool = True, table: TableNames | None = None) -> str:
        """Return the condition that no fact matches an atom whose variables are all bound."""
        alias = f"n{len(self.conditions)}"
        kind, matches = self._matches(unit, alias, binding=False)
        where = " AND ".join(matches)
        name = table_name(kind, truth=truth) if table is None else table(kind)
        return f"NOT EXISTS (SELECT 1 FROM {name} AS {alias} WHERE {where})"

    def _matches(self, unit: Atom | Membership, alias: str, *, binding: bool) -> tuple[str, list[str]]:
        """Return an atom's signature and the conditions for a row ``alias`` to match it, binding new variables."""
        types, kind, conditions = self._shape(unit, alias, binding=binding)
        for place, (term, each) in enumerate(zip(unit.args, types, strict=True)):
            here = f"{alias}.a{place}"
            if isinstance(term, Variable):
                known = self.places.get(term)
                if known is not None:
                    self._check_type(term, each, unit)
                    conditions.append(f"{here} = {known}")
                elif binding:
                    self.places[term], self.types[term] = here, each
                else:
                    raise DataError(f"variable {term} occurs only in {unit}, negated; bind it with a positive atom")
            else:
                conditions.append(self._equals_constant(here, term, each, unit))
        if isinstance(unit, Membership):
            conditions.append(self._has_class(f"{alias}.a{len(types)}", unit))
        return kind, conditions

    def _shape(self, unit: Atom | Membership, alias: str, *, binding: bool) -> tuple[tuple[str, ...], str, list[str]]:
        if isinstance(unit.predicate, PredicateVariable):
            return self._any_predicate(unit, unit.predicate, alias, binding=binding)
        declaration = self.kb.predicate(unit.predicate)
        if len(unit.args) != declaration.arity:
            raise DataError(f"{declaration.name} has {declaration.arity} arguments, got {unit}")
        if (declaration.classes is not None) != isinstance(unit, Membership):
            how = "is multi-class; write 'in {…}'" if declaration.classes else "is not multi-class"
            raise DataError(f"{declaration.name} {how}: {unit}")
        return declaration.types, signature(declaration), [f"{alias}.p = {self.kb.predicate_index(declaration.name)}"]

    def _any_predicate(
        self, unit: Atom | Membership, hole: PredicateVariable, alias: str, *, binding: bool
    ) -> tuple[tuple[str, ...], str, list[str]]:
        kind = "e" * len(unit.args)
        if all(signature(each) != kind for each in self.kb.predicates.values()):
            raise DataError(f"{hole} cannot be filled: no predicate has {len(kind)} entities as arguments")
        known = self.predicates.get(hole)
        if known is None and not binding:
            raise DataError(f"{hole} occurs only in {unit}, negated")
        self.predicates.setdefault(hole, f"{alias}.p")
        return ("",) * len(kind), kind, [] if known is None else [f"{alias}.p = {known}"]

    def _check_type(self, variable: Variable, here: str, unit: Unit) -> None:
        known = self.types[variable]
        if not here or not known:  # a predicate variable ranges over predicates of all entity types
            if NUMBER_TYPE in (here, known):
                raise DataError(
                    f"{variable} has type {known or 'entity'} elsewhere and type {here or 'entity'} in {unit}"
                )
            self.types[variable] = known or here
        elif known != here:
            raise DataError(f"{variable} has type {known} elsewhere and type {here} in {unit}")

    def _equals_constant(self, place: str, term: Term, kind: str, unit: Unit) -> str:
        if (kind == NUMBER_TYPE) != isinstance(term, Number):
            wanted = "a number" if kind == NUMBER_TYPE else "an entity; quote a name that looks like a number"
            raise DataError(f"{term} in {unit} must be {wanted}")
        if isinstance(term, Number):
            return f"{place} = {_number(term)}"
        return self._among(place, self._ids_of(term, kind))

    def _ids_of(self, term: Term, kind: str) -> list[int]:
        """Return the ids a symbol can stand for: one where the type is known, maybe several where it is not."""
        assert isinstance(term, Symbol)
        domains = [self.kb.domains[kind]] if kind else self.kb.domains.values()
        return [found for domain in domains if (found := domain.find(term.name)) is not None]

    @staticmethod
    def _among(place: str, ids: Iterable[int]) -> str:
        listed = sorted(ids)
        if not listed:
            return "1 = 0"
        return f"{place} = {listed[0]}" if len(listed) == 1 else f"{place} IN ({', '.join(map(str, listed))})"

    def _has_class(self, place: str, unit: Membership) -> str:
        declared = self.kb.predicate(str(unit.predicate)).classes or ()
        for each in unit.classes:
            if each not in declared:
                raise DataError(f"{each!r} is not a class of {unit.predicate}; its classes are {', '.join(declared)}")
        return self._among(place, (declared.index(each) for each in unit.classes))

    def comparison(self, comparison: Comparison) -> str:
        """Return the condition that a comparison of bound terms holds."""
        left, right = comparison.args
        for term in comparison.args:
            if isinstance(term, Variable) and term not in self.places:
                raise DataError(f"variable {term} occurs only in {comparison}; bind it with a positive atom")
        numeric = [self._is_number(term) for term in comparison.args]
        if comparison.operator in ("=", "!="):
            if numeric[0] != numeric[1]:
                return "1 = 0" if comparison.operator == "=" else "1 = 1"
        elif not all(numeric):
            raise DataError(f"{comparison.operator} compares numbers, and not all of {comparison} are")
        if isinstance(left, Symbol) and isinstance(right, Symbol):
            return "1 = 1" if (left == right) == (comparison.operator == "=") else "1 = 0"
        if isinstance(left, Symbol) or isinstance(right, Symbol):
            symbol, variable = (left, right) if isinstance(left, Symbol) else (right, left)
            assert isinstance(variable, Variable)
            same = self._among(self.places[variable], self._ids_of(symbol, self.types[variable]))
            return same if comparison.operator == "=" else f"NOT ({same})"
        return f"{self._scalar(left)} {_COMPARATORS[comparison.operator]} {self._scalar(right)}"

    def _is_number(self, term: Term) -> bool:
        return isinstance(term, Number) or (isinstance(term, Variable) and self.types[term] == NUMBER_TYPE)

    def _scalar(self, term: Term) -> str:
        return self.places[term] if isinstance(term, Variable) else _number(term)

    def _keep_apart(self) -> None:
        entities = [variable for variable in self.places if self.types[variable] != NUMBER_TYPE]
        for one, other in combinations(entities, 2):
            if self.types[one] == self.types[other] or not (self.types[one] and self.types[other]):
                self.conditions.append(f"{self.places[one]} <> {self.places[other]}")

    def head(self, head: Atom | Membership) -> list[str]:
        """Return the SQL expressions of a head's arguments."""
        types = self.kb.predicate(str(head.predicate)).types
        for term, each in zip(head.args, types, strict=True):
            if isinstance(term, Variable) and self.types.get(term) not in (None, "", each):
                raise DataError(f"{term} has type {self.types[term]} in the body and type {each} in {head}")
        return [self.expression(term, each) for term, each in zip(head.args, types, strict=True)]

    def expression(self, term: Term, kind: str) -> str:
        """Return the SQL expression of a head's argument."""
        if isinstance(term, Variable):
            if term not in self.places:
                raise DataError(f"head variable {term} is not bound by the body")
            return self.places[term]
        if isinstance(term, Number):
            return _number(term)
        found = self._ids_of(term, kind)
        if len(found) != 1:
            raise DataError(f"{term} in the head is not an entity of type {kind or 'any'}")
        return str(found[0])


def _number(term: Term) -> str:
    assert isinstance(term, Number)
    return repr(float(term.value))


def count(body: Body, kb: KnowledgeBase, *, distinct: bool = False) -> str:
    """Return the statement that counts the groundings of a body."""
    return Join.of(body, kb, distinct=distinct).select("COUNT(*) AS n")


def count_distinct(body: Body, variables: Sequence[Variable], kb: KnowledgeBase, *, distinct: bool = False) -> str:
    """Return the statement that counts the different values of some variables over all groundings."""
    join = Join.of(body, kb, distinct=distinct)
    columns = ", ".join(f"{join.expression(each, '')} AS v{place}" for place, each in enumerate(variables))
    return f"SELECT COUNT(*) AS n FROM ({join.select(f'DISTINCT {columns}')}) AS heads"


def count_by_predicate(body: Body, kb: KnowledgeBase, *, distinct: bool = False) -> tuple[str, list[PredicateVariable]]:
    """Return the statement that counts the groundings of a body for every choice of its predicate variables."""
    join = Join.of(body, kb, distinct=distinct)
    if not join.predicates:
        raise DataError("counting by predicate needs a predicate variable such as ?P in the body")
    places = ", ".join(join.predicates.values())
    columns = ", ".join(f"{place} AS p{number}" for number, place in enumerate(join.predicates.values()))
    return join.select(f"{columns}, COUNT(*) AS n", f" GROUP BY {places}"), list(join.predicates)


def bindings(
    body: Body, variables: Sequence[Variable], kb: KnowledgeBase, *, distinct: bool = False, limit: int | None = None
) -> str:
    """Return the statement that lists the values of some variables in every grounding, or in the ``limit`` smallest."""
    join = Join.of(body, kb, distinct=distinct)
    places = [join.expression(each, "") for each in variables]
    columns = ", ".join(f"{place} AS v{number}" for number, place in enumerate(places))
    if limit is None:
        return join.select(columns or "1 AS one")
    ordered = f" ORDER BY {', '.join(places)}" if places else ""
    return join.select(columns or "1 AS one", f"{ordered} LIMIT {limit:d}")


def derivations(head: Atom | Membership, body: Body, kb: KnowledgeBase, *, distinct: bool = False) -> str:
    """Return the statement that lists the facts a body gives for a head, new ones only, with their groundings.

    A fact that is known, true or false, is not new.
    """
    declaration = kb.predicate(str(head.predicate))
    join = Join.of(body, kb, distinct=distinct)
    places = join.head(head)
    known = Atom(declaration.name, head.args) if declaration.classes is None else head
    if isinstance(known, Membership):  # whatever its class, an atom with a class is known
        known = Membership(known.atom, declaration.classes or known.classes)
    join.conditions += [join.absent(known), join.absent(known, truth=False)]
    listed = ", ".join(f"{expression} AS a{number}" for number, expression in enumerate(places))
    grouped = ", ".join(f"a{number}" for number in range(len(places)))
    return f"SELECT {grouped}, COUNT(*) AS n FROM ({join.select(listed)}) AS given GROUP BY {grouped}"


Column = npt.NDArray[Any]


@dataclass(frozen=True)
class Support:
    """How often a body holds, and how often its head holds with it.

    ``groundings`` counts assignments of all variables, ``heads`` different values of the head's variables.
    """

    body_groundings: int
    body_heads: int
    groundings: int
    heads: int

    @property
    def confidence(self) -> float:
        """``groundings / body_groundings``, 0 where the body never holds."""
        return self.groundings / self.body_groundings if self.body_groundings else 0.0


class SQLEngine(ABC):
    """Runs conjunctive bodies over the facts of one knowledge base."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self.kb = kb

    @abstractmethod
    def run(self, statement: str) -> dict[str, Column]:
        """Run a statement and return its columns by name."""

    @abstractmethod
    def stream(self, statement: str, batch_size: int) -> Iterator[dict[str, Column]]:
        """Run a statement and yield its columns in batches, never holding all of them in Python."""

    @abstractmethod
    def put(self, name: str, columns: Mapping[str, Column]) -> None:
        """Hold a table of numbers beside the facts, for statements to join; in place of an earlier one of that name."""

    def count(self, body: Body, *, distinct: bool = False) -> int:
        """Count the groundings of a body: the assignments of its variables under which it holds.

        With ``distinct``, only assignments that give different variables different entities.
        """
        return self._number(count(body, self.kb, distinct=distinct))

    def count_distinct(self, body: Body, wanted: Sequence[Variable], *, distinct: bool = False) -> int:
        """Count the different values of ``wanted`` over all groundings, such as pairs of a head."""
        return self._number(count_distinct(body, wanted, self.kb, distinct=distinct))

    def _number(self, statement: str) -> int:
        return int(self.run(statement)["n"][0])

    def count_by_predicate(self, body: Body, *, distinct: bool = False) -> dict[str, Column]:
        """Count groundings for every choice of the predicate variables at once.

        The columns are named by the variables and hold predicate numbers (the position in ``kb.predicates``);
        ``n`` holds the counts. One statement serves for all rules of a shape.
        """
        statement, holes = count_by_predicate(body, self.kb, distinct=distinct)
        found = self.run(statement)
        return {**{str(hole): found[f"p{place}"] for place, hole in enumerate(holes)}, "n": found["n"]}

    def bindings(
        self,
        body: Body,
        wanted: Sequence[Variable] | None = None,
        *,
        distinct: bool = False,
        limit: int | None = None,
        batch_size: int = 100_000,
    ) -> Iterator[dict[Variable, Column]]:
        """Yield the groundings, or the ``limit`` smallest, in batches: for each variable a column of ids or numbers."""
        chosen = list(wanted) if wanted is not None else _variables(body)
        statement = bindings(body, chosen, self.kb, distinct=distinct, limit=limit)
        for batch in self.stream(statement, batch_size):
            yield {variable: batch[f"v{place}"] for place, variable in enumerate(chosen)}

    def assignments(
        self, body: Body, wanted: Sequence[Variable] | None = None, *, distinct: bool = False, limit: int
    ) -> list[dict[Variable, Term]]:
        """Return up to ``limit`` groundings for a person to read: the terms that variables stand for."""
        types = Join.of(body, self.kb, distinct=distinct).types
        found = []
        for batch in self.bindings(body, wanted, distinct=distinct, limit=limit):
            columns = [self._terms(column, types[each]) for each, column in batch.items()]
            found += [dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True)]
        if not found and not _variables(body) and self.count(body, distinct=distinct):
            return [{}]
        return found

    def _terms(self, column: Column, kind: str) -> list[Term]:
        if kind == NUMBER_TYPE:
            return [Number(float(value)) for value in column]
        return [Symbol(label) for label in self.kb.domains[kind].labels_of(column)]

    def support(self, head: Head, body: Body, *, distinct: bool = False) -> Support:
        """Count how often a body holds and how often the head holds with it."""
        with_head = [*body, head]
        of_head = variables(head)
        return Support(
            self.count(body, distinct=distinct),
            self.count_distinct(body, of_head, distinct=distinct),
            self.count(with_head, distinct=distinct),
            self.count_distinct(with_head, of_head, distinct=distinct),
        )

    def derive(self, head: Head, body: Body, *, distinct: bool = False) -> tuple[list[Column], Column]:
        """Return the new facts that a body gives for a head, as columns, and how many groundings give each.

        What is already known, true or observed false, is left out.
        """
        found = self.run(derivations(head, body, self.kb, distinct=distinct))
        columns = [found[f"a{place}"] for place in range(len(head.args))]
        if isinstance(head, Membership):
            classes = self.kb.predicate(str(head.predicate)).classes or ()
            columns.append(np.full(len(found["n"]), classes.index(head.classes[0]), dtype=np.int32))
        return columns, found["n"]


def _variables(body: Body) -> list[Variable]:
    found = {each: None for literal in literals(body) for each in variables(literal.unit)}
    return list(found)
