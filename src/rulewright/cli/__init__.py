"""The command line: one command, one file, each a thin shell over public functions.

- `console`: tables, JSON, progress bars and warnings, for all of them
- `demo`; `learn` (rules from facts), `apply`, `explain`, `infer` (what follows), `evaluate` (how good it is)
- `convert` (between formats), `data` (named data sets), `run` (the papers' experiments), `serve` (the explorer)
"""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from rulewright import __version__
from rulewright.cli import apply, convert, data, demo, evaluate, explain, infer, learn, run, serve
from rulewright.errors import RulewrightError

app = typer.Typer(
    name="rulewright",
    help="Learn logical rules from data and put them to work. Start with: rulewright demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("learn")(learn.learn)
app.command("apply")(apply.apply)
app.command("explain")(explain.explain)
app.command("infer")(infer.infer)
app.add_typer(evaluate.app, name="evaluate")
app.command("convert")(convert.convert)
app.command("run")(run.run)
app.command("serve")(serve.serve)
app.add_typer(data.app, name="data")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"rulewright {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Learn logical rules from data and put them to work. Start with: rulewright demo."""


def main() -> None:
    """Run the command line; exit with 0, with 1 where it could not, with 2 on wrong usage."""
    try:
        app()
    except RulewrightError as error:
        sys.stderr.write(f"rulewright: {error}\n")
        sys.exit(1)
    except KeyboardInterrupt:
        sys.stderr.write("rulewright: interrupted\n")
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the last flush stays quiet
        sys.exit(1)
