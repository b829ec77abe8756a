"""The published figures of DWIE, from the published predictions."""

from __future__ import annotations

import pytest
from real_data import DATA, needs_data

from rulewright.evaluate.extraction import (
    DistanceBuckets,
    compare_extraction,
    evaluate_extraction,
    named_facts,
    read_named_facts,
)
from rulewright.io import read_rules
from rulewright.io.docred import read_documents, read_predictions

pytestmark = needs_data
DWIE = DATA / "dwie"


@pytest.fixture(scope="module")
def dwie():
    documents = {split: read_documents(DWIE / f"{split}.json") for split in ("dev", "test")}
    return documents, read_named_facts(DWIE / "train_annotated.fact"), read_rules(DWIE / "dwie.grules.txt")


def predictions_of(system: str, split: str):
    return read_predictions(DWIE / "reference_predictions" / f"result_{system}_{split}.json")


def percent(*shares: float) -> tuple[float, ...]:
    return tuple(round(100 * share, 2) for share in shares)


@pytest.mark.parametrize(
    ("split", "system", "expected"),
    [
        ("dev", "ATLOP", (69.87, 63.37, 64.77, 81.42)),
        ("dev", "MILR", (71.92, 67.19, 66.96, 94.85)),
        ("test", "ATLOP", (75.14, 67.30, 69.53, 89.06)),
        ("test", "LogiRE", (74.73, 66.46, 69.36, 90.39)),
        ("test", "MILR", (76.37, 69.63, 70.36, 93.16)),
    ],
)
def test_figures(dwie, split, system, expected):
    documents, train_facts, rules = dwie
    scores = evaluate_extraction(predictions_of(system, split), documents[split], train_facts=train_facts, rules=rules)
    assert percent(scores.f1, scores.ign_f1_docred, scores.ign_f1_logire, scores.logic.value) == expected
    assert len(scores.logic.rules) == 39


@pytest.mark.parametrize(
    ("split", "logic", "groundings", "facts"), [("dev", 97.17, 2041, 2620), ("test", 97.44, 1890, 2453)]
)
def test_gold_labels_keep_most_rules(dwie, split, logic, groundings, facts):
    documents, _, rules = dwie
    scores = evaluate_extraction([], documents[split], rules=rules)
    assert percent(scores.gold_logic.value) == (logic,)
    assert scores.gold_logic.groundings == groundings
    assert scores.wanted == facts
    assert scores.logic.value is None


def test_gains_grow_with_distance_as_published(dwie):
    documents, train_facts, _ = dwie
    gains = []
    for system in ("MILR", "ATLOP"):
        scores = evaluate_extraction(
            predictions_of(system, "test"),
            documents["test"],
            train_facts=train_facts,
            distances=DistanceBuckets("starts"),
        )
        gains.append([each.counts.ign_f1_docred for each in scores.by_distance])
        assert sum(each.counts.wanted for each in scores.by_distance) == scores.wanted
        assert sum(each.counts.given for each in scores.by_distance) == scores.given
    assert percent(*(better - base for better, base in zip(*gains, strict=True)))[2:] == (9.00, 12.74)


def test_milr_is_better_than_atlop_beyond_luck(dwie):
    documents, train_facts, rules = dwie
    compared = compare_extraction(
        predictions_of("MILR", "dev"),
        predictions_of("ATLOP", "dev"),
        documents["dev"],
        train_facts=train_facts,
        rules=rules,
        resamples=2000,
    )
    assert percent(compared["f1"].first, compared["f1"].second) == (71.92, 69.87)
    assert percent(compared["logic"].difference) == (13.43,)
    assert all(each.p_value < 0.05 and each.low > 0 for each in compared.values())


@pytest.mark.slow
def test_training_documents_give_nearly_the_published_training_facts(dwie):
    _, train_facts, _ = dwie
    found = named_facts(read_documents(DWIE / "train_annotations_notext.json"))
    assert found < train_facts
    assert (len(found), len(train_facts)) == (16_671, 16_689)
