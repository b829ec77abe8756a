"""``rulewright evaluate --task kbc``: how well rules answer questions about a graph."""

from __future__ import annotations

from typing import Literal

from rulewright.cli.console import print_json, print_line, print_table, progress

_COLUMNS = ("mrr", "hits@1", "hits@3", "hits@10")


def evaluate_kbc(
    pred: str,
    gold: str,
    *,
    split: str,
    ties: Literal["mean", "optimistic", "pessimistic"],
    aggregation: Literal["weight", "noisy-or", "max"],
    by_relation: bool,
    json: bool,
) -> None:
    """Rank the answers to the questions of a split by rules and compare with what is true."""
    from rulewright.evaluate.ranking import evaluate_ranking
    from rulewright.io import read_facts, read_rules
    from rulewright.reason.rank import RuleRanker

    kb = read_facts(gold)
    kb.split(split)
    ranker = RuleRanker.of(read_rules(pred), kb, aggregation=aggregation)
    with progress("ranking") as advance:
        scores = evaluate_ranking(ranker, kb, split, ties=ties, progress=advance)
    if json:
        print_json({"task": "kbc", "rules": pred, "gold": gold, "split": split, **scores.as_dict()})
        return
    parts = [("r(h, ?)", scores.part(~scores.inverse)), ("r(?, t)", scores.part(scores.inverse)), ("both", scores)]
    rows = [(name, len(each), *(each.figures()[column] for column in _COLUMNS)) for name, each in parts]
    print_table(("", "questions", "MRR", "Hits@1", "Hits@3", "Hits@10"), rows)
    if by_relation:
        print_line()
        rows = [
            (name, len(each), *(each.figures()[column] for column in _COLUMNS))
            for name, each in scores.by_relation().items()
        ]
        print_table(("relation", "questions", "MRR", "Hits@1", "Hits@3", "Hits@10"), rows)
    print_line()
    print_line(
        f"Filtered; ties: {ties}. {int(scores.unseen.sum()):,} questions have an entity that no training fact names."
    )
