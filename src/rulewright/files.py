"""Reading and writing whole files: compressed or not, always decoded, never half written."""

from __future__ import annotations

import gzip
import json
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from rulewright.errors import FileError, ParseError

STDIO = "-"

_NUMBERS = re.compile(r"\[\n([^\[\]{}\"]*)\]")
"""A list of numbers, truth values and nulls over several lines of JSON; in a text no line ends."""


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return a file's bytes, decompressed if it is gzip by content; ``-`` is standard input."""
    name = os.fspath(path)
    try:
        content = sys.stdin.buffer.read() if name == STDIO else Path(name).read_bytes()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ParseError(f"not a complete gzip file: {error}", file=name) from None
    except (OSError, ValueError) as error:  # a name with a NUL is a ValueError
        raise file_error("read", name, error) from None


def read_start(path: str | os.PathLike[str], size: int = 65536) -> str:
    """Return the text at the start of a file, as well as it can be decoded: enough to tell what it holds."""
    name = os.fspath(path)
    try:
        with Path(name).open("rb") as file:
            content = file.read(size)
        if content[:2] == b"\x1f\x8b":
            content = zlib.decompressobj(wbits=31).decompress(content, size)
    except zlib.error as error:
        raise ParseError(f"not a complete gzip file: {error}", file=name) from None
    except (OSError, ValueError) as error:
        raise file_error("read", name, error) from None
    is_wide = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    return content.decode("utf-16" if is_wide else "utf-8-sig", errors="replace")


def read_text(path: str | os.PathLike[str]) -> str:
    """Return a file's text: UTF-8 (a byte-order mark is dropped) or UTF-16 with a mark; anything else is an error."""
    return decode(read_bytes(path), file=os.fspath(path))


def decode(content: bytes, *, file: str) -> str:
    r"""Decode text, naming the line of the first byte that is not.

    >>> decode(b"caf\xc3\xa9", file="a.tsv")
    'café'
    >>> decode(b"ok\ncaf\xe9", file="a.tsv")
    Traceback (most recent call last):
    ...
    rulewright.errors.ParseError: a.tsv:2: byte 0xe9 is not UTF-8 text; convert the file, e.g. iconv -f latin1 -t utf-8
    """
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        try:
            return content.decode("utf-16").replace("\r\n", "\n")
        except UnicodeDecodeError:
            raise ParseError("neither UTF-8 nor UTF-16 text", file=file) from None
    if b"\x00" in content[:8192]:
        raise ParseError("a binary file, not text", file=file)
    try:
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        byte = content[error.start]
        raise ParseError(
            f"byte 0x{byte:02x} is not UTF-8 text; convert the file, e.g. iconv -f latin1 -t utf-8",
            file=file,
            line=line,
        ) from None


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a file in one step: a reader sees the old content or the new, never a part; ``-`` is standard output."""
    name = os.fspath(path)
    if name == STDIO:
        sys.stdout.write(text)
        return
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        raise FileError(f"cannot write {name}: {text[error.start]!r} is half of a character") from None
    write_bytes(name, gzip.compress(content, mtime=0) if name.endswith(".gz") else content)


def write_json(path: str | os.PathLike[str], value: object) -> None:
    r"""Write figures as JSON, a line for each entry but only one for a list of numbers, as a person reads them.

    >>> write_json(folder / "figures.json", {"name": "a", "f1": [0.5, 0.25]})
    >>> (folder / "figures.json").read_text()
    '{\n "name": "a",\n "f1": [0.5, 0.25]\n}\n'
    """
    text = json.dumps(value, indent=1, ensure_ascii=False)
    write_text(path, _NUMBERS.sub(lambda found: f"[{' '.join(found[1].split())}]", text) + "\n")


def write_bytes(path: str | os.PathLike[str], content: bytes) -> None:
    """Write bytes to a file in one step; a link is followed, and a device or a pipe is written to as it is."""
    temporary = ""
    try:
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file() and not target.is_dir():
            target.write_bytes(content)
            return
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            temporary = file.name
            file.write(content)
        mode = target.stat().st_mode & 0o7777 if target.exists() else 0o666 & ~_umask()
        Path(temporary).chmod(mode)
        Path(temporary).replace(target)
        temporary = ""
    except (OSError, ValueError) as error:
        raise file_error("write", os.fspath(path), error) from None
    finally:
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def check_output(path: str | os.PathLike[str], *, inputs: Iterable[str | os.PathLike[str]] = ()) -> None:
    """Refuse a file that could not be written, and one of the ``inputs``, before any work is done for it.

    >>> _ = (folder / "graph.tsv").write_text("")
    >>> check_output(folder / "new.tsv", inputs=[folder / "graph.tsv"])
    >>> check_output("graph.tsv", inputs=["../" + Path.cwd().name + "/graph.tsv"])
    Traceback (most recent call last):
    ...
    rulewright.errors.FileError: cannot write graph.tsv: it is what is read, and would be lost; name another file
    """
    name = os.fspath(path)
    if name == STDIO:
        return
    try:
        target = Path(os.path.realpath(path))
        problem = _find_problem(target)
        if any(os.fspath(source) != STDIO and _is_same(target, source) for source in inputs):
            problem = "it is what is read, and would be lost; name another file"
    except (OSError, ValueError) as error:
        raise file_error("write", name, error) from None
    if problem:
        raise FileError(f"cannot write {name}: {problem}")


def _find_problem(target: Path) -> str:
    if target.is_dir():
        return "it is a folder; name a file in it"
    if not target.parent.is_dir():
        return f"{target.parent} is not a folder" if target.parent.exists() else f"there is no folder {target.parent}"
    if target.exists() and not os.access(target, os.W_OK):
        return "it is read-only"
    if not target.exists() and not os.access(target.parent, os.W_OK | os.X_OK):
        return f"the folder {target.parent} is read-only"
    return ""


def _is_same(target: Path, source: str | os.PathLike[str]) -> bool:
    """Tell whether two names are one file, through links too."""
    if target.exists() and Path(source).exists():
        return target.samefile(source)
    return target == Path(os.path.realpath(source))


def file_error(action: str, name: str, error: OSError | ValueError) -> FileError:
    """Turn an error of the operating system into one line: what could not be done, to which file, and why."""
    reason = error.strerror if isinstance(error, OSError) and error.strerror else error
    return FileError(f"cannot {action} {name!r}: {reason}" if "\0" in name else f"cannot {action} {name}: {reason}")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
