"""A network over the words of a form that says of every two of them whether they stand in one block."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from rulewright.errors import DataError
from rulewright.io.funsd import LABELS
from rulewright.papers.logicmp.form_features import LOOKS, FormBatch

GEOMETRY = 12
FREQUENCIES = 4
PRIOR = -3.0  # log-odds of a pair before training: few pairs stand in one block


@dataclass(frozen=True, slots=True, eq=False)
class FormOutput:
    """Log-odds ``coexist [B, N, N]`` that two words share a block, and ``labels [B, N, 4]`` of words."""

    coexist: Tensor
    labels: Tensor


def pair_geometry(boxes: Tensor) -> Tensor:
    """How each word lies to each other, ``[B, N, N, GEOMETRY]`` from boxes ``[B, N, 4]``.

    For the pair (a, b): offsets b − a of left, right and middle in x and of the middle in y, in page lengths and (y and
    gaps) in heights of the words; the gaps between the boxes, negative where they overlap; whether both stand on one
    line, ``|Δy| < ½ (height_a + height_b) / 2``; the ratio of heights; and how many words b stands after a.
    """
    left, top, right, bottom = boxes.unbind(-1)
    x, y = (left + right) / 2, (top + bottom) / 2
    height = (bottom - top).clamp(min=1e-3)

    def offset(values: Tensor) -> Tensor:
        return values[:, None, :] - values[:, :, None]

    unit = (height[:, None, :] + height[:, :, None]) / 2
    along = torch.maximum(left[:, None, :], left[:, :, None]) - torch.minimum(right[:, None, :], right[:, :, None])
    down = torch.maximum(top[:, None, :], top[:, :, None]) - torch.minimum(bottom[:, None, :], bottom[:, :, None])
    dy = offset(y)
    place = torch.arange(boxes.shape[1], device=boxes.device, dtype=boxes.dtype)
    steps = (place[None, :] - place[:, None]).expand_as(dy)
    features = [
        4 * offset(left),
        4 * offset(right),
        4 * offset(x),
        4 * dy,
        torch.tanh(dy / unit / 2),
        torch.tanh(along / unit / 2),
        torch.tanh(along / unit / 8),
        torch.tanh(down / unit),
        (dy.abs() < unit / 2).to(boxes.dtype),
        torch.log(height)[:, None, :] - torch.log(height)[:, :, None],
        torch.tanh(steps / 2),
        torch.sign(steps) * torch.log1p(steps.abs()) / 4,
    ]
    return torch.stack(features, -1)


def box_waves(boxes: Tensor) -> Tensor:
    """Sines and cosines of left, top, right, bottom, width and height, ``[B, N, 12 · FREQUENCIES]``."""
    left, top, right, bottom = boxes.unbind(-1)
    values = torch.stack([left, top, right, bottom, right - left, bottom - top], -1)
    angles = values[..., None] * (math.pi * 2.0 ** torch.arange(FREQUENCIES, device=boxes.device))
    return torch.cat([angles.sin(), angles.cos()], -1).flatten(-2)


def neighbours(geometry: Tensor, mask: Tensor) -> Tensor:
    """How the words before and after each lie to it, ``[B, N, 2 · GEOMETRY]``; 0 where there is none."""
    after = geometry.diagonal(1, 1, 2).transpose(1, 2) * mask[:, 1:, None]
    before = geometry.diagonal(-1, 1, 2).transpose(1, 2)
    return torch.cat([functional.pad(before, (0, 0, 1, 0)), functional.pad(after, (0, 0, 0, 1))], -1)


class GeometricAttention(nn.Module):
    """A transformer layer whose attention adds a bias to each pair: ``softmax(QKᵀ/√d + bias)``."""

    def __init__(self, size: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.before = nn.LayerNorm(size)
        self.inputs = nn.Linear(size, 3 * size)
        self.outputs = nn.Linear(size, size)
        self.forward_part = nn.Sequential(
            nn.LayerNorm(size), nn.Linear(size, 2 * size), nn.GELU(), nn.Dropout(dropout), nn.Linear(2 * size, size)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, states: Tensor, bias: Tensor) -> Tensor:
        """States ``[B, N, size]`` to new ones; ``bias [B, heads, N, N]`` is −∞ at padding."""
        batch, words, size = states.shape
        query, key, value = (
            self.inputs(self.before(states)).view(batch, words, 3, self.heads, -1).permute(2, 0, 3, 1, 4).unbind(0)
        )
        scores = query @ key.transpose(-1, -2) / math.sqrt(size // self.heads) + bias
        mixed = (scores.softmax(-1) @ value).transpose(1, 2).reshape(batch, words, size)
        states = states + self.dropout(self.outputs(mixed))
        result: Tensor = states + self.dropout(self.forward_part(states))
        return result


class FormNetwork(nn.Module):
    """Words with boxes to log-odds of pairs, each predicted on its own.

    ``score(a, b) = r_a · c_b / √d + u · relu(A h_a + B h_b + C g_ab) + bias`` with the state ``h`` of a word under
    ``layers`` layers of attention and the geometry ``g`` of the pair; ``symmetric`` gives both orders their mean. The
    second term costs N² · ``pair_size``, which bounds memory (434 words, 16: 12 MB).
    """

    def __init__(
        self,
        vector_size: int,
        *,
        size: int = 64,
        layers: int = 2,
        heads: int = 4,
        pair_size: int = 16,
        dropout: float = 0.2,
        vector_dropout: float = 0.5,
        symmetric: bool = True,
    ) -> None:
        super().__init__()
        if size % heads:
            raise DataError(f"size must be a multiple of heads, got {size} and {heads}")
        self.heads, self.symmetric = heads, symmetric
        self.words = nn.Sequential(nn.LayerNorm(vector_size), nn.Dropout(vector_dropout), nn.Linear(vector_size, size))
        self.layout = nn.Linear(12 * FREQUENCIES + LOOKS + 2 * GEOMETRY, size)
        self.norm = nn.LayerNorm(size)
        self.dropout = nn.Dropout(dropout)
        self.bias = nn.Linear(GEOMETRY, layers * heads)
        self.attention = nn.ModuleList(GeometricAttention(size, heads, dropout) for _ in range(layers))
        self.last = nn.LayerNorm(size)
        self.rows, self.columns = nn.Linear(size, 2 * pair_size), nn.Linear(size, 2 * pair_size)
        self.first, self.second = nn.Linear(size, pair_size, bias=False), nn.Linear(size, pair_size, bias=False)
        self.geometry = nn.Linear(GEOMETRY, pair_size)
        self.score = nn.Linear(pair_size, 1)
        nn.init.constant_(self.score.bias, PRIOR)
        self.labels = nn.Linear(size, len(LABELS))

    def forward(self, batch: FormBatch) -> FormOutput:
        """Score all pairs of a batch."""
        geometry = pair_geometry(batch.boxes)
        seen = torch.cat([box_waves(batch.boxes), batch.looks, neighbours(geometry, batch.mask)], -1)
        states = self.dropout(self.norm(self.words(batch.vectors) + self.layout(seen)))
        bias = self.bias(geometry).permute(0, 3, 1, 2)
        bias = bias.masked_fill(~batch.mask[:, None, None, :], -torch.inf)
        for number, layer in enumerate(self.attention):
            states = layer(states, bias[:, number * self.heads : (number + 1) * self.heads])
        states = self.last(states)
        return FormOutput(self._pairs(states, geometry), self.labels(states))

    def _pairs(self, states: Tensor, geometry: Tensor) -> Tensor:
        rows, columns = self.rows(states), self.columns(states)
        scores: Tensor = rows @ columns.transpose(1, 2) / math.sqrt(rows.shape[-1])
        hidden = self.first(states)[:, :, None, :] + self.second(states)[:, None, :, :] + self.geometry(geometry)
        scores = scores + self.score(functional.relu(hidden)).squeeze(-1)
        return (scores + scores.transpose(1, 2)) / 2 if self.symmetric else scores


def form_losses(output: FormOutput, batch: FormBatch) -> dict[str, Tensor]:
    """The cross-entropy of pairs, every two blocks counting alike, and that of the labels of words.

    ``Σ_ab CE(a, b) / (n_a · n_b) / blocks`` with n the number of words of a word's block: otherwise the few long
    blocks, which have most of the pairs, would be all that counts.
    """
    pairs = functional.binary_cross_entropy_with_logits(
        output.coexist, batch.coexist.to(output.coexist.dtype), reduction="none"
    )
    share = batch.mask / batch.coexist.sum(-1).clamp(min=1)
    return {
        "pairs": (pairs * share[:, :, None] * share[:, None, :]).sum() / share.sum(),
        "labels": functional.cross_entropy(output.labels.flatten(0, 1), batch.label.flatten()),
    }
