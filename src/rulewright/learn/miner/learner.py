"""The miner: every rule of some forms that holds often enough, counted exactly."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import ClassVar, Literal, Self

from sklearn.base import clone

from rulewright.checks import (
    SHARE,
    TIME_LIMIT,
    Flag,
    MemoryLimit,
    Names,
    OneOf,
    ParameterRule,
    Progress,
    Real,
    Whole,
    read_names,
)
from rulewright.data import KnowledgeBase, signature
from rulewright.engine import StoredFacts, use_engine
from rulewright.errors import DataError, TimeLimitError
from rulewright.learn.base import Learner
from rulewright.learn.miner.chains import ChainCounter
from rulewright.learn.miner.confidence import Confidence
from rulewright.learn.miner.exclusions import ExclusionCounter
from rulewright.learn.miner.filters import MIN_NAMED_SUPPORT, PRESETS, Loops, RuleFilters
from rulewright.learn.miner.properties import PropertyCounter
from rulewright.learn.miner.pruning import cover_facts, drop_redundant
from rulewright.learn.miner.refinements import RefinementCounter
from rulewright.learn.miner.thresholds import ThresholdCounter
from rulewright.logic import Rule, RuleSet, WeightedFormula


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
        exclusions: whether to look for predicates that never hold of the same, ``hard !(cat(X) & dog(X)).``, of one
            entity or of two, though chance would have them meet; see `ExclusionCounter`. They are the formulas of
            ``rules_``, with support, body and ``expected``, how often chance would break them (False).
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
        "exclusions": Flag(),
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
        targets: str | Collection[str] | None = None,
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
        exclusions: bool = False,
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
        self.unary, self.constants, self.thresholds, self.exclusions = unary, constants, thresholds, exclusions
        self.sample, self.seed, self.memory_limit, self.time_limit = sample, seed, memory_limit, time_limit
        self.progress, self.on_rules = progress, on_rules
        self._check_parameters()

    def fit(self, kb: KnowledgeBase) -> Self:
        """Count and keep the rules of a knowledge base."""
        self._check_before_fit(kb)
        self._check_predicates(kb)
        self.note_ = ""
        filters = self._choose_filters()
        if not isinstance(kb, StoredFacts):
            self._fit(kb, filters)
            return self
        try:
            self._fit(kb, self._begin_stored(kb, filters))
        finally:
            kb.engine.end()
        return self

    def _fit(self, kb: KnowledgeBase, filters: RuleFilters) -> None:
        """Count and keep the rules that pass the filters."""
        chains = ChainCounter(
            kb,
            filters,
            sample=self.sample,
            seed=self.seed,
            memory_limit=self.memory_limit,
            time_limit=self.time_limit,
            progress=self.progress,
            on_rules=self.on_rules,
        )
        rules = chains.mine()
        self._add_notes(chains.notes)
        if self.prune:
            rules = drop_redundant(rules)
        if filters.unary or filters.constants or filters.thresholds:
            if filters.is_late():
                self._add_notes(["rules about one entity were not begun"])
            else:
                rules += self._mine_properties(kb, filters)
        formulas = self._mine_exclusions(kb, filters) if self.exclusions else []
        if not rules and not formulas:
            self._explain_nothing(kb, filters)
        text = cache(str)  # the atoms of mined rules recur
        rules.sort(
            key=lambda rule: (
                -rule.confidence,
                -(rule.support or 0),
                f"{text(rule.head)} :- {', '.join(map(text, rule.body))}.",
            )
        )
        self.rules_ = RuleSet([*(self._prune(kb, rules, filters) if self.prune else rules), *formulas])

    def _begin_stored(self, kb: StoredFacts, filters: RuleFilters) -> RuleFilters:
        """Begin work on facts that stay in an engine, which counts chains alone, and say what is left out."""
        asked = {name: getattr(self, name) for name in ("unary", "constants", "thresholds") if getattr(self, name)}
        if asked or self.exclusions:
            listed = ", ".join([*asked, *(["exclusions"] if self.exclusions else [])])
            raise DataError(f"facts that stay in an engine give chains of relations; {listed} needs read_facts")
        if filters.constants:
            self._add_notes(["rules that name entities were not looked for: in an engine chains alone are counted"])
        silent = {"progress", "on_rules", "time_limit", "memory_limit"}
        told = {name: value for name, value in self.get_params().items() if name not in silent}
        kb.begin(f"mining by {told}")
        return replace(filters, unary=False, constants=False, thresholds=False)

    def _mine_exclusions(self, kb: KnowledgeBase, filters: RuleFilters) -> list[WeightedFormula]:
        """Return the exclusions, unless time is up."""
        if filters.is_late():
            self._add_notes(["exclusions were not begun"])
            return []
        counter = ExclusionCounter(kb, filters)
        formulas = counter.mine()
        self._add_notes(counter.notes)
        return formulas

    def _choose_filters(self) -> RuleFilters:
        """Return what chooses rules: what is given, else what the preset says."""
        given = {field.name: getattr(self, field.name, None) for field in fields(RuleFilters)}
        given["targets"] = None if self.targets is None else tuple(read_names(self.targets) or ())
        filters = replace(PRESETS[self.preset], **{name: value for name, value in given.items() if value is not None})
        return replace(
            filters,
            min_named_support=max(filters.min_support, MIN_NAMED_SUPPORT),
            deadline=None if self.time_limit is None else time.monotonic() + self.time_limit,
        )

    def _prune(self, kb: KnowledgeBase, rules: list[Rule], filters: RuleFilters) -> list[Rule]:
        """Leave out rules, best first, that explain little of their own; all are kept where time is up."""
        left = None if filters.deadline is None else max(0.0, filters.deadline - time.monotonic())
        try:
            with use_engine(kb, memory_limit=self.memory_limit) as engine, engine.time_limit(left):
                return cover_facts(engine, rules, min_new=filters.min_support, circular=filters.circular)
        except TimeLimitError:
            self._add_notes(["time was up before rules were pruned that explain nothing of their own"])
            return rules

    def _check_predicates(self, kb: KnowledgeBase) -> None:
        """Refuse facts and targets of which no rule of these forms can speak."""
        minable = [name for name, predicate in kb.predicates.items() if signature(predicate) in ("e", "ec", "ee")]
        if not minable:
            raise DataError("no predicate is about one entity or two, so there are no rules to mine")
        for name in read_names(self.targets) or ():
            if name not in minable:
                kb.predicate(name)
                raise DataError(f"{name} is not about one entity or two and cannot be a target")

    def _add_notes(self, notes: Sequence[str]) -> None:
        """Add what is not yet said to the note."""
        self.note_ = "; ".join(dict.fromkeys(filter(None, [self.note_, *notes])))

    def _explain_nothing(self, kb: KnowledgeBase, filters: RuleFilters) -> None:
        """Say which rule came nearest, and what would have admitted it."""
        limits = {"min_confidence": self.min_confidence, "min_support": filters.min_support}
        limits["min_coverage"] = filters.min_coverage
        loosest = {"min_confidence": 0.0, "min_support": 1, "min_coverage": 0.0}
        if limits == loosest:
            return
        silent = {"prune": False, "exclusions": False, "sample": None, "progress": None, "on_rules": None}
        lengths = {"max_length": min(filters.max_length or 2, 2)}
        rules = clone(self).set_params(**loosest, **silent, **lengths).fit(kb).rules_.rules
        if not rules:
            self._add_notes(["no rule holds in a single case"])
            return
        best = rules[0]
        told = {"min_confidence": best.confidence, "min_support": best.support or 1}
        told["min_coverage"] = best.annotations.number("coverage") or 0.0
        missed = [name for name, value in told.items() if value < limits[name]]
        flags = [f"{name}={_round_down(told[name]):g}" for name in missed]
        options = [f"--{name.replace('_', '-')} {_round_down(told[name]):g}" for name in missed]
        text = (
            f"no rule was found; the best that was left out, {best.head} :- {', '.join(map(str, best.body))}, holds in "
            f"{best.support:,} of {best.annotations['body']:,} cases with confidence {best.confidence:.3g}: "
            f"{', '.join(flags)} ({' '.join(options)}) admits it"
        )
        self._add_notes([text])

    def _mine_properties(self, kb: KnowledgeBase, filters: RuleFilters) -> list[Rule]:
        """Return the rules about one entity, and the chains that properties of their ends refine."""
        properties = PropertyCounter(kb, filters)
        refinements = RefinementCounter(
            kb, filters, thresholds=filters.thresholds, two_steps=(filters.max_length or 2) > 1
        )
        rules = properties.mine()
        notes = list(properties.notes)
        if filters.is_late():
            notes.append("time was up before thresholds and refined chains were looked for")
        else:
            if filters.thresholds:
                rules += ThresholdCounter(kb, filters, properties).mine()
            if filters.loops == "skip":  # a refined chain leaves loops out
                rules += refinements.mine()
        self._add_notes([*notes, *refinements.notes])
        if self.on_rules is not None:
            self.on_rules(rules)
        return rules


def _round_down(value: float) -> float:
    return math.floor(value * 1000) / 1000
