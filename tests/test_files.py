from __future__ import annotations

import gzip
import os

import pytest

from rulewright.errors import FileError, ParseError
from rulewright.files import check_output, read_bytes, read_text, write_text


def test_round_trip_plain_and_compressed(tmp_path):
    for name in ("a.txt", "a.txt.gz"):
        write_text(tmp_path / name, "ä\n'b'\n")
        assert read_text(tmp_path / name) == "ä\n'b'\n"
    assert gzip.decompress((tmp_path / "a.txt.gz").read_bytes()) == "ä\n'b'\n".encode()


@pytest.mark.parametrize("content", ["ä\r\nb".encode("utf-8-sig"), "ä\r\nb".encode("utf-16")])
def test_marks_and_line_ends(tmp_path, content):
    (tmp_path / "a").write_bytes(content)
    assert read_text(tmp_path / "a") == "ä\nb"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a\nb\xff", "a:2: byte 0xff is not UTF-8 text"),
        (b"\x89PNG\x00", "a: a binary file, not text"),
        (b"\xff\xfe\x00", "a: neither UTF-8 nor UTF-16 text"),
        (gzip.compress(b"x" * 1000, mtime=0)[:-9], "a: not a complete gzip file"),
        (gzip.compress(b"x" * 1000, mtime=0)[:12] + b"\xff" * 20, "a: not a complete gzip file"),
        (b"\x1f\x8bnothing", "a: not a complete gzip file"),
    ],
)
def test_what_is_not_text_says_so(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(ParseError) as caught:
        read_text("a")
    assert str(caught.value).startswith(message)


def test_impossible_names_and_characters(tmp_path):
    for name in ("no\0name", tmp_path, tmp_path / "none" / "x"):
        with pytest.raises(FileError, match="cannot read"):
            read_bytes(name)
        with pytest.raises(FileError, match="cannot write"):
            write_text(name, "x")
    with pytest.raises(FileError, match="half of a character"):
        write_text(tmp_path / "x", "\ud800")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "a.rules"
    write_text(path, "old")
    path.chmod(0o640)

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("pathlib.Path.replace", fail)
        with pytest.raises(FileError, match="No space left"):
            write_text(path, "new")
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.rules"]  # noqa: PTH208
    write_text(path, "new")
    assert path.read_text() == "new"
    assert path.stat().st_mode & 0o777 == 0o640


def test_links_are_followed_and_devices_stay_devices(tmp_path):
    (tmp_path / "real.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to("real.txt")
    write_text(tmp_path / "link.txt", "new")
    assert (tmp_path / "link.txt").is_symlink() and (tmp_path / "real.txt").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_text(tmp_path / "pipe", "through")
    assert os.read(reader, 99) == b"through"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo()


def test_outputs_are_checked_before_they_are_written(tmp_path, monkeypatch):
    check_output("-", inputs=["-"])
    check_output(tmp_path / "new")
    with pytest.raises(FileError, match="cannot write"):
        check_output("no\0name")
    (tmp_path / "old").write_text("")
    check_output(tmp_path / "old", inputs=["-", tmp_path / "other"])
    with pytest.raises(FileError, match="it is what is read"):
        check_output(tmp_path / "old", inputs=[tmp_path / "old"])
    monkeypatch.setattr(os, "access", lambda *_: False)  # whoever may do everything is refused nothing
    with pytest.raises(FileError, match=r"old: it is read-only$"):
        check_output(tmp_path / "old")
    with pytest.raises(FileError, match=rf"new: the folder {tmp_path} is read-only$"):
        check_output(tmp_path / "new")
    assert os.listdir(tmp_path) == ["old"]  # noqa: PTH208
