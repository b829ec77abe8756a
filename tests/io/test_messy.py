"""Files as they come: what is read of each, and what is said or refused. ``benchmarks/messy_files.py`` makes them."""

from __future__ import annotations

import io
import sys
from importlib import util
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright import read_facts
from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, ParseError, RulewrightError
from rulewright.io import triples
from rulewright.io.columns import HEADER_WORDS, choose_columns, read_header

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
_spec = util.spec_from_file_location("messy_files", BENCHMARKS / "messy_files.py")
messy_files = util.module_from_spec(_spec)
sys.modules["messy_files"] = messy_files
_spec.loader.exec_module(messy_files)
sys.path.remove(str(BENCHMARKS))

FAMILY = set(messy_files.FAMILY)
ROLES_NOTE = "head = subject, relation = predicate, tail = object"
HEADER = "the first line looks like a header but does not say which columns are head, relation and tail"
EXPECTED: dict[str, tuple[object, list[str]]] = {  # the facts and the notes
    "relationships of Neo4j": (
        {("1", "KNOWS", "2")},
        ["knows.csv: properties of relationships are not read: role"],
    ),
    "an export of Neo4j": (
        {("1", "KNOWS", "2"), ("1", "Person"), ("2", "Person"), ("2", "Boss"), ("1", "retired")}
        | {("1", "name", "Ann"), ("2", "name", "Bob"), ("1", "age", 71.0), ("2", "age", 42.0)},
        [
            "links.csv: properties of relationships are not read: role",
            "people.csv: empty or of a type that is not read: home",
        ],
    ),
    "a wide table, said so": (
        {("ann", "age", 71.0), ("bob", "age", 42.0), ("ann", "city", "bonn"), ("ann", "retired")}
        | {("ann", "born", 1950 + 182 / 365), ("bob", "born", 1979.0)},
        [
            "people.csv: a table about id; relations: city; numbers: age; dates in years (2 July 2020 is 2020.5): "
            "born; true or false: retired"
        ],
    ),
    "scores and a source": (FAMILY, [f"a.csv: {ROLES_NOTE}; 2 more columns ignored: confidence, source"]),
    "a leading id": (FAMILY, [f"a.csv: {ROLES_NOTE}; 1 more column ignored: id"]),
    "reordered": ({("ann", "parent_of", "bob")}, [f"a.tsv: {ROLES_NOTE}"]),
    "an unclear header, in order": (FAMILY, ["a.csv: the first line is passed over as a header: id, who, does, whom"]),
    "an unclear header, by name": (FAMILY, []),
    "a header twice": (FAMILY, ["a.csv: the header stands 1 more time below, passed over"]),
    "what apply writes": ({("ann", "knows", "bob")}, ["new.tsv: 2 more columns ignored: score, rules"]),
    "a byte-order mark": (FAMILY, [f"a.csv: {ROLES_NOTE}; 2 more columns ignored: confidence, source"]),
    "UTF-16": (FAMILY, []),
    "CRLF": (FAMILY, []),
    "CR": (FAMILY, []),
    "quoted commas": ({("ann", "lives_in", "Paris, Texas"), ('the "boss"', "knows", "ann")}, []),
    "quoted line breaks": ({("ann", "says", "one\ntwo"), ("bob", "says", "three")}, []),
    "a tab inside": ({("ann", "says", "one\ttwo")}, []),
    "empty columns": (FAMILY, ["a.csv: the first three columns are head, relation and tail; 2 more columns ignored"]),
    "semicolons": (FAMILY, []),
    "Windows paths": ({("C:\\new\\table", "in", "D:\\My Files")}, []),
    "gzip by content": (FAMILY, []),
    "quotes in a TSV": ({("ann", "knows", "bob")}, [f"a.tsv: {ROLES_NOTE}"]),
    "blanks after commas": (
        {("ann", " knows", " bob"), ("bob", " knows", " cid")},
        ["3 names begin or end with a blank, such as ' bob'"],
    ),
    "blank lines": ({("ann", "knows", "bob"), ("bob", "knows", "cid")}, []),
    "numbers as tails": (
        FAMILY | {(f"p{i}", "age", 20.0 + i) for i in range(8)},
        ["the tails of age are numbers; --columns head,relation,name makes them names"],
    ),
    "numbers that are names": (FAMILY | {(f"p{i}", "age", str(20 + i)) for i in range(8)}, []),
    "numeric ids": ({(str(i), "next", str(i + 1)) for i in range(20)}, []),
}
REFUSED = {
    "an unclear header": f"a.csv:1: {HEADER}: id, who, does, whom; say it in order, such as --columns "
    "_,head,relation,tail, or by name, such as --columns 'head=who,relation=does,tail=whom'",
    "a wide table": f"people.csv:1: {HEADER}: id, age, city, retired, born",
    "words nobody knows": f"a.csv:1: {HEADER}: who, does, whom; say it in order, such as --columns head,relation,tail",
    "an edge list": "a.csv:1: the header names a head and a tail but no relation: source, target, weight; add a column",
    "Latin-1": "a.tsv:2: byte 0xe9 is not UTF-8 text; convert the file, e.g. iconv -f latin1 -t utf-8",
    "ragged lines": "a.tsv:2: found 4 columns, expected 3: 'ann\\tknows\\tbob\\tcid'",
    "an empty field": "a.tsv:2: the tail is empty",
    "a picture": "a.tsv: a binary file, not text",
}
ELSEWHERE = {"a folder with more", "dates as tails"}


def facts_of(kb: KnowledgeBase) -> set[tuple[object, ...]]:
    return {(args[0], name, *args[1:]) for name, args in kb.facts()}


def test_every_file_is_tested():
    assert messy_files.MESSY.keys() == {*EXPECTED, *REFUSED, *ELSEWHERE}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_read(tmp_path, name):
    kb = messy_files.MESSY[name].read(tmp_path)
    facts, notes = EXPECTED[name]
    assert facts_of(kb) == facts
    assert list(kb.notes) == notes


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(tmp_path, name):
    with pytest.raises(ParseError) as caught:
        messy_files.MESSY[name].read(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}/{REFUSED[name]}")


def test_a_folder_names_what_it_leaves_out(tmp_path):
    kb = messy_files.MESSY["a folder with more"].read(tmp_path)
    assert facts_of(kb) == {messy_files.FAMILY[0], messy_files.FAMILY[1], messy_files.FAMILY[3]}
    assert facts_of(kb.split("test")) == {messy_files.FAMILY[2]}
    assert list(kb.notes) == [
        f"{tmp_path.name}: train.tsv and facts.tsv together are the main facts",
        f"{tmp_path.name}: left out: README.md (a document); entities.dict (no ending of facts)",
    ]


def test_dates_are_years(tmp_path):
    kb = messy_files.MESSY["dates as tails"].read(tmp_path)
    values = dict(kb.tuples("born"))
    assert values["p2"] == 1952.5  # the 184th of 366 days begins in the middle of the year
    assert values["p0"] == pytest.approx(1950 + 182 / 365)
    assert "the tails of born are dates in years (2 July 2020 is 2020.5); --columns" in kb.notes[0]


@pytest.mark.slow
def test_two_million_lines(tmp_path):
    kb, _ = messy_files.read_millions(tmp_path)
    assert kb.n_facts == 2_000_000
    assert kb.contains("r0", "e0", "e0")


def test_a_first_fact_of_header_words_is_a_fact_where_its_names_recur(tmp_path):
    for text in ("date\tis_a\tfruit\nfig\tis_a\tfruit\n", "ann\tweight\theavy\nann\tlikes\tbob\n"):
        (tmp_path / "a.tsv").write_text(text)
        assert read_facts(tmp_path / "a.tsv").n_facts == 2


def test_n_triples_by_content(tmp_path):
    pytest.importorskip("pyoxigraph")
    (tmp_path / "a.txt").write_text('<urn:a> <urn:p> "one two"@en .\n')
    assert read_facts(tmp_path / "a.txt").tuples("urn:p") == [("urn:a", '"one two"@en')]


def test_a_small_graph_is_no_header(tmp_path):
    (tmp_path / "a.tsv").write_text("ann\tlikes\tbob\ncid\tknows\tdan\ndan\tknows\teva\n")
    assert read_facts(tmp_path / "a.tsv").n_facts == 3


def test_standard_input_is_called_so(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"id,who,does,whom\n1,a,b,c\n")))
    with pytest.raises(ParseError, match=r"^standard input:1: the first line looks like a header"):
        read_facts("-")


@pytest.mark.parametrize(
    ("header", "roles"),
    [
        ("head,relation,tail", "head,relation,tail"),
        ("h,r,t", "head,relation,tail"),
        ("source,target,type", "head,tail,relation"),
        ("Subject ID,Predicate,Object ID,Graph", "head,relation,tail,_"),
        ("from,to,subject,predicate,object", "_,_,head,relation,tail"),
        ("#subject,predicate,object", "head,relation,tail"),
        ("doc,s,p,o", "world,head,relation,tail"),
        ("head_id,head_label,relation,tail_id,tail_label", "head,_,relation,tail,_"),
        ("s,p,o", "head,relation,tail"),
        ("s,r,t", None),
        ("head,head,relation,tail", None),
        ("source,target,weight", None),
        ("ann,parent_of,bob", None),
    ],
)
def test_headers(header, roles):
    assert read_header(header.split(",")) == (None if roles is None else tuple(roles.split(",")))


@given(st.permutations([*(words[0] for words in HEADER_WORDS.values()), "id", "confidence"]))
def test_a_clear_header_is_read_in_any_order(fields):
    roles = read_header(fields)
    assert roles == tuple("_" if field in ("id", "confidence") else field for field in fields)
    assert choose_columns(roles, fields) == roles
    named = [f"{role}={field}" for role, field in zip(roles, fields, strict=True) if role != "_"]
    assert choose_columns(named, fields) == roles


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (["head", "tail"], "columns must name head, relation and tail once"),
        (["head", "relation", "tail", "tale"], "columns must name head, relation and tail once"),
        (["head=a", "relation", "tail"], "either in order, such as .* or all by name"),
        (["head=a", "relation=b", "tail=c"], "no column with the name 'c'"),
        (["head", "relation", "tail", "_"], "found 3 columns, expected 4"),
    ],
)
def test_columns_that_cannot_be(tmp_path, columns, message):
    (tmp_path / "a.csv").write_text("a,b,d\nx,y,z\n")
    with pytest.raises(DataError, match=message):
        read_facts(tmp_path / "a.csv", columns=columns)


NAMES = st.sampled_from(["ann", "bob", "cid", "dan", "12", "2020-01-01"])
TAILS = st.sampled_from(["ann", "007", "-3", "1e2", "2020-01-01", "0.5", *map(str, range(1, 9))])
ROWS = st.lists(st.tuples(st.sampled_from("abcdefgh") | NAMES, st.sampled_from("pqr"), TAILS), min_size=1, max_size=30)


def attributes_slowly(rows: list[tuple[str, str, str]]) -> set[str]:
    """Find the relations whose tails are numbers, as the documentation says it."""

    def is_numeral(text: str) -> bool:
        return text.lstrip("-")[:1].isdigit() and text not in ("007", "12020-01-01") and "-01-" not in text

    found = set()
    for relation in {row[1] for row in rows}:
        pairs = {(head, tail) for head, name, tail in rows if name == relation}
        if (
            all(is_numeral(tail) for _, tail in pairs)
            and len(pairs) == len({head for head, _ in pairs})
            and len({tail for _, tail in pairs}) >= 6
            and not any(head.isdigit() for head, _, _ in rows)
        ):
            found.add(relation)
    while True:
        names = {tail for _, relation, tail in rows if relation not in found}
        shared = {relation for _, relation, tail in rows if relation in found and tail in names}
        if not shared:
            return found
        found -= shared


@settings(max_examples=25)
@given(ROWS)
def test_attributes_are_what_the_rule_says(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("attributes") / "a.tsv"
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    kb = triples.read(path, header=False)
    attributes = {name for name, declaration in kb.predicates.items() if declaration.types[1] == "number"}
    assert attributes == attributes_slowly(rows)
    expected = {(h, r, float(t) if r in attributes else t) for h, r, t in rows}
    assert facts_of(kb) == expected
    triples.write(kb, path)
    assert facts_of(triples.read(path, header=False)) == expected


def test_attributes_in_worlds_and_splits(tmp_path):
    rows = [f"p{i}\tage\t{20 + i}\td{i % 2}\n" for i in range(8)] + ["p0\tknows\tp2\td0\n"]
    (tmp_path / "a.tsv").write_text("".join(rows))
    kb = read_facts(tmp_path / "a.tsv", columns=["head", "relation", "tail", "world"])
    assert kb.contains("age", "p3@d1", 23.0)
    assert kb.worlds == ("d0", "d1")
    (tmp_path / "b.tsv").write_text("p1\tage\tunknown\td1\n")
    main, test, columns = tmp_path / "a.tsv", tmp_path / "b.tsv", ["head", "relation", "tail"]
    for paths, tail_type in (({"": main}, "number"), ({"": main, "test": test}, "entity")):
        assert triples.read_splits(paths, columns=columns).predicates["age"].types[1] == tail_type


def test_notes_are_part_of_the_summary(tmp_path):
    kb = messy_files.MESSY["a leading id"].read(tmp_path)
    assert str(kb.summary()).endswith("1 more column ignored: id")
    assert kb.summary().as_dict()["notes"] == kb.notes


STARTS = st.sampled_from(
    [
        "",
        ":ID,a:int,:LABEL\n",
        ":START_ID,:END_ID,:TYPE\n",
        "id,age,city\n",
        "s,p,o\n",
        "_id,_labels,_start,_end,_type\n",
    ]
)
CONTENTS = st.text(alphabet="ab1,;\t\n\r\"': _\\id.-2T", max_size=60).map(str.encode) | st.binary(max_size=40)


@pytest.mark.slow
@settings(max_examples=60)
@given(STARTS, CONTENTS, st.sampled_from([None, "table", "neo4j"]), st.sampled_from([None, "head,relation,name,world"]))
def test_any_table_is_read_or_an_error_of_ours(tmp_path_factory, start, content, format, columns):
    path = tmp_path_factory.mktemp("any") / "a.csv"
    path.write_bytes(start.encode() + content)
    try:
        kb = read_facts(path, format=format, columns=columns)
    except RulewrightError as error:
        assert "\n" not in str(error)
    else:
        assert kb.summary().facts == len([*kb.facts()])
