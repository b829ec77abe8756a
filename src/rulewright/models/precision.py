"""In which numbers a network computes."""

from __future__ import annotations

from typing import Literal

import torch

from rulewright.models.settings import Precision

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
