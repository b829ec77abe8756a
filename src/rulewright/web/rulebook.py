"""The rules of one file while a person works on them: edit, switch off, add, save; nothing is lost on the way.

Saving keeps comments and layout, for only the statements that changed are written anew. A statement that is switched
off stays in the file as a comment, ``%off `` before each of its lines, so that every other reader passes over it. The
file as it was is kept beside it under the next free number, ``family.rules.1``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rulewright.errors import DataError, FileError, ParseError, unknown_name
from rulewright.files import read_text, write_text
from rulewright.io import read_rules
from rulewright.io.formats import detect_rule_format
from rulewright.logic import Rule, RuleSet, Statement, parse_rules, parse_statement
from rulewright.logic.parser import OFF
from rulewright.logic.ruleset import Usage
from rulewright.logic.switched_off import cut_comments
from rulewright.logic.tokens import split_statements

STATISTICS = ("support", "body", "pairs", "pca", "pca_body", "coverage")
"""Annotations that count facts: they say nothing of a rule that was changed since."""

_DECLARATION = re.compile(r"(predicate|closed)\s")


@dataclass(frozen=True)
class Entry:
    """A statement of the file; ``source`` is its text there, None where it is new or was changed."""

    key: int
    statement: Statement
    is_enabled: bool = True
    source: str | None = None

    @property
    def text(self) -> str:
        """The statement without its statistics, as a person edits it."""
        kept = {name: value for name, value in self.statement.annotations.items() if name not in STATISTICS}
        return str(replace(self.statement, annotations=type(self.statement.annotations)(kept)))

    @property
    def short(self) -> str:
        """The statement alone, with a confidence that is easy to read."""
        bare = replace(self.statement, annotations=type(self.statement.annotations)())
        return str(replace(bare, confidence=round(bare.confidence, 3)) if isinstance(bare, Rule) else bare)

    def line(self) -> str:
        """The statement as the file holds it."""
        text = str(self.statement) if self.source is None else self.source
        return text if self.is_enabled else "\n".join(f"{OFF}{line}" for line in text.split("\n"))


class Rulebook:
    """The statements of a rule file, by keys that stay the same while they are edited.

    >>> _ = (folder / "a.rules").write_text("% mine\\n0.9 :: p(X) :- q(X). @{support: 9}\\n")
    >>> book = Rulebook(folder / "a.rules")
    >>> book.set_enabled(0, False)
    >>> book.add("p(X) :- r(X)").key
    1
    >>> book.save().name
    'a.rules.1'
    >>> print((folder / "a.rules").read_text(), end="")
    % mine
    %off 0.9 :: p(X) :- q(X). @{support: 9}
    p(X) :- r(X).
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self.reload()

    def reload(self) -> None:
        """Take up the file as it is now; changes that were not saved are gone."""
        self.is_editable = detect_rule_format(self.path) == "rules"
        self._stamp = _stamp(self.path)
        self._on_disk = read_text(self.path)
        text = self._on_disk if self.is_editable else str(read_rules(self.path))
        self._declarations = parse_rules(text, file=os.fspath(self.path))
        self._pieces: list[str | int] = []
        self._entries: dict[int, Entry] = {}
        for piece in _cut_text(text, self._declarations):
            if isinstance(piece, str):
                self._pieces.append(piece)
            else:
                self._append(piece)
        self.is_changed = False
        self.version = getattr(self, "version", 0) + 1

    def _append(self, entry: Entry) -> Entry:
        entry = replace(entry, key=len(self._entries))
        self._entries[entry.key] = entry
        self._pieces.append(entry.key)
        return entry

    @property
    def entries(self) -> Sequence[Entry]:
        """All statements in order, also those that are switched off."""
        return tuple(self._entries.values())

    def get_entry(self, key: int) -> Entry:
        """Return a statement; an unknown key is an error."""
        if key not in self._entries:
            raise unknown_name("rule", str(key), ())
        return self._entries[key]

    def enabled_rules(self) -> RuleSet:
        """Return the statements that are switched on, with the file's declarations."""
        statements = [entry.statement for entry in self.entries if entry.is_enabled]
        return RuleSet(statements, predicates=self._declarations.predicates, closed=self._declarations.closed)

    def check(self, text: str, key: int | None = None) -> Statement:
        """Read the text of a statement that is to replace ``key``, or to be added; raise what is wrong with it."""
        statement = parse_statement(text)
        usage = Usage()
        for declaration in self._declarations.predicates:
            usage.declare(declaration)
        for entry in self.entries:
            if entry.key != key and entry.is_enabled:
                usage.add(entry.statement)
        usage.add(statement)
        return statement

    def edit(self, key: int, text: str) -> Entry:
        """Change a statement; text that cannot be read changes nothing."""
        entry = self.get_entry(key)
        if text.strip() == entry.text:
            return entry
        return self._change(replace(entry, statement=self.check(text, key), source=None))

    def add(self, text: str) -> Entry:
        """Add a statement at the end."""
        entry = Entry(0, self.check(text))
        if self._pieces and not self._text().endswith("\n"):
            self._pieces.append("\n")
        entry = self._append(entry)
        self._pieces.append("\n")
        return self._change(entry)

    def set_enabled(self, key: int, enabled: bool) -> None:
        """Switch a statement on or off; one that contradicts the others cannot be switched on."""
        entry = self.get_entry(key)
        if enabled and not entry.is_enabled:
            self.check(str(entry.statement), key)
        if enabled != entry.is_enabled:
            self._change(replace(entry, is_enabled=enabled))

    def _change(self, entry: Entry) -> Entry:
        self._entries[entry.key] = entry
        self.is_changed = True
        self.version += 1
        return entry

    @property
    def is_stale(self) -> bool:
        """Whether the file seems to be another than the one that was read or saved last, by its date and size."""
        return _stamp(self.path) != self._stamp

    def differs_on_disk(self) -> bool:
        """Return whether the file is another than the one that was read or saved last."""
        try:
            return read_text(self.path) != self._on_disk
        except (FileError, ParseError):
            return True

    def save(self, *, overwrite: bool = False) -> Path:
        """Write the file and keep what it held before under the next free number; return the name of the old version.

        A file that someone else has changed meanwhile is left alone, unless ``overwrite`` is given.
        """
        if not self.is_editable:
            raise DataError(f"{self.path.name} is not in the rule language; convert it first: rulewright convert")
        if self.differs_on_disk() and not overwrite:
            raise FileError(f"{self.path.name} has changed on disk since it was read; reload it, or save over it")
        version = 1
        while (old := self.path.with_name(f"{self.path.name}.{version}")).exists():
            version += 1
        if self.path.exists():
            write_text(old, read_text(self.path))
        text = self._text()
        parse_rules(text, file=os.fspath(self.path))  # what cannot be read back is never written
        write_text(self.path, text)
        self._stamp, self._on_disk, self.is_changed = _stamp(self.path), read_text(self.path), False
        return old

    def _text(self) -> str:
        texts: list[str] = []
        line = ""  # what stands on the line so far
        for piece in self._pieces:
            text = piece if isinstance(piece, str) else self._entries[piece].line()
            # "%off" makes a comment of all that follows on its line, and must stand at its beginning
            if line and not isinstance(piece, str) and (line.startswith(OFF) or not self._entries[piece].is_enabled):
                text = f"\n{text}"
            texts.append(text)
            line = text.rpartition("\n")[2] if "\n" in text else line + text
        return "".join(texts)


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


def _cut_text(text: str, rules: RuleSet) -> Iterator[str | Entry]:
    """Cut a text into statements and what stands between them."""
    statements = iter(rules.statements)
    position = 0
    for begin, end in split_statements(text):
        if _DECLARATION.match(text, begin):
            continue
        yield from _cut_comments(text[position:begin])
        yield Entry(0, next(statements), True, text[begin:end])
        position = end
    yield from _cut_comments(text[position:])


def _cut_comments(text: str) -> Iterator[str | Entry]:
    """Cut comments into statements that are switched off and what stands between them."""
    for piece in cut_comments(text):
        yield piece if isinstance(piece, str) else Entry(0, piece.statement, False, piece.source)


def is_applied(statement: Statement) -> bool:
    """Return whether facts follow from a statement by itself: rules and hard formulas, not weights and templates."""
    return isinstance(statement, Rule) or getattr(statement, "kind", "") == "hard"
