"""Why a layer gave an atom the log-odds it has: the formulas and groundings that moved it most."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rulewright.errors import DataError
from rulewright.inject.layer.coincidence import TRUE, ClauseLiteral, Pattern
from rulewright.inject.layer.factors import false_probability
from rulewright.inject.layer.grounding import GroundFormula, Grounding
from rulewright.inject.layer.layer import Weights
from rulewright.inject.layer.plan import ORDERS, Factor
from rulewright.logic import Atom, Membership, Number, Statement, Symbol, Term, Variable, parse_formula, quote

if TYPE_CHECKING:
    from rulewright.inject.layer.layer import LastCall


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
class Explanation:
    """What was given for an atom, what came out, and what moved it; a class is compared with all others staying."""

    atom: str
    given: float
    now: float
    formulas: tuple[FormulaInfluence, ...]

    def __str__(self) -> str:
        lines = [f"{self.atom}: given {self.given:.2f}, now {self.now:.2f}"]
        for each in self.formulas:
            lines.append(f"  {each.moved:+.2f}  {each.statement}")
            lines += [f"         {part.moved:+.2f}  {part.grounding}" for part in each.groundings]
        return "\n".join(lines)


def explain_atom(
    grounding: Grounding, weights: Weights, last: LastCall, text: str, *, row: int = 0, top: int = 5
) -> Explanation:
    """Explain an atom of the last call, such as ``smokes(ann)`` or ``label(t3) in {o}``.

    Entities without names are written as their positions: ``same(0, 2)``.
    """
    atom, index, chosen = _asked(grounding, last, text, row)
    view = _Row(grounding, last, row)
    found: dict[int, tuple[float, dict[str, float]]] = {}
    for part in grounding.formulas:
        for pattern in part.patterns:
            for place, head in enumerate(pattern.literals):
                bound = _matched(grounding, head, atom.predicate, index)
                if bound is None or (pattern.apart and _together(pattern, bound)):
                    continue
                sign = _sign(head, chosen, grounding)
                if not sign:
                    continue
                scale = sign * pattern.coefficient * weights.value(part.statement)
                total, largest = view.messages(part, pattern, place, bound, top)
                before, groundings = found.get(part.statement, (0.0, {}))
                for each, value in largest:
                    groundings[each] = groundings.get(each, 0.0) + scale * value
                found[part.statement] = (before + scale * total, groundings)
    stated = weights.as_rules(grounding.rules).statements
    influences = [
        FormulaInfluence(
            stated[number],
            moved,
            tuple(
                GroundingInfluence(each, value)
                for each, value in sorted(groundings.items(), key=lambda item: -abs(item[1]))[:top]
                if abs(value) > 1e-12
            ),
        )
        for number, (moved, groundings) in found.items()
    ]
    influences.sort(key=lambda each: -abs(each.moved))
    declaration = grounding.predicates[str(atom.predicate)]
    position = index if declaration.classes is None else (*index, chosen)
    shown = str(atom) if declaration.classes is None else f"{atom} in {{{quote(declaration.classes[chosen])}}}"
    given, now = (
        float(view.rowed(tensors[str(atom.predicate)], declaration.arity + (declaration.classes is not None))[position])
        for tensors in (last.inputs.logits, last.logits)
    )
    return Explanation(shown, given, now, tuple(influences[:top]))


def _asked(grounding: Grounding, last: LastCall, text: str, row: int) -> tuple[Atom, tuple[int, ...], int]:
    unit = parse_formula(text)
    if isinstance(unit, Membership) and len(unit.classes) == 1:
        atom, wanted = unit.atom, unit.classes[0]
    elif isinstance(unit, Atom):
        atom, wanted = unit, None
    else:
        raise DataError(f"expected an atom such as likes(ann, bob) or label(t1) in {{o}}, got {text!r}")
    name = str(atom.predicate)
    if name not in last.logits:
        raise DataError(f"{name} was not among the logits of the last call; they were: {', '.join(last.logits)}")
    declaration = grounding.predicates[name]
    if len(atom.args) != declaration.arity:
        raise DataError(f"{name} has {declaration.arity} arguments, got {len(atom.args)}")
    index = tuple(
        _position(grounding, last, term, kind) for term, kind in zip(atom.args, declaration.types, strict=True)
    )
    if not 0 <= row < last.inputs.rows:
        raise DataError(f"row must be below {last.inputs.rows}, got {row}")
    if declaration.classes is None:
        if wanted is not None:
            raise DataError(f"{name} has no classes")
        return atom, index, TRUE
    if wanted is not None:
        if wanted not in declaration.classes:
            raise DataError(f"{name} has the classes {', '.join(declaration.classes)}, got {wanted}")
        return atom, index, declaration.classes.index(wanted)
    logits = _Row(grounding, last, row).rowed(last.logits[name], declaration.arity + 1)
    return atom, index, int(logits[index].argmax())


def _position(grounding: Grounding, last: LastCall, term: Term, kind: str) -> int:
    size = dict(last.inputs.shape.sizes)[kind]
    if isinstance(term, Variable):
        raise DataError(f"{term} is a variable; explain one atom at a time")
    if grounding.names_of(kind) is not None:
        return grounding.index_of(term, kind)
    value = term.value if isinstance(term, Number) else term.name
    if not str(value).isdigit() or int(value) >= size:
        raise DataError(f"entities of type {kind} have no names; write a position below {size}, got {term}")
    return int(value)


def _sign(head: ClauseLiteral, chosen: int, grounding: Grounding) -> int:
    """Return +1 or -1 as the literal speaks for or against what is asked for; 0 if it does not speak of it."""
    if grounding.predicates[head.predicate].classes is None:
        return 1 if TRUE in head.classes else -1
    return int(chosen in head.classes)


def _matched(
    grounding: Grounding, head: ClauseLiteral, name: object, index: tuple[int, ...]
) -> dict[Variable, int] | None:
    """Return the positions of the head's variables where it is the atom, None where it cannot be."""
    if head.predicate != name:
        return None
    bound: dict[Variable, int] = {}
    for term, kind, position in zip(head.args, grounding.predicates[head.predicate].types, index, strict=True):
        if isinstance(term, Variable):
            if bound.setdefault(term, position) != position:
                return None
        elif grounding.index_of(term, kind) != position:
            return None
    return bound


def _together(pattern: Pattern, bound: Mapping[Variable, int]) -> bool:
    """Whether a pair that must differ is bound to one position."""
    pairs = [[bound.get(term) for term in pair if isinstance(term, Variable)] for pair in pattern.apart]
    return any(len(pair) == 2 and None not in pair and pair[0] == pair[1] for pair in pairs)


class _Row:
    """The marginals of one row of a batch."""

    def __init__(self, grounding: Grounding, last: LastCall, row: int) -> None:
        self._grounding, self._last, self._row = grounding, last, row
        self._sizes = dict(last.inputs.shape.sizes)

    def rowed(self, tensor: Tensor, dims: int) -> Tensor:
        return tensor[self._row] if tensor.ndim > dims else tensor

    def _false(self, part: GroundFormula, literal: ClauseLiteral) -> Tensor:
        """Return the probability of a literal to be false, over all its arguments."""
        inputs = self._last.inputs
        if literal.predicate in ORDERS:
            raise DataError(f"explain does not take order comparisons apart: {part.formula}")
        declaration = self._grounding.predicates[literal.predicate]
        known = inputs.known.get(literal.predicate)
        if known is not None and known.where is None:
            probabilities = known.probability
        else:
            probabilities = self._last.marginals[literal.predicate]
        dims = declaration.arity + (declaration.classes is not None)
        classes = None if declaration.classes is None else len(declaration.classes)
        found = false_probability(Factor(literal.predicate, literal.classes), self.rowed(probabilities, dims), classes)
        exists = inputs.mask_over(declaration)
        return found if exists is None else found * self.rowed(exists, declaration.arity)

    def messages(
        self, part: GroundFormula, pattern: Pattern, place: int, bound: Mapping[Variable, int], top: int
    ) -> tuple[float, Iterator[tuple[str, float]]]:
        """Return the sum over all groundings with these bound, and the largest of them."""
        free = [variable for variable in pattern.variables if variable not in bound]
        sizes = [self._sizes[part.types[variable]] for variable in free]
        if prod(sizes) > MAX_GROUNDINGS:
            raise DataError(
                f"{prod(sizes):,} groundings have this atom, more than {MAX_GROUNDINGS:,}, in: {part.formula}"
            )
        product = torch.ones(sizes, dtype=self._last.inputs.dtype)
        for variable in free:
            mask = self._last.inputs.masks.get(part.types[variable])
            if mask is not None:
                product = product * _over(self.rowed(mask, 1), (variable,), free)
        for number, literal in enumerate(pattern.literals):
            if number != place:
                product = product * self._sliced(part, literal, bound, free)
        for pair in pattern.apart:
            one, other = (self._positions(part, term, bound, free) for term in pair)
            product = product * (one != other)
        flat = product.reshape(-1)
        values, numbers = flat.topk(min(2 * top, flat.numel()))
        largest = (
            (self._implication(part, pattern, place, bound, free, sizes, int(number)), float(value))
            for value, number in zip(values, numbers, strict=True)
            if value > 0
        )
        return float(flat.sum()), largest

    def _positions(
        self, part: GroundFormula, term: Term, bound: Mapping[Variable, int], free: list[Variable]
    ) -> Tensor:
        if isinstance(term, Variable) and term in bound:
            return torch.tensor(bound[term])
        assert isinstance(term, Variable)
        return _over(torch.arange(self._sizes[part.types[term]]), (term,), free)

    def _sliced(
        self, part: GroundFormula, literal: ClauseLiteral, bound: Mapping[Variable, int], free: list[Variable]
    ) -> Tensor:
        kinds = self._grounding.predicates[literal.predicate].types
        index = []
        for term, kind in zip(literal.args, kinds, strict=True):
            if not isinstance(term, Variable):
                index.append(torch.tensor(self._grounding.index_of(term, kind)))
            else:
                index.append(self._positions(part, term, bound, free))
        return self._false(part, literal)[tuple(index)]

    def _implication(
        self,
        part: GroundFormula,
        pattern: Pattern,
        place: int,
        bound: Mapping[Variable, int],
        free: list[Variable],
        sizes: list[int],
        number: int,
    ) -> str:
        positions = dict(bound)
        for variable, size in zip(reversed(free), reversed(sizes), strict=True):
            number, positions[variable] = divmod(number, size)
        premises = dict.fromkeys(
            self._ground(literal, positions, holds=False)
            for other, literal in enumerate(pattern.literals)
            if other != place
        )
        conclusion = self._ground(pattern.literals[place], positions, holds=True)
        return f"{' & '.join(premises) or 'true'} => {conclusion}"

    def _ground(self, literal: ClauseLiteral, positions: Mapping[Variable, int], *, holds: bool) -> str:
        declaration = self._grounding.predicates[literal.predicate]
        args: list[Term] = []
        for term, kind in zip(literal.args, declaration.types, strict=True):
            names = self._grounding.names_of(kind)
            if not isinstance(term, Variable):
                args.append(term)
            elif names is None:
                args.append(Number(positions[term]))
            else:
                args.append(Symbol(names[positions[term]]))
        atom = Atom(literal.predicate, tuple(args))
        if declaration.classes is None:
            return str(atom) if (TRUE in literal.classes) == holds else f"!{atom}"
        inside = [name for number, name in enumerate(declaration.classes) if (number in literal.classes) == holds]
        return str(Membership(atom, tuple(inside)))


def _over(tensor: Tensor, dims: tuple[Variable, ...], free: list[Variable]) -> Tensor:
    """Return a view of a vector over one of the free variables."""
    return tensor.view([-1 if variable in dims else 1 for variable in free])
