"""Predicates with classes in MarkovLogic: against mean field grounding by grounding, in every way of training."""

from __future__ import annotations

import random
from itertools import product

import pytest
import torch
from inject.layer.plain_mean_field import atoms, mean_field, softmax

import rulewright as rw
from rulewright.data.builder import KnowledgeBaseBuilder
from rulewright.errors import DataError, RulewrightError
from rulewright.evaluate.classification import evaluate_classification, read_scores
from rulewright.files import write_text
from rulewright.learn.markov.facts import GroundFacts, add_query_entities, declare_types
from rulewright.learn.markov.learner import MarkovLogic
from rulewright.learn.markov.marginals import format_scores
from rulewright.learn.markov.network import MarkovNetwork
from rulewright.learn.markov.sampled_training import SampledTraining

TOKENS = ["t1", "t2", "t3"]
CLASSES = ("B-PER", "E-PER", "o")
RULES = rw.parse_rules("""
    predicate label(token) in {'B-PER', 'E-PER', o}.
    predicate next(token, token).
    predicate upper(token).
    1.5 label(T) in {'B-PER'} & next(T, U) => label(U) in {'E-PER'}.
    0.8 upper(T) => label(T) in {'B-PER', 'E-PER'}.
    -0.6 label(T) in {o} & label(U) in {o}.
    0.4 label(t1) in {o} <=> upper(t2).
""")
DECLARED = {declaration.name: declaration for declaration in RULES.predicates}
DOMAINS = {"token": TOKENS}


def small(seed: int, share: float = 0.4) -> rw.KnowledgeBase:
    draw = random.Random(seed)
    builder = KnowledgeBaseBuilder(RULES.predicates)
    for token in TOKENS:
        builder.entity(token, type="token")
    for one, other in product(TOKENS, TOKENS):
        if draw.random() < share:
            builder.add("next", [one, other], truth=draw.random() < 0.6)
    for token in TOKENS:
        if draw.random() < share:
            builder.add("upper", [token], truth=draw.random() < 0.6)
        if draw.random() < share:
            builder.add("label", [token], value=draw.choice(CLASSES))
    return builder.build()


def evidence_of(kb: rw.KnowledgeBase) -> dict[tuple[str, tuple[str, ...]], int]:
    known = {}
    for truth in (True, False):
        for name, args in kb.facts(truth=truth):
            if name == "label":
                known[name, (str(args[0]),)] = CLASSES.index(str(args[1]))
            else:
                known[name, tuple(map(str, args))] = int(truth)
    return known


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("closed", [(), ("next",)])
def test_it_is_mean_field_over_classes(seed, closed):
    kb = small(seed)
    model = MarkovLogic(RULES, iterations=4, damping=0.3, tolerance=None, prior={"upper": -0.5}, closed=closed).fit(kb)
    evidence, every = evidence_of(kb), list(atoms(DECLARED, DOMAINS))
    for atom in every:
        if atom[0] in closed:
            evidence.setdefault(atom, 0)
    potentials = {atom: [0.0] * 3 if atom[0] == "label" else [0.0, -0.5 * (atom[0] == "upper")] for atom in every}
    formulas = [(formula.weight, formula.formula) for formula in RULES.formulas]
    wanted = mean_field(formulas, DECLARED, DOMAINS, potentials, evidence, iterations=4, damping=0.3)
    found = {(marginal.predicate, marginal.args): marginal for marginal in model.predict(["label", "upper"])}
    for atom in every:
        if atom[0] == "next" or atom in evidence:
            assert (*atom[:1], atom[1]) not in found
            continue
        chances = softmax(wanted[atom])
        if atom[0] == "upper":
            assert found[atom].probability == pytest.approx(chances[1], abs=1e-5)
            continue
        for class_name, chance in zip(CLASSES, chances, strict=True):
            marginal = found["label", (*atom[1], class_name)]
            assert marginal.probability == pytest.approx(chance, abs=1e-5)
            assert marginal.has_class


@pytest.mark.parametrize("seed", range(6))
def test_messages_of_batches_with_classes(seed):
    kb = small(seed, share=0.3)
    facts = GroundFacts(kb, declare_types(RULES, kb))
    training = SampledTraining(MarkovNetwork(facts, MarkovLogic(RULES, training="sampled", batch_size=2000, seed=seed)))
    batch = training.sampler.batches(0)[0]  # so many that all groundings that tell are in it
    draw = torch.Generator().manual_seed(seed)
    logits = {
        name: torch.randn(len(columns[0]), *([3] if name == "label" else []), generator=draw)
        for name, columns in batch.atoms.items()
    }
    marginals, names = {}, []
    for name, columns in batch.atoms.items():
        for row, given in zip(zip(*columns, strict=True), logits[name], strict=True):
            names.append((name, tuple(str(facts.kb.domains["token"].labels_of(entity)) for entity in row)))
            marginals[names[-1]] = softmax(given.tolist() if name == "label" else [0.0, float(given)])
    evidence = evidence_of(kb)
    every = list(atoms(DECLARED, DOMAINS))
    for atom in every:
        size = 3 if atom[0] == "label" else 2
        if atom in evidence:
            marginals[atom] = [float(value == evidence[atom]) for value in range(size)]
        marginals.setdefault(atom, [1 / size] * size)
    one_step = mean_field(
        [(formula.weight, formula.formula) for formula in RULES.formulas],
        DECLARED,
        DOMAINS,
        {atom: [torch.tensor(chance).clamp(min=1e-30).log().item() for chance in marginals[atom]] for atom in every},
        evidence,
        iterations=1,
    )
    for atom, message in zip(names, training.messages(batch, logits), strict=True):
        size = len(marginals[atom])
        told = [new - torch.tensor(old).log().item() for new, old in zip(one_step[atom], marginals[atom], strict=True)]
        for value in range(1, size):
            difference = float(message[value] - message[0])
            assert difference == pytest.approx(told[value] - told[0], abs=1e-4)


@pytest.mark.parametrize(
    ("encoder", "training"),
    [
        ("none", "sampled"),
        ("embedding", "sampled"),
        ("gnn", "sampled"),
        ("gnn", "distill"),
        ("embedding", "end_to_end"),
    ],
)
def test_every_training_takes_classes(encoder, training, tmp_path):
    kb = small(3)
    options = {"encoder": encoder, "training": training, "epochs": 2, "size": 4, "batch_size": 30, "prior": "density"}
    one, other = (MarkovLogic(RULES, **options).fit(kb) for _ in range(2))
    marginals = one.predict(["label", "upper"])
    assert str(marginals) == str(other.predict(["label", "upper"]))
    by_atom: dict[object, float] = {}
    for marginal in marginals:
        if marginal.predicate == "label":
            by_atom[marginal.args[0]] = by_atom.get(marginal.args[0], 0) + marginal.probability
    assert all(total == pytest.approx(1, abs=1e-5) for total in by_atom.values())
    for token, class_name in kb.tuples("label"):
        (known,) = one.predict([("label", token, class_name)])
        assert known.probability == 1
    if training == "sampled":
        MarkovLogic(RULES, **options).fit(kb, tmp_path)
        assert str(MarkovLogic(RULES, **options).fit(kb, tmp_path).predict(["label", "upper"])) == str(marginals)


def test_rules_pull_classes_where_they_say():
    kb = KnowledgeBaseBuilder(RULES.predicates)
    for token in TOKENS:
        kb.entity(token, type="token")
    kb.add("next", ["t2", "t3"])
    kb.add("label", ["t2"], value="B-PER")
    rules = rw.parse_rules("""
        predicate label(token) in {'B-PER', 'E-PER', o}. predicate next(token, token).
        3.0 label(T) in {'B-PER'} & next(T, U) => label(U) in {'E-PER'}.
    """)
    for options in ({"iterations": 5}, {"training": "sampled", "epochs": 2, "batch_size": 20}):
        model = MarkovLogic(rules, closed="listed", **options).fit(kb.build())
        best = model.predict(["label(t3)"])[0]
        assert str(best) == "label(t3) in {'E-PER'}"
        assert best.logit == pytest.approx(3 - torch.tensor(2.0).log().item(), abs=0.1)


def test_ways_to_ask_and_to_write(tmp_path):
    kb = small(0, share=0.0)
    model = MarkovLogic(RULES).fit(kb)
    assert len(model.predict(["label"])) == 9
    assert len(model.predict(["label(t1)", "upper(t2)"])) == 4
    asked = model.predict(["label(t1) in {'B-PER', o}", ("label", "t2", "E-PER"), ("label", "t3")])
    assert {marginal.args for marginal in asked} == {
        ("t1", "B-PER"), ("t1", "o"), ("t2", "E-PER"), ("t3", "B-PER"), ("t3", "E-PER"), ("t3", "o")
    }  # fmt: skip
    frame = asked.to_frame("polars")
    assert frame["arg2"].to_list() == [marginal.args[1] for marginal in asked]
    gold = KnowledgeBaseBuilder(RULES.predicates)
    other = KnowledgeBaseBuilder(RULES.predicates)
    for token, class_name in zip(TOKENS, CLASSES, strict=True):
        gold.add("label", [token], value=class_name)
        other.add("label", [token], value="o")
    assert str(model.predict(gold.build())) == str(model.predict(other.build()))
    path = str(tmp_path / "scores.tsv")
    write_text(path, format_scores(model.predict(gold.build())))
    scores = read_scores(path)
    assert len(scores) == 9
    figures = evaluate_classification(scores, gold.build()).as_dict()
    assert figures["atoms"] == 9
    assert figures["true"] == 3
    assert len(add_query_entities(kb, gold.build()).domains["token"]) == 3


def test_learned_weights_with_classes():
    builder = KnowledgeBaseBuilder(RULES.predicates)
    draw = random.Random(0)
    for index in range(30):
        is_upper = draw.random() < 0.5
        builder.add("upper", [f"w{index}"], truth=is_upper)
        builder.add("label", [f"w{index}"], value="B-PER" if is_upper else "o")
    rules = rw.parse_rules("""
        predicate label(token) in {'B-PER', 'E-PER', o}. predicate upper(token).
        learn upper(T) => label(T) in {'B-PER'}. learn upper(T) => label(T) in {'E-PER'}.
    """)
    first, second = MarkovLogic(rules, weight_epochs=40).fit(builder.build()).rules_.formulas
    assert first.weight > 1 > second.weight


@pytest.mark.parametrize(
    ("options", "queries", "message"),
    [
        ({"closed": ["label"]}, ["label"], "has classes, so what is not observed of it is not false"),
        ({"prior": {"label": 1.0}}, ["label"], "and label has classes"),
        ({}, [("label", "t1", "B-LOC")], "unknown class of label 'B-LOC'"),
        ({}, ["label(t1) in {'B-LOC'}"], "unknown class of label 'B-LOC'"),
        ({}, ["upper(t1) in {yes}"], "upper has no classes, a query asks for yes"),
        ({}, [("label", "t1", "o", "o")], "label has 1 arguments, a query gives it 3"),
    ],
)
def test_what_is_refused(options, queries, message):
    with pytest.raises(RulewrightError, match=message):
        MarkovLogic(RULES, **options).fit(small(0, share=0.0)).predict(queries)


def test_declared_classes_must_agree():
    with pytest.raises(DataError, match="the facts have"):
        MarkovLogic(rw.parse_rules("predicate label(token) in {a, b}. 1.0 label(X) in {a}.")).fit(small(0))
