"""What is known and what is inferred about one entity, arranged for a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rulewright.data import KnowledgeBase
from rulewright.data.vocabulary import MOST_COMPARED
from rulewright.errors import DataError, UnknownNameError, unknown_name
from rulewright.logic import NUMBER_TYPE, Atom, Head, Membership, Number, Symbol, Variable, parse_formula, quote
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


def find_entity(kb: KnowledgeBase, name: str, type: str | None = None) -> tuple[str, int]:
    """Return type and id of an entity; an unknown name is an error with near ones.

    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob")])
    >>> find_entity(kb, "ann")
    ('entity', 0)
    >>> find_entity(kb, "anna")
    Traceback (most recent call last):
    ...
    rulewright.errors.UnknownNameError: unknown entity 'anna'; did you mean 'ann'?
    """
    domains = {kind: domain for kind, domain in kb.domains.items() if type in (None, kind) and len(domain)}
    for kind, domain in domains.items():
        if (found := domain.find(name)) is not None:
            return kind, found
    if sum(map(len, domains.values())) > MOST_COMPARED:
        raise UnknownNameError(f"unknown entity {name!r}")
    raise unknown_name("entity", name, {str(label) for domain in domains.values() for label in domain.labels})


def read_pattern(text: str, kb: KnowledgeBase) -> Head:
    """Read one atom whose predicate and entities are known; its variables are what is asked for.

    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob")])
    >>> print(read_pattern("parent_of(X, bob)", kb))
    parent_of(X, bob)
    >>> read_pattern("parent_of(X)", kb)
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: parent_of has 2 arguments, got 1
    """
    found = parse_formula(text)
    if not isinstance(found, Atom | Membership):
        raise DataError(f"expected a pattern such as parent_of(X, ann), got {found}")
    declaration = kb.predicate(str(found.predicate))
    if declaration.arity != len(found.args):
        raise DataError(f"{declaration.name} has {declaration.arity} arguments, got {len(found.args)}")
    if declaration.classes is not None and isinstance(found, Atom):
        raise DataError(f"{declaration.name} has classes; write {found} in {{{quote(declaration.classes[0])}}}")
    if declaration.classes is None and isinstance(found, Membership):
        raise DataError(f"{declaration.name} has no classes; write {found.atom}")
    for term, kind in zip(found.args, declaration.types, strict=True):
        if isinstance(term, Variable):
            continue
        if isinstance(term, Number) != (kind == NUMBER_TYPE):
            raise DataError(f"{term} must be {'a number' if kind == NUMBER_TYPE else 'a name; quote it'}")
        if isinstance(term, Symbol):
            find_entity(kb, term.name, kind)
    return found
