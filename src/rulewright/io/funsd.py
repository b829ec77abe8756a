"""Scanned forms in the JSON of FUNSD: blocks of words, what each block is, and which belong together."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.errors import DataError, FileError, ParseError
from rulewright.files import file_error
from rulewright.io.json_shape import Json, load, show_short
from rulewright.io.scenes import PixelBox
from rulewright.logic import PredicateDeclaration

LABELS = ("question", "answer", "header", "other")
"""The classes of a block, in the order of ``label``."""

MAIN_SPLIT = "train"
"""The split whose facts are the main facts of a knowledge base."""

_SPLIT_FOLDERS = {"training_data": "train", "testing_data": "test"}


@dataclass(frozen=True, slots=True)
class Word:
    """A word on the page."""

    text: str
    box: PixelBox


@dataclass(frozen=True, slots=True)
class Block:
    """Words that stand together; ``links`` are pairs of block ids such as (question, answer), as in the file."""

    id: int
    label: str
    words: tuple[Word, ...]
    links: tuple[tuple[int, int], ...]
    box: PixelBox

    @property
    def text(self) -> str:
        """The words with spaces between them."""
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class Form:
    """A form; ``empty_words`` counts the words without text that were dropped from its blocks."""

    name: str
    blocks: tuple[Block, ...]
    split: str = MAIN_SPLIT
    empty_words: int = 0

    def __post_init__(self) -> None:
        known = {block.id for block in self.blocks}
        if len(known) != len(self.blocks):
            raise DataError(f"form {self.name!r} has two blocks with one id")
        for pair in self.links:
            if not known.issuperset(pair):
                raise DataError(f"form {self.name!r} links {pair[0]} to {pair[1]} but has no such block")

    @property
    def words(self) -> tuple[Word, ...]:
        """The words of all blocks, in order."""
        return tuple(word for block in self.blocks for word in block.words)

    @property
    def links(self) -> tuple[tuple[int, int], ...]:
        """The links of all blocks, each once: the file lists a link at both of its ends."""
        return tuple(dict.fromkeys(pair for block in self.blocks for pair in block.links))


def read(folder: str | os.PathLike[str]) -> tuple[Form, ...]:
    """Read the forms of the whole set, of one split or of one folder of annotations, in order of their names.

    The folder is FUNSD's own (with training_data and testing_data), one of these two, or holds the JSON files. The
    split of a form is train or test after these folders, train where neither is there.
    """
    root = Path(folder)
    split_folders = [root / name for name in _SPLIT_FOLDERS if (root / name).is_dir()]
    forms: list[Form] = []
    for split_folder in split_folders or [root]:
        annotations = split_folder / "annotations"
        files = _json_files(annotations if annotations.is_dir() else split_folder)
        forms += [read_form(file, split=_split_of(file)) for file in files]
    return tuple(forms)


def read_facts(path: str | os.PathLike[str]) -> KnowledgeBase:
    """Read the facts of a folder of forms, or of one form."""
    forms = read(path) if Path(path).is_dir() else (read_form(path),)
    if len({form.split for form in forms}) == 1:  # one split alone is what the caller wants to see
        forms = tuple(replace(form, split=MAIN_SPLIT) for form in forms)
    return to_knowledge_base(forms)


def _json_files(folder: Path) -> list[Path]:
    try:
        files = sorted(file for file in folder.iterdir() if file.name.endswith((".json", ".json.gz")))
    except OSError as error:
        raise file_error("read", str(folder), error) from None
    if not files:
        raise FileError(f"cannot read {folder}: no JSON files; expected training_data, testing_data or annotations")
    return files


def _split_of(file: Path) -> str:
    names = [parent.name for parent in file.absolute().parents[:2]]
    return next((_SPLIT_FOLDERS[name] for name in names if name in _SPLIT_FOLDERS), MAIN_SPLIT)


def read_form(path: str | os.PathLike[str], *, split: str = MAIN_SPLIT) -> Form:
    """Read one form; words without text are dropped and counted, a block stays even if it has no other."""
    items = load(path)["form"].items("blocks")
    positions: dict[int, int] = {}
    for position, item in enumerate(items):
        block_id = item["id"].integer()
        if block_id in positions:
            twice = f"form[{positions[block_id]}] and form[{position}] have the same id {show_short(block_id)}"
            raise ParseError(f"{twice}; ids must differ", file=item.file)
        positions[block_id] = position
    blocks = tuple(_read_block(item, positions) for item in items)
    dropped = sum(len(item["words"].items()) for item in items) - sum(len(block.words) for block in blocks)
    return Form(Path(path).name.split(".json")[0], blocks, split, dropped)


def _read_block(item: Json, block_ids: Collection[int]) -> Block:
    label = item["label"]
    if label.text() not in LABELS:
        raise label.fault(f"must be one of {', '.join(LABELS)}, got {show_short(label.value)}")
    words = [Word(word["text"].text(), PixelBox(*word["box"].integers(4))) for word in item["words"].items("words")]
    return Block(
        item["id"].integer(),
        label.text(),
        tuple(word for word in words if word.text.strip()),
        tuple(_read_link(link, block_ids) for link in item["linking"].items("pairs of ids")),
        PixelBox(*item["box"].integers(4)),
    )


def _read_link(item: Json, block_ids: Collection[int]) -> tuple[int, int]:
    first, second = item.integers(2)
    for end in (first, second):
        if end not in block_ids:
            raise item.fault(f"names block {show_short(end)} but the form has no block with this id")
    return first, second


def to_knowledge_base(forms: Iterable[Form]) -> KnowledgeBase:
    """Turn forms into a knowledge base in which each is a world with entities of the types block and word.

    Its predicates are ``part_of(word, block)``, which is closed, ``linked(block, block)`` in the direction of the
    file, and ``label(block)`` with the classes question, answer, header and other. A block is labelled ``form#id``,
    a word ``form#id.position text``; both stand in the order of the file. The facts of the split train are the main
    facts, the others those of their split.

    >>> box = PixelBox(0, 0, 9, 9)
    >>> question = Block(0, "question", (Word("Date:", box),), ((0, 1),), box)
    >>> answer = Block(1, "answer", (Word("May", box), Word("2", box)), ((0, 1),), box)
    >>> kb = to_knowledge_base([Form("a", (question, answer))])
    >>> kb.tuples("linked"), kb.tuples("part_of")[1:]
    ([('a#0', 'a#1')], [('a#1.0 May', 'a#1'), ('a#1.1 2', 'a#1')])
    """
    builder = KnowledgeBaseBuilder(
        [
            PredicateDeclaration("part_of", ("word", "block")),
            PredicateDeclaration("linked", ("block", "block")),
            PredicateDeclaration("label", ("block",), LABELS),
        ],
        closed=("part_of",),
    )
    splits: dict[str, str] = {}
    for form in forms:
        if form.name in splits:
            raise DataError(
                f"form {form.name!r} occurs twice, in split {splits[form.name]!r} and in {form.split!r}; "
                "forms name worlds and must differ"
            )
        splits[form.name] = form.split
        split = "" if form.split == MAIN_SPLIT else form.split
        builder.world(form.name)
        for block in form.blocks:
            label = f"{form.name}#{block.id}"
            builder.add("label", [label], value=block.label, world=form.name, split=split)
            for position, word in enumerate(block.words):
                name = f"{label}.{position} {word.text}"
                builder.add("part_of", [name, label], world=form.name, split=split)
        for first, second in form.links:
            ends = [f"{form.name}#{first}", f"{form.name}#{second}"]
            builder.add("linked", ends, world=form.name, split=split)
    return builder.build()
