"""Case studies: a test document in which the decoder did well, and one in which it did harm."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rulewright.experiments.milr_decoding import gold_labels
from rulewright.experiments.milr_tasks import Task
from rulewright.inject import Change, Decoded
from rulewright.io.docred import Document
from rulewright.logic import quote

CHANGES_SHOWN = 4


def cases(task: Task, results: Sequence[Decoded]) -> dict[str, Any]:
    """Choose the test documents whose changes by rules added most and least to what is right.

    Of equals, the one with fewer changes is easier to read. ``helped`` and ``harmed`` are None where no document
    gained or lost.
    """
    found = [
        _case(task, document, result)
        for document, result in zip(task.test, results, strict=True)
        if any(each.rule is not None for each in result.changes)
    ]
    helped = max(found, key=lambda each: (each["right"] - each["wrong"], -each["changes"]), default=None)
    harmed = max(found, key=lambda each: (each["wrong"] - each["right"], -each["changes"]), default=None)
    return {
        "helped": helped if helped and helped["right"] > helped["wrong"] else None,
        "harmed": harmed if harmed and harmed["wrong"] > harmed["right"] else None,
    }


def _case(task: Task, document: Document, result: Decoded) -> dict[str, Any]:
    gold = gold_labels(document, task.relations)
    number = {name: place for place, name in enumerate(task.relations)}
    names = [entity.name for entity in document.entities]
    shown = []
    for change in result.changes:
        holds = bool(gold[change.head, change.tail, number[change.relation]])
        shown.append(_shown(change, names, task.labels) | {"right": holds == change.after})
    right = sum(each["right"] for each in shown)
    by_rule = sorted((each for each in shown if each["rule"] is not None), key=lambda each: not each["added"])
    return {
        "title": document.title,
        "entities": len(document.entities),
        "changes": len(shown),
        "right": right,
        "wrong": len(shown) - right,
        "shown": by_rule[:CHANGES_SHOWN],
    }


def _shown(change: Change, names: Sequence[str], labels: Mapping[str, str]) -> dict[str, Any]:
    """Write a change for people: the atom and the rule, with readable relations and the names of entities."""
    relation = quote(labels.get(change.relation, change.relation))
    rule = None if change.rule is None else readable(str(change.rule).split(" @{")[0], labels)
    return {
        "atom": f"{relation}({quote(names[change.head])}, {quote(names[change.tail])})",
        "added": change.after,
        "rule": rule,
        "where": {variable: names[entity] for variable, entity in change.grounding},
    }


def readable(rule: str, labels: Mapping[str, str]) -> str:
    """Put the readable names of relations into a rule.

    >>> readable("'P27'(X, Z) :- 'P19'(X, Y), in0(Y, Z).", {"P27": "citizen of", "P19": "born in"})
    "'citizen of'(X, Z) :- 'born in'(X, Y), in0(Y, Z)."
    """
    for name, label in labels.items():
        rule = rule.replace(f"{quote(name)}(", f"{quote(label)}(")
    return rule
