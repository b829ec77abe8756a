"""Object classification from scene graphs: what is it that a person wears? (Table 3, Figure 5c, Tables 4 and 5)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rulewright import datasets
from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids
from rulewright.learn.nlil.classes import ClassScores
from rulewright.learn.nlil.facts import FactGraph
from rulewright.learn.nlil.learner import NLILLearner
from rulewright.learn.nlil.questions import LearningTask
from rulewright.logic import Rule
from rulewright.papers.catalogue import Experiment

COLUMNS = ("r@1", "r@5", "r@1 top 50", "r@5 top 50")


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Learn rules of all classes from a share of the training images and rank the classes of every test object.

    The row ``untrained`` has the same options but for epochs: rules are drawn from a generator that learned nothing.
    """
    settings: Any = experiment.settings
    kb = datasets.load(str(settings["set"]))
    train, test = choose_images(kb, float(settings["share"]), seed), kb.split("test")
    every_class = [name for name, predicate in kb.predicates.items() if signature(predicate) == "e"]
    counts = {name: train.count(name) for name in every_class if train.count(name)}
    objects = sum(test.count(name) for name in every_class)
    top = tuple(sorted(counts, key=lambda name: -counts[name])[:50])
    began = latest = time.monotonic()

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal latest
        if time.monotonic() - latest > 30 or done == total:
            latest = time.monotonic()
            tell(f"{stage}: {done} of {total} epochs, {latest - began:.0f} s")

    def learn(folder: Path, options: dict[str, Any]) -> tuple[NLILLearner, dict[str, Any]]:
        began, core_began = time.monotonic(), time.process_time()
        learner = NLILLearner(
            targets=[*counts], exclusive=True, seed=seed, folder=folder, progress=progress, **options
        ).fit(train)
        return learner, {
            "seconds": round(time.monotonic() - began, 1),
            "core_seconds": round(time.process_time() - core_began, 1),
            "read": learner.class_result().n_read,
            "rules": len(learner.rules_),
            "against": len(learner.against_),
        }

    learner, figures = learn(folder / "trained", settings["options"])
    scores = learner.classify(test)
    untrained, untrained_figures = learn(folder / "untrained", {**settings["options"], "epochs": 0})
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "seed": seed,
        "columns": COLUMNS,
        "rows": {
            "ours": measure(scores, top, objects),
            "untrained": measure(untrained.classify(test), top, objects),
            "frequency vote": measure(vote_by_frequency(train, test, [*counts]), top, objects),
            **settings.get("paper", {}),
        },
        "images": len(np.unique(labelled_worlds(train))),
        "questions": len(scores.truth),
        "scores": "hard: the extracted rules, weighted",
        "refused": dict(learner.class_result().refused),
        **figures,
        "untrained": untrained_figures,
        "readable": choose_readable(learner.rules_.rules, top[:20]),
        "doubtful": choose_doubtful(learner.rules_.rules, [*counts]),
    }


def choose_images(kb: KnowledgeBase, share: float, seed: int) -> KnowledgeBase:
    """Return the facts of a share of the training images."""
    train = kb.with_splits({})
    if share >= 1:
        return train
    names = [kb.worlds[world] for world in np.unique(labelled_worlds(kb))]
    chosen = np.random.default_rng(seed).permutation(len(names))[: max(2, round(share * len(names)))]
    return train.in_worlds([names[position] for position in np.sort(chosen)])


def labelled_worlds(kb: KnowledgeBase) -> Ids:
    """Return the worlds of all labelled entities."""
    assert kb.entity_worlds is not None
    return np.asarray(kb.entity_worlds[kb.tables()["e"].columns[0]], dtype=np.int64)


def measure(scores: ClassScores, top: tuple[str, ...], objects: int) -> dict[str, float]:
    """Return R@1 and R@5 over all objects, those of classes without training facts too, and among the top classes."""
    among_top = scores.restrict(top)
    scored = len(scores.truth) / max(1, objects)
    return {
        "r@1": scores.recall(1) * scored,
        "r@5": scores.recall(5) * scored,
        "r@1 top 50": among_top.recall(1),
        "r@5 top 50": among_top.recall(5),
    }


def vote_by_frequency(train: KnowledgeBase, test: KnowledgeBase, classes: Sequence[str]) -> ClassScores:
    """Score classes as the paper's baseline does: every relation votes for the class most often at this end of it.

    For each (relation, direction, class of the other end) the class seen most often in training gets one vote; a
    class that is more frequent in all wins ties.
    """
    task = LearningTask.for_targets(FactGraph(train), tuple(classes))
    questions = task.all_questions()
    row, operator, other_class = _neighbour_classes(task, questions.arguments[0])
    own_class = questions.truth.argmax(axis=1)
    counts = Counter(zip(operator.tolist(), other_class.tolist(), own_class[row].tolist(), strict=True))
    best: dict[tuple[int, int], tuple[int, int]] = {}
    for (step, other, own), count in counts.items():
        if count > best.get((step, other), (0, 0))[0]:
            best[step, other] = (count, own)
    test_task = LearningTask.for_targets(FactGraph(test, task.graph.vocabulary), tuple(classes))
    test_questions = test_task.all_questions()
    entities = test_questions.arguments[0]
    row, operator, other_class = _neighbour_classes(test_task, entities)
    scores = np.tile(questions.truth.mean(axis=0) * 1e-3, (len(test_questions), 1))
    for position, step, other in zip(row.tolist(), operator.tolist(), other_class.tolist(), strict=True):
        if (step, other) in best:
            scores[position, best[step, other][1]] += 1
    return ClassScores(tuple(classes), entities, scores, test_questions.truth.argmax(axis=1))


def _neighbour_classes(task: LearningTask, entities: Ids) -> tuple[Ids, Ids, Ids]:
    """Return the steps that leave entities, with the class of the entity each leads to."""
    row, operator, end = task.graph.steps_from(entities)
    entity_class = np.full(task.graph.n_entities, -1, dtype=np.int64)
    for class_index, name in enumerate(task.targets):
        entity_class[task.graph.kb.columns(name)[0]] = class_index
    keep = (entity_class[end] >= 0) & (end != entities[row])
    return row[keep], operator[keep], entity_class[end[keep]]


def choose_readable(rules: Sequence[Rule], classes: Sequence[str], count: int = 3) -> dict[str, list[str]]:
    """Return for each class the rules that weigh most of those that are right often."""
    readable: dict[str, list[str]] = {}
    for name in classes:
        own = [rule for rule in rules if rule.head.predicate == name and (rule.support or 0) >= 3]
        own.sort(key=lambda rule: -_weight(rule) * (rule.support or 0) ** 0.5)
        readable[name] = [str(rule) for rule in own[:count]]
    return readable


def choose_doubtful(rules: Sequence[Rule], classes: Sequence[str], count: int = 5) -> list[str]:
    """Return the least precise among the weightiest rules of classes: what a reader should distrust."""
    heaviest = []
    for name in classes:
        own = [rule for rule in rules if rule.head.predicate == name and (rule.support or 0) >= 2]
        if own:
            heaviest.append(max(own, key=_weight))
    return [str(rule) for rule in sorted(heaviest, key=lambda rule: rule.confidence)[:count]]


def _weight(rule: Rule) -> float:
    return rule.annotations.number("weight") or 0.0
