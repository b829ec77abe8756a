"""Learners on graphs with planted rules: python benchmarks/planted.py [--seeds N] [--save FILE] [--quick].

Every learner gets the same graph (``rulewright.data.generators.planted``: a tenth of the target's facts hidden, as many
wrong ones put in, no negatives given), the same limit of CPU time and one setting for all shapes. Its rules are applied
to the graph it learned from, and the score from which on facts are taken is the one with the best F1 there; rules below
it count nowhere. Then two things are measured:

- rules: how many of the rules that are left are planted ones, up to renaming (P), and how many planted ones are among
  them (R);
- facts: precision and recall of the target on another graph with the same planted rules, without any noise.

A row for each shape, learner and seed is kept in ``--checkpoints``: the same command goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, get_args

# ruff: noqa: E402 (the clock comes first)
time.monotonic = time.process_time  # before learners are imported: their limits count the CPU time of a process

import measure
import numpy as np

from rulewright import KnowledgeBase, LNNLearner, NLILLearner, RuleMiner, RuleSet, apply
from rulewright.data.generators import planted
from rulewright.data.generators.planted import TARGET, Degrees, Shape
from rulewright.errors import RulewrightError
from rulewright.learn.base import Learner
from rulewright.learn.lnn import ready
from rulewright.logic import Atom, Not, Rule

UNARY_TEMPLATE = f"""
template {TARGET}(X) :- ?A(X), ?B(X) ; ?C(X), !?D(X) ; ?P(X, Y), ?E(Y) ; ?Q(Y, X), ?F(Y)
where ?A in MARKS, ?B in MARKS, ?C in MARKS, ?D in MARKS, ?E in MARKS, ?F in MARKS, ?P in *, ?Q in *.
"""
"""What a person would write who knows nothing of the rule: two marks, one without the other, a step to a mark."""


@dataclass(frozen=True)
class Size:
    """How large graphs are."""

    entities: int
    relations: int
    groundings: int


MANY = 1000
"""Rounds of drawing that only the limit ends."""

FULL, QUICK = Size(1000, 12, 60), Size(120, 6, 15)


def make_miner(kb: KnowledgeBase, seed: int, limit: float) -> Learner:
    """Return the miner: chains of up to four steps, properties, refined chains."""
    return RuleMiner(targets=[TARGET], max_length=4, min_confidence=0.1, prune=True, time_limit=limit)


def make_lnn(kb: KnowledgeBase, seed: int, limit: float) -> Learner:
    """Return LNN with the ready template of chains, walked both ways, or for one entity with that above."""
    if len(kb.predicate(TARGET).types) == 1:
        marks = ", ".join(name for name in kb.predicates if name.startswith("mark"))
        template: RuleSet | str = UNARY_TEMPLATE.replace("MARKS", f"{{{marks}}}")
    else:
        names = [name for name in kb.predicates if name.startswith("relation")]
        template = ready.chains(2, target=TARGET, predicates=names, inverses=True)
    return LNNLearner(template, seed=seed, time_limit=limit)


def make_nlil(kb: KnowledgeBase, seed: int, limit: float, *, epochs: int = 4, rounds: int = 6) -> Learner:
    """Return NLIL with paths of two steps, combined, and complements."""
    return NLILLearner(
        targets=[TARGET], negation=True, min_precision=0.1, epochs=epochs, rounds=rounds, seed=seed, time_limit=limit
    )


LEARNERS: Mapping[str, Callable[[KnowledgeBase, int, float], Learner]] = {
    "RuleMiner": make_miner,
    "LNNLearner": make_lnn,
    "NLIL untrained": partial(make_nlil, epochs=0, rounds=MANY),
    "NLIL trained": partial(make_nlil, rounds=20),
    "NLIL untrained, as many draws": partial(make_nlil, epochs=0),
    "NLIL trained, as many draws": make_nlil,
}


def without_target(kb: KnowledgeBase) -> KnowledgeBase:
    """Return the facts but for the target's."""
    columns = {name: kb.columns(name) for name in kb.predicates if name != TARGET}
    return KnowledgeBase.from_columns(kb.domains, kb.predicates.values(), columns)


def derive(rules: RuleSet, kb: KnowledgeBase) -> dict[tuple[object, ...], float]:
    """Return the target's facts that rules give and their scores."""
    known = without_target(kb)
    return {fact.args: fact.score for fact in apply(rules, known, max_rounds=None) if fact.predicate == TARGET}


def choose_threshold(scores: Mapping[tuple[object, ...], float], true: set[tuple[object, ...]]) -> float:
    """Return the score from which on facts have the best F1 = 2 · right / (given + true).

    >>> choose_threshold({("a",): 0.9, ("b",): 0.8, ("c",): 0.8, ("d",): 0.1}, {("a",), ("b",)})
    0.8
    """
    ordered = sorted(scores, key=lambda args: -scores[args])
    best, threshold = 0.0, math.inf
    right = 0
    for position, args in enumerate(ordered):
        right += args in true
        is_last = position + 1 == len(ordered) or scores[ordered[position + 1]] < scores[args]
        f1 = 2 * right / (position + 1 + len(true))
        if is_last and f1 > best:
            best, threshold = f1, scores[args]
    return threshold


def keep_from(rules: RuleSet, threshold: float) -> RuleSet:
    """Return the target's rules with a confidence from a threshold on, and what others define."""
    return RuleSet([rule for rule in rules.rules if str(rule.head.predicate) != TARGET or rule.confidence >= threshold])


def write_forms(rules: RuleSet) -> set[str]:
    """Return the target's rules up to renaming of variables and of the predicates that they define.

    >>> from rulewright.logic import parse_rules
    >>> one = parse_rules("has(X) :- p(X, Y). target(X) :- a(X), !has(X).")
    >>> other = parse_rules("target(Z) :- !no(Z), a(Z). no(V) :- p(V, W).")
    >>> write_forms(one) == write_forms(other)
    True
    """
    defined: dict[str, list[str]] = {}
    for rule in rules.rules:
        name = str(rule.head.predicate)
        if name != TARGET:
            renamed = Rule(Atom("defined", rule.head.args), rule.body)
            defined[name] = sorted([*defined.get(name, []), str(renamed.canonical())])

    def rename(atom: Atom) -> Atom:
        return Atom(" ".join(defined.get(str(atom.predicate), [str(atom.predicate)])), atom.args)

    forms = set()
    for rule in rules.rules:
        if str(rule.head.predicate) != TARGET:
            continue
        for literals in rule.alternatives():
            units = [rename(literal.unit) if isinstance(literal.unit, Atom) else literal.unit for literal in literals]
            body = [unit if literal.positive else Not(unit) for unit, literal in zip(units, literals, strict=True)]
            forms.add(str(Rule(rule.head, tuple(body)).canonical()))
    return forms


def share(part: int, whole: int) -> float:
    """Return a share, 0 of nothing."""
    return part / whole if whole else 0.0


def measure_learner(
    shape: Shape, degrees: Degrees, learner_name: str, seed: int, size: Size, limit: float
) -> dict[str, Any]:
    """Learn from one graph and measure on another."""
    options = {"entities": size.entities, "relations": size.relations, "groundings": size.groundings}
    generated = planted(shape, degrees=degrees, seed=seed, **options)  # type: ignore[arg-type]
    fresh = planted(shape, degrees=degrees, seed=seed, graph=1, missing=0, noise=0, **options)  # type: ignore[arg-type]
    start = time.process_time()
    learner = LEARNERS[learner_name](generated.kb, seed, limit).fit(generated.kb)
    seconds = time.process_time() - start
    on_training = derive(learner.rules_, generated.kb)
    threshold = choose_threshold(on_training, set(generated.kb.tuples(TARGET)))
    kept = keep_from(learner.rules_, threshold)
    given = set(derive(kept, fresh.kb)) if kept.rules else set()
    true = set(fresh.kb.tuples(TARGET))
    found, sought = write_forms(kept), write_forms(generated.rules)
    return {
        "rule_precision": share(len(found & sought), len(found)),
        "rule_recall": share(len(found & sought), len(sought)),
        "fact_precision": share(len(given & true), len(given)),
        "fact_recall": share(len(given & true), len(true)),
        "f1": share(2 * len(given & true), len(given) + len(true)),
        "seconds": seconds,
        "learned": len(learner.rules_.rules),
        "kept": len(found),
        "threshold": threshold if math.isfinite(threshold) else None,
        "rules": sorted(found)[:20],
        "planted": sorted(sought),
        "note": learner.note_,
    }


def work(path: Path, arguments: Sequence[Any]) -> None:
    """Measure one learner on one graph and write what was found."""
    import torch

    torch.set_num_threads(1)
    try:
        row = measure_learner(*arguments)
    except RulewrightError as error:
        row = {"reason": f"refused: {error}"}
    path.write_text(json.dumps(row, indent=1) + "\n", encoding="utf-8")


def run_apart(path: Path, arguments: Sequence[Any], patience: float) -> dict[str, Any]:
    """Return a row, from its checkpoint or by a process of its own, which starts as a copy of this one."""
    if not path.exists():
        print(f"{time.strftime('%H:%M:%S')} {path.stem}", file=sys.stderr, flush=True)
        process = multiprocessing.get_context("fork").Process(target=work, args=(path, arguments))
        process.start()
        process.join(patience)
        if process.is_alive():
            process.kill()
            process.join()
            path.write_text(json.dumps({"reason": f"not done within {patience:.0f} s of the clock"}) + "\n")
        elif process.exitcode:
            return {"reason": "failed, see above"}
    loaded: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return loaded


MEASURED = ("rule_precision", "rule_recall", "fact_precision", "fact_recall", "f1", "seconds")


def summarise(learner_name: str, found: Iterable[Mapping[str, Any]]) -> list[object]:
    """Return a row of a table: mean ± standard error over the seeds."""
    rows = [row for row in found if "reason" not in row]
    reasons = [row["reason"] for row in found if "reason" in row]
    if not rows:
        return [learner_name, *["–"] * len(MEASURED), reasons[0] if reasons else ""]
    cells = []
    for name in MEASURED:
        values = [float(row[name]) for row in rows]
        error = statistics.stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0
        cells.append(f"{np.mean(values):.1f}" if name == "seconds" else f"{np.mean(values):.2f} ± {error:.2f}")
    return [
        learner_name,
        *cells,
        f"{len(reasons)} of {len(rows) + len(reasons)} seeds: {reasons[0]}" if reasons else "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--shapes", nargs="+", default=[*get_args(Shape)], choices=[*get_args(Shape)])
    parser.add_argument("--learners", nargs="+", default=[*LEARNERS], choices=[*LEARNERS])
    parser.add_argument("--degrees", default="uniform", choices=[*get_args(Degrees)])
    parser.add_argument("--limit", type=float, default=10.0, help="seconds of CPU time that one run may learn for")
    parser.add_argument("--checkpoints", type=Path, default=Path("build/planted"))
    parser.add_argument("--save", help="where to write the tables as JSON")
    parser.add_argument("--quick", action="store_true", help="small graphs, to see that everything runs")
    parser.add_argument("--markdown", action="store_true", help="print the tables as a page has them")
    options = parser.parse_args()
    options.checkpoints.mkdir(parents=True, exist_ok=True)
    size = QUICK if options.quick else FULL
    rows: list[list[object]] = []
    for shape in options.shapes:
        for learner_name in options.learners:
            found = []
            for seed in range(options.seeds):
                name = learner_name.replace(",", "").replace(" ", "_")
                path = options.checkpoints / f"{shape}_{options.degrees}_{name}_{seed}.json"
                arguments = (shape, options.degrees, learner_name, seed, size, options.limit)
                found.append(run_apart(path, arguments, 20 * options.limit + 60))
            rows.append([shape, *summarise(learner_name, found)])
    columns = ["shape", "learner", "rules P", "rules R", "facts P", "facts R", "facts F1", "CPU s", "remarks"]
    if options.markdown:
        print_markdown(columns, rows)
    else:
        measure.print_table(f"planted rules, {options.degrees} degrees, {options.seeds} seeds", columns, rows)
    measure.save(options.save)


def print_markdown(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Print a table as a page has it."""
    print(f"| {' | '.join(columns)} |\n|---|---|{'---:|' * (len(columns) - 3)}---|")
    for row in rows:
        print(f"| {' | '.join(map(str, row))} |")


if __name__ == "__main__":
    main()
