"""An entity among its neighbours: known facts solid, inferred ones dashed, each neighbour a step further."""

from __future__ import annotations

import asyncio
from html import escape

from nicegui import ui

from rulewright.errors import DataError, RulewrightError
from rulewright.logic import Atom, Number, Symbol, Variable
from rulewright.web.explorer import Explorer
from rulewright.web.fact_lookup import Found
from rulewright.web.markup import name_html, shown
from rulewright.web.neighbourhood import Group, Neighbourhood
from rulewright.web.pages.layout import address, entity_address, fact_html, fault, frame, heading, html, soft
from rulewright.web.pictures import neighbourhood_picture

GROUPS = 6
EACH = 4
_OTHERS = 30  # facts that are no arrows


def register(explorer: Explorer) -> None:
    """Make the page known."""

    @ui.page("/graph", response_timeout=4 * explorer.seconds)
    async def page(
        entity: int = -1, score: float = 0.5, guesses: bool = True, relation: str = "", skip: int = 0
    ) -> None:
        with frame(explorer, "Graph", "/graph"):
            _search(explorer)
            try:
                kind, name = _chosen(explorer, entity)
                found = await asyncio.to_thread(
                    explorer.neighbourhood,
                    name,
                    kind,
                    min_score=score,
                    inferred=guesses,
                    each=EACH,
                    groups=GROUPS,
                    skip=max(skip, 0),
                    containing=relation[:500],
                )
            except RulewrightError as error:
                fault(error)
                return
            number = explorer.kb.domains[kind].find(name)
            ui.page_title(f"{shown(name, 40)} · Rulewright")
            _choices(number, score, guesses, relation)
            _picture(explorer, found)
            _more(found, entity=number, score=score, guesses=guesses, relation=relation, skip=skip)
            _others(explorer, found)


def _chosen(explorer: Explorer, entity: int) -> tuple[str, str]:
    if entity < 0:
        start = explorer.start()
        if start is None:
            raise DataError("the facts name no entity")
        return start
    for kind, domain in explorer.kb.domains.items():
        if domain.start <= entity < domain.start + len(domain):
            return kind, str(domain.labels_of(entity))
    raise DataError(f"there is no entity number {entity}")


def _search(explorer: Explorer) -> None:
    results = None

    def look(event: object) -> None:
        text = getattr(event, "value", None) or ""
        try:
            found = explorer.search(text)
        except RulewrightError as error:
            found = []
            ui.notify(str(error), type="negative")
        items = "".join(
            f'<li><a href="{escape(entity_address(explorer.kb, kind, name))}">{name_html(name)}</a> '
            f'<span class="rw-soft">{escape(kind)}</span></li>'
            for kind, name in found
        )
        assert results is not None
        results.content = items or ("<li>no entity has this in its name</li>" if text.strip() else "")

    ui.input("Find an entity (press /)", on_change=look).props(
        'outlined dense clearable debounce=150 type="search"'
    ).classes("rw-search").style("width: 100%")
    results = html("", tag="ul").classes("rw-cases").props('aria-label="entities found"')


def _choices(entity: int | None, score: float, guesses: bool, relation: str) -> None:
    def go(**changes: object) -> None:
        chosen: dict[str, object] = {"entity": entity, "score": score, "guesses": guesses, "relation": relation}
        ui.navigate.to(address("/graph", **{**chosen, **changes}))

    with ui.element("div").classes("rw-tools"):
        ui.checkbox("inferred facts", value=guesses, on_change=lambda event: go(guesses=event.value))
        ui.select(
            {0.0: "any score", 0.25: "score ≥ 0.25", 0.5: "score ≥ 0.5", 0.75: "score ≥ 0.75", 0.9: "score ≥ 0.9"},
            value=min((0.0, 0.25, 0.5, 0.75, 0.9), key=lambda each: abs(each - score)),
            on_change=lambda event: go(score=event.value),
        ).props('outlined dense aria-label="least score"')
        field = ui.input("Only relations with", value=relation).props("outlined dense clearable")
        field.on("keydown.enter", lambda: go(relation=field.value or ""))
        html('<span class="rw-chip rw-chip-known">known</span> <span class="rw-chip rw-chip-inferred">inferred</span>')


def _picture(explorer: Explorer, found: Neighbourhood) -> None:
    html(name_html(found.name, 200), tag="h1").classes("rw-title")
    soft(f"{found.known:,} known and {found.inferred:,} inferred facts")
    if not explorer.ready:
        html("the rules are still being applied; inferred facts are of the version before").classes("rw-note")

    def more(group: Group) -> str:
        ends = (Symbol(found.name), Variable("X"))
        return address("/ask", q=str(Atom(group.relation, ends if group.outgoing else ends[::-1])))

    if found.groups:
        drawn = neighbourhood_picture(found, lambda kind, name: entity_address(explorer.kb, kind, name), more)
        html(drawn).classes("rw-scroll")
    else:
        soft("No relation to show.")


def _more(found: Neighbourhood, **values: object) -> None:
    skip = int(str(values.pop("skip")))
    links = []
    if skip > 0:
        links.append(("relations before", max(skip - GROUPS, 0)))
    if found.hidden_groups:
        links.append((f"{found.hidden_groups:,} more relations", skip + GROUPS))
    html(
        " · ".join(
            f'<a href="{escape(address("/graph", **values, skip=place))}">{escape(name)}</a>' for name, place in links
        )
    )


def _others(explorer: Explorer, found: Neighbourhood) -> None:
    if not found.others:
        return
    heading("Other facts", 2)
    rows = "".join(f"<li>{_other_html(explorer, fact)}</li>" for fact in found.others[:_OTHERS])
    html(rows, tag="ul").classes("rw-cases rw-logic")
    left = max(len(found.others) - _OTHERS, 0) + found.hidden_others
    if left:
        soft(f"and {left:,} more")


def _other_html(explorer: Explorer, fact: Found) -> str:
    kb = explorer.inference.outcome.index.kb
    declaration = kb.predicate(fact.predicate)
    values = fact.args if declaration.classes is None else fact.args[:-1]
    terms = tuple(Symbol(value) if isinstance(value, str) else Number(value) for value in values)
    shown = fact_html(Atom(fact.predicate, terms), kb)
    if declaration.classes is not None:
        shown += f" in {{{name_html(str(fact.args[-1]))}}}"
    return shown if fact.known else f'{shown} <span class="rw-chip rw-chip-inferred">{fact.score:.2f}</span>'
