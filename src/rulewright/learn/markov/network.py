"""A Markov logic network over the facts of a knowledge base: potentials, weights and the layer that joins them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from math import log
from string import ascii_lowercase
from typing import Any, TypeAlias
from typing import Literal as OneOf

import numpy as np
import torch
from torch import Tensor, nn

from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, unknown_name
from rulewright.inject.layer.grounding import statement_formulas
from rulewright.inject.layer.inputs import CERTAIN, Observation
from rulewright.inject.layer.layer import Convergence, LogicLayer, Weights
from rulewright.learn.markov.facts import GroundFacts, Members, predicates_of
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration, RuleSet, Statement, WeightedFormula

Declarations: TypeAlias = Mapping[str, PredicateDeclaration]
Edges: TypeAlias = Sequence[tuple[Tensor, Tensor]]

START = 0.1
"""How far from the prior an untrained encoder is."""


class ConstantEncoder(nn.Module):
    """The same log-odds for all atoms of a predicate: ``φ(p(…)) = prior_p``."""

    def __init__(self, declared: Declarations, prior: Mapping[str, float]) -> None:
        super().__init__()
        self._declared, self._prior = declared, dict(prior)

    def forward(self, members: Members, graph: Edges | None = None) -> dict[str, Tensor]:
        """Return the log-odds of all atoms over some entities."""
        return {
            name: torch.full([len(members[kind]) for kind in each.types], self._prior[name])
            for name, each in self._declared.items()
        }


class AtomScorer(nn.Module):
    """Log-odds of atoms from the states of their entities, for any arity.

    ``φ(p(e_1, …, e_k)) = prior_p + Σ_i u_pi · h_i + Σ_d Π_i (W_pi h_i)_d``, where h_i is the state of e_i.
    """

    def __init__(self, declared: Declarations, prior: Mapping[str, float], size: int) -> None:
        super().__init__()
        self._declared, self._prior = declared, dict(prior)
        self._names = list(declared)
        self.linear = nn.ParameterList()
        self.factors = nn.ParameterList()
        for each in declared.values():
            scale = START * size**-0.5
            self.linear.append(nn.Parameter(torch.randn(each.arity, size) * scale))
            self.factors.append(nn.Parameter(torch.randn(each.arity, size, size) * scale))

    def forward(self, states: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the log-odds of all atoms over entities with the given states, ``[N, size]`` for each type."""
        found = {}
        for number, (name, each) in enumerate(self._declared.items()):
            parts = [states[kind] for kind in each.types]
            total = torch.full([len(part) for part in parts], self._prior[name])
            for place, part in enumerate(parts):
                shape = [-1 if place == other else 1 for other in range(each.arity)]
                total = total + (part @ self.linear[number][place]).view(shape)
            if each.arity > 1:
                letters = ascii_lowercase[: each.arity]
                equation = f"{','.join(letter + 'z' for letter in letters)}->{letters}"
                turned = [part @ self.factors[number][place] for place, part in enumerate(parts)]
                total = total + torch.einsum(equation, *turned)
            found[name] = total
        return found


class EmbeddingEncoder(nn.Module):
    """A learned state for every entity, and an `AtomScorer`: knows entities by heart, nothing beyond."""

    def __init__(self, kb: KnowledgeBase, declared: Declarations, prior: Mapping[str, float], size: int) -> None:
        super().__init__()
        self.states = nn.Parameter(torch.randn(kb.n_entities, size) * 0.1)
        self.scorer = AtomScorer(declared, prior, size)

    def forward(self, members: Members, graph: Edges | None = None) -> dict[str, Tensor]:
        """Return the log-odds of all atoms over some entities."""
        found: dict[str, Tensor] = self.scorer({kind: self.states[_index(ids)] for kind, ids in members.items()})
        return found


class GraphEncoder(nn.Module):
    """States from the observed facts around an entity, by two rounds of relational graph convolution.

    ``h_e ← tanh(W_0 h_e + Σ_r W_r mean_{e' ∈ N_r(e)} h_e' + Σ_r b_r log(1 + |N_r(e)|))``, where r runs over the pairs
    of positions of every predicate. Entities with the same facts around them get the same state.
    """

    def __init__(
        self, kb: KnowledgeBase, declared: Declarations, prior: Mapping[str, float], size: int, rounds: int = 2
    ) -> None:
        super().__init__()
        relations = len(relation_slots(kb))
        kinds = [np.full(len(domain), number) for number, domain in enumerate(kb.domains.values())]
        self.register_buffer("kind", torch.from_numpy(np.concatenate(kinds)))
        self.start = nn.Parameter(torch.randn(len(kinds), size))
        scale = size**-0.5
        self.own = nn.Parameter(torch.randn(rounds, size, size) * scale)
        self.turned = nn.Parameter(torch.randn(rounds, relations, size, size) * scale / max(relations, 1) ** 0.5)
        self.counted = nn.Parameter(torch.randn(rounds, relations, size) * scale)
        self.scorer = AtomScorer(declared, prior, size)
        self.graph = edges_of(kb)

    def forward(self, members: Members, graph: Edges | None = None) -> dict[str, Tensor]:
        """Return the log-odds of all atoms over some entities, given the facts, or other edges in their place."""
        edges = self.graph if graph is None else graph
        states = self.start[self.kind]  # type: ignore[index]
        for step in range(len(self.own)):
            total = states @ self.own[step]
            for number, (source, target) in enumerate(edges):
                if not len(source):
                    continue
                degree = torch.zeros(len(states)).index_add_(0, target, torch.ones(len(target)))
                summed = torch.zeros_like(states).index_add(0, target, states[source])
                mean = summed / degree.clamp(min=1)[:, None]
                total = total + mean @ self.turned[step, number] + degree.log1p()[:, None] * self.counted[step, number]
            states = torch.tanh(total)
        found: dict[str, Tensor] = self.scorer({kind: states[_index(ids)] for kind, ids in members.items()})
        return found


def relation_slots(kb: KnowledgeBase) -> list[tuple[str, int, int]]:
    """Return the ways from an entity to another through a fact: a predicate, and two of its positions.

    A predicate of one argument leads from an entity to itself.
    """
    found: list[tuple[str, int, int]] = []
    for name, each in kb.predicates.items():
        places = [place for place, kind in enumerate(each.types) if kind != NUMBER_TYPE]
        pairs = permutations(places, 2) if len(places) > 1 else ((place, place) for place in places)
        found += [(name, *pair) for pair in pairs]
    return found


def edges_of(kb: KnowledgeBase, hidden: Mapping[str, Any] | None = None) -> Edges:
    """Return the edges of the true facts for each of `relation_slots`; ``hidden[p]`` marks rows to leave out."""
    found = []
    for name, source, target in relation_slots(kb):
        columns = kb.columns(name)
        keep = slice(None) if hidden is None or name not in hidden else ~hidden[name]
        found.append((_index(columns[source][keep]), _index(columns[target][keep])))
    return found


def _index(ids: Any) -> Tensor:
    return torch.from_numpy(np.asarray(ids, dtype=np.int64))


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
            rules, weights=options.weights, hard_weight=options.hard_weight, learnable=options.learn_weights
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
        return self.weights.write_into(self._given)

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
            for formula in statement_formulas(statement):
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
            if len(self._layers) >= KEPT_LAYERS:
                del self._layers[next(iter(self._layers))]
            self._layers[key] = self._make_layer(self.domains(members))
        return self._layers[key]

    def _make_layer(self, domains: Mapping[str, Sequence[str]]) -> LogicLayer:
        options = self.options
        layer = LogicLayer(
            self._given,
            domains,
            options.iterations,
            damping=options.damping,
            tolerance=options.tolerance,
            hard_weight=options.hard_weight,
            memory_limit=options.memory_limit,
        )
        layer.weights = self.weights
        return layer

    def named_layer(self, members: Members) -> LogicLayer:
        """Return a layer that knows the names of all entities and was called on them, to be asked for explanations."""
        domains = self.facts.kb.domains
        layer = self._make_layer({kind: domains[kind].labels_of(ids).tolist() for kind, ids in members.items()})
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
