"""What follows from the rules as they are now, and how often each holds: computed in threads beside the pages."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from rulewright.data import KnowledgeBase, Value
from rulewright.engine import Engine, SQLEngine
from rulewright.errors import DataError, RulewrightError
from rulewright.logic import Head, Rule, RuleSet, Statement
from rulewright.reason import Explainer, Explanation, apply
from rulewright.web.lookup import FactLookup
from rulewright.web.rulebook import Entry, is_applied

MAX_FACTS = 3_000_000
"""How many inferred facts are kept; of more, the best."""


@dataclass(frozen=True)
class Consequences:
    """What one version of the rules gives. ``note`` says what is missing from it, ``error`` why there is nothing."""

    version: int
    facts: FactLookup
    explainer: Explainer | None = None
    note: str = ""
    error: str = ""
    violations: tuple[tuple[str, int], ...] = ()


class Inference:
    """Applies rules to facts in a thread; the newest version of the rules counts, those between are skipped."""

    def __init__(self, kb: KnowledgeBase, *, rounds: int) -> None:
        self._kb, self._rounds = kb, rounds
        self.current = Consequences(-1, FactLookup(kb, {}))
        self._requested: tuple[RuleSet, int] | None = None
        self._changed = threading.Condition()
        self._turn = threading.Lock()  # an explainer is not closed while it is in use
        self._thread: threading.Thread | None = None

    def request(self, rules: RuleSet, version: int) -> None:
        """Start to compute what follows from rules; earlier results stay until it is there."""
        with self._changed:
            self._requested = (rules, version)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="rulewright-inference", daemon=True)
                self._thread.start()

    def is_ready(self, version: int) -> bool:
        """Return whether the consequences are those of this version."""
        return self.current.version == version

    def wait(self, version: int, seconds: float | None = None) -> bool:
        """Wait for the consequences of a version; return whether they came."""
        with self._changed:
            return self._changed.wait_for(lambda: self.is_ready(version), seconds)

    def _work(self) -> None:
        while True:
            with self._changed:
                if self._requested is None:
                    self._thread = None
                    return
                (rules, version), self._requested = self._requested, None
            consequences = self._infer(rules, version)
            with self._turn:
                old, self.current = self.current.explainer, consequences
                if old is not None:
                    old.close()
            with self._changed:
                self._changed.notify_all()

    def _infer(self, rules: RuleSet, version: int) -> Consequences:
        applied = rules.filter(is_applied)
        try:
            inferred = apply(applied, self._kb, aggregation="max", max_rounds=self._rounds, max_facts=MAX_FACTS)
            explainer = Explainer(applied, self._kb)
        except RulewrightError as error:
            return Consequences(version, FactLookup(self._kb, {}), error=str(error))
        left_out = len(rules) - len(applied)
        notes = [f"{left_out:,} weighted formulas and templates give no facts by themselves"] if left_out else []
        if len(inferred) >= MAX_FACTS:
            notes.append(inferred.note)
        violations = tuple((str(violation.formula), violation.groundings) for violation in inferred.violations)
        return Consequences(version, FactLookup.from_inferred(inferred), explainer, "; ".join(notes), "", violations)

    def explain(self, fact: Head | Sequence[Value], *, k: int, seconds: float) -> Explanation:
        """Explain why a fact follows from the rules that were applied last, or why not."""
        with self._turn:
            explainer = self.current.explainer
            if explainer is None:
                raise DataError(self.current.error or "the rules are still being applied; ask again in a moment")
            with explainer.time_limit(seconds):
                return explainer.explain(fact, k=k, depth=self._rounds)

    def close(self) -> None:
        """Free the explainer once no rules are being applied any more."""
        with self._changed:
            self._requested = None
            thread = self._thread
        if thread is not None:
            thread.join()
        with self._turn:
            if self.current.explainer is not None:
                self.current.explainer.close()


@dataclass(frozen=True)
class RuleStatistics:
    """``support`` groundings in which body and head hold, of ``body`` in which the body does, none of them circular.

    ``coverage`` is the share of the head's facts that the rule gives.
    """

    support: int
    body: int
    coverage: float | None

    @property
    def counterexamples(self) -> int:
        """The groundings in which the body holds and the head is no fact."""
        return self.body - self.support

    @property
    def share(self) -> float:
        """``support / body``, 0 where the body never holds."""
        return self.support / self.body if self.body else 0.0


def _read_statistics(statement: Statement) -> RuleStatistics | None:
    """Read the statistics that a learner wrote beside a rule."""
    support, body, coverage = map(statement.annotations.number, ("support", "body", "coverage"))
    if support is None or body is None:
        return None
    # Files of older miners have a coverage above 1: groundings were counted, several to a fact
    return RuleStatistics(int(support), int(body), None if coverage is None or coverage > 1 else coverage)


def count_rule(rule: Rule, kb: KnowledgeBase, engine: SQLEngine) -> RuleStatistics:
    """Count a rule's examples on the facts.

    >>> from rulewright import Engine, parse_rule
    >>> pairs = [("ann", "al"), ("al", "ann"), ("bo", "cy")]
    >>> kb = KnowledgeBase.from_triples((one, "spouse_of", other) for one, other in pairs)
    >>> with Engine(kb) as engine:
    ...     count_rule(parse_rule("spouse_of(X, Y) :- spouse_of(Y, X)."), kb, engine)
    RuleStatistics(support=2, body=3, coverage=0.6666666666666666)
    """
    head = str(rule.head.predicate)
    if head not in kb.predicates:
        return RuleStatistics(0, sum(engine.count(body) for body in rule.alternatives()), None)
    counts = [engine.support(rule.head, body) for body in rule.alternatives()]
    covered, facts = sum(count.heads for count in counts), kb.count(head)
    return RuleStatistics(
        sum(count.groundings for count in counts),
        sum(count.body_groundings for count in counts),
        min(covered / facts, 1.0) if facts else None,
    )


class RuleCounter:
    """Counts rules one after the other in a thread, each within a time limit."""

    def __init__(self, kb: KnowledgeBase, engine: Engine, turn: threading.Lock, *, seconds: float) -> None:
        self._kb, self._engine, self._turn, self._seconds = kb, engine, turn, seconds
        self._counts: dict[Statement, RuleStatistics | str] = {}
        self._waiting: deque[Rule] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def look_up(self, entry: Entry) -> RuleStatistics | str | None:
        """Return an entry's statistics, why there are none, or None where they are still to come."""
        statement = entry.statement
        if not isinstance(statement, Rule):
            return "only rules with a head have examples"
        written = _read_statistics(statement) if entry.source is not None else None
        counts = written or self._counts.get(statement)
        if counts is None:
            self._request(statement)
        return counts

    @property
    def done(self) -> int:
        """How many rules have been counted so far."""
        return len(self._counts)

    def _request(self, rule: Rule) -> None:
        with self._changed:
            if rule not in self._waiting:
                self._waiting.append(rule)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="rulewright-counting", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._waiting:
                    self._thread = None
                    self._changed.notify_all()
                    return
                rule = self._waiting[0]
            try:
                with self._turn, self._engine.time_limit(self._seconds):
                    counts: RuleStatistics | str = count_rule(rule, self._kb, self._engine)
            except RulewrightError as error:
                counts = str(error)
            with self._changed:
                self._counts[rule] = counts
                self._waiting.popleft()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all requested rules are counted; return whether they are."""
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, seconds)
