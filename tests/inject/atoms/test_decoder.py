from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from inject.atoms.plain_decoder import exhaustive, forces, plain_objective
from inject.atoms.plain_pairs import FORMULAS, RELATIONS, any_rules, horn_rules, plain_violations

from rulewright.errors import DataError, MemoryLimitError
from rulewright.inject import RuleDecoder
from rulewright.inject.atoms import decoder as decoder_module
from rulewright.inject.atoms import zero_one
from rulewright.logic import RuleSet, parse_rules

FAMILY = parse_rules("""
    0.99 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z).
    child_of(X, Y) :- parent_of(Y, X).
    spouse_of(X, Y) :- spouse_of(Y, X).
    hard !(parent_of(X, Y) & child_of(X, Y)).
""")
NAMES = ("parent_of", "child_of", "spouse_of")


def random_logits(seed, size, relations=3, scale=2.0, shift=0.0):
    return np.random.default_rng(seed).normal(shift, scale, (size, size, relations))


def over(rules, names):
    """Keep the statements over some of the relations."""
    kept = [statement for statement in rules if set(RuleSet([statement]).arities) <= set(names)]
    assume(kept)
    return RuleSet(kept)


@pytest.mark.slow
@pytest.mark.parametrize("enumerated", [14, 0])
@given(
    rules=any_rules(),
    seed=st.integers(0, 999),
    shape=st.sampled_from([(2, 3), (3, 2), (4, 1)]),
    limit=st.sampled_from([None, None, 1]),
    tau=st.sampled_from([1.0, 0.5, 2.0]),
    epsilon=st.sampled_from([0.0, 1e-5]),
)
@settings(max_examples=40, deadline=None)
def test_exact_equals_exhaustive_search(enumerated, rules, seed, shape, limit, tau, epsilon):
    size, names = shape[0], RELATIONS[: shape[1]]
    rules = over(rules, names)
    logits = random_logits(seed, size, len(names))
    options = {"relations": names, "tau": tau, "epsilon": epsilon, "max_labels_per_pair": limit}
    best = exhaustive(logits, rules, names, [tau] * len(names), epsilon=epsilon, limit=limit)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(zero_one, "ENUMERATED", enumerated)
        if best is None:
            with pytest.raises(DataError, match="the rules contradict each other"):
                RuleDecoder(rules, **options)(logits)
            return
        try:
            decoder = RuleDecoder(rules, **options)
        except DataError:
            assume(False)  # consistent for so few entities only
        found = decoder(logits)
    assert found.objective == pytest.approx(best[0], rel=1e-12)
    assert np.array_equal(found.labels, best[1])
    assert found.optimal and found.violations == 0


@given(rules=any_rules(4), seed=st.integers(0, 999), size=st.integers(4, 6), shift=st.sampled_from([0.0, -2.0, -4.0]))
@settings(max_examples=25, deadline=None)
def test_exact_equals_the_full_program(rules, seed, size, shift):
    logits = random_logits(seed, size, shift=shift)
    try:
        exact, full = (RuleDecoder(rules, relations=RELATIONS, method=method) for method in ("exact", "full"))
    except DataError as error:
        assert "contradict" in str(error)
        return
    one, other = exact(logits), full(logits)
    assert one.objective == pytest.approx(other.objective, rel=1e-12)
    assert np.array_equal(one.labels, other.labels)
    assert plain_violations(one.labels, rules, RELATIONS) == 0
    assert one.optimal and other.optimal
    for found in (one, other):
        assert found.objective == pytest.approx(plain_objective(logits, found.labels, [1.0] * 3), rel=1e-12)
        for change in found.changes:
            place = (*change.args, RELATIONS.index(change.predicate))
            assert bool(found.labels[place]) == change.after
            assert bool(found.before[place]) == change.before
            assert forces(change, found.labels, RELATIONS)
        assert len(found.changes) == (found.before != found.labels).sum()


@pytest.mark.slow
@given(rules=any_rules(4, FORMULAS[:-2]), seed=st.integers(0, 999), time_limit=st.sampled_from([0.0, 1e-9, 1e-3]))
@settings(max_examples=40, deadline=None)
def test_a_time_limit_leaves_no_violation(rules, seed, time_limit):
    decoder = RuleDecoder(rules, relations=RELATIONS, time_limit=time_limit, max_labels_per_pair=2)
    found = decoder(random_logits(seed, 6))
    assert plain_violations(found.labels, rules, RELATIONS) == 0
    assert found.labels.sum(2).max() <= 2
    exact = RuleDecoder(rules, relations=RELATIONS, max_labels_per_pair=2)(random_logits(seed, 6))
    assert found.objective >= exact.objective - 1e-9
    assert not found.optimal or found.objective == pytest.approx(exact.objective, rel=1e-12)


@given(rules=any_rules(3), seed=st.integers(0, 999), names=st.permutations(RELATIONS))
@settings(max_examples=15, deadline=None)
def test_a_time_limit_leaves_no_violation_of_unconditional_clauses(rules, seed, names):
    rules = RuleSet([*rules, *parse_rules(f"hard {names[0]}(X, Y) | {names[1]}(Y, X). hard {names[2]}(X, Y).")])
    try:
        decoder = RuleDecoder(rules, relations=RELATIONS, time_limit=0)
        found = decoder(random_logits(seed, 4))
    except DataError as error:
        assert "contradict" in str(error)
        return
    assert plain_violations(found.labels, rules, RELATIONS) == 0


@given(size=st.integers(0, 5), seed=st.integers(0, 99), threshold=st.sampled_from([0.5, 0.2, [0.1, 0.5, 0.9]]))
@settings(max_examples=30, deadline=None)
def test_without_rules_it_is_thresholding(size, seed, threshold):
    logits = random_logits(seed, size)
    expected = 1 / (1 + np.exp(-logits)) > threshold
    expected[range(size), range(size)] = False
    for method in ("exact", "simplified", "full"):
        found = RuleDecoder([], relations=RELATIONS, method=method)(logits, threshold=threshold)
        assert np.array_equal(found.labels, expected)
        assert found.optimal and found.rounds == found.constraints == 0 and not found.changes


def test_ties_go_to_zero():
    decoder = RuleDecoder(FAMILY, relations=NAMES)
    assert not decoder(np.zeros((4, 4, 3))).labels.any()
    logits = np.full((3, 3, 3), -1.0)
    logits[0, 1] = 0.0
    assert not decoder(logits, threshold=0.5).labels.any()


@pytest.mark.parametrize("enumerated", [14, 0])
def test_an_atom_that_costs_nothing_stays_zero_unless_a_rule_needs_it(monkeypatch, enumerated):
    monkeypatch.setattr(zero_one, "ENUMERATED", enumerated)
    logits = np.full((2, 2, 3), -5.0)
    logits[0, 1, 0], logits[1, 0, 1] = 3.0, 0.0
    found = RuleDecoder(parse_rules("b(X, Y) :- a(Y, X). c(X, Y) :- b(X, Y), c(Y, X)."), relations=RELATIONS)(logits)
    assert found.facts() == [(0, "a", 1), (1, "b", 0)]
    logits[0, 1, 0] = -3.0
    assert RuleDecoder(parse_rules("b(X, Y) :- a(Y, X)."), relations=RELATIONS)(logits).facts() == []


@given(rules=horn_rules(4), seed=st.integers(0, 999))
@settings(max_examples=25, deadline=None)
def test_simplified_has_the_constraints_of_thresholded_bodies(rules, seed):
    logits = random_logits(seed, 5, shift=-1.0)
    found = RuleDecoder(rules, relations=RELATIONS, method="simplified")(logits)
    exact = RuleDecoder(rules, relations=RELATIONS)(logits)
    assert found.objective <= exact.objective + 1e-9
    assert found.optimal == (found.violations == 0)
    assert found.optimal == (plain_violations(found.labels, rules, RELATIONS) == 0)
    if found.optimal:
        assert found.objective == pytest.approx(exact.objective, rel=1e-12)


def test_simplified_may_leave_a_violation_that_exact_repairs():
    rules = parse_rules("b(X, Y) :- a(X, Y). c(X, Y) :- b(X, Y), c(Y, X).")
    logits = np.full((2, 2, 3), -9.0)
    logits[0, 1], logits[1, 0, 2] = [5.0, -1.0, -2.0], 5.0
    simple = RuleDecoder(rules, relations=RELATIONS, method="simplified")(logits)
    exact = RuleDecoder(rules, relations=RELATIONS)(logits)
    assert (simple.violations, simple.optimal, simple.rounds) == (1, False, 1)
    assert (exact.violations, exact.optimal, exact.rounds) == (0, True, 2)
    assert exact.facts() == [(0, "a", 1), (0, "b", 1), (0, "c", 1), (1, "c", 0)]
    assert "1 violated grounding" in str(simple)


def test_compensation_weighs_rare_relations():
    frequencies = {"a": 90, "b": 8}
    logits = random_logits(1, 4)
    share = np.array([91, 9, 1]) / 101
    weights = 0.8 * (-np.log(share)) ** 1.5
    rules = parse_rules("b(X, Y) :- a(X, Y).")
    for given_as in (frequencies, [90, 8, 0]):
        decoder = RuleDecoder(rules, relations=RELATIONS, tau=0.8, k=1.5, frequencies=given_as)
        found = decoder(logits)
        assert found.objective == pytest.approx(plain_objective(logits, found.labels, weights), rel=1e-12)
    small = random_logits(2, 2)
    best = exhaustive(small, rules, RELATIONS, weights)
    assert np.array_equal(decoder(small).labels, best[1])


def test_adaptive_thresholds_are_margins():
    logits, bounds = random_logits(3, 5), np.random.default_rng(4).normal(size=(5, 5))
    decoder = RuleDecoder(FAMILY, relations=NAMES)
    one, other = decoder(logits, threshold_logits=bounds), decoder(logits - bounds[:, :, None])
    assert np.array_equal(one.labels, other.labels)
    assert one.objective == other.objective


def test_tensors_of_any_precision_are_taken():
    logits = torch.randn(4, 4, 3, generator=torch.Generator().manual_seed(0)).bfloat16().requires_grad_()
    decoder = RuleDecoder(FAMILY, relations=NAMES)
    found = decoder(logits, threshold=torch.tensor(0.5))
    assert np.array_equal(found.labels, decoder(logits.detach().double().numpy()).labels)


def test_the_reference_decides_only_pairs_near_a_positive_margin():
    rules = parse_rules("b(X, Y) :- a(Y, X). c(X, Y) :- a(X, Z), a(Z, Y). c(X, Y) :- a(X, Y).")
    logits = np.full((4, 4, 3), -8.0)
    logits[0, 1, 0] = logits[1, 2, 0] = 6.0
    logits[[0, 1, 0], [1, 2, 2], 2] = logits[[1, 2], [0, 1], 1] = -0.5
    logits[:, 3, 1] = -1e-3
    everything = RuleDecoder(rules, relations=RELATIONS, tau=3.0)(logits)
    reference = RuleDecoder(rules, relations=RELATIONS, tau=3.0, free="reference")(logits)
    assert everything.before[2, 3, 1] and not reference.before[2, 3, 1]
    assert reference.labels[0, 2, 2] and reference.labels[2, 1, 1]
    assert not reference.labels[:, 3].any() and not reference.labels[3].any()


def test_a_limit_of_labels_is_kept_and_explained():
    rules = parse_rules("b(X, Y) :- a(X, Y).")
    logits = np.full((2, 2, 3), -9.0)
    logits[0, 1] = [5.0, -1.0, 2.0]
    found = RuleDecoder(rules, relations=RELATIONS, max_labels_per_pair=2)(logits)
    assert found.facts() == [(0, "a", 1), (0, "b", 1)]
    added, removed = found.changes
    assert (added.predicate, added.after, str(added.rule)) == ("b", True, "b(X, Y) :- a(X, Y).")
    assert (removed.predicate, removed.after, removed.rule) == ("c", False, None)
    assert "limit of labels" in str(removed)


@pytest.mark.parametrize(
    ("text", "conflict"),
    [
        (
            "hard a(X, Y). hard !a(X, Y).",
            r"hard a\(X, Y\). where X = (\d), Y = (\d); hard !a\(X, Y\). where X = \1, Y = \2",
        ),
        (
            "hard a(X, Y). b(X, Y) :- a(X, Y). c(X, Y) :- b(Y, X). hard !(a(X, Y) & c(X, Y)).",
            r"(?=.*hard a\(X, Y\)\.)(?=.*b\(X, Y\) :- a)(?=.*c\(X, Y\) :- b\(Y, X\). where X = \d, Y = )(?=.*hard !)",
        ),
        ("hard a(X, Y) | b(X, Y). hard !a(X, Y). hard !b(X, Y).", r"hard a\(X, Y\) \| b\(X, Y\)\."),
    ],
)
def test_contradictions_are_named(text, conflict):
    with pytest.raises(DataError, match=rf"the rules contradict each other: .*{conflict}"):
        RuleDecoder(parse_rules(text), relations=RELATIONS)


def test_a_contradiction_with_the_limit_is_named():
    with pytest.raises(DataError, match=r"at most 1 labels between entities \(\d, \d\)"):
        RuleDecoder(parse_rules("hard a(X, Y). hard b(X, Y)."), relations=RELATIONS, max_labels_per_pair=1)


def test_a_contradiction_with_fixed_pairs_is_named():
    decoder = RuleDecoder(parse_rules("hard a(X, Y)."), relations=RELATIONS, free="reference")
    with pytest.raises(DataError, match=r"the rules contradict each other: hard a\(X, Y\). where X = 0, Y = 1"):
        decoder(np.full((2, 2, 3), -1.0))


def test_the_full_program_says_when_it_is_too_large():
    decoder = RuleDecoder(parse_rules("c(X, Y) :- a(X, Z), b(Z, Y)."), relations=RELATIONS, method="full")
    with pytest.raises(MemoryLimitError, match="would write 26,730,600 constraints for 300 entities; method='exact'"):
        decoder(np.zeros((300, 300, 3)))


@pytest.mark.parametrize("size", [0, 1])
def test_documents_without_pairs(size):
    found = RuleDecoder(parse_rules("hard a(X, Y)."), relations=RELATIONS)(np.full((size, size, 3), np.nan))
    assert found.labels.shape == (size, size, 3)
    assert (found.objective, found.optimal, found.changes) == (0.0, True, ())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_must_be_finite_off_the_diagonal(value):
    logits = np.zeros((3, 3, 3))
    logits[range(3), range(3)] = value
    decoder = RuleDecoder(FAMILY, relations=NAMES)
    decoder(logits)
    with pytest.raises(DataError, match=r"threshold_logits must be finite, got .* between entities 0 and 2"):
        decoder(logits, threshold_logits=np.array([[0.0, 0.0, value], [0.0] * 3, [0.0] * 3]))
    logits[1, 2, 1] = value
    with pytest.raises(
        DataError, match=f"must be finite, got {value} for relation 'child_of' between entities 1 and 2"
    ):
        decoder(logits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "fast"}, "method must be 'exact', 'simplified' or 'full', got 'fast'"),
        ({"free": "some"}, "free must be 'all' or 'reference', got 'some'"),
        ({"tau": -1}, "tau must be > 0, got -1"),
        ({"k": -1}, "k must be >= 0, got -1"),
        ({"k": 1.0}, "give frequencies, the facts of each"),
        ({"frequencies": {"d": 1}}, "unknown relation 'd'"),
        ({"frequencies": [1, 2]}, r"frequencies must have 3 counts, got shape \[2\]"),
        ({"frequencies": [1, 2, -1]}, "frequencies must be >= 0 and finite"),
        ({"max_labels_per_pair": 0}, "max_labels_per_pair must be >= 1 or None, got 0"),
        ({"epsilon": -1.0}, "epsilon must be >= 0, got -1.0"),
        ({"time_limit": -1}, "time_limit must be >= 0 or None, got -1"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises((DataError, LookupError), match=message):
        RuleDecoder(FAMILY, relations=NAMES, **options)


@pytest.mark.parametrize(
    ("logits", "options", "message"),
    [
        (np.zeros((3, 3)), {}, r"logits must have shape \[B, n, n, 3\], got \[3, 3\]"),
        (np.zeros((3, 2, 3)), {}, r"got \[3, 2, 3\]"),
        ("abc", {}, "logits must be an array of numbers, got str"),
        (np.zeros((3, 3, 3)), {"threshold": 1.0}, "threshold must be a probability between 0 and 1, got 1.0"),
        (np.zeros((3, 3, 3)), {"threshold": [0.5, 0.0, 1.0]}, "between 0 and 1, got 0.0"),
        (np.zeros((3, 3, 3)), {"threshold": [0.5, 0.1]}, r"threshold must be one number or 3, got shape \[2\]"),
        (np.zeros((3, 3, 3)), {"threshold": 0.1, "threshold_logits": np.zeros((3, 3))}, "threshold_logits, not both"),
        (
            np.zeros((3, 3, 3)),
            {"threshold_logits": np.zeros(3)},
            r"threshold_logits must have shape \[3, 3\], got \[3\]",
        ),
    ],
)
def test_wrong_input(logits, options, message):
    with pytest.raises(DataError, match=message):
        RuleDecoder(FAMILY, relations=NAMES)(logits, **options)


def same(one, other):
    if not np.array_equal(one.labels, other.labels) or not np.array_equal(one.before, other.before):
        return False
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("objective", "optimal", "rounds", "constraints", "violations", "changes", "relations", "solver")
    )


@pytest.mark.slow
def test_a_batch_equals_one_by_one_in_order():
    documents = [random_logits(seed, 2 + seed % 4) for seed in range(9)]
    bounds = [np.full(document.shape[:2], 0.1 * index) for index, document in enumerate(documents)]
    decoder = RuleDecoder(FAMILY, relations=NAMES)
    alone = [decoder(document, threshold_logits=bound) for document, bound in zip(documents, bounds, strict=True)]
    for workers in (1, 2):
        found = decoder.decode_batch(documents, threshold_logits=bounds, workers=workers)
        assert all(map(same, alone, found))
    tensors = [torch.tensor(document) for document in documents]
    assert all(map(same, decoder.decode_batch(documents), decoder.decode_batch(tensors)))
    assert decoder.decode_batch([], workers=4) == []


def test_a_batch_names_the_document_that_is_wrong():
    documents = [np.zeros((2, 2, 3)), np.full((2, 2, 3), np.nan)]
    with pytest.raises(DataError, match="document 1: logits must be finite"):
        RuleDecoder(FAMILY, relations=NAMES).decode_batch(documents)
    with pytest.raises(DataError, match="workers must be >= 1, got 0"):
        RuleDecoder(FAMILY, relations=NAMES).decode_batch(documents, workers=0)
    with pytest.raises(DataError, match="threshold_logits must be 2 arrays, one a document, got 1"):
        RuleDecoder(FAMILY, relations=NAMES).decode_batch(documents, threshold_logits=[np.zeros((2, 2))])


@pytest.mark.slow
def test_a_worker_needs_no_torch():
    import subprocess
    import sys

    code = f"import sys, {decoder_module.__name__}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_answer_for_people():
    logits = np.full((3, 3, 3), -4.0)
    logits[0, 1, 2] = logits[1, 0, 2] = 3.0
    logits[1, 2, 0] = logits[2, 1, 1] = 5.0
    logits[0, 2, 0] = logits[2, 0, 1] = -0.5
    found = RuleDecoder(FAMILY, relations=NAMES)(logits)
    assert str(found).startswith("6 facts, objective ")
    assert "(optimal), 2 rounds, 2 constraints, 2 changes" in str(found)
    first = found.changes[0]
    assert first.text(["Ann Lee", "bob", "cid"]) == (
        "+ parent_of('Ann Lee', cid)  by  0.99 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z).  "
        "where X = 'Ann Lee', Y = bob, Z = cid"
    )
    assert (0, "parent_of", 2) in found.facts()
    assert found.optimal and found.violations == 0
    assert dict(first.grounding) == {"X": 0, "Y": 1, "Z": 2}
