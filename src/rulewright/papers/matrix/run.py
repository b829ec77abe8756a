"""Every learner in every use: who learned the rules, how they were put to work, and what it brought.

One small network reads entities; rules of each learner are applied to what it predicts, sent through its outputs as a
layer, decoded with, or trained with as a loss. Thresholds, and from which confidence up a rule is used, are chosen on
the selection worlds; the test worlds are scored once.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rulewright.data import KnowledgeBase
from rulewright.engine import Engine
from rulewright.errors import RulewrightError
from rulewright.inject import ConsistencyLoss, LogicLayer, RuleDecoder
from rulewright.inject.atom_space import AtomSpace
from rulewright.inject.atoms.clauses import is_pair_rule, read_clauses
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

SURE = 15.0
"""The log-odds of what is known."""


def best_threshold(logits: Sequence[Logits], worlds: Sequence[World]) -> tuple[float, float]:
    """Return the highest F1 over the queried labels, and the log-odds above which they are true for it."""
    scores = np.concatenate([log_odds[world.queried] for log_odds, world in zip(logits, worlds, strict=True)])
    gold = np.concatenate([world.gold[world.queried] for world in worlds])
    order = np.argsort(-scores, kind="stable")
    f1 = 2 * np.cumsum(gold[order]) / (np.arange(1, len(order) + 1) + gold.sum())
    best = int(np.argmax(f1))
    after = scores[order[min(best + 1, len(order) - 1)]]
    return float(f1[best]), float((scores[order[best]] + after) / 2)


def threshold_labels(logits: Sequence[Logits], threshold: float, worlds: Sequence[World]) -> list[Labels]:
    """Return the queried labels above a threshold."""
    return [(log_odds > threshold) & world.queried for log_odds, world in zip(logits, worlds, strict=True)]


def infer_labels(rules: RuleSet, labels: Sequence[Labels], worlds: Sequence[World], setting: Setting) -> list[Labels]:
    """Add what follows from labels and known facts, to the fixed point."""
    known = [predicted | world.known for predicted, world in zip(labels, worlds, strict=True)]
    inferred = apply(rules, worlds_to_facts(worlds, known, setting.relations), max_rounds=None)
    inferred_labels = facts_to_labels(inferred.facts, worlds, setting.relations)
    return [
        (predicted | inferred_here) & world.queried
        for predicted, inferred_here, world in zip(labels, inferred_labels, worlds, strict=True)
    ]


def send_messages(
    rules: RuleSet, logits: Sequence[Logits], worlds: Sequence[World], setting: Setting, options: Mapping[str, Any]
) -> list[Logits]:
    """Return the log-odds after messages between them."""
    layer = LogicLayer(rules, **options)
    named = [(relation_index, name) for relation_index, name in enumerate(setting.relations) if name in rules.arities]
    results = []
    for log_odds, world in zip(logits, worlds, strict=True):
        given = _with_known(log_odds, world)
        with torch.inference_mode():
            sent = layer({name: torch.from_numpy(given[:, :, relation_index]) for relation_index, name in named})
        result = given.copy()
        for relation_index, name in named:
            result[:, :, relation_index] = sent[name].numpy()
        results.append(result)
    return results


def decode_labels(
    rules: RuleSet,
    logits: Sequence[Logits],
    threshold: float,
    worlds: Sequence[World],
    setting: Setting,
    options: Mapping[str, Any],
) -> tuple[list[Labels], bool]:
    """Return the labels that cost least and violate no rule, and whether all are proved to."""
    decoder = RuleDecoder(rules, relations=setting.relations, **options)
    decoded = [decoder(_with_known(one, world) - threshold) for one, world in zip(logits, worlds, strict=True)]
    labels = [np.asarray(one.labels) & world.queried for one, world in zip(decoded, worlds, strict=True)]
    return labels, all(one.optimal for one in decoded)


def _with_known(logits: Logits, world: World) -> Logits:
    given = np.where(world.known, SURE, logits)
    given[np.eye(len(given), dtype=bool)] = -SURE
    return given.astype(np.float32)


def count_labels(labels: Sequence[Labels], worlds: Sequence[World]) -> tuple[int, int, int]:
    """Count the labels that are predicted rightly, that are predicted, and that are true."""
    correct = sum(int((one & world.gold).sum()) for one, world in zip(labels, worlds, strict=True))
    wanted = sum(int((world.gold & world.queried).sum()) for world in worlds)
    return correct, sum(int(one.sum()) for one in labels), wanted


def score_labels(labels: Sequence[Labels], worlds: Sequence[World], setting: Setting, own: RuleSet) -> dict[str, Any]:
    """Score labels: F1 against the truth, and consistency with the gold rules and with a learner's own."""
    correct, predicted, wanted = count_labels(labels, worlds)
    known = [one | world.known for one, world in zip(labels, worlds, strict=True)]
    kb = worlds_to_facts(worlds, known, setting.relations)
    return {
        "f1": 2 * correct / max(1, predicted + wanted),
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


class _Matrix:
    def __init__(self, settings: Any, seed: int, folder: Path, tell: Callable[[str], None]) -> None:
        self.settings, self.seed, self.folder, self.tell = settings, seed, folder, tell
        folder.mkdir(parents=True, exist_ok=True)
        self.setting: Setting = load(settings["set"])
        self.targets = most_frequent(self.setting.kb, settings["targets"])

    def fill(self, experiment: Experiment) -> dict[str, Any]:
        plain = self._network("plain", None)
        selection, test = (predict_logits(plain, part) for part in (self.setting.selection, self.setting.test))
        f1, threshold = best_threshold(selection, self.setting.selection)
        labels = threshold_labels(test, threshold, self.setting.test)
        rows: dict[str, Any] = {"network alone": {"selection_f1": f1, **self._figures(labels, RuleSet())}}
        rules, refused = {}, {}
        for name in LEARNERS:
            rules[name] = self._learn(name)
            refused[name] = len(rules[name]) - len(self._pair_rules(rules[name]))
            for use in USES:
                started = time.perf_counter()
                figures = self._fill_cell(name, use, self._pair_rules(rules[name]), selection, test, threshold)
                rows[f"{name}, {use}"] = {**figures, "seconds": round(time.perf_counter() - started, 1)}
                self.tell(f"{name}, {use}: F1 {figures['f1']:.4f}")
        return {
            "experiment": experiment.name,
            "title": experiment.title,
            "seed": self.seed,
            "worlds": [len(part) for part in (self.setting.training, self.setting.selection, self.setting.test)],
            "targets": self.targets,
            "rules": {name: len(learned) for name, learned in rules.items()},
            "refused": refused,
            "gold_rules": len(self.setting.gold_rules),
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

    def _fill_cell(
        self, name: str, use: str, rules: RuleSet, selection: list[Logits], test: list[Logits], threshold: float
    ) -> dict[str, Any]:
        own = keep_strongest(rules, self.settings["own_confidence"], self.settings["max_rules"])
        if use == "loss":
            chosen = keep_strongest(rules, self.settings["loss_confidence"], self.settings["max_rules"])
            network = self._network(f"loss_{name}", chosen)
            f1, cut = best_threshold(predict_logits(network, self.setting.selection), self.setting.selection)
            labels = threshold_labels(predict_logits(network, self.setting.test), cut, self.setting.test)
            return {"selection_f1": f1, "rules": len(chosen), **self._figures(labels, own)}
        tried = []
        for min_confidence in self.settings["confidences"]:
            chosen = keep_strongest(rules, min_confidence, self.settings["max_rules"])
            if len(chosen):
                outcome = self._use_rules(use, chosen, selection, threshold, self.setting.selection, None)
                tried.append((outcome["f1"], min_confidence, outcome.get("threshold")))
        if not tried:
            return {
                "selection_f1": None,
                "rules": 0,
                **self._figures(threshold_labels(test, threshold, self.setting.test), own),
            }
        best = max(tried, key=lambda trial: trial[:2])
        chosen = keep_strongest(rules, best[1], self.settings["max_rules"])
        outcome = self._use_rules(use, chosen, test, threshold, self.setting.test, best[2])
        scored = self._figures(outcome.pop("labels"), own)
        optimal = {"optimal": outcome["optimal"]} if "optimal" in outcome else {}
        return {"selection_f1": best[0], "least_confidence": best[1], "rules": len(chosen), **scored, **optimal}

    def _use_rules(
        self, use: str, rules: RuleSet, logits: list[Logits], threshold: float, worlds: Any, cut: float | None
    ) -> dict[str, Any]:
        """Put rules to work on log-odds; ``cut`` is the threshold behind a layer, chosen here where none is given."""
        outcome: dict[str, Any] = {}
        if use == "apply":
            labels = infer_labels(rules, threshold_labels(logits, threshold, worlds), worlds, self.setting)
        elif use == "decoder":
            labels, outcome["optimal"] = decode_labels(
                rules, logits, threshold, worlds, self.setting, self.settings["decoder"]
            )
        else:
            sent = send_messages(rules, logits, worlds, self.setting, self.settings["layer"])
            outcome["threshold"] = best_threshold(sent, worlds)[1] if cut is None else cut
            labels = threshold_labels(sent, outcome["threshold"], worlds)
        correct, predicted, wanted = count_labels(labels, worlds)
        return {**outcome, "labels": labels, "f1": 2 * correct / max(1, predicted + wanted)}

    def _figures(self, labels: Any, own: RuleSet) -> dict[str, Any]:
        return score_labels(labels, self.setting.test, self.setting, own)

    def _network(self, name: str, rules: RuleSet | None) -> PairNetwork:
        """Train a network, with a loss for rules where some are given, or go on with it."""
        loss = None
        if rules is not None and len(rules):
            options = dict(self.settings["loss"])
            options["eta"] = {int(length): slack for length, slack in options["eta"].items()}
            loss = ConsistencyLoss(rules, relations=self.setting.relations, **options)

        def score(model: PairNetwork) -> float:
            f1, _ = best_threshold(predict_logits(model, self.setting.selection), self.setting.selection)
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
