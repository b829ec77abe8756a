"""What a person may ask a learner for: facts of its targets, as text, tuples or a knowledge base."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, Value
from rulewright.errors import DataError, unknown_name
from rulewright.learn.lnn.tables import Columns
from rulewright.logic import NUMBER_TYPE, Number, PredicateDeclaration, Symbol, Variable, parse_atom

Query = str | Sequence[Value]
Queries = KnowledgeBase | Iterable[Query]
Asked = tuple[str, list[tuple[Value, ...]], Columns, npt.NDArray[np.bool_]]


def query_columns(kb: KnowledgeBase, queries: Queries, targets: Collection[str]) -> Iterator[Asked]:
    """Yield targets with their facts as labels and as columns of ids, and which of them name known entities only."""
    for target, rows in _by_target(queries).items():
        if target not in targets:
            raise unknown_name("target", target, targets)
        declaration = kb.predicate(target)
        columns: list[npt.NDArray[Any]] = []
        seen = np.ones(len(rows), dtype=bool)
        for place, kind in enumerate(declaration.types):
            column = np.array([_id(kb, declaration, kind, row, place) for row in rows])
            seen &= column != -1 if kind != NUMBER_TYPE else seen
            columns.append(column)
        yield target, rows, tuple(columns), seen


def _by_target(queries: Queries) -> dict[str, list[tuple[Value, ...]]]:
    found: dict[str, list[tuple[Value, ...]]] = {}
    if isinstance(queries, KnowledgeBase):
        for truth in (True, False):
            for name, args in queries.facts(truth=truth):
                found.setdefault(name, []).append(args)
        return found
    for query in [queries] if isinstance(queries, str) else queries:
        fact = _fact(query) if isinstance(query, str) else tuple(query)
        found.setdefault(str(fact[0]), []).append(fact[1:])
    return found


def _fact(query: str) -> tuple[Value, ...]:
    atom = parse_atom(query)
    values: list[Value] = [str(atom.predicate)]
    for term in atom.args:
        if isinstance(term, Variable):
            raise DataError(f"{term} is a variable in {query}; a name that starts upper-case is quoted: '{term}'")
        values.append(term.name if isinstance(term, Symbol) else term.value if isinstance(term, Number) else str(term))
    return tuple(values)


def _id(kb: KnowledgeBase, declaration: PredicateDeclaration, kind: str, row: tuple[Value, ...], place: int) -> float:
    if len(row) != declaration.arity:
        raise DataError(f"{declaration.name} has {declaration.arity} arguments, got {len(row)}")
    if kind == NUMBER_TYPE:
        return float(row[place])
    found = kb.domains[kind].find(str(row[place]))
    return -1 if found is None else found
