"""Labels of MILR's experiments: above a threshold, or decoded with rules, and what the ways to decode cost."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from rulewright.evaluate.extraction import DistanceBuckets, compare_extraction, evaluate_extraction
from rulewright.inject import Change, Decoded, ErrorTypes, RuleDecoder, error_types
from rulewright.io.docred import Document, Prediction
from rulewright.logic import quote
from rulewright.papers.milr.predictions import DocumentPrediction, Predictions
from rulewright.papers.milr.tasks import MilrTask

Method = Literal["exact", "simplified", "full"]

SMALL_ENTITIES = 10
SMALL_DOCUMENTS = 10
"""Every constraint is written out for so many documents of so many entities at most: it grows with their cube."""


@dataclass(frozen=True)
class DecodingChoice:
    """What was chosen on the selection documents."""

    threshold: float
    tau: float = 1.0
    k: float = 0.0


def threshold_facts(predictions: Predictions, threshold: float) -> list[Prediction]:
    """Return the facts whose logits are above the threshold."""
    margins = [document.margins(threshold) for document in predictions.documents]
    labels = [(table > 0) & ~np.eye(len(table), dtype=bool)[:, :, None] for table in margins]
    return labels_to_facts(predictions.documents, labels, predictions.relations)


def labels_to_facts(
    documents: Sequence[DocumentPrediction], labels: Iterable[Any], relations: Sequence[str]
) -> list[Prediction]:
    """Return the labels ``[n, n, R]`` of documents as facts.

    >>> labels = np.zeros((2, 2, 1), dtype=bool)
    >>> labels[0, 1, 0] = True
    >>> labels_to_facts([DocumentPrediction("A", labels)], [labels], ["knows"])
    [Prediction(title='A', head=0, relation='knows', tail=1)]
    """
    return [
        Prediction(document.title, int(head), relations[relation_index], int(tail))
        for document, table in zip(documents, labels, strict=True)
        for head, tail, relation_index in np.argwhere(table)
    ]


def gold_labels(document: Document, relations: Sequence[str]) -> Any:
    """Return the gold facts of a document as labels ``[n, n, R]``."""
    relation_index = {name: index for index, name in enumerate(relations)}
    labels = np.zeros((len(document.entities), len(document.entities), len(relations)), dtype=bool)
    for fact in document.facts:
        labels[fact.head, fact.tail, relation_index[fact.relation]] = True
    return labels


def decode(
    task: MilrTask,
    documents: Sequence[DocumentPrediction],
    choice: DecodingChoice,
    *,
    method: Method = "exact",
) -> list[Decoded]:
    """Decode documents with the rules of a task."""
    decoder = RuleDecoder(
        task.rules,
        relations=task.relations,
        method=method,
        tau=choice.tau,
        k=choice.k,
        frequencies=task.frequencies if choice.k else None,
    )
    margins = [document.margins(choice.threshold) for document in documents]
    return decoder.decode_batch(margins, threshold=0.5)


def compare_methods(task: MilrTask, predictions: Predictions, choice: DecodingChoice) -> dict[str, Any]:
    """Decode the test documents with each method, in one process: constraints, seconds and scores.

    All of them exactly and simplified; a few small ones also with every constraint written out. ``agrees`` tells
    whether that costs the same as the exact answer.
    """
    every = predictions.documents
    small = [document for document in every if 2 < len(document.logits) <= SMALL_ENTITIES][:SMALL_DOCUMENTS]
    figures: dict[str, Any] = {
        "all": {method: _measure_method(task, every, choice, method)[0] for method in ("exact", "simplified")}
    }
    if small:
        rows, objectives = {}, {}
        for method in ("exact", "simplified", "full"):
            rows[method], objectives[method] = _measure_method(task, small, choice, method)
        agrees = bool(np.allclose(objectives["exact"], objectives["full"]))
        figures |= {"small": rows, "small_entities": SMALL_ENTITIES, "agrees": agrees}
    return figures


def _measure_method(
    task: MilrTask, documents: Sequence[DocumentPrediction], choice: DecodingChoice, method: Any
) -> tuple[dict[str, Any], list[float]]:
    titles = {document.title for document in documents}
    started = time.perf_counter()
    results = decode(task, documents, choice, method=method)
    seconds = time.perf_counter() - started
    scores = evaluate_extraction(
        labels_to_facts(documents, [result.labels for result in results], task.relations),
        [document for document in task.test if document.title in titles],
        train_facts=task.train_facts,
        relations=task.relations,
    )
    figures = {
        "documents": len(documents),
        "constraints": float(np.mean([result.constraints for result in results])),
        "violations": sum(result.violations for result in results),
        "seconds": seconds / len(documents),
        "f1": scores.f1,
        "ign_f1_docred": scores.ign_f1_docred,
    }
    return figures, [result.objective for result in results]


CHANGES_SHOWN = 4


def choose_cases(task: MilrTask, results: Sequence[Decoded]) -> dict[str, Any]:
    """Choose the test documents whose changes by rules added most and least to what is right.

    Of equals, the one with fewer changes is easier to read. ``helped`` and ``harmed`` are None where no document
    gained or lost.
    """
    described = [
        _describe_case(task, document, result)
        for document, result in zip(task.test, results, strict=True)
        if any(change.rule is not None for change in result.changes)
    ]
    helped = max(described, key=lambda case: (case["right"] - case["wrong"], -case["changes"]), default=None)
    harmed = max(described, key=lambda case: (case["wrong"] - case["right"], -case["changes"]), default=None)
    return {
        "helped": helped if helped and helped["right"] > helped["wrong"] else None,
        "harmed": harmed if harmed and harmed["wrong"] > harmed["right"] else None,
    }


def _describe_case(task: MilrTask, document: Document, result: Decoded) -> dict[str, Any]:
    gold = gold_labels(document, task.relations)
    relation_index = {name: index for index, name in enumerate(task.relations)}
    names = [entity.name for entity in document.entities]
    shown = []
    for change in result.changes:
        holds = bool(gold[(*change.args, relation_index[change.predicate])])
        shown.append(_describe_change(change, names, task.labels) | {"right": holds == change.after})
    right = sum(change["right"] for change in shown)
    by_rule = sorted((change for change in shown if change["rule"] is not None), key=lambda change: not change["added"])
    return {
        "title": document.title,
        "entities": len(document.entities),
        "changes": len(shown),
        "right": right,
        "wrong": len(shown) - right,
        "shown": by_rule[:CHANGES_SHOWN],
    }


def _describe_change(change: Change, names: Sequence[str], labels: Mapping[str, str]) -> dict[str, Any]:
    """Write a change for people: the atom and the rule, with readable relations and the names of entities."""
    relation = quote(labels.get(change.predicate, change.predicate))
    rule = None if change.rule is None else rename_relations(str(change.rule).split(" @{")[0], labels)
    return {
        "atom": f"{relation}({', '.join(quote(names[entity]) for entity in change.args)})",
        "added": change.after,
        "rule": rule,
        "where": {variable: names[entity] for variable, entity in change.grounding},
    }


def rename_relations(rule: str, labels: Mapping[str, str]) -> str:
    """Put the readable names of relations into a rule.

    >>> rename_relations("'P27'(X, Z) :- 'P19'(X, Y), in0(Y, Z).", {"P27": "citizen of", "P19": "born in"})
    "'citizen of'(X, Z) :- 'born in'(X, Y), in0(Y, Z)."
    """
    for name, label in labels.items():
        rule = rule.replace(f"{quote(name)}(", f"{quote(label)}(")
    return rule


DISTANCES = DistanceBuckets("starts")  # the way that the published figures count


def score_facts(task: MilrTask, facts: Sequence[Prediction]) -> dict[str, Any]:
    """Score facts on the test documents.

    ``logic`` is over the gold rules, where there are some; ``logic_mined`` over the rules that were mined, which a
    decoder keeps without exception.
    """
    result = evaluate_extraction(
        facts, task.test, train_facts=task.train_facts, rules=task.gold_rules, relations=task.relations
    )
    mined = evaluate_extraction(facts, task.test, rules=task.rules, relations=task.relations, loops="skip").logic
    logic, gold = result.logic, result.gold_logic
    return {
        "predicted": len(facts),
        "precision": result.precision,
        "recall": result.recall,
        "f1": result.f1,
        "ign_f1_docred": result.ign_f1_docred,
        "ign_f1_logire": result.ign_f1_logire,
        "logic": None if logic is None else logic.value,
        "logic_of_gold": None if gold is None else gold.value,
        "fired_groundings": None if logic is None else logic.groundings,
        "logic_mined": None if mined is None else mined.value,
    }


def score_by_distance(task: MilrTask, facts: Sequence[Prediction]) -> list[dict[str, object]]:
    """Score facts on the test documents by how far apart their entities are."""
    result = evaluate_extraction(
        facts, task.test, train_facts=task.train_facts, relations=task.relations, distances=DISTANCES
    )
    return [bucket.as_dict() for bucket in result.by_distance or ()]


def compare_facts(task: MilrTask, facts: Sequence[Prediction], other: Sequence[Prediction]) -> dict[str, Any]:
    """Compare with other facts on the test documents, by a paired bootstrap."""
    compared = compare_extraction(
        facts, other, task.test, train_facts=task.train_facts, rules=task.gold_rules, relations=task.relations
    )
    figures = {}
    for figure, difference in compared.items():
        values = difference.as_dict()
        figures[figure] = {**{name: values[name] for name in ("difference", "low", "high")}, "p": values["p_value"]}
    return figures


def count_errors(task: MilrTask, results: Sequence[Decoded]) -> dict[str, dict[str, int]]:
    """Count the errors that the mined rules reveal on the test documents, and what the decoder made of them."""
    by_document: list[ErrorTypes] = [
        error_types(result, gold_labels(document, task.relations), task.rules)
        for result, document in zip(results, task.test, strict=True)
    ]
    heads, bodies = [errors.missing_heads for errors in by_document], [errors.wrong_bodies for errors in by_document]
    return {
        name: {part: sum(getattr(errors, part) for errors in parts) for part in ("count", "repaired", "introduced")}
        for name, parts in (("missing_heads", heads), ("wrong_bodies", bodies))
    }


def count_documents(documents: Sequence[Document]) -> dict[str, int]:
    """Count documents, entities and facts, each fact once."""
    return {
        "documents": len(documents),
        "entities": sum(len(document.entities) for document in documents),
        "facts": sum(len({(fact.head, fact.relation, fact.tail) for fact in document.facts}) for document in documents),
    }
