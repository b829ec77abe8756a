"""What every use of rules adds to a calibrated network that misses three of ten facts, on made families.

A fact leaves a trace in the features of its pair with a chance of .7, and every pair has noise. One network sees the
features of a pair alone, so that three of ten facts are hidden from it whatever it learns; another sees them both ways
round and has so few labelled documents that it does not learn what that is good for, which a loss may teach it. They
are calibrated, and rules are measured on them, on other documents. Some rules are useless, one is wrong. Whatever a use
has to choose (weights, iterations, how much a loss counts) is chosen there too, and rules are only used where they are
better by more than a standard error. The table has F1 on documents that nothing was chosen on, and the difference to
the calibrated network alone by a paired bootstrap over documents, for each seed and for all together.

    python benchmarks/rules_that_pay.py -o results/generated_uses.json
    python benchmarks/rules_that_pay.py --losses -o results/generated_losses.json
"""

from __future__ import annotations

import argparse
import itertools
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import rulewright as rw
from rulewright.data import Domain
from rulewright.evaluate.bootstrap import paired_bootstrap
from rulewright.inject.rule_scales import weigh_confidence
from rulewright.logic import PredicateDeclaration

RELATIONS = ("parent_of", "child_of", "spouse_of", "neighbour_of")
RULES = rw.parse_rules("""
    child_of(X, Y) :- parent_of(Y, X).
    parent_of(X, Y) :- child_of(Y, X).
    spouse_of(X, Y) :- spouse_of(Y, X).
    0.9 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z).
    0.9 :: spouse_of(X, Z) :- parent_of(X, Y), child_of(Y, Z).
    0.9 :: neighbour_of(X, Y) :- spouse_of(X, Y).
    0.9 :: neighbour_of(X, Z) :- parent_of(X, Y), neighbour_of(Y, Z).
    0.9 :: spouse_of(X, Y) :- neighbour_of(X, Y).
""")
TRUE_RULES = RULES[:5]
SIZE = 6
SELECTION, UNLABELLED, TEST = 100, 100, 300
LABELLED = {"a pair alone": 30, "both ways": 4}
"""How many labelled documents a network has, by what it sees."""
LOSS_WEIGHTS = (0.1, 0.3, 1.0, 3.0)
PRECISIONS = (0.5, 0.6, 0.7, 0.8, 0.9)
TRACE, STRENGTH = 0.7, 5.0
USES = ("apply", "hard decoder", "soft decoder", "layer", "loss", "distillation")


def make_documents(count: int, seed: int, sees: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Make documents about two families of three and some neighbours: features and gold labels."""
    random = np.random.default_rng(seed)
    gold = np.zeros((count, SIZE, SIZE, len(RELATIONS)), dtype=bool)
    for document in gold:
        order = random.permutation(SIZE)
        for mother, father, child in (order[:3], order[3:]):
            document[[mother, father], child, 0] = True
            document[child, [mother, father], 1] = True
            document[[mother, father], [father, mother], 2] = True
        document[..., 3] = (random.random((SIZE, SIZE)) < 0.1) & ~np.eye(SIZE, dtype=bool)
    shown = gold & (random.random(gold.shape) < TRACE)
    features = STRENGTH * shown + random.normal(size=gold.shape)
    if sees == "both ways":
        features = np.concatenate([features, features.swapaxes(1, 2)], -1)
    return torch.tensor(features, dtype=torch.float32), torch.tensor(gold)


def train(
    features: torch.Tensor,
    gold: torch.Tensor,
    seed: int,
    extra: Callable[[nn.Module, float], torch.Tensor] | None = None,
    *,
    start: Mapping[str, torch.Tensor] | None = None,
    steps: int = 150,
) -> nn.Module:
    """Train a network of one hidden layer, with another loss, given how far the training is, where there is one."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(features.shape[-1], 32), nn.ReLU(), nn.Linear(32, len(RELATIONS)))
    if start is not None:
        model.load_state_dict(dict(start))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.05)
    pairs = ~torch.eye(SIZE, dtype=torch.bool)
    for step in range(steps):
        logits = model(features)[:, pairs]
        loss = nn.functional.binary_cross_entropy_with_logits(logits, gold[:, pairs].float())
        if extra is not None:
            loss = loss + extra(model, step / steps)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def predict(model: nn.Module, features: torch.Tensor) -> Any:
    """Return logits as an array."""
    with torch.no_grad():
        return model(features).double().numpy()


def apply_rules(rules: rw.RuleSet, labels: Any) -> Any:
    """Add what follows from the labels of each document, to the fixed point."""
    count = len(labels)
    names = [f"{document}.{entity}" for document in range(count) for entity in range(SIZE)]
    documents, heads, tails, relations = np.nonzero(labels)
    columns = {
        name: [
            (documents * SIZE + heads)[relations == index].astype(np.int32),
            (documents * SIZE + tails)[relations == index].astype(np.int32),
        ]
        for index, name in enumerate(RELATIONS)
    }
    declared = [PredicateDeclaration(name, ("entity", "entity")) for name in RELATIONS]
    kb = rw.KnowledgeBase.from_columns({"entity": Domain("entity", names)}, declared, columns)
    found = rw.apply(rules, kb, max_rounds=None).facts
    inferred = labels.copy()
    for index, name in enumerate(RELATIONS):
        first, second = found.columns(name)
        inferred[first // SIZE, first % SIZE, second % SIZE, index] = True
    return apart(inferred)


def apart(labels: Any) -> Any:
    """Return labels without those of an entity with itself."""
    return labels & ~np.eye(SIZE, dtype=bool)[:, :, None]


def count(labels: Any, gold: Any) -> Any:
    """Return how many facts of each document are correct, given and wanted."""
    over = (1, 2, 3)
    return np.stack([(labels & gold).sum(over), labels.sum(over), gold.sum(over)], 1).astype(float)


def measure_added(rule: Any, labels: Any, gold: Any) -> float:
    """Return how many of the labels that a rule adds are right, drawn to one half where they are few."""
    new = apply_rules(rw.RuleSet([rule]), labels) & ~labels
    return float(((new & gold).sum() + 0.5) / (new.sum() + 1))


def infer(layer: rw.LogicLayer, log_odds: Any) -> Any:
    """Return the log-odds behind a layer."""
    with torch.no_grad():
        return layer(torch.from_numpy(log_odds)).numpy()


def best_of(candidates: Sequence[tuple[Any, Any]], gold: Any) -> Any:
    """Return what stands beside the labels that are best on documents held out; the first are those without rules.

    They stay where the best are not better by more than a standard error.
    """
    counts = [count(labels, gold) for labels, _ in candidates]
    best = int(np.argmax([f1_of(sums.sum(0)) for sums in counts]))
    gained = compare(counts[best], counts[0], confidence=0.6827)
    return candidates[best if gained.difference > (gained.high - gained.low) / 2 else 0][1]


def f1_of(sums: Any) -> Any:
    """Return F1 of how many facts are correct, given and wanted."""
    return 2 * sums[..., 0] / np.maximum(1, sums[..., 1] + sums[..., 2])


def compare(counts: Any, other: Any, *, confidence: float = 0.95) -> Any:
    """Compare F1 by a paired bootstrap over documents."""
    return paired_bootstrap(counts, other, lambda sums: {"f1": f1_of(sums)}, confidence=confidence)["f1"]


def run(seed: int, sees: str, *, test: int = TEST, selection: int = SELECTION) -> dict[str, Any]:
    """Return the labels' counts of every use on test documents, and of the calibrated network alone."""
    sizes = (LABELLED[sees], selection, UNLABELLED, test)
    parts = [make_documents(size, 10 * seed + number, sees) for number, size in enumerate(sizes)]
    (features, gold), (held_features, held_gold), (unlabelled, _), (test_features, test_gold) = parts
    held, truth = held_gold.numpy(), test_gold.numpy()
    model = train(features, gold, seed)
    network = _Calibrated(model, held_features, held)
    alone = network.labels(test_features)
    fit = rw.fit_rules(
        RULES,
        network.logits(held_features),
        held,
        relations=RELATIONS,
        threshold=dict(network.calibration.thresholds),
    )
    kept = fit.kept
    rows = {"network": apart(predict(model, test_features) > 0), "calibrated": alone}
    found = [(network.held_labels, rw.RuleSet())]
    precisions = [measure_added(rule, network.held_labels, held) for rule in RULES]
    for least in PRECISIONS:
        rules = rw.RuleSet([rule for rule, share in zip(RULES, precisions, strict=True) if share >= least])
        found.append((apply_rules(rules, network.held_labels), rules))
    rows["apply"] = apply_rules(best_of(found, held), alone)
    rows["hard decoder"] = _decode(TRUE_RULES, None, network.margins(test_features))
    rows["soft decoder"] = _decode(fit.rules, fit.costs_at(fit.best), network.margins(test_features))
    by_confidence = kept.with_weights([weigh_confidence(statement) for statement in kept])
    found = [(network.held_labels, alone)]
    for rules in (kept, by_confidence):
        for iterations, damping in ((1, 0.0), (10, 0.5)):
            layer = rw.LogicLayer(
                rules, relations=RELATIONS, weights="annotated", iterations=iterations, damping=damping
            )
            sent = [infer(layer, network.logits(part)) for part in (held_features, test_features)]
            again = rw.calibrate(sent[0], held, relations=RELATIONS)
            assert again.out_of_fold is not None
            found.append((apart(again.out_of_fold.margins > 0), apart(again.labels(sent[1]))))
    rows["layer"] = best_of(found, held)
    everything = torch.cat([features, unlabelled])
    trusted = fit.rules.filter(min_confidence=0.7)  # as measured on the network
    losses = [
        rw.ConsistencyLoss(rules, relations=RELATIONS, form="published", weights=weights, reduction="mean")
        for rules, weights in ((kept, "annotated"), (trusted, "one"))
    ]

    def broken(own: nn.Module, loss: rw.ConsistencyLoss) -> torch.Tensor:
        value: torch.Tensor = loss(network.calibration.logits(own(everything)))
        return value

    decoder = rw.RuleDecoder(fit.rules, relations=RELATIONS, rule_costs=fit.costs_at(fit.best))
    labels = torch.from_numpy(np.asarray(decoder(network.margins(unlabelled)).labels))

    def taught(own: nn.Module) -> torch.Tensor:
        return rw.distillation_loss(own(unlabelled), labels)

    forms = {"loss": [partial(broken, loss=loss) for loss in losses], "distillation": [taught]}
    for name, extras in forms.items():
        candidates = [(network.held_labels, network)]
        for extra, weight in itertools.product(extras, LOSS_WEIGHTS):

            def weighted(own: nn.Module, share: float, extra: Any = extra, weight: float = weight) -> torch.Tensor:
                return weight * min(1.0, 2 * share) * extra(own)

            better = _Calibrated(train(features, gold, seed, weighted, start=model.state_dict()), held_features, held)
            candidates.append((better.held_labels, better))
        rows[name] = best_of(candidates, held).labels(test_features)
    counts = {name: count(labels, truth) for name, labels in rows.items()}
    return {"counts": counts, "weights": [round(weight, 3) for weight in fit.weights]}


def compare_losses(seed: int) -> list[dict[str, Any]]:
    """Return F1 on selection documents for each form of the loss, side that it teaches, rules and weight."""
    (features, gold), (held_features, held_gold), (unlabelled, _) = (
        make_documents(size, 10 * seed + number, "both ways")
        for number, size in enumerate((LABELLED["both ways"], SELECTION, UNLABELLED))
    )
    held = held_gold.numpy()
    model = train(features, gold, seed)
    network = _Calibrated(model, held_features, held)
    everything = torch.cat([features, unlabelled])

    def f1(own: _Calibrated) -> float:
        correct, given, wanted = count(own.held_labels, held).sum(0)
        return float(2 * correct / (given + wanted))

    again = _Calibrated(train(features, gold, seed, start=model.state_dict()), held_features, held)
    rows: list[dict[str, Any]] = [{"seed": seed, "network": f1(network), "trained on": f1(again)}]
    rule_sets = {"of one step": TRUE_RULES[:3], "true": TRUE_RULES, "also useless": RULES}
    for (name, rules), form in itertools.product(rule_sets.items(), ("published", "hinge", "violation")):
        for side in ("both", "head", "body", "likelier") if form != "violation" else ("both",):
            per = None if form == "published" else "grounding"
            loss = rw.ConsistencyLoss(rules, relations=RELATIONS, form=form, side=side, per=per, reduction="mean")
            row: dict[str, Any] = {"seed": seed, "rules": name, "form": form, "side": side}
            for weight in LOSS_WEIGHTS[1:]:

                def extra(own: nn.Module, share: float, loss: Any = loss, weight: float = weight) -> torch.Tensor:
                    return weight * min(1.0, 2 * share) * loss(network.calibration.logits(own(everything)))

                taught = train(features, gold, seed, extra, start=model.state_dict())
                row[f"λ {weight:g}"] = f1(_Calibrated(taught, held_features, held))
            rows.append(row)
            print(
                "  ".join(
                    f"{key} {value:.4f}" if isinstance(value, float) else str(value) for key, value in row.items()
                )
            )
    return rows


class _Calibrated:
    """A network with its calibration."""

    def __init__(self, model: nn.Module, held_features: torch.Tensor, held: Any) -> None:
        self.model = model
        logits = predict(model, held_features)
        self.calibration = rw.calibrate(logits, held, relations=RELATIONS)
        assert self.calibration.out_of_fold is not None
        self.held_labels = apart(self.calibration.out_of_fold.margins > 0)

    def logits(self, features: torch.Tensor) -> Any:
        """Return calibrated log-odds."""
        return self.calibration.logits(predict(self.model, features))

    def margins(self, features: torch.Tensor) -> Any:
        """Return by how much they exceed the threshold."""
        return self.calibration.margins(predict(self.model, features))

    def labels(self, features: torch.Tensor) -> Any:
        """Return labels, none of an entity with itself."""
        return apart(self.margins(features) > 0)


def _decode(rules: rw.RuleSet, costs: Any, margins: Any) -> Any:
    return np.asarray(rw.RuleDecoder(rules, relations=RELATIONS, rule_costs=costs)(margins).labels)


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--losses", action="store_true", help="Compare forms of the loss on selection documents.")
    parser.add_argument("-o", "--output")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    if chosen.losses:
        write(
            chosen.output,
            f"--losses --seeds {chosen.seeds}",
            [row for s in range(chosen.seeds) for row in compare_losses(s)],
        )
        return
    table: list[dict[str, Any]] = []
    print(f"{'network sees':12}  seed  {'use':14} {'F1':>7} {'difference':>11}  {'95 % interval':18} p")
    for sees in LABELLED:
        found = {str(seed): run(seed, sees)["counts"] for seed in range(chosen.seeds)}
        found["all"] = {name: np.concatenate([one[name] for one in found.values()]) for name in found["0"]}
        for seed, counts in found.items():
            for name in ("network", "calibrated", *USES):
                result = compare(counts[name], counts["calibrated"])
                row = {"sees": sees, "seed": seed, "use": name, "f1": result.first, "difference": result.difference}
                table.append(row | {"low": result.low, "high": result.high, "p": result.p_value})
                interval = f"{100 * result.low:+.2f} … {100 * result.high:+.2f}"
                print(
                    f"{sees:12}  {seed:>4}  {name:14} {100 * result.first:7.2f} {100 * result.difference:+11.2f}  "
                    f"{interval:18} {result.p_value:.4f}",
                    flush=True,
                )
    write(chosen.output, f"--seeds {chosen.seeds}", table)


def write(path: str | None, options: str, rows: list[dict[str, Any]]) -> None:
    """Write rows with the command and the machine, where there is a file to write to."""
    if path is None:
        return
    machine = f"{platform.system()} {platform.machine()}, 1 thread, Python {platform.python_version()}"
    written = {"command": f"python benchmarks/rules_that_pay.py {options}", "machine": machine, "rows": rows}
    Path(path).write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
