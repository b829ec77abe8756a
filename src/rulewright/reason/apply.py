"""Applying rules to facts: what is new, how sure it is, and which rules gave it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rulewright.checks import SHARE, Progress, Real, Whole, check_parameter
from rulewright.data import KnowledgeBase, signature
from rulewright.engine.batches import Derivation, RuleBatch, batch_derivations
from rulewright.engine.sql import (
    Column,
    Join,
    SQLEngine,
    argument_columns,
    declare_columns,
    positive_atoms,
    table_name,
)
from rulewright.engine.stored_facts import StoredFacts
from rulewright.errors import DataError, TimeLimitError
from rulewright.logic import Comparison
from rulewright.reason.inferred import (
    AGGREGATION,
    Aggregation,
    Application,
    Inferred,
    Violation,
    describe_cut,
    keep_best,
    split_by_predicate,
)
from rulewright.reason.program import IntegrityConstraint, RuleProgram, Rules, adds_weights, find_strata, read_rule_set

_FEWEST_RULES = 16  # in a statement
_MOST_MEETINGS = 20_000_000  # of new facts with rules, in a statement
_LARGEST_BLOCK = 8192  # rules that are applied before facts are counted
_SPARE = 4  # times max_facts, how many facts with low scores are held while others add to them


if TYPE_CHECKING:
    from rulewright.engine import Engine

# What is certain counts as e^-1000 of doubt
NOISY_OR = "1 - EXP(SUM(CASE WHEN s >= 1 THEN -1000 ELSE LN(1 - s) END))"
_Block = list[tuple[RuleBatch, int | None, range]]
"""Statements: a batch, which of its atoms must be new (None in a first round), and which of its rules."""


def seen_table(fact_signature: str) -> str:
    """Return the name of the table of all facts of a signature, with their scores."""
    return f"seen_{fact_signature}"


def delta_table(fact_signature: str) -> str:
    """Return the name of the table of the facts that the latest round gave or bettered."""
    return f"delta_{fact_signature}"


class ForwardChaining:
    """Applies a program round by round until nothing is new or a limit is met; ``note`` then says which.

    In the first round the most confident rules come first, so that a limit on facts leaves the best: once there are
    enough, no rule to come can give a better one. Where several rules add up (``noisy-or``, ``max-plus``), the rules to
    come are still applied to the facts that are there, so that their scores are those without a limit. Where a later
    round meets the limit, a longer proof might better a score: then ``exact`` is False. Without a limit every round is
    one statement for each signature of heads.
    """

    def __init__(
        self,
        program: RuleProgram,
        engine: SQLEngine,
        aggregation: Aggregation = "max",
        *,
        min_score: float = 0.0,
        max_rounds: int | None = None,
        max_facts: int | None,
        progress: Progress | None = None,
    ) -> None:
        self.program, self.engine, self.aggregation = program, engine, aggregation
        self.min_score, self.max_rounds, self.max_facts, self.progress = min_score, max_rounds, max_facts, progress
        self.rounds, self.note, self.overflowed, self.timed_out, self.exact = 0, "", False, False, True
        self.rules_left = 0
        self._rows = 0
        self.changed: set[str] = set()
        kb, derivations = program.kb, program.derivations
        self._once = max_rounds == 1
        strata = find_strata(derivations, circles=self._once)
        best_first = [sorted(stratum, key=lambda index: -derivations[index].confidence) for stratum in strata]
        self._strata = [
            batch_derivations([(index, derivations[index]) for index in stratum], kb) for stratum in best_first
        ]
        self.batches = batches = [batch for stratum in self._strata for batch in stratum]
        premises = {name for batch in batches for names in batch.predicates for name in names}
        derived = {str(derivation.head.predicate) for derivation in derivations}
        self.rests_on_absence = any(
            not literal.positive and not isinstance(literal.unit, Comparison) and literal.unit.predicate in derived
            for derivation in derivations
            for literal in derivation.body
        )
        chains = len(self._strata) > 1 or bool(premises & derived) or self.rests_on_absence
        self._keeps_facts = bool(program.constraints) or chains
        self.may_go_on = bool(premises & derived) or has_circle(derivations, strata)
        self.heads = sorted({batch.head_signature(kb) for batch in batches})
        for batch in batches:
            engine.put(batch.name, batch.columns)

    def run(self) -> None:
        """Chain all strata."""
        for head in self.heads:
            self.engine.declare(f"given_{head}", f"{declare_columns(head)}, n INTEGER, s DOUBLE, k INTEGER")
        if self._keeps_facts:
            for fact_signature in sorted(set(map(signature, self.program.kb.predicates.values()))):
                columns = f"{_fact_columns(fact_signature)}, CAST(1 AS DOUBLE) AS s"
                self.engine.create(seen_table(fact_signature), f"SELECT {columns} FROM {table_name(fact_signature)}")
                self.engine.declare(delta_table(fact_signature), f"{declare_columns(fact_signature)}, s DOUBLE")
        try:
            for stratum in self._strata:
                if not self._settle(stratum, first=stratum is self._strata[0]):
                    return
            if self._once:
                self.rounds = int(self._rows > 0)
                if len(self._strata) > 1 and self._is_full():
                    self.overflowed = True
                    self.note = f"stopped in round 1 at max_facts={self.max_facts:,}"
        except TimeLimitError as error:  # what was given before is whole: a statement adds all of its rows or none
            self.rounds += 1
            self.timed_out, self.exact = True, False
            self.note = (
                f"{str(error).partition(';')[0]} in round {self.rounds}: there may be more, and scores are lower bounds"
            )

    def _settle(self, stratum: Sequence[RuleBatch], *, first: bool) -> bool:
        """Run rounds over one stratum; returns False where a limit ended them."""
        changed: set[str] | None = None
        while True:
            blocks = self._plan_first_round(stratum) if changed is None else self._plan_round(stratum, changed)
            if not blocks:
                break
            if self.max_rounds is not None and self.rounds >= self.max_rounds:
                self.note = f"stopped after {self.rounds} rounds; a further round may give more"
                return False
            rows_before = self._rows
            self._run_round(blocks, known=self._once or (first and changed is None))
            if self.overflowed:
                return False
            if not self._once:
                self.rounds += self._rows > rows_before
            if not self._keeps_facts or self._rows == rows_before:
                break
            changed = self._merge(max(1, self.rounds))
            self.changed |= changed
            if self._once:
                break
        if self.aggregation == "noisy-or" and self._keeps_facts:
            for fact_signature in self.heads:
                seen = seen_table(fact_signature)
                self.engine.create(seen, f"SELECT * FROM {seen} WHERE s >= {self.min_score!r}")
        return True

    def _run_round(self, blocks: Sequence[_Block], *, known: bool) -> None:
        """Run the statements of a round, and stop between blocks once there are facts enough."""
        stage, total, done = f"round {self.rounds + 1}", sum(map(len, blocks)), 0
        adds_up = self.aggregation in ("noisy-or", "max-plus") and known
        # one round of several strata goes to the end: what a limit would cut off below might have to be absent above
        may_stop = not self._once or len(self._strata) == 1
        for position, block in enumerate(blocks, 1):
            if self.progress is not None:
                self.progress(stage, done, total)
            self._add(block, known=known, found_only=self.overflowed)
            done += len(block)
            if may_stop and not self.overflowed and self._is_full():
                self.overflowed = True
                if not adds_up:
                    self.rules_left = sum(len(rules) for later in blocks[position:] for _, _, rules in later)
                    break
                self._keep_found()
        if self.progress is not None:
            self.progress(stage, total, total)
        if self.overflowed:
            self.rounds += 1
            self.exact = self._once
            self.note = f"stopped in round {self.rounds} at max_facts={self.max_facts:,}"

    def _is_full(self) -> bool:
        """Return whether more facts are there than are to be kept."""
        if self.max_facts is None or self._rows <= self.max_facts:
            return False
        facts = self._count_facts()
        if self.aggregation != "noisy-or" or not self.min_score or facts > _SPARE * self.max_facts:
            return facts > self.max_facts
        return self._count_facts(f"HAVING {NOISY_OR} >= {self.min_score!r}") > self.max_facts

    def _keep_found(self) -> None:
        """Hold the facts that are there, for the rules to come to add to; with ``max-plus`` those that may stay."""
        lowest = 0.0
        if self.aggregation == "max-plus":
            best = " UNION ALL ".join(
                f"SELECT MAX(s) AS s FROM given_{head} GROUP BY {_fact_columns(head)}" for head in self.heads
            )
            ordered = f"SELECT s FROM ({best}) AS best ORDER BY s DESC LIMIT {self.max_facts}"
            lowest = float(self.engine.run(f"SELECT MIN(s) AS s FROM ({ordered}) AS kept")["s"][0])
        for head in self.heads:
            key = _fact_columns(head)
            facts = f"SELECT {key} FROM given_{head} GROUP BY {key} HAVING MAX(s) >= {lowest!r}"
            self.engine.create(f"found_{head}", facts)

    def _plan_first_round(self, stratum: Sequence[RuleBatch]) -> list[_Block]:
        """Return blocks of rules, few at first, such that none has a more confident rule than one before it."""
        confidences = np.sort(np.concatenate([batch.columns["s"] for batch in stratum] or [np.empty(0)]))[::-1]
        blocks: list[_Block] = []
        begin, size = 0, _FEWEST_RULES
        if self.max_facts is None:
            size = largest = max(1, len(confidences))
        else:
            largest = _LARGEST_BLOCK
        starts = [0] * len(stratum)
        while begin < len(confidences):
            lowest = confidences[min(begin + size, len(confidences)) - 1]
            ends = [int(np.searchsorted(-batch.columns["s"], -lowest, side="right")) for batch in stratum]
            parts = zip(stratum, starts, ends, strict=True)
            blocks.append([(batch, None, range(start, end)) for batch, start, end in parts if start < end])
            begin, starts, size = sum(ends), ends, min(2 * size, largest)
        return blocks

    def _plan_round(self, stratum: Sequence[RuleBatch], changed: set[str]) -> list[_Block]:
        """Return the statements of a later round: a batch, which of its atoms must be new, which rules.

        Many new facts are met by few rules at once, so that the limit on facts is looked at in time.
        """
        size = max(_FEWEST_RULES, _MOST_MEETINGS // max(1, self._rows))
        if self.max_facts is None:
            size = max((len(batch.derivations) for batch in stratum), default=1)
        parts: _Block = [
            (batch, position, range(low, low + size))
            for batch in stratum
            for position, names in enumerate(batch.predicates)
            if names & changed
            for low in range(0, len(batch.derivations), size)
        ]
        return [[part] for part in parts] if self.max_facts is not None else [parts] if parts else []

    def _add(self, block: _Block, *, known: bool, found_only: bool) -> None:
        """Add what some rules give, a statement for each signature; with ``known`` from the known facts alone."""
        if self.engine.is_planned:
            self._expect_rows(block)
        for head in self.heads:
            parts = [
                self._select_instances(batch, delta, rules, known=known, found_only=found_only)
                for batch, delta, rules in block
                if batch.head_signature(self.program.kb) == head
            ]
            if not parts:
                continue
            key = _fact_columns(head)
            best = f"SELECT {key}, n, MAX(s) AS s, {self.rounds + 1} AS k FROM ({' UNION ALL '.join(parts)}) AS fresh"
            where = " AND ".join(["1 = 1", *self._conditions_of_news(head)])
            self.engine.append(f"given_{head}", f"{best} WHERE {where} GROUP BY {key}, n")
        self._rows = sum(self._count(f"given_{head}") for head in self.heads)

    def _expect_rows(self, block: _Block) -> None:
        """Tell how many groundings of bodies of one atom, or of two with a shared variable, will be listed.

        Facts that were inferred count as often as known ones of the same predicate do, and longer bodies not at all.
        """
        kb = self.program.kb
        counts = [kb.count(name) for name in kb.predicates]
        rows = 0.0
        for batch, _, rules in block:
            atoms = positive_atoms(batch.body)
            if not batch.is_open or len(atoms) > 2 or any(len(atom.args) != 2 for atom in atoms):
                continue
            chosen = slice(rules.start, rules.stop)
            if len(atoms) == 1:
                rows += sum(counts[index] for index in batch.columns["p0"][chosen].tolist())
                continue
            shared = [
                (left, right)
                for left, one in enumerate(atoms[0].args)
                for right, other in enumerate(atoms[1].args)
                if one == other
            ]
            if len(shared) != 1:
                continue
            ((left, right),) = shared
            pairs = np.unique(np.stack([batch.columns[name][chosen] for name in ("p0", "p1")]), axis=1)
            self.engine.put("expected_pair", {"p0": pairs[0], "p1": pairs[1]})
            degrees = [
                f"(SELECT p, a{side} AS y, CAST(COUNT(*) AS DOUBLE) AS n FROM {table_name('ee')} "
                f"WHERE p IN (SELECT {step} FROM expected_pair) GROUP BY p, a{side})"
                for step, side in (("p0", left), ("p1", right))
            ]
            total = self.engine.run(
                f"SELECT SUM(a.n * b.n) AS n FROM expected_pair AS e JOIN {degrees[0]} AS a ON a.p = e.p0 "
                f"JOIN {degrees[1]} AS b ON b.p = e.p1 AND b.y = a.y"
            )["n"]
            rows += float(np.nan_to_num(np.asarray(total, dtype=np.float64))[0])
        self.engine.expect(
            f"round {self.rounds + 1} of {sum(len(rules) for _, _, rules in block):,} rules",
            rows,
            way_out="leave out rules whose bodies hold of nearly everything, or fewer rounds (--rounds)",
        )

    def _select_instances(
        self, batch: RuleBatch, delta: int | None, rules: range, *, known: bool, found_only: bool = False
    ) -> str:
        """Return the statement for the heads that rules give, with the rule ``n`` and the score ``s`` of each."""
        fact_signature, atoms = batch.head_signature(self.program.kb), range(len(batch.predicates))
        if known:  # what must be absent has been settled in the strata below
            is_higher = len(self._strata) > 1
            join = batch.join(self.program.kb, None, seen_table if is_higher else table_name)
        else:
            tables = [delta_table if position == delta else seen_table for position in atoms]
            join = batch.join(self.program.kb, tables, seen_table)
        if len(rules) < len(batch.derivations):
            join.conditions.append(f"r.i >= {rules.start} AND r.i < {rules.stop}")
        score = " * ".join(["r.s", *(f"t{position + 1}.s" for position in atoms if not known)])
        head = dict(zip(["p", *argument_columns(fact_signature)], batch.express_head(join), strict=True))
        if found_only:
            join.sources.append(f"found_{fact_signature} AS f")
            join.conditions += [f"f.{name} = {term}" for name, term in head.items()]
        listed = ", ".join(f"{term} AS {name}" for name, term in head.items())
        return join.select(f"{listed}, r.n AS n, {score} AS s")

    def _conditions_of_news(self, fact_signature: str) -> list[str]:
        """Return the conditions for an instance to say something new."""
        conditions, columns = self._conditions_of_unknown(fact_signature), ["p", *argument_columns(fact_signature)]
        if self.aggregation == "noisy-or":
            if self.rounds and self._keeps_facts:
                conditions.append(_is_absent(seen_table(fact_signature), columns))
        elif self.rounds:
            conditions.append(_is_absent(f"given_{fact_signature}", [*columns, "n"], "o.s >= fresh.s"))
        return conditions

    def _conditions_of_unknown(self, fact_signature: str) -> list[str]:
        """Return the conditions for the head of an instance not to be known, nor observed false, nor too uncertain."""
        decided = ["p", *argument_columns(fact_signature.removesuffix("c"))]  # an atom with any class is known
        conditions = [
            _is_absent(table_name(fact_signature, truth=truth), decided)
            for truth in (True, False)
            if fact_signature in self.program.kb.signatures(truth=truth)
        ]
        if self.aggregation != "noisy-or" and self.min_score > 0:
            conditions.append(f"fresh.s >= {self.min_score!r}")
        return conditions

    def _merge(self, number_of_round: int) -> set[str]:
        """Take up what a round has given; returns the predicates with new or better facts."""
        changed: set[str] = set()
        names = list(self.program.kb.predicates)
        combined = NOISY_OR if self.aggregation == "noisy-or" else "MAX(s)"
        for fact_signature in self.heads:
            key, delta = _fact_columns(fact_signature), delta_table(fact_signature)
            new = f"given_{fact_signature} WHERE k = {number_of_round}"
            rules = f"SELECT {key}, n, MAX(s) AS s FROM {new} GROUP BY {key}, n"
            facts = f"SELECT {key}, {combined} AS s FROM ({rules}) AS given GROUP BY {key}"
            better = _is_absent(seen_table(fact_signature), ["p", *argument_columns(fact_signature)], "o.s >= fresh.s")
            self.engine.create(delta, f"SELECT {key}, s FROM ({facts}) AS fresh WHERE {better}")
            self.engine.append(seen_table(fact_signature), f"SELECT {key}, s FROM {delta}")
            changed |= {names[int(p)] for p in self.engine.run(f"SELECT DISTINCT p FROM {delta}")["p"]}
        return changed

    def count_next_round(self, most: int) -> Iterator[tuple[int, int]]:
        """Count what a second round would add to the first, statement by statement, up to so many at each.

        Yields how many facts are new and how many have a better score, of all so far.
        """
        counts = dict.fromkeys(self.heads, (0, 0))
        for head in self.heads:
            self.engine.declare(f"next_{head}", declare_columns(head))
        for [(batch, position, rules)] in self._plan_round(self._strata[0], self.changed):
            head = batch.head_signature(self.program.kb)
            key, columns = _fact_columns(head), ["p", *argument_columns(head)]
            as_good = [] if self.aggregation == "noisy-or" else ["o.s >= fresh.s"]
            conditions = [
                *self._conditions_of_unknown(head),
                _is_absent(seen_table(head), columns, *as_good),
                _is_absent(f"next_{head}", columns),
            ]
            instances = self._select_instances(batch, position, rules, known=False)
            facts = f"SELECT DISTINCT {key} FROM ({instances}) AS fresh WHERE {' AND '.join(conditions)} LIMIT {most}"
            self.engine.append(f"next_{head}", facts)
            new = self._count(f"next_{head} AS fresh WHERE {_is_absent(f'given_{head}', columns)}")
            counts[head] = new, self._count(f"next_{head}") - new
            yield sum(new for new, _ in counts.values()), sum(better for _, better in counts.values())

    def _count(self, rows: str) -> int:
        return int(self.engine.run(f"SELECT COUNT(*) AS n FROM {rows}")["n"][0])

    def _count_facts(self, having: str = "") -> int:
        """Return the number of new facts so far, or of those with a property."""
        facts = (f"SELECT 1 FROM given_{head} GROUP BY {_fact_columns(head)} {having}" for head in self.heads)
        return sum(self._count(f"({rows}) AS facts") for rows in facts)

    def given(self) -> Iterator[tuple[str, dict[str, Column]]]:
        """Yield for each signature all that was given, in order of facts and sources."""
        for head in self.heads:
            yield head, self.engine.run(f"SELECT * FROM given_{head} ORDER BY {_fact_columns(head)}, n")

    def count_broken(self, constraint: IntegrityConstraint) -> int:
        """Count the groundings of all facts that break a constraint."""
        join = Join(self.program.kb)
        try:
            join.add_body(constraint.body, [seen_table] * len(positive_atoms(constraint.body)), seen_table)
        except DataError as error:
            raise DataError(f"{error} — in: {constraint.formula}") from None
        # a fact whose score was bettered stands in the table more than once
        columns = ", ".join(f"{column} AS v{position}" for position, column in enumerate(join.columns.values()))
        rows = join.select(f"DISTINCT {columns or '1 AS one'}")
        return self._count(f"({rows}) AS broken")


def has_circle(derivations: Sequence[Derivation], strata: Sequence[Sequence[int]]) -> bool:
    """Return whether a rule asks for the absence of what its own stratum derives."""
    heads = [{str(derivations[index].head.predicate) for index in stratum} for stratum in strata]
    return any(
        not literal.positive and not isinstance(literal.unit, Comparison) and str(literal.unit.predicate) in own
        for stratum, own in zip(strata, heads, strict=True)
        for index in stratum
        for literal in derivations[index].body
    )


def _fact_columns(fact_signature: str) -> str:
    return ", ".join(["p", *argument_columns(fact_signature)])


def _is_absent(table: str, columns: Sequence[str], *conditions: str) -> str:
    where = " AND ".join([*(f"o.{name} = fresh.{name}" for name in columns), *conditions])
    return f"NOT EXISTS (SELECT 1 FROM {table} AS o WHERE {where})"


def apply(
    rules: Rules,
    kb: KnowledgeBase,
    *,
    aggregation: Aggregation | None = None,
    min_score: float = 0.0,
    max_rounds: int | None = 1,
    max_facts: int = 1_000_000,
    time_limit: float | None = None,
    memory_limit: int | str | None = None,
    progress: Progress | None = None,
) -> Inferred:
    """Apply every rule once to the known facts, or round by round to what they give too; return what is new.

    An instance of a rule has the score ``confidence × Π score of its premises``; known facts, and absent ones under
    ``!``, have score 1. A rule gives a fact the score of its best instance, and of several rules' scores a fact gets

    - with ``max`` the highest: the score of its best proof, however many rounds that takes;
    - with ``max-plus`` the highest too, but of facts with equal scores that comes first whose second best rule is
      better, and so on;
    - with ``noisy-or`` ``1 − Π (1 − score)`` over the rules of the round that first gives it, so that no fact
      makes itself more probable;
    - with ``weight`` the sum of the weights of the rules for it and against it (`WeightedRules`), in one round.

    None chooses ``weight`` for rules that carry weights, as those of `PathMixture` do, and else ``max``.

    ``max_rounds=1`` applies every rule once; ``None`` goes on until nothing is new, so that facts rest on inferred
    facts and their scores on all ways to infer them. What is negated comes first (strata): a rule with ``!linked(X)``
    is applied after those that conclude ``linked``, in one round too. A predicate that rests on its own absence is
    refused; in one round its absence is that from the known facts. Facts below ``min_score`` are left out, also as
    premises and when something asks for their absence. ``hard`` formulas that read as a rule give facts with score 1,
    the others are checked at the end, and those that do not hold are among ``violations``. Learnable formulas are
    refused, and weighted ones but for those that ``weight`` adds up.

    Of more than ``max_facts`` facts the best are kept: rules are applied in the order of their confidence, so that
    those of one round are exactly the best of all, with the scores that they have among all. Where a later round meets
    the limit, scores are lower bounds, and ``exact`` of the result is False; likewise where ``time_limit``, in seconds,
    ends the work, which keeps what was inferred until then. Whatever is not there, by ``max_rounds``
    or a limit, the ``note`` of the result tells. Of facts that stay in an engine (`store_facts`) everything that
    follows is kept, in the engine, whatever ``max_facts`` says (`StoredInferred`).

    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> rules = parse_rules('''
    ...     ancestor_of(X, Y) :- parent_of(X, Y).
    ...     0.9 :: ancestor_of(X, Z) :- parent_of(X, Y), ancestor_of(Y, Z).
    ... ''')
    >>> apply(rules, kb)
    Inferred(2 new facts; every rule was applied once; a further round would give 1 more facts)
    >>> for fact in apply(rules, kb, max_rounds=None):
    ...     print(fact, fact.score, fact.round)
    ancestor_of(ann, bob) 1.0 1
    ancestor_of(bob, cid) 1.0 1
    ancestor_of(ann, cid) 0.9 2
    """
    rule_set = read_rule_set(rules)
    if aggregation is None:
        aggregation = "weight" if max_rounds == 1 and adds_weights(rule_set) else "max"
    check_parameter("aggregation", aggregation, AGGREGATION)
    check_parameter("min_score", min_score, Real(0) if aggregation == "weight" else SHARE)
    check_parameter("max_rounds", max_rounds, Whole(1, optional=True))
    check_parameter("max_facts", max_facts, Whole(1))
    check_parameter("time_limit", time_limit, Real(0, optional=True))
    if aggregation == "weight" and not isinstance(kb, StoredFacts):
        if max_rounds != 1:
            raise DataError("weights add up over the rules of one round; choose max_rounds=1, or another aggregation")
        if time_limit is not None:
            raise DataError("weights add up over all rules, so half of them give no right score; leave out time_limit")
        from rulewright.reason.weighted import WeightedRules

        weighted = WeightedRules(rule_set, kb, memory_limit=memory_limit)
        return weighted.apply(min_score=min_score, max_facts=max_facts, progress=progress)
    if isinstance(kb, StoredFacts):
        from rulewright.reason.stored_inferred import apply_stored

        return apply_stored(
            rule_set,
            kb,
            aggregation=aggregation,
            min_score=min_score,
            max_rounds=max_rounds,
            time_limit=time_limit,
            progress=progress,
        )
    from rulewright.engine.duckdb import Engine

    program = RuleProgram.of(rule_set, kb)
    with Engine(program.kb, memory_limit=memory_limit) as engine:
        chaining = ForwardChaining(
            program,
            engine,
            aggregation,
            min_score=min_score,
            max_rounds=max_rounds,
            max_facts=max_facts,
            progress=progress,
        )
        with engine.time_limit(time_limit):
            chaining.run()
        counts = [(constraint.formula, chaining.count_broken(constraint)) for constraint in program.constraints]
        derived = split_by_predicate(program.kb, chaining.given(), aggregation, min_score=min_score)
        note = chaining.note
        if chaining.overflowed:
            derived, lowest, is_tied = keep_best(derived, max_facts, by_lists=aggregation == "max-plus")
            note += f": {describe_cut(derived, lowest, is_tied)}" + (
                "" if chaining.exact else ", so far, and their scores are lower bounds"
            )
            if chaining.exact and chaining.rules_left:
                note += f"; {chaining.rules_left:,} less confident rules were not applied"
        elif max_rounds == 1 and not chaining.timed_out:
            note = _describe_next_round(chaining, engine)
    violations = [Violation(formula, count) for formula, count in counts if count]
    return Inferred(
        program.kb,
        program.sources,
        derived,
        violations,
        numbers=program.numbers,
        rounds=chaining.rounds,
        note=note,
        exact=chaining.exact,
        by_lists=aggregation == "max-plus",
        application=Application(
            read_rule_set(rules),
            aggregation,
            min_score,
            max_rounds,
            max_facts,
            is_cut=chaining.overflowed or chaining.timed_out,
            batches=chaining.batches,
        ),
    )


_MOST_COUNTED = 100_000  # facts of a further round
_SECONDS = 3.0  # for counting them


def _describe_next_round(chaining: ForwardChaining, engine: Engine) -> str:
    """Say what a second round would add to the first; nothing where it would not."""
    unknown = "every rule was applied once; a further round may give more"
    if not chaining.changed:
        return ""
    if not chaining.may_go_on:
        return ""
    if chaining.rests_on_absence:
        return (
            "every rule was applied once, to the known facts, and some ask for the absence of what further rounds may "
            "give: max_rounds=None applies these last, which may take facts away and give more"
        )
    if chaining.aggregation == "noisy-or" and chaining.min_score:
        return unknown
    new = better = 0
    at_least = ""
    try:
        with engine.time_limit(_SECONDS):
            for new, better in chaining.count_next_round(_MOST_COUNTED):
                if new + better >= _MOST_COUNTED:
                    at_least = "at least "
                    break
    except TimeLimitError:
        if not new and not better:
            return unknown
        at_least = "at least "
    if not new and not better:
        return ""
    parts = [f"{at_least}{new:,} more facts"] if new else []
    parts += [f"better scores to {'' if new else at_least}{better:,}"] if better else []
    return f"every rule was applied once; a further round would give {' and '.join(parts)}"
