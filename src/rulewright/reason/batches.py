"""Derivations of one shape, run as one statement: predicates and constants become columns of a table of rules.

Thousands of mined rules have a dozen shapes, and a database joins a table of rules with the facts far quicker than it
plans thousands of statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rulewright.data import KnowledgeBase, signature
from rulewright.engine import SQLEngine
from rulewright.engine.sql import Column, Join, TableNames
from rulewright.errors import DataError
from rulewright.logic import Atom, Comparison, Head, Literal, Membership, PredicateVariable, Symbol, Term, Variable
from rulewright.reason.program import Derivation, positive_atoms

_HEAD = PredicateVariable("H")


@dataclass(frozen=True)
class Batch:
    """Derivations with one outline, and the table ``name`` that the engine holds of them.

    The table has a row ``i`` for each: ``d`` its place in the program, ``n`` the number of its source, ``s`` its
    confidence, and where the outline has holes ``h`` for the head's predicate, ``p0 …`` for those of the body and
    ``c0 …`` for constants.
    """

    name: str
    head: Head
    body: tuple[Literal, ...]
    derivations: tuple[Derivation, ...]
    columns: dict[str, Column]

    @cached_property
    def predicates(self) -> tuple[frozenset[str], ...]:
        """For each positive atom of the body, the predicates that it has in the derivations."""
        rows = ([str(unit.predicate) for unit in positive_atoms(each.body)] for each in self.derivations)
        return tuple(frozenset(column) for column in zip(*rows, strict=True))

    def signature(self, kb: KnowledgeBase) -> str:
        """Return the signature of the head."""
        return "e" * len(self.head.args) if self.is_open else signature(kb.predicate(str(self.head.predicate)))

    @property
    def is_open(self) -> bool:
        """Whether the outline has holes: one for the head's predicate, for those of the body and for constants."""
        return self.head.predicate == _HEAD

    def join(
        self,
        kb: KnowledgeBase,
        tables: Sequence[TableNames | None] | None = None,
        absent: TableNames | None = None,
        given: Mapping[Variable, tuple[str, str]] | None = None,
    ) -> Join:
        """Join the rules with the facts of the body: those known, or for each positive atom those of another table.

        ``given`` has the values, with their types, of variables that are known beforehand.
        """
        join = Join(kb, sources=[f"{self.name} AS r"])
        for name in self.columns:
            if name[0] == "c":
                join.places[Variable(name.upper())], join.types[Variable(name.upper())] = f"r.{name}", ""
            elif name[0] in "hp":
                join.predicates[PredicateVariable(name.upper())] = f"r.{name}"
        for variable, (value, kind) in (given or {}).items():
            join.places[variable], join.types[variable] = value, kind
        try:
            self._fill(join, tables, absent)
        except DataError as error:
            raise self._named(error) from None
        return join

    def _fill(self, join: Join, tables: Sequence[TableNames | None] | None, absent: TableNames | None) -> None:
        atoms = positive_atoms(self.body)
        for unit, table in zip(atoms, tables or [None] * len(atoms), strict=True):
            join.add(unit, table)
        for literal in self.body:
            if isinstance(literal.unit, Comparison):
                each = literal.unit if literal.positive else literal.unit.opposite()
                join.conditions.append(join.comparison(each))
            elif not literal.positive:
                join.conditions.append(join.absent(literal.unit, table=absent))

    def head_places(self, join: Join) -> list[str]:
        """Return the expressions of the head's predicate, its arguments and, where it has one, its class."""
        if self.is_open:
            return ["r.h", *(join.expression(term, "") for term in self.head.args)]
        name = str(self.head.predicate)
        try:
            places = [str(join.kb.predicate_index(name)), *join.head(self.head)]
        except DataError as error:
            raise self._named(error) from None
        if isinstance(self.head, Membership):
            places.append(str((join.kb.predicate(name).classes or ()).index(self.head.classes[0])))
        return places

    def _named(self, error: DataError) -> DataError:
        return DataError(f"{error} — in: {self.derivations[0].source}")


def batches(
    derivations: Iterable[tuple[int, Derivation]], kb: KnowledgeBase, engine: SQLEngine, prefix: str = "rule"
) -> list[Batch]:
    """Group derivations, given with their places, by shape; the engine is given the table of each group."""
    groups: dict[object, list[tuple[int, Derivation, _Outline]]] = {}
    for place, derivation in derivations:
        outline = _Outline(kb)
        groups.setdefault(outline.of(derivation) or place, []).append((place, derivation, outline))
    found = []
    for key, members in groups.items():
        columns: dict[str, Column] = {
            "i": np.arange(len(members), dtype=np.int32),
            "d": np.array([place for place, _, _ in members], dtype=np.int32),
            "n": np.array([derivation.number for _, derivation, _ in members], dtype=np.int32),
            "s": np.array([derivation.confidence for _, derivation, _ in members]),
        }
        if isinstance(key, tuple):
            head, body = key
            columns["h"] = np.array(
                [kb.predicate_index(str(each.head.predicate)) for _, each, _ in members], dtype=np.int32
            )
            for letter in "pc":
                rows = np.array([outline.holes[letter] for _, _, outline in members], dtype=np.int32)
                columns |= {f"{letter}{place}": rows[:, place] for place in range(rows.shape[1])}
        else:
            head, body = members[0][1].head, members[0][1].body
        name = f"{prefix}_{members[0][0]}"
        engine.put(name, columns)
        found.append(Batch(name, head, body, tuple(derivation for _, derivation, _ in members), columns))
    return found


class _SpecialError(Exception):
    """A derivation that must be run by itself."""


class _Outline:
    """What is left of a derivation without the names of its predicates, constants and variables."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self.kb = kb
        self.holes: dict[str, list[int]] = {"p": [], "c": []}
        self._variables: dict[Variable, Variable] = {}
        self._types: dict[Variable, str] = {}

    def of(self, derivation: Derivation) -> tuple[Head, tuple[Literal, ...]] | None:
        """Return head and body as an outline, or None.

        Classes and numbers have no columns in the table of rules; and what is wrong with a rule, an engine says best
        that is given the rule itself.
        """
        try:
            atoms = {each: self._atom(each.unit) for each in derivation.body if not isinstance(each.unit, Comparison)}
            body: list[Literal] = []
            for each in derivation.body:
                unit = self._comparison(each.unit) if isinstance(each.unit, Comparison) else atoms[each]
                body.append(Literal(unit, each.positive))
            before = len(self.holes["c"])
            head = self._atom(derivation.head, _HEAD)
        except _SpecialError:
            return None
        return None if -1 in self.holes["c"][before:] else (head, tuple(body))

    def _atom(self, unit: Atom | Membership, hole: PredicateVariable | None = None) -> Atom:
        declaration = self.kb.predicate(str(unit.predicate))
        if isinstance(unit, Membership) or signature(declaration) != "e" * len(unit.args):
            raise _SpecialError
        if hole is None:
            hole = PredicateVariable(f"P{len(self.holes['p'])}")
            self.holes["p"].append(self.kb.predicate_index(declaration.name))
        return Atom(hole, tuple(map(self._term, unit.args, declaration.types)))

    def _term(self, term: Term, kind: str) -> Variable:
        if isinstance(term, Variable):
            if self._types.setdefault(term, kind) != kind:
                raise _SpecialError
            return self._variables.setdefault(term, Variable(f"V{len(self._variables)}"))
        if not isinstance(term, Symbol):
            raise _SpecialError
        found = self.kb.domains[kind].find(term.name)
        self.holes["c"].append(-1 if found is None else found)  # no entity has the number of one that is not there
        return Variable(f"C{len(self.holes['c']) - 1}")

    def _comparison(self, unit: Comparison) -> Comparison:
        kinds = [self._types[term] for term in unit.args if isinstance(term, Variable) and term in self._types]
        if unit.operator not in ("=", "!=") or not kinds:
            raise _SpecialError
        left, right = (
            self._variables[term] if isinstance(term, Variable) else self._term(term, kinds[0]) for term in unit.args
        )
        return Comparison(unit.operator, left, right)
