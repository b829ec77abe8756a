r"""Rules as other rule miners write them, one to a line.

**AnyBURL**: how often the body held, how often the head with it, the confidence, the rule::

    98\t92\t0.9387\tparent_of(X,Y) <= spouse_of(X,A), parent_of(A,Y)
    12\t7\t0.58\tlives_in(X,Bonn) <= works_in(X,Bonn)

A single capital letter is a variable, everything else an entity. There are no quotes: names may hold blanks, brackets
and commas as long as the line can be read in one way. The counts become the annotations ``body`` and ``support``.
Different variables stand for different entities (object identity), so every rule is read with a ``!=`` for each two of
its variables, and written without them. A rule without a body, ``lives_in(X,Bonn) <=``, is counted over all facts of
its relation: it is read as ``lives_in(X, 'Bonn') :- lives_in(X, A)``, and written so that it reads back.
See Meilicke et al., "Anytime Bottom-Up Rule Learning for Knowledge Graph Completion", IJCAI 2019.

**AMIE**: a table with tabs, the rule first and its statistics behind it::

    Rule\tHead Coverage\tStd Confidence\tPCA Confidence\tPositive Examples\tBody size\tPCA Body size\t…
    ?a  spouse_of  ?b  ?b  parent_of  ?c   => ?a  parent_of  ?c\t0.2\t0.9\t0.95\t120\t133\t126\t?a

Terms stand two blanks apart; names are kept as they are, with their angle brackets where they have some, since the
facts have them too. The relation ``differentFrom`` is AMIE's word for ``!=``. The statistics become the confidence
(standard, not PCA) and the annotations ``coverage``, ``pca``, ``support``, ``body`` and ``pca_body``. What AMIE says
above the table and below it is passed over.
See Lajus, Galárraga and Suchanek, "Fast and Exact Rule Mining with AMIE 3", ESWC 2020.

**MILR and LogiRE**: chain rules, read only. Mined rules have their confidence,
``['in2', 'anti_gpe0'] -> in0-x : 0.98``; gold rules a number and none, ``24 ['in0', '~gpe0'] in0-x``. ``anti_r`` and
``~r`` both mean the inverse of ``r``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from string import ascii_uppercase
from typing import NamedTuple

from rulewright.errors import DataError, ParseError
from rulewright.files import read_text, write_text
from rulewright.logic import (
    Annotations,
    Atom,
    Chain,
    Comparison,
    Formula,
    Number,
    PredicateVariable,
    Rule,
    RuleSet,
    Statement,
    Step,
    Symbol,
    Term,
    Variable,
    variables,
)

_INTEGER = re.compile(r"[0-9]{1,15}")


class _Line(NamedTuple):
    """A line of a file; what cannot be read in it is an error that names both."""

    text: str
    number: int
    file: str | None

    def error(self, message: str) -> ParseError:
        return ParseError(message, file=self.file, line=self.number)

    def read_count(self, text: str, name: str) -> int:
        if not _INTEGER.fullmatch(text):
            raise self.error(f"{name} must be a whole number, got {text[:30]!r}")
        return int(text)

    def read_share(self, text: str, name: str) -> float:
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value <= 1:
            raise self.error(f"{name} must be a number in [0, 1], got {text[:30]!r}")
        return value

    def rule(self, head: Atom, body: Sequence[Formula], confidence: float, annotations: Mapping[str, float]) -> Rule:
        try:
            return Rule(head, tuple(body), confidence, Annotations(annotations))
        except DataError as error:
            raise self.error(str(error)) from None


def _lines(text: str, file: str | None) -> Iterator[_Line]:
    return (_Line(line.rstrip("\r"), number, file) for number, line in enumerate(text.split("\n"), start=1))


def _rule_set(rules: Sequence[Rule], file: str | None, expected: str) -> RuleSet:
    if not rules:
        raise ParseError(f"no rules; expected lines such as {expected}", file=file)
    try:
        return RuleSet(rules)
    except DataError as error:
        raise ParseError(str(error), file=file) from None


def _conjunction(statement: Statement, format: str) -> tuple[Rule, list[Atom | Comparison]]:
    """Return a rule with its head and body as atoms and ``!=``; what is no conjunction of relations is refused."""
    if not isinstance(statement, Rule):
        raise DataError(f"{format} has rules and no formulas or templates, so it cannot say: {statement}")
    atoms: list[Atom | Comparison] = []
    for unit in (statement.head, *statement.body):
        if isinstance(unit, Comparison) and unit.operator == "!=" and all(isinstance(t, Variable) for t in unit.args):
            atoms.append(unit)
            continue
        if not isinstance(unit, Atom) or unit.arity != 2 or isinstance(unit.predicate, PredicateVariable):
            raise DataError(f"{format} knows only relations of two arguments, so it cannot say {unit} in: {statement}")
        if any(isinstance(term, Number) for term in unit.args):
            raise DataError(f"{format} has no numbers, so it cannot say {unit} in: {statement}")
        atoms.append(unit)
    return statement, atoms


def _distinct_variables(parts: Iterable[Formula]) -> list[Variable]:
    return [*dict.fromkeys(variable for part in parts for variable in variables(part))]


def _check_reads_back(rule: Rule, line: str, parse: Callable[[str], RuleSet], format: str) -> None:
    """Refuse a rule whose line would be read as another one, since a name holds what separates names there."""
    try:
        again = [read.canonical() for read in parse(line).rules]
    except ParseError:
        again = []
    if again != [rule.canonical()] or "\x00" in line:
        raise DataError(f"a name would be misread in a file of {format}, which has no quotes, so it cannot say: {rule}")


def _write_term(term: Term, names: Mapping[Variable, str]) -> str:
    return names[term] if isinstance(term, Variable) else str(getattr(term, "name", term))


# AnyBURL

_ANYBURL_ATOM = re.compile(r"([^(\t]+)\(([^\t]+?)\)(?=, [^(\t]+\(|\Z)")


def read_anyburl(path: str | os.PathLike[str]) -> RuleSet:
    """Read a file of AnyBURL's rules, in the order of its lines."""
    return parse_anyburl(read_text(path), file=os.fspath(path))


def write_anyburl(rules: RuleSet, path: str | os.PathLike[str]) -> None:
    """Write rules for AnyBURL; they need the annotations ``body`` and ``support``, and other annotations are left out.

    AnyBURL takes different variables for different entities, whether or not a rule says so (`assume_identity`). Reading
    them back gives the rules with that, up to the names of variables.
    """
    write_text(path, "".join(f"{write_anyburl_line(statement)}\n" for statement in rules))


def count_without_identity(rules: RuleSet) -> int:
    """Return how many rules say less than AnyBURL takes them to say: variables may stand for the same entity.

    >>> from rulewright.logic import parse_rules
    >>> count_without_identity(parse_rules("p(X, Y) :- q(Y, X). p(X, Y) :- q(X, Y), X != Y. p(X, a) :- q(X, b)."))
    1
    """
    return sum(assume_identity(rule).canonical() != rule.canonical() for rule in rules.rules)


def parse_anyburl(text: str, *, file: str | None = None) -> RuleSet:
    r"""Read the text of such a file.

    >>> print(parse_anyburl("98\t92\t0.93\tparent_of(X,Y) <= spouse_of(X,A), parent_of(A,Y)"), end="")
    0.93 :: parent_of(X, Y) :- spouse_of(X, A), parent_of(A, Y), X != Y, X != A, Y != A. @{support: 92, body: 98}
    >>> print(parse_anyburl("98\t9\t0.09\tlives_in(X,Bonn) <= "), end="")
    0.09 :: lives_in(X, 'Bonn') :- lives_in(X, A). @{support: 9, body: 98}
    """
    rules = [_read_anyburl_line(line) for line in _lines(text, file) if line.text.strip()]
    return _rule_set(rules, file, "98, 92, 0.93, p(X,Y) <= q(X,Y) with tabs between")


def _read_anyburl_line(line: _Line) -> Rule:
    columns = line.text.split("\t")
    if len(columns) != 4:
        raise line.error(f"found {len(columns)} columns, expected 4 with tabs between: body, support, confidence, rule")
    body, support = line.read_count(columns[0], "body"), line.read_count(columns[1], "support")
    confidence = line.read_share(columns[2], "the confidence")
    head_text, arrow, conditions = f"{columns[3].rstrip()} ".partition(" <= ")
    if not arrow:
        raise line.error(f"expected head <= body, got {columns[3][:60]!r}")
    head, *others = _read_anyburl_atoms(head_text, line)
    if others:
        raise line.error(f"expected one atom before <=, got {head_text[:60]!r}")
    counts = {"support": support, "body": body}
    if conditions.strip():
        return assume_identity(line.rule(head, _read_anyburl_atoms(conditions.rstrip(), line), confidence, counts))
    if len(variables(head)) != 1:
        raise line.error(
            f"a rule without a body names one entity, as p(X,ann) <= does, got {head_text[:60]!r}; leave such lines out"
        )
    return line.rule(head, (_body_of_nothing(head),), confidence, counts)


def _body_of_nothing(head: Atom) -> Atom:
    """Return the atom over which a rule without a body is counted: the head with a variable for its entity."""
    (variable,) = variables(head)
    other = Variable("A" if variable.name != "A" else "B")
    return replace(head, args=tuple(other if isinstance(term, Symbol) else term for term in head.args))


def _has_no_body(rule: Rule) -> bool:
    """Tell whether AnyBURL writes a rule without a body."""
    head = rule.head
    if not isinstance(head, Atom) or len(variables(head)) != 1 or len({*head.args}) != 2 or len(rule.body) != 1:
        return False
    return rule.canonical() == replace(rule, body=(_body_of_nothing(head),)).canonical()


def assume_identity(rule: Rule) -> Rule:
    """Return a rule as AnyBURL reads it: each two variables stand for different entities.

    >>> from rulewright.logic import parse_rule
    >>> str(assume_identity(parse_rule("p(X, Y) :- q(Y, X).")))
    'p(X, Y) :- q(Y, X), X != Y.'
    """
    if _has_no_body(rule):
        return rule
    atoms = [part for part in rule.body if not isinstance(part, Comparison)]
    pairs = combinations(_distinct_variables([rule.head, *atoms]), 2)
    return replace(rule, body=(*atoms, *(Comparison("!=", left, right) for left, right in pairs)))


def _read_anyburl_atoms(text: str, line: _Line) -> list[Atom]:
    atoms = []
    position = 0
    while position < len(text):
        match = _ANYBURL_ATOM.match(text, position)
        args = None if match is None else _split_arguments(match[2])
        if match is None or args is None:
            raise line.error(f"expected atoms such as p(X,ann), read in one way only, got {text[:60]!r}")
        atoms.append(Atom(match[1], tuple(Variable(arg) if _is_letter(arg) else Symbol(arg) for arg in args)))
        position = match.end() + len(", ")
    return atoms


def _split_arguments(text: str) -> list[str] | None:
    """Split two arguments at their comma; where there are more, one of the two must be a variable."""
    parts = text.split(",")
    if len(parts) > 2:
        if _is_letter(parts[0]) == _is_letter(parts[-1]):
            return None
        parts = [parts[0], ",".join(parts[1:])] if _is_letter(parts[0]) else [",".join(parts[:-1]), parts[-1]]
    return parts if len(parts) == 2 and all(parts) else None


def _is_letter(text: str) -> bool:
    return len(text) == 1 and text in ascii_uppercase


def write_anyburl_line(statement: Statement) -> str:
    r"""Write one rule.

    >>> from rulewright.logic import parse_rule
    >>> write_anyburl_line(parse_rule("0.9 :: p(V0, V1) :- q(V1, V0). @{support: 9, body: 10}"))
    '10\t9\t0.9\tp(X,Y) <= q(Y,X)'
    >>> write_anyburl_line(parse_rule("0.9 :: p(X, Y) :- q(Y, X), X != Y. @{support: 9, body: 10}"))
    '10\t9\t0.9\tp(X,Y) <= q(Y,X)'
    """
    rule, atoms = _conjunction(statement, "AnyBURL")
    counts = [rule.annotations.number(name) for name in ("body", "support")]
    if any(count is None or count < 0 or count != int(count) for count in counts):
        raise DataError(f"AnyBURL's lines begin with the counts body and support, which are missing here: {rule}")
    ends = variables(rule.head)  # they are X and Y, the other variables A, B and so on
    between = [variable for variable in _distinct_variables(rule.body) if variable not in ends]
    letters = [letter for letter in ascii_uppercase if letter not in "XY"]
    if len(between) > len(letters):
        raise DataError(f"AnyBURL names variables by one letter, and here are too many: {rule}")
    names = {**dict(zip(ends, "XY", strict=False)), **dict(zip(between, letters, strict=False))}
    head, *body = (
        f"{atom.predicate}({','.join(_write_term(term, names) for term in atom.args)})"
        for atom in atoms
        if isinstance(atom, Atom)  # different variables differ there of themselves
    )
    if _has_no_body(rule):
        body = []
    figures = [str(int(count)) for count in counts if count is not None]
    line = "\t".join([*figures, repr(float(rule.confidence)), f"{head} <= {', '.join(body)}"])
    _check_reads_back(assume_identity(rule), line, parse_anyburl, "AnyBURL")
    return line


# AMIE

_AMIE_RULE = re.compile(r"\?\w+.*=>|.*=>.*\?\w")
_AMIE_VARIABLE = re.compile(r"\?([A-Za-z_][A-Za-z0-9_]*)\Z")
_AMIE_EXAMPLE = "?a  p  ?b   => ?b  q  ?a"
_CONFIDENCE = "confidence"
_DIFFERENT = "differentFrom"
_SHARES = ("coverage", _CONFIDENCE, "pca")
_AMIE_COLUMNS = {  # those that are read and written; others are passed over
    "Head Coverage": "coverage",
    "Std Confidence": _CONFIDENCE,
    "PCA Confidence": "pca",
    "Positive Examples": "support",
    "Body size": "body",
    "PCA Body size": "pca_body",
}


def read_amie(path: str | os.PathLike[str]) -> RuleSet:
    """Read a file of AMIE's rules, in the order of its lines."""
    return parse_amie(read_text(path), file=os.fspath(path))


def write_amie(rules: RuleSet, path: str | os.PathLike[str]) -> None:
    """Write rules as AMIE does; a statistic that a rule does not have leaves its cell empty.

    Reading them back gives the same rules up to the names of variables.
    """
    lines = ["\t".join(["Rule", *_AMIE_COLUMNS]), *map(write_amie_line, rules)]
    write_text(path, "".join(f"{line}\n" for line in lines))


def parse_amie(text: str, *, file: str | None = None) -> RuleSet:
    r"""Read the text of such a file.

    >>> print(parse_amie("?a  spouse_of  ?b   => ?b  spouse_of  ?a\t0.2\t0.9\t0.95\t9\t10\t9\t?a"), end="")
    0.9 :: spouse_of(B, A) :- spouse_of(A, B). @{coverage: 0.2, pca: 0.95, support: 9, body: 10, pca_body: 9}
    """
    names: Sequence[str] = [*_AMIE_COLUMNS.values()]
    rules: list[Rule] = []
    for line in _lines(text, file):
        columns = line.text.split("\t")
        if columns[0].strip() == "Rule":
            names = [_AMIE_COLUMNS.get(title.strip(), "") for title in columns[1:]]
        elif _AMIE_RULE.match(columns[0]):
            rules.append(_read_amie_line(line, columns, names))
        elif rules and len(columns) > 1:
            raise line.error(f"expected a rule such as {_AMIE_EXAMPLE}, got {line.text[:60]!r}")
    return _rule_set(rules, file, f"{_AMIE_EXAMPLE} and statistics")


def _read_amie_line(line: _Line, columns: Sequence[str], names: Sequence[str]) -> Rule:
    body_text, _, head_text = columns[0].partition("=>")
    variable_names: dict[str, Variable] = {}
    head, body = (_read_amie_atoms(part, variable_names) for part in (head_text, body_text))
    if len(head) != 1 or not body:
        raise line.error(f"expected body => head, each term two blanks from the next, got {columns[0][:60]!r}")
    figures: dict[str, float] = {}
    for name, cell in zip(names, map(str.strip, columns[1:]), strict=False):
        if name in _SHARES and cell:
            figures[name] = line.read_share(cell, name)
        elif name and cell:
            figures[name] = line.read_count(cell.removesuffix(".0"), name)
    conditions = [Comparison("!=", *atom.args) if atom.predicate == _DIFFERENT else atom for atom in body]
    return line.rule(head[0], conditions, figures.pop(_CONFIDENCE, 1.0), figures)


def _read_amie_atoms(text: str, names: dict[str, Variable]) -> list[Atom]:
    words = [word for word in re.split(r" {2,}", text.strip()) if word]
    if len(words) % 3 or any(word[0] == " " or "\t" in word for word in words):
        words = text.split()  # some versions put one blank between terms
    if len(words) % 3:
        return []
    triples = zip(words[0::3], words[1::3], words[2::3], strict=True)
    return [
        Atom(relation, (_read_amie_term(head, names), _read_amie_term(tail, names))) for head, relation, tail in triples
    ]


def _read_amie_term(text: str, names: dict[str, Variable]) -> Term:
    match = _AMIE_VARIABLE.match(text)
    if match is None:
        return Symbol(text)
    if text not in names:
        name = match[1][0].upper() + match[1][1:]
        while name == "_" or Variable(name) in names.values():
            name += "_"
        names[text] = Variable(name)
    return names[text]


def write_amie_line(statement: Statement) -> str:
    r"""Write one rule.

    >>> from rulewright.logic import parse_rule
    >>> write_amie_line(parse_rule("0.9 :: p(X, Y) :- q(Y, X). @{support: 9}"))
    '?b  q  ?a   => ?a  p  ?b\t\t0.9\t\t9\t\t'
    >>> write_amie_line(parse_rule("p(X, Y) :- q(Y, X), X != Y."))
    '?b  q  ?a  ?a  differentFrom  ?b   => ?a  p  ?b\t\t1.0\t\t\t\t'
    """
    rule, atoms = _conjunction(statement, "AMIE")
    distinct = _distinct_variables([rule.head, *rule.body])
    names = {
        variable: f"?{chr(ord('a') + position % 26)}{position // 26 or ''}"
        for position, variable in enumerate(distinct)
    }
    head, *body = (
        f"{_write_term(atom.args[0], names)}  {atom.predicate if isinstance(atom, Atom) else _DIFFERENT}  "
        f"{_write_term(atom.args[1], names)}"
        for atom in atoms
    )
    cells = []
    for name in _AMIE_COLUMNS.values():
        value = rule.confidence if name == _CONFIDENCE else rule.annotations.number(name)
        cells.append("" if value is None else repr(float(value)) if name in _SHARES else str(int(value)))
    line = "\t".join([f"{'  '.join(body)}   => {head}", *cells])
    _check_reads_back(rule, line, parse_amie, "AMIE")
    return line


# MILR and LogiRE

_MILR_ITEM = r"""(?:'[^'\\]+'|"[^"\\]+")"""
_MILR_BODY = rf"\[\s*(?P<body>{_MILR_ITEM}(?:\s*,\s*{_MILR_ITEM})*)\s*\]"
_MILR_MINED = re.compile(rf"{_MILR_BODY}\s*->\s*(?P<head>\S+?)\s*:\s*(?P<confidence>[^\s:]+)")
_MILR_GOLD = re.compile(rf"(?:\d+\s+)?{_MILR_BODY}\s*(?:->)?\s*(?P<head>[^\s:]+)")
_MILR_EXAMPLE = "['a', 'anti_b'] -> c : 0.98"


def read_milr(path: str | os.PathLike[str]) -> RuleSet:
    """Read a file of published chain rules, in the order of its lines."""
    return parse_milr(read_text(path), file=os.fspath(path))


def parse_milr(text: str, *, file: str | None = None) -> RuleSet:
    """Read the text of such a file; a line without a confidence has confidence 1.

    >>> print(parse_milr("['in0', 'anti_gpe0'] -> in0-x : 0.98"))
    0.98 :: 'in0-x'(V0, V2) :- in0(V0, V1), gpe0(V2, V1).
    <BLANKLINE>
    >>> print(parse_milr("5 ['~child_of'] parent_of").rules[0])
    parent_of(V0, V1) :- child_of(V1, V0).
    """
    return _rule_set([_read_milr_line(line) for line in _lines(text, file) if line.text.strip()], file, _MILR_EXAMPLE)


def _read_milr_line(line: _Line) -> Rule:
    text = line.text.strip()
    match = _MILR_MINED.fullmatch(text) or _MILR_GOLD.fullmatch(text)
    if match is None:
        shown = text if len(text) <= 60 else f"{text[:59]}…"
        raise line.error(f"expected {_MILR_EXAMPLE} or 7 ['a', '~b'] c, got {shown!r}")
    body = tuple(_read_milr_step(item[1:-1], line) for item in re.findall(_MILR_ITEM, match["body"]))
    chain = Chain.oriented(_read_milr_step(match["head"], line), body)
    confidence = match.groupdict().get("confidence")
    return chain.rule(1.0 if confidence is None else line.read_share(confidence, "a confidence"))


def _read_milr_step(name: str, line: _Line) -> Step:
    for prefix in ("anti_", "~"):
        if name == prefix:
            raise line.error(f"{name!r} names no relation; write {prefix}r for the inverse of r")
        if name.startswith(prefix):
            return Step(name.removeprefix(prefix), inverse=True)
    return Step(name)
