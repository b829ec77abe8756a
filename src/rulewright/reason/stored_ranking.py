"""Ranking the candidates of queries about facts that stay in an engine, by statements; only results come to Python.

A query is a step and the entity ``x`` that is asked about, a candidate an entity ``y``; a row of the table ``firing``
says that rule ``n`` speaks for it. The table ``candidate`` has its score as a value that any database compares: a
position among the confidences (``max``), a whole number of 10⁻¹² (``noisy-or``), or a text (``max-plus``).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from rulewright.checks import Progress, Whole, check_parameter
from rulewright.data import signature
from rulewright.data.index import Ids
from rulewright.engine.batches import batch_derivations
from rulewright.engine.journal import hash_columns
from rulewright.engine.sql import Column
from rulewright.engine.stored_facts import StoredFacts
from rulewright.errors import DataError
from rulewright.evaluate.ranking import TIES, RankingScores, Ties, name_cardinalities
from rulewright.logic import encode_step, is_inverse, step_relation, write_step
from rulewright.reason.inferred import AGGREGATION, Aggregation
from rulewright.reason.program import RuleProgram, Rules, read_rule_set
from rulewright.reason.ranking import find_levels
from rulewright.reason.rule_rows import choose_aggregation, declare_predicates

Scores = npt.NDArray[np.float64]
_DIGITS = np.array(list("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"))  # as texts are ordered
_UNIT = 1e-12  # of what rules bring to a noisy-or, so that a sum is the same in any order
_NOTHING = "SELECT q.step AS step, q.x AS x, q.x AS y, 0 AS n FROM ask AS q WHERE 1 = 0"
_TABLES = ("query", "ask", "known_answer", "firing", "candidate", "tied", "ranked_rule")


class BestCandidates(NamedTuple):
    """The best candidates of queries, a row for each, in the order of the queries and best first.

    ``rules[bounds[i]:bounds[i + 1]]`` are the statements that speak for the candidate in row ``i``, strongest first.
    """

    queries: Ids
    entities: Ids
    scores: Scores
    bounds: Ids
    rules: Ids


class StoredRanker:
    """Ranks as `RuleRanker` does, in the engine that has the facts.

    ``sources`` are the statements, ``confidences`` theirs. ``predicates`` are the relations of the queries to come, all
    by default. Rules that add up their weights are ranked by on facts in memory alone.

    >>> from rulewright import KnowledgeBase, parse_rules
    >>> from rulewright.engine import Engine
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid"), ("eve", "g", "dan")])
    >>> with StoredFacts.of(kb, Engine()) as stored:
    ...     rules = parse_rules("0.9 :: g(X, Z) :- parent_of(X, Y), parent_of(Y, Z).")
    ...     best = StoredRanker(rules, stored).best([stored.predicate_index("g")], [0], [False], 1)
    >>> best.entities.tolist(), best.scores.tolist(), best.rules.tolist()
    ([2], [0.9], [0])
    """

    def __init__(
        self,
        rules: Rules,
        kb: StoredFacts,
        *,
        aggregation: Aggregation | None = None,
        predicates: Collection[str] | None = None,
    ) -> None:
        rule_set = read_rule_set(rules)
        self.aggregation = aggregation or choose_aggregation(rule_set)
        check_parameter("aggregation", self.aggregation, AGGREGATION)
        if self.aggregation == "weight":
            raise DataError(
                "rules that add up their weights rank candidates on facts of read_facts; on facts that stay in an "
                "engine aggregation='max-plus' ranks by confidences"
            )
        program = RuleProgram.of(rule_set, declare_predicates(rule_set, kb))
        assert isinstance(program.kb, StoredFacts)
        self.stored, self.kb, self.engine = kb, program.kb, kb.engine
        self.sources, self.numbers = program.sources, program.numbers
        self.confidences = np.zeros(len(self.sources))
        derivations = []
        for derivation in program.derivations:
            name = str(derivation.head.predicate)
            is_asked = predicates is None or name in predicates
            if is_asked and derivation.confidence > 0 and signature(self.kb.predicate(name)) == "ee":
                derivations.append(derivation)
                self.confidences[derivation.source_index] = derivation.confidence
        self._batches = batch_derivations(enumerate(derivations), self.kb, prefix="ranked")
        texts = "\n".join(str(self.sources[index]) for index in np.flatnonzero(self.confidences))
        digest = hashlib.sha256(texts.encode("utf-8", "surrogatepass") + self.confidences.tobytes()).hexdigest()
        self._key = f"{digest} {self.aggregation} of {kb.key}"

    def best(
        self,
        relations: Sequence[int] | Ids,
        asked: Sequence[int] | Ids,
        inverse: Sequence[bool] | npt.NDArray[np.bool_],
        count: int,
        *,
        known: bool = False,
    ) -> BestCandidates:
        """Return the ``count`` best candidates of each query, of equals those of lower index, but for ``known`` facts.

        A query is given by the index of its relation, that of the entity asked about, and whether it is ``r(?, x)``.
        """
        check_parameter("count", count, Whole(1))
        steps = encode_step(np.asarray(relations, dtype=np.int64), np.asarray(inverse, dtype=np.int64))
        columns = {"i": np.arange(len(steps)), "step": steps, "x": np.asarray(asked, dtype=np.int64)}
        others, condition = "", ""
        if not known:
            others = f" LEFT JOIN ({self._select_known([self.stored.facts_table])}) AS k ON {_same('c', 'k', 'y')}"
            condition = " WHERE k.y IS NULL"
        place = "ROW_NUMBER() OVER (PARTITION BY c.step, c.x ORDER BY c.score DESC, c.y) AS place"
        ordered = f"SELECT c.step AS step, c.x AS x, c.y AS y, {place} FROM candidate AS c{others}{condition}"
        with self._working(f"best {count} {known} {hash_columns(columns)}"):
            self.engine.put("ask", columns)
            self._score()
            rows = self.engine.run(
                f"SELECT q.i AS i, b.place AS place, b.y AS y, f.n AS n FROM ask AS q "
                f"JOIN ({ordered}) AS b ON {_same('q', 'b')} JOIN firing AS f ON {_same('b', 'f', 'y')} "
                f"WHERE b.place <= {count}"
            )
        return self._gather(*(rows[name].astype(np.int64) for name in ("i", "place", "y", "n")))

    def _gather(self, queries: Ids, places: Ids, entities: Ids, rules: Ids) -> BestCandidates:
        """Bring together the rows of each candidate, one for each rule that speaks for it."""
        order = np.lexsort((rules, -self.confidences[rules], places, queries))
        queries, places, entities, rules = queries[order], places[order], entities[order], rules[order]
        is_first = np.ones(len(rules), dtype=bool)
        is_first[1:] = (queries[1:] != queries[:-1]) | (places[1:] != places[:-1])
        starts = np.flatnonzero(is_first)
        if self.aggregation == "noisy-or":
            doubts = np.log1p(-np.minimum(self.confidences[rules], 1 - 1e-12))
            scores = -np.expm1(np.add.reduceat(doubts, starts)) if len(starts) else doubts
        else:
            scores = self.confidences[rules[starts]]
        decimals = 8 if self.aggregation == "max-plus" else 12  # as `RuleRanker.show_score` has them
        bounds = np.append(starts, len(rules))
        return BestCandidates(queries[starts], entities[starts], np.asarray(scores).round(decimals), bounds, rules)

    def evaluate(
        self,
        split: str = "test",
        *,
        known: Sequence[str] | None = None,
        relations: Sequence[str] | None = None,
        ties: Ties = "mean",
        progress: Progress | None = None,
    ) -> RankingScores:
        """Pose ``r(h, ?)`` and ``r(?, t)`` for every fact of a split, as `evaluate_ranking` does."""
        check_parameter("ties", ties, TIES)
        asked = self.stored.split(split)
        splits = [*(self.stored.splits if known is None else known), split]
        tables = [self.stored.facts_table, *dict.fromkeys(_find_table(self.stored.split(name)) for name in splits)]
        chosen = [
            self.kb.predicate_index(name) for name in self.kb.predicates if relations is None or name in relations
        ]
        with self._working(f"evaluate {split} {chosen} {tables}"):
            self._pose(_find_table(asked), chosen, tables)
            blocks = self._count_blocks()
            parts = []
            for block in range(blocks):
                if progress is not None:
                    progress("ranking", block, blocks)
                in_block = f"q.x % {blocks} = {block}" if blocks > 1 else "1 = 1"
                self._score(in_block, highest=True)
                if self.aggregation == "max-plus":
                    self._break_ties()
                parts.append(self._count_rivals(in_block))
        if progress is not None:
            progress("ranking", blocks, blocks)
        rows = {name: np.concatenate([part[name] for part in parts]).astype(np.int64) for name in parts[0]}
        if not len(rows["step"]):
            raise DataError(f"the split {split} has no fact of the relations asked for, so there are no queries")
        order = np.lexsort((rows["y"], rows["x"], rows["step"]))
        rows = {name: column[order] for name, column in rows.items()}
        # a candidate that no rule speaks for is level with an answer that none speaks for
        silent = self.stored.n_entities - (rows["known"] - 1) - rows["higher"]
        return RankingScores(
            tuple(self.stored.predicates),
            step_relation(rows["step"]),
            is_inverse(rows["step"]).astype(bool),
            rows["higher"],
            np.where(rows["spoken"] > 0, rows["beside"] + 1, silent),
            rows["unseen"] > 0,
            ties=ties,
            cardinalities=self._find_cardinalities(),
        )

    def _find_cardinalities(self) -> tuple[str, ...]:
        """Return the cardinality of each relation by the main facts."""
        rows = self.engine.run(
            "SELECT p, COUNT(*) AS facts, COUNT(DISTINCT a0) AS heads, COUNT(DISTINCT a1) AS tails "
            f"FROM {self.stored.facts_table} GROUP BY p"
        )
        counts = np.zeros((3, len(self.stored.predicates)), dtype=np.int64)
        for row, name in enumerate(("facts", "heads", "tails")):
            counts[row, rows["p"].astype(np.int64)] = rows[name]
        return name_cardinalities(*counts)

    @contextmanager
    def _working(self, what: str) -> Iterator[None]:
        """Hold the rules for a section of work, and let go of all tables at its end; one that is killed can go on."""
        self.engine.begin("ranking", f"{what} by {self._key}")
        try:
            self._put_rules()
            yield
            self.engine.drop(*_TABLES, *(batch.name for batch in self._batches))
        finally:
            self.engine.end()

    def _put_rules(self) -> None:
        """Hold the rules of every shape, and what each brings to a score."""
        for batch in self._batches:
            self.engine.put(batch.name, batch.columns)
        columns: dict[str, Column] = {"n": np.arange(len(self.sources), dtype=np.int32)}
        if self.aggregation == "noisy-or":
            doubts = -np.log1p(-np.minimum(self.confidences, 1 - 1e-12))
            columns["strength"] = np.maximum(1, np.round(doubts / _UNIT)).astype(np.int64)
        elif self.aggregation == "max":
            columns["strength"] = np.unique(self.confidences, return_inverse=True)[1].astype(np.int64)
        else:
            levels, different = find_levels(self.confidences)
            columns["code"] = _write_codes(len(different) - 1 - levels)
        self.engine.put("ranked_rule", columns)

    def _pose(self, table: str, relations: Sequence[int], tables: Sequence[str]) -> None:
        """Hold the queries of a split with their answers, what they ask, and the right answers that are known."""
        facts = self.stored.facts_table
        seen = f"SELECT a0 AS e FROM {facts} UNION SELECT a1 AS e FROM {facts}"
        listed = ", ".join(map(str, relations)) or "-1"
        self.engine.create(
            "query",
            "SELECT q.step AS step, q.x AS x, q.y AS y, CASE WHEN sx.e IS NULL OR sy.e IS NULL THEN 1 ELSE 0 END AS "
            f"unseen FROM ({_select_steps([table], f' WHERE p IN ({listed})')}) AS q "
            f"LEFT JOIN ({seen}) AS sx ON sx.e = q.x LEFT JOIN ({seen}) AS sy ON sy.e = q.y",
        )
        self.engine.create("ask", "SELECT DISTINCT step, x FROM query")
        self.engine.create("known_answer", self._select_known(tables))

    def _select_known(self, tables: Sequence[str]) -> str:
        """Return the statement that lists the answers of the queries asked that are in some tables of facts."""
        return (
            "SELECT DISTINCT q.step AS step, q.x AS x, k.y AS y FROM ask AS q "
            f"JOIN ({_select_steps(tables)}) AS k ON {_same('q', 'k')}"
        )

    def _select_firings(self, columns: str, condition: str = "1 = 1") -> str:
        """Return the statement that lists, for queries ``q`` under a condition, which rules speak for which candidates.

        It may list one several times. ``columns`` are made of ``step``, ``x``, ``y`` and ``n``.
        """
        parts = []
        for batch in self._batches:
            for inverse in (False, True):
                join = batch.join(self.kb)
                head, *args = batch.express_head(join)
                near, far = args[::-1] if inverse else args
                join.sources.append("ask AS q")
                join.conditions += [f"q.step = {write_step(head, inverse=inverse)}", f"q.x = {near}", condition]
                parts.append(join.select(f"q.step AS step, q.x AS x, {far} AS y, r.n AS n"))
        rows = " UNION ALL ".join(parts or [_NOTHING])
        return f"SELECT {columns} FROM ({rows}) AS listed"

    def _count_blocks(self) -> int:
        """Return into how many blocks to divide the queries, that a statement may not list too many rows."""
        rows = int(self.engine.run(self._select_firings("COUNT(*) AS n"))["n"][0])
        self.engine.expect("candidates of queries", rows, way_out="ask about fewer relations, or by fewer rules")
        return max(1, -(-rows // self.engine.rows_at_once))

    def _score(self, condition: str = "1 = 1", *, highest: bool = False) -> None:
        """Hold which rules speak for which candidates of queries under a condition, and the scores of these.

        With ``highest``, those of ``max-plus`` are of the highest confidence alone.
        """
        self.engine.create("firing", self._select_firings("DISTINCT step, x, y, n", condition))
        score = {"max": "MAX(r.strength)", "noisy-or": "CAST(SUM(r.strength) AS BIGINT)"}.get(self.aggregation)
        if score is None:
            score = "MAX(r.code)" if highest else self.engine.join_sorted("r.code")
        self.engine.create("candidate", self._select_scores(score, "firing AS f"))

    def _select_scores(self, score: str, firings: str) -> str:
        """Return the statement that makes a score of the rules ``r`` in firings ``f`` of each candidate."""
        return (
            f"SELECT f.step AS step, f.x AS x, f.y AS y, {score} AS score "
            f"FROM {firings} JOIN ranked_rule AS r ON r.n = f.n GROUP BY f.step, f.x, f.y"
        )

    def _break_ties(self) -> None:
        """Give the candidates that share the highest confidence with an answer, and it, the texts of ``max-plus``.

        Others keep the text of the highest alone, which says all that is asked of them.
        """
        self.engine.create(
            "tied",
            "SELECT DISTINCT c.step AS step, c.x AS x, c.y AS y "
            f"FROM query AS q JOIN candidate AS own ON {_same('q', 'own', 'y')} "
            f"JOIN candidate AS c ON {_same('own', 'c', 'score')} "
            f"LEFT JOIN known_answer AS k ON {_same('c', 'k', 'y')} WHERE k.y IS NULL OR c.y = q.y",
        )
        firings = f"firing AS f JOIN tied AS t ON {_same('f', 't', 'y')}"
        self.engine.create(
            "candidate",
            "SELECT c.step AS step, c.x AS x, c.y AS y, c.score AS score FROM candidate AS c "
            f"LEFT JOIN tied AS t ON {_same('c', 't', 'y')} WHERE t.y IS NULL "
            f"UNION ALL {self._select_scores(self.engine.join_sorted('r.code'), firings)}",
        )

    def _count_rivals(self, condition: str) -> dict[str, Column]:
        """Return a row for each query: how many candidates score higher than its answer, and how many others the same.

        Of the candidates for which rules speak; ``spoken`` says whether any does for the answer, ``known`` how many
        right answers there are.
        """
        rivals = (
            "SELECT c.step AS step, c.x AS x, c.score AS score, COUNT(*) AS n FROM candidate AS c "
            f"LEFT JOIN known_answer AS k ON {_same('c', 'k', 'y')} WHERE k.y IS NULL GROUP BY c.step, c.x, c.score"
        )
        counts = "SELECT step, x, COUNT(*) AS n FROM known_answer GROUP BY step, x"
        is_higher = "r.n IS NOT NULL AND (own.score IS NULL OR r.score > own.score)"
        return self.engine.run(
            "SELECT q.step AS step, q.x AS x, q.y AS y, MAX(q.unseen) AS unseen, MAX(k.n) AS known, "
            "MAX(CASE WHEN own.score IS NULL THEN 0 ELSE 1 END) AS spoken, "
            f"CAST(SUM(CASE WHEN {is_higher} THEN r.n ELSE 0 END) AS BIGINT) AS higher, "
            "CAST(SUM(CASE WHEN r.score = own.score THEN r.n ELSE 0 END) AS BIGINT) AS beside "
            f"FROM query AS q JOIN ({counts}) AS k ON {_same('q', 'k')} "
            f"LEFT JOIN candidate AS own ON {_same('q', 'own', 'y')} "
            f"LEFT JOIN ({rivals}) AS r ON {_same('q', 'r')} WHERE {condition} GROUP BY q.step, q.x, q.y"
        )


def evaluate_stored(
    rules: Rules,
    kb: StoredFacts,
    split: str = "test",
    *,
    aggregation: Aggregation | None = None,
    known: Sequence[str] | None = None,
    relations: Sequence[str] | None = None,
    ties: Ties = "mean",
) -> RankingScores:
    """Return the ranks of the right answers to queries about a split of stored facts; see `evaluate_ranking`."""
    ranker = StoredRanker(rules, kb, aggregation=aggregation, predicates=relations)
    return ranker.evaluate(split, known=known, relations=relations, ties=ties)


def _find_table(kb: object) -> str:
    assert isinstance(kb, StoredFacts)
    return kb.facts_table


def _same(one: str, other: str, *columns: str) -> str:
    """Return the condition that two rows are of one query, and have the same in further columns."""
    return " AND ".join(f"{one}.{column} = {other}.{column}" for column in ("step", "x", *columns))


def _select_steps(tables: Sequence[str], suffix: str = "") -> str:
    """Return the statement that lists the facts of tables in both directions, as answers ``y`` to queries."""
    return " UNION ALL ".join(
        f"SELECT {write_step('p', inverse=inverse)} AS step, {near} AS x, {far} AS y FROM {table}{suffix}"
        for table in tables
        for inverse, near, far in ((False, "a0", "a1"), (True, "a1", "a0"))
    )


def _write_codes(numbers: Ids) -> npt.NDArray[np.str_]:
    """Return texts of one length that are ordered as numbers are.

    >>> _write_codes(np.array([0, 9, 10, 62])).tolist()
    ['00', '09', '0A', '10']
    """
    width = 1
    while len(_DIGITS) ** width <= numbers.max(initial=0):
        width += 1
    codes = np.full(len(numbers), "", dtype=f"<U{width}")
    for _ in range(width):
        codes = np.char.add(_DIGITS[numbers % len(_DIGITS)], codes)
        numbers = numbers // len(_DIGITS)
    return codes.astype(f"<U{width}")
