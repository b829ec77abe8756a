"""The rules of AnyBURL and AMIE: read as they are, written so that they read back, refused where they would not."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import names

from rulewright import KnowledgeBase, apply, read_rules
from rulewright.errors import DataError, ParseError, RulewrightError
from rulewright.io import holds_rules, write_rules
from rulewright.io.mined_rules import (
    assume_identity,
    parse_amie,
    parse_anyburl,
    write_amie_line,
    write_anyburl_line,
)
from rulewright.logic import Annotations, Atom, Rule, RuleSet, Symbol, Variable, parse_rule, parse_rules

ANYBURL = (
    "98\t92\t0.9387755102040817\t/people/parent(X,Y) <= /people/spouse(X,A), /people/parent(A,Y)\n"
    "12\t7\t0.5833333333333334\tlives_in(X,Paris_(France)) <= works_in(X,Paris, Texas)\n"
    "3\t3\t1.0\tlives_in(ann,Y) <= knows(Y,A)\n"
)
AMIE = (
    "Using HeadCoverage as pruning metric with minimum threshold 0.01\n"
    "Rule\tHead Coverage\tStd Confidence\tPCA Confidence\tPositive Examples\tBody size\tPCA Body size\t"
    "Functional variable\n"
    "?e  <hasChild>  ?b  ?e  <isMarriedTo>  ?a   => ?a  <hasChild>  ?b\t0.25\t0.5\t0.75\t2.0\t4\t3\t?b\n"
    "?a  <livesIn>  <New York>   => ?a  <speaks>  <English>\t0.1\t0.9\t0.9\t9\t10\t10\t?a\n"
    "Mining done in 1.5 s\n"
)


def test_anyburl(tmp_path):
    (tmp_path / "rules-100").write_text(ANYBURL)
    assert holds_rules(tmp_path / "rules-100")
    assert read_rules(tmp_path / "rules-100") == parse_rules("""
        0.9387755102040817 :: '/people/parent'(X, Y) :- '/people/spouse'(X, A), '/people/parent'(A, Y),
            X != Y, X != A, Y != A. @{support: 92, body: 98}
        0.5833333333333334 :: lives_in(X, 'Paris_(France)') :- works_in(X, 'Paris, Texas'). @{support: 7, body: 12}
        lives_in(ann, Y) :- knows(Y, A), Y != A. @{support: 3, body: 3}
    """)


def test_amie(tmp_path):
    (tmp_path / "mined.tsv").write_text(AMIE)
    assert holds_rules(tmp_path / "mined.tsv")
    assert read_rules(tmp_path / "mined.tsv") == parse_rules("""
        0.5 :: '<hasChild>'(A, B) :- '<hasChild>'(E, B), '<isMarriedTo>'(E, A).
            @{coverage: 0.25, pca: 0.75, support: 2, body: 4, pca_body: 3}
        0.9 :: '<speaks>'(A, '<English>') :- '<livesIn>'(A, '<New York>').
            @{coverage: 0.1, pca: 0.9, support: 9, body: 10, pca_body: 10}
    """)


def test_one_blank_between_terms_will_do():
    assert parse_amie("?a p ?b ?b q ?c => ?a r ?c").rules == (parse_rule("r(A, C) :- p(A, B), q(B, C)."),)


def test_facts_are_no_rules(tmp_path):
    (tmp_path / "a.tsv").write_text("ann\tparent_of\tbob\n")
    assert not holds_rules(tmp_path / "a.tsv")


def test_different_variables_are_different_entities():
    rules = parse_anyburl("9\t3\t0.3\tnear(X,Y) <= near(X,A), near(A,Y)")
    kb = KnowledgeBase.from_triples([("a", "near", "b"), ("b", "near", "a"), ("b", "near", "c"), ("c", "near", "c")])
    assert {fact.args for fact in apply(rules, kb)} == {("a", "c")}  # neither a near a, nor anything by way of c, c
    assert [rule.canonical() for rule in parse_anyburl(write_anyburl_line(rules[0])).rules] == [rules[0].canonical()]


@pytest.mark.parametrize("head", ["p(X,ann)", "p(ann,Y)"])
def test_rules_without_a_body(head):
    (rule,) = parse_anyburl(f"10\t4\t0.4\t{head} <= ").rules
    kb = KnowledgeBase.from_triples(
        [("bob", "p", "ann"), ("ann", "p", "cid"), ("ann", "p", "dan"), ("eva", "p", "eva")]
    )
    heads, tails = (set(column) for column in zip(*kb.tuples("p"), strict=True))
    expected = {(head, "ann") for head in heads} if head.startswith("p(X") else {("ann", tail) for tail in tails}
    assert {fact.args for fact in apply(RuleSet([rule]), kb)} == expected - set(kb.tuples("p"))
    assert write_anyburl_line(rule) == f"10\t4\t0.4\t{head.replace('Y', 'X')} <= "
    assert parse_anyburl(write_anyburl_line(rule)).rules[0].canonical() == rule.canonical()


def test_inequality_is_a_relation_of_amie():
    text = "0.9 :: p(X, Y) :- q(X, Z), q(Y, Z), X != Y. @{support: 9, body: 10}"
    line = write_amie_line(parse_rule(text))
    assert line.startswith("?a  q  ?c  ?b  q  ?c  ?a  differentFrom  ?b   => ?a  p  ?b")
    assert parse_amie(line).rules[0].canonical() == parse_rule(text).canonical()


variables = st.sampled_from("XYZW").map(Variable)
terms = variables | names.map(Symbol)


@st.composite
def conjunctive_rules(draw):
    some_names = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    body = [
        Atom(draw(st.sampled_from(some_names)), (draw(variables), draw(terms))) for _ in range(draw(st.integers(1, 4)))
    ]
    bound = st.sampled_from([atom.args[0] for atom in body])
    head = Atom(draw(st.sampled_from(some_names)), (draw(bound), draw(bound | names.map(Symbol))))
    counts = {"support": draw(st.integers(0, 10**9)), "body": draw(st.integers(0, 10**9))}
    return Rule(head, tuple(body), draw(st.floats(0, 1)), Annotations(counts))


@pytest.mark.slow
@settings(max_examples=150)
@given(conjunctive_rules(), st.sampled_from(["anyburl", "amie"]))
def test_what_is_written_is_read_or_refused(tmp_path_factory, rule, format):
    path = tmp_path_factory.mktemp("rules") / "written"
    try:
        write_rules(RuleSet([rule]), path, format=format)
    except RulewrightError as error:
        assert "\n" not in str(error)
        return
    (again,) = read_rules(path, format=format).rules
    expected = assume_identity(rule) if format == "anyburl" else rule
    assert again.canonical() == expected.canonical()
    assert again.confidence == rule.confidence
    assert (again.annotations["support"], again.annotations["body"]) == (rule.support, rule.annotations["body"])


@settings(max_examples=50)
@given(conjunctive_rules(), st.sampled_from([(parse_anyburl, write_anyburl_line), (parse_amie, write_amie_line)]))
def test_plain_names_are_never_refused(rule, functions):
    parse, write_line = functions
    plain = {
        name: f"n{place}"
        for place, name in enumerate(sorted({str(part.predicate) for part in (rule.head, *rule.body)}))
    }

    def renamed(atom):
        args = tuple(Symbol("New York") if isinstance(term, Symbol) else term for term in atom.args)
        return Atom(plain[str(atom.predicate)], args)

    simple = Rule(renamed(rule.head), tuple(map(renamed, rule.body)), rule.confidence, rule.annotations)
    expected = assume_identity(simple) if parse is parse_anyburl else simple
    assert parse(write_line(simple)).rules[0].canonical() == expected.canonical()


@pytest.mark.parametrize("write_line", [write_anyburl_line, write_amie_line])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p(X) :- q(X). @{support: 1, body: 1}", "only relations of two arguments"),
        ("p(X, Y) :- q(X, Y), !r(X, Y). @{support: 1, body: 1}", "only relations of two arguments"),
        ("p(X, Y) :- q(X, Y), X != a. @{support: 1, body: 1}", "cannot say X != a"),
        ("p(X, Y) :- q(X, Y), X < Y. @{support: 1, body: 1}", "cannot say X < Y"),
        ("p(X, 3) :- q(X, Y). @{support: 1, body: 1}", "has no numbers"),
        ("hard p(X, Y) => q(X, Y).", "no formulas or templates"),
        (r"p(X, 'a\tb') :- q(X, Y). @{support: 1, body: 1}", "would be misread"),
        ("p(X, '') :- q(X, Y). @{support: 1, body: 1}", "would be misread"),
    ],
)
def test_what_cannot_be_said_is_refused(write_line, text, message):
    with pytest.raises(DataError, match=message):
        write_line(parse_rules(text)[0])


def test_anyburl_needs_counts():
    with pytest.raises(DataError, match="counts body and support, which are missing"):
        write_anyburl_line(parse_rule("p(X, Y) :- q(X, Y)."))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\t1\t0.5", "found 3 columns, expected 4"),
        ("1\tx\t0.5\tp(X,Y) <= q(X,Y)", "support must be a whole number, got 'x'"),
        ("1\t1\thigh\tp(X,Y) <= q(X,Y)", "the confidence must be a number in [0, 1], got 'high'"),
        ("1\t1\tnan\tp(X,Y) <= q(X,Y)", "the confidence must be a number in [0, 1], got 'nan'"),
        ("1\t1\t0.5\tp(X,Y) <= ", "a rule without a body"),
        ("1\t1\t0.5\tp(X,Y) q(X,Y)", "expected head <= body"),
        ("1\t1\t0.5\tp(X,Y,Z) <= q(X,Y)", "read in one way only"),
        ("1\t1\t0.5\tp(X,Y) <= q(X,a,Y)", "read in one way only"),
        ("1\t1\t0.5\tp(X,Y) <= q(X,A)", "head variable Y is not bound"),
    ],
)
def test_a_bad_line_of_anyburl(line, message):
    with pytest.raises(ParseError) as caught:
        parse_anyburl(f"1\t1\t0.5\tr(X,Y) <= s(X,Y)\n{line}", file="rules-10")
    assert str(caught.value).startswith("rules-10:2: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("?a  p  ?b   => ?a  q\t0.5", "expected body => head"),
        ("   => ?a  q  ?b\t0.5", "expected body => head"),
        ("?a  p  ?b   => ?a  q  ?b\t1.5", "coverage must be a number in [0, 1], got '1.5'"),
        ("?a  p  ?b   => ?a  q  ?b\t0.5\t0.5\t0.5\tmany", "support must be a whole number, got 'many'"),
        ("?a  p  ?b   => ?a  q  ?c\t0.5", "head variable C is not bound"),
        ("ann\tparent_of\tbob", "expected a rule such as"),
    ],
)
def test_a_bad_line_of_amie(line, message):
    with pytest.raises(ParseError) as caught:
        parse_amie(f"?a  r  ?b   => ?a  s  ?b\t0.5\n{line}", file="amie.tsv")
    assert str(caught.value).startswith("amie.tsv:2: ")
    assert message in str(caught.value)


@given(st.text() | st.text("?ab =>\t\n01.<(),XY", max_size=50))
def test_any_text_is_rules_or_an_error_of_ours(text):
    for parse in (parse_anyburl, parse_amie):
        try:
            parse(text)
        except RulewrightError as error:
            assert "\n" not in str(error)
