"""Fetch one file over HTTP: an interrupted transfer goes on where it stopped, and only verified bytes are kept."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rulewright.errors import FileError
from rulewright.files import file_error, write_bytes

if TYPE_CHECKING:
    from requests import RequestException, Session

ATTEMPTS = 4
FIRST_PAUSE_SECONDS = 0.25
TIMEOUT_SECONDS = 30.0
CHUNK_BYTES = 1 << 15
RANGE_NOT_SATISFIABLE = 416
TRANSIENT_STATUSES = frozenset({408, 429, 500, 502, 503, 504, RANGE_NOT_SATISFIABLE})


def part_path(target: Path) -> Path:
    """Return where the bytes of an unfinished transfer wait.

    >>> part_path(Path("umls/train.tsv")).name
    'train.tsv.part'
    """
    return target.with_name(f"{target.name}.part")


def fetch(
    session: Session,
    url: str,
    target: Path,
    *,
    size: int,
    sha256: str,
    progress: Callable[[int], None],
    resume: bool = True,
) -> None:
    """Bring the file at ``url`` to ``target``, which afterwards has exactly this SHA-256 or is as it was before.

    After failure i = 0, 1, 2 the next try waits ``0.25 · 2^i`` seconds; ``progress`` is called with the bytes so far.
    """
    part = part_path(target)
    try:
        part.parent.mkdir(parents=True, exist_ok=True)
        if not resume:
            part.unlink(missing_ok=True)
        _receive_with_retries(session, url, target, size=size, progress=progress)
        content = part.read_bytes()
        found = hashlib.sha256(content).hexdigest()
        if found == sha256:
            # The verified bytes are written anew, not renamed: another process may still be appending to the part.
            write_bytes(target, content)
        part.unlink(missing_ok=True)
    except FileError:
        raise
    except OSError as error:
        raise file_error("write", str(part), error) from None
    if found != sha256:
        raise FileError(
            f"wrong checksum from {url}: expected SHA-256 {sha256} ({size} bytes),"
            f" found {found} ({len(content)} bytes); what came was deleted"
        )


def _receive_with_retries(
    session: Session, url: str, target: Path, *, size: int, progress: Callable[[int], None]
) -> None:
    from requests import RequestException

    for attempt in range(ATTEMPTS):
        try:
            return _receive(session, url, part_path(target), size=size, progress=progress)
        except RequestException as error:
            if attempt + 1 == ATTEMPTS or not _is_transient(error):
                raise FileError(
                    f"cannot download {url}: {_reason(error)}; set RULEWRIGHT_DATA to a folder that has this file"
                    f" in the same layout, or download it by hand to {target}"
                ) from None
            time.sleep(FIRST_PAUSE_SECONDS * 2**attempt)


def _receive(session: Session, url: str, part: Path, *, size: int, progress: Callable[[int], None]) -> None:
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
        resumed = response.status_code == 206
        if not resumed:
            received = 0
        with part.open("ab" if resumed else "wb") as file:
            for chunk in response.iter_content(CHUNK_BYTES):
                file.write(chunk)
                received += len(chunk)
                if received > size:
                    return  # the checksum will refuse it; there is no need to take the rest
                progress(received)


def _is_transient(error: RequestException) -> bool:
    return error.response is None or error.response.status_code in TRANSIENT_STATUSES


def _reason(error: RequestException) -> str:
    from requests import exceptions

    if error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}"
    if isinstance(error, exceptions.Timeout):
        return f"no answer within {TIMEOUT_SECONDS:.0f} seconds"
    if isinstance(error, exceptions.SSLError):
        return "its certificate could not be verified"
    if isinstance(error, exceptions.ProxyError):
        return "the proxy could not be reached"
    if isinstance(error, exceptions.ChunkedEncodingError):
        return "the connection was cut"
    if isinstance(error, exceptions.ConnectionError):
        return "no connection"
    return " ".join(str(error).split())
