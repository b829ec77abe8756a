"""Facts as tuples of numbers and back: how an engine and a person name the same fact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from rulewright.data import KnowledgeBase, Value
from rulewright.errors import DataError, unknown_name
from rulewright.logic import NUMBER_TYPE, Atom, Head, Membership, Number, Symbol, Term, Variable, parse_formula

Key: TypeAlias = tuple[float, ...]
"""The number of a predicate, its arguments as ids or numbers, and where it has classes the number of the class."""


def read_fact(fact: str | Head | Sequence[Value], kb: KnowledgeBase) -> Head:
    """Read a ground fact given as text, as an atom, or as a tuple (predicate, argument, …[, class]).

    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "Bob B")])
    >>> print(read_fact(("parent_of", "ann", "Bob B"), kb), read_fact("parent_of(ann, ann)", kb))
    parent_of(ann, 'Bob B') parent_of(ann, ann)
    >>> read_fact("parent_of(ann, X)", kb)
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: a fact names everything; X in parent_of(ann, X) is a variable
    """
    if isinstance(fact, str):
        found = parse_formula(fact)
        if not isinstance(found, Atom | Membership):
            raise DataError(f"expected a fact such as parent_of(ann, bob), got {fact}")
    elif isinstance(fact, Atom | Membership):
        found = fact
    else:
        found = _labelled(fact, kb)
    declaration = kb.predicate(str(found.predicate))
    if len(found.args) != declaration.arity:
        raise DataError(f"{declaration.name} has {declaration.arity} arguments, got {found}")
    if (declaration.classes is not None) != isinstance(found, Membership):
        how = "is multi-class; write 'in {…}'" if declaration.classes else "is not multi-class"
        raise DataError(f"{declaration.name} {how}: {found}")
    if isinstance(found, Membership) and len(found.classes) > 1:
        raise DataError(f"a fact names one class, got {found}")
    for term in found.args:
        if isinstance(term, Variable):
            raise DataError(f"a fact names everything; {term} in {found} is a variable")
    return found


def _labelled(fact: Sequence[Value], kb: KnowledgeBase) -> Head:
    name, *args = fact
    declaration = kb.predicate(str(name))
    terms: list[Term] = [Symbol(each) if isinstance(each, str) else Number(each) for each in args[: declaration.arity]]
    atom = Atom(declaration.name, tuple(terms))
    return atom if declaration.classes is None else Membership(atom, tuple(map(str, args[declaration.arity :])))


def key_of(fact: Head, kb: KnowledgeBase) -> Key:
    """Return the numbers of a ground fact; an entity or class that is not there is an error with the nearest ones."""
    declaration = kb.predicate(str(fact.predicate))
    key: list[float] = [kb.number_of(declaration.name)]
    for term, kind in zip(fact.args, declaration.types, strict=True):
        if isinstance(term, Number) != (kind == NUMBER_TYPE):
            wanted = "a number" if kind == NUMBER_TYPE else "an entity; quote a name that looks like a number"
            raise DataError(f"{term} in {fact} must be {wanted}")
        key.append(float(term.value) if isinstance(term, Number) else kb.domains[kind].id_of(_name(term)))
    if isinstance(fact, Membership):
        classes = declaration.classes or ()
        if fact.classes[0] not in classes:
            raise unknown_name(f"class of {declaration.name}", fact.classes[0], classes)
        key.append(classes.index(fact.classes[0]))
    return tuple(key)


def _name(term: Term) -> str:
    assert isinstance(term, Symbol)
    return term.name


def fact_of(key: Key, kb: KnowledgeBase) -> Head:
    """Return the fact that numbers stand for.

    >>> kb = KnowledgeBase.from_facts([("age", "ann", 42)])
    >>> print(fact_of(key_of(read_fact("age(ann, 42)", kb), kb), kb))
    age(ann, 42.0)
    """
    declaration = list(kb.predicates.values())[int(key[0])]
    args: list[Term] = []
    for value, kind in zip(key[1:], declaration.types, strict=False):
        if kind == NUMBER_TYPE:
            args.append(Number(float(value)))
        else:
            args.append(Symbol(str(kb.domains[kind].labels_of(int(value)))))
    atom = Atom(declaration.name, tuple(args))
    return atom if declaration.classes is None else Membership(atom, (declaration.classes[int(key[-1])],))
