from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inject.atoms.plain_pairs import RELATIONS, horn_rules, plain_groundings

from rulewright.errors import DataError
from rulewright.inject import ErrorTypes, RuleDecoder, error_types
from rulewright.inject.atoms.reports import Repairs
from rulewright.logic import parse_rules


@given(rules=horn_rules(3), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_counts_equal_the_definition(rules, seed):
    generator = np.random.default_rng(seed)
    gold = generator.random((4, 4, 3)) < 0.3
    gold[range(4), range(4)] = False
    decoded = RuleDecoder(rules, relations=RELATIONS)(np.where(gold, 2.0, -2.0) + generator.normal(size=(4, 4, 3)) * 2)
    before, after = decoded.before, decoded.labels

    def locate(atom):
        return atom[1], atom[2], RELATIONS.index(atom[0])

    missing, wrong = set(), set()
    for body, heads in plain_groundings(rules, 4):
        if all(before[locate(atom)] for atom in body) and not any(before[locate(atom)] for atom in heads):
            missing |= {atom for atom in heads if gold[locate(atom)]}
            wrong |= {atom for atom in body if not gold[locate(atom)]}
    found = error_types(decoded, gold, rules)
    assert found.missing_heads.count == len(missing)
    assert found.missing_heads.repaired == sum(bool(after[locate(atom)]) for atom in missing)
    assert found.wrong_bodies.count == len(wrong)
    assert found.wrong_bodies.repaired == sum(not after[locate(atom)] for atom in wrong)
    assert found.missing_heads.introduced == (after & ~before & ~gold).sum()
    assert found.wrong_bodies.introduced == (before & ~after & gold).sum()
    assert error_types((before, torch.tensor(after)), gold.astype(int), rules, relations=RELATIONS) == found


def test_documents_add_up():
    one = ErrorTypes(Repairs(1, 1, 0), Repairs(2, 0, 1))
    assert one + one == ErrorTypes(Repairs(2, 2, 0), Repairs(4, 0, 2))


def test_documents_without_pairs_have_no_errors():
    nothing = np.zeros((1, 1, 3), dtype=bool)
    rules = parse_rules("a(X, Y) :- b(X, Y).")
    assert error_types((nothing, nothing), nothing, rules, relations=RELATIONS).missing_heads == Repairs(0, 0, 0)


def test_wrong_input():
    rules = parse_rules("a(X, Y) :- b(X, Y).")
    labels = np.zeros((2, 2, 3), dtype=bool)
    with pytest.raises(DataError, match="need relations, the names of their last dimension"):
        error_types((labels, labels), labels, rules)
    with pytest.raises(DataError, match=r"one shape \[n, n, 3\], got \[2, 2, 3\] and \[3, 3, 3\]"):
        error_types((labels, labels), np.zeros((3, 3, 3)), rules, relations=RELATIONS)
    with pytest.raises(DataError, match="gold must be booleans, or numbers 0 and 1"):
        error_types((labels, labels), labels + 2, rules, relations=RELATIONS)
