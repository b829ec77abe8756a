"""``rulewright complete``: the best new facts of a whole graph, each with its reason."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

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
    check_output,
    print_json,
    print_line,
    progress,
    read_facts_of,
    read_labels,
    show_probability,
    warn,
)

if TYPE_CHECKING:
    from rulewright.data import KnowledgeBase
    from rulewright.logic import RuleSet
    from rulewright.reason import Completion


def complete(
    context: typer.Context,
    rules: Annotated[
        str, typer.Argument(metavar="[RULES] FACTS", help="A rule file, or -; without one, rules are learned first.")
    ],
    facts: Annotated[
        str | None, typer.Argument(metavar="", help="Facts: a file or folder in any known format, or -.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="How many facts to give, the best first.")] = 100,
    predicate: Annotated[
        list[str] | None, typer.Option(help="Only facts of this predicate; may be given more than once.")
    ] = None,
    aggregation: Annotated[
        Literal["max-plus", "max", "noisy-or", "weight"] | None,
        typer.Option(help="How several rules combine: none chooses weight where rules carry weights, else max-plus."),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", help="Write the facts here, with scores (.tsv, .csv, .jsonl …; -).")
    ] = None,
    calibration: CalibrationFile = None,
    labels: LabelFile = None,
    from_format: FactFormat = None,
    columns: FactColumns = None,
    engine: EngineName = None,
    database: DatabaseFile = None,
    folder: TableFolder = None,
    memory_limit: MemoryLimitText = None,
    json: Annotated[bool, typer.Option("--json", help="Print the facts as JSON.")] = False,
) -> None:
    """Find the best new facts of the whole graph, with scores and reasons.

    Example: rulewright complete family.rules family.tsv --top 20
    """
    from rulewright.cli.apply import refuse_heads, write_inferred
    from rulewright.io import read_rules
    from rulewright.reason import RankingCalibration
    from rulewright.reason import complete as complete_graph

    check_output(output, (rules, facts or ""), "facts")
    kb = read_facts_of(rules if facts is None else facts, from_format, columns, context=context)
    rule_set = _learn(kb) if facts is None else read_rules(rules)
    refuse_heads(rule_set, kb, output, predicate)
    fitted = None if calibration is None else RankingCalibration.read(calibration)
    with progress("applying rules") as report:
        completion = complete_graph(
            rule_set,
            kb,
            count=top,
            predicates=predicate,
            aggregation=aggregation,
            calibration=fitted,
            memory_limit=memory_limit,
            progress=report,
        )
    if fitted is not None and (note := fitted.check_use(completion.aggregation, len(rule_set))):
        warn(note)
    if output is not None:
        write_inferred(completion.inferred, output, calibration=fitted)
    if json:
        if output != "-":
            print_json(_as_json(completion))
        return
    summary = f"the best {len(completion):,} new facts by {len(rule_set):,} rules and {kb.n_facts:,} facts"
    if "equally good" in completion.note:
        summary += "; equally good ones are left out"
    if output is not None:
        warn(f"{summary}, written to {output}" if output != "-" else summary)
        return
    shown_labels = read_labels(labels)
    for line in describe_links(completion):
        print_line(shown_labels.show(line))
    print_line()
    print_line(summary)


def _learn(kb: KnowledgeBase) -> RuleSet:
    from rulewright.learn import RuleMiner

    with progress("mining rules") as report:
        return RuleMiner(progress=report).fit(kb).rules_


def describe_links(completion: Completion) -> list[str]:
    """Return the lines that show new facts with their reasons."""
    from rulewright.reason.proofs import condition_text, rule_text

    lines = [] if completion.calibration is None else [f"      {'score':<8} probability"]
    for rank, link in enumerate(completion, start=1):
        probability = "" if completion.calibration is None else f"{show_probability(link.probability):<12}"
        lines.append(f"{rank:>4}  {link.score:<8.3g} {probability}{link.fact}")
        source, number = link.reason.source, link.reason.number
        if source is not None:
            added = f"{link.reason.score:+.3g} " if link.reason.weight is not None else ""
            lines.append(f"      {added}by rule {number}: {rule_text(source)}")
        since = [*map(str, link.reason.leaves()), *map(condition_text, link.reason.conditions)]
        if since:
            lines.append(f"      since {', '.join(since)}")
    return lines


def _as_json(completion: Completion) -> dict[str, object]:
    return {
        "aggregation": completion.aggregation,
        "facts": [
            {
                "predicate": link.fact.predicate,
                "args": list(link.fact.args),
                "score": link.score,
                **({} if completion.calibration is None else {"probability": link.probability}),
                "reason": link.reason.as_dict(),
            }
            for link in completion
        ],
        "note": completion.note,
    }
