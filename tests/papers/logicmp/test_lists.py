"""Lists are found in the text alone, and what is in one list is mostly of one kind."""

from __future__ import annotations

import pytest
from real_data import DATA, needs_data

from rulewright.io import conll
from rulewright.papers.logicmp.sentences import find_lists, same_list

pytestmark = pytest.mark.slow


def names(text, **options):
    tokens = text.split()
    return [[" ".join(tokens[start:end]) for start, end in spans] for spans in find_lists(tokens, **options)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1. Juventus , 2. Barcelona , 3. Ajax", [["Juventus", "Barcelona", "Ajax"]]),
        ("1. Juventus 2. Barcelona 3. Ajax", [["Juventus", "Barcelona", "Ajax"]]),
        ("fans from Wales , Ireland and France next year", [["Wales", "Ireland", "France"]]),
        (
            "for Ronnie Irani , Allan Mullally , and Darren Gough .",
            [["Ronnie Irani", "Allan Mullally", "Darren Gough"]],
        ),
        ("Scorers : Max 11th , Thon 34th , Wilmots 38th )", [["Max", "Thon", "Wilmots"]]),
        ("Sa ( Ajax ) , Jonk ( PSV ) , van Gastel ( Ajax 2 ) ,", []),
        (
            "Witschge ( Ajax ) , Jonk ( PSV ) , Jean-Paul van der Gastel ( Feyenoord )",
            [["Witschge", "Jonk", "Jean-Paul van der Gastel"], ["Ajax", "PSV", "Feyenoord"]],
        ),
        ("Pauli 4 ( Driller 15th , Trulsen 54th , Springer 67th )", [["Driller", "Trulsen", "Springer"]]),
        ("In Boston , Hill and Jones scored", []),  # the place of a report
        ("Santa Barbara , California , Dole said", []),  # not complete
        ("for Marseille and Monaco , Emon", []),  # nothing follows the last item
        ("Bailey , Johnson and Japan 's Tanaka", []),
        ("Monday , Tuesday and Friday", []),
        ("Rome and Paris", []),
        ("no names , here and there", []),
        ("A", []),
    ],
)
def test_lists(text, expected):
    assert names(text) == expected


def test_shorter_lists_on_request():
    assert names("in Rome and Paris today", min_items=2) == [["Rome", "Paris"]]
    assert find_lists([]) == ()


def test_same_list_joins_different_items_of_one_list():
    tokens = ["by", "Ann", "Lee", ",", "Bob", "and", "Cid", ";", "1.", "Ajax", "2.", "PSV", "3.", "Roda"]
    together = same_list(tokens)
    assert (together == together.T).all() and not together.diagonal().any()
    joined = {(tokens[i], tokens[j]) for i, j in together.nonzero().tolist()}
    assert ("Lee", "Bob") in joined and ("Ann", "Cid") in joined and ("Ajax", "Roda") in joined
    assert ("Ann", "Lee") not in joined and ("Bob", "Ajax") not in joined


@needs_data
def test_what_is_in_one_list_shares_its_category():
    agreeing, both = 0, 0
    for sentence in conll.read(DATA / "conll2003" / "eng.train"):
        categories = [tag[2:] for tag in sentence.tags]
        for first, second in same_list(sentence.tokens).nonzero().tolist():
            if categories[first] and categories[second]:
                both += 1
                agreeing += categories[first] == categories[second]
    assert both > 10_000 and agreeing / both > 0.99
