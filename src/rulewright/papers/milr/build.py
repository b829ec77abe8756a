"""Networks by name."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch

from rulewright.errors import DataError, unknown_name
from rulewright.io.docred import Document
from rulewright.papers.milr.documents import Featurizer
from rulewright.papers.milr.encoders import MINILM, Encoder, PretrainedEncoder, WordEncoder, WordTokenizer
from rulewright.papers.milr.gain import Gain
from rulewright.papers.milr.networks import Atlop, Backbone, Recurrent
from rulewright.papers.milr.training import ExtractorSettings

WORDS = "words"
KINDS = ("lstm", "bilstm", "gain", "atlop")


def build_model(
    kind: str,
    documents: Sequence[Document],
    *,
    relations: Sequence[str] | None = None,
    encoder: str | os.PathLike[str] | None = None,
    freeze_layers: int = 0,
    seed: int = 0,
) -> Backbone:
    """Make an untrained network of a kind (lstm, bilstm, gain, atlop) for documents like these.

    The training documents give the entity types, the words that an encoder without pretraining knows and, unless
    given, the relations. ``encoder`` is ``"words"`` (the only one of lstm and bilstm), ``"minilm"`` (the default of
    gain and atlop), or the folder or name of a Hugging Face model. The seed decides the new weights.
    """
    if kind not in KINDS:
        raise unknown_name("network", kind, KINDS)
    recurrent = kind in ("lstm", "bilstm")
    source = encoder or (WORDS if recurrent else MINILM)
    if recurrent and source != WORDS:
        raise DataError(
            f"{kind} reads words without pretraining; its encoder must be {WORDS!r}, got {os.fspath(source)!r}"
        )
    if source == WORDS and freeze_layers:
        raise DataError(f"freeze_layers keeps pretrained layers, but the encoder {WORDS!r} has none")
    types = sorted({entity.type for document in documents for entity in document.entities})
    if relations is None:
        relations = sorted({fact.relation for document in documents for fact in document.facts})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        read: Encoder
        if source == WORDS:
            tokenizer = WordTokenizer.from_documents(documents)
            read = WordEncoder(tokenizer, entity_types=len(types), bidirectional=kind != "lstm")
        else:
            read = PretrainedEncoder.load(source, freeze_layers=freeze_layers)
        featurizer = Featurizer(read.tokenizer, relations=relations, entity_types=types)
        if recurrent:
            return Recurrent(read, featurizer)
        return Gain(read, featurizer) if kind == "gain" else Atlop(read, featurizer)


def default_settings(kind: str) -> ExtractorSettings:
    """The settings to start from for a kind of network; ``dataclasses.replace`` changes some."""
    if kind not in KINDS:
        raise unknown_name("network", kind, KINDS)
    if kind in ("lstm", "bilstm"):
        # an LSTM is slower in bfloat16; gradients of a mean over relations are too small for ATLOP's epsilon
        return ExtractorSettings(epochs=60, patience=10, rate=1e-3, epsilon=1e-8, precision="float32")
    if kind == "gain":
        return ExtractorSettings(rate=1e-3, epsilon=1e-8)
    return ExtractorSettings()
