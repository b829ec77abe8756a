"""Checking a proof by itself: plain Python over labels, with no engine and no search."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable

from rulewright.data import KnowledgeBase, Value
from rulewright.errors import DataError
from rulewright.logic import (
    NUMBER_TYPE,
    Comparison,
    Formula,
    Head,
    Literal,
    Membership,
    Number,
    Rule,
    RuleSet,
    Symbol,
    Term,
    Variable,
    substitute,
)
from rulewright.reason.apply import apply
from rulewright.reason.program import Derivation, Program
from rulewright.reason.proofs import Proof

_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


def verify(proof: Proof, rules: RuleSet | Rule | Iterable[Rule], kb: KnowledgeBase) -> None:
    """Check every step of a proof; a step that is not right is an error that names it.

    Leaves must be known facts; a conclusion must be an instance of its rule whose premises are exactly those proved,
    whose comparisons hold and whose negated atoms are no facts, nor follow from the rules; scores must multiply up;
    and no fact may rest on itself.

    >>> from rulewright import explain, parse_rules
    >>> kb = KnowledgeBase.from_triples([("ann", "spouse_of", "al")])
    >>> rules = parse_rules("0.9 :: spouse_of(X, Y) :- spouse_of(Y, X).")
    >>> verify(explain(rules, kb, "spouse_of(al, ann)").proofs[0], rules, kb)
    """
    Verifier(rules, kb).check(proof)


class Verifier:
    """Checks proofs over one knowledge base; see `verify`."""

    def __init__(self, rules: RuleSet | Rule | Iterable[Rule], kb: KnowledgeBase) -> None:
        self.program = Program.of(rules, kb)
        self.kb = self.program.kb
        negated = any(not each.positive for derivation in self.program.derivations for each in derivation.body)
        # absence is a question to everything that follows, so this one thing is not checked by hand
        self.inferred = {(fact.predicate, fact.args) for fact in apply(rules, kb)} if negated else set()

    def check(self, proof: Proof, above: frozenset[Head] = frozenset()) -> None:
        """Check a proof below some facts."""
        if proof.fact in above:
            raise _wrong(proof, "it rests on itself")
        if proof.source is None:
            if not self._holds(proof.fact, inferred=False) or proof.score != 1:
                raise _wrong(proof, "it is no known fact with score 1")
            return
        reasons = [self._amiss(proof, each) for each in self._derivations(proof)]
        if all(reasons):
            raise _wrong(proof, reasons[0] if reasons else "its rule is not among the rules")
        for each in proof.premises:
            self.check(each, above | {proof.fact})

    def _derivations(self, proof: Proof) -> list[Derivation]:
        return [
            each for each in self.program.derivations if each.number == proof.number and each.source == proof.source
        ]

    def _amiss(self, proof: Proof, derivation: Derivation) -> str:
        """Say why a step is no instance of a derivation, nothing where it is one."""
        mapping: dict[Variable, tuple[str, Term]] = {}
        positive = [each for each in derivation.body if each.positive and not isinstance(each.unit, Comparison)]
        if len(positive) != len(proof.premises):
            return "it has not the premises of its rule"
        units = [(derivation.head, proof.fact)]
        units += [(each.unit, premise.fact) for each, premise in zip(positive, proof.premises, strict=True)]  # type: ignore[misc]
        for unit, fact in units:
            if not self._matches(unit, fact, mapping):
                return f"{fact} is no instance of {unit}"
        others = [each for each in derivation.body if each not in positive]
        terms = {variable: term for variable, (_, term) in mapping.items()}
        if sorted(map(str, proof.conditions)) != sorted(str(substitute(_condition(each), terms)) for each in others):
            return "its conditions are not those of its rule"
        for each in others:
            if not self._satisfied(each, mapping):
                return f"{_condition(each)} does not hold"
        score = derivation.confidence * math.prod(each.score for each in proof.premises)
        return "" if math.isclose(score, proof.score, rel_tol=1e-9) else f"its score must be {score}"

    def _matches(self, unit: Head, fact: Head, mapping: dict[Variable, tuple[str, Term]]) -> bool:
        if unit.predicate != fact.predicate or len(unit.args) != len(fact.args):
            return False
        if isinstance(unit, Membership) and not (
            isinstance(fact, Membership) and len(fact.classes) == 1 and fact.classes[0] in unit.classes
        ):
            return False
        types = self.kb.predicate(str(unit.predicate)).types
        for term, value, kind in zip(unit.args, fact.args, types, strict=True):
            if isinstance(term, Variable):
                if mapping.setdefault(term, (kind, value)) != (kind, value):
                    return False
            elif _plain(term) != _plain(value):
                return False
        return True

    def _satisfied(self, literal: Literal, mapping: dict[Variable, tuple[str, Term]]) -> bool:
        terms = {variable: term for variable, (_, term) in mapping.items()}
        unit = literal.unit
        if not isinstance(unit, Comparison):
            return not self._holds(substitute(unit, terms))
        sides = [mapping.get(term, ("", term)) if isinstance(term, Variable) else ("", term) for term in unit.args]
        kinds = [NUMBER_TYPE if isinstance(term, Number) else kind for kind, term in sides]
        left, right = (_plain(term) for _, term in sides)
        if kinds[0] and kinds[1] and kinds[0] != kinds[1]:  # entities of two types differ, whatever their names
            holds = unit.operator == "!="
        else:
            holds = bool(_COMPARE[unit.operator](left, right))
        return holds == literal.positive

    def _holds(self, fact: Head, *, inferred: bool = True) -> bool:
        args = tuple(_plain(term) for term in fact.args)
        rows = [(*args, each) for each in fact.classes] if isinstance(fact, Membership) else [args]
        name = str(fact.predicate)
        return any(self.kb.contains(name, *row) or (inferred and (name, row) in self.inferred) for row in rows)


def _condition(literal: Literal) -> Formula:
    if isinstance(literal.unit, Comparison):
        return literal.unit if literal.positive else literal.unit.opposite()
    return literal.formula()


def _plain(term: Term) -> Value:
    return term.name if isinstance(term, Symbol | Variable) else float(term.value)


def _wrong(proof: Proof, reason: str) -> DataError:
    return DataError(f"the proof of {proof.fact} is wrong: {reason}")
