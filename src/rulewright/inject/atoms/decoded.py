"""The answer of a decoder: labels, their cost, why each differs from what it would be without rules, broken rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isinf
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids
from rulewright.errors import DataError
from rulewright.inject.atoms.clauses import ClauseSource
from rulewright.inject.atoms.layout import Labels
from rulewright.logic import quote
from rulewright.tables import FrameLibrary, build_frame, html_table

EntityNames: TypeAlias = Sequence[str] | Mapping[str, Sequence[str]]
"""The names of entities in order: of all types, or by type."""

Solver: TypeAlias = Literal["thresholds", "dynamic programming", "integer program", "repair"]
"""How labels were found: nothing was violated; over chains and trees; by HiGHS; by repairs after a time limit."""

PredicateLabels: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""For each predicate truth values, or class indices where it has classes."""


@dataclass(frozen=True)
class Change:
    """One atom whose label differs from what it would be without rules, and a grounding that forces it.

    Were the label changed back alone, ``rule`` would be violated where its variables are the entities of
    ``grounding``. ``rule`` is None where no single grounding is the reason, such as for the limit of labels of a pair.
    After a time limit it is the grounding that the label was repaired for.

    Attributes:
        predicate: its name.
        args: the entities, by index.
        before: the label without rules: a truth value, or the name of a class.
        after: the label with them.
        rule: the statement that is the reason.
        grounding: the entities of its variables, by index.
        row: where in the batch; empty where there is none, so that the label is ``labels[predicate][*row, *args]``.
        types: the types of ``args``.
        variable_types: the types of the variables of ``grounding``.
    """

    predicate: str
    args: tuple[int, ...]
    before: bool | str
    after: bool | str
    rule: ClauseSource | None
    grounding: tuple[tuple[str, int], ...]
    row: tuple[int, ...] = ()
    types: tuple[str, ...] = field(default=(), repr=False)
    variable_types: tuple[str, ...] = field(default=(), repr=False)

    def atom(self, entities: EntityNames | None = None) -> str:
        """Return the atom in the rule language, with the entities' names where they are given."""
        return write_atom(self.predicate, name_entities(self.args, self.types, entities))

    def where(self, entities: EntityNames | None = None) -> str:
        """Return the grounding as text."""
        return _describe_grounding(self.grounding, self.variable_types, entities)

    def text(self, entities: EntityNames | None = None) -> str:
        """Describe the change in a line, with the entities' names where they are given."""
        row = _describe_row(self.row)
        if isinstance(self.after, bool):
            atom = f"{row}{'+' if self.after else '-'} {self.atom(entities)}"
        else:
            atom = f"{row}{self.atom(entities)}: {quote(str(self.before))} → {quote(self.after)}"
        if self.rule is None:
            return f"{atom}  by the limit of labels of a pair, or several rules at once"
        where = self.where(entities)
        return f"{atom}  by  {str(self.rule).split(' @{')[0]}" + (f"  where {where}" if where else "")

    def __str__(self) -> str:
        return self.text()


class BrokenGroundings(NamedTuple):
    """Groundings that labels break: variables, their types, and the row and entities, ``[grounding, 1 + variable]``."""

    variables: tuple[str, ...]
    types: tuple[str, ...]
    entities: Ids


@dataclass(frozen=True, eq=False)
class BrokenRule:
    """A rule that labels break at a cost, since to keep it would have cost more.

    Attributes:
        rule: the statement.
        position: its position among the statements.
        count: how many of its groundings are broken.
        cost: what they cost together.
        price: how much more the labels would have cost had the rule been one that must hold, with their other rules;
            infinite where nothing satisfies it, None where that was not asked for, or not found in time.
        parts: the groundings, by the variables that they have.
        batch: the shape of the batch.
    """

    rule: ClauseSource
    position: int
    count: int
    cost: float
    price: float | None = None
    parts: tuple[BrokenGroundings, ...] = field(default=(), repr=False)
    batch: tuple[int, ...] = field(default=(), repr=False)

    def groundings(self) -> Iterator[tuple[tuple[int, ...], tuple[tuple[str, int], ...]]]:
        """Yield where in the batch each broken grounding is, and the entities of its variables, by index."""
        for part in self.parts:
            for row, *entities in part.entities.tolist():
                yield read_row(row, self.batch), tuple(zip(part.variables, entities, strict=True))

    def select_row(self, row: tuple[int, ...]) -> BrokenRule:
        """Return the same of one row of the batch."""
        index = int(np.ravel_multi_index(row, self.batch))
        parts = [part._replace(entities=part.entities[part.entities[:, 0] == index]) for part in self.parts]
        kept = tuple(part for part in parts if len(part.entities))
        count = sum(len(part.entities) for part in kept)
        return replace(self, count=count, cost=self.cost * count / self.count, parts=kept)

    def where(self, entities: EntityNames | None = None) -> str:
        """Return the first broken grounding as text."""
        row, grounding = next(self.groundings())
        return _describe_row(row) + _describe_grounding(grounding, self.parts[0].types, entities)

    def text(self, entities: EntityNames | None = None) -> str:
        """Describe it in a line, with the entities' names where they are given."""
        where, others = self.where(entities), f" and {self.count - 1:,} more" if self.count > 1 else ""
        line = f"! broken {_count(self.count, 'time')} for {self.cost:.4f}:  {str(self.rule).split(' @{')[0]}"
        line += f"  where {where}{others}" if where else ""
        if self.price is not None:
            line += "  (nothing keeps it)" if isinf(self.price) else f"  (keeping it costs {self.price:.4f} more)"
        return line

    def __str__(self) -> str:
        return self.text()


def read_row(row: int, batch: tuple[int, ...]) -> tuple[int, ...]:
    """Return where in a batch a row is; empty where there is no batch."""
    if len(batch) > 1:
        return tuple(map(int, np.unravel_index(row, batch)))
    return (row,) if batch else ()


def _describe_row(row: tuple[int, ...]) -> str:
    return f"row {', '.join(map(str, row))}: " if row else ""


def _describe_grounding(
    grounding: tuple[tuple[str, int], ...], types: Sequence[str], entities: EntityNames | None
) -> str:
    values = name_entities([entity for _, entity in grounding], types, entities)
    return describe_values([variable for variable, _ in grounding], values)


def write_atom(predicate: str, names: Sequence[str]) -> str:
    """Write a ground atom.

    >>> write_atom("likes", ["ann", "bob"]), write_atom("rain", [])
    ('likes(ann, bob)', 'rain')
    """
    return f"{quote(predicate)}({', '.join(names)})" if names else quote(predicate)


def name_entities(
    indices: Sequence[int], types: Sequence[str], entities: EntityNames | None, *, quoted: bool = True
) -> list[str]:
    """Return the names of entities, or their indices where these are not known."""
    names = []
    for position, index in enumerate(indices):
        known = entities.get(types[position]) if isinstance(entities, Mapping) else entities
        name = None if known is None else known[index]
        names.append(str(index) if name is None else quote(name) if quoted else name)
    return names


def describe_values(variables: Sequence[str], values: Sequence[str]) -> str:
    """Write the values of variables.

    >>> describe_values(["X", "Y"], ["ann", "bob"])
    'X = ann, Y = bob'
    """
    return ", ".join(f"{variable} = {value}" for variable, value in zip(variables, values, strict=True))


@dataclass(frozen=True, eq=False)
class Decoded:
    """The labels of one call.

    Attributes:
        labels: for each predicate that has logits truth values, or class indices where it has classes, of the shape of
            its atoms; with ``relations`` one boolean array ``[*batch, n, n, R]``. Padding is False, or class 0.
        before: the labels without rules; with ``tau=1, k=0`` those above the threshold, or the likeliest class.
        objective: the cost of the labels and of the rules that they break, summed over the batch.
        optimal: whether they are proven to cost least among all labellings that violate nothing that must hold.
        rounds: how often constraints were added and the program was solved.
        constraints: how many constraints it had in the end.
        violations: how many groundings that must hold are violated; always 0, except for ``method="simplified"``.
        changes: what differs from ``before``, and why.
        solver: how the labels were found.
        relations: the names of the relations, where they are in one array.
        entity_names: the names of entities by type, as ``domains`` gives them.
        classified: how many atoms have a class.
        broken: the rules that are broken at a cost, the one that costs most first.
        rule_cost: what they cost together, which is part of the objective.
    """

    labels: Any
    before: Any
    objective: float
    optimal: bool
    rounds: int
    constraints: int
    violations: int
    changes: tuple[Change, ...]
    solver: Solver
    relations: tuple[str, ...] | None = None
    entity_names: Mapping[str, Sequence[str]] = field(default_factory=dict)
    classified: int = 0
    broken: tuple[BrokenRule, ...] = ()
    rule_cost: float = 0.0

    @property
    def label_cost(self) -> float:
        """The cost of the labels alone."""
        return self.objective - self.rule_cost

    def facts(self) -> list[tuple[int, str, int]]:
        """Return the labels of one document with ``relations`` as (head, relation, tail)."""
        if self.relations is None or self.labels.ndim != 3:
            raise DataError("facts are of one document with relations=[…]; read labels, by predicate and row")
        return [(int(h), self.relations[r], int(t)) for h, t, r in zip(*np.nonzero(self.labels), strict=True)]

    def summary(self) -> str:
        """Describe the answer in a line of numbers."""
        counts = [
            (self.rounds, "round"),
            (self.constraints, "constraint"),
            (len(self.changes), "change"),
            (self.violations, "violated grounding"),
        ]
        proof = "optimal" if self.optimal else "not proven optimal"
        if self.broken:
            proof += f"; labels {self.label_cost:.4f}, rules {self.rule_cost:.4f}"
            counts.insert(3, (sum(rule.count for rule in self.broken), "broken grounding"))
        parts = [f"objective {self.objective:.4f} ({proof})"]
        parts += [_count(count, noun) for count, noun in (counts if self.violations else counts[:-1])]
        if self.classified:
            parts.insert(0, _count(self.classified, "classified atom"))
        facts = self._count_facts()
        if facts is not None:
            parts.insert(0, _count(facts, "fact"))
        if self.solver == "dynamic programming":
            parts.append("by dynamic programming")
        return ", ".join(parts)

    def _count_facts(self) -> int | None:
        """Count the labels that are true; None where no predicate has truth values."""
        arrays: list[Labels] = [self.labels] if self.relations is not None else list(self.labels.values())
        counts = [int(array.sum()) for array in arrays if array.dtype == bool]
        return sum(counts) if counts or not arrays else None

    def report(self, entities: EntityNames | None = None) -> str:
        """Describe the answer for people: a line of numbers, then a line for each change and each broken rule.

        ``entities`` has the names of entities, of all types or by type; without it those of ``domains``.
        """
        names = self.entity_names if entities is None else entities
        lines = [self.summary(), *(change.text(names) for change in self.changes)]
        return "\n".join([*lines, *(rule.text(names) for rule in self.broken)])

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return the changes as a data frame of pandas or Polars: row, atom, before, after, rule, grounding."""
        rows = list(zip(*self._list_rows(), strict=True)) or [()] * len(_COLUMNS)
        return build_frame(dict(zip(_COLUMNS, map(list, rows), strict=True)), library)

    def _list_rows(self) -> list[tuple[str, str, str, str, str, str]]:
        return [
            (
                ", ".join(map(str, change.row)),
                change.atom(self.entity_names),
                _write_label(change.before),
                _write_label(change.after),
                "" if change.rule is None else str(change.rule).split(" @{")[0],
                change.where(self.entity_names),
            )
            for change in self.changes
        ]

    def _repr_html_(self) -> str:
        return html_table(_COLUMNS, self._list_rows(), self.summary())

    def __str__(self) -> str:
        return self.report()


_COLUMNS = ("row", "atom", "before", "after", "rule", "grounding")


def _write_label(label: bool | str) -> str:
    return label if isinstance(label, str) else str(label).lower()


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
