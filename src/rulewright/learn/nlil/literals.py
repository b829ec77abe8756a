"""Literals, the crisp form of primitive statements, and of which questions they hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rulewright.learn.nlil.facts import ANYTHING, IDENTITY, Hidden, Ids, Mask, Vocabulary
from rulewright.learn.nlil.frontier import Evidence, Hop, Reach, Statements

Path = tuple[int, ...]


@dataclass(frozen=True, order=True)
class Literal:
    """A statement whose arguments are reached by paths of operators; None where it has no such argument."""

    statement: int
    left: Path | None
    right: Path | None

    @property
    def length(self) -> int:
        """How many atoms it takes to write."""
        return len(self.left or ()) + len(self.right or ()) + 1


def normal(literal: Literal, vocabulary: Vocabulary, numbers: Statements) -> Literal:
    """Leave out operators that do nothing: staying, and asking twice for a mark.

    >>> vocabulary = Vocabulary(("succ",), ("even",))  # operators: 1 succ, 2 its inverse, 3 is even
    >>> normal(Literal(0, (0, 1, 3, 0, 3), None), vocabulary, Statements(1, 2, 2))
    Literal(statement=1, left=(1,), right=None)
    """
    filters = vocabulary.filter(1)

    def short(path: Path | None) -> Path | None:
        if path is None:
            return None
        found: list[int] = []
        for operator in path:
            if operator != IDENTITY and operator not in _ending(found, filters):
                found.append(operator)
                tail = len(found) - len(_ending(found, filters))
                found[tail:] = sorted(found[tail:])
        return tuple(found)

    left, right = short(literal.left), short(literal.right)
    kind, mark = numbers.kind(literal.statement)
    if kind == "step":
        return Literal(literal.statement, left, right)
    side = 0 if kind == "left" else 1
    path = (left, right)[side]
    assert path is not None
    marks = _ending(list(path), filters)
    if mark == ANYTHING and marks:
        mark = marks[-1] - filters + 1
    if mark != ANYTHING and filters + mark - 1 in marks:
        path = (*path[: len(path) - len(marks)], *(each for each in marks if each != filters + mark - 1))
    return Literal(numbers.about(side, mark), *((path, None) if side == 0 else (None, path)))


def _ending(path: list[int], filters: int) -> list[int]:
    """Return the filters at the end of a path."""
    start = len(path)
    while start and path[start - 1] >= filters:
        start -= 1
    return path[start:]


class Holding:
    """Finds the questions of a batch of which literals hold, by walking their paths over its evidence."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._hops = [[_by_operator(hop) for hop in frontier.hops] for frontier in evidence.frontiers]
        self._terms = [
            (term, np.argsort(term.statement, kind="stable"), np.sort(term.statement)) for term in evidence.terms
        ]
        self._reached: dict[tuple[int, Path], Mask] = {}

    def reached(self, side: int, path: Path) -> Mask:
        """Return which nodes a path reaches."""
        key = (side, path)
        if key not in self._reached:
            rows = self._evidence.frontiers[side].rows
            if not path:
                self._reached[key] = np.ones(len(rows[0]), dtype=bool)
            else:
                before = self.reached(side, path[:-1])
                source, target, operator = self._hops[side][len(path) - 1]
                part = slice(*np.searchsorted(operator, [path[-1], path[-1] + 1]))
                after = np.zeros(len(rows[len(path)]), dtype=bool)
                after[target[part][before[source[part]]]] = True
                self._reached[key] = after
        return self._reached[key]

    def rows(self, literal: Literal) -> Ids:
        """Return the questions of which a literal holds, sorted."""
        found = []
        for term, order, ordered in self._terms:
            if not (_fits(term.left, literal.left) and _fits(term.right, literal.right)):
                continue
            chosen = order[slice(*np.searchsorted(ordered, [literal.statement, literal.statement + 1]))]
            keep = np.ones(len(chosen), dtype=bool)
            for side, (place, path) in enumerate(((term.left, literal.left), (term.right, literal.right))):
                if place is not None and path is not None:
                    keep &= self.reached(side, path)[place[1][chosen]]
            found.append(self._evidence.row[term.pair[chosen[keep]]])
        return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *found]))


def _fits(place: tuple[int, Ids] | None, path: Path | None) -> bool:
    return (place is None) == (path is None) and (place is None or path is None or place[0] == len(path))


def _by_operator(hop: Hop) -> tuple[Ids, Ids, Ids]:
    order = np.argsort(hop.operator, kind="stable")
    return hop.source[order], hop.target[order], hop.operator[order]


def rows_where(
    literals: Iterable[Literal], reach: Reach, arguments: Sequence[Ids], hidden: Hidden, *, block: int = 4096
) -> dict[Literal, Ids]:
    """Return for each literal the questions of which it holds, each without its hidden facts."""
    wanted = list(dict.fromkeys(literals))
    found: dict[Literal, list[Ids]] = {each: [] for each in wanted}
    for low in range(0, len(arguments[0]), block):
        columns = [column[low : low + block] for column in arguments]
        holding = Holding(reach.evidence(columns, hidden))
        for each in wanted:
            found[each].append(holding.rows(each) + low)
    empty = np.zeros(0, dtype=np.int64)
    return {each: np.concatenate([empty, *rows]) for each, rows in found.items()}
