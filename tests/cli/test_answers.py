from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from rulewright import read_facts
from rulewright.cli import app

RULES = """
0.9 :: 'P27'(X, Y) :- 'P19'(X, Z), 'P17'(Z, Y).
0.3 :: 'P27'(X, Y) :- 'P19'(X, Y).
"""


@pytest.fixture
def graph(tmp_path):
    facts = [f"Q{n}\tP19\tC{n % 7}" for n in range(40)] + [f"C{n}\tP17\tL{n % 3}" for n in range(7)]
    facts += [f"Q{n}\tP27\tL{n % 7 % 3}" for n in range(1, 40)]
    (tmp_path / "graph.tsv").write_text("\n".join(facts) + "\n")
    (tmp_path / "graph.rules").write_text(RULES)
    (tmp_path / "labels.tsv").write_text("Q0\tAda\nP27\tcitizen of\nL0\tFrance\textra\n")
    return tmp_path


def run(*args):
    return CliRunner().invoke(app, [str(arg) for arg in args])


def test_a_question_is_answered_with_reasons(graph):
    shown = run("rank", graph / "graph.rules", graph / "graph.tsv", "P27(Q0, X)", "--labels", graph / "labels.tsv")
    assert shown.exit_code == 0, shown.output
    lines = shown.stdout.splitlines()
    assert lines[0].startswith("citizen of [P27](Ada [Q0], X)")
    assert lines[1].split() == ["1", "0.9", "France", "[L0]"]
    assert "by rule 1: 0.9 :: citizen of [P27](X, Y) :- 'P19'(X, Z), 'P17'(Z, Y)." in lines[2]
    assert "as 'P19'(Ada [Q0], 'C0'), 'P17'('C0', France [L0])" in lines[3]


def test_answers_are_json_in_both_directions(graph):
    found = run("rank", graph / "graph.rules", graph / "graph.tsv", "P27(X, L0)", "--json", "--top", 3, "--known")
    answers = json.loads(found.stdout)
    assert answers["aggregation"] == "max-plus" and len(answers["answers"]) == 3
    assert answers["answers"][0]["fact"] == "'P27'('Q0', 'L0')"
    assert answers["answers"][0]["reasons"][0]["number"] == 1
    assert answers["answers"][0]["reasons"][0]["premises"] == ["'P19'('Q0', 'C0')", "'P17'('C0', 'L0')"]
    new = json.loads(run("rank", graph / "graph.rules", graph / "graph.tsv", "P27(X, L0)", "--json").stdout)
    assert [answer["entity"] for answer in new["answers"]] == ["Q0"]
    few = run("rank", graph / "graph.rules", graph / "graph.tsv", "P27(Q0, X)", "--min-score", "0.5", "--reasons", 0)
    assert len(few.stdout.splitlines()) == 2
    none = run("rank", graph / "graph.rules", graph / "graph.tsv", "P27(L0, X)")
    assert none.exit_code == 0 and "has no answer" in none.stdout and "--known" in none.stderr


def test_an_unknown_name_has_near_ones(graph):
    wrong = run("rank", graph / "graph.rules", graph / "graph.tsv", "P27(Q00, X)")
    assert wrong.exit_code == 1 and "unknown entity 'Q00'; did you mean 'Q0'" in str(wrong.exception)
    (graph / "bad.tsv").write_text("Q0\n")
    bad = run("rank", graph / "graph.rules", graph / "graph.tsv", "P27(Q0, X)", "--labels", graph / "bad.tsv")
    assert "bad.tsv:1: expected a name and its label" in str(bad.exception)


def test_facts_are_split_and_names_stay_known(graph):
    made = run("split", graph / "graph.tsv", "--holdout", "0.1", "-o", graph / "parts", "--seed", 1)
    assert made.exit_code == 0, made.output
    whole, parts = read_facts(graph / "graph.tsv"), read_facts(graph / "parts")
    assert set(parts.splits) == {"valid", "test"} and parts.split("test").n_facts == round(0.1 * whole.n_facts)
    named = {name for _, args in parts.facts() for name in args}
    assert named == {name for _, args in whole.facts() for name in args}
    together = [fact for part in (parts, *parts.splits.values()) for fact in part.facts()]
    assert sorted(together) == sorted(whole.facts())
    again = run("split", graph / "graph.tsv", "-o", graph / "parts")
    assert again.exit_code == 1 and "choose another folder" in str(again.exception)
    others = json.loads(run("split", graph / "graph.tsv", "-o", graph / "two", "--valid", 0, "--json").stdout)
    assert set(others["files"]) == {"train", "test"}
    assert run("split", graph / "graph.tsv", "-o", graph / "no", "--holdout", 0.6).exit_code == 2
    wrong = run("split", graph / "graph.tsv", "-o", graph / "no", "--predicate", "P2")
    assert wrong.exit_code == 1 and not (graph / "no").exists()


def test_evaluate_without_a_word_learns_on_what_is_kept(graph):
    found = run("evaluate", graph / "graph.tsv", "--json")
    assert found.exit_code == 0, found.output
    figures = json.loads(found.stdout)
    assert figures["queries_of"] == "10 % of the facts, held out" and figures["questions"] == 2 * round(0.1 * 86)
    same = run("evaluate", "--holdout", 0.1, graph / "graph.tsv", "--predicate", "P27")
    assert same.exit_code == 0 and "P27" in same.stdout and "Learned in" in same.stdout
    given = run("evaluate", graph / "graph.rules", graph / "graph.tsv", "--holdout", 0.1)
    assert given.exit_code == 0 and "2 rules (max-plus)" in given.stdout
    assert run("evaluate", graph / "graph.rules", graph / "graph.tsv", "--best").exit_code == 2
    assert run("evaluate", graph / "a", graph / "b", graph / "c").exit_code == 2
