"""Small random graphs with unary and binary predicates, and random attentions over them."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.learn.nlil.drawing import draw_rules, read_rules
from rulewright.learn.nlil.facts import StatementCodes, Vocabulary
from rulewright.learn.nlil.formulas import Alternatives, RuleReader
from rulewright.learn.nlil.generator import Attentions
from rulewright.logic import PredicateDeclaration

SIZE = 5


@st.composite
def graphs(draw: st.DrawFn) -> KnowledgeBase:
    """Return facts of two unary and two binary predicates over five entities."""
    builder = KnowledgeBaseBuilder(
        [PredicateDeclaration(name, ("entity",)) for name in ("a", "b")]
        + [PredicateDeclaration(name, ("entity", "entity")) for name in ("p", "q")]
    )
    for entity in range(SIZE):
        builder.add("a" if entity % 2 else "b", [str(entity)])
    entities = st.integers(0, SIZE - 1)
    for name in ("a", "b"):
        for one in draw(st.sets(entities, max_size=4)):
            builder.add(name, [str(one)])
    for name in ("p", "q"):
        for one, other in draw(st.sets(st.tuples(entities, entities), max_size=8)):
            builder.add(name, [str(one), str(other)])
    return builder.build()


def random_attentions(
    kb: KnowledgeBase, arity: int, *, seed: int, groups: int = 2, chains: int = 2, steps: int = 2, levels: int = 2
) -> Attentions:
    """Return attentions of random logits, in double precision."""
    vocabulary = Vocabulary.from_facts(kb)
    random = torch.Generator().manual_seed(seed)
    statements = len(StatementCodes(arity, vocabulary))

    def soft(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64).mul(2).softmax(-1)

    below, combined = statements, []
    for _ in range(levels):
        combined.append((soft(groups, 3, 2 * below), soft(groups, 3, 2 * below)))
        below = 3
    return Attentions(
        soft(groups, chains, steps, vocabulary.n_operators),
        soft(groups, statements, 1 + steps * chains),
        soft(groups, statements, 1 + steps * chains) if arity == 2 else None,
        tuple(combined),
        soft(groups, statements + 3 * levels),
    )


def read_some(attentions: Attentions, reader: RuleReader, statements: int, seed: int) -> list[Alternatives]:
    """Return the likeliest rule of each group, and one that was drawn."""
    groups = torch.arange(len(attentions.output))
    drawn = [draw_rules(attentions, groups), draw_rules(attentions, groups, random=torch.Generator().manual_seed(seed))]
    return [rule for draws in drawn for rule in read_rules(draws, reader, statements)]
