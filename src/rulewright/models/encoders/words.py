"""An encoder without pretraining: embeddings of words, entity types and coreference under an LSTM (Yao et al. 2019)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from rulewright.errors import DataError
from rulewright.io.docred import Document
from rulewright.models.batches import Batch
from rulewright.models.encoders.interface import Encoded, Encoder
from rulewright.models.encoders.tags import EntityTags

UNKNOWN = 1  # 0 is padding
FIRST_WORD = 2


class WordTokenizer:
    """One piece for each word, in lower case; words outside the vocabulary share one."""

    prefix: tuple[int, ...] = ()
    suffix: tuple[int, ...] = ()
    marker: tuple[int, ...] = ()

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self.vocabulary = tuple(vocabulary)
        self._index = {word: FIRST_WORD + index for index, word in enumerate(self.vocabulary)}

    @classmethod
    def from_documents(cls, documents: Iterable[Document], *, min_count: int = 2) -> WordTokenizer:
        """Know the words that occur at least ``min_count`` times; the rarer ones teach the embedding of the unknown."""
        counts = Counter(word.lower() for each in documents for sentence in each.sentences for word in sentence)
        return cls(sorted(word for word, count in counts.items() if count >= min_count))

    def pieces(self, words: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the one piece of each word."""
        return [(self._index.get(word.lower(), UNKNOWN),) for word in words]


class WordEncoder(Encoder):
    """``h = relu(W·LSTM([E_word; E_type; E_coreference]))``, with the LSTM in one direction or both."""

    pretrained = False
    sees_entities = True
    has_attention = False

    def __init__(
        self,
        tokenizer: WordTokenizer,
        *,
        entity_types: int,
        bidirectional: bool = True,
        word_size: int = 100,
        hidden_size: int = 128,
        dropout: float = 0.2,
    ) -> None:
        super().__init__()
        self.tokenizer = tokenizer
        self.hidden_size = hidden_size
        self.words = nn.Embedding(FIRST_WORD + len(tokenizer.vocabulary), word_size, padding_idx=0)
        self.tags = EntityTags(entity_types)
        self.lstm = nn.LSTM(word_size + self.tags.size, hidden_size, bidirectional=bidirectional, batch_first=True)
        self.project = nn.Linear(hidden_size * (1 + bidirectional), hidden_size)
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: Batch, *, with_attention: bool = False) -> Encoded:
        """Encode the words of a batch."""
        if with_attention:
            raise DataError("an LSTM has no attention; choose a transformer as encoder")
        inputs = self.dropout(torch.cat([self.words(batch.pieces), self.tags(batch)], -1))
        packed = pack_padded_sequence(inputs, torch.tensor(batch.lengths), batch_first=True, enforce_sorted=False)
        states, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        projected: Tensor = torch.relu(self.project(self.dropout(states)))
        return Encoded(projected)
