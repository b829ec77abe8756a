"""What follows newly and what no longer does when facts come and go, without starting over.

Only instances of rules that rest on a changed fact are looked at. What they no longer give is taken away, together with
what rested on it (delete), brought back where other instances give it (rederive), and what is new is followed forward
as in an application (semi-naive). Strata are settled in order: a new fact below may end one above, and the reverse.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.data import FactTable, KnowledgeBase, signature
from rulewright.data.changes import Recoding, extend_domains
from rulewright.data.facts import Column, empty_columns, group_by_signature
from rulewright.data.index import Ids, SortedRows, are_sorted, encode_rows, expand_ranges, range_bounds
from rulewright.engine.batches import Derivation, RuleBatch, batch_derivations
from rulewright.engine.indexed import IndexedRules, RuleInstances, Scores, State, StoredFacts, group_rows
from rulewright.engine.sql import argument_columns
from rulewright.errors import DataError
from rulewright.logic import Comparison, Number, Variable, variables
from rulewright.reason.inferred import (
    Application,
    Inferred,
    InferredColumns,
    Violation,
    combine_rules,
    describe_cut,
    keep_best,
)
from rulewright.reason.program import IntegrityConstraint, RuleProgram, find_strata
from rulewright.tables import html_table

Facts = tuple[Ids, ...]
"""Facts of a signature: their predicates, their arguments and perhaps their classes, as whole numbers."""

Mask = npt.NDArray[np.bool_]

_FEW_FACTS = 4  # that are tried first
_TIGHT = 1 - 1e-12  # an instance with this share of a fact's score may be the one that it has it from


@dataclass(frozen=True)
class Update:
    """What a change of facts did: the new result, and how it differs from the one before.

    ``added`` has the facts that follow newly, ``removed`` those that no longer do, and ``confirmed`` those that were
    inferred before and are known now.
    """

    inferred: Inferred
    added: Inferred
    removed: Inferred
    confirmed: Inferred

    def _repr_html_(self) -> str:
        """Show what changed as a table in notebooks."""
        parts = {"+": self.added, "−": self.removed, "=": self.confirmed}
        rows = ((sign, fact.score, fact) for sign, inferred in parts.items() for fact in inferred[:100])
        return html_table(["", "score", "fact"], rows, caption=repr(self), limit=300)

    def __repr__(self) -> str:
        counts = f"{len(self.added):,} added, {len(self.removed):,} removed, {len(self.confirmed):,} confirmed"
        return f"Update({counts}: {self.inferred!r})"


def update(inferred: Inferred, kb: KnowledgeBase) -> Update:
    """Bring what was inferred up to date with a knowledge base in which facts have come or gone.

    The facts, scores and rules are those of ``apply`` with the same rules and options on ``kb``, but only what rests on
    a changed fact is looked at. ``round`` is that of the application or update that first gave a fact. It takes what
    `apply` gave in one round, or at the fixed point with ``max`` or ``max-plus``; a result that was cut at
    ``max_facts``, or where ``noisy-or`` went beyond a round, has to be made anew.

    >>> from rulewright import apply, parse_rules
    >>> rules = parse_rules("ancestor(X, Y) :- parent(X, Y). ancestor(X, Z) :- ancestor(X, Y), parent(Y, Z).")
    >>> kb = KnowledgeBase.from_triples([("ann", "parent", "bob"), ("bob", "parent", "cid")])
    >>> inferred = apply(rules, kb, max_rounds=None)
    >>> changed = update(inferred, kb.remove([("parent", "ann", "bob")]).add([("parent", "cid", "dan")]))
    >>> [str(fact) for fact in changed.added], [str(fact) for fact in changed.removed]
    (['ancestor(bob, dan)', 'ancestor(cid, dan)'], ['ancestor(ann, bob)', 'ancestor(ann, cid)'])
    """
    application = _check_application(inferred)
    program = RuleProgram.of(application.rules, kb)
    heads = {str(derivation.head.predicate) for derivation in program.derivations}
    chains = any(heads & _body_predicates(derivation) for derivation in program.derivations)
    if chains and application.max_rounds is None and application.aggregation == "noisy-or":
        raise DataError(
            "noisy-or over several rounds depends on which of them gave a fact first; apply the rules anew, or use max"
        )
    once = application.max_rounds == 1 or not chains
    change = _FactChange(inferred, program, application)
    strata = [[*range(len(program.derivations))]] if once else find_strata(program.derivations)
    rules = change.index_strata(strata)
    outcome = _settle_once(change, rules[0]) if once else _settle_strata(change, rules)
    return _assemble(change, outcome, may_go_on=once and chains and application.max_rounds == 1)


def _check_application(inferred: Inferred) -> Application:
    """Refuse what an update cannot bring up to date."""
    application = inferred.application
    if application is None:
        raise DataError("an update needs what apply gave; what weights gave is applied anew")
    if application.is_cut:
        raise DataError(
            f"the result was cut at max_facts={application.max_facts:,}, and an update would have to know the rest; "
            "apply the rules anew, with a higher max_facts"
        )
    if application.max_rounds not in (1, None):
        raise DataError(f"an update takes one round or the fixed point, got max_rounds={application.max_rounds}")
    return application


def _body_predicates(derivation: Derivation) -> set[str]:
    return {str(part.unit.predicate) for part in derivation.body if not isinstance(part.unit, Comparison)}


@dataclass(frozen=True)
class _ChangedFacts:
    """The facts of a signature before and after: what is known, what was observed false, and what was inferred."""

    known_before: SortedRows
    known_after: StoredFacts
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
        decided = [self.come, _pick(self.false_after.columns, self.false_before.find(self.false_after.columns) < 0)]
        starts, ends = self.derived.ranges(self.strip_class(_join_facts(decided)))
        blocked = np.zeros(len(self.derived), dtype=bool)
        blocked[expand_ranges(starts, ends - starts)] = True
        return blocked

    def find_unblocked(self) -> Facts:
        """Return facts, without classes, that were decided and are not any more: a rule may give them now."""
        false_gone = _pick(self.false_before.columns, self.false_after.find(self.false_before.columns) < 0)
        facts = _join_facts([self.gone, false_gone])
        return _distinct(self.strip_class(_pick(facts, ~self.are_decided_after(facts))))


class _FactChange:
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
        self.facts: dict[str, _ChangedFacts] = {}
        for letters in sorted({signature(declaration) for declaration in predicates.values()}):
            encoded = [self._encode(letters, part) for part in (*tables, derived)]
            known_before, false_before, known_after, false_after, inferred_before = encoded
            sorted_before = SortedRows(known_before)
            found = sorted_before.find(known_after)
            come = _pick(known_after, found < 0)
            has_stayed = np.zeros(len(sorted_before), dtype=bool)
            has_stayed[found[found >= 0]] = True
            gone = _pick(sorted_before.columns, ~has_stayed)
            stored = StoredFacts(len(letters) + 1, [(sorted_before, np.ones(len(sorted_before)))])
            stored.drop(gone)
            stored.put(come, np.ones(len(come[0])))
            self.facts[letters] = _ChangedFacts(
                sorted_before,
                stored,
                SortedRows(false_before),
                SortedRows(false_after),
                come,
                gone,
                SortedRows(inferred_before),
                letters.endswith("c"),
                SortedRows(known_after if letters.endswith("c") else _no_facts(letters)),
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
            return _no_facts(letters)
        arguments = (
            np.searchsorted(self.numbers, column) if letter == "n" else column.astype(np.int64)
            for letter, column in zip(letters, table.columns, strict=True)
        )
        return table.predicate.astype(np.int64), *arguments

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


class _RuleChanges:
    """What settling finds: inferred facts that go as a whole, and rules that no longer or newly give a fact."""

    def __init__(self, change: _FactChange) -> None:
        self.dropped = {letters: facts.find_blocked() for letters, facts in change.facts.items()}
        self.lost = {letters: RuleInstances.gather(len(letters) + 1, []) for letters in change.facts}
        self.gained: dict[str, list[tuple[RuleInstances, int]]] = {letters: [] for letters in change.facts}

    def gather_gained(self, letters: str) -> tuple[RuleInstances, Ids]:
        """Return the rules that newly give a fact, or may do so again, with the round of each."""
        parts = self.gained[letters]
        columns = _join_facts([_no_facts(letters), *(instances.columns for instances, _ in parts)])
        sources = np.concatenate([np.empty(0, dtype=np.int64), *(instances.sources for instances, _ in parts)])
        scores = np.concatenate([np.empty(0), *(instances.scores for instances, _ in parts)])
        rounds = [np.full(len(instances), number_of_round) for instances, number_of_round in parts]
        return RuleInstances(columns, sources, scores), np.concatenate([np.empty(0, dtype=np.int64), *rounds])


class _FoundInstances:
    """Instances by the signature of their heads."""

    def __init__(self) -> None:
        self._parts: dict[str, list[RuleInstances]] = {}

    def add(self, letters: str, instances: Iterable[RuleInstances]) -> None:
        self._parts.setdefault(letters, []).extend(instances)

    def gather(self, letters: str) -> RuleInstances:
        """Return the best instance for each head and source."""
        return RuleInstances.gather(len(letters) + 1, self._parts.get(letters, []))


def _settle_once(change: _FactChange, rules: Sequence[IndexedRules]) -> _RuleChanges:
    """Find what one round gives newly and no longer: only known facts are premises."""
    before = {
        letters: StoredFacts(len(letters) + 1, [(facts.known_before, np.ones(len(facts.known_before)))])
        for letters, facts in change.facts.items()
    }
    after = {letters: facts.known_after for letters, facts in change.facts.items()}
    come = {letters: facts.come for letters, facts in change.facts.items()}
    gone = {letters: facts.gone for letters, facts in change.facts.items()}
    maybe_lost, gained = _FoundInstances(), _FoundInstances()
    for rule in rules:
        letters = rule.head_signature
        maybe_lost.add(letters, rule.instances_of_changes(gone, come, before))
        gained.add(letters, rule.instances_of_changes(come, gone, after))
        gained.add(letters, rule.instances_for(change.facts[letters].find_unblocked(), after))
    outcome, application = _RuleChanges(change), change.application
    for letters, facts in change.facts.items():
        new = gained.gather(letters)
        new = new.select(~facts.are_decided_after(new.columns))
        if application.aggregation == "noisy-or" and application.min_score > 0:
            # Of a fact that scored too little, nothing is known of the rules that gave it
            heads = _distinct(_pick(new.columns, facts.derived.find(new.columns) < 0))
            parts = [new, _give(rules, letters, facts.strip_class(heads), after)]
            new = RuleInstances.gather(len(letters) + 1, parts)
            new = new.select(~facts.are_decided_after(new.columns))
        elif application.aggregation != "noisy-or":
            new = new.select(new.scores >= application.min_score)
        outcome.gained[letters].append((new.select(~change.were_given(letters, new)), 1))
        outcome.lost[letters] = _find_lost(change, outcome, letters, maybe_lost.gather(letters), rules, after)
    return outcome


def _find_lost(
    change: _FactChange,
    outcome: _RuleChanges,
    letters: str,
    maybe_lost: RuleInstances,
    rules: Sequence[IndexedRules],
    state: State,
) -> RuleInstances:
    """Return the rules that give an inferred fact no more.

    Most still do, by another of the first few facts that fit; only for what is left all are tried.
    """
    lost = _select_inferred(change, outcome, letters, maybe_lost)
    for most in (_FEW_FACTS, None):
        heads = change.facts[letters].strip_class(lost.columns)
        still = _give(rules, letters, heads, state, lost.sources, most)
        lost = lost.select(~_are_among((*lost.columns, lost.sources), (*still.columns, still.sources)))
    return lost


def _select_inferred(
    change: _FactChange, outcome: _RuleChanges, letters: str, instances: RuleInstances
) -> RuleInstances:
    """Return the instances whose heads were inferred and do not go as a whole."""
    positions = change.facts[letters].derived.find(instances.columns)
    stays = positions >= 0
    stays[stays] = ~outcome.dropped[letters][positions[stays]]
    return instances.select(stays)


def _settle_strata(change: _FactChange, strata: Sequence[Sequence[IndexedRules]]) -> _RuleChanges:
    """Find what the fixed point has newly and no longer, stratum by stratum."""
    outcome = _RuleChanges(change)
    scores = _stack_scores(change)
    before, after = (
        {
            letters: StoredFacts(
                len(letters) + 1,
                [
                    (facts.known_before, np.ones(len(facts.known_before))),
                    (facts.derived, scores[letters]),
                ],
            )
            for letters, facts in change.facts.items()
        }
        for _ in range(2)
    )
    settling = _StrataUpdate(change, outcome, before, after)
    concluded = {int(index) for rules in strata for rule in rules for index in rule.head.predicates}
    settling.take_known(lambda predicates: ~np.isin(predicates, [*concluded]))
    for rules in strata:
        settling.settle(rules)
    return outcome


class _StrataUpdate:
    """Settles strata one after the other, over all facts before the change and after it."""

    def __init__(self, change: _FactChange, outcome: _RuleChanges, before: State, after: State) -> None:
        self.change, self.outcome, self.before, self.after = change, outcome, before, after
        nothing = {letters: _no_facts(letters) for letters in change.facts}
        # Of all strata so far: facts with another score than before, and facts that are there newly or no longer
        self.worse, self.better, self.come, self.gone = (dict(nothing) for _ in range(4))

    def take_known(self, is_chosen: Callable[[Ids], Mask]) -> None:
        """Take up what changed among the known facts of some predicates."""
        for letters, facts in self.change.facts.items():
            gone, come = _pick(facts.gone, is_chosen(facts.gone[0])), _pick(facts.come, is_chosen(facts.come[0]))
            self.after[letters].drop(gone)
            self.after[letters].put(come, np.ones(len(come[0])))
            self._note_changes(letters, [gone, come])

    def settle(self, rules: Sequence[IndexedRules]) -> None:
        """Settle one stratum."""
        own = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *(rule.head.predicates for rule in rules)]))
        deleted = self._delete(rules, own)
        known = {
            letters: _pick(facts.come, np.isin(facts.come[0], own)) for letters, facts in self.change.facts.items()
        }
        for letters, facts in self.change.facts.items():
            positions = facts.derived.find(deleted[letters])
            self.outcome.dropped[letters][positions[positions >= 0]] = True
            self.after[letters].drop(deleted[letters])
            self.after[letters].put(known[letters], np.ones(len(known[letters][0])))
        self._follow(rules, own, deleted, known)
        for letters in self.change.facts:
            self._rederive_lost(rules, letters)
            gained = [instances.columns for instances, _ in self.outcome.gained[letters]]
            self._note_changes(letters, [deleted[letters], known[letters], *gained])

    def _delete(self, rules: Sequence[IndexedRules], own: Ids) -> dict[str, Facts]:
        """Return the facts whose score may rest on what is worse or gone; note which rules may give a fact no more."""
        deleted: dict[str, Facts] = {}
        for letters, facts in self.change.facts.items():
            blocked = _pick(facts.derived.columns, self.outcome.dropped[letters])
            seeds = _join_facts([facts.gone, _pick(blocked, facts.known_after.scores(blocked) < 0)])
            deleted[letters] = _pick(seeds, np.isin(seeds[0], own))
        frontier = {letters: _join_facts([deleted[letters], self.worse[letters]]) for letters in deleted}
        come: dict[str, Facts] = self.come
        self._maybe_lost = _FoundInstances()
        while any(len(facts[0]) for facts in (*frontier.values(), *come.values())):
            found = _FoundInstances()
            scores = {letters: self.before[letters].scores(facts) for letters, facts in frontier.items()}
            for rule in rules:
                found.add(rule.head_signature, rule.instances_of_changes(frontier, come, self.before, scores))
            come = {}
            for letters, facts in self.change.facts.items():
                instances = found.gather(letters)
                instances = instances.select(~facts.are_decided_before(instances.columns))
                self._maybe_lost.add(letters, [instances])
                scored = self.before[letters].scores(instances.columns)
                is_tight = (scored >= 0) & (instances.scores >= scored * _TIGHT)
                heads = _distinct(_pick(instances.columns, is_tight))
                heads = _pick(heads, ~_are_among(heads, deleted[letters]) & (facts.known_after.scores(heads) < 0))
                frontier[letters], deleted[letters] = heads, _join_facts([deleted[letters], heads])
        return deleted

    def _follow(
        self, rules: Sequence[IndexedRules], own: Ids, deleted: dict[str, Facts], known: dict[str, Facts]
    ) -> None:
        """Bring back what other instances give, and follow what is new or better until nothing is."""
        found = _FoundInstances()
        better = {letters: _join_facts([self.better[letters], known[letters]]) for letters in known}
        scores = {letters: self.after[letters].scores(facts) for letters, facts in better.items()}
        for rule in rules:
            facts = self.change.facts[rule.head_signature]
            unblocked = facts.find_unblocked()
            unblocked = _pick(unblocked, np.isin(unblocked[0], own))
            heads = _distinct(_join_facts([facts.strip_class(deleted[rule.head_signature]), unblocked]))
            found.add(rule.head_signature, rule.instances_for(heads, self.after))
            found.add(rule.head_signature, rule.instances_of_changes(better, self.gone, self.after, scores))
        number_of_round = 1
        while True:
            for letters, facts in self.change.facts.items():
                instances = found.gather(letters)
                is_new = (instances.scores >= self.change.application.min_score) & ~facts.are_decided_after(
                    instances.columns
                )
                instances = instances.select(is_new)
                self.outcome.gained[letters].append((instances, number_of_round))
                starts, order = group_rows(instances.columns)
                heads = tuple(column[order[starts]] for column in instances.columns)
                best = np.maximum.reduceat(instances.scores[order], starts) if len(starts) else np.empty(0)
                is_better = best > self.after[letters].scores(heads)
                better[letters], scores[letters] = _pick(heads, is_better), best[is_better]
                self.after[letters].put(better[letters], scores[letters])
            if not any(len(part) for part in scores.values()):
                return
            found = _FoundInstances()
            for rule in rules:
                found.add(rule.head_signature, rule.instances_of_changes(better, {}, self.after, scores))
            number_of_round += 1

    def _rederive_lost(self, rules: Sequence[IndexedRules], letters: str) -> None:
        _rederive_lost(self.change, self.outcome, letters, self._maybe_lost.gather(letters), rules, self.after)

    def _note_changes(self, letters: str, touched: Sequence[Facts]) -> None:
        """Note for the strata above which of these facts have another score than before."""
        facts = _distinct(_join_facts(touched))
        before, after = self.before[letters].scores(facts), self.after[letters].scores(facts)
        for listed, is_so in (
            (self.worse, before > after),
            (self.better, after > before),
            (self.gone, (before >= 0) & (after < 0)),
            (self.come, (before < 0) & (after >= 0)),
        ):
            listed[letters] = _join_facts([listed[letters], _pick(facts, is_so)])


def _rederive_lost(
    change: _FactChange,
    outcome: _RuleChanges,
    letters: str,
    maybe_lost: RuleInstances,
    rules: Sequence[IndexedRules],
    state: State,
) -> None:
    """Take away that rules gave facts by instances that are gone, and add where they still do by others."""
    lost = _select_inferred(change, outcome, letters, maybe_lost)
    outcome.lost[letters] = RuleInstances.gather(len(letters) + 1, [outcome.lost[letters], lost])
    heads = change.facts[letters].strip_class(lost.columns)
    still = _give(rules, letters, heads, state, lost.sources)
    still = still.select(_are_among((*still.columns, still.sources), (*lost.columns, lost.sources)))
    outcome.gained[letters].append((still.select(still.scores >= change.application.min_score), 1))


def _give(
    rules: Sequence[IndexedRules],
    letters: str,
    heads: Facts,
    state: State,
    sources: Ids | None = None,
    most: int | None = None,
) -> RuleInstances:
    """Return what all rules give of some heads, as `IndexedRules.instances_for` does."""
    parts = [
        part
        for rule in rules
        if rule.head_signature == letters
        for part in rule.instances_for(heads, state, sources, most)
    ]
    return RuleInstances.gather(len(letters) + 1, parts)


def _no_facts(letters: str) -> Facts:
    return tuple(np.empty(0, dtype=np.int64) for _ in range(len(letters) + 1))


def _pick(facts: Sequence[Ids], chosen: Mask) -> Facts:
    return tuple(column[chosen] for column in facts)


def _join_facts(parts: Sequence[Facts]) -> Facts:
    return tuple(np.concatenate(columns) for columns in zip(*parts, strict=True))


def _distinct(facts: Facts) -> Facts:
    starts, order = group_rows(facts)
    return tuple(column[order[starts]] for column in facts)


def _are_among(rows: Sequence[Ids], others: Sequence[Ids]) -> Mask:
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


def _stack_scores(change: _FactChange) -> dict[str, Scores]:
    """Return the scores of what was inferred, in the order of the facts of each signature."""
    scores: dict[str, list[Scores]] = {letters: [np.empty(0)] for letters in change.facts}
    for name, facts in change.moved.items():
        scores[signature(change.kb.predicate(name))].append(facts.scores)
    return {letters: np.concatenate(parts) for letters, parts in scores.items()}


def _assemble(change: _FactChange, outcome: _RuleChanges, *, may_go_on: bool) -> Update:
    """Make the new result of what stays, what goes and what comes, and say what differs."""
    derived: dict[str, InferredColumns] = {}
    added: dict[str, InferredColumns] = {}
    removed: dict[str, InferredColumns] = {}
    confirmed: dict[str, InferredColumns] = {}
    all_names = list(change.kb.predicates)
    for letters, facts in change.facts.items():
        names = [name for name in change.moved if signature(change.kb.predicate(name)) == letters]
        bounds = range_bounds([len(change.moved[name].scores) for name in names])
        slices = {name: slice(bounds[position], bounds[position + 1]) for position, name in enumerate(names)}
        is_touched, rows = _find_rows(change, outcome, letters, slices)
        combined = _combine_by_predicate(change, letters, rows)
        present = [(np.full(len(part.scores), index), *part.columns) for index, part in combined.items()]
        is_gone = is_touched.copy()
        touched = _pick(facts.derived.columns, is_touched)
        is_gone[is_touched] = ~_are_among(touched, _join_facts([_no_facts(letters), *present]))
        is_confirmed = is_gone.copy()
        is_confirmed[is_gone] = facts.known_after.scores(_pick(facts.derived.columns, is_gone)) >= 0
        for index in sorted({*map(change.kb.predicate_index, names), *combined}):
            name = all_names[index]
            parts = []
            if name in slices:
                before, own = change.moved[name], slices[name]
                parts.append(change.shift(name, before.select(~is_touched[own])))
                removed[name] = before.select(is_gone[own] & ~is_confirmed[own])
                confirmed[name] = before.select(is_confirmed[own])
            if index in combined:
                new = combined[index]
                is_new = facts.derived.find((np.full(len(new.scores), index), *new.columns)) < 0
                new = change.shift(name, replace(new, columns=change.decode(name, new.columns)))
                parts.append(new)
                added[name] = new.select(is_new)
            derived[name] = parts[0] if len(parts) == 1 else _merge(*parts)
    return _report(change, derived, added, removed, confirmed, may_go_on=may_go_on)


def _find_rows(
    change: _FactChange, outcome: _RuleChanges, letters: str, slices: Mapping[str, slice]
) -> tuple[Mask, dict[str, npt.NDArray[Any]]]:
    """Return which inferred facts are touched, and the rules that give these and new facts now, as `apply` has them."""
    facts = change.facts[letters]
    gained, rounds = outcome.gather_gained(letters)
    dropped, lost = outcome.dropped[letters], outcome.lost[letters]
    is_touched = dropped.copy()
    positions = facts.derived.find(gained.columns)
    is_touched[positions[positions >= 0]] = True
    is_touched[facts.derived.find(lost.columns)] = True
    stays = is_touched & ~dropped
    parts = [change.moved[name].select(stays[own]) for name, own in slices.items()]
    lengths = np.concatenate([np.empty(0, dtype=np.int64), *(np.diff(part.source_bounds) for part in parts)])
    columns = [np.repeat(column, lengths) for column in _pick(facts.derived.columns, stays)]
    sources = np.concatenate([np.empty(0, dtype=np.int64), *(part.source_indices for part in parts)])
    is_kept = ~_are_among((*columns, sources), (*lost.columns, lost.sources))
    all_rounds = np.concatenate([np.empty(0, np.int64), *(change.moved[name].rounds for name in slices)])
    rounds = np.where(positions >= 0, all_rounds[positions] if len(all_rounds) else 0, rounds)  # the round it had
    old = {
        "n": sources,
        "s": np.concatenate([np.empty(0), *(part.source_scores for part in parts)]),
        "k": np.repeat(all_rounds[stays], lengths),
    }
    new = {"n": gained.sources, "s": gained.scores, "k": rounds}
    rows = {name: np.concatenate([old[name][is_kept], new[name]]) for name in old}
    for position, pair in enumerate(zip(columns, gained.columns, strict=True)):
        rows[f"a{position - 1}" if position else "p"] = np.concatenate([pair[0][is_kept], pair[1]])
    names = ["p", *argument_columns(letters), "n"]
    order = np.lexsort([rows[name] for name in reversed(names)])
    return is_touched, {name: column[order] for name, column in rows.items()}


def _combine_by_predicate(
    change: _FactChange, letters: str, rows: dict[str, npt.NDArray[Any]]
) -> dict[int, InferredColumns]:
    """Bring the rules of each fact together, by the index of the predicate."""
    combined = {}
    indices, starts = np.unique(rows["p"], return_index=True)
    for index, start, stop in zip(indices, starts, np.append(starts, len(rows["p"]))[1:], strict=True):
        part = {name: column[start:stop] for name, column in rows.items()}
        columns = [part[name] for name in argument_columns(letters)]
        facts = combine_rules(columns, part, change.application.aggregation)
        combined[int(index)] = facts.select(facts.scores >= change.application.min_score)
    return combined


def _merge(one: InferredColumns, other: InferredColumns) -> InferredColumns:
    """Bring different facts of a predicate together, each in order, such that all are."""
    sizes = [
        int(max(pair[0].max(initial=0), pair[1].max(initial=0))) + 1
        for pair in zip(one.columns, other.columns, strict=True)
    ]
    if any(column.dtype.kind != "i" for column in one.columns) or math.prod(sizes) > np.iinfo(np.int64).max:
        both = _append(one, other, np.full(len(other.scores), len(one.scores)))
        return both.take(np.lexsort(tuple(reversed(both.columns))))
    return _append(one, other, np.searchsorted(encode_rows(one.columns, sizes), encode_rows(other.columns, sizes)))


def _append(one: InferredColumns, other: InferredColumns, positions: Ids) -> InferredColumns:
    """Insert facts before others at the given positions."""
    lengths = np.insert(np.diff(one.source_bounds), positions, np.diff(other.source_bounds))
    source_positions = np.repeat(one.source_bounds[positions], np.diff(other.source_bounds))
    return InferredColumns(
        tuple(np.insert(pair[0], positions, pair[1]) for pair in zip(one.columns, other.columns, strict=True)),
        np.insert(one.scores, positions, other.scores),
        np.insert(one.rounds, positions, other.rounds),
        range_bounds(lengths),
        np.insert(one.source_indices, source_positions, other.source_indices),
        np.insert(one.source_scores, source_positions, other.source_scores),
    )


def _report(
    change: _FactChange,
    derived: dict[str, InferredColumns],
    added: dict[str, InferredColumns],
    removed: dict[str, InferredColumns],
    confirmed: dict[str, InferredColumns],
    *,
    may_go_on: bool,
) -> Update:
    """Return the results, with the constraints that are broken now, and cut where there are too many facts."""
    application, program = change.application, change.program
    by_lists = application.aggregation == "max-plus"

    def collect(kb: KnowledgeBase, parts: dict[str, InferredColumns]) -> Inferred:
        filled = {name: facts for name, facts in parts.items() if len(facts.scores)}
        return Inferred(kb, program.sources, filled, numbers=program.numbers, by_lists=by_lists)

    whole = collect(program.kb, derived)
    note = "every rule was applied once; a further round may give more" if may_go_on and len(whole) else ""
    violations = _find_violations(program, whole)
    kept, is_cut = whole.derived, len(whole) > application.max_facts
    if is_cut:
        kept, lowest, is_tied = keep_best(kept, application.max_facts, by_lists=by_lists)
        note = f"stopped at max_facts={application.max_facts:,}: {describe_cut(kept, lowest, is_tied)}"
    inferred = Inferred(
        program.kb,
        program.sources,
        kept,
        violations,
        numbers=program.numbers,
        rounds=max([0, *(int(facts.rounds.max()) for facts in kept.values())]),
        note=note,
        by_lists=by_lists,
        application=replace(application, is_cut=is_cut, batches=change.batches),
    )
    return Update(inferred, collect(program.kb, added), collect(change.kb, removed), collect(change.kb, confirmed))


def _find_violations(program: RuleProgram, inferred: Inferred) -> list[Violation]:
    """Count anew how often constraints are broken by all facts."""
    if not program.constraints:
        return []
    from rulewright.engine.duckdb import Engine

    columns = {
        name: [
            np.concatenate([known, new])
            for known, new in zip(
                program.kb.columns(name),
                inferred.derived[name].columns if name in inferred.derived else empty_columns(signature(declaration)),
                strict=True,
            )
        ]
        for name, declaration in program.kb.predicates.items()
    }
    with Engine(program.kb.with_facts(group_by_signature(program.kb.predicates, columns))) as engine:
        counts = [
            (constraint.formula, engine.count_distinct(constraint.body, _variables_of(constraint)))
            for constraint in program.constraints
        ]
    return [Violation(formula, count) for formula, count in counts if count]


def _variables_of(constraint: IntegrityConstraint) -> list[Variable]:
    return list(dict.fromkeys(variable for part in constraint.body for variable in variables(part.unit)))
