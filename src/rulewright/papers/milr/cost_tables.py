"""MILR's tables of what was run and what it costs: runs, sizes, settings, training, decoding; and case studies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rulewright.io.json_shape import load
from rulewright.papers.catalogue import experiments
from rulewright.papers.milr.paper import METHODS, SETTINGS
from rulewright.papers.milr.tables import NO_RUN, VARIANTS, Runs, figures, has_details, title_of, with_key
from rulewright.papers.results_page import NOTHING, Run, markdown_table, mean_and_sd, missing_runs


def run_list(runs: Runs) -> str:
    """Which runs the tables are made of, and which are not there."""
    parts = []
    if runs:
        rows = [
            (
                f"`{name}`",
                ", ".join(str(run["seed"]) for run in found),
                "; ".join(sorted({run["machine"] for run in found if "machine" in run})) or NOTHING,
            )
            for name, found in runs.items()
        ]
        parts.append(markdown_table(("experiment", "seeds", "machine"), rows))
    missing = missing_runs("milr", runs)
    if missing:
        parts.append("Not here yet: " + ", ".join(f"`{name}` seed {seed}" for name, seed in missing) + ".")
    older = [f"`{name}` seed {run['seed']}" for name, found in runs.items() for run in found if not has_details(run)]
    if older:
        parts.append(
            "Without all figures, since an older version wrote them: " + ", ".join(older) + ". "
            "Run again, they need no training."
        )
    return "\n\n".join(parts)


def size_table(runs: Runs) -> str:
    """Table 5: the documents of each part."""
    found = with_key(runs, lambda run: "sizes" in run)
    if not found:
        return NO_RUN
    rows, seen = [], set()
    for name, each in found.items():
        data = str(experiments()[name].settings["set"])
        if data in seen:
            continue
        seen.add(data)
        for part, counts in each[0]["sizes"].items():
            cells = [f"{counts[key]:,}" for key in ("documents", "entities", "facts")]
            rows.append((data, part, *cells, str(each[0]["rules"])))
    return markdown_table(("set", "part", "documents", "entities", "facts", "mined rules"), rows)


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


def training_table(runs: Runs) -> str:
    """What training costs with and without the rules."""
    if not runs:
        return NO_RUN
    columns = ("", "", "parameters", "epochs run", "seconds an epoch", "F1 on the selection documents")
    rows = []
    for name, found in runs.items():
        for variant in ("plain", "loss"):
            parameters = sorted({f"{each:,}" for each in figures(found, variant, "parameters")})
            numbers = [
                mean_and_sd(figures(found, variant, key), scale=1, digits=1) for key in ("epochs", "seconds_per_epoch")
            ]
            chosen = mean_and_sd(figures(found, variant, "selection_f1"))
            rows.append((title_of(name), VARIANTS[variant], "; ".join(parameters) or NOTHING, *numbers, chosen))
    return markdown_table(columns, rows)


def method_table(runs: Runs, benchmark: Path) -> str:
    """Table 8: the ways to decode, over the test documents; and what a benchmark says of one larger document."""
    parts = [_methods(with_key(runs, lambda run: "methods" in run))]
    if benchmark.exists():
        content: Any = load(benchmark).value
        for table in content["tables"]:
            if table["title"].startswith("decoding"):
                rows = [[_number(cell) for cell in row] for row in table["rows"]]
                title = f"`{benchmark.name}`, {table['title']} ({content['machine']}):"
                parts.append(f"{title}\n\n{markdown_table(table['columns'], rows)}")
    return "\n\n".join(parts)


def _methods(runs: Runs) -> str:
    if not runs:
        return NO_RUN
    columns = ("", "documents", "method", "constraints", "seconds a document", "rules left broken", "F1", "Ign F1")
    rows = []
    for name, found in runs.items():
        for part in ("all", "small"):
            parts = [run["methods"][part] for run in found if part in run["methods"]]
            for method in parts[0] if parts else ():
                values = [each[method] for each in parts]
                scope = f"all {values[0]['documents']}"
                if part == "small":
                    scope = f"{values[0]['documents']} of ≤ {found[0]['methods']['small_entities']} entities"
                rows.append((title_of(name), scope, method, *_method(values)))
    for method, (constraints, seconds, row) in METHODS.items():
        scores = (f"{row.f1:.2f}", f"{row.ign:.2f}")
        rows.append(("paper, ATLOP", "DWIE dev", method, _number(constraints), _number(seconds), NOTHING, *scores))
    compared = [run["methods"]["agrees"] for found in runs.values() for run in found if "agrees" in run["methods"]]
    agreed = f"The exact answer costs the same as the full program's in {sum(compared)} of {len(compared)} runs."
    return f"{markdown_table(columns, rows)}\n\n{agreed}"


def _method(values: Sequence[Run]) -> list[str]:
    return [
        mean_and_sd((each["constraints"] for each in values), scale=1, digits=1),
        mean_and_sd((each["seconds"] for each in values), scale=1, digits=4),
        mean_and_sd((each["violations"] for each in values), scale=1, digits=0),
        mean_and_sd(each["f1"] for each in values),
        mean_and_sd(each["ign_f1_docred"] for each in values),
    ]


def _number(cell: object) -> str:
    """Write a number with three digits that count, or any other cell as it is.

    >>> _number(0.001608), _number(4.1e6), _number(69), _number("all")
    ('0.00161', '4,100,000', '69', 'all')
    """
    if isinstance(cell, int | float) and abs(cell) >= 100:
        return f"{cell:,.0f}"
    return f"{cell:.3g}" if isinstance(cell, float) else str(cell)


def case_text(runs: Runs) -> str:
    """Figure 5: for every set, the cases of the first run that has some."""
    parts, seen = [], set()
    for name, found in runs.items():
        data = experiments()[name].settings["set"]
        first = next((run for run in found if any(run.get("cases", {}).values())), None)
        if first is None or data in seen:
            continue
        seen.add(data)
        for kind, heading in (("helped", "where the rules helped most"), ("harmed", "where they did most harm")):
            case = first["cases"][kind]
            if case is not None:
                parts.append(f"**{title_of(name)}, seed {first['seed']}: {heading}.** {_case(case)}")
    return "\n\n".join(parts) or NO_RUN


def _case(case: Run) -> str:
    counted = "1 change" if case["changes"] == 1 else f"{case['changes']} changes"
    counts = f"{case['entities']} entities, {counted}, {case['right']} right and {case['wrong']} wrong"
    lines = [f"Document `{case['title']}`: {counts}.", "", "```text"]
    for each in case["shown"]:
        verdict = "right" if each["right"] else "wrong"
        lines.append(f"{'+' if each['added'] else '-'} {each['atom']}   ({verdict})")
        lines.append(f"    by {each['rule']}")
        lines.append("    where " + ", ".join(f"{variable} = {name}" for variable, name in each["where"].items()))
    if len(case["shown"]) < case["changes"]:
        lines.append(f"… and {case['changes'] - len(case['shown'])} more")
    return "\n".join([*lines, "```"])
