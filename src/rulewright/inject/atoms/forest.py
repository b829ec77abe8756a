"""Chains and trees of atoms: the best labelling by dynamic programming, for all rows of a batch at once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from rulewright.data.index import Ids, expand_ranges, range_bounds
from rulewright.inject.atoms.clauses import AtomClause
from rulewright.inject.atoms.inference import (
    MOST_PER_ROUND,
    LabelProblem,
    Solution,
    count_assignments,
    write_constraints,
)
from rulewright.inject.atoms.joins import ClauseJoins, GroundingFinder, Groundings
from rulewright.inject.atoms.layout import AtomLayout, Floats, Labels
from rulewright.inject.atoms.zero_one import InfeasibleError

FEW_GROUNDINGS = 10_000
"""So many groundings are written out without a second thought."""

GROUNDINGS_PER_VIOLATION = 50
"""How many groundings may be written out for each that is violated; lazy constraints only look at the latter."""

LARGEST_STEP = 2**22
"""How many pairs of values of neighbours are compared at once."""

LARGEST_TABLE = 2**26
"""How many entries a table of what neighbours cost may have."""


def solve_forest(problem: LabelProblem, observed: Collection[str]) -> Solution | None:
    """Solve a problem whose groundings tie at most two atoms together that are not observed, without a cycle.

    ``observed`` are the predicates that are known everywhere. Bottom-up, each atom tells the one above it what the best
    labels below cost, with the groundings that they break, for each of its values; then the values are chosen top-down
    (Viterbi's algorithm where the atoms are chains). None where the problem is no forest, or so large and so little of
    it violated that lazy constraints are the better way.
    """
    joins, layout = problem.finder.joins, problem.layout
    if problem.limit is not None or not all(_ties_two(clause, observed) for clause in joins.clauses):
        return None
    violated = sum(map(len, problem.finder.find_violated(problem.start, limit=MOST_PER_ROUND)))
    if not violated:
        return Solution(problem.start, True, 0, 0, [])
    if _count_unbound(joins.clauses, layout, observed) > FEW_GROUNDINGS + GROUNDINGS_PER_VIOLATION * violated:
        return None
    finder = GroundingFinder(ClauseJoins(joins.clauses, joins.channels, joined=observed), layout, problem.finder.exists)
    found: list[_Ties] = []
    for groundings in finder.find_holding(problem.start):
        part = _find_ties(problem, groundings, finder.joins)
        if part is None or _has_cycle(part.low, part.high):
            return None
        found.append(part)
    ties = _concatenate(found)
    nodes, ends = np.unique(np.concatenate([ties.low, ties.high]), return_inverse=True)
    if not len(nodes):  # evidence alone breaks what is broken
        return Solution(problem.start, True, 0, 0, [])
    low, high = ends[: len(ties.low)], ends[len(ties.low) :]
    cost = _list_costs(problem, nodes, ties.low_values.shape[1])
    alone = low == high
    rows, values = np.nonzero(ties.low_values & alone[:, None])
    np.add.at(cost, (low[rows], values), ties.costs[rows])
    forest = _grow_forest(len(nodes), low, high, ties, ~alone)
    if forest is None:
        return None
    best = _find_best_values(forest, cost)
    if best is None:
        return None  # lazy constraints find out which of them have no solution
    labels = problem.start.copy()
    before = _read_values(problem, nodes, labels)
    _write_values(problem, nodes, best, labels)
    changed, rows = _find_reasons(problem, ties, low, high, before, best)
    constraints = write_constraints(ties.groundings.select(rows), finder.joins, ties.costs[rows])
    reasons = dict(zip(nodes[changed].tolist(), constraints, strict=True))
    return Solution(labels, True, 1, len(ties.low), [], reasons)


def _ties_two(clause: AtomClause, observed: Collection[str]) -> bool:
    return sum(atom.predicate not in observed for atom in clause.atoms) <= 2


def _count_unbound(clauses: Sequence[AtomClause], layout: AtomLayout, observed: Collection[str]) -> int:
    """Count the groundings of the clauses that have a variable which no observed atom of their body binds."""
    total = 0
    for clause in clauses:
        bound = {argument for atom in clause.body if atom.predicate in observed for argument in atom.args}
        if not bound.issuperset(range(len(clause.variables))):
            total += count_assignments(clause, layout)
    return total


@dataclass(frozen=True)
class _Ties:
    """Groundings that still depend on labels: the two atoms of each, by their first labels (one twice where alone).

    A grounding is violated where ``low_values`` has the value of the one and ``high_values`` that of the other, at its
    cost. The values of an atom are 0 and 1, or its classes.
    """

    groundings: Groundings
    low: Ids
    high: Ids
    low_values: Labels
    high_values: Labels
    costs: Floats


def _find_ties(problem: LabelProblem, groundings: Groundings, joins: ClauseJoins) -> _Ties | None:
    """Take out of groundings what is fixed; None where one depends on three atoms."""
    choices = problem.choices
    n_body = groundings.bodies.shape[1]
    labels = np.concatenate([groundings.bodies, groundings.heads], axis=1)
    in_body = np.arange(labels.shape[1]) < n_body
    present = labels >= 0
    is_open = present & problem.free[labels]
    helps = present & ~is_open & (problem.start[labels] != in_body)
    kept = ~helps.any(1)
    groundings, labels, is_open = groundings.select(kept), labels[kept], is_open[kept]
    costs = problem.costs_of(groundings)
    is_decided = ~is_open.any(1)
    if is_decided.any():
        must_hold = np.flatnonzero(is_decided & np.isinf(costs))[:1]
        if len(must_hold):
            raise InfeasibleError(list(write_constraints(groundings.select(must_hold), joins)))
        groundings, labels, is_open = groundings.select(~is_decided), labels[~is_decided], is_open[~is_decided]
        costs = costs[~is_decided]
    first = labels if choices is None else choices.first[labels]
    low = np.where(is_open, first, problem.layout.size).min(1, initial=problem.layout.size)
    high = np.where(is_open, first, -1).max(1, initial=-1)
    if np.any(is_open & (first != low[:, None]) & (first != high[:, None])):
        return None
    width = 2 if choices is None else max(2, int(choices.width.max()))
    low_values, high_values = (np.ones((len(labels), width), dtype=bool) for _ in range(2))
    for position, is_body in enumerate(in_body):
        value = np.ones(len(labels), dtype=np.int64)
        if choices is not None:
            of_class = choices.width[labels[:, position]] > 1
            value = np.where(of_class, labels[:, position] - first[:, position], 1)
        violates = (value[:, None] == np.arange(width)) == is_body
        for atom, values in ((low, low_values), (high, high_values)):
            values &= violates | ~(is_open[:, position] & (first[:, position] == atom))[:, None]
    return _Ties(groundings, low, high, low_values, high_values, costs)


def _has_cycle(low: Ids, high: Ids) -> bool:
    """Tell whether there are as many pairs of atoms as atoms, so that some of them make a cycle."""
    tied = low != high
    nodes, ends = np.unique(np.concatenate([low[tied], high[tied]]), return_inverse=True)
    count = len(ends) // 2
    return 0 < len(nodes) <= len(np.unique(ends[:count] * len(nodes) + ends[count:]))


def _concatenate(parts: Sequence[_Ties]) -> _Ties:
    def join(arrays: Sequence[Ids], fill: int) -> Ids:
        width = max(array.shape[1] for array in arrays)
        padded = [np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=fill) for array in arrays]
        return np.concatenate(padded)

    groundings = [part.groundings for part in parts]
    return _Ties(
        Groundings(
            np.concatenate([part.clauses for part in groundings]),
            join([part.entities for part in groundings], 0),
            join([part.bodies for part in groundings], -1),
            join([part.heads for part in groundings], -1),
        ),
        np.concatenate([part.low for part in parts]),
        np.concatenate([part.high for part in parts]),
        np.concatenate([part.low_values for part in parts]),
        np.concatenate([part.high_values for part in parts]),
        np.concatenate([part.costs for part in parts]),
    )


def _list_costs(problem: LabelProblem, nodes: Ids, width: int) -> Floats:
    """Return what each value of atoms costs; infinite beyond the classes of one."""
    cost = np.full((len(nodes), width), np.inf)
    cost[:, 0], cost[:, 1] = 0.0, problem.gain[nodes]
    if problem.choices is not None:
        widths = problem.choices.width[nodes]
        of_class = np.flatnonzero(widths > 1)
        rows = np.repeat(of_class, widths[of_class])
        labels = expand_ranges(nodes[of_class], widths[of_class])
        cost[rows, labels - nodes[rows]] = problem.gain[labels]
    return cost


@dataclass(frozen=True)
class _Forest:
    """Trees of atoms: for each depth, from the roots on, the atoms there, the ones above them and what both cost.

    ``levels`` has children, parents and tables; ``costs[table, value of the child, value of the parent]`` are those of
    the groundings that the two break, infinite where they exclude each other.
    """

    roots: Ids
    levels: list[tuple[Ids, Ids, Ids]]
    costs: Floats


def _grow_forest(n_nodes: int, low: Ids, high: Ids, ties: _Ties, tied: Labels) -> _Forest | None:
    """Find the trees that pairs of atoms make; None where there is a cycle."""
    rows = np.flatnonzero(tied)
    keys, edge_of_row = np.unique(low[rows] * n_nodes + high[rows], return_inverse=True)
    lows, highs = np.divmod(keys, n_nodes)
    graph = sparse.csr_array((np.ones(len(keys)), (lows, highs)), shape=(n_nodes, n_nodes))
    n_trees, tree_of = connected_components(graph, directed=False)
    if n_trees != n_nodes - len(keys):
        return None
    tables = _list_tables(ties.low_values[rows], ties.high_values[rows], ties.costs[rows], edge_of_row, len(keys))
    if tables is None:
        return None
    table_of_edge, costs = tables
    ends, others = np.concatenate([lows, highs]), np.concatenate([highs, lows])
    # Seen from the higher atom, the lower one is the child, and the other way round the table is transposed.
    table_of_end = np.concatenate([table_of_edge + len(costs), table_of_edge])
    order = np.argsort(ends, kind="stable")
    others, table_of_end = others[order], table_of_end[order]
    bounds = range_bounds(np.bincount(ends, minlength=n_nodes))
    roots = np.unique(tree_of, return_index=True)[1]
    parent_of = np.full(n_nodes, -1)
    levels: list[tuple[Ids, Ids, Ids]] = []
    front = roots
    while len(front):
        counts = bounds[front + 1] - bounds[front]
        parents, found = np.repeat(front, counts), expand_ranges(bounds[front], counts)
        found, parents = (part[others[found] != parent_of[parents]] for part in (found, parents))
        front = others[found]
        parent_of[front] = parents
        if len(front):
            levels.append((front, parents, table_of_end[found]))
    return _Forest(roots, levels, np.concatenate([costs, costs.transpose(0, 2, 1)]))


def _list_tables(
    low_values: Labels, high_values: Labels, costs: Floats, edge_of_row: Ids, n_edges: int
) -> tuple[Ids, Floats] | None:
    """Return for each pair of atoms a table, and for each table what values of the two break and what that costs.

    Pairs with the same clauses share a table. None where the tables would be too large.
    """
    width = low_values.shape[1]
    patterns, pattern_of_row = _unique_rows(np.concatenate([low_values, high_values], axis=1))
    if max(n_edges, width * width) * len(patterns) > LARGEST_TABLE:
        return None
    has_pattern = np.zeros((n_edges, len(patterns)), dtype=bool)
    is_hard = np.isinf(costs)
    has_pattern[edge_of_row[is_hard], pattern_of_row[is_hard]] = True
    kinds, table_of_edge = _unique_rows(has_pattern)
    summed = np.zeros((len(kinds), len(patterns)))
    if not is_hard.all():
        by_edge = np.zeros((n_edges, len(patterns)))
        np.add.at(by_edge, (edge_of_row[~is_hard], pattern_of_row[~is_hard]), costs[~is_hard])
        rows = np.concatenate([table_of_edge[:, None], by_edge], axis=1)
        rows, table_of_edge = np.unique(rows, axis=0, return_inverse=True)
        kinds, summed, table_of_edge = kinds[rows[:, 0].astype(np.int64)], rows[:, 1:], table_of_edge.reshape(-1)
    if len(kinds) * width * width > LARGEST_TABLE:
        return None
    both = (patterns[:, :width, None] & patterns[:, None, width:]).reshape(len(patterns), width * width)
    excluded = (kinds.astype(np.float32) @ both.astype(np.float32)) > 0
    tables = np.where(excluded, np.inf, summed @ both.astype(np.float64))
    return table_of_edge, tables.reshape(len(kinds), width, width)


def _unique_rows(rows: Labels) -> tuple[Labels, Ids]:
    """Return the different rows, and which of them each row is."""
    packed = np.ascontiguousarray(np.packbits(rows, axis=1))
    _, first, inverse = np.unique(
        packed.view(f"V{packed.shape[1]}")[:, 0] if packed.size else np.zeros(len(rows)),
        return_index=True,
        return_inverse=True,
    )
    return rows[first], inverse


def _find_best_values(forest: _Forest, cost: Floats) -> Ids | None:
    """Return the values that cost least with what they break; None where some always exclude each other."""
    width = cost.shape[1]
    best_below = np.zeros(cost.shape, dtype=np.int64)
    step = max(1, LARGEST_STEP // (width * width))
    for children, parents, tables in reversed(forest.levels):
        for start in range(0, len(children), step):
            part = slice(start, start + step)
            total = forest.costs[tables[part]] + cost[children[part]][:, :, None]
            best_below[children[part]] = values = total.argmin(1)
            np.add.at(cost, parents[part], np.take_along_axis(total, values[:, None], axis=1)[:, 0])
    values = np.zeros(len(cost), dtype=np.int64)
    values[forest.roots] = cost[forest.roots].argmin(1)
    if np.isinf(cost[forest.roots].min(1)).any():
        return None
    for children, parents, _ in forest.levels:
        values[children] = best_below[children, values[parents]]
    return values


def _read_values(problem: LabelProblem, nodes: Ids, labels: Labels) -> Ids:
    """Return the values of atoms in a labelling."""
    values = labels[nodes].astype(np.int64)
    for rows, members in _list_members(problem, nodes):
        values[rows] = labels[members].argmax(1)
    return values


def _write_values(problem: LabelProblem, nodes: Ids, values: Ids, labels: Labels) -> None:
    """Set the values of atoms in a labelling."""
    labels[nodes] = values == 1
    for rows, members in _list_members(problem, nodes):
        labels[members] = values[rows, None] == np.arange(members.shape[1])


def _list_members(problem: LabelProblem, nodes: Ids) -> Iterator[tuple[Ids, Ids]]:
    """Yield the atoms that have so and so many classes, and these as [atom, class]."""
    if problem.choices is None:
        return
    widths = problem.choices.width[nodes]
    for width in np.unique(widths[widths > 1]).tolist():
        rows = np.flatnonzero(widths == width)
        yield rows, nodes[rows, None] + np.arange(width)


def _find_reasons(problem: LabelProblem, ties: _Ties, low: Ids, high: Ids, before: Ids, after: Ids) -> tuple[Ids, Ids]:
    """Return atoms that changed, and for each a grounding that would then be violated were it changed back alone.

    Of several it is one that must hold, or that costs most.
    """
    changed = before != after
    reason_of = np.full(len(before), -1)
    rows = np.arange(len(low))
    is_broken = ties.low_values[rows, after[low]] & ties.high_values[rows, after[high]]
    broken = {name for name in problem.name_assignments(ties.groundings.select(is_broken)) if name is not None}
    for one, other, values, others in (
        (low, high, ties.low_values, ties.high_values),
        (high, low, ties.high_values, ties.low_values),
    ):
        rows = np.flatnonzero(changed[one] & ~is_broken)
        other_value = np.where(one[rows] == other[rows], before[one[rows]], after[other[rows]])
        rows = rows[values[rows, before[one[rows]]] & others[rows, other_value]]
        if broken:  # at an assignment where another part of the formula is violated already
            names = problem.name_assignments(ties.groundings.select(rows))
            rows = rows[[name not in broken for name in names]]
        known = reason_of[one[rows]]
        rows = rows[(known < 0) | (ties.costs[rows] >= ties.costs[known])]
        rows = rows[np.argsort(ties.costs[rows], kind="stable")]
        reason_of[one[rows]] = rows
    found = np.flatnonzero(reason_of >= 0)
    return found, reason_of[found]
