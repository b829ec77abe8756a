"""Choosing among counted rules, and weighing the rules of classes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rulewright.learn.nlil.classes import (
    AGAINST,
    RuleMatches,
    RuleWeights,
    choose_informative,
    count_for_classes,
    fit_weights,
    measure_evidence,
)
from rulewright.learn.nlil.formulas import PathLiteral
from rulewright.learn.nlil.selection import CountedRule, choose_cover

QUESTIONS = 12


def rule(statement: int, right: set[int], wrong: int) -> CountedRule:
    body = frozenset([(PathLiteral(statement, (), None), True)])
    return CountedRule(0, body, np.array(sorted(right), dtype=np.int64), len(right) + wrong)


pools = st.lists(
    st.tuples(st.sets(st.integers(0, QUESTIONS - 1)), st.integers(0, 5), st.booleans()), min_size=1, max_size=8
)


@given(pools)
def test_a_cover_loses_nothing_and_has_nothing_superfluous(pool: list[tuple[set[int], int, bool]]) -> None:
    rules = [rule(statement, right, wrong) for statement, (right, wrong, _) in enumerate(pool)]
    kept = choose_cover(rules, [recursive for _, _, recursive in pool], min_support=1, min_precision=0.5, max_rules=100)
    fit = [candidate for candidate in rules if candidate.support and candidate.precision >= 0.5]
    wanted = set().union(*(candidate.right.tolist() for candidate in fit)) if fit else set()
    covered = set().union(*(chosen.right.tolist() for chosen in kept)) if kept else set()
    assert covered == wanted
    for chosen in kept:
        others = set().union(*(other.right.tolist() for other in kept if other is not chosen))
        assert others != wanted or not wanted


def test_of_equal_rules_the_one_that_does_not_rest_on_its_target_comes_first() -> None:
    base, back, forth = rule(0, {0}, 0), rule(1, {0, 2, 4}, 0), rule(2, {2, 4, 6}, 0)
    kept = choose_cover([back, forth, base], [True, True, False], min_support=1, min_precision=1.0, max_rules=9)
    assert kept == [base, forth]


def test_a_rule_that_is_surely_right_comes_before_one_that_was_right_seldom() -> None:
    true, refined, lucky = rule(0, set(range(92)), 1), rule(1, set(range(28)), 0), rule(2, {0, 200}, 0)
    kept = choose_cover([lucky, refined, true], [False] * 3, min_support=2, min_precision=0.5, max_rules=9)
    assert kept == [true]  # the second is right of nothing new, the third of one question only


def test_rules_that_tell_most_are_kept_for_and_against() -> None:
    priors = np.array([0.5, 0.5])
    sure, vague, against = rule(1, set(range(10)), 1), rule(2, {0, 1, 2}, 3), rule(3, set(), 8)
    same = rule(4, set(range(10)), 1)
    longer = CountedRule(0, frozenset((*same.conjunction, *vague.conjunction)), same.right, same.body_count)
    assert choose_informative([same, vague, against, sure], priors, most=2) == [against, sure]
    kept = choose_informative([same, longer, vague, against, sure], priors, most=9)
    assert longer not in kept and len(kept) == 4  # of equals the shortest are kept


@given(st.integers(0, 10_000))
def test_weights_are_a_minimum(seed: int) -> None:
    random = np.random.default_rng(seed)
    classes = random.integers(0, 3, 30)
    target = random.integers(0, 3, 4)
    holds = random.random((30, 4)) < 0.4
    matches = RuleMatches.from_rows([np.flatnonzero(holds[:, rule_index]) for rule_index in range(4)], 30)
    prior = (np.bincount(classes, minlength=3) + 0.5) / 31.5
    atoms = random.integers(1, 4, 4)
    fitted = fit_weights(matches, target, atoms, classes, prior, l2=0.5, iterations=500)
    fired, right = holds.sum(axis=0), (holds & (classes[:, None] == target)).sum(axis=0)
    centre = measure_evidence(right.astype(float), fired.astype(float), prior[target])
    for rule_index in range(4):  # evidence is shared with the rules of the class that hold too
        beside = holds[holds[:, rule_index]][:, target == target[rule_index]].sum(axis=1)
        centre[rule_index] /= beside.mean() if len(beside) else 1

    def loss(weights: np.ndarray, bias: np.ndarray) -> float:
        scores = np.tile(bias, (30, 1))
        for rule_index in range(4):
            scores[holds[:, rule_index], target[rule_index]] += weights[rule_index]
        chances = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
        return float(-np.log(chances[np.arange(30), classes]).sum() + 0.25 * (atoms**2 * (weights - centre) ** 2).sum())

    best = loss(fitted.weight, fitted.bias)
    for _ in range(5):
        moved = loss(fitted.weight + random.normal(0, 0.05, 4), fitted.bias + random.normal(0, 0.05, 3))
        assert moved > best - 1e-3


@given(st.integers(0, 10_000))
def test_bodies_are_counted_for_every_class_that_they_speak_of(seed: int) -> None:
    random = np.random.default_rng(seed)
    classes = random.integers(0, 3, 40)
    priors = (np.bincount(classes, minlength=3) + 0.5) / 41.5
    bodies = [rule(statement, set(), 0).conjunction for statement in range(5)]
    rows = {body: np.flatnonzero(random.random(40) < random.random()) for body in bodies}
    wanted = set()
    for body, body_rows in rows.items():
        for target_index, prior in enumerate(priors.tolist()):
            right = [row for row in body_rows.tolist() if classes[row] == target_index]
            expected = prior * len(body_rows)
            is_for = len(right) >= 2 and len(right) > expected
            if is_for or (expected >= AGAINST and len(right) < expected / 2):
                wanted.add((target_index, body, tuple(right), len(body_rows)))
    counted = count_for_classes(rows, classes, priors, 2)
    assert {(each.target_index, each.conjunction, tuple(each.right), each.body_count) for each in counted} == wanted
    assert len(counted) == len(wanted)


@given(st.integers(0, 10_000))
def test_rules_with_one_body_score_as_if_each_had_its_own(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = [np.flatnonzero(random.random(10) < 0.5) for _ in range(3)]
    bodies = [rule(statement, set(), 0).conjunction for statement in range(3)]
    body_of_rule = random.integers(0, 3, 6)
    weights = RuleWeights(random.integers(0, 2, 6), random.normal(size=6), random.normal(size=2))
    first, last = (
        RuleMatches.from_bodies(
            [bodies[position] for position in body_of_rule],
            {
                body: body_rows[(body_rows >= low) & (body_rows < low + 5)] - low
                for body, body_rows in zip(bodies, rows, strict=True)
            },
            5,
        )
        for low in (0, 5)
    )
    both = first.append(last)
    alone = RuleMatches.from_rows([rows[position] for position in body_of_rule], 10)
    np.testing.assert_allclose(weights.scores(both), weights.scores(alone))
    for question in range(10):
        holding = [index for index, position in enumerate(body_of_rule.tolist()) if question in rows[position]]
        assert both.rules_of(question).tolist() == holding
