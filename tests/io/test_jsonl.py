"""JSON lines keep everything that a knowledge base or a rule set can hold."""

from __future__ import annotations

import json

import pytest
from fact_strategies import contents, knowledge_bases
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from strategies import rule_sets

from rulewright import read_facts, read_rules, write_facts
from rulewright.errors import ParseError, RulewrightError
from rulewright.io import holds_rules, jsonl, write_rules
from rulewright.logic import RuleSet, parse_rules


def writable(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


@pytest.mark.slow
@settings(max_examples=60)
@given(knowledge_bases())
def test_facts_come_back(tmp_path_factory, kb):
    path = tmp_path_factory.mktemp("facts") / "a.jsonl"
    assume(writable(repr(contents(kb))) and "\\ud" not in repr(contents(kb)))
    write_facts(kb, path)
    assert contents(jsonl.read(path)) == contents(kb)
    assert all(isinstance(json.loads(line), dict) for line in path.read_text(encoding="utf-8").split("\n") if line)


@pytest.mark.slow
@settings(max_examples=60)
@given(rule_sets())
def test_rules_come_back(tmp_path_factory, rules):
    path = tmp_path_factory.mktemp("rules") / "a.jsonl"
    assume("\\ud" not in repr([*rules.statements, *rules.predicates, rules.closed]))
    write_rules(rules, path)
    assert jsonl.read_rules(path) == rules


def test_the_format_is_found(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"predicate": "p", "args": ["a", 1]}\n')
    (tmp_path / "b.jsonl").write_text('{"closed": "p"}\n\n{"confidence": 0.5, "rule": "p(X) :- q(X)"}\n')
    assert not holds_rules(tmp_path / "a.jsonl")
    assert holds_rules(tmp_path / "b.jsonl")
    assert read_facts(tmp_path / "a.jsonl").tuples("p") == [("a", 1.0)]
    assert read_rules(tmp_path / "b.jsonl") == parse_rules("closed p. 0.5 :: p(X) :- q(X).")


def test_what_apply_prints_is_read():
    kb = jsonl.parse('{"predicate": "p", "args": ["a", "b"], "score": 0.5, "rules": [1]}')
    assert kb.tuples("p") == [("a", "b")]


def test_an_empty_set_is_empty():
    assert jsonl.parse_rules("") == RuleSet()
    assert jsonl.parse("\n").n_facts == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nothing", "not JSON"),
        ("[1]", "must be an object"),
        ("{}", "an object with one of predicate"),
        ('{"predicate": "p"}', "has no 'args'"),
        ('{"predicate": "p", "args": []}', "p has 1 arguments, got 0"),
        ('{"predicate": "p", "args": [true]}', "must be a name or a number, got true"),
        ('{"predicate": "p", "args": [[]]}', "must be a name or a number, got a list"),
        ('{"predicate": "p", "args": [NaN]}', "NaN is no JSON number"),
        ('{"predicate": "p", "args": [12345678901234567891]}', "has no exact value"),
        ('{"predicate": "p", "args": ["a"], "truth": "no"}', "must be true or false"),
        ('{"predicate": "p", "args": ["a"], "truht": false}', "a fact has no 'truht'"),
        ('{"predicate": "p", "args": ["a", "b"]}', "p has 1 arguments, got 2"),
        ('{"predicate": "p", "args": ["a"], "split": ""}', "a split needs a name"),
        ('{"predicate": "p\\n", "args": ["a"], "class": "b"}', "has classes; declare them first"),
        ('{"declare": "q", "types": "person"}', "must be a list of strings"),
    ],
)
def test_a_bad_fact_is_reported_by_its_line(line, message):
    with pytest.raises(ParseError) as caught:
        jsonl.parse('{"predicate": "p", "args": ["c"]}\n\n' + line, file="a.jsonl")
    assert str(caught.value).startswith("a.jsonl:3: ") or str(caught.value).startswith("a.jsonl:3:")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"rule": "p(X) :- q(Y)."}', "head variable X is not bound"),
        ('{"rule": "p(X)"}', "a rule needs ':-'"),
        ('{"rule": "p(X) :- q(X).", "confidence": 2}', "confidence must lie in [0, 1], got 2"),
        ('{"rule": "p(X) :- q(X).", "confidence": "high"}', "must be a number"),
        ('{"rule": "p(X) :- q(X).", "annotations": {"a": null}}', "an annotation is"),
        ('{"formula": "p(X)"}', "has no 'weight'"),
        ('{"formula": "p(X)", "weight": "soft"}', 'must be a number, "hard" or "learn"'),
        ('{"predicate": "p", "args": ["a"]}', "an object with one of rule"),
    ],
)
def test_a_bad_rule_is_reported_by_its_line(line, message):
    with pytest.raises(ParseError) as caught:
        jsonl.parse_rules(line, file="a.jsonl")
    assert str(caught.value).startswith("a.jsonl:1:")
    assert message in str(caught.value)


@given(st.text() | st.text('{}[]":,rulepdicatsg01\n', max_size=60))
def test_any_text_is_read_or_an_error_of_ours(text):
    for parse in (jsonl.parse, jsonl.parse_rules):
        try:
            parse(text)
        except RulewrightError as error:
            assert "\n" not in str(error)
