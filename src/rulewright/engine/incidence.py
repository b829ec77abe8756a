"""Counting what needs no statement: single relations, and bodies of two, are products of sparse matrices.

A database takes milliseconds to plan a statement, longer than all of this takes on ten thousand facts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy import sparse

from rulewright.data import FactTable
from rulewright.engine import chains
from rulewright.engine.operations import Column

Numbers = npt.NDArray[np.int64]


class Incidence:
    """The relations, numbered as in `chains.edges`, beside the entities and the pairs of entities that they join.

    The counts come as columns, named as those of the statements in `chains`.

    >>> from rulewright.data import KnowledgeBase
    >>> kb = KnowledgeBase.from_triples([("ann", "knows", "bob"), ("bob", "knows", "ann"), ("bob", "knows", "cid")])
    >>> counts = Incidence(kb.tables()["ee"], 1).support()
    >>> [(name, counts[name].tolist()) for name in ("h", "p0", "n")]
    [('h', [0, 0]), ('p0', [0, 1]), ('n', [3, 2])]
    """

    def __init__(self, facts: FactTable, relations: int, *, inverses: bool = True) -> None:
        before, after = (column.astype(np.int64) for column in facts.columns)
        edge = chains.edges(facts, inverses=inverses)
        self._relation, self._before, self._after = edge["p"], edge["a0"], edge["a1"]
        self._apart = self._before != self._after
        self._facts, self._fact_starts = facts.predicate, before
        self._heads, self._relations = relations, 2 * relations
        self._entities = int(max(before.max(initial=0), after.max(initial=0))) + 1
        keys = np.concatenate([before * self._entities + after, after * self._entities + before])
        pairs, number = np.unique(keys, return_inverse=True)
        there, back = np.split(number, 2)
        self._pairs = len(pairs)
        self._pair = number if inverses else there
        self._pair_back = np.concatenate([back, there]) if inverses else back
        self._fact_pair = there

    def support(self, targets: Sequence[int] | None = None) -> dict[str, Column]:
        """Count the facts of every head that every single relation joins too, loops apart."""
        chosen = self._apart[: len(self._facts)]
        if targets is not None:
            chosen = chosen & np.isin(self._facts, targets)
        heads = _matrix(self._fact_pair[chosen], self._facts[chosen], (self._pairs, self._heads))
        edges = _matrix(self._relation, self._pair, (self._relations, self._pairs))
        relation, head, count = _entries(edges @ heads)
        return {"h": head, "p0": relation, "n": count, "pairs": count, "squares": count}

    def bodies(self, length: int) -> dict[str, Column]:
        """Count the groundings of every body of one relation or two, and the ``middles`` of two."""
        if length == 1:
            relation, count = np.unique(self._relation, return_counts=True)
            return {"p0": relation, "n": count}
        arriving = _matrix(self._relation, self._after, (self._relations, self._entities))
        leaving = _matrix(self._before, self._relation, (self._entities, self._relations))
        first, second, count = _entries(arriving @ leaving)
        # Both products are sorted and have the same entries: a body has a grounding where it has a middle.
        return {"p0": first, "p1": second, "n": count, "middles": _entries(_where(arriving) @ _where(leaving))[2]}

    def loops(self, length: int) -> dict[str, Column]:
        """Count the groundings of every body of one relation or two that end where they began."""
        if length == 1:
            relation, count = np.unique(self._relation[~self._apart], return_counts=True)
            return {"p0": relation, "n": count}
        there = _matrix(self._relation, self._pair, (self._relations, self._pairs))
        back = _matrix(self._pair_back, self._relation, (self._pairs, self._relations))
        first, second, count = _entries(there @ back)
        return {"p0": first, "p1": second, "n": count}

    def known(self, heads: Column, relations: Column, *, loops: bool) -> Numbers:
        """Count, for heads and single relations side by side, the pairs whose first entity has the head's relation."""
        told = _where(_matrix(self._fact_starts, self._facts, (self._entities, self._heads)))
        chosen = slice(None) if loops else self._apart
        leaving = _matrix(self._relation[chosen], self._before[chosen], (self._relations, self._entities))
        if len(heads) == 0:  # no places make SciPy return a matrix
            return np.zeros(0, dtype=np.int64)
        return np.asarray((leaving @ told)[relations, heads], dtype=np.int64)


def _matrix(rows: Column, columns: Column, shape: tuple[int, int]) -> sparse.csr_array:
    """Return how often each place is named."""
    return sparse.csr_array((np.ones(len(rows), dtype=np.int64), (rows, columns)), shape=shape)


def _where(counts: sparse.csr_array) -> sparse.csr_array:
    return sparse.csr_array((np.ones_like(counts.data), counts.indices, counts.indptr), shape=counts.shape)


def _entries(product: sparse.csr_array) -> tuple[Numbers, Numbers, Numbers]:
    """Return rows, columns and values, in order."""
    product.sort_indices()
    entries = product.tocoo()
    return entries.row.astype(np.int64), entries.col.astype(np.int64), entries.data
