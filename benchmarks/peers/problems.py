"""Four problems with rules: a hierarchy of labels, BIO tags, groups in graphs of several sizes, sums of two digits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Split:
    """Samples of a problem: what the network sees, what is right, and which entities exist (the others are padding)."""

    features: Tensor
    targets: Tensor
    mask: Tensor

    def __len__(self) -> int:
        return len(self.features)

    def rows(self, chosen: Tensor) -> Split:
        """Return some of the samples."""
        return Split(self.features[chosen], self.targets[chosen], self.mask[chosen])


@dataclass(frozen=True)
class Problem:
    """Data for a seed, a network with its training, and scores.

    ``score`` gives the metrics, each between 0 and 1, of labels; ``count_violations`` how often labels break a rule in
    a sample. ``validate`` is what settings are chosen by: of the digits only the sums are known.
    """

    name: str
    title: str
    metrics: tuple[str, str]
    make_splits: Callable[[int], tuple[Split, Split, Split]]
    make_network: Callable[[], nn.Module]
    task_loss: Callable[[Tensor, Split], Tensor]
    predict: Callable[[Tensor], Tensor]
    score: Callable[[Tensor, Split], tuple[float, float]]
    count_violations: Callable[[Tensor, Split], float]
    validate: Callable[[Tensor, Split], float]
    epochs: int
    batch_size: int
    learning_rate: float = 1e-2


# A hierarchy: 4 roots, 3 children each, 2 leaves below each child. Siblings exclude each other, roots do not.

CLASSES = 40


def _grow_tree() -> list[int]:
    """Return the parent of each label, -1 of the roots."""
    parents: list[int] = []
    for _ in range(4):
        root = len(parents)
        parents.append(-1)
        for _ in range(3):
            child = len(parents)
            parents.append(root)
            parents += [child, child]
    return parents


PARENTS = _grow_tree()
PARENT = torch.tensor([[PARENTS[child] == parent for parent in range(CLASSES)] for child in range(CLASSES)])
EXCLUSIVE = torch.tensor(
    [[one != other and PARENTS[one] == PARENTS[other] >= 0 for other in range(CLASSES)] for one in range(CLASSES)]
)


def _make_hierarchy(seed: int) -> tuple[Split, Split, Split]:
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(CLASSES, 24, generator=generator)

    def draw(count: int) -> Split:
        targets = torch.zeros(count, CLASSES)
        for sample in targets:
            present = torch.rand(4, generator=generator) < 0.35
            present[torch.randint(4, (1,), generator=generator)] = True
            for root in present.nonzero().flatten().tolist():
                child = 10 * root + 1 + 3 * int(torch.randint(3, (1,), generator=generator))
                sample[10 * root] = sample[child] = 1
                if torch.rand(1, generator=generator) < 0.8:
                    sample[child + 1 + int(torch.randint(2, (1,), generator=generator))] = 1
        features = targets @ embeddings + 1.0 * torch.randn(count, 24, generator=generator)
        return Split(features, targets, torch.ones(count, CLASSES, dtype=torch.bool))

    return draw(150), draw(150), draw(400)


def _score_hierarchy(labels: Tensor, split: Split) -> tuple[float, float]:
    right = split.targets.bool()
    exact = (labels == right).all(-1).float().mean()
    return float(exact), float(2 * (labels & right).sum() / (labels.sum() + right.sum()))


def _count_hierarchy(labels: Tensor, split: Split) -> float:
    orphans = labels[:, :, None] & PARENT & ~labels[:, None, :]
    both = labels[:, :, None] & (EXCLUSIVE.triu()) & labels[:, None, :]
    return float((orphans.sum() + both.sum()) / len(split))


HIERARCHY = Problem(
    name="hierarchy",
    title="a hierarchy of 40 labels, 150 samples",
    metrics=("exact match", "F1"),
    make_splits=_make_hierarchy,
    make_network=lambda: nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, CLASSES)),
    task_loss=lambda logits, split: functional.binary_cross_entropy_with_logits(logits, split.targets),
    predict=lambda logits: logits > 0,
    score=_score_hierarchy,
    count_violations=_count_hierarchy,
    validate=lambda labels, split: _score_hierarchy(labels, split)[0],
    epochs=60,
    batch_size=150,
)


# BIO tags: an I- tag goes on with what stands before it, a B- or I- tag of its own type.

TYPES = ("PER", "LOC", "ORG")
TAGS = ("O", *(f"{part}-{name}" for name in TYPES for part in "BI"))
LENGTH = 12
LEGAL = torch.tensor(
    [[not after.startswith("I") or (before[1:] == after[1:] and before != "O") for after in TAGS] for before in TAGS]
)
NEXT = torch.eye(LENGTH, dtype=torch.bool).roll(1, 1) & (torch.arange(LENGTH) > 0)
START = torch.arange(LENGTH) == 0


def _make_tags(seed: int) -> tuple[Split, Split, Split]:
    generator = torch.Generator().manual_seed(seed)
    embeddings = torch.randn(len(TAGS), 8, generator=generator)

    def draw(count: int) -> Split:
        lengths = torch.randint(6, LENGTH + 1, (count,), generator=generator)
        targets = torch.zeros(count, LENGTH, dtype=torch.long)
        for sample, length in zip(targets, lengths.tolist(), strict=True):
            place = 0
            while place < length:
                if torch.rand(1, generator=generator) < 0.4:
                    kind = int(torch.randint(3, (1,), generator=generator))
                    end = min(length, place + 1 + int(torch.randint(3, (1,), generator=generator)))
                    sample[place] = 1 + 2 * kind
                    sample[place + 1 : end] = 2 + 2 * kind
                    place = end
                else:
                    place += 1
        features = embeddings[targets] + 1.3 * torch.randn(count, LENGTH, 8, generator=generator)
        return Split(features, targets, torch.arange(LENGTH) < lengths[:, None])

    return draw(60), draw(100), draw(200)


def find_spans(tags: list[int]) -> set[tuple[int, int, int]]:
    """Return the entities (type, start, end) of a sentence; an I- tag that goes on with nothing is none.

    >>> sorted(find_spans([1, 2, 0, 4]))
    [(0, 0, 2)]
    """
    spans = set()
    for start, tag in enumerate(tags):
        if tag % 2 == 1:
            end = start + 1
            while end < len(tags) and tags[end] == tag + 1:
                end += 1
            spans.add((tag // 2, start, end))
    return spans


def _score_tags(labels: Tensor, split: Split) -> tuple[float, float]:
    accuracy = (labels == split.targets)[split.mask].float().mean()
    shared = given = wanted = 0
    for sample, right, mask in zip(labels, split.targets, split.mask, strict=True):
        found, true = find_spans(sample[mask].tolist()), find_spans(right[mask].tolist())
        shared, given, wanted = shared + len(found & true), given + len(found), wanted + len(true)
    return 2 * shared / max(1, given + wanted), float(accuracy)


def _count_tags(labels: Tensor, split: Split) -> float:
    transitions = ~LEGAL[labels[:, :-1], labels[:, 1:]] & split.mask[:, 1:]
    starts = ~LEGAL[0][labels[:, 0]]
    return float((transitions.sum() + starts.sum()) / len(split))


BIO = Problem(
    name="bio",
    title="BIO tags of sentences, 3 types, 60 sentences",
    metrics=("entity F1", "accuracy"),
    make_splits=_make_tags,
    make_network=lambda: nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, len(TAGS))),
    task_loss=lambda logits, split: functional.cross_entropy(logits[split.mask], split.targets[split.mask]),
    predict=lambda logits: logits.argmax(-1),
    score=_score_tags,
    count_violations=_count_tags,
    validate=lambda labels, split: _score_tags(labels, split)[0],
    epochs=60,
    batch_size=60,
)


# Graphs of 4 to 8 nodes: which pairs are of one group? Nobody says how many groups there are, and what is seen of a
# pair is noisy by itself, so that other pairs have something to say about it.

NODES = 8
PAIRS = torch.ones(NODES, NODES).triu(1).bool()


def _make_graphs(seed: int) -> tuple[Split, Split, Split]:
    generator = torch.Generator().manual_seed(seed)
    direction = torch.randn(4, generator=generator)

    def draw(count: int) -> Split:
        sizes = torch.randint(4, NODES + 1, (count,), generator=generator)
        groups = torch.randint(3, (count, NODES), generator=generator)
        targets = (groups[:, :, None] == groups[:, None, :]).float()
        noise = torch.randn(count, NODES, NODES, 4, generator=generator)
        features = targets[..., None] * direction / direction.norm() * 2 + (noise + noise.transpose(1, 2)) / 2**0.5
        return Split(features, targets, torch.arange(NODES) < sizes[:, None])

    return draw(60), draw(100), draw(200)


def select_pairs(split: Split) -> Tensor:
    """Return which pairs of nodes are asked about: those of two different nodes that exist, in one order."""
    return split.mask[:, :, None] & split.mask[:, None, :] & PAIRS


def _score_graphs(labels: Tensor, split: Split) -> tuple[float, float]:
    pairs = select_pairs(split)
    found, right = labels[pairs], split.targets[pairs].bool()
    return float((found == right).float().mean()), float(2 * (found & right).sum() / (found.sum() + right.sum()))


def _count_graphs(labels: Tensor, split: Split) -> float:
    real = split.mask[:, :, None] & split.mask[:, None, :] & ~torch.eye(NODES, dtype=torch.bool)
    held = (labels & real).float()
    chains = torch.einsum("bxy,byz->bxz", held, held)
    return float((chains * (~labels & real)).sum() / len(split))


GRAPHS = Problem(
    name="graphs",
    title="groups in graphs of 4 to 8 nodes, 60 graphs",
    metrics=("accuracy", "F1"),
    make_splits=_make_graphs,
    make_network=lambda: nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 1), nn.Flatten(-2)),
    task_loss=lambda logits, split: functional.binary_cross_entropy_with_logits(
        logits[select_pairs(split)], split.targets[select_pairs(split)]
    ),
    predict=lambda logits: logits > 0,
    score=_score_graphs,
    count_violations=_count_graphs,
    validate=lambda labels, split: _score_graphs(labels, split)[0],
    epochs=60,
    batch_size=60,
)


# Sums of two digits: the digits themselves are never shown in training or validation.


def _make_sums(seed: int) -> tuple[Split, Split, Split]:
    images, digits = load_digits(return_X_y=True)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(digits), generator=generator)[:1600]
    pairs = torch.tensor(images, dtype=torch.float32)[order].reshape(-1, 2, 64) / 16
    known = torch.tensor(digits)[order].reshape(-1, 2)
    everything = Split(pairs, known, torch.ones(len(pairs), 2, dtype=torch.bool))
    rows = torch.arange(len(pairs))
    train, valid, test = (everything.rows(part) for part in (rows[:300], rows[300:400], rows[400:]))
    return replace(train, targets=train.targets.sum(-1)), replace(valid, targets=valid.targets.sum(-1)), test


def _regress_sums(logits: Tensor, split: Split) -> Tensor:
    expected = (logits.softmax(-1) * torch.arange(10.0)).sum((-1, -2))
    return functional.mse_loss(expected, split.targets.float())


DIGITS = Problem(
    name="digits",
    title="digits from the sums of 300 pairs",
    metrics=("accuracy", "accuracy of sums"),
    make_splits=_make_sums,
    make_network=lambda: nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)),
    task_loss=_regress_sums,
    predict=lambda logits: logits.argmax(-1),
    score=lambda labels, split: (
        float((labels == split.targets).float().mean()),
        float((labels.sum(-1) == split.targets.sum(-1)).float().mean()),
    ),
    count_violations=lambda labels, split: float((labels.sum(-1) != split.targets.sum(-1)).float().mean()),
    validate=lambda labels, split: float((labels.sum(-1) == split.targets).float().mean()),
    epochs=20,
    batch_size=20,
)

PROBLEMS = {problem.name: problem for problem in (HIERARCHY, BIO, GRAPHS, DIGITS)}
