"""Which files of a folder hold facts, to which split each belongs, and why the others are left out."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from rulewright.errors import RulewrightError
from rulewright.files import read_start
from rulewright.io.delimited import find_delimiter
from rulewright.io.formats import FACT_FORMATS, RULE_FORMATS, holds_rules, plain_suffix, shorten_list

_SPLITS = ("graph", "train", "valid", "dev", "test")  # the first there is holds the main facts
_FACTS = "facts"  # such a file holds main facts too, whatever stands beside it
_DELIMITED = (".tsv", ".csv", ".txt")
_IMAGES = (".png", ".jpg", ".jpeg", ".gif", ".svg", ".webp", ".tif", ".tiff", ".bmp")
_DOCUMENTS = (".md", ".rst", ".pdf", ".html", ".htm", ".doc", ".docx", ".tex", ".ipynb")
_DOCUMENT_NAMES = ("readme", "license", "licence", "notice", "changelog", "citation", "copying")
_SHOWN_LINES = 2  # of a .txt file whose name says nothing: so many must look like triples


@dataclass(frozen=True)
class FolderLayout:
    """The files of a folder by split, the main facts under ``""``, and what is to say of them and of the others."""

    files: Mapping[str, tuple[Path, ...]]
    notes: tuple[str, ...]


def lay_out_folder(folder: Path, endings: tuple[str, ...]) -> FolderLayout:
    r"""Find the files of facts with one of these endings in a folder.

    A file belongs to the split that its name begins with, as ``test.tsv`` or ``train-00000-of-00002.tsv`` do. A file
    ``graph`` holds the main facts, and then ``train`` is a split of queries; else ``train`` does, and any file
    ``facts`` too. Where there is neither ``graph`` nor ``train``, all files of other names are main facts; beside them
    such a file is left out, for it may well hold the answers, as ``full_graph.tsv`` does.

    >>> for name in ("train.tsv", "test.tsv", "facts.tsv", "full_graph.tsv"):
    ...     _ = (folder / name).write_text("ann\tparent_of\tbob\n")
    >>> layout = lay_out_folder(folder, (".tsv",))
    >>> {split: [file.name for file in files] for split, files in layout.files.items()}
    {'': ['train.tsv', 'facts.tsv'], 'test': ['test.tsv']}
    """
    by_word: dict[str, list[Path]] = {}
    others: list[Path] = []
    for file in _list_files(folder):
        if file.is_dir() or plain_suffix(file) not in endings or _is_document(file):
            continue
        word = _first_word(file)
        if word in (*_SPLITS, _FACTS):
            by_word.setdefault(word, []).append(file)
        elif not holds_rules(file) and _holds_triples(file):
            others.append(file)
    left_out: dict[Path, str] = {}
    for word, files in by_word.items():
        kept = _choose_parts(files, any_name=word == _FACTS)
        left_out |= {file: f"{kept[0].name} is read for {word}" for file in files if file not in kept}
        by_word[word] = kept
    main_word = next((word for word in _SPLITS[:2] if word in by_word), None)
    facts = by_word.pop(_FACTS, [])
    if main_word is not None:
        main = [*by_word.pop(main_word), *facts]
        for file in others:
            left_out[file] = f"its name says no split; named {_FACTS}_{file.name} it would be read as main facts"
    else:
        main = [*facts, *others]
        if not main and by_word:
            main = by_word.pop(next(word for word in _SPLITS if word in by_word))
    by_split = {"": tuple(main)} if main else {}
    by_split |= {word: tuple(by_word[word]) for word in _SPLITS if word in by_word}
    notes = []
    if len(main) > 1:
        names = [file.name for file in main]
        listed = " and ".join(names) if len(names) == 2 else shorten_list(names)
        notes.append(f"{folder.name}: {listed} together are the main facts")
    notes += name_unread_files(folder, [file for files in by_split.values() for file in files], left_out)
    return FolderLayout(by_split, tuple(notes))


def split_files(folder: Path, endings: tuple[str, ...]) -> dict[str, Path]:
    """Return the files of a folder that hold its splits: under ``""`` the main facts, under their name the others.

    A file belongs to a split when its name starts with it, as ``dev_revised.json`` with dev; of several the first does.
    """
    by_split: dict[str, Path] = {}
    for split in _SPLITS:
        for file in _list_files(folder):
            if plain_suffix(file) in endings and _first_word(file) == split and split not in by_split:
                by_split[split] = file
    main = next(iter(by_split), None)
    return {"" if split == main else split: file for split, file in by_split.items()}


def name_unread_files(folder: Path, read: Iterable[Path], reasons: Mapping[Path, str] | None = None) -> list[str]:
    """Return a note that names the files of a folder that were not read, each with the reason, where there are any.

    >>> _ = (folder / "train.tsv").write_text(""), (folder / "README.md").write_text("")
    >>> name_unread_files(folder, [folder / "train.tsv"])[0].partition(": ")[2]
    'left out: README.md (a document)'
    """
    known = set(read)
    by_reason: dict[str, list[str]] = {}
    for file in _list_files(folder):
        if file not in known:
            by_reason.setdefault((reasons or {}).get(file) or _explain_unread(file), []).append(file.name)
    parts = [f"{shorten_list(names)} ({reason})" for reason, names in by_reason.items()]
    return [f"{folder.name}: left out: {'; '.join(parts)}"] if parts else []


def _list_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.iterdir() if not file.name.startswith("."))


def _plain_stem(file: Path) -> str:
    return Path(file.name.removesuffix(".gz")).stem


def _first_word(file: Path) -> str:
    return re.split(r"[._-]", _plain_stem(file))[0]


def _is_document(file: Path) -> bool:
    return plain_suffix(file) in _DOCUMENTS or _first_word(file).lower() in _DOCUMENT_NAMES


def _choose_parts(files: list[Path], *, any_name: bool) -> list[Path]:
    """Return the first of the files of a split with those that differ from it in a number; any other may be a variant.

    With ``any_name`` all are parts but those of one stem, which are copies of one another.
    """
    chosen: dict[str, Path] = {}
    for file in files:
        stem = _plain_stem(file)
        first = next(iter(chosen), stem)
        if any_name or _drop_numbers(stem) == _drop_numbers(first):
            chosen.setdefault(stem, file)
    return [*chosen.values()]


def _drop_numbers(stem: str) -> str:
    return re.sub(r"[._-]?[0-9]+", "", stem)


def _holds_triples(file: Path) -> bool:
    """Tell by its first lines whether a file whose name says nothing has three columns; of other endings the name."""
    if plain_suffix(file) not in _DELIMITED:
        return True
    try:
        lines = [line for line in read_start(file).splitlines() if line.strip()][:_SHOWN_LINES]
        if not lines:
            return False
        delimiter = find_delimiter(lines[0], file.name)
    except RulewrightError:
        return False
    widths = {len(line.split(delimiter)) for line in lines}
    if plain_suffix(file) != ".txt":
        return max(widths) >= 3
    return widths == {3} if delimiter == " " else len(widths) == 1 and max(widths) >= 3


def _explain_unread(file: Path) -> str:
    """Return why a file of a folder is not among its facts."""
    ending = plain_suffix(file).lower()
    if file.is_dir():
        return "a folder"
    if ending in _IMAGES:
        return "an image"
    if _is_document(file):
        return "a document"
    if ending in _DELIMITED:
        if holds_rules(file):
            return "rules"
        return "no triples in its first lines"
    for format in FACT_FORMATS.values():
        if ending in format.endings:
            return f"{format.name}, another format; a folder is read in one, and rulewright convert changes it"
    if any(ending in format.endings for format in RULE_FORMATS.values()):
        return "rules"
    return "no ending of facts"
