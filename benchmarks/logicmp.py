"""The logic layer beside its limit and other ways: python benchmarks/logicmp.py.

To reach, for transitivity at N = 256 and 512: forward (5 iterations) at most 1.3× the 15 bare matrix products it needs,
forward and backward at most 1.8× 45 of them, and forward at least 3× faster than the paper's Algorithm 2 written
plainly. PSL beside it is in ``benchmarks/logicmp_psl.py``.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import warnings
from math import prod
from pathlib import Path

import torch
from measure import held_at_most, in_turns, machine, peak_memory, print_table, save
from torch import Tensor

import rulewright as rw
from rulewright.errors import MemoryLimitError
from rulewright.inject import LogicLayer
from rulewright.inject.inputs import read_inputs
from rulewright.inject.layer.plan import Planner

DATA = Path(os.environ.get("RULEWRIGHT_DATA", "../shared/data"))
TRANSITIVITY = rw.parse_rules("1.0 same(A, B) & same(B, C) => same(A, C).")
ITERATIONS = 5


def products(count: int, size: int) -> Tensor:
    one, other = torch.rand(size, size), torch.rand(size, size)
    product = one
    for _ in range(count):
        product = one @ other
    return product


def algorithm_2(logits: Tensor, iterations: int = ITERATIONS) -> Tensor:
    """The paper's Algorithm 2 with its misprint mended: two channels, one einsum for each implication."""
    given = torch.stack([torch.zeros_like(logits), logits], -1)
    current = given
    for _ in range(iterations):
        marginals = torch.softmax(current, -1)
        false, true = marginals[..., 0], marginals[..., 1]
        to_ac = torch.einsum("ab,bc->ac", true, true)
        to_bc = torch.einsum("ab,ac->bc", true, false)
        to_ab = torch.einsum("bc,ac->ab", true, false)
        current = given + torch.stack([to_ab + to_bc, to_ac], -1)
    return current[..., 1] - current[..., 0]


def grounding_loop(logits: Tensor) -> list[list[float]]:
    """One iteration, grounding by grounding."""
    true = torch.sigmoid(logits).tolist()
    messages = logits.tolist()
    n = len(true)
    for a, b, c in itertools.product(range(n), repeat=3):
        if a != b and b != c:
            messages[a][c] += true[a][b] * true[b][c]
            messages[a][b] -= true[b][c] * (1 - true[a][c])
            messages[b][c] -= true[a][b] * (1 - true[a][c])
    return messages


def transitivity(runs: int) -> None:
    layer = LogicLayer(TRANSITIVITY, iterations=ITERATIONS)
    rows = []
    for size in (256, 512):
        logits = torch.randn(size, size)
        leaf = logits.clone().requires_grad_()

        @torch.no_grad()
        def forward(logits: Tensor = logits) -> object:
            return layer({"same": logits})

        def both(leaf: Tensor = leaf) -> None:
            leaf.grad = None
            layer({"same": leaf})["same"].sum().backward()

        def plain(logits: Tensor = logits) -> Tensor:
            with torch.no_grad():
                return algorithm_2(logits)

        bare, ours, theirs, bare_both, ours_both = in_turns(
            runs,
            lambda size=size: products(3 * ITERATIONS, size),
            forward,
            plain,
            lambda size=size: products(9 * ITERATIONS, size),
            both,
        )
        rows += [
            (f"N = {size}, forward", bare * 1e3, ours * 1e3, ours / bare, "at most 1.3"),
            (
                f"N = {size}, forward and backward",
                bare_both * 1e3,
                ours_both * 1e3,
                ours_both / bare_both,
                "at most 1.8",
            ),
            (f"N = {size}, Algorithm 2 plainly", theirs * 1e3, ours * 1e3, theirs / ours, "at least 3 (faster)"),
        ]
    print_table("Transitivity, 5 iterations (ms)", ("", "baseline", "layer", "ratio", "to reach"), rows)


def loop_over_groundings(runs: int) -> None:
    layer = LogicLayer(TRANSITIVITY, iterations=1)
    rows = []
    for size in (16, 32, 64):
        logits = torch.randn(size, size)
        with torch.no_grad():
            slow, fast = in_turns(runs, lambda x=logits: grounding_loop(x), lambda x=logits: layer({"same": x}))
        rows.append((f"N = {size}, {size**3:,} groundings", slow * 1e3, fast * 1e3, slow / fast))
    print_table("One iteration grounding by grounding (ms)", ("", "Python loop", "layer", "times faster"), rows)


def growth(runs: int) -> None:
    rows = []
    long = rw.parse_rules("1.0 p(A, B) & p(B, C) & p(C, D) => p(A, D).")
    for size in (64, 128, 256, 512, 1024):
        logits = torch.randn(size, size)
        row: list[object] = [f"N = {size}"]
        for rules, name in ((TRANSITIVITY, "same"), (long, "p")):
            layer = LogicLayer(rules, iterations=1)
            with torch.no_grad():
                (seconds,) = in_turns(runs, lambda layer=layer, name=name, x=logits: layer({name: x}))
            plan = layer.plan({"entity": size})
            row += [seconds * 1e3, plan.flops / 1e9, plan.memory() / 2**20]
        rows.append(row)
    columns = ("", "2 steps, ms", "GFLOP", "MB", "3 steps, ms", "GFLOP", "MB")
    print_table("One iteration as the domain grows (chains of two and three steps)", columns, rows)
    print(f"peak memory of the process {peak_memory():.0f} MB")


def hard_formulas(runs: int) -> None:
    """Hard formulas on noisy labels: the plain update, the schedule, more iterations of it, and exact inference."""
    rows = []
    for title, (rules, logits, evidence, truth) in {
        "BIO tags, 12 tokens": _noisy_tags(200, 12),
        "BIO tags, 100 tokens": _noisy_tags(32, 100),
        "hierarchy, 40 labels": _noisy_hierarchy(150, 40),
        "one of 6": _noisy_choice(200, 6),
        "equivalence of 8": _noisy_equivalence(100, 8),
    }.items():
        for name, options in (
            ("given", None),
            ("plain, the last iterate", {"damping": 0.0}),
            ("plain, the best iterate", {"damping": 0.0}),
            ("default", {}),
            ("20 iterations", {"iterations": 20}),
            ("exact", {"inference": "exact"}),
        ):
            output, seconds = logits, 0.0
            if options is not None:
                layer = LogicLayer(rules, **options)
                layer.has_warned = True  # what stays broken is in the table
                if name == "plain, the last iterate":
                    layer.grounding.hard = frozenset()  # weighs the same, and nothing is chosen
                try:
                    with torch.no_grad():
                        (seconds,) = in_turns(runs, lambda layer=layer, x=logits, e=evidence: layer(x, e))
                        output = layer(logits, evidence)
                except MemoryLimitError:
                    rows.append((f"{title}, {name}", "refused", "", ""))
                    continue
            rows.append((f"{title}, {name}", *_judge(rules, output, evidence, truth), seconds * 1e3))
    columns = ("", "broken a row", "accuracy", "ms")
    print_table("Hard formulas on noisy labels (5 iterations unless said)", columns, rows)


def _judge(
    rules: rw.RuleSet, logits: dict[str, Tensor], evidence: dict[str, Tensor], truth: dict[str, Tensor]
) -> tuple[float, float]:
    """Return how many groundings the labels break in a row, and how many labels are right."""
    judge = LogicLayer(rules, iterations=1)
    judge.has_warned = True
    judge(logits, evidence)
    assert judge.convergence is not None and judge.convergence.broken is not None
    right = []
    for name, expected in truth.items():
        found = logits[name] > 0 if expected.dtype == torch.bool else logits[name].argmax(-1)
        right.append((found == expected).flatten().float())
    rows = len(next(iter(logits.values())))
    return judge.convergence.broken[0] / rows, float(torch.cat(right).mean())


Problem = tuple[rw.RuleSet, dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]


def _noisy_tags(rows: int, length: int) -> Problem:
    types = ("per", "org", "loc", "misc")
    tags = ["o", *(f"{prefix}_{name}" for name in types for prefix in "bi")]
    lines = [f"predicate label(token) in {{{', '.join(tags)}}}. closed next. closed first."]
    for name in types:
        lines.append(f"hard next(T, U) & label(U) in {{i_{name}}} => label(T) in {{b_{name}, i_{name}}}.")
        lines.append(f"hard first(T) => !(label(T) in {{i_{name}}}).")
    truth = torch.zeros(rows, length, dtype=torch.long)
    for row in range(rows):
        position = 0
        while position < length:
            size = int(torch.randint(1, 4, ()))
            if torch.rand(()) < 0.4:
                kind = 1 + 2 * int(torch.randint(len(types), ()))
                truth[row, position : position + size] = kind + 1
                truth[row, position] = kind
            position += size
    logits = 2 * torch.nn.functional.one_hot(truth, len(tags)).float() + 1.4 * torch.randn(rows, length, len(tags))
    following = torch.zeros(length, length, dtype=torch.bool)
    following[range(length - 1), range(1, length)] = True
    evidence = {"next": following, "first": torch.arange(length) == 0}
    return rw.parse_rules("\n".join(lines)), {"label": logits}, evidence, {"label": truth}


def _noisy_hierarchy(rows: int, size: int) -> Problem:
    parents = [0, *((label - 1) // 3 for label in range(1, size))]
    lines = [f"hard l{label}(X) => l{parents[label]}(X)." for label in range(1, size)]
    for one, other in itertools.combinations(range(1, size), 2):
        if parents[one] == parents[other]:
            lines.append(f"hard !(l{one}(X) & l{other}(X)).")
    truth = torch.zeros(rows, size, dtype=torch.bool)
    for row in range(rows):
        label = int(torch.randint(size, ()))
        truth[row, 0] = True
        while label:
            truth[row, label] = True
            label = parents[label]
    return rw.parse_rules("\n".join(lines)), *_by_name("l", truth, 2.0)


def _noisy_choice(rows: int, size: int) -> Problem:
    lines = [f"hard !(c{one}(X) & c{other}(X))." for one, other in itertools.combinations(range(size), 2)]
    lines.append(f"hard {' | '.join(f'c{label}(X)' for label in range(size))}.")
    truth = torch.nn.functional.one_hot(torch.randint(size, (rows,)), size).bool()
    return rw.parse_rules("\n".join(lines)), *_by_name("c", truth, 2.0)


def _noisy_equivalence(rows: int, size: int) -> Problem:
    rules = "hard same(A, B) & same(B, C) => same(A, C). hard same(A, B) => same(B, A). hard same(A, A)."
    groups = torch.randint(3, (rows, size))
    truth = groups[:, :, None] == groups[:, None, :]
    logits = 2.8 * truth - 1.4 + 1.5 * torch.randn(rows, size, size)
    return rw.parse_rules(rules), {"same": logits}, {}, {"same": truth}


def _by_name(
    prefix: str, truth: Tensor, noise: float
) -> tuple[dict[str, Tensor], dict[str, Tensor], dict[str, Tensor]]:
    logits = 4.0 * truth - 2 + noise * torch.randn(truth.shape)
    names = [f"{prefix}{label}" for label in range(truth.shape[1])]
    by_name = [{name: tensor[:, [label]] for label, name in enumerate(names)} for tensor in (logits, truth)]
    return by_name[0], {}, by_name[1]


def real_rules(runs: int) -> None:
    """Order and sharing on rules that people wrote."""
    rows = []
    for name, part in (("kinship_mln", "S1"), ("uw_cse", "ai"), ("cora", "S1")):
        kb, rules = rw.datasets.load(name, part), rw.datasets.rules_of(name, part)
        for title, options in (
            ("order and sharing", {}),
            ("order only", {"share": False}),
            ("sharing only", {"optimize": False}),
            ("neither", {"optimize": False, "share": False}),
        ):
            layer, logits = _layer_for(rules, kb, **options)
            plan = layer.plan({type_name: len(kb.domains[type_name]) for type_name in layer.grounding.types})
            try:
                with torch.no_grad():
                    (seconds,) = in_turns(runs, lambda layer=layer, logits=logits: layer(logits))
                shown: object = seconds * 1e3
            except MemoryLimitError:
                shown = "refused"
            rows.append(
                (f"{name} {part}, {title}", f"{plan.groundings:.1e}", plan.flops / 1e9, plan.memory() / 2**20, shown)
            )
    print_table("One iteration, all atoms open", ("", "groundings", "GFLOP", "MB", "ms"), rows)


def stated_memory() -> None:
    """What a plan states beside what a call holds, by all that torch allocates and frees; to be within 25 %."""
    chance = random.Random(0)
    fifty = [[f"p{chance.randrange(10)}" for _ in range(3)] for _ in range(50)]
    rows = []
    for title, text, size, batch in (
        ("50 rules", " ".join(f"0.5 {a}(A, B) & {b}(B, C) => {c}(A, C)." for a, b, c in fifty), 1000, ()),
        ("50 rules, masks", " ".join(f"0.5 {a}(A, B) & {b}(B, C) => {c}(A, C)." for a, b, c in fifty), 200, (8,)),
        ("transitivity", "0.5 p(A, B) & p(B, C) => p(A, C).", 1000, ()),
        ("hard transitivity, masks", "hard p(A, B) & p(B, C) => p(A, C).", 400, (4,)),
        ("learned, three steps", "learn p(A, B) & p(B, C) & p(C, D) => p(A, D).", 500, ()),
    ):
        layer = LogicLayer(text, iterations=2)
        logits = {name: torch.randn(*batch, size, size) for name in layer.grounding.used}
        mask = {"entity": torch.rand(*batch, size) < 0.9} if batch else None
        plan = layer.planner.plan(read_inputs(layer.grounding, logits, None, mask).shape)
        for training in (False, True):
            leaves = {name: tensor.clone().requires_grad_(training) for name, tensor in logits.items()}
            with warnings.catch_warnings(action="ignore"), torch.set_grad_enabled(training):
                held = held_at_most(lambda layer=layer, x=leaves, m=mask: _call(layer, x, m))
            stated = plan.memory(
                batch=prod(batch),
                iterations=2,
                training=training,
                learns_weights=layer.weights.learned is not None,
            )
            name = f"{title}, n = {size}, {'training' if training else 'inference'}"
            rows.append((name, stated / 2**20, held / 2**20, stated / held))
    print_table("Memory of a call, 2 iterations (MB)", ("", "stated", "measured", "ratio"), rows)


def _call(layer: LogicLayer, logits: dict[str, Tensor], mask: dict[str, Tensor] | None) -> None:
    total = sum(tensor.sum() for tensor in layer(logits, mask=mask).values())
    if total.requires_grad:
        total.backward()


def _layer_for(rules: rw.RuleSet, kb: rw.KnowledgeBase, **options: bool) -> tuple[LogicLayer, dict[str, Tensor]]:
    declared = rw.RuleSet(rules.statements, predicates=kb.predicates.values())
    types = {type_name for declaration in kb.predicates.values() for type_name in declaration.types}
    domains = {type_name: [str(label) for label in kb.domains[type_name].labels] for type_name in types}
    layer = LogicLayer(declared, domains, iterations=1, memory_limit=4 * 2**30)
    layer.planner = Planner(layer.grounding, **options)
    logits = {
        name: torch.zeros([len(domains[type_name]) for type_name in kb.predicates[name].types])
        for name in layer.grounding.used
    }
    return layer, logits


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--save")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(machine(), f"{options.threads} threads")
    transitivity(options.runs)
    loop_over_groundings(min(3, options.runs))
    growth(min(5, options.runs))
    hard_formulas(min(5, options.runs))
    stated_memory()
    if DATA.exists():
        real_rules(min(2, options.runs))
    else:
        print(f"\nno data in {DATA}: rules of kinship, uw_cse and cora left out")
    save(options.save)
