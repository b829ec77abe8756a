"""Exclusions: two predicates that never hold of the same, ``!(cat(X) & dog(X))``, though chance would have them meet.

Two unary predicates (or classes) with a and b facts among n entities of their type would by chance hold together of
``a b / n``. Two relations, or one and another swapped, would by chance join ``Σ_x d_r(x) d_s(x) · Σ_y d_r'(y) d_s'(y) /
(a b)`` pairs, where d are the degrees of the first and d' of the last entities: edges that keep their ends and are
joined anew.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.special import pdtr

from rulewright.data import KnowledgeBase
from rulewright.data.index import Ids
from rulewright.learn.miner.filters import RuleFilters
from rulewright.learn.miner.properties import NONE, find_unary
from rulewright.logic import And, Annotations, Atom, Formula, Not, Variable, WeightedFormula

LEAST_SHARE = 0.99
"""What is written as hard holds of at least so many of the rarer predicate's facts."""
CHANCE = 0.05
"""The chance, for all pairs of predicates together, that one of them meets so seldom without an exclusion."""
MAX_EXCLUSIONS = 10_000
"""How many are kept, those that chance would break most often."""

MAX_PREDICATES = 3_000
"""How many predicates are compared with each other, those with most facts."""

Counts = npt.NDArray[np.float64]


class ExclusionCounter:
    """Counts pairs of predicates over the same entity, the same pair of entities, and the same pair swapped.

    ``body`` is the number of facts of the rarer predicate, ``support`` how many of them the other does not share, and
    ``expected`` how many it would share by chance. An exclusion is kept where ``support / body`` is at least
    ``min_confidence`` and 0.99, and a Poisson variable of mean ``expected`` is as low as ``body - support`` with a
    probability below 0.05 over the number of pairs that were compared.
    """

    def __init__(self, kb: KnowledgeBase, filters: RuleFilters) -> None:
        self.kb, self.filters = kb, filters
        self.notes: list[str] = []

    def mine(self) -> list[WeightedFormula]:
        """Return the exclusions, those that chance would break most often first."""
        found = [*(self._compare_unary() if self.filters.unary else ()), *self._compare_relations()]
        found.sort(key=lambda pair: (-pair[0], str(pair[1].formula)))
        if len(found) > MAX_EXCLUSIONS:
            self.notes.append(f"of {len(found):,} exclusions the {MAX_EXCLUSIONS:,} that chance breaks most are kept")
        return [formula for _, formula in found[:MAX_EXCLUSIONS]]

    def _compare_unary(self) -> list[tuple[float, WeightedFormula]]:
        unary = find_unary(self.kb)
        unary = unary.select(self._find_frequent(unary.entity_counts, "unary predicates and classes"))
        if len(unary) == 0:
            return []
        types = [self.kb.predicate(list(self.kb.predicates)[index]).types[0] for index in unary.predicate.tolist()]
        sizes = np.array([len(self.kb.domains[type_name]) for type_name in types], dtype=np.float64)
        facts = unary.entity_counts.astype(np.float64)
        together = (unary.holds.T @ unary.holds).toarray().astype(np.float64)
        is_open = np.array(types)[:, None] == np.array(types)[None, :]
        is_open &= ~np.eye(len(unary), dtype=bool)
        same = unary.predicate[:, None] == unary.predicate[None, :]
        is_open &= ~(same & (unary.class_index[:, None] != NONE))  # the classes of one predicate exclude each other
        expected = facts[:, None] * facts[None, :] / sizes[:, None]
        atoms = [atoms[0] for atoms in unary.write(self.kb, Variable("X"), Variable("Y"))]
        rows = self._choose(facts, together, expected, np.triu(is_open), unary.predicate)
        return [self._write(atoms[one], atoms[other], counts) for one, other, counts in rows]

    def _compare_relations(self) -> list[tuple[float, WeightedFormula]]:
        table = self.kb.tables().get("ee")
        if table is None or len(table) == 0:
            return []
        frequent = self._find_frequent(np.bincount(table.predicate, minlength=len(self.kb.predicates)), "relations")
        is_frequent = np.isin(table.predicate, frequent)
        if not is_frequent.any():
            return []
        relations, relation = np.unique(table.predicate[is_frequent].astype(np.int64), return_inverse=True)
        first, last = (column[is_frequent].astype(np.int64) for column in table.columns)
        facts = np.bincount(relation).astype(np.float64)
        entities = self.kb.n_entities
        pairs, pair = np.unique(first * entities + last, return_inverse=True)
        joins = _count(pair, relation, (len(pairs), len(relations)))
        mirrored = np.searchsorted(pairs, last * entities + first)
        is_joined = (mirrored < len(pairs)) & (pairs[np.minimum(mirrored, len(pairs) - 1)] == last * entities + first)
        swapped = _count(mirrored[is_joined], relation[is_joined], joins.shape)
        before = _count(first, relation, (entities, len(relations)))
        after = _count(last, relation, (entities, len(relations)))
        scale = facts[:, None] * facts[None, :]
        same_expected = _multiply(before, before) * _multiply(after, after) / scale
        crossed = _multiply(before, after)
        names = [list(self.kb.predicates)[index] for index in relations.tolist()]
        x, y = Variable("X"), Variable("Y")
        found = []
        apart = np.triu(np.ones((len(names), len(names)), dtype=bool), 1)
        for together, expected, is_open, args in (
            (_multiply(joins, joins), same_expected, apart, (x, y)),
            (_multiply(joins, swapped), crossed * crossed.T / scale, apart | np.eye(len(names), dtype=bool), (y, x)),
        ):
            if args == (y, x) and not self.filters.inverses:
                continue
            for one, other, counts in self._choose(facts, together, expected, is_open, relations):
                found.append(self._write(Atom(names[one], (x, y)), Atom(names[other], args), counts))
        return found

    def _find_frequent(self, facts: Ids, what: str) -> Ids:
        """Return the indices of what has facts enough, in order; of too many those with most."""
        enough = np.flatnonzero(facts >= self.filters.min_support)
        if len(enough) > MAX_PREDICATES:
            self.notes.append(
                f"exclusions were looked for among the {MAX_PREDICATES:,} of {len(enough):,} {what} with most facts"
            )
            enough = np.sort(enough[np.argsort(-facts[enough], kind="stable")[:MAX_PREDICATES]])
        return enough

    def _choose(
        self, facts: Counts, together: Counts, expected: Counts, is_open: npt.NDArray[np.bool_], predicates: Ids
    ) -> list[tuple[int, int, tuple[int, int, float]]]:
        """Return (one, other, (support, body, expected)) of the pairs that exclude each other."""
        is_open = is_open & (expected > 0)  # else chance would never have them meet
        compared = int(is_open.sum())
        if self.filters.targets is not None:
            target = np.isin(predicates, [self.kb.predicate_index(name) for name in self.filters.targets])
            is_open &= target[:, None] | target[None, :]
        body = np.minimum(facts[:, None], facts[None, :])
        share = max(self.filters.min_confidence, LEAST_SHARE)
        keep = is_open & (body - together >= share * body) & (pdtr(together, expected) * compared <= CHANCE)
        return [
            (one, other, (int(body[one, other] - together[one, other]), int(body[one, other]), expected[one, other]))
            for one, other in np.argwhere(keep).tolist()
        ]

    def _write(self, one: Formula, other: Formula, counts: tuple[int, int, float]) -> tuple[float, WeightedFormula]:
        support, body, expected = counts
        statistics = {"support": support, "body": body, "expected": round(float(expected), 2)}
        return float(expected), WeightedFormula(Not(And((one, other))), "hard", None, Annotations(statistics))


def _count(rows: Ids, columns: Ids, shape: tuple[int, ...]) -> sparse.csr_array:
    counts = np.ones(len(rows), dtype=np.int64)
    return sparse.csr_array((counts, (rows, columns.reshape(-1))), shape=shape)


def _multiply(one: sparse.csr_array, other: sparse.csr_array) -> Counts:
    product: Counts = (one.T @ other).toarray().astype(np.float64)
    return product
