"""Values: what they accept, that they keep what they are given, and that a rule binds its variables."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from itertools import product
from typing import Any

import numpy as np
import pytest
import strategies
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.errors import DataError, ParseError
from rulewright.logic import (
    And,
    Annotations,
    Atom,
    Comparison,
    Formula,
    Literal,
    Membership,
    Not,
    Number,
    Or,
    PredicateDeclaration,
    PredicateVariable,
    Rule,
    RuleSet,
    Variable,
    WeightedFormula,
    parse_formula,
    parse_rule,
    parse_rules,
    variables,
)

X, Y = Variable("X"), Variable("Y")
P, Q = Atom("p", (X,)), Atom("q", (X,))


class TestValues:
    @pytest.mark.slow
    @settings(max_examples=50)
    @given(strategies.rule_sets())
    def test_survive_pickle_and_copy(self, rules: RuleSet) -> None:
        for protocol in (2, pickle.HIGHEST_PROTOCOL):
            assert pickle.loads(pickle.dumps(rules, protocol)) == rules
        assert copy.deepcopy(rules) == rules
        for statement in rules:
            found = pickle.loads(pickle.dumps(statement))
            assert found == statement
            assert hash(found) == hash(statement)
            assert repr(found) == repr(statement)

    @pytest.mark.parametrize(
        "value",
        [
            X,
            PredicateVariable("P"),
            Number(1.5),
            Membership(P, ("a",)),
            Comparison("<", X, Y),
            Literal(P, False),
            Or((P, Not(Q))),
            PredicateDeclaration("p", ("a",), ("b", "c")),
            Annotations({"a": [1, {"b": True}]}),
        ],
        ids=str,
    )
    def test_each_kind_survives_pickle(self, value: object) -> None:
        assert pickle.loads(pickle.dumps(value)) == value

    def test_errors_survive_pickle(self) -> None:
        with pytest.raises(ParseError) as caught:
            parse_rules("p(X) : q(X).", file="a.rules")
        error = pickle.loads(pickle.dumps(caught.value))
        assert type(error) is ParseError
        assert (str(error), error.message) == (str(caught.value), caught.value.message)
        assert (error.file, error.line, error.column) == ("a.rules", 1, 6)

    def test_are_immutable(self) -> None:
        rule = parse_rule("p(X) :- q(X). @{a: [1]}")
        with pytest.raises(FrozenInstanceError):
            rule.confidence = 0.5  # type: ignore[misc]
        with pytest.raises(TypeError):
            rule.annotations["a"] = 1  # type: ignore[index]
        original: dict[str, Any] = {"a": [1, 2]}
        annotations = Annotations(original)
        original["a"].append(3)
        original["b"] = 1
        assert annotations == {"a": (1, 2)}

    def test_annotated(self) -> None:
        rule = parse_rule("0.5 :: p(X) :- q(X). @{a: 1, b: 2}")
        assert str(rule.annotated(b=3, c="d")) == "0.5 :: p(X) :- q(X). @{a: 1, b: 3, c: d}"
        assert rule.support is None
        assert rule.annotated(support=True).support is None

    @pytest.mark.parametrize(
        ("given_value", "stored"),
        [
            (np.float64(0.1), 0.1),
            (np.float32(0.5), 0.5),
            (np.int64(3), 3),
            (np.bool_(True), True),
            (np.str_("a"), "a"),
            (np.array([1.5, 2]), (1.5, 2.0)),
            (np.array(1.5), 1.5),
            (torch.tensor(2), 2),
            (torch.tensor([1, 2]), (1, 2)),
            ({"a": np.float64(1)}, {"a": 1.0}),
        ],
    )
    def test_numbers_of_other_libraries_are_stored_as_plain_ones(self, given_value: object, stored: object) -> None:
        rule = Rule(P, (Q,), annotations=Annotations({"key": given_value}))
        assert rule.annotations["key"] == stored
        assert type(rule.annotations["key"]) is (Annotations if isinstance(stored, dict) else type(stored))
        assert parse_rule(str(rule)) == rule

    def test_confidence_weight_and_number_of_other_libraries(self) -> None:
        rule = Rule(P, (Q, Comparison("<", X, Number(np.int32(3)))), np.float64(0.25))
        assert str(rule) == "0.25 :: p(X) :- q(X), X < 3."
        assert str(WeightedFormula(P, "soft", np.float32(1.5))) == "1.5 p(X)."
        assert str(WeightedFormula(P, "soft", torch.tensor(-2.0))) == "-2.0 p(X)."  # type: ignore[arg-type]

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), 10**400, True, "1", None, [1.0], np.array([1.0])])
    def test_what_is_no_finite_number_is_refused(self, value: Any) -> None:
        with pytest.raises(DataError, match="a number must"):
            Number(value)
        with pytest.raises(DataError, match="confidence must"):
            Rule(P, (Q,), value)
        if value is not None:
            with pytest.raises(DataError, match="a weight"):
                WeightedFormula(P, "soft", value)

    @pytest.mark.parametrize("value", [float("nan"), float("-inf"), 10**400, None, object(), {1}, [None]])
    def test_what_is_no_annotation_is_refused(self, value: object) -> None:
        with pytest.raises(DataError, match="an annotation"):
            Annotations({"a": value})

    def test_impossible_values_are_refused(self) -> None:
        for make, words in (
            (lambda: Variable("x"), "variable names"),
            (lambda: Variable("_"), "variable names"),
            (lambda: Variable("X\n"), "variable names"),
            (lambda: PredicateVariable("p"), "predicate variables"),
            (lambda: Membership(P, ()), "at least one"),
            (lambda: Comparison("==", X, Y), "comparisons are"),  # type: ignore[arg-type]
            (lambda: And((P,)), "at least two"),
            (lambda: Or(()), "at least two"),
            (lambda: Rule(P, ()), "needs a body"),
            (lambda: Rule(P, (Q,), 1.5), r"\[0, 1\]"),
            (lambda: Rule(P, (Q, parse_formula("p(X) => q(X)"))), "a rule's body has"),
            (lambda: Rule(P, (Q, Not(parse_formula("p(X) <=> q(X)")))), "a rule's body has"),
            (lambda: WeightedFormula(P, "soft"), "a soft formula has a weight"),
            (lambda: WeightedFormula(P, "hard", 1.0), "no other kind"),
            (lambda: WeightedFormula(P, "firm"), "kind must be"),  # type: ignore[arg-type]
            (lambda: Atom(PredicateVariable("P"), ()), r"\?P needs at least one argument"),
        ):
            with pytest.raises(DataError, match=words):
                make()


few_units = st.one_of(
    strategies.small_atoms({"p": 1, "q": 2}, (X, Y)),
    st.builds(Comparison, st.just("<"), st.sampled_from((X, Y)), st.sampled_from((X, Y))),
    st.sampled_from((X, Y)).map(lambda variable: Membership(Atom("label", (variable,)), ("a",))),
)
few_parts = st.recursive(
    few_units,
    lambda inner: st.one_of(
        inner.map(Not),
        st.lists(inner, min_size=2, max_size=3).map(tuple).map(And),
        st.lists(inner, min_size=2, max_size=3).map(tuple).map(Or),
    ),
    max_leaves=8,
)


def ways(formula: Formula, wanted: bool = True) -> Iterator[list[tuple[Formula, bool]]]:
    """Yield every way to make a formula true (or false): units, each with the truth it is given."""
    match formula:
        case Not(inner):
            yield from ways(inner, not wanted)
        case And(parts) | Or(parts):
            if isinstance(formula, And) == wanted:
                for chosen in product(*(list(ways(part, wanted)) for part in parts)):
                    yield [unit for way in chosen for unit in way]
            else:
                for part in parts:
                    yield from ways(part, wanted)
        case _:
            yield [(formula, wanted)]


def binds(way: list[tuple[Formula, bool]], head: Atom) -> bool:
    bound = {term for unit, wanted in way if wanted and not isinstance(unit, Comparison) for term in variables(unit)}
    return all(variable in bound for unit in (head, *(unit for unit, _ in way)) for variable in variables(unit))


class TestBodies:
    @pytest.mark.slow
    @given(st.lists(few_parts, min_size=1, max_size=3), st.sampled_from((X, Y)))
    def test_variables_must_be_bound_in_every_alternative(self, parts: list[Formula], head_variable: Variable) -> None:
        head = Atom("h", (head_variable,))
        alternatives = list(ways(And((*parts, parts[0]))))
        try:
            Rule(head, tuple(parts))
        except DataError as error:
            assert "bound" in str(error) or "occurs only" in str(error)
            assert not all(binds(way, head) for way in alternatives)
        else:
            assert all(binds(way, head) for way in alternatives)

    @pytest.mark.slow
    @given(st.lists(few_parts, min_size=1, max_size=3))
    def test_alternatives_are_all_ways_to_make_the_body_true(self, parts: list[Formula]) -> None:
        rule = Rule(Atom("h", (X,)), (Atom("bound", (X, Y)), *parts))
        expected = [[]]
        for part in rule.body:
            expected = [left + right for left in expected for right in ways(part)]
        found = [
            [
                (each.unit.opposite(), False)
                if isinstance(each.unit, Comparison) and each.unit.operator == ">="
                else (each.unit, each.positive)
                for each in alternative
            ]
            for alternative in rule.alternatives()
        ]
        assert found == expected
