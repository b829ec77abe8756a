"""Every named data set loads, and its counts are those that are published."""

from __future__ import annotations

import pytest
from real_data import DATA, needs_data

from rulewright import datasets, parse_rules, read_facts, read_rules
from rulewright.datasets import availability, catalogue, load, rules_of
from rulewright.errors import DataError, FileError, UnknownNameError

pytestmark = pytest.mark.slow


@pytest.fixture
def real(monkeypatch):
    monkeypatch.setenv("RULEWRIGHT_DATA", str(DATA))


@pytest.fixture
def nothing(monkeypatch, tmp_path):
    monkeypatch.delenv("RULEWRIGHT_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@needs_data
@pytest.mark.parametrize(
    ("name", "entities", "predicates", "facts", "splits"),
    [
        ("umls", 135, 46, 5216, {"valid": 652, "test": 661}),
        ("kinship", 104, 25, 8544, {"valid": 1068, "test": 1074}),
        ("wn18", 40943, 18, 141442, {"valid": 5000, "test": 5000}),
        ("wn18rr", 40943, 11, 86835, {"valid": 3034, "test": 3134}),
        ("fb15k237", 14541, 237, 272115, {"valid": 17535, "test": 20466}),
        # graph.tsv says one fact twice
        ("countries_s1", 271, 2, 1110, {"train": 1110, "test": 24}),
        ("countries_s2", 271, 2, 1062, {"train": 118, "test": 24}),
        ("countries_s3", 271, 2, 978, {"train": 34, "test": 24}),
        # the published 14,403 / 2,624 / 2,459 count 17 / 4 / 6 facts twice
        ("dwie", 21902, 65, 14403 - 17, {"dev": 2624 - 4, "test": 2459 - 6}),
        ("redocred", 19463, 96, 17284, {"test": 17448}),
        ("vrd", 26430 + 6735, 170, 26430 + 29861, {"test": 6735 + 7478}),
    ],
)
def test_graphs_and_documents(real, name, entities, predicates, facts, splits):
    kb = load(name)
    assert (kb.n_entities, len(kb.predicates), kb.n_facts) == (entities, predicates, facts)
    assert {split: each.n_facts for split, each in kb.splits.items()} == splits
    assert availability(catalogue()[name]) == "local"


@needs_data
def test_entities_unseen_in_training(real):
    for name, expected in (("wn18rr", 210), ("fb15k237", 28)):
        kb = load(name)
        heads, tails = kb.tables()["ee"].columns
        seen = set(heads.tolist()) | set(tails.tolist())
        tested = kb.split("test").tables()["ee"]
        pairs = zip(*(column.tolist() for column in tested.columns), strict=True)
        assert sum(head not in seen or tail not in seen for head, tail in pairs) == expected


@needs_data
def test_documents_are_worlds(real):
    kb = load("dwie")
    assert len(kb.worlds) == 602 + 98 + 99
    assert len(load("redocred").worlds) == 1000
    assert len(load("vrd").worlds) == 3780 + 955


@needs_data
def test_forms_and_sentences(real):
    forms, sentences = load("funsd"), load("conll2003")
    assert len(forms.worlds) == 149 + 50
    assert forms.predicate("label").classes == ("question", "answer", "header", "other")
    assert len(sentences.worlds) == 14041 + 3250 + 3453
    assert sentences.count("label") == 203621
    assert set(sentences.splits) == {"testa", "testb"}


@needs_data
@pytest.mark.parametrize(("name", "formulas"), [("smoke", 5), ("kinship_mln", 22), ("uw_cse", 66), ("cora", 32)])
def test_markov_logic_networks(real, name, formulas):
    entry = catalogue()[name]
    for part in entry.parts or [None]:
        kb, rules = load(name, part), rules_of(name, part)
        assert kb.n_facts > 0
        assert kb.split("queries").n_facts + kb.split("queries").n_false_facts > 0
        assert len(rules.formulas) == formulas
        assert parse_rules(str(rules)) == rules


@needs_data
def test_published_rules(real):
    assert len(rules_of("dwie").rules) == 39
    assert len(read_rules(DATA / "dwie" / "milr_mined_rules_dwie.txt").rules) == 90
    assert len(rules_of("redocred").rules) == 168
    with pytest.raises(DataError, match="comes without rules"):
        rules_of("umls")


@needs_data
@pytest.mark.parametrize(
    "path",
    [
        "kbc/umls/train.tsv",
        "kbc/countries_S1",
        "dwie/train_annotations_notext.json",
        "redocred/test_revised.json",
        "mln/smoke",
        "mln/uw_cse/ai",
        "vrd",
        "vrd/raw",
        "funsd",
        "funsd/testing_data",
        "funsd/testing_data/annotations/82092117.json",
        "conll2003/eng.testb",
    ],
)
def test_the_format_is_found_from_name_and_content(path):
    assert read_facts(DATA / path).n_facts > 0


@needs_data
def test_both_forms_of_the_scene_graphs_agree(real):
    tidy, raw = load("vrd"), read_facts(DATA / "vrd" / "raw")
    assert {name: tidy.count(name) for name in tidy.predicates} == {name: raw.count(name) for name in raw.predicates}


def test_a_set_that_is_not_here_says_what_to_do(nothing):
    with pytest.raises(FileError, match="rulewright data get umls"):
        load("umls")
    with pytest.raises(FileError, match="local only"):
        load("vrd")
    with pytest.raises(DataError, match="name one of cora/S1, cora/S2, cora/S3"):
        load("cora")
    with pytest.raises(UnknownNameError, match="did you mean 'umls'"):
        load("umsl")
    assert availability(catalogue()["umls"]) == "download"
    assert availability(catalogue()["dwie"]) == "local only"


def test_the_public_names_are_here():
    assert all(hasattr(datasets, name) for name in datasets.__all__)
