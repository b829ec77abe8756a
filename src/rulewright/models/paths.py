"""Attention over the paths of two steps between two entities, as GAIN has it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from rulewright.models.batches import Batch

LOWEST = torch.finfo(torch.float32).min  # minus infinity would give NaN, and NaN gradients, where there is no path


class PathAttention(nn.Module):
    """``p_ht = Σ_o α_o q_o``, ``q_o = [g_ho; g_oh; g_to; g_ot]``, over entities o that share sentences with h and t.

    ``g_ij = relu(W [e_i; e_j])`` stands for an edge and ``α = softmax_o relu([e_h; e_t] V q_o)``; without any such o,
    p is 0. No array of pairs × entities × ``size`` is made: h's half of q and t's half each meet both entities in
    products of matrices.
    """

    def __init__(self, entity_size: int, *, size: int) -> None:
        super().__init__()
        self.start = nn.Linear(entity_size, size)
        self.end = nn.Linear(entity_size, size, bias=False)
        self.head_asks = nn.Linear(entity_size, 4 * size, bias=False)
        self.tail_asks = nn.Linear(entity_size, 4 * size, bias=False)

    def forward(self, entities: Tensor, edges: Tensor, batch: Batch) -> Tensor:
        """Attend for all pairs, ``[E, entity_size]`` and symmetric booleans ``[B, n, n]``, ``-> [P, 4·size]``."""
        starts, ends, head_asks, tail_asks = (
            batch.padded(layer(entities)) for layer in (self.start, self.end, self.head_asks, self.tail_asks)
        )
        edge = torch.relu(starts[:, :, None] + ends[:, None, :])
        half = torch.cat([edge, edge.transpose(1, 2)], -1)  # [B, x, o, 2·size], [g_xo; g_ox]
        head_of_head, head_of_tail = head_asks.chunk(2, -1)
        tail_of_head, tail_of_tail = tail_asks.chunk(2, -1)
        scores = (
            torch.einsum("bhk,bhok->bho", head_of_head, half)[:, :, None]
            + torch.einsum("btk,bhok->bhto", tail_of_head, half)
            + torch.einsum("bhk,btok->bhto", head_of_tail, half)
            + torch.einsum("btk,btok->bto", tail_of_tail, half)[:, None]
        )
        is_path = edges[:, :, None, :] & edges[:, None, :, :]
        weights = torch.softmax(torch.relu(scores.float()).masked_fill(~is_path, LOWEST), -1) * is_path
        found = [torch.einsum("bhto,bhok->bhtk", weights, half), torch.einsum("bhto,btok->bhtk", weights, half)]
        return batch.pairs(torch.cat(found, -1))
