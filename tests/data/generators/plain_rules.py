"""A rule evaluator as plain as can be: backtracking over sets of tuples."""

from __future__ import annotations

import operator
from collections.abc import Iterator

from rulewright.data import KnowledgeBase, Value
from rulewright.data.generators import Generated
from rulewright.logic import Atom, Comparison, Literal, Rule, Symbol, Term, Variable

Facts = dict[str, set[tuple[Value, ...]]]
Binding = dict[Variable, Value]
COMPARED = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


def facts_of(kb: KnowledgeBase) -> Facts:
    return {name: set(kb.tuples(name)) for name in kb.predicates}


def value_of(term: Term, binding: Binding) -> Value:
    if isinstance(term, Variable):
        return binding[term]
    return term.name if isinstance(term, Symbol) else term.value


def matched(atom: Atom, row: tuple[Value, ...], binding: Binding) -> Binding | None:
    extended = dict(binding)
    for term, value in zip(atom.args, row, strict=True):
        if isinstance(term, Variable) and term not in extended:
            extended[term] = value
        elif value_of(term, extended) != value:
            return None
    return extended


def groundings(body: tuple[Literal, ...], facts: Facts, binding: Binding | None = None) -> Iterator[Binding]:
    """Yield every binding of all variables under which a body holds; tests come after what binds their variables."""
    binding = binding or {}
    if not body:
        yield binding
        return
    ready = [
        literal
        for literal in body
        if (literal.positive and isinstance(literal.unit, Atom))
        or all(term in binding for term in literal.unit.args if isinstance(term, Variable))
    ]
    literal = min(ready, key=lambda each: each.positive and isinstance(each.unit, Atom))
    rest = tuple(each for each in body if each is not literal)
    unit = literal.unit
    if isinstance(unit, Comparison):
        if COMPARED[unit.operator](value_of(unit.left, binding), value_of(unit.right, binding)):
            yield from groundings(rest, facts, binding)
        return
    assert isinstance(unit, Atom)
    rows = facts[str(unit.predicate)]
    if not literal.positive:
        if tuple(value_of(term, binding) for term in unit.args) not in rows:
            yield from groundings(rest, facts, binding)
        return
    for row in rows:
        extended = matched(unit, row, binding)
        if extended is not None:
            yield from groundings(rest, facts, extended)


def derived(rule: Rule, facts: Facts) -> Iterator[tuple[Value, ...]]:
    """Yield the head of every grounding of a rule whose body holds."""
    for alternative in rule.alternatives():
        for binding in groundings(alternative, facts):
            yield tuple(value_of(term, binding) for term in rule.head.args)


def one_round(generated: Generated) -> Facts:
    facts = facts_of(generated.kb)
    found: Facts = {name: set() for name in facts}
    for rule in generated.rules.rules:
        found[str(rule.head.predicate)] |= set(derived(rule, facts))
    return {name: rows - facts[name] for name, rows in found.items()}
