"""The page of MILR's results: ours as means over seeds, those of the paper (Fan et al., EMNLP 2022) beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

from rulewright.io.json_shape import load
from rulewright.papers.catalogue import experiments
from rulewright.papers.report_page import (
    ABSENT,
    NOTHING,
    PageContent,
    Run,
    Runs,
    code_block,
    join_seeds,
    markdown_table,
    mean_and_sd,
    missing_runs,
    new_figure,
    save_figure,
    title_of,
)

TITLE = "MILR: mining rules, training with them, decoding with them"
CAPTIONS = {
    "variants": "Scores of the network alone and with each component",
    "distance": "F1 by the distance of the two entities",
    "precision_recall": "Precision and recall by the distance of the two entities",
}
VARIANTS = {
    "plain": "network alone",
    "loss": "+ consistency loss",
    "decoder": "+ decoder",
    "both": "+ both (MILR)",
}
COLOURS = {"plain": "#8c8c8c", "loss": "#e0a030", "decoder": "#4c8fbd", "both": "#1f4e79"}
PANEL = (4.6, 3.2)
PANELS_ACROSS = 3
FIGURES = {"f1": "F1", "ign_f1_docred": "Ign F1", "logic": "Logic"}


def build_page(runs: Runs, results: Path, pages: Path) -> PageContent:
    """Write the tables and draw the plots of ``milr.md``."""
    new_figure(1, 1)  # so that nothing is written where plots cannot be drawn
    plots = draw_plots(runs, pages)
    images = {name: f"![{CAPTIONS[name]}]({path.name})" for name, path in plots.items()}
    distance = [images[name] for name in ("distance", "precision_recall") if name in images]
    blocks = {
        "runs": run_table(runs),
        "sizes": size_table(runs),
        "main": "\n\n".join([main_table(runs), *([images["variants"]] if "variants" in images else [])]),
        "differences": difference_table(runs),
        "ablation": ablation_table(runs),
        "errors": error_table(runs),
        "distance": "\n\n".join([*distance, distance_table(runs)]),
        "training": training_table(runs),
        "methods": method_table(runs, results / "milr_benchmark.json"),
        "cases": describe_cases(runs),
        "settings": settings_table(runs),
    }
    return PageContent(TITLE, blocks, tuple(plots.values()))


class PaperRow(NamedTuple):
    """One row of the paper's tables, in per cent; None where it has no figure."""

    ign: float | None
    f1: float | None
    logic: float | None = None


ABLATION: Mapping[str, PaperRow] = {"decoder": PaperRow(68.87, 76.20), "loss": PaperRow(69.29, 76.05)}
"""Table 4, DWIE test, ATLOP: one of the two components; its other rows are those of Table 2."""

LOGIRE: Mapping[str, PaperRow] = {
    "milr/dwie_lstm": PaperRow(32.58, 42.03, 73.01),
    "milr/dwie_bilstm": PaperRow(34.21, 43.95, 73.13),
    "milr/dwie_gain": PaperRow(61.58, 68.71, 91.71),
    "milr/dwie_atlop": PaperRow(68.13, 75.67, 91.42),
    "milr/redocred_atlop": PaperRow(42.47, 42.73),
}
"""The rows of LogiRE in Tables 2 and 3, which is not rebuilt here."""

DOCRED: Mapping[str, PaperRow] = {"plain": PaperRow(41.67, 41.95), "both": PaperRow(44.30, 44.72)}
"""Table 3, ATLOP: trained on DocRED's train set, scored on 96 documents that were labelled anew."""

METHODS: Mapping[str, tuple[float, float, PaperRow]] = {
    "simplified": (28.4, 1.80, PaperRow(67.18, 72.05)),
    "full": (4.1e6, 1074.0, PaperRow(67.35, 72.26)),
}
"""Table 8, DWIE dev, ATLOP: constraints and seconds a document, and the scores."""

SETTINGS: Mapping[str, tuple[float, float, float]] = {
    "milr/dwie_lstm": (1e-3, 1.0, 1.5),
    "milr/dwie_bilstm": (1e-3, 1.0, 1.5),
    "milr/dwie_gain": (3e-3, 0.8, 1.0),
    "milr/dwie_atlop": (1e-3, 0.8, 0.5),
    "milr/redocred_atlop": (1e-3, 1.5, 1.5),
}
"""Table 7: λ, τ and k; the last row is the paper's for DocRED."""


def paper_row(name: str, variant: str) -> PaperRow | None:
    """Return the paper's figures on test documents for an experiment and a variant, where it has some.

    >>> paper_row("milr/dwie_atlop", "both")
    PaperRow(ign=69.84, f1=76.51, logic=93.16)
    >>> paper_row("milr/dwie_gain", "loss") is None
    True
    """
    if variant == "logire":
        return LOGIRE.get(name)
    if name == "milr/redocred_atlop":
        return DOCRED.get(variant)
    if name == "milr/dwie_atlop" and variant in ABLATION:
        return ABLATION[variant]
    rows = experiments()[name].settings.get("paper")
    row = rows.get(variant) if isinstance(rows, dict) else None
    return None if row is None else PaperRow(row["ign"], row["f1"], row["logic"])


def _paper_cells(name: str, variant: str) -> list[str]:
    row = paper_row(name, variant) or PaperRow(None, None)
    return [NOTHING if value is None else f"{value:.2f}" for value in row]


def figures(runs: Sequence[Run], variant: str, *path: str) -> list[Any]:
    """Return a figure of a variant in every run that has it."""
    values = []
    for run in runs:
        value = run["rows"].get(variant)
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            values.append(value)
    return values


def _means(runs: Sequence[Run], variant: str, keys: Sequence[str], *path: str) -> list[str]:
    return [mean_and_sd(figures(runs, variant, *path, key)) for key in keys]


def keep_runs(runs: Runs, has_figures: Callable[[Run], bool]) -> dict[str, list[Run]]:
    """Keep the runs that have some figures, and the experiments with such runs."""
    kept = {name: [run for run in seeds if has_figures(run)] for name, seeds in runs.items()}
    return {name: seeds for name, seeds in kept.items() if seeds}


def has_details(run: Run) -> bool:
    """Tell whether a run has all that these tables show; those of older versions do not."""
    return "methods" in run and "by_distance" in run["rows"]["plain"]


def run_table(runs: Runs) -> str:
    """Which runs the tables are made of, and which are not there."""
    parts = []
    if runs:
        rows = []
        for name, seeds in runs.items():
            machines = "; ".join(sorted({run["machine"] for run in seeds if "machine" in run}))
            rows.append((f"`{name}`", join_seeds(seeds), machines or NOTHING))
        parts.append(markdown_table(("experiment", "seeds", "machine"), rows))
    missing = missing_runs("milr", runs)
    if missing:
        parts.append("Not here yet: " + ", ".join(f"`{name}` seed {seed}" for name, seed in missing) + ".")
    older = [f"`{name}` seed {run['seed']}" for name, seeds in runs.items() for run in seeds if not has_details(run)]
    if older:
        parts.append(
            "Without all figures, since an older version wrote them: " + ", ".join(older) + ". "
            "Run again, they need no training."
        )
    return "\n\n".join(parts)


def size_table(runs: Runs) -> str:
    """Table 5: the documents of each part."""
    rows, shown = [], set()
    for name, seeds in keep_runs(runs, lambda run: "sizes" in run).items():
        data = str(experiments()[name].settings["set"])
        if data in shown:
            continue
        shown.add(data)
        for part, counts in seeds[0]["sizes"].items():
            cells = [f"{counts[key]:,}" for key in ("documents", "entities", "facts")]
            rows.append((data, part, *cells, str(seeds[0]["rules"])))
    return markdown_table(("set", "part", "documents", "entities", "facts", "mined rules"), rows)


def main_table(runs: Runs) -> str:
    """Tables 2 and 3: the network alone and with MILR, ours and the paper's; LogiRE as the paper gives it."""
    columns = ("", "seeds", "Ign F1", "F1", "Logic", "mined rules kept", "paper: Ign F1", "F1", "Logic")
    rows = []
    for name, seeds in runs.items():
        for variant in ("plain", "logire", "both"):
            ours = _means(seeds, variant, ("ign_f1_docred", "f1", "logic", "logic_mined"))
            label = "+ LogiRE (not rebuilt)" if variant == "logire" else VARIANTS[variant]
            count = NOTHING if variant == "logire" else str(len(seeds))
            rows.append((f"{title_of(name)}, {label}", count, *ours, *_paper_cells(name, variant)))
    return markdown_table(columns, rows)


def difference_table(runs: Runs) -> str:
    """How far each variant is from the network alone, seed by seed, with the interval of the paired bootstrap."""
    rows = []
    for name, seeds in runs.items():
        for variant in ("loss", "decoder", "both"):
            for run in seeds:
                compared = run.get("against_plain", {}).get(variant, {})
                cells = [_describe_difference(compared.get(key)) for key in FIGURES]
                rows.append((title_of(name), VARIANTS[variant], str(run["seed"]), *cells))
    return markdown_table(("", "", "seed", *FIGURES.values()), rows)


def _describe_difference(compared: Mapping[str, float | None] | None) -> str:
    """Write a difference, its interval and its p-value, in points of per cent."""
    compared = compared or {}
    known = [value for key in ("difference", "low", "high") if (value := compared.get(key)) is not None]
    if len(known) < 3:
        return NOTHING
    middle, low, high = (f"{100 * value:+.2f}" for value in known)
    chance = compared.get("p")
    if chance is None:
        return f"{middle} [{low}, {high}]"
    return f"{middle} [{low}, {high}], p " + ("< 0.001" if chance < 0.001 else f"{chance:.3f}")


def ablation_table(runs: Runs) -> str:
    """Table 4: each component alone; also what τ and k do without any rule."""
    columns = ("", "", "precision", "recall", "F1", "Ign F1", "Logic", "paper: F1", "Ign F1")
    keys = ("precision", "recall", "f1", "ign_f1_docred", "logic")
    rows = []
    for name, seeds in runs.items():
        for variant, label in VARIANTS.items():
            if variant in ("decoder", "both") and figures(seeds, variant, "without_rules"):
                alone = _means(seeds, variant, keys, "without_rules")
                rows.append((title_of(name), f"{label}, its τ and k but no rules", *alone, NOTHING, NOTHING))
            ign, f1, _ = _paper_cells(name, variant)
            rows.append((title_of(name), label, *_means(seeds, variant, keys), f1, ign))
            if variant in ("plain", "loss") and figures(seeds, variant, "calibrated"):
                scores = _means(seeds, variant, keys, "calibrated")
                rows.append((title_of(name), f"{label}, calibrated", *scores, NOTHING, NOTHING))
    return markdown_table(columns, rows)


def error_table(runs: Runs) -> str:
    """Table 1 in numbers: the two types of error that a broken rule reveals, and what the decoder made of them."""
    columns = ("", "", "error", "revealed", "repaired", "made by the decoder")
    types = {"missing_heads": "head missing (FNH)", "wrong_bodies": "body wrong (FPB)"}
    rows = []
    for name, seeds in runs.items():
        for variant in ("decoder", "both"):
            for key, label in types.items():
                parts = [
                    mean_and_sd(figures(seeds, variant, "errors", key, part), scale=1, digits=0)
                    for part in ("count", "repaired", "introduced")
                ]
                rows.append((title_of(name), VARIANTS[variant], label, *parts))
    return markdown_table(columns, rows)


def distance_table(runs: Runs) -> str:
    """Figures 3 and 4 in numbers: the network alone and with MILR, by the distance of the two entities in tokens."""
    detailed = keep_runs(runs, has_details)
    if not detailed:
        return ABSENT
    keys = {"f1": "F1", "ign_f1_docred": "Ign F1", "precision": "precision", "recall": "recall"}
    rows = []
    for name, seeds in detailed.items():
        buckets = seeds[0]["rows"]["plain"]["by_distance"]
        rows.append((title_of(name), "gold facts", "", *(f"{bucket['wanted']:,}" for bucket in buckets)))
        for key, label in keys.items():
            for variant in ("plain", "both"):
                parts = [figures([run], variant, "by_distance")[0] for run in seeds]
                cells = [
                    mean_and_sd(part[index].get(key) for part in parts) if bucket["wanted"] else NOTHING
                    for index, bucket in enumerate(buckets)
                ]
                rows.append((title_of(name), label, VARIANTS[variant], *cells))
    return markdown_table(("", "", "", *(describe_range(bucket) for bucket in buckets)), rows)


def describe_range(bucket: Mapping[str, Any]) -> str:
    """Write a range of distance.

    >>> describe_range({"low": 100, "high": 200}), describe_range({"low": 400, "high": None})
    ('100–199', '400 and more')
    """
    low, high = bucket["low"], bucket["high"]
    return f"{low} and more" if high is None else f"{low}–{high - 1}"


def training_table(runs: Runs) -> str:
    """What training costs with and without the rules."""
    columns = ("", "", "parameters", "epochs run", "seconds an epoch", "F1 on the selection documents")
    rows = []
    for name, seeds in runs.items():
        for variant in ("plain", "loss"):
            parameters = sorted({f"{count:,}" for count in figures(seeds, variant, "parameters")})
            costs = [
                mean_and_sd(figures(seeds, variant, key), scale=1, digits=1) for key in ("epochs", "seconds_per_epoch")
            ]
            f1 = mean_and_sd(figures(seeds, variant, "selection_f1"))
            rows.append((title_of(name), VARIANTS[variant], "; ".join(parameters) or NOTHING, *costs, f1))
    return markdown_table(columns, rows)


def settings_table(runs: Runs) -> str:
    """Table 7: the settings, with τ and k as each run chose them on the selection documents."""
    columns = ("", "minC", "longest body", "epochs at most", "λ", "τ, k chosen by seed", "paper: λ", "τ, k")
    rows = []
    for name, (weight, tau, k) in SETTINGS.items():
        settings: Any = experiments()[name].settings
        chosen = [
            f"{row['tau']:g}, {row['k']:g} (seed {run['seed']})"
            for run in runs.get(name, ())
            if "tau" in (row := run["rows"]["both"])
        ]
        ours = (f"{settings['min_confidence']:g}", "2", str(settings["epochs"]), f"{settings['loss_weight']:g}")
        rows.append((title_of(name), *ours, "; ".join(chosen) or NOTHING, f"{weight:g}", f"{tau:g}, {k:g}"))
    return markdown_table(columns, rows)


def method_table(runs: Runs, benchmark: Path) -> str:
    """Table 8: the ways to decode, over the test documents; and what a benchmark says of one larger document."""
    parts = [_decoding_table(keep_runs(runs, lambda run: "methods" in run))]
    if benchmark.exists():
        content: Any = load(benchmark).value
        for table in content["tables"]:
            if table["title"].startswith("decoding"):
                rows = [[_describe_number(cell) for cell in row] for row in table["rows"]]
                title = f"`{benchmark.name}`, {table['title']} ({content['machine']}):"
                parts.append(f"{title}\n\n{markdown_table(table['columns'], rows)}")
    return "\n\n".join(parts)


def _decoding_table(runs: Runs) -> str:
    if not runs:
        return ABSENT
    columns = ("", "documents", "method", "constraints", "seconds a document", "rules left broken", "F1", "Ign F1")
    scales_and_digits = {
        "constraints": (1, 1),
        "seconds": (1, 4),
        "violations": (1, 0),
        "f1": (100, 2),
        "ign_f1_docred": (100, 2),
    }
    rows = []
    for name, seeds in runs.items():
        for part in ("all", "small"):
            parts = [run["methods"][part] for run in seeds if part in run["methods"]]
            for method in parts[0] if parts else ():
                values = [by_method[method] for by_method in parts]
                scope = f"all {values[0]['documents']}"
                if part == "small":
                    scope = f"{values[0]['documents']} of ≤ {seeds[0]['methods']['small_entities']} entities"
                cells = [
                    mean_and_sd((value[key] for value in values), scale=scale, digits=digits)
                    for key, (scale, digits) in scales_and_digits.items()
                ]
                rows.append((title_of(name), scope, method, *cells))
    for method, (constraints, seconds, row) in METHODS.items():
        costs = (_describe_number(constraints), _describe_number(seconds), NOTHING)
        rows.append(("paper, ATLOP", "DWIE dev", method, *costs, f"{row.f1:.2f}", f"{row.ign:.2f}"))
    compared = [run["methods"]["agrees"] for seeds in runs.values() for run in seeds if "agrees" in run["methods"]]
    agreed = f"The exact answer costs the same as the full program's in {sum(compared)} of {len(compared)} runs."
    return f"{markdown_table(columns, rows)}\n\n{agreed}"


def _describe_number(cell: object) -> str:
    """Write a number with three digits that count, or any other cell as it is.

    >>> _describe_number(0.001608), _describe_number(4.1e6), _describe_number(69), _describe_number("all")
    ('0.00161', '4,100,000', '69', 'all')
    """
    if isinstance(cell, int | float) and abs(cell) >= 100:
        return f"{cell:,.0f}"
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)


def describe_cases(runs: Runs) -> str:
    """Figure 5: for every set, the cases of the first run that has some."""
    parts, shown = [], set()
    for name, seeds in runs.items():
        data = experiments()[name].settings["set"]
        first = next((run for run in seeds if any(run.get("cases", {}).values())), None)
        if first is None or data in shown:
            continue
        shown.add(data)
        for effect, heading in (("helped", "where the rules helped most"), ("harmed", "where they did most harm")):
            case = first["cases"][effect]
            if case is not None:
                parts.append(f"**{title_of(name)}, seed {first['seed']}: {heading}.** {_describe_case(case)}")
    return "\n\n".join(parts) or ABSENT


def _describe_case(case: Run) -> str:
    changes = "1 change" if case["changes"] == 1 else f"{case['changes']} changes"
    counts = f"{case['entities']} entities, {changes}, {case['right']} right and {case['wrong']} wrong"
    lines = []
    for change in case["shown"]:
        verdict = "right" if change["right"] else "wrong"
        lines.append(f"{'+' if change['added'] else '-'} {change['atom']}   ({verdict})")
        lines.append(f"    by {change['rule']}")
        lines.append("    where " + ", ".join(f"{variable} = {name}" for variable, name in change["where"].items()))
    if len(case["shown"]) < case["changes"]:
        lines.append(f"… and {case['changes'] - len(case['shown'])} more")
    return f"Document `{case['title']}`: {counts}.\n\n{code_block(lines)}"


def draw_plots(runs: Runs, folder: Path) -> dict[str, Path]:
    """Draw what the runs allow and return the files by the name of their plot."""
    detailed = keep_runs(runs, has_details)
    drawn = {}
    if runs:
        drawn["variants"] = _draw_variants(runs)
    if detailed:
        drawn["distance"] = _draw_by_distance(detailed, ("f1",))
        drawn["precision_recall"] = _draw_by_distance(detailed, ("precision", "recall"))
    return {name: save_figure(figure, folder / f"milr_{name}.png") for name, figure in drawn.items()}


def _make_panels(count: int, columns: int = PANELS_ACROSS) -> tuple[Any, list[Any]]:
    across = min(columns, count)
    down = -(-count // across)
    figure = new_figure(PANEL[0] * across, PANEL[1] * down + 0.4)  # the rest is for the legend
    axes = list(figure.subplots(down, across, squeeze=False).flat)
    for unused in axes[count:]:
        unused.set_visible(False)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes[:count]


def _add_legend(figure: Any, axis: Any) -> None:
    handles, labels = axis.get_legend_handles_labels()
    columns = len(labels) if figure.get_figwidth() > 2 * PANEL[0] - 1 else 2
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False, fontsize=9)


def _draw_variants(runs: Runs) -> Any:
    """F1, Ign F1 and Logic of every variant as bars; lines show the standard deviation over seeds."""
    keys = {"f1": "F1", "ign_f1_docred": "Ign F1", "logic": "Logic", "logic_mined": "mined rules\nkept"}
    figure, axes = _make_panels(len(runs))
    for axis, (name, seeds) in zip(axes, runs.items(), strict=True):
        shown = {key: label for key, label in keys.items() if figures(seeds, "plain", key)}
        for bar, (variant, label) in enumerate(VARIANTS.items()):
            values = [[100 * value for value in figures(seeds, variant, key)] for key in shown]
            axis.bar(
                [group + (bar - 1.5) * 0.2 for group in range(len(shown))],
                [mean(over_seeds) if over_seeds else 0.0 for over_seeds in values],
                0.18,
                yerr=[stdev(over_seeds) if len(over_seeds) > 1 else 0.0 for over_seeds in values],
                error_kw={"elinewidth": 1},
                color=COLOURS[variant],
                label=label,
            )
        axis.set_xticks(range(len(shown)), list(shown.values()))
        axis.set_ylim(0, 100)
        axis.set_ylabel("%")
        axis.set_title(f"{title_of(name)} ({_count_seeds(seeds)})", fontsize=10)
    _add_legend(figure, axes[0])
    return figure


def _draw_by_distance(runs: Runs, keys: Sequence[str]) -> Any:
    """A panel for every experiment and figure: a line a variant, over the ranges of distance that have gold facts."""
    figure, axes = _make_panels(len(runs) * len(keys), PANELS_ACROSS if len(keys) == 1 else len(keys))
    panels = [(name, key) for name in runs for key in keys]
    for axis, (name, key) in zip(axes, panels, strict=True):
        seeds = runs[name]
        buckets = seeds[0]["rows"]["plain"]["by_distance"]
        shown = [index for index, bucket in enumerate(buckets) if bucket["wanted"]]
        for line, (variant, label) in enumerate(VARIANTS.items()):
            values = [
                [100 * run["rows"][variant]["by_distance"][index][key] for run in seeds if variant in run["rows"]]
                for index in shown
            ]
            axis.errorbar(
                [x + (line - 1.5) * 0.05 for x in range(len(shown))],  # so that no line hides another
                [mean(over_seeds) if over_seeds else 0.0 for over_seeds in values],
                yerr=[stdev(over_seeds) if len(over_seeds) > 1 else 0.0 for over_seeds in values],
                color=COLOURS[variant],
                marker="o",
                markersize=4,
                capsize=2,
                label=label,
            )
        labels = [f"{describe_range(buckets[index])}\n({buckets[index]['wanted']:,} facts)" for index in shown]
        axis.set_xticks(range(len(shown)), labels, fontsize=8)
        axis.set_xlim(-0.4, len(shown) - 0.6)
        axis.set_ylim(bottom=0)
        axis.set_xlabel("tokens apart", fontsize=8)
        axis.set_ylabel({"f1": "F1"}.get(key, key) + ", %")
        axis.set_title(f"{title_of(name)} ({_count_seeds(seeds)})", fontsize=10)
    _add_legend(figure, axes[0])
    return figure


def _count_seeds(runs: Sequence[Run]) -> str:
    return "1 seed" if len(runs) == 1 else f"{len(runs)} seeds"
