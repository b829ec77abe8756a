"""How likely gold labels are under weighted rules: one step of mean field, a logistic regression on messages.

With m the log-odds of a network and φ_f the messages of statement f with weight 1 (`rulewright.inject.rule_messages`),
an atom has log-odds ``m + Σ_f λ_f · φ_f``, and the classes of an atom alike, up to a constant. The likelihood of the
gold labels is concave in λ, so what `fit_weights` finds is the best there is.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize

from rulewright.inject.rule_messages import AtomRows, Floats, Ids

LARGEST = 20.0
"""The largest weight that is fitted; more would say that a rule has no exceptions."""

PRIOR_WIDTH = 10.0
"""The width of the half-normal prior of weights, so wide that it only decides between equal rules."""


class Likelihood:
    """The log-likelihood of gold labels in some worlds, as a function of the weights of statements."""

    def __init__(self, parts: Sequence[AtomRows], worlds: npt.NDArray[np.bool_]) -> None:
        self.parts = tuple(part for part in parts if len(part))
        self.worlds = worlds
        self.size = parts[0].messages.shape[1]
        self.count = int(worlds.sum())

    def pick(self, worlds: npt.NDArray[np.bool_]) -> Likelihood:
        """Return the likelihood in some of the worlds."""
        return Likelihood([part.pick(worlds[part.worlds]) for part in self.parts] or self._empty(), worlds)

    def alone(self, column: int) -> Likelihood:
        """Return the likelihood as a function of one weight, where all others are 0."""
        parts = []
        for part in self.parts:
            column_part = part.messages[:, [column]]
            touched = np.diff(column_part.indptr) > 0
            if part.starts is not None and len(part):
                touched = np.repeat(np.maximum.reduceat(touched, part.starts), np.diff([*part.starts, len(part)]))
            parts.append(
                AtomRows(column_part, part.logits, part.gold, part.counts, part.worlds, part.starts).pick(touched)
            )
        return Likelihood(parts or self._empty(1), self.worlds)

    def loss(self, weights: Floats) -> tuple[float, Floats]:
        """Return minus the log-likelihood of a world, on average, and its gradient."""
        total, gradient = 0.0, np.zeros(self.size)
        for part in self.parts:
            logits = part.logits + part.messages @ weights
            losses, errors = _lose(part, logits)
            total += float(losses.sum())
            gradient += part.messages.T @ errors
        return total / self.count, gradient / self.count

    def gains(self, weights: Floats, over: Floats | None = None) -> Floats:
        """Return by how much more likely each world's gold labels are with weights than with others, or with none."""
        gains = np.zeros(len(self.worlds))
        for part in self.parts:
            base = part.logits if over is None else part.logits + part.messages @ over
            gains += _gain(part, part.logits + part.messages @ weights, base, len(gains))
        return gains

    def gains_of_each(self, weights: Floats) -> Floats:
        """Return ``[statements, worlds]``: how much less likely gold labels are without each of the statements."""
        gains = np.zeros((self.size, len(self.worlds)))
        for part in self.parts:
            logits = part.logits + part.messages @ weights
            columns = part.messages.tocsc()
            for column in np.flatnonzero(weights):
                start, end = columns.indptr[column : column + 2]
                rows, messages = columns.indices[start:end], columns.data[start:end]
                if part.starts is None:
                    touched = AtomRows(
                        part.messages[:0], part.logits[rows], part.gold[rows], part.counts[rows], part.worlds[rows]
                    )
                    after = logits[rows]
                    gains[column] += _gain(touched, after, after - weights[column] * messages, gains.shape[1])
                    continue
                without = logits.copy()
                without[rows] -= weights[column] * messages
                gains[column] += _gain(part, logits, without, gains.shape[1])
        return gains

    def touched(self) -> Ids:
        """Return the number of rows that each statement touches."""
        counts = np.zeros(self.size, dtype=np.int64)
        for part in self.parts:
            counts += np.bincount(part.messages.indices, minlength=self.size)
        return counts

    def is_new(self) -> npt.NDArray[np.bool_]:
        """Return which statements say something that none before them says: no other has the same messages."""
        columns = [part.messages.tocsc() for part in self.parts]
        is_new, seen = np.ones(self.size, dtype=bool), set()
        for number in range(self.size):
            said: list[bytes] = []
            for part, column in zip(self.parts, columns, strict=True):
                start, end = column.indptr[number : number + 2]
                rows = column.indices[start:end]  # atoms that are added up have a row for each statement
                said += [values[rows].tobytes() for values in (part.worlds, part.logits, part.gold, part.counts)]
                said.append(column.data[start:end].tobytes())
            is_new[number] = tuple(said) not in seen
            seen.add(tuple(said))
        return is_new

    def _empty(self, size: int | None = None) -> list[AtomRows]:
        from scipy import sparse

        nothing = np.zeros(0)
        messages = sparse.csr_matrix((0, self.size if size is None else size))
        return [AtomRows(messages, nothing, nothing, nothing, nothing.astype(np.int64))]


def _lose(part: AtomRows, logits: Floats) -> tuple[Floats, Floats]:
    """Return minus the log-likelihood of each row's gold label, and its derivative by the row's log-odds."""
    if part.starts is None:
        powers = np.exp(-np.abs(logits))
        losses = np.maximum(logits, 0.0) + np.log1p(powers) - part.gold * logits
        errors = np.where(logits >= 0, 1.0, powers) / (1 + powers) - part.gold
        return part.counts * losses, part.counts * errors
    lengths = np.diff(np.append(part.starts, len(part)))
    shifted = logits - np.repeat(np.maximum.reduceat(logits, part.starts), lengths)
    powers = np.exp(shifted)
    totals = np.repeat(np.add.reduceat(powers, part.starts), lengths)
    return part.gold * (np.log(totals) - shifted), powers / totals - part.gold


def _gain(part: AtomRows, after: Floats, before: Floats, worlds: int) -> Floats:
    gained = _lose(part, before)[0] - _lose(part, after)[0]
    return np.asarray(np.bincount(part.worlds, gained, worlds))


def fit_weights(
    likelihood: Likelihood, penalty: float, *, start: Floats | None = None, kept: npt.NDArray[np.bool_] | None = None
) -> Floats:
    """Return the weights λ ≥ 0 of least ``−log-likelihood of a world + penalty · Σ λ + Σ λ² / (2 width² worlds)``.

    Only those of ``kept`` statements may be more than 0.
    """
    ridge = 1 / (PRIOR_WIDTH**2 * likelihood.count)
    upper = np.full(likelihood.size, LARGEST) if kept is None else np.where(kept, LARGEST, 0.0)

    def objective(weights: Floats) -> tuple[float, Floats]:
        loss, gradient = likelihood.loss(weights)
        loss += penalty * float(weights.sum()) + ridge / 2 * float(weights @ weights)
        return loss, gradient + penalty + ridge * weights

    first = np.zeros(likelihood.size) if start is None else np.minimum(start, upper)
    if not upper.any():
        return np.zeros(likelihood.size)
    found = minimize(
        objective,
        first,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(np.zeros(likelihood.size), upper, strict=True)),
        options={"maxiter": 1000, "maxfun": 2000, "ftol": 1e-12, "gtol": 1e-7},
    )
    return np.asarray(found.x)
