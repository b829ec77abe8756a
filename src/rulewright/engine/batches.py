"""Rules of one shape run together: predicates and constants become columns of a table of rules.

Thousands of mined rules have a dozen shapes, and a database joins a table of rules with the facts far quicker than it
plans thousands of statements.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np

from rulewright.data import KnowledgeBase, signature
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
            atoms = {part: self._atom(part.unit) for part in derivation.body if not isinstance(part.unit, Comparison)}
            body = tuple(
                Literal(
                    self._comparison(part.unit) if isinstance(part.unit, Comparison) else atoms[part], part.positive
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
            hole = PredicateVariable(f"P{len(self.holes['p'])}")
            self.holes["p"].append(self.kb.predicate_index(declaration.name))
        return Atom(hole, tuple(map(self._term, unit.args, declaration.types)))

    def _term(self, term: Term, type_name: str) -> Variable:
        if isinstance(term, Variable):
            if self._types.setdefault(term, type_name) != type_name:
                raise _SpecialError
            return self._variables.setdefault(term, Variable(f"V{len(self._variables)}"))
        if not isinstance(term, Symbol):
            raise _SpecialError
        entity_index = self.kb.domains[type_name].find(term.name)
        self.holes["c"].append(-1 if entity_index is None else entity_index)  # -1: no such entity, so nothing matches
        return Variable(f"C{len(self.holes['c']) - 1}")

    def _comparison(self, unit: Comparison) -> Comparison:
        types = [self._types[term] for term in unit.args if isinstance(term, Variable) and term in self._types]
        if unit.operator not in ("=", "!=") or not types:
            raise _SpecialError
        left, right = (
            self._variables[term] if isinstance(term, Variable) else self._term(term, types[0]) for term in unit.args
        )
        return Comparison(unit.operator, left, right)
