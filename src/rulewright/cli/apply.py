"""``rulewright apply``: rules and facts in, new facts out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from rulewright.cli.console import (
    FactColumns,
    FactFormat,
    check_output,
    print_json,
    print_line,
    print_table,
    progress,
    read_facts_of,
    refuse_options,
    warn,
)

if TYPE_CHECKING:
    from rulewright.reason import Inferred


def apply(
    context: typer.Context,
    rules: Annotated[str, typer.Argument(help="A rule file (.rules, .mln), or - for standard input.")],
    facts: Annotated[str, typer.Argument(help="Facts: a file or folder in any known format, or -.")],
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Write the new facts here (.tsv and .csv with scores; .facts, .db, -)."),
    ] = None,
    complete: Annotated[bool, typer.Option("--complete", help="Write the known facts too, without scores.")] = False,
    min_score: Annotated[float, typer.Option(min=0, max=1, help="Leave out facts with a lower score.")] = 0.0,
    aggregation: Annotated[
        Literal["max", "max-plus", "noisy-or"], typer.Option(help="How the scores of several rules combine.")
    ] = "max",
    rounds: Annotated[
        int, typer.Option(min=0, help="The most rounds; 1 applies each rule once, 0 goes on until nothing is new.")
    ] = 1,
    max_facts: Annotated[int, typer.Option(min=1, help="Keep so many new facts, the best.")] = 1_000_000,
    from_format: FactFormat = None,
    columns: FactColumns = None,
    limit: Annotated[int, typer.Option(min=0, help="How many facts the table shows.")] = 20,
    memory_limit: Annotated[str | None, typer.Option(help="Memory for the joins, such as 2GB.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print all new facts as JSON.")] = False,
) -> None:
    """Apply rules to facts and show what is new, with scores and the rules that gave it.

    Every rule is applied once; --rounds 0 applies them to what they give, too, until nothing is new.

    Example: rulewright apply family.rules family.tsv -o new.tsv
    """
    from rulewright.io import read_rules
    from rulewright.reason import apply as apply_rules

    if output is None:
        refuse_options(context, "only a file (-o) can hold the known facts too", "complete")
    if json or output is not None:
        refuse_options(context, "only the table that is printed without --json and -o has a limit", "limit")
    check_output(output, (rules, facts), "facts")
    rule_set, kb = read_rules(rules), read_facts_of(facts, from_format, columns)
    with progress("applying rules") as report:
        inferred = apply_rules(
            rule_set,
            kb,
            aggregation=aggregation,
            min_score=min_score,
            max_rounds=rounds or None,
            max_facts=max_facts,
            memory_limit=memory_limit,
            progress=report,
        )
    if inferred.note:
        warn(inferred.note + ("; --rounds 0 goes on until nothing is new" if "further round" in inferred.note else ""))
    for violation in inferred.violations:
        warn(f"broken {violation.groundings:,} times: {violation.formula}")
    if output is not None:
        _write(inferred, output, complete=complete)
    if json:
        if output != "-":
            print_json(_as_json(inferred))
        return
    summary = f"{len(inferred):,} new facts from {len(rule_set):,} rules and {kb.n_facts:,} facts"
    if output is not None:
        warn(f"{summary}, written to {output}" if output != "-" else summary)
        return
    shown = inferred[:limit]
    if shown:
        lines = _rule_lines(inferred)
        print_table(
            ("score", "new fact", "by rule"),
            [(fact.score, str(fact), ", ".join(str(lines[rule]) for rule in fact.rules)) for fact in shown],
        )
        print_line()
    print_line(summary + (f"; {len(shown)} are shown" if len(shown) < len(inferred) else ""))


def _rule_lines(inferred: Inferred) -> dict[object, int]:
    """Return the position of every rule as a person counts in the file, from 1; of equal rules the first."""
    return {source: len(inferred.sources) - index for index, source in enumerate(reversed(inferred.sources))}


def _as_json(inferred: Inferred) -> dict[str, object]:
    lines = _rule_lines(inferred)
    return {
        "facts": [
            {
                "predicate": fact.predicate,
                "args": list(fact.args),
                "score": fact.score,
                "rules": [lines[rule] for rule in fact.rules],
                "round": fact.round,
            }
            for fact in inferred
        ],
        "rounds": inferred.rounds,
        "note": inferred.note,
        "violations": [
            {"formula": str(broken.formula), "groundings": broken.groundings} for broken in inferred.violations
        ],
    }


def _write(inferred: Inferred, output: str, *, complete: bool) -> None:
    from rulewright.io import write_facts
    from rulewright.io.triples import write_scored

    if Path(output.removesuffix(".gz")).suffix not in (".tsv", ".csv") or complete:
        write_facts(inferred.completed if complete else inferred.facts, output)
        return
    lines = _rule_lines(inferred)
    write_scored(
        (
            (fact.predicate, fact.args, f"{fact.score:.6g}", " ".join(str(lines[rule]) for rule in fact.rules))
            for fact in inferred
        ),
        output,
    )
