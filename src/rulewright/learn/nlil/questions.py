"""What is learned and from what: facts of a target, and wrong ones beside them that are checked not to be facts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids, range_starts
from rulewright.learn.nlil.facts import FactGraph, HiddenFacts, Mask, step_of_operator
from rulewright.logic.chain import encode_step


@dataclass(frozen=True)
class TargetQuestions:
    """Is the target true of these arguments? Arguments are columns; ``truth`` is ``[questions, targets]``."""

    arguments: tuple[Ids, ...]
    truth: Mask

    def __len__(self) -> int:
        return len(self.truth)

    def take(self, rows: Mask | Ids) -> TargetQuestions:
        """Return some of the questions."""
        return TargetQuestions(tuple(column[rows] for column in self.arguments), self.truth[rows])


@dataclass(frozen=True)
class LearningTask:
    """Targets that are learned together: one, or classes of which an entity has one."""

    graph: FactGraph
    targets: tuple[str, ...]
    arity: int
    hidden: HiddenFacts

    @classmethod
    def for_targets(cls, graph: FactGraph, targets: tuple[str, ...]) -> LearningTask:
        """Return the task of explaining a predicate, or of predicting classes, whose labels are hidden together."""
        vocabulary = graph.vocabulary
        arity = vocabulary.arity(targets[0])
        if arity == 2:
            return cls(graph, targets, 2, HiddenFacts(step=encode_step(vocabulary.binary.index(targets[0]))))
        return cls(graph, targets, 1, HiddenFacts(marks=tuple(map(vocabulary.mark, targets))))

    def own_codes(self, target_index: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the operators and the statements that use facts of a target itself."""
        vocabulary, name = self.graph.vocabulary, self.targets[target_index]
        if self.arity == 1:
            mark = vocabulary.mark(name)
            return (vocabulary.filter_operator(mark),), (mark,)
        operators = vocabulary.step_operator(name), vocabulary.step_operator(name, inverse=True)
        return operators, tuple(map(step_of_operator, operators))

    def target_facts(self, *, truth: bool = True) -> tuple[Ids, ...]:
        """Return the facts of a task with one target, as columns."""
        return tuple(column.astype(np.int64) for column in self.graph.kb.columns(self.targets[0], truth=truth))

    def all_questions(self) -> TargetQuestions:
        """Return the questions about one argument: every entity of its type that has a fact, or that has a class."""
        kb = self.graph.kb
        has_fact = np.zeros(self.graph.n_entities, dtype=bool)
        for table in kb.tables().values():
            for column, argument in zip(table.columns, table.signature, strict=True):
                if argument == "e":
                    has_fact[column] = True
        domain = kb.domains[kb.predicate(self.targets[0]).types[0]]
        entities = domain.start + np.flatnonzero(has_fact[domain.start : domain.start + len(domain)])
        truth: Mask = np.zeros((len(entities), len(self.targets)), dtype=bool)
        for target_index, name in enumerate(self.targets):
            truth[np.searchsorted(entities, np.sort(kb.columns(name)[0])), target_index] = True
        questions = TargetQuestions((entities,), truth)
        return questions if len(self.targets) == 1 else questions.take(np.flatnonzero(truth.any(axis=1)))


def balance_questions(
    questions: TargetQuestions, worlds: npt.NDArray[np.int32] | None, ratio: int, seed: int
) -> TargetQuestions:
    """Return all that is true and ``ratio`` times as much that is false, half of it from the worlds of what is true."""
    random = np.random.default_rng(seed)
    true, false = np.flatnonzero(questions.truth[:, 0]), np.flatnonzero(~questions.truth[:, 0])
    wanted = ratio * len(true)
    if len(false) <= wanted:
        return questions
    chosen = random.choice(false, wanted, replace=False)
    if worlds is not None:
        world = worlds[questions.arguments[0]]
        near = random.permutation(false[np.isin(world[false], world[true])])[: wanted // 2]
        chosen = np.unique(np.concatenate([near, chosen[: wanted - len(near)]]))
    return questions.take(np.sort(np.concatenate([true, chosen])))


def add_wrong_pairs(
    facts: tuple[Ids, ...], known: tuple[Ids, ...], graph: FactGraph, *, ratio: int, seed: int, false: tuple[Ids, ...]
) -> TargetQuestions:
    """Return pairs that are facts and for each ``ratio`` that are not, one argument exchanged.

    The other argument is by turns one that the target has elsewhere, and one that two random steps from the first lead
    to, so that it is near; pairs known to be false come first. Pairs known to be true are left out.
    """
    random = np.random.default_rng(seed)
    size = graph.n_entities
    first, second = facts
    parts = [false[0] * size + false[1]]
    for turn in range(ratio):
        if turn % 2:
            parts.append(first * size + _walk_randomly(graph, _walk_randomly(graph, first, random), random))
        elif turn % 4:
            parts.append(random.permutation(first) * size + second)
        else:
            parts.append(first * size + random.choice(np.unique(second), len(second)))
    wrong = np.setdiff1d(np.concatenate(parts), known[0] * size + known[1])
    columns = np.concatenate([first, wrong // size]), np.concatenate([second, wrong % size])
    return TargetQuestions(columns, np.arange(len(columns[0]))[:, None] < len(first))


def _walk_randomly(graph: FactGraph, entities: Ids, random: np.random.Generator) -> Ids:
    """Take one step at random from each entity; stay where there is none."""
    source, _, end = graph.steps_from(entities)
    counts = np.bincount(source, minlength=len(entities))
    chosen = range_starts(counts) + (random.random(len(entities)) * counts).astype(np.int64)
    arrived = entities.copy()
    can_move = counts > 0
    arrived[can_move] = end[chosen[can_move]]
    return arrived
