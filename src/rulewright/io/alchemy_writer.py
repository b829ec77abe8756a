"""Rules and facts as Alchemy's texts, as far as Alchemy can say them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from itertools import islice

from rulewright.data import ENTITY_TYPE, KnowledgeBase
from rulewright.errors import DataError
from rulewright.io.mln_formulas import QUANTIFIERS, unique_name
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
    declared = {each.name: each for each in rules.predicates}
    for name, arity in rules.arities.items():
        if name not in declared:
            if rules.predicates:
                raise DataError(
                    f"{name} is not declared while others are; Alchemy needs its types: predicate {name}(…)."
                )
            declared[name] = PredicateDeclaration(name, (ENTITY_TYPE,) * arity)
    types = {each for declaration in declared.values() for each in declaration.types}
    lines = [_declaration(each) for each in declared.values()]
    lines += [_Writer(statement, types).line() for statement in rules]
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
        _declaration(declaration)
        for truth in (True, False):
            sign = "" if truth else "!"
            for args in kb.tuples(name, truth=truth):
                lines.append(f"{sign}{name}({', '.join(_constant(str(arg), name) for arg in args)})")
    return "".join(f"{line}\n" for line in lines) or "// no facts\n"


def _has_facts(kb: KnowledgeBase, world: str) -> bool:
    part = kb.in_worlds([world])
    return part.n_facts + part.n_false_facts > 0


def _declaration(declaration: PredicateDeclaration) -> str:
    if declaration.classes is not None or NUMBER_TYPE in declaration.types:
        what = "classes" if declaration.classes is not None else "numbers"
        raise DataError(f"Alchemy has no {what}, so it cannot say: {declaration}")
    for name in (declaration.name, *declaration.types):
        if not _IDENTIFIER.fullmatch(name) or name in _WORDS:
            raise DataError(
                f"{name!r} is no name to Alchemy (letters, digits and _, no 'v'), so it cannot say: {declaration}"
            )
    return f"{declaration.name}({', '.join(declaration.types)})"


def _constant(name: str, where: object) -> str:
    if _BARE_CONSTANT.fullmatch(name) and name not in _WORDS:
        return name
    if not _TEXT.fullmatch(name):
        raise DataError(f"Alchemy cannot write the name {name!r} in: {where}")
    return f'"{name}"'


class _Writer:
    """Writes one statement; its variables get lower-case names that are no words, types or twice the same."""

    def __init__(self, statement: Statement, types: set[str]) -> None:
        self._statement = statement
        self._taken = {*_WORDS, *types}
        self._names: dict[Variable, str] = {}

    def line(self) -> str:
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
            case Atom(predicate, args):
                written = f"{predicate}({', '.join(map(self._term, args))})"
        return written if tightness >= at_least else f"({written})"

    def _term(self, term: Term) -> str:
        if isinstance(term, Symbol):
            return _constant(term.name, self._statement)
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
