"""Classes of which an entity has one: learned together, each rule with a weight for its class, or against it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from rulewright.data import KnowledgeBase
from rulewright.data.index import Ids
from rulewright.errors import DataError
from rulewright.learn.nlil.facts import FactGraph, Floats
from rulewright.learn.nlil.formulas import Conjunction, count_atoms, match_conjunctions
from rulewright.learn.nlil.questions import LearningTask
from rulewright.learn.nlil.rounds import SelectionSettings, TaskResult, split_entities
from rulewright.learn.nlil.search import RuleSearch
from rulewright.learn.nlil.selection import CountedRule, RuleFigures, right_rows

AGAINST = 5.0
"""How often a class must be expected for its absence to be informative."""
BLOCK = 16_384
"""Of how many questions bodies are matched at a time: with few, looking bodies up takes longer than matching them."""
ROUGHLY, WELL = 20, 100
"""How many iterations weights are fitted for the next round, which needs to know only what is still wrong, and last."""


@dataclass(frozen=True)
class RuleMatches:
    """Which rules are true of which questions: ``holds[question, body[r]]`` is 1 where rule ``r`` is.

    Many rules have one body, for and against several classes, so what holds is kept by body.
    """

    holds: sparse.csr_array
    body: Ids

    @classmethod
    def from_rows(cls, rows: Sequence[Ids], n_questions: int) -> RuleMatches:
        """Build it from the questions of which each rule is true."""
        lengths = np.array([len(rule_rows) for rule_rows in rows], dtype=np.int64)
        column = np.repeat(np.arange(len(rows)), lengths)
        row = np.concatenate([np.zeros(0, dtype=np.int64), *rows])
        holds = sparse.csr_array((np.ones(len(row)), (row, column)), shape=(n_questions, len(rows)))
        return cls(holds, np.arange(len(rows)))

    @classmethod
    def from_bodies(
        cls, bodies: Sequence[Conjunction], rows: Mapping[Conjunction, Ids], n_questions: int
    ) -> RuleMatches:
        """Build it from the bodies of rules and the questions of which each body is true."""
        position = {body: index for index, body in enumerate(dict.fromkeys(bodies))}
        matches = cls.from_rows([rows[body] for body in position], n_questions)
        return cls(matches.holds, np.array([position[body] for body in bodies], dtype=np.int64))

    def append(self, other: RuleMatches) -> RuleMatches:
        """Return these questions and then those of another, about the same rules."""
        return RuleMatches(sparse.csr_array(sparse.vstack([self.holds, other.holds])), self.body)

    def rules_of(self, question: int) -> Ids:
        """Return the rules that are true of a question."""
        bodies = self.holds.indices[slice(*self.holds.indptr[question : question + 2])]
        return np.flatnonzero(np.isin(self.body, bodies))

    def count(self, classes: Ids, n_classes: int) -> Floats:
        """Return how often each body is true of questions of each class, ``[bodies, classes]``."""
        members = sparse.csr_array(
            (np.ones(len(classes)), (classes, np.arange(len(classes)))), (n_classes, len(classes))
        )
        counts: Floats = (members @ self.holds).toarray().T
        return counts


@dataclass(frozen=True)
class RuleWeights:
    """Log-odds: a class scores ``bias[c] + Σ weight[r]`` over its rules ``r`` that hold; ``target[r]`` is their class.

    >>> weights = RuleWeights(np.array([0, 1]), np.array([2.0, 1.0]), np.array([0.5, 0.0]))
    >>> weights.scores(RuleMatches.from_rows([np.array([0, 1]), np.array([1])], 2)).tolist()
    [[2.5, 0.0], [2.5, 1.0]]
    """

    target: Ids
    weight: Floats
    bias: Floats

    def scores(self, matches: RuleMatches) -> Floats:
        """Return the score of every class for every question."""
        bodies, classes = matches.holds.shape[1], len(self.bias)
        cells = np.bincount(matches.body * classes + self.target, self.weight, bodies * classes)
        scores: Floats = matches.holds @ cells.reshape(bodies, classes)
        scores += self.bias
        return scores


def fit_weights(
    matches: RuleMatches, target: Ids, atoms: Ids, classes: Ids, prior: Floats, *, l2: float, iterations: int = 150
) -> RuleWeights:
    """Fit weights by ``Σ −log softmax(score)[class] + ½ l2 Σ atoms² (w − w₀)²``.

    ``w₀`` is the evidence that each rule was measured to be, shared with the rules that say the same: it is divided by
    how many rules of its class hold, in the mean, where it does. A rule that was true too seldom keeps it, a longer one
    sooner: what short rules can explain is left to them.
    """
    from scipy.optimize import minimize

    rules, n = len(target), len(classes)
    by_body, rows = sparse.csr_array(matches.holds.T), np.arange(n)
    counts = matches.count(classes, len(prior))
    body_counts = counts.sum(axis=1)[matches.body]
    evidence = measure_evidence(counts[matches.body, target], body_counts, prior[target])
    votes = RuleWeights(target, np.ones(rules), np.zeros(len(prior))).scores(matches)
    centre = evidence * body_counts / np.maximum(1, (by_body @ votes)[matches.body, target])
    strength = l2 * atoms.astype(float) ** 2

    def loss(values: Floats) -> tuple[float, Floats]:
        weights = values[:rules]
        chances = _softmax(RuleWeights(target, weights, values[rules:]).scores(matches))
        error = -np.log(np.maximum(chances[rows, classes], 1e-300)).sum()
        chances[rows, classes] -= 1
        slope = (by_body @ chances)[matches.body, target]
        away = weights - centre
        gradient = np.concatenate([slope + strength * away, chances.sum(axis=0)])
        return float(error + 0.5 * (strength * away) @ away) / n, gradient / n

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
    """Turn scores, in place, into chances that sum to 1 in every row."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


def count_for_classes(
    rows: Mapping[Conjunction, Ids], classes: Ids, priors: Floats, min_support: int
) -> list[CountedRule]:
    """Count each body for every class that it speaks for or against, whichever class it was written for.

    ``rows`` has the questions of which each body is true, and ``classes`` the class of every question. A body speaks
    for a class that is more frequent where it holds than its prior, with ``min_support`` at least; against one that
    should be there `AGAINST` times by its prior, and is less than half so often.
    """
    ordered = sorted(rows, key=_length_and_name)
    counts = RuleMatches.from_bodies(ordered, rows, len(classes)).count(classes, len(priors))
    body_counts = counts.sum(axis=1).astype(np.int64)
    expected = priors * body_counts[:, None]
    speaks = (counts >= min_support) & (counts > expected)
    speaks |= (expected >= AGAINST) & (counts < expected / 2)
    counted = []
    for position in np.flatnonzero(speaks.any(axis=1)).tolist():
        body_rows = rows[ordered[position]]
        row_classes = classes[body_rows]
        for target_index in np.flatnonzero(speaks[position]).tolist():
            right = body_rows[row_classes == target_index]
            counted.append(CountedRule(target_index, ordered[position], right, int(body_counts[position])))
    return counted


def _length_and_name(body: Conjunction) -> tuple[int, list[str]]:
    return count_atoms(body), sorted(map(repr, body))


def choose_informative(rules: Sequence[CountedRule], priors: Floats, *, most: int) -> list[CountedRule]:
    """Return for each class the ``most`` informative rules: ``s log(s/e) + (b − s) log((b − s)/(b − e))``.

    A rule is right ``s`` of the ``b`` times that it is true, where the prior lets expect ``e``. Of rules that are right
    of the same questions and true as often, the shortest are kept: all of them, for they may differ elsewhere.
    """
    order = {body: _length_and_name(body) for body in {rule.conjunction for rule in rules}}
    of_class: list[list[CountedRule]] = [[] for _ in priors]
    for rule in sorted(rules, key=lambda rule: order[rule.conjunction]):
        of_class[rule.target_index].append(rule)
    chosen = []
    for own, prior in zip(of_class, priors.tolist(), strict=True):

        def information(rule: CountedRule, prior: float = prior) -> float:
            expected = prior * rule.body_count, (1 - prior) * rule.body_count
            counts = rule.support, rule.body_count - rule.support
            return sum(count * math.log(count / mean) for count, mean in zip(counts, expected, strict=True) if count)

        shortest: dict[tuple[bytes, float], int] = {}
        kept = []
        for rule in own:
            atoms = order[rule.conjunction][0]
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
    classes = train.truth.argmax(axis=1)
    prior = (train.truth.sum(axis=0) + 0.5) / (len(train) + 0.5 * len(task.targets))
    chances = np.tile(prior, (len(train), 1))
    rows: dict[Conjunction, Ids] = {}
    pool: list[CountedRule] = []
    kept: list[CountedRule] = []
    matches = RuleMatches.from_rows([], len(train))
    for _ in range(search.rounds):
        if search.is_out_of_time():
            break
        wrong = np.abs(train.truth - chances)
        rules = search.run_round(train, wrong / np.maximum(wrong.mean(axis=0), 1e-9))
        new = match_conjunctions({body for _, body in rules} - rows.keys(), task, train.arguments, block=BLOCK)
        rows |= new
        pool += count_for_classes(new, classes, prior, settings.min_support)
        kept = choose_informative(pool, prior, most=settings.max_rules)
        targets = np.array([rule.target_index for rule in kept], dtype=np.int64)
        atoms = np.array([count_atoms(rule.conjunction) for rule in kept], dtype=np.int64)
        matches = RuleMatches.from_bodies([rule.conjunction for rule in kept], rows, len(train))
        weights = fit_weights(matches, targets, atoms, classes, prior, l2=settings.l2, iterations=ROUGHLY)
        chances = _softmax(weights.scores(matches))
    bodies = [rule.conjunction for rule in kept]
    unseen = match_conjunctions(bodies, task, held_out.arguments, block=BLOCK)
    if settings.refit and measured_on != "train":
        matches = matches.append(RuleMatches.from_bodies(bodies, unseen, len(held_out)))
        classes = np.concatenate([classes, held_out.truth.argmax(axis=1)])
    weights = fit_weights(matches, targets, atoms, classes, prior, l2=settings.l2, iterations=WELL)
    measured = [
        CountedRule(rule.target_index, body, body_rows[held_out.truth[body_rows, rule.target_index]], len(body_rows))
        for rule, body, body_rows in zip(kept, bodies, (unseen[body] for body in bodies), strict=True)
    ]
    facts = train.truth.sum(axis=0) + (0 if measured_on == "train" else held_out.truth.sum(axis=0))
    of_classes = [[rule for rule in kept if rule.target_index == target] for target in range(len(task.targets))]
    return ClassResult(
        task.targets,
        tuple(rule.written for rule in kept),
        tuple(
            RuleFigures(rule, None if measured_on == "train" else unseen_rule, int(facts[rule.target_index])).write(
                search.writers[rule.target_index], float(weight)
            )
            for rule, unseen_rule, weight in zip(kept, measured, weights.weight, strict=True)
        ),
        tuple(search.generators),
        search.n_rounds,
        measured_on,
        sum(len(right_rows(rules)) for rules in of_classes) / max(1, int(train.truth.sum())),
        len(rows),
        dict(search.refused),
        None,
        held_out,
        search.is_cut,
        False,
        False,
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
    bodies = [body for _, body in result.written]
    rows = match_conjunctions(bodies, task, questions.arguments, block=BLOCK)
    matches = RuleMatches.from_bodies(bodies, rows, len(questions))
    scores = result.weights.scores(matches)
    return ClassScores(result.targets, questions.arguments[0], scores, questions.truth.argmax(axis=1)), matches
