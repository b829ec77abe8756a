from __future__ import annotations

import json
from fractions import Fraction
from math import exp, isnan, log, nan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.errors import DataError, FileError, ParseError
from rulewright.evaluate.calibration import (
    Calibration,
    KnotCurve,
    LogisticCurve,
    RelationCurve,
    Reliability,
    measure_reliability,
    plot_reliability,
)

NAMES = ("likes", "'knows'", "né")


def draw_candidates(low=1, high=12, scores=8):
    """Candidates: index of the relation, score, whether it is a fact, and how many it stands for."""
    row = st.tuples(
        st.integers(0, len(NAMES) - 1), st.integers(0, scores).map(lambda n: n / 8), st.booleans(), st.integers(1, 4)
    )
    return st.lists(row, min_size=low, max_size=high).filter(lambda rows: any(row[2] for row in rows))


def fit(rows, *, weighted=True, **options):
    relation, scores, is_true, weights = zip(*rows, strict=True)
    return Calibration.fit(NAMES, relation, scores, is_true, weights if weighted else None, **options)


def plain_isotonic(rows):
    """The means of blocks: at score i the highest of all ``a ≤ i`` of the lowest mean of ``a … b`` with ``b ≥ i``."""
    scores = sorted({row[1] for row in rows})

    def mean(a, b):
        inside = [row for row in rows if scores[a] <= row[1] <= scores[b]]
        return Fraction(sum(row[3] for row in inside if row[2]), sum(row[3] for row in inside))

    count = len(scores)
    return {scores[i]: max(min(mean(a, b) for b in range(i, count)) for a in range(i + 1)) for i in range(count)}


def pool_violators(rows):
    """The same means by merging neighbours that fall, until none does."""
    blocks = []
    for score in sorted({row[1] for row in rows}):
        same = [row for row in rows if row[1] == score]
        blocks.append([Fraction(sum(row[3] for row in same if row[2])), sum(row[3] for row in same), [score]])
        while len(blocks) > 1 and blocks[-2][0] / blocks[-2][1] >= blocks[-1][0] / blocks[-1][1]:
            true, total, inside = blocks.pop()
            blocks[-1] = [blocks[-1][0] + true, blocks[-1][1] + total, blocks[-1][2] + inside]
    return {score: true / total for true, total, inside in blocks for score in inside}


def plain_line(values, score):
    """The value at a score, on the straight line between the two scores that are next to it."""
    lower = [known for known in values if known <= score]
    upper = [known for known in values if known >= score]
    if not lower or not upper:
        return float(values[min(values)] if not lower else values[max(values)])
    low, high = max(lower), min(upper)
    share = 0.0 if low == high else (score - low) / (high - low)
    return float(values[low]) + share * float(values[high] - values[low])


@given(draw_candidates())
def test_isotonic_curves_are_those_of_pooled_neighbours(rows):
    expected = plain_isotonic(rows)
    assert expected == pool_violators(rows)
    curve = fit(rows).shared
    assert isinstance(curve, KnotCurve)
    asked = np.linspace(-0.5, 1.5, 65)
    found = curve.probabilities(asked)
    assert found == pytest.approx([plain_line(expected, score) for score in asked.tolist()], abs=1e-9)
    assert set(curve.scores) <= set(expected)


@given(draw_candidates(high=5, scores=3), st.lists(st.integers(0, 8), min_size=4, max_size=4))
def test_no_monotone_curve_is_nearer(rows, steps):
    found = fit(rows).shared

    def loss(curve):
        return sum(weight * (float(is_true) - curve(score)) ** 2 for _, score, is_true, weight in rows)

    other = KnotCurve((0.0, 0.125, 0.25, 0.375), tuple(step / 8 for step in sorted(steps)))
    assert loss(lambda score: found.probabilities(np.array([score]))[0]) <= 1e-9 + loss(
        lambda score: other.probabilities(np.array([score]))[0]
    )


@pytest.mark.slow
@settings(max_examples=60)
@given(draw_candidates())
def test_the_slope_of_the_logistic_loss_is_zero(rows):
    curve = fit(rows, method="platt").shared
    assert isinstance(curve, LogisticCurve) and curve.slope >= 0
    facts = sum(weight for *_, is_true, weight in rows if is_true)
    others = sum(weight for *_, is_true, weight in rows if not is_true)
    by_slope = by_intercept = 0.0
    for _, score, is_true, weight in rows:
        target = (facts + 1) / (facts + 2) if is_true else 1 / (others + 2)
        rest = weight * (1 / (1 + exp(-(curve.slope * score + curve.intercept))) - target)
        by_slope += rest * score
        by_intercept += rest
    total = facts + others
    assert by_intercept / total == pytest.approx(0, abs=1e-6)
    if curve.slope > 0:
        assert by_slope / total == pytest.approx(0, abs=1e-6)
    else:  # it would fall, and may not
        assert by_slope / total > -1e-6


def test_a_curve_where_all_scores_are_equal():
    rows = [(0, 0.5, True, 1), (0, 0.5, False, 3)]
    assert fit(rows).probabilities(NAMES[0], [0.0, 0.5, 1.0]).tolist() == [0.25, 0.25, 0.25]
    curve = fit(rows, method="platt").shared
    share = (2 / 3 + 3 * 1 / 5) / 4
    assert curve == LogisticCurve(0.0, pytest.approx(log(share / (1 - share))))


methods = st.sampled_from(["isotonic", "platt"])


@settings(max_examples=30)
@given(draw_candidates(), methods)
def test_a_weight_is_as_many_rows(rows, method):
    weighted = fit(rows, method=method, shrinkage=0)
    repeated = fit([row for row in rows for _ in range(row[3])], weighted=False, method=method, shrinkage=0)
    asked = np.linspace(-0.5, 1.5, 33)
    tolerance = 1e-9 if method == "isotonic" else 1e-4
    assert weighted.shared.probabilities(asked) == pytest.approx(repeated.shared.probabilities(asked), abs=tolerance)
    assert weighted.own.keys() == repeated.own.keys()
    for name in NAMES:
        expected = repeated.probabilities(name, asked)
        assert weighted.probabilities(name, asked) == pytest.approx(expected, abs=tolerance)


@pytest.mark.slow
@settings(max_examples=25)
@given(draw_candidates(), methods, st.sampled_from([0, 0.5, 5, 1000]))
def test_a_relation_is_drawn_to_all(rows, method, shrinkage):
    calibration = fit(rows, method=method, shrinkage=shrinkage)
    asked = np.linspace(-0.5, 1.5, 9)
    shared = fit(rows, method=method).shared.probabilities(asked)
    for index, name in enumerate(NAMES):
        part = [row for row in rows if row[0] == index]
        facts = sum(row[2] for row in part)
        found = calibration.probabilities(name, asked)
        if facts:
            own = fit(part, method=method).shared.probabilities(asked)
            share = facts / (facts + shrinkage)
            assert found == pytest.approx(share * own + (1 - share) * shared)
            assert calibration.own[name].facts == facts
        else:
            assert name not in calibration.own
            assert found.tolist() == shared.tolist()
    assert calibration.probabilities("unheard of", asked).tolist() == shared.tolist()


@settings(max_examples=30)
@given(draw_candidates(), methods, st.sampled_from([0.0, 5.0]))
def test_a_higher_score_is_never_less_probable(rows, method, shrinkage):
    calibration = fit(rows, method=method, shrinkage=shrinkage)
    asked = np.sort(np.concatenate([np.linspace(-2, 2, 257), [-1e9, 1e9], [score for _, score, *_ in rows]]))
    for name in (*NAMES, "unheard of"):
        found = calibration.probabilities(name, asked)
        assert (np.diff(found) >= -1e-12).all()
        assert found.min() >= 0 and found.max() <= 1


@given(draw_candidates(), st.lists(st.tuples(st.integers(0, 2), st.integers(-1, 9)), max_size=9))
def test_probabilities_of_several_relations_are_those_of_each(rows, asked):
    calibration = fit(rows)
    relation = np.array([index for index, _ in asked], dtype=np.int64)
    scores = np.array([score / 8 for _, score in asked])
    expected = [calibration.probabilities(NAMES[index], [score / 8])[0] for index, score in asked]
    assert calibration.probabilities_of(NAMES, relation, scores).tolist() == pytest.approx(expected)


@settings(max_examples=25)
@given(draw_candidates(), methods)
def test_what_is_saved_is_read(tmp_path_factory, rows, method):
    path = tmp_path_factory.mktemp("curves") / "curves.json"
    calibration = fit(rows, method=method, shrinkage=2.5)
    calibration.save(path)
    assert Calibration.read(path) == calibration
    assert json.loads(path.read_text(encoding="utf-8"))["shared"] == calibration.shared.as_dict()


def test_a_short_description():
    calibration = fit([(0, 0.1, False, 1), (0, 0.9, True, 1), (1, 0.9, True, 1)])
    assert repr(calibration) == "Calibration(isotonic, 2 relations, shrinkage 5)"


GOOD = {
    "format": "rulewright calibration 1",
    "method": "isotonic",
    "shrinkage": 5,
    "shared": {"scores": [0.1, 0.9], "values": [0.0, 1.0]},
    "own": {"likes": {"facts": 2, "scores": [0.5], "values": [0.5]}},
}


def test_bad_files_are_refused(tmp_path):
    path = tmp_path / "curves.json"

    def read(**changes):
        path.write_text(json.dumps(GOOD | changes))
        return Calibration.read(path)

    own = RelationCurve(KnotCurve((0.5,), (0.5,)), 2)
    assert read() == Calibration("isotonic", 5.0, KnotCurve((0.1, 0.9), (0.0, 1.0)), {"likes": own})
    platt = {"method": "platt", "own": {}}
    for changes, message in (
        ({"format": "rulewright rules 1"}, "format must be 'rulewright calibration 1', got the string 'rulewright rul"),
        ({"format": None}, "the top level has no 'format'"),
        ({"method": "beta"}, "method must be 'isotonic' or 'platt', got the string 'beta'"),
        ({"shrinkage": -1}, "shrinkage must be a number of at least 0, got the number -1"),
        ({"shrinkage": True}, "shrinkage must be a number, got true"),
        ({"own": []}, "own must be an object, got a list"),
        ({"own": {"likes": {"facts": 0}}}, "own.'likes'.facts must be a whole number of at least 1, got the number 0"),
        ({"own": {"likes": {"facts": 1, "scores": [1]}}}, "own.'likes' has no 'values'"),
        ({"shared": {"scores": [], "values": []}}, "must have as many scores as values, and one at least; got 0 and 0"),
        ({"shared": {"scores": [1, 2], "values": [0]}}, "as many scores as values, and one at least; got 2 and 1"),
        ({"shared": {"scores": [1, 1], "values": [0, 1]}}, "shared.scores must rise from knot to knot"),
        ({"shared": {"scores": [1, 2], "values": [0.5, 0.4]}}, "shared.values must lie in 0 … 1 and never fall"),
        ({"shared": {"scores": [1, 2], "values": [0.5, 1.5]}}, "shared.values must lie in 0 … 1 and never fall"),
        ({"shared": {"scores": [1, "a"], "values": [0, 1]}}, "shared.scores[1] must be a number, got the string 'a'"),
        (
            {**platt, "shared": {"slope": -1, "intercept": 0}},
            "shared.slope must be a number of at least 0, for a curve",
        ),
        ({**platt, "shared": {"slope": 1}}, "shared has no 'intercept'"),
    ):
        with pytest.raises(ParseError) as error:
            read(**changes)
        assert str(error.value).startswith(f"{path}: ") and message in str(error.value)
    path.write_text("{")
    with pytest.raises(ParseError, match=r"curves.json:1:\d: "):
        Calibration.read(path)
    with pytest.raises(FileError, match="cannot read"):
        Calibration.read(tmp_path / "none.json")


def test_bad_values_are_refused():
    scores, is_true = [0.1, 0.9], [False, True]
    for columns, options, message in (
        (([0, 0], scores, is_true), {"method": "beta"}, "method must be 'isotonic' or 'platt', got 'beta'"),
        (([0, 0], scores, is_true), {"shrinkage": -1}, "shrinkage must be >= 0, got -1"),
        (([0], scores, is_true), {}, "expected a relation for each of 2 scores, got 1"),
        (([0, 3], scores, is_true), {}, "relations are indices into 3 names, got 0 … 3"),
        (([-1, 0], scores, is_true), {}, "relations are indices into 3 names, got -1 … 0"),
        (([0, 0], scores, [False, False]), {}, "none of 2 candidates is a fact, so there is no curve to fit"),
        (([], [], []), {}, "none of 0 candidates is a fact"),
        (([0, 0], [0.1, nan], is_true), {}, "scores must be finite, got nan"),
        (([0, 0], [0.1, np.inf], is_true), {}, "scores must be finite, got inf"),
        (([0, 0], [0.1], is_true), {}, "expected columns of one length, got shapes (1,), (2,) and (1,)"),
        (([0, 0], scores, is_true, [1, 0]), {}, "weights must be finite and above 0"),
        (([0, 0], scores, is_true, [1, np.inf]), {}, "weights must be finite and above 0"),
    ):
        with pytest.raises(DataError) as error:
            Calibration.fit(NAMES, *columns, **options)
        assert message in str(error.value)
    with pytest.raises(DataError, match="a score is NaN, which has no probability"):
        Calibration.fit(NAMES, [0, 0], scores, is_true).probabilities("likes", [nan])


said = st.lists(
    st.tuples(st.integers(0, 64).map(lambda n: n / 64), st.booleans(), st.integers(1, 4)), min_size=0, max_size=20
)


@given(said, st.integers(1, 12), st.booleans(), st.integers(0, 12))
def test_reliability_is_that_of_plain_loops(rows, bins, is_weighted, first):
    rows = rows if is_weighted else [(value, is_true, 1) for value, is_true, _ in rows]
    values, is_true, weights = zip(*rows, strict=True) if rows else ((), (), ())
    found = measure_reliability(values, is_true, weights if is_weighted else None, bins=bins)
    assert len(found.bounds) == bins + 1 and found.bounds == pytest.approx([k / bins for k in range(bins + 1)])
    inside = [[] for _ in range(bins)]
    for row in rows:
        inside[min(int(Fraction(row[0]) * bins), bins - 1)].append(row)
    gaps = []
    for position, part in enumerate(inside):
        count = sum(weight for *_, weight in part)
        assert found.candidates[position] == count
        if not part:
            assert isnan(found.predicted[position]) and isnan(found.observed[position])
            continue
        predicted = sum(weight * value for value, _, weight in part) / count
        observed = sum(weight for _, true, weight in part if true) / count
        assert (found.predicted[position], found.observed[position]) == pytest.approx((predicted, observed))
        gaps.append((position, count, abs(observed - predicted)))

    def error(kept):
        total = sum(count for _, count, _ in kept)
        return (
            pytest.approx(sum(count * gap for _, count, gap in kept) / total)
            if kept
            else pytest.approx(nan, nan_ok=True)
        )

    assert found.error == error(gaps)
    first = min(first, bins)
    low = found.bounds[first]
    assert found.error_from(low) == error([gap for gap in gaps if gap[0] >= first])
    assert [row[1] for row in found.rows()] == [count for _, count, _ in gaps]
    assert [row[0] for row in found.rows()] == [
        f"{found.bounds[position]:.2f} – {found.bounds[position + 1]:.2f}" for position, *_ in gaps
    ]
    written = json.loads(json.dumps(found.as_dict()))
    assert written["observed"] == [None if isnan(value) else value for value in found.observed]
    assert written["error"] == (None if isnan(found.error) else found.error)


@pytest.mark.parametrize("bins", [7, 50, 100])
def test_a_bin_has_its_lower_bound_in_it(bins):
    for position, bound in enumerate(measure_reliability([], [], bins=bins).bounds[:-1]):
        assert measure_reliability([bound], [True], bins=bins).candidates[position] == 1


def test_a_curve_holds_on_what_it_was_fitted_to():
    random = np.random.default_rng(0)
    scores = random.random(400).round(2)
    is_true = random.random(400) < scores**3
    raw = measure_reliability(scores, is_true)
    fitted = Calibration.fit(["likes"], np.zeros(400, dtype=int), scores, is_true, shrinkage=0)
    assert measure_reliability(fitted.probabilities("likes", scores), is_true).error < 0.01 < raw.error


def test_bad_probabilities_are_refused():
    with pytest.raises(DataError, match=r"probabilities must lie in 0 … 1, got 0\.5 … 1\.5"):
        measure_reliability([0.5, 1.5], [True, False])
    with pytest.raises(DataError, match="bins must be >= 1, got 0"):
        measure_reliability([0.5], [True], bins=0)
    with pytest.raises(DataError, match="expected columns of one length"):
        measure_reliability([0.5], [True, False])
    with pytest.raises(DataError, match="scores must be finite, got nan"):
        measure_reliability([nan], [True])


BYTES = {".png": b"\x89PNG", ".svg": b"<?xml", ".PDF": b"%PDF"}


@pytest.mark.parametrize("ending", BYTES)
def test_plots_are_written(tmp_path, ending):
    pytest.importorskip("matplotlib")
    parts = {
        "r(h, ?)": measure_reliability([0.1, 0.1, 0.9, 0.9], [False, False, True, False]),
        "new facts": measure_reliability([], []),
    }
    path = tmp_path / f"plot{ending}"
    plot_reliability(parts, path, title="how well probabilities hold")
    assert path.read_bytes().startswith(BYTES[ending])
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_drawn_is_refused(tmp_path):
    pytest.importorskip("matplotlib")
    reliability = measure_reliability([0.5], [True])
    for name in ("plot.txt", "plot", "plot.svg.gz"):
        with pytest.raises(DataError, match=r"a plot is a \.png, \.svg or \.pdf file, got .*" + name):
            plot_reliability({"all": reliability}, tmp_path / name)
    with pytest.raises(DataError, match="there is no reliability to draw"):
        plot_reliability({}, tmp_path / "plot.svg")
    with pytest.raises(FileError, match="there is no folder"):
        plot_reliability({"all": reliability}, tmp_path / "none" / "plot.svg")
    assert not list(tmp_path.iterdir())


def test_no_candidates_have_no_error():
    empty = measure_reliability([], [], bins=3)
    assert isnan(empty.error) and isnan(empty.error_from(0.5)) and empty.rows() == []
    assert empty.as_dict()["error"] is None
    one = Reliability((0.0, 0.5, 1.0), (3.0, 1.0), (0.1, 0.9), (0.0, 1.0))
    assert one.error == pytest.approx((3 * 0.1 + 0.1) / 4)
    assert one.error_from(0.5) == pytest.approx(0.1) and isnan(one.error_from(0.6))
