"""Encoders that stay as they are: the states of the encoder itself, once for each document, kept in files."""

import pytest
import torch
from papers.milr.tiny import RELATIONS, TYPES, random_document, tiny_bert

from rulewright.io.docred import Document, Entity, Fact, Mention
from rulewright.papers.documents import Featurizer, collate, write_names_as_text
from rulewright.papers.encoders import PretrainedEncoder
from rulewright.papers.frozen import EntityReader, FrozenEncoder, frequent_words
from rulewright.papers.milr.networks import Atlop, localized_context
from rulewright.papers.milr.training import ExtractorSettings, build_model, train_extractor

pytestmark = pytest.mark.slow

DOCUMENTS = [random_document(seed, entities=3 + seed % 3) for seed in range(5)]


@pytest.fixture
def encoder(tmp_path):
    return PretrainedEncoder.load(tiny_bert(tmp_path / "bert"))


def batch_for(encoder, documents):
    featurizer = Featurizer(encoder.tokenizer, relations=RELATIONS, entity_types=TYPES)
    return collate(featurizer(documents))


def test_states_and_attention_are_those_of_the_encoder(encoder, tmp_path):
    batch = batch_for(encoder, DOCUMENTS)
    with torch.no_grad():
        expected = encoder.eval()(batch, with_attention=True)
    for folder in (None, tmp_path / "states", tmp_path / "states"):  # the third reads what the second wrote
        found = FrozenEncoder(encoder, folder=folder)(batch, with_attention=True)
        real = batch.pieces.new_zeros(batch.pieces.shape, dtype=torch.bool)
        for row, length in enumerate(batch.lengths):
            real[row, :length] = True
        assert torch.allclose(found.states[real], expected.states[real], atol=5e-3)
        assert not found.states[~real].any()
        assert torch.allclose(found.attention, expected.attention, atol=1e-3)
    assert len([*(tmp_path / "states").rglob("*.safetensors")]) == len(DOCUMENTS)


def test_a_document_is_encoded_once(encoder, monkeypatch):
    frozen = FrozenEncoder(encoder)
    batch = batch_for(encoder, DOCUMENTS[:2])
    calls = []
    forward = encoder.forward
    monkeypatch.setattr(encoder, "forward", lambda *args, **options: calls.append(1) or forward(*args, **options))
    for _ in range(3):
        frozen(batch)
        frozen.contexts(batch, localized_context)
    assert len(calls) == 2


def test_contexts_are_those_of_each_document_alone(encoder):
    frozen = FrozenEncoder(encoder)
    batch = batch_for(encoder, DOCUMENTS)
    encoded = frozen(batch, with_attention=True)
    expected = localized_context(encoded.states, encoded.attention, batch)
    assert torch.allclose(frozen.contexts(batch, localized_context), expected, atol=5e-3)


def test_names_are_means_over_pieces_and_names(encoder):
    entities = (
        Entity((Mention("w1", "LOC", 0, 0, 1), Mention("w2 w3", "LOC", 0, 1, 3), Mention("w1", "LOC", 0, 3, 4))),
        Entity((Mention("w2 w3", "LOC", 0, 1, 3),)),
    )
    batch = batch_for(encoder, [Document("A", (("w1", "w2", "w3", "w1"),), entities)])
    frozen = FrozenEncoder(encoder)
    states = frozen.name_states(batch)

    def alone(words):
        pieces = [piece for word in encoder.tokenizer.pieces(words) for piece in word]
        row = torch.tensor([[*encoder.tokenizer.prefix, *pieces, *encoder.tokenizer.suffix]])
        with torch.no_grad():
            return encoder.eval().model(input_ids=row).last_hidden_state[0].mean(0)

    first, second = alone(["w1"]), alone(["w2", "w3"])
    assert torch.allclose(states[0], (first + second) / 2, atol=5e-3)
    assert torch.allclose(states[1], second, atol=5e-3)


@pytest.mark.parametrize("network", ["atlop", "gain"])
def test_a_small_network_learns_and_keeps_no_encoder(network, tmp_path):
    folder = tiny_bert(tmp_path / "bert")
    model = build_model(
        network, DOCUMENTS, relations=RELATIONS, encoder=folder, frozen=True, states=tmp_path / "states"
    )
    assert not any(name.startswith("encoder") for name in model.state_dict())
    settings = ExtractorSettings(epochs=30, patience=None, rate=3e-3, epsilon=1e-8, precision="float32")
    history = train_extractor(model, DOCUMENTS, settings=settings).history
    assert history[-1].losses["classification"] < history[0].losses["classification"] / 2


def test_the_reader_sees_types_names_and_numbers_of_mentions(encoder):
    one = Entity((Mention("w1", "LOC", 0, 0, 1),))
    others = {
        "type": Entity((Mention("w1", "PER", 0, 0, 1),)),
        "name": Entity((Mention("w2", "LOC", 0, 0, 1),)),
        "mentions": Entity((Mention("w1", "LOC", 0, 0, 1), Mention("w1", "LOC", 0, 0, 1))),
    }
    frozen = FrozenEncoder(encoder)
    reader = EntityReader(frozen, 16, 16, types=len(TYPES), words=["w1", "=w2"], dropout=0.0).eval()
    text = (("w1", "w2"),)

    def read(entity):
        batch = batch_for(encoder, [Document("A", text, (entity,))])
        return reader(torch.zeros(1, 16), batch)

    for other in others.values():
        assert not torch.allclose(read(one), read(other))


def test_words_of_names_have_vectors_and_unknown_ones_none(encoder):
    assert frequent_words(DOCUMENTS, least=5) == ["=e0", "=e1", "=e2", "e0", "e1", "e2"]
    frozen = FrozenEncoder(encoder)
    reader = EntityReader(frozen, 16, 16, types=len(TYPES), words=["w1", "=w1"], dropout=0.0).eval()
    entities = tuple(Entity((Mention(name, "LOC", 0, 0, 1),)) for name in ("w1", "w2", "w1 w2"))
    read = reader._read_words(batch_for(encoder, [Document("A", (("w1", "w2"),), entities)]))
    assert torch.allclose(read, torch.stack([reader.words.weight.sum(0), torch.zeros(16), reader.words.weight[0]]))


def test_names_written_as_text_can_be_learned_from(encoder):
    mentions = [Mention("w1 w2", "LOC", characters=(50, 60)), Mention("w3", "PER", characters=(0, 4))]
    mentions.append(Mention("w1", "LOC", characters=(400, 404)))
    document = Document("A", (), (Entity((mentions[0], mentions[2])), Entity((mentions[1],))), (Fact(0, "part_of", 1),))
    written = write_names_as_text(document)
    assert written.sentences == (("w3", ",", "w1", "w2", ".", "w1"),)
    spans = [[(mention.start, mention.end) for mention in entity.mentions] for entity in written.entities]
    assert spans == [[(2, 4), (5, 6)], [(0, 1)]]
    assert written.facts == document.facts
    assert write_names_as_text(written) is written
    read = FrozenEncoder(encoder)
    model = Atlop(read, Featurizer(read.tokenizer, relations=RELATIONS, entity_types=TYPES), size=16, block=1)
    assert model(collate(model.features([written]))).logits.shape == (2, 3)
