"""Markov logic as a layer: mean-field messages of first-order formulas between a network's outputs.

`LogicLayer.forward` reads its inputs, has a plan made for their shape, and in each iteration runs the plan on the
current marginals and adds up the messages (`LogicLayer.add_messages`); `rulewright.inject.layer.plan` says what a
message is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
from torch import Tensor, nn

from rulewright.checks import OneOf, ParameterRule, Real, Whole, check_parameter, check_parameters, read_memory_limit
from rulewright.errors import DataError, MemoryLimitError
from rulewright.inject.atom_space import Domains
from rulewright.inject.inputs import (
    CERTAIN,
    Evidence,
    GroundInputs,
    InputShape,
    Logits,
    Mask,
    StoredEvidence,
    read_inputs,
    split_inputs,
)
from rulewright.inject.layer.averaging import Averages, MessageForm, weigh_candidates
from rulewright.inject.layer.candidates import CandidateReader, Rest, SparseInputs, SparseLogits, is_sparse
from rulewright.inject.layer.exact import CliqueTree, ExactSolver, infer_exactly
from rulewright.inject.layer.grounding import Grounding
from rulewright.inject.layer.plan import ORDERS, Plan, Planner, Purpose
from rulewright.inject.layer.schedule import Convergence, iterate, warn_unsettled
from rulewright.inject.layer.sparse import SparsePlan, SparsePlanner
from rulewright.logic import Rule, RuleSet, RuleSource, Statement, WeightedFormula

if TYPE_CHECKING:
    from rulewright.inject.layer.effects import BatchExplanation
    from rulewright.inject.layer.influence import CallTrace, MessageExplanation

CLIPPED = 1e-3
"""How near to 0 and 1 a confidence may be when its log-odds are taken."""

MOST_TRIED = 10_000
"""For how many groundings a plan of mean field says what exact inference would need."""

_WEIGHT_RULES: Mapping[str, ParameterRule] = {
    "weights": OneOf("one", "logit", "annotated"),
    "hard_weight": Real(0, above=True),
}
_LAYER_RULES: Mapping[str, ParameterRule] = {
    "iterations": Whole(0),
    "damping": Real(0, 1, below=True, optional=True),
    "tolerance": Real(0, optional=True),
    "cnf": OneOf("exact", "paper"),
    "inference": OneOf("mean-field", "exact"),
    "messages": OneOf("sum", "mean"),
    "draws": Whole(0),
    "observed_odds": Real(0, above=True, optional=True),
}


class Weights(nn.Module):
    """One weight for each statement of a rule set; those that are learned are the parameter ``learned``.

    A rule weighs what its annotation says, ``@{weight: 1.5}``, as `write_into` and `RuleSet.with_weights` write it.
    Without one it weighs 1 or, by ``weights="logit"``, the clipped log-odds of its confidence, or is refused, by
    ``weights="annotated"``.

    Beside the parameter, the state holds the statements whose weights are learned, as the bytes of their text
    (``learned_statements``). A state of other statements, or of these in another order, is refused; one without them
    is taken, as it was written before there were any.
    """

    learned_statements: Tensor

    def __init__(
        self,
        rules: RuleSet,
        *,
        weights: Literal["one", "logit", "annotated"] = "one",
        hard_weight: float = 20.0,
        initial_weight: float = 1.0,
        learnable: bool = False,
    ) -> None:
        super().__init__()
        check_parameters({"weights": weights, "hard_weight": hard_weight}, _WEIGHT_RULES)
        self._fixed: list[float | None] = []
        self._positions: list[int] = []  # of each statement's weight among those that are learned
        start: list[float] = []
        names: list[str] = []
        for statement in rules:
            weight: float | None = 1.0
            if isinstance(statement, WeightedFormula):
                weight = hard_weight if statement.kind == "hard" else statement.weight
            elif isinstance(statement, Rule):
                weight = statement.annotations.number("weight")
                if weight is None and weights == "logit":
                    confidence = min(max(statement.confidence, CLIPPED), 1 - CLIPPED)
                    weight = math.log(confidence / (1 - confidence))
                elif weight is None and weights == "annotated":
                    raise DataError(
                        f"weights='annotated' needs the weight of every rule, @{{weight: …}}, and there is none in: "
                        f"{statement}; RuleSet.with_weights writes it, or take weights='one' or 'logit'"
                    )
                elif weight is None:
                    weight = 1.0
            is_learned = weight is None or (learnable and getattr(statement, "kind", "") != "hard")
            self._positions.append(len(start))
            self._fixed.append(None if is_learned else weight)
            if is_learned:
                start.append(float(initial_weight if weight is None else weight))
                names.append(_name_statement(statement))
        self.learned = nn.Parameter(torch.tensor(start)) if start else None
        if start:
            text = torch.tensor(list("\n".join(names).encode()), dtype=torch.uint8)
            self.register_buffer("learned_statements", text)

    def _load_from_state_dict(
        self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool, *lists: list[str]
    ) -> None:
        """Refuse the state of other statements before anything is taken from it."""
        key = f"{prefix}learned_statements"
        if self.learned is not None:
            if key in state_dict:
                _check_statements(self.learned_statements, state_dict[key])
            state_dict = {**state_dict, key: self.learned_statements}
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, *lists)

    def value(self, statement_index: int) -> float:
        """Return a statement's weight as a number."""
        fixed = self._fixed[statement_index]
        if fixed is not None:
            return fixed
        assert self.learned is not None
        weight = self.learned[self._positions[statement_index]].detach()
        # The fewest digits that give the same parameter again: 0.1 and not 0.10000000149
        return float(str(np.float32(weight))) if weight.dtype == torch.float32 else float(weight)

    def add(self, total: Tensor | None, term: Tensor, statement_index: int, coefficient: float) -> Tensor:
        """Return ``total + coefficient · weight · term``."""
        fixed = self._fixed[statement_index]
        if fixed is not None:
            factor = fixed * coefficient
            if total is None:
                return term * factor
            if torch.compiler.is_compiling():  # Inductor of torch 2.13 loses alpha where it fuses a product of matrices
                return total + term * factor
            return torch.add(total, term, alpha=factor)
        assert self.learned is not None
        weight = self.learned[self._positions[statement_index]].to(term.dtype) * coefficient
        return term * weight if total is None else torch.addcmul(total, term, weight)

    def write_into(self, rules: RuleSet) -> RuleSet:
        """Return the rule set with learned weights instead of ``learn`` and of the weights they started from."""
        statements: list[Statement] = []
        for index, statement in enumerate(rules):
            if self._fixed[index] is None and isinstance(statement, WeightedFormula):
                statement = replace(statement, kind="soft", weight=self.value(index))
            elif self._fixed[index] is None and isinstance(statement, Rule):
                statement = statement.annotated(weight=self.value(index))
            statements.append(statement)
        return RuleSet(statements, predicates=rules.predicates, closed=rules.closed)


def _name_statement(statement: Statement) -> str:
    """Return the text of a statement without weight, confidence and annotations, on one line."""
    if isinstance(statement, Rule):
        return str(Rule(statement.head, statement.body))
    assert isinstance(statement, WeightedFormula)
    return f"{statement.formula}."


def _check_statements(own: Tensor, given: Tensor) -> None:
    """Refuse the statements of a state where they are not a module's own."""
    expected, found = (bytes(text.cpu().tolist()).decode(errors="replace").split("\n") for text in (own, given))
    if expected == found:
        return
    if sorted(expected) == sorted(found):
        position = next(i for i, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1])
        raise DataError(
            f"the state has the weights of the same statements in another order: learned weight {position + 1} is of "
            f"{found[position]} in the state and of {expected[position]} here; give the rules in the order they had"
        )
    differences = [f"here is not in it: {text}" for text in expected if text not in found]
    differences += [f"in it is not here: {text}" for text in found if text not in expected]
    shown = differences[0] if differences else f"it has {len(found)} and here are {len(expected)}"
    more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
    raise DataError(f"the state has learned weights of other statements; one {shown}{more}; load it with its own rules")


class LogicLayer(nn.Module):
    """Mean-field inference in a Markov logic network over a network's outputs (Xu et al. 2024, Equations 2 and 3).

    With φ the given log-odds, every iteration sets ``logit_i ← φ_i + Σ_f w_f Σ_g E[φ_f | v_i = 1] − E[φ_f | v_i = 0]``
    over all groundings g of all formulas f, for all atoms at once; multi-class atoms alike for each class. Messages
    are exact for every formula, also where atoms of a grounding coincide.

    Args:
        rules: weighted, hard and learnable formulas, and rules (see ``weights``), as a rule set, as text or as a list.
            Classes must be declared.
        domains: for each type its size or its entities' names; constants need names. None takes sizes from tensors.
        iterations: how often messages are sent.
        inference: ``"mean-field"``, or ``"exact"``: the true marginals, by messages between cliques of atoms, where
            these are small, as in chains, trees and hierarchies (`rulewright.inject.layer.exact`); ``iterations``,
            ``damping`` and ``tolerance`` then have no meaning.
        relations: names of the relations of stacked logits ``[*B, n, n, R]``; the output then is stacked too.
        distinct: whether different variables stand for different entities; None is so with ``relations`` only.
        evidence: observations of every call, as buffers that follow ``.to()``; those of a call replace them by name.
        damping: the share of the old log-odds in the new ones, in [0, 1); helps where iterations oscillate. None is 0
            without hard formulas; with them their weight grows over the iterations, and atoms that turn back are
            damped more (`rulewright.inject.layer.schedule`).
        tolerance: stop when no marginal changes by more.
        weights: what a rule ``c :: head :- body`` without ``@{weight: …}`` weighs: ``"one"``, or ``"logit"``, the
            clipped log-odds of c; with ``"annotated"`` it is refused.
        hard_weight: what a hard formula weighs.
        initial_weight: where a ``learn`` formula's weight starts.
        learnable: learn the weights of all statements but hard ones.
        cnf: ``"paper"`` sums the messages of plain clauses, as published; it counts a grounding twice where two of its
            clauses are false at once.
        messages: ``"sum"`` adds up the messages of all groundings of an atom; ``"mean"`` takes their mean, so that an
            atom with a thousand groundings is not certain at once (`rulewright.inject.layer.averaging`). It is over the
            ground clauses that evidence does not satisfy, each formula counting alike; for mean field.
        draws: of mean messages, how many ground clauses are thought to be drawn: an atom gets its mean message as often
            as it is expected to be among them where it is at all; 0 is once.
        observed_odds: of mean messages, the odds that an atom of a ground clause is drawn from those observed of its
            predicate, which makes ground clauses with many observed atoms count more: 9 is nine in ten. None is all
            ground clauses alike.
        memory_limit: bytes, or a text such as ``"2GB"``, above which grounding is refused; None is half of what the
            device of the logits has.

    >>> layer = LogicLayer("2.0 same(A, B) & same(B, C) => same(A, C).")
    >>> logits = torch.tensor([[0.0, 3.0, -0.5], [0.0, 0.0, 3.0], [0.0, 0.0, 0.0]])
    >>> layer({"same": logits})["same"][0, 2] > 0
    tensor(True)
    """

    def __init__(
        self,
        rules: RuleSource,
        domains: Domains | None = None,
        iterations: int = 5,
        *,
        inference: Literal["mean-field", "exact"] = "mean-field",
        relations: Sequence[str] | None = None,
        distinct: bool | None = None,
        evidence: Evidence | None = None,
        damping: float | None = None,
        tolerance: float | None = None,
        weights: Literal["one", "logit", "annotated"] = "one",
        hard_weight: float = 20.0,
        initial_weight: float = 1.0,
        learnable: bool = False,
        cnf: Literal["exact", "paper"] = "exact",
        messages: MessageForm = "sum",
        draws: int = 0,
        observed_odds: float | None = None,
        memory_limit: int | str | None = None,
    ) -> None:
        super().__init__()
        check_parameters(
            {"iterations": iterations, "damping": damping, "tolerance": tolerance, "cnf": cnf, "inference": inference}
            | {"messages": messages, "draws": draws, "observed_odds": observed_odds},
            _LAYER_RULES,
        )
        if messages == "mean" and inference == "exact":
            raise DataError(
                "messages='mean' needs inference='mean-field': exact inference sends no messages to average"
            )
        if messages == "sum" and (draws, observed_odds) != (0, None):
            raise DataError("draws and observed_odds are of mean messages; give messages='mean'")
        self.inference, self.iterations, self.damping, self.tolerance = inference, iterations, damping, tolerance
        self.messages, self.draws, self.observed_odds = messages, draws, observed_odds
        self.memory_limit = read_memory_limit(memory_limit)
        self.grounding = Grounding(rules, domains=domains, relations=relations, distinct=distinct, cnf=cnf)
        self.planner = Planner(self.grounding)
        self.candidate_reader = CandidateReader(self.grounding)
        self.sparse_planner = SparsePlanner(self.grounding)
        self.solver = ExactSolver(self.grounding)
        self.evidence = StoredEvidence(self.grounding, evidence)
        self.weights = Weights(
            self.grounding.rules,
            weights=weights,
            hard_weight=hard_weight,
            initial_weight=initial_weight,
            learnable=learnable,
        )
        self.hard_weight = hard_weight
        self.convergence: Convergence | None = None
        self.has_warned = False
        self._last: GroundInputs | None = None
        self._trace: CallTrace | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what `explain` remembers of the last call: a copy has had none."""
        return {**self.__dict__, "_last": None, "_trace": None}

    @property
    def rules(self) -> RuleSet:
        """The statements, with the weights that were learned."""
        return self.weights.write_into(self.grounding.rules)

    @overload
    def plan(self, sizes: Mapping[str, int] | None = None, evidence: Evidence | None = None) -> Plan: ...

    @overload
    def plan(
        self,
        sizes: Mapping[str, int] | None = None,
        evidence: Evidence | None = None,
        *,
        candidates: Mapping[str, Tensor],
        rest: Rest | None = None,
    ) -> SparsePlan: ...

    def plan(
        self,
        sizes: Mapping[str, int] | None = None,
        evidence: Evidence | None = None,
        *,
        candidates: Mapping[str, Tensor] | None = None,
        rest: Rest | None = None,
    ) -> Plan | SparsePlan:
        """Return the contractions, groundings, operations, memory and time for sizes of types, before anything runs.

        The plan says which inference is used, and what the other one would be. For exact inference ``plan.cliques`` has
        its tables, which depend on the ``evidence`` too; what is too large is refused. With ``candidates``, the index
        of each predicate as in a call, the plan is an estimate of one over these, which joins nothing
        (`rulewright.inject.layer.choice.choose_grounding` compares both).

        >>> import rulewright as rw
        >>> layer = LogicLayer(rw.parse_rules("1.0 same(A, B) & same(B, C) => same(A, C)."))
        >>> layer.plan({"entity": 512}).groundings
        134217728
        """
        if candidates is not None:
            zeros: dict[str, SparseLogits] = {}
            for name, index in candidates.items():
                classes = self.grounding.predicates[name].classes if name in self.grounding.predicates else None
                zeros[name] = index, torch.zeros(len(index), *(() if classes is None else (len(classes),)))
            inputs = self.candidate_reader.read(zeros, self.evidence.join(evidence), rest, sizes=sizes)
            return SparsePlan(self.grounding, inputs, memory_limit=self.memory_limit, is_estimate=True)
        known = {**self.grounding.given_sizes, **(sizes or {})}
        for type_name in self.grounding.types:
            if type_name not in known:
                raise DataError(f"the size of type {type_name} is not known; give plan({{{type_name!r}: …}})")
        plan = self.planner.plan(InputShape(tuple(sorted((name, known[name]) for name in self.grounding.types))))
        if self.inference == "exact":
            tree = self._find_cliques(known, evidence)
            return plan.with_inference(f"{tree}; in place of iterations", tree)
        form = "mean field" if self.messages == "sum" else "mean field with mean messages"
        used = f"{form}: {self.iterations} iterations, an approximation"
        if plan.groundings > MOST_TRIED:
            return plan.with_inference(f"{used}; exact inference is not tried for more than {MOST_TRIED:,} groundings")
        try:
            cells = self._find_cliques(known, evidence).largest
        except (DataError, MemoryLimitError) as error:
            reason = str(error).partition(". Use inference=")[0]
            return plan.with_inference(f"{used}; {reason}")
        return plan.with_inference(f'{used}; inference="exact" needs a table of {cells:,} cells')

    def _find_cliques(self, known: Mapping[str, int], evidence: Evidence | None) -> CliqueTree:
        """Return the cliques of exact inference for sizes of types, the logits being unknown."""
        joined = self.evidence.join(evidence)
        logits = {}
        for name, declaration in self.grounding.predicates.items():
            is_open = name in self.grounding.used and name not in self.grounding.closed
            if is_open and not isinstance(joined.get(name), Tensor):
                classes = () if declaration.classes is None else (len(declaration.classes),)
                logits[name] = torch.zeros(*(known[type_name] for type_name in declaration.types), *classes)
        return self.solver.tree(read_inputs(self.grounding, logits, joined, None))

    @overload
    def forward(
        self, logits: Tensor, evidence: Evidence | Tensor | None = None, mask: Mask | None = None
    ) -> Tensor: ...

    @overload
    def forward(
        self, logits: Mapping[str, Tensor], evidence: Evidence | None = None, mask: Mask | None = None
    ) -> dict[str, Tensor]: ...

    @overload
    def forward(
        self,
        logits: Mapping[str, Tensor | SparseLogits],
        evidence: Evidence | None = None,
        mask: Mask | None = None,
        *,
        rest: Rest | None = None,
    ) -> dict[str, Tensor | SparseLogits]: ...

    def forward(
        self,
        logits: Logits | Mapping[str, Tensor | SparseLogits],
        evidence: Evidence | Tensor | None = None,
        mask: Mask | None = None,
        *,
        rest: Rest | None = None,
    ) -> Tensor | dict[str, Tensor] | dict[str, Tensor | SparseLogits]:
        """Return the log-odds of all atoms of the predicates in ``logits`` (of all classes, up to a constant).

        Logits, evidence and masks are as `rulewright.inject.atom_space` says: ``logits[p]`` is ``[*B, *args]``, or
        ``[*B, *args, K]`` where p has K classes; ``evidence[p]`` truth values (class indices) where p is observed
        everywhere, or (values, observed); ``mask[type]``, ``[*B, N]``, says which entities exist. With ``relations``,
        ``layer(logits, mask)`` takes ``[*B, n, n, R]`` and ``[*B, n]`` and returns ``[*B, n, n, R]``.

        Over *candidate atoms* (`rulewright.inject.layer.candidates`), ``logits[p]`` is ``(index, logits)``, of which
        the layer returns the same form: ``[n, arity]`` entity indices, each atom once, and log-odds ``[n]`` or
        ``[n, K]``; ``evidence[p]`` may be ``(index, values)``, values ``[n]``. Atoms in neither *rest*, in all
        groundings: those of closed predicates at false, others at the log-odds ``rest``, one number or by predicate
        (±inf holds them true or false; of classes one's name, or log-odds of each). Predicates that are given as
        tensors have all atoms as candidates. Messages to candidates are exact.

        >>> layer = LogicLayer("2.0 r(A, B) & r(B, C) => r(A, C).", domains={"entity": 1_000_000})
        >>> index = torch.tensor([[0, 7], [7, 999_999], [0, 999_999]])
        >>> found = layer({"r": (index, torch.tensor([4.0, 4.0, 0.0]))}, rest=float("-inf"))
        >>> bool(found["r"][1][2] > 1)
        True
        """
        if is_sparse(logits, evidence, self.evidence):  # else no atom rests
            return self._infer_sparsely(logits, evidence, mask, rest)
        by_predicate, evidence, mask = split_inputs(self.grounding, logits, evidence, mask)  # type: ignore[arg-type]
        output = self._infer(by_predicate, self.evidence.join(evidence), mask)
        if isinstance(logits, Tensor):
            assert self.grounding.relations is not None
            return torch.stack([output[name] for name in self.grounding.relations], -1)
        return output

    def _infer(
        self, logits: Mapping[str, Tensor], evidence: Evidence, mask: Mapping[str, Tensor] | None
    ) -> dict[str, Tensor]:
        is_exact = self.observed_odds is not None  # where atoms coincide, large numbers cancel
        inputs = read_inputs(self.grounding, logits, evidence, mask, dtype=torch.float64 if is_exact else None)
        current = self._infer_exactly(inputs) if self.inference == "exact" else self._iterate(inputs)
        if not torch.compiler.is_compiling():
            self._last, self._trace = inputs.detach(), None
        return {name: self._finish(name, logits[name], inputs, current) for name in logits}

    def _infer_sparsely(
        self,
        logits: Logits | Mapping[str, Tensor | SparseLogits],
        evidence: Evidence | Tensor | None,
        mask: Mask | None,
        rest: Rest | None,
    ) -> dict[str, Tensor | SparseLogits]:
        """Infer over candidate atoms, and return the log-odds of each predicate in the form it was given."""
        is_masked = mask is not None or isinstance(evidence, Tensor)
        for is_refused, what, way_out in (
            (is_masked, "masks", "leave out the atoms of entities that do not exist"),
            (isinstance(logits, Tensor), "stacked logits", "give (index, logits) by predicate"),
            (self.inference == "exact", 'inference="exact"', "use mean field, or dense logits"),
            (torch.compiler.is_compiling(), "torch.compile", "call the layer outside the compiled part"),
        ):
            if is_refused:
                raise DataError(f"candidate atoms go without {what}: {way_out}")
        assert not isinstance(logits, Tensor) and not isinstance(evidence, Tensor)
        inputs = self.candidate_reader.read(logits, self.evidence.join(evidence), rest)
        current = self._iterate(inputs)
        self._last = self._trace = None
        output: dict[str, Tensor | SparseLogits] = {}
        for name, given in logits.items():
            values = given if isinstance(given, Tensor) else given[1]
            classes = self.grounding.predicates[name].classes
            flat = values.reshape(-1, *(() if classes is None else (len(classes),)))
            finished = self._finish(name, flat, inputs, current).reshape(values.shape)
            output[name] = finished if isinstance(given, Tensor) else (given[0], finished)
        return output

    def plan_for(self, inputs: GroundInputs, purpose: Purpose = "messages") -> Plan | SparsePlan:
        """Return the plan for the inputs of a call."""
        if isinstance(inputs, SparseInputs):
            weighing = weigh_candidates(self, inputs) if purpose == "messages" else None
            return self.sparse_planner.plan(inputs, purpose, self.memory_limit, weighing)
        return self.planner.plan(inputs.shape, purpose)

    def _infer_exactly(self, inputs: GroundInputs) -> dict[str, Tensor]:
        if not torch.compiler.is_compiling():
            if inputs.shape.observed:
                self._check_hard_evidence(inputs)
            self.convergence = Convergence((), True, 0)
        logits: dict[str, Tensor] = infer_exactly(self, inputs)
        return logits

    def _iterate(self, inputs: GroundInputs) -> dict[str, Tensor]:
        plan = self.plan_for(inputs)
        learned = self.weights.learned
        learns_weights = learned is not None and learned.requires_grad
        if not torch.compiler.is_compiling():  # a compiled graph needs other memory, and may wait for no value
            plan.check_memory(
                inputs,
                self.memory_limit,
                iterations=self.iterations,
                learns_weights=learns_weights,
                averaged=self.messages == "mean",
            )
            if inputs.shape.observed:
                self._check_hard_evidence(inputs)
        current, convergence = iterate(self, inputs, plan)
        if convergence is not None:
            self.convergence = convergence
            self.has_warned = self.has_warned or warn_unsettled(convergence)
        return current

    def _check_hard_evidence(self, inputs: GroundInputs) -> None:
        """Refuse evidence that alone breaks a hard formula."""
        grounding = self.grounding
        for index, ground_formula in enumerate(grounding.formulas):
            statement = grounding.rules.statements[ground_formula.statement_index]
            if not isinstance(statement, WeightedFormula) or statement.kind != "hard":
                continue
            names = {literal.predicate for pattern in ground_formula.patterns for literal in pattern.literals}
            if not names - set(ORDERS) or not names - set(ORDERS) <= inputs.shape.observed:
                continue
            plan = self.plan_for(inputs, "hard violations")
            values = plan.start(inputs)
            broken = round(sum(count * float(values[node].sum()) for count, node in plan.violations[index]))
            if broken > 0:
                raise DataError(f"the evidence contradicts a hard formula in {broken:,} groundings: {statement}")

    def add_messages(
        self,
        name: str,
        inputs: GroundInputs,
        plan: Plan | SparsePlan,
        values: Mapping[int, Tensor],
        hard_share: float = 1.0,
        *,
        only: int | None = None,
        averages: Averages | None = None,
    ) -> Tensor:
        """Add a predicate's messages to the log-odds that it was given, those of hard formulas by a share.

        With ``only``, return the messages of one statement alone. ``averages`` make means of the sums.
        """
        if isinstance(plan, SparsePlan):
            return plan.add_messages(self.weights, name, inputs, values, hard_share, averages)
        is_summed = only is None and averages is None
        total = inputs.logits[name] if is_summed else torch.zeros_like(inputs.logits[name])
        declaration = self.grounding.predicates[name]
        sizes = [inputs.sizes[type_name] for type_name in declaration.types]
        for (predicate, classes, form), messages in plan.messages.items():
            if only is not None:
                messages = [message for message in messages if message.statement_index == only]
            if predicate != name or not messages:
                continue
            is_direct = declaration.classes is None and len(form.present) == form.arity and not form.apart
            summed: Tensor | None = total if is_direct else None
            for message in messages:
                share = hard_share if message.statement_index in self.grounding.hard else 1
                term = values[message.node]
                if averages is not None:
                    term = averages.share_out(term, message.formula_index, has_batch=plan.has_batch(message.node))
                summed = self.weights.add(summed, term, message.statement_index, message.coefficient * share)
            assert summed is not None
            if is_direct:
                total = summed
                continue
            summed, mask = form.spread(summed, sizes, inputs.dtype, inputs.device)
            if declaration.classes is not None:
                inside = torch.zeros(len(declaration.classes), dtype=inputs.dtype, device=inputs.device)
                inside[list(classes)] = 1
                summed = summed.unsqueeze(-1)
                mask = inside if mask is None else mask.unsqueeze(-1) * inside
            total = total + summed if mask is None else torch.addcmul(total, summed, mask)
        if averages is None:
            return total
        total = averages.scale(name, total, has_classes=declaration.classes is not None)
        return total if only is not None else inputs.logits[name] + total

    def _finish(self, name: str, given: Tensor, inputs: GroundInputs, current: Mapping[str, Tensor]) -> Tensor:
        """Return a predicate's log-odds in the shape and dtype they were given: observed atoms are certain."""
        declaration = self.grounding.predicates[name]
        has_classes = declaration.classes is not None
        observed = inputs.observed.get(name)
        flat = given.flatten(0, len(inputs.batch) - 1) if len(inputs.batch) > 1 else given
        logits = current.get(name, flat)
        if inputs.masks and name in current and logits is not inputs.logits[name]:
            exists = inputs.mask_atoms(declaration)
            if exists is not None:
                valid = exists.bool().unsqueeze(-1) if has_classes else exists.bool()
                logits = torch.where(valid, logits, inputs.logits[name])
        if observed is not None:
            certain = observed.probability * CERTAIN
            if not has_classes:
                certain = 2 * certain - CERTAIN
            if observed.where is None:
                logits = certain.expand(flat.shape)
            else:
                where = observed.where.unsqueeze(-1) if has_classes else observed.where
                logits = torch.where(where, certain, logits)
        return logits.reshape(given.shape).to(given.dtype)

    def exact_marginals(
        self,
        logits: Mapping[str, Tensor],
        evidence: Evidence | None = None,
        mask: Mapping[str, Tensor] | None = None,
    ) -> dict[str, Tensor]:
        """Return the true marginals of a problem whose cliques are small, to see what mean field makes of them.

        >>> import rulewright as rw
        >>> layer = LogicLayer(rw.parse_rules("2.0 p(X) => q(X)."), iterations=20)
        >>> logits = {"p": torch.tensor([1.0]), "q": torch.tensor([0.0])}
        >>> {name: round(marginal.item(), 3) for name, marginal in layer.exact_marginals(logits).items()}
        {'p': 0.607, 'q': 0.731}
        >>> {name: round(logit.sigmoid().item(), 3) for name, logit in layer(logits).items()}
        {'p': 0.637, 'q': 0.781}
        """
        inputs = read_inputs(self.grounding, logits, self.evidence.join(evidence), mask)
        marginals = inputs.marginals({**inputs.logits, **self._infer_exactly(inputs)}, self.grounding)
        return {name: marginal.reshape(logits[name].shape) for name, marginal in marginals.items()}

    def explain(self, atom: str, *, row: int = 0, top: int = 5) -> MessageExplanation:
        """Say which formulas and groundings moved an atom most in the last call; what they added makes up the change.

        The last inputs are gone through again, with the weights as they are now. In exact inference formulas do not
        add up: each is shown with what leaving it out would take away.

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

        return explain_atom(self, self.trace(), atom, row=row, top=top)

    def explain_batch(self, *, top: int = 50) -> BatchExplanation:
        """Say what each rule did to the whole batch of the last call: a table that is a data frame and HTML too.

        ``top`` rules and predicates are kept, those that moved most. `rulewright.inject.batch_reports` has the changes
        of each row, for the explorer.
        """
        from rulewright.inject.layer.effects import explain_batch

        check_parameter("top", top, Whole(1))
        with torch.no_grad():
            return explain_batch(self, self.trace(), top=top)

    def trace(self) -> CallTrace:
        """Return what the iterations did with the inputs of the last call."""
        from rulewright.inject.layer.influence import trace_call

        if self._last is None:
            raise DataError(
                "the layer has not been called yet; explain is about the last call, of all atoms: after one over "
                "candidate atoms, call the layer with tensors over few entities"
            )
        weights = tuple(self.weights.value(index) for index in range(len(self.grounding.rules)))
        if self._trace is None or self._trace.weights != weights:
            self._trace = trace_call(self, self._last)
        return self._trace
