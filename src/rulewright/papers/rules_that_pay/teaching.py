"""What a loss for rules teaches: one network, trained again with each form of the loss, and with a teacher.

All forms start from the same weights and see the same documents. Which is best is for the documents held out to say;
test figures stand beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from rulewright.inject import ConsistencyLoss, LogicLayer, RuleDecoder, RuleFit, distillation_loss, fit_rules
from rulewright.inject.calibration import LabelCalibration
from rulewright.inject.rule_scales import weigh_confidence
from rulewright.io import docred
from rulewright.learn import RuleMiner
from rulewright.logic import Atom, Rule, RuleSet
from rulewright.papers.catalogue import Experiment
from rulewright.papers.rules_that_pay.crossing import Crossing
from rulewright.papers.rules_that_pay.documents import PayTask, load_pay_task, mine
from rulewright.papers.rules_that_pay.uses import Judge, calibrate_network, off_diagonal


class CalibratedLoss(nn.Module):
    """A consistency loss of calibrated log-odds."""

    def __init__(self, calibration: LabelCalibration, loss: ConsistencyLoss) -> None:
        super().__init__()
        self.calibration, self.loss = calibration, loss

    def forward(self, margins: Tensor, mask: Tensor) -> Tensor:
        """Return the loss of margins ``[B, n, n, R]``."""
        value: Tensor = self.loss(self.calibration.logits(margins), mask)
        return value


class TaughtByDecoder(nn.Module):
    """How far margins are from the labels that a decoder makes of them."""

    def __init__(self, calibration: LabelCalibration, decoder: RuleDecoder) -> None:
        super().__init__()
        self.calibration, self.decoder = calibration, decoder

    def forward(self, margins: Tensor, mask: Tensor) -> Tensor:
        """Return the loss of margins ``[B, n, n, R]``."""
        labels = self.decoder(self.calibration.margins(margins.detach()).double(), mask=mask).labels
        return distillation_loss(self.calibration.margins(margins), np.asarray(labels, dtype=bool), mask)


class TaughtByLayer(nn.Module):
    """How far log-odds are from what a layer makes of them."""

    def __init__(self, calibration: LabelCalibration, layer: LogicLayer) -> None:
        super().__init__()
        self.calibration, self.layer = calibration, layer

    def forward(self, margins: Tensor, mask: Tensor) -> Tensor:
        """Return the loss of margins ``[B, n, n, R]``."""
        log_odds = self.calibration.logits(margins)
        with torch.no_grad():
            teacher = self.layer(log_odds.detach(), mask=mask)
        return distillation_loss(log_odds, teacher, mask)


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Train with each form, or go on where it was stopped, and return the figures of all."""
    settings: Mapping[str, Any] = experiment.settings
    task = load_pay_task(settings["set"], folds=settings["folds"], share=settings["share"])
    crossing = Crossing(task, settings, seed, folder, tell)
    network = crossing.train("plain")
    calibrated = calibrate_network(task, network.held_out, network.test, thresholds=settings["thresholds"], seed=seed)
    hard = mine(task.annotated, min_confidence=settings["min_confidence"], preset=True)
    candidates = mine(
        task.annotated, min_confidence=settings["candidate_confidence"], preset=settings["candidate_preset"]
    )
    fit = fit_rules(
        candidates.merge(hard),
        calibrated.held_out,
        Judge(task, task.held_out).gold(),
        relations=task.relations,
        threshold=dict(calibrated.calibration.thresholds),
        scales=(),
        seed=seed,
    )
    rows: dict[str, Any] = {}
    forms: Mapping[str, Mapping[str, Any]] = {"none": {}, **settings["forms"]}
    for name, form in forms.items():
        found = network
        if form:
            teacher = _make_teacher(task, form, settings, calibrated.calibration, fit, hard)
            if teacher is None:
                continue
            found = crossing.train(name, extra=teacher, weight=form["weight"], warmup=form.get("warmup", 0.0))
        own = calibrate_network(task, found.held_out, found.test, thresholds=settings["thresholds"], seed=seed)
        rows[name] = {"form": form.get("told", ""), **_score(task, own.held_out_margins, own.test_margins)}
        tell(f"{name}: F1 {rows[name]['f1']:.4f}, held out {rows[name]['selection_f1']:.4f}")
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "seed": seed,
        "rules": {"hard": len(hard), "candidates": len(fit.rules), "kept": len(fit.kept)},
        "rows": rows,
    }


def _score(task: PayTask, held_out: Any, test: Any) -> dict[str, Any]:
    labels = off_diagonal(table > 0 for table in held_out)
    held = Judge(task, task.held_out)
    scored = Judge(task, task.test).score(off_diagonal(table > 0 for table in test))
    return {**scored, "selection_f1": held.f1(labels), "selection_logic": held.score(labels)["logic"]}


def _make_teacher(
    task: PayTask,
    form: Mapping[str, Any],
    settings: Mapping[str, Any],
    calibration: LabelCalibration,
    fit: RuleFit,
    hard: RuleSet,
) -> nn.Module | None:
    """Return what is added to the loss; None where no rule helps."""
    rules = {"hard": hard, "fitted": fit.kept, "beta": _mine_both_ways(task, settings)}[form["rules"]]
    if not len(rules):
        return None
    if form["by"] == "decoder":
        return TaughtByDecoder(calibration, RuleDecoder(rules, relations=task.relations, time_limit=2.0))
    if form["by"] == "layer":
        weighted = rules.with_weights([form["scale"] * weigh_confidence(rule) for rule in rules])
        layer = LogicLayer(weighted, relations=task.relations, weights="annotated", iterations=1)
        return TaughtByLayer(calibration, layer)
    loss = ConsistencyLoss(
        rules,
        relations=task.relations,
        form="published",
        eta={int(length): slack for length, slack in settings["loss_eta"].items()},
        side=form.get("side", "both"),
        weights="annotated" if form["rules"] == "fitted" else "one",
    )
    return CalibratedLoss(calibration, loss) if form["by"] == "calibrated" else loss


def _mine_both_ways(task: PayTask, settings: Mapping[str, Any]) -> RuleSet:
    """Mine by the lower bound of Beta, and turn rules of one step round, as BCBR does (Liu et al., EMNLP 2023).

    A head that no body explains is as much a fault as a body without its head; of longer bodies the converse is no
    chain, so that they are not turned.
    """
    kb = docred.to_knowledge_base(task.annotated)
    miner = RuleMiner(
        max_length=2, min_confidence=settings["min_confidence"], confidence="beta", unary=False, constants=False
    )
    mined = miner.fit(kb).rules_
    turned = [
        Rule(rule.body[0], (rule.head,), rule.confidence)
        for rule in mined.rules
        if len(rule.body) == 1 and isinstance(rule.body[0], Atom)
    ]
    return mined.merge(RuleSet(turned))
