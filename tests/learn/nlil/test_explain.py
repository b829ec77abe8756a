"""Explaining a classifier."""

from __future__ import annotations

import numpy as np
import pytest
from learn.nlil.test_learner import QUICK, scenes

from rulewright.errors import DataError, UnknownNameError
from rulewright.learn.nlil.explain import explain_classifier


def test_rules_reproduce_a_model_and_not_the_truth() -> None:
    kb = scenes(40)
    # a model that calls everything above a person a halo, whatever the facts call it
    labels = kb.domains["entity"].labels
    hats = set(labels[kb.columns("hat")[0]])
    shirts = set(labels[kb.columns("shirt")[0]])
    model = {each: "halo" if each in hats else "cloth" if each in shirts else "wearer" for each in labels}
    found = explain_classifier(kb, model, **QUICK)
    assert found.classes == ("cloth", "halo", "wearer")
    assert found.measured_on == "held out"
    assert found.fidelity > 0.95
    assert found.agreed > 0.95
    name, rules = found.of("w0h0")
    assert name == "halo"
    assert rules
    assert all(rule.head.predicate == "halo" for rule in rules)
    assert str(found).startswith(f"{len(found.rules)} rules give")


def test_a_noisy_model_is_explained_as_far_as_it_is_regular() -> None:
    kb = scenes(40)
    random = np.random.default_rng(0)
    model = {each: str(random.choice(["one", "two"])) for each in kb.domains["entity"].labels}
    found = explain_classifier(kb, model, **{**QUICK, "rounds": 1, "epochs": 5})
    assert found.fidelity < 0.8


def test_predictions_that_cannot_be_explained() -> None:
    kb = scenes(3)
    with pytest.raises(DataError, match="no predictions"):
        explain_classifier(kb, {})
    with pytest.raises(UnknownNameError, match="nobody"):
        explain_classifier(kb, {"nobody": "hat"})
    with pytest.raises(DataError, match="also a relation"):
        explain_classifier(kb, {"w0p0": "wears", "w0h0": "hat"})
