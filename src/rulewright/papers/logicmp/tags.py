"""LogicMP's table on text: one tagger of CoNLL-2003, with the ways to make its labels keep rules.

Every variant trains the same network; the epoch is chosen by entity F1 on testa, and testb is scored once. List rules
are added to the network that was trained with adjacent ones, their weight chosen on testa, so that what they change is
not mixed with the chance in training; the variant ``layer_trained_list`` trains through both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from rulewright.datasets import locate
from rulewright.errors import unknown_name
from rulewright.files import read_text, write_text
from rulewright.io.conll import OUTSIDE, Sentence, bioes_classes, read, to_bioes
from rulewright.logic import RuleSet, parse_rules
from rulewright.papers.catalogue import Experiment
from rulewright.papers.logicmp.sentences import SentenceFeaturizer
from rulewright.papers.logicmp.tag_rules import broken_adjacent, compared, entity_counts, scores, tag_rules
from rulewright.papers.logicmp.tagger import (
    NEXT,
    SAME_LIST,
    ChainHead,
    ChainTeacher,
    DistilledHead,
    Head,
    LogicHead,
    MeanFieldHead,
    PenalisedHead,
    Tagger,
    TaggingModel,
    Tags,
    train_tagger,
)
from rulewright.training.loop import TrainingProgress, TrainingResult, TrainingSettings

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
class Task:
    """Sentences with BIOES tags to train, select and test on."""

    training: tuple[Sentence, ...]
    selection: tuple[Sentence, ...]
    test: tuple[Sentence, ...]

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories of the names, in alphabetical order."""
        return tuple(sorted({tag[2:] for each in self.training for tag in each.tags if tag != OUTSIDE}))

    @property
    def classes(self) -> tuple[str, ...]:
        """The labels."""
        return bioes_classes(self.categories)


@dataclass(frozen=True)
class Outcome:
    """What a variant said, by the name of its way to decide, how it was trained, and its rules as they were learned."""

    selection: Mapping[str, Tags]
    test: Mapping[str, Tags]
    training: TrainingResult
    parameters: int
    rules: Mapping[str, str]


def load_task() -> Task:
    """Load CoNLL-2003."""
    folder = locate("conll2003")
    parts = [
        tuple(replace(sentence, tags=to_bioes(sentence.tags)) for sentence in read(folder / f"eng.{name}"))
        for name in ("train", "testa", "testb")
    ]
    return Task(*parts)


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Tell) -> dict[str, Any]:
    """Run an experiment, or go on with it where it was stopped, and return its figures."""
    settings: Any = experiment.settings
    task = load_task()
    tell(f"{len(task.training)} sentences to train on, labels {', '.join(task.classes)}")
    rows: dict[str, Any] = {}
    predicted: dict[str, Tags] = {}
    for variant in settings["variants"]:
        outcome = _outcome(task, settings, variant, seed, folder / variant, tell)
        for way, tags in outcome.test.items():
            name = f"{variant}_{way}" if way else variant
            predicted[name] = tags
            rows[name] = {
                **scores(tags, task.test, min_items=settings["min_items"]),
                "selection_f1": _f1(outcome.selection[way], task.selection),
                **_training_figures(outcome, way),
            }
    against_plain = {
        name: compared(tags, predicted[PLAIN], task.test)
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


def build_head(variant: str, task: Task, settings: Mapping[str, Any]) -> Head:
    """Return what a variant puts on the logits of the tagger."""
    makers: dict[str, Callable[[Task, Mapping[str, Any]], Head]] = {
        PLAIN: lambda task, settings: Head(),
        "crf": lambda task, settings: ChainHead(len(task.classes)),
        "mean_field_crf": lambda task, settings: MeanFieldHead(len(task.classes), iterations=settings["iterations"]),
        "slrelax": _penalised,
        "logicdist": _distilled,
        ADJACENT: lambda task, settings: _layered(task, settings, lists=False),
        "layer_trained_list": lambda task, settings: _layered(task, settings, lists=True),
    }
    if variant not in makers:
        raise unknown_name("variant", variant, makers)
    return makers[variant](task, settings)


def build_tagger(task: Task, settings: Mapping[str, Any]) -> Tagger:
    """Return the network that all variants share, with words from scratch or with vectors of MiniLM's pieces."""
    pieces, vectors = None, None
    if settings["vectors"] == "minilm":
        from rulewright.papers.milr.encoders import PretrainedEncoder

        encoder = PretrainedEncoder.load()
        pieces = encoder.tokenizer.pieces
        vectors = encoder.model.get_input_embeddings().weight  # type: ignore[operator]  # of a transformer
    elif settings["vectors"] != "none":
        raise unknown_name("kind of vectors", settings["vectors"], ("none", "minilm"))
    featurizer = SentenceFeaturizer.from_sentences(
        task.training, classes=task.classes, pieces=pieces, min_items=settings["min_items"]
    )
    return Tagger(featurizer, hidden_size=settings["hidden_size"], dropout=settings["dropout"], subwords=vectors)


def _penalised(task: Task, settings: Mapping[str, Any]) -> Head:
    rules = parse_rules(tag_rules(task.categories, weight=1))
    penalty = import_module("rulewright.inject").SLrelax(rules)
    return PenalisedHead(penalty, weight=settings["slrelax_weight"])


def _distilled(task: Task, settings: Mapping[str, Any]) -> Head:
    options = settings["logicdist"]
    teacher = ChainTeacher(broken_adjacent(task.classes), strength=options["strength"])
    return DistilledHead(teacher, decay=options["decay"], limit=options["limit"])


def _layered(task: Task, settings: Mapping[str, Any], *, lists: bool) -> Head:
    rules = parse_rules(tag_rules(task.categories, weight=settings["rule_weight"], lists=lists))
    layer = import_module("rulewright.inject").LogicLayer(
        rules, iterations=settings["iterations"], initial_weight=settings["initial_weight"]
    )
    return LogicHead(layer, evidence=(NEXT, SAME_LIST) if lists else (NEXT,))


def _outcome(task: Task, settings: Mapping[str, Any], variant: str, seed: int, folder: Path, tell: Tell) -> Outcome:
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
        score=lambda each: _f1(next(iter(each.predict(task.selection).values())), task.selection),
        folder=folder,
        identity={name: settings[name] for name in IDENTITY},
        progress=report,
    )
    parts = {"selection": task.selection, "test": task.test}
    kept = {name: _kept(folder / f"{name}.json", model, sentences) for name, sentences in parts.items()}
    parameters = sum(each.numel() for each in model.parameters())
    rules = {"": _rules_of(model)} if isinstance(model.head, LogicHead) else {}
    if variant == ADJACENT and settings["list_weights"]:
        rules[LISTS_ADDED] = _add_lists(model, task, settings, tell)
        for name, sentences in parts.items():
            found = _kept(folder / f"{name}_{LISTS_ADDED}.json", model, sentences)
            kept[name][LISTS_ADDED] = found[""]
    return Outcome(kept["selection"], kept["test"], result, parameters, rules)


def _rules_of(model: TaggingModel) -> str:
    return str(getattr(model.head.layer, "rules", ""))


def _add_lists(model: TaggingModel, task: Task, settings: Mapping[str, Any], tell: Tell) -> str:
    """Put the list rule of each category behind the learned rules, with the weight that is best on the selection part.

    Of equal weights the smallest is taken. Returns all rules with their weights.
    """
    given = parse_rules(_rules_of(model))
    inject = import_module("rulewright.inject")
    heads: list[tuple[float, LogicHead]] = []
    for weight in sorted(settings["list_weights"]):
        both = parse_rules(tag_rules(task.categories, weight=weight, lists=True))
        rules = RuleSet([*given, *[*both][len(given) :]], predicates=both.predicates, closed=both.closed)
        layer = inject.LogicLayer(rules, iterations=settings["iterations"])
        model.head = LogicHead(layer, evidence=(NEXT, SAME_LIST))
        heads.append((_f1(model.predict(task.selection)[""], task.selection), model.head))
        tell(f"list rules of weight {weight:g}: F1 {heads[-1][0]:.4f}")
    model.head = max(heads, key=lambda each: each[0])[1]
    return _rules_of(model)


def _kept(file: Path, model: TaggingModel, sentences: Sequence[Sentence]) -> dict[str, Tags]:
    if not file.exists():
        write_text(file, json.dumps(model.predict(sentences)))
    read_back = json.loads(read_text(file))
    return {way: tuple(tuple(tags) for tags in sequences) for way, sequences in read_back.items()}


def _f1(predicted: Tags, sentences: Sequence[Sentence]) -> float:
    right, found, there = entity_counts(predicted, sentences).sum(0)
    return float(2 * right / max(found + there, 1))


def _training_figures(outcome: Outcome, way: str) -> dict[str, Any]:
    result = outcome.training
    return {
        "parameters": outcome.parameters,
        "epochs": len(result.history),
        "best_epoch": result.best_epoch,
        "seconds_per_epoch": round(result.seconds / len(result.history), 1),
        **({"learned_rules": outcome.rules[way]} if way in outcome.rules else {}),
    }
