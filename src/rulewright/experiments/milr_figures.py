"""The figures of MILR's tables for one set of predicted facts: scores, by distance, against another, by error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rulewright.evaluate.extraction import DistanceBuckets, compare_extraction, evaluate_extraction
from rulewright.experiments.milr_decoding import gold_labels
from rulewright.experiments.milr_tasks import Task
from rulewright.inject import Decoded, ErrorTypes, error_types
from rulewright.io.docred import Document, Prediction

DISTANCES = DistanceBuckets("starts")  # the way that the published figures count


def scores(task: Task, facts: Sequence[Prediction]) -> dict[str, Any]:
    """Score facts on the test documents.

    ``logic`` is over the gold rules, where there are some; ``logic_mined`` over the rules that were mined, which a
    decoder keeps without exception.
    """
    found = evaluate_extraction(
        facts, task.test, train_facts=task.train_facts, rules=task.gold_rules, relations=task.relations
    )
    mined = evaluate_extraction(facts, task.test, rules=task.rules, relations=task.relations, loops="skip").logic
    logic, gold = found.logic, found.gold_logic
    return {
        "predicted": len(facts),
        "precision": found.precision,
        "recall": found.recall,
        "f1": found.f1,
        "ign_f1_docred": found.ign_f1_docred,
        "ign_f1_logire": found.ign_f1_logire,
        "logic": None if logic is None else logic.value,
        "logic_of_gold": None if gold is None else gold.value,
        "fired_groundings": None if logic is None else logic.groundings,
        "logic_mined": None if mined is None else mined.value,
    }


def by_distance(task: Task, facts: Sequence[Prediction]) -> list[dict[str, object]]:
    """Score facts on the test documents by how far apart their entities are."""
    found = evaluate_extraction(
        facts, task.test, train_facts=task.train_facts, relations=task.relations, distances=DISTANCES
    )
    return [each.as_dict() for each in found.by_distance or ()]


def against(task: Task, facts: Sequence[Prediction], other: Sequence[Prediction]) -> dict[str, Any]:
    """Compare with other facts on the test documents, by a paired bootstrap."""
    compared = compare_extraction(
        facts, other, task.test, train_facts=task.train_facts, rules=task.gold_rules, relations=task.relations
    )
    found = {}
    for figure, each in compared.items():
        values = each.as_dict()
        found[figure] = {**{name: values[name] for name in ("difference", "low", "high")}, "p": values["p_value"]}
    return found


def errors(task: Task, results: Sequence[Decoded]) -> dict[str, dict[str, int]]:
    """Count the errors that the mined rules reveal on the test documents, and what the decoder made of them."""
    found: list[ErrorTypes] = [
        error_types(result, gold_labels(document, task.relations), task.rules)
        for result, document in zip(results, task.test, strict=True)
    ]
    heads, bodies = [each.missing_heads for each in found], [each.wrong_bodies for each in found]
    return {
        name: {part: sum(getattr(each, part) for each in parts) for part in ("count", "repaired", "introduced")}
        for name, parts in (("missing_heads", heads), ("wrong_bodies", bodies))
    }


def sizes(documents: Sequence[Document]) -> dict[str, int]:
    """Count documents, entities and facts, each fact once."""
    return {
        "documents": len(documents),
        "entities": sum(len(each.entities) for each in documents),
        "facts": sum(len({(fact.head, fact.relation, fact.tail) for fact in each.facts}) for each in documents),
    }
