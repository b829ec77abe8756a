"""Rules read off attentions: crisp choices, simplified to alternatives of conjunctions, and written as rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from rulewright.data.index import Ids
from rulewright.learn.nlil.facts import ANYTHING, IDENTITY, Hidden, Mask, Vocabulary
from rulewright.learn.nlil.frontier import Attentions, Evidence, Hop, Reach, Statements
from rulewright.logic import Annotations, Atom, Formula, Not, Rule, Variable

Path = tuple[int, ...]


@dataclass(frozen=True, order=True)
class Literal:
    """A statement whose arguments are reached by paths of operators; None where it has no such argument."""

    statement: int
    left: Path | None
    right: Path | None

    @property
    def length(self) -> int:
        """How many atoms it takes to write."""
        return len(self.left or ()) + len(self.right or ()) + 1


def normal(literal: Literal, vocabulary: Vocabulary, numbers: Statements) -> Literal:
    """Leave out operators that do nothing: staying, and asking twice for a mark.

    >>> vocabulary = Vocabulary(("succ",), ("even",))  # operators: 1 succ, 2 its inverse, 3 is even
    >>> normal(Literal(0, (0, 1, 3, 0, 3), None), vocabulary, Statements(1, 2, 2))
    Literal(statement=1, left=(1,), right=None)
    """
    filters = vocabulary.filter(1)

    def short(path: Path | None) -> Path | None:
        if path is None:
            return None
        found: list[int] = []
        for operator in path:
            if operator != IDENTITY and operator not in _ending(found, filters):
                found.append(operator)
                tail = len(found) - len(_ending(found, filters))
                found[tail:] = sorted(found[tail:])
        return tuple(found)

    left, right = short(literal.left), short(literal.right)
    kind, mark = numbers.kind(literal.statement)
    if kind == "step":
        return Literal(literal.statement, left, right)
    side = 0 if kind == "left" else 1
    path = (left, right)[side]
    assert path is not None
    marks = _ending(list(path), filters)
    if mark == ANYTHING and marks:
        mark = marks[-1] - filters + 1
    if mark != ANYTHING and filters + mark - 1 in marks:
        path = (*path[: len(path) - len(marks)], *(each for each in marks if each != filters + mark - 1))
    return Literal(numbers.about(side, mark), *((path, None) if side == 0 else (None, path)))


def _ending(path: list[int], filters: int) -> list[int]:
    """Return the filters at the end of a path."""
    start = len(path)
    while start and path[start - 1] >= filters:
        start -= 1
    return path[start:]


class Holding:
    """Finds the questions of a batch of which literals hold, by walking their paths over its evidence."""

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self._hops = [[_by_operator(hop) for hop in frontier.hops] for frontier in evidence.frontiers]
        self._terms = [
            (term, np.argsort(term.statement, kind="stable"), np.sort(term.statement)) for term in evidence.terms
        ]
        self._reached: dict[tuple[int, Path], Mask] = {}

    def reached(self, side: int, path: Path) -> Mask:
        """Return which nodes a path reaches."""
        key = (side, path)
        if key not in self._reached:
            rows = self._evidence.frontiers[side].rows
            if not path:
                self._reached[key] = np.ones(len(rows[0]), dtype=bool)
            else:
                before = self.reached(side, path[:-1])
                source, target, operator = self._hops[side][len(path) - 1]
                part = slice(*np.searchsorted(operator, [path[-1], path[-1] + 1]))
                after = np.zeros(len(rows[len(path)]), dtype=bool)
                after[target[part][before[source[part]]]] = True
                self._reached[key] = after
        return self._reached[key]

    def rows(self, literal: Literal) -> Ids:
        """Return the questions of which a literal holds, sorted."""
        found = []
        for term, order, ordered in self._terms:
            if not (_fits(term.left, literal.left) and _fits(term.right, literal.right)):
                continue
            chosen = order[slice(*np.searchsorted(ordered, [literal.statement, literal.statement + 1]))]
            keep = np.ones(len(chosen), dtype=bool)
            for side, (place, path) in enumerate(((term.left, literal.left), (term.right, literal.right))):
                if place is not None and path is not None:
                    keep &= self.reached(side, path)[place[1][chosen]]
            found.append(self._evidence.row[term.pair[chosen[keep]]])
        return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *found]))


def _fits(place: tuple[int, Ids] | None, path: Path | None) -> bool:
    return (place is None) == (path is None) and (place is None or path is None or place[0] == len(path))


def _by_operator(hop: Hop) -> tuple[Ids, Ids, Ids]:
    order = np.argsort(hop.operator, kind="stable")
    return hop.source[order], hop.target[order], hop.operator[order]


def rows_where(
    literals: Iterable[Literal], reach: Reach, arguments: Sequence[Ids], hidden: Hidden, *, block: int = 4096
) -> dict[Literal, Ids]:
    """Return for each literal the questions of which it holds, each without its hidden facts."""
    wanted = list(dict.fromkeys(literals))
    found: dict[Literal, list[Ids]] = {each: [] for each in wanted}
    for low in range(0, len(arguments[0]), block):
        columns = [column[low : low + block] for column in arguments]
        holding = Holding(reach.evidence(columns, hidden))
        for each in wanted:
            found[each].append(holding.rows(each) + low)
    empty = np.zeros(0, dtype=np.int64)
    return {each: np.concatenate([empty, *rows]) for each, rows in found.items()}


Conjunction = frozenset[tuple[Literal, bool]]
Alternatives = frozenset[Conjunction]
Pick = Callable[[npt.NDArray[np.float64]], int]

FALSE: Alternatives = frozenset()
TRUE: Alternatives = frozenset([frozenset()])
MOST_ALTERNATIVES = 32


def likeliest(distribution: npt.NDArray[np.float64]) -> int:
    """Choose the most probable."""
    return int(np.argmax(distribution))


def drawn(random: np.random.Generator) -> Pick:
    """Return a choice by chance, as probable as the distribution says."""

    def pick(distribution: npt.NDArray[np.float64]) -> int:
        ends = np.cumsum(distribution)
        return int(np.searchsorted(ends, random.random() * ends[-1], side="right").clip(0, len(ends) - 1))

    return pick


class Reader:
    """Reads the crisp rules of attentions over one vocabulary; what is hidden can never be true."""

    def __init__(self, vocabulary: Vocabulary, numbers: Statements, hidden: Hidden) -> None:
        self.vocabulary, self.numbers, self.hidden = vocabulary, numbers, hidden

    def read(self, attentions: Attentions, pick: Callable[[], Pick]) -> list[Alternatives]:
        """Return the rule of each group as alternatives; ``pick`` makes a new way to choose for each group."""
        plain = _Plain.of(attentions)
        return [_Choice(self, plain, group, pick()).output() for group in range(attentions.groups)]

    def literal(self, statement: int, left: Path, right: Path) -> Alternatives:
        """Return a literal, or what it amounts to where it is always true or always false."""
        kind, mark = self.numbers.kind(statement)
        found = normal(
            Literal(statement, left if kind != "right" else None, right if kind != "left" else None),
            self.vocabulary,
            self.numbers,
        )
        _, mark = self.numbers.kind(found.statement)
        path = found.left if found.left is not None else found.right
        assert path is not None
        if kind == "step":
            # the step asked about, from one argument to the other, is hidden from itself
            own = self.hidden.step is not None and mark == self.hidden.step and not found.left and not found.right
            return FALSE if own else frozenset([frozenset([(found, True)])])
        if mark == ANYTHING and not path:
            return TRUE
        starts = {self.vocabulary.filter(each) for each in self.hidden.marks}
        own = path[0] in starts if path else mark in self.hidden.marks
        return FALSE if kind == "left" and own else frozenset([frozenset([(found, True)])])


@dataclass(frozen=True)
class _Plain:
    operators: npt.NDArray[np.float64]
    first: npt.NDArray[np.float64]
    second: npt.NDArray[np.float64] | None
    levels: tuple[tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]], ...]
    output: npt.NDArray[np.float64]

    @classmethod
    def of(cls, attentions: Attentions) -> _Plain:
        return cls(
            attentions.operators.detach().double().numpy(),
            attentions.first.detach().double().numpy(),
            None if attentions.second is None else attentions.second.detach().double().numpy(),
            tuple((one.detach().double().numpy(), two.detach().double().numpy()) for one, two in attentions.levels),
            attentions.output.detach().double().numpy(),
        )


class _Choice:
    """One crisp choice of every attention of a group, made when it is first needed and then kept."""

    def __init__(self, reader: Reader, plain: _Plain, group: int, pick: Pick) -> None:
        self._reader, self._plain, self._group, self._pick = reader, plain, group, pick
        self._made: dict[tuple[object, ...], int] = {}

    def _chosen(self, key: tuple[object, ...], distribution: npt.NDArray[np.float64]) -> int:
        if key not in self._made:
            self._made[key] = self._pick(distribution)
        return self._made[key]

    def output(self) -> Alternatives:
        place = self._chosen(("output",), self._plain.output[self._group])
        statements = self._plain.first.shape[1]
        if place < statements:
            return self._statement(place)
        level, number = divmod(place - statements, self._plain.levels[0][0].shape[1])
        return self._formula(level, number)

    def _formula(self, level: int, number: int) -> Alternatives:
        sides = []
        for side, attention in enumerate(self._plain.levels[level]):
            distribution = attention[self._group, number]
            place = self._chosen(("level", level, number, side), distribution)
            below = len(distribution) // 2
            formula = self._statement(place % below) if level == 0 else self._formula(level - 1, place % below)
            sides.append(negated(formula) if place >= below else formula)
        return both(*sides)

    def _statement(self, statement: int) -> Alternatives:
        left = self._path("first", self._plain.first, statement)
        right = () if self._plain.second is None else self._path("second", self._plain.second, statement)
        return self._reader.literal(statement, left, right)

    def _path(self, name: str, attention: npt.NDArray[np.float64], statement: int) -> Path:
        place = self._chosen((name, statement), attention[self._group, statement])
        if place == 0:
            return ()
        steps, chain = divmod(place - 1, self._plain.operators.shape[1])
        operators = self._plain.operators[self._group, chain]
        return tuple(self._chosen(("operator", chain, step), operators[step]) for step in range(steps + 1))


def both(one: Alternatives, other: Alternatives) -> Alternatives:
    """Return the conjunction of two formulas, simplified."""
    return simplified(a | b for a in one for b in other)


def negated(formula: Alternatives) -> Alternatives:
    """Return the complement of a formula, simplified."""
    parts = [
        frozenset(frozenset([(literal, not positive)]) for literal, positive in alternative) for alternative in formula
    ]
    return reduce(both, parts, TRUE)


def simplified(alternatives: Iterable[Conjunction]) -> Alternatives:
    """Leave out contradictions, what another literal implies, and alternatives that another one covers."""
    kept = {_without_implied(each) for each in alternatives if not any((x, not sign) in each for x, sign in each)}
    smallest = [each for each in kept if not any(other < each for other in kept)]
    return frozenset(sorted(smallest, key=lambda each: (len(each), sorted(each, key=repr)))[:MOST_ALTERNATIVES])


def _without_implied(conjunction: Conjunction) -> Conjunction:
    """Leave out that a path leads anywhere where another literal says that it leads further or to what."""

    def implied(literal: Literal) -> bool:
        return any(
            other != literal
            and positive
            and all(
                mine is None or (theirs is not None and theirs[: len(mine)] == mine)
                for mine, theirs in ((literal.left, other.left), (literal.right, other.right))
            )
            for other, positive in conjunction
        )

    return frozenset(
        (literal, positive)
        for literal, positive in conjunction
        if not (positive and _leads_anywhere(literal) and implied(literal))
    )


def _leads_anywhere(literal: Literal) -> bool:
    return literal.statement == ANYTHING and literal.right is None


def rows_of(conjunction: Conjunction, holds: Mapping[Literal, Ids], questions: int) -> Ids:
    """Return the questions of which a conjunction holds, given those of its literals."""
    found = np.ones(questions, dtype=bool)
    for literal, positive in conjunction:
        mine = np.zeros(questions, dtype=bool)
        mine[holds[literal]] = True
        found &= mine if positive else ~mine
    return np.flatnonzero(found)


def length(conjunction: Conjunction) -> int:
    """Return how many atoms a conjunction has."""
    return sum(literal.length for literal, _ in conjunction)


class Writer:
    """Writes conjunctions as rules for a target."""

    def __init__(self, target: str, vocabulary: Vocabulary, numbers: Statements) -> None:
        self.target, self.vocabulary, self.numbers = target, vocabulary, numbers
        self.head = tuple(Variable(name) for name in ("X", "Y")[: numbers.arity])

    def why_not(self, conjunction: Conjunction) -> str | None:
        """Return why a conjunction is no rule of the common language, or None where it is one."""
        if not conjunction:
            return "always true"
        bound = set()
        for literal, positive in conjunction:
            if positive:
                bound |= {side for side, path in enumerate((literal.left, literal.right)) if path is not None}
            elif literal.left or literal.right or self.numbers.kind(literal.statement)[1] == ANYTHING:
                return "says that something does not exist"
        return None if len(bound) == self.numbers.arity else "leaves an argument free"

    def rule(self, conjunction: Conjunction, confidence: float = 1.0, **annotations: object) -> Rule:
        """Write a conjunction; its variables are numbered in the order in which they come."""
        fresh = (Variable(f"Z{number}") for number in range(1, 1 + sum(map(_new_variables, conjunction))))
        body: list[Formula] = []
        for literal, positive in sorted(conjunction, key=lambda each: (not each[1], each[0].length, repr(each))):
            atoms = self._atoms(literal, fresh)
            body += atoms if positive else [Not(each) for each in atoms]
        return Rule(
            Atom(self.target, self.head), tuple(dict.fromkeys(body)), confidence, Annotations(dict(annotations))
        )

    def _atoms(self, literal: Literal, fresh: Iterable[Variable]) -> list[Formula]:
        names = iter(fresh)
        found: list[Formula] = []
        ends: list[Variable | None] = []
        for side, path in enumerate((literal.left, literal.right)):
            at: Variable | None = None if path is None else self.head[side]
            for operator in path or ():
                assert at is not None
                if operator >= self.vocabulary.filter(1):
                    found.append(Atom(self.vocabulary.unary[operator - self.vocabulary.filter(1)], (at,)))
                    continue
                after = next(names)
                found.append(self._step(operator, at, after))
                at = after
            ends.append(at)
        kind, number = self.numbers.kind(literal.statement)
        if kind == "step":
            assert ends[0] is not None
            assert ends[1] is not None
            return [*found, self._step(number, ends[0], ends[1])]
        end = ends[0] if kind == "left" else ends[1]
        assert end is not None
        return found if number == ANYTHING else [*found, Atom(self.vocabulary.unary[number - 1], (end,))]

    def _step(self, operator: int, before: Variable, after: Variable) -> Atom:
        relation, inverse = divmod(operator - 1, 2)
        return Atom(self.vocabulary.binary[relation], (after, before) if inverse else (before, after))


def _new_variables(signed: tuple[Literal, bool]) -> int:
    return len(signed[0].left or ()) + len(signed[0].right or ())
