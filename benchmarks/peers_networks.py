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
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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

LOSS_WEIGHTS = (0.1, 1.0, 10.0)
STRENGTHS = ("hard", "learn", "0.3", "2")
STRENGTHS_OF_SUMS = ("hard", "10")  # a hundred formulas for a pair: what weighs less says next to nothing


@dataclass(frozen=True)
class Row:
    """A system on a problem: the part that its user writes, how it is used, and the settings to choose from.

    A ``loss`` is added to the loss of the task, an ``objective`` replaces it, a ``layer`` stands behind the network,
    a ``decoder`` gives labels at the end. ``reason`` says why there is no such part.
    """

    use: Literal["alone", "loss", "objective", "layer", "decoder", "none"]
    make: Callable[..., Any] | None = None
    settings: Sequence[object] = (None,)
    package: str = "torch"
    helpers: tuple[Callable[..., Any], ...] = ()
    reason: str = ""


def describe_rows(problem: str) -> dict[str, Row]:
    """Return every system's row for a problem."""
    rules = (getattr(ours, f"{problem}_rules"),)
    is_digits = problem == "digits"
    loss_use: Literal["loss", "objective"] = "objective" if is_digits else "loss"
    weights = (None,) if is_digits else LOSS_WEIGHTS
    loss, layer = getattr(ours, f"loss_{problem}"), getattr(ours, f"layer_{problem}")
    rows = {"network alone": Row("alone")}
    for form in ("hinge", "violation", "log"):
        rows[f"ConsistencyLoss, {form}"] = Row(loss_use, partial(loss, form), weights, helpers=rules)
    for inference in ("mean-field", "exact"):
        rows[f"LogicLayer, {inference}"] = Row(
            "objective" if is_digits else "layer",
            partial(layer, inference),
            [
                (iterations, strength)
                for iterations in ((1, 5) if inference == "mean-field" else (1,))
                for strength in (STRENGTHS_OF_SUMS if is_digits else STRENGTHS)
            ],
            helpers=rules,
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
        rows["DeepProbLog"] = Row("objective", others.deepproblog_digits, package="deepproblog")
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
    torch.set_num_threads(1)
    training, validation, test = problem.make_splits(seed)
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
                "setting": setting,
                "metric": first,
                "second": second,
                "violations": problem.count_violations(labels, test),
                "training_seconds": trained,
                "prediction_seconds": predicted,
            }
    return best


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
    if reasons:
        return [system, "–", "–", "–", "–", "–", "–", reasons[0]]

    def spread(key: str) -> str:
        values = [float(seed[key]) for seed in found]
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        return f"{statistics.mean(values):.3f} ± {deviation:.3f}"

    settings = [str(seed["setting"]) for seed in found if seed["setting"] is not None]
    chosen = statistics.mode(settings) if settings else None
    return [
        system,
        spread("metric"),
        spread("second"),
        f"{statistics.mean(float(seed['violations']) for seed in found):.2f}",
        f"{statistics.mean(float(seed['training_seconds']) for seed in found):.1f}",
        f"{statistics.mean(float(seed['prediction_seconds']) for seed in found):.2f}",
        found[0]["lines"],
        "" if chosen is None else f"most often chosen: {chosen}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--problems", nargs="+", default=[*PROBLEMS], choices=[*PROBLEMS])
    parser.add_argument("--systems", nargs="+", help="names of rows as the table has them; all without")
    parser.add_argument("--checkpoints", type=Path, default=Path("build/peers_networks"))
    parser.add_argument("--limit", type=float, default=300.0, help="seconds that one row may take for one seed")
    parser.add_argument("--save", help="where to write the tables as JSON")
    parser.add_argument("--row", nargs=3, metavar=("PROBLEM", "SYSTEM", "SEED"), help="run this one only")
    options = parser.parse_args()
    options.checkpoints.mkdir(parents=True, exist_ok=True)
    if options.row:
        problem, system, seed = options.row
        work(problem, system, int(seed), checkpoint(options.checkpoints, problem, system, int(seed)))
        return
    for problem in options.problems:
        rows = []
        for system in describe_rows(problem):
            if options.systems and system not in options.systems:
                continue
            found = [
                run_apart(options.checkpoints, problem, system, seed, options.limit) for seed in range(options.seeds)
            ]
            rows.append(summarise(problem, system, found))
        first, second = PROBLEMS[problem].metrics
        columns = ["system", first, second, "violations", "training s", "prediction s", "lines", "note"]
        measure.print_table(PROBLEMS[problem].title, columns, rows)
    measure.save(options.save)


def checkpoint(folder: Path, problem: str, system: str, seed: int) -> Path:
    """Return the file of a row and seed."""
    return folder / f"{problem}_{system.replace(', ', '_').replace(' ', '_')}_{seed}.json"


def run_apart(folder: Path, problem: str, system: str, seed: int, limit: float) -> dict[str, Any]:
    """Return what a row found, from its checkpoint or by a process of its own."""
    path = checkpoint(folder, problem, system, seed)
    if not path.exists():
        print(f"{time.strftime('%H:%M:%S')} {problem}: {system}, seed {seed}", file=sys.stderr, flush=True)
        command = [sys.executable, __file__, "--checkpoints", str(folder), "--row", problem, system, str(seed)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)
        except subprocess.TimeoutExpired:
            path.write_text(json.dumps({"reason": f"not done within {limit:.0f} s"}) + "\n", encoding="utf-8")
        else:
            if done.returncode or not path.exists():
                last = (done.stderr.strip().splitlines() or ["no message"])[-1]
                return {"reason": f"failed: {last[:200]}"}
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


if __name__ == "__main__":
    main()
