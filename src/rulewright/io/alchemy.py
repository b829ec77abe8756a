"""Markov logic networks in Alchemy's form: ``.mln`` for predicates and formulas, ``.db`` for ground atoms.

In an ``.mln`` file every line is a statement, which after an operator goes on in the next line::

    person = {Anna, Bob}                                 // the constants of a type; num = {1,...,5} counts
    Friends(person, person)                              // a predicate and its types, before its first use
    1.5 Smokes(x) ^ Friends(x, y) => Smokes(y)           // a weighted formula
    !(Male(x) ^ Female(x)).                              // a hard one
    Smokes(x) => Cancer(x)                               // its weight is to be learned

Names that start with a capital, numerals, texts in double quotes and what a type declaration lists are constants,
other names are variables; in the rule language it is the other way round, so ``x`` becomes ``X`` and ``Anna``
``'Anna'``. The connectives are ``! ^ v => <=>``, binding in this order and grouping from the left. ``*P(x)`` stands for
the formula with ``P(x)`` and the one with ``!P(x)``. A variable ``+x`` is a plain ``x``, as in LogicMP: it gets no
weight of its own for each constant.

A weighted formula counts as a whole. So does Alchemy count one in brackets, ``1.5 [P(x) <=> Q(x)]``; without them it
divides the weight among the clauses of the formula, which makes a difference where there are several.

Not supported, and refused by name: ``EXIST``, functions, predicates without arguments, exclusive and exhaustive marks
(``Position(person, rank!)``), comparisons other than ``=`` and ``!=``, utilities and ``#include``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path

from rulewright.data import ENTITY_TYPE, KnowledgeBase, KnowledgeBaseBuilder
from rulewright.data.builder import MAIN
from rulewright.errors import DataError, ParseError, unknown_name
from rulewright.files import STDIO, read_text, write_text
from rulewright.io.mln_formulas import (
    NAME,
    QUANTIFIERS,
    FormulaReader,
    MarkovCursor,
    add_ground_atoms,
    constants_by_type,
    read_declaration,
    unique_name,
)
from rulewright.logic import (
    NUMBER_TYPE,
    And,
    Atom,
    Comparison,
    Formula,
    Iff,
    Implies,
    Membership,
    Not,
    Or,
    PredicateDeclaration,
    Rule,
    RuleSet,
    Statement,
    Symbol,
    Template,
    Term,
    Variable,
    WeightedFormula,
)
from rulewright.logic.ruleset import Usage

_WORDS = {*QUANTIFIERS, "v"}
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_BARE_CONSTANT = re.compile(r"[A-Z][A-Za-z0-9_]*|0|[1-9][0-9]*")
_TEXT = re.compile(r"[^\"\\\x00-\x1f\x7f\ud800-\udfff]*")
_SIGNS: Mapping[type, tuple[int, str]] = {Iff: (1, " <=> "), Implies: (2, " => "), Or: (3, " v "), And: (4, " ^ ")}
_TIGHTEST = 5


def mln_text(rules: RuleSet) -> str:
    """Return the text of an ``.mln`` file, which reads back as the same formulas.

    A rule becomes the hard formula ``body => head.`` if its confidence is 1; another confidence is not the weight of a
    formula, and the rule is refused, as is whatever else Alchemy cannot say: templates, classes, numbers, comparisons
    other than ``=`` and ``!=``, names that are no identifiers. A soft formula of several clauses stands in brackets, so
    that Alchemy counts it as a whole. Annotations are left out, and closed predicates: those Alchemy's commands name.

    >>> from rulewright.logic import parse_rules
    >>> print(mln_text(parse_rules("1.5 smokes(X) & friends(X, 'Bob') => smokes('Bob').")), end="")
    smokes(entity)
    friends(entity, entity)
    1.5 smokes(x) ^ friends(x, Bob) => smokes(Bob)
    """
    declared = {declaration.name: declaration for declaration in rules.predicates}
    for name, arity in rules.arities.items():
        if name not in declared:
            if rules.predicates:
                raise DataError(
                    f"{name} is not declared while others are; Alchemy needs its types: predicate {name}(…)."
                )
            declared[name] = PredicateDeclaration(name, (ENTITY_TYPE,) * arity)
    types = {type_name for declaration in declared.values() for type_name in declaration.types}
    lines = [*map(_write_declaration, declared.values())]
    lines += [_StatementWriter(statement, types).write() for statement in rules]
    return "".join(f"{line}\n" for line in lines) or "// nothing\n"


def db_text(kb: KnowledgeBase) -> str:
    """Return the text of a ``.db`` file: the facts, and with ``!`` those observed false.

    Facts of several worlds, splits, classes and numbers Alchemy does not know, and they are refused; entities without
    facts are left out, and closed predicates too: those Alchemy's commands name.

    >>> print(db_text(KnowledgeBase.from_facts([("friends", "Anna", "Bob Lee")])), end="")
    friends(Anna, "Bob Lee")
    """
    if len([*islice(filter(partial(_has_facts, kb), kb.worlds), 2)]) > 1:
        raise DataError("a .db file holds one world; write one at a time, with kb.in_worlds([…])")
    if kb.splits:
        raise DataError(
            f"a .db file holds no splits, got {', '.join(kb.splits)}; write kb.split(…) and kb.with_splits({{}}) apart"
        )
    lines = []
    for name, declaration in kb.predicates.items():
        _write_declaration(declaration)
        for truth in (True, False):
            sign = "" if truth else "!"
            for args in kb.tuples(name, truth=truth):
                lines.append(f"{sign}{name}({', '.join(_write_constant(str(arg), name) for arg in args)})")
    return "".join(f"{line}\n" for line in lines) or "// no facts\n"


def _has_facts(kb: KnowledgeBase, world: str) -> bool:
    part = kb.in_worlds([world])
    return part.n_facts + part.n_false_facts > 0


def _write_declaration(declaration: PredicateDeclaration) -> str:
    if declaration.classes is not None or NUMBER_TYPE in declaration.types:
        what = "classes" if declaration.classes is not None else "numbers"
        raise DataError(f"Alchemy has no {what}, so it cannot say: {declaration}")
    for name in (declaration.name, *declaration.types):
        if not _IDENTIFIER.fullmatch(name) or name in _WORDS:
            raise DataError(
                f"{name!r} is no name to Alchemy (letters, digits and _, no 'v'), so it cannot say: {declaration}"
            )
    return f"{declaration.name}({', '.join(declaration.types)})"


def _write_constant(name: str, where: object) -> str:
    if _BARE_CONSTANT.fullmatch(name) and name not in _WORDS:
        return name
    if not _TEXT.fullmatch(name):
        raise DataError(f"Alchemy cannot write the name {name!r} in: {where}")
    return f'"{name}"'


class _StatementWriter:
    """Writes one statement; its variables get lower-case names that are no words, types or twice the same."""

    def __init__(self, statement: Statement, types: set[str]) -> None:
        self._statement = statement
        self._taken = {*_WORDS, *types}
        self._names: dict[Variable, str] = {}

    def write(self) -> str:
        match self._statement:
            case WeightedFormula(formula, kind, weight):
                written = self._formula(formula, 0)
                if kind != "soft" and written[0].isdigit():  # else it would read as a weight
                    written = f"({written})"
                if kind == "hard":
                    return f"{written}."
                if not _is_clause(formula, True):
                    written = f"[{written}]"
                return written if weight is None else f"{float(weight)!r} {written}"
            case Rule(head, body, confidence):
                if confidence != 1:
                    raise self._refusal("a confidence is no weight; give a formula with a weight, or the confidence 1")
                premise = body[0] if len(body) == 1 else And(body)
                return f"{self._formula(Implies(premise, head), 0)}."
            case Template():
                raise self._refusal("Alchemy has no templates")

    def _refusal(self, reason: str) -> DataError:
        return DataError(f"{reason}, so this cannot be written: {self._statement}")

    def _formula(self, formula: Formula, at_least: int) -> str:
        tightness, sign = _SIGNS.get(type(formula), (_TIGHTEST, ""))
        match formula:
            case And(parts) | Or(parts):
                written = sign.join(self._formula(part, tightness + 1) for part in parts)
            case Implies(left, right) | Iff(left, right):
                written = f"{self._formula(left, tightness + 1)}{sign}{self._formula(right, tightness + 1)}"
            case Not(Comparison() as inner):
                written = f"!({self._formula(inner, 0)})"
            case Not(inner):
                written = f"!{self._formula(inner, _TIGHTEST)}"
            case Comparison(operator, one, other):
                if operator not in ("=", "!="):
                    raise self._refusal("Alchemy compares names with = and != only")
                written = f"{self._term(one)} {operator} {self._term(other)}"
            case Membership():
                raise self._refusal("Alchemy has no classes")
            case Atom(_, ()):
                raise self._refusal(f"a predicate needs arguments in Alchemy's files here, and {formula} has none")
            case Atom(predicate, args):
                written = f"{predicate}({', '.join(map(self._term, args))})"
        return written if tightness >= at_least else f"({written})"

    def _term(self, term: Term) -> str:
        if isinstance(term, Symbol):
            return _write_constant(term.name, self._statement)
        if not isinstance(term, Variable):
            raise self._refusal("Alchemy's numerals are names, and here stands a number")
        if term not in self._names:
            lower = term.name[0].lower() + term.name[1:]
            chosen = unique_name(lower if lower[0] != "_" else f"x{lower}", self._taken)
            self._taken.add(chosen)
            self._names[term] = chosen
        return self._names[term]


def _is_clause(formula: Formula, positive: bool) -> bool:
    """Tell whether a formula, or its negation, is one disjunction of literals without further ado."""
    match formula:
        case Not(inner):
            return _is_clause(inner, not positive)
        case And(parts) | Or(parts):
            return isinstance(formula, Or) == positive and all(_is_clause(part, positive) for part in parts)
        case Implies(premise, conclusion):
            return positive and _is_clause(premise, False) and _is_clause(conclusion, True)
        case Iff():
            return False
        case _:
            return True


MOST_COUNTED = 1_000_000
"""The most constants that ``{first,...,last}`` may stand for."""

_TYPE = rf"[ \t]*{NAME}[ \t]*!?[ \t]*"
_DECLARATION = re.compile(rf"{NAME}[ \t]*\(({_TYPE}(?:,{_TYPE})*)\)[ \t\r]*(?:\n|\Z)")


def read_mln(path: str | os.PathLike[str]) -> RuleSet:
    """Read the predicates and formulas of an ``.mln`` file.

    The constants of its type declarations are not part of a rule set: `read_db` takes them from the file.

    >>> file = folder / "smoking.mln"
    >>> _ = file.write_text("smokes(person)\\ncancer(person)\\n1.5 smokes(x) => cancer(x) // a weighted formula")
    >>> print(read_mln(file), end="")
    predicate smokes(person).
    predicate cancer(person).
    1.5 smokes(X) => cancer(X).
    """
    return _read_mln(path).rules()


def read_db(
    path: str | os.PathLike[str],
    declarations: Iterable[PredicateDeclaration] = (),
    *,
    mln: str | os.PathLike[str] | None = None,
) -> KnowledgeBase:
    """Read the ground atoms of a ``.db`` file: true, with ``!`` false, with ``?`` unknown, one a line.

    The predicates are those of ``declarations`` or of the file ``mln``, whose constants become entities too; with
    neither, every argument is of type entity. Which predicates are closed Alchemy's files do not say: none is.

    >>> file = folder / "smoking.db"
    >>> _ = file.write_text("friends(Anna, Bob)\\n!smokes(Bob)")
    >>> kb = read_db(file)
    >>> kb.tuples("friends"), kb.tuples("smokes", truth=False)
    ([('Anna', 'Bob')], [('Bob',)])
    """
    network = None if mln is None else _read_mln(mln)
    rules = network.rules() if network else RuleSet([])
    known = {declaration.name: declaration for declaration in (*declarations, *rules.predicates)} or None
    builder = KnowledgeBaseBuilder(known.values() if known else ())
    for type_name, name in (*(network.constants if network else ()), *constants_by_type(rules)):
        builder.entity(name, type=type_name)
    add_ground_atoms(_cursor(path), builder, known, split=MAIN)
    return builder.build()


def read_facts(path: str | os.PathLike[str]) -> KnowledgeBase:
    """Read a ``.db`` file with the predicates of the ``.mln`` file of the same name, where there is one."""
    network = Path(path).with_suffix(".mln")
    return read_db(path, mln=network if os.fspath(path) != STDIO and network.exists() else None)


def write_mln(rules: RuleSet, path: str | os.PathLike[str]) -> None:
    """Write predicates and formulas as an ``.mln`` file; `mln_text` says how."""
    write_text(path, mln_text(rules))


def write_db(kb: KnowledgeBase, path: str | os.PathLike[str]) -> None:
    """Write facts as a ``.db`` file; `db_text` says how."""
    write_text(path, db_text(kb))


def _read_mln(path: str | os.PathLike[str]) -> _Network:
    network = _Network(_cursor(path))
    network.read()
    return network


def _cursor(path: str | os.PathLike[str]) -> MarkovCursor:
    text = read_text(path)
    if not text.strip():
        problem = "an empty file; one that is meant to be empty holds a comment: // nothing"
        raise ParseError(problem, file=os.fspath(path))
    return MarkovCursor(text, file=os.fspath(path))


class _Network:
    """What an ``.mln`` file holds, statement by statement."""

    def __init__(self, cursor: MarkovCursor) -> None:
        self._cursor = cursor
        self._usage = Usage()
        self._formulas: list[WeightedFormula] = []
        self._constant_names: set[str] = set()
        self._reader = FormulaReader(cursor, is_constant=self._is_constant, known=self._usage.declared)
        self.constants: list[tuple[str, str]] = []

    def rules(self) -> RuleSet:
        return RuleSet(self._formulas, predicates=self._usage.declared.values())

    def _is_constant(self, name: str) -> bool:
        return name[0].isupper() or name in self._constant_names

    def read(self) -> None:
        while self._cursor.skip_newlines():
            offset = self._cursor.token.offset
            try:
                self._read_statement()
            except ParseError:
                raise
            except DataError as error:
                raise self._cursor.error(str(error), offset) from None

    def _read_statement(self) -> None:
        cursor, first = self._cursor, self._cursor.token
        if first.text == "#":
            raise cursor.error("'#include' is not supported; put the texts into one file")
        if first.kind != "name" or first.text in QUANTIFIERS:
            self._read_formula()
            return
        cursor.take()
        second = cursor.token
        if second.text == "=":
            cursor.take()
            if cursor.token.text == "{":
                self._read_type(first.text)
                return
        elif second.kind == "name" and second.text != "v":
            raise cursor.error("functions are not supported; use a predicate with one argument more", first.offset)
        cursor.move(first.offset)
        if second.text != "(":
            self._read_formula()
        elif first.text not in self._usage.declared:
            self._read_declaration()
        elif self._seems_declaration():
            raise cursor.error(f"{first.text} is declared above; name the variables of a formula otherwise than types")
        else:
            self._read_formula()

    def _seems_declaration(self) -> bool:
        match = _DECLARATION.match(self._cursor.text, self._cursor.token.offset)
        types = {type_name for declaration in self._usage.declared.values() for type_name in declaration.types}
        return match is not None and types.issuperset(re.findall(NAME, match[1]))

    def _read_declaration(self) -> None:
        cursor = self._cursor
        if not _DECLARATION.match(cursor.text, cursor.token.offset):
            problem = unknown_name("predicate", cursor.token.text, self._usage.declared)
            raise cursor.error(f"{problem}; it is declared by a line of its own above, such as Friends(person, person)")
        self._usage.declare(read_declaration(cursor))

    def _read_type(self, type_name: str) -> None:
        cursor = self._cursor
        cursor.expect("{")
        names: list[str] = []
        while not names or cursor.expect(",", "}").text == ",":
            cursor.skip_newlines()
            if names and cursor.accept("..."):
                cursor.expect(",")
                names += self._count_up(names[-1])
            else:
                names.append(cursor.take_constant())
            cursor.skip_newlines()
        cursor.take_line_end()
        self._constant_names.update(names)
        self.constants += [(type_name, name) for name in names]

    def _count_up(self, first: str) -> list[str]:
        offset = self._cursor.token.offset
        last = self._cursor.take_constant()
        if not (re.fullmatch(r"-?[0-9]{1,18}", first) and re.fullmatch(r"-?[0-9]{1,18}", last)):
            raise self._cursor.error(f"'...' stands between two whole numbers, got {first} and {last}", offset)
        if not 0 <= int(last) - int(first) <= MOST_COUNTED:
            raise self._cursor.error(
                f"'...' counts upwards to at most {MOST_COUNTED:,} more, got {first} and {last}", offset
            )
        return [str(value) for value in range(int(first) + 1, int(last) + 1)]

    def _read_formula(self) -> None:
        cursor, offset = self._cursor, self._cursor.token.offset
        weight = float(cursor.take().text) if cursor.token.kind == "number" else None
        if weight is not None and cursor.token.text in (":", "."):
            raise cursor.error(
                f"found {cursor.token.text!r} after a weight; utilities and weighted hard formulas are not supported"
            )
        formulas = self._reader.read()
        hard = cursor.accept(".") is not None
        if hard and weight is not None:
            raise cursor.error("a formula has a weight or a full stop, which makes it hard, not both", offset)
        cursor.take_line_end("an operator (^ v => <=>), '.' or the end of the line")
        kind = "hard" if hard else "learn" if weight is None else "soft"
        for formula in formulas:
            statement = WeightedFormula(formula, kind, weight)  # type: ignore[arg-type]
            self._usage.add(statement)
            self._formulas.append(statement)
