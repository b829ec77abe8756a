"""Horn clauses over pairs arranged for dense tensors: same shape together, same body once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from rulewright.inject.pair_rules import PairClause

Pair: TypeAlias = tuple[int, int]


@dataclass(frozen=True)
class RuleGroup:
    """Rules whose bodies join the same pairs of variables; only the relations differ.

    Variables 0 and 1 are those of the head, the others are the body's own. Each body atom stands on a pair
    (a, b) with a < b; ``slices`` gives for every body and atom the oriented relation that is meant, a number in the
    list that `arranged` returns. ``heads`` has the heads of every body as (oriented relation, offset), where the
    offset is ``log(η · confidence)``; bodies with more heads come first.
    """

    variables: int
    pairs: tuple[Pair, ...]
    slices: tuple[tuple[int, ...], ...]
    heads: tuple[tuple[tuple[int, float], ...], ...]

    def uncovered(self) -> list[Pair]:
        """Return the pairs of variables that no atom joins: their entities must still differ."""
        covered = {*self.pairs, (0, 1)}
        every = ((a, b) for b in range(self.variables) for a in range(b))
        return [pair for pair in every if pair not in covered]


def arranged(
    clauses: Iterable[PairClause], slack: Callable[[int], float]
) -> tuple[list[tuple[int, bool]], list[RuleGroup]]:
    """Group clauses by shape and body; return the oriented relations (relation, inverse) they use, and the groups.

    ``slack(length)`` is ``-log η`` for a body of that length. A rule of confidence 0 asks for nothing and is left out.
    """
    oriented: dict[tuple[int, bool], int] = {}
    shapes: dict[tuple[int, tuple[Pair, ...]], dict[tuple[int, ...], list[tuple[int, float]]]] = {}
    for clause in clauses:
        if clause.confidence == 0:
            continue
        head = clause.heads[0]
        own = [variable for variable in range(len(clause.variables)) if variable not in head[1:]]
        standard = clause.renumbered([head.first, head.second, *own])
        atoms = sorted(
            ((min(each[1:]), max(each[1:])), (each.relation, each.first > each.second)) for each in standard.body
        )
        pairs = tuple(pair for pair, _ in atoms)
        slices = tuple(oriented.setdefault(relation, len(oriented)) for _, relation in atoms)
        head_slice = oriented.setdefault((head.relation, False), len(oriented))
        offset = math.log(clause.confidence) - slack(len(atoms))
        bodies = shapes.setdefault((len(clause.variables), pairs), {})
        bodies.setdefault(slices, []).append((head_slice, offset))
    groups = []
    for (variables, pairs), bodies in shapes.items():
        ranked = sorted(bodies.items(), key=lambda item: -len(item[1]))
        groups.append(
            RuleGroup(
                variables, pairs, tuple(slices for slices, _ in ranked), tuple(tuple(heads) for _, heads in ranked)
            )
        )
    return list(oriented), groups
