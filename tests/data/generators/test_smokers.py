import math
from collections import Counter
from itertools import product

import pytest
from data.generators.plain_rules import facts_of
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.data import Value
from rulewright.data.generators import smoke
from rulewright.errors import DataError


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 40), st.floats(0, 1), st.integers(0, 10**6))
def test_smokers_and_their_queries(people: int, observed: float, seed: int) -> None:
    generated = smoke(people, observed=observed, seed=seed)
    kb, test = generated.kb, generated.kb.split("test")
    assert facts_of(test) == facts_of(generated.hidden)
    assert generated.noise.n_facts == 0
    everyone = [(name,) for name in kb.domains["person"].labels]
    for name in ("smoke", "cancer"):
        parts = [base.tuples(name, truth=truth) for base in (kb, test) for truth in (True, False)]
        assert Counter(row for part in parts for row in part) == Counter(everyone)
    friends, asked = set(kb.tuples("friend")), set(test.tuples("friend"))
    assert asked == {(other, one) for one, other in friends}
    both = friends | asked
    assert len(both) == 2 * len(friends)
    assert {one for one, _ in both} == {name for (name,) in everyone}
    assert all((a, d) in both for a, b in both for c, d in both if b == c and a != d)
    strangers = set(kb.tuples("friend", truth=False))
    assert len(strangers) <= len(friends)
    assert set(test.tuples("friend", truth=False)) == {(other, one) for one, other in strangers}
    assert not any(pair in both or pair[::-1] in strangers for pair in strangers)


def test_smoking_is_drawn_as_the_formulas_say() -> None:
    generated = smoke(20_000, observed=1.0, seed=1)
    weights = [formula.weight for formula in generated.rules.formulas]
    assert len(generated.rules.formulas) == len(generated.rules) == 6
    alike, smoker, cause, healthy = (weight for weight in weights if weight is not None)
    smokers, ill = ({name for (name,) in generated.kb.tuples(each)} for each in ("smoke", "cancer"))
    circles: dict[Value, set[Value]] = {}
    for one, other in generated.kb.tuples("friend"):
        circles.setdefault(one, {one}).add(other)
    pairs = [tuple(circle) for circle in circles.values() if len(circle) == 2]
    # The last person of each circle is never first, so each circle of two is here once, besides rests of larger ones
    first_of = Counter(name for circle in circles.values() for name in circle)
    pairs = [pair for pair in pairs if all(first_of[name] == 1 for name in pair)]
    assert len(pairs) > 500
    found = Counter(sum(name in smokers for name in pair) for pair in pairs)

    def weight(one: bool, other: bool, one_ill: bool, other_ill: bool) -> float:
        total = 2 * alike * (one == other)
        for smokes, sick in ((one, one_ill), (other, other_ill)):
            total += smoker * smokes + cause * (not smokes or sick) + healthy * (not sick)
        return math.exp(total)

    expected: Counter[int] = Counter()
    for world in product((False, True), repeat=4):
        expected[world[0] + world[1]] += weight(*world)  # type: ignore[assignment]
    for count in range(3):
        assert found[count] / len(pairs) == pytest.approx(expected[count] / sum(expected.values()), abs=0.05)
    sick_smokers = len(ill & smokers) / len(smokers)
    assert sick_smokers == pytest.approx(1 / (1 + math.exp(healthy - cause)), abs=0.03)
    assert len(ill - smokers) / (20_000 - len(smokers)) == pytest.approx(1 / (1 + math.exp(healthy)), abs=0.03)


def test_impossible_smokers() -> None:
    with pytest.raises(DataError, match="people must be >= 2, got 1"):
        smoke(1)
    with pytest.raises(DataError, match=r"observed must lie in \[0, 1\], got 2"):
        smoke(observed=2)
