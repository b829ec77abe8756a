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

from rulewright.data import KnowledgeBase
from rulewright.errors import RulewrightError
from rulewright.inject import ConsistencyLoss
from rulewright.inject.pairs.clauses import read_horn_clauses
from rulewright.io import read_rules
from rulewright.learn import RuleMiner
from rulewright.learn.lnn.learner import LNNLearner
from rulewright.learn.lnn.ready import chains
from rulewright.learn.nlil.learner import NLILLearner
from rulewright.logic import Rule, RuleSet
from rulewright.papers.catalogue import Experiment
from rulewright.papers.matrix.network import Logits, PairNetwork, logits_of, trained
from rulewright.papers.matrix.uses import above, best_threshold, by_apply, by_decoder, by_layer, figures, strongest
from rulewright.papers.matrix.worlds import Setting, load

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
