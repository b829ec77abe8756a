from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rulewright import KnowledgeBase, apply, rank
from rulewright.errors import DataError, RulewrightError
from rulewright.evaluate.ranking import evaluate_ranking
from rulewright.learn.path_mixture.learner import PathMixture
from rulewright.logic import Comparison, Not, Rule, RuleSet, Variable, parse_rules
from rulewright.reason import ranking
from rulewright.reason.ranking import RuleRanker

RULES = """
0.9 :: g(X, Z) :- p(X, Y), p(Y, Z).
0.5 :: g(X, Y) :- q(Y, X).
0.3 :: g(X, Z) :- q(Y, X), p(Y, W), q(W, Z).
0.4 :: g(X, e1) :- p(X, e2).
0.2 :: g(X, e0) :- p(X, Y).
0.6 :: g(e3, Y) :- q(Y, e0).
0.1 :: g(e3, Y) :- q(Y, V), p(V, e1).
"""
graphs = st.sets(st.tuples(st.integers(0, 4), st.sampled_from("pqg"), st.integers(0, 4)), min_size=2, max_size=14)


def kb_of(facts):
    anchors = [(f"e{i}", "other", f"e{i}") for i in range(5)] + [("e4", name, "e4") for name in "pqg"]
    return KnowledgeBase.from_triples(anchors + [(f"e{h}", r, f"e{t}") for h, r, t in sorted(facts)])


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(graphs, st.sampled_from(["max", "noisy-or"]), st.integers(1, 20))
def test_scores_are_those_of_apply(facts, aggregation, memory):
    kb = kb_of(facts)
    rules = parse_rules(RULES)
    ranker = RuleRanker.of(rules, kb, aggregation=aggregation)
    ranker.max_cells = memory
    forward = ranker.scores("g", np.arange(5))
    backward = ranker.scores("g", np.arange(5), inverse=True)
    np.testing.assert_allclose(forward, backward.T)
    labels = next(iter(kb.domains.values())).labels
    new = {fact.args: fact.score for fact in apply(rules, kb, aggregation=aggregation, max_rounds=1)}
    known = set(kb.tuples("g"))
    for h in range(5):
        for t in range(5):
            pair = (labels[h], labels[t])
            if pair not in known:
                assert forward[h, t] == pytest.approx(new.get(pair, 0.0))


def test_weights_are_summed_in_each_direction():
    kb = KnowledgeBase.from_triples([("a", "p", "b"), ("a", "q", "b"), ("c", "g", "d")])
    rules = parse_rules(
        "0.5 :: g(X, Y) :- p(X, Y). @{weight: 2.0, weight_inverse: 0.5}\n1.5 q(X, Y) => !g(X, Y).\n0.25 g(X, d).\n"
    )
    ranker = RuleRanker.of(rules, kb, aggregation="weight")
    ids = {label: place for place, label in enumerate(next(iter(kb.domains.values())).labels)}
    forward = ranker.scores("g", np.array([ids["a"]]))[0]
    assert forward[ids["b"]] == pytest.approx(0.5)
    assert forward[ids["d"]] == pytest.approx(0.25)
    backward = ranker.scores("g", np.array([ids["b"]]), inverse=True)[0]
    assert backward[ids["a"]] == pytest.approx(-1.0)


def speaks(statement, kb, h, t):
    """Whether a statement's body holds for g(h, t), by trying every assignment of entities to variables."""
    labels = next(iter(kb.domains.values())).labels
    rule = statement if isinstance(statement, Rule) else None
    head = rule.head if rule else statement.formula.conclusion
    head = head.formula if isinstance(head, Not) else head
    alternatives = rule.alternatives() if rule else Rule(head, (statement.formula.premise,)).alternatives()
    given = {}
    for term, label in zip(head.args, (labels[h], labels[t]), strict=True):
        if isinstance(term, Variable):
            if given.setdefault(term, label) != label:
                return False
        elif term.name != label:
            return False

    def holds(literal, values):
        unit = literal.unit
        args = [values[term] if isinstance(term, Variable) else term.name for term in unit.args]
        if isinstance(unit, Comparison):
            truth = (args[0] == args[1]) == (unit.operator == "=")
        else:
            truth = kb.contains(str(unit.predicate), *args)
        return truth == literal.positive

    for body in alternatives:
        free = {term for part in body for term in part.unit.args if isinstance(term, Variable)} - set(given)
        for chosen in product(labels, repeat=len(free)):
            values = given | dict(zip(free, chosen, strict=True))
            if all(holds(part, values) for part in body):
                return True
    return False


ANY_RULES = (
    RULES.replace("0.1 ::", "0.3 ::")
    + """
0.9 :: g(X, Y) :- p(X, Y), q(X, Y).
0.8 :: g(X, Y) :- p(X, Z), q(Y, W).
0.7 :: g(X, Y) :- p(X, V), q(V, Y), p(Y, W).
0.5 :: g(X, Y) :- p(X, Y), u(X).
0.5 :: g(X, Y) :- q(X, Y), !p(X, Y).
0.4 :: g(X, Y) :- p(X, Z), p(Z, Y), X != Y.
0.3 :: g(X, Y) :- p(X, Z), q(Z, Y), X != Z, Z != Y.
0.3 :: g(X, Y) :- p(X, V), q(V, W), p(W, Y), V != Y, X != W.
0.2 :: g(X, e1) :- p(X, Y), Y != e1.
0.2 :: g(X, e1) :- p(X, Y), X != Y.
0.2 :: g(e2, X) :- p(X, Z), q(Y, Z), X != Z, Y != Z.
0.2 :: g(X, Y) :- p(X, Y) ; q(Y, X).
hard u(X) & q(X, Y) => g(X, Y).
"""
)


@settings(max_examples=30, deadline=None)
@given(graphs, st.sets(st.integers(0, 4), min_size=1), st.sets(st.integers(0, 19), min_size=1), st.integers(1, 20))
def test_max_plus_is_the_order_of_sorted_confidences(facts, owners, chosen, memory):
    triples = [(r, h, t) for r, (h, t) in kb_of(facts).facts()]
    kb = KnowledgeBase.from_facts([*triples, *(("u", f"e{owner}") for owner in sorted(owners))])
    rules = RuleSet([statement for n, statement in enumerate(parse_rules(ANY_RULES)) if n in chosen])
    ranker = RuleRanker.of(rules, kb)
    assert ranker.aggregation == "max-plus"
    ranker.max_cells = memory
    expected = {
        (h, t): sorted(
            (getattr(statement, "confidence", 1.0) for statement in rules if speaks(statement, kb, h, t)), reverse=True
        )
        for h in range(5)
        for t in range(5)
    }
    forward, backward = ranker.scores("g", np.arange(5)), ranker.scores("g", np.arange(5), inverse=True)
    for (h, t), confidences in expected.items():
        assert forward[h, t] == pytest.approx(max(confidences, default=0), abs=1e-8)
        for other in range(5):
            beside = expected[h, other]
            assert np.sign(forward[h, t] - forward[h, other]) == (confidences > beside) - (confidences < beside)
            beside = expected[other, t]
            assert np.sign(backward[t, h] - backward[t, other]) == (confidences > beside) - (confidences < beside)


@settings(max_examples=30, deadline=None)
@given(graphs, st.integers(0, 9), st.sampled_from([1, 3, 10**6]), st.sampled_from([1, 2, 64]), st.integers(1, 4))
def test_rivals_of_max_plus_are_those_of_its_scores(facts, seed, memory, first_rules, shared):
    train, test = kb_of(facts).hold_out(0.4, seed=seed)
    kb = train.with_splits({"test": test})
    if not kb.split("test").n_facts:
        return

    class Scores:
        def scores(self, *args, **named):
            return ranker.scores(*args, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "_FIRST_RULES", first_rules)
        patch.setattr(ranking, "_SHARED_QUERIES", shared)
        ranker = RuleRanker.of(parse_rules(RULES + RULES.replace("g(", "p(").replace("0.6", "0.5")), kb)
        ranker.max_cells = memory
        counted = evaluate_ranking(ranker, kb)
        scored = evaluate_ranking(Scores(), kb)
    for name in ("relation", "inverse", "higher", "equal"):
        np.testing.assert_array_equal(getattr(counted, name), getattr(scored, name))


def test_a_weight_for_every_pair_is_not_one_for_equal_entities():
    kb = KnowledgeBase.from_triples([("a", "p", "b"), ("c", "g", "d")])
    everyone = RuleRanker.of(parse_rules("1.5 g(X, Y)."), kb).scores("g", np.array([0]))
    assert everyone.tolist() == [[1.5] * 4]
    itself = RuleRanker.of(parse_rules("1.5 X = Y => g(X, Y)."), kb).scores("g", np.array([1]))
    assert itself.tolist() == [[0, 1.5, 0, 0]]


def test_what_cannot_rank_is_refused():
    kb = kb_of({(0, "p", 1)})
    with pytest.raises(DataError, match="a weight is no confidence"):
        RuleRanker.of(parse_rules("2.0 p(X, Y) => g(X, Y)."), kb, aggregation="max")
    with pytest.raises(DataError, match="conclude one atom"):
        RuleRanker.of(parse_rules("2.0 p(X, Y) | g(X, Y)."), kb)
    with pytest.raises(DataError, match="weight is not known"):
        RuleRanker.of(parse_rules("learn p(X, Y) => g(X, Y)."), kb)


def test_ways_are_counted_where_rules_say_so():
    kb = KnowledgeBase.from_triples(
        [("a", "p", "b"), ("a", "p", "c"), ("b", "q", "d"), ("c", "q", "d"), ("x", "g", "d")]
    )
    rule = "0.5 :: g(X, Z) :- p(X, Y), q(Y, Z). @{weight: 1.0, weight_inverse: 1.0, ways: %s}\n"
    ids = {label: place for place, label in enumerate(next(iter(kb.domains.values())).labels)}
    for ways, expected in (("once", 1.0), ("counted", np.log2(3)), ("telling", np.log2(1 + 100 * 2 * 0.5))):
        ranker = RuleRanker.of(parse_rules(rule % ways), kb, aggregation="weight")
        assert ranker.scores("g", np.array([ids["a"]]))[0, ids["d"]] == pytest.approx(expected)
        assert ranker.scores("g", np.array([ids["d"]]), inverse=True)[0, ids["a"]] == pytest.approx(expected)
    with pytest.raises(DataError, match="must agree"):
        RuleRanker.of(parse_rules(rule % "once" + rule.replace("p(X", "q(X") % "telling"), kb, aggregation="weight")
    with pytest.raises(DataError, match="ways must be one of"):
        RuleRanker.of(parse_rules(rule % "often"), kb, aggregation="weight")


def test_bad_options_are_refused():
    with pytest.raises(DataError, match="aggregation must be"):
        RuleRanker.of(parse_rules(RULES), kb_of({(0, "p", 1)}), aggregation="sum")


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(graphs, st.sampled_from(["max", "noisy-or"]), st.booleans(), st.booleans(), st.integers(0, 4))
def test_answers_are_those_of_apply_with_their_rules(facts, aggregation, inverse, known, number):
    kb, entity = kb_of(facts), f"e{number}"
    rules = parse_rules(RULES)
    query = f"g(X, {entity})" if inverse else f"g({entity}, X)"
    answers = rank(rules, kb, query, aggregation=aggregation, known=known)
    asked, wanted = (1, 0) if inverse else (0, 1)
    others = KnowledgeBase.from_triples((h, r, t) for r, (h, t) in kb.facts() if r != "g")  # so that all of g is new
    expected = {
        fact.args[wanted]: fact
        for fact in apply(rules, others, aggregation=aggregation, max_rounds=1)
        if fact.args[asked] == entity and (known or not kb.contains("g", *fact.args))
    }
    assert {answer.entity: pytest.approx(answer.score) for answer in answers} == {
        label: fact.score for label, fact in expected.items()
    }
    for answer in answers:
        assert sorted(map(str, answer.reasons)) == sorted(map(str, expected[answer.entity].rules))
        confidences = [reason.confidence for reason in answer.reasons]
        assert confidences == sorted(confidences, reverse=True)
    scores = [answer.score for answer in answers]
    assert scores == sorted(scores, reverse=True)


@pytest.fixture
def family() -> KnowledgeBase:
    return KnowledgeBase.from_triples(
        [("ann", "parent_of", "bob"), ("bob", "parent_of", "cid"), ("bob", "parent_of", "<b>")]
    )


GRANDPARENTS = """
0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).
0.5 :: parent_of(X, Y) :- parent_of(Y, X).
"""


def test_answers_are_read_as_text_frame_and_table(family):
    answers = rank(parse_rules(GRANDPARENTS), family, "grandparent_of(ann, X)")
    assert [answer.entity for answer in answers] == ["cid", "<b>"]
    assert repr(answers) == "Answers(grandparent_of(ann, X): cid  0.9, <b>  0.9)"
    assert str(answers).splitlines()[:2] == ["grandparent_of(ann, X): 2 answers", "cid  0.9"]
    assert answers[:1][0] is answers[0] and len(rank(parse_rules(GRANDPARENTS), family, answers.query, count=1)) == 1
    frame = answers.to_frame("polars")
    assert frame.columns == ["head", "relation", "tail", "score", "rules"]
    assert frame.rows()[0][:4] == ("ann", "grandparent_of", "cid", 0.9)
    assert frame["rules"][0].startswith("0.9 :: grandparent_of")
    inferred = apply(parse_rules(GRANDPARENTS), family).to_frame("polars")
    assert [name for name in inferred.columns if name != "round"] == frame.columns
    asked_back = rank(parse_rules(GRANDPARENTS), family, "grandparent_of(X, cid)").to_frame("polars")
    assert asked_back.rows()[0][:3] == ("ann", "grandparent_of", "cid")
    assert "&lt;b&gt;" in answers._repr_html_() and "<b>" not in answers._repr_html_()
    nobody = rank(parse_rules(GRANDPARENTS), family, "grandparent_of(cid, X)")
    assert not nobody and str(nobody) == "grandparent_of(cid, X) has no answer"


def test_known_answers_are_left_out_unless_wanted(family):
    rule = parse_rules(GRANDPARENTS).rules[1]
    assert [answer.entity for answer in rank(rule, family, "parent_of(bob, X)")] == ["ann"]
    both = KnowledgeBase.from_triples([("ann", "spouse_of", "al"), ("al", "spouse_of", "ann")])
    symmetric = parse_rules("0.5 :: spouse_of(X, Y) :- spouse_of(Y, X).").rules
    assert not rank(symmetric, both, "spouse_of(ann, X)")
    assert rank(symmetric, both, "spouse_of(ann, X)", known=True)[0].entity == "al"


def test_a_learner_that_ranks_answers_by_its_weights():
    facts = [(f"a{n}", "p", f"b{n}") for n in range(9)] + [(f"b{n}", "q", f"a{n}") for n in range(8)]
    kb = KnowledgeBase.from_triples(facts)
    mixture = PathMixture(max_length=1, constants=0).fit(kb)
    answers = rank(mixture, kb, "q(b8, X)")
    assert answers[0].entity == "a8" and "p(" in str(answers[0].reasons[0])
    assert [(answer.entity, pytest.approx(answer.score)) for answer in answers] == mixture.ranker_.answers("q", "b8")


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("parent_off(ann, X)", "did you mean 'parent_of'"),
        ("parent_of(anne, X)", "did you mean 'ann'"),
        ("parent_of(X, anne)", "did you mean 'ann'"),
        ("parent_of(Ann, X)", "unknown entity .Ann.; did you mean .ann."),
        ("parent_of(ann, bob)", "a query has an entity and a variable"),
        ("parent_of(X, Y)", "a query has an entity and a variable"),
        ("parent_of(ann, 3)", "a query has an entity and a variable"),
        ("parent_of(ann)", "expected a query such as"),
        ("!parent_of(ann, X)", "expected a query such as"),
    ],
)
def test_what_is_no_query_is_refused(family, query, message):
    with pytest.raises(RulewrightError, match=message):
        rank(parse_rules(GRANDPARENTS), family, query)


def test_bad_options_of_rank_are_refused(family):
    with pytest.raises(DataError, match="count must be >= 1, got 0"):
        rank(parse_rules(GRANDPARENTS), family, "parent_of(ann, X)", count=0)
    with pytest.raises(DataError, match="aggregation must be"):
        rank(parse_rules(GRANDPARENTS), family, "parent_of(ann, X)", aggregation="sum")


def test_names_need_no_quotes_where_they_are_known():
    kb = KnowledgeBase.from_triples([("Q42", "P27", "Q145"), ("Q42", "P1", "Paris, Texas"), ("/m/1", "/a/b", "/m/2")])
    rules = parse_rules(
        "0.5 :: 'P27'(X, Y) :- 'P1'(X, Y). 0.5 :: 'P1'(X, Y) :- 'P27'(X, Y). 1 :: '/a/b'(X, Y) :- '/a/b'(Y, X)."
    )
    assert rank(rules, kb, "P27(Q42, X)")[0].entity == "Paris, Texas"
    assert rank(rules, kb, "P27(X, Paris, Texas)")[0].entity == "Q42"
    assert not rank(rules, kb, "P27(Paris, Texas, X)")
    assert rank(rules, kb, "'P1'('Q42', X)")[0].entity == "Q145"
    assert rank(rules, kb, "/a/b(/m/2, ?)")[0].entity == "/m/1"


def test_unary_predicates_are_asked_too():
    kb = KnowledgeBase.from_facts(
        [("father_of", "al", "bo"), ("father_of", "cy", "di"), ("male", "al"), ("rich", "cy")]
    )
    rules = parse_rules(
        "0.9 :: male(X) :- father_of(X, Y). 0.4 :: male(X) :- rich(X). 0.4 :: male(X) :- father_of(Y, X)."
    )
    answers = rank(rules, kb, "male(X)")
    assert answers.to_frame("polars").columns == ["predicate", "arg1", "score", "rules"]
    assert [(answer.entity, answer.score) for answer in answers] == [("cy", 0.9), ("bo", 0.4), ("di", 0.4)]
    assert [str(part) for part in answers.premises(2)[0][1]] == ["rich(cy)"]
    assert rank(rules, kb, "male(X)", known=True)[0].entity == "cy" and len(rank(rules, kb, "male(X)", known=True)) == 4
    assert rank(rules, kb, "male(X)", aggregation="noisy-or")[0].score == pytest.approx(1 - 0.1 * 0.6)
    assert rank(rules, kb, "male(X)", aggregation="weight")[0].score == pytest.approx(-np.log(0.1) - np.log(0.6))
    with pytest.raises(DataError, match="a variable for the answer"):
        rank(rules, kb, "male(al)")


def test_reasons_against_are_shown_with_what_they_take_away():
    kb = KnowledgeBase.from_triples([("a", "p", "b"), ("a", "q", "b"), ("c", "g", "d")])
    rules = parse_rules("0.5 :: g(X, Y) :- p(X, Y). @{weight: 2.0}\n1.5 q(X, Y) => !g(X, Y).")
    (answer,) = rank(rules, kb, "g(a, X)")
    assert answer.score == 0.5 and answer.strengths == (2.0, -1.5)
    assert [[str(part) for part in body] for body in rank(rules, kb, "g(a, X)").premises(2)[0]] == [
        ["p(a, b)"],
        ["q(a, b)"],
    ]


def test_what_must_be_absent_and_only_rules_conclude_is_found_first() -> None:
    rules = parse_rules("has_b(X) :- b(X, Y). 0.9 :: t(X) :- a(X), !has_b(X). 0.5 :: s(X, Y) :- e(X, Y), !has_b(Y).")
    facts = [("a", "x"), ("a", "y"), ("b", "x", "z"), ("e", "z", "x"), ("e", "z", "y")]
    kb = KnowledgeBase.from_facts(facts)
    assert [answer.entity for answer in rank(rules, kb, "t(X)")] == ["y"]
    assert [answer.entity for answer in rank(rules, kb, "s(z, X)")] == ["y"]
    assert [fact.args for fact in apply(rules, kb) if fact.predicate == "t"] == [("y",)]
