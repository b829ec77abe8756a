"""Choosing options of Markov logic by observed facts alone: hide the facts of a predicate, infer it, compare.

No label of a query is looked at. One predicate after the other is inferred from what is left when facts of it are
hidden, and candidates are compared by average precision: the mean, over the hidden facts, of the precision among the
atoms that are as probable or more. Of a predicate with true and false facts half are hidden, so that the rest is known
as it is when queries are asked; of one with true facts only, all are, as nothing is known of most predicates that are
asked for, and as its other atoms would be false where it is closed. Options that are not told apart from the best are
as good, and the first of them is taken: candidates are tried in the order in which they are expected to be good.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from math import sqrt
from statistics import mean
from time import perf_counter
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from rulewright.checks import Progress, Real, Whole, check_parameters
from rulewright.data import FactTable, KnowledgeBase
from rulewright.data.facts import Column
from rulewright.errors import DataError, MemoryLimitError, RulewrightError, TimeLimitError, unknown_name
from rulewright.interrupts import TimeBudget
from rulewright.learn.base import list_names
from rulewright.learn.markov.facts import GroundFacts, declare_types
from rulewright.learn.markov.learner import MarkovLogic
from rulewright.logic import RuleSet

Options: TypeAlias = Mapping[str, Any]
"""Parameters of `MarkovLogic`."""

Numbers: TypeAlias = npt.NDArray[np.float64]

Case: TypeAlias = tuple[RuleSet, KnowledgeBase]

DEFAULT_OPTIONS: Options = {
    "iterations": 20,
    "damping": 0.5,
    "closed": "listed",
    "prior": "density",
    "scaling": "messages",
    "scaling_power": 4.0,
}
"""What is taken where nothing can be compared."""

MOST_PREDICATES = 12
"""Of how many predicates facts are hidden, those with the most."""

HIDDEN_SHARE = 0.5
"""The share of facts that are hidden of a predicate with true and false ones."""

SHOWN = 8
"""How many candidates a printed choice lists."""

MOST_LISTED = 100_000
"""Up to how many atoms all that are not known to be true are inferred beside the hidden facts of a predicate."""

DRAWN = 10_000
"""How many of them are drawn where there are more."""


def default_candidates(held: Options = MappingProxyType({})) -> list[dict[str, Any]]:
    """Return what is tried where no candidates are given, the likeliest to be good first; with the ``held`` options.

    The order is that of the mean average precision over the queries of six generated worlds of citations, with the
    formulas of Cora (`benchmarks/logicmp_options.py`); no query of a data set was looked at for it.

    >>> len(default_candidates()), default_candidates()[0] == DEFAULT_OPTIONS
    (23, True)
    >>> len(default_candidates({"messages": "sum", "scaling": "none"}))
    2
    """
    mean_of = {"messages": "mean"}
    sampled = {draws: {**mean_of, "draws": draws} for draws in (1024, 8192)}
    near = {draws: {**form, "observed_odds": 9.0} for draws, form in sampled.items()}
    scaled = {power: {"scaling": "messages", "scaling_power": power} for power in (1.0, 4.0)}
    dense, dense_closed = ({"closed": closed, "prior": "density"} for closed in ((), "listed"))
    even, even_closed = ({"closed": closed, "prior": 0.0} for closed in ((), "listed"))
    ordered: list[tuple[dict[str, Any], dict[str, Any]]] = [
        (dense_closed, scaled[4.0]),
        (even_closed, mean_of),
        (even_closed, sampled[1024]),
        (dense_closed, sampled[1024]),
        (dense_closed, mean_of),
        (even_closed, scaled[4.0]),
        (even, near[8192]),
        (even, near[1024]),
        (dense, near[8192]),
        (dense, near[1024]),
        (dense_closed, sampled[8192]),
        (dense, scaled[4.0]),
        (even_closed, sampled[8192]),
        (dense, scaled[1.0]),
        (even, scaled[4.0]),
        (dense_closed, scaled[1.0]),
        (even, mean_of),
        (even, sampled[1024]),
        (even_closed, {}),
        (even, {}),
        (even_closed, scaled[1.0]),
        (dense, sampled[1024]),
        (dense, mean_of),
    ]
    common = {"iterations": 20, "damping": 0.5}
    candidates: list[dict[str, Any]] = []
    for world, form in ordered:
        kind = {"messages": "sum", "scaling": "none", **form}
        if any(held.get(name, kind[name]) != kind[name] for name in ("messages", "scaling")):
            continue
        options = {**common, **world, **form, **held}
        if kind["messages"] == "sum" and (held.get("draws") or held.get("observed_odds") is not None):
            continue
        if kind["scaling"] == "none" and "scaling_power" in held:
            continue
        if options not in candidates:
            candidates.append(options)
    return candidates or [{**DEFAULT_OPTIONS, **held}]


@dataclass(frozen=True, slots=True)
class Tried:
    """A candidate that was tried, its mean score, and the average precision on each predicate that was hidden.

    Of several knowledge bases, the facts of a predicate count alike in the score.
    """

    options: Options
    score: float
    by_predicate: Mapping[str, float]


@dataclass(frozen=True)
class Choice:
    """Which options were chosen and why; prints as a table, the best first.

    ``options`` are parameters of `MarkovLogic`. ``scores`` has the candidates that were tried, in the order in which
    they were, ``skipped`` those that were not for lack of time. ``seconds`` is what all of it took, ``note`` what was
    left out of the comparison.
    """

    options: Options
    scores: tuple[Tried, ...]
    reason: str
    seconds: float
    skipped: tuple[Options, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        lines = [f"{describe_options(self.options)}: {self.reason}"]
        if self.scores:
            names = [*self.scores[0].by_predicate]
            columns = names if len(names) <= 6 else []
            head = ("hidden facts", *columns, "options")
            ranked = sorted(self.scores, key=lambda tried: -tried.score)[:SHOWN]
            varied = _varied([tried.options for tried in self.scores])
            table: list[tuple[str, ...]] = [head]
            for tried in ranked:
                figures = (tried.score, *(tried.by_predicate[name] for name in columns))
                chosen = "*" if tried.options == self.options else ""
                described = describe_options({name: tried.options[name] for name in varied if name in tried.options})
                table.append((*(f"{figure:.3f}" for figure in figures), described + chosen))
            widths = [max(map(len, column)) for column in zip(*table, strict=True)]
            lines += ["  ".join([*map(str.rjust, row[:-1], widths[:-1]), row[-1]]) for row in table]
            if len(self.scores) > len(ranked):
                lines.append(f"and {len(self.scores) - len(ranked)} more that were tried")
        if self.skipped:
            lines.append(f"not tried after {self.seconds:.0f} s: {len(self.skipped)} more")
        return "\n".join([*lines, self.note] if self.note else lines)


def describe_options(options: Options) -> str:
    """Write options on one line.

    >>> describe_options({"messages": "mean", "closed": ()})
    'messages=mean closed=none'
    """
    return " ".join(f"{name}={_describe_value(value)}" for name, value in options.items())


def _describe_value(value: object) -> str:
    if isinstance(value, list | tuple | set | frozenset):
        return ",".join(map(str, value)) or "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _varied(candidates: Sequence[Options]) -> list[str]:
    """Return the options that are not the same in all candidates."""
    names = list(dict.fromkeys(name for options in candidates for name in options))
    return [name for name in names if len({repr(options.get(name)) for options in candidates}) > 1]


def choose_options(
    rules: RuleSet,
    kb: KnowledgeBase,
    candidates: Iterable[Options] | None = None,
    *,
    seconds: float | None = 60.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Choice:
    """Choose options of `MarkovLogic` that infer observed predicates well when facts of them are hidden.

    Args:
        rules, kb: as `MarkovLogic` and its ``fit`` take them. The facts are all that is looked at: give no queries.
        candidates: options to compare, those expected to be good first; None are `default_candidates`.
        seconds: after these no other candidate is begun, and ``skipped`` says which were not; None is no limit. One
            that is begun ends, and the first is always tried.
        seed: of which facts are hidden, and of the atoms that are drawn where there are too many.
        progress: called with a stage, how many candidates are done, and of how many.

    The choice is the first candidate that is not told apart from the best by one standard error of the differences
    over the hidden facts, those with the same first entity together (`first_within_error`). Where no predicate tells
    anything, the first candidate is taken and the reason says so.

    >>> import rulewright as rw
    >>> facts = [("parent", f"a{n}", f"b{n}") for n in range(8)] + [("child", f"b{n}", f"a{n}") for n in range(8)]
    >>> rules = rw.parse_rules("1.0 parent(X, Y) => child(Y, X). 1.0 child(X, Y) => parent(Y, X).")
    >>> choice = choose_options(rules, rw.KnowledgeBase.from_facts(facts), [{"iterations": 0}, {"iterations": 5}])
    >>> choice.options, len(choice.scores)
    ({'iterations': 5}, 2)
    """
    return choose_for_all({"": (rules, kb)}, candidates, seconds=seconds, seed=seed, progress=progress)


def choose_for_all(
    cases: Mapping[str, Case],
    candidates: Iterable[Options] | None = None,
    *,
    seconds: float | None = 60.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Choice:
    """Choose the same options for several knowledge bases by name, each with rules of its own; see `choose_options`.

    Of several, not facts but knowledge bases count as independent: the standard error is over these.
    """
    check_parameters({"seconds": seconds, "seed": seed}, {"seconds": Real(0, optional=True), "seed": Whole(0)})
    listed = [dict(options) for options in (default_candidates() if candidates is None else candidates)]
    if not listed:
        raise DataError("there are no candidates; give a list of options of MarkovLogic, or None")
    known = {parameter.name for parameter in fields(MarkovLogic)} - {"rules"}
    for name in (name for options in listed for name in options):
        if name not in known:
            raise unknown_name("option", name, known)
    start, budget = perf_counter(), TimeBudget(seconds)
    hidden, note = _hide_facts(cases, seed)
    if not hidden:
        reason = "nothing was compared, since no predicate of the rules has true facts that could be hidden"
        return Choice(listed[0], (), reason, perf_counter() - start, tuple(listed[1:]))
    clusters = _join(hidden, {label: problem.clusters(len(cases) == 1) for label, problem in hidden.items()})
    scores: list[Tried] = []
    precisions: list[dict[str, Numbers]] = []
    refused: list[RulewrightError] = []
    for options in listed:
        if scores and budget.is_over:
            break
        try:
            by_label = {label: problem.precisions(options) for label, problem in hidden.items()}
        except (MemoryLimitError, TimeLimitError) as error:
            refused.append(error)
            continue
        precisions.append(_join(hidden, by_label))
        score = mean(float(values.mean()) for values in precisions[-1].values())
        scores.append(Tried(options, score, {label: float(values.mean()) for label, values in by_label.items()}))
        if progress is not None:
            progress("choosing options", len(scores), len(listed))
    if not scores:
        raise refused[0]
    if refused:
        note = "; ".join(filter(None, [note, f"{len(refused)} were not tried, as {refused[0]}"]))
    chosen = first_within_error(precisions, clusters)
    best = max(tried.score for tried in scores)
    tried = scores[chosen]
    skipped = tuple(listed[len(scores) + len(refused) :])
    n_facts = sum(len(values) for values in precisions[0].values())
    reason = f"average precision {tried.score:.3f} on {n_facts:,} hidden facts of {list_names([*clusters])}"
    if round(best - tried.score, 6) > 0:
        reason += f", not told apart from the best, {best:.3f}"
    return Choice(tried.options, tuple(scores), reason, perf_counter() - start, skipped, note)


def _join(hidden: Mapping[str, HiddenPredicate], by_label: Mapping[str, Numbers]) -> dict[str, Numbers]:
    """Return the numbers of hidden facts by predicate, those of several knowledge bases one after the other.

    Clusters, which are negative, stay apart.
    """
    joined: dict[str, Numbers] = {}
    for label, values in by_label.items():
        before = joined.get(hidden[label].predicate, values[:0])
        shift = float(before.min()) if len(before) and before.min() < 0 else 0.0
        joined[hidden[label].predicate] = np.append(before, values + shift)
    return joined


@dataclass(frozen=True)
class HiddenPredicate:
    """A predicate of which facts are hidden: what is left, the atoms to infer, and which of them are true."""

    rules: RuleSet
    kept: KnowledgeBase
    predicate: str
    queries: KnowledgeBase
    hidden: KnowledgeBase

    def precisions(self, options: Options) -> Numbers:
        """Return for each hidden fact the share of hidden facts among the atoms that are as probable or more.

        Their mean is the average precision.
        """
        model = MarkovLogic(self.rules, **options).fit(self.kept)
        columns, logits = model.predict(self.queries).columns(self.predicate)
        is_true = _is_among(columns, self.hidden.columns(self.predicate))
        facts = logits[is_true]
        true, all_atoms = (
            len(values) - np.searchsorted(np.sort(values), facts, side="left") for values in (facts, logits)
        )
        return np.asarray(true / all_atoms)

    def clusters(self, by_entity: bool) -> Numbers:
        """Return for each hidden fact a number below 0 that all share, or those with the same first entity."""
        columns = self.hidden.columns(self.predicate)
        order = np.lexsort(columns[::-1])  # as atoms are asked for
        return -1.0 - columns[0][order].astype(np.float64) * by_entity


def hide_facts(
    rules: RuleSet, kb: KnowledgeBase, name: str, *, seed: int = 0, most: int | None = None
) -> HiddenPredicate:
    """Hide half of a predicate's facts, true and false, or all where none is listed as false.

    Hidden false facts are the negatives; where there are none, all atoms that are not true, or some, `DRAWN` at
    most, where there are more than ``most``.
    """
    has_false = kb.count(name, truth=False) > 0
    kept, hidden = split_predicate(kb, name, share=HIDDEN_SHARE if has_false else 1.0, seed=seed)
    queries = hidden if has_false else _all_but(kb, name, kept, hidden, most, seed)
    return HiddenPredicate(rules, kept, name, queries, hidden)


def _hide_facts(cases: Mapping[str, Case], seed: int) -> tuple[dict[str, HiddenPredicate], str]:
    """Return what each candidate is tried on, by a label, and what was left out."""
    hidden: dict[str, HiddenPredicate] = {}
    notes = []
    for label, (rules, kb) in cases.items():
        names = telling_predicates(rules, kb)
        taken = sorted(names, key=lambda name: -kb.count(name))[:MOST_PREDICATES]
        for name in [name for name in names if name in taken]:
            hidden[f"{label} {name}".strip()] = hide_facts(rules, kb, name, seed=seed, most=MOST_LISTED)
        if len(names) > len(taken):
            notes.append(f"compared by {len(taken)} of {len(names)} predicates, those with the most facts")
    return hidden, "; ".join(dict.fromkeys(notes))


def split_predicate(
    kb: KnowledgeBase, name: str, *, share: float = 0.5, seed: int = 0
) -> tuple[KnowledgeBase, KnowledgeBase]:
    """Split off a share of a predicate's facts, of the true and of the false ones; at least one true one.

    >>> kb = KnowledgeBase.from_facts([("p", "a"), ("p", "b"), ("q", "a")])
    >>> kept, hidden = split_predicate(kb, "p")
    >>> kept.count("p"), kept.count("q"), hidden.count("p"), hidden.count("q")
    (1, 1, 1, 0)
    """
    random = np.random.default_rng(seed)
    kept: dict[bool, dict[str, FactTable]] = {True: {}, False: {}}
    hidden: dict[bool, dict[str, FactTable]] = {True: {}, False: {}}
    predicate_index = kb.predicate_index(name)
    for truth in (True, False):
        for signature, table in kb.tables(truth=truth).items():
            rows = np.flatnonzero(table.predicate == predicate_index)
            count = max(round(share * len(rows)), int(truth and len(rows) > 0))
            is_hidden = np.zeros(len(table), dtype=bool)
            is_hidden[random.choice(rows, size=count, replace=False)] = True
            kept[truth][signature], hidden[truth][signature] = table.keep_rows(~is_hidden), table.keep_rows(is_hidden)
    return kb.with_facts(kept[True], kept[False]), kb.with_facts(hidden[True], hidden[False])


def _all_but(
    kb: KnowledgeBase, name: str, known: KnowledgeBase, hidden: KnowledgeBase, most: int | None, seed: int
) -> KnowledgeBase:
    """Return the hidden facts of a predicate, and the atoms that are not known, or some of them, as facts."""
    facts = GroundFacts(kb, RuleSet([], predicates=kb.predicates.values()))
    types = kb.predicate(name).types
    sizes = [[len(members[type_name]) for type_name in types] for members in facts.worlds()]
    random = np.random.default_rng(seed)
    counts = np.array([int(np.prod(row, dtype=np.int64)) for row in sizes])
    total, parts = int(counts.sum()), []
    drawn = None if most is None or total <= most else random.multinomial(min(most, DRAWN), counts / total)
    for position, members in enumerate(facts.worlds()):
        if drawn is None:
            flat = np.arange(counts[position])
        else:
            flat = np.unique(random.integers(counts[position], size=drawn[position]))
        indices = np.unravel_index(flat, sizes[position])
        parts.append([members[type_name][index] for type_name, index in zip(types, indices, strict=True)])
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    is_new = ~_is_among(columns, kb.columns(name) if drawn is not None else known.columns(name))
    unknown = [column[is_new] for column in columns]
    if drawn is not None:
        unknown = [np.concatenate(pair) for pair in zip(hidden.columns(name), unknown, strict=True)]
    return KnowledgeBase.from_columns(kb.domains, kb.predicates.values(), {name: unknown}, worlds=kb.worlds)


def _is_among(columns: Sequence[Column], others: Sequence[Column]) -> Column:
    """Return which rows of some columns are also rows of others."""
    both = [np.concatenate([other, column]) for other, column in zip(others, columns, strict=True)]
    rows = np.stack([column.astype(np.int64) for column in both], axis=1)
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    count = len(others[0])
    return np.asarray(first[inverse.reshape(-1)][count:] < count)


def telling_predicates(rules: RuleSet, kb: KnowledgeBase) -> list[str]:
    """Return the predicates of the rules that candidates are compared by.

    They are those with facts both true and false, since only of them is known what is false; where there are none, all
    with true facts. Identities, whose facts name one entity twice, tell nothing of relations and are left out.
    """
    facts = GroundFacts(kb, declare_types(rules, kb))
    true = []
    for name in facts.observed_predicates():
        first, *others = kb.columns(name)
        is_identity = bool(others) and all(bool((first == other).all()) for other in others)
        if facts.count(name, truth=True) and not is_identity:
            true.append(name)
    return [name for name in true if facts.count(name, truth=False)] or true


def first_within_error(precisions: Sequence[Mapping[str, Numbers]], clusters: Mapping[str, Numbers]) -> int:
    """Return the position of the first candidate that is not told apart from the best.

    Each has, by predicate, a precision for each hidden fact, these in the same order; its score is the mean over
    predicates of the mean over facts. It is not told apart where it falls short of the best by at most one standard
    error of that difference (after Breiman et al., Classification and Regression Trees, 1984). Facts with the same
    number in ``clusters`` are not taken as independent: the variance of the mean of n differences d is
    ``C / (C − 1) · Σ_c (Σ_{i∈c} d_i − mean)² / n²`` over C clusters, and the square of the mean where there is one.

    >>> scores = [[0.1, 0.2, 0.3], [0.5, 0.9, 0.6], [0.8, 0.8, 0.7]]
    >>> first_within_error([{"p": np.array(of_facts)} for of_facts in scores], {"p": np.arange(3.0)})
    1
    """
    means = [mean(float(values.mean()) for values in candidate.values()) for candidate in precisions]
    best = max(range(len(means)), key=lambda position: (round(means[position], 6), -position))
    for position, candidate in enumerate(precisions):
        variance = 0.0
        for name, values in candidate.items():
            short = precisions[best][name] - values
            _, cluster = np.unique(clusters[name], return_inverse=True)
            sums = np.bincount(cluster.reshape(-1), weights=short - short.mean())
            n = len(sums)
            variance += short.mean() ** 2 if n == 1 else n / (n - 1) * (sums**2).sum() / len(short) ** 2
        if position == best or means[best] - means[position] <= sqrt(variance) / len(candidate) + 1e-6:
            return position
    return best
