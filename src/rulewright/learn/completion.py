"""Knowledge-base completion: one mixture of relation paths for every relation, learned from the graph itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, signature
from rulewright.engine.walks import Graph, Path, check_relation, mirrored
from rulewright.errors import DataError
from rulewright.learn.completion_files import SavedTargets
from rulewright.learn.completion_sharing import with_shared
from rulewright.learn.completion_target import MixtureOptions, Target, learn_target
from rulewright.logic import RuleSet
from rulewright.reason.rank import RuleRanker

Progress = Callable[[int, int], None]


class PathMixture:
    """Answers ``r(h, ?)`` and ``r(?, t)`` by a weighted sum of rules: an LNN-pred over paths for each relation.

    ``ψ_r(x, y) = 1 − relu1(β − Σ_P w_P ψ_P(x, y))`` with ``w ≥ 0``; ``ψ_P`` is 1 where path ``P`` joins ``x`` to ``y``,
    or more for more ways (``ways``: once, counted or telling, see `truth`).
    Since ψ grows with the sum, candidates are ranked by the sum, which never saturates. Beside paths of up to
    ``max_length`` relations (the ``max_paths`` best of those found on ``sample`` facts), the mixture has rules that
    name entities (``constants``: the relations in their body, 0 for none). Paths of up to ``negated`` relations may be
    negated: what else joins ``x`` and ``y``, or that they are one, may speak against ``r``. Both directions of a
    relation have weights of their own; a path weighs, beside its own, ``shared`` times that of the other direction.
    Where ``paths`` are given, by relation, these are weighed and none are looked for.

    Training asks ``questions`` facts of each relation on the graph without that very fact (exactly, for every candidate
    and any path), and raises the answer above all other entities by the ``loss`` (softmax, logistic or margin); ``l2``
    holds the weights near ``prior`` times ``−log(1 − confidence)``. Where the knowledge base has a split ``valid``,
    training stops when the loss there no longer falls. What is learned is kept in ``folder``, where one is given: the
    same call goes on where it was stopped.

    >>> kb = KnowledgeBase.from_triples(
    ...     [(f"a{i}", "p", f"b{i}") for i in range(9)] + [(f"b{i}", "q", f"a{i}") for i in range(8)]
    ... )
    >>> mixture = PathMixture(max_length=1, constants=0).fit(kb)
    >>> mixture.ranker_.answers("q", "b8", 1)[0][0]
    'a8'
    """

    def __init__(
        self,
        *,
        targets: Iterable[str] | None = None,
        paths: Mapping[str, Sequence[Path]] | None = None,
        seed: int = 0,
        folder: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> None:
        known = {field.name for field in fields(MixtureOptions)}
        for name in options:
            if name not in known:
                raise DataError(f"unknown option {name!r}; known: {', '.join(sorted(known))}")
        self.options = MixtureOptions(**options)
        self.targets = None if targets is None else tuple(targets)
        self.paths = paths
        self.seed = seed
        self.folder = folder
        self.progress = progress
        self.learned_: dict[int, Target] = {}

    def fit(self, kb: KnowledgeBase) -> Self:
        """Learn the rules of every relation, or of the targets."""
        numbers = [kb.number_of(name) for name, each in kb.predicates.items() if signature(each) == "ee"]
        if not numbers:
            raise DataError("no predicate has two entities as arguments, so there are no paths to learn from")
        if self.targets is not None:
            numbers = [check_relation(kb, name) for name in self.targets]
            for name in self.targets:
                if kb.count(name) == 0:
                    raise DataError(f"{name} has no facts, so there is nothing to learn it from")
        graph = Graph.of(kb)
        valid = Graph.of(kb.splits["valid"]) if "valid" in kb.splits else None
        given = None if self.paths is None else self._both_ways(kb, self.paths)
        saved = None if self.folder is None else SavedTargets(self.folder, kb, self.options, self.seed, given)
        self._kb = kb
        self.learned_ = {}
        vars(self).pop("rules_", None)
        none = np.zeros(0, dtype=np.int64)
        for done, relation in enumerate(2 * number + inverse for number in numbers for inverse in (0, 1)):
            target = None if saved is None else saved.load(relation)
            if target is None:
                edges = (none, none) if valid is None else valid.edges(relation)
                paths = None if given is None else given[relation]
                target = learn_target(graph, relation, self.options, edges, seed=self.seed, paths=paths)
                if target is not None and saved is not None:
                    saved.save(target)
            if target is not None:
                self.learned_[relation] = target
            if self.progress is not None:
                self.progress(done + 1, 2 * len(numbers))
        self.learned_ = with_shared(self.learned_, self.options.shared)
        self.ranker_ = RuleRanker(
            kb, {relation: (each.table, each.weights) for relation, each in self.learned_.items()}
        )
        return self

    @staticmethod
    def _both_ways(kb: KnowledgeBase, paths: Mapping[str, Sequence[Path]]) -> dict[int, tuple[Path, ...]]:
        """Return the given paths of each relation and of its inverse."""
        found: dict[int, tuple[Path, ...]] = dict.fromkeys(range(2 * len(kb.predicates)), ())
        for name, mine in paths.items():
            number = 2 * check_relation(kb, name)
            found[number], found[number + 1] = tuple(mine), tuple(map(mirrored, mine))
        return found

    def scores(
        self, relation: str, entities: npt.NDArray[np.int64], *, inverse: bool = False
    ) -> npt.NDArray[np.float64]:
        """Return a row for each entity: how well every entity answers ``relation(h, ?)``, or ``relation(?, h)``."""
        return self.ranker_.scores(relation, entities, inverse=inverse)

    @cached_property
    def rules_(self) -> RuleSet:
        """The rules with their weights, in the common language; what speaks against a relation is a formula."""
        from rulewright.learn.completion_rules import written

        return written(self.learned_, self._kb)
