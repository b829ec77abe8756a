"""Hinges that teach one side, or count for what rules weigh, against their definitions."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inject.atoms.plain_hinges import plain_sides
from inject.atoms.plain_pairs import RELATIONS, horn_rules
from inject.atoms.test_loss import MIXED, random_logits

from rulewright.errors import DataError
from rulewright.inject import ConsistencyLoss
from rulewright.logic import parse_rules

torch.set_num_threads(1)

SIDES = ("both", "head", "body", "likelier")
FORMS = ("hinge", "published")


def run(loss, logits, *args):
    """Return value and gradient."""
    leaf = logits.clone().requires_grad_()
    value = loss(leaf, *args)
    value.sum().backward()
    return value.detach(), leaf.grad


def weigh(rules, seed):
    random = np.random.default_rng(seed)
    return rules.with_weights([float(random.choice([0.0, 0.5, 1.0, 2.5])) for _ in rules])


@given(
    rules=horn_rules(),
    side=st.sampled_from(SIDES),
    form=st.sampled_from(FORMS),
    weighted=st.booleans(),
    size=st.integers(0, 5),
    seed=st.integers(0, 99),
    chunk=st.sampled_from([None, 30]),
)
@settings(max_examples=60, deadline=None)
def test_sides_and_weights_equal_their_definition(rules, side, form, weighted, size, seed, chunk):
    rules = weigh(rules, seed)
    logits = random_logits(seed, 2, size, size, 3)
    options = {"side": side, "weights": "annotated" if weighted else "one", "form": form, "chunk": chunk}
    loss = ConsistencyLoss(rules, relations=RELATIONS, reduction="none", **options)
    values, gradient = run(loss, logits)
    for document, value, slope in zip(logits.numpy(), values, gradient.numpy(), strict=True):
        expected, taught = plain_sides(document, rules, RELATIONS, side=side, form=form, weighted=weighted)
        assert value.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
        np.testing.assert_allclose(slope, taught, rtol=1e-9, atol=1e-9)


@given(rules=horn_rules(), side=st.sampled_from(SIDES), weighted=st.booleans(), seed=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_atoms_by_predicate_are_taught_the_same(rules, side, weighted, seed):
    rules = weigh(rules, seed)
    logits = random_logits(seed, 4, 4, 3)
    options = {"side": side, "weights": "annotated" if weighted else "one", "distinct": True}
    leaves = {name: logits[..., index].clone().requires_grad_() for index, name in enumerate(RELATIONS)}
    loss = ConsistencyLoss(rules, **options)
    value = loss({name: leaf for name, leaf in leaves.items() if name in loss.space.used})
    value.backward()
    expected, taught = plain_sides(logits.numpy(), rules, RELATIONS, side=side, weighted=weighted)
    assert value.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
    found = [torch.zeros(4, 4).double() if leaf.grad is None else leaf.grad for leaf in leaves.values()]
    np.testing.assert_allclose(torch.stack(found, -1).numpy(), taught, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("side", SIDES)
def test_the_value_is_that_of_both_sides(side, form):
    logits = random_logits(3, 3, 5, 5, 3).float()
    mask = torch.tensor([[True] * 5, [True, False, True, True, False], [False] * 5])
    logits[~(mask[:, :, None] & mask[:, None])] = math.nan
    whole, _ = run(ConsistencyLoss(MIXED, relations=RELATIONS, form=form, reduction="none"), logits, mask)
    loss = ConsistencyLoss(MIXED, relations=RELATIONS, form=form, reduction="none", side=side)
    value, gradient = run(loss, logits, mask)
    assert torch.equal(value, whole)
    assert gradient.isfinite().all() and not gradient[~(mask[:, :, None] & mask[:, None])].any()
    assert gradient.any()


@pytest.mark.parametrize("form", FORMS)
def test_head_raises_heads_only_and_body_lowers_bodies_only(form):
    rules = parse_rules("0.9 :: c(X, Y) :- a(X, Z), b(Z, Y). 0.9 :: c(X, Y) :- b(Y, X).")
    logits = random_logits(5, 2, 5, 5, 3)
    taught = {}
    for side in SIDES:
        _, taught[side] = run(ConsistencyLoss(rules, relations=RELATIONS, form=form, side=side), logits)
    assert not taught["head"][..., :2].any() and (taught["head"] <= 0).all() and taught["head"].any()
    assert not taught["body"][..., 2].any() and (taught["body"] >= 0).all() and taught["body"].any()
    torch.testing.assert_close(taught["head"] + taught["body"], taught["both"])
    assert (taught["likelier"][..., :2] >= 0).all() and (taught["likelier"][..., 2] <= 0).all()


@pytest.mark.parametrize(("body", "head", "raised"), [(4.0, -1.0, True), (1.0, -4.0, False), (0.0, 0.0, True)])
def test_likelier_gives_way_to_what_the_network_is_surer_of(body, head, raised):
    logits = {"p": torch.tensor([body]), "q": torch.tensor([head])}
    leaves = {name: tensor.requires_grad_() for name, tensor in logits.items()}
    ConsistencyLoss("hard p(X) => q(X).", side="likelier", eta=0.0)(leaves).backward()
    assert (leaves["q"].grad.item() < 0) == (raised and body != 0)  # where they tie at a half, no hinge is open
    assert (leaves["p"].grad.item() > 0) == (not raised)


def test_the_conclusion_of_a_denial_is_that_an_atom_does_not_hold():
    rules = "hard !(p(X) & q(X))."
    p, q = torch.tensor([2.0], requires_grad=True), torch.tensor([0.5], requires_grad=True)
    found = {}
    for side in SIDES:
        loss = ConsistencyLoss(rules, side=side, eta=0.0)({"p": p, "q": q})
        found[side] = torch.stack(torch.autograd.grad(loss, [p, q]))
    # log P(p) − log P(not q) and log P(q) − log P(not p), their mean: each hinge lowers its conclusion by P(atom)
    shares = torch.sigmoid(torch.tensor([[2.0], [0.5]]))
    torch.testing.assert_close(found["head"], shares / 2)
    torch.testing.assert_close(found["body"], (1 - shares) / 2)
    torch.testing.assert_close(found["both"], found["head"] + found["body"])
    # P(p) > P(q): of both hinges q gives way, as the conclusion of one and as the premise of the other
    torch.testing.assert_close(found["likelier"], torch.tensor([[0.0], [0.5]]))


@pytest.mark.parametrize("side", SIDES[1:])
def test_gradients_can_be_differentiated(side):
    logits = random_logits(1, 1, 4, 4, 3).requires_grad_()
    for form in FORMS:
        loss = ConsistencyLoss(MIXED, relations=RELATIONS, form=form, side=side)
        (first,) = torch.autograd.grad(loss(logits), logits, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), logits)
        assert second.isfinite().all() and second.any()


@pytest.mark.parametrize("side", SIDES[1:])
def test_half_precision_is_computed_in_single(side):
    logits = (random_logits(6, 2, 8, 8, 3) * 4).bfloat16()
    loss = ConsistencyLoss(MIXED, relations=RELATIONS, side=side, weights="one")
    value, gradient = run(loss, logits)
    expected, single = run(loss, logits.float())
    assert value.dtype == torch.float32 and value == expected
    torch.testing.assert_close(gradient, single.bfloat16())


def test_more_hinges_than_single_precision_counts():
    from rulewright.inject.atoms import pair_hinges

    rules = parse_rules("0.9 :: b(X, Y) :- b(X, Z), a(Z, W), c(W, Y).")
    logits = random_logits(2, 1, 6, 6, 3).float()
    loss = ConsistencyLoss(rules, relations=RELATIONS, side="likelier")
    _, expected = run(loss, logits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pair_hinges, "MOST_COUNTED", 1)
        _, found = run(loss, logits)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("form", ["hinge", "published", "violation", "log"])
def test_weights_multiply_what_rules_count_for(form):
    rules = parse_rules("0.9 :: c(X, Y) :- a(X, Z), b(Z, Y). 0.8 :: b(X, Y) :- a(Y, X).")
    logits = random_logits(7, 2, 4, 4, 3)

    def count(rules, weights="one"):
        return ConsistencyLoss(rules, relations=RELATIONS, form=form, weights=weights)(logits)

    first, second = (count([rule]) / (rule.confidence if form in ("violation", "log") else 1) for rule in rules)
    found = count(rules.with_weights([2.0, 0.5]), "annotated")
    torch.testing.assert_close(found, 2 * first + second / 2)
    torch.testing.assert_close(count(rules.with_weights([2.0, 0.0]), "annotated"), 2 * first)
    assert count(rules.with_weights([2.0, 0.5])) == count(rules)
    twice = [*rules.with_weights([2.0, 0.5]), *rules.with_weights([3.0, 0.5])]
    if form in FORMS:  # a rule that is given twice with one weight is one rule
        torch.testing.assert_close(count(twice, "annotated"), 5 * first + second / 2)


def test_what_has_no_meaning_is_refused():
    rules = parse_rules("a(X, Y) :- b(X, Y).")
    with pytest.raises(DataError, match=r"side='head' is for hinges, form='hinge' or 'published'"):
        ConsistencyLoss(rules, form="log", side="head")
    for form in ("hinge", "log"):
        with pytest.raises(DataError, match=r"needs the weight of every rule, @\{weight: …\}, and there is none in: a"):
            ConsistencyLoss(rules, weights="annotated", form=form)
        with pytest.raises(DataError, match="takes no negative weights"):
            ConsistencyLoss(rules.with_weights(-1.0), weights="annotated", form=form)
    with pytest.raises(DataError, match="side must be 'both', 'head', 'body' or 'likelier', got 'left'"):
        ConsistencyLoss(rules, side="left")
    hard = ConsistencyLoss("hard a(X) => b(X).", weights="annotated")
    assert hard({"a": torch.ones(2), "b": -torch.ones(2)}) > 0
