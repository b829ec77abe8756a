"""What is printed parses back to an equal value, whatever names it holds."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.errors import DataError
from rulewright.files import read_text
from rulewright.logic import (
    And,
    Annotations,
    Atom,
    Comparison,
    Formula,
    Head,
    Iff,
    Implies,
    Literal,
    Membership,
    Not,
    Number,
    Or,
    PredicateDeclaration,
    PredicateVariable,
    Rule,
    RuleSet,
    Statement,
    Symbol,
    Template,
    Term,
    Variable,
    WeightedFormula,
    parse_atom,
    parse_formula,
    parse_rule,
    parse_rules,
    parse_statement,
    parse_template,
    quote,
)
from rulewright.logic.parser import unquote

pytestmark = pytest.mark.slow


@given(strategies.names)
def test_quote(name: str) -> None:
    written = quote(name)
    assert (unquote(written) if written.startswith("'") else written) == name
    assert "\n" not in written


@pytest.mark.parametrize("quoted", [r"'\q'", r"'\u12'", "'\\\n'"])
def test_unknown_escapes_are_refused(quoted: str) -> None:
    with pytest.raises(DataError, match="unknown escape"):
        unquote(quoted)


@given(strategies.terms)
def test_term(term: Term) -> None:
    assert parse_atom(f"p({term})") == Atom("p", (term,))


@given(strategies.atoms)
def test_atom(atom: Atom) -> None:
    assert parse_atom(str(atom)) == atom
    assert parse_atom(f" {atom}.\n") == atom


@given(st.one_of(strategies.memberships, strategies.comparisons, strategies.formulas))
def test_formula(formula: Formula) -> None:
    assert parse_formula(str(formula)) == formula
    assert parse_formula(str(Not(formula))) == Not(formula)


@given(st.one_of(strategies.atoms, strategies.memberships, strategies.comparisons), st.booleans())
def test_literal(unit: Any, positive: bool) -> None:
    assert parse_formula(str(Literal(unit, positive))) == Literal(unit, positive).formula()


@settings(max_examples=50)
@given(strategies.rules)
def test_rule(rule: Rule) -> None:
    assert parse_rule(str(rule)) == rule
    assert parse_statement(str(rule)) == rule


@settings(max_examples=50)
@given(strategies.rules)
def test_canonical_rule(rule: Rule) -> None:
    assert parse_rule(str(rule.canonical())) == rule.canonical()


@settings(max_examples=50)
@given(strategies.templates)
def test_template(template: Template) -> None:
    assert parse_template(str(template)) == template


@settings(max_examples=50)
@given(strategies.weighted_formulas)
def test_weighted_formula(formula: WeightedFormula) -> None:
    assert parse_statement(str(formula)) == formula


@given(strategies.declarations)
def test_declaration(declaration: PredicateDeclaration) -> None:
    assert parse_rules(str(declaration)).predicates == (declaration,)


@given(strategies.annotations)
def test_annotations(annotations: Annotations) -> None:
    x = (Variable("X"),)
    rule = Rule(Atom("p", x), (Atom("q", x),), 0.5, annotations)
    found = parse_rule(str(rule)).annotations
    assert found == annotations
    assert list(found) == list(annotations)
    assert repr(found) == repr(annotations)


@settings(max_examples=50)
@given(strategies.rule_sets())
def test_rule_set(rules: RuleSet) -> None:
    text = str(rules)
    assert parse_rules(text) == rules
    assert str(parse_rules(text)) == text
    assert len(text.splitlines()) == len(rules.predicates) + len(rules.closed) + len(rules)


@settings(max_examples=10)
@given(rules=strategies.rule_sets())
@pytest.mark.parametrize("suffix", [".rules", ".rules.gz"])
def test_saved_rule_set(rules: RuleSet, suffix: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("saved") / f"some{suffix}"
    rules.save(path)
    assert parse_rules(read_text(path)) == rules


class Generator:
    """Plain random statements, much faster than hypothesis; predicates carry their arity in their name."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def name(self) -> str:
        if self.random.random() < 0.3:
            return self.random.choice(strategies.HOSTILE_NAMES)
        alphabet = "ab'\\\n\t.,%(){}@:-XY_0 é名😀\u202e\x07"
        return "".join(self.random.choices(alphabet, k=self.random.randrange(6)))

    def number(self) -> int | float:
        return self.random.choice(
            (self.random.randrange(-99, 99), self.random.uniform(-1, 1), 10 ** self.random.uniform(-300, 300))
        )

    def term(self) -> Term:
        kind = self.random.random()
        if kind < 0.6:
            return Variable(self.random.choice(("X", "Y", "Z", "_1", "_under")))
        return Symbol(self.name()) if kind < 0.85 else Number(self.number())

    def head(self) -> Head:
        arity = self.random.randint(0, 3)
        args = tuple(self.term() for _ in range(arity))
        if self.random.random() < 0.15:
            return Membership(Atom(f"{self.name()}={arity}", args), tuple({self.name(), self.name()}))
        return Atom(f"{self.name()}/{arity}", args)

    def formula(self, depth: int, *, body: bool) -> Formula:
        kind = self.random.randrange(10 if depth else 4)
        if kind == 0:
            return Comparison(self.random.choice(("<", "<=", ">", ">=", "=", "!=")), self.term(), self.term())
        if kind < 4:
            return self.head()
        parts = tuple(self.formula(depth - 1, body=body) for _ in range(self.random.randint(2, 3)))
        if kind < 6:
            return Not(parts[0])
        if kind < 8 or body:
            return And(parts) if kind % 2 else Or(parts)
        return Implies(*parts[:2]) if kind == 8 else Iff(*parts[:2])

    def body(self) -> tuple[Formula, ...]:
        terms = [Variable(name) for name in ("X", "Y", "Z", "_1", "_under")]
        binding = Atom("binding/5", tuple(terms))
        return (*(self.formula(2, body=True) for _ in range(self.random.randrange(3))), binding)

    def annotations(self) -> Annotations:
        if self.random.random() < 0.5:
            return Annotations()
        values = (self.number(), self.name(), True, [self.number(), self.name()], {self.name(): self.number()}, [], {})
        return Annotations({self.name(): value for value in self.random.sample(values, 3)})

    def statement(self) -> Statement:
        kind = self.random.randrange(4)
        if kind == 0:
            weight = self.number()
            formula = self.formula(3, body=False)
            return self.random.choice(
                (
                    WeightedFormula(formula, "soft", weight, self.annotations()),
                    WeightedFormula(formula, "hard", None, self.annotations()),
                    WeightedFormula(formula, "learn", None, self.annotations()),
                )
            )
        if kind == 1:
            hole = PredicateVariable(self.random.choice(("P", "Q", "_")))
            names = self.random.choice((None, (f"{self.name()}/1",)))
            return Template(
                self.head(), (*self.body(), Atom(hole, (self.term(),))), ((hole, names),), self.annotations()
            )
        return Rule(self.head(), self.body(), self.random.choice((1.0, self.random.random())), self.annotations())


def test_ten_thousand_statements(tmp_path: Path) -> None:
    generator = Generator(seed=7)
    rules = RuleSet(generator.statement() for _ in range(10_000))
    text = str(rules)
    assert len(text.splitlines()) == 10_000
    rules.save(tmp_path / "many.rules")
    saved = read_text(tmp_path / "many.rules")
    assert saved == text
    assert parse_rules(saved) == rules
    for statement in rules.statements[:500]:
        assert parse_statement(str(statement)) == statement
