"""``rulewright infer``: rules and observed facts in, probabilities out."""

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
from rulewright.errors import DataError

if TYPE_CHECKING:
    from rulewright.data import KnowledgeBase
    from rulewright.learn.markov.facts import Queries, Query


def infer(
    context: typer.Context,
    rules: Annotated[str, typer.Argument(help="Weighted formulas or rules: .mln, .rules, a folder, or -.")],
    facts: Annotated[str, typer.Argument(help="What is observed: a file or folder in any known format, or -.")],
    queries: Annotated[
        list[str] | None,
        typer.Option(
            help="What to infer: a file of atoms, an atom, or a predicate; may be repeated. None: the folder's queries."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", help="Write all probabilities here, as tab-separated columns (or -)."),
    ] = None,
    encoder: Annotated[
        Literal["none", "embedding", "gnn"], typer.Option(help="Where the log-odds come from that rules change.")
    ] = "none",
    training: Annotated[
        Literal["none", "distill", "end_to_end", "scores"], typer.Option(help="How the encoder is trained.")
    ] = "none",
    iterations: Annotated[int, typer.Option(min=0, help="How often messages are sent.")] = 20,
    damping: Annotated[float, typer.Option(min=0, max=0.999, help="The share of the old log-odds in new ones.")] = 0.5,
    closed: Annotated[
        list[str] | None,
        typer.Option(help="A predicate whose unobserved atoms are false; may be repeated. listed: all with facts."),
    ] = None,
    prior: Annotated[str, typer.Option(help="Log-odds of what nothing is known of: a number, or density.")] = "0",
    scaling: Annotated[
        Literal["none", "messages"], typer.Option(help="Keep formulas with many groundings from drowning the others.")
    ] = "none",
    learn_weights: Annotated[bool, typer.Option("--learn-weights", help="Learn all weights from the facts.")] = False,
    learned: Annotated[str | None, typer.Option(help="Write the rules with their learned weights here.")] = None,
    sample: Annotated[
        int | None, typer.Option(min=1, help="The most entities of a type at once; none: what memory allows.")
    ] = None,
    from_format: FactFormat = None,
    columns: FactColumns = None,
    limit: Annotated[int, typer.Option(min=0, help="How many atoms the table shows.")] = 20,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print all probabilities as JSON.")] = False,
) -> None:
    """Infer how probable atoms are, given weighted rules and observed facts (Markov logic, mean field).

    Example: rulewright infer smoking.mln smoking.db --queries cancer -o cancer.tsv
    """
    from rulewright.files import write_text
    from rulewright.io import read_rules, write_rules
    from rulewright.learn.markov.facts import add_query_entities
    from rulewright.learn.markov.learner import MarkovLogic
    from rulewright.learn.markov.marginals import format_scores

    if json or output is not None:
        refuse_options(context, "only the table that is printed without --json and -o has a limit", "limit")
    if encoder == "none":
        refuse_options(context, "only an --encoder is trained", "training")
    sources = (rules, facts, *(queries or ()))
    check_output(output, sources)
    check_output(learned, sources, "rules")
    rule_set = read_rules(rules)
    kb = _read_facts(facts, rules, from_format, columns)
    asked = _read_queries(queries, kb, rules)
    kb = add_query_entities(kb, asked)
    with progress("inferring") as report:
        model = MarkovLogic(
            rule_set,
            encoder=encoder,
            training=training,
            iterations=iterations,
            damping=damping,
            closed="listed" if closed == ["listed"] else tuple(closed or ()),
            prior=_read_prior(prior),
            scaling=scaling,
            learn_weights=learn_weights,
            sample="auto" if sample is None else sample,
            seed=seed,
            progress=report,
        ).fit(kb)
        marginals = model.predict(asked)
    if learned is not None:
        write_rules(model.rules_, learned)
    unsettled = [convergence for convergence in model.convergence_ if not convergence.converged]
    if unsettled:
        worst = max(unsettled, key=lambda convergence: convergence.changes[-1:])
        warn(f"{worst}; try more --iterations or more --damping")
    if output is not None:
        write_text(output, format_scores(marginals))
        warn(f"{len(marginals):,} probabilities" + ("" if output == "-" else f", written to {output}"))
    if json and output != "-":
        print_json(
            [
                {"predicate": marginal.predicate, "args": marginal.args}
                | {"probability": marginal.probability, "logit": marginal.logit}
                for marginal in marginals
            ]
        )
    if json or output is not None:
        return
    shown = marginals.top(limit)
    if shown:
        rows = [(marginal.probability, marginal.logit, str(marginal)) for marginal in shown]
        print_table(("probability", "log-odds", "atom"), rows)
        print_line()
    summary = f"{len(marginals):,} atoms from {len(rule_set):,} rules and {kb.n_facts + kb.n_false_facts:,} facts"
    print_line(summary + (f"; {len(shown)} are shown" if len(shown) < len(marginals) else ""))


def _read_prior(text: str) -> float | Literal["density"]:
    if text == "density":
        return "density"
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"--prior must be a number or density, got {text!r}") from None


def _read_facts(path: str, rules: str, from_format: FactFormat = None, columns: FactColumns = None) -> KnowledgeBase:
    """Read facts; those of Alchemy's form have the types that an .mln file of rules declares."""
    from rulewright.io.alchemy import read_db

    is_plain = from_format is None and columns is None
    if is_plain and Path(path.removesuffix(".gz")).suffix == ".db" and Path(rules.removesuffix(".gz")).suffix == ".mln":
        return read_db(path, mln=rules)
    return read_facts_of(path, from_format, columns)


def _read_queries(given: list[str] | None, kb: KnowledgeBase, rules: str) -> Queries:
    if not given:
        if "queries" not in kb.splits:
            raise DataError("nothing is asked for; give --queries a file of atoms, an atom, or a predicate")
        return kb.split("queries")
    if len(given) == 1 and Path(given[0]).exists():
        facts = _read_facts(given[0], rules)
        return facts.splits.get("queries", facts)
    queries: list[Query] = []
    for text in given:
        if Path(text).exists():
            facts = _read_facts(text, rules)
            queries += [(name, *args) for truth in (True, False) for name, args in facts.facts(truth=truth)]
        else:
            queries.append(text)
    return queries
