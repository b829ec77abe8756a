import hashlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rulewright.datasets import Dataset, DatasetFile, download, get, locate
from rulewright.datasets.catalogue import RAW_GITHUB
from rulewright.errors import FileError, UnknownNameError

BIG = bytes(range(256)) * 1600  # many chunks, so that half of it is worth resuming
SMALL = b"head\trelation\ttail\n"


@dataclass
class Served:
    """What the server offers, how it misbehaves, and which requests it has seen."""

    contents: dict[str, bytes]
    cut_after: list[int] = field(default_factory=list)  # one entry a request: bytes sent before the connection closes
    statuses: list[int] = field(default_factory=list)  # one entry a request: an error to answer with
    ranges: bool = True
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    address: str = ""


def handler(served: Served) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            asked = self.headers["Range"]
            served.requests.append((self.path, asked))
            content = served.contents.get(self.path.removeprefix("/"))
            if content is None:
                return self.send_error(404)
            if served.statuses:
                return self.send_error(served.statuses.pop(0))
            start = 0
            if asked is not None and served.ranges:
                start = int(asked.removeprefix("bytes=").removesuffix("-"))
                if start >= len(content):
                    return self.send_error(416)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
            else:
                self.send_response(200)
            body = content[start:]
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body[: served.cut_after.pop(0)] if served.cut_after else body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    return Handler


@pytest.fixture
def served() -> Iterator[Served]:
    offer = Served({"me/repo/c0ffee/big.bin": BIG, "me/repo/c0ffee/a%20b.tsv": SMALL})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler(offer)) as server:
        offer.address = f"http://127.0.0.1:{server.server_address[1]}/"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield offer
        server.shutdown()
        thread.join(timeout=10)


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Give each test its own empty cache, a small catalogue, no proxy, and no waiting."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(download, "cache_folder", lambda: folder)
    monkeypatch.setattr(download, "find", find_in_small_catalogue)
    monkeypatch.setattr(download, "FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.delenv("RULEWRIGHT_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return folder


def a_file(path: str, content: bytes, source: str | None) -> DatasetFile:
    url = None if source is None else f"{RAW_GITHUB}me/repo/c0ffee/{source}"
    return DatasetFile(path=path, url=url, size=len(content), sha256=hashlib.sha256(content).hexdigest())


def a_set(name: str, *files: DatasetFile, parts: tuple[str, ...] = ()) -> Dataset:
    return Dataset(
        name=name,
        title=name,
        description="For tests.",
        folder=f"kbc/{name}",
        parts=parts,
        statistics={},
        licence="none",
        citation="none",
        notes=(),
        files=files,
    )


SETS = {
    "one": a_set("one", a_file("kbc/one/big.bin", BIG, "big.bin")),
    "two": a_set(
        "two",
        a_file("kbc/two/S1/big.bin", BIG, "big.bin"),
        a_file("kbc/two/S2/small.tsv", SMALL, "a%20b.tsv"),
        parts=("S1", "S2"),
    ),
    "local": a_set(
        "local", a_file("kbc/local/small.tsv", SMALL, "a%20b.tsv"), a_file("kbc/local/mine.tsv", SMALL, None)
    ),
    "gone": a_set("gone", a_file("kbc/gone/gone.tsv", SMALL, "gone.tsv")),
}


def find_in_small_catalogue(name: str, part: str | None = None) -> tuple[Dataset, str | None]:
    set_name, _, named_part = name.partition("/")
    return SETS[set_name], part or named_part or None


def put(root: Path, *files: DatasetFile) -> None:
    for file in files:
        path = root / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(BIG if file.size == len(BIG) else SMALL)


def unused_address() -> str:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}/"


def only_error_line(error: pytest.ExceptionInfo[FileError]) -> str:
    text = str(error.value)
    assert "\n" not in text
    return text


def test_plain_download(served: Served, cache: Path) -> None:
    folder = get("one", base_url=served.address)
    assert folder == cache / "kbc" / "one"
    assert (folder / "big.bin").read_bytes() == BIG
    assert [path.name for path in folder.iterdir()] == ["big.bin"]
    assert served.requests == [("/me/repo/c0ffee/big.bin", None)]


def test_quoted_address_and_parts(served: Served, cache: Path) -> None:
    assert get("two/S2", base_url=served.address) == cache / "kbc" / "two" / "S2"
    assert served.requests == [("/me/repo/c0ffee/a%20b.tsv", None)]
    assert get("two", "S2", base_url=served.address) == locate("two", "S2") == cache / "kbc" / "two" / "S2"
    with pytest.raises(FileError, match=r"data set two is not complete here: no .*big\.bin of 409600 bytes"):
        locate("two")


def test_progress_counts_the_bytes_of_all_files(served: Served) -> None:
    seen: list[tuple[int, int, str]] = []
    get("two", progress=lambda stage, done, total: seen.append((done, total, stage)), base_url=served.address)
    done = [count for count, _, _ in seen]
    assert done == sorted(done)
    assert {total for _, total, _ in seen} == {len(BIG) + len(SMALL)}
    assert seen[-1] == (len(BIG) + len(SMALL), len(BIG) + len(SMALL), "kbc/two/S2/small.tsv")


@pytest.mark.parametrize("cuts", [[len(BIG) // 2], [len(BIG) // 2, len(BIG) // 4]])
def test_cut_connections_are_resumed(served: Served, cuts: list[int]) -> None:
    served.cut_after = list(cuts)
    folder = get("one", base_url=served.address)
    assert (folder / "big.bin").read_bytes() == BIG
    assert len(served.requests) == len(cuts) + 1
    starts = [int(asked.removeprefix("bytes=").removesuffix("-")) for _, asked in served.requests[1:] if asked]
    assert len(starts) == len(cuts)
    assert starts == sorted(set(starts))
    assert starts[0] > 0


def test_a_later_run_goes_on_where_an_earlier_one_stopped(served: Served, cache: Path) -> None:
    served.cut_after = [len(BIG) // 2] + [0] * (download.ATTEMPTS - 1)
    with pytest.raises(FileError, match="the connection was cut"):
        get("one", base_url=served.address)
    kept = (cache / "kbc/one/big.bin.part").stat().st_size
    assert kept > 0
    assert not (cache / "kbc/one/big.bin").exists()
    served.requests.clear()
    assert (get("one", base_url=served.address) / "big.bin").read_bytes() == BIG
    assert served.requests == [("/me/repo/c0ffee/big.bin", f"bytes={kept}-")]


def test_a_server_without_ranges_starts_over(served: Served) -> None:
    served.ranges = False
    served.cut_after = [len(BIG) // 2]
    folder = get("one", base_url=served.address)
    assert (folder / "big.bin").read_bytes() == BIG
    assert [asked is not None for _, asked in served.requests] == [False, True]


def test_a_finished_part_needs_no_request(served: Served, cache: Path) -> None:
    put(cache, SETS["one"].files[0])
    (cache / "kbc/one/big.bin").rename(cache / "kbc/one/big.bin.part")
    assert (get("one", base_url=served.address) / "big.bin").read_bytes() == BIG
    assert served.requests == []


def test_a_part_longer_than_the_file_is_dropped(served: Served, cache: Path) -> None:
    (cache / "kbc/one").mkdir(parents=True)
    (cache / "kbc/one/big.bin.part").write_bytes(BIG + b"more")
    assert (get("one", base_url=served.address) / "big.bin").read_bytes() == BIG
    assert served.requests == [("/me/repo/c0ffee/big.bin", None)]


@pytest.mark.parametrize("wrong", [BIG[:-1] + b"!", BIG[:-1], BIG + b"more"], ids=["other", "shorter", "longer"])
def test_a_wrong_checksum_is_refused_and_deleted(served: Served, cache: Path, wrong: bytes) -> None:
    served.contents["me/repo/c0ffee/big.bin"] = wrong
    with pytest.raises(FileError, match="wrong checksum") as error:
        get("one", base_url=served.address)
    text = only_error_line(error)
    assert f"{served.address}me/repo/c0ffee/big.bin" in text
    assert hashlib.sha256(BIG).hexdigest() in text
    assert hashlib.sha256(wrong[: len(BIG) + 4]).hexdigest() in text
    assert list((cache / "kbc/one").iterdir()) == []
    assert len(served.requests) == 1


def test_a_damaged_part_is_not_kept(served: Served, cache: Path) -> None:
    (cache / "kbc/one").mkdir(parents=True)
    (cache / "kbc/one/big.bin.part").write_bytes(b"damaged")
    with pytest.raises(FileError, match="wrong checksum"):
        get("one", base_url=served.address)
    assert (get("one", base_url=served.address) / "big.bin").read_bytes() == BIG


def test_a_part_that_the_server_cannot_continue_is_dropped(served: Served, cache: Path) -> None:
    served.contents["me/repo/c0ffee/big.bin"] = SMALL
    (cache / "kbc/one").mkdir(parents=True)
    (cache / "kbc/one/big.bin.part").write_bytes(BIG[: len(SMALL)])
    with pytest.raises(FileError, match="wrong checksum"):
        get("one", base_url=served.address)
    assert [asked for _, asked in served.requests] == [f"bytes={len(SMALL)}-", None]


def test_not_found_is_reported_at_once(served: Served, cache: Path) -> None:
    with pytest.raises(FileError) as error:
        get("gone", base_url=served.address)
    text = only_error_line(error)
    assert text.startswith(
        f"cannot download {served.address}me/repo/c0ffee/gone.tsv: the server answered 404 Not Found;"
    )
    assert len(served.requests) == 1


def test_a_busy_server_is_asked_again(served: Served) -> None:
    served.statuses = [503, 429]
    assert (get("one", base_url=served.address) / "big.bin").read_bytes() == BIG
    assert len(served.requests) == 3


def test_offline_error_names_address_place_and_ways_out(cache: Path) -> None:
    address = unused_address()
    with pytest.raises(FileError) as error:
        get("one", base_url=address)
    target = cache / "kbc" / "one" / "big.bin"
    assert only_error_line(error) == (
        f"cannot download {address}me/repo/c0ffee/big.bin: no connection; set RULEWRIGHT_DATA to a folder that has"
        f" this file in the same layout, or download it by hand to {target}"
    )


def test_a_cache_hit_makes_no_request(served: Served, cache: Path) -> None:
    put(cache, *SETS["two"].files)
    assert get("two", base_url=served.address) == locate("two") == cache / "kbc" / "two"
    assert served.requests == []


def test_only_wrong_files_are_fetched_again(served: Served, cache: Path) -> None:
    put(cache, *SETS["two"].files)
    (cache / "kbc/two/S2/small.tsv").write_bytes(SMALL.upper())
    get("two", base_url=served.address)
    assert (cache / "kbc/two/S2/small.tsv").read_bytes() == SMALL
    assert [path for path, _ in served.requests] == ["/me/repo/c0ffee/a%20b.tsv"]


def test_force_fetches_everything_from_the_start(served: Served, cache: Path) -> None:
    put(cache, *SETS["one"].files)
    (cache / "kbc/one/big.bin.part").write_bytes(b"old")
    get("one", force=True, base_url=served.address)
    assert served.requests == [("/me/repo/c0ffee/big.bin", None)]


def test_a_failed_force_leaves_the_old_file(served: Served, cache: Path) -> None:
    put(cache, *SETS["one"].files)
    served.contents.clear()
    with pytest.raises(FileError, match="404"):
        get("one", force=True, base_url=served.address)
    assert locate("one") == cache / "kbc/one"


def test_the_data_folder_is_preferred(
    served: Served, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(cache, *SETS["one"].files)
    put(tmp_path / "mine", *SETS["one"].files)
    monkeypatch.setenv("RULEWRIGHT_DATA", str(tmp_path / "mine"))
    assert locate("one") == get("one", base_url=served.address) == tmp_path / "mine" / "kbc" / "one"
    assert get("one", force=True, base_url=served.address) == cache / "kbc" / "one"


def test_an_incomplete_data_folder_falls_through_to_the_cache(
    served: Served, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RULEWRIGHT_DATA", str(tmp_path / "mine"))
    put(tmp_path / "mine", SETS["two"].files[0])
    with pytest.raises(FileError) as error:
        locate("two")
    text = only_error_line(error)
    assert str(tmp_path / "mine" / "kbc" / "two" / "S2" / "small.tsv") in text
    assert f"{RAW_GITHUB}me/repo/c0ffee/a%20b.tsv" in text
    assert get("two", base_url=served.address) == locate("two") == cache / "kbc" / "two"
    assert locate("two", "S1") == tmp_path / "mine" / "kbc" / "two" / "S1"


def test_locate_counts_a_truncated_file_as_missing(cache: Path) -> None:
    put(cache, *SETS["one"].files)
    (cache / "kbc/one/big.bin").write_bytes(SMALL)
    with pytest.raises(FileError, match="run 'rulewright data get one'"):
        locate("one")


def test_local_only_files_are_named_before_anything_is_fetched(served: Served, cache: Path) -> None:
    with pytest.raises(FileError) as from_get:
        get("local", base_url=served.address)
    with pytest.raises(FileError) as from_locate:
        locate("local")
    assert only_error_line(from_get) == only_error_line(from_locate)
    assert "kbc/local/mine.tsv, which is local only" in only_error_line(from_get)
    assert f"put it at {cache / 'kbc' / 'local' / 'mine.tsv'}" in only_error_line(from_get)
    assert served.requests == []


def test_a_local_only_file_put_in_its_place_completes_the_set(served: Served, cache: Path) -> None:
    put(cache, SETS["local"].files[1])
    assert get("local", force=True, base_url=served.address) == locate("local") == cache / "kbc" / "local"
    assert [path for path, _ in served.requests] == ["/me/repo/c0ffee/a%20b.tsv"]


def test_a_cache_that_cannot_be_written_is_named(served: Served, cache: Path) -> None:
    cache.write_text("a file where the folder should be")
    with pytest.raises(FileError, match=r"cannot write .*big\.bin\.part: Not a directory"):
        get("one", base_url=served.address)


def test_an_interrupt_keeps_the_part(served: Served, cache: Path) -> None:
    def interrupt(stage: str, done: int, total: int) -> None:
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        get("one", progress=interrupt, base_url=served.address)
    kept = (cache / "kbc/one/big.bin.part").stat().st_size
    assert kept > len(BIG) // 2
    get("one", base_url=served.address)
    assert served.requests[-1] == ("/me/repo/c0ffee/big.bin", f"bytes={kept}-")


def test_unknown_names_are_refused_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(UnknownNameError, match="unknown data set 'umsl'; did you mean 'umls'"):
        get("umsl")
    with pytest.raises(UnknownNameError, match="unknown part of cora 'S1/S2'"):
        locate("cora/S1", "S2")


def test_importing_is_cheap() -> None:
    code = "import sys, rulewright.datasets; print({'requests', 'pooch', 'torch'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert result.stdout.strip() == "set()"
