"""How many of the facts that were inferred are true, and how many of the true ones were inferred."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rulewright.data import KnowledgeBase
from rulewright.data.facts import distinct_rows


@dataclass(frozen=True)
class Agreement:
    """Counts of one predicate, or of all."""

    wanted: int
    given: int
    correct: int

    @property
    def precision(self) -> float:
        """``correct / given``; 0 where nothing is given."""
        return self.correct / self.given if self.given else 0.0

    @property
    def recall(self) -> float:
        """``correct / wanted``; 0 where nothing is wanted."""
        return self.correct / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.correct / (self.given + self.wanted) if self.given + self.wanted else 0.0

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(self.wanted + other.wanted, self.given + other.given, self.correct + other.correct)


def agreement(given: KnowledgeBase, wanted: KnowledgeBase) -> dict[str, Agreement]:
    """Compare the true facts of two knowledge bases over the same entities, predicate by predicate.

    >>> kb = KnowledgeBase.from_triples((str(i), "next", str(i + 1)) for i in range(10))
    >>> part, rest = kb.hold_out(0.2)
    >>> agreement(part, kb)["next"].recall
    0.8
    """
    result = {}
    for name in {**given.predicates, **wanted.predicates}:
        sides = [kb.columns(name) if name in kb.predicates else None for kb in (given, wanted)]
        sizes = [0 if side is None else len(side[0]) for side in sides]
        common = 0
        if sides[0] is not None and sides[1] is not None:
            both = [np.concatenate(pair) for pair in zip(*sides, strict=True)]
            common = len(both[0]) - len(distinct_rows(both)[0])
        result[name] = Agreement(sizes[1], sizes[0], common)
    return result
