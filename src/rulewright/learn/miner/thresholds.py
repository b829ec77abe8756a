"""Rules that compare a number of an entity with a threshold: ``retired(X) ← age(X, A) ∧ A > 64``.

Heads are those of rules about one entity. For every attribute the values are sorted once; for every head the cut with
the highest information gain divides them, and where a second cut adds enough, the rule asks for an interval.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from scipy import sparse

from rulewright.data import KnowledgeBase
from rulewright.data.index import Ids, positions_within
from rulewright.learn.miner.confidence import Counts, Floats, annotate_counts, keep_rows
from rulewright.learn.miner.filters import RuleFilters
from rulewright.learn.miner.properties import NONE, PropertyCounter
from rulewright.logic import Annotations, Atom, Comparison, Formula, Number, Rule, Variable

CHANCE = 0.05
"""How likely it may be that chance alone makes a cut, of all attributes and heads together."""


class Cuts(NamedTuple):
    """For each head the rows, in the order of their values, from ``low`` up to and without ``high``, and their gain."""

    low: Ids
    high: Ids
    gain: Floats


class ThresholdCounter:
    """Finds the thresholds of attributes, ``attribute(entity, number)``, that tell which entities have a property.

    Of all cuts between two values the one with the highest information gain is taken, upwards and downwards. With n
    values and m pairs of an attribute and a head, a cut that means nothing gains g with a chance of about
    ``exp(−n g)``; so ``n g`` must exceed ``log(n m / 0.05)``, and a second cut must add as much again. The lower bound
    of the share of entities must be above the share of the head among all that have the attribute, that of an interval
    above the share of the rule with one cut.
    """

    def __init__(self, kb: KnowledgeBase, filters: RuleFilters, properties: PropertyCounter) -> None:
        self.kb, self.filters, self._heads = kb, filters, properties.heads
        self._known, self._known_column = properties.find_known()
        self._guesses = properties.guess_shares()
        self._facts = properties.count_head_facts()

    def mine(self) -> list[Rule]:
        """Return the rules that pass the filters."""
        table = self.kb.tables().get("en")
        if table is None or len(self._heads) == 0:
            return []
        members = self._heads.holds.tocsr()
        attributes = np.unique(table.predicate).tolist()
        rules: list[Rule] = []
        for attribute in attributes:
            entities, values = table.columns_of(attribute)
            order = np.argsort(values, kind="stable")
            entities, values = entities[order].astype(np.int64), values[order]
            positive = sparse.csc_array(members[entities])
            often = np.flatnonzero(np.diff(positive.indptr) >= self.filters.min_support)
            needed = math.log(len(values) * max(1, len(often)) * len(attributes) / CHANCE) / len(values)
            counts = self._count_cuts(often, positive[:, often], entities, values, needed)
            rules += self._write(attribute, counts, values)
        return rules

    def _count_cuts(
        self, heads: Ids, positive: sparse.csc_array, entities: Ids, values: Floats, needed: float
    ) -> Counts:
        """Return the counts of the rules about one attribute, given in which rows each head holds."""
        search = CutSearch(values, positive)
        everything = search.everything()
        ends = search.move_low(everything), search.move_high(everything)
        best = _choose_higher(*ends)
        intervals = search.move_low(search.move_high(ends[0])), search.move_high(search.move_low(ends[1]))
        interval = _choose_higher(*intervals)
        parts = []
        for cuts, less, enough in (
            (ends[0], everything, ends[0].gain > needed),
            (ends[1], everything, ends[1].gain > needed),
            (interval, best, (interval.gain > best.gain + needed) & (interval.low > 0) & (interval.high < len(values))),
        ):
            chosen = np.flatnonzero(enough)
            narrow, wide = (
                self._count(heads[chosen], cut.low[chosen], cut.high[chosen], positive[:, chosen], entities)
                for cut in (cuts, less)
            )
            least = np.maximum(wide["support_pairs"] / wide["body_pairs"], self._guesses[heads[chosen]])
            keep = self.filters.pass_counts(narrow)
            keep &= self.filters.bounds(narrow) > least
            parts.append(keep_rows(narrow, keep))
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _count(self, heads: Ids, low: Ids, high: Ids, positive: sparse.csc_array, entities: Ids) -> Counts:
        """Count rules whose bodies hold in these rows; an entity may have several values."""
        supports, support_pairs, body_pairs, known_pairs = (np.zeros(len(heads), dtype=np.int64) for _ in range(4))
        for index, head in enumerate(heads.tolist()):
            reached = np.unique(entities[low[index] : high[index]])
            rows = positive.indices[positive.indptr[index] : positive.indptr[index + 1]]
            rows = rows[(rows >= low[index]) & (rows < high[index])]
            supports[index], support_pairs[index] = len(rows), len(np.unique(entities[rows]))
            body_pairs[index] = known_pairs[index] = len(reached)
            if (column := self._known_column[head]) != NONE:
                known_pairs[index] = np.isin(reached, self._known[:, [column]].indices).sum()
        counts: Counts = {"h": heads, "low": low, "high": high, "support": supports, "body": high - low}
        counts |= {"support_pairs": support_pairs, "body_pairs": body_pairs, "known_pairs": known_pairs}
        return counts | {"facts": self._facts[heads], "named": (self._heads.constant[heads] != NONE).astype(np.int64)}

    def _write(self, attribute: int, counts: Counts, values: Floats) -> list[Rule]:
        name = list(self.kb.predicates)[attribute]
        entity, number = Variable("V0"), Variable("A")
        head_atoms = self._heads.select(counts["h"]).write(self.kb, entity, number)
        bounds = counts["low"].tolist(), counts["high"].tolist()
        confidences = self.filters.confidences(counts).tolist()
        rules = []
        for (head,), low, high, confidence, statistics in zip(
            head_atoms, *bounds, confidences, annotate_counts(counts), strict=True
        ):
            body: list[Formula] = [Atom(name, (entity, number))]
            if low > 0:
                cut = place_cut(float(values[low - 1]), float(values[low]), upward=True)
                body.append(Comparison(">", number, Number(cut)))
            if high < len(values):
                cut = place_cut(float(values[high - 1]), float(values[high]), upward=False)
                body.append(Comparison("<", number, Number(cut)))
            rules.append(Rule(head, tuple(body), confidence, Annotations(statistics)))
        return rules


class CutSearch:
    """Looks for the best cuts of sorted values, given in which of their rows each head holds (rows × heads).

    >>> ages = np.array([20.0, 30.0, 65.0, 70.0, 80.0])
    >>> retired = sparse.csc_array(np.array([[0], [0], [1], [1], [1]]))
    >>> search = CutSearch(ages, retired)
    >>> cuts = search.move_low(search.everything())
    >>> cuts.low.tolist(), cuts.high.tolist(), cuts.gain.round(3).tolist()
    ([2], [5], [0.673])
    """

    def __init__(self, values: Floats, positive: sparse.csc_array) -> None:
        positive.sort_indices()
        self._total = len(values)
        is_new = np.append(True, values[1:] != values[:-1])[: len(values)]
        group = np.cumsum(is_new) - 1
        starts = np.flatnonzero(is_new)
        self._positives = np.diff(positive.indptr).astype(np.int64)
        self._head = np.repeat(np.arange(positive.shape[1]), self._positives)
        self._row = positive.indices.astype(np.int64)
        self._earlier = positions_within(self._positives)  # rows of the same head before this one
        self._start = starts[group[self._row]]  # of the rows with the same value
        self._stop = np.append(starts[1:], len(values))[group[self._row]]
        key = self._head * (len(values) + 1) + self._start
        self._is_first = np.append(True, key[1:] != key[:-1])[: len(key)]
        self._is_last = np.append(key[1:] != key[:-1], True)[: len(key)]

    def everything(self) -> Cuts:
        """Return all rows."""
        heads = len(self._positives)
        return Cuts(np.zeros(heads, dtype=np.int64), np.full(heads, self._total), np.zeros(heads))

    def move_low(self, cuts: Cuts) -> Cuts:
        """Choose where rows begin, given where they end."""
        high = cuts.high[self._head]
        entry = np.flatnonzero(self._is_first & (self._row < high))
        below = np.bincount(self._head, self._row < high, len(self._positives)).astype(np.int64)
        support = below[self._head[entry]] - self._earlier[entry]
        heads, chosen, gain = self._choose(entry, high[entry] - self._start[entry], support)
        low = cuts.low.copy()
        low[heads] = self._start[chosen]
        return Cuts(low, cuts.high, gain)

    def move_high(self, cuts: Cuts) -> Cuts:
        """Choose where rows end, given where they begin."""
        low = cuts.low[self._head]
        entry = np.flatnonzero(self._is_last & (self._row >= low))
        before = np.bincount(self._head, self._row < low, len(self._positives)).astype(np.int64)
        support = self._earlier[entry] + 1 - before[self._head[entry]]
        heads, chosen, gain = self._choose(entry, self._stop[entry] - low[entry], support)
        high = cuts.high.copy()
        high[heads] = self._stop[chosen]
        return Cuts(cuts.low, high, gain)

    def _choose(self, entry: Ids, body: Ids, support: Ids) -> tuple[Ids, Ids, Floats]:
        """Return the heads that gain anything, the entry where each gains most, and the gains of all heads."""
        head = self._head[entry]
        gain = measure_gain(support, body, self._positives[head], self._total)
        order = np.lexsort((body, gain, head))
        is_best = np.append(head[order][1:] != head[order][:-1], True)[: len(order)]
        best = order[is_best]
        best = best[gain[best] > 0]
        gains = np.zeros(len(self._positives))
        gains[head[best]] = gain[best]
        return head[best], entry[best], gains


def measure_gain(support: Ids, body: Ids, positives: Ids, total: int) -> Floats:
    """Return the information gain, in nats, of telling ``body`` rows apart; 0 where they hold no more than their share.

    ``H(s / n) − b / n · H(s₁ / b) − (n − b) / n · H((s − s₁) / (n − b))`` for s positives of n rows, s₁ of them in b.
    """
    rest = total - body
    inside = body / total * _entropy(support, body)
    outside = rest / total * _entropy(positives - support, rest)
    gain = _entropy(positives, np.full_like(positives, total)) - inside - outside
    return np.where(support * total > positives * body, np.maximum(gain, 0), 0.0)


def _entropy(count: Ids, of: Ids) -> Floats:
    from scipy.special import entr

    share = count / np.maximum(of, 1)
    return np.asarray(entr(share) + entr(1 - share))


def _choose_higher(one: Cuts, other: Cuts) -> Cuts:
    first = one.gain >= other.gain
    low, high, gain = (np.where(first, left, right) for left, right in zip(one, other, strict=True))
    return Cuts(low, high, gain)


def place_cut(low: float, high: float, *, upward: bool) -> int | float:
    """Return the shortest number about mid-way between two values: what is above it, or below, is on the right side.

    >>> place_cut(64, 65, upward=True), place_cut(64, 65, upward=False), place_cut(0.12, 0.18, upward=True)
    (64, 65, 0.15)
    >>> place_cut(1200, 1900, upward=True), place_cut(-3, 40, upward=True)
    (1600, 20)
    """
    middle = low + (high - low) / 2
    for digits in range(-math.floor(math.log10(max(abs(low), abs(high)))), 18):
        half = (-0.5 if upward else 0.5) * 10.0**-digits
        for cut in (round(middle, digits), round(middle + half, digits)):
            if low <= cut < high if upward else low < cut <= high:
                return int(cut) if cut.is_integer() and abs(cut) < 2**53 else cut
    return low if upward else high
