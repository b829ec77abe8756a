"""Statements: rules, weighted formulas, templates and declarations of predicates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal as OneOf
from typing import Self, TypeAlias

from rulewright.errors import DataError
from rulewright.logic.terms import (
    And,
    Atom,
    Comparison,
    Formula,
    Iff,
    Implies,
    Literal,
    Membership,
    Not,
    Or,
    PredicateVariable,
    Unit,
    units,
    variables,
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
        self._items = {str(key): _frozen(value) for key, value in (items or {}).items()}

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


def _frozen(value: object) -> object:
    if isinstance(value, Mapping):
        return Annotations(value)
    if isinstance(value, list | tuple):
        return tuple(_frozen(each) for each in value)
    if isinstance(value, bool | str):
        return value
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    if hasattr(value, "item"):  # a NumPy or torch scalar
        return _frozen(value.item())
    raise DataError(f"annotations hold finite numbers, booleans, strings, lists and mappings, got {value!r}")


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
        if not (0 <= self.confidence <= 1):
            raise DataError(f"confidence must lie in [0, 1], got {self.confidence}")
        _check_body(self.body, holes=False)
        _no_holes(self.head)
        for alternative in self.alternatives():
            _check_bound(self.head, alternative)

    def alternatives(self) -> tuple[tuple[Literal, ...], ...]:
        """Return the body as a disjunction of conjunctions of literals; one for most rules.

        >>> from rulewright.logic import parse_rule
        >>> rule = parse_rule("p(X) :- a(X), (b(X) ; !c(X)).")
        >>> [[str(literal) for literal in each] for each in rule.alternatives()]
        [['a(X)', 'b(X)'], ['a(X)', '!c(X)']]
        """
        return disjunctive(self.body)

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
        from rulewright.logic.printer import text

        return text(self)


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
        if self.weight is not None and not math.isfinite(self.weight):
            raise DataError(f"a weight must be finite, got {self.weight}; use 'hard' for what must hold")
        for unit in units(self.formula):
            _no_holes(unit)

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
        _check_body(self.body, holes=True)
        _no_holes(self.head)
        for alternative in disjunctive(self.body):
            _check_bound(self.head, alternative)
        declared = [hole for hole, _ in self.domains]
        used = {unit.predicate for part in self.body for unit in units(part) if not isinstance(unit, Comparison)}
        for hole, names in self.domains:
            if declared.count(hole) > 1:
                raise DataError(f"{hole} has more than one domain")
            if hole not in used:
                raise DataError(f"{hole} has a domain and does not occur in the template")
            if names is not None and not names:
                raise DataError(f"the domain of {hole} is empty; name at least one predicate, or * for any")
        for hole in sorted((each for each in used if isinstance(each, PredicateVariable)), key=str):
            if hole not in declared:
                raise DataError(f"{hole} has no domain; add 'where {hole} in {{…}}' or 'in *'")

    __str__ = Rule.__str__


@dataclass(frozen=True, slots=True)
class PredicateDeclaration:
    """``predicate name(type, …).`` with ``in {…}`` and its classes in order where it is multi-class."""

    name: str
    types: tuple[str, ...]
    classes: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if not self.types:
            raise DataError(f"predicate {self.name} needs at least one argument")
        if self.classes is not None and (len(self.classes) < 2 or len(set(self.classes)) != len(self.classes)):
            raise DataError(f"the classes of {self.name} must be distinct and at least two, got {list(self.classes)}")

    @property
    def arity(self) -> int:
        """The number of arguments."""
        return len(self.types)

    __str__ = Rule.__str__


Statement: TypeAlias = Rule | WeightedFormula | Template


def disjunctive(body: tuple[Formula, ...]) -> tuple[tuple[Literal, ...], ...]:
    """Multiply a body out into alternatives, each a conjunction of literals."""
    alternatives: list[tuple[Literal, ...]] = [()]
    for part in body:
        alternatives = [left + right for left in alternatives for right in _multiplied_out(part, True)]
    return tuple(alternatives)


def _multiplied_out(formula: Formula, positive: bool) -> tuple[tuple[Literal, ...], ...]:
    match formula:
        case Not(inner):
            return _multiplied_out(inner, not positive)
        case And(parts) | Or(parts):
            if isinstance(formula, Or) == positive:
                return tuple(each for part in parts for each in _multiplied_out(part, positive))
            alternatives: list[tuple[Literal, ...]] = [()]
            for part in parts:
                alternatives = [left + right for left in alternatives for right in _multiplied_out(part, positive)]
            return tuple(alternatives)
        case Comparison() if not positive:
            return ((Literal(formula.opposite()),),)
        case Atom() | Membership() | Comparison():
            return ((Literal(formula, positive),),)
    raise DataError(f"a rule's body has ',' ';' and '!', got {formula}")


def _check_body(body: tuple[Formula, ...], *, holes: bool) -> None:
    if not body:
        raise DataError("a rule needs a body; facts live in fact files")
    for part in body:
        _check_connectives(part)
        if not holes:
            for unit in units(part):
                _no_holes(unit)


def _check_connectives(formula: Formula) -> None:
    match formula:
        case Implies() | Iff():
            raise DataError(f"a rule's body has ',' ';' and '!', got {formula}")
        case Not(inner):
            _check_connectives(inner)
        case And(parts) | Or(parts):
            for part in parts:
                _check_connectives(part)


def _no_holes(unit: Unit) -> None:
    if not isinstance(unit, Comparison) and isinstance(unit.predicate, PredicateVariable):
        raise DataError(f"{unit.predicate} may stand only in the body of a template")


def _check_bound(head: Head, body: tuple[Literal, ...]) -> None:
    bound = {
        variable
        for literal in body
        if literal.positive and not isinstance(literal.unit, Comparison)
        for variable in variables(literal.unit)
    }
    for variable in variables(head):
        if variable not in bound:
            raise DataError(f"head variable {variable} is not bound: it occurs in no positive atom of the body")
    for literal in body:
        for variable in variables(literal.unit):
            if variable not in bound:
                where = "in a comparison" if isinstance(literal.unit, Comparison) else "under '!'"
                raise DataError(f"variable {variable} occurs only {where}; bind it with a positive atom")
