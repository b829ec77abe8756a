"""LogicMP's table on text: one tagger of CoNLL-2003, with the ways to make its labels keep rules.

Every variant trains the same network; the epoch is chosen by entity F1 on testa, and testb is scored once. List rules
are added to the network that was trained with adjacent ones, their weight chosen on testa, so that what they change is
not mixed with the chance in training; the variant ``layer_trained_list`` trains through both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rulewright.datasets import locate
from rulewright.errors import unknown_name
from rulewright.evaluate.bootstrap import FloatArray, paired_bootstrap
from rulewright.files import read_text, write_text
from rulewright.inject import ConsistencyLoss, LogicLayer
from rulewright.io.conll import OUTSIDE, Sentence, bioes_classes, read, spans, to_bioes
from rulewright.logic import RuleSet, parse_rules
from rulewright.papers.catalogue import Experiment
from rulewright.papers.logicmp.sentences import SentenceFeaturizer, find_lists
from rulewright.papers.logicmp.tagger import (
    LABEL,
    NEXT,
    SAME_LIST,
    TOKEN,
    ChainHead,
    ChainTeacher,
    DistilledHead,
    LogicHead,
    MeanFieldHead,
    PenalisedHead,
    Tagger,
    TaggingHead,
    TaggingModel,
    Tags,
    train_tagger,
)
from rulewright.training.loop import TrainingProgress, TrainingResult, TrainingSettings

LEARN = "learn"


def adjacent_classes(category: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the labels with which a name of a category goes on, and those that go on with one.

    ``label(T) in first <=> label(U) in second`` for ``next(T, U)``: of all pairs of labels it allows just those that
    BIOES has.

    >>> adjacent_classes("PER")
    (('B-PER', 'I-PER'), ('I-PER', 'E-PER'))
    """
    return (f"B-{category}", f"I-{category}"), (f"I-{category}", f"E-{category}")


def tag_rules(categories: Iterable[str], *, weight: float | str = LEARN, lists: bool = False) -> str:
    """Return the rules in the rule language, each with a weight, or ``"learn"`` for one to be learned.

    The adjacent rule of each category and, with ``lists``, its list rule: one of two tokens in a list is part of a name
    of this category if and only if the other is.

    >>> print(tag_rules(["PER"], weight=2.5, lists=True))
    predicate label(token) in {'O', 'B-PER', 'I-PER', 'E-PER', 'S-PER'}.
    predicate next(token, token).
    closed next.
    2.5 next(T, U) => (label(T) in {'B-PER', 'I-PER'} <=> label(U) in {'I-PER', 'E-PER'}).
    predicate samelist(token, token).
    closed samelist.
    2.5 samelist(T, U) => (label(T) in {'B-PER', 'I-PER', 'E-PER', 'S-PER'} <=>
        label(U) in {'B-PER', 'I-PER', 'E-PER', 'S-PER'}).
    """
    names = sorted(set(categories))
    lines = [f"predicate {LABEL}({TOKEN}) in {_set(bioes_classes(names))}.", *_given(NEXT)]
    for before, after in map(adjacent_classes, names):
        lines.append(f"{weight} {NEXT}(T, U) => ({LABEL}(T) in {_set(before)} <=> {LABEL}(U) in {_set(after)}).")
    if lists:
        lines += _given(SAME_LIST)
        for name in names:
            part = _set([f"{prefix}-{name}" for prefix in "BIES"])
            lines.append(f"{weight} {SAME_LIST}(T, U) => ({LABEL}(T) in {part} <=>\n    {LABEL}(U) in {part}).")
    return "\n".join(lines)


def broken_adjacent(classes: Sequence[str]) -> Tensor:
    """Return ``[K, K]``: how many adjacent rules a label and the next one break.

    >>> broken_adjacent(["O", "B-PER", "E-PER"])
    tensor([[0., 0., 1.],
            [1., 1., 0.],
            [0., 0., 1.]])
    """
    sets = [adjacent_classes(category) for category in sorted({name[2:] for name in classes} - {""})]
    counts = [
        sum((first in before) != (second in after) for before, after in sets)
        for first, second in product(classes, repeat=2)
    ]
    return torch.tensor(counts, dtype=torch.float).view(len(classes), len(classes))


def _set(classes: Iterable[str]) -> str:
    return "{" + ", ".join(f"'{name}'" for name in classes) + "}"


def _given(name: str) -> list[str]:
    return [f"predicate {name}({TOKEN}, {TOKEN}).", f"closed {name}."]


TagSequences = Sequence[Sequence[str]]


def entity_counts(predicted: TagSequences, sentences: Sequence[Sentence]) -> FloatArray:
    """Return, for each sentence, the entities that are found rightly, that are predicted and that there are.

    An entity is found if its first and last token and its category are right.

    >>> entity_counts([["B-PER", "E-PER", "S-LOC"]], [Sentence(("a", "b", "c"), tags=("I-PER", "I-PER", "O"))])
    array([[1., 2., 1.]])
    """
    rows = []
    for tags, sentence in zip(predicted, sentences, strict=True):
        predicted_spans, gold = set(spans(tags)), set(spans(sentence.tags))
        rows.append((len(predicted_spans & gold), len(predicted_spans), len(gold)))
    return np.array(rows, dtype=float).reshape(-1, 3)


def score_tags(predicted: TagSequences, sentences: Sequence[Sentence], *, min_items: int) -> dict[str, Any]:
    """Score tags on all sentences, and on those with a list; count pairs of adjacent labels that BIOES has not."""
    counts = entity_counts(predicted, sentences)
    listed = np.array([bool(find_lists(sentence.tokens, min_items=min_items)) for sentence in sentences], dtype=bool)
    (right, given, wanted), whole = counts.sum(0), _figures(counts.sum(0, keepdims=True))
    return {
        "f1": float(whole["f1"][0]),
        "precision": float(right / given) if given else 0.0,
        "recall": float(right / wanted) if wanted else 0.0,
        "f1_lists": float(_figures(counts[listed].sum(0, keepdims=True))["f1"][0]),
        "list_sentences": int(listed.sum()),
        "broken_pairs": broken_pairs(predicted),
    }


def compare_tags(first: TagSequences, second: TagSequences, sentences: Sequence[Sentence]) -> dict[str, Any]:
    """Compare the F1 of two predictions by a paired bootstrap over documents."""
    documents = np.array([sentence.document for sentence in sentences])

    def by_document(tags: TagSequences) -> FloatArray:
        total = np.zeros((documents.max() + 1, 3))
        np.add.at(total, documents, entity_counts(tags, sentences))
        return total

    return paired_bootstrap(by_document(first), by_document(second), _figures)["f1"].as_dict()


def broken_pairs(predicted: TagSequences) -> int:
    """Return how many pairs of adjacent labels break an adjacent rule.

    >>> broken_pairs([["B-PER", "O", "S-LOC"], ["B-PER", "E-PER", "E-PER"]])
    2
    """
    classes = bioes_classes({tag[2:] for tags in predicted for tag in tags} - {""})
    class_index = {name: index for index, name in enumerate(classes)}
    broken = (broken_adjacent(classes) > 0).tolist()
    return sum(
        broken[class_index[before]][class_index[after]] for tags in predicted for before, after in pairwise(tags)
    )


def _figures(sums: FloatArray) -> dict[str, FloatArray]:
    return {"f1": 2 * sums[:, 0] / np.maximum(sums[:, 1] + sums[:, 2], 1)}


Tell = Callable[[str], None]
PLAIN = "plain"
ADJACENT = "layer_adjacent"
LISTS_ADDED = "list"
"""The way to decide with list rules added: the row `layer_adjacent_list`."""
IDENTITY = (
    "vectors",
    "dropout",
    "min_items",
    "iterations",
    "rule_weight",
    "initial_weight",
    "slrelax_weight",
    "logicdist",
)
"""The settings, besides those of training, that a saved run must share to be gone on with."""


@dataclass(frozen=True)
class TaggingTask:
    """Sentences with BIOES tags to train, select and test on."""

    training: tuple[Sentence, ...]
    selection: tuple[Sentence, ...]
    test: tuple[Sentence, ...]

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories of the names, in alphabetical order."""
        return tuple(sorted({tag[2:] for sentence in self.training for tag in sentence.tags if tag != OUTSIDE}))

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels."""
        return bioes_classes(self.categories)


@dataclass(frozen=True)
class TaggingOutcome:
    """What a variant said, by the name of its way to decide, how it was trained, and its rules as they were learned."""

    selection: Mapping[str, Tags]
    test: Mapping[str, Tags]
    training: TrainingResult
    parameters: int
    rules: Mapping[str, str]


def load_task() -> TaggingTask:
    """Load CoNLL-2003."""
    folder = locate("conll2003")
    parts = [
        tuple(replace(sentence, tags=to_bioes(sentence.tags)) for sentence in read(folder / f"eng.{name}"))
        for name in ("train", "testa", "testb")
    ]
    return TaggingTask(*parts)


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Tell) -> dict[str, Any]:
    """Run an experiment, or go on with it where it was stopped, and return its figures."""
    settings: Any = experiment.settings
    task = load_task()
    tell(f"{len(task.training)} sentences to train on, labels {', '.join(task.classes)}")
    rows: dict[str, Any] = {}
    predicted: dict[str, Tags] = {}
    for variant in settings["variants"]:
        outcome = _train_variant(task, settings, variant, seed, folder / variant, tell)
        for way, tags in outcome.test.items():
            name = f"{variant}_{way}" if way else variant
            predicted[name] = tags
            rows[name] = {
                **score_tags(tags, task.test, min_items=settings["min_items"]),
                "selection_f1": _f1(outcome.selection[way], task.selection),
                **_training_figures(outcome, way),
            }
    against_plain = {
        name: compare_tags(tags, predicted[PLAIN], task.test)
        for name, tags in predicted.items()
        if PLAIN in predicted and name != PLAIN
    }
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "seed": seed,
        "sentences": [len(task.training), len(task.selection), len(task.test)],
        "rows": rows,
        "columns": ["f1", "f1_lists", "selection_f1"],
        "against_plain": against_plain,
        "paper": settings.get("paper"),
    }


def build_head(variant: str, task: TaggingTask, settings: Mapping[str, Any]) -> TaggingHead:
    """Return what a variant puts on the logits of the tagger."""
    makers: dict[str, Callable[[TaggingTask, Mapping[str, Any]], TaggingHead]] = {
        PLAIN: lambda task, settings: TaggingHead(),
        "crf": lambda task, settings: ChainHead(len(task.classes)),
        "mean_field_crf": lambda task, settings: MeanFieldHead(len(task.classes), iterations=settings["iterations"]),
        "slrelax": _make_penalised_head,
        "logicdist": _make_distilled_head,
        ADJACENT: lambda task, settings: _make_layer_head(task, settings, lists=False),
        "layer_trained_list": lambda task, settings: _make_layer_head(task, settings, lists=True),
    }
    if variant not in makers:
        raise unknown_name("variant", variant, makers)
    return makers[variant](task, settings)


def build_tagger(task: TaggingTask, settings: Mapping[str, Any]) -> Tagger:
    """Return the network that all variants share, with words from scratch or with vectors of MiniLM's pieces."""
    pieces, vectors = None, None
    if settings["vectors"] == "minilm":
        from rulewright.papers.encoders import PretrainedEncoder

        encoder = PretrainedEncoder.load()
        pieces = encoder.tokenizer.pieces
        vectors = encoder.model.get_input_embeddings().weight  # type: ignore[operator]  # of a transformer
    elif settings["vectors"] != "none":
        raise unknown_name("source of vectors", settings["vectors"], ("none", "minilm"))
    featurizer = SentenceFeaturizer.from_sentences(
        task.training, classes=task.classes, pieces=pieces, min_items=settings["min_items"]
    )
    return Tagger(featurizer, hidden_size=settings["hidden_size"], dropout=settings["dropout"], subwords=vectors)


def _make_penalised_head(task: TaggingTask, settings: Mapping[str, Any]) -> TaggingHead:
    rules = parse_rules(tag_rules(task.categories, weight=1))
    return PenalisedHead(ConsistencyLoss(rules, form="violation"), weight=settings["slrelax_weight"])


def _make_distilled_head(task: TaggingTask, settings: Mapping[str, Any]) -> TaggingHead:
    options = settings["logicdist"]
    teacher = ChainTeacher(broken_adjacent(task.classes), strength=options["strength"])
    return DistilledHead(teacher, decay=options["decay"], limit=options["limit"])


def _make_layer_head(task: TaggingTask, settings: Mapping[str, Any], *, lists: bool) -> TaggingHead:
    rules = parse_rules(tag_rules(task.categories, weight=settings["rule_weight"], lists=lists))
    layer = LogicLayer(rules, iterations=settings["iterations"], initial_weight=settings["initial_weight"])
    return LogicHead(layer, evidence=(NEXT, SAME_LIST) if lists else (NEXT,))


def _train_variant(
    task: TaggingTask, settings: Mapping[str, Any], variant: str, seed: int, folder: Path, tell: Tell
) -> TaggingOutcome:
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    model = TaggingModel(build_tagger(task, settings), build_head(variant, task, settings))
    options = TrainingSettings(
        epochs=settings["epochs"],
        patience=settings["patience"],
        batch_size=settings["batch_size"],
        rate=settings["rate"],
        warmup=settings["warmup"],
        clip=settings["clip"],
        seed=seed,
    )

    def report(progress: TrainingProgress) -> None:
        if record := progress.record:
            tell(
                f"{variant}: epoch {record.epoch} of {progress.epochs}, loss {record.losses['loss']:.4f}, "
                f"F1 {record.score:.4f}, {record.seconds:.0f} s"
            )

    result = train_tagger(
        model,
        task.training,
        settings=options,
        score=lambda model: _f1(next(iter(model.predict(task.selection).values())), task.selection),
        folder=folder,
        identity={name: settings[name] for name in IDENTITY},
        progress=report,
    )
    parts = {"selection": task.selection, "test": task.test}
    kept = {name: _predict_once(folder / f"{name}.json", model, sentences) for name, sentences in parts.items()}
    parameters = sum(weights.numel() for weights in model.parameters())
    rules = {"": _rules_of(model)} if isinstance(model.head, LogicHead) else {}
    if variant == ADJACENT and settings["list_weights"]:
        rules[LISTS_ADDED] = _add_lists(model, task, settings, tell)
        for name, sentences in parts.items():
            kept[name][LISTS_ADDED] = _predict_once(folder / f"{name}_{LISTS_ADDED}.json", model, sentences)[""]
    return TaggingOutcome(kept["selection"], kept["test"], result, parameters, rules)


def _rules_of(model: TaggingModel) -> str:
    return str(getattr(model.head.layer, "rules", ""))


def _add_lists(model: TaggingModel, task: TaggingTask, settings: Mapping[str, Any], tell: Tell) -> str:
    """Put the list rule of each category behind the learned rules, with the weight that is best on the selection part.

    Of equal weights the smallest is taken. Returns all rules with their weights.
    """
    given = parse_rules(_rules_of(model))
    heads: list[tuple[float, LogicHead]] = []
    for weight in sorted(settings["list_weights"]):
        both = parse_rules(tag_rules(task.categories, weight=weight, lists=True))
        rules = RuleSet([*given, *[*both][len(given) :]], predicates=both.predicates, closed=both.closed)
        layer = LogicLayer(rules, iterations=settings["iterations"])
        model.head = LogicHead(layer, evidence=(NEXT, SAME_LIST))
        heads.append((_f1(model.predict(task.selection)[""], task.selection), model.head))
        tell(f"list rules of weight {weight:g}: F1 {heads[-1][0]:.4f}")
    model.head = max(heads, key=lambda scored: scored[0])[1]
    return _rules_of(model)


def _predict_once(file: Path, model: TaggingModel, sentences: Sequence[Sentence]) -> dict[str, Tags]:
    if not file.exists():
        write_text(file, json.dumps(model.predict(sentences)))
    read_back = json.loads(read_text(file))
    return {way: tuple(tuple(tags) for tags in sequences) for way, sequences in read_back.items()}


def _f1(predicted: Tags, sentences: Sequence[Sentence]) -> float:
    right, given, wanted = entity_counts(predicted, sentences).sum(0)
    return float(2 * right / max(given + wanted, 1))


def _training_figures(outcome: TaggingOutcome, way: str) -> dict[str, Any]:
    result = outcome.training
    return {
        "parameters": outcome.parameters,
        "epochs": len(result.history),
        "best_epoch": result.best_epoch,
        "curve": [[round(record.score or 0.0, 4), round(record.seconds, 1)] for record in result.history],
        "seconds_per_epoch": round(result.seconds / len(result.history), 1),
        **({"learned_rules": outcome.rules[way]} if way in outcome.rules else {}),
    }
