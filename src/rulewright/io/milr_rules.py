"""Published chain rules over relations, one to a line, as MILR and LogiRE write them.

Mined rules have their confidence, ``['in2', 'anti_gpe0'] -> in0-x : 0.98``; gold rules a number and none,
``24 ['in0', '~gpe0'] in0-x``. ``anti_r`` and ``~r`` both mean the inverse of ``r``.
"""

from __future__ import annotations

import math
import os
import re

from rulewright.errors import ParseError
from rulewright.files import read_text
from rulewright.logic import Chain, RuleSet, Step

_ITEM = r"""(?:'[^'\\]+'|"[^"\\]+")"""
_BODY = rf"\[\s*(?P<body>{_ITEM}(?:\s*,\s*{_ITEM})*)\s*\]"
_MINED = re.compile(rf"{_BODY}\s*->\s*(?P<head>\S+?)\s*:\s*(?P<confidence>[^\s:]+)")
_GOLD = re.compile(rf"(?:\d+\s+)?{_BODY}\s*(?:->)?\s*(?P<head>[^\s:]+)")
_INVERSES = ("anti_", "~")


def read(path: str | os.PathLike[str]) -> RuleSet:
    """Read a file of published chain rules, in the order of its lines."""
    return parse(read_text(path), file=os.fspath(path))


def parse(text: str, *, file: str | None = None) -> RuleSet:
    """Read the text of such a file; a line without a confidence has confidence 1.

    >>> print(parse("['in0', 'anti_gpe0'] -> in0-x : 0.98"))
    0.98 :: 'in0-x'(V0, V2) :- in0(V0, V1), gpe0(V2, V1).
    <BLANKLINE>
    >>> print(parse("5 ['~child_of'] parent_of").rules[0])
    parent_of(V0, V1) :- child_of(V1, V0).
    """
    rules = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        match = _MINED.fullmatch(line.strip()) or _GOLD.fullmatch(line.strip())
        if match is None:
            shown = line.strip() if len(line.strip()) <= 60 else f"{line.strip()[:59]}…"
            raise ParseError(
                f"expected ['a', 'anti_b'] -> c : 0.98 or 7 ['a', '~b'] c, got {shown!r}", file=file, line=number
            )
        body = tuple(_step(item[1:-1], file, number) for item in re.findall(_ITEM, match["body"]))
        chain = Chain.oriented(_step(match["head"], file, number), body)
        rules.append(chain.rule(_confidence(match.groupdict().get("confidence"), file, number)))
    if not rules:
        raise ParseError("no rules; expected lines such as ['a', 'anti_b'] -> c : 0.98", file=file)
    return RuleSet(rules)


def _step(name: str, file: str | None, line: int) -> Step:
    for prefix in _INVERSES:
        if name.startswith(prefix):
            if name == prefix:
                raise ParseError(
                    f"{name!r} names no relation; write {prefix}r for the inverse of r", file=file, line=line
                )
            return Step(name.removeprefix(prefix), inverse=True)
    return Step(name)


def _confidence(text: str | None, file: str | None, line: int) -> float:
    if text is None:
        return 1.0
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise ParseError(f"a confidence must be a number in [0, 1], got {text!r}", file=file, line=line)
    return value
