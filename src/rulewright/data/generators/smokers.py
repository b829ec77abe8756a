"""Friends, smoking and cancer: the classical example of Markov logic, drawn from its own distribution."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from rulewright.checks import SHARE, Whole, check_parameter
from rulewright.data.facts import Column, group_by_signature
from rulewright.data.generators.generated import Generated, build, name_people, parse_once
from rulewright.data.index import match_pairs, positions_within
from rulewright.data.vocabulary import lay_out_domains

ALIKE, SMOKER, CAUSE, HEALTHY = 0.4, 1.0, 2.5, 1.5
"""The weights of the four soft formulas, in their order below."""

RULES = f"""
predicate smoke(person).
predicate friend(person, person).
predicate cancer(person).

hard !friend(X, X).
hard friend(X, Y) => friend(Y, X).
{ALIKE} friend(X, Y) => (smoke(X) <=> smoke(Y)).
{SMOKER} smoke(X).
{CAUSE} smoke(X) => cancer(X).
{HEALTHY} !cancer(X).
"""

LARGEST_CIRCLE = 6

Mask = npt.NDArray[np.bool_]
Facts = dict[str, list[Column]]


def smoke(people: int = 20, *, observed: float = 0.5, seed: int = 0) -> Generated:
    """Return circles of friends in which smoking and cancer are drawn exactly as the weighted formulas say.

    Everyone in a circle of two to six is a friend of everyone else in it. Whether a person smokes, and whether
    they have cancer, is observed (true or false) with probability ``observed``, each on its own; who is not observed
    is a query. Of each friendship one direction is observed and the other a query, and so with up to as many pairs
    who are no friends. The split ``test`` has the queries with their answers, true and false.

    >>> generated = smoke(people=20, seed=3)
    >>> generated.kb
    KnowledgeBase(20 entities, 3 predicates, 30 facts, 41 observed false, test: 69)
    >>> print(generated.rules.formulas[2])
    0.4 friend(X, Y) => (smoke(X) <=> smoke(Y)).
    """
    check_parameter("people", people, Whole(2))
    check_parameter("observed", observed, SHARE)
    random = np.random.default_rng(seed)
    circle = _draw_circles(random, people)
    smokes = _draw_smokers(random, circle)
    ill = random.random(people) < _logistic(np.where(smokes, CAUSE - HEALTHY, -HEALTHY))
    friends, strangers = _draw_pairs(random, circle)

    true: Facts = {"friend": [friends[0], friends[1]]}
    false: Facts = {"friend": [strangers[0], strangers[1]]}
    asked_true: Facts = {"friend": [friends[1], friends[0]]}
    asked_false: Facts = {"friend": [strangers[1], strangers[0]]}
    for name, holds in (("smoke", smokes), ("cancer", ill)):
        seen = random.random(people) < observed
        true[name], false[name] = [np.flatnonzero(seen & holds)], [np.flatnonzero(seen & ~holds)]
        asked_true[name], asked_false[name] = [np.flatnonzero(~seen & holds)], [np.flatnonzero(~seen & ~holds)]

    domains = lay_out_domains([("person", name_people(people), None)])
    generated = build(parse_once(RULES), domains, true, false, hidden=asked_true)
    kb = generated.kb
    queries = kb.with_facts(generated.hidden.tables(), group_by_signature(kb.predicates, asked_false))
    return replace(generated, kb=kb.with_splits({"test": queries}))


def _draw_circles(random: np.random.Generator, people: int) -> npt.NDArray[np.int64]:
    """Return the circle of each person; nobody is left alone."""
    ends = np.cumsum(random.integers(2, LARGEST_CIRCLE, size=people // 2 + 1))
    circle = np.searchsorted(ends, np.arange(people), side="right")
    if np.sum(circle == circle[-1]) == 1:
        circle[-1] -= 1
    return random.permutation(circle)


def _draw_smokers(random: np.random.Generator, circle: npt.NDArray[np.int64]) -> Mask:
    """Draw who smokes: in a circle only the number of smokers matters, so it is drawn, and then who they are."""
    sizes = np.bincount(circle)
    rows, counts = np.ogrid[: LARGEST_CIRCLE + 1, : LARGEST_CIRCLE + 1]
    # Friendship binds both ways, and whether someone smokes weighs on their cancer, which is summed out
    weight = SMOKER + np.logaddexp(HEALTHY, CAUSE) - np.logaddexp(HEALTHY + CAUSE, CAUSE)
    weights = np.exp(weight * counts - 2 * ALIKE * counts * (rows - counts)) * _binomials(LARGEST_CIRCLE)
    cumulative = np.cumsum(weights, axis=1)
    drawn = random.random(len(sizes)) * cumulative[sizes, sizes]
    smokers = np.sum(drawn[:, None] >= cumulative[sizes], axis=1)
    order = np.lexsort((random.random(len(circle)), circle))
    rank = np.empty(len(circle), dtype=np.int64)
    rank[order] = positions_within(sizes)
    smoker: Mask = rank < smokers[circle]
    return smoker


def _binomials(largest: int) -> npt.NDArray[np.float64]:
    """Return the triangle of binomial coefficients, zero beyond it."""
    triangle = np.zeros((largest + 1, largest + 1))
    triangle[:, 0] = 1
    for row in range(1, largest + 1):
        triangle[row, 1:] = triangle[row - 1, 1:] + triangle[row - 1, :-1]
    return triangle


def _logistic(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return 1 / (1 + np.exp(-values))


def _draw_pairs(
    random: np.random.Generator, circle: npt.NDArray[np.int64]
) -> tuple[tuple[Column, Column], tuple[Column, Column]]:
    """Return every friendship once and at most as many pairs of strangers, each with the first person first."""
    one, other = match_pairs(circle, circle)
    friends = (one[one < other], other[one < other])
    drawn = np.sort(random.integers(len(circle), size=(2 * len(friends[0]), 2)), axis=1)
    drawn = np.unique(drawn[circle[drawn[:, 0]] != circle[drawn[:, 1]]], axis=0)
    drawn = random.permutation(drawn)[: len(friends[0])]
    return friends, (drawn[:, 0], drawn[:, 1])
