"""Finding proofs: best first, and what all of them have in common."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from rulewright.reason.fact_codes import Key
from rulewright.reason.instances import Instance

Expand = Callable[[Key], Sequence[Instance]]
"""Returns the instances that give a fact, those with the highest bound first."""


class _Open(NamedTuple):
    """A fact still to be proved: how deep its proof may be, and the facts it stands below."""

    key: Key
    depth: int
    above: frozenset[Key]
    bound: float


class _Partial(NamedTuple):
    """A proof on its way: the instances chosen, from top to bottom and left to right, and what is open."""

    score: float
    chosen: tuple[Instance, ...]
    open: tuple[_Open, ...]

    @property
    def bound(self) -> float:
        """The highest score that a completion can have."""
        bound = self.score
        for each in self.open:
            bound *= each.bound
        return bound


def best_first(goal: Key, depth: int, expand: Expand, confidences: Sequence[float]) -> Iterator[tuple[Instance, ...]]:
    """Yield the proofs of a fact, the best first: the instances of each from top to bottom and left to right.

    A fact's bound is the score of its best proof of any depth, so that no completion of a partial proof scores higher
    than what it has times the bounds of what is open, and the first complete one to come up is the best. No fact
    rests on itself.
    """
    order = count()
    start = _Partial(1.0, (), (_Open(goal, depth, frozenset(), 1.0),))
    queue: list[tuple[float, int, _Partial, int]] = [(-1.0, next(order), start, 0)]
    while queue:
        _, _, partial, place = heapq.heappop(queue)
        if not partial.open:
            yield partial.chosen
            continue
        first, *rest = partial.open
        choices = expand(first.key)
        while place < len(choices) and not _allowed(choices[place], first):
            place += 1
        if place == len(choices):
            continue
        chosen = choices[place]
        above = first.above | {first.key}
        below = [
            _Open(key, first.depth - 1, above, score)
            for key, known, score in zip(chosen.premises, chosen.known, chosen.scores, strict=True)
            if not known
        ]
        child = _Partial(partial.score * confidences[chosen.place], (*partial.chosen, chosen), (*below, *rest))
        heapq.heappush(queue, (-child.bound, next(order), child, 0))
        if place + 1 < len(choices):
            left = partial.score * choices[place + 1].bound
            for each in rest:
                left *= each.bound
            heapq.heappush(queue, (-left, next(order), partial, place + 1))


def _allowed(instance: Instance, goal: _Open) -> bool:
    if goal.depth < 1 or (goal.depth == 1 and not all(instance.known)):
        return False
    return goal.key not in instance.premises and not any(key in goal.above for key in instance.premises)


class _TooMany(Exception):  # noqa: N818 - it is no error, but the end of a search
    """More facts would have to be looked at than allowed."""


def common(goal: Key, depth: int, expand: Expand, most: int) -> frozenset[Key] | None:
    """Return the known facts that every proof up to a depth rests on; None where more than ``most`` facts are involved.

    What all proofs of a fact share is what the proofs by each of its instances share, taken together: for one
    instance the union over its premises, for several the intersection.
    """
    found: dict[tuple[Key, int], frozenset[Key] | None] = {}

    def shared(key: Key, left: int) -> frozenset[Key] | None:
        """Return what the proofs of a fact share, None where it has none."""
        if (key, left) in found:
            return found[key, left]
        if len(found) >= most:
            raise _TooMany
        of_all: frozenset[Key] | None = None
        for instance in expand(key) if left else ():
            if left == 1 and not all(instance.known):
                continue
            parts = [
                frozenset([premise]) if known else shared(premise, left - 1)
                for premise, known in zip(instance.premises, instance.known, strict=True)
            ]
            union = frozenset[Key]().union(*(part for part in parts if part is not None))
            if None not in parts:
                of_all = union if of_all is None else of_all & union
            if of_all is not None and not of_all:
                break
        found[key, left] = of_all
        return of_all

    try:
        return shared(goal, depth) or frozenset()
    except _TooMany:
        return None
