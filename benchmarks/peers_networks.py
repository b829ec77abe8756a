"""Networks with rules on four problems: our injectors beside LTN, pylon, ProbLog, DeepProbLog and PSL, in one run.

Every row has the same network, optimiser and number of epochs. What a row may set (the weight of a loss, how strong the
formulas of a layer are) is chosen on validation samples. Each row runs in a process of its own, keeps what it found in
``--checkpoints`` and is not run again. A system that is not installed, or has no meaning for a problem, says so.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import multiprocessing
import statistics
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import measure
import torch
from peers import others, ours
from peers.problems import PROBLEMS, Problem, Split
from peers.training import Part, train
from torch import Tensor

from rulewright import RulewrightError

WEIGHTS_OF_SUMS = (0.001, 0.01, 0.1, 1.0)  # the hinge is a sum over the groundings of a sample
WEIGHTS_OF_MEANS = (0.1, 1.0, 10.0, 100.0)
STRENGTHS = ("hard", "learn", "0.3", "2")
STRENGTHS_OF_SUMS = ("hard", "10")  # a hundred formulas for a pair: what weighs less says next to nothing


@dataclass(frozen=True)
class Row:
    """A system on a problem: the part that its user writes, how it is used, and the settings to choose from.

    A ``loss`` is added to the loss of the task, an ``objective`` replaces it, a ``layer`` stands behind the network,
    a ``decoder`` gives labels at the end. ``reason`` says why there is no such part. What is slow has ``only_seeds``.
    """

    use: Literal["alone", "loss", "objective", "layer", "decoder", "none"]
    make: Callable[..., Any] | None = None
    settings: Sequence[object] = (None,)
    package: str = "torch"
    helpers: tuple[Callable[..., Any], ...] = ()
    reason: str = ""
    only_seeds: int | None = None


def describe_rows(problem: str) -> dict[str, Row]:
    """Return every system's row for a problem."""
    rules = (getattr(ours, f"{problem}_rules"),)
    is_digits = problem == "digits"
    loss_use: Literal["loss", "objective"] = "objective" if is_digits else "loss"
    weights = (None,) if is_digits else WEIGHTS_OF_MEANS
    loss, layer = getattr(ours, f"loss_{problem}"), getattr(ours, f"layer_{problem}")
    rows = {"network alone": Row("alone")}
    for form in ("hinge", "violation", "log"):
        chosen = WEIGHTS_OF_SUMS if form == "hinge" and not is_digits else weights
        rows[f"ConsistencyLoss, {form}"] = Row(loss_use, partial(loss, form), chosen, helpers=rules)
    use: Literal["layer", "objective"] = "objective" if is_digits else "layer"
    strengths = STRENGTHS_OF_SUMS if is_digits else STRENGTHS
    rows["LogicLayer, mean-field"] = Row(
        use,
        partial(layer, "mean-field"),
        [(iterations, strength) for iterations in ((1,) if is_digits else (1, 5)) for strength in strengths],
        helpers=rules,
    )
    rows["LogicLayer, exact"] = Row(
        use, partial(layer, "exact", 1), [(strength,) for strength in strengths], helpers=rules
    )
    if is_digits:
        rows["RuleDecoder"] = Row("none", reason="the sum is not known when the digits are asked for")
    else:
        rows["RuleDecoder"] = Row("decoder", getattr(ours, f"decoder_{problem}"), helpers=rules)
    rows["LTN"] = Row(loss_use, getattr(others, f"ltn_{problem}"), weights, package="ltn")
    rows["pylon"] = Row(loss_use, getattr(others, f"pylon_{problem}"), weights, package="pylon")
    for system, package in (("ProbLog", "problog"), ("PSL", "pslpython")):
        make = getattr(others, f"{system.lower()}_{problem}", None)
        helpers = (others.compile_problog,) if system == "ProbLog" else ()
        if make is None:
            rows[system] = Row("none", reason=NOT_THERE[system, problem])
        else:
            rows[system] = Row("decoder", make, package=package, helpers=helpers)
    if is_digits:
        rows["DeepProbLog"] = Row("objective", others.deepproblog_digits, package="deepproblog", only_seeds=1)
    else:
        rows["DeepProbLog"] = Row("none", reason="its queries take no constraints as evidence")
    return rows


NOT_THERE = {
    ("ProbLog", "digits"): "it does not train a network; DeepProbLog does",
    ("PSL", "digits"): "it does not train a network from sums",
}


def count_lines(functions: Sequence[Callable[..., Any]]) -> int:
    """Return how many lines of code functions have, without docstrings, comments, blank lines and the ``def``."""
    total = 0
    for function in functions:
        source = inspect.getsource(function.func if isinstance(function, partial) else function)
        body = ast.parse(source).body[0]
        assert isinstance(body, ast.FunctionDef)
        lines = source.splitlines()[body.body[1].lineno - 1 :]  # the first is the docstring
        total += sum(1 for line in lines if line.strip() and not line.lstrip().startswith("#"))
    return total


def run_row(problem: Problem, row: Row, seed: int) -> dict[str, object]:
    """Train and choose on validation samples, and score on test samples."""
    training, validation, test = problem.make_splits(seed)
    fit(replace(problem, epochs=0), row, row.settings[0], training, seed)  # what is imported is nobody's cost
    train(replace(problem, epochs=1), training, seed, problem.task_loss)
    best: dict[str, object] = {}
    best_value = -1.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for setting in row.settings:
            start = time.process_time()
            predict = fit(problem, row, setting, training, seed)
            trained = time.process_time() - start
            if len(row.settings) > 1:
                value = problem.validate(predict(validation), validation)
                if value <= best_value:
                    continue
                best_value = value
            start = time.process_time()
            labels = predict(test)
            predicted = time.process_time() - start
            first, second = problem.score(labels, test)
            best = {
                "setting": write_setting(setting),
                "metric": first,
                "second": second,
                "violations": problem.count_violations(labels, test),
                "training_seconds": trained,
                "prediction_seconds": predicted,
            }
    return best


def write_setting(setting: object) -> str:
    """Return a setting as the table has it."""
    if setting is None:
        return ""
    if not isinstance(setting, tuple):
        return f"weight {setting:g}"
    *iterations, strength = setting
    weight = strength if strength in ("hard", "learn") else f"weight {strength}"
    return ", ".join([f"{count} iteration{'s' * (count > 1)}" for count in iterations] + [weight])


def fit(problem: Problem, row: Row, setting: Any, training: Split, seed: int) -> Callable[[Split], Tensor]:
    """Return what gives labels for samples, trained."""
    module, part = None, None
    if row.make is not None:
        made = row.make(*setting) if isinstance(setting, tuple) else row.make()
        module, part = made if isinstance(made, tuple) else (None, made)
    loss: Part = problem.task_loss
    if row.use == "objective":
        assert part is not None
        loss = part
    elif row.use == "loss":
        assert part is not None
        chosen = part
        loss = lambda logits, split: problem.task_loss(logits, split) + setting * chosen(logits, split)  # noqa: E731
    elif row.use == "layer":
        assert part is not None
        behind = part
        loss = lambda logits, split: problem.task_loss(behind(logits, split), split)  # noqa: E731
    network = train(problem, training, seed, loss, module)

    @torch.no_grad()
    def predict(split: Split) -> Tensor:
        logits = network(split.features)
        if row.use == "decoder":
            assert part is not None
            return part(logits, split)
        if row.use == "layer":
            assert part is not None
            logits = part(logits, split)
        return problem.predict(logits)

    return predict


def work(problem: str, system: str, seed: int, path: Path) -> None:
    """Run one row for one seed and write what was found."""
    torch.set_num_threads(1)
    row = describe_rows(problem)[system]
    found: dict[str, object]
    if row.use == "none":
        found = {"reason": row.reason}
    elif find_spec(row.package) is None:
        found = {"reason": "not installed"}
    else:
        try:
            found = run_row(PROBLEMS[problem], row, seed)
        except RulewrightError as error:
            found = {"reason": f"refused: {error}"}
        made = [] if row.make is None else [row.make]
        found["lines"] = count_lines([*made, *row.helpers])
    path.write_text(json.dumps(found, indent=1, default=str) + "\n", encoding="utf-8")


def summarise(problem: str, system: str, found: Sequence[dict[str, Any]]) -> list[object]:
    """Return a row of the table: the mean ± deviation of the seeds."""
    reasons = [seed["reason"] for seed in found if "reason" in seed]
    if len(reasons) == len(found):
        return [system, "–", "–", "–", "–", "–", "–", reasons[0]]
    found = [seed for seed in found if "reason" not in seed]

    def spread(key: str) -> str:
        values = [float(seed[key]) for seed in found]
        deviation = f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else ""
        return f"{statistics.mean(values):.3f}{deviation}"

    settings = Counter(seed["setting"] for seed in found if seed["setting"])
    chosen = "; ".join(f"{setting} ({count})" for setting, count in settings.most_common())
    if reasons:
        chosen = f"{len(found)} seeds; of {len(reasons)}: {reasons[0]}"
    if len(found) == 1:
        chosen = "one seed: it is slow"
    return [
        system,
        spread("metric"),
        spread("second"),
        f"{statistics.mean(float(seed['violations']) for seed in found):.2f}",
        f"{statistics.mean(float(seed['training_seconds']) for seed in found):.1f}",
        f"{statistics.mean(float(seed['prediction_seconds']) for seed in found):.2f}",
        found[0]["lines"],
        chosen,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--problems", nargs="+", default=[*PROBLEMS], choices=[*PROBLEMS])
    parser.add_argument("--systems", nargs="+", help="names of rows as the table has them; all without")
    parser.add_argument("--checkpoints", type=Path, default=Path("build/peers_networks"))
    parser.add_argument("--limit", type=float, default=600.0, help="seconds that one row may take for one seed")
    parser.add_argument("--save", help="where to write the tables as JSON")
    parser.add_argument("--markdown", action="store_true", help="print the tables as a page has them")
    options = parser.parse_args()
    options.checkpoints.mkdir(parents=True, exist_ok=True)
    torch.optim.Adam([torch.zeros(1)])  # has PyTorch import what the copies of this process would import each
    for problem in options.problems:
        rows = []
        for system, row in describe_rows(problem).items():
            if options.systems and system not in options.systems:
                continue
            found = [
                run_apart(options.checkpoints, problem, system, seed, options.limit)
                for seed in range(row.only_seeds or options.seeds)
            ]
            rows.append(summarise(problem, system, found))
        first, second = PROBLEMS[problem].metrics
        columns = ["system", first, second, "violations", "training s", "prediction s", "lines", "chosen (seeds)"]
        if options.markdown:
            print_markdown(PROBLEMS[problem].title, columns, rows)
        else:
            measure.print_table(PROBLEMS[problem].title, columns, rows)
    measure.save(options.save)


def print_markdown(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table with the best figure of each metric in bold."""
    best = [max((str(row[place]) for row in rows if str(row[place])[0].isdigit()), default="") for place in (1, 2)]
    print(f"\n### {title[0].upper()}{title[1:]}\n")
    print(f"| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 2)}---|")
    for row in rows:
        cells = [str(cell) for cell in row]
        for place in (1, 2):
            if cells[place] == best[place - 1]:
                cells[place] = f"**{cells[place]}**"
        print(f"| {' | '.join(cells)} |")


def checkpoint(folder: Path, problem: str, system: str, seed: int) -> Path:
    """Return the file of a row and seed."""
    return folder / f"{problem}_{system.replace(', ', '_').replace(' ', '_')}_{seed}.json"


def run_apart(folder: Path, problem: str, system: str, seed: int, limit: float) -> dict[str, Any]:
    """Return what a row found, from its checkpoint or by a process of its own, which starts as a copy of this one."""
    path = checkpoint(folder, problem, system, seed)
    if not path.exists():
        print(f"{time.strftime('%H:%M:%S')} {problem}: {system}, seed {seed}", file=sys.stderr, flush=True)
        process = multiprocessing.get_context("fork").Process(target=work, args=(problem, system, seed, path))
        process.start()
        process.join(limit)
        if process.is_alive():
            process.kill()
            process.join()
            return {"reason": f"not done within {limit:.0f} s"}
        if process.exitcode:
            return {"reason": "failed, see above"}
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


if __name__ == "__main__":
    main()
