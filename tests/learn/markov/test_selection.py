"""Choosing options by hidden facts."""

from __future__ import annotations

import random

import numpy as np
import pytest

import rulewright as rw
from rulewright.errors import RulewrightError
from rulewright.evaluate.classification import average_precision
from rulewright.learn.markov.learner import MarkovLogic
from rulewright.learn.markov.selection import (
    DEFAULT_OPTIONS,
    choose_for_all,
    choose_options,
    default_candidates,
    first_within_error,
    hide_facts,
    split_predicate,
    telling_predicates,
)

RULES = rw.parse_rules("1.0 parent(X, Y) => child(Y, X). 1.0 child(X, Y) => parent(Y, X).")
FACTS = [("parent", f"a{n}", f"b{n}") for n in range(8)] + [("child", f"b{n}", f"a{n}") for n in range(8)]


def test_the_first_that_is_not_told_apart_from_the_best_is_chosen():
    draw = np.random.default_rng(0)
    for _ in range(50):
        scores = [{"p": draw.random(4), "q": draw.random(3)} for _ in range(6)]
        middles = [(of["p"].sum() / 4 + of["q"].sum() / 3) / 2 for of in scores]
        top = int(np.argmax(middles))
        told_apart = []
        for of, middle in zip(scores, middles, strict=True):
            squares = 0.0
            for name, count in (("p", 4), ("q", 3)):
                short = scores[top][name] - of[name]
                squares += sum((short - short.sum() / count) ** 2) / (count - 1) / count
            told_apart.append(middles[top] - middle > squares**0.5 / 2)
        assert first_within_error(scores, {"p": np.arange(4.0), "q": np.arange(3.0)}) == told_apart.index(False)
    assert first_within_error([{"p": np.ones(2)}, {"p": np.ones(2)}], {"p": np.arange(2.0)}) == 0
    assert first_within_error([{"p": np.array([0.5])}, {"p": np.array([0.8])}], {"p": np.zeros(1)}) == 0


def test_facts_of_one_entity_count_once():
    """The same differences many times over are no better evidence."""
    draw = np.random.default_rng(3)
    for _ in range(20):
        first, second = draw.random(5), draw.random(5)
        once = first_within_error([{"p": first}, {"p": second}], {"p": np.arange(5.0)})
        often = [{"p": np.repeat(values, 50)} for values in (first, second)]
        assert first_within_error(often, {"p": np.repeat(np.arange(5.0), 50)}) == once


def test_the_mean_of_precisions_is_the_average_precision():
    draw = random.Random(1)
    builder = rw.KnowledgeBaseBuilder()
    for _ in range(25):
        builder.add(draw.choice(["parent", "child"]), [f"a{draw.randrange(6)}", f"b{draw.randrange(6)}"])
    kb = builder.build()
    problem = hide_facts(RULES, kb, "child")
    options = {"iterations": 3}
    model = MarkovLogic(RULES, **options).fit(problem.kept)
    marginals = model.predict(problem.queries)
    hidden = {args for _, args in problem.hidden.facts()}
    truth = [marginal.args in hidden for marginal in marginals]
    expected = average_precision([marginal.logit for marginal in marginals], truth)
    assert problem.precisions(options).mean() == pytest.approx(expected)


def test_facts_are_hidden_and_inferred():
    kb = rw.KnowledgeBase.from_facts(FACTS)
    kept, hidden = split_predicate(kb, "child", share=0.25)
    assert [part.count("child") for part in (kept, hidden)] == [6, 2]
    assert kept.count("parent") == 8
    problem = hide_facts(RULES, kb, "child")
    assert problem.kept.count("child") == 0 and problem.queries.count("child") == 16**2
    assert problem.precisions({"closed": "listed"}).tolist() == [1] * 8
    assert telling_predicates(RULES, kb) == ["parent", "child"]
    same = rw.KnowledgeBase.from_facts([*FACTS, ("same", "a0", "a0"), ("same", "a1", "a1")])
    named = rw.parse_rules("1.0 parent(X, Y) => !same(X, Y).")
    assert telling_predicates(named, same) == ["parent"]


def test_of_a_predicate_with_false_facts_half_stays_known():
    builder = rw.KnowledgeBaseBuilder()
    for n in range(8):
        builder.add("child", [f"b{n}", f"a{n}"], truth=n % 2 == 0)
        builder.add("parent", [f"a{n}", f"b{n}"])
    problem = hide_facts(RULES, builder.build(), "child")
    assert [problem.kept.count("child", truth=truth) for truth in (True, False)] == [2, 2]
    assert [problem.queries.count("child", truth=truth) for truth in (True, False)] == [2, 2]
    assert problem.kept.count("parent") == 8
    assert len(problem.precisions({"iterations": 2})) == len(problem.clusters(True)) == 2


def test_of_many_atoms_some_are_drawn_and_all_hidden_facts_kept():
    kb = rw.KnowledgeBase.from_facts(FACTS)
    problem = hide_facts(RULES, kb, "child", most=30)
    columns = zip(*problem.queries.columns("child"), strict=True)
    atoms = [tuple(map(int, atom)) for atom in columns]
    hidden = {tuple(map(int, atom)) for atom in zip(*problem.hidden.columns("child"), strict=True)}
    assert len(atoms) == len(set(atoms)) <= 38 and hidden <= set(atoms)


def test_a_choice_says_what_was_tried():
    kb = rw.KnowledgeBase.from_facts(FACTS)
    told: list[tuple[str, int, int]] = []
    candidates = [{"iterations": 0}, {"iterations": 5}, {"iterations": 6}]
    choice = choose_options(RULES, kb, candidates, progress=lambda *state: told.append(state))
    assert choice.options == {"iterations": 5} and not choice.skipped
    assert [tried.score for tried in choice.scores][1:] == [1, 1]
    assert dict(choice.scores[1].by_predicate) == {"parent": 1, "child": 1}
    assert told == [("choosing options", done, 3) for done in (1, 2, 3)]
    assert "iterations=5*" in str(choice) and "16 hidden facts of parent, child" in choice.reason
    both = choose_for_all({"one": (RULES, kb), "two": (RULES, kb)}, candidates)
    assert [*both.scores[0].by_predicate] == ["one parent", "one child", "two parent", "two child"]


def test_without_time_the_first_is_tried_and_the_rest_is_named():
    choice = choose_options(RULES, rw.KnowledgeBase.from_facts(FACTS), seconds=0)
    assert choice.options == DEFAULT_OPTIONS == choice.scores[0].options == default_candidates()[0]
    assert len(choice.scores) == 1 and len(choice.skipped) == len(default_candidates()) - 1
    assert "not tried after 0 s" in str(choice)


def test_where_nothing_can_be_hidden_the_first_is_taken_and_it_is_said():
    kb = rw.KnowledgeBase.from_facts([("other", "a")])
    choice = choose_options(rw.parse_rules("1.0 p(X) => q(X)."), kb)
    assert choice.options == DEFAULT_OPTIONS and not choice.scores
    assert "nothing was compared" in str(choice)


def test_queries_are_not_looked_at():
    builder = rw.KnowledgeBaseBuilder()
    for name, *args in FACTS:
        builder.add(name, args)
    for n in range(8):
        builder.add("elder", [f"a{n}", f"b{n}"], split="queries", truth=n % 2 == 0)
    kb = builder.build()
    choices = [choose_options(RULES, each, default_candidates()[:3]) for each in (kb, kb.with_splits({}))]
    assert choices[0].scores == choices[1].scores


@pytest.mark.parametrize(
    ("candidates", "message"),
    [([], "there are no candidates"), ([{"itertions": 5}], "unknown option 'itertions'; did you mean 'iterations'")],
)
def test_bad_candidates(candidates, message):
    with pytest.raises(RulewrightError, match=message):
        choose_options(RULES, rw.KnowledgeBase.from_facts(FACTS), candidates)
