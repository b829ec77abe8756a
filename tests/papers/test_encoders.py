import importlib
import importlib.util
import itertools

import pytest
import torch
from papers.milr.tiny import RELATIONS, TYPES, random_document, tiny_bert

from rulewright.errors import DataError, FileError, MissingExtraError
from rulewright.papers.documents import Featurizer, collate
from rulewright.papers.encoders import (
    MINILM_PACKAGE,
    PretrainedEncoder,
    Windows,
    WordEncoder,
    WordTokenizer,
    minilm_folder,
    window_bounds,
)

pytestmark = pytest.mark.slow


def encoded(encoder, *documents, **options):
    featurizer = Featurizer(encoder.tokenizer, relations=RELATIONS, entity_types=TYPES)
    batch = collate(featurizer(documents))
    with torch.no_grad():
        return batch, encoder.eval()(batch, **options)


@pytest.mark.parametrize("size", [4, 7, 10])
@pytest.mark.parametrize("overlap", [0, 1, 3])
def test_windows_cover_everything_with_the_least_number(size, overlap):
    for length in range(40):
        bounds = window_bounds(length, size=size, overlap=overlap)
        assert bounds[0][0] == 0 and bounds[-1][1] == length
        assert all(end - start <= size for start, end in bounds)
        assert all(before[1] - after[0] >= overlap for before, after in itertools.pairwise(bounds))
        assert len({end - start for start, end in bounds}) == 1
        if len(bounds) > 1:  # one window fewer would not reach
            assert (len(bounds) - 1) * (size - overlap) + overlap < length


def test_overlap_must_be_smaller_than_a_window():
    with pytest.raises(DataError, match="overlap must be >= 0 and < size"):
        window_bounds(9, size=3, overlap=3)


def slow_average(windows, states, batch, length):
    total, count = torch.zeros(batch, length, states.shape[-1]), torch.zeros(batch, length, 1)
    for window in range(len(windows.text)):
        for piece in range(windows.position.shape[1]):
            if windows.real[window, piece]:
                total[windows.text[window], windows.position[window, piece]] += states[window, piece]
                count[windows.text[window], windows.position[window, piece]] += 1
    return total / count.clamp(min=1)


def test_overlapping_windows_are_averaged():
    lengths = [21, 5, 12]
    windows = Windows.over(lengths, size=9, overlap=2, prefix=1, suffix=1)
    assert len(windows.text) > len(lengths)
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(*windows.position.shape, 3, generator=generator)
    assert torch.allclose(windows.join(states), slow_average(windows, states, 3, 21))
    attention = torch.rand(len(windows.text), 2, *[windows.position.shape[1]] * 2, generator=generator)
    text, place = torch.tensor([0, 0, 0, 1, 2, 2]), torch.tensor([1, 9, 20, 3, 0, 7])
    rows = windows.average_attention(attention, text, place)
    expected = torch.zeros(6, 2, 21)
    for number in range(6):
        seen = [
            (window, piece)
            for window in range(len(windows.text))
            for piece in range(windows.position.shape[1])
            if windows.text[window] == text[number]
            and windows.real[window, piece]
            and windows.position[window, piece] == place[number]
        ]
        for window, piece in seen:
            for column in range(windows.position.shape[1]):
                if windows.real[window, column]:
                    expected[number, :, windows.position[window, column]] += attention[window, :, piece, column] / len(
                        seen
                    )
    assert torch.allclose(rows, expected)


def test_a_document_that_fits_is_one_pass(tmp_path):
    encoder = PretrainedEncoder.load(tiny_bert(tmp_path))
    batch, found = encoded(encoder, random_document(1), with_attention=True)
    with torch.no_grad():
        whole = encoder.model(batch.pieces, output_attentions=True)
    assert torch.equal(found.states, whole.last_hidden_state)
    assert torch.equal(found.attention, whole.attentions[-1][0][:, batch.mention_start].transpose(0, 1))


def test_a_long_document_is_the_average_of_its_windows(tmp_path):
    encoder = PretrainedEncoder.load(tiny_bert(tmp_path, window=24), overlap=5)
    batch, found = encoded(encoder, random_document(1, sentences=6), with_attention=True)
    (length,) = batch.lengths
    total, count = torch.zeros(length, 16), torch.zeros(length, 1)
    rows, shown = torch.zeros(length, 2, length), torch.zeros(length, 1, 1)
    for start, end in window_bounds(length - 2, size=22, overlap=5):
        places = torch.tensor([0, *range(1 + start, 1 + end), length - 1])
        with torch.no_grad():
            output = encoder.model(batch.pieces[:, places], output_attentions=True)
        total[places] += output.last_hidden_state[0]
        count[places] += 1
        for row, place in enumerate(places):
            rows[place][:, places] += output.attentions[-1][0, :, row]
            shown[place] += 1
    assert count.max() > 1
    assert torch.allclose(found.states[0], total / count, atol=1e-6)
    assert torch.allclose(found.attention, (rows / shown)[batch.mention_start], atol=1e-6)
    assert torch.allclose(found.attention.sum(-1), torch.ones(()), atol=1e-5)


@pytest.mark.parametrize("window", [24, 128])
def test_padding_changes_nothing(tmp_path, window):
    encoder = PretrainedEncoder.load(tiny_bert(tmp_path, window=window), overlap=5)
    documents = [random_document(1, sentences=1), random_document(2, sentences=6)]
    batch, together = encoded(encoder, *documents, with_attention=True)
    for number, document in enumerate(documents):
        alone_batch, alone = encoded(encoder, document, with_attention=True)
        (length,) = alone_batch.lengths
        assert torch.allclose(together.states[number, :length], alone.states[0], atol=1e-5)
        mine = together.attention[batch.mention_document == number]
        assert torch.allclose(mine[..., :length], alone.attention, atol=1e-5)
        assert (mine[..., length:] == 0).all()


def test_an_lstm_reads_words_both_ways():
    documents = [random_document(1, sentences=1), random_document(2, sentences=4)]
    encoder = WordEncoder(WordTokenizer.from_documents(documents), entity_types=len(TYPES))
    _, together = encoded(encoder, *documents)
    _, alone = encoded(encoder, documents[0])
    assert alone.states.shape == (1, 8, 128)
    assert torch.allclose(together.states[0, :8], alone.states[0], atol=1e-6)
    with pytest.raises(DataError, match="an LSTM has no attention"):
        encoded(encoder, *documents, with_attention=True)


def test_rare_words_share_a_piece():
    document = random_document(1)
    counted = [word for sentence in document.sentences for word in sentence]
    tokenizer = WordTokenizer.from_documents([document])
    assert set(tokenizer.vocabulary) == {word for word in counted if counted.count(word) > 1}
    assert tokenizer.pieces(["never", tokenizer.vocabulary[0].upper()]) == [(1,), (2,)]


def test_frozen_layers_get_no_gradient(tmp_path):
    encoder = PretrainedEncoder.load(tiny_bert(tmp_path), freeze_layers=1)
    frozen = {name for name, each in encoder.named_parameters() if not each.requires_grad}
    assert frozen == {
        name for name, _ in encoder.named_parameters() if "embeddings" in name or "encoder.layer.0." in name
    }
    with pytest.raises(DataError, match="freeze_layers must be >= 0 and <= 2, got 3"):
        PretrainedEncoder.load(tiny_bert(tmp_path), freeze_layers=3)


def test_an_encoder_that_is_not_there_is_named(tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed (extra nlp)")
    with pytest.raises(FileError, match=r"cannot load encoder .*nowhere"):
        PretrainedEncoder.load(tmp_path / "nowhere")
    with pytest.raises(FileError, match="download=True"):
        PretrainedEncoder.load("no-such-organization/no-such-model")


def test_missing_extras_name_the_command(monkeypatch):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"pip install -c constraints.txt 'rulewright\[nlp\]'"):
        PretrainedEncoder.load("anything")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"rulewright\[nlp\]"):
        minilm_folder()


@pytest.mark.skipif(
    importlib.util.find_spec(MINILM_PACKAGE) is None or importlib.util.find_spec("transformers") is None,
    reason="MiniLM is not installed (extra nlp)",
)
def test_minilm():
    encoder = PretrainedEncoder.load()
    batch, found = encoded(encoder, random_document(1), with_attention=True)
    assert found.states.shape == (1, *batch.pieces.shape[1:], 384)
    assert found.attention.shape == (len(batch.mention_start), 12, batch.pieces.shape[1])
    assert encoder.window == 512
