"""Facts before a change and after it, over common indices, so that they can be compared and joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from rulewright.data import FactTable, KnowledgeBase, signature
from rulewright.data.changes import Recoding, extend_domains
from rulewright.data.facts import Column, group_by_signature
from rulewright.data.index import Ids, SortedRows, are_sorted, expand_ranges, range_bounds
from rulewright.engine.batches import RuleBatch, batch_derivations
from rulewright.engine.indexed import IndexedRules, LayeredFacts, RuleInstances, Scores, group_rows
from rulewright.errors import DataError
from rulewright.logic import Number
from rulewright.reason.inferred import (
    Application,
    Inferred,
    InferredColumns,
)
from rulewright.reason.program import RuleProgram

Facts = tuple[Ids, ...]
"""Facts of a signature: their predicates, their arguments and perhaps their classes, as whole numbers."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class ChangedFacts:
    """The facts of a signature before and after: what is known, what was observed false, and what was inferred."""

    known_before: SortedRows
    known_after: LayeredFacts
    false_before: SortedRows
    false_after: SortedRows
    come: Facts
    gone: Facts
    derived: SortedRows
    has_classes: bool
    classes_after: SortedRows

    def are_decided_before(self, facts: Facts) -> Mask:
        """Return which facts a rule did not give, since they were known, with any class, or observed false."""
        return self._find_any(self.known_before, facts) | (self.false_before.find(facts) >= 0)

    def are_decided_after(self, facts: Facts) -> Mask:
        """Return which facts a rule does not give now."""
        are_known = (
            self._find_any(self.classes_after, facts) if self.has_classes else self.known_after.scores(facts) >= 0
        )
        return are_known | (self.false_after.find(facts) >= 0)

    def _find_any(self, rows: SortedRows, facts: Facts) -> Mask:
        starts, ends = rows.ranges(self.strip_class(facts))
        return ends > starts

    def strip_class(self, facts: Facts) -> Facts:
        """Return facts without their classes."""
        return facts[:-1] if self.has_classes else facts

    def find_blocked(self) -> Mask:
        """Return which of the inferred facts are decided now, in their order."""
        decided = [
            self.come,
            pick_facts(self.false_after.columns, self.false_before.find(self.false_after.columns) < 0),
        ]
        starts, ends = self.derived.ranges(self.strip_class(join_facts(decided)))
        blocked = np.zeros(len(self.derived), dtype=bool)
        blocked[expand_ranges(starts, ends - starts)] = True
        return blocked

    def find_unblocked(self) -> Facts:
        """Return facts, without classes, that were decided and are not any more: a rule may give them now."""
        false_gone = pick_facts(self.false_before.columns, self.false_after.find(self.false_before.columns) < 0)
        facts = join_facts([self.gone, false_gone])
        return distinct_facts(self.strip_class(pick_facts(facts, ~self.are_decided_after(facts))))


class FactChange:
    """A result, and the facts before and after over common indices.

    These are the indices of the new knowledge base, behind which stand entities that only the old one has. Numbers are
    positions among all numbers.
    """

    def __init__(self, inferred: Inferred, program: RuleProgram, application: Application) -> None:
        self.inferred, self.program, self.application = inferred, program, application
        before, after = inferred.kb, program.kb
        for name, declaration in before.predicates.items():
            if after.predicates.get(name, declaration) != declaration:
                raise DataError(
                    f"{name} was declared as {declaration} and is {after.predicates[name]} now; apply the rules anew"
                )
        domains, worlds = extend_domains(after, before, before.predicates)
        predicates = {**after.predicates, **before.predicates}
        self.kb = KnowledgeBase(domains, predicates.values(), {}, worlds=worlds)
        recoding = Recoding(before, domains)
        self.is_same_space = list(before.predicates) == list(predicates) and all(
            map(recoding.is_identity, before.domains)
        )
        self._shift = Recoding(self.kb, after.domains)
        self.batches: tuple[RuleBatch, ...] = ()
        self.moved = self._move_inferred(recoding)
        tables = [
            _move_tables(moving, self.kb, truth=truth)
            for moving in (recoding, Recoding(after, domains))
            for truth in (True, False)
        ]
        derived = group_by_signature(predicates, {name: facts.columns for name, facts in self.moved.items()})
        self.numbers = self._find_numbers([*tables, derived])
        self.facts: dict[str, ChangedFacts] = {}
        for letters in sorted({signature(declaration) for declaration in predicates.values()}):
            encoded = [self._encode(letters, part) for part in (*tables, derived)]
            known_before, false_before, known_after, false_after, inferred_before = encoded
            sorted_before = SortedRows(known_before)
            found = sorted_before.find(known_after)
            come = pick_facts(known_after, found < 0)
            has_stayed = np.zeros(len(sorted_before), dtype=bool)
            has_stayed[found[found >= 0]] = True
            gone = pick_facts(sorted_before.columns, ~has_stayed)
            stored = LayeredFacts(len(letters) + 1, [(sorted_before, np.ones(len(sorted_before)))])
            stored.drop(gone)
            stored.put(come, np.ones(len(come[0])))
            self.facts[letters] = ChangedFacts(
                sorted_before,
                stored,
                SortedRows(false_before),
                SortedRows(false_after),
                come,
                gone,
                SortedRows(inferred_before),
                letters.endswith("c"),
                SortedRows(known_after if letters.endswith("c") else no_facts(letters)),
            )

    def _move_inferred(self, recoding: Recoding) -> dict[str, InferredColumns]:
        """Return what was inferred over the common indices, in the order of these."""
        moved = {}
        for name in sorted(self.inferred.derived, key=self.kb.predicate_index):
            facts = self.inferred.derived[name]
            facts = replace(facts, columns=recoding.move(facts.columns, recoding.kb.predicates[name]))
            if not are_sorted([np.asarray(column) for column in facts.columns]):
                facts = facts.take(np.lexsort(tuple(reversed(facts.columns))))
            moved[name] = facts
        return moved

    def _find_numbers(self, tables: Sequence[Mapping[str, FactTable]]) -> Scores:
        """Return all numbers of facts and rules, sorted."""
        columns = [
            column
            for part in tables
            for letters, table in part.items()
            for letter, column in zip(letters, table.columns, strict=True)
            if letter == "n"
        ]
        if not any("n" in signature(declaration) for declaration in self.kb.predicates.values()):
            return np.empty(0)
        units = (unit for rule in self.program.derivations for unit in (rule.head, *(part.unit for part in rule.body)))
        terms = [float(term.value) for unit in units for term in unit.args if isinstance(term, Number)]
        return np.unique(np.concatenate([*columns, np.array(terms, dtype=np.float64)]))

    def _encode(self, letters: str, tables: Mapping[str, FactTable]) -> Facts:
        table = tables.get(letters)
        if table is None:
            return no_facts(letters)
        arguments = (
            np.searchsorted(self.numbers, column) if letter == "n" else column.astype(np.int64)
            for letter, column in zip(letters, table.columns, strict=True)
        )
        return table.predicate.astype(np.int64), *arguments

    def encode_new(self, name: str, columns: Sequence[Column]) -> tuple[Ids, ...]:
        """Return arguments of facts over the new knowledge base as whole numbers over the common indices."""
        declaration = self.kb.predicate(name)
        moved = Recoding(self.program.kb, self.kb.domains).move(columns, declaration)
        return tuple(
            np.searchsorted(self.numbers, column) if letter == "n" else column.astype(np.int64)
            for letter, column in zip(signature(declaration), moved, strict=True)
        )

    def decode(self, name: str, columns: Sequence[Ids]) -> tuple[Column, ...]:
        """Return arguments of a predicate as columns."""
        declaration = self.kb.predicate(name)
        return tuple(
            self.numbers[column] if letter == "n" else column.astype(np.int32)
            for letter, column in zip(signature(declaration), columns, strict=True)
        )

    def shift(self, name: str, facts: InferredColumns) -> InferredColumns:
        """Return facts over the indices of the new knowledge base."""
        return replace(facts, columns=self._shift.move(facts.columns, self.kb.predicate(name)))

    def were_given(self, letters: str, instances: RuleInstances) -> Mask:
        """Return which rules gave the facts before that they give now."""
        parts = [facts for name, facts in self.moved.items() if signature(self.kb.predicate(name)) == letters]
        if not parts:
            return np.zeros(len(instances), dtype=bool)
        bounds = range_bounds(np.concatenate([np.diff(part.source_bounds) for part in parts]))
        sources = np.concatenate([part.source_indices for part in parts])
        positions = self.facts[letters].derived.find(instances.columns)
        found = np.flatnonzero(positions >= 0)
        starts, lengths = bounds[positions[found]], np.diff(bounds)[positions[found]]
        rows = np.repeat(found, lengths)
        given = np.zeros(len(instances), dtype=bool)
        given[rows[sources[expand_ranges(starts, lengths)] == instances.sources[rows]]] = True
        return given

    def index_strata(self, strata: Sequence[Sequence[int]]) -> list[list[IndexedRules]]:
        """Return the rules of each stratum, ready to be joined."""
        derivations, kb, batches = self.program.derivations, self.program.kb, self.application.batches
        constants = (batch.columns[name] for batch in batches for name in batch.columns if name[0] == "c")
        if len(strata) == 1 and batches and self.is_same_space and all((column >= 0).all() for column in constants):
            batched = [[*batches]]  # the tables of rules are right as they are
        else:
            batched = [batch_derivations([(index, derivations[index]) for index in part], self.kb) for part in strata]
        is_new_space = list(kb.predicates) == list(self.kb.predicates) and all(map(self._shift.is_identity, kb.domains))
        self.batches = tuple(batch for part in batched for batch in part) if is_new_space else ()
        for batch in (batch for part in batched for batch in part if not batch.is_open):
            batch.express_head(batch.join(kb))  # what the new knowledge base cannot say is refused as apply does
        return [[IndexedRules(batch, self.kb, self.numbers) for batch in part] for part in batched]


def no_facts(letters: str) -> Facts:
    """Return no facts of a signature."""
    return tuple(np.empty(0, dtype=np.int64) for _ in range(len(letters) + 1))


def pick_facts(facts: Sequence[Ids], chosen: Mask) -> Facts:
    """Return the facts that are chosen."""
    return tuple(column[chosen] for column in facts)


def join_facts(parts: Sequence[Facts]) -> Facts:
    """Return facts of several parts, one part after the other."""
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def distinct_facts(facts: Facts) -> Facts:
    """Return facts once each, in order."""
    starts, order = group_rows(facts)
    return tuple(column[order[starts]] for column in facts)


def are_among(rows: Sequence[Ids], others: Sequence[Ids]) -> Mask:
    """Return which rows stand among others."""
    return SortedRows(others).find(rows) >= 0


def _move_tables(recoding: Recoding, common: KnowledgeBase, *, truth: bool) -> Mapping[str, FactTable]:
    """Return the facts of a knowledge base over common indices."""
    kb = recoding.kb
    is_same = list(kb.predicates) == list(common.predicates)[: len(kb.predicates)]
    if is_same and all(recoding.is_identity(name) for name in kb.domains):
        return kb.tables(truth=truth)
    columns = {name: kb.columns(name, truth=truth) for name in kb.predicates}
    moved = {name: recoding.move(parts, kb.predicates[name]) for name, parts in columns.items() if len(parts[0])}
    return group_by_signature(common.predicates, moved)
