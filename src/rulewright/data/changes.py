"""Facts added to a knowledge base and taken from it, over indices that stay what they were wherever they can.

The entities of a type have consecutive indices. New ones come after the old ones of their type; only where another type
stands behind it do the indices of that type move up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from rulewright.data.builder import ENTITY_TYPE, KnowledgeBaseBuilder
from rulewright.data.facts import (
    Column,
    FactTable,
    check_agreement,
    check_columns,
    distinct_rows,
    empty_columns,
    group_by_signature,
    signature,
)
from rulewright.data.index import Ids, SortedRows
from rulewright.data.knowledge_base import KnowledgeBase, Value
from rulewright.data.vocabulary import Domain, EntityColumn, lay_out_domains
from rulewright.errors import DataError, unknown_name
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration, quote

Facts = KnowledgeBase | Iterable[tuple[Value, ...]]
"""What `KnowledgeBase.add` and `KnowledgeBase.remove` take."""


class Recoding:
    """How entities of one knowledge base are numbered in other domains: −1 where these have no such label.

    >>> kb = KnowledgeBase.from_triples([("ann", "likes", "bob")])
    >>> Recoding(kb, {"entity": Domain("entity", ["bob", "cid", "ann"])}).entities("entity", "entity").tolist()
    [2, 0]
    """

    def __init__(self, kb: KnowledgeBase, domains: Mapping[str, Domain]) -> None:
        self.kb, self.domains = kb, domains
        self._maps: dict[tuple[str, str], Ids] = {}
        self._identities: dict[str, bool] = {}

    def entities(self, source_type: str, target_type: str) -> Ids:
        """Return the new index of every entity of a type, in order."""
        if (source_type, target_type) not in self._maps:
            source, target = self.kb.domains[source_type], self.domains[target_type]
            if source.labels is target.labels or np.array_equal(source.labels, target.labels[: len(source)]):
                indices = np.arange(target.start, target.start + len(source))
            else:
                indices = target.find_all(source.labels)
            self._maps[source_type, target_type] = indices
        return self._maps[source_type, target_type]

    def is_identity(self, type_name: str) -> bool:
        """Return whether the entities of a type keep their indices."""
        if type_name not in self._identities:
            members = self.kb.domains[type_name].members()
            self._identities[type_name] = bool((self.entities(type_name, type_name) == members).all())
        return self._identities[type_name]

    def move(
        self, columns: Sequence[Column], source: PredicateDeclaration, target: PredicateDeclaration | None = None
    ) -> tuple[Column, ...]:
        """Return the columns of a predicate under the new indices, perhaps under other types."""
        moved = list(columns)
        for position, types in enumerate(zip(source.types, (target or source).types, strict=True)):
            if NUMBER_TYPE not in types and not (types[0] == types[1] and self.is_identity(types[0])):
                start = self.kb.domains[types[0]].start
                moved[position] = self.entities(*types)[columns[position] - start].astype(np.int32)
        return tuple(moved)


def read_facts_like(kb: KnowledgeBase, facts: Facts, *, truth: bool) -> KnowledgeBase:
    """Return facts given as tuples (predicate, argument, …) as a knowledge base, read by the declarations of ``kb``."""
    if isinstance(facts, KnowledgeBase):
        return facts
    builder = KnowledgeBaseBuilder(kb.predicates.values())
    for name, *args in facts:
        declaration = kb.predicates.get(str(name))
        if declaration is not None and declaration.classes is not None:
            builder.add(str(name), args[:-1], value=str(args[-1]) if args else None, truth=truth)
        else:
            builder.add(str(name), args, truth=truth)
    return builder.build()


def add_facts(kb: KnowledgeBase, other: KnowledgeBase) -> KnowledgeBase:
    """Return the facts of both, over the predicates and entities of both; see `KnowledgeBase.add`."""
    if other.splits:
        raise DataError(f"facts to add have no splits, got {', '.join(other.splits)}; add the facts of a split alone")
    agreed = {name: _agree_on_types(kb, declaration) for name, declaration in other.predicates.items()}
    declared = {**kb.predicates, **agreed}
    domains, worlds = extend_domains(kb, other, agreed)
    recodings = Recoding(kb, domains), Recoding(other, domains)
    tables: dict[bool, dict[str, FactTable]] = {}
    columns: dict[tuple[str, bool], tuple[Column, ...]] = {}
    repeated = 0
    for truth in (True, False):
        for name, declaration in declared.items():
            parts = [
                recoding.move(recoding.kb.columns(name, truth=truth), recoding.kb.predicates[name], declaration)
                for recoding in recodings
                if name in recoding.kb.predicates
            ]
            check_columns(declared, domains, name, parts[-1])
            both = [np.concatenate(column) for column in zip(*parts, strict=True)]
            columns[name, truth] = distinct_rows(both) if len(parts[-1][0]) else tuple(both)
            repeated += len(both[0]) - len(columns[name, truth][0])
        tables[truth] = group_by_signature(
            declared, {name: columns[name, truth] for name in declared if len(columns[name, truth][0])}
        )
    for name, declaration in agreed.items():
        check_agreement(declaration, columns[name, True], columns[name, False])
    return KnowledgeBase(
        domains,
        declared.values(),
        tables[True],
        tables[False],
        closed=kb.closed | other.closed,
        worlds=worlds,
        splits={name: move_facts(split, domains, declared, worlds) for name, split in kb.splits.items()},
        duplicates=kb.duplicates + other.duplicates + repeated,
        notes=(*kb.notes, *other.notes),
    )


def remove_facts(kb: KnowledgeBase, other: KnowledgeBase) -> KnowledgeBase:
    """Return the facts of ``kb`` without those of another, each of which it must have; see `KnowledgeBase.remove`."""
    recoding = Recoding(other, kb.domains)
    tables: dict[bool, dict[str, FactTable]] = {}
    for truth in (True, False):
        tables[truth] = dict(kb.tables(truth=truth))
        keep = {letters: np.ones(len(table), dtype=bool) for letters, table in tables[truth].items()}
        for name, declaration in other.predicates.items():
            own = other.columns(name, truth=truth)
            if len(own[0]) == 0:
                continue
            if name not in kb.predicates:
                raise unknown_name("predicate", name, kb.predicates)
            unwanted = recoding.move(own, declaration, _agree_on_types(kb, declaration))
            rows = find_rows(kb.columns(name, truth=truth), unwanted)
            if (rows < 0).any():
                first = other.label_rows(name, [column[rows < 0][:1] for column in own])[0]
                shown = ", ".join(quote(value) if isinstance(value, str) else repr(value) for value in first)
                more = f" and {(rows < 0).sum() - 1:,} more" if (rows < 0).sum() > 1 else ""
                said = "known" if truth else "observed to be false"
                raise DataError(f"cannot remove {quote(name)}({shown}){more}: it is not {said}")
            letters = signature(kb.predicate(name))
            start = np.searchsorted(tables[truth][letters].predicate, kb.predicate_index(name))
            keep[letters][start + rows] = False
        tables[truth] = {letters: table.keep_rows(keep[letters]) for letters, table in tables[truth].items()}
    return KnowledgeBase(
        kb.domains,
        kb.predicates.values(),
        tables[True],
        tables[False],
        closed=kb.closed,
        worlds=kb.worlds,
        splits=kb.splits,
        duplicates=kb.duplicates,
        notes=kb.notes,
    )


def find_rows(columns: Sequence[Column], wanted: Sequence[Column]) -> Ids:
    """Return where each wanted row stands among distinct ones, −1 where it does not.

    >>> find_rows([np.array([3, 4]), np.array([0.5, 0.25])], [np.array([4, 4]), np.array([0.25, 0.5])]).tolist()
    [1, -1]
    """
    codes: list[Ids] = []
    wanted_codes: list[Ids] = []
    for column, values in zip(columns, wanted, strict=True):
        distinct = np.unique(column)
        codes.append(np.searchsorted(distinct, column))
        position = np.minimum(np.searchsorted(distinct, values), max(0, len(distinct) - 1))
        wanted_codes.append(np.where(distinct[position] == values, position, -1) if len(distinct) else position - 1)
    ordered = SortedRows(codes)
    found = ordered.find(wanted_codes)
    return np.where(found < 0, -1, ordered.order[found]) if len(ordered) else found


def move_facts(
    kb: KnowledgeBase,
    domains: Mapping[str, Domain],
    predicates: Mapping[str, PredicateDeclaration],
    worlds: Sequence[str],
) -> KnowledgeBase:
    """Return the same facts over domains and predicates that have all of its own, and perhaps more."""
    recoding = Recoding(kb, domains)
    tables = [
        group_by_signature(
            predicates,
            {name: recoding.move(kb.columns(name, truth=truth), kb.predicates[name]) for name in kb.predicates},
        )
        for truth in (True, False)
    ]
    return KnowledgeBase(
        domains,
        predicates.values(),
        *tables,
        closed=kb.closed,
        worlds=worlds,
        duplicates=kb.duplicates,
        notes=kb.notes,
    )


def extend_domains(
    kb: KnowledgeBase, other: KnowledgeBase, agreed: Mapping[str, PredicateDeclaration]
) -> tuple[dict[str, Domain], tuple[str, ...]]:
    """Return the domains of ``kb`` with the entities that only another has behind its own, and the worlds of both.

    ``agreed`` declares the predicates of the other under the types that their arguments get.
    """
    worlds = (*kb.worlds, *(world for world in other.worlds if world not in kb.worlds))
    world_indices = {world: index for index, world in enumerate(worlds)}
    members = _find_members(other, agreed)
    layout: list[tuple[str, Sequence[str] | Column, EntityColumn | None]] = []
    for target in dict.fromkeys([*kb.domains, *(target for _, target in members)]):
        known = kb.domains.get(target) or Domain(target, [])
        sources = {source: indices for (source, own_target), indices in members.items() if own_target == target}
        in_worlds = known.worlds is not None or (
            len(known) == 0 and any(other.domains[source].worlds is not None for source in sources)
        )
        homes: dict[str, str | None] = {}  # the world of every new entity
        for source, indices in sources.items():
            domain = other.domains[source]
            if domain.worlds is None and not in_worlds and np.array_equal(known.labels[: len(domain)], domain.labels):
                continue
            for position in (indices - domain.start).tolist():
                label = domain.labels[position]
                home = None if domain.worlds is None else other.worlds[domain.worlds[position]]
                before = homes.get(label)
                if label in known and known.worlds is not None:
                    before = kb.worlds[known.worlds[known.index_of(label) - known.start]]
                if home is not None and before not in (None, home):
                    raise DataError(f"{label!r} belongs to world {before!r} and cannot stand in world {home!r}")
                if label in known and (in_worlds or home is None):
                    continue
                if in_worlds != (home is not None):
                    raise DataError(
                        f"{label!r} would be an entity of type {target} in {_name_world(home)}, while others of that "
                        f"type belong to {'a world' if in_worlds else 'no world'}; add a knowledge base that agrees"
                    )
                homes[label] = home
        own_worlds = known.worlds
        if in_worlds:
            new_worlds = np.array([world_indices[home] for home in homes.values() if home is not None], dtype=np.int32)
            own_worlds = new_worlds if known.worlds is None else np.concatenate([known.worlds, new_worlds])
        labels = np.empty(len(homes), dtype=object)
        labels[:] = [*homes]
        layout.append((target, np.concatenate([known.labels, labels]), own_worlds))
    domains = lay_out_domains(layout)
    for name, domain in kb.domains.items():
        if domain.start == domains[name].start and len(domain) == len(domains[name]):
            domains[name] = domain  # which may have made its labels ready to be found
    return domains, worlds


def _name_world(home: str | None) -> str:
    return "no world" if home is None else f"world {home!r}"


def _find_members(other: KnowledgeBase, agreed: Mapping[str, PredicateDeclaration]) -> dict[tuple[str, str], Ids]:
    """Return for each type, and the type that it becomes, which entities do so: all where it stays what it is."""
    used: dict[tuple[str, str], list[Column]] = {}
    for name, declaration in other.predicates.items():
        for position, pair in enumerate(zip(declaration.types, agreed[name].types, strict=True)):
            if NUMBER_TYPE not in pair:
                columns = [other.columns(name, truth=truth)[position] for truth in (True, False)]
                used.setdefault(pair, []).extend(columns)
    renamed = {source for source, target in used if source != target}
    members: dict[tuple[str, str], Ids] = {}
    for type_name, domain in other.domains.items():
        if type_name not in renamed:
            members[type_name, type_name] = domain.members().astype(np.int64)
    for pair, columns in used.items():
        if pair not in members:
            members[pair] = np.unique(np.concatenate([*empty_columns("e"), *columns])).astype(np.int64)
    return members


def _agree_on_types(kb: KnowledgeBase, declaration: PredicateDeclaration) -> PredicateDeclaration:
    """Return how a predicate of added facts is declared: as before, where its types are the same or left open."""
    known = kb.predicates.get(declaration.name)
    if known is None:
        usual = kb.usual_type
        types = (usual if name == ENTITY_TYPE and name not in kb.domains else name for name in declaration.types)
        return PredicateDeclaration(declaration.name, tuple(types), declaration.classes)
    pairs = zip(declaration.types, known.types, strict=False)
    is_same = declaration.arity == known.arity and declaration.classes == known.classes
    if not is_same or any(new != old and (new != ENTITY_TYPE or old == NUMBER_TYPE) for new, old in pairs):
        raise DataError(f"{declaration.name} was declared as {known}, cannot be {declaration}")
    return known
