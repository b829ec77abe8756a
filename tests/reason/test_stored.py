"""What was inferred survives in a Parquet file, and an update goes on from it."""

from __future__ import annotations

import random

import pytest
from engine.oracle import PREDICATES, random_kb
from hypothesis import given, settings
from hypothesis import strategies as st
from reason.test_apply import random_rules
from reason.test_update import check_update, random_change, results

from rulewright import apply, read_facts, write_facts
from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, FileError, ParseError
from rulewright.logic import RuleSet, parse_rules
from rulewright.reason.stored import read_inferred, write_inferred

RULES = parse_rules("0.9 :: p(X, Y) :- e(X, Y). 0.5 :: p(X, Y) :- e(Y, X). 0.2 :: p(X, Y) :- p(Y, X).")


def kb() -> KnowledgeBase:
    return KnowledgeBase.from_triples([("a", "e", "b's"), ("b's", "e", "c"), ("c", "e", "a")])


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_what_is_written_is_read_again_and_can_be_updated(seed, tmp_path_factory):
    chance = random.Random(seed)
    rules = RuleSet(random_rules(chance, negation=0.3), predicates=PREDICATES)
    options = {"max_rounds": 1, "aggregation": chance.choice(("max", "max-plus", "noisy-or"))}
    facts = random_kb(chance)
    inferred = apply(rules, facts, **options)
    path = tmp_path_factory.mktemp("stored") / "old.parquet"
    write_inferred(inferred, path)
    again = read_inferred(path, rules)
    assert results(again) == results(inferred)
    for truth in (True, False):
        assert set(again.kb.facts(truth=truth)) == set(inferred.kb.facts(truth=truth))
    check_update(again, random_change(chance, facts, random_kb(chance)), **options)


@pytest.mark.parametrize("max_rounds", [1, None])
def test_a_graph_has_head_relation_and_tail_and_reads_as_its_new_facts(tmp_path, max_rounds):
    inferred = apply(RULES, kb(), max_rounds=max_rounds)
    write_inferred(inferred, tmp_path / "new.parquet")
    again = read_facts(tmp_path / "new.parquet")
    assert sorted(again.tuples("p")) == sorted((*fact.args,) for fact in inferred) and list(again.predicates) == ["p"]
    assert again.notes[-1] == "new.parquet: the new facts of apply; 3 that they were inferred from passed over"
    old = read_inferred(tmp_path / "new.parquet", RULES)
    assert results(old) == results(inferred) and old.rounds == inferred.rounds
    check_update(old, kb().remove([("e", "a", "b's")]), max_rounds=max_rounds)


def test_other_files_and_other_rules_are_refused(tmp_path):
    write_facts(kb(), tmp_path / "graph.parquet")
    with pytest.raises(DataError, match="is a Parquet file, but not one that apply wrote"):
        read_inferred(tmp_path / "graph.parquet", RULES)
    write_inferred(apply(RULES, kb()), tmp_path / "old.parquet")
    with pytest.raises(DataError, match="was inferred by other rules; apply these anew"):
        read_inferred(tmp_path / "old.parquet", parse_rules("p(X, Y) :- e(X, Y)."))
    (tmp_path / "text.parquet").write_text("not a table")
    with pytest.raises(ParseError, match="not a Parquet file"):
        read_inferred(tmp_path / "text.parquet", RULES)
    with pytest.raises(FileError, match="no such file"):
        read_inferred(tmp_path / "none.parquet", RULES)
    with pytest.raises(FileError, match="cannot write"):
        write_inferred(apply(RULES, kb()), tmp_path / "none" / "old.parquet")
    with pytest.raises(DataError, match="standard output"):
        write_inferred(apply(RULES, kb()), "-")
