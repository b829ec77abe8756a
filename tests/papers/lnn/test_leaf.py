"""Mixtures at the leaves of a template, beside the same written plainly."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rulewright.data import KnowledgeBase
from rulewright.data.facts import group_by_signature
from rulewright.engine.walks import Graph
from rulewright.errors import DataError, FileError
from rulewright.evaluate.ranking import evaluate_ranking
from rulewright.logic import encode_step
from rulewright.papers.catalogue import find_experiment, load_run, with_settings
from rulewright.papers.lnn import leaf
from rulewright.papers.lnn.leaf import AskedFacts, LeafMixture, LeafNetwork, LeafOptions, Links

pytestmark = pytest.mark.slow

ENTITIES, RELATIONS = 6, 3


def make_facts(seed):
    random = np.random.default_rng(seed)
    return sorted({tuple(row) for row in random.integers((ENTITIES, RELATIONS, ENTITIES), size=(40, 3)).tolist()})


def make_kb(facts):
    return KnowledgeBase.from_triples([(f"e{head}", f"r{relation}", f"e{tail}") for head, relation, tail in facts])


def entity_order(kb):
    """Our number of each entity of the knowledge base, and the same for relations."""
    (domain,) = kb.domains.values()
    return [int(str(label)[1:]) for label in domain.labels], [int(name[1:]) for name in kb.predicates]


def score_plainly(network, facts, x, z):
    """The template over sets of facts: every grounding in a loop."""
    values = {name: one.values() for name, one in network.operators().items()}
    clamp = lambda value: min(1.0, max(0.0, value))  # noqa: E731

    def mixture(name, before, after):
        weights = values[name][1:]
        total = sum(weights[2 * r] for h, r, t in facts if (h, t) == (before, after))
        total += sum(weights[2 * r + 1] for h, r, t in facts if (t, h) == (before, after))
        return total if network.options.leaves == "attention" else 1 - clamp(1 - total)

    def both(name, one, other):
        if network.options.connectives == "product":
            return one * other
        bias, first, second = values[name]
        return clamp(bias - first * (1 - one) - second * (1 - other))

    parts = [mixture("direct", x, z)]
    for chain in range(network.options.chains):
        truths = [
            both(f"both.{chain}", mixture(f"first.{chain}", x, y), mixture(f"second.{chain}", y, z))
            for y in range(ENTITIES)
        ]
        parts.append(max(truths) if network.options.reduction == "max" else sum(truths))
    if network.options.connectives == "product":
        return 1 - np.prod([1 - min(part, 1.0) for part in parts])
    bias, *weights = values["either"]
    return 1 - clamp(bias - sum(weight * part for weight, part in zip(weights, parts, strict=True)))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("reduction", ["max", "sum"])
@pytest.mark.parametrize(("leaves", "connectives"), [("pred", "lnn"), ("attention", "lnn"), ("attention", "product")])
def test_scores_are_those_of_all_groundings_without_the_hidden_fact(seed, reduction, leaves, connectives):
    facts = make_facts(seed)
    kb = make_kb(facts)
    entities, relations = entity_order(kb)
    assert len(entities) == ENTITIES and len(relations) == RELATIONS
    numbered = {(entities.index(h), relations.index(r), entities.index(t)) for h, r, t in facts}
    assert any(head == tail for head, _, tail in numbered), "a fact from an entity to itself is among them"
    options = LeafOptions(
        chains=2, leaves=leaves, connectives=connectives, reduction=reduction, alpha=0.9, start=0.5, leaky_ranks=False
    )
    random = torch.Generator().manual_seed(seed)
    network = LeafNetwork(2 * RELATIONS, options, random).eval()
    if connectives == "lnn":
        with torch.no_grad():
            for operator in (*network.both, network.either):
                operator.rates.copy_(torch.rand(len(operator.rates), generator=random, dtype=torch.float64))
    links, everyone = Links(Graph(kb)), torch.arange(ENTITIES)
    plain = [[score_plainly(network, numbered, x, z) for z in range(ENTITIES)] for x in range(ENTITIES)]
    np.testing.assert_allclose(leaf.score_all(network, links, np.arange(ENTITIES)), plain, atol=1e-12)
    for step in range(2 * RELATIONS):
        asked, answers = links.edges(step)
        with torch.no_grad():
            hidden = AskedFacts(step, answers)
            scores = network(links, asked, everyone.expand(len(asked), -1), hidden).numpy()
        for row, x, answer in zip(scores, asked.tolist(), answers.tolist(), strict=True):
            fact = (answer, step // 2, x) if step % 2 else (x, step // 2, answer)
            left = numbered - {fact}
            assert len(left) == len(numbered) - 1
            np.testing.assert_allclose(row, [score_plainly(network, left, x, z) for z in range(ENTITIES)], atol=1e-12)


def make_family(count):
    """Grandparents follow from parents; every fifth of them is left to be asked for."""
    facts = [(f"g{i}", "parent", f"p{i}") for i in range(count)] + [(f"p{i}", "parent", f"c{i}") for i in range(count)]
    facts += [(f"g{i}", "grand", f"c{i}") for i in range(count)]
    every = KnowledgeBase.from_triples(facts)

    def keep(name, chosen):
        return {name: tuple(column[chosen] for column in every.columns(name))}

    is_asked = np.arange(count) % 5 == 0
    train = {**keep("parent", slice(None)), **keep("grand", ~is_asked)}
    kb, valid = (
        every.with_facts(group_by_signature(every.predicates, columns)) for columns in (train, keep("grand", is_asked))
    )
    return kb.with_splits({"valid": valid})


def test_a_chain_is_learned_and_a_run_goes_on(tmp_path):
    kb = make_family(20)
    options = LeafOptions(epochs=30, batch_size=8, rate=0.1)
    mixture = LeafMixture(options, folder=tmp_path).fit(kb)
    (domain,) = kb.domains.values()
    asked = domain.index_of("g0")
    scores = mixture.scores("grand", np.array([asked]))
    assert str(domain.labels[scores[0].argmax()]) == "c0"
    (tmp_path / "target_0.json").unlink()
    again = LeafMixture(options, folder=tmp_path).fit(kb)
    np.testing.assert_array_equal(again.scores("grand", np.array([asked])), scores)
    assert again.trained_[0].losses == mixture.trained_[0].losses and (tmp_path / "target_0.json").exists()
    with pytest.raises(FileError, match="other facts or parameters"):
        LeafMixture(LeafOptions(epochs=31), folder=tmp_path).fit(kb)


def test_epochs_are_chosen_by_the_filtered_ranks_of_valid():
    kb = make_family(30)
    mixture = LeafMixture(LeafOptions(epochs=6, patience=6, batch_size=8)).fit(kb)
    ranks = evaluate_ranking(mixture, kb, "valid")
    for inverse in (False, True):
        trained = mixture.trained_[encode_step(kb.predicate_index("grand"), inverse)]
        assert len(trained.losses) == len(trained.scores) == 6
        best = trained.scores[trained.best_epoch - 1]
        assert best == max(trained.scores) == pytest.approx(ranks.part(ranks.inverse == inverse).mrr)


def test_a_run_gives_the_figures_of_its_splits(tmp_path, monkeypatch):
    monkeypatch.setattr(leaf.datasets, "load", lambda name: make_family(20))
    changed = {"splits": ["valid"], "options": {"epochs": 3}}
    experiment = with_settings(find_experiment("lnn/umls_leaf"), changed)
    run = load_run(experiment)(experiment, seed=1, folder=tmp_path, tell=lambda _: None)
    assert set(run["rows"]) == {"ours, valid"} and run["seed"] == 1 and run["rules"] == 4
    assert run["options"]["epochs"] == 3 and set(run["seconds"]) == {"learning", "ranking"}


def test_a_large_graph_is_refused(monkeypatch):
    monkeypatch.setattr(leaf, "MAX_PAIRS", 30)
    with pytest.raises(DataError, match=r"up to 30; this graph has 36: use PathMixture"):
        LeafMixture(LeafOptions()).fit(make_kb(make_facts(0)))
