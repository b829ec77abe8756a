"""The definitions of the loss and of the decoder, as nested loops over all assignments; and rules to try them on."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import strategies as st

from rulewright.logic import Atom, Literal, Not, Rule, RuleSet, Variable, WeightedFormula, cnf, variables
from rulewright.logic import parse_rules as parse

RELATIONS = ("a", "b", "c")
BODIES = (
    "{1}(X, Y)",
    "{1}(Y, X)",
    "{1}(X, Y), {2}(Y, X)",
    "{1}(X, Y), {2}(X, Y)",
    "{1}(X, Z), {2}(Z, Y)",
    "{1}(Z, X), {2}(Z, Y)",
    "{1}(X, Z), {2}(Y, Z)",
    "{1}(Z, X), {2}(Y, Z)",
    "{1}(X, Z), {2}(Z, Y), {3}(X, Y)",
    "{1}(X, Z), {2}(Z, Y), {3}(Y, X)",
    "{1}(X, Y), {2}(Y, Z)",
    "{1}(X, Z), {2}(Z, W), {3}(W, Y)",
    "{1}(X, Z), {2}(W, Z), {3}(Y, W)",
    "{1}(X, Z), {2}(Y, W)",
    "{1}(X, Y), {2}(Z, W)",
)


@st.composite
def horn_rules(draw: st.DrawFn, max_rules: int = 4, bodies: Sequence[str] = BODIES) -> RuleSet:
    """Draw a few Horn rules over RELATIONS."""
    lines = []
    for _ in range(draw(st.integers(1, max_rules))):
        head, *names = (draw(st.sampled_from(RELATIONS)) for _ in range(4))
        confidence = draw(st.sampled_from(["", "0.9 :: ", "0.5 :: "]))
        body = draw(st.sampled_from(bodies)).format(head, *names)
        lines.append(f"{confidence}{head}(X, Y) :- {body}.")
    return parse("\n".join(lines))


def log_p(x: float) -> float:
    """Return the logarithm of the logistic function."""
    return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))


def _unique(rules: RuleSet) -> list[Rule]:
    kept: dict[object, Rule] = {}
    for rule in rules.rules:
        if rule.head not in rule.body:
            kept.setdefault((rule.canonical(), rule.confidence), rule)
    return list(kept.values())


def plain_loss(
    logits: np.ndarray, rules: RuleSet, relations: Sequence[str], *, eta: float = 0.05, form: str = "hinge"
) -> float:
    """Return the loss of one document [n, n, R] by the definition."""
    size = len(logits)
    total = 0.0
    for rule in _unique(rules):
        atoms = list(dict.fromkeys(rule.body))
        offset = math.log(rule.confidence) - eta * len(atoms)
        names = list(
            dict.fromkeys([*variables(rule.head), *(variable for atom in atoms for variable in variables(atom))])
        )
        largest: dict[tuple[int, int], float] = {}
        for entities in itertools.permutations(range(size), len(names)):
            at = dict(zip(names, entities, strict=True))

            def value(atom: Atom, at: dict[Variable, int] = at) -> float:
                return log_p(float(logits[at[atom.args[0]], at[atom.args[1]], relations.index(atom.predicate)]))

            hinge = max(0.0, offset + sum(map(value, atoms)) - value(rule.head))
            if form == "hinge":
                total += hinge
            else:
                pair = entities[:2]
                largest[pair] = max(largest.get(pair, 0.0), hinge)
        if form == "published" and size > 1:
            total += sum(largest.values()) / (size * (size - 1))
    return total


Ground = tuple[str, int, int]


def plain_groundings(rules: RuleSet, size: int) -> Iterator[tuple[frozenset[Ground], frozenset[Ground]]]:
    """Yield (body, heads) of every grounding of rules and hard formulas over distinct entities."""
    for statement in rules:
        for literals in _disjunctions(statement):
            names = list(dict.fromkeys(variable for literal in literals for variable in variables(literal.unit)))
            for entities in itertools.permutations(range(size), len(names)):
                at = dict(zip(names, entities, strict=True))
                body, heads = (
                    frozenset(
                        (str(literal.unit.predicate), at[literal.unit.args[0]], at[literal.unit.args[1]])
                        for literal in literals
                        if literal.positive == sign
                    )
                    for sign in (False, True)
                )
                yield body, heads


def _disjunctions(statement: Rule | WeightedFormula) -> Iterator[tuple[Literal, ...]]:
    if isinstance(statement, WeightedFormula):
        for clause in cnf(statement.formula):
            yield clause.literals
        return
    negated = tuple(
        Literal(part.formula, True) if isinstance(part, Not) else Literal(part, False) for part in statement.body
    )
    yield (*negated, Literal(statement.head))


def plain_violations(labels: np.ndarray, rules: RuleSet, relations: Sequence[str]) -> int:
    """Count the groundings whose body holds and none of whose heads does."""

    def holds(atom: Ground) -> bool:
        return bool(labels[atom[1], atom[2], relations.index(atom[0])])

    return sum(
        all(map(holds, body)) and not any(map(holds, heads)) for body, heads in plain_groundings(rules, len(labels))
    )


FORMULAS = (
    "hard !({0}(X, Y) & {1}(X, Y)).",
    "hard !({0}(X, Y) & {0}(Y, X)).",
    "hard !({0}(X, Y) & {1}(X, Z)).",
    "hard {0}(X, Y) => {1}(X, Y) | {2}(Y, X).",
    "hard {0}(X, Y) => {1}(Y, Z).",
    "hard {0}(X, Y) | {1}(Y, X).",
    "{0}(X, Y) :- {1}(X, Y), !{2}(X, Y).",
)


@st.composite
def any_rules(draw: st.DrawFn, max_rules: int = 3, formulas: Sequence[str] = FORMULAS) -> RuleSet:
    """Draw Horn rules, denials, disjunctions and unconditional clauses over RELATIONS, without tautologies."""
    rules = draw(horn_rules(max_rules))
    kept = [rule for rule in rules.rules if rule.head not in rule.body]
    lines = []
    for _ in range(draw(st.integers(0, 2))):
        names = draw(st.permutations(RELATIONS))
        lines.append(draw(st.sampled_from(formulas)).format(*names))
    statements = [*kept, *parse("\n".join(lines))]
    unique = {
        statement.canonical() if isinstance(statement, Rule) else statement: statement for statement in statements
    }
    return RuleSet(unique.values())
