"""What every injector is told: rules over typed predicates, and tensors of their atoms in one convention.

Logits, evidence and masks mean the same to the layer, the loss and the decoder:

- ``logits[p]`` is ``[*batch, *arguments]`` in log-odds, or ``[*batch, *arguments, K]`` where p has K classes, in the
  order of its declaration; a predicate without arguments is ``[*batch]``. All predicates have one batch.
- ``evidence[p]`` holds truth values (class indices) where p is observed everywhere, or is (values, observed).
- ``mask[type]``, ``[*batch, N]`` or ``[N]``, says which entities exist; the others are padding and in no grounding.
- Logits of one call are promoted to one dtype (`torch.promote_types`), in which all is computed; what comes back has
  the dtype of the logits it belongs to. They are on one device, to which evidence and masks are moved.
- With ``relations`` the logits are one tensor ``[*batch, n, n, R]`` and the mask one ``[*batch, n]``: a shorthand for
  binary predicates over entities of one type.

Variables stand for all entities of their type. Where they are ``distinct``, as they are by default with ``relations``,
different variables stand for different entities, and an atom of an entity with itself is in no grounding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias, TypeVar

from rulewright.errors import DataError, unknown_name
from rulewright.logic import (
    And,
    Comparison,
    Formula,
    Implies,
    Membership,
    PredicateDeclaration,
    Rule,
    RuleSet,
    RuleSource,
    Statement,
    Symbol,
    Template,
    Term,
    Variable,
    as_rules,
    hint_at_variable,
    units,
)

ENTITY = "entity"
"""The type of all arguments that no declaration reaches."""

Argument: TypeAlias = tuple[str, int]
"""A predicate and the position of one of its arguments."""

Domains: TypeAlias = Mapping[str, int | Sequence[str]]
"""For each type, how many entities it has, or their names."""


class Array(Protocol):
    """What shapes are read from: a tensor or an array."""

    @property
    def shape(self) -> Sequence[int]:
        """The sizes of the dimensions."""

    def __getitem__(self, index: Any, /) -> Any:
        """Return a part."""


AnyArray = TypeVar("AnyArray", bound=Array)


def statement_formulas(statement: Statement) -> list[Formula]:
    """Return what a statement says: its formula, or one implication for each alternative of a rule."""
    if isinstance(statement, Template):
        raise DataError(f"a template is not a formula until its predicates are found; learn them first: {statement}")
    if not isinstance(statement, Rule):
        return [statement.formula]
    bodies = [tuple(literal.formula() for literal in body) for body in statement.alternatives()]
    return [Implies(body[0] if len(body) == 1 else And(body), statement.head) for body in bodies]


def infer_declarations(
    formulas: Iterable[Formula], declared: Iterable[PredicateDeclaration]
) -> dict[str, PredicateDeclaration]:
    """Return a declaration for every predicate of the formulas and every declared one.

    Arguments that share a variable are of one type, and what no declaration reaches is an ``entity``.

    >>> from rulewright.logic import parse_formula
    >>> inferred = infer_declarations([parse_formula("smokes(X) & friend(X, Y) => smokes(Y)")], [])
    >>> [str(declaration) for declaration in inferred.values()]
    ['predicate smokes(entity).', 'predicate friend(entity, entity).']
    """
    known = {declaration.name: declaration for declaration in declared}
    arities = {declaration.name: declaration.arity for declaration in known.values()}
    groups: dict[Argument, list[Argument]] = {}  # the arguments of one type, named by the first of them
    types: dict[Argument, str] = {}  # by first argument, where declared
    declared_groups: dict[str, list[Argument]] = {}
    for declaration in known.values():
        for position, type_name in enumerate(declaration.types):
            group = groups[declaration.name, position] = declared_groups.setdefault(type_name, [])
            group.append((declaration.name, position))
            types[group[0]] = type_name

    def join(one: Argument, other: Argument, formula: Formula) -> None:
        left, right = groups[one], groups[other]
        if left is right:
            return
        if left[0] in types and right[0] in types:
            raise DataError(
                f"argument {one[1] + 1} of {one[0]} is a {types[left[0]]} and argument {other[1] + 1} of {other[0]} "
                f"a {types[right[0]]}, but a variable stands for both in: {formula}"
            )
        if right[0] in types:
            left, right = right, left
        left += right
        groups.update(dict.fromkeys(right, left))

    for formula in formulas:
        occurrences: dict[Variable, Argument] = {}
        comparisons: list[Comparison] = []
        for unit in units(formula):
            if isinstance(unit, Comparison):
                comparisons.append(unit)
                continue
            name = str(unit.predicate)
            if isinstance(unit, Membership) and (name not in known or known[name].classes is None):
                raise DataError(f"{name} is multi-class; declare its classes in order: predicate {name}(…) in {{…}}.")
            arities.setdefault(name, len(unit.args))
            for position, term in enumerate(unit.args):
                groups.setdefault((name, position), [(name, position)])
                if isinstance(term, Variable):
                    join(occurrences.setdefault(term, (name, position)), (name, position), formula)
        for comparison in comparisons:
            sides = [occurrences[term] for term in comparison.args if term in occurrences]
            if len(sides) == 2 and comparison.operator in ("=", "!="):
                join(sides[0], sides[1], formula)
    return {
        name: known.get(name)
        or PredicateDeclaration(name, tuple(types.get(groups[name, position][0], ENTITY) for position in range(arity)))
        for name, arity in arities.items()
    }


class AtomSpace:
    """The predicates of a rule set over types, the domains of these, and how tensors of atoms are shaped.

    >>> space = AtomSpace("1.5 smokes(X) & friend(X, Y) => smokes(Y). closed friend.")
    >>> space.types, sorted(space.used)
    (('entity',), ['friend', 'smokes'])
    """

    def __init__(
        self,
        rules: RuleSource,
        *,
        domains: Domains | None = None,
        relations: Sequence[str] | None = None,
        distinct: bool | None = None,
    ) -> None:
        self.rules: RuleSet = as_rules(rules)
        self.relations = None if relations is None else _check_relations(relations)
        self.distinct = self.relations is not None if distinct is None else distinct
        self.stated: tuple[tuple[int, Formula], ...] = tuple(
            (index, formula) for index, statement in enumerate(self.rules) for formula in statement_formulas(statement)
        )
        declared: Iterable[PredicateDeclaration] = self.rules.predicates
        if self.relations is not None:
            declared = _declare_relations(self.relations, self.rules.predicates)
        self.predicates: Mapping[str, PredicateDeclaration] = infer_declarations(
            (formula for _, formula in self.stated), declared
        )
        self.types: tuple[str, ...] = tuple(
            dict.fromkeys(type_name for declaration in self.predicates.values() for type_name in declaration.types)
        )
        self.given_sizes: dict[str, int] = {}
        self.entity_indices: dict[str, dict[str, int]] = {}  # by type and name, where the names are given
        for type_name, given in (domains or {}).items():
            if type_name not in self.types:
                raise unknown_name("type", type_name, self.types)
            if not isinstance(given, int):
                self.entity_indices[type_name] = {str(name): index for index, name in enumerate(given)}
                if len(self.entity_indices[type_name]) != len(given):
                    raise DataError(f"the names of type {type_name} must differ")
            self.given_sizes[type_name] = size = given if isinstance(given, int) else len(given)
            if size < 1:
                raise DataError(f"the domain {type_name} is empty; a type needs at least one entity")
        self.closed = frozenset(self.rules.closed)
        self.used = frozenset(  # the predicates that occur in a formula
            str(unit.predicate)
            for _, formula in self.stated
            for unit in units(formula)
            if not isinstance(unit, Comparison)
        )

    def constant_index(self, term: Term, type_name: str, formula: Formula | None = None) -> int:
        """Return the index of a constant in the domain of its type."""
        where = "" if formula is None else f", in: {formula}"
        hint = f"; {hint_at_variable(term)}" if hint_at_variable(term) else ""
        name = term.name if isinstance(term, Symbol) else str(term)
        if type_name not in self.entity_indices:
            raise DataError(
                f"the constant {term} needs the names of type {type_name}: domains={{{type_name!r}: […]}}{hint}{where}"
            )
        index = self.entity_indices[type_name].get(name)
        if index is None:
            error = unknown_name(f"constant of type {type_name}", name, self.entity_indices[type_name])
            raise DataError(f"{error}{hint}{where}")
        return index

    def entity_names(self, type_name: str) -> Sequence[str] | None:
        """Return the names of a type's entities in order, where they are given."""
        return [*self.entity_indices[type_name]] if type_name in self.entity_indices else None

    def check_names(self, given: Collection[str], observed: Collection[str]) -> None:
        """Refuse names that are no predicates, and predicates of formulas that are neither given nor observed."""
        for name in (*given, *observed):
            if name not in self.predicates:
                raise unknown_name("predicate", name, self.predicates)
        missing = [name for name in self.used if name not in given and name not in observed]
        if missing:
            name = min(missing)
            what = "evidence, since it is closed" if name in self.closed else "logits or evidence"
            raise DataError(f"predicate {name} has no {what}, but occurs in: {self.find_formula(name)}")

    def count_dims(self, name: str) -> int:
        """Return how many dimensions a predicate's logits have after those of the batch."""
        declaration = self.predicates[name]
        return declaration.arity + (declaration.classes is not None)

    def find_formula(self, name: str) -> str:
        """Return the first formula in which a predicate occurs, for messages."""
        for _, formula in self.stated:
            if any(not isinstance(unit, Comparison) and unit.predicate == name for unit in units(formula)):
                return str(formula)
        return "no formula"

    def split_relations(self, stacked: AnyArray) -> dict[str, AnyArray]:
        """Return a tensor ``[*batch, n, n, R]`` as one for each relation, without a copy."""
        return {name: stacked[..., index] for index, name in enumerate(self.check_stacked(stacked))}

    def check_stacked(self, stacked: Array) -> tuple[str, ...]:
        """Refuse what has not the shape ``[*batch, n, n, R]``, and return the names of the relations."""
        assert self.relations is not None
        shape, count = tuple(stacked.shape), len(self.relations)
        if len(shape) < 3 or shape[-3] != shape[-2] or shape[-1] != count:
            raise DataError(f"logits must have shape [B, n, n, {count}], got {list(shape)}")
        return self.relations


class ShapeReader:
    """Reads the shapes of tensors that must agree: on the batch, before the arguments, and on the sizes of types.

    ``batch`` is that of the logits; ``sizes`` are those of types, with what said so.
    """

    def __init__(self, space: AtomSpace, logits: Mapping[str, Array]) -> None:
        self.space = space
        self.sizes = {type_name: (size, "its domain") for type_name, size in space.given_sizes.items()}
        self.batch: tuple[int, ...] = ()
        first = ""
        for name, tensor in logits.items():
            if name not in space.predicates:
                raise unknown_name("predicate", name, space.predicates)
            dims = space.count_dims(name)
            if len(tensor.shape) < dims:
                raise self._shape_error(name, f"at least {dims} dimensions", tensor)
            batch = tuple(tensor.shape[: len(tensor.shape) - dims])
            if not first:
                self.batch, first = batch, name
            elif batch != self.batch:
                raise DataError(
                    f"the batch of {first} is {list(self.batch)} and that of {name} {list(batch)}; they must agree"
                )
        for name, tensor in logits.items():
            classes = space.predicates[name].classes
            if classes is not None and tensor.shape[-1] != len(classes):
                raise self._shape_error(name, f"{len(classes)} classes in the last dimension", tensor)
            self._read_sizes(name, tensor, len(self.batch))

    def read_evidence(self, name: str, values: Array) -> int:
        """Check observed values and return how many dimensions of a batch they have."""
        if name not in self.space.predicates:
            raise unknown_name("predicate", name, self.space.predicates)
        declaration = self.space.predicates[name]
        lead = len(values.shape) - declaration.arity
        if lead < 0 or (lead > 0 and tuple(values.shape[:lead]) != self.batch):
            batch = f"after those of the batch {list(self.batch)} " if self.batch else ""
            raise DataError(
                f"evidence of {declaration} has the shape {list(values.shape)}, expected {declaration.arity} "
                f"dimensions {batch}and class indices where it has classes"
            )
        self._read_sizes(name, values, lead)
        return lead

    def read_mask(self, type_name: str, mask: Array) -> None:
        """Check the shape of a mask."""
        if type_name not in self.space.types:
            raise unknown_name("type", type_name, self.space.types)
        if not len(mask.shape) or tuple(mask.shape[:-1]) not in ((), self.batch):
            raise DataError(
                f"the mask of type {type_name} is boolean, of shape {[*self.batch, 'N']} or ['N'], "
                f"got {list(mask.shape)}"
            )
        size = mask.shape[-1]
        expected, origin = self.sizes.setdefault(type_name, (size, "its mask"))
        if size != expected:
            raise DataError(f"the mask of type {type_name} has {size} entities, expected {expected} as {origin} has")

    def _read_sizes(self, name: str, tensor: Array, lead: int) -> None:
        for position, type_name in enumerate(self.space.predicates[name].types):
            size = tensor.shape[lead + position]
            expected, origin = self.sizes.setdefault(type_name, (size, f"argument {position + 1} of {name}"))
            if size != expected:
                wanted = f"size {expected} for type {type_name} at argument {position + 1}, as {origin} has"
                raise self._shape_error(name, wanted, tensor)
            if size == 0:
                raise DataError(f"type {type_name} has no entities: {name} has the shape {list(tensor.shape)}")

    def _shape_error(self, name: str, expected: str, tensor: Array) -> DataError:
        declaration, formula = self.space.predicates[name], self.space.find_formula(name)
        hint = "" if ENTITY not in declaration.types else f"; declare types that differ: predicate {name}(…)."
        return DataError(f"{declaration} expects {expected}, got the shape {list(tensor.shape)}, in: {formula}{hint}")


def _check_relations(relations: Sequence[str]) -> tuple[str, ...]:
    if isinstance(relations, str):
        raise DataError(f"relations must be a sequence of names, got the string {relations!r}")
    seen: set[str] = set()
    for name in relations:
        if not isinstance(name, str):
            raise DataError(f"relations must be names, got {name!r}")
        if name in seen:
            raise DataError(f"relations must differ, got {name!r} twice")
        seen.add(name)
    if not seen:
        raise DataError("relations must name at least one relation")
    return tuple(relations)


def _declare_relations(
    relations: Sequence[str], declared: Iterable[PredicateDeclaration]
) -> list[PredicateDeclaration]:
    """Declare relations between entities of one type; other predicates keep their classes."""
    stacked = {name: PredicateDeclaration(name, (ENTITY, ENTITY)) for name in relations}
    others = [replace(known, types=(ENTITY,) * known.arity) for known in declared if known.name not in stacked]
    return [*stacked.values(), *others]
