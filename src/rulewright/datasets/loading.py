"""Named data sets as knowledge bases."""

from __future__ import annotations

from pathlib import Path

from rulewright.data import KnowledgeBase
from rulewright.datasets.catalogue import Dataset, find
from rulewright.datasets.download import Progress, get, locate
from rulewright.errors import DataError, FileError
from rulewright.logic import RuleSet

_GRAPHS = ("umls", "kinship", "wn18", "wn18rr", "fb15k237")
_COUNTRIES = ("countries_s1", "countries_s2", "countries_s3")


def load(
    name: str, part: str | None = None, *, download: bool = False, progress: Progress | None = None
) -> KnowledgeBase:
    """Return a data set's facts, with its splits; ``download`` fetches it first where it is not here.

    >>> kb = load("umls")  # doctest: +SKIP
    >>> kb.split("test").n_facts  # doctest: +SKIP
    661
    """
    from rulewright.io import read_facts
    from rulewright.io.triples import read_splits

    entry, chosen = find(name if part is None else f"{name}/{part}")
    folder = _folder(entry, chosen, download, progress)
    if entry.name in _COUNTRIES:
        # The graph is what is known and train asks questions about it; valid leaks from the graph and is left out.
        names = {"": "graph", "train": "train", "test": "test"}
        return read_splits({split: folder / f"{file}.tsv" for split, file in names.items()})
    if entry.name == "dwie":
        return _documents(
            {"": folder / "train_annotations_notext.json", "dev": folder / "dev.json", "test": folder / "test.json"}
        )
    return read_facts(folder)


def rules_of(name: str, part: str | None = None, *, download: bool = False) -> RuleSet:
    """Return the rules that come with a data set.

    >>> rules_of("uw_cse", "ai")  # doctest: +SKIP
    RuleSet(66 formulas)
    """
    from rulewright.io import read_rules

    entry, chosen = find(name if part is None else f"{name}/{part}")
    folder = _folder(entry, chosen, download, None)
    named = {
        "dwie": folder / "dwie.grules.txt",
        "redocred": folder.parent / "docred_meta" / "milr_mined_rules_docred.txt",
    }
    file = named.get(entry.name, folder / "rules")
    if not file.exists():
        raise DataError(f"data set {name} comes without rules")
    return read_rules(file)


def availability(entry: Dataset) -> str:
    """Tell where a data set is: ``local`` (RULEWRIGHT_DATA), ``cached``, ``download`` or ``local only``.

    >>> from rulewright.datasets import catalogue
    >>> availability(catalogue()["vrd"]) in ("local", "cached", "local only")
    True
    """
    from rulewright.datasets.download import data_folder

    try:
        folders = [locate(entry.name, part) for part in entry.parts] if entry.parts else [locate(entry.name)]
    except FileError:
        return "local only" if any(file.url is None for file in entry.files) else "download"
    given = data_folder()
    return "local" if given is not None and given in folders[0].parents else "cached"


def _folder(entry: Dataset, part: str | None, download: bool, progress: Progress | None) -> Path:
    if part is None and entry.parts:
        names = ", ".join(f"{entry.name}/{each}" for each in entry.parts)
        raise DataError(f"data set {entry.name} has parts; name one of {names}")
    return get(entry.name, part, progress=progress) if download else locate(entry.name, part)


def _documents(paths: dict[str, Path]) -> KnowledgeBase:
    from rulewright.io import docred

    parts = {split: docred.read_documents(path) for split, path in paths.items()}
    return docred.to_knowledge_base(parts.pop(""), splits=parts)
