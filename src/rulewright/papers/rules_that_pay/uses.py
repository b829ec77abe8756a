"""What rules do beside a calibrated network: every use of them, chosen on documents held out, scored by document."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rulewright.evaluate.extraction import evaluate_extraction
from rulewright.inject import LogicLayer, RuleDecoder, RuleFit, calibrate
from rulewright.inject.calibration import LabelCalibration
from rulewright.inject.rule_scales import weigh_confidence
from rulewright.io.docred import Document
from rulewright.logic import RuleSet, Statement
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
    """A network's calibrated log-odds and margins of documents held out (out of fold) and of test documents."""

    calibration: LabelCalibration
    held_out: Tables
    held_out_margins: Tables
    test: Tables
    test_margins: Tables


def calibrate_network(
    task: PayTask, held_out: Predictions, test: Predictions, *, thresholds: Any, seed: int
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


LAYER_SCALES = (0.1,)
"""How many times the log-odds of its confidence a rule may weigh in a layer, beside the fitted weights."""


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

    best = fit.best
    assert best is not None
    costs = fit.costs_at(best)
    chosen = {"weights": best.weighting, "scale": best.scale if np.isfinite(best.scale) else "hard"}
    if not any(costs):
        chosen = {"rules": 0}
    uses["soft"] = Use(
        decode(fit.rules, costs, held, relations),
        decode(fit.rules, costs, test, relations),
        {**chosen, "rules": sum(cost > 0 for cost in costs)},
    )
    # hard rules beside the soft ones: what follows from them costs nothing to keep where both agree
    must_hold = {rule.canonical() for rule in rules.rules}
    mixed = [
        float("inf") if statement.canonical() in must_hold else cost
        for statement, cost in zip(fit.given.rules, costs, strict=True)
    ]
    uses["hard and soft"] = Use(
        decode(fit.rules, mixed, held, relations), decode(fit.rules, mixed, test, relations), chosen
    )
    uses["layer"] = _use_layer(task, network, fit, uses["calibrated"])
    tell(f"layer: {dict(uses['layer'].chosen)} gives F1 {judge.f1(uses['layer'].held_out):.4f} on documents held out")
    return uses


def _use_layer(task: PayTask, network: CalibratedNetwork, fit: RuleFit, alone: Use) -> Use:
    """Return the labels behind a layer, with the weights that are best on documents held out.

    Fitted weights are judged by labels out of fold; of confidences times a scale the log-odds are calibrated anew.
    """
    judge = Judge(task, task.held_out)
    gold = judge.gold()
    without = judge.f1(alone.held_out)
    found = [(without, alone)]
    for score in fit.selection:
        if score.injector == "layer" and len(fit.kept):
            labels = [
                _move(fit.kept, log_odds, margins, task.relations)
                for log_odds, margins in (
                    (network.held_out, network.held_out_margins),
                    (network.test, network.test_margins),
                )
            ]
            found.append((without + score.difference, Use(labels[0], labels[1], {"weights": "fitted"})))
    confidences = [weigh_confidence(statement) for statement in fit.given]
    for scale in LAYER_SCALES:
        rules = fit.given.with_weights([scale * weight for weight in confidences])
        held, test = (send(rules, part, task.relations, 1) for part in (network.held_out, network.test))
        again = calibrate(held, gold, relations=task.relations, folds=5)
        assert again.out_of_fold is not None
        labels = [
            off_diagonal(t > 0 for t in again.out_of_fold.margins),
            off_diagonal(again.margins(t) > 0 for t in test),
        ]
        found.append((judge.f1(labels[0]), Use(labels[0], labels[1], {"weights": "confidence", "scale": scale})))
    return max(found, key=lambda pair: pair[0])[1]


def _move(rules: RuleSet, log_odds: Tables, margins: Tables, relations: Sequence[str]) -> Tables:
    """Return labels where the messages of a layer move margins over the thresholds that there are."""
    sent = send(rules, log_odds, relations, 1)
    moved = (margin + (after - before) for margin, after, before in zip(margins, sent, log_odds, strict=True))
    return off_diagonal(table > 0 for table in moved)


def choose_rules(rules: RuleSet, margins: Tables, gold: Tables, relations: Sequence[str]) -> RuleSet:
    """Drop the rules that change more labels wrongly than rightly, and decode again, until none does."""
    while len(rules):
        decoder = RuleDecoder(rules, relations=relations)
        right: Counter[Statement] = Counter()
        for table, truth in zip(margins, gold, strict=True):
            for change in decoder(table).changes:
                if change.rule is not None:
                    head, tail = change.args
                    is_right = bool(truth[head, tail, relations.index(change.predicate)]) == change.after
                    right[change.rule] += 1 if is_right else -1
        kept = [rule for rule in rules if right[rule] >= 0]
        if len(kept) == len(rules):
            break
        rules = RuleSet(kept)
    return rules


def measure_ceiling(task: PayTask, test: Predictions, network: CalibratedNetwork, rules: RuleSet) -> dict[str, Any]:
    """Return what thresholds, and rules, chosen on the test documents themselves would reach."""
    judge = Judge(task, task.test)
    gold = judge.gold()
    own = calibrate(tables(test), gold, relations=task.relations, thresholds="own", shrinkage=0, folds=None)
    margins = [own.margins(table) for table in tables(test)]
    found: dict[str, Any] = {"thresholds": judge.f1(off_diagonal(table > 0 for table in margins))}
    for name, scores in (("rules", network.test_margins), ("both", margins)):
        kept = choose_rules(rules, scores, gold, task.relations)
        found |= {name: judge.f1(decode(kept, None, scores, task.relations)), f"{name}_kept": len(kept)}
    return found


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
