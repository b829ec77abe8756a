from __future__ import annotations

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from engine.engines import ENGINES, EXECUTORS
from engine.oracle import NUMBER_TYPE, Oracle, head_for, random_body, random_kb, uses_head
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.data import KnowledgeBase
from rulewright.engine import Engine
from rulewright.errors import DataError, MemoryLimitError, UnknownNameError
from rulewright.logic import (
    Atom,
    Comparison,
    Literal,
    PredicateVariable,
    Symbol,
    Variable,
    parse_rule,
    parse_template,
    variables,
)

SEEDS = st.integers(0, 2**32)
each_engine = pytest.mark.parametrize("make", ENGINES.values(), ids=ENGINES)


def labelled(kb: KnowledgeBase, kinds: dict[Variable, str], batch) -> list[tuple]:
    columns = [
        column.tolist() if kinds[each] == NUMBER_TYPE else kb.domains[kinds[each]].labels_of(column).tolist()
        for each, column in batch.items()
    ]
    return list(zip(*columns, strict=True))


def types_of(kb: KnowledgeBase, body) -> dict[Variable, str]:
    return {
        term: kind
        for literal in body
        if literal.positive and hasattr(literal.unit, "predicate")
        for term, kind in zip(literal.unit.args, kb.predicate(literal.unit.predicate).types, strict=True)
        if isinstance(term, Variable)
    }


RELATIONS = ("p", "q", "h")


def random_graph(chance: random.Random) -> KnowledgeBase:
    facts = [(f"e{chance.randrange(4)}", chance.choice(RELATIONS), f"e{chance.randrange(4)}") for _ in range(12)]
    return KnowledgeBase.from_triples(
        [*((f"e{i}", "p", f"e{i}") for i in range(4)), ("e0", "q", "e1"), ("e0", "h", "e1"), *facts]
    )


def random_rule(chance: random.Random) -> tuple[Atom, list[Literal]]:
    """Return a head and a body over a graph: often a chain, sometimes with constants, negation and comparisons."""
    stops = [Variable(f"V{i}") for i in range(chance.randint(2, 4))]
    pairs = [chance.choice((pair, pair[::-1])) for pair in itertools.pairwise(stops)]
    head = Atom("h", (stops[0], stops[-1]))
    if chance.random() < 0.5:
        terms = [*stops, Symbol("e1"), Symbol("nobody")]
        pairs += [tuple(chance.choices(terms, k=2)) for _ in range(chance.randint(0, 1))]
        head = Atom("h", tuple(chance.choices(stops, k=2)))
    body = [Literal(Atom(chance.choice(RELATIONS), pair)) for pair in pairs]
    if chance.random() < 0.3:
        body.append(Literal(Atom(chance.choice(RELATIONS), tuple(chance.choices([*stops, Symbol("e2")], k=2))), False))
    if chance.random() < 0.3:
        body.append(Literal(Comparison(chance.choice(("=", "!=")), *chance.sample([*stops, Symbol("e0")], k=2))))
    chance.shuffle(body)
    return head, body


@pytest.mark.slow
@pytest.mark.parametrize("count", EXECUTORS.values(), ids=EXECUTORS)
@settings(max_examples=150, deadline=None)
@given(seed=SEEDS)
def test_every_executor_finds_the_groundings_of_the_oracle(count, seed):
    chance = random.Random(seed)
    kb = random_graph(chance)
    head, body = random_rule(chance)
    domain = next(iter(kb.domains.values()))
    expected = Counter(
        tuple(domain.index_of(assignment[term]) for term in head.args) for assignment in Oracle(kb).groundings(body)
    )
    counted = count(kb, head, body)
    assert counted is None or counted == expected


@pytest.mark.slow
@each_engine
@settings(max_examples=250, deadline=None)
@given(seed=SEEDS)
def test_counts_and_bindings_equal_the_oracle(make, seed):
    chance = random.Random(seed)
    kb, body, distinct = random_kb(chance), random_body(chance, atoms=4), chance.random() < 0.3
    oracle = Oracle(kb)
    expected = list(oracle.groundings(body, distinct=distinct))
    with make(kb) as engine:
        assert engine.count(body, distinct=distinct) == len(expected)
        kinds = types_of(kb, body)
        wanted = list(kinds)
        found = [
            row
            for batch in engine.bindings(body, wanted, distinct=distinct, batch_size=7)
            for row in labelled(kb, kinds, batch)
        ]
        if wanted:
            assert Counter(found) == Counter(tuple(each[name] for name in wanted) for each in expected)
            some = wanted[: chance.randint(1, len(wanted))]
            different = {tuple(each[name] for name in some) for each in expected}
            assert engine.count_distinct(body, some, distinct=distinct) == len(different)


@pytest.mark.slow
@each_engine
@settings(max_examples=150, deadline=None)
@given(seed=SEEDS)
def test_support_equals_the_oracle(make, seed):
    chance = random.Random(seed)
    kb, body, circular = random_kb(chance), random_body(chance, atoms=3), chance.random() < 0.5
    head = head_for(chance, body)
    if head is None:
        return
    oracle = Oracle(kb)
    groundings = [each for each in oracle.groundings(body) if circular or not uses_head(oracle, head, body, each)]
    with_head = [
        each
        for each in oracle.groundings([*body, Literal(head)])
        if circular or not uses_head(oracle, head, body, each)
    ]
    of_head = variables(head)
    with make(kb) as engine:
        found = engine.support(head, body, circular=circular)
    assert found.body_groundings == len(groundings)
    assert found.groundings == len(with_head)
    assert found.body_heads == len({tuple(each[name] for name in of_head) for each in groundings})
    assert found.heads == len({tuple(each[name] for name in of_head) for each in with_head})
    assert found.confidence == (len(with_head) / len(groundings) if groundings else 0)


@pytest.mark.slow
@each_engine
@settings(max_examples=60, deadline=None)
@given(seed=SEEDS)
def test_counting_by_predicate_equals_filling_every_predicate_in(make, seed):
    chance = random.Random(seed)
    entities = [f"e{i}" for i in range(5)]
    facts = [(f"r{chance.randrange(3)}", chance.choice(entities), chance.choice(entities)) for _ in range(15)]
    kb = KnowledgeBase.from_facts(facts)
    x, y, z = (Variable(name) for name in "XYZ")
    p, q, h = (PredicateVariable(name) for name in "PQH")
    ends = [(x, y), (y, x)]
    body = [Atom(p, chance.choice(ends)), Atom(q, chance.choice([(y, z), (z, y)]))]
    if chance.random() < 0.5:
        body.append(Atom(h, (x, z)))
    if chance.random() < 0.3:
        body[1] = Atom(p, body[1].args)
    distinct = chance.random() < 0.5
    oracle = Oracle(kb)
    holes = list(dict.fromkeys(atom.predicate for atom in body))
    expected = {}
    for names in itertools.product(kb.predicates, repeat=len(holes)):
        number = sum(1 for _ in oracle.groundings(body, distinct=distinct, fill=dict(zip(holes, names, strict=True))))
        if number:
            expected[names] = number
    with make(kb) as engine:
        found = engine.count_by_predicate(body, distinct=distinct)
    names = list(kb.predicates)
    keys = zip(*(found[str(hole)].tolist() for hole in holes), strict=True)
    assert {tuple(names[i] for i in key): n for key, n in zip(keys, found["n"].tolist(), strict=True)} == expected


@pytest.fixture
def family() -> KnowledgeBase:
    return KnowledgeBase.from_facts(
        [("parent_of", "ann", "bob"), ("parent_of", "bob", "cid"), ("age", "ann", 60), ("age", "bob", 30)]
    )


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("p(X) :- parent_off(X, Y).", "unknown predicate 'parent_off'; did you mean 'parent_of'?"),
        ("p(X) :- parent_of(X).", "parent_of has 2 arguments, got parent_of(X)"),
        ("p(X) :- age(X, N), parent_of(N, X).", "N has type number elsewhere and type entity in parent_of(N, X)"),
        ("p(X) :- parent_of(X, Y), X < Y.", "< compares numbers, and not all of X < Y are"),
        ("p(X) :- age(X, old).", "old in age(X, old) must be a number"),
        ("p(X) :- parent_of(X, 3).", "3 in parent_of(X, 3) must be an entity; quote a name that looks like a number"),
        ("p(X) :- parent_of(X, Y) in {a}.", "parent_of is not multi-class: parent_of(X, Y) in {a}"),
    ],
)
def test_bodies_that_do_not_fit_the_facts_are_refused(family, rule, message):
    with Engine(family) as engine, pytest.raises((DataError, UnknownNameError)) as caught:
        engine.count(parse_rule(rule).body)
    assert str(caught.value) == message


def test_disjunctions_are_not_conjunctive(family):
    with Engine(family) as engine, pytest.raises(DataError, match="a conjunctive body has"):
        engine.count(parse_rule("p(X) :- parent_of(X, Y) ; parent_of(Y, X).").body)


def test_predicate_variables_must_be_fillable(family):
    body = parse_template("template s(X) :- ?P(X, Y, Z) where ?P in *.").body
    with Engine(family) as engine, pytest.raises(DataError, match=r"no predicate has 3 entities"):
        engine.count_by_predicate(body)


def test_an_unknown_constant_matches_nothing(family):
    with Engine(family) as engine:
        assert engine.count(parse_rule("p(X) :- parent_of(X, nobody).").body) == 0
        assert engine.count(parse_rule("p(X) :- parent_of(X, Y), Y != nobody.").body) == 2


def test_a_file_holds_the_tables(family, tmp_path):
    with Engine(family, path=tmp_path / "facts.duckdb") as engine:
        assert engine.count(parse_rule("p(X) :- parent_of(X, Y).").body) == 2
    assert (tmp_path / "facts.duckdb").stat().st_size > 0


def test_bad_settings_are_reported(family, tmp_path):
    with pytest.raises(DataError, match="memory_limit must be bytes or a text such as"):
        Engine(family, memory_limit="a lot")
    with pytest.raises(DataError, match="cannot start DuckDB"):
        Engine(family, path=tmp_path / "missing" / "facts.duckdb")


def dense_graph(size: int) -> KnowledgeBase:
    return KnowledgeBase.from_triples((f"e{i}", "r", f"e{j}") for i in range(size) for j in range(size))


def test_large_results_stream_within_the_memory_limit():
    kb = dense_graph(130)
    body = parse_rule("p(X, Z) :- r(X, Y), r(Y, Z).").body
    with Engine(kb, memory_limit="60MB", threads=1) as engine:
        rows = 0
        for batch in engine.bindings(body, batch_size=50_000):
            rows += len(next(iter(batch.values())))
            assert all(isinstance(column, np.ndarray) and len(column) <= 50_000 for column in batch.values())
        assert rows == 130**3


def test_work_that_does_not_fit_says_so():
    body = parse_rule("p(X, Z) :- r(X, Y), r(Y, Z), r(Z, U).").body
    with Engine(dense_graph(60), memory_limit="1MB", threads=1) as engine, pytest.raises(MemoryLimitError) as caught:
        engine.count_distinct(body, [Variable(each) for each in "XYZU"])
    assert "raise memory_limit" in str(caught.value)
