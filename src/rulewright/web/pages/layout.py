"""What all pages share: the header, links between pages, and how errors are shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from urllib.parse import urlencode

from nicegui import ui
from nicegui.events import GenericEventArguments

from rulewright.data import KnowledgeBase
from rulewright.errors import RulewrightError
from rulewright.logic import Atom, Formula, Membership, Not, Symbol, Term, quote
from rulewright.logic.english import short_name
from rulewright.web.explorer import Explorer
from rulewright.web.markup import logic_html, name_html, shown

PAGES = {"/": "Rules", "/graph": "Graph", "/ask": "Ask", "/injection": "Injection"}
THEME = "rulewright-theme"

_SHORTCUTS = """
document.addEventListener('keydown', event => {
  const typing = event.target.closest('input, textarea, [contenteditable]');
  if (event.key === '/' && !typing) {
    const field = document.querySelector('.rw-search input, .rw-search textarea');
    if (field) { event.preventDefault(); field.focus(); field.select(); }
  }
});
"""


# What is shown now only the browser knows, where the machine's setting decides; it keeps the choice at once,
# so that a page opened right after already has it.
_TURN_THEME = f"""() => {{
  const dark = !document.body.classList.contains('body--dark');
  document.cookie = `{THEME}=${{dark ? 'dark' : 'light'}}; path=/; SameSite=Strict; max-age=31536000`;
  emit(dark);
}}"""


@contextmanager
def frame(explorer: Explorer, title: str, path: str) -> Iterator[None]:
    """Build the header and, inside, the page."""
    ui.page_title(f"{title} · Rulewright")
    ui.add_css((Path(__file__).parents[1] / "style.css").read_text(encoding="utf-8"))
    ui.add_body_html(f"<script>{_SHORTCUTS}</script>")
    request = ui.context.client.request
    chosen = {"dark": True, "light": False}.get(request.cookies.get(THEME, "") if request else "")
    dark = ui.dark_mode(chosen)
    with ui.element("header").classes("rw-header"):
        html('<a class="rw-brand" href="/">Rulewright</a>')
        links = "".join(
            f'<a href="{target}"{" aria-current=page" if target == path else ""}>{name}</a>'
            for target, name in PAGES.items()
            if target != "/injection" or explorer.reports
        )
        html(f'<nav aria-label="Pages">{links}</nav>')
        status = ui.label(explorer.describe_status()).classes("rw-status").props('role="status"')
        ui.timer(1.0, lambda: status.set_text(explorer.describe_status()))

        def set_theme(event: GenericEventArguments) -> None:
            dark.value = event.args

        button = ui.button(icon="contrast").props('flat round dense aria-label="Light or dark"')
        button.on("click", set_theme, js_handler=_TURN_THEME)
    with ui.element("div").classes("rw-main"):
        yield


def html(content: str, tag: str = "div") -> ui.html:
    """Show HTML whose names have been escaped already."""
    return ui.html(content, sanitize=False, tag=tag)


def heading(text: str, level: int = 1) -> None:
    """Show a heading."""
    html(escape(text), tag=f"h{level}").classes("rw-title")


def soft(text: str) -> ui.label:
    """Show a remark."""
    return ui.label(text).classes("rw-soft")


def fault(error: RulewrightError | str) -> None:
    """Show what went wrong, in place of what was requested."""
    ui.label(str(error)).classes("rw-error").props('role="alert"')


def address(path: str, **values: object) -> str:
    """Return the address of a page; values that are None or empty are left out.

    >>> address("/ask", q="p(X, 'a&b')", start=0)
    '/ask?q=p%28X%2C+%27a%26b%27%29&start=0'
    """
    kept = {name: value for name, value in values.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path


def entity_address(kb: KnowledgeBase, type: str, name: str) -> str:
    """Return the address of an entity in the graph: by its index, for a name may hold anything."""
    return address("/graph", entity=kb.domains[type].find(name))


def link_html(text: str, target: str) -> str:
    """Return a link."""
    return f'<a href="{escape(target)}">{escape(text)}</a>'


def score_chip(score: float | None, form: str = ".3f") -> str:
    """Return the score of an inferred fact, or that it is known, as HTML."""
    if score is None:
        return '<span class="rw-chip rw-chip-known">known</span>'
    return f'<span class="rw-chip rw-chip-inferred">{score:{form}}</span>'


def fact_html(formula: Formula, kb: KnowledgeBase) -> str:
    """Return a ground atom, or a condition, as HTML in which every entity leads to the graph."""
    unit = formula.formula if isinstance(formula, Not) else formula
    if not isinstance(unit, Atom | Membership):
        return logic_html(str(formula))
    declared = kb.predicates.get(str(unit.predicate))
    types = ("",) * len(unit.args) if declared is None else declared.types
    args = [_term_html(term, type_name, kb) for term, type_name in zip(unit.args, types, strict=False)]
    name = str(unit.predicate)
    short = name_html(short_name(name) if short_name(name) != name else quote(name))
    title = escape(shown(name, 500))
    atom = f'<span class="rw-predicate" title="{title}">{short}</span>({", ".join(args)})'
    if isinstance(unit, Membership):
        atom += f" in {{{', '.join(map(name_html, unit.classes))}}}"
    return f"no {atom}" if isinstance(formula, Not) else atom


def _term_html(term: Term, type_name: str, kb: KnowledgeBase) -> str:
    if isinstance(term, Symbol) and type_name in kb.domains and kb.domains[type_name].find(term.name) is not None:
        return f'<a href="{escape(entity_address(kb, type_name, term.name))}">{name_html(term.name)}</a>'
    return logic_html(str(term))


def pager(path: str, start: int, size: int, total: int, **values: object) -> None:
    """Show which part of many is shown, with links to the parts before and after."""
    if total <= size and start == 0:
        return
    parts = [f"{start + 1:,} to {min(start + size, total):,} of {total:,}"]
    if start > 0:
        parts.append(link_html("previous", address(path, **values, start=max(start - size, 0))))
    if start + size < total:
        parts.append(link_html("next", address(path, **values, start=start + size)))
    html(" · ".join(parts)).classes("rw-soft")
