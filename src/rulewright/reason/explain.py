"""Explaining a fact: its best proofs, what they all rest on, or why there is none."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from itertools import combinations, count
from math import prod
from threading import RLock
from types import TracebackType
from typing import NamedTuple, Self

from rulewright.checks import Whole, check_parameter
from rulewright.data import KnowledgeBase, Value
from rulewright.engine.batches import RuleBatch
from rulewright.engine.sql import positive_atoms
from rulewright.engine.stored_facts import StoredFacts
from rulewright.logic import (
    Comparison,
    Formula,
    Head,
    Literal,
    Term,
    Variable,
    substitute,
    variables,
)
from rulewright.reason.inferred import Aggregation
from rulewright.reason.instances import (
    MAX_INSTANCES,
    FactKey,
    Instance,
    InstanceFinder,
    decode_fact,
    is_fact,
    read_fact,
)
from rulewright.reason.program import RuleProgram, Rules, adds_weights, read_rule_set
from rulewright.reason.proofs import Explanation, NearMiss, Proof, Status

FindInstances = Callable[[FactKey], Sequence[Instance]]
"""Returns the instances that give a fact, those with the highest bound first."""


class _OpenGoal(NamedTuple):
    """A fact still to be proved: how deep its proof may be, and the facts it stands below."""

    key: FactKey
    depth: int
    above: frozenset[FactKey]
    bound: float


class _PartialProof(NamedTuple):
    """A proof on its way: the instances chosen, from top to bottom and left to right, and what is open."""

    score: float
    chosen: tuple[Instance, ...]
    open: tuple[_OpenGoal, ...]


def search_proofs(
    goal: FactKey, depth: int, find: FindInstances, confidences: Sequence[float]
) -> Iterator[tuple[Instance, ...]]:
    """Yield the proofs of a fact, the best first: the instances of each from top to bottom and left to right.

    A fact's bound is the score of its best proof of any depth, so that no completion of a partial proof scores higher
    than what it has times the bounds of what is open, and the first complete one to come up is the best. No fact
    rests on itself.
    """
    order = count()
    start = _PartialProof(1.0, (), (_OpenGoal(goal, depth, frozenset(), 1.0),))
    queue: list[tuple[float, int, _PartialProof, int]] = [(-1.0, next(order), start, 0)]
    while queue:
        _, _, partial, position = heapq.heappop(queue)
        if not partial.open:
            yield partial.chosen
            continue
        first, *rest = partial.open
        choices = find(first.key) if first.depth >= 1 else ()
        above = first.above | {first.key}
        while position < len(choices) and (
            (first.depth == 1 and not all(choices[position].known)) or not above.isdisjoint(choices[position].premises)
        ):
            position += 1
        if position == len(choices):
            continue
        chosen = choices[position]
        below = [
            _OpenGoal(key, first.depth - 1, above, score)
            for key, known, score in zip(chosen.premises, chosen.known, chosen.scores, strict=True)
            if not known
        ]
        child = _PartialProof(
            partial.score * confidences[chosen.derivation], (*partial.chosen, chosen), (*below, *rest)
        )
        bound = prod((left.bound for left in child.open), start=child.score)
        heapq.heappush(queue, (-bound, next(order), child, 0))
        if position + 1 < len(choices):
            bound = prod((left.bound for left in rest), start=partial.score * choices[position + 1].bound)
            heapq.heappush(queue, (-bound, next(order), partial, position + 1))


class _TooMany(Exception):  # noqa: N818 - it is no error, but the end of a search
    """More facts would have to be looked at than allowed."""


_MAX_SHARED = 300  # facts looked at to find what all proofs share


def find_shared_facts(
    key: FactKey, depth: int, find: FindInstances, results: dict[tuple[FactKey, int], frozenset[FactKey] | None]
) -> frozenset[FactKey] | None:
    """Return the known facts that every proof of a fact up to a depth rests on; None where it has none.

    What all proofs of a fact share is what the proofs by each of its instances share, taken together: for one
    instance the union over its premises, for several the intersection. ``results`` has what was found before.
    """
    if (key, depth) in results:
        return results[key, depth]
    if len(results) >= _MAX_SHARED:
        raise _TooMany
    shared: frozenset[FactKey] | None = None
    for instance in find(key) if depth else ():
        if depth == 1 and not all(instance.known):
            continue
        parts = [
            frozenset([premise]) if known else find_shared_facts(premise, depth - 1, find, results)
            for premise, known in zip(instance.premises, instance.known, strict=True)
        ]
        union = frozenset[FactKey]().union(*(part for part in parts if part is not None))
        if None not in parts:
            shared = union if shared is None else shared & union
        if shared is not None and not shared:
            break
    results[key, depth] = shared
    return shared


SHOWN = 5
_LOOKED_AT = 200  # rows of a statement, among which each rule is taken once


def find_near_misses(goal: FactKey, instances: InstanceFinder) -> tuple[NearMiss, ...]:
    """Return the rules that miss least for a fact, the most confident first; each rule once."""
    longest = max((len(batch.body) for batch in instances.batches), default=0)
    for missing in range(1, longest + 1):
        misses: dict[int, NearMiss] = {}
        for batch in instances.batches:
            for dropped in combinations(range(len(batch.body)), missing):
                for miss in _drop_literals(batch, dropped, goal, instances):
                    misses.setdefault(miss.rule_index, miss)
        if misses:
            return tuple(sorted(misses.values(), key=lambda miss: (-miss.score, miss.rule_index))[:SHOWN])
    return ()


def _drop_literals(
    batch: RuleBatch, dropped: Sequence[int], goal: FactKey, instances: InstanceFinder
) -> Iterator[NearMiss]:
    """Yield the instances of a batch that hold but for some literals."""
    kept = [position for position in range(len(batch.body)) if position not in dropped]
    body = tuple(batch.body[position] for position in kept)
    atoms = positive_atoms(body)
    bound = {term for unit in (batch.head, *atoms) for term in variables(unit)}
    bound |= {Variable(name.upper()) for name in batch.columns if name[0] == "c"}  # constants are columns of the table
    conditions = [literal for literal in body if not literal.positive or isinstance(literal.unit, Comparison)]
    if any(set(variables(literal.unit)) - bound for literal in conditions):
        return  # what is kept has no meaning without what was dropped; more must be
    join = instances.join(replace(batch, body=body), goal)
    if join is None:
        return
    columns = ", ".join(["r.d AS d", "r.s AS s", *instances.fact_columns(atoms)])
    rows = instances.engine.run(join.select(columns, f" ORDER BY s DESC, d LIMIT {_LOOKED_AT}"))
    keys, kb = instances.read_facts(rows, atoms), instances.program.kb
    for row, index in enumerate(rows["d"].tolist()):
        derivation = instances.program.derivations[index]
        units = [derivation.head, *positive_atoms(derivation.body[position] for position in kept)]
        facts = [decode_fact(key, kb) for key in (goal, *(column[row] for column in keys))]
        filled = _fill_in(derivation.body, units, facts)
        yield NearMiss(
            derivation.source,
            derivation.source_index,
            derivation.confidence,
            tuple(filled[position] for position in kept),
            tuple(filled[position] for position in dropped),
            instances.program.numbers[derivation.source_index],
        )


def _fill_in(body: Sequence[Literal], units: Iterable[Head], facts: Iterable[Head]) -> list[Formula]:
    """Return the literals of a body with their variables filled in, as they stand in atoms that match facts."""
    values: dict[Variable, Term] = {
        term: value
        for unit, fact in zip(units, facts, strict=True)
        for term, value in zip(unit.args, fact.args, strict=True)
        if isinstance(term, Variable)
    }
    formulas = (
        part.unit.opposite() if isinstance(part.unit, Comparison) and not part.positive else part.formula()
        for part in body
    )
    return [substitute(formula, values) for formula in formulas]


MAX_PROOFS = 1_000
"""How many proofs are returned where all are asked for."""


def explain(
    rules: Rules,
    kb: KnowledgeBase,
    fact: str | Head | Sequence[Value],
    *,
    k: int | None = 1,
    depth: int | None = None,
    aggregation: Aggregation | None = None,
) -> Explanation:
    """Say why a fact follows from rules and facts, or why not.

    Returns the ``k`` best proofs (None: all, up to `MAX_PROOFS`); a proof's score is the product of the confidences of
    the rules in it. ``depth`` is the most rules applied one after the other; with None proofs are one rule deep, and
    only where there are none the rules are chained to their fixed point (of facts that stay in an engine, one rule deep
    unless ``depth`` says more: what is chained is chained over all facts). The fact is text, an atom, or a tuple
    (predicate, argument, …). Who asks more than once keeps an `Explainer`.

    With ``aggregation="weight"``, which is the usual one for rules that carry weights, it says what every rule adds to
    the score that `apply` gives the fact, and for the ``k`` strongest which facts they rest on.

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
    return explain_facts(rules, kb, [fact], k=k, depth=depth, aggregation=aggregation)[0]


def explain_facts(
    rules: Rules,
    kb: KnowledgeBase,
    facts: Iterable[str | Head | Sequence[Value]],
    *,
    k: int | None = 1,
    depth: int | None = None,
    aggregation: Aggregation | None = None,
) -> list[Explanation]:
    """Say why each of several facts follows; see `explain`."""
    rule_set = read_rule_set(rules)
    if aggregation == "weight" or (aggregation is None and depth in (None, 1) and adds_weights(rule_set)):
        check_parameter("k", k, Whole(1, optional=True))
        from rulewright.reason.weighted import WeightedRules

        with closing(WeightedRules(rule_set, kb)) as weighted:
            return [weighted.explain(fact, k=k) for fact in facts]
    with closing(Explainer(rule_set, kb)) as explainer:
        return [explainer.explain(fact, k=k, depth=depth) for fact in facts]


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
        rules: Rules,
        kb: KnowledgeBase,
        *,
        max_facts: int = 1_000_000,
        memory_limit: int | str | None = None,
    ) -> None:
        self.program = RuleProgram.of(rules, kb)
        self._instances = InstanceFinder(self.program, max_facts, memory_limit)
        self._confidences = [derivation.confidence for derivation in self.program.derivations]
        self._turn = RLock()

    def explain(
        self, fact: str | Head | Sequence[Value], *, k: int | None = 1, depth: int | None = None
    ) -> Explanation:
        """Say why a fact follows, or why not; see `explain`."""
        check_parameter("k", k, Whole(1, optional=True))
        check_parameter("depth", depth, Whole(1, optional=True))
        kb, instances = self.program.kb, self._instances
        goal, key = read_fact(fact, kb)
        with self._turn:
            instances.truncated = False
            known = is_fact(key, kb)
            proofs, reached, note = self._prove(key, (MAX_PROOFS + 1 if k is None else k) - known, depth, known)
            if k is None and len(proofs) + known > MAX_PROOFS:
                note = f"more than {MAX_PROOFS:,} proofs; k chooses how many"
                proofs.pop()
            status: Status = "known" if known else "inferred" if proofs else "unknown"
            critical: tuple[Head, ...] = ()
            if known:
                proofs.insert(0, Proof(goal))
                if not next(search_proofs(key, reached, instances.find, self._confidences), None):
                    critical = (goal,)
            elif proofs:
                try:
                    shared = find_shared_facts(key, reached, instances.find, {}) or ()
                    rests_on = {decode_fact(shared_key, kb) for shared_key in shared}
                    critical = tuple(leaf for leaf in proofs[0].leaves() if leaf in rests_on)
                except _TooMany:
                    note = note or "too many facts are involved to say which of them every proof rests on"
            if instances.truncated:
                most = f"{MAX_INSTANCES:,}"
                note = note or f"a fact is given by more than {most} instances of rules; the best were looked at"
            if not known:
                classes = range(len(kb.predicate(str(goal.predicate)).classes or ()))
                if is_fact(key, kb, truth=False) or any(is_fact((*key[:-1], index), kb) for index in classes):
                    status = "false"  # so it was observed, or its atom has another class
            misses = () if proofs else find_near_misses(key, instances)
            return Explanation(goal, status, tuple(proofs), critical, misses, reached, note)

    def prove_once(self, fact: str | Head | Sequence[Value]) -> Proof:
        """Return the best proof by one rule from the known facts alone, of a fact that `apply` gives in one round."""
        _, key = read_fact(fact, self.program.kb)
        with self._turn:
            self._instances.rest_on_known()
            chosen = next(search_proofs(key, 1, self._instances.find, self._confidences))
            return self._build_proof(key, iter(chosen))

    def time_limit(self, seconds: float) -> AbstractContextManager[None]:
        """Stop a query that runs inside after so many seconds, with an error that says so."""
        return self._instances.engine.time_limit(seconds)

    def _prove(self, key: FactKey, count: int, depth: int | None, known: bool) -> tuple[list[Proof], int, str]:
        """Return the best proofs by rules, how deep they may go, and which bound was met, if one was.

        Without a ``depth`` they are one rule deep, or of any depth where a fact that is not known has none.
        """
        proofs: dict[Proof, None] = {}  # each different from the others to one who reads it
        reached, note = 0, ""
        limits = (1, None) if depth is None else (depth,)
        if isinstance(self.program.kb, StoredFacts):
            limits = (depth or 1,)  # rules are chained over all facts only where that is asked for
        for limit in limits:
            reached, note = self._instances.settle(list(self.program.kb.predicates)[int(key[0])], limit)
            search = search_proofs(key, reached, self._instances.find, self._confidences)
            while len(proofs) < count and (chosen := next(search, None)) is not None:
                proofs.setdefault(self._build_proof(key, iter(chosen)))
            if proofs or known or note:
                break
        return list(proofs), reached, note

    def _build_proof(self, key: FactKey, chosen: Iterator[Instance]) -> Proof:
        """Build the tree of a proof from its instances, from top to bottom and left to right."""
        instance = next(chosen)
        derivation = self.program.derivations[instance.derivation]
        premises = [
            Proof(decode_fact(premise, self.program.kb)) if known else self._build_proof(premise, chosen)
            for premise, known in zip(instance.premises, instance.known, strict=True)
        ]
        conditions: list[Formula] = []
        if len(premises) < len(derivation.body):  # comparisons, and facts that must be absent
            atoms = positive_atoms(derivation.body)
            filled = _fill_in(derivation.body, atoms, [premise.fact for premise in premises])
            conditions = [
                part
                for part, literal in zip(filled, derivation.body, strict=True)
                if not literal.positive or isinstance(literal.unit, Comparison)
            ]
        return Proof(
            decode_fact(key, self.program.kb),
            prod((premise.score for premise in premises), start=derivation.confidence),
            derivation.source,
            derivation.source_index,
            tuple(premises),
            tuple(conditions),
            number=self.program.numbers[derivation.source_index],
        )

    def close(self) -> None:
        """Let go of what was loaded."""
        self._instances.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
