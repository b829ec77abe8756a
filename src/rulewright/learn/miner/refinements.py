"""Chains that ask more of their ends: ``father_of(X, Y) ← parent_of(X, Y), male(X)``, or a comparison of their numbers.

A chain of one step or two is refined by a unary fact or a class of either end, one of a single step also by comparing
an attribute of both ends, ``elder_of(X, Y) ← sibling_of(X, Y), age(X, A), age(Y, B), A > B``. All groundings are
entries of one sparse matrix, pairs of ends × bodies, whose product with the facts counts the rules of all heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
from scipy import sparse

from rulewright.data import KnowledgeBase
from rulewright.data.index import Ids, encode_rows, look_up, match_pairs
from rulewright.engine.chain_counts import edges
from rulewright.learn.miner.confidence import TRUST, Counts, annotate_counts, bound_shares, keep_rows
from rulewright.learn.miner.filters import RuleFilters
from rulewright.learn.miner.properties import NONE, Properties, choose_best, entries_at, find_unary
from rulewright.logic import (
    Annotations,
    Atom,
    Comparison,
    Formula,
    Membership,
    Rule,
    Variable,
    decode_path,
    encode_step,
    is_inverse,
    path_atoms,
    step_relation,
)
from rulewright.logic.terms import Comparator

MAX_GROUNDINGS = 3_000_000
"""How many groundings chains of two steps may have, with the unary facts of their ends, to be refined."""
_COMPARATORS: tuple[Comparator, ...] = (">", "<")
_KNOWN = len(_COMPARATORS)
"""Stands for a comparator where it is asked only that both numbers are known."""


@dataclass(frozen=True)
class _Walks:
    """Groundings of paths of one step or two, as columns; ``middle`` and ``second`` are `NONE` where there is one."""

    first: Ids
    second: Ids
    start: Ids
    middle: Ids
    end: Ids

    def __len__(self) -> int:
        return len(self.first)


class RefinementCounter:
    """Counts chains that unary facts or comparisons of their ends refine, exactly; groundings that are loops apart.

    A refined rule is kept where it does better than the same chain without the refinement, for a comparison the chain
    between ends whose numbers are known: where the lower bound of its share of pairs, at 5 % divided by the number of
    ways to refine a chain, is above the share of the other.
    """

    def __init__(self, kb: KnowledgeBase, filters: RuleFilters, *, thresholds: bool, two_steps: bool) -> None:
        self.kb, self.filters = kb, filters
        self.notes: list[str] = []
        self._unary = find_unary(kb) if filters.unary else None
        self._numbers = kb.tables().get("en") if thresholds else None
        self._two_steps = two_steps

    def mine(self) -> list[Rule]:
        """Return the rules that pass the filters, or the best of them; `notes` say what was left out."""
        facts = self.kb.tables().get("ee")
        unary = self._unary if self._unary is not None and len(self._unary) else None
        if facts is None or (unary is None and self._numbers is None):
            return []
        walks = self._walk(unary)
        bodies, body, walk = self._list_bodies(walks, unary)
        is_loop = walks.start[walk] == walks.end[walk]
        has_loops = np.bincount(body, is_loop, len(bodies)) > 0
        body, walk = body[~is_loop], walk[~is_loop]
        entities = self.kb.n_entities
        pairs, pair = np.unique(walks.start[walk] * entities + walks.end[walk], return_inverse=True)
        shape = (len(pairs), len(bodies))
        ways = sparse.csr_array((np.ones(len(body), dtype=np.int64), (pair.reshape(-1), body)), shape=shape)
        once = ways.copy()
        once.data[:] = 1
        relations = len(self.kb.predicates)
        before, after = (column.astype(np.int64) for column in facts.columns)
        fact_pair = look_up(before * entities + after, pairs, np.arange(len(pairs)) + 1) - 1
        wanted = fact_pair != NONE
        if self.filters.targets is not None:
            wanted &= np.isin(facts.predicate, [self.kb.predicate_index(name) for name in self.filters.targets])
        ones = np.ones(int(wanted.sum()), dtype=np.int64)
        heads = sparse.csr_array((ones, (facts.predicate[wanted], fact_pair[wanted])), shape=(relations, len(pairs)))
        subjects = sparse.csr_array((np.ones(len(before), dtype=np.int64), (before, facts.predicate)))
        subjects.resize((entities, relations))
        subjects.data[:] = 1
        known = (subjects[pairs // entities].T @ once).tocsr()
        product, distinct = heads @ ways, heads @ once
        product.sort_indices()
        distinct.sort_indices()
        cells = product.tocoo()
        head, rule_body = cells.row.astype(np.int64), cells.col.astype(np.int64)
        counts: Counts = {"h": head, "b": rule_body, "support": cells.data, "support_pairs": distinct.data}
        counts["body"] = np.asarray(ways.sum(axis=0)).ravel().astype(np.int64)[rule_body]
        counts["body_pairs"] = np.asarray(once.sum(axis=0)).ravel().astype(np.int64)[rule_body]
        counts["known_pairs"] = entries_at(known, head, rule_body)
        counts["named"] = np.zeros_like(head)
        counts["facts"] = np.bincount(facts.predicate, minlength=relations)[head]
        if not self.filters.circular:
            self._take_circular(counts, walks, walk, body, pair.reshape(-1), ways)
        keep = self._compare(counts, bodies)
        chosen, note = choose_best(keep_rows(counts, keep), self.filters)
        self.notes += [note.format("refined chains")] if note else []
        return self._write(chosen, bodies, has_loops)

    def _walk(self, unary: Properties | None) -> _Walks:
        """List the groundings of paths of one step, and of two where they are few enough."""
        facts = self.kb.tables()["ee"]
        step, before, after = (column.astype(np.int64) for column in edges(facts).values())
        often = np.bincount(facts.predicate)[step_relation(step)] >= self.filters.min_relation_facts
        if not self.filters.inverses:
            often &= is_inverse(step) == 0
        step, before, after = step[often], before[often], after[often]
        nothing = np.full(len(step), NONE)
        single = _Walks(step, nothing, before, nothing, after)
        if unary is None or not self._two_steps:
            return single
        leaving = np.bincount(before, minlength=self.kb.n_entities)
        per_entity = 1 + 2 * np.diff(unary.holds.indptr).sum() / max(1, self.kb.n_entities)
        groundings = int(leaving[after].sum() * per_entity)
        if groundings > MAX_GROUNDINGS:
            self.notes.append(
                f"chains of two steps were not refined by unary predicates: their {groundings:,} groundings are more "
                f"than {MAX_GROUNDINGS:,}"
            )
            return single
        one, two = match_pairs(after, before)
        if not self.filters.repeated:
            differ = step[one] != step[two]
            one, two = one[differ], two[differ]
        double = _Walks(step[one], step[two], before[one], after[one], after[two])
        columns = ("first", "second", "start", "middle", "end")
        first, second, start, middle, end = (
            np.concatenate([getattr(single, name), getattr(double, name)]) for name in columns
        )
        return _Walks(first, second, start, middle, end)

    def _list_bodies(self, walks: _Walks, unary: Properties | None) -> tuple[_Bodies, Ids, Ids]:
        """Return the bodies, and for every grounding its body and its walk."""
        everything = np.arange(len(walks))
        parts: list[tuple[Ids, int, Ids | int, Ids | int, int]] = [(everything, NONE, NONE, NONE, NONE)]
        if unary is not None:
            entity, index, _ = unary.entries()
            for side, ends in enumerate((walks.start, walks.end)):
                position, match = match_pairs(ends, entity)
                parts.append((position, side, index[match], NONE, NONE))
        if self._numbers is not None:
            owner, value = self._numbers.columns[0].astype(np.int64), self._numbers.columns[1]
            attribute = self._numbers.predicate.astype(np.int64)
            single = np.flatnonzero(walks.second == NONE)
            position, left = match_pairs(walks.start[single], owner)
            size = len(self.kb.predicates)
            keys = walks.end[single][position] * size + attribute[left]
            match, right = match_pairs(keys, owner * size + attribute)
            walk, left = single[position[match]], left[match]
            compared = value[left], value[right]
            for comparator, holds in enumerate((compared[0] > compared[1], compared[0] < compared[1])):
                parts.append((walk[holds], NONE, NONE, attribute[left[holds]], comparator))
            parts.append((walk, NONE, NONE, attribute[left], _KNOWN))
        walk = np.concatenate([part[0] for part in parts])
        columns: list[Ids] = [walks.first[walk], walks.second[walk]]
        for column in range(1, 5):
            columns.append(np.concatenate([np.broadcast_to(part[column], part[0].shape) for part in parts]))
        sizes = [int(column.max(initial=0)) + 2 for column in columns]
        keys = encode_rows([column + 1 for column in columns], sizes)
        _, first, body = np.unique(keys, return_index=True, return_inverse=True)
        bodies = _Bodies(*(column[first].astype(np.int64) for column in columns))
        return bodies, body.reshape(-1), walk

    def _take_circular(
        self, counts: Counts, walks: _Walks, walk: Ids, body: Ids, pair: Ids, ways: sparse.csr_array
    ) -> None:
        """Take from the counts the groundings in which a step is the head's own fact: they have two steps."""
        first, second, middle = walks.first[walk], walks.second[walk], walks.middle[walk]
        is_first = (is_inverse(first) == 0) & (middle == walks.end[walk])
        is_second = (second != NONE) & (is_inverse(second) == 0) & (middle == walks.start[walk])
        rows = np.concatenate([np.flatnonzero(is_first), np.flatnonzero(is_second)])
        head = step_relation(np.concatenate([first[is_first], second[is_second]]))
        size = ways.shape[1]
        keys, gone = np.unique((head * ways.shape[0] + pair[rows]) * size + body[rows], return_counts=True)
        heads, pairs, bodies = keys // size // ways.shape[0], keys // size % ways.shape[0], keys % size
        lost = entries_at(ways, pairs, bodies) == gone
        rules, rule = np.unique(heads * size + bodies, return_inverse=True)
        groundings = np.bincount(rule.reshape(-1), gone, len(rules)).astype(np.int64)
        pairs_gone = np.bincount(rule.reshape(-1), lost, len(rules)).astype(np.int64)
        wanted = counts["h"] * size + counts["b"]
        for name in ("support", "body"):
            counts[name] = counts[name] - look_up(wanted, rules, groundings)
        for name in ("support_pairs", "body_pairs", "known_pairs"):
            counts[name] = counts[name] - look_up(wanted, rules, pairs_gone)

    def _compare(self, counts: Counts, bodies: _Bodies) -> npt.NDArray[np.bool_]:
        """Tell which refined rules pass the filters and do better than the chain that they refine."""
        filters, head, body = self.filters, counts["h"], counts["b"]
        general = bodies.find_general()
        is_trivial = (bodies.first[body] == encode_step(head)) & (bodies.second[body] == NONE)
        keep = (general[body] != NONE) & ~is_trivial & filters.pass_counts(counts)
        rows = np.flatnonzero(keep)
        attributes = 0 if self._numbers is None else len(np.unique(self._numbers.predicate))
        ways = 2 * ((0 if self._unary is None else len(self._unary)) + attributes)
        bounds = bound_shares(counts["support_pairs"][rows], counts["body_pairs"][rows], trust=TRUST / ways)
        has_cases = counts["body"] > 0
        shares = counts["support_pairs"][has_cases] / counts["body_pairs"][has_cases]
        keys = head * len(bodies) + body
        wanted = head[rows] * len(bodies) + general[body[rows]]
        better = np.zeros(len(keep), dtype=bool)
        better[rows] = bounds > look_up(wanted, keys[has_cases], shares)
        return better

    def _write(self, counts: Counts, bodies: _Bodies, has_loops: npt.NDArray[np.bool_]) -> list[Rule]:
        names = list(self.kb.predicates)
        confidences = self.filters.confidences(counts).tolist()
        rules = []
        rows = zip(counts["h"].tolist(), counts["b"].tolist(), confidences, annotate_counts(counts), strict=True)
        for head, body, confidence, statistics in rows:
            path = [step for step in (int(bodies.first[body]), int(bodies.second[body])) if step != NONE]
            ends = Variable("V0"), Variable(f"V{len(path)}")
            parts: list[Formula] = [*path_atoms(decode_path(tuple(path), names), *ends)]
            if bodies.unary[body] != NONE:
                parts += _write_unary(self.kb, cast("Properties", self._unary), bodies, body, ends)
            if bodies.attribute[body] != NONE:
                numbers = Variable("A"), Variable("B")
                parts += [Atom(names[bodies.attribute[body]], pair) for pair in zip(ends, numbers, strict=True)]
                parts.append(Comparison(_COMPARATORS[bodies.comparator[body]], *numbers))
            if has_loops[body]:
                parts.append(Comparison("!=", *ends))
            rules.append(Rule(Atom(names[head], ends), tuple(parts), confidence, Annotations(statistics)))
        return rules


@dataclass(frozen=True)
class _Bodies:
    """Bodies, as columns: a path, and the unary fact of an end (``side`` 0 or 1), or an attribute and a comparator."""

    first: Ids
    second: Ids
    side: Ids
    unary: Ids
    attribute: Ids
    comparator: Ids

    def __len__(self) -> int:
        return len(self.first)

    def find_general(self) -> Ids:
        """Return for each body the one that it refines, `NONE` for one that refines none."""
        refines = (self.unary != NONE) | ((self.attribute != NONE) & (self.comparator != _KNOWN))
        sizes = [int(max(column.max(initial=0) for column in (self.first, self.second))) + 2] * 2
        sizes += [int(self.attribute.max(initial=0)) + 2]
        keys = encode_rows([self.first + 1, self.second + 1, self.attribute + 1], sizes)
        plain = np.flatnonzero(~refines)
        general = look_up(keys, keys[plain], plain + 1) - 1
        return np.where(refines, general, NONE)


def _write_unary(
    kb: KnowledgeBase, unary: Properties, bodies: _Bodies, body: int, ends: tuple[Variable, Variable]
) -> list[Formula]:
    index = int(bodies.unary[body])
    declaration = kb.predicates[list(kb.predicates)[unary.predicate[index]]]
    atom = Atom(declaration.name, (ends[bodies.side[body]],))
    if declaration.classes is None:
        return [atom]
    return [Membership(atom, (declaration.classes[unary.class_index[index]],))]
