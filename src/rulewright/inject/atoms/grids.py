"""Sums over all groundings of clauses of any shape, a block of assignments at a time.

Every atom of a clause has log-odds x in a table: that it holds, or that its class is one of some. Where atoms of a
grounding coincide they are one atom, so a clause is first split into cases (`split_cases`) in each of which they do or
do not. A block then is a tensor with a dimension for each variable; gradients come with the values, block by block, so
that nothing of the size of all groundings is kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from rulewright.inject.atom_space import AtomSpace
from rulewright.inject.atoms.clauses import ClauseAtom, Order, merge_atoms
from rulewright.inject.inputs import CERTAIN, GroundInputs

Equalities: TypeAlias = tuple[tuple[int, int], ...]
"""Pairs of arguments; an argument is a variable, or the complement of an entity index."""

TableKey: TypeAlias = tuple[str, frozenset[int]]
"""A predicate and the classes one of which its atoms must be of."""

Side: TypeAlias = Literal["both", "head", "body", "likelier"]
"""Which side of an implication a hinge teaches: see `teach_side`."""

OBSERVED = CERTAIN / 2
"""Log-odds beyond this are those of observed atoms."""

SMALL = -30.0
"""Below this, ``log(1 + exp(x))`` and ``log(1 - exp(-exp(x)))`` are x, and are computed so."""


@dataclass(frozen=True, slots=True)
class ClauseCase:
    """A clause for those assignments in which the same atoms coincide; no two of its atoms are one any more.

    ``equal`` are arguments that are the same entity: the second is not in the atoms. ``unequal`` are pairs, not all of
    which are the same. ``types`` are those of all variables. ``constants`` are entities that must exist.
    """

    body: tuple[ClauseAtom, ...]
    heads: tuple[ClauseAtom, ...]
    types: tuple[str, ...]
    equal: Equalities
    unequal: tuple[Equalities, ...]
    orders: tuple[Order, ...]
    constants: tuple[tuple[str, int], ...] = ()

    def drop_bound(self) -> ClauseCase:
        """Return the case without the variables that are the same entity as another argument."""
        bound = {variable for _, variable in self.equal}
        kept = [variable for variable in range(len(self.types)) if variable not in bound]
        names = {variable: index for index, variable in enumerate(kept)}
        types = tuple(self.types[variable] for variable in kept)
        return replace(_rename(self, names), types=types, equal=())


def _rename(case: ClauseCase, names: Mapping[int, int]) -> ClauseCase:
    """Return the case with other arguments in the place of some; an order of constants has numbers only."""
    sides = [
        tuple(atom._replace(args=tuple(names.get(arg, arg) for arg in atom.args)) for atom in atoms)
        for atoms in (case.body, case.heads)
    ]
    unequal = tuple(tuple((names.get(a, a), names.get(b, b)) for a, b in pairs) for pairs in case.unequal)
    orders = []
    for order in case.orders:
        changes: dict[str, Any] = {}
        for side, variable in (("left", order.left), ("right", order.right)):
            new = variable if variable is None else names.get(variable, variable)
            if new is not None and new < 0:
                changes[f"{side}_numbers"] = (getattr(order, f"{side}_numbers")[~new],)
                new = None
            changes[side] = new
        orders.append(replace(order, **changes))
    return replace(case, body=sides[0], heads=sides[1], unequal=unequal, orders=tuple(orders))


def split_cases(
    space: AtomSpace,
    literals: Sequence[tuple[ClauseAtom, bool]],
    types: Sequence[str],
    *,
    equal: Equalities = (),
    apart: Equalities = (),
    orders: Sequence[Order] = (),
) -> list[ClauseCase]:
    """Split a disjunction of literals by which of its atoms coincide; leave out where it always holds.

    >>> space = AtomSpace("hard p(X) & p(Y) => q(X, Y).")
    >>> atoms = [(ClauseAtom("p", (0,)), False), (ClauseAtom("p", (1,)), False), (ClauseAtom("q", (0, 1)), True)]
    >>> [(len(case.body), case.equal, case.unequal) for case in split_cases(space, atoms, ["entity", "entity"])]
    [(1, ((0, 1),), ()), (2, (), (((0, 1),),))]
    """
    body, heads = (tuple(atom for atom, positive in literals if positive == sign) for sign in (False, True))
    case = ClauseCase(body, heads, tuple(types), (), tuple((pair,) for pair in apart), tuple(orders))
    bound = _bind(case, equal)
    return [] if bound is None else _split(space, bound)


def _split(space: AtomSpace, case: ClauseCase) -> list[ClauseCase]:
    sides = merge_atoms(space, [*((atom, False) for atom in case.body), *((atom, True) for atom in case.heads)])
    if sides is None:
        return []
    case = replace(case, body=sides[0], heads=sides[1])
    known = {frozenset(frozenset(pair) for pair in pairs) for pairs in case.unequal}
    for one, other in itertools.combinations((*case.body, *case.heads), 2):
        if one.predicate != other.predicate:
            continue
        pairs = tuple((a, b) for a, b in zip(one.args, other.args, strict=True) if a != b)
        if any(a < 0 and b < 0 for a, b in pairs) or frozenset(frozenset(pair) for pair in pairs) in known:
            continue
        together = _bind(case, pairs)
        if together is None:
            continue
        return [*_split(space, together), *_split(space, replace(case, unequal=(*case.unequal, pairs)))]
    constants = {
        (type_name, ~argument): None
        for atom in (*case.body, *case.heads)
        for argument, type_name in zip(atom.args, space.predicates[atom.predicate].types, strict=True)
        if argument < 0
    }
    return [replace(case, constants=tuple(constants))]


def _bind(case: ClauseCase, pairs: Iterable[tuple[int, int]]) -> ClauseCase | None:
    """Return the case where some arguments are the same entity; None where they cannot be."""
    for one, other in pairs:
        kept, bound = _find(case, one), _find(case, other)
        if kept == bound:
            continue
        if bound < 0 or 0 <= kept > bound:
            kept, bound = bound, kept
        if bound < 0:  # two constants
            return None
        case = _rename(case, {bound: kept})
        earlier = tuple((kept if first == bound else first, second) for first, second in case.equal)
        case = replace(case, equal=(*earlier, (kept, bound)))
    unequal: list[Equalities] = []
    for part in case.unequal:
        open_pairs = tuple((a, b) for a, b in part if a != b)
        if not open_pairs:
            return None
        if not any(a < 0 and b < 0 for a, b in open_pairs):  # else they differ for certain
            unequal.append(open_pairs)
    decided = [order.left is None and order.right is None for order in case.orders]
    if any(fixed and not order.holds([]) for order, fixed in zip(case.orders, decided, strict=True)):
        return None
    orders = tuple(order for order, fixed in zip(case.orders, decided, strict=True) if not fixed)
    return replace(case, unequal=tuple(dict.fromkeys(unequal)), orders=orders)


def _find(case: ClauseCase, argument: int) -> int:
    return next((kept for kept, bound in case.equal if bound == argument), argument)


@dataclass(frozen=True, slots=True)
class GridTerm:
    """What is added up over all assignments of variables.

    - ``"hinge"``: ``max(0, offset + Σ log P(body) − log P(some head))`` of the one case; where no head is left, as in
      a denial or where evidence says that no head holds, the mean of ``max(0, offset + Σ log P(others) −
      log(1 − P(atom)))`` over the atoms of the body that are not observed.
    - ``"clause"``: ``−log P(the case holds)``.
    - ``"formula"``: ``−log Σ P(the case is false)`` over the cases of clauses that exclude each other, those of the
      negated formula.

    A grounding that evidence alone makes false has no gradient and counts nothing. ``counted`` are the types of the
    variables of the whole clause or formula, of which there may be more than the case has. ``side`` is what hinges
    teach (`teach_side`).
    """

    kind: Literal["hinge", "clause", "formula"]
    types: tuple[str, ...]
    cases: tuple[ClauseCase, ...]
    counted: tuple[str, ...]
    weight: float = 1.0
    offset: float = 0.0
    side: Side = "both"

    def evaluate(self, block: GridBlock) -> Tensor:
        """Return the value of every grounding of a block, [rows, *sizes]; 0 where the clause is not asked."""
        if self.kind == "formula":
            falses = []
            for case in self.cases:
                false = block.zero()
                for atom, sign in _with_signs(case):
                    false = false + logsigmoid(-sign * block.log_odds(atom))
                asked = block.where_asked(case)
                falses.append(false if asked is None else torch.where(asked, false, -2 * CERTAIN))
            log_true = torch.logsumexp(_stack(falses), 0)
            return torch.where(log_true < -OBSERVED, 0.0, -log_true)
        (case,) = self.cases
        if self.kind == "clause":
            log_true = log_any([sign * block.log_odds(atom) for atom, sign in _with_signs(case)])
            value = torch.where(log_true < -OBSERVED, 0.0, -log_true)
        else:
            value = self._hinge([block.log_odds(atom) for atom in case.body], [block.log_odds(a) for a in case.heads])
        asked = block.where_asked(case)
        return value if asked is None else torch.where(asked, value, 0.0)

    def _hinge(self, body: Sequence[Tensor], heads: Sequence[Tensor]) -> Tensor:
        log_body = [logsigmoid(x) for x in body]
        total = sum(log_body, torch.zeros((), dtype=(*body, *heads)[0].dtype, device=(*body, *heads)[0].device))
        if heads:
            log_head = log_any(heads)
            premise, conclusion = teach_side(self.side, total, log_head)
            implied = torch.relu(self.offset + premise - conclusion)
            denied = log_head < -OBSERVED
            if not body or not bool(denied.any()):
                return torch.where(denied, 0.0, implied)
        total_hinge: Tensor | float = 0.0
        count: Tensor | float = 0.0
        for x, log_p in zip(body, log_body, strict=True):
            is_open = x.abs() < OBSERVED
            premise, conclusion = teach_side(self.side, total - log_p, logsigmoid(-x))
            hinge = torch.relu(self.offset + premise - conclusion)
            total_hinge = total_hinge + torch.where(is_open, hinge, 0.0)
            count = count + is_open
        assert isinstance(total_hinge, Tensor) and isinstance(count, Tensor)
        mean = total_hinge / count.clamp(min=1)
        return torch.where(denied, mean, implied) if heads else mean


def teach_side(side: Side, premise: Tensor, conclusion: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of premise and conclusion, with a gradient where a hinge teaches them.

    ``"head"`` raises conclusions only, ``"body"`` lowers premises only; ``"likelier"`` gives way to what the network is
    surer of: it raises the conclusion where P(premise) ≥ 1 − P(conclusion), and lowers the premise elsewhere.
    """
    if side == "both":
        return premise, conclusion
    if side == "head":
        return premise.detach(), conclusion
    if side == "body":
        return premise, conclusion.detach()
    raises = premise.detach() >= log_not(conclusion.detach())
    return torch.where(raises, premise.detach(), premise), torch.where(raises, conclusion, conclusion.detach())


def log_not(log_p: Tensor) -> Tensor:
    """Return ``log(1 − p)`` of ``log p``, however near p is to 0 or 1.

    >>> log_not(torch.tensor([-1e-20, -2.0]))
    tensor([-46.0517,  -0.1454])
    """
    return torch.where(log_p < -math.log(2), torch.log1p(-log_p.exp()), torch.log(-torch.expm1(log_p)))


def _with_signs(case: ClauseCase) -> Iterator[tuple[ClauseAtom, int]]:
    """Yield the literals one of which must hold: heads, and body atoms negated."""
    yield from ((atom, -1) for atom in case.body)
    yield from ((atom, 1) for atom in case.heads)


def log_any(log_odds: Sequence[Tensor]) -> Tensor:
    """Return ``log(1 − Π (1 − σ(x)))``: that one of several independent events happens, however small it is.

    >>> log_any([torch.tensor(0.0), torch.tensor(0.0)]).exp()
    tensor(0.7500)
    >>> log_any([torch.tensor(-200.0), torch.tensor(-300.0)])
    tensor(-200.)
    """
    if len(log_odds) == 1:
        return logsigmoid(log_odds[0])
    parts = [torch.where(x < SMALL, x, torch.log(-logsigmoid(-x.clamp(min=SMALL)))) for x in log_odds]
    log_sum = torch.logsumexp(_stack(parts), 0)
    return torch.where(log_sum < SMALL, log_sum, torch.log(-torch.expm1(-log_sum.clamp(min=SMALL).exp())))


def _stack(parts: Sequence[Tensor]) -> Tensor:
    """Return tensors that broadcast against each other as one."""
    shape = torch.broadcast_shapes(*(part.shape for part in parts))  # type: ignore[no-untyped-call]
    return torch.stack([part.expand(shape) for part in parts])


class GridBlock:
    """Some rows of a batch and some values of each variable; a dimension for the rows and one for each variable."""

    def __init__(
        self,
        tables: Mapping[TableKey, Tensor],
        masks: Mapping[str, Tensor],
        term: GridTerm,
        ranges: Sequence[slice],
    ) -> None:
        self.tables, self.masks, self.term, self.ranges = tables, masks, term, ranges

    def zero(self) -> Tensor:
        """Return a zero of the right dtype."""
        some = next(iter(self.tables.values()))
        return some.new_zeros([1] * (len(self.ranges) + 1))

    def log_odds(self, atom: ClauseAtom) -> Tensor:
        """Return the log-odds of an atom in all groundings, for broadcasting."""
        table = self.tables[atom.predicate, atom.classes]
        variables: list[int] = []
        for argument in atom.args:
            dim = len(variables) + 1
            if argument < 0:
                table = table.select(dim, ~argument)
            elif argument in variables:
                first = variables.index(argument) + 1
                table = table.diagonal(dim1=first, dim2=dim).movedim(-1, first)
            else:
                variables.append(argument)
        order = sorted(range(len(variables)), key=variables.__getitem__)
        table = table.permute(0, *(position + 1 for position in order))
        shape = [1] * len(self.ranges)
        for dim, variable in enumerate(sorted(variables), start=1):
            block = self.ranges[variable]
            table = table.narrow(dim, block.start, block.stop - block.start)
            shape[variable] = table.shape[dim]
        return table.reshape(len(table), *shape)

    def where_asked(self, case: ClauseCase) -> Tensor | None:
        """Return for which groundings a case is asked; None is for all."""
        device = self.zero().device
        indices = [
            self._spread(torch.arange(block.start, block.stop, device=device), variable)
            for variable, block in enumerate(self.ranges)
        ]

        def entity(argument: int) -> Tensor | int:
            return ~argument if argument < 0 else indices[argument]

        asked: Tensor | None = None
        conditions: list[Any] = [entity(one) == entity(other) for one, other in case.equal]
        for pairs in case.unequal:
            differences: list[Any] = [entity(one) != entity(other) for one, other in pairs]
            conditions.append(differences[0] if len(pairs) == 1 else _stack(differences).any(0))
        if case.orders:
            columns = [index.cpu().numpy() for index in indices]
            conditions += [torch.from_numpy(np.asarray(order.holds(columns))).to(device) for order in case.orders]
        for variable, type_name in enumerate(self.term.types):
            if type_name in self.masks:
                exists = self.masks[type_name][:, self.ranges[variable]]
                conditions.append(self._spread(exists, variable))
        for type_name, index in case.constants:
            if type_name in self.masks:
                conditions.append(self.masks[type_name][:, index].view(-1, *[1] * len(self.ranges)))
        for condition in conditions:
            asked = condition if asked is None else asked & condition
        return asked

    def _spread(self, values: Tensor, variable: int) -> Tensor:
        """Give values of a variable, perhaps for each row, all dimensions."""
        lead = len(values) if values.ndim == 2 else 1
        return values.reshape(lead, *(-1 if other == variable else 1 for other in range(len(self.ranges))))


class GridSum:
    """Adds up terms over all groundings, with a weight for each sum and row of the batch."""

    def __init__(self, terms: Sequence[GridTerm]) -> None:
        self.terms = tuple(terms)
        self.keys: tuple[TableKey, ...] = tuple(
            dict.fromkeys(
                (atom.predicate, atom.classes)
                for term in self.terms
                for case in term.cases
                for atom in (*case.body, *case.heads)
            )
        )

    def sum_rows(self, space: AtomSpace, inputs: GroundInputs, scales: Sequence[Tensor | float], chunk: int) -> Tensor:
        """Return ``Σ_t scale_t · Σ_g value of t`` for every row of the batch; a scale may differ by row."""
        rows = math.prod(inputs.batch)
        masks = {name: (mask.bool() if mask.ndim == 2 else mask.bool()[None]) for name, mask in inputs.masks.items()}
        tables = [_make_table(space, inputs, name, classes) for name, classes in self.keys]
        if not self.terms or not rows:
            return torch.zeros(rows, dtype=inputs.dtype, device=inputs.device)
        call = GridCall(self, masks, inputs.sizes, scales, rows, chunk)
        values: Tensor = _GridFunction.apply(call, *tables)  # type: ignore[no-untyped-call]
        return values


def _make_table(space: AtomSpace, inputs: GroundInputs, name: str, classes: frozenset[int]) -> Tensor:
    """Return the log-odds of a predicate's atoms to be of some classes, [rows or 1, *arguments]."""
    declaration = space.predicates[name]
    inside = sorted(classes)
    table: Tensor | None = None
    if name in inputs.logits:
        table = inputs.logits[name]
        if declaration.classes is not None:
            outside = [index for index in range(len(declaration.classes)) if index not in classes]
            table = table[..., inside].logsumexp(-1) - table[..., outside].logsumexp(-1)
    observed = inputs.observed.get(name)
    if observed is not None:
        truth = observed.probability
        if declaration.classes is not None:
            truth = truth[..., inside].sum(-1)
        certain = (2 * truth - 1) * CERTAIN
        if observed.where is None:
            table = certain
        else:
            assert table is not None
            table = torch.where(observed.where, certain, table)
    assert table is not None
    return table if table.ndim > declaration.arity else table[None]


@dataclass(frozen=True)
class GridCall:
    """The terms of one call, and what of it needs no gradient."""

    program: GridSum
    masks: Mapping[str, Tensor]
    sizes: Mapping[str, int]
    scales: Sequence[Tensor | float]
    rows: int
    chunk: int

    def split(self, term: GridTerm) -> Iterator[tuple[slice, tuple[slice, ...]]]:
        """Yield rows and ranges of the variables, so that a block has at most some ``chunk`` groundings."""
        sizes = [self.rows, *(self.sizes[type_name] for type_name in term.types)]
        splits = []
        for position, size in enumerate(sizes):
            length = min(size, max(1, self.chunk // math.prod(sizes[position + 1 :])))
            splits.append([slice(start, min(start + length, size)) for start in range(0, size, length)])
        for rows, *ranges in itertools.product(*splits):
            yield rows, tuple(ranges)

    def evaluate(self, position: int, tables: Sequence[Tensor], rows: slice, ranges: tuple[slice, ...]) -> Tensor:
        """Return the weighted sum of a block of a term for each of its rows."""
        term, scale = self.program.terms[position], self.scales[position]
        masks = {name: mask[rows] if len(mask) > 1 else mask for name, mask in self.masks.items()}
        keyed = dict(zip(self.program.keys, tables, strict=True))
        values = term.evaluate(GridBlock(keyed, masks, term, ranges))
        shape = [rows.stop - rows.start, *(block.stop - block.start for block in ranges)]
        if isinstance(scale, Tensor) and scale.ndim:
            scale = scale[rows] if len(scale) > 1 else scale
        return values.expand(shape).reshape(shape[0], -1).sum(1) * scale

    def take_rows(self, table: Tensor, rows: slice) -> Tensor:
        """Return some rows of a table, or its one row for all."""
        return table[rows] if len(table) > 1 else table

    def sum_all(self, tables: Sequence[Tensor]) -> Tensor:
        """Return the sum of every row in one graph."""
        total = torch.zeros(self.rows, dtype=tables[0].dtype, device=tables[0].device)
        for position, term in enumerate(self.program.terms):
            for rows, ranges in self.split(term):
                block = self.evaluate(position, [self.take_rows(table, rows) for table in tables], rows, ranges)
                total = total + torch.nn.functional.pad(block, (rows.start, self.rows - rows.stop))
        return total


class _GridFunction(torch.autograd.Function):
    """The gradient comes with the value, so backward only scales it; where it is differentiated again, it is computed
    anew in one graph."""

    @staticmethod
    def forward(ctx: Any, call: GridCall, *tables: Tensor) -> Tensor:
        ctx.call = call
        needs = [index for index, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        gradients = [torch.zeros_like(tables[index]) for index in needs]
        values = torch.zeros(call.rows, dtype=torch.float64, device=tables[0].device)
        for position, term in enumerate(call.program.terms):
            for rows, ranges in call.split(term):
                parts = [call.take_rows(table.detach(), rows) for table in tables]
                for index in needs:
                    parts[index] = parts[index].requires_grad_()
                with torch.enable_grad():
                    block = call.evaluate(position, parts, rows, ranges)
                    total = block.sum()
                values[rows] += block.detach()
                if total.requires_grad:
                    given = torch.autograd.grad(total, [parts[index] for index in needs], allow_unused=True)
                    for gradient, part in zip(gradients, given, strict=True):
                        if part is not None:
                            call.take_rows(gradient, rows).add_(part)
        ctx.save_for_backward(*tables, *gradients)
        return values.to(tables[0].dtype)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        count = len(ctx.call.program.keys)
        tables, gradients = ctx.saved_tensors[:count], list(ctx.saved_tensors[count:])
        needs = [index for index, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        if torch.is_grad_enabled():
            values = ctx.call.sum_all(tables)
            wanted = [tables[index] for index in needs]
            found = torch.autograd.grad(values, wanted, upstream, create_graph=True, allow_unused=True)
        else:
            found = tuple(gradient * upstream.view(-1, *[1] * (gradient.ndim - 1)) for gradient in gradients)
        results: list[Tensor | None] = [None] * (count + 1)
        for index, gradient in zip(needs, found, strict=True):
            results[index + 1] = gradient
        return tuple(results)
