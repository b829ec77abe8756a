r"""Facts and rules as Prolog (``.pl``), with ProbLog's ``0.9::`` before a rule that is not certain.

::

    parent_of(ann, bob).                                    % facts: names and numbers
    0.9::child_of(X, Y) :- parent_of(Y, X).
    older(X, Y) :- age(X, A), age(Y, B), A > B, \+ twin(X, Y) ; elder(X, Y).

A program may hold both: `read` takes its facts and `read_rules` its rules. ``:- dynamic`` and other directives that
only announce predicates are passed over. Refused by name: lists, structures such as ``f(x)``, cuts, arithmetic,
predicates without arguments, and facts with variables or with a probability.

Prolog has no types, classes, formulas with weights, worlds, splits or observed-false facts. Types, closed predicates
and annotations are left out when writing; the rest is refused. Since Prolog proves a body from left to right, a
negation or a comparison is written after the atoms that bind its variables, and alternatives are multiplied out: what
is read back equals what was written up to `Rule.canonical`.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Iterator

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder, Value
from rulewright.errors import DataError, ParseError, RulewrightError
from rulewright.files import read_text, write_text
from rulewright.io.cursor import Cursor
from rulewright.io.formats import refuse_all_but_true_facts
from rulewright.logic import (
    And,
    Atom,
    Comparison,
    Formula,
    Head,
    Literal,
    Membership,
    Not,
    Number,
    Or,
    Rule,
    RuleSet,
    Statement,
    Symbol,
    Term,
    Variable,
)
from rulewright.logic.terms import Comparator

_NUMBER = r"[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?"
_ESCAPED = r"\\x[0-9a-fA-F]+\\|\\[0-7]+\\|\\(?:.|\n)"
_BARE = re.compile(r"[a-z][A-Za-z0-9_]*\Z")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "e": "\x1b", "s": " "}
_ESCAPE = re.compile(
    r"\\(?:x([0-9a-fA-F]+)\\?|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-7]+)\\|(\n)|(.))|''|\"\"", re.DOTALL
)
# Besides quotes: what a text file cannot hold, what ends a line, and what changes the order a line is shown in
_TO_ESCAPE = re.compile(r"[\\'\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_HALF = re.compile(r"[\ud800-\udfff]")


def quote_atom(name: str) -> str:
    r"""Write a name as a Prolog atom.

    >>> print(quote_atom("ann"), quote_atom("P17"), quote_atom("it's"), quote_atom("a\nb"))
    ann 'P17' 'it\'s' 'a\x0a\b'
    """
    if _BARE.match(name):
        return name
    if _HALF.search(name):
        raise DataError(f"Prolog cannot write the name {name!r}: it holds half of a character")
    return "'" + _TO_ESCAPE.sub(_escape, name) + "'"


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return f"\\{character}" if character in "\\'" else f"\\x{ord(character):02x}\\"


def unquote(text: str) -> str:
    r"""Return the name that a quoted atom or a string stands for.

    >>> unquote(r"'it''s \x1f600\ \'x\''")
    "it's 😀 'x'"
    """
    mark = text[0]

    def read_escape(match: re.Match[str]) -> str:
        whole = match.group()
        if whole in ("''", '""'):
            return mark if whole[0] == mark else whole
        hexadecimal, four, eight, octal, continued, letter = match.groups()
        digits = hexadecimal or four or eight
        if digits or octal:
            code = int(digits, 16) if digits else int(octal, 8)
            if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise DataError(f"{whole} stands for no character")
            return chr(code)
        if continued:
            return ""
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if letter in "\\'\"`":
            return letter
        raise DataError(f"unknown escape {whole} in a quoted name")

    return _ESCAPE.sub(read_escape, text[1:-1])


class _PrologCursor(Cursor):
    tokens = re.compile(
        rf"""(?P<stop>\.(?=\s|%|\Z))|(?P<quoted>'(?:''|{_ESCAPED}|[^'\\\n])*+')
        |(?P<string>"(?:""|{_ESCAPED}|[^"\\\n])*+")
        |(?P<number>{_NUMBER})|(?P<variable>[A-Z_]\w*)|(?P<word>[^\W\d_]\w*)
        |(?P<sign>:-|<-|::|\\\+|=<|>=|=:=|=\\=|\\==|==|\\=|[(),;|<>=!{{}}\[\]:+\-]|.)|(?P<end>\Z)""",
        re.VERBOSE | re.DOTALL,
    )
    gap = re.compile(r"(?:\s|%[^\n]*|/\*.*?\*/)*", re.DOTALL)

    def move(self, offset: int) -> None:
        super().move(offset)
        if self.text.startswith("/*", self.token.offset):
            raise self.error("a comment that does not end; close it with */")

    def hint(self) -> str:
        return "; a quoted name ends on the line it starts on" if self.token.text in ("'", '"') else ""


_WRITTEN_OPERATORS: dict[Comparator, str] = {"<": "<", "<=": "=<", ">": ">", ">=": ">=", "=": "==", "!=": "\\=="}


def write(kb: KnowledgeBase, path: str | os.PathLike[str]) -> None:
    """Write the true facts of one world as a Prolog program; what it cannot say is refused."""
    refuse_all_but_true_facts(kb, "a Prolog program")
    lines = [f"{_write_atom(name, map(_write_constant, args))}.\n" for name, args in kb.facts()]
    write_text(path, "".join(lines) or "% no facts\n")


def write_rules(rules: RuleSet, path: str | os.PathLike[str]) -> None:
    """Write rules as a Prolog program; formulas with weights, templates and classes are refused."""
    write_text(path, "".join(f"{_write_clause(statement)}\n" for statement in rules) or "% no rules\n")


def _write_constant(value: Value) -> str:
    if isinstance(value, str):
        return quote_atom(value)
    if not math.isfinite(value):
        raise DataError(f"Prolog cannot write the number {value}")
    return _write_numeral(value)


def _write_numeral(value: int | float) -> str:
    """Write a number with a point before an exponent, as ISO Prolog asks: 1e22 is 1.0e22."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= 2.0**53 and repr(value) != "-0.0":
        value = int(value)
    return re.sub(r"^(-?\d+)e", r"\1.0e", repr(value))


def _write_atom(name: str, args: Iterable[str]) -> str:
    return f"{quote_atom(name)}({', '.join(args)})"


def _write_clause(statement: Statement) -> str:
    if not isinstance(statement, Rule):
        raise DataError(f"Prolog has rules and no formulas with weights or templates, so it cannot say: {statement}")
    try:
        bodies = [", ".join(map(_write_literal, _order_literals(body))) for body in statement.alternatives()]
        head = _write_unit(statement.head)
    except DataError as error:
        raise DataError(f"{error}, so this cannot be written: {statement}") from None
    confidence = "" if statement.confidence == 1 else f"{_write_numeral(statement.confidence)}::"
    return f"{confidence}{head} :- {' ; '.join(bodies)}."


def _order_literals(body: tuple[Literal, ...]) -> list[Literal]:
    """Put each negation and comparison behind the atoms that bind its variables, and change nothing else."""
    waiting = list(body)
    bound: set[Term] = set()
    ordered: list[Literal] = []
    while waiting:
        ready = next(literal for literal in waiting if _binds(literal) or _variables(literal) <= bound)
        waiting.remove(ready)
        ordered.append(ready)
        if _binds(ready):
            bound |= set(ready.unit.args)
    return ordered


def _binds(literal: Literal) -> bool:
    return literal.positive and not isinstance(literal.unit, Comparison)


def _variables(literal: Literal) -> set[Term]:
    return {term for term in literal.unit.args if isinstance(term, Variable)}


def _write_literal(literal: Literal) -> str:
    unit = literal.unit
    if isinstance(unit, Comparison):
        left, right = map(_write_term, unit.args)
        classes = {type(term) for term in unit.args}
        operator = _WRITTEN_OPERATORS[unit.operator]
        if unit.operator in ("=", "!=") and Number in classes and Symbol not in classes:
            operator = "=:=" if unit.operator == "=" else "=\\="
        return f"{left} {operator} {right}"
    return _write_unit(unit) if literal.positive else f"\\+ {_write_unit(unit)}"


def _write_unit(unit: Head) -> str:
    if isinstance(unit, Membership):
        raise DataError("Prolog has no classes")
    if not unit.args:
        raise DataError(f"a predicate needs arguments in Prolog files here, and {unit} has none")
    return _write_atom(str(unit.predicate), map(_write_term, unit.args))


def _write_term(term: Term) -> str:
    match term:
        case Variable(name):
            return name
        case Symbol(name):
            return quote_atom(name)
        case Number(value):
            return _write_numeral(value)


# Reading

_READ_OPERATORS: dict[str, Comparator] = {
    **{"<": "<", "=<": "<=", ">": ">", ">=": ">="},
    **{"=:=": "=", "==": "=", "=": "=", "=\\=": "!=", "\\==": "!=", "\\=": "!="},
}
_ANNOUNCING = ("dynamic", "discontiguous", "module", "use_module", "table", "multifile", "set_prolog_flag")
_TERM = r"(?:[a-z][A-Za-z0-9_]*|'[^'\\\n]*'(?!'))"
# A plain fact on its own line, for speed; what this does not match is read token by token
_PLAIN = re.compile(rf"[ \t]*({_TERM})\(({_TERM}(?:,[ ]?{_TERM})*)\)\.[ \t]*(?:\n|\Z)")
_TERMS = re.compile(_TERM)


def read(path: str | os.PathLike[str]) -> KnowledgeBase:
    """Read the facts of a Prolog program, ``-`` for standard input; its rules are passed over."""
    return parse(read_text(path), file=os.fspath(path))


def read_rules(path: str | os.PathLike[str]) -> RuleSet:
    """Read the rules of a Prolog program, ``-`` for standard input; its facts are passed over."""
    return parse_rules(read_text(path), file=os.fspath(path))


def parse(text: str, *, file: str | None = None) -> KnowledgeBase:
    """Read the facts of a program's text.

    >>> parse("parent_of(ann, 'Bob Lee'). % a fact").tuples("parent_of")
    [('ann', 'Bob Lee')]
    """
    builder = KnowledgeBaseBuilder()
    reader = _PrologReader(text, file)
    for offset, clause in reader.clauses(builder):
        if isinstance(clause, Atom):
            try:
                builder.add(str(clause.predicate), [_value(term) for term in clause.args])
            except RulewrightError as error:
                raise reader.cursor.error(str(error), offset) from None
    return builder.build()


def parse_rules(text: str, *, file: str | None = None) -> RuleSet:
    r"""Read the rules of a program's text.

    >>> print(parse_rules(r"0.9::p(X) :- q(X, Y), \+ r(Y), Y \= ann."), end="")
    0.9 :: p(X) :- q(X, Y), !r(Y), Y != ann.
    """
    rules = [clause for _, clause in _PrologReader(text, file).clauses(None) if isinstance(clause, Rule)]
    try:
        return RuleSet(rules)
    except DataError as error:
        raise ParseError(str(error).replace("\n", "\\n"), file=file) from None


def _value(term: Term) -> Value:
    if isinstance(term, Variable):
        raise DataError(f"a fact has no variables, got {term}")
    return term.name if isinstance(term, Symbol) else term.value


class _PrologReader:
    """Reads clauses: a fact as its atom, a rule as a rule."""

    def __init__(self, text: str, file: str | None) -> None:
        self.cursor = _PrologCursor(text, file=file)
        self._fresh = 0
        self._taken = set(re.findall(r"_\w+", text))

    def clauses(self, facts: KnowledgeBaseBuilder | None) -> Iterator[tuple[int, Atom | Rule]]:
        """Yield each clause with its offset; plain facts go into ``facts``, where it is given, without a stop here."""
        cursor = self.cursor
        while True:
            offset = cursor.token.offset
            while plain := _PLAIN.match(cursor.text, offset):
                terms = (plain[1], *_TERMS.findall(plain[2]))
                name, *args = (term[1:-1] if term[0] == "'" else term for term in terms)
                try:
                    if facts is not None:
                        facts.add(name, args)
                except DataError as error:
                    raise cursor.error(str(error), offset) from None
                offset = plain.end()
            cursor.move(offset)
            if cursor.token.kind == "end":
                return
            offset = cursor.token.offset
            try:
                clause = self._clause()
            except ParseError:
                raise
            except DataError as error:
                raise cursor.error(str(error), offset) from None
            if clause is not None:
                yield offset, clause

    def _clause(self) -> Atom | Rule | None:
        cursor = self.cursor
        if cursor.accept(":-"):
            self._directive()
            return None
        start = cursor.token.offset
        confidence = None
        if cursor.token.kind == "number":
            confidence = float(cursor.take().text)
            cursor.expect("::")
        self._fresh = 0
        head = self._atom("a fact or a rule such as p(X) :- q(X).")
        if not cursor.accept(":-", "<-"):
            self.cursor.expect_kind("':-' or '.'", "stop")
            if confidence is not None:
                raise cursor.error("a fact with a probability; facts here are certain: leave it out", start)
            return head
        body = self._disjunction()
        self.cursor.expect_kind("',', ';' or '.'", "stop")
        parts = body.parts if isinstance(body, And) else (body,)
        return Rule(head, parts, 1.0 if confidence is None else confidence)

    def _directive(self) -> None:
        name = self.cursor.token.text
        if name not in _ANNOUNCING:
            raise self.cursor.unexpected(f"a directive that only announces predicates ({', '.join(_ANNOUNCING)})")
        while self.cursor.token.kind not in ("stop", "end"):
            self.cursor.take()
        self.cursor.expect_kind("'.'", "stop")

    def _disjunction(self) -> Formula:
        parts = [self._conjunction()]
        while self.cursor.accept(";", "|"):
            parts.append(self._conjunction())
        return parts[0] if len(parts) == 1 else Or(tuple(parts))

    def _conjunction(self) -> Formula:
        parts = [self._part()]
        while self.cursor.accept(","):
            parts.append(self._part())
        return parts[0] if len(parts) == 1 else And(tuple(parts))

    def _part(self) -> Formula:
        cursor = self.cursor
        if cursor.accept("\\+", "not"):
            return Not(self._part())
        if cursor.accept("("):
            inner = self._disjunction()
            cursor.expect(")")
            return inner
        if cursor.token.text == "!":
            raise cursor.error("a cut '!' says how to search and not what holds; write the rule without it")
        offset = cursor.token.offset
        if cursor.token.kind in ("word", "quoted"):
            name = cursor.take()
            if cursor.token.text == "(":
                cursor.move(name.offset)
                return self._atom("an atom")
            cursor.move(offset)
        left = self._term()
        operator = cursor.token.text
        if operator not in _READ_OPERATORS:
            raise cursor.unexpected(f"a comparison ({' '.join(_READ_OPERATORS)}) or an atom with arguments")
        cursor.take()
        return Comparison(_READ_OPERATORS[operator], left, self._term())

    def _atom(self, expected: str) -> Atom:
        cursor = self.cursor
        name = cursor.expect_kind(expected, "word", "quoted")
        if cursor.token.text != "(":
            raise cursor.unexpected("'(': a predicate needs arguments")
        args = cursor.take_list(self._term)
        return Atom(unquote(name.text) if name.kind == "quoted" else name.text, tuple(args))

    def _term(self) -> Term:
        cursor = self.cursor
        negative = cursor.accept("-", "+")
        kind, text, offset = cursor.token
        if kind == "number":
            cursor.take()
            return Number(_read_number(text, negative is not None and negative.text == "-"))
        if negative is not None or kind not in ("word", "quoted", "string", "variable"):
            raise cursor.unexpected("a name, a number or a variable")
        cursor.take()
        if cursor.token.text == "(" and kind != "variable":
            raise cursor.error(f"{text}(…) is a structure; arguments here are names and numbers", offset)
        if kind == "variable" or text[0].isupper():
            return self._variable(text)
        return Symbol(unquote(text) if kind != "word" else text)

    def _variable(self, text: str) -> Variable:
        if text != "_":
            if not text.isascii():
                raise self.cursor.error(f"the variable {text} has letters other than A–Z; rename it")
            return Variable(text)
        name = "_"
        while name == "_" or name in self._taken:
            self._fresh += 1
            name = f"_{self._fresh}"
        return Variable(name)


def _read_number(text: str, negative: bool) -> int | float:
    value = int(text) if text.isdecimal() and len(text) <= 400 else float(text)
    if not math.isfinite(value):
        raise DataError(f"{text[:30]} is too large for a number")
    return -value if negative else value
