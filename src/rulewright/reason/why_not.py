"""Why a fact does not follow: the rules that come nearest, and what each of them misses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from rulewright.logic import Comparison, Formula, Head, Literal, Term, Variable, substitute, variables
from rulewright.reason.batches import Batch
from rulewright.reason.fact_codes import Key, fact_of
from rulewright.reason.instances import Instances
from rulewright.reason.program import Derivation, positive_atoms
from rulewright.reason.proofs import NearMiss

SHOWN = 5
_LOOKED_AT = 200  # rows of a statement, among which each rule is taken once


def near_misses(goal: Key, instances: Instances) -> tuple[NearMiss, ...]:
    """Return the rules that miss least for a fact, the most confident first; each rule once."""
    longest = max((len(batch.body) for batch in instances.batches), default=0)
    for count in range(1, longest + 1):
        found: dict[int, NearMiss] = {}
        for batch in instances.batches:
            for dropped in combinations(range(len(batch.body)), count):
                for miss in _missing(batch, dropped, goal, instances):
                    found.setdefault(miss.number, miss)
        if found:
            ordered = sorted(found.values(), key=lambda miss: (-miss.score, miss.number))
            return tuple(ordered[:SHOWN])
    return ()


def _missing(batch: Batch, dropped: Sequence[int], goal: Key, instances: Instances) -> Iterator[NearMiss]:
    """Yield the instances of a batch that hold but for some literals."""
    left = [place for place in range(len(batch.body)) if place not in dropped]
    body = tuple(batch.body[place] for place in left)
    bound = {term for unit in (batch.head, *positive_atoms(body)) for term in variables(unit)}
    loose = [each for each in body if not each.positive or isinstance(each.unit, Comparison)]
    if any(set(variables(each.unit)) - bound for each in loose):
        return  # what is left has no meaning without what was dropped; more must be
    part = replace(batch, body=body)
    join = instances.join(part, goal)
    if join is None:
        return
    atoms = positive_atoms(body)
    columns = ", ".join(["r.d AS d", "r.s AS s", *instances.fact_columns(atoms)])
    rows = instances.engine.run(join.select(columns, f" ORDER BY s DESC, d LIMIT {_LOOKED_AT}"))
    keys = instances.keys(rows, atoms)
    kb = instances.program.kb
    for row, place in enumerate(rows["d"].tolist()):
        derivation = instances.program.derivations[place]
        facts = [fact_of(each[row], kb) for each in keys]
        atoms_left = positive_atoms(derivation.body[number] for number in left)
        mapping = bindings([(derivation.head, fact_of(goal, kb)), *zip(atoms_left, facts, strict=True)])
        yield NearMiss(
            derivation.source,
            derivation.number,
            derivation.confidence,
            tuple(filled(derivation, left, mapping)),
            tuple(filled(derivation, dropped, mapping)),
        )


def bindings(matches: Iterable[tuple[Head, Head]]) -> dict[Variable, Term]:
    """Return what variables stand for when atoms match facts."""
    return {
        term: value
        for unit, fact in matches
        for term, value in zip(unit.args, fact.args, strict=True)
        if isinstance(term, Variable)
    }


def filled(derivation: Derivation, chosen: Iterable[int], mapping: dict[Variable, Term]) -> Iterator[Formula]:
    """Yield some literals of a derivation's body with their variables filled in."""
    for place in chosen:
        literal: Literal = derivation.body[place]
        if isinstance(literal.unit, Comparison) and not literal.positive:
            literal = Literal(literal.unit.opposite())
        yield substitute(literal.formula(), mapping)
