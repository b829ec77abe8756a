"""How well queries about a graph are answered: the rank of the right answer among all entities.

With ``n`` candidates that score strictly higher than the answer and ``m`` that score the same (the answer among them),
the reciprocal rank in expectation over the order of equals is ``(1/m) Σ_{i=1..m} 1/(n+i)``, and
``Hits@K = (1/m) Σ_{i=1..m} [n+i ≤ K]``; the rank itself is ``n + (m+1)/2``. Optimistically it is ``n + 1``,
pessimistically ``n + m``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import nan
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy.special import digamma

from rulewright.checks import OneOf, Progress, Whole, check_parameter, read_memory_limit
from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids, match_sorted
from rulewright.errors import DataError
from rulewright.files import STDIO, write_text

Scores = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]
Ties = Literal["mean", "optimistic", "pessimistic"]
TIES = OneOf("mean", "optimistic", "pessimistic")
HITS = (1, 3, 10)
USUAL_MEMORY = 2**29
"""How many bytes the scores of one block of queries may take."""
CARDINALITIES = ("1-1", "1-n", "n-1", "n-n")
"""How many tails a head has, and heads a tail: ``1-n`` is a relation whose heads have several tails."""
MANY = 1.5
"""From so many answers on average on, an entity has several (Bordes et al., 2013)."""
PREDICTION_ENDINGS = (".tsv", ".csv", ".jsonl")
_NO_CARDINALITY = "no training facts"
_KEPT_COLUMNS = 4  # what a block of scores takes beside itself while the best candidates are picked


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


def expect_ranks(higher: npt.ArrayLike, equal: npt.ArrayLike, ties: Ties = "mean") -> Scores:
    """Return the rank, its expectation where several candidates score the same.

    >>> expect_ranks([0, 1], [1, 2]).tolist()
    [1.0, 2.5]
    """
    n, m = np.asarray(higher, dtype=np.float64), np.asarray(equal, dtype=np.float64)
    return n + {"mean": (m + 1) / 2, "optimistic": np.ones_like(m), "pessimistic": m}[ties]


def name_cardinalities(facts: npt.ArrayLike, heads: npt.ArrayLike, tails: npt.ArrayLike) -> tuple[str, ...]:
    """Return for each relation how many tails a head has and how many heads a tail, from the number of each.

    An entity that has 1.5 answers on average has several, as in Bordes et al., Translating embeddings for modeling
    multi-relational data, NeurIPS 2013.

    >>> name_cardinalities([4, 6, 6, 6, 0], [4, 2, 6, 2, 0], [4, 6, 2, 3, 0])
    ('1-1', '1-n', 'n-1', 'n-n', 'no training facts')
    """
    count, different_heads, different_tails = (np.asarray(column) for column in (facts, heads, tails))
    has_tails, has_heads = count >= MANY * different_heads, count >= MANY * different_tails
    names = np.array(CARDINALITIES, dtype=object)[has_tails + 2 * has_heads]
    return tuple(np.where(count > 0, names, _NO_CARDINALITY).tolist())


def find_cardinalities(kb: KnowledgeBase) -> tuple[str, ...]:
    """Return the cardinality of each predicate by its facts, as `name_cardinalities` has it.

    >>> facts = [("ann", "born_in", "rome"), ("bob", "born_in", "rome"), ("ann", "likes", "bob")]
    >>> find_cardinalities(KnowledgeBase.from_triples(facts))
    ('n-1', '1-1')
    """
    counts = np.zeros((3, len(kb.predicates)), dtype=np.int64)
    for index, (name, declaration) in enumerate(kb.predicates.items()):
        if signature(declaration) == "ee":
            heads, tails = kb.columns(name)
            counts[:, index] = len(heads), len(np.unique(heads)), len(np.unique(tails))
    return name_cardinalities(*counts)


@dataclass(frozen=True)
class RankedQueries:
    """What was asked, query by query: the entity ``asked`` about, its right ``answer`` and the ``score`` of this.

    ``top`` has the best candidates of each query, best first, of equal ones that of lower index; other right answers
    are none. ``top_scores`` are theirs. Where there are fewer, −1 and NaN fill the row. Entities are given by index;
    ``labels`` has theirs.
    """

    asked: Ids
    answer: Ids
    score: Scores
    top: Ids
    top_scores: Scores
    labels: npt.NDArray[np.object_]

    def part(self, keep: Mask) -> RankedQueries:
        """Return some of the queries."""
        names = ("asked", "answer", "score", "top", "top_scores")
        return replace(self, **{name: getattr(self, name)[keep] for name in names})


@dataclass(frozen=True)
class RankingScores:
    """The rank of every right answer, and the figures that follow from it.

    ``higher`` and ``equal`` count the candidates of each query that score higher than its answer, and the same;
    ``relation`` are indices into ``names``, ``inverse`` is the direction, ``unseen`` whether the query or its answer
    has an entity that no training fact names. ``cardinalities`` has a word of `CARDINALITIES` for each of the names;
    ``queries`` what was asked and the best candidates, where these were kept.
    """

    names: tuple[str, ...]
    relation: Ids
    inverse: Mask
    higher: Ids
    equal: Ids
    unseen: Mask
    ties: Ties = "mean"
    auc_pr: float = nan
    cardinalities: tuple[str, ...] = ()
    queries: RankedQueries | None = None

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
        queries = None if self.queries is None else self.queries.part(keep)
        return replace(self, **columns, auc_pr=nan, queries=queries)

    def by_relation(self) -> dict[str, RankingScores]:
        """Return the figures of each relation that has queries."""
        return {self.names[index]: self.part(self.relation == index) for index in np.unique(self.relation)}

    def by_cardinality(self) -> dict[str, RankingScores]:
        """Return the figures of the relations of each cardinality that has queries, in the order of `CARDINALITIES`.

        A relation's cardinality is that of its training facts: see `name_cardinalities`.
        """
        words = (*CARDINALITIES, _NO_CARDINALITY)
        of_query = np.array(self.cardinalities, dtype=object)[self.relation] if self.cardinalities else None
        parts = {} if of_query is None else {word: self.part(of_query == word) for word in words}
        return {word: part for word, part in parts.items() if len(part)}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield every query with its rank and the best answers, those above 0, where these were kept.

        >>> kb = KnowledgeBase.from_triples([("ann", "likes", "bob"), ("bob", "likes", "cid")])
        >>> class Everyone:
        ...     def scores(self, relation, entities, *, inverse=False):
        ...         return np.tile([0.0, 0.5, 0.25], (len(entities), 1))
        >>> row = next(evaluate_ranking(Everyone(), kb, kb, top=1).rows())
        >>> row["asked"], row["answer"], row["rank"], row["top"]
        ('ann', 'bob', 1.0, [('bob', 0.5)])
        """
        if self.queries is None:
            raise DataError("what was asked was not kept; evaluate with top=10 to keep it and the ten best answers")
        queries = self.queries
        for position, rank in enumerate(expect_ranks(self.higher, self.equal, self.ties).tolist()):
            best = queries.top_scores[position] > 0  # what nothing speaks for is no answer; NaN is no number
            entities, scores = queries.labels[queries.top[position][best]], queries.top_scores[position][best]
            yield {
                "relation": self.names[self.relation[position]],
                "direction": "backward" if self.inverse[position] else "forward",
                "asked": queries.labels[queries.asked[position]],
                "answer": queries.labels[queries.answer[position]],
                "rank": rank,
                "higher": int(self.higher[position]),
                "equal": int(self.equal[position]),
                "score": float(queries.score[position]),
                "top": [*zip(entities.tolist(), scores.tolist(), strict=True)],
            }

    def write_predictions(self, path: str | os.PathLike[str]) -> None:
        """Write a row for each query, as `rows` has it: TSV, CSV or JSON lines by the ending; ``-`` is TSV."""
        from rulewright.io.delimited import write_columns

        if check_prediction_file(path) == ".jsonl":
            lines = (
                json.dumps(
                    {**row, "top": [{"entity": entity, "score": score} for entity, score in row["top"]]},
                    ensure_ascii=False,
                )
                for row in self.rows()
            )
            write_text(path, "".join(f"{line}\n" for line in lines))
            return
        count = 0 if self.queries is None else self.queries.top.shape[1]
        numbers = range(1, count + 1)
        header = ["relation", "direction", "asked", "answer", "rank", "higher", "equal", "score"]
        header += [f"{name}_{number}" for number in numbers for name in ("top", "score")]
        write_columns(path, header, (_write_cells(row, count) for row in self.rows()))

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
            "by_cardinality": {
                name: {
                    "relations": len(np.unique(part.relation)),
                    "questions": len(part),
                    **part.figures(),
                    "forward": part.part(~part.inverse).figures(),
                    "backward": part.part(part.inverse).figures(),
                }
                for name, part in self.by_cardinality().items()
            },
        }

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {value:.4f}" for name, value in self.figures().items())
        return f"RankingScores({len(self):,} queries, {figures})"


def _write_cells(row: dict[str, Any], count: int) -> list[str]:
    """Return the cells of a query in a table with so many best answers."""
    cells = [row["relation"], row["direction"], row["asked"], row["answer"], f"{row['rank']:g}"]
    cells += [str(row["higher"]), str(row["equal"]), f"{row['score']:.6g}"]
    best = [cell for entity, score in row["top"] for cell in (entity, f"{score:.6g}")]
    return [*cells, *best, *[""] * (2 * count - len(best))]


def check_prediction_file(path: str | os.PathLike[str]) -> str:
    """Return the ending of a file for predictions, and refuse one that tells no format.

    >>> check_prediction_file("ranks.csv.gz")
    '.csv'
    >>> check_prediction_file("ranks.txt")
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: cannot tell the format of ranks.txt; predictions are written as .tsv, .csv or .jsonl
    """
    from rulewright.io.formats import plain_suffix

    ending = ".tsv" if os.fspath(path) == STDIO else plain_suffix(path)
    if ending not in PREDICTION_ENDINGS:
        raise DataError(f"cannot tell the format of {path}; predictions are written as .tsv, .csv or .jsonl")
    return ending


def pick_top(scores: Scores, count: int) -> Ids:
    """Return for each row the positions of its highest scores, the highest first, of equal ones the earlier.

    >>> pick_top(np.array([[0.5, 0.0, 0.9, 0.5], [0.0, 0.0, 0.0, 0.0]]), 3).tolist()
    [[2, 0, 3], [0, 1, 2]]
    """
    rows, width = scores.shape
    count = min(count, width)
    if count == 0 or rows == 0:
        return np.zeros((rows, count), dtype=np.int64)
    lowest = np.partition(scores, width - count, axis=1)[:, width - count, None]
    is_picked = scores > lowest
    is_tied = scores == lowest
    missing = count - is_picked.sum(axis=1, keepdims=True)
    is_picked |= is_tied & (np.cumsum(is_tied, axis=1, dtype=np.int32) <= missing)
    picked = np.nonzero(is_picked)[1].reshape(rows, count)
    order = np.argsort(-np.take_along_axis(scores, picked, axis=1), axis=1, kind="stable")
    best: Ids = np.take_along_axis(picked, order, axis=1)
    return best


def _keep_top(
    scores: Scores, answers: Ids, known_row: Ids, known: Ids, count: int, first: int
) -> tuple[Scores, Ids, Scores]:
    """Return the answers' scores, and of each row the best candidates and their scores, in ``count`` columns.

    Columns of ``scores`` are candidates, whose entity indices begin with ``first``. The other right answers of a row
    are taken out of ``scores``.
    """
    other = known != answers[known_row]
    scores[known_row[other], known[other]] = -np.inf
    own = scores[np.arange(len(answers)), answers]
    picked = pick_top(scores, count)
    top_scores = np.full((len(answers), count), nan)
    top_scores[:, : picked.shape[1]] = np.take_along_axis(scores, picked, axis=1)
    top = np.full((len(answers), count), -1)
    top[:, : picked.shape[1]] = picked + first
    is_none = np.isneginf(top_scores)
    top[is_none], top_scores[is_none] = -1, nan
    return own, top, top_scores


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
    top: int = 0,
    memory_limit: int | str | None = None,
    progress: Progress | None = None,
) -> RankingScores:
    """Pose ``r(h, ?)`` and ``r(?, t)`` for every fact of a split and find the rank of its answer among all entities.

    Other right answers, those among the training facts and the splits ``known`` (all by default), are no candidates.
    Candidates are the entities of the argument's type. ``auc_pr`` adds the average precision of all (query, candidate)
    pairs ranked together, for small sets: it holds all their scores. With ``top`` what was asked is kept, and so many
    of the best candidates of each query, for `RankingScores.rows` and `RankingScores.write_predictions`.
    ``memory_limit`` bounds the scores of one block of queries, 512 MiB by default.
    """
    check_parameter("ties", ties, TIES)
    check_parameter("top", top, Whole(0))
    queries = kb.split(split) if isinstance(split, str) else split
    facts = queries.tables().get("ee")
    if facts is None or len(facts) == 0:
        raise DataError("the split has no fact of two entities, so there are no queries")
    bases = [kb, *(kb.splits.values() if known is None else (kb.split(name) for name in known)), queries]
    is_seen = np.zeros(kb.n_entities, dtype=bool)
    for column in kb.tables()["ee"].columns if "ee" in kb.tables() else ():
        is_seen[column] = True
    columns_at_once = (_KEPT_COLUMNS if top else 1) * max(1, kb.n_entities)
    block_size = max(1, (read_memory_limit(memory_limit) or USUAL_MEMORY) // (8 * columns_at_once))
    blocks: list[tuple[npt.NDArray[Any], ...]] = []
    pooled: list[tuple[Scores, Mask]] = []
    kept: list[tuple[npt.NDArray[Any], ...]] = []
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
                if isinstance(scorer, RivalCounter) and not auc_pr and not top:
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
                if top:
                    best = _keep_top(scores, answer, known_row, known_candidate, top, domain.start)
                    kept.append((asked[chosen], answers[chosen], *best))
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
    ranked = None
    if top:
        labels = np.empty(kb.n_entities, dtype=object)
        for domain in kb.domains.values():
            labels[domain.start : domain.start + len(domain)] = domain.labels
        all_asked, all_answers, own, best_candidates, best_scores = map(np.concatenate, zip(*kept, strict=True))
        ranked = RankedQueries(all_asked, all_answers, own, best_candidates, best_scores, labels)
    return RankingScores(
        tuple(kb.predicates),
        relation,
        backwards,
        higher,
        equal,
        is_unseen,
        ties=ties,
        auc_pr=area,
        cardinalities=find_cardinalities(kb),
        queries=ranked,
    )
