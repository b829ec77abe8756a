"""Decoding BIO tags by rules, beside Viterbi's algorithm written for them and beside HiGHS: python benchmarks/tags.py.

1,000 sentences of 30 tokens with 9 tags, random scores. All three find the same tags; what rules add to the plain
algorithm is that the constraints are read from them, and that each change is explained.
"""

from __future__ import annotations

import argparse
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
from measure import in_turns, machine, print_table, save

from rulewright import RuleDecoder

TYPES = ("per", "loc", "org", "misc")
TAGS = ("o", *(f"{prefix}_{name}" for name in TYPES for prefix in "bi"))
FEW = 50
"""How many sentences the solver is given, which would take too long with all."""

Scores = npt.NDArray[np.float64]


def write_rules() -> str:
    """An i tag goes on with a b or i tag of its type."""
    rules = [f"predicate tag(token) in {{{', '.join(TAGS)}}}. closed next. closed start."]
    for name in TYPES:
        rules.append(f"hard next(T, U) & tag(U) in {{i_{name}}} => tag(T) in {{b_{name}, i_{name}}}.")
        rules.append(f"hard !(start(T) & tag(T) in {{i_{name}}}).")
    return "\n".join(rules)


def run_viterbi(scores: Scores) -> npt.NDArray[np.int64]:
    """Find the best tags of all sentences, with the same constraints written as a matrix."""
    inside = np.array([tag.startswith("i_") for tag in TAGS])
    of_type = np.array([tag[2:] for tag in TAGS])
    allowed = ~inside[None] | (of_type[:, None] == of_type[None])
    steps = np.where(allowed, 0.0, -np.inf)
    total = np.where(inside, -np.inf, scores[:, 0])
    back = []
    for position in range(1, scores.shape[1]):
        ways = total[:, :, None] + steps
        best = ways.argmax(1)
        total = np.take_along_axis(ways, best[:, None], axis=1)[:, 0] + scores[:, position]
        back.append(best)
    path = [total.argmax(1)]
    for best in reversed(back):
        path.append(best[np.arange(len(scores)), path[-1]])
    return np.stack(path[::-1], axis=1)


def main() -> None:
    """Time the three."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--tokens", type=int, default=30)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--save", metavar="FILE", help="write the tables as JSON")
    options = parser.parse_args()
    print(machine())
    scores = np.random.default_rng(0).normal(0.0, 2.0, (options.sentences, options.tokens, len(TAGS)))
    known = {"next": np.eye(options.tokens, k=1, dtype=bool), "start": np.arange(options.tokens) == 0}
    decoder = RuleDecoder(write_rules())
    plain = run_viterbi(scores)
    found = decoder({"tag": scores}, known)
    assert np.array_equal(found.labels["tag"], plain)
    few = scores[:FEW]

    def solve() -> None:
        with patch("rulewright.inject.atoms.decoder.solve_forest", return_value=None):
            answer = decoder({"tag": few}, known)
        assert answer.solver == "integer program"
        assert np.array_equal(answer.labels["tag"], plain[:FEW])

    ours, by_hand = in_turns(options.runs, lambda: decoder({"tag": scores}, known), lambda: run_viterbi(scores))
    (solver,) = in_turns(1, solve)
    rows = [
        ("Viterbi by hand", by_hand / len(scores) * 1e3),
        (f"RuleDecoder, {found.solver}, {len(found.changes):,} changes explained", ours / len(scores) * 1e3),
        (f"RuleDecoder, integer program, {FEW} sentences", solver / FEW * 1e3),
    ]
    print_table(f"{options.sentences:,} sentences of {options.tokens} tokens", ("", "ms a sentence"), rows)
    save(options.save)


if __name__ == "__main__":
    main()
