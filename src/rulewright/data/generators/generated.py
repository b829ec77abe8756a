"""What a generator returns, and how a complete knowledge base loses facts and gains wrong ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
import numpy.typing as npt

from rulewright.data.facts import Column, group_by_signature
from rulewright.data.index import Ids, decode_rows, encode_rows
from rulewright.data.knowledge_base import KnowledgeBase
from rulewright.data.vocabulary import Domain
from rulewright.errors import DataError
from rulewright.logic import NUMBER_TYPE, RuleSet, parse_rules

LARGEST_SPACE = 2**62
"""Rows are drawn as 64-bit keys; a space may have no more of them than this."""


def sorted_distinct(keys: Ids) -> Ids:
    """Return the distinct keys in order; on large arrays many times faster than the hashing of ``numpy.unique``.

    >>> sorted_distinct(np.array([5, 1, 5])).tolist()
    [1, 5]
    """
    ordered = np.sort(keys)
    first = np.ones(len(keys), dtype=bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first]


def draw_keys(random: np.random.Generator, *, space: int, count: int, excluded: npt.ArrayLike = ()) -> Ids:
    """Draw ``count`` distinct keys below ``space`` that are not among the (distinct) ``excluded``, in random order.

    >>> draw_keys(np.random.default_rng(0), space=5, count=2, excluded=[0, 1, 4]).tolist()
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
    drawn = np.empty(0, dtype=np.int64)
    while len(drawn) < count:
        # The surplus makes up for repetitions and excluded keys, so that one round almost always does
        wish = int((count - len(drawn)) * (1 + 2 * used / space)) + 16
        drawn = sorted_distinct(np.concatenate([drawn, random.integers(space, size=wish)]))
        if len(taken):
            nearest = np.minimum(np.searchsorted(taken, drawn), len(taken) - 1)
            drawn = drawn[taken[nearest] != drawn]
    return random.permutation(drawn)[:count]


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


parse_once = lru_cache(maxsize=8)(parse_rules)
"""Parses the rules of a generator on its first use only."""

Columns = Mapping[str, Sequence[Column]]


def build(
    rules: RuleSet,
    domains: Mapping[str, Domain],
    columns: Columns,
    false_columns: Columns | None = None,
    *,
    hidden: Columns | None = None,
    worlds: Sequence[str] = (),
) -> Generated:
    """Build a knowledge base over the predicates that rules declare, given their columns; all of them distinct."""
    declared = {declaration.name: declaration for declaration in rules.predicates}
    true, false, left_out = (group_by_signature(declared, part or {}) for part in (columns, false_columns, hidden))
    kb = KnowledgeBase(domains, rules.predicates, true, false, closed=rules.closed, worlds=worlds)
    return Generated(kb, rules, kb.with_facts(left_out), kb.with_facts({}))


def corrupt(
    generated: Generated,
    *,
    missing: float,
    noise: float,
    random: np.random.Generator,
    predicates: Collection[str] | None = None,
) -> Generated:
    """Hide a share of the facts of ``predicates`` (None: all) at random and add a share of wrong ones, of each alike.

    A wrong fact has arguments of the right types and is not true, nor among the hidden. Where a predicate has
    fewer wrong facts than the share asks for, all of them are added.
    """
    truth = generated.kb
    kept, hidden = truth, generated.hidden
    if missing:
        kept, hidden = truth.hold_out(missing, seed=int(random.integers(2**32)), predicates=predicates)
    wrong = {}
    if noise:
        names = [name for name in truth.predicates if truth.count(name) and (predicates is None or name in predicates)]
        wrong = {name: _draw_wrong_facts(truth, name, noise, random) for name in names}
        columns: dict[str, Sequence[Column]] = {name: kept.columns(name) for name in truth.predicates}
        columns |= {
            name: [np.concatenate(pair) for pair in zip(kept.columns(name), added, strict=True)]
            for name, added in wrong.items()
        }
        kept = truth.with_facts(group_by_signature(truth.predicates, columns))
    return Generated(kept, generated.rules, hidden, truth.with_facts(group_by_signature(truth.predicates, wrong)))


def _draw_wrong_facts(truth: KnowledgeBase, name: str, share: float, random: np.random.Generator) -> list[Column]:
    columns = truth.columns(name)
    firsts, sizes = [], []
    for type_name, column in zip(truth.predicate(name).types, columns, strict=True):
        if type_name == NUMBER_TYPE:
            firsts.append(int(column.min()))
            sizes.append(int(column.max()) - firsts[-1] + 1)
        else:
            firsts.append(truth.domains[type_name].start)
            sizes.append(len(truth.domains[type_name]))
    true = encode_rows([column - first for column, first in zip(columns, firsts, strict=True)], sizes)
    space = int(np.prod(sizes, dtype=object))
    count = min(round(share * len(true)), space - len(true))
    drawn = decode_rows(draw_keys(random, space=space, count=count, excluded=true), sizes)
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


def make_names(names: tuple[str, ...], count: int) -> list[str]:
    """Return ``count`` distinct names: the list again and again, with a number from the second round on.

    >>> make_names(("ann", "eve"), 5)
    ['ann', 'eve', 'ann_2', 'eve_2', 'ann_3']
    """
    first = list(names[:count])
    rounds = range(2, 2 + count // len(names))
    return first + list(
        islice((f"{name}_{round_number}" for round_number in rounds for name in names), count - len(first))
    )


def name_people(count: int) -> list[str]:
    """Return ``count`` distinct names, women and men in turn.

    >>> name_people(3)
    ['ada', 'adam', 'amina']
    """
    names = [""] * count
    names[::2] = make_names(FEMALE, (count + 1) // 2)
    names[1::2] = make_names(MALE, count // 2)
    return names
