"""Bilinear scores of pairs: in groups, as ATLOP has them, and over vectors of entities, as the recurrent models do."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rulewright.errors import DataError
from rulewright.models.batches import Batch

PAIRS_AT_ONCE = 256  # keeps the products of a chunk within a processor's cache
PAIRS_TO_KEEP = 8192  # with more pairs the products are computed again in the backward pass instead of being kept
DISTANCE_POWERS = 10  # distances of 2^9 words and more are one class
DISTANCE_CLASSES = 2 * DISTANCE_POWERS + 1


class GroupedBilinear(nn.Module):
    """``F_r = Σ_g x_g^T W_r^g y_g + b_r``: both vectors are cut into groups of ``block`` and only like groups meet.

    This needs ``d·block·R`` weights instead of ``d²·R``.
    """

    def __init__(self, size: int, outputs: int, *, block: int = 64) -> None:
        super().__init__()
        if size % block:
            raise DataError(f"block must divide the size {size}, got {block}")
        self.groups, self.block = size // block, block
        self.linear = nn.Linear(size * block, outputs)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Score rows against rows, ``[P, size], [P, size] -> [P, outputs]``."""
        chunks = list(zip(torch.split(left, PAIRS_AT_ONCE), torch.split(right, PAIRS_AT_ONCE), strict=True))
        if len(left) > PAIRS_TO_KEEP and torch.is_grad_enabled():
            parts = [checkpoint(self._scores, a, b, use_reentrant=False) for a, b in chunks]
        else:
            parts = [self._scores(a, b) for a, b in chunks]
        return torch.cat(parts)

    def _scores(self, left: Tensor, right: Tensor) -> Tensor:
        left, right = (each.view(len(each), self.groups, self.block) for each in (left, right))
        scores: Tensor = self.linear((left[..., :, None] * right[..., None, :]).flatten(1))
        return scores


class DistanceBilinear(nn.Module):
    """``F_r = [e_i; D(d_ij)]^T W_r [e_j; D(d_ji)] + b_r``: entities with an embedding of their distance in words.

    The product is taken apart, so that no vector of a pair is ever made: the entities meet in one product of matrices,
    and since distances fall into few classes, all that they add is looked up in tables of entity and class.
    """

    def __init__(self, size: int, outputs: int, *, distance_size: int = 20) -> None:
        super().__init__()
        self.size = size
        self.distance = nn.Embedding(DISTANCE_CLASSES, distance_size)
        self.weight = nn.Parameter(torch.empty(size + distance_size, outputs, size + distance_size))
        self.bias = nn.Parameter(torch.zeros(outputs))
        bound = (size + distance_size) ** -0.5
        nn.init.uniform_(self.weight, -bound, bound)

    def forward(self, entities: Tensor, batch: Batch) -> Tensor:
        """Score all ordered pairs, ``[E, size] -> [P, outputs]``."""
        size, table = self.size, self.distance.weight
        mirrored = table.flip(0)  # the class of d_ji is that of d_ij counted from the other end
        there, back = self.weight[:size], self.weight[size:]
        padded = batch.padded(entities)
        met = torch.einsum("birl,bjl->bijr", torch.einsum("bik,krl->birl", padded, there[:, :, :size]), padded)
        by_head = torch.einsum("ek,krl,dl->edr", entities, there[:, :, size:], mirrored)
        by_tail = torch.einsum("dk,krl,el->edr", table, back[:, :, :size], entities)
        alone = torch.einsum("dk,krl,dl->dr", table, back[:, :, size:], mirrored)
        kind = distance_class(batch.pair_distance)
        return (
            batch.pairs(met)
            + by_head.flatten(0, 1).index_select(0, batch.head * DISTANCE_CLASSES + kind)
            + by_tail.flatten(0, 1).index_select(0, batch.tail * DISTANCE_CLASSES + kind)
            + alone.index_select(0, kind)
            + self.bias
        )


def distance_class(distance: Tensor) -> Tensor:
    """Sort distances by sign and power of two: … -2, -1, 0, 1, 2–3, 4–7, … are neighbouring classes.

    >>> distance_class(torch.tensor([-9999, -3, -1, 0, 1, 2, 3, 4, 9999])).tolist()
    [0, 8, 9, 10, 11, 12, 12, 13, 20]
    """
    size = distance.abs()
    power = torch.bucketize(size, 2 ** torch.arange(DISTANCE_POWERS, device=size.device), right=True)
    return DISTANCE_POWERS + torch.sign(distance) * power
