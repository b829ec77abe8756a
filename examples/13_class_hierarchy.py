"""A hierarchy of classes in one rule: who is whose parent is evidence, and the labels of all samples are one tensor."""

import torch
from torch import nn

import rulewright as rw

CLASSES = ["animal", "dog", "cat", "poodle", "beagle", "plant", "tree", "oak"]
PARENTS = {"dog": "animal", "cat": "animal", "poodle": "dog", "beagle": "dog", "tree": "plant", "oak": "tree"}
APART = [("animal", "plant"), ("dog", "cat"), ("poodle", "beagle")]
RULES = """
    predicate label(sample, class).
    closed parent. closed apart.
    hard label(X, C) & parent(C, P) => label(X, P).
    hard !(label(X, C) & label(X, D) & apart(C, D)).
"""

index = {name: place for place, name in enumerate(CLASSES)}
parent = torch.zeros(len(CLASSES), len(CLASSES), dtype=torch.bool)
apart = torch.zeros_like(parent)
for child, above in PARENTS.items():
    parent[index[child], index[above]] = True
for one, other in APART:
    apart[index[one], index[other]] = True
hierarchy = {"parent": parent, "apart": apart}


def samples(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Make samples of one class with all that stand above it, seen through noise."""
    gold = torch.zeros(count, len(CLASSES))
    for labels, chosen in zip(gold, torch.randint(len(CLASSES), (count,)).tolist(), strict=True):
        name = CLASSES[chosen]
        labels[chosen] = 1
        while name in PARENTS:
            name = PARENTS[name]
            labels[index[name]] = 1
    return gold @ EMBEDDINGS + 1.0 * torch.randn(count, 6), gold


torch.manual_seed(0)
EMBEDDINGS = torch.randn(len(CLASSES), 6)
features, gold = samples(100)
model = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, len(CLASSES)))  # any model with logits [n, C]

# In training: what the labels break, as the probability that a rule is false.
consistency = rw.ConsistencyLoss(RULES, form="violation", evidence=hierarchy)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for epoch in range(100):
    logits = model(features)
    broken = consistency({"label": logits})
    loss = nn.functional.binary_cross_entropy_with_logits(logits, gold) + broken
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 50 == 49:
        print(f"epoch {epoch + 1}: a grounding is false with probability {broken.item():.4f}")

# At the end: the best labels that break nothing.
features, gold = samples(300)
with torch.no_grad():
    logits = model(features)
decoded = rw.RuleDecoder(RULES, domains={"class": CLASSES})({"label": logits}, evidence=hierarchy)
labels = torch.as_tensor(decoded.labels["label"])


def exact(labels: torch.Tensor) -> float:
    return float((labels == gold.bool()).all(-1).float().mean())


print(f"all labels of a sample right: {exact(logits > 0):.3f} above the threshold, {exact(labels):.3f} decoded")
print(f"labels changed: {len(decoded.changes)}, violations left: {decoded.violations}")
for change in decoded.changes[:3]:
    print(f"  {change.text({'class': CLASSES})}")
assert decoded.violations == 0
