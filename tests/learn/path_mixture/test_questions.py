"""Facts to ask about are drawn to be like those that will be asked for."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
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
def test_values_are_those_of_plain_loops(triples: set[Triple]) -> None:
    kb = KnowledgeBase.from_triples(sorted(triples))
    labels = [str(label) for label in kb.domains["entity"].labels]
    graph = Graph(kb)
    sampler = FactSampler(graph)
    for index, name in enumerate(kb.predicates):
        for inverse in (0, 1):
            before, after = graph.edges(2 * index + inverse)
            heads, tails = (after, before) if inverse else (before, after)
            facts = [(labels[one], name, labels[other]) for one, other in zip(heads, tails, strict=True)]
            for is_known in (True, False):
                rest = [triples - {fact} if is_known else triples for fact in facts]
                expected = {
                    "linked": [
                        any({h, t} == {a, b} for a, _, b in others) for (h, _, t), others in facts_of(facts, rest)
                    ],
                    "seen ahead": [any((a, p) == (h, r) for a, p, _ in o) for (h, r, _), o in facts_of(facts, rest)],
                    "seen back": [any((p, b) == (r, t) for _, p, b in o) for (_, r, t), o in facts_of(facts, rest)],
                    "facts ahead": [ends(h, others) for (h, _, _), others in facts_of(facts, rest)],
                    "facts back": [ends(t, others) for (_, _, t), others in facts_of(facts, rest)],
                }
                for what, values in expected.items():
                    found = sampler.find_values(what, 2 * index + inverse, before, after, is_known=is_known)
                    assert found.tolist() == [int(value) for value in values], what


def facts_of(facts: list[Triple], rest: list[set[Triple]]) -> list[tuple[Triple, set[Triple]]]:
    return list(zip(facts, rest, strict=True))


def ends(entity: str, facts: set[Triple]) -> int:
    """Return how many ends of facts an entity is, in powers of two; a fact about it and itself counts once less."""
    count = sum((head == entity) + (tail == entity) for head, _, tail in facts)
    return (count + 1).bit_length() - 1


def split(facts: list[Triple], asked: list[Triple]) -> KnowledgeBase:
    """Return a graph of facts and a split ``valid`` of what is asked."""
    every = KnowledgeBase.from_triples([*facts, *asked])
    kept, held = (every.remove([(r, h, t) for h, r, t in others]) for others in (asked, facts))
    return kept.with_splits({"valid": held})


def half_linked(asked_linked: int, asked_others: int, count: int = 800) -> KnowledgeBase:
    """Return facts p, a quarter of them linked, and in valid so many of p that are and are not.

    But for that all are alike: each of their entities has one fact of q beside.
    """
    facts, asked = list[Triple](), list[Triple]()
    for i in range(count + asked_linked + asked_others):
        (facts if i < count else asked).append((f"a{i}", "p", f"b{i}"))
        is_linked = i < count // 4 if i < count else i < count + asked_linked
        facts += [(f"b{i}", "q", f"a{i}")] if is_linked else [(f"b{i}", "q", f"d{i}"), (f"c{i}", "q", f"a{i}")]
    return split(facts, asked)


def drawn_share(kb: KnowledgeBase, count: int) -> tuple[FactSampler, float, int]:
    graph = Graph(kb)
    sampler = FactSampler(graph, Graph(kb.splits["valid"]))
    step = 2 * kb.predicate_index("p")
    drawn = sampler.draw(step, graph.edges(step), count, np.random.default_rng(0))
    return sampler, float(sampler.find_values("linked", step, *drawn).mean()), len(drawn[0])


def test_as_many_linked_facts_are_drawn_as_are_asked_for() -> None:
    sampler, share, count = drawn_share(half_linked(0, 100), 500)
    assert sampler.matched[0].shares.tolist() == pytest.approx([3 / 4, 1 / 4])
    assert (share, count) == (0.0, 500)
    sampler, share, _ = drawn_share(half_linked(100, 100), 10_000)
    assert share == pytest.approx(1 / 2, abs=0.05)
    assert "25% are about entities that another fact links, and 50% of valid's" in sampler.describe()
    _, share, count = drawn_share(half_linked(100, 0), 10_000)  # the linked ones are all that are like those asked for
    assert (share, count) == (1.0, 200)


def test_where_facts_are_alike_they_are_drawn_alike() -> None:
    kb = half_linked(25, 75)  # a quarter, as everywhere
    sampler, _, count = drawn_share(kb, 10_000)
    assert not sampler.matched
    assert sampler.describe() == ""
    assert count == 800
    graph = Graph(kb)
    facts = graph.edges(0)
    alike, plain = (
        each.draw(0, facts, 99, np.random.default_rng(7))[0].tolist() for each in (sampler, FactSampler(graph))
    )
    assert alike == plain == facts[0][np.sort(np.random.default_rng(7).permutation(800)[:99])].tolist()


@needs_data
@pytest.mark.parametrize("name", ["umls", "kinship", "wn18rr"])
def test_splits_drawn_at_random_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RULEWRIGHT_DATA", str(DATA))
    kb = datasets.load(name)
    assert not FactSampler(Graph(kb), Graph(kb.splits["valid"])).matched


@needs_data
def test_what_a_benchmark_leaves_out_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RULEWRIGHT_DATA", str(DATA))
    kb = datasets.load("fb15k237")
    sampler = FactSampler(Graph(kb), Graph(kb.splits["valid"]))
    (linked,) = sampler.matched
    assert linked.name == "linked" and linked.shares[1] == pytest.approx(0.1627, abs=1e-4)
    edges = sampler.graph.edges(0)
    is_linked = sampler.find_values("linked", 0, *edges)
    assert linked.asked_shares[1] == 0 and sampler.find_chances(0, *edges).tolist() == (1.0 - is_linked).tolist()


def test_where_no_fact_is_like_those_asked_for_some_are_drawn() -> None:
    kb = half_linked(0, 100)
    graph = Graph(kb)
    sampler = FactSampler(graph, Graph(kb.splits["valid"]))
    step = 2 * kb.predicate_index("p")
    facts = graph.edges(step)
    linked = tuple(column[sampler.find_values("linked", step, *facts) == 1] for column in facts)
    drawn = sampler.draw(step, (linked[0], linked[1]), 500, np.random.default_rng(0))
    assert len(drawn[0]) == LEAST
    assert len(sampler.draw(step, (linked[0], linked[1]), 7, np.random.default_rng(0))[0]) == 7


def of_newcomers(count: int = 600) -> KnowledgeBase:
    """Return facts r, half of them about entities of many facts; what is asked is about ones of few, half linked."""
    facts, asked = list[Triple](), list[Triple]()
    for i in range(count):
        facts += [(f"x{i}", f"q{k}", f"z{(i * 7 + k) % 50}") for k in range(3 if i % 2 else 9)]
        facts += [(f"x{i}", "r", f"y{i % 90}"), *([(f"y{i % 90}", "s", f"x{i}")] if i % 4 < 2 else [])]
        if i < count // 2:
            asked.append((f"n{i}", "r", f"y{i % 90}"))
            facts += [(f"n{i}", f"q{k}", f"z{(i * 3 + k) % 50}") for k in range(3)]
            facts += [(f"y{i % 90}", "s", f"n{i}")] if i % 2 else []
    return split(facts, asked)


def test_facts_are_drawn_about_entities_of_as_many_facts_as_those_asked_for() -> None:
    kb = of_newcomers()
    graph, asked = Graph(kb), Graph(kb.splits["valid"])
    sampler = FactSampler(graph, asked)
    assert [matching.name for matching in sampler.matched] == ["facts ahead"]
    assert "50% are about a first entity of 7 or more facts beside, and 0% of valid's" in sampler.describe()
    step = 2 * kb.predicate_index("r")
    plain = np.median(sampler.find_values("facts ahead", step, *graph.edges(step)))
    for inverse in (0, 1):
        edges = graph.edges(step + inverse)
        drawn = sampler.draw(step + inverse, edges, 90, np.random.default_rng(0))
        drawn_values = sampler.find_values("facts ahead", step + inverse, *drawn)
        theirs = sampler.find_values("facts ahead", step + inverse, *asked.edges(step + inverse), is_known=False)
        assert np.median(drawn_values) == np.median(theirs) < plain


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


LEARNING = """
import sys
from rulewright.data.generators import nations
from rulewright.learn.path_mixture.learner import PathMixture

if __name__ == "__main__":
    kb = nations(relations=12, seed=1).kb
    mixture = PathMixture(max_length=2, processes=int(sys.argv[1]), folder=sys.argv[2]).fit(kb)
    print(mixture.rules_, end="")
"""


@pytest.mark.slow
def test_killed_at_any_moment_it_learns_the_same(tmp_path: Path) -> None:
    program = tmp_path / "learning.py"
    program.write_text(LEARNING)
    command = [sys.executable, str(program), "2", str(tmp_path / "kept")]
    random = np.random.default_rng(0)
    for _ in range(3):
        running = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL)
        deadline, kept = time.monotonic() + 60, len(list((tmp_path / "kept").glob("*.npz")))
        while running.poll() is None and time.monotonic() < deadline:  # until more is kept, and a moment longer
            if len(list((tmp_path / "kept").glob("*.npz"))) > kept:
                time.sleep(random.random() / 2)
                break
            time.sleep(0.01)
        if running.poll() is None:
            os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    assert list((tmp_path / "kept").glob("target_*.npz"))
    resumed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    whole = [sys.executable, str(program), "1", str(tmp_path / "whole")]
    assert resumed == subprocess.run(whole, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_a_script_that_does_not_say_what_is_to_run_once_is_told(tmp_path: Path) -> None:
    program = tmp_path / "unguarded.py"
    program.write_text(LEARNING.replace('if __name__ == "__main__":', "if True:"))
    command = [sys.executable, str(program), "2", str(tmp_path / "kept")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "put what it does below `if __name__ == '__main__':`" in done.stderr
