"""Applying rules to facts: what is new, how sure it is, and which rules gave it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rulewright.checks import SHARE, OneOf, Progress, Whole, check_parameter
from rulewright.data import KnowledgeBase, signature
from rulewright.engine.batches import RuleBatch, batch_derivations
from rulewright.engine.sql import (
    Column,
    Join,
    SQLEngine,
    argument_columns,
    declare_columns,
    positive_atoms,
    table_name,
)
from rulewright.errors import DataError
from rulewright.reason.inferred import Aggregation, Inferred, Violation, split_by_predicate
from rulewright.reason.program import IntegrityConstraint, RuleProgram, Rules, find_strata

_FEWEST_RULES = 16  # in a statement
_MOST_MEETINGS = 20_000_000  # of new facts with rules, in a statement


def seen_table(fact_signature: str) -> str:
    """Return the name of the table of all facts of a signature, with their scores."""
    return f"seen_{fact_signature}"


def delta_table(fact_signature: str) -> str:
    """Return the name of the table of the facts that the latest round gave or bettered."""
    return f"delta_{fact_signature}"


class ForwardChaining:
    """Applies a program round by round until nothing is new or a limit is met; ``note`` then says which."""

    def __init__(
        self,
        program: RuleProgram,
        engine: SQLEngine,
        aggregation: Aggregation = "max",
        *,
        min_score: float = 0.0,
        max_rounds: int | None = None,
        max_facts: int,
        progress: Progress | None = None,
    ) -> None:
        self.program, self.engine, self.aggregation = program, engine, aggregation
        self.min_score, self.max_rounds, self.max_facts, self.progress = min_score, max_rounds, max_facts, progress
        self.rounds, self.note, self.overflowed = 0, "", False
        self._rows = 0
        kb, derivations = program.kb, program.derivations
        once = max_rounds == 1
        strata = [[*range(len(derivations))]] if once else find_strata(derivations)
        self._strata = [batch_derivations([(index, derivations[index]) for index in stratum], kb) for stratum in strata]
        batches = [batch for stratum in self._strata for batch in stratum]
        premises = {name for batch in batches for names in batch.predicates for name in names}
        derived = {str(derivation.head.predicate) for derivation in derivations}
        self._chains = len(self._strata) > 1 or bool(premises & derived)
        self._keeps_facts = bool(program.constraints) or (self._chains and not once)
        self._heads = sorted({batch.head_signature(kb) for batch in batches})
        for batch in batches:
            engine.put(batch.name, batch.columns)

    def run(self) -> None:
        """Chain all strata."""
        for head in self._heads:
            self._create(f"given_{head}", f"{declare_columns(head)}, n INTEGER, s DOUBLE, k INTEGER")
        if self._keeps_facts:
            for fact_signature in sorted(set(map(signature, self.program.kb.predicates.values()))):
                for table in (seen_table(fact_signature), delta_table(fact_signature)):
                    self._create(table, f"{declare_columns(fact_signature)}, s DOUBLE")
                known = f"SELECT {_fact_columns(fact_signature)}, 1.0 FROM {table_name(fact_signature)}"
                self.engine.run(f"INSERT INTO {seen_table(fact_signature)} {known}")
        for stratum in self._strata:
            if not self._settle(stratum, first=stratum is self._strata[0]):
                return
        if self.max_rounds == 1 and self._chains and self._rows:
            self.note = "every rule was applied once; a further round may give more"

    def _create(self, table: str, columns: str) -> None:
        self.engine.run(f"DROP TABLE IF EXISTS {table}")
        self.engine.run(f"CREATE TABLE {table} ({columns})")

    def _settle(self, stratum: Sequence[RuleBatch], *, first: bool) -> bool:
        """Run rounds over one stratum; returns False where a limit ended them."""
        changed: set[str] | None = None
        while True:
            statements = list(self._plan_round(stratum, changed))
            if not statements:
                break
            if self.max_rounds is not None and self.rounds >= self.max_rounds:
                self.note = f"stopped after {self.rounds} rounds; a further round may give more"
                return False
            rows_before, stage = self._rows, f"round {self.rounds + 1}"
            for done, (batch, delta, rules) in enumerate(statements):
                if self.progress is not None:
                    self.progress(stage, done, len(statements))
                self._add(batch, delta, rules, known=first and changed is None)
                if self._rows > self.max_facts and self._count_facts() > self.max_facts:
                    self.rounds += 1
                    self.overflowed = True
                    self.note = f"stopped in round {self.rounds} at max_facts={self.max_facts:,}; there are more"
                    return False
            if self.progress is not None:
                self.progress(stage, len(statements), len(statements))
            self.rounds += self._rows > rows_before
            if not self._keeps_facts or self._rows == rows_before:
                break
            changed = self._merge()
            if self.max_rounds == 1:
                break
        if self.aggregation == "noisy-or" and self._keeps_facts:
            for fact_signature in self._heads:
                self.engine.run(f"DELETE FROM {seen_table(fact_signature)} WHERE s < {self.min_score!r}")
        return True

    def _plan_round(
        self, stratum: Sequence[RuleBatch], changed: set[str] | None
    ) -> Iterator[tuple[RuleBatch, int | None, range | None]]:
        """Yield the statements of a round: a batch, which of its atoms must be new (none in the first), which rules.

        Many new facts are met by few rules at once, so that the limit on facts is looked at in time.
        """
        size = max(_FEWEST_RULES, _MOST_MEETINGS // max(1, self._rows))
        for batch in stratum:
            if changed is None:
                yield batch, None, None
                continue
            for position, names in enumerate(batch.predicates):
                if names & changed:
                    starts = range(0, len(batch.derivations), size)
                    yield from ((batch, position, range(low, low + size)) for low in starts)

    def _add(self, batch: RuleBatch, delta: int | None, rules: range | None, *, known: bool) -> None:
        """Add what some rules give; with ``known`` from the known facts alone, whose scores are 1."""
        fact_signature, atoms = batch.head_signature(self.program.kb), range(len(batch.predicates))
        if known:
            join = batch.join(self.program.kb)
        else:
            tables = [delta_table if position == delta else seen_table for position in atoms]
            join = batch.join(self.program.kb, tables, seen_table)
        if rules is not None:
            join.conditions.append(f"r.i >= {rules.start} AND r.i < {rules.stop}")
        score = " * ".join(["r.s", *(f"t{position + 1}.s" for position in atoms if not known)])
        names = ["p", *argument_columns(fact_signature)]
        listed = ", ".join(f"{term} AS {name}" for term, name in zip(batch.express_head(join), names, strict=True))
        instances = join.select(f"{listed}, r.n AS n, {score} AS s")
        key = ", ".join(names)
        best = f"SELECT {key}, n, MAX(s), {self.rounds + 1} FROM ({instances}) AS fresh"
        where = " AND ".join(["1 = 1", *self._conditions_of_news(fact_signature)])
        self.engine.run(f"INSERT INTO given_{fact_signature} {best} WHERE {where} GROUP BY {key}, n")
        self._rows = sum(self._count(f"given_{head}") for head in self._heads)

    def _conditions_of_news(self, fact_signature: str) -> list[str]:
        """Return the conditions for an instance to say something new: its head is not known, nor observed false."""
        decided = ["p", *argument_columns(fact_signature.removesuffix("c"))]  # an atom with any class is known
        conditions = [
            _is_absent(table_name(fact_signature, truth=truth), decided)
            for truth in (True, False)
            if fact_signature in self.program.kb.tables(truth=truth)
        ]
        columns = ["p", *argument_columns(fact_signature)]
        if self.aggregation == "max":
            if self.min_score > 0:
                conditions.append(f"fresh.s >= {self.min_score!r}")
            if self.rounds:
                conditions.append(_is_absent(f"given_{fact_signature}", [*columns, "n"], "o.s >= fresh.s"))
        elif self.rounds and self._keeps_facts:
            conditions.append(_is_absent(seen_table(fact_signature), columns))
        return conditions

    def _merge(self) -> set[str]:
        """Take up what a round has given; returns the predicates with new or better facts."""
        changed: set[str] = set()
        names = list(self.program.kb.predicates)
        # what is certain counts as e^-1000 of doubt
        noisy_or = "1 - EXP(SUM(CASE WHEN s >= 1 THEN -1000 ELSE LN(1 - s) END))"
        combined = "MAX(s)" if self.aggregation == "max" else noisy_or
        for fact_signature in self._heads:
            key, delta = _fact_columns(fact_signature), delta_table(fact_signature)
            new = f"given_{fact_signature} WHERE k = {self.rounds}"
            rules = f"SELECT {key}, n, MAX(s) AS s FROM {new} GROUP BY {key}, n"
            facts = f"SELECT {key}, {combined} AS s FROM ({rules}) AS given GROUP BY {key}"
            better = _is_absent(seen_table(fact_signature), ["p", *argument_columns(fact_signature)], "o.s >= fresh.s")
            self.engine.run(f"DELETE FROM {delta}")
            self.engine.run(f"INSERT INTO {delta} SELECT {key}, s FROM ({facts}) AS fresh WHERE {better}")
            self.engine.run(f"INSERT INTO {seen_table(fact_signature)} SELECT {key}, s FROM {delta}")
            changed |= {names[int(p)] for p in self.engine.run(f"SELECT DISTINCT p FROM {delta}")["p"]}
        return changed

    def _count(self, rows: str) -> int:
        return int(self.engine.run(f"SELECT COUNT(*) AS n FROM {rows}")["n"][0])

    def _count_facts(self) -> int:
        """Return the number of new facts so far."""
        facts = (f"SELECT DISTINCT {_fact_columns(head)} FROM given_{head}" for head in self._heads)
        return sum(self._count(f"({rows}) AS facts") for rows in facts)

    def given(self) -> Iterator[tuple[str, dict[str, Column]]]:
        """Yield for each signature all that was given, in order of facts and sources."""
        for head in self._heads:
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


def _fact_columns(fact_signature: str) -> str:
    return ", ".join(["p", *argument_columns(fact_signature)])


def _is_absent(table: str, columns: Sequence[str], *conditions: str) -> str:
    where = " AND ".join([*(f"o.{name} = fresh.{name}" for name in columns), *conditions])
    return f"NOT EXISTS (SELECT 1 FROM {table} AS o WHERE {where})"


def apply(
    rules: Rules,
    kb: KnowledgeBase,
    *,
    aggregation: Aggregation = "max",
    min_score: float = 0.0,
    max_rounds: int | None = None,
    max_facts: int = 10_000_000,
    memory_limit: int | str | None = None,
    progress: Progress | None = None,
) -> Inferred:
    """Apply rules to the known facts, and again to what they give, until nothing is new; return what is.

    An instance of a rule has the score ``confidence × Π score of its premises``; known facts, and absent ones under
    ``!``, have score 1. A rule gives a fact the score of its best instance, and of several rules' scores a fact gets

    - with ``max`` the highest: the score of its best proof, however many rounds that takes;
    - with ``noisy-or`` ``1 − Π (1 − score)`` over the rules of the round that first gives it, so that no fact
      makes itself more probable.

    What is negated is settled first (strata); a predicate that rests on its own absence is refused. Facts below
    ``min_score`` are left out, also as premises and when something asks for their absence. ``hard`` formulas that
    read as a rule give facts with score 1, the others are checked at the end, and those that do not hold are among
    ``violations``. Weighted and learnable formulas are refused.

    ``max_rounds=1`` applies every rule once to the known facts alone. Where ``max_rounds`` or ``max_facts`` ends the
    work, ``note`` of the result says so: what is there is right, but there may be more.

    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> rules = parse_rules('''
    ...     ancestor_of(X, Y) :- parent_of(X, Y).
    ...     0.9 :: ancestor_of(X, Z) :- parent_of(X, Y), ancestor_of(Y, Z).
    ... ''')
    >>> for fact in apply(rules, kb):
    ...     print(fact, fact.score, fact.round)
    ancestor_of(ann, bob) 1.0 1
    ancestor_of(bob, cid) 1.0 1
    ancestor_of(ann, cid) 0.9 2
    """
    check_parameter("aggregation", aggregation, OneOf("max", "noisy-or"))
    check_parameter("min_score", min_score, SHARE)
    check_parameter("max_rounds", max_rounds, Whole(1, optional=True))
    check_parameter("max_facts", max_facts, Whole(1))
    from rulewright.engine.duckdb import Engine

    program = RuleProgram.of(rules, kb)
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
        chaining.run()
        counts = [(constraint.formula, chaining.count_broken(constraint)) for constraint in program.constraints]
        derived = split_by_predicate(
            program.kb, chaining.given(), aggregation, min_score=min_score, max_facts=max_facts
        )
    violations = [Violation(formula, count) for formula, count in counts if count]
    return Inferred(program.kb, program.sources, derived, violations, rounds=chaining.rounds, note=chaining.note)
