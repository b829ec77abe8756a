"""How probable answers and new facts are: curves fitted to what rules say of the facts of a split.

What the probability of a score means, by what is asked:

- ``forward`` and ``backward``: of the candidates with such a score for queries ``r(h, ?)`` or ``r(?, t)`` that have an
  answer in the split, the share that are facts of the split;
- ``fact``: of all new facts with such a score that rules give, whatever their head, that share.

Facts of training and of other splits are no candidates. The share counts what the split has: where the split is a small
part of what is missing in the graph, more is true than the probability says, and it is a lower bound. A query that has
no answer is not among those that ``forward`` and ``backward`` are fitted to, so there the probability holds for
questions that have one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from rulewright.checks import Flag, Names, OneOf, Progress, Whole, check_parameter, read_memory_limit, read_names
from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids, positions_within
from rulewright.engine import StoredFacts
from rulewright.errors import DataError, unknown_name
from rulewright.evaluate.calibration import (
    USUAL_SHRINKAGE,
    Calibration,
    CalibrationMethod,
    Judgement,
    Scores,
    check_format,
    measure_reliability,
)
from rulewright.evaluate.ranking import USUAL_MEMORY
from rulewright.files import write_text
from rulewright.io.json_shape import load
from rulewright.reason.answers import RankingModel
from rulewright.reason.inferred import AGGREGATION, Aggregation
from rulewright.reason.program import Rules, read_rule_set
from rulewright.reason.ranking import RuleRanker
from rulewright.reason.rule_rows import choose_aggregation, declare_predicates
from rulewright.reason.weighted import WeightedRules

Asked = Literal["forward", "backward", "fact"]
ASKED = OneOf("forward", "backward", "fact")
_EVERY_ASKED: tuple[Asked, ...] = ("forward", "backward", "fact")
_FORMAT = "rulewright ranking calibration 1"
_FEWEST_HEADS = 100  # without a fact in the split, of a relation, that new facts are looked for at
_BYTES_A_CELL = 64  # of a block of scores, with what is made of it


@dataclass(frozen=True)
class RankingCalibration:
    """Curves for the scores of answers and of new facts; see `calibrate_ranking`.

    ``fitted_on`` says which facts they are fitted to, ``rules`` how many statements gave the scores. ``judged`` has for
    ``forward``, ``backward`` and ``fact`` how well curves fitted to one half of the queries hold on the other half.
    """

    aggregation: Aggregation
    rules: int
    fitted_on: str
    curves: Mapping[Asked, Calibration]
    judged: Mapping[Asked, Judgement]
    note: str = ""

    def probabilities(self, relation: str, scores: npt.ArrayLike, asked: Asked = "forward") -> Scores:
        """Return the probability at each score of answers to ``r(h, ?)``, to ``r(?, t)``, or of new facts."""
        check_parameter("asked", asked, ASKED)
        return self.curves[asked].probabilities(relation, scores)

    def check_use(self, aggregation: Aggregation, rules: int) -> str:
        """Refuse scores that were aggregated otherwise; return what to note where other rules gave them."""
        if aggregation != self.aggregation:
            raise DataError(
                f"the calibration is of scores by {self.aggregation!r}, and these are by {aggregation!r}; "
                f"choose aggregation {self.aggregation!r}, or calibrate these"
            )
        if rules == self.rules:
            return ""
        return (
            f"the calibration was fitted to scores of {self.rules:,} statements, and these are of {rules:,}; "
            "calibrate again where they are other rules"
        )

    def as_dict(self) -> dict[str, object]:
        """Return everything, for JSON."""
        return {
            "aggregation": self.aggregation,
            "rules": self.rules,
            "fitted_on": self.fitted_on,
            "note": self.note,
            "judged": {asked: part.as_dict() for asked, part in self.judged.items()},
            "curves": {asked: self.curves[asked].as_dict() for asked in _EVERY_ASKED},
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all curves as JSON, in one step; `read` gives an equal value."""
        write_text(path, json.dumps({"format": _FORMAT, **self.as_dict()}, ensure_ascii=False, indent=1) + "\n")

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> RankingCalibration:
        """Read what `save` wrote; what is not as it must be is an error that names the file and the value."""
        source = load(path)
        check_format(source, _FORMAT)
        aggregation = source["aggregation"].text()
        if aggregation not in AGGREGATION.options:
            raise source["aggregation"].expected(f"one of {', '.join(map(str, AGGREGATION.options))}")
        judged: dict[Asked, Judgement] = {}
        for asked, part in source["judged"].fields():
            if asked not in ASKED.options:
                raise part.fault(f"is not judged; {', '.join(_EVERY_ASKED)} are")
            judged[cast(Asked, asked)] = Judgement.from_json(part)
        return cls(
            cast(Aggregation, aggregation),
            source["rules"].integer(),
            source["fitted_on"].text(),
            {asked: Calibration.from_json(source["curves"][asked]) for asked in _EVERY_ASKED},
            judged,
            source["note"].text(),
        )

    def __repr__(self) -> str:
        errors = ", ".join(
            f"{asked} {part.before.error:.3f} → {part.after.error:.3f}" for asked, part in self.judged.items()
        )
        return f"RankingCalibration({self.aggregation}, {self.fitted_on}; calibration error: {errors or 'not judged'})"


def calibrate_ranking(
    rules: Rules | RankingModel,
    kb: KnowledgeBase,
    split: str | KnowledgeBase = "valid",
    *,
    known: Sequence[KnowledgeBase] = (),
    predicates: str | Collection[str] | None = None,
    aggregation: Aggregation | None = None,
    method: CalibrationMethod = "isotonic",
    shrinkage: float = USUAL_SHRINKAGE,
    candidates: int = 100,
    refit: bool = True,
    seed: int = 0,
    memory_limit: int | str | None = None,
    progress: Progress | None = None,
) -> RankingCalibration:
    """Fit curves that say how probable a score is, to the facts of a split, for `rank` and `complete`.

    For every fact ``r(h, t)`` of the split, ``r(h, ?)`` and ``r(?, t)`` are posed, each query once; all its answers in
    the split are right, and other known facts, those of training, of every split and of ``known``, are no candidates.
    Candidates are those with a score above 0: what no rule speaks for is never shown, and a right answer among it
    counts nowhere (``note`` says how many). Of a query, the ``candidates`` with the best scores and all right answers
    are taken; of the others as many are drawn at random, and each stands for as many as were not drawn. For new facts
    heads are taken in the same way: all that have a fact in the split, and a sample of the others with weights. So no
    curve is flattered by what was left out.

    How well the curves hold is judged on queries that they were not fitted to (``judged``): curves are fitted to one
    half of the queries of each relation, and compared with the other half. Then they are fitted to all, unless
    ``refit`` is False: then those of the first half stay, so that the other half has not been seen. Before, scores
    count as probabilities as they are, cut off at 1.

    >>> from rulewright.data.generators import family
    >>> from rulewright import RuleMiner
    >>> kept, asked = family(60).kb.hold_out(0.2, keep_names=True)
    >>> rules = RuleMiner(max_length=2).fit(kept).rules_
    >>> calibration = calibrate_ranking(rules, kept, asked)
    >>> low, high = calibration.probabilities("child_of", [0.2, 0.9])
    >>> bool(0 <= low <= high <= 1)
    True
    """
    check_parameter("candidates", candidates, Whole(1))
    check_parameter("predicates", predicates, Names())
    check_parameter("refit", refit, Flag())
    if isinstance(kb, StoredFacts):
        raise DataError(
            "a calibration is fitted to facts in memory; read_facts reads them, and what was fitted serves facts that "
            "stay in an engine too"
        )
    if isinstance(rules, RankingModel):
        rule_set, aggregation = rules.rules_, aggregation or rules.ranker_.aggregation
    else:
        rule_set = read_rule_set(rules)
        aggregation = aggregation or choose_aggregation(rule_set)
    check_parameter("aggregation", aggregation, AGGREGATION)
    posed = kb.split(split) if isinstance(split, str) else split
    chosen = read_names(predicates)
    for name in chosen or ():
        if name not in kb.predicates:
            raise unknown_name("predicate", name, kb.predicates)
    relations = [
        name
        for name, declaration in kb.predicates.items()
        if signature(declaration) == "ee" and posed.count(name) and (chosen is None or name in chosen)
    ]
    if not relations:
        raise DataError("the split has no fact of two entities, so there is nothing to calibrate by")
    ranker = RuleRanker.of(rule_set, kb, aggregation=aggregation, predicates=relations, memory_limit=memory_limit)
    sampler = _CandidateSampler(
        declare_predicates(rule_set, kb),
        posed,
        [kb, *kb.splits.values(), *known],
        candidates,
        np.random.default_rng(seed),
        # scores are fitted as they are shown
        decimals=8 if aggregation == "max-plus" else 12,
        cells=max(1, (read_memory_limit(memory_limit) or USUAL_MEMORY) // _BYTES_A_CELL),
    )
    weighted = None
    if aggregation == "weight":
        weighted = WeightedRules(rule_set, kb, predicates=relations, memory_limit=memory_limit)
    for done, name in enumerate(relations):
        if progress is not None:
            progress(f"calibrating {name}", done, len(relations))
        sampler.pose_queries(ranker, name, inverse=False)
        sampler.pose_queries(ranker, name, inverse=True)
        sampler.look_for_facts(ranker if weighted is None else weighted, name)
    if progress is not None:
        progress("calibrating", len(relations), len(relations))
    curves: dict[Asked, Calibration] = {}
    judged: dict[Asked, Judgement] = {}
    notes = [sampler.describe_missed()]
    for asked in _EVERY_ASKED:
        columns = sampler.columns(asked)
        first, second = columns.take(~columns.is_second), columns.take(columns.is_second)
        halves = "fact" if asked == "fact" else f"{asked} queries"
        if not columns.is_true.any():
            raise DataError(
                f"rules speak for no fact of the split ({halves}), so no score can be told to be probable; "
                "learn rules for its relations, or calibrate by a split that has such facts"
            )
        if first.is_true.any() and len(second.scores):
            fitted = first.fit(sampler.names, method, shrinkage)
            after = fitted.probabilities_of(sampler.names, second.relation, second.scores)
            judged[asked] = Judgement(
                measure_reliability(np.clip(second.scores, 0, 1), second.is_true, second.weights),
                measure_reliability(after, second.is_true, second.weights),
            )
        else:
            notes.append(f"{asked}: too few facts for two halves, so it was fitted to all and is not judged")
        curves[asked] = (columns if refit or asked not in judged else first).fit(sampler.names, method, shrinkage)
    facts = sum(posed.count(name) for name in relations)
    name_of_split = split if isinstance(split, str) else "held-out facts"
    return RankingCalibration(
        aggregation,
        len(rule_set),
        f"{name_of_split}, {facts:,} facts" if refit else f"half the queries of {name_of_split}, {facts:,} facts",
        curves,
        judged,
        "; ".join(note for note in notes if note),
    )


class _Columns(NamedTuple):
    """Candidates, a row for each."""

    relation: npt.NDArray[Any]
    scores: npt.NDArray[Any]
    is_true: npt.NDArray[Any]
    weights: npt.NDArray[Any]
    is_second: npt.NDArray[Any]
    """Whether the query is of the half that judges."""

    def take(self, rows: npt.NDArray[np.bool_]) -> _Columns:
        return _Columns(*(column[rows] for column in self))

    def fit(self, names: Sequence[str], method: CalibrationMethod, shrinkage: float) -> Calibration:
        return Calibration.fit(
            names, self.relation, self.scores, self.is_true, self.weights, method=method, shrinkage=shrinkage
        )


class _CandidateSampler:
    """Collects the candidates of queries, as many as are needed, with the number that each stands for."""

    def __init__(
        self,
        kb: KnowledgeBase,
        posed: KnowledgeBase,
        known: Sequence[KnowledgeBase],
        candidates: int,
        random: np.random.Generator,
        *,
        decimals: int,
        cells: int,
    ) -> None:
        self.kb, self.posed, self.known, self.candidates, self.random = kb, posed, known, candidates, random
        self.decimals, self.block = decimals, max(1, cells // max(1, kb.n_entities))
        self.names = tuple(kb.predicates)
        self._parts: dict[Asked, list[_Columns]] = {asked: [] for asked in _EVERY_ASKED}
        self._facts, self._spoken = 0, 0

    def columns(self, asked: Asked) -> _Columns:
        return _Columns(*map(np.concatenate, zip(*self._parts[asked], strict=True)))

    def describe_missed(self) -> str:
        missed = self._facts - self._spoken
        return (
            f"no rule speaks for {missed:,} of {self._facts:,} right answers, which no probability counts"
            if missed
            else ""
        )

    def pose_queries(self, ranker: RuleRanker, name: str, *, inverse: bool) -> None:
        """Collect the candidates of every query about a fact of the split."""
        posed = self._keys(name, [self.posed])
        width = self.kb.n_entities
        queries = np.unique(posed % width if inverse else posed // width)
        is_second = self._halve(len(queries))
        known = self._known(name, posed)
        self._facts += len(posed)
        for low in range(0, len(queries), self.block):
            block = slice(low, low + self.block)
            row, candidate, scores = self._score(ranker, name, queries[block], inverse=inverse)
            near = queries[block][row]
            keys = candidate * width + near if inverse else near * width + candidate
            columns = self._choose(name, row, keys, scores, posed, known, np.ones(len(row)), is_second[block][row])
            self._spoken += int(columns.is_true.sum())
            self._parts["backward" if inverse else "forward"].append(columns)

    def look_for_facts(self, scorer: RuleRanker | WeightedRules, name: str) -> None:
        """Collect new facts of a relation: at all heads that have a fact in the split, and at a sample of others."""
        posed, width = self._keys(name, [self.posed]), self.kb.n_entities
        domain = self.kb.domains[self.kb.predicate(name).types[0]]
        asked = np.unique(posed // width)
        others = np.setdiff1d(np.arange(domain.start, domain.start + len(domain)), asked)
        sample = self.random.choice(others, min(len(others), max(len(asked), _FEWEST_HEADS)), replace=False)
        heads = np.concatenate([asked, sample])
        weights = np.repeat([1.0, len(others) / max(1, len(sample))], [len(asked), len(sample)])
        is_second = np.concatenate([self._halve(len(asked)), self._halve(len(sample))])
        order = np.argsort(heads)
        heads, weights, is_second = heads[order], weights[order], is_second[order]
        # what is observed to be false is never given as new
        known = np.union1d(self._known(name, posed), self._keys(name, self.known[:1], truth=False))
        for head, tail, scores in self._score_facts(scorer, name, heads):
            position = np.searchsorted(heads, head)
            keys, weight, half = head * width + tail, weights[position], is_second[position]
            self._parts["fact"].append(self._choose(name, head, keys, scores, posed, known, weight, half))

    def _score_facts(
        self, scorer: RuleRanker | WeightedRules, name: str, heads: Ids
    ) -> Iterator[tuple[Ids, Ids, Scores]]:
        if isinstance(scorer, WeightedRules):
            yield from scorer.score_new_facts(name, heads)
            return
        for low in range(0, len(heads), self.block):
            row, candidate, scores = self._score(scorer, name, heads[low : low + self.block], inverse=False)
            yield heads[low : low + self.block][row], candidate, scores

    def _score(self, ranker: RuleRanker, name: str, entities: Ids, *, inverse: bool) -> tuple[Ids, Ids, Scores]:
        """Return (row, candidate, score) of the candidates that rules speak for."""
        domain = self.kb.domains[self.kb.predicate(name).types[0 if inverse else 1]]
        scores = ranker.scores(name, entities, inverse=inverse)[:, domain.start : domain.start + len(domain)]
        row, position = np.nonzero(scores > 0)
        return row, position + domain.start, scores[row, position]

    def _choose(
        self,
        name: str,
        row: Ids,
        keys: Ids,
        scores: Scores,
        posed: Ids,
        known: Ids,
        weights: Scores,
        is_second: npt.NDArray[np.bool_],
    ) -> _Columns:
        """Take the best candidates of each row, all right answers, and a sample of the others with their weight."""
        is_candidate = ~np.isin(keys, known)
        row, keys, scores = row[is_candidate], keys[is_candidate], scores[is_candidate]
        weights, is_second = weights[is_candidate], is_second[is_candidate]
        is_true = np.isin(keys, posed)
        order = np.lexsort((-scores, row))
        is_kept = np.zeros(len(row), dtype=bool)
        is_kept[order] = positions_within(_count_runs(row[order])) < self.candidates
        is_kept |= is_true
        others = np.flatnonzero(~is_kept)
        # in random order within a row, the first are a sample
        others = others[np.lexsort((self.random.random(len(others)), row[others]))]
        counts = _count_runs(row[others])
        drawn = others[positions_within(counts) < self.candidates]
        many = np.repeat(counts, counts)[positions_within(counts) < self.candidates]
        weights[drawn] *= np.maximum(1.0, many / self.candidates)
        is_kept[drawn] = True
        relation = np.full(int(is_kept.sum()), self.kb.predicate_index(name), dtype=np.int64)
        shown = np.round(scores[is_kept], self.decimals)
        return _Columns(relation, shown, is_true[is_kept], weights[is_kept], is_second[is_kept])

    def _halve(self, count: int) -> npt.NDArray[np.bool_]:
        """Draw a half; of an odd number a coin says which half has one more."""
        order: Ids = self.random.permutation(count) + self.random.integers(2)
        return np.equal(order % 2, 1)

    def _known(self, name: str, posed: Ids) -> Ids:
        return np.setdiff1d(self._keys(name, self.known), posed)

    def _keys(self, name: str, bases: Sequence[KnowledgeBase], *, truth: bool = True) -> Ids:
        """Return the facts of a relation as ``head · entities + tail``, each once, in order."""
        keys = [np.zeros(0, dtype=np.int64)]
        for base in bases:
            table = base.tables(truth=truth).get("ee")
            if table is not None:
                heads, tails = table.columns_of(base.predicate_index(name))
                keys.append(heads.astype(np.int64) * self.kb.n_entities + tails)
        return np.unique(np.concatenate(keys))


def _count_runs(values: Ids) -> Ids:
    """Return how often each value stands in a row of equal ones.

    >>> _count_runs(np.array([4, 4, 7])).tolist()
    [2, 1]
    """
    starts = np.flatnonzero(np.append(True, values[1:] != values[:-1])) if len(values) else np.zeros(0, dtype=np.int64)
    return np.diff(np.append(starts, len(values)))
