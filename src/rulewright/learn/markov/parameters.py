"""The parameters of Markov logic, which its network, its samples and its training read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from rulewright.checks import SHARE, Flag, MemoryLimit, OneOf, ParameterRule, Progress, Real, Whole
from rulewright.errors import DataError
from rulewright.learn.base import Learner
from rulewright.logic import RuleSet


@dataclass(kw_only=True, eq=False, repr=False)
class MarkovParameters(Learner):
    """What `rulewright.MarkovLogic` takes; see there."""

    rules: RuleSet = field(kw_only=False)
    encoder: Literal["none", "embedding", "gnn"] = "none"
    training: Literal["none", "distill", "end_to_end", "scores"] = "none"
    iterations: int = 5
    damping: float = 0.5
    tolerance: float | None = 1e-3
    closed: Iterable[str] | Literal["listed"] = ()
    prior: float | Mapping[str, float] | Literal["density"] = 0.0
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
    trust: float = 0.5
    limit: float = 10.0
    hidden: float = 0.2
    sample: int | Literal["auto"] | None = "auto"
    memory_limit: int | str | None = None
    seed: int = 0
    progress: Progress | None = None

    _parameter_rules: ClassVar[Mapping[str, ParameterRule]] = {
        "encoder": OneOf("none", "embedding", "gnn"),
        "training": OneOf("none", "distill", "end_to_end", "scores"),
        "iterations": Whole(0),
        "damping": Real(0, 1, below=True),
        "tolerance": Real(0, optional=True),
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
        "trust": SHARE,
        "limit": Real(0, above=True),
        "hidden": Real(0, 1, below=True),
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
        if self.training != "none" and self.encoder == "none":
            raise DataError(f"training {self.training!r} needs an encoder, embedding or gnn")
        if self.learn_weights and self.iterations == 0:
            raise DataError("learn_weights needs iterations >= 1: weights are learned through the layer")
        if not (self.sample in ("auto", None) or (isinstance(self.sample, int) and self.sample >= 1)):
            raise DataError(f"sample must be a number >= 1, 'auto' or None, got {self.sample!r}")
