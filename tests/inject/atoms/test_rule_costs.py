"""Rules that may be broken at a cost: the decoder beside trying all labellings, and beside the full program."""

from __future__ import annotations

import math
import pickle
import random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from inject.atoms.plain_costs import best_with_costs
from inject.layer.plain_mean_field import atoms
from inject.layer.test_layer import DOMAINS, PREDICATES, formulas

import rulewright as rw
from rulewright.errors import DataError
from rulewright.inject.atoms import zero_one
from rulewright.inject.atoms.reports import decoder_report, read_reports, write_reports
from rulewright.logic import RuleSet, WeightedFormula, parse_rules

DECLARED = "".join(f"{declaration} " for declaration in PREDICATES.values())
HARD = [
    "hard p(T0) & r(T0, T1) => p(T1).",
    "hard label(T0) in {x} => p(T0).",
    "hard !(p(T0) & label(T0) in {y}).",
    "hard r(T0, T1) => !r(T1, T0).",
    "hard s(T0, U0) | q(U0).",
    "hard label(T0) in {x} => label(T1) in {x, y}.",
]
RULES = [
    "p(T0) :- r(T0, T1), p(T1).",
    "r(T0, T2) :- r(T0, T1), r(T1, T2).",
    "p(T0) :- s(T0, U0), q(U0) ; label(T0) in {x, y}.",
    "q(U0) :- p(T0), p(T1), s(T0, U0).",
    "label(T0) in {y} :- r(T0, T0), !p(T0).",
    "label(T0) in {x, z} :- mark(T0, T1) in {m}, label(T1) in {x}.",
    "p(T0) :- r(T0, T1), T0 < T1.",
]


def one(text):
    return parse_rules(DECLARED + text).statements[0]


@st.composite
def statements(draw):
    """Draw one to three statements with costs, and up to two that must hold."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        cost = draw(st.floats(0.1, 3.0))
        if draw(st.booleans()):
            found.append(one(draw(st.sampled_from(RULES))).annotated(weight=cost))
        else:
            found.append(WeightedFormula(draw(formulas(most=3)), "soft", cost))
    found += [one(draw(st.sampled_from(HARD))) for _ in range(draw(st.integers(0, 2)))]
    return list(dict.fromkeys(found))


class Case:
    """Random logits and evidence for statements; what is not observed has at most so many labellings."""

    def __init__(self, found, seed, labellings=2**14):
        chance = random.Random(seed)
        self.rules = RuleSet(found, predicates=PREDICATES.values())
        self.rules = RuleSet(found, predicates=[PREDICATES[name] for name in self.rules.arities])
        self.predicates = {declaration.name: declaration for declaration in self.rules.predicates}
        self.costs = [
            math.inf
            if getattr(statement, "kind", "") == "hard"
            else statement.weight
            if isinstance(statement, WeightedFormula)
            else statement.annotations["weight"]
            for statement in self.rules
        ]
        self.potentials, self.evidence = {}, {}
        names = list(atoms(self.predicates, DOMAINS))
        for atom in chance.sample(names, len(names)):
            classes = self.predicates[atom[0]].classes
            drawn = [chance.gauss(0, 1.5) for _ in classes or "01"]
            self.potentials[atom] = drawn if classes else [0.0, drawn[1]]
            labellings /= len(drawn)
            if labellings < 1 or chance.random() < 0.1:
                self.evidence[atom] = chance.randrange(len(drawn))
                labellings *= len(drawn)
        self.domains = {
            type_name: DOMAINS[type_name]
            for type_name in {type_name for known in self.predicates.values() for type_name in known.types}
        }

    def index(self, atom):
        types = self.predicates[atom[0]].types
        return tuple(DOMAINS[type_name].index(name) for type_name, name in zip(types, atom[1], strict=True))

    def arrays(self):
        logits, evidence = {}, {}
        for name, declaration in self.predicates.items():
            shape = tuple(len(DOMAINS[type_name]) for type_name in declaration.types)
            classes = declaration.classes
            logits[name] = np.zeros((*shape, len(classes)) if classes else shape)
            evidence[name] = (np.zeros(shape, dtype=int if classes else bool), np.zeros(shape, dtype=bool))
        for atom, values in self.potentials.items():
            place = self.index(atom)
            logits[atom[0]][place] = values if self.predicates[atom[0]].classes else values[1]
            if atom in self.evidence:
                evidence[atom[0]][0][place], evidence[atom[0]][1][place] = self.evidence[atom], True
        return logits, evidence

    def masked(self, masked):
        domains = {t: tuple(name for name in names if name not in masked) for t, names in self.domains.items()}
        return domains, {t: np.array([name in domains[t] for name in names]) for t, names in self.domains.items()}

    def best(self, domains, *, distinct=False):
        exist = {
            atom: values for atom, values in self.potentials.items() if atom in set(atoms(self.predicates, domains))
        }
        return best_with_costs(
            self.rules.statements, self.costs, self.predicates, exist, self.evidence, domains, distinct=distinct
        )


@pytest.mark.parametrize("way", ["any", "program", "solver", "full"])
@given(
    found=statements(),
    seed=st.integers(0, 10**6),
    masked=st.sampled_from([(), (), ("2",), ("1", "b")]),
    distinct=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_it_is_the_best_of_all_labellings(way, found, seed, masked, distinct):
    case = Case(found, seed)
    hard = [s for s in found if isinstance(s, WeightedFormula) and s.kind == "hard"]
    domains, mask = case.masked(masked)
    assume(all(domains.values()))
    logits, evidence = case.arrays()
    expected = case.best(domains, distinct=distinct)
    with pytest.MonkeyPatch.context() as patch:
        if way in ("program", "solver"):
            patch.setattr("rulewright.inject.atoms.decoder.solve_forest", lambda *_: None)
        if way == "solver":
            patch.setattr(zero_one, "ENUMERATED", 0)
        try:
            method = "full" if way == "full" else "exact"
            decoder = rw.RuleDecoder(
                case.rules, domains=case.domains, distinct=distinct, rule_costs="weight", method=method
            )
            answer = decoder(logits, evidence, mask)
        except DataError as error:
            assume("entity with itself" not in str(error))
            assert "contradict" in str(error) and hard and expected is None, error
            return
    assert expected is not None
    objective, values, counts = expected
    assert answer.objective == pytest.approx(objective, abs=1e-9)
    assert answer.optimal and answer.violations == 0
    for atom, value in values.items():
        if atom not in case.evidence:
            assert answer.labels[atom[0]][case.index(atom)] == value, atom
    broken = {rule.position: rule for rule in answer.broken}
    assert {position: rule.count for position, rule in broken.items()} == {
        position: count for position, count in enumerate(counts) if count
    }
    for position, rule in broken.items():
        assert rule.rule == case.rules.statements[position]
        assert rule.cost == pytest.approx(rule.count * case.costs[position])
        assert len(list(rule.groundings())) == len(set(rule.groundings())) == rule.count
    assert answer.label_cost + answer.rule_cost == pytest.approx(answer.objective)


def test_a_formula_that_is_always_false_costs_what_its_groundings_do():
    found = rw.RuleDecoder("2.0 !(X = X | p(X)). 1.0 p(X) & !p(Y).", rule_costs="weight")({"p": np.array([1.5, 2.0])})
    assert found.labels["p"].tolist() == [True, True]
    assert [(rule.position, rule.count, rule.cost) for rule in found.broken] == [(0, 2, 4.0), (1, 4, 4.0)]
    everything = rw.RuleDecoder("2.0 p(X) & !p(X).", rule_costs="weight", method="full")({"p": np.array([1.0, -2.0])})
    assert everything.labels["p"].tolist() == [True, False] and everything.rule_cost == 4.0


PAIRS = ("a", "b", "c")
CHAINS = """
    0.9 :: a(X, Z) :- a(X, Y), b(Y, Z). @{weight: 1.5}
    b(X, Y) :- c(Y, X). @{weight: 0.7}
    c(X, Z) :- a(X, Y), b(Z, Y) ; b(X, Z). @{weight: 0.3}
    hard !(a(X, Y) & c(X, Y)).
    0.5 a(X, Y) & b(X, Y) <=> c(Y, X).
"""


def random_logits(seed, size, shift=-1.0):
    return np.random.default_rng(seed).normal(shift, 2.0, (size, size, 3))


def same(one, other):
    """Tell whether two answers are equal in everything."""
    names = ("objective", "optimal", "rounds", "constraints", "violations", "changes", "solver", "rule_cost")
    texts = [[rule.text() for rule in answer.broken] for answer in (one, other)]
    return (
        np.array_equal(one.labels, other.labels)
        and np.array_equal(one.before, other.before)
        and all(getattr(one, name) == getattr(other, name) for name in names)
        and texts[0] == texts[1]
    )


@given(
    seed=st.integers(0, 999),
    size=st.integers(2, 5),
    limit=st.sampled_from([None, 1, 2]),
    free=st.sampled_from(["all", "reference"]),
    tau=st.sampled_from([1.0, 0.5]),
    k=st.sampled_from([0.0, 1.0]),
    threshold=st.sampled_from([0.5, 0.2, [0.1, 0.5, 0.9]]),
    scale=st.sampled_from([0.1, 1.0, 5.0]),
)
@settings(max_examples=30, deadline=None)
def test_exact_equals_the_full_program(seed, size, limit, free, tau, k, threshold, scale):
    costs = [math.inf if math.isinf(cost) else scale * cost for cost in (1.5, 0.7, 0.3, math.inf, 0.5)]
    options = {"relations": PAIRS, "max_labels_per_pair": limit, "free": free, "tau": tau, "k": k, "rule_costs": costs}
    exact, full, simple = (
        rw.RuleDecoder(CHAINS, frequencies=[50, 5, 0], method=method, **options)
        for method in ("exact", "full", "simplified")
    )
    logits = random_logits(seed, size)
    one, other, bound = (decoder(logits, threshold=threshold) for decoder in (exact, full, simple))
    assert np.array_equal(one.labels, other.labels)
    assert one.objective == pytest.approx(other.objective, rel=1e-12)
    assert [(rule.position, rule.count) for rule in one.broken] == [
        (rule.position, rule.count) for rule in other.broken
    ]
    assert one.optimal and other.optimal and one.violations == other.violations == 0
    if bound.optimal:
        assert bound.objective == pytest.approx(one.objective, rel=1e-12)
    elif not bound.violations:
        assert bound.objective >= one.objective - 1e-9


@given(seed=st.integers(0, 999), size=st.integers(2, 6))
@settings(max_examples=20, deadline=None)
def test_costs_that_are_infinite_or_nothing(seed, size):
    logits = random_logits(seed, size)
    rules = parse_rules(CHAINS).statements
    hard = RuleSet(rules[:-1])
    plain = rw.RuleDecoder(hard, relations=PAIRS)(logits)
    for costs in (math.inf, [math.inf] * 4, {}, {rules[0]: math.inf}):
        assert same(plain, rw.RuleDecoder(hard, relations=PAIRS, rule_costs=costs)(logits))
    few = rw.RuleDecoder(rules[1:3], relations=PAIRS)(logits)
    left_out = {str(rule): 0 for rule in (rules[0], rules[3], rules[4])}
    assert same(few, rw.RuleDecoder(rules, relations=PAIRS, rule_costs=left_out)(logits))
    nothing = rw.RuleDecoder(rules, relations=PAIRS, rule_costs=0)(logits)
    assert same(nothing, rw.RuleDecoder([], relations=PAIRS)(logits))
    large = rw.RuleDecoder(hard, relations=PAIRS, rule_costs=1e5)(logits)
    assert np.array_equal(large.labels, plain.labels) and not large.broken


@given(seed=st.integers(0, 999), size=st.integers(3, 5))
@settings(max_examples=15, deadline=None)
def test_prices_are_what_it_costs_to_keep_a_rule(seed, size):
    logits, rules = random_logits(seed, size), parse_rules(CHAINS)
    costs = [0.4, 0.2, 0.1, math.inf, 0.1]
    found = rw.RuleDecoder(rules, relations=PAIRS, rule_costs=costs)(logits, prices=True)
    for rule in found.broken:
        kept = rw.RuleDecoder(
            rules,
            relations=PAIRS,
            rule_costs=[math.inf if i == rule.position else cost for i, cost in enumerate(costs)],
        )(logits)
        assert rule.price == pytest.approx(kept.objective - found.objective, abs=1e-9)
        assert rule.price >= 0
        assert "keeping it costs" in rule.text()
    plain = rw.RuleDecoder(rules, relations=PAIRS, rule_costs=costs)(logits)
    assert all(rule.price is None for rule in plain.broken)


def test_what_nothing_keeps_has_an_infinite_price():
    decoder = rw.RuleDecoder("1.0 p(X). hard q(X) => !p(X).", rule_costs="weight")
    found = decoder({"p": np.array([2.0, 2.0])}, {"q": np.array([True, False])}, prices=True)
    assert [(rule.count, rule.price) for rule in found.broken] == [(1, math.inf)]
    assert "nothing keeps it" in found.report()


@given(seed=st.integers(0, 999), size=st.integers(3, 6), time_limit=st.sampled_from([0.0, 1e-9, 1e-3]))
@settings(max_examples=20, deadline=None)
def test_a_time_limit_breaks_nothing_that_must_hold(seed, size, time_limit):
    logits, rules = random_logits(seed, size, 0.0), parse_rules(CHAINS)
    best = rw.RuleDecoder(rules, relations=PAIRS, rule_costs="weight")(logits)
    found = rw.RuleDecoder(rules, relations=PAIRS, rule_costs="weight", time_limit=time_limit)(logits)
    assert not (found.labels[..., 0] & found.labels[..., 2]).any()
    assert found.objective >= best.objective - 1e-9
    assert not found.optimal or found.objective == pytest.approx(best.objective)
    assert found.optimal or found.solver == "repair"
    observed = {name: found.labels[..., index] for index, name in enumerate(PAIRS)}
    again = rw.RuleDecoder(rules, relations=PAIRS, rule_costs="weight")(logits, observed)
    assert again.rule_cost == pytest.approx(
        found.rule_cost
    )  # it has no label to decide, so all it has are broken rules
    assert [rule.count for rule in again.broken] == [rule.count for rule in found.broken]


@given(seed=st.integers(0, 999), size=st.integers(3, 5))
@settings(max_examples=15, deadline=None)
def test_changes_are_kept_by_what_would_break(seed, size):
    logits, rules = random_logits(seed, size), parse_rules(CHAINS)
    decoder = rw.RuleDecoder(rules, relations=PAIRS, rule_costs="weight")
    found = decoder(logits)
    observed = {name: found.labels[..., index] for index, name in enumerate(PAIRS)}
    now = {rule.position: set(rule.groundings()) for rule in found.broken}
    for change in found.changes:
        undone = {name: labels.copy() for name, labels in observed.items()}
        undone[change.predicate][change.args] = change.before
        assert change.rule is not None
        position = rules.statements.index(change.rule)
        try:
            then = {rule.position: set(rule.groundings()) for rule in decoder(logits, undone).broken}
        except DataError as error:
            assert "contradict" in str(error)
            continue
        assert ((), change.grounding) in then.get(position, set()) - now.get(position, set())


@pytest.mark.slow
def test_a_batch_and_workers_equal_one_by_one(tmp_path):
    decoder = rw.RuleDecoder(CHAINS, relations=PAIRS, rule_costs="weight")
    documents = [random_logits(seed, 2 + seed % 4) for seed in range(6)]
    alone = [decoder(document, prices=True) for document in documents]
    for workers in (1, 2):
        assert all(map(same, alone, decoder.decode_batch(documents, prices=True, workers=workers)))
    again = pickle.loads(pickle.dumps(decoder))
    assert all(same(one, again(document, prices=True)) for one, document in zip(alone, documents, strict=True))
    assert all(same(one, pickle.loads(pickle.dumps(one))) for one in alone)


def test_rows_of_a_batch_are_decoded_together():
    decoder = rw.RuleDecoder(CHAINS, relations=PAIRS, rule_costs="weight")
    logits = np.stack([random_logits(seed, 4) for seed in range(6)]).reshape(3, 2, 4, 4, 3)
    together = decoder(logits)
    alone = {(i, j): decoder(logits[i, j]) for i in range(3) for j in range(2)}
    assert all(np.array_equal(together.labels[row], found.labels) for row, found in alone.items())
    assert together.objective == pytest.approx(sum(found.objective for found in alone.values()))
    for rule in together.broken:
        for row, found in alone.items():
            part = rule.select_row(row)
            other = next((other for other in found.broken if other.position == rule.position), None)
            assert part.count == (0 if other is None else other.count)
            assert {grounding for _, grounding in part.groundings()} == (
                set() if other is None else {grounding for _, grounding in other.groundings()}
            )
    row = next(row for row, found in alone.items() if found.broken)
    report = decoder_report(together, row=row)
    assert [(one.rule, one.count, one.cost) for one in report.broken] == [
        (str(rule.rule).split(" @{")[0], rule.count, pytest.approx(rule.cost))
        for rule in sorted(
            alone[row].broken, key=lambda rule: [each.position for each in together.broken].index(rule.position)
        )
    ]


TAGS = """
    predicate tag(token) in {b, i, o}. closed next.
    1.2 next(T, U) & tag(U) in {i} => tag(T) in {b, i}.
    hard !(tag(T) in {b} & next(T, U) & tag(U) in {b}).
    0.4 next(T, U) & tag(T) in {o} => tag(U) in {o}.
    0.4 next(T, U) & tag(T) in {o} => tag(U) in {b, o}.
    0.3 tag(T) in {b, o}.
    0.2 next(T, U) & next(U, V) => next(T, V).
"""


@given(seed=st.integers(0, 999), length=st.integers(1, 6))
@settings(max_examples=30, deadline=None)
def test_chains_are_solved_by_dynamic_programming(seed, length):
    logits = np.random.default_rng(seed).normal(0, 1, (3, length, 3))
    evidence = {"next": np.eye(length, k=1, dtype=bool)}
    decoder = rw.RuleDecoder(TAGS, rule_costs="weight")
    found = decoder({"tag": logits}, evidence)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rulewright.inject.atoms.decoder.solve_forest", lambda *_: None)
        other = decoder({"tag": logits}, evidence)
    assert found.solver in ("dynamic programming", "thresholds")
    assert np.array_equal(found.labels["tag"], other.labels["tag"])
    assert found.objective == pytest.approx(other.objective)
    assert [(rule.position, rule.count) for rule in found.broken] == [
        (rule.position, rule.count) for rule in other.broken
    ]
    for one, two in ((found, other), (other, found)):
        assert {change.atom() for change in one.changes} == {change.atom() for change in two.changes}
        assert all(change.rule is not None for change in one.changes)


def test_one_statement_may_be_named_in_many_ways():
    text = "0.9 :: b(X) :- a(X). @{weight: 2.5, support: 3} hard c(X) => b(X). 0.5 a(X) => c(X)."
    rules = parse_rules(text)
    first, second, third = rules.statements
    logits = {"a": np.array([3.0]), "b": np.array([-1.0]), "c": np.array([-1.0])}
    soft = {"0.5 a(X) => c(X).": 0.7}
    for name in (first, str(first), "0.9 :: b(X) :- a(X).", "b(X) :- a(X).", "b(X):-a(X)."):
        decoder = rw.RuleDecoder(rules, rule_costs={name: 0.25} | soft)
        assert decoder.rule_costs == (0.25, math.inf, 0.7)
        assert decoder(logits).broken[0].cost == 0.7
    assert rw.RuleDecoder(rules, rule_costs="weight").rule_costs == (2.5, math.inf, 0.5)
    assert rw.RuleDecoder(rules, rule_costs=np.float32(2)).rule_costs == (2.0,) * 3
    assert rw.RuleDecoder(rules, rule_costs=np.array([1.0, 0.0, math.inf])).rule_costs == (1.0, 0.0, math.inf)
    assert rw.RuleDecoder(rules, rule_costs={second: 1, third: 1}).rule_costs == (math.inf, 1.0, 1.0)


@pytest.mark.parametrize(
    ("text", "costs", "message"),
    [
        ("b(X) :- a(X).", -1, "must be >= 0 .*, got -1"),
        ("b(X) :- a(X).", math.nan, "must be >= 0 .*, got nan"),
        ("b(X) :- a(X).", 1e9, "must be at most 1,000,000, got 1000000000.0; math.inf is for what must hold"),
        ("b(X) :- a(X).", [1, 2], "must be 1 numbers, one for each statement, got 2"),
        ("b(X) :- a(X).", ["1"], "must be numbers, got '1'"),
        ("b(X) :- a(X).", True, "must be numbers, got True"),
        ("b(X) :- a(X).", "weights", "must be 'weight', a number, a sequence, or a mapping from rules, got 'weights'"),
        ("b(X) :- a(X).", "weight", r"needs rules with a weight, @{weight: 1.5} .*, for: b\(X\) :- a\(X\)."),
        ("b(X) :- a(X). @{weight: -2}", "weight", "must be >= 0 .*, got -2"),
        ("b(X) :- a(X).", {"c(X) :- a(X).": 1}, "unknown rule .c"),
        ("b(X) :- a(X).", {"b(X) :- a(X). a(X) :- b(X).": 1}, "must be one statement"),
        ("1.0 a(X) => b(X).", {}, "must name every formula that is not hard, also: 1"),
        ("learn a(X) => b(X).", "weight", "this one is to be learned: learn"),
        ("-1.0 a(X) => b(X).", "weight", "must be >= 0"),
        ("-1.0 a(X) => b(X).", 2, "a weight below 0 asks for the opposite"),
    ],
)
def test_costs_that_mean_nothing_are_refused(text, costs, message):
    with pytest.raises((DataError, LookupError), match=message):
        rw.RuleDecoder(text, rule_costs=costs)


def test_formulas_are_accepted_with_costs_only():
    for text in ("2.0 a(X) => b(X).", "learn a(X) => b(X)."):
        with pytest.raises(DataError, match="takes rules and hard formulas"):
            rw.RuleDecoder(text)
        assert rw.RuleDecoder(text, rule_costs=1.0).rule_costs == (1.0,)


def test_the_answer_for_people(tmp_path):
    names = ["ann", "bob", "cid"]
    decoder = rw.RuleDecoder("0.9 :: b(X) :- a(X). @{weight: 0.5}", domains={"entity": names}, rule_costs="weight")
    found = decoder({"a": np.array([3.0, 2.0, 0.2]), "b": np.array([-4.0, -4.0, -4.0])}, prices=True)
    assert found.report().split("\n") == [
        "2 facts, objective 2.0281 (optimal; labels 1.0281, rules 1.0000), 1 round, 3 constraints, 1 change, "
        "2 broken groundings, by dynamic programming",
        "- a(cid)  by  0.9 :: b(X) :- a(X).  where X = cid",
        "! broken 2 times for 1.0000:  0.9 :: b(X) :- a(X).  where X = ann and 1 more  (keeping it costs 4.0000 more)",
    ]
    (rule,) = found.broken
    assert list(rule.groundings()) == [((), (("X", 0),)), ((), (("X", 1),))]
    report = decoder_report(found)
    assert [(part.rule, part.count, part.grounding) for part in report.broken] == [
        ("0.9 :: b(X) :- a(X).", 2, "X = ann")
    ]
    write_reports([report], tmp_path / "a.json")
    assert read_reports(tmp_path / "a.json") == (report,)
