"""Knowledge-base completion: one mixture of relation paths for every relation, learned from the graph itself."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path as FilePath
from typing import Any, ClassVar, NamedTuple, Self, cast

import numpy as np

from rulewright.checks import SHARE, TIME_LIMIT, Names, OneOf, ParameterRule, Progress, Real, Whole, read_names
from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids
from rulewright.engine.walks import (
    ANY_ENTITY,
    LONE,
    TURNED,
    WAYS,
    Floats,
    Graph,
    RuleForm,
    RuleTable,
    Ways,
    find_relation,
)
from rulewright.errors import DataError, FileError
from rulewright.files import write_text
from rulewright.interrupts import TimeBudget
from rulewright.learn.base import Learner, describe_time_limit, list_names
from rulewright.learn.path_mixture.paths import DOUBT, LONGEST
from rulewright.learn.path_mixture.pruning import prune_targets
from rulewright.learn.path_mixture.questions import QUESTION_CHOICES, FactSampler, QuestionChoice
from rulewright.learn.path_mixture.target import LOSSES, Loss, Target, learn_target
from rulewright.learn.processes import work_in_processes
from rulewright.logic import (
    And,
    Annotations,
    Atom,
    Comparison,
    Formula,
    Implies,
    Not,
    Path,
    Rule,
    RuleSet,
    Statement,
    Symbol,
    Term,
    Variable,
    WeightedFormula,
    count_steps,
    decode_path,
    encode_step,
    invert_step,
    is_inverse,
    mirror_path,
    path_atoms,
    step_relation,
)
from rulewright.reason.ranking import RuleRanker

FORWARD, BACKWARD = "weight", "weight_inverse"


class PathMixture(Learner):
    """Answers ``r(h, ?)`` and ``r(?, t)`` by a weighted sum of rules, for each relation and direction its own.

    A candidate ``y`` has the score ``Σ_P w_P ψ_P(x, y)`` over paths ``P`` and rules with constants: ``ψ_P`` is 1 where
    ``P`` joins ``x`` to ``y``, or more for more ways, and 0 elsewhere. Weights are trained by a ranking loss: queries
    are asked on the graph without the very fact they are about (exactly, for every candidate and any path), and the
    answer is to score above all other entities. Training stops when the loss no longer falls on what was held out: the
    facts of the split ``valid`` where the knowledge base has one, or else every fifth query, and then all are learned
    from for as many steps.

    Args:
        targets: the relations to learn; None is all.
        paths: by relation, the paths to weigh; then none are looked for, and of these the best are kept.
        max_length, max_paths: the longest path, 1 … 5, and how many are kept for each query.
        min_support, min_confidence: of the paths to keep.
        sample: how many facts of a relation paths are looked for on.
        max_edges: how many edges a walker takes from an entity while paths are looked for; None is all.
        constants: the relations in the body of rules that name entities, 0 for no such rules, at most 2. Those of a
            query are kept if the loss is lower with them on what is held out.
        max_constants: how many such rules are kept for each query.
        ways: what many ways along a path count: ``once``, ``counted`` or ``telling``; see `engine.walks.path_truth`.
        negated: paths of up to so many relations may have negative weights, as may that ``x`` and ``y`` are one.
        conjunctions: how many bodies of two paths, ``r(X, Y) ← P(X, Y), Q(X, Y)``, are tried for each query. They let
            evidence count more together than apart, or less, and are kept where they lower the loss on ``valid``.
        popularity: whether it counts, for or against, how often a candidate is an answer: ``r(Z, Y) => r(X, Y)``.
        questions: which facts are asked about. ``as valid`` draws them to be like those of the split ``valid``, where
            there is one: as often about two entities that another fact links, and about entities of as many facts.
            Benchmarks such as FB15K-237 are made so that no fact about linked entities is asked for; see `FactSampler`.
            ``as given`` draws all alike.
        queries: how many facts of each relation are asked about.
        candidates, drawn: on large graphs, how many of the best candidates are kept for each query, and how many of the
            others that some rule speaks for are drawn to stand for all of them; None keeps all candidates.
        missing: the share of all facts that is taken to be missing. A candidate that looks right may be one of them,
            and counts the less against the weights that say so; see `doubt_candidates`. 0 takes the facts as complete.
        loss: ``softmax``, ``logistic`` or ``margin``.
        l1, l2, prior: ``l1`` makes weights sparse, ``l2`` holds them near ``prior`` times ``−log(1 − confidence)``.
        shared: a path weighs, beside its own, so much times its weight in the other direction.
        prune: by how much MRR on ``valid`` may fall for fewer rules: those that say least are left out as long as it
            falls by no more; None keeps all. See `prune_targets`.
        iterations: of training.
        min_valid: the facts a relation must have in ``valid`` to be held out.
        seed: of all that is drawn.
        processes: how many learn queries at a time, and how many threads rank; what is learned is the same.
        time_limit: about how many seconds to learn for; the relations with most facts are learned first, the one in
            hand is finished, and the others have no rules.
        folder: keeps what is learned; the same call goes on where it was stopped.

    ``ranker_`` ranks candidates, ``learned_`` has the rules and weights of each query by the index of its step.

    >>> kb = KnowledgeBase.from_triples(
    ...     [(f"a{i}", "p", f"b{i}") for i in range(9)] + [(f"b{i}", "q", f"a{i}") for i in range(8)]
    ... )
    >>> mixture = PathMixture(max_length=1, constants=0).fit(kb)
    >>> mixture.ranker_.answers("q", "b8", 1)[0][0]
    'a8'
    """

    learned_: dict[int, Target]
    ranker_: RuleRanker

    _parameter_rules: ClassVar[Mapping[str, ParameterRule]] = {
        "targets": Names(),
        "max_length": Whole(1, LONGEST),
        "max_paths": Whole(1),
        "min_support": Whole(1),
        "min_confidence": SHARE,
        "sample": Whole(1),
        "max_edges": Whole(1, optional=True),
        "constants": Whole(0, 2),
        "max_constants": Whole(0),
        "ways": OneOf(*WAYS),
        "negated": Whole(0, LONGEST),
        "conjunctions": Whole(0),
        "questions": OneOf(*QUESTION_CHOICES),
        "queries": Whole(1),
        "candidates": Whole(1, optional=True),
        "drawn": Whole(0),
        "missing": Real(0, 1, below=True),
        "loss": OneOf(*LOSSES),
        "l1": Real(0),
        "l2": Real(0),
        "prior": Real(0),
        "shared": SHARE,
        "prune": Real(0, 1, optional=True),
        "iterations": Whole(1),
        "min_valid": Whole(1),
        "seed": Whole(0),
        "processes": Whole(1),
        "time_limit": TIME_LIMIT,
    }

    def __init__(
        self,
        *,
        targets: str | Collection[str] | None = None,
        paths: Mapping[str, Sequence[Path]] | None = None,
        max_length: int = 3,
        max_paths: int = 500,
        min_support: int = 2,
        min_confidence: float = 0.0,
        sample: int = 200,
        max_edges: int | None = 200,
        constants: int = 1,
        max_constants: int = 20_000,
        ways: Ways = "telling",
        negated: int = 1,
        conjunctions: int = 400,
        popularity: bool = True,
        questions: QuestionChoice = "as valid",
        queries: int = 500,
        candidates: int | None = 300,
        drawn: int = 100,
        missing: float = 0.1,
        loss: Loss = "softmax",
        l1: float = 0.0,
        l2: float = 1.0,
        prior: float = 0.05,
        shared: float = 0.0,
        prune: float | None = None,
        iterations: int = 50,
        min_valid: int = 5,
        seed: int = 0,
        processes: int = 1,
        time_limit: float | None = None,
        folder: str | os.PathLike[str] | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.targets, self.paths = targets, paths
        self.max_length, self.max_paths = max_length, max_paths
        self.min_support, self.min_confidence = min_support, min_confidence
        self.sample, self.max_edges = sample, max_edges
        self.constants, self.max_constants = constants, max_constants
        self.ways, self.negated = ways, negated
        self.conjunctions, self.popularity = conjunctions, popularity
        self.questions, self.queries = questions, queries
        self.candidates, self.drawn, self.missing = candidates, drawn, missing
        self.loss, self.l1, self.l2 = loss, l1, l2
        self.prior, self.shared, self.prune = prior, shared, prune
        self.iterations, self.min_valid = iterations, min_valid
        self.seed, self.processes, self.time_limit = seed, processes, time_limit
        self.folder, self.progress = folder, progress
        self._check_parameters()

    def fit(self, kb: KnowledgeBase) -> Self:
        """Learn the rules of every relation, or of the targets."""
        self._check_before_fit(kb)
        relations = [name for name, predicate in kb.predicates.items() if signature(predicate) == "ee"]
        if not relations:
            raise DataError("no predicate has two entities as arguments, so there are no paths to learn from")
        asked = read_names(self.targets)
        wanted = relations if asked is None else asked
        queries = [
            (name, encode_step(find_relation(kb, name), inverse)) for name in wanted for inverse in (False, True)
        ]
        graph = Graph(kb)
        for name, step in queries:
            if self.targets is not None and len(graph.edges(step)[0]) == 0:
                raise DataError(f"{name} has no facts, so there is nothing to learn it from")
        valid = Graph(kb.splits["valid"]) if "valid" in kb.splits else None
        sampler = FactSampler(graph, valid if self.questions == "as valid" else None)
        given = None if self.paths is None else _mirror_given_paths(kb, self.paths)
        saved = None if self.folder is None else SavedTargets(self.folder, kb, self, given)
        budget = TimeBudget(self.time_limit)
        if self.time_limit is not None:
            queries.sort(key=lambda query: -len(graph.edges(query[1])[0]))
        targets = {step: None if saved is None else saved.load(step) for _, step in queries}
        missing = [step for step, target in targets.items() if target is None]
        plain = PathMixture(**{**self.get_params(deep=False), "paths": None, "folder": None, "progress": None})
        work = WeighingWork(plain, sampler, valid, given)
        names = {step: name for name, step in queries}
        unlearned = set(missing)
        for step, target in work_in_processes(learn_step, work, missing, self.processes):
            targets[step] = target
            unlearned.discard(step)
            if target is not None and saved is not None:
                saved.save(target)
            if self.progress is not None:
                self.progress(f"learning {names[step]}", len(queries) - len(unlearned), len(queries))
            if budget.is_over:
                break
        left_out = list(dict.fromkeys(names[step] for step in missing if step in unlearned))
        learned = {step: target for step, target in targets.items() if target is not None}
        learned = share_weights(learned, self.shared) if self.shared else learned
        if self.prune is not None:
            if valid is None:
                raise DataError("prune leaves out rules by what it costs on the split valid, and there is none")
            learned = prune_targets(learned, kb, loss=self.prune, threads=self.processes)
        # A file shows three digits of a weight; so that it says what was learned, no more are kept
        self.learned_ = {
            step: replace(target, weights=round_figures(target.weights)) for step, target in learned.items()
        }
        tables = {step: (target.table, target.weights) for step, target in self.learned_.items()}
        self.ranker_ = RuleRanker(kb, tables, threads=self.processes)
        cut = describe_time_limit(self.time_limit, f"{list_names(left_out)} had none" if left_out else "")
        self.note_ = "; ".join(filter(None, [sampler.describe(), cut]))
        self._kb = kb
        self.__dict__.pop("rules_", None)
        return self

    def scores(self, relation: str, entities: Ids, *, inverse: bool = False) -> Floats:
        """Return a row for each entity: how well every entity answers ``relation(h, ?)``, or ``relation(?, h)``."""
        return self.ranker_.scores(relation, entities, inverse=inverse)

    def count_rivals(
        self, relation: str, asked: Ids, answers: Ids, known_row: Ids, known: Ids, *, inverse: bool = False
    ) -> tuple[Ids, Ids]:
        """Count candidates above each answer, and level with it: see `RuleRanker.count_rivals`."""
        return self.ranker_.count_rivals(relation, asked, answers, known_row, known, inverse=inverse)

    @cached_property
    def rules_(self) -> RuleSet:  # type: ignore[override]
        """The rules with their weights, in the common language; what speaks against a relation is a formula."""
        return write_mixture(self.learned_, self._kb)


class WeighingWork(NamedTuple):
    """What the queries of a graph share while they are learned, and the given paths of each."""

    mixture: PathMixture
    sampler: FactSampler
    valid: Graph | None
    given: Mapping[int, Sequence[Path]] | None


def learn_step(work: WeighingWork, step: int) -> Target | None:
    """Learn one query: see `learn_target`."""
    given = None if work.given is None else work.given[step]
    return learn_target(work.mixture, work.sampler, step, work.valid, given)


def _mirror_given_paths(kb: KnowledgeBase, paths: Mapping[str, Sequence[Path]]) -> dict[int, tuple[Path, ...]]:
    """Return the given paths of each relation and of its inverse."""
    by_step: dict[int, tuple[Path, ...]] = dict.fromkeys(range(count_steps(len(kb.predicates))), ())
    for name, given in paths.items():
        step = encode_step(find_relation(kb, name))
        by_step[step], by_step[invert_step(step)] = tuple(given), tuple(map(mirror_path, given))
    return by_step


def round_figures(values: Floats) -> Floats:
    """Round to three significant digits.

    >>> round_figures(np.array([0.123456, -12.3456, 0.0])).tolist()
    [0.123, -12.3, 0.0]
    """
    return np.array([float(f"{value:.3g}") for value in values.tolist()])


def share_weights(learned: Mapping[int, Target], share: float) -> dict[int, Target]:
    """Add to each path's weight ``share`` times what it weighs in the other direction.

    >>> def target(relation, path, weight):
    ...     return Target(RuleTable.of_paths(relation, [path]), np.array([weight]), np.ones(1), np.ones(1))
    >>> shared = share_weights({0: target(0, (2, 4), 1.0), 1: target(1, (5, 3), 2.0)}, 0.5)
    >>> shared[0].weights.tolist(), shared[1].weights.tolist()
    ([2.0], [2.5])
    """
    return {
        step: _add_shared(target, learned[invert_step(step)], share) if invert_step(step) in learned else target
        for step, target in learned.items()
    }


def _add_shared(target: Target, other: Target, share: float) -> Target:
    own = _path_rows(target)
    mirrored = {mirror_path(path): row for path, row in _path_rows(other).items()}
    weights = target.weights.copy()
    both = [path for path in own if path in mirrored]
    weights[[own[path] for path in both]] += share * other.weights[[mirrored[path] for path in both]]
    new = [path for path in mirrored if path not in own]
    rows = np.array([mirrored[path] for path in new], dtype=np.int64)
    return Target(
        target.table.join(RuleTable.of_paths(target.table.step, new, target.table.ways)),
        np.concatenate([weights, share * other.weights[rows]]),
        np.concatenate([target.support, other.support[rows]]),
        np.concatenate([target.body, other.body[rows]]),
        target.seconds,
    )


def _path_rows(target: Target) -> dict[Path, int]:
    """Return the row of each path's rule."""
    table = target.table
    return {table.paths[table.path_index[row]]: int(row) for row in np.flatnonzero(table.form == RuleForm.CLOSED)}


class SavedTargets:
    """A folder with a file for each target, of one data set and one choice of parameters."""

    _TABLE = ("path_index", "form", "constant", "end", "second_index")
    # what may change between two runs
    _FREE = ("targets", "paths", "shared", "prune", "processes", "time_limit", "folder", "progress")

    def __init__(
        self,
        folder: str | os.PathLike[str],
        kb: KnowledgeBase,
        mixture: PathMixture,
        paths: Mapping[int, Sequence[Path]] | None,
    ) -> None:
        self.folder, self.ways = FilePath(folder), mixture.ways
        self.folder.mkdir(parents=True, exist_ok=True)
        parameters: dict[str, Any] = mixture.get_params()
        settings = {
            "parameters": {name: value for name, value in parameters.items() if name not in self._FREE},
            "entities": kb.n_entities,
            "relations": len(kb.predicates),
            "facts": kb.n_facts,
        }
        if paths is not None:
            settings["paths"] = sha256(repr(sorted(paths.items())).encode()).hexdigest()
        file = self.folder / "settings.json"
        if not file.exists():
            write_text(file, json.dumps(settings, indent=1) + "\n")
        elif json.loads(file.read_text(encoding="utf-8")) != settings:
            raise FileError(f"{file} is of a run with other facts or parameters; choose another folder")

    def _file(self, step: int) -> FilePath:
        return self.folder / f"target_{step}.npz"

    def load(self, step: int) -> Target | None:
        """Return a target that was learned before."""
        file = self._file(step)
        if not file.exists():
            return None
        with np.load(file, allow_pickle=False) as held:
            paths = tuple(tuple(path) for path in json.loads(str(held["paths"])))
            path_index, form, constant, end, second_index = (held[name] for name in self._TABLE)
            table = RuleTable(step, paths, path_index, form, constant, end, self.ways, second_index)
            return Target(table, held["weights"], held["support"], held["body"], float(held["seconds"]))

    def save(self, target: Target) -> None:
        """Keep a target, in one step."""
        file = self._file(target.table.step)
        columns = {name: getattr(target.table, name) for name in self._TABLE}
        figures = {name: getattr(target, name) for name in ("weights", "support", "body", "seconds")}
        part = file.with_suffix(".part.npz")
        np.savez_compressed(part, paths=np.array(json.dumps(target.table.paths)), **columns, **figures)
        part.replace(file)


class MixtureRule(NamedTuple):
    """A rule of either direction as it is read forwards; ``against`` where it speaks against its head."""

    relation: int
    form: int
    path: Path
    second: Path
    constant: int
    end: int
    against: bool


def write_mixture(learned: Mapping[int, Target], kb: KnowledgeBase) -> RuleSet:
    """Write each rule once, with ``weight`` for ``r(X, ?)`` and ``weight_inverse`` for ``r(?, X)``, heaviest first.

    Confidence is ``support / (body + 5)``, counted over the queries of training. What speaks against a relation is
    a formula ``w q(X, Y) => !r(X, Y)``; how often an entity is the answer to any query, a formula ``w r(X, c)`` of that
    one, and ``w r(Z, Y) => r(X, Y)`` of all.
    ``ways`` says what many ways along a path count, where that is not the same as one.
    """
    figures: dict[MixtureRule, dict[str, float]] = {}
    for step, target in learned.items():
        for rule, weight, support, body in _read_forwards(step, target):
            entry = figures.setdefault(rule, {})
            entry[BACKWARD if is_inverse(step) else FORWARD] = weight
            if support > entry.get("support", -1):
                entry |= {"support": support, "body": body}
    labels = [str(label) for domain in kb.domains.values() for label in domain.labels]
    relations = list(kb.predicates)
    heaviest_first = sorted(figures.items(), key=lambda item: (item[0].relation, -_heaviest(item[1])))
    ways = {step_relation(step): target.table.ways for step, target in learned.items()}
    return RuleSet([_write_rule(rule, entry, ways[rule.relation], relations, labels) for rule, entry in heaviest_first])


def _heaviest(entry: Mapping[str, float]) -> float:
    return max(entry.get(FORWARD, 0.0), entry.get(BACKWARD, 0.0))


def _read_forwards(step: int, target: Target) -> Iterator[tuple[MixtureRule, float, float, float]]:
    """Yield each rule as it is read forwards, with its weight, support and body."""
    table, inverse = target.table, is_inverse(step)
    columns = (table.path_index, table.second_index, table.form, table.constant, table.end)
    figures = (target.weights, target.support, target.body)
    for row in zip(*(column.tolist() for column in (*columns, *figures)), strict=True):
        path_index, second_index, form, constant, end, weight, support, body = row
        path, second = table.paths[path_index], table.paths[second_index] if second_index >= 0 else ()
        if form in (RuleForm.CLOSED, RuleForm.BOTH):
            path, second = (mirror_path(path), mirror_path(second)) if inverse else (path, second)
            path, second = sorted((path, second), key=lambda one: (len(one), one)) if second else (path, second)
        elif inverse:  # what is an answer to r(?, X) stands first in r, as does what r(X, ?) asks about
            form = TURNED[RuleForm(form)]
        yield MixtureRule(step_relation(step), form, path, second, constant, end, weight < 0), weight, support, body


def _write_rule(
    rule: MixtureRule, entry: Mapping[str, float], ways: str, relations: list[str], labels: list[str]
) -> Statement:
    x, y = Variable("X"), Variable("Y")
    head_args: tuple[Term, Term] = (x, y)
    first, last = x, cast(Term, y)
    if rule.form in LONE:
        first, last = x if rule.form == RuleForm.ASKED_EDGES else y, Variable("Z")
    elif rule.form not in (RuleForm.CLOSED, RuleForm.BOTH):
        constant = Symbol(labels[rule.constant])
        head_args = (x, constant) if rule.form == RuleForm.ANSWER else (constant, x)
        last = Variable("Z") if rule.end == ANY_ENTITY else Symbol(labels[rule.end])
    head = Atom(relations[rule.relation], head_args)
    shown: dict[str, object] = {
        name: int(value) if value == int(value) else float(f"{value:.3g}") for name, value in entry.items()
    }
    if rule.form == RuleForm.CLOSED and ways != "once":
        shown["ways"] = ways
    annotations = Annotations(shown)
    body: tuple[Formula, ...] = path_atoms(decode_path(rule.path, relations), first, last)
    if rule.form == RuleForm.BOTH:
        body += path_atoms(decode_path(rule.second, relations), x, y, first=len(rule.path))
    if rule.against:
        premise: Formula = Comparison("=", x, y) if not body else And(body) if len(body) > 1 else body[0]
        weight = -min(entry.get(FORWARD, 0.0), entry.get(BACKWARD, 0.0))
        return WeightedFormula(Implies(premise, Not(head)), "soft", weight, annotations)
    if not body or rule.form in LONE:
        formula: Formula = (
            head
            if rule.form not in (RuleForm.CLOSED, *LONE)
            else Implies(body[0], head)
            if body
            else Implies(Comparison("=", x, y), head)
        )
        return WeightedFormula(formula, "soft", _heaviest(entry), annotations)
    confidence = min(1.0, entry["support"] / (entry["body"] + DOUBT))
    return Rule(head, body, float(f"{confidence:.3g}"), annotations)
