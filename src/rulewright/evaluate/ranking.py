"""How well queries about a graph are answered: the rank of the right answer among all entities.

With ``n`` candidates that score strictly higher than the answer and ``m`` that score the same (the answer among them),
the reciprocal rank in expectation over the order of equals is ``(1/m) Σ_{i=1..m} 1/(n+i)``, and
``Hits@K = (1/m) Σ_{i=1..m} [n+i ≤ K]``. Optimistically the rank is ``n + 1``, pessimistically ``n + m``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy.special import digamma

from rulewright.checks import OneOf, Progress, check_parameter, read_memory_limit
from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids, match_sorted
from rulewright.errors import DataError

Scores = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Ties = Literal["mean", "optimistic", "pessimistic"]
TIES = OneOf("mean", "optimistic", "pessimistic")
HITS = (1, 3, 10)
USUAL_MEMORY = 2**29
"""How many bytes the scores of one block of queries may take."""


class Scorer(Protocol):
    """Scores every entity as an answer."""

    def scores(self, relation: str, entities: Ids, *, inverse: bool = False) -> Scores:
        """Return a row for each entity: how well every entity answers ``relation(h, ?)``, or ``relation(?, h)``."""
        ...


@runtime_checkable
class RivalCounter(Protocol):
    """A scorer that compares candidates with the answer alone, quicker than by scores of all of them."""

    def count_rivals(
        self, relation: str, asked: Ids, answers: Ids, known_row: Ids, known: Ids, *, inverse: bool = False
    ) -> tuple[Ids, Ids]:
        """Count for each query the candidates that score higher than its answer, and those that score the same.

        ``known[k]`` is a right answer to query ``known_row[k]``, each named once; all are entity indices.
        """
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
    """The rank of every right answer, and the figures that follow from it.

    ``higher`` and ``equal`` count the candidates of each query that score higher than its answer, and the same;
    ``relation`` are indices into ``names``, ``inverse`` is the direction, ``unseen`` whether the query or its answer
    has an entity that no training fact names.
    """

    names: tuple[str, ...]
    relation: Ids
    inverse: Mask
    higher: Ids
    equal: Ids
    unseen: Mask
    ties: Ties = "mean"
    auc_pr: float = nan

    def __len__(self) -> int:
        return len(self.higher)

    @cached_property
    def mrr(self) -> float:
        """The mean reciprocal rank."""
        return float(reciprocal_ranks(self.higher, self.equal, self.ties).mean()) if len(self) else nan

    def hits(self, k: int) -> float:
        """Return the share of answers among the first ``k``."""
        return float(hits(self.higher, self.equal, k, self.ties).mean()) if len(self) else nan

    def part(self, keep: Mask) -> RankingScores:
        """Return the figures of some queries."""
        columns = {name: getattr(self, name)[keep] for name in ("relation", "inverse", "higher", "equal", "unseen")}
        return replace(self, **columns, auc_pr=nan)

    def by_relation(self) -> dict[str, RankingScores]:
        """Return the figures of each relation that has queries."""
        return {self.names[index]: self.part(self.relation == index) for index in np.unique(self.relation)}

    def figures(self) -> dict[str, float]:
        """Return MRR and Hits@1/3/10, and AUC-PR where it was computed."""
        figures = {"mrr": self.mrr, **{f"hits@{k}": self.hits(k) for k in HITS}}
        return figures if np.isnan(self.auc_pr) else {**figures, "auc_pr": self.auc_pr}

    def as_dict(self) -> dict[str, object]:
        """Return all figures, for JSON."""
        return {
            "questions": len(self),
            "ties": self.ties,
            "unseen": int(self.unseen.sum()),
            **self.figures(),
            "forward": self.part(~self.inverse).figures(),
            "backward": self.part(self.inverse).figures(),
            "by_relation": {
                name: {"questions": len(part), **part.figures()} for name, part in self.by_relation().items()
            },
        }

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {value:.4f}" for name, value in self.figures().items())
        return f"RankingScores({len(self):,} queries, {figures})"


def count_rivals(scores: Scores, answers: Ids, known_row: Ids, known: Ids) -> tuple[Ids, Ids]:
    """Count for each row the candidates that score higher than its answer, and those that score the same.

    ``known[k]`` is a right answer to the query of row ``known_row[k]``, each named once; but for the row's own answer,
    they are no candidates.

    >>> scores = np.array([[0.5, 0.9, 0.5, 0.1]])
    >>> [counts.tolist() for counts in count_rivals(scores, np.array([2]), np.array([0]), np.array([1]))]
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
    memory_limit: int | str | None = None,
    progress: Progress | None = None,
) -> RankingScores:
    """Pose ``r(h, ?)`` and ``r(?, t)`` for every fact of a split and find the rank of its answer among all entities.

    Other right answers, those among the training facts and the splits ``known`` (all by default), are no candidates.
    Candidates are the entities of the argument's type. ``auc_pr`` adds the average precision of all (query, candidate)
    pairs ranked together, for small sets: it holds all their scores. ``memory_limit`` bounds the scores of one block of
    queries, 512 MiB by default.
    """
    check_parameter("ties", ties, TIES)
    queries = kb.split(split) if isinstance(split, str) else split
    facts = queries.tables().get("ee")
    if facts is None or len(facts) == 0:
        raise DataError("the split has no fact of two entities, so there are no queries")
    bases = [kb, *(kb.splits.values() if known is None else (kb.split(name) for name in known)), queries]
    is_seen = np.zeros(kb.n_entities, dtype=bool)
    for column in kb.tables()["ee"].columns if "ee" in kb.tables() else ():
        is_seen[column] = True
    block_size = max(1, (read_memory_limit(memory_limit) or USUAL_MEMORY) // (8 * max(1, kb.n_entities)))
    blocks: list[tuple[npt.NDArray[Any], ...]] = []
    pooled: list[tuple[Scores, Mask]] = []
    done = 0
    for name, declaration in kb.predicates.items():
        if signature(declaration) != "ee" or (relations is not None and name not in relations):
            continue
        posed = [column.astype(np.int64) for column in queries.columns(name)]
        if len(posed[0]) == 0:
            continue
        for inverse in (False, True):
            near, far = (1, 0) if inverse else (0, 1)
            domain = kb.domains[declaration.types[far]]
            asked, answers = posed[near], posed[far]
            pairs = [np.concatenate([base.columns(name)[side] for base in bases]) for side in (near, far)]
            known_asked, known_answers = np.unique(np.stack(pairs).astype(np.int64), axis=1)
            order = np.argsort(asked, kind="stable")
            for start in range(0, len(order), block_size):
                chosen = order[start : start + block_size]
                known_row, position = match_sorted(asked[chosen], known_asked)
                if isinstance(scorer, RivalCounter) and not auc_pr:
                    higher, equal = scorer.count_rivals(
                        name, asked[chosen], answers[chosen], known_row, known_answers[position], inverse=inverse
                    )
                else:
                    entities, row = np.unique(asked[chosen], return_inverse=True)
                    scores = np.asarray(scorer.scores(name, entities, inverse=inverse), dtype=np.float64)
                    scores = scores[row, domain.start : domain.start + len(domain)]
                    known_candidate, answer = known_answers[position] - domain.start, answers[chosen] - domain.start
                    higher, equal = count_rivals(scores, answer, known_row, known_candidate)
                is_unseen = ~(is_seen[asked[chosen]] & is_seen[answers[chosen]])
                relation = np.full(len(chosen), kb.predicate_index(name))
                blocks.append((relation, np.full(len(chosen), inverse), higher, equal, is_unseen))
                if auc_pr:
                    is_true = np.zeros(scores.shape, dtype=bool)
                    is_true[np.arange(len(chosen)), answer] = True
                    is_candidate = np.ones(scores.shape, dtype=bool)
                    is_candidate[known_row, known_candidate] = False
                    is_candidate |= is_true
                    pooled.append((scores[is_candidate], is_true[is_candidate]))
                done += len(chosen)
                if progress is not None:
                    progress("ranking", done, 2 * len(facts))
    if not blocks:
        raise DataError(f"the split has no fact of {', '.join(relations or ())}, so there are no queries")
    area = nan
    if auc_pr:
        from rulewright.evaluate.classification import average_precision

        area = average_precision(*(np.concatenate(columns) for columns in zip(*pooled, strict=True)))
    relation, backwards, higher, equal, is_unseen = (np.concatenate(columns) for columns in zip(*blocks, strict=True))
    return RankingScores(tuple(kb.predicates), relation, backwards, higher, equal, is_unseen, ties=ties, auc_pr=area)
