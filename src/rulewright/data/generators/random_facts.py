"""Random facts over given types and predicates, for property tests and for benchmarks of any size."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rulewright.checks import SHARE, Real, Whole, check_parameter
from rulewright.data.facts import Column
from rulewright.data.generators.generated import LARGEST_SPACE, Generated, build, draw_keys
from rulewright.data.index import Ids, decode_rows, range_starts
from rulewright.data.vocabulary import Domain, lay_out_domains
from rulewright.errors import DataError, unknown_name
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration, RuleSet, parse_rules


def random_graph(
    sizes: Mapping[str, int],
    declarations: str | RuleSet,
    *,
    facts: int | Mapping[str, int] | None = None,
    density: float | None = None,
    worlds: int = 1,
    false_share: float = 0.0,
    numbers: int = 100,
    seed: int = 0,
) -> Generated:
    """Return facts drawn uniformly, without repetition, over the declared predicates; nothing else holds of them.

    ``sizes`` gives the number of entities of each type, ``declarations`` the predicates (of any arity, multi-class
    too) in the rule language. ``facts`` is the number of true facts, spread evenly over the predicates, or a number
    for each; ``density`` is instead the share of all possible ones. For each true fact of a predicate without
    classes there are ``false_share`` observed to be false. Entities are spread evenly over ``worlds``, which no fact
    crosses. Numeric arguments are whole numbers below ``numbers``.

    >>> text = "predicate likes(person, person). predicate age(person, number). predicate mood(person) in {good, bad}."
    >>> generated = random_graph({"person": 50}, text, facts=60, false_share=0.5, worlds=5, seed=1)
    >>> generated.kb
    KnowledgeBase(50 entities, 3 predicates, 60 facts, 20 observed false, 5 worlds)
    >>> generated.kb.tuples("mood")[:2]
    [('person_35', 'good'), ('person_18', 'bad')]
    """
    for type_name, size in sizes.items():
        check_parameter(f"the size of {type_name}", size, Whole(0))
    check_parameter("worlds", worlds, Whole(1))
    check_parameter("numbers", numbers, Whole(1))
    check_parameter("false_share", false_share, Real(0))
    rules = parse_rules(declarations) if isinstance(declarations, str) else declarations
    for declaration in rules.predicates:
        for type_name in declaration.types:
            if type_name != NUMBER_TYPE and type_name not in sizes:
                raise unknown_name("type", type_name, sizes)

    domains = lay_out_domains(
        (
            type_name,
            [f"{type_name}_{position}" for position in range(size)],
            (np.arange(size, dtype=np.int64) * worlds // max(size, 1)).astype(np.int32) if worlds > 1 else None,
        )
        for type_name, size in sizes.items()
    )
    spaces = {declaration.name: _RowSpace(declaration, domains, worlds, numbers) for declaration in rules.predicates}
    counts = _choose_counts(spaces, facts, density)
    random = np.random.default_rng(seed)
    true: dict[str, list[Column]] = {}
    false: dict[str, list[Column]] = {}
    for name, space in spaces.items():
        classes, n_true = space.declaration.classes, counts[name]
        n_false = round(false_share * n_true) if classes is None else 0
        if n_true + n_false > space.room:
            raise DataError(f"{name} has room for {space.room:,} facts, got a wish for {n_true + n_false:,}")
        rows = space.decode(draw_keys(random, space=space.room, count=n_true + n_false))
        true[name] = [column[:n_true] for column in rows]
        if n_false:
            false[name] = [column[n_true:] for column in rows]
        if classes is not None:
            true[name].append(random.integers(len(classes), size=n_true, dtype=np.int32))
    names = [f"world_{position}" for position in range(worlds)] if worlds > 1 else ()
    return build(rules, domains, true, false, worlds=names)


def _choose_counts(
    spaces: Mapping[str, _RowSpace], facts: int | Mapping[str, int] | None, density: float | None
) -> dict[str, int]:
    """Return the number of true facts that each predicate is to have."""
    if (facts is None) == (density is None):
        raise DataError("give either facts or density")
    if density is not None:
        check_parameter("density", density, SHARE)
        return {name: round(density * space.room) for name, space in spaces.items()}
    if isinstance(facts, Mapping):
        for name, count in facts.items():
            if name not in spaces:
                raise unknown_name("predicate", name, spaces)
            check_parameter(f"the facts of {name}", count, Whole(0))
        return {name: facts.get(name, 0) for name in spaces}
    assert facts is not None
    check_parameter("facts", facts, Whole(0))
    return {name: (facts + len(spaces) - 1 - position) // len(spaces) for position, name in enumerate(spaces)}


class _RowSpace:
    """The keys of all rows a predicate can have: world by world, and in each world in mixed radix."""

    def __init__(
        self, declaration: PredicateDeclaration, domains: Mapping[str, Domain], worlds: int, numbers: int
    ) -> None:
        self.declaration = declaration
        self.numeric = [type_name == NUMBER_TYPE for type_name in declaration.types]
        # A predicate of numbers alone belongs to no world: its rows are counted once
        self.worlds = 1 if all(self.numeric) else worlds
        self.sizes: list[Ids] = []
        self.firsts: list[Ids] = []
        for type_name in declaration.types:
            if type_name == NUMBER_TYPE:
                self.sizes.append(np.full(self.worlds, numbers))
                self.firsts.append(np.zeros(self.worlds, dtype=np.int64))
            else:
                domain = domains[type_name]
                entity_worlds = np.zeros(len(domain), dtype=np.int32) if domain.worlds is None else domain.worlds
                sizes = np.bincount(entity_worlds, minlength=self.worlds)
                self.sizes.append(sizes)
                self.firsts.append(domain.start + range_starts(sizes))
        products = [int(np.prod(sizes, dtype=object)) for sizes in zip(*self.sizes, strict=True)]
        self.room = sum(products)
        if self.room > LARGEST_SPACE:
            raise DataError(f"{declaration.name} has {self.room:,} possible facts, more than can be numbered")
        self.starts = range_starts(products)

    def decode(self, keys: Ids) -> list[Column]:
        """Turn keys into columns of entity indices and numbers."""
        ends = self.starts[1:]
        world = np.searchsorted(ends, keys, side="right") if self.worlds > 1 else np.zeros(1, dtype=np.int64)
        digits = decode_rows(keys - self.starts[world], [sizes[world] for sizes in self.sizes])
        return [
            (digit + firsts[world]).astype(np.float64 if numeric else np.int32)
            for digit, firsts, numeric in zip(digits, self.firsts, self.numeric, strict=True)
        ]
