"""Knowledge-base completion by mixtures at the leaves of one template (Figure 3(c) of the paper), for small graphs.

For each relation and direction ``r(X, Z) ← ∃Y (P(X, Y) ∧ Q(Y, Z)) ∨ O(X, Z)``, where every leaf is a mixture over all
relations, walked either way. `LNNLearner` trains any template over its groundings; this one, with every relation in
every leaf, grounds nearly every triple of entities, and is computed here as arrays over the entities instead.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from rulewright import datasets
from rulewright.checks import Progress
from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids, match_sorted
from rulewright.engine.walks import Floats, Graph, find_relation
from rulewright.errors import DataError, FileError
from rulewright.evaluate.ranking import count_rivals, reciprocal_ranks
from rulewright.files import write_text
from rulewright.learn.lnn.operators import Form, Mixture, Operator, make_connective, make_mixer
from rulewright.learn.lnn.training import Loss, pair_loss
from rulewright.logic import count_steps, encode_step, invert_step
from rulewright.papers.catalogue import Experiment
from rulewright.papers.completion_runs import COLUMNS, make_progress, rank_splits

MAX_PAIRS = 10_000_000
"""Of entities; a graph with more is not for this form."""
MIN_VALID = 5
"""A query with fewer facts in valid is trained for the epochs that its loss on train speaks for."""


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Train, or go on training, the template of every query; rank valid and test; return the figures."""
    settings: Any = experiment.settings
    kb = datasets.load(str(settings["set"]))
    options = LeafOptions(**settings["options"])
    progress = make_progress(tell, "queries learned")
    mixture = LeafMixture(options, seed=seed, folder=folder, progress=progress).fit(kb)
    learned = time.process_time()
    rows, by_split = rank_splits(mixture, kb, tuple(settings["splits"]), tell)
    trained = mixture.trained_.values()
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "columns": COLUMNS,
        "rows": rows,
        "seed": seed,
        "ties": "mean",
        "options": asdict(options),
        "rules": len(trained),
        "epochs": {"best": sum(one.best_epoch for one in trained), "run": sum(len(one.losses) for one in trained)},
        "seconds": {  # of one core
            "learning": round(sum(one.seconds for one in trained), 1),
            "ranking": round(time.process_time() - learned, 1),
        },
        "splits": by_split,
    }


@dataclass(frozen=True)
class LeafOptions:
    """What a template is made of, and how it is trained.

    Args:
        chains: how many chains ``P(X, Y), Q(Y, Z)`` the disjunction has; the paper's template has one.
        leaves, connectives, alpha: see `learn.lnn.operators`.
        reduction: over the entities between, ``max`` or ``sum``.
        leak: the slope of the clamp outside [0, 1] while training.
        leaky_ranks: whether candidates are ranked through that clamp too, which tells apart what is exactly true or
            false alike.
        start: the mean of the first weights of `Pred`, each drawn between 0 and twice that.
        loss, margin: see `pair_loss`.
        negatives: how many other candidates are drawn for each answer, anew in every epoch.
        epochs, patience: training ends after so many epochs, or when so many have not been better than the best.
        batch_size, rate: of Adam.
    """

    chains: int = 1
    leaves: Mixture = "pred"
    connectives: Form = "lnn"
    alpha: float = 0.95
    reduction: Literal["max", "sum"] = "max"
    leak: float = 0.1
    leaky_ranks: bool = True
    start: float = 0.01
    loss: Loss = "margin"
    margin: float = 1.0
    negatives: int = 32
    epochs: int = 60
    patience: int = 10
    batch_size: int = 64
    rate: float = 0.02


class AskedFacts(NamedTuple):
    """For each query the fact that it is about: ``step`` leads from what is asked about to ``answers``."""

    step: int
    answers: Tensor


class Links:
    """The edges of a graph, and what they sum to for each pair of entities when steps have weights.

    >>> links = Links(Graph(KnowledgeBase.from_triples([("ann", "knows", "bob")])))
    >>> links.sum_weights(torch.tensor([0.5, 2.0])).tolist()
    [[0.0, 0.5], [2.0, 0.0]]
    """

    def __init__(self, graph: Graph) -> None:
        if graph.entities**2 > MAX_PAIRS:
            raise DataError(
                f"mixtures at the leaves are computed for all pairs of entities, up to {MAX_PAIRS:,}; this graph has "
                f"{graph.entities**2:,}: use PathMixture"
            )
        self.graph, self.steps, self.entities = graph, count_steps(graph.relations), graph.entities
        self._step = torch.from_numpy(graph.steps)
        self._pair = torch.from_numpy(graph.before * graph.entities + graph.after)

    def edges(self, step: int) -> tuple[Tensor, Tensor]:
        """Return where the edges of a step begin and end."""
        before, after = self.graph.edges(step)
        return torch.from_numpy(before), torch.from_numpy(after)

    def sum_weights(self, weights: Tensor) -> Tensor:
        """Return ``Σ_s w_s [s leads from x to y]`` for all pairs."""
        sums = weights.new_zeros(self.entities**2).index_add(0, self._pair, weights[self._step])
        return sums.view(self.entities, self.entities)


class LeafNetwork(nn.Module):
    """The template of one query.

    A leaf is as true of ``(x, y)`` as its mixture of ``Σ_s w_s [s leads from x to y]``; a hidden fact adds nothing to
    that sum, in neither direction.

    >>> links = Links(Graph(KnowledgeBase.from_triples([("ann", "p", "bob"), ("bob", "p", "cid")])))
    >>> network = LeafNetwork(2, LeafOptions(leaky_ranks=False)).eval()
    >>> network.load_values({"first.0": [1, 1, 0], "second.0": [1, 1, 0], "direct": [1, 0, 0]})
    >>> network(links, torch.tensor([0]), torch.tensor([[0, 1, 2]])).tolist()
    [[0.0, 0.0, 1.0]]
    >>> network(links, torch.tensor([0]), torch.tensor([[0, 1, 2]]), AskedFacts(0, torch.tensor([1]))).tolist()
    [[0.0, 0.0, 0.0]]
    """

    def __init__(self, steps: int, options: LeafOptions, random: torch.Generator | None = None) -> None:
        super().__init__()
        self.options = options

        def make_leaf() -> Operator:
            leaf = make_mixer(options.leaves, steps, start=options.start)
            if options.leaves == "attention":
                with torch.no_grad():  # equal chains would stay equal
                    leaf.raw.copy_(options.start * torch.randn(steps, generator=random, dtype=torch.float64))
            else:
                with torch.no_grad():
                    leaf.raw.mul_(2 * torch.rand(steps, generator=random, dtype=torch.float64))
            return leaf

        def make(connective: str, arity: int) -> Operator:
            return make_connective(connective, options.connectives, arity, alpha=options.alpha)

        self.first = nn.ModuleList(make_leaf() for _ in range(options.chains))
        self.second = nn.ModuleList(make_leaf() for _ in range(options.chains))
        self.both = nn.ModuleList(make("and", 2) for _ in range(options.chains))
        self.direct = make_leaf()
        self.either = make("or", options.chains + 1)
        for operator in self.operators().values():
            operator.leak = options.leak

    def operators(self) -> dict[str, Operator]:
        """Return the operators by name."""
        return {name: part for name, part in self.named_modules() if isinstance(part, Operator)}

    def load_values(self, values: Mapping[str, Any]) -> None:
        """Take up the parameters of some operators, as `Operator.values` returns them."""
        operators = self.operators()
        for name, learned in values.items():
            operators[name].load_values(learned)

    def forward(self, links: Links, asked: Tensor, candidates: Tensor, hidden: AskedFacts | None = None) -> Tensor:
        """Return how true each candidate is: ``candidates[i]`` are those of the query about ``asked[i]``."""
        parts = [_LeafTruth(self.direct, links, asked, hidden).leave()[torch.arange(len(asked))[:, None], candidates]]
        for first, second, both in zip(self.first, self.second, self.both, strict=True):
            near = _LeafTruth(first, links, asked, hidden).leave()
            far = _LeafTruth(second, links, asked, hidden).arrive(candidates)
            truth = both(torch.stack([near[:, None].expand_as(far), far], dim=-1))
            parts.append(truth.amax(dim=-1) if self.options.reduction == "max" else truth.sum(dim=-1))
        result: Tensor = self.either(torch.stack(parts, dim=-1))
        return result


class _LeafTruth:
    """How true one leaf is of pairs of entities, for each query without its hidden fact.

    Hiding changes two pairs of a query, there and back, so all others are computed once for all queries.
    """

    def __init__(self, leaf: Any, links: Links, asked: Tensor, hidden: AskedFacts | None) -> None:
        self.asked, self.hidden = asked, hidden
        weights = leaf.weights()
        sums = links.sum_weights(weights)
        self.truth: Tensor = leaf.mix(sums)
        if hidden is None:
            return
        forth, back = weights[hidden.step], weights[invert_step(hidden.step)]
        is_loop = (asked == hidden.answers).double()  # there and back are one pair
        self.forth: Tensor = leaf.mix(sums[asked, hidden.answers] - forth - is_loop * back)
        self.back: Tensor = leaf.mix(sums[hidden.answers, asked] - back - is_loop * forth)

    def leave(self) -> Tensor:
        """Return ``[query, entity]``: from what is asked about to every entity."""
        truth = self.truth[self.asked]
        if self.hidden is None:
            return truth
        return truth.index_put((torch.arange(len(truth)), self.hidden.answers), self.forth)

    def arrive(self, candidates: Tensor) -> Tensor:
        """Return ``[query, candidate, entity]``: from every entity to the candidates."""
        truth = self.truth.T[candidates]
        if self.hidden is None:
            return truth
        for start, end, value in (
            (self.asked, self.hidden.answers, self.forth),
            (self.hidden.answers, self.asked, self.back),
        ):
            row, position = (candidates == end[:, None]).nonzero().unbind(dim=1)
            truth = truth.index_put((row, position, start[row]), value[row])
        return truth


@dataclass(frozen=True)
class TrainedLeaf:
    """What training one query gave: the operators' values of the best epoch, and how it went."""

    values: dict[str, tuple[float, ...]]
    best_epoch: int
    losses: tuple[float, ...]
    scores: tuple[float, ...]
    seconds: float


class LeafMixture:
    """Answers ``r(h, ?)`` and ``r(?, t)`` by a `LeafNetwork` for each relation and direction.

    Each query of training is asked on the graph without its own fact. The number of epochs is chosen for each relation
    and direction by the filtered MRR on the split ``valid``, where that has enough facts. With a ``folder``, what is
    learned is kept there, and the same call goes on where it was stopped.

    >>> facts = [(f"a{i}", "p", f"b{i}") for i in range(9)] + [(f"b{i}", "q", f"a{i}") for i in range(8)]
    >>> kb = KnowledgeBase.from_triples(facts)
    >>> mixture = LeafMixture(LeafOptions(epochs=20, batch_size=4)).fit(kb)
    >>> b8 = kb.domains["entity"].index_of("b8")
    >>> str(kb.domains["entity"].labels[mixture.scores("q", np.array([b8]))[0].argmax()])
    'a8'
    """

    trained_: dict[int, TrainedLeaf]

    def __init__(
        self,
        options: LeafOptions,
        *,
        seed: int = 0,
        folder: Path | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.options, self.seed, self.folder, self.progress = options, seed, folder, progress

    def fit(self, kb: KnowledgeBase) -> LeafMixture:
        """Train the template of every relation with facts, in both directions."""
        self._kb, self._links = kb, Links(Graph(kb))
        if self.folder is not None:
            self._claim_folder(self.folder)
        names = [name for name, predicate in kb.predicates.items() if signature(predicate) == "ee" and kb.count(name)]
        steps = [(name, encode_step(find_relation(kb, name), inverse)) for name in names for inverse in (False, True)]
        self.trained_ = {}
        for name, step in steps:
            self.trained_[step] = self._load(step) or self._train(step)
            if self.progress is not None:
                self.progress(f"learning {name}", len(self.trained_), len(steps))
        self._networks = {step: self._rebuild(trained) for step, trained in self.trained_.items()}
        return self

    def scores(self, relation: str, entities: Ids, *, inverse: bool = False) -> Floats:
        """Return a row for each entity: how well every entity answers ``relation(h, ?)``, or ``relation(?, h)``."""
        step = encode_step(find_relation(self._kb, relation), inverse)
        if step not in self._networks:
            return np.zeros((len(entities), self._kb.n_entities))
        return score_all(self._networks[step], self._links, entities)

    def _rebuild(self, trained: TrainedLeaf) -> LeafNetwork:
        network = LeafNetwork(self._links.steps, self.options)
        network.load_values({name: values for name, values in trained.values.items() if values})
        return network

    def _train(self, step: int) -> TrainedLeaf:
        began = time.process_time()
        options = self.options
        random = torch.Generator().manual_seed(self.seed * count_steps(len(self._kb.predicates)) + step)
        network = LeafNetwork(self._links.steps, options, random)
        optimizer = torch.optim.Adam(network.parameters(), lr=options.rate)
        asked, answers = self._links.edges(step)
        is_known = torch.zeros(self._links.entities, self._links.entities, dtype=torch.bool)
        is_known[asked, answers] = True
        held_out = _HeldOut.of(self._kb, self._links.graph, step)
        losses: list[float] = []
        scores: list[float] = []
        best: tuple[float, int, dict[str, tuple[float, ...]]] = (-math.inf, 0, {})
        for epoch in range(1, options.epochs + 1):
            total = 0.0
            for batch in torch.split(torch.randperm(len(asked), generator=random), options.batch_size):
                loss = self._loss(network, step, asked[batch], answers[batch], is_known, random)
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
                for operator in network.operators().values():
                    operator.project_()
                total += float(loss.detach()) * len(batch)
            losses.append(total / len(asked))
            scores.append(-losses[-1] if held_out is None else held_out.mrr(network, self._links))
            if scores[-1] > best[0]:
                best = (scores[-1], epoch, {name: one.values() for name, one in network.operators().items()})
            if epoch - best[1] >= options.patience:
                break
        trained = TrainedLeaf(best[2], best[1], tuple(losses), tuple(scores), time.process_time() - began)
        if self.folder is not None:
            write_text(self._file(self.folder, step), json.dumps(asdict(trained)) + "\n")
        return trained

    def _loss(
        self,
        network: LeafNetwork,
        step: int,
        asked: Tensor,
        answers: Tensor,
        is_known: Tensor,
        random: torch.Generator,
    ) -> Tensor:
        """Return the loss of some facts, each hidden from itself, beside candidates that train does not know."""
        network.train()
        drawn = torch.randint(self._links.entities, (len(asked), self.options.negatives), generator=random)
        is_false = ~is_known[asked[:, None], drawn]
        candidates = torch.cat([answers[:, None], drawn], dim=1)
        values = network(self._links, asked, candidates, AskedFacts(step, answers))
        return pair_loss(self.options.loss, values[:, 0], values[:, 1:], is_false, self.options.margin)

    def _claim_folder(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        settings = {
            "options": asdict(self.options),
            "seed": self.seed,
            "entities": self._kb.n_entities,
            "relations": len(self._kb.predicates),
            "facts": self._kb.n_facts,
        }
        file = folder / "settings.json"
        if not file.exists():
            write_text(file, json.dumps(settings, indent=1) + "\n")
        elif json.loads(file.read_text(encoding="utf-8")) != settings:
            raise FileError(f"{file} is of a run with other facts or parameters; choose another folder")

    @staticmethod
    def _file(folder: Path, step: int) -> Path:
        return folder / f"target_{step}.json"

    def _load(self, step: int) -> TrainedLeaf | None:
        if self.folder is None or not (file := self._file(self.folder, step)).exists():
            return None
        return TrainedLeaf(**json.loads(file.read_text(encoding="utf-8")))


class _HeldOut(NamedTuple):
    """The facts of valid that one query is about, and all its answers that may not count as wrong."""

    entities: Ids
    row: Ids
    answers: Ids
    known_row: Ids
    known: Ids

    @classmethod
    def of(cls, kb: KnowledgeBase, graph: Graph, step: int) -> _HeldOut | None:
        if "valid" not in kb.splits:
            return None
        asked, answers = Graph(kb.splits["valid"]).edges(step)
        if len(asked) < MIN_VALID:
            return None
        entities, row = np.unique(asked, return_inverse=True)
        facts = zip((asked, answers), graph.edges(step), strict=True)
        pairs = np.unique(np.stack([np.concatenate(columns) for columns in facts]), axis=1)
        known_row, position = match_sorted(asked, pairs[0])
        return cls(entities, row, answers, known_row, pairs[1][position])

    def mrr(self, network: LeafNetwork, links: Links) -> float:
        scores = score_all(network, links, self.entities)[self.row]
        return float(reciprocal_ranks(*count_rivals(scores, self.answers, self.known_row, self.known)).mean())


def score_all(network: LeafNetwork, links: Links, entities: Ids) -> Floats:
    """Return how true every entity is as an answer about each of ``entities``."""
    network.train(network.options.leaky_ranks)
    everyone = torch.arange(links.entities)
    rows = []
    with torch.no_grad():
        for block in torch.split(torch.from_numpy(np.asarray(entities, dtype=np.int64)), 64):
            rows.append(network(links, block, everyone.expand(len(block), -1)))
    scores: Floats = torch.cat(rows).numpy() if rows else np.zeros((0, links.entities))
    return scores
