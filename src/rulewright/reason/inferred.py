"""What an application gives: new facts as columns, and one by one with labels when they are looked at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from rulewright.checks import OneOf
from rulewright.data import FactTable, KnowledgeBase, Value, signature
from rulewright.data.facts import group_by_signature
from rulewright.data.index import expand_ranges, range_bounds
from rulewright.engine.batches import RuleBatch, Source
from rulewright.engine.sql import Column, argument_columns
from rulewright.logic import RuleSet, WeightedFormula, quote
from rulewright.tables import FrameLibrary, build_frame, html_table

Aggregation = Literal["max-plus", "max", "noisy-or", "weight"]
AGGREGATION = OneOf("max-plus", "max", "noisy-or", "weight")


@dataclass(frozen=True)
class InferredFact:
    """A new fact, its score, the statements that gave it, and the round in which it was first given.

    ``numbers`` are those of the statements in their file, from 1.
    """

    predicate: str
    args: tuple[Value, ...]
    score: float
    rules: tuple[Source, ...]
    round: int = 1
    numbers: tuple[int, ...] = ()

    def __str__(self) -> str:
        args = ", ".join(quote(arg) if isinstance(arg, str) else repr(arg) for arg in self.args)
        return f"{quote(self.predicate)}({args})"


@dataclass(frozen=True)
class Violation:
    """An integrity constraint that does not hold, with the number of groundings that break it."""

    formula: WeightedFormula
    groundings: int


@dataclass(frozen=True)
class InferredColumns:
    """The new facts of one predicate: columns, scores, rounds, and for each row a slice of sources, strongest first."""

    columns: tuple[Column, ...]
    scores: npt.NDArray[np.float64]
    rounds: npt.NDArray[np.int32]
    source_bounds: npt.NDArray[np.int64]
    source_indices: npt.NDArray[np.int32]
    source_scores: npt.NDArray[np.float64]

    def select(self, chosen: npt.NDArray[np.bool_]) -> InferredColumns:
        """Return some of the rows."""
        if chosen.all():
            return self
        if 4 * np.count_nonzero(chosen) < len(chosen):
            return self.take(np.flatnonzero(chosen))
        lengths = np.diff(self.source_bounds)
        return InferredColumns(
            tuple(column[chosen] for column in self.columns),
            self.scores[chosen],
            self.rounds[chosen],
            range_bounds(lengths[chosen]),
            self.source_indices[np.repeat(chosen, lengths)],
            self.source_scores[np.repeat(chosen, lengths)],
        )

    def take(self, order: npt.NDArray[np.int64]) -> InferredColumns:
        """Return the rows in another order."""
        lengths = np.diff(self.source_bounds)[order]
        sources = expand_ranges(self.source_bounds[:-1][order], lengths)
        return InferredColumns(
            tuple(column[order] for column in self.columns),
            self.scores[order],
            self.rounds[order],
            range_bounds(lengths),
            self.source_indices[sources],
            self.source_scores[sources],
        )


@dataclass(frozen=True)
class Application:
    """What was asked of an application, for an update to ask the same; ``is_cut`` says that ``max_facts`` was met.

    ``batches`` are the rules as they were applied, where they are still at hand.
    """

    rules: RuleSet
    aggregation: Aggregation
    min_score: float
    max_rounds: int | None
    max_facts: int
    is_cut: bool = False
    batches: Sequence[RuleBatch] = field(default=(), repr=False, compare=False)


def combine_rules(columns: Sequence[Column], given: dict[str, Column], aggregation: Aggregation) -> InferredColumns:
    """Bring the rows of each fact together, which stand one after the other, and of each rule the best."""
    is_new_fact = np.append(True, np.any([column[1:] != column[:-1] for column in columns], axis=0))
    is_new_rule = is_new_fact | np.append(True, given["n"][1:] != given["n"][:-1])
    rows = np.flatnonzero(is_new_rule)
    best, starts = np.maximum.reduceat(given["s"], rows), np.flatnonzero(is_new_fact[rows])
    if aggregation == "noisy-or":
        scores = 1.0 - np.multiply.reduceat(1.0 - best, starts)
    else:
        scores = np.maximum.reduceat(best, starts)
    fact = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(rows))))
    strongest = np.lexsort((-best, fact))
    return InferredColumns(
        tuple(column[rows[starts]] for column in columns),
        scores,
        np.minimum.reduceat(given["k"], rows[starts]),
        np.append(starts, len(rows)),
        given["n"][rows][strongest],
        best[strongest],
    )


def name_columns(
    predicates: Sequence[str], args: Sequence[tuple[Value, ...]], *, is_graph: bool
) -> dict[str, list[Any]]:
    """Return facts as columns of a frame: head, relation and tail of a graph, or else predicate, ``arg1``, …

    >>> name_columns(["tall", "age"], [("ann",), ("bob", 42)], is_graph=False)
    {'predicate': ['tall', 'age'], 'arg1': ['ann', 'bob'], 'arg2': [None, 42]}
    """
    if is_graph:
        return {"head": [head for head, _ in args], "relation": [*predicates], "tail": [tail for _, tail in args]}
    columns: dict[str, list[Any]] = {"predicate": [*predicates]}
    for position in range(max(map(len, args), default=0)):
        columns[f"arg{position + 1}"] = [values[position] if position < len(values) else None for values in args]
    return columns


def rank_facts(parts: Sequence[InferredColumns], *, by_lists: bool) -> npt.NDArray[np.int64]:
    """Return the rank of each fact, 0 for the best, equal where nothing tells two apart.

    By their scores, or ``by_lists``: the strongest rule for each counts, of equals the second strongest, and so on; a
    fact for which no more rules speak comes after one for which some do.
    """
    if not parts:
        return np.zeros(0, dtype=np.int64)
    if not by_lists:
        scores = np.concatenate([facts.scores for facts in parts])
        return np.unique(-scores, return_inverse=True)[1].astype(np.int64)
    bounds = range_bounds(np.concatenate([np.diff(facts.source_bounds) for facts in parts]))
    strengths = np.concatenate([facts.source_scores for facts in parts])
    rank = np.zeros(len(bounds) - 1, dtype=np.int64)
    tied, depth = np.arange(len(rank)), 0
    while len(tied) > 1:
        position = bounds[tied] + depth
        has_more = position < bounds[tied + 1]
        strength = np.where(has_more, strengths[np.minimum(position, len(strengths) - 1)], -1.0)
        order = np.lexsort((-strength, rank[tied]))
        tied, strength, has_more = tied[order], strength[order], has_more[order]
        is_new_rank = np.append(True, rank[tied][1:] != rank[tied][:-1])
        is_new = is_new_rank | np.append(True, strength[1:] != strength[:-1])
        rank_starts = np.flatnonzero(is_new_rank)
        starts = np.flatnonzero(is_new)
        within = starts - rank_starts[np.cumsum(is_new_rank)[starts] - 1]
        sizes = np.diff(np.append(starts, len(tied)))
        rank[tied] += np.repeat(within, sizes)  # a rank is how many facts are better
        tied = tied[np.repeat(sizes > 1, sizes) & has_more]
        depth += 1
    return rank


def split_by_predicate(
    kb: KnowledgeBase, given: Iterable[tuple[str, dict[str, Column]]], aggregation: Aggregation, *, min_score: float
) -> dict[str, InferredColumns]:
    """Split what was given by predicate."""
    derived: dict[str, InferredColumns] = {}
    names = list(kb.predicates)
    for fact_signature, rows in given:
        predicates, starts = np.unique(rows["p"], return_index=True)
        for predicate, start, stop in zip(predicates, starts, np.append(starts, len(rows["p"]))[1:], strict=True):
            part = {name: column[start:stop] for name, column in rows.items()}
            facts = combine_rules([part[name] for name in argument_columns(fact_signature)], part, aggregation)
            derived[names[predicate]] = facts.select(facts.scores >= min_score)
    return {name: facts for name, facts in derived.items() if len(facts.scores)}


Part = TypeVar("Part")


def keep_best(
    derived: dict[Part, InferredColumns], max_facts: int, *, by_lists: bool
) -> tuple[dict[Part, InferredColumns], float, bool]:
    """Keep the best facts; return them, their lowest score, and whether equally good ones were left out."""
    bounds = range_bounds([len(facts.scores) for facts in derived.values()])
    if bounds[-1] == 0:
        return {}, 0.0, False
    rank = rank_facts([*derived.values()], by_lists=by_lists)
    order = np.argsort(rank, kind="stable")
    last = order[:max_facts][-1]
    is_tied = len(order) > max_facts and bool(rank[order[max_facts]] == rank[last])
    keep = np.zeros(len(rank), dtype=bool)
    keep[order[:max_facts]] = True
    parts = np.split(keep, bounds[1:-1])
    kept = {part: facts.select(chosen) for (part, facts), chosen in zip(derived.items(), parts, strict=True)}
    lowest = np.concatenate([facts.scores for facts in derived.values()])[last]
    return {part: facts for part, facts in kept.items() if len(facts.scores)}, float(lowest), is_tied


def describe_cut(kept: Mapping[Part, InferredColumns], lowest: float, is_tied: bool) -> str:
    """Say in words what was kept."""
    count = sum(len(facts.scores) for facts in kept.values())
    if not count:
        return "none has a score that high"
    ties = ", and of equally good ones some are left out" if is_tied else ""
    return f"the best {count:,} are kept, down to a score of {lowest:.3g}{ties}"


class Inferred(Sequence[InferredFact]):
    """The new facts of an application, best score first; columns inside, labels when a fact is looked at.

    ``rounds`` is how many rounds gave something. ``note`` says what is not here: what a further round would give, or
    what a limit cut off. Then ``exact`` says whether the scores are still right, or lower bounds.
    """

    def __init__(
        self,
        kb: KnowledgeBase,
        sources: Sequence[Source],
        derived: dict[str, InferredColumns],
        violations: Sequence[Violation] = (),
        *,
        numbers: Sequence[int] | None = None,
        rounds: int = 1,
        note: str = "",
        exact: bool = True,
        by_lists: bool = False,
        application: Application | None = None,
    ) -> None:
        self.kb = kb
        self.sources = tuple(sources)
        self.numbers = tuple(range(1, len(self.sources) + 1)) if numbers is None else tuple(numbers)
        self.violations = tuple(violations)
        self.rounds, self.note, self.exact = rounds, note, exact
        self._by_lists = by_lists
        self.application = application
        self.derived = derived
        self._bounds = range_bounds([len(facts.scores) for facts in derived.values()])

    @property
    def complete(self) -> bool:
        """Whether everything that follows is here."""
        return not self.note

    @cached_property
    def _order(self) -> npt.NDArray[np.intp]:
        return np.argsort(rank_facts([*self.derived.values()], by_lists=self._by_lists), kind="stable")

    def __len__(self) -> int:
        return int(self._bounds[-1])

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self._fact(row) for row in self._order[index]]
        return self._fact(self._order[index])

    def __iter__(self) -> Iterator[InferredFact]:
        return (self._fact(row) for row in self._order)

    def _fact(self, position: np.intp) -> InferredFact:
        group = int(np.searchsorted(self._bounds, position, side="right")) - 1
        name, row = [*self.derived][group], int(position - self._bounds[group])
        facts = self.derived[name]
        args = self.kb.label_rows(name, [column[row : row + 1] for column in facts.columns])[0]
        sources = facts.source_indices[facts.source_bounds[row] : facts.source_bounds[row + 1]]
        rules, numbers = (tuple(values[index] for index in sources) for values in (self.sources, self.numbers))
        return InferredFact(name, args, float(facts.scores[row]), rules, int(facts.rounds[row]), numbers)

    def columns(self, name: str) -> tuple[tuple[Column, ...], npt.NDArray[np.float64]]:
        """Return the new facts of a predicate as columns of indices, and their scores."""
        facts = self.derived[name]
        return facts.columns, facts.scores

    @cached_property
    def facts(self) -> KnowledgeBase:
        """The new facts alone, as a knowledge base over the same entities; where classes compete, the best counts."""
        columns = {name: self._decide_classes(name, facts) for name, facts in self.derived.items()}
        return self.kb.with_facts(group_by_signature(self.kb.predicates, columns))

    def _decide_classes(self, name: str, facts: InferredColumns) -> tuple[Column, ...]:
        if self.kb.predicate(name).classes is None:
            return facts.columns
        *args, classes = facts.columns
        order = np.lexsort((classes, -facts.scores, *reversed(args)))
        is_first = np.append(True, np.any([arg[order][1:] != arg[order][:-1] for arg in args], axis=0))
        return tuple(column[order[is_first]] for column in facts.columns)

    @cached_property
    def completed(self) -> KnowledgeBase:
        """The knowledge base with the new facts in it."""
        known, new = self.kb.tables(), self.facts.tables()
        tables = {}
        for fact_signature in {**known, **new}:
            parts = [table[fact_signature] for table in (known, new) if fact_signature in table]
            predicate = np.concatenate([part.predicate for part in parts])
            order = np.argsort(predicate, kind="stable")
            columns = [np.concatenate(column)[order] for column in zip(*(part.columns for part in parts), strict=True)]
            tables[fact_signature] = FactTable(fact_signature, predicate[order], tuple(columns))
        return self.kb.with_facts(tables, self.kb.tables(truth=False))

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return the new facts as a data frame of pandas or Polars, best first, with score, round and rules.

        Where all are of relations they have head, relation and tail; otherwise predicate and ``arg1``, ``arg2``, …

        >>> from rulewright import KnowledgeBase, apply, parse_rules
        >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob")])
        >>> apply(parse_rules("0.9 :: child_of(X, Y) :- parent_of(Y, X)."), kb).to_frame("polars").rows()
        [('bob', 'child_of', 'ann', 0.9, 1, '0.9 :: child_of(X, Y) :- parent_of(Y, X).')]
        """
        facts = list(self)
        is_graph = all(signature(self.kb.predicate(name)) == "ee" for name in self.derived)
        columns = name_columns([fact.predicate for fact in facts], [fact.args for fact in facts], is_graph=is_graph)
        columns |= {
            "score": [fact.score for fact in facts],
            "round": [fact.round for fact in facts],
            "rules": ["\n".join(map(str, fact.rules)) for fact in facts],
        }
        return build_frame(columns, library)

    def _repr_html_(self) -> str:
        rows = ((fact.score, fact, " ".join(map(str, fact.rules))) for fact in self[:100])
        return html_table(["score", "new fact", "by"], rows, caption=repr(self))

    def __repr__(self) -> str:
        broken = f", {len(self.violations)} constraints broken" if self.violations else ""
        return f"Inferred({len(self):,} new facts{broken}{f'; {self.note}' if self.note else ''})"
