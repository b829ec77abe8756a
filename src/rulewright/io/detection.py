"""Which format a file or folder is in, by its name and its content."""

from __future__ import annotations

import os
import re
from pathlib import Path

from rulewright.files import STDIO, read_bytes

Source = str | os.PathLike[str]

SPLITS = ("train", "valid", "dev", "test")
"""The files of a folder that hold one split each; the first there is holds the main facts."""


_FACT_ENDINGS = {
    ".facts": "facts",
    ".db": "alchemy",
    ".tsv": "triples",
    ".csv": "triples",
    ".pl": "prolog",
    ".nt": "rdf",
    ".ttl": "rdf",
    ".parquet": "parquet",
    ".jsonl": "jsonl",
    **dict.fromkeys((".conll", ".train", ".testa", ".testb"), "conll"),
}
_RULE_ENDINGS = {".rules": "rules", ".mln": "mln", ".pl": "prolog-rules", ".jsonl": "jsonl-rules"}
_ANYBURL = re.compile(r"^\d+\t\d+\t[\d.eE+-]+\t.*\) *<=", re.MULTILINE)
_AMIE = re.compile(r"^[^\t\n]*\?\w+[^\t\n]*=>[^\t\n]*(\t|$)", re.MULTILINE)
_JSON_KIND = re.compile(r'"(?:(rule|formula|template)|predicate|entity)"\s*:')
_PROLOG_RULE = re.compile(r"^[^%\n]*\)\s*:-", re.MULTILINE)


def holds_rules(path: Path) -> bool:
    """Tell whether a file holds rules and not facts."""
    ending, name = plain_suffix(path), path.name.removesuffix(".gz")
    if ending in (".jsonl", ".pl"):
        found = _JSON_KIND.search(_start(path)) if ending == ".jsonl" else _PROLOG_RULE.search(_start(path))
        return found is not None and (ending == ".pl" or found[1] is not None)
    if ending in _RULE_ENDINGS or name == "rules" or "rules" in re.split(r"[_-]", Path(name).stem):
        return True
    if ending not in ("", ".txt", ".tsv") or not path.is_file():
        return False
    start = _start(path)
    return bool(_ANYBURL.search(start) or _AMIE.search(start))


def rule_format(path: Source) -> str:
    """Return the name of the format that a file of rules is in."""
    if os.fspath(path) == STDIO:
        return "rules"
    ending = plain_suffix(path)
    if ending in _RULE_ENDINGS:
        return _RULE_ENDINGS[ending]
    plain = Path(os.fspath(path).removesuffix(".gz"))
    if Path(path).is_dir() or (plain.name == "rules" and plain.with_name("predicates").exists()):
        return "mln-rules"
    start = _start(path)
    if re.search(r"^(\d+ )?\[.*\] *(->|[\w~])", start, re.MULTILINE):
        return "milr-rules"
    if _ANYBURL.search(start):
        return "anyburl"
    if _AMIE.search(start):
        return "amie"
    if re.search(r"^-?[\d.]+ .*\)\s+v\s+!?\w+\(", start, re.MULTILINE):
        return "mln-rules"
    return "rules"


def fact_format(path: Source) -> str | None:
    """Return the name of the format that a file or folder of facts is in, None where nothing tells."""
    return _folder_format(Path(path)) if Path(path).is_dir() else _file_format(Path(path))


def plain_suffix(path: Source) -> str:
    """Return the ending of a name, without ``.gz``."""
    return Path(os.fspath(path).removesuffix(".gz")).suffix


def _folder_format(folder: Path) -> str | None:
    names = {file.name.removesuffix(".gz") for file in folder.iterdir()}
    if {"predicates", "facts"} <= names:
        return "mln-folder"
    if {"objects.tsv", "relations.tsv"} <= names:
        return "scenes"
    if any(name.startswith("annotations_") and name.endswith(".json") for name in names):
        return "vrd"
    if names & {"training_data", "testing_data", "annotations"}:
        return "funsd"
    if conll_files(folder):
        return "conll"
    if split_files(folder, (".tsv", ".txt", ".csv")):
        return "triples"
    return "docred" if split_files(folder, (".json",)) else None


def _file_format(path: Path) -> str | None:
    ending = plain_suffix(path)
    if ending in _FACT_ENDINGS:
        return _FACT_ENDINGS[ending]
    start = _start(path)
    if re.match(r'\s*\{[^\n]*"(predicate|declare|entity|closed)"\s*:', start):
        return "jsonl"
    if ending == ".json" or start.lstrip()[:1] in ("[", "{"):
        return "funsd" if re.match(r'\s*\{\s*"form"', start) else "docred"
    line = next((line for line in start.splitlines() if line.strip() and not line.startswith(("%", "//"))), "")
    if re.match(r"(predicate|closed|shared|world|split|entity)\s", line) or re.search(
        r"\)\s*(in\s*\{.*\}\s*)?\.\s*(%.*)?$", line
    ):
        return "facts"
    if re.match(r"!?\w+\(.*\)\s*$", line):
        return "alchemy"
    if re.match(r"(-DOCSTART-\s|\S+ \S+ \S+ (O|[BIES]-\S+)$)", line):
        return "conll"
    return "triples" if line else None


def _start(path: Source) -> str:
    return read_bytes(path)[:65536].decode("utf-8", errors="replace")


def split_files(folder: Path, endings: tuple[str, ...]) -> dict[str, Path]:
    """Return the files of a folder that hold its splits: under ``""`` the main facts, under their name the others.

    A file belongs to a split when its name starts with it, as ``dev_revised.json`` with dev; a file ``graph`` holds
    the main facts, and then ``train`` is a split of queries.
    """
    found: dict[str, Path] = {}
    for split in ("graph", *SPLITS):
        for file in sorted(folder.iterdir()):
            plain = Path(file.name.removesuffix(".gz"))
            if plain.suffix in endings and re.split(r"[._-]", plain.stem)[0] == split and split not in found:
                found[split] = file
    main = next(iter(found), None)
    return {"" if split == main else split: file for split, file in found.items()}


def conll_files(folder: Path) -> dict[str, Path]:
    """Return the files ``eng.train``, ``eng.testa``, … of a folder, the training file as the main one."""
    files = {
        file.suffix[1:]: file for file in sorted(folder.iterdir()) if file.suffix in (".train", ".testa", ".testb")
    }
    return {"" if name == "train" else name: file for name, file in files.items()} if "train" in files else {}
