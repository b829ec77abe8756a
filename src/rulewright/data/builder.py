"""Collecting facts one by one, with their labels, before they become columns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rulewright.data.facts import Column, group_by_signature
from rulewright.data.knowledge_base import KnowledgeBase, Value
from rulewright.data.vocabulary import laid_out
from rulewright.errors import DataError, unknown_name
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration

ENTITY_TYPE = "entity"
"""The type of every argument that no declaration gives another."""

MAIN = ""
"""The name under which facts outside every split are collected."""


class KnowledgeBaseBuilder:
    """Collects declarations, entities and facts; `build` makes the knowledge base.

    A fact that contradicts an earlier one or breaks a declaration is refused at once, so that a reader can
    name its line; a repeated fact is counted and dropped.

    >>> builder = KnowledgeBaseBuilder()
    >>> builder.declare(PredicateDeclaration("label", ("token",), ("b", "o")))
    >>> builder.add("label", ["t1"], value="b")
    >>> builder.add("next", ["t1", "t2"], truth=False)
    >>> builder.build()
    KnowledgeBase(3 entities, 2 predicates, 1 facts, 1 observed false)
    """

    def __init__(self, predicates: Iterable[PredicateDeclaration] = (), *, closed: Iterable[str] = ()) -> None:
        self._declared: dict[str, PredicateDeclaration] = {}
        self._fixed: set[str] = set()
        self._closed = list(closed)
        self._entities: dict[str, dict[str, int]] = {}
        self._entity_worlds: dict[str, list[int]] = {}
        self._worlds: dict[str, int] = {}
        # split → predicate → the coded arguments → False, True or the number of the class
        self._facts: dict[str, dict[str, dict[tuple[float, ...], int]]] = {MAIN: {}}
        self.duplicates = 0
        for declaration in predicates:
            self.declare(declaration)

    def declare(self, declaration: PredicateDeclaration) -> None:
        """Declare a predicate's types and classes, before its first fact."""
        name = declaration.name
        known = self._declared.get(name)
        if known is not None and known != declaration:
            reason = "declared as" if name in self._fixed else "used before as"
            raise DataError(f"{name} was {reason} {known}, cannot be {declaration}")
        self._declared[name] = declaration
        self._fixed.add(name)
        for each in declaration.types:
            if each != NUMBER_TYPE:
                self._entities.setdefault(each, {})
                self._entity_worlds.setdefault(each, [])

    def close(self, name: str) -> None:
        """Declare that what is not a fact of this predicate is false."""
        self._closed.append(name)

    def world(self, name: str) -> None:
        """Make a world known, in order, whether or not it will have facts."""
        self._worlds.setdefault(name, len(self._worlds))

    def entity(self, label: str, *, type: str = ENTITY_TYPE, world: str | None = None) -> int:
        """Make an entity known; returns its position among the entities of its type."""
        known = self._entities.setdefault(type, {})
        worlds = self._entity_worlds.setdefault(type, [])
        number = -1 if world is None else self._worlds.setdefault(world, len(self._worlds))
        position = known.setdefault(label, len(known))
        if position == len(worlds):
            worlds.append(number)
        elif worlds[position] != number:
            here = "no world" if world is None else f"world {world!r}"
            names = [*self._worlds]
            there = "no world" if worlds[position] < 0 else f"world {names[worlds[position]]!r}"
            raise DataError(f"{label!r} belongs to {there} and cannot stand in {here}: no fact crosses worlds")
        return position

    def add(
        self,
        predicate: str,
        args: Sequence[Value],
        *,
        truth: bool = True,
        value: str | None = None,
        world: str | None = None,
        split: str = MAIN,
    ) -> None:
        """Add a fact: true, observed false, or with ``value`` the class of a multi-class predicate."""
        declaration = self._declared.get(predicate) or self._inferred(predicate, args, value)
        if len(args) != declaration.arity:
            raise DataError(f"{predicate} has {declaration.arity} arguments, got {len(args)}")
        code = tuple(self._code(declaration, place, arg, world) for place, arg in enumerate(args))
        outcome = self._outcome(declaration, truth, value)
        facts = self._facts.setdefault(split, {}).setdefault(predicate, {})
        known = facts.get(code)
        if known is None:
            facts[code] = outcome
        elif known == outcome:
            self.duplicates += 1
        else:
            shown = f"{predicate}({', '.join(map(str, args))})"
            was, now = (self._spoken(declaration, each) for each in (known, outcome))
            raise DataError(f"contradictory facts: {shown} was {was} above and is {now} here")

    def _inferred(self, name: str, args: Sequence[Value], value: str | None) -> PredicateDeclaration:
        if value is not None:
            raise DataError(f"{name} has classes; declare them first: predicate {name}(…) in {{…}}.")
        types = tuple(ENTITY_TYPE if isinstance(arg, str) else NUMBER_TYPE for arg in args)
        declaration = PredicateDeclaration(name, types)
        self.declare(declaration)
        self._fixed.discard(name)
        return declaration

    def _code(self, declaration: PredicateDeclaration, place: int, arg: Value, world: str | None) -> float:
        kind = declaration.types[place]
        if kind == NUMBER_TYPE:
            if isinstance(arg, str):
                raise DataError(f"argument {place + 1} of {declaration.name} is a number, got {arg!r}")
            return float(arg)
        if not isinstance(arg, str):
            raise DataError(f"argument {place + 1} of {declaration.name} is a {kind}, got the number {arg}")
        return self.entity(arg, type=kind, world=world)

    def _outcome(self, declaration: PredicateDeclaration, truth: bool, value: str | None) -> int:
        if declaration.classes is None:
            if value is not None:
                raise DataError(f"{declaration.name} has no classes, got {value!r}")
            return int(truth)
        if value is None or not truth:
            raise DataError(f"{declaration.name} is multi-class: a fact of it names one class")
        if value not in declaration.classes:
            raise unknown_name(f"class of {declaration.name}", value, declaration.classes)
        return declaration.classes.index(value)

    @staticmethod
    def _spoken(declaration: PredicateDeclaration, outcome: int) -> str:
        return str(bool(outcome)).lower() if declaration.classes is None else repr(declaration.classes[outcome])

    def build(self) -> KnowledgeBase:
        """Make the knowledge base."""
        for name, labels in self._entities.items():
            if self._worlds and -1 in self._entity_worlds[name]:
                stray = [*labels][self._entity_worlds[name].index(-1)]
                raise DataError(f"{stray!r} belongs to no world while others do; put every fact into a world")
        domains = laid_out(
            (name, [*labels], np.array(self._entity_worlds[name], dtype=np.int32) if self._worlds else None)
            for name, labels in self._entities.items()
        )
        starts = {name: domain.start for name, domain in domains.items()}
        bases = {}
        for split, facts in self._facts.items():
            columns = {name: self._columns(self._declared[name], rows, starts) for name, rows in facts.items()}
            bases[split] = KnowledgeBase(
                domains,
                self._declared.values(),
                group_by_signature(self._declared, {name: true for name, (true, _) in columns.items()}),
                group_by_signature(
                    self._declared, {name: false for name, (_, false) in columns.items() if len(false[0])}
                ),
                closed=[name for name in self._closed if name in self._declared],
                worlds=[*self._worlds],
                duplicates=self.duplicates if split == MAIN else 0,
            )
        main = bases.pop(MAIN)
        return main.with_splits(bases) if bases else main

    def _columns(
        self, declaration: PredicateDeclaration, rows: dict[tuple[float, ...], int], starts: dict[str, int]
    ) -> tuple[list[Column], list[Column]]:
        outcome = np.fromiter(rows.values(), dtype=np.int32, count=len(rows))
        codes = np.array([*rows], dtype=np.float64).reshape(len(rows), declaration.arity)
        columns: list[Column] = []
        for place, kind in enumerate(declaration.types):
            column: Column = codes[:, place]
            columns.append(column if kind == NUMBER_TYPE else column.astype(np.int32) + np.int32(starts[kind]))
        if declaration.classes is not None:
            return [*columns, outcome], [column[:0] for column in [*columns, outcome]]
        true = outcome == 1
        return [column[true] for column in columns], [column[~true] for column in columns]
