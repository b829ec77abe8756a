"""Mean field over a Markov logic network, grounding by grounding and assignment by assignment (Equations 2 and 3)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product

from rulewright.logic import (
    And,
    Atom,
    Comparison,
    Formula,
    Iff,
    Implies,
    Membership,
    Not,
    Or,
    PredicateDeclaration,
    Symbol,
    Variable,
    variables,
)

GroundAtom = tuple[str, tuple[str, ...]]
Marginals = dict[GroundAtom, list[float]]  # the probability of each class; [false, true] without classes


def atoms(predicates: Mapping[str, PredicateDeclaration], domains: Mapping[str, Sequence[str]]) -> Iterator[GroundAtom]:
    for name, declaration in predicates.items():
        for args in product(*(domains[type_name] for type_name in declaration.types)):
            yield name, args


def types_of(formula: Formula, predicates: Mapping[str, PredicateDeclaration]) -> dict[Variable, str]:
    types: dict[Variable, str] = {}

    def walk(part: Formula) -> None:
        match part:
            case Not(inner):
                walk(inner)
            case And(parts) | Or(parts):
                for child in parts:
                    walk(child)
            case Implies(left, right) | Iff(left, right):
                walk(left)
                walk(right)
            case Comparison():
                pass
            case _:
                for term, type_name in zip(part.args, predicates[part.predicate].types, strict=True):
                    if isinstance(term, Variable):
                        types[term] = type_name

    walk(formula)
    return types


def groundings(
    formula: Formula,
    predicates: Mapping[str, PredicateDeclaration],
    domains: Mapping[str, Sequence[str]],
    *,
    distinct: bool = False,
) -> Iterator[dict[Variable, str]]:
    """All assignments; where distinct, those in which variables, and arguments of an atom, of one type differ."""
    types = types_of(formula, predicates)
    names = variables(formula)
    for values in product(*(domains[types[name]] for name in names)):
        binding = dict(zip(names, values, strict=True))
        if distinct:
            groups = [[(types[name], value) for name, value in binding.items()]]
            groups += [
                list(zip(predicates[predicate].types, args, strict=True))
                for predicate, args in ground_atoms(formula, binding)
            ]
            if any(len(set(group)) < len(group) for group in groups):
                continue
        yield binding


def value(term: object, binding: Mapping[Variable, str]) -> str:
    if isinstance(term, Variable):
        return binding[term]
    return term.name if isinstance(term, Symbol) else str(term.value)


def ground_atoms(formula: Formula, binding: Mapping[Variable, str]) -> dict[GroundAtom, None]:
    match formula:
        case Not(inner):
            return ground_atoms(inner, binding)
        case And(parts) | Or(parts):
            return {atom: None for part in parts for atom in ground_atoms(part, binding)}
        case Implies(left, right) | Iff(left, right):
            return ground_atoms(left, binding) | ground_atoms(right, binding)
        case Comparison():
            return {}
    return {(formula.predicate, tuple(value(term, binding) for term in formula.args)): None}


def holds(
    formula: Formula,
    binding: Mapping[Variable, str],
    world: Mapping[GroundAtom, int],
    predicates: Mapping[str, PredicateDeclaration],
) -> bool:
    match formula:
        case Not(inner):
            return not holds(inner, binding, world, predicates)
        case And(parts):
            return all(holds(part, binding, world, predicates) for part in parts)
        case Or(parts):
            return any(holds(part, binding, world, predicates) for part in parts)
        case Implies(left, right):
            return not holds(left, binding, world, predicates) or holds(right, binding, world, predicates)
        case Iff(left, right):
            return holds(left, binding, world, predicates) == holds(right, binding, world, predicates)
        case Comparison(operator, left, right):
            one, other = value(left, binding), value(right, binding)
            if operator in ("=", "!="):
                return (one == other) == (operator == "=")
            a, b = float(one), float(other)
            return {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b}[operator]
        case Membership(atom, classes):
            key = (atom.predicate, tuple(value(term, binding) for term in atom.args))
            return predicates[atom.predicate].classes[world[key]] in classes
        case Atom(predicate, args):
            return world[predicate, tuple(value(term, binding) for term in args)] == 1
    raise AssertionError(formula)


def message(
    formula: Formula,
    binding: Mapping[Variable, str],
    target: GroundAtom,
    marginals: Marginals,
    predicates: Mapping[str, PredicateDeclaration],
) -> list[float]:
    """Equation 3: the expectation of the formula's truth for each value of the target."""
    others = [atom for atom in ground_atoms(formula, binding) if atom != target]
    expectations = []
    for chosen in range(len(marginals[target])):
        total = 0.0
        for values in product(*(range(len(marginals[atom])) for atom in others)):
            weight = math.prod(marginals[atom][value] for atom, value in zip(others, values, strict=True))
            if weight and holds(
                formula, binding, {**dict(zip(others, values, strict=True)), target: chosen}, predicates
            ):
                total += weight
        expectations.append(total)
    return expectations


def false_probability(
    formula: Formula,
    binding: Mapping[Variable, str],
    marginals: Marginals,
    predicates: Mapping[str, PredicateDeclaration],
) -> float:
    """How probable it is that a grounding is false, its atoms being independent."""
    names = list(ground_atoms(formula, binding))
    return sum(
        math.prod(marginals[atom][value] for atom, value in zip(names, values, strict=True))
        for values in product(*(range(len(marginals[atom])) for atom in names))
        if not holds(formula, binding, dict(zip(names, values, strict=True)), predicates)
    )


def mean_field(
    formulas: Sequence[tuple[float, Formula]],
    predicates: Mapping[str, PredicateDeclaration],
    domains: Mapping[str, Sequence[str]],
    potentials: Mapping[GroundAtom, Sequence[float]],
    evidence: Mapping[GroundAtom, int],
    *,
    iterations: int,
    damping: float = 0.0,
    distinct: bool = False,
) -> dict[GroundAtom, list[float]]:
    """Return the final potentials (a number for each class) of all atoms."""
    current = {atom: list(values) for atom, values in potentials.items()}
    for _ in range(iterations):
        marginals = {atom: softmax(values) for atom, values in current.items()}
        for atom, chosen in evidence.items():
            marginals[atom] = [float(value == chosen) for value in range(len(marginals[atom]))]
        target = {atom: list(values) for atom, values in potentials.items()}
        for weight, formula in formulas:
            for binding in groundings(formula, predicates, domains, distinct=distinct):
                for atom in ground_atoms(formula, binding):
                    for value, expectation in enumerate(message(formula, binding, atom, marginals, predicates)):
                        target[atom][value] += weight * expectation
        current = {
            atom: [damping * old + (1 - damping) * new for old, new in zip(current[atom], values, strict=True)]
            for atom, values in target.items()
        }
    return current


def exact_marginals(
    formulas: Sequence[tuple[float, Formula]],
    predicates: Mapping[str, PredicateDeclaration],
    domains: Mapping[str, Sequence[str]],
    potentials: Mapping[GroundAtom, Sequence[float]],
    evidence: Mapping[GroundAtom, int],
) -> dict[GroundAtom, list[float]]:
    """Return the marginals of the Markov logic network itself, from all assignments of all atoms (Equation 1)."""
    names = list(potentials)
    totals = {atom: [0.0] * len(values) for atom, values in potentials.items()}
    for values in product(*(range(len(potentials[atom])) for atom in names)):
        world = dict(zip(names, values, strict=True))
        if any(world[atom] != chosen for atom, chosen in evidence.items()):
            continue
        score = sum(potentials[atom][chosen] for atom, chosen in world.items())
        for weight, formula in formulas:
            score += weight * sum(
                holds(formula, binding, world, predicates) for binding in groundings(formula, predicates, domains)
            )
        for atom, chosen in world.items():
            totals[atom][chosen] += math.exp(score)
    return {atom: [total / sum(values) for total in values] for atom, values in totals.items()}


def softmax(values: Sequence[float]) -> list[float]:
    highest = max(values)
    powers = [math.exp(value - highest) for value in values]
    return [power / sum(powers) for power in powers]
