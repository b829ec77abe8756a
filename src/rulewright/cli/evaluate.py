"""``rulewright evaluate``: how good predictions are."""

from __future__ import annotations

from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from rulewright.cli.console import (
    DatabaseFile,
    EngineName,
    FactColumns,
    FactFormat,
    MemoryLimitText,
    TableFolder,
    check_output,
    print_json,
    print_line,
    print_table,
    progress,
    read_facts_of,
    refuse_options,
    warn,
)
from rulewright.cli.learn import read_parameters
from rulewright.errors import DataError

if TYPE_CHECKING:
    from rulewright.evaluate.extraction import (
        DistanceBuckets,
        DistanceUnit,
        ExtractionCounts,
        ExtractionScores,
        NamedFact,
        PairedDifference,
    )
    from rulewright.io.docred import Document, Prediction
    from rulewright.reason import RankingCalibration


class _GraphFirst(TyperGroup):
    """A group that takes its first argument for a file of ``kbc`` where it is no command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        first = next((arg for arg in args if not arg.startswith("-") or arg == "-"), None)
        if first is not None and first not in self.commands:
            args = ["kbc", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    cls=_GraphFirst,
    help="Compare predictions with what is true; of a graph (kbc) where none is named. "
    "Example: rulewright evaluate family.tsv",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_Json = Annotated[bool, typer.Option("--json", help="Print all figures as JSON.")]
_ByRelation = Annotated[bool, typer.Option("--by-relation", help="Show the figures of every relation.")]
_COLUMNS = ("gold", "predicted", "correct", "precision", "recall", "F1")
_FIGURES = {"f1": "F1", "ign_f1_docred": "Ign F1 (docred)", "ign_f1_logire": "Ign F1 (logire)", "logic": "Logic"}
_ASKED = {"forward": "r(h, ?)", "backward": "r(?, t)", "fact": "new facts"}
_IGN = "F1 with what training has seen left out of the"


@app.command("kbc")
def evaluate_kbc(
    context: typer.Context,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="[RULES] FACTS",
            help="Rules that answer queries about the graph (or -), and its facts: a file, or a folder with splits. "
            "Without rules they are learned first, from the facts that are not asked about.",
        ),
    ],
    holdout: Annotated[
        float | None,
        typer.Option(
            help="Hold out this share of the facts at random and ask for it [default: 0.1 where there is no split]."
        ),
    ] = None,
    split: Annotated[str, typer.Option(help="The split whose facts are the queries.")] = "test",
    predicate: Annotated[list[str] | None, typer.Option(help="Only queries of this relation; may be repeated.")] = None,
    learner: Annotated[
        Literal["mine", "paths"], typer.Option(help="Without rules: mine counts rules, paths weighs paths.")
    ] = "mine",
    best: Annotated[
        bool, typer.Option("--best", help="Without rules: the learner that completes best, paths.")
    ] = False,
    time: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Without rules: learn no longer than this.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Without rules: any other parameter of the learner, RuleMiner or PathMixture, such as --set "
            "max_length=2; may be repeated.",
        ),
    ] = None,
    ties: Annotated[
        Literal["mean", "optimistic", "pessimistic"], typer.Option(help="The rank among candidates of equal score.")
    ] = "mean",
    aggregation: Annotated[
        Literal["max-plus", "max", "noisy-or", "weight"] | None,
        typer.Option(
            help="How rules that agree combine: the highest confidence, ties broken by the next; the highest; "
            "1 − Π(1 − confidence); the sum of weights [default: weight where rules have weights, else max-plus]."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed of what is held out and of learning.")] = 0,
    from_format: FactFormat = None,
    columns: FactColumns = None,
    engine: EngineName = None,
    database: DatabaseFile = None,
    folder: TableFolder = None,
    memory_limit: MemoryLimitText = None,
    predictions: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write a row for each query here: its answer, the rank of that, and the best answers (.tsv, .csv, "
            ".jsonl, or -).",
        ),
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="--predictions: how many of the best answers.")] = 10,
    by_relation: _ByRelation = False,
    by_cardinality: Annotated[
        bool,
        typer.Option(
            "--by-cardinality",
            help="Show the figures of relations whose heads have one tail or several, and tails one head or several.",
        ),
    ] = False,
    calibration: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Fit how probable scores are, and write it here (.json) for rank and complete."
        ),
    ] = None,
    reliability: Annotated[
        str | None, typer.Option(metavar="FILE", help="Draw how well the probabilities hold (.png, .svg, .pdf).")
    ] = None,
    json: _Json = False,
) -> None:
    """Ask for facts that rules have not seen and rank the answers: filtered MRR and Hits.

    Example: rulewright evaluate kbc graph.tsv --holdout 0.1 (kbc may be left out)
    """
    from rulewright import learn
    from rulewright.evaluate.calibration import check_plot_file
    from rulewright.evaluate.ranking import check_prediction_file
    from rulewright.io import read_rules

    if len(paths) > 2:
        raise typer.BadParameter(f"expected [RULES] FACTS, got {len(paths)} arguments")
    *rule_paths, facts = paths
    if not rule_paths and facts.isalpha() and not Path(facts).exists():
        tasks = ", ".join(str(command.name) for command in app.registered_commands)
        raise typer.BadParameter(f"{facts!r} is neither a file of facts nor a task; tasks are {tasks}")
    if rule_paths:
        _refuse_standard_input(facts)
        refuse_options(context, "it is for learning, and rules are given", "learner", "best", "time", "set_")
    if best:
        refuse_options(context, "--best chooses the learner", "learner")
    if holdout is not None:
        refuse_options(context, "--holdout asks for facts of no split", "split")
    if predictions is None:
        refuse_options(context, "it says how many answers --predictions writes", "top")
    else:
        check_prediction_file(predictions)
        check_output(predictions, paths)
        if json and predictions == "-":
            raise typer.BadParameter("--json and --predictions - both write to standard output; name a file")
    if calibration is None:
        refuse_options(context, "it draws what --calibration fits", "reliability")
    elif calibration == "-" and (json or predictions == "-"):
        raise typer.BadParameter("--calibration - and other results would both go to standard output; name a file")
    elif engine is not None or database is not None or facts.endswith(".duckdb"):
        raise typer.BadParameter("--calibration is fitted to facts in memory: leave out --engine and --database")
    for output in (calibration, reliability):
        check_output(output, paths)
    if reliability is not None:
        check_plot_file(reliability)
        if reliability == calibration:
            raise typer.BadParameter(f"--calibration and --reliability would both be written to {reliability}")
    rule_set = read_rules(rule_paths[0]) if rule_paths else None
    kb = read_facts_of(facts, from_format, columns, context=context)
    with progress("ranking") as report:
        tried: learn.Learner | None = None
        if rule_set is None:
            chosen: type[learn.Learner] = learn.PathMixture if best or learner == "paths" else learn.RuleMiner
            given = read_parameters(set_ or [], chosen, {"seed", "time_limit", "targets"})
            tried = chosen(seed=seed, time_limit=time, progress=report, **given)
        result = learn.evaluate(
            rule_set if tried is None else tried,
            kb,
            holdout=holdout,
            split=split,
            predicates=predicate,
            aggregation=aggregation,
            ties=ties,
            top=0 if predictions is None else top,
            calibrate=calibration is not None,
            seed=seed,
            progress=report,
        )
    if result.note:
        warn(result.note)
    if result.calibration is not None and calibration is not None:
        _write_calibration(result.calibration, calibration, reliability)
    if predictions is not None:
        result.scores.write_predictions(predictions)
        if predictions == "-":
            return
        warn(f"{len(result.scores):,} queries with their best answers, written to {predictions}")
    if json:
        rules = rule_paths[0] if rule_paths else None
        print_json({"task": "kbc", "rule_file": rules, "gold": facts, "split": split, **result.as_dict()})
        return
    scores, inverse = result.scores, result.scores.inverse
    columns_shown = ("queries", "MRR", "Hits@1", "Hits@3", "Hits@10")
    parts = {"r(h, ?)": scores.part(~inverse), "r(?, t)": scores.part(inverse), "both": scores}
    print_table(
        ("", *columns_shown),
        [(name, len(part), part.mrr, part.hits(1), part.hits(3), part.hits(10)) for name, part in parts.items()],
    )
    print_line()
    if by_relation or predicate:
        print_table(("relation", *columns_shown), result.rows())
        print_line()
    if by_cardinality:
        print_table(
            ("cardinality", "relations", *columns_shown, "MRR r(h, ?)", "MRR r(?, t)"),
            [
                (
                    name,
                    len(set(part.relation.tolist())),
                    *(len(part), part.mrr, part.hits(1), part.hits(3), part.hits(10)),
                    *(part.part(~part.inverse).mrr, part.part(part.inverse).mrr),
                )
                for name, part in scores.by_cardinality().items()
            ],
        )
        print_line()
    print_line(
        f"{len(result.rules):,} rules ({result.aggregation}) on {result.facts:,} facts; asked: {result.queries_of}. "
        f"Learned in {result.seconds_learning:.1f} s, ranked in {result.seconds_ranking:.1f} s."
        if tried is not None
        else f"{len(result.rules):,} rules ({result.aggregation}) on {result.facts:,} facts; asked: "
        f"{result.queries_of}. Ranked in {result.seconds_ranking:.1f} s."
    )
    print_line(
        f"Filtered; ties: {ties}. {int(scores.unseen.sum()):,} queries have an entity that no training fact names."
    )
    if result.calibration is not None and calibration != "-":
        _print_calibration(result.calibration)


def _write_calibration(fitted: RankingCalibration, path: str, plot_path: str | None) -> None:
    from rulewright.evaluate.calibration import plot_reliability

    fitted.save(path)
    warn(f"how probable scores are, fitted to {fitted.fitted_on}, is written to {path}")
    if fitted.note:
        warn(fitted.note)
    if plot_path is not None:
        parts = {_ASKED[asked]: part.after for asked, part in fitted.judged.items()}
        plot_reliability(parts, plot_path, title="fitted to one half of the queries, judged on the other")


def _print_calibration(fitted: RankingCalibration) -> None:
    print_line()
    rows = [
        (_ASKED[asked], *(_error(figure) for part in judged for figure in (part.error, part.error_from(0.1))))
        for asked, judged in fitted.judged.items()
    ]
    if rows:
        columns = ("score as it is", "from 0.1 on", "probability", "from 0.1 on")
        print_table(("calibration error", *columns), rows)
        print_line()
        print_line("Curves were fitted to one half of the queries, and the error is of the other half.")


def _error(figure: float) -> str:
    return "—" if isnan(figure) else f"{figure:.4f}"


@app.command("classification")
def evaluate_classification(
    scores: Annotated[str, typer.Argument(help="Scores of atoms as infer -o writes them, or - for standard input.")],
    gold: Annotated[str, typer.Argument(help="Facts, true and false; of a folder, those of its queries.")],
    from_format: FactFormat = None,
    columns: FactColumns = None,
    json: _Json = False,
) -> None:
    """Compare the scores of atoms with which of them are true: AUC-PR.

    Example: rulewright evaluate classification cancer.tsv queries.db
    """
    from rulewright.evaluate import classification

    _refuse_standard_input(gold)
    kb = read_facts_of(gold, from_format, columns)
    predicted = classification.read_scores(scores)
    try:
        result = classification.evaluate_classification(predicted, kb.splits.get("queries", kb))
    except DataError as error:
        raise DataError(f"{scores}: {error}") from None
    if json:
        print_json({"task": "classification", "predictions": scores, "gold": gold, **result.as_dict()})
        return
    rows = [
        (name, part.atoms, part.true, "—" if isnan(part.auc_pr) else f"{part.auc_pr:.4f}")
        for name, part in [*result.by_predicate.items(), ("all, pooled", result.pooled)]
    ]
    print_table(("predicate", "atoms", "true", "AUC-PR"), rows)
    print_line()
    print_line("AUC-PR is average precision; atoms of equal score count together, whatever their order.")


@app.command("docre")
def evaluate_docre(
    context: typer.Context,
    pred: Annotated[
        str,
        typer.Argument(help="Predicted facts, a JSON list of {title, h_idx, t_idx, r}, or - for standard input."),
    ],
    gold: Annotated[str, typer.Argument(help="What is true: documents in DocRED's JSON.")],
    train: Annotated[
        str | None, typer.Option(help="What training has seen, for Ign F1: a .fact file, or documents.")
    ] = None,
    rules: Annotated[str | None, typer.Option(help="Rules that ought to hold, for the Logic score.")] = None,
    relations: Annotated[
        str | None, typer.Option(help="A JSON object whose keys are all relations; any other is then an error.")
    ] = None,
    by_relation: _ByRelation = False,
    by_distance: Annotated[
        bool, typer.Option("--by-distance", help="Show the figures by how far apart the entities are named.")
    ] = False,
    by_rule: Annotated[bool, typer.Option("--by-rule", help="Show how often every rule fires and holds.")] = False,
    distance_unit: Annotated[
        Literal["tokens", "starts", "sentences"] | None,
        typer.Option(help="Count tokens between mentions (the usual), tokens from start to start, or sentences."),
    ] = None,
    distance_bounds: Annotated[
        str | None, typer.Option(metavar="N,N,…", help="Where ranges of distance begin, such as 0,100,200,400.")
    ] = None,
    loops: Annotated[
        Literal["against", "skip"],
        typer.Option(help="Whether a pair of an entity with itself counts in the Logic score."),
    ] = "against",
    against: Annotated[
        str | None, typer.Option(help="Predictions of another system, to compare with: is the difference luck?")
    ] = None,
    resamples: Annotated[int, typer.Option(min=1, help="How often the comparison draws documents.")] = 10_000,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same interval.")] = 0,
    json: _Json = False,
) -> None:
    """Compare relations predicted between the entities of documents with gold ones: F1, Ign F1 and Logic.

    Example: rulewright evaluate docre result.json dev.json --train train_annotated.fact --rules gold.rules
    """
    _refuse_standard_input(gold, train, rules, relations, against)
    if rules is None:
        refuse_options(context, "it needs --rules", "by_rule", "loops")
    if against is None:
        refuse_options(context, "it needs --against", "resamples", "seed")
    from rulewright.evaluate.extraction import compare_extraction, evaluate_extraction, read_named_facts
    from rulewright.io import read_rules
    from rulewright.io.docred import read_documents
    from rulewright.io.json_shape import load

    buckets = None
    if by_distance or distance_unit is not None or distance_bounds is not None:
        buckets = _buckets(distance_unit or "tokens", distance_bounds)
    documents = read_documents(gold)
    if not any(document.facts for document in documents):
        raise DataError(f"{gold}: no document has a gold fact; without labels there is nothing to compare with")
    train_facts = None if train is None else read_named_facts(train)
    rule_set = None if rules is None else read_rules(rules)
    known = None if relations is None else [name for name, _ in load(relations).fields()]
    predictions = _read_predictions(pred, documents, train_facts, known)
    scores = evaluate_extraction(
        predictions,
        documents,
        train_facts=train_facts,
        rules=rule_set,
        distances=buckets,
        relations=known,
        loops=loops,
    )
    differences = None
    if against is not None:
        differences = compare_extraction(
            predictions,
            _read_predictions(against, documents, train_facts, known),
            documents,
            train_facts=train_facts,
            rules=rule_set,
            relations=known,
            loops=loops,
            resamples=resamples,
            seed=seed,
        )
    if json:
        figures: dict[str, object] = {"task": "docre", "predictions": pred, "gold": gold, **scores.as_dict()}
        if differences is not None:
            compared = {name: difference.as_dict() for name, difference in differences.items()}
            figures["against"] = {"predictions": against, "seed": seed, **compared}
        print_json(figures)
        return
    if scores.unseen_relations:
        where = "gold" if train is None else "gold or training"
        warn(f"relations without a {where} fact: {', '.join(scores.unseen_relations)}")
    _print_scores(scores)
    if by_relation:
        print_line()
        print_table(("relation", *_COLUMNS), [(name, *_row(counts)) for name, counts in scores.by_relation.items()])
    if buckets is not None:
        _print_distances(scores, buckets)
    if by_rule:
        _print_rules(scores)
    if differences is not None and against is not None:
        _print_differences(differences, pred, against, seed)


def _refuse_standard_input(*paths: str | None) -> None:
    if "-" in paths:
        raise typer.BadParameter("only the first argument, what was predicted, can be standard input")


def _buckets(unit: DistanceUnit, bounds: str | None) -> DistanceBuckets:
    from rulewright.evaluate.extraction import DistanceBuckets

    try:
        return DistanceBuckets(unit, () if bounds is None else tuple(map(int, bounds.split(","))))
    except DataError as error:
        raise typer.BadParameter(str(error)) from None
    except ValueError:
        raise typer.BadParameter(f"--distance-bounds must be whole numbers with commas, got {bounds!r}") from None


def _read_predictions(
    path: str,
    documents: tuple[Document, ...],
    train_facts: frozenset[NamedFact] | None,
    relations: list[str] | None,
) -> tuple[Prediction, ...]:
    """Read predictions and check them here, where the file's name is known."""
    from rulewright.evaluate.extraction import check_predictions
    from rulewright.io.docred import read_predictions

    predictions = read_predictions(path)
    try:
        check_predictions(predictions, documents, train_facts=train_facts, relations=relations)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return predictions


def _print_scores(scores: ExtractionScores) -> None:
    print_line(
        f"{scores.given:,} facts are predicted for {scores.documents:,} documents that have {scores.wanted:,} gold "
        f"facts; {scores.correct:,} are correct"
    )
    print_line()
    rows = [
        ("precision", _percent(scores.precision), "of the predicted facts are gold"),
        ("recall", _percent(scores.recall), "of the gold facts are predicted"),
        ("F1", _percent(scores.f1), "the harmonic mean of the two"),
    ]
    if scores.correct_in_train is not None:
        left_out = f"precision (correct facts: {scores.correct_in_train:,})"
        rows.append((_FIGURES["ign_f1_docred"], _percent(scores.ign_f1_docred), f"{_IGN} {left_out}"))
        left_out = f"recall (gold facts: {scores.wanted_in_train:,})"
        rows.append((_FIGURES["ign_f1_logire"], _percent(scores.ign_f1_logire), f"{_IGN} {left_out}"))
    if scores.logic is not None and scores.gold_logic is not None:
        logic = scores.logic
        meaning = (
            f"of what rules infer from predictions is predicted: the mean of {logic.fired:,} of {len(logic.rules):,} "
            f"rules, which fire {logic.groundings:,} times; of gold facts {_percent(scores.gold_logic.value).strip()}"
        )
        rows.append(("Logic", _percent(logic.value), meaning))
    print_table(("figure", "value", "meaning"), rows)


def _percent(share: float | None) -> str:
    return "     —" if share is None else f"{100 * share:6.2f} %"


def _row(counts: ExtractionCounts) -> tuple[object, ...]:
    figures = (_percent(counts.precision), _percent(counts.recall), _percent(counts.f1))
    return counts.wanted, counts.given, counts.correct, *figures


def _print_distances(scores: ExtractionScores, buckets: DistanceBuckets) -> None:
    has_train = scores.correct_in_train is not None
    ign = tuple(name for key, name in _FIGURES.items() if key.startswith("ign")) if has_train else ()
    rows = []
    for bucket in scores.by_distance or ():
        reach = f"{bucket.low:,} and more" if bucket.high is None else f"{bucket.low:,} to {bucket.high - 1:,}"
        more = (bucket.counts.ign_f1_docred, bucket.counts.ign_f1_logire) if has_train else ()
        rows.append((reach, *_row(bucket.counts), *map(_percent, more)))
    unit = "tokens, start to start" if buckets.unit == "starts" else buckets.unit
    print_line()
    print_table((f"distance ({unit})", *_COLUMNS, *ign), rows)


def _print_rules(scores: ExtractionScores) -> None:
    rules = scores.logic.rules if scores.logic is not None else ()
    print_line()
    print_table(
        ("rule", "pairs", "satisfied", "share", "groundings"),
        [(str(score.rule), score.pairs, score.satisfied, _percent(score.share), score.groundings) for score in rules],
    )


def _print_differences(differences: dict[str, PairedDifference], pred: str, against: str, seed: int) -> None:
    rows = []
    for name, paired in differences.items():
        systems = (None if isnan(figure) else figure for figure in (paired.first, paired.second))
        cells = ("—", "—", "—")
        if not isnan(paired.p_value):
            interval = f"{100 * paired.low:+.2f} to {100 * paired.high:+.2f}"
            cells = (f"{100 * paired.difference:+.2f}", interval, f"{paired.p_value:.4f}")
        rows.append((_FIGURES[name], *map(_percent, systems), *cells))
    f1 = differences["f1"]
    ours = "standard input" if pred == "-" else pred
    print_line()
    print_table(("figure", ours, against, "difference", f"{f1.confidence:.0%} interval", "p"), rows)
    print_line()
    print_line(
        f"A positive difference speaks for {ours}. Interval and p-value: paired bootstrap over documents, "
        f"{f1.resamples:,} resamples, seed {seed}."
    )
