"""RDF: terms keep their identity as names, any name becomes a term, and the graph comes back."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import HOSTILE_NAMES, names

from rulewright import read_facts, write_facts
from rulewright.data import KnowledgeBase
from rulewright.errors import DataError, FileError, ParseError, RulewrightError
from rulewright.io import facts, rdf

pyoxigraph = pytest.importorskip("pyoxigraph", reason="RDF needs the extra rdf")

TURTLE = """
@prefix ex: <http://example.org/> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
ex:ann ex:knows ex:bob , _:someone ; ex:age 42 ; a ex:Person ; ex:name "Ann"@en , "Ann" .
ex:bob ex:age "1.5"^^xsd:double ; ex:height 3 , "tall" .
"""
EX = "http://example.org/"


def half(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def test_turtle(tmp_path):
    (tmp_path / "a.ttl").write_text(TURTLE)
    kb = read_facts(tmp_path / "a.ttl")
    assert kb.tuples(f"{EX}age") == [(f"{EX}ann", 42.0), (f"{EX}bob", 1.5)]
    assert kb.tuples(f"{EX}knows") == [(f"{EX}ann", f"{EX}bob"), (f"{EX}ann", "_:someone")]
    assert kb.tuples(f"{EX}name") == [(f"{EX}ann", '"Ann"@en'), (f"{EX}ann", '"Ann"')]
    integer = '"3"^^<http://www.w3.org/2001/XMLSchema#integer>'
    assert kb.tuples(f"{EX}height") == [(f"{EX}bob", integer), (f"{EX}bob", '"tall"')]
    assert kb.tuples("http://www.w3.org/1999/02/22-rdf-syntax-ns#type") == [(f"{EX}ann", f"{EX}Person")]
    for name in ("b.ttl", "b.nt", "b.nt.gz"):
        write_facts(kb, tmp_path / name)
        again = read_facts(tmp_path / name)
        assert sorted(again.facts()) == sorted(kb.facts())


def test_a_base_of_ones_own(tmp_path):
    (tmp_path / "a.ttl").write_text(TURTLE)
    kb = rdf.read(tmp_path / "a.ttl", base=EX)
    assert kb.tuples("knows") == [("ann", "bob"), ("ann", "_:someone")]
    rdf.write(kb, tmp_path / "b.nt", base=EX)
    assert f"<{EX}ann> <{EX}knows> <{EX}bob> ." in (tmp_path / "b.nt").read_text()


values = names | st.floats(allow_nan=False, allow_infinity=False)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.lists(st.tuples(names, names, values), min_size=1, max_size=6))
@example([("urn:rulewright:a", "urn:rulewright:p", "a"), ("a", "p", "urn:rulewright:a")])
@example([("x", "p", '"a"'), ("x", "p", '"a'), ("x", "p", '"a"@en'), ("x", "p", '"a"@en ;')])
@example([("x", "p", "_:b"), ("_:b", "p", "_:"), ("_:c d", "p", "x")])
@example([("a:b", "rdf:type", "%41"), ("A", "p", "http://a b")])
def test_any_graph_comes_back(tmp_path_factory, triples):
    path = tmp_path_factory.mktemp("graph") / "a.nt"
    sayable = [each for each in triples if not half("".join(map(str, each)))]
    kinds = {relation: isinstance(tail, str) for _, relation, tail in reversed(sayable)}
    kept = [each for each in sayable if isinstance(each[2], str) == kinds[each[1]]]
    kb = KnowledgeBase.from_facts([(relation, head, tail) for head, relation, tail in kept])
    literal_head = any(head.startswith('"') for head, *_ in kept)
    try:
        write_facts(kb, path)
    except DataError as error:
        assert literal_head and "a literal is no subject" in str(error)
        return
    if kept:
        assert sorted(read_facts(path).facts()) == sorted(kb.facts())


@pytest.mark.parametrize("name", [name for name in HOSTILE_NAMES if not half(name)])
def test_hostile_names(tmp_path, name):
    kb = KnowledgeBase.from_triples([("x", name, name)])
    write_facts(kb, tmp_path / "a.ttl")
    assert read_facts(tmp_path / "a.ttl").tuples(name) == [("x", name)]


def test_half_characters_are_refused(tmp_path):
    with pytest.raises(FileError, match="half of a character"):
        write_facts(KnowledgeBase.from_triples([("\ud800", "p", "a")]), tmp_path / "a.nt")


@pytest.mark.parametrize("text", ["p(1).", "p(a, b, c).", "p(1, b).", "!p(a, b).", "world w. p(a, b)."])
def test_what_rdf_cannot_say_is_refused(tmp_path, text):
    with pytest.raises(DataError, match="an RDF file has no place for"):
        write_facts(facts.parse(text), tmp_path / "a.nt")
    assert not (tmp_path / "a.nt").exists()


def test_typed_literals_are_attributes(tmp_path):
    (tmp_path / "a.ttl").write_text(
        """@prefix xsd: <http://www.w3.org/2001/XMLSchema#> . @prefix : <urn:rulewright:> .
        :ann :born "1952-07-02"^^xsd:date ; :seen "2019-07-02T14:00:00+02:00"^^xsd:dateTime ; :retired true ;
             :since "1990"^^xsd:gYear ; :mixed 3 .
        :bob :born "1979"^^xsd:gYear ; :retired false ; :since "1991-07"^^xsd:gYearMonth ; :mixed "1979"^^xsd:gYear .
        :cid :born "1980Z"^^xsd:gYear ."""
    )
    kb = read_facts(tmp_path / "a.ttl")
    assert kb.tuples("born") == [("ann", 1952.5), ("bob", 1979.0), ("cid", 1980.0)]
    assert kb.tuples("seen") == [("ann", 2019.5)]
    assert kb.tuples("since") == [("ann", 1990.0), ("bob", pytest.approx(1991 + 181 / 365))]
    assert (kb.tuples("retired"), kb.tuples("retired", truth=False)) == ([("ann",)], [("bob",)])
    assert {tail[0] for _, tail in kb.tuples("mixed")} == {'"'}  # numbers and years do not mix
    assert kb.notes == ("dates in years (2 July 2020 is 2020.5): born, seen, since",)
    write_facts(kb, tmp_path / "b.nt")
    again = read_facts(tmp_path / "b.nt")
    for truth in (True, False):
        assert sorted(again.facts(truth=truth)) == sorted(kb.facts(truth=truth))


def test_dates_that_are_none_stay_names(tmp_path):
    (tmp_path / "a.ttl").write_text(
        '<urn:rulewright:a> <urn:rulewright:p> "2020-02-30"^^<http://www.w3.org/2001/XMLSchema#date> .'
    )
    assert read_facts(tmp_path / "a.ttl").tuples("p")[0][1].startswith('"2020-02-30"')


def test_bad_files(tmp_path):
    (tmp_path / "a.nt").write_text("<http://a> <http://b> <http://c> .\n<http://a> nonsense .\n")
    with pytest.raises(ParseError, match=r"a\.nt:2:"):
        read_facts(tmp_path / "a.nt")
    (tmp_path / "b.ttl").write_text("# nothing\n")
    with pytest.raises(ParseError, match="no triples"):
        read_facts(tmp_path / "b.ttl")
    with pytest.raises(DataError, match="base must be an IRI"):
        rdf.write(KnowledgeBase.from_triples([("a", "p", "b c")]), tmp_path / "a.nt", base="no iri")


def test_numbers_a_double_cannot_hold_stay_names(tmp_path):
    (tmp_path / "a.ttl").write_text("<urn:rulewright:a> <urn:rulewright:p> 12345678901234567891 .")
    assert read_facts(tmp_path / "a.ttl").tuples("p")[0][1].startswith('"12345678901234567891"')


@given(st.binary(max_size=60) | st.text('<>:ab ".\n@_^', max_size=40).map(str.encode))
def test_any_file_is_read_or_an_error_of_ours(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("any") / "a.ttl"
    path.write_bytes(content)
    try:
        read_facts(path)
    except RulewrightError as error:
        assert "\n" not in str(error)
