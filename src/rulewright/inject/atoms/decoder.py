"""The decoder: the best labels of all entity pairs of a document that violate no rule, and why each label changed."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, Literal

import numpy as np

from rulewright.checks import OneOf, ParameterRule, Real, Whole, check_parameter, check_parameters
from rulewright.errors import DataError, unknown_name
from rulewright.inject.atoms.clauses import ClauseSource, read_pair_clauses
from rulewright.inject.atoms.inference import (
    LabelProblem,
    Solution,
    solve_exact,
    solve_full,
    solve_simplified,
)
from rulewright.inject.atoms.joins import ClauseJoins, Labels
from rulewright.inject.atoms.zero_one import Floats, InfeasibleError, ZeroOneConstraint
from rulewright.logic import RuleSource, quote

_PARAMETER_RULES: Mapping[str, ParameterRule] = {
    "method": OneOf("exact", "simplified", "full"),
    "tau": Real(0, above=True),
    "k": Real(0),
    "max_labels_per_pair": Whole(1, optional=True),
    "free": OneOf("all", "reference"),
    "epsilon": Real(0),
    "time_limit": Real(0, optional=True),
}


@dataclass(frozen=True)
class Change:
    """One label that differs from what it would be without rules, and a grounding that forces it.

    Were the label changed back alone, ``rule`` would be violated where its variables are the entities of
    ``grounding``. ``rule`` is None where no single grounding is the reason, such as for the limit of labels of a pair.
    After a time limit it is the grounding that the label was repaired for.
    """

    head: int
    tail: int
    relation: str
    before: bool
    after: bool
    rule: ClauseSource | None
    grounding: tuple[tuple[str, int], ...]

    def text(self, entities: Sequence[str] | None = None) -> str:
        """Describe the change in a line, with the entities' names where they are given."""
        head, tail = (_entity_name(entity, entities) for entity in (self.head, self.tail))
        atom = f"{'+' if self.after else '-'} {quote(self.relation)}({head}, {tail})"
        if self.rule is None:
            return f"{atom}  by the limit of labels of a pair, or several rules at once"
        return f"{atom}  by  {_describe_grounding(self.rule, self.grounding, entities, '  where ')}"

    def __str__(self) -> str:
        return self.text()


@dataclass(frozen=True, eq=False)
class Decoded:
    """The labels of one document.

    Attributes:
        labels: boolean [n, n, R].
        before: the labels without rules; with ``tau=1, k=0`` those above the threshold.
        objective: the cost of the labels.
        optimal: whether they are proven to cost least among all labellings that violate nothing.
        rounds: how often constraints were added and the program was solved.
        constraints: how many constraints it had in the end.
        violations: how many groundings are violated; always 0, except for ``method="simplified"``.
        changes: what differs from ``before``, and why.
        relations: the names of the relations.
    """

    labels: Labels
    before: Labels
    objective: float
    optimal: bool
    rounds: int
    constraints: int
    violations: int
    changes: tuple[Change, ...]
    relations: tuple[str, ...]

    def facts(self) -> list[tuple[int, str, int]]:
        """Return the labels as (head, relation, tail)."""
        return [(int(h), self.relations[r], int(t)) for h, t, r in zip(*np.nonzero(self.labels), strict=True)]

    def report(self, entities: Sequence[str] | None = None) -> str:
        """Describe the answer for people: a line of numbers, then a line for each change."""
        counts = [
            (int(self.labels.sum()), "fact"),
            (self.rounds, "round"),
            (self.constraints, "constraint"),
            (len(self.changes), "change"),
            (self.violations, "violated grounding"),
        ]
        parts = [f"{count:,} {noun}{'' if count == 1 else 's'}" for count, noun in counts]
        proof = "optimal" if self.optimal else "not proven optimal"
        parts.insert(1, f"objective {self.objective:.4f} ({proof})")
        summary = ", ".join(parts if self.violations else parts[:-1])
        return "\n".join([summary, *(change.text(entities) for change in self.changes)])

    def __str__(self) -> str:
        return self.report()


def _entity_name(entity: int, entities: Sequence[str] | None) -> str:
    return str(entity) if entities is None else quote(entities[entity])


def _describe_grounding(
    rule: ClauseSource,
    grounding: tuple[tuple[str, int], ...],
    entities: Sequence[str] | None = None,
    separator: str = " where ",
) -> str:
    values = ", ".join(f"{variable} = {_entity_name(entity, entities)}" for variable, entity in grounding)
    return f"{str(rule).split(' @{')[0]}{separator}{values}"


class RuleDecoder:
    r"""Global inference: labels that cost least among all that violate no rule.

    With margins ``m = logit − threshold logit`` and ``g = σ(m)``, over labels I in {0, 1} for every relation r and pair
    of different entities, it minimises

        −Σ [ I · log g + (1 − I) · τ · (−log p_r)^k · log(1 − g) ]     where p_r = (1 + count_r) / (R + facts)

    subject to ``Σ_i I(r_i(e_i-1, e_i)) − l + 1 ≤ I(head(e_0, e_l))`` for every rule and every assignment of distinct
    entities; an inverse relation is the transposed label. Rules are constraints whatever their confidence: give the
    rules that are to hold. Hard formulas are constraints too, also those that forbid (``hard !(a(X, Y) & b(X, Y))``).
    Without rules, and with τ = 1 and k = 0, the labels are those above the threshold; ties go to 0.

    Args:
        rules: a rule set or rules; what has no meaning over pairs is refused by name.
        relations: the names of the R relations, in the order of the logits.
        method: ``"exact"`` finds the optimum, adding constraints only as they are violated; ``"simplified"`` is
            Algorithm 2 of the MILR paper, with only the groundings whose bodies hold among the thresholded labels, and
            may leave violations; ``"full"`` writes out every constraint, which gives the exact optimum slowly.
        tau, k: the compensation for relations that are rare; k needs ``frequencies``.
        frequencies: how many facts each relation has in the training data, by name or in order.
        max_labels_per_pair: at most so many relations between two entities in one direction.
        free: ``"all"`` pairs are decided; ``"reference"``, as in the published code, only those with a margin of at
            least 0 for some relation, their inverses, and pairs that close a path of two of these; the others are 0.
        epsilon: added inside ``log(1 − g)``; the published code has 1e-5.
        time_limit: seconds for the search in one document; then labels are repaired to violate nothing, and
            ``optimal`` is False.

    >>> from rulewright.logic import parse_rules
    >>> rules = parse_rules("0.99 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z).")
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
        relations: Sequence[str],
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
        clauses = read_pair_clauses(rules, relations, reader="RuleDecoder")
        self.relations = tuple(relations)
        self.method, self.free, self.epsilon, self.time_limit = method, free, epsilon, time_limit
        self.max_labels_per_pair = max_labels_per_pair
        self._weights = _weigh_relations(self.relations, tau, k, frequencies)
        self._joins = ClauseJoins(clauses)
        if any(not clause.body for clause in clauses):
            self._check_consistency()

    def _check_consistency(self) -> None:
        """Refuse clauses that contradict each other; where every clause has a body, no labels at all satisfy them."""
        size = max(2, *(len(clause.variables) for clause in self._joins.clauses))
        shape = (size, size, len(self.relations))
        problem = LabelProblem(self._joins, np.ones(shape), _off_diagonal(shape), self.max_labels_per_pair, None)
        self._solve(problem, None)

    def __call__(self, logits: Any, threshold: Any = 0.5, threshold_logits: Any = None) -> Decoded:
        """Decode one document.

        ``logits[n, n, R]`` is an array or tensor; ``threshold`` a probability or one for each relation;
        ``threshold_logits[n, n]`` instead gives every pair its own, as models with an adaptive threshold do.
        """
        margins = _read_margins(logits, self.relations, threshold, threshold_logits)
        if len(margins) < 2:
            none = np.zeros(margins.shape, dtype=bool)
            return Decoded(none, none, 0.0, True, 0, 0, 0, (), self.relations)
        off_cost, gain = self._weigh_labels(margins)
        deadline = None if self.time_limit is None else time.monotonic() + self.time_limit
        free = self._find_free_atoms(margins)
        limit, patience = self.max_labels_per_pair, self.time_limit or 0.0
        problem = LabelProblem(self._joins, gain, free, limit, deadline, patience)
        silver = _keep_cheapest((margins > 0) & free, -margins, limit)
        solution = self._solve(problem, silver if self.method == "simplified" else None)
        before = _keep_cheapest((gain < 0) & free, gain, limit)
        labels = problem.shape_labels(solution.labels)
        return Decoded(
            labels,
            before,
            float(off_cost.sum() + gain[labels].sum()),
            solution.is_optimal,
            solution.rounds,
            solution.n_constraints,
            self._joins.count_violations(labels) if self.method == "simplified" and not solution.is_optimal else 0,
            self._find_changes(before, labels, solution),
            self.relations,
        )

    def decode_batch(
        self,
        logits: Sequence[Any],
        *,
        threshold: Any = 0.5,
        threshold_logits: Sequence[Any] | None = None,
        workers: int = 1,
    ) -> list[Decoded]:
        """Decode documents, in their order; with several ``workers`` in as many processes.

        The processes start afresh (``spawn``), so a script that asks for them needs ``if __name__ == "__main__":``.
        """
        check_parameter("workers", workers, Whole(1))
        if threshold_logits is not None and len(threshold_logits) != len(logits):
            raise DataError(
                f"threshold_logits must be {len(logits)} arrays, one a document, got {len(threshold_logits)}"
            )
        documents = [_as_array(document, "logits") for document in logits]
        bounds = [None] * len(documents) if threshold_logits is None else list(threshold_logits)
        tasks = [
            (index, document, threshold, None if bound is None else _as_array(bound, "threshold_logits"))
            for index, (document, bound) in enumerate(zip(documents, bounds, strict=True))
        ]
        workers = min(workers, len(tasks))
        if workers <= 1:
            return [self._decode_task(task) for task in tasks]
        with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
            return list(pool.map(self._decode_task, tasks, chunksize=max(1, len(tasks) // (4 * workers))))

    def _decode_task(self, task: tuple[int, Floats, Any, Floats | None]) -> Decoded:
        index, logits, threshold, threshold_logits = task
        try:
            return self(logits, threshold, threshold_logits)
        except DataError as error:
            raise DataError(f"document {index}: {error}") from None

    def _weigh_labels(self, margins: Floats) -> tuple[Floats, Floats]:
        """Return for every atom the cost of label 0, and what label 1 costs more.

        With margin m, ``g = σ(m)`` and weight w of the relation, label 1 costs ``−log g`` and label 0
        ``−w · log(1 − g + epsilon)``.
        """
        softplus = np.maximum(margins, 0.0) + np.log1p(np.exp(-np.abs(margins)))
        if self.epsilon == 0:
            off_cost = self._weights * softplus
            gain = (1 - self._weights) * softplus - margins  # exactly -margins where the weight is 1
        else:
            off_cost = -self._weights * np.log(np.exp(-softplus) + self.epsilon)
            gain = softplus - margins - off_cost
        diagonal = np.arange(len(margins))
        off_cost[diagonal, diagonal] = 0.0  # an entity with itself is no pair, and never labelled
        return off_cost, gain

    def _find_free_atoms(self, margins: Floats) -> Labels:
        """Return which atoms are decided."""
        free = _off_diagonal(margins.shape)
        if self.free == "all":
            return free
        pairs = (margins.max(2) >= 0) & free[:, :, 0]
        pairs |= pairs.T
        paths = (pairs.astype(np.float64) @ pairs) > 0
        return np.asarray(free & (pairs | paths)[:, :, None])

    def _solve(self, problem: LabelProblem, silver: Labels | None) -> Solution:
        try:
            if silver is not None:
                return solve_simplified(problem, silver)
            return solve_full(problem) if self.method == "full" else solve_exact(problem)
        except InfeasibleError as error:
            conflicts = []
            for constraint in error.constraints[:5]:
                rule, grounding = self._read_reason(constraint)
                limit = f"at most {constraint.bound} labels between entities {constraint.entities}"
                conflicts.append(limit if rule is None else _describe_grounding(rule, grounding))
            more = f" and {len(error.constraints) - 5} more" if len(error.constraints) > 5 else ""
            raise DataError(f"the rules contradict each other: {'; '.join(conflicts)}{more}") from None

    def _read_reason(
        self, constraint: ZeroOneConstraint | None
    ) -> tuple[ClauseSource | None, tuple[tuple[str, int], ...]]:
        if constraint is None or constraint.clause_index < 0:
            return None, ()
        clause = self._joins.clauses[constraint.clause_index]
        return clause.source, tuple(sorted(zip(clause.variables, constraint.entities, strict=True)))

    def _find_changes(self, before: Labels, after: Labels, solution: Solution) -> tuple[Change, ...]:
        """Give every change a constraint that is tight now and would be broken were the change undone."""
        changed = dict.fromkeys(np.flatnonzero(before != after).tolist())
        reasons: dict[int, ZeroOneConstraint] = {}
        for constraint in solution.constraints if changed else ():
            touched = [atom for atom in constraint.atoms if atom in changed]
            if touched and constraint.excess(solution.labels) == 0:
                for atom in touched:
                    if (atom in constraint.minus) == bool(solution.labels[atom]):
                        reasons.setdefault(atom, constraint)
        changes = []
        for atom in changed:
            head, tail, relation = (int(index) for index in np.unravel_index(atom, before.shape))
            rule, grounding = self._read_reason(reasons.get(atom) or solution.repairs.get(atom))
            was = bool(before[head, tail, relation])
            changes.append(Change(head, tail, self.relations[relation], was, not was, rule, grounding))
        return tuple(changes)


def _weigh_relations(
    relations: Sequence[str], tau: float, k: float, frequencies: Mapping[str, int] | Sequence[int] | None
) -> Floats:
    """Return ``τ · (−log p_r)^k`` for every relation, where ``p_r = (1 + count_r) / (R + facts)``.

    >>> _weigh_relations(["a", "b"], tau=0.5, k=1.0, frequencies={"a": 7, "b": 1}).round(3).tolist()
    [0.112, 0.805]
    """
    if frequencies is None:
        if k != 0:
            raise DataError(f"k = {k} weighs relations by how frequent they are; give frequencies, the facts of each")
        return np.full(len(relations), float(tau))
    if isinstance(frequencies, Mapping):
        for name in frequencies:
            if name not in relations:
                raise unknown_name("relation", name, relations)
        counts = np.array([frequencies.get(name, 0) for name in relations], dtype=np.float64)
    else:
        counts = np.asarray(frequencies, dtype=np.float64)
        if counts.shape != (len(relations),):
            raise DataError(f"frequencies must have {len(relations)} counts, got shape {list(counts.shape)}")
    if not np.all((counts >= 0) & np.isfinite(counts)):
        raise DataError("frequencies must be >= 0 and finite")
    share = (1 + counts) / (len(relations) + counts.sum())
    return np.asarray(tau * (-np.log(share)) ** k)


def _as_array(values: Any, name: str) -> Floats:
    """Return a NumPy array or a torch tensor, of any precision and device, as float64."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{name} must be an array of numbers, got {type(values).__name__}") from None


def _read_margins(logits: Any, relations: Sequence[str], threshold: Any, threshold_logits: Any) -> Floats:
    """Return logits minus thresholds as [n, n, R], with zeros on the diagonal."""
    given = _as_array(logits, "logits")
    if given.ndim != 3 or given.shape[0] != given.shape[1] or given.shape[2] != len(relations):
        raise DataError(f"logits must have shape [n, n, {len(relations)}], got {list(given.shape)}")
    if threshold_logits is None:
        bounds = _read_threshold(threshold, relations)
    else:
        if not (np.ndim(threshold) == 0 and threshold == 0.5):
            raise DataError("give threshold or threshold_logits, not both")
        bounds = _as_array(threshold_logits, "threshold_logits")
        if bounds.shape != given.shape[:2]:
            raise DataError(f"threshold_logits must have shape {list(given.shape[:2])}, got {list(bounds.shape)}")
        bounds = bounds[:, :, None]
    with np.errstate(invalid="ignore"):
        margins = given - bounds
    diagonal = np.arange(len(margins))
    margins[diagonal, diagonal] = 0.0
    if not np.isfinite(margins).all():
        head, tail, relation = np.argwhere(~np.isfinite(margins))[0].tolist()
        where = f"for relation {relations[relation]!r} between entities {head} and {tail}"
        if not np.isfinite(given[head, tail, relation]):
            raise DataError(f"logits must be finite, got {given[head, tail, relation]} {where}")
        raise DataError(f"threshold_logits must be finite, got {bounds[head, tail, 0]} {where}")
    return margins


def _read_threshold(threshold: Any, relations: Sequence[str]) -> Floats:
    """Return the log-odds of a threshold, of one for all relations or one for each."""
    bounds = _as_array(threshold, "threshold")
    if bounds.shape not in ((), (len(relations),)):
        raise DataError(f"threshold must be one number or {len(relations)}, got shape {list(bounds.shape)}")
    wrong = bounds[~((bounds > 0) & (bounds < 1))]
    if wrong.size:
        raise DataError(f"threshold must be a probability between 0 and 1, got {float(wrong.flat[0])}")
    return np.asarray(np.log(bounds) - np.log1p(-bounds))


def _off_diagonal(shape: tuple[int, ...]) -> Labels:
    return np.broadcast_to(~np.eye(shape[0], dtype=bool)[:, :, None], shape).copy()


def _keep_cheapest(labels: Labels, cost: Floats, limit: int | None) -> Labels:
    """Keep at most ``limit`` labels of a pair, those of least cost."""
    if limit is None or limit >= labels.shape[2]:
        return labels
    rank = np.argsort(np.argsort(np.where(labels, cost, np.inf), axis=2, kind="stable"), axis=2, kind="stable")
    return labels & (rank < limit)
