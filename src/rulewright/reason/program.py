"""Rules made ready for an engine: what each can derive, what must be checked, and which predicates are new."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rulewright.data import KnowledgeBase
from rulewright.data.facts import check_arguments
from rulewright.engine.batches import Derivation, Source
from rulewright.engine.sql import positive_atoms
from rulewright.errors import DataError, unknown_name
from rulewright.logic import (
    NUMBER_TYPE,
    Atom,
    Comparison,
    Implies,
    Literal,
    Membership,
    Not,
    Number,
    PredicateDeclaration,
    Rule,
    RuleSet,
    Statement,
    Template,
    Variable,
    WeightedFormula,
    cnf,
    variables,
)

Rules = RuleSet | Rule | Iterable[Rule]
"""What every function of this folder takes as rules."""


def read_rule_set(rules: Rules) -> RuleSet:
    """Return rules as a rule set."""
    return rules if isinstance(rules, RuleSet) else RuleSet([rules] if isinstance(rules, Rule) else rules)


def is_completion_formula(statement: Statement) -> bool:
    """Return whether a soft formula is one that completion learners write.

    These are ``w body => !r(X, Y)``, ``w r(X, c)`` and ``w p(Y, Z) => r(X, Y)``.
    """
    if not isinstance(statement, WeightedFormula) or statement.kind != "soft":
        return False
    match statement.formula:
        case Implies(_, Not(Atom())) | Atom():
            return True
        case Implies(Atom() as premise, Atom() as head):
            return is_about_one_end(head, premise)
    return False


def is_about_one_end(head: Atom, atom: Atom) -> bool:
    """Tell whether a body is one atom about one argument of its head, and any other entity.

    >>> x, y, z = map(Variable, "XYZ")
    >>> is_about_one_end(Atom("r", (x, y)), Atom("p", (z, y))), is_about_one_end(Atom("r", (x, y)), Atom("p", (x, y)))
    (True, False)
    """
    terms = (*head.args, *atom.args)
    if not all(isinstance(term, Variable) for term in terms) or len(head.args) != 2 or len(atom.args) != 2:
        return False
    return len(set(terms)) == 3 and len(set(head.args)) == len(set(atom.args)) == 2


def adds_weights(rules: RuleSet) -> bool:
    """Return whether rules are to be added up by their weights: completion rules, that conclude relations alone.

    They are known by ``weight_inverse``, or by formulas that only completion learners write. A ``weight`` alone may be
    that of a classifier, which is nothing without the rest of it.

    >>> from rulewright import parse_rules
    >>> adds_weights(parse_rules("0.9 :: r(X, Y) :- q(X, Y). @{weight: 1.5} 0.2 s(X, Y) => !r(X, Y)."))
    True
    >>> adds_weights(parse_rules("0.9 :: r(X, Y) :- q(X, Y). @{weight: 1}"))
    False
    """
    is_weighted = False
    for statement in rules:
        if isinstance(statement, Template):
            return False
        if isinstance(statement, Rule):
            is_weighted |= "weight_inverse" in statement.annotations
            if not isinstance(statement.head, Atom) or len(statement.head.args) != 2:
                return False
        elif is_completion_formula(statement):
            is_weighted = True
        elif statement.kind != "hard":
            return False
    return is_weighted


@dataclass(frozen=True)
class IntegrityConstraint:
    """A body that must have no grounding, for then the formula is broken."""

    body: tuple[Literal, ...]
    formula: WeightedFormula


@dataclass(frozen=True)
class RuleProgram:
    """What a rule set asks of an engine, over a knowledge base that knows all its predicates."""

    kb: KnowledgeBase
    sources: tuple[Source, ...]
    derivations: tuple[Derivation, ...]
    constraints: tuple[IntegrityConstraint, ...]
    numbers: tuple[int, ...]
    """The number of each source in the rule file."""

    @classmethod
    def of(cls, rules: Rules, kb: KnowledgeBase) -> RuleProgram:
        """Read rules and hard formulas; refuse by name what has no meaning here."""
        rule_set = read_rule_set(rules)
        sources: list[Source] = []
        derivations: list[Derivation] = []
        constraints: list[IntegrityConstraint] = []
        for statement in rule_set:
            if isinstance(statement, Template):
                raise DataError(f"a template has no facts to give until a learner has filled it: {statement}")
            if isinstance(statement, Rule):
                for body in statement.alternatives():
                    derivations.append(Derivation(statement.head, body, statement, len(sources), statement.confidence))
            else:
                read_formula(statement, len(sources), derivations, constraints)
            sources.append(statement)
        for derivation in derivations:
            if isinstance(derivation.head, Membership) and len(derivation.head.classes) != 1:
                raise DataError(f"a head with several classes says not which holds: {derivation.source}")
        declared = add_new_predicates(kb, rule_set, derivations)
        return cls(declared, tuple(sources), tuple(derivations), tuple(constraints), rule_set.numbers)


def read_formula(
    statement: WeightedFormula,
    source_index: int,
    derivations: list[Derivation],
    constraints: list[IntegrityConstraint],
) -> None:
    """Read a hard formula clause by clause: one positive atom is a rule's head, otherwise it is a constraint."""
    if statement.kind != "hard":
        how = "its weight is not known" if statement.kind == "learn" else "a weight is no score"
        way_out = "use a LogicLayer" if statement.kind == "learn" else "use a LogicLayer, or aggregation='weight',"
        raise DataError(f"apply takes rules and hard formulas, and {how}; {way_out} for: {statement}")
    for clause in cnf(statement.formula):
        heads = positive_atoms(clause.literals)
        head = heads[0] if len(heads) == 1 else None
        body = tuple(literal.negated() for literal in clause.literals if head is None or literal.unit is not head)
        bound = {variable for unit in positive_atoms(body) for variable in variables(unit)}
        used = [variable for literal in body for variable in variables(literal.unit)]
        for variable in [*(variables(head) if head else ()), *used]:
            if variable not in bound:
                raise DataError(
                    f"{variable} ranges over everything, since no premise binds it; apply cannot take: {statement}"
                )
        if head is None:
            constraints.append(IntegrityConstraint(body, statement))
        else:
            derivations.append(Derivation(head, body, statement, source_index))


def add_new_predicates(kb: KnowledgeBase, rules: RuleSet, derivations: Sequence[Derivation]) -> KnowledgeBase:
    """Add the predicates that rules declare or derive and the facts do not have."""
    declared = {**{declaration.name: declaration for declaration in rules.predicates}, **kb.predicates}
    heads = {str(derivation.head.predicate) for derivation in derivations}
    for name, arity in rules.arities.items():
        if name not in kb.predicates and not arity:
            check_arguments(PredicateDeclaration(name))
        if name not in declared and name not in heads:
            raise unknown_name("predicate", name, declared)
        if name in declared and declared[name].arity != arity:
            raise DataError(f"{name} has {declared[name].arity} arguments in the facts and {arity} in the rules")
    pending = [derivation for derivation in derivations if str(derivation.head.predicate) not in declared]
    while pending:
        typed = [derivation for derivation in pending if None not in _head_types(derivation, declared)]
        for derivation in typed or pending[:1]:
            name = str(derivation.head.predicate)
            if isinstance(derivation.head, Membership):
                raise DataError(f"the classes of {name} are not known; declare them in the rules")
            types = tuple(type_name or kb.usual_type for type_name in _head_types(derivation, declared))
            declared.setdefault(name, PredicateDeclaration(name, types))
        pending = [derivation for derivation in pending if str(derivation.head.predicate) not in declared]
    new = [declaration for name, declaration in declared.items() if name not in kb.predicates]
    return kb.with_predicates(new) if new else kb


def _head_types(derivation: Derivation, declared: dict[str, PredicateDeclaration]) -> list[str | None]:
    """Return the type of each head argument, as far as the body's declared predicates tell."""
    known: dict[Variable, str] = {}
    for literal in derivation.body:
        if isinstance(literal.unit, Comparison) or literal.unit.predicate not in declared:
            continue
        for term, type_name in zip(literal.unit.args, declared[str(literal.unit.predicate)].types, strict=False):
            if isinstance(term, Variable):
                known.setdefault(term, type_name)
    return [
        known.get(term) if isinstance(term, Variable) else NUMBER_TYPE if isinstance(term, Number) else None
        for term in derivation.head.args
    ]


def find_strata(derivations: Sequence[Derivation], *, circles: bool = False) -> list[list[int]]:
    """Return the indices of derivations, stratum by stratum.

    A predicate stands no lower than what it follows from, and higher than what must be absent for it. Where a
    predicate rests on its own absence there is no such order, and the rule that asks for it is named; with ``circles``
    the predicates of such a circle stand in one stratum.

    >>> from rulewright import KnowledgeBase, parse_rules
    >>> rules = parse_rules("alone(X) :- p(X, _), !linked(X). linked(X) :- e(X, Y). p(X, Y) :- e(Y, X).")
    >>> find_strata(RuleProgram.of(rules, KnowledgeBase.from_triples([("a", "e", "b")])).derivations)
    [[1, 2], [0]]
    """
    derived = {str(derivation.head.predicate) for derivation in derivations}
    level = dict.fromkeys(derived, 0)
    needs = {
        (str(derivation.head.predicate), str(literal.unit.predicate), not literal.positive)
        for derivation in derivations
        for literal in derivation.body
        if not isinstance(literal.unit, Comparison) and literal.unit.predicate in derived
    }
    if circles:
        absent = {premise: find_relevant(derivations, premise) for _, premise, negated in needs if negated}
        needs = {(head, premise, negated and head not in absent[premise]) for head, premise, negated in needs}
    changed = True
    while changed:
        changed = False
        for head, premise, negated in needs:
            if level[head] < level[premise] + negated:
                level[head] = level[premise] + negated
                changed = True
                if level[head] >= len(derived):
                    raise _explain_circle(derivations)
    levels = [level[str(derivation.head.predicate)] for derivation in derivations]
    return [[index for index, own in enumerate(levels) if own == stratum] for stratum in sorted(set(levels))]


def _explain_circle(derivations: Sequence[Derivation]) -> DataError:
    for derivation in derivations:
        for literal in derivation.body:
            if isinstance(literal.unit, Comparison) or literal.positive:
                continue
            name = str(literal.unit.predicate)
            if str(derivation.head.predicate) in find_relevant(derivations, name):
                return DataError(
                    f"{name} must be absent in a rule that {name} itself rests on, so no order of the rules is right; "
                    f"max_rounds=1 applies each rule once to the known facts: {derivation.source}"
                )
    raise AssertionError("levels grow without end only where a predicate rests on its own absence")


def find_relevant(derivations: Sequence[Derivation], predicate: str) -> set[str]:
    """Return the predicates that a predicate follows from, itself included, through all derivations.

    >>> from rulewright import KnowledgeBase, parse_rules
    >>> rules = parse_rules("p(X, Y) :- e(Y, X). q(X) :- !p(X, X), r(X). s(X) :- e(X, _).")
    >>> kb = KnowledgeBase.from_facts([("e", "a", "b"), ("r", "a")])
    >>> sorted(find_relevant(RuleProgram.of(rules, kb).derivations, "q"))
    ['e', 'p', 'q', 'r']
    """
    below: dict[str, set[str]] = {}
    for derivation in derivations:
        names = {str(part.unit.predicate) for part in derivation.body if not isinstance(part.unit, Comparison)}
        below.setdefault(str(derivation.head.predicate), set()).update(names)
    relevant: set[str] = set()
    waiting = [predicate]
    while waiting:
        name = waiting.pop()
        if name not in relevant:
            relevant.add(name)
            waiting += below.get(name, ())
    return relevant
