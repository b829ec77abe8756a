"""What rules say of atoms, beside all groundings of all formulas one by one, and beside the layer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from inject.layer.plain_mean_field import ground_atoms, groundings, holds, message

from rulewright.inject import LogicLayer, rule_messages
from rulewright.inject.atom_space import AtomSpace, statement_formulas
from rulewright.inject.labelled_worlds import read_labelled_worlds
from rulewright.inject.rule_likelihood import Likelihood
from rulewright.inject.rule_messages import measure_rules, read_messages, split_rows
from rulewright.logic import Implies, parse_rules

PAIRS = """
    0.9 :: r(X, Z) :- s(X, Y), t(Y, Z).
    0.8 :: r(X, Y) :- r(Y, X).
    0.7 :: s(X, Z) :- s(X, Y), s(Y, Z).
    0.6 :: t(X, Y) :- r(X, Y) ; s(Y, X).
    2.5 r(X, Y) & s(X, Y) => t(Y, X).
    learn r(X, Y) <=> s(X, Y).
"""
MIXED = """
    predicate tag(token) in {b, i, o}.
    predicate likes(person, token).
    predicate tall(person).
    closed next.
    predicate next(token, token).
    0.9 :: tag(U) in {i, o} :- next(T, U), tag(T) in {b}.
    0.8 :: tall(P) :- likes(P, T), tag(T) in {b, i}.
    0.7 :: likes(P, U) :- likes(P, T), next(T, U), !tall(P).
    hard tall(P) => tall(P).
    1.0 tag(T) in {o} | tall(P) => likes(P, T).
    0.5 :: likes(P, t0) :- tall(P).
"""


def plain_world(space, logits, evidence):
    """The names of entities, and the probabilities of each atom's classes."""
    domains = {}
    for name, declaration in space.predicates.items():
        shape = (logits.get(name) if name in logits else evidence[name]).shape
        for position, type_name in enumerate(declaration.types):
            domains[type_name] = [f"t{index}" for index in range(shape[position])]
    marginals = {}
    for name, declaration in space.predicates.items():
        for args in itertools.product(*(domains[type_name] for type_name in declaration.types)):
            index = tuple(int(text[1:]) for text in args)
            if name in evidence:
                true = float(evidence[name][index])
                marginals[name, args] = [1 - true, true]
            elif declaration.classes is None:
                true = 1 / (1 + np.exp(-logits[name][index]))
                marginals[name, args] = [1 - true, true]
            else:
                powers = np.exp(logits[name][index])
                marginals[name, args] = (powers / powers.sum()).tolist()
    return domains, marginals


def plain_messages(space, statement, domains, marginals):
    """By atom, what the statement adds to the log-odds of each class; of truth beside falsehood without classes."""
    found = {}
    for formula in statement_formulas(statement):
        for binding in groundings(formula, space.predicates, domains, distinct=space.distinct):
            for atom in ground_atoms(formula, binding):
                total = found.setdefault(atom, np.zeros(len(marginals[atom])))
                total += message(formula, binding, atom, marginals, space.predicates)
    return found


@pytest.fixture
def every_atom(monkeypatch):
    """Every atom has a row of its own."""
    monkeypatch.setattr(rule_messages, "TOUCHED", 0.0)


def random_pairs(rng, sizes=(4, 5, 3)):
    logits = [rng.normal(size=(size, size, 3)) for size in sizes]
    return logits, [rng.random(part.shape) < 0.4 for part in logits]


def random_mixed(rng, sizes=((4, 3), (3, 2), (5, 4))):
    calls = []
    for tokens, people in sizes:
        logits = {
            "tag": rng.normal(size=(tokens, 3)),
            "likes": rng.normal(size=(people, tokens)),
            "tall": rng.normal(size=people),
        }
        gold = {
            "tag": rng.integers(3, size=tokens),
            "likes": rng.random((people, tokens)) < 0.5,
            "tall": rng.random(people) < 0.5,
        }
        calls.append((logits, gold, {"next": rng.random((tokens, tokens)) < 0.4}))
    return [list(part) for part in zip(*calls, strict=True)]


@pytest.mark.parametrize("seed", range(3))
def test_messages_are_those_of_all_groundings(seed, every_atom):
    rng = np.random.default_rng(seed)
    rules, relations = parse_rules(PAIRS), ["r", "s", "t"]
    logits, gold = random_pairs(rng)
    space = AtomSpace(rules, relations=relations)
    rows = list(split_rows(space, read_labelled_worlds(logits, gold, space=space)))
    found, classed = read_messages(space, rows, range(len(rules)))
    assert len(classed) == 0
    for index, (given, truth) in enumerate(zip(logits, gold, strict=True)):
        by_name = {name: given[..., position] for position, name in enumerate(relations)}
        domains, marginals = plain_world(space, by_name, {})
        wanted = {}
        for column, statement in enumerate(rules):
            for (name, args), total in plain_messages(space, statement, domains, marginals).items():
                position = (*(int(text[1:]) for text in args), relations.index(name))
                wanted.setdefault(position, np.zeros(len(rules)))[column] = total[1] - total[0]
        of_world = found.worlds == index
        for row in np.flatnonzero(of_world):
            matches = [
                position
                for position, messages in wanted.items()
                if given[position] == found.logits[row] and truth[position] == found.gold[row]
            ]
            assert len(matches) == 1
            np.testing.assert_allclose(found.messages[row].toarray()[0], wanted.pop(matches[0]), atol=1e-9)
        assert all(np.abs(messages).max() <= rule_messages.NO_MESSAGE for messages in wanted.values())


@pytest.mark.parametrize("seed", range(3))
def test_messages_of_classes_evidence_and_constants(seed, every_atom):
    rng = np.random.default_rng(seed)
    rules = parse_rules(MIXED)
    logits, gold, evidence = random_mixed(rng)
    fitted = [index for index, statement in enumerate(rules) if getattr(statement, "kind", "") != "hard"]
    for call in range(len(logits)):
        names = [f"t{index}" for index in range(len(logits[call]["tag"]))]
        space = AtomSpace(rules, domains={"token": names})
        worlds = read_labelled_worlds(logits[call], gold[call], space=space, evidence=evidence[call])
        rows = list(split_rows(space, worlds))
        binary, classed = read_messages(space, rows, fitted)
        domains, marginals = plain_world(space, logits[call], evidence[call])
        wanted = [plain_messages(space, rules[index], domains, marginals) for index in fitted]
        for name, part in (("tag", classed), ("likes", binary), ("tall", binary)):
            flat = logits[call][name].reshape(-1)
            atoms = [atom for atom in marginals if atom[0] == name]
            width = 3 if name == "tag" else 1
            for position, value in enumerate(flat):
                row = np.flatnonzero(part.logits == value)
                atom, class_index = atoms[position // width], position % width
                totals = [found.get(atom, np.zeros(len(marginals[atom]))) for found in wanted]
                if name == "tag":
                    expected = [total[class_index] for total in totals]
                    first = part.starts[np.searchsorted(part.starts, row[0], side="right") - 1]
                    got = part.messages[row[0]].toarray()[0]
                    base = part.messages[first].toarray()[0]
                    np.testing.assert_allclose(
                        got - base, np.array(expected) - [total[0] for total in totals], atol=1e-9
                    )
                else:
                    got = part.messages[row[0]].toarray()[0] if len(row) else np.zeros(len(fitted))
                    np.testing.assert_allclose(got, [total[1] - total[0] for total in totals], atol=1e-9)


def test_messages_add_up_to_what_the_layer_does(every_atom):
    rng = np.random.default_rng(0)
    rules = parse_rules(PAIRS).with_weights([0.5, 1.5, 0.3, 0.2, 0.7, 1.1])
    logits, gold = random_pairs(rng)
    space = AtomSpace(rules, relations=["r", "s", "t"])
    rows = list(split_rows(space, read_labelled_worlds(logits, gold, space=space)))
    found, _ = read_messages(space, rows, range(len(rules)))
    layer = LogicLayer(rules, relations=["r", "s", "t"], iterations=1, weights="annotated")
    weights = np.array([0.5, 1.5, 0.3, 0.2, 0.7, 1.1])
    after = found.logits + found.messages @ weights
    for index, part in enumerate(logits):
        output = layer(torch.from_numpy(part)).numpy()
        for row in np.flatnonzero(found.worlds == index):
            assert after[row] == pytest.approx(output[part == found.logits[row]].item())


def test_atoms_without_a_row_of_their_own_are_added_up(monkeypatch):
    rng = np.random.default_rng(1)
    relations = ["r", "s", "t"]
    logits = [rng.normal(-8, 2, size=(size, size, 3)) for size in (16, 20)]
    gold = [rng.random(part.shape) < 0.01 for part in logits]
    space = AtomSpace(parse_rules(PAIRS), relations=relations)
    rows = list(split_rows(space, read_labelled_worlds(logits, gold, space=space)))
    added, _ = read_messages(space, rows, range(6))
    monkeypatch.setattr(rule_messages, "TOUCHED", 0.0)
    every, _ = read_messages(space, rows, range(6))
    assert len(added) < len(every) / 2
    assert added.gold.sum() == every.gold.sum()
    one, other = (Likelihood([part], np.ones(2, dtype=bool)) for part in (added, every))
    for weights in (np.zeros(6), np.full(6, 0.5), rng.random(6), np.full(6, 3.0)):
        np.testing.assert_allclose(one.gains(weights), other.gains(weights), rtol=0.05, atol=0.01)
        np.testing.assert_allclose(one.loss(weights)[1], other.loss(weights)[1], rtol=0.05, atol=0.05)


def plain_cases(space, statement, logits, evidence):
    """The body's expected and predicted groundings for each atom of the head, given that the head is false."""
    domains, marginals = plain_world(space, logits, evidence)
    hardened = {
        atom: [float(index == max(range(len(values)), key=values.__getitem__)) for index in range(len(values))]
        for atom, values in marginals.items()
    }
    found = {}
    for formula in statement_formulas(statement):
        assert isinstance(formula, Implies)
        for binding in groundings(formula, space.predicates, domains, distinct=space.distinct):
            (head,) = ground_atoms(formula.conclusion, binding)
            body = list(ground_atoms(formula.premise, binding))
            entry = found.setdefault(head, [0.0, 0])
            unless = {
                value
                for value in range(len(marginals[head]))
                if not holds(formula.conclusion, binding, {head: value}, space.predicates)
            }
            for position, known in enumerate((marginals, hardened)):
                outside = sum(known[head][value] for value in unless)
                given = [
                    (known[head][value] / outside if outside else 1 / len(unless)) if value in unless else 0.0
                    for value in range(len(known[head]))
                ]
                known = {**known, head: given}
                for values in itertools.product(*(range(len(known[atom])) for atom in body)):
                    world = dict(zip(body, values, strict=True))
                    if holds(formula.premise, binding, world, space.predicates):
                        entry[position] += np.prod([known[atom][world[atom]] for atom in body])
    return found


@pytest.mark.parametrize("distinct", [True, False])
def test_cases_are_those_of_all_groundings(distinct):
    rng = np.random.default_rng(4)
    rules = parse_rules("r(X, Z) :- s(X, Y), t(Y, Z). s(X, Z) :- s(X, Y), s(Y, Z). t(X, Y) :- r(X, Y) ; s(Y, X).")
    relations = ["r", "s", "t"]
    logits, gold = random_pairs(rng)
    space = AtomSpace(rules, relations=relations, distinct=distinct)
    rows = list(split_rows(space, read_labelled_worlds(logits, gold, space=space)))
    measured = measure_rules(space, rows)
    for statement, cases in zip(rules, measured, strict=True):
        expected = fired = held = 0.0
        scores = []
        for given, truth in zip(logits, gold, strict=True):
            by_name = {name: given[..., position] for position, name in enumerate(relations)}
            for (name, args), (body, count) in plain_cases(space, statement, by_name, {}).items():
                position = (*(int(text[1:]) for text in args), relations.index(name))
                expected += min(1.0, body)
                if count > 0.5:
                    fired += 1
                    held += truth[position]
                    scores.append(1 / (1 + np.exp(-given[position])))
        assert (cases.fired, cases.held) == (fired, held)
        assert cases.expected == pytest.approx(expected, abs=1e-4)
        assert cases.head_score == pytest.approx(np.mean(scores), abs=1e-6)


def test_cases_of_classes_and_evidence():
    rng = np.random.default_rng(5)
    rules = parse_rules(MIXED)
    logits, gold, evidence = random_mixed(rng, ((5, 4),))
    space = AtomSpace(rules, domains={"token": [f"t{index}" for index in range(5)]})
    worlds = read_labelled_worlds(logits, gold, space=space, evidence=evidence)
    measured = measure_rules(space, list(split_rows(space, worlds)))
    assert measured[5 - 1] is not None  # a disjunction implies one atom too
    for index in (0, 1, 2, 5):
        statement, cases = rules[index], measured[index]
        expected = fired = held = 0.0
        for (name, args), (body, count) in plain_cases(space, statement, logits[0], evidence[0]).items():
            truth = gold[0][name][tuple(int(text[1:]) for text in args)]
            expected += min(1.0, body)
            fired += count > 0.5
            held += count > 0.5 and bool(np.isin(truth, [1, 2]) if name == "tag" else truth)
        assert (cases.fired, cases.held) == (fired, held)
        assert cases.expected == pytest.approx(expected, abs=1e-4)
