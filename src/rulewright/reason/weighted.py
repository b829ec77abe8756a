"""Rules that carry weights, such as those of a completion learner: what they add up to for every new fact, and why."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from rulewright.checks import Progress
from rulewright.data import KnowledgeBase, Value, signature
from rulewright.data.index import Ids, positions_within, range_bounds
from rulewright.engine.batches import Source
from rulewright.engine.walks import LONE, TURNED, Evidence, RuleForm, RuleTable, path_truth
from rulewright.logic import Atom, Head, Implies, Not, RuleSet, WeightedFormula, encode_step, mirror_path
from rulewright.reason.inferred import Inferred, InferredColumns, describe_cut, keep_best
from rulewright.reason.instances import FactKey, is_fact, read_fact
from rulewright.reason.program import is_about_one_end
from rulewright.reason.proofs import Explanation, Proof, Status
from rulewright.reason.rule_rows import (
    RankedRule,
    Scores,
    declare_predicates,
    find_conclusions,
    read_rows,
    write_table,
)

if TYPE_CHECKING:
    from rulewright.engine import Engine

MOST_LISTED = 10
"""How many of the statements that speak for a fact are listed with it, the strongest."""
_FIRINGS = 2_000_000  # that are held at once
_ABOVE_ZERO = float(np.nextafter(0, 1))


class Contribution(NamedTuple):
    """What a statement adds to the score of a fact: ``weight × truth``, below 0 where it speaks against it."""

    source_index: int
    weight: float
    truth: float


@dataclass(frozen=True)
class _WeightedTable:
    """The rules of one relation for ``r(x, ?)``, with the weights that they have for a fact."""

    rules: RuleTable
    weights: Scores
    sources: Ids

    def select(self, chosen: npt.NDArray[np.bool_]) -> _WeightedTable:
        return _WeightedTable(self.rules.select(chosen), self.weights[chosen], self.sources[chosen])

    def is_any(self, *forms: RuleForm) -> npt.NDArray[np.bool_]:
        return np.isin(self.rules.form, forms)

    @property
    def has_body(self) -> npt.NDArray[np.bool_]:
        """Whether each rule asks for facts."""
        return np.array([len(path) > 0 for path in self.rules.paths], dtype=bool)[self.rules.path_index]


class WeightedRules:
    """Rules with weights, and the facts that they speak for.

    A rule has a weight ``w`` as an answer to ``r(x, ?)`` and another ``w'`` to ``r(?, y)``; for the fact ``r(x, y)`` it
    counts their mean. The score of a fact is ``Σ ½ (w + w') ψ``, where ``ψ`` is how true the rule's body is. That is
    the mean of what `RuleRanker` gives ``y`` as an answer to ``r(x, ?)`` and ``x`` as one to ``r(?, y)``.

    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "knows", "ann")])
    >>> rules = parse_rules('''
    ...     0.9 :: child_of(X, Y) :- parent_of(Y, X). @{weight: 2, weight_inverse: 1}
    ...     0.5 knows(X, Y) => !child_of(X, Y).
    ... ''')
    >>> [(str(fact), fact.score) for fact in WeightedRules(rules, kb).apply(max_facts=10)]
    [('child_of(bob, ann)', 1.0)]
    """

    def __init__(
        self,
        rules: RuleSet,
        kb: KnowledgeBase,
        *,
        predicates: Collection[str] | None = None,
        memory_limit: int | str | None = None,
    ) -> None:
        self.kb, self.sources = declare_predicates(rules, kb), cast(tuple[Source, ...], rules.statements)
        self.numbers = rules.numbers
        chosen = [
            statement for statement in rules if predicates is None or find_conclusions(statement) & set(predicates)
        ]
        rows, self.graph = read_rows(chosen, self.kb, weighted=True, memory_limit=memory_limit)
        self._passed_over = sum(
            not any(signature(self.kb.predicate(name)) == "ee" for name in find_conclusions(statement))
            for statement in chosen
        )
        index_of = {id(statement): index for index, statement in enumerate(rules)}
        self._tables: dict[str, _WeightedTable] = {}
        for relation, name in enumerate(self.kb.predicates):
            forward, backward = (rows.get(encode_step(relation, inverse), []) for inverse in (False, True))
            halves: dict[tuple[object, ...], tuple[RankedRule, float]] = {}
            for row in (*forward, *map(_turn, backward)):
                key = (*row[:4], row.second, id(row.source))
                halves[key] = row, halves.get(key, (row, 0.0))[1] + row.weight / 2
            if halves:
                table, _ = write_table(encode_step(relation), [row for row, _ in halves.values()])
                sources = np.array([index_of[id(row.source)] for row, _ in halves.values()], dtype=np.int64)
                self._tables[name] = _WeightedTable(table, np.array([w for _, w in halves.values()]), sources)

    def apply(self, *, min_score: float = 0.0, max_facts: int, progress: Progress | None = None) -> Inferred:
        """Return the facts with the highest scores that are new.

        Only what a body speaks for is a fact: that something is a common answer alone does not make it one.
        """
        found: dict[tuple[str, int], InferredColumns] = {}
        lowest, tied_at, is_cut = max(min_score, _ABOVE_ZERO), 0.0, False

        def read_lowest() -> float:  # it rises as better facts are found
            return lowest

        for done, (name, table) in enumerate(self._tables.items()):
            if progress is not None:
                progress(f"weighing {name}", done, len(self._tables))
            first = self.kb.domains[self.kb.predicate(name).types[0]]
            heads = np.arange(first.start, first.start + len(first))
            for block, facts in enumerate(self._weigh_blocks(name, table, heads, read_lowest)):
                found[name, block] = facts
                if sum(len(facts.scores) for facts in found.values()) > 2 * max_facts:
                    found, lowest, is_tied = keep_best(found, max_facts, by_lists=False)
                    is_cut, tied_at = True, lowest if is_tied else tied_at
        note = ""
        if is_cut or sum(len(facts.scores) for facts in found.values()) > max_facts:
            found, lowest, is_tied = keep_best(found, max_facts, by_lists=False)
            how = describe_cut(found, lowest, is_tied or lowest == tied_at)
            note = f"stopped at max_facts={max_facts:,}: {how}"
        if self._passed_over:
            passed = f"{self._passed_over:,} statements conclude no relation of two entities; weights passed them over"
            note = f"{note}; {passed}" if note else passed
        if progress is not None:
            progress("weighing rules", len(self._tables), len(self._tables))
        derived = {
            name: _join([facts for (owner, _), facts in found.items() if owner == name])
            for name in dict.fromkeys(owner for (owner, _), facts in found.items() if len(facts.scores))
        }
        return Inferred(self.kb, self.sources, derived, numbers=self.numbers, note=note)

    def score_new_facts(self, relation: str, heads: Ids) -> Iterator[tuple[Ids, Ids, Scores]]:
        """Yield the new facts ``r(x, y)`` of some ``x`` that rules speak for: ``x``, ``y`` and score, some at a time.

        These are the facts and scores that `apply` gives where nothing limits it.

        >>> from rulewright.logic import parse_rules
        >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob")])
        >>> rules = parse_rules("0.9 :: child_of(X, Y) :- parent_of(Y, X). @{weight: 2, weight_inverse: 1}")
        >>> [[column.tolist() for column in part] for part in WeightedRules(rules, kb).score_new_facts("child_of", [1])]
        [[[1], [0], [1.5]]]
        """
        if relation in self._tables:
            heads = np.asarray(heads, dtype=np.int64)
            for facts in self._weigh_blocks(relation, self._tables[relation], heads, lambda: _ABOVE_ZERO):
                yield facts.columns[0], facts.columns[1], facts.scores

    def _weigh_blocks(
        self, relation: str, table: _WeightedTable, heads: Ids, read_lowest: Callable[[], float]
    ) -> Iterator[InferredColumns]:
        """Yield the new facts of some heads that score so high, of so many heads at a time as firings fit."""
        last = self.kb.domains[self.kb.predicate(relation).types[1]]
        walked, unconditional = table.select(table.has_body), _Unconditional.of(table, self.graph.entities)
        evidence = Evidence(self.graph, walked.rules)
        decided = _decided_pairs(self.kb, relation, self.graph.entities)
        size, low = 16, 0
        while low < len(heads) and len(walked.weights):
            firings, facts = self._weigh(
                evidence, walked, unconditional, heads[low : low + size], decided, read_lowest()
            )
            inside = (facts.columns[1] >= last.start) & (facts.columns[1] < last.start + len(last))
            yield facts.select(inside)
            low += size
            size = int(np.clip(size * _FIRINGS / max(1, firings), 1, 2 * size))

    def _weigh(
        self,
        evidence: Evidence,
        table: _WeightedTable,
        unconditional: _Unconditional,
        entities: Ids,
        decided: Ids,
        lowest: float,
    ) -> tuple[int, InferredColumns]:
        """Return how many rules spoke for facts ``r(x, y)`` with some ``x``, and the new ones that score so high."""
        width = self.graph.entities
        row, candidate, rule, truth = evidence.firings(entities)
        strength = table.weights[rule] * truth
        keys, fact = np.unique(entities[row] * width + candidate, return_inverse=True)
        heads, tails = keys // width, keys % width
        scores = np.bincount(fact, strength, len(keys)) + unconditional.score(heads, tails)
        gives = (strength > 0) & ~table.is_any(*LONE)[rule]
        is_kept = (np.bincount(fact, gives, len(keys)) > 0) & (scores >= lowest) & ~np.isin(keys, decided)
        listed = np.flatnonzero(is_kept[fact] & (strength > 0))
        listed = listed[np.lexsort((-strength[listed], fact[listed]))]
        counts = np.bincount(fact[listed], minlength=len(keys))
        listed = listed[positions_within(counts) < MOST_LISTED]
        kept_counts = np.minimum(counts, MOST_LISTED)[is_kept]
        return len(row), InferredColumns(
            (heads[is_kept], tails[is_kept]),
            scores[is_kept],
            np.ones(int(is_kept.sum()), dtype=np.int32),
            range_bounds(kept_counts),
            table.sources[rule[listed]].astype(np.int32),
            strength[listed],
        )

    def contributions(self, relation: str, head: int, tail: int) -> list[Contribution]:
        """Return what each statement adds to the score of ``r(head, tail)``, the strongest first, for or against."""
        if relation not in self._tables:
            return []
        table, width = self._tables[relation], self.graph.entities
        constant = table.rules.constant
        names_neither = (table.is_any(RuleForm.ANSWER) & (constant != tail)) | (
            table.is_any(RuleForm.ASKED) & (constant != head)
        )
        table = table.select(~names_neither)
        wanted = np.zeros((1, width), dtype=bool)
        wanted[0, tail] = True
        _, _, rule, truth = Evidence(self.graph, table.rules).firings(np.array([head]), wanted=wanted)
        order = np.argsort(-np.abs(table.weights[rule] * truth), kind="stable")
        columns = (table.sources[rule[order]], table.weights[rule[order]], truth[order])
        return [Contribution(*row) for row in zip(*(column.tolist() for column in columns), strict=True)]

    def explain(self, fact: str | Head | Sequence[Value], *, k: int | None = 1) -> Explanation:
        """Say what every statement adds to the score of a fact; the ``k`` strongest with the facts they rest on."""
        goal, key = read_fact(fact, self.kb)
        parts = self._contributions_to(goal, key)
        total = sum(part.weight * part.truth for part in parts)
        proofs = [self._prove(goal, part, grounded=k is None or rank < k) for rank, part in enumerate(parts)]
        gives = any(part.weight > 0 and not _is_plain(self.sources[part.source_index]) for part in parts)
        status: Status = "inferred" if gives and total > 0 else "unknown"
        if is_fact(key, self.kb):
            status = "known"
        elif is_fact(key, self.kb, truth=False):
            status = "false"
        return Explanation(goal, status, tuple(proofs), (), (), 1, total=total)

    def find_reason(self, fact: str | Head | Sequence[Value]) -> Proof:
        """Return what the statement adds that speaks most for a fact."""
        goal, key = read_fact(fact, self.kb)
        parts = self._contributions_to(goal, key)
        return self._prove(goal, max(parts, key=lambda part: part.weight * part.truth), grounded=True)

    def _contributions_to(self, goal: Head, key: FactKey) -> list[Contribution]:
        relation = str(goal.predicate)
        return self.contributions(relation, int(key[1]), int(key[2])) if relation in self._tables else []

    def _prove(self, goal: Head, part: Contribution, *, grounded: bool) -> Proof:
        """Return a contribution with the facts that it rests on."""
        from rulewright.reason.answers import ground_statement

        source = self.sources[part.source_index]
        body = ground_statement(source, cast(Atom, goal), self._engine) if grounded else ()
        return Proof(
            goal,
            part.weight * part.truth,
            source,
            part.source_index,
            tuple(Proof(cast(Atom, leaf)) for leaf in body if not isinstance(leaf, Not)),
            tuple(leaf for leaf in body if isinstance(leaf, Not)),
            part.weight,
            part.truth,
            self.numbers[part.source_index],
        )

    @cached_property
    def _engine(self) -> Engine:
        from rulewright.engine.duckdb import Engine

        return Engine(self.kb)

    def close(self) -> None:
        """Let go of what was loaded."""
        if "_engine" in vars(self):
            self._engine.close()


def _is_plain(statement: Source) -> bool:
    """Return whether a statement asks for no facts, or for facts of one end alone, and so gives none by itself."""
    if not isinstance(statement, WeightedFormula):
        return False
    match statement.formula:
        case Atom():
            return True
        case Implies(Atom() as premise, Atom() as head):
            return is_about_one_end(head, premise)
    return False


@dataclass(frozen=True)
class _Unconditional:
    """What speaks for a pair whatever the facts are: that it names an entity, or one twice."""

    everywhere: float
    by_head: Scores
    by_tail: Scores
    same: float

    @classmethod
    def of(cls, table: _WeightedTable, width: int) -> _Unconditional:
        plain = table.select(~table.has_body)

        def add_up(form: RuleForm) -> Scores:
            of_form = plain.select(plain.is_any(form))
            return np.bincount(of_form.rules.constant, of_form.weights, width).astype(np.float64)

        everywhere, same = (
            float(plain.weights[plain.is_any(form)].sum()) for form in (RuleForm.EVERY, RuleForm.CLOSED)
        )
        same *= float(path_truth(np.ones(1), table.rules.ways)[0])  # the one way of no step
        return cls(everywhere, add_up(RuleForm.ASKED), add_up(RuleForm.ANSWER), same)

    def score(self, heads: Ids, tails: Ids) -> Scores:
        scores: Scores = self.everywhere + self.by_head[heads] + self.by_tail[tails] + self.same * (heads == tails)
        return scores


def _turn(row: RankedRule) -> RankedRule:
    """Return a rule for ``r(?, y)`` as it is read for ``r(x, ?)``."""
    if row.form in TURNED:
        return row._replace(form=TURNED[row.form])
    return row._replace(path=mirror_path(row.path), second=mirror_path(row.second))


def _decided_pairs(kb: KnowledgeBase, relation: str, width: int) -> Ids:
    """Return the pairs of a relation that are known to hold or observed not to, as keys."""
    index = kb.predicate_index(relation)
    tables = [kb.tables(truth=truth).get("ee") for truth in (True, False)]
    pairs = [table.columns_of(index) for table in tables if table is not None]
    keys = [heads.astype(np.int64) * width + tails for heads, tails in pairs]
    return np.concatenate([*keys, np.zeros(0, dtype=np.int64)])


def _join(parts: list[InferredColumns]) -> InferredColumns:
    """Put the facts of one predicate together."""
    lengths = [np.diff(part.source_bounds) for part in parts]
    return InferredColumns(
        tuple(np.concatenate(columns) for columns in zip(*(part.columns for part in parts), strict=True)),
        np.concatenate([part.scores for part in parts]),
        np.concatenate([part.rounds for part in parts]),
        range_bounds(np.concatenate(lengths)),
        np.concatenate([part.source_indices for part in parts]),
        np.concatenate([part.source_scores for part in parts]),
    )
