"""Candidate atoms: beside the dense layer where all atoms are candidates, and beside all groundings where some rest."""

from __future__ import annotations

import copy
import math
import pickle
import random

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inject.layer.plain_mean_field import softmax
from inject.layer.plain_resting import resting_mean_field
from inject.layer.test_layer import CLASSES, DOMAINS, PREDICATES, Problem, formulas

from rulewright.errors import DataError, MemoryLimitError, RulewrightError
from rulewright.inject import LogicLayer
from rulewright.logic import RuleSet, WeightedFormula

pytestmark = pytest.mark.filterwarnings("ignore::rulewright.errors.RulewrightWarning")

WEIGHTS = st.sampled_from([1.0, -0.7, 2.5])


def all_indices(name: str) -> torch.Tensor:
    sizes = [len(DOMAINS[type_name]) for type_name in PREDICATES[name].types]
    return torch.cartesian_prod(*map(torch.arange, sizes)).reshape(-1, len(sizes))


def as_candidates(logits, evidence, dense=()):
    """The same problem with each atom listed."""
    given = {
        name: values
        if name in dense
        else (all_indices(name), values.reshape(-1, *values.shape[PREDICATES[name].arity :]))
        for name, values in logits.items()
    }
    listed = {}
    for name, (values, seen) in evidence.items():
        if name in dense:
            listed[name] = (values, seen)
            continue
        where = seen.reshape(-1)
        listed[name] = (all_indices(name)[where], values.reshape(-1)[where])
    return given, listed


def learning(problem: Problem, **options) -> LogicLayer:
    statements = [WeightedFormula(formula, "learn") for _, formula in problem.formulas]
    rules = RuleSet(statements, predicates=problem.predicates.values())
    layer = LogicLayer(rules, problem.domains, **options).double()
    with torch.no_grad():
        layer.weights.learned.copy_(torch.tensor([weight for weight, _ in problem.formulas]))
    return layer


def assert_dense_equals_sparse(problem: Problem, dense_names=(), **options) -> None:
    logits, evidence = problem.tensors()
    leaves = {name: values.clone().requires_grad_() for name, values in logits.items()}
    others = {name: values.clone().requires_grad_() for name, values in logits.items()}
    layer = learning(problem, **options)
    wanted = layer(leaves, evidence)
    given, listed = as_candidates(others, evidence, dense_names)
    sparse = copy.deepcopy(layer)
    found = sparse(given, listed, rest={})
    total = other_total = torch.zeros(())
    for name, values in wanted.items():
        mine = found[name] if name in dense_names else found[name][1].reshape(values.shape)
        torch.testing.assert_close(mine, values, rtol=1e-9, atol=1e-9)
        total, other_total = total + torch.sigmoid(values).sum(), other_total + torch.sigmoid(mine).sum()
    if not total.requires_grad:
        return
    total.backward()
    other_total.backward()
    for name, leaf in leaves.items():
        gradient, other = leaf.grad, others[name].grad
        zero = torch.zeros_like(leaf)
        torch.testing.assert_close(zero if other is None else other, zero if gradient is None else gradient)
    gradient, other = layer.weights.learned.grad, sparse.weights.learned.grad
    zero = torch.zeros_like(layer.weights.learned)
    torch.testing.assert_close(
        zero if other is None else other, zero if gradient is None else gradient, rtol=1e-9, atol=1e-9
    )


@settings(max_examples=150)
@given(formula=formulas(), weight=WEIGHTS, seed=st.integers(0, 10**6), observe=st.sampled_from([0.0, 0.3]))
def test_all_atoms_as_candidates_are_the_dense_layer(formula, weight, seed, observe):
    problem = Problem([(weight, formula)], seed, observe=observe)
    assert_dense_equals_sparse(problem, iterations=2)


@settings(max_examples=30)
@given(
    several=st.lists(st.tuples(WEIGHTS, formulas(("p", "r", "s", "label"), 3)), min_size=2, max_size=3),
    seed=st.integers(0, 10**6),
    damping=st.sampled_from([0.0, 0.4]),
    dense=st.sets(st.sampled_from(["p", "r", "label"])),
)
def test_several_formulas_and_mixed_inputs(several, seed, damping, dense):
    problem = Problem(several, seed, observe=0.2)
    assert_dense_equals_sparse(problem, dense & set(problem.predicates), iterations=3, damping=damping)


@settings(max_examples=60)
@given(
    several=st.lists(st.tuples(WEIGHTS, formulas(("p", "r", "s", "label"), 3)), min_size=1, max_size=3),
    seed=st.integers(0, 10**6),
    observe=st.sampled_from([0.0, 0.3]),
    options=st.sampled_from([{}, {"draws": 7}, {"draws": 3, "observed_odds": 9.0}, {"observed_odds": 0.5}]),
)
def test_means_over_all_atoms_are_those_of_the_dense_layer(several, seed, observe, options):
    problem = Problem(several, seed, observe=observe)
    assert_dense_equals_sparse(problem, iterations=2, messages="mean", **options)


@settings(max_examples=60)
@given(
    several=st.lists(st.tuples(WEIGHTS, formulas(("p", "r", "s"), 3)), min_size=1, max_size=2),
    seed=st.integers(0, 10**6),
    share=st.sampled_from([0.2, 0.7]),
    options=st.sampled_from([{}, {"draws": 7}, {"draws": 3, "observed_odds": 9.0}]),
)
def test_means_with_atoms_at_rest_are_those_of_a_first_iteration(several, seed, share, options):
    """All atoms start at the rest but candidates, so that one iteration tells these the same."""
    problem = Problem(several, seed, observe=0.3)
    logits, evidence = problem.tensors()
    chance, rest, given_atoms = torch.Generator().manual_seed(seed), {}, {}
    for name, values in logits.items():
        rest[name] = float(torch.randn((), generator=chance, dtype=torch.float64))
        seen = evidence[name][1] if name in evidence else torch.zeros(values.shape, dtype=torch.bool)
        is_given = (torch.rand(values.shape, generator=chance) < share) | seen
        logits[name] = torch.where(is_given, values, rest[name])
        index = torch.nonzero(is_given)
        given_atoms[name] = index, logits[name][is_given]
    layer = learning(problem, iterations=1, messages="mean", **options)
    wanted = layer(logits, evidence)
    listed = {name: (torch.nonzero(seen), values[seen]) for name, (values, seen) in evidence.items()}
    found = layer(given_atoms, listed, rest=rest)
    for name, (index, values) in found.items():
        torch.testing.assert_close(values, wanted[name][index.unbind(1)], rtol=1e-9, atol=1e-9)


class RestingProblem(Problem):
    """A problem of which some atoms are candidates, some observed, and the others at rest."""

    def __init__(self, weighted, seed: int, *, share: float, observe: float, rest) -> None:
        super().__init__(weighted, seed, observe=observe)
        chance = random.Random(seed + 1)
        self.given = [atom for atom in self.names if chance.random() < share]
        self.rest = {
            name: chance.choice(rest)
            if declaration.classes is None
            else chance.choice([declaration.classes[0], [0.5, -1.0, 0.2], declaration.classes[2]])
            for name, declaration in self.predicates.items()
        }

    def index(self, chosen) -> torch.Tensor:
        rows = [
            [DOMAINS[type_name].index(arg) for arg, type_name in zip(args, PREDICATES[name].types, strict=True)]
            for name, args in chosen
        ]
        return torch.tensor(rows, dtype=torch.long).reshape(len(rows), -1 if rows else PREDICATES[self.asked].arity)

    def inputs(self):
        logits, evidence = {}, {}
        for name, declaration in self.predicates.items():
            self.asked = name
            mine = [atom for atom in self.given if atom[0] == name]
            values = torch.tensor([self.potentials[atom] for atom in mine], dtype=torch.float64)
            values = values.reshape(len(mine), CLASSES[name])
            logits[name] = (self.index(mine), values[:, 1] if declaration.classes is None else values)
            seen = [atom for atom in self.evidence if atom[0] == name]
            if seen:
                chosen = torch.tensor([self.evidence[atom] for atom in seen])
                evidence[name] = (self.index(seen), chosen.bool() if declaration.classes is None else chosen)
        return logits, evidence

    def resting(self):
        found = {}
        for atom in self.names:
            value = self.rest[atom[0]]
            if isinstance(value, str):
                found[atom] = [float(value == name) for name in PREDICATES[atom[0]].classes]
            elif isinstance(value, list):
                found[atom] = softmax(value)
            else:
                true = 1 / (1 + math.exp(-value)) if abs(value) < 100 else float(value > 0)
                found[atom] = [1 - true, true]
        return found


def assert_equals_all_groundings(problem: RestingProblem, *, iterations: int, damping: float = 0.0) -> None:
    logits, evidence = problem.inputs()
    layer = LogicLayer(problem.rules(), problem.domains, iterations, damping=damping)
    found = layer(logits, evidence, rest=problem.rest)
    potentials = {atom: problem.potentials[atom] for atom in problem.given}
    wanted = resting_mean_field(
        problem.formulas,
        problem.predicates,
        DOMAINS,
        potentials,
        problem.evidence,
        problem.resting(),
        iterations=iterations,
        damping=damping,
    )
    for name, declaration in problem.predicates.items():
        mine = [atom for atom in problem.given if atom[0] == name]
        for atom, value in zip(mine, found[name][1].tolist(), strict=True):
            if atom in problem.evidence:
                chosen = problem.evidence[atom]
                assert (value > 0) == bool(chosen) if declaration.classes is None else value[chosen] == max(value)
                continue
            expected = wanted[atom]
            if declaration.classes is None:
                assert value == pytest.approx(expected[1] - expected[0], rel=1e-9, abs=1e-9), atom
            else:
                differences = [number - value[0] for number in value]
                assert differences == pytest.approx([number - expected[0] for number in expected], rel=1e-9, abs=1e-9)


INFINITY = float("inf")


@settings(max_examples=250)
@given(
    formula=formulas(),
    weight=WEIGHTS,
    seed=st.integers(0, 10**6),
    share=st.sampled_from([0.0, 0.2, 0.5, 0.9]),
    observe=st.sampled_from([0.0, 0.3]),
    rest=st.sampled_from([[-INFINITY], [INFINITY], [-1.3], [-INFINITY, INFINITY, 0.7, 0.0]]),
)
def test_resting_atoms_beside_all_groundings(formula, weight, seed, share, observe, rest):
    problem = RestingProblem([(weight, formula)], seed, share=share, observe=observe, rest=rest)
    assert_equals_all_groundings(problem, iterations=2)


@settings(max_examples=40)
@given(
    several=st.lists(st.tuples(WEIGHTS, formulas(("p", "r", "s", "label", "mark"), 4)), min_size=2, max_size=3),
    seed=st.integers(0, 10**6),
    damping=st.sampled_from([0.0, 0.4]),
)
def test_several_formulas_with_resting_atoms(several, seed, damping):
    rest = [-INFINITY, -1.3]
    problem = RestingProblem(several, seed, share=0.4, observe=0.2, rest=rest)
    assert_equals_all_groundings(problem, iterations=3, damping=damping)


HARD = """
    predicate tag(node) in {o, b, i}.
    hard next(X, Y) & tag(Y) in {i} => tag(X) in {b, i}.
    1.5 link(X, Y) & link(Y, Z) => link(X, Z).
    hard link(X, Y) => link(Y, X).
    0.7 link(X, Y) & tag(X) in {b} => tag(Y) in {b}.
    closed next.
"""


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("options", [{}, {"damping": 0.3}, {"tolerance": 0.2}, {"iterations": 0}, {"iterations": 1}])
def test_hard_formulas_are_annealed_alike(seed, options):
    torch.manual_seed(seed)
    size = 5
    logits = {"link": torch.randn(size, size, dtype=torch.float64), "tag": torch.randn(size, 3, dtype=torch.float64)}
    following = torch.zeros(size, size, dtype=torch.bool)
    following[range(size - 1), range(1, size)] = True
    layer = LogicLayer(HARD, {"node": size}, **options)
    wanted = layer(logits, {"next": following})
    convergence = layer.convergence
    every = torch.cartesian_prod(torch.arange(size), torch.arange(size))
    candidates = {"link": (every, logits["link"].reshape(-1)), "tag": logits["tag"]}
    edges = following.nonzero()
    for seen in (following, (edges, torch.ones(len(edges), dtype=torch.bool))):
        found = layer(candidates, {"next": seen})
        torch.testing.assert_close(found["link"][1].reshape(size, size), wanted["link"])
        torch.testing.assert_close(found["tag"], wanted["tag"])
        assert layer.convergence.broken == convergence.broken
        assert layer.convergence.changes == pytest.approx(convergence.changes)


def test_evidence_that_breaks_a_hard_formula():
    layer = LogicLayer("hard !(p(X) & q(X)). closed p. closed q.", {"entity": 4})
    both = (torch.tensor([[2]]), torch.tensor([True]))
    with pytest.raises(DataError, match="contradicts a hard formula in 1 groundings"):
        layer({}, {"p": both, "q": both})


TRANSITIVE = "1.5 r(A, B) & r(B, C) => r(A, C). -0.4 r(A, A)."


def edges(*pairs):
    return torch.tensor(pairs, dtype=torch.long).reshape(-1, 2)


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
@pytest.mark.parametrize("rest", [-INFINITY, -2.0, 0.0, INFINITY])
def test_few_entities_and_loops(size, rest):
    index = edges(*[pair for pair in [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)] if max(pair) < size])
    values = torch.linspace(-1, 2, len(index), dtype=torch.float64)
    found = LogicLayer(TRANSITIVE, {"entity": size}, 2)({"r": (index, values)}, rest=rest)
    true = float(torch.tensor(rest, dtype=torch.float64).sigmoid())
    dense = torch.full((size, size), rest, dtype=torch.float64)
    if size > 3:
        assert torch.isfinite(found["r"][1]).all()
        return
    dense[tuple(index.T)] = values
    marginals = dense.sigmoid()
    for _ in range(2):
        given = found_messages(marginals, size)
        after = values + given[tuple(index.T)]
        marginals = torch.full((size, size), true, dtype=torch.float64)
        marginals[tuple(index.T)] = after.sigmoid()
    torch.testing.assert_close(found["r"][1], after)


def found_messages(marginals, size):
    messages = torch.zeros_like(marginals)
    for a in range(size):
        messages[a, a] -= 0.4
        for b in range(size):
            for c in range(size):
                if a != b and b != c:
                    messages[a, c] += 1.5 * marginals[a, b] * marginals[b, c]
                    messages[a, b] -= 1.5 * marginals[b, c] * (1 - marginals[a, c])
                    messages[b, c] -= 1.5 * marginals[a, b] * (1 - marginals[a, c])
    return messages


def test_a_hub():
    size = 300
    spokes = torch.stack([torch.zeros(size - 1, dtype=torch.long), torch.arange(1, size)], 1)
    index = torch.cat([spokes, spokes.flip(1), edges((1, 2), (3, 4))])
    values = torch.randn(len(index), dtype=torch.float64)
    found = LogicLayer(TRANSITIVE, {"entity": size}, 1)({"r": (index, values)}, rest=-INFINITY)
    marginals = torch.zeros(size, size, dtype=torch.float64)
    marginals[tuple(index.T)] = values.sigmoid()
    off = marginals - torch.diag(marginals.diagonal())
    false = 1 - marginals
    messages = 1.5 * (off @ off - (false @ off.T) * (1 - torch.eye(size)) - (off.T @ false) * (1 - torch.eye(size)))
    torch.testing.assert_close(found["r"][1], values + messages[tuple(index.T)])


def test_no_candidates_and_none_asked():
    layer = LogicLayer("2.0 p(X) => q(X). closed p.", {"entity": 3})
    nothing = torch.empty(0, 1, dtype=torch.long)
    found = layer({"q": (nothing, torch.empty(0))}, {"p": (nothing, torch.empty(0, dtype=torch.bool))}, rest=0.0)
    assert found["q"][1].shape == (0,)
    found = layer({"q": torch.zeros(3)}, {"p": (nothing, torch.empty(0, dtype=torch.bool))})
    assert found["q"].tolist() == [0, 0, 0]
    found = layer({"q": torch.zeros(3)}, {"p": (torch.tensor([[1]]), torch.tensor([True]))})
    assert found["q"].tolist() == [0, 2, 0]


def test_dtypes_and_copies():
    index, values = edges((0, 1), (1, 2), (0, 2), (2, 2)), torch.tensor([2.0, 1.0, -1.0, 0.5])
    layer = LogicLayer(TRANSITIVE, {"entity": 10}, evidence={"r": (edges((3, 4)), torch.tensor([True]))})
    wanted = layer({"r": (index, values.double())}, rest=-3.0)["r"][1]
    assert wanted.dtype == torch.float64
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        found = other({"r": (index, values)}, rest=-3.0)["r"][1]
        assert found.dtype == torch.float32
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


def test_what_was_grounded_without_gradients_serves_training():
    index, values = edges((0, 1), (1, 2), (0, 2), (2, 2)), torch.tensor([2.0, 1.0, -1.0, 0.5], requires_grad=True)
    layer = LogicLayer(TRANSITIVE, {"entity": 10})
    with torch.inference_mode():
        layer({"r": (index, values)}, rest=-3.0)
    layer({"r": (index, values)}, rest=-3.0)["r"][1].sum().backward()
    assert values.grad.abs().min() > 0
    assert len(layer.sparse_planner.kept) == 1


def test_observed_candidates_are_certain():
    layer = LogicLayer(TRANSITIVE, {"entity": 10})
    index = edges((0, 1), (1, 2), (0, 2))
    seen = {"r": (edges((1, 2), (0, 1), (5, 5)), torch.tensor([True, False, True]))}
    found = layer({"r": (index, torch.zeros(3))}, seen, rest=-INFINITY)["r"][1]
    assert found[0] < -1000 and found[1] > 1000 and abs(found[2]) < 1
    every = torch.zeros(10, 10, dtype=torch.bool)
    every[1, 2] = True
    assert (layer({"r": (index, torch.zeros(3))}, {"r": every})["r"][1] > 0).tolist() == [False, True, False]


def test_ground_clauses_beyond_the_memory_limit_come_in_blocks():
    torch.manual_seed(0)
    size = 100
    index = torch.cartesian_prod(torch.arange(size), torch.arange(size))[torch.rand(size * size) < 0.8]
    seen = {"r": (index[:100], torch.rand(100) < 0.5)}
    results = []
    for memory_limit in (None, 8_000_000):
        layer = LogicLayer(f"learn {TRANSITIVE[4:]}", {"entity": size}, 2, memory_limit=memory_limit).double()
        values = torch.linspace(-1, 1, len(index), dtype=torch.float64).requires_grad_()
        found = layer({"r": (index, values)}, seen, rest=-3.0)["r"][1]
        found.sigmoid().sum().backward()
        (plan,) = layer.sparse_planner.kept
        assert plan.is_blockwise == (memory_limit is not None)
        results.append((found, values.grad, layer.weights.learned.grad, plan.ground_clauses))
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)
    assert len(plan.clauses[0].ranges) > 1
    with pytest.raises(MemoryLimitError, match=r"candidate atoms need .* give fewer candidates"):
        LogicLayer(TRANSITIVE, {"entity": size}, memory_limit=10_000)({"r": (index, values)}, rest=-3.0)


def test_equal_candidates_are_grounded_once():
    layer = LogicLayer(TRANSITIVE, {"entity": 10})
    index, values = edges((0, 1), (1, 2), (0, 2)), torch.zeros(3)
    layer({"r": (index, values)}, rest=0.0)
    (plan,) = layer.sparse_planner.kept
    layer({"r": (index.clone(), values + 1)}, rest=0.0)
    assert layer.sparse_planner.kept == (plan,)
    index[0, 1] = 3  # in place: other candidates
    layer({"r": (index, values)}, rest=0.0)
    assert len(layer.sparse_planner.kept) == 2
    layer({"r": (index, values)}, rest=torch.tensor(0.0001).item())
    assert len(layer.sparse_planner.kept) == 3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda layer, one: layer({"r": one}), r"what do the atoms of r rest at.*rest=\{'r': float\('-inf'\)\}"),
        (lambda layer, one: layer({"r": one}, rest={"s": 0.0}), "unknown predicate 's'"),
        (lambda layer, one: layer({"r": one}, rest={"r": "false"}), "rest of r must be log-odds"),
        (lambda layer, one: layer({"r": (one[0] + 9, one[1])}, rest=0.0), "entity index below 10.*got 10"),
        (lambda layer, one: layer({"r": (one[0][[0, 0]], one[1])}, rest=0.0), "occurs twice"),
        (lambda layer, one: layer({"r": (one[0].float(), one[1])}, rest=0.0), "whole numbers"),
        (lambda layer, one: layer({"r": (one[0][:, :1], one[1])}, rest=0.0), r"\[n, 2\]"),
        (lambda layer, one: layer({"r": (one[0], one[1][:1])}, rest=0.0), r"must have the shape \[2\]"),
        (lambda layer, one: layer({"r": (one[0], one[1] * torch.nan)}, rest=0.0), "NaN"),
        (lambda layer, one: layer({"r": one}, mask={"entity": torch.ones(10).bool()}, rest=0.0), "without masks"),
        (
            lambda layer, one: LogicLayer(TRANSITIVE, {"entity": 10}, inference="exact")({"r": one}, rest=0.0),
            'without inference="exact"',
        ),
        (lambda layer, one: LogicLayer(TRANSITIVE)({"r": one}, rest=0.0), r"domains=\{'entity': …\}"),
        (lambda layer, one: layer({"r": one, "q": torch.zeros(2, 10)}, rest=0.0), "have no batch"),
        (
            lambda layer, one: layer({"r": one}, {"r": (torch.zeros(10, 10).bool(),) * 2}, rest=0.0),
            r"its evidence is \(index, values\)",
        ),
        (lambda layer, one: (layer({"r": one}, rest=0.0), layer.explain("r(0, 1)")), "candidate atoms"),
    ],
)
def test_what_is_refused(call, message):
    with pytest.raises(RulewrightError, match=message):
        call(LogicLayer(f"{TRANSITIVE} predicate q(entity).", {"entity": 10}), (edges((0, 1), (1, 2)), torch.zeros(2)))
