"""Rules over the relations of entity pairs, read into what the consistency loss and the decoder work with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from rulewright.errors import DataError, UnknownNameError, unknown_name
from rulewright.logic import (
    Atom,
    Comparison,
    Literal,
    Membership,
    Rule,
    RuleSet,
    Statement,
    Symbol,
    Template,
    Unit,
    Variable,
    WeightedFormula,
    cnf,
)

PairSource: TypeAlias = Rule | WeightedFormula


class PairAtom(NamedTuple):
    """A relation, by its number, between two variables of a clause, by theirs."""

    relation: int
    first: int
    second: int


@dataclass(frozen=True, slots=True)
class PairClause:
    """Whenever every body atom holds, one of the head atoms holds; for all assignments of distinct entities.

    A chain or Horn rule has one head, a denial (``hard !(a(X, Y) & b(X, Y))``) none; negated body atoms of a rule
    stand among the heads. ``variables`` names the variables, in the order of their numbers.
    """

    body: tuple[PairAtom, ...]
    heads: tuple[PairAtom, ...]
    variables: tuple[str, ...]
    confidence: float
    source: PairSource

    def bound(self) -> set[int]:
        """Return the variables that the body has."""
        return {variable for atom in self.body for variable in (atom.first, atom.second)}

    def renumbered(self, order: Sequence[int]) -> PairClause:
        """Return the clause with variable ``order[i]`` as number i."""
        place = {variable: number for number, variable in enumerate(order)}
        body, heads = (
            tuple(PairAtom(atom.relation, place[atom.first], place[atom.second]) for atom in atoms)
            for atoms in (self.body, self.heads)
        )
        names = tuple(self.variables[variable] for variable in order)
        return PairClause(body, heads, names, self.confidence, self.source)


def read_clauses(
    rules: RuleSet | Rule | Iterable[Statement],
    relations: Sequence[str],
    *,
    reader: str,
    keep_confidences: bool = False,
) -> tuple[PairClause, ...]:
    """Read rules and hard formulas as clauses over ``relations``; refuse by name what has no meaning over pairs.

    Clauses that are equal up to the names of variables are kept once, or with ``keep_confidences`` once for each
    confidence; clauses that always hold are left out. ``X != Y`` always holds, since different variables are
    different entities. ``reader`` is the name that a refusal gives.

    >>> from rulewright.logic import parse_rules
    >>> rules = parse_rules("0.9 :: c(X, Z) :- a(X, Y), b(Z, Y). hard !(a(X, Y) & b(X, Y)).")
    >>> for clause in read_clauses(rules, ["a", "b", "c"], reader="RuleDecoder"):
    ...     print(clause.body, "->", clause.heads)
    (PairAtom(relation=0, first=0, second=1), PairAtom(relation=1, first=2, second=1)) -> (PairAtom(relation=2, first=0, second=2),)
    (PairAtom(relation=0, first=0, second=1), PairAtom(relation=1, first=0, second=1)) -> ()
    """  # noqa: E501
    numbers = _numbered(relations)
    statements: Iterable[Statement] = [rules] if isinstance(rules, Rule) else rules
    found: dict[object, PairClause] = {}
    for statement in statements:
        source = _accepted(statement, reader)
        for literals in _disjunctions(source):
            clause = _clause(literals, source, numbers, reader)
            if clause is not None:
                found.setdefault((_standard(clause), clause.confidence if keep_confidences else None), clause)
    return tuple(found.values())


def read_horn_clauses(
    rules: RuleSet | Rule | Iterable[Statement], relations: Sequence[str], *, reader: str
) -> tuple[PairClause, ...]:
    """Read rules as clauses with one head whose variables the body binds; refuse all others by name.

    >>> from rulewright.logic import parse_rules
    >>> read_horn_clauses(parse_rules("hard !(a(X, Y) & b(X, Y))."), ["a", "b"], reader="ConsistencyLoss")
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: ConsistencyLoss needs one head that follows from positive atoms; a RuleDecoder takes \
hard !(a(X, Y) & b(X, Y)).
    """
    clauses = read_clauses(rules, relations, reader=reader, keep_confidences=True)
    for clause in clauses:
        if len(clause.heads) != 1 or not clause.bound().issuperset(clause.heads[0][1:]):
            raise DataError(
                f"{reader} needs one head that follows from positive atoms; a RuleDecoder takes {clause.source}"
            )
    return clauses


def _numbered(relations: Sequence[str]) -> dict[str, int]:
    if isinstance(relations, str):
        raise DataError(f"relations must be a sequence of names, got the string {relations!r}")
    numbers: dict[str, int] = {}
    for name in relations:
        if not isinstance(name, str):
            raise DataError(f"relations must be names, got {name!r}")
        if name in numbers:
            raise DataError(f"relations must differ, got {name!r} twice")
        numbers[name] = len(numbers)
    if not numbers:
        raise DataError("relations must name at least one relation")
    return numbers


def _accepted(statement: Statement, reader: str) -> PairSource:
    if isinstance(statement, Template):
        raise DataError(f"{reader} takes rules, and a template is none until a learner has filled it: {statement}")
    if not isinstance(statement, Rule | WeightedFormula):
        raise DataError(f"{reader} takes rules and hard formulas, got {statement!r}")
    if isinstance(statement, WeightedFormula) and statement.kind != "hard":
        why = "the weight is not known" if statement.kind == "learn" else "a weight is no confidence"
        raise DataError(f"{reader} takes rules and hard formulas, and {why}; use a LogicLayer for: {statement}")
    return statement


def _disjunctions(source: PairSource) -> Iterator[tuple[Literal, ...]]:
    """Yield the literals of which one must be true: a rule gives one set for each alternative of its body."""
    if isinstance(source, Rule):
        for alternative in source.alternatives():
            yield (*(literal.negated() for literal in alternative), Literal(source.head))
    else:
        for clause in cnf(source.formula):
            yield clause.literals


def _clause(literals: Sequence[Literal], source: PairSource, numbers: dict[str, int], reader: str) -> PairClause | None:
    """Read a disjunction of literals; None where it always holds."""
    variables: dict[str, int] = {}
    body: dict[PairAtom, None] = {}
    heads: dict[PairAtom, None] = {}
    for literal in literals:
        if isinstance(literal.unit, Comparison):
            if _truth(literal.unit, source, reader) == literal.positive:
                return None
            continue
        atom = _atom(literal.unit, source, numbers, variables, reader)
        (heads if literal.positive else body)[atom] = None
    if not body and not heads:
        raise DataError(f"no two different entities can satisfy {source}")
    if body.keys() & heads.keys():
        return None
    confidence = source.confidence if isinstance(source, Rule) else 1.0
    return PairClause(tuple(body), tuple(heads), tuple(variables), confidence, source)


def _truth(comparison: Comparison, source: PairSource, reader: str) -> bool:
    """Decide a comparison of variables: two are equal exactly when they are one."""
    if comparison.operator not in ("=", "!=") or not all(isinstance(term, Variable) for term in comparison.args):
        raise DataError(f"{reader} knows entities by their place only and cannot decide {comparison} in: {source}")
    return (comparison.left == comparison.right) == (comparison.operator == "=")


def _atom(unit: Unit, source: PairSource, numbers: dict[str, int], variables: dict[str, int], reader: str) -> PairAtom:
    if isinstance(unit, Membership) or not isinstance(unit, Atom):
        raise DataError(f"{reader} takes relations between two entities, not the classes of {unit} in: {source}")
    if unit.arity != 2:
        raise DataError(f"{reader} takes relations between two entities, and {unit} has {unit.arity} in: {source}")
    name = str(unit.predicate)
    if name not in numbers:
        raise UnknownNameError(f"{unknown_name('relation', name, numbers)} — in: {source}")
    for term in unit.args:
        if not isinstance(term, Variable):
            shown = "names" if isinstance(term, Symbol) else "numbers"
            raise DataError(f"{reader} knows entities by their place only, not the {shown} of {unit} in: {source}")
    first, second = (variables.setdefault(str(term), len(variables)) for term in unit.args)
    if first == second:
        raise DataError(f"{reader} has no label for an entity with itself, as {unit} asks in: {source}")
    return PairAtom(numbers[name], first, second)


def _standard(clause: PairClause) -> Rule:
    """Return a value that is equal for clauses that differ in names of variables and order only.

    A rule's canonical form does this for a body; so heads and body stand in one body, told apart by their names.
    """
    sides = (("+", clause.heads), ("-", clause.body))
    atoms = tuple(
        Atom(f"{sign}{atom.relation}", (Variable(f"V{atom.first}"), Variable(f"V{atom.second}")))
        for sign, side in sides
        for atom in side
    )
    return Rule(Atom("clause", (Symbol("any"),)), atoms).canonical()
