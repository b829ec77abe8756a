"""Rules measured on predictions: what is fitted, what is dropped and why, and what injectors take of it."""

from __future__ import annotations

import itertools
import math
import pickle

import numpy as np
import pytest
import torch
from scipy.optimize import approx_fprime, minimize

import rulewright as rw
from rulewright.errors import DataError
from rulewright.inject import rule_fit
from rulewright.inject.atom_space import AtomSpace
from rulewright.inject.labelled_worlds import read_labelled_worlds
from rulewright.inject.rule_likelihood import PRIOR_WIDTH, Likelihood, fit_weights
from rulewright.inject.rule_messages import read_messages, split_rows

NAMES = "abcdef"
PLANTED = {"b(X) :- a(X).": 3.0, "c(X) :- b(X).": 1.0, "d(X) :- a(X), c(X).": 2.0, "e(X) :- d(X), !f(X).": 4.0}
USELESS = ["g(X) :- a(X).", "b(X) :- g(X).", "h(X) :- g(X), c(X).", "c(X) :- h(X), e(X)."]
"""Rules about g and h, which no planted rule ties to anything: others may say what two of these imply together."""


def sample_worlds(rng, worlds, size, weights=PLANTED, spread=2.0):
    """Logits of unary atoms, and gold labels of the Markov logic network that has them as potentials, exactly."""
    states = np.array(list(itertools.product([False, True], repeat=len(NAMES))))
    column = {name: states[:, position] for position, name in enumerate(NAMES)}
    bonus = np.zeros(len(states))
    holds = {
        "b(X) :- a(X).": ~column["a"] | column["b"],
        "c(X) :- b(X).": ~column["b"] | column["c"],
        "d(X) :- a(X), c(X).": ~column["a"] | ~column["c"] | column["d"],
        "e(X) :- d(X), !f(X).": ~column["d"] | column["f"] | column["e"],
    }
    for rule, weight in weights.items():
        bonus += weight * holds[rule]
    logits = rng.normal(0, spread, size=(worlds, size, len(NAMES)))
    scores = logits @ states.T + bonus
    chosen = (scores + rng.gumbel(size=scores.shape)).argmax(-1)
    gold = states[chosen]
    return (
        {name: logits[..., position] for position, name in enumerate(NAMES)},
        {name: gold[..., position] for position, name in enumerate(NAMES)},
    )


def sample_with_others(seed, worlds, size, weights=PLANTED):
    """The same with two more predicates, which depend on nothing."""
    rng = np.random.default_rng(seed)
    logits, gold = sample_worlds(rng, worlds, size, weights)
    for name in "gh":
        logits[name] = rng.normal(0, 2, size=(worlds, size))
        gold[name] = rng.random((worlds, size)) < 1 / (1 + np.exp(-logits[name]))
    return logits, gold


@pytest.fixture(scope="module")
def planted():
    logits, gold = sample_with_others(0, 300, 8)
    return rw.fit_rules(" ".join([*PLANTED, *USELESS]), logits, gold)


def test_planted_weights_come_back_and_useless_rules_go(planted):
    wanted = np.array([*PLANTED.values(), *[0.0] * len(USELESS)])
    found = np.array(planted.weights)
    assert np.corrcoef(wanted, found)[0, 1] > 0.9
    assert (found[: len(PLANTED)] > 0).all()
    assert (found[len(PLANTED) :] == 0).all()
    reasons = [row.reason for row in planted.rows]
    assert reasons[: len(PLANTED)] == [""] * len(PLANTED)
    assert set(reasons[len(PLANTED) :]) <= {rule_fit.WRONG, rule_fit.CHANCE, rule_fit.SAME}
    assert planted.log_likelihood > 5 * planted.log_likelihood_error > 0
    assert [str(rule).split(" @{")[0].split(":: ")[1] for rule in planted.kept] == [*PLANTED]


def test_the_report_and_tables(planted):
    text = str(planted)
    assert text.startswith("4 of 8 rules help; log-likelihood of a world +")
    assert "no rules" in text
    assert "layer" in text
    assert f"({planted.rows[4].reason})" in text
    table = planted.table()
    assert [row["gain"] for row in table] == sorted((row["gain"] for row in table), reverse=True)
    frame = planted.to_frame("polars")
    assert frame.shape[0] == 8
    assert "reason" in frame.columns
    assert "<table>" in planted._repr_html_()
    assert repr(planted).startswith("RuleFit(4 of 8 rules help")


def test_what_each_rule_measures(planted):
    logits, gold = sample_with_others(0, 300, 8)
    row = planted.rows[2]  # d(X) :- a(X), c(X).
    fired = (logits["a"] > 0) & (logits["c"] > 0)
    assert (row.cases.fired, row.cases.held) == (fired.sum(), (fired & gold["d"]).sum())
    assert row.measured == pytest.approx(gold["d"][fired].mean())
    assert row.cases.head_score == pytest.approx((1 / (1 + np.exp(-logits["d"][fired]))).mean())
    probability = 1 / (1 + np.exp(-logits["a"])) / (1 + np.exp(-logits["c"]))
    assert row.cases.expected == pytest.approx(probability.sum(), rel=1e-4)
    for (cases, held), low, high in zip(row.cases.bins, (0.1, 1 / 3, 2 / 3), (1 / 3, 2 / 3, 2), strict=True):
        inside = (probability >= low) & (probability < high)
        assert (cases, held) == (inside.sum(), gold["d"][inside].sum())
    assert row.bound < row.measured < 1
    assert planted.rules[2].confidence == pytest.approx(row.estimate, abs=1e-3)


def test_rules_carry_their_weights_through_text_and_files(planted, tmp_path):
    assert [rule.annotations["weight"] for rule in planted.rules] == [*planted.weights]
    planted.save(tmp_path / "measured.rules")
    assert rw.read_rules(tmp_path / "measured.rules") == planted.rules
    assert planted.confidences == tuple(rule.confidence for rule in planted.kept)
    again = pickle.loads(pickle.dumps(planted))
    assert again == planted
    assert again.rules == planted.rules


def test_injectors_take_what_was_fitted(planted):
    logits, _ = sample_with_others(1, 3, 4)
    tensors = {name: torch.from_numpy(part) for name, part in logits.items()}
    layer = rw.LogicLayer(planted.rules, weights="annotated", iterations=1)(tensors)
    kept = rw.LogicLayer(planted.kept, weights="annotated", iterations=1)({name: tensors[name] for name in NAMES})
    for name in logits:
        torch.testing.assert_close(layer[name], kept.get(name, layer[name]))
    decoded = rw.RuleDecoder(planted.rules, rule_costs=planted.costs)(logits)
    assert decoded.optimal
    assert float(rw.ConsistencyLoss(planted.kept)({name: tensors[name] for name in NAMES})) > 0


def test_scales_are_scored_and_the_simplest_good_one_is_chosen(planted):
    scales = (0.25, 0.5, 1.0, 2.0, 4.0, math.inf)
    scores = {(score.injector, score.weighting, score.scale): score for score in planted.selection}
    decoders = {("decoder", weighting, scale) for weighting in ("fitted", "confidence") for scale in scales}
    assert set(scores) == {("layer", "fitted", 1.0), ("decoder", "fitted", 0.0), *decoders}
    (chosen,) = [score for score in planted.selection if score.is_chosen]
    alone = scores["decoder", "fitted", 0.0]
    assert chosen.scale == planted.scale
    assert chosen.score >= alone.score
    assert planted.costs == planted.costs_at(chosen)
    assert planted.costs_at(scores["decoder", "fitted", 2.0]) == tuple(2 * weight for weight in planted.weights)
    assert planted.costs_at(scores["decoder", "confidence", 1.0]) == pytest.approx([math.log(99)] * 8)
    assert planted.costs_at(alone) == (0.0,) * 8
    assert planted.best.score == max(score.score for score in planted.selection if score.injector == "decoder")
    logits, gold = sample_with_others(0, 300, 8)
    found = {name: logits[name] > 0 for name in logits}
    correct, given, wanted = (
        sum(part[name].sum() for name in gold)
        for part in ({name: found[name] & gold[name] for name in gold}, found, gold)
    )
    assert alone.score == pytest.approx(2 * correct / (given + wanted))
    assert planted.best.score > alone.score + 0.005


def test_confidences_are_taken_where_labels_are_better_for_them():
    """A decoder knows by itself how doubtful a body is; here a fit of one step has nothing to add to its head."""
    rng = np.random.default_rng(8)
    truth = rng.random((400, 6)) < 0.3
    gold = {"a": truth, "b": truth}
    logits = {name: np.where(truth, 1.0, -2.0) + 1.5 * rng.normal(size=truth.shape) for name in "ab"}
    rules = "0.95 :: b(X) :- a(X). 0.95 :: a(X) :- b(X). 0.5 :: b(X) :- b(X), a(X)."
    fit = rw.fit_rules(rules, logits, gold, priors=True)
    assert fit.best.difference > 2 * fit.best.error
    by_confidence = max((s for s in fit.selection if s.weighting == "confidence"), key=lambda score: score.score)
    assert fit.costs_at(by_confidence)[2:] == (0.0,) * 5


def test_where_no_rule_helps_none_is_chosen():
    for seed in range(5):
        logits, gold = sample_with_others(seed, 60, 6, weights={})
        fit = rw.fit_rules(" ".join([*PLANTED, *USELESS]), logits, gold)
        if any(fit.weights):  # chance: but not more than its error, nor labels that are worse
            assert fit.log_likelihood > fit.log_likelihood_error
            assert max(fit.weights) < 1
            continue
        assert fit.scale == 0
        assert not any(fit.costs)
        assert len(fit.kept) == 0
        assert all(row.reason for row in fit.rows)
        assert str(fit).startswith("no rule helps; all weights are 0; log-likelihood")


def test_rules_that_never_fire_or_say_the_same_are_named():
    rng = np.random.default_rng(2)
    logits, gold = sample_worlds(rng, 150, 8)
    logits["f"] = np.full_like(logits["f"], -20.0)
    gold["f"] = np.zeros_like(gold["f"])
    logits, gold = ({name: part[name] for name in "abf"} for part in (logits, gold))
    fit = rw.fit_rules("b(X) :- a(X). 0.5 :: b(Y) :- a(Y). b(X) :- f(X), a(X). a(X) :- b(X), f(X).", logits, gold)
    assert [bool(weight) for weight in fit.weights] == [True, False, False, False]
    assert [row.reason for row in fit.rows][1:] == [rule_fit.SAME, rule_fit.NEVER_FIRES, rule_fit.NEVER_FIRES]


def test_hard_formulas_stay_and_evidence_masks_and_tensors_are_taken():
    logits, gold = sample_worlds(np.random.default_rng(3), 60, 8)
    rules = "closed a. predicate a(thing). predicate b(thing). predicate c(thing). " \
        "b(X) :- a(X). hard c(X) => c(X). 1.5 b(X) => c(X)."  # fmt: skip
    mask = np.random.default_rng(0).random((60, 8)) < 0.8
    options = {"evidence": {"a": gold["a"]}, "mask": {"thing": mask}}
    given = {name: logits[name] for name in "bc"}, {name: gold[name] for name in "bc"}
    fit = rw.fit_rules(rules, *given, **options)
    assert fit.weights[1] == fit.costs[1] == math.inf
    assert fit.weights[0] > 0
    assert [formula.kind for formula in fit.rules.formulas] == ["hard", "soft"]
    assert fit.rows[0].cases.fired == (gold["a"] & mask).sum()
    tensors = [{name: torch.from_numpy(part[name]) for name in "bc"} for part in given]
    assert rw.fit_rules(rules, *tensors, evidence={"a": torch.from_numpy(gold["a"])},
                        mask={"thing": torch.from_numpy(mask)}) == fit  # fmt: skip
    calls = [[{name: part[name][row] for name in "bc"} for row in range(60)] for part in given]
    separate = rw.fit_rules(
        rules, *calls, evidence=[{"a": row} for row in gold["a"]], mask=[{"thing": row} for row in mask]
    )
    assert separate == fit


def test_atoms_with_classes():
    rng = np.random.default_rng(4)
    truth = np.zeros((150, 12), dtype=int)
    for position in range(12):  # never i behind o
        previous = truth[:, position - 1] if position else np.full(150, 2)
        draw = rng.integers(3, size=150)
        truth[:, position] = np.where((previous == 2) & (draw == 1), 2, draw)
    logits = rng.normal(size=(150, 12, 3)) + 1.5 * (truth[..., None] == np.arange(3)) - 0.75
    rules = """
        predicate tag(token) in {b, i, o}. closed next.
        tag(T) in {b, i} :- next(T, U), tag(U) in {i}.
        tag(T) in {o} :- next(T, U), tag(U) in {i}.
    """
    evidence = {"next": np.eye(12, k=1, dtype=bool)}
    fit = rw.fit_rules(rules, {"tag": logits}, {"tag": truth}, evidence=evidence, priors=True)
    assert fit.weights[0] > 0.5
    assert fit.weights[1] == 0
    assert fit.rows[1].reason in (rule_fit.WRONG, rule_fit.SAME)
    assert fit.rows[0].cases.fired == (logits[:, 1:].argmax(-1) == 1).sum()
    assert fit.selection[0].score == pytest.approx((logits.argmax(-1) == truth).mean())
    assert fit.scale > 0


def random_pairs(rng, worlds):
    sizes = rng.integers(4, 7, size=worlds)
    gold, logits = [], []
    for size in sizes:
        labels = rng.random((size, size, 3)) < 0.2
        labels[..., 1] = labels[..., 0].T
        apart = ~np.eye(size, dtype=bool)
        labels &= apart[..., None]
        gold.append(labels)
        logits.append(np.log(0.25) + 2 * (2 * labels + rng.normal(size=labels.shape)) - 2)
    return logits, gold


def test_relations_and_the_same_result_every_time():
    logits, gold = random_pairs(np.random.default_rng(5), 60)
    rules = "s(X, Y) :- r(Y, X). t(X, Z) :- r(X, Y), s(Y, Z). r(X, Z) :- t(X, Y), t(Y, Z)."
    fit = rw.fit_rules(rules, logits, gold, relations=["r", "s", "t"], scales=(1, 2))
    assert fit == rw.fit_rules(rules, logits, gold, relations=["r", "s", "t"], scales=(1, 2))
    assert fit.weights[0] > 1
    assert fit.weights[2] == 0
    assert [score.scale for score in fit.selection if score.injector == "decoder"] == [0, 1, 2, 1, 2]
    assert fit.scale in (1, 2)
    without = rw.fit_rules(rules, logits, gold, relations=["r", "s", "t"], scales=())
    assert (without.selection, without.weights, without.costs) == ((), fit.weights, fit.weights)


def test_one_graph_is_split_by_first_arguments():
    rng = np.random.default_rng(9)
    gold = rng.random((40, 40, 2)) < 0.1
    gold[..., 1] = gold[..., 0].T
    gold &= ~np.eye(40, dtype=bool)[..., None]
    logits = -2 + 1.5 * (2 * gold + rng.normal(size=gold.shape))
    rules = "s(X, Y) :- r(Y, X). s(X, Y) :- r(X, Y)."
    fit = rw.fit_rules(rules, logits, gold, relations=["r", "s"])
    assert fit.weights[0] > 1 and fit.weights[1] == 0
    assert fit.worlds == 10
    assert fit == rw.fit_rules(rules, [logits], [gold], relations=["r", "s"])
    labels = logits > 0
    labels[np.eye(40, dtype=bool)] = False
    f1 = 2 * (labels & gold).sum() / (labels.sum() + gold.sum())
    assert fit.selection[0].score == pytest.approx(f1)
    single = {score.scale: score.score for score in fit.selection if score.weighting == "confidence"}
    decoded = rw.RuleDecoder(rules, relations=["r", "s"], rule_costs=math.log(99))(logits).labels
    assert single[1.0] == pytest.approx(2 * (decoded & gold).sum() / (decoded.sum() + gold.sum()))


def test_priors_stand_behind_the_rules():
    logits, gold = random_pairs(np.random.default_rng(6), 60)
    logits = [part - np.array([0, 0, 2.0]) for part in logits]
    fit = rw.fit_rules(
        "s(X, Y) :- r(Y, X). 0.5 :: t(X, Y) :- r(X, Y), s(X, Y).",
        logits, gold, relations=["r", "s", "t"], priors=True, scales=(),
    )  # fmt: skip
    assert len(fit.rules) == 2 + 6
    texts = [str(formula).split(" ", 1)[1] for formula in fit.rules.formulas]
    assert texts == [f"{sign}{name}(X1, X2)." for name in "rst" for sign in ("", "!")]
    assert fit.weights[2 + texts.index("t(X1, X2).")] > 0.5
    assert fit.weights[2 + texts.index("!t(X1, X2).")] == 0
    classes = rw.fit_rules(
        "predicate p(x) in {a, b}. p(X) in {a} :- q(X).",
        {"p": np.zeros((9, 2, 2)), "q": np.zeros((9, 2))}, {"p": np.zeros((9, 2), int), "q": np.ones((9, 2), bool)},
        priors=True, scales=(),
    )  # fmt: skip
    assert [str(formula.formula) for formula in classes.rules.formulas] == [
        "p(X1) in {a}", "p(X1) in {b}", "q(X1)", "!q(X1)",
    ]  # fmt: skip


class TestLikelihood:
    @pytest.fixture(scope="class")
    def likelihood(self):
        rng = np.random.default_rng(7)
        rules = rw.parse_rules("""
            predicate tag(token) in {b, i, o}.
            tag(T) in {b, i} :- next(T, U), tag(U) in {i}.
            next(T, U) :- tag(T) in {b}, tag(U) in {i}.
            tall(T) :- tag(T) in {o}.
            2.0 tall(T) & next(T, U) => tall(U).
        """)
        logits = {
            "tag": rng.normal(size=(20, 4, 3)),
            "next": rng.normal(size=(20, 4, 4)),
            "tall": rng.normal(size=(20, 4)),
        }
        gold = {
            "tag": rng.integers(3, size=(20, 4)),
            "next": rng.random((20, 4, 4)) < 0.5,
            "tall": rng.random((20, 4)) < 0.8,
        }
        space = AtomSpace(rules)
        rows = list(split_rows(space, read_labelled_worlds(logits, gold, space=space)))
        return Likelihood(read_messages(space, rows, range(4)), np.ones(20, dtype=bool))

    def dense_loss(self, likelihood, weights):
        binary, classed = likelihood.parts
        logits = binary.logits + binary.messages.toarray() @ weights
        total = np.sum(np.log1p(np.exp(logits)) - binary.gold * logits)
        scores = (classed.logits + classed.messages.toarray() @ weights).reshape(-1, 3)
        chosen = classed.gold.reshape(-1, 3).argmax(1)
        return (total + np.sum(np.log(np.exp(scores).sum(1)) - scores[np.arange(len(scores)), chosen])) / 20

    def test_loss_and_gradient(self, likelihood):
        for seed in range(3):
            weights = np.random.default_rng(seed).random(4) * 3
            loss, gradient = likelihood.loss(weights)
            assert loss == pytest.approx(self.dense_loss(likelihood, weights))
            wanted = approx_fprime(weights, lambda point: self.dense_loss(likelihood, point))
            np.testing.assert_allclose(gradient, wanted, atol=1e-5)

    def test_gains(self, likelihood):
        weights = np.array([0.5, 0.0, 1.5, 0.7])
        none = np.zeros(4)
        gains = likelihood.gains(weights)
        assert gains.sum() == pytest.approx(20 * (likelihood.loss(none)[0] - likelihood.loss(weights)[0]))
        each = likelihood.gains_of_each(weights)
        for column in range(4):
            without = np.where(np.arange(4) == column, 0.0, weights)
            np.testing.assert_allclose(each[column], likelihood.gains(weights, without), atol=1e-9)
        picked = likelihood.pick(np.arange(20) < 5)
        np.testing.assert_allclose(picked.gains(weights), np.where(np.arange(20) < 5, gains, 0.0), atol=1e-9)
        for column in range(4):
            own = np.where(np.arange(4) == column, weights, 0.0)
            alone = likelihood.alone(column).gains(weights[[column]])
            np.testing.assert_allclose(alone, likelihood.gains(own), atol=1e-9)

    @pytest.mark.parametrize("penalty", [0.0, 0.05, 0.2])
    def test_the_optimum_is_that_of_another_method(self, likelihood, penalty):
        def objective(weights):
            ridge = weights @ weights / (2 * PRIOR_WIDTH**2 * 20)
            return self.dense_loss(likelihood, weights) + penalty * weights.sum() + ridge

        wanted = minimize(objective, np.full(4, 0.5), method="SLSQP", bounds=[(0, None)] * 4, options={"ftol": 1e-12})
        np.testing.assert_allclose(fit_weights(likelihood, penalty), wanted.x, atol=2e-3)
        kept = np.array([True, False, True, False])
        assert not fit_weights(likelihood, penalty, kept=kept)[~kept].any()


@pytest.mark.parametrize(
    ("rules", "options", "message"),
    [
        ("b(X) :- a(X).", {"folds": 2}, "folds must be >= 3, got 2"),
        ("hard a(X) => b(X).", {}, "there is no rule to fit"),
        ("template b(X) :- ?P(X) where ?P in *.", {}, "a template is not a formula"),
        ("b(X) :- g(X).", {}, "predicate g has no logits or evidence"),
        ("b(X) :- a(X).", {"scales": (-1.0,)}, "scales must be >= 0"),
        ("b(X) :- a(X).", {"priors": 1}, "priors must be True or False"),
    ],
)
def test_errors(rules, options, message):
    used = [name for name in "ab" if f"{name}(X)" in rules]
    logits, gold = ({name: part[name] for name in used} for part in sample_worlds(np.random.default_rng(0), 8, 2))
    with pytest.raises(DataError, match=message):
        rw.fit_rules(rules, logits, gold, **options)
