"""The reader or writer for each format of facts and rules."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, FileError, unknown_name
from rulewright.files import STDIO, read_bytes, read_text, write_text
from rulewright.io import detection
from rulewright.io.detection import Source, conll_files, plain_suffix, split_files
from rulewright.logic import RuleSet, parse_rules


def _facts(path: Source) -> KnowledgeBase:
    from rulewright.io import facts

    return facts.read(path)


def _triples(path: Source) -> KnowledgeBase:
    from rulewright.io import triples

    if Path(path).is_dir():
        return triples.read_splits(split_files(Path(path), (".tsv", ".txt", ".csv")))
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
    parts = {name: docred.read_documents(file) for name, file in split_files(Path(path), (".json",)).items()}
    return docred.to_knowledge_base(parts.pop(""), splits=parts)


def _scenes(path: Source) -> KnowledgeBase:
    from rulewright.io import scenes

    return scenes.to_knowledge_base(scenes.read_tidy(path))


def _vrd(path: Source) -> KnowledgeBase:
    from rulewright.io import scenes

    return scenes.to_knowledge_base(scenes.read_vrd(path))


def _gqa(path: Source) -> KnowledgeBase:
    from rulewright.io import scenes
    from rulewright.io import scenes as scene_graphs

    return scenes.to_knowledge_base(scene_graphs.read_gqa(path))


def _visual_genome(path: Source) -> KnowledgeBase:
    from rulewright.io import scenes
    from rulewright.io import scenes as scene_graphs

    return scenes.to_knowledge_base(scene_graphs.read_visual_genome(path))


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
    parts = {name: conll.read(file) for name, file in conll_files(Path(path)).items()}
    return conll.to_knowledge_base(parts.pop(""), splits=parts)


def _prolog(path: Source) -> KnowledgeBase:
    from rulewright.io import prolog

    return prolog.read(path)


def _rdf(path: Source) -> KnowledgeBase:
    from rulewright.io import rdf

    return rdf.read(path)


def _parquet(path: Source) -> KnowledgeBase:
    from rulewright.io import frames

    return frames.read_parquet(path)


def _jsonl(path: Source) -> KnowledgeBase:
    from rulewright.io import jsonl

    return jsonl.read(path)


FACT_FORMATS: Mapping[str, Callable[[Source], KnowledgeBase]] = {
    "facts": _facts,
    "triples": _triples,
    "jsonl": _jsonl,
    "rdf": _rdf,
    "parquet": _parquet,
    "prolog": _prolog,
    "alchemy": _alchemy_db,
    "mln-folder": _mln_folder,
    "docred": _docred,
    "scenes": _scenes,
    "vrd": _vrd,
    "gqa": _gqa,
    "visual-genome": _visual_genome,
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


def _prolog_rules(path: Source) -> RuleSet:
    from rulewright.io import prolog

    return prolog.read_rules(path)


def _jsonl_rules(path: Source) -> RuleSet:
    from rulewright.io import jsonl

    return jsonl.read_rules(path)


def _anyburl(path: Source) -> RuleSet:
    from rulewright.io import anyburl

    return anyburl.read(path)


def _amie(path: Source) -> RuleSet:
    from rulewright.io import amie

    return amie.read(path)


RULE_FORMATS: Mapping[str, Callable[[Source], RuleSet]] = {
    "rules": _rules,
    "mln": _alchemy_mln,
    "mln-rules": _mln_rules,
    "milr-rules": _milr_rules,
    "anyburl": _anyburl,
    "amie": _amie,
    "prolog-rules": _prolog_rules,
    "jsonl-rules": _jsonl_rules,
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
        format = detection.fact_format(path)
        if format is None:
            raise FileError(f"cannot tell the format of {path}; give one of: {', '.join(FACT_FORMATS)}")
    elif format not in FACT_FORMATS:
        raise unknown_name("format of facts", format, FACT_FORMATS)
    return FACT_FORMATS[format](path)


def read_rules(path: Source, *, format: str | None = None) -> RuleSet:
    """Read rules from a file, ``-`` for standard input, in whatever known format they are.

    ``format`` names one of `RULE_FORMATS` where name and content do not tell.
    """
    if format is None:
        format = detection.rule_format(path)
    elif format not in RULE_FORMATS:
        raise unknown_name("format of rules", format, RULE_FORMATS)
    return RULE_FORMATS[format](path)


def write_facts(kb: KnowledgeBase, path: Source, *, format: str | None = None) -> None:
    """Write facts in the format that the name's ending tells, or in ``format``.

    The endings are .facts, .jsonl, .tsv, .csv, .txt, .parquet, .nt, .ttl, .pl and .db.
    """
    from rulewright.io import alchemy, facts, frames, jsonl, prolog, rdf, triples

    writers: dict[str, Callable[[KnowledgeBase, Source], None]] = {
        "facts": facts.write,
        "jsonl": jsonl.write,
        "triples": triples.write,
        "parquet": frames.write_parquet,
        "rdf": rdf.write,
        "prolog": prolog.write,
        "alchemy": alchemy.write_db,
    }
    endings = {
        ".facts": "facts",
        ".jsonl": "jsonl",
        **dict.fromkeys((".tsv", ".csv", ".txt"), "triples"),
        ".parquet": "parquet",
        **dict.fromkeys((".nt", ".ttl"), "rdf"),
        ".pl": "prolog",
        ".db": "alchemy",
    }
    _written(path, format, endings, writers, "facts")(kb, path)


def write_rules(rules: RuleSet, path: Source, *, format: str | None = None) -> None:
    """Write rules in the format that the name's ending tells, or in ``format``.

    The endings are .rules, .jsonl, .pl, .mln, .tex (LaTeX) and .txt (English); anyburl and amie have none of their own.
    """
    from rulewright.io import alchemy, amie, anyburl, jsonl, prolog
    from rulewright.logic.english import english
    from rulewright.logic.latex import latex

    writers: dict[str, Callable[[RuleSet, Source], None]] = {
        "rules": lambda rules, path: rules.save(path),
        "jsonl-rules": jsonl.write_rules,
        "prolog-rules": prolog.write_rules,
        "mln": alchemy.write_mln,
        "anyburl": anyburl.write,
        "amie": amie.write,
        "latex": lambda rules, path: write_text(path, latex(rules)),
        "english": lambda rules, path: write_text(path, "".join(f"{english(each)}\n" for each in rules)),
    }
    endings = {
        ".rules": "rules",
        ".jsonl": "jsonl-rules",
        ".pl": "prolog-rules",
        ".mln": "mln",
        ".tex": "latex",
        ".txt": "english",
    }
    _written(path, format, endings, writers, "rules")(rules, path)


def _written(
    path: Source,
    format: str | None,
    endings: Mapping[str, str],
    writers: Mapping[str, Callable[..., None]],
    usual: str,
) -> Callable[..., None]:
    if format is None:
        ending = plain_suffix(path)
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
    return not Path(path).is_dir() and detection.holds_rules(Path(path))
