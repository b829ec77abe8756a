"""What an engine can be asked, whatever database runs the statements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase
from rulewright.engine import sql
from rulewright.logic import NUMBER_TYPE, Head, Membership, Number, Symbol, Term, Variable, variables

Column = npt.NDArray[Any]


@dataclass(frozen=True)
class Support:
    """How often a body holds, and how often its head holds with it.

    ``groundings`` counts assignments of all variables, ``heads`` different values of the head's variables.
    """

    body_groundings: int
    body_heads: int
    groundings: int
    heads: int

    @property
    def confidence(self) -> float:
        """``groundings / body_groundings``, 0 where the body never holds."""
        return self.groundings / self.body_groundings if self.body_groundings else 0.0


class SQLEngine(ABC):
    """Runs conjunctive bodies over the facts of one knowledge base."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self.kb = kb

    @abstractmethod
    def run(self, statement: str) -> dict[str, Column]:
        """Run a statement and return its columns by name."""

    @abstractmethod
    def stream(self, statement: str, batch_size: int) -> Iterator[dict[str, Column]]:
        """Run a statement and yield its columns in batches, never holding all of them in Python."""

    @abstractmethod
    def put(self, name: str, columns: Mapping[str, Column]) -> None:
        """Hold a table of numbers beside the facts, for statements to join; in place of an earlier one of that name."""

    def count(self, body: sql.Body, *, distinct: bool = False) -> int:
        """Count the groundings of a body: the assignments of its variables under which it holds.

        With ``distinct``, only assignments that give different variables different entities.
        """
        return self._number(sql.count(body, self.kb, distinct=distinct))

    def count_distinct(self, body: sql.Body, wanted: Sequence[Variable], *, distinct: bool = False) -> int:
        """Count the different values of ``wanted`` over all groundings, such as pairs of a head."""
        return self._number(sql.count_distinct(body, wanted, self.kb, distinct=distinct))

    def _number(self, statement: str) -> int:
        return int(self.run(statement)["n"][0])

    def count_by_predicate(self, body: sql.Body, *, distinct: bool = False) -> dict[str, Column]:
        """Count groundings for every choice of the predicate variables at once.

        The columns are named by the variables and hold predicate numbers (the position in ``kb.predicates``);
        ``n`` holds the counts. One statement serves for all rules of a shape.
        """
        statement, holes = sql.count_by_predicate(body, self.kb, distinct=distinct)
        found = self.run(statement)
        return {**{str(hole): found[f"p{place}"] for place, hole in enumerate(holes)}, "n": found["n"]}

    def bindings(
        self,
        body: sql.Body,
        wanted: Sequence[Variable] | None = None,
        *,
        distinct: bool = False,
        limit: int | None = None,
        batch_size: int = 100_000,
    ) -> Iterator[dict[Variable, Column]]:
        """Yield the groundings, or the ``limit`` smallest, in batches: for each variable a column of ids or numbers."""
        chosen = list(wanted) if wanted is not None else _variables(body)
        statement = sql.bindings(body, chosen, self.kb, distinct=distinct, limit=limit)
        for batch in self.stream(statement, batch_size):
            yield {variable: batch[f"v{place}"] for place, variable in enumerate(chosen)}

    def assignments(
        self, body: sql.Body, wanted: Sequence[Variable] | None = None, *, distinct: bool = False, limit: int
    ) -> list[dict[Variable, Term]]:
        """Return up to ``limit`` groundings for a person to read: the terms that variables stand for."""
        types = sql.Join.of(body, self.kb, distinct=distinct).types
        found = []
        for batch in self.bindings(body, wanted, distinct=distinct, limit=limit):
            columns = [self._terms(column, types[each]) for each, column in batch.items()]
            found += [dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True)]
        if not found and not _variables(body) and self.count(body, distinct=distinct):
            return [{}]
        return found

    def _terms(self, column: Column, kind: str) -> list[Term]:
        if kind == NUMBER_TYPE:
            return [Number(float(value)) for value in column]
        return [Symbol(label) for label in self.kb.domains[kind].labels_of(column)]

    def support(self, head: Head, body: sql.Body, *, distinct: bool = False) -> Support:
        """Count how often a body holds and how often the head holds with it."""
        with_head = [*body, head]
        of_head = variables(head)
        return Support(
            self.count(body, distinct=distinct),
            self.count_distinct(body, of_head, distinct=distinct),
            self.count(with_head, distinct=distinct),
            self.count_distinct(with_head, of_head, distinct=distinct),
        )

    def derive(self, head: Head, body: sql.Body, *, distinct: bool = False) -> tuple[list[Column], Column]:
        """Return the new facts that a body gives for a head, as columns, and how many groundings give each.

        What is already known, true or observed false, is left out.
        """
        found = self.run(sql.derivations(head, body, self.kb, distinct=distinct))
        columns = [found[f"a{place}"] for place in range(len(head.args))]
        if isinstance(head, Membership):
            classes = self.kb.predicate(str(head.predicate)).classes or ()
            columns.append(np.full(len(found["n"]), classes.index(head.classes[0]), dtype=np.int32))
        return columns, found["n"]


def _variables(body: sql.Body) -> list[Variable]:
    found = {each: None for literal in sql.literals(body) for each in variables(literal.unit)}
    return list(found)
