"""Facts as a layer takes them: dense tensors over the entities of a world, or over a sample of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder, Value
from rulewright.data.facts import distinct_rows
from rulewright.errors import DataError, unknown_name
from rulewright.inject.layer.grounding import infer_declarations, statement_formulas
from rulewright.inject.layer.inputs import Observation
from rulewright.logic import (
    NUMBER_TYPE,
    Atom,
    Comparison,
    Formula,
    Membership,
    PredicateDeclaration,
    RuleSet,
    Statement,
    Symbol,
    Variable,
    parse_formula,
    units,
)

Ids = npt.NDArray[Any]
Members = Mapping[str, Ids]
"""For each type the ids of some of its entities, in order."""


def typed_rules(rules: RuleSet, kb: KnowledgeBase) -> RuleSet:
    """Return the statements with the types of a knowledge base's predicates, which must agree with those declared.

    Where the knowledge base has one type only, as triples do, all arguments are of it.
    """
    declared = dict(kb.predicates)
    single = next(iter(kb.domains)) if len(kb.domains) == 1 else None
    for each in rules.predicates:
        found = declared.get(each.name)
        if found is None:
            types = each.types if single is None else (single,) * each.arity
            declared[each.name] = PredicateDeclaration(each.name, types, each.classes)
        elif found.arity != each.arity or (single is None and found.types != each.types):
            raise DataError(f"the rules declare {each} but the facts have {found}")
    for statement in rules:
        for unit in (unit for formula in statement_formulas(statement) for unit in _atoms(formula)):
            if single is not None and str(unit.predicate) not in declared:
                declared[str(unit.predicate)] = PredicateDeclaration(str(unit.predicate), (single,) * len(unit.args))
    return RuleSet(rules.statements, predicates=declared.values())


def predicates_of(statement: Statement) -> set[str]:
    """Return the predicates that a statement names."""
    return {str(unit.predicate) for formula in statement_formulas(statement) for unit in _atoms(formula)}


def _atoms(formula: Formula) -> Iterator[Atom | Membership]:
    return (unit for unit in units(formula) if not isinstance(unit, Comparison))


class GroundFacts:
    """The facts of a knowledge base, cut to any entities, with some predicates read as closed.

    ``declared`` are all predicates that can be asked for, ``used`` those of the rules, ``constants`` the entities that
    the rules name, by type.
    """

    def __init__(self, kb: KnowledgeBase, rules: RuleSet, closed: Iterable[str]) -> None:
        self.kb, self.rules = kb, rules
        formulas = [formula for each in rules for formula in statement_formulas(each)]
        known = infer_declarations(formulas, rules.predicates)
        atoms = [unit for formula in formulas for unit in _atoms(formula)]
        self.used = frozenset(str(unit.predicate) for unit in atoms)
        self.declared: dict[str, PredicateDeclaration] = {
            name: each for name, each in known.items() if NUMBER_TYPE not in each.types and each.classes is None
        }
        for name in sorted(self.used):
            each = known[name]
            if name not in self.declared:
                raise DataError(f"{each} has classes or numbers; MarkovLogic is for what is true or false of entities")
            for kind in each.types:
                if not len(kb.domains.get(kind, ())):
                    raise DataError(
                        f"type {kind} of {each} has no entities; types of the facts: {', '.join(kb.domains)} "
                        f"(declare in the rules which of them {name} takes)"
                    )
        peopled = {kind for kind, domain in kb.domains.items() if len(domain)}
        self.declared = {name: each for name, each in self.declared.items() if peopled.issuperset(each.types)}
        self.closed = frozenset(closed)
        for name in self.closed:
            if name not in self.declared:
                raise unknown_name("predicate", name, self.declared)
        self.constants: dict[str, set[int]] = {}
        for unit in atoms:
            for term, kind in zip(unit.args, known[str(unit.predicate)].types, strict=True):
                if not isinstance(term, Variable):
                    name = term.name if isinstance(term, Symbol) else str(term)
                    self.constants.setdefault(kind, set()).add(kb.domains[kind].index_of(name))

    @property
    def types(self) -> tuple[str, ...]:
        """The types of the declared predicates."""
        return tuple(dict.fromkeys(kind for each in self.declared.values() for kind in each.types))

    def worlds(self) -> list[Members]:
        """Return the entities of every world, or of the only one."""
        numbers: list[int | None] = [*range(len(self.kb.worlds))] or [None]
        return [{kind: self.kb.domains[kind].members(number) for kind in self.types} for number in numbers]

    def observed_predicates(self) -> list[str]:
        """Return the predicates of the rules that some fact, true or false, is known of."""
        return [name for name in self.declared if name in self.used and self.count(name)]

    def count(self, name: str, *, truth: bool | None = None) -> int:
        """Return how many facts of a predicate are known, true, false or either."""
        if name not in self.kb.predicates:
            return 0
        return sum(self.kb.count(name, truth=each) for each in (True, False) if truth in (None, each))

    def dense(self, name: str, members: Members) -> tuple[Tensor, Tensor]:
        """Return a predicate as (value, observed) over some entities; a closed one is observed everywhere."""
        declaration = self.declared[name]
        ids = [members[kind] for kind in declaration.types]
        shape = [len(each) for each in ids]
        value = torch.zeros(shape, dtype=torch.bool)
        observed = torch.full(shape, name in self.closed, dtype=torch.bool)
        for truth in (True, False) if name in self.kb.predicates else ():
            places, inside = positions(self.kb.columns(name, truth=truth), ids)
            index = tuple(torch.from_numpy(place[inside]) for place in places)
            observed[index] = True
            if truth:
                value[index] = True
        return value, observed

    def evidence(self, members: Members, *, opened: str | None = None) -> dict[str, Observation]:
        """Return what is observed, as a layer takes it; nothing of the predicate ``opened``."""
        found: dict[str, Observation] = {}
        for name in self.declared:
            if name == opened:
                continue
            value, observed = self.dense(name, members)
            if name in self.closed:
                found[name] = value
            elif bool(observed.any()):
                found[name] = (value, observed)
        return found


def positions(columns: Iterable[Ids], ids: Iterable[Ids]) -> tuple[list[npt.NDArray[np.intp]], npt.NDArray[np.bool_]]:
    """Return where each column's entities stand among the given ones, and which rows are among them altogether."""
    places, inside = [], None
    for column, chosen in zip(columns, ids, strict=False):
        place = np.searchsorted(chosen, column)
        found = place < len(chosen)
        found[found] = chosen[place[found]] == column[found]
        places.append(place)
        inside = found if inside is None else inside & found
    assert inside is not None
    return places, inside


Query = str | Atom | Sequence[Value]
Queries = KnowledgeBase | Iterable[Query]


def columns_of(facts: GroundFacts, queries: Queries) -> dict[str, tuple[Ids, ...]]:
    """Return the atoms asked for as columns of ids, by predicate, each atom once."""
    if isinstance(queries, str):
        queries = [queries]
    if isinstance(queries, KnowledgeBase):
        found = _of_knowledge_base(facts, queries)
    else:
        found = _of_atoms(facts, queries)
    found = {name: distinct_rows(columns) for name, columns in found.items() if len(columns[0])}
    if not found:
        raise DataError("there are no queries; give a knowledge base, atoms such as 'smokes(ann)', or predicates")
    return found


def _of_knowledge_base(facts: GroundFacts, queries: KnowledgeBase) -> dict[str, tuple[Ids, ...]]:
    """Take true and false facts alike: which is which is not looked at."""
    same = queries.domains is facts.kb.domains or all(
        facts.kb.domains.get(kind) is each for kind, each in queries.domains.items()
    )
    found = {}
    for name, declaration in queries.predicates.items():
        if not (queries.count(name) + queries.count(name, truth=False)):
            continue
        own = _checked(facts, name, declaration.arity)
        both = zip(queries.columns(name), queries.columns(name, truth=False), strict=True)
        columns = [np.concatenate(pair) for pair in both]
        if not same:
            kinds = zip(declaration.types, own, strict=True)
            columns = [
                _renamed(facts, mine, queries.domains[kind].labels_of(column))
                for (kind, mine), column in zip(kinds, columns, strict=True)
            ]
        # True ones would stand before false ones; where scores are equal, their order must not tell them apart
        order = np.lexsort(columns[::-1])
        found[name] = tuple(column[order] for column in columns)
    return found


def _of_atoms(facts: GroundFacts, queries: Iterable[Query]) -> dict[str, tuple[Ids, ...]]:
    rows: dict[str, list[tuple[str, ...]]] = {}
    found: dict[str, tuple[Ids, ...]] = {}
    for query in queries:
        if isinstance(query, str) and "(" not in query:
            found[query] = _unobserved(facts, query)
            continue
        name, args = _atom(query)
        _checked(facts, name, len(args))
        rows.setdefault(name, []).append(args)
    for name, lines in rows.items():
        kinds = facts.declared[name].types
        columns = tuple(
            _renamed(facts, kind, np.array(labels, dtype=object))
            for kind, labels in zip(kinds, zip(*lines, strict=True), strict=True)
        )
        before = found.get(name)
        found[name] = columns if before is None else tuple(map(np.concatenate, zip(before, columns, strict=True)))
    return found


def _atom(query: Query) -> tuple[str, tuple[str, ...]]:
    if isinstance(query, str):
        formula = parse_formula(query)
        if not isinstance(formula, Atom):
            raise DataError(f"a query is an atom such as smokes(ann), got: {query}")
        query = formula
    if not isinstance(query, Atom):
        name, *args = query
        return str(name), tuple(map(str, args))
    for term in query.args:
        if isinstance(term, Variable):
            raise DataError(f"{term} is a variable in {query}; a name that starts upper-case is quoted: '{term}'")
    return str(query.predicate), tuple(each.name if isinstance(each, Symbol) else str(each) for each in query.args)


def _checked(facts: GroundFacts, name: str, arity: int) -> tuple[str, ...]:
    if name not in facts.declared:
        raise unknown_name("predicate", name, facts.declared)
    declaration = facts.declared[name]
    if declaration.arity != arity:
        raise DataError(f"{name} has {declaration.arity} arguments, a query gives it {arity}")
    return declaration.types


def _renamed(facts: GroundFacts, kind: str, labels: Ids) -> Ids:
    domain = facts.kb.domains[kind]
    return np.array([domain.index_of(str(label)) for label in labels], dtype=np.int32)


def _unobserved(facts: GroundFacts, name: str) -> tuple[Ids, ...]:
    """Return all atoms of a predicate that are not observed, world by world."""
    if name not in facts.declared:
        raise unknown_name("predicate", name, facts.declared)
    kinds = facts.declared[name].types
    parts = []
    for members in facts.worlds():
        _, observed = facts.dense(name, members)
        places = np.nonzero(~observed.numpy())
        parts.append([members[kind][place] for kind, place in zip(kinds, places, strict=True)])
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def with_entities_of(kb: KnowledgeBase, queries: Queries) -> KnowledgeBase:
    """Return a knowledge base with the entities of a knowledge base of queries besides its own.

    >>> kb = KnowledgeBase.from_facts([("smokes", "ann")])
    >>> with_entities_of(kb, KnowledgeBase.from_facts([("smokes", "bob")])).domains["entity"].labels.tolist()
    ['ann', 'bob']
    """
    if not isinstance(queries, KnowledgeBase):
        return kb
    missing = [
        (kind, label)
        for kind, domain in queries.domains.items()
        for label in domain.labels.tolist()
        if kind in kb.domains and label not in kb.domains[kind]
    ]
    new = {kind for kind, domain in queries.domains.items() if kind not in kb.domains and len(domain)}
    if not missing and not new:
        return kb
    if kb.worlds:
        raise DataError(f"the queries name the {missing[0][0]} {missing[0][1]!r}, which no world of the facts has")
    builder = KnowledgeBaseBuilder(kb.predicates.values())
    for name, declaration in queries.predicates.items():
        if name not in kb.predicates:
            builder.declare(declaration)
    for kind, domain in (*kb.domains.items(), *queries.domains.items()):
        for label in domain.labels.tolist():
            builder.entity(label, type=kind)
    for name in kb.closed:
        builder.close(name)
    for truth in (True, False):
        for name, args in kb.facts(truth=truth):
            builder.add(name, args, truth=truth)
    return builder.build()
