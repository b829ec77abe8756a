"""Mean field over candidate atoms, grounding by grounding: all other atoms rest at what they are held at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from inject.layer.plain_mean_field import GroundAtom, ground_atoms, groundings, message, softmax

from rulewright.logic import Formula, PredicateDeclaration


def resting_mean_field(
    formulas: Sequence[tuple[float, Formula]],
    predicates: Mapping[str, PredicateDeclaration],
    domains: Mapping[str, Sequence[str]],
    potentials: Mapping[GroundAtom, Sequence[float]],
    evidence: Mapping[GroundAtom, int],
    resting: Mapping[GroundAtom, Sequence[float]],
    *,
    iterations: int,
    damping: float = 0.0,
    distinct: bool = False,
) -> dict[GroundAtom, list[float]]:
    """Return the final potentials of the candidates, those in ``potentials``; ``resting`` has probabilities."""
    current = {atom: list(values) for atom, values in potentials.items()}
    for _ in range(iterations):
        marginals = {atom: list(probabilities) for atom, probabilities in resting.items()}
        marginals |= {atom: softmax(values) for atom, values in current.items()}
        for atom, chosen in evidence.items():
            classes = predicates[atom[0]].classes
            marginals[atom] = [float(value == chosen) for value in range(len(classes or (0, 1)))]
        target = {atom: list(values) for atom, values in potentials.items()}
        for weight, formula in formulas:
            for binding in groundings(formula, predicates, domains, distinct=distinct):
                for atom in ground_atoms(formula, binding):
                    if atom in target:
                        for value, expectation in enumerate(message(formula, binding, atom, marginals, predicates)):
                            target[atom][value] += weight * expectation
        current = {
            atom: [damping * old + (1 - damping) * new for old, new in zip(current[atom], values, strict=True)]
            for atom, values in target.items()
        }
    return current
