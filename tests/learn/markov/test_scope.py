"""What part of a world is inferred: the same figures over candidates as over all atoms, and what is said about it."""

from __future__ import annotations

import pytest
from learn.markov.test_markov import RULES, chain, small

import rulewright as rw
from rulewright.errors import DataError, MemoryLimitError, TimeLimitError
from rulewright.learn.markov.learner import MarkovLogic

TRANSITIVE = rw.parse_rules("1.0 friend(X, Y) & friend(Y, Z) => friend(X, Z).")


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("closed", [(), ("lives",)])
@pytest.mark.parametrize("form", [{}, {"messages": "mean", "draws": 5, "observed_odds": 3.0}])
def test_candidates_that_are_all_atoms_are_the_dense_run(seed, closed, form):
    kb = small(seed)
    asked = ["smokes", "friend", *([] if closed else ["lives"])]
    options = {"closed": closed, "prior": {"smokes": -0.3, "friend": 0.2, "lives": -1.0}, "iterations": 4, **form}
    dense = MarkovLogic(RULES, **options, grounding="dense").fit(kb)
    sparse = MarkovLogic(RULES, **options, grounding="sparse").fit(kb)
    wanted = {str(marginal): marginal.logit for marginal in dense.predict(asked)}
    found = {str(marginal): marginal.logit for marginal in sparse.predict(asked)}
    assert found == pytest.approx(wanted, abs=1e-4)
    assert (dense.scopes_[0].way, sparse.scopes_[0].way) == ("dense", "sparse")
    assert sum(sparse.scopes_[0].resting.values()) == (
        8 - kb.count("lives") - kb.count("lives", truth=False) if closed else 0
    )


def test_without_messages_an_atom_keeps_its_potential_and_facts_are_certain():
    kb = chain(6)
    marginals = (
        MarkovLogic(TRANSITIVE, iterations=0, prior=-2.0, grounding="sparse")
        .fit(kb)
        .predict([("friend", "p0", "p1"), ("friend", "p0", "p5")])
    )
    assert [marginal.logit for marginal in marginals] == pytest.approx([10_000.0, -2.0])


def test_what_does_not_fit_is_inferred_over_candidates_and_said():
    kb = chain(300)
    model = MarkovLogic(TRANSITIVE, memory_limit=2**20, prior=-5.0).fit(kb)
    marginals = model.predict([("friend", "p0", "p2"), ("friend", "p7", "p250")])
    (scope,) = marginals.scopes
    assert scope.way == "sparse"
    assert scope.entities == {"entity": (300, 300)}
    # Facts, what two of them reach, what is asked for besides, and what that reaches with a fact on either side
    assert scope.candidates["friend"] == 299 + 298 + 1 + 3
    assert scope.candidates["friend"] + scope.resting["friend"] == 300 * 300
    assert "rest, as all atoms need" in str(scope)
    assert any("friend" in pull for pull in scope.pulls)
    assert marginals[0].args == ("p0", "p2")
    farther = MarkovLogic(TRANSITIVE, memory_limit=2**20, prior=-5.0, hops=2).fit(kb)
    farther.predict([("friend", "p0", "p2")])
    assert farther.scopes_[0].candidates["friend"] > scope.candidates["friend"]


def test_work_above_the_limits_is_refused_before_it_starts():
    kb = chain(300)
    with pytest.raises(MemoryLimitError, match=r"all atoms would take .* take grounding='auto' for candidate atoms"):
        MarkovLogic(TRANSITIVE, memory_limit=2**20, grounding="dense").fit(kb).predict(["friend"])
    with pytest.raises(TimeLimitError, match=r"all atoms would take about .* raise time_limit"):
        MarkovLogic(TRANSITIVE, time_limit=1e-6).fit(kb).predict([("friend", "p0", "p2")])
    with pytest.raises(MemoryLimitError, match="scaling='messages' needs all atoms"):
        MarkovLogic(TRANSITIVE, memory_limit=2**20, scaling="messages").fit(kb)


def test_samples_are_taken_only_where_asked_for_and_said():
    kb = chain(40)
    model = MarkovLogic(TRANSITIVE, sample=9, prior=-1.0).fit(kb)
    marginals = model.predict([("friend", "p0", "p2"), ("friend", "p7", "p30")])
    assert marginals.scopes[0].way == "sampled"
    assert marginals.scopes[0].entities == {"entity": (9, 40)}
    assert "inferred samples of 9 of 40 of entity, sample=9" in str(marginals.scopes[0])


def test_what_is_asked_for_is_not_closed_because_it_is_listed():
    kb = rw.KnowledgeBase.from_facts([("friend", "ann", "bob"), ("smokes", "ann")])
    rules = rw.parse_rules("2.0 smokes(X) & friend(X, Y) => smokes(Y).")
    model = MarkovLogic(rules, closed="listed", prior=-1.0).fit(kb)
    assert {str(marginal): marginal.logit > -1.5 for marginal in model.predict(["smokes"])} == {"smokes(bob)": True}
    assert len(model.predict(["friend"])) == 3
    named = MarkovLogic(rules, closed=["smokes", "friend"], prior=-1.0).fit(kb)
    with pytest.raises(DataError, match="there are no queries"):
        named.predict(["smokes"])


def test_classes_over_candidates():
    kb_rules = """
        predicate label(token) in {b, i, o}.
        predicate next(token, token).
        2.0 label(T) in {b} & next(T, U) => label(U) in {i}.
        closed next.
    """
    rules = rw.parse_rules(kb_rules)
    builder = rw.data.KnowledgeBaseBuilder(rules.predicates)
    for index in range(5):
        builder.add("next", [f"t{index}", f"t{index + 1}"])
    builder.add("label", ["t0"], value="b")
    kb = builder.build()
    found = [
        {str(marginal): marginal.logit for marginal in MarkovLogic(rules, grounding=way).fit(kb).predict(["label"])}
        for way in ("dense", "sparse")
    ]
    assert found[0] == pytest.approx(found[1], abs=1e-5)
    assert max(found[1], key=lambda atom: found[1][atom] if "t1" in atom else -99) == "label(t1) in {i}"
