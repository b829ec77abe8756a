"""The hinges of the loss one by one, with the gradient that each side is taught, as nested loops over assignments."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from inject.atoms.plain_pairs import log_p

from rulewright.logic import Rule, RuleSet, variables

Place = tuple[int, int, int]


class Implied(NamedTuple):
    """A premise that has a conclusion, as places of the logits, of some entities of the rule's head."""

    premise: tuple[Place, ...]
    conclusion: tuple[Place, ...]
    pair: tuple[int, int]


def ground(rule: Rule, size: int, relations: Sequence[str]) -> Iterator[Implied]:
    """Yield the groundings of a rule over distinct entities."""
    atoms = [*dict.fromkeys(rule.body), rule.head]
    names = list(dict.fromkeys([*variables(rule.head), *(name for atom in atoms for name in variables(atom))]))
    for entities in itertools.permutations(range(size), len(names)):
        at = dict(zip(names, entities, strict=True))
        places = [(at[a.args[0]], at[a.args[1]], relations.index(str(a.predicate))) for a in atoms]
        yield Implied(tuple(places[:-1]), (places[-1],), entities[:2])


def plain_sides(
    logits: np.ndarray,
    rules: RuleSet,
    relations: Sequence[str],
    *,
    side: str = "both",
    form: str = "hinge",
    eta: float = 0.05,
    weighted: bool = False,
) -> tuple[float, np.ndarray]:
    """Return the loss of one document [n, n, R] and the gradient that it passes on."""
    size = len(logits)
    value, gradient = 0.0, np.zeros_like(logits)
    known: set[object] = set()
    for rule in rules.rules:
        weight = rule.annotations["weight"] if weighted else 1.0
        key = (rule.canonical(), rule.confidence, weight)
        if rule.head in rule.body or key in known:
            continue
        known.add(key)
        offset = math.log(rule.confidence) - eta * len(set(rule.body))
        hinges = [(implied, weigh(implied, logits, offset)) for implied in ground(rule, size, relations)]
        if form == "published":
            for _, every in itertools.groupby(sorted(hinges, key=lambda one: one[0].pair), lambda one: one[0].pair):
                several = list(every)
                most = max(hinge for _, hinge in several)
                chosen = [implied for implied, hinge in several if hinge == most]
                share = weight / len(chosen) / (size * (size - 1))
                value += sum(teach(implied, logits, offset, side, share, gradient) for implied in chosen)
        else:
            value += sum(teach(implied, logits, offset, side, weight, gradient) for implied, _ in hinges)
    return value, gradient


def weigh(implied: Implied, logits: np.ndarray, offset: float) -> float:
    premise, conclusion = (sum(log_p(float(logits[place])) for place in places) for places in implied[:2])
    return offset + premise - conclusion


def teach(implied: Implied, logits: np.ndarray, offset: float, side: str, share: float, gradient: np.ndarray) -> float:
    """Return the share of a hinge, and add its slope to the gradient on the side that is taught."""
    hinge = weigh(implied, logits, offset)
    if hinge <= 0:
        return 0.0
    p_premise, p_conclusion = (math.exp(sum(log_p(float(logits[place])) for place in places)) for places in implied[:2])
    raises = p_premise >= 1 - p_conclusion if side == "likelier" else side in ("both", "head")
    lowers = not raises if side == "likelier" else side in ("both", "body")
    for is_taught, sign, places in ((lowers, 1, implied.premise), (raises, -1, implied.conclusion)):
        for place in places if is_taught else ():
            gradient[place] += sign * share * math.exp(log_p(-float(logits[place])))
    return share * hinge
