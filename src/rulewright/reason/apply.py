"""Applying rules to facts: what is new, how sure it is, and which rules gave it."""

from __future__ import annotations

from collections.abc import Iterable

from rulewright.data import KnowledgeBase
from rulewright.engine import Engine
from rulewright.errors import DataError
from rulewright.logic import Rule, RuleSet
from rulewright.reason.chaining import Aggregation, Chaining, Limits, Progress
from rulewright.reason.inferred import Inferred, Violation, derived
from rulewright.reason.program import Program


def apply(
    rules: RuleSet | Rule | Iterable[Rule],
    kb: KnowledgeBase,
    *,
    aggregation: Aggregation = "max",
    min_score: float = 0.0,
    max_rounds: int | None = None,
    max_facts: int = 10_000_000,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> Inferred:
    """Apply rules to the known facts, and again to what they give, until nothing is new; return what is.

    An instance of a rule has the score ``confidence × Π score of its premises``; known facts, and absent ones under
    ``!``, have score 1. A rule gives a fact the score of its best instance, and of several rules' scores a fact gets

    - with ``max`` the highest: the score of its best proof, however many rounds that takes;
    - with ``noisy-or`` ``1 − Π (1 − score)`` over the rules of the round that first gives it, so that no fact
      makes itself more probable.

    What is negated is settled first (strata); a predicate that rests on its own absence is refused. Facts below
    ``min_score`` are left out, also as premises and when something asks for their absence. ``hard`` formulas that
    read as a rule give facts with score 1, the others are checked at the end, and those that do not hold are among
    ``violations``. Weighted and learnable formulas are refused.

    ``max_rounds=1`` applies every rule once to the known facts alone. Where ``max_rounds`` or ``max_facts`` ends the
    work, ``note`` of the result says so: what is there is right, but there may be more.

    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> rules = parse_rules('''
    ...     ancestor_of(X, Y) :- parent_of(X, Y).
    ...     0.9 :: ancestor_of(X, Z) :- parent_of(X, Y), ancestor_of(Y, Z).
    ... ''')
    >>> for fact in apply(rules, kb):
    ...     print(fact, fact.score, fact.round)
    ancestor_of(ann, bob) 1.0 1
    ancestor_of(bob, cid) 1.0 1
    ancestor_of(ann, cid) 0.9 2
    """
    if aggregation not in ("max", "noisy-or"):
        raise DataError(f"aggregation must be 'max' or 'noisy-or', got {aggregation!r}")
    limits = Limits(min_score, max_rounds, max_facts)
    program = Program.of(rules, kb)
    with Engine(program.kb, memory_limit=memory_limit) as engine:
        chaining = Chaining(program, engine, aggregation, limits, progress)
        chaining.run()
        counts = [(each.formula, chaining.broken(each)) for each in program.constraints]
        found = derived(program.kb, chaining.given(), aggregation, min_score=min_score, max_facts=max_facts)
    violations = [Violation(formula, count) for formula, count in counts if count]
    return Inferred(program.kb, program.sources, found, violations, rounds=chaining.rounds, note=chaining.note)
