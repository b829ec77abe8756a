"""Text, rules and neighbourhoods as HTML and SVG.

Names come from data: they are escaped, with nothing hidden, each kept apart from the text around it. In pictures they
are cut to a length that fits and given in full in a title. Colours are those of the page, by class.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from html import escape

from rulewright.logic import Atom, Comparison, Literal, Membership, Rule, Term, Variable
from rulewright.logic.english import short_name
from rulewright.logic.tokens import shorten
from rulewright.web.lookup import Neighbour, Neighbourhood, RelationGroup

# What no one sees, what ends a line, what turns the direction of a line, and halves of characters
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)
_TOKEN = re.compile(
    r"(?P<name>'(?:[^'\\]|\\.)*+')|(?P<number>-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b)|(?P<variable>\??\b[A-Z_]\w*\b)"
    r"|(?P<word>\b[a-z]\w*\b)|(?P<sign>:-|::|=>|<=>|[!&|;])|(?P<other>\s+|.)",
    re.DOTALL,
)

_GAP = 190  # between the variables of a rule
_RADIUS = 24
_LEVEL = 46  # between arrows above each other
_DRAWN = 4  # alternatives of a rule
_ROW = 30  # between neighbours
_WIDTH = 1080
_ARROW = (
    '<defs><marker id="rw-arrow" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
    'orient="auto-start-reverse"><path class="rw-tip" d="M0 0L10 5L0 10z"/></marker></defs>'
)


def shown(name: str, limit: int = 60) -> str:
    r"""Return a name for people to read: what cannot be seen is written out, and long names are cut.

    >>> print(shown("a\u202eb"), shown("x" * 9, 5), shown(""))
    a\u202eb xxxx… ''
    """
    return shorten(_HIDDEN.sub(lambda match: f"\\u{ord(match.group()):04x}", name), limit) or "''"


def name_html(name: str, limit: int = 60) -> str:
    """Return a name as HTML, kept apart so that its direction cannot change the order of what stands beside it."""
    return f"<bdi>{escape(shown(name, limit))}</bdi>"


def logic_html(text: str) -> str:
    """Return a text of the rule language as HTML with its parts marked.

    >>> logic_html("p('<b>')")
    '<span class="rw-predicate">p</span>(<bdi class="rw-name">&#x27;&lt;b&gt;&#x27;</bdi>)'
    """
    return "".join(_mark_token(match, text) for match in _TOKEN.finditer(text))


def _mark_token(match: re.Match[str], text: str) -> str:
    part, token = match.lastgroup or "other", match.group()
    if part == "other":
        return escape(token)
    if part in ("name", "word") and text[match.end() : match.end() + 1] == "(":
        part = "predicate"
    elif part == "word":
        part = "name"
    tag = "bdi" if token.startswith("'") or part == "name" else "span"
    return f'<{tag} class="rw-{part}">{escape(shown(token, len(text) * 6))}</{tag}>'


def bar_html(support: int, against: int) -> str:
    """Return a bar of examples against counterexamples.

    >>> bar_html(3, 1).count("<span")
    2
    """
    total = max(support + against, 1)
    share = 100 * support / total
    title = f"{support:,} examples, {against:,} counterexamples"
    return (
        f'<div class="rw-bar" role="img" aria-label="{title}" title="{title}">'
        f'<span class="rw-for" style="width:{share:.2f}%"></span>'
        f'<span class="rw-against" style="width:{100 - share if support + against else 0:.2f}%"></span></div>'
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
    drawn = alternatives[:_DRAWN]
    for position, body in enumerate(drawn):
        row = _PictureRow(rule.head, body)
        shift = bottom - row.top + (20 if position else 0)
        parts.append(f'<g transform="translate(0 {shift:.1f})">{"".join(row.parts)}</g>')
        bottom = shift + row.bottom
        top = min(top, shift + row.top)
    if len(alternatives) > _DRAWN:
        bottom += 20
        parts.append(
            _text(20, bottom, f"and {len(alternatives) - _DRAWN:,} more alternatives", limit=60, anchor="start")
        )
    units = [rule.head, *(literal.unit for body in drawn for literal in body)]
    terms = {term for unit in units if not isinstance(unit, Comparison) for term in unit.args}
    width = max(_GAP * (len(terms) + 0.3), 360)
    return _svg(width, bottom - top + 10, str(rule), parts, top - 5)


class _PictureRow:
    """One alternative of a rule: where its terms stand, and the arrows between them."""

    def __init__(self, head: Atom | Membership, body: Sequence[Literal]) -> None:
        self.parts: list[str] = []
        self.top, self.bottom = -_RADIUS - 10.0, _RADIUS + 10.0
        units = [literal.unit for literal in body if not isinstance(literal.unit, Comparison)]
        terms = _order_terms(head, units)
        self._x = {term: _GAP * (position + 0.65) for position, term in enumerate(terms)}
        for term in head.args:
            self._x.setdefault(term, _GAP * (len(self._x) + 0.65))
        self._arrows: dict[tuple[float, float], int] = {}  # how many there are between two terms
        self._badges: dict[Term | None, int] = {}  # None: of propositions
        for literal in body:
            if not isinstance(literal.unit, Comparison):
                self._draw_atom(literal.unit, "rw-body" if literal.positive else "rw-absent", above=False)
        self._draw_atom(head, "rw-head", above=True)
        conditions = [str(literal) for literal in body if isinstance(literal.unit, Comparison)]
        for position, condition in enumerate(conditions):
            y = self.bottom + 14 + 18 * position
            self.parts.append(_text(_GAP * 0.3, y, condition, limit=60, anchor="start"))
        self.bottom += 18 * len(conditions) + (6 if conditions else 0)
        self.parts += [self._draw_term(term) for term in self._x]

    def _draw_term(self, term: Term) -> str:
        x = self._x[term]
        if isinstance(term, Variable):
            circle = f'<circle class="rw-node" cx="{x:.1f}" cy="0" r="{_RADIUS}"/>'
            return circle + _text(x, 5, term.name, limit=6, css="rw-variable")
        name = str(getattr(term, "name", term))
        half = min(4.2 * len(shown(name, 18)) + 10, 80)
        box = f'<rect class="rw-constant" x="{x - half:.1f}" y="-16" width="{2 * half:.1f}" height="32" rx="6"/>'
        return box + _text(x, 5, name, limit=18)

    def _draw_atom(self, unit: Atom | Membership, css: str, *, above: bool) -> None:
        label = short_name(str(unit.predicate))
        label += f" in {{{', '.join(unit.classes)}}}" if isinstance(unit, Membership) else ""
        label = f"not {label}" if css == "rw-absent" else label
        if len(unit.args) != 2 or unit.args[0] == unit.args[1]:
            self._draw_badge(unit, label, css, above=above)
            return
        start, end = (self._x[term] for term in unit.args)
        key = (min(start, end), max(start, end))
        level = self._arrows.get(key, 0)
        straight = not above and level == 0 and abs(end - start) == _GAP
        if not above:
            self._arrows[key] = level + 1
        inset = _RADIUS + 2 if end > start else -_RADIUS - 2
        middle = (start + end) / 2
        if straight:
            path, y = f"M{start + inset:.1f} 0L{end - inset:.1f} 0", -8.0
        else:
            reach = _LEVEL * (abs(end - start) / _GAP * 0.5 + (0.75 if above else level + 0.5))
            reach = -reach if above else reach
            edge = -_RADIUS * 0.8 if above else _RADIUS * 0.8
            near, far = start + inset * 0.55, end - inset * 0.55
            path = f"M{near:.1f} {edge:.1f}C{near:.1f} {reach:.1f} {far:.1f} {reach:.1f} {far:.1f} {edge:.1f}"
            y = edge + (reach - edge) * 0.75 + (-7 if above else 16)
        self.top, self.bottom = min(self.top, y - 16), max(self.bottom, y + 8)
        self.parts.append(f'<path class="{css}" d="{path}" marker-end="url(#rw-arrow)"/>')
        self.parts.append(_text(middle, y, label, limit=20 if straight else 46, css=f"rw-label {css}"))

    def _draw_badge(self, unit: Atom | Membership, label: str, css: str, *, above: bool) -> None:
        """Write what is said of one term, or of more than two, beside the first of them; a proposition on the left."""
        first = unit.args[0] if unit.args else None
        if len(unit.args) > 2:
            label += f"({', '.join(str(term) for term in unit.args)})"
        if above:
            y = -_RADIUS - 12.0
            self.top = min(self.top, y - 18)
        else:
            self._badges[first] = self._badges.get(first, 0) + 1
            y = _RADIUS + 4 + 17.0 * self._badges[first]
            self.bottom = max(self.bottom, y + 8)
        x = _GAP * 0.65 if first is None else self._x[first]
        self.parts.append(_text(x, y, label, limit=40, css=f"rw-label {css}"))


def _order_terms(head: Atom | Membership, body: Sequence[Atom | Membership]) -> list[Term]:
    """Order terms so that those that share an atom stand side by side where that is possible: along the chain."""
    terms = list(dict.fromkeys(term for unit in body for term in unit.args))
    if not terms:
        return []
    start = head.args[0] if head.args and head.args[0] in terms else terms[0]
    ordered, left = [start], [term for term in terms if term != start]
    while left:
        near = [term for unit in body if ordered[-1] in unit.args for term in unit.args if term in left]
        last = head.args[-1] if head.args else None
        chosen = next((term for term in near if term != last), near[0] if near else left[0])
        ordered.append(chosen)
        left.remove(chosen)
    return ordered


def neighbourhood_picture(
    neighbourhood: Neighbourhood, link: Callable[[str, str], str], more: Callable[[RelationGroup], str]
) -> str:
    """Draw an entity in the middle, what leads to it on the left, what it leads to on the right.

    ``link`` gives the address of a (type, name), ``more`` that of a group's other members.
    """
    sides = {side: [group for group in neighbourhood.groups if group.outgoing == (side > 0)] for side in (-1, 1)}
    height = max(*(sum(map(_group_height, groups)) for groups in sides.values()), 120.0)
    parts: list[str] = []
    middle = height / 2
    for side, groups in sides.items():
        y = (height - sum(map(_group_height, groups))) / 2
        for group in groups:
            parts += _draw_group(group, side, y, middle, link, more)
            y += _group_height(group)
    half = min(4.3 * len(shown(neighbourhood.name, 24)) + 14, 115)
    x = _WIDTH / 2
    parts.append(
        f'<rect class="rw-centre" x="{x - half:.1f}" y="{middle - 20:.1f}" width="{2 * half:.1f}" height="40" rx="20"/>'
    )
    parts.append(_text(x, middle + 5, neighbourhood.name, limit=24, css="rw-centre-name"))
    return _svg(_WIDTH, height, f"{shown(neighbourhood.name)} and its neighbours", parts)


def _group_height(group: RelationGroup) -> float:
    return (len(group.neighbours) + (1 if group.hidden else 0)) * _ROW + 14


def _draw_group(
    group: RelationGroup,
    side: int,
    top: float,
    middle: float,
    link: Callable[[str, str], str],
    more: Callable[[RelationGroup], str],
) -> list[str]:
    """Draw one relation: a line from the middle to its name, and from there to each neighbour."""
    centre = _WIDTH / 2
    joint = centre + side * 130  # where the relation's name begins
    fan = centre + side * 330  # where it ends and the lines to its neighbours start
    names = centre + side * 365
    y = top + (_group_height(group) - 14) / 2
    anchor = "start" if side > 0 else "end"
    css = "rw-known" if any(neighbour.score is None for neighbour in group.neighbours) else "rw-inferred"
    tip = ' marker-end="url(#rw-arrow)"'
    parts = [
        f'<path class="{css}" d="M{centre:.1f} {middle:.1f}C{centre + side * 90:.1f} {middle:.1f} '
        f'{centre + side * 80:.1f} {y:.1f} {joint:.1f} {y:.1f}"/>',
        f'<path class="{css}" d="M{fan:.1f} {y:.1f}L{joint:.1f} {y:.1f}"{"" if side > 0 else tip}/>',
        _text((joint + fan) / 2, y - 6, short_name(group.relation), limit=30, css="rw-label").replace(
            "</title>", f" — {escape(shown(group.relation, 500))}</title>"
        ),
    ]
    bend = (fan + names) / 2
    for position, neighbour in enumerate(group.neighbours):
        end = top + position * _ROW + _ROW / 2
        css = "rw-known" if neighbour.score is None else "rw-inferred"
        curve = f"M{fan:.1f} {y:.1f}C{bend:.1f} {y:.1f} {bend:.1f} {end:.1f} {names:.1f} {end:.1f}"
        parts.append(f'<path class="{css}" d="{curve}"{tip if side > 0 else ""}/>')
        parts.append(_neighbour_name(neighbour, names + side * 6, end, anchor, link(neighbour.type, neighbour.name)))
    if group.hidden:
        end = top + len(group.neighbours) * _ROW + _ROW / 2
        parts.append(
            f'<a href="{escape(more(group))}"><text class="rw-more" x="{names + side * 6:.1f}" y="{end + 4:.1f}" '
            f'text-anchor="{anchor}">and {group.hidden:,} more</text></a>'
        )
    return parts


def _neighbour_name(neighbour: Neighbour, x: float, y: float, anchor: str, address: str) -> str:
    css, status, score = "rw-link", "known", ""
    if neighbour.score is not None:
        css, status, score = "rw-link rw-guess", f"inferred, {neighbour.score:.3g}", f"{neighbour.score:.2f}"
    title = escape(f"{shown(neighbour.name, 500)} ({status})")
    return (
        f'<a href="{escape(address)}" aria-label="{title}"><text class="{css}" x="{x:.1f}" y="{y + 4:.1f}" '
        f'text-anchor="{anchor}"><title>{title}</title>{escape(shown(neighbour.name, 22))}'
        f'<tspan class="rw-score" dx="6">{score}</tspan></text></a>'
    )
