"""The consistency loss: a term for training that grows where predictions break rules.

Three ways lead from clauses to a sum over their groundings. Hinges of Horn rules over stacked relations have a kernel
of their own (`pair_hinges`); those of other clauses and negative logarithms are computed block by block (`grids`); the
expected number of false groundings is a contraction (`rulewright.inject.layer.plan`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor, nn

from rulewright.checks import (
    Flag,
    OneOf,
    ParameterRule,
    Real,
    Whole,
    check_parameter,
    check_parameters,
    read_memory_limit,
)
from rulewright.errors import DataError
from rulewright.inject.atom_space import ENTITY, AtomSpace, Domains
from rulewright.inject.atoms.clauses import AtomClause, ClauseSource, index_literals, is_pair_rule, read_clauses
from rulewright.inject.atoms.grids import ClauseCase, GridSum, GridTerm, Side, split_cases
from rulewright.inject.atoms.pair_hinges import PairHinges
from rulewright.inject.inputs import (
    Evidence,
    GroundInputs,
    Logits,
    Mask,
    StoredEvidence,
    read_inputs,
    split_inputs,
)
from rulewright.inject.layer.grounding import Grounding
from rulewright.inject.layer.plan import Planner
from rulewright.logic import (
    Comparison,
    Formula,
    Not,
    Rule,
    RuleSource,
    Statement,
    Variable,
    WeightedFormula,
    exclusive_clauses,
    units,
    variables,
)
from rulewright.logic import Literal as LogicLiteral

CHUNK_ON_CPU = 2**20
CHUNK_ON_OTHER_DEVICES = 2**24

_PARAMETER_RULES: Mapping[str, ParameterRule] = {
    "form": OneOf("hinge", "published", "violation", "log"),
    "per": OneOf("grounding", "sample", None),
    "reduction": OneOf("mean", "sum", "none"),
    "side": OneOf("both", "head", "body", "likelier"),
    "weights": OneOf("one", "annotated"),
    "chunk": Whole(1, optional=True),
    "check_finite": Flag(),
}


class ConsistencyLoss(nn.Module):
    r"""How far predictions break rules, to be added to the loss of any model.

    ``loss(logits, evidence=None, mask=None)`` takes what every injector takes (`rulewright.inject.atom_space`): atoms
    of any number of arguments, with classes or without, by predicate; or, with ``relations``, ``loss(logits[B, n, n,
    R], mask[B, n])``, where the diagonal is ignored. A sample is a row of the batch. For each grounding of a statement,
    with P = σ(logit) (of classes the softmax), it adds up

    - ``"hinge"``: ``max(0, log(η_l · c) + Σ_i log P(body_i) − log P(head))``, η_l = exp(−eta · l), for a rule of
      confidence c (of a hard formula 1) with l body atoms. Of several heads one must hold: ``P = 1 − Π (1 − P(head))``.
      A denial is read as "the others imply that this one does not hold", the mean over its atoms;
    - ``"published"``: the same for Horn rules over ``relations``, but for every rule the largest over the body's own
      entities and then the mean over all pairs;
    - ``"violation"``: the probability that the grounding is false, its atoms being independent;
    - ``"log"``: minus the logarithm of the probability that it is true.

    In the last two a rule weighs its confidence, ``w formula`` w, ``hard`` and ``learn`` formulas 1: a loss cannot
    learn its own weights. Atoms that coincide in a grounding are one atom. Observed atoms have no gradient: the hinge
    is that of the clause without them, and where evidence alone breaks a clause, hinge and log count nothing.

    Args:
        rules: a rule set, a rule, text or a list; what has no meaning in a form is refused by name.
        relations: the names of the R relations of stacked logits, in their order and without "no relation".
        domains: for each type its size or its entities' names; constants need names.
        distinct: whether different variables stand for different entities; None is so with ``relations`` only.
        evidence: observations of every call, as buffers that follow ``.to()``; those of a call replace them by name.
        form: see above.
        per: ``"grounding"`` takes for every statement the mean over its groundings, ``"sample"`` their sum; None is
            what the form was published with: a sum of hinges, the mean of ``"violation"`` and ``"log"``.
        reduction: over the samples of a batch: ``"mean"``, ``"sum"``, or ``"none"`` for one value each.
        eta: the slack of one body atom; or a mapping from length l to ``-log η_l``.
        side: what a hinge teaches, its value being the same: ``"both"``; ``"head"`` raises heads only, log P(body)
            having no gradient; ``"body"`` lowers bodies only; ``"likelier"`` decides for each grounding: where
            P(body) ≥ 1 − P(head) it raises the head, else it lowers the body. In a denial body and head are the others
            and that this one does not hold.
        weights: ``"annotated"`` multiplies the hinge of every rule with its ``@{weight: …}``, as ``fit_rules`` writes
            it; a rule of weight 0 is left out, hard formulas weigh 1. In ``"violation"`` and ``"log"`` a rule then
            weighs that and not its confidence.
        chunk: how many groundings are looked at at once. Memory grows with it and not with the number of rules.
        check_finite: refuse logits that are infinite; turn it off to save a pass over them.
        memory_limit: bytes, or a text such as ``"2GB"``, above which the contractions of ``"violation"`` are refused;
            None is half of what the device of the logits has.

    The value is of type float32, or float64 for such logits, whatever the precision of the logits. ``torch.compile``
    compiles the form ``"violation"`` and runs the others as they are.

    >>> loss = ConsistencyLoss("hard dog(X) => animal(X). hard !(dog(X) & cat(X)).", form="violation")
    >>> logits = {"dog": torch.tensor([3.0, 0.0]), "animal": torch.tensor([3.0, 0.0]), "cat": torch.tensor([-3.0, 0.0])}
    >>> round(loss(logits).item(), 3)
    0.295
    >>> loss = ConsistencyLoss("0.9 :: r(X, Z) :- s(X, Y), r(Y, Z).", relations=["r", "s"])
    >>> logits = torch.full((1, 3, 3, 2), -9.0)
    >>> logits[0, 0, 1, 1] = logits[0, 1, 2, 0] = 9.0    # s(0, 1), r(1, 2) and not r(0, 2)
    >>> round(loss(logits).item(), 3)
    8.795
    """

    def __init__(
        self,
        rules: RuleSource,
        *,
        relations: Sequence[str] | None = None,
        domains: Domains | None = None,
        distinct: bool | None = None,
        evidence: Evidence | None = None,
        form: Literal["hinge", "published", "violation", "log"] = "hinge",
        per: Literal["grounding", "sample"] | None = None,
        reduction: Literal["mean", "sum", "none"] = "mean",
        eta: float | Mapping[int, float] = 0.05,
        side: Side = "both",
        weights: Literal["one", "annotated"] = "one",
        chunk: int | None = None,
        check_finite: bool = True,
        memory_limit: int | str | None = None,
    ) -> None:
        super().__init__()
        check_parameters(locals(), _PARAMETER_RULES)
        for slack in eta.values() if isinstance(eta, Mapping) else [eta]:
            check_parameter("eta", slack, Real(0))
        if form == "published" and per is not None:
            raise DataError("the form 'published' is a mean over pairs already; leave per out, or use form='hinge'")
        if side != "both" and form not in ("hinge", "published"):
            raise DataError(f"side={side!r} is for hinges, form='hinge' or 'published'; the form {form!r} has no sides")
        self.form, self.reduction, self.eta, self.side, self.weights = form, reduction, eta, side, weights
        self.per = per or ("grounding" if form in ("violation", "log") else "sample")
        self.chunk, self.check_finite = chunk, check_finite
        self.memory_limit = read_memory_limit(memory_limit)
        self.space: AtomSpace
        self._planner: Planner | None = None
        self._hinges: PairHinges | None = None  # of rules over stacked relations
        self._grids = GridSum([])  # of all other clauses
        self._all_grids: GridSum | None = None  # of all clauses, where relations are observed
        if form == "violation":
            grounding = Grounding(rules, domains=domains, relations=relations, distinct=distinct)
            self.space, self._planner = grounding, Planner(grounding)
        else:
            self.space = AtomSpace(rules, domains=domains, relations=relations, distinct=distinct)
            if form == "log":
                self._grids = GridSum(self._make_log_terms())
            else:
                self._read_hinges()
        self.evidence = StoredEvidence(self.space, evidence)

    # Reading rules

    def _read_hinges(self) -> None:
        for statement in self.space.rules:
            if isinstance(statement, WeightedFormula) and statement.kind != "hard":
                why = "the weight is not known" if statement.kind == "learn" else "a weight is no confidence"
                raise DataError(
                    f"ConsistencyLoss takes rules and hard formulas in the form {self.form!r}, and {why}; use "
                    f"form='violation' or 'log', or a LogicLayer, for: {statement}"
                )
        annotated = self.weights == "annotated"
        clauses = read_clauses(self.space, reader="ConsistencyLoss", keep_confidences=True, keep_weights=annotated)
        # Others ask for nothing.
        self.clauses = tuple(c for c in clauses if c.confidence > 0 and self._factor(c.source) > 0)
        relations = self.space.relations or ()
        rules = [clause for clause in self.clauses if is_pair_rule(clause, relations)]
        others = [clause for clause in self.clauses if not is_pair_rule(clause, relations)]
        if others and self.form == "published":
            raise DataError(
                "the form 'published' takes rules over relations with one head that follows from positive atoms; use "
                f"form='hinge' for: {others[0].source}"
            )
        self._grids = GridSum(self._make_hinge_terms(others))
        if rules:
            largest = self.form == "published"
            mean = largest or self.per == "grounding"
            factors = [self._factor(rule.source) for rule in rules]
            self._hinges = PairHinges(
                rules,
                relations,
                self._slack,
                weights=factors,
                largest=largest,
                mean=mean,
                side=self.side,
            )

    def _factor(self, statement: Statement) -> float:
        """Return what the hinge of a statement is multiplied by."""
        if self.weights == "one" or not isinstance(statement, Rule):
            return 1.0
        factor = _read_weight(statement)
        if factor < 0:
            raise DataError(f"the form {self.form!r} takes no negative weights, as there is in: {statement}")
        return factor

    def _slack(self, length: int) -> float:
        if not isinstance(self.eta, Mapping):
            return self.eta * length
        if length not in self.eta and length > 0:
            raise DataError(f"eta has no value for rules of length {length}, only for {sorted(self.eta)}")
        return self.eta.get(length, 0.0)

    def _make_hinge_terms(self, clauses: Sequence[AtomClause]) -> list[GridTerm]:
        terms = []
        for clause in clauses:
            literals = [(atom, False) for atom in clause.body] + [(atom, True) for atom in clause.heads]
            length = len(clause.body) - (not clause.heads)  # a denial is implications from all atoms but one
            offset = math.log(clause.confidence) - self._slack(length)
            for case in split_cases(self.space, literals, clause.types, apart=clause.apart, orders=clause.orders):
                bound = case.drop_bound()
                factor = self._factor(clause.source)
                term = GridTerm("hinge", bound.types, (bound,), clause.types, factor, offset, self.side)
                terms.append(term)
        return terms

    def _make_log_terms(self) -> list[GridTerm]:
        terms: list[GridTerm] = []
        for statement_index, formula in self.space.stated:
            statement = self.space.rules.statements[statement_index]
            assert isinstance(statement, Rule | WeightedFormula)
            weight = weigh_statement(statement, self.weights)
            if weight < 0:
                raise DataError(
                    "the form 'log' takes no negative weights; negate the formula, or use form='violation', for: "
                    f"{statement}"
                )
            types = _type_variables(self.space, formula)
            counted = tuple(types.values())
            clauses = exclusive_clauses(formula)
            if len(clauses) == 1:
                cases = self._split_formula(formula, types, statement)
                bound = [case.drop_bound() for case in cases]
                terms += [GridTerm("clause", case.types, (case,), counted, weight=weight) for case in bound]
            elif clauses:
                cases = self._split_formula(Not(formula), types, statement)
                terms.append(GridTerm("formula", counted, tuple(cases), counted, weight=weight))
        return [term for term in terms if term.weight > 0]

    def _split_formula(
        self, formula: Formula, types: Mapping[Variable, str], statement: ClauseSource
    ) -> list[ClauseCase]:
        """Return the cases in which a formula may be false, as clauses of which no two are false together."""
        cases: list[ClauseCase] = []
        # An assignment is a grounding, or not, by all atoms of the formula; a clause may have few of them.
        every = [LogicLiteral(unit) for unit in units(formula) if not isinstance(unit, Comparison)]
        whole = index_literals(self.space, every, types, statement, reader="ConsistencyLoss")
        assert whole is not None
        for clause in exclusive_clauses(formula):
            read = index_literals(self.space, clause.literals, types, statement, reader="ConsistencyLoss")
            if read is not None:
                apart = tuple(dict.fromkeys((*whole.apart, *read.apart)))
                cases += split_cases(
                    self.space, read.atoms, [*types.values()], equal=read.equal, apart=apart, orders=read.orders
                )
        return cases

    # Calls

    def forward(self, logits: Logits, evidence: Evidence | Tensor | None = None, mask: Mask | None = None) -> Tensor:
        """Return the loss of a batch; with ``relations`` also ``loss(logits, mask)`` with two tensors."""
        by_predicate, given, masks = split_inputs(self.space, logits, evidence, mask)
        observed = self.evidence.join(given)
        stacked: Tensor | None = None
        if isinstance(logits, Tensor):
            stacked = self._clear_stacked(logits, (masks or {}).get(ENTITY))
            by_predicate = self.space.split_relations(stacked)
        device = next((tensor.device for tensor in by_predicate.values()), torch.device("cpu"))
        with torch.autocast(device.type, enabled=False):
            if stacked is not None and not stacked.numel():  # no samples, or no entities
                batch = tuple(stacked.shape[:-3])
                values = torch.zeros(math.prod(batch), device=device)
            elif self._planner is not None:
                values, batch = self._sum_violations(self._planner, by_predicate, observed, masks)
            else:
                values, batch = self._sum_groundings(stacked, by_predicate, observed, masks)
        if not values.requires_grad:  # no rule looks at a logit: they still have a gradient, of zeros
            values = sum((tensor.flatten()[:0].sum() for tensor in by_predicate.values()), values)
        if self.reduction == "none":
            return values.reshape(batch)
        total = values.sum()
        return total / max(1, len(values)) if self.reduction == "mean" else total

    def _clear_stacked(self, logits: Tensor, mask: Tensor | None) -> Tensor:
        """Check stacked logits, and return them with 0 on the diagonal and for padding, which may hold anything."""
        if not logits.is_floating_point():
            raise DataError(f"logits must be floating point, got {logits.dtype}")
        batch, size = logits.shape[:-3], logits.shape[-2]
        unused = torch.eye(size, dtype=torch.bool, device=logits.device)
        if mask is not None:
            if mask.shape not in (torch.Size([*batch, size]), torch.Size([size])):
                raise DataError(f"mask must have shape {[*batch, size]}, got {list(mask.shape)}")
            if mask.dtype != torch.bool:
                raise DataError(f"the mask must be boolean, got {mask.dtype}")
            exists = mask.to(logits.device)
            unused = unused | ~(exists.unsqueeze(-1) & exists.unsqueeze(-2))
        cleared = logits.masked_fill(unused.unsqueeze(-1), 0.0)
        if self.check_finite and not torch.compiler.is_compiling() and not torch.isfinite(cleared).all():
            *_, head, tail, relation = position = torch.nonzero(~torch.isfinite(cleared))[0].tolist()
            assert self.space.relations is not None
            raise DataError(
                f"logits must be finite, got {cleared[tuple(position)].item()} for relation "
                f"{self.space.relations[relation]!r} between entities {head} and {tail} of a document"
            )
        return cleared

    def _sum_violations(
        self,
        planner: Planner,
        logits: Mapping[str, Tensor],
        evidence: Evidence,
        masks: Mapping[str, Tensor] | None,
    ) -> tuple[Tensor, tuple[int, ...]]:
        """Return for every sample the weighted number (or share) of groundings that are false, by contractions."""
        inputs = read_inputs(self.space, logits, evidence, masks, dtype=torch.float32)
        plan = planner.plan(inputs.shape, "violations")
        if not torch.compiler.is_compiling():
            plan.check_memory(inputs, self.memory_limit)
        found = plan.run(inputs, inputs.marginals(inputs.logits, self.space), plan.start(inputs))
        values = torch.zeros(math.prod(inputs.batch), dtype=inputs.dtype, device=inputs.device)
        for formula, nodes in zip(planner.grounding.formulas, plan.violations, strict=True):
            if nodes:  # else it is a tautology
                false = sum(coefficient * found[node] for coefficient, node in nodes)
                weight = weigh_statement(planner.grounding.rules.statements[formula.statement_index], self.weights)
                values = values + false * self._scale(weight, tuple(formula.types.values()), inputs)
        return values, inputs.batch

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def _sum_groundings(
        self,
        stacked: Tensor | None,
        logits: Mapping[str, Tensor],
        evidence: Evidence,
        masks: Mapping[str, Tensor] | None,
    ) -> tuple[Tensor, tuple[int, ...]]:
        """Return for every sample the sum of hinges or logarithms, and the shape of the batch."""
        sums: list[Tensor] = []
        grids = self._grids
        batch: tuple[int, ...] = ()
        if self._hinges is not None:
            assert self.space.relations is not None
            if stacked is not None and evidence.keys().isdisjoint(self.space.relations):
                batch = tuple(stacked.shape[:-3])
                documents = stacked.reshape(-1, *stacked.shape[-3:])
                mask = (masks or {}).get(ENTITY)
                if mask is not None:
                    mask = mask.expand(*batch, -1).reshape(len(documents), -1)
                sums.append(self._hinges.sum_documents(documents, mask, self._chunk_on(stacked.device)))
            else:
                grids = self._all_grids = self._all_grids or GridSum(self._make_hinge_terms(self.clauses))
        if grids.terms or not sums:
            inputs = self._clear_inputs(read_inputs(self.space, logits, evidence, masks, dtype=torch.float32))
            scales = [self._scale(term.weight, term.counted, inputs) for term in grids.terms]
            sums.append(grids.sum_rows(self.space, inputs, scales, self._chunk_on(inputs.device)))
            batch = inputs.batch
        dtype = torch.float64 if any(tensor.dtype == torch.float64 for tensor in logits.values()) else torch.float32
        total = sums[0].to(dtype)
        return total if len(sums) == 1 else total + sums[1].to(dtype), batch

    def _chunk_on(self, device: torch.device) -> int:
        return self.chunk or (CHUNK_ON_CPU if device.type == "cpu" else CHUNK_ON_OTHER_DEVICES)

    def _clear_inputs(self, inputs: GroundInputs) -> GroundInputs:
        """Return inputs with 0 for atoms in no grounding, which may hold anything; refuse others that are infinite."""
        cleared: dict[str, Tensor] = {}
        for name, logits in inputs.logits.items():
            declaration = self.space.predicates[name]
            used = inputs.mask_atoms(declaration)
            used = None if used is None else used.bool()
            if self.space.distinct:
                for first, second in combinations(range(declaration.arity), 2):
                    if declaration.types[first] == declaration.types[second]:
                        size = inputs.sizes[declaration.types[first]]
                        shape = [size if position in (first, second) else 1 for position in range(declaration.arity)]
                        apart = ~torch.eye(size, dtype=torch.bool, device=logits.device).view(shape)
                        used = apart if used is None else used & apart
            if used is not None:
                logits = logits.masked_fill(~(used if declaration.classes is None else used.unsqueeze(-1)), 0.0)
            if self.check_finite and name in self.space.used and not torch.isfinite(logits).all():
                raise DataError(f"logits of {name} must be finite, got {logits[~torch.isfinite(logits)][0].item()}")
            cleared[name] = logits
        return replace(inputs, logits=cleared)

    def _scale(self, weight: float, types: tuple[str, ...], inputs: GroundInputs) -> Tensor | float:
        """Return what the sum over the groundings of variables of some types is multiplied by, in every sample."""
        if self.per == "sample":
            return weight
        count: Tensor | float = 1.0
        for type_name, number in Counter(types).items():
            exists = inputs.masks.get(type_name)
            size: Tensor | int = inputs.sizes[type_name] if exists is None else exists.sum(-1)
            for taken in range(number):
                count = count * (size - taken if self.space.distinct else size)
        return weight / (count.clamp(min=1) if isinstance(count, Tensor) else max(1.0, count))

    def extra_repr(self) -> str:
        """Describe the loss in a line."""
        relations = "" if self.space.relations is None else f"{len(self.space.relations)} relations, "
        slack = f", eta={self.eta}" if self.form in ("hinge", "published") else ""
        return f"{len(self.space.rules)} rules, {relations}form={self.form!r}, per={self.per!r}{slack}"


def weigh_statement(statement: Statement, weights: Literal["one", "annotated"] = "one") -> float:
    """Return what a statement weighs in the forms ``"violation"`` and ``"log"``: a rule its confidence or annotation.

    >>> from rulewright.logic import parse_rules
    >>> [weigh_statement(s) for s in parse_rules("0.9 :: p(X) :- q(X). 2.5 p(X) => q(X). hard p(X). learn q(X).")]
    [0.9, 2.5, 1.0, 1.0]
    """
    if isinstance(statement, Rule):
        return statement.confidence if weights == "one" else _read_weight(statement)
    assert isinstance(statement, WeightedFormula)
    return 1.0 if statement.weight is None else float(statement.weight)


def _read_weight(rule: Rule) -> float:
    """Return the weight that is written into a rule."""
    weight = rule.annotations.number("weight")
    if weight is None:
        raise DataError(
            f"weights='annotated' needs the weight of every rule, @{{weight: …}}, and there is none in: {rule}; "
            "RuleSet.with_weights writes it, or take weights='one'"
        )
    return weight


def _type_variables(space: AtomSpace, formula: Formula) -> dict[Variable, str]:
    """Return the types of the variables of a formula."""
    types = {
        term: type_name
        for unit in units(formula)
        if not isinstance(unit, Comparison)
        for term, type_name in zip(unit.args, space.predicates[str(unit.predicate)].types, strict=True)
        if isinstance(term, Variable)
    }
    for variable in variables(formula):
        if variable not in types:
            raise DataError(f"variable {variable} occurs only in a comparison, so it has no type, in: {formula}")
    return types
