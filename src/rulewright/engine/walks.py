"""Walks on a graph of relations as products of sparse matrices; each walker may have an edge that it must not use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from rulewright.data import FactTable, KnowledgeBase, signature
from rulewright.data.index import Ids
from rulewright.engine.chain_counts import edges
from rulewright.errors import DataError
from rulewright.logic import Path, count_steps, invert_step, step_relation


@dataclass(frozen=True)
class HiddenEdges:
    """For every walker an edge ``before —step→ after`` that it may walk in neither direction."""

    step: int
    before: Ids
    after: Ids

    def part(self, rows: slice) -> HiddenEdges:
        """Return the edges of some walkers."""
        return HiddenEdges(self.step, self.before[rows], self.after[rows])


class Graph:
    """The facts of two entities, each an edge that can be walked both ways; a step (`logic.chain`) says which.

    A state has a row for each walker and counts in column ``y`` the ways in which it came to entity ``y``:
    ``X ← X A_p`` walks step ``p``. A walker with a hidden edge ``(h, r, t)`` walks on the graph without it,
    exactly: where ``p = r``, the ``X[i, h]`` ways that would have used the edge are taken from ``(X A_p)[i, t]``; where
    ``p`` is the inverse of ``r``, the ``X[i, t]`` ways from ``(X A_p)[i, h]``. Where edges weigh what they tell, those
    beside the hidden one weigh what they would without it.

    >>> kb = KnowledgeBase.from_triples([("ann", "knows", "bob"), ("bob", "knows", "cid"), ("ann", "knows", "cid")])
    >>> graph = Graph.of(kb)
    >>> graph.walk(np.array([0]), (0, 0)).toarray().tolist()
    [[0.0, 0.0, 1.0]]
    >>> graph.walk(np.array([0]), (0, 0), HiddenEdges(0, np.array([1]), np.array([2]))).nnz
    0
    """

    def __init__(self, facts: FactTable | None, entities: int, relations: int) -> None:
        self.entities, self.relations = entities, relations
        empty = np.zeros(0, dtype=np.int64)
        columns = {"p": empty, "a0": empty, "a1": empty} if facts is None else edges(facts)
        steps, before, after = (columns[name].astype(np.int64) for name in ("p", "a0", "a1"))
        order = np.lexsort((after, before, steps))
        self.steps, self.before, self.after = steps[order], before[order], after[order]
        self._bounds = np.searchsorted(self.steps, np.arange(count_steps(relations) + 1))
        self._adjacency: dict[int, sparse.csr_array] = {}
        self._strengths: dict[int, sparse.csr_array] = {}

    @classmethod
    def of(cls, kb: KnowledgeBase) -> Graph:
        """Build the graph of a knowledge base; other predicates than those of two entities play no part."""
        return cls(kb.tables().get("ee"), kb.n_entities, len(kb.predicates))

    def edges(self, step: int) -> tuple[Ids, Ids]:
        """Return where the edges of a step begin and end, sorted."""
        part = slice(self._bounds[step], self._bounds[step + 1])
        return self.before[part], self.after[part]

    def adjacency(self, step: int) -> sparse.csr_array:
        """Return a step as a sparse 0/1 matrix."""
        if step not in self._adjacency:
            before, after = self.edges(step)
            pointers = np.searchsorted(before, np.arange(self.entities + 1)).astype(np.int32)
            self._adjacency[step] = sparse.csr_array(
                (np.ones(len(after)), after.astype(np.int32), pointers), shape=(self.entities, self.entities)
            )
        return self._adjacency[step]

    def degrees(self, step: int) -> Ids:
        """Return how many edges of a step leave each entity."""
        degrees: Ids = np.diff(self.adjacency(step).indptr).astype(np.int64)
        return degrees

    def strengths(self, step: int) -> sparse.csr_array:
        """Return a step with how telling each edge is: ``1 / √(edges that leave x · edges that enter y)``.

        >>> kb = KnowledgeBase.from_triples([("ann", "born_in", "rome"), ("bob", "born_in", "rome")])
        >>> Graph.of(kb).strengths(0).data.round(3).tolist()
        [0.707, 0.707]
        """
        if step not in self._strengths:
            plain = self.adjacency(step)
            before, after = self.edges(step)
            weights = 1 / np.sqrt(self.degrees(step)[before] * self.degrees(invert_step(step))[after])
            self._strengths[step] = sparse.csr_array((weights, plain.indices, plain.indptr), shape=plain.shape)
        return self._strengths[step]

    @cached_property
    def leaving(self) -> tuple[Ids, Ids, Ids]:
        """All edges by where they begin: for each entity where its edges start, then their steps and ends."""
        order = np.argsort(self.before, kind="stable")
        pointers = np.searchsorted(self.before[order], np.arange(self.entities + 1))
        return pointers, self.steps[order], self.after[order]

    def start(self, entities: Ids) -> sparse.csr_array:
        """Return the state of walkers that stand on these entities."""
        rows = len(entities)
        return sparse.csr_array(
            (np.ones(rows), np.asarray(entities, dtype=np.int32), np.arange(rows + 1, dtype=np.int32)),
            shape=(rows, self.entities),
        )

    def take_step(
        self, state: sparse.csr_array, step: int, hidden: HiddenEdges | None = None, *, telling: bool = False
    ) -> sparse.csr_array:
        """Walk one step further without the hidden edges; ``telling`` weighs edges by `strengths`."""
        matrix = self.strengths(step) if telling else self.adjacency(step)
        reached = state @ matrix
        if hidden is None or step_relation(step) != step_relation(hidden.step) or reached.nnz == 0:
            return reached
        before, after = hidden.before, hidden.after
        if step != hidden.step:
            before, after = after, before
        rows = np.arange(len(before))
        used, scale = np.asarray(state[rows, before]).ravel(), np.ones(len(rows))
        if telling:
            leave, enter = self.degrees(step)[before], self.degrees(invert_step(step))[after]
            rise, scale = (np.sqrt(degree / np.maximum(degree - 1, 1)) for degree in (leave, enter))
            others = sparse.csr_array((used * (rise - 1), (rows, before)), shape=state.shape)
            reached = reached + others @ matrix  # the other edges that leave `before` tell more
            used = used * rise / np.sqrt(leave * enter)
        total = np.asarray(reached[rows, after]).ravel()
        left = np.where(total - used > 1e-9 * total, (total - used) * scale, 0.0)
        changed = np.flatnonzero(left != total)
        if len(changed) == 0:
            return reached
        difference = ((left - total)[changed], (rows[changed], after[changed]))
        reached = reached + sparse.csr_array(difference, shape=reached.shape)
        reached.eliminate_zeros()
        return reached

    def walk(
        self, entities: Ids, path: Path, hidden: HiddenEdges | None = None, *, telling: bool = False
    ) -> sparse.csr_array:
        """Return the state after a whole path."""
        state = self.start(entities)
        for step in path:
            state = self.take_step(state, step, hidden, telling=telling)
        return state


def find_relation(kb: KnowledgeBase, name: str) -> int:
    """Return the index of a relation of two entities; another predicate is an error."""
    if signature(kb.predicate(name)) != "ee":
        raise DataError(f"{name} is not a relation of two entities")
    return kb.predicate_index(name)
