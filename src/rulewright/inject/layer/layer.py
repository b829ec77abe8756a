"""Markov logic as a layer: mean-field messages of first-order formulas between a network's outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING
from typing import Literal as OneOf

import torch
from torch import Tensor, nn

from rulewright.errors import DataError
from rulewright.inject.layer.contractions import off_diagonal, on_diagonal
from rulewright.inject.layer.factors import fill_factors, plan_values
from rulewright.inject.layer.ground_inputs import CERTAIN, GroundInputs, Observation, read_inputs
from rulewright.inject.layer.grounding import Domains, Grounding
from rulewright.inject.layer.plan import ORDERS, HeadForm, Plan, Shape, default_memory_limit
from rulewright.logic import Rule, RuleSet, Statement, WeightedFormula

if TYPE_CHECKING:
    from rulewright.inject.layer.influence import Explanation


CLIPPED = 1e-3
"""How near to 0 and 1 a confidence may be when its log-odds are taken."""


class Weights(nn.Module):
    """One weight for each statement of a rule set; those that are learned are the parameter ``learned``."""

    def __init__(
        self,
        rules: RuleSet,
        *,
        rule_weights: OneOf["one", "logit"] = "one",
        hard_weight: float = 20.0,
        initial_weight: float = 1.0,
        learnable: bool = False,
    ) -> None:
        super().__init__()
        if rule_weights not in ("one", "logit"):
            raise DataError(f"weights must be 'one' or 'logit', got {rule_weights!r}")
        if not (math.isfinite(hard_weight) and hard_weight > 0):
            raise DataError(f"hard_weight must be finite and > 0, got {hard_weight}")
        self._fixed: list[float | None] = []
        self._place: list[int] = []
        start: list[float] = []
        for statement in rules:
            value = _given(statement, rule_weights, hard_weight)
            hard = isinstance(statement, WeightedFormula) and statement.kind == "hard"
            learned = value is None or (learnable and not hard)
            self._place.append(len(start))
            self._fixed.append(None if learned else value)
            if learned:
                start.append(initial_weight if value is None else value)
        self.learned = nn.Parameter(torch.tensor(start)) if start else None

    @property
    def requires_grad(self) -> bool:
        """Whether a weight is learned."""
        return self.learned is not None and self.learned.requires_grad

    def value(self, statement: int) -> float:
        """Return a statement's weight as a number."""
        fixed = self._fixed[statement]
        if fixed is not None:
            return fixed
        assert self.learned is not None
        return float(self.learned[self._place[statement]].detach())

    def add(self, total: Tensor | None, term: Tensor, statement: int, coefficient: int) -> Tensor:
        """Return ``total + coefficient · weight · term``."""
        fixed = self._fixed[statement]
        if fixed is not None:
            factor = fixed * coefficient
            return term * factor if total is None else torch.add(total, term, alpha=factor)
        assert self.learned is not None
        weight = self.learned[self._place[statement]].to(term.dtype) * coefficient
        return term * weight if total is None else torch.addcmul(total, term, weight)

    def as_rules(self, rules: RuleSet) -> RuleSet:
        """Return the rule set with learned weights in the place of ``learn`` and of the weights they started from."""
        found: list[Statement] = []
        for number, statement in enumerate(rules):
            if self._fixed[number] is not None:
                found.append(statement)
            elif isinstance(statement, WeightedFormula):
                found.append(replace(statement, kind="soft", weight=round(self.value(number), 6)))
            else:
                assert isinstance(statement, Rule)
                found.append(statement.annotated(weight=round(self.value(number), 6)))
        return RuleSet(found, predicates=rules.predicates, closed=rules.closed)


def _given(statement: Statement, rule_weights: str, hard_weight: float) -> float | None:
    """Return what a statement says its weight is; None is to be learned."""
    if isinstance(statement, Rule):
        if rule_weights == "one":
            return 1.0
        confidence = min(max(statement.confidence, CLIPPED), 1 - CLIPPED)
        return math.log(confidence / (1 - confidence))
    assert isinstance(statement, WeightedFormula)
    return hard_weight if statement.kind == "hard" else statement.weight


@dataclass(frozen=True, slots=True)
class Convergence:
    """How the iterations went: the largest change of a marginal in each, and whether it fell below the tolerance."""

    changes: tuple[float, ...]
    converged: bool

    def __str__(self) -> str:
        state = "settled" if self.converged else "not settled"
        last = f", last change {self.changes[-1]:.2g}" if self.changes else ""
        return f"{state} after {len(self.changes)} iterations{last}"


@dataclass(frozen=True, slots=True)
class LastCall:
    """What a layer was given, the marginals that its last messages came from, and the log-odds it returned."""

    inputs: GroundInputs
    marginals: Mapping[str, Tensor]
    logits: Mapping[str, Tensor]


class LogicLayer(nn.Module):
    """Mean-field inference in a Markov logic network over a network's outputs (Xu et al. 2024, Equations 2 and 3).

    With φ the given log-odds, every iteration sets ``logit_i ← φ_i + Σ_f w_f Σ_g E[φ_f | v_i = 1] − E[φ_f | v_i = 0]``
    over all groundings g of all formulas f, for all atoms at once; multi-class atoms alike for each class. Messages
    are exact for every formula, also where atoms of a grounding coincide.

    Args:
        rules: weighted, hard and learnable formulas, and rules (see ``weights``). Classes must be declared.
        domains: for each type its size or its entities' names; constants need names. None takes sizes from tensors.
        iterations: how often messages are sent.
        damping: the share of the old log-odds in the new ones, in [0, 1); helps where iterations oscillate.
        tolerance: stop when no marginal changes by more.
        weights: what a rule ``c :: head :- body`` weighs: ``"one"``, or ``"logit"``, the clipped log-odds of c.
        hard_weight: what a hard formula weighs.
        initial_weight: where a ``learn`` formula's weight starts.
        learnable: learn the weights of all statements but hard ones.
        cnf: ``"paper"`` sums the messages of plain clauses, as published; it counts a grounding twice where two of its
            clauses are false at once.
        optimize, share: contract in a good order, and equal parts once; False is for comparison.
        memory_limit: bytes above which grounding is refused; None is half of the machine's memory.

    >>> import rulewright as rw
    >>> layer = LogicLayer(rw.parse_rules("2.0 same(A, B) & same(B, C) => same(A, C)."))
    >>> logits = torch.tensor([[0.0, 3.0, -0.5], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]])
    >>> layer({"same": logits})["same"][0, 2] > 0
    tensor(True)
    """

    def __init__(
        self,
        rules: RuleSet,
        domains: Domains | None = None,
        iterations: int = 5,
        *,
        damping: float = 0.0,
        tolerance: float | None = None,
        weights: OneOf["one", "logit"] = "one",
        hard_weight: float = 20.0,
        initial_weight: float = 1.0,
        learnable: bool = False,
        cnf: OneOf["exact", "paper"] = "exact",
        optimize: bool = True,
        share: bool = True,
        memory_limit: int | None = None,
    ) -> None:
        super().__init__()
        if iterations < 0:
            raise DataError(f"iterations must be >= 0, got {iterations}")
        if not 0 <= damping < 1:
            raise DataError(f"damping must lie in [0, 1), got {damping}")
        if tolerance is not None and not tolerance >= 0:
            raise DataError(f"tolerance must be >= 0 or None, got {tolerance}")
        self.iterations, self.damping, self.tolerance = iterations, damping, tolerance
        self.memory_limit = default_memory_limit() if memory_limit is None else memory_limit
        self.grounding = Grounding(rules, domains=domains, cnf=cnf, optimize=optimize, share=share)
        self.weights = Weights(
            rules, rule_weights=weights, hard_weight=hard_weight, initial_weight=initial_weight, learnable=learnable
        )
        self.convergence: Convergence | None = None
        self._last: LastCall | None = None

    @property
    def rules(self) -> RuleSet:
        """The statements, with the weights that were learned."""
        return self.weights.as_rules(self.grounding.rules)

    def plan(self, sizes: Mapping[str, int] | None = None) -> Plan:
        """Return the contractions, groundings, operations and memory for sizes of types, before anything runs.

        >>> import rulewright as rw
        >>> layer = LogicLayer(rw.parse_rules("1.0 same(A, B) & same(B, C) => same(A, C)."))
        >>> layer.plan({"entity": 512}).groundings
        134217728
        """
        known = {**self.grounding.given_sizes, **(sizes or {})}
        for kind in self.grounding.types:
            if kind not in known:
                raise DataError(f"the size of type {kind} is not known; give plan({{{kind!r}: …}})")
        chosen = tuple(sorted((kind, known[kind]) for kind in self.grounding.types))
        return self.grounding.plan(Shape(chosen))

    def forward(
        self,
        logits: Mapping[str, Tensor],
        evidence: Mapping[str, Observation] | None = None,
        mask: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Return the log-odds of all atoms of the predicates in ``logits`` (of all classes, up to a constant).

        ``logits[p]`` is ``[*B, *args]``, or ``[*B, *args, K]`` where p has K classes. ``evidence[p]`` is a tensor of
        truth values (class numbers) where p is observed everywhere, or (values, observed). ``mask[type]``, ``[*B, N]``,
        tells which entities exist.
        """
        inputs = read_inputs(self.grounding, logits, evidence, mask)
        plan = self.grounding.plan(inputs.shape)
        open_names = [name for name in inputs.logits if name in self.grounding.used]
        self._check_memory(plan, inputs)
        check_hard_evidence(self.grounding, inputs)
        current = dict(inputs.logits)
        fixed = plan_values(plan, inputs)
        changes: list[float] = []
        converged = False
        marginals: dict[str, Tensor] = {}
        for _ in range(self.iterations):
            before, marginals = marginals, self._marginals(inputs, current)
            if self.tolerance is not None and before:
                changes.append(_largest_change(before, marginals))
                converged = changes[-1] <= self.tolerance
                if converged:
                    break
            values = self._send(plan, inputs, marginals, fixed)
            for name in open_names:
                target = self._updated(name, inputs, plan, values)
                current[name] = torch.lerp(current[name], target, 1 - self.damping) if self.damping else target
        if not torch.compiler.is_compiling():
            self._last = LastCall(inputs, _detached(marginals), _detached(current))
            if self.tolerance is not None:
                self.convergence = Convergence(tuple(changes), converged)
        return {name: self._output(name, logits[name], inputs, current) for name in logits}

    def _check_memory(self, plan: Plan, inputs: GroundInputs) -> None:
        training = torch.is_grad_enabled() and (
            any(each.requires_grad for each in inputs.logits.values()) or self.weights.requires_grad
        )
        size = torch.finfo(inputs.dtype).bits // 8
        needed = plan.memory(batch=inputs.rows, bytes_each=size, iterations=self.iterations, training=training)
        plan.check_memory(needed, self.memory_limit)

    def _marginals(self, inputs: GroundInputs, current: Mapping[str, Tensor]) -> dict[str, Tensor]:
        return {
            name: inputs.probabilities(current, self.grounding.predicates[name])
            for name in current
            if name in self.grounding.used
        }

    def _send(
        self, plan: Plan, inputs: GroundInputs, marginals: Mapping[str, Tensor], fixed: Mapping[int, Tensor]
    ) -> dict[int, Tensor]:
        """Compute all contractions of one iteration."""
        values = dict(fixed)
        fill_factors(plan, inputs, marginals, values)
        return plan.program.run(values, fixed=False, keep=plan.kept)

    def _updated(self, name: str, inputs: GroundInputs, plan: Plan, values: Mapping[int, Tensor]) -> Tensor:
        """Add a predicate's messages to what it was given."""
        total = inputs.logits[name]
        classes = self.grounding.predicates[name].classes
        for (predicate, chosen, form), messages in plan.messages.items():
            if predicate != name:
                continue
            mask = _form_mask(form, plan, name, inputs)
            if classes is None and mask is None and len(form.present) == form.arity:
                for message in messages:
                    total = self.weights.add(total, values[message.node], message.statement, message.coefficient)
                continue
            summed: Tensor | None = None
            for message in messages:
                summed = self.weights.add(summed, values[message.node], message.statement, message.coefficient)
            assert summed is not None
            summed = _spread(summed, form)
            if classes is not None:
                inside = torch.zeros(len(classes), dtype=inputs.dtype, device=inputs.device)
                inside[list(chosen)] = 1
                summed = summed.unsqueeze(-1)
                mask = inside if mask is None else mask.unsqueeze(-1) * inside
            total = total + summed if mask is None else torch.addcmul(total, summed, mask)
        return total

    def _output(self, name: str, given: Tensor, inputs: GroundInputs, current: Mapping[str, Tensor]) -> Tensor:
        declaration = self.grounding.predicates[name]
        known = inputs.known.get(name)
        found = current.get(name)
        if found is None:  # observed everywhere
            assert known is not None
            found = torch.zeros_like(given)
        elif found is not inputs.logits[name]:
            exists = inputs.mask_over(declaration)
            if exists is not None:
                valid = exists.bool() if declaration.classes is None else exists.bool().unsqueeze(-1)
                found = torch.where(valid, found, inputs.logits[name])
        if known is not None:
            certain = known.probability * CERTAIN
            if declaration.classes is None:
                certain = 2 * certain - CERTAIN
            if known.where is None:
                found = certain.expand(found.shape) if len(inputs.batch) <= 1 else certain
            else:
                where = known.where if declaration.classes is None else known.where.unsqueeze(-1)
                found = torch.where(where, certain, found)
        return found.reshape(given.shape) if found.shape != given.shape else found

    def exact_marginals(
        self, logits: Mapping[str, Tensor], evidence: Mapping[str, Observation] | None = None
    ) -> dict[str, Tensor]:
        """Return the true marginals of a small problem, from all its worlds, to see what mean field makes of them.

        >>> import rulewright as rw
        >>> layer = LogicLayer(rw.parse_rules("2.0 p(X) => q(X)."), iterations=20)
        >>> logits = {"p": torch.tensor([1.0]), "q": torch.tensor([0.0])}
        >>> {name: round(each.item(), 3) for name, each in layer.exact_marginals(logits).items()}
        {'p': 0.607, 'q': 0.731}
        >>> {name: round(each.sigmoid().item(), 3) for name, each in layer(logits).items()}
        {'p': 0.637, 'q': 0.781}
        """
        from rulewright.inject.layer.enumeration import exact_marginals

        return exact_marginals(self.grounding, self.weights, logits, evidence)

    def explain(self, atom: str, *, row: int = 0, top: int = 5) -> Explanation:
        """Tell which formulas and groundings moved an atom most in the last call.

        >>> import rulewright as rw
        >>> rules = rw.parse_rules("2.0 smokes(X) & friend(X, Y) => smokes(Y). closed friend.")
        >>> layer = LogicLayer(rules, domains={"entity": ["ann", "bob"]})
        >>> friends = torch.tensor([[False, True], [False, False]])
        >>> _ = layer({"smokes": torch.tensor([3.0, 0.0])}, evidence={"friend": friends})
        >>> print(layer.explain("smokes(bob)"))  # doctest: +NORMALIZE_WHITESPACE
        smokes(bob): given 0.00, now 1.88
          +1.88  2.0 smokes(X) & friend(X, Y) => smokes(Y).
                 +1.88  smokes(ann) & friend(ann, bob) => smokes(bob)
        """
        from rulewright.inject.layer.influence import explain_atom

        if self._last is None:
            raise DataError("the layer has not been called yet; explain tells of the last call")
        return explain_atom(self.grounding, self.weights, self._last, atom, row=row, top=top)


def _spread(summed: Tensor, form: HeadForm) -> Tensor:
    """Give a message a dimension of size 1 for each argument that it has none for."""
    before = summed.ndim - len(form.present)
    for position in range(form.arity):
        if position not in form.present:
            summed = summed.unsqueeze(before + position)
    return summed


def _form_mask(form: HeadForm, plan: Plan, name: str, inputs: GroundInputs) -> Tensor | None:
    """Return where a message arrives, 1 or 0; None is everywhere."""
    types = plan.grounding.predicates[name].types
    found: Tensor | None = None

    def both(tensor: Tensor) -> Tensor:
        return tensor if found is None else found * tensor

    for position, index in form.fixed:
        size = plan.sizes[types[position]]
        hot = torch.zeros(size, dtype=inputs.dtype, device=inputs.device)
        hot[index] = 1
        found = both(hot.view([size if each == position else 1 for each in range(form.arity)]))
    for first, second in form.repeats:
        size = plan.sizes[types[first]]
        found = both(on_diagonal(size, form.arity, first, second, inputs.dtype, inputs.device))
    for first, second in form.apart:
        size = plan.sizes[types[first]]
        found = both(off_diagonal(size, form.arity, first, second, inputs.dtype, inputs.device))
    return found


def check_hard_evidence(grounding: Grounding, inputs: GroundInputs) -> None:
    """Refuse evidence that alone breaks a hard formula."""
    observed = inputs.shape.observed
    for part in grounding.formulas:
        statement = grounding.statements[part.statement]
        used = {literal.predicate for pattern in part.patterns for literal in pattern.literals} - set(ORDERS)
        if isinstance(statement, WeightedFormula) and statement.kind == "hard" and used and used <= observed:
            broken = _count_false(grounding, inputs, part.statement)
            if broken > 0:
                raise DataError(f"the evidence contradicts a hard formula in {broken:,} groundings: {statement}")


def _count_false(grounding: Grounding, inputs: GroundInputs, statement: int) -> int:
    plan = grounding.plan(inputs.shape, "violations")
    values = plan_values(plan, inputs)
    return round(
        sum(
            coefficient * float(values[node].sum())
            for part, nodes in zip(grounding.formulas, plan.violations, strict=True)
            if part.statement == statement
            for coefficient, node in nodes
        )
    )


def _detached(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: each.detach() for name, each in tensors.items()}


def _largest_change(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> float:
    return max((float((after[name] - before[name]).abs().max()) for name in after), default=0.0)
