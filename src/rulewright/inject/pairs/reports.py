"""Reports of what rules changed, made from a decoder's answer or a layer's last call; the explorer shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np
import numpy.typing as npt

from rulewright.errors import DataError
from rulewright.inject.pairs.clauses import read_clauses
from rulewright.inject.pairs.decoded import Change, Decoded
from rulewright.inject.pairs.joins import ClauseJoins
from rulewright.io.injection_reports import InjectionReport, Reason, ReportedChange
from rulewright.logic import Rule, RuleSet, Statement, quote

if TYPE_CHECKING:
    from torch import Tensor

    from rulewright.inject.layer.layer import LogicLayer


def decoder_report(decoded: Decoded, entities: Sequence[str] | None = None, *, title: str = "") -> InjectionReport:
    """Report the labels that a decoder changed and the groundings that forced it."""
    summary = decoded.report(entities).split("\n", 1)[0]
    changes = tuple(_decoder_change(each, entities) for each in decoded.changes)
    return InjectionReport(title, "decoder", summary, changes)


def _decoder_change(change: Change, entities: Sequence[str] | None) -> ReportedChange:
    def named(number: int) -> str:
        return str(number) if entities is None else entities[number]

    where = ", ".join(f"{variable} = {quote(named(entity))}" for variable, entity in change.grounding)
    rule = "the limit of labels of a pair, or several rules at once" if change.rule is None else str(change.rule)
    return ReportedChange(
        change.relation,
        (named(change.head), named(change.tail)),
        float(change.before),
        float(change.after),
        (Reason(rule.split(" @{")[0], where),),
    )


def layer_report(
    layer: LogicLayer,
    given: Mapping[str, Tensor],
    result: Mapping[str, Tensor],
    *,
    title: str = "",
    row: int = 0,
    top: int = 30,
) -> InjectionReport:
    """Report the ``top`` atoms whose probability the layer's last call changed most, and the formulas that did it.

    ``given`` are the log-odds the layer was called with, ``result`` what it returned; ``row`` chooses from a batch.

    >>> import rulewright as rw, torch
    >>> rules = rw.parse_rules("2.0 smokes(X) & friend(X, Y) => smokes(Y). closed friend.")
    >>> layer = rw.LogicLayer(rules, domains={"entity": ["ann", "bob"]})
    >>> given = {"smokes": torch.tensor([3.0, 0.0])}
    >>> result = layer(given, evidence={"friend": torch.tensor([[False, True], [False, False]])})
    >>> change = layer_report(layer, given, result).changes[0]
    >>> change.atom, round(change.before, 2), round(change.after, 2), change.reasons[0].grounding
    ('smokes(bob)', 0.5, 0.87, 'smokes(ann) & friend(ann, bob) => smokes(bob)')
    """
    found: list[tuple[float, str, tuple[int, ...], int | None, float, float]] = []
    for name in given:
        declaration = layer.grounding.predicates.get(name)
        if declaration is None:
            continue
        classes = declaration.classes
        before, after = (
            _probabilities(each[name], declaration.arity, row, classes=classes is not None) for each in (given, result)
        )
        moved = (after - before).abs()
        for place in moved.flatten().argsort(descending=True)[:top].tolist():
            index = _unravelled(place, tuple(moved.shape))
            chosen = None if classes is None else index[-1]
            position = index if classes is None else index[:-1]
            found.append((float(moved[index]), name, position, chosen, float(before[index]), float(after[index])))
    found.sort(key=lambda each: -each[0])
    changes = tuple(_layer_change(layer, each, row) for each in found[:top] if each[0] > 0)
    return InjectionReport(title, "layer", f"the {len(changes)} atoms that moved most", changes)


def _probabilities(logits: Tensor, arity: int, row: int, *, classes: bool) -> Tensor:
    width = arity + classes
    rows = logits.detach().reshape(-1, *logits.shape[logits.ndim - width :])[row]
    return rows.softmax(-1) if classes else rows.sigmoid()


def _unravelled(place: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    index = []
    for size in reversed(shape):
        place, rest = divmod(place, size)
        index.append(rest)
    return tuple(reversed(index))


def _layer_change(
    layer: LogicLayer, found: tuple[float, str, tuple[int, ...], int | None, float, float], row: int
) -> ReportedChange:
    _, name, position, chosen, before, after = found
    declaration = layer.grounding.predicates[name]
    known = [layer.grounding.names_of(kind) for kind in declaration.types]
    args = tuple(str(place) if names is None else names[place] for names, place in zip(known, position, strict=True))
    value = None if chosen is None or declaration.classes is None else declaration.classes[chosen]
    change = ReportedChange(name, args, before, after, (), value)
    explained = layer.explain(change.atom, row=row)
    reasons = tuple(
        Reason(str(each.statement).split(" @{")[0], each.groundings[0].grounding if each.groundings else "", each.moved)
        for each in explained.formulas
    )
    return ReportedChange(name, args, before, after, reasons, value)


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
