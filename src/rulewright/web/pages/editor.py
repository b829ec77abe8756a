"""The editor of one rule: errors as one types, and a text that cannot be read yet is kept."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

from rulewright.errors import RulewrightError
from rulewright.logic import Rule, parse_statement
from rulewright.logic.english import english
from rulewright.web.explorer import Explorer
from rulewright.web.rulebook import Entry


def editor(explorer: Explorer, key: int | None, done: Callable[[Entry], None]) -> None:
    """Show the text of a rule, or an empty one where ``key`` is None, and take it up when it can be read."""
    before = "" if key is None else explorer.book.entry(key).text
    draft = explorer.drafts.get(key, before)
    field = ui.textarea("Rule", value=draft).props(
        'outlined autogrow debounce=150 input-class="rw-logic" maxlength=5000'
    )
    field.classes("rw-editor").style("width: 100%")
    told = ui.label().classes("rw-soft").props('role="status"')

    def check() -> None:
        text = field.value or ""
        if text == before:
            explorer.drafts.pop(key, None)
        else:
            explorer.drafts[key] = text
        problem = explorer.problem(text, key) if text.strip() else "" if key is None else "a rule needs a text"
        told.text = problem or (english(parse_statement(text)) if text.strip() else "p(X, Y) :- q(X, Z), r(Z, Y).")
        told.classes(replace="rw-error" if problem else "rw-soft")
        button.set_enabled(not problem and bool(text.strip()) and text != before)

    def take() -> None:
        text = field.value or ""
        try:
            entry = explorer.add(text) if key is None else explorer.edit(key, text)
        except RulewrightError as error:
            told.text = str(error)
            told.classes(replace="rw-error")
            return
        kind = "rule" if isinstance(entry.statement, Rule) else "statement"
        ui.notify(f"The {kind} is taken up; the file is written with Save.")
        done(entry)

    button = ui.button("Add" if key is None else "Change", on_click=take).props("no-caps unelevated")
    field.on_value_change(check)
    check()
