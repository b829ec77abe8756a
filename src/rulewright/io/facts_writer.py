"""A knowledge base as the text of a ``.facts`` file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from rulewright.data import ENTITY_TYPE, KnowledgeBase
from rulewright.data.builder import MAIN
from rulewright.data.facts import Column
from rulewright.errors import DataError
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration
from rulewright.logic.printer import number, quote

_EMPTY = "% no facts\n"
_EXACT = 2.0**53


def to_text(kb: KnowledgeBase) -> str:
    """Return the text of a ``.facts`` file that holds all of a knowledge base.

    >>> print(to_text(KnowledgeBase.from_facts([("age", "ann", 42), ("likes", "ann", "Bob")])), end="")
    age(ann, 42).
    likes(ann, 'Bob').
    """
    predicates = all_predicates(kb)
    lines = [str(predicates[name]) for name in _to_declare(kb, predicates)]
    lines += [f"closed {quote(name)}." for name in predicates if name in kb.closed]
    lines += [f"shared {quote(kind)}." for kind, domain in kb.domains.items() if kb.worlds and domain.worlds is None]
    lonely = _lonely_entities(kb)
    for split, part in {MAIN: kb, **kb.splits}.items():
        if split != MAIN:
            lines.append(f"split {quote(split)}.")
        elif part is not kb:
            raise DataError("a split without a name cannot be written; name it")
        facts = _facts_by_world(part)
        for position, world in enumerate(part.worlds or [None]):
            inside = [*(lonely[position] if part is kb else ()), *facts[position]]
            if world is not None and (inside or part is kb):
                lines.append(f"world {quote(world)}.")
            lines += inside
    return "".join(f"{line}\n" for line in lines) or _EMPTY


def all_predicates(kb: KnowledgeBase) -> dict[str, PredicateDeclaration]:
    """Return the predicates of a knowledge base and its splits; refuse splits that disagree on one."""
    predicates = dict(kb.predicates)
    for split, part in kb.splits.items():
        for name, declaration in part.predicates.items():
            if predicates.setdefault(name, declaration) != declaration:
                raise DataError(f"split {split!r} has {declaration}, which elsewhere is {predicates[name]}")
    return predicates


def _to_declare(kb: KnowledgeBase, predicates: Mapping[str, PredicateDeclaration]) -> list[str]:
    """Name the predicates that the first fact would not give the same types, or the same place in the order."""
    needed = [name for name, each in predicates.items() if not _is_evident(kb, each)]
    in_order = not kb.worlds and needed == [*predicates][: len(needed)]
    return needed if in_order else [*predicates]


def _is_evident(kb: KnowledgeBase, declaration: PredicateDeclaration) -> bool:
    name = declaration.name
    used = name in kb.predicates and (kb.count(name) or kb.count(name, truth=False))
    return bool(used) and declaration.classes is None and {*declaration.types} <= {ENTITY_TYPE, NUMBER_TYPE}


def _facts_by_world(kb: KnowledgeBase) -> list[list[str]]:
    """Write the facts, those of each world apart; all in one where there are no worlds."""
    labels = {name: [quote(label) for label in domain.labels] for name, domain in kb.domains.items()}
    result: list[list[str]] = [[] for _ in kb.worlds or [None]]
    for declaration in kb.predicates.values():
        for truth in (True, False):
            columns = kb.columns(declaration.name, truth=truth)
            lines = _fact_lines(kb, declaration, columns, labels, "" if truth else "!")
            worlds = worlds_of(kb, declaration, columns)
            if worlds is None:
                result[0] += lines
            else:
                for world, line in zip(worlds.tolist(), lines, strict=True):
                    result[world].append(line)
    return result


def _fact_lines(
    kb: KnowledgeBase,
    declaration: PredicateDeclaration,
    columns: tuple[Column, ...],
    labels: Mapping[str, list[str]],
    sign: str,
) -> Iterator[str]:
    parts = []
    for kind, column in zip(declaration.types, columns, strict=False):
        if kind == NUMBER_TYPE:
            parts.append([_number(declaration, value) for value in column.tolist()])
        else:
            known = labels[kind]
            parts.append([known[position] for position in (column - kb.domains[kind].start).tolist()])
    prefix = f"{sign}{quote(declaration.name)}("
    if declaration.classes is None:
        return (f"{prefix}{', '.join(args)})." for args in zip(*parts, strict=True))
    classes = [quote(each) for each in declaration.classes]
    chosen = [classes[position] for position in columns[-1].tolist()]
    return (
        f"{prefix}{', '.join(args)}) in {{{each}}}."
        for each, args in zip(chosen, zip(*parts, strict=True), strict=True)
    )


def _number(declaration: PredicateDeclaration, value: float) -> str:
    if not math.isfinite(value):
        raise DataError(f"a fact of {declaration.name} has the number {value}; only finite ones can be written")
    return number(int(value) if value.is_integer() and abs(value) <= _EXACT else value)


def worlds_of(kb: KnowledgeBase, declaration: PredicateDeclaration, columns: tuple[Column, ...]) -> Column | None:
    """Return the number of the world of each fact, None where they belong to none."""
    for kind, column in zip(declaration.types, columns, strict=False):
        worlds = None if kind == NUMBER_TYPE else kb.domains[kind].worlds
        if worlds is not None:
            found: Column = worlds[column - kb.domains[kind].start]
            return found
    return None


def _lonely_entities(kb: KnowledgeBase) -> list[list[str]]:
    """Write an ``entity`` statement for every entity that no fact names, those of each world apart."""
    named: dict[str, set[str]] = {kind: set() for kind in kb.domains}
    for part in (kb, *kb.splits.values()):
        for declaration in part.predicates.values():
            for truth in (True, False):
                columns = part.columns(declaration.name, truth=truth)
                for kind, column in zip(declaration.types, columns, strict=False):
                    if kind != NUMBER_TYPE:
                        named.setdefault(kind, set()).update(part.domains[kind].labels_of(np.unique(column)))
    result: list[list[str]] = [[] for _ in kb.worlds or [None]]
    for kind, domain in kb.domains.items():
        suffix = "." if kind == ENTITY_TYPE else f": {quote(kind)}."
        for position, label in enumerate(domain.labels):
            if label not in named[kind]:
                world = 0 if domain.worlds is None else int(domain.worlds[position])
                result[world].append(f"entity {quote(label)}{suffix}")
    return result
