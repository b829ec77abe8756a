"""Rules measured on a network: what each is worth to these predictions, out of fold, as weights that a person can read.

`fit_rules` reads predictions of selection worlds beside their gold labels, fits a weight to every rule
(`rulewright.inject.rule_likelihood`), drops those that do not help, and says why; "no rules at all" is always among the
choices. `RuleFit` has what each injector takes.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf, isfinite
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.checks import Flag, Real, Whole, check_parameter
from rulewright.errors import DataError
from rulewright.inject.atom_space import AtomSpace, Domains
from rulewright.inject.labelled_worlds import LabelledWorld, read_labelled_worlds, split_arguments
from rulewright.inject.rule_likelihood import Likelihood, fit_weights
from rulewright.inject.rule_messages import Floats, RuleCases, WorldRow, measure_rules, read_messages, split_rows
from rulewright.inject.rule_scales import (
    LabelMetric,
    ScaleScore,
    f1_of_labels,
    scale_cost,
    score_scales,
    weigh_confidence,
)
from rulewright.logic import (
    Atom,
    Formula,
    Membership,
    Not,
    Rule,
    RuleSet,
    RuleSource,
    Statement,
    Variable,
    WeightedFormula,
)
from rulewright.tables import FrameLibrary, build_frame, html_table

SCALES = (0.25, 0.5, 1.0, 2.0, 4.0, inf)
"""How many times its weight breaking a rule may cost a decoder."""

STRENGTHS = (1.0, 0.3, 0.1, 0.03, 0.01, 0.003, 0.001)
"""Penalties that are tried, as shares of the one from which all weights are 0."""

SMALLEST = 1e-3
"""The weight below which a rule counts as dropped."""

PARTS = 2
"""Into how many parts a fold divides the atoms of worlds that are fewer than the folds."""

LIKELY = 0.05
"""The probability that some body must have for a rule to count as one that fires."""

NEVER_FIRES = "never fires on these predictions"
WRONG = "says the wrong thing: gold is less likely with it"
SAME = "another rule says the same"
CHANCE = "gain is within chance"
ALL_CHANCE = "no rules at all are as good"


@dataclass(frozen=True)
class FittedRule:
    """What a statement is worth to a network's predictions.

    ``gain`` is by how much it makes the gold labels of all worlds more likely, in log-likelihood, beside the other
    rules and out of fold; ``gain_error`` its standard error; ``gain_alone`` the same without other rules. ``cases`` is
    None where a statement has no head. ``reason`` says why a weight is 0.
    """

    number: int
    statement: Statement
    weight: float
    cost: float
    gain: float
    gain_error: float
    gain_alone: float
    cases: RuleCases | None
    reason: str = ""

    @property
    def confidence(self) -> float | None:
        """The confidence that a rule came with."""
        return self.statement.confidence if isinstance(self.statement, Rule) else None

    @property
    def measured(self) -> float | None:
        """The share of cases in which the head is true where the body is predicted; None where it never is."""
        return self.cases.held / self.cases.fired if self.cases is not None and self.cases.fired else None

    @property
    def estimate(self) -> float | None:
        """The measured share, drawn to one half where cases are few: ``(held + ½) / (fired + 1)``."""
        if self.cases is None or not self.cases.fired:
            return None
        return (self.cases.held + 0.5) / (self.cases.fired + 1)

    @property
    def bound(self) -> float | None:
        """The lower 5 % bound of the measured share (Jeffreys)."""
        if self.cases is None or not self.cases.fired:
            return None
        from scipy.special import betaincinv

        return float(betaincinv(self.cases.held + 0.5, self.cases.fired - self.cases.held + 0.5, 0.05))

    def columns(self) -> dict[str, Any]:
        """Return the row of the table."""
        row: dict[str, Any] = {
            "number": self.number,
            "rule": str(self.statement).split(" @{")[0],
            "weight": self.weight,
            "cost": self.cost,
            "gain": self.gain,
            "gain_error": self.gain_error,
            "gain_alone": self.gain_alone,
            "confidence": self.confidence,
            "measured": self.measured,
            "bound": self.bound,
        }
        cases = self.cases
        row |= {
            "fired": None if cases is None else cases.fired,
            "held": None if cases is None else cases.held,
            "expected": None if cases is None else cases.expected,
            "head_score": None if cases is None else cases.head_score,
        }
        for position, name in enumerate(("low", "middle", "high")):
            fired, held = (0, 0) if cases is None else cases.bins[position]
            row |= {f"{name}_cases": fired, f"{name}_share": held / fired if fired else None}
        return row | {"reason": self.reason}


@dataclass(frozen=True)
class RuleFit:
    """Rules with the weights that were measured on a network's predictions; see `fit_rules`.

    ``rows`` are in the order of the rules. ``log_likelihood`` is by how much all rules together make the gold labels of
    a world more likely, out of fold, and ``log_likelihood_error`` its standard error; ``path`` the same for each
    penalty, before rules are dropped. ``selection`` has the scores of labels out of fold, without rules, by a layer of
    one iteration, and by a decoder at each scale of the fitted weights and of the confidences that rules came with.
    """

    given: RuleSet
    rows: tuple[FittedRule, ...]
    penalty: float
    worlds: int
    folds: int
    log_likelihood: float
    log_likelihood_error: float
    path: tuple[tuple[float, float], ...]
    selection: tuple[ScaleScore, ...] = ()

    @property
    def scale(self) -> float:
        """How many times its weight breaking a rule costs a decoder; 0 where labels are as good without rules."""
        return next((score.scale for score in self.selection if score.is_chosen), 1.0)

    @property
    def best(self) -> ScaleScore | None:
        """The costs whose labels score highest out of fold, be it by chance, or no rules; None without scales."""
        scores = [score for score in self.selection if score.injector == "decoder" and not score.note]
        return max(scores, key=lambda score: (score.score, -score.scale), default=None)

    def costs_at(self, score: ScaleScore) -> tuple[float, ...]:
        """Return what one violation of each statement costs by one of ``selection``: ``fit.costs_at(fit.best)``."""
        confidences = map(weigh_confidence, self.given)
        weights = self.weights if score.weighting == "fitted" else confidences
        return tuple(scale_cost(weight, score.scale) for weight in weights)

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each statement in order, infinite for hard formulas."""
        return tuple(row.weight for row in self.rows)

    @property
    def costs(self) -> tuple[float, ...]:
        """What one violation of each statement costs a ``RuleDecoder(rule_costs=…)``, infinite for what must hold."""
        return tuple(row.cost for row in self.rows)

    @property
    def confidences(self) -> tuple[float | None, ...]:
        """The confidence of each statement of ``kept``, as measured; None for formulas."""
        return tuple(rule.confidence if isinstance(rule, Rule) else None for rule in self.kept)

    @cached_property
    def rules(self) -> RuleSet:
        """All rules, with ``@{weight: …}`` and the measured confidence, which stays as it was where no body held."""
        return self.given.with_weights(
            [None if row.weight == inf else row.weight for row in self.rows],
            confidences=[_round(row.estimate) if row.confidence is not None else None for row in self.rows],
        )

    @cached_property
    def kept(self) -> RuleSet:
        """The rules that help, and hard formulas."""
        kept = [index for index, row in enumerate(self.rows) if row.weight > 0]
        return RuleSet(
            [self.rules[index] for index in kept],
            predicates=self.given.predicates,
            closed=self.given.closed,
            numbers=[self.given.numbers[index] for index in kept],
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rules with their weights as a ``.rules`` file, to be read by `rulewright.read_rules`."""
        self.rules.save(path)

    def table(self) -> list[dict[str, Any]]:
        """Return a row for each rule, those that gain most first."""
        return [row.columns() for row in self._sorted()]

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return the table as a data frame."""
        table = self.table()
        return build_frame({name: [row[name] for row in table] for name in table[0]}, library)

    def _sorted(self) -> list[FittedRule]:
        return sorted(self.rows, key=lambda row: (-row.gain, -row.gain_alone, row.number))

    def _headline(self) -> str:
        fitted = [row for row in self.rows if row.weight != inf]
        kept = sum(row.weight > 0 for row in fitted)
        gained = f"{self.log_likelihood:+.4f} ± {self.log_likelihood_error:.4f}"
        verdict = f"{kept:,} of {len(fitted):,} rules help" if kept else "no rule helps; all weights are 0"
        return (
            f"{verdict}; log-likelihood of a world {gained}, out of fold ({self.worlds:,} worlds, {self.folds} folds)"
        )

    def __str__(self) -> str:
        names = ["gain", "alone", "weight", "conf", "here", "held/fired", "rule"]
        table = [names]
        for row in self._sorted():
            here = "" if row.measured is None else f"{row.measured:.2f} ≥{row.bound:.2f}"
            told = "" if row.cases is None else f"{row.cases.held:,}/{row.cases.fired:,}"
            given = "" if row.confidence is None else f"{row.confidence:.2f}"
            weight = "hard" if row.weight == inf else f"{row.weight:.3g}"
            gains = (
                [f"{row.gain:+.2f} ± {row.gain_error:.2f}", f"{row.gain_alone:+.2f}"] if row.weight != inf else [""] * 2
            )
            text = str(row.columns()["rule"]) + (f"  ({row.reason})" if row.reason else "")
            table.append([*gains, weight, given, here, told, text])
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        lines = ["  ".join([*map(str.rjust, line[:-1], widths), line[-1]]) for line in table]
        scored = ["labels out of fold: score, and difference to those without rules", *map(str, self.selection)]
        return "\n".join([self._headline(), *(scored if self.selection else []), *lines])

    def __repr__(self) -> str:
        return f"RuleFit({self._headline()})"

    def _repr_html_(self) -> str:
        table = self.table()
        return html_table(list(table[0]), [list(row.values()) for row in table], caption=self._headline())


def fit_rules(
    rules: RuleSource,
    predictions: Any,
    gold: Any,
    *,
    relations: Sequence[str] | None = None,
    domains: Domains | None = None,
    distinct: bool | None = None,
    evidence: Any = None,
    mask: Any = None,
    folds: int = 5,
    seed: int = 0,
    priors: bool = False,
    scales: Sequence[float] = SCALES,
    threshold: Any = 0.5,
    metric: LabelMetric = f1_of_labels,
    time_limit: float | None = None,
) -> RuleFit:
    r"""Measure rules on a network's predictions: weights λ ≥ 0 that make gold labels of selection worlds most likely.

    One step of mean field in a Markov logic network is taken, ``log-odds_i = m_i + Σ_f λ_f · φ_fi``: m are the
    predictions and φ_f the messages of statement f with weight 1, from the network's own probabilities σ(m) of the
    other atoms, as a `LogicLayer` with ``iterations=1`` has them. The penalty ``c · Σ λ`` is chosen by the likelihood
    of worlds left out; rules whose gain on such worlds is not above its standard error get the weight 0, and where all
    that is left does not gain more than its standard error, all do.

    Args:
        rules: rules and formulas; those that are hard stay hard and are not fitted.
        predictions: logits as an injector takes them, of one call or a list of calls; each row of a batch is a world.
            Give worlds that the network was not trained on, and calibrated logits: weights make up for it otherwise.
        gold: labels of the same structure: truth values, or class indices.
        relations, domains, distinct: as of every injector (`rulewright.inject.atom_space`).
        evidence, mask: those of the call, or one for each call.
        folds: how many parts the worlds are split into, at least 3; worlds and rows of a batch stay whole, or, where
            they are fewer, as one large graph is, all atoms of a first argument.
        seed: of the split, and of the worlds that are resampled.
        priors: add formulas ``p(X, Y)`` and ``!p(X, Y)`` for every predicate that is predicted and occurs in a rule,
            behind the rules: a rule alone can only raise its head where the body holds, not lower it where none does.
        scales: how many times its weight breaking a rule may cost a decoder; `math.inf` is to forbid it, and 0, no
            rules, is always tried. Weights are those that are fitted, or the log-odds of the confidences that rules
            came with (one of 1 counts as .99), which a decoder may need though no atom alone is more likely by them.
            The labels of worlds left out decide: of what is within one standard error of the best, no rules are taken,
            or else the fitted weights as they are. Without scales there is no decoding, and ``costs`` are the weights.
        threshold: as of ``RuleDecoder``, such as ``calibration.thresholds``.
        metric: what labels are judged by, from how many are correct, given and wanted in all worlds; of atoms with
            classes every one has a label. The default is F1 over all labels.
        time_limit: seconds for the labels of one call in one fold.

    >>> rng = np.random.default_rng(0)
    >>> truth = rng.random((200, 6)) < 0.5
    >>> gold = {"a": truth, "b": truth, "c": ~truth}
    >>> logits = {name: 2.0 * (part * 2 - 1) + 2.0 * rng.normal(size=part.shape) for name, part in gold.items()}
    >>> fit = fit_rules("b(X) :- a(X). c(X) :- a(X).", logits, gold)
    >>> [(str(rule.head), weight > 0) for rule, weight in zip(fit.rules, fit.weights)]
    [('b(X)', True), ('c(X)', False)]
    >>> fit.rows[1].reason
    'says the wrong thing: gold is less likely with it'
    """
    check_parameter("folds", folds, Whole(3))
    check_parameter("seed", seed, Whole(0))
    check_parameter("priors", priors, Flag())
    for scale in scales:
        if scale != inf:
            check_parameter("scales", scale, Real(0))
    space = AtomSpace(rules, domains=domains, relations=relations, distinct=distinct)
    if priors:
        predicted = predictions[0] if isinstance(predictions, Sequence) and len(predictions) else predictions
        with_priors = _add_priors(space, predicted if isinstance(predicted, Mapping) else relations or ())
        space = AtomSpace(with_priors, domains=domains, relations=relations, distinct=distinct)
    worlds = read_labelled_worlds(predictions, gold, space=space, evidence=evidence, mask=mask)
    rows = list(split_rows(space, worlds))
    if len(rows) < folds:
        worlds, rows = _split_graphs(worlds, rows, PARTS * folds, seed)
    fitted = [index for index, statement in enumerate(space.rules) if getattr(statement, "kind", "") != "hard"]
    if not fitted:
        raise DataError("there is no rule to fit: all statements are hard formulas" if len(space.rules) else "no rules")
    order = np.random.default_rng(seed).permutation(len(rows))
    fold_of = np.empty(len(rows), dtype=np.int64)
    fold_of[order] = np.arange(len(rows)) % folds
    likelihood = Likelihood(read_messages(space, rows, fitted), np.ones(len(rows), dtype=bool))
    fitter = _RuleFitter(likelihood, fold_of, folds)
    penalty, path = fitter.choose_penalty()
    result = fitter.fit(penalty)
    cases = measure_rules(space, rows)
    positions = {index: position for position, index in enumerate(fitted)}
    reasons = fitter.explain(result, [cases[index] for index in fitted])
    weights = [_round(float(weight)) or 0.0 for weight in result.weights]
    selection: tuple[ScaleScore, ...] = ()
    if scales:
        by_fold = [np.full(len(space.rules), inf) for _ in result.fold_weights]
        for of_fold, own in zip(by_fold, result.fold_weights, strict=True):
            of_fold[fitted] = own
        selection = score_scales(
            space,
            worlds,
            fold_of,
            [of_fold.tolist() for of_fold in by_fold],
            scales,
            threshold=threshold,
            metric=metric,
            time_limit=time_limit,
            seed=seed,
        )
    chosen = next((score for score in selection if score.is_chosen), ScaleScore("decoder", 1.0, 0.0, 0.0, 0.0))
    lines: list[FittedRule] = []
    for index, statement in enumerate(space.rules):
        number = space.rules.numbers[index]
        if index not in positions:
            lines.append(FittedRule(number, statement, inf, inf, 0.0, 0.0, 0.0, cases[index]))
            continue
        at = positions[index]
        weight = weights[at]
        cost = scale_cost(weight if chosen.weighting == "fitted" else weigh_confidence(statement), chosen.scale)
        gains = float(result.gains[at]), float(result.errors[at]), float(result.alone[at])
        lines.append(FittedRule(number, statement, weight, cost, *gains, cases[index], reasons[at]))
    means = result.total / len(rows), result.error / len(rows)
    return RuleFit(space.rules, tuple(lines), penalty, len(rows), folds, *means, path, selection)


def _split_graphs(
    worlds: Sequence[LabelledWorld], rows: Sequence[WorldRow], parts: int, seed: int
) -> tuple[list[LabelledWorld], list[WorldRow]]:
    """Return few large worlds as many, each with a part of the atoms, and their rows."""
    found_worlds: list[LabelledWorld] = []
    found_rows: list[WorldRow] = []
    start = 0
    for world in worlds:
        own = rows[start : start + world.rows]
        start += world.rows
        for part in split_arguments(world, parts, seed):
            found_worlds.append(part)
            for index, row in enumerate(own):
                counted = {name: values[index] for name, values in part.counted.items()}
                found_rows.append(replace(row, counted=counted))
    return found_worlds, found_rows


def _add_priors(space: AtomSpace, predicted: Collection[str]) -> RuleSet:
    """Return the rules and behind them formulas of one atom, whose weights say how often it holds by itself."""
    statements: list[Statement] = [*space.rules]
    for name, declaration in space.predicates.items():
        if name not in space.used or name not in predicted:
            continue
        atom = Atom(name, tuple(Variable(f"X{position + 1}") for position in range(declaration.arity)))
        formulas: list[Formula] = [atom, Not(atom)]
        if declaration.classes is not None:
            formulas = [Membership(atom, (class_name,)) for class_name in declaration.classes]
        statements += [WeightedFormula(formula, "learn") for formula in formulas]
    return RuleSet(statements, predicates=space.rules.predicates, closed=space.rules.closed)


def _round(value: float | None) -> float | None:
    """Return a number with the digits that are written."""
    return None if value is None else float(f"{value:.4g}")


@dataclass(frozen=True)
class _FitResult:
    weights: Floats
    fold_weights: list[Floats]
    gains: Floats
    errors: Floats
    alone: Floats
    alone_errors: Floats
    total: float
    error: float
    helped: npt.NDArray[np.bool_]


class _RuleFitter:
    """Fits weights with and without folds; what was fitted is kept by the folds that were left out."""

    def __init__(self, likelihood: Likelihood, fold_of: npt.NDArray[np.int64], folds: int) -> None:
        self.likelihood, self.fold_of, self.folds = likelihood, fold_of, folds
        self.is_new = likelihood.is_new()
        self._picked: dict[frozenset[int], Likelihood] = {frozenset(): likelihood}
        self._fitted: dict[tuple[frozenset[int], float], Floats] = {}

    def without(self, left_out: frozenset[int]) -> Likelihood:
        """Return the likelihood in the worlds of all other folds."""
        if left_out not in self._picked:
            self._picked[left_out] = self.likelihood.pick(~np.isin(self.fold_of, [*left_out]))
        return self._picked[left_out]

    def choose_penalty(self) -> tuple[float, tuple[tuple[float, float], ...]]:
        """Return the penalty under which worlds left out are most likely, and their mean gain under each."""
        zero = np.zeros(self.likelihood.size)
        _, gradient = self.likelihood.loss(zero)
        largest = float(-gradient.min(initial=0.0))
        if largest <= 0:
            return inf, ((inf, 0.0),)
        path = [(inf, 0.0)]
        starts: list[Floats | None] = [None] * self.folds
        for strength in STRENGTHS:
            penalty = strength * largest
            total = 0.0
            for fold in range(self.folds):
                left_out = frozenset([fold])
                start = starts[fold] = self._fit(left_out, penalty, starts[fold])
                total += float(self.likelihood.gains(start)[self.fold_of == fold].sum())
            path.append((penalty, total / len(self.fold_of)))
        best = max(path, key=lambda pair: pair[1])
        return best[0], tuple(path)

    def _fit(self, left_out: frozenset[int], penalty: float, start: Floats | None = None) -> Floats:
        key = (left_out, penalty)
        if key not in self._fitted:
            self._fitted[key] = fit_weights(self.without(left_out), penalty, start=start, kept=self.is_new)
        return self._fitted[key]

    def fit(self, penalty: float) -> _FitResult:
        """Return the weights, and what they gain out of fold; rules are chosen anew without each fold."""
        size, count = self.likelihood.size, len(self.fold_of)
        chosen = [self._select(frozenset([fold]), penalty) for fold in range(self.folds)]
        weights = self._select(frozenset(), penalty)
        by_rule, by_world = np.zeros((size, count)), np.zeros(count)
        for fold, own in enumerate(chosen):
            is_own = self.fold_of == fold
            by_world[is_own] = self.likelihood.gains(own)[is_own]
            by_rule[:, is_own] = self.likelihood.gains_of_each(own)[:, is_own]
        alone = self._gains_alone()
        total, error = float(by_world.sum()), float(_standard_errors(by_world))
        helped = weights > 0
        if total <= error:
            weights, chosen = np.zeros(size), [np.zeros(size) for _ in chosen]
        errors, alone_errors = _standard_errors(by_rule), _standard_errors(alone)
        return _FitResult(weights, chosen, by_rule.sum(1), errors, alone.sum(1), alone_errors, total, error, helped)

    def _select(self, left_out: frozenset[int], penalty: float) -> Floats:
        """Fit to all folds but some, with the rules that gain more than chance in folds left out of these."""
        if not isfinite(penalty):
            return np.zeros(self.likelihood.size)
        gains = np.zeros((self.likelihood.size, len(self.fold_of)))
        used = [fold for fold in range(self.folds) if fold not in left_out]
        for fold in used:
            likelihood = self.likelihood.pick(self.fold_of == fold)
            gains += likelihood.gains_of_each(self._fit(left_out | {fold}, penalty))
        gains = gains[:, np.isin(self.fold_of, used)]
        kept = gains.sum(1) > _standard_errors(gains)
        start = self._fit(left_out, penalty)
        weights = fit_weights(self.without(left_out), penalty, start=start, kept=kept & (start > 0))
        return np.where(weights >= SMALLEST, weights, 0.0)

    def _gains_alone(self) -> Floats:
        """Return ``[statements, worlds]``: what each statement gains out of fold without the others."""
        gains = np.zeros((self.likelihood.size, len(self.fold_of)))
        for column in range(self.likelihood.size):
            alone = self.likelihood.alone(column)
            if not alone.parts:
                continue
            for fold in range(self.folds):
                weight = fit_weights(alone.pick(self.fold_of != fold), 0.0)
                is_own = self.fold_of == fold
                gains[column, is_own] = alone.gains(weight)[is_own]
        return gains

    def explain(self, result: _FitResult, cases: Sequence[RuleCases | None]) -> list[str]:
        """Return why each weight is 0."""
        _, gradient = self.likelihood.loss(np.zeros(self.likelihood.size))
        touched = self.likelihood.touched()
        reasons = []
        for column, weight in enumerate(result.weights):
            case = cases[column]
            if weight > 0:
                reasons.append("")
            elif not touched[column] or (case is not None and not case.fired and not any(n for n, _ in case.bins)):
                reasons.append(NEVER_FIRES)
            elif not self.is_new[column]:
                reasons.append(SAME)
            elif gradient[column] >= 0:
                reasons.append(WRONG)
            elif result.helped[column]:
                reasons.append(ALL_CHANCE)
            elif result.alone[column] <= result.alone_errors[column]:
                reasons.append(CHANCE)
            else:
                reasons.append(SAME)
        return reasons


def _standard_errors(gains: Floats) -> Floats:
    """Return the standard errors of sums over worlds."""
    count = gains.shape[-1]
    return np.asarray(np.sqrt(count) * gains.std(-1, ddof=1))
