"""What a person may ask for: a knowledge base of queries, atoms, or all atoms of a predicate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder, Value
from rulewright.data.facts import distinct_rows
from rulewright.errors import DataError, unknown_name
from rulewright.learn.markov_facts import GroundFacts, Ids
from rulewright.logic import Atom, Symbol, Variable, parse_formula

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
    return np.array([domain.id_of(str(label)) for label in labels], dtype=np.int32)


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
