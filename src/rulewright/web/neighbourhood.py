"""What is known and what is inferred about one entity, arranged for a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rulewright.data import KnowledgeBase
from rulewright.web.fact_lookup import Bundle, Found


@dataclass(frozen=True)
class Neighbour:
    """An entity at the other end of a fact; ``score`` is None where the fact is known."""

    type: str
    name: str
    score: float | None


@dataclass(frozen=True)
class Group:
    """The neighbours by one relation, away from the entity or towards it; ``total`` counts those left out too."""

    relation: str
    outgoing: bool
    neighbours: tuple[Neighbour, ...]
    total: int

    @property
    def more(self) -> int:
        """How many are left out."""
        return self.total - len(self.neighbours)


@dataclass(frozen=True)
class Neighbourhood:
    """An entity, its neighbours by relation, and the facts that are no arrows: of one, three or more arguments."""

    type: str
    name: str
    groups: tuple[Group, ...]
    others: tuple[Found, ...]
    known: int
    inferred: int
    hidden_groups: int = 0
    hidden_others: int = 0


def arranged(
    kb: KnowledgeBase,
    type: str,
    name: str,
    bundles: Sequence[Bundle],
    *,
    each: int,
    groups: int,
    skip: int = 0,
    containing: str = "",
) -> Neighbourhood:
    """Group facts about an entity by relation and direction, known ones before inferred ones.

    At most ``each`` neighbours a group and ``groups`` groups a direction are kept, after the first ``skip``; a relation
    must contain the text ``containing``. Relations with known facts come first, then those with the best scores.
    """
    counts = {True: 0, False: 0}
    arrows: dict[tuple[str, bool], list[Bundle]] = {}
    others: list[Bundle] = []
    for bundle in bundles:
        counts[bundle.facts[0].known] += bundle.total
        if containing.casefold() not in bundle.predicate.casefold():
            continue
        if bundle.outgoing is None:
            others.append(bundle)
        else:
            arrows.setdefault((bundle.predicate, bundle.outgoing), []).append(bundle)
    chosen: list[Group] = []
    hidden = 0
    for outgoing in (False, True):
        side = sorted((parts for key, parts in arrows.items() if key[1] == outgoing), key=_rank)
        hidden += max(len(side) - skip - groups, 0)
        chosen += [_group(kb, parts, each) for parts in side[skip : skip + groups]]
    told = tuple(fact for bundle in others for fact in bundle.facts)
    left = sum(bundle.total for bundle in others) - len(told)
    return Neighbourhood(type, name, tuple(chosen), told, counts[True], counts[False], hidden, left)


def _rank(parts: Sequence[Bundle]) -> tuple[bool, float, str]:
    best = max((fact.score or 0.0 for bundle in parts for fact in bundle.facts), default=0.0)
    return not any(bundle.facts[0].known for bundle in parts), -best, parts[0].predicate


def _group(kb: KnowledgeBase, parts: Sequence[Bundle], each: int) -> Group:
    outgoing = bool(parts[0].outgoing)
    kind = kb.predicate(parts[0].predicate).types[1 if outgoing else 0]
    facts = [fact for known in (True, False) for bundle in parts for fact in bundle.facts if fact.known == known]
    members = tuple(Neighbour(kind, str(fact.args[1 if outgoing else 0]), fact.score) for fact in facts[:each])
    return Group(parts[0].predicate, outgoing, members, sum(bundle.total for bundle in parts))
