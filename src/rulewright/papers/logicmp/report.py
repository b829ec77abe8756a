"""The page of LogicMP's results: tables and pictures of all runs in a folder, put into ``logicmp.md`` there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from textwrap import fill
from typing import Any

import numpy as np

from rulewright.errors import RulewrightError
from rulewright.io.json_shape import load as load_json
from rulewright.papers.logicmp.pictures import draw_curves, draw_smoke, has_curve
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
    "layer_mean": "with the layer, mean messages",
    "layer_block": "with the layer, mean over the block",
    "both": "SLrelax and layer",
    "end_to_end": "trained through the layer",
    "end_to_end_mean": "trained through it, mean messages",
    "end_to_end_block": "trained through it, mean over the block",
}
COMPARED = (
    ("layer", "plain"),
    ("end_to_end", "plain"),
    ("end_to_end", "layer"),
    ("layer_mean", "plain"),
    ("layer_block", "plain"),
    ("layer_mean", "layer"),
    ("layer_block", "layer"),
    ("end_to_end_mean", "plain"),
    ("end_to_end_block", "plain"),
    ("end_to_end_mean", "end_to_end"),
    ("end_to_end_block", "end_to_end"),
)
"""The variants of the networks over forms that are compared seed by seed, each with what it is compared with."""
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
    "encoder_layer": "encoder and layer, on sampled groundings",
    "encoder_distilled": "encoder and layer, distilled",
    "table_layer": "layer on sampled groundings, no encoder",
    "layer": "layer alone",
}
BENCHMARK, PSL, LEARNING = "logicmp_benchmark.json", "logicmp_psl.json", "logicmp_learning.json"
BY_SIZE = ("One iteration as the domain grows", "One iteration grounding by grounding")
"""How the titles of the benchmark's tables begin that show what size costs."""


def build_page(runs: Runs, results: Path, pages: Path) -> PageContent:
    """Write the tables and draw the plot of ``logicmp.md``."""
    new_figure(1, 1)  # so that nothing is written where plots cannot be drawn
    plots = _draw_forms(runs, pages)
    images = [f"![F1 of blocks on FUNSD, each seed a line]({path.name})" for path in plots]
    curves, smoke = _draw_curves(runs, pages), _draw_smoke(runs, pages)
    blocks = {
        "runs": list_runs(runs, "logicmp"),
        "forms": "\n\n".join([form_table(runs), *images]),
        "paired": paired_table(runs),
        "tags": tag_table(runs),
        "curves": "\n".join(f"![F1 on held-out data by seconds of training]({path.name})" for path in curves) or ABSENT,
        "graphs": graph_table(runs),
        "iterations": iteration_table(runs),
        "learning": benchmark_table(results / LEARNING),
        "smoke": f"![Smoke: facts, and what is inferred after some iterations]({SMOKE_PICTURE})" if smoke else ABSENT,
        "costs": cost_table(runs),
        "sizes": size_tables(results / BENCHMARK),
        "inference": inference_table(runs),
        "psl": benchmark_table(results / PSL),
    }
    return PageContent(TITLE, blocks, [*plots, *curves, *smoke])


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


def paired_table(runs: Runs) -> str:
    """The differences of two variants on the same seeds: mean ± standard error, and p of two tests, for F1."""
    lines = []
    for _, seeds in runs_of_task(runs, "forms"):
        for first, second in COMPARED:
            both = [run["rows"] for run in seeds if first in run["rows"] and second in run["rows"]]
            if len(both) < 2:
                continue
            figures = []
            for size in ("full", "long"):
                known = [(rows[first][size], rows[second][size]) for rows in both]
                figures.append(describe_pairs([one - other for one, other in known if None not in (one, other)]))
            name = f"{FORM_VARIANTS[first]} − {FORM_VARIANTS[second]}"
            lines.append((name, str(len(both)), *(cell for cells in figures for cell in cells)))
    tests = ("p (t)", "p (signs)")
    return markdown_table(("F1", "seeds", "full", *tests, "long", *tests), lines)


def describe_pairs(differences: Sequence[float]) -> tuple[str, str, str]:
    """Write the mean of paired differences ± its standard error, and p of the t test and of the permutation test.

    The permutation test counts, of all ways to give the differences signs, those with a sum at least as far from 0.

    >>> describe_pairs([0.01, 0.02, 0.03, 0.02])
    ('+2.00 ± 0.41', '0.016', '0.125')
    """
    from scipy.stats import ttest_1samp

    values = np.array(differences, dtype=np.float64)
    if len(values) < 2 or not values.std():
        return (NOTHING, NOTHING, NOTHING)
    error = values.std(ddof=1) / len(values) ** 0.5
    sums = np.abs(np.array(list(product((-1, 1), repeat=len(values)))) @ values)
    share = float((sums >= abs(values.sum()) - 1e-12).mean())
    return f"{100 * values.mean():+.2f} ± {100 * error:.2f}", f"{ttest_1samp(values, 0).pvalue:.3f}", f"{share:.3f}"


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


def cost_table(runs: Runs) -> str:
    """Seconds that one iteration takes over the whole open world of a part, for each way of sending messages."""
    costs = {
        f"{title.partition(',')[0]}, {seeds[0]['costs']['part']}": seeds[0]["costs"]
        for title, seeds in runs_of_task(runs, "graphs")
        if seeds[0].get("costs")
    }
    ways = list(dict.fromkeys(way for cost in costs.values() for way in cost["seconds"] if ": why not" not in way))
    lines = [("groundings", *(f"{cost['groundings']:,}" for cost in costs.values()))]
    lines += [(way, *(_write_seconds(cost["seconds"].get(way)) for cost in costs.values())) for way in ways]
    return markdown_table(("", *costs), lines if costs else [])


def size_tables(path: Path) -> str:
    """The benchmark's tables of what size costs."""
    if not path.exists():
        return ABSENT
    saved: Any = load_json(path).value
    shown = []
    for table in saved["tables"]:
        if table["title"].startswith(BY_SIZE):
            rows = [[cell if isinstance(cell, str) else f"{cell:,.3g}" for cell in row] for row in table["rows"]]
            shown.append(f"**{table['title']}**\n\n{markdown_table(table['columns'], rows)}")
    return "\n\n".join(shown) or ABSENT


def benchmark_table(path: Path) -> str:
    """The table of a benchmark, with its command."""
    if not path.exists():
        return ABSENT
    saved: Any = load_json(path).value
    rows = [[_write_cell(cell) for cell in row] for table in saved["tables"] for row in table["rows"]]
    return f"`{saved['command']}` ({saved['machine']})\n\n{markdown_table(saved['tables'][0]['columns'], rows)}"


def _write_cell(cell: Any) -> str:
    """Write a number to three digits, a share to three decimals.

    >>> _write_cell(0.5), _write_cell(120.34), _write_cell(7)
    ('0.500', '120', '7')
    """
    return (f"{cell:.3g}" if cell > 1 else f"{cell:.3f}") if isinstance(cell, float) else str(cell)


def inference_table(runs: Runs) -> str:
    """Seconds to fit and to infer all queries of a part, by variant, the mean over seeds."""
    lines = []
    for title, seeds in runs_of_task(runs, "graphs"):
        for name in seeds[0]["rows"]["layer"]["parts"]:
            spent = [
                [run["rows"][variant]["parts"][name]["seconds"] for run in seeds if variant in run["rows"]]
                for variant in GRAPH_VARIANTS
            ]
            shown = [f"{mean(values):.2f}" if values else NOTHING for values in spent]
            lines.append((f"{title.partition(',')[0]}, {name}", *shown))
    return markdown_table(("seconds", *GRAPH_VARIANTS.values()), lines)


def _write_seconds(value: float | None) -> str:
    """Write seconds to two digits, with days where they are.

    >>> _write_seconds(0.00034), _write_seconds(27.13), _write_seconds(3_047_897.0), _write_seconds(None)
    ('0.00034 s', '27 s', '35 days', '–')
    """
    if value is None:
        return NOTHING
    if value >= 86_400:
        return f"{value / 86_400:,.0f} days"
    return f"{value:,.0f} s" if value >= 10 else f"{value:.2g} s"


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
            few = "" if len(pairs) == len(seeds) else f" ({len(pairs)} of {len(seeds)} seeds)"
            lines.append(
                (
                    f"{label}{few}",
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
    figure = new_figure(1.5 + 0.85 * len(shown), 3.2)
    axis = figure.subplots()
    for run in seeds:
        values = [100 * run["rows"][variant]["full"] for variant in shown]
        axis.plot(range(len(shown)), values, color="#9db7cc", marker="o", markersize=3, linewidth=1)
    means = [100 * mean(run["rows"][variant]["full"] for run in seeds) for variant in shown]
    axis.plot(range(len(shown)), means, color="#1f4e79", marker="o", linewidth=2, label="mean")
    axis.set_xticks(range(len(shown)), [fill(FORM_VARIANTS[variant], 13) for variant in shown], fontsize=7)
    axis.set_ylabel("F1 of blocks, %")
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, fontsize=8)
    return [save_figure(figure, folder / "logicmp_forms.png")]


SMOKE_PICTURE = "logicmp_smoke.png"


def _draw_smoke(runs: Runs, folder: Path) -> list[Path]:
    """Draw Smoke with the options that its run chose; where its data are not here, leave the picture that there is."""
    path = folder / SMOKE_PICTURE
    seeds = runs.get("logicmp/smoke", ())
    if not seeds:
        return []
    try:
        return [draw_smoke(path, seeds[0]["options"])]
    except RulewrightError:
        return [path] if path.exists() else []


def _draw_curves(runs: Runs, folder: Path) -> list[Path]:
    """Draw how the networks over forms and sentences learn, where runs have kept it."""
    panels = {
        title.partition(",")[0]: seeds
        for task in ("forms", "tags")
        for title, seeds in runs_of_task(runs, task)
        if has_curve(seeds)
    }
    return [draw_curves(folder / "logicmp_curves.png", panels, {**TAG_VARIANTS, **FORM_VARIANTS})] if panels else []
