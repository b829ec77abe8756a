"""The checks that all generators make of their options, with one form of message."""

from __future__ import annotations

from rulewright.errors import DataError


def check_at_least(name: str, value: float, least: float) -> None:
    """Refuse a value below the least one.

    >>> check_at_least("people", 1, 2)
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: people must be >= 2, got 1
    """
    if not value >= least:
        raise DataError(f"{name} must be >= {least}, got {value}")


def check_share(name: str, value: float) -> None:
    """Refuse what is no share.

    >>> check_share("missing", 1.5)
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: missing must lie in [0, 1], got 1.5
    """
    if not 0 <= value <= 1:
        raise DataError(f"{name} must lie in [0, 1], got {value}")
