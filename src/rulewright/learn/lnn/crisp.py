"""Which crisp rules hold the same facts true as a network does, on the groundings that it was trained on.

The truth value of a row of groundings is monotone in its literals: it never falls when one more literal holds. So a row
that is true enough has a smallest set of literals that make it so whatever the others are, an *implicant* of the whole
network: all weights and β of its gates, not one leaf, decide what belongs to it. The implicants of all rows by which
facts are true are candidates for rules; of these a set is chosen that agrees with the network on most facts, and then
one with few literals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rulewright.data.index import expand_ranges
from rulewright.learn.lnn.grounding import HiddenColumns, TemplateGrounding
from rulewright.learn.lnn.network import TemplateNetwork, TruthFlow
from rulewright.learn.lnn.operators import Mixer
from rulewright.learn.lnn.template import Check, Leaf
from rulewright.learn.lnn.unfolding import (
    Bits,
    HeadReading,
    Kept,
    Nested,
    Part,
    Slot,
    UnfoldedFrame,
    UnfoldedGate,
    UnfoldedHead,
    Unfolding,
    find_inner,
)
from rulewright.logic import Comparison

MAX_READINGS = 50
"""How many rules a target may be read as."""
MAX_CANDIDATES = 200
"""How many implicants are compared with the network: those of most facts."""

_MAX_PATTERNS = 2_000  # different sets of literals whose implicants are looked for: those of most facts
_MAX_CELLS = 20_000_000  # facts times literals that are described at a time
_SIGNIFICANT = 0.01  # members with a smaller share of a leaf's largest weight tell no patterns apart
_EXACT = 1e-9  # what sums in another order may differ by

Ids: TypeAlias = npt.NDArray[np.int64]


@dataclass
class _BestRows:
    """The best row of each of some facts, all the way down: which members hold in each slot, and which checks.

    ``soft`` has the truth values of members that are negated heads. Where a frame has no row for a fact it is absent.
    """

    size: int
    present: dict[int, Bits]
    holds: dict[int, Bits]
    soft: dict[int, npt.NDArray[np.float64]]
    checks: dict[tuple[int, Comparison], Bits]

    def encode(self, unfolding: Unfolding) -> npt.NDArray[np.uint8]:
        """Return a row of bytes for each fact, the same where it is true in the same way."""
        columns = [bits[:, None] for bits in self.present.values()]
        columns += [bits[:, None] for bits in self.checks.values()]
        for slot in unfolding.slots:
            weights = np.array(unfolding.weights[slot.first : slot.first + len(slot.leaf.members)])
            columns.append(self.holds[slot.index][:, weights >= _SIGNIFICANT * weights.max()])
        return np.packbits(np.hstack(columns), axis=1)


class CrispReader:
    """Reads heads of a network over one grounding."""

    def __init__(self, network: TemplateNetwork, grounding: TemplateGrounding) -> None:
        self.network = network
        self.grounding = replace(grounding, constants={})  # so that the rows of fixed parts are computed too
        self.flow = TruthFlow(network, self.grounding)
        self._read: dict[tuple[str, HiddenColumns | None], HeadReading] = {}
        self._best: dict[tuple[str, HiddenColumns | None], Ids] = {}
        self._members: dict[str, _MemberFacts] = {}

    def read(
        self, name: str, hidden: HiddenColumns | None, *, facts: Ids | None = None, min_truth: float = 0.5
    ) -> HeadReading:
        """Choose rules for a head that agree with the network on some facts of it, or on all."""
        if (name, hidden) not in self._read:
            with torch.no_grad():
                self._read[name, hidden] = self._choose(name, hidden, facts, min_truth)
        return self._read[name, hidden]

    def _choose(self, name: str, hidden: HiddenColumns | None, facts: Ids | None, min_truth: float) -> HeadReading:
        unfolding = Unfolding(self.network, name, hidden)
        values = self.flow.facts(name, hidden).numpy()
        among = np.arange(len(values)) if facts is None else np.unique(facts[facts >= 0])
        min_truth = max(min_truth, _EXACT)  # what is false is never true enough
        is_true = values[among] >= min_truth - _EXACT / 2
        candidates = self._find_implicants(unfolding, among[is_true], min_truth)

        def cover(kept: Kept) -> Bits:
            return self._apply(unfolding, kept)[among]

        chosen, covered = choose_agreeing(candidates, cover, is_true, unfolding)
        return HeadReading(
            unfolding,
            tuple(chosen.items()),
            covered,
            disagree(covered, is_true),
            float(values[among].max(initial=0.0)),
        )

    # How facts are true

    def _find_implicants(self, unfolding: Unfolding, facts: Ids, min_truth: float) -> dict[Kept, float]:
        """Return implicants of the facts' best rows with their truth values, those of most facts first."""
        if not len(facts):
            return {}
        size = max(1, _MAX_CELLS // (len(unfolding.weights) + 1))
        codes, firsts, counts = [], [], []
        for start in range(0, len(facts), size):
            part = facts[start : start + size]
            coded = self._describe(unfolding, part).encode(unfolding)
            unique, first, number = np.unique(coded, axis=0, return_index=True, return_counts=True)
            codes.append(unique)
            firsts.append(part[first])
            counts.append(number)
        unique, back = np.unique(np.concatenate(codes), axis=0, return_inverse=True)
        frequency = np.bincount(back.reshape(-1), weights=np.concatenate(counts)).astype(np.int64)
        representatives = np.empty(len(unique), dtype=np.int64)
        representatives[back.reshape(-1)] = np.concatenate(firsts)
        most = np.argsort(-frequency, kind="stable")[:_MAX_PATTERNS]
        kept, values = self._shrink(unfolding, self._describe(unfolding, representatives[most]), min_truth)
        found: dict[Kept, float] = {}
        weight: dict[Kept, int] = {}
        for row, value, number in zip(kept, values.tolist(), frequency[most].tolist(), strict=True):
            if value < _EXACT:  # only the sum over rows is true
                continue
            implicant = frozenset(np.flatnonzero(row).tolist())
            found[implicant] = value
            weight[implicant] = weight.get(implicant, 0) + number
        ranked = sorted(found, key=lambda implicant: (-weight[implicant], len(implicant), sorted(implicant)))
        return {implicant: found[implicant] for implicant in ranked[:MAX_CANDIDATES]}

    def _describe(self, unfolding: Unfolding, facts: Ids) -> _BestRows:
        """Follow facts down to the rows and members that they are true by."""
        pattern = _BestRows(len(facts), {}, {}, {}, {})

        def describe_head(head: UnfoldedHead, facts: Ids) -> None:
            for clause, index in zip(head.clauses, self.grounding.heads[head.head.name], strict=True):
                describe_frame(clause, _gather(index.numpy(), facts))

        def describe_frame(frame: UnfoldedFrame, facts: Ids) -> None:
            rows = _gather(self._best_rows(frame.frame.name, frame.hidden), facts)
            pattern.present[frame.index] = rows >= 0
            describe_part(frame.part, frame, rows)

        def describe_part(part: Part, frame: UnfoldedFrame, rows: Ids) -> None:
            ground = self.grounding.frames[frame.frame.name]
            match part:
                case Slot():
                    facts = _gather(ground.looks[part.position].numpy(), rows)
                    describe_slot(part, frame, facts, rows)
                case Nested(inner, position):
                    describe_frame(inner, _gather(ground.looks[position].numpy(), rows))
                case Check(comparison):
                    pattern.checks[frame.index, comparison] = _gather_bits(ground.checks[comparison].numpy(), rows)
                case UnfoldedGate():
                    for check in part.checks:
                        pattern.checks[frame.index, check] = _gather_bits(ground.checks[check].numpy(), rows)
                    for inner_part in part.parts:
                        describe_part(inner_part, frame, rows)

        def describe_slot(slot: Slot, frame: UnfoldedFrame, facts: Ids, rows: Ids) -> None:
            members = self._members_of(slot.leaf)
            holds = members.holds(facts)
            for member, own_rows in self._own_rows(frame, slot).items():
                holds[np.isin(rows, own_rows), member] = False
            soft = np.zeros(holds.shape)
            for member, derived in members.derived.items():
                if slot.negated:
                    values = self.flow.facts(slot.leaf.members[member], find_inner(slot)).numpy()
                    soft[:, member] = np.append(values, 0.0)[_gather(derived, facts)]
                    crisp = self.read(slot.leaf.members[member], find_inner(slot)).holds
                    holds[:, member] = _gather_bits(crisp, _gather(derived, facts))
                else:
                    describe_head(slot.heads[member], _gather(derived, facts))
            pattern.holds[slot.index], pattern.soft[slot.index] = holds, soft

        describe_head(unfolding.root, facts)
        return pattern

    def _shrink(
        self, unfolding: Unfolding, pattern: _BestRows, min_truth: float
    ) -> tuple[Bits, npt.NDArray[np.float64]]:
        """Leave out literals of each pattern as long as the rest is true enough; return what is kept, and its value."""
        kept = np.ones((pattern.size, len(unfolding.weights)), dtype=bool)
        for slot in unfolding.slots:
            holds = pattern.holds[slot.index]
            kept[:, slot.literals.start : slot.literals.stop] = ~holds if slot.negated else holds
        least = np.minimum(self._run(unfolding, pattern, kept), min_truth) - _EXACT / 2

        def leave_out(literals: Iterable[int], but: Ids | None = None) -> None:
            trial = kept.copy()
            trial[:, list(literals)] = False
            if but is not None:
                trial[np.arange(len(kept)), but] = kept[np.arange(len(kept)), but]
            if (trial != kept).any():
                still = self._run(unfolding, pattern, trial) >= least
                kept[still] = trial[still]

        for literal in unfolding.by_weight(literal for choice in unfolding.choices for literal in choice):
            leave_out([literal])
        weights = np.array(unfolding.weights)
        for slot in unfolding.slots:  # most often one member says it all
            literals = np.array(slot.literals)
            leave_out(slot.literals, literals[(kept[:, literals] * (weights[literals] + 1e-12)).argmax(axis=1)])
        for literal in unfolding.by_weight(literal for slot in unfolding.slots for literal in slot.literals):
            if kept[:, literal].any():
                leave_out([literal])
        return kept, self._run(unfolding, pattern, kept)

    def _run(self, unfolding: Unfolding, pattern: _BestRows, kept: Bits) -> npt.NDArray[np.float64]:
        """Return how true each pattern is where only the literals hold that are kept."""
        keeps = torch.from_numpy(kept.astype(np.float64))

        def run_head(head: UnfoldedHead) -> Tensor:
            values = torch.stack([run_frame(clause) for clause in head.clauses], dim=-1)
            if head.first is not None:
                values = values * keeps[:, head.first : head.first + len(head.clauses)]
            return values[:, 0] if head.head.operator is None else self._operate(head.head.operator, values)

        def run_frame(frame: UnfoldedFrame) -> Tensor:
            return run_part(frame.part, frame) * torch.from_numpy(pattern.present[frame.index])

        def run_part(part: Part, frame: UnfoldedFrame) -> Tensor:
            match part:
                case Slot():
                    return run_slot(part)
                case Nested(inner):
                    return run_frame(inner)
                case Check(comparison):
                    return torch.from_numpy(pattern.checks[frame.index, comparison]).double()
            values = [run_part(inner, frame) for inner in part.parts]
            if part.first is not None:
                values = [value * keeps[:, part.first + position] for position, value in enumerate(values)]
            if part.operator is not None:
                result = self._operate(part.operator, torch.stack(values, dim=-1))
            else:
                result = values[0] if values else torch.ones(pattern.size, dtype=torch.float64)
            for check in part.checks:
                result = result * torch.from_numpy(pattern.checks[frame.index, check])
            return result

        def run_slot(slot: Slot) -> Tensor:
            keep = keeps[:, slot.literals.start : slot.literals.stop]
            if slot.negated:
                soft = torch.from_numpy(pattern.soft[slot.index])
                return 1 - self._mix(slot.leaf, 1 - keep * (1 - soft)).clamp(max=1)
            members = keep * torch.from_numpy(pattern.holds[slot.index])
            for member, head in slot.heads.items():
                members[:, member] = keep[:, member] * run_head(head)
            return self._mix(slot.leaf, members)

        values: npt.NDArray[np.float64] = run_head(unfolding.root).numpy()
        return values

    def _operate(self, key: str, values: Tensor) -> Tensor:
        result: Tensor = self.network.operator(key)(values)
        return result

    def _mix(self, leaf: Leaf, members: Tensor) -> Tensor:
        if leaf.operator is None:
            return members[:, 0]
        operator = self.network.operator(leaf.operator)
        assert isinstance(operator, Mixer)
        return operator.mix(members @ operator.weights())

    # Where rules hold

    def _apply(self, unfolding: Unfolding, kept: Kept) -> Bits:
        """Return which facts of a head the rule of some literals gives."""

        def apply_head(head: UnfoldedHead) -> Bits:
            holds = np.ones(len(self.grounding.tables[head.head.name][0]), dtype=bool)
            clauses = zip(head.clauses, self.grounding.heads[head.head.name], strict=True)
            for position, (clause, index) in enumerate(clauses):
                if head.first is None or head.first + position in kept:
                    holds &= _gather_bits(apply_frame(clause), index.numpy())
            return holds

        def apply_frame(frame: UnfoldedFrame) -> Bits:
            ground = self.grounding.frames[frame.frame.name]
            holds = np.zeros(ground.size, dtype=bool)
            holds[ground.facts.numpy()[apply_part(frame.part, frame)]] = True
            return holds

        def apply_part(part: Part, frame: UnfoldedFrame) -> Bits:
            ground = self.grounding.frames[frame.frame.name]
            match part:
                case Slot():
                    return apply_slot(part, frame)
                case Nested(inner, position):
                    return _gather_bits(apply_frame(inner), ground.looks[position].numpy())
                case Check(comparison):
                    return ground.checks[comparison].numpy()
            holds = np.ones(ground.rows, dtype=bool)
            for position, inner_part in enumerate(part.parts):
                if part.first is None or part.first + position in kept:
                    holds &= apply_part(inner_part, frame)
            for check in part.checks:
                holds &= ground.checks[check].numpy()
            return holds

        def apply_slot(slot: Slot, frame: UnfoldedFrame) -> Bits:
            ground = self.grounding.frames[frame.frame.name]
            members, own = self._members_of(slot.leaf), self._own_rows(frame, slot)
            holds = np.ones(ground.rows, dtype=bool)
            for member, literal in enumerate(slot.literals):
                if literal not in kept:
                    continue
                if member in slot.heads:
                    given = _gather_bits(apply_head(slot.heads[member]), members.derived[member])
                elif member in members.derived:
                    crisp = self.read(slot.leaf.members[member], find_inner(slot)).holds
                    given = _gather_bits(crisp, members.derived[member])
                else:
                    given = members.base(member)
                found = _gather_bits(given, ground.looks[slot.position].numpy())
                if member in own:
                    found[own[member]] = False
                holds &= ~found if slot.negated else found
            return holds

        return apply_head(unfolding.root)

    # What is looked up

    def _members_of(self, leaf: Leaf) -> _MemberFacts:
        if leaf.name not in self._members:
            self._members[leaf.name] = _MemberFacts(leaf, self.grounding)
        return self._members[leaf.name]

    def _best_rows(self, name: str, hidden: HiddenColumns | None) -> Ids:
        """Return for every fact of a frame the row that is truest."""
        if (name, hidden) not in self._best:
            ground = self.grounding.frames[name]
            values, facts = self.flow.rows[name, hidden], ground.facts
            top = torch.zeros(ground.size, dtype=torch.float64).scatter_reduce(0, facts, values, "amax")
            rows = np.flatnonzero((values >= top[facts]).numpy())[::-1]
            best = np.full(ground.size, -1, dtype=np.int64)
            best[facts.numpy()[rows]] = rows
            self._best[name, hidden] = best
        return self._best[name, hidden]

    def _own_rows(self, frame: UnfoldedFrame, slot: Slot) -> dict[int, Ids]:
        """Return for members that are the predicted predicate the rows where the predicted fact itself is hidden."""
        hidden = frame.hidden
        looks = None if hidden is None else self.grounding.frames[frame.frame.name].own.get(hidden)
        own = looks[slot.position] if looks else None
        if own is None:
            return {}
        rows, members = own.rows[own.positions].numpy(), own.members.numpy()
        return {int(member): rows[members == member] for member in np.unique(members)}


class _MemberFacts:
    """Which members of a leaf hold of which of its facts; ``derived`` has the facts of heads, −1 for none."""

    def __init__(self, leaf: Leaf, grounding: TemplateGrounding) -> None:
        ground = grounding.leaves[leaf.name]
        self.size, self.width = ground.size, len(leaf.members)
        self.facts, self.members = ground.rows.numpy(), ground.members.numpy()
        names = {leaf.members[member]: member for member in range(self.width) if leaf.derived[member]}
        self.derived: dict[int, Ids] = {}
        start = ground.base
        for name, node_facts in ground.derived:
            index = np.full(ground.size, -1, dtype=np.int64)
            index[self.facts[start : start + len(node_facts)]] = node_facts.numpy()
            self.derived[names[name]] = index
            start += len(node_facts)

    @cached_property
    def _by_fact(self) -> tuple[Ids, Ids]:
        order = np.argsort(self.facts, kind="stable")
        return np.searchsorted(self.facts[order], np.arange(self.size + 1)), self.members[order]

    def holds(self, facts: Ids) -> Bits:
        """Return which members hold of each of some facts, of none where the index is −1."""
        bounds, members = self._by_fact
        known = np.flatnonzero(facts >= 0)
        starts = bounds[facts[known]]
        counts = bounds[facts[known] + 1] - starts
        holds = np.zeros((len(facts), self.width), dtype=bool)
        holds[np.repeat(known, counts), members[expand_ranges(starts, counts)]] = True
        return holds

    @cached_property
    def _by_member(self) -> tuple[Ids, Ids]:
        order = np.argsort(self.members, kind="stable")
        return np.searchsorted(self.members[order], np.arange(self.width + 1)), self.facts[order]

    def base(self, member: int) -> Bits:
        """Return of which facts a predicate of the knowledge base holds."""
        bounds, facts = self._by_member
        holds = np.zeros(self.size, dtype=bool)
        holds[facts[bounds[member] : bounds[member + 1]]] = True
        return holds


def disagree(one: Bits, other: Bits) -> float:
    """Return, of what one or the other holds true, the share that only one of them does; 0 where nothing is true.

    >>> disagree(np.array([True, True, False]), np.array([True, False, False]))
    0.5
    """
    either = int((one | other).sum())
    return float((one != other).sum() / either) if either else 0.0


def choose_agreeing(
    candidates: Mapping[Kept, float], cover: Callable[[Kept], Bits], is_true: Bits, unfolding: Unfolding
) -> tuple[dict[Kept, float], Bits]:
    """Choose rules that together give the facts that are true and few others, and what they give.

    One rule after the other is taken, the one that leaves least disagreement (`disagree`), of equals the shortest; what
    literals it can do without, giving no further fact that is not true, go. Last go the rules that others make
    superfluous.
    """
    covers = {kept: cover(kept) for kept in candidates}
    chosen: dict[Kept, float] = {}
    given: dict[Kept, Bits] = {}
    covered = np.zeros(len(is_true), dtype=bool)
    while covers and len(chosen) < MAX_READINGS:
        left = {kept: disagree(bits | covered, is_true) for kept, bits in covers.items()}
        best = min(left, key=lambda kept: (left[kept], len(kept)))
        if left[best] >= disagree(covered, is_true):
            break
        kept, bits = _shorten(best, covers.pop(best), cover, is_true, unfolding)
        chosen[kept] = max(candidates[best], chosen.get(kept, 0.0))
        given[kept] = bits
        covered |= bits
    for kept in sorted(chosen, key=lambda kept: (-len(kept), int(given[kept].sum()))):
        others = np.zeros(len(is_true), dtype=bool)
        for other in chosen:
            others |= given[other] & (other != kept)
        if len(chosen) > 1 and disagree(others, is_true) <= disagree(covered, is_true):
            del chosen[kept]
            covered = others
    return dict(sorted(chosen.items(), key=lambda item: -item[1])), covered


def _shorten(
    kept: Kept, bits: Bits, cover: Callable[[Kept], Bits], is_true: Bits, unfolding: Unfolding
) -> tuple[Kept, Bits]:
    """Leave out literals, the lightest first, without which a rule gives no further fact that is not true."""
    surplus = [literal for slot in unfolding.slots if slot.negated for literal in slot.literals if literal in kept]
    groups = [slot.literals for slot in unfolding.slots if not slot.negated] + unfolding.choices
    for group in groups:
        several = [literal for literal in group if literal in kept]
        surplus += several if len(several) > 1 else []
    for literal in unfolding.by_weight(surplus):
        group = next((group for group in groups if literal in group), range(0))
        if sum(other in kept for other in group) == 1:
            continue
        fewer = cover(kept - {literal})
        if not (fewer & ~bits & ~is_true).any():
            kept, bits = kept - {literal}, fewer
    return kept, bits


def _gather(values: npt.NDArray[Any], index: Ids) -> Ids:
    """Return values by index, −1 where the index is −1."""
    found: Ids = np.append(values, -1)[index]
    return found


def _gather_bits(values: Bits, index: Ids) -> Bits:
    """Return truth values by index, false where the index is −1."""
    found: Bits = np.append(values, False)[index]
    return found
