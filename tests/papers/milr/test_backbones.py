import math

import pytest
import torch
from papers.milr.tiny import KINDS, RELATIONS, TYPES, batch_of, permuted, random_document, tiny_bert, tiny_model

from rulewright.errors import DataError, UnknownNameError
from rulewright.papers.documents import NOT_A_PAIR, Featurizer
from rulewright.papers.encoders import WordEncoder, WordTokenizer
from rulewright.papers.milr.gain import PathAttention, entity_edges, mention_edges
from rulewright.papers.milr.networks import (
    DISTANCE_CLASSES,
    Atlop,
    DistanceBilinear,
    GroupedBilinear,
    adaptive_threshold_loss,
    binary_cross_entropy,
    distance_class,
    entity_logsumexp,
    entity_means,
    localized_context,
    mention_means,
    mention_starts,
)
from rulewright.papers.milr.training import build_model, default_settings

pytestmark = pytest.mark.slow

DOCUMENTS = [
    random_document(1, entities=4),
    random_document(2, entities=6, sentences=5),
    random_document(3, entities=1),
]


@pytest.fixture(params=KINDS)
def model(request, tmp_path):
    return tiny_model(request.param, DOCUMENTS, tmp_path).eval()


def logits_of(model, *documents):
    with torch.no_grad():
        return model(batch_of(model, *documents))


def test_shapes_and_masks(model):
    output = logits_of(model, *DOCUMENTS)
    assert output.logits.shape == (4 * 3 + 6 * 5, len(RELATIONS))
    dense = output.dense_logits()
    assert dense.shape == (3, 6, 6, len(RELATIONS))
    sizes = torch.tensor([4, 6, 1])
    real = torch.arange(6)[None, :] < sizes[:, None]
    assert torch.equal(output.batch.mask, real)
    pair = real[:, :, None] & real[:, None, :] & ~torch.eye(6, dtype=torch.bool)
    assert (dense[~pair] == NOT_A_PAIR).all() and torch.isfinite(dense[pair]).all()
    assert (dense[pair] != NOT_A_PAIR).all()
    if isinstance(model, Atlop):
        assert output.dense_thresholds().shape == (3, 6, 6)
        expected = dense[pair] - output.dense_thresholds()[pair][:, None]
        assert torch.equal(output.dense_margins()[pair], expected)
    else:
        assert output.thresholds is None and output.dense_thresholds() is None
        assert torch.equal(output.margins(), output.logits)


def test_documents_do_not_see_each_other(model):
    together = logits_of(model, *DOCUMENTS).dense_logits()
    for number, document in enumerate(DOCUMENTS):
        n = len(document.entities)
        alone = logits_of(model, document).dense_logits()[0]
        assert torch.allclose(together[number, :n, :n], alone, atol=1e-5)


def test_permuting_entities_permutes_logits(model):
    order = [2, 0, 3, 1]
    dense = logits_of(model, DOCUMENTS[0]).dense_margins()[0]
    assert torch.allclose(
        logits_of(model, permuted(DOCUMENTS[0], order)).dense_margins()[0], dense[order][:, order], atol=1e-5
    )
    assert not torch.allclose(dense, dense[order][:, order], atol=1e-3)


@pytest.mark.parametrize("counts", [(0,), (1,), (0, 1), (2, 0)])
def test_few_entities_give_few_pairs_and_a_gradient(model, counts):
    documents = [random_document(9 + number, entities=count) for number, count in enumerate(counts)]
    model.train()
    output = model(batch_of(model, *documents))
    losses = model.pair_losses(output)
    assert losses.shape == (sum(count * (count - 1) for count in counts),)
    losses.sum().backward()
    assert all(torch.isfinite(each.grad).all() for each in model.parameters() if each.grad is not None)
    assert output.dense_logits().shape == (len(counts), max(counts), max(counts), len(RELATIONS))


def test_pooling_equals_loops():
    encoder = WordEncoder(WordTokenizer([]), entity_types=len(TYPES))
    model = tiny_model("bilstm", DOCUMENTS, None)
    batch = batch_of(model, *DOCUMENTS)
    states = torch.randn(3, batch.pieces.shape[1], 5, generator=torch.Generator().manual_seed(0))
    attention = torch.rand(
        len(batch.mention_start), 2, batch.pieces.shape[1], generator=torch.Generator().manual_seed(1)
    )
    starts, means = mention_starts(states, batch), mention_means(states, batch)
    entities, smooth = entity_means(means, batch), entity_logsumexp(starts, batch)
    contexts = localized_context(states, attention, batch)
    at = entity = pair = 0
    for number, (document, features) in enumerate(zip(DOCUMENTS, batch.documents, strict=True)):
        rows = []
        for each in document.entities:
            found = []
            for _ in each.mentions:
                start, end = batch.mention_start[at], batch.mention_end[at]
                assert torch.equal(starts[at], states[number, start])
                assert torch.allclose(means[at], states[number, start:end].mean(0))
                found.append(at)
                at += 1
            assert torch.allclose(entities[entity], means[found].mean(0), atol=1e-6)
            slow = [math.log(sum(math.exp(starts[m, k]) for m in found)) for k in range(5)]
            assert torch.allclose(smooth[entity], torch.tensor(slow), atol=1e-5)
            rows.append(attention[found].mean(0))
            entity += 1
        length = len(features.pieces)
        for i in range(len(rows)):
            for j in range(i + 1, len(rows)):
                weights = [
                    sum(float(rows[i][k, piece] * rows[j][k, piece]) for k in range(2)) for piece in range(length)
                ]
                slow_context = sum(
                    weight / sum(weights) * states[number, piece] for piece, weight in enumerate(weights)
                )
                assert torch.allclose(contexts[pair], slow_context, atol=1e-5)
                pair += 1
    assert pair == len(contexts) and encoder.hidden_size == 128


def test_entities_without_shared_attention_have_no_context():
    model = tiny_model("bilstm", DOCUMENTS, None)
    batch = batch_of(model, random_document(1, entities=2))
    attention = torch.zeros(len(batch.mention_start), 2, batch.pieces.shape[1], requires_grad=True)
    context = localized_context(torch.ones(1, batch.pieces.shape[1], 3), attention, batch)
    context.sum().backward()
    assert torch.equal(context, torch.zeros(1, 3)) and torch.isfinite(attention.grad).all()


def slow_adaptive_loss(logits, threshold, labels):
    positive = [each for each, label in zip(logits, labels, strict=True) if label]
    negative = [each for each, label in zip(logits, labels, strict=True) if not label]
    with_threshold = sum(math.exp(each) for each in [*positive, threshold])
    first = -sum(math.log(math.exp(each) / with_threshold) for each in positive)
    second = -math.log(math.exp(threshold) / sum(math.exp(each) for each in [*negative, threshold]))
    return first + second


def test_adaptive_threshold_loss_equals_loops():
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20, 4, generator=generator, dtype=torch.double) * 3
    thresholds = torch.randn(20, generator=generator, dtype=torch.double)
    labels = torch.rand(20, 4, generator=generator) < 0.4
    labels[0], labels[1] = True, False
    found = adaptive_threshold_loss(logits, thresholds, labels)
    expected = [
        slow_adaptive_loss(*row) for row in zip(logits.tolist(), thresholds.tolist(), labels.tolist(), strict=True)
    ]
    assert torch.allclose(found, torch.tensor(expected, dtype=torch.double))
    inputs = (logits[:4].requires_grad_(), thresholds[:4].requires_grad_())
    assert torch.autograd.gradcheck(lambda a, b: adaptive_threshold_loss(a, b, labels[:4]), inputs)


def test_losses_stay_finite_far_out():
    logits = torch.tensor([[1e4, -1e4, 0.0]], requires_grad=True)
    labels = torch.tensor([[False, True, False]])
    thresholds = torch.zeros(1, requires_grad=True)
    total = adaptive_threshold_loss(logits, thresholds, labels) + binary_cross_entropy(logits, labels)
    total.sum().backward()
    assert torch.isfinite(total).all() and torch.isfinite(logits.grad).all() and torch.isfinite(thresholds.grad).all()


def test_grouped_bilinear_equals_loops(monkeypatch):
    layer = GroupedBilinear(6, 3, block=2)
    left, right = torch.randn(2, 5, 6)
    weight = layer.linear.weight.view(3, 3, 2, 2)  # output, group, left, right
    expected = layer.linear.bias + sum(
        torch.einsum("pa,oab,pb->po", left[:, 2 * g : 2 * g + 2], weight[:, g], right[:, 2 * g : 2 * g + 2])
        for g in range(3)
    )
    found = layer(left, right)
    assert torch.allclose(found, expected, atol=1e-6)
    found.sum().backward()
    gradient = layer.linear.weight.grad.clone()
    layer.zero_grad()
    monkeypatch.setattr("rulewright.papers.milr.networks.PAIRS_AT_ONCE", 2)
    monkeypatch.setattr("rulewright.papers.milr.networks.PAIRS_TO_KEEP", 1)  # many pairs: in chunks, computed again
    again = layer(left, right)
    again.sum().backward()
    assert torch.allclose(again, found, atol=1e-6) and torch.allclose(layer.linear.weight.grad, gradient, atol=1e-6)
    with pytest.raises(DataError, match="block must divide the size 6, got 4"):
        GroupedBilinear(6, 3, block=4)


def test_distance_bilinear_equals_the_plain_product():
    batch = batch_of(tiny_model("lstm", DOCUMENTS, None), *DOCUMENTS)
    layer = DistanceBilinear(5, 3, distance_size=2)
    entities = torch.randn(len(batch.entity_document), 5)
    found = layer(entities, batch)
    for pair in range(len(batch.head)):
        there, back = distance_class(batch.pair_distance[pair]), distance_class(-batch.pair_distance[pair])
        left = torch.cat([entities[batch.head[pair]], layer.distance.weight[there]])
        right = torch.cat([entities[batch.tail[pair]], layer.distance.weight[back]])
        assert torch.allclose(
            found[pair], torch.einsum("a,arb,b->r", left, layer.weight, right) + layer.bias, atol=1e-5
        )
    every = distance_class(torch.arange(-2000, 2000))
    assert every.min() == 0 and every.max() == DISTANCE_CLASSES - 1 and (every.diff() >= 0).all()


def test_graphs_equal_loops():
    batch = batch_of(tiny_model("lstm", DOCUMENTS, None), *DOCUMENTS)
    edges, joined = mention_edges(batch), entity_edges(batch)
    mentions = len(batch.mention_entity)
    expected = torch.zeros_like(edges)
    pairs = set()
    for i in range(mentions):
        for j in range(mentions):
            near = batch.mention_document[i] == batch.mention_document[j]
            near &= batch.mention_sentence[i] == batch.mention_sentence[j]
            same = batch.mention_entity[i] == batch.mention_entity[j]
            expected[0, i, j] = float(same and i != j)
            expected[1, i, j] = float(near and not same)
            if near and not same:
                pairs.add((int(batch.mention_entity[i]), int(batch.mention_entity[j])))
        document = mentions + int(batch.mention_document[i])
        expected[2, i, document] = expected[2, document, i] = 1
    assert torch.allclose(edges, expected / expected.sum(-1, keepdim=True).clamp(min=1))
    for pair in range(len(batch.head)):
        head, tail = int(batch.head[pair]), int(batch.tail[pair])
        assert bool(batch.pairs(joined)[pair]) == ((head, tail) in pairs)
    assert int(joined.sum()) == len(pairs) and len(pairs) > 0


def test_path_attention_equals_loops():
    batch = batch_of(tiny_model("lstm", DOCUMENTS, None), *DOCUMENTS)
    joined = entity_edges(batch)
    layer = PathAttention(5, size=3)
    entities = torch.randn(len(batch.entity_document), 5, generator=torch.Generator().manual_seed(0))
    found = layer(entities, joined, batch)
    local = batch.entity_cell % batch.mask.shape[1]
    without = 0

    def edge(i, j):
        return torch.relu(layer.start(entities[i]) + layer.end(entities[j]))

    for pair in range(len(batch.head)):
        head, tail, document = batch.head[pair], batch.tail[pair], batch.pair_document[pair]
        paths, scores = [], []
        for middle in torch.nonzero(batch.entity_document == document).flatten():
            if joined[document, local[head], local[middle]] and joined[document, local[middle], local[tail]]:
                path = torch.cat([edge(head, middle), edge(middle, head), edge(tail, middle), edge(middle, tail)])
                asked = layer.head_asks(entities[head]) + layer.tail_asks(entities[tail])
                paths.append(path)
                scores.append(torch.relu(asked @ path))
        without += not paths
        expected = torch.softmax(torch.stack(scores), 0) @ torch.stack(paths) if paths else torch.zeros(12)
        assert torch.allclose(found[pair], expected, atol=1e-5)
    assert 0 < without < len(batch.head)


def test_same_seed_same_weights(tmp_path):
    first, second, other = (tiny_model("bilstm", DOCUMENTS, tmp_path, seed=seed) for seed in (1, 1, 2))
    for name, weight in first.state_dict().items():
        assert torch.equal(weight, second.state_dict()[name]), name
    assert not torch.equal(first.scores.weight, other.scores.weight)


def test_what_cannot_be_built_is_named(tmp_path):
    with pytest.raises(UnknownNameError, match="unknown network 'atlopp'; did you mean 'atlop'"):
        build_model("atlopp", DOCUMENTS)
    with pytest.raises(UnknownNameError, match="unknown network"):
        default_settings("x")
    with pytest.raises(DataError, match="its encoder must be 'words', got 'minilm'"):
        build_model("lstm", DOCUMENTS, encoder="minilm")
    with pytest.raises(DataError, match="ATLOP pools by attention"):
        build_model("atlop", DOCUMENTS, encoder="words")
    with pytest.raises(DataError, match="freeze_layers keeps pretrained layers"):
        build_model("gain", DOCUMENTS, encoder="words", freeze_layers=1)


def test_relations_and_types_come_from_the_documents(tmp_path):
    model = build_model("gain", DOCUMENTS, encoder=tiny_bert(tmp_path))
    assert model.relations == tuple(sorted({fact.relation for each in DOCUMENTS for fact in each.facts}))
    assert isinstance(model.featurizer, Featurizer) and model.featurizer.entity_types == TYPES
    assert model.tags is not None
    assert build_model("gain", DOCUMENTS, encoder="words").tags is None
