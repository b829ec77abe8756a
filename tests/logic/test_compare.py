"""Substitution, unification, standard form and subsumption, each against brute force on small rules."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import permutations, product

import pytest
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright.errors import DataError
from rulewright.logic import (
    Atom,
    Chain,
    Comparison,
    Formula,
    Head,
    Literal,
    Membership,
    Not,
    Number,
    Or,
    Rule,
    Step,
    Symbol,
    Term,
    Variable,
    parse_formula,
    parse_rule,
    substitute,
    subsumes,
    unify,
    variables,
)

pytestmark = pytest.mark.slow

U, V, X, Y, Z = map(Variable, "UVXYZ")
A, B = Symbol("a"), Symbol("b")


class TestSubstitute:
    @settings(max_examples=50)
    @given(strategies.formulas, st.dictionaries(strategies.variable_terms, strategies.terms))
    def test_reaches_every_term_once(self, formula: Formula, mapping: dict[Variable, Term]) -> None:
        """Marks that no name has stand for the variables first, so that the order of replacement cannot matter."""
        marks = {variable: Symbol(f"<{number}>") for number, variable in enumerate(mapping)}
        text = str(substitute(formula, marks))
        for variable, mark in marks.items():
            text = text.replace(str(mark), str(mapping[variable]))
        assert str(substitute(formula, mapping)) == text

    def test_is_simultaneous(self) -> None:
        formula = parse_formula("p(X, Y) & X < Y => !(q(Y) in {c}) | r(X) <=> X = a")
        swapped = parse_formula("p(Y, X) & Y < X => !(q(X) in {c}) | r(Y) <=> Y = a")
        assert substitute(formula, {X: Y, Y: X}) == swapped

    @settings(max_examples=50)
    @given(strategies.formulas)
    def test_nothing_to_replace(self, formula: Formula) -> None:
        assert substitute(formula, {}) == formula


class TestUnify:
    TERMS: tuple[Term, ...] = (X, Y, Z, A, B, Number(1))
    GROUND: tuple[Term, ...] = (A, B, Number(1), Symbol("c"))

    @given(strategies.small_atoms({"p": 3}, TERMS), strategies.small_atoms({"p": 3}, TERMS))
    def test_against_all_ground_substitutions(self, left: Atom, right: Atom) -> None:
        found = unify(zip(left.args, right.args, strict=True))
        unifiers = [
            ground
            for values in product(self.GROUND, repeat=3)
            if substitute(left, ground := dict(zip((X, Y, Z), values, strict=True))) == substitute(right, ground)
        ]
        assert (found is not None) == bool(unifiers)
        if found is None:
            return
        assert substitute(left, found) == substitute(right, found)
        assert all(_replace(term, found) == term for term in found.values()), "it is idempotent"
        for ground in unifiers:
            for variable in (X, Y, Z):
                assert _replace(_replace(variable, found), ground) == ground[variable], "it is most general"


def _replace(term: Term, mapping: Mapping[Variable, Term]) -> Term:
    return mapping.get(term, term) if isinstance(term, Variable) else term


def small_literals(terms: Sequence[Term]) -> st.SearchStrategy[Formula]:
    atoms = strategies.small_atoms({"p": 1, "q": 2}, terms)
    pool = st.sampled_from(tuple(terms))
    labels = st.builds(
        lambda term, classes: Membership(Atom("label", (term,)), tuple(classes)),
        pool,
        st.permutations("ab").flatmap(lambda order: st.sampled_from((order, order[:1]))),
    )
    units = st.one_of(atoms, atoms, atoms, labels, st.builds(Comparison, st.sampled_from("<="), pool, pool))
    return st.one_of(units, units, units, units.map(Not))


@st.composite
def small_rules(draw: st.DrawFn, most: int = 4, terms: Sequence[Term] = (X, Y, U, V, A)) -> Rule:
    body = draw(st.lists(small_literals(terms), min_size=1, max_size=most))
    head = draw(st.sampled_from((Atom("h", (X, Y)), Atom("h", (X, X)), Atom("h", (X, A)), Atom("h", (U, V)))))
    try:
        return Rule(head, tuple(body))
    except DataError:
        unbound = list(dict.fromkeys(variable for part in (head, *body) for variable in variables(part)))
        binding = [Atom("q", pair) for pair in zip(unbound, unbound[1:] + unbound[:1], strict=True)]
        return Rule(head, (*body, *binding))


class TestCanonical:
    @settings(max_examples=50)
    @given(strategies.rules, st.randoms(use_true_random=False))
    def test_does_not_depend_on_names_and_order(self, rule: Rule, source: random.Random) -> None:
        assert shuffled(rule, source).canonical() == rule.canonical()

    @settings(max_examples=50)
    @given(strategies.rules)
    def test_is_idempotent(self, rule: Rule) -> None:
        assert rule.canonical().canonical() == rule.canonical()
        assert rule.canonical().confidence == 1
        assert not rule.canonical().annotations

    @settings(max_examples=50)
    @given(strategies.rules)
    def test_means_the_same(self, rule: Rule) -> None:
        assert subsumes(rule, rule.canonical())
        assert subsumes(rule.canonical(), rule)

    @given(small_rules(), small_rules())
    def test_is_equal_exactly_for_isomorphic_rules(self, one: Rule, other: Rule) -> None:
        assert (one.canonical() == other.canonical()) == isomorphic(one, other)

    @given(st.lists(st.permutations((X, Y, U, V)), min_size=1, max_size=3), st.data())
    def test_is_equal_exactly_for_isomorphic_symmetric_rules(
        self, orders: list[list[Variable]], data: st.DataObject
    ) -> None:
        """Two bodies of the same few edges, shuffled or with one edge turned: often alike, often not quite."""
        edges = [Atom("e", (order[0], order[1])) for order in orders] + [Atom("e", (X, Y))]
        turned = [Atom("e", edge.args[::-1]) if data.draw(st.booleans()) else edge for edge in edges]
        head = Atom("h", (Symbol("c"),))
        one, other = Rule(head, tuple(edges)), Rule(head, tuple(turned))
        assert (one.canonical() == other.canonical()) == isomorphic(one, other)

    def test_all_graphs_of_four_variables(self) -> None:
        """The directed graphs of three edges on four variables have as many forms as they have classes."""
        edges = [Atom("e", pair) for pair in permutations((X, Y, U, V), 2)]
        forms: dict[Rule, Rule] = {}
        for one, two, three in product(edges, repeat=3):
            rule = Rule(Atom("h", (A,)), (one, two, three))
            known = forms.setdefault(rule.canonical(), rule)
            assert isomorphic(known, rule)
        representatives = list(forms.values())
        for number, rule in enumerate(representatives):
            assert not any(isomorphic(rule, other) for other in representatives[:number])

    @pytest.mark.parametrize(
        ("one", "other", "same"),
        [
            ("p(X, Y) :- q(X, Z), r(Z, Y).", "p(A, B) :- r(C, B), q(A, C).", True),
            ("p(X, Y) :- q(X, Z), r(Z, Y).", "p(Y, X) :- q(Y, Z), r(Z, X).", True),
            ("p(X, Y) :- q(X, Z), r(Z, Y).", "p(Y, X) :- q(X, Z), r(Z, Y).", False),
            ("p(X) :- q(X), q(X).", "p(X) :- q(X).", False),
            ("p(X) :- q(X) ; q(X).", "p(X) :- q(X).", True),
            ("p(X) :- q(X) ; r(X).", "p(Y) :- r(Y) ; q(Y).", True),
            ("p(X) :- a(X, Y), (b(Y) ; c(Y)).", "p(X) :- a(X, Y), c(Y) ; a(X, Z), b(Z).", True),
            ("p(X) :- q(X), !(r(X), s(X)).", "p(X) :- q(X), !s(X) ; q(X), !r(X).", True),
            ("p(X) :- q(X), !!r(X).", "p(X) :- r(X), q(X).", True),
            ("p(X) :- q(X, A), !(A < 3).", "p(X) :- q(X, A), A >= 3.", True),
            ("p(X) :- q(X, 1).", "p(X) :- q(X, 1.0).", True),
            ("p(X) :- q(X, 1).", "p(X) :- q(X, '1').", False),
            ("p(X) :- q(X, 1, A), q(X, 1.0, B), r(A).", "p(X) :- q(X, 1.0, A), q(X, 1, B), r(A).", True),
            ("p(X) :- q(X) in {a, b}.", "p(X) :- q(X) in {b, a}.", True),
            ("p(X) in {a, b} :- q(X).", "p(X) in {b, a} :- q(X).", True),
            ("p(X) in {a, b} :- q(X).", "p(X) in {a} :- q(X).", False),
            ("p(X) :- q(X), !r(X).", "p(X) :- r(X), !q(X).", False),
            ("p(a) :- q(X, Y), q(Y, X).", "p(a) :- q(X, X), q(Y, Y).", False),
        ],
    )
    def test_examples(self, one: str, other: str, same: bool) -> None:
        assert (parse_rule(one).canonical() == parse_rule(other).canonical()) == same

    def test_text(self) -> None:
        rule = parse_rule("0.7 :: p(B, A) :- s(D, A), r(C, D), q(B, C), !t(B, x), A > 3. @{support: 3}")
        assert str(rule.canonical()) == ("p(X0, X1) :- q(X0, X2), r(X2, X3), s(X3, X1), X1 > 3, !t(X0, x).")

    @given(st.lists(st.builds(Step, st.sampled_from("pq"), st.booleans()), min_size=1, max_size=4).map(tuple))
    def test_a_chain_and_its_mirror_are_one_rule(self, steps: tuple[Step, ...]) -> None:
        chain = Chain("h", steps)
        rule = chain.rule()
        walked_back = Chain("h", chain.mirror()).rule()
        start, end = walked_back.head.args
        inverse_head = Rule(Atom("h", (end, start)), walked_back.body)
        assert inverse_head.canonical() == rule.canonical()

    SHAPES: Mapping[str, Callable[[], list[tuple[str, str]]]] = {
        "star": lambda: [("X", f"Y{leg}") for leg in range(12)],
        "star with long legs": lambda: [
            pair for leg in range(12) for pair in (("X", f"Y{leg}"), (f"Y{leg}", f"Z{leg}"), (f"Z{leg}", f"W{leg}"))
        ],
        "cycle": lambda: [(f"Y{place}", f"Y{(place + 1) % 12}") for place in range(12)],
        "cycle both ways": lambda: [
            pair for place in range(12) for pair in permutations((f"Y{place}", f"Y{(place + 1) % 12}"))
        ],
        "four triangles": lambda: [(f"Y{one}_{at}", f"Y{one}_{(at + 1) % 3}") for one in range(4) for at in range(3)],
        "clique": lambda: [(f"Y{one}", f"Y{other}") for one, other in permutations(range(6), 2)],
        "clique on the head": lambda: [
            *((f"Y{one}", f"Y{other}") for one, other in permutations(range(6), 2)),
            *(("X", f"Y{one}") for one in range(6)),
        ],
        "ordered clique": lambda: [(f"Y{one}", f"Y{other}") for one in range(6) for other in range(one)],
        "bipartite": lambda: [(f"Y{one}", f"Z{other}") for one in range(6) for other in range(6)],
        "cube": lambda: [(f"Y{corner}", f"Y{corner ^ side}") for corner in range(8) for side in (1, 2, 4)],
        "Petersen graph": lambda: [
            pair
            for at in range(5)
            for edge in ((at, (at + 1) % 5), (at, at + 5), (at + 5, (at + 2) % 5 + 5))
            for pair in permutations((f"Y{edge[0]}", f"Y{edge[1]}"))
        ],
        "binary tree": lambda: [
            (f"Y{node}", f"Y{child}") for node in range(1, 16) for child in (2 * node, 2 * node + 1)
        ],
    }

    @pytest.mark.parametrize("shape", SHAPES)
    def test_symmetric_shapes_are_quick(self, shape: str) -> None:
        edges = self.SHAPES[shape]()
        body = tuple(Atom("e", (Variable(one), Variable(other))) for one, other in edges)
        rule = Rule(Atom("h", (X,)), (Atom("n", (X,)), *body))
        source = random.Random(3)
        begun = time.process_time()
        for _ in range(5):
            assert shuffled(rule, source).canonical() == rule.canonical()
        assert time.process_time() - begun < 3


def shuffled(rule: Rule, source: random.Random) -> Rule:
    """Rename the variables at random and shuffle the body, and the parts of every disjunction in it."""
    found = list(dict.fromkeys(variable for part in (rule.head, *rule.body) for variable in variables(part)))
    names = source.sample(range(100), len(found))
    renaming = {variable: Variable(f"V{name}") for variable, name in zip(found, names, strict=True)}
    body = [substitute(part, renaming) for part in rule.body]
    body = [Or(tuple(source.sample(part.parts, len(part.parts)))) if isinstance(part, Or) else part for part in body]
    return Rule(substitute(rule.head, renaming), tuple(source.sample(body, len(body))), rule.confidence)


def isomorphic(one: Rule, other: Rule) -> bool:
    """Try every renaming of variables; bodies are multisets of literals, and there are no alternatives."""
    (left,), (right,) = one.alternatives(), other.alternatives()
    if len(left) != len(right):
        return False
    ours = list(dict.fromkeys(variable for part in (one.head, *one.body) for variable in variables(part)))
    theirs = list(dict.fromkeys(variable for part in (other.head, *other.body) for variable in variables(part)))
    wanted = normal(other.head, right)
    return len(ours) == len(theirs) and any(
        normal(
            substitute(one.head, renaming := dict(zip(ours, order, strict=True))),
            [Literal(substitute(each.unit, renaming), each.positive) for each in left],
        )
        == wanted
        for order in permutations(theirs)
    )


def normal(head: Head, body: Sequence[Literal]) -> tuple[str, list[str]]:
    def text(literal: Literal) -> str:
        unit = literal.unit
        if isinstance(unit, Membership):
            unit = Membership(unit.atom, tuple(sorted(unit.classes)))
        return str(Literal(unit, literal.positive))

    return text(Literal(head)), sorted(map(text, body))


class TestSubsumes:
    @given(small_rules(most=3), small_rules(most=3))
    def test_against_all_substitutions(self, general: Rule, specific: Rule) -> None:
        assert subsumes(general, specific) == subsumes_by_force(general, specific)

    @given(
        small_rules(most=3, terms=(X, Y, U)),
        small_literals((X, Y, U, A)),
        st.dictionaries(strategies.variable_terms, st.sampled_from((A, B, X, Y))),
    )
    def test_instances_and_longer_bodies_are_more_specific(
        self, rule: Rule, more: Formula, mapping: dict[Variable, Term]
    ) -> None:
        bound = Atom("bound", (X, Y, U))
        longer = Rule(rule.head, (*rule.body, bound, more))
        assert subsumes(rule, longer)
        instance = Rule(substitute(longer.head, mapping), tuple(substitute(part, mapping) for part in longer.body))
        assert subsumes(rule, instance)

    @settings(max_examples=50)
    @given(strategies.rules)
    def test_every_rule_subsumes_itself(self, rule: Rule) -> None:
        assert subsumes(rule, rule)

    @pytest.mark.parametrize(
        ("general", "specific", "expected"),
        [
            ("p(X) :- q(X).", "p(a) :- q(a).", True),
            ("p(a) :- q(a).", "p(X) :- q(X).", False),
            ("p(X) :- q(X, Y).", "p(X) :- q(X, X).", True),
            ("p(X) :- q(X, X).", "p(X) :- q(X, Y).", False),
            ("p(X) :- q(X, Y), q(Y, X).", "p(X) :- q(X, X).", True),
            ("p(X) :- q(X) ; r(X).", "p(X) :- q(X).", True),
            ("p(X) :- q(X).", "p(X) :- q(X) ; r(X).", False),
            ("p(X) :- q(X) ; r(X).", "p(X) :- r(X), s(X) ; q(X).", True),
            ("p(X) :- q(X), !r(X).", "p(X) :- q(X), !r(X), !s(X).", True),
            ("p(X) :- q(X), !r(X).", "p(X) :- q(X), r(X).", False),
            ("p(X) :- q(X) in {a, b}.", "p(X) :- q(X) in {a}.", True),
            ("p(X) :- q(X) in {a}.", "p(X) :- q(X) in {a, b}.", False),
            ("p(X) :- r(X), !(q(X) in {a}).", "p(X) :- r(X), !(q(X) in {a, b}).", True),
            ("p(X) :- r(X), !(q(X) in {a, b}).", "p(X) :- r(X), !(q(X) in {a}).", False),
            ("p(X) in {a} :- q(X).", "p(X) in {a, b} :- q(X).", True),
            ("p(X) in {a, b} :- q(X).", "p(X) in {a} :- q(X).", False),
            ("p(X) :- q(X).", "r(X) :- q(X).", False),
        ],
    )
    def test_examples(self, general: str, specific: str, expected: bool) -> None:
        assert subsumes(parse_rule(general), parse_rule(specific)) == expected


def subsumes_by_force(general: Rule, specific: Rule) -> bool:
    (ours,), (theirs,) = general.alternatives(), specific.alternatives()
    free = list(dict.fromkeys(variable for part in (general.head, *general.body) for variable in variables(part)))
    images = list(dict.fromkeys(term for literal in (Literal(specific.head), *theirs) for term in literal.unit.args))
    return any(
        substitute(general.head, mapping := dict(zip(free, chosen, strict=True))) == specific.head
        and all(any(weaker(each, mapping, other) for other in theirs) for each in ours)
        for chosen in product(images, repeat=len(free))
    )


def weaker(literal: Literal, mapping: Mapping[Variable, Term], other: Literal) -> bool:
    unit = substitute(literal.unit, mapping)
    if isinstance(unit, Membership) and isinstance(other.unit, Membership) and literal.positive == other.positive:
        ours, theirs = set(unit.classes), set(other.unit.classes)
        return unit.atom == other.unit.atom and (theirs <= ours if literal.positive else ours <= theirs)
    return Literal(unit, literal.positive) == other


def test_bodies_too_long_to_multiply_out_are_refused() -> None:
    rule = parse_rule("p(X) :- " + ", ".join(["(q(X) ; r(X))"] * 2000))
    with pytest.raises(DataError, match="more than 10000 alternatives"):
        rule.alternatives()
