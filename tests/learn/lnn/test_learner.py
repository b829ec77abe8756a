from __future__ import annotations

import numpy as np
import pytest
import torch

import rulewright as rw
from rulewright.errors import DataError, NotFittedError, UnknownNameError
from rulewright.learn import LNNLearner
from rulewright.learn.lnn import ready
from rulewright.learn.lnn.grounding import find_rows
from rulewright.learn.lnn.network import TemplateNetwork
from rulewright.learn.lnn.reading import load_parameters
from rulewright.learn.lnn.template import resolve
from rulewright.learn.lnn.training import draw_examples, pair_loss

CHAIN = "template grandchild_of(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in *, ?Q in {child_of, likes}."
RULE = rw.parse_rule("grandchild_of(X, Z) :- child_of(X, Y), child_of(Y, Z).").canonical()


def family(known: int = 8, families: int = 12):
    triples = []
    for number in range(families):
        one, two, three = f"p{number}", f"q{number}", f"r{number}"
        triples += [(one, "child_of", two), (two, "child_of", three), (one, "likes", three), (three, "likes", two)]
        if number < known:
            triples.append((one, "grandchild_of", three))
    return rw.KnowledgeBase.from_triples(triples)


def test_it_learns_a_rule_and_predicts_with_it():
    told = []
    learner = rw.LNNLearner(CHAIN, epochs=120, progress=lambda *each: told.append(each)).fit(family())
    (rule,) = learner.rules_.rules
    assert rule.canonical() == RULE
    assert rule.support == 8 and rule.annotations["body"] == 12
    assert rule.annotations["P"]["child_of"] > 0.5 and len(rule.annotations["and"]) == 3
    found = learner.predict(["grandchild_of(p9, r9)", ("grandchild_of", "p9", "r8"), ("grandchild_of", "nobody", "r8")])
    assert [round(each.value, 6) for each in found] == [1.0, 0.0, 0.0]
    assert learner.unseen_ == 1 and str(found[0]) == "grandchild_of(p9, r9)"
    assert told[-1] == ("grandchild_of", 120, 120)
    assert "LNN-∧" in learner.describe("grandchild_of")
    trained = learner.trained_["grandchild_of"]
    assert trained.examples == trained.reachable == 8 and trained.losses[-1] < trained.losses[0]


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["logistic", "ranking"])
def test_every_loss_learns(loss):
    learner = LNNLearner(CHAIN, loss=loss, margin=0.5, epochs=120, reduction="sum").fit(family())
    assert learner.rules_.rules[0].canonical() == RULE


def test_rules_survive_a_file_and_are_taken_by_injectors(tmp_path):
    rules = LNNLearner(CHAIN, epochs=120).fit(family()).rules_
    rules.save(tmp_path / "learned.rules")
    read = rw.read_rules(tmp_path / "learned.rules")
    assert read == rules
    names = ["child_of", "likes", "grandchild_of"]
    rw.ConsistencyLoss(read, relations=names)(torch.zeros(1, 3, 3, 3), torch.ones(1, 3, dtype=torch.bool))
    rw.RuleDecoder(read, relations=names)(np.zeros((3, 3, 3)))
    rw.LogicLayer(read)({name: torch.zeros(1, 3, 3) for name in read.arities})
    derived = {(each.predicate, each.args) for each in rw.apply(read, family())}
    assert ("grandchild_of", ("p9", "r9")) in derived


def test_learned_templates_are_taken_up_again(tmp_path):
    kb = family()
    learner = LNNLearner(CHAIN, epochs=60).fit(kb)
    learner.templates_.save(tmp_path / "soft.rules")
    templates = rw.read_rules(tmp_path / "soft.rules")
    network = TemplateNetwork(resolve(templates, kb))
    load_parameters(network, templates)
    for key in network.operators:
        wanted = learner.network("grandchild_of").operator(key).values()
        assert network.operator(key).values() == pytest.approx(wanted, abs=1e-9)


def test_the_same_seed_gives_the_same_and_a_stopped_run_goes_on(tmp_path):
    kb = family()
    options = {"epochs": 12, "seed": 3, "batch_size": 3}
    whole = LNNLearner(CHAIN, **options).fit(kb)

    def stop(_, done, __):
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        LNNLearner(CHAIN, folder=tmp_path, progress=stop, **options).fit(kb)
    resumed = LNNLearner(CHAIN, folder=tmp_path, **options).fit(kb)
    assert resumed.trained_["grandchild_of"].values == whole.trained_["grandchild_of"].values
    with pytest.raises(DataError, match="holds another run"):
        LNNLearner(CHAIN, folder=tmp_path, **{**options, "margin": 0.5}).fit(kb)


@pytest.mark.slow
def test_targets_are_trained_in_processes_of_their_own():
    kb = family()
    chains = ready.one_chain(2, predicates=["child_of", "likes"])
    options = {"targets": ["grandchild_of", "likes"], "epochs": 4}
    one, two = (LNNLearner(chains, processes=each, **options).fit(kb) for each in (1, 2))
    assert {name: each.values for name, each in one.trained_.items()} == {
        name: each.values for name, each in two.trained_.items()
    }
    assert list(two.trained_) == ["grandchild_of", "likes"]


def test_training_stops_when_valid_gets_no_better():
    kb = family(known=12)
    kept, held_out = kb.hold_out(0.3, seed=1, predicates=["grandchild_of"])
    learner = LNNLearner(CHAIN, epochs=400, patience=5, rate=0.1).fit(kept.with_splits({"valid": held_out}))
    trained = learner.trained_["grandchild_of"]
    assert len(trained.losses) < 400 and trained.best_epoch == len(trained.losses) - 5
    assert learner.rules_.rules[0].canonical() == RULE


def test_negatives_are_checked():
    random = np.random.default_rng(0)
    positives = (random.integers(5, size=40), random.integers(5, size=40))
    known = (np.repeat(np.arange(5), 4), np.tile(np.arange(4), 5))
    found = draw_examples("r", positives, [known], [np.arange(5), np.arange(5)], count=3, positions=(0, 1), seed=0)
    negative = tuple(column[found.positives :] for column in found.columns)
    assert len(negative[0]) and (find_rows(known, negative) < 0).all() and (find_rows(positives, negative) < 0).all()
    assert found.negatives.shape == (40, 3) and found.negatives.max() == len(found.columns[0]) - 1
    everything = (np.repeat(np.arange(3), 3), np.tile(np.arange(3), 3))
    none = draw_examples("r", everything, [], [np.arange(3)] * 2, count=2, positions=(0, 1), seed=0)
    assert none.without == 9
    some = draw_examples(
        "r", everything, [], [np.arange(3)] * 2, count=2, positions=(1,), seed=0, false=(np.array([7]), np.array([8]))
    )
    assert some.without == 0 and some.columns[0][-1] == 7


def test_observed_false_facts_are_negatives():
    builder = rw.KnowledgeBaseBuilder()
    for number in range(6):
        builder.add("a", (f"x{number}",))
        builder.add("b", (f"x{number}",), truth=True)
        builder.add("c", (f"x{number}",)) if number < 3 else builder.add("t", (f"x{number}",), truth=False)
        if number < 3:
            builder.add("t", (f"x{number}",))
    learner = LNNLearner("template t(X) :- ?P(X), ?Q(X) where ?P in {a, c}, ?Q in {b, c}.", epochs=150).fit(
        builder.build()
    )
    values = {each.args[0]: each.value for each in learner.predict([("t", f"x{number}") for number in range(6)])}
    assert min(values[f"x{number}"] for number in range(3)) > max(values[f"x{number}"] for number in range(3, 6))


def test_pairs_without_a_negative_count_for_nothing():
    positive, negative = torch.tensor([0.2, 0.9]), torch.tensor([[0.9], [0.1]])
    there = torch.tensor([[False], [True]])
    assert pair_loss("margin", positive, negative, there, 0.5) == 0
    assert pair_loss("ranking", positive, negative, there, 1.0) < pair_loss("ranking", positive, negative, ~there, 1.0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"loss": "hinge"}, "loss must be"),
        ({"reduction": "mean"}, "reduction must be"),
        ({"alpha": 0.6}, r"alpha must be > 0\.666667"),
        ({"processes": 0}, "processes must be >= 1"),
        ({"epochs": 0}, "epochs must be >= 1"),
        ({"margin": 0}, "margin must be > 0"),
        ({"positions": (4,)}, r"positions of grandchild_of lie in 0 … 1"),
        ({"sparsity": -1}, "sparsity must be >= 0"),
        ({"leak": 2.0}, "leak must lie in"),
        ({"leaves": "mean"}, "'pred' or 'attention'"),
        ({"targets": ["likes"]}, "no template is about likes"),
    ],
)
def test_wrong_options_are_said(options, message):
    with pytest.raises(DataError, match=message):
        LNNLearner(CHAIN, **options).fit(family())


def test_what_cannot_be_learned_is_said():
    kb = family()
    with pytest.raises(UnknownNameError, match="unknown target 'aunt_of'"):
        LNNLearner("template aunt_of(X, Y) :- ?P(X, Y) where ?P in *.").fit(kb)
    with pytest.raises(DataError, match="grandchild_of has no positive example"):
        LNNLearner(CHAIN).fit(kb, kb.with_facts({}))
    with pytest.raises(DataError, match="over the entities of the facts"):
        LNNLearner(CHAIN).fit(kb, family(3))
    with pytest.raises(NotFittedError, match="fit"):
        LNNLearner(CHAIN).predict(["grandchild_of(p1, r1)"])
    learner = LNNLearner(CHAIN, epochs=1).fit(kb)
    with pytest.raises(UnknownNameError, match="target"):
        learner.predict(["likes(p1, r1)"])
    with pytest.raises(DataError, match="2 arguments"):
        learner.predict([("grandchild_of", "p1")])
    with pytest.raises(DataError, match="is a variable"):
        learner.predict(["grandchild_of(X, r1)"])


def test_it_warns_where_a_fact_may_support_itself():
    facts = [("t", f"x{number}", f"y{number}") for number in range(4)]
    facts += [each for number in range(4) for each in (("c", f"y{number}"), ("a", f"y{number}", f"y{number}"))]
    facts += [("a", f"x{number}", f"y{number}") for number in range(4)]
    through = "template s(Y) :- ?P(X, Y), c(Y) where ?P in *."
    target = "template t(X, Z) :- s(Y), a(X, Y), ?Q(Y, Z) where ?Q in {a}."
    with pytest.warns(UserWarning, match="t: a fact may support itself through"):
        LNNLearner(f"{through} {target}", epochs=1).fit(rw.KnowledgeBase.from_facts(facts))
