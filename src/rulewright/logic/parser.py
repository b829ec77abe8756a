"""Text to rules: the whole rule language, with errors that say where, what was found and what was expected.

A text is cut into statements and tokens by regular expressions, made of the terminals of the grammar.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from functools import lru_cache
from importlib.resources import files
from itertools import count
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias

from lark import Lark, Token
from lark.exceptions import UnexpectedToken
from lark.lexer import PatternStr

from rulewright.errors import DataError, ParseError
from rulewright.logic import rules as r
from rulewright.logic import terms as t
from rulewright.logic.ruleset import RuleSet, Usage

BAD = "BAD"
"""The type of a token that no terminal of the grammar describes, and of numbers out of range."""

NUMBER_DIGITS = 400
"""The greatest length of a number."""

# A quote that is not closed on its line, or holds an unknown escape, is one bad token too: were it skipped character
# by character, a long line of such quotes would be searched again from each of them.
_QUOTE = r"'(?:[^'\\\n]|\\.)*+'?"
_COMMENT = r"%[^\n]*"
_SKIPPED = re.compile(rf"(?:\s+|{_COMMENT})*+")
_UP_TO_STOP = re.compile(rf"(?:[^'%.]++|{_QUOTE}|{_COMMENT}|\.(?!\s|%|\Z))*+\.?")
_BRACE = re.compile(rf"{_QUOTE}|{_COMMENT}|[{{}}]")


class Grammar(NamedTuple):
    """The grammar as lark reads it, and what the scanner needs of its terminals."""

    lark: Lark
    fixed: dict[str, str]
    """The terminals with one spelling: text → name."""
    patterns: dict[str, re.Pattern[str]]
    """The other terminals: name → what matches them."""
    token: re.Pattern[str]
    """Matches one token, as its group 1, and the white space and comments behind it."""


@lru_cache(maxsize=1)
def grammar() -> Grammar:
    """Return the grammar, read on first use."""
    source = files("rulewright.logic").joinpath("grammar.lark").read_text(encoding="utf-8")
    starts = ["statement", "formula", "unit"]
    lark = Lark(source, parser="lalr", lexer="basic", start=starts, maybe_placeholders=True)
    terminals = [terminal for terminal in lark.terminals if terminal.name not in lark.ignore_tokens]
    fixed = {
        terminal.pattern.value: terminal.name for terminal in terminals if isinstance(terminal.pattern, PatternStr)
    }
    patterns = {
        terminal.name: re.compile(terminal.pattern.to_regexp())
        for terminal in terminals
        if terminal.pattern.value not in fixed
    }
    signs = sorted((text for text in fixed if not text.isalpha()), key=len, reverse=True)
    alternatives = [
        *(re.escape(sign) for sign in signs if len(sign) > 1),  # "<=>" before the comparison "<="
        *(pattern.pattern for pattern in patterns.values()),
        *(re.escape(sign) for sign in signs if len(sign) == 1),  # "!" after the comparison "!="
        *(_QUOTE, r"\w+", r"(?s:\.?.)"),  # what no terminal describes
    ]
    return Grammar(lark, fixed, patterns, re.compile(f"({'|'.join(alternatives)}){_SKIPPED.pattern}"))


@lru_cache(maxsize=1 << 16)
def token_type(token: str) -> str:
    """Return the name of the terminal that a token is, or `BAD`.

    >>> [token_type(token) for token in ("in", "inner", "Inner", "'in'", "3.5", "$")]
    ['IN', 'WORD', 'VARIABLE', 'QUOTED', 'NUMBER', 'BAD']
    """
    _, fixed, patterns, _ = grammar()
    if token in fixed:
        return fixed[token]
    name = next((name for name, pattern in patterns.items() if pattern.fullmatch(token)), BAD)
    in_range = name != "NUMBER" or (len(token) <= NUMBER_DIGITS and math.isfinite(float(token)))
    return name if in_range else BAD


def split_tokens(text: str, begin: int, end: int) -> list[str]:
    """Return the tokens of a part of a text; it must not start with white space or a comment.

    >>> split_tokens("p(X) :- q(X, 0.5).", 0, 18)
    ['p', '(', 'X', ')', ':-', 'q', '(', 'X', ',', '0.5', ')', '.']
    """
    tokens: list[str] = grammar().token.findall(text, begin, end)
    return tokens


def token_span(text: str, begin: int, end: int, position: int) -> tuple[int, int]:
    """Return where in the text the token at a position of `split_tokens` stands; past the last one, where that ends."""
    last = begin
    for index, match in enumerate(grammar().token.finditer(text, begin, end)):
        if index == position:
            return match.span(1)
        last = match.end(1)
    return last, last


def split_statements(text: str) -> Iterator[tuple[int, int]]:
    r"""Cut a text at its full stops into (begin, end); an annotation belongs to the statement before it.

    >>> text = "p(X) :- q(X, 0.5). @{n: 3}  % why\nhard r(X)."
    >>> [text[begin:end] for begin, end in split_statements(text)]
    ['p(X) :- q(X, 0.5). @{n: 3}', 'hard r(X).']
    """
    begin = skip_space(text, 0)
    while begin < len(text):
        statement = _UP_TO_STOP.match(text, begin)
        end = statement.end() if statement else begin
        next_begin = skip_space(text, end)
        if text.startswith("@", next_begin):
            end = _skip_braces(text, next_begin)
            next_begin = skip_space(text, end)
        yield begin, end
        begin = next_begin


def skip_space(text: str, position: int) -> int:
    """Return the next position that is neither white space nor comment."""
    skipped = _SKIPPED.match(text, position)
    return skipped.end() if skipped else position


def _skip_braces(text: str, position: int) -> int:
    depth = 0
    for match in _BRACE.finditer(text, position):
        depth += {"{": 1, "}": -1}.get(match.group(), 0)
        if match.group() == "}" and depth <= 0:
            return match.end()
    return len(text)


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """Return a position as line and column, both from 1."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


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


def describe_mismatch(found: str, expected: Set[str]) -> str:
    """Say what was found ("" for the end of the text), what is expected, and how to write what was probably meant.

    >>> describe_mismatch("é", {"WORD"})
    "found 'é'; names that are not lower-case ASCII words are written in single quotes"
    >>> describe_mismatch(")", {"VARIABLE", "WORD", "QUOTED", "NUMBER"})
    "found ')', expected a name, a number or a variable"
    """
    shown, found_type = (_show(found), token_type(found)) if found else ("the end of the text", "$END")
    if found_type == BAD:
        return f"found {shown}; {_explain_bad_token(found)}"
    return f"found {shown}" + (_hint(found_type, expected) or f", expected {_list_expected(expected)}")


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


def shorten(text: str, limit: int) -> str:
    """Return a text cut to so many characters.

    >>> shorten("abcdef", 4)
    'abc…'
    """
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _show(token: str) -> str:
    short = shorten(token, 30)
    if not short.isprintable():
        return repr(short)
    return short if short[0] == "'" else f"'{short}'"


# A deeper value could not be printed or compared within Python's own limit on recursion.
_MAX_DEPTH = 100

_UNESCAPED = {"\\'": "'", "\\\\": "\\", "\\n": "\n", "\\t": "\t", "\\r": "\r"}
_ESCAPE = re.compile(r"\\u[0-9a-fA-F]{4}|\\.", re.DOTALL)


def unquote(quoted: str) -> str:
    r"""Read a name in single quotes.

    >>> unquote(r"'it\'s'")
    "it's"
    """
    inner = quoted[1:-1]
    return _ESCAPE.sub(_unescape, inner) if "\\" in inner else inner


def _unescape(match: re.Match[str]) -> str:
    escape = match.group()
    if len(escape) == 6:
        return chr(int(escape[2:], 16))
    if escape not in _UNESCAPED:
        shown = escape if escape.isprintable() else ascii(escape)[1:-1]
        raise DataError(rf"unknown escape {shown} in a quoted name; allowed are \' \\ \n \t \r \uXXXX")
    return _UNESCAPED[escape]


class _Closed(str):
    """The name in a ``closed`` declaration."""


class _Build:
    """What each rule of the grammar becomes, given the tokens and values of its parts."""

    @staticmethod
    def name(token: str) -> str:
        return unquote(token) if token[0] == "'" else token

    variable = lru_cache(maxsize=4096)(t.Variable)
    symbol = lru_cache(maxsize=4096)(t.Symbol)

    @staticmethod
    def number(token: str) -> int | float:
        return float(token) if "." in token or "e" in token or "E" in token else int(token)

    @staticmethod
    def number_term(token: str) -> t.Number:
        return t.Number(_Build.number(token))

    @staticmethod
    def hole(token: str) -> t.PredicateVariable:
        return t.PredicateVariable(token[1:])

    @staticmethod
    def atom(predicate: str | t.PredicateVariable, *args: t.Term) -> t.Atom:
        return t.Atom(predicate, args)

    membership = t.Membership

    @staticmethod
    def comparison(left: t.Term, operator: t.Comparator, right: t.Term) -> t.Comparison:
        return t.Comparison(operator, left, right)

    negation = t.Not
    implies = t.Implies
    iff = t.Iff

    @staticmethod
    def conjoined(*parts: t.Formula) -> t.And:
        return t.And(parts)

    @staticmethod
    def disjunction(*parts: t.Formula) -> t.Or:
        return t.Or(parts)

    @staticmethod
    def conjunction(*parts: Any) -> tuple[Any, ...]:
        return parts

    names = domain = domains = conjunction

    @staticmethod
    def body(*alternatives: tuple[t.Formula, ...]) -> tuple[t.Formula, ...]:
        if len(alternatives) == 1:
            return alternatives[0]
        return (t.Or(tuple(map(_Build.group, alternatives))),)

    @staticmethod
    def group(parts: tuple[t.Formula, ...]) -> t.Formula:
        return parts[0] if len(parts) == 1 else t.And(parts)

    @staticmethod
    def rule(
        confidence: str | None, head: r.Head, body: tuple[t.Formula, ...], annotations: r.Annotations | None
    ) -> r.Rule:
        return r.Rule(head, body, 1.0 if confidence is None else float(confidence), annotations or r.Annotations())

    @staticmethod
    def weight(token: str) -> tuple[str, int | float | None]:
        return (token, None) if token in ("hard", "learn") else ("soft", _Build.number(token))

    @staticmethod
    def formula_statement(
        weight: tuple[Any, float | None], formula: t.Formula, annotations: r.Annotations | None
    ) -> r.WeightedFormula:
        return r.WeightedFormula(formula, *weight, annotations or r.Annotations())

    @staticmethod
    def any() -> None:
        return None

    @staticmethod
    def template(
        head: r.Head, body: tuple[t.Formula, ...], domains: tuple[Any, ...] | None, annotations: r.Annotations | None
    ) -> r.Template:
        return r.Template(head, body, domains or (), annotations or r.Annotations())

    @staticmethod
    def predicate(name: str, types: tuple[str, ...] | None, classes: tuple[str, ...] | None) -> r.PredicateDeclaration:
        return r.PredicateDeclaration(name, types or (), classes)

    closed = _Closed

    @staticmethod
    def word(token: str) -> str | bool:
        return token == "true" if token in ("true", "false") else token

    @staticmethod
    def listing(*values: object) -> tuple[object, ...]:
        return () if values == (None,) else values

    @staticmethod
    def pair(key: str, value: object) -> tuple[str, object]:
        return key, value

    @staticmethod
    def pair_with_negative(key: str, token: str) -> tuple[str, object]:
        if token[0] == "-":
            raise DataError(f"a number has one sign, got -{token}")
        return key, -_Build.number(token)

    @staticmethod
    def mapping(*pairs: tuple[str, object] | None) -> r.Annotations:
        items = {pair[0]: pair[1] for pair in pairs if pair is not None}
        if len(items) < len(pairs) and pairs != (None,):
            keys = [pair[0] for pair in pairs if pair is not None]
            raise DataError(f"annotation {next(key for key in keys if keys.count(key) > 1)} is given twice")
        return r.Annotations(items)


_Plan: TypeAlias = Callable[[Sequence[str]], Any]


class _UnexpectedError(Exception):
    """The token at this position cannot stand there; one of these types could."""

    def __init__(self, position: int, expected: set[str]) -> None:
        super().__init__(position)
        self.position, self.expected = position, expected


@lru_cache(maxsize=1024)
def _plan(start: str, types: tuple[str, ...]) -> _Plan:
    """Parse a statement given by the types of its tokens; return what builds its value from the tokens themselves.

    How a statement is to be read depends on the types alone, so that of all statements of one shape (there are
    many in a learned file) only the first is parsed.
    """
    reader = grammar().lark.parse_interactive(start=start)
    try:
        for position, name in enumerate(types):
            reader.feed_token(Token(name, "", start_pos=position))
        tree = reader.feed_token(Token("$END", "", start_pos=len(types)))
    except UnexpectedToken as error:
        # The reader that failed has already taken steps that only the token at fault made it take.
        reader = grammar().lark.parse_interactive(start=start)
        for name in types[: error.token.start_pos]:
            reader.feed_token(Token(name, ""))
        expected: set[str] = reader.accepts()  # type: ignore[no-untyped-call]
        raise _UnexpectedError(error.token.start_pos, expected) from None
    return _make_builder(tree, 0)


def _make_builder(node: Any, depth: int) -> _Plan:
    if node is None:
        return lambda words: None
    if isinstance(node, Token):
        return itemgetter(node.start_pos)
    if depth > _MAX_DEPTH:
        raise DataError("nested too deeply")
    if node.data == "name" and node.children[0].type == "WORD":
        return itemgetter(node.children[0].start_pos)  # it is its own name
    make = getattr(_Build, node.data)
    parts = [_make_builder(child, depth + 1) for child in node.children]
    if node.data == "atom":
        leaves = [leaf.start_pos for leaf in node.scan_values(lambda value: isinstance(value, Token))]
        return _remember(lambda words: make(*[part(words) for part in parts]), leaves[0], leaves[-1] + 1)
    if len(parts) == 1:
        (only,) = parts
        return lambda words: make(only(words))
    return lambda words: make(*[part(words) for part in parts])


_atoms: dict[tuple[str, ...], t.Atom] = {}


def _remember(build: _Plan, begin: int, end: int) -> _Plan:
    """Build equal atoms once: learned files repeat few atoms often."""

    def atom(words: Sequence[str]) -> t.Atom:
        key = tuple(words[begin:end])
        known = _atoms.get(key)
        if known is None:
            if len(_atoms) >= 1 << 16:
                _atoms.clear()
            known = _atoms[key] = build(words)
        return known

    return atom


class _Source(NamedTuple):
    """A text, and the file it is from for its errors."""

    text: str
    file: str | None = None

    def error(self, message: str, position: int) -> ParseError:
        line, column = line_and_column(self.text, position)
        return ParseError(message, file=self.file, line=line, column=column)

    def value(self, start: str, begin: int, end: int, words: list[str] | None = None) -> Any:
        """Build what ``start`` makes of a part of the text, or of ``words`` in place of its tokens."""
        words = split_tokens(self.text, begin, end) if words is None else words
        try:
            build = _plan(start, tuple(map(token_type, words)))
            return build(_name_anonymous(words) if "_" in words else words)
        except _UnexpectedError as error:
            at, after = token_span(self.text, begin, end, error.position)
            raise self.error(describe_mismatch(self.text[at:after], error.expected), at) from None
        except DataError as error:
            raise self.error(str(error), begin) from None

    def statement(self, classes: Any, wanted: str) -> Any:
        """Build the only statement of the text; its full stop may be missing."""
        spans = list(split_statements(self.text))
        if len(spans) != 1:
            raise self.error(f"expected {wanted}, got {len(spans)} statements", spans[1][0] if spans else 0)
        ((begin, end),) = spans
        words = split_tokens(self.text, begin, end)
        value = self.value("statement", begin, end, words if "." in words else [*words, "."])
        if not isinstance(value, classes):
            raise self.error(f"expected {wanted}, got {shorten(self.text[begin:end], 60)}", begin)
        return value

    def whole(self, start: str) -> Any:
        """Build what ``start`` makes of the whole text, whether or not it ends with a full stop."""
        begin, end = skip_space(self.text, 0), len(self.text)
        words = split_tokens(self.text, begin, end)
        return self.value(start, begin, end, words[:-1] if words[-1:] == ["."] else words)


def _name_anonymous(words: list[str]) -> list[str]:
    """Give each ``_`` a name that its statement does not use."""
    taken = set(words)
    fresh = (name for index in count(1) if (name := f"_{index}") not in taken)
    return [next(fresh) if word == "_" else word for word in words]


OFF = "%off "
"""What makes a comment of a line whose statement is switched off; see `switched_off`."""


def parse_rules(text: str, *, file: str | None = None) -> RuleSet:
    """Read a whole ``.rules`` text.

    >>> rules = parse_rules("0.9 :: child_of(X, Y) :- parent_of(Y, X).  hard !(male(X) & female(X)).")
    >>> len(rules.rules), len(rules.formulas)
    (1, 1)
    >>> parse_rules("p(X) : q(X).")
    Traceback (most recent call last):
    ...
    rulewright.errors.ParseError: <text>:1:6: found ':', expected ':-' or 'in'
    """
    source = _Source(text.removeprefix("\ufeff"), file)
    declared: list[tuple[int, r.PredicateDeclaration]] = []
    stated: list[tuple[int, r.Statement]] = []
    closed: list[str] = []
    for begin, end in split_statements(source.text):
        value = source.value("statement", begin, end)
        if isinstance(value, r.PredicateDeclaration):
            declared.append((begin, value))
        elif isinstance(value, _Closed):
            closed.append(str(value))
        else:
            stated.append((begin, value))
    numbers = None
    if OFF in source.text:
        from rulewright.logic.switched_off import number_statements

        numbers = number_statements(source.text, [begin for begin, _ in stated])
    try:
        return RuleSet(
            (value for _, value in stated),
            predicates=(value for _, value in declared),
            closed=closed,
            numbers=numbers,
        )
    except DataError:
        raise _find_misuse(source, declared, stated) from None


RuleSource: TypeAlias = RuleSet | r.Statement | str | Iterable[r.Statement | str]
"""What is taken where rules are: a rule set, one statement or several, or their text."""


def as_rules(rules: RuleSource) -> RuleSet:
    """Return rules that are given as a rule set, as statements or as text, as a rule set.

    >>> as_rules("hard dog(X) => animal(X).")
    RuleSet(1 formulas)
    >>> as_rules(["hard dog(X) => animal(X).", parse_rule("pet(X) :- dog(X)")])
    RuleSet(1 rules, 1 formulas)
    """
    if isinstance(rules, RuleSet):
        return rules
    if isinstance(rules, str):
        return parse_rules(rules)
    if isinstance(rules, r.Rule | r.WeightedFormula | r.Template):
        return RuleSet([rules])
    statements: list[r.Statement] = []
    for given in rules:
        if isinstance(given, str):
            statements += parse_rules(given)
        elif isinstance(given, r.Rule | r.WeightedFormula | r.Template):
            statements.append(given)
        else:
            raise DataError(f"rules must be statements or their text, got {given!r}")
    return RuleSet(statements)


def _find_misuse(
    source: _Source, declared: list[tuple[int, r.PredicateDeclaration]], stated: list[tuple[int, r.Statement]]
) -> ParseError:
    """Find the first statement that contradicts what stands before it, once it is known that there is one."""
    usage = Usage()
    for begin, value in [*declared, *stated]:
        try:
            if isinstance(value, r.PredicateDeclaration):
                usage.declare(value)
            else:
                usage.add(value)
        except DataError as error:
            return source.error(str(error), begin)
    raise AssertionError("a rule set refused statements that agree with each other")


def parse_rule(text: str) -> r.Rule:
    """Read one rule; its full stop may be left out.

    >>> str(parse_rule("p(X) :- q(X, _)"))
    'p(X) :- q(X, _1).'
    """
    rule: r.Rule = _Source(text).statement(r.Rule, "a rule")
    return rule


def parse_template(text: str) -> r.Template:
    """Read one ``template`` statement; its full stop may be left out."""
    template: r.Template = _Source(text).statement(r.Template, "a template")
    return template


def parse_statement(text: str) -> r.Statement:
    """Read one rule, weighted formula or template; its full stop may be left out."""
    classes = r.Rule | r.WeightedFormula | r.Template
    statement: r.Statement = _Source(text).statement(classes, "a rule, weighted formula or template")
    return statement


def parse_formula(text: str) -> t.Formula:
    """Read a formula without its weight.

    >>> str(parse_formula("smoke(X) & friend(X, Y) => smoke(Y)"))
    'smoke(X) & friend(X, Y) => smoke(Y)'
    """
    formula: t.Formula = _Source(text).whole("formula")
    return formula


def parse_atom(text: str) -> t.Atom:
    """Read an atom.

    >>> parse_atom("parent_of(ann, X)").args
    (Symbol(name='ann'), Variable(name='X'))
    """
    unit = _Source(text).whole("unit")
    if not isinstance(unit, t.Atom):
        raise ParseError(f"expected an atom like parent_of(ann, X), got {shorten(text.strip(), 60)}", line=1, column=1)
    return unit
