"""The four-file form: what it means, what it refuses, and the public tasks that come in it."""

from __future__ import annotations

import gzip
import math
import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rulewright.data import KnowledgeBase
from rulewright.errors import FileError, ParseError, RulewrightError
from rulewright.io import facts, mln_folder
from rulewright.logic import PredicateDeclaration, RuleSet, parse_rules

PREDICATES = "friend(person, person)\nAge(person,years)\n\nsmoke( person )\n"
FACTS = "friend(1, Anna)\nfriend(b,1)\n\n!smoke(b)\nAge(Anna, 42)  // a comment\n"
QUERIES = "smoke(1)\n!smoke(only_asked)\n"
RULES = """1.0 !friend(a, b) v friend(b,a)

0.5 !smoke(a) v !friend(a, +w) v smoke(w)
-2 !friend(X, X) v !friend(X,X)
1.0 !smoke(Zoe) v Age(x, 99) v !Age(x, "one hundred")
"""


def folder_with(
    folder: Path,
    *,
    predicates: str | None = PREDICATES,
    facts: str | None = FACTS,
    queries: str | None = QUERIES,
    rules: str | None = RULES,
) -> Path:
    for name, text in (("predicates", predicates), ("facts", facts), ("queries", queries), ("rules", rules)):
        if text is not None:
            (folder / name).write_text(text)
    return folder


def test_the_folder_means_what_it_says(tmp_path: Path) -> None:
    kb = mln_folder.read(folder_with(tmp_path))
    assert list(kb.predicates.values()) == [
        PredicateDeclaration("friend", ("person", "person")),
        PredicateDeclaration("Age", ("person", "years")),
        PredicateDeclaration("smoke", ("person",)),
    ]
    assert kb.tuples("friend") == [("1", "Anna"), ("b", "1")]
    assert kb.tuples("smoke", truth=False) == [("b",)]
    assert kb.tuples("Age") == [("Anna", "42")]
    queries = kb.split("queries")
    assert queries.tuples("smoke") == [("1",)]
    assert queries.tuples("smoke", truth=False) == [("only_asked",)]
    assert kb.domains["person"].labels.tolist() == ["1", "Anna", "b", "only_asked", "Zoe"]
    assert kb.domains["years"].labels.tolist() == ["42", "99", "one hundred"]
    assert facts.parse(facts.to_text(kb)).n_facts == kb.n_facts


def test_the_rules_mean_what_they_say(tmp_path: Path) -> None:
    expected = """
        1.0 !friend(A, B) | friend(B, A).
        0.5 !smoke(A) | !friend(A, W) | smoke(W).
        -2.0 !friend(X, X).
        1.0 !smoke('Zoe') | 'Age'(X, '99') | !'Age'(X, 'one hundred').
    """
    declared = "predicate friend(person, person). predicate 'Age'(person, years). predicate smoke(person)."
    folder = folder_with(tmp_path)
    assert mln_folder.read_rules(folder) == mln_folder.read_rules(folder / "rules") == parse_rules(declared + expected)
    (folder / "predicates").unlink()
    assert mln_folder.read_rules(folder / "rules") == parse_rules(expected)


def test_one_capital_letter_is_a_variable_and_a_longer_name_a_constant(tmp_path: Path) -> None:
    rules = mln_folder.read_rules(folder_with(tmp_path, rules="1 friend(X, x) v friend(Xy, xY)"))
    assert str(rules.formulas[0]) == "1.0 friend(X, X_2) | friend('Xy', XY)."


def test_queries_and_rules_may_be_missing_or_blank(tmp_path: Path) -> None:
    kb = mln_folder.read(folder_with(tmp_path, queries=None, rules=None))
    assert (kb.n_facts, dict(kb.splits)) == (3, {})
    assert mln_folder.read(folder_with(tmp_path, queries="\n", rules=" \n")).n_facts == 3
    assert mln_folder.read(folder_with(tmp_path, facts="")).split("queries").n_facts == 1


def test_compressed_files(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    (folder / "facts.gz").write_bytes(gzip.compress((folder / "facts").read_bytes()))
    (folder / "facts").unlink()
    assert mln_folder.read(folder).n_facts == 3


@pytest.mark.parametrize(
    ("changed", "place", "message"),
    [
        ({"predicates": ""}, "predicates", "no predicates; each stands on a line"),
        ({"predicates": "friend(person, person"}, "predicates:1:22", "found the end of the text, expected ',' or ')'"),
        ({"predicates": "friend person"}, "predicates:1:8", "found 'person', expected '('"),
        ({"predicates": "p(t) q(t)"}, "predicates:1:6", "found 'q', expected the end of the line"),
        ({"predicates": "p()"}, "predicates:1:3", "found ')', expected the name of a type"),
        ({"predicates": "p(t)\np(u)"}, "predicates:2:1", "predicate p is declared twice"),
        ({"predicates": "p(t!)"}, "predicates:1:4", "(exclusive and exhaustive values) is not supported"),
        ({"predicates": "age(t, number)"}, "predicates:1:8", "the type 'number' would make its arguments numbers"),
        ({"facts": "smoke(a)\nsmok(b)"}, "facts:2:1", "unknown predicate 'smok'; did you mean 'smoke'?"),
        ({"facts": "smoke(a)\n\nsmoke(a, b)"}, "facts:3:1", "smoke has 1 arguments, got 2"),
        ({"facts": "smoke(a)\n!smoke(a)"}, "facts:2:1", "contradictory facts: smoke(a) was true above and is false"),
        ({"facts": "smoke(a b)"}, "facts:1:9", "found 'b', expected ',' or ')'"),
        ({"facts": "smoke a"}, "facts:1:7", "found 'a', expected '('"),
        ({"facts": "smoke(a€)"}, "facts:1:8", "found '€', expected ',' or ')'; a name with such a character stands in"),
        ({"facts": "!!smoke(a)"}, "facts:1:2", "found '!', expected an atom"),
        ({"queries": "smoke(a)\nfoe(a, b)"}, "queries:2:1", "unknown predicate 'foe'"),
        ({"queries": "smoke(a)\n!smoke(a)"}, "queries:2:1", "contradictory facts"),
        ({"rules": "1.0 smok(a)"}, "rules:1:5", "unknown predicate 'smok'; did you mean 'smoke'?"),
        ({"rules": "smoke(a)"}, "rules:1:1", "found 'smoke', expected a weight and a clause"),
        ({"rules": "1.0 smoke(a)\n1.0 smoke(a, b)"}, "rules:2:1", "smoke has 1 arguments elsewhere and 2 here"),
        ({"rules": "1.0 smoke(a) => smoke(b)"}, "rules:1:1", "literals joined by 'v', got: smoke(A) => smoke(B)"),
        ({"rules": "1.0 smoke(a) v"}, "rules:1:15", "found the end of the text, expected an atom"),
        ({"rules": "1.0 smoke(a)."}, "rules:1:13", "found '.', expected 'v' or the end of the line"),
        ({"rules": "1e999 smoke(a)"}, "rules:1:1", "must be a finite number, got inf"),
        ({"facts": "", "queries": ""}, "", "neither facts nor queries"),
        ({"facts": "/* open"}, "facts:1:1", "a comment that does not end"),
    ],
)
def test_bad_files_are_refused_with_file_and_line(
    changed: dict[str, str], place: str, message: str, tmp_path: Path
) -> None:
    with pytest.raises(ParseError) as caught:
        mln_folder.read(folder_with(tmp_path, **changed))
    assert message in caught.value.message
    assert str(caught.value).startswith(f"{tmp_path / place}: ")
    assert "\n" not in str(caught.value)


def test_missing_and_blank_files(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="has no file 'predicates'; this form has"):
        mln_folder.read(tmp_path)
    with pytest.raises(FileError, match="has no file 'predicates'"):
        mln_folder.read(tmp_path / "none")
    with pytest.raises(FileError, match="has no file 'rules'"):
        mln_folder.read_rules(tmp_path)
    with pytest.raises(FileError, match="cannot read"):
        mln_folder.read_rules(tmp_path / "rules")
    with pytest.raises(ParseError, match="no rules; each stands on a line"):
        mln_folder.read_rules(folder_with(tmp_path, rules="// none\n"))
    (tmp_path / "facts").write_bytes("smoke(a)\nsmoke(é)".encode("latin-1"))
    with pytest.raises(ParseError, match=r"facts:2: byte 0xe9 is not UTF-8"):
        mln_folder.read(tmp_path)


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,4}|[0-9]{1,3}", fullmatch=True)
TEXTS = st.text(st.characters(exclude_categories=["C"], exclude_characters='"'), max_size=5)


@pytest.mark.slow
@given(st.dictionaries(st.tuples(NAMES | TEXTS, NAMES | TEXTS), st.booleans(), min_size=1))
def test_any_name_may_be_an_argument(pairs: dict[tuple[str, str], bool]) -> None:
    lines = []
    for (one, other), truth in pairs.items():
        written = other if other.isascii() and other.isidentifier() else f'"{other}"'
        lines.append(f"""{"" if truth else "!"}p("{one}",{written})""")
    with tempfile.TemporaryDirectory() as folder:
        kb = mln_folder.read(
            folder_with(Path(folder), predicates="p(t,t)", facts="\n".join(lines), queries="", rules="")
        )
    assert set(kb.tuples("p")) == {pair for pair, truth in pairs.items() if truth}
    assert set(kb.tuples("p", truth=False)) == {pair for pair, truth in pairs.items() if not truth}


PIECES = [
    "smoke",
    "friend",
    "(",
    "a",
    ",",
    ")",
    " ",
    "\n",
    '"',
    "!",
    " v ",
    "1",
    "+",
    "//",
    "/*",
    "=>",
    ".",
    "\x85",
    "é",
]


@given(st.sampled_from(["predicates", "facts", "queries", "rules"]), st.integers(0, 2**32), st.booleans())
def test_damaged_files_raise_nothing_but_our_errors(name: str, seed: int, random_text: bool) -> None:
    chance = random.Random(seed)
    originals = {"predicates": PREDICATES, "facts": FACTS, "queries": QUERIES, "rules": RULES}
    text = list(originals[name])
    if random_text:
        text = chance.choices(PIECES, k=chance.randint(0, 20))
    for _ in range(chance.randint(1, 4)):
        place = chance.randrange(len(text) + 1)
        text[place : place + chance.choice([0, 1, 1, 9])] = chance.choice([[], [chance.choice(PIECES)]])
    with tempfile.TemporaryDirectory() as folder:
        folder_with(Path(folder), **{name: "".join(text)})
        for read in (mln_folder.read, mln_folder.read_rules):
            try:
                found = read(folder)
            except RulewrightError as error:
                assert isinstance(error, ParseError)
                assert "\n" not in str(error)
            else:
                assert not isinstance(found, RuleSet) or parse_rules(str(found)) == found


# The public tasks

DATA = Path(os.environ.get("RULEWRIGHT_DATA") or Path(__file__).parents[2].parent / "shared" / "data") / "mln"
needs_data = pytest.mark.skipif(
    not DATA.is_dir(), reason="needs the public Markov logic tasks; set RULEWRIGHT_DATA to a folder that holds mln/"
)

# entities, true facts, false facts, true queries, false queries, ground atoms, rules
TASKS = {
    "smoke": (14, 20, 45, 14, 49, 224, 5),
    "kinship/S1": (52, 204, 0, 24, 21, 35_256, 22),
    "kinship/S2": (105, 432, 0, 49, 44, 143_535, 22),
    "kinship/S4": (201, 862, 0, 97, 88, 525_615, 22),
    "uw_cse/ai": (303, 731, 0, 35, 4_589, 95_585, 66),
    "uw_cse/graphics": (199, 449, 0, 20, 3_701, 70_705, 66),
    "uw_cse/language": (87, 182, 0, 9, 775, 14_777, 66),
    "cora/S1": (670, 6_724, 4_038, 739, 940, 175_339, 32),
    "cora/S2": (602, 7_983, 588, 1_033, 616, 155_891, 32),
    "cora/S3": (607, 8_461, 9_828, 845, 2_436, 156_041, 32),
}


def ground_atoms(kb: KnowledgeBase) -> int:
    return sum(math.prod(len(kb.domains[kind]) for kind in each.types) for each in kb.predicates.values())


@needs_data
@pytest.mark.parametrize("task", TASKS)
def test_the_public_tasks(task: str) -> None:
    kb, rules = mln_folder.read(DATA / task), mln_folder.read_rules(DATA / task)
    queries = kb.split("queries")
    counts = (kb.n_entities, kb.n_facts, kb.n_false_facts, queries.n_facts, queries.n_false_facts)
    assert (*counts, ground_atoms(kb), len(rules.formulas)) == TASKS[task]
    assert parse_rules(str(rules)) == rules
    again = facts.parse(facts.to_text(kb))
    assert set(again.split("queries").facts(truth=False)) == set(queries.facts(truth=False))
    assert ground_atoms(again) == ground_atoms(kb)
