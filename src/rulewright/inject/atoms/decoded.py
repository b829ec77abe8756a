"""The answer of a decoder: labels, what they cost, and why each differs from what it would be without rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

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
        values = name_entities([entity for _, entity in self.grounding], self.variable_types, entities)
        return describe_values([variable for variable, _ in self.grounding], values)

    def text(self, entities: EntityNames | None = None) -> str:
        """Describe the change in a line, with the entities' names where they are given."""
        row = f"row {', '.join(map(str, self.row))}: " if self.row else ""
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
        objective: the cost of the labels, summed over the batch.
        optimal: whether they are proven to cost least among all labellings that violate nothing.
        rounds: how often constraints were added and the program was solved.
        constraints: how many constraints it had in the end.
        violations: how many groundings are violated; always 0, except for ``method="simplified"``.
        changes: what differs from ``before``, and why.
        solver: how the labels were found.
        relations: the names of the relations, where they are in one array.
        entity_names: the names of entities by type, as ``domains`` gives them.
        classified: how many atoms have a class.
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
        """Describe the answer for people: a line of numbers, then a line for each change.

        ``entities`` has the names of entities, of all types or by type; without it those of ``domains``.
        """
        names = self.entity_names if entities is None else entities
        return "\n".join([self.summary(), *(change.text(names) for change in self.changes)])

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
