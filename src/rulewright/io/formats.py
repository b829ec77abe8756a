"""The table of formats, which of them a file or folder is in, and reading and writing by that table.

The modules of the formats load on first use; they in turn find here what several of them share.
"""

from __future__ import annotations

import logging
import os
import re
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Literal, TypeVar

from rulewright.data import KnowledgeBase, signature
from rulewright.errors import DataError, FileError, ParseError, unknown_name
from rulewright.files import STDIO, read_bytes, read_start, read_text, write_text
from rulewright.interrupts import keyboard_interrupts
from rulewright.logic import RuleSet, parse_rules

_LOGGER = logging.getLogger(__name__)
Source = str | os.PathLike[str]
Member = TypeVar("Member")


@dataclass(frozen=True)
class Format:
    """A format of facts or of rules.

    ``read`` and ``write`` name functions of ``module``, and ``convert`` the one that turns what was read into a
    knowledge base. A name that ends in one of ``endings`` is of this format; in a ``.txt`` the content decides.
    Where the format ``has_columns``, its reader takes ``columns`` that say what each of them is.
    """

    name: str
    contents: Literal["facts", "rules"]
    description: str
    module: str
    read: str | None = None
    write: str | None = None
    endings: tuple[str, ...] = ()
    convert: str | None = None
    has_columns: bool = False


_TO_KB = "to_knowledge_base"
_CONLL_ENDINGS = (".conll", ".train", ".testa", ".testb")
FORMATS = (
    Format("facts", "facts", "facts of any arity, worlds and splits", "facts", "read", "write", (".facts",)),
    Format(
        "triples",
        "facts",
        "head, relation, tail in columns",
        "triples",
        "read",
        "write",
        (".tsv", ".csv", ".txt"),
        has_columns=True,
    ),
    Format("jsonl", "facts", "what .facts says, an object to a line", "jsonl", "read", "write", (".jsonl",)),
    Format("rdf", "facts", "N-Triples and Turtle", "rdf", "read", "write", (".nt", ".ttl")),
    Format(
        "parquet",
        "facts",
        "a table of triples",
        "frames",
        "read_parquet",
        "write_parquet",
        (".parquet",),
        has_columns=True,
    ),
    Format("table", "facts", "a row for each entity, attributes in columns", "table", "read", has_columns=True),
    Format("neo4j", "facts", "nodes and relationships in CSV files", "neo4j", "read"),
    Format("prolog", "facts", "the facts of a Prolog program", "prolog", "read", "write", (".pl",)),
    Format("alchemy", "facts", "ground atoms of Alchemy", "alchemy", "read_facts", "write_db", (".db",)),
    Format("mln-folder", "facts", "a folder of predicates, facts, queries and rules", "mln_folder", "read"),
    Format("docred", "facts", "documents of DocRED and DWIE", "docred", "read_facts"),
    Format("scenes", "facts", "tables of objects and relations", "scenes", "read_tidy", convert=_TO_KB),
    Format("vrd", "facts", "scene graphs of VRD", "scenes", "read_vrd", convert=_TO_KB),
    Format("gqa", "facts", "scene graphs of GQA", "scenes", "read_gqa", convert=_TO_KB),
    Format("visual-genome", "facts", "scenes of Visual Genome", "scenes", "read_visual_genome", convert=_TO_KB),
    Format("funsd", "facts", "scanned forms", "funsd", "read_facts"),
    Format("conll", "facts", "tagged sentences", "conll", "read_facts", endings=_CONLL_ENDINGS),
    Format("rules", "rules", "the rule language", "formats", "read_rule_language", "write_rule_language", (".rules",)),
    Format("mln", "rules", "formulas of Alchemy", "alchemy", "read_mln", "write_mln", (".mln",)),
    Format("mln-rules", "rules", "the rules of an mln-folder", "mln_folder", "read_rules"),
    Format("milr-rules", "rules", "chain rules of MILR and LogiRE", "mined_rules", "read_milr"),
    Format("anyburl", "rules", "AnyBURL's lines", "mined_rules", "read_anyburl", "write_anyburl"),
    Format("amie", "rules", "AMIE's table", "mined_rules", "read_amie", "write_amie"),
    Format("prolog-rules", "rules", "rules of a Prolog program", "prolog", "read_rules", "write_rules", (".pl",)),
    Format("jsonl-rules", "rules", "rules, an object to a line", "jsonl", "read_rules", "write_rules", (".jsonl",)),
    Format("latex", "rules", "an align* environment", "formats", write="write_latex", endings=(".tex",)),
    Format("english", "rules", "a sentence for each rule", "formats", write="write_english", endings=(".txt",)),
)
"""All formats."""

FACT_FORMATS = {format.name: format for format in FORMATS if format.contents == "facts"}
"""The formats of facts by name."""

RULE_FORMATS = {format.name: format for format in FORMATS if format.contents == "rules"}
"""The formats of rules by name."""

# The readable formats by the ending of a name; a .txt may hold anything.
_FACT_ENDINGS, _RULE_ENDINGS = (
    {ending: format.name for format in formats.values() if format.read for ending in format.endings if ending != ".txt"}
    for formats in (FACT_FORMATS, RULE_FORMATS)
)


def read_facts(path: Source, *, format: str | None = None, columns: str | Sequence[str] | None = None) -> KnowledgeBase:
    r"""Read facts from a file or folder, ``-`` for standard input, in whatever known format they are.

    ``format`` names one of `FACT_FORMATS` where name and content do not tell. ``columns`` says what the columns of a
    table are: the role of each in order (head, relation, tail, world, and ``_`` for one that is passed over) or all by
    their names in the header, as in ``head=subject``; in one text commas separate them. What a person should know of
    how the file was read stands in the ``notes`` of the knowledge base.

    >>> _ = (folder / "family.tsv").write_text("ann\tparent_of\tbob\n")
    >>> read_facts(folder / "family.tsv")
    KnowledgeBase(2 entities, 1 predicate, 1 fact)
    >>> read_facts(folder / "family.tsv", columns="tail,relation,head").tuples("parent_of")
    [('bob', 'ann')]
    """
    columns = columns.split(",") if isinstance(columns, str) else columns
    if format is None and os.fspath(path) == STDIO:
        with tempfile.TemporaryDirectory(prefix="rulewright-") as folder:  # to look at it and then read it
            copy = Path(folder, "standard-input")
            copy.write_bytes(read_bytes(STDIO))
            try:
                return read_facts(copy, columns=columns)
            except ParseError as error:
                raise ParseError(error.message, file="standard input", line=error.line, column=error.column) from None
    if format is None:
        format = detect_fact_format(path)
        if format is None:
            names = sorted(file.name for file in Path(path).iterdir()) if Path(path).is_dir() else []
            found = f", which holds {shorten_list(names)}" if names else ""
            raise FileError(
                f"cannot tell the format of {path}{found}; give one of: {', '.join(FACT_FORMATS)}"
                + ("; a folder of triples has .tsv, .csv or .txt files of three columns" if names else "")
            )
    began = time.monotonic()
    content = _read(FACT_FORMATS, "facts", format, path, columns)
    assert isinstance(content, KnowledgeBase)
    _LOGGER.info("read %s as %s in %.2f s: %s", path, format, time.monotonic() - began, content)
    return content


def read_rules(path: Source, *, format: str | None = None) -> RuleSet:
    """Read rules from a file, ``-`` for standard input, in whatever known format they are.

    ``format`` names one of `RULE_FORMATS` where name and content do not tell.
    """
    began, format = time.monotonic(), format or detect_rule_format(path)
    content = _read(RULE_FORMATS, "rules", format, path)
    assert isinstance(content, RuleSet)
    _LOGGER.info("read %s as %s in %.2f s: %s rules", path, format, time.monotonic() - began, f"{len(content):,}")
    return content


def _read(
    formats: dict[str, Format], contents: str, name: str, path: Source, columns: Sequence[str] | None = None
) -> object:
    readable = {name: format for name, format in formats.items() if format.read is not None}
    if name not in readable:
        raise unknown_name(f"format of {contents}", name, readable)
    format = readable[name]
    module = import_module(f"rulewright.io.{format.module}")
    if columns is not None and not format.has_columns:
        with_columns = ", ".join(format.name for format in formats.values() if format.has_columns)
        raise DataError(f"{os.fspath(path)}: only {with_columns} have columns to name, this is {name}")
    read = getattr(module, format.read or "")
    with keyboard_interrupts():
        content: object = read(path) if columns is None else read(path, columns=columns)
    return content if format.convert is None else getattr(module, format.convert)(content)


def write_facts(kb: KnowledgeBase, path: Source, *, format: str | None = None) -> None:
    """Write facts in the format that the name's ending tells, or in ``format``.

    The endings are .facts, .tsv, .csv, .txt, .jsonl, .nt, .ttl, .parquet, .pl and .db.
    """
    _write("facts", format, kb, path)


def write_rules(rules: RuleSet, path: Source, *, format: str | None = None) -> None:
    """Write rules in the format that the name's ending tells, or in ``format``.

    The endings are .rules, .mln, .pl, .jsonl, .tex (LaTeX) and .txt (English); anyburl and amie have none of their own.

    >>> write_rules(parse_rules("0.9 :: parent_of(X, Y) :- child_of(Y, X)."), folder / "family.txt")
    >>> print((folder / "family.txt").read_text(), end="")
    If Y is a child of X, then X is a parent of Y, in 90 % of cases.
    """
    _write("rules", format, rules, path)


def _write(contents: Literal["facts", "rules"], name: str | None, content: object, path: Source) -> None:
    began, format = time.monotonic(), find_output_format(path, contents, name)
    module = import_module(f"rulewright.io.{format.module}")
    with keyboard_interrupts():
        getattr(module, format.write or "")(content, path)
    _LOGGER.info("wrote %s as %s in %.2f s", path, format.name, time.monotonic() - began)


def find_output_format(path: Source, contents: Literal["facts", "rules"], name: str | None = None) -> Format:
    """Return the format in which facts or rules are written to a path: the one of that name, or that the ending tells.

    >>> find_output_format("family.tex", "rules").name
    'latex'
    """
    formats = FACT_FORMATS if contents == "facts" else RULE_FORMATS
    writable = {name: format for name, format in formats.items() if format.write is not None}
    if name is None:
        by_ending = {ending: format.name for format in writable.values() for ending in format.endings}
        ending = plain_suffix(path)
        if os.fspath(path) != STDIO and ending not in by_ending:
            raise DataError(f"cannot tell the format of {path}; name it {', '.join(by_ending)} or give the format")
        name = contents if os.fspath(path) == STDIO else by_ending[ending]
    if name not in writable:
        raise unknown_name("format to write", name, writable)
    return writable[name]


def read_rule_language(path: Source) -> RuleSet:
    """Read a ``.rules`` file."""
    return parse_rules(read_text(path), file=os.fspath(path))


def write_rule_language(rules: RuleSet, path: Source) -> None:
    """Write a ``.rules`` file."""
    rules.save(path)


def write_latex(rules: RuleSet, path: Source) -> None:
    """Write rules as LaTeX."""
    from rulewright.logic.latex import latex

    write_text(path, latex(rules))


def write_english(rules: RuleSet, path: Source) -> None:
    """Write rules as sentences."""
    from rulewright.logic.english import english

    write_text(path, "".join(f"{english(statement)}\n" for statement in rules))


# Which format a file is in

_ANYBURL = re.compile(r"^\d+\t\d+\t[\d.eE+-]+\t.*\) *<=", re.MULTILINE)
_AMIE = re.compile(r"^[^\t\n]*\?\w+[^\t\n]*=>[^\t\n]*(\t|$)", re.MULTILINE)
_MILR = re.compile(r"^(\d+ )?\[.*\] *(->|[\w~])", re.MULTILINE)
_MLN_CLAUSE = re.compile(r"^-?[\d.]+ .*\)\s+v\s+!?\w+\(", re.MULTILINE)
_JSON_KEY = re.compile(r'"(?:(rule|formula|template)|predicate|entity)"\s*:')
_PROLOG_RULE = re.compile(r"^[^%\n]*\)\s*:-", re.MULTILINE)
_RULE_LINE = re.compile(r"^\s*(?:(?:hard|learn|template)\s+[^\t\n]*\(|[\d.]+ ::|[^%\t\n]*\)\s*:-)", re.MULTILINE)
_NEO4J = re.compile(r"[^\n]*:(START_ID|END_ID|ID)\b|\W*_(id|start)\b[^\n]*\b_(labels|end)\b")


def holds_rules(path: Source, *, format: str | None = None) -> bool:
    """Tell whether a file holds rules and not facts, by the format's name or by the file's name and content."""
    if format is not None:
        if format not in RULE_FORMATS and format not in FACT_FORMATS:
            raise unknown_name("format", format, {**RULE_FORMATS, **FACT_FORMATS})
        return format in RULE_FORMATS
    if os.fspath(path) == STDIO:
        raise DataError("standard input has no name; say what it holds with --from")
    file = Path(path)
    ending, name = plain_suffix(file), file.name.removesuffix(".gz")
    if file.is_dir():
        return False
    if ending == ".jsonl":
        key = _JSON_KEY.search(read_start(file))
        return key is not None and key[1] is not None
    if ending == ".pl":
        return _PROLOG_RULE.search(read_start(file)) is not None
    if ending in _RULE_ENDINGS or name == "rules" or "rules" in re.split(r"[_-]", Path(name).stem):
        return True
    if ending not in ("", ".txt", ".tsv") or not file.is_file():
        return False
    start = read_start(file)
    return any(pattern.search(start) for pattern in (_ANYBURL, _AMIE, _RULE_LINE))


def detect_rule_format(path: Source) -> str:
    """Return the name of the format that a file of rules is in."""
    if os.fspath(path) == STDIO:
        return "rules"
    ending = plain_suffix(path)
    if ending in _RULE_ENDINGS:
        return _RULE_ENDINGS[ending]
    plain = Path(os.fspath(path).removesuffix(".gz"))
    if Path(path).is_dir() or (plain.name == "rules" and plain.with_name("predicates").exists()):
        return "mln-rules"
    start = read_start(path)
    patterns = {"milr-rules": _MILR, "anyburl": _ANYBURL, "amie": _AMIE, "mln-rules": _MLN_CLAUSE}
    return next((name for name, pattern in patterns.items() if pattern.search(start)), "rules")


def detect_fact_format(path: Source) -> str | None:
    """Return the name of the format that a file or folder of facts is in, None where nothing tells."""
    if Path(path).is_dir():
        return _detect_folder_format(Path(path))
    ending = plain_suffix(path)
    if ending in _FACT_ENDINGS and ending not in (".csv", ".tsv"):
        return _FACT_ENDINGS[ending]
    start = read_start(path)
    if _NEO4J.match(start):
        return "neo4j"
    if ending in _FACT_ENDINGS:
        return _FACT_ENDINGS[ending]
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
    if re.match(r"(<[^>\s]+>|_:\S+)\s+<[^>\s]+>\s+.*\.\s*$", line):
        return "rdf"
    if re.match(r"(-DOCSTART-\s|\S+ \S+ \S+ (O|[BIES]-\S+)$)", line):
        return "conll"
    return "triples" if line else None


def _detect_folder_format(folder: Path) -> str | None:
    from rulewright.io.folders import lay_out_folder, split_files

    names = {file.name.removesuffix(".gz") for file in folder.iterdir()}
    if {"predicates", "facts"} <= names:
        return "mln-folder"
    if {"objects.tsv", "relations.tsv"} <= names:
        return "scenes"
    if any(name.startswith("annotations_") and name.endswith(".json") for name in names):
        return "vrd"
    if names & {"training_data", "testing_data", "annotations"}:
        return "funsd"
    if any(file.suffix == ".train" for file in folder.iterdir()):
        return "conll"
    if split_files(folder, FACT_FORMATS["triples"].endings):
        return "triples"
    if split_files(folder, (".facts",)):
        return "facts"
    if neo4j_files(folder):
        return "neo4j"
    if split_files(folder, (".json",)):
        return "docred"
    by_endings = {"triples": FACT_FORMATS["triples"].endings, "facts": (".facts",)}
    return next((name for name, endings in by_endings.items() if lay_out_folder(folder, endings).files), None)


def plain_suffix(path: Source) -> str:
    """Return the ending of a name, without ``.gz``."""
    return Path(os.fspath(path).removesuffix(".gz")).suffix


# What several formats share


def neo4j_files(folder: Path) -> list[Path]:
    """Return the files of a folder whose first line is a header of Neo4j."""
    files = (file for file in sorted(folder.iterdir()) if plain_suffix(file) in (".csv", ".tsv"))
    return [file for file in files if _NEO4J.match(read_start(file))]


def shorten_list(names: Sequence[str], limit: int = 8) -> str:
    """Write names with commas; of very many the first.

    >>> shorten_list(["a", "b", "c", "d"], limit=2)
    'a, b and 2 more'
    """
    shown = ", ".join(names[:limit])
    return shown + (f" and {len(names) - limit} more" if len(names) > limit else "")


def join_splits(
    main: Iterable[Member], splits: Mapping[str, Iterable[Member]] | None, name: str
) -> dict[str, tuple[Member, ...]]:
    """Return the members of all splits, those of the main part under ``""``; ``name`` is the word for them."""
    if splits and "" in splits:
        raise DataError(f"a split needs a name; facts outside every split are given as {name}")
    return {split: tuple(members) for split, members in {"": main, **(splits or {})}.items()}


def refuse_all_but_true_facts(
    kb: KnowledgeBase, format: str, signatures: str = "[en]+", false_signatures: str = ""
) -> None:
    """Refuse false facts, worlds, splits, and facts whose signature does not match, for a format has no way to say it.

    False facts are allowed of ``false_signatures``, where there are any.

    >>> refuse_all_but_true_facts(KnowledgeBase.from_facts([("tall", "ann")]), "an RDF file", "e[en]")
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: an RDF file has no place for facts of predicate tall(entity).; write a .facts or .jsonl
    file instead
    """
    way_out = "write a .facts or .jsonl file instead"
    false = sum(
        len(table) for letters, table in kb.tables(truth=False).items() if not re.fullmatch(false_signatures, letters)
    )
    for name, content in (("observed-false facts", false), ("worlds", kb.worlds), ("splits", kb.splits)):
        if content:
            raise DataError(f"{format} has no place for {name}; {way_out}")
    for declaration in kb.predicates.values():
        if not re.fullmatch(signatures, signature(declaration)) and kb.count(declaration.name):
            raise DataError(f"{format} has no place for facts of {declaration}; {way_out}")
