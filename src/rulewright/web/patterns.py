"""Reading what a person asks: patterns and names, with errors that say what is known."""

from __future__ import annotations

from rulewright.data import KnowledgeBase
from rulewright.data.vocabulary import MOST_COMPARED
from rulewright.errors import DataError, UnknownNameError, unknown_name
from rulewright.logic import NUMBER_TYPE, Atom, Head, Membership, Number, Symbol, Variable, parse_formula, quote


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
