"""Patterns as terms over candidate atoms: sums of products of tables, added to a sparse plan, equal parts once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from rulewright.data.index import Ids
from rulewright.errors import DataError
from rulewright.inject.layer.candidates import OPEN, Weighing
from rulewright.inject.layer.ground_clauses import GroundClauses, StreamedClauses
from rulewright.inject.layer.grounding import FALSE, TRUE, ClauseLiteral, GroundFormula, Pattern
from rulewright.inject.layer.plan import ORDERS
from rulewright.inject.layer.relations import Joiner, KeyIndex, Rows, Table, bound_join, estimate_join, index_table
from rulewright.inject.layer.sum_product import SumProduct, TermEdge
from rulewright.logic import Number, Term, Variable

if TYPE_CHECKING:
    from rulewright.inject.layer.sparse import SparsePlan

MOST_COMPARED = 20_000_000
"""How many pairs of entities an order comparison may become that stands in no literal with both of them."""

_COMPARE: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}


Operation: TypeAlias = Literal["base", "take", "counts", "group", "total", "product", "joined", "role"]


@dataclass(frozen=True, eq=False)
class SparseNode:
    """A vector that an iteration computes from those of ``sources``; a node ``is_fixed`` that stays the same."""

    operation: Operation
    sources: tuple[int, ...]
    arguments: Any
    length: int
    is_fixed: bool


@dataclass(frozen=True, slots=True)
class SparseMessage:
    """``coefficient`` times a node (None: times 1) for the candidates in ``rows`` (None: for all that are given)."""

    statement_index: int
    formula_index: int
    coefficient: float
    node: int | None
    rows: Tensor | None


class TermBuilder:
    """Adds the terms of patterns to a plan; equal parts once."""

    def __init__(self, plan: SparsePlan, joiner: Joiner) -> None:
        self.plan, self.joiner = plan, joiner
        self._nodes: dict[object, int] = {}
        self._kept: dict[object, Any] = {}  # tables, indices and columns, by what they were made of
        self._sums: dict[object, SumProduct] = {}
        self._formula_index = 0

    # Terms

    def add(self, formula_index: int, pattern: Pattern) -> int:
        """Add the terms of a pattern, and return how many there are."""
        formula = self.plan.grounding.formulas[formula_index]
        self._formula_index = formula_index
        orders = [literal for literal in pattern.literals if literal.predicate in ORDERS]
        literals = [literal for literal in pattern.literals if literal.predicate not in ORDERS]
        pairs = [tuple(sorted(pair, key=str)) for pair in pattern.apart]
        terms = 0
        for chosen, coefficient in self._choose(literals):
            for scale, kept, some_orders, variables, apart in _part(
                [literals[position] for position in chosen], orders, pattern.variables, sorted(pairs, key=str)
            ):
                factor = pattern.coefficient * coefficient * scale
                terms += self._add_term(formula, kept, some_orders, variables, apart, factor)
        return terms

    def _choose(self, literals: Sequence[ClauseLiteral]) -> Iterator[tuple[tuple[int, ...], float]]:
        """Return the sets of literals that count as candidates, with the product of the others at rest."""
        rests = [self._rest(literal) for literal in literals]
        chosen: list[tuple[tuple[int, ...], float]] = [((), 1.0)]
        for position, rest in enumerate(rests):
            has_candidates = len(self._table(literals[position], (), ()).known) > 0
            chosen = [
                choice
                for positions, coefficient in chosen
                for choice in (
                    *([((*positions, position), coefficient)] if has_candidates else []),
                    *([(positions, coefficient * rest)] if rest else []),
                )
            ]
        is_counting = self.plan.purpose != "messages"
        for positions, coefficient in chosen:
            if is_counting or any(self._is_head(literals[position]) for position in positions):
                yield positions, coefficient

    def _rest(self, literal: ClauseLiteral) -> float:
        candidates, weighing = self.plan.candidates[literal.predicate], self.plan.weighing
        if weighing is not None:
            return weighing.rest_false(candidates, literal.classes)
        return candidates.rest_false(literal.classes, label=self.plan.purpose != "messages")

    def _is_false(self, literal: ClauseLiteral, known: Ids) -> npt.NDArray[np.float64]:
        weighing = self.plan.weighing or Weighing()
        return weighing.is_false(literal.predicate, known, literal.classes)

    def _is_head(self, literal: ClauseLiteral) -> bool:
        return self.plan.candidates[literal.predicate].is_open

    def _add_term(
        self,
        formula: GroundFormula,
        literals: Sequence[ClauseLiteral],
        orders: Sequence[ClauseLiteral],
        variables: Sequence[Variable],
        apart: Sequence[tuple[int, tuple[Term, Term]]],
        coefficient: float,
    ) -> int:
        """Add a term; return 1, or 0 where it vanishes."""
        filters: list[list[ClauseLiteral]] = [[] for _ in literals]
        compared: list[ClauseLiteral] = []
        for order in orders:
            terms = {term for term in order.args if isinstance(term, Variable)}
            home = next((index for index, literal in enumerate(literals) if terms and terms <= set(literal.args)), None)
            if home is not None:
                filters[home].append(order)
            else:
                compared.append(order)
        edges = [
            self._edge(formula, literal, [pair for home, pair in apart if home == index], tuple(filters[index]))
            for index, literal in enumerate(literals)
        ]
        edges += [self._compared_edge(formula, order) for order in compared]
        present = {variable for edge in edges for variable in edge.variables}
        for variable in variables:
            if variable not in present:
                coefficient *= self.plan.sizes[formula.types[variable]]
        if not coefficient or not all(len(edge.table) for edge in edges):
            return 0
        numbers: dict[Variable, int] = {}
        named = tuple(
            tuple(numbers.setdefault(variable, len(numbers)) for variable in edge.variables) for edge in edges
        )
        key = (named, tuple((id(edge.table), edge.node) for edge in edges))
        if key not in self._sums:
            self._sums[key] = SumProduct(self, edges, named)
        if self.plan.purpose != "messages":
            node = self._sums[key].total() if edges else None
            scaled = coefficient * prod(edge.scale for edge in edges)
            if node is None:
                node, scaled = self.constant(), scaled * (len(edges[0].table) if edges else 1)
            self.plan.violations[-1].append((scaled, node))
            return 1
        for position, edge in enumerate(edges):
            if edge.head is None or not edge.table.has_unknown:
                continue
            name, classes = edge.head
            scaled = coefficient * prod(other.scale for index, other in enumerate(edges) if index != position)
            is_signed = self.plan.weighing is None or self.plan.weighing.unobserved is None
            if is_signed and self.plan.grounding.predicates[name].classes is None and classes == {FALSE}:
                classes, scaled = frozenset({TRUE}), -scaled  # the log-odds of false are those of true, negated
            table, node = self._sums[key].message(position)
            table, node = self._keep_open(name, table, node)
            if len(table):
                rows = None if table.rows is None else self.column(table.rows)
                message = SparseMessage(formula.statement_index, self._formula_index, scaled, node, rows)
                self.plan.messages.setdefault((name, classes), []).append(message)
        return 1

    def _keep_open(self, name: str, table: Table, node: int | None) -> tuple[Table, int | None]:
        """Leave out the rows whose atoms have no log-odds."""
        candidates = self.plan.candidates[name]
        rows = np.arange(len(table), dtype=np.int32) if table.rows is None else table.rows
        is_given = rows < candidates.given
        if is_given.all():
            is_all = (
                table.rows is not None and len(rows) == candidates.given and bool((rows == np.arange(len(rows))).all())
            )
            return (Table(table.columns, table.sizes, table.known) if is_all else table), node
        kept = np.flatnonzero(is_given).astype(np.int32)
        if node is not None:
            node = self.node("take", (node,), self.column(kept), len(kept))
        return table.take(kept), node

    # Tables

    def _edge(
        self,
        formula: GroundFormula,
        literal: ClauseLiteral,
        apart: Sequence[tuple[Term, Term]],
        orders: tuple[ClauseLiteral, ...],
    ) -> TermEdge:
        """Return the candidates of a literal, those of equal arguments and constants where it has them."""
        variables = tuple(dict.fromkeys(term for term in literal.args if isinstance(term, Variable)))
        firsts = [literal.args.index(variable) for variable in variables]
        pairs = tuple(sorted(tuple(sorted(literal.args.index(term) for term in pair)) for pair in apart))
        table = self._table(literal, pairs, orders, formula)
        columns = tuple(table.columns[position] for position in firsts)
        key = ("columns", id(table), tuple(firsts))
        if key not in self._kept:
            sizes = tuple(table.sizes[position] for position in firsts)
            self._kept[key] = Table(columns, sizes, table.known, table.rows)
        own: Table = self._kept[key]
        node, scale = self._values(literal, own)
        return TermEdge(own, variables, node, scale, (literal.predicate, literal.classes))

    def _table(
        self,
        literal: ClauseLiteral,
        apart: tuple[tuple[int, ...], ...],
        orders: tuple[ClauseLiteral, ...],
        formula: GroundFormula | None = None,
    ) -> Table:
        """Return the candidates that a literal may be of and that are not as at rest."""
        grounding = self.plan.grounding
        declaration = grounding.predicates[literal.predicate]
        fixed: list[tuple[int, int]] = []
        equal: list[tuple[int, int]] = []
        for position, (term, type_name) in enumerate(zip(literal.args, declaration.types, strict=True)):
            first = literal.args.index(term)
            if not isinstance(term, Variable):
                fixed.append((position, grounding.constant_index(term, type_name)))
            elif first < position:
                equal.append((first, position))
        compared = tuple(
            (order.predicate, *(literal.args.index(t) if isinstance(t, Variable) else str(t) for t in order.args))
            for order in orders
        )
        key = ("table", literal.predicate, literal.classes, tuple(fixed), tuple(equal), apart, compared)
        if key not in self._kept:
            candidates = self.plan.candidates[literal.predicate]
            is_false = self._is_false(literal, candidates.known)
            keep = (candidates.known == OPEN) | (is_false != self._rest(literal))
            for position, index in fixed:
                keep &= candidates.columns[position] == index
            for one, other in equal:
                keep &= candidates.columns[one] == candidates.columns[other]
            for one, other in apart:
                keep &= candidates.columns[one] != candidates.columns[other]
            for order in orders:
                assert formula is not None
                sides = [
                    self._numbers(formula, term)[candidates.columns[literal.args.index(term)]]
                    if isinstance(term, Variable)
                    else self._numbers(formula, term)
                    for term in order.args
                ]
                keep &= ~_COMPARE[order.predicate](*sides)
            sizes = tuple(self.plan.sizes[type_name] for type_name in declaration.types)
            table = Table(candidates.columns, sizes, candidates.known != OPEN)
            self._kept[key] = table if keep.all() else table.take(np.flatnonzero(keep).astype(np.int32))
        found: Table = self._kept[key]
        return found

    def _values(self, literal: ClauseLiteral, table: Table) -> tuple[int | None, float]:
        """Return the node that has the values of a table and what they are scaled by; a node of None is of ones."""
        candidates, rest = self.plan.candidates[literal.predicate], self._rest(literal)
        if not table.has_unknown:
            known = candidates.known if table.rows is None else candidates.known[table.rows]
            is_false = np.unique(self._is_false(literal, known))
            if len(is_false) == 1:
                return None, float(is_false[0]) - rest
        arguments = (literal.predicate, literal.classes, rest)
        base = self.node("base", (), arguments, len(candidates), is_fixed=not candidates.is_open)
        if table.rows is None:
            return base, 1.0
        return self.node("take", (base,), self.column(table.rows), len(table)), 1.0

    def _compared_edge(self, formula: GroundFormula, order: ClauseLiteral) -> TermEdge:
        """Return the entities, or pairs of them, for which an order comparison is false."""
        variables = tuple(dict.fromkeys(term for term in order.args if isinstance(term, Variable)))
        key = ("compared", order, tuple(formula.types[variable] for variable in variables))
        if key not in self._kept:
            left, right = (np.atleast_1d(self._numbers(formula, term)) for term in order.args)
            if len(variables) == 2 and len(left) * len(right) > MOST_COMPARED:
                raise DataError(
                    f"the comparison {order.predicate} of {' and '.join(map(str, variables))} holds for pairs of "
                    f"{len(left):,} and {len(right):,} entities that no literal has together, more than "
                    f"{MOST_COMPARED:,}, in: {formula.formula}; put both into one literal"
                )
            if len(variables) == 2:
                is_false = ~_COMPARE[order.predicate](left[:, None], right[None, :])
                columns = tuple(column.astype(np.int64) for column in np.nonzero(is_false))
            else:
                positions = np.flatnonzero(~_COMPARE[order.predicate](left, right))
                columns = (positions,) if variables else ()
                is_false = positions
            sizes = tuple(self.plan.sizes[formula.types[variable]] for variable in variables)
            length = len(columns[0]) if columns else len(is_false)
            self._kept[key] = Table(columns, sizes, np.ones(length, dtype=bool))
        return TermEdge(self._kept[key], variables, None, 1.0)

    def _numbers(self, formula: GroundFormula, term: Term) -> Any:
        """Return the numbers of a variable's entities, or a number."""
        if isinstance(term, Variable):
            return self.plan.grounding.entity_numbers(formula.types[term], formula.formula).numpy()
        try:
            return float(term.value if isinstance(term, Number) else term.name)
        except ValueError:
            raise DataError(f"a comparison of numbers has {term}, in: {formula.formula}") from None

    # Nodes

    def node(
        self,
        operation: Operation,
        sources: tuple[int, ...],
        arguments: Any,
        length: int,
        *,
        is_fixed: bool | None = None,
    ) -> int:
        """Add a node, once for equal ones; columns are equal that are the same object."""
        is_tuple = isinstance(arguments, tuple)
        parts = [id(part) if isinstance(part, Tensor) else part for part in (arguments if is_tuple else (arguments,))]
        key = (operation, sources, tuple(parts), length)
        if key not in self._nodes:
            if is_fixed is None:
                is_fixed = all(self.plan.nodes[source].is_fixed for source in sources)
            self._nodes[key] = len(self.plan.nodes)
            self.plan.nodes.append(SparseNode(operation, sources, arguments, length, is_fixed))
        return self._nodes[key]

    def constant(self) -> int:
        """Return the node of the number 1."""
        if "one" not in self._kept:
            self._kept["one"] = torch.ones(1, device=self.plan.device)
        return self.node("counts", (), self._kept["one"], 1, is_fixed=True)

    def column(self, positions: Rows) -> Tensor:
        """Return positions as a tensor, once for each array, whose memory it shares."""
        key = ("column", id(positions))
        if key not in self._kept:
            whole = torch.from_numpy(positions).to(self.plan.device)
            self._kept[key] = (whole, positions)  # the array is held, so that its id stays its own
        column: Tensor = self._kept[key][0]
        return column

    def index(self, table: Table, positions: tuple[int, ...]) -> KeyIndex:
        """Return the groups of a table by some of its columns."""
        key = ("index", id(table), positions)
        if key not in self._kept:
            self._kept[key] = index_table(table, positions), table
        index: KeyIndex = self._kept[key][0]
        return index

    def find(self, table: Table, positions: tuple[int, ...], index: KeyIndex) -> Rows:
        """Return the group of an index that each row of a table belongs to, −1 where there is none."""
        key = ("find", id(table), positions, id(index))
        if key not in self._kept:
            columns = [table.columns[position] for position in positions]
            self._kept[key] = index.find(columns, len(table)), table, index
        groups: Rows = self._kept[key][0]
        return groups

    def take(self, table: Table, keep: Rows, key: object) -> tuple[Table, Rows]:
        """Return some rows of a table, once for each key."""
        if ("rows", id(table), key) not in self._kept:
            self._kept["rows", id(table), key] = table.take(keep), keep, table
        found: tuple[Table, Rows] = self._kept["rows", id(table), key][:2]
        return found

    def group(self, table: Table, node: int | None, positions: tuple[int, ...]) -> tuple[int | None, KeyIndex]:
        """Add the sums of a node (None: of ones) over the rows of each group; None where these are ones."""
        index = self.index(table, positions)
        if node is None:
            if not positions:
                key = ("length", len(table))
                if key not in self._kept:
                    self._kept[key] = torch.tensor([float(len(table))], dtype=torch.float64, device=self.plan.device)
                return self.node("counts", (), self._kept[key], 1, is_fixed=True), index
            if int(index.counts.max(initial=0)) <= 1:
                return None, index
            if ("counts", id(index)) not in self._kept:
                self._kept["counts", id(index)] = torch.from_numpy(index.counts).to(self.plan.device)
            return self.node("counts", (), self._kept["counts", id(index)], index.count, is_fixed=True), index
        if not positions:
            return self.node("total", (node,), None, 1), index
        return self.node("group", (node,), self.column(index.groups), index.count), index

    def join(self, tables: Sequence[Table], nodes: Sequence[int | None], variables: Sequence[tuple[int, ...]]) -> int:
        """Add the joined rows of a cyclic core."""
        key = ("join", tuple(map(id, tables)), tuple(variables))
        if key not in self._kept:
            clauses = self._enumerate(tables, variables)
            self.plan.clauses.append(clauses)
            self._kept[key] = clauses, [*tables]
        clauses = self._kept[key][0]
        lengths = tuple(map(len, tables))
        known = ("joined", id(clauses), tuple(nodes))
        if known not in self._nodes:
            sources = tuple(node for node in nodes if node is not None)
            self._nodes[known] = len(self.plan.nodes)
            wanted: set[int] = set()
            arguments = (clauses, tuple(nodes), lengths, wanted)
            is_fixed = all(self.plan.nodes[source].is_fixed for source in sources)
            self.plan.nodes.append(SparseNode("joined", sources, arguments, 0, is_fixed))
        return self._nodes[known]

    def _enumerate(self, tables: Sequence[Table], variables: Sequence[tuple[int, ...]]) -> GroundClauses:
        """Join the tables now, or in each iteration where so many joined rows would not fit into memory."""
        all_known, device = self.plan.purpose != "messages", self.plan.device
        most = self.plan.clause_memory // (len(tables) * np.dtype(np.int32).itemsize)
        bound = bound_join(tables, variables)
        if bound <= most and not self.plan.is_estimate:
            self.plan.joined_rows += bound
            return GroundClauses.of(self.joiner.join(tables, variables, all_known=all_known), device)
        estimate = estimate_join(tables, variables, self.index)
        self.plan.joined_rows += estimate.most
        if self.plan.is_estimate:
            return GroundClauses([None] * len(tables), round(min(estimate.rows, bound)), device)
        if 2 * estimate.rows > most:  # counting takes as long as joining
            counts = self.joiner.count(tables, variables, all_known=all_known)
            if counts.sum() > most:
                range_rows = max(1, most // 4)
                return StreamedClauses(self.joiner, tables, variables, counts, range_rows, device, all_known=all_known)
        return GroundClauses.of(self.joiner.join(tables, variables, all_known=all_known), device)

    def role(self, joined: int, position: int) -> int:
        """Add the messages of joined rows to one of their tables."""
        _, _, lengths, wanted = self.plan.nodes[joined].arguments
        wanted.add(position)
        return self.node("role", (joined,), position, lengths[position])

    def finish(self) -> None:
        """Let go of columns that no message needs."""
        for node in self.plan.nodes:
            if node.operation == "joined":
                clauses, sources, _, wanted = node.arguments
                clauses.needed |= {index for index, source in enumerate(sources) if source is not None} | wanted
        for clauses in self.plan.clauses:
            clauses.drop_unneeded()


def _part(
    literals: Sequence[ClauseLiteral],
    orders: Sequence[ClauseLiteral],
    variables: Sequence[Variable],
    pairs: Sequence[tuple[Term, ...]],
) -> Iterator[
    tuple[int, list[ClauseLiteral], list[ClauseLiteral], list[Variable], list[tuple[int, tuple[Term, Term]]]]
]:
    """Return parts of a term that sum to it, in which each pair that differs stands in one literal.

    Where none has both of a pair, the term is what it is without the pair, less what it is where both are one.
    """
    homes: list[tuple[int, tuple[Term, Term]]] = []
    for position, (one, other) in enumerate(pairs):
        home = next((index for index, literal in enumerate(literals) if {one, other} <= set(literal.args)), None)
        if home is not None:
            homes.append((home, (one, other)))
            continue
        others = [*pairs[:position], *pairs[position + 1 :]]
        yield from _part(literals, orders, variables, others)
        binding = {other: one}
        replaced = [tuple(binding.get(term, term) for term in pair) for pair in others]
        if any(first == second for first, second in replaced):
            return
        bound = [[_bind(literal, binding) for literal in group] for group in (literals, orders)]
        left = [variable for variable in variables if variable != other]
        for scale, *part in _part(bound[0], bound[1], left, replaced):
            yield (-scale, *part)  # type: ignore[misc]
        return
    yield 1, list(literals), list(orders), list(variables), homes


def _bind(literal: ClauseLiteral, binding: Mapping[Term, Term]) -> ClauseLiteral:
    return ClauseLiteral(literal.predicate, tuple(binding.get(term, term) for term in literal.args), literal.classes)
