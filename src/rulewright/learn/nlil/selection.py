"""Counting the rules that generators have written, and choosing among them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulewright.learn.nlil.facts import Ids
from rulewright.learn.nlil.formulas import Conjunction, length, rows_of
from rulewright.learn.nlil.frontier import Reach
from rulewright.learn.nlil.literals import rows_where
from rulewright.learn.nlil.questions import Questions, Task

Floats = npt.NDArray[np.float64]
AGAINST = 5.0
"""How often a class must be expected for its absence to tell something."""


@dataclass(frozen=True)
class Counted:
    """A rule for one of the targets, with the questions of which it is rightly true and how often it is true at all."""

    target: int
    conjunction: Conjunction
    right: Ids
    fired: float

    @property
    def support(self) -> int:
        """How often it is right."""
        return len(self.right)

    @property
    def precision(self) -> float:
        """How often it is right, of all the times that it is true."""
        return self.support / self.fired if self.fired else 0.0

    def uses(self, statements: frozenset[int], operators: frozenset[int]) -> bool:
        """Tell whether some statement or operator occurs in it."""
        return any(
            literal.statement in statements or not operators.isdisjoint((*(literal.left or ()), *(literal.right or ())))
            for literal, _ in self.conjunction
        )


def counted(rules: Iterable[tuple[int, Conjunction]], task: Task, reach: Reach, questions: Questions) -> list[Counted]:
    """Count rules about one argument on questions, each without what is hidden of it."""
    wanted = sorted(set(rules), key=lambda each: (each[0], length(each[1]), sorted(map(repr, each[1]))))
    bodies = dict.fromkeys(conjunction for _, conjunction in wanted)
    literals = dict.fromkeys(literal for each in bodies for literal, _ in each)
    holds = rows_where(literals, reach, questions.arguments, task.hidden)
    rows = {each: rows_of(each, holds, len(questions)) for each in bodies}
    found = []
    for target, conjunction in wanted:
        fired = rows[conjunction]
        found.append(Counted(target, conjunction, fired[questions.truth[fired, target]], len(fired)))
    return found


def counted_for_all(
    bodies: Iterable[Conjunction], task: Task, reach: Reach, questions: Questions, priors: Floats, min_support: int
) -> list[Counted]:
    """Count each body for every class that it speaks for or against, whichever class it was written for.

    It speaks for a class that it raises above its prior, with ``min_support`` at least; against one that should be
    there `AGAINST` times by its prior, and is not half so often.
    """
    wanted = sorted(set(bodies), key=lambda each: (length(each), sorted(map(repr, each))))
    literals = dict.fromkeys(literal for each in wanted for literal, _ in each)
    holds = rows_where(literals, reach, questions.arguments, task.hidden)
    classes = questions.truth.argmax(axis=1)
    found = []
    for body in wanted:
        fired = rows_of(body, holds, len(questions))
        mine = classes[fired]
        counts = np.bincount(mine, minlength=len(priors))
        expected = priors * len(fired)
        speaks = (counts >= min_support) & (counts > expected)
        speaks |= (expected >= AGAINST) & (counts < expected / 2)
        for target in np.flatnonzero(speaks).tolist():
            found.append(Counted(target, body, fired[mine == target], len(fired)))
    return found


def covering(
    rules: Sequence[Counted], recursive: Sequence[bool], *, min_support: int, min_precision: float, max_rules: int
) -> list[Counted]:
    """Return rules that together are right as often as all of them are: the most precise first, none superfluous.

    Of equally precise rules those that do not rest on the target itself come first, then those that are right more
    often, then the shorter ones. What others make superfluous is left out, rules that rest on the target first.
    """
    fit = [
        (rule, rests)
        for rule, rests in zip(rules, recursive, strict=True)
        if rule.support >= min_support and rule.precision >= min_precision
    ]
    fit.sort(key=lambda each: (-round(each[0].precision, 3), each[1], -each[0].support, length(each[0].conjunction)))
    chosen: list[tuple[Counted, bool]] = []
    covered: set[int] = set()
    for rule, rests in fit:
        new = set(rule.right.tolist()) - covered
        if new and len(chosen) < max_rules:
            chosen.append((rule, rests))
            covered |= new
    for each in sorted(chosen, key=lambda each: (not each[1], each[0].support)):
        others = [other for other in chosen if other is not each]
        if covered <= set().union(*(other[0].right.tolist() for other in others)):
            chosen = others
    return [rule for rule, _ in chosen]


def most_telling(rules: Sequence[Counted], priors: Floats, *, most: int) -> list[Counted]:
    """Return for each target the ``most`` rules that tell most: ``s log(s/e) + (b − s) log((b − s)/(b − e))``.

    A rule is right ``s`` of the ``b`` times that it is true, where the prior lets expect ``e``. Of rules that are right
    of the same questions and true as often, the shortest are kept: all of them, for they may differ elsewhere.
    """
    found = []
    for target, prior in enumerate(priors.tolist()):
        shortest: dict[tuple[bytes, float], int] = {}
        mine = [each for each in rules if each.target == target]
        mine.sort(key=lambda each: (length(each.conjunction), sorted(map(repr, each.conjunction))))
        kept = []
        for each in mine:
            least = shortest.setdefault((each.right.tobytes(), each.fired), length(each.conjunction))
            if length(each.conjunction) == least or not each.support:
                kept.append(each)
        kept.sort(key=lambda each: -_told(each, prior))
        found += kept[:most]
    return found


def _told(rule: Counted, prior: float) -> float:
    parts = ((rule.support, prior * rule.fired), (rule.fired - rule.support, (1 - prior) * rule.fired))
    return sum(seen * math.log(seen / expected) for seen, expected in parts if seen)
