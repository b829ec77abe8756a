"""The page of MILR's results: tables and plots of all runs in a folder, put into ``milr.md`` there."""

from __future__ import annotations

import os
from pathlib import Path

from rulewright.papers.milr.cost_tables import (
    case_text,
    method_table,
    run_list,
    settings_table,
    size_table,
    training_table,
)
from rulewright.papers.milr.plots import draw
from rulewright.papers.milr.tables import (
    ablation_table,
    difference_table,
    distance_table,
    error_table,
    main_table,
)
from rulewright.papers.results_page import (
    Report,
    new_figure,
    read_runs,
    reported,
    write_page,
)

TITLE = "MILR: mining rules, training with them, decoding with them"
CAPTIONS = {
    "variants": "Scores of the network alone and with each component",
    "distance": "F1 by the distance of the two entities",
    "precision_recall": "Precision and recall by the distance of the two entities",
}


def report(folder: str | os.PathLike[str]) -> Report:
    """Read every ``milr_NAME_SEED.json`` of a folder, draw the plots there and renew the tables of its ``milr.md``.

    It works with the runs that there are; ``missing`` names the others.
    """
    place = Path(folder)
    runs = read_runs(place, "milr")
    new_figure(1, 1)  # so that nothing is written where plots cannot be drawn
    plots = draw(runs, place)
    images = {name: f"![{CAPTIONS[name]}]({path.name})" for name, path in plots.items()}
    distance = [images[name] for name in ("distance", "precision_recall") if name in images]
    blocks = {
        "runs": run_list(runs),
        "sizes": size_table(runs),
        "main": "\n\n".join([main_table(runs), *([images["variants"]] if "variants" in images else [])]),
        "differences": difference_table(runs),
        "ablation": ablation_table(runs),
        "errors": error_table(runs),
        "distance": "\n\n".join([*distance, distance_table(runs)]),
        "training": training_table(runs),
        "methods": method_table(runs, place / "milr_benchmark.json"),
        "cases": case_text(runs),
        "settings": settings_table(runs),
    }
    page = place / "milr.md"
    write_page(page, TITLE, blocks)
    return reported(runs, "milr", (page, *plots.values()))
