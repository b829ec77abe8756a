"""Mining chain rules: all rules up to a length that hold often enough, counted exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, signature
from rulewright.engine import Engine, SQLEngine
from rulewright.engine import chain_counts as chains
from rulewright.engine.chain_counts import Incidence
from rulewright.errors import DataError
from rulewright.logic import Annotations, Atom, Chain, Comparison, Formula, Rule, RuleSet, Step, Variable, subsumes


def without_redundant(rules: Sequence[Rule]) -> list[Rule]:
    """Leave out each rule that shorter ones with at least its confidence make superfluous.

    Either one shorter rule says the same under weaker conditions (it subsumes), or two shorter rules lead to the same
    head step by step: ``h ← p ∘ q`` is superfluous beside ``h ← r`` and ``r ← p ∘ q`` when the product of their
    confidences is no lower.

    >>> from rulewright.logic import parse_rules
    >>> rules = parse_rules('''0.9 :: h(X, Z) :- p(X, Y), q(Y, Z). 0.95 :: r(X, Z) :- p(X, Y), q(Y, Z).
    ...     0.99 :: h(X, Y) :- r(X, Y).''').rules
    >>> [str(rule) for rule in without_redundant(rules)]
    ['0.95 :: r(X, Z) :- p(X, Y), q(Y, Z).', '0.99 :: h(X, Y) :- r(X, Y).']
    """
    chained = _by_steps(rules)
    return [rule for rule in rules if not _subsumed(rule, rules) and not _composed(rule, chained)]


def _subsumed(rule: Rule, rules: Iterable[Rule]) -> bool:
    return any(
        other.head.predicate == rule.head.predicate
        and len(other.body) < len(rule.body)
        and other.confidence >= rule.confidence
        and subsumes(other, rule)
        for other in rules
    )


def _by_steps(rules: Iterable[Rule]) -> dict[tuple[Step, ...], list[tuple[Step, float]]]:
    """Index chain rules by their body, walked from either end."""
    index: dict[tuple[Step, ...], list[tuple[Step, float]]] = {}
    for rule in rules:
        chain = Chain.of(rule)
        if chain is not None:
            index.setdefault(chain.steps, []).append((Step(chain.head), rule.confidence))
            index.setdefault(chain.mirror(), []).append((Step(chain.head, True), rule.confidence))
    return index


def _composed(rule: Rule, index: dict[tuple[Step, ...], list[tuple[Step, float]]]) -> bool:
    """Tell whether a part of the body gives a relation that leads on to the head without loss."""
    chain = Chain.of(rule)
    if chain is None:
        return False
    steps, head = chain.steps, Step(chain.head)
    for start in range(len(steps)):
        for stop in range(start + 2, len(steps) + 1):
            for middle, first in index.get(steps[start:stop], ()):
                rest = (*steps[:start], middle, *steps[stop:])
                if rest == (head,):
                    continue
                for last, second in index.get(rest, ()):
                    if last == head and first * second >= rule.confidence:
                        return True
    return False


Confidence = Literal["groundings", "pairs", "pca", "beta"]
Progress = Callable[[int, int, int], None]
Counts = dict[str, npt.NDArray[np.int64]]

_TRUST = 0.05  # the Beta bound lies below the true confidence 19 times in 20


@dataclass(frozen=True)
class MinerOptions:
    """What a `RuleMiner` keeps; see there."""

    max_length: int = 2
    min_confidence: float = 0.9
    min_support: int = 1
    min_coverage: float = 0.0
    min_body: int = 1
    min_middles: int = 1
    min_relation_facts: int = 1
    confidence: Confidence = "groundings"
    loops: Literal["skip", "against"] = "skip"
    repeated: bool = True
    inverses: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.max_length <= 4:
            raise DataError(f"max_length must lie in 1 … 4, got {self.max_length}")
        for name in ("min_confidence", "min_coverage"):
            if not 0 <= getattr(self, name) <= 1:
                raise DataError(f"{name} must lie in [0, 1], got {getattr(self, name)}")
        if self.confidence not in ("groundings", "pairs", "pca", "beta"):
            raise DataError(f"confidence must be 'groundings', 'pairs', 'pca' or 'beta', got {self.confidence!r}")
        if self.loops not in ("skip", "against"):
            raise DataError(f"loops must be 'skip' or 'against', got {self.loops!r}")


PRESETS: Mapping[str, Mapping[str, Any]] = {
    "milr": {
        "min_relation_facts": 4,
        "min_middles": 4,
        "min_body": 4,
        "min_coverage": 0.008,
        "repeated": False,
        "loops": "against",
    },
}
"""Named sets of options; ``milr`` has the filters of the code published with the MILR paper."""


class RuleMiner:
    """Finds every rule ``head(v0, vl) ← r1(v0, v1) ∧ … ∧ rl(vl-1, vl)`` whose confidence is high enough.

    The relations of the body may be walked backwards. ``support`` counts the groundings in which body and head hold,
    ``body`` those in which the body holds, ``confidence = support / body``. Each rule comes once (its mirror image is
    the same rule), with support, body, the confidence over different (v0, vl) ``pairs``, the partial-completeness
    confidence ``pca`` (over pairs whose v0 has the head relation to something) and ``coverage``, the support
    divided by the number of the head's facts.

    ``confidence`` says which figure ``min_confidence`` is about and becomes the rule's own: over ``groundings``, over
    ``pairs``, ``pca``, or ``beta``, the lower 5 % bound of a Beta(support + ½, body − support + ½), which distrusts
    high confidence on little support. ``loops`` are groundings that end where they began: ``skip`` them, and a rule
    that has some says ``v0 != vl``, or count them ``against`` the rule. ``repeated=False`` leaves out bodies that name
    one relation twice, ``inverses=False`` those that walk backwards. ``targets`` are the head relations of interest.
    ``preset="milr"`` sets the published filters together; options given beside it win. ``prune`` leaves out rules that
    shorter ones make superfluous.

    Counting is exact for every length; beyond ``sample_above`` facts, rules of length 3 and 4 are counted on a sample
    of some ``sample`` head facts and carry ``confidence_low`` and ``confidence_high``, a 95 % interval. ``progress`` is
    told the length, how much of it is done and of how much; ``found`` the rules of each length as they come.

    >>> from rulewright.data.generators import family
    >>> miner = RuleMiner(min_confidence=1.0, min_support=5, targets=["grandparent_of"]).fit(family(60).kb)
    >>> print(miner.rules_.rules[0].head, miner.rules_.rules[0].confidence)
    grandparent_of(V0, V2) 1.0

    Fan et al., Boosting Document-Level Relation Extraction by Mining and Injecting Logical Rules, EMNLP 2022.
    """

    def __init__(
        self,
        *,
        preset: str | None = None,
        targets: Iterable[str] | None = None,
        prune: bool = False,
        sample: int = 20_000,
        sample_above: int = 50_000,
        seed: int = 0,
        memory_limit: str | None = None,
        progress: Progress | None = None,
        found: Callable[[list[Rule]], None] | None = None,
        **options: Any,
    ) -> None:
        if preset is not None and preset not in PRESETS:
            raise DataError(f"preset must be one of {', '.join(PRESETS)}, got {preset!r}")
        known = {field.name for field in fields(MinerOptions)}
        for name in options:
            if name not in known:
                raise DataError(f"unknown option {name!r}; known: {', '.join(sorted(known))}")
        self.options = MinerOptions(**{**(PRESETS[preset] if preset else {}), **options})
        self.targets = None if targets is None else tuple(targets)
        self.prune = prune
        self.sample = sample
        self.sample_above = sample_above
        self.seed = seed
        self.memory_limit = memory_limit
        self.progress = progress
        self.found = found
        self.rules_ = RuleSet()

    def fit(self, kb: KnowledgeBase) -> Self:
        """Count and keep the rules of a knowledge base."""
        relations = [name for name, each in kb.predicates.items() if signature(each) == "ee"]
        if not relations:
            raise DataError("no predicate has two entities as arguments, so there are no chains to mine")
        for name in self.targets or ():
            if name not in relations:
                kb.predicate(name)
                raise DataError(f"{name} is not a relation of two entities and cannot be a target")
        facts = kb.tables().get("ee")
        if facts is None:  # relations are declared, but none has a fact
            self.rules_ = RuleSet()
            return self
        incidence = Incidence(facts, len(kb.predicates), inverses=self.options.inverses)
        with Engine(kb, memory_limit=self.memory_limit) as engine:
            engine.put("edge", chains.edges(facts, inverses=self.options.inverses))
            lengths = range(1, self.options.max_length + 1)
            found: list[Rule] = []
            for length in lengths:
                new = self._mine(engine, incidence, length)
                found += new
                if self.found is not None:
                    self.found(new)
        written = cache(str)  # the atoms of mined rules recur
        found.sort(
            key=lambda rule: (
                -rule.confidence,
                -(rule.support or 0),
                f"{written(rule.head)} :- {', '.join(map(written, rule.body))}.",
            )
        )
        self.rules_ = RuleSet(without_redundant(found) if self.prune else found)
        return self

    def _mine(self, engine: SQLEngine, incidence: Incidence, length: int) -> list[Rule]:
        kb, options = engine.kb, self.options
        self._tell(length, 0)
        heads = None if self.targets is None else [kb.predicate_index(name) for name in self.targets]
        sample = None
        if length > 2 and kb.n_facts > self.sample_above:
            sample = chains.Sample(max(1, round(kb.n_facts / self.sample)), self.seed)
        share = 1 if sample is None else sample.share
        if length <= 2:
            body, loops = incidence.bodies(length), incidence.loops(length)
        else:
            body = engine.run(chains.body_counts(length, sample=sample))
            loops = engine.run(chains.loop_counts(length, sample=sample))
        self._tell(length, 1)
        if length == 1:
            support = incidence.support(heads)
        else:
            few = int(body["n"].sum()) <= chains.FEW_PATHS
            support = engine.run(chains.support_counts(length, targets=heads, few_paths=few, sample=sample))
        self._tell(length, 2)
        counts = _joined(support, body, loops, length, 2 * len(kb.predicates))
        counts["facts"] = np.bincount(kb.tables()["ee"].predicate, minlength=len(kb.predicates))[counts["h"]]
        if options.loops == "skip":
            counts["body"] = counts["body"] - counts["loops"]
        counts = _kept(counts, self._passing(counts, kb, length, share))
        if options.confidence != "pairs" and options.confidence != "pca":
            counts = _kept(counts, self._confidence(counts) >= options.min_confidence)
        if len(counts["h"]) == 0:
            self._tell(length, 3)
            return []
        if length == 1:
            known = incidence.known(counts["h"], counts["p0"], loops=options.loops == "against")
            counts |= {"body_pairs": counts["body"], "known_pairs": known}
        else:
            counts |= self._ends(engine, counts, length, sample)
        self._tell(length, 3)
        counts = _kept(counts, self._confidence(counts) >= options.min_confidence)
        return self._rules(counts, kb, length, sample)

    def _passing(self, counts: Counts, kb: KnowledgeBase, length: int, share: int) -> npt.NDArray[np.bool_]:
        options = self.options
        steps = [counts[f"p{place}"] for place in range(length)]
        keep = (counts["support"] * share >= options.min_support) & (counts["body"] > 0)
        keep &= counts["support"] * share >= options.min_coverage * counts["facts"]
        if length == 1:
            keep &= steps[0] != 2 * counts["h"]
        facts = np.bincount(kb.tables()["ee"].predicate, minlength=len(kb.predicates))
        for step in steps:
            keep &= facts[step // 2] >= options.min_relation_facts
        if length == 2:
            keep &= (counts["middles"] >= options.min_middles) & (counts["body"] >= options.min_body)
        if not options.repeated:
            for place, step in enumerate(steps):
                for other in steps[:place]:
                    keep &= step != other
        return keep

    def _confidence(self, counts: Counts) -> npt.NDArray[np.float64]:
        which = self.options.confidence
        if which == "pairs":
            return counts["support_pairs"] / counts["body_pairs"]
        if which == "pca":
            return counts["support_pairs"] / np.maximum(counts["known_pairs"], 1)
        if which == "beta":
            from scipy.stats import beta

            support, body = counts["support"], np.maximum(counts["body"], counts["support"])
            return np.asarray(beta.ppf(_TRUST, support + 0.5, body - support + 0.5))
        return counts["support"] / counts["body"]

    def _ends(self, engine: SQLEngine, counts: Counts, length: int, sample: chains.Sample | None) -> Counts:
        """Count the different ends of the rules that are still in question."""
        rules = {"r": np.arange(len(counts["h"])), "h": counts["h"]}
        engine.put("rule", rules | {f"p{place}": counts[f"p{place}"] for place in range(length)})
        found = engine.run(chains.end_counts(length, loops=self.options.loops == "against", sample=sample))
        order = np.argsort(found["r"])
        return {"body_pairs": found["pairs"][order], "known_pairs": found["known"][order]}

    def _rules(self, counts: Counts, kb: KnowledgeBase, length: int, sample: chains.Sample | None) -> list[Rule]:
        names = list(kb.predicates)
        places = [Variable(f"V{place}") for place in range(length + 1)]
        ends = places[0], places[-1]
        differ = Comparison("!=", *ends)

        @cache
        def step(number: int, place: int) -> Atom:
            before, after = places[place : place + 2]
            return Atom(names[number // 2], (after, before) if number % 2 else (before, after))

        heads = [Atom(name, ends) for name in names]
        share = 1 if sample is None else sample.share
        skip = self.options.loops == "skip"
        columns = {name: column.tolist() for name, column in counts.items()}
        bodies = zip(*(columns[f"p{place}"] for place in range(length)), strict=True)
        rules = []
        for confidence, numbers, *row in zip(self._confidence(counts).tolist(), bodies, *columns.values(), strict=True):
            at = dict(zip(columns, row, strict=True))
            statistics: dict[str, object] = {
                "support": at["support"] * share,
                "body": at["body"] * share,
                "pairs": _rounded(at["support_pairs"] / at["body_pairs"]),
                "pca": _rounded(at["support_pairs"] / max(at["known_pairs"], 1)),
                "coverage": _rounded(at["support"] * share / at["facts"]),
            }
            if sample is not None:
                error = 1.96 * at["squares"] ** 0.5 / at["body"]
                middle = at["support"] / at["body"]
                statistics |= {
                    "confidence_low": _rounded(max(0.0, middle - error)),
                    "confidence_high": _rounded(min(1.0, middle + error)),
                }
            body: list[Formula] = [step(number, place) for place, number in enumerate(numbers)]
            if skip and at["loops"]:
                body.append(differ)
            rules.append(Rule(heads[at["h"]], tuple(body), min(confidence, 1.0), Annotations(statistics)))
        return rules

    def _tell(self, length: int, done: int) -> None:
        if self.progress is not None:
            self.progress(length, done, 3)


def _rounded(value: float) -> float:
    return round(value, 6)


def _kept(counts: Counts, keep: npt.NDArray[np.bool_]) -> Counts:
    return {name: column[keep] for name, column in counts.items()}


def _joined(support: Counts, body: Counts, loops: Counts, length: int, base: int) -> Counts:
    """Bring the counts of rules, bodies and loops together, one row a rule."""

    def key(counts: Counts) -> npt.NDArray[np.int64]:
        value = np.zeros(len(counts["p0"]), dtype=np.int64)
        for place in range(length):
            value = value * base + counts[f"p{place}"]
        return value

    wanted = key(support)
    result: Counts = {"h": support["h"].astype(np.int64), "support": support["n"], "support_pairs": support["pairs"]}
    result |= {f"p{place}": support[f"p{place}"].astype(np.int64) for place in range(length)}
    result["squares"] = support["squares"]
    result["body"] = _looked_up(wanted, key(body), body["n"])
    result["loops"] = _looked_up(wanted, key(loops), loops["n"])
    if length == 2:
        result["middles"] = _looked_up(wanted, key(body), body["middles"])
    return result


def _looked_up(wanted: npt.NDArray[np.int64], keys: npt.NDArray[np.int64], values: Any) -> npt.NDArray[np.int64]:
    """Return the value of each wanted key, 0 where there is none."""
    if len(keys) == 0:
        return np.zeros(len(wanted), dtype=np.int64)
    order = np.argsort(keys)
    place = np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)
    found = np.where(keys[order[place]] == wanted, np.asarray(values)[order[place]], 0)
    return found.astype(np.int64)
