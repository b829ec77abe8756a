"""``rulewright convert``: facts or rules from one format to another."""

from __future__ import annotations

from typing import Annotated

import typer

from rulewright.cli.console import (
    FACT_FORMAT_NAMES,
    OUTPUT_FORMAT_NAMES,
    RULE_FORMAT_NAMES,
    FactColumns,
    check_output,
    print_json,
    read_facts_of,
    refuse_options,
    warn,
)


def convert(
    context: typer.Context,
    source: Annotated[str, typer.Argument(help="The file or folder to read, or - for standard input.")],
    target: Annotated[str, typer.Argument(help="The file to write, or - for standard output.")],
    from_format: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FORMAT",
            help="The format of SOURCE where its name and content do not tell: facts in "
            f"{FACT_FORMAT_NAMES}; rules in {RULE_FORMAT_NAMES}.",
        ),
    ] = None,
    to_format: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="FORMAT",
            help=f"The format of TARGET where its name does not tell: {OUTPUT_FORMAT_NAMES}.",
        ),
    ] = None,
    columns: FactColumns = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was read and written as JSON.")] = False,
) -> None:
    """Read facts or rules in one format and write them in another.

    Example: rulewright convert network.mln network.rules
    """
    from rulewright.io import holds_rules, read_rules, write_facts, write_rules
    from rulewright.io.mined_rules import count_without_identity

    if holds_rules(source, format=from_format):
        refuse_options(context, f"only facts have columns, and {source} holds rules", "columns")
        check_output(target, (source,), "rules", to_format)
        rules = read_rules(source, format=from_format)
        write_rules(rules, target, format=to_format)
        if to_format == "anyburl" and (count := count_without_identity(rules)):
            warn(
                f"AnyBURL takes different variables for different entities, which {count:,} rules did not say (X != Y)"
            )
        report = {"rules": len(rules.rules), "formulas": len(rules.formulas), "templates": len(rules.templates)}
    else:
        check_output(target, (source,), "facts", to_format)
        kb = read_facts_of(source, from_format, columns)
        write_facts(kb, target, format=to_format)
        report = {"entities": kb.n_entities, "predicates": len(kb.predicates), "facts": kb.n_facts}
    if json and target != "-":
        print_json({"source": source, "target": target, **report})
    elif target != "-":
        warn(f"{target}: " + ", ".join(f"{count:,} {name}" for name, count in report.items() if count))
