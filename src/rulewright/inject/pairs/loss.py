"""The consistency loss: a term for training that grows where predicted relations break rules."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rulewright.errors import DataError
from rulewright.inject.pairs.clauses import read_horn_clauses
from rulewright.inject.pairs.hinge_sums import HingeSums, arranged
from rulewright.logic import Rule, RuleSet, Statement

CHUNK_ON_CPU = 2**20
CHUNK_ON_OTHER_DEVICES = 2**24


class ConsistencyLoss(nn.Module):
    r"""How far predicted relations break rules, to be added to the loss of any model of entity pairs.

    For a rule ``head(v0, vl) :- r1(v0, v1), …, rl(vl-1, vl)`` with confidence c, and every assignment e of distinct
    entities of a document, the loss is

        max(0, log(η_l · c) + Σ_i log P(r_i | e_i-1, e_i) − log P(head | e_0, e_l)),   P = σ(logit), η_l = exp(−eta · l)

    An inverse relation is the transposed pair. Any Horn rule over the relations is taken, not only chains; a hard
    formula that is one counts with confidence 1. ``loss(logits[B, n, n, R], mask[B, n])`` takes a document a row; the
    last dimension follows ``relations`` (without "no relation"), the diagonal is ignored, and a document with fewer
    entities than a rule has variables has no grounding of it. For a model with an adaptive threshold give the margins,
    logits minus threshold logits.

    Args:
        rules: a rule set or rules; what has no meaning over pairs is refused by name.
        relations: the names of the R relations, in the order of the logits.
        form: ``"sum"`` adds over all rules and assignments, as the formula is printed; ``"published"`` takes for every
            rule the largest over the body's own entities and then the mean over all pairs, and adds over rules.
        eta: the slack of one body atom; or a mapping from length l to ``-log η_l``.
        reduction: over the documents of a batch: ``"mean"``, ``"sum"``, or ``"none"`` for one value each.
        chunk: how many groundings are looked at at once. Memory grows with it and not with the number of rules.
        check_finite: refuse logits that are NaN or infinite; turn it off to save a pass over them.

    The value is of type float32, or float64 for such logits, whatever the precision of the logits. There is no second
    derivative.

    >>> from rulewright.logic import parse_rules
    >>> rules = parse_rules("0.9 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z).")
    >>> loss = ConsistencyLoss(rules, relations=["parent_of", "spouse_of"])
    >>> logits = torch.full((1, 3, 3, 2), -9.0)
    >>> logits[0, 0, 1, 1] = logits[0, 1, 2, 0] = 9.0    # spouse_of(0, 1), parent_of(1, 2) and not parent_of(0, 2)
    >>> round(loss(logits).item(), 3)
    8.795
    """

    def __init__(
        self,
        rules: RuleSet | Rule | Iterable[Statement],
        *,
        relations: Sequence[str],
        form: Literal["sum", "published"] = "sum",
        eta: float | Mapping[int, float] = 0.05,
        reduction: Literal["mean", "sum", "none"] = "mean",
        chunk: int | None = None,
        check_finite: bool = True,
    ) -> None:
        super().__init__()
        if form not in ("sum", "published"):
            raise DataError(f"form must be 'sum' or 'published', got {form!r}")
        if reduction not in ("mean", "sum", "none"):
            raise DataError(f"reduction must be 'mean', 'sum' or 'none', got {reduction!r}")
        if chunk is not None and chunk < 1:
            raise DataError(f"chunk must be >= 1, got {chunk}")
        for slack in eta.values() if isinstance(eta, Mapping) else [eta]:
            if not 0 <= slack < math.inf:
                raise DataError(f"eta must be >= 0 and finite, got {slack}")
        self.relations = tuple(relations)
        self.form, self.eta, self.reduction = form, eta, reduction
        self.chunk, self.check_finite = chunk, check_finite
        self.clauses = read_horn_clauses(rules, relations, reader="ConsistencyLoss")
        self._oriented, self._groups = arranged(self.clauses, self._slack)

    def _slack(self, length: int) -> float:
        if not isinstance(self.eta, Mapping):
            return self.eta * length
        if length not in self.eta:
            raise DataError(f"eta has no value for rules of length {length}, only for {sorted(self.eta)}")
        return self.eta[length]

    def forward(self, logits: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the loss of a batch of documents; ``mask`` is true for entities and false for padding."""
        self._check(logits, mask)
        values: Tensor = _ConsistencyFunction.apply(logits, mask, self)  # type: ignore[no-untyped-call]
        if self.reduction == "none":
            return values
        total = values.sum()
        return total / max(1, len(values)) if self.reduction == "mean" else total

    def _check(self, logits: Tensor, mask: Tensor | None) -> None:
        shape, relations = tuple(logits.shape), len(self.relations)
        if logits.dim() != 4 or shape[1] != shape[2] or shape[3] != relations:
            hint = "; add the batch: logits[None]" if logits.dim() == 3 else ""
            raise DataError(f"logits must have shape [B, n, n, {relations}], got {list(shape)}{hint}")
        if not logits.is_floating_point():
            raise DataError(f"logits must be floating point, got {logits.dtype}")
        if mask is not None and mask.shape != shape[:2]:
            raise DataError(f"mask must have shape {list(shape[:2])}, got {list(mask.shape)}")

    def _documents(self, logits: Tensor, mask: Tensor | None, gradient: Tensor | None) -> Tensor:
        """Return the loss of every document, and write its gradient where a tensor for it is given."""
        precise = torch.float64 if logits.dtype == torch.float64 else torch.float32
        values = torch.zeros(len(logits), dtype=precise, device=logits.device)
        for batch, entities in _by_size(logits, mask):
            pairs = _pairs(batch, entities)
            found, slope = self._equal_sizes(logits[pairs].to(precise), gradient is not None)
            values[batch] = found
            if gradient is not None and slope is not None:
                gradient[pairs] = slope
        return values

    def _equal_sizes(self, logits: Tensor, with_gradient: bool) -> tuple[Tensor, Tensor | None]:
        """Return the loss of documents that have the same number of entities, and its gradient."""
        size = logits.shape[1]
        by_relation = logits.permute(0, 3, 1, 2).clone(memory_format=torch.contiguous_format)
        by_relation.diagonal(dim1=2, dim2=3).zero_()
        if self.check_finite and not torch.isfinite(by_relation).all():
            _, relation, head, tail = place = torch.nonzero(~torch.isfinite(by_relation))[0].tolist()
            raise DataError(
                f"logits must be finite, got {by_relation[tuple(place)].item()} for relation "
                f"{self.relations[relation]!r} between entities {head} and {tail} of a document"
            )
        log_p = nn.functional.logsigmoid(by_relation)
        chunk = self.chunk or (CHUNK_ON_CPU if logits.device.type == "cpu" else CHUNK_ON_OTHER_DEVICES)
        sums = HingeSums(self._oriented_table(log_p), largest=self.form == "published", chunk=chunk)
        for group in self._groups:
            sums.add(group)
        slope = self._by_relation(sums.gradient.view(len(logits), -1, size, size), log_p)
        # Large parts of the sum cancel, so it is taken in double precision.
        values = (slope.double() * log_p.double()).flatten(1).sum(1) + sums.offsets.double()
        share = 1 / (size * (size - 1)) if self.form == "published" else 1.0
        values = (share * values).clamp(min=0.0).to(log_p.dtype)
        if not with_gradient:
            return values, None
        return values, slope.mul_(share).mul_(torch.sigmoid(-by_relation)).permute(0, 2, 3, 1)

    def _oriented_table(self, log_p: Tensor) -> Tensor:
        """Return the oriented relations in use as [D, S, n, n], with -inf on the diagonal."""
        table = log_p[:, [relation for relation, _ in self._oriented]]
        inverse = [place for place, (_, inverse) in enumerate(self._oriented) if inverse]
        table[:, inverse] = table[:, inverse].transpose(2, 3)
        table.diagonal(dim1=2, dim2=3).fill_(-math.inf)
        return table

    def _by_relation(self, gradient: Tensor, log_p: Tensor) -> Tensor:
        """Bring the gradient of oriented relations back to [D, R, n, n]."""
        inverse = [place for place, (_, inverse) in enumerate(self._oriented) if inverse]
        gradient[:, inverse] = gradient[:, inverse].transpose(2, 3)
        relations = torch.tensor([relation for relation, _ in self._oriented], dtype=torch.long, device=log_p.device)
        return torch.zeros_like(log_p).index_add_(1, relations, gradient)

    def extra_repr(self) -> str:
        """Describe the loss in a line."""
        return f"{len(self.clauses)} rules, {len(self.relations)} relations, form={self.form!r}, eta={self.eta}"


class _ConsistencyFunction(torch.autograd.Function):
    """The gradient comes with the value, so backward only scales it."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, mask: Tensor | None, loss: ConsistencyLoss) -> Tensor:
        gradient = None
        if ctx.needs_input_grad[0]:
            precise = torch.float64 if logits.dtype == torch.float64 else torch.float32
            gradient = torch.zeros(logits.shape, dtype=precise, device=logits.device)
        with torch.autocast(logits.device.type, enabled=False):
            values = loss._documents(logits.detach(), mask, gradient)
        if gradient is not None:
            ctx.save_for_backward(gradient)
        ctx.dtype = logits.dtype
        return values

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None, None]:
        (gradient,) = ctx.saved_tensors
        return (gradient * upstream[:, None, None, None]).to(ctx.dtype), None, None


def _by_size(logits: Tensor, mask: Tensor | None) -> Iterator[tuple[Tensor | slice, Tensor | None]]:
    """Yield documents with the same number of entities together, with the places of these; None where all are."""
    batch, size = logits.shape[:2]
    if mask is None:
        if size > 1 and batch:
            yield slice(None), None
        return
    real = mask.to(device=logits.device, dtype=torch.bool)
    counts = real.sum(1)
    for count in sorted(set(counts.tolist())):
        if count > 1:
            some = torch.nonzero(counts == count)[:, 0]
            places = torch.nonzero(real[some])[:, 1].view(len(some), count)
            yield some, None if count == size else places


def _pairs(batch: Tensor | slice, entities: Tensor | None) -> Tensor | slice | tuple[Tensor, Tensor, Tensor]:
    """Return the index of all pairs of the given entities of each document."""
    if entities is None or isinstance(batch, slice):
        return batch
    return batch[:, None, None], entities[:, :, None], entities[:, None, :]
