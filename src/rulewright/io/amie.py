r"""Rules as AMIE writes them: a table with tabs, the rule first and its statistics behind it.

::

    Rule\tHead Coverage\tStd Confidence\tPCA Confidence\tPositive Examples\tBody size\tPCA Body size\t…
    ?a  spouse_of  ?b  ?b  parent_of  ?c   => ?a  parent_of  ?c\t0.2\t0.9\t0.95\t120\t133\t126\t?a

Terms stand two blanks apart; names are kept as they are, with their angle brackets where they have some, since the
facts have them too. The statistics become the confidence (standard, not PCA) and the annotations ``coverage``, ``pca``,
``support``, ``body`` and ``pca_body``. What AMIE says above the table and below it is passed over.
See Lajus, Galárraga and Suchanek, "Fast and Exact Rule Mining with AMIE 3", ESWC 2020.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence

from rulewright.errors import DataError, ParseError
from rulewright.files import read_text, write_text
from rulewright.io.conjunctions import check_reads_back, conjunction, count, share
from rulewright.logic import Annotations, Atom, Rule, RuleSet, Statement, Symbol, Term, Variable, variables

FORMAT = "AMIE"
HEADER = (
    "Rule",
    "Head Coverage",
    "Std Confidence",
    "PCA Confidence",
    "Positive Examples",
    "Body size",
    "PCA Body size",
)
"""The columns that are read and written; others are passed over."""

_CONFIDENCE = "confidence"
_MEANING = dict(zip(HEADER[1:], ("coverage", _CONFIDENCE, "pca", "support", "body", "pca_body"), strict=True))
_SHARES = ("coverage", _CONFIDENCE, "pca")
_RULE = re.compile(r"\?\w+.*=>|.*=>.*\?\w")
_VARIABLE = re.compile(r"\?([A-Za-z_][A-Za-z0-9_]*)\Z")


def read(path: str | os.PathLike[str]) -> RuleSet:
    """Read a file of AMIE's rules, in the order of its lines."""
    return parse(read_text(path), file=os.fspath(path))


def write(rules: RuleSet, path: str | os.PathLike[str]) -> None:
    """Write rules as AMIE does; a statistic that a rule does not have leaves its cell empty.

    Reading them back gives the same rules up to the names of variables.
    """
    lines = ["\t".join(HEADER), *(line(statement) for statement in rules)]
    write_text(path, "".join(f"{each}\n" for each in lines))


def parse(text: str, *, file: str | None = None) -> RuleSet:
    r"""Read the text of such a file.

    >>> print(parse("?a  spouse_of  ?b   => ?b  spouse_of  ?a\t0.2\t0.9\t0.95\t9\t10\t9\t?a"), end="")
    0.9 :: spouse_of(B, A) :- spouse_of(A, B). @{coverage: 0.2, pca: 0.95, support: 9, body: 10, pca_body: 9}
    """
    meaning: Sequence[str] = [*_MEANING.values()]
    rules = []
    for number, each in enumerate(text.split("\n"), start=1):
        columns = each.rstrip("\r").split("\t")
        if columns[0].strip() == HEADER[0]:
            meaning = [_MEANING.get(name.strip(), "") for name in columns[1:]]
        elif _RULE.match(columns[0]):
            rules.append(_rule(columns, meaning, file, number))
        elif rules and len(columns) > 1:
            raise ParseError(
                f"expected a rule such as ?a  p  ?b   => ?b  q  ?a, got {each[:60]!r}", file=file, line=number
            )
    if not rules:
        raise ParseError("no rules; expected lines such as ?a  p  ?b   => ?b  q  ?a and statistics", file=file)
    try:
        return RuleSet(rules)
    except DataError as error:
        raise ParseError(str(error), file=file) from None


def _rule(columns: Sequence[str], meaning: Sequence[str], file: str | None, number: int) -> Rule:
    body, _, head = columns[0].partition("=>")
    names: dict[str, Variable] = {}
    atoms = [*_atoms(head, names), *_atoms(body, names)]
    if len(_atoms(head, names)) != 1 or len(atoms) < 2:
        raise ParseError(
            f"expected body => head, each term two blanks from the next, got {columns[0][:60]!r}",
            file=file,
            line=number,
        )
    notes: dict[str, float] = {}
    for name, cell in zip(meaning, columns[1:], strict=False):
        if name and cell.strip():
            reads = share if name in _SHARES else count
            text = cell.strip() if name in _SHARES else cell.strip().removesuffix(".0")
            notes[name] = reads(text, name, file=file, line=number)
    try:
        return Rule(atoms[0], tuple(atoms[1:]), notes.pop(_CONFIDENCE, 1.0), Annotations(notes))
    except DataError as error:
        raise ParseError(str(error), file=file, line=number) from None


def _atoms(text: str, names: dict[str, Variable]) -> list[Atom]:
    words = [word for word in re.split(r" {2,}", text.strip()) if word]
    if len(words) % 3 or any(word[0] == " " or "\t" in word for word in words):
        words = text.split()  # some versions put one blank between terms
    if len(words) % 3:
        return []
    triples = zip(words[0::3], words[1::3], words[2::3], strict=True)
    return [Atom(relation, (_term(head, names), _term(tail, names))) for head, relation, tail in triples]


def _term(text: str, names: dict[str, Variable]) -> Term:
    found = _VARIABLE.match(text)
    if found is None:
        return Symbol(text)
    if text not in names:
        name = found[1][0].upper() + found[1][1:]
        while name == "_" or Variable(name) in names.values():
            name += "_"
        names[text] = Variable(name)
    return names[text]


def line(statement: Statement) -> str:
    r"""Write one rule.

    >>> from rulewright.logic import parse_rule
    >>> line(parse_rule("0.9 :: p(X, Y) :- q(Y, X). @{support: 9}"))
    '?b  q  ?a   => ?a  p  ?b\t\t0.9\t\t9\t\t'
    """
    head, *body = conjunction(statement, FORMAT)
    assert isinstance(statement, Rule)
    found = dict.fromkeys(each for part in (statement.head, *statement.body) for each in variables(part))
    names = {each: f"?{_letters(place)}" for place, each in enumerate(found)}
    cells = [_cell(statement, name) for name in _MEANING.values()]
    written = "\t".join([f"{'  '.join(_triple(each, names) for each in body)}   => {_triple(head, names)}", *cells])
    try:
        again = parse(written).rules
    except ParseError:
        again = ()
    check_reads_back(statement, again, FORMAT)
    return written


def _letters(place: int) -> str:
    return chr(ord("a") + place % 26) + (str(place // 26) if place >= 26 else "")


def _cell(rule: Rule, name: str) -> str:
    value = rule.confidence if name == _CONFIDENCE else rule.annotations.number(name)
    if value is None:
        return ""
    return repr(float(value)) if name in _SHARES else str(int(value))


def _triple(atom: Atom, names: Mapping[Variable, str]) -> str:
    terms = [names[term] if isinstance(term, Variable) else str(getattr(term, "name", term)) for term in atom.args]
    return f"{terms[0]}  {atom.predicate}  {terms[1]}"
