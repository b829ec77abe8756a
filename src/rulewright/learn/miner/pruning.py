"""Leaving out rules that others make superfluous: by what they say, and by the facts that they explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rulewright.data import signature
from rulewright.data.index import Ids, encode_rows
from rulewright.engine import SQLEngine
from rulewright.engine.batches import Derivation, RuleBatch, batch_derivations
from rulewright.engine.sql import argument_columns, literals, positive_atoms
from rulewright.logic import Chain, Literal, PredicateVariable, Rule, Step, subsumes

EXPLAINED_AT_ONCE = 10_000_000
"""About how many pairs of a rule and a fact that it explains are in memory at once, or those of one head more."""


def cover_facts(engine: SQLEngine, rules: Sequence[Rule], *, min_new: int, circular: bool = False) -> list[Rule]:
    """Keep of rules, given best first, those that explain facts which no better rule that is kept explains.

    A rule explains a known fact of its head's predicate where a grounding of the rule gives it, other than, unless
    ``circular`` ones count, one whose body uses that very fact. Rules are taken in order; one is kept if at least
    ``min_new`` of the facts that it explains are explained by none of those kept before it. Rules of all forms cover
    each other's facts.

    >>> from rulewright.data import KnowledgeBase
    >>> from rulewright.engine import Engine
    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([(x, r, "b") for x in ("a1", "a2") for r in ("h", "p", "q")])
    >>> rules = parse_rules("h(X, Y) :- q(X, Y). h(X, Y) :- p(X, Y). p(X, Y) :- h(X, Y).").rules
    >>> with Engine(kb) as engine:
    ...     [str(rule) for rule in cover_facts(engine, rules, min_new=1)]
    ['h(X, Y) :- q(X, Y).', 'p(X, Y) :- h(X, Y).']
    """
    kept = np.zeros(len(rules), dtype=bool)
    by_head: dict[str, list[int]] = {}
    for rule_index, rule in enumerate(rules):
        by_head.setdefault(str(rule.head.predicate), []).append(rule_index)
    supports = [sum(rules[rule_index].support or 0 for rule_index in group) for group in by_head.values()]
    parts: dict[int, list[int]] = {}
    for group, total in zip(by_head.values(), np.cumsum(supports).tolist(), strict=True):
        parts.setdefault(total // EXPLAINED_AT_ONCE, []).extend(group)
    for part in parts.values():
        rule_of_row, fact = _list_explained(engine, rules, part, circular=circular)
        starts = np.searchsorted(rule_of_row, np.arange(len(rules) + 1))
        is_covered = np.zeros(int(fact.max(initial=-1)) + 1, dtype=bool)
        for rule_index in sorted(part):
            facts = fact[starts[rule_index] : starts[rule_index + 1]]
            new = facts[~is_covered[facts]]
            if len(new) >= min_new:
                kept[rule_index] = True
                is_covered[new] = True
    return [rule for rule, is_kept in zip(rules, kept.tolist(), strict=True) if is_kept]


def _list_explained(
    engine: SQLEngine, rules: Sequence[Rule], chosen: Sequence[int], *, circular: bool
) -> tuple[Ids, Ids]:
    """Return each of the chosen rules, by index and in order, beside each fact that it explains, numbered from 0."""
    kb = engine.kb
    derivations = []
    for rule_index in chosen:
        rule = rules[rule_index]
        body = Literal(rule.head), *literals(rule.body)
        derivations.append((rule_index, Derivation(rule.head, body, rule, rule_index)))
    columns: list[tuple[Ids, ...]] = []
    for batch in batch_derivations(derivations, kb, prefix="explaining"):
        engine.put(batch.name, batch.columns)
        rows = engine.run(_select_explained(engine, batch, circular=circular))
        second = rows.get("a1", np.full(len(rows["d"]), -1))
        columns.append(tuple(column.astype(np.int64) for column in (rows["d"], rows["p"], rows["a0"], second)))
    rule_of_row, predicate, *args = (np.concatenate(parts) for parts in zip(*columns, strict=True))
    keys = [predicate, args[0], args[1] + 1]
    _, fact = np.unique(encode_rows(keys, [int(column.max(initial=0)) + 1 for column in keys]), return_inverse=True)
    order = np.argsort(rule_of_row, kind="stable")
    return rule_of_row[order], fact.reshape(-1)[order]


def _select_explained(engine: SQLEngine, batch: RuleBatch, *, circular: bool) -> str:
    """Return the statement that lists the rules (``d``) of a batch, whose bodies begin with the head, and its facts."""
    kb = engine.kb
    join = batch.join(kb)
    signatures = [
        "e" * len(atom.args)
        if isinstance(atom.predicate, PredicateVariable)
        else signature(kb.predicate(atom.predicate))
        for atom in positive_atoms(batch.body)
    ]
    names = ["p", *argument_columns(signatures[0])]
    # The table of rules is the first source, so the head's fact is t1 and the facts of the body follow
    for position, atom_signature in enumerate(signatures[1:], start=2):
        if atom_signature == signatures[0] and not circular:
            same = " AND ".join(f"t{position}.{name} = t1.{name}" for name in names)
            join.conditions.append(f"NOT ({same})")
    return join.select(f"DISTINCT r.d AS d, {', '.join(f't1.{name} AS {name}' for name in names)}")


def drop_redundant(rules: Sequence[Rule]) -> list[Rule]:
    """Leave out each rule that shorter ones with at least its confidence make superfluous.

    Either one shorter rule says the same under weaker conditions (it subsumes), or two shorter rules lead to the same
    head step by step: ``h ← p ∘ q`` is superfluous beside ``h ← r`` and ``r ← p ∘ q`` when the product of their
    confidences is no lower.

    >>> from rulewright.logic import parse_rules
    >>> rules = parse_rules('''0.9 :: h(X, Z) :- p(X, Y), q(Y, Z). 0.95 :: r(X, Z) :- p(X, Y), q(Y, Z).
    ...     0.99 :: h(X, Y) :- r(X, Y).''').rules
    >>> [str(rule) for rule in drop_redundant(rules)]
    ['0.95 :: r(X, Z) :- p(X, Y), q(Y, Z).', '0.99 :: h(X, Y) :- r(X, Y).']
    """
    conclusions: dict[tuple[Step, ...], list[tuple[Step, float]]] = {}  # by body, walked from either end
    for rule in rules:
        chain = Chain.of(rule)
        if chain is not None and chain.is_closed:
            conclusions.setdefault(chain.steps, []).append((Step(chain.head), rule.confidence))
            conclusions.setdefault(chain.mirror(), []).append((Step(chain.head, True), rule.confidence))
    by_head: dict[object, list[Rule]] = {}  # the rules that may subsume one: a chain subsumes no longer chain
    for rule in rules:
        by_head.setdefault((rule.head.predicate, _is_chain(rule)), []).append(rule)
    kept = []
    for rule in rules:
        others = by_head.get((rule.head.predicate, False), [])
        if not _is_chain(rule):
            others = others + by_head.get((rule.head.predicate, True), [])
        is_subsumed = any(
            len(other.body) < len(rule.body) and other.confidence >= rule.confidence and subsumes(other, rule)
            for other in others
        )
        if not is_subsumed and not _is_composed(rule, conclusions):
            kept.append(rule)
    return kept


def _is_chain(rule: Rule) -> bool:
    chain = Chain.of(rule)
    return chain is not None and chain.is_closed


def _is_composed(rule: Rule, conclusions: Mapping[tuple[Step, ...], Sequence[tuple[Step, float]]]) -> bool:
    """Tell whether a part of the body gives a relation that leads on to the head without loss."""
    chain = Chain.of(rule)
    if chain is None or not chain.is_closed:
        return False
    steps, head = chain.steps, Step(chain.head)
    for start in range(len(steps)):
        for stop in range(start + 2, len(steps) + 1):
            for middle, first in conclusions.get(steps[start:stop], ()):
                shorter = (*steps[:start], middle, *steps[stop:])
                if shorter == (head,):
                    continue
                for last, second in conclusions.get(shorter, ()):
                    if last == head and first * second >= rule.confidence:
                        return True
    return False
