"""The page of rule learning with logical neural networks: tables of all runs in a folder, put into ``lnn.md`` there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rulewright.papers.lnn.pictures import draw_curves
from rulewright.papers.report_page import (
    ABSENT,
    NOTHING,
    PageContent,
    Runs,
    code_block,
    list_runs,
    markdown_table,
    mean_and_sd,
    mean_figure,
    new_figure,
    runs_of_task,
)

TITLE = "LNN: rules and connectives learned by gradient"

RANKING_ROWS = {"ours, test": "ours", "paper": "paper (LNN-MP)", "anyburl": "AnyBURL, two cores"}
GRID_ROWS = {"lnn": "LNN", "neural_lp": "attention and product (NeuralLP)", "ideal": "ideal rule"}
READABLE = 10
"""How many relations of a set are shown with a rule."""


def build_page(runs: Runs, results: Path, pages: Path) -> PageContent:
    """Write the tables and draw the curves of ``lnn.md``."""
    new_figure(1, 1)  # so that nothing is written where plots cannot be drawn
    curves = _draw_curves(runs, pages)
    grids = grid_table(runs)
    blocks = {
        "runs": list_runs(runs, "lnn"),
        "completion": ranking_table(runs),
        "readable": readable_rules(runs),
        "countries": country_table(runs),
        "gridworld": grids if curves is None else f"{grids}\n\n![Mean reward by training grids]({curves.name})",
    }
    return PageContent(TITLE, blocks, () if curves is None else (curves,))


def ranking_table(runs: Runs) -> str:
    """Filtered ranks by set (Table 2), beside the paper and AnyBURL, with the seconds of learning and ranking."""
    lines = []
    for title, seeds in runs_of_task(runs, "kbc"):
        for row, label in RANKING_ROWS.items():
            rows = [run["rows"][row] for run in seeds if row in run["rows"]]
            if not rows:
                continue
            ours = row.startswith("ours")
            rows = rows if ours else rows[:1]
            seconds = [mean_and_sd((run["seconds"][part] for run in seeds), scale=1, digits=0) for part in _PARTS]
            lines.append(
                (
                    f"{title}, {label}",
                    *(mean_figure(rows, key) for key in ("mrr", "hits@1", "hits@3", "hits@10")),
                    *(seconds if ours else [NOTHING] * len(_PARTS)),
                    mean_and_sd((run["rules"] for run in seeds), scale=1, digits=0) if ours else NOTHING,
                )
            )
    head = ("", "MRR", "Hits@1", "Hits@3", "Hits@10", "learning, s", "ranking, s", "rules")
    return markdown_table(head, lines)


_PARTS = ("learning", "ranking")


def readable_rules(runs: Runs) -> str:
    """The heaviest path rule of the relations that have one (Table 3), of the first seed."""
    parts = []
    for title, seeds in runs_of_task(runs, "kbc"):
        rules = [written[0] for written in seeds[0].get("readable", {}).values() if written]
        if rules:
            parts.append(f"**{title}**\n\n{code_block(rules[:READABLE])}")
    return "\n\n".join(parts) or ABSENT


def country_table(runs: Runs) -> str:
    """AUC-PR on Countries with the fixed reduction and with the other, and the rule (Table 4)."""
    lines = []
    for title, seeds in runs_of_task(runs, "countries"):
        by_way = {way: [run["by_reduction"][way] for run in seeds if "by_reduction" in run] for way in ("max", "sum")}
        lines.append(
            (
                title,
                mean_figure([run["rows"]["ours"] for run in seeds], "auc_pr"),
                str(seeds[0].get("reduction", NOTHING)),
                *(mean_figure(rows, key) for rows in by_way.values() for key in ("auc_pr", "train_auc_pr")),
                f"{seeds[0]['paper']['ours']['auc_pr']:.3f}" if seeds[0].get("paper") else NOTHING,
                "; ".join(dict.fromkeys(f"`{run['crisp']}`" for run in seeds)),
            )
        )
    head = ("", "AUC-PR", "by", "max: test", "train", "sum: test", "train", "paper", "crisp rule")
    return markdown_table(head, lines)


def grid_table(runs: Runs) -> str:
    """Mean reward on test grids after some training grids, and its share of the ideal rule's (Figure 5)."""
    lines = []
    points = (1, 5, 10, 20, 30)
    for _, seeds in runs_of_task(runs, "gridworld"):
        for row, label in GRID_ROWS.items():
            rows = [run["rows"][row] for run in seeds if row in run["rows"]]
            share = (_percent(rows, key) for key in ("share_of_ideal_after_20", "share_if_half_true_after_20"))
            lines.append((label, *(mean_figure(rows, f"after_{point}") for point in points), *share))
    head = ("", *(f"{point} grids" for point in points), "share of ideal, 20", "moves at least half true")
    return markdown_table(head, lines)


def _percent(rows: Sequence[Mapping[str, Any]], key: str) -> str:
    return mean_and_sd((row.get(key) for row in rows), digits=1)


def _draw_curves(runs: Runs, folder: Path) -> Path | None:
    """Draw the learning curves of gridworld, the mean over seeds."""
    seeds = [run for _, runs_of_one in runs_of_task(runs, "gridworld") for run in runs_of_one]
    if not seeds:
        return None
    curves = {}
    for name in ("lnn", "neural_lp"):
        by_seed = [dict(map(tuple, run["rows"][name]["curve"])) for run in seeds]
        curves[GRID_ROWS[name]] = {
            int(point): sum(curve[point] for curve in by_seed) / len(by_seed) for point in by_seed[0]
        }
    ideal = sum(run["rows"]["ideal"]["after_20"] for run in seeds) / len(seeds)
    path = folder / "lnn_curves.png"
    draw_curves(path, curves, ideal=ideal, across="training grids", up="mean reward")
    return path
