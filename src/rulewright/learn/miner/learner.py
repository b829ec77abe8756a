"""Mining chain rules: all rules up to a length that hold often enough, counted exactly."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import pairwise
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from rulewright.checks import SHARE, TIME_LIMIT, Flag, MemoryLimit, Names, OneOf, ParameterRule, Progress, Real, Whole
from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids, look_up
from rulewright.engine import Engine, SQLEngine
from rulewright.engine import chain_counts as chains
from rulewright.engine.chain_counts import Incidence
from rulewright.engine.sql import Column
from rulewright.errors import DataError, TimeLimitError
from rulewright.learn.base import Learner
from rulewright.learn.miner.confidence import Confidence, Counts, keep_rows, measure_confidences
from rulewright.learn.miner.properties import MIN_NAMED_SUPPORT, PropertyCounter, PropertyFilters
from rulewright.learn.miner.pruning import cover_facts, drop_redundant
from rulewright.learn.miner.refinements import RefinementCounter
from rulewright.learn.miner.thresholds import ThresholdCounter
from rulewright.logic import (
    Annotations,
    Atom,
    Comparison,
    Formula,
    Rule,
    RuleSet,
    Variable,
    count_steps,
    encode_step,
    invert_step,
    is_inverse,
    step_relation,
)

Loops = Literal["skip", "against"]

MOST_WALKS = {2: 1_000_000_000, 3: 50_000_000}
"""Up to so many walks of each length are counted where no length is asked for."""

MOST_WALKS_PER_FACT = 1000
"""And up to so many walks of three steps for each fact: in denser graphs long rules are many and say little."""

HEAD_GROUPS = 8
"""Longer rules are counted for so many groups of heads one after the other, so that some are there when time is up."""

END_BATCH = 30_000_000
"""About how many groundings are in memory at once while their ends are counted."""


@dataclass(frozen=True)
class MinerFilters:
    """The parameters of a `RuleMiner` that presets set, with their defaults."""

    min_coverage: float = 0.0
    min_relation_facts: int = 1
    min_middles: int = 1
    min_body: int = 1
    loops: Loops = "skip"
    repeated: bool = True
    circular: bool = False
    unary: bool = True
    constants: bool = True
    thresholds: bool = True
    confidence: Confidence = "beta"
    min_support: int = 2
    max_length: int | None = None


PRESETS: Mapping[str | None, MinerFilters] = {
    None: MinerFilters(),
    "milr": MinerFilters(
        0.008,
        min_relation_facts=4,
        min_middles=4,
        min_body=4,
        loops="against",
        repeated=False,
        circular=True,
        unary=False,
        constants=False,
        thresholds=False,
        confidence="groundings",
        min_support=1,
        max_length=2,
    ),
}
"""``milr`` has the filters of the code published with the MILR paper."""


class RuleMiner(Learner):
    """Finds every rule ``head(v0, vl) ← r1(v0, v1) ∧ … ∧ rl(vl-1, vl)`` whose confidence is high enough.

    The relations of the body may be walked backwards. ``support`` counts the groundings in which body and head hold,
    ``body`` those in which the body holds, ``confidence = support / body``. Each rule comes once (its mirror image is
    the same rule), with support, body, the confidence over different (v0, vl) ``pairs``, the partial-completeness
    confidence ``pca`` (over pairs whose v0 has the head relation to something) and ``coverage``, the share of the
    head's facts that the rule gives. A grounding whose body uses the very fact of the head is *circular*: it shows
    nothing, and counts nowhere. Relations that equal their inverse are walked forwards only; and of chains of one head
    that walk the same relations, this way or that, and join exactly the same pairs, the one with the most steps
    forwards is kept. (Not where ``circular`` groundings count, nor of those counted from a sample.)

    Args:
        max_length: the longest body, 1 … 4. None counts bodies of two steps where the graph has up to 10⁹ walks of two,
            and of three where it has up to 5·10⁷ walks of three and a thousand a fact; ``note_`` says what is left out.
        min_confidence: of the rules to keep.
        min_support: of the rules to keep (2).
        confidence: what ``min_confidence`` is about and becomes the rule's own, c: the share of ``groundings``, of
            ``pairs``, ``pca``, or ``beta``, the lower 5 % bound of Beta(s + ½, b − s + ½) for s of b different pairs,
            which distrusts high confidence on little support (beta).
        targets: the head relations of interest; None is all.
        inverses: whether bodies may walk relations backwards.
        preset: ``"milr"`` has the published filters, and two steps; it sets what is not given of length, support,
            confidence and the following. Without it, None stands for the default in brackets.
        min_coverage: of the rules to keep (0).
        min_relation_facts: the facts that each relation of a body must have (1).
        min_middles, min_body: for bodies of length 2, different v1 and groundings they must have (1).
        loops: groundings that end where they began: ``skip`` them, and a rule that has some says ``v0 != vl``, or
            count them ``against`` the rule (skip).
        repeated: whether a body may have one step twice (True).
        circular: whether to count as the papers do (False): circular groundings too, and for ``min_coverage`` all
            groundings rather than different facts.
        unary: whether rules may have unary predicates and classes, ``male(X) ← father_of(X, Y)`` (True).
        constants: whether rules about one entity may name others, ``speaks(X, dutch) ← born_in(X, ghent)``,
            where they hold of five or more (True).
        thresholds: whether rules may compare numbers, ``retired(X) ← age(X, A) ∧ A > 64`` (True).
        prune: leave out chains that shorter ones make superfluous, see `drop_redundant`, and then, of rules of all
            forms, those that explain fewer than ``min_support`` facts that no better rule explains, see `cover_facts`.
        sample: None counts exactly. A number has rules of length 3 and 4 counted from so many first entities v0,
            drawn at random: ``support`` and ``body`` are estimates then, the rules carry ``confidence_low`` and
            ``confidence_high``, a 95 % interval of support / body, and ``note_`` says so.
        seed: of the sample.
        memory_limit: of the database.
        time_limit: seconds after which counting stops; the rules found so far are kept, and ``note_`` says so.
        on_rules: called with the rules of each length as they are found.

    >>> from rulewright.data.generators import family
    >>> miner = RuleMiner(max_length=2, targets=["grandparent_of"]).fit(family(60).kb)
    >>> best = miner.rules_.rules[0]
    >>> print(best.head, best.annotations["pairs"])
    grandparent_of(V0, V2) 1.0

    Fan et al., Boosting Document-Level Relation Extraction by Mining and Injecting Logical Rules, EMNLP 2022.
    """

    note_: str
    """What a reader of the rules should know; empty where all counts are exact."""

    _parameter_rules: ClassVar[Mapping[str, ParameterRule]] = {
        "max_length": Whole(1, 4, optional=True),
        "min_confidence": SHARE,
        "min_support": Whole(1, optional=True),
        "confidence": OneOf("groundings", "pairs", "pca", "beta", None),
        "targets": Names(),
        "inverses": Flag(),
        "preset": OneOf("milr", None),
        "min_coverage": Real(0, 1, optional=True),
        "min_relation_facts": Whole(1, optional=True),
        "min_middles": Whole(1, optional=True),
        "min_body": Whole(1, optional=True),
        "loops": OneOf("skip", "against", None),
        "repeated": OneOf(True, False, None),
        "circular": OneOf(True, False, None),
        "unary": OneOf(True, False, None),
        "constants": OneOf(True, False, None),
        "thresholds": OneOf(True, False, None),
        "prune": Flag(),
        "sample": Whole(1, optional=True),
        "seed": Whole(0),
        "memory_limit": MemoryLimit(),
        "time_limit": TIME_LIMIT,
    }

    def __init__(
        self,
        *,
        max_length: int | None = None,
        min_confidence: float = 0.01,
        min_support: int | None = None,
        confidence: Confidence | None = None,
        targets: Collection[str] | None = None,
        inverses: bool = True,
        preset: Literal["milr"] | None = None,
        min_coverage: float | None = None,
        min_relation_facts: int | None = None,
        min_middles: int | None = None,
        min_body: int | None = None,
        loops: Loops | None = None,
        repeated: bool | None = None,
        circular: bool | None = None,
        unary: bool | None = None,
        constants: bool | None = None,
        thresholds: bool | None = None,
        prune: bool = False,
        sample: int | None = None,
        seed: int = 0,
        memory_limit: int | str | None = None,
        time_limit: float | None = None,
        progress: Progress | None = None,
        on_rules: Callable[[list[Rule]], None] | None = None,
    ) -> None:
        self.max_length, self.min_confidence, self.min_support = max_length, min_confidence, min_support
        self.confidence, self.targets, self.inverses = confidence, targets, inverses
        self.preset, self.min_coverage, self.min_relation_facts = preset, min_coverage, min_relation_facts
        self.min_middles, self.min_body = min_middles, min_body
        self.loops, self.repeated, self.circular, self.prune = loops, repeated, circular, prune
        self.unary, self.constants, self.thresholds = unary, constants, thresholds
        self.sample, self.seed, self.memory_limit, self.time_limit = sample, seed, memory_limit, time_limit
        self.progress, self.on_rules = progress, on_rules
        self._check_parameters()

    def fit(self, kb: KnowledgeBase) -> Self:
        """Count and keep the rules of a knowledge base."""
        self._check_before_fit(kb)
        self._check_predicates(kb)
        self.note_ = ""
        given = {field.name: getattr(self, field.name) for field in fields(MinerFilters)}
        filters = replace(PRESETS[self.preset], **{name: value for name, value in given.items() if value is not None})
        began = time.monotonic()
        rules = self._mine_chains(kb, filters)
        if self.prune:
            rules = drop_redundant(rules)
        if self.time_limit is None or time.monotonic() - began < self.time_limit:
            deadline = None if self.time_limit is None else began + self.time_limit
            rules += self._mine_properties(kb, filters, deadline)
        elif filters.unary or filters.constants or filters.thresholds:
            self._add_note("rules about one entity were not begun")
        if not rules:
            self._explain_nothing(kb, filters)
        text = cache(str)  # the atoms of mined rules recur
        rules.sort(
            key=lambda rule: (
                -rule.confidence,
                -(rule.support or 0),
                f"{text(rule.head)} :- {', '.join(map(text, rule.body))}.",
            )
        )
        self.rules_ = RuleSet(self._prune(kb, rules, filters, began) if self.prune else rules)
        return self

    def _prune(self, kb: KnowledgeBase, rules: list[Rule], filters: MinerFilters, began: float) -> list[Rule]:
        """Leave out rules, best first, that explain little of their own; all are kept where time is up."""
        with ExitStack() as stack:
            engine = stack.enter_context(Engine(kb, memory_limit=self.memory_limit))
            try:
                if self.time_limit is not None:
                    left = self.time_limit - (time.monotonic() - began)
                    if left <= 0:
                        raise TimeLimitError
                    stack.enter_context(engine.time_limit(left))
                return cover_facts(engine, rules, min_new=filters.min_support, circular=filters.circular)
            except TimeLimitError:
                self._add_note("time was up before rules were pruned that explain nothing of their own")
                return rules

    def _check_predicates(self, kb: KnowledgeBase) -> None:
        """Refuse facts and targets of which no rule of these forms can speak."""
        minable = [name for name, predicate in kb.predicates.items() if signature(predicate) in ("e", "ec", "ee")]
        if not minable:
            raise DataError("no predicate is about one entity or two, so there are no rules to mine")
        for name in self.targets or ():
            if name not in minable:
                kb.predicate(name)
                raise DataError(f"{name} is not about one entity or two and cannot be a target")

    def _mine_chains(self, kb: KnowledgeBase, filters: MinerFilters) -> list[Rule]:
        """Return the chains of all lengths."""
        facts = kb.tables().get("ee")
        if facts is None:  # relations are declared at most, and none has a fact
            return []
        incidence = Incidence(facts, len(kb.predicates), inverses=self.inverses)
        longest = filters.max_length or self._choose_length(incidence, len(facts))
        rules: list[Rule] = []
        twins = None if filters.circular else TwinFilter()
        length = 1
        with ExitStack() as stack:
            engine = stack.enter_context(Engine(kb, memory_limit=self.memory_limit))
            if self.time_limit is not None:
                stack.enter_context(engine.time_limit(self.time_limit))
            try:
                engine.put("edge", incidence.edge if twins is None else incidence.mark_ends())
                if twins is not None:
                    engine.put("start_mark", incidence.start_marks())
                for length in range(1, longest + 1):
                    for new in self._mine(engine, incidence, filters, twins, length, longest):
                        rules += new
                        if self.on_rules is not None:
                            self.on_rules(new)
            except TimeLimitError:
                self._add_note(
                    f"stopped after {self.time_limit:g} s: rules of length {length} are not complete"
                    + (f", longer ones up to {longest} were not begun" if length < longest else "")
                    + "; a higher time_limit (--time) or a smaller max_length (--max-length) has all"
                )
        return rules

    def _add_note(self, text: str) -> None:
        if text not in self.note_:
            self.note_ = "; ".join(filter(None, [self.note_, text]))

    def _choose_length(self, incidence: Incidence, n_facts: int) -> int:
        """Return the longest body that the size of the graph affords."""
        for length, most in MOST_WALKS.items():
            walks = incidence.count_walks(length)
            allowed = most if length == 2 else min(most, MOST_WALKS_PER_FACT * n_facts)
            if walks > allowed:
                self._add_note(
                    f"rules of length {length} were left out: {walks:,} walks are more than the {allowed:,} "
                    f"that are counted unasked; max_length={length} (--max-length {length}) counts them"
                )
                return length - 1
        return max(MOST_WALKS)

    def _explain_nothing(self, kb: KnowledgeBase, filters: MinerFilters) -> None:
        """Say which rule came nearest, and what would have admitted it."""
        limits = {"min_confidence": self.min_confidence, "min_support": filters.min_support}
        limits["min_coverage"] = filters.min_coverage
        loosest = {"min_confidence": 0.0, "min_support": 1, "min_coverage": 0.0}
        if limits == loosest:
            return
        silent = {"prune": False, "sample": None, "progress": None, "on_rules": None}
        lengths = {"max_length": min(filters.max_length or 2, 2)}
        rules = clone(self).set_params(**loosest, **silent, **lengths).fit(kb).rules_.rules
        if not rules:
            self._add_note("no rule holds in a single case")
            return
        best = rules[0]
        told = {"min_confidence": best.confidence, "min_support": best.support or 1}
        told["min_coverage"] = best.annotations.number("coverage") or 0.0
        missed = [name for name, value in told.items() if value < limits[name]]
        flags = [f"{name}={_round_down(told[name]):g}" for name in missed]
        options = [f"--{name.replace('_', '-')} {_round_down(told[name]):g}" for name in missed]
        self._add_note(
            f"no rule was found; the best that was left out, {best.head} :- {', '.join(map(str, best.body))}, holds in "
            f"{best.support:,} of {best.annotations['body']:,} cases with confidence {best.confidence:.3g}: "
            f"{', '.join(flags)} ({' '.join(options)}) admits it"
        )

    def _mine(
        self,
        engine: SQLEngine,
        incidence: Incidence,
        filters: MinerFilters,
        twins: TwinFilter | None,
        length: int,
        longest: int,
    ) -> Iterator[list[Rule]]:
        """Yield the rules of one length, in parts that are complete for some heads and bodies."""
        kb = engine.kb
        table = kb.tables()["ee"]
        facts = np.bincount(table.predicate, minlength=len(kb.predicates))
        heads = np.flatnonzero(facts)
        if self.targets is not None:
            heads = np.intersect1d(heads, [kb.predicate_index(name) for name in self.targets])
        groups = _group_heads(heads, facts, 1 if length <= 2 else HEAD_GROUPS)

        def report(done: int) -> None:
            if self.progress is not None:
                steps = HEAD_GROUPS + 1
                done_here = steps * done // (len(groups) + 1)
                self.progress(f"rules of length {length}", steps * (length - 1) + done_here, steps * longest)

        report(0)
        sample = self._draw_sample(incidence) if length > 2 else None
        first = "edge" if sample is None else "sampled_edge"
        if sample is not None:
            twins = None  # what is the same in a sample may differ elsewhere
            engine.put(first, sample.choose_edges(incidence.edge))
        if length <= 2:
            bodies, loops = incidence.bodies(length), incidence.loops(length)
        else:
            bodies = engine.run(chains.body_counts(length, first=first))
            loops = engine.run(chains.loop_counts(length, first=first))
        count_loops = filters.loops == "against"
        for done, group in enumerate(groups, start=1):
            report(done)
            if length == 1:
                supports = incidence.support(group.tolist())
            else:
                starts = None if sample is None else sample.starts
                with_loops = count_loops and not filters.circular
                engine.put("head", chains.heads(table, targets=group.tolist(), starts=starts, loops=with_loops))
                few = int(bodies["n"].sum()) <= chains.FEW_PATHS
                supports = engine.run(chains.support_counts(length, few_paths=few, circular=filters.circular))
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
            share = 1.0 if sample is None else sample.share
            counts = keep_rows(counts, self._pass_filters(counts, filters, facts, length, share))
            if not filters.circular:
                counts = keep_rows(counts, ~_are_repetitions(counts, incidence.find_symmetric(), length))
            counts = keep_rows(counts, self._may_pass(counts, filters.confidence, incidence.most_leaving(), length))
            counts = keep_rows(counts, _order_bodies(counts, list(kb.predicates), length))
            for part in _split_by_body(counts, length) if length > 1 else [counts]:
                self._count_ends(part, engine, incidence, filters, length, sample, marked=twins is not None)
                kept = keep_rows(part, measure_confidences(part, filters.confidence) >= self.min_confidence)
                if twins is not None:
                    kept = twins.keep_first(kept, length)
                yield self._write_rules(kept, list(kb.predicates), filters, length, sample)

    def _may_pass(self, counts: Counts, kind: Confidence, most_leaving: Ids, length: int) -> npt.NDArray[np.bool_]:
        """Tell which rules can have the confidence wanted, by what is known before their ends are counted.

        A pair of ends has at most as many groundings as the steps but the last, or the steps back but the first, may
        branch; so the body has at least ``body`` over that many pairs.
        """
        if kind == "pca" or length == 1:
            return np.full(len(counts["h"]), fill_value=True)
        if kind == "groundings":
            return measure_confidences(counts, kind) >= self.min_confidence
        steps = [counts[f"p{position}"] for position in range(length)]
        there = np.prod([most_leaving[step].astype(np.float64) for step in steps[:-1]], axis=0)
        back = np.prod([most_leaving[invert_step(step)].astype(np.float64) for step in steps[1:]], axis=0)
        branches = np.maximum(np.minimum(there, np.where(back > 0, back, np.inf)), 1)
        least = np.maximum(np.ceil(counts["body"] / branches).astype(np.int64), counts["support_pairs"])
        bounds = measure_confidences({**counts, "body_pairs": least}, kind)
        return np.asarray(bounds >= self.min_confidence)

    def _count_ends(
        self,
        counts: Counts,
        engine: SQLEngine,
        incidence: Incidence,
        filters: MinerFilters,
        length: int,
        sample: StartSample | None,
        *,
        marked: bool,
    ) -> None:
        """Add the pairs that bodies join, ``marked`` with what tells sets of them apart; for a sample the intervals."""
        count_loops = filters.loops == "against"
        if length == 1:
            known = incidence.known(counts["h"], counts["p0"], loops=count_loops)
            counts |= {"body_pairs": counts["body"], "known_pairs": known - counts["hidden_pairs"]}
            if marked:
                mark0, mark1 = incidence.mark_steps(loops=count_loops)
                counts |= {"mark0": mark0[counts["p0"]], "mark1": mark1[counts["p0"]]}
            return
        first = "edge" if sample is None else "sampled_edge"
        columns = {name: counts[name] for name in ("h", *(f"p{position}" for position in range(length)))}
        engine.put("rule", {"r": np.arange(len(counts["h"])), **columns})
        ends = engine.run(chains.end_counts(length, loops=count_loops, first=first, marked=marked))
        order = np.argsort(ends["r"])
        counts |= {name: ends[name][order] for name in ("mark0", "mark1") if marked}
        counts["body_pairs"] = ends["pairs"][order] - counts["hidden_pairs"]
        counts["known_pairs"] = ends["known"][order] - counts["hidden_pairs"]
        if sample is not None:
            sums = engine.run(chains.start_counts(length, loops=count_loops, circular=filters.circular, first=first))
            order = np.argsort(sums["r"])
            sums = {name: column[order] for name, column in sums.items()}
            low, high = ratio_interval(counts["support"], counts["body"], sums, drawn=1 / sample.share)
            counts |= {"low": low, "high": high}

    def _mine_properties(self, kb: KnowledgeBase, filters: MinerFilters, deadline: float | None) -> list[Rule]:
        """Return the rules about one entity, and the chains that properties of their ends refine."""
        if not (filters.unary or filters.constants or filters.thresholds):
            return []
        chosen = self._choose_property_filters(filters, deadline)
        properties = PropertyCounter(kb, chosen)
        refinements = RefinementCounter(
            kb, chosen, thresholds=filters.thresholds, two_steps=(filters.max_length or 2) > 1
        )
        rules = properties.mine()
        if chosen.is_late():
            self._add_note("time was up before thresholds and refined chains were looked for")
        else:
            if filters.thresholds:
                rules += ThresholdCounter(kb, chosen, properties).mine()
            if filters.loops == "skip":  # a refined chain leaves loops out
                rules += refinements.mine()
        for note in (*properties.notes, *refinements.notes):
            self._add_note(note)
        if self.on_rules is not None:
            self.on_rules(rules)
        return rules

    def _choose_property_filters(self, filters: MinerFilters, deadline: float | None) -> PropertyFilters:
        return PropertyFilters(
            None if self.targets is None else tuple(self.targets),
            filters.min_support,
            max(filters.min_support, MIN_NAMED_SUPPORT),
            self.min_confidence,
            filters.min_coverage,
            filters.min_relation_facts,
            self.inverses,
            filters.repeated,
            filters.circular,
            filters.unary,
            filters.constants,
            filters.confidence,
            deadline,
        )

    def _draw_sample(self, incidence: Incidence) -> StartSample | None:
        """Draw the first entities to count from; None is all of them."""
        starts = np.unique(incidence.edge["a0"])
        if self.sample is None or self.sample >= len(starts):
            return None
        self._add_note(
            f"rules of more than two steps were counted from a sample of {self.sample:,} of {len(starts):,} entities: "
            "support and body are estimates, confidence_low … confidence_high is the 95 % interval of support / body"
        )
        drawn = np.random.default_rng(self.seed).choice(starts, self.sample, replace=False)
        return StartSample(np.sort(drawn), len(starts) / self.sample)

    def _pass_filters(
        self, counts: Counts, filters: MinerFilters, facts: Ids, length: int, share: float
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
        filters: MinerFilters,
        length: int,
        sample: StartSample | None,
    ) -> list[Rule]:
        variables = [Variable(f"V{position}") for position in range(length + 1)]
        ends = variables[0], variables[-1]
        ends_differ = Comparison("!=", *ends)
        heads = [Atom(name, ends) for name in relations]
        share = 1.0 if sample is None else sample.share
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
                "support": round(row["support"] * share),
                "body": round(row["body"] * share),
                "body_pairs": round(row["body_pairs"] * share),
                "pairs": round(row["support_pairs"] / row["body_pairs"], 6),
                "pca": round(row["support_pairs"] / max(row["known_pairs"], 1), 6),
                "coverage": round(min(row["support_pairs"] * share / row["facts"], 1.0), 6),
            }
            if sample is not None:
                statistics |= {"confidence_low": round(row["low"], 6), "confidence_high": round(row["high"], 6)}
            body: list[Formula] = [written[step] for written, step in zip(atoms, path, strict=True)]
            if filters.loops == "skip" and row["loops"]:
                body.append(ends_differ)
            rules.append(Rule(heads[row["h"]], tuple(body), min(confidence, 1.0), Annotations(statistics)))
        return rules


@dataclass(frozen=True)
class StartSample:
    """First entities drawn at random: ``share`` times as many are there."""

    starts: Ids
    share: float

    def choose_edges(self, edge: Mapping[str, Column]) -> dict[str, Column]:
        """Return the edges that leave from the entities drawn."""
        chosen = np.isin(edge["a0"], self.starts)
        return {name: column[chosen] for name, column in edge.items()}


def ratio_interval(
    support: npt.ArrayLike, body: npt.ArrayLike, sums: Mapping[str, Column], *, drawn: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return 95 % intervals of the ratio R = support / body that a sample of first entities estimates.

    Entities bring their groundings along, so these are not independent. With s and b for what one entity counts, n
    entities where b > 0 and a share f ``drawn`` of all, the estimate has the variance
    ``v = (1 − f) n / (n − 1) Σ (s − R b)² / (Σ b)²``, that of ``R (1 − R) / v`` independent cases. We take no more than
    ``(Σ b)² / Σ b² / (1 − f)``, as if each entity were one case, since v is too small where only a few entities say
    otherwise than the rest, and fewer where n is small; what an entity not drawn would say alone, as the hub of a
    graph may, no interval knows. The interval is Clopper's and Pearson's for so many cases, as
    Korn and Graubard have it (Survey Methodology 24, 1998).

    >>> ones = {name: np.array([20.0]) for name in ("starts", "support_squares", "body_squares", "products")}
    >>> low, high = ratio_interval([20], [20], ones, drawn=0.1)
    >>> print(f"{low[0]:.2f} … {high[0]:.2f}")
    0.85 … 1.00
    """
    from scipy.stats import beta, norm, t

    supports, bodies = np.asarray(support, dtype=np.float64), np.asarray(body, dtype=np.float64)
    ratio, n = supports / bodies, sums["starts"].astype(np.float64)
    squares = sums["support_squares"] - 2 * ratio * sums["products"] + ratio**2 * sums["body_squares"]
    variance = (1 - drawn) * n / np.maximum(n - 1, 1) * np.maximum(squares, 0) / bodies**2
    entities = bodies**2 / sums["body_squares"]
    with np.errstate(divide="ignore", invalid="ignore"):
        cases = np.where((ratio > 0) & (ratio < 1) & (n > 1), ratio * (1 - ratio) / variance, np.inf)
    cases = cases / (t.ppf(0.975, np.maximum(entities - 1, 1)) / norm.ppf(0.975)) ** 2
    cases = np.minimum(cases, entities / (1 - drawn))
    held = ratio * cases
    low = np.where(ratio > 0, beta.ppf(0.025, held, cases - held + 1), 0.0)
    high = np.where(ratio < 1, beta.ppf(0.975, held + 1, cases - held), 1.0)
    return low, high


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


class TwinFilter:
    """Keeps, of the rules of one head that walk the same relations and join exactly the same pairs, the first."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, ...]] = set()

    def keep_first(self, counts: Counts, length: int) -> Counts:
        """Return the counts of rules that have no twin before them, here or in an earlier call.

        Twins have the relations of their bodies in common, whichever way these are walked, their marks
        (`Incidence.mark_steps`), and how many of the pairs are not circular.
        """
        relations = np.sort(np.stack([step_relation(counts[f"p{position}"]) for position in range(length)]), axis=0)
        names = ("h", "body_pairs", "mark0", "mark1")
        columns = (column.tolist() for column in (*(counts[name] for name in names), *relations))
        keep = np.zeros(len(counts["h"]), dtype=bool)
        for position, key in enumerate(zip(*columns, strict=True)):
            keep[position] = key not in self._seen
            self._seen.add(key)
        return keep_rows(counts, keep)


def _round_down(value: float) -> float:
    return math.floor(value * 1000) / 1000


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


def _split_by_body(counts: Counts, length: int) -> Iterator[Counts]:
    """Yield the rules, in order, in parts whose different bodies have up to ``END_BATCH`` groundings, or one body more.

    The rules of a body follow each other.
    """
    if len(counts["h"]) == 0:
        return
    steps = np.stack([counts[f"p{position}"] for position in range(length)])
    is_first = np.append(True, (steps[:, 1:] != steps[:, :-1]).any(axis=0))
    groundings = counts["body"] + counts["circular"] + counts["loops"]
    part = (np.cumsum(groundings[is_first]) // END_BATCH)[np.cumsum(is_first) - 1]
    for index in np.unique(part):
        yield keep_rows(counts, part == index)


def _join_counts(supports: Counts, bodies: Counts, loops: Counts, length: int, n_steps: int) -> Counts:
    """Bring the counts of rules, bodies and loops together, one row a rule."""
    names = [f"p{position}" for position in range(length)]
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
    if length == 2:
        counts["middles"] = look_up(keys, body_keys, bodies["middles"])
    return counts
