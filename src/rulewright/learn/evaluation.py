"""How well rules, or what a learner makes of the rest, answer questions about facts that were held out."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sklearn.base import clone

from rulewright.checks import Progress, Real, check_parameter
from rulewright.data import KnowledgeBase, signature
from rulewright.engine import StoredFacts
from rulewright.errors import DataError
from rulewright.evaluate.ranking import RankingScores, Ties, evaluate_ranking
from rulewright.learn.base import Learner
from rulewright.logic import RuleSet
from rulewright.reason.answers import RankingModel
from rulewright.reason.calibrate import RankingCalibration, calibrate_ranking
from rulewright.reason.inferred import Aggregation
from rulewright.reason.program import Rules, read_rule_set
from rulewright.reason.ranking import RuleRanker
from rulewright.reason.stored_ranking import StoredRanker
from rulewright.tables import FrameLibrary, build_frame, html_table

USUAL_HOLDOUT = 0.1
_FIGURES = ("mrr", "hits@1", "hits@3", "hits@10")


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found: the ranks of the answers (``scores``), and what they were ranked by.

    ``facts`` is how many facts the rules were run on, ``queries_of`` names the split that was asked about or says what
    was held out, ``note`` has what a reader should know, ``calibration`` is there where it was asked for.
    """

    scores: RankingScores
    rules: RuleSet
    aggregation: Aggregation
    facts: int
    queries_of: str
    seconds_learning: float
    seconds_ranking: float
    note: str
    calibration: RankingCalibration | None = None

    @property
    def mrr(self) -> float:
        """The mean reciprocal rank."""
        return self.scores.mrr

    def hits(self, k: int) -> float:
        """Return the share of answers among the first ``k``."""
        return self.scores.hits(k)

    def rows(self) -> list[tuple[str, int, float, float, float, float]]:
        """Return relation, queries, MRR and Hits@1/3/10 of each relation, those with most queries first."""
        parts = sorted(self.scores.by_relation().items(), key=lambda part: (-len(part[1]), part[0]))
        return [(name, len(part), part.mrr, part.hits(1), part.hits(3), part.hits(10)) for name, part in parts]

    def as_dict(self) -> dict[str, object]:
        """Return all figures, for JSON."""
        return {
            "queries_of": self.queries_of,
            "rules": len(self.rules),
            "aggregation": self.aggregation,
            "facts": self.facts,
            "seconds_learning": round(self.seconds_learning, 2),
            "seconds_ranking": round(self.seconds_ranking, 2),
            "note": self.note,
            **self.scores.as_dict(),
            **({} if self.calibration is None else {"calibration": self.calibration.as_dict()}),
        }

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return the figures of each relation as a data frame of pandas or Polars."""
        names = ("relation", "queries", *_FIGURES)
        rows = self.rows()
        return build_frame({name: [row[position] for row in rows] for position, name in enumerate(names)}, library)

    def _repr_html_(self) -> str:
        return html_table(
            ["relation", "queries", "MRR", "Hits@1", "Hits@3", "Hits@10"], self.rows(), caption=repr(self)
        )

    def __repr__(self) -> str:
        figures = ", ".join(f"{name} {value:.4f}" for name, value in self.scores.figures().items())
        return f"Evaluation({len(self.scores):,} queries by {len(self.rules):,} rules: {figures})"


def evaluate(
    rules: Rules | Learner | None,
    kb: KnowledgeBase,
    *,
    holdout: float | None = None,
    split: str = "test",
    predicates: Collection[str] | None = None,
    aggregation: Aggregation | None = None,
    ties: Ties = "mean",
    top: int = 0,
    calibrate: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Ask ``r(h, ?)`` and ``r(?, t)`` for facts that were held out, and return the ranks of the right answers.

    The facts asked for are those of a ``split``; where there is none, or with ``holdout``, that share of the facts of
    all relations is held out at random, such that every entity and relation stays in the others
    (`KnowledgeBase.hold_out`). Rules are run on what is kept. A learner, a `RuleMiner` where ``rules`` is None, first
    learns from what is kept, so that nothing leaks; the one given stays as it is. ``predicates`` restricts the
    questions to some relations, and what a learner learns too. Ranks are filtered: other right answers are no
    candidates. With ``top`` what was asked is kept with so many of the best answers
    (`RankingScores.write_predictions`). Facts that stay in an engine (`store_facts`) are ranked there; they need a
    split, and keep no answers.
    With ``calibrate``, ``calibration`` says how probable scores are: it is fitted to the split ``valid``, or where
    there is none to half of the queries asked (`calibrate_ranking`).

    >>> from rulewright import RuleMiner
    >>> from rulewright.data.generators import family
    >>> result = evaluate(RuleMiner(max_length=2), family(60).kb, holdout=0.1)
    >>> result.mrr > 0.5, result.queries_of
    (True, '10 % of the facts, held out')
    """
    check_parameter("holdout", holdout, Real(0, 1, above=True, below=True, optional=True))
    relations = _choose_relations(kb, predicates)
    notes: list[str] = []
    if holdout is None and split not in kb.splits:
        if kb.splits and split != "test":
            kb.split(split)
        holdout = USUAL_HOLDOUT
    if holdout is not None and isinstance(kb, StoredFacts):
        raise DataError(
            "facts that stay in an engine are not held out at random; store_facts of a folder with train, valid and "
            f"test files has splits to ask about{_list_splits(kb)}, and read_facts reads facts that fit into memory"
        )
    if top and isinstance(kb, StoredFacts):
        raise DataError(
            "the best answers to every query are kept of facts in memory (read_facts, no --engine and no --database); "
            "in an engine rank gives those of one query"
        )
    if holdout is None:
        kept, asked, queries_of = kb, kb.split(split), split
    else:
        kept, asked = kb.hold_out(holdout, seed=seed, predicates=relations, keep_names=True)
        kept = kept.with_splits(kb.splits)
        wanted = round(holdout * sum(kb.count(name) for name in relations))
        queries_of = f"{100 * holdout:.3g} % of the facts, held out"
        if asked.n_facts == 0:
            raise DataError(
                f"none of the {kb.n_facts:,} facts can be held out: each is the only one of an entity or a relation"
            )
        if asked.n_facts < wanted:
            notes.append(
                f"{asked.n_facts:,} facts were held out instead of {wanted:,}, so that every entity and relation stays "
                "in a fact that is kept"
            )
    start = time.perf_counter()
    scorer, rule_set, used, learner_note = _prepare(rules, kept, predicates, aggregation)
    if learner_note:
        notes.append(learner_note)
    if (
        holdout is not None
        and not isinstance(rules, Learner | None)
        and any(rule.support is not None for rule in rule_set.rules)
    ):
        notes.append(
            "the rules were counted on facts (support), perhaps on those held out here, and then the figures are too "
            "good; without rules they are learned from what is kept"
        )
    learned = time.perf_counter()
    if isinstance(scorer, StoredRanker):
        scores = scorer.evaluate(split, relations=relations, ties=ties, progress=progress)
    else:
        scores = evaluate_ranking(
            scorer, kept, asked, known=None, relations=relations, ties=ties, top=top, progress=progress
        )
    ended = time.perf_counter()
    calibration = None
    if calibrate:
        has_valid = "valid" in kept.splits
        calibration = calibrate_ranking(
            rule_set,
            kept,
            "valid" if has_valid else asked,
            known=[asked],
            predicates=predicates,
            aggregation=used,
            refit=has_valid,
            seed=seed,
            progress=progress,
        )
        if not has_valid:
            notes.append(f"there is no split valid, so the calibration is fitted to half of the queries ({queries_of})")
    return Evaluation(
        scores,
        rule_set,
        used,
        kept.n_facts,
        queries_of,
        learned - start,
        ended - learned,
        "; ".join(notes),
        calibration,
    )


def _list_splits(kb: KnowledgeBase) -> str:
    return f" (here {', '.join(kb.splits)})" if kb.splits else ""


def _choose_relations(kb: KnowledgeBase, predicates: Collection[str] | None) -> list[str]:
    """Return the relations to ask about: those given, or all."""
    for name in predicates or ():
        if signature(kb.predicate(name)) != "ee":
            raise DataError(f"{name} is not a relation of two entities, so there are no queries about it")
    every = [name for name, declaration in kb.predicates.items() if signature(declaration) == "ee"]
    if not every:
        raise DataError("no predicate has two entities as arguments, so there are no queries")
    return every if predicates is None else [name for name in every if name in predicates]


def _prepare(
    rules: Rules | Learner | None,
    kept: KnowledgeBase,
    predicates: Collection[str] | None,
    aggregation: Aggregation | None,
) -> tuple[RuleRanker | StoredRanker, RuleSet, Aggregation, str]:
    """Return what ranks, its rules, their aggregation, and what a learner says of them."""
    if rules is not None and not isinstance(rules, Learner):
        rule_set = read_rule_set(rules)
        ranker = _make_ranker(rule_set, kept, predicates, aggregation)
        return ranker, rule_set, ranker.aggregation, ""
    if rules is None:
        from rulewright.learn.miner.learner import RuleMiner

        learner: Learner = RuleMiner()
    else:
        learner = clone(rules)
    if predicates is not None and learner.get_params().get("targets", ()) is None:
        learner.set_params(targets=list(predicates))
    learner.fit(kept)
    note = str(getattr(learner, "note_", ""))
    if isinstance(learner, RankingModel) and aggregation in (None, "weight"):
        return learner.ranker_, learner.rules_, learner.ranker_.aggregation, note
    ranker = _make_ranker(learner.rules_, kept, predicates, aggregation)
    return ranker, learner.rules_, ranker.aggregation, note


def _make_ranker(
    rules: RuleSet, kb: KnowledgeBase, predicates: Collection[str] | None, aggregation: Aggregation | None
) -> RuleRanker | StoredRanker:
    """Return what ranks by rules, where the facts are."""
    if isinstance(kb, StoredFacts):
        return StoredRanker(rules, kb, aggregation=aggregation, predicates=predicates)
    return RuleRanker.of(rules, kb, aggregation=aggregation, predicates=predicates)
