"""The explorer without its pages: what each page shows, as plain values."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal, get_args

from rulewright.checks import Whole, check_parameter
from rulewright.data import KnowledgeBase, Value
from rulewright.engine import Engine
from rulewright.errors import DataError, ParseError, unknown_name
from rulewright.evaluate.rules import GroundedRule
from rulewright.inject.atoms.reports import InjectionReport, read_reports
from rulewright.io import read_facts
from rulewright.logic import Comparison, Head, Rule, Statement, substitute
from rulewright.logic.english import english
from rulewright.reason import Explanation
from rulewright.web.inference import Inference, RuleCounter, RuleStatistics
from rulewright.web.lookup import (
    FactLookup,
    FoundFact,
    Neighbourhood,
    arrange_neighbourhood,
    find_entity,
    name_entity,
    read_pattern,
)
from rulewright.web.rulebook import Entry, Rulebook, is_applied

Sort = Literal["file", "confidence", "support", "coverage", "counterexamples", "head", "length"]
"""What the rules can be ordered by."""

SORTS: tuple[Sort, ...] = get_args(Sort)

MOST_ANSWERS = 10_000
"""How far pages of answers go."""

MOST_TEXT = 5_000
"""How long a text from a page may be."""


@dataclass(frozen=True)
class RuleRow:
    """A statement, and its statistics for the table of rules: why there are none, or None where they are to come."""

    entry: Entry
    statistics: RuleStatistics | str | None

    @property
    def counts(self) -> RuleStatistics | None:
        """The statistics, where there are some."""
        return self.statistics if isinstance(self.statistics, RuleStatistics) else None

    @property
    def confidence(self) -> float | None:
        """The confidence, None for a formula or template."""
        statement = self.entry.statement
        return statement.confidence if isinstance(statement, Rule) else None

    @property
    def words(self) -> str:
        """The statement as a sentence."""
        return english(self.entry.statement)

    def sort_key(self, sort: Sort) -> float | str | None:
        """Return what the row is ordered by."""
        statement = self.entry.statement
        match sort:
            case "file":
                return self.entry.key
            case "head":
                return str(statement.head) if isinstance(statement, Rule) else None
            case "length":
                return len(statement.body) if isinstance(statement, Rule) else None
            case "confidence":
                return self.confidence
        return None if self.counts is None else getattr(self.counts, sort)


@dataclass(frozen=True)
class RulePage:
    """Rows of the table of rules: those from ``start`` on, of ``total``."""

    start: int
    total: int
    rows: tuple[RuleRow, ...]


@dataclass(frozen=True)
class CasePage:
    """Groundings of a rule; ``more`` where there are others behind them."""

    cases: tuple[GroundedRule, ...]
    more: bool


@dataclass(frozen=True)
class AnswerPage:
    """Facts that match a pattern, known ones first, then by score: those from ``start`` on, of ``total``."""

    start: int
    total: int
    pattern: Head
    answers: tuple[FoundFact, ...]
    known: int
    inferred: int


class Explorer:
    """Rules and facts, and everything the pages show of them; safe for several threads.

    Args:
        rules: the rule file, the only one that is ever written, and its older versions beside it.
        facts: the facts, in any known format.
        format, columns: the format of the facts and what their columns are, as `read_facts` takes them.
        report: a saved report of a decoder or layer.
        rounds: how many rules may be applied one after the other.
        seconds: how long one request may take.

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
        format: str | None = None,
        columns: str | Sequence[str] | None = None,
        report: str | os.PathLike[str] | None = None,
        rounds: int = 1,
        seconds: float = 5.0,
    ) -> None:
        check_parameter("rounds", rounds, Whole(1))
        self.kb: KnowledgeBase = read_facts(facts, format=format, columns=columns)
        self.book = Rulebook(rules)
        self.reports: tuple[InjectionReport, ...] = () if report is None else read_reports(report)
        self.seconds = seconds
        self.drafts: dict[int | None, str] = {}  # texts that cannot be read yet, by rule; None: of a new one
        self.known = FactLookup.from_kb(self.kb)
        self._table: tuple[tuple[int, int], list[RuleRow]] | None = None
        self._turn = threading.Lock()
        self._engine = Engine(self.kb)
        self._counter = RuleCounter(self.kb, self._engine, self._turn, seconds=seconds)
        self.inference = Inference(self.kb, rounds=rounds)
        self.refresh()

    def refresh(self) -> None:
        """Compute anew what follows, after the rules have changed."""
        self.inference.request(self.book.enabled_rules(), self.book.version)

    @property
    def is_ready(self) -> bool:
        """Whether what is inferred follows from the rules as they are now."""
        return self.inference.is_ready(self.book.version)

    @property
    def full_kb(self) -> KnowledgeBase:
        """The facts with what is inferred: every predicate and entity that a page may show."""
        return self.inference.current.facts.kb

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until everything is computed; return whether it is."""
        return self.inference.wait(self.book.version, seconds) and self._counter.wait(seconds)

    def describe_status(self) -> str:
        """Describe in a line how much there is, and whether something is still to come."""
        enabled = sum(entry.is_enabled for entry in self.book.entries)
        parts = [f"{enabled:,} of {len(self.book.entries):,} rules on", f"{self.kb.n_facts:,} facts"]
        if not self.is_ready:
            parts.append("applying rules …")
        elif self.inference.current.error:
            parts.append("the rules cannot be applied")
        else:
            parts.append(f"{len(self.inference.current.facts):,} inferred")
        return " · ".join([*parts, *(["not saved"] if self.book.is_changed else [])])

    # Rules

    def list_rules(
        self, *, search: str = "", sort: Sort = "file", descending: bool = False, start: int = 0, size: int = 25
    ) -> RulePage:
        """Return a page of the rules whose text contains all words of ``search``."""
        if sort not in SORTS:
            raise unknown_name("order", sort, SORTS)
        words = search.casefold().split()
        rows = [row for row in self._rows() if _contains(row.entry, words)]
        if sort != "file" or descending:
            keyed = [row for row in rows if row.sort_key(sort) is not None]
            keyed.sort(key=lambda row: row.sort_key(sort), reverse=descending)  # type: ignore[arg-type, return-value]
            rows = keyed + [row for row in rows if row.sort_key(sort) is None]
        start = max(min(start, len(rows) - 1), 0)
        return RulePage(start, len(rows), tuple(rows[start : start + size]))

    @property
    def state(self) -> tuple[object, ...]:
        """What a page that shows rules depends on: while it is the same, so is the page."""
        book = self.book
        return book.version, book.is_changed, book.is_stale, self.inference.current.version, self._counter.done

    def _rows(self) -> list[RuleRow]:
        """Return all rules; they are put together anew only when one has changed or was counted."""
        state = (self.book.version, self._counter.done)
        if self._table is None or self._table[0] != state:
            self._table = (state, [RuleRow(entry, self._counter.look_up(entry)) for entry in self.book.entries])
        return self._table[1]

    def get_rule(self, key: int) -> RuleRow:
        """Return one statement with its statistics."""
        entry = self.book.get_entry(key)
        return RuleRow(entry, self._counter.look_up(entry))

    def find_problem(self, text: str, key: int | None = None) -> str:
        """Return what is wrong with the text of a rule, "" where nothing is."""
        try:
            statement = self.book.check(_check_length(text), key)
        except ParseError as error:
            return f"column {error.column}: {error.message}" if error.line == 1 else str(error)
        except DataError as error:
            return str(error)
        if isinstance(statement, Rule):
            known = {*self.kb.predicates, *(str(rule.head.predicate) for rule in self.book.enabled_rules().rules)}
            for unit in (literal.unit for body in statement.alternatives() for literal in body):
                if not isinstance(unit, Comparison) and str(unit.predicate) not in known:
                    return str(unknown_name("predicate", str(unit.predicate), self.kb.predicates))
        return ""

    def edit(self, key: int, text: str) -> Entry:
        """Change a rule."""
        entry = self.book.edit(key, _check_length(text))
        self.drafts.pop(key, None)
        self.refresh()
        return entry

    def add(self, text: str) -> Entry:
        """Add a rule."""
        entry = self.book.add(_check_length(text))
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

    def list_cases(self, key: int, *, hold: bool, start: int = 0, size: int = 10) -> CasePage:
        """Return groundings of a rule in which the head holds with the body, or does not."""
        rule = self.book.get_entry(key).statement
        if not isinstance(rule, Rule):
            raise DataError("only rules with a head have examples")
        head_known = str(rule.head.predicate) in self.kb.predicates
        if hold and not head_known:
            return CasePage((), False)
        limit = start + size + 1
        cases: list[GroundedRule] = []
        with self._turn, self._engine.time_limit(self.seconds):
            for body in rule.alternatives():
                holds = hold if head_known else None
                for values in self._engine.cases(rule.head, body, holds=holds, limit=limit - len(cases)):
                    parts = tuple(substitute(literal.formula(), values) for literal in body)
                    cases.append(GroundedRule(substitute(rule.head, values), parts))
                if len(cases) >= limit:
                    break
        return CasePage(tuple(cases[start : start + size]), len(cases) > start + size)

    # Graph

    @cached_property
    def _names(self) -> list[tuple[str, str, str]]:
        labels = [(type_name, str(label)) for type_name, domain in self.kb.domains.items() for label in domain.labels]
        return [(label.casefold(), type_name, label) for type_name, label in labels]

    def search(self, text: str, limit: int = 20) -> list[tuple[str, str]]:
        """Return (type, name) of entities whose name contains a text, equal ones first, then those that start so."""
        folded = _check_length(text).casefold().strip()
        if not folded:
            return []
        matches = [match for match in self._names if folded in match[0]]
        matches.sort(key=lambda match: (match[0] != folded, not match[0].startswith(folded), len(match[0]), match[2]))
        return [(type_name, name) for _, type_name, name in matches[:limit]]

    def most_mentioned(self) -> tuple[str, str] | None:
        """Return the (type, name) of the entity that most facts mention, None where there is no entity."""
        entity_index = self.known.most_mentioned()
        return None if entity_index is None else name_entity(self.kb, entity_index)

    def find_neighbourhood(
        self,
        name: str,
        type: str | None = None,
        *,
        min_score: float = 0.0,
        inferred: bool = True,
        per_relation: int = 5,
        relations: int = 10,
        skip: int = 0,
        containing: str = "",
    ) -> Neighbourhood:
        """Return what is known about an entity, and what is inferred with at least ``min_score``."""
        type_name, entity_index = find_entity(self.kb, name, type)
        consequences = self.inference.current.facts
        bundles = self.known.find_around(entity_index, limit=per_relation)
        if inferred:
            bundles += consequences.find_around(entity_index, limit=per_relation, min_score=min_score)
        return arrange_neighbourhood(
            consequences.kb,
            type_name,
            name,
            [bundle for bundle in bundles if bundle.total],
            per_relation=per_relation,
            relations=relations,
            skip=skip,
            containing=_check_length(containing),
        )

    # Ask

    def ask(self, pattern: str | Head, *, start: int = 0, size: int = 20, inferred_only: bool = False) -> AnswerPage:
        """Return the facts that match a pattern such as ``parent_of(X, alisher)``: known ones first, then by score."""
        head = self.read_pattern(pattern) if isinstance(pattern, str) else pattern
        start = max(min(start, MOST_ANSWERS - size), 0)
        known, n_known = self.known.find_matching(head, start + size)
        inferred, n_inferred = self.inference.current.facts.find_matching(head, start + size)
        before = 0 if inferred_only else n_known
        # Of the inferred ones only the best are at hand, and so they count from where the known ones end
        answers = (*(() if inferred_only else known[start:]), *inferred[max(start - before, 0) :])[:size]
        return AnswerPage(start, before + n_inferred, head, answers, n_known, n_inferred)

    def read_pattern(self, text: str) -> Head:
        """Read a pattern: one atom, whose names the facts or the rules know."""
        return read_pattern(_check_length(text), self.full_kb)

    def rule_key(self, rule_index: int | None) -> int | None:
        """Return the key of the rule that a proof names by its index among those that were applied."""
        if rule_index is None or not self.is_ready:
            return None
        applied = [entry.key for entry in self.book.entries if entry.is_enabled and is_applied(entry.statement)]
        return applied[rule_index] if rule_index < len(applied) else None

    def explain(self, fact: Head | Sequence[Value], *, k: int = 3) -> Explanation:
        """Return the best proofs of a fact, or the rules that come nearest."""
        return self.inference.explain(fact, k=k, seconds=self.seconds)

    def close(self) -> None:
        """Wait for what is being computed, and close the engines."""
        self.inference.close()
        self._counter.wait()
        with self._turn:
            self._engine.close()

    def __enter__(self) -> Explorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _check_length(text: str) -> str:
    if len(text) > MOST_TEXT:
        raise DataError(f"a text of {len(text):,} characters; at most {MOST_TEXT:,} are read")
    return text


@lru_cache(maxsize=100_000)
def _searchable_text(statement: Statement) -> str:
    text = str(statement).casefold()
    return f"{text} {text.replace('_', ' ')}"


def _contains(entry: Entry, words: Sequence[str]) -> bool:
    return not words or all(word in _searchable_text(entry.statement) for word in words)
