"""The page of rule learning with logical neural networks: tables of all runs in a folder, put into ``lnn.md`` there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from rulewright.errors import DataError
from rulewright.logic import Chain, Rule, Step, parse_rule
from rulewright.papers.catalogue import find_experiment
from rulewright.papers.completion_runs import COLUMNS, MIN_CONFIDENCE
from rulewright.papers.lnn.pictures import draw_curves
from rulewright.papers.report_page import (
    ABSENT,
    NOTHING,
    PageContent,
    Run,
    Runs,
    list_runs,
    markdown_table,
    mean_and_sd,
    mean_figure,
    new_figure,
    runs_of_task,
    title_of,
)

TITLE = "LNN: rules and connectives learned by gradient"

BASELINES = {
    "paper": "LNN, path mixture, as published",
    "neural_lp": "NeuralLP",
    "drum": "DRUM",
    "ctp": "CTP",
    "rnnlogic": "RNNLogic, rules alone",
    "anyburl": "AnyBURL, two cores",
    "safran": "SAFRAN (rules), its paper",
    "conve": "ConvE, its paper",
    "rotate": "RotatE, its paper",
    "complex_n3": "ComplEx-N3, its paper",
    "nbfnet": "NBFNet, its paper",
}
GRID_ROWS = {"lnn": "LNN", "neural_lp": "attention and product (NeuralLP)", "ideal": "ideal rule"}
READABLE_RULES = 2
"""How many rules of a relation are shown."""


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
    """Filtered ranks by set (Table 2): ours with the seconds of learning and ranking, then those of other systems.

    Figures of others are those of the catalogue, so that a run saved earlier stands beside all of them too.
    """
    completion = {
        str(seeds[0]["experiment"]): seeds for task in ("kbc", "leaf") for _, seeds in runs_of_task(runs, task)
    }
    by_set: dict[str, list[str]] = {}
    for name in completion:
        by_set.setdefault(str(find_experiment(name).settings["set"]), []).append(name)
    lines = []
    for names in by_set.values():
        lines += [row for name in names for row in _write_ours(title_of(name), completion[name])]
        for name in names:
            figures: Any = find_experiment(name).settings.get("paper", {})
            set_title = title_of(name).partition(",")[0]
            lines += [
                (f"{set_title}, {label}", *(mean_figure([figures[row]], key) for key in COLUMNS), *[NOTHING] * 4)
                for row, label in BASELINES.items()
                if row in figures
            ]
    head = ("", "MRR", "Hits@1", "Hits@3", "Hits@10", "seeds", "learning, s", "ranking, s", "rules")
    return markdown_table(head, lines)


def _write_ours(title: str, seeds: Sequence[Run]) -> list[tuple[str, ...]]:
    """Return the row of some runs and, where they were pruned too, that of what was left."""
    rows = [run["rows"]["ours, test"] for run in seeds]
    lines = [
        (
            f"**{title}, ours**",
            *(mean_figure(rows, key) for key in COLUMNS),
            str(len(seeds)),
            *(
                mean_and_sd((run["seconds"][part] for run in seeds), scale=1, digits=0)
                for part in ("learning", "ranking")
            ),
            mean_and_sd((run["rules"] for run in seeds), scale=1, digits=0),
        )
    ]
    if pruned := [run["pruned"] for run in seeds if "pruned" in run]:
        figures = (mean_figure([one["rows"]["ours, test"] for one in pruned], key) for key in COLUMNS)
        rules = mean_and_sd((one["rules"] for one in pruned), scale=1, digits=0)
        lines.append((f"{title}, pruned", *figures, str(len(pruned)), NOTHING, NOTHING, rules))
    return lines


def readable_rules(runs: Runs) -> str:
    """The path rules that explain most of some relations (Table 3), of the first seed, as one would read them.

    Of runs that were saved without ``share``, the rules are those kept there that are right often enough.
    """
    parts = []
    for title, seeds in runs_of_task(runs, "kbc"):
        written = [text for texts in seeds[0].get("readable", {}).values() for text in texts[:READABLE_RULES]]
        rules = [rule for rule in map(parse_rule, written) if rule.confidence >= MIN_CONFIDENCE]
        if rules:
            parts.append(f"**{title}**\n\n{rule_table(rules)}")
    return "\n\n".join(parts) or ABSENT


def rule_table(rules: Sequence[Rule]) -> str:
    """Write closed path rules with arrows for their steps, in the order given.

    >>> rule = parse_rule("0.12345 :: '/a/b/speaks'(X, Y) :- '_lives_in'(X, V), '/c/d/spoken_in'(Y, V). @{share: 0.5}")
    >>> print(rule_table([rule]))
    | then | if | confidence | coverage | share |
    |---|---|---|---|---|
    | x —speaks→ y | x —lives in→ a ←spoken in— y | 0.123 | – | 0.5 |
    """
    chains = [chain for chain in map(Chain.of, rules) if chain is not None]
    if len(chains) < len(rules):
        raise DataError("a table of path rules was given a rule that is no path")
    names = shorten_names({name for chain in chains for name in (chain.head, *(step.relation for step in chain.steps))})
    lines = [
        (
            draw_path([Step(chain.head)], names),
            draw_path(chain.steps, names),
            f"{rule.confidence:.3g}",
            *(NOTHING if value is None else f"{value:.3g}" for value in map(rule.annotations.number, _MEASURED)),
        )
        for rule, chain in zip(rules, chains, strict=True)
    ]
    return markdown_table(("then", "if", "confidence", *_MEASURED), lines)


_MEASURED = ("coverage", "share")


def draw_path(steps: Sequence[Step], names: Mapping[str, str]) -> str:
    """Write a path from x to y; entities between are a, b, c and d.

    >>> draw_path([Step("p"), Step("q", inverse=True)], {"p": "parent of", "q": "likes"})
    'x —parent of→ a ←likes— y'
    """
    stops = [*"abcd"[: len(steps) - 1], "y"]
    arrows = [f"←{names[step.relation]}—" if step.inverse else f"—{names[step.relation]}→" for step in steps]
    return " ".join(["x", *(part for pair in zip(arrows, stops, strict=True) for part in pair)])


def shorten_names(relations: Collection[str]) -> dict[str, str]:
    """Return for each relation a name to read: of a path of names the last, with its type where two have the same.

    >>> shorten_names({"/film/film/genre", "_hypernym"}) == {"/film/film/genre": "genre", "_hypernym": "hypernym"}
    True
    >>> sorted(shorten_names({"/film/film/genre", "/music/artist/genre"}).values())
    ['artist: genre', 'film: genre']
    """

    def read(name: str) -> str:
        return name.strip("_").replace("_", " ")

    parts = {name: [part for part in name.split("/") if part] or [name] for name in relations}
    forms = [
        {name: read(part[-1]) for name, part in parts.items()},
        {name: f"{read(part[min(1, len(part) - 1)])}: {read(part[-1])}" for name, part in parts.items()},
        {name: name for name in relations},
    ]
    counts = [Counter(form.values()) for form in forms]
    return {
        name: next(form[name] for form, count in zip(forms, counts, strict=True) if count[form[name]] == 1)
        for name in relations
    }


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
