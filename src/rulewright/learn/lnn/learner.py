"""Learning rules and their connectives by gradient, from templates."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields
from multiprocessing import get_context
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from rulewright.data import KnowledgeBase, Value
from rulewright.engine import Engine
from rulewright.errors import DataError, unknown_name
from rulewright.learn.lnn.grounding import Columns, Grounding, ground
from rulewright.learn.lnn.network import NetworkOptions, TemplateNetwork
from rulewright.learn.lnn.reading import crisp_rules, soft_templates
from rulewright.learn.lnn.template import read_templates, renamed_root, resolve, roots
from rulewright.learn.lnn.training import Job, Trained, TrainingOptions, train, train_alone
from rulewright.logic import (
    NUMBER_TYPE,
    Atom,
    Number,
    PredicateDeclaration,
    Rule,
    RuleSet,
    Symbol,
    Template,
    Variable,
    WeightedFormula,
    parse_atom,
    quote,
)

Query = str | Sequence[Value]
Queries = KnowledgeBase | Iterable[Query]
Asked = tuple[str, list[tuple[Value, ...]], Columns, npt.NDArray[np.bool_]]


def query_columns(kb: KnowledgeBase, queries: Queries, targets: Collection[str]) -> Iterator[Asked]:
    """Yield targets with their facts as labels and as columns of ids, and which of them name known entities only."""
    for target, rows in _by_target(queries).items():
        if target not in targets:
            raise unknown_name("target", target, targets)
        declaration = kb.predicate(target)
        columns: list[npt.NDArray[Any]] = []
        seen = np.ones(len(rows), dtype=bool)
        for place, kind in enumerate(declaration.types):
            column = np.array([_id(kb, declaration, kind, row, place) for row in rows])
            seen &= column != -1 if kind != NUMBER_TYPE else seen
            columns.append(column)
        yield target, rows, tuple(columns), seen


def _by_target(queries: Queries) -> dict[str, list[tuple[Value, ...]]]:
    found: dict[str, list[tuple[Value, ...]]] = {}
    if isinstance(queries, KnowledgeBase):
        for truth in (True, False):
            for name, args in queries.facts(truth=truth):
                found.setdefault(name, []).append(args)
        return found
    for query in [queries] if isinstance(queries, str) else queries:
        fact = _fact(query) if isinstance(query, str) else tuple(query)
        found.setdefault(str(fact[0]), []).append(fact[1:])
    return found


def _fact(query: str) -> tuple[Value, ...]:
    atom = parse_atom(query)
    values: list[Value] = [str(atom.predicate)]
    for term in atom.args:
        if isinstance(term, Variable):
            raise DataError(f"{term} is a variable in {query}; a name that starts upper-case is quoted: '{term}'")
        values.append(term.name if isinstance(term, Symbol) else term.value if isinstance(term, Number) else str(term))
    return tuple(values)


def _id(kb: KnowledgeBase, declaration: PredicateDeclaration, kind: str, row: tuple[Value, ...], place: int) -> float:
    if len(row) != declaration.arity:
        raise DataError(f"{declaration.name} has {declaration.arity} arguments, got {len(row)}")
    if kind == NUMBER_TYPE:
        return float(row[place])
    found = kb.domains[kind].find(str(row[place]))
    return -1 if found is None else found


Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class ScoredFact:
    """A fact and its truth value; with ``reduction="sum"`` the sum over its groundings, which can exceed 1."""

    predicate: str
    args: tuple[Value, ...]
    value: float

    def __str__(self) -> str:
        shown = ", ".join(quote(each) if isinstance(each, str) else repr(each) for each in self.args)
        return f"{quote(self.predicate)}({shown})"


class LNNLearner:
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
        negatives, places: how many wrong facts stand beside each right one, and which arguments they differ in (all by
            default); the others are those of other examples. They are checked to be no known facts; facts observed to
            be false come first.
        hide: keep the predicted fact, and its inverse by ``inverses``, out of its own evidence.
        epochs, patience, batch_size, rate, seed: of training (Adam). With a split ``valid`` the best epoch on it is
            kept, and training stops ``patience`` epochs after.
        least: how true a crisp rule must make its head to be among ``rules_``.
        processes: how many targets are trained at a time, each in a process of its own.
        folder: keeps checkpoints; fitting again goes on where it stopped.

    ``rules_`` has the crisp rules, with what was learned in ``@{…}``; ``templates_`` the templates with all that was
    learned, which another learner takes up; ``trained_`` how training went; ``unseen_`` how many facts of the last
    `predict` name entities that the facts do not have (their value is 0).

    >>> from rulewright.data import KnowledgeBase
    >>> pairs = [(f"p{i}", f"q{i}", f"r{i}") for i in range(9)]
    >>> facts = [each for p, q, r in pairs for each in ((p, "child_of", q), (q, "child_of", r), (p, "likes", r))]
    >>> kb = KnowledgeBase.from_triples([*facts, *((p, "grandchild_of", r) for p, q, r in pairs[:6])])
    >>> template = "template grandchild_of(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in *, ?Q in {child_of, likes}."
    >>> learner = LNNLearner(template, epochs=150).fit(kb)
    >>> print(learner.rules_.rules[0].canonical())
    grandchild_of(X0, X1) :- child_of(X0, X2), child_of(X2, X1).
    >>> learner.predict(["grandchild_of(p7, r7)"])[0].value > 0.5
    True

    Sen et al., Neuro-Symbolic Inductive Logic Programming with Logical Neural Networks, AAAI 2022.
    """

    def __init__(
        self,
        templates: RuleSet | Template | str,
        *,
        targets: Iterable[str] | None = None,
        inverses: Mapping[str, str] | None = None,
        least: float = 0.5,
        processes: int = 1,
        folder: str | os.PathLike[str] | None = None,
        memory_limit: str | None = None,
        progress: Progress | None = None,
        **options: Any,
    ) -> None:
        kinds = {field.name: kind for kind in (NetworkOptions, TrainingOptions) for field in fields(kind)}
        for name in options:
            if name not in kinds:
                raise DataError(f"unknown option {name!r}; known: {', '.join(sorted(kinds))}")
        if "places" in options and options["places"] is not None:
            options["places"] = tuple(options["places"])
        if processes < 1:
            raise DataError(f"processes must be >= 1, got {processes}")
        self.network_options = NetworkOptions(**{k: v for k, v in options.items() if kinds[k] is NetworkOptions})
        self.training_options = TrainingOptions(**{k: v for k, v in options.items() if kinds[k] is TrainingOptions})
        self.templates = read_templates(templates)
        self.targets = None if targets is None else tuple(targets)
        self.inverses = dict(inverses or {})
        self.least, self.processes, self.memory_limit, self.progress = least, processes, memory_limit, progress
        self.folder = None if folder is None else os.fspath(folder)
        self.rules_ = RuleSet()
        self.templates_ = self.templates
        self.trained_: dict[str, Trained] = {}
        self.unseen_ = 0
        self.kb: KnowledgeBase | None = None
        self._networks: dict[str, TemplateNetwork] = {}

    def fit(self, kb: KnowledgeBase, examples: KnowledgeBase | None = None) -> Self:
        """Learn from facts; ``examples`` are the targets' facts to learn from (true, and false ones too).

        Without examples the targets' own facts serve. What is learned is tested on facts of the split ``valid``.
        """
        jobs = [self._job(kb, target, templates, examples) for target, templates in self._tasks(kb, examples)]
        self.kb = kb
        self.trained_ = {each.target: each for each in self._train(jobs)}
        for each in self.trained_.values():
            if each.partly_hidden:
                warnings.warn(
                    f"{each.target}: a fact may support itself through another template whose head lacks variables of "
                    f"{each.target}, so training may look better than it is; give that head these variables",
                    stacklevel=2,
                )
        self._networks = {}
        rules: list[Rule] = []
        learned: list[Template | Rule] = []
        with Engine(kb, threads=1, memory_limit=self.memory_limit) as engine:
            for job in jobs:
                network = TemplateNetwork(resolve(job.templates, kb, job.target), job.network).eval()
                for key, values in self.trained_[job.target].values.items():
                    network.operator(key).load_values(values)
                self._networks[job.target] = network
                rules += [_counted(each, kb, engine) for each in crisp_rules(network, least=self.least)]
                soft = soft_templates(network, job.templates)
                learned += [each for each in soft if not isinstance(each, WeightedFormula)]
        self.rules_ = RuleSet(rules)
        self.templates_ = RuleSet(dict.fromkeys(learned))
        return self

    def predict(self, queries: Queries) -> list[ScoredFact]:
        """Return the truth values of facts, in the order given.

        ``queries`` is a knowledge base, whose true and false facts are asked for alike, or facts: ``"likes(ann, bob)"``
        or ``("likes", "ann", "bob")``. Entities that the facts do not have are counted in ``unseen_``.
        """
        kb = self._fitted()
        self.unseen_ = 0
        found: list[ScoredFact] = []
        for target, args, columns, seen in query_columns(kb, queries, self._networks):
            values = np.zeros(len(seen))
            if seen.any():
                values[seen] = self.values(target, tuple(column[seen] for column in columns))
            self.unseen_ += int((~seen).sum())
            found += [ScoredFact(target, each, float(value)) for each, value in zip(args, values, strict=True)]
        return found

    def values(self, target: str, columns: Columns) -> npt.NDArray[np.float64]:
        """Return the truth values of facts of one target, given as columns of ids."""
        grounding = self.ground(target, columns)
        with torch.no_grad():
            values = self.network(target)(grounding)
        found: npt.NDArray[np.float64] = torch.cat([values, values.new_zeros(1)])[grounding.find(columns)].numpy()
        return found

    def ground(self, target: str, wanted: Columns | None = None) -> Grounding:
        """Return the facts that the template gives for a target, or what bears on the wanted ones."""
        return ground(
            self.network(target).program,
            self._fitted(),
            wanted=wanted,
            hide=self.training_options.hide,
            inverses=self.inverses,
            memory_limit=self.memory_limit,
        )

    def network(self, target: str) -> TemplateNetwork:
        """Return the trained network of a target."""
        self._fitted()
        if target not in self._networks:
            raise unknown_name("target", target, self._networks)
        return self._networks[target]

    def describe(self, target: str) -> str:
        """Write the operators of a target: weights, truth tables, sparsity."""
        network = self.network(target)
        neurons = network.program.neurons.items()
        return "\n".join(network.operator(key).describe(list(each.inputs)) for key, each in neurons)

    def _fitted(self) -> KnowledgeBase:
        if self.kb is None:
            raise DataError("fit(kb) comes first")
        return self.kb

    def _tasks(self, kb: KnowledgeBase, examples: KnowledgeBase | None) -> list[tuple[str, RuleSet]]:
        """Return the targets, each with the templates that are about it."""
        heads = roots(self.templates)
        known = {*kb.predicates, *(() if examples is None else examples.predicates)}
        wanted = heads if self.targets is None else self.targets
        if not wanted:
            raise DataError("every template's head is used by another; name the targets")
        tasks = []
        for target in wanted:
            if target not in known:
                raise unknown_name("target", target, known)
            if target in heads:
                tasks.append((target, self.templates))
                continue
            free = [each for each in heads if each not in known]
            if len(free) != 1:
                raise DataError(f"no template is about {target}: no head is {target}, or one that the facts lack")
            tasks.append((target, renamed_root(self.templates, free[0], target)))
        return tasks

    def _job(self, kb: KnowledgeBase, target: str, templates: RuleSet, examples: KnowledgeBase | None) -> Job:
        given = kb if examples is None else examples
        if examples is not None and not _same_entities(kb, examples):
            raise DataError("examples must be over the entities of the facts, such as one of their splits")
        if target not in given.predicates or not given.count(target):
            raise DataError(f"{target} has no positive example to learn from")
        false = given.columns(target, truth=False)
        valid = kb.splits.get("valid")
        checked = None
        if valid is not None and target in valid.predicates and valid.count(target):
            checked = valid.columns(target)
        resolve(templates, kb, target)  # what cannot work is said before any process starts
        return Job(
            target,
            templates,
            kb,
            given.columns(target),
            false if len(false[0]) else None,
            checked,
            self.network_options,
            self.training_options,
            self.inverses,
            self.folder,
            self.memory_limit,
        )

    def _train(self, jobs: Sequence[Job]) -> list[Trained]:
        progress = self.progress
        if self.processes == 1 or len(jobs) == 1:
            tell = None if progress is None else progress
            return [
                train(job, None if tell is None else lambda done, total, name=job.target: tell(name, done, total))  # type: ignore[misc]
                for job in jobs
            ]
        found = []
        with ProcessPoolExecutor(min(self.processes, len(jobs)), mp_context=get_context("spawn")) as pool:
            for done, each in enumerate(as_completed([pool.submit(train_alone, job) for job in jobs])):
                found.append(each.result())
                if progress is not None:
                    progress("targets", done + 1, len(jobs))
        order = {job.target: place for place, job in enumerate(jobs)}
        return sorted(found, key=lambda each: order[each.target])


def _same_entities(kb: KnowledgeBase, other: KnowledgeBase) -> bool:
    return all(kb.domains.get(kind) is each for kind, each in other.domains.items())


def _counted(rule: Rule, kb: KnowledgeBase, engine: Engine) -> Rule:
    """Add how often the rule's body holds, and its head with it, where the facts have all its predicates."""
    atoms = [rule.head, *(each.unit for each in rule.alternatives()[0] if isinstance(each.unit, Atom))]
    if any(str(each.predicate) not in kb.predicates for each in atoms):
        return rule
    found = engine.support(rule.head, rule.body)
    return rule.annotated(support=found.groundings, body=found.body_groundings)
