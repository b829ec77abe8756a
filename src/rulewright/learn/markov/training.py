"""How weights and encoders learn: from observed facts and from what the layer makes of an encoder's answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from rulewright.checks import Progress
from rulewright.errors import DataError
from rulewright.inject import distillation_loss
from rulewright.learn.markov.domains import draw_sample
from rulewright.learn.markov.encoders import AtomTable, GraphEncoder, fact_edges
from rulewright.learn.markov.facts import Members
from rulewright.learn.markov.network import MarkovNetwork, keep_open
from rulewright.learn.markov.parameters import MarkovParameters
from rulewright.training.loop import StepPosition, TrainingLoop, TrainingProgress, TrainingSettings


def learn_weights(network: MarkovNetwork, random: np.random.Generator, progress: Progress) -> list[float]:
    """Learn weights by block pseudo-likelihood and return the loss of each epoch.

    ``L = − Σ_p mean_i log P(v_i | all other predicates)``: of one observed predicate p after the other all facts are
    hidden, and the layer infers them. p runs over those that are not closed or, where all are, over all. Where no false
    facts of p are listed, what is not observed counts as false. Weights are held to where they started by
    ``weight_decay · Σ (w − w_0)²``.
    """
    parameters, learned = network.parameters, network.weights.learned
    assert learned is not None
    targets = _find_targets(network)
    start = learned.detach().clone()
    optimizer = torch.optim.Adam([learned], lr=parameters.weight_rate)
    losses = []
    for epoch in range(parameters.weight_epochs):
        optimizer.zero_grad()
        total = 0.0
        for name in targets:
            loss = _hidden_loss(network, name, _draw_members(network, random), trains_encoder=False)
            if loss is not None:
                loss.backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach())
        decay = parameters.weight_decay * (learned - start).square().sum()
        decay.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(total + float(decay.detach()))
        progress("learning weights", epoch + 1, parameters.weight_epochs)
    return losses


def _find_targets(network: MarkovNetwork) -> list[str]:
    observed = network.facts.observed_predicates()
    if not observed:
        raise DataError("no fact of a predicate of the rules is observed, so there is nothing to learn weights from")
    return [name for name in observed if name not in network.facts.closed] or observed


def _draw_members(network: MarkovNetwork, random: np.random.Generator) -> Members:
    worlds = network.facts.worlds()
    return draw_sample(network, worlds[random.integers(len(worlds))], random)


def _hidden_loss(network: MarkovNetwork, name: str, members: Members, *, trains_encoder: bool) -> Tensor | None:
    """Return the cross-entropy of a predicate that is inferred with all its facts hidden; None where it has none."""
    potentials = network.potentials(members, opened=name)
    if not trains_encoder:
        potentials = {other: value.detach() for other, value in potentials.items()}
    logits = network.infer(members, potentials, opened=name)[name]
    value, known = network.facts.dense(name, members)
    has_classes = network.facts.declared[name].classes is not None
    if not has_classes and not network.facts.count(name, truth=False):
        known = torch.full_like(known, bool(value.any()))
    if not bool(known.any()):
        return None
    if has_classes:
        return cross_entropy(logits[known], value[known])
    return binary_cross_entropy_with_logits(logits[known], value[known].to(logits.dtype))


def train_encoder(network: MarkovNetwork, folder: str | os.PathLike[str] | None, progress: Progress) -> list[float]:
    """Train the encoder, and with ``end_to_end`` learnable weights too, or go on in the folder.

    Return the loss of each epoch, which is one step.
    """
    parameters = network.parameters
    if not parameters.epochs:
        return []
    trained = nn.ModuleList([network.encoder])
    if parameters.training == "end_to_end":
        trained.append(network.weights)

    def losses(examples: Sequence[int], position: StepPosition) -> Iterator[tuple[Tensor, Mapping[str, Tensor]]]:
        loss = _encoder_loss(network, np.random.default_rng([parameters.seed, position.epoch]))
        yield loss, {"loss": loss}

    loop = TrainingLoop(
        trained,
        range(1),
        losses,
        settings=make_settings(parameters),
        identity=network.identity(),
        groups=[{"params": [*trained.parameters()], "lr": parameters.rate, "weight_decay": 0.0}],
        folder=folder,
        progress=tell_steps("training the encoder", progress),
    )
    return [record.losses["loss"] for record in loop.run().history]


def make_settings(parameters: MarkovParameters) -> TrainingSettings:
    """Return how an encoder is trained: by Adam, whose rate falls to 0, on one batch a step."""
    return TrainingSettings(
        epochs=parameters.epochs,
        patience=None,
        batch_size=1,
        rate=parameters.rate,
        epsilon=1e-8,
        warmup=0.0,
        clip=5.0,
        seed=parameters.seed,
    )


def tell_steps(stage: str, progress: Progress) -> Callable[[TrainingProgress], None]:
    """Return what tells how many steps are done of all."""

    def tell(done: TrainingProgress) -> None:
        progress(stage, (done.epoch - 1) * done.steps + done.step, done.epochs * done.steps)

    return tell


def _encoder_loss(network: MarkovNetwork, random: np.random.Generator) -> Tensor:
    """Return the loss of a step: of the observed facts, and of what the layer makes of the encoder's answer."""
    members = _draw_members(network, random)
    potentials = _partly_blind(network, members, random)
    loss = _fact_loss(network, members, potentials, random)
    if network.parameters.training == "distill":
        return loss + _distillation_loss(network, members, potentials)
    if network.facts.observed_predicates():
        targets = _find_targets(network)
        target = targets[random.integers(len(targets))]
        hidden_loss = _hidden_loss(network, target, members, trains_encoder=True)
        return loss if hidden_loss is None else loss + hidden_loss
    return loss


def _partly_blind(network: MarkovNetwork, members: Members, random: np.random.Generator) -> dict[str, Tensor]:
    """Return the encoder's log-odds with some facts hidden from its graph, so that it learns to foretell facts."""
    encoder, kb, edges = network.encoder, network.facts.kb, None
    if isinstance(encoder, GraphEncoder):
        hidden = {name: random.random(kb.count(name)) < network.parameters.hidden for name in kb.predicates}
        edges = fact_edges(kb, hidden)
    assert not isinstance(encoder, AtomTable)
    logits: dict[str, Tensor] = encoder(members, edges)
    return logits


def _fact_loss(
    network: MarkovNetwork, members: Members, potentials: Mapping[str, Tensor], random: np.random.Generator
) -> Tensor:
    """Return the cross-entropy of the encoder on observed facts; where none is listed as false, on unobserved ones.

    Of these as many are drawn as there are true ones.
    """
    losses = []
    for name, logits in potentials.items():
        value, observed = network.facts.dense(name, members)
        if network.facts.declared[name].classes is not None:
            if bool(observed.any()):
                losses.append(cross_entropy(logits[observed], value[observed]))
            continue
        true = torch.nonzero((value & observed).reshape(-1)).squeeze(1)
        false = torch.nonzero((observed & ~value).reshape(-1)).squeeze(1)
        if not network.facts.count(name, truth=False):
            rest = torch.nonzero(~value.reshape(-1)).squeeze(1)
            count = min(len(rest), len(true))
            false = rest[torch.from_numpy(random.choice(len(rest), size=count, replace=False))] if count else rest[:0]
        if len(true) + len(false) == 0:
            continue
        wanted = torch.cat([torch.ones(len(true)), torch.zeros(len(false))])
        losses.append(binary_cross_entropy_with_logits(logits.reshape(-1)[torch.cat([true, false])], wanted))
    return torch.stack(losses).mean() if losses else torch.zeros((), requires_grad=True)


def _distillation_loss(network: MarkovNetwork, members: Members, potentials: Mapping[str, Tensor]) -> Tensor:
    """Return the mean-square error to the layer's log-odds, through which no gradient runs, of what is not observed."""
    limit, evidence = network.parameters.limit, network.evidence(members)
    with torch.no_grad():
        target = network.infer(members, network.trust(potentials))
    taught = {n: given for n, given in keep_open(potentials, evidence).items() if n in network.facts.used}
    classes = {name for name in taught if network.facts.declared[name].classes is not None}
    wanted = {
        name: (target[name].log_softmax(-1) if name in classes else target[name]).clamp(-limit, limit)
        for name in taught
    }
    taught |= {name: taught[name].log_softmax(-1) for name in classes}  # a shift of all classes says nothing
    observed = {name: evidence[name] for name in taught if name in evidence}
    unknown = {name: ~known[1] for name, known in observed.items() if isinstance(known, tuple)}
    return distillation_loss(taught, wanted, unknown, form="squares", classes=classes) if taught else torch.zeros(())
