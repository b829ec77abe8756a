"""One way to train a network for every row: the same batches, optimiser and number of epochs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from peers.problems import Problem, Split

Part = Callable[[Tensor, Split], Tensor]
"""What a system adds: from logits and their samples to a loss, to other logits, or to labels."""


def train(problem: Problem, split: Split, seed: int, loss: Part, modules: nn.Module | None = None) -> nn.Module:
    """Return the problem's network, trained by a loss of its logits; ``modules`` are trained with it."""
    torch.manual_seed(seed)
    network = problem.make_network()
    learned = [*network.parameters(), *(modules.parameters() if modules is not None else [])]
    optimizer = torch.optim.Adam(learned, lr=problem.learning_rate)
    for _ in range(problem.epochs):
        for chosen in torch.randperm(len(split)).split(problem.batch_size):
            batch = split.rows(chosen)
            optimizer.zero_grad()
            loss(network(batch.features), batch).backward()
            optimizer.step()
    return network.eval()
