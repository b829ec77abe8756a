"""Logical neurons: connectives whose parameters are learned and never leave the shape of the connective.

Truth values are in [0, 1]; an operator takes a tensor whose last dimension holds its inputs. While training, values are
clamped leakily, so that gradients pass where a connective is exactly true or false; `eval()` clamps hard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rulewright.checks import Real, check_parameter
from rulewright.errors import DataError

ALPHA = Real(0.5, 1, above=True)
SLACK = Real(0, above=True, optional=True)
LEAK = 0.01
"""The slope of the clamp outside [0, 1] while training, unless an operator's ``leak`` says otherwise."""

Form = Literal["lnn", "product", "lukasiewicz"]
Mixture = Literal["pred", "attention"]

_MATTERS = 0.01  # a weight below this share of the largest one plays no part
_WHOLE_TABLE = 4  # inputs up to which a truth table has all its rows


class Operator(nn.Module):
    """A connective of ``arity`` truth values; without parameters unless a subclass has some."""

    name: ClassVar[str]

    def __init__(self, arity: int) -> None:
        super().__init__()
        if arity < 1:
            raise DataError(f"an operator needs at least one input, got {arity}")
        self.arity = arity
        self.leak = LEAK

    def clamp(self, values: Tensor) -> Tensor:
        """Return ``min(1, max(0, x))``, in training plus a small multiple of what is cut off."""
        inside = values.clamp(0, 1)
        return inside + self.leak * (values - inside) if self.training else inside

    def penalty(self) -> Tensor:
        """Return by how much relaxed constraints are broken; 0 where they hold by construction."""
        return torch.zeros((), dtype=torch.float64)

    def project_(self) -> None:
        """Move parameters below 0, which count as 0, to 0, so that gradients can lift them again."""
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.clamp_(min=0)

    def values(self) -> tuple[float, ...]:
        """Return what was learned, as it is printed: β and the weights; nothing where there is nothing to learn."""
        return ()

    def load_values(self, values: Sequence[float]) -> None:
        """Take up what `values` returned."""
        if len(values):
            raise DataError(f"{self.name} has no parameters, got {len(values)}")

    def weights(self) -> Tensor:
        """Return the weight of every input."""
        return torch.ones(self.arity, dtype=torch.float64)

    def sparsity(self) -> float:
        """Return the share of inputs that play no part: their weight is below 1 % of the largest."""
        weights = self.weights().detach()
        return float((weights < _MATTERS * weights.max().clamp(min=1e-12)).double().mean())

    def truth_table(self) -> list[tuple[tuple[int, ...], float]]:
        """Return the value at 0/1 inputs: all of them up to four inputs, beyond with at most one that differs."""
        if self.arity <= _WHOLE_TABLE:
            corners = np.array(list(product((0, 1), repeat=self.arity)))
        else:
            one = np.vstack([np.zeros(self.arity, dtype=int), np.eye(self.arity, dtype=int)])
            corners = np.vstack([one, 1 - one[::-1]])
        training = self.training
        self.eval()
        with torch.no_grad():
            values = self(torch.from_numpy(corners).double()).tolist()
        self.train(training)
        return [(tuple(map(int, row)), value) for row, value in zip(corners, values, strict=True)]

    def describe(self, names: Sequence[str] | None = None) -> str:
        """Write weights, truth table and sparsity, the inputs by name.

        >>> print(LNNAnd(2, alpha=0.8).describe(["p", "q"]))
        LNN-∧(p, q)  β = 1.400, w = p 1.500, q 1.500; sparsity 0 %
          p q | value
          0 0 | 0.000
          0 1 | 0.000
          1 0 | 0.000
          1 1 | 1.000
        """
        inputs = list(names or (f"x{position + 1}" for position in range(self.arity)))
        if len(inputs) != self.arity:
            raise DataError(f"{self.name} has {self.arity} inputs, got {len(inputs)} names")
        learned = self.values()
        parts = f"{self.name}({', '.join(inputs)})"
        if learned:
            weights = ", ".join(f"{name} {value:.3f}" for name, value in zip(inputs, learned[1:], strict=True))
            parts += f"  β = {learned[0]:.3f}, w = {weights}; sparsity {self.sparsity():.0%}".replace("%", " %")
        lines = [parts, "  " + " ".join(inputs) + " | value"]
        for row, value in self.truth_table():
            bits = " ".join(f"{bit:<{len(name)}}" for bit, name in zip(row, inputs, strict=True))
            lines.append(f"  {bits} | {value:.3f}")
        return "\n".join(lines)

    def extra_repr(self) -> str:
        """Write the arity and what was learned."""
        learned = ", ".join(f"{value:.3f}" for value in self.values())
        return f"{self.arity}" + (f", [{learned}]" if learned else "")


class Negation(Operator):
    """``1 − x``; of what is above 1 (sums can be) 0."""

    name = "¬"

    def __init__(self, arity: int = 1) -> None:
        super().__init__(arity)
        if arity != 1:
            raise DataError(f"negation has one input, got {arity}")

    def forward(self, values: Tensor) -> Tensor:
        """Negate; the last dimension is of size one and goes."""
        return 1 - values[..., 0].clamp(max=1)


class LNNAnd(Operator):
    """``LNN-∧(x; β, w) = relu1(β − Σ w_i (1 − x_i))`` with ``β − α w_i ≤ 1 − α`` and ``β − (1 − α) Σ w ≥ α``.

    (β, w) is the vertex of the feasible cone plus its rays times ``μ ≥ 0``, so the constraints hold whatever the
    parameters are. An α that no weights satisfy (``α ≤ n / (n + 1)``) is refused, unless ``slack`` is given: then only
    the constraints that make it Boolean at 0/1 hold by construction (those of α = 1), and `penalty` is slack times the
    sum of what the others lack.

    >>> operator = LNNAnd(2, alpha=0.8).eval()
    >>> operator(torch.tensor([[1.0, 1.0], [1.0, 0.5], [0.0, 1.0]]).double()).tolist()
    [1.0, 0.65, 0.0]
    >>> LNNAnd(2, alpha=0.65)
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: no conjunction of 2 inputs has alpha 0.65; alpha must be > 0.666667 (n / (n + 1)), ...
    """

    name = "LNN-∧"
    vertex: Tensor
    rays: Tensor
    lows: Tensor
    limits: Tensor

    def __init__(self, arity: int, *, alpha: float = 0.95, slack: float | None = None) -> None:
        super().__init__(arity)
        check_parameter("alpha", alpha, ALPHA)
        check_parameter("slack", slack, SLACK)
        self.alpha, self.slack = alpha, slack
        self.relaxed = slack is not None and not is_feasible(arity, alpha)
        cone = conjunctive_cone(arity, 1.0 if self.relaxed else alpha)
        matrix, limits = constraints(arity, alpha)
        for buffer, array in (("vertex", cone.vertex), ("rays", cone.rays), ("lows", matrix), ("limits", limits)):
            self.register_buffer(buffer, torch.from_numpy(array), persistent=False)
        self.rates = nn.Parameter(torch.zeros(arity + 1, dtype=torch.float64))

    def point(self) -> Tensor:
        """Return (β, w_1, …, w_n)."""
        return self.vertex + self.rates.clamp(min=0) @ self.rays

    def forward(self, values: Tensor) -> Tensor:
        """Combine the last dimension."""
        point = self.point()
        return self.clamp(point[0] - (1 - values) @ point[1:])

    def penalty(self) -> Tensor:
        """Return slack times the sum of ``max(0, A z − b)``."""
        if not self.relaxed or self.slack is None:
            return super().penalty()
        return self.slack * (self.lows @ self.point() - self.limits).clamp(min=0).sum()

    def weights(self) -> Tensor:
        """Return w."""
        return self.point()[1:]

    def values(self) -> tuple[float, ...]:
        """Return (β, w_1, …, w_n)."""
        return tuple(self.point().detach().tolist())

    def load_values(self, values: Sequence[float]) -> None:
        """Find the multiples of the rays that give (β, w), which must satisfy the constraints."""
        if len(values) != self.arity + 1:
            raise DataError(f"{self.name} of {self.arity} inputs has {self.arity + 1} parameters, got {len(values)}")
        offset = _column(values) - self.vertex
        rates = torch.linalg.solve(self.rays.T, offset)
        if bool((rates < -1e-6).any()):
            raise DataError(f"{self.name} with alpha {self.alpha} cannot have the parameters {list(values)}")
        with torch.no_grad():
            self.rates.copy_(rates.clamp(min=0))


class LNNOr(LNNAnd):
    """``LNN-∨(x) = 1 − LNN-∧(1 − x) = 1 − relu1(β − Σ w_i x_i)``, under the constraints of `LNNAnd`.

    >>> LNNOr(2, alpha=0.8).truth_table()
    [((0, 0), 0.0), ((0, 1), 1.0), ((1, 0), 1.0), ((1, 1), 1.0)]
    """

    name = "LNN-∨"

    def forward(self, values: Tensor) -> Tensor:
        """Combine the last dimension."""
        return 1 - super().forward(1 - values)


class ProductAnd(Operator):
    """``Π x_i``."""

    name = "product ∧"

    def forward(self, values: Tensor) -> Tensor:
        """Combine the last dimension."""
        return values.prod(dim=-1)


class ProductOr(Operator):
    """``1 − Π (1 − x_i)``."""

    name = "product ∨"

    def forward(self, values: Tensor) -> Tensor:
        """Combine the last dimension."""
        return 1 - (1 - values.clamp(max=1)).prod(dim=-1)


class LukasiewiczAnd(Operator):
    """``max(0, Σ x_i − (n − 1))``."""

    name = "Łukasiewicz ∧"

    def forward(self, values: Tensor) -> Tensor:
        """Combine the last dimension."""
        return self.clamp(values.sum(dim=-1) - (self.arity - 1))


class LukasiewiczOr(Operator):
    """``min(1, Σ x_i)``."""

    name = "Łukasiewicz ∨"

    def forward(self, values: Tensor) -> Tensor:
        """Combine the last dimension."""
        return self.clamp(values.sum(dim=-1))


class Mixer(Operator):
    """What a leaf is made of: a weighted sum of predicates, then a function of the sum alone."""

    first: ClassVar[float]
    """What stands before the weights in `values`."""

    def __init__(self, arity: int, *, start: float) -> None:
        super().__init__(arity)
        self.raw = nn.Parameter(torch.full((arity,), start, dtype=torch.float64))

    def values(self) -> tuple[float, ...]:
        """Return (β, w_1, …, w_n)."""
        return (self.first, *self.weights().detach().tolist())

    def mix(self, total: Tensor) -> Tensor:
        """Return the truth value of a weighted sum."""
        raise NotImplementedError

    def forward(self, values: Tensor) -> Tensor:
        """Combine the last dimension."""
        return self.mix(values @ self.weights())


class Pred(Mixer):
    """``LNN-pred(x) = 1 − relu1(β − Σ w_P x_P)`` with ``w ≥ 0`` and β = 1, so that what no predicate holds of is false.

    Weights start small: sums beyond 1 are cut off and learn nothing.

    >>> operator = Pred(3)
    >>> operator.load_values([1.0, 0.0, 0.4, 2.0])
    >>> [value for _, value in operator.truth_table()][:3], round(operator.sparsity(), 2)
    ([0.0, 1.0, 0.4], 0.33)
    """

    name = "LNN-pred"
    first = 1.0

    def __init__(self, arity: int, *, start: float = 1e-3) -> None:
        super().__init__(arity, start=start)

    def weights(self) -> Tensor:
        """Return w."""
        return self.raw.clamp(min=0)

    def mix(self, total: Tensor) -> Tensor:
        """Return ``1 − relu1(1 − total)``."""
        return 1 - self.clamp(1 - total)

    def load_values(self, values: Sequence[float]) -> None:
        """Take up (1, w_1, …, w_n)."""
        if len(values) != self.arity + 1 or values[0] != 1 or min(values) < 0:
            raise DataError(f"{self.name} has β = 1 and {self.arity} weights >= 0, got {list(values)}")
        with torch.no_grad():
            self.raw.copy_(_column(values[1:]))


class Attention(Mixer):
    """``Σ softmax(a)_P x_P``, as in NeuralLP."""

    name = "attention"
    first = 0.0

    def __init__(self, arity: int) -> None:
        super().__init__(arity, start=0.0)

    def weights(self) -> Tensor:
        """Return the softmax."""
        return self.raw.softmax(dim=0)

    def project_(self) -> None:
        """Do nothing: there are no constraints."""

    def mix(self, total: Tensor) -> Tensor:
        """Return the sum itself."""
        return total

    def load_values(self, values: Sequence[float]) -> None:
        """Take up (0, w_1, …, w_n)."""
        if len(values) != self.arity + 1 or min(values) < 0 or not sum(values[1:]) > 0:
            raise DataError(f"{self.name} has 0 and {self.arity} weights >= 0 that sum to 1, got {list(values)}")
        with torch.no_grad():
            self.raw.copy_(_column(values[1:]).clamp(1e-12).log())


_CONNECTIVES: Mapping[tuple[str, str], type[Operator]] = {
    ("and", "product"): ProductAnd,
    ("or", "product"): ProductOr,
    ("and", "lukasiewicz"): LukasiewiczAnd,
    ("or", "lukasiewicz"): LukasiewiczOr,
}


def make_connective(connective: str, form: Form, arity: int, *, alpha: float, slack: float | None = None) -> Operator:
    """Build an "and" or an "or"; ``lnn`` learns, ``product`` and ``lukasiewicz`` have nothing to learn."""
    if form == "lnn":
        return (LNNAnd if connective == "and" else LNNOr)(arity, alpha=alpha, slack=slack)
    if (connective, form) not in _CONNECTIVES:
        raise DataError(f"connectives must be 'lnn', 'product' or 'lukasiewicz', got {form!r}")
    return _CONNECTIVES[connective, form](arity)


def make_mixer(mixture: Mixture, arity: int, *, start: float = 1e-3) -> Mixer:
    """Build what a leaf is made of."""
    if mixture == "pred":
        return Pred(arity, start=start)
    if mixture == "attention":
        return Attention(arity)
    raise DataError(f"leaves must be 'pred' or 'attention', got {mixture!r}")


def _column(values: Sequence[float]) -> Tensor:
    return torch.tensor([float(value) for value in values], dtype=torch.float64)


Matrix = npt.NDArray[np.float64]


class Cone(NamedTuple):
    """All ``vertex + Σ_j μ_j rays[j]`` with ``μ ≥ 0``; the first coordinate is β, the others are w."""

    vertex: Matrix
    rays: Matrix


def smallest_alpha(arity: int) -> float:
    """Return the bound that α must exceed for a conjunction of so many inputs, ``n / (n + 1)``.

    >>> smallest_alpha(2)
    0.6666666666666666
    """
    return arity / (arity + 1)


def is_feasible(arity: int, alpha: float) -> bool:
    """Tell whether any parameters make a conjunction for α.

    >>> is_feasible(2, 0.7), is_feasible(2, 0.65)
    (True, False)
    """
    return alpha > smallest_alpha(arity)


def constraints(arity: int, alpha: float) -> tuple[Matrix, Matrix]:
    """Return A and b of ``A (β, w) ≤ b``, the shape of a conjunction.

    ``β − α w_i ≤ 1 − α`` (one low input makes it low), ``(1 − α) Σ w − β ≤ −α`` (high inputs make it high), ``−w ≤ 0``.
    """
    low = np.hstack([np.ones((arity, 1)), -alpha * np.eye(arity)])
    high = np.concatenate([[-1.0], np.full(arity, 1 - alpha)])
    positive = np.hstack([np.zeros((arity, 1)), -np.eye(arity)])
    limits = np.concatenate([np.full(arity, 1 - alpha), [-alpha], np.zeros(arity)])
    return np.vstack([low, high, positive]), limits


def conjunctive_cone(arity: int, alpha: float) -> Cone:
    """Return the cone of all (β, w) that satisfy the `constraints`.

    ``w* = (2α − 1) / (α − n (1 − α))``, ``β* = 1 − α + α w*``; the rays are ``(α, 1, …, 1)`` and, for each j, the same
    with ``α / (1 − α) − (n − 1)`` at w_j; for α = 1 ``(1, 1, …, 1)`` and the unit vectors of w.

    >>> conjunctive_cone(2, 0.8).vertex.round(6).tolist()
    [1.4, 1.5, 1.5]
    """
    check_parameter("alpha", alpha, ALPHA)
    if not is_feasible(arity, alpha):
        least = smallest_alpha(arity)
        raise DataError(
            f"no conjunction of {arity} inputs has alpha {alpha}; "
            f"alpha must be > {least:.6g} (n / (n + 1)), or give slack to relax the constraints"
        )
    weight = (2 * alpha - 1) / (alpha - arity * (1 - alpha))
    vertex = np.array([1 - alpha + alpha * weight, *[weight] * arity])
    if alpha == 1:
        rays = np.vstack([np.ones(arity + 1), np.eye(arity + 1)[1:]])
    else:
        rays = np.ones((arity + 1, arity + 1))
        rays[:, 0] = alpha
        rays[np.arange(1, arity + 1), np.arange(1, arity + 1)] = alpha / (1 - alpha) - (arity - 1)
    return Cone(vertex, rays)
