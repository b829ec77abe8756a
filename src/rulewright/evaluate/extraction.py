"""Relations extracted from documents against gold ones: F1, Ign F1, Logic; by relation, by distance, and compared."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from rulewright.evaluate.bootstrap import FloatArray, PairedDifference, paired_bootstrap
from rulewright.evaluate.extraction_facts import (
    BucketOfFact,
    DistanceBuckets,
    DistanceUnit,
    FactSpace,
    IntArray,
    NamedFact,
    check_against,
    check_predictions,
    entity_distances,
    gold_relations,
    known_relations,
    named_facts,
    read_named_facts,
    seen_in_training,
)
from rulewright.evaluate.logic_score import (
    ChainCounts,
    LogicScore,
    Loops,
    RuleScore,
    chain_rules,
    check_chains,
    count_chains,
    macro_mean,
    relations_of,
)
from rulewright.evaluate.rules import Agreement
from rulewright.io.docred import Document, Prediction
from rulewright.logic import Chain, Rule, RuleSet

COUNTS = ("wanted", "given", "correct", "wanted_in_train", "correct_in_train")
"""The columns of an array of counts: the fields of `ExtractionCounts`, with 0 where there is no training data."""


def f1(counts: FloatArray) -> FloatArray:
    """``2 · correct / (given + wanted)`` of every row of `COUNTS`."""
    wanted, given, correct, _, _ = np.moveaxis(counts, -1, 0)
    return _ratio(2 * correct, given + wanted)


def ign_f1_docred(counts: FloatArray) -> FloatArray:
    """Ign F1 as DocRED defines it; see `ExtractionCounts.ign_f1_docred`."""
    wanted, given, correct, _, known = np.moveaxis(counts, -1, 0)
    return _harmonic_mean(_ratio(correct - known, given - known), _ratio(correct, wanted))


def ign_f1_logire(counts: FloatArray) -> FloatArray:
    """Ign F1 as LogiRE computes it; see `ExtractionCounts.ign_f1_logire`."""
    wanted, given, correct, wanted_known, known = np.moveaxis(counts, -1, 0)
    return _harmonic_mean(_ratio(correct, given), _ratio(correct - known, wanted - wanted_known))


def _harmonic_mean(precision: FloatArray, recall: FloatArray) -> FloatArray:
    return _ratio(2 * precision * recall, precision + recall)


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    ratio: FloatArray = np.divide(part, whole, out=np.zeros_like(part, dtype=float), where=whole != 0)
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
        return None if self.correct_in_train is None else float(ign_f1_docred(self._row()))

    @property
    def ign_f1_logire(self) -> float | None:
        """The harmonic mean of the full precision and ``(correct − correct_in_train) / (wanted − wanted_in_train)``."""
        return None if self.correct_in_train is None else float(ign_f1_logire(self._row()))

    def _row(self) -> FloatArray:
        train = (self.wanted_in_train or 0, self.correct_in_train or 0)
        return np.array((self.wanted, self.given, self.correct, *train), dtype=float)

    def as_dict(self) -> dict[str, object]:
        """Return counts and figures, for JSON; what needs the training data only where it is known."""
        found: dict[str, object] = {"wanted": self.wanted, "given": self.given, "correct": self.correct}
        found |= {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        if self.correct_in_train is None:
            return found
        found |= {"wanted_in_train": self.wanted_in_train, "correct_in_train": self.correct_in_train}
        return found | {"ign_f1_docred": self.ign_f1_docred, "ign_f1_logire": self.ign_f1_logire}


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
    """The figures over all documents, and the same by relation and by distance; what was not asked for is None.

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
        found: dict[str, object] = {"documents": self.documents, **super().as_dict()}
        if self.logic is not None and self.gold_logic is not None:
            found |= {"logic": self.logic.as_dict(), "gold_logic": self.gold_logic.as_dict()}
        found["by_relation"] = {name: counts.as_dict() for name, counts in self.by_relation.items()}
        if self.by_distance is not None:
            found["by_distance"] = [each.as_dict() for each in self.by_distance]
        return found | {"unseen_relations": list(self.unseen_relations)}


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
    every_relation = task.tally(given, space.relation, len(space.relations))
    occurring = [number for number in np.argsort(-every_relation[:, 0], kind="stable") if every_relation[number].any()]
    by_distance = None
    if distances is not None:
        rows = task.tally(given, BucketOfFact(space, distances), len(distances.bounds))
        by_distance = tuple(
            DistanceScore(low, high, ExtractionCounts(*task.fields(row)))
            for (low, high), row in zip(distances.ranges(), rows, strict=True)
        )
    return ExtractionScores(
        *task.fields(every_relation.sum(axis=0)),
        documents=len(space.documents),
        by_relation={
            space.relations[number]: ExtractionCounts(*task.fields(every_relation[number])) for number in occurring
        },
        by_distance=by_distance,
        logic=None if task.rules is None else task.rule_counts(given).score(task.rules),
        gold_logic=None if task.rules is None else task.rule_counts(task.gold).score(task.rules),
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
    >>> all_found = [Prediction(each.title, 0, "knows", 1) for each in documents]
    >>> found = compare_extraction(all_found, all_found[:3], documents)["f1"]
    >>> round(found.difference, 3), found.low > 0, found.p_value < 0.01
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
    n_rules = len(task.rules or ())

    def figures(sums: FloatArray) -> dict[str, FloatArray]:
        counts = sums[:, : len(COUNTS)]
        found = {"f1": f1(counts)}
        if task.in_train is not None:
            found |= {"ign_f1_docred": ign_f1_docred(counts), "ign_f1_logire": ign_f1_logire(counts)}
        if task.rules is not None:
            pairs, satisfied = np.split(sums[:, len(COUNTS) :], [n_rules], axis=1)
            found["logic"] = macro_mean(pairs, satisfied)
        return found

    first, second = (task.by_document(given) for given in task.given)
    return paired_bootstrap(first, second, figures, resamples=resamples, confidence=confidence, seed=seed)


class _ExtractionTask:
    """Gold facts and the predictions of one or more systems, checked and brought to numbers."""

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
        gold_documents = tuple(documents)
        train = None if train_facts is None else frozenset(train_facts)
        self.loops = loops
        self.rules: tuple[Rule, ...] | None = None
        self.chains: list[Chain] = []
        if rules is not None:
            self.rules, self.chains = chain_rules(rules)
        known = known_relations(gold_documents, train_facts=train, relations=relations)
        if relations is not None and known is not None:
            check_chains(self.chains, known)
        predicted = [tuple(each) for each in systems.values()]
        for name, each in zip(systems, predicted, strict=True):
            check_against(each, gold_documents, known, called=name)
        in_gold = gold_relations(gold_documents)
        used = relations_of(self.chains) | {each.relation for system in predicted for each in system}
        self.unseen_relations = tuple(sorted(used - (in_gold if known is None else known)))
        self.space = FactSpace(gold_documents, in_gold | used)
        self.gold = self.space.gold()
        self.in_train = None if train is None else seen_in_training(self.space, self.gold, train)
        self.given = [self.space.predicted(each) for each in predicted]

    def tally(self, given: IntArray, group: Callable[[IntArray], IntArray], size: int) -> FloatArray:
        """Return the `COUNTS` of every group of facts, an array ``[size, counts]``."""
        found = np.isin(self.gold, given, assume_unique=True)
        seen = np.zeros(len(self.gold), dtype=bool) if self.in_train is None else self.in_train
        gold_group = group(self.gold)
        groups = (gold_group, group(given), gold_group[found], gold_group[seen], gold_group[seen & found])
        return np.stack([np.bincount(each, minlength=size) for each in groups], axis=1).astype(float)

    def fields(self, counts: FloatArray) -> tuple[int, int, int, int | None, int | None]:
        """Return counts as the fields of `ExtractionCounts`."""
        wanted, given, correct, wanted_in_train, correct_in_train = (int(each) for each in counts)
        if self.in_train is None:
            return wanted, given, correct, None, None
        return wanted, given, correct, wanted_in_train, correct_in_train

    def rule_counts(self, facts: IntArray) -> ChainCounts:
        """Return how often each rule fires and is satisfied in each document."""
        return count_chains(self.chains, facts, self.space, loops=self.loops)

    def by_document(self, given: IntArray) -> FloatArray:
        """Return all that figures need of each document: its `COUNTS`, then pairs and satisfied pairs by rule."""
        counts = self.tally(given, self.space.document, len(self.space.documents))
        logic = self.rule_counts(given)
        return np.concatenate([counts, logic.pairs, logic.satisfied], axis=1)
