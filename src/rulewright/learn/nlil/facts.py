"""Facts as steps between entities and marks on them, with integer codes for operators and statements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from rulewright.data import FactTable, KnowledgeBase, signature
from rulewright.data.index import Ids, expand_ranges
from rulewright.errors import DataError
from rulewright.logic.chain import Index, count_steps, encode_step, invert_step, is_inverse, step_relation

Mask = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

IDENTITY = 0
"""The operator that stays where it is."""
ANYTHING = 0
"""The mark that every entity has, so that "has a successor" can be expressed."""


def operator_of_step(step: Index) -> Index:
    """Return the operator that walks a step: operator 0 stays, so steps follow from 1 on.

    >>> operator_of_step(encode_step(3)), operator_of_step(encode_step(3, inverse=True))
    (7, 8)
    """
    return step + 1


def step_of_operator(operator: Index) -> Index:
    """Return the step that an operator walks."""
    return operator - 1


@dataclass(frozen=True)
class Vocabulary:
    """The predicates of one and of two entities, in the order of the knowledge base.

    Operators: 0 stays, then come the steps over the relations, then the filters: ``filter_operator(m)`` stays where an
    entity has mark ``m``. Marks: every entity has mark 0, those of unary predicate ``u`` have ``1 + u``.

    >>> vocabulary = Vocabulary(("succ",), ("even", "zero"))
    >>> vocabulary.n_operators, vocabulary.n_marks, vocabulary.filter_operator(2)
    (5, 3, 4)
    """

    binary: tuple[str, ...]
    unary: tuple[str, ...]

    @classmethod
    def from_facts(cls, kb: KnowledgeBase) -> Vocabulary:
        """Return the vocabulary of a knowledge base; predicates of other signatures are not used."""
        binary, unary = (
            tuple(name for name, predicate in kb.predicates.items() if signature(predicate) == wanted)
            for wanted in ("ee", "e")
        )
        return cls(binary, unary)

    @property
    def n_steps(self) -> int:
        """How many steps there are: the relations, forwards and backwards."""
        return count_steps(len(self.binary))

    @property
    def n_operators(self) -> int:
        """How many operators there are."""
        return 1 + self.n_steps + len(self.unary)

    @property
    def n_marks(self) -> int:
        """How many marks there are."""
        return 1 + len(self.unary)

    def arity(self, name: str) -> int:
        """Return 1 or 2; another predicate is refused."""
        if name in self.unary:
            return 1
        if name in self.binary:
            return 2
        raise DataError(f"{name} is not a predicate of one or two entities, and only those can be explained")

    def step_operator(self, name: str, *, inverse: bool = False) -> int:
        """Return the operator that walks a relation."""
        return operator_of_step(encode_step(self.binary.index(name), inverse))

    def invert_operator(self, operator: int) -> int:
        """Return the operator that walks the other way; a filter is its own inverse."""
        return operator if self.is_filter(operator) else operator_of_step(invert_step(step_of_operator(operator)))

    def mark(self, name: str) -> int:
        """Return the mark of a unary predicate."""
        return 1 + self.unary.index(name)

    def filter_operator(self, mark: int) -> int:
        """Return the operator that stays where an entity has a mark (from 1)."""
        return self.n_steps + mark

    def is_filter(self, operator: int) -> bool:
        """Whether an operator is a filter."""
        return operator > self.n_steps

    def filter_mark(self, operator: int) -> int:
        """Return the mark that a filter asks for."""
        return operator - self.n_steps

    def mark_name(self, mark: int) -> str:
        """Return the unary predicate of a mark (from 1)."""
        return self.unary[mark - 1]


@dataclass(frozen=True)
class StatementCodes:
    """Integer codes of the statements about one argument or about two.

    About one: its marks. About two: the steps from the first to the second, then the marks of what the first reaches,
    then those of what the second reaches.
    """

    arity: int
    vocabulary: Vocabulary

    def __len__(self) -> int:
        marks = self.arity * self.vocabulary.n_marks
        return marks if self.arity == 1 else self.vocabulary.n_steps + marks

    def mark_statement(self, side: int, mark: int = ANYTHING) -> int:
        """Return the statement that an entity reached from an argument (side 0 or 1) has a mark."""
        return mark if self.arity == 1 else self.vocabulary.n_steps + side * self.vocabulary.n_marks + mark

    def decode(self, statement: int) -> tuple[Literal["step", "left", "right"], int]:
        """Return ``("step", operator)``, or ``("left", mark)`` or ``("right", mark)``.

        >>> vocabulary = Vocabulary(("p", "q"), ("a", "b"))
        >>> StatementCodes(2, vocabulary).decode(1), StatementCodes(2, vocabulary).decode(8)
        (('step', 2), ('right', 1))
        """
        if self.arity == 1:
            return "left", statement
        if statement < self.vocabulary.n_steps:
            return "step", operator_of_step(statement)
        side, mark = divmod(statement - self.vocabulary.n_steps, self.vocabulary.n_marks)
        return ("right" if side else "left"), mark

    def of_target(self, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the operators and the statements that use facts of a predicate of this arity itself.

        >>> StatementCodes(2, Vocabulary(("p", "q"), ("a",))).of_target("q")
        ((3, 4), (2, 3))
        """
        if self.arity == 1:
            mark = self.vocabulary.mark(name)
            return (self.vocabulary.filter_operator(mark),), (mark,)
        operators = self.vocabulary.step_operator(name), self.vocabulary.step_operator(name, inverse=True)
        return operators, tuple(map(step_of_operator, operators))


@dataclass(frozen=True)
class HiddenFacts:
    """Facts that a question may not use: marks of its entity, or the step between its entities, in both directions.

    ``step`` walks the hidden relation forwards.
    """

    marks: tuple[int, ...] = ()
    step: int | None = None


class FactGraph:
    """All facts of one and two entities, by the entity they leave from.

    >>> kb = KnowledgeBase.from_facts([("succ", "a", "b"), ("zero", "a")])
    >>> graph = FactGraph(kb)
    >>> [column.tolist() for column in graph.steps_from(np.array([0, 1]))]  # a —succ→ b, b —succ⁻¹→ a
    [[0, 1], [1, 2], [1, 0]]
    >>> [column.tolist() for column in graph.marks_of(np.array([0, 1]))]
    [[0], [1]]
    """

    def __init__(self, kb: KnowledgeBase, vocabulary: Vocabulary | None = None) -> None:
        self.kb = kb
        self.vocabulary = Vocabulary.from_facts(kb) if vocabulary is None else vocabulary
        self.n_entities = kb.n_entities
        relation, head, tail = _select_facts(kb, "ee", self.vocabulary.binary)
        step = np.concatenate([encode_step(relation), encode_step(relation, inverse=True)])
        start, end = np.concatenate([head, tail]), np.concatenate([tail, head])
        order = np.lexsort((end, step, start))
        self._pointers = np.searchsorted(start[order], np.arange(self.n_entities + 1))
        self._operator, self._end = operator_of_step(step[order]), end[order]
        unary, entity = _select_facts(kb, "e", self.vocabulary.unary)
        order = np.lexsort((unary, entity))
        self._mark_pointers = np.searchsorted(entity[order], np.arange(self.n_entities + 1))
        self._mark = 1 + unary[order]

    def steps_from(
        self, entities: Ids, most: int | None = None, random: np.random.Generator | None = None
    ) -> tuple[Ids, Ids, Ids]:
        """Return the steps that leave entities: the position of the entity, the operator and the end.

        Where ``most`` is given, about so many of the steps of an entity that has more are drawn at random.
        """
        source, edge = _expand(self._pointers, entities)
        counts = self._pointers[entities + 1] - self._pointers[entities]
        if most is not None and len(counts) and counts.max() > most:
            assert random is not None
            keep = random.random(len(edge)) * counts[source] < most
            source, edge = source[keep], edge[keep]
        return source, self._operator[edge], self._end[edge]

    def marks_of(self, entities: Ids) -> tuple[Ids, Ids]:
        """Return the marks that entities have: the position of the entity and the mark, from 1."""
        source, row = _expand(self._mark_pointers, entities)
        return source, self._mark[row]

    def fact_step(self, operator: int) -> int:
        """Return the step that an operator walks, by the predicate indices of the knowledge base."""
        step = step_of_operator(operator)
        return encode_step(self.kb.predicate_index(self.vocabulary.binary[step_relation(step)]), is_inverse(step))


def _expand(pointers: Ids, entities: Ids) -> tuple[Ids, Ids]:
    """Return the rows of entities, each with the position of its entity."""
    first = pointers[entities]
    counts = pointers[entities + 1] - first
    return np.repeat(np.arange(len(entities)), counts), expand_ranges(first, counts)


def _select_facts(kb: KnowledgeBase, facts_signature: str, names: tuple[str, ...]) -> tuple[Ids, ...]:
    """Return the facts of some predicates of one signature: the position of the predicate, and the arguments."""
    table: FactTable | None = kb.tables().get(facts_signature)
    if table is None:
        return tuple(np.zeros(0, dtype=np.int64) for _ in range(1 + len(facts_signature)))
    position_of = np.full(len(kb.predicates), -1, dtype=np.int64)
    position_of[[kb.predicate_index(name) for name in names]] = np.arange(len(names))
    position = position_of[table.predicate]
    keep = position >= 0
    return position[keep], *(column[keep].astype(np.int64) for column in table.columns)
