"""For the site: examples in docstrings (``>>>`` lines and what they print) become fenced blocks of code."""

from __future__ import annotations

from typing import Any

import griffe


class FenceExamples(griffe.Extension):
    """Fences every example of every docstring before it is rendered."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fence(obj.docstring.value)


def fence(text: str) -> str:
    """Put a fence around each example; it ends at the next blank line."""
    lines: list[str] = []
    is_inside = False
    for line in [*text.splitlines(), ""]:
        if not is_inside and line.lstrip().startswith(">>>"):
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}```pycon")
            is_inside = True
        elif is_inside and not line.strip():
            lines.append(f"{indent}```")
            is_inside = False
        lines.append(line)
    return "\n".join(lines).rstrip("\n")
