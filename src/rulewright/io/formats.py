"""Which format a file or folder is in, by its name and its content, and the reader or writer for it."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, FileError, unknown_name
from rulewright.files import STDIO, read_bytes, read_text
from rulewright.logic import RuleSet, parse_rules

Source = str | os.PathLike[str]

SPLITS = ("train", "valid", "dev", "test")
"""The files of a folder that hold one split each; the first there is holds the main facts."""


def _facts(path: Source) -> KnowledgeBase:
    from rulewright.io import facts

    return facts.read(path)


def _triples(path: Source) -> KnowledgeBase:
    from rulewright.io import triples

    if Path(path).is_dir():
        return triples.read_splits(_split_files(Path(path), (".tsv", ".txt", ".csv")))
    return triples.read(path)


def _alchemy_db(path: Source) -> KnowledgeBase:
    from rulewright.io import alchemy

    network = Path(path).with_suffix(".mln")
    return alchemy.read_db(path, mln=network if os.fspath(path) != STDIO and network.exists() else None)


def _mln_folder(path: Source) -> KnowledgeBase:
    from rulewright.io import mln_folder

    return mln_folder.read(path)


def _docred(path: Source) -> KnowledgeBase:
    from rulewright.io import docred

    if not Path(path).is_dir():
        return docred.to_knowledge_base(docred.read_documents(path))
    parts = {name: docred.read_documents(file) for name, file in _split_files(Path(path), (".json",)).items()}
    return docred.to_knowledge_base(parts.pop(""), splits=parts)


def _scenes(path: Source) -> KnowledgeBase:
    from rulewright.io import scenes

    return scenes.to_knowledge_base(scenes.read_tidy(path))


def _vrd(path: Source) -> KnowledgeBase:
    from rulewright.io import scenes

    return scenes.to_knowledge_base(scenes.read_vrd(path))


def _funsd(path: Source) -> KnowledgeBase:
    from rulewright.io import funsd

    forms = funsd.read(path) if Path(path).is_dir() else (funsd.read_form(path),)
    if len({form.split for form in forms}) == 1:  # one split alone is what the caller wants to see
        forms = tuple(replace(form, split=funsd.MAIN_SPLIT) for form in forms)
    return funsd.to_knowledge_base(forms)


def _conll(path: Source) -> KnowledgeBase:
    from rulewright.io import conll

    if not Path(path).is_dir():
        return conll.to_knowledge_base(conll.read(path))
    parts = {name: conll.read(file) for name, file in _conll_files(Path(path)).items()}
    return conll.to_knowledge_base(parts.pop(""), splits=parts)


def _conll_files(folder: Path) -> dict[str, Path]:
    """Return the files ``eng.train``, ``eng.testa``, … of a folder, the training file as the main one."""
    files = {
        file.suffix[1:]: file for file in sorted(folder.iterdir()) if file.suffix in (".train", ".testa", ".testb")
    }
    return {"" if name == "train" else name: file for name, file in files.items()} if "train" in files else {}


FACT_FORMATS: Mapping[str, Callable[[Source], KnowledgeBase]] = {
    "facts": _facts,
    "triples": _triples,
    "alchemy": _alchemy_db,
    "mln-folder": _mln_folder,
    "docred": _docred,
    "scenes": _scenes,
    "vrd": _vrd,
    "funsd": _funsd,
    "conll": _conll,
}
"""The readers of facts by the name of their format."""


def _rules(path: Source) -> RuleSet:
    return parse_rules(read_text(path), file=os.fspath(path))


def _alchemy_mln(path: Source) -> RuleSet:
    from rulewright.io import alchemy

    return alchemy.read_mln(path)


def _mln_rules(path: Source) -> RuleSet:
    from rulewright.io import mln_folder

    return mln_folder.read_rules(path)


def _milr_rules(path: Source) -> RuleSet:
    from rulewright.io import milr_rules

    return milr_rules.read(path)


RULE_FORMATS: Mapping[str, Callable[[Source], RuleSet]] = {
    "rules": _rules,
    "mln": _alchemy_mln,
    "mln-rules": _mln_rules,
    "milr-rules": _milr_rules,
}
"""The readers of rules by the name of their format."""


def read_facts(path: Source, *, format: str | None = None) -> KnowledgeBase:
    r"""Read facts from a file or folder, ``-`` for standard input, in whatever known format they are.

    ``format`` names one of `FACT_FORMATS` where name and content do not tell.

    >>> _ = (folder / "family.tsv").write_text("ann\tparent_of\tbob\n")
    >>> read_facts(folder / "family.tsv")
    KnowledgeBase(2 entities, 1 predicate, 1 fact)
    """
    if format is None and os.fspath(path) == STDIO:
        with tempfile.TemporaryDirectory(prefix="rulewright-") as folder:  # to look at it and then read it
            copy = Path(folder, "standard-input")
            copy.write_bytes(read_bytes(STDIO))
            return read_facts(copy)
    if format is None:
        format = _fact_format(path)
    elif format not in FACT_FORMATS:
        raise unknown_name("format of facts", format, FACT_FORMATS)
    return FACT_FORMATS[format](path)


def read_rules(path: Source, *, format: str | None = None) -> RuleSet:
    """Read rules from a file, ``-`` for standard input, in whatever known format they are.

    ``format`` names one of `RULE_FORMATS` where name and content do not tell.
    """
    if format is None:
        format = _rule_format(path)
    elif format not in RULE_FORMATS:
        raise unknown_name("format of rules", format, RULE_FORMATS)
    return RULE_FORMATS[format](path)


def write_facts(kb: KnowledgeBase, path: Source, *, format: str | None = None) -> None:
    """Write facts in the format that the name's ending tells (.facts, .tsv, .csv, .db), or in ``format``."""
    from rulewright.io import alchemy, facts, triples

    writers: dict[str, Callable[[KnowledgeBase, Source], None]] = {
        "facts": facts.write,
        "triples": triples.write,
        "alchemy": alchemy.write_db,
    }
    endings = {".facts": "facts", ".tsv": "triples", ".csv": "triples", ".txt": "triples", ".db": "alchemy"}
    _written(path, format, endings, writers, "facts")(kb, path)


def write_rules(rules: RuleSet, path: Source, *, format: str | None = None) -> None:
    """Write rules in the format that the name's ending tells (.rules, .mln), or in ``format``."""
    from rulewright.io import alchemy

    writers: dict[str, Callable[[RuleSet, Source], None]] = {
        "rules": lambda rules, path: rules.save(path),
        "mln": alchemy.write_mln,
    }
    _written(path, format, {".rules": "rules", ".mln": "mln"}, writers, "rules")(rules, path)


def _written(
    path: Source,
    format: str | None,
    endings: Mapping[str, str],
    writers: Mapping[str, Callable[..., None]],
    usual: str,
) -> Callable[..., None]:
    if format is None:
        ending = Path(os.fspath(path).removesuffix(".gz")).suffix
        if os.fspath(path) != STDIO and ending not in endings:
            raise DataError(f"cannot tell the format of {path}; name it {', '.join(endings)} or give the format")
        format = usual if os.fspath(path) == STDIO else endings[ending]
    if format not in writers:
        raise unknown_name("format to write", format, writers)
    return writers[format]


def holds_rules(path: Source, *, format: str | None = None) -> bool:
    """Tell whether a file holds rules and not facts, by the format's name or by the file's name and content."""
    if format is not None:
        if format not in RULE_FORMATS and format not in FACT_FORMATS:
            raise unknown_name("format", format, {**RULE_FORMATS, **FACT_FORMATS})
        return format in RULE_FORMATS
    if os.fspath(path) == STDIO:
        raise DataError("standard input has no name; say what it holds with --from")
    return not Path(path).is_dir() and _named_as_rules(Path(path))


def _named_as_rules(path: Path) -> bool:
    plain = Path(path.name.removesuffix(".gz"))
    return plain.suffix in (".rules", ".mln") or plain.name == "rules" or "rules" in plain.stem.split("_")


def _rule_format(path: Source) -> str:
    plain = Path(os.fspath(path).removesuffix(".gz"))
    if plain.suffix == ".rules" or os.fspath(path) == STDIO:
        return "rules"
    if plain.suffix == ".mln":
        return "mln"
    if Path(path).is_dir() or (plain.name == "rules" and plain.with_name("predicates").exists()):
        return "mln-rules"
    start = _start(path)
    if re.search(r"^(\d+ )?\[.*\] *(->|[\w~])", start, re.MULTILINE):
        return "milr-rules"
    if re.search(r"^-?[\d.]+ .*\)\s+v\s+!?\w+\(", start, re.MULTILINE):
        return "mln-rules"
    return "rules"


def _fact_format(path: Source) -> str:
    found = _folder_format(Path(path)) if Path(path).is_dir() else _file_format(Path(path))
    if found is None:
        raise FileError(f"cannot tell the format of {path}; give one of: {', '.join(FACT_FORMATS)}")
    return found


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
    if _conll_files(folder):
        return "conll"
    if _split_files(folder, (".tsv", ".txt", ".csv")):
        return "triples"
    return "docred" if _split_files(folder, (".json",)) else None


def _file_format(path: Path) -> str | None:
    plain = Path(path.name.removesuffix(".gz"))
    by_ending = {".facts": "facts", ".db": "alchemy", ".tsv": "triples", ".csv": "triples"}
    if plain.suffix in by_ending:
        return by_ending[plain.suffix]
    if plain.suffix in (".conll", ".train", ".testa", ".testb"):
        return "conll"
    start = _start(path)
    if plain.suffix == ".json" or start.lstrip()[:1] in ("[", "{"):
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


def _split_files(folder: Path, endings: tuple[str, ...]) -> dict[str, Path]:
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
