"""What precision, recall, F1 and both Ign F1 are made of: five counts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rulewright.evaluate.facts import Agreement

FloatArray = npt.NDArray[np.float64]

COUNTS = ("wanted", "given", "correct", "wanted_in_train", "correct_in_train")
"""The columns of an array of counts: the fields of `ExtractionCounts`, with 0 where there is no training data."""


def f1(counts: FloatArray) -> FloatArray:
    """``2 · correct / (given + wanted)`` of every row of `COUNTS`."""
    wanted, given, correct, _, _ = np.moveaxis(counts, -1, 0)
    return _ratio(2 * correct, given + wanted)


def ign_f1_docred(counts: FloatArray) -> FloatArray:
    """Ign F1 as DocRED defines it; see `ExtractionCounts.ign_f1_docred`."""
    wanted, given, correct, _, known = np.moveaxis(counts, -1, 0)
    return _harmonic_mean(_ratio(correct - known, given - known), _ratio(correct, wanted))


def ign_f1_logire(counts: FloatArray) -> FloatArray:
    """Ign F1 as LogiRE computes it; see `ExtractionCounts.ign_f1_logire`."""
    wanted, given, correct, wanted_known, known = np.moveaxis(counts, -1, 0)
    return _harmonic_mean(_ratio(correct, given), _ratio(correct - known, wanted - wanted_known))


def _harmonic_mean(precision: FloatArray, recall: FloatArray) -> FloatArray:
    return _ratio(2 * precision * recall, precision + recall)


def _ratio(part: FloatArray, whole: FloatArray) -> FloatArray:
    ratio: FloatArray = np.divide(part, whole, out=np.zeros_like(part, dtype=float), where=whole != 0)
    return ratio


@dataclass(frozen=True)
class ExtractionCounts(Agreement):
    """Counts of facts in all documents or in a part of them, and the figures that follow from the counts.

    ``wanted`` facts are gold, ``given`` ones predicted, ``correct`` ones both. Of the gold and of the correct ones,
    ``…_in_train`` stand in the training data under the same names; None where the training data is not known. A
    ratio over nothing is 0.

    >>> counts = ExtractionCounts(wanted=10, given=8, correct=6, wanted_in_train=4, correct_in_train=3)
    >>> counts.precision, counts.recall, round(counts.f1, 4)
    (0.75, 0.6, 0.6667)
    >>> round(counts.ign_f1_docred, 4), round(counts.ign_f1_logire, 4)
    (0.6, 0.6)
    """

    wanted_in_train: int | None = None
    correct_in_train: int | None = None

    @property
    def ign_f1_docred(self) -> float | None:
        """The harmonic mean of ``(correct − correct_in_train) / (given − correct_in_train)`` and the full recall."""
        return None if self.correct_in_train is None else float(ign_f1_docred(self._row()))

    @property
    def ign_f1_logire(self) -> float | None:
        """The harmonic mean of the full precision and ``(correct − correct_in_train) / (wanted − wanted_in_train)``."""
        return None if self.correct_in_train is None else float(ign_f1_logire(self._row()))

    def _row(self) -> FloatArray:
        train = (self.wanted_in_train or 0, self.correct_in_train or 0)
        return np.array((self.wanted, self.given, self.correct, *train), dtype=float)

    def as_dict(self) -> dict[str, object]:
        """Return counts and figures, for JSON; what needs the training data only where it is known."""
        found: dict[str, object] = {"wanted": self.wanted, "given": self.given, "correct": self.correct}
        found |= {"precision": self.precision, "recall": self.recall, "f1": self.f1}
        if self.correct_in_train is None:
            return found
        found |= {"wanted_in_train": self.wanted_in_train, "correct_in_train": self.correct_in_train}
        return found | {"ign_f1_docred": self.ign_f1_docred, "ign_f1_logire": self.ign_f1_logire}
