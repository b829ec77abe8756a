"""Work on many items, one after the other or in processes of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import current_process, get_context
from typing import Any, TypeVar

from rulewright.errors import DataError

_Shared = TypeVar("_Shared")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_WAY_OUT = "in a script, put what it does below `if __name__ == '__main__':`, or choose processes=1"

_own_work: tuple[Callable[[Any, Any], Any], Any] | None = None
"""In a process of a pool: what it does, and what all its items share."""


def work_in_processes(
    work: Callable[[_Shared, _Item], _Result], shared: _Shared, items: Sequence[_Item], processes: int
) -> Iterator[tuple[_Item, _Result]]:
    """Yield each item with ``work(shared, item)``, as they get done: in order where there is one process.

    Every process is given ``shared`` once and computes on one thread. ``work`` must stand in a module, to be
    found by name. Whoever stops asking for results stops the work: what has begun is finished, nothing else is begun.

    >>> list(work_in_processes(pow, 2, [3, 5], processes=1))
    [(3, 8), (5, 32)]
    """
    if getattr(current_process(), "_inheriting", False):  # it reads the program anew, and would start it anew
        raise DataError(f"this program starts processes while one of them reads it: {_WAY_OUT}")
    if processes == 1 or len(items) <= 1:
        for item in items:
            yield item, work(shared, item)
        return
    # a fork would copy the threads' locks, and then wait for them for ever
    pool = ProcessPoolExecutor(
        min(processes, len(items)), mp_context=get_context("spawn"), initializer=_prepare, initargs=(work, shared)
    )
    try:
        running = {pool.submit(_work_on, item): item for item in items}
        for future in as_completed(running):
            try:
                result = future.result()
            except BrokenProcessPool as error:
                raise DataError(f"a process of its own ended before its work was done: {_WAY_OUT}") from error
            yield running[future], result
    finally:
        pool.shutdown(cancel_futures=True)


def _prepare(work: Callable[[Any, Any], Any], shared: Any) -> None:
    global _own_work
    _own_work = work, shared
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


def _work_on(item: Any) -> Any:
    assert _own_work is not None
    work, shared = _own_work
    return work(shared, item)
