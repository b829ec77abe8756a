"""Whatever text it is given, the parser answers with rules or a ParseError, and quickly."""

from __future__ import annotations

import random
import time

import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.errors import ParseError
from rulewright.logic import RuleSet, parse_atom, parse_formula, parse_rules, parse_statement

pytestmark = pytest.mark.slow

EXAMPLES = """\
predicate spouse_of(person, person).
predicate label(token) in {'B-PER', 'E-PER', o}.  % classes in order
closed friend.
0.99 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z). @{support: 120, body: 121, pca: 0.99, coverage: 0.2}
-2.5 smoke(X) & friend(X, Y) => smoke(Y).
learn smoke(X) => cancer(X) | X != _.
hard label(T) in {'B-PER'} & next(T, U) <=> label(U) in {'E-PER'}.
0.8 :: person(X) :- wearing(X, Y), shirt(Y) ; walking_on(X, Z), street(Z).
p(X) :- q(X, 'it\\'s'), !(r(X), X > -3.5e2). @{a: [1, {b: 'c'}], d: true}
predicate weather in {sun, rain}.
0.9 :: wet :- weather in {rain}, !covered.
template s(X, Z) :- ?P(X, Y), ?Q(Y, Z) ; ?O(X, Z) where ?P in {a, b}, ?Q in {c}, ?O in *.
"""
PIECES = (
    *(
        "p",
        "q(X)",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        ",",
        ";",
        ".",
        ". ",
        ":-",
        "::",
        ":",
        "@",
        "@{",
        "!",
        "!=",
        "&",
        "|",
    ),
    *(
        "=>",
        "<=>",
        "<",
        ">",
        "=",
        "*",
        "?P",
        "?",
        "X",
        "_",
        "'",
        "\\",
        "'a'",
        "%",
        "\n",
        " ",
        "-",
        "0.5",
        "1e9",
        "3.",
    ),
    *("hard ", "learn ", "template ", "predicate ", "closed ", " where ", " in ", "é", "\x00", "\u2028", "\ud800"),
)


def read(text: str) -> RuleSet | None:
    try:
        return parse_rules(text)
    except ParseError:
        return None


@given(st.text())
def test_any_text(text: str) -> None:
    for parse in (parse_rules, parse_statement, parse_formula, parse_atom):
        try:
            parse(text)
        except ParseError as error:
            assert error.line is not None and 1 <= error.line <= text.count("\n") + 1
            assert error.column is not None and error.column >= 1


@given(st.lists(st.sampled_from(PIECES), max_size=25).map("".join))
def test_pieces_of_the_language(text: str) -> None:
    rules = read(text)
    assert rules is None or parse_rules(str(rules)) == rules


def test_mutated_text() -> None:
    source = random.Random(11)
    readable = 0
    for _ in range(1500):
        characters = list(EXAMPLES)
        for _ in range(source.randint(1, 3)):
            at = source.randrange(len(characters))
            match source.randrange(3):
                case 0:
                    del characters[at : at + source.randint(1, 5)]
                case 1:
                    characters.insert(at, source.choice(PIECES))
                case 2:
                    start = source.randrange(len(characters))
                    characters[at:at] = characters[start : start + 20]
        mutated = "".join(characters)
        rules = read(mutated)
        if rules is not None:
            readable += 1
            assert parse_rules(str(rules)) == rules
    assert readable > 50


@settings(max_examples=50)
@given(strategies.rule_sets(), st.integers(0, 2000))
def test_text_cut_short(rules: RuleSet, length: int) -> None:
    read(str(rules)[:length])


@pytest.mark.parametrize(
    "text",
    [
        "'" * 200_001,
        "'\\" + "\\'" * 200_000,
        ("'" + "a" * 50 + "\n") * 4_000,
        " " * 1_000_000,
        "hard p(X)." + " " * 1_000_000,
        "%" * 1_000_000,
        "%\n" * 100_000,
        "." * 100_000,
        ". " * 100_000,
        "{" * 100_000,
        "@{" * 100_000,
        "hard p(X). " + "@{" * 100_000,
        "hard p('" + "a" * 1_000_000 + "').",
        "hard p(X). @{a: '" + "\\n" * 100_000 + "'}",
        "a" * 1_000_000,
        "9" * 1_000_000,
        "1." * 100_000,
        "(" * 100_000,
        "hard " + "!" * 100_000,
        "hard " + "p(X) & " * 10_000 + "p(X).",
        "hard p(" + "X, " * 20_000 + "X).",
        "p(X) :- " + "(q(X) ; r(X)), " * 2_000 + "q(X).",
        "p(X) :- q(X), " + "!(q(X), r(X)), " * 2_000 + "q(X).",
        "p(X) :- " + ", ".join(f"q(X, Y{number})" for number in range(5_000)) + ".",
        "hard p(_" + ", _" * 20_000 + ").",
    ],
    ids=lambda text: f"{text[:20]!r} and more",
)
def test_long_text_is_read_in_linear_time(text: str) -> None:
    begun = time.process_time()
    read(text)
    assert time.process_time() - begun < 8


def test_learned_files_are_read_and_written_quickly() -> None:
    line = "0.{0} :: parent_of(X, Z) :- spouse_of(X, Y), r{1}(Y, Z). @{{support: {0}, body: {2}, pca: 0.{2}}}\n"
    text = "".join(line.format(number, number % 97, number + 10_000) for number in range(10_000, 20_000) if number % 10)
    begun = time.process_time()
    rules = parse_rules(text)
    read = time.process_time()
    assert str(rules) == text
    written = time.process_time()
    assert read - begun < 3
    assert written - read < 1
