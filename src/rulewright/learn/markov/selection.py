"""Choosing options of Markov logic by observed facts alone: hide facts of a predicate, infer it, compare."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, sqrt
from statistics import mean, stdev
from typing import Any

import numpy as np

from rulewright.data import FactTable, KnowledgeBase
from rulewright.errors import DataError
from rulewright.evaluate.classification import average_precision
from rulewright.learn.markov.facts import GroundFacts, typed_rules
from rulewright.learn.markov.learner import MarkovLogic
from rulewright.logic import RuleSet

Candidate = Mapping[str, Any]
Tables = dict[bool, dict[str, FactTable]]


@dataclass(frozen=True)
class Choice:
    """Candidates with their mean score, each predicate's, and the place of the best: the first of equal ones."""

    candidates: tuple[Candidate, ...]
    scores: tuple[float, ...]
    by_predicate: tuple[Mapping[str, float], ...]

    @property
    def place(self) -> int:
        """The number of the best candidate."""
        return max(range(len(self.scores)), key=lambda place: (round(self.scores[place], 6), -place))

    @property
    def best(self) -> dict[str, Any]:
        """The options of the best candidate."""
        return dict(self.candidates[self.place])


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
    kept: Tables = {True: {}, False: {}}
    hidden: Tables = {True: {}, False: {}}
    number = kb.predicate_index(name)
    for truth in (True, False):
        for kind, table in kb.tables(truth=truth).items():
            rows = np.flatnonzero(table.predicate == number)
            count = max(round(share * len(rows)), int(truth and len(rows) > 0))
            out = np.zeros(len(table), dtype=bool)
            out[random.choice(rows, size=count, replace=False)] = True
            kept[truth][kind], hidden[truth][kind] = table.keep_rows(~out), table.keep_rows(out)
    return kb.with_facts(kept[True], kept[False]), kb.with_facts(hidden[True], hidden[False])


def hidden_score(
    rules: RuleSet, kb: KnowledgeBase, name: str, options: Candidate, *, share: float = 0.5, seed: int = 0
) -> float:
    """Return the average precision with which hidden atoms of a predicate are inferred.

    A share of its facts is split off; weights and encoder learn from the rest; then nothing is taken as known of the
    predicate. Where false facts of it are listed, the hidden ones are the negatives, elsewhere all atoms that are not
    true. NaN where nothing is true.
    """
    kept, hidden = split_predicate(kb, name, share=share, seed=seed)
    model = MarkovLogic(rules, **options).fit(kept)
    asked: Any = hidden
    if not kb.count(name, truth=False):
        asked = _all_but(kb, name, kept)
    found = model.predict(asked, opened=name)
    columns, logits = found.columns(name)
    true = hidden.columns(name)
    both = [np.concatenate([one, other]) for one, other in zip(true, columns, strict=True)]
    seen = _first_of_equal(both)[len(true[0]) :] < len(true[0])
    return average_precision(logits, seen)


def _all_but(kb: KnowledgeBase, name: str, known: KnowledgeBase) -> KnowledgeBase:
    """Return all atoms of a predicate but the facts that are known, as facts."""
    shape = GroundFacts(kb, RuleSet([], predicates=kb.predicates.values()), ())
    parts = []
    for members in shape.worlds():
        grid = np.meshgrid(*(members[kind] for kind in kb.predicate(name).types), indexing="ij")
        parts.append([each.reshape(-1) for each in grid])
    columns = [np.concatenate(each) for each in zip(*parts, strict=True)]
    given = known.columns(name)
    both = [np.concatenate([one, other]) for one, other in zip(given, columns, strict=True)]
    new = _first_of_equal(both)[len(given[0]) :] >= len(given[0])
    asked = {name: [column[new] for column in columns]}
    return KnowledgeBase.from_columns(kb.domains, kb.predicates.values(), asked, worlds=kb.worlds)


def _first_of_equal(columns: Sequence[Any]) -> Any:
    """Return for each row the number of the first row that equals it."""
    rows = np.stack([np.asarray(column, dtype=np.int64) for column in columns], axis=1)
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    return first[inverse.reshape(-1)]


def telling_predicates(rules: RuleSet, kb: KnowledgeBase) -> list[str]:
    """Return the predicates of the rules that candidates are compared by.

    They are those with facts both true and false, since only of them is known what is false; where there are none, all
    with true facts. Identities, whose facts name one entity twice, tell nothing of relations and are left out.
    """
    facts = GroundFacts(kb, typed_rules(rules, kb), ())
    true = [name for name in facts.observed_predicates() if facts.count(name, truth=True) and not _identity(kb, name)]
    return [name for name in true if facts.count(name, truth=False)] or true


def _identity(kb: KnowledgeBase, name: str) -> bool:
    first, *others = kb.columns(name)
    return bool(others) and all(bool((first == other).all()) for other in others)


def choose(
    rules: RuleSet,
    kb: KnowledgeBase,
    candidates: Sequence[Candidate],
    *,
    targets: Iterable[str] | None = None,
    share: float = 0.5,
    seed: int = 0,
    tell: Callable[[int, int], None] | None = None,
) -> Choice:
    """Compare options of `MarkovLogic` by how well hidden facts of each predicate are inferred; see `hidden_score`.

    The score of a candidate is the mean over ``targets``, by default `telling_predicates`. Queries have no part in it.
    """
    if not candidates:
        raise DataError("there are no candidates to choose from")
    names = telling_predicates(rules, kb) if targets is None else [*targets]
    if not names:
        raise DataError("no fact of a predicate of the rules is observed to be true, so nothing can be hidden")
    found: list[dict[str, float]] = []
    for done, options in enumerate(candidates):
        scores = {name: hidden_score(rules, kb, name, options, share=share, seed=seed) for name in names}
        found.append({name: score for name, score in scores.items() if not isnan(score)})
        if tell is not None:
            tell(done + 1, len(candidates))
    return Choice(tuple(candidates), tuple(mean(each.values()) for each in found), tuple(found))


def first_within_error(scores: Sequence[Sequence[float]]) -> int:
    """Return the number of the first candidate that is not told apart from the best, given its score on each part.

    Such a one's mean falls short of the best by at most one standard error of the differences between the two, over the
    parts (Breiman et al., Classification and Regression Trees, 1984). With one part it is the first of the best.

    >>> first_within_error([[0.1, 0.2, 0.3], [0.5, 0.9, 0.6], [0.8, 0.8, 0.7]])
    1
    >>> first_within_error([[0.1], [0.5], [0.8], [0.8]])
    2
    """
    best = max(range(len(scores)), key=lambda place: (round(mean(scores[place]), 6), -place))
    for place, each in enumerate(scores):
        short = [top - one for top, one in zip(scores[best], each, strict=True)]
        error = stdev(short) / sqrt(len(short)) if len(short) > 1 else 0.0
        if place == best or mean(short) <= error + 1e-6:
            return place
    return best
