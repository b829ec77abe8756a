"""``rulewright explain``: why a fact follows, or why not."""

from __future__ import annotations

from typing import Annotated

import typer

from rulewright.cli.console import (
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
    read_facts_of,
    read_labels,
    refuse_options,
    warn,
)


def explain(
    context: typer.Context,
    fact: Annotated[
        str,
        typer.Argument(
            help='The fact, such as "parent_of(ann, bob)"; - reads facts from standard input, as apply writes them.'
        ),
    ],
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
    labels: LabelFile = None,
    from_format: FactFormat = None,
    columns: FactColumns = None,
    engine: EngineName = None,
    database: DatabaseFile = None,
    folder: TableFolder = None,
    memory_limit: MemoryLimitText = None,
    json: Annotated[bool, typer.Option("--json", help="Print the proofs as JSON.")] = False,
) -> None:
    """Explain why a fact follows from rules and facts: its proofs, and the facts that all of them rest on.

    Where it does not follow, the nearest rules are shown with what they miss.

    Example: rulewright explain "parent_of(ann, bob)" family.rules family.tsv -k 3
    """
    from rulewright.files import STDIO, read_text, write_text
    from rulewright.io import read_rules
    from rulewright.reason.explain import explain_facts

    if [fact, rules, facts].count(STDIO) > 1:
        raise typer.BadParameter("standard input can be one of fact, rules and facts")
    if every:
        refuse_options(context, "--all shows all proofs", "k")
    check_output(svg, (rules, facts))
    kb = read_facts_of(facts, from_format, columns, context=context)
    asked = [fact] if fact != STDIO else _split_facts(read_text(STDIO))
    explanations = explain_facts(read_rules(rules), kb, asked, k=None if every else k, depth=depth)
    if svg is not None:
        if explanations[0]:
            write_text(svg, explanations[0].svg())
        else:
            warn(f"there is no proof to draw: {explanations[0].fact} does not follow")
    if json:
        told = [explanation.as_dict() for explanation in explanations]
        if svg != "-":
            print_json(told[0] if fact != STDIO else told)
    elif svg != "-":
        print_line(read_labels(labels).show("\n\n".join(map(str, explanations))))


def _split_facts(text: str) -> list[str]:
    """Return the facts of a text that apply wrote: lines of TSV, .facts or JSON, or what --json prints.

    >>> _split_facts("head\\trelation\\ttail\\tscore\\trules\\nann\\tparent_of\\tbob\\t0.9\\t1\\n")
    ['ann\\tparent_of\\tbob\\t0.9\\t1']
    >>> _split_facts("child_of(bob, ann).  % score 0.9, by rule 1\\n")
    ['child_of(bob, ann).']
    """
    import json

    from rulewright.errors import DataError

    try:
        whole = json.loads(text)
    except ValueError:
        whole = None
    if isinstance(whole, dict):
        return [json.dumps(record) for record in whole.get("facts", [whole])]
    lines = [line for line in text.splitlines() if line.strip()]
    if lines and lines[0].split("\t")[:3] == ["head", "relation", "tail"]:
        lines = lines[1:]
    others = (
        "predicate ",
        "closed ",
        "entity ",
        "shared ",
        "world ",
        "split ",
        "split.",
        "%",
    )  # what .facts holds beside facts
    facts = [
        line.partition("  % score ")[0]
        for line in lines
        if not line.startswith(others) and (not line.startswith("{") or '"predicate"' in line)
    ]
    if not facts:
        raise DataError("there is no fact on standard input to explain")
    return facts
