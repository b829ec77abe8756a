"""Pictures of what a logical neural network learned: rules as trees, connectives as surfaces, curves and policies."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from rulewright.data.generators.grids import DIRECTIONS
from rulewright.files import write_bytes
from rulewright.learn.lnn.network import TemplateNetwork
from rulewright.learn.lnn.operators import Operator
from rulewright.learn.lnn.template import Check, Expression, Flip, Frame, Gate, HeadNode, Leaf, Look
from rulewright.papers.lnn.gridworld import GridWorlds
from rulewright.papers.report_page import new_figure

GATE, LEAF, FACT = "#d9d9d9", "#f2b8b0", "#bcd4ea"
COLOURS = ("#1f4e79", "#8c8c8c", "#e0a030", "#4c8fbd")
MOST_SHOWN = 3  # of a leaf's predicates, those with the largest weights

Path = str | os.PathLike[str]


@dataclass
class TreeBox:
    """A node of the drawn tree; ``weight`` stands on the edge above it."""

    text: str
    colour: str
    weight: float | None = None
    children: list[TreeBox] = field(default_factory=list)

    def leaves(self) -> int:
        """Return how many boxes wide the tree is."""
        return max(1, sum(child.leaves() for child in self.children))

    def depth(self) -> int:
        """Return how many boxes high the tree is."""
        return 1 + max((child.depth() for child in self.children), default=0)


def rule_tree(network: TemplateNetwork) -> TreeBox:
    """Return a network as a tree of boxes: heads and connectives, leaves, and the predicates they mix."""
    program = network.program
    root = program.nodes[program.root]
    args = ", ".join(map(str, program.nodes[root.clauses[0]].columns if isinstance(root, HeadNode) else root.columns))
    top = TreeBox(f"{program.target}({args})", GATE)
    top.children = [_make_node(network, program.root)]
    return top


def _join_boxes(network: TemplateNetwork, key: str | None, connective: str, parts: list[TreeBox]) -> TreeBox:
    if key is None:
        return parts[0] if len(parts) == 1 else TreeBox(connective, GATE, children=parts)
    operator = network.operator(key)
    learned = operator.values()
    title = operator.name + (f"\nβ = {learned[0]:.3f}" if learned else "")
    for part, weight in zip(parts, learned[1:], strict=False):
        part.weight = weight
    return TreeBox(title, GATE, children=parts)


def _make_node(network: TemplateNetwork, name: str) -> TreeBox:
    node = network.program.nodes[name]
    if isinstance(node, Leaf):
        return _make_leaf(network, node)
    if isinstance(node, Frame):
        return _make_expression(network, node.expression)
    return _join_boxes(network, node.operator, "", [_make_node(network, clause) for clause in node.clauses])


def _make_expression(network: TemplateNetwork, expression: Expression) -> TreeBox:
    match expression:
        case Look(node):
            return _make_node(network, node)
        case Flip(part):
            return TreeBox("¬", GATE, children=[_make_expression(network, part)])
        case Check(comparison):
            return TreeBox(str(comparison), FACT)
    assert isinstance(expression, Gate)
    parts = [_make_expression(network, part) for part in expression.parts]
    box = _join_boxes(network, expression.operator, expression.connective, parts)
    box.children += [TreeBox(str(check), FACT) for check in expression.checks]
    return box


def _make_leaf(network: TemplateNetwork, leaf: Leaf) -> TreeBox:
    args = ", ".join(map(str, leaf.unit.args))
    names = [member.removeprefix("head ") for member in leaf.members]
    if leaf.operator is None:
        return TreeBox(f"{names[0]}({args})", FACT)
    operator = network.operator(leaf.operator)
    weights = operator.values()[1:]
    order = sorted(range(len(names)), key=lambda member: -weights[member])
    shown = [TreeBox(f"{names[member]}({args})", FACT, weights[member]) for member in order[:MOST_SHOWN]]
    if len(order) > MOST_SHOWN:
        rest = max(weights[member] for member in order[MOST_SHOWN:])
        shown.append(TreeBox(f"{len(order) - MOST_SHOWN} more\n≤ {rest:.3f}", FACT))
    return TreeBox(f"{leaf.unit}\n{operator.name}", LEAF, children=shown)


def draw_rule_tree(path: Path, network: TemplateNetwork) -> None:
    """Draw a rule with its weights, as in Figures 5(b), 6 and 7 of the paper."""
    tree = rule_tree(network)
    widest = max(max(map(len, box.text.split("\n"))) for box in _list_boxes(tree))
    step = 0.115 * widest + 0.35
    figure = new_figure(max(5.0, step * tree.leaves() + 0.4), 1.25 * tree.depth())
    axis = figure.subplots()
    axis.set_axis_off()
    _draw_box(axis, tree, 0.0, 0.0, None)
    axis.set_xlim(-0.1, tree.leaves() + 0.1)
    axis.set_ylim(-tree.depth() + 0.4, 0.5)
    _save(figure, path)


def _list_boxes(box: TreeBox) -> list[TreeBox]:
    return [box, *(below for child in box.children for below in _list_boxes(child))]


def _draw_box(axis: Any, box: TreeBox, left: float, top: float, above: tuple[float, float] | None) -> None:
    center = (left + box.leaves() / 2, top)
    if above is not None:
        axis.plot(*zip(center, above, strict=True), color="#606060", linewidth=1, zorder=1)
        if box.weight is not None:
            middle = ((center[0] + above[0]) / 2, (center[1] + above[1]) / 2)
            style = {"facecolor": "white", "edgecolor": "none", "pad": 1}
            axis.text(*middle, f"{box.weight:.3f}", ha="center", va="center", fontsize=9, bbox=style, zorder=2)
    frame = {"boxstyle": "round,pad=0.4", "facecolor": box.colour, "edgecolor": "#606060"}
    axis.text(*center, box.text, ha="center", va="center", fontsize=9, bbox=frame, zorder=3)
    start = left
    for child in box.children:
        _draw_box(axis, child, start, top - 1, center)
        start += child.leaves()


def draw_surfaces(path: Path, operators: Mapping[str, Operator], *, points: int = 41) -> None:
    """Draw connectives of two inputs as surfaces over [0, 1]², as in Figure 2 of the paper."""
    figure = new_figure(3.4 * len(operators), 3.4)
    grid = np.linspace(0, 1, points)
    across, up = np.meshgrid(grid, grid)
    inputs = torch.from_numpy(np.stack([across, up], axis=-1))
    for column, (name, operator) in enumerate(operators.items(), start=1):
        training = operator.training
        with torch.no_grad():
            values = operator.eval()(inputs).numpy()
        operator.train(training)
        axis = figure.add_subplot(1, len(operators), column, projection="3d")
        axis.plot_surface(across, up, values, cmap="coolwarm", vmin=0, vmax=1, linewidth=0, antialiased=True)
        axis.set(xlabel="x", ylabel="y", zlim=(0, 1))
        axis.set_title(name, y=0.97)
        axis.set_xticks([0, 0.5, 1])
        axis.set_yticks([0, 0.5, 1])
        axis.set_zticks([0, 0.5, 1])
        axis.view_init(elev=25, azim=-125)
    _save(figure, path)


def draw_curves(
    path: Path,
    curves: Mapping[str, Mapping[int, float]],
    *,
    ideal: float | None = None,
    across: str,
    up: str,
) -> None:
    """Draw learning curves, with a line for what the ideal rule earns, as in Figure 5(a) of the paper."""
    figure = new_figure(5.2, 3.4)
    axis = figure.subplots()
    for colour, (name, curve) in zip(COLOURS, curves.items(), strict=False):
        axis.plot(list(curve), list(curve.values()), marker="o", markersize=4, color=colour, label=name)
    if ideal is not None:
        axis.axhline(ideal, color="#606060", linestyle="--", linewidth=1, label="ideal rule")
    axis.set(xlabel=across, ylabel=up)
    axis.spines[["top", "right"]].set_visible(False)
    axis.legend(frameon=False, loc="lower right")
    _save(figure, path)


def draw_policy(path: Path, grids: GridWorlds, values: npt.NDArray[Any], *, shown: int = 3) -> None:
    """Draw the moves that a policy makes in the first grids: arrows on free cells, a dot where it stays."""
    size = grids.size
    shown = min(shown, len(values) // grids.cells_a_grid)
    figure = new_figure(2.6 * shown, 2.8)
    blocked, target = (grids.holds(name).reshape(-1, size, size) for name in ("obstacle", "target"))
    truth = values.reshape(-1, size, size, len(DIRECTIONS))
    steps = np.array(list(DIRECTIONS.values()))
    for grid, axis in enumerate(np.atleast_1d(figure.subplots(1, shown))):
        axis.set(xlim=(-0.5, size - 0.5), ylim=(-0.5, size - 0.5), aspect="equal", xticks=[], yticks=[])
        for column, row in np.ndindex(size, size):
            if blocked[grid, column, row]:
                axis.add_patch(_square(column, row, "#404040"))
                continue
            if target[grid, column, row]:
                axis.add_patch(_square(column, row, "#7fbf7f"))
                continue
            best = truth[grid, column, row].max()
            if best <= 1e-9:
                axis.plot(column, row, marker="o", markersize=3, color="#8c8c8c")
            for right, up in steps[truth[grid, column, row] >= best - 1e-9] if best > 1e-9 else ():
                tip = (column + 0.42 * right, row + 0.42 * up)
                axis.annotate("", tip, (column, row), arrowprops={"arrowstyle": "->", "color": COLOURS[0]})
        axis.set_title(f"grid {grid + 1}", fontsize=9)
    _save(figure, path)


def _square(column: int, row: int, colour: str) -> Any:
    from matplotlib.patches import Rectangle

    return Rectangle((column - 0.5, row - 0.5), 1, 1, color=colour)


def _save(figure: Any, path: Path) -> None:
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    write_bytes(path, buffer.getvalue())
