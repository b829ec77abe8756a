"""Facts as steps between entities and marks on them, numbered as operators and statements."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from rulewright.data import FactTable, KnowledgeBase, signature
from rulewright.data.index import Ids, expand_ranges
from rulewright.errors import DataError

Mask = npt.NDArray[np.bool_]

IDENTITY = 0
"""The operator that stays where it is."""
ANYTHING = 0
"""The mark that every entity bears, so that "has a successor" can be said."""


@dataclass(frozen=True)
class Vocabulary:
    """The predicates of one and of two entities, in the order of the knowledge base.

    Operators: 0 stays; ``1 + 2r`` walks relation ``r`` and ``2 + 2r`` walks it backwards; ``filter(m)`` stays where
    mark ``m`` is borne. Marks: 0 is borne by everything, ``1 + u`` by the entities of unary predicate ``u``.

    >>> vocabulary = Vocabulary(("succ",), ("even", "zero"))
    >>> vocabulary.operators, vocabulary.marks, vocabulary.filter(2)
    (5, 3, 4)
    """

    binary: tuple[str, ...]
    unary: tuple[str, ...]

    @classmethod
    def of(cls, kb: KnowledgeBase) -> Vocabulary:
        """Return the vocabulary of a knowledge base; predicates of other shapes play no part."""
        kinds = {name: signature(each) for name, each in kb.predicates.items()}
        return cls(
            tuple(name for name, kind in kinds.items() if kind == "ee"),
            tuple(name for name, kind in kinds.items() if kind == "e"),
        )

    @property
    def operators(self) -> int:
        """How many operators there are."""
        return 1 + 2 * len(self.binary) + len(self.unary)

    @property
    def marks(self) -> int:
        """How many marks there are."""
        return 1 + len(self.unary)

    def filter(self, mark: int) -> int:
        """Return the operator that stays where a mark (from 1) is borne."""
        return 2 * len(self.binary) + mark

    def arity(self, name: str) -> int:
        """Return 1 or 2; another predicate is refused."""
        if name in self.unary:
            return 1
        if name in self.binary:
            return 2
        raise DataError(f"{name} is no predicate of one or two entities, and only those can be explained")

    def step(self, name: str) -> int:
        """Return the operator that walks a relation forwards; the one backwards follows it."""
        return 1 + 2 * self.binary.index(name)

    def mark(self, name: str) -> int:
        """Return the mark of a unary predicate."""
        return 1 + self.unary.index(name)


@dataclass(frozen=True)
class Hidden:
    """What questions may not see: marks of the entity asked about, and for each question one step, in both directions.

    ``step`` is the operator that walks the hidden relation forwards, from the first to the second argument. With
    ``pair`` every step between the two arguments is hidden, of whatever relation.
    """

    marks: tuple[int, ...] = ()
    step: int | None = None
    pair: bool = False


class FactGraph:
    """All facts of one and two entities, by the entity they leave from.

    >>> kb = KnowledgeBase.from_facts([("succ", "a", "b"), ("zero", "a")])
    >>> graph = FactGraph(kb)
    >>> [column.tolist() for column in graph.leaving(np.array([0, 1]))]  # a —succ→ b, b —succ⁻¹→ a
    [[0, 1], [1, 2], [1, 0]]
    >>> [column.tolist() for column in graph.borne(np.array([0, 1]))]
    [[0], [1]]
    """

    def __init__(self, kb: KnowledgeBase, vocabulary: Vocabulary | None = None) -> None:
        self.kb = kb
        self.vocabulary = Vocabulary.of(kb) if vocabulary is None else vocabulary
        self.entities = kb.n_entities
        binary = [kb.predicate_index(name) for name in self.vocabulary.binary]
        unary = [kb.predicate_index(name) for name in self.vocabulary.unary]
        relation, before, after = _columns(kb.tables().get("ee"), len(kb.predicates), binary, 2)
        operator = np.concatenate([1 + 2 * relation, 2 + 2 * relation])
        start, end = np.concatenate([before, after]), np.concatenate([after, before])
        order = np.lexsort((end, operator, start))
        self._pointers = np.searchsorted(start[order], np.arange(self.entities + 1))
        self._operator, self._end = operator[order], end[order]
        mark, bearer = _columns(kb.tables().get("e"), len(kb.predicates), unary, 1)
        order = np.lexsort((mark, bearer))
        self._mark_pointers = np.searchsorted(bearer[order], np.arange(self.entities + 1))
        self._mark = 1 + mark[order]

    def leaving(self, entities: Ids, most: int | None = None, random: np.random.Generator | None = None) -> _Steps:
        """Return the steps that leave entities: the entity's place among those given, the operator and the end.

        Where ``most`` is given, about so many of the steps of an entity that has more are drawn at random.
        """
        first = self._pointers[entities]
        counts = self._pointers[entities + 1] - first
        source = np.repeat(np.arange(len(entities)), counts)
        edge = expand_ranges(first, counts)
        if most is not None and len(counts) and counts.max() > most:
            assert random is not None
            keep = random.random(len(edge)) * counts[source] < most
            source, edge = source[keep], edge[keep]
        return source, self._operator[edge], self._end[edge]

    def borne(self, entities: Ids) -> tuple[Ids, Ids]:
        """Return the marks that entities bear: the entity's place among those given and the mark, from 1."""
        first = self._mark_pointers[entities]
        counts = self._mark_pointers[entities + 1] - first
        return np.repeat(np.arange(len(entities)), counts), self._mark[expand_ranges(first, counts)]

    @cached_property
    def steps(self) -> int:
        """How many steps there are, both directions counted."""
        return len(self._end)


_Steps = tuple[Ids, Ids, Ids]


def _columns(table: FactTable | None, predicates: int, wanted: list[int], arity: int) -> tuple[Ids, ...]:
    """Return the facts of some predicates: their place among those wanted, and the arguments."""
    if table is None:
        return tuple(np.zeros(0, dtype=np.int64) for _ in range(1 + arity))
    place = np.full(predicates, -1, dtype=np.int64)
    place[wanted] = np.arange(len(wanted))
    found = place[table.predicate]
    keep = found >= 0
    return found[keep], *(column[keep].astype(np.int64) for column in table.columns)
