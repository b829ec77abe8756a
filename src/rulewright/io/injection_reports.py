"""What rules changed in a network's output, and why: a JSON file that the explorer shows.

A list with one object for each document, image or batch row::

    {"title": "doc 1", "kind": "decoder", "summary": "2 facts, 1 change",
     "changes": [{"predicate": "parent_of", "args": ["ann", "bob"], "before": 0.31, "after": 0.92,
                  "reasons": [{"rule": "parent_of(X, Z) :- …", "grounding": "X = ann, …", "moved": 1.2}]}]}

``before`` and ``after`` are probabilities; where there are only labels, 0 and 1.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from rulewright.errors import DataError
from rulewright.files import write_text
from rulewright.io.json_shape import Json, dumped, load
from rulewright.logic import quote


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
        written = f"{quote(self.predicate)}({', '.join(map(quote, self.args))})"
        return written if self.value is None else f"{written} in {{{quote(self.value)}}}"


@dataclass(frozen=True)
class InjectionReport:
    """The changes in one document, image or batch row, and a line that sums them up."""

    title: str
    kind: str
    summary: str = ""
    changes: tuple[ReportedChange, ...] = field(default=())


def write_reports(reports: Sequence[InjectionReport], path: str | os.PathLike[str]) -> None:
    """Write reports as JSON, one to a line."""
    write_text(path, dumped([_report_record(each) for each in reports]))


def read_reports(path: str | os.PathLike[str]) -> tuple[InjectionReport, ...]:
    """Read reports; what is wrong is said with its place.

    >>> change = ReportedChange("parent_of", ("ann", "bob"), 0.3, 0.9, (Reason("parent_of(X, Y) :- mother_of(X, Y)."),))
    >>> write_reports([InjectionReport("doc 1", "decoder", changes=(change,))], folder / "report.json")
    >>> read_reports(folder / "report.json")[0].changes[0].atom
    'parent_of(ann, bob)'
    """
    root = load(path)
    parts = root.items("reports") if isinstance(root.value, list) else [root]
    return tuple(_report(part) for part in parts)


def _report_record(report: InjectionReport) -> dict[str, object]:
    changes = [_change_record(each) for each in report.changes]
    return {"title": report.title, "kind": report.kind, "summary": report.summary, "changes": changes}


def _change_record(change: ReportedChange) -> dict[str, object]:
    reasons = []
    for each in change.reasons:
        record: dict[str, object] = {"rule": each.rule, "grounding": each.grounding}
        reasons.append(record if each.moved is None else {**record, "moved": each.moved})
    found: dict[str, object] = {
        "predicate": change.predicate,
        "args": list(change.args),
        "before": change.before,
        "after": change.after,
        "reasons": reasons,
    }
    return found if change.value is None else {**found, "class": change.value}


def _report(part: Json) -> InjectionReport:
    kind = part["kind"].text()
    if kind not in ("decoder", "layer"):
        raise part["kind"].expected("'decoder' or 'layer'")
    summary = part.get("summary")
    changes = tuple(_change(each) for each in part["changes"].items("changes"))
    return InjectionReport(part["title"].text(), kind, "" if summary is None else summary.text(), changes)


def _change(part: Json) -> ReportedChange:
    before, after = (_probability(part[name]) for name in ("before", "after"))
    given = part.get("reasons")
    value = part.get("class")
    args = part["args"].texts()
    if not args:
        raise DataError(f"{part.file}: {part.place()}.args names nothing; an atom has at least one argument")
    return ReportedChange(
        part["predicate"].text(),
        args,
        before,
        after,
        () if given is None else tuple(_reason(each) for each in given.items("reasons")),
        None if value is None else value.text(),
    )


def _reason(part: Json) -> Reason:
    grounding, moved = part.get("grounding"), part.get("moved")
    return Reason(
        part["rule"].text(), "" if grounding is None else grounding.text(), None if moved is None else _number(moved)
    )


def _probability(part: Json) -> float:
    value = _number(part)
    if not 0 <= value <= 1:
        raise part.expected("a probability in [0, 1]")
    return value


def _number(part: Json) -> float:
    if isinstance(part.value, int | float):
        return float(part.value)
    raise part.expected("a number")
