"""Rules in a Lightning module: the loss in training, the decoder in prediction; both follow the module's device."""

import sys
from importlib.util import find_spec

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import rulewright as rw

if find_spec("lightning") is None:
    print("this example needs lightning: pip install -c constraints.txt lightning")
    sys.exit(0)

import lightning

LABELS = ["animal", "dog", "cat"]
RULES = """
    hard dog(X) => animal(X).
    hard cat(X) => animal(X).
    hard !(dog(X) & cat(X)).
"""


def by_name(logits: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return logits [n, labels] as the injectors take them."""
    return dict(zip(LABELS, logits.unbind(-1), strict=True))


class Labeller(lightning.LightningModule):
    """A classifier of several labels."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, len(LABELS)))
        self.consistency = rw.ConsistencyLoss(RULES, form="violation")
        self.decoder = rw.RuleDecoder(RULES)

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        features, gold = batch
        logits = self.network(features)
        broken = self.consistency(by_name(logits))
        self.log("broken", broken)
        return nn.functional.binary_cross_entropy_with_logits(logits, gold) + broken

    def predict_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        labels = self.decoder(by_name(self.network(batch[0]))).labels
        return torch.stack([torch.as_tensor(labels[name]) for name in LABELS], -1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


torch.manual_seed(0)
kinds = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
gold = kinds[torch.randint(4, (256,))]
features = torch.cat([gold, torch.zeros(256, 1)], -1) + 0.5 * torch.randn(256, 4)
loader = DataLoader(TensorDataset(features, gold), batch_size=32)
trainer = lightning.Trainer(
    max_epochs=20, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False
)
model = Labeller()
trainer.fit(model, loader)
print(f"probability that a rule is false: {trainer.callback_metrics['broken']:.4f}")
labels = torch.cat(trainer.predict(model, loader))
print(f"all labels right: {(labels == gold.bool()).all(-1).float().mean():.3f}")
print(f"dogs that are no animals: {int((labels[:, 1] & ~labels[:, 0]).sum())}")
