"""A limit of time ends learning with the best so far, and the learner says what was left undone."""

from __future__ import annotations

import re
import time

import pytest

import rulewright as rw
from rulewright.data import generators
from rulewright.errors import DataError, TimeLimitError

PATIENCE = 15
"""Seconds beyond the limit that the step in hand may take, on a machine with other work."""
TEMPLATE = "template grandparent_of(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in *, ?Q in *."


@pytest.fixture(scope="module")
def family():
    return generators.family(500, seed=1).kb


def test_nlil_ends_in_time_with_rules(family):
    began = time.monotonic()
    learner = rw.NLILLearner(targets=["aunt_of"], epochs=10_000, time_limit=6).fit(family)
    assert time.monotonic() - began < 6 + PATIENCE
    assert learner.note_ == (
        "stopped by the time limit of 6 s: aunt_of had less training than asked for; "
        "more time may give more and better rules"
    )
    assert learner.learned_["aunt_of"].is_cut
    assert len(learner.rules_) >= 1 and all(rule.confidence >= 0.3 for rule in learner.rules_.rules)


def test_nlil_says_which_targets_it_did_not_come_to(family):
    learner = rw.NLILLearner(targets=["aunt_of", "uncle_of"], time_limit=0.5).fit(family)
    assert re.search("aunt_of had less training than asked for and uncle_of had none", learner.note_)
    assert set(learner.learned_) == {"aunt_of"}


def test_nlil_of_enough_time_is_nlil_without_a_limit():
    kb = generators.even_successor(20).kb
    options = {"targets": ["even"], "levels": 0, "layers": 1, "seeds": 0, "slots": 3, "rounds": 1, "epochs": 5}
    without, within = (rw.NLILLearner(**options, time_limit=limit).fit(kb) for limit in (None, 10_000))
    assert (without.note_, within.note_) == ("", "")
    assert without.learned_["even"].n_read == within.learned_["even"].n_read > 0


@pytest.mark.slow
def test_a_folder_goes_on_after_a_limit(tmp_path):
    family = generators.family(60, seed=1).kb
    options = {"targets": ["grandparent_of"], "epochs": 3, "rounds": 2, "folder": tmp_path}
    cut = rw.NLILLearner(**options, time_limit=0.5).fit(family)
    assert cut.note_
    whole = rw.NLILLearner(**options).fit(family)
    assert whole.note_ == "" and not whole.learned_["grandparent_of"].is_cut


def test_paths_learns_the_relations_with_most_facts_first(family, tmp_path):
    options = {"max_length": 2, "constants": 0, "queries": 50}
    learner = rw.PathMixture(**options, folder=tmp_path, time_limit=1e-6).fit(family)
    relations = [name for name in family.predicates if family.predicate(name).arity == 2]
    most = max(relations, key=family.count)
    assert {str(statement.head.predicate) for statement in learner.rules_.rules} == {most}
    others = len(relations) - 1 - 4
    assert re.fullmatch(rf"stopped by the time limit of 1e-06 s: .* and {others} more had none; .*", learner.note_)
    whole = rw.PathMixture(**options, folder=tmp_path).fit(family)
    assert whole.note_ == ""
    assert str(whole.rules_) == str(rw.PathMixture(**options).fit(family).rules_)


def test_lnn_keeps_the_best_epoch_so_far(family):
    began = time.monotonic()
    learner = rw.LNNLearner(TEMPLATE, epochs=100_000, time_limit=4).fit(family)
    assert time.monotonic() - began < 4 + PATIENCE
    assert learner.note_.startswith("stopped by the time limit of 4 s: grandparent_of had less training")
    assert learner.trained_["grandparent_of"].is_cut
    assert "time limit" not in rw.LNNLearner(TEMPLATE, epochs=1).fit(family).note_


def test_lnn_whose_groundings_take_all_the_time_says_so(family):
    with pytest.raises(TimeLimitError, match="stopped after"):
        rw.LNNLearner(TEMPLATE, time_limit=1e-6).fit(family)


@pytest.mark.parametrize("make", [rw.PathMixture, rw.NLILLearner, lambda **given: rw.LNNLearner(TEMPLATE, **given)])
def test_a_limit_is_positive(make):
    with pytest.raises(DataError, match="time_limit must be > 0 or None, got 0"):
        make(time_limit=0)
