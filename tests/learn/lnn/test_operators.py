from __future__ import annotations

import itertools

import cdd
import numpy as np
import pytest
import torch

from rulewright.errors import DataError
from rulewright.learn.lnn import operators as polyhedron
from rulewright.learn.lnn.operators import (
    Attention,
    LNNAnd,
    LNNOr,
    LukasiewiczAnd,
    LukasiewiczOr,
    Negation,
    Pred,
    ProductAnd,
    ProductOr,
    make_connective,
    make_mixer,
)

FEASIBLE = [(n, alpha) for n in range(1, 7) for alpha in (0.7, 0.8, 0.9, 0.95, 1.0) if alpha > n / (n + 1)]


def randomised(operator, seed, scale=5.0):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for each in operator.parameters():
            each.copy_(scale * (torch.rand(each.shape, generator=generator).double() - 0.3))
    return operator


@pytest.mark.parametrize(("arity", "alpha"), FEASIBLE)
@pytest.mark.parametrize("kind", [LNNAnd, LNNOr])
def test_constraints_hold_whatever_the_parameters_are(kind, arity, alpha):
    matrix, limits = polyhedron.constraints(arity, alpha)
    for seed in range(20):
        point = randomised(kind(arity, alpha=alpha), seed).point().detach().numpy()
        assert (matrix @ point <= limits + 1e-6).all()


def test_constraints_hold_during_training():
    operator = LNNAnd(3, alpha=0.8)
    matrix, limits = polyhedron.constraints(3, 0.8)
    optimizer = torch.optim.Adam(operator.parameters(), lr=0.3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(100):
        inputs = torch.rand(32, 3, generator=generator).double()
        optimizer.zero_grad()
        ((operator(inputs) - (inputs[:, 0] > 0.7).double()) ** 2).mean().backward()
        optimizer.step()
        operator.project_()
        assert (matrix @ operator.point().detach().numpy() <= limits + 1e-6).all()


@pytest.mark.parametrize(("arity", "alpha"), [*FEASIBLE, (9, 0.95)])
@pytest.mark.parametrize("kind", ["and", "or"])
def test_connectives_are_exactly_boolean_at_the_corners(kind, arity, alpha):
    wanted = min if kind == "and" else max
    for form in ("lnn", "product", "lukasiewicz"):
        operator = randomised(make_connective(kind, form, arity, alpha=alpha), arity)
        for corner, value in operator.truth_table():
            assert value == wanted(corner)


@pytest.mark.parametrize("kind", [LNNAnd, LNNOr])
def test_a_relaxed_connective_stays_boolean(kind):
    operator = randomised(kind(4, alpha=0.6, slack=2.0), 3, scale=0.1)
    assert operator.relaxed and operator.penalty() > 0
    for corner, value in operator.truth_table():
        assert value == (min(corner) if kind is LNNAnd else max(corner))
    assert not kind(2, alpha=0.9, slack=2.0).relaxed
    assert kind(2, alpha=0.9, slack=2.0).penalty() == 0


def test_the_penalty_is_what_the_constraints_lack():
    operator = randomised(LNNAnd(2, alpha=0.6, slack=3.0), 0)
    matrix, limits = polyhedron.constraints(2, 0.6)
    lack = np.maximum(0, matrix @ operator.point().detach().numpy() - limits).sum()
    assert operator.penalty().item() == pytest.approx(3 * lack)


def test_low_inputs_give_low_and_high_inputs_high_values():
    for seed, (arity, alpha) in enumerate(FEASIBLE):
        operator = randomised(LNNAnd(arity, alpha=alpha), seed).eval()
        high = torch.full((arity,), alpha, dtype=torch.float64)
        assert operator(high) >= alpha - 1e-9
        for place in range(arity):
            low = torch.ones(arity).double()
            low[place] = 1 - alpha
            assert operator(low) <= 1 - alpha + 1e-9


@pytest.mark.parametrize(("arity", "alpha"), [each for each in FEASIBLE if each[0] <= 5] + [(4, 0.81), (5, 0.84)])
def test_the_closed_form_is_what_double_description_finds(arity, alpha):
    matrix, limits = polyhedron.constraints(arity, alpha)
    rows = np.hstack([limits[:, None], -matrix])
    given = cdd.matrix_from_array(rows.tolist(), rep_type=cdd.RepType.INEQUALITY)
    found = np.array(cdd.copy_generators(cdd.polyhedron_from_matrix(given)).array)
    cone = polyhedron.conjunctive_cone(arity, alpha)
    vertices = found[found[:, 0] == 1, 1:]
    np.testing.assert_allclose(vertices, [cone.vertex], atol=1e-6)

    def unit(rays):
        scaled = rays / np.linalg.norm(rays, axis=1, keepdims=True)
        return scaled[np.lexsort(np.round(scaled, 6).T)]

    np.testing.assert_allclose(unit(found[found[:, 0] == 0, 1:]), unit(cone.rays), atol=1e-6)


def test_infeasible_alpha_is_refused_with_the_smallest_that_is_feasible():
    with pytest.raises(DataError, match=r"alpha must be > 0\.666667"):
        LNNAnd(2, alpha=0.65)
    with pytest.raises(DataError, match=r"alpha must be > 0\.75"):
        LNNOr(3, alpha=0.75)
    for alpha in (0.5, 1.2, float("nan")):
        with pytest.raises(DataError, match=r"\(0\.5, 1\]"):
            LNNAnd(2, alpha=alpha, slack=1.0)
    with pytest.raises(DataError, match="slack"):
        LNNAnd(2, slack=0.0)


@pytest.mark.parametrize(
    "operator",
    [
        LNNAnd(3),
        LNNOr(3),
        Pred(3),
        Attention(3),
        ProductAnd(3),
        ProductOr(3),
        LukasiewiczAnd(3),
        LukasiewiczOr(3),
        Negation(),
    ],
    ids=lambda each: type(each).__name__,
)
@pytest.mark.parametrize("training", [True, False])
def test_gradients(operator, training):
    torch.manual_seed(0)
    randomised(operator, 1, scale=0.5).train(training)
    inputs = torch.rand(6, operator.arity, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in operator.named_parameters()]
    given = [(each.detach().abs() + 0.05).requires_grad_() for each in operator.parameters()]

    def call(values, *parameters):
        return torch.func.functional_call(operator, dict(zip(names, parameters, strict=True)), (values,))

    assert torch.autograd.gradcheck(call, (inputs, *given))


def test_a_leaky_clamp_lets_gradients_pass_where_the_value_is_exact():
    operator = LNNAnd(2, alpha=0.8)
    inputs = torch.tensor([0.0, 0.0]).double().requires_grad_()
    operator(inputs).backward()
    assert (inputs.grad > 0).all()
    operator.eval()
    inputs.grad = None
    operator(inputs).backward()
    assert (inputs.grad == 0).all()


def test_projection_revives_what_was_pushed_below_zero():
    operator = Pred(2)
    with torch.no_grad():
        operator.raw.copy_(torch.tensor([-1.0, 0.5]))
    operator.project_()
    operator(torch.ones(2).double()).backward()
    assert operator.raw.tolist() == [0.0, 0.5] and (operator.raw.grad > 0).all()


@pytest.mark.parametrize(
    "make", [lambda: LNNAnd(3), lambda: LNNOr(2, alpha=0.8), lambda: Pred(4), lambda: Attention(3)]
)
def test_values_are_taken_up_again(make):
    first, second = randomised(make(), 5), make()
    second.load_values(first.values())
    assert second.values() == pytest.approx(first.values(), abs=1e-9)


def test_values_that_break_the_constraints_are_refused():
    with pytest.raises(DataError, match="cannot have the parameters"):
        LNNAnd(2, alpha=0.8).load_values([1.0, 0.2, 0.2])
    with pytest.raises(DataError, match="3 parameters"):
        LNNAnd(2).load_values([1.0])
    with pytest.raises(DataError, match="β = 1"):
        Pred(2).load_values([0.5, 1.0, 1.0])


def test_an_operator_prints_weights_truth_table_and_sparsity():
    operator = Pred(2)
    operator.load_values([1.0, 1.2, 0.001])
    text = operator.describe(["ngbr", "loc"])
    assert "ngbr 1.200" in text and "sparsity 50 %" in text and "1    0   | 1.000" in text
    assert len(Pred(6).truth_table()) == 14
    assert "LNNAnd(2, [" in repr(LNNAnd(2))
    with pytest.raises(DataError, match="2 inputs"):
        operator.describe(["one"])


def test_unknown_kinds_are_refused():
    with pytest.raises(DataError, match="'lnn', 'product' or 'lukasiewicz'"):
        make_connective("and", "min", 2, alpha=0.9)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="'pred' or 'attention'"):
        make_mixer("mean", 2)  # type: ignore[arg-type]
    with pytest.raises(DataError, match="at least one"):
        Pred(0)


def test_the_vertices_of_the_paper():
    for alpha, wanted in ((0.7, (3.1, 4, 4)), (0.8, (1.4, 1.5, 1.5)), (0.95, (1.0558823, 1.0588235, 1.0588235))):
        np.testing.assert_allclose(polyhedron.conjunctive_cone(2, alpha).vertex, wanted, atol=1e-6)
    assert list(itertools.islice(polyhedron.conjunctive_cone(3, 0.95).vertex, 1, 2)) == [pytest.approx(1.125)]
