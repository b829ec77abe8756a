"""What it costs to break a rule: a number for each statement, as a decoder is told it."""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, TypeAlias

from rulewright.errors import DataError, unknown_name
from rulewright.logic import Annotations, Rule, RuleSet, Statement, WeightedFormula, parse_rules

RuleCosts: TypeAlias = float | Sequence[float] | Mapping[Statement, float] | Mapping[str, float] | Literal["weight"]
"""One number for all statements, one for each in their order, numbers by statement or its text, or their weights."""

LARGEST_RULE_COST = 1e6
"""Beyond this a cost could no longer be told apart from one that is infinite, beside those of labels."""


def read_rule_costs(rules: RuleSet, costs: RuleCosts) -> tuple[float, ...]:
    """Return what one broken grounding of each statement costs, in their order; infinite where it must hold.

    A name is a statement or its text, with confidence and annotations or without. Statements that are not named must
    hold.

    >>> rules = parse_rules("0.9 :: b(X) :- a(X). @{weight: 2.5} hard c(X) => b(X). 0.5 a(X) => c(X).")
    >>> read_rule_costs(rules, "weight")
    (2.5, inf, 0.5)
    >>> read_rule_costs(rules, {"b(X) :- a(X).": 1, "0.5 a(X) => c(X).": 0})
    (1.0, inf, 0.0)
    """
    if isinstance(costs, str):
        if costs != "weight":
            raise DataError(
                f"rule_costs must be 'weight', a number, a sequence, or a mapping from rules, got {costs!r}"
            )
        given = [_read_weight(statement) for statement in rules]
    elif isinstance(costs, Mapping):
        given = _read_mapping(rules, costs)
    elif not isinstance(costs, Iterable):
        given = [_read_number(costs)] * len(rules)
    else:
        given = [_read_number(cost) for cost in costs]
        if len(given) != len(rules):
            raise DataError(f"rule_costs must be {len(rules)} numbers, one for each statement, got {len(given)}")
    for statement, cost in zip(rules, given, strict=True):
        _check_cost(statement, cost)
    return tuple(given)


def _read_weight(statement: Statement) -> float:
    """Return the weight that a statement carries; hard formulas must hold."""
    if isinstance(statement, WeightedFormula):
        if statement.kind == "learn":
            raise DataError(f"rule_costs='weight' needs weights, and this one is to be learned: {statement}")
        return math.inf if statement.weight is None else statement.weight
    weight = statement.annotations.number("weight")
    if weight is None:
        raise DataError(
            "rule_costs='weight' needs rules with a weight, @{weight: 1.5} behind the full stop, or costs by rule, "
            f"{{rule: 1.5}}, for: {statement}"
        )
    return weight


def _read_mapping(rules: RuleSet, costs: Mapping[Statement, float] | Mapping[str, float]) -> list[float]:
    """Return the costs of statements by name; the name that says most decides."""
    named = {_read_name(name): (name, _read_number(cost)) for name, cost in costs.items()}
    used: set[Statement] = set()
    found = []
    for statement in rules:
        form = next((form for form in _list_forms(statement) if form in named), None)
        if form is not None:
            used.add(form)
        elif isinstance(statement, WeightedFormula) and statement.kind != "hard":
            raise DataError(f"rule_costs must name every formula that is not hard, also: {statement}")
        found.append(math.inf if form is None else named[form][1])
    for form, (name, _) in named.items():
        if form not in used:
            raise unknown_name("rule", str(name), [str(statement) for statement in rules])
    return found


def _read_name(name: Statement | str) -> Statement:
    if not isinstance(name, str):
        return name
    statements = parse_rules(name).statements
    if len(statements) != 1:
        raise DataError(f"a name in rule_costs must be one statement, got {name!r}")
    return statements[0]


def _list_forms(statement: Statement) -> list[Statement]:
    """Return a statement, and what it is without annotations, and without confidence."""
    bare = replace(statement, annotations=Annotations())
    return [statement, bare, replace(bare, confidence=1.0) if isinstance(bare, Rule) else bare]


def _read_number(cost: object) -> float:
    if isinstance(cost, bool) or not isinstance(cost, numbers.Real):
        raise DataError(f"rule_costs must be numbers, got {cost!r}")
    return float(cost)


def _check_cost(statement: Statement, cost: float) -> None:
    if not cost >= 0:
        raise DataError(
            f"rule_costs must be >= 0 (math.inf for what must hold), got {cost}; to ask for the opposite, write that, "
            f"for: {statement}"
        )
    if LARGEST_RULE_COST < cost < math.inf:
        raise DataError(
            f"rule_costs must be at most {LARGEST_RULE_COST:,.0f}, got {cost}; math.inf is for what must hold, for: "
            f"{statement}"
        )
    if cost > 0 and isinstance(statement, WeightedFormula) and (statement.weight or 0.0) < 0:
        raise DataError(
            f"a weight below 0 asks for the opposite; write that, with a cost of at least 0, for: {statement}"
        )
