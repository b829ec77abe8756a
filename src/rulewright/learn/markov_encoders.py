"""Where the layer's potentials come from: a constant for each predicate, embeddings, or a small graph network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from string import ascii_lowercase
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from rulewright.data import KnowledgeBase
from rulewright.learn.markov_facts import Members
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration

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
