"""Terms, atoms, comparisons and the formulas built from them: immutable values, compared by structure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Literal as OneOf
from typing import TypeAlias

from rulewright.errors import DataError

VARIABLE = re.compile(r"[A-Z_][A-Za-z0-9_]*\Z")


def check_finite(value: object, name: str) -> int | float:
    """Return a number, a NumPy or torch scalar too, as the int or float it is; refuse what is not finite.

    >>> check_finite(float("nan"), "a weight")
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: a weight must be a finite number, got nan
    """
    plain = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(plain, bool) or not isinstance(plain, int | float):
        raise DataError(f"{name} must be a finite number, got {value!r}")
    try:
        if math.isfinite(plain):
            return plain
    except OverflowError:
        raise DataError(f"{name} must lie between -1.79e308 and 1.79e308, got a longer integer") from None
    raise DataError(f"{name} must be a finite number, got {value!r}")


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable; its name starts with an upper-case letter or ``_``."""

    name: str

    def __post_init__(self) -> None:
        if not VARIABLE.match(self.name) or self.name == "_":
            raise DataError(f"variable names are [A-Z_][A-Za-z0-9_]* and not '_' alone, got {self.name!r}")

    def __str__(self) -> str:
        from rulewright.logic.printer import write

        return write(self)


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named constant: an entity, whatever characters its name has."""

    name: str

    __str__ = Variable.__str__


@dataclass(frozen=True, slots=True)
class Number:
    """A numeric constant."""

    value: int | float

    def __post_init__(self) -> None:
        object.__setattr__(self, "value", check_finite(self.value, "a number"))

    __str__ = Variable.__str__


Term: TypeAlias = Variable | Symbol | Number


def hint_at_variable(term: Term) -> str:
    """Return a hint where a name looks like a variable: a lower-case letter alone, perhaps with a number behind it.

    >>> hint_at_variable(Symbol("x")), hint_at_variable(Symbol("ann"))
    ('variables start upper-case: write X for a variable', '')
    """
    if not isinstance(term, Symbol) or not re.fullmatch("[a-z][0-9]*", term.name):
        return ""
    return f"variables start upper-case: write {term.name.upper()} for a variable"


@dataclass(frozen=True, slots=True)
class PredicateVariable:
    """A predicate to be found, written ``?P``; only templates and queries over all predicates hold one."""

    name: str

    def __post_init__(self) -> None:
        if not VARIABLE.match(self.name):
            raise DataError(f"predicate variables are ?[A-Z_][A-Za-z0-9_]*, got ?{self.name}")

    __str__ = Variable.__str__


@dataclass(frozen=True, slots=True)
class Atom:
    """A predicate and its arguments; without any it is a proposition, written as a bare name.

    >>> print(Atom("parent_of", (Variable("X"), Symbol("Ann Lee"))), Atom("rain"))
    parent_of(X, 'Ann Lee') rain
    """

    predicate: str | PredicateVariable
    args: tuple[Term, ...] = ()

    def __post_init__(self) -> None:
        if not self.args and isinstance(self.predicate, PredicateVariable):
            raise DataError(f"the predicate variable {self.predicate} needs at least one argument")

    @property
    def arity(self) -> int:
        """The number of arguments."""
        return len(self.args)

    __str__ = Variable.__str__


@dataclass(frozen=True, slots=True)
class Membership:
    """A multi-class atom whose value is one of ``classes``, written ``label(T) in {a, b}``."""

    atom: Atom
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.classes or len(set(self.classes)) != len(self.classes):
            raise DataError(f"the classes of {self.atom} must be distinct and at least one, got {list(self.classes)}")

    @property
    def predicate(self) -> str | PredicateVariable:
        """The multi-class predicate's name."""
        return self.atom.predicate

    @property
    def args(self) -> tuple[Term, ...]:
        """The arguments of the atom."""
        return self.atom.args

    __str__ = Variable.__str__


Comparator: TypeAlias = OneOf["<", "<=", ">", ">=", "=", "!="]
OPPOSITE: Mapping[Comparator, Comparator] = {"<": ">=", ">=": "<", ">": "<=", "<=": ">", "=": "!=", "!=": "="}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two terms compared: by number, or for ``=`` and ``!=`` by identity."""

    operator: Comparator
    left: Term
    right: Term

    def __post_init__(self) -> None:
        if self.operator not in OPPOSITE:
            raise DataError(f"comparisons are {' '.join(OPPOSITE)}, got {self.operator!r}")

    @property
    def args(self) -> tuple[Term, ...]:
        """Both sides."""
        return (self.left, self.right)

    def opposite(self) -> Comparison:
        """Return the comparison that holds exactly when this one does not."""
        return Comparison(OPPOSITE[self.operator], self.left, self.right)

    __str__ = Variable.__str__


@dataclass(frozen=True, slots=True)
class Not:
    """Negation; in a rule's body, absence."""

    formula: Formula

    __str__ = Variable.__str__


@dataclass(frozen=True, slots=True)
class And:
    """A conjunction of two or more formulas."""

    parts: tuple[Formula, ...]

    def __post_init__(self) -> None:
        if len(self.parts) < 2:
            raise DataError(f"And needs at least two parts, got {len(self.parts)}")

    __str__ = Variable.__str__


@dataclass(frozen=True, slots=True)
class Or:
    """A disjunction of two or more formulas."""

    parts: tuple[Formula, ...]

    def __post_init__(self) -> None:
        if len(self.parts) < 2:
            raise DataError(f"Or needs at least two parts, got {len(self.parts)}")

    __str__ = Variable.__str__


@dataclass(frozen=True, slots=True)
class Implies:
    """``premise => conclusion``."""

    premise: Formula
    conclusion: Formula

    __str__ = Variable.__str__


@dataclass(frozen=True, slots=True)
class Iff:
    """``left <=> right``."""

    left: Formula
    right: Formula

    __str__ = Variable.__str__


Unit: TypeAlias = Atom | Membership | Comparison
Formula: TypeAlias = Atom | Membership | Comparison | Not | And | Or | Implies | Iff


@dataclass(frozen=True, slots=True)
class Literal:
    """An atom, membership or comparison with a sign: what clauses and conjunctive bodies are made of."""

    unit: Unit
    positive: bool = True

    def formula(self) -> Formula:
        """Return the literal as a formula."""
        return self.unit if self.positive else Not(self.unit)

    def negated(self) -> Literal:
        """Return the literal with the other sign."""
        return Literal(self.unit, not self.positive)

    __str__ = Variable.__str__


def units(formula: Formula) -> Iterator[Unit]:
    """Iterate over the atoms, memberships and comparisons of a formula from left to right."""
    match formula:
        case Atom() | Membership() | Comparison():
            return iter((formula,))
        case Not(inner):
            return units(inner)
        case And(parts) | Or(parts):
            return chain.from_iterable(map(units, parts))
        case Implies(left, right) | Iff(left, right):
            return chain(units(left), units(right))


def atom_of(unit: Unit) -> Atom | None:
    """Return the atom inside a unit, or None for a comparison."""
    match unit:
        case Membership(atom, _):
            return atom
        case Comparison():
            return None
        case _:
            return unit


def variables(formula: Formula) -> tuple[Variable, ...]:
    """Return a formula's variables in order of first occurrence.

    >>> x, y = Variable("X"), Variable("Y")
    >>> [v.name for v in variables(And((Atom("p", (y, x)), Atom("q", (x,)))))]
    ['Y', 'X']
    """
    return tuple(dict.fromkeys(term for unit in units(formula) for term in unit.args if isinstance(term, Variable)))
