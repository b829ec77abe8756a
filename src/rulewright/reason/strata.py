"""Strata: an order in which every predicate is settled before a rule asks that it is absent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rulewright.errors import DataError
from rulewright.logic import Comparison
from rulewright.reason.program import Derivation


def strata(derivations: Sequence[Derivation]) -> list[list[int]]:
    """Return the places of derivations, stratum by stratum.

    A predicate stands no lower than what it follows from, and higher than what must be absent for it. Where a
    predicate rests on its own absence there is no such order, and the rule that asks for it is named.

    >>> from rulewright import KnowledgeBase, parse_rules
    >>> from rulewright.reason.program import Program
    >>> rules = parse_rules("alone(X) :- p(X, _), !linked(X). linked(X) :- e(X, Y). p(X, Y) :- e(Y, X).")
    >>> strata(Program.of(rules, KnowledgeBase.from_triples([("a", "e", "b")])).derivations)
    [[1, 2], [0]]
    """
    derived = {str(each.head.predicate) for each in derivations}
    level = dict.fromkeys(derived, 0)
    needs = {
        (str(each.head.predicate), str(literal.unit.predicate), not literal.positive)
        for each in derivations
        for literal in each.body
        if not isinstance(literal.unit, Comparison) and literal.unit.predicate in derived
    }
    changed = True
    while changed:
        changed = False
        for head, body, negated in needs:
            if level[head] < level[body] + negated:
                level[head] = level[body] + negated
                changed = True
                if level[head] >= len(derived):
                    raise _circular(derivations)
    order = [level[str(each.head.predicate)] for each in derivations]
    return [[place for place, each in enumerate(order) if each == number] for number in sorted(set(order))]


def _circular(derivations: Sequence[Derivation]) -> DataError:
    for each in derivations:
        for literal in each.body:
            if isinstance(literal.unit, Comparison) or literal.positive:
                continue
            name = str(literal.unit.predicate)
            if str(each.head.predicate) in relevant(derivations, [name]):
                return DataError(
                    f"{name} must be absent in a rule that {name} itself rests on, so no order of the rules is right; "
                    f"max_rounds=1 applies each rule once to the known facts: {each.source}"
                )
    raise AssertionError("levels grow without end only where a predicate rests on its own absence")


def relevant(derivations: Sequence[Derivation], predicates: Iterable[str]) -> set[str]:
    """Return the predicates that some predicates follow from, these included, through all derivations.

    >>> from rulewright import KnowledgeBase, parse_rules
    >>> from rulewright.reason.program import Program
    >>> rules = parse_rules("p(X, Y) :- e(Y, X). q(X) :- !p(X, X), r(X). s(X) :- e(X, _).")
    >>> kb = KnowledgeBase.from_facts([("e", "a", "b"), ("r", "a")])
    >>> sorted(relevant(Program.of(rules, kb).derivations, ["q"]))
    ['e', 'p', 'q', 'r']
    """
    below: dict[str, set[str]] = {}
    for each in derivations:
        names = {str(part.unit.predicate) for part in each.body if not isinstance(part.unit, Comparison)}
        below.setdefault(str(each.head.predicate), set()).update(names)
    found: set[str] = set()
    waiting = [*predicates]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += below.get(name, ())
    return found
