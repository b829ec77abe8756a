"""Why a fact follows, or why not: proofs as trees, and the rules that came nearest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, Literal

from rulewright.engine.batches import Source
from rulewright.logic import Annotations, Formula, Head, Membership, Not, Number, Rule, Symbol

Status = Literal["known", "inferred", "false", "unknown"]


@dataclass(frozen=True)
class Proof:
    """A fact, and below it what it follows from: a tree whose leaves are known facts.

    ``source`` is the statement applied last, ``rule_index`` its position in the rule set and ``number`` that in its
    file, from 1; a known fact has none of them.
    ``premises`` prove the positive atoms of its body; ``conditions`` are its comparisons and the facts that must be
    absent. ``score = confidence × Π premises' scores``, 1 for a known fact. Where rules add up by weights, it is what
    the statement adds: ``weight × truth``.
    """

    fact: Head
    score: float = 1.0
    source: Source | None = None
    rule_index: int | None = None
    premises: tuple[Proof, ...] = ()
    conditions: tuple[Formula, ...] = ()
    weight: float | None = None
    truth: float | None = None
    number: int | None = None

    @property
    def depth(self) -> int:
        """The most rules applied one after the other; 0 for a known fact."""
        return 0 if self.source is None else 1 + max((premise.depth for premise in self.premises), default=0)

    def leaves(self) -> tuple[Head, ...]:
        """Return the known facts that the proof rests on, each once, in order."""
        if self.source is None:
            return (self.fact,)
        return tuple(dict.fromkeys(leaf for premise in self.premises for leaf in premise.leaves()))

    def as_dict(self) -> dict[str, Any]:
        """Return the tree as plain values, for JSON."""
        tree: dict[str, Any] = {**fact_dict(self.fact), "score": self.score}
        if self.source is not None:
            tree |= {
                "rule": str(self.source),
                "number": self.number,
                "premises": [premise.as_dict() for premise in self.premises],
                "conditions": list(map(str, self.conditions)),
            }
        if self.weight is not None:
            tree |= {"weight": self.weight, "truth": self.truth}
        return tree

    def svg(self) -> str:
        """Return the tree as a drawing."""
        return draw_svg(self)

    def _repr_html_(self) -> str:
        return self.svg()

    def __str__(self) -> str:
        """Write the tree: what a fact follows from stands below it."""
        if self.source is None:
            return f"{self.fact}  known"
        lines = [f"{self.fact}  {self.score:.3g}", f"└─ by {rule_text(self.source)}"]
        blocks = [*map(str, self.premises), *map(condition_text, self.conditions)]
        return "\n".join([*lines, *(f"   {line}" for line in _branch(blocks))])

    def _contribution_text(self) -> str:
        """Write what the statement adds to a score, and below it what that rests on."""
        assert self.source is not None
        truth = "" if self.truth in (None, 1.0) else f"  ({self.weight:.3g} × {self.truth:.3g})"
        blocks = [*map(str, self.premises), *map(condition_text, self.conditions)]
        return "\n".join([f"{self.score:+.3g} by {rule_text(self.source)}{truth}", *_branch(blocks)])


def _branch(blocks: Sequence[str]) -> list[str]:
    """Write texts as the branches of a tree, line by line."""
    lines: list[str] = []
    for position, block in enumerate(blocks, start=1):
        branch, edge = ("└─", "  ") if position == len(blocks) else ("├─", "│ ")
        lines += f"{branch} {block}".replace("\n", f"\n{edge} ").split("\n")
    return lines


_MOST_SHOWN = 20  # of the statements that add to a score, in a text


@dataclass(frozen=True)
class NearMiss:
    """A rule that almost gives a fact: what of its body holds, and what is missing for it.

    Missing are atoms that are no facts (where any entity would do, a variable stands), negated atoms whose fact is
    there, and comparisons that do not hold.
    """

    source: Source
    rule_index: int
    score: float
    held: tuple[Formula, ...]
    missing: tuple[Formula, ...]
    number: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "rule": str(self.source),
            "number": self.number,
            "score": self.score,
            "held": list(map(str, self.held)),
            "missing": list(map(str, self.missing)),
        }

    def __str__(self) -> str:
        lines = [rule_text(self.source), *(f"   {part} holds" for part in self.held)]
        for part in self.missing:
            lines.append(f"   {part.formula} must not hold" if isinstance(part, Not) else f"   {part} is missing")
        return "\n".join(lines)


@dataclass(frozen=True)
class Explanation:
    """What speaks for a fact; see `explain`.

    ``proofs`` come best first, and a known fact's first proof is the fact itself. ``critical`` are the known facts that
    every proof up to ``depth`` rests on: without any one of them none is left. Where there is no proof, ``why_not`` has
    the nearest rules. ``note`` says which bound was met, if one was. Where rules add up by weights, each proof is what
    one statement adds, for or against, the strongest first, and ``total`` is their sum.
    """

    fact: Head
    status: Status
    proofs: tuple[Proof, ...]
    critical: tuple[Head, ...]
    why_not: tuple[NearMiss, ...]
    depth: int
    note: str = ""
    total: float | None = None

    @property
    def score(self) -> float:
        """The score of the best proof, 0 where there is none; or the total, where rules add up."""
        if self.total is not None:
            return self.total
        return self.proofs[0].score if self.proofs else 0.0

    @property
    def complete(self) -> bool:
        """Whether no bound was met."""
        return not self.note

    def __bool__(self) -> bool:
        return bool(self.proofs)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            **fact_dict(self.fact),
            "status": self.status,
            "score": self.score,
            "proofs": [proof.as_dict() for proof in self.proofs],
            "critical": list(map(fact_dict, self.critical)),
            "why_not": [miss.as_dict() for miss in self.why_not],
            "depth": self.depth,
            "note": self.note,
        }

    def svg(self, index: int = 0) -> str:
        """Return one of the proofs as a drawing."""
        return self.proofs[index].svg()

    def _repr_html_(self) -> str:
        """Show the best proof as a drawing, or why there is none, in notebooks."""
        from html import escape

        return self.svg() if self.proofs and self.total is None else f"<pre>{escape(str(self))}</pre>"

    def __str__(self) -> str:
        parts = []
        if not self.proofs or self.status == "false":
            how = "is observed to be false" if self.status == "false" else "does not follow"
            parts.append(f"{self.fact} {how}")
        if self.total is None:
            parts += map(str, self.proofs)
        elif self.proofs:
            parts += self._write_sum(self.total)
        if self.critical:
            parts.append("rests on " + ", ".join(map(str, self.critical)))
        if self.why_not:
            parts += ["nearest:", *map(str, self.why_not)]
        elif not self.proofs and self.total is not None:
            parts.append("no rule speaks for it or against it")
        elif not self.proofs:
            parts.append(f"no rule concludes {self.fact.predicate}")
        return "\n".join([*parts, *([f"({self.note})"] if self.note else [])])

    def _write_sum(self, total: float) -> list[str]:
        known = "  known; by rules" if self.status == "known" else ""
        shown, others = self.proofs[:_MOST_SHOWN], self.proofs[_MOST_SHOWN:]
        blocks = [proof._contribution_text() for proof in shown]
        if others:
            blocks.append(f"{sum(proof.score for proof in others):+.3g} by {len(others):,} more")
        return [f"{self.fact}{known}  {total:.3g}, the sum of", *_branch(blocks)]


def fact_dict(fact: Head) -> dict[str, Any]:
    """Return a ground fact as plain values.

    >>> from rulewright.logic import parse_atom
    >>> fact_dict(parse_atom("parent_of(ann, 'Bob B')"))
    {'fact': "parent_of(ann, 'Bob B')", 'predicate': 'parent_of', 'args': ['ann', 'Bob B']}
    """
    args: list[str | float] = [
        term.name if isinstance(term, Symbol) else term.value if isinstance(term, Number) else str(term)
        for term in fact.args
    ]
    values: dict[str, Any] = {"fact": str(fact), "predicate": str(fact.predicate), "args": args}
    return {**values, "value": fact.classes[0]} if isinstance(fact, Membership) else values


def rule_text(source: Source) -> str:
    """Return a statement for a person to read: without its statistics, its confidence to four places.

    >>> from rulewright.logic import parse_rule
    >>> rule_text(parse_rule("0.66666666 :: p(X) :- q(X). @{support: 2}"))
    '0.6667 :: p(X) :- q(X).'
    """
    shown = replace(source, annotations=Annotations())
    return str(replace(shown, confidence=round(shown.confidence, 4)) if isinstance(shown, Rule) else shown)


def condition_text(formula: Formula) -> str:
    """Return a condition of a rule's body that is no fact to be proved.

    >>> from rulewright.logic import parse_formula
    >>> condition_text(parse_formula("!p(ann)")), condition_text(parse_formula("ann != bob"))
    ('no p(ann)', 'ann != bob')
    """
    return f"no {formula.formula}" if isinstance(formula, Not) else str(formula)


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
class _ProofBox:
    """A box of the drawing and those below it; ``style`` is its class in `_STYLE`."""

    lines: list[str]
    style: str
    below: list[_ProofBox]
    left: float = 0.0
    top: float = 0.0

    @property
    def width(self) -> float:
        return max(len(line) for line in self.lines) * _LETTER + 2 * _PAD

    @property
    def height(self) -> float:
        return len(self.lines) * _LINE + _PAD

    @property
    def inner_span(self) -> float:
        return sum(box.span for box in self.below) + _GAP * (len(self.below) - 1)

    @property
    def span(self) -> float:
        """The width that the box and all below it need."""
        return max(self.width, self.inner_span)

    def place(self, left: float, top: float) -> None:
        self.top = top
        self.left = left + (self.span - self.width) / 2
        start = left + (self.span - self.inner_span) / 2
        for box in self.below:
            box.place(start, top + self.height + _FALL)
            start += box.span + _GAP

    def bottom(self) -> float:
        return max([self.top + self.height, *(box.bottom() for box in self.below)])

    def draw(self) -> list[str]:
        middle = self.left + self.width / 2
        parts = []
        for box in self.below:
            start, end, other = self.top + self.height, box.top, box.left + box.width / 2
            bend = (start + end) / 2
            points = [(middle, start), (middle, bend), (other, bend), (other, end)]
            first, *rest = (f"{x:.1f} {y:.1f}" for x, y in points)
            parts.append(f'<path d="M{first}C{" ".join(rest)}"/>')
        parts.append(
            f'<rect class="{self.style}" x="{self.left:.1f}" y="{self.top:.1f}" width="{self.width:.1f}" '
            f'height="{self.height:.1f}" rx="6"/>'
        )
        for row, line in enumerate(self.lines):
            y = self.top + _PAD / 2 + _LINE * row + 13
            parts.append(f'<text x="{self.left + _PAD:.1f}" y="{y:.1f}">{escape(line)}</text>')
        return [*parts, *(part for box in self.below for part in box.draw())]


def draw_svg(proof: Proof) -> str:
    """Draw a proof; names from the data are escaped.

    >>> from rulewright.logic import parse_atom
    >>> draw_svg(Proof(parse_atom("p('<b>')"))).count("&lt;b&gt;")
    2
    """
    top = _make_box(proof)
    top.place(_PAD, _PAD)
    width, height = top.span + 2 * _PAD, top.bottom() + _PAD
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}"><title>{escape(f"Why {proof.fact}")}</title>'
        f"<style>{_STYLE}</style>{''.join(top.draw())}</svg>"
    )


def _make_box(proof: Proof) -> _ProofBox:
    if proof.source is None:
        return _ProofBox(_fold(str(proof.fact)), "known", [])
    below = [
        *map(_make_box, proof.premises),
        *(_ProofBox(_fold(condition_text(part)), "none", []) for part in proof.conditions),
    ]
    rule = _ProofBox(_fold(rule_text(proof.source)), "rule", below)
    return _ProofBox([*_fold(str(proof.fact)), f"{proof.score:.3g}"], "fact", [rule])


def _fold(text: str) -> list[str]:
    """Break a text at blanks, and inside words only where one fills a line."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _WIDEST:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
        while len(lines[-1]) > _WIDEST:
            lines[-1:] = [lines[-1][:_WIDEST], lines[-1][_WIDEST:]]
    return lines
