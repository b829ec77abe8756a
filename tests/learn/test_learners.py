"""What every learner offers: parameters as scikit-learn has them, checks, and one error before fit."""

from __future__ import annotations

import inspect

import pytest
from sklearn.base import clone

import rulewright as rw
from rulewright.errors import DataError, NotFittedError, RulewrightError

TEMPLATE = "template r(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in *, ?Q in *."
FORMULAS = rw.parse_rules("learn r(X, Y) => r(Y, X).")
LEARNERS = {
    "RuleMiner": (lambda **given: rw.RuleMiner(**given), {"min_support": 3}, {"min_support": "3"}),
    "PathMixture": (lambda **given: rw.PathMixture(**given), {"max_paths": 7}, {"ways": "often"}),
    "LNNLearner": (lambda **given: rw.LNNLearner(TEMPLATE, **given), {"epochs": 3}, {"epochs": 0}),
    "NLILLearner": (lambda **given: rw.NLILLearner(**given), {"slots": 3}, {"slots": 0}),
    "MarkovLogic": (lambda **given: rw.MarkovLogic(FORMULAS, **given), {"iterations": 3}, {"damping": 2.0}),
}
every_learner = pytest.mark.parametrize(("make", "good", "bad"), LEARNERS.values(), ids=LEARNERS)


@every_learner
def test_parameters_are_explicit_and_kept_as_given(make, good, bad):
    learner = make(**good)
    parameters = inspect.signature(type(learner)).parameters
    assert all(parameter.kind is not parameter.VAR_KEYWORD for parameter in parameters.values())
    assert {name: learner.get_params()[name] for name in good} == good
    for name, parameter in parameters.items():
        assert parameter.annotation is not parameter.empty
        if name not in ("templates", "rules"):
            assert parameter.kind is parameter.KEYWORD_ONLY and parameter.default is not parameter.empty
            if name not in good:
                assert getattr(learner, name) is parameter.default


@every_learner
def test_learners_are_cloned_changed_and_shown(make, good, bad):
    learner = make(**good)
    assert clone(learner).get_params() == learner.get_params()
    assert all(name in repr(learner) for name in good)
    (name, value), *_ = good.items()
    other = make().set_params(**good)
    assert getattr(other, name) == value


@every_learner
def test_wrong_parameters_are_refused_when_made_and_when_fitted(make, good, bad):
    (name, _), *_ = bad.items()
    with pytest.raises(DataError, match=f"^{name} must .*") as error:
        make(**bad)
    assert "\n" not in str(error.value)
    changed = make().set_params(**bad)
    with pytest.raises(DataError, match=f"^{name} must"):
        changed.fit(rw.KnowledgeBase.from_triples([("a", "r", "b")]))


@every_learner
def test_before_fit_nothing_is_learned_and_facts_are_a_knowledge_base(make, good, bad):
    learner = make(**good)
    with pytest.raises(NotFittedError, match=r"has no rules_ yet: fit\(kb\) comes first"):
        _ = learner.rules_
    assert not hasattr(learner, "rules_")
    with pytest.raises(DataError, match="fit takes a KnowledgeBase, got list"):
        learner.fit([("a", "r", "b")])


def test_a_name_is_one_target_and_not_its_letters():
    kb = rw.KnowledgeBase.from_triples([(f"{c}{i}", r, f"{d}{i}") for i in range(6) for c, r, d in ("apb", "bqa")])
    for learner in (rw.RuleMiner(targets="q"), rw.PathMixture(targets="q"), rw.NLILLearner(targets="q", epochs=0)):
        heads = {rule.head.predicate for rule in learner.fit(kb).rules_.rules}
        assert heads == {"q"}, learner
    kb = rw.KnowledgeBase.from_triples([(f"a{i}", "likes", f"b{i}") for i in range(6)])
    with pytest.raises(RulewrightError, match=r"unknown predicate 'parent'"):
        rw.RuleMiner(targets="parent").fit(kb)
