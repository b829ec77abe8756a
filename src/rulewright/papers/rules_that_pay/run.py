"""Does it pay to use rules? A calibrated network alone, and beside it every use of rules, on documents.

Networks are trained by folds (`crossing`), calibrated on the documents that each did not learn from, and rules are
measured there too (`rulewright.fit_rules`). What a use needs (costs, iterations, whether any rule is used at all) is
chosen on these documents; the test documents are scored once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor, nn

from rulewright.evaluate.calibration import Reliability
from rulewright.inject import ConsistencyLoss, RuleFit, fit_rules
from rulewright.inject.calibration import LabelCalibration
from rulewright.io.docred import Document, Fact
from rulewright.logic import RuleSet
from rulewright.papers.catalogue import Experiment
from rulewright.papers.rules_that_pay.crossing import Crossing, CrossPredictions
from rulewright.papers.rules_that_pay.documents import PayTask, load_pay_task, mine
from rulewright.papers.rules_that_pay.uses import (
    CalibratedNetwork,
    Judge,
    Use,
    calibrate_network,
    measure_ceiling,
    off_diagonal,
    tables,
    threshold_alone,
    timed,
    use_rules,
)


class CalibratedLoss(nn.Module):
    """A consistency loss of calibrated log-odds."""

    def __init__(self, calibration: LabelCalibration, loss: ConsistencyLoss) -> None:
        super().__init__()
        self.calibration, self.loss = calibration, loss

    def forward(self, margins: Tensor, mask: Tensor) -> Tensor:
        """Return the loss of margins ``[B, n, n, R]``."""
        value: Tensor = self.loss(self.calibration.logits(margins), mask)
        return value


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run an experiment, or go on with it where it was stopped, and return its figures."""
    settings: Mapping[str, Any] = experiment.settings
    task = load_pay_task(settings["set"], folds=settings["folds"], share=settings["share"])
    crossing = Crossing(task, settings, seed, folder, tell)
    network = crossing.train("plain")
    hard, candidates, rounds = _find_rules(task, settings, network, seed, tell)
    tell(
        f"{len(task.labelled)} documents, {len(task.textless)} without text; {len(hard)} hard rules, "
        f"{len(candidates)} to fit"
    )
    rows, labels, fit, calibrated = _use_all(task, settings, network, hard, candidates, seed, tell)
    judge = Judge(task, task.test)
    rows["network"] = judge.score(off_diagonal(table > 0 for table in tables(network.test)))
    rows["threshold"] = judge.score(threshold_alone(task, network.held_out, network.test))
    figures: dict[str, Any] = {
        "experiment": experiment.name,
        "title": experiment.title,
        "seed": seed,
        "documents": {
            "labelled": len(task.labelled),
            "without text": len(task.textless),
            "unlabelled": len(task.unlabelled),
            "test": len(task.test),
        },
        "rules": {"hard": len(hard), "candidates": len(candidates), "kept": len(fit.kept)},
        "fitted": [_describe_rule(row) for row in fit.table()[:40]],
        "mining_rounds": rounds,
        "calibration": _describe_calibration(calibrated, judge, network),
        "seconds": {"training": round(network.seconds, 1)},
    }
    if settings["loss_weight"]:
        taught = crossing.train(
            "taught", extra=_teaching_loss(task, settings, calibrated, fit), weight=settings["loss_weight"]
        )
        taught_rows, taught_labels, _, _ = _use_all(task, settings, taught, hard, candidates, seed, tell)
        rows["loss"] = taught_rows["calibrated"]
        rows["all"] = taught_rows["chosen"]
        labels["loss"], labels["all"] = taught_labels["calibrated"], taught_labels["chosen"]
        figures["seconds"]["training with the loss"] = round(taught.seconds, 1)
    ceiling, seconds = timed(lambda: measure_ceiling(task, network.test, calibrated, candidates, seed=seed))
    tell(f"the ceiling: {ceiling} ({seconds:.0f} s)")
    return figures | {"rows": rows, "ceiling": ceiling}


def _use_all(
    task: PayTask,
    settings: Mapping[str, Any],
    network: CrossPredictions,
    hard: RuleSet,
    candidates: RuleSet,
    seed: int,
    tell: Callable[[str], None],
) -> tuple[dict[str, Any], dict[str, Any], RuleFit, CalibratedNetwork]:
    """Calibrate a network, fit rules to it, use them in every way, and score that on the test documents."""
    calibrated = calibrate_network(
        task, network.held_out, network.test, network.unlabelled, thresholds=settings["thresholds"], seed=seed
    )
    held = Judge(task, task.held_out)
    fit, seconds = timed(
        lambda: fit_rules(
            candidates,
            calibrated.held_out,
            held.gold(),
            relations=task.relations,
            threshold=dict(calibrated.calibration.thresholds),
            seed=seed,
        )
    )
    tell(f"{fit!r} in {seconds:.0f} s")
    uses = use_rules(task, calibrated, hard, fit, tell=tell)
    best = max(uses, key=lambda name: held.f1(uses[name].held_out))
    uses["chosen"] = Use(uses[best].held_out, uses[best].test, {"use": best})
    judge = Judge(task, task.test)
    rows = {
        name: {
            **judge.score(use.test),
            "chosen": dict(use.chosen),
            "selection_f1": held.f1(use.held_out),
            "selection_logic": held.score(use.held_out)["logic"],
        }
        for name, use in uses.items()
    }
    for name, row in rows.items():
        tell(f"{name}: F1 {row['f1']:.4f}, held out {row['selection_f1']:.4f}")
    return rows, {name: use.test for name, use in uses.items()}, fit, calibrated


def _find_rules(
    task: PayTask, settings: Mapping[str, Any], network: CrossPredictions, seed: int, tell: Callable[[str], None]
) -> tuple[RuleSet, RuleSet, list[dict[str, Any]]]:
    """Mine hard rules and candidates, from annotations and then from confident predictions too, while that gains."""
    confidence = settings["min_confidence"]
    hard = mine(task.annotated, min_confidence=confidence, preset=True)
    candidates = _mine_candidates(task.annotated, settings).merge(hard)
    rounds: list[dict[str, Any]] = []
    if not settings["mining_rounds"]:
        return hard, candidates, rounds
    calibrated = calibrate_network(
        task, network.held_out, network.test, network.unlabelled, thresholds=settings["thresholds"], seed=seed
    )
    gold = Judge(task, task.held_out).gold()
    best: tuple[float, RuleSet] | None = None
    added: tuple[Document, ...] = ()
    for number in range(int(settings["mining_rounds"]) + 1):
        found = candidates if not number else _mine_candidates((*task.annotated, *added), settings).merge(hard)
        fit = fit_rules(found, calibrated.held_out, gold, relations=task.relations, seed=seed, scales=())
        rounds.append(
            {
                "round": number,
                "documents": len(task.annotated) + len(added),
                "predicted_facts": sum(len(document.facts) for document in added),
                "candidates": len(found),
                "kept": len(fit.kept),
                "gain": fit.log_likelihood,
                "gain_error": fit.log_likelihood_error,
            }
        )
        tell(f"mining round {number}: {rounds[-1]}")
        if best is not None and fit.log_likelihood <= best[0]:
            break
        best = fit.log_likelihood, found
        added = _label_confidently(task, calibrated.unlabelled, float(settings["confident"]))
    assert best is not None
    return hard, best[1], rounds


def _mine_candidates(documents: Sequence[Document], settings: Mapping[str, Any]) -> RuleSet:
    return mine(documents, min_confidence=settings["candidate_confidence"], preset=settings["candidate_preset"])


def _label_confidently(task: PayTask, log_odds: Sequence[Any], confident: float) -> tuple[Document, ...]:
    """Return unlabelled documents with the facts that are at least so probable."""
    bound = float(np.log(confident) - np.log1p(-confident))
    documents = []
    for document, table in zip(task.unlabelled, log_odds, strict=True):
        facts = tuple(
            Fact(int(head), task.relations[relation], int(tail))
            for head, tail, relation in np.argwhere(off_diagonal([table >= bound])[0])
        )
        documents.append(Document(document.title, document.sentences, document.entities, facts))
    return tuple(documents)


def _teaching_loss(
    task: PayTask, settings: Mapping[str, Any], calibrated: CalibratedNetwork, fit: RuleFit
) -> nn.Module | None:
    if not len(fit.kept):
        return None
    loss = ConsistencyLoss(
        fit.kept,
        relations=task.relations,
        form="published",
        eta={int(length): slack for length, slack in settings["loss_eta"].items()},
        side=settings["loss_side"],
        weights="annotated",
    )
    return CalibratedLoss(calibrated.calibration, loss)


def _describe_rule(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: row[name] for name in ("rule", "weight", "gain", "confidence", "measured", "fired", "held", "reason")}


def _describe_calibration(network: CalibratedNetwork, judge: Judge, cross: CrossPredictions) -> dict[str, Any]:
    """Return reliability on the test documents, before and after."""
    judged = network.calibration.reliability(
        tables(cross.test),
        judge.gold(),
    )
    return {
        "thresholds": dict(network.calibration.thresholds),
        "error": {"before": judged.before.error, "after": judged.after.error},
        "bins": {name: _describe_bins(part) for name, part in (("before", judged.before), ("after", judged.after))},
    }


def _describe_bins(reliability: Reliability) -> dict[str, list[float | None]]:
    """Return the columns of a reliability diagram, for JSON; None where a bin has no candidates."""
    columns = {name: getattr(reliability, name) for name in ("predicted", "observed", "candidates")}
    return {name: [None if np.isnan(value) else float(value) for value in column] for name, column in columns.items()}
