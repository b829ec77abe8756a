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
from typing import Any, TypeAlias

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
from rulewright.inject.layer.plan import HeadForm, Plan, false_probability
from rulewright.logic import (
    And,
    Atom,
    Formula,
    Implies,
    Membership,
    Not,
    PredicateDeclaration,
    RuleSet,
    WeightedFormula,
)

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Entries: TypeAlias = tuple[Ids, Ids, Floats]
"""Messages: their rows, their columns and what they are."""

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
        starts: Ids | None = None
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
    head_score: float | None
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
    builders = _RowBuilder(), _ClassRowBuilder()
    statements = space.rules.statements
    programs = []
    for columns in _split_columns(rows, len(fitted)):
        part = [statements[fitted[column]] for column in columns]
        rules = RuleSet(part, predicates=space.predicates.values(), closed=space.rules.closed)
        programs.append((columns, _Program(_ground(space, rules))))
    for world_index, row in enumerate(rows):
        marginals = row.inputs.marginals(row.inputs.logits, space)
        for columns, program in programs:
            for name, indices, messages in program.run(row.inputs, marginals):
                counted = row.counted.get(name)
                if counted is None or not counted.any():
                    continue
                logits, gold = row.logits[name].numpy()[counted], row.gold[name][counted]
                found: Floats = messages.numpy()[:, counted]
                builders[logits.ndim > 1].add(name, columns[indices], found, logits, gold)
        for builder in builders:
            builder.end_world(world_index)
    binary, classed = (builder.finish(len(fitted)) for builder in builders)
    return binary, classed


def _split_columns(rows: Sequence[WorldRow], count: int) -> list[Ids]:
    """Return the columns of statements that are looked at together, so that memory is bounded."""
    largest = max((tensor.numel() for row in rows for tensor in row.logits.values()), default=1)
    step = max(1, _CELLS // (4 * max(1, largest)))
    return [np.arange(start, min(start + step, count)) for start in range(0, count, step)]


@dataclass(frozen=True, slots=True)
class _MessageSum:
    """The messages of one form to a predicate: their nodes, how often they count, and the row that each is added to."""

    form: HeadForm
    inside: Tensor | None
    nodes: tuple[int, ...]
    coefficients: Tensor
    rows: Tensor


class _Program:
    """The contractions of some statements, planned once for worlds of all sizes."""

    def __init__(self, grounding: Grounding) -> None:
        self.grounding = grounding
        self._plans: dict[frozenset[str], tuple[Plan, dict[str, tuple[list[int], list[_MessageSum]]]]] = {}

    def run(self, inputs: GroundInputs, marginals: Mapping[str, Tensor]) -> Iterator[tuple[str, list[int], Tensor]]:
        """Yield for each predicate the statements that touch it and their messages ``[statements, *arguments]``."""
        observed = inputs.shape.observed
        if observed not in self._plans:
            plan = Plan(self.grounding, inputs.shape)
            self._plans[observed] = plan, self._group(plan)
        plan, by_predicate = self._plans[observed]
        values = plan.run(inputs, marginals, plan.start(inputs))
        for name, (statements, sums) in by_predicate.items():
            declaration = self.grounding.predicates[name]
            sizes = [inputs.sizes[type_name] for type_name in declaration.types]
            classes = [] if declaration.classes is None else [len(declaration.classes)]
            total = torch.zeros(len(statements), *sizes, *classes, dtype=inputs.dtype)
            for part in sums:
                stacked = torch.stack([values[node] for node in part.nodes])
                stacked = stacked * part.coefficients.view(-1, *[1] * (stacked.ndim - 1))
                stacked, mask = part.form.spread(stacked, sizes, inputs.dtype, inputs.device)
                stacked = (stacked if mask is None else stacked * mask).expand(len(part.nodes), *sizes)
                total.index_add_(0, part.rows, stacked if part.inside is None else stacked.unsqueeze(-1) * part.inside)
            yield name, statements, total

    def _group(self, plan: Plan) -> dict[str, tuple[list[int], list[_MessageSum]]]:
        """Return by predicate the statements that touch it, and what is added up for them."""
        touching: dict[str, dict[int, int]] = {}  # the row of each statement
        for (name, _, _), messages in plan.messages.items():
            row_of = touching.setdefault(name, {})
            for message in messages:
                row_of.setdefault(message.statement_index, len(row_of))
        sums: dict[str, list[_MessageSum]] = {name: [] for name in touching}
        for (name, inside, form), messages in plan.messages.items():
            classes, one_hot = self.grounding.predicates[name].classes, None
            if classes is not None:
                one_hot = torch.zeros(len(classes), dtype=torch.float64)
                one_hot[list(inside)] = 1
            sums[name].append(
                _MessageSum(
                    form,
                    one_hot,
                    tuple(message.node for message in messages),
                    torch.tensor([message.coefficient for message in messages], dtype=torch.float64),
                    torch.tensor([touching[name][message.statement_index] for message in messages]),
                )
            )
        return {name: ([*touching[name]], sums[name]) for name in touching}


def _ground(space: AtomSpace, rules: RuleSet) -> Grounding:
    return Grounding(rules, domains=read_domains(space), relations=space.relations, distinct=space.distinct)


class _Rows:
    """Collects rows of atoms and the messages to them."""

    def __init__(self) -> None:
        self.count = 0
        self.starts: list[Ids] = []
        self._parts: list[tuple[Floats, Floats, Floats, Ids]] = []  # logits, gold, counts and worlds of rows
        self._entries: list[tuple[Ids, Ids, Floats]] = []  # rows, columns and messages

    def add(self, world: int, logits: Floats, gold: npt.NDArray[Any], counts: Floats, entries: Entries) -> None:
        """Add rows of a world; entries have the positions of these rows."""
        rows, columns, messages = entries
        self._entries.append((self.count + rows, columns, messages))
        self._parts.append((logits, gold.astype(np.float64), counts, np.full(len(logits), world)))
        self.count += len(logits)

    def finish(self, statements: int, *, has_classes: bool) -> AtomRows:
        """Return all rows."""
        whole = np.zeros(0, dtype=np.int64)
        parts = self._parts or [(np.zeros(0), np.zeros(0), np.zeros(0), whole)]
        logits, gold, counts, worlds = (np.concatenate(part) for part in zip(*parts, strict=True))
        entries = self._entries or [(whole, whole, np.zeros(0))]
        rows, columns, messages = (np.concatenate(part) for part in zip(*entries, strict=True))
        matrix = sparse.csr_matrix((messages, (rows, columns)), shape=(self.count, statements))
        starts = np.concatenate([*self.starts, whole]) if has_classes else None
        return AtomRows(matrix, logits, gold, counts, worlds, starts)


class _RowBuilder:
    """Collects atoms without classes: of each world first all messages, then the rows."""

    def __init__(self) -> None:
        self._rows = _Rows()
        self._entries: list[Entries] = []
        self._atoms: dict[str, tuple[int, Floats, npt.NDArray[Any]]] = {}  # the first atom, logits and gold labels

    def add(self, name: str, columns: Ids, messages: Floats, logits: Floats, gold: npt.NDArray[Any]) -> None:
        """Add the messages ``[columns, atoms]`` to a predicate."""
        if name not in self._atoms:
            self._atoms[name] = sum(len(part) for _, part, _ in self._atoms.values()), logits, gold
        flat = messages.reshape(-1)
        places = np.flatnonzero(np.abs(flat) > NO_MESSAGE)
        column, atom = np.divmod(places, len(logits))
        self._entries.append((self._atoms[name][0] + atom, columns[column], flat[places]))

    def end_world(self, world: int) -> None:
        """Turn what was added into rows."""
        if not self._entries:
            return
        atom, column, message = (np.concatenate(part) for part in zip(*self._entries, strict=True))
        logits = np.concatenate([part for _, part, _ in self._atoms.values()])
        gold = np.concatenate([part for _, _, part in self._atoms.values()]).astype(bool)
        odds = np.exp(np.minimum(logits, 0.0))  # at least the probability of being true, at most twice that
        is_kept = gold[atom] | (message > RAISED) | (np.abs(message) * odds[atom] > TOUCHED)
        is_touched = np.zeros(len(logits), dtype=bool)
        is_touched[atom[is_kept]] = True
        position = np.cumsum(is_touched) - 1
        entries = position[atom[is_kept]], column[is_kept], message[is_kept]
        self._rows.add(world, logits[is_touched], gold[is_touched], np.ones(int(is_touched.sum())), entries)
        self._add_up_others(world, column[~is_kept], message[~is_kept], odds[atom[~is_kept]])
        self._entries, self._atoms = [], {}

    def _add_up_others(self, world: int, column: Ids, message: Floats, odds: Floats) -> None:
        """Add a row for the false atoms that a statement sends messages of about one size, as many as there are.

        Where probabilities are small, ``Σ_i log(1 + e^(m_i + λ φ_i))`` is ``Σ_i e^(m_i) · e^(λ φ)`` for one φ: what n
        atoms give whose log-odds are the logarithm of the mean odds.
        """
        size = len(_EDGES) + 1
        group = (column * 2 + (message > 0)) * size + np.searchsorted(_EDGES, np.abs(message))
        counts, totals, moved = (np.bincount(group, values) for values in (None, odds, odds * message))
        groups = np.flatnonzero(totals > 0)
        counts, totals, moved = (part[groups] for part in (counts, totals, moved))
        entries = np.arange(len(groups)), groups // (2 * size), moved / totals
        self._rows.add(world, np.log(totals / counts), np.zeros(len(groups)), counts.astype(np.float64), entries)

    def finish(self, statements: int) -> AtomRows:
        """Return all rows."""
        return self._rows.finish(statements, has_classes=False)


class _ClassRowBuilder:
    """Collects atoms with classes, each of which has a row for every class."""

    def __init__(self) -> None:
        self._rows = _Rows()
        self._parts: dict[str, list[tuple[Ids, Floats, Floats, npt.NDArray[Any]]]] = {}

    def add(self, name: str, columns: Ids, messages: Floats, logits: Floats, gold: npt.NDArray[Any]) -> None:
        """Add the messages ``[columns, atoms, classes]`` to a predicate."""
        self._parts.setdefault(name, []).append((columns, messages, logits, gold))

    def end_world(self, world: int) -> None:
        """Turn what was added into rows."""
        for parts in self._parts.values():
            columns, messages = (
                np.concatenate(part) for part in zip(*((one[0], one[1]) for one in parts), strict=True)
            )
            _, _, logits, gold = parts[0]
            classes = logits.shape[1]
            is_there = np.abs(messages) > NO_MESSAGE
            atoms = np.flatnonzero(is_there.any((0, 2)))
            column, atom, chosen = np.nonzero(is_there[:, atoms])
            entries = classes * atom + chosen, columns[column], messages[:, atoms][column, atom, chosen]
            is_gold = (gold[atoms, None] == np.arange(classes)).reshape(-1)
            self._rows.starts.append(self._rows.count + classes * np.arange(len(atoms)))
            self._rows.add(world, logits[atoms].reshape(-1), is_gold, np.ones(len(is_gold)), entries)
        self._parts = {}

    def finish(self, statements: int) -> AtomRows:
        """Return all rows."""
        return self._rows.finish(statements, has_classes=True)


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
    programs = [_CaseProgram(space, columns.tolist()) for columns in _split_columns(rows, len(space.rules))]
    counter = _CaseCounter(len(space.rules))
    for row in rows:
        known = row.inputs.marginals(row.inputs.logits, space)
        known |= {name: seen.probability for name, seen in row.inputs.observed.items() if seen.where is None}
        predicted = {
            name: (values > 0.5 if space.predicates[name].classes is None else values == values.amax(-1, True)).double()
            for name, values in known.items()
        }
        for program in programs:
            runs = program.run(row.inputs, known), program.run(row.inputs, predicted)
            for (head, indices, scored), (_, _, fired) in zip(*runs, strict=True):
                if head.name not in row.counted:  # it is observed
                    continue
                counted, gold, score = row.counted[head.name], row.gold[head.name], known[head.name].numpy()
                if head.classes is not None:
                    gold, score = np.isin(gold, head.classes), score[..., head.classes].sum(-1)
                counter.add(indices, scored[:, counted], fired[:, counted], gold[counted], score[counted])
    with_head = {index for program in programs for index in program.owners}
    return [counter.read(index) if index in with_head else None for index in range(len(space.rules))]


@dataclass(frozen=True)
class _CaseHead:
    """What rules conclude: a predicate, or some classes of one."""

    name: str
    classes: list[int] | None


class _CaseProgram:
    """How probable bodies are, planned once for worlds of all sizes.

    That is the message of ``body & !head => case`` to an atom that stands for nothing else, divided by the probability
    of ``!head``: with this, a body that rests on the very atom of its head is none. Rules of one head share one
    predicate of cases; ``owners`` says which statement each formula is of.
    """

    def __init__(self, space: AtomSpace, indices: Sequence[int]) -> None:
        self.owners: list[int] = []
        self._heads: dict[str, _CaseHead] = {}  # by predicate of cases
        formulas: list[WeightedFormula] = []
        cases: dict[object, PredicateDeclaration] = {}
        for index in indices:
            for body, head in read_implications([formula for at, formula in space.stated if at == index]):
                declaration = space.predicates[str(head.predicate)]
                inside = head.classes if isinstance(head, Membership) else None
                new = PredicateDeclaration(f"case {len(cases)}", declaration.types)
                case = cases.setdefault((declaration.name, inside), new)
                classes = None if inside is None else [(declaration.classes or ()).index(name) for name in inside]
                self._heads[case.name] = _CaseHead(declaration.name, classes)
                parts = body.parts if isinstance(body, And) else (body,)
                formulas.append(WeightedFormula(Implies(And((*parts, Not(head))), Atom(case.name, head.args)), "learn"))
                self.owners.append(index)
        declared = (*space.predicates.values(), *cases.values())
        self._program = _Program(_ground(space, RuleSet(formulas, predicates=declared)))

    def run(self, inputs: GroundInputs, probabilities: Mapping[str, Tensor]) -> Iterator[tuple[_CaseHead, Ids, Floats]]:
        """Yield for each head its statements, and how many of their bodies hold, in expectation, for each atom."""
        predicates = self._program.grounding.predicates
        kept = {
            name: values.clamp(max=1 - _SURE) if predicates[name].classes is None else values.clamp(min=_SURE)
            for name, values in probabilities.items()
        }
        observed = {name: Observed(values, None) for name, values in kept.items()}
        shape = replace(inputs.shape, observed=frozenset(observed))
        for name, formulas, messages in self._program.run(
            replace(inputs, logits={}, observed=observed, shape=shape), {}
        ):
            head = self._heads[name]
            false = false_probability(
                kept[head.name],
                frozenset([TRUE] if head.classes is None else head.classes),
                predicates[head.name].classes,
            )
            owners, rows = np.unique([self.owners[formula] for formula in formulas], return_inverse=True)
            if len(owners) < len(formulas):  # alternatives of one rule
                messages = torch.zeros(len(owners), *messages.shape[1:], dtype=messages.dtype).index_add_(
                    0, torch.from_numpy(rows), messages
                )
            else:
                messages = messages[torch.from_numpy(np.argsort(rows))]
            yield head, owners, (messages / false).numpy()


class _CaseCounter:
    """Counts the cases of rules, world by world."""

    def __init__(self, statements: int) -> None:
        self._expected, self._scores = np.zeros(statements), np.zeros(statements)
        self._fired, self._held = np.zeros(statements, dtype=np.int64), np.zeros(statements, dtype=np.int64)
        self._above = np.zeros((statements, len(BINS) + 1, 2), dtype=np.int64)  # cases and held from each bin on

    def add(self, indices: Ids, scored: Floats, fired: Floats, gold: npt.NDArray[np.bool_], score: Floats) -> None:
        """Add the counted atoms of a head in a world: bodies are ``[statements, atoms]``."""
        self._expected[indices] += np.clip(scored, 0.0, 1.0).sum(1)
        has_fired = fired > 0.5
        self._fired[indices] += has_fired.sum(1)
        self._held[indices] += (has_fired & gold).sum(1)
        self._scores[indices] += has_fired @ score
        for position, bound in enumerate(BINS):
            above = scored >= bound
            self._above[indices, position, 0] += above.sum(1)
            self._above[indices, position, 1] += (above & gold).sum(1)

    def read(self, index: int) -> RuleCases:
        """Return what was counted for a statement."""
        fired, held = int(self._fired[index]), int(self._held[index])
        bins = tuple((cases, right) for cases, right in (-np.diff(self._above[index], axis=0)).tolist())
        score = float(self._scores[index] / fired) if fired else None
        return RuleCases(float(self._expected[index]), fired, held, score, bins)
