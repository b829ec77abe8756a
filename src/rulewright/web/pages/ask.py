"""Patterns and their answers, ranked, each with its proofs."""

from __future__ import annotations

import asyncio
from html import escape

from nicegui import ui

from rulewright.errors import RulewrightError
from rulewright.logic import Atom, Head, Membership, Number, Symbol, quote, variables
from rulewright.reason import Explanation, Proof
from rulewright.web.explorer import AnswerPage, Explorer
from rulewright.web.fact_lookup import Found
from rulewright.web.markup import logic_html
from rulewright.web.pages.layout import address, fact_html, fault, frame, heading, html, pager, soft

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
            only = ui.checkbox("inferred answers only", value=new)

            def go() -> None:
                ui.navigate.to(address("/ask", q=field.value or "", new=only.value or None))

            field.on("keydown.enter", go)
            only.on_value_change(go)
            if not q.strip():
                _suggestions(explorer)
                return
            await _answers(explorer, q, start, new)


def _suggestions(explorer: Explorer) -> None:
    soft("Predicates with facts or rules:")
    kb = explorer.inference.outcome.index.kb
    items = []
    for declaration in [*kb.predicates.values()][:200]:
        names = [f"X{place}" for place in range(1, declaration.arity + 1)] if declaration.arity != 2 else ["X", "Y"]
        pattern = f"{quote(declaration.name)}({', '.join(names)})"
        if declaration.classes is not None:
            pattern += f" in {{{', '.join(map(quote, declaration.classes))}}}"
        items.append(f'<li><a href="{escape(address("/ask", q=pattern))}">{logic_html(pattern)}</a></li>')
    html("".join(items), tag="ul").classes("rw-cases rw-logic")


async def _answers(explorer: Explorer, text: str, start: int, new: bool) -> None:
    try:
        pattern = explorer.pattern(text)
        if not variables(pattern):
            await _explanation(explorer, pattern)
            return
        page = await asyncio.to_thread(explorer.ask, pattern, start=start, size=SIZE, inferred_only=new)
    except RulewrightError as error:
        fault(error)
        return
    if not explorer.ready:
        html("the rules are still being applied; inferred answers are of the version before").classes("rw-note")
    soft(f"{page.known:,} known and {page.inferred:,} inferred answers")
    _table(explorer, page)
    pager("/ask", page.start, SIZE, page.total, q=text, new=new or None)


def _table(explorer: Explorer, page: AnswerPage) -> None:
    if not page.answers:
        soft("No fact matches, and no rule gives one that does.")
        return
    kb = explorer.inference.outcome.index.kb
    with ui.element("table").classes("rw-table"):
        names = ("rank", "score", "answer")
        html("".join(f'<th scope="col">{name}</th>' for name in names), tag="thead")
        with ui.element("tbody"):
            for place, answer in enumerate(page.answers, start=page.start + 1):
                fact = _fact(answer, explorer)
                with ui.element("tr"):
                    html(str(place), tag="td").classes("rw-number rw-narrow")
                    html(_score_html(answer), tag="td").classes("rw-narrow")
                    with ui.element("td"):
                        html(fact_html(fact, kb), tag="span").classes("rw-logic")
                        _why(explorer, fact)


def _fact(found: Found, explorer: Explorer) -> Head:
    declaration = explorer.inference.outcome.index.kb.predicate(found.predicate)
    values = found.args if declaration.classes is None else found.args[:-1]
    atom = Atom(found.predicate, tuple(Symbol(each) if isinstance(each, str) else Number(each) for each in values))
    return atom if declaration.classes is None else Membership(atom, (str(found.args[-1]),))


def _score_html(found: Found) -> str:
    if found.known:
        return '<span class="rw-chip rw-chip-known">known</span>'
    return f'<span class="rw-chip rw-chip-inferred">{found.score:.3f}</span>'


def _why(explorer: Explorer, fact: Head) -> None:
    """Show the proofs when they are asked for."""
    button = ui.button("why").props("flat dense no-caps aria-expanded=false")
    place = ui.element("div")
    place.set_visibility(False)

    async def turn() -> None:
        place.set_visibility(not place.visible)
        button.props(f"aria-expanded={str(place.visible).lower()}")
        if place.visible and not place.default_slot.children:
            with place:
                await _explanation(explorer, fact)

    button.on_click(turn)


async def _explanation(explorer: Explorer, fact: Head) -> None:
    try:
        found = await asyncio.to_thread(explorer.explain, fact)
    except RulewrightError as error:
        fault(error)
        return
    html(explanation_html(found, explorer)).classes("rw-logic")


def explanation_html(found: Explanation, explorer: Explorer) -> str:
    """Return proofs as trees, what they all rest on, or the rules that come nearest."""
    kb = explorer.inference.outcome.index.kb
    told = {
        "known": "is known",
        "inferred": "is inferred",
        "false": "is observed to be false",
        "unknown": "does not follow",
    }
    parts = [f"<p>{fact_html(found.fact, kb)} {told[found.status]}</p>"]
    for proof in found.proofs:
        parts.append(f'<ul class="rw-tree">{_proof_html(proof, explorer)}</ul>')
    if found.critical:
        parts.append(f"<p>rests on {', '.join(fact_html(each, kb) for each in found.critical)}</p>")
    for miss in found.why_not:
        rows = [f"<li>{fact_html(each, kb)} holds</li>" for each in miss.held]
        rows += [f'<li class="rw-error">{fact_html(each, kb)} is missing</li>' for each in miss.missing]
        parts.append(f"<p>nearest: {_rule_link(miss.number, str(miss.source), explorer)}</p>")
        parts.append(f'<ul class="rw-tree">{"".join(rows)}</ul>')
    if found.note:
        parts.append(f"<p>({escape(found.note)})</p>")
    return "".join(parts)


def _proof_html(proof: Proof, explorer: Explorer) -> str:
    kb = explorer.inference.outcome.index.kb
    if proof.source is None:
        return f'<li>{fact_html(proof.fact, kb)} <span class="rw-chip rw-chip-known">known</span></li>'
    below = [_proof_html(each, explorer) for each in proof.premises]
    below += [f"<li>{fact_html(each, kb)}</li>" for each in proof.conditions]
    return (
        f'<li>{fact_html(proof.fact, kb)} <span class="rw-chip rw-chip-inferred">{proof.score:.3g}</span>'
        f"<div>by {_rule_link(proof.number, str(proof.source), explorer)}</div><ul>{''.join(below)}</ul></li>"
    )


def _rule_link(number: int | None, text: str, explorer: Explorer) -> str:
    key = explorer.key_of(number)
    if key is None:
        return logic_html(text.split(" @{")[0])
    return f'<a href="/rule/{key}">{logic_html(explorer.book.entry(key).short)}</a>'
