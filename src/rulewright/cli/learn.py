"""``rulewright learn``: facts in, rules out."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from rulewright.cli.console import print_json, print_line, print_table, progress, warn


def learn(
    facts: Annotated[str, typer.Argument(help="Facts: a file or folder in any known format, or -.")],
    learner: Annotated[Literal["mine"], typer.Option(help="How to learn: mine counts all chain rules.")] = "mine",
    output: Annotated[str | None, typer.Option("--output", "-o", help="Write the rules here (.rules, or -).")] = None,
    max_length: Annotated[int, typer.Option(min=1, max=4, help="The longest body.")] = 2,
    min_confidence: Annotated[float, typer.Option(min=0, max=1, help="Leave out rules with less.")] = 0.9,
    min_support: Annotated[int, typer.Option(min=1, help="Leave out rules that hold less often.")] = 1,
    min_coverage: Annotated[float | None, typer.Option(min=0, max=1, help="Leave out rules with less.")] = None,
    confidence: Annotated[
        Literal["groundings", "pairs", "pca", "beta"], typer.Option(help="What the confidence is counted over.")
    ] = "groundings",
    loops: Annotated[
        Literal["skip", "against"] | None, typer.Option(help="What groundings that end where they began count as.")
    ] = None,
    preset: Annotated[Literal["milr"] | None, typer.Option(help="The filters of a published system.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="Only rules for this relation; may be repeated.")] = None,
    no_inverses: Annotated[bool, typer.Option("--no-inverses", help="Walk relations forwards only.")] = False,
    no_repeated: Annotated[bool, typer.Option("--no-repeated", help="No body with one relation twice.")] = False,
    prune: Annotated[bool, typer.Option("--prune", help="Leave out what shorter rules make superfluous.")] = False,
    limit: Annotated[int, typer.Option(min=0, help="How many rules the table shows.")] = 20,
    memory_limit: Annotated[str | None, typer.Option(help="Memory for the joins, such as 2GB.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of samples on large graphs.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the rules as JSON.")] = False,
) -> None:
    """Learn rules from facts and show them with their figures.

    Example: rulewright learn graph.tsv --min-confidence 0.8 --min-support 10 -o graph.rules
    """
    from rulewright.io import read_facts, write_rules
    from rulewright.learn import RuleMiner

    kb = read_facts(facts)
    given = {"min_coverage": min_coverage, "loops": loops}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    chosen |= {"inverses": False} if no_inverses else {}
    chosen |= {"repeated": False} if no_repeated else {}
    with progress("mining") as advance:
        miner = RuleMiner(
            preset=preset,
            targets=target,
            prune=prune,
            seed=seed,
            memory_limit=memory_limit,
            progress=lambda length, done, total: advance((length - 1) * total + done, max_length * total),
            max_length=max_length,
            min_confidence=min_confidence,
            min_support=min_support,
            confidence=confidence,
            **chosen,
        ).fit(kb)
    rules = miner.rules_
    told = f"{len(rules):,} rules from {kb.n_facts:,} facts"
    if output is not None:
        write_rules(rules, output)
        warn(told if output == "-" else f"{told}, written to {output}")
    if json:
        if output != "-":
            print_json([{"rule": str(rule), "confidence": rule.confidence, **rule.annotations} for rule in rules.rules])
        return
    if output is not None:
        return
    columns = rules[:limit].columns()
    if len(rules):
        shown = [name for name in ("confidence", "support", "body", "pairs", "pca", "coverage") if name in columns]
        texts = [text.split(" :: ")[-1] for text in map(str, columns["rule"])]
        print_table((*shown, "rule"), list(zip(*(columns[name] for name in shown), texts, strict=True)))
        print_line()
    print_line(told + (f"; {limit} are shown" if len(rules) > limit else ""))
