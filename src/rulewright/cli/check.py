"""``rulewright check``: what is in some files, and what looks wrong."""

from __future__ import annotations

from typing import Annotated

import typer

from rulewright.cli.console import FactColumns, FactFormat, print_json, print_line, print_table, read_facts_of


def check(
    facts: Annotated[str, typer.Argument(help="Facts: a file or folder in any known format, or -.")],
    rules: Annotated[str | None, typer.Argument(help="Rules that are to be used with them.")] = None,
    predicate: Annotated[list[str] | None, typer.Option(help="Show only this predicate; may be repeated.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many predicates the table shows, those with most facts.")] = 20,
    from_format: FactFormat = None,
    columns: FactColumns = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show what is in facts, and say what may mislead before rules are learned; exit with 1 where something is wrong.

    Example: rulewright check graph.tsv graph.rules
    """
    from rulewright.io import read_rules
    from rulewright.reason.checkup import check as check_facts

    kb = read_facts_of(facts, from_format, columns)
    for name in predicate or ():
        kb.predicate(name)
    found = check_facts(kb, None if rules is None else read_rules(rules))
    if json:
        print_json(found.as_dict())
    else:
        for name, value in found.figures:
            print_line(f"{name:<15} {value:,}")
        print_line()
        chosen = [figures for figures in found.predicates if predicate is None or figures.name in predicate]
        shown = sorted(chosen, key=lambda figures: -figures.facts)[:limit]
        if shown:
            rows = [
                (f"{part.name}({', '.join(part.types)})", part.facts, part.first, part.last, part.kind())
                for part in shown
            ]
            print_table(("predicate", "facts", "first", "last", ""), rows)
            if len(shown) < len(chosen):
                print_line(f"{len(shown)} of {len(chosen)} predicates; --limit shows more")
            print_line()
        for finding in found.findings:
            print_line(f"{finding.level:<8} {finding}")
        if not found.findings:
            print_line("nothing that looks wrong")
    if not found.is_sound:
        raise typer.Exit(1)
