"""Which rules give facts newly or no longer, when facts come and go.

Only instances of rules that rest on a changed fact are looked at. What they no longer give is taken away, together with
what rested on it (delete), brought back where other instances give it (rederive), and what is new is followed forward
as in an application (semi-naive). Strata are settled in order: a new fact below may end one above, and the reverse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from rulewright.data import signature
from rulewright.data.index import Ids
from rulewright.engine.indexed import IndexedRules, LayeredFacts, RuleInstances, Scores, State, group_rows
from rulewright.reason.fact_change import (
    FactChange,
    Facts,
    Mask,
    are_among,
    distinct_facts,
    join_facts,
    no_facts,
    pick_facts,
)
from rulewright.reason.inferred import Inferred

_FEW_FACTS = 4  # that are tried first
_TIGHT = 1 - 1e-12  # an instance with this share of a fact's score may be the one that it has it from


class RuleChanges:
    """What settling finds: inferred facts that go as a whole, and rules that no longer or newly give a fact."""

    def __init__(self, change: FactChange) -> None:
        self.dropped = {letters: facts.find_blocked() for letters, facts in change.facts.items()}
        self.lost = {letters: RuleInstances.gather(len(letters) + 1, []) for letters in change.facts}
        self.gained: dict[str, list[tuple[RuleInstances, int]]] = {letters: [] for letters in change.facts}

    def gather_gained(self, letters: str) -> tuple[RuleInstances, Ids]:
        """Return the rules that newly give a fact, or may do so again, with the round of each."""
        parts = self.gained[letters]
        columns = join_facts([no_facts(letters), *(instances.columns for instances, _ in parts)])
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


def settle_once(change: FactChange, rules: Sequence[IndexedRules]) -> RuleChanges:
    """Find what one round gives newly and no longer: only known facts are premises."""
    before = {
        letters: LayeredFacts(len(letters) + 1, [(facts.known_before, np.ones(len(facts.known_before)))])
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
    outcome, application = RuleChanges(change), change.application
    for letters, facts in change.facts.items():
        new = gained.gather(letters)
        new = new.select(~facts.are_decided_after(new.columns))
        if application.aggregation == "noisy-or" and application.min_score > 0:
            # Of a fact that scored too little, nothing is known of the rules that gave it
            heads = distinct_facts(pick_facts(new.columns, facts.derived.find(new.columns) < 0))
            parts = [new, _give(rules, letters, facts.strip_class(heads), after)]
            new = RuleInstances.gather(len(letters) + 1, parts)
            new = new.select(~facts.are_decided_after(new.columns))
        elif application.aggregation != "noisy-or":
            new = new.select(new.scores >= application.min_score)
        outcome.gained[letters].append((new.select(~change.were_given(letters, new)), 1))
        outcome.lost[letters] = _find_lost(change, outcome, letters, maybe_lost.gather(letters), rules, after)
    return outcome


def settle_anew(change: FactChange, anew: Inferred) -> RuleChanges:
    """Take all that was inferred away, and all that is inferred ``anew`` over the new knowledge base for it."""
    outcome = RuleChanges(change)
    for letters in change.facts:
        outcome.dropped[letters][:] = True
    for name, facts in anew.derived.items():
        letters = signature(change.kb.predicate(name))
        fact = np.repeat(np.arange(len(facts.scores)), np.diff(facts.source_bounds))
        columns = [column[fact] for column in change.encode_new(name, facts.columns)]
        predicate = np.full(len(fact), change.kb.predicate_index(name))
        instances = RuleInstances((predicate, *columns), facts.source_indices.astype(np.int64), facts.source_scores)
        outcome.gained[letters].append((instances, 1))
    return outcome


def _find_lost(
    change: FactChange,
    outcome: RuleChanges,
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
        lost = lost.select(~are_among((*lost.columns, lost.sources), (*still.columns, still.sources)))
    return lost


def _select_inferred(change: FactChange, outcome: RuleChanges, letters: str, instances: RuleInstances) -> RuleInstances:
    """Return the instances whose heads were inferred and do not go as a whole."""
    positions = change.facts[letters].derived.find(instances.columns)
    stays = positions >= 0
    stays[stays] = ~outcome.dropped[letters][positions[stays]]
    return instances.select(stays)


def settle_strata(change: FactChange, strata: Sequence[Sequence[IndexedRules]]) -> RuleChanges:
    """Find what the fixed point has newly and no longer, stratum by stratum."""
    outcome = RuleChanges(change)
    scores = _stack_scores(change)
    before, after = (
        {
            letters: LayeredFacts(
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

    def __init__(self, change: FactChange, outcome: RuleChanges, before: State, after: State) -> None:
        self.change, self.outcome, self.before, self.after = change, outcome, before, after
        nothing = {letters: no_facts(letters) for letters in change.facts}
        # Of all strata so far: facts with another score than before, and facts that are there newly or no longer
        self.worse, self.better, self.come, self.gone = (dict(nothing) for _ in range(4))

    def take_known(self, is_chosen: Callable[[Ids], Mask]) -> None:
        """Take up what changed among the known facts of some predicates."""
        for letters, facts in self.change.facts.items():
            gone, come = (
                pick_facts(facts.gone, is_chosen(facts.gone[0])),
                pick_facts(facts.come, is_chosen(facts.come[0])),
            )
            self.after[letters].drop(gone)
            self.after[letters].put(come, np.ones(len(come[0])))
            self._note_changes(letters, [gone, come])

    def settle(self, rules: Sequence[IndexedRules]) -> None:
        """Settle one stratum."""
        own = np.unique(np.concatenate([np.empty(0, dtype=np.int64), *(rule.head.predicates for rule in rules)]))
        deleted = self._delete(rules, own)
        known = {
            letters: pick_facts(facts.come, np.isin(facts.come[0], own)) for letters, facts in self.change.facts.items()
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
            blocked = pick_facts(facts.derived.columns, self.outcome.dropped[letters])
            seeds = join_facts([facts.gone, pick_facts(blocked, facts.known_after.scores(blocked) < 0)])
            deleted[letters] = pick_facts(seeds, np.isin(seeds[0], own))
        frontier = {letters: join_facts([deleted[letters], self.worse[letters]]) for letters in deleted}
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
                heads = distinct_facts(pick_facts(instances.columns, is_tight))
                heads = pick_facts(heads, ~are_among(heads, deleted[letters]) & (facts.known_after.scores(heads) < 0))
                frontier[letters], deleted[letters] = heads, join_facts([deleted[letters], heads])
        return deleted

    def _follow(
        self, rules: Sequence[IndexedRules], own: Ids, deleted: dict[str, Facts], known: dict[str, Facts]
    ) -> None:
        """Bring back what other instances give, and follow what is new or better until nothing is."""
        found = _FoundInstances()
        better = {letters: join_facts([self.better[letters], known[letters]]) for letters in known}
        scores = {letters: self.after[letters].scores(facts) for letters, facts in better.items()}
        for rule in rules:
            facts = self.change.facts[rule.head_signature]
            unblocked = facts.find_unblocked()
            unblocked = pick_facts(unblocked, np.isin(unblocked[0], own))
            heads = distinct_facts(join_facts([facts.strip_class(deleted[rule.head_signature]), unblocked]))
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
                better[letters], scores[letters] = pick_facts(heads, is_better), best[is_better]
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
        facts = distinct_facts(join_facts(touched))
        before, after = self.before[letters].scores(facts), self.after[letters].scores(facts)
        for listed, is_so in (
            (self.worse, before > after),
            (self.better, after > before),
            (self.gone, (before >= 0) & (after < 0)),
            (self.come, (before < 0) & (after >= 0)),
        ):
            listed[letters] = join_facts([listed[letters], pick_facts(facts, is_so)])


def _rederive_lost(
    change: FactChange,
    outcome: RuleChanges,
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
    still = still.select(are_among((*still.columns, still.sources), (*lost.columns, lost.sources)))
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


def _stack_scores(change: FactChange) -> dict[str, Scores]:
    """Return the scores of what was inferred, in the order of the facts of each signature."""
    scores: dict[str, list[Scores]] = {letters: [np.empty(0)] for letters in change.facts}
    for name, facts in change.moved.items():
        scores[signature(change.kb.predicate(name))].append(facts.scores)
    return {letters: np.concatenate(parts) for letters, parts in scores.items()}
