"""A learned mixture in the common language: rules with two weights, one for each direction of the question."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rulewright.data import KnowledgeBase
from rulewright.engine.evidence import ANY_ENTITY, RuleForm
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
    mirror_path,
)

_Key = tuple[int, int, Path, int, int, bool]
FORWARD, BACKWARD = "weight", "weight_inverse"


def written(learned: Mapping[int, Target], kb: KnowledgeBase) -> RuleSet:
    """Write each rule once, with ``weight`` for ``r(X, ?)`` and ``weight_inverse`` for ``r(?, X)``, heaviest first.

    Confidence is ``support / (body + 5)``, counted over the questions of training. What speaks against a relation is
    a formula ``w q(X, Y) => !r(X, Y)``; how often an entity is the answer to any question, a formula ``w r(X, c)``.
    ``ways`` says what many ways along a path count, where that is not the same as one.
    """
    found: dict[_Key, dict[str, float]] = {}
    for relation, target in learned.items():
        name = BACKWARD if relation & 1 else FORWARD
        for key, weight, support, body in _keys(relation, target):
            entry = found.setdefault(key, {})
            entry[name] = weight
            if support > entry.get("support", -1):
                entry |= {"support": support, "body": body}
    labels = [str(label) for domain in kb.domains.values() for label in domain.labels]
    names = list(kb.predicates)
    heaviest = sorted(found.items(), key=lambda item: (item[0][0], -_heaviest(item[1])))
    ways = {relation >> 1: target.table.ways for relation, target in learned.items()}
    return RuleSet([_statement(key, entry, ways[key[0]], names, labels) for key, entry in heaviest])


def _heaviest(entry: Mapping[str, float]) -> float:
    return max(entry.get(FORWARD, 0.0), entry.get(BACKWARD, 0.0))


def _keys(relation: int, target: Target) -> Iterator[tuple[_Key, float, float, float]]:
    """Yield each rule as it is read forwards: relation, kind, path, head's constant, end, whether it speaks against."""
    table, inverse = target.table, bool(relation & 1)
    rows = zip(
        *(column.tolist() for column in (table.path_index, table.form, table.constant, table.end)),
        *(column.tolist() for column in (target.weights, target.support, target.body)),
        strict=True,
    )
    for number, kind, constant, end, weight, support, body in rows:
        path = table.paths[number]
        if kind == RuleForm.CLOSED:
            path = mirror_path(path) if inverse else path
        elif inverse:  # what is an answer to r(?, X) stands first in r, as does what r(X, ?) asks about
            kind = RuleForm.ASKED if kind == RuleForm.ANSWER else RuleForm.ANSWER
        yield (relation >> 1, kind, path, constant, end, weight < 0), weight, support, body


def _statement(key: _Key, entry: Mapping[str, float], ways: str, names: list[str], labels: list[str]) -> Statement:
    relation, kind, path, constant, end, against = key
    x, y = Variable("X"), Variable("Y")
    head_args: tuple[Term, Term] = (x, y)
    last: Term = y
    if kind != RuleForm.CLOSED:
        named = Symbol(labels[constant])
        head_args = (x, named) if kind == RuleForm.ANSWER else (named, x)
        last = Variable("Z") if end == ANY_ENTITY else Symbol(labels[end])
    head = Atom(names[relation], head_args)
    told: dict[str, object] = {name: int(each) if each == int(each) else each for name, each in entry.items()}
    if kind == RuleForm.CLOSED and ways != "once":
        told["ways"] = ways
    notes = Annotations(told)
    body = _chain(path, x, last, names)
    if against:
        premise: Formula = Comparison("=", x, y) if not body else And(body) if len(body) > 1 else body[0]
        weight = -min(entry.get(FORWARD, 0.0), entry.get(BACKWARD, 0.0))
        return WeightedFormula(Implies(premise, Not(head)), "soft", weight, notes)
    if not body:
        return WeightedFormula(head, "soft", _heaviest(entry), notes)
    return Rule(head, body, min(1.0, entry["support"] / (entry["body"] + 5)), notes)


def _chain(path: Path, first: Term, last: Term, names: list[str]) -> tuple[Formula, ...]:
    places = [first, *(Variable(f"V{number}") for number in range(1, len(path))), last]
    return tuple(
        Atom(names[step >> 1], (after, before) if step & 1 else (before, after))
        for step, before, after in zip(path, places, places[1:], strict=False)
    )
