"""Rules that others make superfluous."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rulewright.logic import Chain, Rule, Step, subsumes


def without_redundant(rules: Sequence[Rule]) -> list[Rule]:
    """Leave out each rule that shorter ones with at least its confidence make superfluous.

    Either one shorter rule says the same under weaker conditions (it subsumes), or two shorter rules lead to the same
    head step by step: ``h ← p ∘ q`` is superfluous beside ``h ← r`` and ``r ← p ∘ q`` when the product of their
    confidences is no lower.

    >>> from rulewright.logic import parse_rules
    >>> rules = parse_rules('''0.9 :: h(X, Z) :- p(X, Y), q(Y, Z). 0.95 :: r(X, Z) :- p(X, Y), q(Y, Z).
    ...     0.99 :: h(X, Y) :- r(X, Y).''').rules
    >>> [str(rule) for rule in without_redundant(rules)]
    ['0.95 :: r(X, Z) :- p(X, Y), q(Y, Z).', '0.99 :: h(X, Y) :- r(X, Y).']
    """
    chained = _by_steps(rules)
    return [rule for rule in rules if not _subsumed(rule, rules) and not _composed(rule, chained)]


def _subsumed(rule: Rule, rules: Iterable[Rule]) -> bool:
    return any(
        other.head.predicate == rule.head.predicate
        and len(other.body) < len(rule.body)
        and other.confidence >= rule.confidence
        and subsumes(other, rule)
        for other in rules
    )


def _by_steps(rules: Iterable[Rule]) -> dict[tuple[Step, ...], list[tuple[Step, float]]]:
    """Index chain rules by their body, walked from either end."""
    index: dict[tuple[Step, ...], list[tuple[Step, float]]] = {}
    for rule in rules:
        chain = Chain.of(rule)
        if chain is not None:
            index.setdefault(chain.steps, []).append((Step(chain.head), rule.confidence))
            index.setdefault(chain.mirror(), []).append((Step(chain.head, True), rule.confidence))
    return index


def _composed(rule: Rule, index: dict[tuple[Step, ...], list[tuple[Step, float]]]) -> bool:
    """Tell whether a part of the body gives a relation that leads on to the head without loss."""
    chain = Chain.of(rule)
    if chain is None:
        return False
    steps, head = chain.steps, Step(chain.head)
    for start in range(len(steps)):
        for stop in range(start + 2, len(steps) + 1):
            for middle, first in index.get(steps[start:stop], ()):
                rest = (*steps[:start], middle, *steps[stop:])
                if rest == (head,):
                    continue
                for last, second in index.get(rest, ()):
                    if last == head and first * second >= rule.confidence:
                        return True
    return False
