"""Work that ends when it is told to: by Ctrl-C, inside a library too, and by limits of time.

A limit is hard or soft. Inside `time_limit` what runs in `run_interruptibly` ends with a `TimeLimitError`. A learner
that keeps the best so far asks a `TimeBudget` between its steps whether to go on.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rulewright.errors import TimeLimitError

_Result = TypeVar("_Result")
_PATIENCE = 0.05
"""Seconds after which work that was told to stop is told again: what has not begun yet does not hear it."""
_limit: ContextVar[tuple[float, float] | None] = ContextVar("limit", default=None)
"""When the first of all limits that hold here ends, and its seconds."""


@contextmanager
def time_limit(seconds: float | None) -> Iterator[None]:
    """Stop what runs interruptibly inside after so many seconds, by a `TimeLimitError`; None is no limit.

    Of limits inside limits the first counts. Other threads have limits of their own.

    >>> with time_limit(60), time_limit(0):
    ...     run_interruptibly(lambda: 6 * 7, lambda: None)
    Traceback (most recent call last):
    ...
    rulewright.errors.TimeLimitError: stopped after 0 s; ask for something more selective
    """
    if seconds is None:
        yield
        return
    own, outer = (time.monotonic() + seconds, seconds), _limit.get()
    token = _limit.set(own if outer is None else min(own, outer))
    try:
        yield
    finally:
        _limit.reset(token)


@dataclass(frozen=True)
class TimeBudget:
    """Seconds that run from now on, for work that looks at them; None is as many as it takes.

    >>> TimeBudget(None).is_over, TimeBudget(0).is_over, TimeBudget(0).spent
    (False, True, 1.0)
    """

    seconds: float | None
    began: float = field(default_factory=time.monotonic)

    @property
    def left(self) -> float | None:
        """The seconds that are left."""
        return None if self.seconds is None else max(0.0, self.seconds - (time.monotonic() - self.began))

    @property
    def is_over(self) -> bool:
        """Whether none is left."""
        return self.left == 0.0

    @property
    def spent(self) -> float:
        """The share that is spent, 0 where there is no limit."""
        return 0.0 if self.seconds is None or self.left is None else 1.0 - self.left / max(self.seconds, 1e-9)

    def share(self, parts: int) -> TimeBudget:
        """Return a budget that begins now, of what is left for one of so many parts.

        >>> 9.9 < TimeBudget(20).share(2).seconds <= 10
        True
        """
        return TimeBudget(None if self.left is None else self.left / parts)


@contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """Raise Ctrl-C as such where DuckDB, called from the main thread, has turned it into an error of its own.

    >>> try:
    ...     with keyboard_interrupts():
    ...         raise RuntimeError("Query interrupted")
    ... except KeyboardInterrupt:
    ...     print("stopped")
    stopped
    """
    try:
        yield
    except RuntimeError as error:
        if str(error) == "Query interrupted":
            raise KeyboardInterrupt from None
        raise


class _Outcome(Generic[_Result]):
    """What work in another thread has come to."""

    result: _Result
    error: BaseException | None = None

    def __init__(self, work: Callable[[], _Result]) -> None:
        self.ended = threading.Event()
        threading.Thread(target=self._run, args=(work,), daemon=True).start()

    def _run(self, work: Callable[[], _Result]) -> None:
        try:
            self.result = work()
        except BaseException as error:  # it is raised again where the work was asked for
            self.error = error
        finally:
            self.ended.set()

    def stop(self, interrupt: Callable[[], None]) -> None:
        while not self.ended.is_set():
            interrupt()
            self.ended.wait(_PATIENCE)


def run_interruptibly(work: Callable[[], _Result], interrupt: Callable[[], None]) -> _Result:
    """Return what ``work()`` returns; Ctrl-C and a `time_limit` end it.

    The work runs in a thread of its own while this one waits, since Python hears of a signal only between its own
    instructions. ``interrupt`` is called from here until the work has ended and must make it raise something.

    >>> run_interruptibly(lambda: 6 * 7, lambda: None)
    42
    >>> stopped = threading.Event()
    >>> with time_limit(0.01):
    ...     run_interruptibly(lambda: stopped.wait() and 1 / 0, stopped.set)
    Traceback (most recent call last):
    ...
    rulewright.errors.TimeLimitError: stopped after 0.01 s; ask for something more selective
    """
    deadline, limit = _limit.get() or (None, 0.0)
    too_late = TimeLimitError(f"stopped after {limit:g} s; ask for something more selective")
    seconds = None if deadline is None else deadline - time.monotonic()
    if seconds is not None and seconds <= 0:
        raise too_late
    outcome = _Outcome(work)
    try:
        in_time = outcome.ended.wait(seconds)
    except BaseException:
        outcome.stop(interrupt)
        raise
    if not in_time:
        outcome.stop(interrupt)
        if outcome.error is not None:
            raise too_late from None
    if outcome.error is not None:
        raise outcome.error
    return outcome.result
