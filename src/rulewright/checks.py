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
from typing import Protocol, TypeAlias, cast

from rulewright.errors import DataError


class Progress(Protocol):
    """Told how far long work has come: ``done`` of ``total`` in a stage of it."""

    def __call__(self, stage: str, done: int, total: int) -> None:
        """Take note, or show it."""
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


@dataclass(frozen=True)
class Real:
    """A finite number from ``low`` to ``high``; ``above`` and ``below`` leave the bound itself out."""

    low: float | None = None
    high: float | None = None
    above: bool = False
    below: bool = False
    optional: bool = False


SHARE = Real(0, 1)
"""A share or a probability."""

TIME_LIMIT = Real(0, above=True, optional=True)
"""The seconds that work may take; None is as many as it takes."""


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


@dataclass(frozen=True)
class Flag:
    """True or False."""


@dataclass(frozen=True)
class Names:
    """A name or a list of names, such as relations (`read_names`); None is all of them.

    >>> check_parameter("targets", 3, Names())
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: targets must be a name, a list of names or None, got 3
    """


@dataclass(frozen=True)
class MemoryLimit:
    """What `read_memory_limit` reads."""


ParameterRule: TypeAlias = Whole | Real | OneOf | Flag | Names | MemoryLimit
"""What values a parameter may have."""


def check_parameters(values: Mapping[str, object], rules: Mapping[str, ParameterRule]) -> None:
    """Check every parameter that has a rule, in the order of the rules."""
    for name, rule in rules.items():
        check_parameter(name, values[name], rule)


def check_parameter(name: str, value: object, rule: ParameterRule) -> None:
    """Refuse a value that its rule does not allow; the message says which are allowed and what was given."""
    complaint: str | None = None
    match rule:
        case Whole() | Real():
            complaint = _check_number(value, rule)
        case OneOf(options):
            if not any(value == option and type(value) is type(option) for option in options):
                *most, last = map(repr, options)
                complaint = f"be {', '.join(most)} or {last}" if most else f"be {last}"
        case Flag():
            complaint = None if isinstance(value, bool) else "be True or False"
        case Names():
            is_list = isinstance(value, Collection) and not isinstance(value, bytes)
            if value is not None and not (is_list and all(isinstance(item, str) for item in value)):  # type: ignore[attr-defined]
                complaint = "be a name, a list of names or None"
        case MemoryLimit():
            read_memory_limit(value, name)
    if complaint is not None:
        raise DataError(f"{name} must {complaint}, got {value!r}")


def _check_number(value: object, rule: Whole | Real) -> str | None:
    """Return what a number must be, None where it is fine."""
    if value is None and rule.optional:
        return None
    or_none = " or None" if rule.optional else ""
    is_whole = isinstance(rule, Whole)
    if isinstance(value, bool) or not isinstance(value, numbers.Integral if is_whole else numbers.Real):
        return f"be a {'whole ' if is_whole else ''}number{or_none}"
    number = cast("float", value)
    low, high = rule.low, rule.high
    above, below = (False, False) if isinstance(rule, Whole) else (rule.above, rule.below)
    low_fits = low is None or number > low or (number == low and not above)
    high_fits = high is None or number < high or (number == high and not below)
    is_finite = -math.inf < number < math.inf
    if low_fits and high_fits and is_finite:
        return None
    if low is not None and high is not None:
        interval = f"{'(' if above else '['}{low:g}, {high:g}{')' if below else ']'}"
        return f"lie in {f'{low} … {high}' if is_whole else interval}{or_none}"
    if not is_finite:
        return f"be a finite number{or_none}"
    bound = f"{'>' if above else '>='} {low:g}" if low is not None else f"{'<' if below else '<='} {high:g}"
    return f"be {bound}{or_none}"


def read_names(names: str | Collection[str] | None) -> list[str] | None:
    """Return names as a list; one by itself is a list of one.

    >>> read_names("parent"), read_names(("likes", "knows")), read_names(None)
    (['parent'], ['likes', 'knows'], None)
    """
    return [names] if isinstance(names, str) else None if names is None else list(names)


_BYTES = {"": 1, "B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "TB": 1000**4}
_BYTES |= {"KIB": 1024, "MIB": 1024**2, "GIB": 1024**3, "TIB": 1024**4}


def read_memory_limit(limit: object, name: str = "memory_limit") -> int | None:
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
    size = limit
    if isinstance(limit, str):
        read = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", limit)
        if read and read[2].upper() in _BYTES:
            size = int(float(read[1]) * _BYTES[read[2].upper()])
    if isinstance(size, bool) or not isinstance(size, numbers.Integral) or size < 1:
        raise DataError(f"{name} must be bytes or a text such as '2GB' or '500MiB', got {limit!r}")
    return int(size)
