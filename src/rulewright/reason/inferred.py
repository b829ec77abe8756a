"""What an application gives: new facts as columns, and one by one with labels when they are looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rulewright.data import FactTable, KnowledgeBase, Value
from rulewright.data.facts import group_by_signature
from rulewright.engine.sql import Column
from rulewright.logic import WeightedFormula, quote
from rulewright.reason.program import Source

Aggregation = Literal["max", "noisy-or"]


@dataclass(frozen=True)
class InferredFact:
    """A new fact, its score, the statements that gave it, and the round in which it was first given."""

    predicate: str
    args: tuple[Value, ...]
    score: float
    rules: tuple[Source, ...]
    round: int = 1

    def __str__(self) -> str:
        shown = ", ".join(quote(each) if isinstance(each, str) else repr(each) for each in self.args)
        return f"{quote(self.predicate)}({shown})"


@dataclass(frozen=True)
class Violation:
    """An integrity constraint that does not hold, with the number of groundings that break it."""

    formula: WeightedFormula
    groundings: int


@dataclass(frozen=True)
class Derived:
    """The new facts of one predicate: columns, scores, rounds, and for each row a slice of rule numbers."""

    columns: tuple[Column, ...]
    scores: npt.NDArray[np.float64]
    rounds: npt.NDArray[np.int32]
    rule_starts: npt.NDArray[np.int64]
    rule_numbers: npt.NDArray[np.int32]

    @classmethod
    def of(cls, columns: Sequence[Column], given: dict[str, Column], how: Aggregation) -> Derived:
        """Bring the rows of each fact together, which stand one after the other, and of each rule the best."""
        new_fact = np.append(True, np.any([column[1:] != column[:-1] for column in columns], axis=0))
        new_rule = new_fact | np.append(True, given["n"][1:] != given["n"][:-1])
        rows = np.flatnonzero(new_rule)
        each, starts = np.maximum.reduceat(given["s"], rows), np.flatnonzero(new_fact[rows])
        scores = np.maximum.reduceat(each, starts) if how == "max" else 1.0 - np.multiply.reduceat(1.0 - each, starts)
        return cls(
            tuple(column[rows[starts]] for column in columns),
            scores,
            np.minimum.reduceat(given["k"], rows[starts]),
            np.append(starts, len(rows)),
            given["n"][rows],
        )

    def kept(self, keep: npt.NDArray[np.bool_]) -> Derived:
        """Return some of the rows."""
        if keep.all():
            return self
        lengths = np.diff(self.rule_starts)
        return Derived(
            tuple(column[keep] for column in self.columns),
            self.scores[keep],
            self.rounds[keep],
            np.concatenate([[0], np.cumsum(lengths[keep])]),
            self.rule_numbers[np.repeat(keep, lengths)],
        )


def derived(
    kb: KnowledgeBase,
    given: Iterable[tuple[str, dict[str, Column]]],
    how: Aggregation,
    *,
    min_score: float,
    max_facts: int,
) -> dict[str, Derived]:
    """Split what was given by predicate; of too many facts those of early rounds and high scores stay."""
    found: dict[str, Derived] = {}
    names = list(kb.predicates)
    for kind, rows in given:
        numbers, starts = np.unique(rows["p"], return_index=True)
        for number, start, stop in zip(numbers, starts, np.append(starts, len(rows["p"]))[1:], strict=True):
            part = {name: column[start:stop] for name, column in rows.items()}
            facts = Derived.of([part[f"a{place}"] for place in range(len(kind))], part, how)
            found[names[number]] = facts.kept(facts.scores >= min_score)
    count = sum(len(each.scores) for each in found.values())
    if count > max_facts:
        rounds, scores = (np.concatenate([getattr(each, name) for each in found.values()]) for name in _ORDER)
        keep = np.zeros(count, dtype=bool)
        keep[np.lexsort((-scores, rounds))[:max_facts]] = True
        bounds = np.cumsum([len(each.scores) for each in found.values()])[:-1]
        parts = np.split(keep, bounds)
        found = {name: each.kept(part) for (name, each), part in zip(found.items(), parts, strict=True)}
    return {name: each for name, each in found.items() if len(each.scores)}


_ORDER = ("rounds", "scores")


class Inferred(Sequence[InferredFact]):
    """The new facts of an application, best score first; columns inside, labels when a fact is looked at.

    ``rounds`` tells how many rounds gave something, ``note`` which limit ended the application too early, if one did.
    """

    def __init__(
        self,
        kb: KnowledgeBase,
        sources: Sequence[Source],
        derived: dict[str, Derived],
        violations: Sequence[Violation] = (),
        *,
        rounds: int = 1,
        note: str = "",
    ) -> None:
        self.kb = kb
        self.sources = tuple(sources)
        self.violations = tuple(violations)
        self.rounds, self.note = rounds, note
        self._derived = derived

    @property
    def complete(self) -> bool:
        """Whether everything that follows is here."""
        return not self.note

    @cached_property
    def _order(self) -> npt.NDArray[np.intp]:
        scores = np.concatenate([each.scores for each in self._derived.values()] or [np.empty(0)])
        return np.argsort(-scores, kind="stable")

    @cached_property
    def _bounds(self) -> npt.NDArray[np.int64]:
        return np.cumsum([0, *(len(each.scores) for each in self._derived.values())])

    def __len__(self) -> int:
        return sum(len(each.scores) for each in self._derived.values())

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._fact(place) for place in self._order[index]]
        return self._fact(self._order[index])

    def __iter__(self) -> Iterator[InferredFact]:
        return (self._fact(place) for place in self._order)

    def _fact(self, place: np.intp) -> InferredFact:
        group = int(np.searchsorted(self._bounds, place, side="right")) - 1
        name, row = [*self._derived][group], int(place - self._bounds[group])
        derived = self._derived[name]
        args = self.kb.label_rows(name, [column[row : row + 1] for column in derived.columns])[0]
        start, stop = derived.rule_starts[row], derived.rule_starts[row + 1]
        rules = tuple(self.sources[number] for number in derived.rule_numbers[start:stop])
        return InferredFact(name, args, float(derived.scores[row]), rules, int(derived.rounds[row]))

    def columns(self, name: str) -> tuple[tuple[Column, ...], npt.NDArray[np.float64]]:
        """Return the new facts of a predicate as columns of ids, and their scores."""
        derived = self._derived[name]
        return derived.columns, derived.scores

    @cached_property
    def facts(self) -> KnowledgeBase:
        """The new facts alone, as a knowledge base over the same entities; where classes compete, the best counts."""
        columns = {name: self._decided(name, each) for name, each in self._derived.items()}
        return self.kb.with_facts(group_by_signature(self.kb.predicates, columns))

    def _decided(self, name: str, derived: Derived) -> tuple[Column, ...]:
        if self.kb.predicate(name).classes is None:
            return derived.columns
        *args, classes = derived.columns
        order = np.lexsort((classes, -derived.scores, *reversed(args)))
        first = np.ones(len(order), dtype=bool)
        first[1:] = np.any([arg[order][1:] != arg[order][:-1] for arg in args], axis=0)
        return tuple(column[order[first]] for column in derived.columns)

    @cached_property
    def completed(self) -> KnowledgeBase:
        """The knowledge base with the new facts in it."""
        known, new = self.kb.tables(), self.facts.tables()
        tables = {kind: _stacked(known.get(kind), new.get(kind)) for kind in {**known, **new}}
        return self.kb.with_facts(tables, self.kb.tables(truth=False))

    def __repr__(self) -> str:
        broken = f", {len(self.violations)} constraints broken" if self.violations else ""
        return f"Inferred({len(self):,} new facts{broken}{f'; {self.note}' if self.note else ''})"


def _stacked(*tables: FactTable | None) -> FactTable:
    present = [table for table in tables if table is not None]
    predicate = np.concatenate([table.predicate for table in present])
    order = np.argsort(predicate, kind="stable")
    columns = tuple(np.concatenate(parts)[order] for parts in zip(*(table.columns for table in present), strict=True))
    return FactTable(present[0].signature, predicate[order], columns)
