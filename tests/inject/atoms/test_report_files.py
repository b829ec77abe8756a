"""Reports of what rules changed: they come back as they were written, and a bad file says what is wrong with it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import names

from rulewright.errors import ParseError, RulewrightError
from rulewright.inject.atoms.reports import (
    InjectionReport,
    Reason,
    ReportedBreak,
    ReportedChange,
    read_reports,
    write_reports,
)
from rulewright.logic import parse_formula

texts = names.filter(lambda name: not any("\ud800" <= character <= "\udfff" for character in name))
reasons = st.builds(Reason, texts, texts, st.none() | st.floats(-9, 9))
changes = st.builds(
    ReportedChange,
    texts,
    st.lists(texts, min_size=1, max_size=3).map(tuple),
    st.floats(0, 1),
    st.floats(0, 1),
    st.lists(reasons, max_size=2).map(tuple),
    st.none() | texts,
)
breaks = st.builds(ReportedBreak, texts, st.integers(1, 9), st.floats(0, 9), texts, st.none() | st.floats(0, 9))
reports = st.builds(
    InjectionReport,
    texts,
    st.sampled_from(["decoder", "layer"]),
    texts,
    st.lists(changes, max_size=3).map(tuple),
    broken=st.lists(breaks, max_size=2).map(tuple),
)


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(reports, max_size=3))
def test_reports_come_back(tmp_path_factory, found):
    path = tmp_path_factory.mktemp("reports") / "report.json"
    write_reports(found, path)
    assert read_reports(path) == tuple(found)
    for change in (change for report in found for change in report.changes):
        parse_formula(change.atom)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "must be an object"),
        ({"title": "a"}, "has no 'kind'"),
        ({"title": "a", "kind": "other", "changes": []}, "must be 'decoder' or 'layer'"),
        ({"title": "a", "kind": "layer", "changes": [{"predicate": "p"}]}, "has no 'before'"),
        ({"title": "a", "kind": "layer", "changes": [{"predicate": "p", "before": 2}]}, "a probability in [0, 1]"),
        (
            [{"title": "a", "kind": "layer", "changes": [{"predicate": "p", "args": [1], "before": 0, "after": 1}]}],
            "must be a string",
        ),
    ],
)
def test_a_bad_file_says_where(tmp_path, value, message):
    (tmp_path / "a.json").write_text(json.dumps(value))
    with pytest.raises(RulewrightError) as caught:
        read_reports(tmp_path / "a.json")
    assert message in str(caught.value) and "a.json" in str(caught.value)


def test_a_file_that_is_no_json(tmp_path):
    (tmp_path / "a.json").write_text("[")
    with pytest.raises(ParseError):
        read_reports(tmp_path / "a.json")
