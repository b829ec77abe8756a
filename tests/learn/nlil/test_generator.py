"""The transformers: what they write are distributions over what may be chosen."""

from __future__ import annotations

import torch

from rulewright.learn.nlil.choices import RuleChoices, RuleShape
from rulewright.learn.nlil.generator import Generator


def choices(slots: int, arity: int, shape: RuleShape) -> RuleChoices:
    operators = torch.tensor([[0, 1, 2, 4], [0, 3, -1, -1]]).repeat_interleave(slots, dim=0)
    statements = torch.tensor([[0, 1, 3], [2, -1, -1]]).repeat_interleave(slots, dim=0)
    every = torch.ones(2 * slots, 1 + shape.steps * shape.chains * arity, dtype=torch.bool)
    sides = (operators >= 0).repeat(arity, 1, 1)
    return RuleChoices(operators, sides, statements, 6, 4, (every, every), frozenset([0]), arity, slots)


def test_attentions_are_distributions_over_what_may_be_chosen() -> None:
    torch.manual_seed(0)
    for arity in (1, 2):
        shape = RuleShape(steps=3, chains=2, levels=2, combinations=4, negation=arity == 1)
        generator = Generator(choices(3, arity, shape), shape)
        attentions = generator()
        tensors = [attentions.operators, attentions.output, *(side for level in attentions.levels for side in level)]
        for attention in tensors:
            torch.testing.assert_close(attention.sum(-1), torch.ones(attention.shape[:-1]))
            assert bool((attention >= 0).all())
        assert attentions.operators.shape == (6, 2 * arity, 3, 6)
        assert attentions.output.shape == (6, 4 + 2 * 4)
        assert bool((attentions.operators[:3, ..., [3, 5]] == 0).all())
        assert bool((attentions.operators[3:, ..., [1, 2, 4, 5]] == 0).all())
        assert bool((attentions.first[:3, 0, 0] == 0).all())  # "is anything" needs a step
        torch.testing.assert_close(attentions.first[:, 3].sum(-1), torch.tensor([1.0] * 3 + [0.0] * 3))
        assert (attentions.second is None) == (arity == 1)
        complements = attentions.levels[0][0][:, :, 4:].detach().sum()
        assert (float(complements) > 0) == shape.negation


def test_the_last_layer_has_one_head_and_cooling_sharpens_it() -> None:
    torch.manual_seed(1)
    shape = RuleShape(steps=2, levels=1, layers=3, heads=4)
    generator = Generator(choices(2, 1, shape), shape)
    assert [layer.heads for layer in generator.choose_operator.layers] == [4, 4, 1]  # type: ignore[union-attr]
    entropies = [float(generator(temperature).entropy().detach()) for temperature in (2.0, 1.0, 0.5, 0.1)]
    assert entropies == sorted(entropies, reverse=True)


def test_rules_of_one_target_differ_and_shared_embeddings_are_fewer() -> None:
    torch.manual_seed(2)
    shape = RuleShape(steps=2, levels=0)
    attentions = Generator(choices(2, 1, shape), shape)()
    assert not torch.equal(attentions.operators[0], attentions.operators[1])
    sizes = [
        sum(
            parameter.numel()
            for parameter in Generator(choices(2, 1, shape), RuleShape(steps=2, levels=0, shared=shared)).parameters()
        )
        for shared in (False, True)
    ]
    assert sizes[1] < sizes[0]
