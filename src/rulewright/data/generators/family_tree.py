"""Families: couples, their children and everything that can be said of them as relatives."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rulewright.checks import SHARE, Whole, check_parameter
from rulewright.data.facts import Column
from rulewright.data.generators.generated import (
    FEMALE,
    MALE,
    Generated,
    build,
    corrupt,
    make_names,
    parse_once,
    sorted_distinct,
)
from rulewright.data.index import decode_rows, match_pairs
from rulewright.data.vocabulary import lay_out_domains

RULES = """
predicate male(person).
predicate female(person).
predicate parent_of(person, person).
predicate child_of(person, person).
predicate mother_of(person, person).
predicate father_of(person, person).
predicate spouse_of(person, person).
predicate sibling_of(person, person).
predicate grandparent_of(person, person).
predicate uncle_of(person, person).
predicate aunt_of(person, person).

male(X) :- father_of(X, _).
male(X) :- uncle_of(X, _).
male(X) :- spouse_of(X, Y), female(Y).
female(X) :- mother_of(X, _).
female(X) :- aunt_of(X, _).
female(X) :- spouse_of(X, Y), male(Y).

parent_of(X, Y) :- child_of(Y, X).
parent_of(X, Y) :- mother_of(X, Y).
parent_of(X, Y) :- father_of(X, Y).
parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z).
parent_of(X, Z) :- parent_of(X, Y), sibling_of(Y, Z).
child_of(X, Y) :- parent_of(Y, X).
child_of(X, Z) :- child_of(X, Y), spouse_of(Y, Z).
child_of(X, Z) :- sibling_of(X, Y), child_of(Y, Z).
mother_of(X, Y) :- parent_of(X, Y), female(X).
mother_of(X, Z) :- spouse_of(X, Y), father_of(Y, Z).
mother_of(X, Z) :- mother_of(X, Y), sibling_of(Y, Z).
father_of(X, Y) :- parent_of(X, Y), male(X).
father_of(X, Z) :- spouse_of(X, Y), mother_of(Y, Z).
father_of(X, Z) :- father_of(X, Y), sibling_of(Y, Z).

spouse_of(X, Y) :- spouse_of(Y, X).
spouse_of(X, Y) :- mother_of(X, Z), father_of(Y, Z).
spouse_of(X, Y) :- father_of(X, Z), mother_of(Y, Z).
sibling_of(X, Y) :- sibling_of(Y, X).
sibling_of(X, Y) :- parent_of(Z, X), parent_of(Z, Y), X != Y.
sibling_of(X, Z) :- sibling_of(X, Y), sibling_of(Y, Z), X != Z.

grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).
grandparent_of(X, Z) :- spouse_of(X, Y), grandparent_of(Y, Z).
grandparent_of(X, Z) :- grandparent_of(X, Y), sibling_of(Y, Z).
uncle_of(X, Z) :- sibling_of(X, Y), parent_of(Y, Z), male(X).
uncle_of(X, Z) :- spouse_of(X, Y), aunt_of(Y, Z).
uncle_of(X, Z) :- uncle_of(X, Y), sibling_of(Y, Z).
aunt_of(X, Z) :- sibling_of(X, Y), parent_of(Y, Z), female(X).
aunt_of(X, Z) :- spouse_of(X, Y), uncle_of(Y, Z).
aunt_of(X, Z) :- aunt_of(X, Y), sibling_of(Y, Z).
"""

AGE_RULES = """
predicate age(person, number).
predicate elder_sibling_of(person, person).

elder_sibling_of(X, Y) :- sibling_of(X, Y), age(X, A), age(Y, B), A > B.
elder_sibling_of(X, Z) :- elder_sibling_of(X, Y), elder_sibling_of(Y, Z).
sibling_of(X, Y) :- elder_sibling_of(X, Y).
"""

NEWCOMERS = 0.2
"""The share of each later generation whose parents are not in the family."""

MARRIED = 0.9
"""The share of possible couples that marry; brothers and sisters never do."""

NOBODY = -1

People = npt.NDArray[np.int32]


@dataclass
class _FamilyTree:
    """Each person's sex, year of birth, parents and spouse; `NOBODY` where there is none."""

    male: npt.NDArray[np.bool_]
    born: npt.NDArray[np.int64]
    mother: People
    father: People
    spouse: People


def family(
    people: int = 200,
    *,
    generations: int = 4,
    missing: float = 0.0,
    noise: float = 0.0,
    ages: bool = False,
    seed: int = 0,
) -> Generated:
    """Return a family over several generations, with rules of which none has an exception in it.

    Children have the two spouses of one couple as parents; each later generation has newcomers who marry in.
    Uncles and aunts are the siblings of a parent and the spouses of these. With ``ages`` everyone has an
    ``age(person, number)``, the years since birth, and ``elder_sibling_of`` compares them. ``missing`` hides that
    share of all facts at random, ``noise`` adds that share of wrong facts.

    >>> generated = family(60, missing=0.1, seed=1)
    >>> generated.kb
    KnowledgeBase(60 entities, 11 predicates, 521 facts)
    >>> generated.hidden.n_facts, len(generated.rules)
    (58, 35)
    >>> generated.kb.tuples("mother_of")[:2]
    [('beth', 'carl'), ('ada', 'cesar')]
    """
    check_parameter("generations", generations, Whole(2))
    check_parameter("people", people, Whole(2 * generations))
    check_parameter("missing", missing, SHARE)
    check_parameter("noise", noise, SHARE)
    random = np.random.default_rng(seed)
    tree = _grow(random, people, generations)
    columns = _derive_relations(tree)
    if ages:
        age = tree.born.max() - tree.born
        one, other = columns["sibling_of"]
        elder = age[one] > age[other]
        columns["age"] = (np.arange(people), age.astype(np.float64))
        columns["elder_sibling_of"] = (one[elder], other[elder])
    labels = np.empty(people, dtype=object)
    for mask, names in ((~tree.male, FEMALE), (tree.male, MALE)):
        labels[mask] = make_names(names, int(mask.sum()))
    rules = parse_once(RULES + AGE_RULES if ages else RULES)
    truth = build(rules, lay_out_domains([("person", labels, None)]), columns)
    return corrupt(truth, missing=missing, noise=noise, random=random)


def _grow(random: np.random.Generator, people: int, generations: int) -> _FamilyTree:
    """Grow generations of equal size, half of each male; the last one is too young to marry."""
    nobody = np.full(people, NOBODY, dtype=np.int32)
    tree = _FamilyTree(
        np.zeros(people, dtype=bool), np.zeros(people, dtype=np.int64), nobody, nobody.copy(), nobody.copy()
    )
    bounds = np.linspace(0, people, generations + 1).astype(int).tolist()
    wives = husbands = np.empty(0, dtype=np.int32)
    for start, stop in pairwise(bounds):
        members = random.permutation(np.arange(start, stop, dtype=np.int32))
        tree.male[members[::2]] = True
        random.shuffle(members)
        if start == 0:
            tree.born[members] = random.integers(10, size=len(members))
        else:
            newcomers, children = np.split(members, [max(1, round(NEWCOMERS * len(members)))])
            couple = random.integers(len(wives), size=len(children))
            tree.mother[children], tree.father[children] = wives[couple], husbands[couple]
            years = np.maximum(tree.born[wives], tree.born[husbands])[couple]
            tree.born[children] = years + random.integers(20, 36, size=len(children))
            tree.born[newcomers] = random.choice(tree.born[children], size=len(newcomers))
        if stop < people:
            new_wives, new_husbands = _marry(random, tree, members)
            # In a tiny generation all may be siblings; then the couples before have the next children too
            if len(new_wives):
                wives, husbands = new_wives, new_husbands
            tree.spouse[new_wives], tree.spouse[new_husbands] = new_husbands, new_wives
    return tree


def _marry(random: np.random.Generator, tree: _FamilyTree, members: People) -> tuple[People, People]:
    """Marry women and men of about the same age."""
    rank = tree.born[members] + random.normal(scale=3.0, size=len(members))
    by_age = members[np.argsort(rank)]
    women, men = by_age[~tree.male[by_age]], by_age[tree.male[by_age]]
    possible = min(len(women), len(men))
    chosen = np.sort(random.permutation(possible)[: max(1, round(MARRIED * possible))])
    wives, husbands = women[chosen], men[chosen]
    unrelated = (tree.mother[wives] == NOBODY) | (tree.mother[wives] != tree.mother[husbands])
    return wives[unrelated], husbands[unrelated]


def _derive_relations(tree: _FamilyTree) -> dict[str, tuple[Column, ...]]:
    """Derive every relation from parents and spouses."""
    people = len(tree.male)
    children = np.flatnonzero(tree.mother != NOBODY).astype(np.int32)
    mothers, fathers = tree.mother[children], tree.father[children]
    parents = (np.concatenate([mothers, fathers]), np.concatenate([children, children]))
    married = np.flatnonzero(tree.spouse != NOBODY).astype(np.int32)

    one, other = match_pairs(mothers, mothers)
    siblings = (children[one[one != other]], children[other[one != other]])

    has_parents = tree.mother[parents[0]] != NOBODY
    middle, young = parents[0][has_parents], parents[1][has_parents]
    grandparents = (np.concatenate([tree.mother[middle], tree.father[middle]]), np.concatenate([young, young]))

    of_parent, of_sibling = match_pairs(parents[0], siblings[1])
    blood, young = siblings[0][of_sibling], parents[1][of_parent]
    in_law = tree.spouse[blood]
    # Where two siblings marry two siblings, an uncle by blood is one by marriage too
    pairs = [(blood, young), (in_law[in_law != NOBODY], young[in_law != NOBODY])]
    keys = sorted_distinct(np.concatenate([elder.astype(np.int64) * people + child for elder, child in pairs]))
    elders, nieces = decode_rows(keys, [people, people])
    uncle = tree.male[elders]

    return {
        "male": (np.flatnonzero(tree.male),),
        "female": (np.flatnonzero(~tree.male),),
        "parent_of": parents,
        "child_of": parents[::-1],
        "mother_of": (mothers, children),
        "father_of": (fathers, children),
        "spouse_of": (married, tree.spouse[married]),
        "sibling_of": siblings,
        "grandparent_of": grandparents,
        "uncle_of": (elders[uncle], nieces[uncle]),
        "aunt_of": (elders[~uncle], nieces[~uncle]),
    }
