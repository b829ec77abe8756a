"""Classes of which an entity has one: learned together, each rule with a weight for its class, or against it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rulewright.data import KnowledgeBase
from rulewright.data.index import Ids
from rulewright.errors import DataError
from rulewright.learn.nlil.facts import FactGraph, Floats
from rulewright.learn.nlil.formulas import Conjunction, count_atoms, match_conjunctions
from rulewright.learn.nlil.questions import LearningTask, TargetQuestions
from rulewright.learn.nlil.rounds import SelectionSettings, TaskResult, split_entities
from rulewright.learn.nlil.search import RuleSearch
from rulewright.learn.nlil.selection import CountedRule, WrittenRule, count_rules, right_rows

AGAINST = 5.0
"""How often a class must be expected for its absence to be informative."""


@dataclass(frozen=True)
class RuleMatches:
    """Which rules are true of which questions: rule ``rule[k]`` of question ``row[k]``."""

    n_questions: int
    row: Ids
    rule: Ids

    @classmethod
    def from_rows(cls, rows: Sequence[Ids], n_questions: int) -> RuleMatches:
        """Build it from the questions of which each rule is true."""
        rule = np.repeat(np.arange(len(rows)), [len(rule_rows) for rule_rows in rows])
        return cls(n_questions, np.concatenate([np.zeros(0, dtype=np.int64), *rows]), rule)

    @classmethod
    def find(cls, rules: Sequence[WrittenRule], task: LearningTask, questions: TargetQuestions) -> RuleMatches:
        """Find out which rules are true of which questions."""
        rows = match_conjunctions((body for _, body in rules), task, questions.arguments)
        return cls.from_rows([rows[body] for _, body in rules], len(questions))


@dataclass(frozen=True)
class RuleWeights:
    """Log-odds: a class scores ``bias[c] + Σ weight[r]`` over its rules ``r`` that hold; ``target[r]`` is their class.

    >>> weights = RuleWeights(np.array([0, 1]), np.array([2.0, 1.0]), np.array([0.5, 0.0]))
    >>> weights.scores(RuleMatches(2, np.array([0, 1, 1]), np.array([0, 0, 1]))).tolist()
    [[2.5, 0.0], [2.5, 1.0]]
    """

    target: Ids
    weight: Floats
    bias: Floats

    def scores(self, matches: RuleMatches) -> Floats:
        """Return the score of every class for every question."""
        classes = len(self.bias)
        cell = matches.row * classes + self.target[matches.rule]
        votes = np.bincount(cell, self.weight[matches.rule], matches.n_questions * classes)
        scores: Floats = votes.reshape(-1, classes) + self.bias
        return scores


def fit_weights(
    matches: RuleMatches,
    target: Ids,
    classes: Ids,
    prior: Floats,
    *,
    l2: float,
    shrink: float = 0.3,
    iterations: int = 150,
) -> RuleWeights:
    """Fit weights by ``Σ −log softmax(score)[class] + ½ l2 Σ (w − w₀)²``.

    ``w₀`` is ``shrink`` times the evidence that each rule was measured to be, for rules that hold together repeat one
    another; a rule that was true too seldom keeps it.
    """
    from scipy.optimize import minimize

    rules, n = len(target), len(classes)
    rule_class = target[matches.rule]
    body_counts = np.bincount(matches.rule, minlength=rules)
    supports = np.bincount(matches.rule[rule_class == classes[matches.row]], minlength=rules)
    centre = shrink * measure_evidence(supports.astype(float), body_counts.astype(float), prior[target])
    rows = np.arange(n)

    def loss(values: Floats) -> tuple[float, Floats]:
        weights = values[:rules]
        chances = _softmax(RuleWeights(target, weights, values[rules:]).scores(matches))
        error = -np.log(np.maximum(chances[rows, classes], 1e-300)).sum()
        chances[rows, classes] -= 1
        slope = np.bincount(matches.rule, chances[matches.row, rule_class], rules)
        away = weights - centre
        gradient = np.concatenate([slope + l2 * away, chances.sum(axis=0)])
        return float(error + 0.5 * l2 * (away @ away)) / n, gradient / n

    start = np.concatenate([centre, np.log(prior)])
    fitted = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": iterations}).x
    return RuleWeights(target, fitted[:rules], fitted[rules:])


def measure_evidence(supports: Floats, body_counts: Floats, prior: Floats) -> Floats:
    """Return by how much a rule was measured to raise the log-odds of its class.

    With ``s`` times right of ``b`` times true and prior ``π``: ``log (s + π)/(b − s + 1 − π) − log π/(1 − π)``.
    """
    odds = (supports + prior) / (body_counts - supports + 1 - prior)
    evidence: Floats = np.log(odds) - np.log(prior / (1 - prior))
    return evidence


def _softmax(scores: Floats) -> Floats:
    """Return chances that sum to 1 in every row."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    chances: Floats = powers / powers.sum(axis=1, keepdims=True)
    return chances


def count_for_classes(
    bodies: Iterable[Conjunction], task: LearningTask, questions: TargetQuestions, priors: Floats, min_support: int
) -> list[CountedRule]:
    """Count each body for every class that it speaks for or against, whichever class it was written for.

    It speaks for a class that is more frequent where it holds than its prior, with ``min_support`` at least; against
    one that should be there `AGAINST` times by its prior, and is less than half so often.
    """
    ordered = sorted(set(bodies), key=lambda body: (count_atoms(body), sorted(map(repr, body))))
    matched = match_conjunctions(ordered, task, questions.arguments)
    classes = questions.truth.argmax(axis=1)
    counted = []
    for body in ordered:
        rows = matched[body]
        row_classes = classes[rows]
        counts = np.bincount(row_classes, minlength=len(priors))
        expected = priors * len(rows)
        speaks = (counts >= min_support) & (counts > expected)
        speaks |= (expected >= AGAINST) & (counts < expected / 2)
        for target_index in np.flatnonzero(speaks).tolist():
            counted.append(CountedRule(target_index, body, rows[row_classes == target_index], len(rows)))
    return counted


def choose_informative(rules: Sequence[CountedRule], priors: Floats, *, most: int) -> list[CountedRule]:
    """Return for each class the ``most`` informative rules: ``s log(s/e) + (b − s) log((b − s)/(b − e))``.

    A rule is right ``s`` of the ``b`` times that it is true, where the prior lets expect ``e``. Of rules that are right
    of the same questions and true as often, the shortest are kept: all of them, for they may differ elsewhere.
    """
    chosen = []
    for target_index, prior in enumerate(priors.tolist()):

        def information(rule: CountedRule, prior: float = prior) -> float:
            expected = prior * rule.body_count, (1 - prior) * rule.body_count
            counts = rule.support, rule.body_count - rule.support
            return sum(count * math.log(count / mean) for count, mean in zip(counts, expected, strict=True) if count)

        shortest: dict[tuple[bytes, float], int] = {}
        own = [rule for rule in rules if rule.target_index == target_index]
        own.sort(key=lambda rule: (count_atoms(rule.conjunction), sorted(map(repr, rule.conjunction))))
        kept = []
        for rule in own:
            atoms = count_atoms(rule.conjunction)
            if atoms == shortest.setdefault((rule.right.tobytes(), rule.body_count), atoms) or not rule.support:
                kept.append(rule)
        chosen += sorted(kept, key=information, reverse=True)[:most]
    return chosen


@dataclass(frozen=True)
class ClassResult(TaskResult):
    """What was learned of classes: ``weights`` are those of the rules, in their order."""

    weights: RuleWeights


def learn_classes(search: RuleSearch, settings: SelectionSettings) -> ClassResult:
    """Learn to predict classes: every round is trained on what the rules so far, weighed together, get wrong."""
    task = search.task
    train, held_out, measured_on = split_entities(task, settings.held_out, search.seed)
    prior = (train.truth.sum(axis=0) + 0.5) / (len(train) + 0.5 * len(task.targets))
    chances = np.tile(prior, (len(train), 1))
    pool: list[CountedRule] = []
    bodies: set[Conjunction] = set()
    kept: list[CountedRule] = []

    def weigh(questions: TargetQuestions, iterations: int) -> tuple[RuleWeights, RuleMatches]:
        matches = RuleMatches.find([rule.written for rule in kept], task, questions)
        targets = np.array([rule.target_index for rule in kept], dtype=np.int64)
        classes = questions.truth.argmax(axis=1)
        return fit_weights(matches, targets, classes, prior, l2=settings.l2, iterations=iterations), matches

    for _ in range(search.rounds):
        if search.is_out_of_time():
            break
        wrong = np.abs(train.truth - chances)
        rules = search.run_round(train, wrong / np.maximum(wrong.mean(axis=0), 1e-9))
        new = {body for _, body in rules} - bodies
        bodies |= new
        pool += count_for_classes(new, task, train, prior, settings.min_support)
        kept = choose_informative(pool, prior, most=settings.max_rules)
        weights, matches = weigh(train, 60)
        chances = _softmax(weights.scores(matches))
    every = train
    if settings.refit and measured_on != "train":
        arguments = np.concatenate([train.arguments[0], held_out.arguments[0]])
        every = TargetQuestions((arguments,), np.concatenate([train.truth, held_out.truth]))
    weights, _ = weigh(every, 100)
    measured = {rule.written: rule for rule in count_rules((rule.written for rule in kept), task, held_out)}
    of_classes = [[rule for rule in kept if rule.target_index == target] for target in range(len(task.targets))]
    return ClassResult(
        task.targets,
        tuple(rule.written for rule in kept),
        tuple(
            search.write_measured(rule, measured[rule.written], held_out, measured_on, float(weight))
            for rule, weight in zip(kept, weights.weight, strict=True)
        ),
        tuple(search.generators),
        measured_on,
        sum(len(right_rows(rules)) for rules in of_classes) / max(1, int(train.truth.sum())),
        len(bodies),
        dict(search.refused),
        None,
        held_out,
        search.is_cut,
        weights,
    )


@dataclass(frozen=True)
class ClassScores:
    """The log-odds of every class ``[entities, classes]``, and the class that each entity has."""

    classes: tuple[str, ...]
    entities: Ids
    scores: Floats
    truth: Ids

    def recall(self, k: int) -> float:
        """Return R@k: how often the right class is among the ``k`` highest; of equals the first counts as higher."""
        best = np.argsort(-self.scores, axis=1, kind="stable")[:, :k]
        return float((best == self.truth[:, None]).any(axis=1).mean())

    def restrict(self, names: tuple[str, ...]) -> ClassScores:
        """Return the entities of some classes, ranked among these alone."""
        indices = np.array([self.classes.index(name) for name in names])
        keep = np.isin(self.truth, indices)
        truth = np.argsort(indices)[np.searchsorted(np.sort(indices), self.truth[keep])]
        return ClassScores(names, self.entities[keep], self.scores[keep][:, indices], truth)


def score_classes(result: ClassResult, kb: KnowledgeBase) -> tuple[ClassScores, RuleMatches]:
    """Score the classes of all entities that have one by the weighted rules; return also which rules hold."""
    task = LearningTask.for_targets(FactGraph(kb), result.targets)
    questions = task.all_questions()
    if len(questions) == 0:
        raise DataError("no entity here has one of the classes")
    matches = RuleMatches.find(result.written, task, questions)
    scores = result.weights.scores(matches)
    return ClassScores(result.targets, questions.arguments[0], scores, questions.truth.argmax(axis=1)), matches
