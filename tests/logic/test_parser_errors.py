"""What a person is told about text that is not in the rule language: where, what was found, what is expected."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest

from rulewright.errors import ParseError
from rulewright.logic import (
    Atom,
    Variable,
    parse_atom,
    parse_formula,
    parse_rule,
    parse_rules,
    parse_statement,
    parse_template,
)
from rulewright.logic.parser import MOST_ERRORS, read_statements

# Text, the place of the fault, and words of the message: what was found and what is expected.
FAULTS: list[tuple[str, int, int, tuple[str, ...]]] = [
    ("p(X) :- q(X).\np(X, Y) :- q(Y).", 2, 1, ("head variable X is not bound", "positive atom")),
    ("p(X) :- q(X) ; r(Y).", 1, 1, ("head variable X is not bound",)),
    ("p(X) :- !q(X).", 1, 1, ("head variable X is not bound",)),
    ("p(X) :- q(X), !r(Y).", 1, 1, ("variable Y occurs only under '!'", "positive atom")),
    ("p(X) :- q(X), Y > 3.", 1, 1, ("variable Y occurs only in a comparison",)),
    ("p(X) :- q(X), (r(Y) ; Y > 3).", 1, 1, ("variable Y occurs only in a comparison",)),
    ("p(X) :- q(X).\n\nr(X) :- q(X, X).", 3, 1, ("q has 1 arguments elsewhere and 2 here", "one arity")),
    ("predicate p(a, b).\n hard p(X).", 2, 2, ("p has 2 arguments elsewhere and 1 here",)),
    ("hard q(X, Y).\ntemplate p(X) :- ?P(X) where ?P in {q}.", 2, 1, ("q has 2 arguments elsewhere and 1 here",)),
    ("template p(X) :- ?P(X), ?P(X, X) where ?P in *.", 1, 1, ("?P has 1 arguments and 2",)),
    ("predicate p(a) in {b, c}. hard p(X) in {d}.", 1, 27, ("unknown class of p 'd'", "b, c")),
    ("predicate p(a) in {b, c}. hard p(X).", 1, 27, ("p is multi-class", "p(X) in {b}")),
    ("predicate p(a). hard p(X) in {b}.", 1, 17, ("p has no classes", "predicate p(…) in {…}")),
    ("hard p(X) in {b}. hard p(X).", 1, 19, ("p is multi-class",)),
    ("hard p(X). hard p(X) in {b}.", 1, 12, ("without 'in {…}'",)),
    ("predicate p(a).\npredicate p(b).", 2, 1, ("p is declared twice", "predicate p(a).", "predicate p(b).")),
    ("predicate p(a) in {b}.", 1, 1, ("at least two", "'b'")),
    ("predicate p(a) in {b, b}.", 1, 1, ("distinct",)),
    ("hard p(X) in {b, b}.", 1, 1, ("distinct",)),
    ("parent_of(ann, bob).", 1, 20, ("found '.'", "':-' and a body", "fact files")),
    ("0.5 :: p(a).", 1, 12, ("found '.'", "fact files")),
    ("p(X) : q(X).", 1, 6, ("found ':'", "expected ':-' or 'in'")),
    ("p(X) :- q(X)\n\n  % the end\n", 1, 13, ("found the end of the text", "'.'", "','")),
    ("p(X) :- q(X),", 1, 14, ("found the end of the text", "a name")),
    ("hard p(X).\nhard", 2, 5, ("found the end of the text", "a variable")),
    ("hard p('ann).\nhard q(X).", 1, 8, ("found 'ann).", "must end on the line")),
    ("hard p('", 1, 8, ("must end on the line",)),
    ("hard p('a\\'b).", 1, 8, ("must end on the line",)),
    ("hard p('a\nb').", 1, 8, ("must end on the line",)),
    ("hard\n p('a\\qb').", 2, 4, ("unknown escape \\q", "\\n \\t")),
    ("hard p('\\u12').", 1, 8, ("unknown escape \\u12",)),
    ("hard p('\\\n').", 1, 8, ("must end on the line",)),
    ("hard p(X) in {a, b.", 1, 19, ("found '.'", "expected ',' or '}'")),
    ("hard p(X). @{a: 1. hard q(X).", 1, 18, ("found '.'", "expected ',' or '}'")),
    ("hard p(X). @{a: 1", 1, 18, ("found the end of the text", "expected ',' or '}'")),
    ("hard p(X). @{a: 1, a: 2}", 1, 1, ("annotation a is given twice",)),
    ("hard p(X). @{a:--1}", 1, 1, ("one sign",)),
    ("hard p(X). @{a: X}", 1, 17, ("found 'X'", "quotes")),
    ("hard p(X). @[1]", 1, 13, ("found '['", "expected '{'")),
    ("closed p. @{a: 1}", 1, 11, ("found '@'", "expected the end")),
    ("hard X > 1e999.", 1, 10, ("found '1e999'", "1.79e308")),
    ("hard p(X). @{a: -1e999}", 1, 17, ("found '-1e999'",)),
    ("1e999 p(X).", 1, 1, ("found '1e999'",)),
    ("hard X > " + "9" * 350 + ".", 1, 10, ("found '99999", "400 characters")),
    ("hard X > " + "9" * 5000 + ".", 1, 10, ("found '99999", "400 characters")),
    ("0." + "3" * 5000 + " :: p(X) :- q(X).", 1, 1, ("400 characters",)),
    ("1.5 :: p(X) :- q(X).", 1, 1, ("confidence must lie in [0, 1], got 1.5",)),
    ("-0.5 :: p(X) :- q(X).", 1, 1, ("[0, 1]",)),
    ("0.5 p(X) :- q(X).", 1, 10, ("found ':-' after a weight", "'::'")),
    ("0.5 :: p(X) => q(X).", 1, 13, ("found '=>'", "':-'")),
    ("hard 0.5 :: p(X) :- q(X).", 1, 10, ("found '::'", "0.9 :: p(X) :- q(X).")),
    ("p(X) & q(X) => r(X).", 1, 6, ("found '&'", "':-'")),
    ("p(X) :- q(X) & r(X).", 1, 14, ("found '&'", "','")),
    ("p(X) :- q(X) => r(X).", 1, 14, ("found '=>'",)),
    ("hard p(X), q(X).", 1, 10, ("found ','", "'&'")),
    ("X > 3.", 1, 1, ("found 'X'", "quotes")),
    ("Parent(X) :- q(X).", 1, 1, ("found 'Parent'", "quotes")),
    ("p(X) :- Parent(X).", 1, 15, ("found '('", "'P17'(X, Y)")),
    ("p(X) :- q(X), in(X).", 1, 15, ("found 'in'", "reserved", "quotes")),
    ("p(hard) :- q(X).", 1, 3, ("found 'hard'", "reserved")),
    ("hard p(X) in {1, 2}.", 1, 15, ("found '1'", "quotes")),
    ("hard p(X) in {}.", 1, 15, ("found '}'", "a name")),
    ("p() :- q(X).", 1, 3, ("found ')'", "a name, a number or a variable")),
    ("p(X) :- .", 1, 9, ("found '.'",)),
    ("p(X) :- q(X)..", 1, 13, ("found '..'", "full stop")),
    ("p(X) :- q(X).r(X) :- q(X).", 1, 13, ("found '.r'", "full stop")),
    ("p(X) :- q(X).@{a: 1}", 1, 13, ("found '.@'", "full stop")),
    ("p(été) :- q(X).", 1, 3, ("found 'été'", "single quotes")),
    ('p("ann") :- q(X).', 1, 3, ("found '\"'", "single quotes")),
    ("p(X) :- q(X) $ r(X).", 1, 14, ("found '$'",)),
    ("hard p(\x00).", 1, 8, ("found '\\x00'",)),
    ("\x00", 1, 1, ("found '\\x00'",)),
    ("hard p(-).", 1, 8, ("found '-'",)),
    ("p(X) :- ?P(X).", 1, 1, ("?P may stand only in the body of a template",)),
    ("?P(X) :- q(X).", 1, 1, ("?P may stand only in the body of a template",)),
    ("template ?P(X) :- q(X) where ?P in *.", 1, 1, ("only in the body",)),
    ("hard ?P(X).", 1, 1, ("only in the body",)),
    ("template p(X) :- ?P(X).", 1, 1, ("?P has no domain", "where ?P in {…}")),
    ("template p(X) :- q(X) where ?P in *.", 1, 1, ("does not occur",)),
    ("template p(X) :- ?P(X) where ?P in *, ?P in {a}.", 1, 1, ("more than one domain",)),
    ("template p(X) :- ?P(X) where ?P in {a, a}.", 1, 1, ("distinct",)),
    ("template p(X) :- ?P(X) where P in *.", 1, 30, ("found 'P'", "?P")),
    ("hard " + "!" * 10_000 + "p(X).", 1, 1, ("nested too deeply",)),
    ("p(X) :- " + "(" * 10_000 + "q(X)" + ")" * 10_000 + ".", 1, 1, ("nested too deeply",)),
    ("hard p(X). @" + "{a: " * 10_000 + "1" + "}" * 10_000, 1, 1, ("nested too deeply",)),
    ("hard " + "(" * 10_000 + "p(X)", 1, 10_010, ("found the end of the text", "')'")),
    ("hard " + "p(X) => " * 10_000 + "q(X).", 1, 1, ("nested too deeply",)),
]


# What other languages write, or the other kind of statement: each is told what to write instead.
HINTS: list[tuple[str, int, int, tuple[str, ...]]] = [
    ("p(X) -> q(X).", 1, 6, ("found '->'", "'implies' is written '=>'", "needs a weight, 'hard' or 'learn'")),
    ("hard p(X) -> q(X).", 1, 11, ("found '->'; 'implies' is written '=>'",)),
    ("hard p(X) → q(X).", 1, 11, ("'implies' is written '=>'",)),
    ("hard p(X) implies q(X).", 1, 11, ("'implies' is written '=>'",)),
    ("hard p(X) ↔ q(X).", 1, 11, ("'exactly if' is written '<=>'",)),
    ("p(X) <- q(X).", 1, 6, ("found '<-'", "head :- body")),
    ("p(X) if q(X).", 1, 6, ("found 'if'", "head :- body")),
    ("if p(X) then q(X).", 1, 4, ("head :- body", "=>")),
    ("hard p(X) and q(X) => r(X).", 1, 11, ("found 'and'; 'and' is written '&' in a formula",)),
    ("p(X) :- q(X) and r(X).", 1, 14, ("'and' is written ',' in a rule's body",)),
    ("p(X) :- q(X) AND r(X).", 1, 14, ("'and' is written ',' in a rule's body",)),
    ("hard p(X) && q(X).", 1, 11, ("found '&&'", "'&'")),
    ("hard p(X) ∧ q(X).", 1, 11, ("found '∧'", "'&'")),
    ("p(X) :- q(X) | r(X).", 1, 14, ("'or' is written ';' in a rule's body",)),
    ("hard p(X) or q(X).", 1, 11, ("'or' is written '|' in a formula",)),
    ("hard p(X) || q(X).", 1, 11, ("found '||'", "'|'")),
    ("hard p(X) ∨ q(X).", 1, 11, ("found '∨'", "'|'")),
    ("hard p(X) ; q(X).", 1, 11, ("'or' is written '|' in a formula",)),
    ("hard not p(X).", 1, 10, ("'not' is written '!'",)),
    ("p(X) :- q(X), not r(X).", 1, 19, ("'not' is written '!'",)),
    ("p(X) :- q(X), not(r(X)).", 1, 20, ("'not' is written '!'",)),
    ("hard ¬p(X).", 1, 6, ("'not' is written '!'",)),
    ("hard ~p(X).", 1, 6, ("'not' is written '!'",)),
    ("~p(X).", 1, 1, ("'not' is written '!'", "needs a weight")),
    ("p(X) :- q(X), \\+ r(X).", 1, 15, ("'not' is written '!'",)),
    ("p(X) :- q(X), X == a.", 1, 17, ("found '=='; 'equal' is written '='",)),
    ("p(X) :- q(X), X =< 3.", 1, 17, ("'at most' is written '<='",)),
    ("hard X ≠ Y.", 1, 8, ("'different' is written '!='",)),
    ("dog(X) => animal(X).", 1, 8, ("a formula needs a weight, 'hard' or 'learn' before it",)),
    ("!(cat(X) & dog(X)).", 1, 1, ("a formula needs a weight, 'hard' or 'learn' before it",)),
    ("0.9 p(X) :- q(X).", 1, 10, ("confidence is followed by '::'",)),
    ("p(X) :- q(X)\nr(X) :- s(X).", 2, 1, ("found 'r' at the start of a line", "lacks its full stop")),
    ("hard p(X) => q(X)\n  hard r(X).", 2, 3, ("found 'hard' at the start of a line", "lacks its full stop")),
    ("# why.\np(X) :- q(X).", 1, 1, ("found '#'; a comment starts with '%'",)),
    ("p(X) :- q(X). // why\n", 1, 15, ("found '//'; a comment starts with '%'",)),
    ("p(X) :- q(X) @{n: 3}.", 1, 14, ("annotations follow the full stop",)),
    ("p(X) :- q(x).", 1, 1, ("head variable X is not bound", "x is a name", "upper-case")),
]


def test_all_errors_of_a_text_at_once() -> None:
    text = "p(X) :- q(X)\nr(X) -> s(X).\nhard t(X).\n# and. so\nhard t(X, Y).\nu(X) :- v(Y).\n"
    with pytest.raises(ParseError) as caught:
        parse_rules(text, file="a.rules")
    errors = caught.value.errors
    assert [(error.line, error.column) for error in errors] == [(2, 1), (2, 6), (4, 1), (5, 1), (6, 1)]
    assert errors[0] is caught.value and not caught.value.is_cut
    lines = str(caught.value).splitlines()
    assert lines[0] == f"a.rules:2:1: {caught.value.message}"
    assert lines[1:] == [str(error) for error in errors[1:]]
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value) and len(again.errors) == 5


def test_reading_ends_after_many_errors() -> None:
    with pytest.raises(ParseError) as caught:
        parse_rules("p(X).\n" * 100)
    assert len(caught.value.errors) == MOST_ERRORS and caught.value.is_cut
    assert str(caught.value).splitlines()[-1] == f"after {MOST_ERRORS} errors the rest was not read"


def test_what_stands_between_errors_is_read() -> None:
    reading = read_statements("p(X) -> q(X). hard r(X).\n// s\npredicate t(a). closed t. hard u(X)")
    assert [str(statement) for _, statement in reading.stated] == ["hard r(X)."]
    assert [begin for begin, _ in reading.declared + reading.closed] == [30, 46]
    assert [error.line for error in reading.errors] == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "line", "column", "words"), FAULTS + HINTS, ids=lambda part: str(part)[:40])
def test_fault(text: str, line: int, column: int, words: tuple[str, ...]) -> None:
    with pytest.raises(ParseError) as caught:
        parse_rules(text, file="some.rules")
    error = caught.value
    assert (error.file, error.line, error.column) == ("some.rules", line, column)
    assert str(error).startswith(f"some.rules:{line}:{column}: ")
    for word in words:
        assert word in error.message
    assert len(error.message) < 300
    assert "\n" not in error.message


def test_ten_thousand_parentheses_around_a_formula_are_no_depth() -> None:
    assert parse_formula("(" * 10_000 + "p(X)" + ")" * 10_000) == Atom("p", (Variable("X"),))


def test_nested_values_within_the_limit_can_be_used() -> None:
    deep = "!" * 90 + "p(X)"
    statement = parse_statement(f"hard {deep}.")
    assert str(statement) == f"hard {deep}."
    assert hash(statement) == hash(parse_statement(str(statement)))
    rule = parse_rule("p(X) :- " + "(q(X), " * 30 + "q(X)" + ")" * 30 + ".")
    assert parse_rule(str(rule)) == rule
    assert len(rule.canonical().body) == 31


@pytest.mark.parametrize(
    ("parse", "text", "place", "words"),
    [
        (parse_rule, "", (1, 1), "expected a rule, got 0 statements"),
        (parse_rule, "p(X) :- q(X).\n q(X) :- p(X).", (2, 2), "expected a rule, got 2 statements"),
        (parse_rule, "\n hard p(X).", (2, 2), "expected a rule, got hard p(X)."),
        (parse_rule, "closed p.", (1, 1), "expected a rule, got closed p."),
        (parse_rule, "\n\n  p(X) :- q(Y).", (3, 3), "head variable X"),
        (parse_rule, "p(X) :- q(X", (1, 12), "found the end of the text"),
        (parse_rule, "p(X)", (1, 5), "a rule needs ':-'"),
        (parse_template, "p(X) :- q(X).", (1, 1), "expected a template"),
        (parse_statement, "predicate p(a).", (1, 1), "expected a rule, weighted formula or template"),
        (parse_formula, "", (1, 1), "found the end of the text"),
        (parse_formula, "\n p(X) q(X)", (2, 7), "found 'q'"),
        (parse_formula, "p(X). q(X)", (1, 5), "found '.', expected"),
        (parse_formula, "hard p(X)", (1, 1), "found 'hard', a reserved word"),
        (parse_atom, "p(X) & q(X)", (1, 6), "found '&'"),
        (parse_atom, " X < 3", (1, 1), "expected an atom like parent_of(ann, X), got X < 3"),
        (parse_atom, "p(X) in {a}", (1, 1), "expected an atom"),
    ],
)
def test_single_values(parse: Callable[[str], object], text: str, place: tuple[int, int], words: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse(text)
    assert (caught.value.line, caught.value.column) == place
    assert words in caught.value.message
