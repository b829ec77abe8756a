"""Which facts are asked about: all alike, or so that they are like the facts that will be asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids
from rulewright.engine.walks import Floats, Graph
from rulewright.logic import invert_step, is_inverse

QuestionChoice = Literal["as valid", "as given"]
QUESTION_CHOICES = ("as valid", "as given")

LEAST = 50
"""So many facts are asked about where there are so many, whatever their chances."""
DOUBTFUL = 3.0
"""Shares that differ by fewer standard errors than this are taken to be the same."""
LITTLE = 0.05
"""What is apart in a smaller share of the facts is not worth asking fewer questions."""
COMMON = 0.05
"""No fact is left out for the sake of one that is likelier, unless so large a share of the facts is."""

PROPERTIES = {
    "linked": "about entities that another fact links",
    "seen ahead": "about a first entity that has another fact of the relation",
    "seen back": "about a second entity that has another fact of the relation",
    "facts ahead": "about a first entity of {low} or more facts beside",
    "facts back": "about a second entity of {low} or more facts beside",
}
"""What facts are compared by, each without counting itself; the last two by their number in powers of two."""
LEFT = 0.25
"""A further property is matched only if so large a share of the facts is left, which ``(Σ w)² / Σ w²`` counts."""
_MOST_FACTS = 16  # powers of two that are told apart
_ROUNDS = 25  # of matching one property after the other


class Matching(NamedTuple):
    """A property in which the facts of a graph differ from those asked for: shares of each value, among both."""

    name: str
    shares: Floats
    asked_shares: Floats

    def describe(self) -> str:
        """Say how the two differ, at the value where they do most."""
        more = np.cumsum((self.shares - self.asked_shares)[::-1])[::-1]  # of this value or a higher one
        value = 1 + int(np.argmax(np.abs(more[1:])))
        share, asked_share = self.shares[value:].sum(), self.asked_shares[value:].sum()
        return f"{share:.0%} are {PROPERTIES[self.name].format(low=2**value - 1)}, and {asked_share:.0%} of valid's"


def find_factors(matched: Sequence[Matching], values: Sequence[Ids], mix: Floats) -> tuple[tuple[Floats, ...], Floats]:
    """Return how much oftener facts of each value are asked about, by property, and for each fact what that makes.

    Facts count as often as ``mix`` says, so that each relation has the share that it has among those asked for.

    >>> half, third = np.array([0.5, 0.5]), np.array([2 / 3, 1 / 3])
    >>> _, weights = find_factors([Matching("linked", half, third)], [np.array([0, 1])], np.ones(2))
    >>> weights.round(3).tolist()
    [1.333, 0.667]
    """
    factors = [np.ones(len(matching.shares)) for matching in matched]
    weights = np.ones(len(mix))
    for _ in range(_ROUNDS if len(values) > 1 else 1):
        for matching, factor, value in zip(matched, factors, values, strict=True):
            now = np.bincount(value, mix * weights, len(factor)) / max(float((mix * weights).sum()), 1e-300)
            change = np.divide(matching.asked_shares, now, out=np.zeros_like(factor), where=now > 0)
            factor *= change
            weights *= change[value]
    return tuple(factors), weights


class FactSampler:
    """Draws facts to ask about, so that they are like those of ``asked``.

    Some benchmarks are made so that no fact to be found is *linked*: no other fact is about its two entities, in
    whatever direction. A rule such as ``r(X, Y) ← q(X, Y)``, good for the facts of the graph, is never right there,
    and weights learned on them as they are given are for questions that nobody asks. Elsewhere what is asked for is
    about new entities of few facts. So the facts are compared by one of the `PROPERTIES` after the other, each relation
    counted as often as it is asked for. Where shares ``s`` of the facts, drawn as they are by then, and ``a`` of those
    asked have a value, and these differ by more than chance and `LITTLE`, a fact with that value is asked about
    ``a / s`` times as often; with several properties, one after the other is matched until all are, and one that would
    leave too few facts is not (`LEFT`). Where nothing differs, or nothing is ``asked``, all facts are alike.

    >>> from rulewright.data import KnowledgeBase
    >>> facts = [("ann", "p", "bob"), ("bob", "q", "ann"), ("ann", "p", "cid"), ("bob", "p", "cid")]
    >>> graph = Graph(KnowledgeBase.from_triples(facts))
    >>> FactSampler(graph).find_values("linked", 0, *graph.edges(0)).tolist()
    [1, 0, 0]
    """

    def __init__(self, graph: Graph, asked: Graph | None = None) -> None:
        self.graph = graph
        forwards = ~np.asarray(is_inverse(graph.steps), dtype=bool)
        self._pairs, self._pair_counts = np.unique(
            self._key(graph.before[forwards], graph.after[forwards]), return_counts=True
        )
        self._leaving, self._leaving_counts = np.unique(graph.steps * graph.entities + graph.before, return_counts=True)
        self._facts = np.bincount(graph.before, minlength=graph.entities)
        self.matched: tuple[Matching, ...] = ()
        self.unmatched: tuple[Matching, ...] = ()
        self._factors: tuple[Floats, ...] = ()
        self._usual = 1.0
        if asked is None or not len(asked.steps) or not len(graph.steps):
            return
        forwards_asked = ~np.asarray(is_inverse(asked.steps), dtype=bool)
        own = (graph.steps[forwards], graph.before[forwards], graph.after[forwards])
        theirs = (asked.steps[forwards_asked], asked.before[forwards_asked], asked.after[forwards_asked])
        relations = [np.bincount(one[0], minlength=len(graph.steps)) for one in (own, theirs)]
        mix = np.divide(relations[1], relations[0], out=np.zeros(len(relations[0])), where=relations[0] > 0)[own[0]]
        values, weights = list[Ids](), np.ones(len(mix))
        for name in PROPERTIES if mix.any() else ():
            value, asked_value = self.find_values(name, *own), self.find_values(name, *theirs, is_known=False)
            width = int(max(value.max(), asked_value.max())) + 1
            shares = np.bincount(value, mix * weights, width) / (mix * weights).sum()
            asked_shares = np.bincount(asked_value, minlength=width) / len(asked_value)
            apart = np.abs(shares - asked_shares)
            error = np.sqrt(shares * np.maximum(1 - shares, 0.0) / len(asked_value))
            if (apart <= DOUBTFUL * error).all() or apart.sum() / 2 <= LITTLE:
                continue
            matching = Matching(name, shares, asked_shares)
            factors, new_weights = find_factors((*self.matched, matching), [*values, value], mix)
            left = new_weights.sum() ** 2 / max(len(mix) * (new_weights**2).sum(), 1e-300)
            if values and left < LEFT:
                self.unmatched += (matching,)
                continue
            self.matched, self._factors, weights = (*self.matched, matching), factors, new_weights
            values.append(value)
            highest = np.sort(weights)[::-1]
            self._usual = float(highest[int(COMMON * len(highest))]) or float(highest[0]) or 1.0
            if not (mix * weights).any():
                return

    def describe(self) -> str:
        """Say what was matched, if anything."""
        if not self.matched:
            return ""
        differences = "; ".join(matching.describe() for matching in self.matched)
        told = f"of the facts {differences}: facts to ask about were drawn to match"
        if self.unmatched:
            others = "; ".join(matching.describe() for matching in self.unmatched)
            told += f", but not in that {others}, for too few facts would be left"
        return told

    def find_values(
        self, name: str, step: npt.ArrayLike, before: Ids, after: Ids, *, is_known: bool = True
    ) -> npt.NDArray[np.int64]:
        """Return the value of a property for facts, given as edges. Known ones are of the graph, and left out there."""
        own = 1 if is_known else 0
        if name == "linked":
            is_linked = self._look_up(self._pairs, self._pair_counts, self._key(before, after)) > own
            return is_linked.astype(np.int64)
        steps = np.asarray(step, dtype=np.int64)
        # the first entity of the fact is where its edge begins, unless the step walks backwards
        is_end = np.asarray(is_inverse(steps), dtype=bool) == name.endswith("ahead")
        entity = np.where(is_end, after, before)
        if name.startswith("seen"):
            key = np.where(is_end, invert_step(steps), steps) * self.graph.entities + entity
            return (self._look_up(self._leaving, self._leaving_counts, key) > own).astype(np.int64)
        beside = self._facts[entity] - own * (1 + (before == after))
        values: Ids = np.minimum(np.log2(beside + 1).astype(np.int64), _MOST_FACTS)
        return values

    def find_chances(self, step: int, before: Ids, after: Ids) -> Floats:
        """Return for facts of the graph, as edges of a step, the chance to be asked about; 1 for what is likeliest."""
        chances = np.full(len(before), 1.0 / self._usual if self.matched else 1.0)
        for matching, factor in zip(self.matched, self._factors, strict=True):
            chances *= factor[self.find_values(matching.name, step, before, after)]
        bounded: Floats = np.minimum(chances, 1.0)
        return bounded

    def draw(self, step: int, facts: tuple[Ids, Ids], count: int, random: np.random.Generator) -> tuple[Ids, Ids]:
        """Draw at most ``count`` facts of the graph, given as edges of a step, in the order given.

        At least `LEAST` are drawn where there are so many: where the likely ones are too few, others too.
        """
        order = random.permutation(len(facts[0]))
        if self.matched:
            chance = self.find_chances(step, *facts)[order]
            # the likely ones first, and of them those that were drawn: what follows is for where they are too few
            drawn = random.random(len(order)) < chance
            order = order[np.lexsort((-chance, ~drawn))]
            count = min(count, max(int(drawn.sum()), LEAST))
        chosen = np.sort(order[:count])
        return facts[0][chosen], facts[1][chosen]

    def _key(self, before: Ids, after: Ids) -> Ids:
        key: Ids = np.minimum(before, after) * self.graph.entities + np.maximum(before, after)
        return key

    def _look_up(self, keys: Ids, counts: Ids, wanted: Ids) -> npt.NDArray[np.int64]:
        """Return the counts of keys, which are sorted; 0 where there is none."""
        position = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        found: Ids = np.where(keys[position] == wanted, counts[position], 0)
        return found
