"""Facts of a template, generated bottom-up by joins of the engine, and the gathers that truth values flow through.

A leaf's facts are the union of its members' facts, a frame's rows the joins of what it looks up, its facts their
projection. A predicted fact is no evidence for itself: where a row of the frame that gives ``s(x, z)`` looks up the
fact ``s(x, z)`` of the knowledge base, or its inverse, the row is marked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rulewright.data import KnowledgeBase, signature
from rulewright.engine import Engine, sql
from rulewright.errors import DataError, MemoryLimitError
from rulewright.learn.lnn.nodes import Check, Expression, Flip, Frame, Gate, HeadNode, Leaf, TemplateProgram, looks
from rulewright.logic import Atom, Comparison, Literal, Membership, PredicateDeclaration, Symbol, Term, Variable

Columns: TypeAlias = tuple[npt.NDArray[Any], ...]
Ids: TypeAlias = npt.NDArray[np.int64]

_COMPARED: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
    "!=": np.not_equal,
}


def codes(columns: Sequence[npt.NDArray[Any]]) -> Ids:
    """Return a number for each row, the same where rows are; numbers follow the order of rows.

    >>> codes([np.array([7, 7, 3]), np.array([1.5, 0.5, 1.5])]).tolist()
    [2, 1, 0]
    """
    found = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, place = np.unique(column, return_inverse=True)
        found = found * max(1, len(values)) + place.reshape(-1)
        found = np.unique(found, return_inverse=True)[1].reshape(-1)  # never wider than the number of rows
    return found


def lookup(table: Sequence[npt.NDArray[Any]], wanted: Sequence[npt.NDArray[Any]]) -> Ids:
    """Return the place in a table of each wanted row; −1 where it is not there.

    >>> lookup([np.array([4, 6])], [np.array([6, 5])]).tolist()
    [1, -1]
    """
    size = len(table[0])
    every = codes([np.concatenate(pair) for pair in zip(table, wanted, strict=True)])
    place = np.full(int(every.max(initial=0)) + 1, -1, dtype=np.int64)
    place[every[:size]] = np.arange(size)
    return place[every[size:]]


def projected(columns: Sequence[npt.NDArray[Any]]) -> tuple[Columns, Ids]:
    """Return the different rows, in order, and for each given row which of them it is."""
    every = codes(columns)
    _, first = np.unique(every, return_index=True)
    return tuple(column[first] for column in columns), every


def sorted_rows(columns: Sequence[npt.NDArray[Any]]) -> Columns:
    """Return the rows in order, so that they do not depend on how a database found them."""
    order = np.lexsort(tuple(reversed(columns)))
    return tuple(column[order] for column in columns)


def compared(operator: str, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Compare row by row; a number and an entity are never equal."""
    if (left.dtype.kind == "f") != (right.dtype.kind == "f"):
        return np.full(len(left), operator == "!=")
    found: npt.NDArray[np.bool_] = _COMPARED[operator](left, right)
    return found


MOST_ROWS = 20_000_000
"""The most rows that a body may have."""

Hidden = tuple[int, ...]  # the columns of a node that are the arguments of the fact to be predicted
_WANTED = "wanted facts"


@dataclass(frozen=True)
class OwnFacts:
    """Rows that look up the predicted fact itself: ``rows`` each once, and for each such fact the row's place in them
    and the number of the member that it is a fact of."""

    rows: Tensor
    places: Tensor
    members: Tensor


@dataclass(frozen=True)
class GroundLeaf:
    """Which member gives which fact: ``base`` facts, which are true, then for each derived member its node's facts."""

    size: int
    rows: Tensor
    members: Tensor
    base: int
    derived: tuple[tuple[str, Tensor], ...]


@dataclass(frozen=True)
class GroundFrame:
    """For each look-up the fact of every row (−1: none), the comparisons' values, and the fact each row is part of."""

    size: int
    rows: int
    looks: tuple[Tensor, ...]
    own: Mapping[Hidden, tuple[OwnFacts | None, ...]]
    checks: Mapping[Comparison, Tensor]
    facts: Tensor


@dataclass(frozen=True)
class GroundHead:
    """For each clause the fact of it that every fact is (−1: none)."""

    size: int
    clauses: tuple[Tensor, ...]


@dataclass(frozen=True)
class TemplateGrounding:
    """A program over facts: the tables of its nodes, and how their truth values are gathered.

    ``partly_hidden`` names nodes that rest on facts of the target, but not on which one is predicted: there, a fact can
    still be evidence for itself.
    """

    program: TemplateProgram
    tables: Mapping[str, Columns]
    leaves: Mapping[str, GroundLeaf]
    frames: Mapping[str, GroundFrame]
    heads: Mapping[str, GroundHead]
    partly_hidden: tuple[str, ...]
    constants: dict[tuple[str, Hidden | None], Tensor] = field(default_factory=dict)  # filled when first computed

    @property
    def facts(self) -> Columns:
        """The facts that the template can give for its target, as columns."""
        return self.tables[self.program.root]

    def find(self, columns: Sequence[npt.NDArray[np.generic]]) -> Tensor:
        """Return the numbers of facts given as columns; −1 where the template cannot give one."""
        return torch.from_numpy(lookup(self.facts, columns))


def ground(
    program: TemplateProgram,
    kb: KnowledgeBase,
    *,
    wanted: Columns | None = None,
    hide: bool = True,
    inverses: Mapping[str, str] | None = None,
    memory_limit: int | str | None = None,
) -> TemplateGrounding:
    """Generate the facts of all nodes; with ``wanted`` only what bears on these facts of the target.

    ``inverses`` names for predicates those that hold the same facts with arguments swapped; with ``hide`` the predicted
    fact and its inverse are kept out of its own evidence.
    """
    grounder = _Grounder(program, kb, wanted, hide, dict(inverses or {}))
    with Engine(grounder.kb, threads=1, memory_limit=memory_limit) as engine:
        return grounder.run(engine)


class _Grounder:
    def __init__(
        self,
        program: TemplateProgram,
        kb: KnowledgeBase,
        wanted: Columns | None,
        hide: bool,
        inverses: Mapping[str, str],
    ) -> None:
        self.program, self.base, self.wanted = program, kb, wanted
        self.own = {program.target: False} if hide and program.target in kb.predicates else {}
        for one, other in (*inverses.items(), *((b, a) for a, b in inverses.items())):
            if hide and one == program.target:
                kb.predicate(other)
                self.own[other] = True
        self.modes: dict[str, set[Hidden | None]] = {}
        self._visit(program.root, tuple(range(len(program.types[program.root]))))
        new = [PredicateDeclaration(name, types) for name, types in program.types.items()]
        new.append(PredicateDeclaration(_WANTED, program.types[program.root]))
        self.kb = KnowledgeBase(kb.domains, [*kb.predicates.values(), *new], kb.tables(), closed=kb.closed)
        self.tables: dict[str, Columns] = {}
        self.leaves: dict[str, GroundLeaf] = {}
        self.frames: dict[str, GroundFrame] = {}
        self.heads: dict[str, GroundHead] = {}

    def _visit(self, name: str, hidden: Hidden | None) -> None:
        """Note in which columns each node carries the arguments of the fact to be predicted, from the root down."""
        known = self.modes.setdefault(name, set())
        if hidden in known:
            return
        known.add(hidden)
        node = self.program.nodes[name]
        if isinstance(node, HeadNode):
            for clause in node.clauses:
                self._visit(clause, hidden)
            return
        arguments = None if hidden is None else [node.columns[place] for place in hidden]
        if isinstance(node, Frame):
            for look in looks(node.expression):
                self._visit(look.node, _places(arguments, look.variables))
        else:
            for member, derived in zip(node.members, node.derived, strict=True):
                if derived:
                    self._visit(member, _places(arguments, node.unit.args))

    def run(self, engine: Engine) -> TemplateGrounding:
        if self.wanted is not None:
            self._insert(engine, _WANTED, self.wanted)
        for name, node in self.program.nodes.items():
            match node:
                case Leaf():
                    self._leaf(engine, node)
                case Frame():
                    self._frame(engine, node)
                case HeadNode():
                    self._head(node)
            self._insert(engine, name, self.tables[name])
        own = frozenset(self.own)
        partly = [
            look.node
            for name, frame in self.program.nodes.items()
            if isinstance(frame, Frame) and any(mode is not None for mode in self.modes[name])
            for look in looks(frame.expression)
            if None in self.modes[look.node] and self._beyond_hiding(look.node, own)
        ]
        return TemplateGrounding(
            self.program, self.tables, self.leaves, self.frames, self.heads, tuple(dict.fromkeys(partly))
        )

    def _beyond_hiding(self, name: str, own: frozenset[str]) -> bool:
        """Tell whether a node that does not know the predicted fact rests on its predicate through another node."""
        node = self.program.nodes[name]
        if isinstance(node, Leaf):  # its own members are hidden row by row
            members = zip(node.members, node.derived, strict=True)
            return any(head and self.program.reaches(each, own) for each, head in members)
        return self.program.reaches(name, own)

    def _insert(self, engine: Engine, name: str, columns: Columns) -> None:
        kind = signature(self.kb.predicates[name])
        listed = ", ".join(f"a{place}" for place in range(len(columns)))
        engine.put("generated", {f"a{place}": column for place, column in enumerate(columns)})
        engine.run(
            f"INSERT INTO {sql.table_name(kind)} (p, {listed}) "
            f"SELECT {self.kb.predicate_index(name)}, {listed} FROM generated"
        )

    def _rows(self, engine: Engine, bodies: Sequence[sql.Body], variables: Sequence[Variable], what: str) -> Columns:
        rows = sum(engine.count(body) for body in bodies)
        if rows > MOST_ROWS:
            raise MemoryLimitError(
                f"the body of {what} has {rows:,} rows over these facts, more than {MOST_ROWS:,}; "
                "give its predicate variables smaller domains, or shorten it"
            )
        found = engine.run(" UNION ".join(sql.select_bindings(body, variables, self.kb) for body in bodies))
        return sorted_rows([found[f"v{place}"] for place in range(len(variables))])

    def _leaf(self, engine: Engine, leaf: Leaf) -> None:
        parts: list[Columns] = []
        for member, derived in zip(leaf.members, leaf.derived, strict=True):
            name = self.program.nodes[member].name if derived else member
            unit = _filled(leaf.unit, name)
            parts.append(self._rows(engine, [[unit]], leaf.columns, str(unit)))
        stacked = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
        table, every = projected(stacked)
        self.tables[leaf.name] = table
        bounds = np.cumsum([0, *(len(columns[0]) for columns in parts)])
        numbers = sorted(range(len(leaf.members)), key=lambda number: leaf.derived[number])  # base facts come first
        rows = [every[bounds[number] : bounds[number + 1]] for number in numbers]
        members = [np.full(len(here), number) for here, number in zip(rows, numbers, strict=True)]
        derived_facts = []
        for number in (each for each in numbers if leaf.derived[each]):
            arguments = [self._values(term, leaf.columns, parts[number], "") for term in leaf.unit.args]
            facts = lookup(self.tables[leaf.members[number]], arguments)
            derived_facts.append((leaf.members[number], torch.from_numpy(facts)))
        base = sum(len(here) for here, number in zip(rows, numbers, strict=True) if not leaf.derived[number])
        self.leaves[leaf.name] = GroundLeaf(len(table[0]), _joined(rows), _joined(members), base, tuple(derived_facts))

    def _frame(self, engine: Engine, frame: Frame) -> None:
        modes = self.modes[frame.name]
        extra: list[Literal] = []
        if self.wanted is not None and len(modes) == 1 and (only := next(iter(modes))) is not None:
            extra.append(Literal(Atom(_WANTED, tuple(frame.columns[place] for place in only))))
        bodies = [[*body, *extra] for body in frame.bodies()]
        rows = self._rows(engine, bodies, frame.variables, self.program.target)
        column = dict(zip(frame.variables, rows, strict=True))
        table, facts = projected([column[each] for each in frame.columns])
        self.tables[frame.name] = table
        found = tuple(looks(frame.expression))
        indices = [lookup(self.tables[each.node], [column[name] for name in each.variables]) for each in found]
        own = {}
        for hidden in modes:
            if hidden is not None and self.own:
                predicted = [column[frame.columns[place]] for place in hidden]
                own[hidden] = tuple(
                    self._own(look.node, index, frame.variables, rows, predicted)
                    for look, index in zip(found, indices, strict=True)
                )
        checks = {
            each: torch.from_numpy(compared(each.operator, *(self._compared(term, frame, rows) for term in each.args)))
            for each in _checks(frame.expression)
        }
        size = len(rows[0]) if rows else 0
        tensors = tuple(torch.from_numpy(index) for index in indices)
        self.frames[frame.name] = GroundFrame(len(table[0]), size, tensors, own, checks, torch.from_numpy(facts))

    def _own(
        self,
        node: str,
        index: npt.NDArray[np.int64],
        variables: Sequence[Variable],
        rows: Columns,
        predicted: Sequence[npt.NDArray[np.generic]],
    ) -> OwnFacts | None:
        """Find the rows where a leaf looks up the predicted fact itself, or its inverse."""
        leaf = self.program.nodes[node]
        if not isinstance(leaf, Leaf) or len(leaf.unit.args) != len(predicted):
            return None
        arguments = [self._values(term, variables, rows, kind) for term, kind in self._typed(leaf)]
        places, members = [], []
        for number, (member, derived) in enumerate(zip(leaf.members, leaf.derived, strict=True)):
            if derived or member not in self.own:
                continue
            mine = predicted[::-1] if self.own[member] else predicted
            same = (index >= 0) & np.logical_and.reduce([a == b for a, b in zip(arguments, mine, strict=True)])
            candidates = np.flatnonzero(same)
            ground = self.leaves[node]
            given = np.zeros(ground.size, dtype=bool)
            given[ground.rows[ground.members == number].numpy()] = True
            there = candidates[given[index[candidates]]]
            places.append(there)
            members.append(np.full(len(there), number))
        every = np.concatenate([np.empty(0, dtype=np.int64), *places])
        if not len(every):
            return None
        unique, back = np.unique(every, return_inverse=True)
        return OwnFacts(torch.from_numpy(unique), torch.from_numpy(back.reshape(-1)), _joined(members))

    def _typed(self, leaf: Leaf) -> list[tuple[Term, str]]:
        types = (
            self.base.predicates[next(each for each in leaf.members if each in self.base.predicates)].types
            if any(each in self.base.predicates for each in leaf.members)
            else ("",) * len(leaf.unit.args)
        )
        return list(zip(leaf.unit.args, types, strict=True))

    def _head(self, head: HeadNode) -> None:
        parts = [self.tables[each] for each in head.clauses]
        table, _ = projected([np.concatenate(columns) for columns in zip(*parts, strict=True)])
        self.tables[head.name] = table
        clauses = tuple(torch.from_numpy(lookup(part, table)) for part in parts)
        self.heads[head.name] = GroundHead(len(table[0]), clauses)

    def _values(self, term: Term, variables: Sequence[Variable], rows: Columns, kind: str) -> npt.NDArray[np.generic]:
        if isinstance(term, Variable):
            return rows[list(variables).index(term)]
        size = len(rows[0])
        if isinstance(term, Symbol):
            domains = [self.base.domains[kind]] if kind else list(self.base.domains.values())
            found = [each for domain in domains if (each := domain.find(term.name)) is not None]
            if len(found) > 1:
                raise DataError(f"{term} is an entity of several types and cannot stand in a template")
            return np.full(size, found[0] if found else -1)
        return np.full(size, float(term.value))

    def _compared(self, term: Term, frame: Frame, rows: Columns) -> npt.NDArray[np.generic]:
        return self._values(term, frame.variables, rows, "")


def _places(arguments: Sequence[Variable] | None, among: Sequence[Term]) -> Hidden | None:
    if arguments is None or any(each not in among for each in arguments):
        return None
    return tuple(list(among).index(each) for each in arguments)


def _filled(unit: Atom | Membership, name: str) -> Atom | Membership:
    if isinstance(unit, Membership):
        return unit
    return Atom(name, unit.args)


def _checks(expression: Expression) -> list[Comparison]:
    match expression:
        case Check(comparison):
            return [comparison]
        case Flip(part):
            return _checks(part)
        case Gate(parts=parts, checks=checks):
            return [*checks, *(each for part in parts for each in _checks(part))]
    return []


def _joined(parts: Sequence[npt.NDArray[np.generic]]) -> Tensor:
    return torch.from_numpy(np.concatenate([np.empty(0, dtype=np.int64), *parts]).astype(np.int64))
