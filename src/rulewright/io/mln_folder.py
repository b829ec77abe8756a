"""The four-file form of Markov logic tasks: ``predicates``, ``facts``, ``queries`` and ``rules`` in one folder.

``predicates`` declares one predicate a line, ``friend(person, person)``; ``facts`` holds one observed atom a line, with
``!`` where it is false; ``queries`` (which may be missing) the atoms to be inferred with their true values, in the same
way; ``rules`` (which may be missing too) one weighted clause a line::

    1.0 !friend(a, b) v friend(b, a)
    1.0 !taughtBy(c, p, q) v !courseLevel(c, Level_500) v professor(p)

Among the arguments of ``rules``, numerals, texts in double quotes and names of more than one letter that start with a
capital are constants, other names are variables, and ``+w`` is a plain variable. In facts and queries every argument
is a constant. All constants are names of entities, also numerals, and keep their case. A literal that a clause repeats
counts once, as in the unit clauses that this form writes twice: ``1.0 !friend(a, a) v !friend(a, a)``. What stands
after ``//`` is a comment.
"""

from __future__ import annotations

import os
from pathlib import Path

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.data.builder import MAIN
from rulewright.errors import DataError, FileError, ParseError
from rulewright.files import read_text
from rulewright.io.mln_formulas import (
    FormulaReader,
    MarkovCursor,
    add_ground_atoms,
    constants_by_type,
    read_declaration,
)
from rulewright.logic import Formula, Not, Or, PredicateDeclaration, RuleSet, Unit, WeightedFormula
from rulewright.logic.ruleset import Usage

QUERIES = "queries"
"""The split that holds the queries, true and false."""


def read(folder: str | os.PathLike[str]) -> KnowledgeBase:
    """Read the facts of a folder and, as the split ``queries``, its queries.

    Entities that only queries or rules name exist too.

    >>> _ = (folder / "predicates").write_text("smoke(person)")
    >>> _ = (folder / "facts").write_text("smoke(ann)")
    >>> _ = (folder / "queries").write_text("!smoke(bob)")
    >>> kb = read(folder)
    >>> kb.tuples("smoke"), kb.split("queries").tuples("smoke", truth=False)
    ([('ann',)], [('bob',)])
    """
    folder = Path(folder)
    known = {declaration.name: declaration for declaration in _read_predicates(_required(folder, "predicates"))}
    builder = KnowledgeBaseBuilder(known.values())
    for split, file in ((MAIN, _required(folder, "facts")), (QUERIES, _find(folder, "queries"))):
        if file is not None:
            add_ground_atoms(MarkovCursor(read_text(file), file=str(file)), builder, known, split=split)
    rules = _find(folder, "rules")
    if rules is not None:
        for type_name, name in constants_by_type(_read_rules(rules, [*known.values()])):
            builder.entity(name, type=type_name)
    kb = builder.build()
    if not (kb.n_facts or kb.n_false_facts or kb.splits):
        raise ParseError("neither facts nor queries", file=str(folder))
    return kb


def read_rules(path: str | os.PathLike[str]) -> RuleSet:
    """Read a file of rules, or the file ``rules`` of a folder, with the declarations of ``predicates`` beside it.

    >>> file = folder / "rules"
    >>> _ = file.write_text("1.0 !smoke(a) v !friend(a, b) v smoke(b)")
    >>> print(read_rules(file), end="")
    1.0 !smoke(A) | !friend(A, B) | smoke(B).
    """
    file = _required(Path(path), "rules") if Path(path).is_dir() else Path(path)
    predicates = _find(file.parent, "predicates")
    rules = _read_rules(file, [] if predicates is None else _read_predicates(predicates))
    if not rules.statements:
        raise ParseError("no rules; each stands on a line such as 1.0 !smoke(a) v cancer(a)", file=str(file))
    return rules


def _find(folder: Path, name: str) -> Path | None:
    return next((file for file in (folder / name, folder / f"{name}.gz") if file.is_file()), None)


def _required(folder: Path, name: str) -> Path:
    file = _find(folder, name)
    if file is None:
        raise FileError(
            f"{folder} has no file '{name}'; this form has predicates, facts and, if there are any, queries and rules"
        )
    return file


def _read_predicates(file: Path) -> list[PredicateDeclaration]:
    cursor = MarkovCursor(read_text(file), file=str(file))
    usage = Usage()
    while cursor.skip_newlines():
        offset = cursor.token.offset
        try:
            usage.declare(read_declaration(cursor))
        except ParseError:
            raise
        except DataError as error:
            raise cursor.error(str(error), offset) from None
    if not usage.declared:
        raise ParseError("no predicates; each stands on a line such as friend(person, person)", file=str(file))
    return [*usage.declared.values()]


def _read_rules(file: Path, predicates: list[PredicateDeclaration]) -> RuleSet:
    cursor = MarkovCursor(read_text(file), file=str(file))
    known = {declaration.name: declaration for declaration in predicates}
    reader = FormulaReader(cursor, is_constant=lambda name: name[0].isupper() and len(name) > 1, known=known or None)
    usage = Usage()
    for declaration in predicates:
        usage.declare(declaration)
    clauses: list[WeightedFormula] = []
    while cursor.skip_newlines():
        offset = cursor.token.offset
        if cursor.token.kind != "number":
            raise cursor.unexpected("a weight and a clause such as 1.0 !smoke(a) v cancer(a)")
        weight = float(cursor.take().text)
        formulas = reader.read()
        cursor.take_line_end("'v' or the end of the line")
        try:
            for formula in formulas:
                clause = WeightedFormula(_clause(formula), "soft", weight)
                usage.add(clause)
                clauses.append(clause)
        except DataError as error:
            raise cursor.error(str(error), offset) from None
    return RuleSet(clauses, predicates=predicates)


def _clause(formula: Formula) -> Formula:
    """Check that a formula is a disjunction of literals, and drop those that are repeated."""
    literals = dict.fromkeys(formula.parts if isinstance(formula, Or) else (formula,))
    for literal in literals:
        if not isinstance(literal.formula if isinstance(literal, Not) else literal, Unit):
            raise DataError(f"a rule here is a weight and literals joined by 'v', got: {literal}")
    return Or(tuple(literals)) if len(literals) > 1 else next(iter(literals))
