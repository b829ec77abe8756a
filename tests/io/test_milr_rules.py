import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rulewright.errors import FileError, ParseError, RulewrightError
from rulewright.io.mined_rules import parse_milr, read_milr
from rulewright.logic import Chain, Step

DATA = Path(os.environ.get("RULEWRIGHT_DATA") or Path(__file__).parents[2].parent / "shared" / "data")
needs_data = pytest.mark.skipif(
    not (DATA / "dwie").is_dir(), reason="needs the DWIE and DocRED rules: set RULEWRIGHT_DATA to the data folder"
)

names = st.text("abcxyz0189_-", min_size=1, max_size=8).filter(lambda name: not name.startswith("anti_"))
steps = st.builds(Step, names, st.booleans())


def chains(rules):
    return [Chain.of(rule) for rule in rules.rules]


def test_mined_and_gold_lines_may_stand_together():
    rules = parse_milr("""
        ['head_of_state'] -> citizen_of : 0.5
        ["in0", 'anti_gpe0'] -> in0-x : 1.0

        12 ['~played_by', 'character_in'] plays_in
        ['vs'] won_vs
        ['a']->b:1e-1
    """)
    assert chains(rules) == [
        Chain("citizen_of", (Step("head_of_state"),)),
        Chain("in0-x", (Step("in0"), Step("gpe0", inverse=True))),
        Chain("plays_in", (Step("played_by", inverse=True), Step("character_in"))),
        Chain("won_vs", (Step("vs"),)),
        Chain("b", (Step("a"),)),
    ]
    assert [rule.confidence for rule in rules.rules] == [0.5, 1.0, 1.0, 1.0, 0.1]


def test_an_inverse_head_mirrors_the_rule():
    rules = parse_milr("['a', 'anti_b'] -> anti_c : 0.5")
    assert chains(rules) == [Chain("c", (Step("b"), Step("a", inverse=True)))]


@pytest.mark.slow
@given(st.lists(st.tuples(st.lists(steps, min_size=1, max_size=4), names, st.floats(0, 1)), min_size=1))
def test_what_is_written_is_read(rules):
    def line(body, head, confidence):
        return f"{[('anti_' if step.inverse else '') + step.relation for step in body]} -> {head} : {confidence}"

    read = parse_milr("\n".join(line(*rule) for rule in rules))
    assert chains(read) == [Chain(head, tuple(body)) for body, head, _ in rules]
    assert [rule.confidence for rule in read.rules] == [confidence for *_, confidence in rules]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("['a'] -> b : 1.5", "a confidence must be a number in [0, 1], got '1.5'"),
        ("['a'] -> b : nan", "got 'nan'"),
        ("['a'] -> b : high", "got 'high'"),
        ("['a'] -> b : 0.5 : 0.6", "expected ['a', 'anti_b'] -> c : 0.98"),
        ("['a'] -> b 0.5", "expected"),
        ("['a'] -> : 0.5", "expected"),
        ("[] -> b : 0.5", "expected"),
        ("['a', ''] -> b : 0.5", "expected"),
        ("[a] -> b : 0.5", "expected"),
        ("['a' 'b'] -> c : 0.5", "expected"),
        ("[__import__('os').getcwd()] -> b : 0.5", "expected"),
        ("['anti_'] -> b : 0.5", "'anti_' names no relation"),
        ("1 ['~'] b", "'~' names no relation"),
        ("x" * 1000, "…"),
    ],
)
def test_a_bad_line_is_reported_by_its_number(line, message):
    with pytest.raises(ParseError) as caught:
        parse_milr(f"['a'] -> b : 0.5\n\n{line}\n", file="mined.txt")
    assert str(caught.value).startswith("mined.txt:3: ")
    assert message in str(caught.value)
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("content", [b"", b"\n\n", b"\x89PNG\x00\x00", b"['caf\xe9'] -> b : 1.0"])
def test_files_that_hold_no_rules(tmp_path, content):
    path = tmp_path / "mined.txt"
    path.write_bytes(content)
    with pytest.raises(ParseError, match=r"mined\.txt"):
        read_milr(path)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileError):
        read_milr(tmp_path / "none.txt")


@given(st.text() | st.text("[]'\"anti_~->: 0.19\n", max_size=40))
def test_any_text_is_rules_or_an_error_of_ours(text):
    try:
        parse_milr(text)
    except RulewrightError as error:
        assert "\n" not in str(error)


@needs_data
@pytest.mark.parametrize(
    ("file", "count"),
    [
        ("dwie/milr_mined_rules_dwie.txt", 90),
        ("docred_meta/milr_mined_rules_docred.txt", 168),
        ("dwie/dwie.grules.txt", 39),
    ],
)
def test_published_rules(file, count):
    rules = read_milr(DATA / file)
    assert len(rules.rules) == len({rule.canonical() for rule in rules.rules}) == count
    assert None not in chains(rules)


@needs_data
def test_gold_rules_say_the_same_as_their_numbers():
    relations = [*json.loads((DATA / "dwie/rel2id.json").read_text())][1:]

    def step(number):
        return Step(relations[number % 65], inverse=number >= 65)

    numbered = json.loads((DATA / "dwie/dwie.grules.json").read_text())
    gold = read_milr(DATA / "dwie/dwie.grules.txt")
    assert chains(gold) == [Chain(relations[head], tuple(map(step, body))) for head, body in numbered]
