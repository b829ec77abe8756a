r"""Rules as AnyBURL writes them: how often the body held, how often the head with it, the confidence, the rule.

::

    98\t92\t0.9387\tparent_of(X,Y) <= spouse_of(X,A), parent_of(A,Y)
    12\t7\t0.58\tlives_in(X,Bonn) <= works_in(X,Bonn)

A single capital letter is a variable, everything else an entity. There are no quotes: names may hold blanks, brackets
and commas as long as the line can be read in one way. The counts become the annotations ``body`` and ``support``. Rules
without a body, which AnyBURL learns too, say of everything that it may be; no rule here can, and they are refused.
See Meilicke et al., "Anytime Bottom-Up Rule Learning for Knowledge Graph Completion", IJCAI 2019.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from string import ascii_uppercase

from rulewright.errors import DataError, ParseError
from rulewright.files import read_text, write_text
from rulewright.io.conjunctions import check_reads_back, conjunction, count, share
from rulewright.logic import Annotations, Atom, Rule, RuleSet, Statement, Symbol, Term, Variable, variables

FORMAT = "AnyBURL"
_ATOM = re.compile(r"([^(\t]+)\(([^\t]+?)\)(?=, [^(\t]+\(|\Z)")
_ENDS = "XY"


def read(path: str | os.PathLike[str]) -> RuleSet:
    """Read a file of AnyBURL's rules, in the order of its lines."""
    return parse(read_text(path), file=os.fspath(path))


def write(rules: RuleSet, path: str | os.PathLike[str]) -> None:
    """Write rules for AnyBURL; they need the annotations ``body`` and ``support``, and other annotations are left out.

    Reading them back gives the same rules up to the names of variables.
    """
    write_text(path, "".join(f"{line(statement)}\n" for statement in rules))


def parse(text: str, *, file: str | None = None) -> RuleSet:
    r"""Read the text of such a file.

    >>> print(parse("98\t92\t0.93\tparent_of(X,Y) <= spouse_of(X,A), parent_of(A,Y)"), end="")
    0.93 :: parent_of(X, Y) :- spouse_of(X, A), parent_of(A, Y). @{support: 92, body: 98}
    """
    rules = [_rule(line, file, number) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    if not rules:
        raise ParseError("no rules; expected lines such as 98, 92, 0.93, p(X,Y) <= q(X,Y) with tabs between", file=file)
    try:
        return RuleSet(rules)
    except DataError as error:
        raise ParseError(str(error), file=file) from None


def _rule(line: str, file: str | None, number: int) -> Rule:
    columns = line.rstrip("\r").split("\t")
    if len(columns) != 4:
        raise ParseError(
            f"found {len(columns)} columns, expected 4 with tabs between: body, support, confidence, rule",
            file=file,
            line=number,
        )
    body, support = (count(columns[place], ("body", "support")[place], file=file, line=number) for place in (0, 1))
    confidence = share(columns[2], "the confidence", file=file, line=number)
    head, arrow, conditions = columns[3].partition(" <= ")
    if not arrow or not conditions.strip():
        if columns[3].rstrip().endswith("<="):
            raise ParseError(
                "a rule without a body says of every entity that it may be the answer, which no rule here can say; "
                "leave such lines out, as with: grep -v '<= *$'",
                file=file,
                line=number,
            )
        raise ParseError(f"expected head <= body, got {columns[3][:60]!r}", file=file, line=number)
    atoms = [*_atoms(head, file, number), *_atoms(conditions.rstrip(), file, number)]
    try:
        return Rule(atoms[0], tuple(atoms[1:]), confidence, Annotations({"support": support, "body": body}))
    except DataError as error:
        raise ParseError(str(error), file=file, line=number) from None


def _atoms(text: str, file: str | None, number: int) -> list[Atom]:
    atoms = []
    position = 0
    while position < len(text):
        found = _ATOM.match(text, position)
        args = None if found is None else _arguments(found[2])
        if found is None or args is None:
            raise ParseError(
                f"expected atoms such as p(X,ann), read in one way only, got {text[:60]!r}", file=file, line=number
            )
        atoms.append(Atom(found[1], args))
        position = found.end() + len(", ")
    return atoms


def _arguments(text: str) -> tuple[Term, ...] | None:
    """Split two arguments at their comma; where there are more, one of the two must be a variable."""
    parts = text.split(",")
    if len(parts) > 2:
        if _is_variable(parts[0]) == _is_variable(parts[-1]):
            return None
        parts = [parts[0], ",".join(parts[1:])] if _is_variable(parts[0]) else [",".join(parts[:-1]), parts[-1]]
    return tuple(map(_term, parts)) if len(parts) == 2 and all(parts) else None


def _is_variable(text: str) -> bool:
    return len(text) == 1 and text in ascii_uppercase


def _term(text: str) -> Term:
    return Variable(text) if _is_variable(text) else Symbol(text)


def line(statement: Statement) -> str:
    r"""Write one rule.

    >>> from rulewright.logic import parse_rule
    >>> line(parse_rule("0.9 :: p(V0, V1) :- q(V1, V0). @{support: 9, body: 10}"))
    '10\t9\t0.9\tp(X,Y) <= q(Y,X)'
    """
    atoms = conjunction(statement, FORMAT)
    assert isinstance(statement, Rule)
    counts = [statement.annotations.number(name) for name in ("body", "support")]
    if any(each is None or each < 0 or each != int(each) for each in counts):
        raise DataError(f"AnyBURL's lines begin with the counts body and support, which are missing here: {statement}")
    names = _names(statement)
    head, *body = (f"{atom.predicate}({','.join(_written(term, names) for term in atom.args)})" for atom in atoms)
    figures = [str(int(each)) for each in counts if each is not None]
    written = "\t".join([*figures, repr(float(statement.confidence)), f"{head} <= {', '.join(body)}"])
    try:
        again = parse(written).rules
    except ParseError:
        again = ()
    check_reads_back(statement, again, FORMAT)
    return written


def _names(rule: Rule) -> Mapping[Variable, str]:
    """Name the variables of the head X and Y, the others A, B and so on."""
    ends = variables(rule.head)
    inner = [each for part in rule.body for each in variables(part) if each not in ends]
    letters = [each for each in ascii_uppercase if each not in _ENDS]
    between = [*dict.fromkeys(inner)]
    if len(between) > len(letters):
        raise DataError(f"AnyBURL names variables by one letter, and here are too many: {rule}")
    return {**dict(zip(ends, _ENDS, strict=False)), **dict(zip(between, letters, strict=False))}


def _written(term: Term, names: Mapping[Variable, str]) -> str:
    return names[term] if isinstance(term, Variable) else str(getattr(term, "name", term))
