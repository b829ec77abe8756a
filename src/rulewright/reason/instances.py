"""Which instances of rules give one fact: joins over the known facts, or over all that follow from them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple, TypeAlias

import numpy as np

from rulewright.checks import read_memory_limit
from rulewright.data import KnowledgeBase, Value, signature
from rulewright.engine.batches import Derivation, FactIndex, RuleBatch, batch_derivations, join_by_index
from rulewright.engine.sql import (
    Column,
    Join,
    SQLEngine,
    argument_columns,
    check_arguments,
    positive_atoms,
    table_name,
)
from rulewright.engine.stored_facts import StoredFacts
from rulewright.errors import DataError, ParseError, unknown_name
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
from rulewright.reason.apply import ForwardChaining
from rulewright.reason.program import RuleProgram, find_relevant

FactKey: TypeAlias = tuple[float, ...]
"""The index of a predicate, its arguments as indices or numbers, and where it has classes the index of the class."""


def read_fact(fact: str | Head | Sequence[Value], kb: KnowledgeBase) -> tuple[Head, FactKey]:
    """Read a ground fact given as text, as an atom, or as a tuple (predicate, argument, …[, class]); add its key.

    Text is an atom, in which known names need no quotes, or what `apply` writes: a line of TSV, an object of JSON.

    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "Bob B")])
    >>> print(*read_fact(("parent_of", "ann", "Bob B"), kb), *read_fact("parent_of(ann, ann)", kb))
    parent_of(ann, 'Bob B') (0, 0, 1) parent_of(ann, ann) (0, 0, 0)
    >>> print(read_fact("parent_of(ann, Bob B)", kb)[0], read_fact("ann\\tparent_of\\tBob B\\t0.9\\t3", kb)[0])
    parent_of(ann, 'Bob B') parent_of(ann, 'Bob B')
    >>> print(read_fact('{"predicate": "parent_of", "args": ["ann", "Bob B"], "score": 0.9}', kb)[0])
    parent_of(ann, 'Bob B')
    >>> read_fact("parent_of(ann, X)", kb)
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: a fact names everything; X in parent_of(ann, X) is a variable
    """
    head: Head
    if isinstance(fact, str):
        fact = _read_text(fact, kb)
    if isinstance(fact, Atom | Membership):
        head = fact
    else:
        name, *values = fact
        declaration = kb.predicate(str(name))
        args = values[: declaration.arity]
        head = Atom(str(name), tuple(Symbol(arg) if isinstance(arg, str) else Number(arg) for arg in args))
        if declaration.classes is not None:
            head = Membership(head, tuple(map(str, values[declaration.arity :])))
    check_arguments(head, kb)
    declaration = kb.predicate(str(head.predicate))
    if isinstance(head, Membership) and len(head.classes) > 1:
        raise DataError(f"a fact names one class, got {head}")
    for term in head.args:
        if isinstance(term, Variable):
            raise DataError(f"a fact names everything; {term} in {head} is a variable")
    key: list[float] = [kb.predicate_index(declaration.name)]
    for term, type_name in zip(head.args, declaration.types, strict=True):
        if isinstance(term, Number) != (type_name == NUMBER_TYPE):
            needs_number = type_name == NUMBER_TYPE
            wanted = "a number" if needs_number else "an entity; quote a name that looks like a number"
            raise DataError(f"{term} in {head} must be {wanted}")
        key.append(float(term.value) if isinstance(term, Number) else kb.domains[type_name].index_of(term.name))
    if isinstance(head, Membership):
        classes = declaration.classes or ()
        if head.classes[0] not in classes:
            raise unknown_name(f"class of {declaration.name}", head.classes[0], classes)
        key.append(classes.index(head.classes[0]))
    return head, tuple(key)


def _read_text(text: str, kb: KnowledgeBase) -> Head | Sequence[Value]:
    """Read the text of a fact: a line of TSV, an object of JSON, or an atom."""
    if "\t" in text.strip():
        first, predicate, second, *_ = [*text.strip().split("\t"), "", ""]
        is_number = predicate in kb.predicates and kb.predicate(predicate).types[-1] == NUMBER_TYPE
        return (predicate, first, _read_number(second, text) if is_number else second)
    if text.lstrip().startswith("{"):
        try:
            record = json.loads(text)
            return (str(record["predicate"]), *record["args"], *(record[key] for key in ("class",) if key in record))
        except (ValueError, KeyError, TypeError):
            message = 'expected an object such as {"predicate": "parent_of", "args": ["ann", "bob"]}'
            raise DataError(f"{message}, got {text}") from None
    try:
        formula = parse_formula(text.strip().removesuffix("."))
    except ParseError:
        unquoted = _read_unquoted(text, kb)
        if unquoted is None:
            raise
        return unquoted
    if not isinstance(formula, Atom | Membership):
        raise DataError(f"expected a fact such as parent_of(ann, bob), got {text}")
    has_variables = any(isinstance(term, Variable) for term in formula.args)
    return (_read_unquoted(text, kb) if has_variables else None) or formula


def _read_unquoted(text: str, kb: KnowledgeBase) -> Atom | None:
    """Read an atom whose names may stand without quotes, where all of them are known."""
    name, _, inside = text.strip().removesuffix(".").partition("(")
    name = name.strip()
    if name not in kb.predicates or not inside.endswith(")"):
        return None
    inside, types = inside.removesuffix(")"), kb.predicate(name).types
    splits = [inside.split(",")]
    if len(types) == 2:  # a name may have a comma in it
        commas = [position for position, letter in enumerate(inside) if letter == ","]
        splits = [[inside[:comma], inside[comma + 1 :]] for comma in commas]
    for parts in [[inside]] if len(types) == 1 else splits:
        names = [part.strip() for part in parts]
        if len(names) == len(types) and all(
            type_name != NUMBER_TYPE and kb.domains[type_name].find(label) is not None
            for label, type_name in zip(names, types, strict=True)
        ):
            return Atom(name, tuple(map(Symbol, names)))
    return None


def _read_number(text: str, line: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise DataError(f"{text} in {line} must be a number") from None


def is_fact(key: FactKey, kb: KnowledgeBase, *, truth: bool = True) -> bool:
    """Return whether a fact is known, or with ``truth=False`` observed to be false."""
    if isinstance(kb, StoredFacts):
        return kb.holds(key, truth=truth)
    declaration = list(kb.predicates.values())[int(key[0])]
    table = kb.tables(truth=truth).get(signature(declaration))
    if table is None:
        return False
    columns = zip(table.columns_of(int(key[0])), key[1:], strict=True)
    return bool(np.all([column == value for column, value in columns], axis=0).any())


def decode_fact(key: FactKey, kb: KnowledgeBase) -> Head:
    """Return the fact of a key.

    >>> kb = KnowledgeBase.from_facts([("age", "ann", 42)])
    >>> print(decode_fact(read_fact("age(ann, 42)", kb)[1], kb))
    age(ann, 42.0)
    """
    declaration = list(kb.predicates.values())[int(key[0])]
    args: list[Term] = [
        Number(float(value)) if type_name == NUMBER_TYPE else Symbol(str(kb.domains[type_name].labels_of(int(value))))
        for value, type_name in zip(key[1:], declaration.types, strict=False)
    ]
    atom = Atom(declaration.name, tuple(args))
    return atom if declaration.classes is None else Membership(atom, (declaration.classes[int(key[-1])],))


MAX_INSTANCES = 10_000
"""The most instances of rules that are looked at for one fact."""


class Instance(NamedTuple):
    """A derivation, by its index, with the facts of its body: whether each is known, and the score of its best proof.

    ``bound`` is the highest score that a proof by this instance can have.
    """

    bound: float
    derivation: int
    premises: tuple[FactKey, ...]
    known: tuple[bool, ...]
    scores: tuple[float, ...]


@dataclass(frozen=True)
class _Needs:
    """What a predicate rests on, and whether that asks for the absence or presence of something derived."""

    predicates: frozenset[str]
    derivations: tuple[Derivation, ...]
    absence: bool
    presence: bool


@dataclass(frozen=True)
class _ChainedFacts:
    """What was chained: for which predicates and how many rounds, None for the fixed point."""

    predicates: frozenset[str]
    max_rounds: int | None
    rounds: int
    note: str


def all_facts_table(fact_signature: str) -> str:
    """Return the name of the table of all facts, known and chained, with scores and whether each is known."""
    return f"every_{fact_signature}"


class InstanceFinder:
    """Finds the instances of rules that give a fact. What was found is kept until more facts are chained.

    Over known facts of one or two entities that is done by indexed joins. Only what these cannot do starts a database.
    """

    def __init__(self, program: RuleProgram, max_facts: int, memory_limit: int | str | None = None) -> None:
        self.program, self.max_facts, self._memory_limit = program, max_facts, read_memory_limit(memory_limit)
        self.batches = batch_derivations(enumerate(program.derivations), program.kb, prefix="goal")
        self.truncated = False
        self._index = None if isinstance(program.kb, StoredFacts) else FactIndex(program.kb)
        self._chained: _ChainedFacts | None = None
        self._uses_chained = False
        self._needs: dict[str, _Needs] = {}
        self._instances: dict[tuple[bool, FactKey], list[Instance]] = {}

    @cached_property
    def engine(self) -> SQLEngine:
        """The database with the facts and the tables of rules."""
        from rulewright.engine.duckdb import Engine

        kb = self.program.kb
        engine = kb.engine if isinstance(kb, StoredFacts) else Engine(kb, memory_limit=self._memory_limit)
        for batch in self.batches:
            engine.put(batch.name, batch.columns)
        return engine

    def settle(self, predicate: str, depth: int | None) -> tuple[int, str]:
        """Make ready the facts that proofs up to a depth may rest on; return how deep they can go, and what is amiss.

        Nothing is chained for proofs of one rule, unless a rule asks that something is absent which could follow.
        """
        if predicate not in self._needs:
            relevant = find_relevant(self.program.derivations, predicate)
            rules = [rule for rule in self.program.derivations if rule.head.predicate in relevant]
            derived = {str(rule.head.predicate) for rule in rules}
            signs = {
                literal.positive
                for rule in rules
                for literal in rule.body
                if not isinstance(literal.unit, Comparison) and literal.unit.predicate in derived
            }
            self._needs[predicate] = _Needs(frozenset(relevant), tuple(rules), False in signs, True in signs)
        needs = self._needs[predicate]
        self._uses_chained = needs.absence or (needs.presence and depth != 1)
        if not self._uses_chained:
            return 1, ""
        max_rounds = None if needs.absence or depth is None else depth - 1
        chained = self._chained
        if (
            chained is None
            or not needs.predicates <= chained.predicates
            or (chained.max_rounds is not None and (max_rounds is None or max_rounds > chained.max_rounds))
        ):
            chained = self._chained = self._chain(needs, max_rounds)
            self._instances.clear()
        if needs.absence and chained.note:
            return 0, f"what must be absent cannot be settled: {chained.note}"
        return (chained.rounds + 1 if depth is None else depth), chained.note

    def rest_on_known(self) -> None:
        """Look for instances over the known facts alone; what must be absent is absent from these."""
        self._uses_chained = False

    def close(self) -> None:
        """Let go of a database that was started here."""
        if "engine" in vars(self) and not isinstance(self.program.kb, StoredFacts):
            self.engine.close()  # only what indexed joins cannot do starts a database

    def _chain(self, needs: _Needs, max_rounds: int | None) -> _ChainedFacts:
        kb = self.program.kb
        program = replace(self.program, derivations=needs.derivations, constraints=())
        chaining = ForwardChaining(program, self.engine, max_rounds=max_rounds, max_facts=self.max_facts)
        chaining.run()
        heads = {signature(kb.predicate(str(derivation.head.predicate))) for derivation in needs.derivations}
        for fact_signature in sorted({signature(declaration) for declaration in kb.predicates.values()}):
            key = ", ".join(["p", *argument_columns(fact_signature)])
            parts = [f"SELECT {key}, CAST(1 AS DOUBLE) AS s, 1 AS b FROM {table_name(fact_signature)}"]
            if fact_signature in heads:
                parts.append(f"SELECT {key}, MAX(s) AS s, 0 AS b FROM given_{fact_signature} GROUP BY {key}")
            self.engine.create(all_facts_table(fact_signature), " UNION ALL ".join(parts))
        note = chaining.note if chaining.overflowed else ""
        return _ChainedFacts(needs.predicates, max_rounds, chaining.rounds, note)

    def find(self, key: FactKey) -> list[Instance]:
        """Return the instances that give a fact, those with the highest bound first."""
        slot = (self._uses_chained, key)
        if slot not in self._instances:
            instances = [instance for batch in self.batches for instance in self._find_in_batch(batch, key)]
            instances.sort(key=lambda instance: (-instance.bound, instance.derivation, instance.premises))
            self.truncated |= len(instances) > MAX_INSTANCES
            self._instances[slot] = instances[:MAX_INSTANCES]
        return self._instances[slot]

    def _find_in_batch(self, batch: RuleBatch, key: FactKey) -> Iterator[Instance]:
        head = self._bind_head(batch, key)
        if head is None:
            return
        atoms = positive_atoms(batch.body)
        joined = None
        if batch.is_open and self._index is not None and not self._uses_chained:
            given = {variable: int(value) for variable, (value, _) in head[0].items()}
            joined = join_by_index(self._index, batch, int(key[0]), given, head[1])
        if joined is not None:
            rules, premises = joined
            bounds, derivations = (batch.columns[name][rules].tolist() for name in "sd")
            for bound, derivation, facts in zip(bounds, derivations, premises, strict=True):
                yield Instance(bound, derivation, facts, (True,) * len(atoms), (1.0,) * len(atoms))
            return
        join = self.join(batch, key)
        assert join is not None
        aliases = range(1, len(atoms) + 1)
        score = " * ".join(["r.s", *(f"t{alias}.s" for alias in aliases if self._uses_chained)])
        columns = [f"{score} AS s", "r.d AS d", *self.fact_columns(atoms)]
        if self._uses_chained:
            columns += [f"t{alias}.{name} AS {name}_{alias}" for alias in aliases for name in "bs"]
        rows = self.engine.run(join.select(", ".join(columns), f" ORDER BY s DESC, d LIMIT {MAX_INSTANCES + 1}"))
        size = len(rows["s"])
        known, scores = [[True] * size for _ in atoms], [[1.0] * size for _ in atoms]
        if self._uses_chained:
            known = [rows[f"b_{alias}"].astype(bool).tolist() for alias in aliases]
            scores = [rows[f"s_{alias}"].tolist() for alias in aliases]
        parts = (
            [*zip(*part, strict=True)] if atoms else [()] * size
            for part in (self.read_facts(rows, atoms), known, scores)
        )
        yield from map(Instance, rows["s"].tolist(), rows["d"].tolist(), *parts)

    def join(self, batch: RuleBatch, key: FactKey) -> Join | None:
        """Join a batch with all facts, its head being the fact; None where its head cannot be that."""
        head = self._bind_head(batch, key)
        if head is None:
            return None
        given, fixed = head
        table = all_facts_table if self._uses_chained else table_name
        join = batch.join(self.program.kb, [table] * len(positive_atoms(batch.body)), table, given)
        join.conditions += [f"r.{name} = {value}" for name, value in fixed.items()]
        join.conditions += [f"r.h = {int(key[0])}"] if batch.is_open else []
        return join

    def fact_columns(self, atoms: Sequence[Head]) -> list[str]:
        """Return what must be selected to know the facts that atoms are joined with."""
        return [
            f"t{alias}.{name} AS {name}_{alias}"
            for alias, unit in enumerate(atoms, start=1)
            for name in self._table_columns(unit)
        ]

    def read_facts(self, rows: dict[str, Column], atoms: Sequence[Head]) -> list[list[FactKey]]:
        """Return for each atom the facts it is joined with, row by row."""
        return [
            list(zip(*(rows[f"{name}_{alias}"].tolist() for name in self._table_columns(unit)), strict=True))
            for alias, unit in enumerate(atoms, start=1)
        ]

    def _table_columns(self, unit: Head) -> list[str]:
        named = isinstance(unit.predicate, str)
        fact_signature = signature(self.program.kb.predicate(str(unit.predicate))) if named else "e" * len(unit.args)
        return ["p", *argument_columns(fact_signature)]

    def _bind_head(
        self, batch: RuleBatch, key: FactKey
    ) -> tuple[dict[Variable, tuple[str, str]], dict[str, int]] | None:
        """Return the values of the head's variables and of columns of the table of rules; None where it cannot be."""
        kb, head = self.program.kb, batch.head
        types: tuple[str, ...] = ("",) * len(head.args)
        if batch.is_open:
            if len(key) != 1 + len(head.args) or int(key[0]) not in batch.columns["h"]:
                return None
        else:
            declaration = kb.predicate(str(head.predicate))
            types = declaration.types
            if kb.predicate_index(declaration.name) != key[0]:
                return None
            if isinstance(head, Membership) and (declaration.classes or ()).index(head.classes[0]) != key[-1]:
                return None
        given: dict[Variable, tuple[str, str]] = {}
        fixed: dict[str, int] = {}
        for term, value, type_name in zip(head.args, key[1:], types, strict=False):
            text = repr(float(value)) if type_name == NUMBER_TYPE else str(int(value))
            if isinstance(term, Variable) and batch.is_open and term.name.lower() in batch.columns:
                fixed[term.name.lower()] = int(value)
            elif isinstance(term, Variable):
                if given.setdefault(term, (text, type_name)) != (text, type_name):
                    return None
            elif (float(term.value) if isinstance(term, Number) else kb.domains[type_name].find(term.name)) != value:
                return None
        return given, fixed
