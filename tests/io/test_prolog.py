"""Prolog: what is written is read back, what Prolog cannot say is refused, and bodies are in an order it can prove."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import HOSTILE_NAMES, names, rule_sets

from rulewright import read_facts, read_rules, write_facts
from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, ParseError, RulewrightError
from rulewright.io import holds_rules, prolog, write_rules
from rulewright.io.prolog import quote_atom, unquote
from rulewright.logic import Comparison, Variable, parse_rule, parse_rules

PROGRAM = r'''
:- dynamic parent_of/2, age/2.
:- module(family, [parent_of/2]).
/* facts
   of a family */
parent_of(ann, bob). parent_of('Bob\'s', "Ann ""Lee""").  % two on a line
parent_of( bob , 'a\nb\x41\\101\' ) .
age(ann, 42). age(bob, -1.5e3). temperature(bob, -3).
0.9::child_of(X, Y) :- parent_of(Y, X).
older(X, Y) :- age(X, A), age(Y, B), A > B, \+ twin(X, Y), X \= Y ; elder(X, Y, _), elder(_, _1, _).
q(X) :- p(X), not r(X), (s(X) ; t(X, 'New York')), X =< 3, X =:= 2.0e1.
'''


def half(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def test_a_program():
    kb = prolog.parse(PROGRAM)
    assert kb.tuples("parent_of") == [("ann", "bob"), ("Bob's", 'Ann "Lee"'), ("bob", "a\nbAA")]
    assert kb.tuples("age") == [("ann", 42.0), ("bob", -1500.0)]
    assert kb.tuples("temperature") == [("bob", -3.0)]
    assert prolog.parse_rules(PROGRAM) == parse_rules("""
        0.9 :: child_of(X, Y) :- parent_of(Y, X).
        older(X, Y) :- age(X, A), age(Y, B), A > B, !twin(X, Y), X != Y ; elder(X, Y, _2), elder(_3, _1, _4).
        q(X) :- p(X), !r(X), (s(X) ; t(X, 'New York')), X <= 3, X = 20.0.
    """)


def test_files_are_told_apart(tmp_path):
    (tmp_path / "facts.pl").write_text("p(a).\n% q(X) :- p(X).\n")
    (tmp_path / "both.pl").write_text("p(a).\nq(X) :- p(X).\n")
    assert not holds_rules(tmp_path / "facts.pl")
    assert holds_rules(tmp_path / "both.pl")
    assert read_facts(tmp_path / "both.pl").tuples("p") == [("a",)]
    assert read_rules(tmp_path / "both.pl") == parse_rules("q(X) :- p(X).")


@pytest.mark.parametrize("name", [name for name in HOSTILE_NAMES if not half(name)])
def test_any_name_may_be_an_atom(name):
    assert prolog.parse(f"{quote_atom(name)}({quote_atom(name)}).").tuples(name) == [(name,)]
    if quote_atom(name) != name:
        assert unquote(quote_atom(name)) == name
        assert "\n" not in quote_atom(name)


@settings(max_examples=60)
@given(st.lists(st.tuples(names, names | st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=5))
def test_facts_come_back(tmp_path_factory, pairs):
    path = tmp_path_factory.mktemp("facts") / "a.pl"
    kb = KnowledgeBase.from_facts(
        [("p" if isinstance(other, str) else "n", one, other) for one, other in pairs if not half(f"{one}{other}")]
    )
    write_facts(kb, path)
    assert sorted(prolog.read(path).facts()) == sorted(kb.facts())


@pytest.mark.slow
@settings(max_examples=100)
@given(rule_sets())
def test_rules_come_back_up_to_order_or_are_refused(tmp_path_factory, rules):
    path = tmp_path_factory.mktemp("rules") / "a.pl"
    sayable = [
        rule for rule in rules.rules if " in {" not in str(rule) and "\\ud8" not in str(rule) and not half(str(rule))
    ]
    for rule in sayable:
        rules_of_one = parse_rules(str(rule))
        if 0 in rules_of_one.arities.values():
            continue  # a proposition is refused
        write_rules(rules_of_one, path)
        (again,) = prolog.read_rules(path).rules
        assert again.canonical() == rule.canonical()
        assert again.confidence == rule.confidence
        assert_provable(again)


def assert_provable(rule):
    """From left to right, a negation or comparison finds its variables bound."""
    for body in rule.alternatives():
        bound = set()
        for literal in body:
            variables = {term for term in literal.unit.args if isinstance(term, Variable)}
            if literal.positive and not isinstance(literal.unit, Comparison):
                bound |= variables
            else:
                assert variables <= bound


def test_a_negation_waits_for_its_variables(tmp_path):
    write_rules(parse_rules("p(X) :- !q(X), X != a, r(X)."), tmp_path / "a.pl")
    assert (tmp_path / "a.pl").read_text() == "p(X) :- r(X), \\+ q(X), X \\== a.\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hard p(X) => q(X).", "no formulas with weights"),
        ("template p(X) :- ?Q(X) where ?Q in *.", "or templates"),
        ("p(X) :- label(X) in {a}.", "Prolog has no classes"),
        ("p(X) :- q(X), rain.", "a predicate needs arguments in Prolog files here, and rain has none"),
    ],
)
def test_what_prolog_cannot_say_is_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        write_rules(parse_rules(text), tmp_path / "a.pl")
    assert not (tmp_path / "a.pl").exists()


@pytest.mark.parametrize("text", ["!p(a).", "world w. p(a).", "p(a). split test. p(b)."])
def test_facts_prolog_cannot_say_are_refused(tmp_path, text):
    from rulewright.io import facts

    with pytest.raises(DataError, match="a Prolog program has no place for"):
        write_facts(facts.parse(text), tmp_path / "a.pl")


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("p(a).\np(X).", "2:1", "a fact has no variables"),
        ("p(a)", "1:5", "found the end of the text, expected ':-' or '.'"),
        ("p([a]).", "1:3", "expected a name, a number or a variable"),
        ("p(f(a)).", "1:3", "f(…) is a structure"),
        ("p.", "1:2", "a predicate needs arguments"),
        ("p(X) :- q(X), !.", "1:15", "a cut"),
        ("p(X) :- q(X), Y is X + 1.", "1:17", "expected a comparison"),
        ("p(X) :- q(Y).", "1:1", "head variable X is not bound"),
        ("0.3::p(a).", "1:1", "a fact with a probability"),
        ("2::p(X) :- q(X).", "1:1", "confidence must lie in [0, 1]"),
        (":- initialization(main).", "1:4", "expected a directive that only announces"),
        ("/* p(a).", "1:1", "a comment that does not end"),
        ("p('a\nb').", "1:3", "a quoted name ends on the line"),
        (r"p('\q').", "1:1", r"unknown escape \q"),
        ("p(a).\np(a, b).", "2:1", "p has 1 arguments, got 2"),
        ("p(Été).", "1:6", "letters other than A–Z"),
        (f"p({'9' * 500}).", "1:1", "too large"),
    ],
)
def test_a_bad_program_is_refused_with_its_place(text, place, message):
    with pytest.raises(ParseError) as caught:
        prolog.parse(text, file="a.pl")
    assert str(caught.value).startswith(f"a.pl:{place}: ")
    assert message in str(caught.value)


def test_arities_must_agree():
    with pytest.raises(ParseError, match="one name has one arity"):
        prolog.parse_rules("p(X) :- q(X). r(X) :- q(X, Y).")


@given(st.text() | st.text("pqX(),.:-\\+'\"/*%; \n=<>_1", max_size=40))
def test_any_text_is_read_or_an_error_of_ours(text):
    for parse in (prolog.parse, prolog.parse_rules):
        try:
            parse(text)
        except RulewrightError as error:
            assert "\n" not in str(error)


def test_confidence_is_exact(tmp_path):
    rule = parse_rule("1e-07 :: p(X) :- q(X).")
    write_rules(parse_rules(str(rule)), tmp_path / "a.pl")
    assert prolog.read_rules(tmp_path / "a.pl").rules == (rule,)
