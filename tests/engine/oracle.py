"""What the engine computes, in plain Python: every assignment of every variable is tried."""

from __future__ import annotations

import itertools
import operator
import random

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.engine.sql import literals
from rulewright.logic import (
    NUMBER_TYPE,
    Atom,
    Comparison,
    Literal,
    Membership,
    Number,
    PredicateDeclaration,
    PredicateVariable,
    Symbol,
    Variable,
    variables,
)

PREDICATES = (
    PredicateDeclaration("p", ("a", "a")),
    PredicateDeclaration("q", ("a", "b")),
    PredicateDeclaration("r", ("b", "b")),
    PredicateDeclaration("u", ("a",)),
    PredicateDeclaration("w", ("b",)),
    PredicateDeclaration("s", ("a", "b", "a")),
    PredicateDeclaration("age", ("a", NUMBER_TYPE)),
    PredicateDeclaration("lab", ("b",), ("x", "y", "z")),
)
ENTITIES = {"a": ("a0", "it's", "a 2", "ä\t3"), "b": ("b0", "b1", "a0")}
NUMBERS = (0.0, 1.0, 2.5)
COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


def random_kb(chance: random.Random) -> KnowledgeBase:
    builder = KnowledgeBaseBuilder(PREDICATES)
    for kind, labels in ENTITIES.items():
        for label in labels:
            builder.entity(label, type=kind)
    density = chance.choice((0.15, 0.4, 0.7))
    for each in PREDICATES:
        places = [NUMBERS if kind == NUMBER_TYPE else ENTITIES[kind] for kind in each.types]
        for args in itertools.product(*places):
            if chance.random() < density:
                value = None if each.classes is None else chance.choice(each.classes)
                builder.add(each.name, args, value=value)
            elif each.classes is None and chance.random() < 0.1:
                builder.add(each.name, args, truth=False)
    return builder.build()


def random_body(chance: random.Random, *, atoms: int) -> list[Literal]:
    pool = {kind: [Variable(f"{kind.upper()}{i}") for i in range(2)] for kind in ENTITIES}
    pool[NUMBER_TYPE] = [Variable("N0"), Variable("N1")]
    body = [Literal(random_unit(chance, pool)) for _ in range(chance.randint(1, atoms))]
    bound: dict[str, list[Variable]] = {"a": [], "b": [], NUMBER_TYPE: []}
    for literal in body:
        for term, kind in zip(literal.unit.args, declaration_of(literal.unit).types, strict=True):
            if isinstance(term, Variable) and term not in bound[kind]:
                bound[kind].append(term)
    for _ in range(chance.randint(0, 2)):
        body.append(Literal(random_unit(chance, bound), False))
    for _ in range(chance.randint(0, 2)):
        kind = chance.choice(list(bound))
        signs = list(COMPARE) if kind == NUMBER_TYPE else ["=", "!="]
        sides = [random_term(chance, bound, kind) for _ in range(2)]
        body.append(Literal(Comparison(chance.choice(signs), *sides), chance.random() < 0.7))  # type: ignore[arg-type]
    chance.shuffle(body)
    return body


def random_unit(chance: random.Random, pool: dict[str, list[Variable]]) -> Atom | Membership:
    each = chance.choice(PREDICATES)
    atom = Atom(each.name, tuple(random_term(chance, pool, kind) for kind in each.types))
    if each.classes is None:
        return atom
    return Membership(atom, tuple(chance.sample(each.classes, chance.randint(1, 3))))


def random_term(chance: random.Random, pool: dict[str, list[Variable]], kind: str):
    if pool[kind] and chance.random() < 0.8:
        return chance.choice(pool[kind])
    if kind == NUMBER_TYPE:
        return Number(chance.choice(NUMBERS))
    return Symbol(chance.choice((*ENTITIES[kind], "nobody")))


def declaration_of(unit: Atom | Membership) -> PredicateDeclaration:
    return next(each for each in PREDICATES if each.name == unit.predicate)


class Oracle:
    def __init__(self, kb: KnowledgeBase) -> None:
        self.kb = kb
        self.true = {name: set(kb.tuples(name)) for name in kb.predicates}
        self.false = {name: set(kb.tuples(name, truth=False)) for name in kb.predicates}

    def groundings(self, body, *, distinct: bool = False, fill: dict[PredicateVariable, str] | None = None):
        """Yield every assignment (variable → (type, label) or number) under which the body holds."""
        parts = [self._filled(literal, fill or {}) for literal in literals(body)]
        kinds: dict[Variable, str] = {}
        for literal in parts:
            if literal.positive and not isinstance(literal.unit, Comparison):
                for term, kind in zip(literal.unit.args, self.kb.predicate(literal.unit.predicate).types, strict=True):
                    if isinstance(term, Variable):
                        kinds.setdefault(term, kind)
        names = list(kinds)
        for values in itertools.product(*(self._values(kinds[each]) for each in names)):
            assignment = dict(zip(names, values, strict=True))
            if distinct:
                entities = [(kinds[each], value) for each, value in assignment.items() if kinds[each] != NUMBER_TYPE]
                if len(set(entities)) != len(entities):
                    continue
            if all(self._holds(literal, assignment, kinds) for literal in parts):
                yield assignment

    def _values(self, kind: str):
        if kind == NUMBER_TYPE:
            return sorted(
                {
                    value
                    for name in self.true
                    for fact in self.true[name]
                    for value in fact
                    if not isinstance(value, str)
                }
            )
        return list(self.kb.domains[kind].labels)

    @staticmethod
    def _filled(literal: Literal, fill) -> Literal:
        unit = literal.unit
        if isinstance(unit, Atom) and isinstance(unit.predicate, PredicateVariable):
            return Literal(Atom(fill[unit.predicate], unit.args), literal.positive)
        return literal

    def _holds(self, literal: Literal, assignment, kinds) -> bool:
        unit = literal.unit
        if isinstance(unit, Comparison):
            left, right = (self._value(term, assignment) for term in unit.args)
            types = {kinds[term] for term in unit.args if isinstance(term, Variable)}
            if len(types) == 2:  # entities of two types differ, whatever their names
                return unit.operator == "!="
            return COMPARE[unit.operator](left, right)
        args = tuple(self._value(term, assignment) for term in unit.args)
        known = self.true[unit.predicate]
        if isinstance(unit, Membership):
            found = any((*args, each) in known for each in unit.classes)
        else:
            found = args in known
        return found == literal.positive

    @staticmethod
    def _value(term, assignment):
        if isinstance(term, Variable):
            return assignment[term]
        return float(term.value) if isinstance(term, Number) else term.name

    def count(self, body, *, distinct: bool = False) -> int:
        return sum(1 for _ in self.groundings(body, distinct=distinct))


def uses_head(oracle: Oracle, head, body, assignment) -> bool:
    """Whether a fact that makes an atom of the body true makes the head true as well."""
    wanted = tuple(oracle._value(term, assignment) for term in head.args)
    for literal in literals(body):
        unit = literal.unit
        if not literal.positive or isinstance(unit, Comparison) or unit.predicate != head.predicate:
            continue
        if tuple(oracle._value(term, assignment) for term in unit.args) != wanted:
            continue
        if not isinstance(unit, Membership):
            return True
        if any((*wanted, each) in oracle.true[unit.predicate] for each in {*unit.classes} & {*head.classes}):
            return True
    return False


def head_for(chance: random.Random, body) -> Atom | Membership | None:
    """Choose a head whose variables the body binds."""
    bound: dict[str, list[Variable]] = {"a": [], "b": [], NUMBER_TYPE: []}
    for literal in body:
        if literal.positive and not isinstance(literal.unit, Comparison):
            for term, kind in zip(literal.unit.args, declaration_of(literal.unit).types, strict=True):
                if isinstance(term, Variable):
                    bound[kind].append(term)
    candidates = [each for each in PREDICATES if all(bound[kind] for kind in each.types)]
    if not candidates:
        return None
    each = chance.choice(candidates)
    atom = Atom(each.name, tuple(chance.choice(bound[kind]) for kind in each.types))
    return atom if each.classes is None else Membership(atom, (chance.choice(each.classes),))


__all__ = ["Oracle", "head_for", "random_body", "random_kb", "uses_head", "variables"]
