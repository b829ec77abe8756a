"""How a network is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from rulewright.errors import DataError

Precision = Literal["auto", "bfloat16", "float32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """AdamW with two learning rates, warm-up and linear decay; the defaults are ATLOP's, its rates raised for MiniLM.

    ``encoder_rate`` is for pretrained weights, ``rate`` for all others. A step takes ``batch_size`` documents; it adds
    up the gradients of several passes where they have more than ``pieces_at_once`` pieces, which bounds memory and is
    faster on a processor, whose cache then holds the attention. Training stops after ``epochs``, or ``patience`` epochs
    after the best score on the development set. ``extra_weight`` is λ in ``L = L_cls + λ·L_extra``; the extra loss sees
    the margins F − F_TH or the raw logits. ``precision="auto"`` computes in bfloat16 on processors that have
    instructions for it.
    """

    epochs: int = 30
    patience: int | None = 8
    batch_size: int = 4
    pieces_at_once: int = 1024
    encoder_rate: float = 1e-4
    rate: float = 3e-4
    weight_decay: float = 0.0
    epsilon: float = 1e-6
    warmup: float = 0.06
    clip: float = 1.0
    extra_weight: float = 1e-3
    extra_input: Literal["margins", "logits"] = "margins"
    precision: Precision = "auto"
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size", "pieces_at_once"):
            if getattr(self, name) < 1:
                raise DataError(f"{name} must be >= 1, got {getattr(self, name)}")
        for name in ("encoder_rate", "rate", "weight_decay", "epsilon", "extra_weight", "seed"):
            if not getattr(self, name) >= 0:
                raise DataError(f"{name} must be >= 0, got {getattr(self, name)}")
        if not 0 <= self.warmup <= 1:
            raise DataError(f"warmup is a share of all steps and must be in [0, 1], got {self.warmup}")
        if not self.clip > 0:
            raise DataError(f"clip must be > 0, got {self.clip}")
        if self.patience is not None and self.patience < 1:
            raise DataError(f"patience must be >= 1 or None, got {self.patience}")
        for name, allowed in (("extra_input", ("margins", "logits")), ("precision", ("auto", "bfloat16", "float32"))):
            if getattr(self, name) not in allowed:
                raise DataError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")

    def rate_factor(self, step: int, steps: int) -> float:
        """The share of the learning rate at a step (from 0) of all: up over the warm-up, then down to 0.

        >>> settings = TrainingSettings(warmup=0.5)
        >>> [settings.rate_factor(step, 4) for step in range(4)]
        [0.5, 1.0, 1.0, 0.5]
        """
        rising = round(self.warmup * steps)
        if step < rising:
            return (step + 1) / rising
        return (steps - step) / max(1, steps - rising)


BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "sve_bf16")


def resolve_precision(precision: Precision) -> Literal["bfloat16", "float32"]:
    """Replace ``"auto"`` by bfloat16 where the processor has instructions for it (without them it is slower)."""
    if precision != "auto":
        return precision
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return "bfloat16" if any(capabilities.get(each) for each in BFLOAT16_INSTRUCTIONS) else "float32"


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    """Return the context in which the forward pass computes in this precision; weights stay in float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=resolve_precision(precision) == "bfloat16")
