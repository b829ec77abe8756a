"""Nations: few entities, many relations, nearly everything connected. Dense graphs are hard for other reasons."""

from __future__ import annotations

import numpy as np

from rulewright.checks import Real, Whole, check_parameter
from rulewright.data.facts import Column
from rulewright.data.generators.generated import Generated, build
from rulewright.data.vocabulary import lay_out_domains
from rulewright.logic import parse_rules

BLOCS = 3
_LIKELY, _UNLIKELY = 0.85, 0.03


def nations(
    countries: int = 14, *, relations: int = 54, attributes: int = 20, density: float = 0.2, seed: int = 0
) -> Generated:
    """Return countries of three blocs whose relations depend on the blocs, and on each other.

    A third of the relations is drawn: each holds between some pairs of blocs, which are about ``density`` of all, most
    of the time and otherwise hardly ever. A third are wider: each holds wherever one of the first third does, and at
    some other places. The last third turn one of the first third around, likewise. Attributes are unary: each belongs
    to one bloc, most of the time. The rules say which relation follows from which, without exception.

    >>> generated = nations(seed=1)
    >>> generated.kb
    KnowledgeBase(14 entities, 74 predicates, 1,694 facts)
    >>> print(generated.rules.rules[0])
    relation_18(X, Y) :- relation_0(X, Y).
    """
    check_parameter("countries", countries, Whole(2))
    check_parameter("relations", relations, Whole(3))
    check_parameter("attributes", attributes, Whole(0))
    check_parameter("density", density, Real(0, 1))
    random = np.random.default_rng(seed)
    bloc = random.permutation(np.arange(countries) % BLOCS)
    drawn = relations // 3
    predicates = [f"predicate relation_{index}(country, country)." for index in range(relations)]
    predicates += [f"predicate attribute_{index}(country)." for index in range(attributes)]
    columns: dict[str, list[Column]] = {}
    rules = []
    truth: list[np.ndarray] = []
    for index in range(relations):
        source = index % drawn
        if index < drawn:
            blocs = random.random((BLOCS, BLOCS)) < density
            holds = random.random((countries, countries)) < np.where(blocs, _LIKELY, _UNLIKELY)[bloc][:, bloc]
        else:
            turned = index >= 2 * drawn
            wider = truth[source].T if turned else truth[source]
            holds = wider | (random.random((countries, countries)) < _UNLIKELY)
            body = "(Y, X)" if turned else "(X, Y)"
            rules.append(f"relation_{index}(X, Y) :- relation_{source}{body}.")
        np.fill_diagonal(holds, False)
        truth.append(holds)
        columns[f"relation_{index}"] = [side.astype(np.int32) for side in np.nonzero(holds)]
    for index in range(attributes):
        has = random.random(countries) < np.where(bloc == index % BLOCS, _LIKELY, _UNLIKELY)
        columns[f"attribute_{index}"] = [np.flatnonzero(has).astype(np.int32)]
    domains = lay_out_domains([("country", [f"country_{index}" for index in range(countries)], None)])
    return build(parse_rules("\n".join([*predicates, *rules])), domains, columns)
