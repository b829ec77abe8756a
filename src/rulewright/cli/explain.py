"""``rulewright explain``: why a fact follows, or why not."""

from __future__ import annotations

from typing import Annotated

import typer

from rulewright.cli.console import (
    FactColumns,
    FactFormat,
    check_output,
    print_json,
    print_line,
    read_facts_of,
    refuse_options,
    warn,
)


def explain(
    context: typer.Context,
    fact: Annotated[str, typer.Argument(help='The fact, such as "parent_of(ann, bob)".')],
    rules: Annotated[str, typer.Argument(help="A rule file (.rules, .mln), or - for standard input.")],
    facts: Annotated[str, typer.Argument(help="Facts: a file or folder in any known format, or -.")],
    k: Annotated[int, typer.Option("-k", min=1, help="How many proofs to show, the best first.")] = 1,
    every: Annotated[bool, typer.Option("--all", help="Show all proofs up to the depth.")] = False,
    depth: Annotated[
        int | None,
        typer.Option(min=1, help="The most rules one after the other; none: one, and more only where that fails."),
    ] = None,
    svg: Annotated[
        str | None, typer.Option(metavar="FILE", help="Write the best proof as a drawing here (.svg, or -).")
    ] = None,
    from_format: FactFormat = None,
    columns: FactColumns = None,
    json: Annotated[bool, typer.Option("--json", help="Print the proofs as JSON.")] = False,
) -> None:
    """Explain why a fact follows from rules and facts: its proofs, and the facts that all of them rest on.

    Where it does not follow, the nearest rules are shown with what they miss.

    Example: rulewright explain "parent_of(ann, bob)" family.rules family.tsv -k 3
    """
    from rulewright.files import write_text
    from rulewright.io import read_rules
    from rulewright.reason import explain as explain_fact

    if every:
        refuse_options(context, "--all shows all proofs", "k")
    check_output(svg, (rules, facts))
    kb = read_facts_of(facts, from_format, columns)
    explanation = explain_fact(read_rules(rules), kb, fact, k=None if every else k, depth=depth)
    if svg is not None:
        if explanation:
            write_text(svg, explanation.svg())
        else:
            warn(f"there is no proof to draw: {explanation.fact} does not follow")
    if json:
        if svg != "-":
            print_json(explanation.as_dict())
    elif svg != "-":
        print_line(str(explanation))
