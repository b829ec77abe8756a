"""The consistency loss inside a Hugging Face Trainer: a plain model, and a loss of your own that knows the rules."""

import sys
from importlib.util import find_spec

import torch
from torch import nn

import rulewright as rw
from rulewright.inject import ConsistencyLoss, RuleDecoder

if missing := [name for name in ("transformers", "accelerate") if find_spec(name) is None]:
    print(f"the Trainer needs {' and '.join(missing)}: pip install {' '.join(missing)}")
    sys.exit(0)

from transformers import Trainer, TrainingArguments

RELATIONS = ["located_in", "country", "capital_of"]
RULES = rw.parse_rules("""
    0.98 :: country(X, Z) :- located_in(X, Y), country(Y, Z).
    located_in(X, Y) :- capital_of(X, Y).
""")


class PairModel(nn.Module):
    """A model as the Trainer wants it: from a batch to logits [B, n, n, R]; it knows nothing of rules."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, len(RELATIONS)))

    def forward(
        self, features: torch.Tensor, mask: torch.Tensor, labels: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        return {"logits": self.score(features), "mask": mask}


consistency = ConsistencyLoss(RULES, relations=RELATIONS)


def rule_loss(
    outputs: dict[str, torch.Tensor], labels: torch.Tensor, num_items_in_batch: torch.Tensor | None = None
) -> torch.Tensor:
    """What the Trainer minimises: the labels, and a little of what the logits break."""
    logits, mask = outputs["logits"], outputs["mask"]
    real = mask[:, :, None] & mask[:, None, :] & ~torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
    classification = nn.functional.binary_cross_entropy_with_logits(logits[real], labels[real])
    return classification + 1e-3 * consistency(logits, mask)


def document(entities: int, size: int = 6) -> dict[str, torch.Tensor]:
    """Make a document of several places of one country, the first its capital, padded to ``size`` entities."""
    labels = torch.zeros(size, size, len(RELATIONS))
    land = entities - 1
    labels[0, land, 2] = 1
    labels[:land, land, :2] = 1
    mask = torch.arange(size) < entities
    features = torch.randn(size, size, 8) * 0.5
    features[..., :3] += labels
    return {"features": features, "mask": mask, "labels": labels}


torch.manual_seed(0)
train = [document(3 + number % 4) for number in range(64)]
arguments = TrainingArguments(
    output_dir="trainer",
    num_train_epochs=10,
    per_device_train_batch_size=16,
    learning_rate=1e-2,
    logging_steps=10,
    save_strategy="no",
    report_to=[],
    use_cpu=True,
    disable_tqdm=True,
    label_names=["labels"],
    # torch_compile=True compiles the model alone here; a loss inside the model is compiled with it
)
trainer = Trainer(model=PairModel(), args=arguments, train_dataset=train, compute_loss_func=rule_loss)
result = trainer.train()
print(f"trained: loss {result.training_loss:.3f}")

test = [document(4), document(5)]
logits, _ = trainer.predict(test).predictions
decoder = RuleDecoder(RULES, relations=RELATIONS)
for each, scores in zip(test, logits, strict=True):
    entities = int(each["mask"].sum())
    print(decoder(scores[:entities, :entities]))
