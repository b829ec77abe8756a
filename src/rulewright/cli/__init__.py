"""The command line: one command, one file, each a thin shell over public functions.

- `console`: tables, JSON, progress bars and warnings, for all of them; `shared`: the options that all of them take
- `demo`; `learn` (rules from facts), `apply`, `complete`, `explain`, `infer` (what follows), `rank` (answers to a
  question), `evaluate` (how good it is)
- `convert` (between formats), `data` (named data sets), `run` (the papers' experiments), `serve` (the explorer)
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from typing import Annotated, NoReturn

import typer

from rulewright import __version__
from rulewright.cli import (
    apply,
    check,
    complete,
    convert,
    data,
    demo,
    evaluate,
    explain,
    infer,
    learn,
    rank,
    run,
    serve,
    split,
)
from rulewright.cli.shared import Commands
from rulewright.errors import RulewrightError

app = typer.Typer(
    name="rulewright",
    cls=Commands,
    help="Learn logical rules from data and put them to work. Start with: rulewright demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("learn")(learn.learn)
app.command("apply")(apply.apply)
app.command("complete")(complete.complete)
app.command("explain")(explain.explain)
app.command("rank")(rank.rank)
app.command("infer")(infer.infer)
app.add_typer(evaluate.app, name="evaluate")
app.command("check")(check.check)
app.command("split")(split.split)
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


_GRACE = 1.5
"""Seconds after Ctrl-C that a command has to end by itself."""


def main() -> None:
    """Run the command line; exit with 0, with 1 where it could not, with 2 on wrong usage, with 130 on Ctrl-C."""
    _watch_for_interrupts()
    try:
        app()
    except RulewrightError as error:
        sys.stderr.write(f"rulewright: {error}\n")
        sys.exit(1)
    except (KeyboardInterrupt, SystemExit) as error:
        if isinstance(error, SystemExit) and error.code != _INTERRUPTED:
            raise
        _end_interrupted()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that the last flush stays quiet
        sys.exit(1)


_INTERRUPTED = 128 + signal.SIGINT
_ending = threading.Lock()


def _end_interrupted() -> NoReturn:
    """Say so, once, and end the process at once; every output is written in one step, so none is left half written."""
    _ending.acquire()
    show_cursor = "\x1b[?25h" if sys.stderr.isatty() else ""  # which a progress bar has hidden
    sys.stderr.write(f"{show_cursor}rulewright: interrupted\n")
    sys.stderr.flush()
    os._exit(_INTERRUPTED)


def _watch_for_interrupts() -> None:
    """End the process soon after Ctrl-C even where a library holds the main thread, in which alone Python hears it."""
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)

    def watch() -> None:
        while receiver.recv(1) != bytes([signal.SIGINT]):
            pass
        time.sleep(_GRACE)
        _end_interrupted()

    sender.detach()  # it stays open as long as the process lives
    threading.Thread(target=watch, daemon=True).start()
