"""Rules read off attentions: crisp choices, simplified to alternatives of conjunctions, matched and written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from rulewright.data.index import Ids
from rulewright.learn.nlil.facts import (
    ANYTHING,
    IDENTITY,
    HiddenFacts,
    Mask,
    StatementCodes,
    Vocabulary,
    step_of_operator,
)
from rulewright.learn.nlil.frontier import EvidenceBuilder, QuestionEvidence, ReachedNodes
from rulewright.learn.nlil.questions import LearningTask
from rulewright.logic import Annotations, Atom, Formula, Not, Rule, Variable
from rulewright.logic.chain import decode_path, is_inverse, path_atoms, step_relation

OperatorPath = tuple[int, ...]


@dataclass(frozen=True, order=True)
class PathLiteral:
    """A statement whose arguments are reached by paths of operators; None where it has no such argument."""

    statement: int
    left: OperatorPath | None
    right: OperatorPath | None

    @property
    def paths(self) -> tuple[OperatorPath | None, OperatorPath | None]:
        """The paths from the first and from the second argument."""
        return self.left, self.right

    @property
    def operators(self) -> OperatorPath:
        """All operators of both paths."""
        return (*(self.left or ()), *(self.right or ()))

    @property
    def is_joining(self) -> bool:
        """Whether it joins the two arguments."""
        return self.left is not None and self.right is not None

    def joined_path(self, codes: StatementCodes) -> OperatorPath:
        """Return the path from the first argument to the second: its own, the statement, and the second's backwards.

        >>> codes = StatementCodes(2, Vocabulary(("p", "q"), ("a",)))  # operators 1 to 4 are steps, 5 is a filter
        >>> PathLiteral(0, (3,), (2, 5)).joined_path(codes)
        (3, 1, 5, 1)
        """
        assert self.left is not None
        assert self.right is not None
        _, operator = codes.decode(self.statement)
        return (*self.left, operator, *map(codes.vocabulary.invert_operator, reversed(self.right)))


Conjunction = frozenset[tuple[PathLiteral, bool]]
"""Literals, each with whether it is positive."""
Alternatives = frozenset[Conjunction]

FALSE: Alternatives = frozenset()
TRUE: Alternatives = frozenset([frozenset()])
MOST_ALTERNATIVES = 32


def count_atoms(conjunction: Conjunction) -> int:
    """Return how many atoms it takes to write a conjunction."""
    return sum(1 + len(literal.operators) for literal, _ in conjunction)


def uses_target(literal: PathLiteral, name: str, codes: StatementCodes) -> bool:
    """Return whether a literal uses facts of a target itself.

    >>> codes = StatementCodes(1, Vocabulary(("succ",), ("even", "zero")))
    >>> uses_target(PathLiteral(1, (2, 2), None), "even", codes), uses_target(PathLiteral(2, (), None), "even", codes)
    (True, False)
    """
    operators, statements = codes.of_target(name)
    return literal.statement in statements or not set(operators).isdisjoint(literal.operators)


def normalize(literal: PathLiteral, codes: StatementCodes) -> PathLiteral:
    """Leave out operators that do nothing: staying, and filtering twice by a mark.

    >>> codes = StatementCodes(1, Vocabulary(("succ",), ("even",)))  # operators: 1 succ, 2 its inverse, 3 is even
    >>> normalize(PathLiteral(0, (0, 1, 3, 0, 3), None), codes)
    PathLiteral(statement=1, left=(1,), right=None)
    """
    vocabulary = codes.vocabulary

    def shorten(path: OperatorPath | None) -> OperatorPath | None:
        if path is None:
            return None
        kept: OperatorPath = ()
        for operator in path:
            filters = _trailing_filters(kept, vocabulary)
            if operator != IDENTITY and operator not in filters:
                kept = (*kept, operator)
                if vocabulary.is_filter(operator):
                    kept = (*kept[: len(kept) - 1 - len(filters)], *sorted((*filters, operator)))
        return kept

    left, right = shorten(literal.left), shorten(literal.right)
    form, mark = codes.decode(literal.statement)
    if form == "step":
        return PathLiteral(literal.statement, left, right)
    path = left if form == "left" else right
    assert path is not None
    filters = _trailing_filters(path, vocabulary)
    if mark == ANYTHING and filters:
        mark = vocabulary.filter_mark(filters[-1])
    if mark != ANYTHING and vocabulary.filter_operator(mark) in filters:
        others = (operator for operator in filters if operator != vocabulary.filter_operator(mark))
        path = (*path[: len(path) - len(filters)], *others)
    if form == "left":
        return PathLiteral(codes.mark_statement(0, mark), path, None)
    return PathLiteral(codes.mark_statement(1, mark), None, path)


def drop_filters(literal: PathLiteral, codes: StatementCodes) -> list[PathLiteral]:
    """Return a literal with one of its filters left out, in all ways.

    >>> codes = StatementCodes(1, Vocabulary(("succ",), ("even", "odd")))  # 1 and 2 are steps, 3 and 4 filters
    >>> drop_filters(PathLiteral(1, (4, 1), None), codes)
    [PathLiteral(statement=1, left=(1,), right=None)]
    """

    def without(path: OperatorPath | None) -> list[OperatorPath]:
        positions = [place for place, operator in enumerate(path or ()) if codes.vocabulary.is_filter(operator)]
        return [(path or ())[:place] + (path or ())[place + 1 :] for place in positions]

    return [
        *(PathLiteral(literal.statement, path, literal.right) for path in without(literal.left)),
        *(PathLiteral(literal.statement, literal.left, path) for path in without(literal.right)),
    ]


def _trailing_filters(path: OperatorPath, vocabulary: Vocabulary) -> OperatorPath:
    """Return the filters at the end of a path."""
    start = len(path)
    while start and vocabulary.is_filter(path[start - 1]):
        start -= 1
    return path[start:]


# Reading


class RuleReader:
    """Reads crisp choices over one vocabulary as literals; what is hidden can never be true."""

    def __init__(self, codes: StatementCodes, hidden: HiddenFacts) -> None:
        self.codes, self.hidden = codes, hidden

    def make_literal(self, statement: int, left: OperatorPath, right: OperatorPath) -> Alternatives:
        """Return a literal, or TRUE or FALSE where it is always true or always false."""
        form, _ = self.codes.decode(statement)
        literal = normalize(
            PathLiteral(statement, left if form != "right" else None, right if form != "left" else None), self.codes
        )
        _, code = self.codes.decode(literal.statement)
        if form == "step":
            # the step that the question is about, from one argument to the other, is hidden from it
            is_hidden = step_of_operator(code) == self.hidden.step and not literal.operators
        elif code == ANYTHING and not literal.operators:
            return TRUE
        elif literal.operators:
            filters = map(self.codes.vocabulary.filter_operator, self.hidden.marks)
            is_hidden = form == "left" and literal.operators[0] in filters
        else:
            is_hidden = form == "left" and code in self.hidden.marks
        return FALSE if is_hidden else frozenset([frozenset([(literal, True)])])


def conjoin(one: Alternatives, other: Alternatives) -> Alternatives:
    """Return the conjunction of two formulas, simplified.

    Contradictions are left out, and what another literal implies, and alternatives that another one covers.
    """
    both = (a | b for a in one for b in other)
    kept = {_drop_implied(part) for part in both if not any((x, not positive) in part for x, positive in part)}
    smallest = [part for part in kept if not any(other < part for other in kept)]
    return frozenset(sorted(smallest, key=lambda part: (len(part), sorted(part, key=repr)))[:MOST_ALTERNATIVES])


def negate(formula: Alternatives) -> Alternatives:
    """Return the complement of a formula, simplified."""
    parts = [
        frozenset(frozenset([(literal, not positive)]) for literal, positive in alternative) for alternative in formula
    ]
    return reduce(conjoin, parts, TRUE)


def _drop_implied(conjunction: Conjunction) -> Conjunction:
    """Leave out that a path leads anywhere where another literal says that it leads further or to what."""

    def is_implied(literal: PathLiteral) -> bool:
        return any(
            other != literal
            and positive
            and all(
                path is None or (other_path is not None and other_path[: len(path)] == path)
                for path, other_path in zip(literal.paths, other.paths, strict=True)
            )
            for other, positive in conjunction
        )

    return frozenset(
        (literal, positive)
        for literal, positive in conjunction
        if not (positive and literal.statement == ANYTHING and literal.right is None and is_implied(literal))
    )


# Matching


class LiteralMatcher:
    """Finds the questions of a batch of which literals are true, by walking their paths over its evidence."""

    def __init__(self, evidence: QuestionEvidence) -> None:
        self._evidence = evidence
        self._hops = [[_sort_by(hop.operator, hop.source, hop.target) for hop in f.hops] for f in evidence.frontiers]
        self._orders = [np.argsort(term.statement, kind="stable") for term in evidence.terms]
        self._reached: dict[tuple[int, OperatorPath], Mask] = {}

    def _reach(self, side: int, path: OperatorPath) -> Mask:
        """Return which nodes a path reaches."""
        key = (side, path)
        if key not in self._reached:
            rows = self._evidence.frontiers[side].rows
            reached = np.zeros(len(rows[len(path)]), dtype=bool)
            if not path:
                reached[:] = True
            else:
                operator, source, target = self._hops[side][len(path) - 1]
                part = slice(*np.searchsorted(operator, [path[-1], path[-1] + 1]))
                reached[target[part][self._reach(side, path[:-1])[source[part]]]] = True
            self._reached[key] = reached
        return self._reached[key]

    def match(self, literal: PathLiteral) -> Ids:
        """Return the questions of which a literal is true, sorted."""
        rows = []
        for term, order in zip(self._evidence.terms, self._orders, strict=True):
            sides = [(reached, path) for reached, path in zip((term.left, term.right), literal.paths, strict=True)]
            if not all(_fits(reached, path) for reached, path in sides):
                continue
            bounds = np.searchsorted(term.statement, [literal.statement, literal.statement + 1], sorter=order)
            chosen = order[slice(*bounds)]
            keep = np.ones(len(chosen), dtype=bool)
            for side, (reached, path) in enumerate(sides):
                if reached is not None and path is not None:
                    keep &= self._reach(side, path)[reached[1][chosen]]
            rows.append(self._evidence.row[term.pair[chosen[keep]]])
        return np.unique(np.concatenate([np.zeros(0, dtype=np.int64), *rows]))


def _fits(reached: ReachedNodes, path: OperatorPath | None) -> bool:
    return path is None if reached is None else path is not None and reached[0] == len(path)


def _sort_by(key: Ids, *columns: Ids) -> tuple[Ids, ...]:
    order = np.argsort(key, kind="stable")
    return key[order], *(column[order] for column in columns)


def match_literals(
    literals: Iterable[PathLiteral],
    builder: EvidenceBuilder,
    arguments: Sequence[Ids],
    hidden: HiddenFacts,
    *,
    block: int = 4096,
) -> dict[PathLiteral, Ids]:
    """Return for each literal the questions of which it is true, each without its hidden facts."""
    rows: dict[PathLiteral, list[Ids]] = {literal: [np.zeros(0, dtype=np.int64)] for literal in literals}
    for low in range(0, len(arguments[0]), block):
        matcher = LiteralMatcher(builder.build([column[low : low + block] for column in arguments], hidden))
        for literal, matched in rows.items():
            matched.append(matcher.match(literal) + low)
    return {literal: np.concatenate(matched) for literal, matched in rows.items()}


def match_conjunctions(
    conjunctions: Iterable[Conjunction],
    task: LearningTask,
    arguments: Sequence[Ids],
    *,
    block: int = 4096,
    most: int | None = None,
    seed: int = 0,
) -> dict[Conjunction, Ids]:
    """Return for each conjunction the questions of which it is true, each without its hidden facts.

    At most ``most`` steps are followed from one entity, drawn by the seed (None: all).
    """
    bodies = dict.fromkeys(conjunctions)
    literals = dict.fromkeys(literal for body in bodies for literal, _ in body)
    operators = np.zeros(task.graph.vocabulary.n_operators, dtype=bool)
    statements = np.zeros(len(StatementCodes(task.arity, task.graph.vocabulary)), dtype=bool)
    longest = 0
    for literal in literals:
        statements[literal.statement] = True
        operators[list(literal.operators)] = True
        longest = max(longest, *(len(path or ()) for path in literal.paths))
    builder = EvidenceBuilder(
        task.graph,
        steps=longest,
        arity=task.arity,
        operators=operators,
        statements=statements,
        most=most,
        seed=seed,
    )
    rows = match_literals(literals, builder, arguments, task.hidden, block=block)
    matched: dict[Conjunction, Ids] = {}
    for body in bodies:
        holds = np.ones(len(arguments[0]), dtype=bool)
        for literal, positive in body:
            is_true = np.zeros(len(holds), dtype=bool)
            is_true[rows[literal]] = True
            holds &= is_true if positive else ~is_true
        matched[body] = np.flatnonzero(holds)
    return matched


# Writing


class RuleWriter:
    """Writes conjunctions as rules for a target.

    That something does *not* exist is written with an auxiliary predicate, which rules of its own define; its name is
    none of ``predicates``.

    >>> codes = StatementCodes(1, Vocabulary(("owns",), ("happy", "rich", "dog")))  # operator 1 owns, statement 3 dog
    >>> body = frozenset([(PathLiteral(2, (), None), True), (PathLiteral(3, (1,), None), False)])
    >>> writer = RuleWriter("happy", codes)
    >>> for rule in (*writer.write_auxiliary(body), writer.write(body)):
    ...     print(rule)
    has_owns_dog(X) :- owns(X, Z1), dog(Z1). @{auxiliary: true}
    happy(X) :- rich(X), !has_owns_dog(X).
    """

    def __init__(self, target: str, codes: StatementCodes, predicates: Collection[str] = ()) -> None:
        self.target, self.codes = target, codes
        self.head = tuple(Variable(name) for name in ("X", "Y")[: codes.arity])
        self.predicates = {*predicates, *codes.vocabulary.binary, *codes.vocabulary.unary}

    def why_not(self, conjunction: Conjunction) -> str | None:
        """Return why a conjunction is no rule, or None where it is one."""
        if not conjunction:
            return "always true"
        bound = set()
        for literal, positive in conjunction:
            if positive:
                bound |= {side for side, path in enumerate(literal.paths) if path is not None}
            elif uses_target(literal, self.target, self.codes):
                return "rests on the absence of its own target"
        if len(bound) < self.codes.arity:
            return "leaves an argument free"
        if self.codes.arity == 2 and not any(literal.is_joining and positive for literal, positive in conjunction):
            return "does not join its arguments"
        return None

    def write(self, conjunction: Conjunction, confidence: float = 1.0, **annotations: object) -> Rule:
        """Write a conjunction; its variables are numbered in the order in which they come."""
        fresh = (Variable(f"Z{position}") for position in range(1, 1 + count_atoms(conjunction)))
        body: list[Formula] = []
        for literal, positive in sorted(
            conjunction, key=lambda signed: (not signed[1], len(signed[0].operators), repr(signed))
        ):
            if positive:
                body += self._write_literal(literal, self.head, fresh)
            elif self._needs_auxiliary(literal):
                body.append(Not(Atom(self._name_auxiliary(literal), self._arguments(literal))))
            else:
                body += map(Not, self._write_literal(literal, self.head, fresh))
        return Rule(
            Atom(self.target, self.head), tuple(dict.fromkeys(body)), confidence, Annotations(dict(annotations))
        )

    def write_auxiliary(self, conjunction: Conjunction) -> list[Rule]:
        """Write the rules that define what a conjunction says does not exist."""
        definitions = []
        for literal in sorted(literal for literal, positive in conjunction if not positive):
            if self._needs_auxiliary(literal):
                fresh = (Variable(f"Z{position}") for position in range(1, 2 + len(literal.operators)))
                # whichever argument it is about, the definition says it of X
                arguments = self.head if literal.is_joining else (self.head[0],) * 2
                body = self._write_literal(literal, arguments, fresh)
                head = Atom(self._name_auxiliary(literal), tuple(dict.fromkeys(arguments)))
                definitions.append(Rule(head, tuple(dict.fromkeys(body)), 1.0, Annotations({"auxiliary": True})))
        return definitions

    def _needs_auxiliary(self, literal: PathLiteral) -> bool:
        """Whether the negation of a literal is more than that of an atom about the arguments."""
        form, code = self.codes.decode(literal.statement)
        return bool(literal.operators) or (form != "step" and code == ANYTHING)

    def _arguments(self, literal: PathLiteral) -> tuple[Variable, ...]:
        return tuple(term for term, path in zip(self.head, literal.paths, strict=False) if path is not None)

    def _name_auxiliary(self, literal: PathLiteral) -> str:
        """Name what a literal says after its predicates: ``has_owns_dog``, ``has_inverse_parent``, ``joins_p_q``."""
        vocabulary = self.codes.vocabulary
        form, code = self.codes.decode(literal.statement)
        operators = literal.joined_path(self.codes) if form == "step" else literal.operators
        if form != "step" and code != ANYTHING:
            operators = (*operators, vocabulary.filter_operator(code))
        names = []
        for operator in operators:
            if vocabulary.is_filter(operator):
                names.append(vocabulary.mark_name(vocabulary.filter_mark(operator)))
            else:
                step = step_of_operator(operator)
                names.append("inverse_" * is_inverse(step) + vocabulary.binary[step_relation(step)])
        has_step = not all(map(vocabulary.is_filter, operators))
        text = "_".join(names)
        name = f"{'joins' if form == 'step' else 'has' if has_step else 'is'}_{text}"
        words = [*vocabulary.binary, *(f"inverse_{word}" for word in vocabulary.binary), *vocabulary.unary]
        if name in self.predicates or count_readings(text, words) > 1:
            name = "_".join([name, *map(str, operators)])
        while name in self.predicates:
            name += "_"
        return name

    def _write_literal(
        self, literal: PathLiteral, arguments: Sequence[Variable], fresh: Iterator[Variable]
    ) -> list[Atom]:
        vocabulary = self.codes.vocabulary
        atoms: list[Atom] = []
        ends: list[Variable] = []
        for path, argument in zip(literal.paths, arguments, strict=False):
            end = argument
            for operator in path or ():
                if vocabulary.is_filter(operator):
                    atoms.append(Atom(vocabulary.mark_name(vocabulary.filter_mark(operator)), (end,)))
                else:
                    before, end = end, next(fresh)
                    atoms += self._write_step(operator, before, end)
            ends.append(end)
        form, code = self.codes.decode(literal.statement)
        if form == "step":
            return [*atoms, *self._write_step(code, ends[0], ends[1])]
        end = ends[0] if form == "left" else ends[1]
        return atoms if code == ANYTHING else [*atoms, Atom(vocabulary.mark_name(code), (end,))]

    def _write_step(self, operator: int, start: Variable, end: Variable) -> tuple[Atom, ...]:
        return path_atoms(decode_path((step_of_operator(operator),), self.codes.vocabulary.binary), start, end)


def count_readings(text: str, words: Collection[str]) -> int:
    """Return in how many ways a text reads as words that underscores join.

    >>> count_readings("parent_of_tall", ["parent_of", "tall"]), count_readings("a_b_c", ["a", "b_c", "a_b", "c"])
    (1, 2)
    """
    readings = [0] * (len(text) + 1)
    for start in reversed(range(len(text))):
        for word in words:
            if text.startswith(word, start):
                end = start + len(word)
                readings[start] += 1 if end == len(text) else readings[end + 1] if text[end] == "_" else 0
    return readings[0]
