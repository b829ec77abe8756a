"""Tagged sentences in CoNLL's columns: a token to a line, a blank line between sentences."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.errors import DataError, ParseError
from rulewright.files import read_text
from rulewright.io.folders import name_unread_files
from rulewright.io.formats import join_splits
from rulewright.logic import PredicateDeclaration

COLUMNS = ("token", "pos", "chunk", "tag")
"""The columns of CoNLL-2003."""

SKIPPED = "_"
"""The name of a column that is not read."""

DOCUMENT_START = "-DOCSTART-"
OUTSIDE = "O"
TAG = re.compile(r"O|[BIES]-.+", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Sentence:
    """The columns of a sentence; a column that was not read is empty. ``document`` counts from 0 in the file."""

    tokens: tuple[str, ...]
    pos: tuple[str, ...] = ()
    chunks: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    document: int = 0

    def __post_init__(self) -> None:
        for name in ("pos", "chunks", "tags"):
            if len(getattr(self, name)) not in (0, len(self.tokens)):
                raise DataError(f"a sentence of {len(self.tokens)} tokens has {len(getattr(self, name))} {name}")

    def __len__(self) -> int:
        return len(self.tokens)


class Span(NamedTuple):
    """The tokens ``start … end - 1`` and what they are."""

    start: int
    end: int
    type: str


def read(path: str | os.PathLike[str], *, columns: Sequence[str] = COLUMNS) -> tuple[Sentence, ...]:
    """Read the sentences of a file whose lines hold ``columns``: token, pos, chunk, tag and ``_`` for any other."""
    return parse(read_text(path), columns=columns, file=os.fspath(path))


def read_facts(path: str | os.PathLike[str]) -> KnowledgeBase:
    """Read the facts of a file, or of a folder with ``eng.train``, which holds the main facts, ``eng.testa``, …"""
    if not Path(path).is_dir():
        return to_knowledge_base(read(path))
    endings = (".train", ".testa", ".testb")
    files = {file.suffix[1:]: file for file in sorted(Path(path).iterdir()) if file.suffix in endings}
    parts = {split: read(file) for split, file in files.items()}
    kb = to_knowledge_base(parts.pop("train"), splits=parts)
    return kb.with_notes(name_unread_files(Path(path), files.values()))


def parse(text: str, *, columns: Sequence[str] = COLUMNS, file: str | None = None) -> tuple[Sentence, ...]:
    r"""Read sentences from text.

    >>> sentence, = parse("EU NNP I-NP I-ORG\nrejects VBZ I-VP O\n")
    >>> sentence.tokens, sentence.tags
    (('EU', 'rejects'), ('I-ORG', 'O'))
    """
    _check_columns(columns)
    sentences: list[Sentence] = []
    rows: list[list[str]] = []
    document = 0
    document_has_sentences = False
    known_tags: set[str] = set()
    tag_column = columns.index("tag") if "tag" in columns else None
    for number, line in enumerate(text.split("\n"), start=1):
        # tokens may hold other white space, such as the non-breaking one: only these two separate
        row = [part for part in line.replace("\t", " ").split(" ") if part]
        starts_document = bool(row) and row[0] == DOCUMENT_START
        if row and not starts_document:
            if len(row) != len(columns):
                raise ParseError(
                    f"expected {len(columns)} columns ({' '.join(columns)}), got {len(row)}; columns= says which",
                    file=file,
                    line=number,
                )
            if tag_column is not None and row[tag_column] not in known_tags:
                if not TAG.fullmatch(row[tag_column]):
                    problem = f"a tag is O or B-, I-, E- or S- with a type, got {row[tag_column]!r}"
                    raise ParseError(problem, file=file, line=number)
                known_tags.add(row[tag_column])
            rows.append(row)
            continue
        if rows:
            sentences.append(_sentence(rows, columns, document))
            document_has_sentences = True
            rows = []
        if starts_document and document_has_sentences:
            document += 1
            document_has_sentences = False
    if rows:
        sentences.append(_sentence(rows, columns, document))
    if not sentences:
        raise ParseError(f"no sentences; expected lines of {' '.join(columns)}", file=file)
    return tuple(sentences)


def _check_columns(columns: Sequence[str]) -> None:
    read_columns = [column for column in columns if column != SKIPPED]
    if "token" not in columns or len(set(read_columns)) != len(read_columns) or not set(read_columns) <= set(COLUMNS):
        raise DataError(f"columns are token and any of pos, chunk, tag, each once, and _ to skip, got {[*columns]}")


def _sentence(rows: list[list[str]], columns: Sequence[str], document: int) -> Sentence:
    values = dict(zip(columns, zip(*rows, strict=True), strict=True))
    return Sentence(values["token"], values.get("pos", ()), values.get("chunk", ()), values.get("tag", ()), document)


def spans(tags: Sequence[str]) -> tuple[Span, ...]:
    """Return the spans that tags mark, in order; IOB1, IOB2 and BIOES are read alike.

    A span starts at B or S, after E or S, and wherever the type changes; what follows without a start starts one.

    >>> spans(["I-ORG", "I-ORG", "B-ORG", "O", "S-PER"])
    (Span(start=0, end=2, type='ORG'), Span(start=2, end=3, type='ORG'), Span(start=4, end=5, type='PER'))
    """
    marked: list[Span] = []
    start, current, closed = 0, "", True
    for position, tag in enumerate(tags):
        if not TAG.fullmatch(tag):
            raise DataError(f"a tag is O or B-, I-, E- or S- with a type, got {tag!r} at position {position}")
        prefix, type_name = tag[0], tag[2:]
        if not closed and (tag == OUTSIDE or prefix in "BS" or type_name != current):
            marked.append(Span(start, position, current))
            closed = True
        if tag == OUTSIDE:
            continue
        if closed:
            start, current, closed = position, type_name, False
        if prefix in "ES":
            marked.append(Span(start, position + 1, current))
            closed = True
    if not closed:
        marked.append(Span(start, len(tags), current))
    return tuple(marked)


def bioes(marked: Iterable[Span], length: int) -> tuple[str, ...]:
    """Return the BIOES tags of ``length`` tokens with these spans, which may not overlap.

    >>> bioes([Span(0, 3, "ORG"), Span(4, 5, "PER")], 5)
    ('B-ORG', 'I-ORG', 'E-ORG', 'O', 'S-PER')
    """
    tags = [OUTSIDE] * length
    for span in marked:
        if not 0 <= span.start < span.end <= length or any(tag != OUTSIDE for tag in tags[span.start : span.end]):
            raise DataError(f"spans must lie within {length} tokens and not overlap, got {span}")
        if span.end - span.start == 1:
            tags[span.start] = f"S-{span.type}"
        else:
            inside = [f"I-{span.type}"] * (span.end - span.start - 2)
            tags[span.start : span.end] = [f"B-{span.type}", *inside, f"E-{span.type}"]
    return tuple(tags)


def to_bioes(tags: Sequence[str]) -> tuple[str, ...]:
    """Convert IOB1 or IOB2 tags to BIOES; BIOES tags stay as they are.

    >>> to_bioes(["I-LOC", "B-LOC", "I-LOC", "O"])
    ('S-LOC', 'B-LOC', 'E-LOC', 'O')
    """
    return bioes(spans(tags), len(tags))


def bioes_classes(types: Iterable[str]) -> tuple[str, ...]:
    """Return the BIOES classes of some types: O, then B, I, E and S of each type in alphabetical order.

    >>> bioes_classes({"PER", "LOC"})
    ('O', 'B-LOC', 'I-LOC', 'E-LOC', 'S-LOC', 'B-PER', 'I-PER', 'E-PER', 'S-PER')
    """
    return (OUTSIDE, *(f"{prefix}-{type_name}" for type_name in sorted(set(types)) for prefix in "BIES"))


def to_knowledge_base(
    sentences: Iterable[Sentence], *, splits: Mapping[str, Iterable[Sentence]] | None = None
) -> KnowledgeBase:
    """Turn sentences into a knowledge base in which each is a world.

    Its predicates, as far as the columns give them: ``next(token, token)`` and ``word(token, word)``, both closed,
    ``label(token)`` with `bioes_classes`, ``pos(token)`` and ``chunk(token)`` with the classes that occur, sorted. A
    column of which only one class is known says nothing and gives no predicate. The world of sentence 7 is ``7``,
    in the split testa ``testa:7``; its tokens are ``7#0 EU``, ``7#1 rejects``, … in order. Words are shared by all
    worlds, so that a rule can name them.

    >>> kb = to_knowledge_base([Sentence(("New", "York"), tags=("I-LOC", "I-LOC"))])
    >>> kb.tuples("label"), kb.tuples("next")
    ([('0#0 New', 'B-LOC'), ('0#1 York', 'E-LOC')], [('0#0 New', '0#1 York')])
    """
    parts = join_splits(sentences, splits, "sentences")
    everything = [sentence for part in parts.values() for sentence in part]
    classes = {
        "label": bioes_classes(tag[2:] for sentence in everything for tag in set(sentence.tags) if tag != OUTSIDE),
        "pos": tuple(sorted({tag for sentence in everything for tag in sentence.pos})),
        "chunk": tuple(sorted({tag for sentence in everything for tag in sentence.chunks})),
    }
    builder = KnowledgeBaseBuilder(
        [PredicateDeclaration("next", ("token", "token")), PredicateDeclaration("word", ("token", "word"))],
        closed=("next", "word"),
        shared=("word",),
    )
    for name, values in classes.items():
        if len(values) > 1:
            builder.declare(PredicateDeclaration(name, ("token",), values))
    for split, members in parts.items():
        for position, sentence in enumerate(members):
            world = f"{split}:{position}" if split else str(position)
            builder.world(world)
            labels = [f"{world}#{index} {token}" for index, token in enumerate(sentence.tokens)]
            for label, token in zip(labels, sentence.tokens, strict=True):
                builder.add("word", [label, token], world=world, split=split)
            for before, after in pairwise(labels):
                builder.add("next", [before, after], world=world, split=split)
            tags = {"label": to_bioes(sentence.tags), "pos": sentence.pos, "chunk": sentence.chunks}
            for name, values in tags.items():
                if len(classes[name]) > 1:
                    for label, value in zip(labels, values, strict=False):
                        builder.add(name, [label], value=value, world=world, split=split)
    return builder.build()
