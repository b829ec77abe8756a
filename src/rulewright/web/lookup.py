"""Facts by the entities they name and by pattern, and an entity among its neighbours, without a scan of the graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, Value, signature
from rulewright.data.facts import Column
from rulewright.data.vocabulary import MOST_COMPARED
from rulewright.errors import DataError, UnknownNameError, unknown_name
from rulewright.logic import NUMBER_TYPE, Atom, Head, Membership, Number, Symbol, Variable, parse_formula, quote
from rulewright.reason import Inferred


@dataclass(frozen=True)
class FoundFact:
    """A fact; ``score`` is None where it is known and not inferred."""

    predicate: str
    args: tuple[Value, ...]
    score: float | None = None

    @property
    def is_known(self) -> bool:
        """Whether the fact stands in the data."""
        return self.score is None

    def atom(self, kb: KnowledgeBase) -> Head:
        """Return the fact as an atom, with its class where the predicate has classes."""
        classes = kb.predicate(self.predicate).classes
        values = self.args if classes is None else self.args[:-1]
        atom = Atom(
            self.predicate, tuple(Symbol(value) if isinstance(value, str) else Number(value) for value in values)
        )
        return atom if classes is None else Membership(atom, (str(self.args[-1]),))


@dataclass(frozen=True)
class FactBundle:
    """The best of ``total`` facts of one predicate about an entity.

    ``outgoing`` is whether the entity stands at the start of the arrow or at its end; None where there is no arrow.
    """

    predicate: str
    outgoing: bool | None
    facts: tuple[FoundFact, ...]
    total: int


@dataclass(frozen=True)
class _PredicateFacts:
    """The facts of one predicate; a score each where they are inferred."""

    columns: tuple[Column, ...]
    scores: npt.NDArray[np.float64] | None


class FactLookup:
    """The facts of a knowledge base, or those that rules gave.

    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> bundles = FactLookup.from_kb(kb).find_around(kb.domains["entity"].index_of("bob"), limit=5)
    >>> [(bundle.outgoing, bundle.facts[0].args) for bundle in bundles]
    [(True, ('bob', 'cid')), (False, ('ann', 'bob'))]
    """

    def __init__(self, kb: KnowledgeBase, facts: Mapping[str, _PredicateFacts]) -> None:
        self.kb = kb
        self._facts = dict(facts)
        self._mentions = self._index_mentions()

    @classmethod
    def from_kb(cls, kb: KnowledgeBase) -> FactLookup:
        """Index the known facts."""
        return cls(kb, {name: _PredicateFacts(kb.columns(name), None) for name in kb.predicates})

    @classmethod
    def from_inferred(cls, inferred: Inferred) -> FactLookup:
        """Index facts that rules gave, with their scores."""
        names = [name for name in inferred.facts.predicates if inferred.facts.count(name)]
        return cls(inferred.kb, {name: _PredicateFacts(*inferred.columns(name)) for name in names})

    def __len__(self) -> int:
        return sum(len(facts.columns[0]) for facts in self._facts.values())

    def _index_mentions(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Return every mention of an entity, in the order of entities: (entity, position of the predicate, row)."""
        entities, predicates, rows = [np.empty(0, np.int32)], [np.empty(0, np.int32)], [np.empty(0, np.int64)]
        for position, (name, facts) in enumerate(self._facts.items()):
            for type_name, column in zip(self.kb.predicate(name).types, facts.columns, strict=False):
                if type_name != NUMBER_TYPE:
                    entities.append(column.astype(np.int32, copy=False))
                    predicates.append(np.full(len(column), position, dtype=np.int32))
                    rows.append(np.arange(len(column)))
        entity = np.concatenate(entities)
        order = np.argsort(entity, kind="stable")
        return entity[order], np.concatenate(predicates)[order], np.concatenate(rows)[order]

    def find_around(self, entity_index: int, *, limit: int, min_score: float = 0.0) -> list[FactBundle]:
        """Return what is said about an entity, predicate by predicate, of each the ``limit`` best facts."""
        entities, predicates, rows = self._mentions
        start, stop = np.searchsorted(entities, np.array([entity_index, entity_index + 1], dtype=entities.dtype))
        names = [*self._facts]
        bundles: list[FactBundle] = []
        for position in np.unique(predicates[start:stop]).tolist():
            name = names[position]
            mentioning = np.unique(rows[start:stop][predicates[start:stop] == position])
            scores = self._facts[name].scores
            if scores is not None:
                mentioning = mentioning[scores[mentioning] >= min_score]
            if signature(self.kb.predicate(name)) != "ee":
                bundles.append(FactBundle(name, None, self._read_facts(name, mentioning, limit), len(mentioning)))
                continue
            is_first = self._facts[name].columns[0][mentioning] == entity_index
            for outgoing, chosen in ((True, mentioning[is_first]), (False, mentioning[~is_first])):
                if len(chosen):
                    bundles.append(FactBundle(name, outgoing, self._read_facts(name, chosen, limit), len(chosen)))
        return bundles

    def most_mentioned(self) -> int | None:
        """Return the index of the entity that most facts name, None where there are no facts."""
        entities = self._mentions[0]
        return int(np.bincount(entities).argmax()) if len(entities) else None

    def find_matching(self, pattern: Head, limit: int) -> tuple[tuple[FoundFact, ...], int]:
        """Return the ``limit`` best facts that match a pattern, as `read_pattern` gives it, and how many there are."""
        name = str(pattern.predicate)
        if name not in self._facts:
            return (), 0
        columns, declaration = self._facts[name].columns, self.kb.predicate(name)
        matches = np.ones(len(columns[0]), dtype=bool)
        first_columns: dict[Variable, Column] = {}
        for term, type_name, column in zip(pattern.args, declaration.types, columns, strict=False):
            if isinstance(term, Variable):
                matches &= column == first_columns.setdefault(term, column)
            elif isinstance(term, Number):
                matches &= column == float(term.value)
            else:
                entity_index = self.kb.domains[type_name].find(getattr(term, "name", ""))
                matches &= column == (-1 if entity_index is None else entity_index)
        if isinstance(pattern, Membership):
            classes = declaration.classes or ()
            matches &= np.isin(columns[-1], [classes.index(value) for value in pattern.classes if value in classes])
        rows = np.flatnonzero(matches)
        return self._read_facts(name, rows, limit), len(rows)

    def _read_facts(self, name: str, rows: npt.NDArray[np.int64], limit: int) -> tuple[FoundFact, ...]:
        facts = self._facts[name]
        if facts.scores is not None:
            rows = rows[np.argsort(-facts.scores[rows], kind="stable")]
        rows = rows[:limit]
        labels = self.kb.label_rows(name, [column[rows] for column in facts.columns])
        scores: Sequence[float | None] = [None] * len(rows) if facts.scores is None else facts.scores[rows].tolist()
        return tuple(FoundFact(name, args, score) for args, score in zip(labels, scores, strict=True))


@dataclass(frozen=True)
class Neighbour:
    """An entity at the other end of a fact; ``score`` is None where the fact is known."""

    type: str
    name: str
    score: float | None


@dataclass(frozen=True)
class RelationGroup:
    """The neighbours by one relation, away from the entity or towards it; ``total`` counts those left out too."""

    relation: str
    outgoing: bool
    neighbours: tuple[Neighbour, ...]
    total: int

    @property
    def hidden(self) -> int:
        """How many are left out."""
        return self.total - len(self.neighbours)


@dataclass(frozen=True)
class Neighbourhood:
    """An entity, its neighbours by relation, and the facts that are no arrows: of one, three or more arguments."""

    type: str
    name: str
    groups: tuple[RelationGroup, ...]
    others: tuple[FoundFact, ...]
    known: int
    inferred: int
    hidden_groups: int = 0
    hidden_others: int = 0


def arrange_neighbourhood(
    kb: KnowledgeBase,
    type_name: str,
    name: str,
    bundles: Sequence[FactBundle],
    *,
    per_relation: int,
    relations: int,
    skip: int,
    containing: str,
) -> Neighbourhood:
    """Group facts about an entity by relation and direction, known ones before inferred ones.

    At most ``per_relation`` neighbours of a relation and ``relations`` relations in a direction are kept, after the
    first ``skip``; a relation must contain the text ``containing``. Relations with known facts come first, then those
    with the best scores.
    """
    counts = {True: 0, False: 0}
    arrows: dict[tuple[str, bool], list[FactBundle]] = {}
    others: list[FactBundle] = []
    for bundle in bundles:
        counts[bundle.facts[0].is_known] += bundle.total
        if containing.casefold() not in bundle.predicate.casefold():
            continue
        if bundle.outgoing is None:
            others.append(bundle)
        else:
            arrows.setdefault((bundle.predicate, bundle.outgoing), []).append(bundle)
    groups: list[RelationGroup] = []
    hidden_groups = 0
    for side in (False, True):
        ranked = sorted((parts for (_, outgoing), parts in arrows.items() if outgoing == side), key=_rank_relation)
        hidden_groups += max(len(ranked) - skip - relations, 0)
        groups += [_group_neighbours(kb, parts, per_relation) for parts in ranked[skip : skip + relations]]
    facts = tuple(fact for bundle in others for fact in bundle.facts)
    hidden_others = sum(bundle.total for bundle in others) - len(facts)
    return Neighbourhood(
        type_name, name, tuple(groups), facts, counts[True], counts[False], hidden_groups, hidden_others
    )


def _rank_relation(bundles: Sequence[FactBundle]) -> tuple[bool, float, str]:
    best = max((fact.score or 0.0 for bundle in bundles for fact in bundle.facts), default=0.0)
    return not any(bundle.facts[0].is_known for bundle in bundles), -best, bundles[0].predicate


def _group_neighbours(kb: KnowledgeBase, bundles: Sequence[FactBundle], limit: int) -> RelationGroup:
    relation, other_end = bundles[0].predicate, 1 if bundles[0].outgoing else 0
    type_name = kb.predicate(relation).types[other_end]
    facts = sorted((fact for bundle in bundles for fact in bundle.facts), key=lambda fact: not fact.is_known)
    neighbours = tuple(Neighbour(type_name, str(fact.args[other_end]), fact.score) for fact in facts[:limit])
    return RelationGroup(relation, bool(other_end), neighbours, sum(bundle.total for bundle in bundles))


def name_entity(kb: KnowledgeBase, entity_index: int) -> tuple[str, str] | None:
    """Return type and name of an entity, None where there is no such index."""
    for type_name, domain in kb.domains.items():
        if domain.start <= entity_index < domain.start + len(domain):
            return type_name, str(domain.labels_of(entity_index))
    return None


def find_entity(kb: KnowledgeBase, name: str, type: str | None = None) -> tuple[str, int]:
    """Return type and index of an entity; an unknown name is an error with near ones.

    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob")])
    >>> find_entity(kb, "ann")
    ('entity', 0)
    >>> find_entity(kb, "anna")
    Traceback (most recent call last):
    ...
    rulewright.errors.UnknownNameError: unknown entity 'anna'; did you mean 'ann'?
    """
    domains = {type_name: domain for type_name, domain in kb.domains.items() if type in (None, type_name)}
    for type_name, domain in domains.items():
        if (entity_index := domain.find(name)) is not None:
            return type_name, entity_index
    if sum(map(len, domains.values())) > MOST_COMPARED:
        raise UnknownNameError(f"unknown entity {name!r}")
    raise unknown_name("entity", name, {str(label) for domain in domains.values() for label in domain.labels})


def read_pattern(text: str, kb: KnowledgeBase) -> Head:
    """Read one atom whose predicate and entities are known; its variables stand for what is looked for.

    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob")])
    >>> print(read_pattern("parent_of(X, bob)", kb))
    parent_of(X, bob)
    >>> read_pattern("parent_of(X)", kb)
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: parent_of has 2 arguments, got 1
    """
    pattern = parse_formula(text)
    if not isinstance(pattern, Atom | Membership):
        raise DataError(f"expected a pattern such as parent_of(X, ann), got {pattern}")
    declaration = kb.predicate(str(pattern.predicate))
    if declaration.arity != len(pattern.args):
        raise DataError(f"{declaration.name} has {declaration.arity} arguments, got {len(pattern.args)}")
    if declaration.classes is not None and isinstance(pattern, Atom):
        raise DataError(f"{declaration.name} has classes; write {pattern} in {{{quote(declaration.classes[0])}}}")
    if declaration.classes is None and isinstance(pattern, Membership):
        raise DataError(f"{declaration.name} has no classes; write {pattern.atom}")
    for term, type_name in zip(pattern.args, declaration.types, strict=True):
        if isinstance(term, Variable):
            continue
        if isinstance(term, Number) != (type_name == NUMBER_TYPE):
            raise DataError(f"{term} must be {'a number' if type_name == NUMBER_TYPE else 'a name; quote it'}")
        if isinstance(term, Symbol):
            find_entity(kb, term.name, type_name)
    return pattern
