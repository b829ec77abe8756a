"""The ground factors of a batch: for each grounding of each clause, the open atoms it has and what it costs when false.

A clause of weight w that is false costs w. What is observed in all rows is no variable any more: a literal that it
makes true takes its grounding away, one that it makes false is left out. Where evidence or masks of rows differ, so do
the ``coefficients`` of their groundings, 0 where a grounding does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.errors import DataError
from rulewright.inject.inputs import GroundInputs
from rulewright.inject.layer.grounding import FALSE, TRUE, GroundFormula, Grounding
from rulewright.logic import Clause, Comparison, Membership, Symbol, Term, Variable

Indices: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.float64]

MAX_GROUNDINGS = 20_000_000
"""How many groundings of a formula are gone through."""

_ORDERS = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}


@dataclass(frozen=True, slots=True)
class FactorGroup:
    """Groundings of a clause that have open atoms alike.

    ``atoms`` are ``[groundings, k]``, different in each row; ``false_classes`` those classes of each of the k atoms in
    which the clause is false; ``coefficients`` ``[rows or 1, groundings]``. ``assignments`` are indices of groundings
    among all those of the formula.
    """

    formula_index: int
    atoms: Indices
    false_classes: tuple[tuple[int, ...], ...]
    coefficients: Numbers
    assignments: Indices


@dataclass(frozen=True, slots=True)
class Factors:
    """The factors of a batch over atoms, numbered predicate by predicate from ``first_atoms``."""

    groups: tuple[FactorGroup, ...]
    first_atoms: Mapping[str, int]
    cards: Indices
    """The number of classes of each atom, 2 without classes."""

    @property
    def groundings(self) -> int:
        """The number of groundings."""
        return sum(len(group.atoms) for group in self.groups)


def ground_factors(grounding: Grounding, inputs: GroundInputs) -> Factors:
    """Ground all formulas over the atoms of a batch."""
    first_atoms: dict[str, int] = {}
    cards: list[Indices] = []
    total = 0
    for name in inputs.logits:
        declaration = grounding.predicates[name]
        count = prod(inputs.sizes[type_name] for type_name in declaration.types)
        first_atoms[name] = total
        cards.append(np.full(count, len(declaration.classes or (FALSE, TRUE)), dtype=np.int64))
        total += count
    known = {name: _Known.read(grounding, inputs, name) for name in inputs.observed if name in grounding.used}
    masks = {type_name: mask.cpu().numpy().reshape(-1, mask.shape[-1]) for type_name, mask in inputs.masks.items()}
    reader = _FactorReader(grounding, inputs.sizes, first_atoms, known, masks)
    groups = [
        group
        for index, formula in enumerate(grounding.formulas)
        for clause in formula.clauses
        for group in reader.read(index, formula, clause)
    ]
    return Factors(tuple(groups), first_atoms, np.concatenate(cards) if cards else np.zeros(0, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class _Known:
    """What is observed of a predicate: in all rows (``where``, flat), and the probabilities of its classes."""

    where: npt.NDArray[np.bool_]
    probabilities: Numbers  # [rows or 1, atoms, classes]

    @classmethod
    def read(cls, grounding: Grounding, inputs: GroundInputs, name: str) -> _Known:
        declaration, observed = grounding.predicates[name], inputs.observed[name]
        atoms = prod(inputs.sizes[type_name] for type_name in declaration.types)
        probabilities = observed.probability.detach().double().cpu().numpy()
        probabilities = probabilities.reshape(-1, atoms, 1 if declaration.classes is None else len(declaration.classes))
        if declaration.classes is None:
            probabilities = np.concatenate([1 - probabilities, probabilities], -1)
        where = np.ones(atoms, dtype=bool)
        if observed.where is not None:
            where = np.all(observed.where.cpu().numpy().reshape(-1, atoms), axis=0, keepdims=True)[0]
        return cls(where, probabilities)


@dataclass(frozen=True, slots=True)
class _FactorReader:
    grounding: Grounding
    sizes: Mapping[str, int]
    first_atoms: Mapping[str, int]
    known: Mapping[str, _Known]
    masks: Mapping[str, npt.NDArray[np.floating]]

    def read(self, formula_index: int, formula: GroundFormula, clause: Clause) -> list[FactorGroup]:
        """Ground a clause over all assignments of its formula's variables."""
        shape = [self.sizes[type_name] for type_name in formula.types.values()]
        if prod(shape) > MAX_GROUNDINGS:
            raise DataError(
                f"exact inference goes through all groundings, and {formula.formula} has {prod(shape):,}, more than "
                f'{MAX_GROUNDINGS:,}; use inference="mean-field"'
            )
        assignments = np.arange(prod(shape))
        alive = np.ones(len(assignments), dtype=bool)
        indices = self._unravel(formula, assignments)
        for literal in clause.literals:
            if isinstance(literal.unit, Comparison):
                alive &= ~self._compare(literal.unit, formula, indices)
        for variable, type_name in formula.types.items():
            if type_name in self.masks:
                alive &= self.masks[type_name].max(0)[indices[variable]] > 0
        assignments = assignments[alive]
        indices = self._unravel(formula, assignments)
        coefficients = np.ones((1, len(assignments)))
        for variable, type_name in formula.types.items():
            if type_name in self.masks:
                coefficients = coefficients * self.masks[type_name][:, indices[variable]]
        columns: list[Indices] = []  # the atoms of each literal, -1 where they are known
        false_sets: list[frozenset[int]] = []
        names: list[str] = []
        for literal in clause.literals:
            unit = literal.unit
            if isinstance(unit, Comparison):
                continue
            name = str(unit.predicate)
            declaration = self.grounding.predicates[name]
            flat = np.zeros(len(assignments), dtype=np.int64)
            for term, type_name in zip(unit.args, declaration.types, strict=True):
                if isinstance(term, Variable):
                    flat = flat * self.sizes[type_name] + indices[term]
                    continue
                constant = self.grounding.constant_index(term, type_name)
                flat = flat * self.sizes[type_name] + constant
                if type_name in self.masks:
                    coefficients = coefficients * self.masks[type_name][:, constant : constant + 1]
            classes = declaration.classes or (FALSE, TRUE)
            inside: set[int] = {TRUE}
            if isinstance(unit, Membership):
                inside = {(declaration.classes or ()).index(class_name) for class_name in unit.classes}
            false = frozenset(inside if not literal.positive else set(range(len(classes))) - inside)
            column = flat + self.first_atoms.get(name, 0)
            if name in self.known:
                where, probabilities = self.known[name].where, self.known[name].probabilities
                is_false = probabilities[:, :, sorted(false)].sum(-1)[:, flat]
                coefficients = coefficients * np.where(where[flat], is_false, 1.0)
                column = np.where(where[flat], -1, column)
            columns.append(column)
            false_sets.append(false)
            names.append(name)
        kept = np.flatnonzero(coefficients.any(0))
        if not len(kept) or not columns:
            return []
        return self._group(
            formula_index, np.stack(columns, 1)[kept], false_sets, coefficients[:, kept], assignments[kept]
        )

    def _unravel(self, formula: GroundFormula, assignments: Indices) -> dict[Variable, Indices]:
        shape = [self.sizes[type_name] for type_name in formula.types.values()]
        axes = np.unravel_index(assignments, shape) if shape else ()
        return dict(zip(formula.types, axes, strict=True))

    def _group(
        self,
        formula_index: int,
        columns: Indices,
        false_sets: list[frozenset[int]],
        coefficients: Numbers,
        assignments: Indices,
    ) -> list[FactorGroup]:
        """Group groundings by which of their literals are of known atoms and which of one atom."""
        firsts = (columns[:, :, None] == columns[:, None, :]).argmax(1)
        firsts[columns < 0] = -1
        groups = []
        for pattern, members in group_rows(firsts):
            kept = [position for position, first in enumerate(pattern) if first == position]
            merged = [
                frozenset.intersection(*(false_sets[i] for i, first in enumerate(pattern) if first == position))
                for position in kept
            ]
            if not kept or not all(merged):  # decided by what is known, or a tautology
                continue
            groups.append(
                FactorGroup(
                    formula_index,
                    columns[members][:, kept],
                    tuple(tuple(sorted(false)) for false in merged),
                    coefficients[:, members],
                    assignments[members],
                )
            )
        return groups

    def _compare(
        self, comparison: Comparison, formula: GroundFormula, indices: Mapping[Variable, Indices]
    ) -> npt.NDArray[np.bool_]:
        """Return in which assignments a comparison holds."""
        left, right = comparison.args
        if comparison.operator in ("=", "!="):
            types = [formula.types[term] for term in (left, right) if isinstance(term, Variable)]
            sides = [self._entity(term, types[0] if types else None, indices) for term in (left, right)]
            equal = np.asarray(sides[0] == sides[1])
            return equal if comparison.operator == "=" else ~equal
        one, other = (self._number(term, formula, indices) for term in (left, right))
        holds: npt.NDArray[np.bool_] = _ORDERS[comparison.operator](one, other)
        return holds

    def _entity(self, term: Term, type_name: str | None, indices: Mapping[Variable, Indices]) -> Indices | int | str:
        if isinstance(term, Variable):
            return indices[term]
        return str(term) if type_name is None else self.grounding.constant_index(term, type_name)

    def _number(self, term: Term, formula: GroundFormula, indices: Mapping[Variable, Indices]) -> Numbers:
        if isinstance(term, Variable):
            numbers: Numbers = self.grounding.entity_numbers(formula.types[term], formula.formula).numpy()
            return numbers[indices[term]]
        return np.asarray(float(term.name if isinstance(term, Symbol) else term.value))


def group_rows(rows: Indices) -> list[tuple[tuple[int, ...], Indices]]:
    """Return the different rows of a table, each with where it stands."""
    if not len(rows):
        return []
    different, inverse = np.unique(rows, axis=0, return_inverse=True)
    inverse = inverse.reshape(-1)
    order = np.argsort(inverse, kind="stable")
    bounds = np.searchsorted(inverse[order], np.arange(len(different) + 1))
    return [(tuple(map(int, row)), order[bounds[index] : bounds[index + 1]]) for index, row in enumerate(different)]
