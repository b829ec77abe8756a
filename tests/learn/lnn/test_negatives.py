"""What a network is told to be false: for any arity, of the right types, and never a known fact."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rulewright as rw
from rulewright.errors import DataError
from rulewright.learn.lnn.training import draw_examples


@st.composite
def facts_to_learn(draw):
    arity, size = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    every = np.array(list(np.ndindex(*[size] * arity)))
    chosen = draw(st.lists(st.sampled_from(range(len(every))), min_size=1, max_size=12, unique=True))
    return every[chosen], size, draw(st.integers(0, 99)), draw(st.booleans())


@settings(max_examples=60, deadline=None)
@given(facts_to_learn())
def test_negatives_of_any_arity_are_all_and_only_false_facts(made):
    positives, size, seed, has_worlds = made
    arity = positives.shape[1]
    worlds = (np.arange(size) % 2).astype(np.int32) if has_worlds else None
    examples = draw_examples(
        "t",
        tuple(positives.T),
        [],
        [np.arange(size)] * arity,
        count=3,
        positions=range(arity),
        worlds=worlds,
        seed=seed,
    )
    known = set(map(tuple, positives.tolist()))
    rows = list(zip(*(column.tolist() for column in examples.columns), strict=True))
    assert rows[: len(positives)] == list(map(tuple, positives.tolist()))
    for positive, negatives in zip(rows, examples.negatives, strict=False):
        others = [
            row
            for row in np.ndindex(*[size] * arity)
            if row not in known
            and sum(one != other for one, other in zip(row, positive, strict=True)) == 1
            and (worlds is None or all(worlds[one] == worlds[other] for one, other in zip(row, positive, strict=True)))
        ]
        drawn = [rows[row] for row in negatives if row >= 0]
        assert set(drawn) <= set(others)
        if len(others) > 0 and size**arity < 10:  # with few to draw from, thirty rounds find one
            assert len(drawn) == 3


def make_unary(seed: int, people: int = 60):
    """Return facts of a, b, c, d and of ``t ← a ∧ ¬c``."""
    random = np.random.default_rng(seed)
    holds = {name: random.random(people) < share for name, share in (("a", 0.5), ("b", 0.5), ("c", 0.4), ("d", 0.3))}
    holds["t"] = holds["a"] & ~holds["c"]
    holds["known"] = np.ones(people, dtype=bool)
    return rw.KnowledgeBase.from_facts(
        (name, f"p{index}") for name, column in holds.items() for index in np.flatnonzero(column)
    )


NEGATION = "template t(X) :- ?P(X), !?Q(X) where ?P in {a, b, c, d}, ?Q in {a, b, c, d}."


@pytest.mark.parametrize("seed", range(8))
def test_a_unary_target_is_learned_from_all_entities_of_its_type_and_its_rule_has_the_negation(seed):
    kb = make_unary(seed)
    learner = rw.LNNLearner(NEGATION, epochs=60, rate=0.05).fit(kb)
    assert learner.trained_["t"].without_negatives == 0 and learner.trained_["t"].losses[0] > 0.5
    true = set(kb.tuples("t"))
    for fact in learner.predict([("t", f"p{index}") for index in range(60)]):
        assert (fact.value >= 0.5) == (fact.args in true)
    (rule,) = learner.rules_.rules
    assert rule.canonical() == rw.parse_rule("t(X) :- a(X), !c(X).").canonical()
    assert rule.annotations["disagreement"] == 0 and learner.note_ == ""
    assert rule.support == kb.count("t") and rule.annotations["body"] == kb.count("t")


def test_no_negative_at_all_is_an_error_that_says_what_to_do():
    facts = [("a", f"x{index}") for index in range(4)] + [("t", f"x{index}") for index in range(4)]
    template = "template t(X) :- ?P(X) where ?P in {a}."
    with pytest.raises(DataError, match=r"t has 4 positive examples and no negative one.*give false facts"):
        rw.LNNLearner(template).fit(rw.KnowledgeBase.from_facts(facts))
    more = rw.KnowledgeBase.from_facts([*facts, ("b", "x9")])
    assert rw.LNNLearner(template, epochs=2).fit(more).trained_["t"].without_negatives == 0
    with pytest.raises(DataError, match="corruption='type' for all entities"):
        rw.LNNLearner(template, corruption="examples").fit(more)


def test_a_condition_on_the_first_argument_is_learned():
    """Every uncle is male: among uncles alone, nothing tells so."""
    random = np.random.default_rng(0)
    facts, men = [], []
    for family in range(30):
        for child in "xy":
            sibling, parent, one = f"s{family}{child}", f"p{family}", f"c{family}{child}"
            facts += [("sibling", sibling, parent), ("parent", parent, one)]
            if sibling not in men and random.random() < 0.5:
                men.append(sibling)
        for child in "xy":
            facts += [
                ("uncle", f"s{family}{other}", f"c{family}{child}") for other in "xy" if f"s{family}{other}" in men
            ]
    facts += [("male", name) for name in men] + [("tall", f"s{family}x") for family in range(30)]
    template = """
        template uncle(X, Y) :- ?S(X), sibling(X, Z), parent(Z, Y) where ?S in {male, tall}.
    """
    kb = rw.KnowledgeBase.from_facts(facts)
    declared = rw.KnowledgeBase(kb.domains, kb.predicates.values(), kb.tables(), closed=["uncle"])
    (rule,) = rw.LNNLearner(template, corruption="closed", epochs=60, rate=0.05).fit(kb).rules_.rules
    assert rw.LNNLearner(template, epochs=60, rate=0.05).fit(declared).rules_.rules == (rule,)
    assert rule.canonical() == rw.parse_rule("uncle(X, Y) :- male(X), sibling(X, Z), parent(Z, Y).").canonical()


def test_what_has_no_crisp_rule_is_said_with_the_way_out():
    kb = make_unary(0)
    learner = rw.LNNLearner(NEGATION, epochs=1).fit(kb)
    assert not learner.rules_ and "the network of t holds no example true" in learner.note_
    assert "templates_ has its weighted form" in learner.note_ and learner.templates_.templates
    edges = [("r", f"x{index}", f"y{other}") for index in range(8) for other in range(index)]
    facts = [*edges, *(("t", f"x{index}") for index in range(3, 8)), *(("a", f"x{index}") for index in range(8))]
    counts = "template t(X) :- a(X), ?P(X, Y) where ?P in {r}. @{'P': {r: 0.2}}"
    few = rw.LNNLearner(counts, epochs=1, rate=1e-9, connectives="product", reduction="sum")
    few.fit(rw.KnowledgeBase.from_facts(facts))
    assert "no crisp rules say what the network of t says: the nearest disagree on 28.6%" in few.note_
    few.set_params(max_disagreement=0.5).fit(rw.KnowledgeBase.from_facts(facts))
    (rule,) = few.rules_.rules
    assert rule.annotations["disagreement"] == 0.286 and few.note_ == ""
