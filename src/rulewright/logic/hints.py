"""What is told of a token that cannot stand where it does: what was found, and how what was meant is written."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set

from rulewright.logic.tokens import BAD, COMMENT, FOREIGN, NUMBER_DIGITS, grammar, shorten, token_type

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


_OWN = {"_AND": "and", "COMMA": "and", "VBAR": "or", "SEMICOLON": "or", "_IMPLIES": "implies", "_IFF": "exactly if"}
"""Signs of the rule language that stand in a rule or in a formula alone, and what they mean."""

_IN_BODIES = {"and": ",", "or": ";"}
_WRITTEN = {
    **{"and": "&", "or": "|", "not": "!", "implies": "=>", "exactly if": "<=>"},
    **{"equal": "=", "different": "!=", "at most": "<=", "at least": ">="},
}
_CONNECTIVES = frozenset({"_AND", "SEMICOLON", "_BY"})
_STANDS_WITH = {
    "not": frozenset({"_BANG"}),
    **dict.fromkeys(("and", "or", "implies", "exactly if"), _CONNECTIVES),
}
"""What could stand where a sign of this meaning can; a comparison otherwise."""

_NEEDS_WEIGHT = "a formula needs a weight, 'hard' or 'learn' before it"


def describe_mismatch(found: str, expected: Set[str], before: Sequence[str] = (), *, starts_line: bool = False) -> str:
    """Say what was found ("" for the end of the text), what is expected, and how to write what was probably meant.

    ``before`` are the tokens of the statement up to there; ``starts_line`` tells whether the next is the first of a
    line.

    >>> describe_mismatch("é", {"WORD"})
    "found 'é'; names that are not lower-case ASCII words are written in single quotes"
    >>> describe_mismatch(")", {"VARIABLE", "WORD", "QUOTED", "NUMBER"})
    "found ')', expected a name, a number or a variable"
    >>> describe_mismatch("->", {"_IMPLIES", "_AND", "_STOP"}, ["hard", "p", "(", "X", ")"])
    "found '->'; 'implies' is written '=>'"
    """
    shown, found_type = (_show(found), token_type(found)) if found else ("the end of the text", "$END")
    hint = _translate(found, found_type, expected, before)
    if hint:
        return f"found {shown}; {hint}"
    if found_type == BAD:
        return f"found {shown}; {_explain_bad_token(found)}"
    if lacks_stop(found, expected, starts_line=starts_line):
        return f"found {shown} at the start of a line; the statement before it lacks its full stop"
    return f"found {shown}" + (_hint(found_type, expected) or f", expected {_list_expected(expected)}")


def lacks_stop(found: str, expected: Set[str], *, starts_line: bool) -> bool:
    """Return whether a token seems to begin a statement while the one before it has no full stop."""
    begins = {"WORD", "QUOTED", "NUMBER", *_keywords()} - {"IN", "WHERE"}
    return starts_line and "_STOP" in expected and bool(found) and token_type(found) in begins


def _translate(found: str, found_type: str, expected: Set[str], before: Sequence[str]) -> str:
    """Say how that is written which other languages, or the other kind of statement, write as it was found."""
    if "@" in before:
        return ""  # of annotations
    in_body, has_weight = ":-" in before, bool(before) and token_type(before[0]) in ("NUMBER", "HARD", "LEARN")
    meaning = FOREIGN.get(found.lower()) or _OWN.get(found_type, "")
    last = [word.lower() for word in before[-3:]]
    if meaning not in _WRITTEN and "not" in (*last[-1:], last[0] if last[1:2] == ["("] else ""):
        return "'not' is written '!', as in !p(X)"
    if meaning not in _WRITTEN and last[-1:] == ["if"]:
        meaning = "if"
    if meaning == COMMENT:
        return "a comment starts with '%'"
    if meaning == "if":
        return "a rule is written 'head :- body.', a formula 'hard premise => conclusion.'"
    if meaning in ("implies", "exactly if") and in_body:
        return f"'{_WRITTEN[meaning]}' stands in a formula, which has no ':-' and a weight, 'hard' or 'learn' before it"
    if meaning in ("implies", "exactly if") and "::" in before:
        return "a rule with ':-' follows '::'; a formula takes its weight alone, as in 1.5 p(X) => q(X)."
    if not before and (found_type in ("_BANG", "LPAR") or meaning == "not"):
        return _NEEDS_WEIGHT + ("; 'not' is written '!'" if meaning else ", as in hard !p(X).")
    if meaning not in _WRITTEN or not expected & _STANDS_WITH.get(meaning, {"OPERATOR"}):
        return ""
    written = _IN_BODIES.get(meaning, _WRITTEN[meaning]) if in_body else _WRITTEN[meaning]
    where = (" in a rule's body" if in_body else " in a formula") if meaning in _IN_BODIES else ""
    if found == written:  # it is right but for the statement it stands in
        where, written = "", ""
    hint = f"'{meaning}' is written '{written}'{where}" if written else ""
    if not in_body and not has_weight and "_BY" in expected:
        return "; ".join(filter(None, [hint, f"{_NEEDS_WEIGHT}, a rule ':-' behind its head"]))
    return hint


def _explain_bad_token(token: str) -> str:
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
    if found == "AT" and "_STOP" in expected:
        return "; annotations follow the full stop, as in p(X) :- q(X). @{support: 3}"
    if "WORD" in expected and found in _keywords():
        return ", a reserved word; as a name it is written in quotes"
    if "WORD" in expected and found in ("VARIABLE", "NUMBER"):
        return "; as a name it is written in quotes, for names start lower-case"
    return ""


def _keywords() -> dict[str, str]:
    return {name: text for text, name in grammar().fixed.items() if text.isalpha()}


def _list_expected(expected: Set[str]) -> str:
    spelling = {name: f"'{text}'" for text, name in grammar().fixed.items()}
    hidden = {"QUOTED", *_keywords()} if "WORD" in expected else set()
    words = sorted(_WORDS.get(name) or spelling.get(name, name) for name in expected - hidden)
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]]))


def _show(token: str) -> str:
    short = shorten(token, 30)
    if not short.isprintable():
        return repr(short)
    return short if short[0] == "'" else f"'{short}'"
