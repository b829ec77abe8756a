"""Choosing among counted rules, and weighing the rules of classes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rulewright.learn.nlil.classifier import Speaking, evidence_of, fit_weights
from rulewright.learn.nlil.formulas import Literal
from rulewright.learn.nlil.selection import Counted, covering, most_telling

QUESTIONS = 12


def rule(number: int, right: set[int], wrong: int, target: int = 0) -> Counted:
    body = frozenset([(Literal(number, (), None), True)])
    return Counted(target, body, np.array(sorted(right), dtype=np.int64), len(right) + wrong)


pools = st.lists(
    st.tuples(st.sets(st.integers(0, QUESTIONS - 1)), st.integers(0, 5), st.booleans()), min_size=1, max_size=8
)


@given(pools)
def test_a_cover_loses_nothing_and_has_nothing_superfluous(pool: list[tuple[set[int], int, bool]]) -> None:
    rules = [rule(number, right, wrong) for number, (right, wrong, _) in enumerate(pool)]
    own = [each for _, _, each in pool]
    kept = covering(rules, own, min_support=1, min_precision=0.5, max_rules=100)
    fit = [each for each in rules if each.support and each.precision >= 0.5]
    wanted = set().union(*(each.right.tolist() for each in fit)) if fit else set()
    found = set().union(*(each.right.tolist() for each in kept)) if kept else set()
    assert found == wanted
    for each in kept:
        others = set().union(*(other.right.tolist() for other in kept if other is not each))
        assert others != wanted or not wanted


def test_of_equal_rules_the_one_that_does_not_rest_on_its_target_comes_first() -> None:
    base, back, forth = rule(0, {0}, 0), rule(1, {0, 2, 4}, 0), rule(2, {2, 4, 6}, 0)
    kept = covering([back, forth, base], [True, True, False], min_support=1, min_precision=1.0, max_rules=9)
    assert kept == [base, forth]


def test_rules_that_tell_most_are_kept_for_and_against() -> None:
    priors = np.array([0.5, 0.5])
    sure, vague, against = rule(1, set(range(10)), 1), rule(2, {0, 1, 2}, 3), rule(3, set(), 8)
    same = rule(4, set(range(10)), 1)
    longer = Counted(0, frozenset((*same.conjunction, *vague.conjunction)), same.right, same.fired)
    assert most_telling([same, vague, against, sure], priors, most=2) == [against, sure]
    kept = most_telling([same, longer, vague, against, sure], priors, most=9)
    assert longer not in kept and len(kept) == 4  # of equals the shortest are kept


@given(st.integers(0, 10_000))
def test_weights_are_a_minimum(seed: int) -> None:
    random = np.random.default_rng(seed)
    classes = random.integers(0, 3, 30)
    target = random.integers(0, 3, 4)
    holds = random.random((30, 4)) < 0.4
    speaking = Speaking.of([np.flatnonzero(holds[:, each]) for each in range(4)], 30)
    prior = (np.bincount(classes, minlength=3) + 0.5) / 31.5
    found = fit_weights(speaking, target, classes, prior, l2=1.0, shrink=0.3, iterations=500)
    fired, right = holds.sum(axis=0), (holds & (classes[:, None] == target)).sum(axis=0)
    centre = 0.3 * evidence_of(right.astype(float), fired.astype(float), prior[target])

    def loss(weights: np.ndarray, bias: np.ndarray) -> float:
        scores = np.tile(bias, (30, 1))
        for number in range(4):
            scores[holds[:, number], target[number]] += weights[number]
        chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        return float(-np.log(chances[np.arange(30), classes]).sum() + 0.5 * ((weights - centre) ** 2).sum())

    best = loss(found.weight, found.bias)
    for _ in range(5):
        moved = loss(found.weight + random.normal(0, 0.05, 4), found.bias + random.normal(0, 0.05, 3))
        assert moved > best - 1e-3
