"""Facts by the entities they name, and by pattern: what a page looks up must not scan a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, Value, signature
from rulewright.data.facts import Column
from rulewright.errors import DataError
from rulewright.logic import NUMBER_TYPE, Atom, Membership, Number, Term, Variable
from rulewright.reason import Inferred


@dataclass(frozen=True)
class Found:
    """A fact: its score, None where it is known and not inferred."""

    predicate: str
    args: tuple[Value, ...]
    score: float | None = None

    @property
    def known(self) -> bool:
        """Whether the fact stands in the data."""
        return self.score is None


@dataclass(frozen=True)
class Bundle:
    """Facts of one predicate about an entity, the best of ``total``.

    ``outgoing`` tells whether the entity stands at the start of the arrow or at its end; None where there is no arrow.
    """

    predicate: str
    outgoing: bool | None
    facts: tuple[Found, ...]
    total: int


@dataclass(frozen=True)
class _Part:
    """The facts of one predicate; a score each where they are inferred."""

    columns: tuple[Column, ...]
    scores: npt.NDArray[np.float64] | None


class FactLookup:
    """The facts of a knowledge base, or those that rules gave.

    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> index = FactLookup.of(kb)
    >>> [(each.outgoing, each.facts[0].args) for each in index.around(kb.domains["entity"].index_of("bob"), each=5)]
    [(True, ('bob', 'cid')), (False, ('ann', 'bob'))]
    """

    def __init__(self, kb: KnowledgeBase, parts: Mapping[str, _Part]) -> None:
        self.kb = kb
        self._parts = dict(parts)
        self._by_entity = self._mentions()

    @classmethod
    def of(cls, kb: KnowledgeBase) -> FactLookup:
        """Index the known facts."""
        return cls(kb, {name: _Part(kb.columns(name), None) for name in kb.predicates})

    @classmethod
    def of_inferred(cls, inferred: Inferred) -> FactLookup:
        """Index facts that rules gave, with their scores."""
        given = inferred.facts.predicates
        found = {name: inferred.columns(name) for name in given if inferred.facts.count(name)}
        return cls(inferred.kb, {name: _Part(*columns) for name, columns in found.items()})

    def __len__(self) -> int:
        return sum(len(part.columns[0]) for part in self._parts.values())

    def _mentions(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Every mention of an entity, in the order of entities: (entity, number of the predicate, row)."""
        entities, predicates, rows = [], [], []
        for number, (name, part) in enumerate(self._parts.items()):
            declared = self.kb.predicate(name)
            for kind, column in zip(declared.types, part.columns, strict=False):
                if kind != NUMBER_TYPE:
                    entities.append(column.astype(np.int32, copy=False))
                    predicates.append(np.full(len(column), number, dtype=np.int32))
                    rows.append(np.arange(len(column)))
        empty = np.empty(0, dtype=np.int32)
        entity = np.concatenate([empty, *entities])
        order = np.argsort(entity, kind="stable")
        return (
            entity[order],
            np.concatenate([empty, *predicates])[order],
            np.concatenate([np.empty(0, dtype=np.int64), *rows])[order],
        )

    def around(self, entity: int, *, each: int, min_score: float = 0.0) -> list[Bundle]:
        """Return what is said about an entity, predicate by predicate, of each the ``each`` best facts."""
        entities, predicates, rows = self._by_entity
        start, stop = np.searchsorted(entities, np.array([entity, entity + 1], dtype=entities.dtype))
        names = [*self._parts]
        found: list[Bundle] = []
        for number in np.unique(predicates[start:stop]).tolist():
            name = names[number]
            here = np.unique(rows[start:stop][predicates[start:stop] == number])
            scores = self._parts[name].scores
            if scores is not None:
                here = here[scores[here] >= min_score]
            if not is_relation(name, self.kb):
                found.append(Bundle(name, None, tuple(self._facts(name, here, each)), len(here)))
                continue
            away = self._parts[name].columns[0][here] == entity
            for outgoing, chosen in ((True, here[away]), (False, here[~away])):
                if len(chosen):
                    found.append(Bundle(name, outgoing, tuple(self._facts(name, chosen, each)), len(chosen)))
        return found

    def most_mentioned(self) -> int | None:
        """Return the entity that most facts name, None where there are no facts."""
        entities = self._by_entity[0]
        return int(np.bincount(entities).argmax()) if len(entities) else None

    def matching(self, pattern: Atom | Membership, limit: int) -> tuple[list[Found], int]:
        """Return the ``limit`` best facts that match a pattern, and how many there are."""
        name = str(pattern.predicate)
        part = self._parts.get(name)
        if part is None:
            return [], 0
        rows = np.flatnonzero(self._matches(pattern, part))
        return self._facts(name, rows, limit), len(rows)

    def _matches(self, pattern: Atom | Membership, part: _Part) -> npt.NDArray[np.bool_]:
        declaration = self.kb.predicate(str(pattern.predicate))
        keep = np.ones(len(part.columns[0]), dtype=bool)
        places: dict[Variable, Column] = {}
        for term, kind, column in zip(pattern.args, declaration.types, part.columns, strict=False):
            if isinstance(term, Variable):
                keep &= column == places.setdefault(term, column)
            else:
                keep &= column == self._code(term, kind)
        if isinstance(pattern, Membership):
            classes = declaration.classes or ()
            keep &= np.isin(part.columns[-1], [classes.index(each) for each in pattern.classes if each in classes])
        return keep

    def _code(self, term: Term, kind: str) -> float:
        if isinstance(term, Number) != (kind == NUMBER_TYPE):
            raise DataError(f"{term} must be {'a number' if kind == NUMBER_TYPE else f'a name of type {kind}'}")
        if isinstance(term, Number):
            return float(term.value)
        found = self.kb.domains[kind].find(getattr(term, "name", ""))
        return -1 if found is None else found

    def _facts(self, name: str, rows: npt.NDArray[np.int64], limit: int | None = None) -> list[Found]:
        part = self._parts[name]
        if part.scores is not None:
            rows = rows[np.argsort(-part.scores[rows], kind="stable")]
        rows = rows[:limit]
        labels = self.kb.label_rows(name, [column[rows] for column in part.columns])
        scores: Sequence[float | None] = [None] * len(rows) if part.scores is None else part.scores[rows].tolist()
        return [Found(name, args, score) for args, score in zip(labels, scores, strict=True)]


def is_relation(name: str, kb: KnowledgeBase) -> bool:
    """Tell whether a predicate joins two entities, so that a picture can show it as an arrow."""
    return signature(kb.predicate(name)) == "ee"
