"""Pictures of LogicMP's page: what the layer does to Smoke by iterations, and how networks learn by time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase
from rulewright.datasets import load, rules_of
from rulewright.learn.markov.learner import MarkovLogic
from rulewright.papers.report_page import Run, new_figure, save_figure

Grid = npt.NDArray[np.float64]
UNKNOWN = "#c9dcea"
QUERIES = "queries"
SMOKE = "smoke"
SHOWN = (0, 1, 20)
"""After how many iterations Smoke is drawn."""

COLOURS = ("#1f4e79", "#8c8c8c", "#e0a030", "#4c8fbd", "#7a4fa0", "#5a8f5a", "#b04a3f", "#c98bb0", "#333333")


def draw_smoke(path: Path, options: Mapping[str, Any], *, iterations: Sequence[int] = SHOWN) -> Path:
    """Draw Smoke's facts and, below them, what is inferred after some numbers of iterations.

    A column for each predicate; rows and columns of ``friend`` are people, and the strips are the people too. What is
    given stays as it is, and rings are around the queries that are true. ``options`` are those of `MarkovLogic`.
    """
    whole = load(SMOKE)
    kb, gold = whole.with_splits({}), whole.split(QUERIES)
    names = list(kb.predicates)
    grids = {"facts": {name: _known(kb, name) for name in names}}
    for count in iterations:
        grids[f"{count} iterations" if count != 1 else "1 iteration"] = _inferred(kb, {**options, "iterations": count})
    return draw_grids(path, grids, {name: _known(gold, name) == 1 for name in names})


def _known(kb: KnowledgeBase, name: str) -> Grid:
    """Return a predicate's atoms: 1 where true, 0 where false and NaN where unknown."""
    shape = [len(kb.domains[type_name]) for type_name in kb.predicate(name).types]
    grid = np.full(shape, np.nan)
    for truth in (False, True):
        grid[tuple(kb.columns(name, truth=truth))] = float(truth)
    return grid


def _inferred(kb: KnowledgeBase, options: Mapping[str, Any]) -> dict[str, Grid]:
    model = MarkovLogic(rules_of(SMOKE), **options).fit(kb)
    grids = {}
    for name in kb.predicates:
        grids[name] = grid = _known(kb, name)
        if np.isnan(grid).any():
            columns, logits = model.predict([name]).columns(name)
            grid[tuple(columns)] = 1 / (1 + np.exp(-logits))
    return grids


def draw_grids(path: Path, grids: Mapping[str, Mapping[str, Grid]], wanted: Mapping[str, npt.NDArray[Any]]) -> Path:
    """Draw one row of panels for each of ``grids``: black is certain, white excluded, blue unknown; rings are wanted.

    Predicates of one argument are strips.
    """
    names = list(wanted)
    people = max(grid.shape[-1] for row in grids.values() for grid in row.values())
    widths = [people if wanted[name].ndim == 2 else 1 for name in names]
    figure = new_figure(0.13 * (sum(widths) + 2 * len(names)) * len(grids) + 0.8, 0.13 * people + 0.9)
    parts = figure.subfigures(1, len(grids), squeeze=False)[0]
    panels = [panel for part in parts for panel in part.subplots(1, len(names), squeeze=False, width_ratios=widths)[0]]
    for row, (title, by_name) in enumerate(grids.items()):
        for column, name in enumerate(names):
            panel = panels[row * len(names) + column]
            grid = by_name[name] if by_name[name].ndim == 2 else by_name[name][:, None]
            rings = wanted[name] if wanted[name].ndim == 2 else wanted[name][:, None]
            panel.set_facecolor(UNKNOWN)
            panel.imshow(grid, cmap="Greys", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
            y, x = np.nonzero(rings)
            panel.scatter(x, y, s=14, facecolors="none", edgecolors="#d1495b", linewidths=0.9)
            panel.set_xticks([])
            panel.set_yticks([])
            panel.set_xlabel(name, fontsize=7, rotation=0 if wanted[name].ndim == 2 else 90)
            if wanted[name].ndim == 2:
                panel.set_title(title, fontsize=9)
    return save_figure(figure, path)


def has_curve(runs: Sequence[Run]) -> bool:
    """Say whether a run of these has kept the scores of its epochs."""
    return any("curve" in row for run in runs for row in run["rows"].values())


def draw_curves(path: Path, panels: Mapping[str, Sequence[Run]], names: Mapping[str, str]) -> Path:
    """Draw a panel for each experiment: the F1 that chooses epochs by seconds of training, the mean over seeds.

    ``names`` are those of the variants; one that is trained like another, and only has a layer added, has no curve of
    its own.
    """
    figure = new_figure(4.4 * len(panels), 3.3)
    for axis, (title, runs) in zip(np.atleast_1d(figure.subplots(1, len(panels))), panels.items(), strict=True):
        seen: list[Any] = []
        for variant, name in names.items():
            curves = [run["rows"][variant]["curve"] for run in runs if "curve" in run["rows"].get(variant, {})]
            if not curves or curves in seen:
                continue
            colour = COLOURS[len(seen) % len(COLOURS)]
            seen.append(curves)
            length = min(map(len, curves))
            scores = 100 * np.mean([[score for score, _ in curve[:length]] for curve in curves], axis=0)
            seconds = np.mean([list(accumulate(spent for _, spent in curve[:length])) for curve in curves], axis=0)
            axis.plot(seconds, scores, color=colour, linewidth=1.5, label=f"{name} ({len(curves)})")
        axis.set_title(title, fontsize=9)
        axis.set_xlabel("seconds of training", fontsize=8)
        axis.set_ylabel("F1 on held-out, %", fontsize=8)
        axis.spines[["top", "right"]].set_visible(False)
        axis.legend(frameon=False, fontsize=7)
    return save_figure(figure, path)
