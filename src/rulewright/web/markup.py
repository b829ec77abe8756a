"""Text from data as HTML: escaped, with nothing hidden, and each name kept apart from the text around it."""

from __future__ import annotations

import re
from html import escape

from rulewright.logic.parser import shorten

# What no one sees, what ends a line, what turns the direction of a line, and halves of characters
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)
_TOKEN = re.compile(
    r"(?P<name>'(?:[^'\\]|\\.)*+')|(?P<number>-?\b\d+(?:\.\d+)?(?:[eE][+-]?\d+)?\b)|(?P<variable>\??\b[A-Z_]\w*\b)"
    r"|(?P<word>\b[a-z]\w*\b)|(?P<sign>:-|::|=>|<=>|[!&|;])|(?P<other>\s+|.)",
    re.DOTALL,
)


def shown(name: str, limit: int = 60) -> str:
    r"""Return a name for people to read: what cannot be seen is written out, and long names are cut.

    >>> print(shown("a\u202eb"), shown("x" * 9, 5), shown(""))
    a\u202eb xxxx… ''
    """
    return shorten(_HIDDEN.sub(lambda found: f"\\u{ord(found.group()):04x}", name), limit) or "''"


def name_html(name: str, limit: int = 60) -> str:
    """Return a name as HTML, kept apart so that its direction cannot change the order of what stands beside it."""
    return f"<bdi>{escape(shown(name, limit))}</bdi>"


def logic_html(text: str) -> str:
    """Return a text of the rule language as HTML with its parts marked.

    >>> logic_html("p('<b>')")
    '<span class="rw-predicate">p</span>(<bdi class="rw-name">&#x27;&lt;b&gt;&#x27;</bdi>)'
    """
    return "".join(_marked(found, text) for found in _TOKEN.finditer(text))


def _marked(found: re.Match[str], text: str) -> str:
    kind, token = found.lastgroup or "other", found.group()
    if kind == "other":
        return escape(token)
    if kind in ("name", "word") and text[found.end() : found.end() + 1] == "(":
        kind = "predicate"
    elif kind == "word":
        kind = "name"
    tag = "bdi" if token.startswith("'") or kind == "name" else "span"
    return f'<{tag} class="rw-{kind}">{escape(shown(token, len(text) * 6))}</{tag}>'


def bar_html(support: int, against: int) -> str:
    """Return a bar of examples against counterexamples.

    >>> bar_html(3, 1).count("<span")
    2
    """
    total = max(support + against, 1)
    share = 100 * support / total
    told = f"{support:,} examples, {against:,} counterexamples"
    return (
        f'<div class="rw-bar" role="img" aria-label="{told}" title="{told}">'
        f'<span class="rw-for" style="width:{share:.2f}%"></span>'
        f'<span class="rw-against" style="width:{100 - share if support + against else 0:.2f}%"></span></div>'
    )
