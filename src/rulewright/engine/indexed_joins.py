"""Indexed joins: which instances of rules give one fact, over sorted facts of one or two entities.

A database plans every statement anew, which takes longer than the look at a few hundred facts. So the joins that give
one fact are done here, for all rules of a batch at once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase
from rulewright.data.index import Ids, expand_ranges
from rulewright.engine.batches import RuleBatch
from rulewright.engine.sql import positive_atoms
from rulewright.logic import Atom, Comparison, Head, Variable


class FactIndex:
    """The facts of a knowledge base in two orders, by first and by second argument, each fact as one integer.

    ``usable`` says whether the integers are large enough for that.
    """

    def __init__(self, kb: KnowledgeBase) -> None:
        self._entities = max([1, *(domain.start + len(domain) for domain in kb.domains.values())])
        self.usable = len(kb.predicates) * self._entities**2 < np.iinfo(np.int64).max
        self._sorted: dict[tuple[int, int], Ids] = {}
        for arity in (1, 2) if self.usable else ():
            table = kb.tables().get("e" * arity)
            columns = [table.predicate, *table.columns] if table is not None else [np.empty(0)] * (arity + 1)
            predicates, *args = (np.asarray(column, dtype=np.int64) for column in columns)
            for first in range(arity):
                key = predicates * self._entities + args[first]
                if arity == 2:
                    key = key * self._entities + args[1 - first]
                self._sorted[arity, first] = np.sort(key)

    def holds(self, predicates: Ids, args: list[Ids]) -> npt.NDArray[np.bool_]:
        """Return for each row whether it is a fact."""
        known = self._sorted[len(args), 0]
        key = predicates
        for arg in args:
            key = key * self._entities + arg
        position = np.searchsorted(known, key)
        is_fact: npt.NDArray[np.bool_] = position < len(known)
        for arg in args:
            is_fact &= arg >= 0  # what is no entity has the index -1
        is_fact[is_fact] = known[position[is_fact]] == key[is_fact]
        return is_fact

    def ranges(self, predicates: Ids, arity: int, bound_argument: int | None, bound: Ids | None) -> tuple[Ids, Ids]:
        """Return where the facts of each row begin and end, by one bound argument or by the predicate alone."""
        known = self._sorted[arity, bound_argument or 0]
        low, width = predicates, self._entities**arity
        if bound is not None:
            low, width = predicates * self._entities + bound, self._entities ** (arity - 1)
        starts, ends = np.searchsorted(known, low * width), np.searchsorted(known, (low + 1) * width)
        return starts, ends if bound is None else np.where(bound < 0, starts, ends)

    def facts(self, arity: int, bound_argument: int | None, starts: Ids, ends: Ids) -> tuple[Ids, list[Ids]]:
        """Return the facts of ranges: which row each belongs to, and its arguments."""
        counts = ends - starts
        row = np.repeat(np.arange(len(starts)), counts)
        key = self._sorted[arity, bound_argument or 0][expand_ranges(starts, counts)]
        last = key % self._entities
        if arity == 1:
            return row, [last]
        before = key // self._entities % self._entities
        return row, [last, before] if bound_argument == 1 else [before, last]


class IndexedJoin:
    """The rules of a batch joined with facts for one head: a row for each instance.

    The head is given by its predicate, what its variables stand for (``given``) and what constants must be
    (``fixed``). ``rules`` has the row of each instance in the batch's table.
    """

    def __init__(
        self,
        index: FactIndex,
        batch: RuleBatch,
        predicate: int,
        given: Mapping[Variable, int],
        fixed: Mapping[str, int],
    ) -> None:
        chosen = batch.columns["h"] == predicate
        for name, value in fixed.items():
            chosen = chosen & (batch.columns[name] == value)
        self.index, self.batch, self.rules = index, batch, np.flatnonzero(chosen)
        self._values = {variable: np.full(len(self.rules), value) for variable, value in given.items()}
        for name in batch.columns:
            if name[0] == "c":
                self._values[Variable(name.upper())] = batch.columns[name][self.rules].astype(np.int64)
        waiting = [unit for unit in positive_atoms(batch.body) if isinstance(unit, Atom)]
        while waiting and len(self.rules):
            waiting.remove(self._join_atom(waiting))
        for literal in batch.body:
            if len(self.rules) == 0:
                break
            if isinstance(literal.unit, Comparison):
                left, right = (self._values[term] for term in literal.unit.args if isinstance(term, Variable))
                self._keep((left == right) == ((literal.unit.operator == "=") == literal.positive))
            elif not literal.positive:
                predicates, *args = self._columns(literal.unit)
                self._keep(~self.index.holds(predicates, args))

    @staticmethod
    def fits(batch: RuleBatch) -> bool:
        """Return whether the index can join a batch: all atoms have one or two entities."""
        units = [literal.unit for literal in batch.body if not isinstance(literal.unit, Comparison)]
        return batch.is_open and all(isinstance(unit, Atom) and len(unit.args) <= 2 for unit in units)

    def _predicates(self, unit: Head) -> Ids:
        column: Ids = self.batch.columns[str(unit.predicate).removeprefix("?").lower()][self.rules].astype(np.int64)
        return column

    def _columns(self, unit: Head) -> list[Ids]:
        """Return the predicates and arguments of an atom whose variables are all bound."""
        return [self._predicates(unit), *(self._values[term] for term in unit.args if isinstance(term, Variable))]

    def _join_atom(self, waiting: list[Atom]) -> Atom:
        """Join the atom with the fewest facts; one whose arguments are all known only removes rows."""
        fewest: tuple[int, Atom, int | None, Ids, Ids] | None = None
        for atom in waiting:
            bound = [
                (position, self._values[term])
                for position, term in enumerate(atom.args)
                if isinstance(term, Variable) and term in self._values
            ]
            predicates = self._predicates(atom)
            if len(bound) == len(atom.args):
                self._keep(self.index.holds(predicates, [values for _, values in bound]))
                return atom
            position, values = bound[0] if bound else (None, None)
            starts, ends = self.index.ranges(predicates, len(atom.args), position, values)
            count = int((ends - starts).sum())
            if fewest is None or count < fewest[0]:
                fewest = (count, atom, position, starts, ends)
        assert fewest is not None
        _, atom, position, starts, ends = fewest
        row, args = self.index.facts(len(atom.args), position, starts, ends)
        self._keep(row)
        for term, values in zip(atom.args, args, strict=True):
            if isinstance(term, Variable):
                self._values.setdefault(term, values)
        if len(set(atom.args)) < len(atom.args):
            self._keep(args[0] == args[1])
        return atom

    def _keep(self, rows: npt.NDArray[np.bool_] | Ids) -> None:
        self.rules = self.rules[rows]
        self._values = {variable: values[rows] for variable, values in self._values.items()}

    def premises(self) -> list[tuple[tuple[int, ...], ...]]:
        """Return for each instance the facts that the positive atoms are joined with: predicate and arguments."""
        if len(self.rules) == 0:
            return []
        units = positive_atoms(self.batch.body)
        facts = [list(zip(*(column.tolist() for column in self._columns(unit)), strict=True)) for unit in units]
        return list(zip(*facts, strict=True)) if facts else [()] * len(self.rules)
