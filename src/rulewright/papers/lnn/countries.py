"""Countries S1 to S3: which region, or sub-region, is a country in? One chain template, learned by gradient."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright import datasets
from rulewright.data import KnowledgeBase
from rulewright.data.facts import group_by_signature
from rulewright.learn.lnn.learner import LNNLearner
from rulewright.learn.lnn.ready import countries
from rulewright.papers.catalogue import Experiment

TARGET = "locatedIn"

Ids = npt.NDArray[Any]


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Callable[[str], None]) -> dict[str, Any]:
    """Train on the questions of train with each reduction; rank the candidates of test countries by the fixed one.

    Of the other one the figures are given beside it, on test and on the questions of train.
    """
    settings: Any = experiment.settings
    folder.mkdir(parents=True, exist_ok=True)
    number = int(settings["number"])
    kb = datasets.load(f"countries_s{number}")
    regions = top_regions(kb)
    examples = training_examples(kb, regions if number != 2 else None)
    tell(f"{examples.count(TARGET)} questions to train on, {kb.split('test').count(TARGET)} to test on")
    began = time.monotonic()
    candidates = np.unique(kb.split("test").columns(TARGET)[1]) if number == 2 else regions
    learners, train_scores = {}, {}
    for reduction in ("max", "sum"):
        checkpoints = folder / f"checkpoints_{reduction}"
        options = {**settings["options"], "reduction": reduction}
        learner = LNNLearner(
            countries(number), corruption="examples", positions=(1,), seed=seed, folder=checkpoints, **options
        )
        learners[reduction] = learner.fit(kb, examples)
        train_scores[reduction] = ranked_auc_pr(learner, examples, candidates)
        score = f"AUC-PR {train_scores[reduction]:.4f}"
        tell(f"{reduction}: {score} on the questions to train on, each fact hidden from itself")
    seconds = time.monotonic() - began
    learner = learners[settings["reduction"]]
    scores = {name: ranked_auc_pr(learner, kb.split("test"), candidates) for name, learner in learners.items()}
    crisp = [str(rule.canonical()) for rule in learner.rules_.rules[:1]]
    for rule in learner.rules_:
        tell(f"{rule}")
    picture = folder / "rule.png"
    drawn = _draw(learner.network(TARGET), picture, tell)
    return {
        "experiment": experiment.name,
        "title": experiment.title,
        "seed": seed,
        "rows": {"ours": {"auc_pr": scores[settings["reduction"]]}},
        "columns": ["auc_pr"],
        "reduction": settings["reduction"],
        "by_reduction": {name: {"auc_pr": scores[name], "train_auc_pr": train_scores[name]} for name in learners},
        "rules": [str(rule) for rule in learner.rules_],
        "crisp": crisp[0] if crisp else None,
        "templates": [str(template) for template in learner.templates_],
        "epochs": len(learner.trained_[TARGET].losses),
        "losses": [round(loss, 6) for loss in learner.trained_[TARGET].losses],
        "seconds": round(seconds, 1),
        "picture": picture.name if drawn else None,
        "paper": settings.get("paper"),
    }


def ranked_auc_pr(learner: LNNLearner, questions: KnowledgeBase, candidates: Ids) -> float:
    """Return AUC-PR over all pairs of a candidate and an entity that lies in one."""
    inner, outer = questions.columns(TARGET)
    kept = np.isin(outer, candidates)
    inner, outer = inner[kept], outer[kept]
    entities = np.unique(inner)
    queries = (np.repeat(entities, len(candidates)), np.tile(candidates, len(entities)))
    width = int(candidates.max()) + 1
    truth = np.isin(queries[0] * width + queries[1], inner * width + outer)
    return trapezoid_auc_pr(learner.values(TARGET, queries), truth)


def top_regions(kb: KnowledgeBase) -> Ids:
    """Return the regions that lie in nothing else: Africa, the Americas, Asia, Europe and Oceania."""
    inner, outer = kb.columns(TARGET)
    return np.setdiff1d(outer, inner)


def training_examples(kb: KnowledgeBase, answers: Ids | None) -> KnowledgeBase:
    """Return the questions of train, of some answers only where they are given: train of S1 has both."""
    train = kb.split("train")
    columns = train.columns(TARGET)
    if answers is not None:
        kept = np.isin(columns[1], answers)
        columns = tuple(column[kept] for column in columns)
    return train.with_facts(group_by_signature(train.predicates, {TARGET: columns}))


def trapezoid_auc_pr(scores: Ids, truth: Ids) -> float:
    """Return the area under the precision-recall curve, its points joined by straight lines.

    >>> trapezoid_auc_pr(np.array([3.0, 2.0, 1.0]), np.array([True, True, False]))
    1.0
    """
    from sklearn.metrics import auc, precision_recall_curve

    precision, recall, _ = precision_recall_curve(truth, scores)
    return float(auc(recall, precision))


def _draw(network: Any, path: Path, tell: Callable[[str], None]) -> bool:
    from rulewright.errors import MissingExtraError
    from rulewright.papers.lnn.pictures import draw_rule_tree

    try:
        draw_rule_tree(path, network)
    except MissingExtraError as error:
        tell(f"no picture: {error}")
        return False
    return True
