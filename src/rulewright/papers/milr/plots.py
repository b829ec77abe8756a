"""MILR's figures as plots: scores of the variants, and scores by the distance of entities."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rulewright.papers.milr.tables import VARIANTS, Runs, figures, has_details, range_text, title_of, with_key
from rulewright.papers.results_page import Run, new_figure

COLOURS = {"plain": "#8c8c8c", "loss": "#e0a030", "decoder": "#4c8fbd", "both": "#1f4e79"}
PANEL = (4.6, 3.2)
COLUMNS = 3


def draw(runs: Runs, folder: Path) -> dict[str, Path]:
    """Draw what the runs allow and return the files by the name of their plot."""
    detailed = with_key(runs, has_details)
    found = {}
    if runs:
        found["variants"] = _save(_variants(runs), folder / "milr_variants.png")
    if detailed:
        found["distance"] = _save(_by_distance(detailed, ("f1",)), folder / "milr_distance.png")
        figure = _by_distance(detailed, ("precision", "recall"))
        found["precision_recall"] = _save(figure, folder / "milr_precision_recall.png")
    return found


def _save(figure: Any, path: Path) -> Path:
    figure.savefig(path, dpi=100, metadata={"Software": None})  # the same runs give the same bytes
    return path


def _panels(count: int, columns: int = COLUMNS) -> tuple[Any, list[Any]]:
    across = min(columns, count)
    down = -(-count // across)
    figure = new_figure(PANEL[0] * across, PANEL[1] * down + 0.4)  # the rest is for the legend
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for unused in axes[count:]:
        unused.set_visible(False)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes[:count]


def _legend(figure: Any, axis: Any) -> None:
    handles, labels = axis.get_legend_handles_labels()
    columns = len(labels) if figure.get_figwidth() > 2 * PANEL[0] - 1 else 2
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def _variants(runs: Runs) -> Any:
    """F1, Ign F1 and Logic of every variant as bars; lines show the standard deviation over seeds."""
    keys = {"f1": "F1", "ign_f1_docred": "Ign F1", "logic": "Logic", "logic_mined": "mined rules\nkept"}
    figure, axes = _panels(len(runs))
    for axis, (name, found) in zip(axes, runs.items(), strict=True):
        shown = {key: label for key, label in keys.items() if figures(found, "plain", key)}
        for place, (variant, label) in enumerate(VARIANTS.items()):
            values = [[100 * each for each in figures(found, variant, key)] for key in shown]
            axis.bar(
                [number + (place - 1.5) * 0.2 for number in range(len(shown))],
                [mean(each) if each else 0.0 for each in values],
                0.18,
                yerr=[stdev(each) if len(each) > 1 else 0.0 for each in values],
                error_kw={"elinewidth": 1},
                color=COLOURS[variant],
                label=label,
            )
        axis.set_xticks(range(len(shown)), list(shown.values()))
        axis.set_ylim(0, 100)
        axis.set_ylabel("%")
        axis.set_title(f"{title_of(name)} ({_seeds(found)})", fontsize=10)
    _legend(figure, axes[0])
    return figure


def _by_distance(runs: Runs, keys: Sequence[str]) -> Any:
    """A panel for every experiment and figure: a line a variant, over the ranges of distance that have gold facts."""
    figure, axes = _panels(len(runs) * len(keys), COLUMNS if len(keys) == 1 else len(keys))
    panels = [(name, key) for name in runs for key in keys]
    for axis, (name, key) in zip(axes, panels, strict=True):
        found = runs[name]
        buckets = found[0]["rows"]["plain"]["by_distance"]
        places = [place for place, bucket in enumerate(buckets) if bucket["wanted"]]
        for number, (variant, label) in enumerate(VARIANTS.items()):
            values = [
                [100 * run["rows"][variant]["by_distance"][place][key] for run in found if variant in run["rows"]]
                for place in places
            ]
            axis.errorbar(
                [place + (number - 1.5) * 0.05 for place in range(len(places))],  # so that no line hides another
                [mean(each) if each else 0.0 for each in values],
                yerr=[stdev(each) if len(each) > 1 else 0.0 for each in values],
                color=COLOURS[variant],
                marker="o",
                markersize=4,
                capsize=2,
                label=label,
            )
        labels = [f"{range_text(buckets[place])}\n({buckets[place]['wanted']:,} facts)" for place in places]
        axis.set_xticks(range(len(places)), labels, fontsize=8)
        axis.set_xlim(-0.4, len(places) - 0.6)
        axis.set_ylim(bottom=0)
        axis.set_xlabel("tokens apart", fontsize=8)
        axis.set_ylabel({"f1": "F1"}.get(key, key) + ", %")
        axis.set_title(f"{title_of(name)} ({_seeds(found)})", fontsize=10)
    _legend(figure, axes[0])
    return figure


def _seeds(found: Sequence[Run]) -> str:
    return "1 seed" if len(found) == 1 else f"{len(found)} seeds"
