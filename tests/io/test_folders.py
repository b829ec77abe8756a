from __future__ import annotations

import pytest

from rulewright.engine import store_facts
from rulewright.errors import FileError
from rulewright.io import read_facts

FACT = "{0}\tknows\tb{0}\n"


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "graph"
    made.mkdir()
    return made


def put(folder, *names):
    """Write a fact of its own into every file, so that what was read tells which files were."""
    for name in names:
        (folder / name).write_text(FACT.format(name))


def heads(kb):
    return sorted(head for head, _ in kb.tuples("knows"))


def test_facts_beside_the_splits_are_main_facts(folder):
    put(folder, "train.tsv", "valid.tsv", "test.tsv", "facts.tsv", "facts_more.csv")
    kb = read_facts(folder)
    assert heads(kb) == ["facts.tsv", "facts_more.csv", "train.tsv"]
    assert [*kb.splits] == ["valid", "test"] and heads(kb.split("test")) == ["test.tsv"]
    assert kb.notes == ("graph: train.tsv, facts.tsv, facts_more.csv together are the main facts",)


def test_every_file_that_is_left_out_is_named_with_the_reason(folder):
    put(folder, "train.tsv", "test.tsv", "full_graph.tsv", "train_inverse.tsv", ".hidden")
    (folder / "README.txt").write_text("about, this, graph\n")
    (folder / "plot.png").write_bytes(b"\x89PNG\x00")
    (folder / "entities.txt").write_text("ann\nbob\n")
    (folder / "more.nt").write_text("<a> <b> <c> .\n")
    (folder / "old.rules").write_text("p(X, Y) :- q(X, Y).\n")
    (folder / "weights.bin").write_bytes(b"\x00")
    (folder / "backup").mkdir()
    kb = read_facts(folder)
    assert heads(kb) == ["train.tsv"] and [*kb.splits] == ["test"]
    (note,) = kb.notes
    assert note.startswith("graph: left out: README.txt (a document); backup (a folder); ")
    for part in (
        "entities.txt (no triples in its first lines)",
        "full_graph.tsv (its name says no split; named facts_full_graph.tsv it would be read as main facts)",
        "more.nt (rdf, another format; a folder is read in one, and rulewright convert changes it)",
        "old.rules (rules)",
        "plot.png (an image)",
        "train_inverse.tsv (train.tsv is read for train)",
        "weights.bin (no ending of facts)",
    ):
        assert part in note
    assert ".hidden" not in note


def test_parts_of_a_split_belong_together_and_copies_do_not(folder):
    put(folder, "train-00000-of-00002.tsv", "train-00001-of-00002.tsv", "test.tsv", "test.txt", "test_2.tsv")
    kb = read_facts(folder)
    assert heads(kb) == ["train-00000-of-00002.tsv", "train-00001-of-00002.tsv"]
    assert heads(kb.split("test")) == ["test.tsv", "test_2.tsv"]
    assert kb.notes[1] == "graph: left out: test.txt (test.tsv is read for test)"


def test_without_train_all_other_names_are_main_facts(folder):
    put(folder, "people.tsv", "places.csv", "test.tsv")
    (folder / "notes.txt").write_text("Who knows whom, and where.\nAsked in May.\n")
    kb = read_facts(folder)
    assert heads(kb) == ["people.tsv", "places.csv"] and heads(kb.split("test")) == ["test.tsv"]
    assert kb.notes == (
        "graph: people.tsv and places.csv together are the main facts",
        "graph: left out: notes.txt (no triples in its first lines)",
    )


def test_facts_in_the_rule_language_of_any_name(folder):
    for name in ("people", "places", "test"):
        (folder / f"{name}.facts").write_text(f"knows({name}, bob).")
    kb = read_facts(folder)
    assert heads(kb) == ["people", "places"] and heads(kb.split("test")) == ["test"]


def test_a_graph_makes_train_a_split_as_before(folder):
    put(folder, "graph.tsv", "train.tsv", "test.tsv", "full_graph.tsv")
    kb = read_facts(folder)
    assert heads(kb) == ["graph.tsv"] and [*kb.splits] == ["train", "test"]


def test_questions_that_are_main_facts_are_counted(folder):
    put(folder, "test.tsv", "full_graph.tsv")
    with (folder / "full_graph.tsv").open("a") as file:
        file.write(FACT.format("test.tsv"))
    kb = read_facts(folder)
    assert heads(kb) == ["full_graph.tsv", "test.tsv"]
    assert kb.notes == ("graph: 1 of the 1 facts of test are main facts too, so to ask for them is no test",)


def test_a_folder_without_facts_says_what_it_needs(folder):
    (folder / "plot.png").write_bytes(b"\x89PNG\x00")
    with pytest.raises(FileError, match=r"holds plot.png; .* a folder of triples has \.tsv, \.csv or \.txt files"):
        read_facts(folder)


def test_an_engine_reads_the_same_files_and_says_the_same(folder):
    put(folder, "train.tsv", "test.tsv", "facts.tsv", "full_graph.tsv")
    with store_facts(folder) as kb:
        assert kb.n_facts == read_facts(folder).n_facts == 2
        assert kb.split("test").n_facts == 1
        assert tuple(kb.notes) == read_facts(folder).notes
