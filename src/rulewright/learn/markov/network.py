"""A Markov logic network over the facts of a knowledge base: an encoder, weights and the layer that joins them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from math import log, prod
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from rulewright.errors import DataError
from rulewright.inject.atom_space import Domains, statement_formulas
from rulewright.inject.inputs import CERTAIN, Observation
from rulewright.inject.layer.layer import LogicLayer, Weights
from rulewright.inject.layer.schedule import Convergence
from rulewright.learn.markov.encoders import (
    Atoms,
    AtomTable,
    ConstantEncoder,
    Edges,
    EmbeddingEncoder,
    GraphEncoder,
    fact_edges,
)
from rulewright.learn.markov.facts import GroundFacts, Members, statement_atoms
from rulewright.learn.markov.parameters import MarkovParameters
from rulewright.logic import RuleSet, Statement, WeightedFormula

Encoder: TypeAlias = ConstantEncoder | EmbeddingEncoder | GraphEncoder | AtomTable

KEPT_LAYERS = 8
"""The most layers, and evidence, that are kept for domains that may come again."""


class MarkovNetwork:
    """Facts, rules with weights, and potentials; `infer` sends the messages over any entities."""

    def __init__(self, facts: GroundFacts, parameters: MarkovParameters) -> None:
        self.facts, self.parameters = facts, parameters
        torch.manual_seed(parameters.seed)
        self._prior = read_priors(facts, parameters.prior)
        used = {name: declared for name, declared in facts.declared.items() if name in facts.used}
        self._start = ConstantEncoder(used, self._prior)
        self.encoder: Encoder = self._start
        size, slices = parameters.size, parameters.slices
        if parameters.encoder == "embedding":
            self.encoder = EmbeddingEncoder(facts.kb, facts.declared, self._prior, size, slices)
        elif parameters.encoder == "gnn":
            self.encoder = GraphEncoder(facts.kb, facts.declared, self._prior, size, slices)
        elif parameters.training == "sampled":
            self.encoder = AtomTable(facts.declared, self._prior)
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
    def statements(self) -> RuleSet:
        """The statements that messages are sent for, in the order of their weights."""
        return self._statements

    def close(self, names: Iterable[str]) -> None:
        """Read other predicates as closed than before."""
        self.facts.close(names)
        self._evidence.clear()

    def prior(self, name: str) -> Tensor:
        """Return the log-odds, or logits of classes, of a predicate's atoms of which nothing is known."""
        return self._prior[name]

    def identity(self) -> dict[str, Any]:
        """Return what a training run is: all that its result depends on, facts and rules by a digest."""
        digest = sha256("\n".join(map(str, self._statements)).encode())
        for name in sorted(self.facts.declared):
            columns, values = self.facts.known(name)
            digest.update(str(self.facts.declared[name]).encode())
            for column in (*columns, values):
                digest.update(column.tobytes())
        for domain in self.facts.kb.domains.values():
            digest.update("\0".join(map(str, (domain.name, *domain.labels))).encode())
        left_out = {"rules", "closed", "prior", "progress", "memory_limit", "epochs", "rate", "seed"}
        parameters = {name: value for name, value in self.parameters.get_params().items() if name not in left_out}
        return {
            # under names of their own: the loop has parameters that are called alike
            **{f"markov_{name}": value for name, value in parameters.items()},
            "weights": [self.weights.value(index) for index in range(len(self._statements))],
            "prior": {name: self._prior[name].tolist() for name in sorted(self._prior)},
            "closed": sorted(self.facts.closed),
            "facts_and_rules": digest.hexdigest(),
        }

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
                sizes = []
                for name in given:
                    change = logits[name] - given[name]
                    if self.facts.declared[name].classes is not None:
                        change = change.amax(-1) - change.amin(-1)
                    sizes.append(_mean_size(change, evidence.get(name)))
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
            self._layers[key] = self.make_layer(self.domains(members))
        return self._layers[key]

    def make_layer(self, domains: Domains, closed: Iterable[str] = ()) -> LogicLayer:
        """Return a layer over some domains, with the weights that are learned."""
        parameters = self.parameters
        layer = LogicLayer(
            RuleSet(self._statements.statements, predicates=self._statements.predicates, closed=closed),
            domains,
            parameters.iterations,
            damping=parameters.damping,
            tolerance=parameters.tolerance,
            hard_weight=parameters.hard_weight,
            messages=parameters.messages,
            draws=parameters.draws,
            observed_odds=parameters.observed_odds,
            memory_limit=parameters.memory_limit,
        )
        layer.weights = self.weights
        layer.has_warned = True  # `convergence_` says it
        return layer

    def explain(self, members: Members, atom: str, *, top: int) -> str:
        """Say which formulas and groundings moved an atom most."""
        layer = self.make_layer(self.domains(members, [*members]))
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
        encoder = self._start if isinstance(self.encoder, AtomTable) else self.encoder  # a table is filled later
        return self.trust(encoder(members, self._edges_without(opened)))

    def potentials_of(self, atoms: Atoms, *, opened: str | None = None) -> dict[str, Tensor]:
        """Return the potentials of some atoms, without what is known of the predicate ``opened``."""
        return self.trust(self.encoder.score(atoms, self._edges_without(opened)))

    def _edges_without(self, opened: str | None) -> Edges | None:
        kb = self.facts.kb
        if opened is None or opened not in kb.predicates or not isinstance(self.encoder, GraphEncoder):
            return None
        return fact_edges(kb, {opened: np.ones(kb.count(opened), dtype=bool)})

    def clamp(self, atoms: Atoms, logits: Mapping[str, Tensor], *, opened: str | None = None) -> dict[str, Tensor]:
        """Return the log-odds of atoms with those that are observed certain."""
        clamped = {}
        for name, columns in atoms.items():
            clamped[name] = logits[name]
            if name == opened:
                continue
            states = torch.from_numpy(self.facts.states(name, columns))
            classes = self.facts.declared[name].classes
            if classes is None:
                certain = torch.where(states > 0, CERTAIN, -CERTAIN)
            else:
                certain = torch.where(states[:, None] == torch.arange(len(classes)), CERTAIN, -CERTAIN)
                states = states[:, None]
            clamped[name] = torch.where(states < 0, logits[name], certain)
        return clamped

    def trust(self, logits: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the share of the encoder's log-odds that enters the layer: ``prior + trust · (φ − prior)``."""
        share = self.parameters.trust if self.parameters.encoder != "none" else 1.0
        return {name: torch.lerp(self._prior[name].expand_as(given), given, share) for name, given in logits.items()}

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


def read_priors(facts: GroundFacts, prior: float | Mapping[str, float] | str) -> dict[str, Tensor]:
    """Return each predicate's prior log-odds, or logits of its classes.

    With ``"density"`` they are ``log (t + ½) / (f + ½)`` for t true and f false facts, where what is not observed
    counts as false unless false facts are listed; a predicate without facts has those of all that have as many
    arguments, and 0 where there are none. Of a predicate with classes they are ``log (n_k + ½)`` for the n_k facts of
    each class; a number is no prior of classes, which are alike then.
    """
    by_class = {
        name: torch.zeros(len(declaration.classes))
        for name, declaration in facts.declared.items()
        if declaration.classes is not None
    }
    if isinstance(prior, int | float):
        return {name: by_class.get(name, torch.tensor(float(prior))) for name in facts.declared}
    if not isinstance(prior, str):
        for name in prior:
            if facts.declaration(name).classes is not None:
                raise DataError(f"prior is the log-odds of what is true or false, and {name} has classes")
        return {name: by_class.get(name, torch.tensor(float(prior.get(name, 0.0)))) for name in facts.declared}
    counts: dict[str, tuple[int, int]] = {}
    for name, declaration in facts.declared.items():
        if name in by_class:
            found = np.bincount(facts.known(name)[1], minlength=len(by_class[name]))
            by_class[name] = torch.from_numpy(np.log(found + 0.5)).to(by_class[name].dtype)
            continue
        true, false = facts.count(name, truth=True), facts.count(name, truth=False)
        if true or false:
            atoms = sum(prod(len(world[type_name]) for type_name in declaration.types) for world in facts.worlds())
            counts[name] = (true, false or max(atoms - true, 0))
    priors = dict(by_class)
    for name, declaration in facts.declared.items():
        if name in by_class:
            continue
        alike = [count for other, count in counts.items() if facts.declared[other].arity == declaration.arity]
        true, false = counts.get(name) or (sum(true for true, _ in alike), sum(false for _, false in alike))
        priors[name] = torch.tensor(log((true + 0.5) / (false + 0.5)))
    return priors


def _mean_size(change: Tensor, observation: Observation | None) -> float:
    """Return the mean absolute message of the atoms that get one and are not observed."""
    reached = change != 0
    if isinstance(observation, tuple):
        reached &= ~observation[1]
    return float(change[reached].abs().mean()) if bool(reached.any()) else 0.0


def _members_key(members: Members) -> tuple[tuple[str, bytes], ...]:
    return tuple((type_name, ids.tobytes()) for type_name, ids in members.items())
