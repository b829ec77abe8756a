"""The errors Rulewright raises. Each is also the builtin that a caller would expect to catch."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class RulewrightError(Exception):
    """Anything Rulewright itself reports; its text is one line that a person can act on."""


class RulewrightWarning(UserWarning):
    """Something that came out other than one may expect; its text has the figure and the way out."""


class DataError(RulewrightError, ValueError):
    """Facts, rules or options that cannot mean what was intended."""


class ParseError(DataError):
    """Text that is not in its format, with the position where reading stopped.

    >>> print(ParseError("expected ')'", file="a.rules", line=3, column=7))
    a.rules:3:7: expected ')'
    """

    def __init__(
        self, message: str, *, file: str | None = None, line: int | None = None, column: int | None = None
    ) -> None:
        self.message, self.file, self.line, self.column = message, file, line, column
        position = ":".join(str(part) for part in (file or "<text>", line, column) if part is not None)
        super().__init__(f"{position}: {message}")

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_parse_error, (self.message, self.file, self.line, self.column)


def _rebuild_parse_error(message: str, file: str | None, line: int | None, column: int | None) -> ParseError:
    return ParseError(message, file=file, line=line, column=column)


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
