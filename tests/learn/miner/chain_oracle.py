"""Chain rules counted the slow way: every path of every world is walked."""

from __future__ import annotations

import itertools
from collections import defaultdict

from rulewright.data import KnowledgeBase


def walk_all(facts: set[tuple[str, str, str]], length: int, *, inverses: bool = True):
    """Return groundings by body: {steps: [(v0, …, vl), …]} with steps of (relation, inverse)."""
    edges: dict[str, list[tuple[tuple[str, bool], str]]] = defaultdict(list)
    for head, relation, tail in facts:
        edges[head].append(((relation, False), tail))
        if inverses:
            edges[tail].append(((relation, True), head))
    paths = [((), (start,)) for start in list(edges)]
    for _ in range(length):
        paths = [((*steps, step), (*nodes, after)) for steps, nodes in paths for step, after in edges[nodes[-1]]]
    found = defaultdict(list)
    for steps, nodes in paths:
        found[steps].append(nodes)
    return found


def triples(kb: KnowledgeBase) -> set[tuple[str, str, str]]:
    return {(head, name, tail) for name, (head, tail) in kb.facts()}


def is_circular(head: str, steps, nodes) -> bool:
    """Whether the body uses the fact of the head."""
    used = {
        (relation, *(pair[::-1] if inverse else pair))
        for (relation, inverse), pair in zip(steps, itertools.pairwise(nodes), strict=True)
    }
    return (head, nodes[0], nodes[-1]) in used


def count_rules(kb: KnowledgeBase, length: int, *, loops: str = "skip", inverses: bool = True, circular: bool = False):
    """Return {(head, steps): statistics} of all rules with support."""
    facts = triples(kb)
    by_relation: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for head, relation, tail in facts:
        by_relation[relation].add((head, tail))
    result = {}
    for steps, groundings in walk_all(facts, length, inverses=inverses).items():
        for head, held in by_relation.items():
            counted = [nodes for nodes in groundings if circular or not is_circular(head, steps, nodes)]
            ends = [(nodes[0], nodes[-1]) for nodes in counted if loops == "against" or nodes[0] != nodes[-1]]
            supporting = [(x, z) for x, z in ends if x != z and (x, z) in held]
            if not supporting or steps == ((head, False),):
                continue
            domain = {x for x, _ in held}
            known = {(x, z) for x, z in set(ends) if x in domain}
            result[head, steps] = {
                "support": len(supporting),
                "body": len(ends),
                "support_pairs": len(set(supporting)),
                "body_pairs": len(set(ends)),
                "known_pairs": len(known),
                "facts": len(held),
                "middles": len({nodes[1] for nodes in groundings}) if length == 2 else 0,
                "all": len(groundings),
            }
    return result


def all_lengths(kb: KnowledgeBase, longest: int, **options):
    return dict(
        itertools.chain.from_iterable(count_rules(kb, each, **options).items() for each in range(1, longest + 1))
    )


def merge_twins(kb: KnowledgeBase, rules, *, loops: str = "skip"):
    """Keep, of rules of one head and body relations that join the same pairs, the one that a reader prefers."""
    facts, kept = triples(kb), {}
    walks = {length: walk_all(facts, length) for length in {len(steps) for _, steps in rules}}

    def preference(key):
        _, steps = key
        return len(steps), sum(inverse for _, inverse in steps), steps

    for head, steps in sorted(rules, key=preference):
        ends = {(nodes[0], nodes[-1]) for nodes in walks[len(steps)][steps]}
        pairs = frozenset(pair for pair in ends if loops == "against" or pair[0] != pair[1])
        relations = tuple(sorted(relation for relation, _ in steps))
        kept.setdefault((head, relations, pairs, rules[head, steps]["body_pairs"]), (head, steps))
    return {key: rules[key] for key in kept.values()}
