from __future__ import annotations

import pytest

from rulewright.errors import DataError, UnknownNameError
from rulewright.inject.atoms.clauses import PairAtom, read_clauses, read_horn_clauses
from rulewright.logic import Rule, parse_rule, parse_rules, parse_template

NAMES = ("a", "b", "c")


def read(text, **options):
    return read_clauses(parse_rules(text), NAMES, reader="RuleDecoder", **options)


def sides(text):
    return [(clause.body, clause.heads) for clause in read(text)]


def test_a_chain():
    (clause,) = read("0.9 :: c(X, Z) :- a(X, Y), b(Z, Y).")
    assert clause.body == (PairAtom(0, 0, 1), PairAtom(1, 2, 1))
    assert clause.heads == (PairAtom(2, 0, 2),)
    assert clause.variables == ("X", "Y", "Z")
    assert clause.confidence == 0.9
    assert isinstance(clause.source, Rule)


def test_alternatives_are_clauses_of_their_own():
    assert sides("c(X, Y) :- a(X, Y) ; b(Y, X).") == sides("c(X, Y) :- a(X, Y). c(X, Y) :- b(Y, X).")


def test_hard_formulas():
    assert sides("hard a(X, Y) => b(X, Y).") == sides("b(X, Y) :- a(X, Y).")
    assert len(sides("hard a(X, Y) <=> b(Y, X).")) == 2
    assert sides("hard !(a(X, Y) & b(X, Y)).") == [((PairAtom(0, 0, 1), PairAtom(1, 0, 1)), ())]
    assert sides("hard a(X, Y) | a(Y, X).") == [((), (PairAtom(0, 0, 1), PairAtom(0, 1, 0)))]


def test_negated_body_atoms_are_heads():
    ((body, heads),) = sides("c(X, Y) :- a(X, Y), !b(X, Y).")
    assert body == (PairAtom(0, 0, 1),)
    assert set(heads) == {PairAtom(1, 0, 1), PairAtom(2, 0, 1)}


def test_duplicates_are_merged():
    text = "0.9 :: c(X, Z) :- a(X, Y), b(Y, Z). 0.9 :: c(P, R) :- b(Q, R), a(P, Q). 0.8 :: c(X, Z) :- a(X, Y), b(Y, Z)."
    assert len(read(text)) == 1
    assert [clause.confidence for clause in read(text, keep_confidences=True)] == [0.9, 0.8]
    assert len(read("hard !(a(X, Y) & b(X, Y)). hard !(b(P, Q) & a(P, Q)).")) == 1
    assert len(read("hard !(a(X, Y) & b(X, Y)). hard !(b(P, Q) & a(Q, P)).")) == 2
    assert len(read("a(X, Y) :- b(X, Y). hard b(X, Y) => a(X, Y).", keep_confidences=True)) == 1


def test_what_always_holds_is_left_out():
    assert read("a(X, Y) :- a(X, Y), b(Y, Z).") == ()
    assert sides("c(X, Y) :- a(X, Y), X != Y.") == sides("c(X, Y) :- a(X, Y).")
    assert read("c(X, Y) :- a(X, Y), X = Y.") == ()
    assert sides("hard a(X, Y) & a(X, Z) => Y = Z.") == sides("hard !(a(X, Y) & a(X, Z)).")


def test_repeated_atoms_count_once():
    assert sides("c(X, Y) :- a(X, Y), a(X, Y).") == sides("c(X, Y) :- a(X, Y).")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a(X, Y) :- d(X), b(X, Y).", r"takes relations between two entities, and d\(X\) has 1 in: a\(X, Y\)"),
        ("a(X, ann) :- b(X, Y).", r"knows entities by their index only, not the names of a\(X, ann\) in: a"),
        ("a(X, Y) :- b(X, Y), c(Y, 3).", r"not the numbers of c\(Y, 3\)"),
        ("a(X, Y) :- b(X, Y), X < Y.", "cannot decide X < Y in: a"),
        ("a(X, Y) :- b(X, Y), X = ann.", "cannot decide X = ann in: a"),
        ("a(X, X) :- b(X, Y).", r"no label for an entity with itself, as a\(X, X\) asks in: a"),
        ("2.5 a(X, Y) => b(X, Y).", "a weight is no confidence; use a LogicLayer for: 2.5"),
        ("learn a(X, Y) => b(X, Y).", "the weight is not known; use a LogicLayer for: learn"),
        ("hard X = Y | X = Z.", "no two different entities can satisfy hard"),
        ("a(X, Y) :- b(X, Y), c(X, Y) in {k}.", r"not the classes of c\(X, Y\) in \{k\} in: a"),
    ],
)
def test_what_is_refused_by_name(text, message):
    with pytest.raises(DataError, match=message):
        read(text)


def test_unknown_relations_list_near_names():
    with pytest.raises(UnknownNameError, match="unknown relation 'parent_off'; did you mean 'parent_of'"):
        read_clauses(parse_rules("parent_of(X, Y) :- parent_off(Y, X)."), ["parent_of"], reader="RuleDecoder")


def test_templates_and_other_things_are_refused():
    template = parse_template("template a(X, Y) :- ?P(X, Y) where ?P in {b}.")
    with pytest.raises(DataError, match="a template is none until a learner has filled it: template a"):
        read_clauses([template], NAMES, reader="RuleDecoder")
    with pytest.raises(DataError, match="takes rules and hard formulas, got 'a'"):
        read_clauses("a(X, Y) :- b(X, Y).", NAMES, reader="RuleDecoder")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("abc", "relations must be a sequence of names, got the string 'abc'"),
        (["a", "a"], "relations must differ, got 'a' twice"),
        ([], "relations must name at least one relation"),
        ([1], "relations must be names, got 1"),
    ],
)
def test_relations_must_be_names(names, message):
    with pytest.raises(DataError, match=message):
        read_clauses(parse_rules("a(X, Y) :- b(X, Y)."), names, reader="RuleDecoder")


@pytest.mark.parametrize(
    "text",
    [
        "hard !(a(X, Y) & b(X, Y)).",
        "hard a(X, Y) | b(X, Y).",
        "hard a(X, Y) => b(X, Z).",
        "c(X, Y) :- a(X, Y), !b(X, Y).",
        "hard a(X, Y).",
    ],
)
def test_a_loss_needs_horn_clauses(text):
    with pytest.raises(DataError, match="needs one head that follows from positive atoms; a RuleDecoder takes"):
        read_horn_clauses(parse_rules(text), NAMES, reader="ConsistencyLoss")


def test_one_rule_and_a_list_are_taken():
    rule = parse_rule("a(X, Y) :- b(X, Y).")
    assert read_clauses(rule, NAMES, reader="x") == read_clauses([rule], NAMES, reader="x")
