"""A learned mixture in the common language: rules with two weights, one for each direction of the query."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rulewright.data import KnowledgeBase
from rulewright.engine.evidence import ANY_ENTITY, RuleForm
from rulewright.learn.path_mixture.constant_rules import DOUBT
from rulewright.learn.path_mixture.target import Target
from rulewright.logic import (
    And,
    Annotations,
    Atom,
    Comparison,
    Formula,
    Implies,
    Not,
    Path,
    Rule,
    RuleSet,
    Statement,
    Symbol,
    Term,
    Variable,
    WeightedFormula,
    decode_path,
    is_inverse,
    mirror_path,
    path_atoms,
    step_relation,
)

FORWARD, BACKWARD = "weight", "weight_inverse"


class MixtureRule(NamedTuple):
    """A rule of either direction as it is read forwards; ``against`` where it speaks against its head."""

    relation: int
    form: int
    path: Path
    constant: int
    end: int
    against: bool


def write_mixture(learned: Mapping[int, Target], kb: KnowledgeBase) -> RuleSet:
    """Write each rule once, with ``weight`` for ``r(X, ?)`` and ``weight_inverse`` for ``r(?, X)``, heaviest first.

    Confidence is ``support / (body + 5)``, counted over the queries of training. What speaks against a relation is
    a formula ``w q(X, Y) => !r(X, Y)``; how often an entity is the answer to any query, a formula ``w r(X, c)``.
    ``ways`` says what many ways along a path count, where that is not the same as one.
    """
    figures: dict[MixtureRule, dict[str, float]] = {}
    for step, target in learned.items():
        for rule, weight, support, body in _read_forwards(step, target):
            entry = figures.setdefault(rule, {})
            entry[BACKWARD if is_inverse(step) else FORWARD] = weight
            if support > entry.get("support", -1):
                entry |= {"support": support, "body": body}
    labels = [str(label) for domain in kb.domains.values() for label in domain.labels]
    relations = list(kb.predicates)
    heaviest_first = sorted(figures.items(), key=lambda item: (item[0].relation, -_heaviest(item[1])))
    ways = {step_relation(step): target.table.ways for step, target in learned.items()}
    return RuleSet([_write_rule(rule, entry, ways[rule.relation], relations, labels) for rule, entry in heaviest_first])


def _heaviest(entry: Mapping[str, float]) -> float:
    return max(entry.get(FORWARD, 0.0), entry.get(BACKWARD, 0.0))


def _read_forwards(step: int, target: Target) -> Iterator[tuple[MixtureRule, float, float, float]]:
    """Yield each rule as it is read forwards, with its weight, support and body."""
    table, inverse = target.table, is_inverse(step)
    columns = (table.path_index, table.form, table.constant, table.end, target.weights, target.support, target.body)
    for row in zip(*(column.tolist() for column in columns), strict=True):
        path_index, form, constant, end, weight, support, body = row
        path = table.paths[path_index]
        if form == RuleForm.CLOSED:
            path = mirror_path(path) if inverse else path
        elif inverse:  # what is an answer to r(?, X) stands first in r, as does what r(X, ?) asks about
            form = RuleForm.ASKED if form == RuleForm.ANSWER else RuleForm.ANSWER
        yield MixtureRule(step_relation(step), form, path, constant, end, weight < 0), weight, support, body


def _write_rule(
    rule: MixtureRule, entry: Mapping[str, float], ways: str, relations: list[str], labels: list[str]
) -> Statement:
    x, y = Variable("X"), Variable("Y")
    head_args: tuple[Term, Term] = (x, y)
    last: Term = y
    if rule.form != RuleForm.CLOSED:
        constant = Symbol(labels[rule.constant])
        head_args = (x, constant) if rule.form == RuleForm.ANSWER else (constant, x)
        last = Variable("Z") if rule.end == ANY_ENTITY else Symbol(labels[rule.end])
    head = Atom(relations[rule.relation], head_args)
    shown: dict[str, object] = {name: int(value) if value == int(value) else value for name, value in entry.items()}
    if rule.form == RuleForm.CLOSED and ways != "once":
        shown["ways"] = ways
    annotations = Annotations(shown)
    body: tuple[Formula, ...] = path_atoms(decode_path(rule.path, relations), x, last)
    if rule.against:
        premise: Formula = Comparison("=", x, y) if not body else And(body) if len(body) > 1 else body[0]
        weight = -min(entry.get(FORWARD, 0.0), entry.get(BACKWARD, 0.0))
        return WeightedFormula(Implies(premise, Not(head)), "soft", weight, annotations)
    if not body:
        return WeightedFormula(head, "soft", _heaviest(entry), annotations)
    return Rule(head, body, min(1.0, entry["support"] / (entry["body"] + DOUBT)), annotations)
