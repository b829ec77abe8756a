"""How often one rule is right on some facts, with examples of both."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase
from rulewright.data.facts import distinct_rows
from rulewright.engine import Engine
from rulewright.errors import DataError
from rulewright.logic import Formula, Rule, substitute

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class GroundedRule:
    """A rule with its variables filled in: the head and the body that it rests on."""

    head: Formula
    body: tuple[Formula, ...]

    def __str__(self) -> str:
        return f"{self.head} :- {', '.join(map(str, self.body))}"


@dataclass(frozen=True)
class RuleCounts:
    """What a rule says about some facts.

    ``support`` and ``body`` count groundings, ``support_heads`` and ``body_heads`` different heads, and ``facts`` are
    those of the head's predicate.
    """

    rule: Rule
    support: int
    body: int
    support_heads: int
    body_heads: int
    facts: int
    examples: tuple[GroundedRule, ...]
    counterexamples: tuple[GroundedRule, ...]

    @property
    def confidence(self) -> float:
        """``support / body``, 0 where the body never holds."""
        return self.support / self.body if self.body else 0.0

    @property
    def coverage(self) -> float:
        """``support_heads / facts``, 0 where there are none."""
        return self.support_heads / self.facts if self.facts else 0.0

    def __str__(self) -> str:
        lines = [str(self.rule), f"holds in {self.support:,} of {self.body:,} cases ({self.confidence:.1%})"]
        for title, cases in (("for example", self.examples), ("but not in", self.counterexamples)):
            lines += [f"{title}: {case}" for case in cases]
        return "\n".join(lines)


def share_interval(support: npt.ArrayLike, body: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return the 95 % intervals of shares of which ``support`` of ``body`` cases were seen, as Jeffreys has them.

    The ends are the 2.5 % and 97.5 % points of Beta(support + ½, body − support + ½); what was always seen may be 1,
    and what never was, 0.

    >>> low, high = share_interval([2, 72], [2, 144])
    >>> low.round(3).tolist(), high.round(3).tolist()
    ([0.333, 0.419], [1.0, 0.581])
    """
    from scipy.special import betaincinv

    held, cases = np.asarray(support, dtype=np.float64), np.asarray(body, dtype=np.float64)
    low, high = (betaincinv(held + 0.5, cases - held + 0.5, point) for point in (0.025, 0.975))
    return np.where(held > 0, low, 0.0), np.where(held < cases, high, 1.0)


def explain_counts(rule: Rule, kb: KnowledgeBase, *, limit: int = 5, circular: bool = False) -> RuleCounts:
    """Count how often a rule's body holds and its head with it, and show some cases of each.

    A grounding whose body uses the very fact of the head is circular: it shows nothing, and counts only if asked for.
    What a rule asks to be absent is absent from ``kb``; where other rules conclude it, as auxiliary rules do, they come
    first: ``explain_counts(rule, apply(auxiliary, kb).completed)``.

    >>> from rulewright.logic import parse_rule
    >>> pairs = [("ann", "al"), ("al", "ann"), ("bo", "cy")]
    >>> kb = KnowledgeBase.from_triples((one, "spouse_of", other) for one, other in pairs)
    >>> print(explain_counts(parse_rule("spouse_of(X, Y) :- spouse_of(Y, X)."), kb))
    spouse_of(X, Y) :- spouse_of(Y, X).
    holds in 2 of 3 cases (66.7%)
    for example: spouse_of(al, ann) :- spouse_of(ann, al)
    for example: spouse_of(ann, al) :- spouse_of(al, ann)
    but not in: spouse_of(cy, bo) :- spouse_of(bo, cy)
    """
    alternatives = rule.alternatives()
    if len(alternatives) != 1:
        raise DataError(f"a rule with alternatives is several rules; count each by itself: {rule}")
    body = [*alternatives[0]]
    with Engine(kb) as engine:
        counts = engine.support(rule.head, body, circular=circular)
        examples, counterexamples = (
            tuple(
                GroundedRule(substitute(rule.head, values), tuple(substitute(part, values) for part in rule.body))
                for values in engine.cases(rule.head, body, holds=holds, limit=limit, circular=circular)
            )
            for holds in (True, False)
        )
    return RuleCounts(
        rule,
        counts.groundings,
        counts.body_groundings,
        counts.heads,
        counts.body_heads,
        kb.count(str(rule.head.predicate)),
        examples,
        counterexamples,
    )


@dataclass(frozen=True)
class Agreement:
    """Counts of one predicate, or of all."""

    wanted: int
    given: int
    correct: int

    @property
    def precision(self) -> float:
        """``correct / given``; 0 where nothing is given."""
        return self.correct / self.given if self.given else 0.0

    @property
    def recall(self) -> float:
        """``correct / wanted``; 0 where nothing is wanted."""
        return self.correct / self.wanted if self.wanted else 0.0

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall."""
        return 2 * self.correct / (self.given + self.wanted) if self.given + self.wanted else 0.0

    def __add__(self, other: Agreement) -> Agreement:
        return Agreement(self.wanted + other.wanted, self.given + other.given, self.correct + other.correct)


def agreement(given: KnowledgeBase, wanted: KnowledgeBase) -> dict[str, Agreement]:
    """Compare the true facts of two knowledge bases over the same entities, predicate by predicate.

    >>> kb = KnowledgeBase.from_triples((str(i), "next", str(i + 1)) for i in range(10))
    >>> part, rest = kb.hold_out(0.2)
    >>> agreement(part, kb)["next"].recall
    0.8
    """
    result = {}
    for name in {**given.predicates, **wanted.predicates}:
        sides = [kb.columns(name) if name in kb.predicates else None for kb in (given, wanted)]
        sizes = [0 if side is None else len(side[0]) for side in sides]
        common = 0
        if sides[0] is not None and sides[1] is not None:
            both = [np.concatenate(pair) for pair in zip(*sides, strict=True)]
            common = len(both[0]) - len(distinct_rows(both)[0])
        result[name] = Agreement(sizes[1], sizes[0], common)
    return result
