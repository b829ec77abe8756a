"""Rules that pay: your own model, calibrated; rules measured on it; labels decoded with what each rule is worth."""

import torch
from torch import nn

import rulewright as rw

RELATIONS = ["parent_of", "child_of", "spouse_of"]
RULES = """
    child_of(X, Y) :- parent_of(Y, X).    parent_of(X, Y) :- child_of(Y, X).    spouse_of(X, Y) :- spouse_of(Y, X).
    0.9 :: parent_of(X, Z) :- spouse_of(X, Y), parent_of(Y, Z).
    0.9 :: parent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).    % wrong: these families have no grandchildren
"""


def families(documents: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Documents about two families of three; three of ten facts leave no trace in the features."""
    gold = torch.zeros(documents, 6, 6, 3, dtype=torch.bool)
    for document in gold:
        order = torch.randperm(6)
        for mother, father, child in (order[:3], order[3:]):
            document[[mother, father], child, 0] = document[child, [mother, father], 1] = True
            document[[mother, father], [father, mother], 2] = True
    return 4 * gold * (torch.rand(gold.shape) > 0.3) + torch.randn(gold.shape), gold


torch.manual_seed(0)
(features, gold), (held_out, held_gold), (new, new_gold) = families(30), families(60), families(200)
model = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 3))  # any model that gives logits [B, n, n, R]
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.05)
for _ in range(150):
    optimizer.zero_grad()
    nn.functional.binary_cross_entropy_with_logits(model(features), gold.float()).backward()
    optimizer.step()

with torch.no_grad():
    logits, new_logits = model(held_out), model(new)
calibration = rw.calibrate(logits, held_gold, relations=RELATIONS)  # on documents that it did not learn from
fit = rw.fit_rules(
    RULES, calibration.logits(logits), held_gold, relations=RELATIONS, threshold=dict(calibration.thresholds)
)
print(calibration, fit, sep="\n\n")
fit.save("families.rules")  # the rules with their weights, to be read and corrected

margins = calibration.margins(new_logits)
decoder = rw.RuleDecoder(fit.rules, relations=RELATIONS, rule_costs=fit.costs)
for name, labels in (("calibrated", margins > 0), ("with rules", decoder(margins).labels)):
    given = torch.as_tensor(labels) & ~torch.eye(6, dtype=torch.bool)[..., None]
    print(f"{name}: F1 {2 * (given & new_gold).sum() / (given.sum() + new_gold.sum()):.3f}")
