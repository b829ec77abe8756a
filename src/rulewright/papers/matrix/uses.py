"""What one network says, corrected by rules in each way, and how good and how consistent the outcome is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from rulewright.data import KnowledgeBase
from rulewright.engine import Engine
from rulewright.inject import LogicLayer, RuleDecoder
from rulewright.logic import Rule, RuleSet, variables
from rulewright.papers.matrix.network import Logits
from rulewright.papers.matrix.worlds import Labels, Setting, World, facts_of, labels_of
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
