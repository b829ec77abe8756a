from __future__ import annotations

import csv
import gzip
import io
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, FileError, ParseError, RulewrightError
from rulewright.io import triples

NAMES = st.text(st.characters(exclude_characters="\t\n\r\x00\x02", exclude_categories=["Cs"]), min_size=1, max_size=8)


def facts_of(kb: KnowledgeBase) -> set[tuple[str, str, str]]:
    return {(head, name, tail) for name, (head, tail) in kb.facts()}


def written(folder, text, name="facts.tsv"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=1, max_size=12))
def test_tsv_round_trip(rows, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tsv")
    path = written(folder, "".join("\t".join(row) + "\n" for row in rows))
    kb = triples.read(path, header=False)
    assert facts_of(kb) == set(rows)
    assert kb.duplicates == len(rows) - len(set(rows))
    triples.write(kb, folder / "again.tsv")
    assert facts_of(triples.read(folder / "again.tsv", header=False)) == set(rows)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rows=st.lists(st.tuples(NAMES, NAMES, NAMES), min_size=1, max_size=12))
def test_csv_round_trip(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("csv") / "facts.csv"
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    path.write_bytes(buffer.getvalue().encode())
    kb = triples.read(path, header=False)
    assert facts_of(kb) == set(rows)
    triples.write(kb, path)
    assert facts_of(triples.read(path, header=False)) == set(rows)


def test_names_that_look_like_something_else_stay_text(tmp_path):
    rows = [("NA", "null", "007"), ("None", "true", "1e5"), ('"quoted', "it's", ""), (" space ", "ünï", "مرحبا")]
    rows[2] = ('"quoted', "it's", "nan")
    kb = triples.read(written(tmp_path, "".join("\t".join(row) + "\n" for row in rows)))
    assert facts_of(kb) == set(rows)


def test_gzip_by_name_and_by_content(tmp_path):
    packed = gzip.compress(b"a\tr\tb\n")
    for name in ("facts.tsv.gz", "facts.tsv"):
        assert facts_of(triples.read(written(tmp_path, packed, name))) == {("a", "r", "b")}


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_marked_encodings(tmp_path, encoding):
    assert facts_of(triples.read(written(tmp_path, "ä\tr\tb\r\n".encode(encoding)))) == {("ä", "r", "b")}


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\tr\tb\n")))
    assert facts_of(triples.read("-")) == {("a", "r", "b")}


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("subject,predicate,object\na,r,b\n", "x.csv"),
        ("object\tsubject\tpredicate\nb\ta\tr\n", "x.tsv"),
        ("a r b\n", "x.txt"),
        ("a;r;b\n", "x.txt"),
        ("head\trelation\ttail\tscore\na\tr\tb\t0.5\n", "x.tsv"),
        ("a\tr\tb\t0.5\n", "x.tsv"),
        ("\n\na\tr\tb\n\n", "x.tsv"),
        ("a\tr\tb", "x.tsv"),
        ("a\tr\tb\r\n", "x.tsv"),
    ],
)
def test_layouts_found_by_themselves(tmp_path, text, name):
    assert facts_of(triples.read(written(tmp_path, text, name))) == {("a", "r", "b")}


def test_layouts_that_are_given(tmp_path):
    path = written(tmp_path, "h|t|x|r\nb|a|9|r\n", "x.dat")
    columns = ("tail", "head", "_", "relation")
    assert facts_of(triples.read(path, delimiter="|", columns=columns, header=True)) == {("a", "r", "b")}
    assert triples.read(path, delimiter="|", columns=columns, header=False).n_facts == 2
    with pytest.raises(DataError, match="columns must name head, relation and tail once"):
        triples.read(path, columns=("head", "tail"))


def test_worlds_keep_equal_names_apart(tmp_path):
    path = written(tmp_path, "a\tr\tb\td1\na\tr\tb\td2\nb\tr\ta\td2\n")
    kb = triples.read(path, columns=("head", "relation", "tail", "world"))
    assert kb.worlds == ("d1", "d2")
    assert sorted(kb.tuples("r")) == [("a@d1", "b@d1"), ("a@d2", "b@d2"), ("b@d2", "a@d2")]
    assert kb.in_worlds(["d1"]).tuples("r") == [("a@d1", "b@d1")]


def test_splits_share_their_entities(tmp_path):
    train, test = written(tmp_path, "a\tr\tb\n", "train.tsv"), written(tmp_path, "b\ts\tc\n", "test.tsv")
    kb = triples.read_splits({"": train, "test": test})
    assert kb.split("test").domains is not None
    assert list(kb.domains["entity"].labels) == ["a", "b", "c"]
    assert facts_of(kb) == {("a", "r", "b")}
    assert facts_of(kb.split("test")) == {("b", "s", "c")}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\tr\tb\na\tr\n", ":2: found 2 columns, expected 3: 'a\\tr'"),
        (b"a\tr\tb\na\tr\tb\tc\n", ":2: found 4 columns, expected 3: 'a\\tr\\tb\\tc'"),
        (b"a\tr\tb\n\na\t\tb\n", ":3: the relation is empty"),
        (b"a\tr\tb\nb\tr\t\n", ":2: the tail is empty"),
        (b"", ": no facts: the file is empty"),
        (b"\n\n", ": no facts: the file is empty"),
        (b"head\trelation\ttail\n", ": no facts below the header"),
        (b"a\tr\tb\nc\tr\t\xff\n", ":2: byte 0xff is not UTF-8 text; convert the file"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", ": a binary file, not text"),
        (b"only one column\n", ":1: found 1 column separated by '\\t', expected 3 (head, relation, tail)"),
    ],
)
def test_bad_files_name_line_and_reason(tmp_path, content, message):
    path = written(tmp_path, content)
    with pytest.raises(ParseError) as caught:
        triples.read(path)
    assert str(caught.value).startswith(f"{path}{message}")
    assert "\n" not in str(caught.value)


def test_bad_csv_quotes_are_reported(tmp_path):
    with pytest.raises(ParseError, match=r"x\.csv:"):
        triples.read(written(tmp_path, 'a,r,b\na,"r,b\n', "x.csv"))


def test_missing_and_unreadable_files(tmp_path):
    with pytest.raises(FileError, match=r"cannot read .*nothing.tsv: No such file"):
        triples.read(tmp_path / "nothing.tsv")
    with pytest.raises(ParseError, match="not a complete gzip file"):
        triples.read(written(tmp_path, gzip.compress(b"a\tr\tb\n" * 100)[:-12], "cut.tsv.gz"))


@pytest.mark.slow
@settings(max_examples=80, deadline=None)
@given(content=st.binary(max_size=60) | st.text(alphabet="ab\t\n\r,\"' ", max_size=40).map(str.encode))
def test_arbitrary_bytes_never_crash(content, tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzz")
    for name in ("x.tsv", "x.csv", "x.txt"):
        try:
            triples.read(written(folder, content, name))
        except RulewrightError as error:
            assert "\n" not in str(error)


def test_what_triples_cannot_say_is_refused(tmp_path):
    path = tmp_path / "out.tsv"
    for facts, reason in [
        ([("tall", "ann")], "no place for facts of predicate tall"),
        ([("p", "a\tb", "c")], "cannot stand in a TSV"),
    ]:
        with pytest.raises(DataError, match=reason):
            triples.write(KnowledgeBase.from_facts(facts), path)
    assert not path.exists()
