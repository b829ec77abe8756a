"""Find the files of a data set on this machine, and download the ones that are missing."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from rulewright.checks import Progress
from rulewright.datasets.catalogue import RAW_GITHUB, Dataset, DatasetFile, find
from rulewright.errors import FileError
from rulewright.files import file_error, write_bytes

if TYPE_CHECKING:
    from requests import RequestException, Session

ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.25
TIMEOUT_SECONDS = 30.0
CHUNK_BYTES = 1 << 15
PARTIAL_CONTENT, RANGE_NOT_SATISFIABLE = 206, 416
TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504, RANGE_NOT_SATISFIABLE})


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
    dataset, part = find(name, part)
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
    rest is fetched; a file that was cut off goes on where it stopped. ``force`` fetches every file anew. ``progress``
    counts the bytes of all files to fetch, its stage is the file. ``base_url`` stands in for GitHub's address.

    >>> get("umls")  # doctest: +SKIP
    PosixPath('.../kbc/umls')
    >>> get("uml")
    Traceback (most recent call last):
    ...
    rulewright.errors.UnknownNameError: unknown data set 'uml'; did you mean 'umls'?
    """
    dataset, part = find(name, part)
    files = dataset.files_of(part)
    own_folder = data_folder()
    if own_folder is not None and not force and not _absent(own_folder, files):
        return own_folder / dataset.folder_of(part)
    cache = cache_folder()
    wanted: list[tuple[str, DatasetFile]] = []
    for file in files:
        if (force and file.url is not None) or not _is_right(cache / file.path, file):
            if file.url is None:
                raise _local_only(dataset, file, cache)
            if force:
                (cache / f"{file.path}.part").unlink(missing_ok=True)
            wanted.append((f"{base_url.rstrip('/')}/{file.url.removeprefix(RAW_GITHUB)}", file))
    if wanted:
        _fetch_all(wanted, cache, progress)
    return cache / dataset.folder_of(part)


def _roots() -> list[Path]:
    own_folder = data_folder()
    return [cache_folder()] if own_folder is None else [own_folder, cache_folder()]


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


def _fetch_all(wanted: list[tuple[str, DatasetFile]], cache: Path, progress: Progress | None) -> None:
    import requests

    total = sum(file.size for _, file in wanted)
    before = 0
    # One session, so that a set of many small files does not open a connection for each.
    with requests.Session() as session:
        for url, file in wanted:

            def report(received: int, path: str = file.path, before: int = before) -> None:
                if progress is not None:
                    progress(path, before + received, total)

            _fetch(session, url, cache / file.path, size=file.size, sha256=file.sha256, report=report)
            before += file.size


def _fetch(session: Session, url: str, target: Path, *, size: int, sha256: str, report: Callable[[int], None]) -> None:
    """Bring a file to ``target``, which afterwards has exactly this SHA-256 or is as it was before.

    What has come so far waits in ``target.part``: the next try, or the next run, goes on from there. After failure
    i = 0, 1, 2 the next try waits ``0.25 · 2^i`` seconds; ``report`` is called with the bytes so far.
    """
    part = target.with_name(f"{target.name}.part")
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        _receive_with_retries(session, url, part, size=size, report=report)
        content = part.read_bytes()
        checksum = hashlib.sha256(content).hexdigest()
        if checksum == sha256:
            # The verified bytes are written anew, not renamed: another process may still be appending to the part.
            write_bytes(target, content)
        part.unlink(missing_ok=True)
    except FileError:
        raise
    except OSError as error:
        raise file_error("write", str(part), error) from None
    if checksum != sha256:
        raise FileError(
            f"wrong checksum from {url}: expected SHA-256 {sha256} ({size} bytes),"
            f" got {checksum} ({len(content)} bytes); what came is not kept"
        )


def _receive_with_retries(session: Session, url: str, part: Path, *, size: int, report: Callable[[int], None]) -> None:
    from requests import RequestException

    for attempt in range(ATTEMPTS):
        try:
            return _receive(session, url, part, size=size, report=report)
        except RequestException as error:
            is_transient = error.response is None or error.response.status_code in TRANSIENT_STATUSES
            if attempt + 1 == ATTEMPTS or not is_transient:
                raise FileError(
                    f"cannot download {url}: {_explain_failure(error)}; set RULEWRIGHT_DATA to a folder that has this"
                    f" file in the same layout, or download it by hand to {part.with_suffix('')}"
                ) from None
            time.sleep(FIRST_PAUSE_SECONDS * 2**attempt)


def _receive(session: Session, url: str, part: Path, *, size: int, report: Callable[[int], None]) -> None:
    received = part.stat().st_size if part.exists() else 0
    if received == size:
        return
    # Compressed in transit, the offsets of a resumed transfer would not be offsets into the file.
    headers = {"Accept-Encoding": "identity"}
    if 0 < received < size:
        headers["Range"] = f"bytes={received}-"
    with session.get(url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS) as response:
        if response.status_code == RANGE_NOT_SATISFIABLE:
            part.unlink(missing_ok=True)
        response.raise_for_status()
        is_resumed = response.status_code == PARTIAL_CONTENT
        received = received if is_resumed else 0
        with part.open("ab" if is_resumed else "wb") as file:
            for chunk in response.iter_content(CHUNK_BYTES):
                file.write(chunk)
                received += len(chunk)
                if received > size:
                    return  # the checksum will refuse it; there is no need to take the rest
                report(received)


def _explain_failure(error: RequestException) -> str:
    from requests import exceptions

    if error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    reasons = {
        exceptions.Timeout: f"no answer within {TIMEOUT_SECONDS:.0f} seconds",
        exceptions.SSLError: "its certificate could not be verified",
        exceptions.ProxyError: "the proxy could not be reached",
        exceptions.ChunkedEncodingError: "the connection was cut",
        exceptions.ConnectionError: "no connection",
    }
    shown = (reason for failure, reason in reasons.items() if isinstance(error, failure))
    return next(shown, " ".join(str(error).split()))


def availability(entry: Dataset) -> str:
    """Tell where a data set is: ``local`` (RULEWRIGHT_DATA), ``cached``, ``download`` or ``local only``.

    >>> from rulewright.datasets import catalogue
    >>> availability(catalogue()["vrd"]) in ("local", "cached", "local only")
    True
    """
    try:
        folder, *_ = [locate(entry.name, part) for part in entry.parts or (None,)]
    except FileError:
        return "local only" if any(file.url is None for file in entry.files) else "download"
    own_folder = data_folder()
    return "local" if own_folder is not None and own_folder in folder.parents else "cached"


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
