"""A Markov logic network over the facts of a knowledge base: potentials, weights and the layer that joins them."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from math import log
from typing import Literal as OneOf

import numpy as np
import torch
from torch import Tensor

from rulewright.errors import DataError, unknown_name
from rulewright.inject.ground_inputs import CERTAIN, Observation
from rulewright.inject.grounding import Grounding
from rulewright.inject.layer import Convergence, LogicLayer
from rulewright.inject.weights import Weights
from rulewright.learn.markov_encoders import ConstantEncoder, EmbeddingEncoder, GraphEncoder, edges_of
from rulewright.learn.markov_facts import GroundFacts, Members, formulas_of, predicates_of
from rulewright.logic import RuleSet, Statement, WeightedFormula

KEPT_LAYERS = 8
"""The most layers, and evidence, that are kept for domains that may come again."""


@dataclass(frozen=True, kw_only=True)
class MarkovOptions:
    """What a `MarkovLogic` does; see there."""

    encoder: OneOf["none", "embedding", "gnn"] = "none"
    training: OneOf["none", "distill", "end_to_end", "scores"] = "none"
    iterations: int = 5
    damping: float = 0.5
    tolerance: float | None = 1e-3
    closed: tuple[str, ...] | OneOf["listed"] = ()
    prior: float | Mapping[str, float] | OneOf["density"] = 0.0
    scaling: OneOf["none", "messages"] = "none"
    scaling_power: float = 1.0
    weights: OneOf["one", "logit"] = "one"
    hard_weight: float = 20.0
    learn_weights: bool = False
    weight_epochs: int = 50
    weight_rate: float = 0.05
    weight_decay: float = 0.01
    epochs: int = 100
    rate: float = 0.01
    size: int = 16
    trust: float = 0.5
    limit: float = 10.0
    hidden: float = 0.2
    sample: int | OneOf["auto"] | None = "auto"
    memory_limit: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name, allowed in (
            ("encoder", ("none", "embedding", "gnn")),
            ("training", ("none", "distill", "end_to_end", "scores")),
            ("scaling", ("none", "messages")),
        ):
            if getattr(self, name) not in allowed:
                raise DataError(f"{name} must be one of {', '.join(allowed)}, got {getattr(self, name)!r}")
        if isinstance(self.closed, str) and self.closed != "listed":
            raise DataError(f"closed must be names of predicates or 'listed', got {self.closed!r}")
        if isinstance(self.prior, str) and self.prior != "density":
            raise DataError(f"prior must be a number, numbers by predicate, or 'density', got {self.prior!r}")
        if self.training != "none" and self.encoder == "none":
            raise DataError(f"training {self.training!r} needs an encoder, embedding or gnn")
        if self.learn_weights and self.iterations == 0:
            raise DataError("learn_weights needs iterations >= 1: weights are learned through the layer")
        for name in ("epochs", "weight_epochs"):
            if getattr(self, name) < 0:
                raise DataError(f"{name} must be >= 0, got {getattr(self, name)}")
        for name in ("rate", "weight_rate", "limit", "scaling_power"):
            if not getattr(self, name) > 0:
                raise DataError(f"{name} must be > 0, got {getattr(self, name)}")
        if not 0 <= self.trust <= 1:
            raise DataError(f"trust must lie in [0, 1], got {self.trust}")
        if not 0 <= self.hidden < 1:
            raise DataError(f"hidden must lie in [0, 1), got {self.hidden}")
        if self.size < 1:
            raise DataError(f"size must be >= 1, got {self.size}")
        if not (self.sample in ("auto", None) or (isinstance(self.sample, int) and self.sample >= 1)):
            raise DataError(f"sample must be a number >= 1, 'auto' or None, got {self.sample!r}")


class MarkovNetwork:
    """Facts, rules with weights, and potentials; `infer` sends the messages over any entities."""

    def __init__(self, facts: GroundFacts, options: MarkovOptions) -> None:
        self.facts, self.options = facts, options
        torch.manual_seed(options.seed)
        prior = self._prior = priors(facts, options.prior)
        kb, declared = facts.kb, facts.declared
        self.encoder: ConstantEncoder | EmbeddingEncoder | GraphEncoder
        if options.encoder == "none":
            self.encoder = ConstantEncoder(declared, prior)
        elif options.encoder == "embedding":
            self.encoder = EmbeddingEncoder(kb, declared, prior, options.size)
        else:
            self.encoder = GraphEncoder(kb, declared, prior, options.size)
        self._layers: dict[tuple[tuple[str, bytes], ...], LogicLayer] = {}
        self._evidence: dict[tuple[tuple[str, bytes], ...], dict[str, Observation]] = {}
        self.convergence: list[Convergence] = []
        self._given = facts.rules
        self.weights = self._new_weights(self._given)
        self._start = ConstantEncoder(declared, prior)

    def _new_weights(self, rules: RuleSet) -> Weights:
        options, facts = self.options, self.facts
        weights = Weights(
            rules, rule_weights=options.weights, hard_weight=options.hard_weight, learnable=options.learn_weights
        )
        if weights.learned is None:
            return weights
        # A predicate that is never observed could turn into its own negation: what names it keeps its weight
        observed, free = set(facts.observed_predicates()), []
        for statement in rules:
            kind = statement.kind if isinstance(statement, WeightedFormula) else "rule"
            if kind == "learn" or (options.learn_weights and kind != "hard"):
                free.append(kind == "learn" or observed.issuperset(predicates_of(statement)))
        mask = torch.tensor(free, dtype=weights.learned.dtype)
        weights.learned.register_hook(lambda gradient: gradient * mask)  # type: ignore[no-untyped-call]
        return weights

    @property
    def rules(self) -> RuleSet:
        """The statements with the weights that were learned; scaled ones as formulas with the weights they count by."""
        return self.weights.as_rules(self._given)

    def scale(self, members: Members) -> None:
        """Divide weights by the mean size of the messages that a formula of weight 1 sends at the start, if over 1.

        ``w_f ← w_f / max(1, size_f)^scaling_power``, where size_f is the largest mean over the predicates of f.
        ``learn`` formulas are left as they are: learning finds their scale.
        """
        potentials = self._start(members)
        evidence = self.evidence(members)
        scaled: list[Statement] = []
        for number, statement in enumerate(self._given):
            weight = self.weights.value(number)
            for formula in formulas_of(statement):
                alone = WeightedFormula(formula, "soft", 1.0)
                rules = RuleSet([alone], predicates=self.facts.rules.predicates)
                layer = LogicLayer(rules, self.domains(members), 1, memory_limit=self.options.memory_limit)
                given = {name: each for name, each in potentials.items() if not isinstance(evidence.get(name), Tensor)}
                found = layer(given, evidence)
                sizes = [_mean_size(found[name] - given[name], evidence.get(name)) for name in given]
                kept = WeightedFormula(formula, "soft", weight / max([1.0, *sizes]) ** self.options.scaling_power)
                soft = not isinstance(statement, WeightedFormula) or statement.kind == "soft"
                scaled.append(kept if soft else statement)
        self._given = RuleSet(scaled, predicates=self.facts.rules.predicates)
        self.weights = self._new_weights(self._given)
        self._layers.clear()

    def domains(self, members: Members) -> dict[str, list[str]]:
        """Return the names of entities of the types that the rules name constants of."""
        domains = self.facts.kb.domains
        return {kind: domains[kind].labels_of(members[kind]).tolist() for kind in self.facts.constants}

    def layer(self, members: Members) -> LogicLayer:
        """Return the layer for some entities; all layers share the weights."""
        key = _key({kind: members[kind] for kind in self.facts.constants})
        if key not in self._layers:
            options = self.options
            layer = LogicLayer(
                self._given,
                self.domains(members),
                options.iterations,
                damping=options.damping,
                tolerance=options.tolerance,
                hard_weight=options.hard_weight,
                memory_limit=options.memory_limit,
            )
            layer.weights = self.weights
            if len(self._layers) >= KEPT_LAYERS:
                del self._layers[next(iter(self._layers))]
            self._layers[key] = layer
        return self._layers[key]

    def named_layer(self, members: Members) -> LogicLayer:
        """Return a layer that knows the names of all entities and was called on them, to be asked for explanations."""
        layer = copy(self.layer(members))
        domains = self.facts.kb.domains
        layer.grounding = Grounding(
            self._given, domains={kind: domains[kind].labels_of(ids).tolist() for kind, ids in members.items()}
        )
        evidence = self.evidence(members)
        potentials = self.potentials(members)
        layer({name: each for name, each in potentials.items() if not isinstance(evidence.get(name), Tensor)}, evidence)
        return layer

    def evidence(self, members: Members) -> dict[str, Observation]:
        """Return what is observed of some entities."""
        key = _key(members)
        if key not in self._evidence:
            if len(self._evidence) >= KEPT_LAYERS:
                del self._evidence[next(iter(self._evidence))]
            self._evidence[key] = self.facts.evidence(members)
        return self._evidence[key]

    def potentials(self, members: Members, *, opened: str | None = None) -> dict[str, Tensor]:
        """Return the potentials of the layer, without what is known of the predicate ``opened``."""
        kb, edges = self.facts.kb, None
        if opened is not None and opened in kb.predicates and isinstance(self.encoder, GraphEncoder):
            edges = edges_of(kb, {opened: np.ones(kb.count(opened), dtype=bool)})
        return self.trusted(self.encoder(members, edges))

    def trusted(self, found: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the share of the encoder's log-odds that enters the layer: ``prior + trust · (φ − prior)``."""
        trust = self.options.trust if self.options.encoder != "none" else 1.0
        return {name: torch.lerp(torch.full_like(each, self._prior[name]), each, trust) for name, each in found.items()}

    def infer(
        self, members: Members, potentials: Mapping[str, Tensor], *, opened: str | None = None
    ) -> dict[str, Tensor]:
        """Return the log-odds of all atoms over some entities; nothing is taken as known of ``opened``."""
        evidence = {name: each for name, each in self.evidence(members).items() if name != opened}
        given = {name: each for name, each in potentials.items() if not isinstance(evidence.get(name), Tensor)}
        layer = self.layer(members)
        training = torch.is_grad_enabled()
        layer.tolerance = None if training else self.options.tolerance  # to stop early would save no gradient
        found: dict[str, Tensor] = layer(given, evidence)
        if layer.convergence is not None and not training:
            self.convergence.append(layer.convergence)
        for name, each in evidence.items():
            if isinstance(each, Tensor):
                found[name] = torch.where(each, CERTAIN, -CERTAIN)
        return found


def closed_predicates(facts: GroundFacts, closed: tuple[str, ...] | str) -> frozenset[str]:
    """Return what is read as closed: the given names, or all predicates with true facts and none observed false."""
    if closed != "listed":
        return frozenset(closed)
    return frozenset(
        name for name in facts.declared if facts.count(name, truth=True) and not facts.count(name, truth=False)
    )


def priors(facts: GroundFacts, prior: float | Mapping[str, float] | str) -> dict[str, float]:
    """Return each predicate's prior log-odds.

    With ``"density"`` they are ``log (t + ½) / (f + ½)`` for t true and f false facts, where what is not observed
    counts as false unless false facts are listed; a predicate without facts has those of all that have as many
    arguments, and 0 where there are none.
    """
    if isinstance(prior, int | float):
        return dict.fromkeys(facts.declared, float(prior))
    if not isinstance(prior, str):
        for name in prior:
            if name not in facts.declared:
                raise unknown_name("predicate", name, facts.declared)
        return {name: float(prior.get(name, 0.0)) for name in facts.declared}
    counts: dict[str, tuple[int, int]] = {}
    for name, each in facts.declared.items():
        true, false = facts.count(name, truth=True), facts.count(name, truth=False)
        if not false:
            atoms = 0
            for members in facts.worlds():
                atoms += torch.Size([len(members[kind]) for kind in each.types]).numel()
            false = max(atoms - true, 0)
        if true or facts.count(name):
            counts[name] = (true, false)
    found = {}
    for name, each in facts.declared.items():
        alike = [counts[other] for other, one in facts.declared.items() if other in counts and one.arity == each.arity]
        true, false = counts.get(name) or (sum(one for one, _ in alike), sum(other for _, other in alike))
        found[name] = log((true + 0.5) / (false + 0.5))
    return found


def _mean_size(change: Tensor, observation: Observation | None) -> float:
    """Return the mean absolute message of the atoms that get one and are not observed."""
    reached = change != 0
    if isinstance(observation, tuple):
        reached &= ~observation[1]
    return float(change[reached].abs().mean()) if bool(reached.any()) else 0.0


def _key(members: Members) -> tuple[tuple[str, bytes], ...]:
    return tuple((kind, ids.tobytes()) for kind, ids in members.items())
