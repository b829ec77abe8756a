"""Enumerations in a sentence, found from its tokens alone: items of a list are likely to be of one kind."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

MIN_ITEMS = 3
COMMAS = frozenset({",", ";"})
CONJUNCTIONS = frozenset({"and", "or"})
CLOSING = frozenset({".", ":", ")", "--", "-"})
PLACING = frozenset({"at", "in", "on"})
WITHIN_NAMES = frozenset({"de", "da", "di", "du", "del", "der", "den", "van", "von", "la", "le", "al", "el", "bin"})
NOT_NAMES_TEXT = """
    a all also although an and another any as at because both but by each either even following for former from he
    her his how however if in including it its last many meanwhile most mr mrs ms my neither next no not of on one only
    or other our president minister prime she since so some that the their then there these they this those though to
    two three four five six until we what when where which while who why with you your nor after before under over
    monday tuesday wednesday thursday friday saturday sunday january february march april may june july august september
    october november december
"""
NOT_NAMES = frozenset(NOT_NAMES_TEXT.split())
NUMBER = re.compile(r"\(?\d+[.)]")
FIGURE = re.compile(r"[-+]?\d[\d.,:/-]*(st|nd|rd|th)?(-\w+)?|penalty|pen|own|goal|not|out")


@dataclass(frozen=True, slots=True)
class Item:
    """The name of an item, tokens ``start … end - 1``, and that in the brackets behind it, if it is one name."""

    start: int
    end: int
    bracketed: tuple[int, int] | None = None


def find_lists(tokens: Sequence[str], *, min_items: int = MIN_ITEMS) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Return the lists of a sentence, each the spans ``(start, end)`` of its items' names.

    A *name* is a longest run of capitalised tokens (not function words, weekdays, months or titles, which are
    capitalised at the start of sentences and items), in which ``de``, ``van`` and their like may stand between two.
    An *item* is ``[number] name [figures] [( … )] [figures]``: number ``1.`` or ``1)``, figures such as ``2``, ``6-4``
    or ``54th``; what is followed by ``'s`` is none. A *list* is a longest run of at least ``min_items`` items with a
    comma or semicolon between two (before a numbered item there need be nothing), and it is complete: either its last
    item has ``and`` or ``or`` before it, or what follows is the end of the sentence, a closing bracket or a dash. The
    place that opens a report, ``In Rome , …`` or ``At Rome , …``, is not an item. Where at least ``min_items``
    items have one name and nothing else in brackets, these names are a list of their own.

    >>> find_lists("1. Juventus , 2. Barcelona , 3. Real Madrid".split())
    (((1, 2), (4, 5), (7, 9)),)
    >>> find_lists("He met Scifo ( Monaco ) , Debbah ( Nice ) and Loko ( PSG ) .".split())
    (((2, 3), (7, 8), (12, 13)), ((4, 5), (9, 10), (14, 15)))
    """
    tokens = list(tokens)
    found: list[tuple[tuple[int, int], ...]] = []
    position = _after_place(tokens)
    while position < len(tokens):
        items, after = _items(tokens, position)
        if len(items) < min_items:  # its first item may still hold a list, in its brackets
            position += 1
            continue
        position = after
        found.append(tuple((item.start, item.end) for item in items))
        inner = [item.bracketed for item in items if item.bracketed]
        if len(inner) >= min_items:
            found.append(tuple(inner))
    return tuple(found)


def same_list(tokens: Sequence[str], *, min_items: int = MIN_ITEMS) -> Tensor:
    """Return ``samelist [N, N]``: True for capitalised tokens of two different items of one list; symmetric.

    >>> same_list("via Rome , Paris and New York".split()).nonzero().tolist()
    [[1, 3], [1, 5], [1, 6], [3, 1], [3, 5], [3, 6], [5, 1], [5, 3], [6, 1], [6, 3]]
    """
    together = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    for spans in find_lists(tokens, min_items=min_items):
        item = torch.full((len(tokens),), -1)
        for number, (start, end) in enumerate(spans):
            for position in range(start, end):
                if _is_capitalised(tokens[position]):
                    item[position] = number
        together |= (item[:, None] != item) & (item[:, None] >= 0) & (item >= 0)
    return together


def _items(tokens: Sequence[str], position: int) -> tuple[list[Item], int]:
    """Return the items of the list at ``position``, none where it is incomplete, and where it ends."""
    items: list[Item] = []
    end, ended = position, False
    while not ended and (read := _item(tokens, position)) is not None:
        item, end = read
        items.append(item)
        position = end + (end < len(tokens) and tokens[end] in COMMAS)
        if position < len(tokens) and tokens[position] in CONJUNCTIONS and (last := _item(tokens, position + 1)):
            return [*items, last[0]], last[1]
        ended = position == end and not (end < len(tokens) and NUMBER.fullmatch(tokens[end]))
    complete = position >= len(tokens) or (position == end and tokens[end] in CLOSING)
    return items if complete else [], end


def _item(tokens: Sequence[str], position: int) -> tuple[Item, int] | None:
    if position < len(tokens) and NUMBER.fullmatch(tokens[position]):
        position += 1
    end = _name_end(tokens, position)
    if end == position or tokens[end : end + 1] == ["'s"]:
        return None
    start, bracketed = position, None
    position = _after_figures(tokens, end)
    if position < len(tokens) and tokens[position] == "(" and ")" in tokens[position:]:
        close = tokens.index(")", position)
        inner = _name_end(tokens, position + 1)
        if position + 1 < inner == close:
            bracketed = (position + 1, inner)
        position = _after_figures(tokens, close + 1)
    return Item(start, end, bracketed), position


def _name_end(tokens: Sequence[str], start: int) -> int:
    end = position = start
    while position < len(tokens):
        if _is_capitalised(tokens[position]):
            end = position + 1
        elif end == start or tokens[position] not in WITHIN_NAMES:
            break
        position += 1
    return end


def _after_figures(tokens: Sequence[str], position: int) -> int:
    while position < len(tokens) and FIGURE.fullmatch(tokens[position]) and not NUMBER.fullmatch(tokens[position]):
        position += 1
    return position


def _after_place(tokens: Sequence[str]) -> int:
    if not tokens or tokens[0].lower() not in PLACING:
        return 0
    end = _name_end(tokens, 1)
    return end if tokens[end : end + 1] == [","] else 0


def _is_capitalised(token: str) -> bool:
    return token[0].isupper() and token.lower() not in NOT_NAMES
