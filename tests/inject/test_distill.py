"""Distillation against its formula, atom by atom."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rulewright as rw
from rulewright.errors import DataError, RulewrightError
from rulewright.inject import LogicLayer, RuleDecoder, distillation_loss

torch.set_num_threads(1)


def draw(seed, *shape):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)) * 2


def softmax(values):
    powers = [math.exp(value - max(values)) for value in values]
    return [power / sum(powers) for power in powers]


def plain_distance(x, said, form):
    """Return the distance of one atom: x a number or a list for classes; said alike, or a label."""
    if form == "squares":
        return (x - said) ** 2 if isinstance(x, float) else sum((a - b) ** 2 for a, b in zip(x, said, strict=True)) / 3
    if isinstance(x, float):
        q = float(said) if isinstance(said, bool) else 1 / (1 + math.exp(-said))
        return -q * math.log(1 / (1 + math.exp(-x))) - (1 - q) * math.log(1 / (1 + math.exp(x)))
    q = [float(k == said) for k in range(3)] if isinstance(said, int) else softmax(said)
    return -sum(weight * math.log(p) for weight, p in zip(q, softmax(x), strict=True))


def plain_label(said):
    if isinstance(said, bool | int):
        return said
    return said > 0 if isinstance(said, float) else said.index(max(said))


def plain_loss(atoms, form, unchanged):
    """Return the weighted mean over (x, said, before) of the atoms that count; None where none does."""
    weights = [1.0 if plain_label(said) != plain_label(before) else unchanged for _, said, before in atoms]
    distances = [plain_distance(x, said, form) for x, said, _ in atoms]
    total = sum(weights)
    return sum(w * d for w, d in zip(weights, distances, strict=True)) / total if total else None


CASES = {
    "seed": st.integers(0, 10**6),
    "kind": st.sampled_from(["labels", "log-odds", "squares"]),
    "unchanged": st.sampled_from([0.0, 0.3, 1.0]),
    "earlier": st.booleans(),
}


@settings(max_examples=40, deadline=None)
@given(**CASES, mask=st.lists(st.lists(st.booleans(), min_size=3, max_size=3), min_size=2, max_size=2))
def test_stacked_logits_equal_the_formula(seed, kind, unchanged, earlier, mask):
    form = "squares" if kind == "squares" else "cross_entropy"
    logits, teacher, before = (draw(seed + part, 2, 3, 3, 2) for part in range(3))
    said = teacher > 0 if kind == "labels" else teacher
    mask = torch.tensor(mask)
    atoms = [
        (logits[place].item(), said[place].item(), (before if earlier else logits)[place].item())
        for place in np.ndindex(2, 3, 3, 2)
        if place[1] != place[2] and mask[place[0], place[1]] and mask[place[0], place[2]]
    ]
    outside = ~(mask[:, :, None] & mask[:, None] & ~torch.eye(3, dtype=torch.bool))
    logits[outside] = math.nan
    if kind != "labels":
        said[outside] = math.inf
    options = {"form": form, "unchanged": unchanged, "before": before if earlier else None}
    leaf = logits.requires_grad_()
    loss = distillation_loss(leaf, said, mask, **options)
    loss.backward()
    assert loss.item() == pytest.approx(plain_loss(atoms, form, unchanged) or 0.0, rel=1e-9)
    assert leaf.grad.isfinite().all() and not leaf.grad[outside].any()


@settings(max_examples=40, deadline=None)
@given(**CASES)
def test_predicates_and_classes_equal_the_formula(seed, kind, unchanged, earlier):
    form = "squares" if kind == "squares" else "cross_entropy"
    logits = {"p": draw(seed, 4), "label": draw(seed + 1, 4, 3), "q": draw(seed + 2, 4)}
    teacher = {"p": draw(seed + 3, 4), "label": draw(seed + 4, 4, 3), "q": draw(seed + 5, 4)}
    before = {"p": draw(seed + 6, 4), "label": draw(seed + 7, 4, 3), "q": draw(seed + 8, 4)} if earlier else logits
    mask = {name: draw(seed + 9 + at, 4) > -1 for at, name in enumerate(("p", "label"))} | {"q": torch.tensor(False)}
    said = dict(teacher)
    if kind == "labels":
        said = {"p": teacher["p"] > 0, "label": teacher["label"].argmax(-1), "q": teacher["q"] > 0}
    parts = []
    for name in ("p", "label"):
        atoms = [tuple(part[name][at].tolist() for part in (logits, said, before)) for at in range(4) if mask[name][at]]
        parts.append(plain_loss(atoms, form, unchanged))
    wanted = [part for part in parts if part is not None]
    options = {"form": form, "unchanged": unchanged, "before": before if earlier else None, "classes": ["label"]}
    loss = distillation_loss(logits, said, mask, **options)
    assert loss.item() == pytest.approx(sum(wanted) / max(1, len(wanted)), rel=1e-9)


@pytest.mark.parametrize("form", ["cross_entropy", "squares"])
def test_gradients_are_those_of_finite_differences_and_spare_the_teacher(form):
    logits, teacher = draw(0, 1, 3, 3, 2).requires_grad_(), draw(1, 1, 3, 3, 2).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: distillation_loss(x, teacher.detach(), form=form, unchanged=0.5), logits)
    distillation_loss(logits, teacher, form=form).backward()
    assert teacher.grad is None and logits.grad.any()


def test_half_precision_is_computed_in_single_and_compiles():
    logits, teacher = draw(0, 2, 4, 4, 3).bfloat16(), draw(1, 2, 4, 4, 3)
    loss = distillation_loss(logits, teacher)
    assert loss.dtype == torch.float32
    assert loss == distillation_loss(logits.float(), teacher)
    compiled = torch.compile(lambda x, t: distillation_loss(x, t, unchanged=0.5), backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(logits, teacher), distillation_loss(logits, teacher, unchanged=0.5))


def test_a_network_learns_what_layer_and_decoder_say():
    rules = rw.parse_rules("0.9 :: c(X, Y) :- a(X, Z), b(Z, Y).")
    relations = ["a", "b", "c"]
    start = draw(3, 1, 5, 5, 3).float() - 1
    decoded = RuleDecoder(rules, relations=relations)(start.numpy())
    layer = LogicLayer(rules, relations=relations)
    off = ~torch.eye(5, dtype=torch.bool)
    for teacher in (decoded.labels, layer(start)):
        logits = start.clone().requires_grad_()
        optimizer = torch.optim.Adam([logits], lr=0.3)
        for _ in range(150):
            optimizer.zero_grad()
            distillation_loss(logits, teacher).backward()
            optimizer.step()
        wanted = torch.as_tensor(teacher) if teacher is decoded.labels else teacher > 0
        assert torch.equal((logits > 0)[:, off], wanted[:, off])
    assert (decoded.labels != (start > 0).numpy())[:, off].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "mean"}, "form must be 'cross_entropy' or 'squares', got 'mean'"),
        ({"unchanged": -1}, "unchanged must be >= 0, got -1"),
        ({"teacher": {"p": torch.ones(3)}}, r"must have shape \[2\], got \[3\]"),
        ({"teacher": {"q": torch.ones(2)}}, r"same predicates, got \['p'\] and \['q'\]"),
        ({"teacher": {"p": torch.tensor([True, False])}, "form": "squares"}, "labels have no log-odds"),
        ({"teacher": {"p": torch.tensor([math.inf, 0])}}, "logits of p must be finite, got inf"),
        ({"mask": torch.ones(2).bool()}, "masks are given by predicate"),
        ({"mask": {"p": torch.ones(2)}}, "mask must be boolean"),
        ({"classes": ["r"]}, "unknown predicate 'r'"),
    ],
)
def test_wrong_input(options, message):
    with pytest.raises(RulewrightError, match=message):
        distillation_loss(**{"logits": {"p": torch.ones(2)}, "teacher": {"p": torch.ones(2)}, **options})
    with pytest.raises(DataError, match=r"mask must have shape \[1, 3\], got \[1, 4\]"):
        distillation_loss(torch.ones(1, 3, 3, 2), torch.ones(1, 3, 3, 2), torch.ones(1, 4).bool())
    with pytest.raises(DataError, match=r"logits must have shape \[B, n, n, R\], got \[2, 3\]; give others by"):
        distillation_loss(torch.ones(2, 3), torch.ones(2, 3))
