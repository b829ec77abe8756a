"""Templates evaluated assignment by assignment, over all entities and numbers there are."""

from __future__ import annotations

import operator as python
from itertools import product

import torch

from rulewright.data import KnowledgeBase
from rulewright.logic import (
    And,
    Comparison,
    Membership,
    Not,
    Number,
    Or,
    PredicateVariable,
    RuleSet,
    Variable,
    variables,
)

COMPARE = {"<": python.lt, "<=": python.le, ">": python.gt, ">=": python.ge, "=": python.eq, "!=": python.ne}


class Plain:
    def __init__(self, templates: RuleSet, kb: KnowledgeBase, network, target: str) -> None:
        self.templates, self.kb, self.network, self.target = templates, kb, network, target
        self.facts = {name: set(kb.tuples(name)) for name in kb.predicates}
        self.entities = kb.domains["entity"].labels.tolist()
        numbers = {
            args[place]
            for name, each in kb.predicates.items()
            for args in self.facts[name]
            for place, kind in enumerate(each.types)
            if kind == "number"
        }
        self.numbers = sorted(numbers)
        self.hidden = None

    def score(self, *args, hide: bool = True) -> float:
        self.hidden = (self.target, args) if hide else None
        return self.head(self.target, args)

    def head(self, name, args):
        clauses = [(number, each) for number, each in enumerate(self.templates) if each.head.predicate == name]
        values = [self.clause(number, each, args) for number, each in clauses]
        if len(values) == 1:
            return values[0]
        return self.gate(clauses[0][0], "or", [f"clause {place + 1}" for place in range(len(values))], values)

    def clause(self, number, clause, args):
        formula = clause.body[0] if len(clause.body) == 1 else And(clause.body)
        return self.reduced(number, formula, dict(zip(clause.head.args, args, strict=True)), set(clause.head.args))

    def reduced(self, number, formula, given, outside):
        """Combine the values under all assignments of the variables that stand in no alternative of an Or alone."""
        free = [each for each in variables(formula) if each not in outside and self.shared(formula, each, outside)]
        ranges = [self.numbers if self.is_number(formula, each) else self.entities for each in free]
        values = [
            self.value(number, formula, {**given, **dict(zip(free, chosen, strict=True))}, outside | set(free))
            for chosen in product(*ranges)
        ]
        return sum(values) if self.network.options.reduction == "sum" else max(values, default=0.0)

    def shared(self, formula, variable, outside):
        match formula:
            case Or():
                return False
            case And(parts):
                inside = [each for each in parts if variable in variables(each)]
                return len(inside) > 1 or self.shared(inside[0], variable, outside)
        return True

    def is_number(self, formula, variable):
        match formula:
            case And(parts) | Or(parts):
                return any(self.is_number(each, variable) for each in parts)
            case Not(inner):
                return self.is_number(inner, variable)
            case Comparison() | Membership():
                return False
        if isinstance(formula.predicate, PredicateVariable) or formula.predicate not in self.kb.predicates:
            return False
        types = self.kb.predicates[formula.predicate].types
        return any(term == variable and kind == "number" for term, kind in zip(formula.args, types, strict=True))

    def value(self, number, formula, given, outside):
        match formula:
            case Comparison(operator, left, right):
                return float(COMPARE[operator](self.term(left, given), self.term(right, given)))
            case Not(inner):
                return 1 - min(1.0, self.value(number, inner, given, outside))
            case And(parts):
                checks = [each for each in parts if isinstance(each, Comparison)]
                others = [each for each in parts if not isinstance(each, Comparison)]
                values = [self.value(number, each, given, outside) for each in others]
                found = values[0] if len(values) == 1 else self.gate(number, "and", map(str, others), values)
                return found * all(self.value(number, each, given, outside) for each in checks)
            case Or(parts):
                values = [self.reduced(number, each, given, outside) for each in parts]
                return self.gate(number, "or", map(str, parts), values)
        return self.leaf(number, formula, given)

    def term(self, term, given):
        if isinstance(term, Variable):
            return given[term]
        return float(term.value) if isinstance(term, Number) else term.name

    def leaf(self, number, unit, given):
        args = tuple(self.term(each, given) for each in unit.args)
        if isinstance(unit.predicate, PredicateVariable):
            names = dict(self.templates[number].domains)[unit.predicate]
            if names is None:
                names = [name for name, each in self.kb.predicates.items() if each.types == ("entity",) * len(args)]
            values = torch.tensor([self.truth(name, args) for name in names], dtype=torch.float64)
            return self.network.operator(f"{number}_{unit.predicate.name}")(values).item()
        return self.truth(unit.predicate, args)

    def truth(self, name, args):
        if name not in self.kb.predicates:
            return self.head(name, args)
        return float(args in self.facts[name] and (name, args) != self.hidden)

    def gate(self, number, kind, inputs, values):
        wanted = (kind, tuple(inputs), number)
        (key,) = [
            key
            for key, each in self.network.program.neurons.items()
            if (each.operation, each.inputs, each.statement) == wanted
        ]
        return self.network.operator(key)(torch.tensor(values, dtype=torch.float64)).item()
