"""A proof as a picture: boxes of facts, the conclusion on top, and between them the rules that were applied."""

from __future__ import annotations

from dataclasses import dataclass
from html import escape

from rulewright.reason.proofs import Proof, condition_text, rule_text

_LETTER = 7.2  # the width of a letter at the size of the text
_LINE = 18
_PAD = 10
_GAP = 24  # between neighbours
_FALL = 44  # between a box and those below it
_WIDEST = 46  # letters in a line

_STYLE = (
    "text{font:12px ui-monospace,Menlo,Consolas,monospace;fill:#1b1f24;white-space:pre}"
    ".fact{fill:#e6f0ff;stroke:#3b6fb6}.known{fill:#e8f5e9;stroke:#3c8c46}.rule{fill:#fff7e0;stroke:#b58a1b}"
    ".none{fill:#f4f4f5;stroke:#8a8f98;stroke-dasharray:4 3}path{fill:none;stroke:#8a8f98}"
    "@media (prefers-color-scheme:dark){text{fill:#e8eaed}.fact{fill:#1d2f4a}.known{fill:#1d3a22}.rule{fill:#3d3317}"
    ".none{fill:#2a2c30}}"
)


@dataclass
class _Box:
    lines: list[str]
    kind: str
    below: list[_Box]
    left: float = 0.0
    top: float = 0.0

    @property
    def width(self) -> float:
        return max(len(line) for line in self.lines) * _LETTER + 2 * _PAD

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + _PAD

    @property
    def span(self) -> float:
        """The width that the box and all below it need."""
        return max(self.width, sum(each.span for each in self.below) + _GAP * (len(self.below) - 1))

    def place(self, left: float, top: float) -> None:
        self.top = top
        self.left = left + (self.span - self.width) / 2
        inner = sum(each.span for each in self.below) + _GAP * (len(self.below) - 1)
        at = left + (self.span - inner) / 2
        for each in self.below:
            each.place(at, top + self.height + _FALL)
            at += each.span + _GAP

    def bottom(self) -> float:
        return max([self.top + self.height, *(each.bottom() for each in self.below)])

    def drawn(self) -> list[str]:
        middle = self.left + self.width / 2
        parts = []
        for each in self.below:
            start, end, other = self.top + self.height, each.top, each.left + each.width / 2
            bend = (start + end) / 2
            points = [(middle, start), (middle, bend), (other, bend), (other, end)]
            first, *rest = (f"{x:.1f} {y:.1f}" for x, y in points)
            parts.append(f'<path d="M{first}C{" ".join(rest)}"/>')
        parts.append(
            f'<rect class="{self.kind}" x="{self.left:.1f}" y="{self.top:.1f}" width="{self.width:.1f}" '
            f'height="{self.height:.1f}" rx="6"/>'
        )
        for number, line in enumerate(self.lines):
            y = self.top + _PAD / 2 + _LINE * number + 13
            parts.append(f'<text x="{self.left + _PAD:.1f}" y="{y:.1f}">{escape(line)}</text>')
        return [*parts, *(part for each in self.below for part in each.drawn())]


def svg(proof: Proof) -> str:
    """Draw a proof; names from the data are escaped.

    >>> from rulewright.logic import parse_atom
    >>> svg(Proof(parse_atom("p('<b>')"))).count("&lt;b&gt;")
    2
    """
    top = _box(proof)
    top.place(_PAD, _PAD)
    width, height = top.span + 2 * _PAD, top.bottom() + _PAD
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}"><title>{escape(f"Why {proof.fact}")}</title>'
        f"<style>{_STYLE}</style>{''.join(top.drawn())}</svg>"
    )


def _box(proof: Proof) -> _Box:
    if proof.source is None:
        return _Box(_folded(str(proof.fact)), "known", [])
    below = [
        *map(_box, proof.premises),
        *(_Box(_folded(condition_text(each)), "none", []) for each in proof.conditions),
    ]
    rule = _Box(_folded(rule_text(proof.source)), "rule", below)
    return _Box([*_folded(str(proof.fact)), f"{proof.score:.3g}"], "fact", [rule])


def _folded(text: str) -> list[str]:
    """Break a text at blanks, and inside words only where one fills a line."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _WIDEST:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
        while len(lines[-1]) > _WIDEST:
            lines[-1:] = [lines[-1][:_WIDEST], lines[-1][_WIDEST:]]
    return lines
