"""The loop for any network: it learns, stops, resumes bit for bit, and refuses another run's folder."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from rulewright.errors import DataError
from rulewright.interrupts import TimeBudget
from rulewright.training.loop import TrainingLoop, TrainingSettings

pytestmark = pytest.mark.slow

GENERATOR = torch.Generator().manual_seed(0)
EXAMPLES = [(x, x.sum() > 0) for x in torch.randn(12, 3, generator=GENERATOR)]


def model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Dropout(0.2), nn.Linear(8, 1))


def train(network, *, score=None, folder=None, progress=None, **options):
    def loss(batch):
        logits = network(torch.stack([each for each, _ in batch])).squeeze(-1)
        value = nn.functional.binary_cross_entropy_with_logits(logits, torch.stack([y for _, y in batch]).float())
        return value

    def losses(batch, position):
        value = loss(batch)
        yield value, {"loss": value}

    def accuracy() -> float:
        assert not network.training
        with torch.no_grad():
            return -loss(EXAMPLES).item()

    settings = TrainingSettings(**{"epochs": 6, "rate": 0.05, "batch_size": 4, **options})
    return TrainingLoop(
        network,
        EXAMPLES,
        losses,
        settings=settings,
        identity={"variant": "x"},
        score=score or accuracy,
        folder=folder,
        progress=progress,
    ).run()


def test_it_learns_and_keeps_the_best():
    network = model()
    result = train(network, patience=None)
    assert len(result.history) == 6
    assert result.best_score == max(each.score for each in result.history)
    assert result.history[-1].losses["loss"] < result.history[0].losses["loss"]
    scores = iter([1.0, 3.0, 2.0, 2.0, 2.0, 2.0])
    assert train(model(), score=lambda: next(scores), patience=2).best_epoch == 2


@pytest.mark.parametrize("stop", [(1, 3), (4, 3), (4, 2)])
def test_a_stopped_run_goes_on_bit_for_bit(tmp_path, stop):
    whole = model()
    expected = train(whole)

    def interrupt(progress):
        if (progress.epoch, progress.step) == stop:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(model(), folder=tmp_path, progress=interrupt)
    resumed = model()
    found = train(resumed, folder=tmp_path)
    assert [each.score for each in found.history] == [each.score for each in expected.history]
    assert all(
        torch.equal(a, b) for a, b in zip(whole.state_dict().values(), resumed.state_dict().values(), strict=True)
    )
    again = model()
    assert train(again, folder=tmp_path).history == found.history
    with pytest.raises(DataError, match="holds another run"):
        train(model(), folder=tmp_path, rate=0.01)


def test_nothing_and_not_finite():
    with pytest.raises(DataError, match="nothing to train on"):
        TrainingLoop(model(), [], None, settings=TrainingSettings()).run()
    network = model()
    with torch.no_grad():
        network[0].weight.fill_(float("nan"))
    with pytest.raises(DataError, match="not finite"):
        train(network)


def test_time_ends_training_within_an_epoch_and_the_rate_falls_with_it():
    class Clock(TimeBudget):
        """Half of its time is spent after two steps, all after four."""

        @property
        def left(self):
            return max(0.0, 1 - steps / 4)

    steps, rates = 0, []
    network = nn.Linear(1, 1)

    def losses(batch, position):
        nonlocal steps
        rates.append(loop._optimizer.param_groups[0]["lr"])
        assert position.share >= steps / 4
        steps += 1
        error = sum((network(x) - x).square().sum() for x in batch)
        yield error, {"error": error}

    settings = TrainingSettings(epochs=100, patience=None, batch_size=1, warmup=0.0, rate=1.0)
    loop = TrainingLoop(network, [torch.ones(1)] * 3, losses, settings=settings, budget=Clock(1.0))
    result = loop.run()
    assert result.is_cut and steps == 4
    assert [record.epoch for record in result.history] == [1, 2]
    assert rates == [pytest.approx(rate) for rate in (1.0, 0.75, 0.5, 0.25)]
