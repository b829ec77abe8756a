"""BIO tags: rules about neighbours behind a tagger that sees every token alone, as a layer and as a decoder."""

import torch
from torch import nn

import rulewright as rw

TYPES = ["PER", "LOC"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
LENGTH = 12
RULES = rw.parse_rules(
    "predicate tag(token) in {'O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC'}. closed next. closed start."
    + "".join(
        f"""
        hard next(T, U) & tag(U) in {{'I-{name}'}} => tag(T) in {{'B-{name}', 'I-{name}'}}.
        hard !(start(T) & tag(T) in {{'I-{name}'}}).
        """
        for name in TYPES
    )
)
ORDER = {  # which token follows which is the same for all sentences: evidence without a batch
    "next": torch.diag(torch.ones(LENGTH - 1), 1).bool(),
    "start": torch.arange(LENGTH) == 0,
}


def sentences(count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Make sentences of 6 to 12 tokens with entities of 1 to 3 tokens, seen through noise."""
    lengths = torch.randint(6, LENGTH + 1, (count,))
    tags = torch.zeros(count, LENGTH, dtype=torch.long)
    for row, length in zip(tags, lengths.tolist(), strict=True):
        place = 0
        while place < length:
            end = place + 1
            if torch.rand(1) < 0.4:
                first = 1 + 2 * int(torch.randint(2, (1,)))
                end = min(length, place + int(torch.randint(1, 4, (1,))))
                row[place:end] = first + 1
                row[place] = first
            place = end
    return EMBEDDINGS[tags] + torch.randn(count, LENGTH, 8), tags, torch.arange(LENGTH) < lengths[:, None]


def count_broken(tags: torch.Tensor, mask: torch.Tensor) -> int:
    """Count tags that go on with something that is not there."""
    before = torch.nn.functional.pad(tags, (1, 0))[:, :-1]
    inside = (tags > 0) & (tags % 2 == 0)
    return int((inside & (before != tags) & (before != tags - 1) & mask).sum())


torch.manual_seed(0)
EMBEDDINGS = torch.randn(len(TAGS), 8)
features, gold, mask = sentences(80)
tagger = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, len(TAGS)))
layer = rw.LogicLayer(RULES, evidence=ORDER, inference="exact")  # a sentence is a chain: its marginals are exact
print(layer.plan({"token": LENGTH}))

optimizer = torch.optim.Adam(tagger.parameters(), lr=1e-2)
for _ in range(60):
    logits = layer({"tag": tagger(features)}, mask={"token": mask})["tag"]
    loss = nn.functional.cross_entropy(logits[mask], gold[mask])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

features, gold, mask = sentences(200)
with torch.no_grad():
    alone = tagger(features)
    together = layer({"tag": alone}, mask={"token": mask})["tag"]
decoded = rw.RuleDecoder(RULES)({"tag": alone}, evidence=ORDER, mask={"token": mask})
for name, tags in (
    ("the tagger inside", alone.argmax(-1)),
    ("with the layer", together.argmax(-1)),
    ("decoded", torch.as_tensor(decoded.labels["tag"])),
):
    right = (tags == gold)[mask].float().mean()
    print(f"{name}: accuracy {right:.3f}, {count_broken(tags, mask)} broken transitions")
print(f"all sentences decoded, {decoded.violations} violations")
