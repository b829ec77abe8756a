"""Several rules speak for each class: the weight of each, fitted to what is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Speaking:
    """Which rules hold of which questions: rule ``rule[k]`` of question ``row[k]``."""

    questions: int
    row: Ids
    rule: Ids

    @classmethod
    def of(cls, rows: Sequence[Ids], questions: int) -> Speaking:
        """Return it, given for each rule the questions of which it holds."""
        rule = np.repeat(np.arange(len(rows)), [len(each) for each in rows])
        return cls(questions, np.concatenate([np.zeros(0, dtype=np.int64), *rows]), rule)


@dataclass(frozen=True)
class RuleWeights:
    """Log-odds: a class scores ``bias[c] + Σ weight[r]`` over its rules ``r`` that hold; ``target[r]`` is their class.

    >>> weights = RuleWeights(np.array([0, 1]), np.array([2.0, 1.0]), np.array([0.5, 0.0]))
    >>> weights.scores(Speaking(2, np.array([0, 1, 1]), np.array([0, 0, 1]))).tolist()
    [[2.5, 0.0], [2.5, 1.0]]
    """

    target: Ids
    weight: Floats
    bias: Floats

    def scores(self, speaking: Speaking) -> Floats:
        """Return the score of every class for every question."""
        classes = len(self.bias)
        place = speaking.row * classes + self.target[speaking.rule]
        votes = np.bincount(place, self.weight[speaking.rule], speaking.questions * classes)
        found: Floats = votes.reshape(-1, classes) + self.bias
        return found


def evidence_of(support: Floats, fired: Floats, prior: Floats) -> Floats:
    """Return by how much a rule was measured to raise the log-odds of its class.

    With ``s`` times right of ``b`` times true and prior ``π``: ``log (s + π)/(b − s + 1 − π) − log π/(1 − π)``.
    """
    found: Floats = np.log((support + prior) / (fired - support + 1 - prior)) - np.log(prior / (1 - prior))
    return found


def fit_weights(
    speaking: Speaking,
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
    another; a rule seen too seldom to tell keeps it.
    """
    from scipy.optimize import minimize

    rules, n = len(target), len(classes)
    about = target[speaking.rule]
    fired = np.bincount(speaking.rule, minlength=rules)
    right = np.bincount(speaking.rule[about == classes[speaking.row]], minlength=rules)
    centre = shrink * evidence_of(right.astype(float), fired.astype(float), prior[target])
    every = np.arange(n)

    def loss(values: Floats) -> tuple[float, Floats]:
        weights = values[:rules]
        scores = RuleWeights(target, weights, values[rules:]).scores(speaking)
        scores -= scores.max(axis=1, keepdims=True)
        chances = np.exp(scores)
        chances /= chances.sum(axis=1, keepdims=True)
        error = -np.log(np.maximum(chances[every, classes], 1e-300)).sum()
        chances[every, classes] -= 1
        slope = np.bincount(speaking.rule, chances[speaking.row, about], rules)
        away = weights - centre
        gradient = np.concatenate([slope + l2 * away, chances.sum(axis=0)])
        return float(error + 0.5 * l2 * (away @ away)) / n, gradient / n

    start = np.concatenate([centre, np.log(prior)])
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": iterations})
    return RuleWeights(target, found.x[:rules], found.x[rules:])
