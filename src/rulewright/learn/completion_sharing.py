"""What ``r(X, ?)`` learned of a path also speaks for ``r(?, X)``: both directions ask about the same facts."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rulewright.engine.walks import Path, mirrored
from rulewright.learn.completion_target import Target
from rulewright.reason.evidence import CLOSED, RuleTable


def with_shared(learned: Mapping[int, Target], share: float) -> dict[int, Target]:
    """Add to each path's weight ``share`` times what it weighs in the other direction.

    >>> def target(relation, path, weight):
    ...     return Target(RuleTable.of_paths(relation, [path]), np.array([weight]), np.ones(1), np.ones(1))
    >>> found = with_shared({0: target(0, (2, 4), 1.0), 1: target(1, (5, 3), 2.0)}, 0.5)
    >>> found[0].weights.tolist(), found[1].weights.tolist()
    ([2.0], [2.5])
    """
    if share == 0:
        return dict(learned)
    return {
        relation: _joined(target, learned[relation ^ 1], share) if relation ^ 1 in learned else target
        for relation, target in learned.items()
    }


def _joined(target: Target, other: Target, share: float) -> Target:
    own = _closed(target)
    back = {mirrored(path): place for path, place in _closed(other).items()}
    weights = target.weights.copy()
    both = [path for path in own if path in back]
    weights[[own[path] for path in both]] += share * other.weights[[back[path] for path in both]]
    more = [path for path in back if path not in own]
    places = np.array([back[path] for path in more], dtype=np.int64)
    table = target.table.joined(RuleTable.of_paths(target.table.relation, more, target.table.ways))
    return Target(
        table,
        np.concatenate([weights, share * other.weights[places]]),
        np.concatenate([target.support, other.support[places]]),
        np.concatenate([target.body, other.body[places]]),
        target.seconds,
    )


def _closed(target: Target) -> dict[Path, int]:
    """Return where the rule of each path stands."""
    table = target.table
    return {table.paths[table.path[place]]: int(place) for place in np.flatnonzero(table.kind == CLOSED)}
