"""Collecting facts one by one, with their labels, before they become columns."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

import numpy as np

from rulewright.data.facts import Column, check_arguments, group_by_signature
from rulewright.data.knowledge_base import KnowledgeBase, Value
from rulewright.data.vocabulary import EntityColumn, lay_out_domains
from rulewright.errors import DataError, unknown_name
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration, quote

ENTITY_TYPE = "entity"
"""The type of every argument that no declaration gives another."""

NO_WORLD = -1

MAIN = ""
"""The name under which facts outside every split are collected."""


class KnowledgeBaseBuilder:
    """Collects declarations, entities and facts; `build` makes the knowledge base.

    A fact that contradicts an earlier one or breaks a declaration is refused at once, so that a reader can
    name its line; a repeated fact is counted and dropped. Where there are worlds, every entity belongs to one,
    but for those of ``shared`` types, which facts of all worlds may name.

    >>> builder = KnowledgeBaseBuilder()
    >>> builder.declare(PredicateDeclaration("label", ("token",), ("b", "o")))
    >>> builder.add("label", ["t1"], value="b")
    >>> builder.add("next", ["t1", "t2"], truth=False)
    >>> builder.build()
    KnowledgeBase(3 entities, 2 predicates, 1 fact, 1 observed false)
    """

    def __init__(
        self,
        predicates: Iterable[PredicateDeclaration] = (),
        *,
        closed: Iterable[str] = (),
        shared: Iterable[str] = (),
    ) -> None:
        self._declared: dict[str, PredicateDeclaration] = {}
        self._fixed: set[str] = set()
        self._closed = list(closed)
        self._shared = set(shared)
        self._entities: dict[str, dict[str, int]] = {}
        self._entity_worlds: dict[str, list[int]] = {}
        self._worlds: dict[str, int] = {}
        # split → predicate → the coded arguments → False, True or the index of the class
        self._facts: dict[str, dict[str, dict[tuple[float, ...], int]]] = {MAIN: {}}
        self._duplicates: dict[str, int] = {}
        for declaration in predicates:
            self.declare(declaration)

    def declare(self, declaration: PredicateDeclaration) -> None:
        """Declare a predicate's types and classes, before its first fact."""
        check_arguments(declaration)
        name = declaration.name
        known = self._declared.get(name)
        if known is not None and known != declaration:
            reason = "declared as" if name in self._fixed else "used before as"
            raise DataError(f"{name} was {reason} {known}, cannot be {declaration}")
        self._declared[name] = declaration
        self._fixed.add(name)
        for type_name in declaration.types:
            if type_name != NUMBER_TYPE:
                self._entities.setdefault(type_name, {})
                self._entity_worlds.setdefault(type_name, [])

    def close(self, name: str) -> None:
        """Declare that what is not a fact of this predicate is false."""
        self._closed.append(name)

    def share(self, type: str) -> None:
        """Declare that the entities of a type belong to no world, before the first of them."""
        if self._entities.get(type):
            raise DataError(f"type {type} has entities already; share it before its first fact")
        self._shared.add(type)

    def split(self, name: str) -> None:
        """Make a split known, whether or not it will have facts."""
        self._facts.setdefault(name, {})

    def world(self, name: str) -> None:
        """Make a world known, in order, whether or not it will have facts."""
        self._worlds.setdefault(name, len(self._worlds))

    def entity(self, label: str, *, type: str = ENTITY_TYPE, world: str | None = None) -> int:
        """Make an entity known; returns its position among the entities of its type."""
        if type == NUMBER_TYPE:
            raise DataError(f"{NUMBER_TYPE} is the type of numeric arguments and has no entities, got {label!r}")
        world = None if type in self._shared else world
        position = self._find(label, type, world)
        return self._enter(label, type, world) if position is None else position

    def _find(self, label: str, type: str, world: str | None) -> int | None:
        """Return the position of an entity, None where it is new; refuse one that stands in another world."""
        known = self._entities.get(type)
        position = None if known is None else known.get(label)
        if position is not None:
            world_index = self._entity_worlds[type][position]
            if world_index != (NO_WORLD if world is None else self._worlds.get(world)):
                known_world = "no world" if world_index == NO_WORLD else f"world {[*self._worlds][world_index]!r}"
                wanted = "no world" if world is None else f"world {world!r}"
                raise DataError(
                    f"{label!r} belongs to {known_world} and cannot stand in {wanted}: no fact crosses worlds"
                )
        return position

    def _enter(self, label: str, type: str, world: str | None) -> int:
        known = self._entities.setdefault(type, {})
        position = known.setdefault(label, len(known))
        worlds = self._entity_worlds.setdefault(type, [])
        if position == len(worlds):  # else it is the second time in one fact
            worlds.append(NO_WORLD if world is None else self._worlds.setdefault(world, len(self._worlds)))
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
        declaration = self._declared.get(predicate)
        if declaration is None:
            if value is not None:
                raise DataError(f"{predicate} has classes; declare them first: predicate {predicate}(…) in {{…}}.")
            types = tuple(ENTITY_TYPE if isinstance(arg, str) else NUMBER_TYPE for arg in args)
            declaration = PredicateDeclaration(predicate, types)
        if len(args) != declaration.arity:
            raise DataError(f"{quote(predicate)} has {declaration.arity} arguments, got {len(args)}")
        outcome = _encode_outcome(declaration, truth, value)
        code = self._encode(declaration, args, world)
        if predicate not in self._declared:
            self.declare(declaration)
            self._fixed.discard(predicate)
        facts = self._facts.setdefault(split, {}).setdefault(predicate, {})
        known = facts.get(code)
        if known is None:
            facts[code] = outcome
        elif known == outcome:
            self._duplicates[split] = self._duplicates.get(split, 0) + 1
        else:
            shown = f"{quote(predicate)}({', '.join(quote(arg) if isinstance(arg, str) else str(arg) for arg in args)})"
            if declaration.classes is None:
                was, now = ("true", "false") if known else ("false", "true")
            else:
                was, now = (repr(declaration.classes[class_index]) for class_index in (known, outcome))
            raise DataError(f"contradictory facts: {shown} was {was} above and is {now} here")

    def _encode(self, declaration: PredicateDeclaration, args: Sequence[Value], world: str | None) -> tuple[float, ...]:
        """Encode arguments; entities are entered only when all are right: a refused fact leaves no trace."""
        code: list[float] = []
        new: list[int] = []
        for type_name, arg in zip(declaration.types, args, strict=True):
            argument = f"argument {len(code) + 1} of {quote(declaration.name)}"
            if type_name == NUMBER_TYPE and isinstance(arg, str):
                raise DataError(f"{argument} is a number, got {arg!r}")
            if type_name != NUMBER_TYPE and not isinstance(arg, str):
                raise DataError(f"{argument} has type {type_name}, got the number {arg}")
            if isinstance(arg, str):
                position = self._find(arg, type_name, None if type_name in self._shared else world)
                if position is None:
                    new.append(len(code))
                code.append(position or 0)
            elif abs(arg) <= sys.float_info.max:
                code.append(float(arg))
            else:
                raise DataError(f"{argument} must be finite, got {arg}")
        for position in new:
            type_name = declaration.types[position]
            code[position] = self._enter(str(args[position]), type_name, None if type_name in self._shared else world)
        return tuple(code)

    def build(self) -> KnowledgeBase:
        """Make the knowledge base."""
        for name, labels in self._entities.items():
            if self._worlds and name not in self._shared and NO_WORLD in self._entity_worlds[name]:
                stray = [*labels][self._entity_worlds[name].index(NO_WORLD)]
                raise DataError(
                    f"{stray!r} belongs to no world while others do; put every fact into a world, or share type {name}"
                )
        domains = lay_out_domains((name, [*labels], self._worlds_of(name)) for name, labels in self._entities.items())
        starts = {name: domain.start for name, domain in domains.items()}
        bases = {}
        for split, facts in self._facts.items():
            columns = {name: _build_columns(self._declared[name], rows, starts) for name, rows in facts.items()}
            bases[split] = KnowledgeBase(
                domains,
                self._declared.values(),
                group_by_signature(self._declared, {name: true for name, (true, _) in columns.items()}),
                group_by_signature(
                    self._declared, {name: false for name, (_, false) in columns.items() if len(false[0])}
                ),
                closed=[name for name in self._closed if name in self._declared],
                worlds=[*self._worlds],
                duplicates=self._duplicates.get(split, 0),
            )
        main = bases.pop(MAIN)
        return main.with_splits(bases) if bases else main

    def _worlds_of(self, type: str) -> EntityColumn | None:
        if not self._worlds or type in self._shared:
            return None
        return np.array(self._entity_worlds[type], dtype=np.int32)


def _encode_outcome(declaration: PredicateDeclaration, truth: bool, value: str | None) -> int:
    if declaration.classes is None:
        if value is not None:
            raise DataError(f"{quote(declaration.name)} has no classes, got {value!r}")
        return int(truth)
    if value is None or not truth:
        raise DataError(f"{quote(declaration.name)} is multi-class: a fact of it names one class")
    if value not in declaration.classes:
        raise unknown_name(f"class of {quote(declaration.name)}", value, declaration.classes)
    return declaration.classes.index(value)


def _build_columns(
    declaration: PredicateDeclaration, rows: dict[tuple[float, ...], int], starts: dict[str, int]
) -> tuple[list[Column], list[Column]]:
    """Return the columns of the true facts and of the false ones."""
    outcome = np.fromiter(rows.values(), dtype=np.int32, count=len(rows))
    codes = np.array([*rows], dtype=np.float64).reshape(len(rows), declaration.arity)
    columns: list[Column] = [
        column if type_name == NUMBER_TYPE else column.astype(np.int32) + np.int32(starts[type_name])
        for type_name, column in zip(declaration.types, codes.T, strict=True)
    ]
    if declaration.classes is not None:
        return [*columns, outcome], [column[:0] for column in [*columns, outcome]]
    true = outcome == 1
    return [column[true] for column in columns], [column[~true] for column in columns]
