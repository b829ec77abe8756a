"""Statements: rules, weighted formulas, templates and declarations of predicates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, product
from math import prod
from typing import Literal as OneOf
from typing import Self, TypeAlias

from rulewright.errors import DataError
from rulewright.logic.terms import (
    And,
    Atom,
    Comparison,
    Formula,
    Literal,
    Membership,
    Not,
    Or,
    PredicateVariable,
    Symbol,
    Term,
    Variable,
    atom_of,
    check_finite,
    units,
)

Head: TypeAlias = Atom | Membership

NUMBER_TYPE = "number"
"""The type of arguments that hold numbers instead of entities."""


class Annotations(Mapping[str, object]):
    """What ``@{…}`` carries: an immutable mapping to numbers, booleans, strings, lists (as tuples) and mappings.

    >>> Annotations({"support": 120, "and": [1.4, 1.5]})["and"]
    (1.4, 1.5)
    """

    __slots__ = ("_items",)

    def __init__(self, items: Mapping[str, object] | None = None) -> None:
        self._items = {str(key): _freeze(value) for key, value in (items or {}).items()}

    def __getitem__(self, key: str) -> object:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(frozenset(self._items.items()))

    def __repr__(self) -> str:
        return f"Annotations({self._items!r})"

    def number(self, key: str) -> float | None:
        """Return a numeric annotation, or None where there is none."""
        value = self._items.get(key)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None

    def __reduce__(self) -> tuple[object, ...]:
        return Annotations, (self._items,)


def _freeze(value: object) -> object:
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return check_finite(value, "an annotation")
    if isinstance(value, str):
        return str(value)
    if isinstance(value, list | tuple):
        return tuple(map(_freeze, value))
    if isinstance(value, Mapping):
        return Annotations(value)
    if hasattr(value, "tolist"):  # an array or tensor, or a scalar of one
        return _freeze(value.tolist())
    raise DataError(f"an annotation is a number, truth value, text, list or mapping, got {value!r}")


@dataclass(frozen=True, slots=True)
class Rule:
    """An implication with a head: ``confidence :: head :- body.``

    The body is a conjunction, a tuple of literals; where alternatives are needed a part may be an `Or`.
    Variables that only the body has are existential. Every variable of the head, of a negated part and of a
    comparison is bound by a positive atom, in each alternative.

    >>> from rulewright.logic import parse_rule
    >>> rule = parse_rule("0.99 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z). @{support: 120}")
    >>> rule.confidence, rule.support, [str(part) for part in rule.body]
    (0.99, 120, ['spouse_of(X, Y)', 'parent_of(Y, Z)'])
    """

    head: Head
    body: tuple[Formula, ...]
    confidence: float = 1.0
    annotations: Annotations = field(default_factory=Annotations)

    def __post_init__(self) -> None:
        object.__setattr__(self, "confidence", check_finite(self.confidence, "confidence"))
        if not (0 <= self.confidence <= 1):
            raise DataError(f"confidence must lie in [0, 1], got {self.confidence}")
        _check_implication(self.head, self.body)
        for part in self.body:
            _check_no_holes(part)

    def alternatives(self) -> tuple[tuple[Literal, ...], ...]:
        """Return the body as a disjunction of conjunctions of literals; one for most rules.

        >>> from rulewright.logic import parse_rule
        >>> rule = parse_rule("p(X) :- a(X), (b(X) ; !c(X)).")
        >>> [[str(literal) for literal in literals] for literals in rule.alternatives()]
        [['a(X)', 'b(X)'], ['a(X)', '!c(X)']]
        """
        positive = tuple(Literal(part) for part in self.body if isinstance(part, Atom | Membership | Comparison))
        if len(positive) == len(self.body):
            return (positive,)
        if prod(_count_alternatives(part, True) for part in self.body) > MAX_ALTERNATIVES:
            raise DataError(f"a body with more than {MAX_ALTERNATIVES} alternatives; split the rule")
        return _join_alternatives(_multiply_out(part, True) for part in self.body)

    @property
    def support(self) -> float | None:
        """The number of groundings in which body and head hold, where it was counted."""
        return self.annotations.number("support")

    def annotated(self, **values: object) -> Self:
        """Return the rule with annotations added or replaced."""
        return replace(self, annotations=Annotations({**self.annotations, **values}))

    def canonical(self) -> Rule:
        """Return the rule with variables and body in standard order, for comparison up to renaming.

        Confidence and annotations are left out.
        """
        from rulewright.logic.compare import canonical

        return canonical(self)

    def __str__(self) -> str:
        from rulewright.logic.printer import write

        return write(self)


@dataclass(frozen=True, slots=True)
class WeightedFormula:
    """A general formula: ``w formula.``, ``hard formula.`` or ``learn formula.``; its variables are universal."""

    formula: Formula
    kind: OneOf["soft", "hard", "learn"]
    weight: float | None = None
    annotations: Annotations = field(default_factory=Annotations)

    def __post_init__(self) -> None:
        if self.kind not in ("soft", "hard", "learn"):
            raise DataError(f"kind must be 'soft', 'hard' or 'learn', got {self.kind!r}")
        if (self.weight is not None) != (self.kind == "soft"):
            raise DataError(
                f"a soft formula has a weight and no other kind has one, got {self.kind} with {self.weight}"
            )
        if self.weight is not None:
            object.__setattr__(self, "weight", check_finite(self.weight, "a weight (what must hold is 'hard')"))
        _check_no_holes(self.formula)

    __str__ = Rule.__str__


@dataclass(frozen=True, slots=True)
class Template:
    """A rule with predicates to be found: ``template s(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in {a, b}, ?Q in *.``

    ``domains`` gives for each predicate variable the names it may become, None for any.
    """

    head: Head
    body: tuple[Formula, ...]
    domains: tuple[tuple[PredicateVariable, tuple[str, ...] | None], ...] = ()
    annotations: Annotations = field(default_factory=Annotations)

    def __post_init__(self) -> None:
        _check_implication(self.head, self.body)
        declared = [hole for hole, _ in self.domains]
        used = self.holes()
        for hole, names in self.domains:
            if declared.count(hole) > 1:
                raise DataError(f"{hole} has more than one domain")
            if hole not in used:
                raise DataError(f"{hole} has a domain and does not occur in the template")
            if names is not None and (not names or len(set(names)) != len(names)):
                raise DataError(f"the domain of {hole} must be distinct predicates, at least one, or * for any")
        for hole in used:
            if hole not in declared:
                raise DataError(f"{hole} has no domain; add 'where {hole} in {{…}}' or 'in *'")

    def holes(self) -> dict[PredicateVariable, int]:
        """Return the predicate variables in order of first occurrence, each with its arity.

        >>> from rulewright.logic import parse_template
        >>> template = parse_template("template s(X) :- ?Q(X, Y), ?P(Y) where ?P in *, ?Q in {a}.")
        >>> {str(hole): arity for hole, arity in template.holes().items()}
        {'?Q': 2, '?P': 1}
        """
        arities: dict[PredicateVariable, int] = {}
        for unit in chain.from_iterable(map(units, self.body)):
            atom = atom_of(unit)
            if atom is None or not isinstance(hole := atom.predicate, PredicateVariable):
                continue
            if arities.setdefault(hole, atom.arity) != atom.arity:
                raise DataError(f"{hole} has {arities[hole]} arguments and {atom.arity}; one name has one arity")
        return arities

    __str__ = Rule.__str__


@dataclass(frozen=True, slots=True)
class PredicateDeclaration:
    """``predicate name(type, …).`` with ``in {…}`` and its classes in order where it is multi-class.

    Without types it is a proposition: ``predicate rain.``, ``predicate weather in {sun, rain}.``
    """

    name: str
    types: tuple[str, ...] = ()
    classes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.classes is not None and (len(self.classes) < 2 or len(set(self.classes)) != len(self.classes)):
            raise DataError(f"the classes of {self.name} must be distinct and at least two, got {list(self.classes)}")

    @property
    def arity(self) -> int:
        """The number of arguments."""
        return len(self.types)

    __str__ = Rule.__str__


Statement: TypeAlias = Rule | WeightedFormula | Template


MAX_ALTERNATIVES = 10_000
"""How many alternatives a body may be multiplied out into."""


def _count_alternatives(formula: Formula, positive: bool) -> int:
    match formula:
        case Not(inner):
            return _count_alternatives(inner, not positive)
        case And(parts) | Or(parts):
            combine = sum if isinstance(formula, Or) == positive else prod
            return combine(_count_alternatives(part, positive) for part in parts)
    return 1


def _multiply_out(formula: Formula, positive: bool) -> tuple[tuple[Literal, ...], ...]:
    match formula:
        case Not(inner):
            return _multiply_out(inner, not positive)
        case And(parts) | Or(parts):
            by_part = [_multiply_out(part, positive) for part in parts]
            if isinstance(formula, Or) == positive:
                return tuple(chain.from_iterable(by_part))
            return _join_alternatives(by_part)
        case Comparison() if not positive:
            return ((Literal(formula.opposite()),),)
        case Atom() | Membership() | Comparison():
            return ((Literal(formula, positive),),)
    raise _body_error(formula)


def _join_alternatives(parts: Iterable[tuple[tuple[Literal, ...], ...]]) -> tuple[tuple[Literal, ...], ...]:
    return tuple(tuple(chain.from_iterable(choice)) for choice in product(*parts))


def _body_error(formula: Formula) -> DataError:
    return DataError(f"a rule's body has ',' ';' and '!', got {formula}")


def _check_no_holes(formula: Formula) -> None:
    for unit in units(formula):
        if not isinstance(unit, Comparison) and isinstance(unit.predicate, PredicateVariable):
            raise DataError(f"{unit.predicate} may stand only in the body of a template")


def _check_implication(head: Head, body: tuple[Formula, ...]) -> None:
    if not body:
        raise DataError("a rule needs a body; facts live in fact files")
    _check_no_holes(head)
    bound = {term for part in body if isinstance(part, Atom | Membership) for term in part.args}
    others = [part for part in body if not isinstance(part, Atom | Membership)]
    bound = bound.union(*(_bound_terms(part, True) for part in others))
    for term in head.args:
        if isinstance(term, Variable) and term not in bound:
            lower = Symbol(term.name.lower())
            hint = f"; {lower} is a name, for variables start upper-case" if lower in bound else ""
            raise DataError(f"head variable {term} is not bound: it occurs in no positive atom of the body{hint}")
    for part in others:
        _check_bound(part, True, frozenset(bound))


def _bound_terms(formula: Formula, positive: bool) -> frozenset[Term]:
    """Return the terms that stand in a positive atom in whatever way the formula becomes true."""
    match formula:
        case Atom() | Membership():
            return frozenset(formula.args) if positive else frozenset()
        case Comparison():
            return frozenset()
        case Not(inner):
            return _bound_terms(inner, not positive)
        case And(parts) | Or(parts):
            by_part = [_bound_terms(part, positive) for part in parts]
            if isinstance(formula, And) == positive:
                return frozenset[Term]().union(*by_part)
            return by_part[0].intersection(*by_part)
    raise _body_error(formula)


def _check_bound(formula: Formula, positive: bool, bound: frozenset[Term]) -> None:
    """Check that every variable is bound where it stands, given what is bound around it."""
    match formula:
        case Not(inner):
            _check_bound(inner, not positive, bound)
        case And(parts) | Or(parts):
            for part in parts:
                _check_bound(part, positive, bound | _bound_terms(part, positive))
        case Atom() | Membership() if positive:
            return  # it binds its own
        case Atom() | Membership() | Comparison():
            for term in formula.args:
                if isinstance(term, Variable) and term not in bound:
                    where = "in a comparison" if isinstance(formula, Comparison) else "under '!'"
                    raise DataError(f"variable {term} occurs only {where}; bind it with a positive atom")
