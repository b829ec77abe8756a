"""Chains: rules whose body is a path. A step is a relation with its direction, a path a tuple of steps.

By name a step is a `Step`. By index, which is what engines and learners compute with, it is one integer: relation ``r``
walked forwards is ``2 r`` and walked backwards ``2 r + 1``. This file alone knows that code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rulewright.logic.rules import Head, Rule
from rulewright.logic.terms import Atom, Comparison, Formula, Symbol, Term, Variable

if TYPE_CHECKING:
    from numpy.typing import NDArray

Index = TypeVar("Index", int, "NDArray[Any]")
"""One index or a column of them."""

Path = tuple[int, ...]
"""A path by index."""


class Step(NamedTuple):
    """One relation of a path; ``inverse`` where it is walked from its second argument to its first."""

    relation: str
    inverse: bool = False


def encode_step(relation: Index, inverse: Index | bool = False) -> Index:
    """Return the index of a step, given that of its relation; both may be columns.

    >>> encode_step(3), encode_step(3, inverse=True)
    (6, 7)
    """
    return 2 * relation + inverse


def step_relation(step: Index) -> Index:
    """Return the index of the relation that a step walks.

    >>> step_relation(7)
    3
    """
    return step >> 1


def is_inverse(step: Index) -> Index:
    """Return 1 where a step walks its relation backwards, 0 where forwards.

    >>> is_inverse(7)
    1
    """
    return step & 1


def invert_step(step: Index) -> Index:
    """Return the step that walks the same relation the other way.

    >>> invert_step(6), invert_step(7)
    (7, 6)
    """
    return step ^ 1


def write_step(relation: str, *, inverse: bool = False) -> str:
    """Return the SQL for the index of a step, given the column of its relation.

    >>> write_step("fact.p"), write_step("fact.p", inverse=True)
    ('2 * fact.p', '2 * fact.p + 1')
    """
    return f"2 * {relation} + 1" if inverse else f"2 * {relation}"


def write_inverse(step: str) -> str:
    """Return the SQL for the step that walks the same relation the other way.

    >>> write_inverse("p")
    'p + 1 - 2 * (p % 2)'
    """
    return f"{step} + 1 - 2 * ({step} % 2)"


def count_steps(relations: int) -> int:
    """Return how many steps so many relations have: the indices of steps lie below it."""
    return 2 * relations


def mirror_path(path: Path) -> Path:
    """Return a path walked from its other end.

    >>> mirror_path((0, 5))
    (4, 1)
    """
    return tuple(invert_step(step) for step in reversed(path))


def encode_path(steps: Sequence[Step], relation_indices: Mapping[str, int]) -> Path:
    """Return a path by index.

    >>> encode_path([Step("q"), Step("p", inverse=True)], {"p": 0, "q": 1})
    (2, 1)
    """
    return tuple(encode_step(relation_indices[step.relation], step.inverse) for step in steps)


def decode_path(path: Path, relations: Sequence[str]) -> tuple[Step, ...]:
    """Return a path by name.

    >>> decode_path((2, 1), ["p", "q"])
    (Step(relation='q', inverse=False), Step(relation='p', inverse=True))
    """
    return tuple(Step(relations[step_relation(step)], bool(is_inverse(step))) for step in path)


def path_atoms(steps: Sequence[Step], start: Term, end: Term, *, first: int = 1) -> tuple[Atom, ...]:
    """Write a path as atoms that lead from one term to another over the variables V1, V2, …, numbered from ``first``.

    >>> print(*path_atoms([Step("q"), Step("p", inverse=True)], Variable("X"), Symbol("c")))
    q(X, V1) p(c, V1)
    """
    stops: list[Term] = [start, *(Variable(f"V{first + position}") for position in range(len(steps) - 1)), end]
    return tuple(
        Atom(step.relation, (after, before) if step.inverse else (before, after))
        for step, before, after in zip(steps, stops, stops[1:], strict=False)
    )


@dataclass(frozen=True, slots=True)
class Chain:
    """A head whose variables a path of relations joins, or one whose variable begins a path.

    Without constants it is ``head(v0, vn) ← r1(v0, v1) ∧ … ∧ rn(vn-1, vn)``, each relation walked either way. Where the
    head names an entity, ``first`` or ``last``, the path leaves from its variable and comes to the entity ``end``, or
    anywhere: ``head(v0, last) ← … ∧ rn(vn-1, end)``, ``head(first, v0) ← … ∧ rn(vn-1, vn)``.

    >>> from rulewright.logic import parse_rule
    >>> chain = Chain.of(parse_rule("parent_of(X, Z) :- spouse_of(X, Y), child_of(Z, Y)."))
    >>> chain.head, chain.steps
    ('parent_of', (Step(relation='spouse_of', inverse=False), Step(relation='child_of', inverse=True)))
    >>> print(chain.rule())
    parent_of(V0, V2) :- spouse_of(V0, V1), child_of(V2, V1).
    >>> chain = Chain.of(parse_rule("speaks(X, dutch) :- lives_in(X, Y), part_of(Y, belgium)."))
    >>> str(chain.last), str(chain.end), chain.is_closed
    ('dutch', 'belgium', False)

    ``apart`` says that the two ends must differ, ``v0 != vn``.
    """

    head: str
    steps: tuple[Step, ...]
    apart: bool = False
    first: Symbol | None = None
    last: Symbol | None = None
    end: Symbol | None = None

    @property
    def is_closed(self) -> bool:
        """Whether the path joins the two variables of the head: there are no constants."""
        return self.first is None and self.last is None

    @classmethod
    def of(cls, rule: Rule) -> Chain | None:
        """Read a rule as a chain, in whatever order its body stands; None where it is none.

        A chain visits no term twice; beside its steps, the body may ask that the ends of a closed one differ.
        """
        return cls.read(rule.head, rule.body)

    @classmethod
    def read(cls, head: Head, body: Sequence[Formula]) -> Chain | None:
        """Read a head and a body as a chain, as `of` does; an empty body is an empty path."""
        if not isinstance(head, Atom) or head.arity != 2:
            return None
        first, last = head.args
        constants = [term for term in head.args if not isinstance(term, Variable)]
        if len(constants) > 1 or not all(isinstance(term, Symbol) for term in constants) or first == last:
            return None
        atoms = [part for part in body if isinstance(part, Atom) and part.arity == 2]
        others = [part for part in body if not (isinstance(part, Atom) and part.arity == 2)]
        if any(constants or not _says_ends_differ(part, head) for part in others):
            return None
        start = last if isinstance(first, Symbol) else first
        walked = _walk(start, atoms)
        if walked is None:
            return None
        steps, end = walked
        name, apart = str(head.predicate), bool(others)
        if not constants:
            return cls(name, steps, apart) if end == last or not body else None
        return cls(
            name,
            steps,
            apart,
            first if isinstance(first, Symbol) else None,
            last if isinstance(last, Symbol) else None,
            end if isinstance(end, Symbol) else None,
        )

    def mirror(self) -> tuple[Step, ...]:
        """Return the steps walked from the other end: what the inverse of the head joins."""
        return tuple(Step(step.relation, not step.inverse) for step in reversed(self.steps))

    def stops(self, atoms: Sequence[Atom], start: Term) -> list[Term]:
        """Return the terms that the path visits, given the atoms that it was read from and where it begins.

        >>> from rulewright.logic import parse_rule
        >>> rule = parse_rule("uncle_of(X, Z) :- child_of(Z, Y), brother_of(X, Y).")
        >>> print(*Chain.of(rule).stops(rule.body, rule.head.args[0]))
        X Y Z
        """
        remaining, stops = list(atoms), [start]
        for step in self.steps:
            near, far = (1, 0) if step.inverse else (0, 1)
            atom = next(atom for atom in remaining if atom.args[near] == stops[-1] and atom.predicate == step.relation)
            remaining.remove(atom)
            stops.append(atom.args[far])
        return stops

    @classmethod
    def oriented(cls, head: Step, steps: tuple[Step, ...]) -> Chain:
        """Build a chain whose head may be inverse: then the rule is mirrored, for heads are never inverse.

        >>> Chain.oriented(Step("p", inverse=True), (Step("q"), Step("r", inverse=True))).steps
        (Step(relation='r', inverse=False), Step(relation='q', inverse=True))
        """
        chain = cls(head.relation, steps)
        return cls(head.relation, chain.mirror()) if head.inverse else chain

    def head_atom(self) -> Atom:
        """Return the head over V0 and Vn, or its constant."""
        start, last = Variable("V0"), Variable(f"V{len(self.steps)}")
        if self.is_closed:
            return Atom(self.head, (start, last))
        return Atom(self.head, (self.first or start, self.last or start))

    def body_atoms(self) -> tuple[Atom, ...]:
        """Return the path as atoms over V0 … Vn."""
        return path_atoms(self.steps, Variable("V0"), self.end or Variable(f"V{len(self.steps)}"))

    def rule(self, confidence: float = 1.0) -> Rule:
        """Write the chain as a rule over V0 … Vn."""
        head = self.head_atom()
        body: tuple[Formula, ...] = self.body_atoms()
        if self.apart:
            body = (*body, Comparison("!=", *head.args))
        return Rule(head, body, confidence)


def _walk(start: Term, atoms: Sequence[Atom]) -> tuple[tuple[Step, ...], Term] | None:
    """Walk all atoms from a term, each once; return the steps and where they end, or None where that is no path."""
    remaining, stop = list(atoms), start
    visited, steps = {start}, []
    while remaining:
        touching = [atom for atom in remaining if stop in atom.args]
        if len(touching) != 1 or not isinstance(stop, Variable):
            return None
        (atom,) = touching
        remaining.remove(atom)
        inverse = atom.args[0] != stop
        stop = atom.args[0 if inverse else 1]
        if stop in visited or not isinstance(stop, Variable | Symbol):
            return None
        visited.add(stop)
        steps.append(Step(str(atom.predicate), inverse))
    return tuple(steps), stop


def _says_ends_differ(part: Formula, head: Atom) -> bool:
    return isinstance(part, Comparison) and part.operator == "!=" and {part.left, part.right} == set(head.args)
