"""The format of a file is found from its name and its content, or given."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright import read_facts, read_rules, write_facts
from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, FileError, RulewrightError, UnknownNameError
from rulewright.io import FACT_FORMATS, FORMATS, RULE_FORMATS, holds_rules, write_rules
from rulewright.logic import parse_rules

DOCRED = [
    {
        "title": "d",
        "vertexSet": [
            [{"name": "A", "type": "x", "sent_id": 0, "pos": [0, 1]}],
            [{"name": "B", "type": "x", "sent_id": 0, "pos": [1, 2]}],
        ],
        "sents": [["A", "B"]],
        "labels": [{"h": 0, "t": 1, "r": "P1", "evidence": []}],
    }
]
FUNSD = {
    "form": [
        {
            "id": 0,
            "label": "question",
            "box": [0, 0, 1, 1],
            "text": "a",
            "words": [{"text": "a", "box": [0, 0, 1, 1]}],
            "linking": [],
        }
    ]
}
FILES = {
    "a.tsv": "x\tr\ty\n",
    "a.csv": "x,r,y\n",
    "a.txt": "x\tr\ty\n",
    "noending": "x\tr\ty\n",
    "a.facts": "r(x, y).\n",
    "b.txt": "% facts\nr(x, y).\n",
    "c.txt": "predicate r(a, a).\nr(x, y).\n",
    "a.db": "R(X, Y)\n",
    "d.txt": "R(X, Y)\n",
    "a.json": json.dumps(DOCRED),
    "form.json": json.dumps(FUNSD),
    "a.conll": "EU NNP I-NP I-ORG\nrejects VBZ I-VP O\n",
    "e.txt": "-DOCSTART- -X- O O\n\nEU NNP I-NP I-ORG\n",
}


@pytest.mark.parametrize("name", FILES)
def test_files(tmp_path, name):
    (tmp_path / name).write_text(FILES[name])
    assert read_facts(tmp_path / name).n_facts >= 1


def test_folders_of_splits(tmp_path):
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(f"x\t{split}\ty\n")
    kb = read_facts(tmp_path)
    assert kb.tuples("train") == [("x", "y")]
    assert set(kb.splits) == {"valid", "test"}
    (tmp_path / "graph.tsv").write_text("x\tgraph\ty\n")
    assert read_facts(tmp_path).tuples("graph") == [("x", "y")]
    assert set(read_facts(tmp_path).splits) == {"train", "valid", "test"}


def test_folders_of_documents(tmp_path):
    (tmp_path / "train_revised.json").write_text(json.dumps(DOCRED))
    (tmp_path / "dev.json").write_text(json.dumps([{**DOCRED[0], "title": "e"}]))
    kb = read_facts(tmp_path)
    assert kb.n_facts == kb.split("dev").n_facts == 1


def test_what_cannot_be_told_is_asked_for(tmp_path):
    with pytest.raises(FileError, match=r"cannot tell the format of .*; give one of: facts, triples"):
        read_facts(tmp_path)
    with pytest.raises(UnknownNameError, match="unknown format of facts 'tripels'; did you mean 'triples'"):
        read_facts(tmp_path, format="tripels")
    with pytest.raises(UnknownNameError, match="unknown format of rules"):
        read_rules(tmp_path, format="x")
    with pytest.raises(DataError, match="standard input has no name"):
        holds_rules("-")
    with pytest.raises(FileError, match="No such file"):
        read_facts(tmp_path / "none.json")


def test_a_given_format_wins(tmp_path):
    (tmp_path / "a.tsv").write_text("r(x, y).\n")
    assert read_facts(tmp_path / "a.tsv", format="facts").tuples("r") == [("x", "y")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.rules", "p(X) :- q(X)."),
        ("plain", "0.5 :: p(X) :- q(X)."),
        ("a.mln", "P(t)\n1.5 P(x)\n"),
        ("mined_rules.txt", "['a', 'anti_b'] -> c : 0.98\n"),
        ("grules.txt", "1 ['~spouse_of'] spouse_of\n"),
        ("other", "1.0 !p(x,y) v q(y)\n"),
    ],
)
def test_rules(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert len(read_rules(tmp_path / name)) == 1


def test_facts_and_rules_are_told_apart(tmp_path):
    for name, rules in [
        ("a.rules", True),
        ("a.mln", True),
        ("mined_rules.txt", True),
        ("a.tsv", False),
        ("rules", True),
    ]:
        assert holds_rules(tmp_path / name) is rules
    assert holds_rules("-", format="rules")
    assert not holds_rules("-", format="triples")
    with pytest.raises(UnknownNameError, match="unknown format"):
        holds_rules("-", format="x")


def test_writing_by_name(tmp_path):
    kb = KnowledgeBase.from_triples([("a", "r", "b")])
    for name in ("x.facts", "x.tsv", "x.csv", "x.facts.gz"):
        write_facts(kb, tmp_path / name)
        assert read_facts(tmp_path / name).tuples("r") == [("a", "b")]
    rules = parse_rules("p(X) :- q(X).")
    write_rules(rules, tmp_path / "x.rules")
    assert read_rules(tmp_path / "x.rules") == rules
    with pytest.raises(DataError, match="cannot tell the format"):
        write_facts(kb, tmp_path / "x.png")
    with pytest.raises(UnknownNameError, match="unknown format to write"):
        write_facts(kb, tmp_path / "x.png", format="png")


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=80) | st.text(alphabet="ab()[]{}'\".,:!- \n\tXv1=>%", max_size=60).map(str.encode))
def test_no_reader_crashes_on_anything(content, tmp_path_factory):
    path = tmp_path_factory.mktemp("any") / "file"
    path.write_bytes(content)
    for read, formats in ((read_facts, [None, *FACT_FORMATS]), (read_rules, [None, *RULE_FORMATS])):
        for each in formats:
            try:
                read(path, format=each)
            except RulewrightError as error:
                assert not re.search(r"\n", str(error)), str(error)


def test_the_table_names_functions_that_exist_and_is_documented():
    documented = (Path(__file__).parents[2] / "docs/formats.md").read_text()
    for format in FORMATS:
        assert format.read or format.write
        for function in filter(None, (format.read, format.write, format.convert)):
            assert callable(getattr(import_module(f"rulewright.io.{format.module}"), function))
        assert f"`{format.name}`" in documented
        assert all(f"`{ending}`" in documented for ending in format.endings)
