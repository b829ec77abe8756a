"""What the matrix is measured on: worlds of entities and their relations, and the small network that reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from rulewright import datasets
from rulewright.data import KnowledgeBase
from rulewright.data.vocabulary import Domain
from rulewright.datasets import locate
from rulewright.inject import ConsistencyLoss
from rulewright.io import docred, read_rules
from rulewright.io.docred import Document
from rulewright.learn import RuleMiner
from rulewright.logic import PredicateDeclaration, RuleSet
from rulewright.training.loop import StepPosition, TrainingLoop, TrainingSettings

Labels = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class World:
    """Entities by their features, and labels ``[n, n, R]``: what is known beforehand, and what is true beside it."""

    features: tuple[tuple[str, ...], ...]
    known: Labels
    gold: Labels

    @property
    def queried(self) -> Labels:
        """The labels to be inferred: of pairs of different entities, where nothing is known."""
        apart: Labels = ~np.eye(len(self.features), dtype=bool)[:, :, None] & ~self.known
        return apart


@dataclass(frozen=True, eq=False)
class Setting:
    """A data set made ready. Learners see ``kb``; ``gold_rules`` judge consistency, whoever learned."""

    relations: tuple[str, ...]
    training: tuple[World, ...]
    selection: tuple[World, ...]
    test: tuple[World, ...]
    kb: KnowledgeBase
    gold_rules: RuleSet


def load(name: str) -> Setting:
    """Load a setting: ``dwie``, documents whose entities have names and types, or a graph such as ``umls``."""
    return _load_documents() if name == "dwie" else _load_graph(name)


def _load_documents() -> Setting:
    """Train on the annotations of train, select on dev and test on test."""
    folder = locate("dwie")
    files = {"training": "train_annotations_notext.json", "selection": "dev.json", "test": "test.json"}
    parts = {part: docred.read_documents(folder / file) for part, file in files.items()}
    relations = tuple(sorted({fact.relation for document in parts["training"] for fact in document.facts}))
    worlds = {
        part: tuple(_read_document(document, relations) for document in documents) for part, documents in parts.items()
    }
    kb = docred.to_knowledge_base(parts["training"], relations=relations)
    gold = read_rules(folder / "dwie.grules.txt").filter(
        lambda statement: all(name in relations for name in RuleSet([statement]).arities)
    )
    return Setting(relations, **worlds, kb=kb, gold_rules=gold)


def _read_document(document: Document, relations: Sequence[str]) -> World:
    features = []
    for entity in document.entities:
        names = {mention.name.lower() for mention in entity.mentions}
        words = {f"word {word}" for name in names for word in name.split()}
        types = {f"type {mention.type}" for mention in entity.mentions}
        features.append(tuple(sorted(words | types | {f"name {name}" for name in names})))
    gold = np.zeros((len(features), len(features), len(relations)), dtype=bool)
    for fact in document.facts:
        if fact.relation in relations:
            gold[fact.head, fact.tail, relations.index(fact.relation)] = True
    return World(tuple(features), np.zeros_like(gold), gold)


def _load_graph(name: str) -> Setting:
    """Train on train, where an entity is its own feature; select on valid and test on test, given what came before.

    The rules that judge consistency have no exception in all of the graph.
    """
    kb = datasets.load(name)
    relations = tuple(kb.predicates)
    features = tuple((str(label),) for label in next(iter(kb.domains.values())).labels)
    train, valid, test = (_read_labels(split, relations) for split in (kb, kb.split("valid"), kb.split("test")))
    nothing = np.zeros_like(train)
    everything = worlds_to_facts([World(features, nothing, nothing)], [train | valid | test], relations)
    miner = RuleMiner(
        max_length=2,
        min_confidence=1.0,
        min_support=20,
        confidence="groundings",
        circular=True,
        unary=False,
        constants=False,
        thresholds=False,
    )
    gold = miner.fit(everything).rules_
    return Setting(
        relations,
        (World(features, nothing, train),),
        (World(features, train, valid & ~train),),
        (World(features, train | valid, test & ~(train | valid)),),
        worlds_to_facts([World(features, nothing, nothing)], [train], relations),
        gold,
    )


def _read_labels(kb: KnowledgeBase, relations: Sequence[str]) -> Labels:
    size = len(next(iter(kb.domains.values())))
    labels = np.zeros((size, size, len(relations)), dtype=bool)
    for relation_index, name in enumerate(relations):
        first, second = kb.columns(name)
        labels[first, second, relation_index] = True
    labels[np.eye(size, dtype=bool)] = False
    return labels


def worlds_to_facts(worlds: Iterable[World], labels: Iterable[Labels], relations: Sequence[str]) -> KnowledgeBase:
    """Return the labels of all worlds as facts over one numbered set of entities.

    >>> nothing = np.zeros((2, 2, 1), dtype=bool)
    >>> labels = np.array([[[False], [True]], [[False], [False]]])
    >>> worlds_to_facts([World(((), ()), nothing, nothing)] * 2, [labels, labels], ["knows"]).tuples("knows")
    [('0', '1'), ('2', '3')]
    """
    parts: list[npt.NDArray[np.int64]] = []
    start = 0
    for world, labels_of_world in zip(worlds, labels, strict=True):
        parts.append(np.argwhere(labels_of_world) + np.array([start, start, 0]))
        start += len(world.features)
    rows = np.concatenate([np.zeros((0, 3), dtype=np.int64), *parts]).astype(np.int32)
    columns = {
        name: [rows[rows[:, 2] == relation_index, 0], rows[rows[:, 2] == relation_index, 1]]
        for relation_index, name in enumerate(relations)
    }
    declared = [PredicateDeclaration(name, ("entity", "entity")) for name in relations]
    return KnowledgeBase.from_columns({"entity": Domain("entity", [*map(str, range(start))])}, declared, columns)


def facts_to_labels(kb: KnowledgeBase, worlds: Sequence[World], relations: Sequence[str]) -> list[Labels]:
    """Return the facts over such entities as labels of the worlds; what joins two worlds is left out."""
    sizes = [len(world.features) for world in worlds]
    starts = np.cumsum([0, *sizes])
    labels = [np.zeros((size, size, len(relations)), dtype=bool) for size in sizes]
    for relation_index, name in enumerate(relations):
        first, second = kb.columns(name)
        world = np.searchsorted(starts, first, side="right") - 1
        for world_index in np.unique(world):
            inside = (world == world_index) & (second >= starts[world_index]) & (second < starts[world_index + 1])
            labels[world_index][
                first[inside] - starts[world_index], second[inside] - starts[world_index], relation_index
            ] = True
    return labels


Logits = npt.NDArray[np.float32]
UNKNOWN = 0


class PairNetwork(nn.Module):
    """Log-odds of every relation between two entities, from the bags of their features.

    ``logit_r(i, j) = Σ_k c_rk a_ik b_jk + u_r·a_i + v_r·b_j + d_r``; a and b are of the first and the second
    argument.
    """

    def __init__(self, features: Sequence[str], relations: int, width: int) -> None:
        super().__init__()
        self.feature_index = {name: index for index, name in enumerate(features, start=UNKNOWN + 1)}
        self.vectors = nn.EmbeddingBag(len(features) + 1, width, mode="mean")
        self.first, self.second = (nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(2))
        self.relation = nn.Parameter(torch.randn(relations, width) / width**0.5)
        self.of_first, self.of_second = (nn.Linear(width, relations) for _ in range(2))

    def forward(self, world: World) -> Tensor:
        """Return ``logits[n, n, R]`` of a world."""
        bags = [[self.feature_index.get(name, UNKNOWN) for name in bag] or [UNKNOWN] for bag in world.features]
        flat = torch.tensor([index for bag in bags for index in bag])
        starts = torch.tensor([0, *np.cumsum([len(bag) for bag in bags])[:-1].tolist()])
        entities = self.vectors(flat, starts)
        first, second = self.first(entities), self.second(entities)
        together = torch.einsum("ik,rk,jk->ijr", first, self.relation, second)
        logits: Tensor = together + self.of_first(first)[:, None] + self.of_second(second)[None]
        return logits


def frequent_features(worlds: Sequence[World], least: int) -> list[str]:
    """Return the features that occur often enough, sorted."""
    counts: dict[str, int] = {}
    for world in worlds:
        for bag in world.features:
            for name in bag:
                counts[name] = counts.get(name, 0) + 1
    return sorted(name for name, count in counts.items() if count >= least)


def train_network(
    training: Sequence[World],
    relations: int,
    settings: Any,
    *,
    seed: int,
    folder: Path,
    score: Callable[[PairNetwork], float],
    consistency: ConsistencyLoss | None = None,
) -> PairNetwork:
    """Train a network, with a consistency loss where one is given; it keeps the weights with the best score."""
    torch.manual_seed(seed)
    model = PairNetwork(frequent_features(training, settings["least"]), relations, settings["width"])

    def losses(batch: Sequence[World], position: StepPosition) -> Iterator[tuple[Tensor, Mapping[str, Tensor]]]:
        total, broken = torch.zeros(()), torch.zeros(())
        for world in batch:
            logits = model(world)
            queried = torch.from_numpy(world.queried)
            gold = torch.from_numpy(world.gold).float()
            total = total + nn.functional.binary_cross_entropy_with_logits(
                logits[queried], gold[queried], reduction="sum"
            )
            if consistency is not None:
                sample = torch.randperm(len(logits))[: settings["sample"]].sort().values
                broken = broken + consistency(logits[sample][:, sample][None])
        parts = {"labels": total, "rules": settings["loss_weight"] * broken}
        yield (parts["labels"] + parts["rules"]) / len(batch), {name: part / len(batch) for name, part in parts.items()}

    options = TrainingSettings(
        epochs=settings["epochs"], batch_size=settings["batch"], rate=settings["rate"], clip=1e3, seed=seed
    )
    examples = [*training] * settings["repeat"]
    identity = {"rules": 0 if consistency is None else len(consistency.clauses), "width": settings["width"]}
    TrainingLoop(
        model,
        examples,
        losses,
        lengths=[len(world.features) for world in examples],
        settings=options,
        identity=identity,
        score=lambda: score(model),
        folder=folder,
    ).run()
    return model


def predict_logits(model: PairNetwork, worlds: Sequence[World]) -> list[Logits]:
    """Return the logits of a network for worlds."""
    model.eval()
    with torch.inference_mode():
        logits: list[Logits] = [model(world).numpy() for world in worlds]
    model.train()
    return logits
