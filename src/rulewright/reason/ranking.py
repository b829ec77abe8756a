"""Ranking the candidates of queries about a graph by the rules that speak for them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rulewright.checks import check_parameter
from rulewright.data import Domain, KnowledgeBase
from rulewright.data.index import Ids, match_sorted, positions_within
from rulewright.engine.walks import Evidence, Graph, RuleTable, find_relation
from rulewright.evaluate.ranking import count_rivals
from rulewright.logic import encode_step, is_inverse
from rulewright.reason.inferred import AGGREGATION, Aggregation
from rulewright.reason.program import Rules, read_rule_set
from rulewright.reason.rule_rows import (
    choose_aggregation,
    declare_predicates,
    find_conclusions,
    read_rows,
    write_table,
)

Scores = npt.NDArray[np.float64]
TIE_BREAK = 1e-9
"""With ``max-plus``, confidences nearer than this are equal, and what breaks ties adds less than this to a score."""
_FIRST_RULES = 64  # that queries are asked about in one go; most are then decided
_SHARED_QUERIES = 8  # about one entity, from which on all its candidates are put in order at once


class RuleRanker:
    """Scores candidates for ``r(h, ?)`` and ``r(?, t)`` by sparse products, a block of queries at a time.

    A query is known by its step, which walks the relation from what is asked about to the answer. Its table of rules
    with weights answers it. Of the rules that speak for a candidate, ``aggregation`` makes its score:

    - ``weight``: the sum of their weights;
    - ``noisy-or``: ``1 − Π(1 − c)`` of their confidences;
    - ``max``: the highest confidence;
    - ``max-plus``: the highest confidence; candidates that share it are ordered by the second highest, then the third,
      and so on, one that has no more below one that has. What tells them apart is added to the score, less than
      `TIE_BREAK`.

    Nothing larger than ``max_cells`` (queries × entities) is held. With ``threads`` sums are ranked by so many at a
    time, with the same ranks. ``graph`` is what the rules are run on, with relations of its own where rules need them
    (`read_rows`).

    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid"), ("eve", "g", "dan")])
    >>> ranker = RuleRanker.of(parse_rules("0.9 :: g(X, Z) :- parent_of(X, Y), parent_of(Y, Z)."), kb)
    >>> ranker.answers("g", "ann", 1), ranker.answers("g", "cid", 1, inverse=True)
    ([('cid', 0.9)], [('ann', 0.9)])
    """

    def __init__(
        self,
        kb: KnowledgeBase,
        tables: Mapping[int, tuple[RuleTable, Scores]],
        *,
        aggregation: Aggregation = "weight",
        max_cells: int = 2**22,
        graph: Graph | None = None,
        threads: int = 1,
    ) -> None:
        self.kb, self.tables, self.aggregation, self.max_cells = kb, dict(tables), aggregation, max_cells
        self.threads = threads
        self.graph = graph or Graph(kb)
        self._latest: tuple[int, Evidence] | None = None
        self._latest_batches: tuple[int, list[ConfidenceBatch]] | None = None

    @classmethod
    def of(
        cls,
        rules: Rules,
        kb: KnowledgeBase,
        *,
        aggregation: Aggregation | None = None,
        predicates: Collection[str] | None = None,
        memory_limit: int | str | None = None,
    ) -> RuleRanker:
        """Rank by rules; None chooses the aggregation by `choose_aggregation`.

        ``predicates`` are the relations of the queries to come, all by default. ``memory_limit`` is for the joins of
        rules that are no chains.
        """
        rule_set = read_rule_set(rules)
        aggregation = aggregation or choose_aggregation(rule_set)
        check_parameter("aggregation", aggregation, AGGREGATION)
        kb = declare_predicates(rule_set, kb)
        wanted = None if predicates is None else set(predicates)
        chosen = [statement for statement in rule_set if wanted is None or find_conclusions(statement) & wanted]
        rows, graph = read_rows(chosen, kb, weighted=aggregation == "weight", memory_limit=memory_limit)
        tables = {step: write_table(step, part) for step, part in rows.items()}
        return cls(kb, tables, aggregation=aggregation, graph=graph)

    def scores(self, relation: str, entities: Ids, *, inverse: bool = False) -> Scores:
        """Return a row for each entity: how well every entity answers ``relation(h, ?)``, or ``relation(?, h)``."""
        step = encode_step(find_relation(self.kb, relation), inverse)
        entities = np.asarray(entities, dtype=np.int64)
        scores = np.zeros((len(entities), self.graph.entities))
        if step not in self.tables:
            return scores
        weights = self.tables[step][1]
        for low in range(0, len(entities), self._block_size):
            rows = slice(low, low + self._block_size)
            if self.aggregation == "max-plus":
                scores[rows] = self._score_in_order(step, entities[rows])
                continue
            evidence = self._find_evidence(step)
            if self.aggregation == "max":
                row, candidate, rule, _ = evidence.firings(entities[rows])
                np.maximum.at(scores[rows].reshape(-1), row * self.graph.entities + candidate, weights[rule])
            elif self.aggregation == "noisy-or":
                scores[rows] = -np.expm1(-evidence.scores(entities[rows], self._find_summands(step)))
            else:
                scores[rows] = evidence.scores(entities[rows], self._find_summands(step))
        return scores

    def _score_in_order(self, step: int, entities: Ids) -> Scores:
        """Return the scores of ``max-plus``: rules are asked some at a time, about what is still tied."""
        width = self.graph.entities
        starts = np.arange(len(entities))[:, None] * width
        scores = np.zeros((len(entities), width))
        ranks = np.zeros(scores.shape, dtype=np.int64)  # how many candidates of the row are surely lower
        for batch in self._find_batches(step):
            groups = starts + ranks
            sizes = np.bincount(groups.reshape(-1), minlength=groups.size)
            undecided = (scores == 0) | (sizes[groups] > 1)
            row, candidate, rule, _ = batch.evidence.firings(entities, wanted=undecided)
            if len(row) == 0:
                continue
            cells, positions, highest = order_by_levels(row * width + candidate, batch.levels[rule])
            flat_scores, flat_ranks = scores.reshape(-1), ranks.reshape(-1)
            is_new = flat_scores[cells] == 0
            flat_scores[cells[is_new]] = batch.confidences[highest[is_new] - batch.levels[0]]
            group = groups.reshape(-1)[cells]
            order = np.lexsort((positions, group))
            group, positions, cells = group[order], positions[order], cells[order]
            new_group = np.append(True, group[1:] != group[:-1])
            new_position = new_group | np.append(True, positions[1:] != positions[:-1])
            at = np.arange(len(cells))
            group_start, position_start = (
                np.maximum.accumulate(np.where(new, at, 0)) for new in (new_group, new_position)
            )
            spoken = np.bincount(np.cumsum(new_group) - 1)[np.cumsum(new_group) - 1]
            flat_ranks[cells] += sizes[group] - spoken + position_start - group_start
        return np.where(scores > 0, scores + TIE_BREAK / 2 * ranks / max(1, width), 0.0)

    @property
    def _block_size(self) -> int:
        return max(1, self.max_cells // max(1, self.graph.entities))

    def _find_summands(self, step: int) -> Scores:
        """Return what each rule adds to a sum that orders candidates as their scores do."""
        weights = self.tables[step][1]
        return -np.log1p(-np.minimum(weights, 1 - 1e-12)) if self.aggregation == "noisy-or" else weights

    def _find_evidence(self, step: int) -> Evidence:
        if self._latest is None or self._latest[0] != step:
            self._latest = (step, Evidence(self.graph, self.tables[step][0]))
        return self._latest[1]

    def count_rivals(
        self, relation: str, asked: Ids, answers: Ids, known_row: Ids, known: Ids, *, inverse: bool = False
    ) -> tuple[Ids, Ids]:
        """Count for each query the candidates that score higher than its answer, and those that score the same.

        The counts are those that `evaluate.ranking.count_rivals` makes of `scores`; ``known`` has indices of entities.
        With ``max-plus`` no candidate is put in order but against the answer: rules are asked in the order of their
        confidences, some at a time, and only about queries and candidates that are not decided yet.
        """
        step = encode_step(find_relation(self.kb, relation), inverse)
        far = self.kb.domains[self.kb.predicate(relation).types[0 if inverse else 1]]
        higher, equal = np.zeros(len(asked), dtype=np.int64), np.zeros(len(asked), dtype=np.int64)
        _, entity_row, queries = np.unique(asked, return_inverse=True, return_counts=True)
        in_order = queries[entity_row] >= (_SHARED_QUERIES if self.aggregation == "max-plus" else 0)
        known_order = np.argsort(known_row, kind="stable")
        known_row, known = known_row[known_order], known[known_order]
        for chosen, count in (
            (np.flatnonzero(in_order), self._count_in_order),
            (np.flatnonzero(~in_order), self._count_undecided),
        ):
            for low in range(0, len(chosen), self._block_size):
                block = chosen[low : low + self._block_size]
                block_row, position = match_sorted(block, known_row)
                higher[block], equal[block] = count(
                    step, relation, far, asked[block], answers[block], block_row, known[position]
                )
        return higher, equal

    def _count_in_order(
        self, step: int, relation: str, far: Domain, asked: Ids, answers: Ids, known_row: Ids, known: Ids
    ) -> tuple[Ids, Ids]:
        """Count rivals by the scores of all candidates."""
        if step in self.tables and self.aggregation in ("weight", "noisy-or"):
            weights = self._find_summands(step)
            return self._find_evidence(step).count_rivals(
                asked,
                weights,
                answers,
                (known_row, known),
                range(far.start, far.start + len(far)),
                threads=self.threads,
            )
        entities, row = np.unique(asked, return_inverse=True)
        scores = self.scores(relation, entities, inverse=bool(is_inverse(step)))
        candidates = scores[row, far.start : far.start + len(far)]
        return count_rivals(candidates, answers - far.start, known_row, known - far.start)

    def _count_undecided(
        self, step: int, relation: str, far: Domain, asked: Ids, answers: Ids, known_row: Ids, known: Ids
    ) -> tuple[Ids, Ids]:
        """Count rivals rule by rule, the most confident first, until nothing can change any more."""
        rows = np.arange(len(asked))
        tied = np.zeros((len(asked), self.graph.entities), dtype=bool)
        tied[:, far.start : far.start + len(far)] = True
        tied[known_row, known] = False
        tied[rows, answers] = True
        higher = np.zeros(len(asked), dtype=np.int64)
        for batch in self._find_batches(step):
            open_rows = np.flatnonzero(tied.sum(axis=1) > 1)
            if len(open_rows) == 0:
                break
            row, candidate, rule, _ = batch.evidence.firings(asked[open_rows], wanted=tied[open_rows])
            wins, stays = compare_with_answers(
                row * self.graph.entities + candidate,
                batch.levels[rule],
                np.arange(len(open_rows)) * self.graph.entities + answers[open_rows],
                self.graph.entities,
            )
            flat = tied[open_rows]
            higher[open_rows] += np.bincount(wins // self.graph.entities, minlength=len(open_rows))
            flat.reshape(-1)[wins] = False
            spoken = np.unique(row[candidate == answers[open_rows][row]])
            still = np.zeros_like(flat)
            still.reshape(-1)[stays] = True
            flat[spoken] = still[spoken]
            tied[open_rows] = flat
        return higher, tied.sum(axis=1)

    def _find_batches(self, step: int) -> list[ConfidenceBatch]:
        """Return the rules of a query, the most confident first, some at a time."""
        if self._latest_batches is None or self._latest_batches[0] != step:
            batches = []
            if step in self.tables:
                table, weights = self.tables[step]
                levels, confidences = find_levels(weights)
                order = np.argsort(levels, kind="stable")
                low, size = 0, _FIRST_RULES
                while low < len(order):
                    high = int(np.searchsorted(levels[order], levels[order[min(low + size, len(order)) - 1]], "right"))
                    chosen = order[low:high]
                    evidence = Evidence(self.graph, table.select(chosen))
                    batches.append(ConfidenceBatch(evidence, levels[chosen], confidences[levels[chosen[0]] :]))
                    low, size = high, 2 * size
            self._latest_batches = (step, batches)
        return self._latest_batches[1]

    def answers(
        self, relation: str, entity: str, count: int = 10, *, inverse: bool = False, known: bool = False
    ) -> list[tuple[str, float]]:
        """Return the best answers to ``relation(entity, ?)``, or ``relation(?, entity)``, but for ``known`` facts."""
        near, far = (1, 0) if inverse else (0, 1)
        find_relation(self.kb, relation)
        domains = [self.kb.domains[type_name] for type_name in self.kb.predicate(relation).types]
        asked = domains[near].index_of(entity)
        scores = self.scores(relation, np.array([asked]), inverse=inverse)[0]
        if not known:
            columns = self.kb.columns(relation)
            scores[columns[far][columns[near] == asked]] = 0.0
        domain = domains[far]
        best = pick_best(scores[domain.start : domain.start + len(domain)], count)
        return [(str(domain.labels[index]), self.show_score(scores[domain.start + index])) for index in best]

    def show_score(self, score: float) -> float:
        """Return a score as it is shown: without what only breaks ties."""
        return float(round(score, 8 if self.aggregation == "max-plus" else 12))


def pick_best(scores: Scores, count: int) -> Ids:
    """Return the positions of the highest scores above 0, the highest first; of equal ones the earlier.

    >>> pick_best(np.array([0.5, 0.0, 0.9, 0.5]), 3).tolist()
    [2, 0, 3]
    """
    best: Ids = np.argsort(-scores, kind="stable")[:count]
    return best[scores[best] > 0]


class ConfidenceBatch(NamedTuple):
    """Some of the rules of a query: for each its level, 0 for the most confident of all, and the level's confidence."""

    evidence: Evidence
    levels: Ids
    confidences: Scores
    """Of the levels from the first of the batch on."""


def find_levels(confidences: Scores) -> tuple[Ids, Scores]:
    """Return the position of each confidence among the different ones, the highest first, and these.

    >>> [column.tolist() for column in find_levels(np.array([0.5, 0.75, 0.5, 0.75 + 1e-12]))]
    [[1, 0, 1, 0], [0.75, 0.5]]
    """
    _, first, levels = np.unique(-np.round(confidences / TIE_BREAK), return_index=True, return_inverse=True)
    return levels, confidences[first]


def order_by_levels(cells: Ids, levels: Ids) -> tuple[Ids, Ids, Ids]:
    """Return the different cells, how many of them each stands above, and the highest level of each.

    ``levels[k]`` is a level of ``cells[k]``, 0 the highest. Cells are ordered by their highest level, where that is the
    same by the second, and so on; one that has no more stands below one that has.

    >>> columns = order_by_levels(np.array([7, 8, 9, 7, 9]), np.array([1, 0, 0, 0, 2]))
    >>> [column.tolist() for column in columns]
    [[7, 8, 9], [2, 0, 1], [0, 0, 0]]
    """
    order = np.lexsort((levels, cells))
    levels = levels[order]
    different, starts, counts = np.unique(cells[order], return_index=True, return_counts=True)
    lowest = int(levels.max(initial=0)) + 1  # the level of no further value
    ranks = np.zeros(len(different), dtype=np.int64)
    open_cells, position = np.arange(len(different)), 0
    while len(open_cells):
        has_level = counts[open_cells] > position
        level = np.full(len(open_cells), lowest)
        level[has_level] = levels[starts[open_cells[has_level]] + position]
        order = np.lexsort((-level, ranks[open_cells]))
        rank, level = ranks[open_cells[order]], level[order]
        new_rank = np.append(True, rank[1:] != rank[:-1])
        new_group = new_rank | np.append(True, level[1:] != level[:-1])
        at = np.arange(len(order))
        rank_start, group_start = (np.maximum.accumulate(np.where(new, at, 0)) for new in (new_rank, new_group))
        ranks[open_cells[order]] = rank + group_start - rank_start
        group = np.cumsum(new_group) - 1
        is_tied = (np.bincount(group)[group] > 1) & (level < lowest)
        open_cells, position = np.sort(open_cells[order[is_tied]]), position + 1
    return different, ranks, levels[starts]


def compare_with_answers(cells: Ids, levels: Ids, answer_cells: Ids, width: int) -> tuple[Ids, Ids]:
    """Return the cells that stand above the answer of their row, and those level with it, its own among these.

    ``levels[k]`` is a level of ``cells[k]``, 0 the highest; row ``i`` has the cells from ``width · i`` on, its answer
    among them. Cells compare by their levels as in `order_by_levels`. Of cells without a level nothing is said.

    >>> cells, levels = np.array([1, 1, 2, 3]), np.array([0, 2, 0, 1])
    >>> [part.tolist() for part in compare_with_answers(cells, levels, np.array([2]), width=4)]
    [[1], [2]]
    """
    if len(cells) == 0:
        return cells, cells
    size = int(levels.max()) + 2
    keys = np.sort(cells * size + levels)
    cells, levels = keys // size, keys % size
    is_first = np.append(True, cells[1:] != cells[:-1])
    starts = np.flatnonzero(is_first)
    counts = np.diff(np.append(starts, len(cells)))
    different = cells[starts]
    row = different // width
    answer_start = np.searchsorted(cells, answer_cells)
    answer_count = np.searchsorted(cells, answer_cells, side="right") - answer_start
    position = positions_within(counts)
    level_row = np.repeat(row, counts)
    beside = np.full(len(cells), size)  # the answer's level at the same position, below all where it has none
    has_level = position < answer_count[level_row]
    beside[has_level] = levels[(answer_start[level_row] + position)[has_level]]
    # the first position where they differ decides
    differs = np.where(levels != beside, np.arange(len(cells)), len(cells))
    first = np.minimum.reduceat(differs, starts)
    has_difference = first < len(cells)
    wins = np.zeros(len(different), dtype=bool)
    wins[has_difference] = (levels < beside)[first[has_difference]]
    stays = ~has_difference & (counts == answer_count[row])
    return different[wins], different[stays]
