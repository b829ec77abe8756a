"""``rulewright apply``: rules and facts in, new facts out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

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
    console,
    print_json,
    print_line,
    print_table,
    progress,
    read_facts_of,
    read_labels,
    refuse_options,
    warn,
)

if TYPE_CHECKING:
    from rulewright.data import KnowledgeBase
    from rulewright.logic import RuleSet
    from rulewright.reason import Inferred, InferredFact, RankingCalibration, Update


def apply(
    context: typer.Context,
    rules: Annotated[str, typer.Argument(help="A rule file (.rules, .mln), or - for standard input.")],
    facts: Annotated[str, typer.Argument(help="Facts: a file or folder in any known format, or -.")],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            help="Write the new facts here (.tsv and .csv with scores; .parquet for --update; .facts, .db, -).",
        ),
    ] = None,
    complete: Annotated[bool, typer.Option("--complete", help="Write the known facts too, without scores.")] = False,
    partition: Annotated[
        bool, typer.Option("--partition", help="With --engine or --database: write a part for each relation.")
    ] = False,
    min_score: Annotated[float, typer.Option(min=0, help="Leave out facts with a lower score.")] = 0.0,
    aggregation: Annotated[
        Literal["max", "max-plus", "noisy-or", "weight"] | None,
        typer.Option(help="How several rules combine: none chooses weight where rules carry weights, else max."),
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=0, help="The most rounds; 1 applies each rule once, 0 goes on until nothing is new.")
    ] = 1,
    max_facts: Annotated[int, typer.Option(min=1, help="Keep so many new facts, the best.")] = 1_000_000,
    time: Annotated[
        float | None, typer.Option(min=0, metavar="SECONDS", help="Stop after about so long and keep what there is.")
    ] = None,
    update: Annotated[
        str | None,
        typer.Option(help="What an earlier apply wrote (-o OLD.parquet): only what changed since then is looked at."),
    ] = None,
    labels: LabelFile = None,
    from_format: FactFormat = None,
    columns: FactColumns = None,
    limit: Annotated[int, typer.Option(min=0, help="How many facts the table shows.")] = 20,
    engine: EngineName = None,
    database: DatabaseFile = None,
    folder: TableFolder = None,
    memory_limit: MemoryLimitText = None,
    json: Annotated[bool, typer.Option("--json", help="Print all new facts as JSON.")] = False,
) -> None:
    """Apply rules to facts and show what is new, with scores and the rules that gave it.

    Every rule is applied once; --rounds 0 applies them to what they give, too, until nothing is new.

    A Parquet file keeps what was inferred and from what; --update goes on from there, and says what changed.

    Example: rulewright apply family.rules family.tsv -o new.tsv
    """
    from rulewright.io import read_rules
    from rulewright.reason import apply as apply_rules

    if output is None:
        refuse_options(context, "only a file (-o) can hold the known facts too", "complete")
        refuse_options(context, "only files (-o) have parts", "partition")
    if engine is not None or database is not None or facts.endswith(".duckdb"):
        refuse_options(context, "in an engine everything that follows is kept", "max_facts")
        refuse_options(context, "an update is of facts in memory", "update")
    else:
        refuse_options(context, "it is for --engine or --database", "partition")
    if json or output is not None:
        refuse_options(context, "only the table that is printed without --json and -o has a limit", "limit")
    if update is not None:
        refuse_options(context, "an update has no joins in a database; it is for apply anew", "memory_limit")
    check_output(output, (rules, facts, update), "facts")
    rule_set = read_rules(rules)
    kb = read_facts_of(facts, from_format, columns, context=context)
    refuse_heads(rule_set, kb, output)
    if update is not None:
        refuse_options(context, "an update takes the time that it takes", "time", "memory_limit")
        changed = update_inferred(
            update, rule_set, kb, aggregation=aggregation, min_score=min_score, rounds=rounds, max_facts=max_facts
        )
        warn_of(changed.inferred)
        if output is not None:
            write_inferred(changed.inferred, output, complete=complete)
        print_changes(changed, limit=limit, json=json and output != "-", output=output, labels=labels)
        return
    with progress("applying rules") as report:
        inferred = apply_rules(
            rule_set,
            kb,
            aggregation=aggregation,
            min_score=min_score,
            max_rounds=rounds or None,
            max_facts=max_facts,
            time_limit=time,
            memory_limit=memory_limit,
            progress=report,
        )
    warn_of(inferred)
    if output is not None:
        write_inferred(inferred, output, complete=complete, partition=partition)
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
        label = read_labels(labels).show
        facts_width = max(len(label(str(fact))) for fact in shown)
        width = max(24, console().width - facts_width - 12)
        print_table(
            ("score", "new fact", "by rule"),
            [(fact.score, label(str(fact)), _describe_rules(fact, width, label)) for fact in shown],
        )
        print_line()
    print_line(summary + (f"; {len(shown)} are shown" if len(shown) < len(inferred) else ""))


def refuse_heads(
    rules: RuleSet, kb: KnowledgeBase, output: str | None, predicates: Sequence[str] | None = None
) -> None:
    """Refuse, before the work, a file of triples for what they cannot say: heads of other than two arguments."""
    from rulewright.errors import DataError
    from rulewright.io.formats import find_output_format
    from rulewright.reason.rule_rows import find_conclusions

    if output is None or find_output_format(output, "facts").name != "triples":
        return
    declared = {**kb.predicates, **{declaration.name: declaration for declaration in rules.predicates}}
    for name in dict.fromkeys(name for statement in rules for name in sorted(find_conclusions(statement))):
        has_classes = name in declared and declared[name].classes is not None
        width = rules.arities[name] + has_classes
        if width != 2 and (predicates is None or name in predicates):
            raise DataError(
                f"{output} would have triples, and the rules give {name}, which has {width} "
                f"argument{'' if width == 1 else 's'}; write a .facts file instead"
            )


def warn_of(inferred: Inferred) -> None:
    """Say what is not there, and which constraints are broken."""
    if inferred.note:
        warn(inferred.note + ("; --rounds 0 goes on until nothing is new" if "further round" in inferred.note else ""))
    for violation in inferred.violations:
        warn(f"broken {violation.groundings:,} times: {violation.formula}")


def update_inferred(
    path: str,
    rules: RuleSet,
    kb: KnowledgeBase,
    *,
    aggregation: str | None,
    min_score: float,
    rounds: int,
    max_facts: int,
) -> Update:
    """Bring what an earlier application wrote up to date; other options than it had are refused by name."""
    from dataclasses import replace

    from rulewright.errors import DataError
    from rulewright.reason import update
    from rulewright.reason.stored import read_inferred

    old = read_inferred(path, rules)
    assert old.application is not None  # of what has none, nothing is read
    before = {"aggregation": old.application.aggregation, "min-score": old.application.min_score}
    before["rounds"] = old.application.max_rounds or 0
    asked = {"aggregation": aggregation or "max", "min-score": min_score, "rounds": rounds}
    for name, value in asked.items():
        if before[name] != value:
            raise DataError(
                f"{path} was written with --{name} {before[name]}, got {value}; give the same, or apply anew"
            )
    old.application = replace(old.application, max_facts=max_facts)
    return update(old, kb)


def print_changes(changed: Update, *, limit: int, json: bool, output: str | None, labels: str | None) -> None:
    """Print what follows newly (+), what no longer does (-), and what was inferred and is known now (=)."""
    parts = {"+": changed.added, "-": changed.removed, "=": changed.confirmed}
    if json:
        names = {"+": "added", "-": "removed", "=": "confirmed"}
        print_json(
            {
                **{names[sign]: _as_json(inferred)["facts"] for sign, inferred in parts.items()},
                "facts": len(changed.inferred),
                "note": changed.inferred.note,
            }
        )
        return
    summary = (
        f"{len(changed.added):,} facts follow newly (+), {len(changed.removed):,} no longer (-), "
        f"{len(changed.confirmed):,} are known now (=); {len(changed.inferred):,} new facts in all"
    )
    if output is not None:
        warn(f"{summary}, written to {output}" if output != "-" else summary)
        return
    show = read_labels(labels).show
    rows = [(sign, fact.score, show(str(fact))) for sign, inferred in parts.items() for fact in inferred[:limit]]
    if rows:
        print_table(("", "score", "fact"), rows)
        print_line()
    print_line(summary)


def _describe_rules(fact: InferredFact, width: int, label: Callable[[str], str]) -> str:
    """Return the number and the text of the best rule for a fact, cut to a width, and the numbers of others."""
    from rulewright.reason.proofs import rule_text

    others = fact.numbers[1:]
    more = f" and {', '.join(map(str, others[:3]))}" if others else ""
    more += f" and {len(others) - 3:,} more" if len(others) > 3 else ""
    text = f"{fact.numbers[0]}: {label(rule_text(fact.rules[0]))}"
    room = max(16, width - len(more))
    return (text if len(text) <= room else f"{text[: room - 1]}…") + more


def _as_json(inferred: Inferred) -> dict[str, object]:
    return {
        "facts": [
            {
                "predicate": fact.predicate,
                "args": list(fact.args),
                "score": fact.score,
                "rules": list(fact.numbers),
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


def write_inferred(
    inferred: Inferred,
    output: str,
    *,
    complete: bool = False,
    partition: bool = False,
    calibration: RankingCalibration | None = None,
) -> None:
    """Write new facts with their scores where the format can hold them, or with ``complete`` all facts without.

    With a ``calibration`` they have their probabilities too.
    """
    from rulewright.reason.complete import probabilities_of
    from rulewright.reason.stored_inferred import StoredInferred

    if isinstance(inferred, StoredInferred) and output != "-":
        inferred.write(output, complete=complete, partition=partition)
        if calibration is not None:
            warn(f"{output} has no probabilities: an engine writes scores alone; --json has both")
        return
    from rulewright.io import facts as facts_format
    from rulewright.io import jsonl, triples, write_facts
    from rulewright.io.formats import find_output_format
    from rulewright.reason.stored import write_inferred as write_parquet

    format_name = find_output_format(output, "facts").name
    chances = [None] * len(inferred) if calibration is None else probabilities_of(inferred[:], inferred.kb, calibration)
    if complete:
        write_facts(inferred.completed, output)
    elif format_name == "triples":
        triples.write_scored(
            ((fact.predicate, fact.args, f"{fact.score:.6g}", " ".join(map(str, fact.numbers))) for fact in inferred),
            output,
            None if calibration is None else ["" if chance is None else f"{chance:.6g}" for chance in chances],
        )
    elif format_name == "jsonl":
        scores = {(fact.predicate, *fact.args): (fact.score, fact.numbers) for fact in inferred}
        by_fact = {
            (fact.predicate, *fact.args): chance
            for fact, chance in zip(inferred, chances, strict=True)
            if chance is not None
        }
        jsonl.write_scored(inferred.facts, scores, output, by_fact)
    elif format_name == "facts":
        notes = {
            str(fact): f"score {fact.score:.6g}, "
            + ("" if chance is None else f"probability {chance:.6g}, ")
            + f"by rule {' '.join(map(str, fact.numbers))}"
            for fact, chance in zip(inferred, chances, strict=True)
        }
        facts_format.write_scored(inferred.facts, notes, output)
    elif format_name == "parquet":
        write_parquet(inferred, output)
        if calibration is not None:
            warn(f"{output} has no probabilities, for an update goes on from it; .tsv, .csv, .jsonl and .facts have")
    else:
        write_facts(inferred.facts, output)
        warn(
            f"{output} has no scores, for its format has no place for them; "
            ".tsv, .csv, .jsonl, .parquet and .facts have"
        )
