"""The rule language: what each construct means."""

from __future__ import annotations

from pathlib import Path

import pytest

from rulewright.errors import ParseError
from rulewright.files import read_text
from rulewright.logic import (
    And,
    Atom,
    Comparison,
    Formula,
    Iff,
    Implies,
    Membership,
    Not,
    Number,
    Or,
    PredicateDeclaration,
    PredicateVariable,
    Rule,
    Symbol,
    Template,
    Term,
    Variable,
    WeightedFormula,
    as_rules,
    parse_atom,
    parse_formula,
    parse_rule,
    parse_rules,
    parse_statement,
    variables,
)

EXAMPLES = """\
predicate spouse_of(person, person).              % optional types
predicate label(token) in {'B-PER', 'E-PER', o}.  % multi-class, classes in order
closed friend.                                    % closed world; otherwise open in the layer
0.99 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z). @{support: 120, body: 121, pca: 0.99, coverage: 0.2}
2.5 smoke(X) & friend(X, Y) => smoke(Y).          % a weighted formula; weights may be negative
learn smoke(X) => cancer(X).                      % its weight is to be learned
hard !(male(X) & female(X)).
hard label(T) in {'B-PER'} & next(T, U) => label(U) in {'E-PER'}.
0.8 :: person(X) :- wearing(X, Y), shirt(Y) ; walking_on(X, Z), street(Z).
0.9 :: older(X, Y) :- age(X, A), age(Y, B), A > B.
template s(X, Z) :- ?P(X, Y), ?Q(Y, Z) ; ?O(X, Z) where ?P in {a, b}, ?Q in {c}, ?O in *.
"""

X, Y, Z = Variable("X"), Variable("Y"), Variable("Z")


def atom(predicate: str, *args: str) -> Atom:
    """Read upper-case letters as variables and anything else as symbols."""
    return Atom(predicate, tuple(Variable(arg) if arg[0].isupper() else Symbol(arg) for arg in args))


P, Q, R, S = (atom(name, "X") for name in "pqrs")


class TestExamples:
    def test_declarations(self) -> None:
        rules = parse_rules(EXAMPLES)
        assert rules.predicates == (
            PredicateDeclaration("spouse_of", ("person", "person")),
            PredicateDeclaration("label", ("token",), ("B-PER", "E-PER", "o")),
        )
        assert rules.closed == ("friend",)
        assert rules.arities["walking_on"] == 2

    def test_rules(self) -> None:
        parent, person, older = parse_rules(EXAMPLES).rules
        assert parent.head == atom("parent_of", "X", "Z")
        assert parent.body == (atom("spouse_of", "X", "Y"), atom("parent_of", "Y", "Z"))
        assert (parent.confidence, parent.support) == (0.99, 120)
        assert parent.annotations == {"support": 120, "body": 121, "pca": 0.99, "coverage": 0.2}
        one = And((atom("wearing", "X", "Y"), atom("shirt", "Y")))
        other = And((atom("walking_on", "X", "Z"), atom("street", "Z")))
        assert person.body == (Or((one, other)),)
        assert older.body[-1] == Comparison(">", Variable("A"), Variable("B"))

    def test_propositions(self) -> None:
        rain, wet = Atom("rain"), Atom("wet")
        assert parse_formula("rain => wet") == Implies(rain, wet)
        assert parse_rule("0.9 :: wet :- rain, !'Is covered'.") == Rule(wet, (rain, Not(Atom("Is covered"))), 0.9)
        rules = parse_rules("predicate rain. predicate weather in {sun, rain}. hard weather in {sun} => !rain.")
        assert rules.predicates == (PredicateDeclaration("rain"), PredicateDeclaration("weather", (), ("sun", "rain")))
        assert rules.arities == {"rain": 0, "weather": 0}
        assert parse_rules(str(rules)) == rules
        assert parse_atom("rain.") == rain and str(rain) == "rain"

    def test_a_name_beside_a_comparison_is_a_symbol(self) -> None:
        formula = parse_formula("ann = X | rain & X != bob")
        assert isinstance(formula, Or)
        assert formula.parts[0] == Comparison("=", Symbol("ann"), X)
        assert formula.parts[1] == And((Atom("rain"), Comparison("!=", X, Symbol("bob"))))

    def test_formulas(self) -> None:
        soft, learn, exclusive, labels = parse_rules(EXAMPLES).formulas
        premise = And((atom("smoke", "X"), atom("friend", "X", "Y")))
        assert soft == WeightedFormula(Implies(premise, atom("smoke", "Y")), "soft", 2.5)
        assert learn == WeightedFormula(Implies(atom("smoke", "X"), atom("cancer", "X")), "learn")
        assert exclusive == WeightedFormula(Not(And((atom("male", "X"), atom("female", "X")))), "hard")
        begins, ends = (Membership(atom("label", name), (f"{name}-PER",)) for name in "BE")
        token, following = Variable("T"), Variable("U")
        assert labels.formula == Implies(
            And((Membership(Atom("label", (token,)), begins.classes), Atom("next", (token, following)))),
            Membership(Atom("label", (following,)), ends.classes),
        )

    def test_template(self) -> None:
        (template,) = parse_rules(EXAMPLES).templates
        p, q, o = map(PredicateVariable, "PQO")
        assert template == Template(
            atom("s", "X", "Z"),
            (Or((And((Atom(p, (X, Y)), Atom(q, (Y, Z)))), Atom(o, (X, Z)))),),
            ((p, ("a", "b")), (q, ("c",)), (o, None)),
        )
        assert template.holes() == {p: 2, q: 2, o: 2}

    def test_weights(self) -> None:
        assert [each.weight for each in parse_rules("-2.5 p(X). 0 p(X). 3e-2 p(X).").formulas] == [-2.5, 0, 0.03]

    def test_absent_confidence_is_one(self) -> None:
        assert parse_rule("p(X) :- q(X).").confidence == 1

    def test_membership_as_head_and_in_a_body(self) -> None:
        rule = parse_rule("label(X) in {a, b} :- label(X) in {c}, !(kind(X) in {'D', e}).")
        assert rule.head == Membership(atom("label", "X"), ("a", "b"))
        assert rule.body == (Membership(atom("label", "X"), ("c",)), Not(Membership(atom("kind", "X"), ("D", "e"))))

    def test_unquoted_membership_under_not(self) -> None:
        assert parse_formula("!p(X) in {a, b}") == Not(Membership(P, ("a", "b")))

    @pytest.mark.parametrize("operator", ["<", "<=", ">", ">=", "=", "!="])
    @pytest.mark.parametrize("gap", ["", " "])
    def test_comparisons(self, operator: str, gap: str) -> None:
        for right in ("Y", "-3", "0.5", "ann", "'It'"):
            text = f"X{gap}{operator}{gap}{right}"
            found = parse_formula(text)
            assert isinstance(found, Comparison)
            assert (found.operator, found.left) == (operator, X)
            for connective in ("=>", "<=>", "&", "|"):
                parse_formula(f"p(X) & {text}{gap}{connective}{gap}q(X)")

    def test_annotations(self) -> None:
        notes = parse_rule(
            "p(X) :- q(X). @{and: [1.4, 1.5, 1.5], 'or else': {deep: [[], {}]}, ok: true, no: false, "
            "as_text: 'true', word: fine, n:-1, m: -2e3, 'in': 1, empty: ''}"
        ).annotations
        assert notes == {
            "and": (1.4, 1.5, 1.5),
            "or else": {"deep": ((), {})},
            "ok": True,
            "no": False,
            "as_text": "true",
            "word": "fine",
            "n": -1,
            "m": -2000.0,
            "in": 1,
            "empty": "",
        }
        assert notes["ok"] is True
        assert isinstance(notes["n"], int)
        assert parse_rule("p(X) :- q(X). @{}").annotations == {}

    def test_annotations_of_formulas_and_templates(self) -> None:
        rules = parse_rules(
            "2 p(X). @{n: 1}\nhard p(X).@\n".replace(".@", ". @ {n: 2}") + "template p(X) :- p(X). @{n: 3}"
        )
        assert [each.annotations["n"] for each in rules] == [1, 2, 3]


class TestPrecedence:
    @pytest.mark.parametrize(
        ("text", "formula"),
        [
            ("!p(X) & q(X)", And((Not(P), Q))),
            ("!!p(X)", Not(Not(P))),
            ("p(X) & q(X) | r(X) & s(X)", Or((And((P, Q)), And((R, S))))),
            ("p(X) & q(X) & r(X)", And((P, Q, R))),
            ("(p(X) & q(X)) & r(X)", And((And((P, Q)), R))),
            ("p(X) & (q(X) & r(X))", And((P, And((Q, R))))),
            ("p(X) | q(X) => r(X)", Implies(Or((P, Q)), R)),
            ("p(X) => q(X) => r(X)", Implies(P, Implies(Q, R))),
            ("(p(X) => q(X)) => r(X)", Implies(Implies(P, Q), R)),
            ("p(X) => q(X) <=> r(X)", Iff(Implies(P, Q), R)),
            ("p(X) <=> q(X) => r(X)", Iff(P, Implies(Q, R))),
            ("p(X) <=> q(X) <=> r(X)", Iff(Iff(P, Q), R)),
            ("p(X) <=> (q(X) <=> r(X))", Iff(P, Iff(Q, R))),
            ("((p(X)))", P),
            ("!(p(X) | q(X))", Not(Or((P, Q)))),
            ("X < 3 => X != 3", Implies(Comparison("<", X, Number(3)), Comparison("!=", X, Number(3)))),
            ("p(X)<=>q(X)", Iff(P, Q)),
            ("p(X)&!q(X)|r(X)=>s(X)", Implies(Or((And((P, Not(Q))), R)), S)),
        ],
    )
    def test_formula(self, text: str, formula: Formula) -> None:
        assert parse_formula(text) == formula
        assert parse_statement(f"hard {text}.") == WeightedFormula(formula, "hard")

    @pytest.mark.parametrize(
        ("text", "body"),
        [
            ("p(X), q(X), r(X)", (P, Q, R)),
            ("p(X), q(X) ; r(X)", (Or((And((P, Q)), R)),)),
            ("p(X) ; q(X), r(X)", (Or((P, And((Q, R)))),)),
            ("p(X), (q(X) ; r(X))", (P, Or((Q, R)))),
            ("(p(X), q(X)), r(X)", (And((P, Q)), R)),
            ("(p(X), q(X))", (And((P, Q)),)),
            ("((p(X)))", (P,)),
            ("p(X), !q(X), !(q(X), r(X))", (P, Not(Q), Not(And((Q, R))))),
            ("p(X), !!q(X)", (P, Not(Not(Q)))),
            ("p(X), 3 < X", (P, Comparison("<", Number(3), X))),
        ],
    )
    def test_body(self, text: str, body: tuple[Formula, ...]) -> None:
        assert parse_rule(f"s(X) :- {text}.") == Rule(S, body)

    def test_a_body_may_start_with_a_negative_number(self) -> None:
        assert parse_rule("s(X):--3 < X, p(X)").body == (Comparison("<", Number(-3), X), P)


class TestTokens:
    @pytest.mark.parametrize(
        ("text", "term"),
        [
            ("X", X),
            ("_x", Variable("_x")),
            ("ann", Symbol("ann")),
            ("annLee_3", Symbol("annLee_3")),
            ("true", Symbol("true")),
            ("'in'", Symbol("in")),
            ("'42'", Symbol("42")),
            ("42", Number(42)),
            ("-42", Number(-42)),
            ("0.5", Number(0.5)),
            ("-1.5E+3", Number(-1500.0)),
            ("007", Number(7)),
            (r"'it\'s \\ \n\t\r\u00e9'", Symbol("it's \\ \n\t\ré")),
            ("''", Symbol("")),
            ("'. % '", Symbol(". % ")),
        ],
    )
    def test_term(self, text: str, term: Term) -> None:
        found = parse_atom(f"p({text})").args[0]
        assert found == term
        assert not isinstance(found, Number) or type(found.value) is type(term.value)  # type: ignore[union-attr]

    def test_quoted_predicates_and_classes(self) -> None:
        rule = parse_rule("'P17'(X, Y) :- 'in0-x'(X, Y), '/location/country'(X) in {'B', c}.")
        assert rule.head == Atom("P17", (X, Y))
        assert rule.body == (Atom("in0-x", (X, Y)), Membership(Atom("/location/country", (X,)), ("B", "c")))

    def test_names_that_start_like_reserved_words(self) -> None:
        assert [each.predicate for each in parse_rule("hardly(X) :- inner(X), learned(X), where_(X).").body] == [
            "inner",
            "learned",
            "where_",
        ]

    def test_anonymous_variables_are_different_and_new(self) -> None:
        rule = parse_rule("p(X) :- q(X, _), r(_, _2, _).")
        assert [each.name for each in variables(And(rule.body))] == ["X", "_1", "_3", "_2", "_4"]

    def test_anonymous_variables_of_two_statements_may_share_names(self) -> None:
        one, other = parse_rules("p(X) :- q(X, _). p(X) :- q(_, X).").rules
        assert (str(one), str(other)) == ("p(X) :- q(X, _1).", "p(X) :- q(_1, X).")

    def test_anonymous_head_variable_is_unbound(self) -> None:
        with pytest.raises(ParseError, match="head variable _1 is not bound"):
            parse_rule("p(_) :- q(_).")

    def test_underscore_in_quotes_is_a_name(self) -> None:
        assert parse_rule("p(X) :- q(X, '_').").body == (Atom("q", (X, Symbol("_"))),)


class TestStops:
    @pytest.mark.parametrize(
        ("text", "count"),
        [
            ("", 0),
            ("  \n\t% only a comment", 0),
            ("%", 0),
            ("hard p(X).", 1),
            ("hard p(X).% comment. hard q(X).\nhard q(X).", 2),
            ("hard p(X). hard q(X).", 2),
            ("hard p(X).\thard q(X).\r\nhard r(X).", 3),
            ("hard X > 3.\nhard X > 3.5.\nhard X > 3.5e2.", 3),
            ("hard p('. ').", 1),
            ("hard p('%').", 1),
            ("hard p('it\\'s. ').", 1),
            ("hard\n  p(X)  % why. not\n  & q(X)\n.\n", 1),
            ("hard p(X). @{n: 3.5, s: '. }'}  hard q(X).", 2),
            ("hard p(X).\n\n% between\n@{n: {m: 1}}\nhard q(X).", 2),
            ("hard p(X). @{n: '%'}% a comment with }\nhard q(X).", 2),
        ],
    )
    def test_statements(self, text: str, count: int) -> None:
        assert len(parse_rules(text)) == count

    def test_number_before_the_stop(self) -> None:
        assert parse_rule("p(X) :- q(X), X > 3.").body[1] == Comparison(">", X, Number(3))
        assert parse_rule("p(X) :- q(X), X > 3.5.").body[1] == Comparison(">", X, Number(3.5))

    def test_stop_may_be_missing_from_one_statement(self) -> None:
        rule = Rule(P, (Q,))
        for text in (
            "p(X) :- q(X)",
            "p(X) :- q(X).",
            " p(X) :- q(X) .\n",
            "p(X) :- q(X) % c",
            "p(X) :- q(X). % c",
            "%\np(X) :- q(X)",
        ):
            assert parse_rule(text) == rule

    def test_formula_and_atom_with_space_comment_and_stop(self) -> None:
        for text in ("p(X)", "p(X).", "\n p(X) . % c", "% c\np(X)"):
            assert parse_formula(text) == P
            assert parse_atom(text) == P

    def test_windows_line_ends_and_byte_order_mark(self, tmp_path: Path) -> None:
        expected = parse_rules(EXAMPLES)
        windows = EXAMPLES.replace("\n", "\r\n")
        assert parse_rules(windows) == expected
        assert parse_rules("\ufeff" + EXAMPLES) == expected
        for encoding in ("utf-8", "utf-8-sig", "utf-16"):
            (tmp_path / "some.rules").write_bytes(windows.encode(encoding))
            assert parse_rules(read_text(tmp_path / "some.rules")) == expected

    def test_place_in_a_windows_file(self) -> None:
        with pytest.raises(ParseError, match=r"^a\.rules:2:6: found ':', expected ':-' or 'in'"):
            parse_rules("\ufeffp(X) :- q(X).\r\nq(X) : p(X).\r\n", file="a.rules")


def test_a_list_of_texts_keeps_its_declarations() -> None:
    rules = as_rules(["predicate p(a) in {b, c}. closed q.", "hard p(X) in {b} => q(X).", parse_rule("q(X) :- r(X)")])
    assert rules == parse_rules("predicate p(a) in {b, c}. closed q. hard p(X) in {b} => q(X). q(X) :- r(X).")
