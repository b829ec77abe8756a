"""Which facts are asked about: all alike, or so that they are as often linked as the facts that will be asked for."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids
from rulewright.engine.walks import Floats, Graph
from rulewright.logic import is_inverse

QuestionChoice = Literal["as valid", "as given"]
QUESTION_CHOICES = ("as valid", "as given")

LEAST = 50
"""So many facts are asked about where there are so many, whatever their chances."""
DOUBTFUL = 3.0
"""Shares that differ by fewer standard errors than this are taken to be the same."""


class FactSampler:
    """Draws facts to ask about, as often linked as those of ``asked``.

    A fact is *linked* where the graph has another fact about its two entities, in whatever direction. Some
    benchmarks are made so that no fact to be found is linked. A rule such as ``r(X, Y) ← q(X, Y)``, good for the facts
    of the graph, is never right there, and weights learned on them as they are given are for questions that nobody
    asks. With shares ``s`` of the facts and ``a`` of those asked that are linked, a linked fact is asked about
    ``w = a (1 − s) / (s (1 − a))`` times as often as another: all that is rarer than it should be is kept, and of
    the rest a share. Where the shares are the same but for chance, or nothing is ``asked``, all facts are alike.

    >>> from rulewright.data import KnowledgeBase
    >>> facts = [("ann", "p", "bob"), ("bob", "q", "ann"), ("ann", "p", "cid"), ("bob", "p", "cid")]
    >>> graph = Graph(KnowledgeBase.from_triples(facts))
    >>> FactSampler(graph).find_linked(*graph.edges(0)).tolist()
    [True, False, False]
    """

    def __init__(self, graph: Graph, asked: Graph | None = None) -> None:
        self.graph = graph
        forwards = ~np.asarray(is_inverse(graph.steps), dtype=bool)
        self._pairs, counts = np.unique(self._key(graph.before[forwards], graph.after[forwards]), return_counts=True)
        self._counts = counts
        self.share = float((counts * (counts > 1)).sum() / max(counts.sum(), 1))
        self.asked_share, self.linked_chance, self.other_chance = self.share, 1.0, 1.0
        if asked is None or not len(asked.steps) or not len(graph.steps):
            return
        forwards = ~np.asarray(is_inverse(asked.steps), dtype=bool)
        links = self._count_facts(asked.before[forwards], asked.after[forwards]) > 0
        share = float(links.mean())
        error = np.sqrt(self.share * (1 - self.share) / len(links))
        if abs(share - self.share) <= DOUBTFUL * error:
            return
        self.asked_share = share
        linked, other = share * (1 - self.share), self.share * (1 - share)
        self.linked_chance, self.other_chance = linked / max(linked, other), other / max(linked, other)

    @property
    def is_matching(self) -> bool:
        """Whether some facts are asked about more often than others."""
        return self.linked_chance != self.other_chance

    def describe(self) -> str:
        """Say what was matched, if anything."""
        if not self.is_matching:
            return ""
        return (
            f"{self.share:.0%} of the facts are about entities that another fact links, and {self.asked_share:.0%} of "
            "those in valid: facts to ask about were drawn to match"
        )

    def find_linked(self, before: Ids, after: Ids) -> npt.NDArray[np.bool_]:
        """Tell which facts of the graph are linked."""
        return self._count_facts(before, after) > 1

    def draw(self, facts: tuple[Ids, Ids], count: int, random: np.random.Generator) -> tuple[Ids, Ids]:
        """Draw at most ``count`` facts of the graph, in the order given.

        At least `LEAST` are drawn where there are so many: where the likely ones are too few, others too.
        """
        order = random.permutation(len(facts[0]))
        if self.is_matching:
            chance: Floats = np.where(self.find_linked(*facts), self.linked_chance, self.other_chance)[order]
            # the likely ones first, and of them those that were drawn: what follows is for where they are too few
            drawn = random.random(len(order)) < chance
            order = order[np.lexsort((-chance, ~drawn))]
            count = min(count, max(int(drawn.sum()), LEAST))
        chosen = np.sort(order[:count])
        return facts[0][chosen], facts[1][chosen]

    def _key(self, before: Ids, after: Ids) -> Ids:
        key: Ids = np.minimum(before, after) * self.graph.entities + np.maximum(before, after)
        return key

    def _count_facts(self, before: Ids, after: Ids) -> Ids:
        """Return how many facts of the graph are about each pair of entities."""
        key = self._key(before, after)
        position = np.minimum(np.searchsorted(self._pairs, key), len(self._pairs) - 1)
        counts: Ids = np.where(self._pairs[position] == key, self._counts[position], 0)
        return counts
