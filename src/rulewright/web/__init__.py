"""The explorer: rules, facts and what follows from them, in a browser.

- ``rulebook``: a rule file while a person edits it
- ``lookup``: facts by entity and by pattern, and an entity among its neighbours
- ``inference``: what follows from the rules, and statistics of each, computed in threads
- ``explorer``: `Explorer`, all of that as plain values for the pages
- ``markup``: text, rules and neighbourhoods as HTML and SVG
- ``pages``: one file a page, with NiceGUI; ``layout`` has what they share
- ``server``: who may reach the pages, and the server itself
"""

from rulewright.web.explorer import Explorer

__all__ = ["Explorer"]
