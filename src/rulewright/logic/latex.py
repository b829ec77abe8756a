r"""Statements as LaTeX, for mathematics mode; only ``\text`` asks for a package, amsmath."""

from __future__ import annotations

import re

from rulewright.logic import rules as r
from rulewright.logic import terms as t
from rulewright.logic.printer import Notation, quote, write_body, write_formula
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
    **{character: f"\\{character}" for character in "#$%&_{}"},
}
_COMPARISONS = {"<": "<", "<=": r"\leq", ">": ">", ">=": r"\geq", "=": "=", "!=": r"\neq"}
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
            return f"{prefix}{_unit(head)} \\leftarrow {_body(body)}"
        case r.WeightedFormula(formula, strength, weight):
            prefix = _number(weight) if weight is not None else f"\\text{{{strength}}}"
            return f"{prefix} :\\; {write_formula(formula, _NOTATION)}"
        case r.Template(head, body, domains):
            holes = "".join(f",\\; {_hole(hole)} \\in {_domain(names)}" for hole, names in domains)
            return f"{_unit(head)} \\leftarrow {_body(body)}{holes}"
        case t.Atom() | t.Membership() | t.Comparison() | t.Not() | t.And() | t.Or() | t.Implies() | t.Iff():
            return write_formula(value, _NOTATION)
    lines = [re.sub(r" (\\leftarrow|:\\;) ", r" &\1 ", latex(statement), count=1) for statement in value]
    return "\\begin{align*}\n" + " \\\\\n".join(lines) + "\n\\end{align*}\n" if lines else ""


def escape(text: str) -> str:
    r"""Return text that LaTeX sets as it stands.

    >>> print(escape("50 % of $x_1$"))
    50 \% of \$x\_1\$
    """
    return "".join(_TEXT.get(character, character) for character in text)


def _body(parts: tuple[t.Formula, ...]) -> str:
    return write_formula(parts[0], _NOTATION) if len(parts) == 1 else write_body(parts, _NOTATION)


def _unit(unit: t.Unit) -> str:
    match unit:
        case t.Atom(predicate, args):
            return _predicate(predicate) + (f"({', '.join(map(_term, args))})" if args else "")
        case t.Membership(atom, classes):
            return f"{_unit(atom)} \\in {_domain(classes)}"
        case t.Comparison(operator, left, right):
            return f"{_term(left)} {_COMPARISONS[operator]} {_term(right)}"


_NOTATION = Notation(_unit, r"\lnot ", r" \land ", r" \lor ", r" \rightarrow ", r" \leftrightarrow ")


def _predicate(predicate: str | t.PredicateVariable) -> str:
    return _hole(predicate) if isinstance(predicate, t.PredicateVariable) else _name(predicate)


def _hole(hole: t.PredicateVariable) -> str:
    return f"\\mathbf{{{escape(hole.name)}}}"


def _domain(names: tuple[str, ...] | None) -> str:
    return r"\text{any}" if names is None else "\\{" + ", ".join(map(_name, names)) + "\\}"


def _name(name: str) -> str:
    """Set a plain name upright; any other as text, in the quotes and with the escapes of the rule language."""
    if _PLAIN_NAME.match(name) and "-" not in name:
        return f"\\mathrm{{{escape(name)}}}"
    return f"\\text{{{escape(quote(name))}}}"


def _term(term: t.Term) -> str:
    match term:
        case t.Variable(name):
            indexed = re.fullmatch(r"([A-Z])(\d+)", name)
            if indexed:
                return f"{indexed[1]}_{{{indexed[2]}}}"
            return name if len(name) == 1 and name != "_" else f"\\mathit{{{escape(name)}}}"
        case t.Symbol(name):
            return _name(name)
        case t.Number(value):
            return _number(value)


def _number(value: int | float) -> str:
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa} \\cdot 10^{{{int(exponent)}}}" if exponent else mantissa
