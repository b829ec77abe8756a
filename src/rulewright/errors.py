"""The errors Rulewright raises. Each is also the builtin that a caller would expect to catch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class RulewrightError(Exception):
    """Anything Rulewright itself reports; its text is a line that a person can act on, or one for each error found."""


class RulewrightWarning(UserWarning):
    """Something that came out other than one may expect; its text has the figure and the way out."""


class DataError(RulewrightError, ValueError):
    """Facts, rules or options that cannot mean what was intended."""


class ParseError(DataError):
    """Text that is not in its format, with the position where reading stopped.

    Where a reader goes on after an error, it is the first of several: ``errors`` has all, in order, and each has its
    line in the text of this one. ``is_cut`` tells that reading ended at a limit, so that there may be more.

    >>> print(ParseError("expected ')'", file="a.rules", line=3, column=7))
    a.rules:3:7: expected ')'
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | None = None,
        line: int | None = None,
        column: int | None = None,
        others: Sequence[ParseError] = (),
        is_cut: bool = False,
    ) -> None:
        self.message, self.file, self.line, self.column = message, file, line, column
        self.is_cut, self._others = is_cut, tuple(others)
        position = ":".join(str(part) for part in (file or "<text>", line, column) if part is not None)
        ending = [f"after {len(others) + 1} errors the rest was not read"] if is_cut else []
        super().__init__("\n".join([f"{position}: {message}", *map(str, others), *ending]))

    @property
    def errors(self) -> tuple[ParseError, ...]:
        """This error and those behind it."""
        return (self, *self._others)

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_parse_error, (self.message, self.file, self.line, self.column, self._others, self.is_cut)


def _rebuild_parse_error(
    message: str,
    file: str | None,
    line: int | None,
    column: int | None,
    others: Sequence[ParseError] = (),
    is_cut: bool = False,
) -> ParseError:
    return ParseError(message, file=file, line=line, column=column, others=others, is_cut=is_cut)


class NotFittedError(DataError, AttributeError):
    """Something learned that is read before ``fit``."""


class UnknownNameError(RulewrightError, LookupError):
    """A name that is not among the known ones."""


class FileError(RulewrightError, OSError):
    """A file or address that cannot be read or written."""


class MissingExtraError(RulewrightError, ImportError):
    """An optional dependency is not installed; the text names the command that installs it."""


class MemoryLimitError(RulewrightError, MemoryError):
    """Work that would not fit within the memory limit."""


class EngineError(RulewrightError, RuntimeError):
    """A back end that cannot be reached, or could not do what it was asked for."""


class TimeLimitError(RulewrightError, TimeoutError):
    """Work that was stopped because it took too long."""


def unknown_name(what: str, name: str, known: Iterable[str]) -> UnknownNameError:
    """Build the error for a name that is not among ``known``, with the nearest ones.

    >>> print(unknown_name("predicate", "parent_off", ["parent_of", "spouse_of"]))
    unknown predicate 'parent_off'; did you mean 'parent_of'?
    >>> print(unknown_name("data set", "x", ["umls", "vrd"]))
    unknown data set 'x'; known: umls, vrd
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    if near:
        hint = "did you mean " + " or ".join(repr(candidate) for candidate in near) + "?"
    elif names:
        shown = names[:20]
        hint = "known: " + ", ".join(shown) + (f" and {len(names) - len(shown)} more" if len(names) > 20 else "")
    else:
        hint = f"no {what} is known here"
    return UnknownNameError(f"unknown {what} {name!r}; {hint}")
