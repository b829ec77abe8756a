"""What inference found: atoms and how probable they are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, Value
from rulewright.data.facts import Column
from rulewright.data.index import range_bounds
from rulewright.errors import DataError, unknown_name
from rulewright.evaluate.classification import HEADER
from rulewright.logic import quote
from rulewright.tables import FrameLibrary, build_frame, html_table

if TYPE_CHECKING:
    from rulewright.learn.markov.scope import Scope


@dataclass(frozen=True, slots=True)
class Marginal:
    """An atom and its log-odds; ``probability`` is ``1 / (1 + e^-logit)``.

    Where the predicate has classes, ``args`` end with the one whose log-odds these are, as `KnowledgeBase.tuples` do.

    >>> marginal = Marginal("smokes", ("Anna",), 0.0)
    >>> str(marginal), marginal.probability
    ("smokes('Anna')", 0.5)
    >>> str(Marginal("label", ("t1", "B-PER"), 0.0, has_class=True))
    "label(t1) in {'B-PER'}"
    """

    predicate: str
    args: tuple[Value, ...]
    logit: float
    has_class: bool = False

    @property
    def probability(self) -> float:
        """How probable the atom is."""
        if self.logit >= 0:
            return 1 / (1 + exp(-self.logit))
        return exp(self.logit) / (1 + exp(self.logit))

    def __str__(self) -> str:
        args = [quote(arg) if isinstance(arg, str) else repr(arg) for arg in self.args]
        if self.has_class:
            return f"{quote(self.predicate)}({', '.join(args[:-1])}) in {{{args[-1]}}}"
        return f"{quote(self.predicate)}({', '.join(args)})"


class Marginals(Sequence[Marginal]):
    """The atoms that were asked for, most probable first; columns inside, labels when an atom is looked at.

    The order is that of log-odds: probabilities near 0 and 1 round to ties, log-odds do not. Equal ones stay in the
    order in which they were asked for. ``scopes`` say for each world what part of it was
    inferred. ``str`` is a line an atom: its probability, its log-odds, the atom.
    """

    def __init__(
        self,
        kb: KnowledgeBase,
        columns: Mapping[str, tuple[Column, ...]],
        logits: Mapping[str, npt.ArrayLike],
        scopes: Sequence[Scope] = (),
    ) -> None:
        self.kb = kb
        self.scopes = tuple(scopes)
        self._columns = dict(columns)
        self._logits = {name: np.asarray(logits[name], dtype=np.float64) for name in columns}
        self._bounds = range_bounds([len(part) for part in self._logits.values()])
        self._order = np.argsort(-np.concatenate([np.empty(0), *self._logits.values()]), kind="stable")

    def __len__(self) -> int:
        return len(self._order)

    @overload
    def __getitem__(self, index: int) -> Marginal: ...
    @overload
    def __getitem__(self, index: slice) -> list[Marginal]: ...
    def __getitem__(self, index: int | slice) -> Marginal | list[Marginal]:
        if isinstance(index, slice):
            return [self._read(position) for position in self._order[index]]
        return self._read(self._order[index])

    def __iter__(self) -> Iterator[Marginal]:
        return (self._read(position) for position in self._order)

    def _read(self, position: np.intp) -> Marginal:
        """Read the atom at a position in the order in which all were asked for."""
        group = int(np.searchsorted(self._bounds, position, side="right")) - 1
        name, row = [*self._columns][group], int(position - self._bounds[group])
        args = self.kb.label_rows(name, [column[row : row + 1] for column in self._columns[name]])[0]
        return Marginal(name, args, float(self._logits[name][row]), self.kb.predicate(name).classes is not None)

    @property
    def predicates(self) -> tuple[str, ...]:
        """The predicates that were asked for."""
        return tuple(self._columns)

    def columns(self, name: str) -> tuple[tuple[Column, ...], npt.NDArray[np.float64]]:
        """Return a predicate's atoms as columns of ids, in the order they were asked for, and their log-odds.

        The last column holds class indices where the predicate has classes.
        """
        if name not in self._columns:
            raise unknown_name("predicate", name, self._columns)
        return self._columns[name], self._logits[name]

    def top(self, count: int) -> list[Marginal]:
        """Return the most probable atoms."""
        return self[:count]

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return the atoms as a data frame of pandas or Polars, most probable first; a class is the last argument.

        >>> kb = KnowledgeBase.from_facts([("smokes", "ann")])
        >>> marginals = Marginals(kb, {"smokes": kb.columns("smokes")}, {"smokes": [0.0]})
        >>> marginals.to_frame("polars").rows()
        [('smokes', 'ann', 0.5, 0.0)]
        """
        marginals = [*self]
        arity = max((len(columns) for columns in self._columns.values()), default=0)
        frame: dict[str, list[object]] = {"predicate": [marginal.predicate for marginal in marginals]}
        for position in range(arity):
            frame[f"arg{position + 1}"] = [
                marginal.args[position] if position < len(marginal.args) else None for marginal in marginals
            ]
        frame["probability"] = [marginal.probability for marginal in marginals]
        frame["log_odds"] = [marginal.logit for marginal in marginals]
        return build_frame(frame, library)

    def _repr_html_(self) -> str:
        """Show the atoms as a table in notebooks."""
        rows = ((str(marginal), marginal.probability, marginal.logit) for marginal in self)
        return html_table(["atom", "probability", "log-odds"], rows, caption=repr(self))

    def __str__(self) -> str:
        return "".join(f"{marginal.probability:.4f}\t{marginal.logit:+.4f}\t{marginal}\n" for marginal in self)

    def __repr__(self) -> str:
        return f"Marginals({len(self):,} atoms of {', '.join(self.predicates) or 'no predicate'})"


def format_scores(marginals: Marginals) -> str:
    """Write marginals as lines of tab-separated columns below a header, most probable first; `read_scores` reads them.

    >>> kb = KnowledgeBase.from_facts([("smokes", "ann")])
    >>> print(format_scores(Marginals(kb, {"smokes": kb.columns("smokes")}, {"smokes": [0.0]})), end="")
    probability	log_odds	predicate	arguments
    0.5	0.0	smokes	ann
    """
    lines = [HEADER]
    for marginal in marginals:
        fields = (marginal.predicate, *map(str, marginal.args))
        if any(mark in field for field in fields for mark in "\t\n\r"):
            raise DataError(f"{marginal} holds a tab or a line break and cannot be written in columns")
        lines.append("\t".join((f"{marginal.probability:.6g}", repr(marginal.logit), *fields)))
    return "\n".join(lines) + "\n"
