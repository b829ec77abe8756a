from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import rulewright as rw
from rulewright.cli import app
from rulewright.logic import parse_rules


def texts(found, level=None):
    return [str(finding) for finding in found.findings if level in (None, finding.level)]


@settings(max_examples=40, deadline=None)
@given(st.sets(st.tuples(st.integers(0, 4), st.integers(0, 2), st.integers(0, 4)), min_size=1, max_size=30))
def test_figures_of_relations_are_those_of_a_plain_count(drawn):
    facts = [(f"e{h}", f"r{r}", f"e{t}") for h, r, t in sorted(drawn)]
    found = rw.check(rw.KnowledgeBase.from_triples(facts))
    for figures in found.predicates:
        pairs = {(h, t) for h, r, t in facts if r == figures.name}
        apart = [(h, t) for h, t in pairs if h != t]
        mirrored = sum((t, h) in pairs for h, t in apart)
        assert figures.facts == len(pairs) and figures.loops == len(pairs) - len(apart)
        assert figures.symmetric == pytest.approx(mirrored / len(apart) if apart else 0)
        assert (figures.first, figures.last) == (len({h for h, _ in pairs}), len({t for _, t in pairs}))
        assert figures.functional == (figures.first == len(pairs))
        assert figures.inverse_functional == (figures.last == len(pairs))
    named, parts = {name for h, _, t in facts for name in (h, t)}, 0
    while named:
        parts, reached = parts + 1, {min(named)}
        while True:
            more = reached | {b for h, _, t in facts for a, b in ((h, t), (t, h)) if a in reached}
            if more == reached:
                break
            reached = more
        named -= reached
    assert any("falls into" in text for text in texts(found)) == (parts > 1)
    if parts > 1:
        assert any(f"falls into {parts} parts" in text for text in texts(found))


def test_what_may_mislead_is_said():
    facts = [(f"a{n}", "parent_of", f"b{n}") for n in range(9)] + [(f"b{n}", "child_of", f"a{n}") for n in range(9)]
    facts += [(f"a{n}", "raises", f"b{n}") for n in range(8)] + [("A 1", "knows", "a_1")]
    found = rw.check(rw.KnowledgeBase.from_triples(facts))
    careful, notes = texts(found, "warning"), texts(found, "note")
    assert "2 names differ only in case, spaces or signs: A 1 = a_1" in careful
    assert any(
        "mostly facts of another: parent_of in raises (8 of 9), raises in parent_of (8 of 8)" in t for t in careful
    )
    assert any("mirrored facts of another" in text and "child_of in parent_of (9 of 9)" in text for text in notes)
    assert any("one fact, too few to learn from: knows" in text for text in notes)
    assert found.is_sound and rw.check(rw.KnowledgeBase.from_triples([("a", "r", "b"), ("b", "r", "c")])).findings == ()


def test_splits_that_leak_are_wrong():
    kb = rw.KnowledgeBase.from_triples([(f"a{n}", "r", f"b{n}") for n in range(20)] + [("c", "r", "d")])
    train, test = kb.hold_out(0.5)
    clean = rw.check(train.with_splits({"test": test}))
    assert clean.is_sound and any("no fact to learn from names" in text for text in texts(clean, "warning"))
    leaky = rw.check(train.with_splits({"test": kb, "valid": test}))
    wrong = texts(leaky, "error")
    assert len(wrong) == 2 and f"{train.n_facts} facts of test are among the facts to learn from too" in wrong[0]
    assert "facts of valid are among test too" in wrong[1]


def test_numbers_are_described():
    kb = rw.KnowledgeBase.from_facts([("age", f"p{n}", 20 + n) for n in range(6)])
    (age,) = rw.check(kb).predicates
    assert (age.lowest, age.highest, age.kind()) == (20, 25, "one value each, numbers 20 … 25")


def test_rules_are_tried_on_the_facts():
    kb = rw.KnowledgeBase.from_facts([("male", "al"), ("female", "al"), ("likes", "al", "bo"), ("likes", "bo", "cy")])
    rules = parse_rules("""
        hard !(male(X) & female(X)).
        0.5 :: likes(X, Z) :- likes(X, Y), likes(Y, Z).
        0.5 :: likes(A, C) :- likes(A, B), likes(B, C).
        0.5 :: likes(X, X) :- likes(X, dan).
        0.5 :: male(X) :- likes(X, Y), female(Y).
    """)
    found = rw.check(kb, rules)
    assert texts(found, "error") == ["the facts break a constraint 1 time: hard !(male(X) & female(X))."]
    careful = texts(found, "warning")
    assert any(text.startswith("says what 0.5 :: likes(X, Z) :- ") and "likes(A, C)" in text for text in careful)
    assert "1 name in bodies of rules that no fact has: dan in likes(X, dan)" in careful
    assert any(text.startswith("2 rules have a body that the facts never make true: likes(X, X)") for text in careful)
    unknown = rw.check(kb, parse_rules("0.5 :: likes(X, Y) :- like(Y, X). 0.5 :: male(X, Y) :- likes(X, Y)."))
    assert any("unknown predicate 'like'; did you mean 'likes'" in text for text in texts(unknown, "error"))
    assert any("male has 1 arguments in the facts and 2 in the rules" in text for text in texts(unknown, "error"))


def test_the_command_ends_with_one_where_something_is_wrong(tmp_path):
    (tmp_path / "train.tsv").write_text("a\tr\tb\nb\tr\tc\n")
    (tmp_path / "test.tsv").write_text("a\tr\tb\n")
    (tmp_path / "some.rules").write_text("0.5 :: r(X, Y) :- s(X, Y).\n")
    run = CliRunner()
    fine = run.invoke(app, ["check", str(tmp_path / "train.tsv")])
    assert fine.exit_code == 0 and "r(entity, entity)" in fine.stdout and "nothing that looks wrong" in fine.stdout
    leaky = run.invoke(app, ["check", str(tmp_path), "--json"])
    assert leaky.exit_code == 1 and json.loads(leaky.stdout)["sound"] is False
    wrong = run.invoke(app, ["check", str(tmp_path / "train.tsv"), str(tmp_path / "some.rules"), "--predicate", "r"])
    assert wrong.exit_code == 1 and "error" in wrong.stdout and "unknown predicate 's'" in wrong.stdout
