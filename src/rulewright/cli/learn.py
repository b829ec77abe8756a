"""``rulewright learn``: facts in, rules out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from json import JSONDecodeError, loads
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from rulewright.cli.console import (
    DatabaseFile,
    EngineName,
    FactColumns,
    FactFormat,
    MemoryLimitText,
    check_output,
    live_rules,
    print_json,
    print_line,
    print_table,
    progress,
    read_facts_of,
    refuse_options,
    warn,
)
from rulewright.errors import DataError, unknown_name

if TYPE_CHECKING:
    from rulewright.data import KnowledgeBase
    from rulewright.learn import Learner

_LEARNERS_OF = {
    "max_length": ("mine", "paths", "nlil"),
    "min_confidence": ("mine", "paths", "nlil"),
    "min_support": ("mine", "paths", "nlil"),
    "min_coverage": ("mine",),
    "confidence": ("mine",),
    "loops": ("mine",),
    "circular": ("mine",),
    "preset": ("mine",),
    "no_inverses": ("mine",),
    "no_repeated": ("mine",),
    "no_unary": ("mine",),
    "no_constants": ("mine",),
    "no_thresholds": ("mine",),
    "exclusions": ("mine",),
    "prune": ("mine",),
    "sample": ("mine",),
    "templates": ("lnn",),
    "constants": ("paths",),
    "queries": ("paths",),
    "folder": ("mine", "paths", "lnn", "nlil"),
    "engine": ("mine",),
    "database": ("mine",),
    "memory_limit": ("mine", "lnn"),
    "processes": ("paths", "lnn", "nlil"),
    "set_": ("paths", "nlil"),
}
"""Which learners use an option that not all of them do."""

_OWN_OPTIONS = {
    *("max_length", "min_confidence", "min_precision", "min_support", "constants", "queries"),
    *("targets", "folder", "time_limit", "seed", "processes"),
}
"""The parameters of learners that have an option, by which they are given."""


def read_parameters(texts: Sequence[str], made: type[Learner], taken: Collection[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE``: whole and other numbers, true, false and none, or else text.

    >>> from rulewright.learn import PathMixture
    >>> read_parameters(["l2=0.5", "max-edges=none", "loss=margin"], PathMixture, {"seed"})
    {'l2': 0.5, 'max_edges': None, 'loss': 'margin'}
    """
    known = [name for name in made._get_param_names() if name in made._parameter_rules]
    words = {"true": True, "false": False, "none": None}
    parameters: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if not equals:
            raise DataError(f"--set takes NAME=VALUE, such as seed=1, got {text!r}")
        if name not in known:
            raise unknown_name("parameter", name, known)
        if name in parameters or name in taken:
            raise DataError(f"--set {text}: {name} is given twice, or has an option of its own")
        try:
            parameters[name] = words[value.lower()] if value.lower() in words else loads(value)
        except JSONDecodeError:
            parameters[name] = value
    return parameters


def _list_learners(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + (" and " if names[:-1] else "") + names[-1]


def _tell_splits(kb: KnowledgeBase, learner: str) -> None:
    """Say which facts are not learned from."""
    if kb.splits:
        counts = " and ".join(f"{name} ({part.n_facts:,} facts)" for name, part in kb.splits.items())
        text = f"{counts}: {'splits' if len(kb.splits) > 1 else 'a split'}, not learned from"
        is_measured = learner in ("paths", "lnn") and "valid" in kb.splits
        warn(f"{text}; training is measured on valid" if is_measured else text)


def learn(
    context: typer.Context,
    facts: Annotated[str, typer.Argument(help="Facts: a file or folder in any known format, or -.")],
    learner: Annotated[
        Literal["mine", "paths", "lnn", "nlil"],
        typer.Option(
            help="How to learn: mine counts all chain rules; paths weighs paths to complete a graph; lnn fills "
            "templates, and without --templates does what paths does; nlil has transformers write rules that explain "
            "a relation."
        ),
    ] = "mine",
    best: Annotated[
        bool, typer.Option("--best", help="Learn what completes graphs best: --learner paths, slower than mining.")
    ] = False,
    output: Annotated[str | None, typer.Option("--output", "-o", help="Write the rules here (.rules, or -).")] = None,
    max_length: Annotated[
        int | None, typer.Option(min=1, max=5, help="The longest body [default: mine: by size, up to 3; paths: 3].")
    ] = None,
    min_confidence: Annotated[
        float | None, typer.Option(min=0, max=1, help="Leave out rules with less [default: 0.01; paths: 0].")
    ] = None,
    min_support: Annotated[
        int | None, typer.Option(min=1, help="Leave out rules that hold less often [default: 2].")
    ] = None,
    min_coverage: Annotated[float | None, typer.Option(min=0, max=1, help="mine: leave out rules with less.")] = None,
    confidence: Annotated[
        Literal["groundings", "pairs", "pca", "beta"] | None,
        typer.Option(
            help="mine: what the confidence is counted over; beta is a cautious bound of pairs "
            "[default: beta; preset milr: groundings]."
        ),
    ] = None,
    loops: Annotated[
        Literal["skip", "against"] | None,
        typer.Option(help="mine: what groundings that end where they began count as."),
    ] = None,
    circular: Annotated[
        bool, typer.Option("--circular", help="mine: count groundings whose body uses the head's own fact too.")
    ] = False,
    preset: Annotated[Literal["milr"] | None, typer.Option(help="mine: the filters of a published system.")] = None,
    target: Annotated[list[str] | None, typer.Option(help="Only rules for this relation; may be repeated.")] = None,
    no_inverses: Annotated[bool, typer.Option("--no-inverses", help="mine: walk relations forwards only.")] = False,
    no_repeated: Annotated[bool, typer.Option("--no-repeated", help="mine: no body with one step twice.")] = False,
    no_unary: Annotated[bool, typer.Option("--no-unary", help="mine: no unary predicates or classes.")] = False,
    no_constants: Annotated[bool, typer.Option("--no-constants", help="mine: no rules that name entities.")] = False,
    no_thresholds: Annotated[bool, typer.Option("--no-thresholds", help="mine: no comparisons of numbers.")] = False,
    exclusions: Annotated[
        bool, typer.Option("--exclusions", help="mine: also what never holds together, as hard !(cat(X) & dog(X)).")
    ] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="mine: leave out rules whose facts better ones explain.")
    ] = False,
    sample: Annotated[
        int | None,
        typer.Option(min=1, help="mine: count rules of length 3 and 4 from so many entities, with intervals."),
    ] = None,
    templates: Annotated[
        str | None, typer.Option(help="lnn: a .rules file of templates that say what rules may look like.")
    ] = None,
    constants: Annotated[
        int, typer.Option(min=0, max=2, help="paths: relations in the body of rules that name entities, 0 for none.")
    ] = 1,
    queries: Annotated[int, typer.Option(min=1, help="paths: facts of each relation to learn from.")] = 500,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="paths, nlil: any other parameter of PathMixture or NLILLearner, such as --set l2=0.5 or "
            "--set negation=true; may be repeated.",
        ),
    ] = None,
    processes: Annotated[
        int, typer.Option(min=1, help="paths, lnn, nlil: how many processes learn at a time, to the same result.")
    ] = 1,
    folder: Annotated[
        str | None,
        typer.Option(help="Keep what is learned here, or Spark's tables; the same call goes on where it stopped."),
    ] = None,
    time: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="Learn about so long and keep the best so far."),
    ] = None,
    from_format: FactFormat = None,
    columns: FactColumns = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Keep so many rules for each head, the first ones [default: all].")
    ] = None,
    limit: Annotated[int, typer.Option(min=0, help="How many rules the table shows.")] = 20,
    engine: EngineName = None,
    database: DatabaseFile = None,
    memory_limit: MemoryLimitText = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of samples and of training.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the rules as JSON.")] = False,
) -> None:
    """Learn rules from facts and show them with their figures.

    Example: rulewright learn graph.tsv -o graph.rules
    """
    from rulewright import learn as learners
    from rulewright.io import read_rules, write_rules

    if best:
        refuse_options(context, "--best is --learner paths; give one of them", "learner")
        learner = "paths"
    if learner == "lnn" and templates is None:
        warn("lnn without --templates learns a mixture of paths, as --learner paths does")
        learner = "paths"
    for option, used_by in _LEARNERS_OF.items():
        if learner not in used_by:
            refuse_options(context, f"it is for --learner {_list_learners(used_by)}; {learner} would ignore it", option)
    if json or output is not None:
        refuse_options(context, "only the table that is printed without --json and -o has a limit", "limit")
    check_output(output, (facts, templates), "rules")
    if learner == "mine" and engine in (None, "duckdb"):
        refuse_options(context, "mining keeps tables in a folder for --engine, Spark; DuckDB in a --database", "folder")
    kb = read_facts_of(facts, from_format, columns, context=context)
    _tell_splits(kb, learner)
    limits = {"max_length": max_length, "min_confidence": min_confidence, "min_support": min_support}
    given: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    if learner == "mine":
        with live_rules("mining") as (report, show):
            miner = learners.RuleMiner(
                **given,
                preset=preset,
                targets=target,
                min_coverage=min_coverage,
                confidence=confidence,
                loops=loops,
                circular=True if circular else None,
                inverses=not no_inverses,
                repeated=False if no_repeated else None,
                unary=False if no_unary else None,
                constants=False if no_constants else None,
                thresholds=False if no_thresholds else None,
                exclusions=exclusions,
                prune=prune,
                sample=sample,
                seed=seed,
                memory_limit=memory_limit,
                time_limit=time,
                progress=report,
                on_rules=show,
            ).fit(kb)
        rules = miner.rules_
        if miner.note_:
            warn(miner.note_)
    else:
        with progress("learning") as report:
            common: dict[str, Any] = {"targets": target, "folder": folder, "time_limit": time, "seed": seed}
            common |= {"processes": processes, "progress": report}
            made: learners.Learner
            if learner == "paths":
                given |= {"constants": constants, "queries": queries}
                given |= read_parameters(set_ or [], learners.PathMixture, _OWN_OPTIONS)
                made = learners.PathMixture(**given, **common)
            elif learner == "lnn":
                made = learners.LNNLearner(read_rules(str(templates)), **common, memory_limit=memory_limit)
            else:
                if min_confidence is not None:
                    given["min_precision"] = given.pop("min_confidence")
                given |= read_parameters(set_ or [], learners.NLILLearner, _OWN_OPTIONS)
                made = learners.NLILLearner(**given, **common)
            rules = made.fit(kb).rules_
        if made.note_:
            warn(made.note_)
        if isinstance(made, learners.LNNLearner):
            crisp = {rule.head.predicate for rule in rules.rules}
            for template in made.templates_.templates:
                if template.head.predicate not in crisp:
                    warn(f"weighted form: {template}")
    summary = f"{len(rules):,} rules from {kb.n_facts:,} facts"
    if top is not None:
        rules = rules.keep_top(top)
        summary = f"{len(rules):,} of {summary}, up to {top:,} for each head"
    if output is not None:
        write_rules(rules, output)
        warn(summary if output == "-" else f"{summary}, written to {output}")
    if json:
        if output != "-":
            learned: list[dict[str, object]] = [
                {"rule": str(rule), "confidence": rule.confidence, **rule.annotations} for rule in rules.rules
            ]
            if exclusions:
                learned += [{"formula": str(formula), **formula.annotations} for formula in rules.formulas]
            print_json(learned)
        return
    if output is not None:
        return
    statistics = rules[:limit].columns()
    if statistics["rule"]:
        figures = ("confidence", "weight", "weight_inverse", "support", "body", "pairs", "pca", "coverage")
        shown = [name for name in figures if name in statistics]
        cells = [["" if value is None else value for value in statistics[name]] for name in shown]
        texts = [text.split(" :: ")[-1] for text in map(str, statistics["rule"])]
        print_table((*shown, "rule"), list(zip(*cells, texts, strict=True)))
        print_line()
    if exclusions and rules.formulas:
        print_table(
            ("support", "body", "expected", "exclusion"),
            [(*formula.annotations.values(), str(formula.formula)) for formula in rules.formulas[:limit]],
        )
        print_line()
    print_line(summary + (f"; {limit} are shown" if len(rules) > limit else ""))
