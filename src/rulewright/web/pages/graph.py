"""An entity among its neighbours: known facts solid, inferred ones dashed, each neighbour a step further."""

from __future__ import annotations

import asyncio
from html import escape

from nicegui import ui

from rulewright.errors import DataError, RulewrightError
from rulewright.logic import Atom, Symbol, Variable
from rulewright.web.explorer import Explorer
from rulewright.web.lookup import Neighbourhood, RelationGroup, name_entity
from rulewright.web.markup import name_html, neighbourhood_picture, shown
from rulewright.web.pages.layout import (
    address,
    entity_address,
    fact_html,
    fault,
    frame,
    heading,
    html,
    link_html,
    score_chip,
    soft,
)

RELATIONS = 6
PER_RELATION = 4
_OTHERS = 30  # facts that are no arrows


def register(explorer: Explorer) -> None:
    """Make the page known."""

    @ui.page("/graph", response_timeout=4 * explorer.seconds)
    async def page(
        entity: int = -1, score: float = 0.5, guesses: bool = True, relation: str = "", skip: int = 0
    ) -> None:
        with frame(explorer, "Graph", "/graph"):
            _show_search(explorer)
            try:
                type_name, name = _choose_entity(explorer, entity)
                neighbourhood = await asyncio.to_thread(
                    explorer.find_neighbourhood,
                    name,
                    type_name,
                    min_score=score,
                    inferred=guesses,
                    per_relation=PER_RELATION,
                    relations=RELATIONS,
                    skip=max(skip, 0),
                    containing=relation[:500],
                )
            except RulewrightError as error:
                fault(error)
                return
            entity_index = explorer.kb.domains[type_name].find(name)
            ui.page_title(f"{shown(name, 40)} · Rulewright")
            _show_choices(entity_index, score, guesses, relation)
            _show_picture(explorer, neighbourhood)
            target = address("/graph", entity=entity_index, score=score, guesses=guesses, relation=relation)
            links = [("relations before", max(skip - RELATIONS, 0))] if skip > 0 else []
            if neighbourhood.hidden_groups:
                links.append((f"{neighbourhood.hidden_groups:,} more relations", skip + RELATIONS))
            html(" · ".join(link_html(text, f"{target}&skip={new_skip}") for text, new_skip in links))
            _show_others(explorer, neighbourhood)


def _choose_entity(explorer: Explorer, entity_index: int) -> tuple[str, str]:
    """Return type and name of an entity; of the most mentioned one where the index is below 0."""
    chosen = explorer.most_mentioned() if entity_index < 0 else name_entity(explorer.kb, entity_index)
    if chosen is None:
        raise DataError("the facts name no entity" if entity_index < 0 else f"there is no entity number {entity_index}")
    return chosen


def _show_search(explorer: Explorer) -> None:
    results = None

    def search(event: object) -> None:
        text = getattr(event, "value", None) or ""
        try:
            entities = explorer.search(text)
        except RulewrightError as error:
            entities = []
            ui.notify(str(error), type="negative")
        items = "".join(
            f'<li><a href="{escape(entity_address(explorer.kb, type_name, name))}">{name_html(name)}</a> '
            f'<span class="rw-soft">{escape(type_name)}</span></li>'
            for type_name, name in entities
        )
        assert results is not None
        results.content = items or ("<li>no entity has this in its name</li>" if text.strip() else "")

    ui.input("Find an entity (press /)", on_change=search).props(
        'outlined dense clearable debounce=150 type="search"'
    ).classes("rw-search").style("width: 100%")
    results = html("", tag="ul").classes("rw-cases").props('aria-label="entities found"')


def _show_choices(entity: int | None, score: float, guesses: bool, relation: str) -> None:
    def go(**changes: object) -> None:
        chosen: dict[str, object] = {"entity": entity, "score": score, "guesses": guesses, "relation": relation}
        ui.navigate.to(address("/graph", **{**chosen, **changes}))

    with ui.element("div").classes("rw-tools"):
        ui.checkbox("inferred facts", value=guesses, on_change=lambda event: go(guesses=event.value))
        ui.select(
            {0.0: "any score", 0.25: "score ≥ 0.25", 0.5: "score ≥ 0.5", 0.75: "score ≥ 0.75", 0.9: "score ≥ 0.9"},
            value=min((0.0, 0.25, 0.5, 0.75, 0.9), key=lambda bound: abs(bound - score)),
            on_change=lambda event: go(score=event.value),
        ).props('outlined dense aria-label="least score"')
        field = ui.input("Only relations with", value=relation).props("outlined dense clearable")
        field.on("keydown.enter", lambda: go(relation=field.value or ""))
        html('<span class="rw-chip rw-chip-known">known</span> <span class="rw-chip rw-chip-inferred">inferred</span>')


def _show_picture(explorer: Explorer, neighbourhood: Neighbourhood) -> None:
    html(name_html(neighbourhood.name, 200), tag="h1").classes("rw-title")
    soft(f"{neighbourhood.known:,} known and {neighbourhood.inferred:,} inferred facts")
    if not explorer.is_ready:
        html("the rules are still being applied; inferred facts are of the version before").classes("rw-note")

    def more(group: RelationGroup) -> str:
        ends = (Symbol(neighbourhood.name), Variable("X"))
        return address("/ask", q=str(Atom(group.relation, ends if group.outgoing else ends[::-1])))

    if neighbourhood.groups:
        picture = neighbourhood_picture(neighbourhood, lambda *entity: entity_address(explorer.kb, *entity), more)
        html(picture).classes("rw-scroll")
    else:
        soft("No relation to show.")


def _show_others(explorer: Explorer, neighbourhood: Neighbourhood) -> None:
    if not neighbourhood.others:
        return
    heading("Other facts", 2)
    rows = []
    for fact in neighbourhood.others[:_OTHERS]:
        text = fact_html(fact.atom(explorer.full_kb), explorer.full_kb)
        rows.append(f"<li>{text}</li>" if fact.is_known else f"<li>{text} {score_chip(fact.score, '.2f')}</li>")
    html("".join(rows), tag="ul").classes("rw-cases rw-logic")
    left = max(len(neighbourhood.others) - _OTHERS, 0) + neighbourhood.hidden_others
    if left:
        soft(f"and {left:,} more")
