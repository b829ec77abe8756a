from __future__ import annotations

import random
from functools import cache

import numpy as np
import pytest
from engine.engines import ENGINES, store
from engine.test_engine import random_graph, random_rule
from hypothesis import given, settings
from hypothesis import strategies as st
from real_data import DATA, needs_data

from rulewright import KnowledgeBase, RuleMiner, evaluate, rank, read_facts, store_facts
from rulewright.engine import Engine
from rulewright.engine.walks import Evidence
from rulewright.errors import DataError
from rulewright.evaluate.ranking import RankingScores, evaluate_ranking
from rulewright.logic import Rule, RuleSet, encode_step, parse_rules
from rulewright.reason.ranking import RuleRanker, pick_best
from rulewright.reason.stored_ranking import StoredRanker, evaluate_stored

AGGREGATIONS = ("max", "max-plus", "noisy-or")
SEEDS = st.integers(0, 2**32)
MORE_RULES = parse_rules("""
0.5 :: h(X, e1) :- p(X, e2).
0.25 :: h(X, e0) :- q(X, Y).
0.75 :: h(e3, Y) :- q(Y, e0).
0.75 :: q(X, Y) :- p(X, Z), h(Z, Y).
0.9 :: q(X, Y) :- p(X, Y) ; h(Y, X).
0.5 :: q(X, Y) :- h(X, Y), X != Y.
0.25 :: new(X, Y) :- h(Y, X).
""")
each_engine = pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)


def random_rules(chance: random.Random, aggregation: str) -> RuleSet:
    confidences = [0.25, 0.5, 0.75, 0.9, 1.0, *([0.5 + 1e-12] if aggregation != "noisy-or" else [])]
    rules = []
    for _ in range(chance.randint(0, 6)):
        head, body = random_rule(chance)
        rules.append(Rule(head, tuple(literal.formula() for literal in body), confidence=chance.choice(confidences)))
    return RuleSet([*rules, *(rule for rule in MORE_RULES if chance.random() < 0.5)])


def with_splits(kb: KnowledgeBase, seed: int) -> KnowledgeBase:
    rest, test = kb.hold_out(0.3, seed=seed)
    train, valid = rest.hold_out(0.2, seed=seed)
    return train.with_splits({"valid": valid, "test": test})


class LogSums:
    """What ``noisy-or`` orders by, exact where 1 − Π(1 − c) rounds to 1."""

    def __init__(self, ranker: RuleRanker) -> None:
        self.ranker = ranker

    def scores(self, relation, entities, *, inverse=False):
        step = encode_step(self.ranker.kb.predicate_index(relation), inverse)
        if step not in self.ranker.tables:
            return np.zeros((len(entities), self.ranker.graph.entities))
        table, weights = self.ranker.tables[step]
        evidence = Evidence(self.ranker.graph, table)
        return evidence.scores(entities, -np.log1p(-np.minimum(weights, 1 - 1e-12))).round(9)


def make_twin(rules, kb, aggregation):
    ranker = RuleRanker.of(rules, kb, aggregation=aggregation)
    return LogSums(ranker) if aggregation == "noisy-or" else ranker


def sort_ranks(scores: RankingScores) -> list[tuple[int, ...]]:
    columns = (scores.relation, scores.inverse, scores.higher, scores.equal, scores.unseen)
    return sorted(zip(*(column.astype(int).tolist() for column in columns), strict=True))


def check_best(kb, ranker: StoredRanker, twin, count: int, *, known: bool) -> None:
    """Compare the best candidates of every query, in both directions, with those of scores of all entities."""
    names = [name for name in twin.kb.predicates if name in ranker.kb.predicates]
    scorer = LogSums(twin) if ranker.aggregation == "noisy-or" else twin
    queries = [
        (name, entity, inverse) for name in names for entity in range(kb.n_entities) for inverse in (False, True)
    ]
    relations, entities, inverses = zip(*queries, strict=True)
    best = ranker.best([ranker.kb.predicate_index(name) for name in relations], entities, inverses, count, known=known)
    domain = next(iter(kb.domains.values()))
    for index, (name, entity, inverse) in enumerate(queries):
        scores = scorer.scores(name, np.array([entity]), inverse=inverse)[0]
        for candidate in range(kb.n_entities) if not known and name in kb.predicates else ():
            pair = domain.labels_of([entity, candidate])
            if kb.contains(name, *(pair[::-1] if inverse else pair)):
                scores[candidate] = 0
        rows = np.flatnonzero(best.queries == index)
        expected = pick_best(scores, count)
        assert best.entities[rows].tolist() == expected.tolist()
        shown = twin.scores(name, np.array([entity]), inverse=inverse)[0][expected]
        assert best.scores[rows].tolist() == pytest.approx([twin.show_score(score) for score in shown])


@pytest.mark.slow
@each_engine
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_ranks_are_those_of_facts_in_memory(make, aggregation, seed):
    chance = random.Random(seed)
    kb, rules = with_splits(random_graph(chance), seed % 1000), random_rules(chance, aggregation)
    with make(kb) as engine:
        engine.rows_at_once = chance.choice((20, 10**6))  # few rows: some blocks
        stored = store(kb, engine)
        scores = evaluate_stored(rules, stored, aggregation=aggregation)
        expected = evaluate_ranking(make_twin(rules, kb, aggregation), kb)
        assert sort_ranks(scores) == sort_ranks(expected)
        alone = evaluate_stored(rules, stored, aggregation=aggregation, known=[])
        assert sort_ranks(alone) == sort_ranks(evaluate_ranking(make_twin(rules, kb, aggregation), kb, known=[]))


@pytest.mark.slow
@each_engine
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_the_best_candidates_are_those_of_facts_in_memory(make, aggregation, seed):
    chance = random.Random(seed)
    kb, rules = random_graph(chance), random_rules(chance, aggregation)
    with make(kb) as engine:
        ranker = StoredRanker(rules, store(kb, engine), aggregation=aggregation)
        twin = RuleRanker.of(rules, kb, aggregation=aggregation)
        check_best(kb, ranker, twin, chance.randint(1, 4), known=chance.random() < 0.3)


@cache
def mine_umls() -> tuple[KnowledgeBase, RuleSet]:
    kb = read_facts(DATA / "kbc" / "umls")
    miner = RuleMiner(max_length=2, constants=False, unary=False, thresholds=False, min_support=10)
    return kb, miner.fit(kb).rules_


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_ranks_of_a_real_graph(aggregation):
    kb, rules = mine_umls()
    with store_facts(DATA / "kbc" / "umls") as stored:
        result = evaluate(rules, stored, split="test", aggregation=aggregation)
    expected = evaluate_ranking(make_twin(rules, kb, aggregation), kb)
    assert result.scores.mrr == pytest.approx(expected.mrr)
    by_name = [
        sorted((scores.names[relation], *rest) for relation, *rest in sort_ranks(scores))
        for scores in (result.scores, expected)
    ]
    assert by_name[0] == by_name[1]


def test_answers_come_with_rules_and_premises():
    chance = random.Random(5)
    kb, rules = random_graph(chance), [*random_rules(chance, "max-plus"), *MORE_RULES]
    with store(kb, Engine()) as stored:
        for query in ("h(e0, X)", "h(X, e1)", "q(?, e2)", "new(X, e1)"):
            for known in (False, True):
                answers, expected = (rank(rules, facts, query, count=3, known=known) for facts in (stored, kb))
                assert list(answers) == list(expected)
                assert answers.premises(2) == expected.premises(2)


def test_a_learner_learns_from_the_stored_facts():
    kb = with_splits(random_graph(random.Random(1)), 1)
    learner = RuleMiner(max_length=2, min_support=1, constants=False, unary=False, thresholds=False)
    with store(kb, Engine()) as stored:
        result = evaluate(learner, stored)
        assert result.queries_of == "test"
        assert sort_ranks(result.scores) == sort_ranks(evaluate(learner, kb).scores)
        assert sort_ranks(evaluate(learner, stored, predicates=["p"]).scores) == sort_ranks(
            evaluate(learner, kb, predicates=["p"]).scores
        )


def test_an_evaluation_that_was_ended_goes_on(tmp_path):
    kb = with_splits(random_graph(random.Random(2)), 2)
    for name, facts in (("train", kb), *kb.splits.items()):
        lines = ["\t".join((head, relation, tail)) for relation, (head, tail) in facts.facts()]
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines) + "\n")
    expected = evaluate_ranking(RuleRanker.of(MORE_RULES, kb), kb)

    def stop(stage, done, total):
        if done == 2:
            raise KeyboardInterrupt

    database = tmp_path / "graph.duckdb"
    with store_facts(tmp_path, database=database) as stored:
        stored.engine.rows_at_once = 1
        with pytest.raises(KeyboardInterrupt):
            StoredRanker(MORE_RULES, stored).evaluate(progress=stop)
    with store_facts(tmp_path, database=database) as stored:
        stored.engine.rows_at_once = 1
        done = len(stored.engine._find_journal("ranking").steps)
        assert done > 10
        scores = StoredRanker(MORE_RULES, stored).evaluate()
        assert scores.mrr == pytest.approx(expected.mrr)
        assert len(stored.engine._find_journal("ranking").steps) > done
        assert StoredRanker(MORE_RULES, stored).evaluate().mrr == scores.mrr
        rank(MORE_RULES, stored, "h(e0, X)")
        assert StoredRanker(MORE_RULES, stored).evaluate().mrr == scores.mrr


def test_what_cannot_be_ranked_in_an_engine_is_refused_with_a_way_out():
    kb = with_splits(random_graph(random.Random(1)), 1)
    with store(kb, Engine()) as stored:
        weighted = parse_rules("0.5 :: h(X, Y) :- p(X, Y). @{weight: 2.0}")
        for call in (lambda: rank(weighted, stored, "h(e0, X)"), lambda: evaluate(weighted, stored)):
            with pytest.raises(DataError, match=r"add up their weights.*read_facts.*max-plus"):
                call()
        assert rank(weighted, stored, "h(e0, X)", aggregation="max") is not None
        with pytest.raises(DataError, match=r"held out at random.*valid, test.*read_facts"):
            evaluate(MORE_RULES, stored, holdout=0.2)
        with pytest.raises(DataError, match=r"not u\(X\); apply lists.*read_facts"):
            rank(parse_rules("u(X) :- p(X, Y)."), stored, "u(X)")
        with pytest.raises(DataError, match=r"u be absent.*read_facts"):
            rank(parse_rules("u(X) :- p(X, Y). h(X, Y) :- q(X, Y), !u(X)."), stored, "h(e0, X)")
        with pytest.raises(DataError, match="no fact of the relations"):
            evaluate(MORE_RULES, stored, predicates=[])
