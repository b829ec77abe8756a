"""``rulewright run``: an experiment by name."""

from __future__ import annotations

import platform
import shlex
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rulewright.cli.console import experiment_names, print_json, print_line, print_table, warn

if TYPE_CHECKING:
    from rulewright.papers import Experiment


def run(
    name: Annotated[
        str | None,
        typer.Argument(
            help="An experiment, such as milr/dwie_atlop, or a family for all of its; none lists them.",
            autocompletion=experiment_names,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of weights and batches.")] = 0,
    folder: Annotated[
        str | None, typer.Option(help="Where checkpoints are kept; the same folder goes on where it stopped.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", help="Change a setting, as NAME=VALUE in TOML: --set epochs=3; may be repeated."),
    ] = None,
    threads: Annotated[int, typer.Option(min=1, help="Threads of the network.")] = 2,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Write the figures here, as JSON; of a family, a folder for them."),
    ] = None,
    report: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Renew a family's page of results from the runs saved here.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Run an experiment of the papers and print ours beside theirs; interrupted, it goes on where it stopped.

    Example: rulewright run milr/dwie_atlop --seed 1 -o docs/results/milr_dwie_atlop_1.json,
    then: rulewright run milr --report docs/results
    """
    from rulewright.papers import experiments, find

    if report is not None:
        _report(name, report, json)
        return
    if name is None:
        rows = [(each.name, each.title) for each in experiments().values()]
        if json:
            print_json([{"name": each, "title": title} for each, title in rows])
        else:
            print_table(("name", "title"), rows)
        return
    members = [each for each in experiments().values() if each.family == name] or [find(name)]
    for each in members:
        alone = each.name == name
        stem = f"{each.name.replace('/', '_')}_{seed}"
        _run_one(
            each,
            seed,
            Path(folder) / ("" if alone else stem) if folder else None,
            changes or [],
            threads,
            output if output is None or alone else str(Path(output) / f"{stem}.json"),
            json,
        )


def _command(name: str, seed: int, threads: int, changes: list[str]) -> str:
    """Return the command that gives the same figures anywhere: where files are kept is not part of it."""
    settings = [f"--set {shlex.quote(each)}" for each in changes]
    return " ".join(["rulewright run", name, f"--seed {seed}", f"--threads {threads}", *settings])


def _run_one(
    experiment: Experiment,
    seed: int,
    folder: Path | None,
    changes: list[str],
    threads: int,
    output: str | None,
    json: bool,
) -> None:
    import torch

    from rulewright.datasets.download import cache_folder
    from rulewright.files import write_text
    from rulewright.papers import with_settings

    torch.set_num_threads(threads)
    changed = _changed(changes)
    experiment = with_settings(experiment, changed)
    place = folder or cache_folder() / "runs" / f"{experiment.name}_{seed}"
    module = import_module(f"rulewright.papers.{experiment.family}.run")
    found = module.run(experiment, seed=seed, folder=place, tell=warn)
    if changed:
        found["changed_settings"] = changed
    found |= {
        "command": _command(experiment.name, seed, threads, changes),
        "machine": f"{platform.system()} {platform.machine()}, {threads} threads, Python {platform.python_version()}",
    }
    if output is not None:
        import json as format_json

        write_text(output, format_json.dumps(found, indent=1, ensure_ascii=False) + "\n")
    if json:
        print_json(found)
    elif output is None:
        print_line(f"{found['title']}, seed {seed}")
        columns = found.get("columns", ("f1", "ign_f1_docred", "logic", "precision", "recall"))
        print_table(
            ("", *columns),
            [(row, *(_shown(figures.get(each)) for each in columns)) for row, figures in found["rows"].items()],
        )


def _report(family: str | None, folder: str, json: bool) -> None:
    from importlib.util import find_spec

    from rulewright.errors import unknown_name
    from rulewright.papers import experiments

    families = sorted({each.family for each in experiments().values()})
    reporting = [each for each in families if find_spec(f"rulewright.papers.{each}.report")]
    if family is None:
        raise typer.BadParameter(f"--report needs the family first: {', '.join(reporting)}")
    if family not in reporting:
        raise unknown_name("family with a page of results", family, reporting)
    found = import_module(f"rulewright.papers.{family}.report").report(folder)
    if json:
        print_json(found.as_dict())
        return
    print_line(f"{len(found.runs)} runs: {', '.join(found.runs) or 'none'}")
    if found.missing:
        print_line(f"missing: {', '.join(found.missing)}")
    for each in found.written:
        print_line(f"wrote {each}")


def _changed(changes: list[str]) -> dict[str, object]:
    """Read ``NAME=VALUE`` settings."""
    import tomllib

    found: dict[str, object] = {}
    for each in changes:
        try:
            found |= tomllib.loads(each)
        except tomllib.TOMLDecodeError as error:
            raise typer.BadParameter(
                f"--set takes NAME=VALUE in TOML, such as epochs=3; got {each!r}: {error}"
            ) from None
    return found


def _shown(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"
