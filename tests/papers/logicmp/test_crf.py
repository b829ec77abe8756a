"""Chains of labels, against the enumeration of all label sequences and against plain loops."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
import torch

from rulewright.papers.logicmp.tagger import ChainTeacher, LinearChainCRF, MeanFieldCRF, imitation_share

pytestmark = pytest.mark.slow

CLASSES = 3


def random_chain(seed, *, lengths=(4, 1, 3)):
    torch.manual_seed(seed)
    chain = LinearChainCRF(CLASSES).double()
    for parameter in chain.parameters():
        torch.nn.init.normal_(parameter)
    logits = torch.randn(len(lengths), max(lengths), CLASSES, dtype=torch.double)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return chain, logits, mask


def plain_score(chain, unary, labels):
    total = chain.first[labels[0]] + chain.last[labels[-1]]
    total = total + sum(unary[place, label] for place, label in enumerate(labels))
    return total + sum(chain.transitions[before, after] for before, after in pairwise(labels))


def all_labellings(chain, logits, mask):
    """For each sentence, its labellings and their scores."""
    for unary, real in zip(logits, mask, strict=True):
        labellings = list(product(range(CLASSES), repeat=int(real.sum())))
        yield labellings, torch.stack([plain_score(chain, unary, labels) for labels in labellings])


@pytest.mark.parametrize("seed", range(5))
def test_the_chain_agrees_with_enumeration(seed):
    chain, logits, mask = random_chain(seed)
    partition, marginals, best = (
        chain.log_partition(logits, mask),
        chain.marginals(logits, mask),
        chain.decode(logits, mask),
    )
    for row, (labellings, scores) in enumerate(all_labellings(chain, logits, mask)):
        length = int(mask[row].sum())
        torch.testing.assert_close(partition[row], scores.logsumexp(0))
        assert tuple(best[row, :length].tolist()) == labellings[int(scores.argmax())]
        assert not best[row, length:].any()
        expected = torch.zeros_like(logits[row])
        for labels, chance in zip(labellings, scores.softmax(0), strict=True):
            for place, label in enumerate(labels):
                expected[place, label] += chance
        torch.testing.assert_close(marginals[row], expected)
        gold = torch.tensor(labellings[seed % len(labellings)])
        labels = torch.zeros(1, mask.shape[1], dtype=torch.long)
        labels[0, :length] = gold
        loss = chain.negative_log_likelihood(logits[row : row + 1], labels, mask[row : row + 1])
        torch.testing.assert_close(loss[0], -scores.log_softmax(0)[seed % len(labellings)])


def test_padding_changes_nothing():
    chain, logits, mask = random_chain(0)
    other = torch.where(mask[..., None], logits, torch.full_like(logits, 50.0))
    labels = torch.where(mask, 1, 2)
    for method in (chain.log_partition, chain.marginals, chain.decode):
        torch.testing.assert_close(method(logits, mask), method(other, mask))
    torch.testing.assert_close(chain.score(logits, labels, mask), chain.score(other, torch.where(mask, 1, 0), mask))


def test_the_gradient_of_the_likelihood():
    chain, logits, mask = random_chain(1)
    labels = torch.randint(CLASSES, mask.shape)

    def loss(given, *_):
        return chain.negative_log_likelihood(given, labels, mask)

    assert torch.autograd.gradcheck(loss, (logits.requires_grad_(), *chain.parameters()))


def test_a_fixed_chain_has_no_parameters():
    chain = LinearChainCRF(CLASSES, transitions=torch.eye(CLASSES))
    assert not list(chain.parameters()) and not chain.state_dict()


@pytest.mark.parametrize("iterations", [0, 1, 4])
def test_the_mean_field_agrees_with_a_loop(iterations):
    _, logits, mask = random_chain(2)
    field = MeanFieldCRF(CLASSES, iterations=iterations).double()
    torch.testing.assert_close(field(logits, mask), logits)  # it starts as the identity
    torch.nn.init.normal_(field.transitions)
    found = field(logits, mask)
    for row, real in enumerate(mask):
        length = int(real.sum())
        unary = logits[row, :length]
        result = unary.clone()
        for _ in range(iterations):
            beliefs = result.softmax(-1)
            for place, label in product(range(length), range(CLASSES)):
                message = 0.0
                for other in range(CLASSES):
                    if place > 0:
                        message += beliefs[place - 1, other] * field.transitions[other, label]
                    if place + 1 < length:
                        message += beliefs[place + 1, other] * field.transitions[label, other]
                result[place, label] = unary[place, label] + message
        torch.testing.assert_close(found[row, :length], result)


def test_the_mean_field_learns_through_its_steps():
    _, logits, mask = random_chain(3, lengths=(3, 2))
    field = MeanFieldCRF(CLASSES, iterations=2).double()
    assert torch.autograd.gradcheck(lambda given, _: field(given, mask), (logits.requires_grad_(), field.transitions))


def test_the_teacher_agrees_with_enumeration():
    torch.manual_seed(4)
    violated = torch.tensor([[0.0, 1, 2], [1, 0, 0], [0, 0, 1]])
    teacher = ChainTeacher(violated, strength=1.5)
    logits, mask = torch.randn(1, 4, CLASSES), torch.ones(1, 4, dtype=torch.bool)
    log_p = logits[0].log_softmax(-1)
    labellings = list(product(range(CLASSES), repeat=4))
    weights = torch.stack(
        [
            sum(log_p[place, label] for place, label in enumerate(labels))
            - 1.5 * sum(violated[pair] for pair in pairwise(labels))
            for labels in labellings
        ]
    )
    q = torch.zeros(4, CLASSES)
    for labels, chance in zip(labellings, weights.softmax(0), strict=True):
        for place, label in enumerate(labels):
            q[place, label] += chance
    torch.testing.assert_close(teacher.marginals(logits, mask)[0], q)
    assert tuple(teacher.decode(logits, mask)[0].tolist()) == labellings[int(weights.argmax())]
    gold = torch.tensor([[0, 1, 2, 0]])
    losses = teacher.student_losses(logits, gold, mask, imitation=0.3)
    expected = [-0.7 * log_p[place, gold[0, place]] - 0.3 * (q[place] * log_p[place]).sum() for place in range(4)]
    torch.testing.assert_close(losses[0], torch.stack(expected))


def test_the_student_is_not_taught_by_padding():
    teacher = ChainTeacher(torch.zeros(CLASSES, CLASSES), strength=1.0)
    logits = torch.randn(2, 3, CLASSES, requires_grad=True)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    teacher.student_losses(logits, torch.zeros(2, 3, dtype=torch.long), mask, imitation=0.5).sum().backward()
    assert logits.grad is not None
    assert not logits.grad[~mask].any() and logits.grad[mask].any(-1).all()


def test_imitation_grows_to_its_limit():
    shares = [imitation_share(epoch, decay=0.9, limit=0.6) for epoch in range(40)]
    assert shares[0] == 0 and shares == sorted(shares) and shares[-1] == 0.6
