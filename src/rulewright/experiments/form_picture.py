"""Matrices of a form's pairs of words side by side, as in the first figure of the LogicMP paper."""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.errors import MissingExtraError
from rulewright.files import write_bytes

INSTALL = "pip install -c constraints.txt 'rulewright[viz]'"


def draw_matrices(
    path: str | os.PathLike[str], matrices: Mapping[str, npt.NDArray[Any]], *, title: str = "", dots: int = 150
) -> None:
    """Draw matrices ``[N, N]`` of probabilities, one panel each with its name, and save them as PNG."""
    try:
        figures: Any = importlib.import_module("matplotlib.figure")
    except ImportError:
        raise MissingExtraError(f"pictures need matplotlib: {INSTALL}") from None
    figure = figures.Figure(figsize=(3.2 * len(matrices), 3.6), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(matrices)))
    for panel, (name, matrix) in zip(panels, matrices.items(), strict=True):
        panel.imshow(np.asarray(matrix, dtype=float), cmap="Greys", vmin=0, vmax=1, interpolation="nearest")
        panel.set_title(name)
        panel.set_xticks([])
        panel.set_yticks([])
    if title:
        figure.suptitle(title)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=dots)
    write_bytes(path, buffer.getvalue())
