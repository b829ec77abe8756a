"""What follows from the rules as they are now, worked out beside the pages and taken up when it is there."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from rulewright.data import KnowledgeBase, Value
from rulewright.errors import DataError, RulewrightError
from rulewright.logic import Head, RuleSet
from rulewright.reason import Explainer, Explanation, apply
from rulewright.web.fact_lookup import FactLookup
from rulewright.web.rulebook import is_applied

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
