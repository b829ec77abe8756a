"""Named data sets as knowledge bases."""

from __future__ import annotations

from pathlib import Path

from rulewright.checks import Progress
from rulewright.data import KnowledgeBase
from rulewright.datasets.catalogue import Dataset, find
from rulewright.datasets.download import get, locate
from rulewright.errors import DataError
from rulewright.logic import RuleSet

_COUNTRIES = ("countries_s1", "countries_s2", "countries_s3")


def load(
    name: str, part: str | None = None, *, download: bool = False, progress: Progress | None = None
) -> KnowledgeBase:
    """Return a data set's facts, with its splits; ``download`` fetches it first where it is not here.

    >>> kb = load("umls")  # doctest: +SKIP
    >>> kb.split("test").n_facts  # doctest: +SKIP
    661
    """
    from rulewright.io import docred, read_facts
    from rulewright.io.triples import read_splits

    entry, part = find(name, part)
    folder = _folder(entry, part, download, progress)
    if entry.name in _COUNTRIES:
        # The graph is what is known and train asks questions about it; valid leaks from the graph and is left out.
        names = {"": "graph", "train": "train", "test": "test"}
        return read_splits({split: folder / f"{file}.tsv" for split, file in names.items()})
    if entry.name == "dwie":
        files = {"": "train_annotations_notext.json", "dev": "dev.json", "test": "test.json"}
        parts = {split: docred.read_documents(folder / file) for split, file in files.items()}
        return docred.to_knowledge_base(parts.pop(""), splits=parts)
    return read_facts(folder)


def rules_of(name: str, part: str | None = None, *, download: bool = False) -> RuleSet:
    """Return the rules that come with a data set.

    >>> rules_of("uw_cse", "ai")  # doctest: +SKIP
    RuleSet(66 formulas)
    """
    from rulewright.io import read_rules

    entry, part = find(name, part)
    folder = _folder(entry, part, download, None)
    named = {
        "dwie": folder / "dwie.grules.txt",
        "redocred": folder.parent / "docred_meta" / "milr_mined_rules_docred.txt",
    }
    file = named.get(entry.name, folder / "rules")
    if not file.exists():
        raise DataError(f"data set {name} comes without rules")
    return read_rules(file)


def _folder(entry: Dataset, part: str | None, download: bool, progress: Progress | None) -> Path:
    if part is None and entry.parts:
        names = ", ".join(f"{entry.name}/{name}" for name in entry.parts)
        raise DataError(f"data set {entry.name} has parts; name one of {names}")
    return get(entry.name, part, progress=progress) if download else locate(entry.name, part)
