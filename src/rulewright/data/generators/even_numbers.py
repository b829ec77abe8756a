"""Even numbers by recursion over the successor: the smallest task that needs a recursive rule."""

from __future__ import annotations

import numpy as np

from rulewright.checks import Whole, check_parameter
from rulewright.data.generators.generated import Generated, build, parse_once
from rulewright.data.vocabulary import lay_out_domains

RULES = """
predicate zero(integer).
predicate succ(integer, integer).
predicate even(integer).
even(X) :- zero(X).
even(X) :- even(Y), succ(Y, Z), succ(Z, X).
"""


def even_successor(n: int) -> Generated:
    """Return the integers 0 … n with ``zero(0)``, ``succ(i, i + 1)`` and ``even(i)``; their labels are digits.

    >>> generated = even_successor(10)
    >>> generated.kb
    KnowledgeBase(11 entities, 3 predicates, 17 facts)
    >>> print(generated.rules.rules[1])
    even(X) :- even(Y), succ(Y, Z), succ(Z, X).
    """
    check_parameter("n", n, Whole(0))
    integers = np.arange(n + 1, dtype=np.int32)
    columns = {"zero": [integers[:1]], "succ": [integers[:-1], integers[1:]], "even": [integers[::2]]}
    return build(parse_once(RULES), lay_out_domains([("integer", integers.astype(str), None)]), columns)
