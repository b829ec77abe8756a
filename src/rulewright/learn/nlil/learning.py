"""Learning one task from beginning to end: rounds, counting, choosing, and honest figures on what was held out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids
from rulewright.learn.nlil.classifier import RuleWeights, Speaking, fit_weights
from rulewright.learn.nlil.facts import FactGraph
from rulewright.learn.nlil.formulas import Conjunction, rows_of, rows_where
from rulewright.learn.nlil.jobs import FEW, Job, Learned, split, written
from rulewright.learn.nlil.questions import Questions, Task, balanced, with_wrong_pairs
from rulewright.learn.nlil.rounds import Rules, Search, Tell, balance, rows_right, unexplained
from rulewright.learn.nlil.selection import Counted, PairCounter, counted, counted_for_all, covering, most_telling
from rulewright.logic import RuleSet
from rulewright.reason.apply import apply

Floats = npt.NDArray[np.float64]


def learn_classes(job: Job, task: Task, search: Search) -> Learned:
    """Tell classes apart: every round is trained on what the rules so far, weighed together, get wrong."""
    options = job.search
    train, held, measured_on = split(task.asked_of_all(), task.graph.kb, job)
    number = train.truth.argmax(axis=1)
    prior = (train.truth.sum(axis=0) + 0.5) / (len(train) + 0.5 * len(task.targets))
    chances = np.tile(prior, (len(train), 1))
    pool: list[Counted] = []
    bodies: set[Conjunction] = set()
    kept: list[Counted] = []
    weights = RuleWeights(np.zeros(0, dtype=np.int64), np.zeros(0), np.log(prior))
    for _ in range(options.rounds):
        wrong = np.abs(train.truth - chances)
        read = search.round(train, wrong / np.maximum(wrong.mean(axis=0), 1e-9))
        new = {each for _, each in read} - bodies
        bodies |= new
        pool += counted_for_all(new, task, search.reach(new), train, prior, options.min_support)
        kept = most_telling(pool, prior, most=options.max_rules)
        speaking = speaking_of([(each.target, each.conjunction) for each in kept], task, search, train)
        weights = fit_weights(
            speaking, np.array([each.target for each in kept], dtype=np.int64), number, prior, l2=job.l2, iterations=60
        )
        chances = softmax(weights.scores(speaking))
    if job.refit:
        both = Questions(
            tuple(np.concatenate(each) for each in zip(train.arguments, held.arguments, strict=True)),
            np.concatenate([train.truth, held.truth]),
        )
        last = train if measured_on == "train" else both
    else:
        last = train
    speaking = speaking_of([(each.target, each.conjunction) for each in kept], task, search, last)
    classes = last.truth.argmax(axis=1)
    weights = fit_weights(speaking, weights.target, classes, prior, l2=job.l2, iterations=100)
    pairs = [(each.target, each.conjunction) for each in kept]
    measured = counted(pairs, task, search.reach(each for _, each in pairs), held)
    there = {(each.target, each.conjunction): each for each in measured}
    rules = [
        written(
            search,
            each,
            there[each.target, each.conjunction],
            int(held.truth[:, each.target].sum()),
            measured_on,
            weight=round(float(weight), 4),
        )
        for each, weight in zip(kept, weights.weight, strict=True)
    ]
    right = [rows_right([each for each in kept if each.target == target]) for target in range(len(task.targets))]
    return Learned(
        job.targets,
        tuple((each.target, each.conjunction) for each in kept),
        tuple(rules),
        weights,
        tuple(search.trained),
        measured_on,
        len(train),
        int(train.truth.sum()),
        sum(map(len, right)) / max(1, int(train.truth.sum())),
        len(bodies),
        dict(search.refused),
        None,
        held,
    )


def speaking_of(rules: Sequence[tuple[int, Conjunction]], task: Task, search: Search, questions: Questions) -> Speaking:
    """Return which rules hold of which questions."""
    bodies = dict.fromkeys(each for _, each in rules)
    literals = dict.fromkeys(literal for each in bodies for literal, _ in each)
    holds = rows_where(literals, search.reach(bodies), questions.arguments, task.hidden)
    rows = {each: rows_of(each, holds, len(questions)) for each in bodies}
    return Speaking.of([rows[each] for _, each in rules], len(questions))


def softmax(scores: Floats) -> Floats:
    """Return chances that sum to 1 in every row."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    found: Floats = powers / powers.sum(axis=1, keepdims=True)
    return found


CHAINED = 12
"""How many rounds rules that rest on their own target are chained forwards."""


def learn(job: Job, tell: Tell | None = None) -> Learned:
    """Learn the rules of a task."""
    graph = FactGraph(job.kb)
    task = Task.of(graph, job.targets)
    search = Search(task, job.shape, job.training, job.search, seed=job.seed, folder=job.folder, tell=tell)
    if len(job.targets) > 1:
        return learn_classes(job, task, search)
    return _one(job, task, search) if task.arity == 1 else _pairs(job, task, search)


def _one(job: Job, task: Task, search: Search) -> Learned:
    """Explain a predicate of one argument."""
    every = task.asked_of_all()
    train, held, measured_on = split(every, task.graph.kb, job)
    worlds = task.graph.kb.entity_worlds

    def ask(number: int) -> Questions:
        return balanced(train, worlds, job.negatives, job.seed + number)

    def count(rules: Rules, questions: Questions) -> list[Counted]:
        return counted(rules, task, search.reach(each for _, each in rules), questions)

    return _rounds(job, search, ask, count, train, held, measured_on)


def _pairs(job: Job, task: Task, search: Search) -> Learned:
    """Explain a relation."""
    kb = task.graph.kb
    facts = task.facts(kb)
    random = np.random.default_rng(job.seed)
    hidden = np.zeros(len(facts[0]), dtype=bool)
    measured_on = "train"
    if len(facts[0]) >= FEW and job.held_out:
        firsts = np.unique(facts[0])
        chosen = random.permutation(firsts)[: max(1, round(job.held_out * len(firsts)))]
        hidden = np.isin(facts[0], chosen)
        measured_on = "held out"
    kept, out = (tuple(column[keep] for column in facts) for keep in (~hidden, hidden))
    if len(kept[0]) == 0 or len(out[0]) == 0:
        kept = out = facts
        measured_on = "train"
    counters = [PairCounter(task, (part[0], part[1]), most=job.search.max_heads, seed=job.seed) for part in (kept, out)]
    false = task.facts(kb, truth=False)

    def ask(number: int) -> Questions:
        some = np.sort(np.random.default_rng([job.seed, number]).permutation(len(kept[0]))[: job.search.max_facts])
        mine = tuple(column[some] for column in kept)
        return with_wrong_pairs(mine, facts, task.graph, ratio=job.negatives, seed=job.seed + number, false=false)

    def count(rules: Rules, questions: Questions) -> list[Counted]:
        joining = {
            each for each in rules if any(x.left is not None and x.right is not None and sign for x, sign in each[1])
        }
        counter = counters[0] if questions is counters[0].questions else counters[1]
        return counter.counted(joining, search.reach(each for _, each in joining))

    train, held = (each.questions for each in counters)
    return _rounds(job, search, ask, count, train, held, measured_on)


def _rounds(
    job: Job,
    search: Search,
    ask: Callable[[int], Questions],
    count: Callable[[Rules, Questions], list[Counted]],
    train: Questions,
    held: Questions,
    measured_on: str,
) -> Learned:
    """Train, read and count until what is true is explained, or the rounds are over; then choose."""
    options = job.search
    pool: list[Counted] = []
    seen: Rules = set()
    positives = int(train.truth.sum())

    def chosen(recursive_too: bool = True) -> list[Counted]:
        rests = [search.recursive(each) for each in pool]
        fit = [each for each, own in zip(pool, rests, strict=True) if recursive_too or not own]
        return covering(
            fit,
            [own for own in rests if recursive_too or not own],
            min_support=options.min_support,
            min_precision=options.min_precision,
            max_rules=options.max_rules,
        )

    kept: list[Counted] = []
    grounded: bool | None = None
    for number in range(options.rounds):
        questions = ask(number)
        left = _left(questions, train, kept)
        # a recursive set with nothing to start from wants rules that do not rest on the target
        new = search.round(questions, balance(questions.truth, left), recursive=grounded is not False) - seen
        seen |= new
        pool += [each for each in count(new, train) if each.support]
        kept = chosen()
        if len(rows_right(kept)) == positives:
            grounded = _grounded(job, search, kept, train)
            if grounded is not False:
                break
    if grounded is None:
        grounded = _grounded(job, search, kept, train)
    if grounded is False:  # rules that start a recursion come before those that only repeat it
        starts = [each for each in chosen(recursive_too=False) if each not in kept]
        kept = [*starts, *kept]
        grounded = _grounded(job, search, kept, train)
    measured = _measured(kept, count, held)
    rules = [
        written(search, each, there, int(held.truth[:, each.target].sum()), measured_on)
        for each, there in zip(kept, measured, strict=True)
    ]
    return Learned(
        job.targets,
        tuple((each.target, each.conjunction) for each in kept),
        tuple(rules),
        None,
        tuple(search.trained),
        measured_on,
        len(train),
        positives,
        len(rows_right(kept)) / max(1, positives),
        len(seen),
        dict(search.refused),
        grounded,
        held,
    )


def _left(questions: Questions, train: Questions, kept: Sequence[Counted]) -> Floats:
    """Return how much of each question is unexplained; the questions of training and of a round differ in order."""
    if not kept:
        return np.ones(questions.truth.shape)
    of = unexplained(kept, train.truth.shape)
    keys = [_keys(each.arguments) for each in (train, questions)]
    order = np.argsort(keys[0], kind="stable")
    place = np.minimum(np.searchsorted(keys[0][order], keys[1]), len(order) - 1)
    found: Floats = np.where((keys[0][order[place]] == keys[1])[:, None], of[order[place]], 1.0)
    return found


def _keys(arguments: Sequence[Ids]) -> Ids:
    found = arguments[0]
    for column in arguments[1:]:
        found = found * (2**31) + column
    return found


def _measured(
    kept: Sequence[Counted], count: Callable[[Rules, Questions], list[Counted]], held: Questions
) -> list[Counted]:
    found = {(each.target, each.conjunction): each for each in count({(e.target, e.conjunction) for e in kept}, held)}
    return [found[each.target, each.conjunction] for each in kept]


def _grounded(job: Job, search: Search, kept: Sequence[Counted], train: Questions) -> bool | None:
    """Tell whether rules that rest on the target derive, from facts without it, all that they are right of.

    None where no rule rests on the target, where there are too many facts to chain forwards, and where the chain is
    still growing after `CHAINED` rounds: it has a beginning then.
    """
    if not any(search.recursive(each) for each in kept) or job.kb.n_facts > job.search.max_chained:
        return None
    name = job.targets[0]
    number = job.kb.predicate_index(name)
    tables = {kind: table.keep_rows(table.predicate != number) for kind, table in job.kb.tables().items()}
    rules = RuleSet([search.writers[0].rule(each.conjunction) for each in kept])
    inferred = apply(rules, job.kb.with_facts(tables), max_rounds=CHAINED)
    found = set(_keys([column.astype(np.int64) for column in inferred.facts.columns(name)]).tolist())
    right = rows_right(kept)
    if set(_keys([column[right] for column in train.arguments]).tolist()) <= found:
        return True
    return None if inferred.note else False


def learn_alone(job: Job) -> Learned:
    """Learn a task in a process of its own, on one thread."""
    import torch

    torch.set_num_threads(1)
    return learn(job)
