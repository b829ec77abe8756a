"""Small generated forms: blocks of words on lines, with gaps between blocks."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence

import torch
from torch import Tensor

from rulewright.io.funsd import LABELS, Block, Form, Word
from rulewright.io.scenes import PixelBox
from rulewright.papers.logicmp.form_network import FormFeatures, form_features

SIZE = 8


def random_form(seed: int, *, blocks: int = 5, longest: int = 4, split: str = "train") -> Form:
    """Blocks of one line each, two beside each other, with a wide gap between them."""
    chance = random.Random(seed)
    found = []
    for number in range(blocks):
        left, top = 400 * (number % 2), 20 * (number // 2)
        words = []
        for place in range(chance.randint(1, longest)):
            start = left + 30 * place
            words.append(Word(f"w{chance.randrange(20)}", PixelBox(start, top, start + 25, top + 10)))
        box = PixelBox(left, top, words[-1].box.right, top + 10)
        found.append(Block(number, chance.choice(LABELS), tuple(words), (), box))
    return Form(f"form {seed:03}", tuple(found), split)


def made_vectors(texts: Sequence[Sequence[str]]) -> list[Tensor]:
    """A vector for each word that only its text decides."""
    generators = [[torch.Generator().manual_seed(zlib.crc32(word.encode())) for word in text] for text in texts]
    return [torch.stack([torch.randn(SIZE, generator=each) for each in row]) for row in generators]


def tiny_forms(count: int, *, start: int = 0, **options: int) -> list[FormFeatures]:
    """The features of generated forms."""
    return form_features([random_form(start + number, **options) for number in range(count)], made_vectors)
