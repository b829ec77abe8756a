"""Choosing options of Markov logic by observed facts alone: hide facts of a predicate, infer it, compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from statistics import mean, stdev
from typing import Any

import numpy as np

from rulewright.data import FactTable, KnowledgeBase
from rulewright.data.facts import Column
from rulewright.evaluate.classification import average_precision
from rulewright.learn.markov.facts import GroundFacts, declare_types
from rulewright.learn.markov.learner import MarkovLogic
from rulewright.logic import RuleSet


def split_predicate(
    kb: KnowledgeBase, name: str, *, share: float = 0.5, seed: int = 0
) -> tuple[KnowledgeBase, KnowledgeBase]:
    """Split off a share of a predicate's facts, of the true and of the false ones; at least one true one.

    >>> kb = KnowledgeBase.from_facts([("p", "a"), ("p", "b"), ("q", "a")])
    >>> kept, hidden = split_predicate(kb, "p")
    >>> kept.count("p"), kept.count("q"), hidden.count("p"), hidden.count("q")
    (1, 1, 1, 0)
    """
    random = np.random.default_rng(seed)
    kept: dict[bool, dict[str, FactTable]] = {True: {}, False: {}}
    hidden: dict[bool, dict[str, FactTable]] = {True: {}, False: {}}
    predicate_index = kb.predicate_index(name)
    for truth in (True, False):
        for signature, table in kb.tables(truth=truth).items():
            rows = np.flatnonzero(table.predicate == predicate_index)
            count = max(round(share * len(rows)), int(truth and len(rows) > 0))
            is_hidden = np.zeros(len(table), dtype=bool)
            is_hidden[random.choice(rows, size=count, replace=False)] = True
            kept[truth][signature], hidden[truth][signature] = table.keep_rows(~is_hidden), table.keep_rows(is_hidden)
    return kb.with_facts(kept[True], kept[False]), kb.with_facts(hidden[True], hidden[False])


def hidden_score(
    rules: RuleSet, kb: KnowledgeBase, name: str, options: Mapping[str, Any], *, share: float = 0.5, seed: int = 0
) -> float:
    """Return the average precision with which hidden atoms of a predicate are inferred.

    A share of its facts is split off; weights and encoder learn from the rest; then nothing is taken as known of the
    predicate. Where false facts of it are listed, the hidden ones are the negatives, elsewhere all atoms that are not
    true. NaN where nothing is true.
    """
    kept, hidden = split_predicate(kb, name, share=share, seed=seed)
    model = MarkovLogic(rules, **options).fit(kept)
    queries = hidden if kb.count(name, truth=False) else _all_but(kb, name, kept)
    columns, logits = model.predict(queries, opened=name).columns(name)
    return average_precision(logits, _is_among(columns, hidden.columns(name)))


def _all_but(kb: KnowledgeBase, name: str, known: KnowledgeBase) -> KnowledgeBase:
    """Return all atoms of a predicate but the facts that are known, as facts."""
    facts = GroundFacts(kb, RuleSet([], predicates=kb.predicates.values()))
    parts = []
    for members in facts.worlds():
        grid = np.meshgrid(*(members[type_name] for type_name in kb.predicate(name).types), indexing="ij")
        parts.append([ids.reshape(-1) for ids in grid])
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    is_new = ~_is_among(columns, known.columns(name))
    unknown = {name: [column[is_new] for column in columns]}
    return KnowledgeBase.from_columns(kb.domains, kb.predicates.values(), unknown, worlds=kb.worlds)


def _is_among(columns: Sequence[Column], others: Sequence[Column]) -> Column:
    """Return which rows of some columns are also rows of others."""
    both = [np.concatenate([other, column]) for other, column in zip(others, columns, strict=True)]
    rows = np.stack([column.astype(np.int64) for column in both], axis=1)
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    count = len(others[0])
    return np.asarray(first[inverse.reshape(-1)][count:] < count)


def telling_predicates(rules: RuleSet, kb: KnowledgeBase) -> list[str]:
    """Return the predicates of the rules that candidates are compared by.

    They are those with facts both true and false, since only of them is known what is false; where there are none, all
    with true facts. Identities, whose facts name one entity twice, tell nothing of relations and are left out.
    """
    facts = GroundFacts(kb, declare_types(rules, kb))
    true = []
    for name in facts.observed_predicates():
        first, *others = kb.columns(name)
        is_identity = bool(others) and all(bool((first == other).all()) for other in others)
        if facts.count(name, truth=True) and not is_identity:
            true.append(name)
    return [name for name in true if facts.count(name, truth=False)] or true


def first_within_error(scores: Sequence[Sequence[float]]) -> int:
    """Return the position of the first candidate that is not told apart from the best, given its score on each part.

    Such a one's mean falls short of the best by at most one standard error of the differences between the two, over the
    parts (Breiman et al., Classification and Regression Trees, 1984). With one part it is the first of the best.

    >>> first_within_error([[0.1, 0.2, 0.3], [0.5, 0.9, 0.6], [0.8, 0.8, 0.7]])
    1
    >>> first_within_error([[0.1], [0.5], [0.8], [0.8]])
    2
    """
    best = max(range(len(scores)), key=lambda position: (round(mean(scores[position]), 6), -position))
    for position, candidate in enumerate(scores):
        short = [top - score for top, score in zip(scores[best], candidate, strict=True)]
        error = stdev(short) / sqrt(len(short)) if len(short) > 1 else 0.0
        if position == best or mean(short) <= error + 1e-6:
            return position
    return best
