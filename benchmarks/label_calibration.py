"""Which curves and thresholds to calibrate labels by: F1, log loss and calibration error on worlds that are not seen.

Made documents: relations whose facts are few or many (a power law), and a network that is too sure of itself, by
another slope, another intercept and other noise for each relation; in "alike" the same for all. Curves and thresholds
are fitted to some documents and measured on 400 others; the mean over seeds. `--speed` measures how much processor
time a fit takes.

    python benchmarks/label_calibration.py
"""

from __future__ import annotations

import sys
import time

import numpy as np

import rulewright as rw

RELATIONS = tuple(f"r{index}" for index in range(24))
SIZE, TEST = 6, 400


def make_documents(random, count, slopes, intercepts, noise, base):
    """Return logits of a network and gold labels, of relations with base log-odds."""
    shape = (count, SIZE, SIZE, len(base))
    true = base + random.normal(0, 2.5, shape)
    gold = random.random(shape) < 1 / (1 + np.exp(-true))
    return slopes * (true + noise * random.normal(size=shape)) + intercepts, gold


def make_sets(seed, count, *, alike):
    """Return what curves are fitted to, and what they are measured on."""
    random = np.random.default_rng(seed)
    base = -4.0 - 1.5 * np.log(1 + np.arange(len(RELATIONS)))
    spread = 0.0 if alike else 1.0
    slopes = 1.5 * np.exp(0.4 * spread * random.normal(size=len(base)))
    intercepts = 1.0 + 1.5 * spread * random.normal(size=len(base))
    noise = np.full(len(base), 1.0) + spread * random.uniform(-0.7, 1.0, size=len(base))
    return (make_documents(random, docs, slopes, intercepts, noise, base) for docs in (count, TEST))


def measure(calibration, logits, gold):
    """Return F1, log loss in thousandths, calibration error, and that of probabilities from 0.1 on, in hundredths."""
    counts = ~np.eye(SIZE, dtype=bool)
    log_odds = calibration.logits(logits)[:, counts]
    labels, truth = calibration.labels(logits)[:, counts], gold[:, counts]
    loss = float(np.mean(np.logaddexp(0, np.where(truth, -log_odds, log_odds))))
    part = calibration.reliability(logits, gold).after
    f1 = 200 * (labels & truth).sum() / (labels.sum() + truth.sum())
    return f1, 1000 * loss, 100 * part.error, 100 * part.error_from(0.1)


def compare(seeds=5):
    """Print a table for each kind of documents and number of them."""
    for alike in (False, True):
        for count in (20, 100, 400):
            rows: dict[str, list[tuple[float, ...]]] = {}
            facts = []
            for seed in range(seeds):
                (logits, gold), (test, truth) = make_sets(seed, count, alike=alike)
                facts.append(gold.sum())
                counts = ~np.eye(SIZE, dtype=bool)
                before = test[:, counts] > 0
                alone = 200 * (before & truth[:, counts]).sum() / (before.sum() + truth[:, counts].sum())
                for method in ("platt", "isotonic"):
                    for shrinkage in (0, 5, 20, 80):
                        for thresholds in (None, "shared", "own"):
                            name = f"{method:8} {shrinkage:3} {thresholds}"
                            fitted = rw.calibrate(
                                logits,
                                gold,
                                relations=RELATIONS,
                                method=method,
                                shrinkage=shrinkage,
                                thresholds=thresholds,
                                folds=None,
                            )
                            rows.setdefault(name, []).append(measure(fitted, test, truth))
                before_error = fitted.reliability(test, truth).before
                rows.setdefault("alone", []).append(
                    (alone, np.nan, 100 * before_error.error, 100 * before_error.error_from(0.1))
                )
            kind = "relations alike" if alike else "relations differ"
            print(f"\n{kind}, {count} documents, {np.mean(facts):.0f} facts of {len(RELATIONS)} relations")
            print(f"{'':24}   F1   log loss   error  from .1")
            for name, values in rows.items():
                print(f"{name:24} {' '.join(f'{value:8.3f}' for value in np.mean(values, 0))}", flush=True)


def measure_speed():
    """Print how long fits and margins of two million scores of 100 relations take."""
    random = np.random.default_rng(0)
    names = [f"r{index}" for index in range(100)]
    logits = random.normal(-3, 2, (200, 10, 10, 100))
    gold = random.random(logits.shape) < 1 / (1 + np.exp(-logits))
    for method in ("platt", "isotonic"):
        for folds in (None, 5):
            start = time.process_time()
            calibration = rw.calibrate(logits, gold, relations=names, method=method, folds=folds)
            print(
                f"{method}, folds {folds}: {time.process_time() - start:.2f} s for {logits.size:,} scores",
                flush=True,
            )
        start = time.process_time()
        calibration.margins(logits)
        print(f"{method}, margins: {time.process_time() - start:.2f} s of processor time")


if __name__ == "__main__":
    if "--speed" in sys.argv[1:]:
        measure_speed()
    else:
        compare()
