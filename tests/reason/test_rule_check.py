"""What is told of rules by themselves, and of rules beside facts; contradictions beside a plain search."""

from __future__ import annotations

import json
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import rulewright as rw
from rulewright.cli import app
from rulewright.errors import DataError
from rulewright.logic import parse_rules
from rulewright.reason.rule_check import MOST_ALIKE, _is_satisfiable, check_rules


def told(text, kb=None):
    return [(finding.line, finding.column, finding.level, str(finding)) for finding in check_rules(text, kb)]


@pytest.mark.parametrize(
    ("text", "place", "level", "words"),
    [
        ("hard p(X).\n q(X) -> p(X).", (2, 7), "error", "found '->'; 'implies' is written '=>'"),
        ("hard p(X). hard p(X, Y).", (1, 12), "error", "p has 1 arguments elsewhere and 2 here"),
        ("p(X) :- q(Y).", (1, 1), "error", "head variable X is not bound"),
        ("hard dog(x) => animal(x).", (1, 1), "warning", "the name x stands where a variable may be meant"),
        ("pet(X) :- dog(X, y).", (1, 1), "warning", "write Y for a variable"),
        ("hard dog(pet) => animal(pet).", (1, 1), "note", "a variable starts upper-case: Pet"),
        ("hard not(rain).", (1, 1), "warning", "not is a predicate here; 'not' is written '!'"),
        ("predicate p(a). hard q(X).", (1, 17), "warning", "q is used and not declared, as others are"),
        ("predicate p(a). predicate q(a). hard q(X).", (1, 1), "note", "p is declared and not used"),
        ("closed firend. hard friend(X).", (1, 1), "warning", "firend is closed and not used; did you mean friend?"),
        ("hard animal(X).\nhard !animal(Y) | pet(Y).\nhard animl(X).", (3, 1), "note", "did you mean animal?"),
        ("p(X) :- q(X), p(X).", (1, 1), "warning", "the rule says nothing: its head stands in its body"),
        ("p(X) :- q(X), !q(X).", (1, 1), "warning", "a body that can never hold"),
        ("2 p(X) | !p(X).", (1, 1), "warning", "the formula says nothing: it always holds"),
        ("hard p(X) => q(Y).", (1, 1), "note", "2 variables stand once in a formula: X, Y"),
        ("p(X) :- q(X, Y).\np(A) :- q(A, B).", (2, 1), "warning", "says what line 1 does"),
        ("hard p(X).\n2 p(Y).", (2, 1), "warning", "says what line 1 does"),
        ("p(X) :- q(X).\n0.9 :: p(X) :- q(X), r(X).", (2, 1), "warning", "follows from line 1, which asks for less"),
        ("hard p(X).\nhard q(X).\nhard !p(Y).", (1, 1), "error", "hard formulas that cannot all hold: line 1, line 3"),
        ("hard p(X) & !p(X).", (1, 1), "error", "the hard formula can never hold"),
        (
            "hard cat(X) => pet(X).\nhard cat(X) => wild(X).\nhard !(pet(X) & wild(X)).",
            (1, 1),
            "warning",
            "cat can hold of nothing, by line 1, line 2, line 3",
        ),
        (
            "predicate t(a) in {b, i, o}. predicate p(a).\nhard t(X) in {b} => p(X).\nhard p(X) => !(t(X) in {b, i}).",
            (2, 1),
            "warning",
            "t in {b} can hold of nothing, by line 2, line 3",
        ),
        ("hard rain => wet. hard !wet. hard rain.", (1, 1), "error", "cannot all hold"),
    ],
)
def test_what_is_found(text, place, level, words):
    assert any((line, column, found) == (*place, level) and words in says for line, column, found, says in told(text))


@pytest.mark.parametrize(
    "text",
    [
        "0.9 :: p(X, Z) :- p(X, Y), p(Y, Z). p(X, Y) :- p(Y, X).",
        "0.5 :: p(X) :- q(X). 0.9 :: p(X) :- q(X), r(X).",  # the special rule is the more certain one
        "hard !(male(X) & female(X)). hard person(X) => male(X) | female(X).",
        "hard !r(X, X). hard r(X, Y) => r(Y, X).",
        "hard p(X) & q(Y) => X != Y. hard p(ann).",
        "2 smokes(X) & friend(X, Y) => smokes(Y).",
        "predicate rain. hard !rain | rain & _X = _X.",
    ],
)
def test_what_is_right_is_left_alone(text):
    assert [finding for finding in check_rules(text) if finding.level != "note"] == []


@settings(max_examples=300, deadline=None)
@given(st.lists(st.frozensets(st.tuples(st.sampled_from("abcde"), st.booleans()), max_size=3), max_size=14))
def test_contradictions_beside_a_plain_search(drawn):
    clauses = [
        frozenset(((name, ""), sign) for name, sign in clause)
        for clause in drawn
        if not any((name, not sign) in clause for name, sign in clause)
    ]
    names = [(name, "") for name in "abcde"]
    worlds = (dict(zip(names, signs, strict=True)) for signs in product((False, True), repeat=5))
    holds = any(all(any(world[name] == sign for name, sign in clause) for clause in clauses) for world in worlds)
    assert _is_satisfiable(clauses) == holds


def test_facts_know_names_and_predicates():
    kb = rw.KnowledgeBase.from_facts([("dog", "x"), ("likes", "x", "y")])
    assert told("hard dog(x).", kb) == [] and told("hard dog(x).")[0][2] == "warning"
    (finding,) = check_rules("hard dog(X).\npet(X) :- dgo(X).", kb, file="a.rules")
    assert finding.as_record() == {
        "file": "a.rules",
        "line": 2,
        "column": 1,
        "level": "error",
        "message": "in rules, unknown predicate 'dgo'",
        "hint": "did you mean 'dog'?",
    }
    assert "dog has 1 arguments in the facts and 2 in the rules" in told("hard dog(X, Y).", kb)[-1][3]
    assert told("hard !dog(X).", kb) == [(1, 1, "error", "the facts break a constraint 1 time: hard !dog(X).")]


def test_rule_sets_have_no_lines_and_findings_are_capped():
    found = check_rules(parse_rules("p(X) :- q(X). p(Y) :- q(Y)."))
    assert [(finding.line, str(finding)) for finding in found] == [
        (None, "says what p(X) :- q(X). does, in: p(Y) :- q(Y).")
    ]
    many = check_rules("".join(f"hard p{n}(x).\n" for n in range(50)))
    assert len(many) == MOST_ALIKE + 1 and "30 more like the one above" in str(many[-1])
    assert rw.check(rules="hard p(X).").is_sound and not rw.check(rules="p(X).").is_sound
    with pytest.raises(DataError, match="nothing to check"):
        rw.check()


def test_the_command_checks_a_rule_file(tmp_path):
    rules, facts = tmp_path / "some.rules", tmp_path / "a.tsv"
    rules.write_text("p(X, Y) :- q(X, Y)\nq(X, Y) -> p(X, Y).\n0.9 :: p(X, Y) :- q(Y, X).\n")
    facts.write_text("a\tq\tb\n")
    run = CliRunner()
    shown = run.invoke(app, ["check", str(rules)])
    assert shown.exit_code == 1
    lines = shown.stdout.splitlines()
    assert lines[0].startswith(f"{rules}:2:1: error: found 'q' at the start of a line")
    assert lines[1].startswith(f"{rules}:2:9: error: found '->'") and lines[-1] == "2 errors"
    listed = json.loads(run.invoke(app, ["check", str(rules), str(facts), "--json"]).stdout)
    assert [(entry["line"], entry["column"], entry["level"]) for entry in listed] == [(2, 1, "error"), (2, 9, "error")]
    assert set(listed[0]) == {"file", "line", "column", "level", "message", "hint"}
    rules.write_text("0.9 :: p(X, Y) :- q(Y, X).\n")
    fine = run.invoke(app, ["check", str(rules), str(facts)])
    assert fine.exit_code == 0 and fine.stdout == "nothing that looks wrong\n"
    assert run.invoke(app, ["check", str(rules), "--limit", "3"]).exit_code == 2
    (tmp_path / "plain.txt").write_text("hard p(X) => q(X).\n")
    assert run.invoke(app, ["check", str(tmp_path / "plain.txt")]).stdout == "nothing that looks wrong\n"
