"""The tagging experiment on sentences that are made up: its rules, its scores, and a whole run."""

from __future__ import annotations

import json
import random
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from real_data import DATA, needs_data

from rulewright.errors import UnknownNameError
from rulewright.io.conll import Sentence, bioes_classes, spans, to_bioes
from rulewright.logic import parse_rules
from rulewright.papers.catalogue import Experiment, find_experiment
from rulewright.papers.logicmp import tags as family
from rulewright.papers.logicmp.tagger import MeanFieldCRF
from rulewright.papers.logicmp.tags import (
    TaggingTask,
    broken_adjacent,
    broken_pairs,
    build_head,
    compare_tags,
    entity_counts,
    load_task,
    score_tags,
    tag_rules,
)

pytestmark = pytest.mark.slow

CATEGORIES = ("LOC", "PER")
CLASSES = bioes_classes(CATEGORIES)
SETTINGS = {
    "variants": ["plain", "crf", "mean_field_crf", "logicdist"],
    "vectors": "none",
    "hidden_size": 8,
    "dropout": 0.1,
    "epochs": 2,
    "patience": None,
    "batch_size": 4,
    "rate": 1e-2,
    "warmup": 0.1,
    "clip": 5.0,
    "min_items": 3,
    "iterations": 3,
    "rule_weight": "learn",
    "initial_weight": 1.0,
    "list_weights": [0.1, 1.0],
    "slrelax_weight": 0.1,
    "logicdist": {"strength": 6.0, "decay": 0.9, "limit": 0.5},
}


def sentences(count, chance):
    """Who met whom where; some sentences hold a list."""
    people = [("Ann",), ("Bob",), ("Cid", "Lee")]
    result = []
    for number in range(count):
        chosen = chance.sample(people, 3)
        tokens, tags = ["met"], ["O"]
        for name, after in zip(chosen, (",", "and", "in"), strict=True):
            tokens += [*name, after]
            tags += [*["I-PER"] * len(name), "O"]
        town = chance.choice([("Rome",), ("New", "York")])
        tokens, tags = [*tokens, *town], [*tags, *["I-LOC"] * len(town)]
        if chance.random() < 0.5:
            tokens, tags = tokens[-3:], tags[-3:]
        result.append(Sentence(tuple(tokens), tags=to_bioes(tags), document=number // 2))
    return tuple(result)


@pytest.fixture
def task():
    chance = random.Random(0)
    return TaggingTask(sentences(12, chance), sentences(4, chance), sentences(6, chance))


def random_tags(chance):
    return [chance.choice(CLASSES) for _ in range(chance.randrange(1, 9))]


def test_the_rules_parse_and_name_what_the_layer_is_given():
    rules = parse_rules(tag_rules(CATEGORIES, lists=True))
    assert len(rules.formulas) == 4
    assert {"next", "samelist"} == set(rules.closed)
    assert len(parse_rules(tag_rules(CATEGORIES, weight=1.5)).formulas) == 2


def test_the_adjacent_rules_allow_just_what_bioes_has():
    broken = broken_adjacent(CLASSES)
    for (i, first), (j, second) in product(enumerate(CLASSES), repeat=2):
        opens, goes_on = first[0] in "BI", second[0] in "IE"
        allowed = (first[2:] == second[2:]) if opens and goes_on else not opens and not goes_on
        assert bool(broken[i, j] == 0) == allowed, (first, second)


def test_the_layer_of_adjacent_rules_is_a_mean_field_chain():
    layers = pytest.importorskip("rulewright.inject.layer.layer", reason="there is no layer yet")
    torch.manual_seed(0)
    logits, mask = torch.randn(3, 6, len(CLASSES)), torch.arange(6) < torch.tensor([6, 1, 4])[:, None]
    follows = torch.diag(torch.ones(5, dtype=torch.bool), 1) & mask[:, None, :]
    layer = layers.LogicLayer(parse_rules(tag_rules(CATEGORIES, weight=0.7)), iterations=4)
    found = layer({"label": logits}, evidence={"next": follows}, mask={"token": mask})["label"]
    field = MeanFieldCRF(len(CLASSES), iterations=4)
    field.transitions.data = -0.7 * broken_adjacent(CLASSES)
    torch.testing.assert_close(found.softmax(-1)[mask], field(logits, mask).softmax(-1)[mask])


def test_gold_tags_break_no_rule(task):
    assert broken_pairs([each.tags for each in task.training]) == 0


def test_entities_are_counted_as_seqeval_does():
    metrics = pytest.importorskip("seqeval.metrics", reason="seqeval is not installed (extra nlp)")
    chance = random.Random(1)
    gold = [to_bioes(random_tags(chance)) for _ in range(60)]
    found = [[tag if chance.random() < 0.8 else chance.choice(CLASSES) for tag in tags] for tags in gold]
    given = [Sentence(("x",) * len(tags), tags=tags, document=number // 3) for number, tags in enumerate(gold)]
    ours, plain = score_tags(found, given, min_items=3), [list(tags) for tags in gold]
    for name, theirs in (("f1", "f1_score"), ("precision", "precision_score"), ("recall", "recall_score")):
        assert ours[name] == pytest.approx(getattr(metrics, theirs)(plain, found))
    assert entity_counts(found, given)[:, 2].tolist() == [len(spans(tags)) for tags in gold]
    expected = sum(
        bool(broken_adjacent(CLASSES)[CLASSES.index(a), CLASSES.index(b)]) for t in found for a, b in pairwise(t)
    )
    assert ours["broken_pairs"] == expected
    against = compare_tags(plain, found, given)
    assert against["first"] == 1 and against["second"] == pytest.approx(ours["f1"]) and against["low"] > 0


def test_scores_of_nothing():
    given = [Sentence(("x",), tags=("O",))]
    found = score_tags([("O",)], given, min_items=3)
    assert (found["f1"], found["precision"], found["recall"], found["list_sentences"]) == (0, 0, 0, 0)


def test_a_run_from_end_to_end(task, monkeypatch, tmp_path):
    monkeypatch.setattr(family, "load_task", lambda: task)
    experiment = Experiment("logicmp/x", "made up", SETTINGS)
    told: list[str] = []
    found = family.run(experiment, seed=0, folder=tmp_path, tell=told.append)
    assert list(found["rows"]) == ["plain", "crf", "mean_field_crf", "logicdist_q", "logicdist_p"]
    assert set(found["against_plain"]) == set(found["rows"]) - {"plain"}
    for row in found["rows"].values():
        assert 0 <= row["f1"] <= 1 and 0 <= row["selection_f1"] <= 1 and row["list_sentences"] > 0
        assert row["epochs"] == 2
    assert any("crf: epoch 2 of 2" in line for line in told)
    again: list[str] = []
    assert family.run(experiment, seed=0, folder=tmp_path, tell=again.append) == found
    assert not any("epoch" in line for line in again), "what is trained is not trained again"
    json.dumps(found)


def test_the_variants_with_a_layer_and_with_a_penalty(task, monkeypatch, tmp_path):
    monkeypatch.setattr(family, "load_task", lambda: task)
    variants = ["slrelax", "layer_adjacent", "layer_trained_list"]
    experiment = Experiment("logicmp/x", "made up", {**SETTINGS, "variants": variants})
    found = family.run(experiment, seed=0, folder=tmp_path, tell=lambda line: None)
    rows = found["rows"]
    assert list(rows) == ["slrelax", "layer_adjacent", "layer_adjacent_list", "layer_trained_list"]
    assert not found["against_plain"]
    assert np.diff([rows[name]["parameters"] for name in variants]).tolist() == [2, 2]
    adjacent = rows["layer_adjacent"]["learned_rules"]
    assert "samelist" not in adjacent and "samelist" in rows["layer_trained_list"]["learned_rules"]
    added = rows["layer_adjacent_list"]["learned_rules"].splitlines()
    assert set(adjacent.splitlines()) < set(added), "list rules stand behind the rules that were learned"
    assert sum("samelist(T, U) =>" in line for line in added) == 2


def test_the_weight_of_list_rules_is_the_best_on_the_selection_part(task, monkeypatch, tmp_path):
    monkeypatch.setattr(family, "load_task", lambda: task)
    settings = {**SETTINGS, "variants": ["layer_adjacent"], "list_weights": [1.0, 0.1, 5.0]}
    told: list[str] = []
    found = family.run(Experiment("logicmp/x", "made up", settings), seed=0, folder=tmp_path, tell=told.append)
    tried = [line.split(" ")[4].rstrip(":") for line in told if line.startswith("list rules")]
    scores = [float(line.rsplit(" ", 1)[1]) for line in told if line.startswith("list rules")]
    assert tried == ["0.1", "1", "5"]
    row = found["rows"]["layer_adjacent_list"]
    assert row["selection_f1"] == pytest.approx(max(scores), abs=1e-4)
    best = float(tried[scores.index(max(scores))])
    assert f"\n{best} samelist(T, U)" in row["learned_rules"]


def test_unknown_names(task):
    with pytest.raises(UnknownNameError, match="unknown variant"):
        build_head("svm", task, SETTINGS)
    with pytest.raises(UnknownNameError, match="unknown source of vectors"):
        family.build_tagger(task, {**SETTINGS, "vectors": "glove"})


def test_the_experiment_is_in_the_catalogue(task):
    settings = find_experiment("logicmp/conll").settings
    assert settings["task"] == "tags" and set(SETTINGS) <= set(settings)


@needs_data
def test_the_task(monkeypatch):
    monkeypatch.setenv("RULEWRIGHT_DATA", str(DATA))
    task = load_task()
    assert [len(part) for part in (task.training, task.selection, task.test)] == [14041, 3250, 3453]
    assert task.categories == ("LOC", "MISC", "ORG", "PER") and len(task.classes) == 17
    assert broken_pairs([each.tags for each in task.training]) == 0
