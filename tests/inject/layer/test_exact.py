"""Exact inference against all worlds, one by one."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inject.layer.plain_mean_field import exact_marginals
from inject.layer.test_layer import DOMAINS, Problem, formulas

from rulewright.errors import MemoryLimitError, RulewrightError
from rulewright.inject import LogicLayer


def assert_exact(problem: Problem) -> None:
    logits, evidence = problem.tensors()
    found = problem.marginals(LogicLayer(problem.rules(), problem.domains, inference="exact")(logits, evidence))
    wanted = exact_marginals(problem.formulas, problem.predicates, DOMAINS, problem.potentials, problem.evidence)
    for atom, values in wanted.items():
        assert found[atom] == pytest.approx(values, abs=1e-8), atom


@settings(max_examples=40, deadline=None)
@given(
    several=st.lists(
        st.tuples(st.sampled_from([0.5, -1.0, 2.5, 20.0]), formulas(("p", "q", "s", "label"), 4)),
        min_size=1,
        max_size=3,
    ),
    seed=st.integers(0, 10**6),
    observe=st.sampled_from([0.0, 0.3]),
)
def test_the_marginals_are_those_of_all_worlds(several, seed, observe):
    problem = Problem(several, seed, observe=observe)
    if len(problem.names) - len(problem.evidence) <= 9:
        assert_exact(problem)


@settings(max_examples=15, deadline=None)
@given(formula=formulas(("r", "p"), 4), seed=st.integers(0, 10**6))
def test_relations_whose_atoms_coincide(formula, seed):
    assert_exact(Problem([(1.3, formula)], seed, observe=0.2))


@settings(max_examples=10, deadline=None)
@given(formula=formulas(("w", "mark", "p"), 2), seed=st.integers(0, 10**6))
def test_three_arguments_and_classes_of_pairs(formula, seed):
    problem = Problem([(1.3, formula)], seed, observe=0.75)
    if len(problem.names) - len(problem.evidence) <= 6:
        assert_exact(problem)


def test_propositions_and_distinct_variables():
    layer = LogicLayer("2.0 rain => wet. 1.0 wet & p(X) => q(X). 0.5 p(X) & p(Y) => q(Y).", inference="exact")
    logits = {"rain": torch.randn(3), "wet": torch.randn(3), "p": torch.randn(3, 2), "q": torch.randn(3, 2)}
    output = layer(logits)
    assert output["rain"].shape == (3,)
    for row in range(3):
        worlds = torch.cartesian_prod(*[torch.tensor([0.0, 1.0])] * 6)
        rain, wet, p, q = worlds[:, 0], worlds[:, 1], worlds[:, 2:4], worlds[:, 4:6]
        score = rain * logits["rain"][row] + wet * logits["wet"][row] + p @ logits["p"][row] + q @ logits["q"][row]
        score = score - 2 * rain * (1 - wet) - (wet[:, None] * p * (1 - q)).sum(1)
        score = score - 0.5 * (p.sum(1, keepdim=True) * p * (1 - q)).sum(1)
        marginals = torch.softmax(score, 0) @ worlds
        torch.testing.assert_close(torch.sigmoid(output["rain"][row]), marginals[0])
        torch.testing.assert_close(torch.sigmoid(output["q"][row]), marginals[4:6])
    distinct = LogicLayer("1.5 a(X, Y) => b(Y, X).", relations=["a", "b"], inference="exact")
    stacked = torch.randn(2, 3, 3, 2)
    result = distinct(stacked, torch.tensor([[True] * 3, [True, True, False]]))
    torch.testing.assert_close(torch.diagonal(result, 0, 1, 2), torch.diagonal(stacked, 0, 1, 2))
    torch.testing.assert_close(result[1, 2], stacked[1, 2])
    torch.testing.assert_close(result[1:, :2, :2], distinct(stacked[1:, :2, :2]))


def chain(length: int, rows: int = 2) -> tuple[LogicLayer, dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    rules = """
        predicate label(token) in {o, begin, inside}. closed next.
        hard next(T, U) & label(U) in {inside} => label(T) in {begin, inside}.
        0.7 next(T, U) & label(T) in {begin} => label(U) in {inside}.
    """
    following = torch.zeros(length, length, dtype=torch.bool)
    following[range(length - 1), range(1, length)] = True
    logits = torch.randn(rows, length, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return LogicLayer(rules, inference="exact"), {"label": logits}, {"next": following}


def test_a_chain_is_forward_and_backward():
    layer, logits, evidence = chain(40)
    output = layer(logits, evidence)["label"]
    scores = torch.zeros(3, 3, dtype=torch.float64)  # from the first of a pair to the second
    scores[0, 2], scores[1, 0], scores[1, 1] = -20.0, -0.7, -0.7
    given_logits = logits["label"]
    forward, backward = [given_logits[:, 0]], [torch.zeros_like(given_logits[:, 0])]
    for position in range(1, 40):
        forward.append(torch.logsumexp(forward[-1][:, :, None] + scores, 1) + given_logits[:, position])
        following = backward[0] + given_logits[:, 40 - position]
        backward.insert(0, torch.logsumexp(scores + following[:, None, :], 2))
    expected = torch.softmax(torch.stack(forward, 1) + torch.stack(backward, 1), -1)
    torch.testing.assert_close(torch.softmax(output, -1), expected)
    plan = layer.plan({"token": 40}, evidence)
    assert (plan.cliques.width, plan.cliques.largest, len(plan.cliques.atoms)) == (2, 9, 40)
    assert "exact inference: 40 atoms in 78 groundings; cliques of at most 2 atoms" in str(plan)


def test_rows_may_have_evidence_and_masks_of_their_own():
    layer, logits, evidence = chain(6, rows=3)
    following = evidence["next"].expand(3, 6, 6).clone()
    following[1, 3, 4] = False
    seen = torch.zeros(3, 6, dtype=torch.bool)
    seen[2, 0] = seen[0, 5] = True
    observed = (torch.ones(3, 6, dtype=torch.long), seen)
    mask = torch.tensor([[True] * 6, [True] * 6, [True] * 4 + [False] * 2])
    together = layer(logits, {"next": following, "label": observed}, {"token": mask})["label"]
    for row in range(3):
        size = int(mask[row].sum())
        alone = layer(
            {"label": logits["label"][row, :size]},
            {"next": following[row, :size, :size], "label": (observed[0][row, :size], seen[row, :size])},
        )["label"]
        torch.testing.assert_close(together[row, :size].softmax(-1), alone.softmax(-1))
        torch.testing.assert_close(together[row, size:], logits["label"][row, size:])


def test_gradients_of_logits_and_weights():
    layer = LogicLayer("learn p(X) & r(X, Y) => p(Y). hard !(p(X) & r(X, X)).", inference="exact", hard_weight=3.0)
    layer = layer.double()
    torch.manual_seed(0)
    tensors = [torch.randn(2, 2, dtype=torch.float64), torch.randn(2, 2, 2, dtype=torch.float64)]

    def run(weight: torch.Tensor, p: torch.Tensor, r: torch.Tensor) -> tuple[torch.Tensor, ...]:
        output = torch.func.functional_call(layer, {"weights.learned": weight}, ({"p": p, "r": r},))
        return tuple(output.values())

    weight = torch.tensor([0.8], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, [weight, *(tensor.requires_grad_() for tensor in tensors)])


def test_what_is_too_wide_is_refused_with_the_number():
    layer = LogicLayer("1.0 r(A, B) & r(B, C) => r(A, C).", inference="exact")
    with pytest.raises(MemoryLimitError, match=r"table of at least .* cells, .* inference=\"mean-field\""):
        layer({"r": torch.zeros(12, 12)})
    with pytest.raises(RulewrightError, match=r"groundings, and .* has 125,000,000"):
        layer({"r": torch.zeros(500, 500)})
    few = LogicLayer("1.0 r(A, B) => r(B, A).", inference="exact", memory_limit=1000)
    with pytest.raises(MemoryLimitError, match="cells in each of 1 rows"):
        few({"r": torch.zeros(9, 9)})


def test_copies_and_dtypes():
    layer = LogicLayer("1.0 p(X) => q(X).", inference="exact")
    logits = {"p": torch.randn(4).bfloat16(), "q": torch.randn(4)}
    output = layer(logits)
    assert output["p"].dtype == torch.bfloat16
    torch.testing.assert_close(copy.deepcopy(layer)(logits)["q"], output["q"])
    assert layer.convergence.converged


@pytest.mark.slow
def test_compiling_leaves_it_as_it_is():
    layer, logits, evidence = chain(5)
    compiled = torch.compile(layer, backend="eager")(logits, evidence)["label"]
    torch.testing.assert_close(compiled, layer(logits, evidence)["label"])


def test_a_plan_says_which_inference_is_used_and_what_the_other_needs():
    small = LogicLayer("2.0 smokes(X) & friend(X, Y) => smokes(Y).")
    assert "mean field: 5 iterations" in str(small.plan({"entity": 2}))
    assert 'inference="exact" needs a table of 8 cells' in str(small.plan({"entity": 2}))
    assert "exact inference needs a table of at least" in str(small.plan({"entity": 30}))
    assert "not tried for more than 10,000 groundings" in str(small.plan({"entity": 200}))
    closed = LogicLayer("2.0 smokes(X) & friend(X, Y) => smokes(Y). closed friend.")
    assert "predicate friend has no evidence" in str(closed.plan({"entity": 3}))
