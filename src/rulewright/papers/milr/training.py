"""How an extractor is made and trained: networks by name, settings, precision, loss and parameter groups."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from rulewright.checks import SHARE, OneOf, ParameterRule, Real, Whole
from rulewright.errors import DataError, unknown_name
from rulewright.io.docred import Document
from rulewright.papers.documents import DocumentFeatures, Featurizer, collate, split_passes
from rulewright.papers.encoders import MINILM, Encoder, PretrainedEncoder, WordEncoder, WordTokenizer
from rulewright.papers.frozen import FrozenEncoder, frequent_words
from rulewright.papers.milr.gain import Gain
from rulewright.papers.milr.networks import Atlop, Backbone, PairLogits, Recurrent
from rulewright.training.loop import StepPosition, TrainingLoop, TrainingProgress, TrainingResult, TrainingSettings

Precision = Literal["auto", "bfloat16", "float32"]
BFLOAT16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16", "sve_bf16")
TITLES_SHOWN = 3


def resolve_precision(precision: Precision) -> Literal["bfloat16", "float32"]:
    """Replace ``"auto"`` by bfloat16 where the processor has instructions for it (without them it is slower)."""
    if precision != "auto":
        return precision
    capabilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return "bfloat16" if any(capabilities.get(name) for name in BFLOAT16_INSTRUCTIONS) else "float32"


def autocast(precision: Precision, device: torch.device) -> torch.autocast:
    """Return the context in which the forward pass computes in this precision; weights stay in float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=resolve_precision(precision) == "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtractorSettings(TrainingSettings):
    """Settings of an extractor; the defaults are ATLOP's, its rates raised for MiniLM.

    ``encoder_rate`` is for pretrained weights, ``rate`` for all others. A step takes ``batch_size`` documents; it adds
    up the gradients of several passes where they have more than ``pieces_at_once`` pieces, which bounds memory and is
    faster on a processor, whose cache then holds the attention. ``extra_weight`` is λ in ``L = L_cls + λ·L_extra``; the
    extra loss sees the margins F − F_TH or the raw logits, and λ rises from 0 over the share ``extra_warmup`` of all
    steps. ``precision="auto"`` computes in bfloat16 on processors that have instructions for it.
    """

    pieces_at_once: int = 1024
    encoder_rate: float = 1e-4
    extra_weight: float = 1e-3
    extra_warmup: float = 0.0
    extra_input: Literal["margins", "logits"] = "margins"
    precision: Precision = "auto"

    RULES: ClassVar[Mapping[str, ParameterRule]] = {
        **TrainingSettings.RULES,
        "pieces_at_once": Whole(1),
        "encoder_rate": Real(0),
        "extra_weight": Real(0),
        "extra_warmup": SHARE,
        "extra_input": OneOf("margins", "logits"),
        "precision": OneOf("auto", "bfloat16", "float32"),
    }


def train_extractor(
    model: Backbone,
    documents: Sequence[Document],
    *,
    settings: ExtractorSettings | None = None,
    score: Callable[[Backbone], float] | None = None,
    extra: nn.Module | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: Callable[[TrainingProgress], None] | None = None,
) -> TrainingResult:
    """Train a model on documents and leave in it the weights with the best score (the last, without ``score``).

    The loss of a step is ``L_cls + λ·L_extra``: L_cls the mean over its pairs, L_extra that over its documents, for
    which ``extra(logits [B, n, n, R], mask [B, n])`` must give the mean over the B documents it is shown. With a
    ``folder``, calling again continues where the last call stopped: see `TrainingLoop`.
    """
    settings = settings or ExtractorSettings()
    if not documents:
        raise DataError("there are no documents to train on")
    features = model.features(documents)

    def losses(
        batch: Sequence[DocumentFeatures], position: StepPosition
    ) -> Iterator[tuple[Tensor, Mapping[str, Tensor]]]:
        pairs = max(1, sum(document.entities * (document.entities - 1) for document in batch))
        for part in split_passes(batch, settings.pieces_at_once):
            with autocast(settings.precision, model.device):
                output: PairLogits = model(collate(part, device=model.device))
            pair_losses = model.pair_losses(output)
            loss = pair_losses.sum() * (1 / pairs)
            parts = {"classification": loss}
            if not torch.isfinite(loss):
                rows = output.batch.pair_document[~torch.isfinite(pair_losses)].tolist()
                raise _not_finite("classification", position, [part[row] for row in sorted(set(rows))])
            if extra is not None:
                on_margins = settings.extra_input == "margins"
                dense, mask = output.dense_margins() if on_margins else output.dense_logits(), output.batch.mask
                parts["extra"] = extra(dense, mask) * (len(part) / len(batch))
                if not torch.isfinite(parts["extra"]):
                    alone = [extra(dense[row : row + 1], mask[row : row + 1]) for row in range(len(part))]
                    wrong = [part[row] for row, value in enumerate(alone) if not torch.isfinite(value)]
                    raise _not_finite("extra", position, wrong or part)
                risen = position.ramp(settings.extra_warmup)
                loss = loss + settings.extra_weight * risen * parts["extra"]
            yield loss, parts

    titles = "\0".join(document.title for document in features).encode()
    return TrainingLoop(
        model,
        features,
        losses,
        settings=settings,
        identity={
            "precision": resolve_precision(settings.precision),
            "model": type(model).__name__,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "relations": len(model.relations),
            "documents": hashlib.sha256(titles).hexdigest()[:16],
            "extra": extra is not None,
        },
        lengths=[len(document.pieces) for document in features],
        score=None if score is None else lambda: score(model),
        folder=folder,
        progress=progress,
        groups=_parameter_groups(model, settings),
        describe=_name_documents,
    ).run()


def _parameter_groups(model: Backbone, settings: ExtractorSettings) -> list[dict[str, Any]]:
    slow: list[nn.Parameter] = []
    fast: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            (slow if model.encoder.pretrained and name.startswith("encoder.") else fast).append(parameter)
    return [
        {"params": parameters, "lr": rate, "weight_decay": settings.weight_decay}
        for parameters, rate in ((slow, settings.encoder_rate), (fast, settings.rate))
        if parameters
    ]


def _not_finite(part: str, position: StepPosition, documents: Sequence[DocumentFeatures]) -> DataError:
    return DataError(f"the {part} loss in {position} is not finite, for {_name_documents(documents)}")


def _name_documents(documents: Sequence[DocumentFeatures]) -> str:
    shown = ", ".join(repr(document.title) for document in documents[:TITLES_SHOWN])
    more = f" and {len(documents) - TITLES_SHOWN} more" if len(documents) > TITLES_SHOWN else ""
    return ("document " if len(documents) == 1 else "documents ") + shown + more


WORDS = "words"
SMALL_SIZE, SMALL_BLOCK = 384, 1
"""ATLOP's vectors of a pair over a frozen encoder."""

NETWORKS = ("lstm", "bilstm", "gain", "atlop")


def build_model(
    network: str,
    documents: Sequence[Document],
    *,
    relations: Sequence[str] | None = None,
    encoder: str | os.PathLike[str] | None = None,
    freeze_layers: int = 0,
    frozen: bool = False,
    states: str | os.PathLike[str] | None = None,
    seed: int = 0,
) -> Backbone:
    """Make an untrained network by name (lstm, bilstm, gain, atlop) for documents like these.

    The training documents give the entity types, the words that an encoder without pretraining knows and, unless
    given, the relations. ``encoder`` is ``"words"`` (the only one of lstm and bilstm), ``"minilm"`` (the default of
    gain and atlop), or the folder or name of a Hugging Face model. ``frozen`` leaves that model as it is, so that it
    encodes each document once (`FrozenEncoder`), keeping its states in the folder ``states`` if one is given; what is
    trained is then a small network over them, which also sees names and types. The seed decides the new weights.
    """
    if network not in NETWORKS:
        raise unknown_name("network", network, NETWORKS)
    recurrent = network in ("lstm", "bilstm")
    source = encoder or (WORDS if recurrent else MINILM)
    if recurrent and source != WORDS:
        raise DataError(
            f"{network} reads words without pretraining; its encoder must be {WORDS!r}, got {os.fspath(source)!r}"
        )
    if source == WORDS and (freeze_layers or frozen):
        option = "freeze_layers" if freeze_layers else "frozen"
        raise DataError(f"{option} keeps pretrained layers, but the encoder {WORDS!r} has none")
    types = sorted({entity.type for document in documents for entity in document.entities})
    if relations is None:
        relations = sorted({fact.relation for document in documents for fact in document.facts})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        read: Encoder
        if source == WORDS:
            tokenizer = WordTokenizer.from_documents(documents)
            read = WordEncoder(tokenizer, entity_types=len(types), bidirectional=network != "lstm")
        else:
            pretrained = PretrainedEncoder.load(source, freeze_layers=freeze_layers)
            read = FrozenEncoder(pretrained, folder=states) if frozen else pretrained
        featurizer = Featurizer(read.tokenizer, relations=relations, entity_types=types)
        if recurrent:
            return Recurrent(read, featurizer)
        words = frequent_words(documents) if frozen else ()
        if network == "gain":
            return Gain(read, featurizer, words=words)
        if frozen:
            return Atlop(read, featurizer, size=SMALL_SIZE, block=SMALL_BLOCK, words=words)
        return Atlop(read, featurizer)


def default_settings(network: str) -> ExtractorSettings:
    """The settings to start from for a network; ``dataclasses.replace`` changes some."""
    if network not in NETWORKS:
        raise unknown_name("network", network, NETWORKS)
    if network in ("lstm", "bilstm"):
        # an LSTM is slower in bfloat16; gradients of a mean over relations are too small for ATLOP's epsilon
        return ExtractorSettings(epochs=60, patience=10, rate=1e-3, epsilon=1e-8, precision="float32")
    if network == "gain":
        return ExtractorSettings(rate=1e-3, epsilon=1e-8)
    return ExtractorSettings()
