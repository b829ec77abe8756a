"""Why a layer gave an atom the log-odds it has: the formulas and groundings that moved it most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rulewright.errors import DataError
from rulewright.inject.layer.averaging import Averages, find_averages
from rulewright.inject.layer.exact import infer_exactly, moves_without, moves_without_groundings
from rulewright.inject.layer.grounding import TRUE, ClauseLiteral, GroundFormula, Grounding, Pattern
from rulewright.inject.layer.plan import ORDERS, false_probability
from rulewright.inject.layer.schedule import Iteration, iterate
from rulewright.logic import Atom, Membership, Number, Statement, Symbol, Term, Variable, parse_formula, quote

if TYPE_CHECKING:
    from rulewright.inject.inputs import GroundInputs
    from rulewright.inject.layer.layer import LogicLayer

MAX_GROUNDINGS = 20_000_000
"""Of how many groundings of a formula with one atom the largest are sought."""


@dataclass(frozen=True, slots=True)
class GroundingInfluence:
    """One grounding as an implication, and what it added."""

    grounding: str
    moved: float


@dataclass(frozen=True, slots=True)
class FormulaInfluence:
    """What a statement added to an atom, and the groundings that added most; none where there are too many."""

    statement: Statement
    moved: float
    groundings: tuple[GroundingInfluence, ...]


@dataclass(frozen=True, slots=True)
class MessageExplanation:
    """What was given for an atom, what came out, and what moved it; a class is compared with all others staying.

    What formulas added makes up the change. In exact inference it is the difference that leaving a formula or a
    grounding out makes, and these need not add up, as ``note`` says.
    """

    atom: str
    given: float
    now: float
    formulas: tuple[FormulaInfluence, ...]
    note: str = ""

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        lines = [f"{self.atom}: given {self.given:.2f}, now {self.now:.2f}{note}"]
        for influence in self.formulas:
            lines.append(f"  {influence.moved:+.2f}  {influence.statement}")
            lines += [f"         {part.moved:+.2f}  {part.grounding}" for part in influence.groundings]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class CallTrace:
    """What a layer did with its last inputs: its iterations, the log-odds that came out, and the weights of all that.

    ``logits_i = given_i + Σ_t share_ti · Σ_f w_f · message_fti``: the shares of the iterations (`Iteration`) make what
    formulas added in each of them add up to the change.
    """

    inputs: GroundInputs
    weights: tuple[float, ...]
    steps: tuple[Iteration, ...]
    logits: Mapping[str, Tensor]
    averages: Averages | None = None


def trace_call(layer: LogicLayer, inputs: GroundInputs) -> CallTrace:
    """Run the iterations again and keep what they did."""
    steps: list[Iteration] = []
    averages = None
    with torch.no_grad():
        if layer.inference == "exact":
            logits = infer_exactly(layer, inputs)
        else:
            plan = layer.planner.plan(inputs.shape)
            logits, _ = iterate(layer, inputs, plan, steps)
            averages = find_averages(layer, inputs, plan)
    weights = tuple(layer.weights.value(index) for index in range(len(layer.grounding.rules)))
    return CallTrace(inputs, weights, tuple(steps), logits, averages)


def explain_atom(layer: LogicLayer, last: CallTrace, text: str, *, row: int = 0, top: int = 5) -> MessageExplanation:
    """Explain an atom of the last call, such as ``smokes(ann)`` or ``label(t3) in {o}``.

    Entities without names are written as their positions: ``same(0, 2)``.
    """
    grounding = layer.grounding
    atom, class_name = _read_atom(grounding, last, text, row)
    name = str(atom.predicate)
    declaration = grounding.predicates[name]
    view = _RowView(grounding, last, row)
    index = tuple(
        view.entity_index(term, type_name) for term, type_name in zip(atom.args, declaration.types, strict=True)
    )
    class_index = TRUE
    if declaration.classes is not None:
        logits = view.take_row(last.logits[name], declaration.arity + 1)
        class_index = int(logits[index].argmax()) if class_name is None else declaration.classes.index(class_name)
    entry, dims = (index, declaration.arity) if declaration.classes is None else ((*index, class_index), len(index) + 1)
    is_exact = layer.inference == "exact"
    if is_exact:
        influences = _leave_out(layer, view, name, entry)
    else:
        influences = _add_up(view, name, entry, top)
    statements = layer.rules.statements
    formulas = []
    for statement_index, (total, moved) in sorted(influences.items(), key=lambda item: -abs(item[1][0]))[:top]:
        if is_exact and abs(total) > 1e-9:
            moved = dict(moves_without_groundings(layer, last.inputs, statement_index, row, name, entry))
        strongest = sorted(moved.items(), key=lambda item: -abs(item[1]))[:top]
        groundings = [GroundingInfluence(*item) for item in strongest if abs(item[1]) > (1e-9 if is_exact else 1e-12)]
        formulas.append(FormulaInfluence(statements[statement_index], total, tuple(groundings)))
    shown = str(atom) if declaration.classes is None else f"{atom} in {{{quote(declaration.classes[class_index])}}}"
    given, now = (float(view.take_row(logits[name], dims)[entry]) for logits in (last.inputs.logits, last.logits))
    note = "exact: what leaving each out would take away" if is_exact else ""
    return MessageExplanation(shown, given, now, tuple(formulas), note)


def _leave_out(
    layer: LogicLayer, view: _RowView, name: str, entry: tuple[int, ...]
) -> dict[int, tuple[float, dict[str, float]]]:
    """Return how far each statement that moved an atom holds it from where it would be without the statement."""
    influences = {}
    for statement_index, moves in moves_without(layer, view.last.inputs, view.last.logits):
        moved = float(view.take_row(moves[name], len(entry))[entry]) if name in moves else 0.0
        if abs(moved) > 1e-9:
            influences[statement_index] = (moved, dict[str, float]())
    return influences


def _add_up(view: _RowView, name: str, entry: tuple[int, ...], top: int) -> dict[int, tuple[float, dict[str, float]]]:
    """Return what each statement that has an atom added to its log-odds, and what its groundings did."""
    grounding, last = view.grounding, view.last
    declaration = grounding.predicates[name]
    index = entry[: declaration.arity]
    shares = [float(view.take_row(step.shares[name], len(entry))[entry]) for step in last.steps]
    influences: dict[int, tuple[float, dict[str, float]]] = {}
    for formula_index, ground_formula in enumerate(grounding.formulas):
        share = view.share_of(formula_index, name, index)
        for pattern in ground_formula.patterns:
            for position, head in enumerate(pattern.literals):
                bound = _match(grounding, head, name, index)
                if bound is None or any(len({bound.get(term, term) for term in pair}) == 1 for pair in pattern.apart):
                    continue
                if declaration.classes is None:
                    sign = 1 if TRUE in head.classes else -1
                elif entry[-1] in head.classes:
                    sign = 1
                else:
                    continue
                statement_index = ground_formula.statement_index
                scale = share * sign * pattern.coefficient * last.weights[statement_index]
                is_hard = statement_index in grounding.hard
                factors = [
                    share * (step.hard_share if is_hard else 1) for share, step in zip(shares, last.steps, strict=True)
                ]
                total, largest = view.rank_groundings(ground_formula, pattern, position, bound, factors, top)
                before, moved = influences.get(statement_index, (0.0, {}))
                for implication, message in largest:
                    moved[implication] = moved.get(implication, 0.0) + scale * message
                influences[statement_index] = (before + scale * total, moved)
    return influences


def _read_atom(grounding: Grounding, last: CallTrace, text: str, row: int) -> tuple[Atom, str | None]:
    """Read the atom to explain and its class, where one is named."""
    unit = parse_formula(text)
    class_name = None
    if isinstance(unit, Membership) and len(unit.classes) == 1:
        (class_name,) = unit.classes
        unit = unit.atom
    if not isinstance(unit, Atom):
        raise DataError(f"expected an atom such as likes(ann, bob) or label(t1) in {{o}}, got {text!r}")
    name = str(unit.predicate)
    if name not in last.logits:
        raise DataError(f"{name} was not among the logits of the last call; they were: {', '.join(last.logits)}")
    declaration = grounding.predicates[name]
    if len(unit.args) != declaration.arity:
        raise DataError(f"{name} has {declaration.arity} arguments, got {len(unit.args)}")
    rows = prod(last.inputs.batch)
    if not 0 <= row < rows:
        raise DataError(f"row must be below {rows}, got {row}")
    if class_name is not None and declaration.classes is None:
        raise DataError(f"{name} has no classes")
    if class_name is not None and class_name not in (declaration.classes or ()):
        raise DataError(f"{name} has the classes {', '.join(declaration.classes or ())}, got {class_name}")
    return unit, class_name


def _match(grounding: Grounding, head: ClauseLiteral, name: str, index: tuple[int, ...]) -> dict[Term, int] | None:
    """Return the entity indices of the head's variables where it is the atom, None where it cannot be."""
    if head.predicate != name:
        return None
    bound: dict[Term, int] = {}
    for term, type_name, entity_index in zip(head.args, grounding.predicates[name].types, index, strict=True):
        if isinstance(term, Variable):
            if bound.setdefault(term, entity_index) != entity_index:
                return None
        elif grounding.constant_index(term, type_name) != entity_index:
            return None
    return bound


class _RowView:
    """The marginals of one row of a batch."""

    def __init__(self, grounding: Grounding, last: CallTrace, row: int) -> None:
        self.grounding, self.last, self._row = grounding, last, row
        self._sizes = dict(last.inputs.shape.sizes)

    def take_row(self, tensor: Tensor, dims: int) -> Tensor:
        return tensor[self._row] if tensor.ndim > dims else tensor

    def entity_index(self, term: Term, type_name: str) -> int:
        if isinstance(term, Variable):
            raise DataError(f"{term} is a variable; explain one atom at a time")
        if type_name in self.grounding.entity_indices:
            return self.grounding.constant_index(term, type_name)
        size = self._sizes[type_name]
        value = term.value if isinstance(term, Number) else term.name
        if not str(value).isdigit() or int(value) >= size:
            raise DataError(f"entities of type {type_name} have no names; write a position below {size}, got {term}")
        return int(value)

    def share_of(self, formula_index: int, name: str, index: tuple[int, ...]) -> float:
        """Return what a message of a ground clause without observed atoms counts for an atom: 1 where all are added."""
        averages = self.last.averages
        if averages is None:
            return 1.0
        share = float(self.take_row(averages.shares[formula_index], 0))
        return share * float(self.take_row(averages.scales[name], len(index))[index])

    def rank_groundings(
        self,
        ground_formula: GroundFormula,
        pattern: Pattern,
        head_position: int,
        bound: Mapping[Term, int],
        factors: Sequence[float],
        top: int,
    ) -> tuple[float, list[tuple[str, float]]]:
        """Return the sum of the messages of all groundings in which the head is bound, and the largest of them.

        ``factors`` are those of the messages of each iteration.
        """
        types = ground_formula.types
        free = [variable for variable in pattern.variables if variable not in bound]
        sizes = [self._sizes[types[variable]] for variable in free]
        if prod(sizes) > MAX_GROUNDINGS:
            raise DataError(
                f"{prod(sizes):,} groundings have this atom, more than {MAX_GROUNDINGS:,}, in: {ground_formula.formula}"
            )

        def spread(vector: Tensor, variable: Term) -> Tensor:
            return vector.view([-1 if variable == other else 1 for other in free])

        indices = {term: torch.tensor(entity_index) for term, entity_index in bound.items()}
        indices |= {variable: spread(torch.arange(size), variable) for variable, size in zip(free, sizes, strict=True)}
        exists = torch.ones(sizes, dtype=self.last.inputs.dtype)
        for variable in free:
            mask = self.last.inputs.masks.get(types[variable])
            if mask is not None:
                exists = exists * spread(self.take_row(mask, 1), variable)
        for pair in pattern.apart:
            one, other = (indices[term] for term in pair)
            exists = exists * (one != other)
        messages = torch.zeros(sizes, dtype=self.last.inputs.dtype)
        for factor, step in zip(factors, self.last.steps, strict=True):
            product = exists
            for position, literal in enumerate(pattern.literals):
                if position != head_position:
                    product = product * self._false_probability(ground_formula, literal, indices, step.marginals)
            messages = messages + factor * product
        flat = messages.reshape(-1)
        values, positions = flat.topk(min(2 * top, flat.numel()))
        coordinates = torch.unravel_index(positions, sizes) if sizes else ()
        largest = []
        for value, *entity_indices in zip(values.tolist(), *(axis.tolist() for axis in coordinates), strict=True):
            if value > 0:
                grounding: dict[Term, int] = dict(bound)
                grounding.update(zip(free, entity_indices, strict=True))
                largest.append((self._write_implication(pattern, head_position, grounding), value))
        return float(flat.sum()), largest

    def _false_probability(
        self,
        ground_formula: GroundFormula,
        literal: ClauseLiteral,
        indices: Mapping[Term, Tensor],
        marginals: Mapping[str, Tensor],
    ) -> Tensor:
        """Return the probability of a literal to be false, at the entity indices of its arguments."""
        inputs = self.last.inputs
        if literal.predicate in ORDERS:
            raise DataError(f"explain does not take order comparisons apart: {ground_formula.formula}")
        declaration = self.grounding.predicates[literal.predicate]
        observed = inputs.observed.get(literal.predicate)
        if observed is not None and observed.where is None:
            probabilities = observed.probability
        else:
            probabilities = marginals[literal.predicate]
        false = false_probability(probabilities, literal.classes, declaration.classes)
        if self.last.averages is not None:
            false = self.last.averages.weigh(literal.predicate, false)
        false = self.take_row(false, declaration.arity)
        exists = inputs.mask_atoms(declaration)
        if exists is not None:
            false = false * self.take_row(exists, declaration.arity)
        return false[
            tuple(
                indices[term]
                if isinstance(term, Variable)
                else torch.tensor(self.grounding.constant_index(term, type_name))
                for term, type_name in zip(literal.args, declaration.types, strict=True)
            )
        ]

    def _write_implication(self, pattern: Pattern, head_position: int, indices: Mapping[Term, int]) -> str:
        premises = dict.fromkeys(
            self._write_literal(literal, indices, holds=False)
            for position, literal in enumerate(pattern.literals)
            if position != head_position
        )
        conclusion = self._write_literal(pattern.literals[head_position], indices, holds=True)
        return f"{' & '.join(premises) or 'true'} => {conclusion}"

    def _write_literal(self, literal: ClauseLiteral, indices: Mapping[Term, int], *, holds: bool) -> str:
        declaration = self.grounding.predicates[literal.predicate]
        args: list[Term] = []
        for term, type_name in zip(literal.args, declaration.types, strict=True):
            names = self.grounding.entity_names(type_name)
            if not isinstance(term, Variable):
                args.append(term)
            else:
                args.append(Number(indices[term]) if names is None else Symbol(names[indices[term]]))
        atom = Atom(literal.predicate, tuple(args))
        if declaration.classes is None:
            return str(atom) if (TRUE in literal.classes) == holds else f"!{atom}"
        inside = [name for position, name in enumerate(declaration.classes) if (position in literal.classes) == holds]
        return str(Membership(atom, tuple(inside)))
