"""The tagger: its features, batches that do not see each other, training that learns, stops and goes on."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
import torch

from rulewright.errors import DataError, UnknownNameError
from rulewright.io.conll import Sentence, bioes_classes
from rulewright.papers.logicmp.sentences import FIRST, LONGEST_WORD, UNKNOWN, SentenceFeaturizer
from rulewright.papers.logicmp.tagger import (
    BothWays,
    ChainHead,
    LogicHead,
    MeanFieldHead,
    PenalisedHead,
    Tagger,
    TaggingHead,
    TaggingModel,
    train_tagger,
)
from rulewright.training.loop import TrainingSettings

pytestmark = pytest.mark.slow

CLASSES = bioes_classes(["LOC", "PER"])
SHORT = TrainingSettings(epochs=4, batch_size=4, rate=1e-2, patience=None, clip=5.0)


def sentences(count, *, seed=0):
    """People sing and live in towns; names have one word or two."""
    chance = random.Random(seed)
    result = []
    for _ in range(count):
        person = chance.choice([["Ann"], ["Bob"], ["Cid", "Lee"], ["Dee", "van", "Dam"]])
        town = chance.choice([["Rome"], ["New", "York"], ["Paris"]])
        tokens = [*person, chance.choice(["sings", "lives"]), "in", *town, *chance.choice([[], ["."]])]
        tags = [*["I-PER"] * len(person), "O", "O", *["I-LOC"] * len(town)]
        result.append(Sentence(tuple(tokens), tags=tuple(tags + ["O"] * (len(tokens) - len(tags)))))
    return result


def model_of(head=None, *, seed=0, training=None, **options):
    torch.manual_seed(seed)
    featurizer = SentenceFeaturizer.from_sentences(training or sentences(20), classes=CLASSES)
    return TaggingModel(Tagger(featurizer, hidden_size=8, **options), head or TaggingHead())


def accuracy(model, of):
    found = next(iter(model.predict(of).values()))
    features = model.tagger.featurizer.features(of)
    gold = [[CLASSES[label] for label in each.labels.tolist()] for each in features]
    right = [one == two for tags, other in zip(found, gold, strict=True) for one, two in zip(tags, other, strict=True)]
    return sum(right) / len(right)


def test_features():
    featurizer = SentenceFeaturizer.from_sentences(
        [Sentence(("Ann", "ann", "F-16", "Bob"), tags=("O",) * 4)], classes=CLASSES
    )
    assert featurizer.words == ("ann", "bob", "f-00")
    assert featurizer.rare.tolist() == [False, False, False, True, True]
    long = "x" * LONGEST_WORD + "ANN"
    (each,) = featurizer.features([Sentence(("Ann", "F-17", "zoe", long), tags=("S-PER", "O", "I-LOC", "I-LOC"))])
    assert each.words.tolist() == [FIRST, FIRST + 2, UNKNOWN, UNKNOWN]
    assert [CLASSES[label] for label in each.labels] == ["S-PER", "O", "B-LOC", "E-LOC"]
    batch = featurizer.collate([each])
    assert batch.characters.shape == (4, LONGEST_WORD)
    assert len(batch.pieces) == 0


def test_a_batch():
    featurizer = SentenceFeaturizer.from_sentences(sentences(9), classes=CLASSES)
    given = [Sentence(("Ann", ",", "Bob", "and", "Cid"), tags=("O",) * 5), Sentence(("Ann",), tags=("S-PER",))]
    batch = featurizer.collate(featurizer.features(given))
    assert batch.mask.tolist() == [[True] * 5, [True] + [False] * 4]
    assert batch.next[0].nonzero().tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]] and not batch.next[1].any()
    assert batch.same_list[0].nonzero().tolist() == [[0, 2], [0, 4], [2, 0], [2, 4], [4, 0], [4, 2]]
    assert not batch.same_list[1].any()
    alone = featurizer.collate(featurizer.features(given[1:]))
    assert alone.next.shape == (1, 1, 1) and not alone.next.any()


def test_unknown_tags_and_empty_sentences():
    featurizer = SentenceFeaturizer.from_sentences(sentences(2), classes=CLASSES)
    with pytest.raises(UnknownNameError, match="S-ORG"):
        featurizer.features([Sentence(("EU",), tags=("I-ORG",))])
    with pytest.raises(DataError, match="no tokens"):
        featurizer.features([Sentence(())])


def test_both_ways_is_a_bidirectional_lstm_over_packed_sequences():
    torch.manual_seed(0)
    ours, torchs = BothWays(3, 4), torch.nn.LSTM(3, 4, bidirectional=True, batch_first=True)
    with torch.no_grad():
        for name, weight in ours.right.named_parameters():
            torchs.get_parameter(name).copy_(weight)
        for name, weight in ours.left.named_parameters():
            torchs.get_parameter(f"{name}_reverse").copy_(weight)
    inputs, lengths = torch.randn(3, 5, 3), torch.tensor([5, 2, 3])
    mask = torch.arange(5) < lengths[:, None]
    packed = torch.nn.utils.rnn.pack_padded_sequence(inputs, lengths, batch_first=True, enforce_sorted=False)
    expected = torch.nn.utils.rnn.pad_packed_sequence(torchs(packed)[0], batch_first=True)[0]
    torch.testing.assert_close(ours(inputs, mask)[mask], expected[mask])


def test_sentences_of_a_batch_do_not_see_each_other():
    model = model_of().eval()
    featurizer = model.tagger.featurizer
    features = featurizer.features(sentences(6, seed=3))
    together = model.tagger(featurizer.collate(features))
    for row, each in enumerate(features):
        alone = model.tagger(featurizer.collate([each]))
        torch.testing.assert_close(together[row, : len(each.words)], alone[0])


def test_subword_vectors_are_used_and_stay_as_they_are():
    given, vectors = sentences(12), torch.randn(30, 6)

    def pieces(words):
        return [[len(word) % 30, ord(word[0]) % 30] for word in words]

    featurizer = SentenceFeaturizer.from_sentences(given, classes=CLASSES, pieces=pieces)
    torch.manual_seed(0)
    model = TaggingModel(Tagger(featurizer, hidden_size=8, subwords=vectors), TaggingHead()).eval()
    batch = featurizer.collate(featurizer.features(given))
    assert model.tagger.subwords is not None
    found = model.tagger.subwords(batch)[batch.form]
    token = given[0].tokens[0]
    mean = vectors[pieces([token])[0]].mean(0)
    torch.testing.assert_close(found[0, 0], model.tagger.subwords.project(mean))
    assert not any("vectors" in name for name in model.state_dict())
    train_tagger(model, given, settings=SHORT, score=lambda each: 0.0)
    assert torch.equal(model.tagger.subwords.get_buffer("vectors"), vectors)


@pytest.mark.parametrize("make", [TaggingHead, lambda: ChainHead(9), lambda: MeanFieldHead(9, iterations=3)])
def test_it_learns(make):
    given = sentences(40)
    model = model_of(make(), training=given)
    settings = replace(SHORT, epochs=10)
    result = train_tagger(model, given, settings=settings, score=lambda each: accuracy(each, given))
    assert result.best_score == max(each.score for each in result.history) > 0.9
    assert accuracy(model, given) == result.best_score
    assert not model.training


def test_going_on_gives_the_same_as_never_stopping(tmp_path):
    given, dev = sentences(20), sentences(10, seed=1)

    def trained(folder, *, stop_after=None):
        model = model_of()

        def progress(record):
            if record.epoch == stop_after:
                raise KeyboardInterrupt

        result = train_tagger(
            model, given, settings=SHORT, score=lambda each: accuracy(each, dev), folder=folder, progress=progress
        )
        return model.state_dict(), [(each.losses, each.score) for each in result.history]

    whole, history = trained(None)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, stop_after=2)
    resumed, again = trained(tmp_path)
    assert history == again
    for name, weight in whole.items():
        assert torch.equal(weight, resumed[name]), name
    with pytest.raises(DataError, match="holds another run"):
        train_tagger(model_of(), given, settings=replace(SHORT, seed=1), score=lambda each: 0.0, folder=tmp_path)
    with pytest.raises(DataError, match="vectors is 'none' there, 'minilm' here"):
        mark_and_train(tmp_path / "marked", "none")
        mark_and_train(tmp_path / "marked", "minilm")


def mark_and_train(folder, vectors):
    settings = replace(SHORT, epochs=1)
    identity = {"vectors": vectors}
    train_tagger(model_of(), sentences(4), settings=settings, score=lambda _: 0.0, folder=folder, identity=identity)


def test_heads_know_the_epoch_also_after_going_on(tmp_path):
    seen = []

    class Noting(TaggingHead):
        def loss(self, logits, batch, *, epoch):
            seen.append(epoch)
            return super().loss(logits, batch, epoch=epoch)

    def stop(record):
        raise KeyboardInterrupt

    options = {"settings": replace(SHORT, epochs=3), "score": lambda _: 0.0, "folder": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        train_tagger(model_of(Noting()), sentences(8), progress=stop, **options)
    train_tagger(model_of(Noting()), sentences(8), **options)
    assert seen == [0, 0, 1, 1, 2, 2]


def test_patience():
    result = train_tagger(
        model_of(), sentences(8), settings=replace(SHORT, epochs=9, patience=2), score=lambda each: 0.5
    )
    assert (len(result.history), result.best_epoch) == (3, 1)


def test_what_cannot_be_trained_on():
    with pytest.raises(DataError, match="no sentences"):
        train_tagger(model_of(), [], settings=SHORT, score=lambda each: 0.0)
    with pytest.raises(DataError, match="no tags"):
        train_tagger(model_of(), [Sentence(("Ann",))], settings=SHORT, score=lambda each: 0.0)


def test_heads_give_layers_and_penalties_what_they_need():
    model = model_of()
    featurizer = model.tagger.featurizer
    batch = featurizer.collate(featurizer.features(sentences(3)))
    logits = model.tagger.eval()(batch)

    def layer(given, *, evidence, mask):
        assert set(evidence) == {"next", "samelist"} and mask["token"] is batch.mask
        assert evidence["next"].shape == evidence["samelist"].shape == (*batch.mask.shape, batch.mask.shape[1])
        return {"label": given["label"] + 1}

    head = LogicHead(layer, evidence=("next", "samelist"))
    torch.testing.assert_close(head.refined(logits, batch), logits + 1)
    plain = TaggingHead().loss(logits, batch, epoch=0)
    torch.testing.assert_close(head.loss(logits, batch, epoch=0), plain)
    penalised = PenalisedHead(lambda given, *, evidence, mask: torch.tensor(2.0), weight=0.5)
    torch.testing.assert_close(penalised.loss(logits, batch, epoch=0), plain + 1)
    assert torch.equal(penalised.decode(logits, batch)[""], logits.argmax(-1))
