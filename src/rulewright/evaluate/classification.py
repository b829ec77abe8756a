"""How well scores tell true atoms from false ones: the area under the precision-recall curve."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import nan

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, ParseError, unknown_name
from rulewright.files import read_text

GroundAtom = tuple[str, tuple[str, ...]]

HEADER = "probability\tlog_odds\tpredicate\targuments"
"""The first line of a file of scores; each further one has an argument a column from the fourth on."""


@dataclass(frozen=True)
class Ranked:
    """How one predicate's atoms, or all, were ranked: how many there are, how many are true, and the AUC-PR.

    ``auc_pr`` is average precision, ``Σ_n (R_n − R_{n−1}) P_n``, over the distinct scores from the highest down, as
    `sklearn.metrics.average_precision_score` computes it: atoms of equal score enter together, so that their order
    plays no part. It is NaN where nothing is true.
    """

    atoms: int
    true: int
    auc_pr: float

    def as_dict(self) -> dict[str, object]:
        """Return the figures, for JSON."""
        return {"atoms": self.atoms, "true": self.true, "auc_pr": None if np.isnan(self.auc_pr) else self.auc_pr}


@dataclass(frozen=True)
class ClassificationScores:
    """The figures of all atoms pooled, and of every predicate."""

    pooled: Ranked
    by_predicate: Mapping[str, Ranked]

    @property
    def auc_pr(self) -> float:
        """The area under the precision-recall curve of all atoms, ranked together."""
        return self.pooled.auc_pr

    def as_dict(self) -> dict[str, object]:
        """Return the figures, for JSON."""
        return {
            **self.pooled.as_dict(),
            "by_predicate": {name: ranked.as_dict() for name, ranked in self.by_predicate.items()},
        }


def average_precision(scores: npt.ArrayLike, truth: npt.ArrayLike) -> float:
    """Return ``Σ_n (R_n − R_{n−1}) P_n``; NaN where nothing is true.

    >>> round(average_precision([3.0, 2.0, 2.0, 1.0], [True, False, True, False]), 4)
    0.8333
    """
    from sklearn.metrics import average_precision_score

    values, is_true = np.asarray(scores, dtype=np.float64), np.asarray(truth, dtype=bool)
    if np.isnan(values).any():
        raise DataError("a score is NaN, which has no rank")
    return float(average_precision_score(is_true, values)) if is_true.any() else nan


def evaluate_classification(predicted: Mapping[GroundAtom, float], gold: KnowledgeBase) -> ClassificationScores:
    """Compare scores with gold atoms, true and false; every gold atom needs a score, others are not looked at.

    Any score that grows with the probability serves; log-odds have fewer ties. Of an atom with classes gold has one,
    the last of its arguments, and the others are false.

    >>> gold = KnowledgeBase.from_facts([("smokes", "ann"), ("smokes", "bob")])
    >>> evaluate_classification({("smokes", ("ann",)): 2.0, ("smokes", ("bob",)): 1.0}, gold).auc_pr
    1.0
    """
    by_predicate: dict[str, Ranked] = {}
    all_scores: list[float] = []
    all_truths: list[bool] = []
    known = {name for name, _ in predicted}
    for name in gold.predicates:
        scores: list[float] = []
        truth: list[bool] = []
        classes = gold.predicates[name].classes or ()
        for is_true in (True, False):
            atoms = gold.tuples(name, truth=is_true)
            if classes and not is_true:
                pairs = ((args, other) for args in gold.tuples(name) for other in classes if other != args[-1])
                atoms = [(*args[:-1], other) for args, other in pairs]
            for args in atoms:
                atom = (name, tuple(map(str, args)))
                if atom not in predicted:
                    if name not in known:
                        raise unknown_name("predicate of predictions", name, known)
                    raise DataError(f"no score for {name}({', '.join(atom[1])}), which gold has")
                scores.append(predicted[atom])
                truth.append(is_true)
        if scores:
            by_predicate[name] = Ranked(len(scores), sum(truth), average_precision(scores, truth))
        all_scores += scores
        all_truths += truth
    if not all_scores:
        raise DataError("gold has no atoms, true or false, so there is nothing to compare with")
    pooled = Ranked(len(all_scores), sum(all_truths), average_precision(all_scores, all_truths))
    return ClassificationScores(pooled, by_predicate)


def read_scores(path: str | os.PathLike[str]) -> dict[GroundAtom, float]:
    """Read a file of scores, as ``rulewright infer -o`` writes it: the log-odds of each atom.

    >>> file = folder / "scores.tsv"
    >>> _ = file.write_text("probability\\tlog_odds\\tpredicate\\targuments\\n0.5\\t0.0\\tsmokes\\tann")
    >>> read_scores(file)
    {('smokes', ('ann',)): 0.0}
    """
    file = os.fspath(path)
    lines = read_text(path).split("\n")
    if lines[0].rstrip("\r") != HEADER:
        raise ParseError(f"expected the header {HEADER!r}, found {lines[0]!r}", file=file, line=1)
    scores: dict[GroundAtom, float] = {}
    for line_number, line in enumerate(lines[1:], start=2):
        if not line.strip():
            continue
        columns = line.rstrip("\r").split("\t")
        if len(columns) < 4:
            raise ParseError(f"expected four columns or more, found {len(columns)}", file=file, line=line_number)
        atom = (columns[2], tuple(columns[3:]))
        if atom in scores:
            raise ParseError(f"{columns[2]}({', '.join(columns[3:])}) has a score already", file=file, line=line_number)
        try:
            scores[atom] = float(columns[1])
        except ValueError:
            raise ParseError(f"log-odds are a number, found {columns[1]!r}", file=file, line=line_number) from None
    return scores
