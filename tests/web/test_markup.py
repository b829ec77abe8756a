"""Hostile names stay text: in HTML, in pictures and in addresses."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import HOSTILE_NAMES, names, rules

from rulewright.logic import parse_rule
from rulewright.web.lookup import Neighbour, Neighbourhood, RelationGroup
from rulewright.web.markup import bar_html, logic_html, name_html, neighbourhood_picture, rule_picture, shown

pytestmark = pytest.mark.slow

ATTACKS = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "javascript:alert(1)",
    "{{constructor.constructor('alert(1)')()}}",
    "</svg><script>alert(1)</script>",
    "&lt;b&gt;",
    "\u202egnp.exe",
    "a\u2066b\u2069",
)
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]")
anything = st.sampled_from(ATTACKS + HOSTILE_NAMES) | names


class _Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.attributes, self.text = set(), set(), []

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attributes}

    def handle_data(self, data):
        self.text.append(data)


def parsed(html):
    parser = _Tags()
    parser.feed(html)
    parser.close()
    return parser


@given(anything)
def test_a_name_is_text_and_nothing_else(name):
    found = parsed(name_html(name, 10_000))
    assert found.tags == {"bdi"} and not found.attributes
    assert "".join(found.text) == shown(name, 10_000)
    assert not HIDDEN.search(shown(name))


@settings(max_examples=30)
@given(rules)
def test_a_rule_is_text_with_its_parts_marked(rule):
    found = parsed(logic_html(str(rule)))
    assert found.tags <= {"bdi", "span"} and found.attributes <= {"class"}
    assert not HIDDEN.search("".join(found.text))


@settings(max_examples=30)
@given(rules)
@example(parse_rule("a('A\x1f') :- a(X)."))
def test_a_picture_of_any_rule_is_well_formed(rule):
    root = ElementTree.fromstring(rule_picture(rule))
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "title", "defs", "marker", "path", "g", "circle", "rect", "text"}
    variables = {
        term.name for unit in (rule.head,) for term in unit.args if hasattr(term, "name") and term.name.isupper()
    }
    assert all(shown(name)[:5] in "".join(root.itertext()) for name in variables)


@given(anything, anything, st.booleans(), st.none() | st.floats(0, 1))
def test_a_picture_of_any_neighbourhood_is_well_formed(name, relation, outgoing, score):
    group = RelationGroup(relation, outgoing, (Neighbour("entity", name, score),), 5)
    found = Neighbourhood("entity", name, (group,), (), 1, 0)
    root = ElementTree.fromstring(
        neighbourhood_picture(found, lambda type_name, name: "/graph?entity=3", lambda group: "/ask?q=p%28X%29&new=1")
    )
    tags = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert tags <= {"svg", "title", "defs", "marker", "path", "a", "rect", "text", "tspan"}
    links = [element.get("href") for element in root.iter() if element.tag.endswith("}a")]
    assert links == ["/graph?entity=3", "/ask?q=p%28X%29&new=1"]
    dashed = [element for element in root.iter() if element.get("class") == "rw-inferred"]
    assert bool(dashed) == (score is not None)


@pytest.mark.parametrize(
    "text",
    [
        "p(X, Y) :- q(X, Z), r(Z, Y).",
        "p(X, X) :- q(X, a).",
        "p(X) :- q(X, Y), !r(Y), Y != ann.",
        "p(X, Y, Z) :- q(X, Y, Z) ; r(X, Y), r(Y, Z).",
        "p(X, 'New York') :- q(X, Y), q(Y, X), r(X, Y).",
        "p(X) :- label(X) in {a, b}, age(X, 42).",
    ],
)
def test_pictures_name_every_relation(text):
    rule = parse_rule(text)
    drawn = "".join(ElementTree.fromstring(rule_picture(rule)).itertext())
    for literal in (literal for body in rule.alternatives() for literal in body):
        assert getattr(literal.unit, "predicate", "") in drawn


def test_a_bar():
    assert 'style="width:75.00%"' in bar_html(3, 1)
    assert bar_html(0, 0).count("width:0.00%") == 2


def test_propositions_are_drawn() -> None:
    for text in ("wet :- rain, !covered.", "wet :- p(X, Y), rain.", "p(X, X) :- q(X), rain."):
        assert "rain" in rule_picture(parse_rule(text))
