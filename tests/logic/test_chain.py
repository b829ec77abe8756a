"""Chain rules against every way a body can be a path."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise, permutations, product

import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

from rulewright.logic import (
    Atom,
    Chain,
    Rule,
    Step,
    Symbol,
    Variable,
    count_steps,
    decode_path,
    encode_path,
    invert_step,
    is_inverse,
    mirror_path,
    parse_rule,
    step_relation,
)

STEPS = st.lists(st.builds(Step, strategies.names, st.booleans()), min_size=1, max_size=5).map(tuple)
chains = st.builds(Chain, strategies.names, STEPS)
few_steps = st.lists(st.builds(Step, st.sampled_from("pq"), st.booleans()), min_size=1, max_size=3).map(tuple)


def of_by_force(rule: Rule) -> Chain | None:
    """Try every order and direction of the body as a path of different variables between the ends of the head."""
    if not isinstance(rule.head, Atom) or rule.head.arity != 2:
        return None
    if not all(isinstance(part, Atom) and part.arity == 2 for part in rule.body):
        return None
    atoms = [part for part in rule.body if isinstance(part, Atom)]
    for order in permutations(atoms):
        for directions in product((False, True), repeat=len(order)):
            walked = [
                atom.args[::-1] if inverse else atom.args for atom, inverse in zip(order, directions, strict=True)
            ]
            path = [walked[0][0], *(end for _, end in walked)]
            joined = all(one[1] == other[0] for one, other in pairwise(walked))
            ends = (path[0], path[-1]) == rule.head.args
            different = len(set(path)) == len(path) and all(isinstance(place, Variable) for place in path)
            if joined and ends and different:
                pairs = zip(order, directions, strict=True)
                return Chain(str(rule.head.predicate), tuple(Step(str(atom.predicate), way) for atom, way in pairs))
    return None


@pytest.mark.slow
@given(chains, st.floats(0, 1))
def test_a_chain_becomes_a_rule_and_back(chain: Chain, confidence: float) -> None:
    rule = chain.rule(confidence)
    assert rule.confidence == confidence
    assert Chain.of(rule) == chain
    assert parse_rule(str(rule)) == rule


@pytest.mark.slow
@given(chains, st.randoms(use_true_random=False))
def test_the_order_of_the_body_does_not_matter(chain: Chain, source: object) -> None:
    body = list(chain.rule().body)
    source.shuffle(body)  # type: ignore[attr-defined]
    assert Chain.of(Rule(chain.rule().head, tuple(body))) == chain


TERMS = [Variable(name) for name in "XYUV"]


@pytest.mark.slow
@given(
    st.lists(strategies.small_atoms({"p": 2, "q": 2}, TERMS[:4]), min_size=1, max_size=4),
    st.sampled_from([("X", "Y"), ("X", "X"), ("Y", "U")]),
)
def test_against_brute_force(body: list[Atom], ends: tuple[str, str]) -> None:
    args = tuple(map(Variable, ends))
    bound = {term for atom in body for term in atom.args}
    if bound.issuperset(args):
        rule = Rule(Atom("h", args), tuple(body))
        assert Chain.of(rule) == of_by_force(rule)


def test_all_bodies_of_two_atoms_against_brute_force() -> None:
    atoms = [Atom(name, pair) for name in "pq" for pair in product(TERMS[:3], repeat=2)]
    found = 0
    for one, other in product(atoms, repeat=2):
        for args in product(TERMS[:2], repeat=2):
            if {*one.args, *other.args}.issuperset(args):
                rule = Rule(Atom("h", args), (one, other))
                assert Chain.of(rule) == of_by_force(rule)
                found += Chain.of(rule) is not None
    assert found > 0


@pytest.mark.parametrize(
    "text",
    [
        "p(X, Y) :- q(X, Z), r(X, Y).",
        "p(X, Y) :- q(X, Y), r(X, Y).",
        "p(X, Y) :- q(X, Y), r(Y, Y).",
        "p(X, Y) :- q(X, Y), r(U, V).",
        "p(X, X) :- q(X, X).",
        "p(X, X) :- q(X, Y), q(Y, X).",
        "p(X, Y) :- q(X, a), r(a, Y).",
        "p(a, 3) :- q(a, 3).",
        "p(X, a) :- q(X, 3).",
        "p(X, a) :- q(X, Y), r(X, Z).",
        "p(X, a) :- q(X, b), r(b, Y).",
        "p(X, a) :- q(X, Y), X != Y.",
        "p(a, b) :- q(a, b).",
        "p(X) :- q(X, Y).",
        "p(X, Y) :- q(X, Y), r(Y).",
        "p(X, Y) :- q(X, Y, Z).",
        "p(X, Y) :- q(X, Y), !r(X, Y).",
        "p(X, Y) :- q(X, Y), X != a.",
        "p(X, Z) :- q(X, Y), r(Y, Z), X != Y.",
        "p(X, Y) :- q(X, Y), X = Y.",
        "p(X, Y) :- q(X, Y) ; r(X, Y).",
        "p(X, Y) :- q(X, Y) in {a}.",
        "p(X, Y) in {a} :- q(X, Y).",
    ],
)
def test_what_is_no_chain(text: str) -> None:
    assert Chain.of(parse_rule(text)) is None


@pytest.mark.parametrize(
    ("text", "chain"),
    [
        ("p(a, Y) :- q(a, Y).", Chain("p", (Step("q", True),), first=Symbol("a"), end=Symbol("a"))),
        ("p(X, a) :- q(X, b).", Chain("p", (Step("q"),), last=Symbol("a"), end=Symbol("b"))),
        ("p(X, a) :- r(Y, Z), q(Y, X).", Chain("p", (Step("q", True), Step("r")), last=Symbol("a"))),
    ],
)
def test_chains_with_constant_ends(text: str, chain: Chain) -> None:
    assert Chain.of(parse_rule(text)) == chain
    assert not chain.is_closed


constant_chains = st.builds(
    Chain,
    strategies.names,
    STEPS,
    first=st.none(),
    last=st.builds(Symbol, strategies.names),
    end=st.none() | st.builds(Symbol, strategies.names),
)


@pytest.mark.slow
@given(constant_chains, st.booleans())
def test_a_chain_with_constants_becomes_a_rule_and_back(chain: Chain, mirrored: bool) -> None:
    if mirrored:
        chain = replace(chain, first=chain.last, last=None)
    assert Chain.of(chain.rule()) == chain
    assert parse_rule(str(chain.rule())) == chain.rule()


@given(st.lists(st.tuples(st.integers(0, 9), st.booleans()), max_size=5))
def test_paths_by_name_and_by_index(pairs: list[tuple[int, bool]]) -> None:
    relations = [f"r{index}" for index in range(10)]
    steps = tuple(Step(relations[index], inverse) for index, inverse in pairs)
    path = encode_path(steps, {name: index for index, name in enumerate(relations)})
    assert decode_path(path, relations) == steps
    assert decode_path(mirror_path(path), relations) == Chain("h", steps).mirror()
    assert all(0 <= step < count_steps(10) for step in path)
    assert [(step_relation(step), is_inverse(step)) for step in path] == pairs
    assert tuple(map(invert_step, map(invert_step, path))) == path


def test_ends_that_must_differ() -> None:
    chain = Chain.of(parse_rule("p(X, Z) :- q(X, Y), Z != X, r(Y, Z)."))
    assert chain == Chain("p", (Step("q"), Step("r")), apart=True)
    assert str(chain.rule()) == "p(V0, V2) :- q(V0, V1), r(V1, V2), V0 != V2."
    assert Chain.of(chain.rule()) == chain


@pytest.mark.slow
@given(chains)
def test_mirror(chain: Chain) -> None:
    back = Chain(chain.head, chain.mirror())
    assert back.mirror() == chain.steps
    assert len(back.steps) == len(chain.steps)
    # Walked from the other end, the body is the same set of atoms with the places counted backwards.
    last = len(chain.steps)
    renamed = {
        Atom(part.predicate, tuple(Variable(f"V{last - int(place.name[1:])}") for place in part.args))  # type: ignore[union-attr]
        for part in back.rule().body
    }
    assert renamed == set(chain.rule().body)


@given(st.sampled_from("hg"), few_steps, st.booleans())
def test_oriented(head: str, steps: tuple[Step, ...], inverse: bool) -> None:
    chain = Chain.oriented(Step(head, inverse), steps)
    rule = chain.rule()
    start, end = (rule.head.args[::-1]) if inverse else rule.head.args
    # Walk the given steps from the start of the head, over the atoms of the rule: they lead to its other end.
    places = {start}
    for step in steps:
        places = {
            part.args[0 if step.inverse else 1]
            for part in rule.body
            if isinstance(part, Atom)
            and part.predicate == step.relation
            and part.args[1 if step.inverse else 0] in places
        }
    assert end in places
    assert Chain.oriented(Step(head), chain.steps) == chain
    assert Chain.oriented(Step(head, True), chain.mirror()) == chain
