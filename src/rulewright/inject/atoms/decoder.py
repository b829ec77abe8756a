"""The decoder: the best labels of all atoms of a batch that violate no rule, and why each label changed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from math import prod
from multiprocessing import get_context
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.checks import OneOf, ParameterRule, Real, Whole, check_parameter, check_parameters
from rulewright.errors import DataError, unknown_name
from rulewright.inject.atom_space import ENTITY, AtomSpace, Domains, ShapeReader
from rulewright.inject.atoms.clauses import AtomClause, read_clauses
from rulewright.inject.atoms.decoded import (
    Change,
    Decoded,
    Solver,
    describe_values,
    name_entities,
    write_atom,
)
from rulewright.inject.atoms.forest import solve_forest
from rulewright.inject.atoms.inference import (
    LabelProblem,
    Solution,
    choose_labels,
    solve_exact,
    solve_full,
    solve_simplified,
)
from rulewright.inject.atoms.joins import ClauseJoins, GroundingFinder
from rulewright.inject.atoms.layout import AtomChannels, AtomLayout, Floats, Labels
from rulewright.inject.atoms.zero_one import InfeasibleError, ZeroOneConstraint
from rulewright.logic import RuleSource

Observation: TypeAlias = Any
"""Truth values or class indices where a predicate is observed everywhere, or (values, observed); arrays or tensors."""

_PARAMETER_RULES: Mapping[str, ParameterRule] = {
    "method": OneOf("exact", "simplified", "full"),
    "tau": Real(0, above=True),
    "k": Real(0),
    "max_labels_per_pair": Whole(1, optional=True),
    "free": OneOf("all", "reference"),
    "epsilon": Real(0),
    "time_limit": Real(0, optional=True),
}


class RuleDecoder:
    r"""Global inference: labels that cost least among all that violate no rule.

    With margins ``m = logit − threshold logit`` and ``g = σ(m)``, over labels I in {0, 1} of all atoms, it minimises

        −Σ [ I · log g + (1 − I) · τ · (−log p_r)^k · log(1 − g) ]     where p_r = (1 + count_r) / (R + facts)

    and for atoms with classes ``−Σ log softmax(logits)[class]``, subject to ``Σ_i I(body_i) − l + 1 ≤ Σ_j I(head_j)``
    for every grounding of every clause of the rules. Rules are constraints whatever their confidence: give the rules
    that are to hold. Hard formulas are constraints too, also those that forbid (``hard !(cat(X) & dog(X)).``). Without
    rules, and with τ = 1 and k = 0, the labels are those above the threshold, or the likeliest class; ties go to 0 and
    to the first class.

    Logits, evidence, masks and ``relations`` are those of every injector (`rulewright.inject.atom_space`).

    Args:
        rules: a rule set, rules or their text; what has no meaning for labels is refused by name.
        relations: the names of the R relations of logits ``[*batch, n, n, R]``; an entity has no label with itself.
        domains: for each type how many entities it has, or their names, which rules with constants need.
        distinct: whether different variables are different entities; by default with ``relations``.
        method: ``"exact"`` finds the optimum: by dynamic programming where the atoms that are not observed make chains
            or trees, else adding constraints only as they are violated; ``"simplified"`` is Algorithm 2 of the MILR
            paper, with only the groundings whose bodies hold among the labels without rules, and may leave violations;
            ``"full"`` writes out every constraint, which gives the exact optimum slowly.
        tau, k: the compensation for relations that are rare, of atoms without classes; k needs ``frequencies``.
        frequencies: how many facts each predicate has in the training data, by name or in the order of relations.
        max_labels_per_pair: at most so many relations between two entities in one direction.
        free: ``"all"`` pairs are decided; ``"reference"``, as in the published code, only those with a margin of at
            least 0 for some relation, their inverses, and pairs that close a path of two of these; the others are 0.
        epsilon: added inside ``log(1 − g)``; the published code has 1e-5.
        time_limit: seconds for the search of one call; then labels are repaired to violate nothing, and ``optimal`` is
            False.

    ``max_labels_per_pair``, ``free="reference"`` and ``threshold_logits`` are for ``relations``.

    >>> decode = RuleDecoder("hard dog(X) => animal(X). hard !(dog(X) & cat(X)).")
    >>> decoded = decode({"dog": np.array([2.0, -1.0]), "cat": np.array([1.0, 3.0]), "animal": np.array([-0.5, 1.0])})
    >>> {name: labels.tolist() for name, labels in decoded.labels.items()}
    {'dog': [True, False], 'cat': [False, True], 'animal': [True, True]}
    >>> rules = "0.99 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z)."
    >>> decoder = RuleDecoder(rules, relations=["parent_of", "spouse_of"])
    >>> logits = np.full((3, 3, 2), -4.0)
    >>> logits[0, 1, 1], logits[1, 2, 0], logits[0, 2, 0] = 3.0, 5.0, -1.0
    >>> print(decoder(logits).report(["Bakhodir", "Chusovitina", "Alisher"]))
    3 facts, objective 1.5319 (optimal), 1 round, 1 constraint, 1 change
    + parent_of('Bakhodir', 'Alisher')  by  0.99 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z).
      where X = 'Bakhodir', Y = 'Chusovitina', Z = 'Alisher'
    """

    def __init__(
        self,
        rules: RuleSource,
        *,
        relations: Sequence[str] | None = None,
        domains: Domains | None = None,
        distinct: bool | None = None,
        method: Literal["exact", "simplified", "full"] = "exact",
        tau: float = 1.0,
        k: float = 0.0,
        frequencies: Mapping[str, int] | Sequence[int] | None = None,
        max_labels_per_pair: int | None = None,
        free: Literal["all", "reference"] = "all",
        epsilon: float = 0.0,
        time_limit: float | None = None,
    ) -> None:
        check_parameters(locals(), _PARAMETER_RULES)
        self.space = AtomSpace(rules, relations=relations, domains=domains, distinct=distinct)
        self.clauses = read_clauses(self.space, reader="RuleDecoder")
        self.relations = self.space.relations
        if self.relations is None:
            for name, given in (("max_labels_per_pair", max_labels_per_pair is not None), ("free", free != "all")):
                if given:
                    raise DataError(f"{name} is for the pairs of relations=[…]; write what excludes what as rules")
        self.method, self.free, self.epsilon, self.time_limit = method, free, epsilon, time_limit
        self.max_labels_per_pair = max_labels_per_pair
        predicates = [name for name, known in self.space.predicates.items() if known.classes is None]
        weighted = self.relations or predicates
        weights = _weigh_predicates(weighted, tau, k, frequencies, is_ordered=self.relations is not None)
        self._weights = dict(zip(weighted, weights.tolist(), strict=True))
        self._entity_names: dict[str, Sequence[str]] = {
            type_name: tuple(names) for type_name, names in self.space.entity_indices.items()
        }
        self._joins: dict[tuple[tuple[str, ...], frozenset[str]], ClauseJoins] = {}
        self._check_consistency()

    def _check_consistency(self) -> None:
        """Refuse clauses that contradict each other, whatever the logits.

        Where every clause has a body and no atom has classes, no labels at all satisfy them. Fewer entities than a
        call has are enough, since what more entities can satisfy, some of them can.
        """
        used = [name for name in self.space.predicates if name in self.space.used]
        if self.relations is not None:
            used = [*self.relations, *(name for name in used if name not in self.relations)]
        has_classes = any(self.space.predicates[name].classes is not None for name in used)
        constants = any(argument < 0 for clause in self.clauses for atom in clause.atoms for argument in atom.args)
        has_orders = any(clause.orders for clause in self.clauses)
        if constants or has_orders or not (has_classes or any(not clause.body for clause in self.clauses)):
            return
        most = max(2, *(len(clause.variables) for clause in self.clauses)) if self.clauses else 2
        sizes = {name: min(most, self.space.given_sizes.get(name, most)) for name in self.space.types}
        layout = AtomLayout(AtomChannels(self.space, used), 1, sizes)
        free = np.ones(layout.size, dtype=bool)
        if self.relations is not None and self.space.distinct:
            _clear_diagonal(layout.block_of(free, 0))
        gain = np.ones(layout.size)
        finder = GroundingFinder(ClauseJoins(self.clauses, layout.channels), layout)
        problem = LabelProblem(finder, gain, free, np.zeros_like(free), self.max_labels_per_pair, None)
        try:
            solve_exact(problem)
        except InfeasibleError as error:
            raise self._contradiction(error, "the rules contradict each other") from None

    def __call__(
        self,
        logits: Any,
        evidence: Mapping[str, Observation] | Any = None,
        mask: Any = None,
        *,
        threshold: Any = 0.5,
        threshold_logits: Any = None,
    ) -> Decoded:
        """Decode one batch, or one problem where the logits have no batch.

        Arrays and tensors are taken alike. ``threshold`` is a probability, or one for each relation in their order, or
        by predicate; ``threshold_logits[*batch, n, n]`` instead gives every pair its own, as models with an adaptive
        threshold do. ``decoder(logits, mask)`` is short for relations, as with every injector.
        """
        if evidence is not None and not isinstance(evidence, Mapping):
            if self.relations is None or mask is not None or np.ndim(evidence) == 0:
                raise DataError("evidence is given by predicate, {predicate: values}; a threshold by name, threshold=…")
            evidence, mask = None, evidence
        inputs = _read_inputs(self.space, logits, evidence or {}, mask)
        if inputs is None:
            none = np.zeros(_as_array(logits, "logits").shape, dtype=bool)
            return Decoded(none, none, 0.0, True, 0, 0, 0, (), "thresholds", self.relations)
        layout = inputs.layout
        margins, base, gain, free, fixed = self._weigh_labels(inputs, threshold, threshold_logits)
        joins = self._plan(inputs)
        finder = GroundingFinder(joins, layout, inputs.exists)
        deadline = None if self.time_limit is None else time.monotonic() + self.time_limit
        limit = self.max_labels_per_pair
        problem = LabelProblem(finder, gain, free, fixed, limit, deadline, self.time_limit or 0.0)
        before = _keep_cheapest(layout, problem.start, np.where(fixed, -np.inf, gain), limit)
        solution, solver = self._solve(problem, inputs, margins)
        counted = solution.labels & ~fixed
        violations = 0
        if self.method == "simplified" and not solution.is_optimal:
            violations = finder.count_violations(solution.labels)
        return Decoded(
            inputs.shape_labels(solution.labels),
            inputs.shape_labels(before),
            float(base + gain[counted].sum()),
            solution.is_optimal,
            solution.rounds,
            solution.n_constraints,
            violations,
            self._find_changes(problem, before, solution, inputs),
            solver,
            self.relations,
            self._entity_names,
            inputs.count_classified(),
        )

    def _plan(self, inputs: _Inputs) -> ClauseJoins:
        """Return the joins for the predicates of a call, planned once for all calls with the same ones."""
        key = (inputs.names, inputs.shared)
        if key not in self._joins:
            self._joins[key] = ClauseJoins(self.clauses, inputs.layout.channels)
        return self._joins[key]

    def _solve(self, problem: LabelProblem, inputs: _Inputs, margins: Floats) -> tuple[Solution, Solver]:
        try:
            if self.method == "simplified":
                silver = choose_labels(problem.layout, -margins, problem.free, problem.fixed)
                silver = _keep_cheapest(problem.layout, silver, -margins, problem.limit)
                solution = solve_simplified(problem, silver)
            elif self.method == "full":
                solution = solve_full(problem)
            else:
                found = solve_forest(problem, inputs.observed)
                if found is not None:
                    return found, "dynamic programming" if found.rounds else "thresholds"
                solution = solve_exact(problem)
        except InfeasibleError as error:
            others = "each other, or the evidence" if inputs.evidence else "each other"
            raise self._contradiction(error, f"the rules contradict {others}") from None
        if not solution.is_optimal and self.method != "simplified":
            return solution, "repair"
        return solution, "integer program" if solution.constraints else "thresholds"

    def decode_batch(
        self,
        logits: Sequence[Any],
        *,
        evidence: Sequence[Mapping[str, Observation] | None] | None = None,
        mask: Sequence[Any] | None = None,
        threshold: Any = 0.5,
        threshold_logits: Sequence[Any] | None = None,
        workers: int = 1,
    ) -> list[Decoded]:
        """Decode documents of any sizes, in their order; with several ``workers`` in as many processes.

        Problems of one size are better decoded as one batch: ``decoder(logits)``. The processes start afresh
        (``spawn``), so a script that asks for them needs ``if __name__ == "__main__":``.
        """
        check_parameter("workers", workers, Whole(1))
        given: dict[str, list[Any]] = {"logits": list(logits)}
        for name, values in (("evidence", evidence), ("mask", mask), ("threshold_logits", threshold_logits)):
            if values is not None and len(values) != len(logits):
                raise DataError(f"{name} must be {len(logits)} arrays, one a document, got {len(values)}")
            given[name] = [None] * len(logits) if values is None else list(values)
        tasks = [
            (index, *(_detach(part) for part in parts), threshold)
            for index, parts in enumerate(zip(*given.values(), strict=True))
        ]
        workers = min(workers, len(tasks))
        if workers <= 1:
            return [self._decode_task(task) for task in tasks]
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            return list(pool.map(self._decode_task, tasks, chunksize=max(1, len(tasks) // (4 * workers))))

    def _decode_task(self, task: tuple[Any, ...]) -> Decoded:
        index, logits, evidence, mask, threshold_logits, threshold = task
        try:
            return self(logits, evidence, mask, threshold=threshold, threshold_logits=threshold_logits)
        except DataError as error:
            raise DataError(f"document {index}: {error}") from None

    def _weigh_labels(
        self, inputs: _Inputs, threshold: Any, threshold_logits: Any
    ) -> tuple[Floats, float, Floats, Labels, Labels]:
        """Return for all labels of a batch, flat: margins, what all off cost, gains, which are free, and which fixed.

        With margin m, ``g = σ(m)`` and weight w of the predicate, label 1 costs ``−log g`` and label 0
        ``−w · log(1 − g + epsilon)``; class c of logits z costs ``log Σ exp z − z_c``.
        """
        layout = inputs.layout
        margins, gain = np.zeros(layout.size), np.zeros(layout.size)
        free, fixed = np.zeros(layout.size, dtype=bool), np.zeros(layout.size, dtype=bool)
        for name, (values, where) in inputs.evidence.items():
            _write_evidence(layout.predicate_of(fixed, name), values, where, has_classes=inputs.has_classes(name))
        bounds = _read_bounds(inputs, threshold, threshold_logits)
        total = 0.0
        for names, given in inputs.logits:
            counted = inputs.find_counted(names)
            has_classes = inputs.has_classes(names[0])
            with np.errstate(invalid="ignore"):
                margin = given if has_classes else given - bounds[names]
            margin = np.where(counted, margin, 0.0)
            if not np.isfinite(margin).all():
                raise _not_finite(inputs, names, given, margin)
            if has_classes:
                highest = margin.max(-1, keepdims=True)
                all_costs = np.log(np.exp(margin - highest).sum(-1)) + highest[..., 0]
                total += float(all_costs[counted[..., 0]].sum())
                gains = -margin
            else:
                weights = np.array([self._weights[name] for name in names])
                off_cost, gains = self._weigh_truths(margin, weights)
                total += float(np.where(counted, off_cost, 0.0).sum())
            decided = counted if self.free == "all" else counted & _find_reference_pairs(margin)
            if has_classes and given.shape[-1] == 1:  # of one class there is nothing to decide
                inputs.write(fixed, names, counted)
                decided = np.zeros_like(counted)
            for flat, part in ((margins, margin), (gain, gains), (free, decided)):
                inputs.write(flat, names, part)
        for type_name in inputs.exists:
            inputs.clear_padding(fixed, type_name)
        return margins, total, gain, free, fixed

    def _weigh_truths(self, margins: Floats, weights: Floats) -> tuple[Floats, Floats]:
        """Return for atoms without classes the cost of label 0, and what label 1 costs more."""
        softplus = np.maximum(margins, 0.0) + np.log1p(np.exp(-np.abs(margins)))
        if self.epsilon == 0:
            # the gain is exactly -margins where the weight is 1
            return weights * softplus, (1 - weights) * softplus - margins
        off_cost = -weights * np.log(np.exp(-softplus) + self.epsilon)
        return off_cost, softplus - margins - off_cost

    def _contradiction(self, error: InfeasibleError, what: str) -> DataError:
        conflicts = []
        for constraint in error.constraints[:5]:
            entities = constraint.entities[1:]
            if constraint.clause_index < 0:
                conflicts.append(f"at most {self.max_labels_per_pair} labels between entities {entities}")
                continue
            clause = self.clauses[constraint.clause_index]
            names = name_entities(entities, clause.types, self._entity_names)
            where = describe_values(*_sort_variables(clause, names))
            conflicts.append(str(clause.source).split(" @{")[0] + (f" where {where}" if where else ""))
        more = f" and {len(error.constraints) - 5} more" if len(error.constraints) > 5 else ""
        return DataError(f"{what}: {'; '.join(conflicts)}{more}")

    def _find_changes(
        self, problem: LabelProblem, before: Labels, solution: Solution, inputs: _Inputs
    ) -> tuple[Change, ...]:
        """Give every change a constraint that would be broken were the change undone."""
        choices, after = problem.choices, solution.labels
        changed = np.flatnonzero(before != after).tolist()
        first_of = {label: label if choices is None else int(choices.first[label]) for label in changed}
        reasons: dict[int, ZeroOneConstraint] = {}
        for constraint in solution.constraints if changed else ():
            undone: dict[int, int] = {}  # by atom, what the constraint would have more were it undone
            for sign, labels in ((1, constraint.plus), (-1, constraint.minus)):
                for label in labels:
                    if label in first_of:
                        difference = int(before[label]) - int(after[label])
                        undone[first_of[label]] = undone.get(first_of[label], 0) + sign * difference
            if undone:
                excess = constraint.excess(after)
                for atom, difference in undone.items():
                    if excess + difference > 0:
                        reasons.setdefault(atom, constraint)
        for label, constraint in solution.repairs.items():
            if label in first_of:
                reasons.setdefault(first_of[label], constraint)
        return tuple(
            self._describe_change(problem, atom, before, after, reasons.get(atom), inputs.batch)
            for atom in dict.fromkeys(first_of.values())
        )

    def _describe_change(
        self,
        problem: LabelProblem,
        atom: int,
        before: Labels,
        after: Labels,
        reason: ZeroOneConstraint | None,
        batch: tuple[int, ...],
    ) -> Change:
        name, row, args, _ = problem.layout.read_atom(atom)
        declaration = self.space.predicates[name]
        was: bool | str = bool(before[atom])
        now: bool | str = bool(after[atom])
        if declaration.classes is not None:
            members = slice(atom, atom + len(declaration.classes))
            was, now = (declaration.classes[int(labels[members].argmax())] for labels in (before, after))
        place = tuple(map(int, np.unravel_index(row, batch))) if batch else ()
        if reason is None or reason.clause_index < 0:
            return Change(name, args, was, now, None, (), place, declaration.types)
        clause = self.clauses[reason.clause_index]
        entities = dict(zip(clause.variables, reason.entities[1:], strict=True))
        types = dict(zip(clause.variables, clause.types, strict=True))
        variables = sorted(entities)
        grounding = tuple((variable, entities[variable]) for variable in variables)
        variable_types = tuple(types[variable] for variable in variables)
        return Change(name, args, was, now, clause.source, grounding, place, declaration.types, variable_types)


def _sort_variables(clause: AtomClause, values: Sequence[str]) -> tuple[list[str], list[str]]:
    pairs = sorted(zip(clause.variables, values, strict=True))
    return [variable for variable, _ in pairs], [value for _, value in pairs]


@dataclass(frozen=True)
class _Inputs:
    """What a decoder is given, checked and as arrays with one dimension for the batch.

    ``logits`` are ``[rows, *arguments, channels]`` of one predicate, or of all relations; ``evidence`` is values and
    where they are observed, None for everywhere; ``shared`` are the predicates whose evidence has no batch.
    """

    space: AtomSpace
    layout: AtomLayout
    names: tuple[str, ...]
    shared: frozenset[str]
    batch: tuple[int, ...]
    logits: list[tuple[tuple[str, ...], Floats]]
    evidence: Mapping[str, tuple[npt.NDArray[Any], Labels | None]]
    exists: Mapping[str, Labels]

    @property
    def observed(self) -> frozenset[str]:
        """The predicates that are observed everywhere."""
        return frozenset(name for name, (_, where) in self.evidence.items() if where is None)

    def has_classes(self, name: str) -> bool:
        """Tell whether a predicate has classes."""
        return self.layout.channels[name].has_classes

    def write(self, flat: npt.NDArray[Any], names: tuple[str, ...], part: npt.NDArray[Any]) -> None:
        """Write what predicates that stand side by side have into a flat vector."""
        first, last = self.layout.channels[names[0]], self.layout.channels[names[-1]]
        self.layout.block_of(flat, first.block)[..., first.first : last.first + last.width] = part

    def find_counted(self, names: tuple[str, ...]) -> Labels:
        """Return which labels of predicates are of entities that exist and are not observed."""
        first, last = self.layout.channels[names[0]], self.layout.channels[names[-1]]
        shape = self.layout.shapes[first.block]
        counted = np.ones((*shape[:-1], last.first + last.width - first.first), dtype=bool)
        for position, type_name in enumerate(self.layout.channels.blocks[first.block].types):
            if type_name in self.exists:
                counted &= _align(self.exists[type_name], position, len(shape))
        if self.space.relations is not None and self.space.distinct:
            _clear_diagonal(counted)
        for name in names:
            if name in self.evidence:
                where = self.evidence[name][1]
                start = self.layout.channels[name].first - first.first
                part = counted[..., start : start + self.layout.channels[name].width]
                part &= False if where is None else ~where[..., None]
        return counted

    def clear_padding(self, flat: Labels, type_name: str) -> None:
        """Set the labels of entities that do not exist to 0; what all rows share is left, joins leave padding out."""
        for index, block in enumerate(self.layout.channels.blocks):
            for position, other in enumerate(block.types):
                if other == type_name and block.batched:
                    labels = self.layout.block_of(flat, index)
                    labels &= _align(self.exists[type_name], position, labels.ndim)

    def shape_labels(self, flat: Labels) -> Any:
        """Return flat labels as those of each predicate that has logits, or of all relations."""
        if self.space.relations is not None:
            labels = self.layout.block_of(flat, 0)
            return labels.reshape((*self.batch, *labels.shape[1:]))
        shaped: dict[str, npt.NDArray[Any]] = {}
        for (name,), _ in self.logits:
            found = self.layout.predicate_of(flat, name)
            values = found.argmax(-1) if self.has_classes(name) else found[..., 0]
            shaped[name] = values.reshape((*self.batch, *values.shape[1:])).copy()
        return shaped

    def count_classified(self) -> int:
        """Count the atoms of predicates with classes that have logits and entities that exist."""
        total = 0
        for names, given in self.logits:
            if self.has_classes(names[0]):
                exists = np.ones(given.shape[:-1], dtype=bool)
                for position, type_name in enumerate(self.space.predicates[names[0]].types):
                    if type_name in self.exists:
                        exists &= _align(self.exists[type_name], position, exists.ndim + 1)[..., 0]
                total += int(exists.sum())
        return total


def _align(exists: Labels, position: int, dims: int) -> Labels:
    """Return a mask ``[rows, N]`` so that N is the argument at a position of an array with so many dimensions."""
    return exists.reshape(len(exists), *(1,) * position, -1, *(1,) * (dims - position - 2))


def _read_inputs(space: AtomSpace, logits: Any, evidence: Mapping[str, Observation], mask: Any) -> _Inputs | None:
    """Check what a decoder is given; None where there are no pairs to decide."""
    arrays: dict[str, Floats] = {}
    stacked: Floats | None = None
    if isinstance(logits, Mapping):
        if space.relations is not None:
            raise DataError(f"logits are one array [*batch, n, n, {len(space.relations)}] with relations=[…]")
        arrays = {name: _as_array(given, f"logits of {name}") for name, given in logits.items()}
    else:
        stacked = _as_array(logits, "logits")
        if space.relations is None:
            raise DataError("logits are given by predicate, {predicate: logits}; one array needs relations=[…]")
        views = space.split_relations(stacked)
        if stacked.shape[-2] < (2 if space.distinct else 1):
            return None
        arrays = {space.relations[0]: views[space.relations[0]]}  # all have one shape
    given_names = space.relations or tuple(arrays)
    for name in (*given_names, *evidence):
        if name not in space.predicates:
            raise unknown_name("predicate", name, space.predicates)
    missing = [name for name in space.used if name not in given_names and name not in evidence]
    if missing:
        name = min(missing)
        what = "evidence, since it is closed" if name in space.closed else "logits or evidence"
        raise DataError(f"predicate {name} has no {what}, but occurs in: {space.find_formula(name)}")
    shapes = ShapeReader(space, arrays)
    known: dict[str, tuple[npt.NDArray[Any], Labels | None]] = {}
    for name, observation in evidence.items():
        known[name] = _read_evidence(shapes, name, observation)
        if known[name][1] is not None and name not in given_names:
            raise DataError(f"predicate {name} is observed in part, so it needs logits for the rest")
    for name in given_names:
        if name in space.closed and name in space.used and (name not in known or known[name][1] is not None):
            raise DataError(f"predicate {name} is closed: all its atoms are evidence, observed everywhere")
    if mask is not None and not isinstance(mask, Mapping):
        if space.relations is None:
            raise DataError("masks are given by type, {type: mask}; one array needs relations=[…]")
        mask = {ENTITY: mask}
    rows = prod(shapes.batch)
    exists = {type_name: _read_mask(shapes, type_name, given, rows) for type_name, given in (mask or {}).items()}
    sizes = {type_name: size for type_name, (size, _) in shapes.sizes.items()}
    names = (*given_names, *(name for name in known if name not in given_names))
    shared = frozenset(
        name for name, (values, _) in known.items() if name not in given_names and len(values) == 1 != rows
    )
    layout = AtomLayout(AtomChannels(space, names, shared), rows, sizes)
    flat: list[tuple[tuple[str, ...], Floats]] = []
    if stacked is not None:
        assert space.relations is not None
        flat.append((space.relations, stacked.reshape(rows, *stacked.shape[-3:])))
    else:
        for name, given in arrays.items():
            shape = given.shape[len(shapes.batch) :]
            classes = space.predicates[name].classes
            flat.append(((name,), given.reshape((rows, *shape, *([1] if classes is None else [])))))
    return _Inputs(space, layout, names, shared, shapes.batch, flat, known, exists)


def _read_evidence(shapes: ShapeReader, name: str, observation: Observation) -> tuple[npt.NDArray[Any], Labels | None]:
    """Return observed values and where they are, with one dimension for the batch, of size 1 where all rows share."""
    declaration = shapes.space.predicates[name]
    values, where = observation if isinstance(observation, tuple) else (observation, None)
    values = np.asarray(_detach(values))
    where = where if where is None else np.asarray(_detach(where))
    if where is not None and (where.dtype != bool or where.shape != values.shape):
        raise DataError(f"evidence of {name} is (values, observed), both of one shape and observed boolean")
    lead = shapes.read_evidence(name, values)
    if declaration.classes is None:
        if values.dtype != bool:
            raise DataError(f"evidence of {name} must be boolean, got {values.dtype}")
    elif not np.issubdtype(values.dtype, np.integer):
        raise DataError(f"evidence of {name} must be class indices, got {values.dtype}")
    else:
        wrong = (values < 0) | (values >= len(declaration.classes))
        if np.any(wrong if where is None else wrong & where):
            raise DataError(f"evidence of {name} must be class indices below {len(declaration.classes)}")
    shape = values.shape[lead:]
    return values.reshape(-1, *shape), where if where is None else where.reshape(-1, *shape)


def _read_mask(shapes: ShapeReader, type_name: str, given: Any, rows: int) -> Labels:
    mask = np.asarray(_detach(given))
    shapes.read_mask(type_name, mask)
    if mask.dtype != bool:
        raise DataError(f"the mask of type {type_name} must be boolean, got {mask.dtype}")
    return np.broadcast_to(mask.reshape(-1, mask.shape[-1]), (rows, mask.shape[-1]))


def _write_evidence(labels: Labels, values: npt.NDArray[Any], where: Labels | None, *, has_classes: bool) -> None:
    """Set what is observed in labels ``[rows, *arguments, channels]``."""
    known = values[..., None] == np.arange(labels.shape[-1]) if has_classes else values[..., None]
    labels[...] = known if where is None else known & where[..., None]


def _find_reference_pairs(margins: Floats) -> Labels:
    """Return the pairs ``[rows, n, n, 1]`` with a margin of at least 0, their inverses, and paths of two of them."""
    pairs = margins.max(-1) >= 0
    _clear_diagonal(pairs[..., None])
    pairs |= pairs.transpose(0, 2, 1)
    paths = (pairs.astype(np.float64) @ pairs.astype(np.float64)) > 0
    return np.asarray(pairs | paths)[..., None]


def _weigh_predicates(
    predicates: Sequence[str],
    tau: float,
    k: float,
    frequencies: Mapping[str, int] | Sequence[int] | None,
    *,
    is_ordered: bool,
) -> Floats:
    """Return ``τ · (−log p_r)^k`` for every predicate, where ``p_r = (1 + count_r) / (R + facts)``.

    >>> _weigh_predicates(["a", "b"], 0.5, 1.0, {"a": 7, "b": 1}, is_ordered=True).round(3).tolist()
    [0.112, 0.805]
    """
    if frequencies is None:
        if k != 0:
            raise DataError(f"k = {k} weighs relations by how frequent they are; give frequencies, the facts of each")
        return np.full(len(predicates), float(tau))
    if isinstance(frequencies, Mapping):
        for name in frequencies:
            if name not in predicates:
                raise unknown_name("relation" if is_ordered else "predicate without classes", name, predicates)
        counts = np.array([frequencies.get(name, 0) for name in predicates], dtype=np.float64)
    else:
        if not is_ordered:
            raise DataError("frequencies are given by predicate, {predicate: facts}; a list needs relations=[…]")
        counts = np.asarray(frequencies, dtype=np.float64)
        if counts.shape != (len(predicates),):
            raise DataError(f"frequencies must have {len(predicates)} counts, got shape {list(counts.shape)}")
    if not np.all((counts >= 0) & np.isfinite(counts)):
        raise DataError("frequencies must be >= 0 and finite")
    share = (1 + counts) / (len(predicates) + counts.sum())
    return np.asarray(tau * (-np.log(share)) ** k)


def _detach(values: Any) -> Any:
    """Return tensors, also in a pair or by name, as arrays; numbers of a precision that arrays lack as float64."""
    if isinstance(values, Mapping):
        return {name: _detach(part) for name, part in values.items()}
    if isinstance(values, tuple):
        return tuple(map(_detach, values))
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        return (values.double() if values.is_floating_point() else values).numpy()
    return values


def _as_array(values: Any, name: str) -> Floats:
    """Return a NumPy array or a torch tensor, of any precision and device, as float64."""
    try:
        return np.asarray(_detach(values), dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{name} must be an array of numbers, got {type(values).__name__}") from None


def _read_bounds(inputs: _Inputs, threshold: Any, threshold_logits: Any) -> dict[tuple[str, ...], Any]:
    """Return the log-odds of the thresholds of predicates without classes, which their logits are compared with."""
    names = [names for names, _ in inputs.logits if not inputs.has_classes(names[0])]
    if threshold_logits is None:
        return {group: _read_threshold(threshold, group, inputs) for group in names}
    if inputs.space.relations is None:
        raise DataError("threshold_logits are for relations=[…]; subtract what is adaptive from the logits")
    if not (np.ndim(threshold) == 0 and threshold == 0.5):
        raise DataError("give threshold or threshold_logits, not both")
    bounds = _as_array(threshold_logits, "threshold_logits")
    shape = (*inputs.batch, *inputs.layout.shapes[0][1:-1])
    if bounds.shape != shape:
        raise DataError(f"threshold_logits must have shape {list(shape)}, got {list(bounds.shape)}")
    return {names[0]: bounds.reshape(inputs.layout.shapes[0][:-1])[..., None]}


def _read_threshold(threshold: Any, names: tuple[str, ...], inputs: _Inputs) -> Floats:
    """Return the log-odds of a threshold: of one for all predicates, or one for each."""
    if isinstance(threshold, Mapping):
        known = [name for group, _ in inputs.logits for name in group if not inputs.has_classes(name)]
        for name in threshold:
            if name not in known:
                raise unknown_name("predicate without classes", name, known)
        bounds = np.array([_as_array(threshold.get(name, 0.5), "threshold") for name in names])
    else:
        bounds = _as_array(threshold, "threshold")
    if bounds.shape not in ((), (len(names),)) or (bounds.shape and inputs.space.relations is None and len(names) > 1):
        raise DataError(f"threshold must be one number or {len(names)}, got shape {list(bounds.shape)}")
    wrong = bounds[~((bounds > 0) & (bounds < 1))]
    if wrong.size:
        raise DataError(f"threshold must be a probability between 0 and 1, got {float(wrong.flat[0])}")
    return np.asarray(np.log(bounds) - np.log1p(-bounds))


def _not_finite(inputs: _Inputs, names: tuple[str, ...], given: Floats, margins: Floats) -> DataError:
    row, *args, channel = np.argwhere(~np.isfinite(margins))[0].tolist()
    where = f" in row {row}" if inputs.batch else ""
    if inputs.space.relations is not None:
        atom = f"relation {names[channel]!r} between entities {args[0]} and {args[1]}"
    else:
        atom = write_atom(names[0], [str(index) for index in args])
        classes = inputs.space.predicates[names[0]].classes
        atom += "" if classes is None else f" in {{{classes[channel]}}}"
    value = given[(row, *args, channel)]
    if not np.isfinite(value):
        return DataError(f"logits must be finite, got {value} for {atom}{where}")
    return DataError(f"threshold_logits must be finite, got {value - margins[(row, *args, channel)]} for {atom}{where}")


def _clear_diagonal(labels: Labels) -> None:
    """Set labels ``[rows, n, n, channels]`` of entities with themselves to False."""
    diagonal = np.arange(labels.shape[1])
    labels[:, diagonal, diagonal] = False


def _keep_cheapest(layout: AtomLayout, labels: Labels, cost: Floats, limit: int | None) -> Labels:
    """Keep at most ``limit`` labels of a pair of the first block, those of least cost."""
    if limit is None or limit >= layout.shapes[0][-1]:
        return labels
    labels = labels.copy()
    pairs, costs = layout.block_of(labels, 0), layout.block_of(cost, 0)
    rank = np.argsort(np.argsort(np.where(pairs, costs, np.inf), axis=-1, kind="stable"), axis=-1, kind="stable")
    pairs &= rank < limit
    return labels
