"""Relations extracted from documents against gold ones: F1, Ign F1, Logic; by relation, by distance, and compared."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from rulewright.checks import OneOf, check_parameter
from rulewright.data.index import Ids
from rulewright.errors import DataError, unknown_name
from rulewright.evaluate.bootstrap import FloatArray, PairedDifference, paired_bootstrap
from rulewright.evaluate.extraction_facts import (
    DistanceBuckets,
    DistanceUnit,
    FactSpace,
    NamedFact,
    check_against,
    check_predictions,
    entity_distances,
    gold_relations,
    group_by_distance,
    known_relations,
    named_facts,
    read_named_facts,
    seen_in_training,
)
from rulewright.evaluate.rules import Agreement
from rulewright.io.docred import Document, Prediction
from rulewright.logic import Chain, Rule, RuleSet

__all__ = [
    "DistanceBuckets",
    "DistanceScore",
    "DistanceUnit",
    "ExtractionCounts",
    "ExtractionScores",
    "LogicScore",
    "Loops",
    "NamedFact",
    "PairedDifference",
    "RuleScore",
    "check_predictions",
    "compare_extraction",
    "entity_distances",
    "evaluate_extraction",
    "named_facts",
    "read_named_facts",
]

Loops = Literal["against", "skip"]

COUNTS = ("wanted", "given", "correct", "wanted_in_train", "correct_in_train")
"""The columns of an array of counts: the fields of `ExtractionCounts`, with 0 where there is no training data."""


def _f1(counts: FloatArray) -> FloatArray:
    wanted, given, correct, _, _ = np.moveaxis(counts, -1, 0)
    return _ratio(2 * correct, given + wanted)


def _ign_f1_docred(counts: FloatArray) -> FloatArray:
    wanted, given, correct, _, known = np.moveaxis(counts, -1, 0)
    return _harmonic_mean(_ratio(correct - known, given - known), _ratio(correct, wanted))


def _ign_f1_logire(counts: FloatArray) -> FloatArray:
    wanted, given, correct, wanted_known, known = np.moveaxis(counts, -1, 0)
    return _harmonic_mean(_ratio(correct, given), _ratio(correct - known, wanted - wanted_known))


def _harmonic_mean(precision: FloatArray, recall: FloatArray) -> FloatArray:
    return _ratio(2 * precision * recall, precision + recall)


def _ratio(part: FloatArray, whole: FloatArray, undefined: float = 0.0) -> FloatArray:
    ratio: FloatArray = np.divide(part, whole, out=np.full(np.shape(part), undefined), where=whole != 0)
    return ratio


@dataclass(frozen=True)
class ExtractionCounts(Agreement):
    """Counts of facts in all documents or in a part of them, and the figures that follow from the counts.

    ``wanted`` facts are gold, ``given`` ones predicted, ``correct`` ones both. Of the gold and of the correct ones,
    ``…_in_train`` stand in the training data under the same names; None where the training data is not known. A
    ratio over nothing is 0.

    >>> counts = ExtractionCounts(wanted=10, given=8, correct=6, wanted_in_train=4, correct_in_train=3)
    >>> counts.precision, counts.recall, round(counts.f1, 4)
    (0.75, 0.6, 0.6667)
    >>> round(counts.ign_f1_docred, 4), round(counts.ign_f1_logire, 4)
    (0.6, 0.6)
    """

    wanted_in_train: int | None = None
    correct_in_train: int | None = None

    @property
    def ign_f1_docred(self) -> float | None:
        """The harmonic mean of ``(correct − correct_in_train) / (given − correct_in_train)`` and the full recall."""
        return None if self.correct_in_train is None else float(_ign_f1_docred(self._row()))

    @property
    def ign_f1_logire(self) -> float | None:
        """The harmonic mean of the full precision and ``(correct − correct_in_train) / (wanted − wanted_in_train)``."""
        return None if self.correct_in_train is None else float(_ign_f1_logire(self._row()))

    def _row(self) -> FloatArray:
        train = (self.wanted_in_train or 0, self.correct_in_train or 0)
        return np.array((self.wanted, self.given, self.correct, *train), dtype=float)

    def as_dict(self) -> dict[str, object]:
        """Return counts and figures, for JSON; what needs the training data only where it is known."""
        names = ["wanted", "given", "correct", "precision", "recall", "f1"]
        if self.correct_in_train is not None:
            names += ["wanted_in_train", "correct_in_train", "ign_f1_docred", "ign_f1_logire"]
        return {name: getattr(self, name) for name in names}


@dataclass(frozen=True)
class RuleScore:
    """How often the body of one rule joins two entities, and how often the head then holds of them.

    ``pairs`` are distinct pairs of entities, ``groundings`` the paths that join them, one or more for each pair.
    """

    rule: Rule
    pairs: int
    satisfied: int
    groundings: int

    @property
    def share(self) -> float | None:
        """``satisfied / pairs``; None where the rule never fires."""
        return self.satisfied / self.pairs if self.pairs else None

    def as_dict(self) -> dict[str, object]:
        """Return the counts and their ratio, for JSON."""
        counts = {"pairs": self.pairs, "satisfied": self.satisfied, "groundings": self.groundings}
        return {"rule": str(self.rule), **counts, "share": self.share}


@dataclass(frozen=True)
class LogicScore:
    """The scores of all rules, and their mean.

    A few groundings can give a high or low value: read it beside ``groundings``.
    """

    rules: tuple[RuleScore, ...]

    @property
    def value(self) -> float | None:
        """The mean share over the rules that fire, each counted alike; None where none fires."""
        shares = [rule.share for rule in self.rules if rule.share is not None]
        return sum(shares) / len(shares) if shares else None

    @property
    def fired(self) -> int:
        """How many rules fire."""
        return sum(rule.pairs > 0 for rule in self.rules)

    @property
    def pairs(self) -> int:
        """How many pairs of entities bodies join, over all rules."""
        return sum(rule.pairs for rule in self.rules)

    @property
    def groundings(self) -> int:
        """How many groundings of bodies hold, over all rules."""
        return sum(rule.groundings for rule in self.rules)

    def as_dict(self) -> dict[str, object]:
        """Return the value, the counts and every rule, for JSON."""
        counts = {"fired": self.fired, "pairs": self.pairs, "groundings": self.groundings}
        return {"value": self.value, **counts, "rules": [rule.as_dict() for rule in self.rules]}


@dataclass(frozen=True)
class DistanceScore:
    """The counts of facts whose entities are ``low`` or more but less than ``high`` apart; None is without end."""

    low: int
    high: int | None
    counts: ExtractionCounts

    def as_dict(self) -> dict[str, object]:
        """Return the range, the counts and the figures, for JSON."""
        return {"low": self.low, "high": self.high, **self.counts.as_dict()}


@dataclass(frozen=True)
class ExtractionScores(ExtractionCounts):
    """The figures over all documents, and the same by relation and by distance; what was not computed is None.

    ``gold_logic`` is the Logic score of the gold facts themselves: a yardstick for ``logic``. ``unseen_relations``
    are those of predictions and rules that neither gold nor training facts have, where that is no error.
    """

    documents: int = 0
    by_relation: Mapping[str, ExtractionCounts] = field(default_factory=dict)
    by_distance: tuple[DistanceScore, ...] | None = None
    logic: LogicScore | None = None
    gold_logic: LogicScore | None = None
    unseen_relations: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return everything, for JSON."""
        values: dict[str, object] = {"documents": self.documents, **super().as_dict()}
        if self.logic is not None and self.gold_logic is not None:
            values |= {"logic": self.logic.as_dict(), "gold_logic": self.gold_logic.as_dict()}
        values["by_relation"] = {name: counts.as_dict() for name, counts in self.by_relation.items()}
        if self.by_distance is not None:
            values["by_distance"] = [bucket.as_dict() for bucket in self.by_distance]
        return values | {"unseen_relations": list(self.unseen_relations)}


def evaluate_extraction(
    predictions: Iterable[Prediction],
    documents: Iterable[Document],
    *,
    train_facts: Iterable[NamedFact] | None = None,
    rules: RuleSet | Iterable[Rule] | None = None,
    distances: DistanceBuckets | None = None,
    relations: Iterable[str] | None = None,
    loops: Loops = "against",
) -> ExtractionScores:
    """Score the facts that a model predicts for documents against their gold facts.

    A fact is (title, head, relation, tail); what is repeated counts once. With correct = gold ∩ predicted::

        precision = correct / predicted    recall = correct / gold    F1 = 2 · correct / (predicted + gold)

    Ign F1 needs ``train_facts`` (`read_named_facts`, `named_facts`): a fact is known from training if any names that
    mentions of its head and tail have stand there with its relation. There are two definitions: of the *docred* one,
    known correct facts leave the precision, ``(correct − known) / (predicted − known)``, and the recall is the full
    one; of the *logire* one, the precision is the full one, and the recall is over the gold facts that are not known.

    Logic needs chain ``rules``. For every rule, over the pairs of entities that its body joins by predicted facts:
    the share whose head is predicted too. The score is the mean over the rules that fire. A pair of an entity with
    itself counts as any other (``loops="against"``, as in the published figures) or not at all (``"skip"``).

    ``relations`` are all that there are: any other, in predictions, gold facts or rules, is an error. Without them,
    a predicted relation must occur in gold or training facts, where the latter are given. A prediction about an
    unknown title or entity is an error always.

    >>> from rulewright.io.docred import Entity, Fact, Mention
    >>> from rulewright.logic import parse_rules
    >>> entities = tuple(Entity((Mention(name, "PER"),)) for name in ("Ann", "Bob", "Cid"))
    >>> document = Document("A", (), entities, (Fact(0, "spouse_of", 1), Fact(1, "spouse_of", 0)))
    >>> predictions = [Prediction("A", 0, "spouse_of", 1), Prediction("A", 2, "spouse_of", 1)]
    >>> rules = parse_rules("spouse_of(X, Y) :- spouse_of(Y, X).")
    >>> scores = evaluate_extraction(predictions, [document], rules=rules)
    >>> scores.precision, scores.recall, scores.f1, scores.logic.value, scores.gold_logic.value
    (0.5, 0.5, 0.5, 0.0, 1.0)
    """
    task = _ExtractionTask(
        {"prediction": predictions}, documents, train_facts=train_facts, rules=rules, relations=relations, loops=loops
    )
    (given,) = task.given
    space = task.space
    relation_counts = task.count(given, space.relation_index, len(space.relations))
    by_size = np.argsort(-relation_counts[:, 0], kind="stable")
    by_distance = None
    if distances is not None:
        rows = task.count(given, group_by_distance(space, distances), len(distances.bounds))
        by_distance = tuple(
            DistanceScore(low, high, ExtractionCounts(*task.fields(row)))
            for (low, high), row in zip(distances.ranges(), rows, strict=True)
        )
    return ExtractionScores(
        *task.fields(relation_counts.sum(axis=0)),
        documents=len(space.documents),
        by_relation={
            space.relations[index]: ExtractionCounts(*task.fields(relation_counts[index]))
            for index in by_size
            if relation_counts[index].any()
        },
        by_distance=by_distance,
        logic=None if task.rules is None else task.score_rules(given),
        gold_logic=None if task.rules is None else task.score_rules(task.gold),
        unseen_relations=task.unseen_relations,
    )


def compare_extraction(
    predictions: Iterable[Prediction],
    other: Iterable[Prediction],
    documents: Iterable[Document],
    *,
    train_facts: Iterable[NamedFact] | None = None,
    rules: RuleSet | Iterable[Rule] | None = None,
    relations: Iterable[str] | None = None,
    loops: Loops = "against",
    resamples: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, PairedDifference]:
    """Compare two systems by a paired bootstrap over documents (see `paired_bootstrap`).

    Returns the differences in ``f1`` and, where their data is given, ``ign_f1_docred``, ``ign_f1_logire`` and
    ``logic``; a positive one speaks for ``predictions`` against ``other``. The other options are those of
    `evaluate_extraction`.

    >>> from rulewright.io.docred import Entity, Fact, Mention
    >>> pair = tuple(Entity((Mention(name, "PER"),)) for name in ("Ann", "Bob"))
    >>> documents = [Document(title, (), pair, (Fact(0, "knows", 1),)) for title in "ABCDEFGHIJ"]
    >>> all_found = [Prediction(document.title, 0, "knows", 1) for document in documents]
    >>> f1 = compare_extraction(all_found, all_found[:3], documents)["f1"]
    >>> round(f1.difference, 3), f1.low > 0, f1.p_value < 0.01
    (0.538, True, True)
    """
    task = _ExtractionTask(
        {"prediction": predictions, "other prediction": other},
        documents,
        train_facts=train_facts,
        rules=rules,
        relations=relations,
        loops=loops,
    )

    def compute_figures(sums: FloatArray) -> dict[str, FloatArray]:
        counts = sums[:, : len(COUNTS)]
        figures = {"f1": _f1(counts)}
        if task.in_train is not None:
            figures |= {"ign_f1_docred": _ign_f1_docred(counts), "ign_f1_logire": _ign_f1_logire(counts)}
        if task.rules is not None:
            pairs, satisfied = np.split(sums[:, len(COUNTS) :], [len(task.rules)], axis=1)
            fired = (pairs > 0).sum(axis=-1)  # as LogicScore.value; NaN where no rule fires
            figures["logic"] = _ratio(_ratio(satisfied, pairs).sum(axis=-1), fired, np.nan)
        return figures

    first, second = (task.count_by_document(given) for given in task.given)
    return paired_bootstrap(first, second, compute_figures, resamples=resamples, confidence=confidence, seed=seed)


class _ExtractionTask:
    """Gold facts and the predictions of one or more systems, checked and encoded."""

    def __init__(
        self,
        systems: Mapping[str, Iterable[Prediction]],
        documents: Iterable[Document],
        *,
        train_facts: Iterable[NamedFact] | None,
        rules: RuleSet | Iterable[Rule] | None,
        relations: Iterable[str] | None,
        loops: Loops,
    ) -> None:
        check_parameter("loops", loops, OneOf("against", "skip"))
        gold_documents = tuple(documents)
        train = None if train_facts is None else frozenset(train_facts)
        self.loops = loops
        self.rules: tuple[Rule, ...] | None = None
        self.chains: list[Chain] = []
        if rules is not None:
            self.rules, self.chains = _read_chains(rules)
        known = known_relations(gold_documents, train_facts=train, relations=relations)
        if relations is not None and known is not None:
            for chain in self.chains:
                for name in sorted(_relations_of([chain]) - known):
                    raise DataError(f"rule {chain.rule()}: {unknown_name('relation', name, known)}")
        predicted = [tuple(predictions) for predictions in systems.values()]
        for system, predictions in zip(systems, predicted, strict=True):
            check_against(predictions, gold_documents, known, called=system)
        in_gold = gold_relations(gold_documents)
        used = _relations_of(self.chains) | {fact.relation for predictions in predicted for fact in predictions}
        self.unseen_relations = tuple(sorted(used - (in_gold if known is None else known)))
        self.space = FactSpace(gold_documents, in_gold | used)
        self.gold = self.space.encode_gold()
        self.in_train = None if train is None else seen_in_training(self.space, self.gold, train)
        self.given = [self.space.encode_predictions(predictions) for predictions in predicted]

    def count(self, given: Ids, group: Callable[[Ids], Ids], size: int) -> FloatArray:
        """Return the `COUNTS` of every group of facts, an array ``[size, counts]``."""
        is_given = np.isin(self.gold, given, assume_unique=True)
        in_train = np.zeros(len(self.gold), dtype=bool) if self.in_train is None else self.in_train
        gold = group(self.gold)
        columns = (gold, group(given), gold[is_given], gold[in_train], gold[in_train & is_given])
        return np.stack([np.bincount(column, minlength=size) for column in columns], axis=1).astype(float)

    def fields(self, counts: FloatArray) -> tuple[int, int, int, int | None, int | None]:
        """Return counts as the fields of `ExtractionCounts`."""
        wanted, given, correct, wanted_in_train, correct_in_train = counts.astype(int).tolist()
        if self.in_train is None:
            return wanted, given, correct, None, None
        return wanted, given, correct, wanted_in_train, correct_in_train

    def count_by_document(self, given: Ids) -> FloatArray:
        """Return all that figures need of each document: its `COUNTS`, then pairs and satisfied pairs by rule."""
        counts = self.count(given, self.space.document_index, len(self.space.documents))
        pairs, satisfied, _ = self._count_chains(given)
        return np.concatenate([counts, pairs, satisfied], axis=1)

    def score_rules(self, facts: Ids) -> LogicScore:
        """Return the Logic score of some facts."""
        sums = self._count_chains(facts).sum(axis=1).astype(int).tolist()
        return LogicScore(tuple(RuleScore(rule, *row) for rule, *row in zip(self.rules or (), *sums, strict=True)))

    def _count_chains(self, facts: Ids) -> FloatArray:
        """Join facts along each chain and look its heads up.

        Returns pairs, satisfied pairs and groundings: an array ``[3, documents, rules]``. The relations are
        sparse matrices over entities: an entry of their product is the number of paths between two.
        """
        space = self.space
        size = max(1, space.n_entities)  # a matrix without rows is an error to scipy
        matrices = {}
        for name in _relations_of(self.chains):
            heads_and_tails = space.entity_pair(space.select_relation(facts, name))
            ones = np.ones(len(heads_and_tails[0]), dtype=np.int64)
            matrices[name] = csr_array((ones, heads_and_tails), shape=(size, size))
        counts = np.zeros((3, len(space.documents), len(self.chains)))
        for position, chain in enumerate(self.chains):
            steps = [matrices[step.relation].T if step.inverse else matrices[step.relation] for step in chain.steps]
            paths = csr_array(reduce(operator.matmul, steps)).tocoo()
            keep = paths.row != paths.col if self.loops == "skip" else slice(None)
            first, last, groundings = (column[keep] for column in (paths.row, paths.col, paths.data))
            relation_index = space.relation_indices[chain.head]
            heads = space.encode(relation_index, first.astype(np.int64), last.astype(np.int64))
            holds = np.isin(heads, space.select_relation(facts, chain.head))
            document = space.document_of_entity[first]
            for row, weights in enumerate((None, holds, groundings)):
                counts[row, :, position] = np.bincount(document, weights, minlength=len(space.documents))
        return counts


def _read_chains(rules: RuleSet | Iterable[Rule]) -> tuple[tuple[Rule, ...], list[Chain]]:
    """Return rules, also as chains; anything else is an error, since only a chain joins a pair by a path."""
    kept, chains = [], []
    for statement in rules:
        chain = Chain.of(statement) if isinstance(statement, Rule) else None
        if not isinstance(statement, Rule) or chain is None or not chain.is_closed or not chain.steps:
            raise DataError(f"the Logic score needs chain rules, such as r(X, Z) :- p(X, Y), q(Z, Y).; got {statement}")
        kept.append(statement)
        chains.append(chain)
    return tuple(kept), chains


def _relations_of(chains: Sequence[Chain]) -> frozenset[str]:
    return frozenset(name for chain in chains for name in (chain.head, *(step.relation for step in chain.steps)))
