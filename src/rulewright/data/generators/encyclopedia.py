"""An encyclopedia of people and places: many entities, a few hubs, relations that follow from others now and then."""

from __future__ import annotations

import numpy as np

from rulewright.checks import SHARE, Whole, check_parameter
from rulewright.data.facts import Column
from rulewright.data.generators.generated import Generated, build, corrupt, name_people, parse_once
from rulewright.data.index import Ids
from rulewright.data.vocabulary import lay_out_domains

RULES = """
predicate born_in(thing, thing).
predicate lives_in(thing, thing).
predicate citizen_of(thing, thing).
predicate speaks(thing, thing).
predicate occupation(thing, thing).
predicate works_for(thing, thing).
predicate studied_at(thing, thing).
predicate spouse_of(thing, thing).
predicate parent_of(thing, thing).
predicate located_in(thing, thing).
predicate capital_of(thing, thing).
predicate official_language(thing, thing).
predicate borders(thing, thing).
predicate member_of(thing, thing).

located_in(X, Y) :- capital_of(X, Y).
borders(X, Y) :- borders(Y, X).
spouse_of(X, Y) :- spouse_of(Y, X).
speaks(X, L) :- citizen_of(X, C), official_language(C, L).
"""

_SIZES = {"town": 20, "country": 120, "language": 250, "occupation": 100, "company": 40, "university": 50, "union": 600}
"""For every so many people there is one of these."""


def encyclopedia(people: int = 2000, *, missing: float = 0.0, noise: float = 0.0, seed: int = 0) -> Generated:
    """Return people, towns, countries, languages, occupations, companies and universities, as entities of one type.

    Which town, occupation or company someone has follows Zipf's law, so that a few entities have very many facts. Most
    people live in the country of their birth and are its citizens; everyone speaks the official languages of their
    country, some another. Children share their parents' country most of the time. ``missing`` hides that share of all
    facts at random, ``noise`` adds that share of wrong ones. The rules have no exception in what is true.

    >>> generated = encyclopedia(300, seed=1)
    >>> generated.kb
    KnowledgeBase(337 entities, 14 predicates, 2,289 facts)
    """
    check_parameter("people", people, Whole(2))
    check_parameter("missing", missing, SHARE)
    check_parameter("noise", noise, SHARE)
    random = np.random.default_rng(seed)
    sizes = {name: max(2, people // share) for name, share in _SIZES.items()}
    labels = name_people(people) + [f"{name}_{index}" for name, size in sizes.items() for index in range(size)]
    starts = dict(zip(sizes, people + np.cumsum([0, *list(sizes.values())[:-1]]), strict=True))

    def all_of(name: str) -> Ids:
        return np.arange(starts[name], starts[name] + sizes[name])

    def draw(name: str, count: int) -> Ids:
        """Draw entities of a group, the first ones most often."""
        shares = 1 / np.arange(1, sizes[name] + 1)
        return random.choice(all_of(name), size=count, p=shares / shares.sum())

    def keep_some(share: float, count: int) -> np.ndarray:
        return random.random(count) < share

    everyone = np.arange(people)
    country_of = np.zeros(len(labels), dtype=np.int64)  # of towns, companies and universities
    for name in ("town", "company", "university"):
        country_of[all_of(name)] = draw("country", sizes[name])
    capitals = starts["town"] + np.arange(min(sizes["country"], sizes["town"]))
    countries = all_of("country")[: len(capitals)]
    country_of[capitals] = countries
    language_of = np.zeros(len(labels), dtype=np.int64)
    language_of[all_of("country")] = draw("language", sizes["country"])

    couples = random.permutation(people)[: people // 2 // 2 * 2].reshape(-1, 2)
    children = np.setdiff1d(everyone, couples)
    parents = couples[random.integers(len(couples), size=len(children))] if len(couples) else np.empty((0, 2), int)
    children = children[: len(parents)]
    birth = draw("town", people)
    at_home = keep_some(0.6, len(children))
    birth[children[at_home]] = birth[parents[at_home, 0]]
    home = np.where(keep_some(0.5, people), birth, draw("town", people))
    citizenship = np.where(keep_some(0.85, people), country_of[birth], country_of[home])
    employer, school = draw("company", people), draw("university", people)
    second = draw("language", people)
    is_native = language_of[citizenship] == second
    works, studied, bilingual = keep_some(0.5, people), keep_some(0.4, people), keep_some(0.2, people) & ~is_native
    neighbours = np.stack([all_of("country"), np.roll(all_of("country"), 1)])
    members = keep_some(0.7, sizes["country"])
    pairs: dict[str, list[Ids]] = {
        "born_in": [everyone, birth],
        "lives_in": [everyone, home],
        "citizen_of": [everyone, citizenship],
        "speaks": [np.append(everyone, everyone[bilingual]), np.append(language_of[citizenship], second[bilingual])],
        "occupation": [everyone, draw("occupation", people)],
        "works_for": [everyone[works], employer[works]],
        "studied_at": [everyone[studied], school[studied]],
        "spouse_of": [couples.ravel(), couples[:, ::-1].ravel()],
        "parent_of": [parents.T.ravel(), np.tile(children, 2)],
        "located_in": [
            np.concatenate([all_of(name) for name in ("town", "company", "university")]),
            np.concatenate([country_of[all_of(name)] for name in ("town", "company", "university")]),
        ],
        "capital_of": [capitals, countries],
        "official_language": [all_of("country"), language_of[all_of("country")]],
        "borders": [neighbours.ravel(), neighbours[::-1].ravel()],
        "member_of": [all_of("country")[members], draw("union", int(members.sum()))],
    }
    columns: dict[str, list[Column]] = {
        name: list(np.unique(np.stack(sides), axis=1).astype(np.int32)) for name, sides in pairs.items()
    }
    generated = build(parse_once(RULES), lay_out_domains([("thing", labels, None)]), columns)
    return corrupt(generated, missing=missing, noise=noise, random=random)
