"""How weights and encoders learn: from observed facts and from what the layer makes of an encoder's answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, mse_loss

from rulewright.errors import DataError
from rulewright.inject.layer.slrelax import SLrelax
from rulewright.learn.markov.domains import drawn, filled, some_fact
from rulewright.learn.markov.facts import Members
from rulewright.learn.markov.network import GraphEncoder, MarkovNetwork, edges_of

Advance = Callable[[int, int], None]
SCORED_ENTITIES = 16
"""The entities of each type among which groundings are scored in a step of training ``"scores"``."""


def learn_weights(network: MarkovNetwork, random: np.random.Generator, advance: Advance) -> list[float]:
    """Learn weights by block pseudo-likelihood and return the loss of each epoch.

    ``L = − Σ_p mean_i log P(v_i | all other predicates)``: of one observed predicate p after the other all facts are
    hidden, and the layer infers them. p runs over those that are not closed or, where all are, over all. Where no false
    facts of p are listed, what is not observed counts as false. Weights are held to where they started by
    ``weight_decay · Σ (w − w_0)²``.
    """
    options, weights = network.options, network.weights
    learned = weights.learned
    assert learned is not None
    targets = _targets(network)
    start = learned.detach().clone()
    optimizer = torch.optim.Adam([learned], lr=options.weight_rate)
    losses = []
    for epoch in range(options.weight_epochs):
        optimizer.zero_grad()
        total = 0.0
        for name in targets:
            loss = _hidden_loss(network, name, _drawn_world(network, random), detached=True)
            if loss is not None:
                loss.backward()  # type: ignore[no-untyped-call]
                total += float(loss.detach())
        held = options.weight_decay * (learned - start).square().sum()
        held.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(total + float(held.detach()))
        advance(epoch + 1, options.weight_epochs)
    return losses


def _targets(network: MarkovNetwork) -> list[str]:
    observed = network.facts.observed_predicates()
    if not observed:
        raise DataError("no fact of a predicate of the rules is observed, so there is nothing to learn weights from")
    return [name for name in observed if name not in network.facts.closed] or observed


def _drawn_world(network: MarkovNetwork, random: np.random.Generator) -> Members:
    worlds = network.facts.worlds()
    return drawn(network, worlds[random.integers(len(worlds))], random)


def _hidden_loss(network: MarkovNetwork, name: str, members: Members, *, detached: bool) -> Tensor | None:
    """Return the cross-entropy of a predicate that is inferred with all its facts hidden; None where none is there."""
    potentials = network.potentials(members, opened=name)
    if detached:
        potentials = {each: value.detach() for each, value in potentials.items()}
    logits = network.infer(members, potentials, opened=name)[name]
    value, known = labels(network, name, members)
    if not bool(known.any()):
        return None
    return binary_cross_entropy_with_logits(logits[known], value[known].to(logits.dtype))


def labels(network: MarkovNetwork, name: str, members: Members) -> tuple[Tensor, Tensor]:
    """Return a predicate's truth and where it is taken as known: everywhere, or at what is listed as true or false."""
    value, observed = network.facts.dense(name, members)
    if not network.facts.count(name, truth=False):
        observed = torch.full_like(observed, bool(value.any()))
    return value, observed


def train_encoder(network: MarkovNetwork, random: np.random.Generator, advance: Advance) -> list[float]:
    """Train the encoder, and with ``end_to_end`` learnable weights too; return the loss of each epoch."""
    options = network.options
    parameters = [*network.encoder.parameters()]
    if options.training == "end_to_end" and network.weights.learned is not None:
        parameters.append(network.weights.learned)
    optimizer = torch.optim.Adam(parameters, lr=options.rate)
    losses = []
    for epoch in range(options.epochs):
        members = _drawn_world(network, random)
        potentials = _partly_blind(network, members, random)
        loss = _fact_loss(network, members, potentials, random)
        if options.training == "distill":
            loss = loss + _distillation(network, members, potentials)
        elif options.training == "scores":
            loss = loss + _violations(network, members, random)
        elif network.facts.observed_predicates():
            targets = _targets(network)
            hidden = _hidden_loss(network, targets[random.integers(len(targets))], members, detached=False)
            loss = loss if hidden is None else loss + hidden
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, 5.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        advance(epoch + 1, options.epochs)
    return losses


def _partly_blind(network: MarkovNetwork, members: Members, random: np.random.Generator) -> dict[str, Tensor]:
    """Return the encoder's log-odds with some facts hidden from its graph, so that it learns to foretell facts."""
    encoder, kb = network.encoder, network.facts.kb
    if not isinstance(encoder, GraphEncoder):
        found: dict[str, Tensor] = encoder(members)
        return found
    hidden: dict[str, Any] = {name: random.random(kb.count(name)) < network.options.hidden for name in kb.predicates}
    found = encoder(members, edges_of(kb, hidden))
    return found


def _fact_loss(
    network: MarkovNetwork, members: Members, potentials: Mapping[str, Tensor], random: np.random.Generator
) -> Tensor:
    """Return the cross-entropy of the encoder on observed facts; where none is listed as false, on unobserved ones.

    Of these as many are drawn as there are true ones.
    """
    parts = []
    for name, logits in potentials.items():
        value, observed = network.facts.dense(name, members)
        true = torch.nonzero((value & observed).reshape(-1)).squeeze(1)
        false = torch.nonzero((observed & ~value).reshape(-1)).squeeze(1)
        if not network.facts.count(name, truth=False):
            rest = torch.nonzero(~value.reshape(-1)).squeeze(1)
            count = min(len(rest), len(true))
            false = rest[torch.from_numpy(random.choice(len(rest), size=count, replace=False))] if count else rest[:0]
        if len(true) + len(false) == 0:
            continue
        flat = logits.reshape(-1)
        wanted = torch.cat([torch.ones(len(true)), torch.zeros(len(false))])
        parts.append(binary_cross_entropy_with_logits(flat[torch.cat([true, false])], wanted))
    return torch.stack(parts).mean() if parts else torch.zeros((), requires_grad=True)


def _distillation(network: MarkovNetwork, members: Members, potentials: Mapping[str, Tensor]) -> Tensor:
    """Return the mean-square error to the layer's log-odds, through which no gradient runs, of what is not observed."""
    options, evidence = network.options, network.evidence(members)
    with torch.no_grad():
        target = network.infer(members, network.trusted(potentials))
    parts = []
    for name, logits in potentials.items():
        observation = evidence.get(name)
        if name not in network.facts.used or isinstance(observation, Tensor):
            continue
        wanted = target[name].clamp(-options.limit, options.limit)
        if observation is None:
            parts.append(mse_loss(logits, wanted))
        elif not bool(observation[1].all()):
            parts.append(mse_loss(logits[~observation[1]], wanted[~observation[1]]))
    return torch.stack(parts).mean() if parts else torch.zeros(())


def _violations(network: MarkovNetwork, members: Members, random: np.random.Generator) -> Tensor:
    """Return the share of groundings that are expected to be false, among a few entities around a fact."""
    sizes = {kind: min(len(ids), SCORED_ENTITIES) for kind, ids in members.items()}
    few = filled(network.facts, members, some_fact(network.facts, members, random), sizes, random)
    potentials = network.encoder(few)
    evidence = network.facts.evidence(few)
    layer = network.layer(few)
    given = {name: each for name, each in potentials.items() if not isinstance(evidence.get(name), Tensor)}
    penalty = SLrelax(network.rules, network.domains(few), memory_limit=layer.memory_limit)
    loss: Tensor = penalty(given, evidence)
    return loss
