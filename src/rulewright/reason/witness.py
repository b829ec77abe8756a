"""One reason for one fact: a grounding of a rule's body that gives it."""

from __future__ import annotations

from collections.abc import Sequence

from rulewright.data import Value
from rulewright.engine import SQLEngine
from rulewright.logic import Formula, Literal, Number, Symbol, Term, Variable, substitute
from rulewright.reason.program import Derivation


def witness(derivations: Sequence[Derivation], args: Sequence[Value], engine: SQLEngine) -> tuple[Formula, ...] | None:
    """Return the ground body of the first derivation that gives the head these arguments, or None.

    >>> from rulewright import Engine, KnowledgeBase, parse_rule
    >>> from rulewright.reason.program import Program
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> program = Program.of(parse_rule("grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z)."), kb)
    >>> with Engine(program.kb) as engine:
    ...     print(*witness(program.derivations, ("ann", "cid"), engine), sep=", ")
    parent_of(ann, bob), parent_of(bob, cid)
    """
    for derivation in derivations:
        mapping = _head_mapping(derivation.head.args, args)
        if mapping is None:
            continue
        body = [Literal(substitute(each.unit, mapping), each.positive) for each in derivation.body]
        for values in engine.assignments(body, limit=1):
            return tuple(substitute(literal.formula(), values) for literal in body)
    return None


def _head_mapping(terms: Sequence[Term], args: Sequence[Value]) -> dict[Variable, Term] | None:
    mapping: dict[Variable, Term] = {}
    for term, value in zip(terms, args, strict=False):
        wanted: Term = Symbol(value) if isinstance(value, str) else Number(value)
        if (mapping.setdefault(term, wanted) if isinstance(term, Variable) else term) != wanted:
            return None
    return mapping
