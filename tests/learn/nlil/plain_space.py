"""The relaxed rules with dense matrices, one question at a time on facts without what is hidden."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from rulewright.data import KnowledgeBase
from rulewright.learn.nlil.facts import Hidden, Vocabulary
from rulewright.learn.nlil.frontier import Attentions

Floats = NDArray[np.float64]


def visible_facts(kb: KnowledgeBase, hidden: Hidden, question: tuple[int, ...]) -> set[tuple[str, tuple[int, ...]]]:
    """Return the facts that one question may see."""
    vocabulary = Vocabulary.of(kb)
    facts = {
        (name, tuple(int(each) for each in args))
        for name in (*vocabulary.binary, *vocabulary.unary)
        for args in zip(*kb.columns(name), strict=True)
    }
    if hidden.pair:
        facts = {each for each in facts if each[1] not in (question, question[::-1])}
    if hidden.step is not None:
        facts.discard((vocabulary.binary[(hidden.step - 1) // 2], question))
    return facts - {(vocabulary.unary[mark - 1], (question[0],)) for mark in hidden.marks}


def matrices(kb: KnowledgeBase, facts: set[tuple[str, tuple[int, ...]]]) -> list[Floats]:
    """Return ``M_k`` with ``M_k[to, from]`` for every operator."""
    vocabulary, size = Vocabulary.of(kb), kb.n_entities
    found = [np.eye(size)]
    for name in vocabulary.binary:
        matrix = np.zeros((size, size))
        for each, args in facts:
            if each == name:
                matrix[args[1], args[0]] = 1
        found += [matrix, matrix.T]
    for name in vocabulary.unary:
        matrix = np.zeros((size, size))
        for each, args in facts:
            if each == name:
                matrix[args[0], args[0]] = 1
        found.append(matrix)
    return found


def score(
    attentions: Attentions, kb: KnowledgeBase, hidden: Hidden, question: tuple[int, ...], truth: str
) -> list[float]:
    """Return how true each rule is of one question."""
    vocabulary, size = Vocabulary.of(kb), kb.n_entities
    dense = matrices(kb, visible_facts(kb, hidden, question))
    marks = [np.ones(size), *(np.diag(each) for each in dense[1 + 2 * len(vocabulary.binary) :])]
    starts = [np.eye(size)[each] for each in question]
    groups, chains, steps, _ = attentions.operators.shape
    found = []
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
            weights = [float(each) for each in attention]
            return sum(w * (path @ start) for w, path in list(zip(weights, paths, strict=True))[skip:])

        counts = []
        if len(question) == 2:
            assert attentions.second is not None
            for number in range(2 * len(vocabulary.binary)):
                ends = [
                    reached(attention[group, number], start)
                    for attention, start in zip((attentions.first, attentions.second), starts, strict=True)
                ]
                counts.append((dense[number + 1] @ ends[0]) @ ends[1])
        for side, start in enumerate(starts):
            attention = attentions.first if side == 0 else attentions.second
            assert attention is not None
            for number, mark in enumerate(marks):
                counts.append(mark @ reached(attention[group, len(counts)], start, skip=1 if number == 0 else 0))
        values = np.array(counts)
        truths = 1 / (1 + np.exp(-values)) if truth == "paper" else 1 - np.exp(-values)
        every, below = list(truths), truths
        for left, right in attentions.levels:
            both = np.concatenate([below, 1 - below])
            below = (left[group].numpy() @ both) * (right[group].numpy() @ both)
            every += list(below)
        found.append(float(attentions.output[group].numpy() @ np.array(every)))
    return found
