"""The published rules on real DWIE documents, with logits made from their gold labels and noise."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from inject.atoms.plain_decoder import forces
from inject.atoms.plain_pairs import plain_loss, plain_violations
from real_data import DATA, needs_data

from rulewright.inject import ConsistencyLoss, RuleDecoder, error_types
from rulewright.io.docred import read_documents
from rulewright.io.mined_rules import read_milr

pytestmark = needs_data


@pytest.fixture(scope="module")
def rules():
    return read_milr(DATA / "dwie" / "milr_mined_rules_dwie.txt")


@pytest.fixture(scope="module")
def relations():
    indices = json.loads((DATA / "dwie" / "rel2id.json").read_text(encoding="utf-8"))
    return [name for name, _ in sorted(indices.items(), key=lambda item: item[1]) if name.lower() != "na"]


@pytest.fixture(scope="module")
def documents():
    return read_documents(DATA / "dwie" / "test.json")


def gold_and_logits(document, relations, seed):
    size = len(document.entities)
    gold = np.zeros((size, size, len(relations)), dtype=bool)
    for fact in document.facts:
        gold[fact.head, fact.tail, relations.index(fact.relation)] = True
    noise = np.random.default_rng(seed).normal(scale=2.0, size=gold.shape)
    return gold, np.where(gold, 2.0, -6.0) + noise


def test_exact_equals_the_full_program(rules, relations, documents):
    small = [document for document in documents if 5 <= len(document.entities) <= 7 and document.facts][:3]
    assert small
    for seed, document in enumerate(small):
        _, logits = gold_and_logits(document, relations, seed)
        one, other = (RuleDecoder(rules, relations=relations, method=method)(logits) for method in ("exact", "full"))
        assert one.objective == pytest.approx(other.objective, rel=1e-12)
        assert np.array_equal(one.labels, other.labels)
        assert other.constraints > 50 * max(1, one.constraints)


@pytest.mark.slow
def test_exact_equals_the_full_program_where_rules_may_be_broken(rules, relations, documents):
    document = next(document for document in documents if 8 <= len(document.entities) <= 10 and document.facts)
    costs = [0.0 if index % 10 == 0 else np.inf if index % 3 == 0 else 0.1 + index / 100 for index in range(len(rules))]
    broken = 0
    for seed in (1, 2):
        _, logits = gold_and_logits(document, relations, seed)
        one, other = (
            RuleDecoder(rules, relations=relations, method=method, rule_costs=costs)(logits)
            for method in ("exact", "full")
        )
        assert one.objective == pytest.approx(other.objective, rel=1e-12)
        assert np.array_equal(one.labels, other.labels)
        assert [rule.text() for rule in one.broken] == [rule.text() for rule in other.broken]
        assert other.constraints > 50 * one.constraints
        broken += sum(rule.count for rule in one.broken)
    assert broken


def test_typical_documents_are_decoded_without_violation(rules, relations, documents):
    decoder = RuleDecoder(rules, relations=relations, tau=0.8, k=0.5, frequencies=[100] * len(relations))
    repaired = 0
    for seed, document in enumerate(documents[:12]):
        gold, logits = gold_and_logits(document, relations, seed)
        found = decoder(logits)
        assert found.optimal
        if len(gold) < 15:
            assert plain_violations(found.labels, rules, relations) == 0
            assert all(forces(change, found.labels, relations) for change in found.changes)
        repaired += error_types(found, gold, rules).missing_heads.repaired
    assert repaired > 0


def test_the_loss_equals_the_definition(rules, relations, documents):
    document = next(document for document in documents if 6 <= len(document.entities) <= 8)
    _, logits = gold_and_logits(document, relations, 0)
    for form in ("hinge", "published"):
        loss = ConsistencyLoss(rules, relations=relations, form=form)
        assert loss(torch.tensor(logits)[None]).item() == pytest.approx(
            plain_loss(logits, rules, relations, form=form), rel=1e-9
        )
