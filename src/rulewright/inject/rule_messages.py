"""What each rule says of each atom, from a network's own probabilities: the features that weights are fitted to.

`read_messages` gives for every statement the message of a `LogicLayer` in its first iteration, with weight 1, to every
counted atom, as sparse columns beside the atoms' logits and gold labels (`AtomRows`); `measure_rules` how often bodies
hold by these predictions, and heads where they do (`RuleCases`).

An atom that gold and the network agree to be false, and that rules hardly touch, has no row of its own: such atoms are
added up, world by world, to rows that weigh as many as they stand for (`_add_up_others`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import sparse
from torch import Tensor

from rulewright.inject.atom_space import AtomSpace, Domains
from rulewright.inject.atoms.decoder_inputs import detach_values
from rulewright.inject.inputs import GroundInputs, Observed, read_inputs
from rulewright.inject.labelled_worlds import LabelledWorld
from rulewright.inject.layer.grounding import TRUE, Grounding
from rulewright.inject.layer.plan import Plan, false_probability
from rulewright.logic import (
    And,
    Atom,
    Formula,
    Implies,
    Membership,
    Not,
    PredicateDeclaration,
    RuleSet,
    Statement,
    WeightedFormula,
)

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

NO_MESSAGE = 1e-6
"""The size of messages that are left out."""

RAISED = 0.03
"""The message from which a false atom is looked at by itself."""

TOUCHED = 1e-3
"""How far a message may move the probability of a false atom that is not looked at by itself."""

_EDGES = np.array([0.01, 0.1, 0.3, 0.7, 1.5])
"""The sizes of messages between which atoms are added up."""

_CELLS = 2**24
"""How many messages are held at once, unless those of one statement are more."""

_SURE = 1e-6
"""How far from 0 probabilities are kept that one is divided by."""


@dataclass(frozen=True)
class AtomRows:
    """Atoms that rules touch, a row for each; of predicates with classes one for each class of an atom, together.

    ``messages`` is ``[rows, statements]``; ``counts`` says how many atoms a row stands for. ``starts`` are the first
    rows of atoms with classes, None where no atom has any.
    """

    messages: sparse.csr_matrix
    logits: Floats
    gold: Floats
    counts: Floats
    worlds: Ids
    starts: Ids | None = None

    def __len__(self) -> int:
        return len(self.logits)

    def pick(self, chosen: npt.NDArray[np.bool_]) -> AtomRows:
        """Return some of the rows, of atoms with classes all or none."""
        starts = None
        if self.starts is not None:
            starts = (np.cumsum(chosen) - chosen)[self.starts[chosen[self.starts]]]
        logits, gold, counts = (part[chosen] for part in (self.logits, self.gold, self.counts))
        return AtomRows(self.messages[np.flatnonzero(chosen)], logits, gold, counts, self.worlds[chosen], starts)


@dataclass(frozen=True)
class WorldRow:
    """One row of a call: a world by itself, with its inputs as a layer reads them, without a batch."""

    inputs: GroundInputs
    logits: Mapping[str, Tensor]
    gold: Mapping[str, npt.NDArray[Any]]
    counted: Mapping[str, npt.NDArray[np.bool_]]


@dataclass(frozen=True)
class RuleCases:
    """Where the body of a rule holds, by the predictions: cases are the counted atoms of its head.

    ``expected`` adds up the probabilities of bodies, at most 1 for a case; ``fired`` counts the cases in which a body
    is predicted and ``held`` those of them in which the head is true; ``head_score`` is the mean probability that the
    network gives the head there. ``bins`` are (cases, held) where the body's probability is low, middling and high.
    """

    expected: float
    fired: int
    held: int
    head_score: float
    bins: tuple[tuple[int, int], ...]


BINS = (0.1, 1 / 3, 2 / 3)
"""The probability of a body from which it is low, middling and high."""


def split_rows(space: AtomSpace, worlds: Sequence[LabelledWorld]) -> Iterator[WorldRow]:
    """Yield each row of each call."""
    for world in worlds:
        parts = [(name, values, space.predicates[name].arity) for name, values in (world.evidence or {}).items()]
        evidence = {name: _by_row(values, arity, world) for name, values, arity in parts}
        masks = {name: _by_row(values, 1, world) for name, values in (world.mask or {}).items()}
        for row in range(world.rows):
            logits = {}
            for name, values in world.logits.items():
                counted = world.counted[name][row]
                kept = np.where(counted[..., None] if world.has_classes(name) else counted, values[row], 0.0)
                logits[name] = torch.from_numpy(np.ascontiguousarray(kept))
            inputs = read_inputs(
                space,
                logits,
                {name: as_tensors(pick(row)) for name, pick in evidence.items()},
                {name: as_tensors(pick(row)) for name, pick in masks.items()},
                dtype=torch.float64,
            )
            gold = {name: part[row] for name, part in world.gold.items()}
            yield WorldRow(inputs, logits, gold, {name: part[row] for name, part in world.counted.items()})


def pick_rows(world: LabelledWorld, rows: Ids) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Return logits, evidence and masks of some rows of a call, as an injector takes them, with a batch."""
    logits: Any = {name: values[rows] for name, values in world.logits.items()}
    if world.space.relations is not None:
        logits = np.stack([logits[name] for name in world.space.relations], -1)
    predicates = world.space.predicates
    evidence = {
        name: _by_row(values, predicates[name].arity, world)(rows) for name, values in (world.evidence or {}).items()
    }
    return logits, evidence, {name: _by_row(values, 1, world)(rows) for name, values in (world.mask or {}).items()}


def _by_row(values: Any, arity: int, world: LabelledWorld) -> Callable[[Any], Any]:
    """Return what gives the rows of evidence or of a mask; what has no batch is that of all rows."""
    parts = values if isinstance(values, tuple) else (values,)
    arrays = [np.asarray(detach_values(part)) for part in parts]
    if has_batch := arrays[0].ndim > arity:
        arrays = [part.reshape(world.rows, *part.shape[part.ndim - arity :]) for part in arrays]

    def pick(rows: Any) -> Any:
        picked = [part[rows] if has_batch else part for part in arrays]
        return tuple(picked) if isinstance(values, tuple) else picked[0]

    return pick


def as_tensors(values: Any) -> Any:
    """Return arrays as tensors, also by name and in a pair."""
    if isinstance(values, Mapping):
        return {name: as_tensors(part) for name, part in values.items()}
    if isinstance(values, tuple):
        return tuple(map(as_tensors, values))
    return torch.from_numpy(np.ascontiguousarray(values))


def read_domains(space: AtomSpace) -> Domains:
    """Return the domains that a space was given."""
    return {
        name: [*space.entity_indices[name]] if name in space.entity_indices else size
        for name, size in space.given_sizes.items()
    }


# Features


def read_messages(space: AtomSpace, rows: Sequence[WorldRow], fitted: Sequence[int]) -> tuple[AtomRows, AtomRows]:
    """Return the messages of the fitted statements to the atoms without classes, and to those with classes."""
    builders = _RowBuilder(False), _RowBuilder(True)
    statements = space.rules.statements
    programs = [
        _Program(space, [statements[fitted[column]] for column in columns], columns)
        for columns in _split_columns(rows, len(fitted))
    ]
    for world_index, row in enumerate(rows):
        marginals = row.inputs.marginals(row.inputs.logits, space)
        found: dict[str, list[tuple[Ids, Tensor]]] = {}
        for program in programs:
            for name, columns, messages in program.run(row.inputs, marginals):
                found.setdefault(name, []).append((columns, messages))
        for name, parts in found.items():
            counted = row.counted.get(name)
            if counted is None or not counted.any():
                continue
            has_classes = space.predicates[name].classes is not None
            builder = builders[has_classes]
            columns = np.concatenate([part for part, _ in parts])
            shape = (len(columns), counted.size, -1) if has_classes else (len(columns), -1)
            joined: Floats = torch.cat([part for _, part in parts]).reshape(shape).numpy()
            messages = joined[:, counted.reshape(-1)]
            logits = row.logits[name].numpy().reshape(shape[1:])[counted.reshape(-1)]
            builder.add(world_index, columns, messages, logits, row.gold[name][counted])
    binary, classed = (builder.finish(len(fitted)) for builder in builders)
    return binary, classed


def _split_columns(rows: Sequence[WorldRow], count: int) -> list[Ids]:
    """Return the columns of statements that are looked at together, so that memory is bounded."""
    largest = max((tensor.numel() for row in rows for tensor in row.logits.values()), default=1)
    step = max(1, _CELLS // (4 * max(1, largest)))
    return [np.arange(start, min(start + step, count)) for start in range(0, count, step)]


class _Program:
    """The contractions of some statements, planned once for worlds of all sizes."""

    def __init__(self, space: AtomSpace, statements: Sequence[Statement], columns: Ids) -> None:
        rules = RuleSet(statements, predicates=space.predicates.values(), closed=space.rules.closed)
        self.grounding = _ground(space, rules)
        self.columns = columns
        self._plans: dict[object, Plan] = {}

    def plan(self, inputs: GroundInputs) -> Plan:
        """Return the plan for inputs: of all with the same predicates observed, that of the first."""
        key = inputs.shape.observed
        if key not in self._plans:
            self._plans[key] = Plan(self.grounding, inputs.shape)
        return self._plans[key]

    def run(self, inputs: GroundInputs, marginals: Mapping[str, Tensor]) -> Iterator[tuple[str, Ids, Tensor]]:
        """Yield for each predicate the columns that touch it and their messages ``[columns, *arguments]``."""
        plan = self.plan(inputs)
        values = plan.run(inputs, marginals, plan.start(inputs))
        for name, indices, messages in add_up_messages(plan, inputs, values):
            yield name, self.columns[indices], messages


def add_up_messages(
    plan: Plan, inputs: GroundInputs, values: Mapping[int, Tensor]
) -> Iterator[tuple[str, list[int], Tensor]]:
    """Yield for each predicate the statements that touch it and their messages ``[statements, *arguments]``."""
    by_predicate: dict[str, dict[int, int]] = {}  # the position of each statement that touches a predicate
    for (name, _, _), messages in plan.messages.items():
        positions = by_predicate.setdefault(name, {})
        for message in messages:
            positions.setdefault(message.statement_index, len(positions))
    for name, positions in by_predicate.items():
        declaration = plan.grounding.predicates[name]
        sizes = [inputs.sizes[type_name] for type_name in declaration.types]
        classes = [] if declaration.classes is None else [len(declaration.classes)]
        total = torch.zeros(len(positions), *sizes, *classes, dtype=inputs.dtype)
        for (predicate, inside, form), messages in plan.messages.items():
            if predicate != name:
                continue
            stacked = torch.stack([values[message.node] * message.coefficient for message in messages])
            stacked, mask = form.spread(stacked, sizes, inputs.dtype, inputs.device)
            stacked = (stacked if mask is None else stacked * mask).expand(len(messages), *sizes)
            if classes:
                one_hot = torch.zeros(classes, dtype=inputs.dtype)
                one_hot[list(inside)] = 1
                stacked = stacked.unsqueeze(-1) * one_hot
            total.index_add_(0, torch.tensor([positions[message.statement_index] for message in messages]), stacked)
        yield name, list(positions), total


def _ground(space: AtomSpace, rules: RuleSet) -> Grounding:
    return Grounding(rules, domains=read_domains(space), relations=space.relations, distinct=space.distinct)


class _RowBuilder:
    """Collects the rows of atoms, world by world."""

    def __init__(self, has_classes: bool) -> None:
        self._has_classes = has_classes
        self._parts: list[tuple[Floats, Floats, Floats, Ids]] = []  # logits, gold, counts and worlds of rows
        self._entries: list[tuple[Ids, Ids, Floats]] = []  # rows, columns and messages
        self._starts: list[Ids] = []
        self._count = 0

    def add(self, world: int, columns: Ids, messages: Floats, logits: Floats, gold: npt.NDArray[Any]) -> None:
        """Add the atoms of a predicate in a world; messages are ``[columns, atoms]``, or with classes behind."""
        if self._has_classes:
            classes = logits.shape[1]
            atoms = np.flatnonzero((np.abs(messages) > NO_MESSAGE).any((0, 2)))
            column, atom, chosen = np.nonzero(np.abs(messages[:, atoms]) > NO_MESSAGE)
            self._starts.append(self._count + classes * np.arange(len(atoms)))
            self._entries.append(
                (self._count + classes * atom + chosen, columns[column], messages[:, atoms][column, atom, chosen])
            )
            is_gold = gold[atoms, None] == np.arange(classes)
            self._append(world, logits[atoms].reshape(-1), is_gold.reshape(-1), 1.0)
            return
        odds = np.exp(np.minimum(logits, 0.0))  # at least the probability of being true, at most twice that
        column, atom = np.nonzero(np.abs(messages) > NO_MESSAGE)
        message = messages[column, atom]
        is_kept = gold[atom].astype(bool) | (message > RAISED) | (np.abs(message) * odds[atom] > TOUCHED)
        atoms, position = np.unique(atom[is_kept], return_inverse=True)
        self._entries.append((self._count + position, columns[column[is_kept]], message[is_kept]))
        self._append(world, logits[atoms], gold[atoms], 1.0)
        self._add_up_others(world, columns, column[~is_kept], message[~is_kept], odds[atom[~is_kept]])

    def _add_up_others(self, world: int, columns: Ids, column: Ids, message: Floats, odds: Floats) -> None:
        """Add a row for the false atoms that a statement sends messages of about one size, as many as there are.

        Where probabilities are small, ``Σ_i log(1 + e^(m_i + λ φ_i))`` is ``Σ_i e^(m_i) · e^(λ φ)`` for one φ: what n
        atoms give whose log-odds are the logarithm of the mean odds.
        """
        size = len(_EDGES) + 1
        group = (column * 2 + (message > 0)) * size + np.digitize(np.abs(message), _EDGES)
        groups, position = np.unique(group, return_inverse=True)
        counts, totals, moved = (
            np.bincount(position, values, len(groups)) for values in (np.ones(len(group)), odds, odds * message)
        )
        is_there = totals > 0
        rows = self._count + np.arange(int(is_there.sum()))
        self._entries.append(
            (rows, columns[groups[is_there] // (2 * size)], (moved / np.maximum(totals, 1e-300))[is_there])
        )
        logits = np.log(totals[is_there] / counts[is_there])
        self._append(world, logits, np.zeros(len(rows)), counts[is_there])

    def _append(self, world: int, logits: Floats, gold: npt.NDArray[Any], counts: Any) -> None:
        number = len(logits)
        counts = np.broadcast_to(np.asarray(counts, dtype=np.float64), number)
        self._parts.append((logits, gold.astype(np.float64), counts, np.full(number, world)))
        self._count += number

    def finish(self, statements: int) -> AtomRows:
        """Return all rows."""
        empty = (np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64))
        logits, gold, counts, worlds = (np.concatenate(part) for part in zip(*(self._parts or [empty]), strict=True))
        rows, columns, messages = (np.concatenate(part) for part in zip(*self._entries, strict=True)) if (
            self._entries
        ) else (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))  # fmt: skip
        matrix = sparse.csr_matrix((messages, (rows, columns)), shape=(self._count, statements))
        starts = np.concatenate(self._starts) if self._starts else np.zeros(0, dtype=np.int64)
        return AtomRows(matrix, logits, gold, counts, worlds, starts if self._has_classes else None)


# How often bodies hold, and heads where they do


def read_implications(formulas: Sequence[Formula]) -> list[tuple[Formula, Atom | Membership]]:
    """Return bodies, each with the head that it implies; none where a formula concludes no single atom."""
    found: list[tuple[Formula, Atom | Membership]] = []
    for formula in formulas:
        if not isinstance(formula, Implies) or not isinstance(formula.conclusion, Atom | Membership):
            return []
        found.append((formula.premise, formula.conclusion))
    return found


def measure_rules(space: AtomSpace, rows: Sequence[WorldRow]) -> list[RuleCases | None]:
    """Return the cases of each statement; None where it has no head."""
    programs = [
        _CaseProgram(space, columns.tolist()) for columns in _split_columns(rows, len(space.rules)) if len(columns)
    ]
    counters = {index: _CaseCounter() for program in programs for index in program.heads}
    for row in rows:
        known = row.inputs.marginals(row.inputs.logits, space)
        known |= {name: seen.probability for name, seen in row.inputs.observed.items() if seen.where is None}
        predicted = {
            name: (values > 0.5 if space.predicates[name].classes is None else values == values.amax(-1, True)).double()
            for name, values in known.items()
        }
        for program in programs:
            scored, fired = program.run(row.inputs, known), program.run(row.inputs, predicted)
            for index, (name, inside) in program.heads.items():
                if name not in row.counted or index not in scored:  # observed, or a tautology
                    continue
                counted, gold, score = row.counted[name], row.gold[name], known[name].numpy()
                if inside is not None:
                    gold, score = np.isin(gold, inside), score[..., inside].sum(-1)
                counters[index].add(scored[index][counted], fired[index][counted], gold[counted], score[counted])
    return [counters[index].finish() if index in counters else None for index in range(len(space.rules))]


class _CaseProgram:
    """How probable bodies are, planned once for worlds of all sizes.

    That is the message of ``body & !head => case`` to an atom that stands for nothing else, divided by the probability
    of ``!head``: with this, a body that rests on the very atom of its head is none.
    """

    def __init__(self, space: AtomSpace, indices: Sequence[int]) -> None:
        self.heads: dict[int, tuple[str, list[int] | None]] = {}  # the predicate, and which of its classes
        formulas: list[WeightedFormula] = []
        cases: dict[int, PredicateDeclaration] = {}
        for index in indices:
            for body, head in read_implications([formula for at, formula in space.stated if at == index]):
                declaration = space.predicates[str(head.predicate)]
                cases[index] = PredicateDeclaration(f"case {index}", declaration.types)
                parts = body.parts if isinstance(body, And) else (body,)
                formula = Implies(And((*parts, Not(head))), Atom(cases[index].name, head.args))
                formulas.append(WeightedFormula(formula, "learn"))
                inside = None
                if isinstance(head, Membership):
                    inside = [(declaration.classes or ()).index(name) for name in head.classes]
                self.heads[index] = str(head.predicate), inside
        declared = (*space.predicates.values(), *cases.values())
        self._grounding = _ground(space, RuleSet(formulas, predicates=declared))
        self._names = {case.name: index for index, case in cases.items()}
        self._plan: Plan | None = None

    def run(self, inputs: GroundInputs, probabilities: Mapping[str, Tensor]) -> dict[int, Floats]:
        """Return for each statement how many of its bodies hold, in expectation, for each atom of its head."""
        predicates = self._grounding.predicates
        kept = {
            name: values.clamp(max=1 - _SURE) if predicates[name].classes is None else values.clamp(min=_SURE)
            for name, values in probabilities.items()
        }
        observed = {name: Observed(values, None) for name, values in kept.items()}
        shape = replace(inputs.shape, observed=frozenset(observed))
        given = replace(inputs, logits={}, observed=observed, shape=shape)
        if self._plan is None:
            self._plan = Plan(self._grounding, shape)
        values = self._plan.run(given, {}, self._plan.start(given))
        found: dict[int, Floats] = {}
        for name, _, messages in add_up_messages(self._plan, given, values):
            index = self._names[name]
            head, inside = self.heads[index]
            classes = predicates[head].classes
            false = false_probability(kept[head], frozenset([TRUE] if inside is None else inside), classes)
            found[index] = (messages.sum(0) / false).numpy()  # of all alternatives
        return found


class _CaseCounter:
    """Counts the cases of a rule, world by world."""

    def __init__(self) -> None:
        self._expected = self._score = 0.0
        self._fired = self._held = 0
        self._bins = np.zeros((len(BINS), 2), dtype=np.int64)

    def add(self, scored: Floats, fired: Floats, gold: npt.NDArray[np.bool_], score: Floats) -> None:
        """Add the counted atoms of the head in a world."""
        bodies = np.clip(scored, 0.0, 1.0)
        self._expected += float(bodies.sum())
        has_fired = fired > 0.5
        self._fired += int(has_fired.sum())
        self._held += int(gold[has_fired].sum())
        self._score += float(score[has_fired].sum())
        bins = np.digitize(bodies, BINS)
        for position in range(len(BINS)):
            inside = bins == position + 1
            self._bins[position] += int(inside.sum()), int(gold[inside].sum())

    def finish(self) -> RuleCases:
        """Return what was counted."""
        bins = tuple((cases, held) for cases, held in self._bins.tolist())
        mean = self._score / self._fired if self._fired else float("nan")
        return RuleCases(self._expected, self._fired, self._held, mean, bins)
