"""Rules made ready for an engine: what each can derive, what must be checked, and which predicates are new."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rulewright.data import ENTITY_TYPE, KnowledgeBase
from rulewright.errors import DataError, unknown_name
from rulewright.logic import (
    NUMBER_TYPE,
    Atom,
    Comparison,
    Head,
    Literal,
    Membership,
    Number,
    PredicateDeclaration,
    Rule,
    RuleSet,
    Template,
    Variable,
    WeightedFormula,
    cnf,
    variables,
)

Source: TypeAlias = Rule | WeightedFormula


@dataclass(frozen=True)
class Derivation:
    """One conjunctive body that gives facts for a head; ``number`` is the place of its source."""

    head: Head
    body: tuple[Literal, ...]
    source: Source
    number: int

    @property
    def confidence(self) -> float:
        """What the head's score is multiplied with: a rule's confidence, 1 for a hard formula."""
        return self.source.confidence if isinstance(self.source, Rule) else 1.0


@dataclass(frozen=True)
class Constraint:
    """A body that must have no grounding, for then the formula is broken."""

    body: tuple[Literal, ...]
    formula: WeightedFormula


@dataclass(frozen=True)
class Program:
    """What a rule set asks of an engine, over a knowledge base that knows all its predicates."""

    kb: KnowledgeBase
    sources: tuple[Source, ...]
    derivations: tuple[Derivation, ...]
    constraints: tuple[Constraint, ...]

    @classmethod
    def of(cls, rules: RuleSet | Rule | Iterable[Rule], kb: KnowledgeBase) -> Program:
        """Read rules and hard formulas; refuse by name what has no meaning here."""
        rule_set = rules if isinstance(rules, RuleSet) else RuleSet([rules] if isinstance(rules, Rule) else rules)
        sources: list[Source] = []
        derivations: list[Derivation] = []
        constraints: list[Constraint] = []
        for statement in rule_set:
            if isinstance(statement, Template):
                raise DataError(f"a template has no facts to give until a learner has filled it: {statement}")
            number = len(sources)
            sources.append(statement)
            if isinstance(statement, Rule):
                _check_head(statement.head, statement)
                derivations += [
                    Derivation(statement.head, body, statement, number) for body in statement.alternatives()
                ]
            else:
                given, checked = _from_formula(statement, number)
                derivations += given
                constraints += checked
        known = _with_new_predicates(kb, rule_set, derivations)
        return cls(known, tuple(sources), tuple(derivations), tuple(constraints))


def positive_atoms(body: Iterable[Literal]) -> list[Head]:
    """Return the atoms of a body that facts must match, in order."""
    return [each.unit for each in body if each.positive and not isinstance(each.unit, Comparison)]


def _check_head(head: Head, source: Source) -> None:
    if isinstance(head, Membership) and len(head.classes) != 1:
        raise DataError(f"a head with several classes says not which holds: {source}")


def _from_formula(statement: WeightedFormula, number: int) -> tuple[list[Derivation], list[Constraint]]:
    """Read a hard formula clause by clause: one positive atom is a rule's head, otherwise it is a constraint."""
    if statement.kind != "hard":
        how = "its weight is not known" if statement.kind == "learn" else "a weight is no score"
        raise DataError(f"apply takes rules and hard formulas, and {how}; use a LogicLayer for: {statement}")
    derivations: list[Derivation] = []
    constraints: list[Constraint] = []
    for clause in cnf(statement.formula):
        heads = [each for each in clause.literals if each.positive and not isinstance(each.unit, Comparison)]
        if len(heads) == 1:
            head = heads[0].unit
            assert not isinstance(head, Comparison)
            _check_head(head, statement)
            body = tuple(each.negated() for each in clause.literals if each is not heads[0])
            _check_safe(body, variables(head), statement)
            derivations.append(Derivation(head, body, statement, number))
        else:
            body = tuple(each.negated() for each in clause.literals)
            _check_safe(body, (), statement)
            constraints.append(Constraint(body, statement))
    return derivations, constraints


def _check_safe(body: Sequence[Literal], wanted: Sequence[Variable], statement: WeightedFormula) -> None:
    bound = {
        variable
        for literal in body
        if literal.positive and not isinstance(literal.unit, Comparison)
        for variable in variables(literal.unit)
    }
    for variable in (*wanted, *(each for literal in body for each in variables(literal.unit))):
        if variable not in bound:
            raise DataError(
                f"{variable} ranges over everything, since no premise binds it; apply cannot take: {statement}"
            )


def _with_new_predicates(kb: KnowledgeBase, rules: RuleSet, derivations: Sequence[Derivation]) -> KnowledgeBase:
    """Add the predicates that rules declare or derive and the facts do not have."""
    declared = {**{each.name: each for each in rules.predicates}, **kb.predicates}
    heads = {str(each.head.predicate) for each in derivations}
    for name, arity in rules.arities.items():
        if name not in declared and name not in heads:
            raise unknown_name("predicate", name, declared)
        if name in declared and declared[name].arity != arity:
            raise DataError(f"{name} has {declared[name].arity} arguments in the facts and {arity} in the rules")
    pending = [each for each in derivations if str(each.head.predicate) not in declared]
    while pending:
        typed = [each for each in pending if None not in _types(each, declared)]
        for derivation in typed or pending[:1]:
            declared.setdefault(str(derivation.head.predicate), _declaration(derivation, declared, kb))
        pending = [each for each in pending if str(each.head.predicate) not in declared]
    new = [each for name, each in declared.items() if name not in kb.predicates]
    if not new:
        return kb
    return KnowledgeBase(
        kb.domains,
        [*kb.predicates.values(), *new],
        kb.tables(),
        kb.tables(truth=False),
        closed=kb.closed,
        worlds=kb.worlds,
    )


def _types(derivation: Derivation, declared: dict[str, PredicateDeclaration]) -> list[str | None]:
    """Return the type of each head argument, as far as the body's declared predicates tell."""
    known: dict[Variable, str] = {}
    for literal in derivation.body:
        if isinstance(literal.unit, Comparison) or literal.unit.predicate not in declared:
            continue
        for term, each in zip(literal.unit.args, declared[str(literal.unit.predicate)].types, strict=False):
            if isinstance(term, Variable):
                known.setdefault(term, each)
    return [
        known.get(term) if isinstance(term, Variable) else NUMBER_TYPE if isinstance(term, Number) else None
        for term in derivation.head.args
    ]


def _declaration(
    derivation: Derivation, declared: dict[str, PredicateDeclaration], kb: KnowledgeBase
) -> PredicateDeclaration:
    if isinstance(derivation.head, Membership):
        raise DataError(f"the classes of {derivation.head.predicate} are not known; declare them in the rules")
    assert isinstance(derivation.head, Atom)
    usual = next(iter(kb.domains), ENTITY_TYPE) if len(kb.domains) == 1 else ENTITY_TYPE
    types = tuple(each or usual for each in _types(derivation, declared))
    return PredicateDeclaration(str(derivation.head.predicate), types)


def strata(derivations: Sequence[Derivation]) -> list[list[int]]:
    """Return the places of derivations, stratum by stratum.

    A predicate stands no lower than what it follows from, and higher than what must be absent for it. Where a
    predicate rests on its own absence there is no such order, and the rule that asks for it is named.

    >>> from rulewright import KnowledgeBase, parse_rules
    >>> from rulewright.reason.program import Program
    >>> rules = parse_rules("alone(X) :- p(X, _), !linked(X). linked(X) :- e(X, Y). p(X, Y) :- e(Y, X).")
    >>> strata(Program.of(rules, KnowledgeBase.from_triples([("a", "e", "b")])).derivations)
    [[1, 2], [0]]
    """
    derived = {str(each.head.predicate) for each in derivations}
    level = dict.fromkeys(derived, 0)
    needs = {
        (str(each.head.predicate), str(literal.unit.predicate), not literal.positive)
        for each in derivations
        for literal in each.body
        if not isinstance(literal.unit, Comparison) and literal.unit.predicate in derived
    }
    changed = True
    while changed:
        changed = False
        for head, body, negated in needs:
            if level[head] < level[body] + negated:
                level[head] = level[body] + negated
                changed = True
                if level[head] >= len(derived):
                    raise _circular(derivations)
    order = [level[str(each.head.predicate)] for each in derivations]
    return [[place for place, each in enumerate(order) if each == number] for number in sorted(set(order))]


def _circular(derivations: Sequence[Derivation]) -> DataError:
    for each in derivations:
        for literal in each.body:
            if isinstance(literal.unit, Comparison) or literal.positive:
                continue
            name = str(literal.unit.predicate)
            if str(each.head.predicate) in relevant(derivations, [name]):
                return DataError(
                    f"{name} must be absent in a rule that {name} itself rests on, so no order of the rules is right; "
                    f"max_rounds=1 applies each rule once to the known facts: {each.source}"
                )
    raise AssertionError("levels grow without end only where a predicate rests on its own absence")


def relevant(derivations: Sequence[Derivation], predicates: Iterable[str]) -> set[str]:
    """Return the predicates that some predicates follow from, these included, through all derivations.

    >>> from rulewright import KnowledgeBase, parse_rules
    >>> from rulewright.reason.program import Program
    >>> rules = parse_rules("p(X, Y) :- e(Y, X). q(X) :- !p(X, X), r(X). s(X) :- e(X, _).")
    >>> kb = KnowledgeBase.from_facts([("e", "a", "b"), ("r", "a")])
    >>> sorted(relevant(Program.of(rules, kb).derivations, ["q"]))
    ['e', 'p', 'q', 'r']
    """
    below: dict[str, set[str]] = {}
    for each in derivations:
        names = {str(part.unit.predicate) for part in each.body if not isinstance(part.unit, Comparison)}
        below.setdefault(str(each.head.predicate), set()).update(names)
    found: set[str] = set()
    waiting = [*predicates]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += below.get(name, ())
    return found
