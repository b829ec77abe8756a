"""Facts as a layer takes them: dense tensors over the entities of a world, or over a sample of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder, Value
from rulewright.data.facts import Column, distinct_rows
from rulewright.data.index import Ids, SortedRows
from rulewright.errors import DataError, unknown_name
from rulewright.inject.atom_space import infer_declarations, statement_formulas
from rulewright.inject.inputs import Observation
from rulewright.logic import (
    NUMBER_TYPE,
    Atom,
    Comparison,
    Membership,
    PredicateDeclaration,
    RuleSet,
    Statement,
    Symbol,
    Variable,
    parse_formula,
    units,
)

Members = Mapping[str, Column]
"""For each type the ids of some of its entities, in order."""


def declare_types(rules: RuleSet, kb: KnowledgeBase) -> RuleSet:
    """Return the statements with the types of a knowledge base's predicates, which must agree with those declared.

    Where the knowledge base has one type only, as triples do, all arguments are of it.
    """
    declared = dict(kb.predicates)
    only_type = next(iter(kb.domains)) if len(kb.domains) == 1 else None
    for declaration in rules.predicates:
        name, arity = declaration.name, declaration.arity
        known = declared.get(name)
        if known is None:
            types = declaration.types if only_type is None else (only_type,) * arity
            declared[name] = PredicateDeclaration(name, types, declaration.classes)
        elif (
            known.arity != arity
            or known.classes != declaration.classes
            or (only_type is None and known.types != declaration.types)
        ):
            raise DataError(f"the rules declare {declaration} but the facts have {known}")
    for atom in (atom for statement in rules for atom in statement_atoms(statement)):
        if only_type is not None and str(atom.predicate) not in declared:
            declared[str(atom.predicate)] = PredicateDeclaration(str(atom.predicate), (only_type,) * len(atom.args))
    return RuleSet(rules.statements, predicates=declared.values())


def statement_atoms(statement: Statement) -> Iterator[Atom | Membership]:
    """Yield the atoms of what a statement says."""
    for formula in statement_formulas(statement):
        for unit in units(formula):
            if not isinstance(unit, Comparison):
                yield unit


class GroundFacts:
    """The facts of a knowledge base, cut to any entities, with some predicates read as closed.

    ``declared`` are all predicates that can be asked for, ``used`` those of the rules, ``constants`` the entities that
    the rules name, by type.
    """

    def __init__(self, kb: KnowledgeBase, rules: RuleSet) -> None:
        self.kb, self.rules = kb, rules
        self.closed: frozenset[str] = frozenset()
        self._sorted: dict[str, tuple[SortedRows, Ids]] = {}
        formulas = [formula for statement in rules for formula in statement_formulas(statement)]
        known = infer_declarations(formulas, rules.predicates)
        atoms = [atom for statement in rules for atom in statement_atoms(statement)]
        self.used = frozenset(str(atom.predicate) for atom in atoms)
        for name in sorted(self.used):
            declaration = known[name]
            if NUMBER_TYPE in declaration.types:
                raise DataError(f"{declaration} has numbers; MarkovLogic is for predicates of entities")
            for type_name in declaration.types:
                if not len(kb.domains.get(type_name, ())):
                    raise DataError(
                        f"type {type_name} of {declaration} has no entities; types of the facts: "
                        f"{', '.join(kb.domains)} (declare in the rules which of them {name} takes)"
                    )
        inhabited = {type_name for type_name, domain in kb.domains.items() if len(domain)} - {NUMBER_TYPE}
        self.declared = {
            name: declaration for name, declaration in known.items() if inhabited.issuperset(declaration.types)
        }
        self.constants: dict[str, set[int]] = {}
        for atom in atoms:
            for term, type_name in zip(atom.args, known[str(atom.predicate)].types, strict=True):
                if not isinstance(term, Variable):
                    label = term.name if isinstance(term, Symbol) else str(term)
                    self.constants.setdefault(type_name, set()).add(kb.domains[type_name].index_of(label))

    def declaration(self, name: str) -> PredicateDeclaration:
        """Return a predicate that can be asked for; refuse any other."""
        if name not in self.declared:
            raise unknown_name("predicate", name, self.declared)
        return self.declared[name]

    def close(self, names: Iterable[str]) -> None:
        """Read predicates as closed: their atoms that are not observed are false."""
        self.closed = frozenset(self.declaration(name).name for name in names)
        for name in self.closed:
            if self.declared[name].classes is not None:
                raise DataError(f"{self.declared[name]} has classes, so what is not observed of it is not false")

    def listed_predicates(self) -> list[str]:
        """Return the predicates without classes with true facts and none observed to be false."""
        return [
            name
            for name, declaration in self.declared.items()
            if declaration.classes is None and self.count(name, truth=True) and not self.count(name, truth=False)
        ]

    def observed_predicates(self) -> list[str]:
        """Return the predicates of the rules that some fact, true or false, is known of."""
        return [name for name in self.declared if name in self.used and self.count(name)]

    def count(self, name: str, *, truth: bool | None = None) -> int:
        """Return how many facts of a predicate are known, true, false or either."""
        truths = (True, False) if truth is None else (truth,)
        return sum(self.kb.count(name, truth=value) for value in truths) if name in self.kb.predicates else 0

    def known(self, name: str) -> tuple[tuple[Column, ...], Column]:
        """Return all observed atoms of a predicate as columns of ids, and their classes: 1 for true, 0 for false."""
        if name not in self.kb.predicates:
            return tuple(np.empty(0, dtype=np.int32) for _ in self.declared[name].types), np.empty(0, dtype=np.int64)
        if self.declared[name].classes is not None:
            *columns, classes = self.kb.columns(name)
            return tuple(columns), classes.astype(np.int64)
        true, false = self.kb.columns(name), self.kb.columns(name, truth=False)
        values = np.repeat([1, 0], [len(true[0]), len(false[0])])
        return tuple(np.concatenate(pair) for pair in zip(true, false, strict=True)), values

    def states(self, name: str, columns: Sequence[Column]) -> Ids:
        """Return the class of each of some atoms, 1 for true and 0 for false, and −1 where it is not observed."""
        absent = 0 if name in self.closed else -1
        if name not in self._sorted:
            known, values = self.known(name)
            rows = SortedRows(known)
            self._sorted[name] = rows, values[rows.order].astype(np.int64)
        rows, values = self._sorted[name]
        found = rows.find([np.asarray(column, dtype=np.int64) for column in columns])
        return np.where(found >= 0, values[found], absent) if len(values) else np.full(len(found), absent)

    def count_atoms(self, name: str, members: Members) -> int:
        """Return how many atoms a predicate has over some entities."""
        return prod(len(members[type_name]) for type_name in self.declared[name].types)

    def worlds(self) -> list[Members]:
        """Return the entities of every world, or of the only one."""
        types = dict.fromkeys(type_name for declaration in self.declared.values() for type_name in declaration.types)
        indices: list[int | None] = [*range(len(self.kb.worlds))] or [None]
        return [{type_name: self.kb.domains[type_name].members(index) for type_name in types} for index in indices]

    def find_rows(
        self, name: str, columns: Sequence[Column], members: Members
    ) -> tuple[tuple[Tensor, ...], npt.NDArray[np.bool_]]:
        """Return which rows of a predicate's atoms are of some entities, and where these stand among them."""
        positions = []
        inside = np.ones(len(columns[0]), dtype=bool)
        for column, type_name in zip(columns, self.declared[name].types, strict=False):
            ids = members[type_name]
            position = np.searchsorted(ids, column)
            is_member = position < len(ids)
            is_member[is_member] = ids[position[is_member]] == column[is_member]
            positions.append(position)
            inside &= is_member
        return tuple(torch.from_numpy(position[inside]) for position in positions), inside

    def dense(self, name: str, members: Members) -> tuple[Tensor, Tensor]:
        """Return a predicate as (value, observed) over some entities; a closed one is observed everywhere.

        Values are truth values, or class indices where the predicate has classes.
        """
        declaration = self.declared[name]
        shape = [len(members[type_name]) for type_name in declaration.types]
        value = torch.zeros(shape, dtype=torch.bool if declaration.classes is None else torch.long)
        observed = torch.full(shape, name in self.closed, dtype=torch.bool)
        columns, values = self.known(name)
        index, inside = self.find_rows(name, columns, members)
        observed[index] = True
        value[index] = torch.from_numpy(values[inside]).to(value.dtype)
        return value, observed

    def evidence(self, members: Members) -> dict[str, Observation]:
        """Return what is observed of the predicates of the rules, as a layer takes it."""
        evidence: dict[str, Observation] = {}
        for name in self.declared:
            if name not in self.used:
                continue
            value, observed = self.dense(name, members)
            if name in self.closed:
                evidence[name] = value
            elif bool(observed.any()):
                evidence[name] = (value, observed)
        return evidence


def find_crossing(kb: KnowledgeBase, columns: Sequence[Column]) -> Ids:
    """Return which rows of columns of ids name entities of different worlds."""
    if kb.entity_worlds is None:
        return np.empty(0, dtype=np.int64)
    worlds = np.stack([kb.entity_worlds[column] for column in columns])
    lowest = np.where(worlds < 0, len(kb.worlds), worlds).min(axis=0)
    return np.flatnonzero(worlds.max(axis=0) > lowest)


Query = str | Atom | Sequence[Value]
Queries = KnowledgeBase | Iterable[Query]


def read_queries(facts: GroundFacts, queries: Queries) -> dict[str, tuple[Column, ...]]:
    """Return the atoms asked for as columns of ids, by predicate, each atom once.

    Where a predicate has classes, the last column says of which of them: of all, where none is named.
    """
    if isinstance(queries, KnowledgeBase):
        columns = _read_knowledge_base(facts, queries)
    else:
        columns = _read_atoms(facts, [queries] if isinstance(queries, str) else queries)
    distinct = {name: distinct_rows(ids) for name, ids in columns.items() if len(ids[0])}
    if not distinct:
        raise DataError("there are no queries; give a knowledge base, atoms such as 'smokes(ann)', or predicates")
    return distinct


def _read_knowledge_base(facts: GroundFacts, queries: KnowledgeBase) -> dict[str, tuple[Column, ...]]:
    """Take true and false facts alike: which is which is not looked at."""
    domains = facts.kb.domains
    has_same_ids = all(domains.get(type_name) is domain for type_name, domain in queries.domains.items())
    queried = {}
    for name, declaration in queries.predicates.items():
        if not (queries.count(name) + queries.count(name, truth=False)):
            continue
        types = _check_arity(facts, name, declaration.arity)
        both = zip(queries.columns(name), queries.columns(name, truth=False), strict=True)
        columns = [np.concatenate(pair) for pair in both][: len(types)]
        if not has_same_ids:
            columns = [
                _find_ids(facts, type_name, queries.domains[other_type].labels_of(column))
                for type_name, other_type, column in zip(types, declaration.types, columns, strict=True)
            ]
        # True ones would stand before false ones; where scores are equal, their order must not tell them apart
        order = np.lexsort(columns[::-1])
        queried[name] = _with_classes(facts, name, tuple(column[order] for column in columns))
    return queried


def _with_classes(facts: GroundFacts, name: str, columns: tuple[Column, ...]) -> tuple[Column, ...]:
    """Return atoms once for each class, where their predicate has classes, with a column that says which."""
    classes = facts.declared[name].classes
    if classes is None:
        return columns
    every = np.tile(np.arange(len(classes), dtype=np.int32), len(columns[0]))
    return *(np.repeat(column, len(classes)) for column in columns), every


def _read_atoms(facts: GroundFacts, queries: Iterable[Query]) -> dict[str, tuple[Column, ...]]:
    rows: dict[str, list[tuple[str, ...]]] = {}
    queried: dict[str, tuple[Column, ...]] = {}
    for query in queries:
        if isinstance(query, str) and "(" not in query:
            queried[query] = _with_classes(facts, query, _unobserved_atoms(facts, query))
            continue
        name, labels, named = _read_atom(query)
        classes = facts.declaration(name).classes
        if classes is not None and named is None and len(labels) == facts.declared[name].arity + 1:
            labels, named = labels[:-1], labels[-1:]  # as `KnowledgeBase.tuples` has them
        _check_arity(facts, name, len(labels))
        if classes is None and named is not None:
            raise DataError(f"{name} has no classes, a query asks for {', '.join(named)}")
        for class_name in named if named is not None else classes or ("",):
            rows.setdefault(name, []).append((*labels, class_name))
    for name, lines in rows.items():
        *by_argument, asked = zip(*lines, strict=True)
        declaration = facts.declared[name]
        columns = tuple(
            _find_ids(facts, type_name, labels)
            for type_name, labels in zip(declaration.types, by_argument, strict=True)
        )
        if declaration.classes is not None:
            known = {class_name: index for index, class_name in enumerate(declaration.classes)}
            for class_name in asked:
                if class_name not in known:
                    raise unknown_name(f"class of {name}", class_name, declaration.classes)
            columns = *columns, np.array([known[class_name] for class_name in asked], dtype=np.int32)
        if name in queried:
            columns = tuple(map(np.concatenate, zip(queried[name], columns, strict=True)))
        queried[name] = columns
    return queried


def _read_atom(query: Query) -> tuple[str, tuple[str, ...], tuple[str, ...] | None]:
    """Return the predicate of a query, the labels of its arguments, and the classes that it names, if any."""
    classes = None
    if isinstance(query, str):
        asked = parse_formula(query)
        if isinstance(asked, Membership):
            classes = asked.classes
            asked = asked.atom
        if not isinstance(asked, Atom):
            raise DataError(f"a query is an atom such as smokes(ann), got: {query}")
        query = asked
    if not isinstance(query, Atom):
        name, *args = query
        return str(name), tuple(map(str, args)), None
    for term in query.args:
        if isinstance(term, Variable):
            raise DataError(f"{term} is a variable in {query}; a name that starts upper-case is quoted: '{term}'")
    labels = tuple(term.name if isinstance(term, Symbol) else str(term) for term in query.args)
    return str(query.predicate), labels, classes


def _check_arity(facts: GroundFacts, name: str, arity: int) -> tuple[str, ...]:
    declaration = facts.declaration(name)
    if declaration.arity != arity:
        raise DataError(f"{name} has {declaration.arity} arguments, a query gives it {arity}")
    return declaration.types


def _find_ids(facts: GroundFacts, type_name: str, labels: Iterable[object]) -> Column:
    domain = facts.kb.domains[type_name]
    return np.array([domain.index_of(str(label)) for label in labels], dtype=np.int32)


def _unobserved_atoms(facts: GroundFacts, name: str) -> tuple[Column, ...]:
    """Return all atoms of a predicate that are not observed, world by world."""
    types = facts.declaration(name).types
    parts = []
    for members in facts.worlds():
        _, observed = facts.dense(name, members)
        positions = np.nonzero(~observed.numpy())
        parts.append([members[type_name][position] for type_name, position in zip(types, positions, strict=True)])
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def add_query_entities(kb: KnowledgeBase, queries: Queries) -> KnowledgeBase:
    """Return a knowledge base with the entities of a knowledge base of queries besides its own.

    >>> kb = KnowledgeBase.from_facts([("smokes", "ann")])
    >>> add_query_entities(kb, KnowledgeBase.from_facts([("smokes", "bob")])).domains["entity"].labels.tolist()
    ['ann', 'bob']
    """
    if not isinstance(queries, KnowledgeBase):
        return kb
    named = _name_entities(kb, queries)
    missing = [
        (type_name, label)
        for type_name, labels in named.items()
        for label in labels
        if type_name not in kb.domains or label not in kb.domains[type_name]
    ]
    if not missing:
        return kb
    if kb.worlds:
        raise DataError(f"the queries name the {missing[0][0]} {missing[0][1]!r}, which no world of the facts has")
    builder = KnowledgeBaseBuilder(kb.predicates.values())
    for name, declaration in queries.predicates.items():
        if name not in kb.predicates:
            builder.declare(declaration)
    for type_name, domain in kb.domains.items():
        for label in domain.labels.tolist():
            builder.entity(label, type=type_name)
    for type_name, label in missing:
        builder.entity(label, type=type_name)
    for name in kb.closed:
        builder.close(name)
    for truth in (True, False):
        for name, args in kb.facts(truth=truth):
            if kb.predicates[name].classes is None:
                builder.add(name, args, truth=truth)
            else:
                builder.add(name, args[:-1], value=str(args[-1]))
    return builder.build()


def _name_entities(kb: KnowledgeBase, queries: KnowledgeBase) -> dict[str, list[str]]:
    """Return the entities that queries name, by the types that their predicates have among the facts, or else there."""
    named: dict[str, dict[str, None]] = {}
    for name, declaration in queries.predicates.items():
        known = kb.predicates.get(name)
        types = known.types if known is not None and known.arity == declaration.arity else declaration.types
        true, false = queries.columns(name), queries.columns(name, truth=False)
        for type_name, own_type, *columns in zip(types, declaration.types, true, false, strict=False):
            labels = queries.domains[own_type].labels_of(np.unique(np.concatenate(columns)))
            named.setdefault(type_name, {}).update(dict.fromkeys(labels.tolist()))
    return {type_name: [*labels] for type_name, labels in named.items()}
