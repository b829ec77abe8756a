"""What follows from the rules as they are now, worked out beside the pages and taken up when it is there."""

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
from rulewright.web.fact_lookup import FactLookup
from rulewright.web.rulebook import Entry, is_applied

MAX_FACTS = 3_000_000
"""How many inferred facts are kept; of more, the best."""


@dataclass(frozen=True)
class Outcome:
    """What one version of the rules gives. ``note`` says what is missing from it, ``error`` why there is nothing."""

    version: int
    index: FactLookup
    explainer: Explainer | None = None
    note: str = ""
    error: str = ""
    violations: tuple[tuple[str, int], ...] = ()


class Inference:
    """Applies rules to facts in a thread; the newest version of the rules counts, those between are passed over."""

    def __init__(self, kb: KnowledgeBase, *, rounds: int, max_facts: int = MAX_FACTS) -> None:
        self._kb, self._rounds, self._max_facts = kb, rounds, max_facts
        self.outcome = Outcome(-1, FactLookup(kb, {}))
        self._wanted: tuple[RuleSet, int] | None = None
        self._changed = threading.Condition()
        self._turn = threading.Lock()  # an explainer is not closed while it is asked
        self._thread: threading.Thread | None = None

    def request(self, rules: RuleSet, version: int) -> None:
        """Ask for what follows from rules; earlier results stay until it is there."""
        with self._changed:
            self._wanted = (rules, version)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="rulewright-inference", daemon=True)
                self._thread.start()

    def ready(self, version: int) -> bool:
        """Tell whether the outcome is that of this version."""
        return self.outcome.version == version

    def wait(self, version: int, seconds: float | None = None) -> bool:
        """Wait for the outcome of a version; tell whether it came."""
        with self._changed:
            return self._changed.wait_for(lambda: self.ready(version), seconds)

    def _work(self) -> None:
        while True:
            with self._changed:
                if self._wanted is None:
                    self._thread = None
                    return
                (rules, version), self._wanted = self._wanted, None
            outcome = self._outcome(rules, version)
            with self._turn:
                old, self.outcome = self.outcome.explainer, outcome
                if old is not None:
                    old.close()
            with self._changed:
                self._changed.notify_all()

    def _outcome(self, rules: RuleSet, version: int) -> Outcome:
        applied = rules.filter(is_applied)
        try:
            inferred = apply(applied, self._kb, max_rounds=self._rounds, max_facts=self._max_facts)
            explainer = Explainer(applied, self._kb)
        except RulewrightError as error:
            return Outcome(version, FactLookup(self._kb, {}), error=str(error))
        left_out = len(rules) - len(applied)
        notes = [f"{left_out:,} weighted formulas and templates give no facts by themselves"] if left_out else []
        if len(inferred) >= self._max_facts:
            notes.append(inferred.note)
        broken = tuple((str(each.formula), each.groundings) for each in inferred.violations)
        return Outcome(version, FactLookup.of_inferred(inferred), explainer, "; ".join(notes), violations=broken)

    def explain(self, fact: Head | Sequence[Value], *, k: int, seconds: float) -> Explanation:
        """Say why a fact follows from the rules of the outcome, or why not."""
        with self._turn:
            explainer = self.outcome.explainer
            if explainer is None:
                raise DataError(self.outcome.error or "the rules are still being applied; ask again in a moment")
            with explainer.time_limit(seconds):
                return explainer.explain(fact, k=k, depth=self._rounds)

    def close(self) -> None:
        """Let go of what the outcome holds, once nothing is being worked out any more."""
        with self._changed:
            self._wanted = None
            thread = self._thread
        if thread is not None:
            thread.join()
        with self._turn:
            if self.outcome.explainer is not None:
                self.outcome.explainer.close()


@dataclass(frozen=True)
class Statistics:
    """``support`` groundings in which body and head hold, of ``body`` in which the body does.

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


def noted(statement: Statement) -> Statistics | None:
    """Read the statistics that a learner wrote beside a rule."""
    notes = statement.annotations
    support, body = notes.number("support"), notes.number("body")
    if support is None or body is None:
        return None
    coverage = notes.number("coverage")  # above 1 where groundings were counted, several to a fact
    return Statistics(int(support), int(body), None if coverage is None or coverage > 1 else coverage)


def counted(rule: Rule, kb: KnowledgeBase, engine: SQLEngine) -> Statistics:
    """Count a rule's examples on the facts.

    >>> from rulewright import Engine, parse_rule
    >>> pairs = [("ann", "al"), ("al", "ann"), ("bo", "cy")]
    >>> kb = KnowledgeBase.from_triples((one, "spouse_of", other) for one, other in pairs)
    >>> with Engine(kb) as engine:
    ...     counted(parse_rule("spouse_of(X, Y) :- spouse_of(Y, X)."), kb, engine)
    Statistics(support=2, body=3, coverage=0.6666666666666666)
    """
    head = str(rule.head.predicate)
    support = body = heads = 0
    for alternative in rule.alternatives():
        if head in kb.predicates:
            found = engine.support(rule.head, alternative)
            support, body, heads = support + found.groundings, body + found.body_groundings, heads + found.heads
        else:
            body += engine.count(alternative)
    facts = kb.count(head) if head in kb.predicates else 0
    return Statistics(support, body, min(heads / facts, 1.0) if facts else None)


class Counter:
    """Counts rules one after the other in a thread, each within a time limit."""

    def __init__(self, kb: KnowledgeBase, engine: Engine, turn: threading.Lock, *, seconds: float) -> None:
        self._kb, self._engine, self._turn, self._seconds = kb, engine, turn, seconds
        self._found: dict[Statement, Statistics | str] = {}
        self._waiting: deque[Rule] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def of(self, entry: Entry) -> Statistics | str | None:
        """Return an entry's statistics, why there are none, or None where they are still to come."""
        statement = entry.statement
        if not isinstance(statement, Rule):
            return "only rules with a head have examples"
        known = noted(statement) if entry.source is not None else None
        if known is not None:
            return known
        found = self._found.get(statement)
        if found is None:
            self._request(statement)
        return found

    @property
    def done(self) -> int:
        """How many rules have been counted so far."""
        return len(self._found)

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
                    found: Statistics | str = counted(rule, self._kb, self._engine)
            except RulewrightError as error:
                found = str(error)
            with self._changed:
                self._found[rule] = found
                self._waiting.popleft()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all that was asked for is counted; tell whether it is."""
        with self._changed:
            return self._changed.wait_for(lambda: self._thread is None, seconds)
