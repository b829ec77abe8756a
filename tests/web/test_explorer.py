"""What the pages show, without a browser: the same as looking through all facts, and clear words otherwise."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import rulewright as rw
from rulewright.engine import Engine
from rulewright.errors import DataError, RulewrightError, TimeLimitError
from rulewright.io import facts as fact_files
from rulewright.logic import Atom, Symbol, Variable, parse_rules
from rulewright.web import Explorer
from rulewright.web.explorer import MOST_TEXT

pytestmark = pytest.mark.slow

FACTS = """
predicate label(token) in {a, b}.
parent_of(ann, bob). parent_of(bob, cid). parent_of(bob, 'שלום'). spouse_of(ann, al). male(al). male(bob).
age(ann, 42). gave(ann, bob, cid). label(t1) in {a}. label(t2) in {b}. !male(ann).
"""
RULES = """% family
0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).
0.8 :: parent_of(X, Z) :- spouse_of(Y, X), parent_of(Y, Z). @{support: 7, body: 10, coverage: 0.5}
male(X) :- parent_of(X, Y), !spouse_of(X, al).
%off 0.1 :: spouse_of(X, Y) :- parent_of(X, Y).
1.5 male(X) => parent_of(X, X).
hard !(male(X) & spouse_of(X, X)).
"""


@pytest.fixture
def explorer(tmp_path):
    (tmp_path / "a.rules").write_text(RULES, encoding="utf-8")
    (tmp_path / "a.facts").write_text(FACTS, encoding="utf-8")
    with Explorer(tmp_path / "a.rules", tmp_path / "a.facts") as found:
        found.list_rules()
        assert found.wait(60)
        yield found


def test_the_table(explorer):
    page = explorer.list_rules()
    assert page.total == 6
    assert [row.entry.is_enabled for row in page.rows] == [True, True, True, False, True, True]
    counts = [row.counts for row in page.rows]
    assert (counts[0].support, counts[0].body, counts[0].coverage) == (0, 2, None)
    assert (counts[1].support, counts[1].body, counts[1].coverage) == (7, 10, 0.5), "what the learner wrote"
    assert (counts[2].support, counts[2].body, counts[2].counterexamples) == (2, 2, 0)
    assert counts[4] is None and "only rules" in page.rows[4].statistics
    by_support = explorer.list_rules(sort="support", descending=True)
    assert [row.entry.key for row in by_support.rows] == [1, 2, 0, 3, 4, 5]
    assert [row.entry.key for row in explorer.list_rules(sort="confidence").rows][:2] == [3, 1]
    assert [row.entry.key for row in explorer.list_rules(search="GRAND parent").rows] == [0]
    assert explorer.list_rules(search="nothing like this").rows == ()
    assert explorer.list_rules(start=4, size=4).rows[0].entry.key == 4
    assert explorer.list_rules(start=99, size=4).start == 5
    with pytest.raises(RulewrightError, match="unknown order"):
        explorer.list_rules(sort="colour")


def test_counts_are_those_of_explain_counts(explorer):
    for row in explorer.list_rules().rows[:1] + explorer.list_rules().rows[2:3]:
        rule = row.entry.statement
        if str(rule.head.predicate) in explorer.kb.predicates:
            found = rw.explain_counts(rule, explorer.kb)
            assert (found.support, found.body) == (row.counts.support, row.counts.body)


def test_cases(explorer):
    found = explorer.list_cases(0, hold=False)
    assert {str(case.head) for case in found.cases} == {"grandparent_of(ann, 'שלום')", "grandparent_of(ann, cid)"}
    assert explorer.list_cases(0, hold=True).cases == ()
    assert {str(case.head) for case in explorer.list_cases(2, hold=True).cases} == {"male(bob)"}
    first = explorer.list_cases(0, hold=False, size=1)
    assert first.more and len(first.cases) == 1
    assert not explorer.list_cases(0, hold=False, start=1, size=1).more
    with pytest.raises(DataError, match="only rules"):
        explorer.list_cases(4, hold=True)


def test_a_case_holds(explorer):
    rows = [row for row in explorer.list_rules().rows if row.counts is not None]
    for row, hold in product(rows, (True, False)):
        for case in explorer.list_cases(row.entry.key, hold=hold, size=100).cases:
            args = [term.name for term in case.head.args]
            known = case.head.predicate in explorer.kb.predicates and explorer.kb.contains(case.head.predicate, *args)
            assert known == hold


def test_editing(explorer):
    assert explorer.find_problem("male(X) :- parent_of(X, Y).", 2) == ""
    assert (
        explorer.find_problem("male(X) :- parent_of(X, Y", 2)
        == "column 26: found the end of the text, expected ')' or ','"
    )
    assert "did you mean 'parent_of'" in explorer.find_problem("male(X) :- parent_off(X, Y).", 2)
    assert "one arity" in explorer.find_problem("male(X) :- parent_of(X).", 2)
    assert "at most" in explorer.find_problem("x" * (MOST_TEXT + 1))
    assert explorer.ask("male(X)").inferred == 0, "bob is known to be male, and ann is married to al"
    explorer.edit(2, "0.5 :: male(X) :- parent_of(Y, X).")
    assert explorer.describe_status().endswith("not saved")
    assert explorer.wait(60)
    assert [(fact.args, fact.score) for fact in explorer.ask("male(X)", inferred_only=True).answers] == [
        (("cid",), 0.5),
        (("שלום",), 0.5),
    ]
    assert explorer.get_rule(2).statistics is None or explorer.get_rule(2).counts.body == 3
    explorer.set_enabled(2, False)
    assert explorer.wait(60)
    assert explorer.ask("male(X)").inferred == 0
    added = explorer.add("0.25 :: male(X) :- gave(X, _, _)")
    assert explorer.wait(60) and added.key == 6
    explorer.reload()
    assert explorer.wait(60) and len(explorer.book.entries) == 6 and "not saved" not in explorer.describe_status()


def test_a_rule_that_cannot_be_applied_is_told_and_leaves_the_rest(explorer):
    explorer.add("male(X) :- no_such_predicate(X)")
    assert explorer.wait(60)
    assert "no_such_predicate" in explorer.inference.current.error
    assert explorer.ask("male(X)").known == 2
    with pytest.raises(DataError, match="no_such_predicate"):
        explorer.explain(("male", "ann"))
    explorer.set_enabled(6, False)
    assert explorer.wait(60) and not explorer.inference.current.error


def test_rules_that_never_end_are_bounded(tmp_path):
    (tmp_path / "a.rules").write_text("next(X, Z) :- next(X, Y), next(Y, Z).\n")
    (tmp_path / "a.tsv").write_text("".join(f"n{i}\tnext\tn{i + 1}\n" for i in range(30)))
    with Explorer(tmp_path / "a.rules", tmp_path / "a.tsv", rounds=100) as explorer:
        assert explorer.wait(60)
        assert explorer.ask("next(n0, X)").total == 30
        assert explorer.explain(("next", "n0", "n4")).status == "inferred"


def test_names_are_found(explorer):
    assert explorer.search("AN") == [("entity", "ann")]
    assert explorer.search("של") == [("entity", "שלום")]
    assert explorer.search("t") == [("token", "t1"), ("token", "t2")]
    assert explorer.search("  ") == []
    assert explorer.search("zzz") == []
    assert explorer.most_mentioned() == ("entity", "bob")


def test_a_neighbourhood(explorer):
    found = explorer.find_neighbourhood("bob")
    shown = {
        (group.relation, group.outgoing): [(neighbour.name, neighbour.score) for neighbour in group.neighbours]
        for group in found.groups
    }
    assert shown == {
        ("parent_of", False): [("ann", None), ("al", 0.8)],
        ("parent_of", True): [("cid", None), ("שלום", None)],
    }
    assert sorted(fact.predicate for fact in found.others) == ["gave", "male"]
    assert (found.known, found.inferred) == (5, 1)
    assert explorer.find_neighbourhood("bob", min_score=0.85).inferred == 0
    assert explorer.find_neighbourhood("bob", inferred=False).inferred == 0
    assert explorer.find_neighbourhood("bob", containing="GAV").groups == ()
    assert explorer.find_neighbourhood("bob", per_relation=1).groups[1].hidden == 1
    assert explorer.find_neighbourhood("bob", relations=1, skip=1).groups == ()
    with pytest.raises(RulewrightError, match="unknown entity 'bo'; did you mean 'bob'"):
        explorer.find_neighbourhood("bo")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("parent_of(X, bo)", "unknown entity 'bo'; did you mean 'bob'"),
        ("parent_off(X, bob)", "did you mean 'parent_of'"),
        ("parent_of(X)", "parent_of has 2 arguments, got 1"),
        ("parent_of(X, 3)", "3 must be a name; quote it"),
        ("age(X, ann)", "ann must be a number"),
        ("label(X)", "label has classes; write label(X) in {a}"),
        ("male(X) in {a}", "male has no classes; write male(X)"),
        ("parent_of(X, Y) & male(X)", "expected a pattern"),
        ("parent_of(X, ", "found the end of the text"),
        ("", "found the end of the text"),
        ("?P(X, Y)", "unknown predicate"),
        ("p" * 9_999, "at most 5,000 are read"),
    ],
)
def test_a_bad_pattern_is_explained(explorer, pattern, message):
    with pytest.raises(RulewrightError) as caught:
        explorer.ask(pattern)
    assert message in str(caught.value)


def test_answers(explorer):
    page = explorer.ask("parent_of(X, Y)")
    assert [answer.is_known for answer in page.answers] == [True] * 3 + [False] * len(page.answers[3:])
    assert (page.known, page.inferred, page.total) == (3, 1, 4)
    assert [answer.args for answer in explorer.ask("parent_of(X, Y)", start=2, size=1).answers] == [("bob", "שלום")]
    assert [answer.args for answer in explorer.ask("parent_of(X, Y)", start=3, size=1).answers] == [("al", "bob")]
    assert explorer.ask("parent_of(X, X)").total == 0
    assert explorer.ask("age(X, 42)").known == 1
    assert explorer.ask("label(X) in {a, b}").known == 2
    assert explorer.ask("gave(X, bob, Y)").answers[0].args == ("ann", "bob", "cid")
    assert explorer.ask("parent_of(X, Y)", start=10**9).answers == ()


def test_proofs(explorer):
    found = explorer.explain(("parent_of", "al", "bob"))
    assert found.status == "inferred" and found.score == 0.8
    assert explorer.rule_key(found.proofs[0].rule_index) == 1
    assert explorer.explain(("parent_of", "cid", "ann")).status == "unknown"
    assert explorer.rule_key(None) is None and explorer.rule_key(99) is None


triples = st.lists(
    st.tuples(st.sampled_from("abcd"), st.sampled_from("pqr"), st.sampled_from("abcd")), min_size=1, max_size=12
)
PROGRAM = "0.5 :: p(X, Z) :- q(X, Y), r(Y, Z). 0.7 :: p(X, Y) :- q(Y, X). 0.25 :: q(X, Y) :- r(X, Y), X != Y."


@settings(max_examples=5)
@given(triples, st.sampled_from("pqr"), st.sampled_from("aXY"), st.sampled_from("bXY"))
def test_answers_and_neighbours_are_those_of_a_plain_search(tmp_path_factory, graph, name, left, right):
    folder = tmp_path_factory.mktemp("graph")
    kb = fact_files.parse(
        "".join(f"{relation}({head}, {tail}). " for head, relation, tail in graph) + "p(a, b). q(a, b). r(a, b)."
    )
    fact_files.write(kb, folder / "a.facts")
    (folder / "a.rules").write_text(PROGRAM)
    inferred = {(fact.predicate, fact.args): fact.score for fact in rw.apply(parse_rules(PROGRAM), kb, max_rounds=1)}
    everything = {**inferred, **dict.fromkeys(kb.facts())}
    terms = [Symbol(letter) if letter.islower() else Variable(letter) for letter in (left, right)]
    with Explorer(folder / "a.rules", folder / "a.facts") as explorer:
        assert explorer.wait(60)
        page = explorer.ask(str(Atom(name, tuple(terms))), size=1000)
        wanted = {
            args: score
            for (predicate, args), score in everything.items()
            if predicate == name
            and all(value == term.name for value, term in zip(args, terms, strict=True) if isinstance(term, Symbol))
            and (terms[0] != terms[1] or args[0] == args[1])
        }
        assert {answer.args: answer.score for answer in page.answers} == wanted
        scores = [2.0 if answer.score is None else answer.score for answer in page.answers]
        assert scores == sorted(scores, reverse=True)
        found = explorer.find_neighbourhood("a", per_relation=1000, relations=1000)
        near = [
            (group.relation, group.outgoing, neighbour.name, neighbour.score)
            for group in found.groups
            for neighbour in group.neighbours
        ]
        expected = [
            (relation, True, tail, score) for (relation, (head, tail)), score in everything.items() if head == "a"
        ]
        expected += [
            (relation, False, head, score)
            for (relation, (head, tail)), score in everything.items()
            if tail == "a" and head != "a"
        ]
        assert sorted(near, key=repr) == sorted(expected, key=repr)


def test_a_question_that_takes_too_long_is_stopped_and_the_next_is_answered():
    kb = rw.KnowledgeBase.from_triples((f"n{i}", "p", f"n{j}") for i in range(120) for j in range(120))
    body = parse_rules("q(A, E) :- p(A, B), p(C, B), p(C, D), p(E, D), p(E, F), A != F.").rules[0].body
    with Engine(kb) as engine:
        with pytest.raises(TimeLimitError, match=r"stopped after 0\.2 s"), engine.time_limit(0.2):
            engine.count(body)
        with engine.time_limit(60):
            assert engine.count(body[:1]) == 120 * 120
