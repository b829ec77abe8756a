"""Rules of one shape run together: predicates and constants become columns of a table of rules.

Thousands of mined rules have a dozen shapes, and a database joins a table of rules with the facts far quicker than it
plans thousands of statements. For one fact even planning takes longer than the look at a few hundred facts; so the
joins that give one fact are done here, over sorted facts of one or two entities, for all rules of a batch at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids, expand_ranges
from rulewright.engine.sql import Column, Join, TableNames, positive_atoms, table_name
from rulewright.errors import DataError
from rulewright.logic import (
    Atom,
    Comparison,
    Head,
    Literal,
    Membership,
    PredicateVariable,
    Rule,
    Symbol,
    Term,
    Variable,
    WeightedFormula,
)

Source: TypeAlias = Rule | WeightedFormula
"""The statement that a derivation was read from."""

_HEAD = PredicateVariable("H")


@dataclass(frozen=True)
class Derivation:
    """One conjunctive body that gives facts for a head.

    ``source_index`` is the position of its statement among all; a fact that it gives scores ``confidence`` times the
    scores of the body's facts.
    """

    head: Head
    body: tuple[Literal, ...]
    source: Source
    source_index: int
    confidence: float = 1.0


@dataclass(frozen=True)
class RuleBatch:
    """Derivations of one shape, and their table for an engine to hold under ``name``.

    The table has a row ``i`` for each: ``d`` its index among all derivations, ``n`` that of its source, ``s`` its
    confidence. Where the shape ``is_open``, predicates and constants are columns too: ``h`` for the head's predicate,
    ``p0 …`` for those of the body and ``c0 …`` for constants; head and body have variables of those names.
    """

    name: str
    head: Head
    body: tuple[Literal, ...]
    derivations: tuple[Derivation, ...]
    columns: dict[str, Column]
    is_open: bool

    @cached_property
    def predicates(self) -> tuple[frozenset[str], ...]:
        """For each positive atom of the body, the predicates that it has in the derivations."""
        rows = ([str(unit.predicate) for unit in positive_atoms(rule.body)] for rule in self.derivations)
        return tuple(frozenset(column) for column in zip(*rows, strict=True))

    def head_signature(self, kb: KnowledgeBase) -> str:
        """Return the signature of the head."""
        return "e" * len(self.head.args) if self.is_open else signature(kb.predicate(str(self.head.predicate)))

    def join(
        self,
        kb: KnowledgeBase,
        tables: Sequence[TableNames] | None = None,
        absent_from: TableNames = table_name,
        given: Mapping[Variable, tuple[str, str]] | None = None,
    ) -> Join:
        """Join the rules with the facts of the body, as `Join.add_body` does.

        ``given`` has the values, with their types, of variables that are known beforehand.
        """
        join = Join(kb, sources=[f"{self.name} AS r"])
        for name in self.columns:
            if name[0] == "c":
                join.columns[Variable(name.upper())], join.types[Variable(name.upper())] = f"r.{name}", ""
            elif name[0] in "hp":
                join.predicates[PredicateVariable(name.upper())] = f"r.{name}"
        for variable, (value, type_name) in (given or {}).items():
            join.columns[variable], join.types[variable] = value, type_name
        try:
            join.add_body(self.body, tables, absent_from)
        except DataError as error:
            raise DataError(f"{error} — in: {self.derivations[0].source}") from None
        return join

    def express_head(self, join: Join) -> list[str]:
        """Return the expressions of the head's predicate, its arguments and, where it has one, its class."""
        if self.is_open:
            return ["r.h", *map(join.express, self.head.args)]
        name = str(self.head.predicate)
        try:
            expressions = [str(join.kb.predicate_index(name)), *join.express_head(self.head)]
        except DataError as error:
            raise DataError(f"{error} — in: {self.derivations[0].source}") from None
        if isinstance(self.head, Membership):
            expressions.append(str((join.kb.predicate(name).classes or ()).index(self.head.classes[0])))
        return expressions


def batch_derivations(
    derivations: Iterable[tuple[int, Derivation]], kb: KnowledgeBase, prefix: str = "rule"
) -> list[RuleBatch]:
    """Group derivations, given with their indices, by shape. Whoever runs a batch gives its engine the table."""
    groups: dict[object, list[tuple[int, Derivation, _Outline]]] = {}
    for index, derivation in derivations:
        outline = _Outline(kb, derivation)
        groups.setdefault(outline.shape or index, []).append((index, derivation, outline))
    batches = []
    for shape, members in groups.items():
        columns: dict[str, Column] = {
            "i": np.arange(len(members), dtype=np.int32),
            "d": np.array([index for index, _, _ in members], dtype=np.int32),
            "n": np.array([derivation.source_index for _, derivation, _ in members], dtype=np.int32),
            "s": np.array([derivation.confidence for _, derivation, _ in members]),
        }
        if isinstance(shape, tuple):
            head, body = shape
            columns["h"] = np.array(
                [kb.predicate_index(str(rule.head.predicate)) for _, rule, _ in members], dtype=np.int32
            )
            for letter in "pc":
                rows = np.array([outline.holes[letter] for _, _, outline in members], dtype=np.int32)
                columns |= {f"{letter}{position}": rows[:, position] for position in range(rows.shape[1])}
        else:
            head, body = members[0][1].head, members[0][1].body
        name, rules = f"{prefix}_{members[0][0]}", tuple(derivation for _, derivation, _ in members)
        batches.append(RuleBatch(name, head, body, rules, columns, isinstance(shape, tuple)))
    return batches


@cache
def _name_predicate(number: int) -> PredicateVariable:
    return PredicateVariable(f"P{number}")


@cache
def _name_variable(letter: str, number: int) -> Variable:
    return Variable(f"{letter}{number}")


class _SpecialError(Exception):
    """A derivation that must be run by itself."""


class _Outline:
    """The ``shape`` of a derivation, head and body without the names of predicates, constants and variables, or None.

    Classes and numbers have no columns in the table of rules; and what is wrong with a rule, an engine says best
    that is given the rule itself.
    """

    def __init__(self, kb: KnowledgeBase, derivation: Derivation) -> None:
        self.kb = kb
        self.holes: dict[str, list[int]] = {"p": [], "c": []}
        self.shape: tuple[Head, tuple[Literal, ...]] | None = None
        self._variables: dict[Variable, Variable] = {}
        self._types: dict[Variable, str] = {}
        try:
            # atoms first: they say of which types the variables of comparisons are
            units = [part.unit for part in derivation.body]
            atoms = iter([self._atom(unit) for unit in units if not isinstance(unit, Comparison)])
            body = tuple(
                Literal(
                    self._comparison(part.unit) if isinstance(part.unit, Comparison) else next(atoms), part.positive
                )
                for part in derivation.body
            )
            before = len(self.holes["c"])
            head = self._atom(derivation.head, _HEAD)
        except _SpecialError:
            return
        if -1 not in self.holes["c"][before:]:
            self.shape = head, body

    def _atom(self, unit: Head, hole: PredicateVariable | None = None) -> Atom:
        declaration = self.kb.predicate(str(unit.predicate))
        if isinstance(unit, Membership) or signature(declaration) != "e" * len(unit.args):
            raise _SpecialError
        if hole is None:
            hole = _name_predicate(len(self.holes["p"]))
            self.holes["p"].append(self.kb.predicate_index(declaration.name))
        return Atom(hole, tuple(map(self._term, unit.args, declaration.types)))

    def _term(self, term: Term, type_name: str) -> Variable:
        if isinstance(term, Variable):
            known = self._variables.get(term)
            if known is None:
                known = self._variables[term] = _name_variable("V", len(self._variables))
                self._types[term] = type_name
            elif self._types[term] != type_name:
                raise _SpecialError
            return known
        if not isinstance(term, Symbol):
            raise _SpecialError
        entity_index = self.kb.domains[type_name].find(term.name)
        self.holes["c"].append(-1 if entity_index is None else entity_index)  # -1: no such entity, so nothing matches
        return _name_variable("C", len(self.holes["c"]) - 1)

    def _comparison(self, unit: Comparison) -> Comparison:
        types = [self._types[term] for term in unit.args if isinstance(term, Variable) and term in self._types]
        if unit.operator not in ("=", "!=") or not types:
            raise _SpecialError
        left, right = (
            self._variables[term] if isinstance(term, Variable) else self._term(term, types[0]) for term in unit.args
        )
        return Comparison(unit.operator, left, right)


class FactIndex:
    """The facts of a knowledge base in two orders, by first and by second argument, each fact as one integer.

    ``usable`` says whether the integers are large enough for that.
    """

    def __init__(self, kb: KnowledgeBase) -> None:
        self._entities = max([1, *(domain.start + len(domain) for domain in kb.domains.values())])
        self.usable = len(kb.predicates) * self._entities**2 < np.iinfo(np.int64).max
        self._sorted: dict[tuple[int, int], Ids] = {}
        for arity in (1, 2) if self.usable else ():
            table = kb.tables().get("e" * arity)
            columns = [table.predicate, *table.columns] if table is not None else [np.empty(0)] * (arity + 1)
            predicates, *args = (np.asarray(column, dtype=np.int64) for column in columns)
            for first in range(arity):
                key = predicates * self._entities + args[first]
                if arity == 2:
                    key = key * self._entities + args[1 - first]
                self._sorted[arity, first] = np.sort(key)

    def holds(self, predicates: Ids, args: list[Ids]) -> npt.NDArray[np.bool_]:
        """Return for each row whether it is a fact."""
        known = self._sorted[len(args), 0]
        key = predicates
        for arg in args:
            key = key * self._entities + arg
        position = np.searchsorted(known, key)
        is_fact: npt.NDArray[np.bool_] = position < len(known)
        for arg in args:
            is_fact &= arg >= 0  # what is no entity has the index -1
        is_fact[is_fact] = known[position[is_fact]] == key[is_fact]
        return is_fact

    def ranges(self, predicates: Ids, arity: int, bound_argument: int | None, bound: Ids | None) -> tuple[Ids, Ids]:
        """Return where the facts of each row begin and end, by one bound argument or by the predicate alone."""
        known = self._sorted[arity, bound_argument or 0]
        low, width = predicates, self._entities**arity
        if bound is not None:
            low, width = predicates * self._entities + bound, self._entities ** (arity - 1)
        starts, ends = np.searchsorted(known, low * width), np.searchsorted(known, (low + 1) * width)
        return starts, ends if bound is None else np.where(bound < 0, starts, ends)

    def facts(self, arity: int, bound_argument: int | None, starts: Ids, ends: Ids) -> tuple[Ids, list[Ids]]:
        """Return the facts of ranges: which row each belongs to, and its arguments."""
        counts = ends - starts
        row = np.repeat(np.arange(len(starts)), counts)
        key = self._sorted[arity, bound_argument or 0][expand_ranges(starts, counts)]
        last = key % self._entities
        if arity == 1:
            return row, [last]
        before = key // self._entities % self._entities
        return row, [last, before] if bound_argument == 1 else [before, last]


def join_by_index(
    index: FactIndex, batch: RuleBatch, predicate: int, given: Mapping[Variable, int], fixed: Mapping[str, int]
) -> tuple[Ids, list[tuple[tuple[int, ...], ...]]] | None:
    """Join the rules of an open batch with facts for one head; None where an atom has more than two entities.

    The head is given by its predicate, what its variables stand for (``given``) and what constants must be
    (``fixed``). Returns for each instance its row in the batch's table, and the facts that the positive atoms are
    joined with: predicate and arguments.
    """
    units = [literal.unit for literal in batch.body if not isinstance(literal.unit, Comparison)]
    if not index.usable or any(len(unit.args) > 2 for unit in units):
        return None
    chosen = batch.columns["h"] == predicate
    for name, value in fixed.items():
        chosen = chosen & (batch.columns[name] == value)
    # A row for each instance so far: its rule, and the values of variables
    rules = np.flatnonzero(chosen)
    columns: dict[object, Ids] = {"rule": rules, **{term: np.full(len(rules), value) for term, value in given.items()}}
    predicates: dict[object, Column] = {}
    for name, column in batch.columns.items():
        if name[0] == "c":
            columns[Variable(name.upper())] = column[rules].astype(np.int64)
        elif name[0] == "p":
            predicates[PredicateVariable(name.upper())] = column.astype(np.int64)
    atoms = positive_atoms(batch.body)
    waiting = list(atoms)
    while waiting and len(columns["rule"]):
        columns = _join_atom(index, predicates, columns, waiting)
    if len(columns["rule"]) == 0:
        return columns["rule"], []
    for literal in batch.body:
        unit = literal.unit
        if isinstance(unit, Comparison):
            is_equal = columns[unit.left] == columns[unit.right]
            keep = is_equal == ((unit.operator == "=") == literal.positive)
        elif not literal.positive:
            keep = ~index.holds(predicates[unit.predicate][columns["rule"]], [columns[term] for term in unit.args])
        else:
            continue
        columns = {name: column[keep] for name, column in columns.items()}
    facts = []
    for unit in atoms:
        parts = predicates[unit.predicate][columns["rule"]], *(columns[term] for term in unit.args)
        facts.append(list(zip(*(part.tolist() for part in parts), strict=True)))
    return columns["rule"], list(zip(*facts, strict=True)) if facts else [()] * len(columns["rule"])


def _join_atom(
    index: FactIndex, predicates: dict[object, Column], columns: dict[object, Ids], waiting: list[Head]
) -> dict[object, Ids]:
    """Join, of the atoms that wait, the one with the fewest facts; one whose arguments are known only removes rows."""
    fewest: tuple[int, Head, int | None, Ids, Ids] | None = None
    for atom in waiting:
        bound = [position for position, term in enumerate(atom.args) if term in columns]
        if len(bound) == len(atom.args):
            waiting.remove(atom)
            keep = index.holds(predicates[atom.predicate][columns["rule"]], [columns[term] for term in atom.args])
            return {name: column[keep] for name, column in columns.items()}
        position, values = (bound[0], columns[atom.args[bound[0]]]) if bound else (None, None)
        starts, ends = index.ranges(predicates[atom.predicate][columns["rule"]], len(atom.args), position, values)
        count = int((ends - starts).sum())
        if fewest is None or count < fewest[0]:
            fewest = (count, atom, position, starts, ends)
    assert fewest is not None
    _, atom, position, starts, ends = fewest
    waiting.remove(atom)
    rows, args = index.facts(len(atom.args), position, starts, ends)
    columns = {name: column[rows] for name, column in columns.items()}
    for term, values in zip(atom.args, args, strict=True):
        columns.setdefault(term, values)
    if len(set(atom.args)) < len(atom.args):
        columns = {name: column[args[0] == args[1]] for name, column in columns.items()}
    return columns
