"""The parameters of Markov logic, which its network, its samples and its training read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from rulewright.checks import SHARE, Flag, MemoryLimit, OneOf, ParameterRule, Progress, Real, Whole
from rulewright.errors import DataError
from rulewright.inject.layer.averaging import MessageForm
from rulewright.learn.base import Learner
from rulewright.logic import RuleSet


@dataclass(kw_only=True, eq=False, repr=False)
class MarkovParameters(Learner):
    """What `rulewright.MarkovLogic` takes; see there."""

    rules: RuleSet = field(kw_only=False)
    encoder: Literal["none", "embedding", "gnn"] = "none"
    training: Literal["none", "distill", "end_to_end", "sampled"] = "none"
    iterations: int = 5
    damping: float = 0.5
    tolerance: float | None = 1e-3
    closed: Iterable[str] | Literal["listed"] = ()
    prior: float | Mapping[str, float] | Literal["density"] = 0.0
    messages: MessageForm = "sum"
    draws: int = 0
    observed_odds: float | None = None
    scaling: Literal["none", "messages"] = "none"
    scaling_power: float = 1.0
    weights: Literal["one", "logit"] = "one"
    hard_weight: float = 20.0
    learn_weights: bool = False
    weight_epochs: int = 50
    weight_rate: float = 0.05
    weight_decay: float = 0.01
    epochs: int = 100
    rate: float = 0.01
    size: int = 16
    slices: int = 8
    batch_size: int = 1024
    bias: float = 0.9
    trust: float = 0.5
    limit: float = 10.0
    hidden: float = 0.2
    grounding: Literal["auto", "dense", "sparse"] = "auto"
    hops: int = 1
    sample: int | None = None
    time_limit: float | None = 3600.0
    memory_limit: int | str | None = None
    seed: int = 0
    progress: Progress | None = None

    _parameter_rules: ClassVar[Mapping[str, ParameterRule]] = {
        "encoder": OneOf("none", "embedding", "gnn"),
        "training": OneOf("none", "distill", "end_to_end", "sampled"),
        "iterations": Whole(0),
        "damping": Real(0, 1, below=True),
        "tolerance": Real(0, optional=True),
        "messages": OneOf("sum", "mean"),
        "draws": Whole(0),
        "observed_odds": Real(0, above=True, optional=True),
        "scaling": OneOf("none", "messages"),
        "scaling_power": Real(0, above=True),
        "weights": OneOf("one", "logit"),
        "hard_weight": Real(0, above=True),
        "learn_weights": Flag(),
        "weight_epochs": Whole(0),
        "weight_rate": Real(0, above=True),
        "weight_decay": Real(0),
        "epochs": Whole(0),
        "rate": Real(0, above=True),
        "size": Whole(1),
        "slices": Whole(1),
        "batch_size": Whole(1),
        "bias": SHARE,
        "trust": SHARE,
        "limit": Real(0, above=True),
        "hidden": Real(0, 1, below=True),
        "grounding": OneOf("auto", "dense", "sparse"),
        "hops": Whole(0),
        "sample": Whole(1, optional=True),
        "time_limit": Real(0, above=True, optional=True),
        "memory_limit": MemoryLimit(),
        "seed": Whole(0),
    }

    def __post_init__(self) -> None:
        self._check_parameters()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.closed, str) and self.closed != "listed":
            raise DataError(f"closed must be names of predicates or 'listed', got {self.closed!r}")
        if isinstance(self.prior, str) and self.prior != "density":
            raise DataError(f"prior must be a number, numbers by predicate, or 'density', got {self.prior!r}")
        if self.messages == "sum" and (self.draws, self.observed_odds) != (0, None):
            raise DataError("draws and observed_odds are of mean messages; give messages='mean'")
        if self.training in ("distill", "end_to_end") and self.encoder == "none":
            raise DataError(f"training {self.training!r} needs an encoder, embedding or gnn; 'sampled' needs none")
        if self.learn_weights and self.iterations == 0:
            raise DataError("learn_weights needs iterations >= 1: weights are learned through the layer")
