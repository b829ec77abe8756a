"""Even numbers by recursion over the successor: the smallest task that needs a recursive rule."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from rulewright.checks import Whole, check_parameter
from rulewright.data.facts import group_by_signature
from rulewright.data.generators.generated import Generated
from rulewright.data.knowledge_base import KnowledgeBase
from rulewright.data.vocabulary import lay_out_domains
from rulewright.logic import RuleSet, parse_rules

RULES = """
predicate zero(integer).
predicate succ(integer, integer).
predicate even(integer).
even(X) :- zero(X).
even(X) :- even(Y), succ(Y, Z), succ(Z, X).
"""


@lru_cache(maxsize=1)
def _rules() -> RuleSet:
    return parse_rules(RULES)


def even_successor(n: int) -> Generated:
    """Return the integers 0 … n with ``zero(0)``, ``succ(i, i + 1)`` and ``even(i)``; their labels are digits.

    >>> generated = even_successor(10)
    >>> generated.kb
    KnowledgeBase(11 entities, 3 predicates, 17 facts)
    >>> print(generated.rules.rules[1])
    even(X) :- even(Y), succ(Y, Z), succ(Z, X).
    """
    check_parameter("n", n, Whole(0))
    rules = _rules()
    declared = {each.name: each for each in rules.predicates}
    numbers = np.arange(n + 1, dtype=np.int32)
    columns = {"zero": [numbers[:1]], "succ": [numbers[:-1], numbers[1:]], "even": [numbers[::2]]}
    kb = KnowledgeBase(
        lay_out_domains([("integer", [str(number) for number in range(n + 1)], None)]),
        rules.predicates,
        group_by_signature(declared, columns),
    )
    return Generated(kb, rules, kb.with_facts({}), kb.with_facts({}))
