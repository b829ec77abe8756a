"""How consistent a set of facts is with rules that ought to hold: the Logic score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.sparse import csr_array

from rulewright.errors import DataError, unknown_name
from rulewright.evaluate.bootstrap import FloatArray
from rulewright.evaluate.extraction_facts import FactSpace, IntArray
from rulewright.logic import Chain, Rule, RuleSet

Loops = Literal["against", "skip"]


@dataclass(frozen=True)
class RuleScore:
    """How often the body of one rule joins two entities, and how often the head then holds of them.

    ``pairs`` are distinct pairs of entities, ``groundings`` the paths that join them, one or more for each pair.
    """

    rule: Rule
    pairs: int
    satisfied: int
    groundings: int

    @property
    def share(self) -> float | None:
        """``satisfied / pairs``; None where the rule never fires."""
        return self.satisfied / self.pairs if self.pairs else None

    def as_dict(self) -> dict[str, object]:
        """Return the counts and their ratio, for JSON."""
        counts = {"pairs": self.pairs, "satisfied": self.satisfied, "groundings": self.groundings}
        return {"rule": str(self.rule), **counts, "share": self.share}


@dataclass(frozen=True)
class LogicScore:
    """The scores of all rules, and their mean.

    A few groundings can give a high or low value: read it beside ``groundings``.
    """

    rules: tuple[RuleScore, ...]

    @property
    def value(self) -> float | None:
        """The mean share over the rules that fire, each counted alike; None where none fires."""
        shares = [each.share for each in self.rules if each.share is not None]
        return sum(shares) / len(shares) if shares else None

    @property
    def fired(self) -> int:
        """How many rules fire."""
        return sum(each.pairs > 0 for each in self.rules)

    @property
    def pairs(self) -> int:
        """How many pairs of entities bodies join, over all rules."""
        return sum(each.pairs for each in self.rules)

    @property
    def groundings(self) -> int:
        """How many groundings of bodies hold, over all rules."""
        return sum(each.groundings for each in self.rules)

    def as_dict(self) -> dict[str, object]:
        """Return the value, the counts and every rule, for JSON."""
        counts = {"fired": self.fired, "pairs": self.pairs, "groundings": self.groundings}
        return {"value": self.value, **counts, "rules": [each.as_dict() for each in self.rules]}


def chain_rules(rules: RuleSet | Iterable[Rule]) -> tuple[tuple[Rule, ...], list[Chain]]:
    """Return rules, also as chains; anything else is an error, since only a chain joins a pair by a path."""
    kept, chains = [], []
    for statement in rules:
        chain = Chain.of(statement) if isinstance(statement, Rule) else None
        if not isinstance(statement, Rule) or chain is None or not chain.is_closed or not chain.steps:
            raise DataError(f"the Logic score needs chain rules, such as r(X, Z) :- p(X, Y), q(Z, Y).; got {statement}")
        kept.append(statement)
        chains.append(chain)
    return tuple(kept), chains


def relations_of(chains: Iterable[Chain]) -> frozenset[str]:
    """Return the relations of heads and bodies."""
    return frozenset(name for chain in chains for name in (chain.head, *(step.relation for step in chain.steps)))


def check_chains(chains: Sequence[Chain], relations: frozenset[str]) -> None:
    """Raise an error for the first chain over a relation that is not there."""
    for chain in chains:
        for name in sorted(relations_of([chain]) - relations):
            raise DataError(f"rule {chain.rule()}: {unknown_name('relation', name, relations)}")


@dataclass(frozen=True)
class ChainCounts:
    """The counts of `RuleScore` in every document: arrays ``[documents, rules]``."""

    pairs: FloatArray
    satisfied: FloatArray
    groundings: FloatArray

    def score(self, rules: Sequence[Rule]) -> LogicScore:
        """Add the documents up."""
        sums = [column.sum(axis=0).astype(int).tolist() for column in (self.pairs, self.satisfied, self.groundings)]
        return LogicScore(tuple(RuleScore(rule, *row) for rule, *row in zip(rules, *sums, strict=True)))


def count_chains(chains: Sequence[Chain], facts: IntArray, space: FactSpace, *, loops: Loops) -> ChainCounts:
    """Join the facts along the body of every chain and look its heads up.

    The relations are sparse matrices over entities: an entry of their product is the number of paths between two.
    """
    if loops not in ("against", "skip"):
        raise DataError(f"loops must be 'against' or 'skip', got {loops!r}")
    matrices = {name: _matrix(space.of_relation(facts, name), space) for name in relations_of(chains)}
    counts = np.zeros((3, len(space.documents), len(chains)))
    for number, chain in enumerate(chains):
        paths = None
        for step in chain.steps:
            matrix = matrices[step.relation].T if step.inverse else matrices[step.relation]
            paths = matrix if paths is None else paths @ matrix
        found = csr_array(paths).tocoo()
        keep = found.row != found.col if loops == "skip" else slice(None)
        first, last, joined = (each[keep] for each in (found.row, found.col, found.data))
        head = space.numbered(space.number_of_relation[chain.head], first.astype(np.int64), last.astype(np.int64))
        holds = np.isin(head, space.of_relation(facts, chain.head))
        document = space.document_of_entity[first]
        for column, weights in enumerate((None, holds, joined)):
            counts[column, :, number] = np.bincount(document, weights, minlength=len(space.documents))
    return ChainCounts(*counts)


def _matrix(facts: IntArray, space: FactSpace) -> csr_array:
    size = max(1, space.n_entities)  # a matrix without rows is an error to scipy
    return csr_array((np.ones(len(facts), dtype=np.int64), space.pair(facts)), shape=(size, size))


def macro_mean(pairs: FloatArray, satisfied: FloatArray) -> FloatArray:
    """Return ``LogicScore.value`` for rows of counts over rules; NaN where no rule fires."""
    fires = pairs > 0
    shares = np.divide(satisfied, pairs, out=np.zeros_like(pairs), where=fires)
    fired = fires.sum(axis=-1)
    mean: FloatArray = np.divide(shares.sum(axis=-1), fired, out=np.full(fired.shape, np.nan), where=fired > 0)
    return mean
