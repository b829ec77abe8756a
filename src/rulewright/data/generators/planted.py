"""Graphs in which rules of a chosen shape are planted: what a learner should find, known exactly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, get_args

import numpy as np

from rulewright.checks import SHARE, OneOf, Real, Whole, check_parameter
from rulewright.data.facts import distinct_rows
from rulewright.data.generators.generated import Generated, build, corrupt, draw_keys
from rulewright.data.index import Ids, decode_rows, encode_rows, match_pairs
from rulewright.data.vocabulary import lay_out_domains
from rulewright.logic import Atom, Head, Not, Rule, RuleSet, Term, parse_rules

Shape = Literal["tree", "star", "conjunction", "disjunction", "negation", "absence", "long_chain", "long_tree"]
Degrees = Literal["uniform", "power"]

TARGET = "target"
"""The predicate that the planted rules define."""

LONGEST = 6
_NEAR_MISSES = 0.5
"""For each planted grounding and each literal, how many there are that break this literal."""

_ROUNDS = 4
"""How often facts are drawn by Zipf's law, which repeats many, before the rest is drawn uniformly."""

_SHAPES: Mapping[str, str] = {
    "tree": "target(X) :- r0(X, Y), r1(Y, Z), r2(Y, W), m0(W).",
    "star": "target(X) :- r0(X, Y), m0(Y), r1(X, Z), m1(Z), r2(X, W).",
    "conjunction": "target(X, Y) :- r0(X, Y), r1(X, Z), r2(Z, Y).",
    "disjunction": """
        target(X, Y) :- r0(X, Y), m0(Y).
        target(X, Y) :- r1(X, Z), r2(Z, Y).
        target(X, Y) :- r3(X, Y), m1(X).
    """,
    "negation": "target(X) :- m0(X), !m1(X).",
    "absence": """
        has_r0(X) :- r0(X, Y).
        target(X) :- m0(X), !has_r0(X).
    """,
    "long_tree": "target(X) :- r0(X, Y), r1(Y, Z), r2(Z, U), m0(U), r3(X, V), m1(V).",
}
_Columns = dict[str, tuple[Ids, ...]]


def planted(
    shape: Shape,
    *,
    entities: int = 1000,
    relations: int = 12,
    marks: int = 6,
    degree: float = 0.4,
    degrees: Degrees = "uniform",
    marked: float = 0.2,
    groundings: int = 60,
    length: int = LONGEST,
    missing: float = 0.1,
    noise: float = 0.1,
    seed: int = 0,
    graph: int = 0,
) -> Generated:
    """Return a graph in which ``target`` holds of what the planted rules give, up to missing and wrong facts of it.

    - ``tree``: ``target(X) :- p(X, Y), q(Y, Z), r(Y, W), a(W)``, a body that branches away from X
    - ``star``: ``target(X) :- p(X, Y), a(Y), q(X, Z), b(Z), r(X, W)``, one that branches at X
    - ``conjunction``: ``target(X, Y) :- p(X, Y), q(X, Z), r(Z, Y)``, two ways from X to Y
    - ``disjunction``: three rules for one relation, of two steps and of one step with a mark at either end
    - ``negation``: ``target(X) :- a(X), !b(X)``
    - ``absence``: ``has_p(X) :- p(X, Y)`` and ``target(X) :- a(X), !has_p(X)``: there is no Y with p
    - ``long_chain``: ``length`` relations lead from X to Y
    - ``long_tree``: six atoms, three steps that end in a mark and one step that does

    Which relations and marks (unary predicates) these are is drawn by ``seed``, and which way a relation is walked.
    Each rule has ``groundings`` of which all positive atoms are true, over entities drawn at random, and for each
    literal half as many near misses, in which all others hold, so that none can be left out without harm. Then random
    facts are added until each of the ``relations`` has ``degree`` facts for each entity and each of the ``marks``
    holds of a share ``marked``; the head and the tail of a random fact are drawn uniformly or, with
    ``degrees="power"``, by Zipf's law, each relation having hubs of its own. What no rule uses distracts.

    Only facts of the target are wrong: a share ``missing`` of them is hidden, and ``noise`` times as many false ones
    are added. ``graph`` gives other graphs with the same rules. ``has_p`` is in the rules alone, not among the facts.

    >>> generated = planted("tree", seed=1)
    >>> print(generated.kb, generated.kb.count("target"), generated.hidden.n_facts, generated.noise.n_facts)
    KnowledgeBase(1,000 entities, 19 predicates, 6,096 facts) 96 10 10
    >>> print(generated.rules.rules[0])
    target(X) :- relation_8(Y, X), relation_11(Z, Y), relation_4(W, Y), mark_1(W).
    """
    check_parameter("shape", shape, OneOf(*get_args(Shape)))
    check_parameter("degrees", degrees, OneOf(*get_args(Degrees)))
    check_parameter("entities", entities, Whole(LONGEST + 2))
    check_parameter("degree", degree, Real(0, entities / 2))
    check_parameter("groundings", groundings, Whole(0))
    check_parameter("length", length, Whole(1, LONGEST))
    check_parameter("graph", graph, Whole(0))
    for name, share in (("marked", marked), ("missing", missing), ("noise", noise)):
        check_parameter(name, share, SHARE)
    rules = _draw_rules(shape, relations, marks, length, np.random.default_rng(seed))
    random = np.random.default_rng([seed, graph])
    arities = {declared.name: len(declared.types) for declared in rules.predicates}
    columns: _Columns = {name: (np.empty(0, dtype=np.int64),) * arity for name, arity in arities.items()}
    definitions = {str(rule.head.predicate): rule for rule in rules.rules if str(rule.head.predicate) != TARGET}
    for rule in rules.rules:
        if str(rule.head.predicate) == TARGET:
            for name, rows in _plant(rule, definitions, groundings, entities, random):
                columns[name] = _add_rows(columns[name], rows)
    for name, arity in arities.items():
        if name != TARGET:
            wish = round(entities * (marked if arity == 1 else degree))
            columns[name] = _fill_up(columns[name], wish, entities, degrees, random)
    for rule in rules.rules:  # what others rest on comes first
        name, rows = str(rule.head.predicate), _derive(rule, columns, entities)
        columns[name] = _add_rows(columns.get(name, rows), rows)
    stored = {name: [column.astype(np.int32) for column in columns[name]] for name in arities}
    domains = lay_out_domains([("entity", [f"e{index}" for index in range(entities)], None)])
    return corrupt(build(rules, domains, stored), missing=missing, noise=noise, random=random, predicates=[TARGET])


def _draw_rules(shape: Shape, relations: int, marks: int, length: int, random: np.random.Generator) -> RuleSet:
    """Return the rules of a shape over drawn predicates and directions, with all predicates declared."""
    if shape == "long_chain":
        variables = ["X", *(f"Z{position}" for position in range(1, length)), "Y"]
        steps = ", ".join(
            f"r{position}({variables[position]}, {variables[position + 1]})" for position in range(length)
        )
        text = f"target(X, Y) :- {steps}."
    else:
        text = _SHAPES[shape]
    shape_rules = parse_rules(text).rules
    used = {str(atom.predicate) for rule in shape_rules for atom, _ in _body(rule)}
    names: dict[str, str] = {}
    for letter, word, count in (("r", "relation", relations), ("m", "mark", marks)):
        slots = sorted(name for name in used if name[0] == letter)
        check_parameter(f"{word}s", count, Whole(len(slots)))
        drawn = random.permutation(count)[: len(slots)]
        names |= {slot: f"{word}_{index}" for slot, index in zip(slots, drawn, strict=True)}
    names |= {f"has_{slot}": f"has_{name}" for slot, name in names.items()}
    turned = {slot: bool(random.integers(2)) for slot in sorted(used)}

    def rename(atom: Head) -> Atom:
        slot = str(atom.predicate)
        args = atom.args[::-1] if turned.get(slot) else atom.args
        return Atom(names.get(slot, slot), args)

    rules = [
        Rule(
            rename(rule.head), tuple(rename(atom) if positive else Not(rename(atom)) for atom, positive in _body(rule))
        )
        for rule in shape_rules
    ]
    target_types = ", ".join(["entity"] * len(rules[-1].head.args))
    declarations = [f"predicate relation_{index}(entity, entity)." for index in range(relations)]
    declarations += [f"predicate mark_{index}(entity)." for index in range(marks)]
    declarations += [f"predicate {TARGET}({target_types})."]
    return parse_rules("\n".join([*declarations, *map(str, rules)]))


def _body(rule: Rule) -> list[tuple[Atom, bool]]:
    """Return the atoms of a body, and which are not negated."""
    (literals,) = rule.alternatives()
    return [(literal.unit, literal.positive) for literal in literals if isinstance(literal.unit, Atom)]


def _plant(
    rule: Rule, definitions: Mapping[str, Rule], groundings: int, entities: int, random: np.random.Generator
) -> Iterator[tuple[str, tuple[Ids, ...]]]:
    """Yield facts that make a body true of drawn entities, and as often as wished all of it but one literal."""
    body = _body(rule)
    broken = np.repeat(np.arange(-1, len(body)), [groundings] + [round(_NEAR_MISSES * groundings)] * len(body))
    count = len(broken)
    variables = dict.fromkeys(term for atom, _ in body for term in atom.args)
    values = dict(zip(variables, _draw_distinct(count, len(variables), entities, random), strict=True))
    for position, (atom, is_positive) in enumerate(body):
        is_true = (broken != position) == is_positive
        definition = definitions.get(str(atom.predicate))
        if definition is None:
            yield str(atom.predicate), tuple(values[term][is_true] for term in atom.args)
            continue
        inner = {term: values[given] for term, given in zip(definition.head.args, atom.args, strict=True)}
        for part, _ in _body(definition):
            for term in part.args:
                if term not in inner:
                    inner[term] = random.integers(entities, size=count)
            yield str(part.predicate), tuple(inner[term][is_true] for term in part.args)


def _draw_distinct(count: int, width: int, entities: int, random: np.random.Generator) -> Ids:
    """Return ``width`` columns of entities; no row has one twice."""
    rows = random.integers(entities, size=(count, width))
    while True:
        ordered = np.sort(rows, axis=1)
        is_repeated = (ordered[:, 1:] == ordered[:, :-1]).any(axis=1)
        if not is_repeated.any():
            return rows.T
        rows[is_repeated] = random.integers(entities, size=(int(is_repeated.sum()), width))


def _add_rows(columns: Sequence[Ids], added: Sequence[Ids]) -> tuple[Ids, ...]:
    return distinct_rows([np.concatenate(pair) for pair in zip(columns, added, strict=True)])


def _fill_up(
    columns: tuple[Ids, ...], wish: int, entities: int, degrees: Degrees, random: np.random.Generator
) -> tuple[Ids, ...]:
    """Add random facts, none of them from an entity to itself, until there are as many as wished."""
    if len(columns) == 1:
        added = draw_keys(random, space=entities, count=max(0, wish - len(columns[0])), excluded=columns[0])
        return _add_rows(columns, (added,))
    if degrees == "power":
        shares = 1 / np.arange(1, entities + 1)
        hubs = [random.permutation(entities) for _ in columns]
        for _ in range(_ROUNDS):
            size = max(0, wish - len(columns[0]))
            head, tail = (hub[random.choice(entities, size=size, p=shares / shares.sum())] for hub in hubs)
            columns = _add_rows(columns, (head[head != tail], tail[head != tail]))
    head, tail = columns
    is_loop = head == tail
    known = encode_rows([head[~is_loop], (tail - (tail > head))[~is_loop]], [entities, entities - 1])
    count = max(0, wish - len(head))
    heads, skipped = decode_rows(
        draw_keys(random, space=entities * (entities - 1), count=count, excluded=known), [entities, entities - 1]
    )
    return _add_rows(columns, (heads, skipped + (skipped >= heads)))


def _derive(rule: Rule, columns: _Columns, entities: int) -> tuple[Ids, ...]:
    """Return the rows of a head by joining its body from left to right, keeping what is still needed."""
    body = sorted(_body(rule), key=lambda part: not part[1])  # what is negated comes last, bound by then
    bound: dict[Term, Ids] = {}
    for position, (atom, is_positive) in enumerate(body):
        rows = columns[str(atom.predicate)]
        shared = [place for place, term in enumerate(atom.args) if term in bound]
        if not bound:
            bound = dict(zip(atom.args, rows, strict=True))
            continue
        sizes = [entities] * len(shared)
        left = encode_rows([bound[atom.args[place]] for place in shared], sizes)
        right = encode_rows([rows[place] for place in shared], sizes)
        if not is_positive:
            keep = ~np.isin(left, right)
            bound = {term: column[keep] for term, column in bound.items()}
            continue
        ours, theirs = match_pairs(left, right)
        joined = {term: column[ours] for term, column in bound.items()}
        joined |= {term: column[theirs] for term, column in zip(atom.args, rows, strict=True) if term not in bound}
        needed = {*rule.head.args, *(term for later, _ in body[position + 1 :] for term in later.args)}
        kept = [term for term in joined if term in needed]
        bound = dict(zip(kept, distinct_rows([joined[term] for term in kept]), strict=True))
    return distinct_rows([bound[term] for term in rule.head.args])
