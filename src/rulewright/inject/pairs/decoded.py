"""What a decoder answers: labels, how good they are, and the reason for every change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.inject.pairs.clauses import PairSource
from rulewright.logic import quote

Labels: TypeAlias = npt.NDArray[np.bool_]


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
    rule: PairSource | None
    grounding: tuple[tuple[str, int], ...]

    def text(self, entities: Sequence[str] | None = None) -> str:
        """Describe the change in a line, with the entities' names where they are given."""
        head, tail = (_shown(each, entities) for each in (self.head, self.tail))
        atom = f"{'+' if self.after else '-'} {quote(self.relation)}({head}, {tail})"
        if self.rule is None:
            return f"{atom}  by the limit of labels of a pair, or several rules at once"
        where = ", ".join(f"{variable} = {_shown(entity, entities)}" for variable, entity in self.grounding)
        return f"{atom}  by  {str(self.rule).split(' @{')[0]}  where {where}"

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
        proof = "optimal" if self.optimal else "not proven optimal"
        parts = [
            _counted(int(self.labels.sum()), "fact"),
            f"objective {self.objective:.4f} ({proof})",
            _counted(self.rounds, "round"),
            _counted(self.constraints, "constraint"),
            _counted(len(self.changes), "change"),
        ]
        if self.violations:
            parts.append(_counted(self.violations, "violated grounding"))
        return "\n".join([", ".join(parts), *(each.text(entities) for each in self.changes)])

    def __str__(self) -> str:
        return self.report()

    def as_dict(self) -> dict[str, object]:
        """Return the answer as values that JSON can hold."""
        return {
            "facts": [{"h": head, "r": relation, "t": tail} for head, relation, tail in self.facts()],
            "objective": self.objective,
            "optimal": self.optimal,
            "rounds": self.rounds,
            "constraints": self.constraints,
            "violations": self.violations,
            "changes": [
                {
                    "h": each.head,
                    "r": each.relation,
                    "t": each.tail,
                    "before": each.before,
                    "after": each.after,
                    "rule": None if each.rule is None else str(each.rule),
                    "grounding": dict(each.grounding),
                }
                for each in self.changes
            ],
        }


def _shown(entity: int, entities: Sequence[str] | None) -> str:
    return str(entity) if entities is None else quote(entities[entity])


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
