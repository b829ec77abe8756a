"""The figures of the MILR paper (Fan et al., EMNLP 2022), in per cent, to stand beside ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rulewright.papers.catalogue import experiments


@dataclass(frozen=True)
class PaperRow:
    """One row of a table; None where the paper has no figure."""

    ign: float | None
    f1: float | None
    logic: float | None = None


ABLATION: Mapping[str, PaperRow] = {"decoder": PaperRow(68.87, 76.20), "loss": PaperRow(69.29, 76.05)}
"""Table 4, DWIE test, ATLOP: one of the two components; its other rows are those of Table 2."""

LOGIRE: Mapping[str, PaperRow] = {
    "milr/dwie_lstm": PaperRow(32.58, 42.03, 73.01),
    "milr/dwie_bilstm": PaperRow(34.21, 43.95, 73.13),
    "milr/dwie_gain": PaperRow(61.58, 68.71, 91.71),
    "milr/dwie_atlop": PaperRow(68.13, 75.67, 91.42),
    "milr/redocred_atlop": PaperRow(42.47, 42.73),
}
"""The rows of LogiRE in Tables 2 and 3, which is not rebuilt here."""

DOCRED: Mapping[str, PaperRow] = {"plain": PaperRow(41.67, 41.95), "both": PaperRow(44.30, 44.72)}
"""Table 3, ATLOP: trained on DocRED's train set, scored on 96 documents that were labelled anew."""

METHODS: Mapping[str, tuple[float, float, PaperRow]] = {
    "simplified": (28.4, 1.80, PaperRow(67.18, 72.05)),
    "full": (4.1e6, 1074.0, PaperRow(67.35, 72.26)),
}
"""Table 8, DWIE dev, ATLOP: constraints and seconds a document, and the scores."""

SETTINGS: Mapping[str, tuple[float, float, float]] = {
    "milr/dwie_lstm": (1e-3, 1.0, 1.5),
    "milr/dwie_bilstm": (1e-3, 1.0, 1.5),
    "milr/dwie_gain": (3e-3, 0.8, 1.0),
    "milr/dwie_atlop": (1e-3, 0.8, 0.5),
    "milr/redocred_atlop": (1e-3, 1.5, 1.5),
}
"""Table 7: λ, τ and k; the last row is the paper's for DocRED."""


def paper_row(name: str, variant: str) -> PaperRow | None:
    """Return the paper's figures on test documents for an experiment and a variant, where it has some.

    >>> paper_row("milr/dwie_atlop", "both")
    PaperRow(ign=69.84, f1=76.51, logic=93.16)
    >>> paper_row("milr/dwie_gain", "loss") is None
    True
    """
    if variant == "logire":
        return LOGIRE.get(name)
    if name == "milr/redocred_atlop":
        return DOCRED.get(variant)
    if name == "milr/dwie_atlop" and variant in ABLATION:
        return ABLATION[variant]
    found = experiments()[name].settings.get("paper")
    row = found.get(variant) if isinstance(found, dict) else None
    return None if row is None else PaperRow(row["ign"], row["f1"], row["logic"])
