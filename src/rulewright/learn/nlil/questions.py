"""What is learned and from what: facts of a target, and wrong ones beside them that are checked not to be facts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids, range_starts
from rulewright.learn.nlil.facts import FactGraph, HiddenFacts, Mask, StatementCodes
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
        return StatementCodes(self.arity, self.graph.vocabulary).of_target(self.targets[target_index])

    def target_facts(self, *, truth: bool = True) -> tuple[Ids, ...]:
        """Return the facts of a task with one target, as columns."""
        return tuple(column.astype(np.int64) for column in self.graph.kb.columns(self.targets[0], truth=truth))

    def entities_with_facts(self, position: int) -> Ids:
        """Return the entities of the type of an argument of the targets that have any fact."""
        kb = self.graph.kb
        has_fact = np.zeros(self.graph.n_entities, dtype=bool)
        for table in kb.tables().values():
            for column, argument in zip(table.columns, table.signature, strict=True):
                if argument == "e":
                    has_fact[column] = True
        domain = kb.domains[kb.predicate(self.targets[0]).types[position]]
        entities: Ids = domain.start + np.flatnonzero(has_fact[domain.start : domain.start + len(domain)])
        return entities

    def all_questions(self) -> TargetQuestions:
        """Return the questions about one argument: every entity of its type that has a fact, or that has a class."""
        entities = self.entities_with_facts(0)
        truth: Mask = np.zeros((len(entities), len(self.targets)), dtype=bool)
        for target_index, name in enumerate(self.targets):
            truth[np.searchsorted(entities, np.sort(self.graph.kb.columns(name)[0])), target_index] = True
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
    facts: tuple[Ids, ...], known: tuple[Ids, ...], task: LearningTask, *, ratio: int, seed: int, false: tuple[Ids, ...]
) -> TargetQuestions:
    """Return pairs that are facts and for each ``ratio`` that are not, one argument exchanged.

    The second and the first argument are exchanged by turns: for any entity of its type that has facts, and for one
    that two random steps from the other argument lead to, so that it is near. Pairs known to be false come first;
    those known to be true are left out, and those with an argument of another type.
    """
    random = np.random.default_rng(seed)
    graph = task.graph
    size = graph.n_entities
    of_type = [task.entities_with_facts(position) for position in range(2)]
    wrong = [np.stack(false)]
    for turn in range(ratio):
        position, is_near = 1 - turn // 2 % 2, turn % 2 == 1
        if is_near:
            exchanged = _walk_randomly(graph, _walk_randomly(graph, facts[1 - position], random), random)
        else:
            exchanged = random.choice(of_type[position], len(facts[0]))
        wrong.append(np.stack([facts[0], exchanged] if position else [exchanged, facts[1]]))
    first, second = np.concatenate(wrong, axis=1)
    typed = np.isin(first, of_type[0]) & np.isin(second, of_type[1])
    keys = np.setdiff1d(first[typed] * size + second[typed], known[0] * size + known[1])
    columns = np.concatenate([facts[0], keys // size]), np.concatenate([facts[1], keys % size])
    return TargetQuestions(columns, np.arange(len(columns[0]))[:, None] < len(facts[0]))


def _walk_randomly(graph: FactGraph, entities: Ids, random: np.random.Generator) -> Ids:
    """Take one step at random from each entity; stay where there is none."""
    source, _, end = graph.steps_from(entities)
    counts = np.bincount(source, minlength=len(entities))
    chosen = range_starts(counts) + (random.random(len(entities)) * counts).astype(np.int64)
    arrived = entities.copy()
    can_move = counts > 0
    arrived[can_move] = end[chosen[can_move]]
    return arrived
