"""What must hold of columns that come from outside: ids of their type, one world a fact, no contradictions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rulewright.data.facts import Column, checked_signature, distinct_rows
from rulewright.data.vocabulary import Domain
from rulewright.errors import DataError
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration


def check_columns(
    declarations: Mapping[str, PredicateDeclaration],
    domains: Mapping[str, Domain],
    name: str,
    columns: Sequence[Column],
) -> None:
    """Refuse columns that are not ids of the declared types, finite numbers and class numbers, or cross worlds."""
    checked_signature(declarations, name, columns)
    if len(columns[0]) == 0:
        return
    declaration = declarations[name]
    worlds = None
    for place, column in enumerate(columns):
        kind = declaration.types[place] if place < declaration.arity else None
        if kind == NUMBER_TYPE:
            if not np.isfinite(column).all():
                raise DataError(f"argument {place + 1} of {name} must be finite numbers")
            continue
        domain = None if kind is None else domains[kind]
        first = 0 if domain is None else domain.start
        size = len(declaration.classes or ()) if domain is None else len(domain)
        low, high = int(column.min()), int(column.max())
        if low < first or high >= first + size:
            what = f"classes of {name}" if kind is None else f"ids of type {kind}"
            raise DataError(f"{what} are {first} … {first + size - 1}, got {low if low < first else high} in {name}")
        if domain is not None and domain.worlds is not None:
            here = domain.worlds[column - first]
            if worlds is not None and (here != worlds).any():
                raise DataError(f"a fact of {name} has arguments of two worlds; no fact crosses worlds")
            worlds = here


def check_agreement(
    declaration: PredicateDeclaration, true: Sequence[Column] | None, false: Sequence[Column] | None
) -> None:
    """Refuse distinct facts that contradict each other: two classes, or both true and false."""
    if declaration.classes is not None and false is not None and len(false[0]):
        raise DataError(f"{declaration.name} is multi-class: a fact of it names one class and is never false")
    if true is None:
        return
    if declaration.classes is not None:
        if len(distinct_rows(true[:-1])[0]) != len(true[0]):
            raise DataError(f"contradictory facts: {declaration.name} has two classes for the same arguments")
    elif false is not None:
        both = [np.concatenate(pair) for pair in zip(true, false, strict=True)]
        if len(distinct_rows(both)[0]) != len(both[0]):
            raise DataError(f"contradictory facts: {declaration.name} is both true and false for the same arguments")
