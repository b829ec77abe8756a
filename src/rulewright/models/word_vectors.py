"""Vectors of words from an encoder that is not trained, computed once and kept."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from rulewright.files import read_bytes, write_bytes
from rulewright.io.docred import Document
from rulewright.models.batches import collate
from rulewright.models.documents import Featurizer
from rulewright.models.encoders.interface import Encoder
from rulewright.models.encoders.pretrained import MINILM, PretrainedEncoder

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
