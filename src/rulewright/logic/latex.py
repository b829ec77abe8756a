r"""Statements as LaTeX, for mathematics mode; only ``\text`` asks for a package, amsmath."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rulewright.logic import rules as r
from rulewright.logic import terms as t
from rulewright.logic.printer import number, quote
from rulewright.logic.ruleset import RuleSet

_TEXT = {
    "\\": r"\textbackslash{}",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "'": r"\textquotesingle{}",
    "`": r"\textasciigrave{}",
    **{each: f"\\{each}" for each in "#$%&_{}"},
}
_COMPARISONS = {"<": "<", "<=": r"\leq", ">": ">", ">=": r"\geq", "=": "=", "!=": r"\neq"}
_TIGHTNESS: Mapping[type, int] = {t.Iff: 1, t.Implies: 2, t.Or: 3, t.And: 4, t.Not: 5}
_UNIT = 6
_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\Z")


def latex(value: r.Statement | RuleSet | t.Formula) -> str:
    r"""Return a statement or formula as LaTeX, and a rule set as an ``align*`` environment.

    >>> from rulewright.logic import parse_rule
    >>> print(latex(parse_rule("0.9 :: parent_of(X, Z) :- spouse_of(X, Y1), parent_of(Y1, Z).")))
    0.9 :: \mathrm{parent\_of}(X, Z) \leftarrow \mathrm{spouse\_of}(X, Y_{1}) \land \mathrm{parent\_of}(Y_{1}, Z)
    """
    match value:
        case r.Rule(head, body, confidence):
            prefix = "" if confidence == 1 else f"{_number(confidence)} :: "
            return f"{prefix}{_formula(head, 0)} \\leftarrow {_body(body)}"
        case r.WeightedFormula(formula, kind, weight):
            prefix = _number(weight) if weight is not None else f"\\text{{{kind}}}"
            return f"{prefix} :\\; {_formula(formula, 0)}"
        case r.Template(head, body, domains):
            holes = "".join(f",\\; {_hole(hole)} \\in {_domain(names)}" for hole, names in domains)
            return f"{_formula(head, 0)} \\leftarrow {_body(body)}{holes}"
        case t.Atom() | t.Membership() | t.Comparison() | t.Not() | t.And() | t.Or() | t.Implies() | t.Iff():
            return _formula(value, 0)
    lines = [re.sub(r" (\\leftarrow|:\\;) ", r" &\1 ", latex(each), count=1) for each in value]
    return "\\begin{align*}\n" + " \\\\\n".join(lines) + "\n\\end{align*}\n" if lines else ""


def escaped(text: str) -> str:
    r"""Return text that LaTeX sets as it stands.

    >>> print(escaped("50 % of $x_1$"))
    50 \% of \$x\_1\$
    """
    return "".join(_TEXT.get(character, character) for character in text)


def _body(parts: tuple[t.Formula, ...]) -> str:
    if len(parts) == 1:
        return _formula(parts[0], 0)
    return r" \land ".join(_formula(part, _TIGHTNESS[t.And] + 1) for part in parts)


def _formula(value: t.Formula, at_least: int) -> str:
    tightness = _TIGHTNESS.get(type(value), _UNIT)
    match value:
        case t.Not(inner):
            unit = isinstance(inner, t.Comparison | t.Membership)
            written = r"\lnot " + (f"({_formula(inner, 0)})" if unit else _formula(inner, tightness))
        case t.And(parts):
            written = r" \land ".join(_formula(part, tightness + 1) for part in parts)
        case t.Or(parts):
            written = r" \lor ".join(_formula(part, tightness + 1) for part in parts)
        case t.Implies(premise, conclusion):
            written = f"{_formula(premise, tightness + 1)} \\rightarrow {_formula(conclusion, tightness)}"
        case t.Iff(left_side, right_side):
            written = f"{_formula(left_side, tightness)} \\leftrightarrow {_formula(right_side, tightness + 1)}"
        case t.Atom(predicate, args):
            written = f"{_predicate(predicate)}({', '.join(map(_term, args))})"
        case t.Membership(atom, classes):
            written = f"{_formula(atom, 0)} \\in {_domain(classes)}"
        case t.Comparison(operator, left, right):
            written = f"{_term(left)} {_COMPARISONS[operator]} {_term(right)}"
    return written if tightness >= at_least else f"({written})"


def _predicate(predicate: str | t.PredicateVariable) -> str:
    return _hole(predicate) if isinstance(predicate, t.PredicateVariable) else _name(predicate)


def _hole(hole: t.PredicateVariable) -> str:
    return f"\\mathbf{{{escaped(hole.name)}}}"


def _domain(names: tuple[str, ...] | None) -> str:
    return r"\text{any}" if names is None else "\\{" + ", ".join(map(_name, names)) + "\\}"


def _name(name: str) -> str:
    """Set a plain name upright; any other as text, in the quotes and with the escapes of the rule language."""
    if _PLAIN_NAME.match(name) and "-" not in name:
        return f"\\mathrm{{{escaped(name)}}}"
    return f"\\text{{{escaped(quote(name))}}}"


def _term(term: t.Term) -> str:
    match term:
        case t.Variable(name):
            found = re.fullmatch(r"([A-Z])(\d+)", name)
            if found:
                return f"{found[1]}_{{{found[2]}}}"
            return name if len(name) == 1 and name != "_" else f"\\mathit{{{escaped(name)}}}"
        case t.Symbol(name):
            return _name(name)
        case t.Number(value):
            return _number(value)


def _number(value: int | float) -> str:
    mantissa, _, exponent = number(value).partition("e")
    return f"{mantissa} \\cdot 10^{{{int(exponent)}}}" if exponent else mantissa
