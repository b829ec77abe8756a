"""Wide tables: what all cells of a column are decides what it says."""

from __future__ import annotations

import csv
import io
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright import apply, read_facts
from rulewright.errors import DataError, ParseError, UnknownNameError
from rulewright.io import frames, table
from rulewright.logic import parse_rules

CELLS = st.sampled_from(["", "1", "2.5", "-3e2", "007", "true", "False", "2020-07-02", "bonn", "a,b", 'c"d', " x "])
ROWS = st.lists(st.tuples(st.sampled_from("abcde"), CELLS, CELLS, CELLS), min_size=1, max_size=8)


def read_slowly(fields: list[str], rows: list[tuple[str, ...]]) -> set[tuple[object, ...]]:
    """Read a table as the documentation says it; facts observed false have a mark."""

    def is_number(text: str) -> bool:
        return text in ("1", "2.5", "-3e2")

    facts: set[tuple[object, ...]] = set()
    for position, field in enumerate(fields[1:], start=1):
        cells = [(row[0], row[position]) for row in rows if row[position]]
        texts = [text for _, text in cells]
        for head, text in cells:
            if field.endswith("id"):
                facts.add((field, head, text))
            elif all(map(is_number, texts)):
                facts.add((field, head, float(text)))
            elif all(text == "2020-07-02" for text in texts):
                facts.add((field, head, 2020.5))
            elif all(text.lower() in ("true", "false") for text in texts):
                facts.add((field, head) if text.lower() == "true" else ("not", field, head))
            else:
                facts.add((field, head, text))
    return facts


@settings(max_examples=30)
@given(ROWS)
def test_a_table_is_what_its_cells_are(tmp_path_factory, rows):
    fields = ["name", "size", "place", "ref_id"]
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([fields, *rows])
    path = tmp_path_factory.mktemp("table") / "a.csv"
    path.write_text(buffer.getvalue())
    expected = read_slowly(fields, rows)
    contradictory = any(("not", *fact) in expected for fact in expected)
    try:
        kb = table.read(path)
    except DataError as error:
        assert contradictory and "both true and false" in str(error)
        return
    assert not contradictory
    found = {(name, *args) for name, args in kb.facts()}
    found |= {("not", name, *args) for name, args in kb.facts(truth=False)}
    assert found == expected
    assert {row[0] for row in rows} <= set(kb.domains["entity"].labels)


def test_attributes_can_be_compared(tmp_path):
    (tmp_path / "people.csv").write_text("name,age\nann,71\nbob,42\ncid,66\n")
    kb = read_facts(tmp_path / "people.csv", format="table")
    retired = apply(parse_rules("retired(X) :- age(X, A), A > 64."), kb)
    assert {fact.args for fact in retired} == {("ann",), ("cid",)}


def test_columns_can_be_chosen(tmp_path):
    path = tmp_path / "people.tsv"
    path.write_text("row\tname\tboss\tage\n1\t10\t20\t71\n2\t20\t\t42\n")
    kb = read_facts(path, format="table", columns=["head=name", "tail=boss", "_=row"])
    assert sorted(kb.facts()) == [("age", ("10", 71.0)), ("age", ("20", 42.0)), ("boss", ("10", "20"))]
    assert kb.notes == ("people.tsv: a table about name; relations: boss; numbers: age; 1 more column passed over",)


@pytest.mark.parametrize(
    ("columns", "error", "message"),
    [
        (["head", "tail"], DataError, "given by name: head=NAME"),
        (["relation=age"], UnknownNameError, "unknown role of a column 'relation'"),
        (["head=nobody"], ParseError, "no column with the name 'nobody'"),
        (["head=name", "head=age"], DataError, "one column of a table names the entities"),
    ],
)
def test_columns_that_cannot_be(tmp_path, columns, error, message):
    (tmp_path / "a.csv").write_text("name,age\nann,71\n")
    with pytest.raises(error, match=message):
        read_facts(tmp_path / "a.csv", format="table", columns=columns)


def test_bad_tables(tmp_path):
    (tmp_path / "a.csv").write_text("name,age,age\nann,71,72\n")
    with pytest.raises(ParseError, match="two columns have the name 'age'"):
        table.read(tmp_path / "a.csv")
    (tmp_path / "a.csv").write_text("name,age\n,71\n")
    with pytest.raises(ParseError, match=r"a\.csv:2: the name \(name\) is empty"):
        table.read(tmp_path / "a.csv")


def test_parquet_has_types(tmp_path):
    polars = pytest.importorskip("polars")
    from datetime import date

    frame = polars.DataFrame(
        {
            "name": ["ann", "bob"],
            "age": [71, None],
            "height": [1.5, math.nan],
            "born": [date(1952, 7, 2), None],
            "retired": [True, False],
            "zip": ["53111", None],
            "boss_id": [None, 7],
            "tags": [["a"], ["b"]],
        }
    )
    frame.write_parquet(tmp_path / "people.parquet")
    again = frames.from_frame(frame, format="table")
    assert sorted(map(str, again.facts())) == sorted(
        map(str, read_facts(tmp_path / "people.parquet", format="table").facts())
    )
    kb = read_facts(tmp_path / "people.parquet", format="table")
    assert sorted(map(str, kb.facts())) == sorted(
        map(
            str,
            [
                ("age", ("ann", 71.0)),
                ("born", ("ann", 1952.5)),
                ("boss_id", ("bob", "7")),
                ("height", ("ann", 1.5)),
                ("retired", ("ann",)),
                ("zip", ("ann", "53111")),
            ],
        )
    )
    assert kb.tuples("retired", truth=False) == [("bob",)]
    assert "empty or of a type that is not read: tags" in kb.notes[0]
