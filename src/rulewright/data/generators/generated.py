"""What a generator returns, and how a complete knowledge base loses facts and gains wrong ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from rulewright.data.facts import Column, group_by_signature
from rulewright.data.knowledge_base import KnowledgeBase
from rulewright.errors import DataError
from rulewright.logic import NUMBER_TYPE, RuleSet

Keys = npt.NDArray[np.int64]

LARGEST_SPACE = 2**62
"""Rows are drawn as 64-bit keys; a space may have no more of them than this."""


def sorted_distinct(keys: Keys) -> Keys:
    """Return the distinct keys in order; on large arrays many times faster than the hashing of ``numpy.unique``.

    >>> sorted_distinct(np.array([5, 1, 5])).tolist()
    [1, 5]
    """
    ordered = np.sort(keys)
    first = np.ones(len(keys), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def distinct_keys(random: np.random.Generator, *, space: int, count: int, excluded: npt.ArrayLike = ()) -> Keys:
    """Draw ``count`` distinct keys below ``space`` that are not among the (distinct) ``excluded``, in random order.

    >>> distinct_keys(np.random.default_rng(0), space=5, count=2, excluded=[0, 1, 4]).tolist()
    [2, 3]
    """
    taken = np.sort(np.asarray(excluded, dtype=np.int64))
    used = count + len(taken)
    if used > space:
        raise DataError(f"only {space - len(taken):,} rows are free, got a wish for {count:,}")
    if 4 * used > space:
        free = np.ones(space, dtype=bool)
        free[taken] = False
        return random.permutation(np.flatnonzero(free))[:count]
    found = np.empty(0, dtype=np.int64)
    while len(found) < count:
        # The surplus makes up for repetitions and excluded keys, so that one round almost always does
        wish = int((count - len(found)) * (1 + 2 * used / space)) + 16
        found = sorted_distinct(np.concatenate([found, random.integers(space, size=wish)]))
        if len(taken):
            place = np.minimum(np.searchsorted(taken, found), len(taken) - 1)
            found = found[taken[place] != found]
    return random.permutation(found)[:count]


def keys_of(columns: Sequence[Column], sizes: Sequence[int]) -> Keys:
    """Number rows of positions in mixed radix: the inverse of `rows_of`.

    >>> keys_of([np.array([0, 2]), np.array([1, 3])], [3, 4]).tolist()
    [1, 11]
    """
    keys = np.zeros(len(columns[0]), dtype=np.int64)
    for column, size in zip(columns, sizes, strict=True):
        keys = keys * size + column.astype(np.int64)
    return keys


def rows_of(keys: Keys, sizes: Sequence[Keys | int]) -> list[Keys]:
    """Turn keys back into columns of positions; a size may differ from row to row.

    >>> [column.tolist() for column in rows_of(np.array([1, 11]), [3, 4])]
    [[0, 2], [1, 3]]
    """
    columns: list[Keys] = []
    for size in reversed(sizes):
        keys, digit = np.divmod(keys, size)
        columns.append(digit)
    return columns[::-1]


def matching_pairs(left: Column, right: Column) -> tuple[Keys, Keys]:
    """Return all positions (i, j) with ``left[i] == right[j]``.

    >>> [part.tolist() for part in matching_pairs(np.array([7, 8, 9]), np.array([9, 7, 9]))]
    [[0, 2, 2], [1, 0, 2]]
    """
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    first = np.searchsorted(ordered, left, side="left")
    counts = np.searchsorted(ordered, left, side="right") - first
    left_positions = np.repeat(np.arange(len(left)), counts)
    rank = np.arange(len(left_positions)) - np.repeat(np.cumsum(counts) - counts, counts)
    return left_positions, order[np.repeat(first, counts) + rank]


@dataclass(frozen=True)
class Generated:
    """A knowledge base with what is known of how it came about.

    ``rules`` hold on the truth. ``hidden`` has the true facts that were left out of ``kb``, ``noise`` the false
    facts that were put in; both are over the entities and predicates of ``kb``.
    """

    kb: KnowledgeBase
    rules: RuleSet
    hidden: KnowledgeBase
    noise: KnowledgeBase


def corrupted(
    truth: KnowledgeBase, rules: RuleSet, *, missing: float, noise: float, random: np.random.Generator
) -> Generated:
    """Hide a share of the facts at random and add a share of wrong ones, of each predicate in proportion.

    A wrong fact has arguments of the right types and is not true, nor among the hidden. Where a predicate has
    fewer wrong facts than the share asks for, all of them are added.
    """
    kept, hidden = truth, truth.with_facts({})
    if missing:
        kept, hidden = truth.hold_out(missing, seed=int(random.integers(2**32)))
    wrong = {}
    if noise:
        wrong = {name: _wrong_facts(truth, name, noise, random) for name in truth.predicates if truth.count(name)}
        columns = {
            name: [np.concatenate(pair) for pair in zip(kept.columns(name), added, strict=True)]
            for name, added in wrong.items()
        }
        kept = truth.with_facts(group_by_signature(truth.predicates, columns))
    return Generated(kept, rules, hidden, truth.with_facts(group_by_signature(truth.predicates, wrong)))


def _wrong_facts(truth: KnowledgeBase, name: str, share: float, random: np.random.Generator) -> list[Column]:
    columns = truth.columns(name)
    firsts, sizes = [], []
    for kind, column in zip(truth.predicate(name).types, columns, strict=True):
        if kind == NUMBER_TYPE:
            firsts.append(int(column.min()))
            sizes.append(int(column.max()) - firsts[-1] + 1)
        else:
            firsts.append(truth.domains[kind].start)
            sizes.append(len(truth.domains[kind]))
    true = keys_of([column - first for column, first in zip(columns, firsts, strict=True)], sizes)
    space = int(np.prod(sizes, dtype=object))
    count = min(round(share * len(true)), space - len(true))
    drawn = rows_of(distinct_keys(random, space=space, count=count, excluded=true), sizes)
    return [(digit + first).astype(column.dtype) for digit, first, column in zip(drawn, firsts, columns, strict=True)]


_FEMALE_NAMES = (
    "ada amina anna beth bianca carla chloe clara dana dilnoza elena emma esther fatima freya gita grace hana helen "
    "ida ines irina jane jing judith karin kate leila lena lucia mara maria mei mina nadia naomi nina nora olga "
    "paula petra rosa ruth sara selma sofia tara tess uma vera wanda yara zoe"
)
_MALE_NAMES = (
    "adam ahmed alan amir anton arjun ben boris carl cesar dan david diego emil eric felix frank george hans hugo "
    "ian igor ivan jack jakob jamal jonas jun karl kofi leo liam luis marc mateo max milan nils noah omar oscar "
    "otto pablo paul peter rafael ravi sam sven theo tom umar victor viktor walter wei yusuf zeno"
)
FEMALE = tuple(_FEMALE_NAMES.split())
MALE = tuple(_MALE_NAMES.split())


def numbered(names: tuple[str, ...], count: int) -> list[str]:
    """Return ``count`` distinct names: the list again and again, with a number from the second round on.

    >>> numbered(("ann", "eve"), 5)
    ['ann', 'eve', 'ann_2', 'eve_2', 'ann_3']
    """
    first = list(names[:count])
    rounds = range(2, 2 + count // len(names))
    return first + list(islice((f"{name}_{number}" for number in rounds for name in names), count - len(first)))


def people(count: int) -> list[str]:
    """Return ``count`` distinct names, women and men in turn.

    >>> people(3)
    ['ada', 'adam', 'amina']
    """
    names = [""] * count
    names[::2] = numbered(FEMALE, (count + 1) // 2)
    names[1::2] = numbered(MALE, count // 2)
    return names
