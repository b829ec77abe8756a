"""Chain rules: a head that joins the two ends of a path of relations, each walked forwards or backwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from rulewright.logic.rules import Rule
from rulewright.logic.terms import Atom, Comparison, Formula, Variable


class Step(NamedTuple):
    """One relation of a path; ``inverse`` where it is walked from its second argument to its first."""

    relation: str
    inverse: bool = False


@dataclass(frozen=True, slots=True)
class Chain:
    """``head(v0, vn) ← r1(v0, v1) ∧ … ∧ rn(vn-1, vn)`` over relations and their inverses.

    >>> from rulewright.logic import parse_rule
    >>> chain = Chain.of(parse_rule("parent_of(X, Z) :- spouse_of(X, Y), child_of(Z, Y)."))
    >>> chain.head, chain.steps
    ('parent_of', (Step(relation='spouse_of', inverse=False), Step(relation='child_of', inverse=True)))
    >>> print(chain.rule())
    parent_of(V0, V2) :- spouse_of(V0, V1), child_of(V2, V1).

    ``apart`` says that the two ends must differ, ``v0 != vn``.
    """

    head: str
    steps: tuple[Step, ...]
    apart: bool = False

    @classmethod
    def of(cls, rule: Rule) -> Chain | None:
        """Read a rule as a chain, in whatever order its body stands; None where it is none.

        A chain joins two different variables, and visits no variable twice; beside its steps, the body may ask that
        the ends differ.
        """
        head = rule.head
        left = [part for part in rule.body if isinstance(part, Atom) and part.arity == 2]
        others = [part for part in rule.body if part not in left]
        if not isinstance(head, Atom) or head.arity != 2:
            return None
        if any(not _parts_ends(part, head) for part in others) or len(left) + len(others) != len(rule.body):
            return None
        place, end = head.args
        visited = {place}
        steps = []
        while left and isinstance(place, Variable):
            touching = [atom for atom in left if place in atom.args]
            if len(touching) != 1:
                return None
            (atom,) = touching
            left.remove(atom)
            inverse = atom.args[0] != place
            place = atom.args[0 if inverse else 1]
            if place in visited:
                return None
            visited.add(place)
            steps.append(Step(str(atom.predicate), inverse))
        complete = not left and place == end and isinstance(place, Variable)
        return cls(str(head.predicate), tuple(steps), bool(others)) if complete else None

    def mirror(self) -> tuple[Step, ...]:
        """Return the steps walked from the other end: what the inverse of the head joins."""
        return tuple(Step(step.relation, not step.inverse) for step in reversed(self.steps))

    @classmethod
    def oriented(cls, head: Step, steps: tuple[Step, ...]) -> Chain:
        """Build a chain whose head may be inverse: then the rule is mirrored, for heads are never inverse.

        >>> Chain.oriented(Step("p", inverse=True), (Step("q"), Step("r", inverse=True))).steps
        (Step(relation='r', inverse=False), Step(relation='q', inverse=True))
        """
        chain = cls(head.relation, steps)
        return cls(head.relation, chain.mirror()) if head.inverse else chain

    def rule(self, confidence: float = 1.0) -> Rule:
        """Write the chain as a rule over V0 … Vn."""
        places = [Variable(f"V{index}") for index in range(len(self.steps) + 1)]
        body: list[Formula] = [
            Atom(step.relation, (after, before) if step.inverse else (before, after))
            for step, before, after in zip(self.steps, places, places[1:], strict=False)
        ]
        if self.apart:
            body.append(Comparison("!=", places[0], places[-1]))
        return Rule(Atom(self.head, (places[0], places[-1])), tuple(body), confidence)


def _parts_ends(part: Formula, head: Atom) -> bool:
    """Tell whether a part of a body says that the two arguments of the head differ."""
    return isinstance(part, Comparison) and part.operator == "!=" and {part.left, part.right} == set(head.args)
