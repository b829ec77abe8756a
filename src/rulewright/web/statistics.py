"""How often a rule is right: from its annotations, or counted on the facts, beside the pages."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from rulewright.data import KnowledgeBase
from rulewright.engine import Engine, SQLEngine
from rulewright.errors import RulewrightError
from rulewright.logic import Rule, Statement
from rulewright.web.rulebook import Entry


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
