"""The relaxed rules against dense matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from learn.nlil.plain_space import score
from learn.nlil.small_worlds import SIZE, graphs, random_attentions

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.learn.nlil.facts import FactGraph, HiddenFacts
from rulewright.learn.nlil.frontier import EvidenceBuilder
from rulewright.learn.nlil.generator import score_questions
from rulewright.logic import PredicateDeclaration
from rulewright.logic.chain import encode_step


@settings(max_examples=25)
@given(kb=graphs(), seed=st.integers(0, 1000), truth=st.sampled_from(["exponential", "paper"]))
def test_scores_about_one_entity_are_those_of_dense_matrices(kb: KnowledgeBase, seed: int, truth: str) -> None:
    attentions = random_attentions(kb, 1, seed=seed)
    hidden = HiddenFacts(marks=(1,) if seed % 2 else (1, 2))
    entities = np.arange(SIZE)
    found = score_questions(
        attentions, EvidenceBuilder(FactGraph(kb), steps=2, arity=1).build([entities], hidden), truth
    )  # type: ignore[arg-type]
    wanted = [score(attentions, kb, hidden, (int(entity),), truth) for entity in entities]
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-9)


@settings(max_examples=15)
@given(kb=graphs(), seed=st.integers(0, 1000), truth=st.sampled_from(["exponential", "paper"]))
def test_scores_about_two_entities_are_those_of_dense_matrices(kb: KnowledgeBase, seed: int, truth: str) -> None:
    attentions = random_attentions(kb, 2, seed=seed, levels=1)
    hidden = HiddenFacts(step=encode_step(seed % 2))
    random = np.random.default_rng(seed)
    asked = random.integers(0, SIZE, (2, 6))
    found = score_questions(
        attentions, EvidenceBuilder(FactGraph(kb), steps=2, arity=2).build(list(asked), hidden), truth
    )  # type: ignore[arg-type]
    wanted = [score(attentions, kb, hidden, (int(one), int(other)), truth) for one, other in asked.T]
    np.testing.assert_allclose(found.numpy(), wanted, atol=1e-9)


def test_worlds_packed_together_score_as_each_alone() -> None:
    declared = [PredicateDeclaration(name, ("entity",)) for name in ("cup", "pot")]
    declared += [PredicateDeclaration(name, ("entity", "entity")) for name in ("on", "by")]
    sizes = {"x": 1, "y": 4, "z": 30}

    def scenes(worlds: str) -> KnowledgeBase:
        builder = KnowledgeBaseBuilder(declared)
        for world in worlds:
            builder.world(world)
            for number in range(sizes[world]):
                ends = [f"{world}{number}", f"{world}{(number * 3 + 1) % sizes[world]}"]
                builder.add("on" if number % 2 else "by", ends, world=world)
                builder.add("cup" if number % 3 else "pot", ends[:1], world=world)
        return builder.build()

    together = scenes("xyz")
    attentions = random_attentions(together, 1, seed=3)

    def scores(kb: KnowledgeBase, world: str) -> torch.Tensor:
        asked = np.array([kb.domains["entity"].index_of(f"{world}{number}") for number in range(sizes[world])])
        return score_questions(
            attentions, EvidenceBuilder(FactGraph(kb), steps=2, arity=1).build([asked], HiddenFacts(marks=(1, 2)))
        )

    for world in "xyz":
        torch.testing.assert_close(scores(together, world), scores(scenes(world), world))


def test_gradients_reach_every_attention() -> None:
    kb = KnowledgeBase.from_facts(
        [("p", str(i), str((i + 1) % 6)) for i in range(6)] + [("a", "0"), ("a", "3"), ("q", "1", "4"), ("b", "2")]
    )
    attentions = random_attentions(kb, 2, seed=1)
    tensors = [attentions.operators, attentions.first, attentions.second, attentions.output, *attentions.levels[0]]
    for attention in tensors:
        assert attention is not None
        attention.requires_grad_()
    evidence = EvidenceBuilder(FactGraph(kb), steps=2, arity=2).build([np.arange(6), (np.arange(6) + 2) % 6])
    score_questions(attentions, evidence).sum().backward()
    assert all(t is not None and t.grad is not None and float(t.grad.abs().sum()) > 0 for t in tensors)


def test_work_grows_with_the_steps_touched_and_not_with_the_graph() -> None:
    def touched(size: int) -> int:
        kb = KnowledgeBase.from_triples((str(i), "next", str(i + 1)) for i in range(size))
        return EvidenceBuilder(FactGraph(kb), steps=2, arity=1).build([np.arange(5)]).n_touched

    assert touched(20) == touched(2000)


@pytest.mark.parametrize("arity", [1, 2])
def test_a_graph_of_one_node_has_no_evidence(arity: int) -> None:
    kb = KnowledgeBase.from_facts([("p", "0", "0"), ("q", "0", "0"), ("a", "0"), ("b", "0")])
    attentions = random_attentions(kb, arity, seed=0)
    found = score_questions(
        attentions, EvidenceBuilder(FactGraph(kb), steps=2, arity=arity).build([np.zeros(1, dtype=int)] * arity)
    )
    assert found.shape == (1, 2)
    assert bool(torch.isfinite(found).all())
