"""Exclusions beside a plain count of the same, on random facts; what is found of labels and of relations."""

from __future__ import annotations

import json
import math
from collections import Counter
from itertools import combinations, product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import rulewright as rw
from rulewright.cli import app
from rulewright.data import KnowledgeBaseBuilder
from rulewright.learn.miner.exclusions import CHANCE, LEAST_SHARE
from rulewright.logic import PredicateDeclaration


def fit(kb, **options):
    return rw.RuleMiner(exclusions=True, max_length=1, **options).fit(kb)


def written(miner):
    return {str(formula.formula): dict(formula.annotations) for formula in miner.rules_.formulas}


def poisson(most, mean):
    return sum(math.exp(-mean) * mean**count / math.factorial(count) for count in range(most + 1))


def choose(candidates, share=LEAST_SHARE):
    """Keep (text, together, body, expected) of pairs that meet too seldom."""
    compared = sum(expected > 0 for *_, expected in candidates)
    return {
        text: {"support": body - together, "body": body, "expected": round(expected, 2)}
        for text, together, body, expected in candidates
        if expected > 0 and body - together >= share * body and poisson(together, expected) * compared <= CHANCE
    }


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from((30, 120)))
def test_labels_beside_a_plain_count(seed, size):
    draw = np.random.default_rng(seed)
    holds = {name: draw.random(size) < draw.uniform(0.1, 0.7) for name in "pqrs"}
    holds["q"] &= ~holds["p"]
    holds["s"] &= ~holds["r"] | (draw.random(size) < 0.02)
    kb = rw.KnowledgeBase.from_labels(holds)
    candidates = []
    for one, other in combinations([name for name in "pqrs" if holds[name].sum() >= 2], 2):
        a, b = int(holds[one].sum()), int(holds[other].sum())
        together = int((holds[one] & holds[other]).sum())
        candidates.append((f"!({one}(X) & {other}(X))", together, min(a, b), a * b / size))
    assert written(fit(kb)) == choose(candidates)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6))
def test_relations_beside_a_plain_count(seed):
    draw = np.random.default_rng(seed)
    pairs = list(product(range(9), repeat=2))
    facts = {
        name: {pair for pair in pairs if draw.random() < share} for name, share in (("r", 0.5), ("s", 0.5), ("t", 0.3))
    }
    facts["s"] -= facts["r"]
    facts["t"] = {(x, y) for x, y in facts["t"] if x < y}
    kb = rw.KnowledgeBase.from_triples([(f"e{x}", name, f"e{y}") for name in "rst" for x, y in sorted(facts[name])])
    names = [name for name in "rst" if len(facts[name]) >= 2]
    expected_texts = {}
    for swapped in (False, True):
        candidates = []
        for one, other in product(names, repeat=2):
            if names.index(one) > names.index(other) or (one == other and not swapped):
                continue
            seen = {(y, x) for x, y in facts[other]} if swapped else facts[other]
            degrees = [
                (Counter(pair[end] for pair in facts[one]), Counter(pair[end] for pair in seen)) for end in (0, 1)
            ]
            sums = [sum(d[e] * f[e] for e in range(9)) for d, f in degrees]
            expected = sums[0] * sums[1] / (len(facts[one]) * len(seen))
            text = f"!({one}(X, Y) & {other}({'Y, X' if swapped else 'X, Y'}))"
            body = min(len(facts[one]), len(seen))
            candidates.append((text, len(facts[one] & seen), body, expected))
        expected_texts |= choose(candidates)
    assert written(fit(kb)) == expected_texts


def test_classes_types_and_targets():
    declared = [PredicateDeclaration("kind", ("animal",), ("cat", "dog")), PredicateDeclaration("rides", ("person",))]
    declared += [PredicateDeclaration(name, ("animal",)) for name in ("barks", "meows")]
    builder = KnowledgeBaseBuilder(declared)
    for index in range(60):
        builder.add("kind", [f"a{index}"], value="cat" if index % 2 else "dog")
        builder.add("meows" if index % 2 else "barks", [f"a{index}"])
        builder.add("rides", [f"p{index}"])
    counts = {"support": 30, "body": 30, "expected": 15.0}
    texts = ("!(barks(X) & meows(X))", "!(kind(X) in {cat} & barks(X))", "!(kind(X) in {dog} & meows(X))")
    assert written(fit(builder.build())) == dict.fromkeys(texts, counts)
    samples = np.arange(80)
    kb = rw.KnowledgeBase.from_labels({"p": samples % 2 == 0, "q": samples % 2 == 1, "r": samples < 0})
    assert written(fit(kb, targets=["q"])) == {"!(p(X) & q(X))": {"support": 40, "body": 40, "expected": 20.0}}
    assert rw.RuleMiner(max_length=1).fit(kb).rules_.formulas == ()
    assert written(fit(kb, unary=False)) == {}


def test_label_implications_and_types_of_bodies():
    draw = np.random.default_rng(3)
    kind = draw.integers(0, 3, 300)
    labels = {"dog": kind == 0, "cat": kind == 1, "car": kind == 2, "animal": kind < 2}
    miner = fit(rw.KnowledgeBase.from_labels(labels))
    implied = {(str(rule.head), *map(str, rule.body)): rule for rule in miner.rules_.rules}
    dog = implied["animal(V0)", "dog(V0)"]
    assert dog.support == dog.annotations["body"] == int((kind == 0).sum())
    assert {"!(dog(X) & cat(X))", "!(car(X) & animal(X))"} <= set(written(miner))
    facts = [("s", f"a{n}", f"b{n}") for n in range(60)]
    facts += [("person", f"a{n}") for n in range(0, 60, 2)] + [("r", f"a{n}", f"b{n}") for n in range(0, 60, 2)]
    rules = rw.RuleMiner(max_length=1).fit(rw.KnowledgeBase.from_facts(facts)).rules_.rules
    typed = [rule for rule in rules if {part.predicate for part in rule.body if part.args} == {"s", "person"}]
    plain = next(rule for rule in rules if rule.head.predicate == "r" and [p.predicate for p in rule.body] == ["s"])
    best = next(rule for rule in typed if rule.head.predicate == "r")
    assert (best.support, best.annotations["body"]) == (30, 30) and best.confidence > plain.confidence


def test_the_command_writes_exclusions(tmp_path):
    lines = [f"p(e{n})." if n % 2 else f"q(e{n})." for n in range(60)]
    (tmp_path / "a.facts").write_text("\n".join(lines) + "\n")
    run = CliRunner()
    shown = run.invoke(app, ["learn", str(tmp_path / "a.facts"), "--exclusions"])
    assert shown.exit_code == 0 and "!(q(X) & p(X))" in shown.stdout, shown.output
    listed = json.loads(run.invoke(app, ["learn", str(tmp_path / "a.facts"), "--exclusions", "--json"]).stdout)
    text = "hard !(q(X) & p(X)). @{support: 30, body: 30, expected: 15.0}"
    assert {"formula": text, "support": 30, "body": 30, "expected": 15.0} in listed


def test_what_chance_keeps_apart_is_no_exclusion():
    facts = [("in", f"a{n}", f"b{n % 3}") for n in range(40)] + [("near", f"b{n}", f"c{n}") for n in range(40)]
    assert written(fit(rw.KnowledgeBase.from_facts(facts))) == {}
