"""Does it pay to use rules? A calibrated network alone, and beside it every use of rules, on documents.

Networks are trained by folds (`crossing`), calibrated on the documents that each did not learn from, and rules are
measured there too (`rulewright.fit_rules`). What a use needs (costs, iterations, whether any rule is used at all) is
chosen on these documents; the test documents are scored once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rulewright.datasets import locate
from rulewright.evaluate.calibration import Reliability
from rulewright.evaluate.extraction import DistanceBuckets, evaluate_extraction
from rulewright.inject import ConsistencyLoss, RuleFit, fit_rules
from rulewright.io import docred
from rulewright.io.docred import Document, Fact, Prediction
from rulewright.logic import RuleSet
from rulewright.papers.catalogue import Experiment
from rulewright.papers.milr.decoding import labels_to_facts
from rulewright.papers.milr.predictions import DocumentPrediction, Predictions
from rulewright.papers.rules_that_pay.crossing import Crossing, CrossPredictions, read_published
from rulewright.papers.rules_that_pay.documents import PayTask, load_pay_task, mine
from rulewright.papers.rules_that_pay.teaching import CalibratedLoss
from rulewright.papers.rules_that_pay.uses import (
    CalibratedNetwork,
    Judge,
    Tables,
    Use,
    calibrate_network,
    decode,
    measure_ceiling,
    off_diagonal,
    tables,
    threshold_alone,
    timed,
    use_rules,
)


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run an experiment, or go on with it where it was stopped, and return its figures."""
    settings: Mapping[str, Any] = experiment.settings
    task = load_pay_task(settings["set"], folds=settings["folds"], share=settings["share"])
    crossing = Crossing(task, settings, seed, folder, tell)
    network = read_published(task) if settings["backbone"] == "published" else crossing.train("plain")
    hard, candidates = _mine_both(task, settings)
    tell(
        f"{len(task.labelled)} documents, {len(task.textless)} without text; {len(hard)} hard rules, "
        f"{len(candidates)} to fit"
    )
    plain = _use_all(task, settings, network, hard, candidates, seed, tell)
    judge = Judge(task, task.test)
    rows = dict(plain.rows)
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
        "rules": {"hard": len(hard), "candidates": len(candidates), "kept": len(plain.fit.kept)},
        "fitted": [_describe_rule(row) for row in plain.fit.table()[:40]],
        "scales": [str(score).strip() for score in plain.fit.selection],
        "calibration": _describe_calibration(plain.calibrated, judge, network),
        "seconds": {"training": round(network.seconds, 1), "using": plain.seconds},
    }
    if settings["loss_weight"]:
        taught_uses, told = plain, "no loss"
        taught_rules = hard if settings["loss_rules"] == "hard" else plain.fit.kept
        if len(taught_rules):  # else there is nothing to teach
            loss = CalibratedLoss(plain.calibrated.calibration, _teaching_loss(task, settings, taught_rules))
            taught = crossing.train(
                "taught", extra=loss, weight=settings["loss_weight"], warmup=settings["loss_warmup"]
            )
            uses = _use_all(task, settings, taught, hard, candidates, seed, tell)
            figures["seconds"]["training with the loss"] = round(taught.seconds, 1)
            rows["loss, whatever it brings"] = uses.rows["calibrated"]
            if uses.rows["calibrated"]["selection_f1"] > plain.rows["calibrated"]["selection_f1"]:
                taught_uses, told = uses, f"{len(taught_rules)} rules"
        rows["loss"] = {**taught_uses.rows["calibrated"], "chosen": {"loss": told}}
        rows["all"] = {**taught_uses.rows["chosen"], "chosen": {"loss": told, **taught_uses.rows["chosen"]["chosen"]}}
    if settings["rounds"] and task.unlabelled:
        for name, with_rules in (("again", False), ("again with rules", True)):
            rows[name], figures[f"rounds, {name}"] = _iterate(crossing, network, plain, with_rules)
    if settings["backbone"] == "published":
        figures["by_distance"] = _score_by_distance(task, plain.uses["hard"].test)
    ceiling, seconds = timed(lambda: measure_ceiling(task, network.test, plain.calibrated, hard))
    tell(f"the ceiling: {ceiling} ({seconds:.0f} s)")
    return figures | {"rows": rows, "ceiling": ceiling}


def _score_by_distance(task: PayTask, decoded: Tables) -> dict[str, list[dict[str, Any]]]:
    """Return Ign F1 by the distance of entities, of the published labels and of ATLOP's decoded here (Figures 3, 4)."""
    folder = locate("dwie") / "reference_predictions"
    facts = {name: docred.read_predictions(folder / f"result_{name}_test.json") for name in ("ATLOP", "MILR")}
    documents = [DocumentPrediction(d.title, t) for d, t in zip(task.test, decoded, strict=True)]
    found: Mapping[str, Sequence[Prediction]] = {
        **facts,
        "ATLOP, decoded here": labels_to_facts(documents, decoded, task.relations),
    }
    scored = {}
    for name, predictions in found.items():
        result = evaluate_extraction(
            predictions, task.test, train_facts=task.milr.train_facts, distances=DistanceBuckets("starts")
        )
        scored[name] = [
            {
                "low": part.low,
                "high": part.high,
                "wanted": part.counts.wanted,
                "f1": part.counts.f1,
                "ign_f1_docred": part.counts.ign_f1_docred,
            }
            for part in result.by_distance or ()
        ]
    return scored


@dataclass(frozen=True)
class _AllUses:
    """A calibrated network, what was fitted to it, and every use with its row of figures."""

    calibrated: CalibratedNetwork
    fit: RuleFit
    hard: RuleSet
    uses: Mapping[str, Use]
    rows: Mapping[str, dict[str, Any]]
    seconds: Mapping[str, float]

    def label(self, task: PayTask, documents: Predictions, *, with_rules: bool) -> Tables:
        """Label other documents: calibrated alone, or by the decoder that is best on documents held out."""
        margins = [self.calibrated.calibration.margins(table) for table in tables(documents)]
        if not with_rules:
            return off_diagonal(table > 0 for table in margins)
        held = Judge(task, task.held_out)
        name = max(("calibrated", "hard", "soft"), key=lambda name: held.f1(self.uses[name].held_out))
        if name == "hard":
            return decode(self.hard, None, margins, task.relations)
        assert self.fit.best is not None
        costs = self.fit.costs_at(self.fit.best) if name == "soft" else [0.0] * len(self.fit.rules)
        return decode(self.fit.rules, costs, margins, task.relations)


def _use_all(
    task: PayTask,
    settings: Mapping[str, Any],
    network: CrossPredictions,
    hard: RuleSet,
    candidates: RuleSet,
    seed: int,
    tell: Callable[[str], None],
) -> _AllUses:
    """Calibrate a network, fit rules to it, use them in every way, and score that on the test documents."""
    calibrated, calibrating = timed(
        lambda: calibrate_network(task, network.held_out, network.test, thresholds=settings["thresholds"], seed=seed)
    )
    held = Judge(task, task.held_out)
    fit, fitting = timed(
        lambda: fit_rules(
            candidates,
            calibrated.held_out,
            held.gold(),
            relations=task.relations,
            threshold=dict(calibrated.calibration.thresholds),
            seed=seed,
        )
    )
    tell(f"{fit!r} in {fitting:.0f} s")
    found, using = timed(lambda: use_rules(task, calibrated, hard, fit, tell=tell))
    uses: dict[str, Use] = found
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
    seconds = {"calibration": round(calibrating, 1), "fit_rules": round(fitting, 1), "uses": round(using, 1)}
    return _AllUses(calibrated, fit, hard, uses, rows, seconds)


def _mine_both(task: PayTask, settings: Mapping[str, Any], added: Sequence[Document] = ()) -> tuple[RuleSet, RuleSet]:
    """Mine hard rules, and with them those whose worth is measured on the network."""
    documents = (*task.annotated, *added)
    hard = mine(documents, min_confidence=settings["min_confidence"], preset=True)
    more = mine(documents, min_confidence=settings["candidate_confidence"], preset=settings["candidate_preset"])
    return hard, more.merge(hard)


def _iterate(
    crossing: Crossing, network: CrossPredictions, plain: _AllUses, with_rules: bool
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Label documents without annotations, train again with them, mine again, while documents held out are better.

    Without rules labels are those of the calibrated network and rules stay as they were, so that what is gained with
    rules can be told from what comes of training again.
    """
    task, settings, tell = crossing.task, crossing.settings, crossing.tell
    use = "chosen" if with_rules else "calibrated"
    best, rounds = plain, [_describe_round(0, 0, plain, use)]
    for number in range(1, int(settings["rounds"]) + 1):
        added = [
            _annotate(task, best.label(task, predictions, with_rules=with_rules)) for predictions in network.unlabelled
        ]
        name = f"again{'_with_rules' if with_rules else ''}_{number}"
        network = crossing.train(name, added=added, epochs=settings["rounds_epochs"])
        hard, candidates = plain.hard, plain.fit.given
        if with_rules:
            confident = float(settings["confident"])
            sure = [_annotate(task, _be_sure(best, predictions, confident)) for predictions in network.unlabelled]
            hard, candidates = _mine_both(task, settings, sure[0])
        again = _use_all(task, settings, network, hard, candidates, crossing.seed, tell)
        facts = round(float(np.mean([sum(len(document.facts) for document in part) for part in added])))
        rounds.append(_describe_round(number, facts, again, use))
        tell(f"{name}: {rounds[-1]}")
        if again.rows[use]["selection_f1"] <= best.rows[use]["selection_f1"]:
            break
        best = again
    return dict(best.rows[use]), rounds


def _describe_round(number: int, facts: int, uses: _AllUses, use: str) -> dict[str, Any]:
    return {
        "round": number,
        "predicted_facts": facts,
        "hard": len(uses.hard),
        "candidates": len(uses.fit.given),
        "kept": len(uses.fit.kept),
        "selection_f1": uses.rows[use]["selection_f1"],
        "test_f1": uses.rows[use]["f1"],
        "use": uses.rows[use]["chosen"].get("use", use),
    }


def _be_sure(uses: _AllUses, predictions: Predictions, confident: float) -> Tables:
    """Return the facts that are at least so probable."""
    bound = float(np.log(confident) - np.log1p(-confident))
    return off_diagonal(uses.calibrated.calibration.logits(table) >= bound for table in tables(predictions))


def _annotate(task: PayTask, labels: Tables) -> tuple[Document, ...]:
    """Return the unlabelled documents with labels as their facts."""
    documents = []
    for document, table in zip(task.unlabelled, labels, strict=True):
        facts = tuple(
            Fact(int(head), task.relations[relation], int(tail)) for head, tail, relation in np.argwhere(table)
        )
        documents.append(Document(document.title, document.sentences, document.entities, facts))
    return tuple(documents)


def _teaching_loss(task: PayTask, settings: Mapping[str, Any], rules: RuleSet) -> ConsistencyLoss:
    """Return the loss of hard rules by their confidences, or of the rules that help by their fitted weights."""
    return ConsistencyLoss(
        rules,
        relations=task.relations,
        form="published",
        eta={int(length): slack for length, slack in settings["loss_eta"].items()},
        weights="one" if settings["loss_rules"] == "hard" else "annotated",
    )


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
