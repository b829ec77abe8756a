"""The page of rules beside calibrated networks: tables; plots of reliability, F1 against Logic, weight against gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from rulewright.evaluate.bootstrap import PairedDifference, paired_bootstrap
from rulewright.io.json_shape import load
from rulewright.papers.milr.report import describe_range
from rulewright.papers.report_page import (
    ABSENT,
    NOTHING,
    PageContent,
    Run,
    Runs,
    code_block,
    list_runs,
    markdown_table,
    mean_and_sd,
    new_figure,
    save_figure,
    title_of,
)

TITLE = "Rules that pay"
ROWS = {
    "network": "network alone",
    "threshold": "one threshold",
    "calibrated": "calibrated",
    "loss, whatever it brings": "+ loss, whatever it brings",
    "loss": "+ loss, where documents held out are better",
    "hard": "+ hard decoder",
    "hard and soft": "+ hard and soft decoder",
    "soft": "+ soft decoder",
    "layer": "+ layer",
    "chosen": "the use chosen on documents held out",
    "all": "+ loss, and the use chosen",
    "again": "trained again on its own labels",
    "again with rules": "trained again on labels with rules, and the use chosen",
}
COLOURS = ("#1f4e79", "#e0a030", "#4c8fbd", "#8c8c8c", "#7a3b69", "#3b7a57", "#b04a3a")
PANELS_ACROSS = 3
MARKS = {
    "hard": "s",
    "soft": "^",
    "hard and soft": "P",
    "layer": "D",
    "loss": "v",
    "chosen": "*",
    "again": "<",
    "again with rules": ">",
}


def build_page(runs: Runs, results: Path, pages: Path) -> PageContent:
    """Write the tables and draw the plots of ``rules-that-pay.md``."""
    every = runs
    runs = {name: seeds for name, seeds in every.items() if "calibration" in seeds[0]}
    pictures = [
        picture
        for picture in (draw_reliability(runs, pages), draw_scores(runs, pages), draw_rules(runs, pages))
        if picture is not None
    ]
    images = {picture.stem.removeprefix("rules_that_pay_"): picture.name for picture in pictures}

    def image(name: str, caption: str) -> list[str]:
        return [f"![{caption}]({images[name]})"] if name in images else []

    blocks = {
        "runs": list_runs(every, "rules_that_pay"),
        "main": "\n\n".join(
            [*map(_main_table, runs.items()), *image("scores", "F1 against Logic")] if runs else [ABSENT]
        ),
        "calibration": "\n\n".join([calibration_table(runs), *image("reliability", "Reliability before and after")]),
        "ceiling": ceiling_table(runs),
        "rules": "\n\n".join([*image("rules", "Cost against gain of each rule"), list_rules(runs)]),
        "rounds": rounds_table(runs),
        "distance": distance_table(runs),
        "generated": generated_table(results / "generated_uses.json"),
        "losses": losses_table(results / "generated_losses.json"),
        "teaching": "\n\n".join(teaching_table(seeds) for name, seeds in every.items() if name not in runs) or ABSENT,
    }
    return PageContent(TITLE, blocks, pictures)


def compare(runs: Sequence[Run], name: str, other: str = "calibrated") -> PairedDifference | None:
    """Compare the F1 of two rows by a paired bootstrap over documents, whose counts of all seeds add up."""
    if any(name not in run["rows"] or other not in run["rows"] for run in runs):
        return None

    def pool(row: str) -> Any:
        return np.sum([np.asarray(run["rows"][row]["counts"], dtype=float) for run in runs], axis=0)

    def f1(sums: Any) -> Mapping[str, Any]:
        return {"f1": 2 * sums[:, 0] / np.maximum(1, sums[:, 1] + sums[:, 2])}

    return paired_bootstrap(pool(name), pool(other), f1)["f1"]


def _main_table(item: tuple[str, Sequence[Run]]) -> str:
    name, runs = item
    lines = []
    for row, spoken in ROWS.items():
        found = [run["rows"][row] for run in runs if row in run["rows"]]
        if not found:
            continue
        figures = [
            mean_and_sd(part.get(key) for part in found) for key in ("f1", "ign_f1_docred", "logic", "logic_mined")
        ]
        difference = None if row == "calibrated" else compare(runs, row)
        told = _describe_pair(difference)
        lines.append((spoken, *figures, told, _describe_choice(found)))
    documents = ", ".join(f"{count:,} {part}" for part, count in runs[0]["documents"].items() if count)
    columns = ("", "F1", "Ign F1", "Logic", "mined rules kept", "F1 against calibrated", "chosen")
    seeds = ", ".join(str(run["seed"]) for run in runs)
    return "\n\n".join(
        [f"### {title_of(name)}", f"Documents: {documents}; seeds {seeds}.", markdown_table(columns, lines)]
    )


def _describe(difference: float, low: float, high: float, p_value: float) -> str:
    p = "p < 0.001" if p_value < 0.001 else f"p {p_value:.3f}"
    return f"{100 * difference:+.2f} [{100 * low:+.2f}, {100 * high:+.2f}], {p}"


def _describe_pair(found: PairedDifference | None) -> str:
    if found is None:
        return NOTHING
    return _describe(found.difference, found.low, found.high, found.p_value)


def _describe_choice(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write what was chosen for each seed, once where they agree."""
    told = []
    for row in rows:
        chosen = row.get("chosen", {})
        told.append(", ".join(f"{key} {value}" for key, value in chosen.items()))
    return "; ".join(dict.fromkeys(text for text in told if text)) or NOTHING


def calibration_table(runs: Runs) -> str:
    """Write the expected calibration error on test documents, of all labels and of those from a tenth on."""
    lines = [
        (
            title_of(name),
            *(
                mean_and_sd((run["calibration"]["error"][when] for run in seeds), digits=3)
                for when in ("before", "after")
            ),
            *(
                mean_and_sd(_error_from(run["calibration"]["bins"][when]) for run in seeds)
                for when in ("before", "after")
            ),
        )
        for name, seeds in runs.items()
    ]
    columns = ("", "before", "after", "from .1 on: before", "after")
    return markdown_table(columns, lines)


def _error_from(bins: Mapping[str, Sequence[float]], first: int = 1) -> float | None:
    """Return the mean distance of predicted and observed shares in all bins but the lowest."""
    rows = [
        (count, abs(predicted - observed))
        for count, predicted, observed in zip(
            bins["candidates"][first:], bins["predicted"][first:], bins["observed"][first:], strict=True
        )
        if count
    ]
    total = sum(count for count, _ in rows)
    return sum(count * gap for count, gap in rows) / total if total else None


def ceiling_table(runs: Runs) -> str:
    """Write what choices made on the test documents themselves would reach."""
    lines = []
    for name, seeds in runs.items():
        alone = mean_and_sd(run["rows"]["calibrated"]["f1"] for run in seeds)
        best = mean_and_sd(run["rows"]["chosen"]["f1"] for run in seeds)
        reached = [mean_and_sd(run["ceiling"][part] for run in seeds) for part in ("thresholds", "rules", "both")]
        lines.append((title_of(name), alone, best, *reached))
    columns = ("", "calibrated", "chosen", "thresholds chosen on test", "rules chosen on test", "both")
    return markdown_table(columns, lines)


def list_rules(runs: Runs, count: int = 12) -> str:
    """Write the rules that gained most in the first run of each experiment."""
    parts = []
    for name, seeds in runs.items():
        rows = [row for row in seeds[0]["fitted"] if row["weight"]][:count]
        lines = [
            f"{row['gain']:+7.2f}  λ {row['weight']:<5.3g}  {row['confidence']:.2f} → "
            f"{row['held']}/{row['fired']}  {row['rule'].split(' :: ')[-1]}"
            for row in rows
            if row["confidence"] is not None
        ]
        parts.append(f"**{title_of(name)}**, seed {seeds[0]['seed']}\n\n" + code_block(lines or ["no rule helps"]))
    return "\n\n".join(parts) or ABSENT


def rounds_table(runs: Runs) -> str:
    """Write the rounds of labelling, mining and training again, where there are some."""
    lines = [
        (
            f"{title_of(name)}, seed {run['seed']}",
            "with" if "rules" in way else "without",
            str(row["round"]),
            f"{row['predicted_facts']:,}",
            f"{row['hard']:,}",
            f"{100 * row['selection_f1']:.2f}",
            f"{100 * row['test_f1']:.2f}",
            row["use"],
        )
        for name, seeds in runs.items()
        for run in seeds
        for way in ("again", "again with rules")
        for row in run.get(f"rounds, {way}", ())
    ]
    columns = ("", "rules", "round", "predicted facts", "hard rules", "F1 held out", "F1 on test", "use")
    return markdown_table(columns, lines) if lines else ABSENT


def distance_table(runs: Runs) -> str:
    """Write Ign F1 by the distance of entities, where published labels are there."""
    for run in (seeds[0] for seeds in runs.values() if "by_distance" in seeds[0]):
        parts = run["by_distance"]
        ranges = [describe_range(part) for part in parts["ATLOP"]]
        rows = [("gold facts", *(f"{part['wanted']:,}" for part in parts["ATLOP"]))]
        for name, found in parts.items():
            rows.append((name, *(f"{100 * part['ign_f1_docred']:.2f}" for part in found)))
        for name in [*parts][1:]:
            pairs = zip(parts[name], parts["ATLOP"], strict=True)
            gains = [100 * (part["ign_f1_docred"] - base["ign_f1_docred"]) for part, base in pairs]
            rows.append((f"{name} − ATLOP", *(f"{gain:+.2f}" for gain in gains)))
        return markdown_table(("Ign F1, tokens apart", *ranges), rows)
    return ABSENT


def generated_table(file: Path) -> str:
    """Write what every use brings on generated documents: all seeds together, and the range of the seeds."""
    if not file.exists():
        return ABSENT
    rows: Any = [row.value for row in load(file)["rows"].items()]
    lines = []
    for row in rows:
        if row["seed"] == "all":
            own = [r for r in rows if (r["sees"], r["use"]) == (row["sees"], row["use"]) and r["seed"] != "all"]
            gains = [100 * r["difference"] for r in own]
            worst = f"{max(r['p'] for r in own):.4f}"
            told = _describe(row["difference"], row["low"], row["high"], row["p"])
            spread = f"{min(gains):+.2f} … {max(gains):+.2f}"
            alone = row["use"] in ("network", "calibrated")
            lines.append((row["sees"], row["use"], f"{100 * row['f1']:.2f}", told, spread, NOTHING if alone else worst))
    columns = ("the network sees", "", "F1", "against calibrated, all seeds", "by seed", "largest p of a seed")
    return markdown_table(columns, lines)


def losses_table(file: Path) -> str:
    """Write F1 on selection documents for each form of the loss, the mean of the seeds."""
    if not file.exists():
        return ABSENT
    rows: Any = [row.value for row in load(file)["rows"].items()]
    alone = [row for row in rows if "network" in row]
    forms = [row for row in rows if "form" in row]
    weights = [key for key in forms[0] if key.startswith("λ")]
    lines = []
    for key in dict.fromkeys((row["rules"], row["form"], row["side"]) for row in forms):
        own = [row for row in forms if (row["rules"], row["form"], row["side"]) == key]
        lines.append((*key, *(mean_and_sd(row[weight] for row in own) for weight in weights)))
    told = (
        f"The network alone: {mean_and_sd(row['network'] for row in alone)}; trained as long again without a loss: "
        f"{mean_and_sd(row['trained on'] for row in alone)}."
    )
    return f"{told}\n\n{markdown_table(('rules', 'form', 'side', *weights), lines)}"


def teaching_table(runs: Sequence[Run]) -> str:
    """Write what each form of the loss gives a network, calibrated, beside none."""
    lines = []
    for name in runs[0]["rows"]:
        found = [run["rows"][name] for run in runs if name in run["rows"]]
        keys = ("selection_f1", "selection_logic", "f1", "logic")
        difference = None if name == "none" else compare(runs, name, "none")
        told = _describe_pair(difference)
        lines.append(
            (found[0]["form"] or "no loss", *(mean_and_sd(row.get(key) for row in found) for key in keys), told)
        )
    columns = ("", "held out: F1", "Logic", "test: F1", "Logic", "F1 against no loss")
    return markdown_table(columns, lines)


def draw_reliability(runs: Runs, pages: Path) -> Path | None:
    """Plot predicted against observed shares on test documents, before and after calibration."""
    if not runs:
        return None
    lines = -(-len(runs) // PANELS_ACROSS)
    figure = new_figure(3.4 * PANELS_ACROSS, 3.2 * lines)
    axes = figure.subplots(lines, PANELS_ACROSS, squeeze=False).ravel()
    for axis in axes[len(runs) :]:
        axis.axis("off")
    for axis, (name, seeds) in zip(axes, runs.items(), strict=False):
        axis.plot([0, 1], [0, 1], color="#cccccc")
        for when, colour in (("before", "#e0a030"), ("after", "#1f4e79")):
            for run in seeds:
                bins = run["calibration"]["bins"][when]
                points = [
                    (predicted, observed)
                    for predicted, observed, many in zip(
                        bins["predicted"], bins["observed"], bins["candidates"], strict=True
                    )
                    if many
                ]
                axis.plot(*zip(*points, strict=True), marker=".", color=colour, alpha=0.7)
        axis.set_title(title_of(name), fontsize=8)
        axis.set_xlabel("probability")
        axis.plot([], [], color="#e0a030", label="network")
        axis.plot([], [], color="#1f4e79", label="calibrated")
        axis.legend(fontsize=7)
    for axis in axes[::PANELS_ACROSS]:
        axis.set_ylabel("share that are facts")
    return save_figure(figure, pages / "rules_that_pay_reliability.png")


def draw_scores(runs: Runs, pages: Path) -> Path | None:
    """Plot what every use adds to F1 against what it adds to Logic, where there are gold rules."""
    shown = {name: seeds for name, seeds in runs.items() if seeds[0]["rows"]["calibrated"].get("logic") is not None}
    if not shown:
        return None
    figure = new_figure(8.4, 4.2)
    axis = figure.subplots()
    axis.axhline(0, color="#cccccc")
    axis.axvline(0, color="#cccccc")
    for colour, (name, seeds) in zip(COLOURS, shown.items(), strict=False):
        for row, mark in MARKS.items():
            found = [run for run in seeds if row in run["rows"]]
            if found:
                x, y = (
                    100 * mean(run["rows"][row][key] - run["rows"]["calibrated"][key] for run in found)
                    for key in ("logic", "f1")
                )
                axis.scatter([x], [y], marker=mark, color=colour, s=40)
        axis.scatter([], [], color=colour, label=title_of(name))
    for row, mark in MARKS.items():
        axis.scatter([], [], marker=mark, color="#555555", label=ROWS[row])
    axis.set_xlabel("Logic, points above calibrated")
    axis.set_ylabel("F1, points above calibrated")
    axis.legend(fontsize=7, bbox_to_anchor=(1.02, 1), loc="upper left")
    return save_figure(figure, pages / "rules_that_pay_scores.png")


def draw_rules(runs: Runs, pages: Path) -> Path | None:
    """Plot the weight of each rule against what it gains, beside what its confidence said."""
    rules = {name: [row for row in seeds[0]["fitted"] if row["weight"]] for name, seeds in runs.items()}
    rules = {name: rows for name, rows in rules.items() if rows}
    if not rules:
        return None
    figure = new_figure(6.4, 3.6)
    axis = figure.subplots()
    for colour, (name, rows) in zip(COLOURS, rules.items(), strict=False):
        axis.scatter(
            [row["weight"] for row in rows], [row["gain"] for row in rows], s=14, color=colour, label=title_of(name)
        )
    axis.axhline(0, color="#cccccc")
    axis.set_xlabel("weight λ of a rule")
    axis.set_ylabel("gain, log-likelihood of gold, out of fold")
    axis.legend(fontsize=7)
    return save_figure(figure, pages / "rules_that_pay_rules.png")
