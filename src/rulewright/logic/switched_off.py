"""Statements that are switched off: they stay in a rule file as comments, ``%off `` before each of their lines.

They keep their number, so that the others keep theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from rulewright.errors import DataError
from rulewright.logic.parser import OFF, parse_rules
from rulewright.logic.rules import Statement
from rulewright.logic.tokens import split_statements

_OFF_BLOCK = re.compile(rf"^(?:{OFF}[^\n]*(?:\n|\Z))+", re.MULTILINE)
_MOST_LINES = 30  # of a statement that is switched off and stands among other comments


class OffStatement(NamedTuple):
    """A statement that is switched off, and its text without what makes a comment of it."""

    statement: Statement
    source: str


def cut_comments(text: str) -> Iterator[str | OffStatement]:
    """Find the statements that are switched off among comments; what cannot be read stays a comment.

    >>> [getattr(piece, "source", piece) for piece in cut_comments("% a\\n%off p(X) :- q(X).\\n")]
    ['% a\\n', 'p(X) :- q(X).', '\\n']
    """
    position = 0
    for block in _OFF_BLOCK.finditer(text):
        yield text[position : block.start()]
        yield from _read_lines([line.removeprefix(OFF) for line in block.group().splitlines()])
        position = block.end()
    if position < len(text):
        yield text[position:]


def _read_lines(lines: Sequence[str]) -> Iterator[str | OffStatement]:
    """Read the fewest lines that make a statement, all at once where that is possible, and go on behind them."""
    start = 0
    while start < len(lines):
        for end in (len(lines), *range(start + 1, min(start + _MOST_LINES, len(lines)) + 1)):
            pieces = _read_block("\n".join(lines[start:end]))
            if pieces:
                yield from pieces
                start = end
                break
        else:
            yield f"{OFF}{lines[start]}\n"
            start += 1


def _read_block(block: str) -> list[str | OffStatement]:
    """Read statements that were switched off, with the comments behind each; nothing where that is not all."""
    try:
        statements = parse_rules(block).statements
    except DataError:
        return []
    spans = [*split_statements(block)]
    if len(spans) != len(statements) or (spans and block[: spans[0][0]].strip()):
        return []
    pieces: list[str | OffStatement] = []
    next_starts = [*(begin for begin, _ in spans[1:]), len(block)]
    for (begin, end), next_start, statement in zip(spans, next_starts, statements, strict=True):
        pieces.append(OffStatement(statement, block[begin:end]))
        first, *others = block[end:next_start].rstrip().split("\n")
        pieces.append("".join([first, "\n", *(f"{OFF}{line}\n" for line in others)]))
    return pieces


def number_statements(text: str, starts: Sequence[int]) -> list[int]:
    """Return the numbers, from 1, of the statements that begin at these positions of a text.

    >>> number_statements("p(X) :- q(X).\\n%off p(X) :- r(X).\\np(X) :- s(X).", [0, 34])
    [1, 3]
    """
    numbers: list[int] = []
    count = position = 0
    for start in starts:
        count += 1 + sum(isinstance(piece, OffStatement) for piece in cut_comments(text[position:start]))
        numbers.append(count)
        position = start
    return numbers
