"""Forms as tensors, and a network over their words: which two of them stand in one block?"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from rulewright.errors import DataError
from rulewright.files import read_bytes, write_bytes
from rulewright.io.docred import Document
from rulewright.io.funsd import LABELS, Form, Word
from rulewright.papers.documents import Featurizer, collate
from rulewright.papers.encoders import MINILM, Encoder, PretrainedEncoder

PAGE = 1000.0  # pixels of a page's longer side, by which boxes are divided
LOOKS = 8
NO_LABEL = -100  # the label of padding, which cross-entropy ignores

Order = Literal["file", "reading"]


@dataclass(frozen=True, slots=True, eq=False)
class FormFeatures:
    """One form in tensors; N words."""

    name: str
    vectors: Tensor  # [N, d] of the encoder, which is not trained
    boxes: Tensor  # [N, 4] left, top, right, bottom, as shares of the page
    looks: Tensor  # [N, LOOKS] what the text of a word looks like; encoders without capitals do not see it
    block: Tensor  # [N] the index of the word's block
    label: Tensor  # [N] the index of its label

    @property
    def words(self) -> int:
        """The number N of words."""
        return len(self.block)


@dataclass(frozen=True, slots=True, eq=False)
class FormBatch:
    """B forms, padded to N words; ``mask`` is true for words."""

    forms: tuple[FormFeatures, ...]
    vectors: Tensor  # [B, N, d]
    boxes: Tensor  # [B, N, 4]
    looks: Tensor  # [B, N, LOOKS]
    label: Tensor  # [B, N], NO_LABEL in padding
    coexist: Tensor  # [B, N, N] bool: in one block; true on the diagonal
    mask: Tensor  # [B, N]

    @property
    def pairs(self) -> Tensor:
        """Which pairs are pairs of words, ``[B, N, N]``."""
        return self.mask[:, :, None] & self.mask[:, None, :]


def form_features(
    forms: Iterable[Form], vectors: Callable[[Sequence[Sequence[str]]], Sequence[Tensor]], *, order: Order = "file"
) -> list[FormFeatures]:
    """Turn forms into tensors; ``vectors`` gives ``[N, d]`` for each text of N words, see `word_vectors`.

    FUNSD lists words block after block, which the order of words betrays. ``order="reading"`` forgets it and reads line
    by line.
    """
    forms = list(forms)
    for form in forms:
        if not form.words:
            raise DataError(f"form {form.name!r} has no words")
    orders = [_order_words(form, order) for form in forms]
    texts = [[form.words[index].text for index in indices] for form, indices in zip(forms, orders, strict=True)]
    return [_make_features(*parts) for parts in zip(forms, orders, vectors(texts), strict=True)]


def _make_features(form: Form, order: Sequence[int], vectors: Tensor) -> FormFeatures:
    block = [index for index, block in enumerate(form.blocks) for _ in block.words]
    label = [LABELS.index(block.label) for block in form.blocks for _ in block.words]
    words = form.words
    return FormFeatures(
        form.name,
        vectors,
        torch.tensor([words[index].box for index in order]) / PAGE,
        torch.tensor([looks(words[index].text) for index in order]),
        torch.tensor([block[index] for index in order]),
        torch.tensor([label[index] for index in order]),
    )


def _order_words(form: Form, order: Order) -> list[int]:
    words = form.words
    if order == "file":
        return list(range(len(words)))
    if order == "reading":
        return reading_order(words)
    raise DataError(f"order must be one of file, reading, got {order!r}")


def reading_order(words: Sequence[Word]) -> list[int]:
    """Order words by lines, from the left within each; a line takes words whose middle lies within its first word.

    >>> from rulewright.io.scenes import PixelBox
    >>> boxes = {"b": PixelBox(50, 1, 60, 9), "c": PixelBox(0, 20, 9, 28), "a": PixelBox(0, 0, 9, 8)}
    >>> reading_order([Word(text, box) for text, box in boxes.items()])
    [2, 0, 1]
    """
    lines: list[list[int]] = []
    for index in sorted(range(len(words)), key=lambda index: (_middle(words[index]), words[index].box.left)):
        first = words[lines[-1][0]].box if lines else None
        if first is not None and _middle(words[index]) <= first.bottom:
            lines[-1].append(index)
        else:
            lines.append([index])
    return [index for line in lines for index in sorted(line, key=lambda index: words[index].box.left)]


def _middle(word: Word) -> float:
    return (word.box.top + word.box.bottom) / 2


def looks(text: str) -> list[float]:
    """Tell capitals, digits, punctuation, how a word ends and how long it is.

    >>> looks("Date:")
    [1.0, 0.0, 0.0, 0.2, 1.0, 0.0, 0.0, 0.5]
    """
    letters = [character for character in text if character.isalpha()]
    size = max(1, len(text))
    return [
        float(text[:1].isupper()),
        float(len(letters) > 1 and all(character.isupper() for character in letters)),
        sum(character.isdigit() for character in text) / size,
        sum(not character.isalnum() for character in text) / size,
        float(text.endswith(":")),
        float(text.endswith((".", ","))),
        float(text.startswith(("(", "[", "☐", "•", "-", "_"))),
        min(len(text), 20) / 10,
    ]


def collate_forms(forms: Sequence[FormFeatures]) -> FormBatch:
    """Put forms into one batch."""
    blocks = pad_sequence([form.block for form in forms], batch_first=True, padding_value=-1)
    mask = blocks >= 0
    return FormBatch(
        tuple(forms),
        pad_sequence([form.vectors for form in forms], batch_first=True),
        pad_sequence([form.boxes for form in forms], batch_first=True),
        pad_sequence([form.looks for form in forms], batch_first=True),
        pad_sequence([form.label for form in forms], batch_first=True, padding_value=NO_LABEL),
        (blocks[:, :, None] == blocks[:, None, :]) & mask[:, :, None] & mask[:, None, :],
        mask,
    )


def vary(form: FormFeatures, *, shift: float = 0.02, jitter: float = 7e-4) -> FormFeatures:
    """Stretch and move the page by normal ``shift`` and every edge of a box by normal ``jitter``, in page lengths.

    So a network does not learn the few pages that there are by heart. PyTorch's random numbers decide.
    """
    boxes = form.boxes * (1 + shift * torch.randn(2).repeat(2)) + shift * torch.randn(2).repeat(2)
    return replace(form, boxes=boxes + jitter * torch.randn(boxes.shape))


TEXTS_AT_ONCE = 4


@torch.no_grad()
def word_vectors(texts: Sequence[Sequence[str]], encoder: Encoder) -> list[Tensor]:
    """Return ``[N, d]`` for each text of N words: the mean state of a word's pieces, 0 for a word that has none.

    Texts longer than the encoder's window are read in overlapping windows.
    """
    encoder.eval()
    featurizer = Featurizer(encoder.tokenizer, relations=(), entity_types=())
    by_text: dict[int, Tensor] = {}
    by_length = sorted(range(len(texts)), key=lambda index: len(texts[index]))  # neighbours need little padding
    for start in range(0, len(by_length), TEXTS_AT_ONCE):
        part = by_length[start : start + TEXTS_AT_ONCE]
        documents = [Document(str(index), (tuple(texts[index]),), (), ()) for index in part]
        states = encoder(collate(featurizer(documents))).states
        for index, row in zip(part, states, strict=True):
            counts = torch.tensor([len(pieces) for pieces in encoder.tokenizer.pieces(texts[index])])
            word = torch.repeat_interleave(torch.arange(len(counts)), counts)
            before = len(encoder.tokenizer.prefix)
            sums = row.new_zeros(len(counts), row.shape[-1]).index_add(0, word, row[before : before + len(word)])
            by_text[index] = sums / counts.clamp(min=1)[:, None]
    return [by_text[index] for index in range(len(texts))]


def pretrained_vectors(
    texts: Sequence[Sequence[str]], name: str | os.PathLike[str] = MINILM, *, folder: Path | None = None
) -> list[Tensor]:
    """Return the word vectors of a pretrained encoder by name or folder; kept in ``folder``, they are computed once."""
    if folder is None:
        return word_vectors(texts, PretrainedEncoder.load(name))
    request = json.dumps([os.fspath(name), [list(text) for text in texts]]).encode()
    file = folder / f"{hashlib.sha256(request).hexdigest()[:24]}.safetensors"
    if not file.exists():
        vectors = torch.cat(word_vectors(texts, PretrainedEncoder.load(name)))
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(file, safetensors.torch.save({"vectors": vectors}))
    kept = safetensors.torch.load(read_bytes(file))["vectors"]
    return list(torch.split(kept, [len(text) for text in texts]))


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
    position = torch.arange(boxes.shape[1], device=boxes.device, dtype=boxes.dtype)
    steps = (position[None, :] - position[:, None]).expand_as(dy)
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
        for index, layer in enumerate(self.attention):
            states = layer(states, bias[:, index * self.heads : (index + 1) * self.heads])
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
