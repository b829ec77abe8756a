"""Chains of relations, ``head(v0, vl) ← r1(v0, v1) ∧ … ∧ rl(vl-1, vl)``: all up to a length, counted exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rulewright.checks import Progress
from rulewright.data import KnowledgeBase
from rulewright.data.index import Ids, look_up
from rulewright.engine import use_engine
from rulewright.engine.chain_counts import ChainTables, name_steps
from rulewright.errors import TimeLimitError
from rulewright.learn.miner.confidence import Confidence, Counts, keep_rows, measure_confidences
from rulewright.learn.miner.filters import RuleFilters
from rulewright.learn.miner.samples import ratio_interval
from rulewright.logic import (
    Annotations,
    Atom,
    Comparison,
    Formula,
    Rule,
    Variable,
    count_steps,
    encode_step,
    invert_step,
    is_inverse,
    step_relation,
)

MOST_WALKS = {2: 1_000_000_000, 3: 50_000_000}
"""Up to so many walks of each length are counted where no length is asked for."""

MOST_WALKS_PER_FACT = 1000
"""And up to so many walks of three steps for each fact: in denser graphs long rules are many and say little."""

MOST_PARTS = 10
"""The ends of bodies are counted in up to so many parts: each reads the edges again."""

HEAD_GROUPS = 8
"""Longer rules are counted for so many groups of heads one after the other, so that some are there when time is up."""


class ChainCounter:
    """Counts chains and keeps those that are wanted; ``notes`` has what was not counted, or not exactly.

    Of chains of more than two steps those from ``sample`` first entities are counted. Where ``time_limit`` ends the
    work, what was counted stays. ``on_rules`` is called with parts of the rules as they are found.
    """

    def __init__(
        self,
        kb: KnowledgeBase,
        filters: RuleFilters,
        *,
        sample: int | None = None,
        seed: int = 0,
        memory_limit: int | str | None = None,
        time_limit: float | None = None,
        progress: Progress | None = None,
        on_rules: Callable[[list[Rule]], None] | None = None,
    ) -> None:
        self.kb, self.filters, self.sample, self.seed = kb, filters, sample, seed
        self.memory_limit, self.time_limit, self.progress, self.on_rules = memory_limit, time_limit, progress, on_rules
        self.notes: list[str] = []

    def mine(self) -> list[Rule]:
        """Return the chains of all lengths."""
        kb, filters = self.kb, self.filters
        if "ee" not in kb.signatures():  # relations are declared at most, and none has a fact
            return []
        rules: list[Rule] = []
        length, longest = 1, filters.max_length or 2
        with ExitStack() as stack:
            engine = stack.enter_context(use_engine(kb, memory_limit=self.memory_limit))
            stack.enter_context(engine.time_limit(self.time_limit))
            try:
                tables = ChainTables(engine, len(kb.predicates), inverses=filters.inverses)
                longest = filters.max_length or self._choose_length(tables)
                for length in range(1, longest + 1):
                    for new in self._mine(tables, length, longest):
                        rules += new
                        if self.on_rules is not None:
                            self.on_rules(new)
                tables.drop()
            except TimeLimitError:
                engine.end()  # what follows is no step of a run that goes on
                self.notes.append(
                    f"stopped after {self.time_limit:g} s: rules of length {length} are not complete"
                    + (f", longer ones up to {longest} were not begun" if length < longest else "")
                    + "; a higher time_limit (--time) or a smaller max_length (--max-length) has all"
                )
        return rules

    def _choose_length(self, tables: ChainTables) -> int:
        """Return the longest body that the size of the graph affords."""
        n_facts = int(tables.count_facts().sum())
        for length, most in MOST_WALKS.items():
            walks = tables.count_walks(length)
            allowed = most if length == 2 else min(most, MOST_WALKS_PER_FACT * n_facts)
            if walks > allowed:
                self.notes.append(
                    f"rules of length {length} were left out: {walks:,} walks are more than the {allowed:,} "
                    f"that are counted unasked; max_length={length} (--max-length {length}) counts them"
                )
                return length - 1
        return max(MOST_WALKS)

    def _mine(self, tables: ChainTables, length: int, longest: int) -> Iterator[list[Rule]]:
        """Yield the rules of one length, in parts that are complete for some heads and bodies."""
        kb, filters, facts = self.kb, self.filters, tables.count_facts()
        heads = np.flatnonzero(facts)
        if filters.targets is not None:
            heads = np.intersect1d(heads, [kb.predicate_index(name) for name in filters.targets])
        groups = _group_heads(heads, facts, 1 if length <= 2 else HEAD_GROUPS)

        def report(done: int) -> None:
            if self.progress is not None:
                steps = HEAD_GROUPS + 1
                done_here = steps * done // (len(groups) + 1)
                self.progress(f"rules of length {length}", steps * (length - 1) + done_here, steps * longest)

        report(0)
        share = self._draw_sample(tables) if length > 2 else None
        first = "edge" if share is None else "sampled_edge"
        are_twins_dropped = share is None and not filters.circular  # the same in a sample may differ elsewhere
        bodies, loops = tables.count_bodies(length, first=first), tables.count_loops(length, first=first)
        count_loops = filters.loops == "against"
        for done, group in enumerate(groups, start=1):
            report(done)
            if length == 1:
                supports = tables.count_single_supports(group.tolist())
            else:
                supports = tables.count_supports(
                    length,
                    targets=None if len(group) == np.count_nonzero(facts) else group.tolist(),
                    sampled=share is not None,
                    few_paths=int(bodies["n"].sum()) <= tables.engine.few_rows,
                    circular=filters.circular,
                    loops=count_loops and not filters.circular,
                )
            counts = _join_counts(supports, bodies, loops, length, count_steps(len(kb.predicates)))
            if length == 1 and not filters.circular:
                # A fact that joins an entity to itself is its own inverse, and all that the body says of that pair
                is_inverse_head = counts["p0"] == invert_step(encode_step(counts["h"]))
                used = np.where(count_loops & is_inverse_head, counts["loops"], 0)
                counts |= {"circular": used, "hidden_pairs": used}
            counts["body"] = counts["body"] - counts["circular"]
            if not count_loops:
                counts["body"] = counts["body"] - counts["loops"]
            counts["facts"] = facts[counts["h"]]
            counts = keep_rows(counts, self._pass_filters(counts, filters, facts, length, share or 1.0))
            if not filters.circular:
                counts = keep_rows(counts, ~_are_repetitions(counts, tables.find_symmetric(), length))
            counts = keep_rows(counts, self._may_pass(counts, filters.confidence, tables.most_leaving, length))
            counts = keep_rows(counts, _order_bodies(counts, list(kb.predicates), length))
            if tables.engine.is_planned and length > 1:
                self._expect_ends(counts, tables, length)
            for part in _split_by_relations(counts, length, tables.engine.rows_at_once):
                self._count_ends(part, tables, length, share)
                kept = keep_rows(part, measure_confidences(part, filters.confidence) >= filters.min_confidence)
                if are_twins_dropped:
                    kept = self._drop_twins(kept, tables, length)
                yield self._write_rules(kept, list(kb.predicates), filters, length, share)

    def _expect_ends(self, counts: Counts, tables: ChainTables, length: int) -> None:
        """Tell how many groundings will be listed to count the ends of the bodies that are left."""
        steps = np.stack([counts[name] for name in name_steps(length)])
        _, first = np.unique(steps, axis=1, return_index=True)
        groundings = float(counts["listed"][first].sum())
        way_out = "a higher min_support or min_confidence leaves fewer bodies, a shorter max_length none so long"
        tables.engine.expect(f"ends of {len(first):,} bodies of {length} steps", groundings, way_out=way_out)

    def _may_pass(self, counts: Counts, kind: Confidence, most_leaving: Ids, length: int) -> npt.NDArray[np.bool_]:
        """Tell which rules can have the confidence wanted, by what is known before their ends are counted.

        A pair of ends has at most as many groundings as the steps but the last, or the steps back but the first, may
        branch; so the body has at least ``body`` over that many pairs. For two steps `body_counts` sums up what they
        do branch.
        """
        if kind == "pca" or length == 1:
            return np.full(len(counts["h"]), fill_value=True)
        if kind == "groundings":
            return measure_confidences(counts, kind) >= self.filters.min_confidence
        steps = [counts[f"p{position}"] for position in range(length)]
        there = np.prod([most_leaving[step].astype(np.float64) for step in steps[:-1]], axis=0)
        back = np.prod([most_leaving[invert_step(step)].astype(np.float64) for step in steps[1:]], axis=0)
        branches = np.maximum(np.minimum(there, np.where(back > 0, back, np.inf)), 1)
        least = np.maximum(np.ceil(counts["body"] / branches).astype(np.int64), counts["support_pairs"])
        if length == 2:  # sums of fractions: what rounding may have added is taken off, and what is not counted
            apart = counts["least"] * (1 - 1e-9) - counts["loops"] - counts["hidden_pairs"]
            least = np.maximum(least, np.floor(apart).astype(np.int64))
        bounds = measure_confidences({**counts, "body_pairs": least}, kind)
        return np.asarray(bounds >= self.filters.min_confidence)

    def _count_ends(self, counts: Counts, tables: ChainTables, length: int, share: float | None) -> None:
        """Add the pairs that bodies join; for a sample the intervals."""
        first = "edge" if share is None else "sampled_edge"
        count_loops = self.filters.loops == "against"
        columns = {name: counts[name] for name in ("h", *name_steps(length))}
        ends = tables.count_ends(columns, length, loops=count_loops, first=first)
        counts["body_pairs"] = ends["pairs"] - counts["hidden_pairs"]
        counts["known_pairs"] = ends["known"] - counts["hidden_pairs"]
        if share is not None:
            sums = tables.count_starts(columns, length, loops=count_loops, first=first)
            low, high = ratio_interval(counts["support"], counts["body"], sums, drawn=1 / share)
            counts |= {"low": low, "high": high}

    def _drop_twins(self, counts: Counts, tables: ChainTables, length: int) -> Counts:
        """Keep, of the rules of one head that walk the same relations and join exactly the same pairs, the first.

        Twins have the relations of their bodies in common, whichever way these are walked, how many pairs are not
        circular, and the marks of all pairs (`ChainTables.count_marks`), which are taken only where the rest is so.
        """
        key = np.stack([counts["h"], counts["body_pairs"], *_sort_relations(counts, length)])
        _, group, size = np.unique(key, axis=1, return_inverse=True, return_counts=True)
        group = group.reshape(-1)
        rows = np.flatnonzero(size[group] > 1)
        if not len(rows):
            return counts
        columns = {name: counts[name][rows] for name in ("h", *name_steps(length))}
        marks = tables.count_marks(columns, length, loops=self.filters.loops == "against")
        sets = np.stack([group[rows], marks["mark0"], marks["mark1"]])
        _, first = np.unique(sets, axis=1, return_index=True)
        keep = np.ones(len(group), dtype=bool)
        keep[np.delete(rows, first)] = False
        return keep_rows(counts, keep)

    def _draw_sample(self, tables: ChainTables) -> float | None:
        """Draw the first entities to count from; return how many times as many there are, None where it is all."""
        if self.sample is None or (total := tables.draw_starts(self.sample, self.seed)) is None:
            return None
        note = (
            f"rules of more than two steps were counted from a sample of {self.sample:,} of {total:,} entities: "
            "support and body are estimates, confidence_low … confidence_high is the 95 % interval of support / body"
        )
        if note not in self.notes:
            self.notes.append(note)
        return total / self.sample

    def _pass_filters(
        self, counts: Counts, filters: RuleFilters, facts: Ids, length: int, share: float
    ) -> npt.NDArray[np.bool_]:
        """Tell which rules pass every filter but that of confidence, given each relation's facts."""
        steps = [counts[f"p{position}"] for position in range(length)]
        keep = (counts["support"] * share >= filters.min_support) & (counts["body"] > 0)
        given = counts["support" if filters.circular else "support_pairs"]
        keep &= given * share >= filters.min_coverage * counts["facts"]
        if length == 1:
            keep &= steps[0] != encode_step(counts["h"])
        for step in steps:
            keep &= facts[step_relation(step)] >= filters.min_relation_facts
        if length == 2:
            keep &= (counts["middles"] >= filters.min_middles) & (counts["body"] >= filters.min_body)
        if not filters.repeated:
            for position, step in enumerate(steps):
                for other in steps[:position]:
                    keep &= step != other
        return keep

    def _write_rules(
        self,
        counts: Counts,
        relations: Sequence[str],
        filters: RuleFilters,
        length: int,
        share: float | None,
    ) -> list[Rule]:
        variables = [Variable(f"V{position}") for position in range(length + 1)]
        ends = variables[0], variables[-1]
        ends_differ = Comparison("!=", *ends)
        heads = [Atom(name, ends) for name in relations]
        times = share or 1.0
        confidences = measure_confidences(counts, filters.confidence).tolist()
        columns = {name: column.tolist() for name, column in counts.items()}
        steps = [columns[f"p{position}"] for position in range(length)]
        atoms = [
            {
                step: Atom(relations[step_relation(step)], pair[::-1] if is_inverse(step) else pair)
                for step in set(column)
            }
            for column, pair in zip(steps, pairwise(variables), strict=True)
        ]
        paths = zip(*steps, strict=True)
        rules = []
        for confidence, path, *values in zip(confidences, paths, *columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            statistics: dict[str, object] = {
                "support": round(row["support"] * times),
                "body": round(row["body"] * times),
                "body_pairs": round(row["body_pairs"] * times),
                "pairs": round(row["support_pairs"] / row["body_pairs"], 6),
                "pca": round(row["support_pairs"] / max(row["known_pairs"], 1), 6),
                "coverage": round(min(row["support_pairs"] * times / row["facts"], 1.0), 6),
            }
            if share is not None:
                statistics |= {"confidence_low": round(row["low"], 6), "confidence_high": round(row["high"], 6)}
            body: list[Formula] = [written[step] for written, step in zip(atoms, path, strict=True)]
            if filters.loops == "skip" and row["loops"]:
                body.append(ends_differ)
            rules.append(Rule(heads[row["h"]], tuple(body), min(confidence, 1.0), Annotations(statistics)))
        return rules


def _are_repetitions(counts: Counts, symmetric: npt.NDArray[np.bool_], length: int) -> npt.NDArray[np.bool_]:
    """Tell which bodies walk a symmetric relation backwards: the rule that walks it forwards says the same.

    Of a single step that is the head's own inverse there is no other.
    """
    repetitions = np.zeros(len(counts["h"]), dtype=bool)
    for position in range(length):
        step = counts[f"p{position}"]
        repetitions |= symmetric[step_relation(step)] & (is_inverse(step) == 1)
    if length == 1:
        repetitions &= step_relation(counts["p0"]) != counts["h"]
    return repetitions


def _sort_relations(counts: Counts, length: int) -> Ids:
    """Return the relations of each body in order, whichever way they are walked: a row for each position."""
    relations: Ids = np.sort(np.stack([step_relation(counts[name]) for name in name_steps(length)]), axis=0)
    return relations


def _group_heads(heads: Ids, facts: Ids, most: int) -> list[Ids]:
    """Put relations into groups, up to ``most``, that have about as many facts each."""
    before = np.cumsum(facts[heads]) - facts[heads]
    group = before * most // max(int(facts[heads].sum()), 1)
    return [heads[group == index] for index in np.unique(group)]


def _order_bodies(counts: Counts, relations: Sequence[str], length: int) -> Ids:
    """Return the order in which bodies of one length are preferred: few steps backwards first, then by names."""
    rank = np.argsort(np.argsort(relations))
    steps = [counts[f"p{position}"] for position in range(length)]
    by_name = [encode_step(rank[step_relation(step)]) + is_inverse(step) for step in steps]
    backwards = np.sum([is_inverse(step) for step in steps], axis=0)
    return np.lexsort((*reversed(by_name), backwards))


def _split_by_relations(counts: Counts, length: int, most: int) -> Iterator[Counts]:
    """Yield the rules in parts whose bodies list up to ``most`` groundings, or a tenth, or one set of relations more.

    Bodies of the same relations stay together; the rules of a body follow each other, and stay in order.
    """
    if len(counts["h"]) == 0:
        return
    steps = np.stack([counts[name] for name in name_steps(length)])
    is_first = np.append(True, (steps[:, 1:] != steps[:, :-1]).any(axis=0))
    _, group = np.unique(_sort_relations(counts, length), axis=1, return_inverse=True)
    group = group.reshape(-1)
    listed = np.bincount(group[is_first], weights=counts["listed"][is_first])
    part = (np.cumsum(listed) // max(most, listed.sum() / MOST_PARTS))[group]
    for index in np.unique(part):
        yield keep_rows(counts, part == index)


def _join_counts(supports: Counts, bodies: Counts, loops: Counts, length: int, n_steps: int) -> Counts:
    """Bring the counts of rules, bodies and loops together, one row a rule."""
    names = name_steps(length)
    keys, body_keys, loop_keys = (
        np.ravel_multi_index([columns[name] for name in names], (n_steps,) * length)
        for columns in (supports, bodies, loops)
    )
    counts: Counts = {"h": supports["h"].astype(np.int64), "support": supports["n"], "support_pairs": supports["pairs"]}
    counts |= {name: supports[name].astype(np.int64) for name in names}
    for name in ("circular", "hidden_pairs"):
        counts[name] = supports.get(name, np.zeros(len(keys), dtype=np.int64))
    counts["body"] = look_up(keys, body_keys, bodies["n"])
    counts["loops"] = look_up(keys, loop_keys, loops["n"])
    counts["listed"] = look_up(keys, body_keys, bodies["listed" if length == 2 else "n"])
    if length == 2:
        counts["middles"] = look_up(keys, body_keys, bodies["middles"])
        counts["least"] = look_up(keys, body_keys, np.maximum(bodies["least0"], bodies["least1"]))
    return counts
