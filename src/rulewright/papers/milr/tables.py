"""MILR's tables of scores: ours as means over seeds, the paper's beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rulewright.papers.catalogue import experiments
from rulewright.papers.milr.paper import PaperRow, paper_row
from rulewright.papers.results_page import NOTHING, Run, markdown_table, mean_and_sd

Runs = Mapping[str, Sequence[Run]]
VARIANTS = {
    "plain": "network alone",
    "loss": "+ consistency loss",
    "decoder": "+ decoder",
    "both": "+ both (MILR)",
}
NO_RUN = "No run is here yet."
FIGURES = {"f1": "F1", "ign_f1_docred": "Ign F1", "logic": "Logic"}


def title_of(name: str) -> str:
    """Return an experiment's title."""
    return experiments()[name].title


def figures(runs: Sequence[Run], variant: str, *path: str) -> list[Any]:
    """Return a figure of a variant in every run that has it."""
    found = []
    for run in runs:
        value = run["rows"].get(variant)
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            found.append(value)
    return found


def with_key(runs: Runs, has: Callable[[Run], bool]) -> dict[str, list[Run]]:
    """Keep the runs that have some figures, and the experiments with such runs."""
    kept = {name: [run for run in each if has(run)] for name, each in runs.items()}
    return {name: each for name, each in kept.items() if each}


def has_details(run: Run) -> bool:
    """Tell whether a run has all that these tables show; those of older versions do not."""
    return "methods" in run and "by_distance" in run["rows"]["plain"]


def main_table(runs: Runs) -> str:
    """Tables 2 and 3: the network alone and with MILR, ours and the paper's; LogiRE as the paper gives it."""
    if not runs:
        return NO_RUN
    columns = ("", "seeds", "Ign F1", "F1", "Logic", "mined rules kept", "paper: Ign F1", "F1", "Logic")
    rows = []
    for name, found in runs.items():
        for variant in ("plain", "logire", "both"):
            ours = [
                mean_and_sd(figures(found, variant, key)) for key in ("ign_f1_docred", "f1", "logic", "logic_mined")
            ]
            label = "+ LogiRE (not rebuilt)" if variant == "logire" else VARIANTS[variant]
            seeds = NOTHING if variant == "logire" else str(len(found))
            rows.append((f"{title_of(name)}, {label}", seeds, *ours, *_paper(paper_row(name, variant))))
    return markdown_table(columns, rows)


def _paper(row: PaperRow | None) -> tuple[str, str, str]:
    values = (None, None, None) if row is None else (row.ign, row.f1, row.logic)
    shown = [NOTHING if each is None else f"{each:.2f}" for each in values]
    return shown[0], shown[1], shown[2]


def difference_table(runs: Runs) -> str:
    """How far each variant is from the network alone, seed by seed, with the interval of the paired bootstrap."""
    if not runs:
        return NO_RUN
    rows = []
    for name, found in runs.items():
        for variant in ("loss", "decoder", "both"):
            for run in found:
                compared = run.get("against_plain", {}).get(variant, {})
                cells = [_difference(compared.get(key)) for key in FIGURES]
                rows.append((title_of(name), VARIANTS[variant], str(run["seed"]), *cells))
    return markdown_table(("", "", "seed", *FIGURES.values()), rows)


def _difference(found: Mapping[str, float | None] | None) -> str:
    """Write a difference, its interval and its p-value, in points of per cent."""
    values = [None if found is None else found.get(key) for key in ("difference", "low", "high")]
    known = [each for each in values if each is not None]
    if found is None or len(known) < len(values):
        return NOTHING
    middle, low, high = (f"{100 * each:+.2f}" for each in known)
    chance = found.get("p")
    if chance is None:
        return f"{middle} [{low}, {high}]"
    return f"{middle} [{low}, {high}], p " + ("< 0.001" if chance < 0.001 else f"{chance:.3f}")


def ablation_table(runs: Runs) -> str:
    """Table 4: each component alone; also what τ and k do without any rule."""
    if not runs:
        return NO_RUN
    columns = ("", "", "precision", "recall", "F1", "Ign F1", "Logic", "paper: F1", "Ign F1")
    keys = ("precision", "recall", "f1", "ign_f1_docred", "logic")
    rows = []
    for name, found in runs.items():
        for variant, label in VARIANTS.items():
            if variant in ("decoder", "both") and figures(found, variant, "without_rules"):
                alone = [mean_and_sd(figures(found, variant, "without_rules", key)) for key in keys]
                what = f"{label}, its τ and k but no rules"
                rows.append((title_of(name), what, *alone, NOTHING, NOTHING))
            ours = [mean_and_sd(figures(found, variant, key)) for key in keys]
            ign, f1, _ = _paper(paper_row(name, variant))
            rows.append((title_of(name), label, *ours, f1, ign))
    return markdown_table(columns, rows)


def error_table(runs: Runs) -> str:
    """Table 1 in numbers: the two types of error that a broken rule reveals, and what the decoder made of them."""
    if not runs:
        return NO_RUN
    columns = ("", "", "error", "revealed", "repaired", "made by the decoder")
    types = {"missing_heads": "head missing (FNH)", "wrong_bodies": "body wrong (FPB)"}
    rows = []
    for name, found in runs.items():
        for variant in ("decoder", "both"):
            for key, label in types.items():
                parts = [
                    mean_and_sd(figures(found, variant, "errors", key, part), scale=1, digits=0)
                    for part in ("count", "repaired", "introduced")
                ]
                rows.append((title_of(name), VARIANTS[variant], label, *parts))
    return markdown_table(columns, rows)


def distance_table(runs: Runs) -> str:
    """Figures 3 and 4 in numbers: the network alone and with MILR, by the distance of the two entities in tokens."""
    detailed = with_key(runs, has_details)
    if not detailed:
        return NO_RUN
    keys = {"f1": "F1", "ign_f1_docred": "Ign F1", "precision": "precision", "recall": "recall"}
    rows = []
    for name, found in detailed.items():
        buckets = found[0]["rows"]["plain"]["by_distance"]
        rows.append((title_of(name), "gold facts", "", *(f"{bucket['wanted']:,}" for bucket in buckets)))
        for key, label in keys.items():
            for variant in ("plain", "both"):
                parts = [figures([run], variant, "by_distance")[0] for run in found]
                cells = [
                    mean_and_sd(part[place].get(key) for part in parts) if bucket["wanted"] else NOTHING
                    for place, bucket in enumerate(buckets)
                ]
                rows.append((title_of(name), label, VARIANTS[variant], *cells))
    ranges = [range_text(bucket) for bucket in buckets]
    return markdown_table(("", "", "", *ranges), rows)


def range_text(bucket: Mapping[str, Any]) -> str:
    """Write a range of distance.

    >>> range_text({"low": 100, "high": 200}), range_text({"low": 400, "high": None})
    ('100–199', '400 and more')
    """
    low, high = bucket["low"], bucket["high"]
    return f"{low} and more" if high is None else f"{low}–{high - 1}"
