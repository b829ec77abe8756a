"""Labels' calibration: planted miscalibration is found, and everything that is no label is left out."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit, log_softmax, logit

import rulewright as rw
from rulewright.errors import DataError, ParseError, RulewrightError
from rulewright.evaluate.calibration import Calibration

NAMES = ("likes", "knows")
RULES = "predicate dog(animal). predicate tag(animal) in {b, i, o}. predicate rain. predicate sees(animal, man)."


def draw(shape, seed=0, *, slope=3.0, intercept=1.0, base=-2.0):
    """Logits that are true log-odds times a slope plus an intercept, and what is true."""
    random = np.random.default_rng(seed)
    true = random.normal(base, 2.0, shape)
    return slope * true + intercept, random.random(shape) < expit(true)


@pytest.fixture(scope="module", params=["platt", "isotonic"])
def fitted(request):
    logits, gold = draw((60, 5, 5, 2))
    return rw.calibrate(logits, gold, relations=NAMES, method=request.param), logits, gold


def test_planted_miscalibration_is_found(fitted):
    calibration, _, _ = fitted
    assert calibration.overall.after.error < calibration.overall.before.error / 4
    assert calibration.kept and not calibration.note_
    f1 = calibration.out_of_fold.scores["F1"]
    assert f1.before < f1.after
    test, truth = draw((200, 5, 5, 2), 1)
    before, after = calibration.reliability(test, truth)
    assert after.error < 0.02 < before.error
    assert np.abs(calibration.probabilities(test) - expit((test - 1) / 3)).mean() < 0.03
    if calibration.curves.method == "platt":
        assert calibration.curves.shared.slope == pytest.approx(1 / 3, rel=0.1)
        assert calibration.curves.shared.intercept == pytest.approx(-1 / 3, abs=0.2)


def test_curves_are_those_of_evaluation_and_rise(fitted):
    calibration, _, _ = fitted
    scores = np.linspace(-40, 40, 201)
    for index, name in enumerate(NAMES):
        found = calibration.probabilities({name: scores})[name]
        assert (np.diff(found) >= 0).all() and (found > 0).all() and (found <= 1).all()
        inner = np.abs(scores) < 10
        expected = calibration.curves.probabilities(name, scores)
        if calibration.curves.method == "platt":
            assert found == pytest.approx(expected, abs=1e-12)
        assert found[inner] == pytest.approx(expected[inner], abs=0.01)  # certainty is bounded by the facts behind
        stacked = calibration.logits(np.stack([scores, scores], -1))
        assert np.isfinite(stacked).all() and stacked[:, index] == pytest.approx(logit(found), abs=1e-5)


def test_labels_are_those_of_the_decoder_with_its_thresholds(fitted):
    calibration, logits, _ = fitted
    decoder = rw.RuleDecoder("", relations=NAMES)
    labels = calibration.labels(logits)
    apart = ~np.eye(5, dtype=bool)
    assert np.array_equal(decoder(calibration.margins(logits)).labels[:, apart], labels[:, apart])
    by_threshold = decoder(calibration.logits(logits), threshold=calibration.thresholds).labels
    assert np.array_equal(by_threshold[:, apart], labels[:, apart])


def test_tensors_are_tensors_with_a_gradient(fitted):
    calibration, _, _ = fitted
    part = draw((2, 5, 5, 2), 3)[0]
    tensor = torch.tensor(part, requires_grad=True)
    margins = calibration.margins(tensor)
    assert margins.detach().numpy() == pytest.approx(calibration.margins(part), abs=1e-9)
    margins.sum().backward()
    step = 1e-6
    numeric = (calibration.margins(part + step) - calibration.margins(part - step)) / (2 * step)
    assert tensor.grad.numpy() == pytest.approx(numeric, rel=1e-3, abs=1e-5)
    single = calibration.margins(tensor.detach().float())
    assert single.dtype == torch.float32 and single.shape == part.shape
    assert calibration.margins(part.astype(np.float32)).dtype == np.float32
    assert calibration.labels(tensor).dtype == torch.bool
    named = calibration.probabilities({"likes": tensor.detach()[..., 0]})["likes"]
    assert isinstance(named, torch.Tensor) and ((named > 0) & (named < 1)).all()


def test_extremes_stay_finite():
    logits, gold = draw((20, 4, 4, 2))
    calibration = rw.calibrate(logits, gold, relations=NAMES)
    far = np.array([[-1e4, 1e4]])
    assert np.isfinite(calibration.margins(far)).all()
    assert calibration.margins(torch.tensor(far)).numpy() == pytest.approx(calibration.margins(far))
    clear = np.where(gold, 5.0, -5.0)
    for method in ("platt", "isotonic"):
        certain = rw.calibrate(clear, gold, relations=NAMES, method=method)
        found = certain.probabilities(clear)
        assert ((found > 0) & (found < 1)).all() and np.array_equal(certain.labels(clear), gold)


def f1_of(labels, gold):
    return 2 * (labels & gold).sum() / (labels.sum() + gold.sum())


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000))
def test_thresholds_are_the_best_there_are(seed):
    random = np.random.default_rng(seed)
    logits, gold = random.integers(-3, 4, (2, 12)).astype(float), random.random((2, 12)) < 0.4
    if not gold.any(1).all():
        return
    worlds = dict(zip(NAMES, logits, strict=True)), dict(zip(NAMES, gold, strict=True))
    own = rw.calibrate(*worlds, thresholds="own", shrinkage=0, folds=None)
    found = f1_of(np.stack([own.labels(worlds[0])[name] for name in NAMES]), gold)
    rising = [own.curves.own[name].curve.slope > 0 for name in NAMES]
    cuts = [(-9.0, *np.unique(part)) if rise else (-9.0, 9.0) for part, rise in zip(logits, rising, strict=True)]
    best = max(f1_of(logits > np.array([[one], [two]]), gold) for one in cuts[0] for two in cuts[1])
    assert found == pytest.approx(best)
    shared = rw.calibrate(*worlds, thresholds="shared", folds=None)
    probabilities = np.stack([shared.probabilities(worlds[0])[name] for name in NAMES])
    best = max(f1_of(probabilities > bound, gold) for bound in (0, *np.unique(probabilities)))
    assert f1_of(np.stack([shared.labels(worlds[0])[name] for name in NAMES]), gold) == pytest.approx(best)


def test_shrinkage_has_its_limits():
    logits, gold = draw((40, 4, 4, 2))
    logits[..., 1] = logits[..., 1] / 2 + 3
    fits = {
        s: rw.calibrate(logits, gold, relations=NAMES, shrinkage=s, thresholds="own", folds=None) for s in (0, 20, 1e12)
    }
    scores, apart = np.linspace(-9, 9, 7), ~np.eye(4, dtype=bool)
    for index, name in enumerate(NAMES):
        columns = logits[:, apart, index].ravel(), gold[:, apart, index].ravel()
        own = Calibration.fit([name], np.zeros(len(columns[0]), dtype=int), *columns, method="platt").shared
        found = fits[0].probabilities({name: scores})[name]
        assert found == pytest.approx(own.probabilities(scores), abs=1e-9)
    far = fits[1e12]
    both = far.probabilities(dict.fromkeys(NAMES, np.linspace(-9, 9, 7)))
    assert both["likes"] == pytest.approx(both["knows"], abs=1e-6)
    assert far.thresholds["likes"] == pytest.approx(far.thresholds["knows"], abs=1e-6)
    assert fits[0].thresholds["likes"] != fits[0].thresholds["knows"]


def test_what_does_not_count_changes_nothing():
    logits, gold = draw((30, 4, 4, 2))
    mask = np.ones((30, 4), dtype=bool)
    mask[::3, 3] = False
    where = np.random.default_rng(1).random((30, 4, 4)) < 0.3
    options = {"relations": NAMES, "mask": mask, "evidence": {"likes": (gold[..., 0], where)}}
    calibration = rw.calibrate(logits, gold, **options)
    ignored = ~(mask[:, :, None] & mask[:, None, :]) | np.eye(4, dtype=bool)
    spoiled, wrong = logits.copy(), gold.copy()
    spoiled[ignored], wrong[ignored] = np.nan, True
    spoiled[where, 0], wrong[where, 0] = np.inf, True
    with np.errstate(invalid="ignore"):
        again = rw.calibrate(spoiled, wrong, **options)
    assert again == calibration
    assert calibration.counts["likes"].atoms == (~ignored & ~where).sum()
    assert calibration.counts["knows"] == ((gold[..., 1] & ~ignored).sum(), (~ignored).sum())


def test_worlds_of_different_sizes_are_as_those_of_one():
    sizes = [3, 5, 2, 4, 1] * 6
    logits, gold = zip(*(draw((size, size, 2), seed) for seed, size in enumerate(sizes)), strict=True)
    calibration = rw.calibrate(list(logits), list(gold), relations=NAMES, folds=3)
    padded, truth = np.zeros((len(sizes), 5, 5, 2)), np.zeros((len(sizes), 5, 5, 2), dtype=bool)
    mask = np.arange(5) < np.array(sizes)[:, None]
    for row, size in enumerate(sizes):
        padded[row, :size, :size], truth[row, :size, :size] = logits[row], gold[row]
    assert rw.calibrate(padded, truth, relations=NAMES, mask=mask, folds=3).counts == calibration.counts
    batched = rw.calibrate(padded, truth, relations=NAMES, mask=mask, folds=3)
    assert batched.curves.shared.slope == pytest.approx(calibration.curves.shared.slope)
    assert batched.out_of_fold.scores["F1"] == pytest.approx(calibration.out_of_fold.scores["F1"])
    margins = calibration.out_of_fold.margins
    assert [part.shape for part in margins] == [part.shape for part in logits]
    apart = ~np.eye(5, dtype=bool)
    for row, size in enumerate(sizes):
        inside = apart[:size, :size]
        assert batched.out_of_fold.margins[row, :size, :size][inside] == pytest.approx(margins[row][inside])


def test_out_of_fold_margins_are_of_curves_that_have_not_seen_the_world():
    logits, gold = draw((12, 4, 4, 2))
    calibration = rw.calibrate(logits, gold, relations=NAMES, folds=12)
    others = rw.calibrate(logits[1:], gold[1:], relations=NAMES, folds=None)
    apart = ~np.eye(4, dtype=bool)
    assert calibration.out_of_fold.margins[0][apart] == pytest.approx(others.margins(logits[0])[apart])
    labels = calibration.out_of_fold.margins > 0
    after = f1_of(labels[:, apart], gold[:, apart])
    assert calibration.out_of_fold.scores["F1"].after == pytest.approx(after)
    assert calibration.out_of_fold.scores["F1"].before == pytest.approx(f1_of(logits[:, apart] > 0, gold[:, apart]))


def test_predicates_of_any_shape_and_classes():
    random = np.random.default_rng(0)
    dog, rain, sees = (draw(shape, base=-1.0) for shape in ((80, 6), (80,), (80, 6, 2)))
    true = random.normal(0, 2, (80, 6, 3))
    tag = (true + random.gumbel(size=true.shape)).argmax(-1)
    shifted = 4 * true + np.array([0.0, 3.0, -3.0])
    logits = {"dog": dog[0], "rain": rain[0], "sees": sees[0], "tag": shifted}
    gold = {"dog": dog[1], "rain": rain[1], "sees": sees[1], "tag": tag}
    calibration = rw.calibrate(logits, gold, rules=RULES)
    assert calibration.kept
    scores = calibration.out_of_fold.scores
    assert scores["accuracy of tag"].before < scores["accuracy of tag"].after
    curve = calibration.classes["tag"]
    assert curve.slope == pytest.approx(1 / 4, rel=0.15)
    assert np.diff(curve.biases) == pytest.approx([-0.75, 1.5], abs=0.4)
    assert calibration.judged["tag"].after.error < calibration.judged["tag"].before.error / 2
    labels = calibration.labels(logits)
    assert labels["tag"].shape == tag.shape and labels["rain"].shape == (80,)
    assert calibration.probabilities(logits)["tag"].sum(-1) == pytest.approx(1)
    decoded = rw.RuleDecoder(RULES)(calibration.margins(logits)).labels
    assert all(np.array_equal(decoded[name], labels[name]) for name in labels)
    assert {name: part.shape for name, part in calibration.out_of_fold.margins.items()} == {
        name: part.shape for name, part in logits.items()
    }
    tensors = calibration.margins({name: torch.tensor(part) for name, part in logits.items()})
    for name, part in calibration.margins(logits).items():
        assert tensors[name].numpy() == pytest.approx(part)


def test_temperature_and_biases_are_the_likeliest():
    random = np.random.default_rng(0)
    logits = random.normal(0, 2, (60, 3))
    gold = (logits / 2 + random.gumbel(size=logits.shape)).argmax(-1)
    shrinkage = 3.0
    curve = rw.calibrate({"tag": logits}, {"tag": gold}, shrinkage=shrinkage, folds=None).classes["tag"]

    def loss(slope, biases):
        scores = log_softmax(slope * logits + biases, axis=1)[np.arange(60), gold]
        return -scores.sum() + shrinkage / 2 * ((slope - 1) ** 2 + (biases**2).sum())

    best = loss(curve.slope, np.array(curve.biases))
    for _ in range(100):
        assert loss(curve.slope + 0.05 * random.normal(), np.array(curve.biases) + 0.05 * random.normal(size=3)) >= best


def test_labels_that_get_worse_stay_as_they_were():
    random = np.random.default_rng(5)
    logits = random.normal(0, 1, (30, 4))
    gold = logits > 0  # nothing to gain
    gold[random.random(gold.shape) < 0.1] ^= True
    found = []
    for seed in range(8):
        calibration = rw.calibrate({"dog": logits}, {"dog": gold}, rules=RULES, seed=seed, folds=3)
        scores = calibration.out_of_fold.scores["F1"]
        assert calibration.kept == (scores.after >= scores.before)
        found.append(calibration.kept)
        if not calibration.kept:
            assert "labels stay as they were" in calibration.note_ and "as they were" in repr(calibration)
            assert np.array_equal(calibration.labels({"dog": logits})["dog"], logits > 0)
            assert np.array_equal(calibration.out_of_fold.margins["dog"] > 0, logits > 0)
    assert not all(found)


def test_one_world_is_divided_by_its_first_argument():
    logits, gold = draw((40, 40, 2))
    calibration = rw.calibrate(logits, gold, relations=NAMES)
    assert calibration.out_of_fold.scores["F1"].after > calibration.out_of_fold.scores["F1"].before
    few = rw.calibrate(np.zeros((3, 3, 1)), np.eye(3, k=2)[..., None], relations=["likes"])
    assert few.out_of_fold is None and "too few facts for 5 folds" in few.note_


def test_another_metric():
    logits, gold = draw((60, 4))

    def f2(correct, given_count, wanted):
        return 5 * correct / np.maximum(1, given_count + 4 * wanted)

    worlds = {"dog": logits}, {"dog": gold}
    by_f1, by_f2 = (rw.calibrate(*worlds, rules=RULES, metric=metric) for metric in ("f1", f2))
    assert by_f2.thresholds["dog"] < by_f1.thresholds["dog"]
    assert "f2" in by_f2.out_of_fold.scores
    half = rw.calibrate(*worlds, rules=RULES, thresholds=None)
    assert half.thresholds == {"dog": 0.5}
    assert np.array_equal(half.labels(worlds[0])["dog"], half.probabilities(worlds[0])["dog"] > 0.5)


def test_what_is_saved_is_read(fitted, tmp_path):
    calibration, logits, _ = fitted
    calibration.save(tmp_path / "c.json")
    again = rw.LabelCalibration.read(tmp_path / "c.json")
    assert again == calibration and again.out_of_fold.margins is None
    assert np.array_equal(again.margins(logits), calibration.margins(logits))
    copied = pickle.loads(pickle.dumps(calibration))
    assert copied == calibration and np.array_equal(copied.out_of_fold.margins, calibration.out_of_fold.margins)
    assert "likes" in calibration._repr_html_() and "out-of-fold F1" in repr(calibration)
    assert [row[:3] for row in calibration.rows()] == [
        (name, calibration.counts[name].facts, calibration.thresholds[name]) for name in NAMES
    ]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["format"], "other", "format must be 'rulewright label calibration 1'"),
        (["thresholds", "likes"], 1, "thresholds.'likes' must be a probability between 0 and 1, got the number 1"),
        (["thresholds", "likes"], None, "thresholds"),
        (["counts", "likes", "facts"], -1, "counts.'likes' must have 0"),
        (["relations"], ["likes", "hates"], "relations must be among"),
        (["curves"], None, "has no 'curves'"),
        (["curves", "shared", "slope"], -1, "curves.shared.slope"),
        (["classes"], {"tag": {"slope": 1, "biases": [0]}}, "classes.'tag' must have a slope"),
        (["out_of_fold", "folds"], 1, "out_of_fold.folds must be a whole number of at least 2"),
        (["out_of_fold", "scores"], {"F1": {"before": "x", "after": 1}}, "before must be a number"),
        (["kept"], 1, "kept must be true or false"),
    ],
)
def test_corrupted_files_are_refused(path, value, message, tmp_path):
    logits, gold = draw((20, 4, 4, 2))
    file = tmp_path / "c.json"
    rw.calibrate(logits, gold, relations=NAMES).save(file)
    content = json.loads(file.read_text())
    part = content
    for name in path[:-1]:
        part = part[name]
    part[path[-1]] = value
    file.write_text(json.dumps(content))
    with pytest.raises(ParseError, match=message) as caught:
        rw.LabelCalibration.read(file)
    assert "c.json" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "beta"}, "method must be 'isotonic' or 'platt'"),
        ({"shrinkage": -1}, "shrinkage must be >= 0"),
        ({"thresholds": "best"}, "thresholds must be 'shared', 'own' or None"),
        ({"folds": 1}, "folds must be >= 2"),
        ({"metric": "accuracy"}, "metric must be 'f1' or a function"),
        ({"mask": np.zeros(2, dtype=bool)}, "no atom counts"),
    ],
)
def test_wrong_parameters_are_refused(options, message):
    with pytest.raises(DataError, match=message):
        rw.calibrate(np.zeros((2, 2, 2)), np.ones((2, 2, 2)), relations=NAMES, **options)


def test_wrong_use_is_refused():
    with pytest.raises(DataError, match="none of the gold labels is true"):
        rw.calibrate(np.zeros((2, 2, 2)), np.zeros((2, 2, 2)), relations=NAMES)
    calibration = rw.calibrate({"tag": np.eye(3)}, {"tag": np.arange(3)}, folds=None)
    with pytest.raises(DataError, match="by predicate"):
        calibration.margins(np.zeros((2, 2, 2)))
    with pytest.raises(DataError, match="logits of 3 classes"):
        calibration.margins({"tag": np.zeros((2, 2))})
    with pytest.raises(RulewrightError, match="unknown predicate 'dog'"):
        calibration.margins({"dog": np.zeros(2)})
    stacked = rw.calibrate(*draw((20, 4, 4, 2)), relations=NAMES, folds=None)
    with pytest.raises(DataError, match=r"\[B, n, n, 2\], got \[4, 4, 3\]"):
        stacked.margins(np.zeros((4, 4, 3)))


def test_plots(fitted, tmp_path):
    pytest.importorskip("matplotlib")
    fitted[0].plot(tmp_path / "c.svg", title="labels")
    assert "<svg" in (tmp_path / "c.svg").read_text()


@pytest.mark.slow
def test_torch_loads_for_tensors_only():
    code = (
        "import sys, numpy as np, rulewright as rw; c = rw.calibrate({'p': np.arange(9.)}, {'p': np.arange(9) > 4}); "
        "c.margins({'p': np.arange(9.)}); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
