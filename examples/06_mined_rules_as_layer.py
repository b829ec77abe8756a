"""Rules that were mined, used as a layer whose weights are learned: they settle what a network is unsure of."""

import torch
from torch.nn import functional

import rulewright as rw
from rulewright.data.generators import family

# Mine rules from one family.
known = family(60, seed=1).kb
rules = rw.RuleMiner(max_length=2, min_confidence=0.95, min_support=5, constants=False, prune=True).fit(known).rules_
relations = sorted(rules.arities)
print(f"{len(rules)} rules mined over {', '.join(relations)}")


def read(kb: rw.KnowledgeBase) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """Return what holds in a family, and what a network that reads badly says of it: log-odds under heavy noise."""
    truth = {name: kb.tensor(name)[0] for name in relations}
    return truth, {name: 6.0 * each.float() - 4.0 + 1.5 * torch.randn(each.shape) for name, each in truth.items()}


def f1(said: dict[str, torch.Tensor], truth: dict[str, torch.Tensor]) -> float:
    """Return F1 over all relations, a fact being said where its log-odds are positive."""
    right = sum(int(((said[name] > 0) & truth[name]).sum()) for name in relations)
    return 2 * right / sum(int((said[name] > 0).sum()) + int(truth[name].sum()) for name in relations)


# Put them behind the network and learn how much each rule should weigh, on the family they were mined from.
torch.manual_seed(0)
layer = rw.LogicLayer(rules, iterations=3, learnable=True)
with torch.no_grad():
    layer.weights.learned.fill_(0.1)
optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
for _ in range(60):
    truth, logits = read(known)
    said = layer(logits)
    loss = sum(functional.binary_cross_entropy_with_logits(said[name], truth[name].float()) for name in relations)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

# They serve for any other.
truth, logits = read(family(60, seed=2).kb)
with torch.no_grad():
    print(f"F1 on another family: {f1(logits, truth):.3f} without, {f1(layer(logits), truth):.3f} with the layer")

heaviest = sorted(layer.rules.rules, key=lambda rule: -float(rule.annotations["weight"]))
print("the rules that weigh most:")
for rule in heaviest[:3]:
    print(f"  {rule.annotations['weight']:.2f}  {rule.head} :- {', '.join(map(str, rule.body))}")
