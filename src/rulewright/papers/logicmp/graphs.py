"""LogicMP's table on graphs: Markov logic over Smoke, Kinship, UW-CSE and Cora, by AUC-PR of the queries.

Options of the network are chosen by observed facts alone: facts of one predicate after the other are hidden and
inferred from the rest (`rulewright.learn.markov.selection`). One choice holds for all parts of a set. The queries'
labels are looked at once, for the figures.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from math import prod
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any

import torch

from rulewright.data import KnowledgeBase
from rulewright.datasets import load, rules_of
from rulewright.errors import DataError, MemoryLimitError, unknown_name
from rulewright.evaluate.classification import ClassificationScores, evaluate_classification
from rulewright.files import read_text, write_text
from rulewright.inject.layer.layer import LogicLayer
from rulewright.inject.layer.plan import Planner
from rulewright.io import read_facts, read_rules
from rulewright.learn.markov.facts import GroundFacts, declare_types
from rulewright.learn.markov.learner import MarkovLogic
from rulewright.learn.markov.selection import choose_for_all
from rulewright.logic import RuleSet
from rulewright.papers.catalogue import Experiment

GROUNDINGS = 3000
"""The groundings that are timed one by one."""

REPEATS = 5

MOST_FLOPS = 10**12
"""The operations of an iteration above which a way is not timed."""

MEMORY = 2**31
"""The bytes that a way may take."""


def iteration_costs(rules: RuleSet, kb: KnowledgeBase, *, seed: int) -> dict[str, Any]:
    """Return seconds an iteration over the whole open world for each way of sending messages."""
    facts = GroundFacts(kb, declare_types(rules, kb))
    world = facts.worlds()[0]
    domains = {type_name: kb.domains[type_name].labels_of(ids).tolist() for type_name, ids in world.items()}
    logits = {
        name: torch.zeros([len(world[type_name]) for type_name in declared.types])
        for name, declared in facts.declared.items()
    }
    evidence = facts.evidence(world)
    seconds: dict[str, Any] = {}
    for name, optimize, share in (
        ("contractions, ordered and shared", True, True),
        ("contractions, ordered", True, False),
        ("contractions", False, False),
    ):
        layer = LogicLayer(facts.rules, domains, 1, memory_limit=MEMORY)
        layer.planner = Planner(layer.grounding, optimize=optimize, share=share)
        try:
            flops = layer.plan().flops
            if flops > MOST_FLOPS:
                raise MemoryLimitError(f"{flops:.1e} operations an iteration would take too long")
            seconds[name] = _seconds(partial(layer, logits, evidence))
        except MemoryLimitError as error:
            seconds[name] = None
            seconds[f"{name}: why not"] = str(error)
    layer = LogicLayer(facts.rules, domains, 1)
    plan = layer.plan()
    clauses = [
        (len(clause.literals), part.count_groundings(plan.sizes))
        for part in layer.grounding.formulas
        for clause in part.clauses
    ]
    groundings = sum(count for _, count in clauses)
    draw = random.Random(seed)
    sizes = draw.choices([size for size, _ in clauses], weights=[count for _, count in clauses], k=GROUNDINGS)
    sample = [[draw.random() for _ in range(size)] for size in sizes]
    for name, message in (
        ("groundings one by one", _one_premise),
        ("groundings one by one, all assignments", _all_assignments),
    ):
        start = perf_counter()
        for probabilities in sample:
            for position in range(len(probabilities)):
                message(probabilities, position)
        seconds[name] = (perf_counter() - start) / GROUNDINGS * groundings
    return {"groundings": groundings, "seconds": seconds}


def _seconds(call: Any) -> float:
    call()  # plans once
    best = float("inf")
    for _ in range(REPEATS):
        start = perf_counter()
        call()
        best = min(best, perf_counter() - start)
    return best


def _one_premise(false: list[float], position: int) -> float:
    """Return a clause's message to one of its atoms: how probable it is that all other literals are false."""
    return prod(probability for other, probability in enumerate(false) if other != position)


def _all_assignments(false: list[float], position: int) -> float:
    """Return the same as the difference of two expectations over all assignments of the other atoms."""
    others = [probability for other, probability in enumerate(false) if other != position]
    totals = []
    for own in (True, False):
        total = 0.0
        for values in product((False, True), repeat=len(others)):
            weight = prod(
                1 - probability if value else probability for probability, value in zip(others, values, strict=True)
            )
            total += weight * (own or any(values))
        totals.append(total)
    return totals[0] - totals[1]


Tell = Callable[[str], None]
Part = tuple[str, KnowledgeBase, RuleSet]
QUERIES = "queries"


def run(experiment: Experiment, *, seed: int, folder: Path, tell: Tell) -> dict[str, Any]:
    """Run an experiment, or go on with it where it was stopped, and return its figures."""
    settings: Any = experiment.settings
    read = _read_parts(settings["set"], settings["parts"])
    parts: list[Part] = [(label, kb.with_splits({}), rules) for label, kb, rules in read]
    gold = {label: kb.split(QUERIES) for label, kb, _ in read}
    for label, kb, rules in parts:
        tell(f"{label}: {kb}, {len(rules)} rules")
    selection = _kept(folder / "selection.json", lambda: _select(parts, settings, tell))
    chosen = selection["chosen"]
    tell(f"chosen: {chosen}")
    rows: dict[str, Any] = {}
    for variant in settings["variants"]:
        options = _options(variant, chosen, settings, seed)
        rows[variant] = _kept(
            folder / f"{variant}_{seed}.json",
            lambda options=options, variant=variant: _figures(  # type: ignore[misc]
                parts, gold, options, folder / f"{variant}_{seed}"
            ),
        )
        tell(f"{variant}: AUC-PR {rows[variant]['auc_pr']:.4f}")
    figures = {
        "experiment": experiment.name,
        "title": experiment.title,
        "seed": seed,
        "columns": ["auc_pr"],
        "rows": rows,
        "selection": selection,
        "options": chosen,
        "paper": settings.get("paper"),
    }
    if settings["iterations_compared"]:
        figures["iterations"] = _iterations(parts, gold, _options("layer", chosen, settings, seed), settings)
    if settings["costs"] is not None and settings["costs"]:
        label, kb, rules = next(part for part in parts if part[0] == settings["costs"])
        figures["costs"] = {"part": label, **iteration_costs(rules, kb, seed=seed)}
    return figures


def _read_parts(name: str, parts: list[str | None]) -> list[Part]:
    """Read the parts of a data set, or those of a folder: the folders in it that have rules, or itself."""
    folder = Path(name)
    if not name:
        raise DataError("which data? rulewright run logicmp --data FOLDER")
    if not folder.is_dir():
        return [(part or name, load(name, part), rules_of(name, part)) for part in parts or [None]]
    folders = [folder] if (folder / "rules").exists() else sorted(path.parent for path in folder.glob("*/rules"))
    read = [(path.name, read_facts(path), read_rules(path)) for path in folders]
    for label, kb, _ in read:
        if QUERIES not in kb.splits:
            raise DataError(f"{folder}: {label} has no queries; an experiment compares answers to them")
    if not read:
        raise DataError(
            f"{folder}: there are no rules here, nor in the folders in it; give predicates, facts, queries and rules"
        )
    return read


def _kept(path: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return what a run has saved, or make and save it."""
    if path.exists():
        saved: dict[str, Any] = json.loads(read_text(path))
        return saved
    path.parent.mkdir(parents=True, exist_ok=True)
    made = make()
    write_text(path, json.dumps(made, indent=1))
    return made


def _select(parts: list[Part], settings: Mapping[str, Any], tell: Tell) -> dict[str, Any]:
    """Compare all candidates on all parts. The seed of the choice is always 0."""
    cases = {label: (rules, kb) for label, kb, rules in parts}
    choice = choose_for_all(cases, settings["candidates"] or None, seconds=None)
    tell(str(choice))
    scores = [
        {"candidate": dict(tried.options), "score": tried.score, "by_predicate": dict(tried.by_predicate)}
        for tried in choice.scores
    ]
    reasons = {"reason": choice.reason, "note": choice.note, "seconds": choice.seconds}
    return {"chosen": dict(choice.options), **reasons, "scores": scores}


def _options(variant: str, chosen: Mapping[str, Any], settings: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Return the options of a row.

    They are the encoder alone, the layer alone, an encoder that is distilled from the layer, the layer's messages on
    sampled groundings with an encoder and with a table of atoms, and the same with as few groundings as ExpressGNN was
    trained on. Of sampled training nothing is chosen: world and prior are open as it was published, and what differs
    stands in the settings.
    """
    encoder = settings["encoder"]
    distilled = {**chosen, **encoder["facts"], "encoder": "gnn", "training": "distill", "seed": seed}
    sampled = {**encoder["sampled"], "encoder": "embedding", "training": "sampled", "seed": seed}
    known: dict[str, dict[str, Any]] = {
        "encoder": {**distilled, "iterations": 0, "rules": False},
        "encoder_distilled": distilled,
        "encoder_scores": {**sampled, **encoder["scores"]},
        "encoder_layer": sampled,
        "table_layer": {**sampled, "encoder": "none"},
        "layer": {**chosen, "seed": seed},
    }
    if variant not in known:
        raise unknown_name("variant", variant, known)
    return known[variant]


def score(
    rules: RuleSet, kb: KnowledgeBase, queries: KnowledgeBase, options: Mapping[str, Any]
) -> ClassificationScores:
    """Fit, infer the queries and compare."""
    return _scored(rules, kb, queries, options)[0]


def _scored(
    rules: RuleSet, kb: KnowledgeBase, queries: KnowledgeBase, options: Mapping[str, Any], folder: Path | None = None
) -> tuple[ClassificationScores, MarkovLogic]:
    given = {name: value for name, value in options.items() if name != "rules"}
    statements = rules if options.get("rules", True) else RuleSet([], predicates=rules.predicates)
    model = MarkovLogic(statements, **given).fit(kb, folder if "training" in given else None)
    answers = model.predict(queries)
    atoms = {(answer.predicate, tuple(map(str, answer.args))): answer.logit for answer in answers}
    return evaluate_classification(atoms, queries), model


def _figures(
    parts: list[Part], gold: Mapping[str, KnowledgeBase], options: Mapping[str, Any], folder: Path
) -> dict[str, Any]:
    by_part: dict[str, Any] = {}
    for label, kb, rules in parts:
        start = perf_counter()
        scores, model = _scored(rules, kb, gold[label], options, folder / label)
        settled = [str(row) for row in model.convergence_]
        by_part[label] = {**scores.as_dict(), "seconds": perf_counter() - start, "convergence": settled}
        if "encoder" in model.losses_:
            by_part[label]["losses"] = model.losses_["encoder"]
    return {"auc_pr": mean(row["auc_pr"] for row in by_part.values()), "parts": by_part, "options": dict(options)}


def _iterations(
    parts: list[Part], gold: Mapping[str, KnowledgeBase], options: Mapping[str, Any], settings: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return AUC-PR by the number of iterations, with the damping of the options and without."""
    rows = []
    for damping in dict.fromkeys((options["damping"], 0.0)):
        for count in settings["iterations_compared"]:
            changed = {**options, "iterations": count, "damping": damping}
            figures = {label: score(rules, kb, gold[label], changed).auc_pr for label, kb, rules in parts}
            rows.append({"iterations": count, "damping": damping, "auc_pr": mean(figures.values()), "parts": figures})
    return rows
