"""Learning rules and their connectives by gradient, from templates."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields, replace
from functools import partial
from multiprocessing import get_context
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import torch

from rulewright.checks import (
    SHARE,
    TIME_LIMIT,
    Flag,
    MemoryLimit,
    Names,
    OneOf,
    ParameterRule,
    Progress,
    Real,
    Whole,
    read_names,
)
from rulewright.data import KnowledgeBase, Value
from rulewright.engine import Engine
from rulewright.errors import DataError, TimeLimitError, unknown_name
from rulewright.interrupts import TimeBudget
from rulewright.learn.base import Learner, describe_time_limit, list_names
from rulewright.learn.lnn.grounding import Columns, TemplateGrounding, ground
from rulewright.learn.lnn.network import NETWORK_RULES, NetworkOptions, Reduction, TemplateNetwork
from rulewright.learn.lnn.operators import LEAK, Form, Mixture
from rulewright.learn.lnn.reading import MAX_DISAGREEMENT, write_soft_templates
from rulewright.learn.lnn.template import find_roots, read_templates, rename_root, resolve
from rulewright.learn.lnn.training import (
    Corruption,
    Loss,
    TemplateJob,
    TrainedTemplate,
    TrainingOptions,
    train,
    train_alone,
)
from rulewright.logic import (
    NUMBER_TYPE,
    Atom,
    Number,
    Rule,
    RuleSet,
    Symbol,
    Template,
    Variable,
    WeightedFormula,
    parse_atom,
    quote,
)

FactQueries = KnowledgeBase | Iterable[str | Sequence[Value]]
"""Facts to predict: those of a knowledge base, or ``"likes(ann, bob)"``, or ``("likes", "ann", "bob")``."""


@dataclass(frozen=True, slots=True)
class ScoredFact:
    """A fact and its truth value; with ``reduction="sum"`` the sum over its groundings, which can exceed 1."""

    predicate: str
    args: tuple[Value, ...]
    value: float

    def __str__(self) -> str:
        shown = ", ".join(quote(arg) if isinstance(arg, str) else repr(arg) for arg in self.args)
        return f"{quote(self.predicate)}({shown})"


class LNNLearner(Learner):
    """Learns which predicates fill a template, and how its "and" and "or" behave.

    ``LNN-∧(x) = relu1(β − Σ w_i (1 − x_i))``, ``LNN-∨(x) = 1 − LNN-∧(1 − x)``, a leaf is
    ``LNN-pred(x) = 1 − relu1(1 − Σ w_P x_P)`` over the predicates it can be. A fact is as true as the truest of its
    groundings, or the sum of them.

    Args:
        templates: statements ``template s(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in *, …``, a rule set of them or text;
            see `rulewright.learn.lnn.template`, and `rulewright.learn.lnn.ready` for common ones.
        targets: what to predict; by default the heads that no other template uses. A template whose head the facts do
            not have serves for every target.
        alpha: values from α up are true, up to 1 − α false. Conjunctions of n parts need ``α > n / (n + 1)``.
        slack: with a smaller α, what a unit of broken constraints costs; without it such an α is refused.
        connectives, leaves: ``"lnn"`` and ``"pred"``; or ``"product"``, ``"lukasiewicz"`` and ``"attention"``.
        reduction: ``"max"`` or ``"sum"`` over the variables that the head lacks.
        start, sparsity: the first weight of every predicate of a leaf, and the price of the sum of its weights.
        leak: the slope outside [0, 1] through which a connective that is exactly true or false still learns.
        loss, margin: ``"margin"``, ``"logistic"`` or ``"ranking"``; see `rulewright.learn.lnn.training.pair_loss`.
        negatives, positions: how many wrong facts stand beside each right one, and which arguments they differ in (None
            is any). They are checked to be no known facts; where facts are observed to be false, half are of them.
            That a target has no negative at all is an error.
        corruption: what the argument that differs becomes: any entity of its ``"type"`` (and world), or one that
            ``"examples"`` have there. ``"closed"`` is for targets whose facts are complete: as ``"type"``, and what the
            template gives and is no known fact counts as observed to be false; ``"type"`` does so with a target that
            the facts declare ``closed``.
        hide: keep the predicted fact, and its inverse by ``inverses``, out of its own evidence.
        epochs, patience, batch_size, rate, seed: of training (Adam). With a split ``valid`` the best epoch on it is
            kept, and training stops ``patience`` epochs after.
        inverses: for predicates those that hold the same facts with arguments swapped.
        min_truth: the truth value from which on a fact counts as true where crisp rules are read.
        max_disagreement: of the training facts that the network or its crisp rules hold true, the largest share that
            only one of them may; above, a target has no rules in ``rules_``, and ``note_`` says so.
        processes: how many targets are trained at a time, each in a process of its own.
        time_limit: about how many seconds to learn for, the best epochs so far being kept; every target has its share.
        folder: keeps checkpoints; fitting again goes on where it stopped.
        memory_limit: of the database.

    ``rules_`` has the crisp rules that hold the same training facts true as the network, with what was learned, their
    ``disagreement`` and ``truth`` (what the network gives the head when just the body holds) in ``@{…}``; confidence is
    ``support / body``, counted on the facts, or the truth where these lack a predicate of the rule; ``templates_`` the
    templates with all that was learned, which another learner takes up; ``trained_`` how training went; ``unseen_`` how
    many facts of the last `predict` name entities that the facts do not have (their value is 0).

    >>> from rulewright.data import KnowledgeBase
    >>> pairs = [(f"p{i}", f"q{i}", f"r{i}") for i in range(9)]
    >>> facts = [fact for p, q, r in pairs for fact in ((p, "child_of", q), (q, "child_of", r), (p, "likes", r))]
    >>> kb = KnowledgeBase.from_triples([*facts, *((p, "grandchild_of", r) for p, q, r in pairs[:6])])
    >>> template = "template grandchild_of(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in *, ?Q in {child_of, likes}."
    >>> learner = LNNLearner(template, epochs=150).fit(kb)
    >>> print(learner.rules_.rules[0].canonical())
    grandchild_of(X0, X1) :- child_of(X0, X2), child_of(X2, X1).
    >>> learner.predict(["grandchild_of(p7, r7)"])[0].value > 0.5
    True

    Sen et al., Neuro-Symbolic Inductive Logic Programming with Logical Neural Networks, AAAI 2022.
    """

    templates_: RuleSet
    trained_: dict[str, TrainedTemplate]
    networks_: dict[str, TemplateNetwork]
    unseen_: int

    _parameter_rules: ClassVar[Mapping[str, ParameterRule]] = {
        "targets": Names(),
        **NETWORK_RULES,
        "loss": OneOf("margin", "logistic", "ranking"),
        "margin": Real(0, above=True),
        "negatives": Whole(1),
        "corruption": OneOf("type", "examples", "closed"),
        "sparsity": Real(0),
        "hide": Flag(),
        "epochs": Whole(1),
        "patience": Whole(1, optional=True),
        "batch_size": Whole(1),
        "rate": Real(0, above=True),
        "min_truth": SHARE,
        "max_disagreement": SHARE,
        "processes": Whole(1),
        "time_limit": TIME_LIMIT,
        "memory_limit": MemoryLimit(),
        "seed": Whole(0),
    }

    def __init__(
        self,
        templates: RuleSet | Template | str,
        *,
        targets: str | Collection[str] | None = None,
        alpha: float = 0.95,
        slack: float | None = None,
        connectives: Form = "lnn",
        leaves: Mixture = "pred",
        reduction: Reduction = "max",
        start: float = 1e-3,
        leak: float = LEAK,
        loss: Loss = "margin",
        margin: float = 1.0,
        negatives: int = 4,
        corruption: Corruption = "type",
        positions: Sequence[int] | None = None,
        sparsity: float = 0.0,
        hide: bool = True,
        epochs: int = 100,
        patience: int | None = None,
        batch_size: int = 64,
        rate: float = 0.02,
        inverses: Mapping[str, str] | None = None,
        min_truth: float = 0.5,
        max_disagreement: float = MAX_DISAGREEMENT,
        processes: int = 1,
        time_limit: float | None = None,
        folder: str | os.PathLike[str] | None = None,
        memory_limit: int | str | None = None,
        seed: int = 0,
        progress: Progress | None = None,
    ) -> None:
        self.templates, self.targets = templates, targets
        self.alpha, self.slack = alpha, slack
        self.connectives, self.leaves, self.reduction = connectives, leaves, reduction
        self.start, self.leak = start, leak
        self.loss, self.margin = loss, margin
        self.negatives, self.corruption, self.positions = negatives, corruption, positions
        self.sparsity, self.hide = sparsity, hide
        self.epochs, self.patience = epochs, patience
        self.batch_size, self.rate = batch_size, rate
        self.inverses = inverses
        self.min_truth, self.max_disagreement = min_truth, max_disagreement
        self.processes, self.time_limit = processes, time_limit
        self.folder, self.memory_limit = folder, memory_limit
        self.seed, self.progress = seed, progress
        self._check_parameters()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        read_templates(self.templates)
        if self.positions is not None and not len(self.positions):
            raise DataError("positions must name at least one argument, or be None for all")

    def fit(self, kb: KnowledgeBase, examples: KnowledgeBase | None = None) -> Self:
        """Learn from facts; ``examples`` are the targets' facts to learn from (true, and false ones too).

        Without examples the targets' own facts serve. What is learned is tested on facts of the split ``valid``.
        """
        self._check_before_fit(kb)
        jobs = [self._make_job(kb, target, templates, examples) for target, templates in self._tasks(kb, examples)]
        self.trained_ = {trained.target: trained for trained in self._train(jobs)}
        notes = [
            self._describe_cuts([job.target for job in jobs]),
            *map(self._describe_reading, self.trained_.values()),
        ]
        self.note_ = "; ".join(filter(None, notes))
        jobs = [job for job in jobs if job.target in self.trained_]
        for trained in self.trained_.values():
            if trained.partly_hidden:
                warnings.warn(
                    f"{trained.target}: a fact may support itself through another template whose head lacks variables "
                    f"of {trained.target}, so training may look better than it is; give that head these variables",
                    stacklevel=2,
                )
        self._kb = kb
        self.networks_ = {}
        rules: list[Rule] = []
        learned: list[Template | Rule] = []
        with Engine(kb, threads=1, memory_limit=self.memory_limit) as engine:
            for job in jobs:
                network = TemplateNetwork(resolve(job.templates, kb, job.target), job.network).eval()
                for key, values in self.trained_[job.target].values.items():
                    network.operator(key).load_values(values)
                self.networks_[job.target] = network
                rules += [_count_rule(rule, kb, engine) for rule in self.trained_[job.target].reading.rules]
                soft = write_soft_templates(network, job.templates)
                learned += [statement for statement in soft if not isinstance(statement, WeightedFormula)]
        self.rules_ = RuleSet(rules)
        self.templates_ = RuleSet(dict.fromkeys(learned))
        return self

    def predict(self, queries: FactQueries) -> list[ScoredFact]:
        """Return the truth values of facts, in the order given.

        ``queries`` is a knowledge base, whose true and false facts are predicted alike, or facts: ``"likes(ann, bob)"``
        or ``("likes", "ann", "bob")``. Entities that the facts do not have are counted in ``unseen_``.
        """
        networks = self.networks_
        unseen = 0
        scored: list[ScoredFact] = []
        for target, args, columns, is_seen in _encode_queries(self._kb, queries, networks):
            values = np.zeros(len(is_seen))
            if is_seen.any():
                values[is_seen] = self.values(target, tuple(column[is_seen] for column in columns))
            unseen += int((~is_seen).sum())
            scored += [ScoredFact(target, row, float(value)) for row, value in zip(args, values, strict=True)]
        self.unseen_ = unseen
        return scored

    def values(self, target: str, columns: Columns) -> npt.NDArray[np.float64]:
        """Return the truth values of facts of one target, given as columns of indices."""
        grounding = self.ground(target, columns)
        with torch.no_grad():
            values = self.network(target)(grounding)
        wanted: npt.NDArray[np.float64] = torch.cat([values, values.new_zeros(1)])[grounding.find(columns)].numpy()
        return wanted

    def ground(self, target: str, wanted: Columns | None = None) -> TemplateGrounding:
        """Return the facts that the template gives for a target, or what bears on the wanted ones."""
        return ground(
            self.network(target).program,
            self._kb,
            wanted=wanted,
            hide=self.hide,
            inverses=self.inverses,
            memory_limit=self.memory_limit,
        )

    def network(self, target: str) -> TemplateNetwork:
        """Return the trained network of a target."""
        if target not in self.networks_:
            raise unknown_name("target", target, self.networks_)
        return self.networks_[target]

    def describe(self, target: str) -> str:
        """Write the operators of a target: weights, truth tables, sparsity."""
        network = self.network(target)
        neurons = network.program.neurons.items()
        return "\n".join(network.operator(key).describe(list(neuron.inputs)) for key, neuron in neurons)

    def _tasks(self, kb: KnowledgeBase, examples: KnowledgeBase | None) -> list[tuple[str, RuleSet]]:
        """Return the targets, each with the templates that are about it."""
        templates = read_templates(self.templates)
        heads = find_roots(templates)
        known = {*kb.predicates, *(() if examples is None else examples.predicates)}
        targets = read_names(self.targets)
        wanted = heads if targets is None else targets
        if not wanted:
            raise DataError("every template's head is used by another; name the targets")
        tasks = []
        for target in wanted:
            if target not in known:
                raise unknown_name("target", target, known)
            if target in heads:
                tasks.append((target, templates))
                continue
            free = [head for head in heads if head not in known]
            if len(free) != 1:
                raise DataError(f"no template is about {target}: no head is {target}, or one that the facts lack")
            tasks.append((target, rename_root(templates, free[0], target)))
        return tasks

    def _make_job(
        self, kb: KnowledgeBase, target: str, templates: RuleSet, examples: KnowledgeBase | None
    ) -> TemplateJob:
        given = kb if examples is None else examples
        if any(kb.domains.get(type_name) is not domain for type_name, domain in given.domains.items()):
            raise DataError("examples must be over the entities of the facts, such as one of their splits")
        if target not in given.predicates or not given.count(target):
            raise DataError(f"{target} has no positive example to learn from")
        false = given.columns(target, truth=False)
        valid = kb.splits.get("valid")
        has_valid = valid is not None and target in valid.predicates and valid.count(target)
        resolve(templates, kb, target)  # what cannot work is said before any process starts
        training = {field.name: getattr(self, field.name) for field in fields(TrainingOptions)}
        training["positions"] = None if self.positions is None else tuple(self.positions)
        return TemplateJob(
            target,
            templates,
            kb,
            given.predicate(target).types,
            given.columns(target),
            false if len(false[0]) else None,
            valid.columns(target) if valid is not None and has_valid else None,
            NetworkOptions(**{field.name: getattr(self, field.name) for field in fields(NetworkOptions)}),
            TrainingOptions(**training),
            dict(self.inverses or {}),
            self.min_truth,
            self.max_disagreement,
            None if self.folder is None else os.fspath(self.folder),
            self.memory_limit,
        )

    def _describe_cuts(self, targets: Sequence[str]) -> str:
        """Say which targets the time limit left unfinished, and which it left out."""
        cut = [name for name, trained in self.trained_.items() if trained.is_cut]
        missing = [name for name in targets if name not in self.trained_]
        parts = [f"{list_names(cut)} had less training than asked for"] if cut else []
        parts += [f"{list_names(missing)} had none"] if missing else []
        return describe_time_limit(self.time_limit, " and ".join(parts))

    def _describe_reading(self, trained: TrainedTemplate) -> str:
        """Say where a target has no crisp rules, and which examples taught nothing."""
        name, reading = quote(trained.target), trained.reading
        notes = []
        if trained.without_negatives:
            notes.append(f"{trained.without_negatives:,} of {trained.examples:,} examples of {name} have no negative")
        if reading.disagreement > self.max_disagreement:
            notes.append(
                f"no crisp rules say what the network of {name} says: the nearest disagree on "
                f"{reading.disagreement:.1%} of the facts that either holds true, more than max_disagreement "
                f"{self.max_disagreement:g}; "
                "templates_ has its weighted form"
            )
        elif not reading.rules:
            notes.append(
                f"the network of {name} holds no example true: the truest has {reading.highest:.3g}, less than "
                f"min_truth {self.min_truth:g}; templates_ has its weighted form, and more epochs may help"
            )
        return "; ".join(notes)

    def _train(self, jobs: Sequence[TemplateJob]) -> list[TrainedTemplate]:
        """Train all targets; those whose groundings took all their time are left out, unless they are all there are."""
        trained: dict[str, TrainedTemplate] = {}
        too_late = None
        for done, (target, train_job) in enumerate(self._start_jobs(jobs), start=1):
            try:
                trained[target] = train_job()
            except TimeLimitError as error:
                too_late = error
            if self.processes > 1 and self.progress is not None:
                self.progress("targets", done, len(jobs))
        if too_late is not None and not trained:
            raise too_late
        return [trained[job.target] for job in jobs if job.target in trained]

    def _start_jobs(self, jobs: Sequence[TemplateJob]) -> Iterator[tuple[str, Callable[[], TrainedTemplate]]]:
        """Yield each target with what gives its result, in processes of their own where several may run."""
        budget = TimeBudget(self.time_limit)
        if self.processes == 1 or len(jobs) == 1:
            for position, job in enumerate(jobs):
                yield job.target, partial(train, job, self.progress, budget.share(len(jobs) - position).seconds)
            return
        seconds = None if self.time_limit is None else self.time_limit * min(1.0, self.processes / len(jobs))
        with ProcessPoolExecutor(min(self.processes, len(jobs)), mp_context=get_context("spawn")) as pool:
            running = {pool.submit(train_alone, job, seconds): job.target for job in jobs}
            for future in as_completed(running):
                yield running[future], future.result


def _encode_queries(
    kb: KnowledgeBase, queries: FactQueries, targets: Collection[str]
) -> Iterator[tuple[str, list[tuple[Value, ...]], Columns, npt.NDArray[np.bool_]]]:
    """Yield targets with their facts as labels and as columns of indices, and which have known entities only."""
    by_target: dict[str, list[tuple[Value, ...]]] = {}
    if isinstance(queries, KnowledgeBase):
        for truth in (True, False):
            for name, args in queries.facts(truth=truth):
                by_target.setdefault(name, []).append(args)
    else:
        for query in [queries] if isinstance(queries, str) else queries:
            fact = _read_query(query) if isinstance(query, str) else tuple(query)
            by_target.setdefault(str(fact[0]), []).append(fact[1:])
    for target, rows in by_target.items():
        if target not in targets:
            raise unknown_name("target", target, targets)
        declaration = kb.predicate(target)
        for row in rows:
            if len(row) != declaration.arity:
                raise DataError(f"{declaration.name} has {declaration.arity} arguments, got {len(row)}")
        columns: list[npt.NDArray[Any]] = []
        is_seen = np.ones(len(rows), dtype=bool)
        for values, type_name in zip(zip(*rows, strict=True), declaration.types, strict=True):
            if type_name == NUMBER_TYPE:
                columns.append(np.array([float(value) for value in values]))
                continue
            indices = [kb.domains[type_name].find(str(value)) for value in values]
            columns.append(np.array([-1 if index is None else index for index in indices]))
            is_seen &= columns[-1] != -1
        yield target, rows, tuple(columns), is_seen


def _read_query(query: str) -> tuple[Value, ...]:
    atom = parse_atom(query)
    values: list[Value] = [str(atom.predicate)]
    for term in atom.args:
        if isinstance(term, Variable):
            raise DataError(f"{term} is a variable in {query}; a name that starts upper-case is quoted: '{term}'")
        values.append(term.name if isinstance(term, Symbol) else term.value if isinstance(term, Number) else str(term))
    return tuple(values)


def _count_rule(rule: Rule, kb: KnowledgeBase, engine: Engine) -> Rule:
    """Make the confidence the share of cases in which the head is a fact, where the facts have all its predicates.

    The network's truth value of a head is no such share: a margin is reached by any value above that of wrong facts.
    """
    atoms = [rule.head, *(literal.unit for literal in rule.alternatives()[0] if isinstance(literal.unit, Atom))]
    if any(str(atom.predicate) not in kb.predicates for atom in atoms):
        return rule
    support = engine.support(rule.head, rule.body)
    counted = rule.annotated(truth=rule.confidence, support=support.groundings, body=support.body_groundings)
    share = support.groundings / support.body_groundings if support.body_groundings else 0.0
    return replace(counted, confidence=float(f"{share:.4g}"))
