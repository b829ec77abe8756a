"""A rule set: what a ``.rules`` file holds, in order, and what people do with it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain, groupby
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from rulewright.errors import DataError, unknown_name
from rulewright.files import write_text
from rulewright.logic.printer import quote, write_body
from rulewright.logic.rules import (
    Annotations,
    Head,
    PredicateDeclaration,
    Rule,
    Statement,
    Template,
    WeightedFormula,
)
from rulewright.logic.terms import Atom, Comparison, Implies, Membership, Not, units

if TYPE_CHECKING:
    from rulewright.tables import FrameLibrary

Numbers: TypeAlias = float | Sequence[float | None] | Mapping[Statement | str, float]
"""Numbers of statements: one for all, one for each in order, or by statement or text."""


class Usage:
    """How the predicates of a set are used so far; refuses a use that contradicts an earlier one."""

    def __init__(self) -> None:
        self.arities: dict[str, int] = {}
        self.declared: dict[str, PredicateDeclaration] = {}
        self._multi_class: dict[str, bool] = {}

    def declare(self, declaration: PredicateDeclaration) -> None:
        """Take up a declaration."""
        name, multi_class = declaration.name, declaration.classes is not None
        if self.declared.get(name, declaration) != declaration:
            raise DataError(f"predicate {name} is declared twice: as {self.declared[name]} and as {declaration}")
        self._agree_on_arity(name, declaration.arity)
        if self._multi_class.setdefault(name, multi_class) != multi_class:
            used = "without 'in {…}'" if multi_class else "with 'in {…}'"
            raise DataError(f"{name} is declared {'' if multi_class else 'not '}multi-class but was used above {used}")
        self.declared[name] = declaration

    def add(self, statement: Statement) -> None:
        """Take up the predicates of a statement."""
        formulas = [statement.formula] if isinstance(statement, WeightedFormula) else [statement.head, *statement.body]
        for unit in chain.from_iterable(map(units, formulas)):
            if isinstance(unit, Comparison) or not isinstance(unit.predicate, str):
                continue
            self._agree_on_arity(unit.predicate, len(unit.args))
            in_classes = isinstance(unit, Membership)
            if self._multi_class.setdefault(unit.predicate, in_classes) != in_classes:
                self._refuse_classes(unit)
            elif isinstance(unit, Membership):
                self._check_classes(unit)
        if isinstance(statement, Template):
            holes = statement.holes()
            for hole, names in statement.domains:
                for name in names or ():
                    self._agree_on_arity(name, holes[hole])

    def _agree_on_arity(self, name: str, arity: int) -> None:
        known = self.arities.setdefault(name, arity)
        if known != arity:
            raise DataError(f"{name} has {known} arguments elsewhere and {arity} here; one name has one arity")

    def _refuse_classes(self, unit: Head) -> None:
        name = str(unit.predicate)
        declared = self.declared.get(name)
        if isinstance(unit, Atom):
            example = quote(declared.classes[0]) if declared and declared.classes else "…"
            raise DataError(f"{name} is multi-class; write {unit} in {{{example}}}")
        if declared is not None:
            raise DataError(f"{name} has no classes; declare them: predicate {quote(name)}(…) in {{…}}.")
        raise DataError(f"{name} is used elsewhere without 'in {{…}}' and here with it")

    def _check_classes(self, unit: Membership) -> None:
        declaration = self.declared.get(str(unit.predicate))
        if declaration is None or declaration.classes is None:
            return
        for name in unit.classes:
            if name not in declaration.classes:
                raise DataError(str(unknown_name(f"class of {declaration.name}", name, declaration.classes)))


class RuleSet:
    """Rules, weighted formulas and templates in order, with the declarations of their predicates. Immutable.

    ``numbers`` has the number of each statement as a person counts in the file, from 1; those that are switched off
    there (``%off``) count too. A part of a set keeps the numbers of the whole.

    >>> from rulewright.logic import parse_rules
    >>> rules = parse_rules('''
    ...     0.9 :: child_of(X, Y) :- parent_of(Y, X).  @{support: 9}
    ...     0.7 :: spouse_of(X, Y) :- spouse_of(Y, X). @{support: 14}
    ... ''')
    >>> print(rules.sort("support").rules[0])
    0.7 :: spouse_of(X, Y) :- spouse_of(Y, X). @{support: 14}
    >>> rules.columns()["confidence"], list(rules.by_head())
    ([0.9, 0.7], ['child_of', 'spouse_of'])
    """

    def __init__(
        self,
        statements: Iterable[Statement] = (),
        *,
        predicates: Iterable[PredicateDeclaration] = (),
        closed: Iterable[str] = (),
        numbers: Iterable[int] | None = None,
    ) -> None:
        self.statements: tuple[Statement, ...] = tuple(statements)
        usage = Usage()
        for declaration in predicates:
            usage.declare(declaration)
        for statement in self.statements:
            usage.add(statement)
        self.predicates: tuple[PredicateDeclaration, ...] = tuple(usage.declared.values())
        self.closed: tuple[str, ...] = tuple(dict.fromkeys(closed))
        self.arities: Mapping[str, int] = usage.arities
        self.numbers: tuple[int, ...] = tuple(range(1, len(self.statements) + 1)) if numbers is None else tuple(numbers)

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The implications with a head."""
        return tuple(statement for statement in self.statements if isinstance(statement, Rule))

    @cached_property
    def formulas(self) -> tuple[WeightedFormula, ...]:
        """The weighted, hard and learnable formulas."""
        return tuple(statement for statement in self.statements if isinstance(statement, WeightedFormula))

    @cached_property
    def templates(self) -> tuple[Template, ...]:
        """The templates."""
        return tuple(statement for statement in self.statements if isinstance(statement, Template))

    def __len__(self) -> int:
        return len(self.statements)

    def __iter__(self) -> Iterator[Statement]:
        return iter(self.statements)

    @overload
    def __getitem__(self, index: int) -> Statement: ...
    @overload
    def __getitem__(self, index: slice) -> RuleSet: ...
    def __getitem__(self, index: int | slice) -> Statement | RuleSet:
        if isinstance(index, slice):
            return self._pick(range(len(self))[index])
        return self.statements[index]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RuleSet) and self._parts() == other._parts()

    def __hash__(self) -> int:
        return hash(self._parts())

    def _parts(self) -> tuple[object, ...]:
        return self.statements, self.predicates, self.closed

    def _pick(self, indices: Iterable[int]) -> RuleSet:
        """Return some of the statements, with their numbers."""
        chosen = list(indices)
        return RuleSet(
            [self.statements[index] for index in chosen],
            predicates=self.predicates,
            closed=self.closed,
            numbers=[self.numbers[index] for index in chosen],
        )

    def filter(
        self,
        keep: Callable[[Statement], bool] | None = None,
        *,
        head: str | None = None,
        min_confidence: float = 0.0,
        min_support: float = 0.0,
    ) -> RuleSet:
        """Keep the statements that pass every test; formulas and templates pass ``min_…`` and fail ``head``."""

        def passes(statement: Statement) -> bool:
            if keep is not None and not keep(statement):
                return False
            if not isinstance(statement, Rule):
                return head is None
            return (
                (head is None or statement.head.predicate == head)
                and statement.confidence >= min_confidence
                and (min_support <= 0 or (statement.support or 0) >= min_support)
            )

        return self._pick(index for index, statement in enumerate(self.statements) if passes(statement))

    def sort(self, key: str | Callable[[Statement], float] = "confidence", *, descending: bool = True) -> RuleSet:
        """Order statements by confidence, by the name of an annotation or by a function; without a value come last."""
        sign = -1.0 if descending else 1.0

        def value(statement: Statement) -> tuple[bool, float]:
            if callable(key):
                return False, sign * key(statement)
            by_confidence = key == "confidence"
            number = getattr(statement, "confidence", None) if by_confidence else statement.annotations.get(key)
            return (False, sign * number) if isinstance(number, int | float) else (True, 0.0)

        return self._pick(sorted(range(len(self)), key=lambda index: value(self.statements[index])))

    def keep_top(self, count: int) -> RuleSet:
        """Keep the first ``count`` rules for each head, in their order, and all other statements.

        >>> from rulewright.logic import parse_rules
        >>> rules = parse_rules("0.9 :: p(X) :- q(X). 0.8 :: p(X) :- r(X). 0.7 :: q(X) :- r(X).")
        >>> [str(rule) for rule in rules.keep_top(1)]
        ['0.9 :: p(X) :- q(X).', '0.7 :: q(X) :- r(X).']
        """
        seen: Counter[str] = Counter()
        kept = []
        for index, statement in enumerate(self.statements):
            if isinstance(statement, Rule):
                head = str(statement.head.predicate)
                seen[head] += 1
                if seen[head] > count:
                    continue
            kept.append(index)
        return self._pick(kept)

    def by_head(self) -> dict[str, RuleSet]:
        """Group the rules by the predicate of their head, in order of first occurrence."""
        groups: dict[str, list[int]] = {}
        for index, statement in enumerate(self.statements):
            if isinstance(statement, Rule):
                groups.setdefault(str(statement.head.predicate), []).append(index)
        return {head: self._pick(indices) for head, indices in groups.items()}

    def merge(self, *others: RuleSet) -> RuleSet:
        """Join rule sets; of rules that are equal up to variable names and body order the first is kept.

        Formulas and templates are kept unless they are equal in everything.
        """
        merged: dict[object, Statement] = {}
        sets = (self, *others)
        for statement in chain.from_iterable(sets):
            key = statement.canonical() if isinstance(statement, Rule) else statement
            merged.setdefault(key, statement)
        return RuleSet(
            merged.values(),
            predicates=chain.from_iterable(rules.predicates for rules in sets),
            closed=chain.from_iterable(rules.closed for rules in sets),
        )

    def __add__(self, other: RuleSet) -> RuleSet:
        """Join two rule sets, as `merge` does.

        >>> from rulewright.logic import parse_rules
        >>> parse_rules("p(X) :- q(X).") + parse_rules("hard !(p(X) & r(X)). closed q.")
        RuleSet(1 rules, 1 formulas)
        """
        return self.merge(other) if isinstance(other, RuleSet) else NotImplemented

    def with_weights(self, weights: Numbers | None, *, confidences: Numbers | None = None) -> RuleSet:
        """Return the set with other weights: of a rule the annotation ``@{weight: …}``, of a formula its own.

        Both are one number for all, a sequence in the order of the statements, in which None leaves one as it is, or a
        mapping from statements or their text (whatever their weight, confidence and annotations); what it does not name
        stays. ``math.inf`` is for formulas and makes them hard. One number for all leaves hard formulas hard, and
        templates alone. ``confidences`` are those of rules.

        >>> from rulewright.logic import parse_rules
        >>> rules = parse_rules("0.9 :: p(X) :- q(X). 2.5 p(X) => r(X). hard !(q(X) & r(X)).")
        >>> for statement in rules.with_weights([1.7, 0.5, None], confidences={"p(X) :- q(X).": 0.6}):
        ...     print(statement)
        0.6 :: p(X) :- q(X). @{weight: 1.7}
        0.5 p(X) => r(X).
        hard !(q(X) & r(X)).
        """
        new_weights, new_confidences = self._align("weights", weights), self._align("confidences", confidences)
        changed = [
            _reweigh(statement, weight, confidence)
            for statement, weight, confidence in zip(self.statements, new_weights, new_confidences, strict=True)
        ]
        return RuleSet(changed, predicates=self.predicates, closed=self.closed, numbers=self.numbers)

    def _align(self, name: str, numbers: Numbers | None) -> list[float | None]:
        """Return a number for each statement, None for what stays as it is."""
        statements = self.statements
        if numbers is None:
            return [None] * len(statements)
        if isinstance(numbers, int | float):
            is_for = (Rule,) if name == "confidences" else (Rule, WeightedFormula)
            is_given = (isinstance(one, is_for) and getattr(one, "kind", "") != "hard" for one in statements)
            return [float(numbers) if given else None for given in is_given]
        if isinstance(numbers, Mapping):
            keys = {_said(key): value for key, value in numbers.items()}
            unknown = keys.keys() - set(map(_said, statements))
            if unknown:
                key = next(key for key in numbers if _said(key) in unknown)
                raise DataError(f"{name} names a statement that is not in the rule set: {key}")
            return [None if keys.get(_said(one)) is None else float(keys[_said(one)]) for one in statements]
        given = [None if value is None else float(value) for value in numbers]
        if len(given) != len(statements):
            raise DataError(f"{name} must be {len(statements)} numbers, one for each statement, got {len(given)}")
        return given

    def columns(self) -> dict[str, list[object]]:
        """Return the rules' statistics as columns: rule, head, length, confidence and every annotation.

        An annotation of the same name as a column before it gets ``@`` before its own.
        """
        names = dict.fromkeys(name for rule in self.rules for name in rule.annotations)
        table: dict[str, list[object]] = {
            "rule": [str(replace(rule, annotations=Annotations())).removesuffix(".") for rule in self.rules],
            "head": [rule.head.predicate for rule in self.rules],
            "length": [sum(1 for part in rule.body for _ in units(part)) for rule in self.rules],
            "confidence": [rule.confidence for rule in self.rules],
        }
        for name in names:
            column = name
            while column in table:
                column = f"@{column}"
            table[column] = [rule.annotations.get(name) for rule in self.rules]
        return table

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return `columns` as a data frame of pandas or Polars.

        >>> from rulewright.logic import parse_rules
        >>> parse_rules("0.9 :: p(X) :- q(X). @{support: 9}").to_frame("polars").columns
        ['rule', 'head', 'length', 'confidence', 'support']
        """
        from rulewright.tables import build_frame

        return build_frame(self.columns(), library)

    def _repr_html_(self) -> str:
        """Show the statements as a table in notebooks."""
        from rulewright.tables import html_table

        names = [*dict.fromkeys(name for statement in self.statements for name in statement.annotations)]
        rows = (
            [*_cells(statement), *(statement.annotations.get(name) for name in names)] for statement in self.statements
        )
        first = "confidence or weight" if self.formulas else "confidence"
        return html_table([first, "rule", *names], rows, caption=repr(self))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the set as a ``.rules`` file, in one step."""
        write_text(path, str(self))

    def __str__(self) -> str:
        closed = [f"closed {quote(name)}." for name in self.closed]
        return "".join(f"{line}\n" for line in (*self.predicates, *closed, *self._lines()))

    def _lines(self) -> Iterator[object]:
        """Yield the statements; where they carry weights and those of a head stand together, below its name."""
        groups = [(head, [*group]) for head, group in groupby(self.statements, key=_find_head)]
        has_weights = any("weight" in statement.annotations for statement in self.statements)
        if not has_weights or len({head for head, _ in groups}) < len(groups):
            yield from self.statements
            return
        for head, group in groups:
            yield f"% {quote(head)}: {len(group):,} statements"
            yield from group

    def __repr__(self) -> str:
        counts = [(len(self.rules), "rules"), (len(self.formulas), "formulas"), (len(self.templates), "templates")]
        return "RuleSet(" + ", ".join(f"{count} {name}" for count, name in counts if count) + ")"


def _said(given: Statement | str) -> object:
    """Return what a statement, or its text, says: without weight, confidence and annotations."""
    statement = given if not isinstance(given, str) else _read_statement(given)
    if isinstance(statement, Rule):
        return statement.canonical()
    return statement.formula if isinstance(statement, WeightedFormula) else statement


def _read_statement(text: str) -> Statement:
    """Read a statement; a formula may be without its weight."""
    from rulewright.logic.parser import parse_formula, parse_statement

    try:
        return parse_statement(text)
    except DataError as error:
        try:
            return WeightedFormula(parse_formula(text.strip().removesuffix(".")), "learn")
        except DataError:
            raise error from None


def _reweigh(statement: Statement, weight: float | None, confidence: float | None) -> Statement:
    if weight is None and confidence is None:
        return statement
    if confidence is not None:
        if not isinstance(statement, Rule):
            raise DataError(f"only rules have a confidence, and this is none: {statement}")
        statement = replace(statement, confidence=confidence)
    if weight is None:
        return statement
    match statement:
        case Rule():
            if weight == inf:
                raise DataError(f"a rule has no infinite weight; write it as a hard formula: {statement}")
            return statement.annotated(weight=weight)
        case WeightedFormula() if weight == inf:
            return replace(statement, kind="hard", weight=None)
        case WeightedFormula():
            return replace(statement, kind="soft", weight=weight)
    raise DataError(f"a template has no weight: {statement}")


def _find_head(statement: Statement) -> str:
    """Return the predicate that a statement concludes, or speaks against; empty where it does neither."""
    match statement:
        case WeightedFormula(Implies(_, Not(Atom(predicate)))) | WeightedFormula(Implies(_, Atom(predicate))):
            return str(predicate)
        case WeightedFormula(Atom(predicate)):
            return str(predicate)
        case Rule(head):
            return str(head.predicate)
    return ""


def _cells(statement: Statement) -> tuple[object, str]:
    """Return a statement's confidence or weight, and its text without them."""
    match statement:
        case Rule(head, body, confidence):
            return confidence, f"{head} :- {write_body(body)}"
        case WeightedFormula(formula, strength, weight):
            return strength if weight is None else weight, str(formula)
        case Template():
            return "template", str(replace(statement, annotations=Annotations())).removeprefix("template ")
