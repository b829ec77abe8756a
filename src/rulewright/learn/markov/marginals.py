"""What inference found: atoms and how probable they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import exp
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, Value
from rulewright.errors import DataError, unknown_name
from rulewright.evaluate.classification import HEADER
from rulewright.logic import quote

Columns = tuple[npt.NDArray[Any], ...]


@dataclass(frozen=True, slots=True)
class Marginal:
    """An atom and its log-odds; ``probability`` is ``1 / (1 + e^-logit)``.

    >>> each = Marginal("smokes", ("Anna",), 0.0)
    >>> str(each), each.probability
    ("smokes('Anna')", 0.5)
    """

    predicate: str
    args: tuple[Value, ...]
    logit: float

    @property
    def probability(self) -> float:
        """How probable the atom is."""
        if self.logit >= 0:
            return 1 / (1 + exp(-self.logit))
        return exp(self.logit) / (1 + exp(self.logit))

    def __str__(self) -> str:
        shown = ", ".join(quote(each) if isinstance(each, str) else repr(each) for each in self.args)
        return f"{quote(self.predicate)}({shown})"


class Marginals(Sequence[Marginal]):
    """The atoms that were asked for, most probable first; columns inside, labels when an atom is looked at.

    The order is that of log-odds: probabilities near 0 and 1 round to ties, log-odds do not. Equal ones stay in the
    order in which they were asked for. ``str`` is a line an atom: its probability, its log-odds, the atom.
    """

    def __init__(self, kb: KnowledgeBase, columns: Mapping[str, Columns], logits: Mapping[str, npt.ArrayLike]) -> None:
        self.kb = kb
        self._columns = dict(columns)
        self._logits = {name: np.asarray(logits[name], dtype=np.float64) for name in columns}

    @cached_property
    def _order(self) -> npt.NDArray[np.intp]:
        every = np.concatenate([np.empty(0), *self._logits.values()])
        return np.argsort(-every, kind="stable")

    @cached_property
    def _bounds(self) -> npt.NDArray[np.int64]:
        return np.cumsum([0, *(len(each) for each in self._logits.values())])

    def __len__(self) -> int:
        return int(self._bounds[-1])

    @overload
    def __getitem__(self, index: int) -> Marginal: ...
    @overload
    def __getitem__(self, index: slice) -> list[Marginal]: ...
    def __getitem__(self, index: int | slice) -> Marginal | list[Marginal]:
        if isinstance(index, slice):
            return [self._marginal(place) for place in self._order[index]]
        return self._marginal(self._order[index])

    def __iter__(self) -> Iterator[Marginal]:
        return (self._marginal(place) for place in self._order)

    def _marginal(self, place: np.intp) -> Marginal:
        group = int(np.searchsorted(self._bounds, place, side="right")) - 1
        name, row = [*self._columns][group], int(place - self._bounds[group])
        args = self.kb.label_rows(name, [column[row : row + 1] for column in self._columns[name]])[0]
        return Marginal(name, args, float(self._logits[name][row]))

    @property
    def predicates(self) -> tuple[str, ...]:
        """The predicates that were asked for."""
        return tuple(self._columns)

    def columns(self, name: str) -> tuple[Columns, npt.NDArray[np.float64]]:
        """Return a predicate's atoms as columns of ids, in the order they were asked for, and their log-odds."""
        if name not in self._columns:
            raise unknown_name("predicate", name, self._columns)
        return self._columns[name], self._logits[name]

    def of(self, name: str) -> Marginals:
        """Return the atoms of one predicate."""
        columns, logits = self.columns(name)
        return Marginals(self.kb, {name: columns}, {name: logits})

    def top(self, count: int) -> list[Marginal]:
        """Return the most probable atoms."""
        return self[:count]

    def __str__(self) -> str:
        return "".join(f"{each.probability:.4f}\t{each.logit:+.4f}\t{each}\n" for each in self)

    def __repr__(self) -> str:
        return f"Marginals({len(self):,} atoms of {', '.join(self.predicates) or 'no predicate'})"


def scores_text(found: Marginals) -> str:
    """Write marginals as lines of tab-separated columns below a header, most probable first; `read_scores` reads them.

    >>> from rulewright.data import KnowledgeBase
    >>> kb = KnowledgeBase.from_facts([("smokes", "ann")])
    >>> print(scores_text(Marginals(kb, {"smokes": kb.columns("smokes")}, {"smokes": [0.0]})), end="")
    probability	log_odds	predicate	arguments
    0.5	0.0	smokes	ann
    """
    lines = [HEADER]
    for each in found:
        fields = (each.predicate, *map(str, each.args))
        if any(mark in field for field in fields for mark in "\t\n\r"):
            raise DataError(f"{each} holds a tab or a line break and cannot be written in columns")
        lines.append("\t".join((f"{each.probability:.6g}", repr(each.logit), *fields)))
    return "\n".join(lines) + "\n"
