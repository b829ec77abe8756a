"""One rule: in logic, in words, as a picture, with its examples and counterexamples."""

from __future__ import annotations

import asyncio
from html import escape

from nicegui import ui

from rulewright.errors import RulewrightError
from rulewright.evaluate.rules import GroundedRule
from rulewright.logic import Rule
from rulewright.web.explorer import Explorer, RuleRow
from rulewright.web.markup import bar_html, logic_html, rule_picture
from rulewright.web.pages.layout import address, fact_html, fault, frame, heading, html, link_html, soft
from rulewright.web.pages.rules import editor

SIZE = 10
_FAR = 1_000  # how far pages of examples go


def register(explorer: Explorer) -> None:
    """Make the page known."""

    @ui.page("/rule/{key}", response_timeout=4 * explorer.seconds)
    async def page(key: int, examples: int = 0, counterexamples: int = 0) -> None:
        with frame(explorer, f"Rule {key + 1}", "/rule"):
            try:
                row = explorer.get_rule(key)
            except RulewrightError as error:
                fault(error)
                return
            _show_rule(explorer, row)
            starts = {"examples": examples, "counterexamples": counterexamples}
            for title, hold in (("examples", True), ("counterexamples", False)):
                await _show_cases(explorer, row, title, hold, starts)


def _show_rule(explorer: Explorer, row: RuleRow) -> None:
    key, statement = row.entry.key, row.entry.statement
    heading(f"Rule {key + 1} of {explorer.book.path.name}")
    html(logic_html(row.entry.short)).classes("rw-logic rw-block")
    html(escape(row.words), tag="p")
    if isinstance(statement, Rule):
        html(rule_picture(statement)).classes("rw-scroll")
    counts = row.counts
    with ui.element("div").classes("rw-tools"):
        ui.switch("on", value=row.entry.is_enabled, on_change=lambda event: _switch(explorer, key, event.value)).props(
            'aria-label="this rule on or off"'
        )
        if counts is not None:
            html(bar_html(counts.support, counts.counterexamples))
            coverage = "" if counts.coverage is None else f", gives {counts.coverage:.1%} of the head's facts"
            soft(f"holds in {counts.support:,} of {counts.body:,} cases ({counts.share:.1%}){coverage}")
        elif row.statistics is not None:
            soft(str(row.statistics))
    with ui.expansion("Edit", value=key in explorer.drafts).props("dense").style("width: 100%"):
        editor(explorer, key, lambda entry: ui.navigate.to(f"/rule/{entry.key}"))


def _switch(explorer: Explorer, key: int, enabled: bool) -> None:
    try:
        explorer.set_enabled(key, enabled)
    except RulewrightError as error:
        ui.notify(str(error), type="negative")


async def _show_cases(explorer: Explorer, row: RuleRow, title: str, hold: bool, starts: dict[str, int]) -> None:
    if not isinstance(row.entry.statement, Rule):
        return
    heading(title.capitalize(), 2)
    key, start = row.entry.key, max(min(starts[title], _FAR), 0)
    try:
        page = await asyncio.to_thread(explorer.list_cases, key, hold=hold, start=start, size=SIZE)
    except RulewrightError as error:
        fault(error)
        return
    if not page.cases:
        soft("none" if not start else "no more")
    rows = "".join(f"<li>{_case_html(explorer, case)}</li>" for case in page.cases)
    html(rows, tag="ol").classes("rw-cases rw-logic").props(f"start={start + 1}")
    links = [("previous", max(start - SIZE, 0))] if start else []
    if page.more and start < _FAR:
        links.append(("next", start + SIZE))
    targets = [(text, address(f"/rule/{key}", **{**starts, title: new_start})) for text, new_start in links]
    html(" · ".join(link_html(text, target) for text, target in targets))


def _case_html(explorer: Explorer, case: GroundedRule) -> str:
    head = fact_html(case.head, explorer.kb)
    return f"{head} ← {', '.join(fact_html(part, explorer.kb) for part in case.body)}"
