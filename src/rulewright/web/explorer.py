"""The explorer without its pages: what each page shows, as plain values."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Literal

from rulewright.data import KnowledgeBase, Value
from rulewright.engine import Engine
from rulewright.errors import DataError, ParseError, unknown_name
from rulewright.evaluate.rules import GroundedRule
from rulewright.inject.pairs.reports import InjectionReport, read_reports
from rulewright.io import read_facts
from rulewright.logic import Atom, Head, Membership, Rule, Statement, substitute
from rulewright.logic import Literal as SignedUnit
from rulewright.logic.english import english
from rulewright.reason import Explanation
from rulewright.web.fact_lookup import FactLookup, Found
from rulewright.web.inference import Counter, Inference, Statistics
from rulewright.web.neighbourhood import Neighbourhood, arranged, find_entity, read_pattern
from rulewright.web.rulebook import Entry, Rulebook, is_applied

SORTS = ("file", "confidence", "support", "coverage", "counterexamples", "head", "length")
"""What the rules can be ordered by."""

MOST_ANSWERS = 10_000
"""How far pages of answers go."""

MOST_TEXT = 5_000
"""How long a text from a page may be."""

Sort = Literal["file", "confidence", "support", "coverage", "counterexamples", "head", "length"]


@dataclass(frozen=True)
class RuleRow:
    """A statement and what the table of rules says of it."""

    entry: Entry
    statistics: Statistics | str | None

    @property
    def counts(self) -> Statistics | None:
        """The statistics, where there are some."""
        return self.statistics if isinstance(self.statistics, Statistics) else None

    @property
    def confidence(self) -> float | None:
        """The confidence, None for a formula or template."""
        statement = self.entry.statement
        return statement.confidence if isinstance(statement, Rule) else None

    @property
    def words(self) -> str:
        """The statement as a sentence."""
        return english(self.entry.statement)

    def key(self, sort: Sort) -> float | str | None:
        """Return what the row is ordered by."""
        statement, counts = self.entry.statement, self.counts
        match sort:
            case "file":
                return self.entry.key
            case "head":
                return str(statement.head) if isinstance(statement, Rule) else None
            case "length":
                return len(statement.body) if isinstance(statement, Rule) else None
            case "confidence":
                return self.confidence
        return None if counts is None else getattr(counts, sort)


@dataclass(frozen=True)
class Page:
    """Some of many: those from ``start`` on, of ``total``."""

    start: int
    total: int


@dataclass(frozen=True)
class RulePage(Page):
    """A page of the table of rules."""

    rows: tuple[RuleRow, ...]


@dataclass(frozen=True)
class CasePage:
    """Groundings of a rule; ``more`` where there are others behind them."""

    cases: tuple[GroundedRule, ...]
    more: bool


@dataclass(frozen=True)
class AnswerPage(Page):
    """Facts that match a pattern, known ones first, then by score."""

    pattern: Head
    answers: tuple[Found, ...]
    known: int
    inferred: int


class Explorer:
    """Rules and facts, and everything the pages ask of them; safe for several threads.

    Args:
        rules: the rule file, the only one that is ever written, and its older versions beside it.
        facts: the facts, in any known format.
        report: a saved report of a decoder or layer.
        rounds: how many rules may be applied one after the other.
        seconds: how long one question may take.

    >>> _ = (folder / "a.rules").write_text("0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).")
    >>> _ = (folder / "a.facts").write_text("parent_of(ann, bob). parent_of(bob, cid).")
    >>> with Explorer(folder / "a.rules", folder / "a.facts") as explorer:
    ...     _ = explorer.wait()
    ...     page = explorer.ask("grandparent_of(X, cid)")
    ...     [(answer.args, answer.score) for answer in page.answers]
    [(('ann', 'cid'), 0.9)]
    """

    def __init__(
        self,
        rules: str | os.PathLike[str],
        facts: str | os.PathLike[str],
        *,
        report: str | os.PathLike[str] | None = None,
        rounds: int = 1,
        seconds: float = 5.0,
    ) -> None:
        if rounds < 1:
            raise DataError(f"rounds must be >= 1, got {rounds}")
        self.facts_path = Path(facts)
        self.kb: KnowledgeBase = read_facts(facts)
        self.book = Rulebook(rules)
        self.reports: tuple[InjectionReport, ...] = () if report is None else read_reports(report)
        self.seconds = seconds
        self.drafts: dict[int | None, str] = {}  # texts that cannot be read yet, by rule; None: of a new one
        self.known = FactLookup.of(self.kb)
        self._table: tuple[tuple[int, int], list[RuleRow]] | None = None
        self._turn = threading.Lock()
        self._engine = Engine(self.kb)
        self._counter = Counter(self.kb, self._engine, self._turn, seconds=seconds)
        self.inference = Inference(self.kb, rounds=rounds)
        self.refresh()

    def refresh(self) -> None:
        """Work out anew what follows, after the rules have changed."""
        self.inference.request(self.book.rules(), self.book.version)

    @property
    def ready(self) -> bool:
        """Whether what is inferred follows from the rules as they are now."""
        return self.inference.ready(self.book.version)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all is worked out; tell whether it is."""
        return self.inference.wait(self.book.version, seconds) and self._counter.wait(seconds)

    def status(self) -> str:
        """Say in a line how much there is, and whether something is still to come."""
        on = sum(entry.enabled for entry in self.book.entries)
        parts = [f"{on:,} of {len(self.book.entries):,} rules on", f"{self.kb.n_facts:,} facts"]
        if not self.ready:
            parts.append("applying rules …")
        elif self.inference.outcome.error:
            parts.append("the rules cannot be applied")
        else:
            parts.append(f"{len(self.inference.outcome.index):,} inferred")
        return " · ".join([*parts, *(["not saved"] if self.book.changed else [])])

    # Rules

    def rules(
        self, *, search: str = "", sort: Sort = "file", descending: bool = False, start: int = 0, size: int = 25
    ) -> RulePage:
        """Return a page of the rules whose text contains all words of ``search``."""
        if sort not in SORTS:
            raise unknown_name("order", sort, SORTS)
        words = search.casefold().split()
        rows = [row for row in self._rows() if _contains(row.entry, words)]
        if sort != "file" or descending:
            with_key = [row for row in rows if row.key(sort) is not None]
            with_key.sort(key=lambda row: row.key(sort), reverse=descending)  # type: ignore[arg-type, return-value]
            rows = with_key + [row for row in rows if row.key(sort) is None]
        start = max(min(start, len(rows) - 1), 0)
        return RulePage(start, len(rows), tuple(rows[start : start + size]))

    @property
    def state(self) -> tuple[object, ...]:
        """What a page that shows rules depends on: while it is the same, so is the page."""
        book = self.book
        return book.version, book.changed, book.stale, self.inference.outcome.version, self._counter.done

    def _rows(self) -> list[RuleRow]:
        """Return all rules; they are put together anew only when one has changed or was counted."""
        state = (self.book.version, self._counter.done)
        if self._table is None or self._table[0] != state:
            self._table = (state, [RuleRow(entry, self._counter.of(entry)) for entry in self.book.entries])
        return self._table[1]

    def row(self, key: int) -> RuleRow:
        """Return one rule."""
        entry = self.book.entry(key)
        return RuleRow(entry, self._counter.of(entry))

    def problem(self, text: str, key: int | None = None) -> str:
        """Say what is wrong with the text of a rule, "" where nothing is."""
        try:
            statement = self.book.check(_bounded(text), key)
        except ParseError as error:
            return f"column {error.column}: {error.message}" if error.line == 1 else str(error)
        except DataError as error:
            return str(error)
        if isinstance(statement, Rule):
            heads = {str(each.head.predicate) for each in self.book.rules().rules}
            for name in self._body_predicates(statement):
                if name not in self.kb.predicates and name not in heads:
                    return str(unknown_name("predicate", name, self.kb.predicates))
        return ""

    @staticmethod
    def _body_predicates(rule: Rule) -> list[str]:
        units = [literal.unit for body in rule.alternatives() for literal in body]
        return [str(unit.predicate) for unit in units if isinstance(unit, Atom | Membership)]

    def edit(self, key: int, text: str) -> Entry:
        """Change a rule."""
        entry = self.book.edit(key, _bounded(text))
        self.drafts.pop(key, None)
        self.refresh()
        return entry

    def add(self, text: str) -> Entry:
        """Add a rule."""
        entry = self.book.add(_bounded(text))
        self.drafts.pop(None, None)
        self.refresh()
        return entry

    def set_enabled(self, key: int, enabled: bool) -> None:
        """Switch a rule on or off."""
        self.book.set_enabled(key, enabled)
        self.refresh()

    def reload(self) -> None:
        """Take up the rule file as it is on disk."""
        self.book.reload()
        self.refresh()

    def cases(self, key: int, *, hold: bool, start: int = 0, size: int = 10) -> CasePage:
        """Return groundings of a rule in which the head holds with the body, or does not."""
        rule = self.book.entry(key).statement
        if not isinstance(rule, Rule):
            raise DataError("only rules with a head have examples")
        head_known = str(rule.head.predicate) in self.kb.predicates
        if hold and not head_known:
            return CasePage((), False)
        wanted = start + size + 1
        found: list[GroundedRule] = []
        with self._turn, self._engine.time_limit(self.seconds):
            for body in rule.alternatives():
                literals = [*body, SignedUnit(rule.head, hold)] if head_known else [*body]
                for values in self._engine.assignments(literals, limit=wanted - len(found)):
                    parts = tuple(substitute(literal.formula(), values) for literal in body)
                    found.append(GroundedRule(substitute(rule.head, values), parts))
                if len(found) >= wanted:
                    break
        return CasePage(tuple(found[start : start + size]), len(found) > start + size)

    # Graph

    @cached_property
    def _names(self) -> list[tuple[str, str, str]]:
        return [
            (str(label).casefold(), kind, str(label)) for kind, each in self.kb.domains.items() for label in each.labels
        ]

    def search(self, text: str, limit: int = 20) -> list[tuple[str, str]]:
        """Return (type, name) of entities whose name contains a text, equal ones first, then those that start so."""
        wanted = _bounded(text).casefold().strip()
        if not wanted:
            return []
        found = [(folded, kind, name) for folded, kind, name in self._names if wanted in folded]
        found.sort(key=lambda each: (each[0] != wanted, not each[0].startswith(wanted), len(each[0]), each[2]))
        return [(kind, name) for _, kind, name in found[:limit]]

    def start(self) -> tuple[str, str] | None:
        """Return the (type, name) of the entity that most facts mention, None where there is no entity."""
        number = self.known.most_mentioned()
        for kind, domain in self.kb.domains.items():
            if number is not None and domain.start <= number < domain.start + len(domain):
                return kind, str(domain.labels_of(number))
        return None

    def neighbourhood(
        self,
        name: str,
        type: str | None = None,
        *,
        min_score: float = 0.0,
        inferred: bool = True,
        each: int = 5,
        groups: int = 10,
        skip: int = 0,
        containing: str = "",
    ) -> Neighbourhood:
        """Return what is known about an entity, and what is inferred with at least ``min_score``."""
        kind, number = find_entity(self.kb, name, type)
        found = self.known.around(number, each=each)
        if inferred:
            found += self.inference.outcome.index.around(number, each=each, min_score=min_score)
        return arranged(
            self.inference.outcome.index.kb,
            kind,
            name,
            [bundle for bundle in found if bundle.total],
            each=each,
            groups=groups,
            skip=skip,
            containing=_bounded(containing),
        )

    # Ask

    def ask(self, pattern: str | Head, *, start: int = 0, size: int = 20, inferred_only: bool = False) -> AnswerPage:
        """Return the facts that match a pattern such as ``parent_of(X, alisher)``: known ones first, then by score."""
        asked = self.pattern(pattern) if isinstance(pattern, str) else pattern
        start = max(min(start, MOST_ANSWERS - size), 0)
        known, known_total = self.known.matching(asked, start + size)
        inferred, inferred_total = self.inference.outcome.index.matching(asked, start + size)
        if inferred_only:
            known, before = [], 0
        else:
            before = known_total
        # Of the inferred ones only the best are at hand, and so they count from where the known ones end
        answers = [*known[start:], *inferred[max(start - before, 0) :]][:size]
        return AnswerPage(start, before + inferred_total, asked, tuple(answers), known_total, inferred_total)

    def pattern(self, text: str) -> Head:
        """Read a pattern: one atom, whose names the facts or the rules know."""
        return read_pattern(_bounded(text), self.inference.outcome.index.kb)

    def key_of(self, number: int | None) -> int | None:
        """Return the key of the rule that a proof names by its place among those that were applied."""
        applied = [entry.key for entry in self.book.entries if entry.enabled and is_applied(entry.statement)]
        return applied[number] if number is not None and self.ready and number < len(applied) else None

    def explain(self, fact: Head | Sequence[Value], *, k: int = 3) -> Explanation:
        """Return the best proofs of a fact, or the rules that come nearest."""
        return self.inference.explain(fact, k=k, seconds=self.seconds)

    def close(self) -> None:
        """Let go of the engines."""
        self.inference.close()
        self._counter.wait()
        with self._turn:
            self._engine.close()

    def __enter__(self) -> Explorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _bounded(text: str) -> str:
    if len(text) > MOST_TEXT:
        raise DataError(f"a text of {len(text):,} characters; at most {MOST_TEXT:,} are read")
    return text


@lru_cache(maxsize=100_000)
def _searched(statement: Statement) -> str:
    text = str(statement).casefold()
    return f"{text} {text.replace('_', ' ')}"


def _contains(entry: Entry, words: Sequence[str]) -> bool:
    return not words or all(word in _searched(entry.statement) for word in words)
