"""What is known and what is inferred about one entity, arranged for a picture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from rulewright.data import KnowledgeBase
from rulewright.web.fact_index import Found, is_relation


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


@dataclass
class _Gathered:
    known: list[Neighbour] = field(default_factory=list)
    inferred: list[Neighbour] = field(default_factory=list)


def arranged(
    kb: KnowledgeBase,
    type: str,
    name: str,
    facts: Iterable[Found],
    *,
    each: int,
    groups: int,
    skip: int = 0,
    containing: str = "",
) -> Neighbourhood:
    """Group facts about an entity by relation and direction.

    At most ``each`` neighbours a group and ``groups`` groups a direction are kept, after the first ``skip``; a relation
    must contain the text ``containing``. Relations with known facts come first, then those with the best scores.
    """
    gathered: dict[tuple[str, bool], _Gathered] = {}
    others: list[Found] = []
    known = inferred = 0
    wanted = containing.casefold()
    for fact in facts:
        known, inferred = known + fact.known, inferred + (not fact.known)
        if wanted not in fact.predicate.casefold():
            continue
        if not is_relation(fact.predicate, kb):
            others.append(fact)
            continue
        types = kb.predicate(fact.predicate).types
        head, tail = map(str, fact.args)
        if (types[0], head) == (type, name):
            _add(gathered, fact, True, Neighbour(types[1], tail, fact.score))
        if (types[1], tail) == (type, name) and (types[0], head) != (type, name):
            _add(gathered, fact, False, Neighbour(types[0], head, fact.score))
    chosen: list[Group] = []
    hidden = 0
    for outgoing in (False, True):
        side = sorted(
            ((key[0], parts) for key, parts in gathered.items() if key[1] == outgoing),
            key=lambda item: (not item[1].known, -_best(item[1]), item[0]),
        )
        hidden += max(len(side) - skip - groups, 0)
        for relation, parts in side[skip : skip + groups]:
            members = [*parts.known, *sorted(parts.inferred, key=lambda member: -(member.score or 0))]
            chosen.append(Group(relation, outgoing, tuple(members[:each]), len(members)))
    return Neighbourhood(type, name, tuple(chosen), tuple(others), known, inferred, hidden)


def _add(gathered: dict[tuple[str, bool], _Gathered], fact: Found, outgoing: bool, neighbour: Neighbour) -> None:
    parts = gathered.setdefault((fact.predicate, outgoing), _Gathered())
    (parts.known if fact.known else parts.inferred).append(neighbour)


def _best(parts: _Gathered) -> float:
    return max((neighbour.score or 0 for neighbour in parts.inferred), default=0.0)
