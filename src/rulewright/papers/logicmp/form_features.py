"""Forms as a network reads them: a vector, a box and the look of each word, and which words stand in one block."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import safetensors.torch
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from rulewright.errors import DataError
from rulewright.files import read_bytes, write_bytes
from rulewright.io.docred import Document
from rulewright.io.funsd import LABELS, Form, Word
from rulewright.papers.milr.batches import collate
from rulewright.papers.milr.documents import Featurizer
from rulewright.papers.milr.encoders import MINILM, Encoder, PretrainedEncoder

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
    block: Tensor  # [N] the number of the word's block
    label: Tensor  # [N] the number of its label

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
    places = [_order(form, order) for form in forms]
    texts = [[form.words[place].text for place in each] for form, each in zip(forms, places, strict=True)]
    return [_features(*each) for each in zip(forms, places, vectors(texts), strict=True)]


def _features(form: Form, places: Sequence[int], vectors: Tensor) -> FormFeatures:
    block = [number for number, each in enumerate(form.blocks) for _ in each.words]
    label = [LABELS.index(each.label) for each in form.blocks for _ in each.words]
    words = form.words
    return FormFeatures(
        form.name,
        vectors,
        torch.tensor([words[place].box for place in places]) / PAGE,
        torch.tensor([looks(words[place].text) for place in places]),
        torch.tensor([block[place] for place in places]),
        torch.tensor([label[place] for place in places]),
    )


def _order(form: Form, order: Order) -> list[int]:
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
    for place in sorted(range(len(words)), key=lambda each: (_middle(words[each]), words[each].box.left)):
        first = words[lines[-1][0]].box if lines else None
        if first is not None and _middle(words[place]) <= first.bottom:
            lines[-1].append(place)
        else:
            lines.append([place])
    return [place for line in lines for place in sorted(line, key=lambda each: words[each].box.left)]


def _middle(word: Word) -> float:
    return (word.box.top + word.box.bottom) / 2


def looks(text: str) -> list[float]:
    """Tell capitals, digits, punctuation, how a word ends and how long it is.

    >>> looks("Date:")
    [1.0, 0.0, 0.0, 0.2, 1.0, 0.0, 0.0, 0.5]
    """
    letters = [each for each in text if each.isalpha()]
    size = max(1, len(text))
    return [
        float(text[:1].isupper()),
        float(len(letters) > 1 and all(each.isupper() for each in letters)),
        sum(each.isdigit() for each in text) / size,
        sum(not each.isalnum() for each in text) / size,
        float(text.endswith(":")),
        float(text.endswith((".", ","))),
        float(text.startswith(("(", "[", "☐", "•", "-", "_"))),
        min(len(text), 20) / 10,
    ]


def collate_forms(forms: Sequence[FormFeatures]) -> FormBatch:
    """Put forms into one batch."""
    blocks = pad_sequence([each.block for each in forms], batch_first=True, padding_value=-1)
    mask = blocks >= 0
    return FormBatch(
        tuple(forms),
        pad_sequence([each.vectors for each in forms], batch_first=True),
        pad_sequence([each.boxes for each in forms], batch_first=True),
        pad_sequence([each.looks for each in forms], batch_first=True),
        pad_sequence([each.label for each in forms], batch_first=True, padding_value=NO_LABEL),
        (blocks[:, :, None] == blocks[:, None, :]) & mask[:, :, None] & mask[:, None, :],
        mask,
    )


def varied(form: FormFeatures, *, shift: float = 0.02, jitter: float = 7e-4) -> FormFeatures:
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
    found: dict[int, Tensor] = {}
    by_length = sorted(range(len(texts)), key=lambda number: len(texts[number]))  # neighbours need little padding
    for start in range(0, len(by_length), TEXTS_AT_ONCE):
        part = by_length[start : start + TEXTS_AT_ONCE]
        documents = [Document(str(number), (tuple(texts[number]),), (), ()) for number in part]
        states = encoder(collate(featurizer(documents))).states
        for number, row in zip(part, states, strict=True):
            counts = torch.tensor([len(each) for each in encoder.tokenizer.pieces(texts[number])])
            word = torch.repeat_interleave(torch.arange(len(counts)), counts)
            before = len(encoder.tokenizer.prefix)
            sums = row.new_zeros(len(counts), row.shape[-1]).index_add(0, word, row[before : before + len(word)])
            found[number] = sums / counts.clamp(min=1)[:, None]
    return [found[number] for number in range(len(texts))]


def pretrained_vectors(
    texts: Sequence[Sequence[str]], name: str | os.PathLike[str] = MINILM, *, folder: Path | None = None
) -> list[Tensor]:
    """Return the word vectors of a pretrained encoder by name or folder; kept in ``folder``, they are computed once."""
    if folder is None:
        return word_vectors(texts, PretrainedEncoder.load(name))
    asked = json.dumps([os.fspath(name), [list(each) for each in texts]]).encode()
    file = folder / f"{hashlib.sha256(asked).hexdigest()[:24]}.safetensors"
    if not file.exists():
        vectors = torch.cat(word_vectors(texts, PretrainedEncoder.load(name)))
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(file, safetensors.torch.save({"vectors": vectors}))
    kept = safetensors.torch.load(read_bytes(file))["vectors"]
    return list(torch.split(kept, [len(each) for each in texts]))
