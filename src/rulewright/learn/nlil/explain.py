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
from rulewright.learn.nlil.classes import ClassScores
from rulewright.learn.nlil.learner import NLILLearner
from rulewright.logic import PredicateDeclaration, Rule, RuleSet


@dataclass(frozen=True)
class Explanation:
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

    def of(self, entity: str) -> tuple[str, tuple[Rule, ...]]:
        """Return the class that the rules give an object, and the rules for it that hold, heaviest first."""
        domain = _domain_of(self.kb, entity)
        place = np.flatnonzero(self.scores.entities == domain.index_of(entity))
        if len(place) == 0:
            raise DataError(f"{entity!r} has no prediction to explain")
        best = int(np.argmax(self.scores.scores[place[0]]))
        learned = next(iter(self.learner.learned_.values()))
        weights = learned.weights
        assert weights is not None
        spoken = self.scores.speaking.rule[self.scores.speaking.row == place[0]]
        mine = sorted(
            (each for each in spoken.tolist() if weights.target[each] == best),
            key=lambda each: -float(weights.weight[each]),
        )
        return self.classes[best], tuple(learned.rules[each] for each in mine)

    def __str__(self) -> str:
        lines = [f"{len(self.rules)} rules give {self.fidelity:.1%} of objects ({self.measured_on}) the model's class"]
        for name in self.classes:
            best = max(
                (rule for rule in self.rules.rules if rule.head.predicate == name),
                key=lambda rule: rule.annotations.number("weight") or 0.0,
                default=None,
            )
            lines.append(f"{name} ({self.by_class.get(name, 0.0):.0%}): {best if best is not None else 'no rule'}")
        return "\n".join(lines)


def explain_classifier(kb: KnowledgeBase, predictions: Mapping[str, str], **options: Any) -> Explanation:
    """Find rules that reproduce a model's outputs on objects with relations.

    ``predictions`` give for each object the class that a model puts it in. What the knowledge base itself says of these
    classes is put aside: each object is explained by its relations to others and by the classes that the model gave
    *them*. Options are those of `NLILLearner`.

    >>> scenes = [("wears", f"{i}p", f"{i}h") for i in range(30)] + [("rides", f"{i}p", f"{i}b") for i in range(30)]
    >>> kb = KnowledgeBase.from_facts(scenes)
    >>> model = {f"{i}{kind}": name for i in range(30) for kind, name in (("p", "person"), ("h", "hat"), ("b", "bike"))}
    >>> found = explain_classifier(kb, model, levels=0, layers=1, rounds=1, epochs=20)
    >>> found.fidelity, found.of("3h")[0]
    (1.0, 'hat')
    """
    if not predictions:
        raise DataError("there are no predictions to explain")
    labelled = _with_predictions(kb, predictions)
    classes = tuple(sorted(set(predictions.values())))
    learner = NLILLearner(targets=classes, exclusive=True, **options).fit(labelled)
    scored = learner.classify(labelled)
    learned = next(iter(learner.learned_.values()))
    right = np.argmax(scored.scores, axis=1) == scored.truth
    held = np.isin(scored.entities, learned.held.arguments[0])
    by_class = {
        name: float(right[held & (scored.truth == number)].mean())
        for number, name in enumerate(scored.classes)
        if (held & (scored.truth == number)).any()
    }
    return Explanation(
        learner.rules_,
        scored.classes,
        float(right[held].mean()),
        by_class,
        float(right.mean()),
        learned.measured_on,
        learner,
        labelled,
        scored,
    )


def _with_predictions(kb: KnowledgeBase, predictions: Mapping[str, str]) -> KnowledgeBase:
    """Return the facts with the model's classes in place of what was known of them."""
    classes = sorted(set(predictions.values()))
    for name in classes:
        if name in kb.predicates and kb.predicate(name).arity != 1:
            raise DataError(f"{name} is a class and also a relation of the facts; rename one of them")
    domain = _domain_of(kb, next(iter(predictions)))
    ids = np.array([domain.index_of(each) for each in predictions], dtype=np.int32)
    given = np.array([classes.index(each) for each in predictions.values()])
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [ids[given == number]] for number, name in enumerate(classes)}
    kept = [each for name, each in kb.predicates.items() if name not in columns]
    columns |= {each.name: list(kb.columns(each.name)) for each in kept if kb.count(each.name)}
    declared = [*(PredicateDeclaration(name, (domain.name,)) for name in classes), *kept]
    return KnowledgeBase.from_columns(kb.domains, declared, columns, worlds=kb.worlds)


def _domain_of(kb: KnowledgeBase, entity: str) -> Domain:
    for domain in kb.domains.values():
        if entity in domain:
            return domain
    raise UnknownNameError(f"no fact names the object {entity!r}")
