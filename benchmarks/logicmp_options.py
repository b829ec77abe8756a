"""Which options of Markov logic find the queries of worlds that were made: python benchmarks/logicmp_options.py.

The worlds are of citations, with the formulas of Cora: authors, titles and venues under several names, with words in
common by chance, and some pairs of citations known to be the same or not. The first table has, of each of the default
candidates, the mean average precision over the queries (which names are the same) and over hidden facts of SameBib,
half of them hidden and all. The second says how good the candidate is on the queries that hidden facts would pick.
The order of `rulewright.learn.markov.selection.default_candidates` and how it hides facts come from here.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from statistics import mean

import numpy as np
from measure import print_table, save

from rulewright.data.builder import KnowledgeBaseBuilder
from rulewright.data.knowledge_base import KnowledgeBase
from rulewright.datasets import rules_of
from rulewright.evaluate.classification import average_precision
from rulewright.learn.markov import selection
from rulewright.learn.markov.learner import MarkovLogic
from rulewright.logic import RuleSet

CITATIONS = 60
SHARES = {"half hidden": 0.5, "all hidden": 1.0}
KINDS = {"a": ("Author", 8, 3, 4), "t": ("Title", 14, 5, 3), "v": ("Venue", 8, 4, 6)}
"""Predicate, real ones, most words and most names of each."""

Queries = Mapping[tuple[str, str, str], bool]


def make_world(rules: RuleSet, seed: int) -> tuple[KnowledgeBase, Queries]:
    """Make citations of papers that have an author, a title and a venue, each under one of its names."""
    random = np.random.default_rng(seed)
    builder = KnowledgeBaseBuilder(rules.predicates)
    names: dict[str, list[tuple[int, str]]] = {}
    for kind, (predicate, count, most_words, most_names) in KINDS.items():
        words = [f"w{kind}{i}" for i in range(int(count * 1.5) + 6)] + [f"common{i}" for i in range(4)]
        names[kind] = []
        for real in range(count):
            own = random.choice(len(words), size=random.integers(2, most_words + 1), replace=False)
            for variant in range(random.integers(1, most_names + 1)):
                name = f"{kind}{real}_{variant}"
                used = [words[word] for word in own if random.random() < 0.75] or [words[own[0]]]
                if random.random() < 0.3:
                    used.append(words[random.integers(len(words))])
                for word in sorted(set(used)):
                    builder.add(f"HasWord{predicate}", [name, word])
                names[kind].append((real, name))
    papers = [(random.integers(8), random.integers(14), random.integers(8)) for _ in range(14)]
    cited: list[int] = []
    for citation in range(CITATIONS):
        paper = int(random.integers(len(papers)))
        for (kind, (predicate, *_)), real in zip(KINDS.items(), papers[paper], strict=True):
            known = [name for other, name in names[kind] if other == real]
            builder.add(predicate, [f"b{citation}", known[random.integers(len(known))]])
        cited.append(paper)
    for one in range(CITATIONS):
        for other in range(CITATIONS):
            is_same = cited[one] == cited[other]
            if random.random() < (0.6 if is_same else 0.05):
                builder.add("SameBib", [f"b{one}", f"b{other}"], truth=is_same)
    queries = {}
    for kind, (predicate, *_) in KINDS.items():
        for real, one_name in names[kind]:
            for other_real, other_name in names[kind]:
                if real == other_real or random.random() < 0.15:
                    queries[f"Same{predicate}", one_name, other_name] = real == other_real
    return builder.build(), queries


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0, help="of the first world")
    parser.add_argument("--save", help="write the figures here, as JSON")
    arguments = parser.parse_args()
    rules = rules_of("cora", "S1")
    candidates = selection.default_candidates()
    scores: list[list[dict[str, float]]] = []
    for seed in range(arguments.seed, arguments.seed + arguments.worlds):
        kb, queries = make_world(rules, seed)
        rows = []
        for options in candidates:
            answers = MarkovLogic(rules, **options).fit(kb).predict([*queries])
            truth = [queries[answer.predicate, str(answer.args[0]), str(answer.args[1])] for answer in answers]
            row = {"queries": average_precision([answer.logit for answer in answers], truth)}
            for label, share in SHARES.items():
                selection.HIDDEN_SHARE = share
                row[label] = float(selection.hide_facts(rules, kb, "SameBib").precisions(options).mean())
            rows.append(row)
        scores.append(rows)
    columns = ("queries", *SHARES)
    means = [{name: mean(rows[i][name] for rows in scores) for name in columns} for i in range(len(candidates))]
    table = [
        (selection.describe_options(options), *(round(found[name], 3) for name in columns))
        for options, found in zip(candidates, means, strict=True)
    ]
    table.sort(key=lambda row: -float(row[1]))
    print_table(f"{arguments.worlds} worlds from seed {arguments.seed}", ("options", *columns), table)
    picked = {label: mean(max(rows, key=lambda row: row[label])["queries"] for rows in scores) for label in columns}
    print_table("picked by", tuple(picked), [tuple(round(value, 3) for value in picked.values())])
    save(arguments.save)


if __name__ == "__main__":
    main()
