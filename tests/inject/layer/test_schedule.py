"""Iterations that settle: hard formulas never make labels worse, and what did not settle is said."""

from __future__ import annotations

import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inject.layer.plain_mean_field import groundings, holds
from inject.layer.test_layer import DOMAINS, Problem, formulas

import rulewright as rw
from rulewright.errors import RulewrightWarning
from rulewright.inject import LogicLayer
from rulewright.logic import RuleSet, WeightedFormula


def labels_of(problem: Problem, output: dict[str, torch.Tensor]) -> dict[object, int]:
    """The most probable class of each atom, evidence included."""
    labels: dict[object, int] = {}
    for name, declaration in problem.predicates.items():
        chosen = output[name] > 0 if declaration.classes is None else output[name].argmax(-1)
        of_name = [atom for atom in problem.names if atom[0] == name]
        labels |= dict(zip(of_name, map(int, chosen.reshape(-1).tolist()), strict=True))
    return labels | problem.evidence


def count_broken(problem: Problem, output: dict[str, torch.Tensor]) -> int:
    world = labels_of(problem, output)
    return sum(
        not holds(formula, binding, world, problem.predicates)
        for _, formula in problem.formulas
        for binding in groundings(formula, problem.predicates, DOMAINS)
    )


@settings(max_examples=60, deadline=None)
@given(
    several=st.lists(st.tuples(st.just(20.0), formulas(("p", "r", "s", "label"), 3)), min_size=1, max_size=3),
    seed=st.integers(0, 10**6),
    iterations=st.sampled_from([1, 2, 5]),
    damping=st.sampled_from([None, None, 0.0, 0.6]),
)
def test_hard_formulas_alone_never_break_more_groundings(several, seed, iterations, damping):
    problem = Problem(several, seed, observe=0.1)
    rules = RuleSet(
        [WeightedFormula(formula, "hard") for _, formula in several], predicates=problem.predicates.values()
    )
    layer = LogicLayer(rules, problem.domains, iterations, damping=damping)
    logits, evidence = problem.tensors()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RulewrightWarning)
            output = layer(logits, evidence)
    except rw.DataError as error:
        assert "contradicts a hard formula" in str(error)
        return
    before, after = count_broken(problem, logits), count_broken(problem, output)
    assert after <= before
    assert layer.convergence.broken == (before, after)


def tag_problem(rows: int = 100, length: int = 12) -> tuple[RuleSet, torch.Tensor, dict[str, torch.Tensor]]:
    types = ("per", "org", "loc")
    lines = ["predicate label(token) in {o, b_per, i_per, b_org, i_org, b_loc, i_loc}. closed next. closed first."]
    for name in types:
        lines.append(f"hard next(T, U) & label(U) in {{i_{name}}} => label(T) in {{b_{name}, i_{name}}}.")
        lines.append(f"hard first(T) => !(label(T) in {{i_{name}}}).")
    following = torch.zeros(length, length, dtype=torch.bool)
    following[range(length - 1), range(1, length)] = True
    first = torch.arange(length) == 0
    logits = torch.randn(rows, length, 7, generator=torch.Generator().manual_seed(0)) * 2
    return rw.parse_rules("\n".join(lines)), logits, {"next": following, "first": first}


def test_tags_of_chains_break_nothing_by_default_and_each_row_is_on_its_own():
    rules, logits, evidence = tag_problem()
    layer = LogicLayer(rules)
    output = layer({"label": logits}, evidence)["label"]
    before, after = layer.convergence.broken
    assert before > 100
    assert after <= before / 100
    plain = LogicLayer(rules, damping=0.0)
    with pytest.warns(RulewrightWarning, match=r"try more iterations"):
        plain({"label": logits}, evidence)
    assert plain.convergence.broken[1] > after
    alone = LogicLayer(rules)({"label": logits[7]}, evidence)["label"]
    torch.testing.assert_close(output[7], alone)


def test_exclusions_that_swing_without_a_schedule():
    names = [f"c{n}" for n in range(6)]
    lines = [f"hard !({one}(X) & {other}(X))." for n, one in enumerate(names) for other in names[:n]]
    rules = rw.parse_rules("\n".join([*lines, f"hard {' | '.join(f'{name}(X)' for name in names)}."]))
    given_logits = torch.randn(100, 6, 1, generator=torch.Generator().manual_seed(1)) * 2
    logits = {name: given_logits[:, n] for n, name in enumerate(names)}
    layer = LogicLayer(rules, iterations=10)
    layer(logits)
    assert layer.convergence.broken[0] > 80
    assert layer.convergence.broken[1] == 0


def test_soft_formulas_keep_the_plain_update():
    rules = rw.parse_rules("1.5 r(A, B) & r(B, C) => r(A, C). 0.5 p(A) => r(A, B).")
    logits = {"r": torch.randn(5, 5), "p": torch.randn(5)}
    for name, tensor in LogicLayer(rules)(logits).items():
        torch.testing.assert_close(tensor, LogicLayer(rules, damping=0.0)(logits)[name])


def test_what_swings_is_said_once_with_the_figure():
    layer = LogicLayer(rw.parse_rules("9.0 !(p(X) & q(X))."), damping=0.0)
    logits = {"p": torch.tensor([2.0]), "q": torch.tensor([2.1])}
    with pytest.warns(RulewrightWarning, match=r"marginals still moved by 0\.\d\d in the last of 5 iterations"):
        layer(logits)
    assert not layer.convergence.converged
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer(logits)
        calm = LogicLayer(rw.parse_rules("0.5 p(X) => q(X)."))
        calm(logits)
    assert calm.convergence.converged
    assert str(calm.convergence).startswith("settled after 5 iterations, last change")


@pytest.mark.parametrize("damping", [None, 0.0, 0.5])
@pytest.mark.parametrize("weight", ["hard", "1.5"])
def test_explanations_add_up_with_damping_and_hard_formulas(damping, weight):
    rules = rw.parse_rules(
        f"predicate r(t, t). predicate l(t) in {{x, y, z}}. {weight} r(A, B) & r(B, C) => r(A, C). "
        f"0.7 l(A) in {{x}} & r(A, B) => l(B) in {{x, y}}. {weight} !(r(A, B) & l(B) in {{z}})."
    )
    layer = LogicLayer(rules, damping=damping)
    layer.has_warned = True
    torch.manual_seed(2)
    logits = {"r": torch.randn(3, 4, 4, dtype=torch.float64), "l": torch.randn(3, 4, 3, dtype=torch.float64)}
    output = layer(logits)
    for row, atom, entry in ((0, "r(0, 1)", (0, 0, 1)), (1, "r(3, 2)", (1, 3, 2)), (2, "r(1, 1)", (2, 1, 1))):
        explanation = layer.explain(atom, row=row, top=50)
        assert explanation.now == pytest.approx(output["r"][entry].item())
        assert sum(part.moved for part in explanation.formulas) == pytest.approx(explanation.now - explanation.given)
        for part in explanation.formulas:
            assert sum(grounding.moved for grounding in part.groundings) == pytest.approx(part.moved, abs=1e-9)
    explanation = layer.explain("l(2) in {z}", row=1, top=50)
    assert explanation.now == pytest.approx(output["l"][1, 2, 2].item())
    assert sum(part.moved for part in explanation.formulas) == pytest.approx(explanation.now - explanation.given)


def test_gradients_flow_through_the_schedule():
    rules = rw.parse_rules("hard r(A, B) & r(B, C) => r(A, C). 0.5 p(A) => r(A, B).")
    layer = LogicLayer(rules, iterations=3, hard_weight=3.0)
    layer.has_warned = True
    torch.manual_seed(0)
    logits = [torch.randn(2, 3, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64)]

    def run(r: torch.Tensor, p: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(layer({"r": r, "p": p}).values())

    assert torch.autograd.gradcheck(run, [tensor.requires_grad_() for tensor in logits])


@pytest.mark.slow
def test_the_schedule_compiles():
    rules, logits, evidence = tag_problem(rows=4, length=5)
    layer = LogicLayer(rules)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)({"label": logits}, evidence)["label"]
    torch.testing.assert_close(compiled, layer({"label": logits}, evidence)["label"])
    relations = LogicLayer("hard r(A, B) & r(B, C) => r(A, C). 0.5 p(A) => r(A, B).")
    relations.has_warned = True
    dynamic = torch.compile(relations, backend="eager", dynamic=True, fullgraph=True)
    for rows, size in ((3, 4), (5, 6)):
        given_logits = {"r": torch.randn(rows, size, size), "p": torch.randn(rows, size)}
        mask = {"entity": torch.rand(rows, size) > 0.2}
        found = dynamic(given_logits, None, mask)
        for name, expected in relations(given_logits, None, mask).items():
            torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_the_schedule_compiles_to_machine_code_with_its_gradients():
    layer = LogicLayer("hard !(p(X) & q(X)). hard q(X) => p(X). 0.5 q(X).", iterations=3)
    layer.has_warned = True
    gradients = []
    for run in (layer, torch.compile(layer)):
        leaves = [torch.linspace(-2, 2, 6).requires_grad_(), torch.linspace(1, -1, 6).requires_grad_()]
        output = run({"p": leaves[0], "q": leaves[1]})
        sum(logits.tanh().sum() for logits in output.values()).backward()
        gradients.append([*(leaf.grad for leaf in leaves), *(logits.detach() for logits in output.values())])
    for eager, compiled in zip(*gradients, strict=True):
        torch.testing.assert_close(compiled, eager, rtol=1e-4, atol=1e-4)


def test_half_precision_counts_far():
    layer = LogicLayer(rw.parse_rules("hard same(A, B) & same(B, C) => same(A, C)."), iterations=2)
    layer.has_warned = True
    logits = torch.randn(60, 60).bfloat16()
    assert layer({"same": logits})["same"].dtype == torch.bfloat16
    labels = (logits > 0).double()
    apart = 1 - torch.eye(60, dtype=torch.float64)
    expected = ((labels * apart) @ (labels * apart) * (1 - labels)).sum().item()
    assert layer.convergence.broken[0] == pytest.approx(expected, rel=1e-3)
