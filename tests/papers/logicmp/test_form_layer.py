"""Messages as sums are those of the layer itself; means are checked against loops over triples of words."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from papers.logicmp.tiny_forms import tiny_forms

from rulewright.errors import UnknownNameError
from rulewright.inject import LogicLayer
from rulewright.papers.logicmp.form_layer import TransitiveLayer, usual_size

RULES = "predicate coexist(token, token). learn coexist(A, B) & coexist(B, C) => coexist(A, C)."


def made(seed: int, words: int, *, rows: int = 1) -> torch.Tensor:
    return 2 * torch.randn(rows, words, words, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def layer_of(weight: float, **options: object) -> TransitiveLayer:
    return TransitiveLayer(LogicLayer(RULES, iterations=1, initial_weight=weight), **options).double()


def messages(logits: torch.Tensor) -> torch.Tensor:
    """How an atom's truth changes the expected number of true groundings, by running through all of them.

    Atoms of a grounding that coincide count once, so groundings are compared with each atom set to true and to false.
    """
    count, probability = len(logits), logits.sigmoid()
    found = torch.zeros_like(logits)
    for a in range(count):
        for b in range(count):
            for c in range(count):
                premises, head = {(a, b), (b, c)}, (a, c)
                if head in premises:
                    continue  # a premise implies itself
                for atom in premises | {head}:
                    others = (premises | {head}) - {atom}
                    false = torch.ones((), dtype=logits.dtype)
                    for other in others:
                        false = false * (1 - probability[other] if other == head else probability[other])
                    found[atom] += false if atom == head else -false
    return found


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), words=st.integers(1, 5), iterations=st.integers(0, 3), weight=st.floats(0.1, 2))
def test_sums_are_the_layers_own(seed, words, iterations, weight):
    logits = made(seed, words, rows=2)
    mask = torch.ones(2, words, dtype=torch.bool)
    mask[1, words // 2 :] = False
    whole = LogicLayer(RULES, iterations=iterations, initial_weight=weight).double()
    expected = whole({"coexist": logits}, mask={"token": mask})["coexist"]
    found = layer_of(weight, iterations=iterations)(logits, mask)
    pairs = mask[:, :, None] & mask[:, None, :]
    assert torch.allclose(found[pairs], expected[pairs], atol=1e-9)


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 10**6), words=st.integers(1, 5), usual=st.floats(1, 5))
@pytest.mark.parametrize("averaging", ["words", "block"])
def test_means_against_loops(averaging, seed, words, usual):
    logits = made(seed, words)
    found = layer_of(0.7, iterations=2, averaging=averaging, usual=usual)(logits, torch.ones(1, words, dtype=bool))[0]
    given_logits = current = logits[0]
    own = given_logits.sigmoid().sum(1)
    for _ in range(2):
        sent, total = messages(current), given_logits.clone()
        for a in range(words):
            for c in range(words):
                size = words if averaging == "words" else max(1.0, float(own[a] + own[c]) / 2)
                total[a, c] += 0.7 * sent[a, c] * usual / size
        current = total
    assert torch.allclose(found, current, atol=1e-9)


@pytest.mark.parametrize("averaging", ["sum", "words", "block"])
def test_padding_changes_nothing_and_no_share_is_no_layer(averaging):
    logits, padded = made(1, 4), made(2, 6)
    padded[:, :4, :4] = logits
    layer = layer_of(0.5, iterations=2, averaging=averaging, usual=3.0)
    alone = layer(logits, torch.ones(1, 4, dtype=torch.bool))
    mask = torch.tensor([[True] * 4 + [False] * 2])
    assert torch.allclose(layer(padded, mask)[:, :4, :4], alone, atol=1e-9)
    layer.share = 0.0
    assert torch.equal(layer(padded, mask), padded)


def test_the_weight_is_learned_and_an_unknown_averaging_is_an_error():
    layer = layer_of(0.5, iterations=2, averaging="block")
    layer(made(3, 4), torch.ones(1, 4, dtype=torch.bool)).sum().backward()
    assert all(weight.grad.abs().sum() > 0 for weight in layer.parameters())
    with pytest.raises(UnknownNameError, match="unknown averaging 'mean'"):
        layer_of(0.5, iterations=2, averaging="mean")


def test_usual_sizes_are_means_over_forms_and_blocks():
    forms = tiny_forms(4)
    assert usual_size(forms, "sum") == 1
    assert usual_size(forms, "words") == sum(form.words for form in forms) / 4
    assert usual_size(forms, "block") == sum(form.words for form in forms) / (4 * 5)
