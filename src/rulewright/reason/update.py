"""What follows newly and what no longer does when facts come and go, without starting over."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, signature
from rulewright.data.facts import empty_columns, group_by_signature
from rulewright.data.index import Ids, encode_rows, range_bounds
from rulewright.engine.batches import Derivation
from rulewright.engine.sql import argument_columns
from rulewright.errors import DataError
from rulewright.logic import Comparison, Variable, variables
from rulewright.reason.apply import apply
from rulewright.reason.fact_change import FactChange, Mask, are_among, join_facts, no_facts, pick_facts
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
from rulewright.reason.settling import RuleChanges, settle_anew, settle_once, settle_strata
from rulewright.tables import html_table


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
    a changed fact is looked at; where one round asks for the absence of what it concludes itself, it is applied anew.
    ``round`` is that of the application or update that first gave a fact. It takes what
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
    change = FactChange(inferred, program, application)
    strata = find_strata(program.derivations, circles=once)
    if once and len(strata) > 1:  # what must be absent is concluded in this round too
        anew = apply(
            application.rules,
            kb,
            aggregation=application.aggregation,
            min_score=application.min_score,
            max_facts=sys.maxsize,  # of too many, those to keep are chosen below
        )
        return _assemble(change, settle_anew(change, anew), note=anew.note)
    rules = change.index_strata(strata)
    outcome = settle_once(change, rules[0] if rules else []) if once else settle_strata(change, rules)
    may_go_on = once and chains and application.max_rounds == 1
    return _assemble(change, outcome, note="every rule was applied once; a further round may give more" * may_go_on)


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


def _assemble(change: FactChange, outcome: RuleChanges, *, note: str) -> Update:
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
        touched = pick_facts(facts.derived.columns, is_touched)
        is_gone[is_touched] = ~are_among(touched, join_facts([no_facts(letters), *present]))
        is_confirmed = is_gone.copy()
        is_confirmed[is_gone] = facts.known_after.scores(pick_facts(facts.derived.columns, is_gone)) >= 0
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
    return _report(change, derived, added, removed, confirmed, note=note)


def _find_rows(
    change: FactChange, outcome: RuleChanges, letters: str, slices: Mapping[str, slice]
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
    columns = [np.repeat(column, lengths) for column in pick_facts(facts.derived.columns, stays)]
    sources = np.concatenate([np.empty(0, dtype=np.int64), *(part.source_indices for part in parts)])
    is_kept = ~are_among((*columns, sources), (*lost.columns, lost.sources))
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
    change: FactChange, letters: str, rows: dict[str, npt.NDArray[Any]]
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
    change: FactChange,
    derived: dict[str, InferredColumns],
    added: dict[str, InferredColumns],
    removed: dict[str, InferredColumns],
    confirmed: dict[str, InferredColumns],
    *,
    note: str,
) -> Update:
    """Return the results, with the constraints that are broken now, and cut where there are too many facts."""
    application, program = change.application, change.program
    by_lists = application.aggregation == "max-plus"

    def collect(kb: KnowledgeBase, parts: dict[str, InferredColumns]) -> Inferred:
        filled = {name: facts for name, facts in parts.items() if len(facts.scores)}
        return Inferred(kb, program.sources, filled, numbers=program.numbers, by_lists=by_lists)

    whole = collect(program.kb, derived)
    note = note if len(whole) else ""
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
