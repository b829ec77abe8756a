"""``rulewright rank``: the best answers to a question, with reasons."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from rulewright.cli.console import (
    CalibrationFile,
    DatabaseFile,
    EngineName,
    FactColumns,
    FactFormat,
    LabelFile,
    MemoryLimitText,
    TableFolder,
    print_json,
    print_line,
    read_facts_of,
    read_labels,
    show_probability,
    warn,
)


def rank(
    context: typer.Context,
    rules: Annotated[str, typer.Argument(help="A rule file, or - for standard input.")],
    facts: Annotated[str, typer.Argument(help="Facts: a file or folder in any known format, or -.")],
    query: Annotated[
        str,
        typer.Argument(help='What is asked, X for the answer: "parent_of(ann, X)", "parent_of(X, ann)", "male(X)".'),
    ],
    top: Annotated[int, typer.Option(min=1, help="How many answers to give, the best first.")] = 10,
    reasons: Annotated[
        int, typer.Option(min=0, help="How many rules to show for each answer, the strongest first.")
    ] = 1,
    min_score: Annotated[float | None, typer.Option(help="Leave out answers with a lower score.")] = None,
    aggregation: Annotated[
        Literal["max-plus", "max", "noisy-or", "weight"] | None,
        typer.Option(
            help="How rules that agree combine: the highest confidence, ties broken by the next; the highest; "
            "1 − Π(1 − confidence); the sum of weights [default: weight where rules have weights, else max-plus]."
        ),
    ] = None,
    known: Annotated[bool, typer.Option("--known", help="Give answers that are known facts too.")] = False,
    calibration: CalibrationFile = None,
    labels: LabelFile = None,
    from_format: FactFormat = None,
    columns: FactColumns = None,
    engine: EngineName = None,
    database: DatabaseFile = None,
    folder: TableFolder = None,
    memory_limit: MemoryLimitText = None,
    json: Annotated[bool, typer.Option("--json", help="Print the answers as JSON.")] = False,
) -> None:
    """Answer a question by rules: the best candidates with their scores, and why.

    Names need no quotes where the facts have them. Example: rulewright rank graph.rules graph.tsv "P27(Q42, X)"
    """
    from rulewright.io import read_rules
    from rulewright.reason import RankingCalibration
    from rulewright.reason import rank as rank_answers
    from rulewright.reason.proofs import condition_text, rule_text

    shown_labels = read_labels(labels)
    rule_set = read_rules(rules)
    kb = read_facts_of(facts, from_format, columns, context=context)
    answers = rank_answers(
        rule_set,
        kb,
        query,
        count=top,
        aggregation=aggregation,
        known=known,
        calibration=None if calibration is None else RankingCalibration.read(calibration),
    )
    if answers.note:
        warn(answers.note)
    premises = answers.premises(reasons)
    chosen = [
        (answer, bodies)
        for answer, bodies in zip(answers, premises, strict=True)
        if min_score is None or answer.score >= min_score
    ]
    if json:
        print_json(
            {
                "query": str(answers.query),
                "aggregation": answers.aggregation,
                "answers": [
                    {
                        "entity": answer.entity,
                        **({"label": shown_labels[answer.entity]} if answer.entity in shown_labels else {}),
                        "score": answer.score,
                        **({} if answer.probability is None else {"probability": answer.probability}),
                        "fact": str(answers.fact(answer)),
                        "rules": len(answer.reasons),
                        "reasons": [
                            {
                                "number": number,
                                "rule": str(reason),
                                "strength": strength,
                                "premises": list(map(condition_text, body)),
                            }
                            for number, reason, strength, body in zip(
                                answer.numbers, answer.reasons, answer.strengths, bodies, strict=False
                            )
                        ],
                    }
                    for answer, bodies in chosen
                ],
            }
        )
        return
    if not chosen:
        print_line(f"{shown_labels.show(str(answers.query))} has no answer")
        if not known:
            warn("known facts are left out; --known shows them too")
        return
    print_line(f"{shown_labels.show(str(answers.query))}   ({answers.aggregation})")
    if calibration is not None:
        print_line(f"     {'score':<8} probability")
    for position, (answer, bodies) in enumerate(chosen, start=1):
        others = len(answer.reasons) - reasons
        more = f"   and {others:,} more rules" if reasons and others > 0 else ""
        probability = "" if answer.probability is None else f"{show_probability(answer.probability):<12}"
        print_line(f"{position:>3}  {answer.score:<8.3g} {probability}{shown_labels.name(answer.entity)}{more}")
        for number, reason, body in zip(answer.numbers, answer.reasons, bodies, strict=False):
            print_line(f"       by rule {number}: {shown_labels.show(rule_text(reason))}")
            if body:
                print_line(f"       as {', '.join(shown_labels.show(condition_text(part)) for part in body)}")
