"""Which entities are inferred together: a world, or samples of its entities where it is too large for dense tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rulewright.errors import DataError, MemoryLimitError
from rulewright.inject.layer.inputs import InputShape
from rulewright.inject.layer.plan import limit_memory
from rulewright.learn.markov.facts import GroundFacts, Ids, Members, positions
from rulewright.learn.markov.network import MarkovNetwork
from rulewright.logic import PredicateDeclaration

Rows = Mapping[str, tuple[Ids, ...]]
"""For each predicate the atoms of interest, as columns of ids."""

DENSE_SHARE = 0.25
"""The share of the allowed memory that potentials and evidence may take, beside the contractions."""


def sizes_that_fit(network: MarkovNetwork, world: Members) -> dict[str, int]:
    """Return how many entities of each type are inferred together: all, or what the options or memory allow."""
    sizes = {kind: len(ids) for kind, ids in world.items()}
    sample = network.options.sample
    if sample is None:
        return sizes
    fewest = {kind: len(network.facts.constants.get(kind, ())) + 2 for kind in sizes}
    if isinstance(sample, int):
        return {kind: min(size, max(sample, fewest[kind])) for kind, size in sizes.items()}
    allowed = limit_memory(network.options.memory_limit)
    most = max(sizes.values(), default=1)
    while _needed(network, world, sizes) > allowed:
        if all(size <= fewest[kind] for kind, size in sizes.items()):
            raise MemoryLimitError("not even a few entities of each type fit into memory; raise memory_limit")
        most //= 2
        sizes = {kind: min(size, max(most, fewest[kind])) for kind, size in sizes.items()}
    return sizes


def _needed(network: MarkovNetwork, world: Members, sizes: Mapping[str, int]) -> int:
    """Return the bytes that inference over so many entities takes, at least."""
    facts = network.facts
    dense = 0
    for each in facts.declared.values():
        count = 1
        for kind in each.types:
            count *= sizes[kind]
        dense += 10 * count  # potentials and log-odds of 4 bytes, value and observed of 1
    if dense > DENSE_SHARE * (limit_memory(network.options.memory_limit)):
        return 2**62
    members = {kind: _with_constants(facts, kind, ids, sizes[kind]) for kind, ids in world.items()}
    layer, options = network.layer(members), network.options
    shape = InputShape(tuple(sorted((kind, sizes[kind]) for kind in layer.grounding.types)), observed=facts.closed)
    plan = layer.planner.plan(shape)
    training = network.weights.requires_grad or options.training == "end_to_end"
    return dense + plan.memory(iterations=max(1, options.iterations), training=training)


def _with_constants(facts: GroundFacts, kind: str, ids: Ids, size: int) -> Ids:
    constants = np.array(sorted(facts.constants.get(kind, ())), dtype=ids.dtype)
    return np.sort(np.concatenate([constants, np.setdiff1d(ids, constants)])[: max(size, len(constants))])


def covering(network: MarkovNetwork, world: Members, wanted: Rows, random: np.random.Generator) -> Iterator[Members]:
    """Yield entities that together cover all wanted atoms of a world: the world at once where it fits.

    A sample starts with the entities of some wanted atoms, goes on with those that share facts with them, and is filled
    up at random; the constants of the rules are always in it.
    """
    sizes = sizes_that_fit(network, world)
    rows = {name: columns for name, columns in _inside(network.facts, world, wanted).items() if len(columns[0])}
    if all(sizes[kind] == len(ids) for kind, ids in world.items()):
        if rows:
            yield world
        return
    while rows:
        name = next(iter(rows))
        start = _first_entities(network.facts, network.facts.declared[name], rows[name], sizes, random)
        members = filled(network.facts, world, start, sizes, random)
        yield members
        rows = {
            name: tuple(column[~inside] for column in columns)
            for name, columns in rows.items()
            for inside in [_covered(network.facts, name, columns, members)]
            if not inside.all()
        }


def drawn(network: MarkovNetwork, world: Members, random: np.random.Generator) -> Members:
    """Return a random sample of a world's entities, around a fact where there are any; the world where it fits."""
    sizes = sizes_that_fit(network, world)
    if all(sizes[kind] == len(ids) for kind, ids in world.items()):
        return world
    return filled(network.facts, world, some_fact(network.facts, world, random), sizes, random)


def some_fact(facts: GroundFacts, world: Members, random: np.random.Generator) -> dict[str, Ids]:
    """Return the entities of a random fact; none where there is none."""
    known = {name: facts.kb.columns(name) for name in facts.declared if name in facts.kb.predicates}
    rows = _inside(facts, world, known)
    names = [name for name, columns in rows.items() if len(columns[0])]
    if not names:
        return {}
    name = names[random.integers(len(names))]
    row = random.integers(len(rows[name][0]))
    found: dict[str, Ids] = {}
    for kind, column in zip(facts.declared[name].types, rows[name], strict=True):
        found[kind] = np.union1d(found.get(kind, column[:0]), column[row : row + 1])
    return found


def _inside(facts: GroundFacts, world: Members, wanted: Rows) -> dict[str, tuple[Ids, ...]]:
    found = {}
    for name, columns in wanted.items():
        inside = _covered(facts, name, columns, world)
        found[name] = tuple(column[inside] for column in columns)
    return found


def _covered(facts: GroundFacts, name: str, columns: tuple[Ids, ...], members: Members) -> Ids:
    return positions(columns, [members[kind] for kind in facts.declared[name].types])[1]


def _first_entities(
    facts: GroundFacts,
    declaration: PredicateDeclaration,
    columns: tuple[Ids, ...],
    sizes: Mapping[str, int],
    random: np.random.Generator,
) -> dict[str, Ids]:
    """Return the entities of as many random rows as half of a sample holds, of one at least."""
    order = random.permutation(len(columns[0]))

    def entities(count: int) -> dict[str, Ids]:
        found: dict[str, Ids] = {}
        for kind, column in zip(declaration.types, columns, strict=True):
            found[kind] = np.union1d(found.get(kind, column[:0]), column[order[:count]])
        return found

    low, high = 1, len(order)
    while low < high:
        middle = (low + high + 1) // 2
        fits = all(len(ids) <= sizes[kind] // 2 for kind, ids in entities(middle).items())
        low, high = (middle, high) if fits else (low, middle - 1)
    found = entities(low)
    for kind, ids in found.items():
        if len(np.union1d(ids, sorted(facts.constants.get(kind, ())))) > sizes[kind]:
            raise DataError(
                f"a sample of {sizes[kind]} of type {kind} is too small for an atom of {declaration.name} and the "
                "constants of the rules; raise sample"
            )
    return found


def filled(
    facts: GroundFacts, world: Members, start: Mapping[str, Ids], sizes: Mapping[str, int], random: np.random.Generator
) -> Members:
    """Fill a sample up to its sizes: the start and constants, then entities that share facts with them, then others."""
    near = _neighbours(facts, start)
    found: dict[str, Ids] = {}
    for kind, ids in world.items():
        first = np.union1d(start.get(kind, ids[:0]), np.array(sorted(facts.constants.get(kind, ())), dtype=ids.dtype))
        found[kind] = first.astype(ids.dtype)
        for more in (near.get(kind, ids[:0]), ids):
            left = np.setdiff1d(np.intersect1d(more, ids), found[kind])
            room = sizes[kind] - len(found[kind])
            chosen = left if len(left) <= room else random.choice(left, size=max(room, 0), replace=False)
            found[kind] = np.union1d(found[kind], chosen).astype(ids.dtype)
    return found


def _neighbours(facts: GroundFacts, start: Mapping[str, Ids]) -> dict[str, Ids]:
    """Return the entities of all true facts that name one of the given."""
    known = np.concatenate([np.empty(0, dtype=np.int64), *start.values()])
    found: dict[str, list[Ids]] = {}
    for name, each in facts.declared.items():
        if name not in facts.kb.predicates:
            continue
        columns = facts.kb.columns(name)
        touched = np.zeros(len(columns[0]), dtype=bool)
        for column in columns:
            touched |= np.isin(column, known)
        for kind, column in zip(each.types, columns, strict=True):
            found.setdefault(kind, []).append(column[touched])
    return {kind: np.unique(np.concatenate(parts)) for kind, parts in found.items()}
