import math
from collections import Counter
from itertools import product

import pytest
from data.generators.plain_rules import Facts, derived, facts_of, one_round
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.data import Value
from rulewright.data.generators import family
from rulewright.errors import DataError
from rulewright.logic import parse_rules


def test_the_evaluator_itself() -> None:
    facts: Facts = {"p": {("a", "b"), ("b", "c")}, "n": {("a", 1.0), ("b", 2.0), ("c", 2.0)}, "q": {("a",)}}
    rules = parse_rules("""
        r(X, Z) :- p(X, Y), p(Y, Z), !q(Z).
        s(X, Y) :- n(X, A), n(Y, B), A < B.
        t(X) :- p(X, b) ; n(X, 2), !p(X, c).
        u(X) :- p(X, Y), Y != b.
    """)
    found = [sorted(derived(rule, facts)) for rule in rules.rules]
    assert found == [[("a", "c")], [("a", "b"), ("a", "c")], [("a",), ("c",)], [("b",)]]


@pytest.mark.parametrize(("people", "generations", "seed"), [(60, 4, 0), (60, 3, 1), (45, 2, 2), (80, 6, 3)])
def test_no_rule_of_a_family_has_an_exception(people: int, generations: int, seed: int) -> None:
    generated = family(people, generations=generations, ages=True, seed=seed)
    facts = facts_of(generated.kb)
    rules = generated.rules.rules
    assert len(rules) == len(generated.rules) >= 30
    for rule in rules:
        heads = list(derived(rule, facts))
        # A family of two generations has no grandparents, uncles and aunts
        assert heads or generations == 2, str(rule)
        assert all(head in facts[str(rule.head.predicate)] for head in heads), str(rule)


def test_every_predicate_of_a_family_has_several_rules() -> None:
    heads = Counter(str(rule.head.predicate) for rule in family(8).rules.rules)
    assert set(heads) == set(family(8).kb.predicates)
    assert min(heads.values()) >= 2


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.integers(2, 6), st.integers(0, 60), st.integers(0, 10**6))
def test_families_are_believable(generations: int, more: int, seed: int) -> None:
    people = 2 * generations + more
    kb = family(people, generations=generations, ages=True, seed=seed).kb
    facts = facts_of(kb)
    everyone = set(kb.domains["person"].labels.tolist())
    assert len(everyone) == people
    male, female = ({name for (name,) in facts[sex]} for sex in ("male", "female"))
    assert male | female == everyone
    assert not male & female
    mothers, fathers = ({child: parent for parent, child in facts[name]} for name in ("mother_of", "father_of"))
    spouses: dict[Value, Value] = {one: other for other, one in facts["spouse_of"]}
    assert mothers
    assert set(mothers) == set(fathers)
    assert len(facts["mother_of"]) == len(mothers)
    assert len(spouses) == len(facts["spouse_of"])
    age = {person: float(years) for person, years in facts["age"]}
    assert set(age) == everyone
    assert min(age.values()) == 0
    for child, mother in mothers.items():
        father = fathers[child]
        assert (mother in female, father in male, spouses[mother]) == (True, True, father)
        assert min(age[mother], age[father]) >= age[child] + 20
    for one, other in spouses.items():
        assert (spouses[other], one in male) == (one, other in female)
        assert (one, other) not in facts["sibling_of"]

    siblings = {(a, b) for a, b in product(mothers, mothers) if a != b and mothers[a] == mothers[b]}
    assert facts["parent_of"] == facts["mother_of"] | facts["father_of"]
    assert facts["child_of"] == {(child, parent) for parent, child in facts["parent_of"]}
    assert facts["sibling_of"] == siblings
    assert facts["elder_sibling_of"] == {(a, b) for a, b in siblings if age[a] > age[b]}
    assert facts["grandparent_of"] == {
        (old, young) for old, middle in facts["parent_of"] for parent, young in facts["parent_of"] if middle == parent
    }
    by_blood = {(x, child) for x, parent in siblings for other, child in facts["parent_of"] if parent == other}
    relatives = by_blood | {(spouses[x], child) for x, child in by_blood if x in spouses}
    assert facts["uncle_of"] == {(x, child) for x, child in relatives if x in male}
    assert facts["aunt_of"] == {(x, child) for x, child in relatives if x in female}


def test_ages_are_an_option() -> None:
    assert not {"age", "elder_sibling_of"} & set(family(20).kb.predicates)
    assert "age" not in str(family(20).rules)


@pytest.mark.parametrize(("missing", "noise"), [(0.2, 0.0), (0.0, 0.1), (0.3, 0.3), (1.0, 1.0)])
def test_hidden_and_wrong_facts_are_accounted_for(missing: float, noise: float) -> None:
    truth = facts_of(family(60, ages=True, seed=5).kb)
    generated = family(60, missing=missing, noise=noise, ages=True, seed=5)
    kb, hidden, wrong = (facts_of(part) for part in (generated.kb, generated.hidden, generated.noise))
    for name, true in truth.items():
        assert hidden[name] <= true
        assert not wrong[name] & true
        assert kb[name] == (true - hidden[name]) | wrong[name]
        free = 60 - len(true) if name in ("male", "female") else math.inf
        assert len(wrong[name]) == min(round(noise * len(true)), free)
        assert generated.kb.count(name) == len(kb[name])
    total = sum(map(len, truth.values()))
    assert abs(generated.hidden.n_facts - missing * total) <= 3
    assert generated.kb.n_facts == total - generated.hidden.n_facts + generated.noise.n_facts
    for part in (generated.hidden, generated.noise):
        assert (part.domains, part.predicates) == (generated.kb.domains, generated.kb.predicates)


def test_one_round_recovers_most_of_what_is_hidden_and_nothing_else() -> None:
    generated = family(60, missing=0.2, seed=7)
    hidden, found = facts_of(generated.hidden), one_round(generated)
    for name, rows in found.items():
        assert rows <= hidden[name]
        assert len(rows) >= 0.5 * len(hidden[name]), name
    recovered = sum(map(len, found.values()))
    assert recovered >= 0.85 * generated.hidden.n_facts


def test_a_large_family_has_no_repeated_facts() -> None:
    kb = family(20_000, missing=0.1, noise=0.1, ages=True).kb
    for name in kb.predicates:
        assert len(set(zip(*kb.columns(name), strict=True))) == kb.count(name)
    assert len(set(kb.domains["person"].labels)) == 20_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"people": 7}, "people must be >= 8, got 7"),
        ({"generations": 1}, "generations must be >= 2, got 1"),
        ({"missing": 1.5}, r"missing must lie in \[0, 1\], got 1.5"),
        ({"noise": -0.1}, r"noise must lie in \[0, 1\], got -0.1"),
        ({"noise": float("nan")}, "noise must lie in"),
    ],
)
def test_impossible_families(options: dict[str, float], message: str) -> None:
    with pytest.raises(DataError, match=message):
        family(**options)  # type: ignore[arg-type]
