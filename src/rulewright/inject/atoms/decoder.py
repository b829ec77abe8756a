"""The decoder: the best labels of all atoms of a batch that violate no rule, and why each label changed."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from typing import Any, Literal, NamedTuple

import numpy as np

from rulewright.checks import OneOf, ParameterRule, Real, Whole, check_parameter, check_parameters
from rulewright.data.index import Ids
from rulewright.errors import DataError, unknown_name
from rulewright.inject.atom_space import AtomSpace, Domains
from rulewright.inject.atoms.clauses import ClauseSource, read_clauses, read_costed_clauses
from rulewright.inject.atoms.decoded import (
    BrokenGroundings,
    BrokenRule,
    Change,
    Decoded,
    Solver,
    describe_values,
    name_entities,
    read_row,
)
from rulewright.inject.atoms.decoder_inputs import (
    DecoderInputs,
    Observation,
    as_floats,
    clear_diagonal,
    detach_values,
    not_finite,
    read_decoder_inputs,
    read_thresholds,
    write_evidence,
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
from rulewright.inject.atoms.joins import ClauseJoins, GroundingFinder, Groundings
from rulewright.inject.atoms.layout import AtomChannels, AtomLayout, Floats, GroundAtom, Labels
from rulewright.inject.atoms.rule_costs import RuleCosts, read_rule_costs
from rulewright.inject.atoms.zero_one import InfeasibleError, ZeroOneConstraint
from rulewright.logic import RuleSource, WeightedFormula

_PARAMETER_RULES: Mapping[str, ParameterRule] = {
    "method": OneOf("exact", "simplified", "full"),
    "tau": Real(0, above=True),
    "k": Real(0),
    "max_labels_per_pair": Whole(1, optional=True),
    "free": OneOf("all", "reference"),
    "epsilon": Real(0),
    "time_limit": Real(0, optional=True),
}


class _Posed(NamedTuple):
    """A problem with what it was made of, and what all labels off cost."""

    problem: LabelProblem
    inputs: DecoderInputs
    margins: Floats
    cost: float

    def weigh(self, labels: Labels) -> float:
        """Return what labels cost, without the rules that they break."""
        return self.cost + float(self.problem.gain[np.flatnonzero(labels)].sum())


class RuleDecoder:
    r"""Global inference: labels that cost least among all that violate no rule, or violate them at a cost.

    With margins ``m = logit − threshold logit`` and ``g = σ(m)``, over labels I in {0, 1} of all atoms, it minimises

        −Σ [ I · log g + (1 − I) · τ · (−log p_r)^k · log(1 − g) ]     where p_r = (1 + count_r) / (R + facts)

    and for atoms with classes ``−Σ log softmax(logits)[class]``, subject to ``Σ_i I(body_i) − l + 1 ≤ Σ_j I(head_j)``
    for every grounding of every clause of the rules. Rules are constraints whatever their confidence: give the rules
    that are to hold. Hard formulas are constraints too, also those that forbid (``hard !(cat(X) & dog(X)).``). Without
    rules, and with τ = 1 and k = 0, the labels are those above the threshold, or the likeliest class; ties go to 0 and
    to the first class.

    With ``rule_costs`` statements may be broken: to the sum above comes ``Σ_f cost_f · (false groundings of f)``. A
    grounding of a statement is an assignment of entities to all its variables, those of the body too, also where
    several come to the same atoms; the alternatives of a rule count each, and atoms that coincide are one.

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
        rule_costs: what a false grounding costs, `math.inf` where there must be none and 0 where it does not matter:
            None is infinite for all; or a number for all, a sequence in the order of the statements, or a mapping from
            some statements, or their text, with the others infinite; or ``"weight"``, the weight that rules
            (``@{weight: 1.5}``) and formulas (``1.5 a(X) => b(X).``) have, with hard formulas infinite.
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
    >>> decoder = RuleDecoder(rules, relations=["parent_of", "spouse_of"], rule_costs=0.5)
    >>> decoded = decoder(logits, prices=True)
    >>> print(decoded.summary().split(", 1 round")[0])
    2 facts, objective 1.0319 (optimal; labels 0.5319, rules 0.5000)
    >>> print(decoded.broken[0].text(["Bakhodir", "Chusovitina", "Alisher"]))
    ! broken 1 time for 0.5000:  0.99 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z).
      where X = 'Bakhodir', Y = 'Chusovitina', Z = 'Alisher'  (keeping it costs 0.5000 more)
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
        rule_costs: RuleCosts | None = None,
        epsilon: float = 0.0,
        time_limit: float | None = None,
    ) -> None:
        check_parameters(locals(), _PARAMETER_RULES)
        self.space = AtomSpace(rules, relations=relations, domains=domains, distinct=distinct)
        self.rule_costs = None if rule_costs is None else read_rule_costs(self.space.rules, rule_costs)
        self._costs: Floats | None = None  # of clauses, where some may be broken
        self._statements: tuple[int, ...] = ()  # of which each clause is
        self._parts: Ids | None = None  # the formulas of which clauses count a part, where there are any
        if self.rule_costs is None:
            self.clauses = read_clauses(self.space, reader="RuleDecoder")
        else:
            self.clauses, costs, self._statements = read_costed_clauses(
                self.space, self.rule_costs, reader="RuleDecoder"
            )
            self._costs = np.array(costs) if any(map(math.isfinite, costs)) else None
            self._parts = self._find_parts()
        self._variable_orders = [sorted(range(len(c.variables)), key=c.variables.__getitem__) for c in self.clauses]
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

    def _find_parts(self) -> Ids | None:
        """Return for each clause the formula that it is one of several parts of, -1 for others; None where none is."""
        counts = Counter(self._statements)
        parts = [
            position if isinstance(clause.source, WeightedFormula) and counts[position] > 1 else -1
            for clause, position in zip(self.clauses, self._statements, strict=True)
        ]
        return np.array(parts) if self._costs is not None and max(parts) >= 0 else None

    def _check_consistency(self) -> None:
        """Refuse clauses that contradict each other, whatever the logits.

        Where every clause has a body and no atom has classes, no labels at all satisfy them. Fewer entities than a
        call has are enough, since what more entities can satisfy, some of them can.
        """
        indices = np.arange(len(self.clauses)) if self._costs is None else np.flatnonzero(np.isinf(self._costs))
        must_hold = [self.clauses[index] for index in indices.tolist()]
        used = [name for name in self.space.predicates if name in self.space.used]
        if self.relations is not None:
            used = [*self.relations, *(name for name in used if name not in self.relations)]
        has_classes = any(self.space.predicates[name].classes is not None for name in used)
        constants = any(argument < 0 for clause in must_hold for atom in clause.atoms for argument in atom.args)
        has_orders = any(clause.orders for clause in must_hold)
        if constants or has_orders or not (has_classes or any(not clause.body for clause in must_hold)):
            return
        most = max(2, *(len(clause.variables) for clause in must_hold)) if must_hold else 2
        sizes = {name: min(most, self.space.given_sizes.get(name, most)) for name in self.space.types}
        layout = AtomLayout(AtomChannels(self.space, used), 1, sizes)
        free = np.ones(layout.size, dtype=bool)
        if self.relations is not None and self.space.distinct:
            clear_diagonal(layout.block_of(free, 0))
        gain = np.ones(layout.size)
        finder = GroundingFinder(ClauseJoins(must_hold, layout.channels), layout)
        problem = LabelProblem(finder, gain, free, np.zeros_like(free), self.max_labels_per_pair, None)
        try:
            solve_exact(problem)
        except InfeasibleError as error:
            error.constraints = [
                constraint._replace(clause_index=int(indices[constraint.clause_index]))
                if constraint.clause_index >= 0
                else constraint
                for constraint in error.constraints
            ]
            raise self._contradiction(error, "the rules contradict each other") from None

    def __call__(
        self,
        logits: Any,
        evidence: Mapping[str, Observation] | Any = None,
        mask: Any = None,
        *,
        threshold: Any = 0.5,
        threshold_logits: Any = None,
        prices: bool = False,
    ) -> Decoded:
        """Decode one batch, or one problem where the logits have no batch.

        Arrays and tensors are taken alike. ``threshold`` is a probability, or one for each relation in their order, or
        by predicate; ``threshold_logits[*batch, n, n]`` instead gives every pair its own, as models with an adaptive
        threshold do. ``decoder(logits, mask)`` is short for relations, as with every injector. With ``prices`` it
        decodes once more for each rule that is broken, and says what it would have cost to keep it, all else equal.
        """
        if evidence is not None and not isinstance(evidence, Mapping):
            if self.relations is None or mask is not None or np.ndim(evidence) == 0:
                raise DataError("evidence is given by predicate, {predicate: values}; a threshold by name, threshold=…")
            evidence, mask = None, evidence
        posed = self._pose(logits, evidence or {}, mask, threshold, threshold_logits)
        if posed is None:
            none = np.zeros(as_floats(logits, "logits").shape, dtype=bool)
            return Decoded(none, none, 0.0, True, 0, 0, 0, (), "thresholds", self.relations)
        problem, inputs, _, _ = posed
        before = _keep_cheapest(problem, problem.start, problem.gain)
        try:
            solution, solver = self._solve(posed)
        except InfeasibleError as error:
            others = "each other, or the evidence" if inputs.evidence else "each other"
            raise self._contradiction(error, f"the rules contradict {others}") from None
        violations = 0
        if self.method == "simplified" and not solution.is_optimal:
            violations = sum(map(len, problem.find_violated(solution.labels)))
        costly = list(problem.find_costly(solution.labels))
        broken = self._list_broken(problem, costly, inputs.batch)
        rule_cost = sum((rule.cost for rule in broken), 0.0)
        decoded = Decoded(
            inputs.shape_labels(solution.labels),
            inputs.shape_labels(before),
            posed.weigh(solution.labels) + rule_cost,
            solution.is_optimal,
            solution.rounds,
            solution.n_constraints,
            violations,
            self._find_changes(problem, before, solution, costly, inputs),
            solver,
            self.relations,
            self._entity_names,
            inputs.count_classified(),
            broken,
            rule_cost,
        )
        if prices and broken:
            priced = tuple(replace(rule, price=self._find_price(posed, rule, decoded)) for rule in broken)
            decoded = replace(decoded, broken=priced)
        return decoded

    def _pose(
        self,
        logits: Any,
        evidence: Mapping[str, Observation],
        mask: Any,
        threshold: Any,
        threshold_logits: Any,
    ) -> _Posed | None:
        """Return the problem of a call; None where there are no pairs to decide."""
        inputs = read_decoder_inputs(self.space, self._plan, logits, evidence, mask)
        if inputs is None:
            return None
        finder = GroundingFinder(inputs.joins, inputs.layout, inputs.exists)
        deadline = None if self.time_limit is None else time.monotonic() + self.time_limit
        cost, gain, free, fixed, margins = self._weigh_labels(inputs, threshold, threshold_logits)
        patience, limit = self.time_limit or 0.0, self.max_labels_per_pair
        problem = LabelProblem(finder, gain, free, fixed, limit, deadline, patience, self._costs, self._parts)
        return _Posed(problem, inputs, margins, cost)

    def _find_price(self, posed: _Posed, rule: BrokenRule, decoded: Decoded) -> float | None:
        """Return how much more the labels cost where a rule must hold; None where either is not proven."""
        assert self._costs is not None
        costs = np.where(np.array(self._statements) == rule.position, np.inf, self._costs)
        deadline = None if self.time_limit is None else time.monotonic() + self.time_limit
        kept = posed._replace(problem=replace(posed.problem, costs=costs, deadline=deadline))
        try:
            solution, _ = self._solve(kept)
        except InfeasibleError:
            return math.inf
        if not (solution.is_optimal and decoded.optimal):
            return None
        problem, labels = kept.problem, solution.labels
        rule_cost = sum(float(problem.costs_of(broken).sum()) for broken in problem.find_costly(labels))
        return max(0.0, kept.weigh(labels) + rule_cost - decoded.objective)

    def _list_broken(
        self, problem: LabelProblem, costly: Sequence[Groundings], batch: tuple[int, ...]
    ) -> tuple[BrokenRule, ...]:
        """Return the rules that labels break at a cost, with the groundings."""
        if self.rule_costs is None:
            return ()
        parts: dict[int, list[BrokenGroundings]] = {}
        for groundings in costly:
            for clause_index in np.unique(groundings.clauses).tolist():
                entities = groundings.entities[groundings.clauses == clause_index]
                columns = problem.finder.joins.read_columns(clause_index, entities)
                order = self._variable_orders[clause_index]
                clause = self.clauses[clause_index]
                names, types = (tuple(part[i] for i in order) for part in (clause.variables, clause.types))
                part = BrokenGroundings(names, types, columns[:, [0, *(1 + variable for variable in order)]])
                parts.setdefault(self._statements[clause_index], []).append(part)
        broken = []
        for position, found in parts.items():
            statement, count = self.space.rules.statements[position], sum(len(part.entities) for part in found)
            assert isinstance(statement, ClauseSource)
            cost = count * self.rule_costs[position]
            broken.append(BrokenRule(statement, position, count, cost, parts=tuple(found), batch=batch))
        return tuple(sorted(broken, key=lambda rule: (-rule.cost, rule.position)))

    def _plan(self, names: tuple[str, ...], shared: frozenset[str]) -> ClauseJoins:
        """Return the joins for the predicates of a call, planned once for all calls with the same ones."""
        if (names, shared) not in self._joins:
            self._joins[names, shared] = ClauseJoins(self.clauses, AtomChannels(self.space, names, shared))
        return self._joins[names, shared]

    def _solve(self, posed: _Posed) -> tuple[Solution, Solver]:
        problem, inputs, margins, _ = posed
        if self.method == "simplified":
            silver = choose_labels(problem.layout, -margins, problem.free, problem.fixed)
            solution = solve_simplified(problem, _keep_cheapest(problem, silver, -margins))
        elif self.method == "full":
            solution = solve_full(problem)
        else:
            found = solve_forest(problem, inputs.observed)
            if found is not None:
                return found, "dynamic programming" if found.rounds else "thresholds"
            solution = solve_exact(problem)
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
        prices: bool = False,
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
            (index, *(detach_values(part) for part in parts), threshold, prices)
            for index, parts in enumerate(zip(*given.values(), strict=True))
        ]
        workers = min(workers, len(tasks))
        if workers <= 1:
            return [self._decode_task(task) for task in tasks]
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            return list(pool.map(self._decode_task, tasks, chunksize=max(1, len(tasks) // (4 * workers))))

    def _decode_task(self, task: tuple[Any, ...]) -> Decoded:
        index, logits, evidence, mask, threshold_logits, threshold, prices = task
        try:
            return self(logits, evidence, mask, threshold=threshold, threshold_logits=threshold_logits, prices=prices)
        except DataError as error:
            raise DataError(f"document {index}: {error}") from None

    def _weigh_labels(
        self, inputs: DecoderInputs, threshold: Any, threshold_logits: Any
    ) -> tuple[float, Floats, Labels, Labels, Floats]:
        """Return what all labels off cost, and flat: what each costs more on, which are free, which fixed, margins.

        With margin m, ``g = σ(m)`` and weight w of the predicate, label 1 costs ``−log g`` and label 0
        ``−w · log(1 − g + epsilon)``; class c of logits z costs ``log Σ exp z − z_c``.
        """
        layout = inputs.layout
        fixed = np.zeros(layout.size, dtype=bool)
        for name, (values, where) in inputs.evidence.items():
            write_evidence(layout.predicate_of(fixed, name), values, where, has_classes=inputs.has_classes(name))
        bounds = read_thresholds(inputs, threshold, threshold_logits)
        cost = 0.0
        gains: dict[tuple[str, ...], Floats] = {}
        decided: dict[tuple[str, ...], Labels] = {}
        margins: dict[tuple[str, ...], Floats] = {}
        for names, given in inputs.logits:
            decided[names] = inputs.find_counted(names)
            ignored = np.flatnonzero(~decided[names])
            has_classes = inputs.has_classes(names[0])
            with np.errstate(invalid="ignore"):
                margins[names] = margin = given.copy() if has_classes else given - bounds[names]
            margin.reshape(-1)[ignored] = 0.0
            if not np.isfinite(margin).all():
                raise not_finite(inputs, names, given, margin)
            if has_classes:
                highest = margin.max(-1, keepdims=True)
                off_cost = np.log(np.exp(margin - highest).sum(-1, keepdims=True)) + highest
                gains[names] = -margin
                off_cost[~decided[names][..., :1]] = 0.0
            else:
                weights = np.array([self._weights[name] for name in names])
                off_cost, gains[names] = self._weigh_truths(margin, weights)
                off_cost.reshape(-1)[ignored] = gains[names].reshape(-1)[ignored] = 0.0
            cost += float(off_cost.sum())
            if self.free == "reference":
                decided[names] &= _find_reference_pairs(margin)
            elif has_classes and given.shape[-1] == 1:  # of one class there is nothing to decide
                layout.predicate_of(fixed, names[0])[...] |= decided[names]
                decided[names][...] = False
        for type_name in inputs.exists:
            inputs.clear_padding(fixed, type_name)
        return cost, inputs.flatten(gains), inputs.flatten(decided), fixed, inputs.flatten(margins)

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
            order = self._variable_orders[constraint.clause_index]
            where = describe_values([clause.variables[i] for i in order], [names[i] for i in order])
            conflicts.append(str(clause.source).split(" @{")[0] + (f" where {where}" if where else ""))
        more = f" and {len(error.constraints) - 5} more" if len(error.constraints) > 5 else ""
        return DataError(f"{what}: {'; '.join(conflicts)}{more}")

    def _find_changes(
        self,
        problem: LabelProblem,
        before: Labels,
        solution: Solution,
        costly: Sequence[Groundings],
        inputs: DecoderInputs,
    ) -> tuple[Change, ...]:
        """Give every change a constraint that would then be broken were it undone: of several, one that costs most."""
        choices, after = problem.choices, solution.labels
        changed = np.flatnonzero(before != after).tolist()
        first_of = {label: label if choices is None else int(choices.first[label]) for label in changed}
        reasons: dict[int, ZeroOneConstraint] = {}
        broken = {name for groundings in costly if changed for name in problem.name_assignments(groundings)}
        for constraint in solution.constraints if changed else ():
            if problem.parts is not None and (problem.parts[constraint.clause_index], *constraint.entities) in broken:
                continue  # another part of the formula is violated there already
            undone: dict[int, int] = {}  # by atom, what the constraint would have more were it undone
            for sign, labels in ((1, constraint.plus), (-1, constraint.minus)):
                for label in labels:
                    if label in first_of:
                        difference = int(before[label]) - int(after[label])
                        undone[first_of[label]] = undone.get(first_of[label], 0) + sign * difference
            excess = constraint.excess(after) if undone else 1
            for atom, difference in undone.items() if excess <= 0 else ():
                if excess + difference > 0 and (atom not in reasons or constraint.cost > reasons[atom].cost):
                    reasons[atom] = constraint
        atoms = np.array(list(dict.fromkeys(first_of.values())), dtype=np.int64)
        was, now = (self._name_labels(problem, atoms, labels) for labels in (before, after))
        return tuple(
            self._describe_change(ground, old, new, reasons.get(atom) or solution.reasons.get(atom), inputs.batch)
            for ground, atom, old, new in zip(problem.layout.read_atoms(atoms), atoms.tolist(), was, now, strict=True)
        )

    def _name_labels(self, problem: LabelProblem, atoms: Ids, labels: Labels) -> list[bool | int]:
        """Return the truth values of atoms, or their class indices where they have classes."""
        values: list[bool | int] = labels[atoms].tolist()
        if problem.choices is not None:
            widths = problem.choices.width[atoms]
            for width in np.unique(widths[widths > 1]).tolist():
                chosen = np.flatnonzero(widths == width)
                classes = labels[atoms[chosen, None] + np.arange(width)].argmax(1)
                for position, class_index in zip(chosen.tolist(), classes.tolist(), strict=True):
                    values[position] = class_index
        return values

    def _describe_change(
        self,
        ground: GroundAtom,
        before: bool | int,
        after: bool | int,
        reason: ZeroOneConstraint | None,
        batch: tuple[int, ...],
    ) -> Change:
        name, row, args = ground
        declaration = self.space.predicates[name]
        was, now = (
            bool(value) if declaration.classes is None else declaration.classes[value] for value in (before, after)
        )
        place = read_row(row, batch)
        if reason is None or reason.clause_index < 0:
            return Change(name, args, was, now, None, (), place, declaration.types)
        clause = self.clauses[reason.clause_index]
        order = self._variable_orders[reason.clause_index]
        grounding = tuple((clause.variables[variable], reason.entities[1 + variable]) for variable in order)
        variable_types = tuple(clause.types[variable] for variable in order)
        return Change(name, args, was, now, clause.source, grounding, place, declaration.types, variable_types)


def _find_reference_pairs(margins: Floats) -> Labels:
    """Return the pairs ``[rows, n, n, 1]`` with a margin of at least 0, their inverses, and paths of two of them."""
    pairs = margins.max(-1) >= 0
    clear_diagonal(pairs[..., None])
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


def _keep_cheapest(problem: LabelProblem, labels: Labels, cost: Floats) -> Labels:
    """Keep no more labels of a pair than the limit allows: what is observed, and those of least cost."""
    if problem.limit is None or problem.limit >= problem.layout.shapes[0][-1]:
        return labels
    labels = labels.copy()
    pairs = problem.layout.block_of(labels, 0)
    costs = problem.layout.block_of(np.where(problem.fixed, -np.inf, cost), 0)
    rank = np.argsort(np.argsort(np.where(pairs, costs, np.inf), axis=-1, kind="stable"), axis=-1, kind="stable")
    pairs &= rank < problem.limit
    return labels
