"""``rulewright infer``: rules and observed facts in, probabilities out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
    from rulewright.checks import Progress
    from rulewright.data import KnowledgeBase
    from rulewright.learn.markov.facts import Queries, Query
    from rulewright.learn.markov.learner import MarkovLogic
    from rulewright.learn.markov.marginals import Marginals
    from rulewright.learn.markov.selection import Choice
    from rulewright.logic import RuleSet

_TRAINED = ("epochs", "rate", "size", "slices", "batch_size", "bias", "trust", "hidden", "encoder_limit")
_LEARNED = ("weight_epochs", "weight_rate", "weight_decay")
_APART = {"encoder", "training", "limit", "learn_weights", "seed", *_TRAINED, *_LEARNED}
"""What is not looked at while other options are chosen: encoders are not trained for it and weights not learned."""

RENAMED = {"limit": "encoder_limit"}
"""The parameters of `MarkovLogic` whose options have other names."""
LAYER, ENCODER, WEIGHTS = "The layer", "The encoder", "Weights"


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
    choose: Annotated[
        bool,
        typer.Option(
            help="Choose messages, scaling, closed predicates and the prior, where not given, by how well they infer "
            "observed facts that are hidden for it; without, usual ones are taken."
        ),
    ] = True,
    choose_seconds: Annotated[float, typer.Option(min=0, help="After these seconds no other choice is tried.")] = 60.0,
    iterations: Annotated[int, typer.Option(min=0, help="How often messages are sent.", rich_help_panel=LAYER)] = 20,
    damping: Annotated[
        float,
        typer.Option(min=0, max=0.999, help="The share of the old log-odds in new ones.", rich_help_panel=LAYER),
    ] = 0.5,
    tolerance: Annotated[
        float, typer.Option(min=0, help="Stop when no probability changes by more.", rich_help_panel=LAYER)
    ] = 1e-3,
    messages: Annotated[
        Literal["sum", "mean"] | None,
        typer.Option(help="What an atom gets of the messages of its groundings.", rich_help_panel=LAYER),
    ] = None,
    draws: Annotated[
        int | None,
        typer.Option(min=0, help="Means as of so many drawn groundings; 0: plain means.", rich_help_panel=LAYER),
    ] = None,
    observed_odds: Annotated[
        float | None,
        typer.Option(min=0, help="How much more often a mean's groundings have observed atoms.", rich_help_panel=LAYER),
    ] = None,
    closed: Annotated[
        list[str] | None,
        typer.Option(
            help="A predicate whose unobserved atoms are false; may be repeated. listed: all with facts; none: no one.",
            rich_help_panel=LAYER,
        ),
    ] = None,
    prior: Annotated[
        str | None,
        typer.Option(help="Log-odds of what nothing is known of: a number, or density.", rich_help_panel=LAYER),
    ] = None,
    grounding: Annotated[
        Literal["auto", "dense", "sparse"],
        typer.Option(help="Infer all atoms, or candidates; auto: where all cost too much.", rich_help_panel=LAYER),
    ] = "auto",
    hops: Annotated[
        int,
        typer.Option(min=0, help="Through how many formulas candidates are reached.", rich_help_panel=LAYER),
    ] = 1,
    scaling: Annotated[
        Literal["none", "messages"] | None,
        typer.Option(help="Keep formulas with many groundings from drowning the others.", rich_help_panel=LAYER),
    ] = None,
    scaling_power: Annotated[
        float | None,
        typer.Option(
            min=0, help="By which power of the size of its messages a formula is scaled.", rich_help_panel=LAYER
        ),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(min=1, help="Infer samples of at most so many entities of a type.", rich_help_panel=LAYER),
    ] = None,
    memory_limit: Annotated[
        str | None,
        typer.Option("--memory-limit", "--memory", help="Memory for inference, as 2GB.", rich_help_panel=LAYER),
    ] = None,
    time_limit: Annotated[
        float,
        typer.Option("--time-limit", "--time", min=0, help="Refuse what takes more seconds.", rich_help_panel=LAYER),
    ] = 3600.0,
    weights: Annotated[
        Literal["one", "logit"],
        typer.Option(help="What a rule without a weight weighs: 1, or its log-odds.", rich_help_panel=WEIGHTS),
    ] = "one",
    hard_weight: Annotated[
        float, typer.Option(min=0, help="What a hard formula weighs.", rich_help_panel=WEIGHTS)
    ] = 20.0,
    learn_weights: Annotated[
        bool, typer.Option("--learn-weights", help="Learn all weights from the facts.", rich_help_panel=WEIGHTS)
    ] = False,
    weight_epochs: Annotated[
        int, typer.Option(min=0, help="In how many steps weights are learned.", rich_help_panel=WEIGHTS)
    ] = 50,
    weight_rate: Annotated[
        float, typer.Option(min=0, help="How far a step moves weights.", rich_help_panel=WEIGHTS)
    ] = 0.05,
    weight_decay: Annotated[
        float, typer.Option(min=0, help="How firmly learned weights are held to their start.", rich_help_panel=WEIGHTS)
    ] = 0.01,
    learned: Annotated[
        str | None,
        typer.Option(help="Write the rules with their learned weights here.", rich_help_panel=WEIGHTS),
    ] = None,
    encoder: Annotated[
        Literal["none", "embedding", "gnn"],
        typer.Option(help="Where the log-odds come from that rules change.", rich_help_panel=ENCODER),
    ] = "none",
    training: Annotated[
        Literal["none", "distill", "end_to_end", "sampled"],
        typer.Option(help="How the encoder is trained, or with sampled a table of atoms.", rich_help_panel=ENCODER),
    ] = "none",
    epochs: Annotated[
        int, typer.Option(min=0, help="In how many epochs it is trained.", rich_help_panel=ENCODER)
    ] = 100,
    rate: Annotated[float, typer.Option(min=0, help="The rate of its training.", rich_help_panel=ENCODER)] = 0.01,
    size: Annotated[
        int, typer.Option(min=1, help="Numbers in an encoder's state of an entity.", rich_help_panel=ENCODER)
    ] = 16,
    slices: Annotated[
        int, typer.Option(min=1, help="Slices of the encoder's tensor network.", rich_help_panel=ENCODER)
    ] = 8,
    batch_size: Annotated[
        int, typer.Option(min=1, help="Groundings in a batch of sampled training.", rich_help_panel=ENCODER)
    ] = 1024,
    bias: Annotated[
        float,
        typer.Option(min=0, max=1, help="How often sampled training draws a known fact.", rich_help_panel=ENCODER),
    ] = 0.9,
    trust: Annotated[
        float,
        typer.Option(
            min=0, max=1, help="The share of the encoder's log-odds that enters the layer.", rich_help_panel=ENCODER
        ),
    ] = 0.5,
    encoder_limit: Annotated[
        float,
        typer.Option(min=0, help="The largest log-odds that an encoder learns of the layer.", rich_help_panel=ENCODER),
    ] = 10.0,
    hidden: Annotated[
        float,
        typer.Option(
            min=0, max=0.999, help="The share of facts hidden from the encoder in training.", rich_help_panel=ENCODER
        ),
    ] = 0.2,
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
    if encoder == "none" and training == "none":
        refuse_options(context, "only an --encoder is trained, or by --training sampled a table", *_TRAINED)
    if not choose:
        refuse_options(context, "nothing is chosen with --no-choose", "choose_seconds")
    sources = (rules, facts, *(queries or ()))
    check_output(output, sources)
    check_output(learned, sources, "rules")
    rule_set = read_rules(rules)
    kb = _read_facts(facts, rules, from_format, columns)
    asked = _read_queries(queries, kb, rules)
    kb = add_query_entities(kb, asked)
    options = _read_options(context)
    with progress("inferring") as report:
        choice = _choose(rule_set, kb, options, choose_seconds if choose else None, report)
        model = MarkovLogic(rule_set, **{**choice.options, **options}, progress=report).fit(kb)
        marginals = model.predict(asked)
    _say_how(choice, model)
    if learned is not None:
        write_rules(model.rules_, learned)
    if output is not None:
        write_text(output, format_scores(marginals))
        warn(f"{len(marginals):,} probabilities" + ("" if output == "-" else f", written to {output}"))
    if json and output != "-":
        print_json(_describe(choice, model, marginals))
    if json or output is not None:
        return
    shown = marginals.top(limit)
    if shown:
        rows = [(marginal.probability, marginal.logit, str(marginal)) for marginal in shown]
        print_table(("probability", "log-odds", "atom"), rows)
        print_line()
    summary = f"{len(marginals):,} atoms from {len(rule_set):,} rules and {kb.n_facts + kb.n_false_facts:,} facts"
    print_line(summary + (f"; {len(shown)} are shown" if len(shown) < len(marginals) else ""))


def _read_options(context: typer.Context) -> dict[str, Any]:
    """Return the parameters of `MarkovLogic` that stand in the command or in its configuration."""
    from rulewright.learn.markov.learner import MarkovLogic

    options: dict[str, Any] = {}
    for parameter in fields(MarkovLogic):
        option = RENAMED.get(parameter.name, parameter.name)
        source = context.get_parameter_source(option)
        if option in context.params and option != "rules" and source is not None and source.name != "DEFAULT":
            options[parameter.name] = context.params[option]
    if "closed" in options:
        names = options["closed"]
        options["closed"] = "listed" if names == ["listed"] else () if names == ["none"] else tuple(names)
    if "prior" in options:
        options["prior"] = _read_prior(options["prior"])
    return options


def _choose(
    rules: RuleSet, kb: KnowledgeBase, options: Mapping[str, Any], seconds: float | None, report: Progress
) -> Choice:
    """Choose what is not given."""
    from rulewright.learn.markov.selection import Choice, choose_options, default_candidates

    held = {name: value for name, value in options.items() if name not in _APART}
    candidates = default_candidates(held)
    if seconds is None:
        return Choice(candidates[0], (), "taken without a comparison", 0.0)
    if len(candidates) == 1:
        return Choice(candidates[0], (), "as given", 0.0)
    return choose_options(rules, kb, candidates, seconds=seconds, seed=options.get("seed", 0), progress=report)


def _say_how(choice: Choice, model: MarkovLogic) -> None:
    """Say beside the result which options were chosen and what of the domain was inferred, and what did not settle."""
    for line in str(choice).splitlines():
        warn(line)
    for scope in dict.fromkeys(map(str, model.scopes_)):
        warn(scope)
    unsettled = [convergence for convergence in model.convergence_ if not convergence.converged]
    if unsettled:
        worst = max(unsettled, key=lambda convergence: convergence.changes[-1:])
        warn(f"{worst}; try more --iterations or more --damping")


def _describe(choice: Choice, model: MarkovLogic, marginals: Marginals) -> dict[str, Any]:
    """Return what inference found and how, as JSON has it."""
    return {
        "options": dict(choice.options),
        "choice": {
            "reason": choice.reason,
            "tried": [{"options": tried.options, "score": tried.score} for tried in choice.scores],
            "skipped": choice.skipped,
            "seconds": choice.seconds,
            "note": choice.note,
        },
        "scopes": [asdict(scope) for scope in model.scopes_],
        "convergence": [str(convergence) for convergence in model.convergence_],
        "atoms": [
            {"predicate": marginal.predicate, "args": marginal.args}
            | {"probability": marginal.probability, "logit": marginal.logit}
            for marginal in marginals
        ],
    }


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
