"""The pages of the explorer: what the model says, shown with NiceGUI."""

from __future__ import annotations

from rulewright.web.explorer import Explorer


def register(explorer: Explorer) -> None:
    """Make the pages known to the server."""
    from rulewright.web.pages import ask, graph, injection, rule, rules

    for page in (rules, rule, graph, ask, injection):
        page.register(explorer)
