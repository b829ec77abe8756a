"""A world over candidate atoms: those asked for, those observed, and those that formulas reach from them."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rulewright.data.index import SortedRows
from rulewright.inject.layer.candidates import SparseLogits
from rulewright.inject.layer.reach import Pull, measure_pull, reach_candidates
from rulewright.inject.layer.sparse import SparsePlan
from rulewright.learn.markov.encoders import Atoms
from rulewright.learn.markov.facts import Members
from rulewright.learn.markov.network import MarkovNetwork
from rulewright.logic import quote

MOST_PULLED = 2_000_000
"""How many candidates there may be for the pull on what rests to be measured."""


class CandidateWorld:
    """The candidates of a world; all other atoms rest: those of closed predicates at false, others at their prior.

    Nothing is taken as known of the predicate ``opened``.
    """

    def __init__(self, network: MarkovNetwork, world: Members, asked: Atoms, *, opened: str | None = None) -> None:
        facts = network.facts
        self.network, self.world, self.opened = network, world, opened
        sizes = {name: len(ids) for name, ids in world.items()}
        self.layer = network.make_layer({**sizes, **network.domains(world)}, closed=facts.closed - {opened})
        self.known: dict[str, tuple[Tensor, Tensor]] = {}
        for name in sorted(facts.used - {opened}):
            columns, values = facts.known(name)
            index, inside = facts.find_rows(name, columns, world)
            observed = torch.from_numpy(values[inside])
            has_classes = facts.declared[name].classes is not None
            self.known[name] = torch.stack(index, dim=1), observed if has_classes else observed > 0
        self.asked = {
            name: torch.stack(facts.find_rows(name, columns, world)[0], dim=1).numpy()
            for name, columns in asked.items()
        }
        self._true = {name: index[values > 0].numpy() for name, (index, values) in self.known.items()}
        false = {name: index[values == 0].numpy() for name, (index, values) in self.known.items()}
        hops = network.parameters.hops
        self.reach = reach_candidates(self.layer.grounding, true=self._true, false=false, asked=self.asked, hops=hops)
        self._rest = {name: network.prior(name) for name in self.reach.candidates}

    def count(self) -> dict[str, int]:
        """Return how many candidates each predicate has, with the facts of closed ones."""
        counts = {name: len(index) for name, (index, _) in self.known.items()}
        return counts | {name: len(rows) for name, rows in self.reach.candidates.items()}

    def plan(self) -> SparsePlan:
        """Return what inference would cost, before any of it is done."""
        candidates = {name: torch.from_numpy(rows) for name, rows in self.reach.candidates.items()}
        plan = self.layer.plan(evidence=self.known, candidates=candidates, rest=self._rest)
        assert isinstance(plan, SparsePlan)
        return plan

    def infer(self) -> tuple[dict[str, Tensor], tuple[str, ...]]:
        """Return the log-odds of the atoms asked for, and the pull of formulas on what rests beyond the candidates."""
        facts, atoms = self.network.facts, {}
        for name, rows in self.reach.candidates.items():
            types = facts.declared[name].types
            atoms[name] = tuple(self.world[one][column] for one, column in zip(types, rows.T, strict=True))
        logits: dict[str, Tensor | SparseLogits] = {}
        for name, potentials in self.network.potentials_of(atoms, opened=self.opened).items():
            logits[name] = torch.from_numpy(self.reach.candidates[name]), potentials
        found = self.layer(logits, self.known, rest=self._rest)
        if self.layer.convergence is not None:
            self.network.convergence.append(self.layer.convergence)
        answers = {}
        for name, rows in self.asked.items():
            candidates = SortedRows([*self.reach.candidates[name].T])
            answers[name] = found[name][1][torch.from_numpy(candidates.order[candidates.find([*rows.T])])]
        return answers, self._measure_pull(found)

    def _measure_pull(self, found: Mapping[str, SparseLogits]) -> tuple[str, ...]:
        if sum(self.count().values()) > MOST_PULLED:
            return (f"the pull on what rests is not measured for more than {MOST_PULLED:,} candidates",)
        weights = [self.network.weights.value(index) for index in range(len(self.layer.grounding.rules))]
        plain = {name for name in found if self.network.facts.declared[name].classes is None}
        pulls = measure_pull(
            self.layer.grounding,
            true=self._true,
            candidates=self.reach.candidates,
            probabilities={name: found[name][1].sigmoid().double().numpy() for name in plain},
            weights=weights,
        )
        return tuple(map(self._describe_pull, pulls))

    def _describe_pull(self, pull: Pull) -> str:
        types = self.network.facts.declared[pull.predicate].types
        ids = [self.world[type_name][position] for type_name, position in zip(types, pull.largest_atom, strict=True)]
        domains = self.network.facts.kb.domains
        names = [quote(str(domains[name].labels_of([one])[0])) for name, one in zip(types, ids, strict=True)]
        return (
            f"{pull.atoms:,} resting atoms of {pull.predicate} would be raised by {pull.mean:.2g} in the mean, by "
            f"{pull.largest:.2g} at the most: {pull.predicate}({', '.join(names)})"
        )
