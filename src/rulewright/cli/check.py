"""``rulewright check``: what is in some files, and what looks wrong."""

from __future__ import annotations

from collections import Counter
from typing import Annotated

import typer

from rulewright.cli.console import (
    FactColumns,
    FactFormat,
    print_json,
    print_line,
    print_table,
    read_facts_of,
    refuse_options,
)


def check(
    context: typer.Context,
    first: Annotated[
        str, typer.Argument(metavar="FACTS|RULES", help="Facts in any known format, or -; or a file of rules.")
    ],
    second: Annotated[
        str | None, typer.Argument(metavar="[RULES|FACTS]", help="Rules to use with the facts, or the other way round.")
    ] = None,
    predicate: Annotated[list[str] | None, typer.Option(help="Show only this predicate; may be repeated.")] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many predicates the table shows, those with most facts.")] = 20,
    from_format: FactFormat = None,
    columns: FactColumns = None,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Say what is in facts and what may mislead, or what is wrong in rules, by line and column; exit with 1 on errors.

    Of RULES, --json prints a list of {file, line, column, level, message, hint} for editors and other programs.

    Example: rulewright check graph.tsv graph.rules, or rulewright check graph.rules graph.tsv
    """
    from rulewright.io import holds_rules, read_rules
    from rulewright.reason.checkup import check as check_facts

    if first != "-" and holds_rules(first):
        refuse_options(context, "it is about facts, which here only try the rules", "predicate", "limit")
        _check_rule_file(first, second, from_format, columns, json=json)
        return
    kb = read_facts_of(first, from_format, columns)
    for name in predicate or ():
        kb.predicate(name)
    found = check_facts(kb, None if second is None else read_rules(second))
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


def _check_rule_file(
    path: str, facts: str | None, from_format: FactFormat, columns: FactColumns, *, json: bool
) -> None:
    from rulewright.files import read_text
    from rulewright.io import read_rules
    from rulewright.io.formats import detect_rule_format
    from rulewright.reason.rule_check import check_rules

    rules = read_text(path) if detect_rule_format(path) == "rules" else read_rules(path)
    kb = None if facts is None else read_facts_of(facts, from_format, columns)
    findings = check_rules(rules, kb, file=path)
    if json:
        print_json([finding.as_record() for finding in findings])
    else:
        for finding in findings:
            place = ":".join(str(part) for part in (finding.file, finding.line, finding.column) if part is not None)
            print_line(f"{place or path}: {finding.level}: {finding}")
        counts = Counter(finding.level for finding in findings)
        figures = [f"{count:,} {level}{'s' if count > 1 else ''}" for level, count in sorted(counts.items())]
        print_line(", ".join(figures) or "nothing that looks wrong")
    if any(finding.level == "error" for finding in findings):
        raise typer.Exit(1)
