"""Work inside a library that holds the thread it runs in, made to end by Ctrl-C and by a limit of time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from rulewright.errors import TimeLimitError

_Result = TypeVar("_Result")
_PATIENCE = 0.05
"""Seconds after which work that was told to stop is told again: what has not begun yet does not hear it."""


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


def run_interruptibly(
    work: Callable[[], _Result], interrupt: Callable[[], None], *, seconds: float | None = None
) -> _Result:
    """Return what ``work()`` returns; Ctrl-C and, after so many ``seconds``, a `TimeLimitError` end it.

    The work runs in a thread of its own while this one waits, since Python hears of a signal only between its own
    instructions. ``interrupt`` is called from here until the work has ended and must make it raise something.

    >>> run_interruptibly(lambda: 6 * 7, lambda: None, seconds=1)
    42
    >>> stopped = threading.Event()
    >>> run_interruptibly(lambda: stopped.wait() and 1 / 0, stopped.set, seconds=0.01)
    Traceback (most recent call last):
    ...
    rulewright.errors.TimeLimitError: stopped after 0.01 s
    """
    outcome = _Outcome(work)
    try:
        in_time = outcome.ended.wait(seconds)
    except BaseException:
        outcome.stop(interrupt)
        raise
    if not in_time:
        outcome.stop(interrupt)
        if outcome.error is not None:
            raise TimeLimitError(f"stopped after {seconds:.3g} s") from None
    if outcome.error is not None:
        raise outcome.error
    return outcome.result
