"""The text form of facts: what it means, that nothing is lost on the way to a file and back, and what it refuses."""

from __future__ import annotations

import gzip
import random
import sys
from pathlib import Path

import pytest
from fact_strategies import NAMES, contents, knowledge_bases
from hypothesis import example, given
from hypothesis import strategies as st

from rulewright import read_facts
from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.errors import DataError, FileError, ParseError, RulewrightError
from rulewright.io import facts
from rulewright.logic import PredicateDeclaration

EXAMPLE = r"""% a family and a sentence
predicate label(token) in {'B-PER', 'E-PER', o}.
predicate age(person, number).
closed friend.
parent_of(ann, bob).  parent_of(bob, 'Cid \'C\' Lee').
parent_of(
    'it\'s', % the comment goes on: ann). parent_of(x, y).
    bob
).
!smoke(ann).
age(ann, 42). age(bob, -1.5e3).
label(t1) in {'B-PER'}.
friend(ann,bob).
entity zoe: person.
entity 'Max'.
split test.
parent_of(ann, zoe).
!parent_of(zoe, ann).
split 'my valid'.
split.
world(ann). split(ann). entity(ann, bob).
"""


def error_of(text: str) -> ParseError:
    with pytest.raises(ParseError) as caught:
        facts.parse(text, file="a.facts")
    assert "\n" not in str(caught.value)
    return caught.value


def test_the_example_means_what_it_says() -> None:
    kb = facts.parse(EXAMPLE)
    assert kb.tuples("parent_of") == [("ann", "bob"), ("bob", "Cid 'C' Lee"), ("it's", "bob")]
    assert kb.tuples("smoke", truth=False) == [("ann",)]
    assert kb.tuples("smoke") == []
    assert kb.tuples("age") == [("ann", 42.0), ("bob", -1500.0)]
    assert kb.tuples("label") == [("t1", "B-PER")]
    assert kb.predicates["label"] == PredicateDeclaration("label", ("token",), ("B-PER", "E-PER", "o"))
    assert kb.closed == {"friend"}
    assert kb.domains["person"].labels.tolist() == ["ann", "bob", "zoe"]
    assert "Max" in kb.domains["entity"]
    assert list(kb.splits) == ["test", "my valid"]
    assert kb.split("test").tuples("parent_of") == [("ann", "zoe")]
    assert kb.split("test").tuples("parent_of", truth=False) == [("zoe", "ann")]
    assert kb.split("my valid").n_facts == 0
    assert kb.tuples("world") == kb.tuples("split") == [("ann",)]
    assert contents(facts.parse(facts.to_text(kb))) == contents(kb)


def test_worlds() -> None:
    kb = facts.parse(
        "world 'doc 1'. p(a, b). split test. p(b, a). world empty. world two. q(c). split. entity d. q(d). entity e: t."
    )
    assert kb.worlds == ("doc 1", "empty", "two")
    assert kb.entity_worlds is not None
    assert kb.in_worlds(["two"]).tuples("q") == [("d",)]
    assert kb.split("test").tuples("q") == [("c",)]
    assert contents(facts.parse(facts.to_text(kb))) == contents(kb)


def test_shared_types_are_named_in_every_world() -> None:
    kb = facts.parse("predicate word(token, word). shared word. world a. word(t1, and). world b. word(t2, and).")
    assert kb.tuples("word") == [("t1", "and"), ("t2", "and")]
    assert kb.in_worlds(["b"]).tuples("word") == [("t2", "and")]
    assert contents(facts.parse(facts.to_text(kb))) == contents(kb)
    assert "a.facts:1:" in str(error_of("p(a). shared entity."))


def test_numerals_are_numbers_and_quoted_ones_are_names() -> None:
    kb = facts.parse("p(1, '1'). p(-0.5, '-0.5'). p(1e3, a).")
    assert kb.tuples("p") == [(1.0, "1"), (-0.5, "-0.5"), (1000.0, "a")]
    assert kb.predicates["p"].types == ("number", "entity")


def test_repeated_facts_are_counted_once() -> None:
    kb = facts.parse("p(a).\np(a).\np( a ).")
    assert (kb.n_facts, kb.duplicates) == (1, 2)


@pytest.mark.parametrize(
    "text", ["p(a).", "p(a).\n", "p(a). % c", "p(a).%c", "\ufeffp(a).\n", "\n\n  p(a).\r\n", "\tp (a) .\n"]
)
def test_the_end_may_look_as_it_likes(text: str) -> None:
    assert facts.parse(text).tuples("p") == [("a",)]


def test_a_full_stop_inside_a_number_or_a_name_ends_nothing() -> None:
    assert facts.parse("p('a. b', 1.5).").tuples("p") == [("a. b", 1.5)]


BAD = {
    "p(a)": (1, 5, "found the end of the text, expected '.'"),
    "p(a).\nq(b)\nr(c).": (3, 1, "found 'r', expected '.'"),
    "p(a).\n\n  p(X, b).": (3, 5, "found the variable X; facts have none: a name is quoted, as in 'X'"),
    "p(_, b).": (1, 3, "found the variable _"),
    "X(a).": (1, 1, "found the variable X"),
    "p(a, b": (1, 7, "found the end of the text, expected ',' or ')'"),
    "p().": (1, 3, "found ')', expected a name or a number"),
    "p(a,).": (1, 5, "found ')', expected a name or a number"),
    "p(a b).": (1, 5, "found 'b', expected ',' or ')'"),
    "p.": (1, 2, "found '.', expected '('"),
    "p(a).q(b).": (1, 5, "found '.q(b).'; names that are not lower-case"),
    "p('a).": (1, 3, "found 'a).: a quoted name that does not end on its line"),
    r"p('\q').": (1, 3, r"unknown escape \q in a quoted name"),
    'p("a b").': (1, 3, """found '"a b").'; names that are not lower-case ASCII words are written in single quotes"""),
    "p(é).": (1, 3, "found 'é).'; names that are not lower-case ASCII words"),
    "p(in).": (1, 3, "'in' is a word of the language; as a name it stands in quotes"),
    "q(a). hard(a).": (1, 7, "'hard' is a word of the language"),
    "p(a).\nclosed(a).": (2, 1, "'closed' is a word of the language"),
    "p(X) :- q(X).": (1, 3, "found the variable X"),
    "p(a) :- q(a).": (1, 6, "found ':-'; rules live in .rules files"),
    "0.9 :: p(a).": (1, 1, "found '0.9', expected a fact such as parent_of(ann, bob)."),
    "p(a).\np(a, b).": (2, 1, "p has 1 arguments, got 2"),
    "p(a).\n  !p(a).": (2, 3, "contradictory facts: p(a) was true above and is false here"),
    "p(a).\np(1).": (2, 1, "argument 1 of p has type entity, got the number 1.0"),
    "p(1).\np(a).": (2, 1, "argument 1 of p is a number, got 'a'"),
    "p(1e999).": (1, 1, "1e999 has no exact value as a number; quote it if it names something"),
    "p(12345678901234567891).": (1, 1, "12345678901234567891 has no exact value"),
    f"p({'9' * 5000}).": (1, 1, "9… has no exact value"),
    f"p({'0' * 5000}).": (1, 1, "0… has no exact value"),
    "closed frend.\nfriend(a, b).": (1, 1, "unknown predicate 'frend'; did you mean 'friend'?"),
    "closed.": (1, 7, "found '.', expected the name of a predicate"),
    "predicate p().": (1, 13, "found ')', expected a type"),
    "predicate p(a) in {}.": (1, 20, "found '}', expected a class"),
    "predicate p(a) in {b}.": (1, 1, "the classes of p must be distinct and at least two"),
    "predicate p(a).\npredicate p(b).": (2, 1, "p was declared as predicate p(a)., cannot be predicate p(b)."),
    "p(a).\npredicate p(person).": (2, 1, "p was used before as predicate p(entity)., cannot be"),
    "l(a) in {b}.": (1, 1, "l has classes; declare them first"),
    "predicate l(t) in {a, b}.\nl(x) in {a, b}.": (2, 1, "a fact of l names exactly one class"),
    "predicate l(t) in {a, b}.\n!l(x) in {a}.": (2, 1, ""),
    "predicate l(t) in {a, b}.\nl(x).": (2, 1, "l is multi-class: a fact of it names one class"),
    "predicate l(t) in {a, b}.\nl(x) in {c}.": (2, 1, "unknown class of l 'c'; known: a, b"),
    "predicate l(t) in {a, b}.\nl(x) in {a}.\nl(x) in {b}.": (
        3,
        1,
        "contradictory facts: l(x) was 'a' above and is 'b'",
    ),
    "p(a) in {b}.\n": (1, 1, "p has classes; declare them first"),
    "entity 42.": (1, 8, "found '42', expected the name of an entity"),
    "entity a: number.": (1, 1, "number"),
    "split ''.": (1, 7, "a split needs a name; 'split.' goes back to the main facts"),
    "split a b.": (1, 9, "found 'b', expected '.'"),
    "world.": (1, 6, "found '.', expected the name of a world"),
    "world w1. p(a).\nworld w2. q(a).": (2, 11, "'a' belongs to world 'w1' and cannot stand in world 'w2'"),
    "\n p(a).\nworld w1. q(b).": (2, 2, "'a' belongs to no world while others do"),
    "'a\\nb'(c).\n'a\\nb'(c, d).": (2, 1, "'a\\nb' has 1 arguments, got 2"),
    "predicate l(t) in {a, b}.\n'l\\n'(x) in {a, b}.": (2, 1, "names exactly one class"),
    "": (1, 1, "no facts; a file that is meant to be empty holds a comment"),
    " \n ": (1, 1, "no facts"),
    "p(a). @{support: 3}": (1, 7, "found '@{support: 3}'"),
    "\x00": (1, 1, "found '\\x00'"),
}


@pytest.mark.parametrize("text", BAD, ids=lambda text: repr(text)[:40])
def test_a_bad_text_is_refused_with_its_place(text: str) -> None:
    line, column, message = BAD[text]
    error = error_of(text)
    assert (error.line, error.column) == (line, column)
    assert message in error.message
    assert str(error).startswith(f"a.facts:{line}:{column}: ")


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    kb = facts.parse(EXAMPLE)
    for name in ("a.facts", "a.facts.gz"):
        facts.write(kb, tmp_path / name)
        assert contents(facts.read(tmp_path / name)) == contents(kb)
    assert gzip.decompress((tmp_path / "a.facts.gz").read_bytes()) == (tmp_path / "a.facts").read_bytes()
    (tmp_path / "wide.facts").write_bytes("p('naïve').\r\n".encode("utf-16"))
    assert facts.read(tmp_path / "wide.facts").tuples("p") == [("naïve",)]
    (tmp_path / "latin.facts").write_bytes("p(a).\np('naïve').".encode("latin-1"))
    with pytest.raises(ParseError, match=r"latin\.facts:2: byte 0xef is not UTF-8"):
        facts.read(tmp_path / "latin.facts")
    with pytest.raises(FileError, match=r"cannot read .*none\.facts"):
        facts.read(tmp_path / "none.facts")
    facts.write(kb, "-")
    assert capsys.readouterr().out == facts.to_text(kb)
    with (tmp_path / "a.facts").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert contents(facts.read("-")) == contents(kb)


def test_an_empty_knowledge_base_survives() -> None:
    text = facts.to_text(KnowledgeBaseBuilder().build())
    assert text == "% no facts\n"
    assert facts.parse(text).n_entities == 0


def test_only_what_needs_a_declaration_gets_one() -> None:
    plain = facts.parse("p(a, 1). q(b). p(c, 2).")
    assert facts.to_text(plain) == "p(a, 1).\np(c, 2).\nq(b).\n"
    typed = facts.parse("predicate q(person). p(a). q(b).")
    assert facts.to_text(typed) == "predicate q(person).\nq(b).\np(a).\n"
    late = facts.parse("p(a). predicate q(person). q(b).")
    assert facts.to_text(late).startswith("predicate p(entity).\npredicate q(person).\n")


def test_what_cannot_be_written_is_refused() -> None:
    kb = facts.parse("p(a, 1).")
    with pytest.raises(DataError, match="a split without a name"):
        facts.to_text(kb.with_splits({"": kb}))
    other = facts.parse("predicate p(person, number). p(a, 1).")
    with pytest.raises(DataError, match="split 'test' has predicate p"):
        facts.to_text(kb.with_splits({"test": other}))
    column = kb.columns("p")[1]
    column[0] = float("inf")
    with pytest.raises(DataError, match="p has the number inf; only finite ones"):
        facts.to_text(kb)


# Round trips


@pytest.mark.slow
@given(knowledge_bases())
def test_reading_back_gives_the_same(kb: KnowledgeBase) -> None:
    text = facts.to_text(kb)
    again = facts.parse(text)
    assert contents(again) == contents(kb)
    assert again.duplicates == 0
    assert contents(facts.parse(text.replace("\n", " "))) == contents(kb)  # the slow way reads the same


@given(st.lists(NAMES, min_size=1, max_size=3), NAMES)
@example(["a', 'b", "c"], "p")
def test_any_name_may_be_a_predicate_or_an_argument(args: list[str], name: str) -> None:
    kb = KnowledgeBase.from_facts([(name, *args)])
    assert facts.parse(facts.to_text(kb)).tuples(name) == [tuple(args)]


# Whatever the text, only errors of our own

PIECES = [
    "p",
    "(",
    "a",
    ",",
    ")",
    ".",
    " ",
    "\n",
    "'",
    "\\",
    "!",
    "in",
    "{",
    "}",
    "%",
    "X",
    "4",
    "world ",
    "split",
    "é",
    ":",
]


@given(st.text() | st.lists(st.sampled_from(PIECES)).map("".join))
def test_random_text_raises_nothing_else(text: str) -> None:
    _reads_or_refuses(text)


@given(st.integers(0, 2**32))
def test_damaged_text_raises_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    text = list(EXAMPLE)
    for _ in range(chance.randint(1, 5)):
        place = chance.randrange(len(text))
        change = chance.choice(["drop", "double", "replace", "cut"])
        if change == "cut":
            del text[place : place + chance.randint(1, 40)]
        else:
            text[place : place + 1] = {"drop": [], "double": [text[place]] * 2, "replace": [chance.choice(PIECES)]}[
                change
            ]
        if not text:
            break
    _reads_or_refuses("".join(text))


def _reads_or_refuses(text: str) -> None:
    try:
        kb = facts.parse(text, file="a.facts")
    except RulewrightError as error:
        assert isinstance(error, ParseError)
        assert error.line is not None
        assert "\n" not in str(error)
    else:
        assert contents(facts.parse(facts.to_text(kb))) == contents(kb)


def test_a_folder_with_a_file_for_each_split(tmp_path):
    (tmp_path / "train.facts").write_text(
        "age(ann, 42). likes(ann, bob). split extra. likes(bob, ann). split. tall(ann)."
    )
    (tmp_path / "test.facts").write_text("predicate age(entity, number). likes(bob, cid). !tall(bob).")
    (tmp_path / "notes.txt").write_text("read me")
    kb = read_facts(tmp_path)
    assert sorted(kb.facts()) == [("age", ("ann", 42.0)), ("likes", ("ann", "bob")), ("tall", ("ann",))]
    assert kb.split("test").tuples("likes") == [("bob", "cid")]
    assert kb.split("test").tuples("tall", truth=False) == [("bob",)]
    assert kb.split("extra").tuples("likes") == [("bob", "ann")]
    assert kb.notes == (f"{tmp_path.name}: left out: notes.txt (no triples in its first lines)",)
    (tmp_path / "test.facts").write_text("likes(bob, 3).")
    with pytest.raises(ParseError, match=r"test\.facts:1"):
        read_facts(tmp_path)
