"""Random programs over few predicates, so that rules feed each other, and facts for them."""

from __future__ import annotations

import random

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.logic import Atom, Comparison, Literal, PredicateDeclaration, Rule, RuleSet, Symbol, Variable

ARITIES = {"e": 2, "p": 2, "q": 2, "u": 1, "v": 1}
PREDICATES = tuple(PredicateDeclaration(name, ("entity",) * arity) for name, arity in ARITIES.items())
NAMES = ("a", "b's", "C", "d 4", "e")


def random_graph(chance: random.Random) -> KnowledgeBase:
    builder = KnowledgeBaseBuilder(PREDICATES)
    for name in NAMES:
        builder.entity(name)
    for predicate, chosen in (("e", 0.25), ("p", 0.05), ("u", 0.3)):
        for args in [(one, other) for one in NAMES for other in NAMES] if ARITIES[predicate] == 2 else zip(NAMES):
            if chance.random() < chosen:
                builder.add(predicate, list(args))
            elif chance.random() < 0.05:
                builder.add(predicate, list(args), truth=False)
    return builder.build()


def recursive_rules(chance: random.Random, count: int = 4) -> RuleSet:
    return RuleSet([_rule(chance) for _ in range(count)], predicates=PREDICATES)


def _rule(chance: random.Random) -> Rule:
    places = [Variable(name) for name in "XYZ"]
    names = chance.choices("eepqu", k=chance.choice((1, 2, 2, 3)))
    body = [Literal(Atom(name, tuple(chance.sample(places, ARITIES[name])))) for name in names]
    bound = sorted({term for each in body for term in each.unit.args}, key=str)
    if chance.random() < 0.3:
        name = chance.choice("euvq")
        body.append(Literal(Atom(name, tuple(chance.choices([*bound, Symbol("a")], k=ARITIES[name]))), False))
    if chance.random() < 0.2:
        body.append(Literal(Comparison(chance.choice(("!=", "=")), *chance.choices([*bound, Symbol("C")], k=2))))
    name = chance.choice("ppqv")
    head = Atom(name, tuple(chance.choices(bound, k=ARITIES[name])))
    return Rule(head, tuple(each.formula() for each in body), chance.choice((0.5, 0.9, 1.0)))
