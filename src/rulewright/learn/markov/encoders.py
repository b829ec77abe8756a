"""Encoders: what gives every atom its log-odds, all atoms over some entities or a list of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations, permutations
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

from rulewright.data import KnowledgeBase
from rulewright.data.facts import Column, distinct_rows
from rulewright.data.index import SortedRows
from rulewright.learn.markov.facts import Members
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration

Declarations: TypeAlias = Mapping[str, PredicateDeclaration]
Edges: TypeAlias = Sequence[tuple[Tensor, Tensor]]
Priors: TypeAlias = Mapping[str, Tensor]
"""For each predicate the log-odds of what nothing is known of, or the logits of its classes ``[K]``."""

Atoms: TypeAlias = Mapping[str, tuple[Column, ...]]
"""For each predicate some of its atoms, as columns of ids."""

START = 0.1
"""How large the numbers of an untrained encoder are whose product is far from its prior."""

CHUNK = 2**16
"""How many atoms are scored at once where no gradient is wanted."""

FORGETTING = 0.7
"""The power of how often an atom was seen by which an `AtomTable` takes up less of what is new."""


class ConstantEncoder(nn.Module):
    """The same log-odds for all atoms of a predicate: ``φ(p(…)) = prior_p``."""

    def __init__(self, declared: Declarations, prior: Priors) -> None:
        super().__init__()
        self._declared, self._prior = declared, dict(prior)

    def forward(self, members: Members, graph: Edges | None = None) -> dict[str, Tensor]:
        """Return the log-odds of all atoms over some entities."""
        logits = {}
        for name, declaration in self._declared.items():
            shape = [len(members[type_name]) for type_name in declaration.types]
            logits[name] = self._prior[name].expand(*shape, *self._prior[name].shape).clone()
        return logits

    def score(self, atoms: Atoms, graph: Edges | None = None) -> dict[str, Tensor]:
        """Return the log-odds of some atoms."""
        return {
            name: self._prior[name].expand(len(columns[0]), *self._prior[name].shape) for name, columns in atoms.items()
        }


class TensorScorer(nn.Module):
    """Log-odds of atoms from the states of their entities, by a neural tensor network for each predicate.

    ``φ(p(e_1, …, e_k)) = prior_p + u_p · tanh(xᵀ W_p x + V_p x + b_p)``, where x is the states of e_1 … e_k in a row,
    W_p has a matrix for each of ``slices``, and u_p is a matrix where p has classes (Socher et al., NIPS 2013).
    Predicates of one arity are scored together, and entities multiplied by the parts of W_p that join two arguments, or
    one with itself, once for all their atoms.
    """

    def __init__(self, declared: Declarations, prior: Priors, size: int, slices: int) -> None:
        super().__init__()
        self._declared, self._prior, self._size = declared, dict(prior), size
        self._groups: dict[int, dict[str, int]] = {}  # by arity, the index of each predicate
        for name, declaration in declared.items():
            group = self._groups.setdefault(declaration.arity, {})
            group[name] = len(group)
        self.outer = nn.ParameterDict()
        self.by_class = nn.ParameterDict()
        self.bilinear = nn.ParameterDict()
        self.linear = nn.ParameterDict()
        self.bias = nn.ParameterDict()
        for arity, group in self._groups.items():
            width, key = arity * size, str(arity)
            # uniform, as large as torch.nn.Bilinear and torch.nn.Linear start
            self.bilinear[key] = nn.Parameter((2 * torch.rand(len(group), slices, width, width) - 1) * width**-0.5)
            self.linear[key] = nn.Parameter((2 * torch.rand(len(group), slices, width) - 1) * width**-0.5)
            self.outer[key] = nn.Parameter(torch.randn(len(group), slices) * START)
            self.bias[key] = nn.Parameter(torch.zeros(len(group), slices))
            for name, index in group.items():
                classes = declared[name].classes
                if classes is not None:
                    self.by_class[f"{arity}_{index}"] = nn.Parameter(torch.randn(slices, len(classes)) * START)

    def forward(self, states: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the log-odds of all atoms over entities with the given states, ``[N, size]`` for each type."""
        logits = {}
        for name, declaration in self._declared.items():
            key, index = str(declaration.arity), self._groups[declaration.arity][name]
            parts = [states[type_name] for type_name in declaration.types]
            total = self.bias[key][index].view(*[1] * len(parts), -1)
            for position, part in enumerate(parts):
                shape = [-1 if i == position else 1 for i in range(len(parts))]
                single = self._single(key, position, part)[index]
                total = total + single.view(*shape, single.shape[-1])
            for one, other in combinations(range(len(parts)), 2):
                turned = self._turn(key, one, other, parts[one])[index]
                pair = torch.einsum("isd,jd->ijs", turned, parts[other])
                shape = [pair.shape[0] if i == one else pair.shape[1] if i == other else 1 for i in range(len(parts))]
                total = total + pair.reshape(*shape, pair.shape[-1])
            outer = self.by_class.get(f"{key}_{index}", self.outer[key][index])
            logits[name] = self._prior[name] + torch.tanh(total) @ outer
        return logits

    def score(self, states: Tensor, atoms: Mapping[str, Sequence[Tensor]]) -> dict[str, Tensor]:
        """Return the log-odds of some atoms, given as columns of ids, from the states of all entities."""
        logits: dict[str, Tensor] = {}
        for arity, group in self._groups.items():
            names = [name for name in group if name in atoms]
            if not names:
                continue
            key, sizes = str(arity), [len(atoms[name][0]) for name in names]
            index = torch.tensor([group[name] for name in names]).repeat_interleave(torch.tensor(sizes))
            total = self.bias[key].index_select(0, index)
            parts, places = [], []
            for position in range(arity):
                column = torch.cat([atoms[name][position] for name in names])
                entities, inverse = torch.unique(column, return_inverse=True)
                parts.append(states.index_select(0, entities))
                places.append((inverse, index * len(entities) + inverse))
                single = self._single(key, position, parts[-1])
                total = total + single.flatten(0, 1).index_select(0, places[-1][1])
            for one, other in combinations(range(arity), 2):
                turned = self._turn(key, one, other, parts[one]).flatten(0, 1).index_select(0, places[one][1])
                total = total + torch.bmm(turned, parts[other].index_select(0, places[other][0])[:, :, None])[:, :, 0]
            for name, part in zip(names, torch.split(torch.tanh(total), sizes), strict=True):
                outer = self.by_class.get(f"{key}_{group[name]}", self.outer[key][group[name]])
                logits[name] = self._prior[name] + part @ outer
        return {name: logits[name] for name in atoms}

    def _single(self, key: str, position: int, part: Tensor) -> Tensor:
        """Return what the entities of an argument give alone, ``[predicates, N, slices]``."""
        own = slice(position * self._size, (position + 1) * self._size)
        turned = torch.einsum("nd,psde->pnse", part, self.bilinear[key][:, :, own, own])
        linear = torch.einsum("nd,psd->pns", part, self.linear[key][:, :, own])
        return torch.einsum("pnse,ne->pns", turned, part) + linear

    def _turn(self, key: str, one: int, other: int, part: Tensor) -> Tensor:
        """Return states of an argument multiplied by what joins it with another, ``[predicates, N, slices, size]``."""
        weights, size = self.bilinear[key], self._size
        first, second = slice(one * size, (one + 1) * size), slice(other * size, (other + 1) * size)
        joint = weights[:, :, first, second] + weights[:, :, second, first].transpose(2, 3)
        return torch.einsum("nd,psde->pnse", part, joint)


class EmbeddingEncoder(nn.Module):
    """A learned state for every entity, and a `TensorScorer`: knows entities by heart, nothing beyond."""

    def __init__(self, kb: KnowledgeBase, declared: Declarations, prior: Priors, size: int, slices: int) -> None:
        super().__init__()
        self.states = nn.Parameter(torch.randn(kb.n_entities, size) * START)
        self.scorer = TensorScorer(declared, prior, size, slices)

    def forward(self, members: Members, graph: Edges | None = None) -> dict[str, Tensor]:
        """Return the log-odds of all atoms over some entities."""
        logits: dict[str, Tensor] = self.scorer(
            {type_name: self.states[_as_index(ids)] for type_name, ids in members.items()}
        )
        return logits

    def score(self, atoms: Atoms, graph: Edges | None = None) -> dict[str, Tensor]:
        """Return the log-odds of some atoms."""
        return score_atoms(self.scorer, self.states, atoms)


class GraphEncoder(nn.Module):
    """States from the observed facts around an entity, by two rounds of relational graph convolution.

    ``h_e ← tanh(W_0 h_e + Σ_r W_r mean_{e' ∈ N_r(e)} h_e' + Σ_r b_r log(1 + |N_r(e)|))``, where r runs over the pairs
    of positions of every predicate. Entities with the same facts around them get the same state.
    """

    def __init__(
        self,
        kb: KnowledgeBase,
        declared: Declarations,
        prior: Priors,
        size: int,
        slices: int,
        rounds: int = 2,
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
        self.scorer = TensorScorer(declared, prior, size, slices)
        self.graph = fact_edges(kb)

    def forward(self, members: Members, graph: Edges | None = None) -> dict[str, Tensor]:
        """Return the log-odds of all atoms over some entities, given the facts, or other edges instead of them."""
        states = self.states(graph)
        logits: dict[str, Tensor] = self.scorer(
            {type_name: states[_as_index(ids)] for type_name, ids in members.items()}
        )
        return logits

    def score(self, atoms: Atoms, graph: Edges | None = None) -> dict[str, Tensor]:
        """Return the log-odds of some atoms, given the facts, or other edges instead of them."""
        return score_atoms(self.scorer, self.states(graph), atoms)

    def states(self, graph: Edges | None = None) -> Tensor:
        """Return the states of all entities, given the facts, or other edges instead of them."""
        states = self.start.index_select(0, self.type_indices)  # type: ignore[arg-type]
        for step in range(len(self.own)):
            total = states @ self.own[step]
            for slot, (source, target) in enumerate(self.graph if graph is None else graph):
                if not len(source):
                    continue
                degree = torch.zeros(len(states)).index_add_(0, target, torch.ones(len(target)))
                summed = torch.zeros_like(states).index_add(0, target, states.index_select(0, source))
                mean = summed / degree.clamp(min=1)[:, None]
                total = total + mean @ self.turned[step, slot] + degree.log1p()[:, None] * self.counted[step, slot]
            states = torch.tanh(total)
        return states


def score_atoms(scorer: TensorScorer, states: Tensor, atoms: Atoms) -> dict[str, Tensor]:
    """Return the log-odds of some atoms, given the states of all entities."""
    columns = {name: [_as_index(column) for column in given] for name, given in atoms.items()}
    if torch.is_grad_enabled():
        return scorer.score(states, columns)
    logits = {}
    for name, given in columns.items():
        chunks = zip(*(torch.split(column, CHUNK) for column in given), strict=True)
        logits[name] = torch.cat([scorer.score(states, {name: chunk})[name] for chunk in chunks])
    return logits


class AtomTable(nn.Module):
    """Log-odds of each atom by itself: mean field without an encoder. What was never seen has those of the prior.

    When an atom is seen for the n-th time with log-odds that would be best for it, given all others, it takes them up
    by ``λ ← λ + n^-0.7 · (best − λ)``, which is stochastic mean field (Hoffman et al., JMLR 2013).
    """

    def __init__(self, declared: Declarations, prior: Priors) -> None:
        super().__init__()
        self._prior, self._names = dict(prior), list(declared)
        # The table follows a rule of its own, and the loop of training wants a parameter
        self.nothing = nn.Parameter(torch.zeros(1))
        for index, declaration in enumerate(declared.values()):
            self.register_buffer(f"rows{index}", torch.zeros(0, declaration.arity, dtype=torch.int64))
            self.register_buffer(f"logits{index}", torch.zeros(0, *prior[declaration.name].shape))
            self.register_buffer(f"seen{index}", torch.zeros(0, dtype=torch.int64))
        self._found: dict[str, SortedRows] = {}

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool, *lists: list[str]
    ) -> None:
        """Take up a table of any length."""
        for name in list(self._buffers):
            if prefix + name in state_dict:
                self._buffers[name] = torch.empty_like(state_dict[prefix + name])
        self._found.clear()
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *lists)

    def _parts(self, name: str) -> tuple[Tensor, Tensor, Tensor]:
        index = self._names.index(name)
        rows, logits, seen = (self._buffers[f"{part}{index}"] for part in ("rows", "logits", "seen"))
        assert rows is not None and logits is not None and seen is not None
        return rows, logits, seen

    def _find(self, name: str, columns: Sequence[Column]) -> Tensor:
        if name not in self._found:
            self._found[name] = SortedRows([*self._parts(name)[0].numpy().T])
        return torch.from_numpy(self._found[name].find([column.astype(np.int64) for column in columns]))

    def score(self, atoms: Atoms, graph: Edges | None = None) -> dict[str, Tensor]:
        """Return the log-odds of some atoms."""
        logits = {}
        for name, columns in atoms.items():
            found = self._find(name, columns)
            known = self._parts(name)[1]
            prior = self._prior[name].expand(len(found), *known.shape[1:])
            is_known = (found >= 0).view(-1, *[1] * (known.ndim - 1))
            logits[name] = torch.where(is_known, known[found.clamp(min=0)], prior) if len(known) else prior
        return logits

    def enter(self, atoms: Atoms) -> None:
        """Give atoms a row of the table that have none; each may be given several times."""
        for name, columns in atoms.items():
            distinct = distinct_rows([column.astype(np.int64) for column in columns])
            is_new = (self._find(name, distinct) < 0).numpy()
            count = int(is_new.sum())
            if not count:
                continue
            rows, logits, seen = self._parts(name)
            new = torch.from_numpy(np.stack([column[is_new] for column in distinct], axis=1))
            table = torch.cat([rows, new])
            order = torch.from_numpy(np.lexsort(tuple(table.numpy().T[::-1])))
            index = self._names.index(name)
            self._buffers[f"rows{index}"] = table[order]
            self._buffers[f"logits{index}"] = torch.cat([logits, self._prior[name].expand(count, *logits.shape[1:])])[
                order
            ]
            self._buffers[f"seen{index}"] = torch.cat([seen, torch.zeros(count, dtype=torch.int64)])[order]
            del self._found[name]

    def take_up(self, atoms: Atoms, best: Mapping[str, Tensor]) -> None:
        """Move atoms of the table, each given once, towards the log-odds that would be best for them."""
        for name, columns in atoms.items():
            found = self._find(name, columns)
            _, logits, seen = self._parts(name)
            seen[found] += 1
            share = seen[found].to(logits.dtype) ** -FORGETTING
            logits[found] += share.view(-1, *[1] * (logits.ndim - 1)) * (best[name] - logits[found])


def relation_slots(kb: KnowledgeBase) -> list[tuple[str, int, int, int | None]]:
    """Return the ways from an entity to another through a fact: a predicate, two of its positions, and a class, if any.

    A predicate of one argument leads from an entity to itself.
    """
    slots: list[tuple[str, int, int, int | None]] = []
    for name, declaration in kb.predicates.items():
        positions = [position for position, type_name in enumerate(declaration.types) if type_name != NUMBER_TYPE]
        pairs = permutations(positions, 2) if len(positions) > 1 else ((position, position) for position in positions)
        classes = [None] if declaration.classes is None else range(len(declaration.classes))
        slots += [(name, *pair, class_index) for pair in pairs for class_index in classes]
    return slots


def fact_edges(kb: KnowledgeBase, hidden: Mapping[str, Any] | None = None) -> Edges:
    """Return the edges of the true facts for each of `relation_slots`; ``hidden[p]`` marks rows to leave out."""
    edges = []
    for name, source, target, class_index in relation_slots(kb):
        columns = kb.columns(name)
        keep = np.ones(len(columns[0]), dtype=bool) if hidden is None or name not in hidden else ~hidden[name]
        if class_index is not None:
            keep = keep & (columns[-1] == class_index)
        edges.append((_as_index(columns[source][keep]), _as_index(columns[target][keep])))
    return edges


def _as_index(ids: Any) -> Tensor:
    return torch.from_numpy(np.asarray(ids, dtype=np.int64))
