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
from typing import NamedTuple, TypeVar

import numpy as np

from rulewright.data import ENTITY_TYPE, KnowledgeBase, KnowledgeBaseBuilder, Value
from rulewright.data.builder import MAIN
from rulewright.data.facts import Column
from rulewright.errors import DataError, ParseError, RulewrightError
from rulewright.files import read_text, write_text
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration
from rulewright.logic.parser import unquote
from rulewright.logic.printer import RESERVED, quote, write_number

_EMPTY = "% no facts\n"
_EXACT = 2.0**53


def to_text(kb: KnowledgeBase) -> str:
    """Return the text of a ``.facts`` file that holds all of a knowledge base.

    >>> print(to_text(KnowledgeBase.from_facts([("age", "ann", 42), ("likes", "ann", "Bob")])), end="")
    age(ann, 42).
    likes(ann, 'Bob').
    """
    predicates = all_predicates(kb)
    lines = [str(predicates[name]) for name in _to_declare(kb, predicates)]
    lines += [f"closed {quote(name)}." for name in predicates if name in kb.closed]
    lines += [f"shared {quote(kind)}." for kind, domain in kb.domains.items() if kb.worlds and domain.worlds is None]
    lonely = _lonely_entities(kb)
    for split, part in {MAIN: kb, **kb.splits}.items():
        if split != MAIN:
            lines.append(f"split {quote(split)}.")
        elif part is not kb:
            raise DataError("a split without a name cannot be written; name it")
        facts = _facts_by_world(part)
        for position, world in enumerate(part.worlds or [None]):
            inside = [*(lonely[position] if part is kb else ()), *facts[position]]
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


def _to_declare(kb: KnowledgeBase, predicates: Mapping[str, PredicateDeclaration]) -> list[str]:
    """Name the predicates that the first fact would not give the same types, or the same place in the order."""
    needed = [name for name, each in predicates.items() if not _is_evident(kb, each)]
    in_order = not kb.worlds and needed == [*predicates][: len(needed)]
    return needed if in_order else [*predicates]


def _is_evident(kb: KnowledgeBase, declaration: PredicateDeclaration) -> bool:
    name = declaration.name
    used = name in kb.predicates and (kb.count(name) or kb.count(name, truth=False))
    return bool(used) and declaration.classes is None and {*declaration.types} <= {ENTITY_TYPE, NUMBER_TYPE}


def _facts_by_world(kb: KnowledgeBase) -> list[list[str]]:
    """Write the facts, those of each world apart; all in one where there are no worlds."""
    labels = {name: [quote(label) for label in domain.labels] for name, domain in kb.domains.items()}
    result: list[list[str]] = [[] for _ in kb.worlds or [None]]
    for declaration in kb.predicates.values():
        for truth in (True, False):
            columns = kb.columns(declaration.name, truth=truth)
            lines = _fact_lines(kb, declaration, columns, labels, "" if truth else "!")
            worlds = worlds_of(kb, declaration, columns)
            if worlds is None:
                result[0] += lines
            else:
                for world, line in zip(worlds.tolist(), lines, strict=True):
                    result[world].append(line)
    return result


def _fact_lines(
    kb: KnowledgeBase,
    declaration: PredicateDeclaration,
    columns: tuple[Column, ...],
    labels: Mapping[str, list[str]],
    sign: str,
) -> Iterator[str]:
    parts = []
    for kind, column in zip(declaration.types, columns, strict=False):
        if kind == NUMBER_TYPE:
            parts.append([_number(declaration, value) for value in column.tolist()])
        else:
            known = labels[kind]
            parts.append([known[position] for position in (column - kb.domains[kind].start).tolist()])
    prefix = f"{sign}{quote(declaration.name)}("
    if declaration.classes is None:
        return (f"{prefix}{', '.join(args)})." for args in zip(*parts, strict=True))
    classes = [quote(each) for each in declaration.classes]
    chosen = [classes[position] for position in columns[-1].tolist()]
    return (
        f"{prefix}{', '.join(args)}) in {{{each}}}."
        for each, args in zip(chosen, zip(*parts, strict=True), strict=True)
    )


def _number(declaration: PredicateDeclaration, value: float) -> str:
    if not math.isfinite(value):
        raise DataError(f"a fact of {declaration.name} has the number {value}; only finite ones can be written")
    return write_number(int(value) if value.is_integer() and abs(value) <= _EXACT else value)


def worlds_of(kb: KnowledgeBase, declaration: PredicateDeclaration, columns: tuple[Column, ...]) -> Column | None:
    """Return the number of the world of each fact, None where they belong to none."""
    for kind, column in zip(declaration.types, columns, strict=False):
        worlds = None if kind == NUMBER_TYPE else kb.domains[kind].worlds
        if worlds is not None:
            found: Column = worlds[column - kb.domains[kind].start]
            return found
    return None


def _lonely_entities(kb: KnowledgeBase) -> list[list[str]]:
    """Write an ``entity`` statement for every entity that no fact names, those of each world apart."""
    named: dict[str, set[str]] = {kind: set() for kind in kb.domains}
    for part in (kb, *kb.splits.values()):
        for declaration in part.predicates.values():
            for truth in (True, False):
                columns = part.columns(declaration.name, truth=truth)
                for kind, column in zip(declaration.types, columns, strict=False):
                    if kind != NUMBER_TYPE:
                        named.setdefault(kind, set()).update(part.domains[kind].labels_of(np.unique(column)))
    result: list[list[str]] = [[] for _ in kb.worlds or [None]]
    for kind, domain in kb.domains.items():
        suffix = "." if kind == ENTITY_TYPE else f": {quote(kind)}."
        for position, label in enumerate(domain.labels):
            if label not in named[kind]:
                world = 0 if domain.worlds is None else int(domain.worlds[position])
                result[world].append(f"entity {quote(label)}{suffix}")
    return result


__all__ = ["parse", "read", "to_text", "write"]

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
_GAP = re.compile(r"(?:\s|%[^\n]*)*")
_TOKEN = re.compile(
    rf"(?P<stop>\.(?=\s|%|\Z))|(?P<quoted>'(?:\\[^\n]|[^'\\\n])*')|(?P<number>{_NUMBER})|(?P<variable>[A-Z_][A-Za-z0-9_]*)"
    r"|(?P<word>[a-z][A-Za-z0-9_]*)|(?P<sign>:-|::|[(){},:!])|(?P<end>\Z)|(?P<other>.)",
    re.DOTALL,
)
_T = TypeVar("_T")


def read(path: str | os.PathLike[str]) -> KnowledgeBase:
    """Read a ``.facts`` file; ``-`` is standard input."""
    return parse(read_text(path), file=os.fspath(path))


def write(kb: KnowledgeBase, path: str | os.PathLike[str]) -> None:
    """Write a knowledge base as a ``.facts`` file, in one step; ``-`` is standard output.

    Reading it back gives equal facts, predicates, types, entities, worlds, splits and closed predicates; the order of
    the entities, and so their ids, may be another.
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
    reader = _Reader(text.removeprefix("\ufeff"))
    try:
        return reader.read()
    except RulewrightError as error:
        line, column = reader.place()
        message = str(error).replace("\n", "\\n")  # a name may hold line breaks, an error is one line
        raise ParseError(message, file=file, line=line, column=column) from None


class _Token(NamedTuple):
    kind: str
    text: str
    offset: int


class _Memory(dict[str, _T]):
    """What each text means, worked out once: names recur throughout a file."""

    def __init__(self, meaning: Callable[[str], _T]) -> None:
        super().__init__()
        self._meaning = meaning

    def __missing__(self, text: str) -> _T:
        value = self[text] = self._meaning(text)
        return value


def _name(token: str) -> str:
    if token.startswith("'"):
        return unquote(token)
    if token in RESERVED:
        raise DataError(f"'{token}' is a word of the language; as a name it stands in quotes")
    return token


def _value(token: str) -> Value:
    if not re.fullmatch(_NUMBER, token):
        return _name(token)
    number = float(token)
    whole = token.removeprefix("-").isdecimal()
    if len(token) > 400 or not math.isfinite(number) or (whole and int(token) != number):
        raise DataError(f"{_shortened(token)} has no exact value as a number; quote it if it names something")
    return number


def _shortened(text: str, limit: int = 30) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


class _Reader:
    """Reads one text: plain facts in a tight loop, all other statements token by token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._builder = KnowledgeBaseBuilder()
        self._names = _Memory(_name)
        self._values = _Memory(_value)
        self._position = 0  # where reading goes on
        self._fault = 0  # what an error is about
        self._world: str | None = None
        self._outside: int | None = None  # the first statement that stands in no world
        self._split = MAIN
        self._closed: dict[str, int] = {}
        self._statements: dict[str, Callable[[], None]] = {
            "predicate": self._predicate,
            "closed": self._close,
            "shared": self._share,
            "world": self._enter_world,
            "split": self._enter_split,
            "entity": self._entity,
        }

    def place(self) -> tuple[int, int]:
        """Return line and column of what an error is about."""
        start = self._text.rfind("\n", 0, self._fault) + 1
        return self._text.count("\n", 0, self._fault) + 1, self._fault - start + 1

    def read(self) -> KnowledgeBase:
        if not self._text.strip():
            raise DataError("no facts; a file that is meant to be empty holds a comment: % no facts")
        while self._peek().kind != "end":
            if not self._plain_facts():
                self._statement()
        self._fault = self._outside or 0
        kb = self._builder.build()
        for name, offset in self._closed.items():
            self._fault = offset
            kb.predicate(name)
        return kb

    def _plain_facts(self) -> bool:
        """Read as many plain facts as follow here; tell whether there was one."""
        text, names, values, add, match = self._text, self._names, self._values, self._builder.add, _FACT.match
        world, split = self._world, self._split
        start = position = self._position
        while found := match(text, position):
            self._fault = position
            negation, name, words, quoted, mixed, one_class = found.groups()
            args: Sequence[Value]
            if words is not None:
                args = words.replace(" ", "").split(",")
                if not RESERVED.isdisjoint(args):
                    break  # the token by token reader says where
            elif quoted is not None:
                args = quoted[1:-1].split("', '")
            else:
                args = [values[term] for term in _TERMS.findall(mixed)]
            value = None if one_class is None else names[one_class]
            add(names[name], args, truth=not negation, value=value, world=world, split=split)
            position = found.end()
        if position == start:
            return False
        self._note_outside(start)
        self._position = position
        return True

    def _note_outside(self, offset: int) -> None:
        if self._world is None and self._outside is None:
            self._outside = offset

    # Statements, token by token

    def _statement(self) -> None:
        first = self._peek()
        if first.text in self._statements and first.kind == "word":
            self._take()
            if self._peek().text != "(":
                self._statements[first.text]()
                return
            self._position = first.offset
        self._note_outside(first.offset)
        truth = not self._accept("!")
        name = self._take_name("a fact such as parent_of(ann, bob).")
        args = self._list_of(self._take_value, "(", ")")
        classes = self._classes()
        self._stop()
        self._fault = first.offset
        if classes is not None and (len(classes) != 1 or not truth):
            raise DataError(f"a fact of {name} names exactly one class, without '!', as in {name}(…) in {{a}}.")
        value = None if classes is None else classes[0]
        self._builder.add(name, args, truth=truth, value=value, world=self._world, split=self._split)

    def _predicate(self) -> None:
        start = self._fault
        name = self._take_name("the name of a predicate")
        types = self._list_of(lambda: self._take_name("a type"), "(", ")")
        classes = self._classes()
        self._stop()
        self._fault = start
        declaration = PredicateDeclaration(name, tuple(types), None if classes is None else tuple(classes))
        self._builder.declare(declaration)

    def _close(self) -> None:
        start = self._fault
        name = self._take_name("the name of a predicate")
        self._stop()
        self._closed.setdefault(name, start)
        self._builder.close(name)

    def _share(self) -> None:
        start = self._fault
        kind = self._take_name("a type")
        self._stop()
        self._fault = start
        self._builder.share(kind)

    def _enter_world(self) -> None:
        self._world = self._take_name("the name of a world")
        self._stop()
        self._builder.world(self._world)

    def _enter_split(self) -> None:
        if self._peek().kind == "stop":
            self._split = MAIN
        else:
            self._split = self._take_name("the name of a split, or '.'")
            if self._split == MAIN:
                raise DataError("a split needs a name; 'split.' goes back to the main facts")
            self._builder.split(self._split)
        self._stop()

    def _entity(self) -> None:
        start = self._fault
        name = self._take_name("the name of an entity")
        kind = self._take_name("a type") if self._accept(":") else ENTITY_TYPE
        self._stop()
        self._fault = start
        self._note_outside(start)
        self._builder.entity(name, type=kind, world=self._world)

    # Tokens

    def _peek(self) -> _Token:
        gap = _GAP.match(self._text, self._position)
        self._position = gap.end() if gap else self._position
        found = _TOKEN.match(self._text, self._position)
        assert found is not None and found.lastgroup is not None
        return _Token(found.lastgroup, found.group(), self._position)

    def _take(self) -> _Token:
        token = self._peek()
        self._fault = token.offset
        self._position = token.offset + len(token.text)
        return token

    def _accept(self, text: str) -> bool:
        accepted = self._peek().text == text
        if accepted:
            self._take()
        return accepted

    def _expect(self, *texts: str) -> str:
        token = self._take()
        if token.text not in texts:
            raise self._unexpected(token, " or ".join(f"'{text}'" for text in texts))
        return token.text

    def _stop(self) -> None:
        token = self._take()
        if token.kind != "stop":
            raise self._unexpected(token, "'.'")

    def _take_name(self, expected: str) -> str:
        token = self._take()
        if token.kind not in ("word", "quoted"):
            raise self._unexpected(token, expected)
        return self._names[token.text]

    def _take_value(self) -> Value:
        token = self._take()
        if token.kind not in ("word", "quoted", "number"):
            raise self._unexpected(token, "a name or a number")
        return self._values[token.text]

    def _list_of(self, take: Callable[[], _T], opening: str, closing: str) -> list[_T]:
        self._expect(opening)
        found = [take()]
        while self._expect(",", closing) == ",":
            found.append(take())
        return found

    def _classes(self) -> list[str] | None:
        return self._list_of(lambda: self._take_name("a class"), "{", "}") if self._accept("in") else None

    def _unexpected(self, token: _Token, expected: str) -> DataError:
        if token.kind == "variable":
            return DataError(
                f"found the variable {token.text}; facts have none: a name is quoted, as in '{token.text}'"
            )
        if token.text in (":-", "::"):
            return DataError(
                f"found '{token.text}'; rules live in .rules files, facts have the form parent_of(ann, bob)."
            )
        rest = _shortened(self._text[token.offset :].split("\n", 1)[0])
        if token.text == "'":
            return DataError(f"found {rest}: a quoted name that does not end on its line, or a quote inside a name")
        if token.kind == "other":
            return DataError(f"found {rest!r}; names that are not lower-case ASCII words are written in single quotes")
        found = "the end of the text" if token.kind == "end" else f"'{_shortened(token.text)}'"
        return DataError(f"found {found}, expected {expected}")
