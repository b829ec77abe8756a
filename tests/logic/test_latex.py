"""Statements as LaTeX: what TeX takes for commands is escape, and a typesetter reads the result."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import HOSTILE_NAMES, statements

from rulewright.logic import RuleSet, parse_formula, parse_rule, parse_rules, parse_statement
from rulewright.logic.latex import escape, latex

SPECIAL = {
    r"\textbackslash{}": "\\",
    r"\textasciicircum{}": "^",
    r"\textasciitilde{}": "~",
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textbar{}": "|",
    r"\textquotedbl{}": '"',
    r"\textquotesingle{}": "'",
    r"\textasciigrave{}": "`",
}


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("p(X, 'New York')", r"\mathrm{p}(X, \text{\textquotesingle{}New York\textquotesingle{}})"),
        ("p(X) & !q(X, 3) => r(X)", r"\mathrm{p}(X) \land \lnot \mathrm{q}(X, 3) \rightarrow \mathrm{r}(X)"),
        ("(p(X) | q(X)) & r(X)", r"(\mathrm{p}(X) \lor \mathrm{q}(X)) \land \mathrm{r}(X)"),
        ("A <= 1e-07", r"A \leq 1 \cdot 10^{-7}"),
        ("label(T1) in {a, b}", r"\mathrm{label}(T_{1}) \in \{\mathrm{a}, \mathrm{b}\}"),
    ],
)
def test_formulas(text, written):
    assert latex(parse_formula(text)) == written


def test_statements_and_sets():
    rule = parse_rule("0.5 :: p(X_1) :- q(X_1), r(X1, _).")
    assert latex(rule) == (
        r"0.5 :: \mathrm{p}(\mathit{X\_1}) \leftarrow \mathrm{q}(\mathit{X\_1}) \land \mathrm{r}(X_{1}, \mathit{\_1})"
    )
    assert latex(parse_statement("hard p(X).")) == r"\text{hard} :\; \mathrm{p}(X)"
    rules = parse_rules("p(X) :- q(X). 2 p(X). template p(X) :- ?Q(X) where ?Q in *.")
    assert latex(rules) == (
        "\\begin{align*}\n\\mathrm{p}(X) &\\leftarrow \\mathrm{q}(X) \\\\\n2 &:\\; \\mathrm{p}(X) \\\\\n"
        "\\mathrm{p}(X) &\\leftarrow \\mathbf{Q}(X),\\; \\mathbf{Q} \\in \\text{any}\n\\end{align*}\n"
    )
    assert latex(RuleSet()) == ""


@given(st.sampled_from(HOSTILE_NAMES) | st.text())
def test_escapes_can_be_undone_and_hold_no_command_of_the_name(text):
    pattern = "|".join([*map(re.escape, SPECIAL), r"\\[#$%&_{}]"])
    found = re.sub(pattern, lambda match: SPECIAL.get(match[0], match[0][1:]), escape(text))
    assert found == text
    assert not re.search(r"[\\#$%&_{}^~]", re.sub(pattern, "", escape(text)))


@pytest.mark.slow
@settings(max_examples=60)
@given(statements)
def test_braces_balance_and_no_line_is_broken(statement):
    written = re.sub(r"\\[{}]", "", latex(statement))
    depth = 0
    for character in written:
        depth += {"{": 1, "}": -1}.get(character, 0)
        assert depth >= 0
    assert depth == 0
    assert "\n" not in written


@pytest.mark.slow
def test_a_typesetter_reads_it():
    mathtext = pytest.importorskip("matplotlib.mathtext", reason="needs the extra viz")
    rule = parse_rule("0.9 :: parent_of(X, Z) :- spouse_of(X, Y1), !parent_of(Y1, ab), A != 2, age(X, A), p(Z).")
    mathtext.MathTextParser("path").parse(f"${latex(rule)}$".replace(r"\land", r"\wedge").replace(r"\lnot", r"\neg"))
