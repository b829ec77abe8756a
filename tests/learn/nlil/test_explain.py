"""Explaining a classifier."""

from __future__ import annotations

import numpy as np
import pytest
from learn.nlil.test_learner import QUICK, scenes

from rulewright.errors import DataError, UnknownNameError
from rulewright.learn.nlil.explain import explain_classifier
from rulewright.learn.nlil.learner import NLILLearner

pytestmark = pytest.mark.slow


def test_rules_reproduce_a_model_and_not_the_truth() -> None:
    kb = scenes(40)
    # a model that calls everything above a person a halo, whatever the facts call it
    labels = kb.domains["entity"].labels
    hats = set(labels[kb.columns("hat")[0]])
    shirts = set(labels[kb.columns("shirt")[0]])
    model = {label: "halo" if label in hats else "cloth" if label in shirts else "wearer" for label in labels}
    explanation = explain_classifier(kb, model, NLILLearner(**QUICK))
    assert explanation.classes == ("cloth", "halo", "wearer")
    assert explanation.measured_on == "held out"
    assert explanation.fidelity > 0.95
    assert explanation.agreed > 0.95
    name, rules = explanation.explain("w0h0")
    assert name == "halo"
    assert rules
    assert all(rule.head.predicate == "halo" for rule in rules)
    assert str(explanation).startswith(f"{len(explanation.rules)} rules give")


def test_a_noisy_model_is_explained_as_far_as_it_is_regular() -> None:
    kb = scenes(40)
    random = np.random.default_rng(0)
    model = {label: str(random.choice(["one", "two"])) for label in kb.domains["entity"].labels}
    explanation = explain_classifier(kb, model, NLILLearner(**{**QUICK, "rounds": 1, "epochs": 5}))
    assert explanation.fidelity < 0.8


def test_predictions_that_cannot_be_explained() -> None:
    kb = scenes(3)
    with pytest.raises(DataError, match="no predictions"):
        explain_classifier(kb, {})
    with pytest.raises(UnknownNameError, match="nobody"):
        explain_classifier(kb, {"nobody": "hat"})
    with pytest.raises(DataError, match="also a relation"):
        explain_classifier(kb, {"w0p0": "wears", "w0h0": "hat"})
