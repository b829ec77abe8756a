"""Encoders: from pieces of words to contextual states, with one interface for all."""

from rulewright.models.encoders.interface import Encoded, Encoder
from rulewright.models.encoders.pretrained import MINILM, PretrainedEncoder, minilm_folder
from rulewright.models.encoders.windows import Windows, window_bounds
from rulewright.models.encoders.words import WordEncoder, WordTokenizer

__all__ = [
    "MINILM",
    "Encoded",
    "Encoder",
    "PretrainedEncoder",
    "Windows",
    "WordEncoder",
    "WordTokenizer",
    "minilm_folder",
    "window_bounds",
]
