"""Facts of any arity as text (``.facts``), in the conventions of the rule language.

One statement to a full stop (a ``.`` before white space, ``%`` or the end), ``%`` comments, names that are not
lower-case words in single quotes, bare numerals for numbers::

    predicate label(token) in {'B-PER', o}.   % types and classes; needed before the facts of a multi-class predicate
    predicate age(person, number).
    closed friend.                            % what is not a fact of friend is false
    parent_of(ann, bob).                      % true
    !smoke(ann).                              % observed false
    age(ann, 42).
    label(t1) in {'B-PER'}.                   % the class of a multi-class fact
    entity zoe: person.                       % an entity without facts; without ": type" it is of type entity
    split test.                               % what follows belongs to the split test …
    split.                                    % … and from here to the main facts again
    shared word.                              % entities of type word belong to no world; facts of all may name them
    world 'doc 1'.                            % what follows stands in this world, until the next one

A predicate without a declaration takes the types ``entity`` and ``number`` from its first fact. A text without any
statement gives an empty knowledge base if it holds a comment; a blank one is an error, for it is most often a mistake.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import numpy as np

from rulewright.data import ENTITY_TYPE, KnowledgeBase, KnowledgeBaseBuilder, Value
from rulewright.data.builder import MAIN
from rulewright.data.facts import Column
from rulewright.errors import DataError, ParseError, RulewrightError
from rulewright.files import read_text, write_text
from rulewright.io.cursor import Cursor, shorten
from rulewright.io.folders import lay_out_folder
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration
from rulewright.logic.parser import unquote
from rulewright.logic.printer import RESERVED, quote

_EMPTY = "% no facts\n"
_EXACT = 2.0**53


def to_text(kb: KnowledgeBase) -> str:
    """Return the text of a ``.facts`` file that holds all of a knowledge base.

    >>> print(to_text(KnowledgeBase.from_facts([("age", "ann", 42), ("likes", "ann", "Bob")])), end="")
    age(ann, 42).
    likes(ann, 'Bob').
    """
    predicates = all_predicates(kb)
    # A declaration is left out where the first fact gives the same types and the same position in the order
    needed = [name for name, declaration in predicates.items() if not _is_evident(kb, declaration)]
    in_order = not kb.worlds and needed == [*predicates][: len(needed)]
    lines = [str(predicates[name]) for name in (needed if in_order else predicates)]
    lines += [f"closed {quote(name)}." for name in predicates if name in kb.closed]
    lines += [f"shared {quote(name)}." for name, domain in kb.domains.items() if kb.worlds and domain.worlds is None]
    unused_entities = _write_unused_entities(kb)
    for split, part in {MAIN: kb, **kb.splits}.items():
        if split != MAIN:
            lines.append(f"split {quote(split)}.")
        elif part is not kb:
            raise DataError("a split without a name cannot be written; name it")
        facts = _write_facts_by_world(part)
        for position, world in enumerate(part.worlds or [None]):
            inside = [*(unused_entities[position] if part is kb else ()), *facts[position]]
            if world is not None and (inside or part is kb):
                lines.append(f"world {quote(world)}.")
            lines += inside
    return "".join(f"{line}\n" for line in lines) or _EMPTY


def all_predicates(kb: KnowledgeBase) -> dict[str, PredicateDeclaration]:
    """Return the predicates of a knowledge base and its splits; refuse splits that disagree on one."""
    predicates = dict(kb.predicates)
    for split, part in kb.splits.items():
        for name, declaration in part.predicates.items():
            if predicates.setdefault(name, declaration) != declaration:
                raise DataError(f"split {split!r} has {declaration}, which elsewhere is {predicates[name]}")
    return predicates


def _is_evident(kb: KnowledgeBase, declaration: PredicateDeclaration) -> bool:
    name = declaration.name
    used = name in kb.predicates and (kb.count(name) or kb.count(name, truth=False))
    return bool(used) and declaration.classes is None and {*declaration.types} <= {ENTITY_TYPE, NUMBER_TYPE}


def _write_facts_by_world(kb: KnowledgeBase) -> list[list[str]]:
    """Write the facts, those of each world apart; all in one where there are no worlds."""
    labels = {name: [quote(label) for label in domain.labels] for name, domain in kb.domains.items()}
    result: list[list[str]] = [[] for _ in kb.worlds or [None]]
    for declaration in kb.predicates.values():
        for truth in (True, False):
            columns = kb.columns(declaration.name, truth=truth)
            lines = _write_facts(kb, declaration, columns, labels, "" if truth else "!")
            worlds = find_worlds(kb, declaration, columns)
            if worlds is None:
                result[0] += lines
            else:
                for world, line in zip(worlds.tolist(), lines, strict=True):
                    result[world].append(line)
    return result


def _write_facts(
    kb: KnowledgeBase,
    declaration: PredicateDeclaration,
    columns: tuple[Column, ...],
    labels: Mapping[str, list[str]],
    sign: str,
) -> Iterator[str]:
    parts = []
    for type_name, column in zip(declaration.types, columns, strict=False):
        if type_name == NUMBER_TYPE:
            parts.append([_write_number(declaration, value) for value in column.tolist()])
        else:
            of_type = labels[type_name]
            parts.append([of_type[position] for position in (column - kb.domains[type_name].start).tolist()])
    prefix = f"{sign}{quote(declaration.name)}("
    if declaration.classes is None:
        return (f"{prefix}{', '.join(args)})." for args in zip(*parts, strict=True))
    classes = [quote(name) for name in declaration.classes]
    return (
        f"{prefix}{', '.join(args)}) in {{{classes[class_index]}}}."
        for class_index, args in zip(columns[-1].tolist(), zip(*parts, strict=True), strict=True)
    )


def check_finite(declaration: PredicateDeclaration, value: float) -> None:
    """Refuse a number that no text can hold."""
    if not math.isfinite(value):
        raise DataError(f"a fact of {declaration.name} has the number {value}; only finite ones can be written")


def _write_number(declaration: PredicateDeclaration, value: float) -> str:
    check_finite(declaration, value)
    return repr(int(value) if value.is_integer() and abs(value) <= _EXACT else value)


def find_worlds(kb: KnowledgeBase, declaration: PredicateDeclaration, columns: tuple[Column, ...]) -> Column | None:
    """Return the index of the world of each fact, None where they belong to none."""
    for type_name, column in zip(declaration.types, columns, strict=False):
        worlds = None if type_name == NUMBER_TYPE else kb.domains[type_name].worlds
        if worlds is not None:
            world_indices: Column = worlds[column - kb.domains[type_name].start]
            return world_indices
    return None


def _write_unused_entities(kb: KnowledgeBase) -> list[list[str]]:
    """Write an ``entity`` statement for every entity that no fact names, those of each world apart."""
    used: dict[str, set[str]] = {type_name: set() for type_name in kb.domains}
    for part in (kb, *kb.splits.values()):
        for declaration in part.predicates.values():
            for truth in (True, False):
                columns = part.columns(declaration.name, truth=truth)
                for type_name, column in zip(declaration.types, columns, strict=False):
                    if type_name != NUMBER_TYPE:
                        labels = part.domains[type_name].labels_of(np.unique(column))
                        used.setdefault(type_name, set()).update(labels)
    result: list[list[str]] = [[] for _ in kb.worlds or [None]]
    for type_name, domain in kb.domains.items():
        suffix = "." if type_name == ENTITY_TYPE else f": {quote(type_name)}."
        for position, label in enumerate(domain.labels):
            if label not in used[type_name]:
                world = 0 if domain.worlds is None else int(domain.worlds[position])
                result[world].append(f"entity {quote(label)}{suffix}")
    return result


# Reading

_NUMBER = r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_WORD = r"[a-z][A-Za-z0-9_]*"
_QUOTED = r"'[^'\\\n]*'"  # without escapes
_TERM = rf"(?:{_WORD}|{_QUOTED}|{_NUMBER})"
# One plain fact to the end of its line, its arguments all words, all quoted or mixed. What this does not match the
# tokens below read or explain.
_FACT = re.compile(
    rf"(!?)({_WORD}|{_QUOTED})\((?:({_WORD}(?:, ?{_WORD})*)|({_QUOTED}(?:, {_QUOTED})*)|({_TERM}(?:, ?{_TERM})*))\)"
    rf"(?: in \{{({_WORD}|{_QUOTED})\}})?\.[ \t]*(?:%[^\n]*)?(?:\n|\Z)"
)
_TERMS = re.compile(_TERM)
_T = TypeVar("_T")


def read(path: str | os.PathLike[str]) -> KnowledgeBase:
    """Read a ``.facts`` file, ``-`` for standard input, or a folder of them: see `io.folders`."""
    folder = Path(path)
    if not folder.is_dir():
        return parse(read_text(path), file=os.fspath(path))
    layout = lay_out_folder(folder, (".facts",))
    if not layout.files:
        raise DataError(f"{folder}: there is no .facts file here")
    builder = KnowledgeBaseBuilder()
    for split, files in layout.files.items():
        for file in files:
            kb = _parse_into(builder, read_text(file), str(file), split)
    return kb.with_notes(layout.notes)


def write_scored(kb: KnowledgeBase, comments: Mapping[str, str], path: str | os.PathLike[str]) -> None:
    """Write a ``.facts`` file with a comment behind each fact that has one, by its text."""
    lines = to_text(kb).splitlines()
    found = (comments.get(line.removesuffix(".")) for line in lines)
    write_text(
        path, "".join(f"{line}  % {note}\n" if note else f"{line}\n" for line, note in zip(lines, found, strict=True))
    )


def write(kb: KnowledgeBase, path: str | os.PathLike[str]) -> None:
    """Write a knowledge base as a ``.facts`` file, in one step; ``-`` is standard output.

    Reading it back gives equal facts, predicates, types, entities, worlds, splits and closed predicates; the order of
    the entities, and so their indices, may be another.
    """
    write_text(path, to_text(kb))


def parse(text: str, *, file: str | None = None) -> KnowledgeBase:
    """Read facts from a text; ``file`` is named in errors.

    >>> kb = parse("parent_of(ann, bob).  !smoke(ann).  age(ann, 42).  split test.  parent_of(bob, 'Cid Lee').")
    >>> kb
    KnowledgeBase(3 entities, 3 predicates, 2 facts, 1 observed false, test: 1)
    >>> parse("parent_of(ann, X).")
    Traceback (most recent call last):
    ...
    rulewright.errors.ParseError: <text>:1:16: found the variable X; facts have none: a name is quoted, as in 'X'
    """
    return _parse_into(KnowledgeBaseBuilder(), text, file, MAIN)


def _parse_into(builder: KnowledgeBaseBuilder, text: str, file: str | None, split: str) -> KnowledgeBase:
    """Read facts of a split into a builder, and return all that is there then."""
    if split != MAIN:
        builder.split(split)
    reader = _FactReader(_FactCursor(text, file=file), builder, split)
    try:
        return reader.read()
    except ParseError:
        raise
    except RulewrightError as error:
        raise reader.cursor.error(str(error), reader.subject) from None


class _FactCursor(Cursor):
    tokens = re.compile(
        rf"(?P<stop>\.(?=\s|%|\Z))|(?P<quoted>'(?:\\[^\n]|[^'\\\n])*')|(?P<number>{_NUMBER})"
        r"|(?P<variable>[A-Z_][A-Za-z0-9_]*)|(?P<word>[a-z][A-Za-z0-9_]*)"
        r"|(?P<sign>:-|::|[(){},:!])|(?P<end>\Z)|(?P<other>.)",
        re.DOTALL,
    )
    gap = re.compile(r"(?:\s|%[^\n]*)*")

    def unexpected(self, expected: str) -> ParseError:
        kind, text, offset = self.token
        rest = shorten(self.text[offset:].split("\n", 1)[0])
        if kind == "variable":
            return self.error(f"found the variable {text}; facts have none: a name is quoted, as in '{text}'")
        if text in (":-", "::"):
            return self.error(f"found '{text}'; rules live in .rules files, facts have the form parent_of(ann, bob).")
        if text == "'":
            return self.error(f"found {rest}: a quoted name that does not end on its line, or a quote inside a name")
        if kind == "other":
            return self.error(f"found {rest!r}; names that are not lower-case ASCII words are written in single quotes")
        return super().unexpected(expected)


class _Memory(dict[str, _T]):
    """What each text means, worked out once: names recur throughout a file."""

    def __init__(self, meaning: Callable[[str], _T]) -> None:
        super().__init__()
        self._meaning = meaning

    def __missing__(self, text: str) -> _T:
        value = self[text] = self._meaning(text)
        return value


def _read_name(token: str) -> str:
    if token.startswith("'"):
        return unquote(token)
    if token in RESERVED:
        raise DataError(f"'{token}' is a word of the language; as a name it stands in quotes")
    return token


def _read_value(token: str) -> Value:
    if not re.fullmatch(_NUMBER, token):
        return _read_name(token)
    value = float(token)
    whole = token.removeprefix("-").isdecimal()
    if len(token) > 400 or not math.isfinite(value) or (whole and int(token) != value):
        raise DataError(f"{shorten(token)} has no exact value as a number; quote it if it names something")
    return value


class _FactReader:
    """Reads one text: plain facts in a tight loop, all other statements token by token."""

    def __init__(self, cursor: Cursor, builder: KnowledgeBaseBuilder, split: str = MAIN) -> None:
        self.cursor = cursor
        self.subject = 0  # the offset of what an error is about
        self._builder = builder
        self._home = split  # where facts belong outside the splits that the text names
        self._names = _Memory(_read_name)
        self._values = _Memory(_read_value)
        self._world: str | None = None
        self._first_outside: int | None = None  # the first statement that stands in no world
        self._split = split
        self._closed: dict[str, int] = {}
        self._statements: dict[str, Callable[[int], None]] = {
            "predicate": self._read_predicate,
            "closed": self._read_closed,
            "shared": self._read_shared,
            "world": self._read_world,
            "split": self._read_split,
            "entity": self._read_entity,
        }

    def read(self) -> KnowledgeBase:
        if not self.cursor.text.strip():
            raise DataError("no facts; a file that is meant to be empty holds a comment: % no facts")
        while self.cursor.token.kind != "end":
            if not self._read_plain_facts():
                self._read_statement()
        self.subject = self._first_outside or 0
        kb = self._builder.build()
        for name, offset in self._closed.items():
            self.subject = offset
            kb.predicate(name)
        return kb

    def _read_plain_facts(self) -> bool:
        """Read as many plain facts as follow here; tell whether there was one."""
        text, names, values, add, match = self.cursor.text, self._names, self._values, self._builder.add, _FACT.match
        world, split = self._world, self._split
        start = offset = self.cursor.token.offset
        while fact := match(text, offset):
            self.subject = offset
            negation, name, words, quoted, mixed, class_name = fact.groups()
            args: Sequence[Value]
            if words is not None:
                args = words.replace(" ", "").split(",")
                if not RESERVED.isdisjoint(args):
                    break  # the token by token reader says where
            elif quoted is not None:
                args = quoted[1:-1].split("', '")
            else:
                args = [values[term] for term in _TERMS.findall(mixed)]
            value = None if class_name is None else names[class_name]
            add(names[name], args, truth=not negation, value=value, world=world, split=split)
            offset = fact.end()
        if offset == start:
            return False
        self._note_outside(start)
        self.cursor.move(offset)
        return True

    def _note_outside(self, offset: int) -> None:
        if self._world is None and self._first_outside is None:
            self._first_outside = offset

    def _read_statement(self) -> None:
        cursor, first = self.cursor, self.cursor.token
        self.subject = first.offset
        if first.text in self._statements and first.kind == "word":
            cursor.take()
            if cursor.token.text != "(":
                self._statements[first.text](first.offset)
                return
            cursor.move(first.offset)
        self._note_outside(first.offset)
        truth = cursor.accept("!") is None
        name = self._take_name("a fact such as parent_of(ann, bob).")
        args = cursor.take_list(self._take_value)
        classes = self._take_classes()
        self._take_stop(first.offset)
        if classes is not None and (len(classes) != 1 or not truth):
            raise DataError(f"a fact of {name} names exactly one class, without '!', as in {name}(…) in {{a}}.")
        value = None if classes is None else classes[0]
        self._builder.add(name, args, truth=truth, value=value, world=self._world, split=self._split)

    def _read_predicate(self, start: int) -> None:
        name = self._take_name("the name of a predicate")
        types = self.cursor.take_list(lambda: self._take_name("a type"))
        classes = self._take_classes()
        self._take_stop(start)
        self._builder.declare(PredicateDeclaration(name, tuple(types), None if classes is None else tuple(classes)))

    def _read_closed(self, start: int) -> None:
        name = self._take_name("the name of a predicate")
        self._take_stop(start)
        self._closed.setdefault(name, start)
        self._builder.close(name)

    def _read_shared(self, start: int) -> None:
        type_name = self._take_name("a type")
        self._take_stop(start)
        self._builder.share(type_name)

    def _read_world(self, start: int) -> None:
        self._world = self._take_name("the name of a world")
        self._take_stop(start)
        self._builder.world(self._world)

    def _read_split(self, start: int) -> None:
        if self.cursor.token.kind == "stop":
            self._split = self._home
        else:
            self._split = self._take_name("the name of a split, or '.'")
            if self._split == MAIN:
                raise DataError("a split needs a name; 'split.' goes back to the main facts")
            self._builder.split(self._split)
        self._take_stop(start)

    def _read_entity(self, start: int) -> None:
        name = self._take_name("the name of an entity")
        type_name = self._take_name("a type") if self.cursor.accept(":") else ENTITY_TYPE
        self._take_stop(start)
        self._note_outside(start)
        self._builder.entity(name, type=type_name, world=self._world)

    def _take_stop(self, start: int) -> None:
        """Take the full stop; from here on an error is about the whole statement."""
        self.cursor.expect_kind("'.'", "stop")
        self.subject = start

    def _take_name(self, expected: str) -> str:
        self.subject = self.cursor.token.offset
        return self._names[self.cursor.expect_kind(expected, "word", "quoted").text]

    def _take_value(self) -> Value:
        self.subject = self.cursor.token.offset
        return self._values[self.cursor.expect_kind("a name or a number", "word", "quoted", "number").text]

    def _take_classes(self) -> list[str] | None:
        if not self.cursor.accept("in"):
            return None
        return self.cursor.take_list(lambda: self._take_name("a class"), "{", "}")
