"""Which entities are inferred together: a world, or samples of its entities where the parameters ask for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rulewright.data.facts import Column
from rulewright.errors import DataError
from rulewright.learn.markov.facts import GroundFacts, Members
from rulewright.learn.markov.network import MarkovNetwork
from rulewright.logic import PredicateDeclaration

Rows = Mapping[str, tuple[Column, ...]]
"""For each predicate the atoms of interest, as columns of ids."""


def fit_sizes(network: MarkovNetwork, world: Members) -> dict[str, int]:
    """Return how many entities of each type are inferred together: all, or as many as the parameters ask for."""
    sizes = {type_name: len(ids) for type_name, ids in world.items()}
    sample = network.parameters.sample
    if sample is None:
        return sizes
    fewest = {type_name: len(network.facts.constants.get(type_name, ())) + 2 for type_name in sizes}
    return {type_name: min(size, max(sample, fewest[type_name])) for type_name, size in sizes.items()}


def take_first(network: MarkovNetwork, world: Members, sizes: Mapping[str, int]) -> Members:
    """Return so many entities of a world, the constants of the rules among them."""
    members = {}
    for type_name, ids in world.items():
        constants = _constants(network.facts, type_name, ids)
        ordered = np.concatenate([constants, np.setdiff1d(ids, constants)])
        members[type_name] = np.sort(ordered[: max(sizes[type_name], len(constants))])
    return members


def _constants(facts: GroundFacts, type_name: str, like: Column) -> Column:
    return np.array(sorted(facts.constants.get(type_name, ())), dtype=like.dtype)


def cover_rows(network: MarkovNetwork, world: Members, rows: Rows, random: np.random.Generator) -> Iterator[Members]:
    """Yield entities that together cover all given atoms of a world: the world at once where it fits.

    A sample starts with the entities of some of the atoms, goes on with those that share facts with them, and is filled
    up at random; the constants of the rules are always in it.
    """
    facts, sizes = network.facts, fit_sizes(network, world)
    left = {name: columns for name, columns in _keep_inside(facts, world, rows).items() if len(columns[0])}
    if all(sizes[type_name] == len(ids) for type_name, ids in world.items()):
        if left:
            yield world
        return
    while left:
        name, columns = next(iter(left.items()))
        start = _first_entities(facts, facts.declared[name], columns, sizes, random)
        members = fill_sample(facts, world, start, sizes, random)
        yield members
        uncovered = {name: ~facts.find_rows(name, columns, members)[1] for name, columns in left.items()}
        left = {name: tuple(column[uncovered[name]] for column in columns) for name, columns in left.items()}
        left = {name: columns for name, columns in left.items() if len(columns[0])}


def draw_sample(network: MarkovNetwork, world: Members, random: np.random.Generator) -> Members:
    """Return a random sample of a world's entities, around a fact where there are any; the world where it fits."""
    sizes = fit_sizes(network, world)
    if all(sizes[type_name] == len(ids) for type_name, ids in world.items()):
        return world
    return fill_sample(network.facts, world, draw_fact(network.facts, world, random), sizes, random)


def draw_fact(facts: GroundFacts, world: Members, random: np.random.Generator) -> dict[str, Column]:
    """Return the entities of a random fact; none where there is none."""
    known = {
        name: facts.kb.columns(name)[: declaration.arity]
        for name, declaration in facts.declared.items()
        if name in facts.kb.predicates
    }
    rows = _keep_inside(facts, world, known)
    names = [name for name, columns in rows.items() if len(columns[0])]
    if not names:
        return {}
    name = names[random.integers(len(names))]
    row = random.integers(len(rows[name][0]))
    return _collect_entities(facts.declared[name], tuple(column[row : row + 1] for column in rows[name]))


def _keep_inside(facts: GroundFacts, world: Members, rows: Rows) -> dict[str, tuple[Column, ...]]:
    """Keep the atoms whose entities are all of a world."""
    inside = {name: facts.find_rows(name, columns, world)[1] for name, columns in rows.items()}
    return {name: tuple(column[inside[name]] for column in columns) for name, columns in rows.items()}


def _collect_entities(declaration: PredicateDeclaration, columns: tuple[Column, ...]) -> dict[str, Column]:
    """Return the entities of some atoms by type, in order."""
    entities: dict[str, Column] = {}
    for type_name, column in zip(declaration.types, columns, strict=True):
        entities[type_name] = np.union1d(entities.get(type_name, column[:0]), column)
    return entities


def _first_entities(
    facts: GroundFacts,
    declaration: PredicateDeclaration,
    columns: tuple[Column, ...],
    sizes: Mapping[str, int],
    random: np.random.Generator,
) -> dict[str, Column]:
    """Return the entities of as many random rows as half of a sample holds, of one at least."""
    order = random.permutation(len(columns[0]))
    shuffled = tuple(column[order] for column in columns)
    low, high = 1, len(order)
    while low < high:
        middle = (low + high + 1) // 2
        entities = _collect_entities(declaration, tuple(column[:middle] for column in shuffled))
        fits = all(len(ids) <= sizes[type_name] // 2 for type_name, ids in entities.items())
        low, high = (middle, high) if fits else (low, middle - 1)
    entities = _collect_entities(declaration, tuple(column[:low] for column in shuffled))
    for type_name, ids in entities.items():
        if len(np.union1d(ids, _constants(facts, type_name, ids))) > sizes[type_name]:
            raise DataError(
                f"a sample of {sizes[type_name]} of type {type_name} is too small for an atom of {declaration.name} "
                "and the constants of the rules; raise sample"
            )
    return entities


def fill_sample(
    facts: GroundFacts,
    world: Members,
    start: Mapping[str, Column],
    sizes: Mapping[str, int],
    random: np.random.Generator,
) -> Members:
    """Fill a sample up to its sizes: the start and constants, then entities that share facts with them, then others."""
    near = _neighbours(facts, start)
    sample: dict[str, Column] = {}
    for type_name, ids in world.items():
        first = np.union1d(start.get(type_name, ids[:0]), _constants(facts, type_name, ids))
        sample[type_name] = first.astype(ids.dtype)
        for more in (near.get(type_name, ids[:0]), ids):
            left = np.setdiff1d(np.intersect1d(more, ids), sample[type_name])
            room = sizes[type_name] - len(sample[type_name])
            chosen = left if len(left) <= room else random.choice(left, size=max(room, 0), replace=False)
            sample[type_name] = np.union1d(sample[type_name], chosen).astype(ids.dtype)
    return sample


def _neighbours(facts: GroundFacts, start: Mapping[str, Column]) -> dict[str, Column]:
    """Return the entities of all true facts that name one of the given."""
    known = np.concatenate([np.empty(0, dtype=np.int64), *start.values()])
    neighbours: dict[str, list[Column]] = {}
    for name, declaration in facts.declared.items():
        if name not in facts.kb.predicates:
            continue
        columns = facts.kb.columns(name)[: declaration.arity]
        is_touched = np.any([np.isin(column, known) for column in columns], axis=0)
        for type_name, column in zip(declaration.types, columns, strict=True):
            neighbours.setdefault(type_name, []).append(column[is_touched])
    return {type_name: np.unique(np.concatenate(parts)) for type_name, parts in neighbours.items()}
