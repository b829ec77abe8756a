"""Which errors rules can repair, and which repairs were errors themselves: MILR's Table 1 against gold labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from rulewright.errors import DataError
from rulewright.inject.decoded import Decoded
from rulewright.inject.joins import ClauseJoins
from rulewright.inject.pair_rules import read_clauses
from rulewright.logic import Rule, RuleSet, Statement

Labels: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Repairs:
    """Errors of one type: how many there were, how many were repaired, how many new errors the repairs brought."""

    count: int
    repaired: int
    introduced: int

    def __add__(self, other: Repairs) -> Repairs:
        return Repairs(self.count + other.count, self.repaired + other.repaired, self.introduced + other.introduced)


@dataclass(frozen=True)
class ErrorTypes:
    """The two types of error that a violated rule can reveal; those of several documents add up.

    ``missing_heads`` are gold atoms without a label that a rule derives from labelled atoms (false negatives of heads);
    what is introduced are labels added that are not gold. ``wrong_bodies`` are labels that are not gold and stand in
    the body of a violated rule (false positives of bodies); what is introduced are gold labels taken away.
    """

    missing_heads: Repairs
    wrong_bodies: Repairs

    def __add__(self, other: ErrorTypes) -> ErrorTypes:
        return ErrorTypes(self.missing_heads + other.missing_heads, self.wrong_bodies + other.wrong_bodies)


@overload
def error_types(decoded: Decoded, gold: Any, rules: RuleSet | Rule | Iterable[Statement], /) -> ErrorTypes: ...
@overload
def error_types(
    decoded: tuple[Any, Any], gold: Any, rules: RuleSet | Rule | Iterable[Statement], /, *, relations: Sequence[str]
) -> ErrorTypes: ...
def error_types(
    decoded: Decoded | tuple[Any, Any],
    gold: Any,
    rules: RuleSet | Rule | Iterable[Statement],
    /,
    *,
    relations: Sequence[str] | None = None,
) -> ErrorTypes:
    """Count the errors that rules reveal in the labels before decoding, and what became of them.

    ``decoded`` is a decoder's answer, or labels [n, n, R] before and after with the names of their ``relations``.

    >>> from rulewright.logic import parse_rules
    >>> rules = parse_rules("child_of(X, Y) :- parent_of(Y, X).")
    >>> before, after, gold = (np.zeros((2, 2, 2), dtype=bool) for _ in range(3))
    >>> before[0, 1, 0] = after[0, 1, 0] = gold[0, 1, 0] = True      # parent_of(0, 1)
    >>> after[1, 0, 1] = gold[1, 0, 1] = True                        # child_of(1, 0), found by the rule
    >>> error_types((before, after), gold, rules, relations=["parent_of", "child_of"]).missing_heads
    Repairs(count=1, repaired=1, introduced=0)
    """
    if isinstance(decoded, Decoded):
        before, after, names = decoded.before, decoded.labels, decoded.relations
    else:
        if relations is None:
            raise DataError("labels before and after need relations, the names of their last dimension")
        (before, after), names = (_labels(each, "labels") for each in decoded), tuple(relations)
    truth = _labels(gold, "gold")
    for each in (before, after):
        if each.shape != truth.shape or each.ndim != 3 or each.shape[2] != len(names):
            raise DataError(
                f"labels and gold must have one shape [n, n, {len(names)}], got {list(each.shape)} "
                f"and {list(truth.shape)}"
            )
    missing, wrong = (np.zeros(before.size, dtype=bool) for _ in range(2))
    if len(before) > 1:
        joins = ClauseJoins(read_clauses(rules, names, reader="error_types"), len(names))
        for groundings in joins.violated(before):
            missing[groundings.heads[groundings.heads >= 0]] = True
            wrong[groundings.bodies[groundings.bodies >= 0]] = True
    missing, wrong = missing.reshape(before.shape) & truth, wrong.reshape(before.shape) & ~truth
    return ErrorTypes(
        Repairs(int(missing.sum()), int((missing & after).sum()), int((after & ~before & ~truth).sum())),
        Repairs(int(wrong.sum()), int((wrong & ~after).sum()), int((before & ~after & truth).sum())),
    )


def _labels(values: Any, name: str) -> Labels:
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise DataError(f"{name} must be booleans, or numbers 0 and 1")
    return array.astype(bool)
