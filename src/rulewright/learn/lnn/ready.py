"""Ready-made templates: chains of relations, gridworld and Countries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rulewright.errors import DataError
from rulewright.logic import RuleSet, parse_rules, quote

DIRECTIONS = ("north", "south", "east", "west")


def _domain(predicates: Iterable[str] | None) -> str:
    if predicates is None:
        return "*"
    names = list(predicates)
    if not names:
        raise DataError("a template needs at least one predicate to choose from")
    return "{" + ", ".join(map(quote, names)) + "}"


def chains(
    max_length: int, *, target: str = "target", predicates: Iterable[str] | None = None, inverses: bool = False
) -> RuleSet:
    """Return the template of all chains up to a length, joined by "or"; with ``inverses`` steps may be walked back.

    ``target`` may be a predicate of the facts, or a name that `LNNLearner` puts its targets for.

    >>> print(chains(2), end="")
    template target(X0, Z) :- ?P11(X0, Z) ; ?P21(X0, X1), ?P22(X1, Z) where ?P11 in *, ?P21 in *, ?P22 in *.
    """
    if max_length < 1:
        raise DataError(f"max_length must be >= 1, got {max_length}")
    domain = _domain(predicates)
    alternatives, domains = [], []
    for length in range(1, max_length + 1):
        steps = []
        for position in range(length):
            before, after = f"X{position}", "Z" if position == length - 1 else f"X{position + 1}"
            name = f"P{length}{position + 1}"
            domains.append(name)
            step = f"?{name}({before}, {after})"
            if inverses:
                domains.append(f"I{length}{position + 1}")
                step = f"({step} ; ?I{length}{position + 1}({after}, {before}))"
            steps.append(step)
        alternatives.append(", ".join(steps))
    listed = ", ".join(f"?{name} in {domain}" for name in domains)
    return parse_rules(f"template {quote(target)}(X0, Z) :- {' ; '.join(alternatives)} where {listed}.")


def one_chain(length: int, *, target: str = "target", predicates: Iterable[str] | None = None) -> RuleSet:
    """Return the template of the chains of one length.

    >>> print(one_chain(2, target="r", predicates=["a", "b"]), end="")
    template r(X0, X2) :- ?P1(X0, X1), ?P2(X1, X2) where ?P1 in {a, b}, ?P2 in {a, b}.
    """
    if length < 1:
        raise DataError(f"length must be >= 1, got {length}")
    domain = _domain(predicates)
    steps = ", ".join(f"?P{position + 1}(X{position}, X{position + 1})" for position in range(length))
    listed = ", ".join(f"?P{position + 1} in {domain}" for position in range(length))
    return parse_rules(f"template {quote(target)}(X0, X{length}) :- {steps} where {listed}.")


def countries(task: int) -> RuleSet:
    """Return the template of Countries S1, S2 or S3: chains of two relations, for S3 of three.

    >>> print(countries(1), end="")
    template locatedIn(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in {locatedIn, neighborOf}, ?Q in {locatedIn, neighborOf}.
    """
    if task not in (1, 2, 3):
        raise DataError(f"the tasks of Countries are 1, 2 and 3, got {task}")
    body, holes = ("?P(X, W), ?Q(W, Y), ?O(Y, Z)", "PQO") if task == 3 else ("?P(X, Y), ?Q(Y, Z)", "PQ")
    listed = ", ".join(f"?{hole} in {{locatedIn, neighborOf}}" for hole in holes)
    return parse_rules(f"template locatedIn(X, Z) :- {body} where {listed}.")


def gridworld(directions: Sequence[str] = DIRECTIONS) -> RuleSet:
    """Return a template for each move: something about obstacles and something about the target, or their absence.

    ``cell(X, Y)`` is the universe of the negated predicates.

    >>> rules = gridworld()
    >>> print(rules.rules[0])
    no_obstacle_north(X, Y) :- cell(X, Y), !has_obstacle_north(X, Y).
    >>> len(rules.templates), len(rules.templates[0].domains[0][1])
    (4, 8)
    """
    lines = []
    for what in ("obstacle", "target"):
        for way in directions:
            lines.append(f"no_{what}_{way}(X, Y) :- cell(X, Y), !has_{what}_{way}(X, Y).")
    about = {
        what: "{" + ", ".join(f"{sign}_{what}_{way}" for sign in ("has", "no") for way in directions) + "}"
        for what in ("obstacle", "target")
    }
    for way in directions:
        lines.append(
            f"template move_{way}(X, Y) :- ?P(X, Y), ?Q(X, Y) where ?P in {about['obstacle']}, ?Q in {about['target']}."
        )
    return parse_rules("\n".join(lines))
