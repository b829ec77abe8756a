"""Checking a proof by itself: plain Python over labels, with no engine and no search."""

from __future__ import annotations

import math
import operator

from rulewright.data import KnowledgeBase, Value
from rulewright.engine.batches import Derivation
from rulewright.engine.sql import positive_atoms
from rulewright.errors import DataError
from rulewright.logic import (
    NUMBER_TYPE,
    Comparison,
    Formula,
    Head,
    Literal,
    Membership,
    Number,
    Symbol,
    Term,
    Variable,
    substitute,
)
from rulewright.reason.apply import apply
from rulewright.reason.program import RuleProgram, Rules
from rulewright.reason.proofs import Proof

_COMPARE = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "=": operator.eq,
    "!=": operator.ne,
}


def verify(proof: Proof, rules: Rules, kb: KnowledgeBase) -> None:
    """Check every step of a proof; a step that is not right is an error that names it.

    Leaves must be known facts; a conclusion must be an instance of its rule whose premises are exactly those proved,
    whose comparisons hold and whose negated atoms are no facts, nor follow from the rules; scores must multiply up;
    and no fact may rest on itself.
    """
    Verifier(rules, kb).check(proof)


class Verifier:
    """Checks proofs over one knowledge base; see `verify`."""

    def __init__(self, rules: Rules, kb: KnowledgeBase) -> None:
        self.program = RuleProgram.of(rules, kb)
        self.kb = self.program.kb
        has_negation = any(not part.positive for derivation in self.program.derivations for part in derivation.body)
        # absence is a question to everything that follows, so this one thing is not checked by hand
        self.inferred = (
            {(fact.predicate, fact.args) for fact in apply(rules, kb, max_rounds=None)} if has_negation else set()
        )

    def check(self, proof: Proof, above: frozenset[Head] = frozenset()) -> None:
        """Check a proof below some facts."""
        complaints = []
        if proof.fact in above:
            complaints = ["it rests on itself"]
        elif proof.source is None:
            if not self._holds(proof.fact, inferred=False) or proof.score != 1:
                complaints = ["it is no known fact with score 1"]
        else:
            complaints = [
                self._find_fault(proof, derivation)
                for derivation in self.program.derivations
                if derivation.source_index == proof.rule_index and derivation.source == proof.source
            ] or ["its rule is not among the rules"]
        if complaints and all(complaints):
            raise DataError(f"the proof of {proof.fact} is wrong: {complaints[0]}")
        for premise in proof.premises:
            self.check(premise, above | {proof.fact})

    def _find_fault(self, proof: Proof, derivation: Derivation) -> str:
        """Say why a step is no instance of a derivation, nothing where it is one."""
        mapping: dict[Variable, tuple[str, Term]] = {}
        atoms = positive_atoms(derivation.body)
        if len(atoms) != len(proof.premises):
            return "it has not the premises of its rule"
        facts = [proof.fact, *(premise.fact for premise in proof.premises)]
        for unit, fact in zip([derivation.head, *atoms], facts, strict=True):
            if not self._matches(unit, fact, mapping):
                return f"{fact} is no instance of {unit}"
        conditions = [part for part in derivation.body if not part.positive or isinstance(part.unit, Comparison)]
        terms = {variable: term for variable, (_, term) in mapping.items()}
        expected = sorted(str(substitute(_write_condition(part), terms)) for part in conditions)
        if sorted(map(str, proof.conditions)) != expected:
            return "its conditions are not those of its rule"
        for part in conditions:
            if not self._is_satisfied(part, mapping, terms):
                return f"{_write_condition(part)} does not hold"
        score = derivation.confidence * math.prod(premise.score for premise in proof.premises)
        return "" if math.isclose(score, proof.score, rel_tol=1e-9) else f"its score must be {score}"

    def _matches(self, unit: Head, fact: Head, mapping: dict[Variable, tuple[str, Term]]) -> bool:
        if unit.predicate != fact.predicate or len(unit.args) != len(fact.args):
            return False
        if isinstance(unit, Membership) and not (
            isinstance(fact, Membership) and len(fact.classes) == 1 and fact.classes[0] in unit.classes
        ):
            return False
        types = self.kb.predicate(str(unit.predicate)).types
        for term, value, type_name in zip(unit.args, fact.args, types, strict=True):
            if isinstance(term, Variable):
                if mapping.setdefault(term, (type_name, value)) != (type_name, value):
                    return False
            elif _plain(term) != _plain(value):
                return False
        return True

    def _is_satisfied(
        self, literal: Literal, mapping: dict[Variable, tuple[str, Term]], terms: dict[Variable, Term]
    ) -> bool:
        unit = literal.unit
        if not isinstance(unit, Comparison):
            return not self._holds(substitute(unit, terms))
        sides = [mapping.get(term, ("", term)) if isinstance(term, Variable) else ("", term) for term in unit.args]
        types = [NUMBER_TYPE if isinstance(term, Number) else type_name for type_name, term in sides]
        left, right = (_plain(term) for _, term in sides)
        if types[0] and types[1] and types[0] != types[1]:  # entities of two types differ, whatever their names
            holds = unit.operator == "!="
        else:
            holds = bool(_COMPARE[unit.operator](left, right))
        return holds == literal.positive

    def _holds(self, fact: Head, *, inferred: bool = True) -> bool:
        args = tuple(_plain(term) for term in fact.args)
        rows = [(*args, name) for name in fact.classes] if isinstance(fact, Membership) else [args]
        predicate = str(fact.predicate)
        return any(
            self.kb.contains(predicate, *row) or (inferred and (predicate, row) in self.inferred) for row in rows
        )


def _write_condition(literal: Literal) -> Formula:
    if isinstance(literal.unit, Comparison):
        return literal.unit if literal.positive else literal.unit.opposite()
    return literal.formula()


def _plain(term: Term) -> Value:
    return term.name if isinstance(term, Symbol | Variable) else float(term.value)
