"""The decoder on atoms of any shape: unary, propositional, n-ary, classes; beside trying all labellings."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inject.atoms.plain_labels import best_labelling, holds, is_consistent

import rulewright as rw
from rulewright.errors import DataError
from rulewright.inject.atom_space import AtomSpace
from rulewright.inject.atoms import forest, zero_one
from rulewright.inject.atoms.reports import decoder_report, read_reports, write_reports

PROBLEMS = {
    # rules, the sizes of types, predicates with logits, predicates that are observed
    "hierarchy": (
        "hard dog(X) => animal(X). hard cat(X) => animal(X). hard animal(X) => alive(X).",
        {"entity": 2},
        ["dog", "cat", "animal", "alive"],
        [],
    ),
    "exclusions": (
        "hard dog(X) => animal(X). hard !(dog(X) & cat(X)). hard dog(X) | cat(X) | !animal(X).",
        {"entity": 3},
        ["dog", "cat", "animal"],
        [],
    ),
    "compact hierarchy": (
        "predicate label(sample, class). predicate parent(class, class). closed parent. "
        "hard label(X, C) & parent(C, P) => label(X, P).",
        {"sample": 2, "class": 3},
        ["label"],
        ["parent"],
    ),
    "tags": (
        "predicate tag(token) in {b, i, o}. closed next. "
        "hard tag(X) in {i} & next(Y, X) => tag(Y) in {b, i}. hard !(tag(X) in {b} & next(X, Y) & tag(Y) in {b}).",
        {"token": 4},
        ["tag"],
        ["next"],
    ),
    "classes and truths": (
        "predicate kind(node) in {a, b, c}. hard kind(X) in {a, b} & link(X, Y) => kind(Y) in {b, c}. "
        "hard big(X) => !(kind(X) in {c}).",
        {"node": 2},
        ["kind", "link", "big"],
        [],
    ),
    "propositions": (
        "hard rain => wet. hard sun | rain. hard wet & cold(X) => ice(X). c(X) :- cold(X), rain.",
        {"entity": 2},
        ["rain", "sun", "wet", "cold", "ice", "c"],
        [],
    ),
    "ternary": (
        "hard gave(X, Y, Z) => !gave(Y, X, Z). hard gave(X, Y, Z) & thing(Z) => !thing(X).",
        {"entity": 2},
        ["gave", "thing"],
        [],
    ),
    "self loops": (
        "hard r(X, Y) & r(Y, Z) => r(X, Z). hard p(X) => r(X, X).",
        {"entity": 2},
        ["r", "p"],
        [],
    ),
    "comparisons": (
        "hard p(X) & p(Y) & X != Y => r(X, Y) | r(Y, X). hard r(X, Y) & p(Z) => X = Z | Y = Z.",
        {"entity": 2},
        ["r", "p"],
        [],
    ),
    "constants": (
        "hard likes(X, ann) => p(X). hard p(bob). hard kind(bob) in {a} => !likes(bob, bob). "
        "predicate kind(person) in {a, b}. predicate likes(person, person).",
        {"person": ["ann", "bob"]},
        ["likes", "p", "kind"],
        [],
    ),
}


def size_of(domain):
    return domain if isinstance(domain, int) else len(domain)


def draw_problem(name, seed, batch, mask_share=0.0, observed_share=0.0):
    """Return a decoder's rules, domains and random inputs."""
    text, domains, open_names, closed_names = PROBLEMS[name]
    random = np.random.default_rng(seed)
    space = AtomSpace(text, domains=domains)
    sizes = {type_name: size_of(domain) for type_name, domain in domains.items()}

    def shape(predicate):
        return tuple(sizes[type_name] for type_name in space.predicates[predicate].types)

    def values(predicate, lead):
        classes = space.predicates[predicate].classes
        drawn = random.integers(0, 2 if classes is None else len(classes), (*lead, *shape(predicate)))
        return drawn.astype(bool) if classes is None else drawn

    logits, evidence = {}, {}
    for predicate in open_names:
        classes = space.predicates[predicate].classes
        last = () if classes is None else (len(classes),)
        logits[predicate] = random.normal(0, 2, (*batch, *shape(predicate), *last))
        if observed_share and random.random() < 0.5:
            where = random.random((*batch, *shape(predicate))) < observed_share
            evidence[predicate] = (values(predicate, batch), where)
    for predicate in closed_names:
        lead = batch if random.random() < 0.5 else ()
        if predicate == "next":
            evidence[predicate] = np.broadcast_to(np.eye(4, k=1, dtype=bool), (*lead, 4, 4)).copy()
        else:
            evidence[predicate] = values(predicate, lead)
    mask = {}
    if mask_share:
        for type_name, size in sizes.items():
            mask[type_name] = random.random((*batch, size)) >= mask_share
    return text, domains, logits, evidence, mask


def rows_of(values, batch, lead):
    """Return what each row of a batch has."""
    if isinstance(values, tuple):
        return list(zip(*(rows_of(part, batch, lead) for part in values), strict=True))
    if not lead:
        return [values] * int(np.prod(batch))
    return list(np.reshape(values, (-1, *values.shape[len(batch) :])))


def best_of_rows(space, logits, evidence, mask, batch, sizes):
    """Return the best labelling of each row, by definition."""
    rows = int(np.prod(batch))
    found = []
    for row in range(rows):

        def part(values, dims, row=row):
            array = values[0] if isinstance(values, tuple) else values
            return rows_of(values, batch, array.ndim - dims)[row]

        found.append(
            best_labelling(
                space,
                {name: part(given, space.count_dims(name)) for name, given in logits.items()},
                {name: part(given, space.predicates[name].arity) for name, given in evidence.items()},
                {name: part(given, 1) for name, given in mask.items()},
                sizes,
            )
        )
    return found


def check(decoder, logits, evidence, mask, batch, domains):
    """Decode, and compare with trying all labellings."""
    sizes = {type_name: size_of(domain) for type_name, domain in domains.items()}
    expected = best_of_rows(decoder.space, logits, evidence, mask, batch, sizes)
    if any(row is None for row in expected):
        with pytest.raises(DataError, match="the rules contradict"):
            decoder(logits, evidence, mask)
        return None
    found = decoder(logits, evidence, mask)
    assert found.optimal and found.violations == 0
    assert found.objective == pytest.approx(sum(cost for cost, _ in expected), rel=1e-9, abs=1e-9)
    for name in logits:
        stacked = np.stack([labels[name] for _, labels in expected])
        assert np.array_equal(found.labels[name].reshape(stacked.shape), stacked), name
        assert found.labels[name].shape[: len(batch)] == batch
    return found


CASES = st.tuples(
    st.integers(0, 10_000),
    st.sampled_from([(), (2,), (2, 1)]),
    st.sampled_from([0.0, 0.3]),
    st.sampled_from([0.0, 0.3]),
)


@pytest.mark.parametrize("name", PROBLEMS)
@given(case=CASES, distinct=st.booleans(), method=st.sampled_from(["exact", "full"]))
@settings(max_examples=12, deadline=None)
def test_labels_are_the_best_of_all(name, case, distinct, method):
    seed, batch, mask_share, observed_share = case
    text, domains, logits, evidence, mask = draw_problem(name, seed, batch, mask_share, observed_share)
    if distinct and name == "self loops":
        return  # an entity with itself is refused
    if distinct and name == "constants":
        return  # where a variable is the constant of the same atom, it is none of an entity with itself
    decoder = rw.RuleDecoder(text, domains=domains, distinct=distinct, method=method)
    check(decoder, logits, evidence, mask, batch, domains)


@pytest.mark.parametrize("name", ["hierarchy", "tags", "compact hierarchy"])
@pytest.mark.parametrize("use", ["forest", "program", "solver"])
@given(case=CASES)
@settings(max_examples=12, deadline=None)
def test_every_way_of_solving_finds_the_best(name, use, case):
    seed, batch, mask_share, observed_share = case
    text, domains, logits, evidence, mask = draw_problem(name, seed, batch, mask_share, observed_share)
    with pytest.MonkeyPatch.context() as patch:
        if use != "forest":
            patch.setattr(forest, "FEW_GROUNDINGS", -1)
            patch.setattr(forest, "GROUNDINGS_PER_VIOLATION", -1)
            patch.setattr(forest, "_count_unbound", lambda *_: 0)
        if use == "solver":
            patch.setattr(zero_one, "ENUMERATED", 0)
        found = check(rw.RuleDecoder(text, domains=domains), logits, evidence, mask, batch, domains)
    if found is not None and found.solver != "thresholds":
        assert found.solver == ("dynamic programming" if use == "forest" else "integer program") or name != "tags"


@pytest.mark.parametrize("name", PROBLEMS)
@given(case=CASES)
@settings(max_examples=8, deadline=None)
def test_changes_are_forced_by_their_rules(name, case):
    seed, batch, mask_share, observed_share = case
    text, domains, logits, evidence, mask = draw_problem(name, seed, batch, mask_share, observed_share)
    decoder = rw.RuleDecoder(text, domains=domains)
    try:
        found = decoder(logits, evidence, mask)
    except DataError:
        return
    space = decoder.space
    different = sum(int((found.labels[predicate] != found.before[predicate]).sum()) for predicate in logits)
    assert len(found.changes) == different
    for change in found.changes:
        assert found.labels[change.predicate].shape == found.before[change.predicate].shape
        place = (*change.row, *change.args)
        classes = space.predicates[change.predicate].classes
        now, was = (labels[change.predicate][place] for labels in (found.labels, found.before))
        assert change.after == (bool(now) if classes is None else classes[now])
        assert change.before == (bool(was) if classes is None else classes[was])
        if change.rule is None:
            continue
        world = {predicate: np.array(labels[change.row]) for predicate, labels in found.labels.items()}
        for predicate, observation in evidence.items():
            if predicate not in logits:
                world[predicate] = (
                    observation[change.row] if observation.ndim > space.predicates[predicate].arity else observation
                )
        world[change.predicate][change.args] = was
        at = {rw.parse_formula(f"p({variable})").args[0]: entity for variable, entity in change.grounding}
        formulas = [formula for index, formula in space.stated if space.rules[index] == change.rule]
        assert not all(holds(space, formula, world, at) for formula in formulas)


@pytest.mark.parametrize("name", PROBLEMS)
@given(case=CASES)
@settings(max_examples=6, deadline=None)
def test_a_time_limit_leaves_no_violation(name, case):
    seed, batch, mask_share, observed_share = case
    text, domains, logits, evidence, mask = draw_problem(name, seed, batch, mask_share, observed_share)
    exact = rw.RuleDecoder(text, domains=domains)
    hurried = rw.RuleDecoder(text, domains=domains, time_limit=0)
    try:
        best = exact(logits, evidence, mask)
    except DataError:
        with pytest.raises(DataError, match="contradict"):
            hurried(logits, evidence, mask)
        return
    found = hurried(logits, evidence, mask)
    observed = {predicate: (labels, np.ones(labels.shape, dtype=bool)) for predicate, labels in found.labels.items()}
    again = exact(logits, {**evidence, **observed}, mask)  # which refuses what violates a rule
    assert not again.changes
    assert found.objective >= best.objective - 1e-9


TAGS = PROBLEMS["tags"][0]
NEXT = np.eye(4, k=1, dtype=bool)


def random_tags(seed=0, batch=(3,)):
    return np.random.default_rng(seed).normal(0, 2, (*batch, 4, 3))


def test_a_batch_equals_its_rows():
    logits = random_tags(1, (3, 2))
    decoder = rw.RuleDecoder(TAGS)
    found = decoder({"tag": logits}, {"next": NEXT})
    alone = [decoder({"tag": row}, {"next": NEXT}) for row in logits.reshape(-1, 4, 3)]
    assert np.array_equal(found.labels["tag"].reshape(6, 4), [row.labels["tag"] for row in alone])
    assert found.objective == pytest.approx(sum(row.objective for row in alone))
    assert found.solver == "dynamic programming"
    assert "6,000" not in found.summary() and "24 classified atoms" in found.summary()


@given(seed=st.integers(0, 999), padded=st.booleans())
@settings(max_examples=15, deadline=None)
def test_stacked_relations_are_a_shorthand(seed, padded):
    rules = "b(X, Z) :- a(X, Y), b(Y, Z). hard !(a(X, Y) & b(Y, X)). predicate p(entity). hard p(X) & a(X, Y) => p(Y)."
    random = np.random.default_rng(seed)
    logits = random.normal(0, 2, (2, 3, 3, 2))
    known = {"p": random.random((2, 3)) < 0.5, "a": (random.random((2, 3, 3)) < 0.5, random.random((2, 3, 3)) < 0.2)}
    mask = np.array([[True, True, True], [True, True, False]]) if padded else np.ones((2, 3), dtype=bool)
    stacked, by_name = rw.RuleDecoder(rules, relations=["a", "b"]), rw.RuleDecoder(rules, distinct=True)
    diagonal = np.zeros((2, 3, 3), dtype=bool)
    diagonal[:, range(3), range(3)] = True
    known["a"] = (known["a"][0] & ~diagonal, known["a"][1] & ~diagonal)
    given_by_name = {"a": logits[..., 0], "b": logits[..., 1]}
    try:
        one = stacked(logits, known, mask)
    except DataError as error:
        assert "or the evidence" in str(error)
        with pytest.raises(DataError, match="or the evidence"):
            by_name(given_by_name, known, {"entity": mask})
        return
    other = by_name(given_by_name, known, {"entity": mask})
    for index, name in enumerate("ab"):
        assert np.array_equal(one.labels[..., index], other.labels[name] & ~diagonal)
    assert not one.labels[1, 2].any() or not padded
    tensors = stacked(torch.tensor(logits), {n: torch_of(v) for n, v in known.items()}, torch.tensor(mask))
    assert np.array_equal(tensors.labels, one.labels)


def torch_of(values):
    return tuple(map(torch.tensor, values)) if isinstance(values, tuple) else torch.tensor(values)


def test_ties_go_to_zero_and_the_first_class():
    decoder = rw.RuleDecoder(TAGS + " hard big(X) => tag(X) in {b, o}.")
    found = decoder({"tag": np.zeros((4, 3)), "big": np.zeros(4)}, {"next": NEXT})
    assert found.labels["tag"].tolist() == [0, 1, 0, 1]
    assert not found.labels["big"].any()
    assert rw.RuleDecoder(TAGS)({"tag": np.zeros((4, 3))}, {"next": np.zeros((4, 4), dtype=bool)}).labels[
        "tag"
    ].tolist() == [0, 0, 0, 0]


def test_thresholds_by_predicate():
    decoder = rw.RuleDecoder("hard !(p(X) & q(X)).")
    logits = {"p": np.array([0.5, 3.0]), "q": np.array([-3.0, -3.0])}
    assert decoder(logits).labels["p"].tolist() == [True, True]
    assert decoder(logits, threshold={"p": 0.9}).labels["p"].tolist() == [False, True]
    assert decoder(logits, threshold=0.9).labels["p"].tolist() == [False, True]
    with pytest.raises(LookupError, match="unknown predicate without classes 'r'"):
        decoder(logits, threshold={"r": 0.9})
    with pytest.raises(LookupError, match="unknown predicate without classes 'tag'"):
        rw.RuleDecoder(TAGS)({"tag": random_tags()}, {"next": NEXT}, threshold={"tag": 0.9})
    rare = rw.RuleDecoder("hard !(p(X) & q(X)).", k=1.0, frequencies={"p": 100, "q": 0})
    assert rare({"p": np.array([1.0]), "q": np.array([1.0])}).labels["q"].tolist() == [True]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda d: d({"tag": random_tags()}), "predicate next has no evidence, since it is closed"),
        (lambda d: d({"tag": random_tags(), "next": np.zeros((3, 4, 4))}), "predicate next is closed"),
        (lambda d: d({}, {"next": NEXT}), "no logits"),
        (lambda d: d({"tag": random_tags()}, {"next": NEXT.astype(int)}), "evidence of next must be boolean"),
        (lambda d: d({"tag": random_tags()}, {"next": NEXT, "tag": np.full((3, 4), 3)}), "class indices below 3"),
        (lambda d: d({"tag": random_tags()}, {"next": NEXT, "tag": np.zeros((3, 4))}), "must be class indices"),
        (lambda d: d({"tag": random_tags()}, {"next": (NEXT, NEXT)}), "observed in part, so it needs logits"),
        (lambda d: d({"tag": random_tags()}, {"next": NEXT}, {"token": np.ones(4)}), "must be boolean, got float64"),
        (lambda d: d({"tag": random_tags()}, {"next": NEXT}, np.ones((3, 4), dtype=bool)), "masks are given by type"),
        (lambda d: d({"tag": random_tags()}, 0.7), "a threshold by name"),
        (lambda d: d(random_tags(), {"next": NEXT}), "one array needs relations"),
        (
            lambda d: d({"tag": random_tags() / 0}, {"next": NEXT}),
            r"must be finite, got -?inf for tag\(0\) in {b} in row 0",
        ),
        (lambda d: d({"tag": random_tags()}, {"next": NEXT}, threshold_logits=np.zeros((3, 4))), "are for relations"),
        (lambda d: rw.RuleDecoder(TAGS, free="reference"), "free is for the pairs"),
        (lambda d: rw.RuleDecoder(TAGS, max_labels_per_pair=1), "max_labels_per_pair is for the pairs"),
        (lambda d: rw.RuleDecoder("hard p(X). hard !p(X)."), "the rules contradict each other: hard p"),
        (
            lambda d: rw.RuleDecoder("predicate t(a) in {x, y}. hard t(X) in {x}. hard t(X) in {y}."),
            "the rules contradict each other",
        ),
        (
            lambda d: rw.RuleDecoder("hard p(X) => q(X).", domains={"entity": ["ann", "bob"]})(
                {"p": np.zeros(2), "q": np.zeros(2)},
                {"p": np.array([True, True]), "q": (np.array([True, False]), np.array([True, True]))},
            ),
            r"contradict each other, or the evidence: hard p\(X\) => q\(X\). where X = bob",
        ),
    ],
)
def test_what_is_wrong_is_named(call, message):
    with np.errstate(divide="ignore", invalid="ignore"), pytest.raises((DataError, LookupError), match=message):
        call(rw.RuleDecoder(TAGS))


def test_an_answer_for_people(tmp_path):
    rules = "predicate tag(token) in {b, i, o}. closed next. hard tag(X) in {i} & next(Y, X) => tag(Y) in {b, i}."
    decoder = rw.RuleDecoder(rules, domains={"token": ["New", "York", "is", "big"]})
    logits = np.full((2, 4, 3), -2.0)
    logits[..., 2] = 0.0
    logits[1, 1, 1], logits[1, 0, 0] = 3.0, -0.5
    found = decoder({"tag": logits}, {"next": NEXT})
    assert found.report().split("\n") == [
        "8 classified atoms, objective 2.5472 (optimal), 1 round, 6 constraints, 1 change, by dynamic programming",
        "row 1: tag('New'): o → b  by  hard tag(X) in {i} & next(Y, X) => tag(Y) in {b, i}.  "
        "where X = 'York', Y = 'New'",
    ]
    (change,) = found.changes
    assert (change.predicate, change.args, change.row, change.before, change.after) == ("tag", (0,), (1,), "o", "b")
    assert found.to_frame("polars").row(0)[:4] == ("1", "tag('New')", "o", "b")
    assert decoder({"tag": logits[0]}, {"next": NEXT}).to_frame("polars").shape == (0, 6)
    assert "tag(&#x27;New&#x27;)" in found._repr_html_()
    report = decoder_report(found, title="sentence", row=1)
    assert [(each.atom, each.before, each.after) for each in report.changes] == [("tag('New') in {b}", 0.0, 1.0)]
    assert decoder_report(found, row=0).changes == ()
    write_reports([report], tmp_path / "a.json")
    assert read_reports(tmp_path / "a.json") == (report,)
    with pytest.raises(DataError, match="facts are of one document with relations"):
        found.facts()


def test_a_decoder_can_be_copied_and_sent(tmp_path):
    decoder = rw.RuleDecoder(TAGS)
    logits = [random_tags(seed, ()) for seed in range(3)]
    expected = [decoder({"tag": document}, {"next": NEXT}) for document in logits]
    for same in (copy.deepcopy(decoder), pickle.loads(pickle.dumps(decoder))):
        again = same({"tag": logits[0]}, {"next": NEXT})
        assert np.array_equal(again.labels["tag"], expected[0].labels["tag"])
        assert again.changes == expected[0].changes
    assert pickle.loads(pickle.dumps(expected[0])).changes == expected[0].changes


@pytest.mark.slow
def test_workers_take_logits_by_predicate():
    decoder = rw.RuleDecoder(TAGS)
    documents = [{"tag": torch.tensor(random_tags(seed, ()))} for seed in range(4)]
    known = [{"next": torch.tensor(NEXT)}] * 4
    one, two = (decoder.decode_batch(documents, evidence=known, workers=workers) for workers in (1, 2))
    for left, right in zip(one, two, strict=True):
        assert np.array_equal(left.labels["tag"], right.labels["tag"])
        assert left.changes == right.changes


def test_what_all_rows_share_is_not_copied():
    decoder = rw.RuleDecoder(TAGS)
    decoder({"tag": random_tags(0, (50,))}, {"next": NEXT})
    (joins,) = decoder._joins.values()
    assert [block.batched for block in joins.channels.blocks] == [True, False]


def test_a_mask_may_follow_stacked_logits():
    logits = np.random.default_rng(0).normal(0, 2, (2, 3, 3, 2))
    mask = np.array([[True] * 3, [True, True, False]])
    decoder = rw.RuleDecoder("b(X, Y) :- a(Y, X).", relations=["a", "b"])
    one, other = decoder(logits, mask), decoder(logits, mask=mask)
    assert np.array_equal(one.labels, other.labels) and not one.labels[1, 2].any()
    alone = decoder(logits[1, :2, :2])
    assert np.array_equal(one.labels[1, :2, :2], alone.labels)


@pytest.mark.parametrize("name", ["exclusions", "classes and truths", "tags", "self loops"])
@given(seed=st.integers(0, 999))
@settings(max_examples=10, deadline=None)
def test_simplified_says_what_it_left(name, seed):
    text, domains, logits, evidence, _ = draw_problem(name, seed, ())
    exact, simple = (rw.RuleDecoder(text, domains=domains, method=method) for method in ("exact", "simplified"))
    best, found = exact(logits, evidence), simple(logits, evidence)
    world = {**found.labels, **evidence}
    assert found.optimal == (found.violations == 0) == is_consistent(exact.space, world, domains, {})
    assert found.objective <= best.objective + 1e-9
    assert not found.optimal or found.objective == pytest.approx(best.objective)


@pytest.mark.parametrize("method", ["exact", "simplified", "full"])
def test_an_empty_batch_has_no_labels(method):
    found = rw.RuleDecoder(TAGS, method=method)({"tag": np.zeros((0, 4, 3))}, {"next": NEXT})
    assert found.labels["tag"].shape == (0, 4) and found.optimal and found.objective == 0
    stacked = rw.RuleDecoder("b(X, Y) :- a(Y, X).", relations=["a", "b"], method=method)(np.zeros((0, 3, 3, 2)))
    assert stacked.labels.shape == (0, 3, 3, 2)


@pytest.mark.parametrize("use_forest", [True, False])
def test_ties_in_every_solver(monkeypatch, use_forest):
    monkeypatch.setattr(zero_one, "ENUMERATED", 0)
    if not use_forest:
        monkeypatch.setattr("rulewright.inject.atoms.decoder.solve_forest", lambda *_: None)
    rules = "predicate kind(node) in {a, b, c}. hard big(X) => kind(X) in {b, c}. hard small(X) => !big(X)."
    logits = {"kind": np.array([[1.0, 0.0, 0.0]]), "big": np.array([3.0]), "small": np.array([0.0])}
    found = rw.RuleDecoder(rules)(logits)
    assert {name: labels.tolist() for name, labels in found.labels.items()} == {
        "kind": [1],
        "big": [True],
        "small": [False],
    }
