"""Distant supervision: learn to read digits when only the sums of pairs are known."""

import torch
from sklearn.datasets import load_digits
from torch import nn

import rulewright as rw

DIGITS = ", ".join(f"'{number}'" for number in range(10))
SUMS = ", ".join(f"'{number}'" for number in range(19))
RULES = (
    f"predicate left in {{{DIGITS}}}. predicate right in {{{DIGITS}}}. predicate total in {{{SUMS}}}.\n"
    + "\n".join(
        f"hard left in {{'{one}'}} & right in {{'{other}'}} => total in {{'{one + other}'}}."
        for one in range(10)
        for other in range(10)
    )
)

torch.manual_seed(0)
images, digits = load_digits(return_X_y=True)
order = torch.randperm(len(digits))
images = torch.tensor(images, dtype=torch.float32)[order] / 16
digits = torch.tensor(digits)[order]
pairs, sums = images[:600].reshape(300, 2, 64), digits[:600].reshape(300, 2).sum(-1)  # the digits are not shown

reader = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
layer = rw.LogicLayer(RULES, inference="exact")  # a pair is a sample; its predicates have no arguments
optimizer = torch.optim.Adam(reader.parameters(), lr=1e-2)
for epoch in range(15):
    for chosen in torch.randperm(300).split(20):
        left, right = reader(pairs[chosen]).unbind(1)
        total = layer({"left": left, "right": right, "total": torch.zeros(len(chosen), 19)})["total"]
        loss = nn.functional.cross_entropy(total, sums[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    if epoch % 5 == 4:
        print(f"epoch {epoch + 1}: loss of the sums {loss.item():.3f}")

with torch.no_grad():
    read = reader(images[600:]).argmax(-1)
print(f"digits read right, of {len(read)} never seen: {(read == digits[600:]).float().mean():.3f}")
