"""Which predicates the atoms of a template can stand for, and the types of its variables that follow."""

from __future__ import annotations

from collections.abc import Callable, Collection

from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, unknown_name
from rulewright.logic import (
    NUMBER_TYPE,
    And,
    Atom,
    Comparison,
    Formula,
    Membership,
    Not,
    Or,
    PredicateVariable,
    Rule,
    Template,
    Variable,
)


class Domains:
    """The domains of one clause's predicate variables, and the ``types`` of its variables.

    ``*`` stands for all predicates of the facts that have the arity and, as far as they are known, the types; where
    nothing is known of a variable, it is no number.
    """

    def __init__(
        self,
        clause: Rule | Template,
        kb: KnowledgeBase,
        heads: Collection[str],
        types_of_head: Callable[[str], tuple[str, ...]],
    ) -> None:
        self.clause, self.kb, self.heads, self.types_of_head = clause, kb, heads, types_of_head
        self.types: dict[Variable, str] = {}
        given = dict(clause.domains) if isinstance(clause, Template) else {}
        self._chosen: dict[PredicateVariable, tuple[str, ...]] = {}
        units = [unit for part in clause.body for unit in _units(part)]
        if str(clause.head.predicate) in kb.predicates:
            self._take(clause.head, str(clause.head.predicate))
        for unit in units:
            hole = unit.predicate
            if not isinstance(hole, PredicateVariable):
                self._take(unit, hole)
            elif isinstance(unit, Membership):
                raise DataError(f"{unit}: a predicate variable stands for predicates without classes")
            elif (names := given[hole]) is not None:
                self._chosen[hole] = names
                for name in names:
                    self._take(unit, name)
        for unit in units:
            if isinstance(unit.predicate, PredicateVariable) and unit.predicate not in self._chosen:
                self._chosen[unit.predicate] = self._all(unit, unit.predicate)
        for unit in units:
            if isinstance(unit.predicate, PredicateVariable):
                for name in self._chosen[unit.predicate]:
                    self._take(unit, name)

    def members(self, unit: Atom | Membership) -> tuple[str, ...]:
        """Return the predicates that an atom can stand for; its own where it has one."""
        if isinstance(unit.predicate, PredicateVariable):
            return self._chosen[unit.predicate]
        return (unit.predicate,)

    def _types_of(self, name: str, unit: Atom | Membership) -> tuple[str, ...]:
        if name in self.kb.predicates:
            declaration = self.kb.predicates[name]
            if (declaration.classes is not None) != isinstance(unit, Membership):
                how = "is multi-class; write 'in {…}'" if declaration.classes else "is not multi-class"
                raise DataError(f"{name} {how}: {unit} in the template of {self.clause.head}")
            return declaration.types
        if name in self.heads:
            return self.types_of_head(name)
        raise unknown_name("predicate", name, {*self.kb.predicates, *self.heads})

    def _take(self, unit: Atom | Membership, name: str) -> None:
        types = self._types_of(name, unit)
        if len(types) != len(unit.args):
            raise DataError(f"{name} has {len(types)} arguments and cannot be {unit} of the template")
        for term, kind in zip(unit.args, types, strict=True):
            if isinstance(term, Variable) and self.types.setdefault(term, kind) != kind:
                raise DataError(
                    f"{term} of the template of {self.clause.head} has type {self.types[term]} elsewhere "
                    f"and type {kind} where {unit} is {name}; list only predicates of one type"
                )

    def _all(self, unit: Atom | Membership, hole: PredicateVariable) -> tuple[str, ...]:
        arity = len(unit.args)
        plain = {name: each.types for name, each in self.kb.predicates.items() if each.classes is None}
        fitting = {name: types for name, types in plain.items() if len(types) == arity}
        if not fitting:
            raise DataError(f"{hole} cannot be filled: no predicate of the facts has {arity} arguments, as in {unit}")
        known = [self.types.get(each) if isinstance(each, Variable) else None for each in unit.args]
        typed = {
            name: types
            for name, types in fitting.items()
            if all(wanted in (None, kind) for wanted, kind in zip(known, types, strict=True))
        }
        if not typed:
            raise DataError(f"{hole} cannot be filled: no predicate has the types of the variables of {unit}")
        if len(set(typed.values())) > 1:  # chains are about entities, unless something says that a variable is a number
            typed = {name: types for name, types in typed.items() if NUMBER_TYPE not in types} or typed
        if len(set(typed.values())) > 1:
            shown = " and ".join(sorted({f"({', '.join(types)})" for types in typed.values()}))
            raise DataError(f"{hole} in * would be about {shown}; list the predicates that {unit} can be")
        return tuple(typed)


def _units(formula: Formula) -> list[Atom | Membership]:
    match formula:
        case Atom() | Membership():
            return [formula]
        case Not(inner):
            return _units(inner)
        case And(parts) | Or(parts):
            return [unit for part in parts for unit in _units(part)]
        case Comparison():
            return []
    raise DataError(f"a template's body has ',' ';' and '!', got {formula}")
