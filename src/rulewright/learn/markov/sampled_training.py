"""Sampled training: an encoder, or a table of atoms, learns to be the mean field of the ground clauses that are drawn.

For a batch of ground clauses c with weights w_c, and its open atoms i with probabilities Q_i, what is maximised is

``Σ_c w_c · (1 − Π_j Q_j(literal j of c is false)) + Σ_i Σ_v Q_i(v) φ_i(v) + Σ_i H(Q_i)``,

the expected grounding score of ExpressGNN with φ the prior. Its derivative by Q_i is the message of mean field to i, so
that one step is also one step of distillation from LogicMP's output after one iteration (their Proposition K.1). Every
formula is drawn as often as any other, and what an atom learns is the mean of its messages, not their sum.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from rulewright.checks import Progress
from rulewright.inject.inputs import CERTAIN
from rulewright.learn.markov.encoders import AtomTable, ConstantEncoder
from rulewright.learn.markov.network import MarkovNetwork
from rulewright.learn.markov.sampled import GroundBatch, GroundingSampler
from rulewright.learn.markov.training import make_settings, tell_steps
from rulewright.training.loop import StepPosition, TrainingLoop

EPOCH = 100
"""The batches of an epoch."""


class SampledTraining:
    """Trains the encoder of a network, or its table of atoms, on batches of ground clauses."""

    def __init__(self, network: MarkovNetwork) -> None:
        parameters = network.parameters
        self.network = network
        self.sampler = GroundingSampler(
            network.facts,
            network.statements,
            batch_size=parameters.batch_size,
            bias=parameters.bias,
            seed=parameters.seed,
        )
        weights = [network.weights.value(index) for index in range(len(network.statements))]
        self._weights = torch.tensor(weights)
        self._draw_block = lru_cache(maxsize=1)(self._draw)
        self._width = max(len(declared.classes or (0, 1)) for declared in network.facts.declared.values())
        self._is_false = torch.zeros(0, self._width)

    @property
    def note(self) -> str:
        """What a person should know of the batches; empty where they are as large as was asked for."""
        size, asked = self.sampler.usual_size, self.sampler.batch_size
        if size >= asked:
            return ""
        return f"batches hold about {size:,.0f} groundings, not {asked:,}: the facts leave no more open"

    def run(self, folder: str | os.PathLike[str] | None, progress: Progress) -> list[float]:
        """Train, or go on in the folder, and return the mean loss of each epoch of 100 batches."""
        parameters = self.network.parameters
        encoder = self.network.encoder
        assert not isinstance(encoder, ConstantEncoder)
        if not parameters.epochs:
            return []
        loop = TrainingLoop(
            encoder,
            range(EPOCH),
            self._losses,
            settings=make_settings(parameters),
            identity=self.network.identity(),
            folder=folder,
            progress=tell_steps("training on groundings", progress),
        )
        return [record.losses["loss"] for record in loop.run().history]

    def _losses(self, examples: Sequence[int], position: StepPosition) -> Iterator[tuple[Tensor, Mapping[str, Tensor]]]:
        """Yield the loss of the batch of a step, a ground clause."""
        block, within = divmod(position.done, self.sampler.block_size)
        batch = self._draw_block(block)[within]
        encoder = self.network.encoder
        assert not isinstance(encoder, ConstantEncoder)
        if not len(batch.statements):
            loss = 0 * next(encoder.parameters()).sum()
        elif isinstance(encoder, AtomTable):
            loss = self._fill_table(encoder, batch)
        else:
            loss = -self.bound(batch, encoder.score(batch.atoms)) / len(batch.statements)
        yield loss, {"loss": loss}

    def _draw(self, block: int) -> list[GroundBatch]:
        batches = self.sampler.batches(block)
        if isinstance(self.network.encoder, AtomTable):  # it grows by blocks, which is faster than by batches
            for name in {name for batch in batches for name in batch.atoms}:
                parts = [batch.atoms[name] for batch in batches if name in batch.atoms]
                self.network.encoder.enter({name: tuple(map(np.concatenate, zip(*parts, strict=True)))})
        return batches

    def _fill_table(self, table: AtomTable, batch: GroundBatch) -> Tensor:
        """Move the atoms of a batch towards what the others tell them; the loss has a gradient, which is 0."""
        logits = table.score(batch.atoms)
        with torch.no_grad():
            loss = -self.bound(batch, logits) / len(batch.statements)
            best, start = {}, 0
            messages = self.messages(batch, logits)
            for name, given in logits.items():
                own = messages[start : start + len(given)]
                told = own[:, 1] - own[:, 0] if given.ndim == 1 else own[:, : given.shape[1]]
                best[name] = self.network.prior(name) + told
                start += len(given)
            table.take_up(batch.atoms, best)
        return loss + 0 * table.nothing.sum()

    def bound(self, batch: GroundBatch, logits: Mapping[str, Tensor]) -> Tensor:
        """Return what is maximised, given the log-odds of a batch's open atoms."""
        by_class = flatten_logits(logits, self._width)
        priors = {name: self.network.prior(name).expand_as(given) for name, given in logits.items()}
        chances = torch.softmax(by_class, dim=1)
        entropy = -(chances * torch.log_softmax(by_class, dim=1)).sum()
        return self.score(batch, chances) + (chances * flatten_logits(priors, self._width)).sum() + entropy

    def messages(self, batch: GroundBatch, logits: Mapping[str, Tensor]) -> Tensor:
        """Return the message to each class of each open atom of a batch, all predicates one after the other."""
        with torch.enable_grad():
            chances = torch.softmax(flatten_logits(logits, self._width), dim=1).detach().requires_grad_()
            (messages,) = torch.autograd.grad(self.score(batch, chances), chances)
        return messages

    def score(self, batch: GroundBatch, chances: Tensor) -> Tensor:
        """Return the expected sum of the weights of clauses that are true, given the probabilities of classes."""
        if len(self._is_false) < len(self.sampler.class_sets):  # what atoms that coincide are true in comes up in time
            classes = range(self._width)
            inside = [[index not in known for index in classes] for known in self.sampler.class_sets]
            self._is_false = torch.tensor(inside, dtype=chances.dtype)
        positions, sets = torch.from_numpy(batch.positions), torch.from_numpy(batch.sets)
        shape = positions.shape
        given = chances.index_select(0, positions.clamp(min=0).reshape(-1))
        false = (given * self._is_false[sets.reshape(-1)]).sum(dim=1).view(shape)
        false = torch.where(positions < 0, 1.0, false)
        weights = self._weights[torch.from_numpy(batch.statements)]
        return (weights * (1 - false.prod(dim=1))).sum()


def flatten_logits(logits: Mapping[str, Tensor], width: int) -> Tensor:
    """Return the log-odds of atoms as logits of classes ``[atoms, width]``, all predicates one after the other.

    >>> flatten_logits({"smokes": torch.tensor([0.5, -1.0])}, 2).tolist()
    [[0.0, 0.5], [0.0, -1.0]]
    """
    parts = []
    for given in logits.values():
        by_class = torch.stack([torch.zeros_like(given), given], dim=1) if given.ndim == 1 else given
        parts.append(pad(by_class, (0, width - by_class.shape[1]), value=-CERTAIN))
    return torch.cat(parts)
