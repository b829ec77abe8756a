"""Ground clauses drawn at random near what is observed, a batch at a time: what sampled training learns from.

A batch is drawn in rounds, as Xu et al. (ICLR 2024) and Zhang et al. (ICLR 2020) published it. In a round every formula
is instantiated once, in random order. Its atoms take their turn in random order too: with probability ``bias`` a turn
sets the atom's variables to those of a known fact, true or false, of its predicate that agrees with the variables set
so far (each such fact alike); else, and where there is none, each variable left is any entity of its type. A grounding
is kept unless the evidence makes it true, nothing of it is open, or the batch has it already; the batch is full when
``batch_size`` are kept.

Clauses are then those of *all* groundings of a formula whose atoms are among the atoms of its kept ones. Where atoms of
a grounding coincide, a doubled literal counts once and opposite ones make a tautology, which is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import numpy.typing as npt

from rulewright.data.facts import Column
from rulewright.data.index import Ids, SortedRows, encode_rows, match_pairs, range_bounds
from rulewright.errors import DataError
from rulewright.inject.atom_space import statement_formulas
from rulewright.learn.markov.facts import GroundFacts
from rulewright.logic import Comparison, Formula, Membership, RuleSet, Symbol, Term, Variable, exclusive_clauses, units

OPEN = -1
"""The state of an atom that is not observed; others have their class, 0 and 1 for false and true."""

BLOCK = 250_000
"""About how many ground clauses are drawn together."""

MOST_CLAUSES = 20_000_000
"""The most groundings of one formula that are made together."""

MOST_PASSES, MOST_DRAWN = 16, 5000
"""How many times the groundings of a batch are drawn at most to fill it, or how many where batches are small."""

TRIED = 4
"""The batches that are drawn to see what is needed to fill one."""


@dataclass(frozen=True, slots=True)
class GroundBatch:
    """Ground clauses and the open atoms they have; what is observed is worked into them.

    ``atoms`` are distinct, as columns by predicate. ``positions[g, j]`` says which of them, all predicates one after
    the other, the j-th literal of clause g is about, −1 where it has no j-th; the literal is true in the classes
    ``sets[g, j]`` of `GroundingSampler.class_sets`. ``statements[g]`` is the index of the clause's statement, and
    ``drawn`` how many groundings were kept.
    """

    atoms: Mapping[str, tuple[Ids, ...]]
    positions: Ids
    sets: Ids
    statements: Ids
    drawn: int


@dataclass(frozen=True)
class _AtomPattern:
    """An atom of a formula: for each argument a variable's position, or a constant's id below 0 as ``−1 − id``."""

    name: str
    terms: tuple[int, ...]

    @cached_property
    def variables(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(term for term in self.terms if term >= 0))

    def columns(self, rows: Ids) -> list[Ids]:
        """Return the atom's entities in assignments ``[n, variables]``."""
        return [rows[:, term] if term >= 0 else np.full(len(rows), -1 - term, dtype=np.int64) for term in self.terms]

    def match(self, columns: Sequence[Column]) -> npt.NDArray[np.bool_]:
        """Return which atoms of the predicate are instances of this one."""
        fits = np.ones(len(columns[0]), dtype=bool)
        for position, term in enumerate(self.terms):
            fits &= columns[position] == (columns[self.terms.index(term)] if term >= 0 else -1 - term)
        return fits


@dataclass(frozen=True)
class _ClausePattern:
    """A clause of a formula: its literals' atoms and class sets, and its comparisons, as sides like terms."""

    atoms: tuple[_AtomPattern, ...]
    sets: tuple[int, ...]
    comparisons: tuple[tuple[str, int, int], ...]


@dataclass(frozen=True)
class _FormulaPattern:
    statement_index: int
    formula: Formula
    types: tuple[str, ...]
    atoms: tuple[_AtomPattern, ...]
    clauses: tuple[_ClausePattern, ...]


class _PartialFacts:
    """The known facts of a predicate, to be found by a part of their arguments."""

    def __init__(self, facts: GroundFacts, name: str) -> None:
        columns, _ = facts.known(name)
        self.columns = tuple(column.astype(np.int64) for column in columns)
        self.worlds = np.zeros(len(self.columns[0]), dtype=np.int64)
        if facts.kb.entity_worlds is not None:  # what all worlds share has −1
            worlds = np.max([facts.kb.entity_worlds[column] for column in columns], axis=0)
            self.worlds = worlds.astype(np.int64).clip(min=0)
        self._sorted: dict[tuple[_AtomPattern, int], SortedRows] = {}

    def find(self, atom: _AtomPattern, bound: int) -> SortedRows:
        """Return the facts that are instances of an atom: by their world and the variables whose bit is set."""
        key = (atom, bound)
        if key not in self._sorted:
            fits = atom.match(self.columns)
            by_variable = [self.columns[atom.terms.index(variable)][fits] for variable in atom.variables]
            is_bound = [bool(bound >> position & 1) for position in range(len(by_variable))]
            first = [column for column, is_first in zip(by_variable, is_bound, strict=True) if is_first]
            last = [column for column, is_first in zip(by_variable, is_bound, strict=True) if not is_first]
            self._sorted[key] = SortedRows([self.worlds[fits], *first, *last])
        return self._sorted[key]


class GroundingSampler:
    """Draws batches of ground clauses; the same seed and block give the same ones.

    ``class_sets`` are the sets of classes that literals are true in. ``passes`` is how many times the groundings of a
    batch are drawn to fill it: where few tell anything, batches stay smaller than ``batch_size``, and ``usual_size`` is
    how many they have.
    """

    def __init__(self, facts: GroundFacts, statements: RuleSet, *, batch_size: int, bias: float, seed: int) -> None:
        self.facts, self.batch_size, self.bias, self.seed = facts, batch_size, bias, seed
        self.class_sets: list[frozenset[int]] = []
        self._n_classes = {name: len(known.classes or (0, 1)) for name, known in facts.declared.items()}
        self._patterns = [
            self._read(index, formula)
            for index, statement in enumerate(statements)
            for formula in statement_formulas(statement)
        ]
        if not self._patterns:
            raise DataError("there are no rules to draw groundings of; training 'sampled' learns from them")
        self._names = sorted({atom.name for pattern in self._patterns for atom in pattern.atoms})
        self._indices = {name: _PartialFacts(facts, name) for name in self._names}
        self._members: dict[str, tuple[Ids, Ids]] = {}
        self.passes, self.block_size, self.usual_size = 1, 1, 0.0
        self._measure()

    def _measure(self) -> None:
        """Draw some batches to see how often groundings must be drawn to fill one, and how many clauses it has."""
        total = 0
        while self.passes * self.batch_size <= max(MOST_DRAWN, MOST_PASSES * self.batch_size):
            groups = self._draw_groundings(np.random.default_rng([self.seed, 0]), TRIED)
            drawn = np.sum([np.bincount(batches, minlength=TRIED) for _, batches in groups], axis=0)
            before, total = total, int(drawn.sum())
            if drawn.min() == self.batch_size or 0 < total <= 1.01 * before:
                break
            self.passes *= 2
        if not total:
            raise DataError(
                f"of {self.passes * self.batch_size:,} groundings that were drawn, the facts leave none open: there is "
                "nothing to infer by the rules"
            )
        batches = self._draw_block(np.random.default_rng([self.seed, 0]), TRIED)
        clauses = sum(len(batch.statements) for batch in batches) // TRIED
        self.usual_size = total / TRIED
        self.block_size = max(1, min(100, BLOCK // max(clauses, self.batch_size * self.passes)))

    def batches(self, block: int) -> list[GroundBatch]:
        """Return the ``block_size`` batches of a block."""
        return self._draw_block(np.random.default_rng([self.seed, 1 + block]), self.block_size)

    # Patterns of formulas

    def _read(self, statement_index: int, formula: Formula) -> _FormulaPattern:
        types: dict[Variable, str] = {}
        for unit in units(formula):
            if not isinstance(unit, Comparison):
                for term, type_name in zip(unit.args, self.facts.declared[str(unit.predicate)].types, strict=True):
                    if isinstance(term, Variable):
                        types[term] = type_name
        positions = {variable: position for position, variable in enumerate(types)}

        def read_atom(unit: object) -> _AtomPattern:
            name, args = str(unit.predicate), unit.args  # type: ignore[attr-defined]
            declared = self.facts.declared[name].types
            return _AtomPattern(
                name,
                tuple(
                    positions[term] if isinstance(term, Variable) else -1 - self._constant(term, type_name)
                    for term, type_name in zip(args, declared, strict=True)
                ),
            )

        clauses = []
        for clause in exclusive_clauses(formula):
            atoms, sets, comparisons = [], [], []
            for literal in clause.literals:
                unit = literal.unit
                if isinstance(unit, Comparison):
                    if unit.operator not in ("=", "!="):
                        raise DataError(f"training 'sampled' takes no comparison but = and !=, in: {formula}")
                    known = [types[term] for term in unit.args if isinstance(term, Variable)]
                    left, right = (
                        positions[term] if isinstance(term, Variable) else -1 - self._constant(term, known[0])
                        for term in unit.args
                    )
                    comparisons.append((unit.operator, left, right))
                    continue
                atoms.append(read_atom(unit))
                every = set(range(self._n_classes[str(unit.predicate)]))
                inside = {1}
                if isinstance(unit, Membership):
                    declared = self.facts.declared[str(unit.predicate)].classes or ()
                    inside = {declared.index(class_name) for class_name in unit.classes}
                sets.append(self._class_set(inside if literal.positive else every - inside))
            clauses.append(_ClausePattern(tuple(atoms), tuple(sets), tuple(comparisons)))
        every_atom = [read_atom(unit) for unit in units(formula) if not isinstance(unit, Comparison)]
        return _FormulaPattern(
            statement_index, formula, tuple(types.values()), tuple(dict.fromkeys(every_atom)), tuple(clauses)
        )

    def _constant(self, term: Term, type_name: str) -> int:
        return self.facts.kb.domains[type_name].index_of(term.name if isinstance(term, Symbol) else str(term))

    def _class_set(self, classes: set[int] | frozenset[int]) -> int:
        if frozenset(classes) not in self.class_sets:
            self.class_sets.append(frozenset(classes))
        return self.class_sets.index(frozenset(classes))

    # Groundings

    def _draw_groundings(self, random: np.random.Generator, count: int) -> list[tuple[Ids, Ids]]:
        """Return for each formula the assignments that are kept and the batches, of ``count``, they are of."""
        rounds = self.passes * -(-self.batch_size // len(self._patterns))
        batch_ids = np.repeat(np.arange(count), rounds)
        found, orders = [], []
        for pattern in self._patterns:
            rows = self._instantiate(pattern, count * rounds, random)
            fits = (rows >= 0).all(axis=1)
            kept = np.flatnonzero(fits)[self._is_telling(pattern, rows[fits])]
            _, first = number_rows([batch_ids[kept], *rows[kept].T])
            kept = kept[np.sort(first)]
            found.append((rows[kept], batch_ids[kept]))
            # rounds come one after the other, and formulas in random order within each
            orders.append(kept % rounds + random.random(len(kept)))
        bounds = range_bounds([len(batches) for _, batches in found])
        batches = np.concatenate([batches for _, batches in found])
        order = np.lexsort((np.concatenate(orders), batches))
        starts = range_bounds(np.bincount(batches, minlength=count))
        rank = np.empty(len(order), dtype=np.int64)
        rank[order] = np.arange(len(order)) - np.repeat(starts[:-1], np.diff(starts))
        fits = rank < self.batch_size
        return [
            (rows[fits[start:stop]], ids[fits[start:stop]])
            for (rows, ids), start, stop in zip(found, bounds[:-1], bounds[1:], strict=True)
        ]

    def _instantiate(self, pattern: _FormulaPattern, count: int, random: np.random.Generator) -> Ids:
        """Return assignments ``[count, variables]``, −1 where a type has no entity in the world."""
        rows = np.full((count, len(pattern.types)), -1, dtype=np.int64)
        worlds = random.integers(max(1, len(self.facts.kb.worlds)), size=count)
        turns = random.random((count, len(pattern.atoms))).argsort(axis=1)
        for turn in range(len(pattern.atoms)):
            for position, atom in enumerate(pattern.atoms):
                self._set_atom(pattern, atom, rows, np.flatnonzero(turns[:, turn] == position), worlds, random)
        return rows

    def _set_atom(
        self,
        pattern: _FormulaPattern,
        atom: _AtomPattern,
        rows: Ids,
        chosen: Ids,
        worlds: Ids,
        random: np.random.Generator,
    ) -> None:
        """Set the variables of an atom that are not set yet, in the chosen rows."""
        variables = np.array(atom.variables, dtype=np.int64)
        bound = (rows[np.ix_(chosen, variables)] >= 0) @ (1 << np.arange(len(variables)))
        for code in range((1 << len(variables)) - 1):
            part = chosen[bound == code]
            if not len(part):
                continue
            is_bound = (code >> np.arange(len(variables)) & 1).astype(bool)
            index = self._indices[atom.name].find(atom, code)
            starts, ends = index.ranges([worlds[part], *rows[np.ix_(part, variables[is_bound])].T])
            is_known = (random.random(len(part)) < self.bias) & (ends > starts)
            chosen_facts = starts + (random.random(len(part)) * (ends - starts)).astype(np.int64)
            free = variables[~is_bound]
            for column, variable in zip(index.columns[1 + int(is_bound.sum()) :], free.tolist(), strict=True):
                drawn = self._draw_entities(pattern.types[variable], worlds[part], random)
                if len(column):
                    drawn = np.where(is_known, column[np.minimum(chosen_facts, len(column) - 1)], drawn)
                rows[part, variable] = drawn

    def _draw_entities(self, type_name: str, worlds: Ids, random: np.random.Generator) -> Ids:
        """Return a random entity of a type for each world, −1 where it has none."""
        if type_name not in self._members:
            domain = self.facts.kb.domains[type_name]
            ids = np.arange(domain.start, domain.start + len(domain), dtype=np.int64)
            if domain.worlds is None:
                self._members[type_name] = ids, np.array([0, len(ids)])
            else:
                counts = np.bincount(domain.worlds, minlength=len(self.facts.kb.worlds))
                self._members[type_name] = ids[np.argsort(domain.worlds, kind="stable")], range_bounds(counts)
        ids, bounds = self._members[type_name]
        worlds = worlds if len(bounds) > 2 else np.zeros_like(worlds)
        sizes = bounds[worlds + 1] - bounds[worlds]
        drawn = ids[np.minimum(bounds[worlds] + (random.random(len(worlds)) * sizes).astype(np.int64), len(ids) - 1)]
        return np.where(sizes > 0, drawn, -1)

    # Clauses

    def _is_telling(self, pattern: _FormulaPattern, rows: Ids) -> npt.NDArray[np.bool_]:
        """Return which groundings have a clause that the evidence does not make true and that has open atoms."""
        tells = np.zeros(len(rows), dtype=bool)
        for clause in pattern.clauses:
            _, is_open = self._evaluate(clause, rows)
            tells |= is_open.any(axis=1)
        return tells

    def _evaluate(self, clause: _ClausePattern, rows: Ids) -> tuple[Ids, npt.NDArray[np.bool_]]:
        """Return class sets and which literals are open ``[n, literals]``; none is of a clause that is true."""
        sets = np.tile(np.array(clause.sets, dtype=np.int64), (len(rows), 1))
        is_open = np.zeros(sets.shape, dtype=bool)
        is_true = np.zeros(len(rows), dtype=bool)
        for operator, left, right in clause.comparisons:
            one, other = (rows[:, side] if side >= 0 else -1 - side for side in (left, right))
            is_true |= (one == other) == (operator == "=")
        columns = [atom.columns(rows) for atom in clause.atoms]
        for literal, atom in enumerate(clause.atoms):
            states = self.facts.states(atom.name, columns[literal])
            inside = np.zeros(self._n_classes[atom.name], dtype=bool)
            inside[[*self.class_sets[clause.sets[literal]]]] = True
            is_open[:, literal] = states == OPEN
            is_true |= (states != OPEN) & inside[states]
        for one, other in combinations(range(len(clause.atoms)), 2):
            name = clause.atoms[one].name
            if name != clause.atoms[other].name:
                continue
            same = is_open[:, one] & is_open[:, other]
            for first, second in zip(columns[one], columns[other], strict=True):
                same &= first == second
            for pair in np.unique(sets[same][:, [one, other]], axis=0):
                union = self.class_sets[pair[0]] | self.class_sets[pair[1]]
                merged = same & (sets[:, [one, other]] == pair).all(axis=1)
                is_true |= merged if len(union) == self._n_classes[name] else False
                sets[merged, one] = self._class_set(union)
            is_open[same, other] = False
        is_open[is_true] = False
        return sets, is_open

    def _close(self, pattern: _FormulaPattern, rows: Ids, batches: Ids) -> tuple[Ids, Ids]:
        """Return all assignments, and their batches, whose atoms are all among those of the given ones."""
        tables: dict[str, list[Ids]] = {}
        for name in {atom.name for atom in pattern.atoms}:
            parts = [np.stack([batches, *atom.columns(rows)]) for atom in pattern.atoms if atom.name == name]
            stacked = np.concatenate(parts, axis=1)
            _, first = number_rows([*stacked])
            tables[name] = [*stacked[:, first]]
        joined: dict[int, Ids] = {}
        left = list(pattern.atoms)
        within = np.empty(0, dtype=np.int64)
        while left:
            # what shares most variables with those that are set comes first, so that little is made in vain
            atom = max(left, key=lambda atom: (sum(v in joined for v in atom.variables), -len(atom.variables)))
            left.remove(atom)
            batch, *table = tables[atom.name]
            fits = atom.match(table)
            own = {variable: table[atom.terms.index(variable)][fits] for variable in atom.variables}
            if len(left) == len(pattern.atoms) - 1:
                joined, within = own, batch[fits]
                continue
            shared = [variable for variable in own if variable in joined]
            keys = [np.concatenate([within, batch[fits]])]
            keys += [np.concatenate([joined[variable], own[variable]]) for variable in shared]
            numbers, _ = number_rows(keys)
            mine, theirs = numbers[: len(within)], numbers[len(within) :]
            count = int(np.bincount(mine, minlength=len(numbers)) @ np.bincount(theirs, minlength=len(numbers)))
            if count > MOST_CLAUSES:
                raise DataError(
                    f"the atoms of a batch make {count:,} groundings, more than {MOST_CLAUSES:,}, of "
                    f"{pattern.formula}; batch_size is {self.batch_size:,}, lower it"
                )
            one, other = match_pairs(mine, theirs)
            within = within[one]
            joined = {variable: column[one] for variable, column in joined.items()}
            joined |= {variable: own[variable][other] for variable in own if variable not in shared}
        assignments = np.empty((len(within), len(pattern.types)), dtype=np.int64)
        for variable, column in joined.items():
            assignments[:, variable] = column
        return assignments, within

    def _draw_block(self, random: np.random.Generator, count: int) -> list[GroundBatch]:
        """Draw ``count`` batches at once."""
        entries: dict[str, list[Ids]] = {name: [] for name in self._names}
        batches, statements, widest, total = [], [], 1, 0
        drawn = np.zeros(count, dtype=np.int64)
        for pattern, (kept, kept_batches) in zip(self._patterns, self._draw_groundings(random, count), strict=True):
            drawn += np.bincount(kept_batches, minlength=count)
            if not len(kept):
                continue
            rows, within = self._close(pattern, kept, kept_batches)
            for clause in pattern.clauses:
                sets, is_open = self._evaluate(clause, rows)
                is_kept = is_open.any(axis=1)
                clause_ids = total + np.cumsum(is_kept) - 1
                slots = np.cumsum(is_open, axis=1) - 1
                for literal, atom in enumerate(clause.atoms):
                    where = is_open[:, literal]
                    parts = [clause_ids, slots[:, literal], sets[:, literal], within, *atom.columns(rows)]
                    entries[atom.name].append(np.stack([part[where] for part in parts]))
                batches.append(within[is_kept])
                statements.append(np.full(int(is_kept.sum()), pattern.statement_index))
                total += int(is_kept.sum())
                widest = max(widest, int(is_open.sum(axis=1).max(initial=0)))
        none = np.empty(0, dtype=np.int64)
        batch_ids = np.concatenate([none, *batches])
        return self._gather(entries, batch_ids, np.concatenate([none, *statements]), widest, drawn)

    def _gather(
        self, entries: Mapping[str, list[Ids]], batch_ids: Ids, statements: Ids, widest: int, drawn: Ids
    ) -> list[GroundBatch]:
        """Number the atoms of each batch, and cut clauses and atoms into batches."""
        count = len(drawn)
        positions = np.full((len(batch_ids), widest), -1, dtype=np.int64)
        sets = np.zeros_like(positions)
        atoms: dict[str, tuple[Ids, ...]] = {}
        bounds: dict[str, Ids] = {}
        first = np.zeros(count, dtype=np.int64)  # how many atoms each batch has of the predicates before
        for name, parts in entries.items():
            if not parts:
                continue
            clause_ids, slots, class_sets, within, *columns = np.concatenate(parts, axis=1)
            numbers, firsts = number_rows([within, *columns])
            atoms[name] = tuple(column[firsts] for column in columns)
            bounds[name] = range_bounds(np.bincount(within[firsts], minlength=count))
            positions[clause_ids, slots] = first[within] + numbers - bounds[name][within]
            sets[clause_ids, slots] = class_sets
            first = first + np.diff(bounds[name])
        order = np.argsort(batch_ids, kind="stable")
        cuts = range_bounds(np.bincount(batch_ids, minlength=count))
        made = []
        for batch in range(count):
            part = order[cuts[batch] : cuts[batch + 1]]
            own = {
                name: tuple(column[bounds[name][batch] : bounds[name][batch + 1]] for column in columns)
                for name, columns in atoms.items()
            }
            made.append(GroundBatch(own, positions[part], sets[part], statements[part], int(drawn[batch])))
        return made


def number_rows(columns: Sequence[Ids]) -> tuple[Ids, Ids]:
    """Return a number for each row, equal where rows are and in their order, and where each number first stands.

    >>> [part.tolist() for part in number_rows([np.array([7, 3, 7]), np.array([1, 2, 1])])]
    [[1, 0, 1], [1, 0]]
    """
    sizes = [int(column.max(initial=0)) + 1 for column in columns]
    if np.prod([float(size) for size in sizes]) < 2.0**62:
        keys = encode_rows(columns, sizes)
    else:
        keys = np.zeros(len(columns[0]), dtype=np.int64)
        for column, size in zip(columns, sizes, strict=True):
            keys = np.unique(keys * size + column, return_inverse=True)[1].reshape(-1)
    _, first, numbers = np.unique(keys, return_index=True, return_inverse=True)
    return numbers.reshape(-1), first
