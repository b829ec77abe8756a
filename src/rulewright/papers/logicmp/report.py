"""The page of LogicMP's results: tables and pictures of all runs in a folder, put into ``logicmp.md`` there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rulewright.papers.report_page import (
    ABSENT,
    NOTHING,
    PageContent,
    Runs,
    join_seeds,
    list_runs,
    markdown_table,
    mean_and_sd,
    mean_figure,
    new_figure,
    runs_of_task,
    save_figure,
)

TITLE = "LogicMP: Markov logic as a layer"

FORM_VARIANTS = {
    "plain": "network alone",
    "slrelax": "trained with SLrelax",
    "layer": "with the layer",
    "both": "SLrelax and layer",
    "end_to_end": "trained through the layer",
}
TAG_VARIANTS = {
    "plain": "BLSTM",
    "crf": "with a CRF",
    "mean_field_crf": "with a mean-field CRF",
    "slrelax": "trained with SLrelax",
    "logicdist_p": "LogicDist, student p",
    "logicdist_q": "LogicDist, teacher q",
    "layer_adjacent": "layer, adjacent rules",
    "layer_adjacent_list": "layer, adjacent rules, and list rules added",
    "layer_trained_list": "layer, trained with adjacent and list rules",
}

GRAPH_VARIANTS = {
    "encoder": "encoder alone",
    "encoder_scores": "encoder trained on grounding scores",
    "encoder_layer": "encoder with the layer",
    "layer": "layer alone",
}


def build_page(runs: Runs, results: Path, pages: Path) -> PageContent:
    """Write the tables and draw the plot of ``logicmp.md``."""
    new_figure(1, 1)  # so that nothing is written where plots cannot be drawn
    plots = _draw_forms(runs, pages)
    images = [f"![F1 of blocks on FUNSD, each seed a line]({path.name})" for path in plots]
    blocks = {
        "runs": list_runs(runs, "logicmp"),
        "forms": "\n\n".join([form_table(runs), *images]),
        "tags": tag_table(runs),
        "graphs": graph_table(runs),
        "iterations": iteration_table(runs),
    }
    return PageContent(TITLE, blocks, plots)


def form_table(runs: Runs) -> str:
    """F1 of blocks on forms, by variant: the mean over seeds, and the difference from the network alone."""
    return _table(
        runs,
        "forms",
        FORM_VARIANTS,
        {"full": "full", "long": "long", "full_labelled": "full, labelled", "tuned": "full, threshold chosen"},
        lambda row, key: row["tuned"]["full"] if key == "tuned" else row[key],
        paper={"full": "full", "long": "long"},
        compared="full",
    )


def tag_table(runs: Runs) -> str:
    """F1 of entities on sentences, by variant, and on the sentences with a list."""
    return _table(
        runs,
        "tags",
        TAG_VARIANTS,
        {"f1": "F1", "f1_lists": "F1, sentences with a list", "selection_f1": "F1 on testa"},
        lambda row, key: row[key],
        paper={"f1": "F1"},
        compared="f1",
    )


def graph_table(runs: Runs) -> str:
    """AUC-PR of knowledge bases, by part and variant."""
    parts = []
    for title, seeds in runs_of_task(runs, "graphs"):
        names = list(seeds[0]["rows"]["layer"]["parts"])
        lines = []
        for variant, label in GRAPH_VARIANTS.items():
            rows = [run["rows"][variant] for run in seeds if variant in run["rows"]]
            paper = (seeds[0].get("paper") or {}).get(variant, {})
            lines.append(
                (
                    label,
                    *(mean_figure((row["parts"][name] for row in rows), "auc_pr") for name in names),
                    mean_figure(rows, "auc_pr"),
                    f"{mean(paper.values()):.2f}" if paper else NOTHING,
                )
            )
        head = ("AUC-PR", *names, "mean", "paper, mean")
        parts.append(f"**{title} (seeds {join_seeds(seeds)})**\n\n{markdown_table(head, lines)}")
    return "\n\n".join(parts) or ABSENT


def iteration_table(runs: Runs) -> str:
    """AUC-PR of the layer alone after some numbers of iterations, of the first seed."""
    rows: list[tuple[str, ...]] = []
    counts: list[int] = []
    for title, seeds in runs_of_task(runs, "graphs"):
        by_damping: dict[float, dict[int, float]] = {}
        for point in seeds[0].get("iterations", ()):
            by_damping.setdefault(point["damping"], {})[point["iterations"]] = point["auc_pr"]
        for damping, values in by_damping.items():
            counts = counts or list(values)
            shown = [f"{values[count]:.3f}" if count in values else NOTHING for count in counts]
            rows.append((f"{title}, damping {damping:g}", *shown))
    return markdown_table(("iterations", *map(str, counts)), rows)


def _table(
    runs: Runs,
    task: str,
    variants: Mapping[str, str],
    columns: Mapping[str, str],
    value: Callable[[Mapping[str, Any], str], float | None],
    *,
    paper: Mapping[str, str],
    compared: str,
) -> str:
    parts = []
    for title, seeds in runs_of_task(runs, task):
        lines = []
        for variant, label in variants.items():
            pairs = [(run["rows"][variant], run["rows"]["plain"]) for run in seeds if variant in run["rows"]]
            if not pairs:
                continue
            gains = [value(row, compared) - value(plain, compared) for row, plain in pairs]  # type: ignore[operator]
            theirs = (seeds[0].get("paper") or {}).get(variant, {})
            lines.append(
                (
                    label,
                    *(mean_and_sd(value(row, key) for row, _ in pairs) for key in columns),
                    NOTHING if variant == "plain" else _describe_gain(gains),
                    *(f"{theirs[key]:.1f}" if key in theirs else NOTHING for key in paper),
                )
            )
        head = ("", *columns.values(), f"gain in {columns[compared]}", *(f"paper, {label}" for label in paper.values()))
        parts.append(f"**{title} (seeds {join_seeds(seeds)})**\n\n{markdown_table(head, lines)}")
    return "\n\n".join(parts) or ABSENT


def _describe_gain(values: Sequence[float]) -> str:
    """Write the mean difference over seeds with twice its standard error, and in how many seeds it is above 0."""
    shown = f"{100 * mean(values):+.2f}"
    if len(values) == 1:
        return shown
    error = 200 * stdev(values) / len(values) ** 0.5
    return f"{shown} ± {error:.2f} ({sum(value > 0 for value in values)} of {len(values)} seeds)"


def _draw_forms(runs: Runs, folder: Path) -> list[Path]:
    """Draw each seed's F1 by variant, so that the pairing can be seen."""
    seeds = [run for _, runs_of_one in runs_of_task(runs, "forms") for run in runs_of_one]
    if len(seeds) < 2:
        return []
    shown = [variant for variant in FORM_VARIANTS if all(variant in run["rows"] for run in seeds)]
    figure = new_figure(5.2, 3.2)
    axis = figure.subplots()
    for run in seeds:
        values = [100 * run["rows"][variant]["full"] for variant in shown]
        axis.plot(range(len(shown)), values, color="#9db7cc", marker="o", markersize=3, linewidth=1)
    means = [100 * mean(run["rows"][variant]["full"] for run in seeds) for variant in shown]
    axis.plot(range(len(shown)), means, color="#1f4e79", marker="o", linewidth=2, label="mean")
    axis.set_xticks(range(len(shown)), [FORM_VARIANTS[variant] for variant in shown], fontsize=8)
    axis.set_ylabel("F1 of blocks, %")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    return [save_figure(figure, folder / "logicmp_forms.png")]
