"""Clauses against truth tables: every assignment of the units is tried."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product

import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.errors import DataError
from rulewright.logic import (
    And,
    Atom,
    Clause,
    Comparison,
    Formula,
    Iff,
    Implies,
    Membership,
    Not,
    Or,
    Unit,
    Variable,
    cnf,
    exclusive_clauses,
    parse_formula,
    units,
)

pytestmark = pytest.mark.slow

X, Y = Variable("X"), Variable("Y")
SAME = {">=": "<", ">": "<=", "!=": "="}
FEW_UNITS: tuple[Unit, ...] = (
    *(Atom(name, (X,)) for name in "pqr"),
    Membership(Atom("label", (X,)), ("a", "b")),
    Membership(Atom("label", (X,)), ("a",)),
    *(Comparison(operator, X, Y) for operator in ("<", ">=", "=", "!=")),
)


def over(leaves: st.SearchStrategy[Unit]) -> st.SearchStrategy[Formula]:
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map(Not),
            st.lists(inner, min_size=2, max_size=3).map(tuple).map(And),
            st.lists(inner, min_size=2, max_size=3).map(tuple).map(Or),
            st.builds(Implies, inner, inner),
            st.builds(Iff, inner, inner),
        ),
        max_leaves=7,
    )


small_formulas = over(st.sampled_from(FEW_UNITS))


def key(unit: Unit) -> tuple[Unit, bool]:
    """Return a unit and whether it means that unit or its opposite; written apart from the code under test."""
    if isinstance(unit, Comparison) and unit.operator in SAME:
        return Comparison(SAME[unit.operator], unit.left, unit.right), False  # type: ignore[arg-type]
    return unit, True


def holds(formula: Formula, world: Mapping[Unit, bool]) -> bool:
    match formula:
        case Not(inner):
            return not holds(inner, world)
        case And(parts):
            return all(holds(part, world) for part in parts)
        case Or(parts):
            return any(holds(part, world) for part in parts)
        case Implies(premise, conclusion):
            return not holds(premise, world) or holds(conclusion, world)
        case Iff(left, right):
            return holds(left, world) == holds(right, world)
        case _:
            unit, same = key(formula)
            return world[unit] == same


def clause_holds(clause: Clause, world: Mapping[Unit, bool]) -> bool:
    return any(holds(literal.formula(), world) for literal in clause.literals)


def worlds(formula: Formula) -> Iterator[dict[Unit, bool]]:
    found = list(dict.fromkeys(key(unit)[0] for unit in units(formula)))
    for values in product((False, True), repeat=len(found)):
        yield dict(zip(found, values, strict=True))


def check_clauses(clauses: tuple[Clause, ...]) -> None:
    for clause in clauses:
        signed = [key(literal.unit) for literal in clause.literals]
        assert len({unit for unit, _ in signed}) == len(signed), "a unit stands in a clause once"
        assert all(literal.positive or not isinstance(literal.unit, Comparison) for literal in clause.literals)


@given(small_formulas)
def test_cnf_is_equivalent(formula: Formula) -> None:
    clauses = cnf(formula)
    check_clauses(clauses)
    for world in worlds(formula):
        assert all(clause_holds(clause, world) for clause in clauses) == holds(formula, world)


@given(small_formulas)
def test_no_clause_of_a_cnf_subsumes_another(formula: Formula) -> None:
    found = [frozenset(clause.literals) for clause in cnf(formula)]
    assert len(set(found)) == len(found)
    assert not any(one < other for one in found for other in found)


@given(small_formulas)
def test_one_exclusive_clause_is_false_where_the_formula_is(formula: Formula) -> None:
    clauses = exclusive_clauses(formula)
    check_clauses(clauses)
    for world in worlds(formula):
        false = sum(not clause_holds(clause, world) for clause in clauses)
        assert false == (0 if holds(formula, world) else 1)


@settings(max_examples=50)
@given(strategies.vocabularies().flatmap(lambda vocabulary: strategies.formulas_over(vocabulary, leaves=5)))
def test_formulas_with_any_names_and_terms(formula: Formula) -> None:
    for clauses in (cnf(formula), exclusive_clauses(formula)):
        check_clauses(clauses)
        for world in worlds(formula):
            assert all(clause_holds(clause, world) for clause in clauses) == holds(formula, world)


@given(st.lists(st.sampled_from(FEW_UNITS), min_size=2, unique_by=lambda unit: key(unit)[0]), st.data())
def test_a_disjunction_stays_one_clause(leaves: list[Unit], data: st.DataObject) -> None:
    signed = [Not(leaf) if data.draw(st.booleans()) else leaf for leaf in leaves]
    premises = tuple(map(Not, signed[:-1]))
    for formula in (Or(tuple(signed)), Implies(And((*premises, premises[0])), signed[-1])):
        assert len(cnf(formula)) == 1
        assert cnf(formula) == exclusive_clauses(formula)
        assert len(cnf(formula)[0].literals) == len(leaves)


@pytest.mark.parametrize(
    ("text", "clauses", "exclusive"),
    [
        ("p(X)", ["p(X)"], ["p(X)"]),
        ("!p(X)", ["!p(X)"], ["!p(X)"]),
        ("smoke(X) & friend(X, Y) => smoke(Y)", *[["!smoke(X) | !friend(X, Y) | smoke(Y)"]] * 2),
        ("!(male(X) & female(X))", *[["!male(X) | !female(X)"]] * 2),
        ("p(X) <=> q(X)", ["!p(X) | q(X)", "p(X) | !q(X)"], ["p(X) | !q(X)", "!p(X) | q(X)"]),
        ("p(X) | !p(X)", [], []),
        ("p(X) => p(X)", [], []),
        ("X < Y | X >= Y", [], []),
        ("p(X) & !p(X)", ["p(X)", "!p(X)"], ["p(X)", "!p(X)"]),
        ("!(X < Y) | p(X)", ["X >= Y | p(X)"], ["X >= Y | p(X)"]),
        ("p(X) & X > Y => X != Y", *[["!p(X) | X <= Y | X != Y"]] * 2),
        # Once p is false, q does not matter: no clause is split over it.
        ("p(X) & q(X) | r(X)", ["p(X) | r(X)", "q(X) | r(X)"], ["p(X) | r(X)", "!p(X) | q(X) | r(X)"]),
    ],
)
def test_examples(text: str, clauses: list[str], exclusive: list[str]) -> None:
    formula = parse_formula(text)
    assert list(map(str, cnf(formula))) == clauses
    assert list(map(str, exclusive_clauses(formula))) == exclusive


def test_the_empty_clause_is_false() -> None:
    assert str(Clause(())) == "false"


def test_long_formulas() -> None:
    many = tuple(Atom(f"p{number}", (X,)) for number in range(400))
    assert len(cnf(Or(many))) == len(exclusive_clauses(Or(many))) == 1
    assert len(cnf(And(many))) == len(exclusive_clauses(And(many))) == 400


def test_too_many_clauses_are_refused() -> None:
    pairs = tuple(And((Atom(f"p{number}", (X,)), Atom(f"q{number}", (X,)))) for number in range(40))
    for clauses in (cnf, exclusive_clauses):
        with pytest.raises(DataError, match="more than 1000 clauses"):
            clauses(Or(pairs))
