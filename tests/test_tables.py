"""Data frames and HTML tables: of columns, rule sets and knowledge bases."""

from __future__ import annotations

import sys

import pytest

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.errors import DataError, MissingExtraError
from rulewright.logic import PredicateDeclaration, parse_rules
from rulewright.tables import build_frame, html_table

polars = pytest.importorskip("polars")

RULES = """
0.9 :: p(X) :- q(X, '<b>').  @{support: 9, body: 10, and: [1.5, 2]}
hard !(p(X) & r(X)). @{pca: 0.5}
template p(X) :- ?Q(X) where ?Q in *.
"""


def facts():
    builder = KnowledgeBaseBuilder([PredicateDeclaration("label", ("token",), ("b", "o"))], closed=["next"])
    builder.add("label", ["t1"], value="b")
    builder.add("next", ["a", "b"], truth=False)
    builder.add("age", ["a", 3])
    return builder.build()


def test_a_frame_is_of_the_library_that_was_chosen(monkeypatch):
    assert isinstance(build_frame({"x": [1, 0.5]}, "polars"), polars.DataFrame)
    with pytest.raises(DataError, match="library must be 'pandas', 'polars' or None, got 'arrow'"):
        build_frame({}, "arrow")
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert isinstance(build_frame({"x": [1]}), polars.DataFrame)
    with pytest.raises(MissingExtraError, match="needs pandas: pip install"):
        build_frame({"x": [1]}, "pandas")
    monkeypatch.setitem(sys.modules, "polars", None)
    for library in (None, "polars"):
        with pytest.raises(MissingExtraError, match=r"rulewright\[frames\]"):
            build_frame({"x": [1]}, library)


def test_pandas_comes_first_where_it_is_installed(monkeypatch):
    class FakePandas:
        DataFrame = dict

    monkeypatch.setitem(sys.modules, "pandas", FakePandas)
    assert build_frame({"x": (1, 2)}) == {"x": (1, 2)}


def test_html_is_escaped_and_cut_with_a_count():
    table = html_table(["<a>"], [[f"<{row}>"] for row in range(5)], caption="&", limit=2)
    assert "<th>&lt;a&gt;</th>" in table and "<caption>&amp;</caption>" in table
    assert "&lt;1&gt;" in table and "&lt;2&gt;" not in table and "… and 3 more" in table


def test_a_rule_set_as_a_frame_and_as_html():
    rules = parse_rules(RULES)
    assert rules.to_frame("polars").columns == ["rule", "head", "length", "confidence", "support", "body", "and"]
    table = rules._repr_html_()
    assert "<th>confidence or weight</th><th>rule</th><th>support</th>" in table
    assert "p(X) :- q(X, &#x27;&lt;b&gt;&#x27;)" in table and "<td>0.9</td>" in table
    assert "hard" in table and "template" in table and table.count("<tr>") == 4


def test_facts_as_a_frame():
    kb = facts()
    assert kb.to_frame("label", library="polars").to_dicts() == [{"arg1": "t1", "class": "b"}]
    assert kb.to_frame("next", truth=False, library="polars").to_dicts() == [{"arg1": "a", "arg2": "b"}]
    assert kb.to_frame(library="polars").to_dicts() == [
        {"predicate": "label", "arg1": "t1", "arg2": None, "class": "b"},
        {"predicate": "age", "arg1": "a", "arg2": 3.0, "class": None},
    ]
    triples = [("ann", "parent_of", "bob"), ("bob", "spouse_of", "eve")]
    frame = KnowledgeBase.from_triples(triples).to_frame(library="polars")
    assert frame.columns == ["head", "relation", "tail"] and frame.rows() == triples
    assert KnowledgeBase({}, [], {}).to_frame(library="polars").is_empty()


def test_predicates_as_html():
    table = facts()._repr_html_()
    for column in ("predicate", "types", "facts", "observed false", "classes", "closed"):
        assert f"<th>{column}</th>" in table
    assert "<th>closed</th>" not in KnowledgeBase.from_triples([("a", "p", "b")])._repr_html_()
