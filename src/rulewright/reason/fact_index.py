"""Known facts of one or two entities, found by their arguments without a scan: what a single proof needs is little.

A database plans every statement anew, which takes longer than the look at a few hundred facts. So the joins that give
one fact are done here, over sorted numbers, for all rules of a batch at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase
from rulewright.engine.sql import Column
from rulewright.logic import Atom, Comparison, Head, Variable
from rulewright.reason.batches import Batch
from rulewright.reason.program import positive_atoms

Numbers = npt.NDArray[np.int64]


class FactIndex:
    """The facts of a knowledge base in two orders: by first and by second argument."""

    def __init__(self, kb: KnowledgeBase) -> None:
        self._entities = max([1, *(domain.start + len(domain) for domain in kb.domains.values())])
        self.usable = len(kb.predicates) * self._entities**2 < np.iinfo(np.int64).max
        self._sorted: dict[tuple[int, int], Numbers] = {}
        for arity in (1, 2) if self.usable else ():
            table = kb.tables().get("e" * arity)
            columns = [table.predicate, *table.columns] if table is not None else [np.empty(0)] * (arity + 1)
            numbers = [np.asarray(column, dtype=np.int64) for column in columns]
            for first in range(arity):
                key = numbers[0] * self._entities + numbers[1 + first]
                if arity == 2:
                    key = key * self._entities + numbers[2 - first]
                self._sorted[arity, first] = np.sort(key)

    def holds(self, predicates: Numbers, args: list[Numbers]) -> npt.NDArray[np.bool_]:
        """Tell for each row whether it is a fact."""
        known = self._sorted[len(args), 0]
        key = predicates
        for arg in args:
            key = key * self._entities + arg
        place = np.searchsorted(known, key)
        found: npt.NDArray[np.bool_] = place < len(known)
        for arg in args:
            found &= arg >= 0  # what is no entity has the number -1
        found[found] = known[place[found]] == key[found]
        return found

    def ranges(
        self, predicates: Numbers, arity: int, place: int | None, bound: Numbers | None
    ) -> tuple[Numbers, Numbers]:
        """Return where the facts of each row begin and end, by one bound argument or by the predicate alone."""
        known = self._sorted[arity, place or 0]
        low, width = predicates, self._entities**arity
        if bound is not None:
            low, width = predicates * self._entities + bound, self._entities ** (arity - 1)
        starts, ends = (np.searchsorted(known, each * width) for each in (low, low + 1))
        return starts, ends if bound is None else np.where(bound < 0, starts, ends)

    def facts(self, arity: int, place: int | None, starts: Numbers, ends: Numbers) -> tuple[Numbers, list[Numbers]]:
        """Return the facts of ranges: which row each belongs to, and its arguments."""
        counts = ends - starts
        row = np.repeat(np.arange(len(starts)), counts)
        at = np.arange(len(row)) - np.repeat(np.cumsum(counts) - counts, counts) + np.repeat(starts, counts)
        key = self._sorted[arity, place or 0][at]
        last = key % self._entities
        if arity == 1:
            return row, [last]
        before = key // self._entities % self._entities
        return row, [last, before] if place == 1 else [before, last]


@dataclass
class IndexedJoin:
    """The rules of a batch joined with facts, for one head: a row for each instance.

    ``rules`` has the row of each instance in the batch's table, ``values`` what variables stand for.
    """

    index: FactIndex
    batch: Batch
    rules: Numbers
    values: dict[Variable, Numbers] = field(default_factory=dict)

    @classmethod
    def fits(cls, batch: Batch) -> bool:
        """Tell whether the index can join a batch: all atoms have one or two entities."""
        atoms = [each.unit for each in batch.body if not isinstance(each.unit, Comparison)]
        return batch.is_open and all(isinstance(each, Atom) and each.arity <= 2 for each in atoms)

    @classmethod
    def of(
        cls, index: FactIndex, batch: Batch, predicate: int, given: Mapping[Variable, int], fixed: Mapping[str, int]
    ) -> IndexedJoin:
        """Join the rules with a head's predicate, variables and constants."""
        chosen = batch.columns["h"] == predicate
        for name, value in fixed.items():
            chosen = chosen & (batch.columns[name] == value)
        rules = np.flatnonzero(chosen)
        join = cls(index, batch, rules)
        join.values = {variable: np.full(len(rules), value, dtype=np.int64) for variable, value in given.items()}
        for name in batch.columns:
            if name[0] == "c":
                join.values[Variable(name.upper())] = batch.columns[name][rules].astype(np.int64)
        join._run()
        return join

    def _run(self) -> None:
        waiting = [each for each in positive_atoms(self.batch.body) if isinstance(each, Atom)]
        while waiting and len(self.rules):
            waiting.remove(self._joined(waiting))
        for literal in self.batch.body:
            if isinstance(literal.unit, Comparison):
                self._compare(literal.unit, literal.positive)
            elif not literal.positive and len(self.rules):
                self._keep(~self.index.holds(self._predicates(literal.unit), self._args(literal.unit)))

    def _predicates(self, atom: Head) -> Numbers:
        return self.batch.columns[str(atom.predicate).removeprefix("?").lower()][self.rules].astype(np.int64)

    def _args(self, unit: Head) -> list[Numbers]:
        return [self.values[term] for term in unit.args if isinstance(term, Variable)]

    def _joined(self, waiting: list[Atom]) -> Atom:
        """Join the atom with the fewest facts; one whose arguments are all known only removes rows."""
        best: tuple[int, Atom, int | None, Numbers, Numbers] | None = None
        for atom in waiting:
            bound = [
                (place, self.values[term])
                for place, term in enumerate(atom.args)
                if isinstance(term, Variable) and term in self.values
            ]
            if len(bound) == atom.arity:
                self._keep(self.index.holds(self._predicates(atom), [value for _, value in bound]))
                return atom
            place, value = bound[0] if bound else (None, None)
            starts, ends = self.index.ranges(self._predicates(atom), atom.arity, place, value)
            count = int((ends - starts).sum())
            if best is None or count < best[0]:
                best = (count, atom, place, starts, ends)
        assert best is not None
        _, atom, place, starts, ends = best
        row, args = self.index.facts(atom.arity, place, starts, ends)
        self._keep(row)
        for term, values in zip(atom.args, args, strict=True):
            if isinstance(term, Variable):
                self.values.setdefault(term, values)
        if len(set(atom.args)) < atom.arity:
            self._keep(args[0] == args[1])
        return atom

    def _keep(self, rows: npt.NDArray[np.bool_] | Numbers) -> None:
        self.rules = self.rules[rows]
        self.values = {variable: each[rows] for variable, each in self.values.items()}

    def _compare(self, comparison: Comparison, positive: bool) -> None:
        if len(self.rules):
            left, right = (self.values[term] for term in comparison.args if isinstance(term, Variable))
            self._keep((left == right) == ((comparison.operator == "=") == positive))

    def column(self, name: str) -> Column:
        """Return a column of the batch's table, for each instance."""
        return self.batch.columns[name][self.rules]

    def premises(self) -> Iterator[list[tuple[int, ...]]]:
        """Yield for each positive atom the facts it is joined with."""
        for unit in positive_atoms(self.batch.body):
            columns = [self._predicates(unit), *self._args(unit)]
            yield list(zip(*(column.tolist() for column in columns), strict=True))
