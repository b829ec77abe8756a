"""Which rules are wanted, as the parameters of `RuleMiner` say, and what presets say of them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from rulewright.learn.miner.confidence import Confidence, Counts, Floats, bound_shares, keep_rows, measure_shares

Loops = Literal["skip", "against"]

MIN_NAMED_SUPPORT = 5
"""Of so many entities a rule must hold that names one: what holds of fewer is seldom more than a few neighbours."""
NAMED_TRUST = 0.005
"""The Beta bound of such a rule lies below its true confidence 199 times in 200."""


@dataclass(frozen=True)
class RuleFilters:
    """The parameters of a `RuleMiner` that choose rules, with their defaults; presets set other ones."""

    targets: tuple[str, ...] | None = None
    min_confidence: float = 0.01
    inverses: bool = True
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
    min_named_support: int = MIN_NAMED_SUPPORT
    deadline: float | None = None

    def is_late(self) -> bool:
        """Whether the time is up, by the clock of `time.monotonic`."""
        return self.deadline is not None and time.monotonic() > self.deadline

    def confidences(self, counts: Counts) -> Floats:
        """Return the confidence of rules; for ``beta``, the lower bound of the share of different heads."""
        return self.bounds(counts) if self.confidence == "beta" else measure_shares(counts, self.confidence)

    def bounds(self, counts: Counts) -> Floats:
        """Return the lower bound of the share of different heads: the 5 % bound, the 0.5 % bound of what is ``named``.

        The groundings of a body such as ``father_of(X, Y)`` speak for X together, and as one case. Rules that name
        entities are so many that some look good by chance.
        """
        bounds = bound_shares(counts["support_pairs"], counts["body_pairs"])
        named = counts["named"] == 1
        cases = counts["support_pairs"][named], counts["body_pairs"][named]
        bounds[named] = bound_shares(*cases, trust=NAMED_TRUST)
        return bounds

    def pass_counts(self, counts: Counts) -> npt.NDArray[np.bool_]:
        """Tell which rules have support enough, counted over different entities, and confidence enough."""
        keep = (counts["support_pairs"] >= self.min_support) & (counts["body"] > 0)
        keep &= counts["support_pairs"] >= self.min_coverage * counts["facts"]
        keep[keep] = self.confidences(keep_rows(counts, keep)) >= self.min_confidence
        return keep


PRESETS: Mapping[str | None, RuleFilters] = {
    None: RuleFilters(),
    "milr": RuleFilters(
        min_coverage=0.008,
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
