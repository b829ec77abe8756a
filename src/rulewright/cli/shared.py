"""The options that every command takes, before its name or after: ``-v``, ``--log-file`` and ``--config``."""

from __future__ import annotations

import logging
import shlex
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from rulewright import __version__
from rulewright.errors import DataError, ParseError, UnknownNameError, unknown_name
from rulewright.files import check_output, read_text

_LOGGER = logging.getLogger("rulewright")
_STARTED = time.monotonic()


def is_new(record: logging.LogRecord) -> bool:
    """Tell whether a record was not yet shown on standard error, as what `rulewright.cli.console.warn` says was."""
    return not hasattr(record, "is_shown")


def _show(context: typer.Context, verbose: int) -> None:
    """Show what is done and how long it took; from 2 on, SQL too."""
    if verbose:
        handler = logging.StreamHandler(sys.stderr)
        handler.addFilter(is_new)
        _add_handler(
            context, handler, logging.DEBUG if verbose > 1 else logging.INFO, "{asctime}  {message}", "%H:%M:%S"
        )


def _write_log(context: typer.Context, log_file: str | None) -> None:
    """Write all that into a file, behind what it holds."""
    if log_file is not None:
        check_output(log_file)
        handler = logging.FileHandler(log_file, encoding="utf-8")
        _add_handler(context, handler, logging.DEBUG, "{asctime} {levelname} {name}: {message}", None)


def _add_handler(
    context: typer.Context, handler: logging.Handler, level: int, form: str, date_form: str | None
) -> None:
    """Have a handler take what is logged while the command runs, from its first line to its last."""
    handler.setLevel(level)
    handler.setFormatter(logging.Formatter(form, date_form, style="{"))
    before = _LOGGER.level
    _LOGGER.setLevel(min(level, before) if before else level)
    _LOGGER.addHandler(handler)

    def tell(text: str) -> None:
        handler.handle(_LOGGER.makeRecord(_LOGGER.name, logging.INFO, "", 0, text, (), None))

    def end() -> None:
        error = sys.exc_info()[1]
        how = "ended" if error is None or isinstance(error, typer.Exit) else f"{type(error).__name__}: {error}; ended"
        tell(f"{how} after {time.monotonic() - _STARTED:.1f} s{_peak_memory()}")
        _LOGGER.removeHandler(handler)
        _LOGGER.setLevel(before)
        handler.close()

    tell(f"rulewright {__version__}: {shlex.join(sys.argv[1:])}")
    context.call_on_close(end)


def _peak_memory() -> str:
    try:
        import resource
    except ImportError:  # where there is no such count
        return ""
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "darwin" else 1)
    return f", with {kilobytes / 1024:,.0f} MB of memory at the most"


def _configure(context: typer.Context, config: str | None) -> None:
    """Take what the file says for what is not said on the command line."""
    file = config or context.meta.get("rulewright.config")
    if file is None:
        return
    context.meta["rulewright.config"] = file
    if isinstance(context.command, TyperGroup):
        return
    names, root = [], context
    while root.parent is not None:
        names.append(root.info_name or "")
        root = root.parent  # type: ignore[assignment]
    context.default_map = _choose_settings(file, root.command, list(reversed(names)))


def _choose_settings(file: str, root: Any, names: list[str]) -> dict[str, Any]:
    """Return the settings of a command by the names of its parameters; anything that no command has is refused."""
    try:
        settings = tomllib.loads(read_text(file))
    except tomllib.TOMLDecodeError as error:
        raise ParseError(f"not TOML: {error}", file=file) from None
    return _read_table(file, settings, root, names, "")


def _read_table(file: str, table: Mapping[str, Any], command: Any, names: list[str], heading: str) -> dict[str, Any]:
    """Read the table of a command or a group: its settings and, of its commands, those of the one that is run."""
    commands: Mapping[str, Any] = getattr(command, "commands", {})
    chosen = commands.get(names[0]) if names else None
    leaves = list(_leaves(command))
    known = {name for leaf in leaves for name in _flags(leaf)}
    within = f" in [{heading}]" if heading else ""
    values: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            if key not in commands:
                raise _unknown(file, f"command{within}", key, commands)
            inner = _read_table(file, value, commands[key], names[1:] if chosen is commands[key] else [], key)
            if chosen is commands[key]:
                values |= inner
            continue
        name = key.replace("_", "-")
        if name not in known:
            raise _unknown(file, f"setting{within}", key, known)
        leaf = _find_leaf(command, names)
        if leaf is not None and name in _flags(leaf):
            parameter = _flags(leaf)[name]
            values.setdefault(parameter.name, _fit(file, key, value, parameter))
    return values


def _leaves(command: Any) -> Iterator[Any]:
    commands = getattr(command, "commands", None)
    if commands is None:
        yield command
    for inner in (commands or {}).values():
        yield from _leaves(inner)


def _find_leaf(command: Any, names: list[str]) -> Any:
    for name in names:
        command = command.commands[name]
    return None if hasattr(command, "commands") else command


def _flags(command: Any) -> dict[str, Any]:
    """Return the parameters of a command by the names of their flags."""
    return {
        flag.removeprefix("--"): parameter
        for parameter in command.params
        for flag in parameter.opts
        if flag.startswith("--") and parameter.name not in _SHARED and flag != "--help"
    }


def _fit(file: str, key: str, value: Any, parameter: Any) -> Any:
    """Return a value as the parameter takes it: a list where it may be repeated, true or false where it is a flag."""
    is_list = isinstance(value, list)
    if parameter.multiple:
        return value if is_list else [value]
    if is_list:
        raise DataError(f"{file}: {key} takes one value, found a list of {len(value)}")
    if getattr(parameter, "is_flag", False) != isinstance(value, bool):
        wanted = "true or false" if getattr(parameter, "is_flag", False) else "a value"
        raise DataError(f"{file}: {key} takes {wanted}, found {value!r}")
    return value


def _unknown(file: str, what: str, name: str, known: Any) -> UnknownNameError:
    return UnknownNameError(f"{file}: {unknown_name(what, name, known)}")


def _declare(
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose",
            "-v",
            count=True,
            show_default=False,
            is_eager=True,
            callback=_show,
            help="Say what is done; -vv shows SQL too.",
        ),
    ] = 0,
    log_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", is_eager=True, callback=_write_log, help="Write what is done to this file too."),
    ] = None,
    config: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            is_eager=True,
            callback=_configure,
            help="A TOML file of options by the names of their flags.",
        ),
    ] = None,
) -> None:
    """Declare the options; their callbacks do what they say."""


_SHARED = ("verbose", "log_file", "config")


def _make_options() -> list[Any]:
    """Return the options as parameters of a command, to which their values are not handed on."""
    holder = typer.Typer(add_completion=False)
    holder.command()(_declare)
    options = [parameter for parameter in typer.main.get_command(holder).params if parameter.name in _SHARED]
    for option in options:
        option.expose_value = False
    return options


class Commands(TyperGroup):
    """The group of all commands, each of which takes the shared options too."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for command in (self, *_leaves(self)):
            command.params += _make_options()
