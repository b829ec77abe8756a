"""Alchemy's texts: what they mean, what comes back from them, and what either side refuses."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.errors import DataError, FileError, ParseError, RulewrightError
from rulewright.io import alchemy
from rulewright.logic import (
    And,
    Atom,
    Comparison,
    Formula,
    Iff,
    Implies,
    Not,
    Or,
    PredicateDeclaration,
    RuleSet,
    Symbol,
    Variable,
    WeightedFormula,
    parse_rules,
)

Read = TypeVar("Read")

MLN = """// smokers and their friends
/* declarations
   first */
person = {Anna, "Bob Lee",
          carl}
num = {1,...,4}

Friends(person, person)
Smokes(person)
Cancer(person)
Age(person, num)

1.5 Smokes(x) => Cancer(x)   // a comment
-0.5 Friends(x, y) ^ Smokes(x) v
     !Cancer(y) <=> Smokes(y)
!Friends(x, x).
Smokes(x) ^ Friends(x, "Bob Lee") => Smokes(Anna)
FORALL x, y (Friends(x,y) => Friends(y,x)).
2e-1 Age(x, 3) ^ x != Anna ^ !(x = carl)
.5 [Smokes(+x) <=> Cancer(x)]
"""

DB = """Friends(Anna, "Bob Lee")
Friends(Dora, Anna) // a comment

!Smokes(Dora)
Smokes(anna)
?Cancer(Emil)
  Age( Anna , 3 )
"""


@pytest.fixture
def mln(tmp_path: Path) -> Path:
    file = tmp_path / "smoking.mln"
    file.write_text(MLN)
    return file


def read_mln(text: str, folder: Path) -> RuleSet:
    file = folder / "a.mln"
    file.write_text(text)
    return alchemy.read_mln(file)


def read_db(text: str, folder: Path, **options: object) -> KnowledgeBase:
    file = folder / "a.db"
    file.write_text(text)
    return alchemy.read_db(file, **options)  # type: ignore[arg-type]


def test_the_network_means_what_it_says(mln: Path) -> None:
    rules = alchemy.read_mln(mln)
    expected = parse_rules("""
        predicate 'Friends'(person, person).
        predicate 'Smokes'(person).
        predicate 'Cancer'(person).
        predicate 'Age'(person, num).
        1.5 'Smokes'(X) => 'Cancer'(X).
        -0.5 ('Friends'(X, Y) & 'Smokes'(X) | !'Cancer'(Y)) <=> 'Smokes'(Y).
        hard !'Friends'(X, X).
        learn 'Smokes'(X) & 'Friends'(X, 'Bob Lee') => 'Smokes'('Anna').
        hard 'Friends'(X, Y) => 'Friends'(Y, X).
        0.2 'Age'(X, '3') & X != 'Anna' & !(X = carl).
        0.5 'Smokes'(X) <=> 'Cancer'(X).
    """)
    assert rules == expected
    assert parse_rules(str(rules)) == rules


def test_facts_and_the_constants_of_the_network(mln: Path, tmp_path: Path) -> None:
    kb = read_db(DB, tmp_path, mln=mln)
    assert kb.tuples("Friends") == [("Anna", "Bob Lee"), ("Dora", "Anna")]
    assert kb.tuples("Smokes") == [("anna",)]
    assert kb.tuples("Smokes", truth=False) == [("Dora",)]
    assert kb.tuples("Age") == [("Anna", "3")]
    assert kb.domains["person"].labels.tolist() == ["Anna", "Bob Lee", "carl", "Dora", "anna", "Emil"]
    assert kb.domains["num"].labels.tolist() == ["1", "2", "3", "4"]
    assert kb.closed == frozenset()
    with_rules = read_db(DB, tmp_path, declarations=alchemy.read_mln(mln).predicates)
    assert len(with_rules.domains["person"]) == 5
    assert with_rules.predicates == kb.predicates
    alone = read_db(DB, tmp_path)
    assert alone.predicates["Age"].types == ("entity", "entity")
    assert "Emil" in alone.domains["entity"]
    assert "Cancer" not in alone.predicates


def test_constants_of_formulas_are_entities_too(tmp_path: Path) -> None:
    (tmp_path / "b.mln").write_text("Likes(person, food)\nPerson(person)\n1 Likes(x, Figs) ^ Person(Zoe)\n")
    kb = read_db("Person(Anna)", tmp_path, mln=tmp_path / "b.mln")
    assert {kind: domain.labels.tolist() for kind, domain in kb.domains.items()} == {
        "person": ["Zoe", "Anna"],
        "food": ["Figs"],
    }


def test_connectives_bind_and_group_as_in_alchemy(tmp_path: Path) -> None:
    rules = read_mln(
        "A(t)\nB(t)\nC(t)\nD(t)\n"
        "1 A(x) => B(x) => C(x)\n1 A(x) <=> B(x) => C(x) v D(x) ^ !A(x)\n1 !A(x) ^ B(x)\n1 !(A(x) ^ B(x))\n1 !!A(x)\n",
        tmp_path,
    )
    a, b, c, d = (Atom(name, (Variable("X"),)) for name in "ABCD")
    assert [each.formula for each in rules.formulas] == [
        Implies(Implies(a, b), c),
        Iff(a, Implies(b, Or((c, And((d, Not(a))))))),
        And((Not(a), b)),
        Not(And((a, b))),
        Not(Not(a)),
    ]


def test_a_star_stands_for_both_signs(tmp_path: Path) -> None:
    rules = read_mln("student(person)\nprofessor(person)\n2 *student(x) ^ *professor(x)\n*student(x).\n", tmp_path)
    assert [str(each) for each in rules.formulas] == [
        "2.0 student(X) & professor(X).",
        "2.0 !student(X) & professor(X).",
        "2.0 student(X) & !professor(X).",
        "2.0 !student(X) & !professor(X).",
        "hard student(X).",
        "hard !student(X).",
    ]


def test_variables_get_names_of_their_own(tmp_path: Path) -> None:
    rules = read_mln("P(t,t,t,t)\n1 P(x', x_, bc1, é)\n1 P(v, _, y, Y)\n", tmp_path)
    assert [str(each) for each in rules.formulas] == [
        "1.0 'P'(X_, X__2, Bc1, V_).",
        "1.0 'P'(V, V_, Y, 'Y').",
    ]


BAD_MLN = {
    "": (None, "an empty file"),
    "  \n\n": (None, "an empty file"),
    "/* never closed\n": (1, "a comment that does not end; close it with */"),
    "P(t)\n/*/": (2, "a comment that does not end"),
    'P(t)\n#include "other.mln"\n': (2, "'#include' is not supported"),
    "P(t)\n\n1 P(x) =>\n": (4, "found the end of the text, expected an atom"),
    "P(t)\n1 P(x) P(y)": (2, "found 'P', expected an operator (^ v => <=>), '.' or the end of the line"),
    "P(t)\n1 P(x)\n  ^ P(y)": (3, "found '^', expected an atom"),
    "P(t)\n1 P(x, y)": (2, "P has 1 arguments elsewhere and 2 here"),
    "P(t)\n1 P(x": (2, "found the end of the text, expected ',' or ')'"),
    "P(t)\n1 P()": (2, "found ')', expected a variable"),
    "P(t)\n1 (P(x)": (2, "found the end of the text, expected ')'"),
    "P(t)\n1 [P(x))": (2, "found ')', expected ']'"),
    "Friends(t)\n1 Frends(x)": (2, "unknown predicate 'Frends'; did you mean 'Friends'?"),
    "1 P(x)": (1, "unknown predicate 'P'; no predicate is known here"),
    "P(x) => Q(x)": (1, "unknown predicate 'P'; no predicate is known here; it is declared by a line of its own above"),
    "P(t)\nP(t)": (2, "P is declared above"),
    "P(t)\nQ(t!)": (2, "'t!' (exclusive and exhaustive values) is not supported; in a .rules file a multi-class"),
    "P(number)": (1, "the type 'number' would make its arguments numbers"),
    "P(t) Q(t)": (1, "unknown predicate 'P'"),
    "P(t)\nPlain\n": (2, "predicates without any are not supported"),
    "P(t)\n1 P(x) ^ Plain": (2, "predicates without any are not supported"),
    "P(t)\nt father(t)\n": (2, "functions are not supported"),
    "P(t)\n1 P(father(x))\n": (2, "functions are not supported"),
    "P(t)\n1 P(x) ^ (EXIST y P(y))\n": (2, "EXIST is not supported: a formula's variables are universal"),
    "P(t)\n1 P(x) ^ FORALL y P(y)\n": (2, "FORALL may stand only before the whole formula"),
    "P(t)\n1 P(x) ^ x < y": (2, "'<' compares numbers, and here a numeral names an entity"),
    "P(t)\n1 P(x) ^ x + y": (2, "found '+', expected '('"),
    "P(t)\n1 P(+Anna) ^ +3 = x": (2, "found '3', expected a variable"),
    "P(t)\n1.5 P(x).": (2, "a formula has a weight or a full stop, which makes it hard, not both"),
    "P(t)\n1.5: 3 P(x)": (2, "found ':' after a weight"),
    "P(t)\n1. P(x)": (2, "found '.' after a weight"),
    "P(t)\n1e999 P(x)": (2, "must be a finite number, got inf"),
    "P(t)\n1 P(x) & P(y)": (2, "found '&', expected an operator"),
    'P(t)\n1 P("abc)': (2, "a text in double quotes ends on its line"),
    "t = {A,}": (1, "found '}', expected a name"),
    "t = {A": (1, "found the end of the text, expected ',' or '}'"),
    "t = {A,...,B}": (1, "'...' stands between two whole numbers, got A and B"),
    "t = {5,...,1}": (1, "'...' counts upwards"),
    "t = {1,...,999999999999}": (1, "at most 1,000,000 more"),
    "t = {1,...,2} P(t)": (1, "found 'P', expected the end of the line"),
    "P(t)\n1 " + "*P(x) v " * 9 + "P(x)": (2, "9 stars stand for 512 formulas; 8 are allowed"),
    "P(t)\n1 " + "(" * 5000 + "P(x)" + ")" * 5000: (2, "nested more than 30 deep"),
    "P(t)\n1 " + "!" * 5000 + "P(x)": (2, "nested more than 30 deep"),
    "P(t)\n1 " + "P(x) => " * 5000 + "P(x)": (2, "more than 30 arrows in one formula"),
    "P(t)\n@ P(x)": (2, "found '@', expected an atom"),
}


@pytest.mark.parametrize("text", BAD_MLN, ids=lambda text: repr(text)[:40])
def test_a_bad_network_is_refused_with_its_line(text: str, tmp_path: Path) -> None:
    line, message = BAD_MLN[text]
    with pytest.raises(ParseError) as caught:
        read_mln(text, tmp_path)
    assert caught.value.line == line
    assert message in caught.value.message
    assert "\n" not in str(caught.value)


BAD_DB = {
    "": (None, "an empty file"),
    "P(A)\n\nP(A": (3, "found the end of the text, expected ',' or ')'"),
    "P(A)\nP(A) P(B)": (2, "found 'P', expected the end of the line"),
    "P(A)\nP(A B)": (2, "found 'B', expected ',' or ')'"),
    "P(A)\nP()": (2, "found ')', expected a name, a number or a text in double quotes"),
    "P(A)\n  P": (2, "found the end of the text, expected '('"),
    "P(A) 3.5": (1, "found '3.5', expected the end of the line"),
    "P(A)\nAnna = F(B)": (2, "found '=', expected '('"),
    "P(A)\nP(A, B)": (2, "'P' has 1 arguments, got 2"),
    "P(A)\n!P(A)": (2, "contradictory facts: 'P'('A') was true above and is false here"),
    'P("A)': (1, "a text in double quotes ends on its line"),
    "P(A).": (1, "found '.', expected the end of the line"),
    "P(2nd)": (1, "found 'nd', expected ',' or ')'"),
}


@pytest.mark.parametrize("text", BAD_DB, ids=repr)
def test_bad_facts_are_refused_with_their_line(text: str, tmp_path: Path) -> None:
    line, message = BAD_DB[text]
    with pytest.raises(ParseError) as caught:
        read_db(text, tmp_path)
    assert caught.value.line == line
    assert message in caught.value.message


def test_facts_of_undeclared_predicates_are_refused(tmp_path: Path) -> None:
    friends = PredicateDeclaration("Friends", ("person", "person"))
    with pytest.raises(ParseError, match=r"a\.db:2:1: unknown predicate 'Frends'; did you mean 'Friends'"):
        read_db("Friends(A, B)\nFrends(A, B)", tmp_path, declarations=[friends])
    with pytest.raises(ParseError, match=r"a\.db:1:1: Friends has 2 arguments, got 1"):
        read_db("?Friends(A)", tmp_path, declarations=[friends])


def test_other_encodings(tmp_path: Path) -> None:
    (tmp_path / "a.db").write_bytes('Likes(Zoë, "naïve art")\r\n'.encode("utf-16"))
    assert alchemy.read_db(tmp_path / "a.db").tuples("Likes") == [("Zoë", "naïve art")]
    (tmp_path / "b.db").write_bytes("P(A)\nP(Zoë)".encode("latin-1"))
    with pytest.raises(ParseError, match=r"b\.db:2: byte 0xeb is not UTF-8"):
        alchemy.read_db(tmp_path / "b.db")
    with pytest.raises(FileError):
        alchemy.read_mln(tmp_path / "none.mln")


# Writing


def test_what_a_network_says_is_written_again(mln: Path, tmp_path: Path) -> None:
    rules = alchemy.read_mln(mln)
    alchemy.write_mln(rules, tmp_path / "again.mln")
    assert alchemy.read_mln(tmp_path / "again.mln") == rules
    written = (tmp_path / "again.mln").read_text().splitlines()
    assert '0.2 [Age(x, 3) ^ x != Anna ^ !(x = "carl")]' in written
    assert "0.5 [Smokes(x) <=> Cancer(x)]" in written
    assert "1.5 Smokes(x) => Cancer(x)" in written


def test_rules_become_hard_implications() -> None:
    rules = parse_rules("p(X, Y) :- q(X, Z), !r(Z, Y), Y != X, (s(Y) ; s(Z), s(X)), t(Y).")
    assert alchemy.mln_text(rules).splitlines()[-1] == (
        "q(x, z) ^ !r(z, y) ^ y != x ^ (s(y) v s(z) ^ s(x)) ^ t(y) => p(x, y)."
    )


def test_variables_avoid_words_and_types(tmp_path: Path) -> None:
    rules = parse_rules("predicate p(person, v_2). learn p(Person, V). hard p(_1, X1). hard '5' = X | p(X, X).")
    text = alchemy.mln_text(rules)
    assert text.splitlines()[1:] == ["p(person_2, v_3)", "p(x_1, x1).", "(5 = x v p(x, x))."]
    again = read_mln(text, tmp_path)
    assert [str(each) for each in again.formulas] == [
        "learn p(Person_2, V_3).",
        "hard p(X_1, X1).",
        "hard '5' = X | p(X, X).",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hard rain.", "a predicate needs arguments in Alchemy's files here, and rain has none"),
        ("0.9 :: p(X) :- q(X).", "a confidence is no weight; .*cannot be written: 0.9 :: p"),
        ("template p(X) :- ?Q(X) where ?Q in *.", "Alchemy has no templates, .*template p"),
        ("hard label(X) in {a} => p(X).", "Alchemy has no classes, .*hard label"),
        ("predicate l(t) in {a, b}.", "Alchemy has no classes, so it cannot say: predicate l"),
        ("predicate age(person, number).", "Alchemy has no numbers, so it cannot say: predicate age"),
        ("1 age(X, 42).", "numerals are names, and here stands a number, .*1 age"),
        ("1 p(X, Y) & X < Y.", "Alchemy compares names with = and != only, .*1 p"),
        ("1 'p-q'(X).", "'p-q' is no name to Alchemy"),
        ("1 v(X).", "'v' is no name to Alchemy"),
        ("1 exist(X).", "'exist' is no name to Alchemy"),
        (r"1 p('a\nb').", r"Alchemy cannot write the name 'a\\nb' in: 1 p"),
        ("""1 p('say "a"').""", "Alchemy cannot write the name"),
        ("predicate p(t). 1 q(X).", "q is not declared while others are"),
    ],
)
def test_what_alchemy_cannot_say_is_refused_by_name(text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        alchemy.mln_text(parse_rules(text))


def test_facts_that_alchemy_cannot_say_are_refused(tmp_path: Path) -> None:
    kb = KnowledgeBase.from_facts([("p", "a")])
    with pytest.raises(DataError, match=r"no splits, got test; write kb.split"):
        alchemy.db_text(kb.with_splits({"test": kb}))
    builder = KnowledgeBaseBuilder()
    builder.add("p", ["a"], world="w1")
    builder.add("p", ["b"], world="w2")
    with pytest.raises(DataError, match=r"a \.db file holds one world; write one at a time, with kb.in_worlds"):
        alchemy.db_text(builder.build())
    assert alchemy.db_text(builder.build().in_worlds(["w2"])) == 'p("b")\n'
    with pytest.raises(DataError, match="Alchemy has no numbers"):
        alchemy.db_text(KnowledgeBase.from_facts([("age", "a", 3)]))
    with pytest.raises(DataError, match="Alchemy cannot write the name 'a\"b' in: p"):
        alchemy.write_db(KnowledgeBase.from_facts([("p", 'a"b')]), tmp_path / "none.db")
    assert not (tmp_path / "none.db").exists()


IDENTIFIERS = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,3}", fullmatch=True).filter(
    lambda name: name not in ("v", "number")
)
CONSTANTS = st.text(st.characters(exclude_categories=["C"], exclude_characters='"\\'), max_size=5) | st.sampled_from(
    ["Anna", "anna", "FORALL", "0", "42", "007", "-1", "a//b", "/*", "", " ", "x y"]
)


@pytest.mark.slow
@given(st.dictionaries(st.tuples(IDENTIFIERS, CONSTANTS, CONSTANTS), st.booleans(), max_size=6))
def test_facts_read_back_the_same(facts: dict[tuple[str, str, str], bool]) -> None:
    builder = KnowledgeBaseBuilder()
    for (name, *args), truth in facts.items():
        builder.add(name, args, truth=truth)
    kb = builder.build()
    again = _from_text(alchemy.db_text(kb), alchemy.read_db)
    for truth in (True, False):
        assert set(again.facts(truth=truth)) == set(kb.facts(truth=truth))


@st.composite
def formulas(draw: st.DrawFn, depth: int = 3) -> Formula:
    terms = st.sampled_from([Variable("X"), Variable("Y"), Variable("Bc1")]) | CONSTANTS.map(Symbol)
    kind = draw(st.sampled_from(["atom", "pair", "equal", "not", "and", "or", "implies", "iff"][: 8 if depth else 3]))
    match kind:
        case "atom":
            return Atom("P", (draw(terms),))
        case "pair":
            return Atom("Q_2", (draw(terms), draw(terms)))
        case "equal":
            return Comparison(draw(st.sampled_from(["=", "!="])), draw(terms), draw(terms))
        case "not":
            return Not(draw(formulas(depth - 1)))
        case "and" | "or":
            parts = tuple(draw(st.lists(formulas(depth - 1), min_size=2, max_size=3)))
            return And(parts) if kind == "and" else Or(parts)
    return (Implies if kind == "implies" else Iff)(draw(formulas(depth - 1)), draw(formulas(depth - 1)))


WEIGHTS = st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.slow
@given(st.lists(st.tuples(formulas(), st.sampled_from(["hard", "learn"]) | WEIGHTS), max_size=3))
def test_formulas_read_back_the_same(drawn: list[tuple[Formula, str | float]]) -> None:
    statements = [
        WeightedFormula(formula, kind) if isinstance(kind, str) else WeightedFormula(formula, "soft", kind)  # type: ignore[arg-type]
        for formula, kind in drawn
    ]
    predicates = [PredicateDeclaration("P", ("t",)), PredicateDeclaration("Q_2", ("t", "t"))]
    rules = RuleSet(statements, predicates=predicates)
    again = _from_text(alchemy.mln_text(rules), alchemy.read_mln)
    assert again.predicates == rules.predicates
    for one, other in zip(again.formulas, rules.formulas, strict=True):
        assert (one.kind, one.weight) == (other.kind, other.weight)
        assert str(one) == str(other)
        assert one == other


def _from_text(text: str, read: Callable[[Path], Read]) -> Read:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "a")
        file.write_text(text)
        return read(file)


# Whatever the text, only errors of our own

PIECES = [
    "P",
    "(",
    "x",
    ",",
    ")",
    ".",
    " ",
    "\n",
    '"',
    "!",
    "^",
    " v ",
    "=>",
    "<=>",
    "1",
    "*",
    "+",
    "{",
    "}",
    "=",
    "...",
    "//",
    "/*",
]


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
def test_random_text_raises_nothing_else(text: str) -> None:
    _reads_or_refuses("P(t)\n" + text)
    _reads_or_refuses(text)


@given(st.integers(0, 2**32), st.sampled_from([MLN, DB]))
def test_damaged_text_raises_nothing_else(seed: int, original: str) -> None:
    chance = random.Random(seed)
    text = list(original)
    for _ in range(chance.randint(1, 5)):
        place = chance.randrange(len(text))
        kept = chance.choice([[], [text[place]] * 2, [chance.choice(PIECES)]])
        text[place : place + chance.choice([1, 1, 1, 20])] = kept
        if not text:
            break
    _reads_or_refuses("".join(text))


def _reads_or_refuses(text: str) -> None:
    readers: list[Callable[[Path], object]] = [alchemy.read_mln, alchemy.read_db]
    for read in readers:
        try:
            found = _from_text(text.encode("utf-8", "replace").decode(), read)
        except RulewrightError as error:
            assert isinstance(error, ParseError)
            assert "\n" not in str(error)
        else:
            if isinstance(found, RuleSet):
                assert parse_rules(str(found)) == found
