"""A logic layer on a pairwise classifier: three lines put transitivity behind a network that scores pairs."""

import torch
from torch import nn

import rulewright as rw

torch.manual_seed(0)

# A classifier that says for each pair of items, from noisy features, whether they are of one group.
GROUPS = torch.tensor([0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2])
TRUTH = GROUPS[:, None] == GROUPS[None, :]


class PairNetwork(nn.Module):
    """Scores every pair on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(1, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.score(features[..., None])[..., 0]
        return (logits + logits.mT) / 2


def batch(rows: int) -> torch.Tensor:
    """Make features of pairs: 1 within a group and 0 across, under noise."""
    return TRUTH.float() + 0.45 * torch.randn(rows, *TRUTH.shape)


network = PairNetwork()

# The three lines:
rules = rw.parse_rules("learn same(A, B) & same(B, C) => same(A, C).")
layer = rw.LogicLayer(rules, iterations=5, initial_weight=0.1)


def predict(features: torch.Tensor) -> torch.Tensor:
    return layer({"same": network(features)})["same"]


print(layer.plan({"entity": len(GROUPS)}))

optimizer = torch.optim.Adam([*network.parameters(), *layer.parameters()], lr=1e-2)
for _ in range(200):
    features = batch(8)
    loss = nn.functional.binary_cross_entropy_with_logits(predict(features), TRUTH.float().expand(8, -1, -1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

features = batch(200)
with torch.no_grad():
    alone, together = network(features), predict(features)
print(f"pairs that are right: {((alone > 0) == TRUTH).float().mean():.3f} by the network inside,", end=" ")
print(f"{((together > 0) == TRUTH).float().mean():.3f} with the layer")
print(f"the learned rule: {layer.rules[0]}")

moved = (together - alone).abs().flatten().argmax()
row, first, second = (int(each) for each in torch.unravel_index(moved, together.shape))
print(layer.explain(f"same({first}, {second})", row=row, top=3))
