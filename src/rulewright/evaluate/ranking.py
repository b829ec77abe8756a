"""How well questions about a graph are answered: the rank of the right answer among all entities.

With ``n`` candidates that score strictly higher than the answer and ``m`` that score the same (the answer among them),
the reciprocal rank in expectation over the order of equals is ``(1/m) Σ_{i=1..m} 1/(n+i)``, and
``Hits@K = (1/m) Σ_{i=1..m} [n+i ≤ K]``. Optimistically the rank is ``n + 1``, pessimistically ``n + m``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
from scipy.special import digamma

from rulewright.data import KnowledgeBase, signature
from rulewright.errors import DataError

Numbers = npt.NDArray[np.int64]
Scores = npt.NDArray[np.float64]
Ties = Literal["mean", "optimistic", "pessimistic"]
TIES = ("mean", "optimistic", "pessimistic")
HITS = (1, 3, 10)


class Scorer(Protocol):
    """Scores every entity as an answer."""

    def scores(self, relation: str, entities: Numbers, *, inverse: bool = False) -> Scores:
        """Return a row for each entity: how well every entity answers ``relation(h, ?)``, or ``relation(?, h)``."""
        ...


def reciprocal_ranks(higher: npt.ArrayLike, equal: npt.ArrayLike, ties: Ties = "mean") -> Scores:
    """Return ``1 / rank``, its expectation where several candidates score the same.

    >>> reciprocal_ranks([0, 1], [1, 2]).round(4).tolist()
    [1.0, 0.4167]
    """
    n, m = np.asarray(higher, dtype=np.float64), np.asarray(equal, dtype=np.float64)
    if ties == "mean":
        # 1/(n+1) + … + 1/(n+m) is a difference of digammas; for one candidate it is exact without
        return np.where(m == 1, 1 / (n + 1), (digamma(n + m + 1) - digamma(n + 1)) / m)
    return 1 / (n + 1) if ties == "optimistic" else 1 / (n + m)


def hits(higher: npt.ArrayLike, equal: npt.ArrayLike, k: int, ties: Ties = "mean") -> Scores:
    """Return whether the rank is at most ``k``, or how probable it is where several candidates score the same.

    >>> hits([0, 1, 9], [1, 4, 2], 3).tolist()
    [1.0, 0.5, 0.0]
    """
    n, m = np.asarray(higher, dtype=np.float64), np.asarray(equal, dtype=np.float64)
    if ties == "mean":
        return np.clip(k - n, 0, m) / m
    return ((n + 1 if ties == "optimistic" else n + m) <= k).astype(np.float64)


@dataclass(frozen=True)
class RankingScores:
    """The place of every right answer, and the figures that follow from it.

    ``higher`` and ``equal`` count the candidates of each question; ``relation`` numbers into ``names``, ``inverse``
    tells the direction, ``unseen`` whether the question or its answer is an entity that training never saw.
    """

    names: tuple[str, ...]
    relation: Numbers
    inverse: npt.NDArray[np.bool_]
    higher: Numbers
    equal: Numbers
    unseen: npt.NDArray[np.bool_]
    ties: Ties = "mean"
    auc_pr: float = nan

    def __len__(self) -> int:
        return len(self.higher)

    @cached_property
    def mrr(self) -> float:
        """The mean reciprocal rank."""
        return float(reciprocal_ranks(self.higher, self.equal, self.ties).mean()) if len(self) else nan

    def hits(self, k: int) -> float:
        """The share of answers among the first ``k``."""
        return float(hits(self.higher, self.equal, k, self.ties).mean()) if len(self) else nan

    def part(self, keep: npt.NDArray[np.bool_]) -> RankingScores:
        """Return the figures of some questions."""
        kept = {name: getattr(self, name)[keep] for name in ("relation", "inverse", "higher", "equal", "unseen")}
        return replace(self, **kept, auc_pr=nan)

    def by_relation(self) -> dict[str, RankingScores]:
        """Return the figures of each relation that has questions."""
        return {self.names[number]: self.part(self.relation == number) for number in np.unique(self.relation)}

    def with_ties(self, ties: Ties) -> RankingScores:
        """Return the figures under another policy for ties."""
        check_ties(ties)
        return replace(self, ties=ties)

    def figures(self) -> dict[str, float]:
        """Return MRR and Hits@1/3/10, and AUC-PR where it was asked for."""
        found = {"mrr": self.mrr, **{f"hits@{k}": self.hits(k) for k in HITS}}
        return found if np.isnan(self.auc_pr) else {**found, "auc_pr": self.auc_pr}

    def as_dict(self) -> dict[str, object]:
        """Return all figures, for JSON."""
        return {
            "questions": len(self),
            "ties": self.ties,
            "unseen": int(self.unseen.sum()),
            **self.figures(),
            "forward": self.part(~self.inverse).figures(),
            "backward": self.part(self.inverse).figures(),
            "by_relation": {name: {"questions": len(p), **p.figures()} for name, p in self.by_relation().items()},
        }

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {value:.4f}" for name, value in self.figures().items())
        return f"RankingScores({len(self):,} questions, {figures})"


def check_ties(ties: str) -> None:
    """Refuse an unknown policy."""
    if ties not in TIES:
        raise DataError(f"ties must be one of {', '.join(TIES)}, got {ties!r}")


def positions(scores: Scores, answers: Numbers, known_row: Numbers, known: Numbers) -> tuple[Numbers, Numbers]:
    """Count for each row the candidates that score higher than its answer, and those that score the same.

    ``known[k]`` is a right answer to question ``known_row[k]``, each named once; but for the answer asked for, they are
    no candidates.

    >>> scores = np.array([[0.5, 0.9, 0.5, 0.1]])
    >>> [each.tolist() for each in positions(scores, np.array([2]), np.array([0]), np.array([1]))]
    [[0], [2]]
    """
    if np.isnan(scores).any():
        raise DataError("a score is NaN, which has no rank")
    rows = len(answers)
    own = scores[np.arange(rows), answers]
    other = known != answers[known_row]
    known_row, known = known_row[other], known[other]
    left_out, beside = scores[known_row, known], own[known_row]
    higher = (scores > own[:, None]).sum(axis=1) - np.bincount(known_row[left_out > beside], minlength=rows)
    equal = (scores == own[:, None]).sum(axis=1) - np.bincount(known_row[left_out == beside], minlength=rows)
    return higher, equal


def evaluate_ranking(
    scorer: Scorer,
    kb: KnowledgeBase,
    split: str | KnowledgeBase = "test",
    *,
    known: Sequence[str] | None = None,
    relations: Sequence[str] | None = None,
    ties: Ties = "mean",
    auc_pr: bool = False,
    memory: int = 2**26,
    progress: Callable[[int, int], None] | None = None,
) -> RankingScores:
    """Ask ``r(h, ?)`` and ``r(?, t)`` for every fact of a split and find the rank of its answer among all entities.

    Other right answers, those among the training facts and the splits ``known`` (all, unless told), are no candidates.
    Candidates are the entities of the argument's type. ``auc_pr`` adds the average precision of all (question,
    candidate) pairs ranked together, for small sets: it holds all their scores. ``memory`` bounds the numbers held for
    one block of questions.
    """
    check_ties(ties)
    asked = kb.split(split) if isinstance(split, str) else split
    facts = asked.tables().get("ee")
    if facts is None or len(facts) == 0:
        raise DataError("the split has no fact of two entities, so there are no questions")
    parts = [kb, *(kb.splits.values() if known is None else (kb.split(name) for name in known)), asked]
    seen = np.zeros(kb.n_entities, dtype=bool)
    for column in kb.tables()["ee"].columns if "ee" in kb.tables() else ():
        seen[column] = True
    names = tuple(kb.predicates)
    found: list[tuple[npt.NDArray[Any], ...]] = []
    pooled: list[tuple[Scores, npt.NDArray[np.bool_]]] = []
    done = 0
    wanted = [n for n in names if signature(kb.predicate(n)) == "ee" and asked.count(n)]
    for name in wanted if relations is None else [n for n in wanted if n in set(relations)]:
        domains = [kb.domains[kind] for kind in kb.predicate(name).types]
        for inverse in (False, True):
            near, far = (1, 0) if inverse else (0, 1)
            place = domains[far]
            query, answer = (asked.columns(name)[each].astype(np.int64) for each in (near, far))
            every = [[part.columns(name)[each] for part in parts] for each in (near, far)]
            truth = _Truth(*(np.concatenate(each).astype(np.int64) for each in every))
            step = max(1, memory // max(1, kb.n_entities))
            order = np.argsort(query, kind="stable")
            for start in range(0, len(order), step):
                chosen = order[start : start + step]
                entities, row = np.unique(query[chosen], return_inverse=True)
                scores = np.asarray(scorer.scores(name, entities, inverse=inverse), dtype=np.float64)
                scores = scores[row, place.start : place.start + len(place)]
                known_row, others = truth.of(query[chosen])
                higher, equal = positions(scores, answer[chosen] - place.start, known_row, others - place.start)
                unseen = ~(seen[query[chosen]] & seen[answer[chosen]])
                number = np.full(len(chosen), kb.predicate_index(name))
                found.append((number, np.full(len(chosen), inverse), higher, equal, unseen))
                if auc_pr:
                    true = np.zeros(scores.shape, dtype=bool)
                    true[np.arange(len(chosen)), answer[chosen] - place.start] = True
                    candidate = np.ones(scores.shape, dtype=bool)
                    candidate[known_row, others - place.start] = False
                    candidate |= true
                    pooled.append((scores[candidate], true[candidate]))
                done += len(chosen)
                if progress is not None:
                    progress(done, 2 * len(facts))
    relation, backwards, higher, equal, unseen = (np.concatenate(each) for each in zip(*found, strict=True))
    area = nan
    if auc_pr:
        from rulewright.evaluate.classification import average_precision

        area = average_precision(*(np.concatenate(each) for each in zip(*pooled, strict=True)))
    return RankingScores(names, relation, backwards, higher, equal, unseen, ties=ties, auc_pr=area)


class _Truth:
    """The right answers to each question, sorted."""

    def __init__(self, query: Numbers, answer: Numbers) -> None:
        pairs = np.unique(np.stack([query, answer]), axis=1)
        self._query, self._answer = pairs

    def of(self, queries: Numbers) -> tuple[Numbers, Numbers]:
        """Return the place of each question and its answers, side by side."""
        first = np.searchsorted(self._query, queries, side="left")
        counts = np.searchsorted(self._query, queries, side="right") - first
        rows = np.repeat(np.arange(len(queries)), counts)
        offset = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, self._answer[np.repeat(first, counts) + offset]
