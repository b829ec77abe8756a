"""Which instances of rules give one fact: bound joins over the known facts, or over all that follow from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from rulewright.data import KnowledgeBase, Value, signature
from rulewright.engine import SQLEngine
from rulewright.engine.sql import Column, Join, table_name
from rulewright.errors import DataError, unknown_name
from rulewright.logic import (
    NUMBER_TYPE,
    Atom,
    Comparison,
    Head,
    Membership,
    Number,
    Symbol,
    Term,
    Variable,
    parse_formula,
)
from rulewright.reason.apply import Chaining, Limits, places
from rulewright.reason.batches import Batch, batches
from rulewright.reason.fact_index import FactIndex, IndexedJoin
from rulewright.reason.program import Derivation, Program, positive_atoms, relevant

Key: TypeAlias = tuple[float, ...]
"""The number of a predicate, its arguments as ids or numbers, and where it has classes the number of the class."""


def read_fact(fact: str | Head | Sequence[Value], kb: KnowledgeBase) -> Head:
    """Read a ground fact given as text, as an atom, or as a tuple (predicate, argument, …[, class]).

    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "Bob B")])
    >>> print(read_fact(("parent_of", "ann", "Bob B"), kb), read_fact("parent_of(ann, ann)", kb))
    parent_of(ann, 'Bob B') parent_of(ann, ann)
    >>> read_fact("parent_of(ann, X)", kb)
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: a fact names everything; X in parent_of(ann, X) is a variable
    """
    if isinstance(fact, str):
        found = parse_formula(fact)
        if not isinstance(found, Atom | Membership):
            raise DataError(f"expected a fact such as parent_of(ann, bob), got {fact}")
    elif isinstance(fact, Atom | Membership):
        found = fact
    else:
        found = _labelled(fact, kb)
    declaration = kb.predicate(str(found.predicate))
    if len(found.args) != declaration.arity:
        raise DataError(f"{declaration.name} has {declaration.arity} arguments, got {found}")
    if (declaration.classes is not None) != isinstance(found, Membership):
        how = "is multi-class; write 'in {…}'" if declaration.classes else "is not multi-class"
        raise DataError(f"{declaration.name} {how}: {found}")
    if isinstance(found, Membership) and len(found.classes) > 1:
        raise DataError(f"a fact names one class, got {found}")
    for term in found.args:
        if isinstance(term, Variable):
            raise DataError(f"a fact names everything; {term} in {found} is a variable")
    return found


def _labelled(fact: Sequence[Value], kb: KnowledgeBase) -> Head:
    name, *args = fact
    declaration = kb.predicate(str(name))
    terms: list[Term] = [Symbol(each) if isinstance(each, str) else Number(each) for each in args[: declaration.arity]]
    atom = Atom(declaration.name, tuple(terms))
    return atom if declaration.classes is None else Membership(atom, tuple(map(str, args[declaration.arity :])))


def key_of(fact: Head, kb: KnowledgeBase) -> Key:
    """Return the numbers of a ground fact; an entity or class that is not there is an error with the nearest ones."""
    declaration = kb.predicate(str(fact.predicate))
    key: list[float] = [kb.predicate_index(declaration.name)]
    for term, kind in zip(fact.args, declaration.types, strict=True):
        if isinstance(term, Number) != (kind == NUMBER_TYPE):
            wanted = "a number" if kind == NUMBER_TYPE else "an entity; quote a name that looks like a number"
            raise DataError(f"{term} in {fact} must be {wanted}")
        key.append(float(term.value) if isinstance(term, Number) else kb.domains[kind].index_of(_name(term)))
    if isinstance(fact, Membership):
        classes = declaration.classes or ()
        if fact.classes[0] not in classes:
            raise unknown_name(f"class of {declaration.name}", fact.classes[0], classes)
        key.append(classes.index(fact.classes[0]))
    return tuple(key)


def _name(term: Term) -> str:
    assert isinstance(term, Symbol)
    return term.name


def fact_of(key: Key, kb: KnowledgeBase) -> Head:
    """Return the fact that numbers stand for.

    >>> kb = KnowledgeBase.from_facts([("age", "ann", 42)])
    >>> print(fact_of(key_of(read_fact("age(ann, 42)", kb), kb), kb))
    age(ann, 42.0)
    """
    declaration = list(kb.predicates.values())[int(key[0])]
    args: list[Term] = []
    for value, kind in zip(key[1:], declaration.types, strict=False):
        if kind == NUMBER_TYPE:
            args.append(Number(float(value)))
        else:
            args.append(Symbol(str(kb.domains[kind].labels_of(int(value)))))
    atom = Atom(declaration.name, tuple(args))
    return atom if declaration.classes is None else Membership(atom, (declaration.classes[int(key[-1])],))


MOST = 10_000
"""The most instances of rules that are looked at for one fact."""


class Instance(NamedTuple):
    """A derivation, by its place, with the facts of its body: whether each is known, and the score of its best proof.

    ``bound`` is the highest score that a proof by this instance can have.
    """

    bound: float
    place: int
    premises: tuple[Key, ...]
    known: tuple[bool, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True)
class _Model:
    """What was chained: for which predicates and how many rounds, None for the fixed point."""

    predicates: frozenset[str]
    wanted: int | None
    rounds: int
    note: str


def every(kind: str) -> str:
    """Return the name of the table of all facts, with scores and whether each is known."""
    return f"every_{kind}"


class Instances:
    """Finds the instances of rules that give a fact. What was found is kept until more facts are chained."""

    def __init__(self, program: Program, engine: SQLEngine, max_facts: int) -> None:
        self.program, self.engine, self.max_facts = program, engine, max_facts
        self.batches = batches(list(enumerate(program.derivations)), program.kb, engine, prefix="goal")
        self._index = FactIndex(program.kb)
        self.truncated = False
        self._model: _Model | None = None
        self._chained = False
        self._needed: dict[str, tuple[set[str], list[Derivation], bool, bool]] = {}
        self._found: dict[tuple[bool, Key], list[Instance]] = {}

    def settle(self, predicate: str, depth: int | None) -> tuple[int, str]:
        """Make ready the facts that proofs up to a depth may rest on; return how deep they can go, and what is amiss.

        Nothing is chained for proofs of one rule, unless a rule asks that something is absent which could follow.
        """
        below, wanted, absent, chains = self._needs(predicate)
        self._chained = absent or (chains and depth != 1)
        if not self._chained:
            return 1, ""
        rounds = None if absent or depth is None else depth - 1
        if not self._covers(below, rounds):
            self._model = self._chain(below, wanted, rounds)
            self._found.clear()
        assert self._model is not None
        if absent and self._model.note:
            return 0, f"what must be absent cannot be settled: {self._model.note}"
        return (self._model.rounds + 1 if depth is None else depth), self._model.note

    def _needs(self, predicate: str) -> tuple[set[str], list[Derivation], bool, bool]:
        """Return what a predicate rests on: predicates and derivations; and whether these need the absence or the
        presence of something that can be derived.
        """
        if predicate not in self._needed:
            below = relevant(self.program.derivations, [predicate])
            wanted = [each for each in self.program.derivations if each.head.predicate in below]
            derived = {str(each.head.predicate) for each in wanted}
            signs = {
                literal.positive
                for each in wanted
                for literal in each.body
                if not isinstance(literal.unit, Comparison) and literal.unit.predicate in derived
            }
            self._needed[predicate] = (below, wanted, False in signs, True in signs)
        return self._needed[predicate]

    def _covers(self, below: set[str], rounds: int | None) -> bool:
        model = self._model
        if model is None or not below <= model.predicates:
            return False
        return model.wanted is None or (rounds is not None and rounds <= model.wanted)

    def _chain(self, below: set[str], derivations: list[Derivation], rounds: int | None) -> _Model:
        program = replace(self.program, derivations=tuple(derivations), constraints=())
        chaining = Chaining(program, self.engine, "max", Limits(max_rounds=rounds, max_facts=self.max_facts))
        chaining.run()
        heads = {signature(self.program.kb.predicate(str(each.head.predicate))) for each in derivations}
        for kind in sorted({signature(each) for each in self.program.kb.predicates.values()}):
            key = ", ".join(["p", *places(kind)])
            parts = [f"SELECT {key}, 1.0 AS s, 1 AS b FROM {table_name(kind)}"]
            if kind in heads:
                parts.append(f"SELECT {key}, MAX(s) AS s, 0 AS b FROM given_{kind} GROUP BY {key}")
            self.engine.run(f"DROP TABLE IF EXISTS {every(kind)}")
            self.engine.run(f"CREATE TABLE {every(kind)} AS {' UNION ALL '.join(parts)}")
        return _Model(frozenset(below), rounds, chaining.rounds, chaining.note if chaining.overflowed else "")

    def of(self, key: Key) -> list[Instance]:
        """Return the instances that give a fact, those with the highest bound first."""
        place = (self._chained, key)
        if place not in self._found:
            found = [each for batch in self.batches for each in self._of_batch(batch, key)]
            found.sort(key=lambda each: (-each.bound, each.place, each.premises))
            self.truncated |= len(found) > MOST
            self._found[place] = found[:MOST]
        return self._found[place]

    def join(self, batch: Batch, key: Key) -> Join | None:
        """Join a batch with all facts, its head being the fact; None where its head cannot be that."""
        head = self._head(batch, key)
        if head is None:
            return None
        given, fixed = head
        conditions = [f"r.{name} = {value}" for name, value in fixed.items()]
        conditions += [f"r.h = {int(key[0])}"] if batch.is_open else []
        table = every if self._chained else None
        join = batch.join(self.program.kb, [table] * len(positive_atoms(batch.body)), table, given)
        join.conditions += conditions
        return join

    def _of_batch(self, batch: Batch, key: Key) -> Iterator[Instance]:
        if not self._chained and self._index.usable and IndexedJoin.fits(batch):
            yield from self._looked_up(batch, key)
            return
        join = self.join(batch, key)
        if join is None:
            return
        atoms = positive_atoms(batch.body)
        numbers = range(1, len(atoms) + 1)
        score = " * ".join(["r.s", *(f"t{number}.s" for number in numbers if self._chained)])
        columns = [f"{score} AS s", "r.d AS d", *self.fact_columns(atoms)]
        columns += [f"t{number}.{name} AS {name}_{number}" for number in numbers for name in "bs" if self._chained]
        rows = self.engine.run(join.select(", ".join(columns), f" ORDER BY s DESC, d LIMIT {MOST + 1}"))
        size = len(rows["s"])
        known = [rows[f"b_{number}"].astype(bool).tolist() if self._chained else [True] * size for number in numbers]
        scores = [rows[f"s_{number}"].tolist() if self._chained else [1.0] * size for number in numbers]
        of_each = (
            [*zip(*part, strict=True)] if atoms else [()] * size for part in (self.keys(rows, atoms), known, scores)
        )
        yield from map(Instance, rows["s"].tolist(), rows["d"].tolist(), *of_each)

    def _looked_up(self, batch: Batch, key: Key) -> Iterator[Instance]:
        head = self._head(batch, key)
        if head is None:
            return
        given, fixed = head
        numbers = {variable: int(value) for variable, (value, _) in given.items()}
        join = IndexedJoin.of(self._index, batch, int(key[0]), numbers, fixed)
        size = len(join.rules)
        keys = list(zip(*join.premises(), strict=True)) if size else []
        sure = len(positive_atoms(batch.body))
        for bound, place, premises in zip(
            join.column("s").tolist(), join.column("d").tolist(), keys or [()] * size, strict=True
        ):
            yield Instance(bound, place, premises, (True,) * sure, (1.0,) * sure)

    def fact_columns(self, atoms: Sequence[Head]) -> list[str]:
        """Return what must be selected to know the facts that atoms are joined with."""
        return [
            f"t{number}.{name} AS {name}_{number}"
            for number, unit in enumerate(atoms, start=1)
            for name in self._names(unit)
        ]

    def keys(self, rows: dict[str, Column], atoms: Sequence[Head]) -> list[list[Key]]:
        """Return for each atom the facts it is joined with, row by row."""
        return [
            list(zip(*(rows[f"{name}_{number}"].tolist() for name in self._names(unit)), strict=True))
            for number, unit in enumerate(atoms, start=1)
        ]

    def _names(self, unit: Head) -> list[str]:
        if isinstance(unit.predicate, str):
            return ["p", *places(signature(self.program.kb.predicate(unit.predicate)))]
        return ["p", *places("e" * len(unit.args))]

    def _head(self, batch: Batch, key: Key) -> tuple[dict[Variable, tuple[str, str]], dict[str, int]] | None:
        """Return the values of the head's variables and of columns of the table of rules; None where it cannot be."""
        kb, head = self.program.kb, batch.head
        fixed: dict[str, int] = {}
        if batch.is_open:
            if len(key) != 1 + len(head.args) or int(key[0]) not in batch.columns["h"]:
                return None
            types = ("",) * len(head.args)
        else:
            declaration = kb.predicate(str(head.predicate))
            types = declaration.types
            if kb.predicate_index(declaration.name) != key[0]:
                return None
            if isinstance(head, Membership) and (declaration.classes or ()).index(head.classes[0]) != key[-1]:
                return None
        given: dict[Variable, tuple[str, str]] = {}
        for term, value, kind in zip(head.args, key[1:], types, strict=False):
            text = repr(float(value)) if kind == NUMBER_TYPE else str(int(value))
            if isinstance(term, Variable) and batch.is_open and term.name.lower() in batch.columns:
                fixed[term.name.lower()] = int(value)
            elif isinstance(term, Variable):
                if given.setdefault(term, (text, kind)) != (text, kind):
                    return None
            elif (float(term.value) if isinstance(term, Number) else kb.domains[kind].find(term.name)) != value:
                return None
        return given, fixed
