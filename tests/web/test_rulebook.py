"""Working on a rule file: nothing a person wrote is lost, and what is saved is what was meant."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import rule_sets

from rulewright import read_rules
from rulewright.errors import DataError, FileError, ParseError, RulewrightError
from rulewright.logic import RuleSet, parse_rule, parse_rules
from rulewright.web.rulebook import Rulebook

TEXT = """% my family
predicate parent_of(person, person).
closed friend.

0.9 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z). @{support: 9, body: 10}   % a good one
hard !(male(X) &
       female(X)).
%off 0.2 :: spouse_of(X, Y) :-
%off     friend(X, Y).
%off this is just a remark
p(X) :- q(X). r(X) :- q(X).
"""


def book_of(folder, text=TEXT):
    (folder / "a.rules").write_text(text, encoding="utf-8")
    return Rulebook(folder / "a.rules")


def test_what_is_read(tmp_path):
    book = book_of(tmp_path)
    assert [entry.is_enabled for entry in book.entries] == [True, True, False, True, True]
    text = TEXT.replace("%off this is just a remark\n", "")
    book = book_of(tmp_path, text)
    assert [entry.is_enabled for entry in book.entries] == [True, True, False, True, True]
    assert book.entries[0].text == "0.9 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z)."
    assert book.enabled_rules() == parse_rules(text)
    assert not book.is_changed


def test_saving_without_a_change_changes_nothing_but_keeps_a_version(tmp_path):
    book = book_of(tmp_path)
    assert book.save() == tmp_path / "a.rules.1"
    assert (tmp_path / "a.rules").read_text() == (tmp_path / "a.rules.1").read_text() == TEXT
    book.set_enabled(0, False)
    book.save()
    text = (tmp_path / "a.rules").read_text()
    assert "%off 0.9 :: parent_of(X, Z)" in text and text.count("% a good one\n") == 1
    again = Rulebook(tmp_path / "a.rules")
    again.save()
    assert (tmp_path / "a.rules").read_text() == text
    again.set_enabled(0, True)
    again.save()
    assert (tmp_path / "a.rules").read_text() == TEXT


def test_edits_keep_comments_and_what_was_not_touched(tmp_path):
    book = book_of(tmp_path)
    book.edit(0, "0.8 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z)")
    book.set_enabled(1, False)
    book.set_enabled(2, False)
    book.add("s(X) :- q(X)")
    assert book.is_changed
    book.save()
    text = (tmp_path / "a.rules").read_text()
    assert "% my family\n" in text and "% a good one\n" in text and "%off this is just a remark" in text
    assert "@{support" not in text, "counts of another rule say nothing of this one"
    assert "%off hard !(male(X) &\n%off        female(X))." in text
    again = Rulebook(tmp_path / "a.rules")
    assert again.enabled_rules() == book.enabled_rules() == read_rules(tmp_path / "a.rules")
    assert [(entry.statement, entry.is_enabled) for entry in again.entries if not entry.is_enabled] == [
        (entry.statement, entry.is_enabled) for entry in book.entries if not entry.is_enabled
    ]
    again.set_enabled(next(entry.key for entry in again.entries if "male" in entry.text), True)
    again.save()
    assert "\nhard !(male(X) &\n       female(X))." in (tmp_path / "a.rules").read_text()
    assert (tmp_path / "a.rules.2").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p(X) :- q(X", "found the end of the text"),
        ("p(X, Y) :- q(X), q(Y).", "one name has one arity"),
        ("p(X) :- q(Y).", "head variable X is not bound"),
        ("", "expected a rule"),
        ("p(X) :- q(X). p(X) :- r(X).", "got 2 statements"),
        ("predicate p(person).", "expected a rule"),
    ],
)
def test_a_text_that_cannot_be_read_changes_nothing(tmp_path, text, message):
    book = book_of(tmp_path)
    before = book.entries
    for work in (lambda: book.edit(2, text), lambda: book.add(text), lambda: book.check(text)):
        with pytest.raises(DataError) as caught:
            work()
        assert message in str(caught.value)
    assert book.entries == before
    assert not book.is_changed


def test_a_rule_that_contradicts_others_cannot_be_switched_on(tmp_path):
    book = book_of(tmp_path, "p(X) :- q(X).\n%off p(X, Y) :- r(X, Y).\n")
    with pytest.raises(DataError, match="one name has one arity"):
        book.set_enabled(1, True)
    assert not book.entries[1].is_enabled


def test_a_file_that_changes_on_disk_is_left_alone(tmp_path):
    book = book_of(tmp_path)
    book.set_enabled(0, False)
    assert not book.is_stale
    (tmp_path / "a.rules").write_text("theirs(X) :- q(X).\n")
    assert book.differs_on_disk() and book.is_stale
    with pytest.raises(FileError, match="has changed on disk"):
        book.save()
    assert (tmp_path / "a.rules").read_text() == "theirs(X) :- q(X).\n"
    old = book.save(overwrite=True)
    assert old.read_text() == "theirs(X) :- q(X).\n"
    assert not book.differs_on_disk() and not book.is_stale
    (tmp_path / "a.rules").unlink()
    assert book.differs_on_disk()
    with pytest.raises(FileError):
        book.reload()


def test_reloading(tmp_path):
    book = book_of(tmp_path)
    version = book.version
    book.set_enabled(0, False)
    book.reload()
    assert book.entries[0].is_enabled and not book.is_changed and book.version > version


def test_other_formats_are_shown_and_not_written(tmp_path):
    (tmp_path / "a.mln").write_text("P(t)\nQ(t)\n1.5 P(x) => Q(x)\n")
    book = Rulebook(tmp_path / "a.mln")
    assert len(book.entries) == 1 and not book.is_editable
    with pytest.raises(DataError, match="not in the rule language"):
        book.save()


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ParseError, match=r"a\.rules:1:"):
        book_of(tmp_path, "p(X) : q(X).")
    with pytest.raises(RulewrightError, match="unknown rule"):
        book_of(tmp_path).get_entry(99)


COMMENTS = st.sampled_from(["", "\n", "  ", "% a remark\n", " % p(X) :- q(X).\n", "\n\n%off nothing to read\n"])


@pytest.mark.slow
@settings(max_examples=30)
@given(rule_sets(), st.data())
def test_any_work_on_any_file_comes_back(tmp_path_factory, rules, data):
    folder = tmp_path_factory.mktemp("book")
    parts = []
    for line in str(rules).splitlines():
        parts += [line, "\n", data.draw(COMMENTS)]
    book = book_of(folder, "".join(parts))
    assert book.enabled_rules() == rules
    added = parse_rule("new_one(X) :- other_one(X, 'a\\nb').")
    for _ in range(data.draw(st.integers(0, 6))):
        if not book.entries or data.draw(st.integers(0, 4)) == 0:
            book.add(str(added))
        else:
            key = data.draw(st.integers(0, len(book.entries) - 1))
            book.set_enabled(key, not book.get_entry(key).is_enabled)
    book.save()
    again = Rulebook(folder / "a.rules")
    assert again.enabled_rules() == book.enabled_rules() == read_rules(folder / "a.rules")
    assert sorted(str(entry.statement) for entry in again.entries if not entry.is_enabled) == sorted(
        str(entry.statement) for entry in book.entries if not entry.is_enabled
    )


def test_an_empty_file(tmp_path):
    book = book_of(tmp_path, "% nothing yet\n")
    assert book.enabled_rules() == RuleSet()
    book.add("p(X) :- q(X)")
    book.save()
    assert (tmp_path / "a.rules").read_text() == "% nothing yet\np(X) :- q(X).\n"
