"""Rules that may be broken at a cost: the decoder beside trying all labellings, and beside the full program."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from inject.atoms.plain_costs import best_with_costs
from inject.layer.plain_mean_field import atoms
from inject.layer.test_layer import DOMAINS, PREDICATES, formulas

import rulewright as rw
from rulewright.errors import DataError
from rulewright.inject.atoms import zero_one
from rulewright.logic import RuleSet, WeightedFormula, parse_rules

DECLARED = "".join(f"{declaration} " for declaration in PREDICATES.values())
HARD = [
    "hard p(T0) & r(T0, T1) => p(T1).",
    "hard label(T0) in {x} => p(T0).",
    "hard !(p(T0) & label(T0) in {y}).",
    "hard r(T0, T1) => !r(T1, T0).",
    "hard s(T0, U0) | q(U0).",
    "hard label(T0) in {x} => label(T1) in {x, y}.",
]
RULES = [
    "p(T0) :- r(T0, T1), p(T1).",
    "r(T0, T2) :- r(T0, T1), r(T1, T2).",
    "p(T0) :- s(T0, U0), q(U0) ; label(T0) in {x, y}.",
    "q(U0) :- p(T0), p(T1), s(T0, U0).",
    "label(T0) in {y} :- r(T0, T0), !p(T0).",
    "label(T0) in {x, z} :- mark(T0, T1) in {m}, label(T1) in {x}.",
    "p(T0) :- r(T0, T1), T0 < T1.",
]


def one(text):
    return parse_rules(DECLARED + text).statements[0]


@st.composite
def statements(draw):
    """Draw one to three statements with costs, and up to two that must hold."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        cost = draw(st.floats(0.1, 3.0))
        if draw(st.booleans()):
            found.append(one(draw(st.sampled_from(RULES))).annotated(weight=cost))
        else:
            found.append(WeightedFormula(draw(formulas(most=3)), "soft", cost))
    found += [one(draw(st.sampled_from(HARD))) for _ in range(draw(st.integers(0, 2)))]
    return list(dict.fromkeys(found))


class Case:
    """Random logits and evidence for statements; what is not observed has at most so many labellings."""

    def __init__(self, found, seed, labellings=2**11):
        chance = random.Random(seed)
        self.rules = RuleSet(found, predicates=PREDICATES.values())
        self.rules = RuleSet(found, predicates=[PREDICATES[name] for name in self.rules.arities])
        self.predicates = {declaration.name: declaration for declaration in self.rules.predicates}
        self.costs = [
            math.inf
            if getattr(statement, "kind", "") == "hard"
            else statement.weight
            if isinstance(statement, WeightedFormula)
            else statement.annotations["weight"]
            for statement in self.rules
        ]
        self.potentials, self.evidence = {}, {}
        names = list(atoms(self.predicates, DOMAINS))
        for atom in chance.sample(names, len(names)):
            classes = self.predicates[atom[0]].classes
            drawn = [chance.gauss(0, 1.5) for _ in classes or "01"]
            self.potentials[atom] = drawn if classes else [0.0, drawn[1]]
            labellings /= len(drawn)
            if labellings < 1 or chance.random() < 0.1:
                self.evidence[atom] = chance.randrange(len(drawn))
                labellings *= len(drawn)
        self.domains = {
            type_name: DOMAINS[type_name]
            for type_name in {type_name for known in self.predicates.values() for type_name in known.types}
        }

    def index(self, atom):
        types = self.predicates[atom[0]].types
        return tuple(DOMAINS[type_name].index(name) for type_name, name in zip(types, atom[1], strict=True))

    def arrays(self):
        logits, evidence = {}, {}
        for name, declaration in self.predicates.items():
            shape = tuple(len(DOMAINS[type_name]) for type_name in declaration.types)
            classes = declaration.classes
            logits[name] = np.zeros((*shape, len(classes)) if classes else shape)
            evidence[name] = (np.zeros(shape, dtype=int if classes else bool), np.zeros(shape, dtype=bool))
        for atom, values in self.potentials.items():
            place = self.index(atom)
            logits[atom[0]][place] = values if self.predicates[atom[0]].classes else values[1]
            if atom in self.evidence:
                evidence[atom[0]][0][place], evidence[atom[0]][1][place] = self.evidence[atom], True
        return logits, evidence

    def masked(self, masked):
        domains = {t: tuple(name for name in names if name not in masked) for t, names in self.domains.items()}
        return domains, {t: np.array([name in domains[t] for name in names]) for t, names in self.domains.items()}

    def best(self, domains, *, distinct=False):
        exist = {
            atom: values for atom, values in self.potentials.items() if atom in set(atoms(self.predicates, domains))
        }
        return best_with_costs(
            self.rules.statements, self.costs, self.predicates, exist, self.evidence, domains, distinct=distinct
        )


@pytest.mark.parametrize("way", ["any", "program", "solver", "full"])
@given(
    found=statements(),
    seed=st.integers(0, 10**6),
    masked=st.sampled_from([(), (), ("2",), ("1", "b")]),
    distinct=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_it_is_the_best_of_all_labellings(way, found, seed, masked, distinct):
    case = Case(found, seed)
    hard = [s for s in found if isinstance(s, WeightedFormula) and s.kind == "hard"]
    domains, mask = case.masked(masked)
    assume(all(domains.values()))
    logits, evidence = case.arrays()
    expected = case.best(domains, distinct=distinct)
    with pytest.MonkeyPatch.context() as patch:
        if way in ("program", "solver"):
            patch.setattr("rulewright.inject.atoms.decoder.solve_forest", lambda *_: None)
        if way == "solver":
            patch.setattr(zero_one, "ENUMERATED", 0)
        try:
            method = "full" if way == "full" else "exact"
            decoder = rw.RuleDecoder(
                case.rules, domains=case.domains, distinct=distinct, rule_costs="weight", method=method
            )
            answer = decoder(logits, evidence, mask)
        except DataError as error:
            assume("entity with itself" not in str(error))
            assert "contradict" in str(error) and hard and expected is None, error
            return
    assert expected is not None
    objective, values, counts = expected
    assert answer.objective == pytest.approx(objective, abs=1e-9)
    assert answer.optimal and answer.violations == 0
    for atom, value in values.items():
        if atom not in case.evidence:
            assert answer.labels[atom[0]][case.index(atom)] == value, atom
    broken = {rule.position: rule for rule in answer.broken}
    assert {position: rule.count for position, rule in broken.items()} == {
        position: count for position, count in enumerate(counts) if count
    }
    for position, rule in broken.items():
        assert rule.rule == case.rules.statements[position]
        assert rule.cost == pytest.approx(rule.count * case.costs[position])
        assert len(list(rule.groundings())) == len(set(rule.groundings())) == rule.count
    assert answer.label_cost + answer.rule_cost == pytest.approx(answer.objective)
