"""``rulewright evaluate --task classification``: how well scores tell true atoms from false ones."""

from __future__ import annotations

from math import isnan

from rulewright.cli.console import print_json, print_line, print_table
from rulewright.errors import DataError


def evaluate_scores(pred: str, gold: str, *, json: bool) -> None:
    """Compare a file of scores with gold atoms, true and false; of a folder, those of its queries."""
    from rulewright.evaluate.classification import evaluate_classification, read_scores
    from rulewright.io import read_facts

    wanted = read_facts(gold)
    wanted = wanted.splits.get("queries", wanted)
    predicted = read_scores(pred)
    try:
        scores = evaluate_classification(predicted, wanted)
    except DataError as error:
        raise DataError(f"{pred}: {error}") from None
    if json:
        print_json({"task": "classification", "predictions": pred, "gold": gold, **scores.as_dict()})
        return
    rows = [
        (name, each.atoms, each.true, "—" if isnan(each.auc_pr) else f"{each.auc_pr:.4f}")
        for name, each in [*scores.by_predicate.items(), ("all, pooled", scores.pooled)]
    ]
    print_table(("predicate", "atoms", "true", "AUC-PR"), rows)
    print_line()
    print_line("AUC-PR is average precision; atoms of equal score count together, whatever their order.")
