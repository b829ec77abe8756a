"""Patterns and their answers, ranked, each with its proofs."""

from __future__ import annotations

import asyncio
from html import escape

from nicegui import ui

from rulewright.errors import RulewrightError
from rulewright.logic import Head, quote, variables
from rulewright.reason import Explanation, Proof
from rulewright.web.explorer import AnswerPage, Explorer
from rulewright.web.markup import logic_html
from rulewright.web.pages.layout import address, fact_html, fault, frame, heading, html, pager, score_chip, soft

SIZE = 20


def register(explorer: Explorer) -> None:
    """Make the page known."""

    @ui.page("/ask", response_timeout=4 * explorer.seconds)
    async def page(q: str = "", start: int = 0, new: bool = False) -> None:
        with frame(explorer, "Ask", "/ask"):
            heading("Ask")
            field = ui.input("Pattern, such as parent_of(X, ann) — variables start upper-case (press /)", value=q)
            field.props('outlined dense clearable input-class="rw-logic" maxlength=5000').classes("rw-search").style(
                "width: 100%"
            )
            inferred_only = ui.checkbox("inferred answers only", value=new)

            def go() -> None:
                ui.navigate.to(address("/ask", q=field.value or "", new=inferred_only.value or None))

            field.on("keydown.enter", go)
            inferred_only.on_value_change(go)
            if not q.strip():
                _show_suggestions(explorer)
                return
            await _show_answers(explorer, q, start, new)


def _show_suggestions(explorer: Explorer) -> None:
    soft("Predicates with facts or rules:")
    items = []
    for declaration in [*explorer.full_kb.predicates.values()][:200]:
        names = ["X", "Y"] if declaration.arity == 2 else [f"X{index}" for index in range(1, declaration.arity + 1)]
        pattern = f"{quote(declaration.name)}({', '.join(names)})"
        if declaration.classes is not None:
            pattern += f" in {{{', '.join(map(quote, declaration.classes))}}}"
        items.append(f'<li><a href="{escape(address("/ask", q=pattern))}">{logic_html(pattern)}</a></li>')
    html("".join(items), tag="ul").classes("rw-cases rw-logic")


async def _show_answers(explorer: Explorer, text: str, start: int, inferred_only: bool) -> None:
    try:
        pattern = explorer.read_pattern(text)
        if not variables(pattern):
            await _show_explanation(explorer, pattern)
            return
        page = await asyncio.to_thread(explorer.ask, pattern, start=start, size=SIZE, inferred_only=inferred_only)
    except RulewrightError as error:
        fault(error)
        return
    if not explorer.is_ready:
        html("the rules are still being applied; inferred answers are of the version before").classes("rw-note")
    soft(f"{page.known:,} known and {page.inferred:,} inferred answers")
    if page.answers:
        _show_table(explorer, page)
    else:
        soft("No fact matches, and no rule gives one that does.")
    pager("/ask", page.start, SIZE, page.total, q=text, new=inferred_only or None)


def _show_table(explorer: Explorer, page: AnswerPage) -> None:
    with ui.element("table").classes("rw-table"):
        html("".join(f'<th scope="col">{name}</th>' for name in ("rank", "score", "answer")), tag="thead")
        with ui.element("tbody"):
            for rank, answer in enumerate(page.answers, start=page.start + 1):
                fact = answer.atom(explorer.full_kb)
                with ui.element("tr"):
                    html(str(rank), tag="td").classes("rw-number rw-narrow")
                    html(score_chip(answer.score), tag="td").classes("rw-narrow")
                    with ui.element("td"):
                        html(fact_html(fact, explorer.full_kb), tag="span").classes("rw-logic")
                        _show_why(explorer, fact)


def _show_why(explorer: Explorer, fact: Head) -> None:
    """Show a button that opens the proofs of a fact."""
    button = ui.button("why").props("flat dense no-caps aria-expanded=false")
    panel = ui.element("div")
    panel.set_visibility(False)

    async def toggle() -> None:
        panel.set_visibility(not panel.visible)
        button.props(f"aria-expanded={str(panel.visible).lower()}")
        if panel.visible and not panel.default_slot.children:
            with panel:
                await _show_explanation(explorer, fact)

    button.on_click(toggle)


async def _show_explanation(explorer: Explorer, fact: Head) -> None:
    try:
        explanation = await asyncio.to_thread(explorer.explain, fact)
    except RulewrightError as error:
        fault(error)
        return
    html(_explanation_html(explanation, explorer)).classes("rw-logic")


def _explanation_html(explanation: Explanation, explorer: Explorer) -> str:
    """Return proofs as trees, what they all rest on, or the rules that come nearest."""
    kb = explorer.full_kb
    status = {
        "known": "is known",
        "inferred": "is inferred",
        "false": "is observed to be false",
        "unknown": "does not follow",
    }[explanation.status]
    parts = [f"<p>{fact_html(explanation.fact, kb)} {status}</p>"]
    parts += [f'<ul class="rw-tree">{_proof_html(proof, explorer)}</ul>' for proof in explanation.proofs]
    if explanation.critical:
        parts.append(f"<p>rests on {', '.join(fact_html(fact, kb) for fact in explanation.critical)}</p>")
    for miss in explanation.why_not:
        rows = [f"<li>{fact_html(premise, kb)} holds</li>" for premise in miss.held]
        rows += [f'<li class="rw-error">{fact_html(premise, kb)} is missing</li>' for premise in miss.missing]
        parts.append(f"<p>nearest: {_rule_link(miss.rule_index, str(miss.source), explorer)}</p>")
        parts.append(f'<ul class="rw-tree">{"".join(rows)}</ul>')
    if explanation.note:
        parts.append(f"<p>({escape(explanation.note)})</p>")
    return "".join(parts)


def _proof_html(proof: Proof, explorer: Explorer) -> str:
    fact = fact_html(proof.fact, explorer.full_kb)
    if proof.source is None:
        return f"<li>{fact} {score_chip(None)}</li>"
    below = [_proof_html(premise, explorer) for premise in proof.premises]
    below += [f"<li>{fact_html(condition, explorer.full_kb)}</li>" for condition in proof.conditions]
    return (
        f"<li>{fact} {score_chip(proof.score, '.3g')}"
        f"<div>by {_rule_link(proof.rule_index, str(proof.source), explorer)}</div><ul>{''.join(below)}</ul></li>"
    )


def _rule_link(rule_index: int | None, text: str, explorer: Explorer) -> str:
    key = explorer.rule_key(rule_index)
    if key is None:
        return logic_html(text.split(" @{")[0])
    return f'<a href="/rule/{key}">{logic_html(explorer.book.get_entry(key).short)}</a>'
