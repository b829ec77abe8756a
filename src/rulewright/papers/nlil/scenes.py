"""Object classification from scene graphs: what is it that a person wears? (Table 3, Figure 5c, Tables 4 and 5)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright import datasets
from rulewright.data import KnowledgeBase, signature
from rulewright.learn.nlil.classes import ClassScores
from rulewright.learn.nlil.facts import FactGraph
from rulewright.learn.nlil.learner import NLILLearner
from rulewright.learn.nlil.questions import Task
from rulewright.logic import Rule
from rulewright.papers.catalogue import Experiment

COLUMNS = ("r@1", "r@5", "r@1 top 50", "r@5 top 50")
Ids = npt.NDArray[np.int64]


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Learn rules of all classes from a share of the training images and rank the classes of every test object."""
    settings: Any = experiment.settings
    kb = datasets.load(str(settings["set"]))
    train = some_worlds(kb, float(settings["share"]), seed)
    classes = [name for name, each in kb.predicates.items() if signature(each) == "e" and train.count(name)]
    began = time.monotonic()
    latest = began

    def progress(name: str, done: int, total: int) -> None:
        nonlocal latest
        if time.monotonic() - latest > 30 or done == total:
            latest = time.monotonic()
            tell(f"{name}: {done} of {total} epochs, {latest - began:.0f} s")

    learner = NLILLearner(
        targets=classes, exclusive=True, seed=seed, folder=folder, progress=progress, **settings["options"]
    ).fit(train)
    seconds = time.monotonic() - began
    scored = learner.classify(kb.split("test"))
    unknown = sum(kb.split("test").count(name) for name in kb.predicates if signature(kb.predicate(name)) == "e")
    counts = {name: train.count(name) for name in classes}
    top = tuple(sorted(counts, key=lambda name: -counts[name])[:50])
    vote = frequency_vote(train, kb.split("test"), classes)
    rows = {
        "ours": both(scored, top, unknown),
        "frequency vote": both(vote, top, unknown),
        **settings.get("paper", {}),
    }
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "seed": seed,
        "columns": COLUMNS,
        "rows": rows,
        "images": len(np.unique(kept_worlds(train))),
        "questions": len(scored.truth),
        "scores": "hard: the extracted rules, weighted",
        "rules": len(learner.rules_),
        "against": len(learner.against_),
        "refused": dict(next(iter(learner.learned_.values())).refused),
        "seconds": round(seconds, 1),
        "readable": readable(learner.rules_.rules, top[:20]),
        "doubtful": doubtful(learner.rules_.rules, classes),
    }


def some_worlds(kb: KnowledgeBase, share: float, seed: int) -> KnowledgeBase:
    """Return the facts of a share of the training images."""
    train = kb.with_splits({})
    if share >= 1:
        return train
    names = [kb.worlds[each] for each in np.unique(kept_worlds(kb))]
    chosen = np.random.default_rng(seed).permutation(len(names))[: max(2, round(share * len(names)))]
    return train.in_worlds([names[each] for each in np.sort(chosen)])


def kept_worlds(kb: KnowledgeBase) -> Ids:
    """Return the worlds of all labelled entities."""
    assert kb.entity_worlds is not None
    return np.asarray(kb.entity_worlds[kb.tables()["e"].columns[0]], dtype=np.int64)


def both(scored: ClassScores, top: tuple[str, ...], objects: int) -> dict[str, float]:
    """Return R@1 and R@5 over all objects, those of classes never seen among them, and among the top classes alone."""
    few = scored.of(top)
    seen = len(scored.truth) / max(1, objects)
    return {
        "r@1": scored.recall(1) * seen,
        "r@5": scored.recall(5) * seen,
        "r@1 top 50": few.recall(1),
        "r@5 top 50": few.recall(5),
    }


def frequency_vote(train: KnowledgeBase, test: KnowledgeBase, classes: Sequence[str]) -> ClassScores:
    """Score classes as the paper's baseline does: every relation votes for the class most often at this end of it.

    For each (relation, direction, class of the other end) the class seen most often in training gets one vote; a
    class that is more frequent in all wins ties.
    """
    counts: Counter[tuple[int, int, int]] = Counter()
    graph = FactGraph(train)
    task = Task.of(graph, tuple(classes))
    questions = task.asked_of_all()
    row, operator, other = _neighbours(graph, questions.arguments[0], task)
    own = questions.truth.argmax(axis=1)
    counts.update(zip(operator.tolist(), other.tolist(), own[row].tolist(), strict=True))
    best: dict[tuple[int, int], tuple[int, int]] = {}
    for (step, end, label), count in counts.items():
        if count > best.get((step, end), (0, 0))[0]:
            best[step, end] = (count, label)
    asked = Task.of(FactGraph(test, graph.vocabulary), tuple(classes))
    there = asked.asked_of_all()
    row, operator, other = _neighbours(asked.graph, there.arguments[0], asked)
    scores = np.tile(questions.truth.mean(axis=0) * 1e-3, (len(there), 1))
    for place, key in zip(row.tolist(), zip(operator.tolist(), other.tolist(), strict=True), strict=True):
        if key in best:
            scores[place, best[key][1]] += 1
    from rulewright.learn.nlil.classifier import Speaking

    empty = np.zeros(0, dtype=np.int64)
    silent = Speaking(len(there), empty, empty)
    return ClassScores(tuple(classes), there.arguments[0], scores, there.truth.argmax(axis=1), silent)


def _neighbours(graph: FactGraph, entities: Ids, task: Task) -> tuple[Ids, Ids, Ids]:
    """Return the steps that leave entities, with the class of where each leads."""
    row, operator, end = graph.leaving(entities)
    label = np.full(graph.entities, -1, dtype=np.int64)
    for number, name in enumerate(task.targets):
        label[graph.kb.columns(name)[0]] = number
    keep = (label[end] >= 0) & (end != entities[row])
    return row[keep], operator[keep], label[end[keep]]


def readable(rules: Sequence[Rule], names: Sequence[str], count: int = 3) -> dict[str, list[str]]:
    """Return for each class the rules that weigh most of those that are right often."""
    found: dict[str, list[str]] = {}
    for name in names:
        mine = [rule for rule in rules if rule.head.predicate == name and (rule.support or 0) >= 3]
        mine.sort(key=lambda rule: -_number(rule.annotations, "weight") * (rule.support or 0) ** 0.5)
        found[name] = [str(rule) for rule in mine[:count]]
    return found


def doubtful(rules: Sequence[Rule], classes: Sequence[str], count: int = 5) -> list[str]:
    """Return the least precise among the weightiest rules of classes: what a reader should distrust."""
    heaviest = []
    for name in classes:
        mine = [rule for rule in rules if rule.head.predicate == name and (rule.support or 0) >= 2]
        if mine:
            heaviest.append(max(mine, key=lambda rule: _number(rule.annotations, "weight")))
    return [str(rule) for rule in sorted(heaviest, key=lambda rule: rule.confidence)[:count]]


def _number(annotations: Mapping[str, Any], key: str) -> float:
    value = annotations.get(key, 0.0)
    return float(value) if isinstance(value, int | float) else 0.0
