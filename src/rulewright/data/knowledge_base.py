"""The knowledge base: typed entities, predicates of any arity, and their facts as integer columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from rulewright.data.facts import (
    Column,
    FactTable,
    check_agreement,
    check_arguments,
    check_columns,
    distinct_rows,
    empty_columns,
    group_by_signature,
    signature,
)
from rulewright.data.vocabulary import Domain, format_count
from rulewright.errors import DataError, unknown_name
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration

if TYPE_CHECKING:
    import torch
    from scipy.sparse import csr_array

    from rulewright.tables import FrameLibrary


Value = str | int | float


class KnowledgeBase:
    """Facts over typed entities. Immutable: what changes it returns another one that shares what stayed.

    Facts are true or observed false; what is neither is unknown, or false where the predicate is closed. Entities
    may live in worlds (documents, images) that no fact crosses. ``splits`` holds further facts over the same
    entities, such as valid and test; ``notes`` what a person should know of how the facts were read.

    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> kb.tuples("parent_of")
    [('ann', 'bob'), ('bob', 'cid')]
    >>> kb
    KnowledgeBase(3 entities, 1 predicate, 2 facts)
    """

    def __init__(
        self,
        domains: Mapping[str, Domain],
        predicates: Iterable[PredicateDeclaration],
        facts: Mapping[str, FactTable],
        false_facts: Mapping[str, FactTable] | None = None,
        *,
        closed: Iterable[str] = (),
        worlds: Sequence[str] = (),
        splits: Mapping[str, KnowledgeBase] | None = None,
        duplicates: int = 0,
        notes: Iterable[str] = (),
    ) -> None:
        self.domains: Mapping[str, Domain] = dict(domains)
        self.predicates: Mapping[str, PredicateDeclaration] = {
            declaration.name: declaration for declaration in predicates
        }
        self.closed: frozenset[str] = frozenset(closed)
        self.worlds: tuple[str, ...] = tuple(worlds)
        self.splits: Mapping[str, KnowledgeBase] = dict(splits or {})
        self.duplicates = duplicates
        self.notes: tuple[str, ...] = tuple(notes)
        self._tables: dict[bool, Mapping[str, FactTable]] = {True: dict(facts), False: dict(false_facts or {})}
        self._indices = {name: index for index, name in enumerate(self.predicates)}
        for name in self.closed - set(self.predicates):
            raise unknown_name("predicate", name, self.predicates)
        for declaration in self.predicates.values():
            check_arguments(declaration)
            for type_name in declaration.types:
                if type_name != NUMBER_TYPE and type_name not in self.domains:
                    raise unknown_name("type", type_name, self.domains)

    @classmethod
    def from_triples(cls, triples: Iterable[tuple[str, str, str]]) -> KnowledgeBase:
        """Build a knowledge base from (head, relation, tail) labels."""
        return cls.from_facts((relation, head, tail) for head, relation, tail in triples)

    @classmethod
    def from_facts(cls, facts: Iterable[tuple[Value, ...]]) -> KnowledgeBase:
        """Build a knowledge base from tuples (predicate, argument, …); numbers among the arguments stay numbers.

        >>> KnowledgeBase.from_facts([("age", "ann", 42), ("tall", "ann")]).tuples("age")
        [('ann', 42.0)]
        """
        from rulewright.data.builder import KnowledgeBaseBuilder

        builder = KnowledgeBaseBuilder()
        for name, *args in facts:
            builder.add(str(name), args)
        return builder.build()

    @classmethod
    def from_labels(
        cls, labels: Mapping[str, npt.ArrayLike] | npt.ArrayLike, names: Sequence[str] | None = None
    ) -> KnowledgeBase:
        """Build a knowledge base from the labels of n samples: a unary predicate for each label.

        ``labels`` has a boolean array ``[n]`` for each label, or is one array ``[n, K]`` whose K columns ``names``
        names. The entities are the samples, called by their indices ``0`` … ``n - 1``; what is not true is no fact.

        >>> kb = KnowledgeBase.from_labels({"dog": [True, False, True], "animal": [True, False, True]})
        >>> kb.tuples("dog"), kb.n_entities
        ([('0',), ('2',)], 3)
        >>> KnowledgeBase.from_labels([[1, 0], [1, 1]], ["animal", "dog"]).count("animal")
        2
        """
        if not isinstance(labels, Mapping):
            table = np.asarray(labels)
            if names is None or table.ndim != 2 or table.shape[1] != len(names):
                given = "no names" if names is None else f"{len(names)} names"
                raise DataError(f"labels must be an array [n, K] with K names, got {list(table.shape)} and {given}")
            labels = {name: table[:, position] for position, name in enumerate(names)}
        elif names is not None:
            raise DataError("names go with one array of labels; a mapping has its own")
        columns = {name: np.asarray(column) for name, column in labels.items()}
        shapes = {column.shape for column in columns.values()}
        if len(shapes) != 1 or len(next(iter(shapes))) != 1:
            found = ", ".join(f"{name} {list(column.shape)}" for name, column in columns.items()) or "none"
            raise DataError(f"labels must be arrays of one length, got {found}")
        for name, column in columns.items():
            if not np.isin(column, (0, 1)).all():
                raise DataError(f"the label {name} must be true or false of every sample, got {np.unique(column)[:3]}")
        from rulewright.data.builder import ENTITY_TYPE

        ((size,),) = shapes
        return cls.from_columns(
            {ENTITY_TYPE: Domain(ENTITY_TYPE, [str(index) for index in range(size)])},
            [PredicateDeclaration(name, (ENTITY_TYPE,)) for name in columns],
            {name: [np.flatnonzero(column)] for name, column in columns.items()},
        )

    @classmethod
    def from_frame(
        cls, frame: Any, *, format: Literal["triples", "table"] = "triples", columns: Sequence[str] | None = None
    ) -> KnowledgeBase:
        """Build a knowledge base from a data frame of pandas, Polars or Arrow, or a mapping of NumPy columns.

        A graph has the columns head, relation and tail, under these names or usual other ones; ``columns`` says which
        they are where the names do not, as `read_facts` takes it. With ``format="table"`` a frame has a row for each
        entity, named in the first column, and a column for each thing that is known of it: numbers and dates become
        attributes.

        >>> frame = {"head": np.array(["ann"]), "relation": np.array(["parent_of"]), "tail": np.array(["bob"])}
        >>> KnowledgeBase.from_frame(frame).tuples("parent_of")
        [('ann', 'bob')]
        >>> people = {"name": np.array(["ann", "bob"]), "age": np.array([71, 42])}
        >>> KnowledgeBase.from_frame(people, format="table").tuples("age")
        [('ann', 71.0), ('bob', 42.0)]
        """
        from importlib import import_module

        kb: KnowledgeBase = import_module("rulewright.io.frames").from_frame(frame, format=format, columns=columns)
        return kb  # by name, since reading stands below this folder

    @classmethod
    def from_columns(
        cls,
        domains: Mapping[str, Domain],
        predicates: Iterable[PredicateDeclaration],
        columns: Mapping[str, Sequence[Column]],
        false_columns: Mapping[str, Sequence[Column]] | None = None,
        *,
        closed: Iterable[str] = (),
        worlds: Sequence[str] = (),
    ) -> KnowledgeBase:
        """Build a knowledge base from each predicate's columns of indices; repeated rows are dropped.

        >>> likes = PredicateDeclaration("likes", ("person", "person"))
        >>> people = Domain("person", ["ann", "bob"])
        >>> ids = [np.array([0, 0]), np.array([1, 1])]
        >>> KnowledgeBase.from_columns({"person": people}, [likes], {"likes": ids}).tuples("likes")
        [('ann', 'bob')]
        """
        declared = {declaration.name: declaration for declaration in predicates}
        false_columns = false_columns or {}
        for name, parts in (*columns.items(), *false_columns.items()):
            check_columns(declared, domains, name, parts)
        true = {name: distinct_rows(parts) for name, parts in columns.items()}
        false = {name: distinct_rows(parts) for name, parts in false_columns.items()}
        for name, declaration in declared.items():
            check_agreement(declaration, true.get(name), false.get(name))
        return cls(
            domains,
            declared.values(),
            group_by_signature(declared, true),
            group_by_signature(declared, false),
            closed=closed,
            worlds=worlds,
            duplicates=sum(len(columns[name][0]) - len(true[name][0]) for name in columns),
        )

    # What is in it

    @property
    def n_facts(self) -> int:
        """The number of true facts."""
        return sum(len(table) for table in self._tables[True].values())

    @property
    def n_false_facts(self) -> int:
        """The number of facts observed to be false."""
        return sum(len(table) for table in self._tables[False].values())

    @property
    def n_entities(self) -> int:
        """The number of entities of all types."""
        return sum(len(domain) for domain in self.domains.values())

    @property
    def usual_type(self) -> str:
        """The type of arguments of which nothing says another: the only one there is, or ``entity``."""
        from rulewright.data.builder import ENTITY_TYPE

        return next(iter(self.domains)) if len(self.domains) == 1 else ENTITY_TYPE

    def predicate(self, name: str) -> PredicateDeclaration:
        """Return a predicate's declaration; an unknown name is an error that lists near ones."""
        try:
            return self.predicates[name]
        except KeyError:
            raise unknown_name("predicate", name, self.predicates) from None

    def predicate_index(self, name: str) -> int:
        """Return the index of a predicate, by which the tables name it."""
        self.predicate(name)
        return self._indices[name]

    def tables(self, *, truth: bool = True) -> Mapping[str, FactTable]:
        """Return the fact tables by signature: the true facts, or those observed false."""
        return self._tables[truth]

    def signatures(self, *, truth: bool = True) -> frozenset[str]:
        """Return the signatures that have facts."""
        return frozenset(letters for letters, table in self.tables(truth=truth).items() if len(table))

    def columns(self, name: str, *, truth: bool = True) -> tuple[Column, ...]:
        """Return a predicate's facts as columns (views): entity indices, numbers and, if it has any, classes."""
        letters = signature(self.predicate(name))
        table = self._tables[truth].get(letters)
        return empty_columns(letters) if table is None else table.columns_of(self._indices[name])

    def count(self, name: str, *, truth: bool = True) -> int:
        """Return the number of a predicate's facts."""
        return len(self.columns(name, truth=truth)[0])

    def tuples(self, name: str, *, truth: bool = True) -> list[tuple[Value, ...]]:
        """Return a predicate's facts as tuples of labels; a multi-class fact ends with its class."""
        return self.label_rows(name, self.columns(name, truth=truth))

    def label_rows(self, name: str, columns: Sequence[Column]) -> list[tuple[Value, ...]]:
        """Turn columns of a predicate into tuples of labels."""
        return list(zip(*self._label_columns(name, columns).values(), strict=True))

    def facts(self, *, truth: bool = True) -> Iterator[tuple[str, tuple[Value, ...]]]:
        """Yield every fact as (predicate, labels), predicate by predicate."""
        for name in self.predicates:
            for values in self.tuples(name, truth=truth):
                yield name, values

    def contains(self, name: str, *args: Value, truth: bool = True) -> bool:
        """Return whether a fact is known.

        >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob")])
        >>> kb.contains("parent_of", "ann", "bob"), kb.contains("parent_of", "bob", "ann")
        (True, False)
        """
        declaration = self.predicate(name)
        columns = self.columns(name, truth=truth)
        if len(args) != len(columns):
            raise DataError(f"{name} has {len(columns)} arguments, got {len(args)}")
        match = np.ones(len(columns[0]), dtype=bool)
        for position, (arg, column) in enumerate(zip(args, columns, strict=True)):
            match &= column == self._encode(declaration, position, arg)
        return bool(match.any())

    def _encode(self, declaration: PredicateDeclaration, position: int, arg: Value) -> float:
        if position == declaration.arity:
            classes = declaration.classes or ()
            return classes.index(str(arg)) if arg in classes else -1
        type_name = declaration.types[position]
        if type_name == NUMBER_TYPE:
            try:
                return float(arg)
            except ValueError:
                raise DataError(f"argument {position + 1} of {declaration.name} is a number, got {arg!r}") from None
        entity_index = self.domains[type_name].find(str(arg))
        return -1 if entity_index is None else entity_index

    @cached_property
    def entity_worlds(self) -> npt.NDArray[np.int32] | None:
        """The world of every entity, by index: −1 where all worlds share its type. None where there is one world."""
        if not self.worlds:
            return None
        parts = [
            np.full(len(domain), -1, dtype=np.int32) if domain.worlds is None else domain.worlds
            for domain in self.domains.values()
        ]
        return np.concatenate([np.empty(0, dtype=np.int32), *parts])

    # Other knowledge bases made from it

    def with_facts(
        self, tables: Mapping[str, FactTable], false_tables: Mapping[str, FactTable] | None = None
    ) -> KnowledgeBase:
        """Return a knowledge base over the same entities and predicates with other facts and no splits."""
        return KnowledgeBase(
            self.domains,
            self.predicates.values(),
            tables,
            false_tables,
            closed=self.closed,
            worlds=self.worlds,
            notes=self.notes,
        )

    def with_predicates(self, predicates: Iterable[PredicateDeclaration]) -> KnowledgeBase:
        """Return the same facts with further predicates, which have none."""
        return KnowledgeBase(
            self.domains,
            [*self.predicates.values(), *predicates],
            self.tables(),
            self.tables(truth=False),
            closed=self.closed,
            worlds=self.worlds,
        )

    def add(self, facts: KnowledgeBase | Iterable[tuple[Value, ...]], *, truth: bool = True) -> KnowledgeBase:
        """Return a knowledge base with further facts: another one's, or tuples (predicate, argument, …).

        Entities and predicates keep their indices and new ones come behind; of several types, those behind one that
        grows move up. A tuple of a multi-class predicate ends with its class. With ``truth=False`` tuples are facts
        observed to be false. A fact that is known already changes nothing, one that contradicts another is refused.

        >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob")])
        >>> kb.add([("parent_of", "bob", "cid"), ("tall", "cid")])
        KnowledgeBase(3 entities, 2 predicates, 3 facts)
        >>> kb.add(KnowledgeBase.from_triples([("bob", "parent_of", "cid")])).tuples("parent_of")
        [('ann', 'bob'), ('bob', 'cid')]
        """
        from rulewright.data.changes import add_facts, read_facts_like

        return add_facts(self, read_facts_like(self, facts, truth=truth))

    def remove(self, facts: KnowledgeBase | Iterable[tuple[Value, ...]], *, truth: bool = True) -> KnowledgeBase:
        """Return a knowledge base without some facts, given as to `add`; each of them must be known.

        Entities and predicates stay, with their indices, though no fact may name them any more.

        >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
        >>> kb.remove([("parent_of", "ann", "bob")]).tuples("parent_of")
        [('bob', 'cid')]
        """
        from rulewright.data.changes import read_facts_like, remove_facts

        return remove_facts(self, read_facts_like(self, facts, truth=truth))

    def with_splits(self, splits: Mapping[str, KnowledgeBase]) -> KnowledgeBase:
        """Return the same facts with other splits."""
        return self._with(splits, self.notes)

    def with_notes(self, notes: Iterable[str]) -> KnowledgeBase:
        """Return the same facts with further notes on how they were read.

        >>> KnowledgeBase.from_triples([("ann", "parent_of", "bob")]).with_notes(["a.tsv: 1 more column ignored"]).notes
        ('a.tsv: 1 more column ignored',)
        """
        return self._with(self.splits, (*self.notes, *notes))

    def _with(self, splits: Mapping[str, KnowledgeBase], notes: Iterable[str]) -> KnowledgeBase:
        return KnowledgeBase(
            self.domains,
            self.predicates.values(),
            self._tables[True],
            self._tables[False],
            closed=self.closed,
            worlds=self.worlds,
            splits=splits,
            duplicates=self.duplicates,
            notes=notes,
        )

    def split(self, name: str) -> KnowledgeBase:
        """Return one of the splits; an unknown name is an error that lists them."""
        if name not in self.splits:
            raise unknown_name("split", name, self.splits)
        return self.splits[name]

    def hold_out(
        self, share: float, *, seed: int = 0, predicates: Iterable[str] | None = None, keep_names: bool = False
    ) -> tuple[KnowledgeBase, KnowledgeBase]:
        """Split the true facts at random into those kept and a ``share`` held out, the same for the same seed.

        With ``keep_names``, every entity and every predicate stays in at least one of the facts that are kept; where
        too few facts can be spared, fewer are held out.

        >>> kb = KnowledgeBase.from_triples((str(i), "next", str(i + 1)) for i in range(100))
        >>> [part.n_facts for part in kb.hold_out(0.1)]
        [90, 10]
        """
        from rulewright.checks import SHARE, check_parameter

        check_parameter("share", share, SHARE)
        chosen = None if predicates is None else [self.predicate_index(name) for name in predicates]
        may_go = {
            letters: np.ones(len(table), dtype=bool) if chosen is None else np.isin(table.predicate, chosen)
            for letters, table in self._tables[True].items()
        }
        is_named = np.zeros(self.n_entities, dtype=bool)
        for letters, table in self._tables[True].items():
            for column in _entity_columns(table):
                is_named[column[~may_go[letters]]] = True
        random = np.random.default_rng(seed)
        kept: dict[str, FactTable] = {}
        hidden: dict[str, FactTable] = {}
        for letters, table in self._tables[True].items():
            rows = np.flatnonzero(may_go[letters])
            out = np.zeros(len(table), dtype=bool)
            count = round(share * len(rows))
            if keep_names:
                order = random.permutation(rows)
                stays = np.zeros(len(order), dtype=bool)
                stays[np.unique(table.predicate[order], return_index=True)[1]] = True
                entities = np.concatenate(
                    [np.empty(0, np.int32), *(column[order] for column in _entity_columns(table))]
                )
                different, first = np.unique(entities, return_index=True)
                stays[first[~is_named[different]] % max(1, len(order))] = True
                out[order[~stays][:count]] = True
                for column in _entity_columns(table):
                    is_named[column[~out]] = True
            else:
                out[random.choice(rows, size=count, replace=False)] = True
            kept[letters], hidden[letters] = table.keep_rows(~out), table.keep_rows(out)
        return self.with_facts(kept, self._tables[False]), self.with_facts(hidden)

    def in_worlds(self, names: Iterable[str]) -> KnowledgeBase:
        """Return the facts of some worlds, over the same entities."""
        entity_worlds = self.entity_worlds
        if entity_worlds is None:
            raise DataError("this knowledge base is one world; there are none to choose from")
        indices = {name: index for index, name in enumerate(self.worlds)}
        is_wanted = np.zeros(len(self.worlds), dtype=bool)
        for name in names:
            if name not in indices:
                raise unknown_name("world", name, self.worlds)
            is_wanted[indices[name]] = True

        def keep_wanted(table: FactTable) -> FactTable:
            columns = zip(table.columns, table.signature, strict=True)
            entities = [column for column, letter in columns if letter == "e"]
            worlds = (
                np.max([entity_worlds[column] for column in entities], axis=0) if entities else np.full(len(table), -1)
            )
            return table.keep_rows((worlds < 0) | is_wanted[worlds])  # what names no entity of a world holds in all

        true, false = (
            {letters: keep_wanted(table) for letters, table in self._tables[truth].items()} for truth in (True, False)
        )
        return self.with_facts(true, false)

    # Views made on demand

    def matrix(self, name: str) -> csr_array:
        """Return a predicate's true facts as a sparse 0/1 matrix (arity 2) or column (arity 1).

        >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
        >>> kb.matrix("parent_of").sum(axis=1).tolist()
        [1.0, 1.0, 0.0]
        """
        from scipy.sparse import csr_array

        declaration = self.predicate(name)
        if signature(declaration) not in ("e", "ee"):
            raise DataError(f"only predicates over one or two entities have a matrix, got {declaration}")
        domains = [self.domains[type_name] for type_name in declaration.types]
        positions = [column - domain.start for column, domain in zip(self.columns(name), domains, strict=True)]
        if declaration.arity == 1:
            positions.append(np.zeros_like(positions[0]))
        shape = (len(domains[0]), len(domains[1]) if declaration.arity == 2 else 1)
        return csr_array((np.ones(len(positions[0])), (positions[0], positions[1])), shape=shape)

    def tensor(self, name: str, *, world: str | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return a predicate as dense tensors (value, observed) over its domains, or over one world's entities.

        The value is a boolean, or the index of the class where the predicate is multi-class; where ``observed`` is
        False it means nothing. A closed predicate is observed everywhere.

        >>> kb = KnowledgeBase.from_facts([("tall", "ann"), ("likes", "ann", "bob")])
        >>> value, observed = kb.tensor("likes")
        >>> value.tolist(), observed.tolist()
        ([[False, True], [False, False]], [[False, True], [False, False]])
        """
        import torch

        declaration = self.predicate(name)
        if NUMBER_TYPE in declaration.types:
            raise DataError(f"{declaration} has a numeric argument and so no dense tensor")
        if world is not None and world not in self.worlds:
            raise unknown_name("world", world, self.worlds)
        world_index = None if world is None else self.worlds.index(world)
        members = [self.domains[type_name].members(world_index) for type_name in declaration.types]
        shape = [len(entities) for entities in members]
        value = torch.zeros(shape, dtype=torch.bool if declaration.classes is None else torch.long)
        observed = torch.full(shape, name in self.closed, dtype=torch.bool)
        for truth in (True, False):
            columns = self.columns(name, truth=truth)
            positions = [np.searchsorted(entities, column) for entities, column in zip(members, columns, strict=False)]
            inside = np.ones(len(columns[0]), dtype=bool)
            for entities, column, position in zip(members, columns, positions, strict=False):
                inside &= position < len(entities)
                inside[inside] &= entities[position[inside]] == column[inside]
            index = tuple(torch.from_numpy(position[inside]) for position in positions)
            observed[index] = True
            if truth:
                value[index] = True if declaration.classes is None else torch.from_numpy(columns[-1][inside]).long()
        return value, observed

    def to_frame(self, predicate: str | None = None, *, truth: bool = True, library: FrameLibrary | None = None) -> Any:
        """Return facts as a data frame of pandas or Polars, with labels: the true ones, or those observed false.

        The facts of one predicate have the columns ``arg1``, ``arg2``, … and, where it is multi-class, ``class``. Those
        of a graph, where all predicates are relations, have head, relation and tail; of any other knowledge base,
        predicate, ``arg1``, … and ``class``, empty where a predicate has fewer arguments.

        >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob")])
        >>> kb.to_frame(library="polars").rows()
        [('ann', 'parent_of', 'bob')]
        """
        from rulewright.tables import build_frame

        if predicate is not None:
            return build_frame(self._label_columns(predicate, self.columns(predicate, truth=truth)), library)
        if all(signature(declaration) == "ee" for declaration in self.predicates.values()):
            names = {"arg1": "head", "predicate": "relation", "arg2": "tail"}
        else:
            widest = max(declaration.arity for declaration in self.predicates.values())
            names = {name: name for name in ("predicate", *(f"arg{position + 1}" for position in range(widest)))}
            if any(declaration.classes is not None for declaration in self.predicates.values()):
                names["class"] = "class"
        columns: dict[str, list[object]] = {name: [] for name in names.values()}
        for predicate in self.predicates:
            count = self.count(predicate, truth=truth)
            labels: dict[str, list[Value]] = {"predicate": [predicate] * count}
            labels |= self._label_columns(predicate, self.columns(predicate, truth=truth))
            for name, column in names.items():
                columns[column] += labels[name] if name in labels else [None] * count
        return build_frame(columns, library)

    def _label_columns(self, name: str, columns: Sequence[Column]) -> dict[str, list[Value]]:
        """Turn a predicate's columns into labels, under the names that they have in a data frame."""
        declaration = self.predicate(name)
        labels: dict[str, list[Value]] = {}
        for position, (type_name, column) in enumerate(zip(declaration.types, columns, strict=False), start=1):
            values = column if type_name == NUMBER_TYPE else self.domains[type_name].labels_of(column)
            labels[f"arg{position}"] = values.tolist()
        if declaration.classes is not None:
            labels["class"] = [declaration.classes[class_index] for class_index in columns[-1]]
        return labels

    def _repr_html_(self) -> str:
        """Show the predicates as a table in notebooks."""
        from rulewright.tables import html_table

        predicates = sorted(self.summary().predicates, key=lambda predicate: -predicate.facts)
        columns: dict[str, list[object]] = {
            "predicate": [predicate.name for predicate in predicates],
            "types": [", ".join(predicate.types) for predicate in predicates],
            "facts": [predicate.facts for predicate in predicates],
            "observed false": [predicate.false_facts or None for predicate in predicates],
            "classes": [", ".join(predicate.classes) if predicate.classes else None for predicate in predicates],
            "closed": ["closed" if predicate.closed else None for predicate in predicates],
        }
        shown = {name: values for name, values in columns.items() if name == "facts" or any(value for value in values)}
        return html_table([*shown], zip(*shown.values(), strict=True), caption=repr(self))

    def summary(self) -> Summary:
        """Return the figures that a person looks at first."""
        return Summary(
            notes=self.notes,
            entities=self.n_entities,
            types={name: len(domain) for name, domain in self.domains.items()},
            worlds=len(self.worlds),
            facts=self.n_facts,
            false_facts=self.n_false_facts,
            duplicates=self.duplicates,
            splits={name: split.n_facts + split.n_false_facts for name, split in self.splits.items()},
            predicates=tuple(
                PredicateSummary(
                    name,
                    declaration.types,
                    declaration.classes,
                    name in self.closed,
                    self.count(name),
                    self.count(name, truth=False),
                )
                for name, declaration in self.predicates.items()
            ),
        )

    def __repr__(self) -> str:
        parts = [
            format_count(self.n_entities, "entity", "entities"),
            format_count(len(self.predicates), "predicate", "predicates"),
            format_count(self.n_facts, "fact", "facts"),
        ]
        if self.n_false_facts:
            parts.append(f"{self.n_false_facts:,} observed false")
        if self.worlds:
            parts.append(format_count(len(self.worlds), "world", "worlds"))
        parts += [f"{name}: {split.n_facts + split.n_false_facts:,}" for name, split in self.splits.items()]
        return f"KnowledgeBase({', '.join(parts)})"


def _entity_columns(table: FactTable) -> list[Column]:
    """Return the columns of a table that hold entities."""
    return [column for column, letter in zip(table.columns, table.signature, strict=True) if letter == "e"]


@dataclass(frozen=True)
class PredicateSummary:
    """One predicate's figures."""

    name: str
    types: tuple[str, ...]
    classes: tuple[str, ...] | None
    closed: bool
    facts: int
    false_facts: int


@dataclass(frozen=True)
class Summary:
    """The figures of a knowledge base; ``str`` is a table of plain text.

    >>> print(KnowledgeBase.from_triples([("ann", "parent_of", "bob")]).summary())
    entities        2
    predicates      1
    facts           1
    <BLANKLINE>
    predicate                       facts
    parent_of(entity, entity)           1
    """

    entities: int
    types: dict[str, int]
    worlds: int
    facts: int
    false_facts: int
    duplicates: int
    splits: dict[str, int]
    predicates: tuple[PredicateSummary, ...]
    notes: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, object]:
        """Return plain values, ready for JSON."""
        return asdict(self)

    def figures(self) -> list[tuple[str, int]]:
        """Return the named totals that are worth showing."""
        rows = [("entities", self.entities)]
        if len(self.types) > 1:
            rows += [(f"  {name}", size) for name, size in self.types.items()]
        if self.worlds:
            rows.append(("worlds", self.worlds))
        rows += [("predicates", len(self.predicates)), ("facts", self.facts)]
        if self.false_facts:
            rows.append(("observed false", self.false_facts))
        if self.duplicates:
            rows.append(("repeated facts", self.duplicates))
        return rows + [(f"{name} facts", size) for name, size in self.splits.items()]

    def __str__(self) -> str:
        lines = [f"{name:<15} {value:,}" for name, value in self.figures()]
        shown = sorted(self.predicates, key=lambda predicate: -predicate.facts)
        names = [f"{predicate.name}({', '.join(predicate.types)})" for predicate in shown]
        width = max([27, *map(len, names)])
        lines += ["", f"{'predicate':<{width}} {'facts':>9}"]
        lines += [f"{name:<{width}} {predicate.facts:>9,}" for name, predicate in zip(names, shown, strict=True)]
        lines += ["", *self.notes] if self.notes else []
        return "\n".join(lines)
