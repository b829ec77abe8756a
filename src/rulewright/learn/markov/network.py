"""A Markov logic network over the facts of a knowledge base: encoders, weights and the layer that joins them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from math import log, prod
from string import ascii_lowercase
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from rulewright.data import KnowledgeBase
from rulewright.inject.atom_space import Domains, statement_formulas
from rulewright.inject.inputs import CERTAIN, Observation
from rulewright.inject.layer.layer import LogicLayer, Weights
from rulewright.inject.layer.schedule import Convergence
from rulewright.learn.markov.facts import GroundFacts, Members, statement_atoms
from rulewright.learn.markov.parameters import MarkovParameters
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration, RuleSet, Statement, WeightedFormula

Declarations: TypeAlias = Mapping[str, PredicateDeclaration]
Edges: TypeAlias = Sequence[tuple[Tensor, Tensor]]

START = 0.1
"""How far from the prior an untrained encoder is."""

KEPT_LAYERS = 8
"""The most layers, and evidence, that are kept for domains that may come again."""


class ConstantEncoder(nn.Module):
    """The same log-odds for all atoms of a predicate: ``φ(p(…)) = prior_p``."""

    def __init__(self, declared: Declarations, prior: Mapping[str, float]) -> None:
        super().__init__()
        self._declared, self._prior = declared, dict(prior)

    def forward(self, members: Members, graph: Edges | None = None) -> dict[str, Tensor]:
        """Return the log-odds of all atoms over some entities."""
        return {
            name: torch.full([len(members[type_name]) for type_name in declaration.types], self._prior[name])
            for name, declaration in self._declared.items()
        }


class AtomScorer(nn.Module):
    """Log-odds of atoms from the states of their entities, for any arity.

    ``φ(p(e_1, …, e_k)) = prior_p + Σ_i u_pi · h_i + Σ_d Π_i (W_pi h_i)_d``, where h_i is the state of e_i.
    """

    def __init__(self, declared: Declarations, prior: Mapping[str, float], size: int) -> None:
        super().__init__()
        self._declared, self._prior = declared, dict(prior)
        self.linear = nn.ParameterList()
        self.factors = nn.ParameterList()
        for declaration in declared.values():
            scale = START * size**-0.5
            self.linear.append(nn.Parameter(torch.randn(declaration.arity, size) * scale))
            self.factors.append(nn.Parameter(torch.randn(declaration.arity, size, size) * scale))

    def forward(self, states: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the log-odds of all atoms over entities with the given states, ``[N, size]`` for each type."""
        logits = {}
        for index, (name, declaration) in enumerate(self._declared.items()):
            parts = [states[type_name] for type_name in declaration.types]
            total = torch.full([len(part) for part in parts], self._prior[name])
            for position, part in enumerate(parts):
                shape = [-1 if position == other else 1 for other in range(declaration.arity)]
                total = total + (part @ self.linear[index][position]).view(shape)
            if declaration.arity > 1:
                letters = ascii_lowercase[: declaration.arity]
                equation = f"{','.join(letter + 'z' for letter in letters)}->{letters}"
                turned = [part @ self.factors[index][position] for position, part in enumerate(parts)]
                total = total + torch.einsum(equation, *turned)
            logits[name] = total
        return logits


class EmbeddingEncoder(nn.Module):
    """A learned state for every entity, and an `AtomScorer`: knows entities by heart, nothing beyond."""

    def __init__(self, kb: KnowledgeBase, declared: Declarations, prior: Mapping[str, float], size: int) -> None:
        super().__init__()
        self.states = nn.Parameter(torch.randn(kb.n_entities, size) * 0.1)
        self.scorer = AtomScorer(declared, prior, size)

    def forward(self, members: Members, graph: Edges | None = None) -> dict[str, Tensor]:
        """Return the log-odds of all atoms over some entities."""
        logits: dict[str, Tensor] = self.scorer(
            {type_name: self.states[_as_index(ids)] for type_name, ids in members.items()}
        )
        return logits


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
        types = [np.full(len(domain), index) for index, domain in enumerate(kb.domains.values())]
        self.register_buffer("type_indices", torch.from_numpy(np.concatenate(types)))
        self.start = nn.Parameter(torch.randn(len(types), size))
        scale = size**-0.5
        self.own = nn.Parameter(torch.randn(rounds, size, size) * scale)
        self.turned = nn.Parameter(torch.randn(rounds, relations, size, size) * scale / max(relations, 1) ** 0.5)
        self.counted = nn.Parameter(torch.randn(rounds, relations, size) * scale)
        self.scorer = AtomScorer(declared, prior, size)
        self.graph = fact_edges(kb)

    def forward(self, members: Members, graph: Edges | None = None) -> dict[str, Tensor]:
        """Return the log-odds of all atoms over some entities, given the facts, or other edges instead of them."""
        states = self.start[self.type_indices]  # type: ignore[index]
        for step in range(len(self.own)):
            total = states @ self.own[step]
            for slot, (source, target) in enumerate(self.graph if graph is None else graph):
                if not len(source):
                    continue
                degree = torch.zeros(len(states)).index_add_(0, target, torch.ones(len(target)))
                summed = torch.zeros_like(states).index_add(0, target, states[source])
                mean = summed / degree.clamp(min=1)[:, None]
                total = total + mean @ self.turned[step, slot] + degree.log1p()[:, None] * self.counted[step, slot]
            states = torch.tanh(total)
        logits: dict[str, Tensor] = self.scorer(
            {type_name: states[_as_index(ids)] for type_name, ids in members.items()}
        )
        return logits


def relation_slots(kb: KnowledgeBase) -> list[tuple[str, int, int]]:
    """Return the ways from an entity to another through a fact: a predicate, and two of its positions.

    A predicate of one argument leads from an entity to itself.
    """
    slots: list[tuple[str, int, int]] = []
    for name, declaration in kb.predicates.items():
        positions = [position for position, type_name in enumerate(declaration.types) if type_name != NUMBER_TYPE]
        pairs = permutations(positions, 2) if len(positions) > 1 else ((position, position) for position in positions)
        slots += [(name, *pair) for pair in pairs]
    return slots


def fact_edges(kb: KnowledgeBase, hidden: Mapping[str, Any] | None = None) -> Edges:
    """Return the edges of the true facts for each of `relation_slots`; ``hidden[p]`` marks rows to leave out."""
    edges = []
    for name, source, target in relation_slots(kb):
        columns = kb.columns(name)
        keep = slice(None) if hidden is None or name not in hidden else ~hidden[name]
        edges.append((_as_index(columns[source][keep]), _as_index(columns[target][keep])))
    return edges


def _as_index(ids: Any) -> Tensor:
    return torch.from_numpy(np.asarray(ids, dtype=np.int64))


class MarkovNetwork:
    """Facts, rules with weights, and potentials; `infer` sends the messages over any entities."""

    def __init__(self, facts: GroundFacts, parameters: MarkovParameters) -> None:
        self.facts, self.parameters = facts, parameters
        torch.manual_seed(parameters.seed)
        self._prior = read_priors(facts, parameters.prior)
        self._start = ConstantEncoder(facts.declared, self._prior)
        self.encoder: ConstantEncoder | EmbeddingEncoder | GraphEncoder = self._start
        if parameters.encoder == "embedding":
            self.encoder = EmbeddingEncoder(facts.kb, facts.declared, self._prior, parameters.size)
        elif parameters.encoder == "gnn":
            self.encoder = GraphEncoder(facts.kb, facts.declared, self._prior, parameters.size)
        self._layers: dict[tuple[tuple[str, bytes], ...], LogicLayer] = {}
        self._evidence: dict[tuple[tuple[str, bytes], ...], dict[str, Observation]] = {}
        self.convergence: list[Convergence] = []
        self._statements = facts.rules
        self.weights = self._make_weights()

    def _make_weights(self) -> Weights:
        parameters, facts = self.parameters, self.facts
        weights = Weights(
            self._statements,
            weights=parameters.weights,
            hard_weight=parameters.hard_weight,
            learnable=parameters.learn_weights,
        )
        if weights.learned is None:
            return weights
        # A predicate that is never observed could turn into its own negation: what names it keeps its weight
        observed, is_free = set(facts.observed_predicates()), []
        for statement in self._statements:
            strength = statement.kind if isinstance(statement, WeightedFormula) else "rule"
            if strength == "learn" or (parameters.learn_weights and strength != "hard"):
                names = {str(atom.predicate) for atom in statement_atoms(statement)}
                is_free.append(strength == "learn" or names <= observed)
        mask = torch.tensor(is_free, dtype=weights.learned.dtype)
        weights.learned.register_hook(lambda gradient: gradient * mask)  # type: ignore[no-untyped-call]
        return weights

    @property
    def rules(self) -> RuleSet:
        """The statements with the weights that were learned; scaled ones as formulas with the weights they count by."""
        return self.weights.write_into(self._statements)

    def scale(self, members: Members) -> None:
        """Divide weights by the mean size of the messages that a formula of weight 1 sends at the start, if over 1.

        ``w_f ← w_f / max(1, size_f)^scaling_power``, where size_f is the largest mean over the predicates of f.
        ``learn`` formulas are left as they are: learning finds their scale.
        """
        evidence = self.evidence(members)
        given = keep_open(self._start(members), evidence)
        scaled: list[Statement] = []
        for index, statement in enumerate(self._statements):
            is_soft = not isinstance(statement, WeightedFormula) or statement.kind == "soft"
            for formula in statement_formulas(statement):
                alone = RuleSet([WeightedFormula(formula, "soft", 1.0)], predicates=self.facts.rules.predicates)
                layer = LogicLayer(alone, self.domains(members), 1, memory_limit=self.parameters.memory_limit)
                logits = layer(given, evidence)
                sizes = [_mean_size(logits[name] - given[name], evidence.get(name)) for name in given]
                weight = self.weights.value(index) / max([1.0, *sizes]) ** self.parameters.scaling_power
                scaled.append(WeightedFormula(formula, "soft", weight) if is_soft else statement)
        self._statements = RuleSet(scaled, predicates=self.facts.rules.predicates)
        self.weights = self._make_weights()
        self._layers.clear()

    def domains(self, members: Members, types: Sequence[str] | None = None) -> dict[str, list[str]]:
        """Return the names of entities of some types; by default of those that the rules name constants of."""
        domains = self.facts.kb.domains
        chosen = self.facts.constants if types is None else types
        return {type_name: domains[type_name].labels_of(members[type_name]).tolist() for type_name in chosen}

    def layer(self, members: Members) -> LogicLayer:
        """Return the layer for some entities; all layers share the weights."""
        key = _members_key({type_name: members[type_name] for type_name in self.facts.constants})
        if key not in self._layers:
            if len(self._layers) >= KEPT_LAYERS:
                del self._layers[next(iter(self._layers))]
            self._layers[key] = self._make_layer(self.domains(members))
        return self._layers[key]

    def _make_layer(self, domains: Domains) -> LogicLayer:
        parameters = self.parameters
        layer = LogicLayer(
            self._statements,
            domains,
            parameters.iterations,
            damping=parameters.damping,
            tolerance=parameters.tolerance,
            hard_weight=parameters.hard_weight,
            memory_limit=parameters.memory_limit,
        )
        layer.weights = self.weights
        layer.has_warned = True  # `convergence_` says it
        return layer

    def explain(self, members: Members, atom: str, *, top: int) -> str:
        """Say which formulas and groundings moved an atom most."""
        layer = self._make_layer(self.domains(members, [*members]))
        evidence = self.evidence(members)
        layer(keep_open(self.potentials(members), evidence), evidence)
        return str(layer.explain(atom, top=top))

    def evidence(self, members: Members) -> dict[str, Observation]:
        """Return what is observed of some entities."""
        key = _members_key(members)
        if key not in self._evidence:
            if len(self._evidence) >= KEPT_LAYERS:
                del self._evidence[next(iter(self._evidence))]
            self._evidence[key] = self.facts.evidence(members)
        return self._evidence[key]

    def potentials(self, members: Members, *, opened: str | None = None) -> dict[str, Tensor]:
        """Return the potentials of the layer, without what is known of the predicate ``opened``."""
        kb, edges = self.facts.kb, None
        if opened is not None and opened in kb.predicates and isinstance(self.encoder, GraphEncoder):
            edges = fact_edges(kb, {opened: np.ones(kb.count(opened), dtype=bool)})
        return self.trust(self.encoder(members, edges))

    def trust(self, logits: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the share of the encoder's log-odds that enters the layer: ``prior + trust · (φ − prior)``."""
        share = self.parameters.trust if self.parameters.encoder != "none" else 1.0
        return {
            name: torch.lerp(torch.full_like(given, self._prior[name]), given, share) for name, given in logits.items()
        }

    def infer(
        self, members: Members, potentials: Mapping[str, Tensor], *, opened: str | None = None
    ) -> dict[str, Tensor]:
        """Return the log-odds of all atoms over some entities; nothing is taken as known of ``opened``."""
        evidence = {name: known for name, known in self.evidence(members).items() if name != opened}
        layer = self.layer(members)
        is_training = torch.is_grad_enabled()
        layer.tolerance = None if is_training else self.parameters.tolerance  # to stop early would save no gradient
        logits: dict[str, Tensor] = layer(keep_open(potentials, evidence), evidence)
        if layer.convergence is not None and not is_training:
            self.convergence.append(layer.convergence)
        for name, known in evidence.items():
            if isinstance(known, Tensor):
                logits[name] = torch.where(known, CERTAIN, -CERTAIN)
        return logits


def keep_open(logits: Mapping[str, Tensor], evidence: Mapping[str, Observation]) -> dict[str, Tensor]:
    """Return the log-odds of the predicates that are not observed everywhere."""
    return {name: given for name, given in logits.items() if not isinstance(evidence.get(name), Tensor)}


def read_priors(facts: GroundFacts, prior: float | Mapping[str, float] | str) -> dict[str, float]:
    """Return each predicate's prior log-odds.

    With ``"density"`` they are ``log (t + ½) / (f + ½)`` for t true and f false facts, where what is not observed
    counts as false unless false facts are listed; a predicate without facts has those of all that have as many
    arguments, and 0 where there are none.
    """
    if isinstance(prior, int | float):
        return dict.fromkeys(facts.declared, float(prior))
    if not isinstance(prior, str):
        for name in prior:
            facts.declaration(name)
        return {name: float(prior.get(name, 0.0)) for name in facts.declared}
    counts: dict[str, tuple[int, int]] = {}
    for name, declaration in facts.declared.items():
        true, false = facts.count(name, truth=True), facts.count(name, truth=False)
        if true or false:
            atoms = sum(prod(len(world[type_name]) for type_name in declaration.types) for world in facts.worlds())
            counts[name] = (true, false or max(atoms - true, 0))
    priors = {}
    for name, declaration in facts.declared.items():
        alike = [count for other, count in counts.items() if facts.declared[other].arity == declaration.arity]
        true, false = counts.get(name) or (sum(true for true, _ in alike), sum(false for _, false in alike))
        priors[name] = log((true + 0.5) / (false + 0.5))
    return priors


def _mean_size(change: Tensor, observation: Observation | None) -> float:
    """Return the mean absolute message of the atoms that get one and are not observed."""
    reached = change != 0
    if isinstance(observation, tuple):
        reached &= ~observation[1]
    return float(change[reached].abs().mean()) if bool(reached.any()) else 0.0


def _members_key(members: Members) -> tuple[tuple[str, bytes], ...]:
    return tuple((type_name, ids.tobytes()) for type_name, ids in members.items())
