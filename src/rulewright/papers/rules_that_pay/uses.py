"""What rules do beside a calibrated network: every use of them, chosen on documents held out, scored by document."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rulewright.evaluate.extraction import evaluate_extraction
from rulewright.inject import LogicLayer, RuleDecoder, RuleFit, calibrate, fit_rules
from rulewright.inject.calibration import LabelCalibration
from rulewright.io.docred import Document
from rulewright.logic import RuleSet
from rulewright.papers.milr.decoding import gold_labels, labels_to_facts
from rulewright.papers.milr.predictions import DocumentPrediction, Predictions, best_threshold
from rulewright.papers.rules_that_pay.documents import PayTask

Tables = list[Any]
"""An array ``[n, n, R]`` for each document."""


@dataclass(frozen=True)
class Judge:
    """Compares labels of documents with gold ones."""

    task: PayTask
    documents: Sequence[Document]

    def gold(self) -> Tables:
        """Return the gold labels."""
        return [gold_labels(document, self.task.relations) for document in self.documents]

    def f1(self, labels: Tables) -> float:
        """Return micro F1."""
        correct, given, wanted = np.sum(self.count(labels), axis=0)
        return float(2 * correct / max(1, given + wanted))

    def count(self, labels: Tables) -> list[list[int]]:
        """Return how many facts of each document are correct, given and wanted."""
        return [
            [int((table & gold).sum()), int(table.sum()), int(gold.sum())]
            for table, gold in zip(labels, self.gold(), strict=True)
        ]

    def score(self, labels: Tables) -> dict[str, Any]:
        """Return all figures, and the counts by document."""
        documents = [
            DocumentPrediction(document.title, table) for document, table in zip(self.documents, labels, strict=True)
        ]
        facts = labels_to_facts(documents, labels, self.task.relations)
        milr = self.task.milr
        result = evaluate_extraction(
            facts, self.documents, train_facts=milr.train_facts, rules=milr.gold_rules, relations=self.task.relations
        )
        kept = evaluate_extraction(
            facts, self.documents, rules=milr.rules, relations=self.task.relations, loops="skip"
        ).logic
        return {
            "f1": result.f1,
            "precision": result.precision,
            "recall": result.recall,
            "ign_f1_docred": result.ign_f1_docred,
            "logic": None if result.logic is None else result.logic.value,
            "logic_mined": None if kept is None else kept.value,
            "counts": self.count(labels),
        }


def off_diagonal(labels: Iterable[Any]) -> Tables:
    """Return labels as booleans, without those of an entity with itself."""
    return [np.asarray(table, dtype=bool) & ~np.eye(len(table), dtype=bool)[:, :, None] for table in labels]


def tables(predictions: Predictions) -> Tables:
    """Return the margins of documents."""
    return [document.logits for document in predictions.documents]


@dataclass(frozen=True)
class CalibratedNetwork:
    """A network's calibrated log-odds and margins of documents held out (out of fold) and of others."""

    calibration: LabelCalibration
    held_out: Tables
    held_out_margins: Tables
    test: Tables
    test_margins: Tables
    unlabelled: Tables


def calibrate_network(
    task: PayTask, held_out: Predictions, test: Predictions, unlabelled: Predictions, *, thresholds: Any, seed: int
) -> CalibratedNetwork:
    """Calibrate on documents held out."""
    gold = Judge(task, task.held_out).gold()
    calibration = calibrate(tables(held_out), gold, relations=task.relations, thresholds=thresholds, folds=5, seed=seed)
    assert calibration.out_of_fold is not None
    return CalibratedNetwork(
        calibration,
        [calibration.logits(table) for table in tables(held_out)],
        list(calibration.out_of_fold.margins),
        [calibration.logits(table) for table in tables(test)],
        [calibration.margins(table) for table in tables(test)],
        [calibration.logits(table) for table in tables(unlabelled)],
    )


def decode(rules: RuleSet, costs: Any, margins: Tables, relations: Sequence[str]) -> Tables:
    """Return the best labels of documents; without rules those above the threshold."""
    if not len(rules):
        return off_diagonal(table > 0 for table in margins)
    decoder = RuleDecoder(rules, relations=relations, rule_costs=costs)
    return [decoder(table).labels for table in margins]


def send(rules: RuleSet, log_odds: Tables, relations: Sequence[str], iterations: int) -> Tables:
    """Return the log-odds after a layer's messages."""
    if not len(rules):
        return log_odds
    layer = LogicLayer(rules, relations=relations, weights="annotated", iterations=iterations)
    with torch.no_grad():
        return [layer(torch.from_numpy(np.asarray(table, dtype=np.float32))[None])[0].numpy() for table in log_odds]


@dataclass(frozen=True)
class Use:
    """A way to use rules: its labels of documents held out and of test documents, and what was chosen for it."""

    held_out: Tables
    test: Tables
    chosen: Mapping[str, Any]


def best_scale(fit: RuleFit) -> float:
    """Return how many times its weight breaking a rule costs the decoder that is best on documents held out."""
    decoders = [score for score in fit.selection if score.injector == "decoder" and not score.note]
    return max(decoders, key=lambda score: score.score).scale


def use_rules(
    task: PayTask, network: CalibratedNetwork, rules: RuleSet, fit: RuleFit, *, tell: Callable[[str], None]
) -> dict[str, Use]:
    """Put rules to work in every way; each has "no rules" among its choices but for the hard decoder."""
    judge = Judge(task, task.held_out)
    relations = task.relations
    uses: dict[str, Use] = {}
    held, test = network.held_out_margins, network.test_margins
    uses["calibrated"] = Use(off_diagonal(t > 0 for t in held), off_diagonal(t > 0 for t in test), {})
    uses["hard"] = Use(
        decode(rules, None, held, relations), decode(rules, None, test, relations), {"rules": len(rules)}
    )

    kept, scale = fit.kept, best_scale(fit)
    costs = [scale * weight if scale else 0.0 for weight in fit.weights if weight]
    uses["soft"] = Use(
        decode(kept, costs, held, relations),
        decode(kept, costs, test, relations),
        {"scale": scale if np.isfinite(scale) else "hard", "rules": len(kept) if scale else 0},
    )
    # hard rules beside the soft ones: what follows from them costs nothing to keep where both agree
    together = rules.merge(kept)
    by_rule = {rule.canonical(): cost for rule, cost in zip(kept.rules, costs, strict=True)}
    hard_and_soft = [
        float("inf") if index < len(rules) else by_rule[statement.canonical()]
        for index, statement in enumerate(together.rules)
    ]
    uses["hard and soft"] = Use(
        decode(together, hard_and_soft, held, relations), decode(together, hard_and_soft, test, relations), {}
    )

    gold = judge.gold()
    found: list[tuple[Mapping[str, Any], float, Tables, Tables]] = [
        ({"iterations": 0}, judge.f1(uses["calibrated"].held_out), uses["calibrated"].held_out, uses["calibrated"].test)
    ]
    for iterations in (1, 2) if len(kept) else ():
        sent = send(kept, network.held_out, relations, iterations)
        again = calibrate(sent, gold, relations=relations, folds=5)
        assert again.out_of_fold is not None
        labels = off_diagonal(table > 0 for table in again.out_of_fold.margins)
        on_test = [again.margins(table) for table in send(kept, network.test, relations, iterations)]
        found.append(({"iterations": iterations}, judge.f1(labels), labels, off_diagonal(t > 0 for t in on_test)))
    chosen, f1, labels, on_test_labels = max(found, key=lambda each: each[1])
    tell(f"layer: {dict(chosen)} gives F1 {f1:.4f} on documents held out")
    uses["layer"] = Use(labels, on_test_labels, chosen)
    return uses


def measure_ceiling(
    task: PayTask, test: Predictions, network: CalibratedNetwork, candidates: RuleSet, *, seed: int
) -> dict[str, Any]:
    """Return what thresholds, and rules, chosen on the test documents themselves would reach."""
    judge = Judge(task, task.test)
    gold = judge.gold()
    own = calibrate(tables(test), gold, relations=task.relations, thresholds="own", shrinkage=0, folds=None)
    fit = fit_rules(
        candidates,
        network.test,
        gold,
        relations=task.relations,
        threshold=dict(network.calibration.thresholds),
        seed=seed,
    )
    labels = decode(
        fit.kept, [best_scale(fit) * weight for weight in fit.weights if weight], network.test_margins, task.relations
    )
    return {
        "thresholds": judge.f1(off_diagonal(own.margins(table) > 0 for table in tables(test))),
        "rules": judge.f1(labels),
        "rules_kept": len(fit.kept),
    }


def threshold_alone(task: PayTask, held_out: Predictions, test: Predictions) -> Tables:
    """Return the labels of test documents above the one threshold that is best on documents held out."""
    chosen = best_threshold(held_out, task.held_out).threshold
    bound = float(np.log(chosen) - np.log1p(-chosen))
    return off_diagonal(table > bound for table in tables(test))


def timed(function: Callable[[], Any]) -> tuple[Any, float]:
    """Return what a function returns, and the seconds it took."""
    started = time.perf_counter()
    found = function()
    return found, time.perf_counter() - started
