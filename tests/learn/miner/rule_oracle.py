"""Rules counted the slow way: every assignment of a rule's variables is tried, atom by atom."""

from __future__ import annotations

import operator
from collections.abc import Iterator

from rulewright.data import KnowledgeBase
from rulewright.logic import Atom, Comparison, Formula, Membership, Number, Rule, Term, Variable

OPERATORS = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "=": operator.eq, "!=": operator.ne
}  # fmt: skip


def ground(body: tuple[Formula, ...], kb: KnowledgeBase, given: dict | None = None) -> Iterator[dict]:
    """Yield the values of the variables under which a body holds."""
    given = given or {}
    if not body:
        yield given
        return
    part, *rest = sorted(body, key=lambda part: isinstance(part, Comparison))
    if isinstance(part, Comparison):
        if OPERATORS[part.operator](value(part.left, given), value(part.right, given)):
            yield from ground(tuple(rest), kb, given)
        return
    for fact in kb.tuples(str(part.predicate)):
        if isinstance(part, Membership) and fact[-1] not in part.classes:
            continue
        bound = dict(given)
        if all(bind(term, label, bound) for term, label in zip(part.args, fact, strict=False)):
            yield from ground(tuple(rest), kb, bound)


def value(term: Term, given: dict):
    if isinstance(term, Variable):
        return given[term]
    return term.value if isinstance(term, Number) else term.name


def bind(term: Term, label, bound: dict) -> bool:
    if isinstance(term, Variable):
        return bound.setdefault(term, label) == label
    return value(term, bound) == label


def name_fact(part: Formula, given: dict) -> tuple | None:
    """Return an atom under an assignment as a fact."""
    if isinstance(part, Comparison):
        return None
    ending = part.classes if isinstance(part, Membership) else ()
    return (str(part.predicate), *(value(term, given) for term in part.args), *ending)


def count_rule(rule: Rule, kb: KnowledgeBase, *, circular: bool = False) -> dict[str, int]:
    """Count the groundings and the different heads of a rule, as the miner does."""
    name = str(rule.head.predicate)
    facts = set(kb.tuples(name))
    firsts = {fact[0] for fact in facts}
    groundings, heads = [], []
    for given in ground(rule.body, kb):
        fact = name_fact(rule.head, given)
        if circular or fact not in [name_fact(part, given) for part in rule.body]:
            groundings.append(fact)
    heads = set(groundings)
    is_open = len(rule.head.args) == 1 and isinstance(rule.head, Atom)  # a unary fact is known where it holds only
    return {
        "support": sum(fact[1:] in facts for fact in groundings),
        "body": len(groundings),
        "support_pairs": sum(fact[1:] in facts for fact in heads),
        "body_pairs": len(heads),
        "known_pairs": sum(is_open or fact[1] in firsts for fact in heads),
        "facts": len(facts),
    }
