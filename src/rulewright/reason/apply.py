"""Applying rules to facts: what is new, how sure it is, and which rules gave it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from rulewright.data import FactTable, KnowledgeBase, Value
from rulewright.data.facts import group_by_signature
from rulewright.engine import Engine
from rulewright.errors import DataError
from rulewright.logic import Rule, RuleSet, WeightedFormula, quote
from rulewright.reason.program import Program, Source

Column = npt.NDArray[Any]
Aggregation = Literal["max", "noisy-or"]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class InferredFact:
    """A new fact, its score, and the statements that gave it."""

    predicate: str
    args: tuple[Value, ...]
    score: float
    rules: tuple[Source, ...]

    def __str__(self) -> str:
        shown = ", ".join(quote(each) if isinstance(each, str) else repr(each) for each in self.args)
        return f"{quote(self.predicate)}({shown})"


@dataclass(frozen=True)
class Violation:
    """An integrity constraint that does not hold, with the number of groundings that break it."""

    formula: WeightedFormula
    groundings: int


@dataclass(frozen=True)
class _Derived:
    """The new facts of one predicate: columns, scores, and for each row a slice of rule numbers."""

    columns: tuple[Column, ...]
    scores: npt.NDArray[np.float64]
    rule_starts: npt.NDArray[np.int64]
    rule_numbers: npt.NDArray[np.int64]


class Inferred(Sequence[InferredFact]):
    """The new facts of an application, best score first; columns inside, labels when a fact is looked at."""

    def __init__(
        self,
        kb: KnowledgeBase,
        sources: Sequence[Source],
        derived: dict[str, _Derived],
        violations: Sequence[Violation] = (),
    ) -> None:
        self.kb = kb
        self.sources = tuple(sources)
        self.violations = tuple(violations)
        self._derived = derived

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
        args = self.kb.labelled(name, [column[row : row + 1] for column in derived.columns])[0]
        start, stop = derived.rule_starts[row], derived.rule_starts[row + 1]
        rules = tuple(self.sources[number] for number in derived.rule_numbers[start:stop])
        return InferredFact(name, args, float(derived.scores[row]), rules)

    def columns(self, name: str) -> tuple[tuple[Column, ...], npt.NDArray[np.float64]]:
        """Return the new facts of a predicate as columns of ids, and their scores."""
        derived = self._derived[name]
        return derived.columns, derived.scores

    @cached_property
    def facts(self) -> KnowledgeBase:
        """The new facts alone, as a knowledge base over the same entities."""
        return self.kb.derived(
            group_by_signature(self.kb.predicates, {name: each.columns for name, each in self._derived.items()})
        )

    @cached_property
    def completed(self) -> KnowledgeBase:
        """The knowledge base with the new facts in it."""
        known, new = self.kb.tables(), self.facts.tables()
        tables = {kind: _stacked(known.get(kind), new.get(kind)) for kind in {**known, **new}}
        return self.kb.derived(tables, self.kb.tables(truth=False))

    def __repr__(self) -> str:
        broken = f", {len(self.violations)} constraints broken" if self.violations else ""
        return f"Inferred({len(self):,} new facts{broken})"


def _stacked(*tables: FactTable | None) -> FactTable:
    present = [table for table in tables if table is not None]
    predicate = np.concatenate([table.predicate for table in present])
    order = np.argsort(predicate, kind="stable")
    columns = tuple(np.concatenate(parts)[order] for parts in zip(*(table.columns for table in present), strict=True))
    return FactTable(present[0].signature, predicate[order], columns)


def apply(
    rules: RuleSet | Rule | Iterable[Rule],
    kb: KnowledgeBase,
    *,
    aggregation: Aggregation = "max",
    min_score: float = 0.0,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> Inferred:
    """Apply every rule once to the known facts and return what is new.

    A rule's score is its confidence. A fact that several rules give gets the ``max`` of their scores, or with
    ``noisy-or`` ``1 − Π (1 − score)``. ``hard`` formulas that read as a rule give facts with score 1, the others are
    checked, and those that do not hold are among ``violations``. Weighted and learnable formulas are refused.

    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> rules = parse_rules("0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).")
    >>> for fact in apply(rules, kb):
    ...     print(fact, fact.score)
    grandparent_of(ann, cid) 0.9
    """
    if aggregation not in ("max", "noisy-or"):
        raise DataError(f"aggregation must be 'max' or 'noisy-or', got {aggregation!r}")
    program = Program.of(rules, kb)
    given: dict[str, list[tuple[list[Column], int]]] = {}
    with Engine(program.kb, memory_limit=memory_limit) as engine:
        done, total = 0, len(program.derivations) + len(program.constraints)
        for derivation in program.derivations:
            columns, _ = _named(derivation.source, engine.derive, derivation.head, derivation.body)
            if len(columns[0]):
                given.setdefault(str(derivation.head.predicate), []).append((columns, derivation.number))
            done += 1
            if progress is not None:
                progress(done, total)
        violations = []
        for constraint in program.constraints:
            count = _named(constraint.formula, engine.count, constraint.body)
            if count:
                violations.append(Violation(constraint.formula, count))
            done += 1
            if progress is not None:
                progress(done, total)
    confidences = np.array([source.confidence if isinstance(source, Rule) else 1.0 for source in program.sources])
    derived = {name: _combined(parts, confidences, aggregation, min_score) for name, parts in given.items()}
    return Inferred(program.kb, program.sources, derived, violations)


def _named(source: Source, work: Callable[..., Any], *args: Any) -> Any:
    """Do the work; what goes wrong names the statement."""
    try:
        return work(*args)
    except DataError as error:
        raise DataError(f"{error} — in: {source}") from None


def _combined(
    parts: list[tuple[list[Column], int]], confidences: npt.NDArray[np.float64], how: Aggregation, min_score: float
) -> _Derived:
    """Bring together the facts of several rules: each fact once, with its score and its rules."""
    columns = [np.concatenate(each) for each in zip(*(columns for columns, _ in parts), strict=True)]
    rules = np.repeat([number for _, number in parts], [len(columns[0]) for columns, _ in parts])
    order = np.lexsort((rules, *reversed(columns)))
    rules, columns = rules[order], [column[order] for column in columns]
    new_fact = np.ones(len(rules), dtype=bool)
    if len(rules) > 1:
        new_fact[1:] = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    fresh = new_fact.copy()
    fresh[1:] |= rules[1:] != rules[:-1]  # two alternatives of one rule may give the same fact
    rules, new_fact, columns = rules[fresh], new_fact[fresh], [column[fresh] for column in columns]
    starts = np.flatnonzero(new_fact)
    each = confidences[rules]
    scores = np.maximum.reduceat(each, starts) if how == "max" else 1.0 - np.multiply.reduceat(1.0 - each, starts)
    lengths = np.diff(np.append(starts, len(rules)))
    keep = scores >= min_score
    kept_rules = rules[np.repeat(keep, lengths)]
    bounds = np.concatenate([[0], np.cumsum(lengths[keep])])
    return _Derived(tuple(column[starts[keep]] for column in columns), scores[keep], bounds, kept_rules)
