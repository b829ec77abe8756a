"""Find the files of a data set on this machine, and download the ones that are missing."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from rulewright.datasets.catalogue import RAW_GITHUB, Dataset, DatasetFile, find
from rulewright.datasets.transfer import fetch
from rulewright.errors import FileError
from rulewright.files import file_error

Progress = Callable[[int, int, str], None]


def data_folder() -> Path | None:
    """Return the folder that the environment variable RULEWRIGHT_DATA names, or None.

    >>> from unittest.mock import patch
    >>> with patch.dict("os.environ", RULEWRIGHT_DATA="my/data"):
    ...     data_folder().as_posix()
    'my/data'
    """
    named = os.environ.get("RULEWRIGHT_DATA")
    return Path(named).expanduser() if named else None


def cache_folder() -> Path:
    """Return the folder for downloaded files: this user's cache, by the conventions of the operating system.

    >>> "rulewright" in cache_folder().parts
    True
    """
    import pooch

    return Path(pooch.os_cache("rulewright"))


def locate(name: str, part: str | None = None) -> Path:
    """Return the folder of a data set or one of its parts, all of whose files are there with the right size.

    The folder RULEWRIGHT_DATA comes first, then the cache; nothing is downloaded.

    >>> locate("kinship_mln", "S1")  # doctest: +SKIP
    PosixPath('.../mln/kinship/S1')
    >>> locate("kinship_mln", "S3")
    Traceback (most recent call last):
    ...
    rulewright.errors.UnknownNameError: unknown part of kinship_mln 'S3'; known: S1, S2, S4
    """
    dataset, part = _find(name, part)
    files = dataset.files_of(part)
    for root in _roots():
        if not _absent(root, files):
            return root / dataset.folder_of(part)
    raise _not_here(dataset, part)


def get(
    name: str,
    part: str | None = None,
    *,
    progress: Progress | None = None,
    force: bool = False,
    base_url: str = RAW_GITHUB,
) -> Path:
    """Return the folder of a data set, after downloading what is missing into the cache.

    A complete copy below RULEWRIGHT_DATA is used as it is. In the cache, files with the right checksum stay and the
    rest is fetched; an interrupted download goes on where it stopped. ``force`` fetches every file into the cache anew.
    ``progress(done, total, path)`` counts the bytes of all files to fetch. ``base_url`` stands in for GitHub's address.

    >>> get("umls")  # doctest: +SKIP
    PosixPath('.../kbc/umls')
    >>> get("uml")
    Traceback (most recent call last):
    ...
    rulewright.errors.UnknownNameError: unknown data set 'uml'; did you mean 'umls'?
    """
    dataset, part = _find(name, part)
    files = dataset.files_of(part)
    given = data_folder()
    if given is not None and not force and not _absent(given, files):
        return given / dataset.folder_of(part)
    cache = cache_folder()
    wanted: list[tuple[str, DatasetFile]] = []
    for file in files:
        if (force and file.url is not None) or not _is_right(cache / file.path, file):
            if file.url is None:
                raise _local_only(dataset, file, cache)
            wanted.append((f"{base_url.rstrip('/')}/{file.url.removeprefix(RAW_GITHUB)}", file))
    if wanted:
        _fetch_all(wanted, cache, progress=progress, resume=not force)
    return cache / dataset.folder_of(part)


def _find(name: str, part: str | None) -> tuple[Dataset, str | None]:
    return find(name if part is None else f"{name}/{part}")


def _roots() -> Iterator[Path]:
    given = data_folder()
    if given is not None:
        yield given
    yield cache_folder()


def _absent(root: Path, files: Iterable[DatasetFile]) -> list[DatasetFile]:
    return [file for file in files if not _has_size(root / file.path, file.size)]


def _has_size(path: Path, size: int) -> bool:
    return path.is_file() and path.stat().st_size == size


def _is_right(path: Path, expected: DatasetFile) -> bool:
    if not _has_size(path, expected.size):
        return False
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == expected.sha256
    except OSError as error:
        raise file_error("read", str(path), error) from None


def _fetch_all(wanted: list[tuple[str, DatasetFile]], cache: Path, *, progress: Progress | None, resume: bool) -> None:
    import requests

    total = sum(file.size for _, file in wanted)
    before = 0
    # One session, so that a set of many small files does not open a connection for each.
    with requests.Session() as session:
        for url, file in wanted:

            def report(received: int, path: str = file.path, before: int = before) -> None:
                if progress is not None:
                    progress(before + received, total, path)

            fetch(session, url, cache / file.path, size=file.size, sha256=file.sha256, progress=report, resume=resume)
            before += file.size


def _not_here(dataset: Dataset, part: str | None) -> FileError:
    # Of the places searched, the one that lacks least is most likely the one that was meant.
    lacking = {root: _absent(root, dataset.files_of(part)) for root in _roots()}
    root, absent = min(lacking.items(), key=lambda item: len(item[1]))
    for file in absent:
        if file.url is None:
            return _local_only(dataset, file, root)
    name = dataset.name if part is None else f"{dataset.name}/{part}"
    first = absent[0]
    others = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
    return FileError(
        f"data set {name} is not complete here: no {root / first.path} of {first.size} bytes (from {first.url})"
        f"{others}; run 'rulewright data get {name}', or set RULEWRIGHT_DATA to a folder that has it in the same layout"
    )


def _local_only(dataset: Dataset, file: DatasetFile, root: Path) -> FileError:
    return FileError(
        f"data set {dataset.name} needs {file.path}, which is local only (no public address): put it at"
        f" {root / file.path} ({file.size} bytes, SHA-256 {file.sha256}),"
        " or set RULEWRIGHT_DATA to a folder that has it in the same layout"
    )
