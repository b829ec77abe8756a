"""Small generated documents, and a small random BERT in a folder that stands for any Hugging Face model."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from rulewright.io.docred import Document, Entity, Fact, Mention
from rulewright.papers.documents import DocumentBatch, collate
from rulewright.papers.milr.networks import Backbone
from rulewright.papers.milr.training import build_model

WORDS = [f"w{number}" for number in range(30)]
RELATIONS = ("born_in", "capital_of", "part_of")
TYPES = ("LOC", "PER")
KINDS = ("lstm", "bilstm", "gain", "atlop")


def random_document(seed: int, *, entities: int = 4, sentences: int = 3, length: int = 8, facts: int = 4) -> Document:
    """A document whose mentions may share words, with up to three mentions an entity."""
    chance = random.Random(seed)
    text = tuple(tuple(chance.choice(WORDS) for _ in range(length)) for _ in range(sentences))

    def mention(name: str, kind: str) -> Mention:
        start = chance.randrange(length - 2)
        return Mention(name, kind, chance.randrange(sentences), start, start + chance.randint(1, 2))

    found = []
    for number in range(entities):
        name, kind = f"e{number}", chance.choice(TYPES)
        found.append(Entity(tuple(mention(name, kind) for _ in range(chance.randint(1, 3)))))
    pairs = [(head, tail) for head in range(entities) for tail in range(entities) if head != tail]
    chosen = chance.sample(pairs, min(facts, len(pairs)))
    return Document(
        f"document {seed}",
        text,
        tuple(found),
        tuple(Fact(head, chance.choice(RELATIONS), tail) for head, tail in chosen),
    )


def permuted(document: Document, order: list[int]) -> Document:
    """The same document with its entities listed in another order."""
    place = {old: new for new, old in enumerate(order)}
    facts = tuple(Fact(place[each.head], each.relation, place[each.tail]) for each in document.facts)
    return replace(document, entities=tuple(document.entities[old] for old in order), facts=facts)


def tiny_bert(folder: Path, *, window: int = 128, dropout: float = 0.0) -> Path:
    """Save a random BERT of two layers with its tokenizer."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed (extra nlp)")
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "*",
        "w",
        *(f"##{digit}" for digit in range(10)),
        *WORDS,
    ]
    (folder / "vocab.txt").write_text("\n".join(vocabulary[:-5]) + "\n")  # the last words fall into two pieces or more
    transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=window,
        hidden_dropout_prob=dropout,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        transformers.BertModel(config).save_pretrained(folder)
    return folder


def tiny_model(kind: str, documents: list[Document], folder: Path, *, seed: int = 0, dropout: float = 0.0) -> Backbone:
    """A network of a kind, on the random BERT unless it is recurrent."""
    encoder = None if kind in ("lstm", "bilstm") else tiny_bert(folder / "bert", dropout=dropout)
    if kind == "atlop":
        from rulewright.papers.documents import Featurizer
        from rulewright.papers.encoders import PretrainedEncoder
        from rulewright.papers.milr.networks import Atlop

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            read = PretrainedEncoder.load(encoder)
            return Atlop(read, Featurizer(read.tokenizer, relations=RELATIONS, entity_types=TYPES), block=8)
    return build_model(kind, documents, relations=RELATIONS, encoder=encoder, seed=seed)


def batch_of(model: Backbone, *documents: Document) -> DocumentBatch:
    """The documents as one batch for the model."""
    return collate(model.features(documents))
