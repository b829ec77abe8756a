"""What rules did to a whole batch: which rule moved atoms of which predicate, how far, and what it turned over."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from rulewright.inject.atoms.reports import RuleEffect
from rulewright.inject.layer.exact import moves_without
from rulewright.logic import Atom, Membership, Number, Symbol, Term
from rulewright.tables import FrameLibrary, build_frame, html_table

if TYPE_CHECKING:
    from rulewright.inject.layer.influence import CallTrace
    from rulewright.inject.layer.layer import LogicLayer

MOVED = 0.01
"""The change of log-odds from which an atom counts as moved."""


@dataclass(frozen=True)
class BatchExplanation:
    """What each rule did to the atoms of each predicate in the last call, the strongest first.

    A label that turned over is counted for the rule that moved it most that way. How far a class was moved is beside
    the mean of all classes. In exact inference a rule's move is the difference that leaving it out makes.

    >>> import rulewright as rw
    >>> layer = rw.LogicLayer("2.0 smokes(X) & friend(X, Y) => smokes(Y). closed friend.")
    >>> friends = torch.tensor([[False, True], [False, False]])
    >>> _ = layer({"smokes": torch.tensor([[3.0, -1.0], [-3.0, 0.5]])}, evidence={"friend": friends})
    >>> print(layer.explain_batch())
    2 rows, 4 atoms; labels turned: 1 true, 0 false
    rule                                        predicate  atoms moved  mean  largest            where  true  false
    2.0 smokes(X) & friend(X, Y) => smokes(Y).  smokes               4  0.81    +1.83  smokes(1) row 0     1      0
    """

    effects: tuple[RuleEffect, ...]
    rows: int
    atoms: int

    def columns(self) -> dict[str, list[Any]]:
        """Return the table by column."""
        return {name: [getattr(effect, name) for effect in self.effects] for name in RuleEffect.__dataclass_fields__}

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return the table as a data frame."""
        return build_frame(self.columns(), library)

    def __str__(self) -> str:
        has_classes = any(effect.turned_class for effect in self.effects)
        names = ["rule", "predicate", "atoms moved", "mean", "largest", "where", "true", "false"]
        table = [[*names, "class"] if has_classes else names]
        for effect in self.effects:
            cells = [
                effect.rule,
                effect.predicate,
                f"{effect.atoms:,}",
                f"{effect.mean:.2f}",
                f"{effect.largest:+.2f}",
                f"{effect.atom} row {effect.row}",
                f"{effect.turned_true:,}",
                f"{effect.turned_false:,}",
            ]
            table.append([*cells, f"{effect.turned_class:,}"] if has_classes else cells)
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = [
            "  ".join([*map(str.ljust, row[:2], widths[:2]), *map(str.rjust, row[2:], widths[2:])]) for row in table
        ]
        return "\n".join([self._headline(), *lines])

    def _headline(self) -> str:
        true, false, classes = (
            sum(getattr(effect, name) for effect in self.effects)
            for name in ("turned_true", "turned_false", "turned_class")
        )
        turned = f"{true:,} true, {false:,} false" + (f", {classes:,} to another class" if classes else "")
        return f"{self.rows:,} rows, {self.atoms:,} atoms; labels turned: {turned}"

    def svg(self, width: int = 640) -> str:
        """Draw how many labels each rule turned, to true or another class to the right, to false to the left."""
        height, middle = 22, width * 0.72
        most = max([1, *(max(effect.turned_false, effect.gained) for effect in self.effects)])
        lines = []
        for position, effect in enumerate(self.effects):
            y = position * height
            label = escape(f"{effect.rule} → {effect.predicate}")
            unit = (width - middle - 70) / most
            left, right = effect.turned_false * unit * 0.6, effect.gained * unit
            lines.append(
                f'<text x="0" y="{y + 15}" font-size="12"><title>{label}</title>{_shorten(label)}</text>'
                f'<rect x="{middle - left:.1f}" y="{y + 4}" width="{left:.1f}" height="14" fill="#b5482f"/>'
                f'<rect x="{middle:.1f}" y="{y + 4}" width="{right:.1f}" height="14" fill="#2f6fb5"/>'
                f'<text x="{middle + right + 4:.1f}" y="{y + 15}" font-size="11">+{effect.gained:,} '
                f"−{effect.turned_false:,}</text>"
            )
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height * len(self.effects) + 4}" '
            f'role="img" aria-label="labels that each rule turned">{"".join(lines)}</svg>'
        )

    def _repr_html_(self) -> str:
        columns = self.columns()
        return f"<div>{self.svg()}</div>" + html_table(
            list(columns), zip(*columns.values(), strict=True), caption=self._headline()
        )


def _shorten(text: str, length: int = 62) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def explain_batch(layer: LogicLayer, trace: CallTrace, *, top: int) -> BatchExplanation:
    """Measure what each statement did in the last call."""
    grounding, inputs = layer.grounding, trace.inputs
    statements = layer.rules.statements
    valid = {name: _where_open(layer, trace, name) for name in inputs.logits if name in grounding.used}
    labels = {name: _labels(layer, name, inputs.logits[name]) for name in valid}
    turned = {name: _labels(layer, name, trace.logits[name]) != labels[name] for name in valid}
    strongest: dict[str, tuple[Tensor, Tensor]] = {}  # how far the best statement moved each atom, and which that is
    effects: list[tuple[float, int, RuleEffect]] = []
    for statement_index, moves in _find_moves(layer, trace):
        for name, move in moves.items():
            if name not in valid:
                continue
            classes = grounding.predicates[name].classes
            is_open = valid[name] if classes is None else valid[name].unsqueeze(-1)
            if classes is not None:  # log-odds of classes are up to a constant: beside the mean of all
                move = move - move.mean(-1, keepdim=True)
            move = move * is_open
            toward = _move_toward(move, labels[name], _labels(layer, name, trace.logits[name]), classes is not None)
            best, who = strongest.get(name, (torch.full_like(toward, -torch.inf), torch.full_like(labels[name], -1)))
            is_stronger = toward > best
            strongest[name] = torch.where(is_stronger, toward, best), torch.where(is_stronger, statement_index, who)
            size = move.abs()
            is_moved = size > MOVED
            if not bool(is_moved.any()):
                continue
            position = int(size.argmax())
            index = [int(axis) for axis in torch.unravel_index(torch.tensor(position), size.shape)]
            row = index.pop(0) if inputs.batch else 0
            per_atom = is_moved if classes is None else is_moved.any(-1)
            effect = RuleEffect(
                str(statements[statement_index]).split(" @{")[0],
                name,
                int(per_atom.sum()),
                float(size[is_moved].mean()),
                float(move.reshape(-1)[position]),
                _write_atom(layer, name, index),
                row,
            )
            effects.append((float(size.sum()), statement_index, effect))
    counted = [_count_turned(effect, index, strongest, turned, trace, layer) for _, index, effect in effects]
    order = sorted(range(len(effects)), key=lambda place: -effects[place][0])[:top]
    atoms = sum(turned[name].numel() for name in turned)
    rows = next(iter(trace.logits.values())).shape[0] if inputs.batch else 1
    return BatchExplanation(tuple(counted[place] for place in order), rows, atoms)


def _find_moves(layer: LogicLayer, trace: CallTrace) -> Iterator[tuple[int, Mapping[str, Tensor]]]:
    """Yield how far each statement moved the log-odds of each predicate."""
    if layer.inference == "exact":
        yield from moves_without(layer, trace.inputs, trace.logits)
        return
    plan = layer.planner.plan(trace.inputs.shape)
    averages = trace.averages
    weigh = None if averages is None else averages.weigh
    started = plan.start(trace.inputs, weigh=weigh)
    values = [plan.run(trace.inputs, step.marginals, started, weigh=weigh) for step in trace.steps]
    for statement_index in range(len(layer.grounding.rules)):
        moves: dict[str, Tensor] = {}
        for step, step_values in zip(trace.steps, values, strict=True):
            for name in step.marginals:
                message = layer.add_messages(
                    name, trace.inputs, plan, step_values, step.hard_share, only=statement_index, averages=averages
                )
                moves[name] = moves.get(name, torch.zeros_like(message)) + step.shares[name] * message
        yield statement_index, moves


def _labels(layer: LogicLayer, name: str, logits: Tensor) -> Tensor:
    return (logits > 0).long() if layer.grounding.predicates[name].classes is None else logits.argmax(-1)


def _move_toward(move: Tensor, before: Tensor, after: Tensor, has_classes: bool) -> Tensor:
    """Return how far atoms were moved to the label they have after."""
    if not has_classes:
        return torch.where(after > 0, move, -move)
    to_after, to_before = (move.gather(-1, labels.unsqueeze(-1)).squeeze(-1) for labels in (after, before))
    return to_after - to_before


def _where_open(layer: LogicLayer, trace: CallTrace, name: str) -> Tensor:
    """Return where atoms are neither padding nor observed."""
    inputs, declaration = trace.inputs, layer.grounding.predicates[name]
    shape = trace.logits[name].shape if declaration.classes is None else trace.logits[name].shape[:-1]
    is_open = torch.ones(shape, dtype=torch.bool, device=inputs.device)
    exists, observed = inputs.mask_atoms(declaration), inputs.observed.get(name)
    if exists is not None:
        is_open = is_open & exists.bool()
    if observed is not None and observed.where is not None:
        is_open = is_open & ~observed.where
    return is_open


def _count_turned(
    effect: RuleEffect,
    statement_index: int,
    strongest: Mapping[str, tuple[Tensor, Tensor]],
    turned: Mapping[str, Tensor],
    trace: CallTrace,
    layer: LogicLayer,
) -> RuleEffect:
    name = effect.predicate
    is_own = turned[name] & (strongest[name][1] == statement_index)
    if layer.grounding.predicates[name].classes is not None:
        return effect.with_turned(turned_class=int(is_own.sum()))
    is_true = trace.logits[name] > 0
    return effect.with_turned(turned_true=int((is_own & is_true).sum()), turned_false=int((is_own & ~is_true).sum()))


def _write_atom(layer: LogicLayer, name: str, index: Sequence[int]) -> str:
    declaration = layer.grounding.predicates[name]
    args: list[Term] = []
    for type_name, entity_index in zip(declaration.types, index, strict=False):
        names = layer.grounding.entity_names(type_name)
        args.append(Number(entity_index) if names is None else Symbol(names[entity_index]))
    atom = Atom(name, tuple(args))
    return str(atom) if declaration.classes is None else str(Membership(atom, (declaration.classes[index[-1]],)))
