"""``rulewright run``: an experiment by name, or the page of a family's results."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rulewright.cli.console import (
    check_output,
    experiment_names,
    print_json,
    print_line,
    print_table,
    refuse_options,
    warn,
)
from rulewright.errors import FileError

if TYPE_CHECKING:
    from rulewright.papers.catalogue import Experiment


def run(
    context: typer.Context,
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
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="logicmp: run on this folder of predicates, facts, queries and rules, or on all such folders in it.",
        ),
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
    pages: Annotated[
        str | None,
        typer.Option(metavar="FOLDER", help="Where --report writes the page; where the runs are, if not said."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Run an experiment of the papers and print ours beside theirs; interrupted, it goes on where it stopped.

    Example: rulewright run milr/dwie_atlop --seed 1 -o results/milr_dwie_atlop_1.json,
    then: rulewright run milr --report results --pages docs/results
    """
    from rulewright.papers.catalogue import experiments, find_experiment

    of_a_run = ("seed", "folder", "data", "changes", "threads", "output")
    if report is not None:
        refuse_options(context, "--report runs nothing; it takes a family, --pages and --json", *of_a_run)
        _write_report(name, report, pages, json)
        return
    refuse_options(context, "only --report writes pages", "pages")
    if name is None:
        refuse_options(context, "without the name of an experiment nothing is run", *of_a_run)
        rows = [(experiment.name, experiment.title) for experiment in experiments().values()]
        if json:
            print_json([{"name": name, "title": title} for name, title in rows])
        else:
            print_table(("name", "title"), rows)
        return
    if data is not None:
        own = [one for one in experiments().values() if one.needs_data and name in (one.family, one.name)]
        if not own:
            raise typer.BadParameter(f"{name} has its own data; --data is for logicmp", param_hint="'--data'")
        check_output(output, ())
        _run_one(own[0], seed, Path(folder) if folder else None, changes or [], threads, output, json, data)
        return
    members = [one for one in experiments().values() if one.family == name and not one.needs_data]
    if not members:
        check_output(output, ())
    elif output is not None and not Path(output).is_dir():
        raise FileError(f"cannot write to {output}: the figures of a family need a folder that is there")
    for experiment in members or [find_experiment(name)]:
        stem = f"{experiment.name.replace('/', '_')}_{seed}"
        _run_one(
            experiment,
            seed,
            Path(folder) / (stem if members else "") if folder else None,
            changes or [],
            threads,
            str(Path(output) / f"{stem}.json") if members and output is not None else output,
            json,
        )


def _run_one(
    experiment: Experiment,
    seed: int,
    folder: Path | None,
    changes: list[str],
    threads: int,
    output: str | None,
    json: bool,
    data: str | None = None,
) -> None:
    import torch

    from rulewright.datasets.download import cache_folder
    from rulewright.files import write_json
    from rulewright.papers.catalogue import load_run, with_settings

    torch.set_num_threads(threads)
    changed = _read_settings(changes)
    stem = f"{experiment.name}_{seed}"
    if data is not None:
        place = str(Path(data).resolve())
        changed |= {"set": place}
        stem += f"_{sha256(place.encode()).hexdigest()[:12]}"
    experiment = with_settings(experiment, changed)
    folder = folder or cache_folder() / "runs" / stem
    figures = load_run(experiment)(experiment, seed=seed, folder=folder, tell=warn)
    if changed:
        figures["changed_settings"] = changed
    settings = [f"--set {shlex.quote(change)}" for change in changes]
    settings += [] if data is None else [f"--data {shlex.quote(data)}"]
    figures["settings"] = _write_settings(experiment.settings)
    figures["version"] = _describe_version()
    figures |= {  # the command gives the same figures anywhere: where files are kept is not part of it
        "command": " ".join(["rulewright run", experiment.name, f"--seed {seed}", f"--threads {threads}", *settings]),
        "machine": f"{platform.system()} {platform.machine()}, {threads} threads, Python {platform.python_version()}",
    }
    if output is not None:
        write_json(output, figures)
    if json:
        print_json(figures)
    elif output is None:
        print_line(f"{figures['title']}, seed {seed}")
        columns = figures.get("columns", ("f1", "ign_f1_docred", "logic", "precision", "recall"))
        rows = [(label, *map(_format_percent, map(row.get, columns))) for label, row in figures["rows"].items()]
        print_table(("", *columns), rows)


def _write_settings(value: object) -> object:
    """Return settings as JSON has them, which knows no infinite number: it is written as in TOML."""
    if isinstance(value, Mapping):
        return {name: _write_settings(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_write_settings(part) for part in value]
    return str(value) if isinstance(value, float) and not isfinite(value) else value


def _describe_version() -> str:
    """Return the version and, where the package runs from a checkout, its commit; ``+`` where files were changed."""
    import subprocess

    from rulewright import __version__

    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return __version__
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--abbrev=10", "--dirty=+", "--exclude=*"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return __version__
    return f"{__version__} ({found.stdout.strip()})"


def _write_report(family: str | None, results: str, pages: str | None, json: bool) -> None:
    from rulewright.papers.catalogue import TASKS
    from rulewright.papers.report_page import write_report

    if family is None:
        raise typer.BadParameter(f"--report needs the family first: {', '.join(TASKS)}")
    written = write_report(family, results, pages)
    if json:
        print_json(written.as_dict())
        return
    print_line(f"{len(written.runs)} runs: {', '.join(written.runs) or 'none'}")
    if written.missing:
        print_line(f"missing: {', '.join(written.missing)}")
    for path in written.written:
        print_line(f"wrote {path}")


def _read_settings(changes: list[str]) -> dict[str, object]:
    """Read ``NAME=VALUE`` settings."""
    import tomllib

    settings: dict[str, object] = {}
    for change in changes:
        try:
            settings |= tomllib.loads(change)
        except tomllib.TOMLDecodeError as error:
            raise typer.BadParameter(
                f"--set takes NAME=VALUE in TOML, such as epochs=3; got {change!r}: {error}"
            ) from None
    return settings


def _format_percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f}"
