"""Parquet and data frames hold graphs, and one table a predicate everything else that is plainly true."""

from __future__ import annotations

import numpy as np
import pytest
from fact_strategies import NAMES, NUMBERS
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright import read_facts, write_facts
from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, FileError, ParseError, RulewrightError
from rulewright.io import facts, frames
from rulewright.logic import parse_rules

polars = pytest.importorskip("polars", reason="data frames need the extra frames")
GRAPH = [("ann", "parent_of", "bob"), ("bob", "parent_of", "<script>alert(1)</script>"), ("ann", "likes", "שלום")]
writable = NAMES.filter(lambda name: bool(name) and not any("\ud800" <= each <= "\udfff" for each in name))


@pytest.mark.slow
@settings(max_examples=15)
@given(st.lists(st.tuples(writable, writable, writable), min_size=1, max_size=8))
def test_graphs_come_back(tmp_path_factory, triples):
    path = tmp_path_factory.mktemp("graph") / "a.parquet"
    kb = KnowledgeBase.from_triples(triples)
    write_facts(kb, path)
    assert sorted(read_facts(path).facts()) == sorted(kb.facts())
    assert sorted(frames.from_frame(kb.to_frame(library="polars")).facts()) == sorted(kb.facts())


def test_frames_of_every_kind():
    frame = polars.DataFrame(GRAPH, schema=["subject", "predicate", "object"], orient="row")
    expected = sorted(KnowledgeBase.from_triples(GRAPH).facts())
    assert sorted(frames.from_frame(frame).facts()) == expected
    assert sorted(frames.from_frame(frame.to_arrow()).facts()) == expected
    pandas = pytest.importorskip("pandas")
    assert sorted(frames.from_frame(pandas.DataFrame(GRAPH, columns=frame.columns)).facts()) == expected


def test_whole_numbers_are_names_and_other_columns_are_passed_over():
    frame = polars.DataFrame({"head": [1, 2], "relation": [0, 0], "tail": [2, 3], "score": [0.5, 0.6]})
    assert frames.from_frame(frame).tuples("0") == [("1", "2"), ("2", "3")]


def test_worlds():
    frame = polars.DataFrame({"head": ["a", "a"], "relation": ["p", "p"], "tail": ["b", "b"], "world": ["d1", "d2"]})
    assert frames.from_frame(frame).worlds == ("d1", "d2")


@pytest.mark.slow
@settings(max_examples=15)
@given(st.lists(st.tuples(writable, NUMBERS, writable), min_size=1, max_size=5), st.lists(writable, min_size=1))
def test_one_table_a_predicate(triples, singles):
    kb = KnowledgeBase.from_facts([("p", *each) for each in triples] + [("a b", each) for each in singles])
    tables = {name: kb.to_frame(name, library="polars") for name in kb.predicates}
    assert list(tables["p"].columns) == ["arg1", "arg2", "arg3"]
    again = frames.from_tables(tables)
    assert sorted(again.facts()) == sorted(kb.facts())
    assert again.predicates == kb.predicates


def test_rules_as_a_frame():
    rules = parse_rules("0.9 :: p(X) :- q(X). @{support: 9}  p(X) :- r(X, Y).")
    frame = rules.to_frame("polars")
    assert frame["confidence"].to_list() == [0.9, 1.0]
    assert frame["support"].to_list() == [9, None]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"a": ["x"], "b": ["y"]}, "found the columns a, b, expected head, relation and tail"),
        ({"head": ["a"], "relation": ["p"], "tail": [0.5]}, "column tail holds DOUBLE, expected text"),
        ({"head": ["a", None], "relation": ["p", "p"], "tail": ["b", "c"]}, "1 of 2 rows have an empty head"),
        ({"head": ["a"], "relation": [""], "tail": ["b"]}, "1 of 1 rows have an empty head"),
        ({"head": [], "relation": [], "tail": []}, "holds|no facts"),
    ],
)
def test_bad_frames_are_refused(columns, message):
    with pytest.raises(ParseError, match=message):
        frames.from_frame(polars.DataFrame(columns))


def test_bad_tables_are_refused():
    with pytest.raises(DataError, match="has empty cells"):
        frames.from_tables({"p": polars.DataFrame({"a": ["x", None]})})
    with pytest.raises(DataError, match="holds BOOLEAN, expected text or numbers"):
        frames.from_tables({"p": polars.DataFrame({"a": [True]})})
    with pytest.raises(DataError, match="must be finite numbers"):
        frames.from_tables({"p": {"a": np.array([np.inf])}})
    with pytest.raises(DataError, match="not a data frame"):
        frames.from_frame(42)


def test_bad_files(tmp_path):
    (tmp_path / "a.parquet").write_text("not a table")
    with pytest.raises(ParseError, match=r"a\.parquet: not a Parquet file"):
        read_facts(tmp_path / "a.parquet")
    with pytest.raises(FileError, match="no such file"):
        read_facts(tmp_path / "b.parquet")
    with pytest.raises(FileError, match="cannot write"):
        write_facts(KnowledgeBase.from_triples(GRAPH), tmp_path / "none" / "a.parquet")
    with pytest.raises(FileError, match="surrogate"):
        write_facts(KnowledgeBase.from_triples([("\ud800", "p", "a")]), tmp_path / "a.parquet")
    with pytest.raises(DataError, match="standard output"):
        write_facts(KnowledgeBase.from_triples(GRAPH), "-", format="parquet")


@pytest.mark.parametrize("text", ["p(a).", "p(1, a).", "!p(a, b).", "p('', b)."])
def test_what_a_table_cannot_say_is_refused(tmp_path, text):
    with pytest.raises(RulewrightError, match="a table of triples has no place for"):
        write_facts(facts.parse(text), tmp_path / "a.parquet")
    assert not (tmp_path / "a.parquet").exists()
