"""Rule bodies as plain, portable SQL, and the engine that runs them.

The facts of a signature stand in one table ``fact_<signature>(p, a0, a1, …)``: ``p`` is the predicate's index, the
other columns are entity indices, numbers or a class. A conjunctive body becomes one SELECT: a table for each positive
atom, equalities for shared variables, NOT EXISTS for negated atoms. Nothing here is special to one database.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any, NamedTuple

import numpy.typing as npt

from rulewright.data import KnowledgeBase, signature
from rulewright.engine.journal import Journal, JournalStep, hash_columns
from rulewright.errors import DataError, EngineError
from rulewright.interrupts import time_limit
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
Column = npt.NDArray[Any]
TableNames = Callable[[str], str]
"""Returns the table that holds the facts of a signature."""

_COMPARATORS = {"<": "<", "<=": "<=", ">": ">", ">=": ">=", "=": "=", "!=": "<>"}


def table_name(fact_signature: str, *, truth: bool = True) -> str:
    """Return the name of the table that holds the facts of a signature."""
    return f"{'fact' if truth else 'false'}_{fact_signature}"


def argument_columns(fact_signature: str) -> list[str]:
    """Return the names of the columns that hold the arguments of a signature."""
    return [f"a{position}" for position in range(len(fact_signature))]


def declare_columns(fact_signature: str) -> str:
    """Return the columns of a table of facts with their SQL types."""
    types = ("DOUBLE" if letter == "n" else "INTEGER" for letter in fact_signature)
    return ", ".join(["p INTEGER", *(f"a{position} {sql_type}" for position, sql_type in enumerate(types))])


def literals(body: Body) -> tuple[Literal, ...]:
    """Read the parts of a conjunctive body as literals; anything deeper is refused."""
    parts = []
    for part in body:
        match part:
            case Literal(Comparison() as comparison, False) | Not(Comparison() as comparison):
                parts.append(Literal(comparison.opposite()))
            case Literal():
                parts.append(part)
            case Not(Atom() | Membership() as unit):
                parts.append(Literal(unit, False))
            case Atom() | Membership() | Comparison():
                parts.append(Literal(part))
            case _:
                raise DataError(f"a conjunctive body has atoms, negated atoms and comparisons, got {part}")
    return tuple(parts)


def positive_atoms(body: Iterable[Literal]) -> list[Head]:
    """Return the atoms of a body that facts must match, in order."""
    return [literal.unit for literal in body if literal.positive and not isinstance(literal.unit, Comparison)]


@dataclass
class Join:
    """A conjunctive body on its way to SQL: the column of each variable, and what must hold.

    >>> from rulewright.logic import parse_rule
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob")])
    >>> rule = parse_rule("grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).")
    >>> print(Join.of(rule.body, kb).select("COUNT(*)"))
    SELECT COUNT(*) FROM fact_ee AS t0, fact_ee AS t1 WHERE t0.p = 0 AND t1.p = 0 AND t1.a0 = t0.a1
    """

    kb: KnowledgeBase
    columns: dict[Variable, str] = field(default_factory=dict)
    types: dict[Variable, str] = field(default_factory=dict)
    predicates: dict[PredicateVariable, str] = field(default_factory=dict)
    sources: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, body: Body, kb: KnowledgeBase, *, distinct: bool = False) -> Join:
        """Translate a body; with ``distinct`` no two of its variables stand for the same entity."""
        join = cls(kb)
        join.add_body(literals(body))
        if distinct:
            entities = [variable for variable in join.columns if join.types[variable] != NUMBER_TYPE]
            for one, other in combinations(entities, 2):
                if join.types[one] == join.types[other] or not (join.types[one] and join.types[other]):
                    join.conditions.append(f"{join.columns[one]} <> {join.columns[other]}")
        return join

    @classmethod
    def of_rule(
        cls,
        head: Head,
        body: Body,
        kb: KnowledgeBase,
        *,
        holds: bool | None = None,
        distinct: bool = False,
        circular: bool = False,
    ) -> Join:
        """Translate the body of a rule, together with the head where that is to hold, or not to.

        Without ``circular`` ones: groundings whose body uses the very fact of the head.
        """
        join = cls.of([*body, *([] if holds is None else [Literal(head, holds)])], kb, distinct=distinct)
        if not circular:
            for position, atom in enumerate(positive_atoms(literals(body))):
                if atom.predicate == head.predicate:
                    join.conditions.append(f"NOT ({join._equal(atom, head, f't{position}')})")
        return join

    def _equal(self, atom: Head, other: Head, alias: str) -> str:
        """Return the condition that the fact which an atom matches, in the row ``alias``, makes another true."""
        pairs = [pair for pair in zip(atom.args, other.args, strict=True) if pair[0] != pair[1]]
        conditions = [self._compare(Comparison("=", *pair)) for pair in pairs]
        if isinstance(other, Membership):
            classes = self.kb.predicate(str(other.predicate)).classes or ()
            conditions.append(_equals_any(f"{alias}.a{len(other.args)}", map(classes.index, other.classes)))
        return " AND ".join(conditions) or "1 = 1"

    def add_body(
        self,
        body: Sequence[Literal],
        tables: Sequence[TableNames] | None = None,
        absent_from: TableNames = table_name,
    ) -> None:
        """Join a body with the known facts, or its positive atoms each with another table.

        Negated atoms must not be in the table ``absent_from``.
        """
        atoms = positive_atoms(body)
        for atom, table in zip(atoms, tables or [table_name] * len(atoms), strict=True):
            alias = f"t{len(self.sources)}"
            fact_signature, conditions = self._match(atom, alias, binding=True)
            self.sources.append(f"{table(fact_signature)} AS {alias}")
            self.conditions += conditions
        for literal in body:
            unit = literal.unit
            if isinstance(unit, Comparison):
                self.conditions.append(self._compare(unit if literal.positive else unit.opposite()))
            elif not literal.positive:
                alias = f"n{len(self.conditions)}"
                fact_signature, conditions = self._match(unit, alias, binding=False)
                rows = f"SELECT 1 FROM {absent_from(fact_signature)} AS {alias} WHERE {' AND '.join(conditions)}"
                self.conditions.append(f"NOT EXISTS ({rows})")

    def select_values(self, wanted: Sequence[Variable], *, limit: int | None = None, distinct: bool = False) -> str:
        """Return the statement that lists values of variables: all, the ``limit`` smallest or the different ones."""
        expressions = [self.express(variable) for variable in wanted]
        columns = ", ".join(f"{expression} AS v{position}" for position, expression in enumerate(expressions))
        ordered = f" ORDER BY {', '.join(expressions)}" if expressions and limit is not None else ""
        suffix = "" if limit is None else f"{ordered} LIMIT {limit:d}"
        return self.select(f"{'DISTINCT ' if distinct else ''}{columns or '1 AS one'}", suffix)

    def select(self, columns: str, suffix: str = "") -> str:
        """Return the statement that selects ``columns`` of every grounding."""
        sources = ", ".join(self.sources) or "(SELECT 1 AS one) AS unit"
        where = f" WHERE {' AND '.join(self.conditions)}" if self.conditions else ""
        return f"SELECT {columns} FROM {sources}{where}{suffix}"

    def _match(self, unit: Atom | Membership, alias: str, *, binding: bool) -> tuple[str, list[str]]:
        """Return an atom's signature and the conditions for a row ``alias`` to match it, binding new variables."""
        types, fact_signature, conditions = self._match_predicate(unit, alias, binding=binding)
        for position, (term, type_name) in enumerate(zip(unit.args, types, strict=True)):
            column = f"{alias}.a{position}"
            if isinstance(term, Variable):
                known = self.columns.get(term)
                if known is not None:
                    self._check_type(term, type_name, unit)
                    conditions.append(f"{column} = {known}")
                elif binding:
                    self.columns[term], self.types[term] = column, type_name
                else:
                    raise DataError(f"variable {term} occurs only in {unit}, negated; bind it with a positive atom")
                continue
            if (type_name == NUMBER_TYPE) != isinstance(term, Number):
                is_number = type_name == NUMBER_TYPE
                wanted = "a number" if is_number else "an entity; quote a name that looks like a number"
                raise DataError(f"{term} in {unit} must be {wanted}")
            if isinstance(term, Number):
                conditions.append(f"{column} = {_write_number(term)}")
            else:
                conditions.append(_equals_any(column, self._entity_indices(term, type_name)))
        if isinstance(unit, Membership):
            classes = self.kb.predicate(str(unit.predicate)).classes or ()
            for name in unit.classes:
                if name not in classes:
                    raise DataError(
                        f"{name!r} is not a class of {unit.predicate}; its classes are {', '.join(classes)}"
                    )
            conditions.append(_equals_any(f"{alias}.a{len(types)}", map(classes.index, unit.classes)))
        return fact_signature, conditions

    def _match_predicate(
        self, unit: Atom | Membership, alias: str, *, binding: bool
    ) -> tuple[tuple[str, ...], str, list[str]]:
        """Return the types of an atom's arguments, its signature and the conditions on its predicate."""
        if isinstance(unit.predicate, PredicateVariable):
            hole, fact_signature = unit.predicate, "e" * len(unit.args)
            if all(signature(declaration) != fact_signature for declaration in self.kb.predicates.values()):
                raise DataError(f"{hole} cannot be filled: no predicate has {len(unit.args)} entities as arguments")
            known = self.predicates.get(hole)
            if known is None and not binding:
                raise DataError(f"{hole} occurs only in {unit}, negated")
            self.predicates.setdefault(hole, f"{alias}.p")
            return ("",) * len(unit.args), fact_signature, [] if known is None else [f"{alias}.p = {known}"]
        declaration = self.kb.predicate(unit.predicate)
        check_arguments(unit, self.kb)
        return declaration.types, signature(declaration), [f"{alias}.p = {self.kb.predicate_index(declaration.name)}"]

    def _check_type(self, variable: Variable, type_name: str, unit: Unit) -> None:
        known = self.types[variable]
        is_open = not type_name or not known  # a predicate variable ranges over predicates of all entity types
        if known != type_name and (not is_open or NUMBER_TYPE in (type_name, known)):
            raise DataError(
                f"{variable} has type {known or 'entity'} elsewhere and type {type_name or 'entity'} in {unit}"
            )
        self.types[variable] = known or type_name

    def _entity_indices(self, term: Term, type_name: str) -> list[int]:
        """Return the entities a symbol can stand for: one where the type is known, maybe several where it is not."""
        assert isinstance(term, Symbol)
        domains = [self.kb.domains[type_name]] if type_name else self.kb.domains.values()
        return [index for domain in domains if (index := domain.find(term.name)) is not None]

    def _compare(self, comparison: Comparison) -> str:
        """Return the condition that a comparison of bound terms holds."""
        left, right = comparison.args
        for term in comparison.args:
            if isinstance(term, Variable) and term not in self.columns:
                raise DataError(f"variable {term} occurs only in {comparison}; bind it with a positive atom")
        numeric = [
            isinstance(term, Number) or (isinstance(term, Variable) and self.types[term] == NUMBER_TYPE)
            for term in comparison.args
        ]
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
            same = _equals_any(self.columns[variable], self._entity_indices(symbol, self.types[variable]))
            return same if comparison.operator == "=" else f"NOT ({same})"
        sides = [self.columns[term] if isinstance(term, Variable) else _write_number(term) for term in (left, right)]
        return f" {_COMPARATORS[comparison.operator]} ".join(sides)

    def express_head(self, head: Head) -> list[str]:
        """Return the SQL expressions of a head's arguments."""
        types = self.kb.predicate(str(head.predicate)).types
        for term, type_name in zip(head.args, types, strict=True):
            if isinstance(term, Variable) and self.types.get(term) not in (None, "", type_name):
                raise DataError(f"{term} has type {self.types[term]} in the body and type {type_name} in {head}")
        return [self.express(term, type_name) for term, type_name in zip(head.args, types, strict=True)]

    def express(self, term: Term, type_name: str = "") -> str:
        """Return the SQL expression of a head's argument."""
        if isinstance(term, Variable):
            if term not in self.columns:
                raise DataError(f"head variable {term} is not bound by the body")
            return self.columns[term]
        if isinstance(term, Number):
            return _write_number(term)
        indices = self._entity_indices(term, type_name)
        if len(indices) != 1:
            raise DataError(f"{term} in the head is not an entity of type {type_name or 'any'}")
        return str(indices[0])


def check_arguments(unit: Head, kb: KnowledgeBase) -> None:
    """Refuse an atom that has not as many arguments as its predicate, or no class where that has some."""
    declaration = kb.predicate(str(unit.predicate))
    if len(unit.args) != declaration.arity:
        raise DataError(f"{declaration.name} has {declaration.arity} arguments, got {unit}")
    if (declaration.classes is not None) != isinstance(unit, Membership):
        how = "is multi-class; write 'in {…}'" if declaration.classes else "is not multi-class"
        raise DataError(f"{declaration.name} {how}: {unit}")


def _equals_any(column: str, indices: Iterable[int]) -> str:
    values = sorted(indices)
    if not values:
        return "1 = 0"
    return f"{column} = {values[0]}" if len(values) == 1 else f"{column} IN ({', '.join(map(str, values))})"


def _write_number(term: Term) -> str:
    assert isinstance(term, Number)
    return repr(float(term.value))


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


class Expectation(NamedTuple):
    """What a statement is expected to list: rows in all, and those of the one entity that brings most.

    >>> print(Expectation("bodies of 2 steps", 123456789, 1000))
    bodies of 2 steps: about 1.2e+08 rows, 1e+03 of them at one entity
    """

    statement: str
    rows: float
    largest: float = 0

    def __str__(self) -> str:
        hub = f", {self.largest:.2g} of them at one entity" if self.largest else ""
        return f"{self.statement}: about {self.rows:.2g} rows{hub}"


class SQLEngine(ABC):
    """A back end: it holds tables and runs statements over them, and so rule bodies over the facts of a knowledge base.

    What every one offers: tables made of columns (`put`) or of the rows of a statement (`create`, `append`, `drop`),
    results as columns at once (`run`) or in batches (`stream`), a limit of time, and an end by Ctrl-C. Statements are
    plain SQL that joins, groups and compares integers, numbers and texts. One that keeps its tables where they outlive
    the process has a ``journal``: a section of work (`begin`) that is begun again goes on after its last statement.
    """

    kb: KnowledgeBase
    rows_at_once: int = 8_000_000
    """About how many rows a statement may list before it groups them."""
    few_rows: int = 500_000
    """Up to so many rows, listing them all in one statement is quicker than several statements that list fewer."""
    most_rows: float = 5e11
    """More rows than a statement can list within days are not begun."""
    is_planned: bool = False
    """Whether to say, and to check, how many rows statements will list before they run."""
    on_expectation: Callable[[Expectation], None] | None = None
    journal: Journal | None = None
    _journals: dict[str, Journal | None]

    @abstractmethod
    def _run(self, statement: str) -> dict[str, Column]:
        """Run a statement and return its columns by name."""

    def __init__(self) -> None:
        self._journals = {}

    @abstractmethod
    def stream(self, statement: str, batch_size: int) -> Iterator[dict[str, Column]]:
        """Run a statement and yield its columns in batches, never holding all of them in Python."""

    @abstractmethod
    def _put(self, name: str, columns: Mapping[str, Column]) -> None:
        """Make a table of columns."""

    @abstractmethod
    def _create(self, name: str, select: str) -> None:
        """Make a table of the rows of a statement."""

    @abstractmethod
    def _append(self, name: str, select: str) -> None:
        """Add the rows of a statement to a table."""

    @abstractmethod
    def _drop(self, name: str) -> None:
        """Let go of a table, if there is one of that name."""

    @abstractmethod
    def close(self) -> None:
        """Let go of all that is held."""

    def time_limit(self, seconds: float | None) -> AbstractContextManager[None]:
        """Stop what runs inside after so many seconds; see `rulewright.interrupts.time_limit`."""
        return time_limit(seconds)

    def run(self, statement: str) -> dict[str, Column]:
        """Run a statement that selects rows, and return its columns by name."""
        return self._perform("run", "", statement, lambda: self._run(statement)) or {}

    def put(self, name: str, columns: Mapping[str, Column]) -> None:
        """Hold a table of numbers beside the facts, for statements to join; in place of an earlier one of that name."""
        said = hash_columns(columns) if self.journal is not None else ""
        self._perform("put", name, said, lambda: self._put(name, columns))

    def create(self, name: str, select: str) -> None:
        """Hold the rows that a statement selects as a table, in place of an earlier one of that name."""
        self._perform("create", name, select, lambda: self._create(name, select))

    def append(self, name: str, select: str) -> None:
        """Add the rows that a statement selects to a table; the statement may read that table."""
        self._perform("append", name, select, lambda: self._append(name, select))

    def declare(self, name: str, columns: str) -> None:
        """Hold an empty table, given its columns with their SQL types (`declare_columns`)."""
        typed = (column.rsplit(" ", 1) for column in columns.split(", "))
        casts = ", ".join(f"CAST(NULL AS {sql_type}) AS {column}" for column, sql_type in typed)
        self.create(name, f"SELECT {casts} WHERE 1 = 0")

    def drop(self, *names: str) -> None:
        """Let go of tables that are no longer needed."""
        for name in names:
            self._perform("drop", name, "", lambda name=name: self._drop(name))  # type: ignore[misc]

    def number(self, name: str, labels: str) -> None:
        """Hold the different texts that a statement selects as ``label``, with an ``id`` from 0 in their order."""
        index = "CAST(ROW_NUMBER() OVER (ORDER BY label) - 1 AS INTEGER) AS id"
        self.create(name, f"SELECT label, {index} FROM (SELECT DISTINCT label FROM ({labels}) AS all_labels) AS labels")

    def read_files(self, name: str, key: str, read: Callable[[str], None]) -> None:
        """Make a table by reading files into it; the key says which."""
        self._perform("create", name, key, lambda: read(name))

    def joins_as_written(self) -> AbstractContextManager[None]:
        """Have statements inside join tables in the order in which they stand, where a database can be told to."""
        return nullcontext()

    def look_up(self, statement: str) -> dict[str, Column]:
        """Run a statement that looks something small up for a person, of which no journal is kept."""
        return self._run(statement)

    def expect(self, statement: str, rows: float, largest: float = 0, *, way_out: str) -> None:
        """Say how many rows a statement will list, and refuse more than can be listed, with a way out."""
        expectation = Expectation(statement, rows, largest)
        if self.on_expectation is not None:
            self.on_expectation(expectation)
        if rows > self.most_rows:
            raise EngineError(
                f"{expectation}, more than the {self.most_rows:.2g} that can be listed in days; {way_out}"
            )

    def join_sorted(self, text: str, separator: str = "", *, descending: bool = True, order: str | None = None) -> str:
        """Return the SQL that joins the texts of a group, in the order of themselves or of something else."""
        direction = "DESC" if descending else "ASC"
        return f"STRING_AGG({text}, '{separator}' ORDER BY {order or text} {direction})"

    def write_files(self, select: str, path: str, file_format: str, *, partition: str | None = None) -> None:
        """Write the rows of a statement to files: ``parquet``, ``tsv`` or ``csv``; all of them or nothing."""
        raise EngineError(f"{type(self).__name__} writes no files")

    def quote_text(self, text: str) -> str:
        """Return a text as it stands in a statement."""
        return "'" + text.replace("'", "''") + "'"

    def begin(self, section: str, key: str) -> None:
        """Begin a section of work: ``facts`` that are read, or ``work`` on them; the key says all it depends on.

        Where its journal holds statements of that key, they are not run again; tables of another key are let go.
        """
        journal = self.journal = self._find_journal(section)
        if journal is None or journal.begin(key):
            return
        for name in journal.tables():
            self._drop(name)
        journal.restart(key)

    def find_key(self, section: str) -> str:
        """Return the key of the section that is kept, empty where there is none."""
        journal = self._find_journal(section)
        return "" if journal is None else journal.key

    def _find_journal(self, section: str) -> Journal | None:
        if section not in self._journals:
            self._journals[section] = self._open_journal(section)
        return self._journals[section]

    def end(self) -> None:
        """Leave the section: what is done from now on is not noted."""
        self.journal = None

    def _open_journal(self, section: str) -> Journal | None:
        """Return the journal of a section; None where nothing outlives the process."""
        return None

    def _perform(
        self, action: str, name: str, text: str, work: Callable[[], dict[str, Column] | None]
    ) -> dict[str, Column] | None:
        """Do something, unless the journal knows that it was done."""
        if self.journal is None:
            self._disown(name)
            return work()
        step = self.journal.follow(action, name, text)
        if step is not None:
            self._restore(step, work)
            return step.result
        with self.journal.writing(action, name, self._describe_table) as keep:
            return keep(work())

    def _disown(self, name: str) -> None:
        """Forget a section of work whose table is about to be changed by something that no journal knows of."""
        for section in ("work", "ranking") if name else ():
            journal = self._find_journal(section)
            if journal is not None and journal.key and name in journal.tables():
                journal.forget()

    def _restore(self, step: JournalStep, work: Callable[[], object]) -> None:  # noqa: B027 - most have nothing to do
        """Bring back what a step has left that is done."""

    def _describe_table(self, name: str) -> str:
        """Return what is to know of a table to bring it back."""
        return ""

    def load(self, kb: KnowledgeBase) -> None:
        """Hold the facts of a knowledge base: a table for each signature, of what is true and of what is false."""
        for truth in (True, False):
            for fact_signature in sorted({signature(declaration) for declaration in kb.predicates.values()}):
                name, table = table_name(fact_signature, truth=truth), kb.tables(truth=truth).get(fact_signature)
                if table is None or not len(table):
                    self.declare(name, declare_columns(fact_signature))
                    continue
                columns = {"p": table.predicate}
                self.put(name, columns | dict(zip(argument_columns(fact_signature), table.columns, strict=True)))

    def count(self, body: Body, *, distinct: bool = False) -> int:
        """Count the groundings of a body: the assignments of its variables under which it holds.

        With ``distinct``, only assignments that give different variables different entities.
        """
        return self._count(Join.of(body, self.kb, distinct=distinct))

    def _count(self, join: Join, wanted: Sequence[Variable] | None = None) -> int:
        """Count groundings, or the different values of ``wanted`` in them."""
        if wanted is None:
            return int(self.run(join.select("COUNT(*) AS n"))["n"][0])
        rows = join.select_values(wanted, distinct=True)
        return int(self.run(f"SELECT COUNT(*) AS n FROM ({rows}) AS different")["n"][0])

    def count_distinct(self, body: Body, wanted: Sequence[Variable], *, distinct: bool = False) -> int:
        """Count the different values of ``wanted`` over all groundings, such as pairs of a head."""
        return self._count(Join.of(body, self.kb, distinct=distinct), wanted)

    def count_by_predicate(self, body: Body, *, distinct: bool = False) -> dict[str, Column]:
        """Count groundings for every choice of the predicate variables at once.

        The columns are named by the variables and hold predicate indices (the position in ``kb.predicates``);
        ``n`` holds the counts. One statement serves for all rules of a shape.
        """
        join = Join.of(body, self.kb, distinct=distinct)
        if not join.predicates:
            raise DataError("counting by predicate needs a predicate variable such as ?P in the body")
        listed = ", ".join(f"{column} AS p{position}" for position, column in enumerate(join.predicates.values()))
        grouped = ", ".join(join.predicates.values())
        rows = self.run(join.select(f"{listed}, COUNT(*) AS n", f" GROUP BY {grouped}"))
        return {**{str(hole): rows[f"p{position}"] for position, hole in enumerate(join.predicates)}, "n": rows["n"]}

    def bindings(
        self,
        body: Body,
        wanted: Sequence[Variable] | None = None,
        *,
        distinct: bool = False,
        limit: int | None = None,
        batch_size: int = 100_000,
    ) -> Iterator[dict[Variable, Column]]:
        """Yield the groundings, or the ``limit`` smallest, in batches: a column of indices or numbers per variable."""
        chosen = list(wanted) if wanted is not None else _body_variables(body)
        yield from self._bindings(Join.of(body, self.kb, distinct=distinct), chosen, limit, batch_size)

    def _bindings(
        self, join: Join, wanted: Sequence[Variable], limit: int | None, batch_size: int
    ) -> Iterator[dict[Variable, Column]]:
        for batch in self.stream(join.select_values(wanted, limit=limit), batch_size):
            yield {variable: batch[f"v{position}"] for position, variable in enumerate(wanted)}

    def cases(
        self, head: Head, body: Body, *, holds: bool | None = None, limit: int, circular: bool = False
    ) -> list[dict[Variable, Term]]:
        """Return up to ``limit`` groundings of a rule for a person to read: the terms that variables stand for.

        The head ``holds`` in them, does not, or either; ``circular`` is that of `support`.
        """
        join = Join.of_rule(head, body, self.kb, holds=holds, circular=circular)
        wanted = _body_variables(body)
        cases: list[dict[Variable, Term]] = []
        for batch in self._bindings(join, wanted, limit, max(limit, 1)):
            terms: list[list[Term]] = [
                [Number(float(value)) for value in column]
                if join.types[variable] == NUMBER_TYPE
                else [Symbol(label) for label in self.kb.domains[join.types[variable]].labels_of(column)]
                for variable, column in batch.items()
            ]
            cases += [dict(zip(batch, row, strict=True)) for row in zip(*terms, strict=True)]
        if not wanted and limit and self._count(join):
            return [{}]
        return cases

    def support(self, head: Head, body: Body, *, distinct: bool = False, circular: bool = False) -> Support:
        """Count how often a body holds and how often the head holds with it.

        A grounding whose body uses the very fact of the head shows nothing; it counts only where ``circular`` ones do.
        """
        body_alone, with_head = (
            Join.of_rule(head, body, self.kb, holds=holds, distinct=distinct, circular=circular)
            for holds in (None, True)
        )
        wanted = variables(head)
        return Support(
            self._count(body_alone),
            self._count(body_alone, wanted),
            self._count(with_head),
            self._count(with_head, wanted),
        )


def _body_variables(body: Body) -> list[Variable]:
    return list(dict.fromkeys(variable for literal in literals(body) for variable in variables(literal.unit)))
