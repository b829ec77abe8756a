"""Given names for people who do not exist."""

from __future__ import annotations

from itertools import islice

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
