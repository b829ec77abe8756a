from collections.abc import Callable

import numpy as np
import pytest

from rulewright.data import generators
from rulewright.data.generators import Generated, encyclopedia, family, gridworld, nations, planted, random_graph, smoke
from rulewright.evaluate import explain_counts

DECLARATIONS = "predicate likes(person, person). predicate age(person, number). predicate mood(person) in {good, bad}."


def contents(generated: Generated) -> list[object]:
    parts = [generated.kb, generated.hidden, generated.noise, *generated.kb.splits.values()]
    return [generated.rules, *([*part.facts(truth=truth)] for part in parts for truth in (True, False))]


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: family(50, missing=0.2, noise=0.2, ages=True, seed=seed),
        lambda seed: smoke(30, seed=seed),
        lambda seed: nations(6, relations=9, attributes=3, seed=seed),
        lambda seed: encyclopedia(60, missing=0.1, noise=0.1, seed=seed),
        lambda seed: gridworld(5, seed=seed),
        lambda seed: planted("tree", degrees="power", seed=seed),
        lambda seed: random_graph({"person": 20}, DECLARATIONS, density=0.2, false_share=1, seed=seed),
    ],
    ids=["family", "smoke", "nations", "encyclopedia", "gridworld", "planted", "random_graph"],
)
def test_the_same_seed_gives_the_same_facts(make: Callable[[int], Generated]) -> None:
    assert contents(make(3)) == contents(make(3))
    assert contents(make(3)) != contents(make(4))


def test_what_is_exported() -> None:
    assert sorted(generators.__all__) == [
        "Generated",
        "encyclopedia",
        "even_successor",
        "family",
        "gridworld",
        "nations",
        "planted",
        "random_graph",
        "smoke",
    ]
    assert all(hasattr(generators, name) for name in generators.__all__)


@pytest.mark.parametrize("generated", [nations(seed=2), nations(2, relations=3), encyclopedia(500), encyclopedia(2)])
def test_rules_have_no_exception(generated: Generated) -> None:
    for rule in generated.rules.rules:
        counts = explain_counts(rule, generated.kb)
        assert counts.support == counts.body, rule


def test_an_encyclopedia_has_hubs() -> None:
    degrees = np.bincount(np.concatenate(encyclopedia(1000).kb.tables()["ee"].columns))
    assert degrees.max() > 30 * degrees.mean()
