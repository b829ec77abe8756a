"""Statements in words: a phrase for every kind of name, every part of a rule named, nothing hostile let through."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from strategies import statements

from rulewright.logic import parse_formula, parse_rule, parse_statement, units
from rulewright.logic.english import english


@pytest.mark.parametrize(
    ("atom", "said"),
    [
        ("parent_of(X, Y)", "X is a parent of Y"),
        ("uncle_of(X, ann)", "X is an uncle of ann"),
        ("lives_in(X, 'New York')", "X lives in 'New York'"),
        ("bornIn(X, Y)", "X is born in Y"),
        ("isMarriedTo(X, Y)", "X is married to Y"),
        ("hasChild(X, Y)", "X has child Y"),
        ("boss_of(X, Y)", "X is a boss of Y"),
        ("near(X, Y)", "X has near Y"),
        ("in_front_of(X, Y)", "X is in front of Y"),
        ("country(X, Y)", "X has country Y"),
        ("'/location/country'(X, Y)", "X has country Y"),
        ("'http://example.org/ns#livesIn'(X, Y)", "X lives in Y"),
        ("'/a/name'(X, Y) & '/b/name'(X, Y)", "both X has '/a/name' Y and X has '/b/name' Y"),
        ("'/'(X, Y)", "X has '/' Y"),
        ("'P17'(X, Y)", "X has 'P17' Y"),
        ("male(X)", "X is male"),
        ("gave(X, Y, Z)", "gave holds of X, Y and Z"),
        ("label(T) in {'B-PER'}", "the label of T is 'B-PER'"),
        ("label(T) in {a, b, c}", "the label of T is a, b or c"),
        ("A >= 3", "A is at least 3"),
        ("!p(X)", "it is not so that X is p"),
        ("p(X) | q(X)", "X is p or X is q"),
        ("p(X) <=> q(X)", "X is p exactly if X is q"),
    ],
)
def test_phrases(atom, said):
    assert english(parse_formula(atom)) == said


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("p(X) :- q(X).", "If X is q, then X is p."),
        ("0.125 :: p(X) :- q(X), !r(X).", "If X is q and it is not so that X is r, then X is p, in 12.5 % of cases."),
        ("p(X) :- q(X), (r(X) ; s(X)).", "If X is q and either X is r or X is s, then X is p."),
        ("hard !(p(X) & q(X)).", "It always holds that it is not so that both X is p and X is q."),
        ("1.5 p(X) => q(X).", "With weight 1.5 it holds that if X is p then X is q."),
        ("learn p(X).", "To some degree, still to be learned, it holds that X is p."),
        (
            "template p(X) :- ?Q(X, Y) where ?Q in {a, b}.",
            "Find rules of the form: if ?Q holds of X and Y, then X is p; ?Q is a or b.",
        ),
    ],
)
def test_sentences(statement, said):
    assert english(parse_statement(statement)) == said


def test_phrases_of_ones_own():
    rule = parse_rule("'P17'(X, Y) :- 'P131'(X, Y).")
    assert english(rule, {"P17": "{0} is in the country {1} {9}"}) == (
        "If X has 'P131' Y, then X is in the country Y {9}."
    )


@pytest.mark.slow
@settings(max_examples=60)
@given(statements)
def test_a_sentence_is_one_printable_line_that_names_every_argument(statement):
    said = english(statement)
    assert not re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]", said)
    assert said.endswith(".")
    parts = [statement.formula] if hasattr(statement, "formula") else [statement.head, *statement.body]
    for part in parts:
        for unit in units(part):
            assert all(str(term) in said for term in unit.args)
