"""What the MILR experiments are about: documents to train, select and test on, and the rules for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rulewright.datasets import locate
from rulewright.errors import unknown_name
from rulewright.evaluate.extraction import named_facts, read_named_facts
from rulewright.io import docred, read_rules
from rulewright.io.docred import Document
from rulewright.io.json_shape import load
from rulewright.learn import RuleMiner
from rulewright.logic import RuleSet

SELECTION_SHARE = {"dwie": 18, "redocred": 50}


@dataclass(frozen=True)
class MilrTask:
    """A data set made ready: ``rules`` are mined, ``gold_rules`` judge consistency where there are some.

    ``labels`` are readable names of relations, where those in the data are not.
    """

    name: str
    training: tuple[Document, ...]
    selection: tuple[Document, ...]
    test: tuple[Document, ...]
    relations: tuple[str, ...]
    rules: RuleSet
    train_facts: frozenset[tuple[str, str, str]]
    gold_rules: RuleSet | None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def frequencies(self) -> dict[str, int]:
        """How often each relation holds in the training documents, each fact once."""
        counts = Counter(fact.relation for document in self.training for fact in set(document.facts))
        return {name: counts[name] for name in self.relations}


def load_task(name: str, *, min_confidence: float) -> MilrTask:
    """Load a task: ``dwie`` or ``redocred``."""
    makers = {"dwie": _dwie, "redocred": _redocred}
    if name not in makers:
        raise unknown_name("task", name, makers)
    return makers[name](min_confidence)


def _dwie(min_confidence: float) -> MilrTask:
    """Train on 80 documents of dev and select on 18, by title; the rules come from train, which has no text."""
    folder = locate("dwie")
    by_title = sorted(docred.read_documents(folder / "dev.json"), key=lambda document: document.title)
    cut = len(by_title) - SELECTION_SHARE["dwie"]
    annotated = docred.read_documents(folder / "train_annotations_notext.json")
    return MilrTask(
        "dwie",
        tuple(by_title[:cut]),
        tuple(by_title[cut:]),
        docred.read_documents(folder / "test.json"),
        _read_relations(folder / "rel2id.json"),
        _mine_rules(annotated, min_confidence),
        frozenset(read_named_facts(folder / "train_annotated.fact")),
        read_rules(folder / "dwie.grules.txt"),
    )


def _redocred(min_confidence: float) -> MilrTask:
    """Train on 450 documents of dev, whose facts also give the rules, and select on the other 50."""
    folder = locate("redocred")
    documents = docred.read_documents(folder / "dev_revised.json")
    cut = len(documents) - SELECTION_SHARE["redocred"]
    meta = folder.parent / "docred_meta"
    return MilrTask(
        "redocred",
        documents[:cut],
        documents[cut:],
        docred.read_documents(folder / "test_revised.json"),
        _read_relations(meta / "rel2id.json"),
        _mine_rules(documents[:cut], min_confidence),
        frozenset(named_facts(documents[:cut])),
        None,
        docred.read_relation_names(meta / "rel_info.json"),
    )


def _read_relations(path: Path) -> tuple[str, ...]:
    """Read the relations in the order of their indices, without the one that stands for none."""
    by_index = sorted((index.integer(), name) for name, index in load(path).fields())
    return tuple(name for _, name in by_index[1:])


def _mine_rules(documents: Sequence[Document], min_confidence: float) -> RuleSet:
    kb = docred.to_knowledge_base(documents)
    return RuleMiner(preset="milr", max_length=2, min_confidence=min_confidence).fit(kb).rules_
