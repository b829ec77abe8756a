"""What runs of knowledge-base completion share: progress, ranks of each split, and a few rules to read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np

from rulewright.checks import OneOf, Progress, check_parameter
from rulewright.data import KnowledgeBase
from rulewright.engine.walks import WAYS, Evidence, Floats, Graph, HiddenEdges, RuleTable, Ways, find_relation
from rulewright.evaluate.ranking import Scorer, evaluate_ranking
from rulewright.logic import Annotations, Chain, Rule, encode_path, encode_step, mirror_path

COLUMNS = ("mrr", "hits@1", "hits@3", "hits@10")
READABLE_RELATIONS = 10
"""Rules are kept for the relations with most facts: a page shows no more."""
MEASURED_FACTS = 200
"""On how many facts of a relation it is measured what its rules explain."""
MIN_SHARE = 0.01
MIN_CONFIDENCE = 0.05
"""A rule that adds less to the scores, or is right more rarely, explains nothing that one would want to read."""

Tell = Callable[[str], None]


def make_progress(tell: Tell, what: str, *, seconds: float = 30) -> Progress:
    """Return what tells of progress at the end and from time to time before it."""
    started, latest = time.process_time(), time.monotonic()

    def progress(stage: str, done: int, total: int) -> None:
        nonlocal latest
        if time.monotonic() - latest > seconds or done == total:
            latest = time.monotonic()
            tell(f"{done} of {total} {what}, {time.process_time() - started:.0f} s of one core")

    return progress


def rank_splits(
    scorer: Scorer, kb: KnowledgeBase, splits: Sequence[str], tell: Tell
) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Return a row of figures for each split, and the same by direction; single relations are left to ``evaluate``."""
    rows, by_split = {}, {}
    for split in splits:
        scores = evaluate_ranking(scorer, kb, split)
        rows[f"ours, {split}"] = dict(scores.figures())
        by_split[split] = {name: value for name, value in scores.as_dict().items() if name != "by_relation"}
        tell(f"{split}: {scores}")
    return rows, by_split


def choose_readable(rules: Iterable[Rule], kb: KnowledgeBase, *, count: int, seed: int = 0) -> dict[str, list[str]]:
    """Return for the relations with most facts the ``count`` rules that explain most of them, the best first.

    Facts of training are asked about in both directions, each hidden from its own evidence. A rule's *share* is what it
    adds to the score of the right answers, of all that closed path rules add: 0 where it is silent. It is ordered by
    ``share × confidence``, so that what speaks for nearly everything comes last, and is left out where its share is
    below `MIN_SHARE` or its confidence below `MIN_CONFIDENCE`. ``coverage`` and ``share`` stand with each rule. A
    relation without such a rule is passed over for the next.

    >>> from rulewright.logic import parse_rules
    >>> facts = [(f"a{i}", "knows", f"b{i}") for i in range(4)] + [(f"a{i}", "likes", f"b{i}") for i in range(3)]
    >>> kb = KnowledgeBase.from_triples(facts)
    >>> rules = parse_rules(
    ...     "0.5 :: likes(X, Y) :- knows(X, Y). @{weight: 2, weight_inverse: 2}"
    ...     "0.5 :: likes(X, Y) :- likes(Y, X). @{weight: 9, weight_inverse: 9}"
    ... )
    >>> print(*choose_readable(rules.rules, kb, count=2)["likes"])
    0.5 :: likes(X, Y) :- knows(X, Y). @{weight: 2, weight_inverse: 2, coverage: 1, share: 1}
    """
    by_relation: dict[str, list[tuple[Rule, Chain]]] = {}
    for rule in rules:
        if (chain := Chain.of(rule)) is not None and chain.is_closed and chain.steps and not chain.apart:
            by_relation.setdefault(chain.head, []).append((rule, chain))
    graph, readable = Graph(kb), dict[str, list[str]]()
    for name in sorted(by_relation, key=lambda name: -kb.count(name)):
        chosen, chains = zip(*by_relation[name], strict=True)
        coverage, share = measure_shares(chosen, chains, kb, graph, seed=seed)
        confidence = np.array([rule.confidence for rule in chosen])
        order = np.argsort(-share * confidence, kind="stable")
        order = order[(share[order] >= MIN_SHARE) & (confidence[order] >= MIN_CONFIDENCE)][:count]
        if len(order):
            readable[name] = [
                str(_annotate(chosen[row], coverage=coverage[row], share=share[row])) for row in order.tolist()
            ]
        if len(readable) == READABLE_RELATIONS:
            break
    return readable


def measure_shares(
    rules: Sequence[Rule], chains: Sequence[Chain], kb: KnowledgeBase, graph: Graph, *, seed: int
) -> tuple[Floats, Floats]:
    """Return for rules of one relation the share of its facts that each gives, and its share of their scores.

    Scores are those of a `PathMixture`: the weight in a rule's annotations times how true its path is. Of many facts
    `MEASURED_FACTS` are drawn. A fact that no rule speaks for counts as one of which every rule has the share 0.
    """
    relation = find_relation(kb, chains[0].head)
    indices = {name: kb.predicate_index(name) for name in kb.predicates}
    paths = [encode_path(chain.steps, indices) for chain in chains]
    facts = graph.edges(encode_step(relation))
    drawn = np.sort(np.random.default_rng(seed).permutation(len(facts[0]))[:MEASURED_FACTS])
    queries, ways = np.arange(len(drawn)), _read_ways(rules)
    coverage, share = np.zeros(len(rules)), np.zeros(len(rules))
    for inverse in (False, True):
        asked, answers = (facts[side][drawn] for side in ((1, 0) if inverse else (0, 1)))
        step = encode_step(relation, inverse)
        table = RuleTable.of_paths(step, [mirror_path(path) if inverse else path for path in paths], ways)
        is_answer = np.zeros((len(drawn), graph.entities), dtype=bool)
        is_answer[queries, answers] = True
        row, _, rule, truth = Evidence(graph, table).firings(asked, HiddenEdges(step, asked, answers), wanted=is_answer)
        key = "weight_inverse" if inverse else "weight"
        weights = np.array([max(one.annotations.number(key) or 0.0, 0.0) for one in rules])
        added = weights[rule] * truth
        total = np.bincount(row, added, len(drawn))[row]
        part = np.divide(added, total, out=np.zeros_like(added), where=total > 0)
        share += np.bincount(rule, part, len(rules)) / (2 * len(drawn))
        coverage += np.bincount(rule, minlength=len(rules)) / (2 * len(drawn))
    return coverage, share


def _read_ways(rules: Sequence[Rule]) -> Ways:
    """Return what many ways along a path count; the rules of one mixture have it in common."""
    ways = str(rules[0].annotations.get("ways", "once"))
    check_parameter("ways", ways, OneOf(*WAYS))
    return cast("Ways", ways)


def _annotate(rule: Rule, *, coverage: float, share: float) -> Rule:
    measured = {"coverage": float(f"{coverage:.3g}"), "share": float(f"{share:.3g}")}
    shown = {name: int(value) if value == int(value) else value for name, value in measured.items()}
    return replace(rule, annotations=Annotations({**rule.annotations, **shown}))
