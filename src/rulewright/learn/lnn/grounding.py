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
from rulewright.learn.lnn.template import (
    Check,
    Frame,
    Gate,
    HeadNode,
    Leaf,
    TemplateProgram,
    find_looks,
    find_parts,
)
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


def encode_rows(columns: Sequence[npt.NDArray[Any]]) -> Ids:
    """Return a code for each row, the same where rows are; codes follow the order of rows.

    >>> encode_rows([np.array([7, 7, 3]), np.array([1.5, 0.5, 1.5])]).tolist()
    [2, 1, 0]
    """
    codes = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        values, value_index = np.unique(column, return_inverse=True)
        codes = codes * max(1, len(values)) + value_index.reshape(-1)
        codes = np.unique(codes, return_inverse=True)[1].reshape(-1)  # stays below the number of rows
    return codes


def find_rows(table: Sequence[npt.NDArray[Any]], wanted: Sequence[npt.NDArray[Any]]) -> Ids:
    """Return the position in a table of each wanted row; −1 where the table lacks it.

    >>> find_rows([np.array([4, 6])], [np.array([6, 5])]).tolist()
    [1, -1]
    """
    size = len(table[0])
    codes = encode_rows([np.concatenate(pair) for pair in zip(table, wanted, strict=True)])
    positions = np.full(int(codes.max(initial=0)) + 1, -1, dtype=np.int64)
    positions[codes[:size]] = np.arange(size)
    return positions[codes[size:]]


def distinct_rows(columns: Sequence[npt.NDArray[Any]]) -> tuple[Columns, Ids]:
    """Return the different rows, in order, and for each given row which of them it is."""
    codes = encode_rows(columns)
    _, first = np.unique(codes, return_index=True)
    return tuple(column[first] for column in columns), codes


def compare_columns(operator: str, left: npt.NDArray[Any], right: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Compare row by row; a number and an entity are never equal."""
    if (left.dtype.kind == "f") != (right.dtype.kind == "f"):
        return np.full(len(left), operator == "!=")
    holds: npt.NDArray[np.bool_] = _COMPARED[operator](left, right)
    return holds


MAX_ROWS = 20_000_000
"""The most rows that a body may have."""

HiddenColumns = tuple[int, ...]  # the columns of a node that are the arguments of the fact to be predicted
_WANTED = "wanted facts"


@dataclass(frozen=True)
class OwnFacts:
    """Rows that look up the predicted fact itself: ``rows`` once, and for each such fact the row's position in them and
    the position of the member that it is a fact of."""

    rows: Tensor
    positions: Tensor
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
    own: Mapping[HiddenColumns, tuple[OwnFacts | None, ...]]
    checks: Mapping[Comparison, Tensor]
    facts: Tensor


@dataclass(frozen=True)
class TemplateGrounding:
    """A program over facts: the tables of its nodes, and how their truth values are gathered.

    ``heads`` has for each clause of a head the fact of it that every fact is (−1: none).
    ``partly_hidden`` names nodes that rest on facts of the target, but not on which one is predicted: there, a fact can
    still be evidence for itself.
    """

    program: TemplateProgram
    tables: Mapping[str, Columns]
    leaves: Mapping[str, GroundLeaf]
    frames: Mapping[str, GroundFrame]
    heads: Mapping[str, tuple[Tensor, ...]]
    partly_hidden: tuple[str, ...]
    constants: dict[tuple[str, HiddenColumns | None], Tensor] = field(
        default_factory=dict
    )  # filled when first computed

    @property
    def facts(self) -> Columns:
        """The facts that the template can give for its target, as columns."""
        return self.tables[self.program.root]

    def find(self, columns: Sequence[npt.NDArray[np.generic]]) -> Tensor:
        """Return the positions of facts given as columns; −1 where the template cannot give one."""
        return torch.from_numpy(find_rows(self.facts, columns))


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
        self.modes: dict[str, set[HiddenColumns | None]] = {}
        self._visit(program.root, tuple(range(len(program.types[program.root]))))
        new = [PredicateDeclaration(name, types) for name, types in program.types.items()]
        new.append(PredicateDeclaration(_WANTED, program.types[program.root]))
        self.kb = KnowledgeBase(kb.domains, [*kb.predicates.values(), *new], kb.tables(), closed=kb.closed)
        self.tables: dict[str, Columns] = {}
        self.leaves: dict[str, GroundLeaf] = {}
        self.frames: dict[str, GroundFrame] = {}
        self.heads: dict[str, tuple[Tensor, ...]] = {}

    def _visit(self, name: str, hidden: HiddenColumns | None) -> None:
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
        arguments = None if hidden is None else [node.columns[position] for position in hidden]
        if isinstance(node, Frame):
            for look in find_looks(node.expression):
                self._visit(look.node, find_arguments(arguments, look.variables))
        else:
            for member in node.inputs:
                self._visit(member, find_arguments(arguments, node.unit.args))

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
            for look in find_looks(frame.expression)
            if None in self.modes[look.node] and self._beyond_hiding(look.node, own)
        ]
        return TemplateGrounding(
            self.program, self.tables, self.leaves, self.frames, self.heads, tuple(dict.fromkeys(partly))
        )

    def _beyond_hiding(self, name: str, own: frozenset[str]) -> bool:
        """Tell whether a node that does not know the predicted fact rests on its predicate through another node."""
        node = self.program.nodes[name]
        names = node.inputs if isinstance(node, Leaf) else (name,)  # a leaf's own members are hidden row by row
        return any(self.program.reaches(below, own) for below in names)

    def _insert(self, engine: Engine, name: str, columns: Columns) -> None:
        table = sql.table_name(signature(self.kb.predicates[name]))
        listed = ", ".join(f"a{position}" for position in range(len(columns)))
        engine.put("generated", {f"a{position}": column for position, column in enumerate(columns)})
        engine.append(table, f"SELECT {self.kb.predicate_index(name)} AS p, {listed} FROM generated")

    def _rows(self, engine: Engine, bodies: Sequence[sql.Body], variables: Sequence[Variable], what: str) -> Columns:
        rows = sum(engine.count(body) for body in bodies)
        if rows > MAX_ROWS:
            raise MemoryLimitError(
                f"the body of {what} has {rows:,} rows over these facts, more than {MAX_ROWS:,}; "
                "give its predicate variables smaller domains, or shorten it"
            )
        bindings = engine.run(" UNION ".join(sql.Join.of(body, self.kb).select_values(variables) for body in bodies))
        columns = [bindings[f"v{position}"] for position in range(len(variables))]
        order = np.lexsort(tuple(reversed(columns)))  # so that rows do not depend on how a database found them
        return tuple(column[order] for column in columns)

    def _leaf(self, engine: Engine, leaf: Leaf) -> None:
        parts: list[Columns] = []
        for member_name, is_derived in zip(leaf.members, leaf.derived, strict=True):
            name = self.program.nodes[member_name].name if is_derived else member_name
            unit = leaf.unit if isinstance(leaf.unit, Membership) else Atom(name, leaf.unit.args)
            parts.append(self._rows(engine, [[unit]], leaf.columns, str(unit)))
        stacked = [np.concatenate(columns) for columns in zip(*parts, strict=True)]
        table, table_rows = distinct_rows(stacked)
        self.tables[leaf.name] = table
        bounds = np.cumsum([0, *(len(columns[0]) for columns in parts)])
        order = sorted(range(len(leaf.members)), key=lambda member: leaf.derived[member])  # base facts come first
        rows = [table_rows[bounds[member] : bounds[member + 1]] for member in order]
        members = [np.full(len(part), member) for part, member in zip(rows, order, strict=True)]
        derived_facts = []
        for member in (member for member in order if leaf.derived[member]):
            arguments = [self._values(term, leaf.columns, parts[member], "") for term in leaf.unit.args]
            facts = find_rows(self.tables[leaf.members[member]], arguments)
            derived_facts.append((leaf.members[member], torch.from_numpy(facts)))
        base = sum(len(part) for part, member in zip(rows, order, strict=True) if not leaf.derived[member])
        self.leaves[leaf.name] = GroundLeaf(
            len(table[0]), _concatenate(rows), _concatenate(members), base, tuple(derived_facts)
        )

    def _frame(self, engine: Engine, frame: Frame) -> None:
        modes = self.modes[frame.name]
        extra: list[Literal] = []
        if self.wanted is not None and len(modes) == 1 and (only := next(iter(modes))) is not None:
            extra.append(Literal(Atom(_WANTED, tuple(frame.columns[position] for position in only))))
        bodies = [[*body, *extra] for body in frame.bodies()]
        rows = self._rows(engine, bodies, frame.variables, self.program.target)
        column = dict(zip(frame.variables, rows, strict=True))
        table, facts = distinct_rows([column[name] for name in frame.columns])
        self.tables[frame.name] = table
        looks = tuple(find_looks(frame.expression))
        indices = [find_rows(self.tables[look.node], [column[name] for name in look.variables]) for look in looks]
        own = {}
        for hidden in modes:
            if hidden is not None and self.own:
                predicted = [column[frame.columns[position]] for position in hidden]
                own[hidden] = tuple(
                    self._own(look.node, index, frame.variables, rows, predicted)
                    for look, index in zip(looks, indices, strict=True)
                )
        checks = {
            check: torch.from_numpy(
                compare_columns(check.operator, *(self._values(term, frame.variables, rows, "") for term in check.args))
            )
            for part in find_parts(frame.expression)
            if isinstance(part, Check | Gate)
            for check in ((part.comparison,) if isinstance(part, Check) else part.checks)
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
        declared = [self.base.predicates[name].types for name in leaf.members if name in self.base.predicates]
        types = declared[0] if declared else ("",) * len(leaf.unit.args)
        typed = zip(leaf.unit.args, types, strict=True)
        arguments = [self._values(term, variables, rows, type_name) for term, type_name in typed]
        own_rows, members = [], []
        for position, (member, derived) in enumerate(zip(leaf.members, leaf.derived, strict=True)):
            if derived or member not in self.own:
                continue
            fact = predicted[::-1] if self.own[member] else predicted
            same = (index >= 0) & np.logical_and.reduce([a == b for a, b in zip(arguments, fact, strict=True)])
            candidates = np.flatnonzero(same)
            ground = self.leaves[node]
            given = np.zeros(ground.size, dtype=bool)
            given[ground.rows[ground.members == position].numpy()] = True
            own_rows.append(candidates[given[index[candidates]]])
            members.append(np.full(len(own_rows[-1]), position))
        rows_found = np.concatenate([np.empty(0, dtype=np.int64), *own_rows])
        if not len(rows_found):
            return None
        unique, back = np.unique(rows_found, return_inverse=True)
        return OwnFacts(torch.from_numpy(unique), torch.from_numpy(back.reshape(-1)), _concatenate(members))

    def _head(self, head: HeadNode) -> None:
        parts = [self.tables[clause] for clause in head.clauses]
        table, _ = distinct_rows([np.concatenate(columns) for columns in zip(*parts, strict=True)])
        self.tables[head.name] = table
        self.heads[head.name] = tuple(torch.from_numpy(find_rows(part, table)) for part in parts)

    def _values(
        self, term: Term, variables: Sequence[Variable], rows: Columns, type_name: str
    ) -> npt.NDArray[np.generic]:
        if isinstance(term, Variable):
            return rows[list(variables).index(term)]
        size = len(rows[0])
        if isinstance(term, Symbol):
            domains = [self.base.domains[type_name]] if type_name else list(self.base.domains.values())
            indices = [index for domain in domains if (index := domain.find(term.name)) is not None]
            if len(indices) > 1:
                raise DataError(f"{term} is an entity of several types and cannot stand in a template")
            return np.full(size, indices[0] if indices else -1)
        return np.full(size, float(term.value))


def find_arguments(arguments: Sequence[Variable] | None, terms: Sequence[Term]) -> HiddenColumns | None:
    """Return the positions of the predicted fact's arguments among terms, or None where they are not all there."""
    if arguments is None or any(argument not in terms for argument in arguments):
        return None
    return tuple(list(terms).index(argument) for argument in arguments)


def _concatenate(parts: Sequence[npt.NDArray[np.generic]]) -> Tensor:
    return torch.from_numpy(np.concatenate([np.empty(0, dtype=np.int64), *parts]).astype(np.int64))
