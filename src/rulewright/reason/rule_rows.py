"""Statements read as the rules of a query: which path each walks, or which pairs it gives."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, signature
from rulewright.data.facts import distinct_rows, group_by_signature
from rulewright.data.index import Ids
from rulewright.engine import StoredFacts
from rulewright.engine.batches import Derivation, Source, batch_derivations
from rulewright.engine.walks import ANY_ENTITY, TURNED, WAYS, Graph, RuleForm, RuleTable, Ways
from rulewright.errors import DataError
from rulewright.logic import (
    Atom,
    Chain,
    Comparison,
    Formula,
    Head,
    Implies,
    Not,
    Path,
    Rule,
    RuleSet,
    Statement,
    Template,
    Term,
    Variable,
    WeightedFormula,
    encode_step,
    mirror_path,
)
from rulewright.logic import Literal as LogicLiteral
from rulewright.reason.inferred import Aggregation
from rulewright.reason.program import add_new_predicates, find_relevant, is_about_one_end, read_formula

Scores = npt.NDArray[np.float64]


def choose_aggregation(rules: RuleSet) -> Aggregation:
    """Return how rules combine where nobody says: ``weight`` where they carry weights, else ``max-plus``."""
    carries_weights = any(
        (isinstance(statement, WeightedFormula) and statement.kind == "soft")
        or "weight" in statement.annotations
        or "weight_inverse" in statement.annotations
        for statement in rules
        if not isinstance(statement, Template)
    )
    return "weight" if carries_weights else "max-plus"


class RankedRule(NamedTuple):
    """A statement as a row of the table of one query; see `RuleTable`."""

    path: Path
    form: RuleForm
    constant: int
    end: int
    weight: float
    ways: str
    source: Source
    second: Path = ()


def read_rows(
    statements: Iterable[Statement],
    kb: KnowledgeBase,
    *,
    weighted: bool,
    asked: tuple[int, int] | None = None,
    memory_limit: int | str | None = None,
) -> tuple[dict[int, list[RankedRule]], Graph]:
    """Return the rules of every query, by its step, and the graph to run them on.

    Each has its confidence, or with ``weighted`` its weights: the annotations ``weight`` for ``r(X, ?)`` and
    ``weight_inverse`` for ``r(?, X)``; a rule that has neither weighs ``−log(1 − confidence)``. ``ways`` says what many
    ways along a path count (`path_truth`). With ``weighted``, soft formulas speak too: ``w body => r(X, Y)``,
    ``w body => !r(X, Y)``, ``w X = Y => !r(X, Y)``, ``w r(X, c)`` and, of one end alone, ``w p(Y, Z) => r(X, Y)``. Hard
    formulas that read as rules are certain.

    A chain, its ends variables or entities, is walked, as are two chains between the same ends. Of any other rule an
    engine finds the pairs that it gives, once, or those with the entity ``asked`` (position in the head, entity index);
    they are a relation that only the graph has. Statements about anything but relations answer no query and are passed
    over.
    """
    reader = RowReader(kb, weighted)
    for statement in statements:
        reader.read(statement)
    empty = np.zeros(0, dtype=np.int64)
    for index, columns in find_heads(reader.derivations, kb, asked=asked, memory_limit=memory_limit).items():
        reader.derived[index] = (columns[0], columns[1])
    return reader.rows, Graph(kb, [pairs or (empty, empty) for pairs in reader.derived])


class RowReader:
    """Reads statements as rows. Those that are no chains wait among the ``derivations`` for an engine.

    ``derived`` has the relations that only the graph will have, as pairs; None where the engine is to find them, in
    derivations with its position as source index.
    """

    def __init__(self, kb: KnowledgeBase, weighted: bool) -> None:
        self.kb, self.weighted = kb, weighted
        self.rows: dict[int, list[RankedRule]] = defaultdict(list)
        self.derivations: list[Derivation] = []
        self.derived: list[tuple[Ids, Ids] | None] = []
        self._loopless: dict[int, int] = {}

    def read(self, statement: Statement) -> None:
        """Take up one statement."""
        if isinstance(statement, Template):
            raise DataError(f"a template has no facts to give until a learner has filled it: {statement}")
        if isinstance(statement, WeightedFormula) and statement.kind == "hard":
            derivations: list[Derivation] = []
            read_formula(statement, 0, derivations, [])
            for derivation in derivations:
                self._add(statement, derivation.head, (derivation.body,), 1.0)
        else:
            head, alternatives, sign = split_statement(statement, self.weighted)
            self._add(statement, head, alternatives, sign)

    def _add(self, statement: Source, head: Head, alternatives: Alternatives, sign: float) -> None:
        """Add the rows of a rule to the tables of ``r(X, ?)`` and ``r(?, X)``."""
        name = str(head.predicate)
        if not isinstance(head, Atom) or signature(self.kb.predicate(name)) != "ee":
            return
        ways = str(statement.annotations.get("ways", "")) if self.weighted else ""  # none: as the others of its head
        if ways and ways not in WAYS:
            raise DataError(f"ways must be one of {', '.join(WAYS)}, got {ways!r}: {statement}")
        walk = self._read_walk(head, alternatives[0]) if len(alternatives) == 1 else None
        if walk is None:
            index = len(self.derived)
            self.derived.append(None)
            self.derivations += [Derivation(head, tuple(body), statement, index) for body in alternatives]
            walk = RuleWalk((encode_step(len(self.kb.predicates) + index),), RuleForm.CLOSED)
        has_ways = walk.form in (RuleForm.CLOSED, RuleForm.APART)
        relation = self.kb.predicate_index(name)
        weights = read_weights(statement, self.weighted, sign)
        for inverse, weight in zip((False, True), weights, strict=True):
            path, form, second = walk.path, walk.form, walk.second
            if inverse and (has_ways or form == RuleForm.BOTH):
                path, second = mirror_path(path), mirror_path(second)
            elif inverse:
                form = TURNED.get(form, form)
            if weight:
                counting = ways if has_ways else ""
                row = RankedRule(path, form, walk.constant, walk.end, weight, counting, statement, second)
                self.rows[encode_step(relation, inverse)].append(row)

    def _read_walk(self, head: Atom, body: Sequence[Formula | LogicLiteral]) -> RuleWalk | None:
        """Read a conjunction as a path to walk; None where it is none."""
        units = [part.unit for part in body if isinstance(part, LogicLiteral) and part.positive]
        if len(units) < len(body):
            return None
        comparisons = [unit for unit in units if isinstance(unit, Comparison)]
        atoms = [unit for unit in units if isinstance(unit, Atom)]
        if len(comparisons) + len(atoms) < len(units):
            return None
        if any(signature(self.kb.predicate(str(atom.predicate))) != "ee" for atom in atoms):
            return None
        if not atoms and comparisons == [Comparison("=", *head.args)]:
            return RuleWalk((), RuleForm.CLOSED)
        if self.weighted and len(atoms) == 1 and not comparisons and (walk := self._read_lone(head, atoms[0])):
            return walk
        chain = Chain.read(head, atoms)
        if chain is None:
            return None if comparisons else self._read_both(head, atoms)
        relations = [self.kb.predicate_index(step.relation) for step in chain.steps]
        stops: list[Term] = []
        if comparisons:
            stops = chain.stops(atoms, next(term for term in head.args if isinstance(term, Variable)))
        is_apart = False
        for comparison in comparisons:
            if comparison.operator != "!=" or comparison.left not in stops or comparison.right not in stops:
                return None
            first, last = sorted(stops.index(term) for term in comparison.args)
            spans_all = last - first == len(chain.steps) and chain.is_closed
            if last - first == 1:  # the ends of a step differ where it is no loop
                relations[first] = self._without_loops(relations[first])
            elif not spans_all:
                return None
            is_apart |= spans_all
        if not chain.is_closed:
            return self._read_named(chain, relations)
        path = tuple(encode_step(relation, step.inverse) for relation, step in zip(relations, chain.steps, strict=True))
        return RuleWalk(path, RuleForm.APART if is_apart else RuleForm.CLOSED if path else RuleForm.EVERY)

    def _read_lone(self, head: Atom, atom: Atom) -> RuleWalk | None:
        """Read ``p(Y, Z)`` below ``r(X, Y)``, which says something of one end alone; None where it is no such body."""
        if not is_about_one_end(head, atom):
            return None
        position = 0 if atom.args[0] in head.args else 1
        form = RuleForm.ASKED_EDGES if atom.args[position] == head.args[0] else RuleForm.ANSWER_EDGES
        return RuleWalk((encode_step(self.kb.predicate_index(str(atom.predicate)), position == 1),), form)

    def _read_both(self, head: Atom, atoms: Sequence[Atom]) -> RuleWalk | None:
        """Read two chains that join both arguments of the head and share no other variable; None for other bodies."""
        parts: list[tuple[set[Term], list[Atom]]] = []
        for atom in atoms:
            inner = set(atom.args) - set(head.args)
            touching = [part for part in parts if part[0] & inner]
            parts = [part for part in parts if not part[0] & inner]
            parts.append(
                (
                    inner.union(*(part[0] for part in touching)),
                    [*(other for part in touching for other in part[1]), atom],
                )
            )
        chains = [Chain.read(head, part) for _, part in parts]
        if len(chains) != 2 or not all(one is not None and one.is_closed and one.steps for one in chains):
            return None
        path, second = (
            tuple(encode_step(self.kb.predicate_index(step.relation), step.inverse) for step in one.steps)
            for one in chains
            if one is not None
        )
        return None if path == second else RuleWalk(path, RuleForm.BOTH, second=second)

    def _read_named(self, chain: Chain, relations: Sequence[int]) -> RuleWalk:
        """Read a chain whose head names an entity."""
        symbol, position = (chain.last, 1) if chain.last else (chain.first, 0)
        assert symbol is not None
        constant = self.kb.domains[self.kb.predicate(chain.head).types[position]].index_of(symbol.name)
        end = ANY_ENTITY
        if chain.end is not None:
            last = chain.steps[-1]
            end = self.kb.domains[self.kb.predicate(last.relation).types[0 if last.inverse else 1]].index_of(
                chain.end.name
            )
        path = tuple(encode_step(relation, step.inverse) for relation, step in zip(relations, chain.steps, strict=True))
        return RuleWalk(path, RuleForm.ANSWER if chain.last else RuleForm.ASKED, constant, end)

    def _without_loops(self, relation: int) -> int:
        """Return the relation that has the facts of another but for those of an entity with itself."""
        if relation >= len(self.kb.predicates):
            return relation
        if relation not in self._loopless:
            heads, tails = self.kb.columns(list(self.kb.predicates)[relation])
            is_loop = heads == tails
            self._loopless[relation] = relation
            if is_loop.any():
                self._loopless[relation] = len(self.kb.predicates) + len(self.derived)
                self.derived.append((heads[~is_loop].astype(np.int64), tails[~is_loop].astype(np.int64)))
        return self._loopless[relation]


class RuleWalk(NamedTuple):
    """A rule as a path to walk, with what its form names."""

    path: Path
    form: RuleForm
    constant: int = ANY_ENTITY
    end: int = ANY_ENTITY
    second: Path = ()


Alternatives = Sequence[Sequence[LogicLiteral]]
"""A body as a disjunction of conjunctions."""


def split_statement(statement: Source, weighted: bool) -> tuple[Head, Alternatives, float]:
    """Return head, body and whether the statement speaks for its head (1) or against it (−1)."""
    if isinstance(statement, Rule):
        return statement.head, statement.alternatives(), 1.0
    if statement.kind == "learn":
        raise DataError(f"the weight is not known, so it ranks nothing until a learner has found it: {statement}")
    if not weighted:
        raise DataError(f"a weight is no confidence; aggregation 'weight' takes: {statement}")
    match statement.formula:
        case Implies(Comparison() as premise, Not(Atom() as head)):
            return head, ((LogicLiteral(premise),),), -1.0
        case Implies(Comparison() as premise, Atom() as head):
            return head, ((LogicLiteral(premise),),), 1.0
        case Implies(Atom() as premise, Not(Atom() as head)) if is_about_one_end(head, premise):
            return head, ((LogicLiteral(premise),),), -1.0
        case Implies(Atom() as premise, Atom() as head) if is_about_one_end(head, premise):
            return head, ((LogicLiteral(premise),),), 1.0
        case Implies(premise, Not(Atom() as head)):
            return head, Rule(head, (premise,)).alternatives(), -1.0
        case Implies(premise, Atom() as head):
            return head, Rule(head, (premise,)).alternatives(), 1.0
        case Atom() as head:
            return head, ((),), 1.0
    raise DataError(f"ranking takes formulas that conclude one atom, w body => r(X, Y), got: {statement}")


def find_heads(
    derivations: Sequence[Derivation],
    kb: KnowledgeBase,
    *,
    asked: tuple[int, int] | None = None,
    memory_limit: int | str | None = None,
) -> dict[int, list[Ids]]:
    """Return for each source index the different heads that its derivations give from the known facts, as columns.

    ``asked`` restricts them to those with an entity index at a position of the head.
    """
    if not derivations:
        return {}
    from rulewright.engine.duckdb import Engine

    heads: dict[int, list[Ids]] = {}
    parts: list[list[Ids]] = []
    with Engine(kb, memory_limit=memory_limit) as engine:
        for batch in batch_derivations(enumerate(derivations), kb):
            engine.put(batch.name, batch.columns)
            join = batch.join(kb)
            _, *args = batch.express_head(join)
            if asked is not None:
                join.conditions.append(f"{args[asked[0]]} = {asked[1]}")
            listed = ", ".join(f"{arg} AS a{position}" for position, arg in enumerate(args))
            rows = engine.run(join.select(f"DISTINCT r.n AS n, {listed}"))
            parts.append([np.asarray(column, dtype=np.int64) for column in rows.values()])
    columns = [np.concatenate(part) for part in zip(*parts, strict=True)]
    sources, *args_of = distinct_rows(columns)
    order = np.argsort(sources, kind="stable")
    different, starts = np.unique(sources[order], return_index=True)
    bounds = np.append(starts, len(order))
    for index, low, high in zip(different.tolist(), bounds, bounds[1:], strict=False):
        heads[index] = [column[order[low:high]] for column in args_of]
    return heads


def declare_predicates(rules: RuleSet, kb: KnowledgeBase) -> KnowledgeBase:
    """Return the knowledge base with the predicates that only rules conclude; another unknown one is an error.

    Of those that some rule asks to be absent, such as ``!has_child(X)``, it has the facts too.
    """
    if all(name in kb.predicates for name in rules.arities):
        return kb
    derivations = [Derivation(rule.head, body, rule, 0) for rule in rules.rules for body in rule.alternatives()]
    declared = add_new_predicates(kb, rules, derivations)
    absent = {
        str(literal.unit.predicate)
        for derivation in derivations
        for literal in derivation.body
        if not literal.positive and not isinstance(literal.unit, Comparison)
    } - kb.predicates.keys()
    if not absent:
        return declared
    if isinstance(kb, StoredFacts):
        raise DataError(
            f"rules ask that {', '.join(sorted(absent))} be absent, which only rules conclude; ranking in an engine "
            "does not find out where, and read_facts reads facts that fit into memory"
        )
    from rulewright.reason.apply import apply

    needed = set[str]().union(*(find_relevant(derivations, name) for name in absent))
    definitions = [rule for rule in rules.rules if str(rule.head.predicate) in needed]
    inferred = apply(definitions, declared, aggregation="max", max_facts=sys.maxsize)
    columns = {name: declared.columns(name) for name in declared.predicates}
    columns |= {name: facts.columns for name, facts in inferred.derived.items() if name in absent}
    return declared.with_facts(group_by_signature(declared.predicates, columns), declared.tables(truth=False))


def read_weights(statement: Source, weighted: bool, sign: float) -> tuple[float, float]:
    """Return the weights for ``r(X, ?)`` and ``r(?, X)``."""
    given = [statement.annotations.number(name) for name in ("weight", "weight_inverse")]
    is_hard = isinstance(statement, WeightedFormula) and statement.kind == "hard"
    if isinstance(statement, Rule) or is_hard:
        confidence = statement.confidence if isinstance(statement, Rule) else 1.0
        if not weighted:
            return confidence, confidence
        if given == [None, None]:
            usual = -float(np.log1p(-min(confidence, 0.999)))
            return usual, usual
    elif given == [None, None]:
        assert isinstance(statement, WeightedFormula)
        given = [sign * float(statement.weight or 0.0)] * 2
    return given[0] or 0.0, given[1] or 0.0


def write_table(step: int, rows: Sequence[RankedRule]) -> tuple[RuleTable, Scores]:
    """Return the rows of one query as a table, and their weights."""
    is_both = [row.form == RuleForm.BOTH for row in rows]
    seconds = (row.second for row, both in zip(rows, is_both, strict=True) if both)
    paths = {path: index for index, path in enumerate(dict.fromkeys([*(row.path for row in rows), *seconds]))}
    ways = {row.ways for row in rows} - {""}
    if len(ways) > 1:
        raise DataError(f"the rules of one relation must agree in what many ways count, got {sorted(ways)}")
    path_index, form, constant, end = np.array(
        [(paths[row.path], row.form, row.constant, row.end) for row in rows], dtype=np.int64
    ).T
    counting = cast(Ways, next(iter(ways), "once"))
    second_index = np.array(
        [paths[row.second] if both else -1 for row, both in zip(rows, is_both, strict=True)], dtype=np.int64
    )
    table = RuleTable(step, tuple(paths), path_index, form, constant, end, counting, second_index)
    return table, np.array([row.weight for row in rows])


def find_conclusions(statement: Statement) -> set[str]:
    """Return the predicates that a statement speaks for or against."""
    if isinstance(statement, Rule):
        return {str(statement.head.predicate)}
    if isinstance(statement, Template):
        return set()
    if statement.kind == "hard":
        derivations: list[Derivation] = []
        read_formula(statement, 0, derivations, [])
        return {str(derivation.head.predicate) for derivation in derivations}
    match statement.formula:
        case Implies(_, Not(Atom() as head)) | Implies(_, Atom() as head) | (Atom() as head):
            return {str(head.predicate)}
    return set()
