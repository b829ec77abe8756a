"""Mean messages of mean field, ground clause by ground clause."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from inject.layer.plain_mean_field import GroundAtom, Marginals, atoms, groundings, holds, softmax, value

from rulewright.logic import Clause, Comparison, Formula, Membership, PredicateDeclaration, exclusive_clauses


@dataclass
class GroundClause:
    """What a ground clause allows its atoms to be, and how likely it is drawn; its formula's weight and index."""

    formula: int
    weight: float
    allowed: dict[GroundAtom, frozenset[int]]
    chance: float = 0.0


def ground_clause(
    clause: Clause, binding: Mapping[object, str], predicates: Mapping[str, PredicateDeclaration]
) -> dict[GroundAtom, frozenset[int]] | None:
    """Return the classes of each atom in which the clause holds; None of a tautology."""
    allowed: dict[GroundAtom, frozenset[int]] = {}
    for literal in clause.literals:
        unit = literal.unit
        if isinstance(unit, Comparison):
            if holds(unit, binding, {}, predicates) == literal.positive:
                return None
            continue
        atom = (str(unit.predicate), tuple(value(term, binding) for term in unit.args))
        names = predicates[atom[0]].classes or ("false", "true")
        inside = {names.index(name) for name in unit.classes} if isinstance(unit, Membership) else {1}
        classes = inside if literal.positive else set(range(len(names))) - inside
        allowed[atom] = allowed.get(atom, frozenset()) | frozenset(classes)
        if len(allowed[atom]) == len(names):
            return None
    return allowed


def ground_clauses(
    formulas: Sequence[tuple[float, Formula]],
    predicates: Mapping[str, PredicateDeclaration],
    domains: Mapping[str, Sequence[str]],
    evidence: Mapping[GroundAtom, int],
    odds: float | None,
) -> Iterator[GroundClause]:
    """Yield the ground clauses that matter, each with the chance to be drawn: of formulas alike, then by the odds."""
    factors: dict[str, float] = {}
    for name in predicates:
        own_atoms = list(atoms({name: predicates[name]}, domains))
        n_observed = sum(atom in evidence for atom in own_atoms)
        has_both = 0 < n_observed < len(own_atoms)
        factors[name] = odds * (len(own_atoms) - n_observed) / n_observed if odds is not None and has_both else 1.0
    by_formula: list[list[GroundClause]] = []
    for index, (weight, formula) in enumerate(formulas):
        own: list[GroundClause] = []
        for clause in exclusive_clauses(formula):
            for binding in groundings(formula, predicates, domains):
                allowed = ground_clause(clause, binding, predicates)
                if allowed is None or any(evidence.get(atom, -1) in classes for atom, classes in allowed.items()):
                    continue
                observed = [factors[atom[0]] for atom in allowed if atom in evidence]
                if len(observed) < len(allowed):
                    own.append(GroundClause(index, weight, allowed, math.prod(observed)))
        if own:
            by_formula.append(own)
    for own in by_formula:
        total = sum(clause.chance for clause in own)
        for clause in own:
            clause.chance /= total * len(by_formula)
            yield clause


def averaged_mean_field(
    formulas: Sequence[tuple[float, Formula]],
    predicates: Mapping[str, PredicateDeclaration],
    domains: Mapping[str, Sequence[str]],
    potentials: Mapping[GroundAtom, Sequence[float]],
    evidence: Mapping[GroundAtom, int],
    *,
    iterations: int,
    draws: int,
    odds: float | None,
    damping: float = 0.0,
) -> dict[GroundAtom, list[float]]:
    """Return the final potentials (a number for each class) of all atoms."""
    clauses = list(ground_clauses(formulas, predicates, domains, evidence, odds))
    likely = dict.fromkeys(potentials, 0.0)
    for clause in clauses:
        for atom in clause.allowed:
            likely[atom] += clause.chance
    current = {atom: list(values) for atom, values in potentials.items()}
    for _ in range(iterations):
        marginals: Marginals = {atom: softmax(values) for atom, values in current.items()}
        for atom, chosen in evidence.items():
            marginals[atom] = [float(position == chosen) for position in range(len(marginals[atom]))]
        sums = {atom: [0.0] * len(values) for atom, values in potentials.items()}
        for clause in clauses:
            for atom, classes in clause.allowed.items():
                message = math.prod(
                    1 - sum(marginals[other][chosen] for chosen in others)
                    for other, others in clause.allowed.items()
                    if other != atom
                )
                for chosen in classes:
                    sums[atom][chosen] += clause.chance * clause.weight * message
        for atom, values in potentials.items():
            if not likely[atom]:
                target = list(values)
            else:
                seen = draws * likely[atom]
                factor = seen / (1 - math.exp(-seen)) if draws else 1.0
                target = [
                    given + factor * total / likely[atom] for given, total in zip(values, sums[atom], strict=True)
                ]
            current[atom] = [
                damping * old + (1 - damping) * new for old, new in zip(current[atom], target, strict=True)
            ]
    return current
