"""The decoder on atoms of any shape: unary, propositional, n-ary, classes; beside trying all labellings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inject.atoms.plain_labels import best_labelling

import rulewright as rw
from rulewright.errors import DataError
from rulewright.inject.atom_space import AtomSpace
from rulewright.inject.atoms import forest, zero_one

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
    if distinct and name in ("constants", "ternary"):
        return  # where a constant meets itself, or more variables than entities, is for other tests
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
    from inject.atoms.plain_labels import holds

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
