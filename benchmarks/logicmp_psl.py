"""PSL and `MarkovLogic` on the same rules and facts: AUC-PR and seconds, python benchmarks/logicmp_psl.py.

PSL infers the most probable soft truth values of a hinge-loss Markov random field, here with squared hinges, and ranks
the queries by them. It has the same weights, and in a second row a rule more, which says of everything that it is
false (``--prior``): without one, whatever no rule speaks of may have any truth. It runs in a process of its own with
limits of time and memory, and where it reaches them the row says so. Ours has the options that the experiments chose,
from ``results``. Both infer with every predicate open and with those closed that have true facts and no false ones;
rules with more groundings than ``--most`` are then left out for both.

It needs ``pip install pslpython`` (2.4.1 was used; it brings PSL's jar), Java, and the data sets.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import product
from math import prod
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from measure import machine, print_table, save

import rulewright as rw
from rulewright.evaluate.classification import evaluate_classification
from rulewright.learn.markov.facts import GroundFacts, declare_types
from rulewright.logic import Variable, atom_of, exclusive_clauses

RESULTS = Path(__file__).parents[1] / "results"
SETS = {
    "smoke": ("smoke", (None,)),
    "kinship": ("kinship_mln", ("S1", "S2", "S4")),
    "cora": ("cora", ("S1", "S2", "S3")),
}
QUERIES = "queries"
COLUMNS = ("", "closed", "rules", "AUC-PR", "seconds")


@dataclass(frozen=True)
class Problem:
    """Facts, rules and queries of a part of a set, with the predicates that are read as closed."""

    kb: rw.KnowledgeBase
    gold: rw.KnowledgeBase
    rules: rw.RuleSet
    closed: tuple[str, ...]

    def with_rules_up_to(self, most: float) -> Problem:
        """Leave out the rules with more groundings."""
        kept = [statement for statement in self.rules if self.groundings(statement) <= most]
        return Problem(self.kb, self.gold, rw.RuleSet(kept, predicates=self.rules.predicates), self.closed)

    def groundings(self, statement: Any) -> int:
        """Return the number of groundings, of which no closed atom of its premises is known to be false.

        That is how many values the variables can take, those in a closed premise together as many as it has facts.
        """
        counts = []
        for clause in exclusive_clauses(statement.formula):
            types: dict[str, str] = {}
            known: dict[frozenset[str], int] = {}
            for literal in clause.literals:
                atom = atom_of(literal.unit)
                name = str(atom.predicate)
                names = [term.name for term in atom.args if isinstance(term, Variable)]
                types.update(zip_types(self.kb, atom))
                if not literal.positive and name in self.closed:
                    known[frozenset(names)] = self.kb.count(name)
            free = set(types)
            total = 1
            for names_together, count in sorted(known.items(), key=lambda item: item[1]):
                if names_together & free:
                    whole = prod(len(self.kb.domains[types[name]]) for name in names_together)
                    new = prod(len(self.kb.domains[types[name]]) for name in names_together & free)
                    total *= max(1, round(count * new / whole))
                    free -= names_together
            counts.append(total * prod(len(self.kb.domains[types[name]]) for name in free))
        return sum(counts)


def zip_types(kb: rw.KnowledgeBase, atom: Any) -> list[tuple[str, str]]:
    """Return the variables of an atom with their types."""
    types = kb.predicates[str(atom.predicate)].types
    return [(term.name, name) for term, name in zip(atom.args, types, strict=True) if isinstance(term, Variable)]


def load(name: str, part: str | None, *, closed: bool) -> Problem:
    """Read a part of a set."""
    whole = rw.datasets.load(name, part)
    kb, gold = whole.with_splits({}), whole.split(QUERIES)
    rules = rw.datasets.rules_of(name, part)
    listed = GroundFacts(kb, declare_types(rules, kb)).listed_predicates() if closed else []
    return Problem(kb, gold, rules, tuple(listed))


def ours(problem: Problem, options: Mapping[str, Any]) -> tuple[float, float]:
    """Return our AUC-PR and seconds."""
    started = time.perf_counter()
    model = rw.MarkovLogic(problem.rules, **{**options, "closed": list(problem.closed)}).fit(problem.kb)
    answers = model.predict(problem.gold)
    seconds = time.perf_counter() - started
    scores = {(answer.predicate, tuple(map(str, answer.args))): answer.logit for answer in answers}
    return evaluate_classification(scores, problem.gold).auc_pr, seconds


def psl(problem: Problem, prior: float, *, limit: float, memory: str) -> tuple[float | str, float]:
    """Return PSL's AUC-PR, or why it stopped, and the seconds of its grounding and inference."""
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe(duplex=False)
    process = context.Process(target=_answer_by_psl, args=(problem, prior, memory, there))
    started = time.perf_counter()
    process.start()
    there.close()
    answer: Any = "stopped: it took too long"
    try:
        if here.poll(limit):
            answer = here.recv()
    except EOFError:
        answer = "stopped: it ran out of memory"
    process.kill()
    process.join()
    return (answer, time.perf_counter() - started) if isinstance(answer, str) else answer


def _answer_by_psl(problem: Problem, prior: float, memory: str, out: Connection) -> None:
    try:
        out.send(_infer_by_psl(problem, prior, memory))
    except Exception as error:
        out.send(f"stopped: {type(error).__name__} {str(error).splitlines()[0][:200] if str(error) else ''}")


def _infer_by_psl(problem: Problem, prior: float, memory: str) -> tuple[float, float]:
    from pslpython.model import Model
    from pslpython.predicate import Predicate
    from pslpython.rule import Rule

    kb, model = problem.kb, Model("graph")
    predicates = {}
    for name, declaration in kb.predicates.items():
        predicates[name] = predicate = Predicate(f"x{name}", size=declaration.arity)
        model.add_predicate(predicate)
        labels = [[str(label) for label in kb.domains[type_name].labels] for type_name in declaration.types]
        true, false = ({tuple(map(str, args)) for args in kb.tuples(name, truth=truth)} for truth in (True, False))
        if observed := [(*args, 1.0) for args in sorted(true)] + [(*args, 0.0) for args in sorted(false)]:
            predicate.add_observed_data(observed)
        if name in problem.closed:
            continue
        if targets := [args for args in product(*labels) if args not in true and args not in false]:
            predicate.add_target_data(targets)
            if prior:
                variables = ", ".join(f"V{position}" for position in range(declaration.arity))
                model.add_rule(Rule(f"{prior}: !x{name}({variables}) ^2"))
    for type_name, domain in kb.domains.items():
        predicate = Predicate(f"is{type_name}", size=1)
        predicate.add_observed_data([(str(label), 1.0) for label in domain.labels])
        model.add_predicate(predicate)
    for statement in problem.rules.formulas:
        for clause in exclusive_clauses(statement.formula):
            model.add_rule(Rule(f"{statement.weight}: {_write_clause(kb, clause)} ^2"))
    started = time.perf_counter()
    found = model.infer(
        psl_options={"runtime.log.level": "ERROR", "parallel.numthreads": 1}, jvm_options=[f"-Xmx{memory}"]
    )
    seconds = time.perf_counter() - started
    scores = {}
    for name, predicate in predicates.items():
        if predicate in found:
            for *args, truth in found[predicate].itertuples(index=False):
                scores[name, tuple(map(str, args))] = float(truth)
    return evaluate_classification(scores, problem.gold).auc_pr, seconds


def _write_clause(kb: rw.KnowledgeBase, clause: Any) -> str:
    """Write a clause for PSL, which finds values of a variable in premises only: its type is one."""
    parts, bound, free = [], set(), {}
    for literal in clause.literals:
        atom = atom_of(literal.unit)
        args = ", ".join(_write_term(term) for term in atom.args)
        parts.append(f"{'' if literal.positive else '!'}x{atom.predicate}({args})")
        pairs = zip_types(kb, atom)
        free.update(pairs)
        bound |= set() if literal.positive else {name for name, _ in pairs}
    types = [f"!is{type_name}({name.upper()})" for name, type_name in free.items() if name not in bound]
    return " | ".join([*types, *parts])


def _write_term(term: Any) -> str:
    return str(term.name).upper() if isinstance(term, Variable) else f"'{term}'"


def rows_of(name: str, part: str | None, options: argparse.Namespace) -> list[Sequence[object]]:
    """Compare both on one part, open and closed."""
    data_set, _ = SETS[name]
    title = f"{name} {part}" if part else name
    rows: list[Sequence[object]] = []

    def add(system: str, problem: Problem, figures: Sequence[object]) -> None:
        rows.append((f"{title}, {system}", len(problem.closed), len(problem.rules), *figures))
        print(*rows[-1], flush=True)

    chosen = json.loads((RESULTS / f"logicmp_{name}_0.json").read_text())["options"]
    for closed in (False, True):
        problem = load(data_set, part, closed=closed)
        if closed and not problem.closed:
            continue
        add("MarkovLogic", problem, ours(problem, {**chosen, "seed": 0}))
        small = problem.with_rules_up_to(options.most)
        if len(small.rules) < len(problem.rules):
            if not closed:
                add("PSL", problem, ("not tried: too many groundings", ""))
                continue
            add("MarkovLogic", small, ours(small, {**chosen, "seed": 0}))
        for prior, said in ((0.0, ""), (options.prior, f" and {options.prior:g}: all is false")):
            figures = psl(small, prior, limit=options.limit, memory=options.memory)
            add(f"PSL{said}", small, figures)
            if isinstance(figures[0], str):
                break  # a rule more will not help
    return rows


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--parts", nargs="+", help="of these parts only")
    parser.add_argument("--prior", type=float, default=0.01, help="the weight of PSL's rule that all is false")
    parser.add_argument("--most", type=float, default=1e6, help="the groundings of a rule above which it is left out")
    parser.add_argument("--limit", type=float, default=600, help="seconds that PSL may take")
    parser.add_argument("--memory", default="6g", help="what Java may take")
    parser.add_argument("--save")
    given = parser.parse_args()
    if find_spec("pslpython") is None:
        parser.exit(1, "PSL is not installed: pip install pslpython (it needs Java)\n")
    torch.set_num_threads(1)
    print(machine(), "1 thread each")
    ours(load("smoke", None, closed=False), {})  # so that nothing is loaded while ours is timed
    table = [
        row
        for name in given.sets
        for part in SETS[name][1]
        if part is None or not given.parts or part in given.parts
        for row in rows_of(name, part, given)
    ]
    print_table("PSL beside MarkovLogic", COLUMNS, table)
    save(given.save)
