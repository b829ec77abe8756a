"""Explaining a fact: its best proofs, what they all rest on, or why there is none."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import combinations, count
from threading import RLock
from types import TracebackType
from typing import NamedTuple, Self

from rulewright.data import KnowledgeBase, Value
from rulewright.engine import Engine
from rulewright.errors import DataError
from rulewright.logic import (
    Comparison,
    Formula,
    Head,
    Literal,
    Membership,
    Number,
    Rule,
    RuleSet,
    Term,
    Variable,
    substitute,
    variables,
)
from rulewright.reason.batches import Batch
from rulewright.reason.instances import MOST, Instance, Instances, Key, fact_of, key_of, read_fact
from rulewright.reason.program import Derivation, Program, positive_atoms
from rulewright.reason.proofs import Explanation, NearMiss, Proof, Status

Expand = Callable[[Key], Sequence[Instance]]
"""Returns the instances that give a fact, those with the highest bound first."""


class _Open(NamedTuple):
    """A fact still to be proved: how deep its proof may be, and the facts it stands below."""

    key: Key
    depth: int
    above: frozenset[Key]
    bound: float


class _Partial(NamedTuple):
    """A proof on its way: the instances chosen, from top to bottom and left to right, and what is open."""

    score: float
    chosen: tuple[Instance, ...]
    open: tuple[_Open, ...]

    @property
    def bound(self) -> float:
        """The highest score that a completion can have."""
        bound = self.score
        for each in self.open:
            bound *= each.bound
        return bound


def best_first(goal: Key, depth: int, expand: Expand, confidences: Sequence[float]) -> Iterator[tuple[Instance, ...]]:
    """Yield the proofs of a fact, the best first: the instances of each from top to bottom and left to right.

    A fact's bound is the score of its best proof of any depth, so that no completion of a partial proof scores higher
    than what it has times the bounds of what is open, and the first complete one to come up is the best. No fact
    rests on itself.
    """
    order = count()
    start = _Partial(1.0, (), (_Open(goal, depth, frozenset(), 1.0),))
    queue: list[tuple[float, int, _Partial, int]] = [(-1.0, next(order), start, 0)]
    while queue:
        _, _, partial, place = heapq.heappop(queue)
        if not partial.open:
            yield partial.chosen
            continue
        first, *rest = partial.open
        choices = expand(first.key)
        while place < len(choices) and not _allowed(choices[place], first):
            place += 1
        if place == len(choices):
            continue
        chosen = choices[place]
        above = first.above | {first.key}
        below = [
            _Open(key, first.depth - 1, above, score)
            for key, known, score in zip(chosen.premises, chosen.known, chosen.scores, strict=True)
            if not known
        ]
        child = _Partial(partial.score * confidences[chosen.place], (*partial.chosen, chosen), (*below, *rest))
        heapq.heappush(queue, (-child.bound, next(order), child, 0))
        if place + 1 < len(choices):
            left = partial.score * choices[place + 1].bound
            for each in rest:
                left *= each.bound
            heapq.heappush(queue, (-left, next(order), partial, place + 1))


def _allowed(instance: Instance, goal: _Open) -> bool:
    if goal.depth < 1 or (goal.depth == 1 and not all(instance.known)):
        return False
    return goal.key not in instance.premises and not any(key in goal.above for key in instance.premises)


class _TooMany(Exception):  # noqa: N818 - it is no error, but the end of a search
    """More facts would have to be looked at than allowed."""


def common(goal: Key, depth: int, expand: Expand, most: int) -> frozenset[Key] | None:
    """Return the known facts that every proof up to a depth rests on; None where more than ``most`` facts are involved.

    What all proofs of a fact share is what the proofs by each of its instances share, taken together: for one
    instance the union over its premises, for several the intersection.
    """
    found: dict[tuple[Key, int], frozenset[Key] | None] = {}

    def shared(key: Key, left: int) -> frozenset[Key] | None:
        """Return what the proofs of a fact share, None where it has none."""
        if (key, left) in found:
            return found[key, left]
        if len(found) >= most:
            raise _TooMany
        of_all: frozenset[Key] | None = None
        for instance in expand(key) if left else ():
            if left == 1 and not all(instance.known):
                continue
            parts = [
                frozenset([premise]) if known else shared(premise, left - 1)
                for premise, known in zip(instance.premises, instance.known, strict=True)
            ]
            union = frozenset[Key]().union(*(part for part in parts if part is not None))
            if None not in parts:
                of_all = union if of_all is None else of_all & union
            if of_all is not None and not of_all:
                break
        found[key, left] = of_all
        return of_all

    try:
        return shared(goal, depth) or frozenset()
    except _TooMany:
        return None


SHOWN = 5
_LOOKED_AT = 200  # rows of a statement, among which each rule is taken once


def near_misses(goal: Key, instances: Instances) -> tuple[NearMiss, ...]:
    """Return the rules that miss least for a fact, the most confident first; each rule once."""
    longest = max((len(batch.body) for batch in instances.batches), default=0)
    for missing in range(1, longest + 1):
        found: dict[int, NearMiss] = {}
        for batch in instances.batches:
            for dropped in combinations(range(len(batch.body)), missing):
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


MAX_PROOFS = 1_000
"""How many proofs are returned where all are asked for."""

_MAX_SHARED = 300  # facts looked at to find what all proofs share


def explain(
    rules: RuleSet | Rule | Iterable[Rule],
    kb: KnowledgeBase,
    fact: str | Head | Sequence[Value],
    *,
    k: int | None = 1,
    depth: int | None = None,
) -> Explanation:
    """Say why a fact follows from rules and facts, or why not.

    Returns the ``k`` best proofs (None: all, up to `MAX_PROOFS`); a proof's score is the product of the confidences of
    the rules in it. ``depth`` is the most rules applied one after the other; with None proofs are one rule deep, and
    only where there are none the rules are chained to their fixed point. The fact is text, an atom, or a tuple
    (predicate, argument, …). Who asks more than once keeps an `Explainer`.

    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> rules = parse_rules("0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).")
    >>> print(explain(rules, kb, "grandparent_of(ann, cid)"))
    grandparent_of(ann, cid)  0.9
    └─ by 0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).
       ├─ parent_of(ann, bob)  known
       └─ parent_of(bob, cid)  known
    rests on parent_of(ann, bob), parent_of(bob, cid)
    >>> print(explain(rules, kb, "grandparent_of(bob, ann)"))
    grandparent_of(bob, ann) does not follow
    nearest:
    0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).
       parent_of(bob, cid) holds
       parent_of(cid, ann) is missing
    """
    with Explainer(rules, kb) as explainer:
        return explainer.explain(fact, k=k, depth=depth)


class Explainer:
    """Explains facts of one knowledge base, one after the other, with what rules and facts need loaded once.

    ``max_facts`` bounds what is chained for proofs of more than one rule. Several threads may ask; they take turns.

    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([("ann", "spouse_of", "al")])
    >>> with Explainer(parse_rules("spouse_of(X, Y) :- spouse_of(Y, X)."), kb) as explainer:
    ...     explainer.explain(("spouse_of", "al", "ann")).status, explainer.explain("spouse_of(al, al)").status
    ('inferred', 'unknown')
    """

    def __init__(
        self,
        rules: RuleSet | Rule | Iterable[Rule],
        kb: KnowledgeBase,
        *,
        max_facts: int = 1_000_000,
        memory_limit: str | None = None,
    ) -> None:
        self.program = Program.of(rules, kb)
        self._engine = Engine(self.program.kb, memory_limit=memory_limit)
        self._instances = Instances(self.program, self._engine, max_facts)
        self._confidences = [each.confidence for each in self.program.derivations]
        self._turn = RLock()

    def explain(
        self, fact: str | Head | Sequence[Value], *, k: int | None = 1, depth: int | None = None
    ) -> Explanation:
        """Say why a fact follows, or why not; see `explain`."""
        for name, value in (("k", k), ("depth", depth)):
            if value is not None and value < 1:
                raise DataError(f"{name} must be >= 1, got {value}")
        goal = read_fact(fact, self.program.kb)
        key = key_of(goal, self.program.kb)
        with self._turn:
            return self._explained(goal, key, k, depth)

    def time_limit(self, seconds: float) -> AbstractContextManager[None]:
        """Stop a query that is asked inside after so many seconds, with an error that says so."""
        return self._engine.time_limit(seconds)

    def _explained(self, goal: Head, key: Key, k: int | None, depth: int | None) -> Explanation:
        self._instances.truncated = False
        known = self._holds(goal, truth=True)
        proofs = [Proof(goal)] if known else []
        wanted = (MAX_PROOFS + 1 if k is None else k) - len(proofs)
        reached, note = self._instances.settle(str(goal.predicate), 1 if depth is None else depth)
        found = self._proofs(key, reached, wanted)
        if depth is None and not found and not known and not note:
            reached, note = self._instances.settle(str(goal.predicate), None)
            found = self._proofs(key, reached, wanted) if reached > 1 else found
        if k is None and len(found) == wanted:
            note = f"more than {MAX_PROOFS:,} proofs; k chooses how many"
            found = found[:-1]
        shared: frozenset[Key] | None = frozenset()
        if known and not next(self._search(key, reached), None):
            shared = frozenset([key])
        elif found and not known:
            shared = common(key, reached, self._instances.of, _MAX_SHARED)
        if shared is None:
            note = note or "too many facts are involved to say which of them every proof rests on"
        if self._instances.truncated:
            note = note or f"a fact is given by more than {MOST:,} instances of rules, and the best were looked at"
        proofs += found
        critical = [
            fact for fact in (proofs[0].leaves() if proofs else ()) if key_of(fact, self.program.kb) in (shared or ())
        ]
        missed = () if proofs else near_misses(key, self._instances)
        return Explanation(
            goal, self._status(goal, known, bool(found)), tuple(proofs), tuple(critical), missed, reached, note
        )

    def _status(self, goal: Head, known: bool, proved: bool) -> Status:
        if known:
            return "known"
        if self._holds(goal, truth=False) or self._has_other_class(goal):
            return "false"
        return "inferred" if proved else "unknown"

    def _holds(self, fact: Head, *, truth: bool) -> bool:
        args = [term.value if isinstance(term, Number) else term.name for term in fact.args]
        classes = fact.classes if isinstance(fact, Membership) else ()
        return self.program.kb.contains(str(fact.predicate), *args, *classes, truth=truth)

    def _has_other_class(self, fact: Head) -> bool:
        if not isinstance(fact, Membership):
            return False
        classes = self.program.kb.predicate(str(fact.predicate)).classes or ()
        return any(self._holds(Membership(fact.atom, (each,)), truth=True) for each in classes)

    def _search(self, key: Key, depth: int) -> Iterator[tuple[Instance, ...]]:
        return best_first(key, depth, self._instances.of, self._confidences)

    def _proofs(self, key: Key, depth: int, count: int) -> list[Proof]:
        """Return the best proofs by rules, each different from the others to one who reads it."""
        found: dict[Proof, None] = {}
        for chosen in self._search(key, depth) if count > 0 else ():
            found.setdefault(self._built(key, iter(chosen)))
            if len(found) == count:
                break
        return list(found)

    def _built(self, key: Key, chosen: Iterator[Instance]) -> Proof:
        """Build the tree of a proof from its instances, from top to bottom and left to right."""
        instance = next(chosen)
        derivation = self.program.derivations[instance.place]
        premises = [
            Proof(fact_of(premise, self.program.kb)) if known else self._built(premise, chosen)
            for premise, known in zip(instance.premises, instance.known, strict=True)
        ]
        atoms = positive_atoms(derivation.body)
        mapping = bindings(zip(atoms, (each.fact for each in premises), strict=True))
        others = [
            place
            for place, each in enumerate(derivation.body)
            if not each.positive or isinstance(each.unit, Comparison)
        ]
        score = derivation.confidence
        for each in premises:
            score *= each.score
        return Proof(
            fact_of(key, self.program.kb),
            score,
            derivation.source,
            derivation.number,
            tuple(premises),
            tuple(filled(derivation, others, mapping)),
        )

    def close(self) -> None:
        """Let go of the engine."""
        self._engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
