"""The named data sets: what each one is, where its files come from, and under which terms."""

from __future__ import annotations

import csv
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as packaged
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

from rulewright.errors import DataError, unknown_name

RAW_GITHUB = "https://raw.githubusercontent.com/"


@dataclass(frozen=True, kw_only=True)
class DatasetFile:
    """One file of a data set: its path below the data folder, its address and its checksum.

    A file without an address is local only: it exists nowhere in public byte for byte.

    >>> DatasetFile(path="../secret", url=None, size=1, sha256="00")
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: a data file must lie inside the data folder, got '../secret'
    """

    path: str
    url: str | None
    size: int
    sha256: str

    def __post_init__(self) -> None:
        path = PurePosixPath(self.path)
        # A backslash or a colon would be a separator or a drive on Windows, and so a way out of the folder there.
        if not path.parts or path.is_absolute() or ".." in path.parts or set(self.path) & set("\\:\0"):
            raise DataError(f"a data file must lie inside the data folder, got {self.path!r}")


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """A named data set; ``folder`` is its path below the data folder and ``parts`` are folders inside that.

    >>> kinship = catalogue()["kinship_mln"]
    >>> kinship.parts, kinship.statistics["S1/people"]
    (('S1', 'S2', 'S4'), 52)
    """

    name: str
    title: str
    description: str
    folder: str
    parts: tuple[str, ...]
    statistics: Mapping[str, int]
    licence: str
    citation: str
    notes: tuple[str, ...]
    files: tuple[DatasetFile, ...]

    def folder_of(self, part: str | None) -> str:
        """Return the folder of one part, or of the whole set.

        >>> catalogue()["uw_cse"].folder_of("ai")
        'mln/uw_cse/ai'
        """
        return self.folder if part is None else f"{self.folder}/{part}"

    def files_of(self, part: str | None) -> tuple[DatasetFile, ...]:
        """Return the files of one part, or of the whole set.

        >>> [file.path for file in catalogue()["uw_cse"].files_of("ai")][:2]
        ['mln/uw_cse/ai/facts', 'mln/uw_cse/ai/predicates']
        """
        if part is None:
            return self.files
        return tuple(file for file in self.files if _lies_in(file, self.folder_of(part)))


@cache
def catalogue() -> Mapping[str, Dataset]:
    """Return every named data set.

    >>> umls = catalogue()["umls"]
    >>> umls.title, umls.folder, umls.statistics["entities"]
    ('UMLS semantic network', 'kbc/umls', 135)
    """
    tables = tomllib.loads(_packaged_text("catalogue.toml"))
    files = _files()
    return MappingProxyType({name: _dataset(name, table, files) for name, table in tables.items()})


def find(name: str, part: str | None = None) -> tuple[Dataset, str | None]:
    """Return the data set of a name and the part, given apart or in the name as ``name/part``.

    >>> dataset, part = find("kinship_mln/S1")
    >>> dataset.folder, part
    ('mln/kinship', 'S1')
    >>> find("wn18r")
    Traceback (most recent call last):
    ...
    rulewright.errors.UnknownNameError: unknown data set 'wn18r'; did you mean 'wn18rr' or 'wn18'?
    """
    set_name, slash, part = (name if part is None else f"{name}/{part}").partition("/")
    known = catalogue()
    if set_name not in known:
        raise unknown_name("data set", set_name, known)
    dataset = known[set_name]
    if not slash:
        return dataset, None
    if part not in dataset.parts:
        raise unknown_name(f"part of {set_name}", part, dataset.parts)
    return dataset, part


def _dataset(name: str, table: Mapping[str, Any], files: tuple[DatasetFile, ...]) -> Dataset:
    folders = (table["folder"], *table.get("extra_folders", ()))
    return Dataset(
        name=name,
        title=table["title"],
        description=table["description"],
        folder=table["folder"],
        parts=tuple(table.get("parts", ())),
        statistics=MappingProxyType(table["statistics"]),
        licence=table["licence"],
        citation=table["citation"],
        notes=tuple(table["notes"]),
        files=tuple(file for file in files if any(_lies_in(file, folder) for folder in folders)),
    )


def _files() -> tuple[DatasetFile, ...]:
    rows = csv.DictReader(_packaged_text("files.tsv").splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE)
    return tuple(
        DatasetFile(path=row["path"], url=_address(row), size=int(row["bytes"]), sha256=row["sha256"]) for row in rows
    )


def _address(row: Mapping[str, str]) -> str | None:
    if not row["repository"]:
        return None
    return f"{RAW_GITHUB}{row['repository']}/{row['commit']}/{quote(row['repository_path'])}"


def _lies_in(file: DatasetFile, folder: str) -> bool:
    return file.path.startswith(f"{folder}/")


def _packaged_text(name: str) -> str:
    return packaged("rulewright.datasets").joinpath(name).read_text(encoding="utf-8")
