from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inject.atoms.plain_pairs import RELATIONS, any_rules, plain_groundings

from rulewright.inject.atom_space import AtomSpace
from rulewright.inject.atoms import joins as joins_module
from rulewright.inject.atoms.clauses import read_clauses
from rulewright.inject.atoms.joins import ClauseJoins, GroundingFinder
from rulewright.inject.atoms.layout import AtomChannels, AtomLayout
from rulewright.logic import parse_rules


def finder_for(rules, size):
    space = AtomSpace(rules, relations=RELATIONS)
    layout = AtomLayout(AtomChannels(space, RELATIONS), 1, {"entity": size})
    return GroundingFinder(ClauseJoins(read_clauses(space, reader="RuleDecoder"), layout.channels), layout)


def atoms(positions, size):
    found = set()
    for position in positions:
        if position >= 0:
            pair, relation = divmod(position, len(RELATIONS))
            found.add((RELATIONS[relation], *divmod(pair, size)))
    return frozenset(found)


def as_sets(parts, size):
    return {
        (atoms(body, size), atoms(heads, size))
        for part in parts
        for body, heads in zip(part.bodies.tolist(), part.heads.tolist(), strict=True)
    }


def expected(labels, rules, size, *, violated):
    def holds(atom):
        return labels[atom[1], atom[2], RELATIONS.index(atom[0])]

    return {
        (body, heads)
        for body, heads in plain_groundings(rules, size)
        if all(map(holds, body)) and not (violated and any(map(holds, heads)))
    }


@given(rules=any_rules(), size=st.integers(2, 5), density=st.sampled_from([0.1, 0.4, 0.8]), seed=st.integers(0, 99))
@settings(max_examples=80, deadline=None)
def test_groundings_equal_the_definition(rules, size, density, seed):
    labels = np.random.default_rng(seed).random((size, size, len(RELATIONS))) < density
    labels[range(size), range(size)] = False
    finder, flat = finder_for(rules, size), labels.reshape(-1)
    assert as_sets(finder.find_violated(flat), size) == expected(labels, rules, size, violated=True)
    assert as_sets(finder.find_holding(flat), size) == expected(labels, rules, size, violated=False)
    assert (finder.count_violations(flat) == 0) == (not expected(labels, rules, size, violated=True))


def test_large_steps_are_split(monkeypatch):
    rules = parse_rules("c(X, Y) :- a(X, Z), b(Z, Y). hard a(X, Y) => b(X, Z) | b(Y, W).")
    labels = np.random.default_rng(0).random((6, 6, 3)) < 0.6
    labels[range(6), range(6)] = False
    whole = as_sets(finder_for(rules, 6).find_violated(labels.reshape(-1)), 6)
    monkeypatch.setattr(joins_module, "MOST_ROWS", 3)
    assert as_sets(finder_for(rules, 6).find_violated(labels.reshape(-1)), 6) == whole
    assert max(len(part) for part in finder_for(rules, 6).find_violated(labels.reshape(-1))) <= 18


@pytest.mark.parametrize("limit", [1, 5])
def test_a_limit_is_kept(limit):
    labels = np.ones((5, 5, 3), dtype=bool)
    labels[range(5), range(5)] = False
    labels[..., 2] = False
    finder = finder_for(parse_rules("c(X, Y) :- a(X, Z), b(Z, Y). c(X, Y) :- a(X, Y). c(X, Y) :- b(X, Y)."), 5)
    flat = labels.reshape(-1)
    assert sum(map(len, finder.find_violated(flat, limit=limit))) == limit < finder.count_violations(flat)


def test_entities_are_in_the_order_of_the_variables():
    labels = np.zeros((3, 3, 3), dtype=bool)
    labels[2, 0, 0] = labels[0, 1, 1] = True
    finder = finder_for(parse_rules("c(X, Z) :- b(Y, Z), a(X, Y)."), 3)
    (found,) = finder.find_violated(labels.reshape(-1))
    (clause,) = finder.joins.clauses
    row, *entities = finder.joins.read_values(0, found.entities[0].tolist())
    assert row == 0
    assert dict(zip(clause.variables, entities, strict=True)) == {"X": 2, "Y": 0, "Z": 1}
