"""The consistency loss and the decoder on a model of your own, in a plain training loop."""

import torch
from torch import nn

import rulewright as rw
from rulewright.inject import ConsistencyLoss, RuleDecoder, error_types

RELATIONS = ["parent_of", "child_of", "spouse_of"]
RULES = rw.parse_rules("""
    child_of(X, Y) :- parent_of(Y, X).
    parent_of(X, Y) :- child_of(Y, X).
    spouse_of(X, Y) :- spouse_of(Y, X).
    0.95 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z).
    hard !(parent_of(X, Y) & spouse_of(X, Y)).
""")
PEOPLE = ["Ann", "Bob", "Cid", "Dee", "Eve", "Fred"]


def families(documents: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Make documents about two families of three, in which three of ten facts leave no trace in the features."""
    gold = torch.zeros(documents, 6, 6, 3)
    for document in gold:
        order = torch.randperm(6).tolist()
        for mother, father, child in (order[:3], order[3:]):
            document[[mother, father], child, 0] = 1
            document[child, [mother, father], 1] = 1
            document[[mother, father], [father, mother], 2] = 1
    shown = gold * (torch.rand(gold.shape) > 0.3)
    return shown * 4 + torch.randn(gold.shape), gold


torch.manual_seed(0)
features, gold = families(64)
model = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 3))  # any model that gives logits [B, n, n, R]
consistency = ConsistencyLoss(RULES.rules, relations=RELATIONS)  # what is forbidden is for the decoder alone
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
pairs = ~torch.eye(6, dtype=torch.bool)

for epoch in range(90):
    logits = model(features)
    classification = nn.functional.binary_cross_entropy_with_logits(logits[:, pairs], gold[:, pairs])
    broken = consistency(logits)
    loss = classification + 1e-3 * broken
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if epoch % 30 == 29:
        print(f"epoch {epoch + 1}: classification {classification.item():.3f}, consistency {broken.item():.2f}")

features, gold = families(40)
with torch.no_grad():
    logits = model(features)
decoder = RuleDecoder(RULES, relations=RELATIONS)
answers = decoder.decode_batch(list(logits))  # workers=4 decodes in four processes


def f1(labels: torch.Tensor) -> float:
    return float(2 * (labels * gold).sum() / (labels.sum() + gold.sum()))


before = torch.stack([torch.from_numpy(each.before) for each in answers])
after = torch.stack([torch.from_numpy(each.labels) for each in answers])
print(f"F1 above the threshold {f1(before):.3f}, decoded {f1(after):.3f}")
for answer, truth in zip(answers[:2], gold, strict=False):
    print(error_types(answer, truth, RULES))
print(max(answers[:5], key=lambda each: len(each.changes)).report(PEOPLE))
