from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from inject.atoms.plain_pairs import BODIES, RELATIONS, horn_rules, plain_loss

from rulewright.errors import DataError, UnknownNameError
from rulewright.inject import ConsistencyLoss
from rulewright.logic import parse_rules

torch.set_num_threads(1)

FORMS = ("hinge", "published")
MIXED = parse_rules("""
    0.9 :: a(X, Y) :- b(Y, X).
    0.8 :: c(X, Y) :- a(X, Z), b(Z, Y).
    0.7 :: b(X, Y) :- a(X, Z), b(Z, Y).
    0.7 :: b(X, Y) :- b(X, Z), a(Z, Y), c(X, Y).
    hard a(X, Z) & a(Z, W) & c(W, Y) => a(X, Y).
""")


def random_logits(seed, *shape, scale=2.0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * scale


@given(rules=horn_rules(), form=st.sampled_from(FORMS), size=st.integers(0, 5), seed=st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_equals_the_definition(rules, form, size, seed):
    logits = random_logits(seed, 2, size, size, 3)
    loss = ConsistencyLoss(rules, relations=RELATIONS, form=form, reduction="none", eta=0.1)(logits)
    expected = [plain_loss(document.numpy(), rules, RELATIONS, form=form, eta=0.1) for document in logits]
    np.testing.assert_allclose(loss.numpy(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("body", BODIES)
def test_every_body_equals_the_definition(body, form):
    rules = parse_rules(f"0.9 :: a(X, Y) :- {body.format(*'abcb')}.")
    logits = random_logits(3, 1, 5, 5, 3)
    loss = ConsistencyLoss(rules, relations=RELATIONS, form=form)(logits)
    assert loss.item() == pytest.approx(plain_loss(logits[0].numpy(), rules, RELATIONS, form=form), rel=1e-9)


@pytest.mark.slow
@given(
    rules=horn_rules(),
    form=st.sampled_from(FORMS),
    mask=st.lists(st.lists(st.booleans(), min_size=4, max_size=4), min_size=1, max_size=4),
    chunk=st.sampled_from([1, 7, 30, 10**6]),
)
@settings(max_examples=60, deadline=None)
def test_masks_and_chunks_change_nothing_else(rules, form, mask, chunk):
    mask = torch.tensor(mask)
    logits = random_logits(5, len(mask), 4, 4, 3)
    logits[~(mask[:, :, None] & mask[:, None, :])] = math.nan
    logits.requires_grad_()
    values = ConsistencyLoss(rules, relations=RELATIONS, form=form, reduction="none", chunk=chunk)(logits, mask)
    values.sum().backward()
    for document, real, value, slope in zip(logits.detach(), mask, values, logits.grad, strict=True):
        alone = document[real][:, real].clone().requires_grad_()
        expected = plain_loss(alone.detach().numpy(), rules, RELATIONS, form=form)
        assert value.item() == pytest.approx(expected, rel=1e-9, abs=1e-9)
        ConsistencyLoss(rules, relations=RELATIONS, form=form)(alone[None]).backward()
        torch.testing.assert_close(slope[real][:, real], alone.grad)
        assert slope.isfinite().all()
        assert slope.abs().sum().item() == pytest.approx(alone.grad.abs().sum().item())


@pytest.mark.slow
@pytest.mark.parametrize("chunk", [20, None])
@pytest.mark.parametrize("form", FORMS)
def test_gradient_is_that_of_finite_differences(form, chunk):
    loss = ConsistencyLoss(MIXED, relations=RELATIONS, form=form, reduction="none", chunk=chunk)
    logits = random_logits(1, 2, 4, 4, 3).requires_grad_()
    mask = torch.tensor([[True] * 4, [True, False, True, True]])
    assert torch.autograd.gradcheck(lambda x: loss(x, mask), (logits,))


@pytest.mark.parametrize("form", FORMS)
def test_gradient_equals_autograd_of_the_broadcast(form):
    rules = parse_rules("0.8 :: c(X, Y) :- a(X, Z), b(Y, Z). 0.6 :: a(X, Y) :- a(X, Z), b(Y, Z).")
    logits = random_logits(2, 1, 9, 9, 3).requires_grad_()
    log_p = torch.nn.functional.logsigmoid(logits[0])
    first, second = log_p[:, None, :, 0], log_p[None, :, :, 1]
    different = ~torch.eye(9, dtype=torch.bool)
    valid = different[:, :, None] & different[:, None] & different[None]
    total = torch.zeros((), dtype=torch.float64)
    for head, confidence in ((2, 0.8), (0, 0.6)):
        hinge = torch.relu(math.log(confidence) - 0.1 + first + second - log_p[:, :, None, head]) * valid
        total = total + (hinge.sum() if form == "hinge" else hinge.amax(2).sum() / 72)
    (expected,) = torch.autograd.grad(total, logits)
    loss = ConsistencyLoss(rules, relations=RELATIONS, form=form)(logits)
    (found,) = torch.autograd.grad(loss, logits)
    torch.testing.assert_close(loss, total)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("relations", [RELATIONS, RELATIONS[:1]])
def test_logits_are_left_as_they_are(relations):
    logits = random_logits(4, 2, 3, 3, len(relations))
    before = logits.clone()
    ConsistencyLoss(parse_rules("a(X, Y) :- a(Y, X)."), relations=relations)(logits)
    assert torch.equal(logits, before)


def test_reductions():
    logits = random_logits(4, 3, 4, 4, 3)
    values = ConsistencyLoss(MIXED, relations=RELATIONS, reduction="none")(logits)
    assert values.shape == (3,)
    torch.testing.assert_close(ConsistencyLoss(MIXED, relations=RELATIONS, reduction="sum")(logits), values.sum())
    torch.testing.assert_close(ConsistencyLoss(MIXED, relations=RELATIONS)(logits), values.mean())


@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (2, 1)])
def test_nothing_to_ground_gives_zero(shape):
    batch, size = shape
    logits = torch.zeros(batch, size, size, 3, requires_grad=True)
    loss = ConsistencyLoss(MIXED, relations=RELATIONS)(logits)
    loss.backward()
    assert loss.item() == 0
    assert logits.grad.shape == logits.shape


def test_no_rules_gives_zero():
    logits = torch.zeros(2, 4, 4, 3, requires_grad=True)
    loss = ConsistencyLoss([], relations=RELATIONS)(logits)
    loss.backward()
    assert loss.item() == 0 == logits.grad.abs().sum()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_single(dtype):
    logits = (random_logits(6, 2, 12, 12, 3) * 8).to(dtype)
    single, half = logits.float().requires_grad_(), logits.clone().requires_grad_()
    loss = ConsistencyLoss(MIXED, relations=RELATIONS)
    value, expected = loss(half), loss(single)
    assert value.dtype == torch.float32
    assert value.item() == expected.item()
    value.backward()
    expected.backward()
    assert half.grad.dtype == dtype
    torch.testing.assert_close(half.grad, single.grad.to(dtype))


def test_autocast_changes_nothing():
    logits = random_logits(6, 2, 6, 6, 3).float()
    loss = ConsistencyLoss(MIXED, relations=RELATIONS)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert loss(logits).item() == loss(logits.clone()).item()
    assert loss(logits).dtype == torch.float32


def test_extreme_logits_stay_finite():
    logits = torch.full((1, 4, 4, 3), -1e4)
    logits[0, 0, 1] = 1e4
    logits.requires_grad_()
    loss = ConsistencyLoss(MIXED, relations=RELATIONS)(logits)
    loss.backward()
    assert loss.isfinite() and logits.grad.isfinite().all()


def test_no_grad_gives_the_same_value():
    logits = random_logits(7, 1, 6, 6, 3).requires_grad_()
    loss = ConsistencyLoss(MIXED, relations=RELATIONS)
    with torch.no_grad():
        without = loss(logits)
    assert not without.requires_grad
    assert without.item() == loss(logits).item()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_logits_must_be_finite_off_the_diagonal(value):
    logits = torch.zeros(1, 3, 3, 3)
    logits[0, range(3), range(3)] = value
    loss = ConsistencyLoss(MIXED, relations=RELATIONS)
    assert loss(logits).isfinite()
    logits[0, 1, 2, 1] = value
    with pytest.raises(DataError, match=f"must be finite, got {value} for relation 'b' between entities 1 and 2"):
        loss(logits)
    ConsistencyLoss(MIXED, relations=RELATIONS, check_finite=False)(logits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "max"}, "form must be 'hinge', 'published', 'violation' or 'log', got 'max'"),
        ({"reduction": "max"}, "reduction must be 'mean', 'sum' or 'none', got 'max'"),
        ({"chunk": 0}, "chunk must be >= 1 or None, got 0"),
        ({"eta": -1.0}, "eta must be >= 0, got -1.0"),
        ({"eta": {1: 0.05}}, r"eta has no value for rules of length 2, only for \[1\]"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(DataError, match=message):
        ConsistencyLoss(MIXED, relations=RELATIONS, **options)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((3, 3), r"logits must have shape \[B, n, n, 3\], got \[3, 3\]"),
        ((1, 3, 4, 3), r"got \[1, 3, 4, 3\]"),
        ((1, 3, 3, 4), r"got \[1, 3, 3, 4\]"),
    ],
)
def test_wrong_shapes(shape, message):
    with pytest.raises(DataError, match=message):
        ConsistencyLoss(MIXED, relations=RELATIONS)(torch.zeros(shape))


def test_wrong_mask_and_type():
    loss = ConsistencyLoss(MIXED, relations=RELATIONS)
    with pytest.raises(DataError, match=r"mask must have shape \[1, 3\], got \[1, 4\]"):
        loss(torch.zeros(1, 3, 3, 3), torch.ones(1, 4))
    with pytest.raises(DataError, match=r"must be floating point, got torch\.int64"):
        loss(torch.zeros(1, 3, 3, 3, dtype=torch.int64))


def test_slack_by_length():
    rules = parse_rules("a(X, Y) :- b(X, Y). c(X, Y) :- a(X, Z), b(Z, Y).")
    logits = random_logits(8, 1, 4, 4, 3)
    same = ConsistencyLoss(rules, relations=RELATIONS, eta={1: 0.05, 2: 0.1})(logits)
    assert same.item() == ConsistencyLoss(rules, relations=RELATIONS, eta=0.05)(logits).item()


def test_a_rule_of_confidence_zero_asks_for_nothing():
    loss = ConsistencyLoss(parse_rules("0 :: a(X, Y) :- b(X, Y)."), relations=RELATIONS)
    assert loss(random_logits(9, 1, 4, 4, 3)).item() == 0


def test_rules_must_fit_the_relations():
    with pytest.raises(UnknownNameError, match=r"unknown relation 'aa'; did you mean 'a'\? — in: a"):
        ConsistencyLoss(parse_rules("a(X, Y) :- aa(X, Y)."), relations=RELATIONS)


def test_is_a_module_without_parameters_that_saves_and_loads():
    loss = ConsistencyLoss(MIXED, relations=RELATIONS)
    assert not list(loss.parameters()) and not loss.state_dict()
    assert "5 rules, 3 relations, form='hinge'" in repr(loss)
    file = io.BytesIO()
    torch.save(loss, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    logits = random_logits(1, 1, 4, 4, 3)
    assert again(logits).item() == loss(logits).item()


def test_no_block_has_more_groundings_than_a_chunk():
    from rulewright.inject.atoms.pair_hinges import _HingeSums

    sums = _HingeSums(torch.zeros(1, 2, 12, 12), largest=False, mean=False, chunk=500)
    sizes = [math.prod(part.stop - part.start for part in block) for block in sums._split_blocks(4, 2)]
    assert max(sizes) <= 500
    assert sum(sizes) == 12**4
