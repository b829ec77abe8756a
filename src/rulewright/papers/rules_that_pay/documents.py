"""The documents of an experiment: labelled ones with text, others without text, those to test on; and their rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rulewright.datasets import locate
from rulewright.io import docred
from rulewright.io.docred import Document
from rulewright.learn import RuleMiner
from rulewright.logic import RuleSet
from rulewright.papers.documents import write_names_as_text
from rulewright.papers.milr.tasks import MilrTask, load_task


@dataclass(frozen=True)
class PayTask:
    """What there is to learn from and to be judged by.

    ``labelled`` documents have text and annotations; ``textless`` ones annotations and names alone; of ``unlabelled``
    ones the text is read and the annotations are not.
    """

    milr: MilrTask
    labelled: tuple[Document, ...]
    held_out: tuple[Document, ...]
    textless: tuple[Document, ...]
    unlabelled: tuple[Document, ...]

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations, in the order of logits."""
        return self.milr.relations

    @property
    def test(self) -> tuple[Document, ...]:
        """The documents that are scored once."""
        return self.milr.test

    @property
    def annotated(self) -> tuple[Document, ...]:
        """The documents whose annotations may be mined."""
        return (*self.labelled, *self.textless)


def load_pay_task(name: str, *, folds: int, share: float) -> PayTask:
    """Load ``dwie`` or ``redocred``; with folds, selection documents are learned from too.

    ``share`` keeps that part of what is annotated, drawn once for all seeds; the other documents with text are
    unlabelled.
    """
    task = load_task(name, min_confidence=0.98)
    textless: Sequence[Document] = ()
    if name == "dwie":
        read = docred.read_documents(locate("dwie") / "train_annotations_notext.json")
        textless = [write_names_as_text(document) for document in read]
    labelled, unlabelled = _draw([*task.training, *task.selection] if folds > 1 else task.training, share)
    textless, _ = _draw(textless, share)
    held_out = labelled if folds > 1 else task.selection
    return PayTask(replace(task, training=labelled), labelled, held_out, textless, unlabelled)


def _draw(documents: Sequence[Document], share: float) -> tuple[tuple[Document, ...], tuple[Document, ...]]:
    """Return a share of documents, and the others."""
    if share == 1:
        return tuple(documents), ()
    order = np.random.default_rng(0).permutation(len(documents))
    chosen = sorted(order[: round(share * len(documents))].tolist())
    kept = set(chosen)
    others = (document for index, document in enumerate(documents) if index not in kept)
    return tuple(documents[index] for index in chosen), tuple(others)


def mine(documents: Sequence[Document], *, min_confidence: float, preset: bool) -> RuleSet:
    """Mine rules of at most two steps, with the published filters or with the miner's own defaults."""
    kb = docred.to_knowledge_base(documents)
    if preset:
        return RuleMiner(preset="milr", max_length=2, min_confidence=min_confidence).fit(kb).rules_
    return RuleMiner(max_length=2, min_confidence=min_confidence, unary=False, constants=False).fit(kb).rules_
