"""Forms in tensors, the network over pairs of words, and vectors of words."""

from __future__ import annotations

import pytest
import torch
from papers.logicmp.tiny_forms import SIZE, made_vectors, random_form, tiny_forms
from papers.milr.tiny import tiny_bert

from rulewright.errors import DataError
from rulewright.io.funsd import Block, Form, Word
from rulewright.io.scenes import PixelBox
from rulewright.papers.encoders import PretrainedEncoder, WordEncoder, WordTokenizer
from rulewright.papers.logicmp.form_network import (
    GEOMETRY,
    NO_LABEL,
    FormNetwork,
    box_waves,
    collate_forms,
    form_features,
    form_losses,
    neighbours,
    pair_geometry,
    pretrained_vectors,
    reading_order,
    vary,
    word_vectors,
)

pytestmark = pytest.mark.slow


def network(**options) -> FormNetwork:
    torch.manual_seed(0)
    return FormNetwork(
        SIZE, **{"size": 16, "heads": 2, "pair_size": 4, "dropout": 0.0, "vector_dropout": 0.0, **options}
    ).eval()


def test_features_follow_the_file():
    form = random_form(0)
    (found,) = form_features([form], made_vectors)
    assert found.words == len(form.words)
    assert found.block.tolist() == [number for number, each in enumerate(form.blocks) for _ in each.words]
    assert torch.allclose(found.boxes * 1000, torch.tensor([word.box for word in form.words]).float())


def test_a_block_without_words_has_no_pairs():
    box = PixelBox(0, 0, 9, 9)
    form = Form("a", (Block(0, "other", (), (), box), Block(1, "answer", (Word("x", box),), (), box)))
    (found,) = form_features([form], made_vectors)
    assert (found.block.tolist(), found.label.tolist()) == ([1], [1])
    with pytest.raises(DataError, match="'b' has no words"):
        form_features([Form("b", form.blocks[:1])], made_vectors)


def test_reading_order_forgets_blocks_and_keeps_truth():
    form = random_form(3, blocks=6)
    file, reading = (form_features([form], made_vectors, order=order)[0] for order in ("file", "reading"))
    place = reading_order(form.words)
    assert sorted(place) == list(range(file.words))
    for name in ("vectors", "boxes", "looks", "block", "label"):
        assert torch.equal(getattr(reading, name), getattr(file, name)[place])
    tops = reading.boxes[:, 1]
    assert (tops.diff() >= 0).all()
    with pytest.raises(DataError, match="order must be one of file, reading"):
        form_features([form], made_vectors, order="random")


def test_batches_are_padded_and_masked():
    forms = tiny_forms(3)
    batch = collate_forms(forms)
    for number, form in enumerate(forms):
        n = form.words
        assert torch.equal(batch.coexist[number, :n, :n], form.block[:, None] == form.block[None, :])
        assert not batch.coexist[number, n:].any()
        assert not batch.coexist[number, :, n:].any()
        assert (batch.label[number, n:] == NO_LABEL).all()
    assert batch.mask.sum(-1).tolist() == [each.words for each in forms]


def test_geometry_of_two_words():
    boxes = torch.tensor([[[0.1, 0.1, 0.2, 0.12], [0.22, 0.1, 0.3, 0.12], [0.1, 0.5, 0.2, 0.52]]])
    found = pair_geometry(boxes)
    assert found.shape == (1, 3, 3, GEOMETRY)
    same_line = found[0, :, :, 8]
    assert same_line.tolist() == [[1, 1, 0], [1, 1, 0], [0, 0, 1]]
    gap = torch.atanh(found[0, 0, 1, 5]) * 2  # in heights: (0.22 − 0.2) / 0.02
    assert gap.item() == pytest.approx(1, abs=1e-4)
    assert torch.allclose(found[0, 0, 1, :4], -found[0, 1, 0, :4])
    beside = neighbours(found, torch.ones(1, 3, dtype=torch.bool))
    assert torch.equal(beside[0, 1], torch.cat([found[0, 1, 0], found[0, 1, 2]]))
    assert not beside[0, 0, :GEOMETRY].any()
    assert not beside[0, 2, GEOMETRY:].any()
    assert box_waves(boxes).abs().max() <= 1


def test_padding_changes_nothing():
    forms = tiny_forms(4)
    model = network()
    together = model(collate_forms(forms))
    for number, form in enumerate(forms):
        alone = model(collate_forms([form]))
        n = form.words
        assert torch.allclose(together.coexist[number, :n, :n], alone.coexist[0], atol=1e-5)
        assert torch.allclose(together.labels[number, :n], alone.labels[0], atol=1e-5)
    losses = [form_losses(model(collate_forms([form])), collate_forms([form]))["pairs"] for form in forms]
    blocks = torch.tensor([len(set(form.block.tolist())) for form in forms])
    mean = (torch.stack(losses) * blocks).sum() / blocks.sum()
    assert form_losses(together, collate_forms(forms))["pairs"].item() == pytest.approx(mean.item(), rel=1e-4)


def test_symmetry_is_a_choice():
    batch = collate_forms(tiny_forms(1))
    even, uneven = network()(batch).coexist, network(symmetric=False)(batch).coexist
    assert torch.allclose(even, even.transpose(1, 2))
    assert torch.allclose(even, (uneven + uneven.transpose(1, 2)) / 2, atol=1e-6)
    assert not torch.allclose(uneven, uneven.transpose(1, 2))
    with pytest.raises(DataError, match="multiple of heads"):
        network(heads=3)


def test_the_loss_by_hand():
    (form,) = tiny_forms(1)
    batch = collate_forms([form])
    output = network()(batch)
    total, sizes = 0.0, torch.bincount(form.block)
    for a in range(form.words):
        for b in range(form.words):
            logit = output.coexist[0, a, b].item()
            sign = 1 if form.block[a] == form.block[b] else -1
            cost = torch.log1p(torch.exp(torch.tensor(-sign * logit))).item()
            total += cost / (sizes[form.block[a]] * sizes[form.block[b]]).item()
    found = form_losses(output, batch)["pairs"].item()
    assert found == pytest.approx(total / int((sizes > 0).sum()), rel=1e-4)


def test_word_vectors_are_means_of_pieces(tmp_path):
    encoder = PretrainedEncoder.load(tiny_bert(tmp_path / "bert"))
    texts = [["w1", "w28", "w2"], ["w3"], ["w5"] * 200]
    found = word_vectors(texts, encoder)
    assert [tuple(each.shape) for each in found] == [(3, 16), (1, 16), (200, 16)], "long texts go through windows"
    tokenizer = encoder.tokenizer
    pieces = tokenizer.pieces(texts[0])
    assert [len(each) for each in pieces] == [1, 2, 1]
    ids = torch.tensor([[*tokenizer.prefix, *(piece for each in pieces for piece in each), *tokenizer.suffix]])
    with torch.no_grad():
        states = encoder.model(input_ids=ids).last_hidden_state[0]
    assert torch.allclose(found[0][1], states[2:4].mean(0), atol=1e-5)
    kept = pretrained_vectors(texts, tmp_path / "bert", folder=tmp_path / "kept")
    (file,) = (tmp_path / "kept").iterdir()
    before = file.stat().st_mtime_ns
    again = pretrained_vectors(texts, tmp_path / "bert", folder=tmp_path / "kept")
    assert file.stat().st_mtime_ns == before
    for first, second, third in zip(found, kept, again, strict=True):
        assert torch.equal(second, third)
        assert torch.allclose(first, second, atol=1e-6)


def test_an_encoder_of_words_serves_too():
    from rulewright.io.docred import Document

    tokenizer = WordTokenizer.from_documents([Document("a", (("w1", "w2"),), (), ())])
    encoder = WordEncoder(tokenizer, entity_types=0)
    (found,) = word_vectors([["w1", "unheard", "w2"]], encoder)
    assert found.shape == (3, encoder.hidden_size)


def test_varied_forms_keep_words_and_order():
    (form,) = tiny_forms(1)
    torch.manual_seed(0)
    other = vary(form)
    assert torch.equal(other.block, form.block)
    assert 0 < (other.boxes - form.boxes).abs().max() < 0.2
    torch.manual_seed(0)
    assert torch.equal(vary(form).boxes, other.boxes)
    still = vary(form, shift=0.0, jitter=0.0)
    assert torch.equal(still.boxes, form.boxes)
