"""The decoder: the best labels of all entity pairs of a document that violate no rule."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.errors import DataError, unknown_name
from rulewright.inject.pairs.clauses import PairSource, read_clauses
from rulewright.inject.pairs.decoded import Change, Decoded
from rulewright.inject.pairs.inference import Problem, Solution, UnfinishedError, exact, full, repaired, simplified
from rulewright.inject.pairs.joins import ClauseJoins
from rulewright.inject.pairs.zero_one import Constraint, InfeasibleError
from rulewright.logic import Rule, RuleSet, Statement

Floats: TypeAlias = npt.NDArray[np.float64]
Labels: TypeAlias = npt.NDArray[np.bool_]


class LabelCosts:
    """The cost of label 0 for every atom of a document, and what label 1 costs more.

    With margin m, ``g = σ(m)`` and weight w of the relation, label 1 costs ``−log g`` and label 0
    ``−w · log(1 − g + epsilon)``.
    """

    def __init__(self, margins: Floats, weights: Floats, epsilon: float) -> None:
        softplus = np.maximum(margins, 0.0) + np.log1p(np.exp(-np.abs(margins)))
        if epsilon == 0:
            self.off = weights * softplus
            self.gain = (1 - weights) * softplus - margins  # exactly -margins where the weight is 1
        else:
            self.off = -weights * np.log(np.exp(-softplus) + epsilon)
            self.gain = softplus - margins - self.off
        diagonal = np.arange(len(margins))
        self.off[diagonal, diagonal] = 0.0  # an entity with itself is no pair, and never labelled

    def objective(self, labels: Labels) -> float:
        """Return the cost of a labelling, over all pairs of different entities."""
        return float(self.off.sum() + self.gain[labels].sum())


def relation_weights(
    relations: Sequence[str], *, tau: float, k: float, frequencies: Mapping[str, int] | Sequence[int] | None
) -> Floats:
    """Return ``τ · (−log p_r)^k`` for every relation, where ``p_r = (1 + count_r) / (R + facts)``.

    >>> relation_weights(["a", "b"], tau=0.5, k=1.0, frequencies={"a": 7, "b": 1}).round(3).tolist()
    [0.112, 0.805]
    """
    if not 0 < tau < math.inf:
        raise DataError(f"tau must be > 0 and finite, got {tau}")
    if not 0 <= k < math.inf:
        raise DataError(f"k must be >= 0 and finite, got {k}")
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


def as_array(values: Any, name: str) -> Floats:
    """Return a NumPy array or a torch tensor, of any precision and device, as float64."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double().numpy()
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{name} must be an array of numbers, got {type(values).__name__}") from None
    return array


def margins_of(logits: Any, relations: Sequence[str], threshold: Any = 0.5, threshold_logits: Any = None) -> Floats:
    """Return logits minus thresholds as [n, n, R], with zeros on the diagonal."""
    margins = given = as_array(logits, "logits")
    if margins.ndim != 3 or margins.shape[0] != margins.shape[1] or margins.shape[2] != len(relations):
        raise DataError(f"logits must have shape [n, n, {len(relations)}], got {list(margins.shape)}")
    if threshold_logits is None:
        bounds = _threshold_logits(threshold, relations)
    else:
        if not (np.ndim(threshold) == 0 and threshold == 0.5):
            raise DataError("give threshold or threshold_logits, not both")
        bounds = as_array(threshold_logits, "threshold_logits")
        if bounds.shape != margins.shape[:2]:
            raise DataError(f"threshold_logits must have shape {list(margins.shape[:2])}, got {list(bounds.shape)}")
        bounds = bounds[:, :, None]
    with np.errstate(invalid="ignore"):
        margins = margins - bounds
    diagonal = np.arange(len(margins))
    margins[diagonal, diagonal] = 0.0
    if not np.isfinite(margins).all():
        head, tail, relation = place = tuple(np.argwhere(~np.isfinite(margins))[0].tolist())
        where = f"for relation {relations[relation]!r} between entities {head} and {tail}"
        if not np.isfinite(given[place]):
            raise DataError(f"logits must be finite, got {given[place]} {where}")
        raise DataError(f"threshold_logits must be finite, got {as_array(threshold_logits, '')[head, tail]} {where}")
    return margins


def _threshold_logits(threshold: Any, relations: Sequence[str]) -> Floats:
    bounds = as_array(threshold, "threshold")
    if bounds.shape not in ((), (len(relations),)):
        raise DataError(f"threshold must be one number or {len(relations)}, got shape {list(bounds.shape)}")
    if not np.all((bounds > 0) & (bounds < 1)):
        wrong = float(bounds[()] if bounds.ndim == 0 else bounds[~((bounds > 0) & (bounds < 1))][0])
        raise DataError(f"threshold must be a probability between 0 and 1, got {wrong}")
    return np.asarray(np.log(bounds) - np.log1p(-bounds))


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
        rules: RuleSet | Rule | Iterable[Statement],
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
        if method not in ("exact", "simplified", "full"):
            raise DataError(f"method must be 'exact', 'simplified' or 'full', got {method!r}")
        if free not in ("all", "reference"):
            raise DataError(f"free must be 'all' or 'reference', got {free!r}")
        if max_labels_per_pair is not None and max_labels_per_pair < 1:
            raise DataError(f"max_labels_per_pair must be >= 1, got {max_labels_per_pair}")
        if not 0 <= epsilon < math.inf:
            raise DataError(f"epsilon must be >= 0 and finite, got {epsilon}")
        if time_limit is not None and not time_limit >= 0:
            raise DataError(f"time_limit must be >= 0, got {time_limit}")
        clauses = read_clauses(rules, relations, reader="RuleDecoder")
        self.relations = tuple(relations)
        self.method, self.free, self.epsilon, self.time_limit = method, free, epsilon, time_limit
        self.max_labels_per_pair = max_labels_per_pair
        self._weights = relation_weights(self.relations, tau=tau, k=k, frequencies=frequencies)
        self._joins = ClauseJoins(clauses, len(self.relations))
        if any(not clause.body for clause in clauses):
            self._check_consistency()

    def _check_consistency(self) -> None:
        """Refuse clauses that contradict each other; where every clause has a body, no labels at all satisfy them."""
        size = max(2, *(len(clause.variables) for clause in self._joins.clauses))
        shape = (size, size, len(self.relations))
        self._solved(Problem(self._joins, np.ones(shape), _off_diagonal(shape), self.max_labels_per_pair, None), None)

    def __call__(self, logits: Any, threshold: Any = 0.5, threshold_logits: Any = None) -> Decoded:
        """Decode one document.

        ``logits[n, n, R]`` is an array or tensor; ``threshold`` a probability or one for each relation;
        ``threshold_logits[n, n]`` instead gives every pair its own, as models with an adaptive threshold do.
        """
        margins = margins_of(logits, self.relations, threshold, threshold_logits)
        costs = LabelCosts(margins, self._weights, self.epsilon)
        size = len(margins)
        if size < 2:
            none = np.zeros(margins.shape, dtype=bool)
            return Decoded(none, none, 0.0, True, 0, 0, 0, (), self.relations)
        deadline = None if self.time_limit is None else time.monotonic() + self.time_limit
        free = self._free_atoms(margins)
        problem = Problem(self._joins, costs.gain, free, self.max_labels_per_pair, deadline)
        silver = _limited((margins > 0) & free, -margins, self.max_labels_per_pair)
        solution = self._solved(problem, silver if self.method == "simplified" else None)
        before = _limited((costs.gain < 0) & free, costs.gain, self.max_labels_per_pair)
        labels = problem.shaped(solution.labels)
        return Decoded(
            labels,
            before,
            costs.objective(labels),
            solution.optimal,
            solution.rounds,
            solution.constraints,
            self._joins.violations(labels) if self.method == "simplified" and not solution.optimal else 0,
            self._changes(before, labels, solution),
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
        if workers < 1:
            raise DataError(f"workers must be >= 1, got {workers}")
        if threshold_logits is not None and len(threshold_logits) != len(logits):
            raise DataError(
                f"threshold_logits must be {len(logits)} arrays, one a document, got {len(threshold_logits)}"
            )
        bounds = [None] * len(logits) if threshold_logits is None else threshold_logits
        tasks = [
            (
                number,
                as_array(each, "logits"),
                threshold,
                None if bound is None else as_array(bound, "threshold_logits"),
            )
            for number, (each, bound) in enumerate(zip(logits, bounds, strict=True))
        ]
        workers = min(workers, len(tasks))
        if workers <= 1:
            return [_decode_task(task, self) for task in tasks]
        with ProcessPoolExecutor(workers, get_context("spawn"), _set_decoder, (self,)) as pool:
            return list(pool.map(_decode_task, tasks, chunksize=max(1, len(tasks) // (4 * workers))))

    def _free_atoms(self, margins: Floats) -> Labels:
        """Return which atoms are decided."""
        free = _off_diagonal(margins.shape)
        if self.free == "all":
            return free
        pairs = (margins.max(2) >= 0) & free[:, :, 0]
        pairs |= pairs.T
        paths = (pairs.astype(np.float64) @ pairs) > 0
        return np.asarray(free & (pairs | paths)[:, :, None])

    def _solved(self, problem: Problem, silver: Labels | None) -> Solution:
        try:
            if silver is not None:
                return simplified(problem, silver)
            return full(problem) if self.method == "full" else exact(problem)
        except UnfinishedError as stop:
            labels, repairs = repaired(problem, stop.labels, patience=self.time_limit or 0.0)
            return Solution(labels, False, stop.rounds, len(stop.pool), stop.pool, repairs)
        except InfeasibleError as error:
            raise DataError(f"the rules contradict each other: {self._conflict(error.constraints)}") from None

    def _conflict(self, constraints: Sequence[Constraint]) -> str:
        shown = []
        for each in constraints[:5]:
            rule, grounding = self._reason(each)
            where = ", ".join(f"{variable} = {entity}" for variable, entity in grounding)
            limit = f"at most {each.bound} labels between entities {each.entities}"
            shown.append(limit if rule is None else f"{str(rule).split(' @{')[0]} where {where}")
        more = f" and {len(constraints) - 5} more" if len(constraints) > 5 else ""
        return "; ".join(shown) + more

    def _reason(self, constraint: Constraint | None) -> tuple[PairSource | None, tuple[tuple[str, int], ...]]:
        if constraint is None or constraint.clause < 0:
            return None, ()
        clause = self._joins.clauses[constraint.clause]
        return clause.source, tuple(sorted(zip(clause.variables, constraint.entities, strict=True)))

    def _changes(self, before: Labels, after: Labels, solution: Solution) -> tuple[Change, ...]:
        """Give every change a constraint that is tight now and would be broken were the change undone."""
        changed = np.flatnonzero(before != after).tolist()
        reasons: dict[int, Constraint] = {}
        wanted = set(changed)
        for each in solution.pool if wanted else ():
            touched = [atom for atom in (*each.plus, *each.minus) if atom in wanted]
            if touched and each.excess(solution.labels) == 0:
                for atom in touched:
                    if (atom in each.minus) == bool(solution.labels[atom]):
                        reasons.setdefault(atom, each)
        changes = []
        for atom in changed:
            head, tail, relation = (int(part) for part in np.unravel_index(atom, before.shape))
            rule, grounding = self._reason(reasons.get(atom) or solution.repairs.get(atom))
            was = bool(before[head, tail, relation])
            changes.append(Change(head, tail, self.relations[relation], was, not was, rule, grounding))
        return tuple(changes)


def _off_diagonal(shape: tuple[int, ...]) -> Labels:
    return np.broadcast_to(~np.eye(shape[0], dtype=bool)[:, :, None], shape).copy()


def _limited(labels: Labels, cost: Floats, limit: int | None) -> Labels:
    """Keep at most ``limit`` labels of a pair, those of least cost."""
    if limit is None or limit >= labels.shape[2]:
        return labels
    rank = np.argsort(np.argsort(np.where(labels, cost, np.inf), axis=2, kind="stable"), axis=2, kind="stable")
    return labels & (rank < limit)


_decoder_of_this_process: RuleDecoder | None = None


def _set_decoder(decoder: RuleDecoder) -> None:
    global _decoder_of_this_process
    _decoder_of_this_process = decoder


def _decode_task(task: tuple[int, Floats, Any, Floats | None], decoder: RuleDecoder | None = None) -> Decoded:
    number, logits, threshold, threshold_logits = task
    decoder = decoder or _decoder_of_this_process
    assert decoder is not None
    try:
        return decoder(logits, threshold, threshold_logits)
    except DataError as error:
        raise DataError(f"document {number}: {error}") from None
