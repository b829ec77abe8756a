from __future__ import annotations

import itertools

import numpy as np
import pytest

from rulewright.errors import DataError, UnknownNameError
from rulewright.inject.atom_space import AtomSpace
from rulewright.inject.atoms.clauses import ClauseAtom, read_clauses
from rulewright.logic import Rule, parse_rule, parse_rules, parse_template

NAMES = ("a", "b", "c")


def read(text, *, keep_confidences=False, relations=NAMES, domains=None, distinct=None):
    space = AtomSpace(text, relations=relations, domains=domains, distinct=distinct)
    return read_clauses(space, reader="RuleDecoder", keep_confidences=keep_confidences)


def sides(text, **options):
    return [(clause.body, clause.heads) for clause in read(text, **options)]


def a(*args):
    return ClauseAtom("a", args)


def b(*args):
    return ClauseAtom("b", args)


def c(*args):
    return ClauseAtom("c", args)


def test_a_chain():
    (clause,) = read("0.9 :: c(X, Z) :- a(X, Y), b(Z, Y).")
    assert clause.body == (a(0, 1), b(2, 1))
    assert clause.heads == (c(0, 2),)
    assert clause.variables == ("X", "Y", "Z")
    assert clause.types == ("entity",) * 3
    assert set(clause.apart) == {(0, 1), (0, 2), (1, 2)}
    assert clause.confidence == 0.9
    assert isinstance(clause.source, Rule)


def test_alternatives_are_clauses_of_their_own():
    assert sides("c(X, Y) :- a(X, Y) ; b(Y, X).") == sides("c(X, Y) :- a(X, Y). c(X, Y) :- b(Y, X).")


def test_hard_formulas():
    assert sides("hard a(X, Y) => b(X, Y).") == sides("b(X, Y) :- a(X, Y).")
    assert len(sides("hard a(X, Y) <=> b(Y, X).")) == 2
    assert sides("hard !(a(X, Y) & b(X, Y)).") == [((a(0, 1), b(0, 1)), ())]
    assert sides("hard a(X, Y) | a(Y, X).") == [((), (a(0, 1), a(1, 0)))]


def test_negated_body_atoms_are_heads():
    ((body, heads),) = sides("c(X, Y) :- a(X, Y), !b(X, Y).")
    assert body == (a(0, 1),)
    assert set(heads) == {b(0, 1), c(0, 1)}


def test_duplicates_are_merged():
    text = "0.9 :: c(X, Z) :- a(X, Y), b(Y, Z). 0.9 :: c(P, R) :- b(Q, R), a(P, Q). 0.8 :: c(X, Z) :- a(X, Y), b(Y, Z)."
    assert len(read(text)) == 1
    assert [clause.confidence for clause in read(text, keep_confidences=True)] == [0.9, 0.8]
    assert len(read("hard !(a(X, Y) & b(X, Y)). hard !(b(P, Q) & a(P, Q)).")) == 1
    assert len(read("hard !(a(X, Y) & b(X, Y)). hard !(b(P, Q) & a(Q, P)).")) == 2
    assert len(read("a(X, Y) :- b(X, Y). hard b(X, Y) => a(X, Y).", keep_confidences=True)) == 1


def test_comparisons_tell_clauses_apart():
    text = "hard p(X) & p(Y) => q(X). hard p(X) & p(Y) & X != Y => q(X). hard p(U) & p(V) & V != U => q(U)."
    assert len(read(text, relations=None)) == 2


def test_what_always_holds_is_left_out():
    assert read("a(X, Y) :- a(X, Y), b(Y, Z).") == ()
    assert sides("c(X, Y) :- a(X, Y), X != Y.") == sides("c(X, Y) :- a(X, Y).")
    assert read("c(X, Y) :- a(X, Y), X = Y.") == ()
    assert sides("hard a(X, Y) & a(X, Z) => Y = Z.") == sides("hard !(a(X, Y) & a(X, Z)).")


def test_repeated_atoms_count_once():
    assert sides("c(X, Y) :- a(X, Y), a(X, Y).") == sides("c(X, Y) :- a(X, Y).")


def test_any_arity_and_constants():
    domains = {"entity": ["ann", "bob"]}
    (clause,) = read("hard p(X) & t(X, bob, Y) => a(X, Y) | p(ann).", relations=None, domains=domains)
    assert clause.body == (ClauseAtom("p", (0,)), ClauseAtom("t", (0, ~1, 1)))
    assert clause.heads == (a(0, 1), ClauseAtom("p", (~0,)))
    assert clause.apart == ()


def test_with_relations_other_predicates_are_taken_once_declared():
    (clause,) = read("predicate p(entity). closed q. a(X, Y) :- p(X), q(X), b(X, Y).")
    assert {atom.predicate for atom in clause.body} == {"p", "q", "b"}


def test_equality_of_terms_binds_them():
    domains = {"entity": ["ann", "bob"]}
    options = {"relations": None, "domains": domains}
    assert sides("hard a(X, Y) & X = Y => b(X, Y).", **options) == [((a(0, 0),), (b(0, 0),))]
    assert sides("hard a(X, Y) & X = bob => b(X, Y).", **options) == [((a(~1, 0),), (b(~1, 0),))]
    (clause,) = read("hard a(X, Y) => X = ann | Y = X.", **options)
    assert clause.body == (a(0, 1),) and set(clause.apart) == {(0, ~0), (0, 1)}


def test_classes_of_one_atom_are_joined():
    declared = "predicate t(word) in {x, y, z}. predicate next(word, word). "

    def t(variable, *classes):
        return ClauseAtom("t", (variable,), frozenset(classes))

    options = {"relations": None}
    assert sides(declared + "hard t(X) in {x, y} => t(X) in {x}.", **options) == [((t(0, 1),), ())]
    assert sides(declared + "hard t(X) in {x} | t(X) in {y}.", **options) == [((), (t(0, 0, 1),))]
    assert sides(declared + "hard !(t(X) in {x} & t(X) in {y}).", **options) == []
    assert sides(declared + "hard t(X) in {x, y, z} | next(X, X).", **options) == []
    (clause,) = read(declared + "hard next(X, Y) & t(X) in {x} => t(Y) in {y, z}.", **options)
    assert clause.body[1] == t(0, 0) and clause.heads == (t(1, 1, 2),)
    assert clause.types == ("word", "word")


@pytest.mark.parametrize("distinct", [False, True])
def test_a_clause_is_asked_where_its_comparisons_hold(distinct):
    names = ["3", "10", "7"]
    text = "hard older(X, Y) & p(Z) & X > Y & Z != 10 & Y < 8 => p(X)."
    (clause,) = read(text, relations=None, domains={"entity": names}, distinct=distinct)
    grid = clause.is_asked(np.ix_(*[np.arange(3)] * 3))
    numbers = [float(name) for name in names]
    for x, y, z in itertools.product(range(3), repeat=3):
        asked = numbers[x] > numbers[y] and z != 1 and numbers[y] < 8
        assert grid[x, y, z] == (asked and (not distinct or len({x, y, z}) == 3))


def test_variables_can_be_reordered():
    (clause,) = read("hard a(X, Y) & X < Y & Y != 3 => b(Y, X).", relations=None, domains={"entity": ["1", "2", "3"]})
    turned = clause.reorder_variables([1, 0])
    assert turned.body == (a(1, 0),) and turned.heads == (b(0, 1),) and turned.variables == ("Y", "X")
    for entities in itertools.product(range(3), repeat=2):
        assert turned.is_asked(entities) == clause.is_asked(entities[::-1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a(X, ann) :- b(X, Y).", r"the constant ann needs the names of type entity.*, in: b\(X, Y\) => a"),
        ("a(X, Y) :- b(X, Y), c(Y, 3).", "the constant 3 needs the names of type entity"),
        ("a(X, Y) :- b(X, Y), X < Y.", "needs the names of type entity as numbers to decide X < Y"),
        ("a(X, Y) :- b(X, Y), X = ann.", "the constant ann needs the names of type entity"),
        ("a(X, X) :- b(X, Y).", r"no label for an entity with itself, as a\(X, X\) asks in: a"),
        ("2.5 a(X, Y) => b(X, Y).", "a weight is no confidence; use a LogicLayer for: 2.5"),
        ("learn a(X, Y) => b(X, Y).", "the weight is not known; use a LogicLayer for: learn"),
        ("hard X = Y | X = Z.", "no two different entities can satisfy hard"),
        ("hard a(X, Y) | X = Z.", "variable Z occurs only in a comparison, so it has no type"),
    ],
)
def test_what_is_refused_by_name(text, message):
    with pytest.raises(DataError, match=message):
        read(text)


def test_orders_need_numbers():
    with pytest.raises(DataError, match="compares numbers, and not all of X are, in: hard"):
        read("hard p(X) & X > 3 => q(X).", relations=None, domains={"entity": ["ann", "3"]})


def test_unknown_relations_list_near_names():
    with pytest.raises(UnknownNameError, match="unknown relation 'parent_off'; did you mean 'parent_of'"):
        read("parent_of(X, Y) :- parent_off(Y, X).", relations=["parent_of"])


def test_templates_are_refused():
    template = parse_template("template a(X, Y) :- ?P(X, Y) where ?P in {b}.")
    with pytest.raises(DataError, match="a template is not a formula until its predicates are found"):
        AtomSpace([template], relations=NAMES)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("abc", "relations must be a sequence of names, got the string 'abc'"),
        (["a", "a"], "relations must differ, got 'a' twice"),
        ([], "relations must name at least one relation"),
        ([1], "relations must be names, got 1"),
    ],
)
def test_relations_must_be_names(names, message):
    with pytest.raises(DataError, match=message):
        read("a(X, Y) :- b(X, Y).", relations=names)


def test_one_rule_a_list_and_a_set_are_taken():
    rule = parse_rule("a(X, Y) :- b(X, Y).")
    assert read(rule) == read([rule]) == read(parse_rules(str(rule)))
