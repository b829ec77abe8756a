"""Reports of what rules changed in a network's output, and why; and how many errors that repaired.

A report is made from a decoder's answer or a layer's last call. Saved as JSON, it is shown by the explorer: a list with
one object for each document, image or batch row::

    {"title": "doc 1", "kind": "decoder", "summary": "2 facts, 1 change",
     "changes": [{"predicate": "parent_of", "args": ["ann", "bob"], "before": 0.31, "after": 0.92,
                  "reasons": [{"rule": "parent_of(X, Z) :- …", "grounding": "X = ann, …", "moved": 1.2}]}]}

``before`` and ``after`` are probabilities; where there are only labels, 0 and 1. Where a decoder broke rules at a cost,
there is ``"broken": [{"rule": "parent_of(X, Z) :- …", "count": 2, "cost": 1.0, "grounding": "X = ann, …"}]`` too, with
the ``price`` of keeping each where that is known.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from rulewright.errors import DataError
from rulewright.files import write_text
from rulewright.inject.atom_space import ENTITY, AtomSpace
from rulewright.inject.atoms.clauses import AtomClause, read_clauses
from rulewright.inject.atoms.decoded import name_entities, write_atom
from rulewright.inject.atoms.joins import ClauseJoins, GroundingFinder
from rulewright.inject.atoms.layout import AtomChannels, AtomLayout, Labels
from rulewright.io.json_shape import Json, dump_records, load
from rulewright.logic import RuleSource, quote

if TYPE_CHECKING:
    from torch import Tensor

    from rulewright.inject.atoms.decoded import BrokenRule, Change, Decoded, EntityNames
    from rulewright.inject.layer.layer import LogicLayer


@dataclass(frozen=True)
class Reason:
    """A rule that moved an atom, the grounding that did most, and by how much (log-odds) where that is known."""

    rule: str
    grounding: str = ""
    moved: float | None = None


@dataclass(frozen=True)
class ReportedChange:
    """An atom whose probability the rules changed; ``value`` is its class where it has classes."""

    predicate: str
    args: tuple[str, ...]
    before: float
    after: float
    reasons: tuple[Reason, ...] = ()
    value: str | None = None

    @property
    def atom(self) -> str:
        """The atom in the rule language."""
        text = write_atom(self.predicate, [quote(name) for name in self.args])
        return text if self.value is None else f"{text} in {{{quote(self.value)}}}"


@dataclass(frozen=True)
class RuleEffect:
    """What a rule did to the atoms of a predicate in a batch.

    ``atoms`` it moved, by ``mean`` log-odds either way, one of them by the ``largest`` (``atom``, in ``row``); and
    labels that turned, of which it moved each the most: to true, to false, or to another class.
    """

    rule: str
    predicate: str
    atoms: int
    mean: float
    largest: float
    atom: str
    row: int
    turned_true: int = 0
    turned_false: int = 0
    turned_class: int = 0

    @property
    def gained(self) -> int:
        """The labels that turned to true or to another class."""
        return self.turned_true + self.turned_class

    def with_turned(self, *, turned_true: int = 0, turned_false: int = 0, turned_class: int = 0) -> RuleEffect:
        """Return the same with labels that turned."""
        return replace(self, turned_true=turned_true, turned_false=turned_false, turned_class=turned_class)


@dataclass(frozen=True)
class ReportedBreak:
    """A rule that labels break at a cost, how often and for how much, and the first such grounding.

    ``price`` is how much more keeping it would have cost in the whole batch, where that is known and possible.
    """

    rule: str
    count: int
    cost: float
    grounding: str = ""
    price: float | None = None


@dataclass(frozen=True)
class InjectionReport:
    """The changes in one document, image or batch row, by a ``"decoder"`` or a ``"layer"``, and a line of summary.

    A report of a whole batch has the ``effects`` of its rules; one of a decoder the rules that were ``broken``.
    """

    title: str
    injector: str
    summary: str = ""
    changes: tuple[ReportedChange, ...] = ()
    effects: tuple[RuleEffect, ...] = ()
    broken: tuple[ReportedBreak, ...] = ()


def decoder_report(
    decoded: Decoded,
    entities: EntityNames | None = None,
    *,
    title: str = "",
    row: int | tuple[int, ...] | None = None,
) -> InjectionReport:
    """Report the labels that a decoder changed and the groundings that forced it, and the rules that the labels break.

    ``row`` chooses from a batch. ``entities`` has the names of entities, of all types or by type. A class that an atom
    was given has the probability 0 before and 1 after.
    """
    names = decoded.entity_names if entities is None else entities
    chosen = (row,) if isinstance(row, int) else row
    changes = [change for change in decoded.changes if chosen is None or change.row == chosen]
    broken = [rule if chosen is None else rule.select_row(chosen) for rule in decoded.broken]
    return InjectionReport(
        title,
        "decoder",
        decoded.summary(),
        tuple(_decoder_change(change, names) for change in changes),
        broken=tuple(_decoder_break(rule, names) for rule in broken if rule.count),
    )


def _decoder_break(rule: BrokenRule, entities: EntityNames) -> ReportedBreak:
    price = None if rule.price is None or math.isinf(rule.price) else rule.price
    return ReportedBreak(str(rule.rule).split(" @{")[0], rule.count, rule.cost, rule.where(entities), price)


def _decoder_change(change: Change, entities: EntityNames) -> ReportedChange:
    rule = "the limit of labels of a pair, or several rules at once" if change.rule is None else str(change.rule)
    is_truth = isinstance(change.after, bool)
    return ReportedChange(
        change.predicate,
        tuple(name_entities(change.args, change.types, entities, quoted=False)),
        float(change.before) if is_truth else 0.0,
        float(change.after) if is_truth else 1.0,
        (Reason(rule.split(" @{")[0], change.where(entities)),),
        None if is_truth else str(change.after),
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
    moves: list[tuple[float, ReportedChange]] = []
    for name in given:
        declaration = layer.grounding.predicates.get(name)
        if declaration is None:
            continue
        classes = declaration.classes
        before, after = (
            _probabilities(logits[name], declaration.arity, row, has_classes=classes is not None)
            for logits in (given, result)
        )
        distances = (after - before).abs()
        labels = [layer.grounding.entity_names(type_name) for type_name in declaration.types]
        for position in distances.flatten().argsort(descending=True)[:top].tolist():
            index = tuple(map(int, np.unravel_index(position, tuple(distances.shape))))
            args = tuple(str(i) if names is None else names[i] for names, i in zip(labels, index, strict=False))
            value = None if classes is None else classes[index[-1]]
            change = ReportedChange(name, args, float(before[index]), float(after[index]), (), value)
            moves.append((float(distances[index]), change))
    moves.sort(key=lambda move: -move[0])
    changes = tuple(
        replace(change, reasons=_layer_reasons(layer, change.atom, row)) for distance, change in moves[:top] if distance
    )
    return InjectionReport(title, "layer", f"the {len(changes)} atoms that moved most", changes)


def batch_reports(layer: LogicLayer, *, rows: Sequence[int] | None = None, top: int = 10) -> list[InjectionReport]:
    """Report what the layer's last call did: the effects of rules on the whole batch, then the changes of rows.

    ``rows`` are by default the first 20; of each the ``top`` atoms that changed most.

    >>> import rulewright as rw, torch
    >>> layer = rw.LogicLayer("2.0 smokes(X) & friend(X, Y) => smokes(Y). closed friend.")
    >>> friends = torch.tensor([[False, True], [False, False]])
    >>> _ = layer({"smokes": torch.tensor([[3.0, -1.0], [-3.0, 0.5]])}, evidence={"friend": friends})
    >>> [(report.title, len(report.effects), len(report.changes)) for report in batch_reports(layer)]
    [('the whole batch', 1, 0), ('row 0', 0, 2), ('row 1', 0, 2)]
    """
    explanation, trace = layer.explain_batch(), layer.trace()
    summary = str(explanation).split("\n", 1)[0]
    reports = [InjectionReport("the whole batch", "layer", summary, effects=explanation.effects)]
    for row in range(min(explanation.rows, 20)) if rows is None else rows:
        reports.append(layer_report(layer, trace.inputs.logits, trace.logits, title=f"row {row}", row=row, top=top))
    return reports


def _probabilities(logits: Tensor, arity: int, row: int, *, has_classes: bool) -> Tensor:
    shape = logits.shape[logits.ndim - arity - has_classes :]
    chosen = logits.detach().reshape(-1, *shape)[row]
    return chosen.softmax(-1) if has_classes else chosen.sigmoid()


def _layer_reasons(layer: LogicLayer, atom: str, row: int) -> tuple[Reason, ...]:
    return tuple(
        Reason(
            str(formula.statement).split(" @{")[0],
            formula.groundings[0].grounding if formula.groundings else "",
            formula.moved,
        )
        for formula in layer.explain(atom, row=row).formulas
        if abs(formula.moved) >= 0.005
    )


_JSON_NAMES = {"injector": "kind", "value": "class"}


def write_reports(reports: Sequence[InjectionReport], path: str | os.PathLike[str]) -> None:
    """Write reports as JSON, one to a line."""

    def name_fields(fields: list[tuple[str, object]]) -> dict[str, object]:
        return {_JSON_NAMES.get(name, name): value for name, value in fields if value is not None}

    write_text(path, dump_records([asdict(report, dict_factory=name_fields) for report in reports]))


def read_reports(path: str | os.PathLike[str]) -> tuple[InjectionReport, ...]:
    """Read reports; an error names what is wrong and where it stands in the file.

    >>> change = ReportedChange("parent_of", ("ann", "bob"), 0.3, 0.9, (Reason("parent_of(X, Y) :- mother_of(X, Y)."),))
    >>> write_reports([InjectionReport("doc 1", "decoder", changes=(change,))], folder / "report.json")
    >>> read_reports(folder / "report.json")[0].changes[0].atom
    'parent_of(ann, bob)'
    """
    root = load(path)
    records = root.items("reports") if isinstance(root.value, list) else [root]
    return tuple(_decode_report(record) for record in records)


def _decode_report(record: Json) -> InjectionReport:
    injector = record["kind"].text()
    if injector not in ("decoder", "layer"):
        raise record["kind"].expected("'decoder' or 'layer'")
    summary = record.get("summary")
    changes = tuple(_decode_change(change) for change in record["changes"].items("changes"))
    effects, broken = record.get("effects"), record.get("broken")
    return InjectionReport(
        record["title"].text(),
        injector,
        "" if summary is None else summary.text(),
        changes,
        () if effects is None else tuple(map(_decode_effect, effects.items("effects"))),
        () if broken is None else tuple(map(_decode_break, broken.items("broken"))),
    )


def _decode_break(record: Json) -> ReportedBreak:
    grounding, price = record.get("grounding"), record.get("price")
    return ReportedBreak(
        record["rule"].text(),
        round(_read_number(record["count"])),
        _read_number(record["cost"]),
        "" if grounding is None else grounding.text(),
        None if price is None else _read_number(price),
    )


def _decode_effect(record: Json) -> RuleEffect:
    rule, predicate, atom = (record[name].text() for name in ("rule", "predicate", "atom"))
    mean, largest = (_read_number(record[name]) for name in ("mean", "largest"))
    atoms, row, *turned = (
        round(_read_number(record[name])) for name in ("atoms", "row", "turned_true", "turned_false", "turned_class")
    )
    return RuleEffect(rule, predicate, atoms, mean, largest, atom, row, *turned)


def _decode_change(record: Json) -> ReportedChange:
    before, after = (_read_probability(record[name]) for name in ("before", "after"))
    reasons, value, args = record.get("reasons"), record.get("class"), record["args"].texts()
    return ReportedChange(
        record["predicate"].text(),
        args,
        before,
        after,
        () if reasons is None else tuple(_decode_reason(reason) for reason in reasons.items("reasons")),
        None if value is None else value.text(),
    )


def _decode_reason(record: Json) -> Reason:
    grounding, moved = record.get("grounding"), record.get("moved")
    return Reason(
        record["rule"].text(),
        "" if grounding is None else grounding.text(),
        None if moved is None else _read_number(moved),
    )


def _read_probability(record: Json) -> float:
    number = _read_number(record)
    if not 0 <= number <= 1:
        raise record.expected("a probability in [0, 1]")
    return number


def _read_number(record: Json) -> float:
    if isinstance(record.value, int | float):
        return float(record.value)
    raise record.expected("a number")


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


def error_types(
    decoded: Decoded | tuple[Any, Any],
    gold: Any,
    rules: RuleSource,
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
    if not isinstance(decoded, tuple):
        if decoded.relations is None:
            raise DataError("errors are counted between the entities of relations=[…], got labels by predicate")
        before, after, names = decoded.before, decoded.labels, decoded.relations
    else:
        if relations is None:
            raise DataError("labels before and after need relations, the names of their last dimension")
        (before, after), names = (_as_labels(labels, "labels") for labels in decoded), tuple(relations)
    truth = _as_labels(gold, "gold")
    for labels in (before, after):
        if labels.shape != truth.shape or labels.ndim != 3 or labels.shape[2] != len(names):
            raise DataError(
                f"labels and gold must have one shape [n, n, {len(names)}], got {list(labels.shape)} "
                f"and {list(truth.shape)}"
            )
    missing, wrong = (np.zeros(before.size, dtype=bool) for _ in range(2))
    if len(before) > 1:
        space = AtomSpace(rules, relations=names)
        layout = AtomLayout(AtomChannels(space, names), 1, {ENTITY: len(before)})
        clauses = read_clauses(space, reader="error_types")
        _refuse_others(clauses, names)
        finder = GroundingFinder(ClauseJoins(clauses, layout.channels), layout)
        for groundings in finder.find_violated(before.reshape(-1)):
            missing[groundings.heads[groundings.heads >= 0]] = True
            wrong[groundings.bodies[groundings.bodies >= 0]] = True
    missing, wrong = missing.reshape(before.shape) & truth, wrong.reshape(before.shape) & ~truth
    return ErrorTypes(
        Repairs(int(missing.sum()), int((missing & after).sum()), int((after & ~before & ~truth).sum())),
        Repairs(int(wrong.sum()), int((wrong & ~after).sum()), int((before & ~after & truth).sum())),
    )


def _refuse_others(clauses: Sequence[AtomClause], names: Sequence[str]) -> None:
    for clause in clauses:
        for atom in clause.atoms:
            if atom.predicate not in names:
                raise DataError(f"error_types knows the labels of relations, and not {atom.predicate}: {clause.source}")


def _as_labels(values: Any, name: str) -> Labels:
    if hasattr(values, "detach"):
        values = values.detach().cpu().numpy()
    array = np.asarray(values)
    if array.dtype != bool and not np.isin(array, (0, 1)).all():
        raise DataError(f"{name} must be booleans, or numbers 0 and 1")
    return array.astype(bool)
