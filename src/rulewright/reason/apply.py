"""Applying rules to facts: what is new, how sure it is, and which rules gave it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from rulewright.data import KnowledgeBase, signature
from rulewright.engine import Engine, SQLEngine
from rulewright.engine.sql import Column, Join, table_name
from rulewright.errors import DataError
from rulewright.logic import Comparison, Rule, RuleSet
from rulewright.reason.batches import Batch, batches
from rulewright.reason.inferred import Aggregation, Inferred, Violation, derived
from rulewright.reason.program import Constraint, Program, positive_atoms, strata

Progress = Callable[[int, int], None]


_FEWEST = 16  # rules in a statement
_MEETINGS = 20_000_000  # of new facts with rules, in a statement


@dataclass(frozen=True)
class Limits:
    """Where chaining stops: scores to leave out, rounds and facts not to exceed."""

    min_score: float = 0.0
    max_rounds: int | None = None
    max_facts: int = 10_000_000

    def __post_init__(self) -> None:
        if not 0 <= self.min_score <= 1:
            raise DataError(f"min_score must lie in [0, 1], got {self.min_score}")
        for name in ("max_rounds", "max_facts"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise DataError(f"{name} must be >= 1, got {value}")


def seen(kind: str) -> str:
    """Return the name of the table of all facts of a signature, with their scores."""
    return f"seen_{kind}"


def _delta(kind: str) -> str:
    return f"delta_{kind}"


class Chaining:
    """Applies a program round by round until nothing is new or a limit is met; ``note`` then says which."""

    def __init__(
        self, program: Program, engine: SQLEngine, how: Aggregation, limits: Limits, progress: Progress | None = None
    ) -> None:
        self.program, self.engine, self.how, self.limits = program, engine, how, limits
        self.rounds, self.note, self.overflowed = 0, "", False
        self._progress = progress or (lambda done, total: None)
        self._kinds = sorted({signature(each) for each in program.kb.predicates.values()})
        self._rows = 0
        once = limits.max_rounds == 1
        levels = [[*range(len(program.derivations))]] if once else strata(program.derivations)
        self._strata = [
            batches([(place, program.derivations[place]) for place in each], program.kb, engine) for each in levels
        ]
        used = {name for stratum in self._strata for batch in stratum for each in batch.predicates for name in each}
        self._derived = {str(each.head.predicate) for each in program.derivations}
        self._chains = len(self._strata) > 1 or bool(used & self._derived)
        self._keep = bool(program.constraints) or (self._chains and not once)
        self._heads = sorted({batch.signature(program.kb) for stratum in self._strata for batch in stratum})

    def run(self) -> None:
        """Chain all strata."""
        self._create()
        for number, stratum in enumerate(self._strata):
            if not self._settle(stratum, first=number == 0):
                return
        if self.limits.max_rounds == 1 and self._chains and self._rows:
            self.note = "every rule was applied once; a further round may give more"

    def _create(self) -> None:
        for kind in self._heads:
            self._make(f"given_{kind}", f"{_columns(kind)}, n INTEGER, s DOUBLE, k INTEGER")
        for kind in self._kinds if self._keep else ():
            self._make(seen(kind), f"{_columns(kind)}, s DOUBLE")
            self._make(_delta(kind), f"{_columns(kind)}, s DOUBLE")
            key = ", ".join(["p", *places(kind)])
            self.engine.run(f"INSERT INTO {seen(kind)} SELECT {key}, 1.0 FROM {table_name(kind)}")

    def _make(self, table: str, columns: str) -> None:
        self.engine.run(f"DROP TABLE IF EXISTS {table}")
        self.engine.run(f"CREATE TABLE {table} ({columns})")

    def _settle(self, stratum: Sequence[Batch], *, first: bool) -> bool:
        """Run rounds over one stratum; returns False where a limit ended them."""
        changed: set[str] | None = None
        while True:
            work = list(self._work(stratum, changed))
            if not work:
                break
            if self.limits.max_rounds is not None and self.rounds >= self.limits.max_rounds:
                self.note = f"stopped after {self.rounds} rounds; a further round may give more"
                return False
            before = self._rows
            for done, (batch, delta, rules) in enumerate(work):
                self._progress(done, len(work))
                self._add(batch, delta, rules, known=first and changed is None)
                if self._rows > self.limits.max_facts and self.facts() > self.limits.max_facts:
                    self.rounds += 1
                    self.overflowed = True
                    self.note = f"stopped in round {self.rounds} at max_facts={self.limits.max_facts:,}; there are more"
                    return False
            self._progress(len(work), len(work))
            self.rounds += self._rows > before
            if not self._keep or self._rows == before:
                break
            changed = self._merge()
            if self.limits.max_rounds == 1:
                break
        if self.how == "noisy-or" and self._keep:
            for kind in self._heads:
                self.engine.run(f"DELETE FROM {seen(kind)} WHERE s < {self.limits.min_score!r}")
        return True

    def _work(
        self, stratum: Sequence[Batch], changed: set[str] | None
    ) -> Iterator[tuple[Batch, int | None, range | None]]:
        """Yield the statements of a round: a batch, which of its atoms must be new (none in the first), which rules.

        Many new facts are met by few rules at once, so that the limit on facts is looked at in time.
        """
        step = max(_FEWEST, _MEETINGS // max(1, self._rows))
        for batch in stratum:
            if changed is None:
                yield batch, None, None
                continue
            for place, names in enumerate(batch.predicates):
                if names & changed:
                    count = len(batch.derivations)
                    yield from ((batch, place, range(low, low + step)) for low in range(0, count, step))

    def _add(self, batch: Batch, delta: int | None, rules: range | None, *, known: bool) -> None:
        """Add what some rules give; with ``known`` from the known facts alone, whose scores are 1."""
        kb, kind = self.program.kb, batch.signature(self.program.kb)
        count = len(batch.predicates)
        tables = None if known else [_delta if place == delta else seen for place in range(count)]
        join = batch.join(kb, tables, None if known else seen)
        if rules is not None:
            join.conditions.append(f"r.i >= {rules.start} AND r.i < {rules.stop}")
        head = batch.head_places(join)
        score = " * ".join(["r.s", *([] if known else [f"t{place + 1}.s" for place in range(count)])])
        names = ["p", *places(kind)]
        listed = ", ".join(f"{place} AS {name}" for place, name in zip(head, names, strict=True))
        inner = join.select(f"{listed}, r.n AS n, {score} AS s")
        key = ", ".join(names)
        best = f"SELECT {key}, n, MAX(s), {self.rounds + 1} FROM ({inner}) AS found"
        where = " AND ".join(["1 = 1", *self._new(kind)])
        self.engine.run(f"INSERT INTO given_{kind} {best} WHERE {where} GROUP BY {key}, n")
        self._rows = sum(self._count(f"given_{each}") for each in self._heads)

    def _new(self, kind: str) -> list[str]:
        """Return the conditions for a grounding to say something new: its head is not known, nor observed false."""
        decided = ["p", *places(kind.removesuffix("c"))]  # whatever its class, an atom with a class is known
        conditions = [
            _absent(table_name(kind, truth=truth), decided)
            for truth in (True, False)
            if kind in self.program.kb.tables(truth=truth)
        ]
        if self.how == "max":
            if self.limits.min_score > 0:
                conditions.append(f"found.s >= {self.limits.min_score!r}")
            if self.rounds:
                conditions.append(_absent(f"given_{kind}", ["p", *places(kind), "n"], "o.s >= found.s"))
        elif self.rounds and self._keep:
            conditions.append(_absent(seen(kind), ["p", *places(kind)]))
        return conditions

    def _merge(self) -> set[str]:
        """Take up what a round has given; returns the predicates with new or better facts."""
        changed: set[str] = set()
        names = list(self.program.kb.predicates)
        for kind in self._heads:
            key = ", ".join(["p", *places(kind)])
            each = f"SELECT {key}, n, MAX(s) AS s FROM given_{kind} WHERE k = {self.rounds} GROUP BY {key}, n"
            fact = f"SELECT {key}, {_combined(self.how)} AS s FROM ({each}) AS given GROUP BY {key}"
            better = _absent(seen(kind), ["p", *places(kind)], "o.s >= found.s")
            self.engine.run(f"DELETE FROM {_delta(kind)}")
            self.engine.run(f"INSERT INTO {_delta(kind)} SELECT {key}, s FROM ({fact}) AS found WHERE {better}")
            self.engine.run(f"INSERT INTO {seen(kind)} SELECT {key}, s FROM {_delta(kind)}")
            changed |= {names[int(p)] for p in self.engine.run(f"SELECT DISTINCT p FROM {_delta(kind)}")["p"]}
        return changed

    def _count(self, table: str) -> int:
        return int(self.engine.run(f"SELECT COUNT(*) AS n FROM {table}")["n"][0])

    def facts(self) -> int:
        """Return the number of new facts so far."""
        return sum(
            self._count(f"(SELECT DISTINCT p, {', '.join(places(kind))} FROM given_{kind}) AS facts")
            for kind in self._heads
        )

    def given(self) -> Iterator[tuple[str, dict[str, Column]]]:
        """Yield for each signature all that was given, in order of facts and numbers."""
        for kind in self._heads:
            yield kind, self.engine.run(f"SELECT * FROM given_{kind} ORDER BY p, {', '.join(places(kind))}, n")

    def broken(self, constraint: Constraint) -> int:
        """Count the groundings of all facts that break a constraint."""
        try:
            return _broken(constraint, self.program, self.engine)
        except DataError as error:
            raise DataError(f"{error} — in: {constraint.formula}") from None


def _broken(constraint: Constraint, program: Program, engine: SQLEngine) -> int:
    join = Join(program.kb)
    for unit in positive_atoms(constraint.body):
        join.add(unit, seen)
    for literal in constraint.body:
        if isinstance(literal.unit, Comparison):
            join.conditions.append(join.comparison(literal.unit if literal.positive else literal.unit.opposite()))
        elif not literal.positive:
            join.conditions.append(join.absent(literal.unit, table=seen))
    # a fact whose score was bettered stands in the table more than once
    listed = ", ".join(f"{place} AS v{number}" for number, place in enumerate(join.places.values())) or "1 AS one"
    return int(engine.run(f"SELECT COUNT(*) AS n FROM ({join.select(f'DISTINCT {listed}')}) AS broken")["n"][0])


def places(kind: str) -> list[str]:
    """Return the names of the columns that hold the arguments of a signature."""
    return [f"a{place}" for place in range(len(kind))]


def _columns(kind: str) -> str:
    types = [f"a{place} {'DOUBLE' if each == 'n' else 'INTEGER'}" for place, each in enumerate(kind)]
    return ", ".join(["p INTEGER", *types])


def _absent(table: str, names: Sequence[str], *conditions: str) -> str:
    where = " AND ".join([*(f"o.{name} = found.{name}" for name in names), *conditions])
    return f"NOT EXISTS (SELECT 1 FROM {table} AS o WHERE {where})"


def _combined(how: Aggregation) -> str:
    """Return the score of a fact from the scores of its rules; what is certain counts as e^-1000 of doubt."""
    if how == "max":
        return "MAX(s)"
    return "1 - EXP(SUM(CASE WHEN s >= 1 THEN -1000 ELSE LN(1 - s) END))"


def apply(
    rules: RuleSet | Rule | Iterable[Rule],
    kb: KnowledgeBase,
    *,
    aggregation: Aggregation = "max",
    min_score: float = 0.0,
    max_rounds: int | None = None,
    max_facts: int = 10_000_000,
    memory_limit: str | None = None,
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
    if aggregation not in ("max", "noisy-or"):
        raise DataError(f"aggregation must be 'max' or 'noisy-or', got {aggregation!r}")
    limits = Limits(min_score, max_rounds, max_facts)
    program = Program.of(rules, kb)
    with Engine(program.kb, memory_limit=memory_limit) as engine:
        chaining = Chaining(program, engine, aggregation, limits, progress)
        chaining.run()
        counts = [(each.formula, chaining.broken(each)) for each in program.constraints]
        found = derived(program.kb, chaining.given(), aggregation, min_score=min_score, max_facts=max_facts)
    violations = [Violation(formula, count) for formula, count in counts if count]
    return Inferred(program.kb, program.sources, found, violations, rounds=chaining.rounds, note=chaining.note)
