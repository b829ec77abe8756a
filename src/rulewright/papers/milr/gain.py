"""GAIN: a graph of mentions, then paths between entities (Zeng et al. 2020, arXiv:2009.13752)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from rulewright.papers.documents import DocumentBatch, Featurizer
from rulewright.papers.encoders import Encoder, EntityTags
from rulewright.papers.frozen import EntityReader, FrozenEncoder
from rulewright.papers.milr.networks import (
    RARE,
    Backbone,
    PairLogits,
    binary_cross_entropy,
    entity_means,
    mention_means,
)

LOWEST = torch.finfo(torch.float32).min  # minus infinity would give NaN, and NaN gradients, where there is no path


class PathAttention(nn.Module):
    """``p_ht = Σ_o α_o q_o``, ``q_o = [g_ho; g_oh; g_to; g_ot]``, over entities o that share sentences with h and t.

    ``g_ij = relu(W [e_i; e_j])`` stands for an edge and ``α = softmax_o relu([e_h; e_t] V q_o)``; without any such o,
    p is 0. No array of pairs × entities × ``size`` is made: h's half of q and t's half each meet both entities in
    products of matrices.
    """

    def __init__(self, entity_size: int, *, size: int) -> None:
        super().__init__()
        self.start = nn.Linear(entity_size, size)
        self.end = nn.Linear(entity_size, size, bias=False)
        self.head_asks = nn.Linear(entity_size, 4 * size, bias=False)
        self.tail_asks = nn.Linear(entity_size, 4 * size, bias=False)

    def forward(self, entities: Tensor, edges: Tensor, batch: DocumentBatch) -> Tensor:
        """Attend for all pairs, ``[E, entity_size]`` and symmetric booleans ``[B, n, n]``, ``-> [P, 4·size]``."""
        starts, ends, head_asks, tail_asks = (
            batch.padded(layer(entities)) for layer in (self.start, self.end, self.head_asks, self.tail_asks)
        )
        edge = torch.relu(starts[:, :, None] + ends[:, None, :])
        half = torch.cat([edge, edge.transpose(1, 2)], -1)  # [B, x, o, 2·size], [g_xo; g_ox]
        head_of_head, head_of_tail = head_asks.chunk(2, -1)
        tail_of_head, tail_of_tail = tail_asks.chunk(2, -1)
        scores = (
            torch.einsum("bhk,bhok->bho", head_of_head, half)[:, :, None]
            + torch.einsum("btk,bhok->bhto", tail_of_head, half)
            + torch.einsum("bhk,btok->bhto", head_of_tail, half)
            + torch.einsum("btk,btok->bto", tail_of_tail, half)[:, None]
        )
        is_path = edges[:, :, None, :] & edges[:, None, :, :]
        weights = torch.softmax(torch.relu(scores.float()).masked_fill(~is_path, LOWEST), -1) * is_path
        halves = [torch.einsum("bhto,bhok->bhtk", weights, half), torch.einsum("bhto,btok->bhtk", weights, half)]
        return batch.pairs(torch.cat(halves, -1))


EDGE_KINDS = 3


class RelationalConvolution(nn.Module):
    """``h_u' = relu(W_0 h_u + Σ_k 1/|N_k(u)| Σ_{v ∈ N_k(u)} W_k h_v + b)`` over the kinds k of edges."""

    def __init__(self, size: int, *, dropout: float) -> None:
        super().__init__()
        self.itself = nn.Linear(size, size)
        self.neighbours = nn.Linear(size, EDGE_KINDS * size, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        """One round of messages, ``[N, size]`` and ``[kinds, N, N]`` with rows that sum to 1 or 0, ``-> [N, size]``."""
        messages = self.neighbours(nodes).view(*nodes.shape[:1], EDGE_KINDS, nodes.shape[1]).transpose(0, 1)
        moved: Tensor = self.dropout(
            torch.relu(self.itself(nodes) + torch.bmm(edges.to(messages.dtype), messages).sum(0))
        )
        return moved


class Gain(Backbone):
    """Mentions and the document exchange messages; entities then look at all paths of two steps between them.

    The graph has a node for each mention and one for the document; edges join mentions of one entity, mentions of
    different entities in one sentence, and every mention with the document. A mention is the concatenation of its
    states over all layers, an entity e the mean of its mentions, and with p from `PathAttention`
    ``P(r|h, t) = σ(W_b relu(W_a [e_h; e_t; |e_h − e_t|; e_h ⊙ e_t; m_doc; p_ht]))``. Over a `FrozenEncoder` e goes
    through an `EntityReader` first, which knows ``words`` of names.
    """

    def __init__(
        self,
        encoder: Encoder,
        featurizer: Featurizer,
        *,
        size: int = 256,
        layers: int = 2,
        path_size: int = 128,
        words: Sequence[str] = (),
        dropout: float = 0.2,
    ) -> None:
        super().__init__(encoder, featurizer)
        self.tags = None if encoder.sees_entities else EntityTags(len(featurizer.entity_types))
        self.enter = nn.Linear(encoder.hidden_size + (self.tags.size if self.tags else 0), size)
        self.normalize = nn.LayerNorm(size)  # brings the states of every encoder to one scale; the paper has none
        self.layers = nn.ModuleList(RelationalConvolution(size, dropout=dropout) for _ in range(layers))
        entity_size = size * (1 + layers)
        self.reader = None
        if isinstance(encoder, FrozenEncoder):
            types = len(featurizer.entity_types)
            self.reader = EntityReader(encoder, entity_size, entity_size, types=types, words=words, dropout=dropout)
        self.paths = PathAttention(entity_size, size=path_size)
        self.dropout = nn.Dropout(dropout)
        # W_a in parts: what depends on one entity or the document is not computed again for each pair
        self.head = nn.Linear(entity_size, size)
        self.tail = nn.Linear(entity_size, size, bias=False)
        self.document = nn.Linear(entity_size, size, bias=False)
        self.difference = nn.Linear(entity_size, size, bias=False)
        self.product = nn.Linear(entity_size, size, bias=False)
        self.path = nn.Linear(4 * path_size, size, bias=False)
        self.scores = nn.Linear(size, len(featurizer.relations))
        nn.init.constant_(self.scores.bias, RARE)

    def forward(self, batch: DocumentBatch) -> PairLogits:
        """Score all ordered pairs of different entities in a batch."""
        states = self.encoder(batch).states
        if self.tags is not None:
            states = torch.cat([states, self.tags(batch).to(states.dtype)], -1)
        states = self.normalize(self.enter(states))
        lengths = torch.tensor(batch.lengths, device=states.device)
        real = torch.arange(states.shape[1], device=states.device)[None, :] < lengths[:, None]
        whole = (states * real[..., None]).sum(1) / lengths[:, None]
        nodes = [torch.cat([mention_means(states, batch), whole])]
        edges = mention_edges(batch)
        for layer in self.layers:
            nodes.append(layer(nodes[-1], edges))
        mentions, document = torch.cat(nodes, 1).split([len(batch.mention_entity), len(batch.documents)])  # type: ignore[no-untyped-call]
        entities = entity_means(mentions, batch)
        if self.reader is not None:
            entities = self.reader(entities, batch)
        path = self.paths(entities, entity_edges(batch), batch)
        first, second = entities.index_select(0, batch.head), entities.index_select(0, batch.tail)
        hidden = (
            self.head(entities).index_select(0, batch.head)
            + self.tail(entities).index_select(0, batch.tail)
            + self.document(document).index_select(0, batch.pair_document)
            + self.difference((first - second).abs())
            + self.product(first * second)
            + self.path(path)
        )
        return PairLogits(batch, self.scores(self.dropout(torch.relu(hidden))).float())

    def pair_losses(self, output: PairLogits) -> Tensor:
        """Return the mean cross-entropy over relations of each pair, ``[P]``."""
        return binary_cross_entropy(output.logits, output.batch.labels)


def together(batch: DocumentBatch) -> Tensor:
    """Which mentions stand in one sentence of one document, ``[M, M]``."""
    document, sentence = batch.mention_document, batch.mention_sentence
    return (document[:, None] == document) & (sentence[:, None] == sentence)


def mention_edges(batch: DocumentBatch) -> Tensor:
    """The graph of mentions (first) and documents (after them) as three matrices whose rows sum to 1 or 0."""
    mentions, documents = len(batch.mention_entity), len(batch.documents)
    same_entity = batch.mention_entity[:, None] == batch.mention_entity
    edges = torch.zeros(EDGE_KINDS, mentions + documents, mentions + documents, device=same_entity.device)
    edges[0, :mentions, :mentions] = (same_entity & ~torch.eye(mentions, dtype=torch.bool, device=edges.device)).float()
    edges[1, :mentions, :mentions] = (together(batch) & ~same_entity).float()
    mention = torch.arange(mentions, device=edges.device)
    edges[2, mention, mentions + batch.mention_document] = 1.0
    edges[2, mentions + batch.mention_document, mention] = 1.0
    return edges / edges.sum(-1, keepdim=True).clamp(min=1)


def entity_edges(batch: DocumentBatch) -> Tensor:
    """Which entities are mentioned in one sentence, ``[B, n, n]`` booleans without the diagonal."""
    size = batch.mask.shape[1]
    cell = batch.entity_cell[batch.mention_entity]
    first, second = torch.nonzero(together(batch), as_tuple=True)
    flat = torch.zeros(batch.mask.numel() * size, dtype=torch.bool, device=cell.device)
    flat[cell[first] * size + cell[second] % max(1, size)] = True
    return flat.view(len(batch.documents), size, size) & ~torch.eye(size, dtype=torch.bool, device=cell.device)
