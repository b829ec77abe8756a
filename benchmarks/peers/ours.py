"""Our injectors on the four problems: a loss in training, a layer in the network, a decoder at the end."""

from __future__ import annotations

from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

import rulewright as rw
from peers.problems import EXCLUSIVE, NEXT, PARENT, START, TAGS, TYPES, Split
from peers.training import Part

Form: TypeAlias = Literal["hinge", "violation", "log"]
Inference: TypeAlias = Literal["mean-field", "exact"]
Strength: TypeAlias = Literal["hard", "learn", "0.3", "2", "10"]
"""How a formula counts in a layer: hard, with a weight that is learned, or with this weight."""


def hierarchy_rules(strength: Strength = "hard") -> str:
    """The hierarchy and the exclusions are evidence, so that two rules say it all."""
    return f"""
        {strength} label(C) & parent(C, P) => label(P).
        {strength} !(label(C) & label(D) & apart(C, D)).
        closed parent. closed apart.
    """


def loss_hierarchy(form: Form) -> Part:
    """Add what the labels of a sample break."""
    loss = rw.ConsistencyLoss(hierarchy_rules(), form=form, evidence={"parent": PARENT, "apart": EXCLUSIVE})
    return lambda logits, split: loss({"label": logits})


def layer_hierarchy(inference: Inference, iterations: int, strength: Strength) -> tuple[rw.LogicLayer, Part]:
    """Let the labels of a sample speak to each other."""
    known = {"parent": PARENT, "apart": EXCLUSIVE}
    layer = rw.LogicLayer(hierarchy_rules(strength), iterations=iterations, inference=inference, evidence=known)
    return layer, lambda logits, split: layer({"label": logits})["label"]


def decoder_hierarchy() -> Part:
    """Find the best labels that break nothing."""
    decoder = rw.RuleDecoder(hierarchy_rules())
    known = {"parent": PARENT, "apart": EXCLUSIVE}
    return lambda logits, split: torch.as_tensor(decoder({"label": logits}, evidence=known).labels["label"])


def bio_rules(strength: Strength = "hard") -> str:
    """An I- tag goes on with a B- or I- tag of its type."""
    tags = ", ".join(f"'{tag}'" for tag in TAGS)
    rules = [f"predicate tag(token) in {{{tags}}}. closed next. closed start."]
    for name in TYPES:
        rules.append(f"{strength} next(T, U) & tag(U) in {{'I-{name}'}} => tag(T) in {{'B-{name}', 'I-{name}'}}.")
        rules.append(f"{strength} !(start(T) & tag(T) in {{'I-{name}'}}).")
    return "\n".join(rules)


def loss_bio(form: Form) -> Part:
    """Add what the tags of a sentence break."""
    loss = rw.ConsistencyLoss(bio_rules(), form=form, evidence={"next": NEXT, "start": START})
    return lambda logits, split: loss({"tag": logits}, mask={"token": split.mask})


def layer_bio(inference: Inference, iterations: int, strength: Strength) -> tuple[rw.LogicLayer, Part]:
    """Let the tags of a sentence speak to each other."""
    known = {"next": NEXT, "start": START}
    layer = rw.LogicLayer(bio_rules(strength), iterations=iterations, inference=inference, evidence=known)
    return layer, lambda logits, split: layer({"tag": logits}, mask={"token": split.mask})["tag"]


def decoder_bio() -> Part:
    """Find the best tags that break nothing."""
    decoder = rw.RuleDecoder(bio_rules())
    known = {"next": NEXT, "start": START}

    def decode(logits: Tensor, split: Split) -> Tensor:
        return torch.as_tensor(decoder({"tag": logits}, evidence=known, mask={"token": split.mask}).labels["tag"])

    return decode


def graphs_rules(strength: Strength = "hard") -> str:
    """To be of one group is an equivalence."""
    return f"""
        {strength} same(X, Y) => same(Y, X).
        {strength} same(X, Y) & same(Y, Z) => same(X, Z).
    """


def loss_graphs(form: Form) -> Part:
    """Add what the pairs of a graph break."""
    loss = rw.ConsistencyLoss(graphs_rules(), form=form, relations=["same"])
    return lambda logits, split: loss(logits.unsqueeze(-1), mask=split.mask)


def layer_graphs(inference: Inference, iterations: int, strength: Strength) -> tuple[rw.LogicLayer, Part]:
    """Let the pairs of a graph speak to each other."""
    layer = rw.LogicLayer(graphs_rules(strength), iterations=iterations, inference=inference, relations=["same"])
    return layer, lambda logits, split: layer(logits.unsqueeze(-1), mask=split.mask).squeeze(-1)


def decoder_graphs() -> Part:
    """Find the best groups."""
    decoder = rw.RuleDecoder(graphs_rules(), relations=["same"])
    return lambda logits, split: torch.as_tensor(decoder(logits.unsqueeze(-1), mask=split.mask).labels[..., 0]).bool()


def digits_rules(strength: Strength = "hard") -> str:
    """What two digits add up to: predicates without arguments, as a sample has one pair."""
    digits, sums = (", ".join(f"'{number}'" for number in range(count)) for count in (10, 19))
    rules = [f"predicate left in {{{digits}}}. predicate right in {{{digits}}}. predicate total in {{{sums}}}."]
    for one in range(10):
        for other in range(10):
            rules.append(f"{strength} left in {{'{one}'}} & right in {{'{other}'}} => total in {{'{one + other}'}}.")
    return "\n".join(rules)


def loss_digits(form: Form) -> Part:
    """Make digits likely that add up to the sum that is known."""
    loss = rw.ConsistencyLoss(digits_rules(), form=form)
    return lambda logits, split: loss(
        dict(zip(SIDES, logits.unbind(1), strict=True)), evidence={"total": split.targets}
    )


def layer_digits(inference: Inference, iterations: int, strength: Strength) -> tuple[rw.LogicLayer, Part]:
    """Infer the sum of two digits, and compare it with the one that is known."""
    layer = rw.LogicLayer(digits_rules(strength), iterations=iterations, inference=inference)

    def objective(logits: Tensor, split: Split) -> Tensor:
        given = dict(zip(SIDES, logits.unbind(1), strict=True))
        totals = layer({**given, "total": logits.new_zeros(len(logits), 19)})["total"]
        return functional.cross_entropy(totals, split.targets)

    return layer, objective


SIDES = ("left", "right")
