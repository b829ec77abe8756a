"""The page of LogicMP's results: tables and pictures of all runs in a folder, put into ``logicmp.md`` there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rulewright.papers.catalogue import experiments
from rulewright.papers.results_page import (
    ABSENT,
    NOTHING,
    Report,
    Run,
    Runs,
    markdown_table,
    mean_and_sd,
    new_figure,
    of_task,
    read_runs,
    reported,
    run_list,
    write_page,
)

TITLE = "LogicMP: Markov logic as a layer"
FAMILY = "logicmp"

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


def report(folder: str | os.PathLike[str]) -> Report:
    """Read every ``logicmp_NAME_SEED.json`` of a folder and renew the tables and plots of its ``logicmp.md``."""
    place = Path(folder)
    runs = read_runs(place, FAMILY)
    new_figure(1, 1)  # so that nothing is written where plots cannot be drawn
    plots = _draw(runs, place)
    blocks = {
        "runs": run_list(runs, FAMILY),
        "forms": _with_picture(form_table(runs), plots.get("forms"), "F1 of blocks on FUNSD, each seed a line"),
        "tags": tag_table(runs),
        "graphs": graph_table(runs),
        "iterations": iteration_table(runs),
    }
    page = place / "logicmp.md"
    write_page(page, TITLE, blocks)
    return reported(runs, FAMILY, (page, *plots.values()))


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
    for name, found in of_task(runs, FAMILY, "graphs"):
        names = list(found[0]["rows"]["layer"]["parts"])
        theirs = found[0].get("paper") or {}
        lines = []
        for variant, label in GRAPH_VARIANTS.items():
            rows = [run["rows"][variant] for run in found if variant in run["rows"]]
            paper = theirs.get(variant, {})
            lines.append(
                (
                    label,
                    *(mean_and_sd((row["parts"][each]["auc_pr"] for row in rows), scale=1, digits=3) for each in names),
                    mean_and_sd((row["auc_pr"] for row in rows), scale=1, digits=3),
                    f"{mean(paper.values()):.2f}" if paper else NOTHING,
                )
            )
        head = ("AUC-PR", *names, "mean", "paper, mean")
        parts.append(f"**{_heading(name, found)}**\n\n{markdown_table(head, lines)}")
    return "\n\n".join(parts) or ABSENT


def iteration_table(runs: Runs) -> str:
    """AUC-PR of the layer alone after some numbers of iterations, of the first seed."""
    rows: list[tuple[str, ...]] = []
    counts: list[int] = []
    for name, found in of_task(runs, FAMILY, "graphs"):
        by_damping: dict[float, dict[int, float]] = {}
        for each in found[0].get("iterations", ()):
            by_damping.setdefault(each["damping"], {})[each["iterations"]] = each["auc_pr"]
        for damping, values in by_damping.items():
            counts = counts or list(values)
            shown = [f"{values[count]:.3f}" if count in values else NOTHING for count in counts]
            rows.append((f"{experiments()[name].title}, damping {damping:g}", *shown))
    return markdown_table(("iterations", *map(str, counts)), rows) if rows else ABSENT


def _heading(name: str, found: Sequence[Run]) -> str:
    return f"{experiments()[name].title} (seeds {', '.join(str(run['seed']) for run in found)})"


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
    for name, found in of_task(runs, FAMILY, task):
        lines = []
        for variant, label in variants.items():
            rows = [run["rows"][variant] for run in found if variant in run["rows"]]
            if not rows:
                continue
            pairs = [(run["rows"][variant], run["rows"]["plain"]) for run in found if variant in run["rows"]]
            gain = [value(one, compared) - value(other, compared) for one, other in pairs]  # type: ignore[operator]
            theirs = (found[0].get("paper") or {}).get(variant, {})
            lines.append(
                (
                    label,
                    *(mean_and_sd(value(row, key) for row in rows) for key in columns),
                    NOTHING if variant == "plain" else _gain(gain),
                    *(f"{theirs[key]:.1f}" if key in theirs else NOTHING for key in paper),
                )
            )
        head = ("", *columns.values(), f"gain in {columns[compared]}", *(f"paper, {each}" for each in paper.values()))
        parts.append(f"**{_heading(name, found)}**\n\n{markdown_table(head, lines)}")
    return "\n\n".join(parts) or ABSENT


def _gain(values: Sequence[float]) -> str:
    """Write the mean difference over seeds with twice its standard error, and in how many seeds it is above 0."""
    shown = f"{100 * mean(values):+.2f}"
    if len(values) == 1:
        return shown
    error = 200 * stdev(values) / len(values) ** 0.5
    return f"{shown} ± {error:.2f} ({sum(each > 0 for each in values)} of {len(values)} seeds)"


def _with_picture(text: str, picture: Path | None, caption: str) -> str:
    return text if picture is None else f"{text}\n\n![{caption}]({picture.name})"


def _draw(runs: Runs, folder: Path) -> dict[str, Path]:
    """Draw each seed's F1 by variant, so that the pairing can be seen."""
    found = list(chain.from_iterable(runs for _, runs in of_task(runs, FAMILY, "forms")))
    if len(found) < 2:
        return {}
    shown = [each for each in FORM_VARIANTS if all(each in run["rows"] for run in found)]
    figure = new_figure(5.2, 3.2)
    axis = figure.subplots()
    for run in found:
        values = [100 * run["rows"][variant]["full"] for variant in shown]
        axis.plot(range(len(shown)), values, color="#9db7cc", marker="o", markersize=3, linewidth=1)
    means = [100 * mean(run["rows"][variant]["full"] for run in found) for variant in shown]
    axis.plot(range(len(shown)), means, color="#1f4e79", marker="o", linewidth=2, label="mean")
    axis.set_xticks(range(len(shown)), [FORM_VARIANTS[each] for each in shown], fontsize=8)
    axis.set_ylabel("F1 of blocks, %")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    path = folder / "logicmp_forms.png"
    figure.savefig(path, dpi=100, metadata={"Software": None})
    return {"forms": path}
