"""Rules over the relations of entity pairs, read into what the consistency loss and the decoder work with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from rulewright.errors import DataError, UnknownNameError, unknown_name
from rulewright.logic import (
    Atom,
    Comparison,
    Literal,
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
    """A relation between two variables of a clause, all three by index."""

    relation: int
    first: int
    second: int


@dataclass(frozen=True, slots=True)
class PairClause:
    """Whenever every body atom holds, one of the head atoms holds; for all assignments of distinct entities.

    A chain or Horn rule has one head, a denial (``hard !(a(X, Y) & b(X, Y))``) none; negated body atoms of a rule
    stand among the heads. ``variables`` has the names of the variables, by index.
    """

    body: tuple[PairAtom, ...]
    heads: tuple[PairAtom, ...]
    variables: tuple[str, ...]
    confidence: float
    source: PairSource

    def reorder_variables(self, order: Sequence[int]) -> PairClause:
        """Return the clause with variable ``order[i]`` at index i."""
        new_index = {variable: index for index, variable in enumerate(order)}
        body, heads = (
            tuple(PairAtom(atom.relation, new_index[atom.first], new_index[atom.second]) for atom in atoms)
            for atoms in (self.body, self.heads)
        )
        return replace(self, body=body, heads=heads, variables=tuple(self.variables[variable] for variable in order))


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
    relation_indices = _index_relations(relations)
    statements: Iterable[Statement] = [rules] if isinstance(rules, Rule) else rules
    clauses: dict[object, PairClause] = {}
    for statement in statements:
        source = _check_statement(statement, reader)
        for literals in _disjunctions(source):
            clause = _read_clause(literals, source, relation_indices, reader)
            if clause is not None:
                key = (_canonical_form(clause), clause.confidence if keep_confidences else None)
                clauses.setdefault(key, clause)
    return tuple(clauses.values())


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
        bound = {variable for atom in clause.body for variable in atom[1:]}
        if len(clause.heads) != 1 or not bound.issuperset(clause.heads[0][1:]):
            raise DataError(
                f"{reader} needs one head that follows from positive atoms; a RuleDecoder takes {clause.source}"
            )
    return clauses


def _index_relations(relations: Sequence[str]) -> dict[str, int]:
    if isinstance(relations, str):
        raise DataError(f"relations must be a sequence of names, got the string {relations!r}")
    indices: dict[str, int] = {}
    for name in relations:
        if not isinstance(name, str):
            raise DataError(f"relations must be names, got {name!r}")
        if name in indices:
            raise DataError(f"relations must differ, got {name!r} twice")
        indices[name] = len(indices)
    if not indices:
        raise DataError("relations must name at least one relation")
    return indices


def _check_statement(statement: Statement, reader: str) -> PairSource:
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


def _read_clause(
    literals: Sequence[Literal], source: PairSource, relation_indices: dict[str, int], reader: str
) -> PairClause | None:
    """Read a disjunction of literals; None where it always holds."""
    variables: dict[str, int] = {}
    body: dict[PairAtom, None] = {}
    heads: dict[PairAtom, None] = {}
    for literal in literals:
        if isinstance(literal.unit, Comparison):
            if _decide_comparison(literal.unit, source, reader) == literal.positive:
                return None
            continue
        atom = _read_atom(literal.unit, source, relation_indices, variables, reader)
        (heads if literal.positive else body)[atom] = None
    if not body and not heads:
        raise DataError(f"no two different entities can satisfy {source}")
    if body.keys() & heads.keys():
        return None
    confidence = source.confidence if isinstance(source, Rule) else 1.0
    return PairClause(tuple(body), tuple(heads), tuple(variables), confidence, source)


def _decide_comparison(comparison: Comparison, source: PairSource, reader: str) -> bool:
    """Return whether a comparison of variables holds: two are equal exactly when they are one."""
    if comparison.operator not in ("=", "!=") or not all(isinstance(term, Variable) for term in comparison.args):
        raise DataError(f"{reader} knows entities by their index only and cannot decide {comparison} in: {source}")
    return (comparison.left == comparison.right) == (comparison.operator == "=")


def _read_atom(
    unit: Unit, source: PairSource, relation_indices: dict[str, int], variables: dict[str, int], reader: str
) -> PairAtom:
    if not isinstance(unit, Atom):
        raise DataError(f"{reader} takes relations between two entities, not the classes of {unit} in: {source}")
    if unit.arity != 2:
        raise DataError(f"{reader} takes relations between two entities, and {unit} has {unit.arity} in: {source}")
    name = str(unit.predicate)
    if name not in relation_indices:
        raise UnknownNameError(f"{unknown_name('relation', name, relation_indices)} — in: {source}")
    for term in unit.args:
        if not isinstance(term, Variable):
            constants = "names" if isinstance(term, Symbol) else "numbers"
            raise DataError(
                f"{reader} knows entities by their index only, not the {constants} of {unit} in: {source}; "
                "leave such rules out, or mine with constants=False"
            )
    first, second = (variables.setdefault(str(term), len(variables)) for term in unit.args)
    if first == second:
        raise DataError(f"{reader} has no label for an entity with itself, as {unit} asks in: {source}")
    return PairAtom(relation_indices[name], first, second)


def _canonical_form(clause: PairClause) -> Rule:
    """Return a value that is equal for clauses that differ in names of variables and order only.

    A rule's canonical form does this for a body; so heads and body stand in one body, marked by their names.
    """
    atoms = tuple(
        Atom(f"{sign}{atom.relation}", (Variable(f"V{atom.first}"), Variable(f"V{atom.second}")))
        for sign, side in (("+", clause.heads), ("-", clause.body))
        for atom in side
    )
    return Rule(Atom("clause", (Symbol("any"),)), atoms).canonical()
