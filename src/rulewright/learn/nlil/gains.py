"""What a drawn rule gains: how much it tells of questions that the rules so far leave unexplained."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rulewright.data.index import Ids
from rulewright.learn.nlil.facts import Floats, Mask
from rulewright.learn.nlil.formulas import Conjunction, LiteralMatcher, PathLiteral
from rulewright.learn.nlil.frontier import EvidenceBuilder
from rulewright.learn.nlil.questions import LearningTask, TargetQuestions

BLOCK = 1024
"""How many questions are laid out at a time."""
MAX_TOUCHED = 4_000_000
"""How many steps and marks are laid out at most; questions beyond are not asked."""
DOUBT = 2.0
"""How many questions of which a rule is wrong are taken for granted where its precision is judged."""


class RuleGains:
    """Counts rules on questions, and keeps what those counted so far explain.

    Questions have a weight for each target. Where a rule holds, questions that are true weigh ``p`` (those that others
    explain count less) and false ones ``n``, out of ``P`` and ``N``; the gain is the information that holding gives,
    ``(P + N) H(P, N) − (p + n) H(p, n) − (P + N − p − n) H(P − p, N − n)``, ``H`` the entropy of two shares, or 0 where
    the rule makes its target less likely.
    """

    def __init__(
        self,
        task: LearningTask,
        questions: TargetQuestions,
        weights: Floats,
        builder: EvidenceBuilder,
        *,
        seed: int,
        max_touched: int = MAX_TOUCHED,
    ) -> None:
        order = np.random.default_rng(seed).permutation(len(questions))
        self._matchers: list[tuple[int, LiteralMatcher]] = []
        touched = asked = 0
        for low in range(0, len(order), BLOCK):
            rows = order[low : low + BLOCK]
            evidence = builder.build([column[rows] for column in questions.arguments], task.hidden)
            self._matchers.append((low, LiteralMatcher(evidence)))
            asked, touched = low + len(rows), touched + evidence.n_touched
            if touched > max_touched:
                break
        self.questions, self.weights = questions.take(order[:asked]), weights[order[:asked]]
        self.unexplained = np.ones(self.weights.shape)
        self._matched: dict[PathLiteral, Mask] = {}
        true = np.where(self.questions.truth, self.weights, 0.0)
        self._false: Floats = self.weights - true
        self._true = true
        self._doubt = DOUBT * self.weights.mean(axis=0)

    def _match_literal(self, literal: PathLiteral) -> Mask:
        if literal not in self._matched:
            is_true = np.zeros(len(self.questions), dtype=bool)
            for low, matcher in self._matchers:
                is_true[matcher.match(literal) + low] = True
            self._matched[literal] = is_true
        return self._matched[literal]

    def match(self, bodies: Iterable[Conjunction]) -> Ids:
        """Return the questions of which one of some conjunctions is true."""
        holds = np.zeros(len(self.questions), dtype=bool)
        for body in bodies:
            is_true = np.ones(len(holds), dtype=bool)
            for literal, positive in body:
                matched = self._match_literal(literal)
                is_true &= matched if positive else ~matched
            holds |= is_true
        return np.flatnonzero(holds)

    def explain(self, target_index: int, rows: Ids) -> None:
        """Take note that a rule holds of these questions: what it is right of is explained as far as it is precise."""
        right, wrong = self._true[rows, target_index].sum(), self._false[rows, target_index].sum()
        if right > 0:
            left = 1 - right / (right + wrong + self._doubt[target_index])
            own = rows[self.questions.truth[rows, target_index]]
            self.unexplained[own, target_index] = np.minimum(self.unexplained[own, target_index], left)

    def measure(self, targets: Ids, matched: Sequence[Ids], *, residual: bool = True) -> Floats:
        """Return the gain of rules: their targets, and the questions of which each holds.

        Without ``residual`` it is the gain of each alone, whatever others explain.
        """
        weight = self._true * self.unexplained if residual else self._true
        true, false = weight.sum(axis=0)[targets], self._false.sum(axis=0)[targets]
        p = np.array([weight[rows, target].sum() for target, rows in zip(targets.tolist(), matched, strict=True)])
        n = np.array([self._false[rows, target].sum() for target, rows in zip(targets.tolist(), matched, strict=True)])
        gain = _spread(true, false) - _spread(p, n) - _spread(true - p, false - n)
        return np.where(p * false > n * true, np.maximum(gain, 0.0), 0.0)

    def are_wrong(self, targets: Ids, matched: Sequence[Ids]) -> list[bool]:
        """Return which rules hold of a question that is false."""
        return [not self.questions.truth[rows, target].all() for target, rows in zip(targets, matched, strict=True)]


def _spread(one: Floats, other: Floats) -> Floats:
    """Return ``(a + b) H(a, b)``."""
    one, other = np.maximum(one, 1e-12), np.maximum(other, 1e-12)
    total = one + other
    spread: Floats = total * np.log(total) - one * np.log(one) - other * np.log(other)
    return spread
