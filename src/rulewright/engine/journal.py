"""What of a long run is done: a journal of its statements, so that a run that was killed goes on after the last one.

A section of work is a sequence of operations that follows from its key and from the results of earlier ones. Each has a
digest of all before it; a run that is begun again meets the same digests in the same order, takes results from the
journal, and leaves tables as they are, until it comes to an operation that the journal does not know.
"""

from __future__ import annotations

import hashlib
import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rulewright.errors import DataError

Columns = dict[str, npt.NDArray[Any]]


class JournalStep(NamedTuple):
    """An operation that is done: what it was, on which table, and what it returned."""

    digest: str
    action: str
    table: str
    result: Columns | None = None
    detail: str = ""


class Journal(ABC):
    """The steps of one section of work; who keeps it somewhere implements how."""

    def __init__(self) -> None:
        self.key = ""
        self.steps: list[JournalStep] = []
        self._position, self._digest = 0, ""

    @property
    def is_replaying(self) -> bool:
        """Whether the next operation may be one that is done."""
        return self._position < len(self.steps)

    def begin(self, key: str) -> bool:
        """Begin a section; returns whether it is the one that the journal holds."""
        self._position, self._digest = 0, key
        return key == self.key

    def restart(self, key: str) -> None:
        """Hold another section, of which nothing is done."""
        self._clear(key)
        self.key, self.steps = key, []
        self.begin(key)

    def forget(self) -> None:
        """Let go of what is done; its steps stay known, so that their tables are let go when a section begins."""
        self._clear("")
        self.key = ""

    def tables(self) -> list[str]:
        """Return the tables that the section has made."""
        return [*dict.fromkeys(step.table for step in self.steps if step.action in ("put", "create", "append"))]

    def follow(self, action: str, table: str, text: str) -> JournalStep | None:
        """Return the next operation where it is done, None where it is to be done now."""
        said = "\0".join((self._digest, action, table, text))
        self._digest = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
        if not self.is_replaying:
            return None
        step = self.steps[self._position]
        if step.digest != self._digest:
            self.forget()
            raise DataError(
                f"what was kept of this run does not fit it at step {self._position + 1} and is let go; "
                "the same call begins it anew"
            )
        self._position += 1
        return step

    @contextmanager
    def writing(
        self, action: str, table: str, describe: Callable[[str], str]
    ) -> Iterator[Callable[[Columns | None], Columns | None]]:
        """Note an operation that is done inside; the function that is given takes what it returned."""

        def keep(result: Columns | None) -> Columns | None:
            step = JournalStep(self._digest, action, table, result, describe(table) if table else "")
            self._write(step)
            self.steps.append(step)
            self._position = len(self.steps)
            return result

        with self._transaction():
            yield keep

    @abstractmethod
    def _clear(self, key: str) -> None:
        """Forget all steps, and keep the key of a new section."""

    @abstractmethod
    def _write(self, step: JournalStep) -> None:
        """Keep a step."""

    @abstractmethod
    def _transaction(self) -> Any:
        """Return a context in which what is done and that it is noted happen both or not at all."""


def hash_columns(columns: Mapping[str, npt.NDArray[Any]]) -> str:
    """Return a digest of columns.

    >>> one, other = ({"a": np.array([1, 2, last])} for last in (3, 4))
    >>> hash_columns(one) == hash_columns(dict(one)), hash_columns(one) == hash_columns(other)
    (True, False)
    """
    digest = hashlib.sha256()
    for name, column in columns.items():
        plain = np.ascontiguousarray(column)
        digest.update(f"{name}:{plain.dtype}:{len(plain)}".encode())
        digest.update("\0".join(map(str, plain)).encode() if plain.dtype == object else plain.tobytes())
    return digest.hexdigest()


def pack_columns(columns: Columns | None) -> bytes | None:
    """Write columns as bytes; None stays None.

    >>> unpack_columns(pack_columns({"n": np.array([1, 2])}))
    {'n': array([1, 2])}
    """
    if columns is None:
        return None
    buffer = io.BytesIO()
    plain = {name: column.astype(str) if column.dtype == object else column for name, column in columns.items()}
    np.savez_compressed(buffer, **plain)  # type: ignore[arg-type]
    return buffer.getvalue()


def unpack_columns(packed: bytes | None) -> Columns | None:
    """Read what `pack_columns` wrote; nothing in it is executed."""
    if packed is None:
        return None
    with np.load(io.BytesIO(packed), allow_pickle=False) as columns:
        return {name: columns[name] for name in columns.files}
