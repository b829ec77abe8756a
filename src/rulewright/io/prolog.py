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
from collections.abc import Iterator

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder, Value
from rulewright.errors import DataError, ParseError, RulewrightError
from rulewright.files import read_text
from rulewright.io.prolog_text import Cursor, unquoted
from rulewright.io.prolog_writer import write, write_rules
from rulewright.logic import (
    And,
    Atom,
    Comparison,
    Formula,
    Not,
    Number,
    Or,
    Rule,
    RuleSet,
    Symbol,
    Term,
    Variable,
)
from rulewright.logic.terms import Comparator

__all__ = ["parse", "parse_rules", "read", "read_rules", "write", "write_rules"]

_READ: dict[str, Comparator] = {
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
    reader = _Reader(text, file)
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
    rules = [clause for _, clause in _Reader(text, file).clauses(None) if isinstance(clause, Rule)]
    try:
        return RuleSet(rules)
    except DataError as error:
        raise ParseError(str(error).replace("\n", "\\n"), file=file) from None


def _value(term: Term) -> Value:
    if isinstance(term, Variable):
        raise DataError(f"a fact has no variables, got {term}")
    return term.name if isinstance(term, Symbol) else term.value


class _Reader:
    """Reads clauses: a fact as its atom, a rule as a rule."""

    def __init__(self, text: str, file: str | None) -> None:
        self.cursor = Cursor(text, file=file)
        self._fresh = 0
        self._taken = set(re.findall(r"_\w+", text))

    def clauses(self, facts: KnowledgeBaseBuilder | None) -> Iterator[tuple[int, Atom | Rule]]:
        """Yield each clause with its place; plain facts go into ``facts``, where it is given, without a stop here."""
        cursor = self.cursor
        while True:
            position = cursor.token.offset
            while plain := _PLAIN.match(cursor.text, position):
                name, *args = (each[1:-1] if each[0] == "'" else each for each in (plain[1], *_TERMS.findall(plain[2])))
                try:
                    if facts is not None:
                        facts.add(name, args)
                except DataError as error:
                    raise cursor.error(str(error), position) from None
                position = plain.end()
            cursor.move(position)
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
            self._stop("':-' or '.'")
            if confidence is not None:
                raise cursor.error("a fact with a probability; facts here are certain: leave it out", start)
            return head
        body = self._disjunction()
        self._stop("',', ';' or '.'")
        parts = body.parts if isinstance(body, And) else (body,)
        return Rule(head, parts, 1.0 if confidence is None else confidence)

    def _directive(self) -> None:
        name = self.cursor.token.text
        if name not in _ANNOUNCING:
            raise self.cursor.unexpected(f"a directive that only announces predicates ({', '.join(_ANNOUNCING)})")
        while self.cursor.token.kind not in ("stop", "end"):
            self.cursor.take()
        self._stop("'.'")

    def _stop(self, expected: str) -> None:
        if self.cursor.token.kind != "stop":
            raise self.cursor.unexpected(expected)
        self.cursor.take()

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
        if cursor.accept("\\+"):
            return Not(self._part())
        if cursor.token.text == "not" and cursor.token.kind == "word":
            cursor.take()
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
        if operator not in _READ:
            raise cursor.unexpected(f"a comparison ({' '.join(_READ)}) or an atom with arguments")
        cursor.take()
        return Comparison(_READ[operator], left, self._term())

    def _atom(self, expected: str) -> Atom:
        cursor = self.cursor
        if cursor.token.kind not in ("word", "quoted"):
            raise cursor.unexpected(expected)
        name = cursor.take()
        if cursor.token.text != "(":
            raise cursor.unexpected("'(': a predicate needs arguments")
        cursor.take()
        args = [self._term()]
        while cursor.expect(",", ")").text == ",":
            args.append(self._term())
        return Atom(unquoted(name.text) if name.kind == "quoted" else name.text, tuple(args))

    def _term(self) -> Term:
        cursor = self.cursor
        negative = cursor.accept("-", "+")
        kind, text, offset = cursor.token
        if kind == "number":
            cursor.take()
            return Number(_figure(text, negative is not None and negative.text == "-"))
        if negative is not None or kind not in ("word", "quoted", "string", "variable"):
            raise cursor.unexpected("a name, a number or a variable")
        cursor.take()
        if cursor.token.text == "(" and kind != "variable":
            raise cursor.error(f"{text}(…) is a structure; arguments here are names and numbers", offset)
        if kind == "variable" or text[0].isupper():
            return self._variable(text)
        return Symbol(unquoted(text) if kind != "word" else text)

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


def _figure(text: str, negative: bool) -> int | float:
    value = int(text) if text.isdecimal() and len(text) <= 400 else float(text)
    if not math.isfinite(value):
        raise DataError(f"{text[:30]} is too large for a number")
    return -value if negative else value
