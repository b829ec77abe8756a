"""From pieces to mentions, from mentions to entities, and what context two entities share."""

from __future__ import annotations

import torch
from torch import Tensor

from rulewright.models.batches import Batch


def mention_starts(states: Tensor, batch: Batch) -> Tensor:
    """The states ``[M, d]`` of the first piece (the marker, where there is one) of each mention."""
    index = batch.mention_document * states.shape[1] + batch.mention_start
    return states.flatten(0, 1).index_select(0, index)


def mention_means(states: Tensor, batch: Batch) -> Tensor:
    """The mean states ``[M, d]`` over the pieces of each mention, ``[B, L, d] -> [M, d]``."""
    widths = batch.mention_end - batch.mention_start
    mention = torch.repeat_interleave(torch.arange(len(widths), device=widths.device), widths)
    first = (torch.cumsum(widths, 0) - widths).index_select(0, mention)
    within = torch.arange(len(mention), device=widths.device) - first
    index = (batch.mention_document * states.shape[1] + batch.mention_start).index_select(0, mention) + within
    pieces = states.flatten(0, 1).index_select(0, index)
    total = states.new_zeros(len(widths), states.shape[-1]).index_add(0, mention, pieces)
    return total / widths[:, None]


def entity_means(mentions: Tensor, batch: Batch) -> Tensor:
    """The mean over each entity's mentions, ``[M, …] -> [E, …]``."""
    total = mentions.new_zeros(len(batch.entity_mentions), *mentions.shape[1:])
    total = total.index_add(0, batch.mention_entity, mentions)
    return total / batch.entity_mentions.to(total.dtype).view(-1, *[1] * (mentions.dim() - 1))


def entity_logsumexp(mentions: Tensor, batch: Batch) -> Tensor:
    """``log Σ_j exp h_j`` over each entity's mentions, a smooth maximum: ``[M, d] -> [E, d]``."""
    index = batch.mention_entity[:, None].expand_as(mentions)
    highest = mentions.new_full((len(batch.entity_mentions), mentions.shape[1]), float("-inf"))
    highest = highest.scatter_reduce(0, index, mentions.detach(), "amax")
    scaled = torch.exp(mentions - highest.index_select(0, batch.mention_entity))
    return highest + torch.log(torch.zeros_like(highest).index_add(0, batch.mention_entity, scaled))


def localized_context(states: Tensor, attention: Tensor, batch: Batch) -> Tensor:
    """Pool the context that both entities of a pair attend to: ``[U, d]``, one row for each unordered pair.

    With ``A_i`` the attention ``[heads, L]`` of entity i (the mean over its mentions), the weight of piece l is
    ``q_l = Σ_k A_i[k, l]·A_j[k, l]``, scaled to sum 1, and the context ``c = Σ_l q_l·h_l`` (Zhou et al. 2021).
    """
    entities = entity_means(attention, batch)
    contexts, start = [], 0
    for number, (size, length) in enumerate(zip(batch.sizes, batch.lengths, strict=True)):
        rows = entities[start : start + size, :, :length].permute(2, 0, 1)  # [length, n, heads]
        start += size
        upper = torch.triu_indices(size, size, 1, device=rows.device)
        # a product for each piece: all pairs at once without the [pairs, heads, length] array
        shared = torch.bmm(rows, rows.transpose(1, 2)).flatten(1).index_select(1, upper[0] * size + upper[1])
        weights = shared / shared.sum(0).clamp(min=torch.finfo(shared.dtype).tiny)
        contexts.append(weights.T @ states[number, :length])
    return torch.cat(contexts)
