"""Questions to learn from: facts of a target, and things beside them that are checked not to be facts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase
from rulewright.data.index import Ids
from rulewright.learn.nlil.facts import FactGraph, Hidden

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Questions:
    """Arguments of questions as columns, and of which of the targets each is true, ``[questions, targets]``."""

    arguments: tuple[Ids, ...]
    truth: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.truth)

    def part(self, keep: npt.NDArray[np.bool_] | Ids) -> Questions:
        """Return some of the questions."""
        return Questions(tuple(column[keep] for column in self.arguments), self.truth[keep])


@dataclass(frozen=True)
class Task:
    """Targets that are learned together: one, or classes of which an entity has one."""

    graph: FactGraph
    targets: tuple[str, ...]
    arity: int
    hidden: Hidden

    @classmethod
    def of(cls, graph: FactGraph, targets: tuple[str, ...]) -> Task:
        """Return the task of explaining a predicate, or of telling classes apart, whose labels are hidden together."""
        vocabulary = graph.vocabulary
        arity = vocabulary.arity(targets[0])
        if arity == 2:
            return cls(graph, targets, 2, Hidden(step=vocabulary.step(targets[0])))
        return cls(graph, targets, 1, Hidden(marks=tuple(vocabulary.mark(each) for each in targets)))

    def facts(self, kb: KnowledgeBase, *, truth: bool = True) -> tuple[Ids, ...]:
        """Return the facts of a task with one target, as columns."""
        return tuple(column.astype(np.int64) for column in kb.columns(self.targets[0], truth=truth))

    def entities(self) -> Ids:
        """Return the entities that a target of one argument can be asked of: those of its type that some fact names."""
        domain = self.graph.kb.domains[self.graph.kb.predicate(self.targets[0]).types[0]]
        named = np.zeros(self.graph.entities, dtype=bool)
        for table in self.graph.kb.tables().values():
            for column, kind in zip(table.columns, table.signature, strict=True):
                if kind == "e":
                    named[column] = True
        found: Ids = domain.start + np.flatnonzero(named[domain.start : domain.start + len(domain)])
        return found

    def asked_of_all(self) -> Questions:
        """Return the questions about one argument: every entity, or every one that has a class."""
        entities = self.entities()
        truth = np.zeros((len(entities), len(self.targets)), dtype=bool)
        for number, name in enumerate(self.targets):
            truth[np.searchsorted(entities, np.sort(self.graph.kb.columns(name)[0])), number] = True
        if len(self.targets) > 1:
            keep = truth.any(axis=1)
            entities, truth = entities[keep], truth[keep]
        return Questions((entities,), truth)


def balanced(questions: Questions, worlds: npt.NDArray[np.int32] | None, ratio: int, seed: int) -> Questions:
    """Return all that is true and ``ratio`` times as much that is not, half of it from the worlds of what is true."""
    random = np.random.default_rng(seed)
    true, false = np.flatnonzero(questions.truth[:, 0]), np.flatnonzero(~questions.truth[:, 0])
    wanted = ratio * len(true)
    if len(false) <= wanted:
        return questions
    chosen = random.choice(false, wanted, replace=False)
    if worlds is not None:
        of = worlds[questions.arguments[0]]
        near = false[np.isin(of[false], of[true])]
        near = random.permutation(near)[: wanted // 2]
        chosen = np.unique(np.concatenate([near, chosen[: wanted - len(near)]]))
    return questions.part(np.sort(np.concatenate([true, chosen])))


def with_wrong_pairs(
    facts: tuple[Ids, ...], known: tuple[Ids, ...], graph: FactGraph, *, ratio: int, seed: int, false: tuple[Ids, ...]
) -> Questions:
    """Return pairs that are facts and for each ``ratio`` that are not, one argument exchanged.

    The other argument is by turns one that the target has elsewhere, and one that two steps from the first lead to,
    so that it is near; pairs observed to be false come first. Whatever is known to be true is left out.
    """
    random = np.random.default_rng(seed)
    size = graph.entities
    truths = np.unique(known[0] * size + known[1])
    parts = [false[0] * size + false[1]]
    for number in range(ratio):
        first, second = facts
        if number % 2:
            near = _walked(graph, _walked(graph, first, random), random)
            parts.append(first * size + near)
        elif number % 4:
            parts.append(random.permutation(first) * size + second)
        else:
            parts.append(first * size + random.choice(np.unique(second), len(second)))
    wrong = np.unique(np.concatenate(parts))
    wrong = wrong[~np.isin(wrong, truths)]
    columns = tuple(
        np.concatenate([mine, other]) for mine, other in zip(facts, (wrong // size, wrong % size), strict=True)
    )
    truth = np.zeros((len(columns[0]), 1), dtype=bool)
    truth[: len(facts[0])] = True
    return Questions(columns, truth)


def _walked(graph: FactGraph, entities: Ids, random: np.random.Generator) -> Ids:
    """Take one step at random from each entity; stay where there is none."""
    source, _, end = graph.leaving(entities)
    counts = np.bincount(source, minlength=len(entities))
    first = np.cumsum(counts) - counts
    chosen = first + (random.random(len(entities)) * counts).astype(np.int64)
    found = entities.copy()
    has = counts > 0
    found[has] = end[chosen[has]]
    return found
