"""``rulewright run``: an experiment by name."""

from __future__ import annotations

import platform
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated

import typer

from rulewright.cli.console import print_json, print_line, print_table, warn


def run(
    name: Annotated[str | None, typer.Argument(help="An experiment, such as milr/dwie_atlop; none lists them.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of weights and batches.")] = 0,
    folder: Annotated[
        str | None, typer.Option(help="Where checkpoints are kept; the same folder goes on where it stopped.")
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the network.")] = 2,
    output: Annotated[str | None, typer.Option("--output", "-o", help="Write the figures here, as JSON.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Run an experiment of the papers and print ours beside theirs; interrupted, it goes on where it stopped.

    Example: rulewright run milr/dwie_atlop --seed 1 -o docs/results/milr_dwie_atlop_1.json
    """
    from rulewright.experiments import experiments, find

    if name is None:
        rows = [(each.name, each.title) for each in experiments().values()]
        if json:
            print_json([{"name": each, "title": title} for each, title in rows])
        else:
            print_table(("name", "title"), rows)
        return
    import torch

    from rulewright.datasets.download import cache_folder
    from rulewright.files import write_text

    torch.set_num_threads(threads)
    experiment = find(name)
    place = Path(folder) if folder else cache_folder() / "runs" / f"{name}_{seed}"
    module = import_module(f"rulewright.experiments.{experiment.family}")
    found = module.run(experiment, seed=seed, folder=place, tell=warn)
    found |= {
        "command": "rulewright " + " ".join(sys.argv[1:]),
        "machine": f"{platform.system()} {platform.machine()}, {threads} threads, Python {platform.python_version()}",
    }
    if output is not None:
        import json as format_json

        write_text(output, format_json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    if json:
        print_json(found)
    elif output is None:
        print_line(f"{found['title']}, seed {seed}")
        columns = ("f1", "ign_f1_docred", "logic", "precision", "recall")
        print_table(
            ("", *columns),
            [(row, *(_shown(figures[each]) for each in columns)) for row, figures in found["rows"].items()],
        )


def _shown(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"
