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
from rulewright.inject.pairs.clauses import read_horn_clauses
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
    facts_of,
    labels_of,
    load,
    logits_of,
    trained,
)
from rulewright.reason import apply

SURE = 15.0
"""The log-odds of what is known."""


def best_threshold(logits: Sequence[Logits], worlds: Sequence[World]) -> tuple[float, float]:
    """Return the highest F1 over labels that are asked for, and the log-odds above which they are true for it."""
    scores = np.concatenate([each[world.asked] for each, world in zip(logits, worlds, strict=True)])
    gold = np.concatenate([world.gold[world.asked] for world in worlds])
    order = np.argsort(-scores, kind="stable")
    f1 = 2 * np.cumsum(gold[order]) / (np.arange(1, len(order) + 1) + gold.sum())
    place = int(np.argmax(f1))
    after = scores[order[min(place + 1, len(order) - 1)]]
    return float(f1[place]), float((scores[order[place]] + after) / 2)


def above(logits: Sequence[Logits], threshold: float, worlds: Sequence[World]) -> list[Labels]:
    """Return the labels above a threshold, of those that are asked for."""
    return [(each > threshold) & world.asked for each, world in zip(logits, worlds, strict=True)]


def by_apply(rules: RuleSet, labels: Sequence[Labels], worlds: Sequence[World], setting: Setting) -> list[Labels]:
    """Add what follows from labels and known facts, to the fixed point."""
    known = [each | world.known for each, world in zip(labels, worlds, strict=True)]
    inferred = apply(rules, facts_of(worlds, known, setting.relations))
    found = labels_of(inferred.facts, worlds, setting.relations)
    return [(each | new) & world.asked for each, new, world in zip(labels, found, worlds, strict=True)]


def by_layer(
    rules: RuleSet, logits: Sequence[Logits], worlds: Sequence[World], setting: Setting, options: Mapping[str, Any]
) -> list[Logits]:
    """Return the log-odds after messages between them."""
    layer = LogicLayer(rules, **options)
    named = [(place, name) for place, name in enumerate(setting.relations) if name in rules.arities]
    found = []
    for each, world in zip(logits, worlds, strict=True):
        given = _with_known(each, world)
        with torch.inference_mode():
            sent = layer({name: torch.from_numpy(given[:, :, place]) for place, name in named})
        result = given.copy()
        for place, name in named:
            result[:, :, place] = sent[name].numpy()
        found.append(result)
    return found


def by_decoder(
    rules: RuleSet,
    logits: Sequence[Logits],
    threshold: float,
    worlds: Sequence[World],
    setting: Setting,
    options: Mapping[str, Any],
) -> tuple[list[Labels], bool]:
    """Return the labels that cost least and violate no rule, and whether all are proved to."""
    decoder = RuleDecoder(rules, relations=setting.relations, **options)
    found = [decoder(_with_known(each, world) - threshold) for each, world in zip(logits, worlds, strict=True)]
    labels = [np.asarray(each.labels) & world.asked for each, world in zip(found, worlds, strict=True)]
    return labels, all(each.optimal for each in found)


def _with_known(logits: Logits, world: World) -> Logits:
    given = np.where(world.known, SURE, logits)
    given[np.eye(len(given), dtype=bool)] = -SURE
    return given.astype(np.float32)


def figures(labels: Sequence[Labels], worlds: Sequence[World], setting: Setting, own: RuleSet) -> dict[str, Any]:
    """Score labels: F1 against the truth, and consistency with the gold rules and with a learner's own."""
    correct = sum(int((each & world.gold).sum()) for each, world in zip(labels, worlds, strict=True))
    predicted = sum(int(each.sum()) for each in labels)
    wanted = sum(int((world.gold & world.asked).sum()) for world in worlds)
    kb = facts_of(worlds, [each | world.known for each, world in zip(labels, worlds, strict=True)], setting.relations)
    return {
        "f1": 2 * correct / max(1, predicted + wanted),
        "precision": correct / max(1, predicted),
        "recall": correct / max(1, wanted),
        "predicted": predicted,
        "consistency": consistency(setting.gold_rules, kb),
        "own_consistency": consistency(own, kb) if len(own) else None,
    }


def consistency(rules: RuleSet, kb: KnowledgeBase) -> float | None:
    """Return the share of different heads that bodies give and that are facts: the mean over the rules that fire.

    Different variables are different entities. None where no rule fires.

    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([("a", "p", "b"), ("b", "p", "a"), ("a", "p", "c")])
    >>> round(consistency(parse_rules("p(X, Y) :- p(Y, X)."), kb), 3)
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


def strongest(rules: RuleSet, least: float, most: int) -> RuleSet:
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
    return RuleMiner(targets=targets, seed=seed, **options).fit(kb).rules_


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
    return _Matrix(experiment.settings, seed, folder, tell).filled(experiment)


class _Matrix:
    def __init__(self, settings: Any, seed: int, folder: Path, tell: Callable[[str], None]) -> None:
        self.settings, self.seed, self.folder, self.tell = settings, seed, folder, tell
        folder.mkdir(parents=True, exist_ok=True)
        self.setting: Setting = load(settings["set"])
        self.targets = most_frequent(self.setting.kb, settings["targets"])

    def filled(self, experiment: Experiment) -> dict[str, Any]:
        plain = self._network("plain", None)
        selection, test = (logits_of(plain, part) for part in (self.setting.selection, self.setting.test))
        f1, threshold = best_threshold(selection, self.setting.selection)
        labels = above(test, threshold, self.setting.test)
        rows: dict[str, Any] = {"network alone": {"selection_f1": f1, **self._figures(labels, RuleSet())}}
        rules, refused = {}, {}
        for name in LEARNERS:
            rules[name] = self._learned(name)
            refused[name] = len(rules[name]) - len(self._pair_rules(rules[name]))
            for use in USES:
                started = time.perf_counter()
                found = self._cell(name, use, self._pair_rules(rules[name]), selection, test, threshold)
                rows[f"{name}, {use}"] = {**found, "seconds": round(time.perf_counter() - started, 1)}
                self.tell(f"{name}, {use}: F1 {found['f1']:.4f}")
        return {
            "experiment": experiment.name,
            "title": experiment.title,
            "seed": self.seed,
            "worlds": [len(each) for each in (self.setting.training, self.setting.selection, self.setting.test)],
            "targets": self.targets,
            "rules": {name: len(found) for name, found in rules.items()},
            "refused": refused,
            "gold_rules": len(self.setting.gold_rules),
            "columns": ["f1", "precision", "recall", "consistency", "own_consistency"],
            "rows": rows,
        }

    def _learned(self, name: str) -> RuleSet:
        """Learn, or read what was learned before."""
        file = self.folder / f"{name}.rules"
        if not file.exists():
            started = time.perf_counter()
            found = LEARNERS[name](self.setting.kb, self.targets, self.settings[name], self.seed)
            found.save(file)
            self.tell(f"{name}: {len(found)} rules in {time.perf_counter() - started:.0f} s")
        return read_rules(file)

    def _pair_rules(self, rules: RuleSet) -> RuleSet:
        """Return the rules that every use takes: relations between pairs of different entities."""

        def taken(statement: object) -> bool:
            assert isinstance(statement, Rule)
            try:
                return bool(read_horn_clauses(statement, self.setting.relations, reader="ConsistencyLoss"))
            except RulewrightError:
                return False

        return rules.filter(taken)

    def _cell(
        self, name: str, use: str, rules: RuleSet, selection: list[Logits], test: list[Logits], threshold: float
    ) -> dict[str, Any]:
        own = strongest(rules, self.settings["own_confidence"], self.settings["max_rules"])
        if use == "loss":
            chosen = strongest(rules, self.settings["loss_confidence"], self.settings["max_rules"])
            network = self._network(f"loss_{name}", chosen)
            f1, cut = best_threshold(logits_of(network, self.setting.selection), self.setting.selection)
            labels = above(logits_of(network, self.setting.test), cut, self.setting.test)
            return {"selection_f1": f1, "rules": len(chosen), **self._figures(labels, own)}
        tried = []
        for least in self.settings["confidences"]:
            chosen = strongest(rules, least, self.settings["max_rules"])
            if len(chosen):
                found = self._used(use, chosen, selection, threshold, self.setting.selection, None)
                tried.append((found["f1"], least, found.get("threshold")))
        if not tried:
            return {"selection_f1": None, "rules": 0, **self._figures(above(test, threshold, self.setting.test), own)}
        best = max(tried, key=lambda each: each[:2])
        chosen = strongest(rules, best[1], self.settings["max_rules"])
        found = self._used(use, chosen, test, threshold, self.setting.test, best[2])
        scored = self._figures(found.pop("labels"), own)
        optimal = {"optimal": found["optimal"]} if "optimal" in found else {}
        return {"selection_f1": best[0], "least_confidence": best[1], "rules": len(chosen), **scored, **optimal}

    def _used(
        self, use: str, rules: RuleSet, logits: list[Logits], threshold: float, worlds: Any, cut: float | None
    ) -> dict[str, Any]:
        """Put rules to work on log-odds; ``cut`` is the threshold behind a layer, chosen here where none is given."""
        found: dict[str, Any] = {}
        if use == "apply":
            labels = by_apply(rules, above(logits, threshold, worlds), worlds, self.setting)
        elif use == "decoder":
            labels, found["optimal"] = by_decoder(
                rules, logits, threshold, worlds, self.setting, self.settings["decoder"]
            )
        else:
            sent = by_layer(rules, logits, worlds, self.setting, self.settings["layer"])
            found["threshold"] = best_threshold(sent, worlds)[1] if cut is None else cut
            labels = above(sent, found["threshold"], worlds)
        correct = sum(int((each & world.gold).sum()) for each, world in zip(labels, worlds, strict=True))
        wanted = sum(int((world.gold & world.asked).sum()) for world in worlds)
        return {**found, "labels": labels, "f1": 2 * correct / max(1, wanted + sum(int(each.sum()) for each in labels))}

    def _figures(self, labels: Any, own: RuleSet) -> dict[str, Any]:
        return figures(labels, self.setting.test, self.setting, own)

    def _network(self, name: str, rules: RuleSet | None) -> PairNetwork:
        """Train a network, with a loss for rules where some are given, or go on with it."""
        loss = None
        if rules is not None and len(rules):
            options = dict(self.settings["loss"])
            options["eta"] = {int(length): slack for length, slack in options["eta"].items()}
            loss = ConsistencyLoss(rules, relations=self.setting.relations, **options)

        def score(model: PairNetwork) -> float:
            f1, _ = best_threshold(logits_of(model, self.setting.selection), self.setting.selection)
            self.tell(f"{name}: F1 {f1:.4f} on the selection worlds")
            return f1

        return trained(
            self.setting.training,
            len(self.setting.relations),
            self.settings["network"],
            seed=self.seed,
            folder=self.folder / name,
            score=score,
            consistency=loss,
        )
