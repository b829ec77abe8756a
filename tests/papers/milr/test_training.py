import json
import os
import signal
from dataclasses import replace

import pytest
import torch
from papers.milr.tiny import KINDS, RELATIONS, random_document, tiny_model
from torch import nn

from rulewright.errors import DataError, FileError, ParseError
from rulewright.papers.documents import split_passes
from rulewright.papers.milr.predictions import best_threshold, predict
from rulewright.papers.milr.training import ExtractorSettings, train_extractor
from rulewright.training.checkpoints import load_weights, save_weights
from rulewright.training.loop import draw_batches

pytestmark = pytest.mark.slow

DOCUMENTS = [random_document(seed, entities=2 + seed % 3) for seed in range(1, 8)]
SHORT = ExtractorSettings(epochs=3, batch_size=2, rate=1e-2, encoder_rate=1e-3, patience=None, precision="float32")


class KilledError(Exception):
    """Stands for anything that ends a process at once."""


def model_of(kind, folder, documents=DOCUMENTS, *, dropout=0.3):
    return tiny_model(kind, documents, folder, dropout=dropout)


def dev_f1(documents):
    return lambda model: best_threshold(predict(model, documents), documents).f1


def weights_of(model):
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def assert_same(first, second):
    assert first.keys() == second.keys()
    for name in first:
        assert torch.equal(first[name], second[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_every_network_can_learn_three_documents_by_heart(kind, tmp_path):
    documents = [random_document(seed, entities=4) for seed in (11, 12, 13)]
    model = model_of(kind, tmp_path, documents, dropout=0.0)
    settings = replace(SHORT, epochs=60, batch_size=1, rate=1e-2, encoder_rate=5e-3, patience=60)
    seen = []
    result = train_extractor(model, documents, settings=settings, score=dev_f1(documents), progress=seen.append)
    assert result.best_score == 1.0
    assert dev_f1(documents)(model) == 1.0  # the weights of the best epoch are in the model
    assert seen[-1].losses["classification"] < seen[0].losses["classification"] / 5


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.parametrize("kind", ["bilstm", "gain", "atlop"])
def test_resuming_equals_never_stopping(kind, precision, tmp_path):
    settings = replace(SHORT, precision=precision, batch_size=4, pieces_at_once=60)
    whole = model_of(kind, tmp_path)
    expected = train_extractor(whole, DOCUMENTS, settings=settings, score=dev_f1(DOCUMENTS))

    def stop_at(epoch, step):
        def stop(progress):
            if (progress.epoch, progress.step) == (epoch, step):
                raise KeyboardInterrupt

        return stop

    for where in ((1, 1), (2, 2), (3, 1)):  # in the middle of an epoch and after its last step
        with pytest.raises(KeyboardInterrupt):
            train_extractor(
                model_of(kind, tmp_path),
                DOCUMENTS,
                settings=settings,
                score=dev_f1(DOCUMENTS),
                folder=tmp_path / "run",
                progress=stop_at(*where),
            )
        torch.manual_seed(123)  # what else the process draws must not matter
    resumed = model_of(kind, tmp_path)
    found = train_extractor(resumed, DOCUMENTS, settings=settings, score=dev_f1(DOCUMENTS), folder=tmp_path / "run")
    assert_same(weights_of(resumed), weights_of(whole))
    assert [(each.losses, each.score) for each in found.history] == [
        (each.losses, each.score) for each in expected.history
    ]
    assert (found.best_epoch, found.best_score) == (expected.best_epoch, expected.best_score)
    again = train_extractor(
        model_of(kind, tmp_path), DOCUMENTS, settings=settings, score=dev_f1([]), folder=tmp_path / "run"
    )
    assert again.history == found.history  # a finished run is not run again


def test_two_threads_are_as_exact_as_one_run(tmp_path):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        first, second = model_of("atlop", tmp_path), model_of("atlop", tmp_path)
        for model in (first, second):
            train_extractor(model, DOCUMENTS, settings=replace(SHORT, epochs=2, batch_size=7))
    finally:
        torch.set_num_threads(threads)
    assert_same(weights_of(first), weights_of(second))


def test_a_kill_loses_at_most_an_epoch(tmp_path):
    class KillsInThirdEpoch(nn.Module):
        calls = 0

        def forward(self, logits, mask):
            self.calls += 1
            if self.calls == 2 * 4 + 3:
                raise KilledError
            return logits.square().mean()

    whole, extra = model_of("lstm", tmp_path), KillsInThirdEpoch()
    extra.calls = 100
    train_extractor(whole, DOCUMENTS, settings=SHORT, extra=extra)
    with pytest.raises(KilledError):
        train_extractor(
            model_of("lstm", tmp_path), DOCUMENTS, settings=SHORT, extra=KillsInThirdEpoch(), folder=tmp_path / "run"
        )
    assert json.loads((tmp_path / "run" / "state.json").read_text())["epoch"] == 2
    resumed = model_of("lstm", tmp_path)
    epochs = []
    train_extractor(
        resumed,
        DOCUMENTS,
        settings=SHORT,
        extra=extra,
        folder=tmp_path / "run",
        progress=lambda progress: epochs.append(progress.epoch),
    )
    assert set(epochs) == {3}
    assert_same(weights_of(resumed), weights_of(whole))
    kept = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert kept == ["optimizer-00000012.pt", "state.json", "weights-00000012.safetensors"]


@pytest.mark.parametrize("step", [2, 4])  # in the middle of an epoch, and its last
def test_control_c_waits_for_the_step(step, tmp_path):
    before = signal.getsignal(signal.SIGINT)
    calls = []

    class PressesControlC(nn.Module):
        def forward(self, logits, mask):
            calls.append(mask)
            if len(calls) == step:
                os.kill(os.getpid(), signal.SIGINT)
            return logits.sum() * 0

    with pytest.raises(KeyboardInterrupt):
        train_extractor(
            model_of("lstm", tmp_path),
            DOCUMENTS,
            settings=SHORT,
            extra=PressesControlC(),
            folder=tmp_path / "run",
        )
    assert len(calls) == step  # the step that was running is done, and saved
    assert json.loads((tmp_path / "run" / "state.json").read_text())["step"] == step
    assert signal.getsignal(signal.SIGINT) is before


def test_a_half_written_checkpoint_is_ignored(tmp_path):
    run = tmp_path / "run"
    train_extractor(model_of("lstm", tmp_path), DOCUMENTS, settings=replace(SHORT, epochs=1), folder=run)
    (run / "weights-00000099.safetensors").write_bytes(b"half")
    result = train_extractor(model_of("lstm", tmp_path), DOCUMENTS, settings=replace(SHORT, epochs=1), folder=run)
    assert len(result.history) == 1


def test_another_run_is_not_continued(tmp_path):
    run = tmp_path / "run"
    train_extractor(model_of("lstm", tmp_path), DOCUMENTS, settings=replace(SHORT, epochs=1), folder=run)
    with pytest.raises(DataError, match=r"holds another run \(rate is 0.01 there, 0.5 here\)"):
        train_extractor(model_of("lstm", tmp_path), DOCUMENTS, settings=replace(SHORT, epochs=1, rate=0.5), folder=run)
    with pytest.raises(DataError, match="documents is"):
        train_extractor(model_of("lstm", tmp_path), DOCUMENTS[1:], settings=replace(SHORT, epochs=1), folder=run)
    (run / "state.json").write_text("{}")
    with pytest.raises(ParseError, match="not a training state"):
        train_extractor(model_of("lstm", tmp_path), DOCUMENTS, settings=SHORT, folder=run)


@pytest.mark.parametrize("part", ["classification", "extra"])
def test_a_loss_that_is_not_a_number_names_the_document(part, tmp_path):
    model = model_of("atlop", tmp_path)
    bad = DOCUMENTS[4]
    size = len(bad.entities)

    class Extra(nn.Module):
        def forward(self, logits, mask):
            loss = logits[mask].square().mean()
            return loss * float("nan") if (mask.sum(1) == size).any() and part == "extra" else loss

    if part == "classification":
        whole = model.pair_losses

        def broken(output):
            wrong = [row for row, each in enumerate(output.batch.documents) if each.title == bad.title]
            losses = whole(output)
            return torch.where(torch.isin(output.batch.pair_document, torch.tensor(wrong)), torch.nan, losses)

        model.pair_losses = broken
    settings = replace(SHORT, batch_size=7)
    with pytest.raises(
        DataError, match=f"the {part} loss in epoch 1, step 1 is not finite, for .*{bad.title!r}"
    ) as caught:
        train_extractor(model, DOCUMENTS, settings=settings, extra=Extra())
    others = {each.title for each in DOCUMENTS if len(each.entities) != size}
    assert not any(repr(title) in str(caught.value) for title in others)


def test_the_extra_loss_sees_margins_or_logits(tmp_path):
    seen = {}

    class Extra(nn.Module):
        def __init__(self, name):
            super().__init__()
            self.name = name

        def forward(self, logits, mask):
            seen.setdefault(self.name, (logits.detach().clone(), mask))
            return logits[mask].square().mean()

    for name in ("margins", "logits"):
        settings = replace(SHORT, epochs=1, extra_input=name, extra_weight=0.5)
        result = train_extractor(
            model_of("atlop", tmp_path, dropout=0.0), DOCUMENTS, settings=settings, extra=Extra(name)
        )
        assert set(result.history[0].losses) == {"classification", "extra"}
    (margins, mask), (logits, _) = seen["margins"], seen["logits"]
    size = mask.shape[1]
    assert margins.shape == (2, size, size, len(RELATIONS)) and mask.dtype == torch.bool
    difference = (logits - margins)[:, 0, 1]  # the threshold, equal for all relations of a pair
    assert torch.allclose(difference, difference[:, :1], atol=1e-5) and (difference != 0).any()


def test_the_weight_of_the_extra_loss_matters(tmp_path):
    class Size(nn.Module):
        def forward(self, logits, mask):
            pairs = mask[:, :, None] & mask[:, None, :] & ~torch.eye(mask.shape[1], dtype=torch.bool)
            return logits[pairs].square().mean()

    sizes = {}
    for weight in (0.0, 10.0):
        model = model_of("bilstm", tmp_path)
        result = train_extractor(
            model, DOCUMENTS, settings=replace(SHORT, epochs=10, extra_weight=weight), extra=Size()
        )
        sizes[weight] = result.history[-1].losses["extra"]
    assert sizes[10.0] < sizes[0.0] / 10


def test_early_stopping_keeps_the_best(tmp_path):
    scores = iter([0.1, 0.3, 0.2, 0.3, 0.9, 0.9])
    states = []

    def score(model):
        states.append(weights_of(model))
        return next(scores)

    for folder in (None, tmp_path / "run"):
        scores = iter([0.1, 0.3, 0.2, 0.3, 0.9, 0.9])
        states.clear()
        model = model_of("lstm", tmp_path)
        result = train_extractor(
            model, DOCUMENTS, settings=replace(SHORT, epochs=6, patience=2), score=score, folder=folder
        )
        assert (result.best_epoch, result.best_score, len(result.history)) == (2, 0.3, 4)
        assert_same(weights_of(model), states[1])
        assert not model.training


def test_progress_tells_time_and_parts(tmp_path):
    seen = []
    train_extractor(model_of("lstm", tmp_path), DOCUMENTS, settings=replace(SHORT, batch_size=6), progress=seen.append)
    assert [(each.epoch, each.step) for each in seen] == [(epoch, step) for epoch in (1, 2, 3) for step in (1, 2)]
    assert all(each.steps == 2 and each.epochs == 3 and each.seconds_left >= 0 for each in seen)
    assert seen[-1].seconds_left == 0


def test_batches_hold_documents_of_like_length():
    lengths = [seed * 37 % 101 for seed in range(200)]
    order = draw_batches(lengths, batch_size=4, seed=[1, 2])
    assert sorted(number for batch in order for number in batch) == list(range(200))
    assert order == draw_batches(lengths, batch_size=4, seed=[1, 2]) != draw_batches(lengths, batch_size=4, seed=[1, 3])
    spread = [max(lengths[each] for each in batch) - min(lengths[each] for each in batch) for batch in order]
    assert sum(spread) / len(spread) < 15


def test_the_number_of_passes_does_not_change_a_step(tmp_path):
    class Size(nn.Module):
        def forward(self, logits, mask):
            pairs = mask[:, :, None] & mask[:, None, :] & ~torch.eye(mask.shape[1], dtype=torch.bool)
            means = [row[real].square().mean() for row, real in zip(logits, pairs, strict=True)]
            return torch.stack(means).mean()

    found = {}
    for pieces in (1, 60, 10_000):
        model = model_of("atlop", tmp_path, dropout=0.0)
        settings = replace(SHORT, epochs=1, batch_size=5, pieces_at_once=pieces, extra_weight=0.1)
        found[pieces] = (
            train_extractor(model, DOCUMENTS, settings=settings, extra=Size()).history[0].losses,
            weights_of(model),
        )
    for pieces in (1, 60):
        assert found[pieces][0] == pytest.approx(found[10_000][0], rel=1e-4)
        for name, weight in found[pieces][1].items():
            assert torch.allclose(weight, found[10_000][1][name], atol=1e-3), name


def test_passes_are_bounded(tmp_path):
    features = model_of("lstm", tmp_path).features(DOCUMENTS)
    for pieces in (1, 50, 100, 1000):
        parts = split_passes(features, pieces)
        assert [each for part in parts for each in part] == features
        assert all(len(part) == 1 or len(part) * max(len(each.pieces) for each in part) <= pieces for part in parts)


def test_frozen_layers_stay(tmp_path):
    from papers.milr.tiny import tiny_bert

    from rulewright.papers.milr.training import build_model

    model = build_model("gain", DOCUMENTS, relations=RELATIONS, encoder=tiny_bert(tmp_path), freeze_layers=1)
    before = weights_of(model)
    train_extractor(model, DOCUMENTS, settings=replace(SHORT, epochs=1))
    changed = {name for name, tensor in weights_of(model).items() if not torch.equal(tensor, before[name])}
    assert "encoder.model.encoder.layer.1.output.dense.weight" in changed
    assert not any("layer.0." in name or "embeddings" in name for name in changed if name.startswith("encoder."))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs must be >= 1, got 0"),
        ({"rate": -1.0}, "rate must be >= 0, got -1.0"),
        ({"rate": float("nan")}, "rate must be a finite number, got nan"),
        ({"warmup": 2.0}, r"warmup must lie in \[0, 1\], got 2.0"),
        ({"clip": 0.0}, "clip must be > 0"),
        ({"patience": 0}, "patience must be >= 1 or None"),
        ({"precision": "float8"}, "precision must be 'auto', 'bfloat16' or 'float32', got 'float8'"),
        ({"extra_input": "x"}, "extra_input must be 'margins' or 'logits'"),
    ],
)
def test_settings_are_checked(change, message):
    with pytest.raises(DataError, match=message):
        ExtractorSettings(**change)


def test_nothing_to_train_on(tmp_path):
    with pytest.raises(DataError, match="no documents"):
        train_extractor(model_of("lstm", tmp_path), [])


def test_weights_of_another_model_are_refused(tmp_path):
    path = tmp_path / "weights.safetensors"
    save_weights(model_of("lstm", tmp_path), path)
    load_weights(model_of("lstm", tmp_path), path)
    with pytest.raises(FileError, match="holds the weights of another model"):
        load_weights(model_of("bilstm", tmp_path), path)
    path.write_bytes(b"nothing")
    with pytest.raises(ParseError, match="not a safetensors file"):
        load_weights(model_of("lstm", tmp_path), path)
