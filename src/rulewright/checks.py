"""Parameters that many functions take: one meaning, one check and one message for each.

A learner or a record of settings names the rule of each parameter once and has all of them checked together:

>>> check_parameters({"max_length": 7}, {"max_length": Whole(1, 4)})
Traceback (most recent call last):
...
rulewright.errors.DataError: max_length must lie in 1 … 4, got 7
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from rulewright.errors import DataError


class Progress(Protocol):
    """Told how far long work has come: ``done`` of ``total`` in a stage of it."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take note, or show it."""
        ...


class ParameterRule(Protocol):
    """What values a parameter may have."""

    def complaint(self, value: object) -> str | None:
        """Return what the value must be, or None where it is fine."""
        ...


@dataclass(frozen=True)
class Whole:
    """A whole number from ``low`` to ``high``; with ``optional`` also None.

    >>> check_parameter("min_support", "3", Whole(1))
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: min_support must be a whole number, got '3'
    """

    low: int | None = None
    high: int | None = None
    optional: bool = False

    def complaint(self, value: object) -> str | None:
        """Return what the value must be, or None where it is fine."""
        if value is None and self.optional:
            return None
        or_none = " or None" if self.optional else ""
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            return f"be a whole number{or_none}"
        if self.low is not None and self.high is not None:
            fits = self.low <= int(value) <= self.high
            return None if fits else f"lie in {self.low} … {self.high}{or_none}"
        if self.low is not None and int(value) < self.low:
            return f"be >= {self.low}{or_none}"
        return None


@dataclass(frozen=True)
class Real:
    """A finite number from ``low`` to ``high``; ``above`` and ``below`` leave the bound itself out."""

    low: float | None = None
    high: float | None = None
    above: bool = False
    below: bool = False
    optional: bool = False

    def complaint(self, value: object) -> str | None:
        """Return what the value must be, or None where it is fine."""
        if value is None and self.optional:
            return None
        or_none = " or None" if self.optional else ""
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            return f"be a number{or_none}"
        number = float(value)
        low_fits = self.low is None or (number > self.low if self.above else number >= self.low)
        high_fits = self.high is None or (number < self.high if self.below else number <= self.high)
        if low_fits and high_fits and not math.isnan(number):
            return None
        if self.low is not None and self.high is not None:
            brackets = "(" if self.above else "[", ")" if self.below else "]"
            return f"lie in {brackets[0]}{self.low:g}, {self.high:g}{brackets[1]}{or_none}"
        if self.low is not None:
            return f"be {'>' if self.above else '>='} {self.low:g}{or_none}"
        return f"be {'<' if self.below else '<='} {self.high:g}{or_none}" if self.high is not None else "be a number"


SHARE = Real(0, 1)
"""A share or a probability."""


@dataclass(frozen=True, init=False)
class OneOf:
    """One of a few words.

    >>> check_parameter("loops", "keep", OneOf("skip", "against"))
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: loops must be 'skip' or 'against', got 'keep'
    """

    options: tuple[object, ...]

    def __init__(self, *options: object) -> None:
        object.__setattr__(self, "options", options)

    def complaint(self, value: object) -> str | None:
        """Return what the value must be, or None where it is fine."""
        if any(value == option and type(value) is type(option) for option in self.options):
            return None
        *most, last = map(repr, self.options)
        return f"be {', '.join(most)} or {last}" if most else f"be {last}"


@dataclass(frozen=True)
class Flag:
    """True or False."""

    def complaint(self, value: object) -> str | None:
        """Return what the value must be, or None where it is fine."""
        return None if isinstance(value, bool) else "be True or False"


@dataclass(frozen=True)
class Names:
    """A list of names, such as relations; None is all of them.

    >>> check_parameter("targets", "likes", Names())
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: targets must be a list of names or None, got 'likes'
    """

    def complaint(self, value: object) -> str | None:
        """Return what the value must be, or None where it is fine."""
        is_list = isinstance(value, Collection) and not isinstance(value, str | bytes)
        fits = value is None or (is_list and all(isinstance(name, str) for name in value))  # type: ignore[attr-defined]
        return None if fits else "be a list of names or None"


@dataclass(frozen=True)
class MemoryLimit:
    """What `read_memory_limit` reads."""

    def complaint(self, value: object) -> str | None:
        """Return what the value must be, or None where it is fine."""
        try:
            read_memory_limit(value)  # type: ignore[arg-type]
        except DataError:
            return "be bytes or a text such as '2GB' or '500MiB'"
        return None


def check_parameter(name: str, value: object, rule: ParameterRule) -> None:
    """Refuse a value that its rule does not allow; the message says which are allowed and what was given."""
    complaint = rule.complaint(value)
    if complaint is not None:
        raise DataError(f"{name} must {complaint}, got {value!r}")


def check_parameters(values: Mapping[str, object], rules: Mapping[str, ParameterRule]) -> None:
    """Check every parameter that has a rule, in the order of the rules."""
    for name, rule in rules.items():
        check_parameter(name, values[name], rule)


_BYTES = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4}
_BYTES |= {"KIB": 1024, "MIB": 1024**2, "GIB": 1024**3, "TIB": 1024**4}


def read_memory_limit(limit: int | str | None, name: str = "memory_limit") -> int | None:
    """Return a limit in bytes, given as such or as text; None is no limit of the caller's.

    >>> read_memory_limit("2GB"), read_memory_limit("1.5 MiB"), read_memory_limit(4096)
    (2000000000, 1572864, 4096)
    >>> read_memory_limit("much")
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: memory_limit must be bytes or a text such as '2GB' or '500MiB', got 'much'
    """
    if limit is None:
        return None
    if isinstance(limit, str):
        read = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", limit)
        if read and read[2].upper() in _BYTES:
            limit = int(float(read[1]) * _BYTES[read[2].upper()])
    if isinstance(limit, bool) or not isinstance(limit, numbers.Integral) or limit < 1:
        raise DataError(f"{name} must be bytes or a text such as '2GB' or '500MiB', got {limit!r}")
    return int(limit)
