"""The relaxed rules with dense matrices, one question at a time on facts without what is hidden."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from rulewright.data import KnowledgeBase
from rulewright.learn.nlil.facts import HiddenFacts, Vocabulary, operator_of_step
from rulewright.learn.nlil.generator import Attentions
from rulewright.logic.chain import step_relation

Floats = NDArray[np.float64]
Facts = set[tuple[str, tuple[int, ...]]]


def visible_facts(kb: KnowledgeBase, hidden: HiddenFacts, question: tuple[int, ...]) -> Facts:
    """Return the facts that one question may see."""
    vocabulary = Vocabulary.from_facts(kb)
    facts = {
        (name, tuple(map(int, args)))
        for name in (*vocabulary.binary, *vocabulary.unary)
        for args in zip(*kb.columns(name), strict=True)
    }
    if hidden.step is not None:
        facts.discard((vocabulary.binary[step_relation(hidden.step)], question))
    return facts - {(vocabulary.unary[mark - 1], (question[0],)) for mark in hidden.marks}


def matrices(kb: KnowledgeBase, facts: Facts) -> list[Floats]:
    """Return ``M_k`` with ``M_k[to, from]`` for every operator."""
    vocabulary, size = Vocabulary.from_facts(kb), kb.n_entities
    operators = [np.eye(size)]
    for name in vocabulary.binary:
        matrix = np.zeros((size, size))
        for predicate, args in facts:
            if predicate == name:
                matrix[args[1], args[0]] = 1
        operators += [matrix, matrix.T]
    for name in vocabulary.unary:
        matrix = np.zeros((size, size))
        for predicate, args in facts:
            if predicate == name:
                matrix[args[0], args[0]] = 1
        operators.append(matrix)
    return operators


def score(
    attentions: Attentions, kb: KnowledgeBase, hidden: HiddenFacts, question: tuple[int, ...], truth: str
) -> list[float]:
    """Return how true each rule is of one question."""
    vocabulary, size = Vocabulary.from_facts(kb), kb.n_entities
    dense = matrices(kb, visible_facts(kb, hidden, question))
    marks = [np.ones(size), *(np.diag(matrix) for matrix in dense[vocabulary.filter_operator(1) :])]
    starts = [np.eye(size)[entity] for entity in question]
    groups, chains, steps, _ = attentions.operators.shape
    scores = []
    for group in range(groups):
        paths = [np.eye(size)]
        for step in range(steps):
            for chain in range(chains):
                before = paths[1 + (step - 1) * chains + chain] if step else paths[0]
                soft = sum(
                    float(weight) * matrix
                    for weight, matrix in zip(attentions.operators[group, chain, step], dense, strict=True)
                )
                paths.append(soft @ before)

        def reached(attention: torch.Tensor, start: Floats, skip: int = 0, paths: list[Floats] = paths) -> Floats:
            weights = [float(weight) for weight in attention]
            return sum(w * (path @ start) for w, path in list(zip(weights, paths, strict=True))[skip:])

        counts = []
        if len(question) == 2:
            assert attentions.second is not None
            for step in range(vocabulary.n_steps):
                ends = [
                    reached(attention[group, step], start)
                    for attention, start in zip((attentions.first, attentions.second), starts, strict=True)
                ]
                counts.append((dense[operator_of_step(step)] @ ends[0]) @ ends[1])
        for side, start in enumerate(starts):
            attention = attentions.first if side == 0 else attentions.second
            assert attention is not None
            for mark, bearers in enumerate(marks):
                counts.append(bearers @ reached(attention[group, len(counts)], start, skip=1 if mark == 0 else 0))
        values = np.array(counts)
        truths = 1 / (1 + np.exp(-values)) if truth == "paper" else 1 - np.exp(-values)
        every, below = list(truths), truths
        for left, right in attentions.levels:
            both = np.concatenate([below, 1 - below])
            below = (left[group].numpy() @ both) * (right[group].numpy() @ both)
            every += list(below)
        scores.append(float(attentions.output[group].numpy() @ np.array(every)))
    return scores
