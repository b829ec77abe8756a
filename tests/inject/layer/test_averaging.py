"""Mean messages against means over all ground clauses."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inject.layer.plain_averages import averaged_mean_field, ground_clauses
from inject.layer.plain_mean_field import softmax
from inject.layer.test_layer import DOMAINS, PREDICATES, Problem, formulas

import rulewright as rw
from rulewright.errors import RulewrightError
from rulewright.inject import LogicLayer
from rulewright.logic import RuleSet, Symbol, WeightedFormula, units

OPTIONS = st.sampled_from([(0, None), (0, 9.0), (0, 0.3), (20, None), (300, 4.0), (10_000, 9.0)])


def assert_same(problem: Problem, layer: LogicLayer) -> None:
    logits, evidence = problem.tensors()
    found = problem.marginals(layer(logits, evidence))
    wanted = averaged_mean_field(
        problem.formulas,
        problem.predicates,
        DOMAINS,
        problem.potentials,
        problem.evidence,
        iterations=layer.iterations,
        draws=layer.draws,
        odds=layer.observed_odds,
        damping=layer.damping or 0.0,
    )
    for atom, values in wanted.items():
        marginal = softmax(values)
        if atom in problem.evidence:
            marginal = [float(position == problem.evidence[atom]) for position in range(len(marginal))]
        assert found[atom] == pytest.approx(marginal, abs=1e-6), atom


@settings(max_examples=100)
@given(formula=formulas(), weight=st.sampled_from([1.0, -0.7]), options=OPTIONS, seed=st.integers(0, 10**6))
def test_one_iteration_is_the_mean_over_ground_clauses(formula, weight, options, seed):
    problem = Problem([(weight, formula)], seed, observe=0.3)
    draws, odds = options
    layer = LogicLayer(problem.rules(), problem.domains, 1, messages="mean", draws=draws, observed_odds=odds)
    assert_same(problem, layer)


@settings(max_examples=50)
@given(
    several=st.lists(
        st.tuples(st.sampled_from([0.5, -1.0, 1.5]), formulas(("p", "r", "s", "label"), 3)), min_size=2, max_size=3
    ),
    seed=st.integers(0, 10**6),
    damping=st.sampled_from([0.0, 0.4]),
    options=OPTIONS,
)
def test_several_formulas_and_iterations(several, seed, damping, options):
    problem = Problem(several, seed, observe=0.2)
    draws, odds = options
    layer = LogicLayer(
        problem.rules(), problem.domains, 3, damping=damping, messages="mean", draws=draws, observed_odds=odds
    )
    assert_same(problem, layer)


@settings(max_examples=50)
@given(formula=formulas(("r",), 4), seed=st.integers(0, 10**6), observe=st.sampled_from([0.0, 0.5]), options=OPTIONS)
def test_atoms_of_one_predicate_that_coincide(formula, seed, observe, options):
    problem = Problem([(1.0, formula)], seed, observe=observe)
    draws, odds = options
    layer = LogicLayer(problem.rules(), problem.domains, 2, messages="mean", draws=draws, observed_odds=odds)
    assert_same(problem, layer)


@settings(max_examples=40)
@given(
    several=st.lists(st.tuples(st.sampled_from([0.5, 1.5]), formulas(("p", "r", "s"), 3)), min_size=1, max_size=2),
    seed=st.integers(0, 10**6),
    options=OPTIONS,
)
def test_predicates_that_are_observed_everywhere(several, seed, options):
    problem = Problem(several, seed, observe=0.3)
    name = next(iter(problem.predicates))
    for number, atom in enumerate(problem.names):
        if atom[0] == name:
            problem.evidence[atom] = (seed >> number) % 2
    draws, odds = options
    layer = LogicLayer(problem.rules(), problem.domains, 2, messages="mean", draws=draws, observed_odds=odds)
    logits, evidence = problem.tensors()
    closed = {**evidence, name: evidence[name][0]}  # values without where: observed everywhere
    partly = layer(logits, evidence)
    everywhere = layer({other: given for other, given in logits.items() if other != name}, closed)
    for other in everywhere:
        torch.testing.assert_close(everywhere[other], partly[other])
    assert_same(problem, layer)


@settings(max_examples=30)
@given(formula=formulas(("p", "r", "s", "label"), 3), seed=st.integers(0, 10**6), options=OPTIONS)
def test_a_batch_is_its_rows_and_a_mask_leaves_entities_out(formula, seed, options):
    problems = [Problem([(1.0, formula)], seed + row, observe=0.4) for row in range(2)]
    draws, odds = options
    layer = LogicLayer(problems[0].rules(), problems[0].domains, 2, messages="mean", draws=draws, observed_odds=odds)
    rows = []
    for problem in problems:
        logits, evidence = problem.tensors()
        for name, values in logits.items():
            shape = values.shape if PREDICATES[name].classes is None else values.shape[:-1]
            dtype = torch.bool if PREDICATES[name].classes is None else torch.long
            none = torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=torch.bool)
            evidence.setdefault(name, none)
        rows.append((logits, evidence))
    batch = layer(
        {name: torch.stack([logits[name] for logits, _ in rows]) for name in rows[0][0]},
        {
            name: tuple(torch.stack([evidence[name][part] for _, evidence in rows]) for part in (0, 1))
            for name in rows[0][1]
        },
    )
    for index, (logits, evidence) in enumerate(rows):
        alone = layer(logits, evidence)
        for name in alone:
            torch.testing.assert_close(batch[name][index], alone[name])
    if any(isinstance(term, Symbol) for unit in units(formula) for term in unit.args):
        return
    logits = rows[0][0]  # padded by one entity of each type that the mask leaves out, everything stays as it is
    padded = {}
    for name, tensor in logits.items():
        arity = PREDICATES[name].arity
        tail = [0, 0] * (tensor.ndim - arity)
        padded[name] = torch.nn.functional.pad(tensor, [*tail, *([0, 1] * arity)], value=1.7)[None].repeat(
            2, *[1] * tensor.ndim
        )
    wide = {"t": ("1", "2", "3", "9"), "u": ("a", "b", "c")}
    used = {type_name for name in padded for type_name in PREDICATES[name].types}
    masks = {type_name: torch.tensor([[True] * len(DOMAINS[type_name]) + [False]] * 2) for type_name in used}
    domains = {type_name: wide[type_name] for type_name in used}
    masked = LogicLayer(problems[0].rules(), domains, 2, messages="mean", draws=draws, observed_odds=odds)(
        padded, mask=masks
    )
    for name, tensor in layer(logits).items():
        index = (1, *(slice(0, len(DOMAINS[type_name])) for type_name in PREDICATES[name].types))
        torch.testing.assert_close(masked[name][index], tensor)


@settings(max_examples=15)
@given(formula=formulas(("p", "r", "s", "label"), 3), seed=st.integers(0, 10**6), options=OPTIONS)
def test_gradients(formula, seed, options):
    problem = Problem([(1.0, formula)], seed, observe=0.2)
    rules = RuleSet([WeightedFormula(formula, "learn")], predicates=problem.predicates.values())
    draws, odds = options
    layer = LogicLayer(rules, problem.domains, 2, messages="mean", draws=draws, observed_odds=odds).double()
    logits, evidence = problem.tensors()
    names = list(logits)

    def run(weight, *tensors):
        with torch.no_grad():
            layer.weights.learned.copy_(weight)
        output = torch.func.functional_call(
            layer, {"weights.learned": weight}, (dict(zip(names, tensors, strict=True)), evidence)
        )
        return tuple(torch.sigmoid(given) for given in output.values())

    weight = torch.tensor([0.8], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, (weight, *[logits[name].requires_grad_() for name in names]), atol=1e-6)


def test_draws_lead_from_the_mean_to_the_sum():
    """Where one formula has all groundings alike, many draws give its sum times draws over groundings."""
    rules = rw.parse_rules("1.2 r(A, B) & r(B, C) => r(A, C).")
    torch.manual_seed(0)
    logits = {"r": torch.randn(5, 5, dtype=torch.float64)}
    added = LogicLayer(rules, iterations=1)(logits)["r"] - logits["r"]
    groundings = 5 * 4 * 4  # tautologies, where two atoms are one, do not matter
    many = LogicLayer(rules, iterations=1, messages="mean", draws=10**6)(logits)["r"] - logits["r"]
    torch.testing.assert_close(many, added * 10**6 / groundings)
    mean = LogicLayer(rules, iterations=1, messages="mean")(logits)["r"] - logits["r"]
    one = LogicLayer(rules, iterations=1, messages="mean", draws=1)(logits)["r"] - logits["r"]
    assert float((mean.abs() <= 1.2).all()) and float((one.abs() >= mean.abs()).all())
    assert float((one - mean).abs().max()) < 0.1


def test_the_chances_are_a_distribution():
    formula = rw.parse_formula("p(T0) & r(T0, T1) => p(T1)")
    problem = Problem([(0.3, formula)], 7, observe=0.3)
    clauses = list(ground_clauses(problem.formulas, problem.predicates, DOMAINS, problem.evidence, 9.0))
    assert sum(clause.chance for clause in clauses) == pytest.approx(1)


@pytest.mark.parametrize(("draws", "odds"), [(0, None), (50, 9.0)])
def test_explanations_add_up_to_what_moved(draws, odds):
    torch.manual_seed(1)
    rules = rw.parse_rules("""
        predicate l(entity) in {x, y, z}.
        1.0 r(A, B) & r(B, C) => r(A, C). 0.5 p(A) <=> r(A, B). hard !(r(A, A) & p(A)). 1.0 l(A) in {x} => p(A).
    """)
    layer = LogicLayer(rules, iterations=3, messages="mean", draws=draws, observed_odds=odds)
    layer.has_warned = True
    logits = {
        "r": torch.randn(2, 5, 5, dtype=torch.float64),
        "p": torch.randn(2, 5, dtype=torch.float64),
        "l": torch.randn(2, 5, 3, dtype=torch.float64),
    }
    values = torch.rand(2, 5, 5) > 0.5
    evidence = {"r": (values, torch.rand(2, 5, 5) > 0.7)}
    evidence["r"] = (values & ~torch.eye(5, dtype=torch.bool), evidence["r"][1])
    out = layer(logits, evidence)
    where = torch.nonzero(~evidence["r"][1][1]).tolist()
    for row, column in where[:4]:
        explanation = layer.explain(f"r({row}, {column})", row=1, top=200)
        assert explanation.now == pytest.approx(out["r"][1, row, column].item())
        moved = sum(influence.moved for influence in explanation.formulas)
        assert moved == pytest.approx(explanation.now - explanation.given)
        for influence in explanation.formulas:
            assert sum(part.moved for part in influence.groundings) == pytest.approx(influence.moved, abs=1e-9)
    batch = {(effect.rule, effect.predicate): effect for effect in layer.explain_batch().effects}
    moves: dict[str, list[float]] = {}
    for row in (0, 1):
        for entity in range(5):
            for part in layer.explain(f"p({entity})", row=row, top=9).formulas:
                moves.setdefault(str(part.statement), []).append(part.moved)
    for rule, of_rule in moves.items():
        large = [abs(move) for move in of_rule if abs(move) > 0.01]
        if large:
            assert batch[rule, "p"].mean == pytest.approx(sum(large) / len(large))


def test_hard_formulas_are_annealed_in_the_mean_too():
    rules = rw.parse_rules("hard r(A, B) & r(B, C) => r(A, C). 0.5 !r(A, B).")
    torch.manual_seed(2)
    logits = {"r": torch.randn(6, 6) + 0.5}
    layer = LogicLayer(rules, iterations=8, messages="mean")
    layer.has_warned = True
    out = layer(logits)["r"]
    assert bool(torch.isfinite(out).all())
    given, now = layer.convergence.broken
    assert now <= given


@pytest.mark.slow
@pytest.mark.parametrize("draws", [0, 100])
def test_compiled_it_gives_the_same(draws):
    rules = rw.parse_rules("""
        predicate label(token) in {a, b, c}. closed next.
        1.5 label(X) in {a} & next(X, Y) => label(Y) in {b}.
        0.5 next(X, Y) & p(X) => p(Y).
    """)
    layer = LogicLayer(rules, messages="mean", draws=draws, observed_odds=3.0)
    compiled = torch.compile(layer)
    generator = torch.Generator().manual_seed(0)
    label = torch.randn(2, 5, 3, generator=generator, requires_grad=True)
    logits = {"label": label, "p": torch.randn(2, 5, generator=generator)}
    evidence = {"next": torch.rand(5, 5, generator=generator) > 0.5}
    results = [module(logits, evidence) for module in (layer, compiled)]
    for name in logits:
        torch.testing.assert_close(results[1][name], results[0][name], atol=1e-4, rtol=1e-4)
    slopes = [torch.autograd.grad(sum(t.square().sum() for t in result.values()), label)[0] for result in results]
    torch.testing.assert_close(slopes[1], slopes[0], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"messages": "median"}, "messages must be 'sum' or 'mean'"),
        ({"messages": "mean", "draws": -1}, "draws must be >= 0"),
        ({"messages": "mean", "observed_odds": 0.0}, "observed_odds must be > 0"),
        ({"messages": "mean", "inference": "exact"}, "exact inference sends no messages"),
        ({"draws": 10}, "of mean messages"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(RulewrightError, match=message):
        LogicLayer("1.0 p(X).", **options)
