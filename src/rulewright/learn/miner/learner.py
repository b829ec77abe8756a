"""Mining chain rules: all rules up to a length that hold often enough, counted exactly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import pairwise
from typing import ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from rulewright.checks import SHARE, Flag, MemoryLimit, Names, OneOf, ParameterRule, Progress, Real, Whole
from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids, look_up
from rulewright.engine import Engine, SQLEngine
from rulewright.engine import chain_counts as chains
from rulewright.engine.chain_counts import Incidence
from rulewright.engine.sql import Column
from rulewright.errors import DataError
from rulewright.learn.base import Learner
from rulewright.learn.miner.confidence import Confidence, Counts, Floats, measure_confidences
from rulewright.learn.miner.properties import MIN_NAMED_SUPPORT, PropertyCounter, PropertyFilters
from rulewright.learn.miner.refinements import RefinementCounter
from rulewright.learn.miner.thresholds import ThresholdCounter
from rulewright.logic import (
    Annotations,
    Atom,
    Chain,
    Comparison,
    Formula,
    Rule,
    RuleSet,
    Step,
    Variable,
    count_steps,
    encode_step,
    invert_step,
    is_inverse,
    step_relation,
    subsumes,
)

Loops = Literal["skip", "against"]


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
    nothing, and counts nowhere.

    Args:
        max_length: the longest body, 1 … 4.
        min_confidence, min_support: of the rules to keep.
        confidence: what ``min_confidence`` is about and becomes the rule's own: over ``groundings``, over ``pairs``,
            ``pca``, or ``beta``, the lower 5 % bound of a Beta(support + ½, body − support + ½), which distrusts high
            confidence on little support.
        targets: the head relations of interest; None is all.
        inverses: whether bodies may walk relations backwards.
        preset: ``"milr"`` has the published filters; it sets those of the following that are not given. Without it,
            None stands for the default in brackets.
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
        prune: leave out rules that shorter ones make superfluous, see `drop_redundant`.
        sample: None counts exactly. A number has rules of length 3 and 4 counted from so many first entities v0,
            drawn at random: ``support`` and ``body`` are estimates then, the rules carry ``confidence_low`` and
            ``confidence_high``, a 95 % interval of support / body, and ``note_`` says so.
        seed: of the sample.
        memory_limit: of the database.
        on_rules: called with the rules of each length as they are found.

    >>> from rulewright.data.generators import family
    >>> miner = RuleMiner(min_confidence=1.0, min_support=5, targets=["grandparent_of"]).fit(family(60).kb)
    >>> print(miner.rules_.rules[0].head, miner.rules_.rules[0].confidence)
    grandparent_of(V0, V2) 1.0

    Fan et al., Boosting Document-Level Relation Extraction by Mining and Injecting Logical Rules, EMNLP 2022.
    """

    note_: str
    """What a reader of the rules should know; empty where all counts are exact."""

    _parameter_rules: ClassVar[Mapping[str, ParameterRule]] = {
        "max_length": Whole(1, 4),
        "min_confidence": SHARE,
        "min_support": Whole(1),
        "confidence": OneOf("groundings", "pairs", "pca", "beta"),
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
    }

    def __init__(
        self,
        *,
        max_length: int = 2,
        min_confidence: float = 0.9,
        min_support: int = 1,
        confidence: Confidence = "groundings",
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
        progress: Progress | None = None,
        on_rules: Callable[[list[Rule]], None] | None = None,
    ) -> None:
        self.max_length, self.min_confidence, self.min_support = max_length, min_confidence, min_support
        self.confidence, self.targets, self.inverses = confidence, targets, inverses
        self.preset, self.min_coverage, self.min_relation_facts = preset, min_coverage, min_relation_facts
        self.min_middles, self.min_body = min_middles, min_body
        self.loops, self.repeated, self.circular, self.prune = loops, repeated, circular, prune
        self.unary, self.constants, self.thresholds = unary, constants, thresholds
        self.sample, self.seed, self.memory_limit = sample, seed, memory_limit
        self.progress, self.on_rules = progress, on_rules
        self._check_parameters()

    def fit(self, kb: KnowledgeBase) -> Self:
        """Count and keep the rules of a knowledge base."""
        self._check_before_fit(kb)
        self._check_predicates(kb)
        self.note_ = ""
        given = {field.name: getattr(self, field.name) for field in fields(MinerFilters)}
        filters = replace(PRESETS[self.preset], **{name: value for name, value in given.items() if value is not None})
        rules = self._mine_chains(kb, filters)
        if self.prune:
            rules = drop_redundant(rules)
        rules += self._mine_properties(kb, filters)
        text = cache(str)  # the atoms of mined rules recur
        rules.sort(
            key=lambda rule: (
                -rule.confidence,
                -(rule.support or 0),
                f"{text(rule.head)} :- {', '.join(map(text, rule.body))}.",
            )
        )
        self.rules_ = RuleSet(rules)
        return self

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
        rules: list[Rule] = []
        with Engine(kb, memory_limit=self.memory_limit) as engine:
            engine.put("edge", incidence.edge)
            for length in range(1, self.max_length + 1):
                new = self._mine(engine, incidence, filters, length)
                rules += new
                if self.on_rules is not None:
                    self.on_rules(new)
        return rules

    def _mine(self, engine: SQLEngine, incidence: Incidence, filters: MinerFilters, length: int) -> list[Rule]:
        """Return the rules of one length."""
        kb = engine.kb

        def report(done: int) -> None:
            if self.progress is not None:
                self.progress(f"rules of length {length}", 3 * (length - 1) + done, 3 * self.max_length)

        report(0)
        sample = self._draw_sample(incidence) if length > 2 else None
        first = "edge" if sample is None else "sampled_edge"
        if sample is not None:
            engine.put(first, sample.choose_edges(incidence.edge))
        if length <= 2:
            bodies, loops = incidence.bodies(length), incidence.loops(length)
        else:
            bodies = engine.run(chains.body_counts(length, first=first))
            loops = engine.run(chains.loop_counts(length, first=first))
        report(1)
        table = kb.tables()["ee"]
        targets = None if self.targets is None else [kb.predicate_index(name) for name in self.targets]
        count_loops = filters.loops == "against"
        if length == 1:
            supports = incidence.support(targets)
        else:
            starts = None if sample is None else sample.starts
            head = chains.heads(table, targets=targets, starts=starts, loops=count_loops and not filters.circular)
            engine.put("head", head)
            few = int(bodies["n"].sum()) <= chains.FEW_PATHS
            supports = engine.run(chains.support_counts(length, few_paths=few, circular=filters.circular))
        report(2)
        counts = _join_counts(supports, bodies, loops, length, count_steps(len(kb.predicates)))
        if length == 1 and not filters.circular:
            # A fact that joins an entity to itself is its own inverse, and then all that the body says of that pair.
            used = np.where(count_loops & (counts["p0"] == invert_step(encode_step(counts["h"]))), counts["loops"], 0)
            counts |= {"circular": used, "hidden_pairs": used}
        counts["body"] = counts["body"] - counts["circular"]
        if not count_loops:
            counts["body"] = counts["body"] - counts["loops"]
        facts = np.bincount(table.predicate, minlength=len(kb.predicates))
        counts["facts"] = facts[counts["h"]]
        share = 1.0 if sample is None else sample.share
        counts = _keep_rows(counts, self._pass_filters(counts, filters, facts, length, share))
        if self.confidence in ("groundings", "beta"):
            counts = _keep_rows(counts, self._confidences(counts) >= self.min_confidence)
        if len(counts["h"]) == 0:
            report(3)
            return []
        if length == 1:
            known = incidence.known(counts["h"], counts["p0"], loops=count_loops)
            counts |= {"body_pairs": counts["body"], "known_pairs": known - counts["hidden_pairs"]}
        else:
            columns = {name: counts[name] for name in ("h", *(f"p{position}" for position in range(length)))}
            engine.put("rule", {"r": np.arange(len(counts["h"])), **columns})
            ends = engine.run(chains.end_counts(length, loops=count_loops, first=first))
            order = np.argsort(ends["r"])
            counts["body_pairs"] = ends["pairs"][order] - counts["hidden_pairs"]
            counts["known_pairs"] = ends["known"][order] - counts["hidden_pairs"]
        if sample is not None:
            statement = chains.start_counts(length, loops=count_loops, circular=filters.circular, first=first)
            sums = engine.run(statement)
            order = np.argsort(sums["r"])
            sums = {name: column[order] for name, column in sums.items()}
            low, high = ratio_interval(counts["support"], counts["body"], sums, drawn=1 / sample.share)
            counts |= {"low": low, "high": high}
        report(3)
        counts = _keep_rows(counts, self._confidences(counts) >= self.min_confidence)
        return self._write_rules(counts, list(kb.predicates), length, skip_loops=not count_loops, sample=sample)

    def _mine_properties(self, kb: KnowledgeBase, filters: MinerFilters) -> list[Rule]:
        """Return the rules about one entity."""
        if not (filters.unary or filters.constants or filters.thresholds):
            return []
        chosen = self._choose_property_filters(filters)
        properties = PropertyCounter(kb, chosen)
        refinements = RefinementCounter(kb, chosen, thresholds=filters.thresholds, two_steps=self.max_length > 1)
        rules = properties.mine()
        if filters.thresholds:
            rules += ThresholdCounter(kb, chosen, properties).mine()
        if filters.loops == "skip":  # a refined chain leaves loops out
            rules += refinements.mine()
        self.note_ = "; ".join(filter(None, [self.note_, *properties.notes, *refinements.notes]))
        if self.on_rules is not None:
            self.on_rules(rules)
        return rules

    def _choose_property_filters(self, filters: MinerFilters) -> PropertyFilters:
        return PropertyFilters(
            None if self.targets is None else tuple(self.targets),
            self.min_support,
            max(self.min_support, MIN_NAMED_SUPPORT),
            self.min_confidence,
            filters.min_coverage,
            filters.min_relation_facts,
            self.inverses,
            filters.repeated,
            filters.circular,
            filters.unary,
            filters.constants,
            self.confidence,
        )

    def _draw_sample(self, incidence: Incidence) -> StartSample | None:
        """Draw the first entities to count from; None is all of them."""
        starts = np.unique(incidence.edge["a0"])
        if self.sample is None or self.sample >= len(starts):
            return None
        self.note_ = (
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
        keep = (counts["support"] * share >= self.min_support) & (counts["body"] > 0)
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

    def _confidences(self, counts: Counts) -> Floats:
        return measure_confidences(counts, self.confidence)

    def _write_rules(
        self, counts: Counts, relations: Sequence[str], length: int, *, skip_loops: bool, sample: StartSample | None
    ) -> list[Rule]:
        variables = [Variable(f"V{position}") for position in range(length + 1)]
        ends = variables[0], variables[-1]
        ends_differ = Comparison("!=", *ends)
        heads = [Atom(name, ends) for name in relations]
        share = 1.0 if sample is None else sample.share
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
        for confidence, path, *values in zip(self._confidences(counts).tolist(), paths, *columns.values(), strict=True):
            row = dict(zip(columns, values, strict=True))
            statistics: dict[str, object] = {
                "support": round(row["support"] * share),
                "body": round(row["body"] * share),
                "pairs": round(row["support_pairs"] / row["body_pairs"], 6),
                "pca": round(row["support_pairs"] / max(row["known_pairs"], 1), 6),
                "coverage": round(min(row["support_pairs"] * share / row["facts"], 1.0), 6),
            }
            if sample is not None:
                statistics |= {"confidence_low": round(row["low"], 6), "confidence_high": round(row["high"], 6)}
            body: list[Formula] = [written[step] for written, step in zip(atoms, path, strict=True)]
            if skip_loops and row["loops"]:
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


def _keep_rows(counts: Counts, keep: npt.NDArray[np.bool_]) -> Counts:
    return {name: column[keep] for name, column in counts.items()}


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


def drop_redundant(rules: Sequence[Rule]) -> list[Rule]:
    """Leave out each rule that shorter ones with at least its confidence make superfluous.

    Either one shorter rule says the same under weaker conditions (it subsumes), or two shorter rules lead to the same
    head step by step: ``h ← p ∘ q`` is superfluous beside ``h ← r`` and ``r ← p ∘ q`` when the product of their
    confidences is no lower.

    >>> from rulewright.logic import parse_rules
    >>> rules = parse_rules('''0.9 :: h(X, Z) :- p(X, Y), q(Y, Z). 0.95 :: r(X, Z) :- p(X, Y), q(Y, Z).
    ...     0.99 :: h(X, Y) :- r(X, Y).''').rules
    >>> [str(rule) for rule in drop_redundant(rules)]
    ['0.95 :: r(X, Z) :- p(X, Y), q(Y, Z).', '0.99 :: h(X, Y) :- r(X, Y).']
    """
    conclusions: dict[tuple[Step, ...], list[tuple[Step, float]]] = {}  # by body, walked from either end
    for rule in rules:
        chain = Chain.of(rule)
        if chain is not None and chain.is_closed:
            conclusions.setdefault(chain.steps, []).append((Step(chain.head), rule.confidence))
            conclusions.setdefault(chain.mirror(), []).append((Step(chain.head, True), rule.confidence))
    kept = []
    for rule in rules:
        is_subsumed = any(
            other.head.predicate == rule.head.predicate
            and len(other.body) < len(rule.body)
            and other.confidence >= rule.confidence
            and subsumes(other, rule)
            for other in rules
        )
        if not is_subsumed and not _is_composed(rule, conclusions):
            kept.append(rule)
    return kept


def _is_composed(rule: Rule, conclusions: Mapping[tuple[Step, ...], Sequence[tuple[Step, float]]]) -> bool:
    """Tell whether a part of the body gives a relation that leads on to the head without loss."""
    chain = Chain.of(rule)
    if chain is None or not chain.is_closed:
        return False
    steps, head = chain.steps, Step(chain.head)
    for start in range(len(steps)):
        for stop in range(start + 2, len(steps) + 1):
            for middle, first in conclusions.get(steps[start:stop], ()):
                shorter = (*steps[:start], middle, *steps[stop:])
                if shorter == (head,):
                    continue
                for last, second in conclusions.get(shorter, ()):
                    if last == head and first * second >= rule.confidence:
                        return True
    return False
