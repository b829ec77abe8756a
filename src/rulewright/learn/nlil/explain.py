"""Explaining a classifier: rules that reproduce what any model says of objects with relations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase
from rulewright.data.vocabulary import Domain
from rulewright.errors import DataError, UnknownNameError
from rulewright.learn.nlil.classes import ClassScores, RuleMatches, score_classes
from rulewright.learn.nlil.learner import NLILLearner
from rulewright.logic import PredicateDeclaration, Rule, RuleSet


@dataclass(frozen=True)
class ClassifierExplanation:
    """Rules that reproduce a model's classes, and how faithful they are.

    ``fidelity`` is the share of held-out objects (those of whole worlds, where there are worlds) whose class under the
    rules is the one that the model gave; ``by_class`` is that of each class, and ``agreed`` that of all objects.
    """

    rules: RuleSet
    classes: tuple[str, ...]
    fidelity: float
    by_class: Mapping[str, float]
    agreed: float
    measured_on: str
    learner: NLILLearner
    kb: KnowledgeBase
    scores: ClassScores
    matches: RuleMatches

    def explain(self, entity: str) -> tuple[str, tuple[Rule, ...]]:
        """Return the class that the rules give an object, and the rules for it that hold, heaviest first."""
        positions = np.flatnonzero(self.scores.entities == _find_domain(self.kb, entity).index_of(entity))
        if len(positions) == 0:
            raise DataError(f"{entity!r} has no prediction to explain")
        best = int(np.argmax(self.scores.scores[positions[0]]))
        result = self.learner.class_result()
        holding = self.matches.rules_of(int(positions[0]))
        own = holding[result.weights.target[holding] == best].tolist()
        own.sort(key=lambda rule_index: -float(result.weights.weight[rule_index]))
        return self.classes[best], tuple(result.rules[rule_index] for rule_index in own)

    def __str__(self) -> str:
        lines = [f"{len(self.rules)} rules give {self.fidelity:.1%} of objects ({self.measured_on}) the model's class"]
        for name in self.classes:
            best = max(
                (rule for rule in self.rules.rules if rule.head.predicate == name),
                key=lambda rule: rule.annotations.number("weight") or 0.0,
                default="no rule",
            )
            lines.append(f"{name} ({self.by_class.get(name, 0.0):.0%}): {best}")
        return "\n".join(lines)


def explain_classifier(
    kb: KnowledgeBase, predictions: Mapping[str, str], learner: NLILLearner | None = None
) -> ClassifierExplanation:
    """Find rules that reproduce a model's outputs on objects with relations.

    ``predictions`` give for each object the class that a model puts it in. What the knowledge base itself says of these
    classes is put aside: each object is explained by its relations to others and by the classes that the model gave
    *them*. The ``learner`` gives the parameters; its targets are set to the classes.

    >>> scenes = [("wears", f"{i}p", f"{i}h") for i in range(30)] + [("rides", f"{i}p", f"{i}b") for i in range(30)]
    >>> kb = KnowledgeBase.from_facts(scenes)
    >>> model = {f"{i}{letter}": name for i in range(30) for letter, name in zip("phb", ("person", "hat", "bike"))}
    >>> explanation = explain_classifier(kb, model, NLILLearner(levels=0, layers=1, rounds=1))
    >>> explanation.fidelity, explanation.explain("3h")[0]
    (1.0, 'hat')
    """
    if not predictions:
        raise DataError("there are no predictions to explain")
    labelled = _replace_classes(kb, predictions)
    parameters = (learner or NLILLearner()).get_params(deep=False)
    parameters |= {"targets": tuple(sorted(set(predictions.values()))), "exclusive": True}
    learner = NLILLearner(**parameters).fit(labelled)
    result = learner.class_result()
    scores, matches = score_classes(result, labelled)
    is_right = np.argmax(scores.scores, axis=1) == scores.truth
    is_held_out = np.isin(scores.entities, result.held_out.arguments[0])
    by_class = {}
    for class_index, name in enumerate(scores.classes):
        of_class = is_held_out & (scores.truth == class_index)
        if of_class.any():
            by_class[name] = float(is_right[of_class].mean())
    return ClassifierExplanation(
        learner.rules_,
        scores.classes,
        float(is_right[is_held_out].mean()),
        by_class,
        float(is_right.mean()),
        result.measured_on,
        learner,
        labelled,
        scores,
        matches,
    )


def _replace_classes(kb: KnowledgeBase, predictions: Mapping[str, str]) -> KnowledgeBase:
    """Return the facts with the model's classes in place of what was known of them."""
    classes = sorted(set(predictions.values()))
    for name in classes:
        if name in kb.predicates and kb.predicate(name).arity != 1:
            raise DataError(f"{name} is a class and also a relation of the facts; rename one of them")
    domain = _find_domain(kb, next(iter(predictions)))
    entities = np.array([domain.index_of(entity) for entity in predictions], dtype=np.int32)
    predicted = np.array([classes.index(name) for name in predictions.values()])
    columns: dict[str, list[npt.NDArray[Any]]] = {
        name: [entities[predicted == class_index]] for class_index, name in enumerate(classes)
    }
    kept = [predicate for name, predicate in kb.predicates.items() if name not in columns]
    columns |= {predicate.name: list(kb.columns(predicate.name)) for predicate in kept if kb.count(predicate.name)}
    declared = [*(PredicateDeclaration(name, (domain.name,)) for name in classes), *kept]
    return KnowledgeBase.from_columns(kb.domains, declared, columns, worlds=kb.worlds)


def _find_domain(kb: KnowledgeBase, entity: str) -> Domain:
    for domain in kb.domains.values():
        if entity in domain:
            return domain
    raise UnknownNameError(f"no fact names the object {entity!r}")
