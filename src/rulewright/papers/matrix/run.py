"""Every learner in every use: who learned the rules, how they were put to work, and what it brought.

One small network reads entities; it is calibrated on the selection worlds, and the rules of each learner are measured
on it there (`rulewright.fit_rules`). Then they are applied to what it predicts, sent through its outputs as a layer,
decoded with, or trained with as a loss. What a use needs, and whether it uses any rule, is chosen on the selection
worlds, where labels come from calibrations and weights that did not see them; the test worlds are scored once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from rulewright.data import KnowledgeBase
from rulewright.engine import Engine
from rulewright.errors import RulewrightError
from rulewright.inject import ConsistencyLoss, LogicLayer, RuleDecoder, RuleFit, calibrate, fit_rules
from rulewright.inject.atom_space import AtomSpace
from rulewright.inject.atoms.clauses import is_pair_rule, read_clauses
from rulewright.inject.calibration import LabelCalibration
from rulewright.inject.rule_scales import weigh_confidence
from rulewright.io import read_rules
from rulewright.learn import RuleMiner
from rulewright.learn.lnn.learner import LNNLearner
from rulewright.learn.lnn.ready import chains
from rulewright.learn.nlil.learner import NLILLearner
from rulewright.logic import Rule, RuleSet, variables
from rulewright.papers.catalogue import Experiment
from rulewright.papers.matrix.worlds import (
    Labels,
    Logits,
    PairNetwork,
    Setting,
    World,
    facts_to_labels,
    load,
    predict_logits,
    train_network,
    worlds_to_facts,
)
from rulewright.reason import apply

FOLDS = 5
SURE = 15.0
"""The log-odds of what is known."""


def best_f1(logits: Sequence[Logits], worlds: Sequence[World]) -> float:
    """Return the highest F1 over the queried labels that a threshold gives."""
    scores = np.concatenate([log_odds[world.queried] for log_odds, world in zip(logits, worlds, strict=True)])
    gold = np.concatenate([world.gold[world.queried] for world in worlds])
    order = np.argsort(-scores, kind="stable")
    return float((2 * np.cumsum(gold[order]) / (np.arange(1, len(order) + 1) + gold.sum())).max())


def infer_labels(rules: RuleSet, labels: Sequence[Labels], worlds: Sequence[World], setting: Setting) -> list[Labels]:
    """Add what follows from labels and known facts, to the fixed point."""
    if not len(rules):
        return list(labels)
    known = [predicted | world.known for predicted, world in zip(labels, worlds, strict=True)]
    inferred = apply(rules, worlds_to_facts(worlds, known, setting.relations), max_rounds=None)
    inferred_labels = facts_to_labels(inferred.facts, worlds, setting.relations)
    return [
        (predicted | inferred_here) & world.queried
        for predicted, inferred_here, world in zip(labels, inferred_labels, worlds, strict=True)
    ]


def send_messages(rules: RuleSet, logits: Sequence[Logits], setting: Setting, iterations: int) -> list[Logits]:
    """Return the log-odds after messages between them; what is known is given."""
    layer = LogicLayer(rules, relations=setting.relations, weights="annotated", iterations=iterations)
    with torch.inference_mode():
        return [layer(torch.from_numpy(log_odds)[None])[0].numpy() for log_odds in logits]


def decode_labels(
    rules: RuleSet, costs: Sequence[float], margins: Sequence[Logits], setting: Setting, options: Mapping[str, Any]
) -> tuple[list[Labels], bool]:
    """Return the labels that cost least with the rules they break, and whether all are proved to."""
    decoder = RuleDecoder(rules, relations=setting.relations, rule_costs=costs, **options)
    decoded = [decoder(one) for one in margins]
    return [np.asarray(one.labels) for one in decoded], all(one.optimal for one in decoded)


def with_known(logits: Sequence[Any], worlds: Sequence[World]) -> list[Logits]:
    """Return log-odds that are sure where something is known, and of an entity with itself."""
    given = []
    for log_odds, world in zip(logits, worlds, strict=True):
        sure = np.where(world.known, SURE, log_odds)
        sure[np.eye(len(sure), dtype=bool)] = -SURE
        given.append(sure.astype(np.float32))
    return given


def known_evidence(worlds: Sequence[World], setting: Setting) -> list[dict[str, Any]]:
    """Return what is known of each world as an injector takes it."""
    return [
        {
            name: (world.known[..., index], world.known[..., index])
            for index, name in enumerate(setting.relations)
            if world.known[..., index].any()
        }
        for world in worlds
    ]


def count_labels(labels: Sequence[Labels], worlds: Sequence[World]) -> tuple[int, int, int]:
    """Count the labels that are predicted rightly, that are predicted, and that are true."""
    correct = sum(int((one & world.gold).sum()) for one, world in zip(labels, worlds, strict=True))
    wanted = sum(int((world.gold & world.queried).sum()) for world in worlds)
    return correct, sum(int(one.sum()) for one in labels), wanted


def f1_of(labels: Sequence[Labels], worlds: Sequence[World]) -> float:
    """Return micro F1 over the queried labels."""
    correct, predicted, wanted = count_labels(labels, worlds)
    return 2 * correct / max(1, predicted + wanted)


def score_labels(labels: Sequence[Labels], worlds: Sequence[World], setting: Setting, own: RuleSet) -> dict[str, Any]:
    """Score labels: F1 against the truth, and consistency with the gold rules and with a learner's own."""
    correct, predicted, wanted = count_labels(labels, worlds)
    known = [one | world.known for one, world in zip(labels, worlds, strict=True)]
    kb = worlds_to_facts(worlds, known, setting.relations)
    return {
        "f1": f1_of(labels, worlds),
        "precision": correct / max(1, predicted),
        "recall": correct / max(1, wanted),
        "predicted": predicted,
        "consistency": measure_consistency(setting.gold_rules, kb),
        "own_consistency": measure_consistency(own, kb) if len(own) else None,
    }


def measure_consistency(rules: RuleSet, kb: KnowledgeBase) -> float | None:
    """Return the share of different heads that bodies give and that are facts: the mean over the rules that fire.

    Different variables are different entities. None where no rule fires.

    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([("a", "p", "b"), ("b", "p", "a"), ("a", "p", "c")])
    >>> round(measure_consistency(parse_rules("p(X, Y) :- p(Y, X)."), kb), 3)
    0.667
    """
    shares = []
    with Engine(kb) as engine:
        for rule in rules.rules:
            for body in rule.alternatives():
                wanted = variables(rule.head)
                fired = engine.count_distinct(body, wanted, distinct=True)
                if fired:
                    shares.append(engine.count_distinct([*body, rule.head], wanted, distinct=True) / fired)
    return sum(shares) / len(shares) if shares else None


def keep_strongest(rules: RuleSet, least: float, most: int) -> RuleSet:
    """Return the most confident rules, of equals the most supported."""

    def strength(rule: Rule) -> tuple[float, float]:
        return -rule.confidence, -(rule.support or 0)

    kept = sorted((rule for rule in rules.rules if rule.confidence >= least), key=strength)
    return RuleSet(kept[:most])


Learner = Callable[[KnowledgeBase, Sequence[str], Mapping[str, Any], int], RuleSet]


def most_frequent(kb: KnowledgeBase, count: int) -> list[str]:
    """Return the relations with most facts."""
    return sorted(kb.predicates, key=lambda name: -kb.count(name))[:count]


def _mine(kb: KnowledgeBase, targets: Sequence[str], options: Mapping[str, Any], seed: int) -> RuleSet:
    counting: dict[str, Any] = {"confidence": "groundings", "circular": True}
    forms: dict[str, Any] = {"unary": False, "constants": False, "thresholds": False}
    return RuleMiner(targets=targets, seed=seed, **counting, **forms, **options).fit(kb).rules_


def _lnn(kb: KnowledgeBase, targets: Sequence[str], options: Mapping[str, Any], seed: int) -> RuleSet:
    """Chains up to two relations long, of the most frequent relations, walked either way."""
    chosen = dict(options)
    near = most_frequent(kb, chosen.pop("relations"))
    template = chains(2, predicates=near, inverses=True)
    return LNNLearner(template, targets=targets, seed=seed, **chosen).fit(kb).rules_


def _nlil(kb: KnowledgeBase, targets: Sequence[str], options: Mapping[str, Any], seed: int) -> RuleSet:
    return NLILLearner(targets=targets, seed=seed, **options).fit(kb).rules_


LEARNERS: Mapping[str, Learner] = {"RuleMiner": _mine, "LNNLearner": _lnn, "NLILLearner": _nlil}


USES = ("apply", "layer", "decoder", "loss")


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Run an experiment, or go on with it where it was stopped, and return its figures."""
    return _Matrix(experiment.settings, seed, folder, tell).fill(experiment)


def _is_precise(given: npt.NDArray[Any], right: npt.NDArray[Any], least: float) -> npt.NDArray[np.bool_]:
    """Tell which rules add labels that are right often enough, drawn to one half where they are few."""
    return np.asarray((given > 0) & ((right + 0.5) / (given + 1) >= least))


@dataclass(frozen=True)
class _Calibrated:
    """A network's calibration, its labels of selection worlds out of fold, and log-odds and margins of both parts."""

    calibration: LabelCalibration
    held_labels: list[Labels]
    held: list[Logits]
    held_margins: list[Logits]
    test: list[Logits]
    test_margins: list[Logits]

    def test_labels(self, worlds: Sequence[World]) -> list[Labels]:
        return [(margins > 0) & world.queried for margins, world in zip(self.test_margins, worlds, strict=True)]


@dataclass(frozen=True)
class _Trial:
    """One way to use rules: F1 on the selection worlds, labels of the test worlds, and what is told of it."""

    selection_f1: float
    labels: list[Labels]
    told: Mapping[str, Any]


class _Matrix:
    def __init__(self, settings: Any, seed: int, folder: Path, tell: Callable[[str], None]) -> None:
        self.settings, self.seed, self.folder, self.tell = settings, seed, folder, tell
        folder.mkdir(parents=True, exist_ok=True)
        self.setting: Setting = load(settings["set"])
        self.evidence = known_evidence(self.setting.selection, self.setting)
        self.targets = most_frequent(self.setting.kb, settings["targets"])

    def fill(self, experiment: Experiment) -> dict[str, Any]:
        plain = self._network("plain", None)
        selection, test = (predict_logits(plain, part) for part in (self.setting.selection, self.setting.test))
        network = self._calibrate(selection, test)
        raw = [(log_odds > 0) & world.queried for log_odds, world in zip(test, self.setting.test, strict=True)]
        alone = _Trial(
            f1_of(network.held_labels, self.setting.selection), network.test_labels(self.setting.test), {"rules": 0}
        )
        rows: dict[str, Any] = {
            "uncalibrated": self._figures(raw, RuleSet()),
            "network alone": {"selection_f1": alone.selection_f1, **self._figures(alone.labels, RuleSet())},
        }
        rules, refused, fits = {}, {}, {}
        for name in LEARNERS:
            rules[name] = self._learn(name)
            pairs = self._pair_rules(rules[name])
            refused[name] = len(rules[name]) - len(pairs)
            chosen = keep_strongest(pairs, self.settings["own_confidence"], self.settings["max_rules"])
            fit = self._fit(network, chosen)
            fits[name] = [] if fit is None else [str(score).strip() for score in fit.selection]
            for use in USES:
                started = time.perf_counter()
                choices = [alone, *(self._try(use, name, network, alone, fit) if fit is not None else ())]
                best = max(choices, key=lambda choice: choice.selection_f1)
                figures = {"selection_f1": best.selection_f1, **best.told, **self._figures(best.labels, chosen)}
                rows[f"{name}, {use}"] = {**figures, "seconds": round(time.perf_counter() - started, 1)}
                self.tell(f"{name}, {use}: F1 {figures['f1']:.4f}, {dict(best.told)}")
        return {
            "experiment": experiment.name,
            "title": experiment.title,
            "seed": self.seed,
            "worlds": [len(part) for part in (self.setting.training, self.setting.selection, self.setting.test)],
            "targets": self.targets,
            "rules": {name: len(learned) for name, learned in rules.items()},
            "refused": refused,
            "gold_rules": len(self.setting.gold_rules),
            "scales": fits,
            "columns": ["f1", "precision", "recall", "consistency", "own_consistency"],
            "rows": rows,
        }

    def _learn(self, name: str) -> RuleSet:
        """Learn, or read what was learned before."""
        file = self.folder / f"{name}.rules"
        if not file.exists():
            started = time.perf_counter()
            learned = LEARNERS[name](self.setting.kb, self.targets, self.settings[name], self.seed)
            learned.save(file)
            self.tell(f"{name}: {len(learned)} rules in {time.perf_counter() - started:.0f} s")
        return read_rules(file)

    def _pair_rules(self, rules: RuleSet) -> RuleSet:
        """Return the rules that every use takes: relations between pairs of different entities."""

        def taken(statement: object) -> bool:
            assert isinstance(statement, Rule)
            relations = self.setting.relations
            try:
                clauses = read_clauses(AtomSpace(statement, relations=relations), reader="ConsistencyLoss")
            except RulewrightError:
                return False
            return bool(clauses) and all(is_pair_rule(clause, relations) for clause in clauses)

        return rules.filter(taken)

    def _calibrate(self, selection: Sequence[Logits], test: Sequence[Logits]) -> _Calibrated:
        """Calibrate log-odds on the selection worlds, where nothing is known beforehand."""
        worlds = self.setting.selection
        gold = [world.gold for world in worlds]
        calibration = calibrate(
            [*selection], gold, relations=self.setting.relations, evidence=self.evidence, seed=self.seed
        )
        assert calibration.out_of_fold is not None
        held = calibration.out_of_fold.margins
        return _Calibrated(
            calibration,
            [(margins > 0) & world.queried for margins, world in zip(held, worlds, strict=True)],
            with_known([calibration.logits(table) for table in selection], worlds),
            with_known(held, worlds),
            with_known([calibration.logits(table) for table in test], self.setting.test),
            with_known([calibration.margins(table) for table in test], self.setting.test),
        )

    def _fit(self, network: _Calibrated, rules: RuleSet) -> RuleFit | None:
        """Measure rules on the selection worlds; None of no rules."""
        if not len(rules):
            return None
        fit = fit_rules(
            rules,
            network.held,
            [world.gold for world in self.setting.selection],
            relations=self.setting.relations,
            evidence=self.evidence,
            threshold=dict(network.calibration.thresholds),
            scales=self.settings["scales"],
            seed=self.seed,
            **self.settings["decoder"],
        )
        self.tell(repr(fit))
        return fit

    def _try(self, use: str, name: str, network: _Calibrated, alone: _Trial, fit: RuleFit) -> Sequence[_Trial]:
        """Return what a use gives with rules, one choice for each of its settings."""
        if use == "apply":
            return self._try_apply(network, fit)
        if use == "layer":
            return self._try_layer(network, alone, fit)
        return self._try_decoder(network, fit) if use == "decoder" else self._try_loss(name, fit)

    def _try_apply(self, network: _Calibrated, fit: RuleFit) -> list[_Trial]:
        """Add what follows by rules that are precise enough in what they add to the network's labels.

        That is measured on selection worlds, and what it brings there on parts that it was not measured on.
        """
        worlds = self.setting.selection
        gold, held, fold_of = (
            np.concatenate([part.ravel() for part in parts])
            for parts in ([world.gold for world in worlds], network.held_labels, self._split_atoms())
        )
        rules = [*fit.given]
        added = []
        for rule in rules:
            inferred = infer_labels(RuleSet([rule]), network.held_labels, worlds, self.setting)
            added.append(np.flatnonzero(np.concatenate([part.ravel() for part in inferred]) & ~held))
        given = np.array([np.bincount(fold_of[places], minlength=FOLDS) for places in added])
        right = np.array([np.bincount(fold_of[places], gold[places], FOLDS) for places in added])
        wanted = sum(int((world.gold & world.queried).sum()) for world in worlds)
        choices = []
        for least in self.settings["precisions"]:
            labels = held.copy()
            for fold in range(FOLDS):
                of_others = given.sum(1) - given[:, fold], right.sum(1) - right[:, fold]
                for index in np.flatnonzero(_is_precise(*of_others, least)):
                    labels[added[index][fold_of[added[index]] == fold]] = True
            kept = RuleSet([rules[index] for index in np.flatnonzero(_is_precise(given.sum(1), right.sum(1), least))])
            if len(kept):
                selection_f1 = 2 * int((labels & gold).sum()) / (int(labels.sum()) + wanted)
                alone = network.test_labels(self.setting.test)
                on_test = infer_labels(kept, alone, self.setting.test, self.setting)
                choices.append(_Trial(selection_f1, on_test, {"least_precision": least, "rules": len(kept)}))
        return choices

    def _split_atoms(self) -> list[npt.NDArray[np.int64]]:
        """Return the fold of every label: whole worlds, or of few worlds all labels of a first entity."""
        random = np.random.default_rng(self.seed)
        worlds = self.setting.selection
        fold_of_world = random.permutation(len(worlds)) % FOLDS
        folds = []
        for world, fold in zip(worlds, fold_of_world, strict=True):
            of_first = np.full(len(world.features), fold)
            if len(worlds) < FOLDS:
                of_first = random.permutation(len(world.features)) % FOLDS
            folds.append(np.broadcast_to(of_first[:, None, None], world.gold.shape))
        return folds

    def _try_layer(self, network: _Calibrated, alone: _Trial, fit: RuleFit) -> list[_Trial]:
        """Send messages by the fitted weights, judged out of fold, and by confidences, then calibrated anew."""
        choices = []
        iterations = self.settings["iterations"]
        for score in fit.selection:
            if score.injector == "layer" and len(fit.kept):
                sent = send_messages(fit.kept, network.test, self.setting, 1)
                cuts = np.array([network.calibration.thresholds[name] for name in self.setting.relations])
                least = np.log(cuts) - np.log1p(-cuts)
                labels = [(part > least) & world.queried for part, world in zip(sent, self.setting.test, strict=True)]
                told = {"weights": "fitted", "rules": len(fit.kept)}
                choices.append(_Trial(alone.selection_f1 + score.difference, labels, told))
        confidences = [weigh_confidence(statement) for statement in fit.given]
        for scale in self.settings["layer_scales"]:
            told = {"weights": f"{scale:g} × confidence", "rules": len(fit.given)}
            rules = fit.given.with_weights([scale * weight for weight in confidences])
            both = [send_messages(rules, part, self.setting, iterations) for part in (network.held, network.test)]
            again = self._calibrate(*both)
            selection_f1 = f1_of(again.held_labels, self.setting.selection)
            choices.append(_Trial(selection_f1, again.test_labels(self.setting.test), told))
        return choices

    def _try_decoder(self, network: _Calibrated, fit: RuleFit) -> list[_Trial]:
        """Decode with the costs whose labels are best out of fold."""
        best = fit.best
        if best is None or not any(fit.costs_at(best)):
            return []
        costs = fit.costs_at(best)
        labels, optimal = decode_labels(fit.rules, costs, network.test_margins, self.setting, self.settings["decoder"])
        labels = [one & world.queried for one, world in zip(labels, self.setting.test, strict=True)]
        told = {"weights": best.weighting, "scale": best.scale if np.isfinite(best.scale) else "hard"}
        return [_Trial(best.score, labels, {**told, "rules": sum(map(bool, costs)), "optimal": optimal})]

    def _try_loss(self, name: str, fit: RuleFit) -> list[_Trial]:
        """Train with the rules that help, by their fitted weights, or with all by their confidences, and calibrate."""
        choices = []
        for weights, rules in (("fitted", fit.kept), ("confidence", fit.given)):
            if not len(rules):
                continue
            network = self._network(f"loss_{name}_{weights}", rules, "annotated" if weights == "fitted" else "one")
            parts = [predict_logits(network, part) for part in (self.setting.selection, self.setting.test)]
            taught = self._calibrate(*parts)
            labels, told = taught.test_labels(self.setting.test), {"weights": weights, "rules": len(rules)}
            choices.append(_Trial(f1_of(taught.held_labels, self.setting.selection), labels, told))
        return choices

    def _figures(self, labels: Any, own: RuleSet) -> dict[str, Any]:
        return score_labels(labels, self.setting.test, self.setting, own)

    def _network(self, name: str, rules: RuleSet | None, weights: Literal["one", "annotated"] = "one") -> PairNetwork:
        """Train a network, with a loss for rules where some are given, or go on with it."""
        loss = None
        if rules is not None and len(rules):
            options = dict(self.settings["loss"])
            options["eta"] = {int(length): slack for length, slack in options["eta"].items()}
            loss = ConsistencyLoss(rules, relations=self.setting.relations, weights=weights, **options)

        def score(model: PairNetwork) -> float:
            f1 = best_f1(predict_logits(model, self.setting.selection), self.setting.selection)
            self.tell(f"{name}: F1 {f1:.4f} on the selection worlds")
            return f1

        return train_network(
            self.setting.training,
            len(self.setting.relations),
            self.settings["network"],
            seed=self.seed,
            folder=self.folder / name,
            score=score,
            consistency=loss,
        )
