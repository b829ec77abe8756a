"""Reports of what rules changed, made from a decoder's answer or a layer's last call; the explorer shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rulewright.inject.decoded import Change, Decoded
from rulewright.io.injection_reports import InjectionReport, Reason, ReportedChange
from rulewright.logic import quote

if TYPE_CHECKING:
    from torch import Tensor

    from rulewright.inject.layer import LogicLayer


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
