"""Joins over sorted facts for many rules and many facts at once: what a change of some facts changes elsewhere.

A database scans its tables whole, which is right where all facts are joined with all rules. Where a few facts are new
or gone, the instances of rules that they take part in are found from them: every row of a join goes on with whichever
atom has the fewest facts for it, found by binary search.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids, SortedRows, encode_rows, expand_ranges, match_sorted
from rulewright.engine.batches import RuleBatch
from rulewright.logic import NUMBER_TYPE, Comparison, Head, Membership, Number, Symbol, Term, Variable

Scores = npt.NDArray[np.float64]

_MOST_ROWS = 2_000_000  # of a join at once
_RULE = "rule"  # the column of a join that holds the row of the rule in its batch


class LayeredFacts:
    """The facts of a signature, each with a score, of which some go and others come.

    A fact is its predicate, its arguments and perhaps its class, all whole numbers. They stand in layers, each sorted
    once; what comes is in the last one, what goes is marked.
    """

    def __init__(self, width: int, layers: Sequence[tuple[SortedRows, Scores]]) -> None:
        self.width = width
        self._layers = [(rows, scores.copy(), np.ones(len(rows), dtype=bool)) for rows, scores in layers]
        self._layers.append(self._sort([np.empty(0, dtype=np.int64)] * width, np.empty(0)))

    def _sort(self, columns: Sequence[Ids], scores: Scores) -> tuple[SortedRows, Scores, npt.NDArray[np.bool_]]:
        rows = SortedRows(columns)
        return rows, scores[rows.order], np.ones(len(rows), dtype=bool)

    def scores(self, columns: Sequence[Ids]) -> Scores:
        """Return the score of each fact, −1 of what is no fact."""
        scores = np.full(len(columns[0]), -1.0)
        for rows, own_scores, is_there in self._layers:
            positions = rows.find(columns)
            hit = np.flatnonzero(positions >= 0)
            hit = hit[is_there[positions[hit]]]
            scores[hit] = own_scores[positions[hit]]
        return scores

    def put(self, columns: Sequence[Ids], scores: Scores) -> None:
        """Give distinct facts a score, whether or not they were there."""
        is_new = np.ones(len(scores), dtype=bool)
        for rows, own_scores, is_there in self._layers:
            positions = rows.find(columns)
            hit = (positions >= 0) & is_new
            own_scores[positions[hit]], is_there[positions[hit]] = scores[hit], True
            is_new &= ~hit
        if is_new.any():
            rows, own_scores, is_there = self._layers.pop()
            parts = [rows.columns, [column[is_new] for column in columns]]
            merged = [np.concatenate(pair) for pair in zip(*parts, strict=True)]
            self._layers.append(self._sort(merged, np.concatenate([own_scores, scores[is_new]])))
            rows, _, still_there = self._layers[-1]
            still_there[rows.order < len(is_there)] = is_there[rows.order[rows.order < len(is_there)]]

    def drop(self, columns: Sequence[Ids]) -> None:
        """Take facts away, as far as they are there."""
        for rows, _, is_there in self._layers:
            positions = rows.find(columns)
            is_there[positions[positions >= 0]] = False

    def count(self, position: int | None, predicates: Ids, values: Ids | None) -> Ids:
        """Return how many facts of a predicate there are at most, perhaps with a value at a position, for each row."""
        total = np.zeros(len(predicates), dtype=np.int64)
        for rows, _, _ in self._layers:
            starts, ends = _find_ranges(rows, position, predicates, values)
            total += ends - starts
        return total

    def match(
        self, position: int | None, predicates: Ids, values: Ids | None, most: int | None = None
    ) -> tuple[Ids, list[Ids], Scores]:
        """Return the facts that `count` counts: the row that each belongs to, its columns and its score.

        With ``most`` there are so many at most for each row.
        """
        parts = []
        for rows, scores, is_there in self._layers:
            starts, ends = _find_ranges(rows, position, predicates, values)
            ends = ends if most is None else np.minimum(ends, starts + most)
            found = expand_ranges(starts, ends - starts)
            if position:
                found = rows.rows_by(position + 1)[found]
            belongs = np.repeat(np.arange(len(predicates)), ends - starts)
            keep = is_there[found]
            found, belongs = found[keep], belongs[keep]
            parts.append((belongs, [column[found] for column in rows.columns], scores[found]))
        columns = [np.concatenate([part[1][index] for part in parts]) for index in range(self.width)]
        return np.concatenate([part[0] for part in parts]), columns, np.concatenate([part[2] for part in parts])


def _find_ranges(rows: SortedRows, position: int | None, predicates: Ids, values: Ids | None) -> tuple[Ids, Ids]:
    if values is None:
        return rows.ranges([predicates])
    return rows.ranges_by(position + 1, predicates, values) if position else rows.ranges([predicates, values])


@dataclass(frozen=True)
class RuleInstances:
    """Heads that instances of rules give, each with the index of its source and a score: the best of its instances."""

    columns: tuple[Ids, ...]
    sources: Ids
    scores: Scores

    def __len__(self) -> int:
        return len(self.sources)

    @classmethod
    def gather(cls, width: int, parts: Sequence[RuleInstances]) -> RuleInstances:
        """Bring instances together, of equal heads by the same source the best."""
        none = np.empty(0, dtype=np.int64)
        listed = [cls((none,) * width, none, np.empty(0)), *parts]
        columns = [np.concatenate([part.columns[position] for part in listed]) for position in range(width)]
        sources, scores = np.concatenate([part.sources for part in listed]), np.concatenate([p.scores for p in listed])
        starts, order = group_rows([*columns, sources])
        first = order[starts]
        best = np.maximum.reduceat(scores[order], starts) if len(starts) else scores
        return cls(tuple(column[first] for column in columns), sources[first], best)

    def select(self, chosen: npt.NDArray[np.bool_]) -> RuleInstances:
        """Return some of the rows."""
        return RuleInstances(
            tuple(column[chosen] for column in self.columns), self.sources[chosen], self.scores[chosen]
        )


def group_rows(columns: Sequence[Ids]) -> tuple[Ids, Ids]:
    """Sort rows of whole numbers from 0: return where the groups of equal rows begin in that order, and the order."""
    if len(columns[0]) == 0:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    sizes = [int(column.max()) + 1 for column in columns]
    if math.prod(sizes) <= np.iinfo(np.int64).max:
        keys = encode_rows(columns, sizes)
        order = np.argsort(keys, kind="stable")
        ordered = [keys[order]]
    else:
        order = np.lexsort(tuple(reversed(columns)))
        ordered = [column[order] for column in columns]
    is_first = np.append(True, np.any([column[1:] != column[:-1] for column in ordered], axis=0))
    return np.flatnonzero(is_first), order


@dataclass(frozen=True, eq=False)
class IndexedAtom:
    """An atom of a batch: for each rule its predicate, and under which names a join has its terms.

    Where it may have several ``classes``, the last term is None.
    """

    fact_signature: str
    predicates: Ids
    terms: tuple[object, ...]
    classes: tuple[int, ...] = ()


Join = dict[object, npt.NDArray[Any]]
"""A join on its way: the row of the rule, a column for each term so far, and scores under the positions of atoms."""

State = Mapping[str, LayeredFacts]
"""Facts by signature."""


class IndexedRules:
    """The rules of a batch, ready to be joined with facts: constants are columns beside the variables.

    Numbers are given by their positions among all ``numbers``, sorted.
    """

    def __init__(self, batch: RuleBatch, kb: KnowledgeBase, numbers: Scores) -> None:
        self._kb, self._numbers = kb, numbers
        self._size = len(batch.derivations)
        self.sources = batch.columns["n"].astype(np.int64)
        self.confidences = batch.columns["s"]
        self.head_signature = batch.head_signature(kb)
        self._constants: Join = {}
        self._types: dict[object, str] = {}
        self._batch = batch
        for name, column in batch.columns.items():
            if name[0] == "c":
                self._constants[Variable(name.upper())] = column.astype(np.int64)
        self.positive: list[IndexedAtom] = []
        self.negative: list[IndexedAtom] = []
        for literal in batch.body:
            if not isinstance(literal.unit, Comparison):
                (self.positive if literal.positive else self.negative).append(self._read_atom(literal.unit))
        self.head = self._read_atom(batch.head)
        self._comparisons = [
            self._read_comparison(literal.unit if literal.positive else literal.unit.opposite())
            for literal in batch.body
            if isinstance(literal.unit, Comparison)
        ]

    def _read_atom(self, unit: Head) -> IndexedAtom:
        if self._batch.is_open:
            name = str(unit.predicate).removeprefix("?").lower()
            return IndexedAtom("e" * len(unit.args), self._batch.columns[name].astype(np.int64), unit.args)
        declaration = self._kb.predicate(str(unit.predicate))
        terms = [self._read_term(term, type_name) for term, type_name in zip(unit.args, declaration.types, strict=True)]
        classes: tuple[int, ...] = ()
        if isinstance(unit, Membership):
            classes = tuple((declaration.classes or ()).index(name) for name in unit.classes)
            terms.append(self._hold_constant(classes[0]) if len(classes) == 1 else None)
        predicates = np.full(self._size, self._kb.predicate_index(declaration.name))
        return IndexedAtom(signature(declaration), predicates, tuple(terms), classes if len(classes) > 1 else ())

    def _read_term(self, term: Term, type_name: str) -> object:
        if isinstance(term, Variable):
            self._types.setdefault(term, type_name)
            return term
        if isinstance(term, Number):
            return self._hold_constant(int(np.searchsorted(self._numbers, float(term.value))))
        entity_index = self._kb.domains[type_name].find(term.name) if isinstance(term, Symbol) else None
        return self._hold_constant(-1 if entity_index is None else entity_index)

    def _hold_constant(self, value: int) -> object:
        name = f"constant {len(self._constants)}"
        self._constants[name] = np.full(self._size, value)
        return name

    def _read_comparison(self, unit: Comparison) -> tuple[str, object, object] | bool:
        """Return what is compared, or whether that is always so: an entity is never a number."""
        if self._batch.is_open:
            return unit.operator, unit.left, unit.right
        types = [
            NUMBER_TYPE if isinstance(term, Number) else self._types.get(term, "") if isinstance(term, Variable) else ""
            for term in unit.args
        ]
        if (types[0] == NUMBER_TYPE) != (types[1] == NUMBER_TYPE):
            return unit.operator == "!="
        if isinstance(unit.left, Symbol) and isinstance(unit.right, Symbol):
            return (unit.left == unit.right) == (unit.operator == "=")
        left, right = (self._read_term(term, types[0] or types[1]) for term in unit.args)
        return unit.operator, left, right

    # From facts, and from heads

    def instances_from(
        self, atom: IndexedAtom, facts: Sequence[Ids], state: State, scores: Scores | None = None
    ) -> Iterator[RuleInstances]:
        """Yield the instances in a state in which an atom of the body is one of these facts, with these scores."""
        waiting = tuple(index for index, other in enumerate(self.positive) if other is not atom)
        for rows, rules in _match_blocks(facts[0], atom.predicates):
            columns = self._begin(rules)
            if scores is not None:
                columns |= {index: scores[rows] for index, other in enumerate(self.positive) if other is atom}
            yield from self._join(_bind(columns, atom, [column[rows] for column in facts[1:]]), waiting, state)

    def instances_of_changes(
        self,
        present: Mapping[str, Sequence[Ids]],
        absent: Mapping[str, Sequence[Ids]],
        state: State,
        scores: Mapping[str, Scores] | None = None,
    ) -> Iterator[RuleInstances]:
        """Yield the instances in a state with one of some facts in the body, or one of others negated in it."""
        for atom in self.positive:
            if atom.fact_signature in present:
                own_scores = None if scores is None else scores[atom.fact_signature]
                yield from self.instances_from(atom, present[atom.fact_signature], state, own_scores)
        for atom in self.negative:
            if atom.fact_signature in absent:
                yield from self.instances_from(atom, absent[atom.fact_signature], state)

    def instances_for(
        self, heads: Sequence[Ids], state: State, sources: Ids | None = None, most: int | None = None
    ) -> Iterator[RuleInstances]:
        """Yield the instances in a state that give some heads, without their class, perhaps each by a given source.

        With ``most`` only so many facts are tried for each atom: what is found is right, but there may be more.
        """
        head = IndexedAtom("", self.head.predicates, self.head.terms[: len(heads) - 1])
        own, wanted = (self.head.predicates, heads[0]) if sources is None else (self.sources, sources)
        for rows, rules in _match_blocks(wanted, own):
            is_same = self.head.predicates[rules] == heads[0][rows]
            rows, rules = rows[is_same], rules[is_same]
            columns = _bind(self._begin(rules), head, [column[rows] for column in heads[1:]])
            yield from self._join(columns, tuple(range(len(self.positive))), state, most)

    def _begin(self, rules: Ids) -> Join:
        return {_RULE: rules, **{name: column[rules] for name, column in self._constants.items()}}

    def _join(
        self, columns: Join, waiting: tuple[int, ...], state: State, most: int | None = None
    ) -> Iterator[RuleInstances]:
        """Join the atoms that wait, leave out what does not hold, and yield what is given."""
        for joined in self._expand(columns, waiting, state, most):
            keep = np.ones(len(joined[_RULE]), dtype=bool)
            for comparison in self._comparisons:
                keep &= comparison if isinstance(comparison, bool) else _compare(comparison, joined)
            for atom in self.negative:
                keep &= ~self._holds(atom, joined, state)
            if keep.any():
                kept = {name: column[keep] for name, column in joined.items()}
                rules = kept[_RULE]
                scores = self.confidences[rules]
                for position in range(len(self.positive)):
                    scores = scores * kept[position] if position in kept else scores
                heads = (self.head.predicates[rules], *(kept[term] for term in self.head.terms))
                yield RuleInstances.gather(len(heads), [RuleInstances(heads, self.sources[rules], scores)])

    def _holds(self, atom: IndexedAtom, columns: Join, state: State) -> npt.NDArray[np.bool_]:
        """Return for each row whether an atom with known arguments is a fact."""
        predicates = atom.predicates[columns[_RULE]]
        holds = np.zeros(len(predicates), dtype=bool)
        for class_index in atom.classes or (None,):
            terms = [np.full(len(holds), class_index) if term is None else columns[term] for term in atom.terms]
            holds |= state[atom.fact_signature].scores([predicates, *terms]) >= 0
        return holds

    def _expand(self, columns: Join, waiting: tuple[int, ...], state: State, most: int | None) -> Iterator[Join]:
        """Join atom by atom, each row with that of its atoms first that has the fewest facts for it."""
        if len(columns[_RULE]) == 0:
            return
        if not waiting:
            yield columns
            return
        options: list[tuple[int, int | None]] = []
        counts: list[Ids] = []
        for index in waiting:
            atom = self.positive[index]
            predicates = atom.predicates[columns[_RULE]]
            bound = [position for position, term in enumerate(atom.terms) if term in columns]
            if len(bound) == len(atom.terms):
                options.append((index, -1))
                counts.append(np.ones(len(predicates), dtype=np.int64))
                continue
            choices: list[int | None] = [*bound]
            for position in choices or [None]:
                values = None if position is None else columns[atom.terms[position]]
                options.append((index, position))
                counts.append(state[atom.fact_signature].count(position, predicates, values))
        fewest, count = np.argmin(counts, axis=0), np.min(counts, axis=0)
        if most is not None:
            count = np.minimum(count, most)
        for choice, (index, position) in enumerate(options):
            chosen = np.flatnonzero((fewest == choice) & (count > 0))
            left = tuple(other for other in waiting if other != index)
            blocks = np.cumsum(count[chosen]) // _MOST_ROWS
            for block in np.split(chosen, np.flatnonzero(np.diff(blocks)) + 1) if len(chosen) else ():
                part = {name: column[block] for name, column in columns.items()}
                yield from self._expand(self._match(part, index, position, state, most), left, state, most)

    def _match(self, columns: Join, index: int, position: int | None, state: State, most: int | None) -> Join:
        """Join one atom: by the value at a position, by all of them (−1), or by its predicate alone."""
        atom = self.positive[index]
        predicates, facts = atom.predicates[columns[_RULE]], state[atom.fact_signature]
        if position == -1:
            scores = facts.scores([predicates, *(columns[term] for term in atom.terms)])
            return {name: column[scores >= 0] for name, column in {**columns, index: scores}.items()}
        values = None if position is None else columns[atom.terms[position]]
        rows, (_, *arguments), scores = facts.match(position, predicates, values, most)
        joined = {name: column[rows] for name, column in columns.items()}
        return _bind({**joined, index: scores}, atom, arguments)


def _bind(columns: Join, atom: IndexedAtom, values: Sequence[Ids]) -> Join:
    """Bind the terms of an atom; rows in which one has another value already are left out."""
    keep = np.ones(len(columns[_RULE]), dtype=bool)
    for term, value in zip(atom.terms, values, strict=True):
        if term is None:
            keep &= np.isin(value, atom.classes)
        elif term in columns:
            keep &= columns[term] == value
        else:
            columns[term] = value
    return columns if keep.all() else {name: column[keep] for name, column in columns.items()}


def _match_blocks(wanted: Ids, own: Ids) -> Iterator[tuple[Ids, Ids]]:
    """Yield the pairs of positions with equal values, so many rows of the first at once that no block is too large."""
    order = np.argsort(own, kind="stable")
    ordered = own[order]
    counts = np.searchsorted(ordered, wanted, side="right") - np.searchsorted(ordered, wanted, side="left")
    some = np.flatnonzero(counts)
    blocks = np.cumsum(counts[some]) // _MOST_ROWS
    for block in np.split(some, np.flatnonzero(np.diff(blocks)) + 1) if len(some) else ():
        position, match = match_sorted(wanted[block], ordered)
        yield block[position], order[match]


def _compare(comparison: tuple[str, object, object], columns: Join) -> npt.NDArray[np.bool_]:
    operator, left, right = comparison
    holds: npt.NDArray[np.bool_] = _OPERATORS[operator](columns[left], columns[right])
    return holds


_OPERATORS = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
    "!=": np.not_equal,
}
