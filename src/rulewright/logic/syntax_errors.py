"""What to tell a person about a token that cannot stand where it stands."""

from __future__ import annotations

import re
from collections.abc import Set

from rulewright.logic.lexer import BAD, NUMBER_DIGITS, grammar, kind

_WORDS = {
    "_STOP": "'.'",
    "NUMBER": "a number",
    "VARIABLE": "a variable",
    "HOLE": "a predicate variable like ?P",
    "WORD": "a name",
    "OPERATOR": "a comparison",
    "$END": "the end",
}
_UNKNOWN_ESCAPE = re.compile(r"(?:[^\\]|\\['\\ntr]|\\u[0-9a-fA-F]{4})*+(\\u.{0,4}|\\.)")


def explain(found: str, expected: Set[str]) -> str:
    """Say what was found ("" for the end of the text), what is expected, and how to write what was probably meant.

    >>> explain("é", {"WORD"})
    "found 'é'; names that are not lower-case ASCII words are written in single quotes"
    >>> explain(")", {"VARIABLE", "WORD", "QUOTED", "NUMBER"})
    "found ')', expected a name, a number or a variable"
    """
    shown, found_kind = (_shown(found), kind(found)) if found else ("the end of the text", "$END")
    if found_kind == BAD:
        return f"found {shown}; {_what_is_bad(found)}"
    return f"found {shown}" + (_hint(found_kind, expected) or f", expected {_listed(expected)}")


def _what_is_bad(token: str) -> str:
    if token[0] == "'":
        escape = _UNKNOWN_ESCAPE.match(token)
        if escape is None or token[-1] != "'":
            return "a quoted name must end on the line it starts on"
        return rf"unknown escape {escape[1]} in a quoted name, allowed are \' \\ \n \t \r \uXXXX"
    if grammar().patterns["NUMBER"].fullmatch(token):
        return f"a number has at most {NUMBER_DIGITS} characters and lies between -1.79e308 and 1.79e308"
    if token[0] == ".":
        return "a full stop stands before white space, '%' or the end of the text"
    if token == '"' or token.isalpha():
        return "names that are not lower-case ASCII words are written in single quotes"
    return "it has no meaning here outside of quotes"


def _hint(found: str, expected: Set[str]) -> str:
    if found in ("_STOP", "$END") and "_BY" in expected:
        return "; a rule needs ':-' and a body, facts live in fact files and not among rules"
    if found == "_BY" and "_IFF" in expected:
        return " after a weight; a rule's confidence is followed by '::', a weighted formula has '=>'"
    if found == "_WITH":
        return "; a confidence stands before a rule, as in 0.9 :: p(X) :- q(X)."
    if found == "LPAR" and expected == {"OPERATOR"}:
        return " after a variable; a predicate that starts upper-case is written in quotes, as in 'P17'(X, Y)"
    if "WORD" in expected and found in _keywords():
        return ", a reserved word; as a name it is written in quotes"
    if "WORD" in expected and found in ("VARIABLE", "NUMBER"):
        return "; as a name it is written in quotes, for names start lower-case"
    return ""


def _keywords() -> dict[str, str]:
    return {name: text for text, name in grammar().fixed.items() if text.isalpha()}


def _listed(expected: Set[str]) -> str:
    spelling = {name: f"'{text}'" for text, name in grammar().fixed.items()}
    hidden = {"QUOTED", *_keywords()} if "WORD" in expected else set()
    words = sorted(_WORDS.get(each) or spelling.get(each, each) for each in expected - hidden)
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def shortened(text: str, limit: int) -> str:
    """Return a text cut to so many characters.

    >>> shortened("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _shown(token: str) -> str:
    short = shortened(token, 30)
    if not short.isprintable():
        return repr(short)
    return short if short[0] == "'" else f"'{short}'"
