"""Facts to ask about are drawn to be like those that will be asked for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import DATA, needs_data

from rulewright import datasets
from rulewright.data import KnowledgeBase
from rulewright.engine.walks import Graph
from rulewright.errors import DataError
from rulewright.evaluate.ranking import evaluate_ranking
from rulewright.learn.path_mixture.learner import PathMixture
from rulewright.learn.path_mixture.questions import LEAST, FactSampler

Triple = tuple[str, str, str]
TRIPLES = st.sets(st.tuples(*(st.sampled_from(names) for names in ("abcde", "pq", "abcde"))), min_size=1)


@settings(max_examples=60)
@given(triples=TRIPLES)
def test_a_fact_is_linked_where_another_is_about_its_entities(triples: set[Triple]) -> None:
    kb = KnowledgeBase.from_triples(sorted(triples))
    labels = [str(label) for label in kb.domains["entity"].labels]
    graph = Graph(kb)
    sampler = FactSampler(graph)
    linked = {fact for fact in triples if any({fact[0], fact[2]} == {h, t} for h, r, t in triples - {fact})}
    for index, name in enumerate(kb.predicates):
        before, after = graph.edges(2 * index)
        facts = [(labels[one], name, labels[other]) for one, other in zip(before, after, strict=True)]
        assert sampler.find_linked(before, after).tolist() == [fact in linked for fact in facts]
        assert sampler.find_linked(after, before).tolist() == [fact in linked for fact in facts]
    assert sampler.share == pytest.approx(len(linked) / len(triples))


def split(facts: list[Triple], asked: list[Triple]) -> KnowledgeBase:
    """Return a graph of facts and a split ``valid`` of what is asked."""
    every = KnowledgeBase.from_triples([*facts, *asked])
    kept, held = (every.remove([(r, h, t) for h, r, t in others]) for others in (asked, facts))
    return kept.with_splits({"valid": held})


def half_linked(asked_linked: int, asked_others: int, count: int = 800) -> KnowledgeBase:
    """Return facts p, half of all facts but those of s linked, and in valid so many of s that are and are not."""
    facts = [(f"a{i}", "p", f"b{i}") for i in range(count)]
    facts += [(f"b{i}", "q", f"a{i}") for i in range(count // 4)]
    facts += [(f"c{i}", "q", f"d{i}") for i in range(count // 4)]
    asked = [(f"a{i}", "s", f"b{i}") for i in range(asked_linked)]
    return split(facts, asked + [(f"a{i}", "s", f"d{i % 9}") for i in range(asked_others)])


def drawn_share(kb: KnowledgeBase, count: int) -> tuple[FactSampler, float, int]:
    graph = Graph(kb)
    sampler = FactSampler(graph, Graph(kb.splits["valid"]))
    drawn = sampler.draw(graph.edges(2 * kb.predicate_index("p")), count, np.random.default_rng(0))
    return sampler, float(sampler.find_linked(*drawn).mean()), len(drawn[0])


def test_as_many_linked_facts_are_drawn_as_are_asked_for() -> None:
    sampler, share, count = drawn_share(half_linked(0, 100), 500)  # of 800 facts p, 200 are linked, and 400 of all 1200
    assert sampler.share == pytest.approx(1 / 3)
    assert (share, count) == (0.0, 500)
    sampler, share, _ = drawn_share(half_linked(100, 100), 10_000)
    assert share == pytest.approx(2 / 5, abs=0.05)
    assert (
        "33% of the facts are about entities that another fact links, and 50% of those in valid" in sampler.describe()
    )
    _, share, count = drawn_share(half_linked(100, 0), 10_000)  # the linked ones are all that are like those asked for
    assert (share, count) == (1.0, 200)


def test_where_facts_are_alike_they_are_drawn_alike() -> None:
    kb = half_linked(34, 66)  # a third, as everywhere
    sampler, _, count = drawn_share(kb, 10_000)
    assert not sampler.is_matching
    assert sampler.describe() == ""
    assert count == 800
    graph = Graph(kb)
    facts = graph.edges(0)
    alike, plain = (
        each.draw(facts, 99, np.random.default_rng(7))[0].tolist() for each in (sampler, FactSampler(graph))
    )
    assert alike == plain == facts[0][np.sort(np.random.default_rng(7).permutation(800)[:99])].tolist()


@needs_data
@pytest.mark.parametrize("name", ["umls", "kinship", "wn18rr"])
def test_splits_drawn_at_random_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RULEWRIGHT_DATA", str(DATA))
    kb = datasets.load(name)
    assert not FactSampler(Graph(kb), Graph(kb.splits["valid"])).is_matching


@needs_data
def test_what_a_benchmark_leaves_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RULEWRIGHT_DATA", str(DATA))
    kb = datasets.load("fb15k237")
    sampler = FactSampler(Graph(kb), Graph(kb.splits["valid"]))
    assert sampler.share == pytest.approx(0.3777, abs=1e-4)
    assert (sampler.asked_share, sampler.linked_chance, sampler.other_chance) == (0.0, 0.0, 1.0)


def test_where_no_fact_is_like_those_asked_for_some_are_drawn() -> None:
    kb = half_linked(0, 100)
    graph = Graph(kb)
    sampler = FactSampler(graph, Graph(kb.splits["valid"]))
    facts = graph.edges(2 * kb.predicate_index("p"))
    linked = tuple(column[sampler.find_linked(*facts)] for column in facts)
    drawn = sampler.draw((linked[0], linked[1]), 500, np.random.default_rng(0))
    assert len(drawn[0]) == LEAST
    assert len(sampler.draw((linked[0], linked[1]), 7, np.random.default_rng(0))[0]) == 7


def misleading(count: int = 200) -> KnowledgeBase:
    """Return a graph in which q gives r where it links its entities, and leads elsewhere where it does not.

    What is asked for is never linked; p and then s lead to it, and to where q leads.
    """
    facts: list[Triple] = []
    asked: list[Triple] = []
    for i in range(count):
        fact = (f"x{i}", "r", f"y{i}")
        is_linked = i % 5 < 3
        facts.append((f"x{i}", "q", f"y{i}" if is_linked else f"y{(i + 1) % count}"))
        facts += [(f"x{i}", "p", f"m{i}"), (f"m{i}", "s", f"y{i}"), (f"m{i}", "s", f"y{(i + 1) % count}")]
        (asked if i % 5 == 4 else facts).append(fact)
    return split(facts, asked)


def test_weights_are_for_the_questions_that_are_asked() -> None:
    kb = misleading()
    options = {"targets": ["r"], "max_length": 2, "constants": 0, "min_valid": 1000}
    given = PathMixture(questions="as given", **options).fit(kb)
    valid = PathMixture(**options).fit(kb)
    assert given.note_ == ""
    assert "drawn to match" in valid.note_
    assert evaluate_ranking(valid, kb, "valid").mrr > evaluate_ranking(given, kb, "valid").mrr + 0.1


def test_an_unknown_choice_of_questions_is_refused() -> None:
    with pytest.raises(DataError, match="questions must be 'as valid' or 'as given'"):
        PathMixture(questions="valid")  # type: ignore[arg-type]


@pytest.mark.slow
def test_queries_in_processes_of_their_own_are_learned_alike(tmp_path: Path) -> None:
    kb = misleading(40)
    one, two = (PathMixture(max_length=2, processes=processes).fit(kb) for processes in (1, 2))
    assert list(one.learned_) == list(two.learned_)
    assert str(one.rules_) == str(two.rules_)
    PathMixture(max_length=2, processes=2, folder=tmp_path, targets=["r"]).fit(kb)
    resumed = PathMixture(max_length=2, folder=tmp_path).fit(kb)
    assert str(resumed.rules_) == str(one.rules_)
