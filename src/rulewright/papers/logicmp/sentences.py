"""Sentences for a tagger: words, characters, case and gold labels as indices, and padded batches of them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rulewright.errors import DataError, unknown_name
from rulewright.io.conll import Sentence, to_bioes

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
    lists: list[tuple[tuple[int, int], ...]] = []
    position = _skip_place(tokens)
    while position < len(tokens):
        items, after = _read_items(tokens, position)
        if len(items) < min_items:  # its first item may still hold a list, in its brackets
            position += 1
            continue
        position = after
        lists.append(tuple((item.start, item.end) for item in items))
        inner = [item.bracketed for item in items if item.bracketed]
        if len(inner) >= min_items:
            lists.append(tuple(inner))
    return tuple(lists)


def same_list(tokens: Sequence[str], *, min_items: int = MIN_ITEMS) -> Tensor:
    """Return ``samelist [N, N]``: True for capitalised tokens of two different items of one list; symmetric.

    >>> same_list("via Rome , Paris and New York".split()).nonzero().tolist()
    [[1, 3], [1, 5], [1, 6], [3, 1], [3, 5], [3, 6], [5, 1], [5, 3], [6, 1], [6, 3]]
    """
    together = torch.zeros(len(tokens), len(tokens), dtype=torch.bool)
    for spans in find_lists(tokens, min_items=min_items):
        item = torch.full((len(tokens),), -1)
        for index, (start, end) in enumerate(spans):
            for position in range(start, end):
                if _is_capitalised(tokens[position]):
                    item[position] = index
        together |= (item[:, None] != item) & (item[:, None] >= 0) & (item >= 0)
    return together


def _read_items(tokens: Sequence[str], position: int) -> tuple[list[Item], int]:
    """Return the items of the list at ``position``, none where it is incomplete, and where it ends."""
    items: list[Item] = []
    end, ended = position, False
    while not ended and (read := _read_item(tokens, position)) is not None:
        item, end = read
        items.append(item)
        position = end + (end < len(tokens) and tokens[end] in COMMAS)
        if position < len(tokens) and tokens[position] in CONJUNCTIONS and (last := _read_item(tokens, position + 1)):
            return [*items, last[0]], last[1]
        ended = position == end and not (end < len(tokens) and NUMBER.fullmatch(tokens[end]))
    complete = position >= len(tokens) or (position == end and tokens[end] in CLOSING)
    return items if complete else [], end


def _read_item(tokens: Sequence[str], position: int) -> tuple[Item, int] | None:
    if position < len(tokens) and NUMBER.fullmatch(tokens[position]):
        position += 1
    end = _name_end(tokens, position)
    if end == position or tokens[end : end + 1] == ["'s"]:
        return None
    start, bracketed = position, None
    position = _skip_figures(tokens, end)
    if position < len(tokens) and tokens[position] == "(" and ")" in tokens[position:]:
        close = tokens.index(")", position)
        inner = _name_end(tokens, position + 1)
        if position + 1 < inner == close:
            bracketed = (position + 1, inner)
        position = _skip_figures(tokens, close + 1)
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


def _skip_figures(tokens: Sequence[str], position: int) -> int:
    while position < len(tokens) and FIGURE.fullmatch(tokens[position]) and not NUMBER.fullmatch(tokens[position]):
        position += 1
    return position


def _skip_place(tokens: Sequence[str]) -> int:
    if not tokens or tokens[0].lower() not in PLACING:
        return 0
    end = _name_end(tokens, 1)
    return end if tokens[end : end + 1] == [","] else 0


def _is_capitalised(token: str) -> bool:
    return token[0].isupper() and token.lower() not in NOT_NAMES


PADDING, UNKNOWN, FIRST = 0, 1, 2
LONGEST_WORD = 24
"""Characters of a word that are read; of a longer one, the first and last halves."""

CASES = ("padding", "other", "figures", "with_figures", "upper", "capitalised", "mixed", "lower")
DIGIT = re.compile(r"\d")

Pieces = Callable[[Sequence[str]], Sequence[Sequence[int]]]


@dataclass(frozen=True, slots=True, eq=False)
class SentenceFeatures:
    """A sentence of N words as indices; ``pairs [2, P]`` are the pairs of tokens in one list."""

    sentence: Sentence
    words: Tensor  # [N]
    cases: Tensor  # [N]
    forms: Tensor  # [N] the words as they are written, numbered over all sentences seen
    labels: Tensor  # [N], empty where the sentence has no tags
    pairs: Tensor  # [2, P]


@dataclass(frozen=True, slots=True, eq=False)
class SentenceBatch:
    """B sentences of up to N words, of which U are written differently."""

    sentences: tuple[SentenceFeatures, ...]
    words: Tensor  # [B, N]
    cases: Tensor  # [B, N]
    form: Tensor  # [B, N] which of the U forms
    characters: Tensor  # [U, C]
    pieces: Tensor  # [S] the subwords of all forms, empty without a subword vocabulary
    piece_starts: Tensor  # [U]
    labels: Tensor  # [B, N]
    mask: Tensor  # [B, N]
    same_list: Tensor  # [B, N, N]

    @property
    def next(self) -> Tensor:
        """``next [B, N, N]``: the second token follows the first, within the sentence."""
        follows = torch.diag(self.mask.new_ones(self.mask.shape[1] - 1), 1)
        return follows & self.mask[:, None, :]


class SentenceFeaturizer:
    """Turns sentences into indices.

    Words are known in lower case with every digit as 0; all others share an index. ``pieces`` gives the subwords of
    words, for a tagger with pretrained subword vectors.
    """

    def __init__(
        self,
        *,
        classes: Sequence[str],
        words: Sequence[str],
        characters: Sequence[str],
        rare: Iterable[str] = (),
        pieces: Pieces | None = None,
        min_items: int = MIN_ITEMS,
    ) -> None:
        self.classes, self.words, self.characters = tuple(classes), tuple(words), tuple(characters)
        self.pieces, self.min_items = pieces, min_items
        self._class = {name: index for index, name in enumerate(self.classes)}
        self._word = {word: FIRST + index for index, word in enumerate(self.words)}
        self._character = {sign: FIRST + index for index, sign in enumerate(self.characters)}
        self.rare = torch.zeros(FIRST + len(self.words), dtype=torch.bool)
        self.rare[[self._word[word] for word in rare]] = True
        self._form: dict[str, int] = {}
        self._form_characters: list[Tensor] = []
        self._form_pieces: list[Tensor] = []

    @classmethod
    def from_sentences(
        cls,
        sentences: Iterable[Sentence],
        *,
        classes: Sequence[str],
        pieces: Pieces | None = None,
        min_items: int = MIN_ITEMS,
    ) -> SentenceFeaturizer:
        """Know every word and character of these sentences; the words that occur once are rare."""
        tokens = Counter(token for sentence in sentences for token in sentence.tokens)
        counts: Counter[str] = Counter()
        for token, count in tokens.items():
            counts[normal_form(token)] += count
        return cls(
            classes=classes,
            words=sorted(counts),
            characters=sorted(set("".join(tokens))),
            rare=[word for word, count in counts.items() if count == 1],
            pieces=pieces,
            min_items=min_items,
        )

    def features(self, sentences: Sequence[Sentence]) -> list[SentenceFeatures]:
        """Return the indices of sentences."""
        self._learn_forms({token for sentence in sentences for token in sentence.tokens})
        return [self._make_features(sentence) for sentence in sentences]

    def collate(self, sentences: Sequence[SentenceFeatures]) -> SentenceBatch:
        """Put sentences into one batch; what is written alike is embedded once."""

        def padded(parts: Sequence[Tensor]) -> Tensor:
            return pad_sequence(list(parts), batch_first=True)

        lengths = torch.tensor([len(sentence.words) for sentence in sentences])
        forms, form = torch.unique(padded([sentence.forms for sentence in sentences]), return_inverse=True)
        subwords = [self._form_pieces[index] for index in forms.tolist()]
        mask = torch.arange(int(lengths.max())) < lengths[:, None]
        together = torch.zeros(*mask.shape, mask.shape[1], dtype=torch.bool)
        for row, sentence in enumerate(sentences):
            together[row, sentence.pairs[0], sentence.pairs[1]] = True
        return SentenceBatch(
            sentences=tuple(sentences),
            words=padded([sentence.words for sentence in sentences]),
            cases=padded([sentence.cases for sentence in sentences]),
            form=form,
            characters=padded([self._form_characters[index] for index in forms.tolist()]),
            pieces=torch.cat(subwords),
            piece_starts=torch.from_numpy(np.cumsum([0, *map(len, subwords[:-1])])),
            labels=padded([sentence.labels for sentence in sentences]),
            mask=mask,
            same_list=together,
        )

    def _make_features(self, sentence: Sentence) -> SentenceFeatures:
        tokens = sentence.tokens
        if not tokens:
            raise DataError("a sentence has no tokens")
        tags = to_bioes(sentence.tags)
        for tag in tags:
            if tag not in self._class:
                raise unknown_name("tag", tag, self.classes)
        return SentenceFeatures(
            sentence,
            torch.tensor([self._word.get(normal_form(token), UNKNOWN) for token in tokens]),
            torch.tensor([case_of(token) for token in tokens]),
            torch.tensor([self._form[token] for token in tokens]),
            torch.tensor([self._class[tag] for tag in tags], dtype=torch.long),
            same_list(tokens, min_items=self.min_items).nonzero().T,
        )

    def _learn_forms(self, tokens: set[str]) -> None:
        new = sorted(tokens - self._form.keys())
        pieces = [[] for _ in new] if self.pieces is None else self.pieces(new)
        for token, parts in zip(new, pieces, strict=True):
            self._form[token] = len(self._form)
            half = LONGEST_WORD // 2
            short = token if len(token) <= LONGEST_WORD else token[:half] + token[-half:]
            self._form_characters.append(torch.tensor([self._character.get(sign, UNKNOWN) for sign in short]))
            self._form_pieces.append(torch.tensor(list(parts), dtype=torch.long))


def normal_form(token: str) -> str:
    """Return the word that a token is known as.

    >>> normal_form("F-16s")
    'f-00s'
    """
    return DIGIT.sub("0", token.lower())


def case_of(token: str) -> int:
    """Return how a token is written, as an index in `CASES`.

    >>> [CASES[case_of(token)] for token in ("EU", "Peter", "McRae", "lamb", "1996-08-22", "4th", ".")]
    ['upper', 'capitalised', 'mixed', 'lower', 'figures', 'with_figures', 'other']
    """
    letters = [sign for sign in token if sign.isalpha()]
    if any(sign.isdigit() for sign in token):
        return CASES.index("with_figures" if letters else "figures")
    if not letters:
        return CASES.index("other")
    upper = [sign.isupper() for sign in letters]
    if all(upper):
        return CASES.index("upper")
    if not any(upper):
        return CASES.index("lower")
    return CASES.index("capitalised" if upper[0] and not any(upper[1:]) else "mixed")
