"""``rulewright learn``: facts in, rules out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rulewright.cli.console import live_rules, print_json, print_line, print_table, progress, warn

if TYPE_CHECKING:
    from rulewright.data import KnowledgeBase
    from rulewright.logic import RuleSet


def learn(
    facts: Annotated[str, typer.Argument(help="Facts: a file or folder in any known format, or -.")],
    learner: Annotated[
        Literal["mine", "lnn", "nlil"],
        typer.Option(
            help="How to learn: mine counts all chain rules; lnn weighs paths to complete a graph, or fills templates; "
            "nlil has transformers write rules that explain a relation."
        ),
    ] = "mine",
    output: Annotated[str | None, typer.Option("--output", "-o", help="Write the rules here (.rules, or -).")] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, max=5, help="The longest body: 2 unless told, 3 with lnn.")
    ] = None,
    min_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="Leave out rules with less: 0.9 unless told, 0 with lnn.")
    ] = None,
    min_support: Annotated[
        int | None, typer.Option(min=1, help="Leave out rules that hold less often: 1 unless told, 2 with lnn.")
    ] = None,
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
    templates: Annotated[
        str | None, typer.Option(help="lnn: a .rules file of templates that say what rules may look like.")
    ] = None,
    constants: Annotated[
        int, typer.Option(min=0, max=2, help="lnn: relations in the body of rules that name entities, 0 for none.")
    ] = 1,
    questions: Annotated[int, typer.Option(min=1, help="lnn: facts of each relation to learn from.")] = 500,
    folder: Annotated[
        str | None, typer.Option(help="lnn, nlil: keep what is learned here; the same call goes on where it stopped.")
    ] = None,
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
    if templates is not None and learner != "lnn":
        raise typer.BadParameter("templates are for --learner lnn")
    if templates is not None:
        rules = _filled(kb, templates, target, folder, seed)
    elif learner == "nlil":
        rules = _written(kb, target, max_length, min_confidence, min_support, folder, seed)
    elif learner == "lnn":
        rules = _mixture(kb, target, max_length, min_confidence, min_support, constants, questions, folder, seed)
    else:
        given = {"min_coverage": min_coverage, "loops": loops}
        chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        chosen |= {"inverses": False} if no_inverses else {}
        chosen |= {"repeated": False} if no_repeated else {}
        longest = max_length or 2
        with live_rules("mining") as (advance, show):
            rules = (
                RuleMiner(
                    preset=preset,
                    targets=target,
                    prune=prune,
                    seed=seed,
                    memory_limit=memory_limit,
                    progress=lambda length, done, total: advance((length - 1) * total + done, longest * total),
                    found=show,
                    max_length=longest,
                    min_confidence=0.9 if min_confidence is None else min_confidence,
                    min_support=min_support or 1,
                    confidence=confidence,
                    **chosen,
                )
                .fit(kb)
                .rules_
            )
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
        figures = ("confidence", "weight", "weight_inverse", "support", "body", "pairs", "pca", "coverage")
        shown = [name for name in figures if name in columns]
        texts = [text.split(" :: ")[-1] for text in map(str, columns["rule"])]
        print_table((*shown, "rule"), list(zip(*(_told(columns[name]) for name in shown), texts, strict=True)))
        print_line()
    print_line(told + (f"; {limit} are shown" if len(rules) > limit else ""))


def _told(column: list[object]) -> list[object]:
    return ["" if value is None else value for value in column]


def _mixture(
    kb: KnowledgeBase,
    targets: list[str] | None,
    max_length: int | None,
    min_confidence: float | None,
    min_support: int | None,
    constants: int,
    questions: int,
    folder: str | None,
    seed: int,
) -> RuleSet:
    from rulewright.learn.path_mixture.learner import PathMixture

    with progress("learning") as advance:
        return (
            PathMixture(
                targets=targets,
                seed=seed,
                folder=folder,
                progress=advance,
                max_length=max_length or 3,
                min_confidence=min_confidence or 0.0,
                min_support=min_support or 2,
                constants=constants,
                questions=questions,
            )
            .fit(kb)
            .rules_
        )


def _filled(kb: KnowledgeBase, templates: str, targets: list[str] | None, folder: str | None, seed: int) -> RuleSet:
    from rulewright.io import read_rules
    from rulewright.learn import LNNLearner

    with progress("learning") as advance:
        learner = LNNLearner(
            read_rules(templates),
            targets=targets,
            seed=seed,
            folder=folder,
            progress=advance,
        )
        return learner.fit(kb).rules_


def _written(
    kb: KnowledgeBase,
    targets: list[str] | None,
    max_length: int | None,
    min_confidence: float | None,
    min_support: int | None,
    folder: str | None,
    seed: int,
) -> RuleSet:
    from rulewright.learn import NLILLearner

    given = {"max_length": max_length, "min_precision": min_confidence, "min_support": min_support}
    options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    with progress("learning") as advance:
        learner = NLILLearner(
            targets=targets,
            seed=seed,
            folder=folder,
            progress=advance,
            **options,
        )
        return learner.fit(kb).rules_
