"""Walks on a graph of relations as products of sparse matrices, each row a walker with an edge it may not use."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import sparse

from rulewright.data import FactTable, KnowledgeBase
from rulewright.data.index import Ids
from rulewright.engine import chain_counts as chains
from rulewright.errors import DataError
from rulewright.logic import Path


@dataclass(frozen=True)
class Hidden:
    """For every walker an edge ``before —relation→ after`` that it may walk in neither direction."""

    relation: int
    before: Ids
    after: Ids

    def part(self, rows: slice) -> Hidden:
        """Return the edges of some walkers."""
        return Hidden(self.relation, self.before[rows], self.after[rows])


class Graph:
    """The facts of two entities: relation ``r`` is walked forwards as number ``2r`` and backwards as ``2r + 1``.

    A state has a row for each walker and counts in column ``y`` the ways in which it came to entity ``y``:
    ``X ← X A_p`` walks relation ``p``. A walker with a hidden edge ``(h, r, t)`` walks on the graph without it,
    exactly: where ``p = r``, the ``X[i, h]`` ways that would have used the edge are taken from ``(X A_p)[i, t]``; where
    ``p`` is the inverse of ``r``, the ``X[i, t]`` ways from ``(X A_p)[i, h]``. Where edges weigh what they tell, those
    beside the hidden one weigh what they would without it.

    >>> kb = KnowledgeBase.from_triples([("ann", "knows", "bob"), ("bob", "knows", "cid"), ("ann", "knows", "cid")])
    >>> graph = Graph.of(kb)
    >>> graph.walk(np.array([0]), (0, 0)).toarray().tolist()
    [[0.0, 0.0, 1.0]]
    >>> graph.walk(np.array([0]), (0, 0), Hidden(0, np.array([1]), np.array([2]))).nnz
    0
    """

    def __init__(self, facts: FactTable | None, entities: int, relations: int) -> None:
        self.entities, self.relations = entities, relations
        empty = np.zeros(0, dtype=np.int64)
        columns = {"p": empty, "a0": empty, "a1": empty} if facts is None else chains.edges(facts)
        relation, before, after = (columns[name].astype(np.int64) for name in ("p", "a0", "a1"))
        order = np.lexsort((after, before, relation))
        self.relation, self.before, self.after = relation[order], before[order], after[order]
        self._bounds = np.searchsorted(self.relation, np.arange(2 * relations + 1))
        self._matrices: dict[int, sparse.csr_array] = {}
        self._strengths: dict[int, sparse.csr_array] = {}

    @classmethod
    def of(cls, kb: KnowledgeBase) -> Graph:
        """Build the graph of a knowledge base; other predicates than those of two entities play no part."""
        return cls(kb.tables().get("ee"), kb.n_entities, len(kb.predicates))

    def edges(self, relation: int) -> tuple[Ids, Ids]:
        """Return where the edges of a relation begin and end, sorted."""
        part = slice(self._bounds[relation], self._bounds[relation + 1])
        return self.before[part], self.after[part]

    def adjacency(self, relation: int) -> sparse.csr_array:
        """Return a relation as a sparse 0/1 matrix."""
        if relation not in self._matrices:
            before, after = self.edges(relation)
            pointers = np.searchsorted(before, np.arange(self.entities + 1)).astype(np.int32)
            self._matrices[relation] = sparse.csr_array(
                (np.ones(len(after)), after.astype(np.int32), pointers), shape=(self.entities, self.entities)
            )
        return self._matrices[relation]

    def degree(self, relation: int) -> Ids:
        """Return how many edges of a relation leave each entity."""
        found: Ids = np.diff(self.adjacency(relation).indptr).astype(np.int64)
        return found

    def strengths(self, relation: int) -> sparse.csr_array:
        """Return a relation with how telling each edge is: ``1 / √(edges that leave x · edges that enter y)``.

        >>> kb = KnowledgeBase.from_triples([("ann", "born_in", "rome"), ("bob", "born_in", "rome")])
        >>> Graph.of(kb).strengths(0).data.round(3).tolist()
        [0.707, 0.707]
        """
        if relation not in self._strengths:
            plain = self.adjacency(relation)
            before, after = self.edges(relation)
            told = 1 / np.sqrt(self.degree(relation)[before] * self.degree(relation ^ 1)[after])
            self._strengths[relation] = sparse.csr_array((told, plain.indices, plain.indptr), shape=plain.shape)
        return self._strengths[relation]

    @cached_property
    def leaving(self) -> tuple[Ids, Ids, Ids]:
        """All edges by where they begin: for each entity where its edges start, then their relations and ends."""
        order = np.argsort(self.before, kind="stable")
        pointers = np.searchsorted(self.before[order], np.arange(self.entities + 1))
        return pointers, self.relation[order], self.after[order]

    def start(self, entities: Ids) -> sparse.csr_array:
        """Return the state of walkers that stand on these entities."""
        rows = len(entities)
        return sparse.csr_array(
            (np.ones(rows), np.asarray(entities, dtype=np.int32), np.arange(rows + 1, dtype=np.int32)),
            shape=(rows, self.entities),
        )

    def step(
        self, state: sparse.csr_array, relation: int, hidden: Hidden | None = None, *, telling: bool = False
    ) -> sparse.csr_array:
        """Walk one relation further without the hidden edges; ``telling`` weighs edges by `strengths`."""
        matrix = self.strengths(relation) if telling else self.adjacency(relation)
        found = state @ matrix
        if hidden is None or relation >> 1 != hidden.relation >> 1 or found.nnz == 0:
            return found
        before, after = hidden.before, hidden.after
        if relation != hidden.relation:
            before, after = after, before
        rows = np.arange(len(before))
        used, scale = np.asarray(state[rows, before]).ravel(), np.ones(len(rows))
        if telling:
            leave, enter = self.degree(relation)[before], self.degree(relation ^ 1)[after]
            rise, scale = (np.sqrt(each / np.maximum(each - 1, 1)) for each in (leave, enter))
            others = sparse.csr_array((used * (rise - 1), (rows, before)), shape=state.shape)
            found = found + others @ matrix  # the other edges that leave `before` tell more
            used = used * rise / np.sqrt(leave * enter)
        total = np.asarray(found[rows, after]).ravel()
        left = np.where(total - used > 1e-9 * total, (total - used) * scale, 0.0)
        changed = np.flatnonzero(left != total)
        if len(changed) == 0:
            return found
        found = found + sparse.csr_array(((left - total)[changed], (rows[changed], after[changed])), shape=found.shape)
        found.eliminate_zeros()
        return found

    def walk(
        self, entities: Ids, path: Path, hidden: Hidden | None = None, *, telling: bool = False
    ) -> sparse.csr_array:
        """Return the state after a whole path."""
        state = self.start(entities)
        for relation in path:
            state = self.step(state, relation, hidden, telling=telling)
        return state


def check_relation(kb: KnowledgeBase, name: str) -> int:
    """Return the number of a relation of two entities; another predicate is an error."""
    from rulewright.data import signature

    if signature(kb.predicate(name)) != "ee":
        raise DataError(f"{name} is not a relation of two entities")
    return kb.number_of(name)
