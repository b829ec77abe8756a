"""What rules changed in a network's output, and why."""

from __future__ import annotations

from collections.abc import Sequence

from nicegui import ui

from rulewright.inject.atoms.reports import InjectionReport, Reason, ReportedChange, RuleEffect
from rulewright.web.explorer import Explorer
from rulewright.web.markup import logic_html, shown
from rulewright.web.pages.layout import fault, frame, heading, html, pager, soft

SIZE = 20
_CHANGES = 100  # of one report


def register(explorer: Explorer) -> None:
    """Make the page known."""

    @ui.page("/injection")
    def page(start: int = 0) -> None:
        with frame(explorer, "Injection", "/injection"):
            heading("What the rules changed")
            if not explorer.reports:
                fault("no report was given; start with: rulewright serve RULES FACTS --report report.json")
                return
            total = sum(len(report.changes) for report in explorer.reports)
            soft(f"{total:,} changes in {len(explorer.reports):,} reports")
            start = max(min(start, len(explorer.reports) - 1), 0)
            for report in explorer.reports[start : start + SIZE]:
                _report(report)
            pager("/injection", start, SIZE, len(explorer.reports))


def _report(report: InjectionReport) -> None:
    heading(f"{shown(report.title or 'without a title')} ({report.injector})", 2)
    if report.summary:
        soft(report.summary)
    if report.effects:
        _effects(report.effects)
    if not report.changes:
        if not report.effects:
            soft("The rules changed nothing.")
        return
    head = "".join(f'<th scope="col">{name}</th>' for name in ("atom", "before", "after", "because"))
    rows = "".join(_change_html(change) for change in report.changes[:_CHANGES])
    html(f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>", tag="table").classes("rw-table")
    if len(report.changes) > _CHANGES:
        soft(f"and {len(report.changes) - _CHANGES:,} more")


def _effects(effects: Sequence[RuleEffect]) -> None:
    """Show what each rule did to a batch, with a bar for the labels it turned."""
    names = ("rule", "atoms of", "moved", "by", "most", "labels turned")
    head = "".join(f'<th scope="col">{name}</th>' for name in names)
    most = max([1, *(effect.gained + effect.turned_false for effect in effects)])
    rows = "".join(_effect_html(effect, most) for effect in effects[:_CHANGES])
    html(f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>", tag="table").classes("rw-table")


def _effect_html(effect: RuleEffect, most: int) -> str:
    bars = "".join(
        f'<span class="{css}" title="{count:,} labels" aria-hidden="true" style="display: inline-block; height: 0.8em; '
        f'background: currentColor; width: {8 * count / most:.2f}em"></span>'
        for css, count in (("rw-down", effect.turned_false), ("rw-up", effect.gained))
        if count
    )
    turned = [(effect.turned_true, "▲ true"), (effect.turned_false, "▼ false"), (effect.turned_class, "another class")]
    counts = ", ".join(f"{count:,} {label}" for count, label in turned if count) or "none"
    return (
        f'<tr><td class="rw-logic">{logic_html(effect.rule)}</td>'
        f'<td class="rw-logic">{logic_html(effect.predicate)}</td><td class="rw-narrow">{effect.atoms:,}</td>'
        f'<td class="rw-narrow">{effect.mean:.2f}</td><td><span class="rw-chip">{effect.largest:+.2f}</span> '
        f'<span class="rw-logic">{logic_html(effect.atom)}</span> <span class="rw-soft">row {effect.row}</span></td>'
        f"<td>{bars} {counts}</td></tr>"
    )


def _change_html(change: ReportedChange) -> str:
    css, sign = ("rw-up", "▲") if change.after > change.before else ("rw-down", "▼")
    reasons = "".join(map(_reason_html, change.reasons)) or "—"
    return (
        f'<tr><td class="rw-logic">{logic_html(change.atom)}</td><td class="rw-narrow">{change.before:.3g}</td>'
        f'<td class="{css} rw-narrow">{change.after:.3g} <span aria-hidden="true">{sign}</span></td>'
        f"<td>{reasons}</td></tr>"
    )


def _reason_html(reason: Reason) -> str:
    moved = "" if reason.moved is None else f'<span class="rw-chip">{reason.moved:+.2f}</span> '
    where = f'<div class="rw-soft rw-logic">{logic_html(reason.grounding)}</div>' if reason.grounding else ""
    return f'<div>{moved}<span class="rw-logic">{logic_html(reason.rule)}</span>{where}</div>'
