"""Drawings as SVG: a rule as arrows between its variables, and an entity among its neighbours.

Names come from data: they are escaped, cut to a length that fits, and given in full in a title. Colours are those of
the page, by class.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

from rulewright.logic import Atom, Comparison, Literal, Membership, Rule, Term, Variable
from rulewright.logic.english import short_name
from rulewright.web.markup import shown
from rulewright.web.neighbourhood import Group, Neighbour, Neighbourhood

_STEP = 190  # between the variables of a rule
_RADIUS = 24
_LEVEL = 46  # between arrows above each other
_DRAWN = 4  # alternatives of a rule
_ROW = 30  # between neighbours
_WIDTH = 1080
_ARROW = (
    '<defs><marker id="rw-arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path class="rw-tip" d="M0 0L10 5L0 10z"/></marker></defs>'
)


def _svg(width: float, height: float, title: str, parts: Sequence[str], top: float = 0) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="rw-picture" role="img" viewBox="0 {top:.0f} {width:.0f} '
        f'{height:.0f}" width="{width:.0f}" height="{height:.0f}"><title>{escape(shown(title, 500))}</title>{_ARROW}'
        f"{''.join(parts)}</svg>"
    )


def _text(x: float, y: float, name: str, *, limit: int, css: str = "", anchor: str = "middle") -> str:
    return (
        f'<text class="{css}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(shown(name, limit))}'
        f"<title>{escape(shown(name, 500))}</title></text>"
    )


def rule_picture(rule: Rule) -> str:
    """Draw a rule: variables in a row, the body's relations between them, and above them, dashed, what follows.

    >>> from rulewright.logic import parse_rule
    >>> rule_picture(parse_rule("p(X, Y) :- q(Y, X).")).count("<path class=")
    3
    """
    parts: list[str] = []
    top = bottom = 0.0
    alternatives = rule.alternatives()
    for number, body in enumerate(alternatives[:_DRAWN]):
        atoms = [(literal.unit, literal.positive) for literal in body if isinstance(literal.unit, Atom | Membership)]
        conditions = [str(literal) for literal in body if isinstance(literal.unit, Comparison)]
        drawing = _Row(rule.head, atoms, conditions)
        shift = bottom - drawing.top + (20 if number else 0)
        parts.append(f'<g transform="translate(0 {shift:.1f})">{"".join(drawing.parts)}</g>')
        bottom = shift + drawing.bottom
        top = min(top, shift + drawing.top)
    if len(alternatives) > _DRAWN:
        bottom += 20
        parts.append(
            _text(20, bottom, f"and {len(alternatives) - _DRAWN:,} more alternatives", limit=60, anchor="start")
        )
    width = max(_STEP * (len(_places(rule.head, alternatives[:_DRAWN])) + 0.3), 360)
    return _svg(width, bottom - top + 10, str(rule), parts, top - 5)


def _places(head: Atom | Membership, alternatives: Sequence[Sequence[Literal]]) -> dict[Term, None]:
    units = [head, *(literal.unit for body in alternatives for literal in body)]
    return dict.fromkeys(term for unit in units if not isinstance(unit, Comparison) for term in unit.args)


class _Row:
    """One alternative of a rule: where its terms stand, and the arrows between them."""

    def __init__(
        self, head: Atom | Membership, body: Sequence[tuple[Atom | Membership, bool]], conditions: Sequence[str]
    ) -> None:
        self.parts: list[str] = []
        self.top, self.bottom = -_RADIUS - 10.0, _RADIUS + 10.0
        terms = dict.fromkeys(term for unit, _ in body for term in unit.args)
        ordered = _along(head, [unit for unit, _ in body], [*terms])
        self._x = {term: _STEP * (place + 0.65) for place, term in enumerate(ordered)}
        for term in head.args:
            self._x.setdefault(term, _STEP * (len(self._x) + 0.65))
        self._below: dict[tuple[float, float], int] = {}
        self._labels: dict[Term, int] = {}
        for unit, positive in body:
            self._relation(unit, "rw-body" if positive else "rw-absent", above=False)
        self._relation(head, "rw-head", above=True)
        for number, condition in enumerate(conditions):
            self.parts.append(_text(_STEP * 0.3, self.bottom + 14 + 18 * number, condition, limit=60, anchor="start"))
        self.bottom += 18 * len(conditions) + (6 if conditions else 0)
        self.parts += [self._node(term) for term in self._x]

    def _node(self, term: Term) -> str:
        x = self._x[term]
        if isinstance(term, Variable):
            circle = f'<circle class="rw-node" cx="{x:.1f}" cy="0" r="{_RADIUS}"/>'
            return circle + _text(x, 5, term.name, limit=6, css="rw-variable")
        name = str(getattr(term, "name", term))
        half = min(4.2 * len(shown(name, 18)) + 10, 80)
        box = f'<rect class="rw-constant" x="{x - half:.1f}" y="-16" width="{2 * half:.1f}" height="32" rx="6"/>'
        return box + _text(x, 5, name, limit=18)

    def _relation(self, unit: Atom | Membership, css: str, *, above: bool) -> None:
        label = short_name(str(unit.predicate))
        label += f" in {{{', '.join(unit.classes)}}}" if isinstance(unit, Membership) else ""
        label = f"not {label}" if css == "rw-absent" else label
        if len(unit.args) != 2 or unit.args[0] == unit.args[1]:
            self._badge(unit, label, css, above=above)
            return
        start, end = (self._x[term] for term in unit.args)
        key = (min(start, end), max(start, end))
        level = self._below.get(key, 0)
        straight = not above and level == 0 and abs(end - start) == _STEP
        if not above:
            self._below[key] = level + 1
        inset = _RADIUS + 2 if end > start else -_RADIUS - 2
        middle = (start + end) / 2
        if straight:
            path, y = f"M{start + inset:.1f} 0L{end - inset:.1f} 0", -8.0
        else:
            reach = _LEVEL * (abs(end - start) / _STEP * 0.5 + (0.75 if above else level + 0.5))
            reach = -reach if above else reach
            edge = -_RADIUS * 0.8 if above else _RADIUS * 0.8
            near, far = start + inset * 0.55, end - inset * 0.55
            path = f"M{near:.1f} {edge:.1f}C{near:.1f} {reach:.1f} {far:.1f} {reach:.1f} {far:.1f} {edge:.1f}"
            y = edge + (reach - edge) * 0.75 + (-7 if above else 16)
        self.top, self.bottom = min(self.top, y - 16), max(self.bottom, y + 8)
        self.parts.append(f'<path class="{css}" d="{path}" marker-end="url(#rw-arrow)"/>')
        self.parts.append(_text(middle, y, label, limit=20 if straight else 46, css=f"rw-label {css}"))

    def _badge(self, unit: Atom | Membership, label: str, css: str, *, above: bool) -> None:
        """Write what is said of one term, or of more than two, beside the first of them."""
        first = unit.args[0]
        if len(unit.args) > 2:
            label += f"({', '.join(str(term) for term in unit.args)})"
        if above:
            y = -_RADIUS - 12.0
            self.top = min(self.top, y - 18)
        else:
            self._labels[first] = self._labels.get(first, 0) + 1
            y = _RADIUS + 4 + 17.0 * self._labels[first]
            self.bottom = max(self.bottom, y + 8)
        self.parts.append(_text(self._x[first], y, label, limit=40, css=f"rw-label {css}"))


def _along(head: Atom | Membership, body: Sequence[Atom | Membership], terms: list[Term]) -> list[Term]:
    """Order terms so that those that share an atom stand side by side where that is possible: along the chain."""
    if not terms:
        return []
    start = head.args[0] if head.args[0] in terms else terms[0]
    ordered, left = [start], [term for term in terms if term != start]
    while left:
        near = [term for unit in body if ordered[-1] in unit.args for term in unit.args if term in left]
        last = head.args[-1]
        chosen = next((term for term in near if term != last), near[0] if near else left[0])
        ordered.append(chosen)
        left.remove(chosen)
    return ordered


def neighbourhood_picture(found: Neighbourhood, link: Callable[[str, str], str], more: Callable[[Group], str]) -> str:
    """Draw an entity in the middle, what leads to it on the left, what it leads to on the right.

    ``link`` gives the address of a (type, name), ``more`` that of a group's other members.
    """
    left, right = ([group for group in found.groups if group.outgoing == side] for side in (False, True))
    height = max(_height(left), _height(right), 120.0)
    parts: list[str] = []
    middle = height / 2
    for groups, side in ((left, -1), (right, 1)):
        y = (height - _height(groups)) / 2
        for group in groups:
            rows = len(group.neighbours) + (1 if group.more else 0)
            parts += _group(group, side, y, rows, middle, link, more)
            y += rows * _ROW + 14
    half = min(4.3 * len(shown(found.name, 24)) + 14, 115)
    x = _WIDTH / 2
    parts.append(
        f'<rect class="rw-centre" x="{x - half:.1f}" y="{middle - 20:.1f}" width="{2 * half:.1f}" height="40" rx="20"/>'
    )
    parts.append(_text(x, middle + 5, found.name, limit=24, css="rw-centre-name"))
    return _svg(_WIDTH, height, f"{shown(found.name)} and its neighbours", parts)


def _height(groups: Sequence[Group]) -> float:
    return sum((len(group.neighbours) + (1 if group.more else 0)) * _ROW + 14 for group in groups)


def _group(
    group: Group,
    side: int,
    top: float,
    rows: int,
    middle: float,
    link: Callable[[str, str], str],
    more: Callable[[Group], str],
) -> list[str]:
    """Draw one relation: a line from the middle to its name, and from there to each neighbour."""
    centre = _WIDTH / 2
    joint = centre + side * 130  # where the relation's name begins
    fan = centre + side * 330  # where it ends and the lines to its neighbours start
    names = centre + side * 365
    y = top + rows * _ROW / 2
    anchor = "start" if side > 0 else "end"
    solid = any(neighbour.score is None for neighbour in group.neighbours)
    css = "rw-known" if solid else "rw-inferred"
    tip = "" if side > 0 else ' marker-end="url(#rw-arrow)"'
    parts = [
        f'<path class="{css}" d="M{centre:.1f} {middle:.1f}C{centre + side * 90:.1f} {middle:.1f} '
        f'{centre + side * 80:.1f} {y:.1f} {joint:.1f} {y:.1f}"/>',
        f'<path class="{css}" d="M{fan:.1f} {y:.1f}L{joint:.1f} {y:.1f}"{tip}/>',
        _text((joint + fan) / 2, y - 6, short_name(group.relation), limit=30, css="rw-label").replace(
            "</title>", f" — {escape(shown(group.relation, 500))}</title>"
        ),
    ]
    for place, neighbour in enumerate(group.neighbours):
        here = top + place * _ROW + _ROW / 2
        parts.append(_branch(fan, names, y, here, "rw-known" if neighbour.score is None else "rw-inferred", side))
        parts.append(_neighbour(neighbour, names + side * 6, here, anchor, link(neighbour.type, neighbour.name)))
    if group.more:
        here = top + len(group.neighbours) * _ROW + _ROW / 2
        parts.append(
            f'<a href="{escape(more(group))}"><text class="rw-more" x="{names + side * 6:.1f}" y="{here + 4:.1f}" '
            f'text-anchor="{anchor}">and {group.more:,} more</text></a>'
        )
    return parts


def _branch(fan: float, names: float, y: float, here: float, css: str, side: int) -> str:
    tip = ' marker-end="url(#rw-arrow)"' if side > 0 else ""
    bend = (fan + names) / 2
    points = f"M{fan:.1f} {y:.1f}C{bend:.1f} {y:.1f} {bend:.1f} {here:.1f} {names:.1f} {here:.1f}"
    return f'<path class="{css}" d="{points}"{tip}/>'


def _neighbour(neighbour: Neighbour, x: float, y: float, anchor: str, address: str) -> str:
    score = "" if neighbour.score is None else f" {neighbour.score:.2f}"
    css = "rw-link" if neighbour.score is None else "rw-link rw-guess"
    name = shown(neighbour.name, 22)
    how = "known" if neighbour.score is None else f"inferred, {neighbour.score:.3g}"
    told = f"{shown(neighbour.name, 500)} ({how})"
    return (
        f'<a href="{escape(address)}" aria-label="{escape(told)}"><text class="{css}" x="{x:.1f}" y="{y + 4:.1f}" '
        f'text-anchor="{anchor}"><title>{escape(told)}</title>{escape(name)}'
        f'<tspan class="rw-score" dx="6">{score.strip()}</tspan></text></a>'
    )
