"""The table of rules: search, order, switch off, edit, add, save."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from html import escape

from nicegui import ui

from rulewright.errors import RulewrightError
from rulewright.logic import Rule, parse_statement
from rulewright.logic.english import english
from rulewright.web.explorer import SORTS, Explorer, RuleRow, Sort
from rulewright.web.markup import bar_html, logic_html, shown
from rulewright.web.pages.layout import fault, frame, heading, html, soft
from rulewright.web.rulebook import Entry


def editor(explorer: Explorer, key: int | None, done: Callable[[Entry], None]) -> None:
    """Show the text of a rule, or an empty one where ``key`` is None, and take it up when it can be read."""
    before = "" if key is None else explorer.book.get_entry(key).text
    draft = explorer.drafts.get(key, before)
    field = ui.textarea("Rule", value=draft).props(
        'outlined autogrow debounce=150 input-class="rw-logic" maxlength=5000'
    )
    field.classes("rw-editor").style("width: 100%")
    message = ui.label().classes("rw-soft").props('role="status"')

    def check() -> None:
        text = field.value or ""
        if text == before:
            explorer.drafts.pop(key, None)
        else:
            explorer.drafts[key] = text
        problem = explorer.find_problem(text, key) if text.strip() else "" if key is None else "a rule needs a text"
        message.text = problem or (english(parse_statement(text)) if text.strip() else "p(X, Y) :- q(X, Z), r(Z, Y).")
        message.classes(replace="rw-error" if problem else "rw-soft")
        button.set_enabled(not problem and bool(text.strip()) and text != before)

    def take() -> None:
        text = field.value or ""
        try:
            entry = explorer.add(text) if key is None else explorer.edit(key, text)
        except RulewrightError as error:
            message.text = str(error)
            message.classes(replace="rw-error")
            return
        noun = "rule" if isinstance(entry.statement, Rule) else "statement"
        ui.notify(f"The {noun} is taken up; the file is written with Save.")
        done(entry)

    button = ui.button("Add" if key is None else "Change", on_click=take).props("no-caps unelevated")
    field.on_value_change(check)
    check()


SIZE = 25


@dataclass(frozen=True)
class _View:
    """What one visitor has chosen."""

    search: str = ""
    sort: Sort = "file"
    descending: bool = False
    start: int = 0


def register(explorer: Explorer) -> None:
    """Make the page known."""

    @ui.page("/", title="Rulewright")
    def page(q: str = "", sort: str = "file", down: bool = False) -> None:
        view = _View(q[:500], sort if sort in SORTS else "file", down)
        with frame(explorer, "Rules", "/"):
            _RulesPage(explorer, view)


class _RulesPage:
    """The page for one visitor."""

    def __init__(self, explorer: Explorer, view: _View) -> None:
        self._explorer, self._view = explorer, view
        heading(f"Rules of {explorer.book.path.name}")
        self._show_tools()
        self._show_notes()
        self._show_table()
        self._seen = explorer.state
        ui.timer(1.0, self._follow)

    def _follow(self) -> None:
        """Show what changed meanwhile: counts that came in, or what another page did."""
        if self._explorer.state != self._seen:
            self._seen = self._explorer.state
            self._show_notes.refresh()
            self._show_table.refresh()

    def _change_view(self, view: _View) -> None:
        self._view = view
        self._show_table.refresh()

    def _show_tools(self) -> None:
        view = self._view
        with ui.element("div").classes("rw-tools"):
            ui.input(
                "Search (press /)",
                value=view.search,
                on_change=lambda event: self._change_view(replace(self._view, search=event.value or "", start=0)),
            ).props('outlined dense clearable debounce=200 type="search"').classes("rw-search rw-wide")
            ui.select(
                list(SORTS),
                label="Order by",
                value=view.sort,
                on_change=lambda event: self._change_view(replace(self._view, sort=event.value, start=0)),
            ).props("outlined dense")
            ui.checkbox(
                "descending",
                value=view.descending,
                on_change=lambda event: self._change_view(replace(self._view, descending=event.value, start=0)),
            )
            ui.button("Add a rule", on_click=lambda: self._edit(None)).props("no-caps outline")
            ui.button("Save", on_click=self._save).props("no-caps unelevated")
            ui.button("Reload", on_click=self._reload).props("no-caps flat")

    @ui.refreshable_method
    def _show_notes(self) -> None:
        current = self._explorer.inference.current
        notes = [current.error, current.note]
        notes += [f"broken {count:,} times: {formula}" for formula, count in current.violations]
        if self._explorer.book.is_stale:
            notes.append("the file has changed on disk since it was read; Reload takes it up")
        if not self._explorer.book.is_editable:
            notes.append("this file is not in the rule language, and so cannot be saved; convert it first")
        for note in filter(None, notes):
            html(escape(note)).classes("rw-note")

    @ui.refreshable_method
    def _show_table(self) -> None:
        page = self._explorer.list_rules(**asdict(self._view), size=SIZE)
        if not page.rows:
            soft("No rule has these words." if self._view.search else "There is no rule yet.")
            return
        with ui.element("table").classes("rw-table"):
            number, rare = "rw-number", "rw-hide-small"
            names = [("no.", number), ("on", ""), ("rule", ""), ("confidence", number), ("support", number)]
            names += [("coverage", f"{number} {rare}"), ("for and against", rare), ("", "")]
            html("".join(f'<th scope="col" class="{css}">{name}</th>' for name, css in names), tag="thead")
            with ui.element("tbody"):
                for row in page.rows:
                    self._show_row(row)
        with ui.element("div").classes("rw-tools"):
            soft(f"{page.start + 1:,} to {page.start + len(page.rows):,} of {page.total:,}")
            ui.button(
                "previous", on_click=lambda: self._change_view(replace(self._view, start=max(page.start - SIZE, 0)))
            ).props("no-caps flat dense").set_enabled(page.start > 0)
            ui.button("next", on_click=lambda: self._change_view(replace(self._view, start=page.start + SIZE))).props(
                "no-caps flat dense"
            ).set_enabled(page.start + SIZE < page.total)

    def _show_row(self, row: RuleRow) -> None:
        key, counts = row.entry.key, row.counts
        with ui.element("tr").classes("" if row.entry.is_enabled else "rw-off"):
            html(f"{key + 1:,}", tag="td").classes("rw-number rw-soft")
            with ui.element("td"):
                ui.switch(value=row.entry.is_enabled, on_change=lambda event: self._switch(key, event.value)).props(
                    f'dense aria-label="rule {key + 1} on or off"'
                )
            link = f'<a class="rw-logic" href="/rule/{key}">{logic_html(row.entry.short)}</a>'
            html(f'{link}<div class="rw-soft">{escape(shown(row.words, 2_000))}</div>', tag="td")
            coverage = None if counts is None else counts.coverage
            figures = [
                ("" if row.confidence is None else f"{row.confidence:.3f}", "rw-number"),
                ("" if counts is None else f"{counts.support:,}", "rw-number"),
                ("" if coverage is None else f"{coverage:.1%}", "rw-number rw-hide-small"),
            ]
            for figure, css in figures:
                html(figure, tag="td").classes(css)
            waiting = "counting …" if row.statistics is None else shown(str(row.statistics), 200)
            bar = escape(waiting) if counts is None else bar_html(counts.support, counts.counterexamples)
            html(bar, tag="td").classes("rw-hide-small rw-soft")
            with ui.element("td"):
                ui.button(icon="edit", on_click=lambda: self._edit(key)).props(
                    f'flat round dense aria-label="edit rule {key + 1}"'
                )

    def _switch(self, key: int, enabled: bool) -> None:
        try:
            self._explorer.set_enabled(key, enabled)
        except RulewrightError as error:
            ui.notify(str(error), type="negative")
            self._show_table.refresh()

    def _edit(self, key: int | None) -> None:
        with ui.dialog() as dialog, ui.card().style("width: 46rem; max-width: 95vw; gap: .5rem"):
            heading("A new rule" if key is None else f"Rule {key + 1}", 2)

            def done(_: object) -> None:
                dialog.close()
                self._follow()

            editor(self._explorer, key, done)
            ui.button("Close", on_click=dialog.close).props("no-caps flat")
        dialog.open()

    def _save(self, *, overwrite: bool = False) -> None:
        book = self._explorer.book
        try:
            old = book.save(overwrite=overwrite)
            saved = "Saved over it; the other version is" if overwrite else "Saved; the version before is"
            ui.notify(f"{saved} {old.name}.", type="positive")
        except RulewrightError as error:
            if not overwrite and book.is_editable and book.differs_on_disk():
                reason = str(error)
                self._confirm(lambda: fault(reason), "Save over it", lambda: self._save(overwrite=True), "Leave it")
            else:
                ui.notify(str(error), type="negative")
        self._follow()

    def _reload(self) -> None:
        if self._explorer.book.is_changed:
            warning = "Changes that were not saved would be lost."
            self._confirm(lambda: ui.label(warning), "Reload", self._reload_now, "Keep them")
        else:
            self._reload_now()

    def _confirm(self, show: Callable[[], object], yes: str, action: Callable[[], None], no: str) -> None:
        with ui.dialog() as dialog, ui.card():
            show()

            def accept() -> None:
                dialog.close()
                action()

            with ui.element("div").classes("rw-tools"):
                ui.button(yes, on_click=accept).props("no-caps outline")
                ui.button(no, on_click=dialog.close).props("no-caps unelevated")
        dialog.open()

    def _reload_now(self) -> None:
        try:
            self._explorer.reload()
        except RulewrightError as error:
            ui.notify(str(error), type="negative")
        self._follow()
