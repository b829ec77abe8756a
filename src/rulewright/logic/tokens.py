"""A text of the rule language as tokens and statements, by regular expressions made of the terminals of the grammar."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from lark import Lark
from lark.lexer import PatternStr

BAD = "BAD"
"""The type of a token that no terminal of the grammar describes, and of numbers out of range."""

NUMBER_DIGITS = 400
"""The greatest length of a number."""

COMMENT = "comment"

FOREIGN = {
    **dict.fromkeys(("and", "&&", "∧", "/\\"), "and"),
    **dict.fromkeys(("or", "||", "∨", "\\/"), "or"),
    **dict.fromkeys(("not", "~", "¬", "\\+"), "not"),
    **dict.fromkeys(("implies", "then", "->", "-->", "→", "⇒", "⟹"), "implies"),
    **dict.fromkeys(("iff", "<->", "↔", "⇔", "⟺"), "exactly if"),
    **dict.fromkeys(("if", "<-", "<--", "←", "⇐"), "if"),
    **dict.fromkeys(("==", "==="), "equal"),
    **dict.fromkeys(("<>", "\\=", "/=", "≠", "!=="), "different"),
    **dict.fromkeys(("=<", "≤"), "at most"),
    "≥": "at least",
    **dict.fromkeys(("#", "//", "/*", "--"), COMMENT),
}
"""Words and signs of other languages, and what they mean there. Each sign is one bad token."""

# A quote that is not closed on its line, or holds an unknown escape, is one bad token too: were it skipped character
# by character, a long line of such quotes would be searched again from each of them.
_QUOTE = r"'(?:[^'\\\n]|\\.)*+'?"
_COMMENT = r"%[^\n]*"
_SKIPPED = re.compile(rf"(?:\s+|{_COMMENT})*+")
_UP_TO_STOP = re.compile(rf"(?:[^'%.]++|{_QUOTE}|{_COMMENT}|\.(?!\s|%|\Z))*+\.?")
_BRACE = re.compile(rf"{_QUOTE}|{_COMMENT}|[{{}}]")


class Grammar(NamedTuple):
    """The grammar as lark reads it, and what the scanner needs of its terminals."""

    lark: Lark
    fixed: dict[str, str]
    """The terminals with one spelling: text → name."""
    patterns: dict[str, re.Pattern[str]]
    """The other terminals: name → what matches them."""
    token: re.Pattern[str]
    """Matches one token, as its group 1, and the white space and comments behind it."""


@lru_cache(maxsize=1)
def grammar() -> Grammar:
    """Return the grammar, read on first use."""
    source = files("rulewright.logic").joinpath("grammar.lark").read_text(encoding="utf-8")
    starts = ["statement", "formula", "unit"]
    lark = Lark(source, parser="lalr", lexer="basic", start=starts, maybe_placeholders=True)
    terminals = [terminal for terminal in lark.terminals if terminal.name not in lark.ignore_tokens]
    fixed = {
        terminal.pattern.value: terminal.name for terminal in terminals if isinstance(terminal.pattern, PatternStr)
    }
    patterns = {
        terminal.name: re.compile(terminal.pattern.to_regexp())
        for terminal in terminals
        if terminal.pattern.value not in fixed
    }
    signs = sorted((text for text in fixed if not text.isalpha()), key=len, reverse=True)
    foreign = sorted((sign for sign in FOREIGN if len(sign) > 1 and not sign.isalpha()), key=len, reverse=True)
    alternatives = [
        *(f"{re.escape(sign)}(?![0-9])" for sign in foreign),  # but "X <-3" compares with a negative number
        *(re.escape(sign) for sign in signs if len(sign) > 1),  # "<=>" before the comparison "<="
        *(pattern.pattern for pattern in patterns.values()),
        *(re.escape(sign) for sign in signs if len(sign) == 1),  # "!" after the comparison "!="
        *(_QUOTE, r"\w+", r"(?s:\.?.)"),  # what no terminal describes
    ]
    return Grammar(lark, fixed, patterns, re.compile(f"({'|'.join(alternatives)}){_SKIPPED.pattern}"))


@lru_cache(maxsize=1 << 16)
def token_type(token: str) -> str:
    """Return the name of the terminal that a token is, or `BAD`.

    >>> [token_type(token) for token in ("in", "inner", "Inner", "'in'", "3.5", "$")]
    ['IN', 'WORD', 'VARIABLE', 'QUOTED', 'NUMBER', 'BAD']
    """
    _, fixed, patterns, _ = grammar()
    if token in fixed:
        return fixed[token]
    name = next((name for name, pattern in patterns.items() if pattern.fullmatch(token)), BAD)
    in_range = name != "NUMBER" or (len(token) <= NUMBER_DIGITS and math.isfinite(float(token)))
    return name if in_range else BAD


def split_tokens(text: str, begin: int, end: int) -> list[str]:
    """Return the tokens of a part of a text; it must not start with white space or a comment.

    >>> split_tokens("p(X) :- q(X, 0.5).", 0, 18)
    ['p', '(', 'X', ')', ':-', 'q', '(', 'X', ',', '0.5', ')', '.']
    """
    tokens: list[str] = grammar().token.findall(text, begin, end)
    return tokens


def token_span(text: str, begin: int, end: int, position: int) -> tuple[int, int]:
    """Return where in the text the token at a position of `split_tokens` stands; past the last one, where that ends."""
    last = begin
    for index, match in enumerate(grammar().token.finditer(text, begin, end)):
        if index == position:
            return match.span(1)
        last = match.end(1)
    return last, last


def split_statements(text: str) -> Iterator[tuple[int, int]]:
    r"""Cut a text at its full stops into (begin, end); an annotation belongs to the statement before it.

    >>> text = "p(X) :- q(X, 0.5). @{n: 3}  % why\nhard r(X)."
    >>> [text[begin:end] for begin, end in split_statements(text)]
    ['p(X) :- q(X, 0.5). @{n: 3}', 'hard r(X).']
    """
    begin = skip_space(text, 0)
    while begin < len(text):
        end = find_end(text, begin)
        yield begin, end
        begin = skip_space(text, end)


def find_end(text: str, begin: int) -> int:
    """Return where the statement that begins at a position ends."""
    statement = _UP_TO_STOP.match(text, begin)
    end = statement.end() if statement else begin
    annotation = skip_space(text, end)
    return _skip_braces(text, annotation) if text.startswith("@", annotation) else end


def skip_space(text: str, position: int) -> int:
    """Return the next position that is neither white space nor comment."""
    skipped = _SKIPPED.match(text, position)
    return skipped.end() if skipped else position


def _skip_braces(text: str, position: int) -> int:
    depth = 0
    for match in _BRACE.finditer(text, position):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if match.group() == "}" and depth <= 0:
            return match.end()
    return len(text)


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """Return a position as line and column, both from 1."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def shorten(text: str, limit: int) -> str:
    """Return a text cut to so many characters.

    >>> shorten("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"
