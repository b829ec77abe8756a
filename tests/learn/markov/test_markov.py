"""MarkovLogic against mean field grounding by grounding, and what it promises about samples, worlds and training."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest
import torch
from inject.layer.plain_mean_field import atoms, mean_field
from real_data import DATA, needs_data
from sklearn.base import clone

import rulewright as rw
from rulewright.data.builder import KnowledgeBaseBuilder
from rulewright.errors import DataError, NotFittedError, RulewrightError
from rulewright.inject import LogicLayer
from rulewright.learn.markov.domains import cover_rows
from rulewright.learn.markov.facts import add_query_entities
from rulewright.learn.markov.learner import MarkovLogic
from rulewright.learn.markov.marginals import Marginal, format_scores

PEOPLE = ["ann", "bob", "cid", "dee"]
TOWNS = ["bonn", "rome"]
RULES = rw.parse_rules("""
    predicate smokes(person).
    predicate friend(person, person).
    predicate lives(person, town).
    1.2 smokes(X) & friend(X, Y) => smokes(Y).
    0.7 friend(X, Y) => friend(Y, X).
    -0.4 friend(X, Y) & friend(Y, Z) => friend(X, Z).
    0.9 lives(X, T) & lives(Y, T) => friend(X, Y).
    0.5 lives(X, bonn) => smokes(X).
    0.8 :: smokes(X) :- lives(X, rome).
""")


def small(seed: int, *, share: float = 0.4, names: tuple[str, ...] = ("smokes", "friend", "lives")) -> rw.KnowledgeBase:
    draw = random.Random(seed)
    builder = KnowledgeBaseBuilder(RULES.predicates)
    domains = {"person": PEOPLE, "town": TOWNS}
    for type_name, labels in domains.items():
        for label in labels:
            builder.entity(label, type=type_name)
    for declaration in RULES.predicates:
        for args in product(*(domains[type_name] for type_name in declaration.types)):
            if declaration.name in names and draw.random() < share:
                builder.add(declaration.name, args, truth=draw.random() < 0.6)
    return builder.build()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("closed", [(), ("lives",)])
def test_without_an_encoder_it_is_plain_mean_field(seed, closed):
    kb = small(seed)
    prior = {"smokes": -0.3, "friend": 0.2, "lives": -1.0}
    model = MarkovLogic(RULES, iterations=4, damping=0.3, tolerance=None, prior=prior, closed=closed, weights="one")
    marginals = model.fit(kb).predict(["smokes", "friend", "lives"] if not closed else ["smokes", "friend"])
    predicates = {declaration.name: declaration for declaration in RULES.predicates}
    domains = {"person": PEOPLE, "town": TOWNS}
    evidence = {(name, tuple(args)): int(truth) for truth in (True, False) for name, args in kb.facts(truth=truth)}
    every = list(atoms(predicates, domains))
    for atom in every:
        if atom[0] in closed:
            evidence.setdefault(atom, 0)
    potentials = {atom: [0.0, prior[atom[0]]] for atom in every}
    formulas = [(formula.weight, formula.formula) for formula in RULES.formulas]
    formulas.append((1.0, rw.parse_formula("lives(X, rome) => smokes(X)")))
    wanted = mean_field(formulas, predicates, domains, potentials, evidence, iterations=4, damping=0.3)
    assert {(marginal.predicate, marginal.args) for marginal in marginals} == {
        atom for atom in every if atom not in evidence
    }
    for marginal in marginals:
        low, high = wanted[marginal.predicate, marginal.args]
        assert marginal.logit == pytest.approx(high - low, abs=1e-4)
    assert [marginal.logit for marginal in marginals] == sorted(
        (marginal.logit for marginal in marginals), reverse=True
    )


def test_it_is_the_layer():
    kb = small(3)
    model = MarkovLogic(RULES, iterations=3, damping=0.0, tolerance=None).fit(kb)
    domains = {"person": PEOPLE, "town": TOWNS}
    layer = LogicLayer(RULES, domains, 3)
    zeros = {
        declaration.name: torch.zeros([len(domains[type_name]) for type_name in declaration.types])
        for declaration in RULES.predicates
    }
    wanted = layer(zeros, {name: kb.tensor(name) for name in zeros})
    for marginal in model.predict(["friend"]):
        position = tuple(PEOPLE.index(name) for name in marginal.args)
        assert marginal.logit == pytest.approx(float(wanted["friend"][position]), abs=1e-5)


@pytest.mark.parametrize("encoder", ["none", "embedding", "gnn"])
def test_a_sample_of_all_entities_is_the_full_run(encoder):
    kb = small(1)
    full = MarkovLogic(RULES, encoder=encoder, sample=None).fit(kb).predict(["smokes", "friend"])
    sampled = MarkovLogic(RULES, encoder=encoder, sample=4).fit(kb).predict(["smokes", "friend"])
    assert [str(marginal) for marginal in full] == [str(marginal) for marginal in sampled]
    assert [marginal.logit for marginal in full] == pytest.approx([marginal.logit for marginal in sampled], abs=1e-6)


def chain(length: int) -> rw.KnowledgeBase:
    return rw.KnowledgeBase.from_facts(
        [("smokes", "p0"), *(("friend", f"p{n}", f"p{n + 1}") for n in range(length - 1))]
    )


def test_samples_cover_all_queries_and_keep_to_their_size():
    kb = chain(60)
    rules = rw.parse_rules("2.0 smokes(X) & friend(X, Y) => smokes(Y). 0.1 friend(X, p7) => smokes(X).")
    model = MarkovLogic(rules, sample=9, closed=["friend"], prior=-1.0, seed=3).fit(kb)
    marginals = model.predict(["smokes"])
    assert len(marginals) == 59
    assert len(model.convergence_) > 5
    network = model.network_
    world = network.facts.worlds()[0]
    columns = {"smokes": (world["entity"],)}
    seen = set()
    for members in cover_rows(network, world, columns, np.random.default_rng(0)):
        assert len(members["entity"]) == 9
        assert kb.domains["entity"].index_of("p7") in members["entity"]
        seen |= set(members["entity"].tolist())
    assert seen == set(world["entity"].tolist())


def documents() -> rw.KnowledgeBase:
    builder = KnowledgeBaseBuilder()
    for world, size in (("one", 3), ("two", 4)):
        builder.world(world)
        for index in range(size - 1):
            builder.add("friend", [f"{world}{index}", f"{world}{index + 1}"], world=world)
        builder.add("smokes", [f"{world}0"], world=world)
    return builder.build()


def test_worlds_are_networks_of_their_own():
    kb = documents()
    rules = rw.parse_rules("1.5 smokes(X) & friend(X, Y) => smokes(Y). -0.2 smokes(X) & smokes(Y).")
    marginals = MarkovLogic(rules, tolerance=None).fit(kb).predict(["smokes"])
    alone = rw.KnowledgeBase.from_facts([("smokes", "one0"), ("friend", "one0", "one1"), ("friend", "one1", "one2")])
    wanted = {
        str(marginal): marginal.logit for marginal in MarkovLogic(rules, tolerance=None).fit(alone).predict(["smokes"])
    }
    assert len(marginals) == 5
    assert {str(marginal): marginal.logit for marginal in marginals if "one" in str(marginal)} == pytest.approx(
        wanted, abs=1e-5
    )
    with pytest.raises(DataError, match="different worlds"):
        MarkovLogic(rules).fit(kb).predict([("friend", "one0", "two1")])


def test_labels_of_queries_change_nothing():
    kb = small(2)
    queries = KnowledgeBaseBuilder(RULES.predicates)
    swapped = KnowledgeBaseBuilder(RULES.predicates)
    for index, marginal in enumerate(MarkovLogic(RULES).fit(kb).predict(["friend", "smokes"])):
        queries.add(marginal.predicate, marginal.args, truth=index % 3 == 0)
        swapped.add(marginal.predicate, marginal.args, truth=index % 3 != 0)
    model = MarkovLogic(RULES).fit(kb)
    assert str(model.predict(queries.build())) == str(model.predict(swapped.build()))


def test_density_and_scaling():
    kb = chain(20)
    rules = rw.parse_rules("1.0 smokes(X) & friend(Y, Z) => smokes(Y). 1.0 smokes(X) & friend(X, Y) => smokes(Y).")
    plain = MarkovLogic(rules, closed=["friend"]).fit(kb)
    scaled = MarkovLogic(rules, closed=["friend"], scaling="messages", prior="density").fit(kb)
    assert [formula.weight for formula in plain.rules_.formulas] == [1, 1]
    first, second = (formula.weight for formula in scaled.rules_.formulas)
    assert first < 0.5
    assert second == 1
    squared = MarkovLogic(rules, closed=["friend"], scaling="messages", scaling_power=2.0, prior="density").fit(kb)
    assert [formula.weight for formula in squared.rules_.formulas] == pytest.approx([first**2, 1])
    logits = [marginal.logit for marginal in scaled.predict(["smokes"])]
    assert max(logits) < max(marginal.logit for marginal in plain.predict(["smokes"]))


@pytest.mark.slow
def test_weights_are_learned_from_hidden_facts():
    random_bits = random.Random(0)
    facts, false = [], []
    for index in range(40):
        name = f"p{index}"
        sick = random_bits.random() < 0.5
        facts.append(("coughs", name)) if sick else facts.append(("runs", name))
        facts.append(("ill", name)) if sick != (random_bits.random() < 0.1) else false.append(name)
    kb = rw.KnowledgeBase.from_facts(facts)
    rules = rw.parse_rules("learn coughs(X) => ill(X). learn runs(X) => ill(X). 0.5 runs(X) => !coughs(X).")
    model = MarkovLogic(rules, closed="listed", weight_epochs=60, seed=1).fit(kb)
    first, second, third = model.rules_.formulas
    assert first.weight > 1
    assert second.weight < 0
    assert third.weight == 0.5
    assert model.losses_["weights"][-1] < model.losses_["weights"][0]
    latent = rw.parse_rules("1.0 coughs(X) => ill(X). 1.0 coughs(X) => tired(X). 1.0 tired(X) => ill(X).")
    held = MarkovLogic(latent, closed="listed", weight_epochs=5, learn_weights=True).fit(kb).rules_.formulas
    assert [formula.weight == 1 for formula in held] == [False, True, True]  # nothing is known of who is tired
    with pytest.raises(DataError, match="nothing to learn weights from"):
        MarkovLogic(rw.parse_rules("learn a(X) => b(X).")).fit(kb)


@pytest.mark.slow
@pytest.mark.parametrize("training", ["distill", "end_to_end"])
@pytest.mark.parametrize("encoder", ["embedding", "gnn"])
def test_training_is_repeatable_and_lowers_the_loss(encoder, training):
    kb = small(5)
    options = {"encoder": encoder, "training": training, "epochs": 30, "seed": 4, "rate": 0.02}
    one, two = (MarkovLogic(RULES, **options).fit(kb) for _ in range(2))
    assert str(one.predict(["friend"])) == str(two.predict(["friend"]))
    losses = one.losses_["encoder"]
    assert len(losses) == 30
    if training != "distill":  # whose target moves
        assert sum(losses[-10:]) < sum(losses[:10])


@pytest.mark.slow
def test_distillation_carries_rules_to_where_they_do_not_reach():
    facts = []
    for index in range(20):
        facts += [("parent", f"m{index}", f"k{index}"), ("trousers", f"m{index}", f"k{index}")]
        facts += [("aunt", f"w{index}", f"k{index}"), ("skirt", f"w{index}", f"k{index}")]
    facts += [("trousers", "x", "k0"), ("skirt", "y", "k0")]
    kb = rw.KnowledgeBase.from_facts(facts)
    rules = rw.parse_rules("2.0 parent(X, Y) => male(X). 2.0 aunt(X, Y) => !male(X).")
    bare = MarkovLogic(rules, closed="listed").fit(kb).predict(["male(x)", "male(y)"])
    assert bare[0].logit == bare[1].logit == 0
    model = MarkovLogic(rules, closed="listed", encoder="gnn", training="distill", epochs=60).fit(kb)
    assert str(model.predict(["male(x)", "male(y)"])[0]) == "male(x)"


def test_convergence_is_reported():
    rules = rw.parse_rules("2.0 !(inside(X) & inside(Y)).")
    kb = rw.KnowledgeBase.from_facts([("known", f"p{n}") for n in range(6)])
    wild, tame = MarkovLogic(rules, damping=0.0, prior=8.0), MarkovLogic(rules, damping=0.7, iterations=100, prior=8.0)
    for model in (wild, tame):
        model.fit(kb).predict(["inside"])
    assert not wild.convergence_[0].converged
    assert tame.convergence_[0].converged


def test_progress_and_explanation():
    reports = []
    model = MarkovLogic(
        RULES, encoder="gnn", training="distill", epochs=3, progress=lambda *report: reports.append(report)
    )
    model.fit(small(0)).predict(["smokes"])
    assert ("training the encoder", 3, 3) in reports
    assert ("inferring", 1, 1) in reports
    assert "smokes(ann)" in model.explain("smokes(ann)")


def test_the_form_of_results():
    kb = small(0)
    marginals = MarkovLogic(RULES).fit(kb).predict(["smokes", ("friend", "ann", "bob"), "friend(bob, cid)"])
    assert marginals.predicates == ("smokes", "friend")
    assert marginals.top(2) == marginals[:2]
    assert len(marginals.columns("friend")[1]) == 2
    assert str(marginals).count("\n") == len(marginals)
    assert "atoms of smokes, friend" in repr(marginals)
    assert Marginal("p", ("a",), -800.0).probability == 0
    lines = format_scores(marginals).splitlines()
    assert len(lines) == len(marginals) + 1
    with pytest.raises(RulewrightError, match="unknown predicate 'smoke'"):
        marginals.columns("smoke")


def test_triples_have_one_type_whatever_rules_declare():
    kb = rw.KnowledgeBase.from_triples([("ann", "friend", "bob")])
    rules = rw.parse_rules("predicate smokes(person). predicate friend(person, person). 1.0 friend(X, Y) => smokes(X).")
    assert len(MarkovLogic(rules).fit(kb).predict(["smokes"])) == 2


def test_entities_that_only_queries_name():
    kb = rw.KnowledgeBase.from_facts([("friend", "ann", "bob")])
    more = add_query_entities(kb, rw.KnowledgeBase.from_facts([("friend", "cid", "ann")]))
    assert more.domains["entity"].labels.tolist() == ["ann", "bob", "cid"]
    assert more.tuples("friend") == [("ann", "bob")]
    assert add_query_entities(kb, kb) is kb
    assert add_query_entities(kb, ["friend"]) is kb


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder": "big"}, "encoder must be 'none', 'embedding' or 'gnn', got 'big'"),
        ({"training": "distill"}, "needs an encoder"),
        ({"closed": "all"}, "closed must be names of predicates or 'listed'"),
        ({"closed": ["nothing"]}, "unknown predicate 'nothing'"),
        ({"prior": "low"}, "prior must be a number"),
        ({"prior": {"nothing": 1.0}}, "unknown predicate 'nothing'"),
        ({"scaling": "big"}, "scaling must be 'none' or 'messages'"),
        ({"scaling_power": 0.0}, "scaling_power must be > 0"),
        ({"sample": 0}, "sample must be >= 1"),
        ({"hidden": 1.0}, r"hidden must lie in \[0, 1\)"),
        ({"rate": 0}, "rate must be > 0"),
        ({"epochs": -1}, "epochs must be >= 0"),
        ({"learn_weights": True, "iterations": 0}, "learn_weights needs iterations >= 1"),
        ({"trust": 2.0}, r"trust must lie in \[0, 1\]"),
        ({"size": 0}, "size must be >= 1"),
        ({"damping": 1.0}, r"damping must lie in \[0, 1\)"),
        ({"iterations": -1}, "iterations must be >= 0"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(RulewrightError, match=message):
        MarkovLogic(RULES, **options).fit(small(0)).predict(["smokes"])


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ([], "there are no queries"),
        (["smoke"], "unknown predicate 'smoke'"),
        (["smokes(ann, bob)"], "smokes has 1 arguments, a query gives it 2"),
        (["smokes(X)"], "X is a variable"),
        (["smokes(zoe)"], "unknown person 'zoe'"),
        (["!smokes(ann)"], "a query is an atom"),
    ],
)
def test_wrong_queries(queries, message):
    model = MarkovLogic(RULES).fit(small(0))
    with pytest.raises(RulewrightError, match=message):
        model.predict(queries)


def test_it_is_an_estimator():
    closed = ["lives"]
    model = MarkovLogic(RULES, closed=closed, memory_limit="1GB", iterations=3)
    assert model.closed is closed
    assert model.get_params()["memory_limit"] == "1GB"
    assert clone(model).iterations == 3
    for learned in ("rules_", "losses_", "convergence_"):
        with pytest.raises(NotFittedError, match="comes first"):
            getattr(model, learned)
    with pytest.raises(TypeError, match="depth"):
        MarkovLogic(RULES, depth=3)
    with pytest.raises(DataError, match="iterations must be >= 0"):
        model.set_params(iterations=-1).fit(small(0))
    assert len(model.set_params(iterations=2).fit(small(0)).predict(["smokes"]))


def test_marginals_as_tables():
    marginals = MarkovLogic(RULES).fit(small(0)).predict(["smokes", "friend(bob, cid)"])
    frame = marginals.to_frame("polars")
    assert frame.columns == ["predicate", "arg1", "arg2", "probability", "log_odds"]
    assert frame["log_odds"].to_list() == [marginal.logit for marginal in marginals]
    assert "friend(bob, cid)" in marginals._repr_html_()


def test_wrong_rules_and_order():
    with pytest.raises(NotFittedError, match="comes first"):
        MarkovLogic(RULES).predict(["smokes"])
    with pytest.raises(DataError, match="the facts have"):
        MarkovLogic(rw.parse_rules("predicate smokes(town). 1.0 smokes(X).")).fit(small(0))
    with pytest.raises(DataError, match="has no entities"):
        MarkovLogic(rw.parse_rules("predicate old(house). 1.0 old(X).")).fit(small(0))


@needs_data
def test_smoke(monkeypatch):
    from rulewright.evaluate.classification import average_precision

    monkeypatch.setenv("RULEWRIGHT_DATA", str(DATA))
    kb, rules = rw.datasets.load("smoke"), rw.datasets.rules_of("smoke")
    queries = kb.split("queries")
    marginals = MarkovLogic(rules, iterations=20).fit(kb).predict(queries)
    assert len(marginals) == 63
    assert (
        average_precision(
            [marginal.logit for marginal in marginals],
            [queries.contains(marginal.predicate, *marginal.args) for marginal in marginals],
        )
        == 1
    )
