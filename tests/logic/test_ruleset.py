"""Rule sets: what is done with them, and how they are saved."""

from __future__ import annotations

import gzip
import math
import stat
from pathlib import Path

import pytest
import strategies
from hypothesis import given, settings

from rulewright.errors import DataError, FileError
from rulewright.logic import (
    Atom,
    Membership,
    PredicateDeclaration,
    Rule,
    RuleSet,
    Template,
    Variable,
    WeightedFormula,
    parse_rules,
    parse_statement,
)
from rulewright.logic.ruleset import Usage

X, Y = Variable("X"), Variable("Y")
P, Q = Atom("p", (X,)), Atom("q", (X,))

RULES = parse_rules("""
predicate person(thing).
predicate label(token) in {b, o}.
closed friend.
0.9 :: child_of(X, Y) :- parent_of(Y, X).  @{support: 9, pca: 0.5}
2.5 smoke(X) & friend(X, Y) => smoke(Y).   @{support: 99}
0.7 :: spouse_of(X, Y) :- spouse_of(Y, X). @{support: 14}
template s(X) :- ?P(X) where ?P in *.
0.8 :: child_of(X, Y) :- son_of(X, Y) ; daughter_of(X, Y).
hard !(male(X) & female(X)).
""")


def confidences(rules: RuleSet) -> list[float]:
    return [rule.confidence for rule in rules.rules]


class TestRuleSet:
    def test_parts(self) -> None:
        assert [type(each) for each in RULES] == [Rule, WeightedFormula, Rule, Template, Rule, WeightedFormula]
        assert (len(RULES), len(RULES.rules), len(RULES.formulas), len(RULES.templates)) == (6, 3, 2, 1)
        assert repr(RULES) == "RuleSet(3 rules, 2 formulas, 1 templates)"
        assert (len(RuleSet()), repr(RuleSet()), str(RuleSet())) == (0, "RuleSet()", "")
        assert RULES.arities["child_of"] == 2
        assert RULES.arities["person"] == 1

    def test_index_and_slice(self) -> None:
        assert RULES[0] is RULES.statements[0]
        assert RULES[-1] == RULES.formulas[-1]
        assert RULES[:2].statements == RULES.statements[:2]
        assert (RULES[1:3].predicates, RULES[1:3].closed) == (RULES.predicates, RULES.closed)
        assert RULES[:] == RULES
        with pytest.raises(IndexError):
            RULES[6]

    def test_filter(self) -> None:
        assert confidences(RULES.filter(min_confidence=0.8)) == [0.9, 0.8]
        assert len(RULES.filter(min_confidence=0.8).formulas) == 2
        assert confidences(RULES.filter(min_support=10)) == [0.7]
        assert confidences(RULES.filter(head="child_of")) == [0.9, 0.8]
        assert len(RULES.filter(head="child_of")) == 2
        assert confidences(RULES.filter(head="child_of", min_support=1)) == [0.9]
        assert RULES.filter(lambda statement: isinstance(statement, Template)).templates == RULES.templates
        assert RULES.filter() == RULES
        assert RULES.filter(head="nothing").predicates == RULES.predicates

    def test_sort(self) -> None:
        assert confidences(RULES.sort()) == [0.9, 0.8, 0.7]
        assert confidences(RULES.sort(descending=False)) == [0.7, 0.8, 0.9]
        by_support = RULES.sort("support")
        assert [each.annotations.get("support") for each in by_support] == [99, 14, 9, None, None, None]
        assert by_support.statements[3:] == tuple(each for each in RULES if "support" not in each.annotations)
        ascending = RULES.sort("support", descending=False)
        assert [each.annotations.get("support") for each in ascending] == [9, 14, 99, None, None, None]
        assert RULES.sort(lambda statement: len(str(statement)), descending=False)[0] == RULES.formulas[-1]

    def test_by_head(self) -> None:
        groups = RULES.by_head()
        assert list(groups) == ["child_of", "spouse_of"]
        assert [rule for group in groups.values() for rule in group.rules] == [RULES[0], RULES[4], RULES[2]]
        assert groups["child_of"].predicates == RULES.predicates

    def test_merge(self) -> None:
        other = parse_rules("""
            predicate animal(thing).
            closed friend. closed foe.
            0.1 :: child_of(A, B) :- parent_of(B, A).
            0.2 :: child_of(X, Y) :- daughter_of(X, Y) ; son_of(X, Y).
            0.3 :: child_of(X, Y) :- parent_of(X, Y).
            2.5 smoke(X) & friend(X, Y) => smoke(Y). @{support: 99}
            2.5 smoke(X) & friend(X, Y) => smoke(Y). @{support: 98}
        """)
        merged = RULES.merge(other)
        assert merged.statements[:6] == RULES.statements
        assert merged.statements[6:] == (other.rules[2], other.formulas[1])
        assert [each.name for each in merged.predicates] == ["person", "label", "animal"]
        assert merged.closed == ("friend", "foe")
        assert RULES.merge() == RULES
        assert RULES.merge(RULES, RULES) == RULES
        with pytest.raises(DataError, match="one arity"):
            RULES.merge(parse_rules("p(X) :- child_of(X)."))
        with pytest.raises(DataError, match="declared twice"):
            RULES.merge(parse_rules("predicate person(animal)."))

    def test_columns(self) -> None:
        assert RULES.columns() == {
            "rule": [
                "0.9 :: child_of(X, Y) :- parent_of(Y, X)",
                "0.7 :: spouse_of(X, Y) :- spouse_of(Y, X)",
                "0.8 :: child_of(X, Y) :- son_of(X, Y) ; daughter_of(X, Y)",
            ],
            "head": ["child_of", "spouse_of", "child_of"],
            "length": [1, 1, 2],
            "confidence": [0.9, 0.7, 0.8],
            "support": [9, 14, None],
            "pca": [0.5, None, None],
        }
        assert RuleSet().columns() == {"rule": [], "head": [], "length": [], "confidence": []}

    def test_columns_with_hostile_names(self) -> None:
        rules = parse_rules("p(X) :- '. @{'(X). @{rule: 1, '@rule': 2, head: 3}")
        columns = rules.columns()
        assert columns["rule"] == ["p(X) :- '. @{'(X)"]
        assert (columns["@rule"], columns["@@rule"], columns["@head"]) == ([1], [2], [3])

    @pytest.mark.slow
    @settings(max_examples=50)
    @given(strategies.rule_sets())
    def test_subsets_and_columns_of_any_set(self, rules: RuleSet) -> None:
        assert sum(len(group) for group in rules.by_head().values()) == len(rules.rules)
        assert sorted(map(str, rules.sort())) == sorted(map(str, rules))
        assert rules.merge(rules) == rules.merge()
        lengths = {len(column) for column in rules.columns().values()}
        assert lengths == {len(rules.rules)}
        assert rules[::-1][::-1] == rules

    def test_equality_and_hash(self) -> None:
        again = parse_rules(str(RULES))
        assert again == RULES
        assert hash(again) == hash(RULES)
        assert RULES[1:] != RULES
        assert RuleSet(RULES, predicates=RULES.predicates) != RULES
        assert RuleSet(RULES, closed=RULES.closed) != RULES
        assert RULES.statements != RULES

    def test_closed_names_are_kept_once(self) -> None:
        assert RuleSet(closed=["p", "q", "p"]).closed == ("p", "q")

    def test_declarations_may_be_repeated_but_not_changed(self) -> None:
        declaration = PredicateDeclaration("p", ("a",))
        assert RuleSet(predicates=[declaration, declaration]).predicates == (declaration,)
        with pytest.raises(DataError, match="declared twice"):
            RuleSet(predicates=[declaration, PredicateDeclaration("p", ("b",))])

    def test_contradicting_use_is_refused(self) -> None:
        with pytest.raises(DataError, match="p has 1 arguments elsewhere and 2 here"):
            RuleSet([Rule(P, (Q,)), Rule(Q, (Atom("p", (X, X)),))])
        with pytest.raises(DataError, match="multi-class"):
            RuleSet([Rule(Membership(P, ("a",)), (Q,)), Rule(Q, (P,))])


class TestUsage:
    """Readers of other formats take up declarations and statements in the order of their file."""

    @pytest.mark.parametrize(
        ("used", "declared", "words"),
        [
            ("hard p(X).", "predicate p(a, b).", "one arity"),
            ("hard p(X).", "predicate p(a) in {b, c}.", "is declared multi-class but was used above without 'in"),
            ("hard p(X) in {b}.", "predicate p(a).", "is declared not multi-class but was used above with 'in"),
        ],
    )
    def test_a_declaration_after_a_use_that_contradicts_it(self, used: str, declared: str, words: str) -> None:
        usage = Usage()
        usage.add(parse_statement(used))
        (declaration,) = parse_rules(declared).predicates
        with pytest.raises(DataError, match=words):
            usage.declare(declaration)
        assert not usage.declared


class TestSave:
    def test_replaces_the_file_in_one_step(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "some.rules"
        RULES[:1].save(path)
        path.chmod(0o640)
        before = path.read_bytes()

        def fail(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(Path, "replace", fail)
            with pytest.raises(FileError, match=r"cannot write .*some\.rules: No space left on device"):
                RULES.save(path)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]
        RULES.save(path)
        assert parse_rules(path.read_text(encoding="utf-8")) == RULES
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert list(tmp_path.iterdir()) == [path]

    def test_compressed_and_the_same_every_time(self, tmp_path: Path) -> None:
        for name in ("a.rules.gz", "b.rules.gz"):
            RULES.save(tmp_path / name)
        assert (tmp_path / "a.rules.gz").read_bytes() == (tmp_path / "b.rules.gz").read_bytes()
        assert gzip.decompress((tmp_path / "a.rules.gz").read_bytes()).decode() == str(RULES)

    def test_standard_output(self, capsys: pytest.CaptureFixture[str]) -> None:
        RULES.save("-")
        assert capsys.readouterr().out == str(RULES)

    def test_missing_folder(self, tmp_path: Path) -> None:
        with pytest.raises(FileError, match="cannot write"):
            RULES.save(tmp_path / "missing" / "some.rules")


class TestWithWeights:
    def test_in_order(self) -> None:
        changed = RULES.with_weights([1.5, 0.25, None, None, 0.0, math.inf], confidences=[0.4, *[None] * 5])
        assert [str(statement).split(" @{")[0] for statement in changed][:2] == [
            "0.4 :: child_of(X, Y) :- parent_of(Y, X).",
            "0.25 smoke(X) & friend(X, Y) => smoke(Y).",
        ]
        assert changed[0].annotations == {"support": 9, "pca": 0.5, "weight": 1.5}
        assert changed[4].annotations["weight"] == 0.0
        assert changed.statements[2:4] + changed.statements[5:] == RULES.statements[2:4] + RULES.statements[5:]
        assert parse_rules(str(changed)) == changed
        assert (changed.predicates, changed.closed, changed.numbers) == (RULES.predicates, RULES.closed, RULES.numbers)

    def test_one_number(self) -> None:
        changed = RULES.with_weights(2, confidences=0.5)
        assert [rule.annotations["weight"] for rule in changed.rules] == [2.0] * 3
        assert confidences(changed) == [0.5] * 3
        assert [(formula.kind, formula.weight) for formula in changed.formulas] == [("soft", 2.0), ("hard", None)]
        assert changed.templates == RULES.templates

    def test_by_statement_or_text(self) -> None:
        weights = {
            RULES[0]: 1.5,
            "0.1 :: spouse_of(A, B) :- spouse_of(B, A).": 2.5,
            "smoke(X) & friend(X, Y) => smoke(Y)": 3.5,
            "hard !(male(X) & female(X)).": 4.5,
        }
        changed = RULES.with_weights(weights)
        assert [rule.annotations.get("weight") for rule in changed.rules] == [1.5, 2.5, None]
        assert [(formula.kind, formula.weight) for formula in changed.formulas] == [("soft", 3.5), ("soft", 4.5)]
        assert RULES.with_weights(None) == RULES
        assert parse_rules("learn p(X).").with_weights([1]).formulas[0].weight == 1.0

    @pytest.mark.parametrize(
        ("weights", "confidences", "message"),
        [
            ([1.0], None, "weights must be 6 numbers, one for each statement, got 1"),
            ({"p(X) :- q(X).": 1}, None, r"weights names a statement that is not in the rule set: p\(X\) :- q\(X\)\."),
            ({"p(X :- q(X).": 1}, None, "found ':-'"),
            ([math.inf, *[None] * 5], None, "a rule has no infinite weight; write it as a hard formula"),
            ([math.nan, *[None] * 5], None, "an annotation"),
            ([None, None, None, 1, None, None], None, "a template has no weight"),
            (None, [None, 0.5, *[None] * 4], "only rules have a confidence"),
            (None, {RULES[0]: 1.5}, r"confidence must lie in \[0, 1\], got 1.5"),
        ],
    )
    def test_errors(self, weights: object, confidences: object, message: str) -> None:
        with pytest.raises(DataError, match=message):
            RULES.with_weights(weights, confidences=confidences)
