import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rulewright.errors import DataError, FileError, ParseError, RulewrightError
from rulewright.io.conll import (
    Sentence,
    Span,
    bioes,
    bioes_classes,
    parse,
    read,
    spans,
    to_bioes,
    to_knowledge_base,
)

DATA = Path(os.environ.get("RULEWRIGHT_DATA") or Path(__file__).parents[2].parent / "shared" / "data")
needs_conll = pytest.mark.skipif(not (DATA / "conll2003").is_dir(), reason="needs CoNLL-2003: set RULEWRIGHT_DATA")

TEXT = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
-DOCSTART- -X- -X- O

BRUSSELS NNP I-NP I-LOC
"""

kinds = st.sampled_from(["PER", "LOC"])
any_tags = st.lists(st.just("O") | st.builds("{}-{}".format, st.sampled_from("BIES"), kinds))


@st.composite
def marked(draw):
    """Return spans that do not overlap, and a length they fit into."""
    position, found = 0, []
    for gap, size, kind in draw(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3), kinds), max_size=6)):
        found.append(Span(position + gap, position + gap + size, kind))
        position += gap + size
    return tuple(found), position + draw(st.integers(0, 2))


def slow_iob(found, length, *, always_begin):
    tags = []
    for position in range(length):
        inside = [span for span in found if span.start <= position < span.end]
        if not inside:
            tags.append("O")
            continue
        (span,) = inside
        touches_its_like = any(other.end == span.start and other.type == span.type for other in found)
        begins = position == span.start and (always_begin or touches_its_like)
        tags.append(f"{'B' if begins else 'I'}-{span.type}")
    return tags


def slow_bioes(found, length):
    tags = []
    for position in range(length):
        prefix, kind = "O", ""
        for span in found:
            if span.start <= position < span.end:
                first, last = position == span.start, position == span.end - 1
                prefix = {(True, True): "S-", (True, False): "B-", (False, True): "E-"}.get((first, last), "I-")
                kind = span.type
        tags.append(prefix + kind)
    return tuple(tags)


@given(marked())
def test_spans_survive_every_scheme(case):
    found, length = case
    expected = slow_bioes(found, length)
    assert bioes(found, length) == expected
    for tags in (slow_iob(found, length, always_begin=False), slow_iob(found, length, always_begin=True), expected):
        assert spans(tags) == found
        assert to_bioes(tags) == expected


@given(any_tags)
def test_tags_that_follow_no_scheme_are_read_all_the_same(tags):
    found = spans(tags)
    converted = to_bioes(tags)
    assert [tag == "O" for tag in converted] == [tag == "O" for tag in tags]
    assert [tag[2:] for tag in converted] == [tag[2:] for tag in tags]
    assert spans(converted) == found
    assert to_bioes(converted) == converted


def test_ill_formed_tags_and_spans_are_refused():
    for tag in ("X-PER", "PER", "B", "B-", ""):
        with pytest.raises(DataError, match="at position 1"):
            spans(["O", tag])
    for wrong in ([Span(0, 3, "A")], [Span(1, 1, "A")], [Span(-1, 1, "A")], [Span(0, 2, "A"), Span(1, 2, "B")]):
        with pytest.raises(DataError, match="within 2 tokens and not overlap"):
            bioes(wrong, 2)


def test_sentences_and_documents():
    eu, peter, brussels = parse(TEXT)
    assert eu == Sentence(("EU", "rejects"), ("NNP", "VBZ"), ("I-NP", "I-VP"), ("I-ORG", "O"), 0)
    assert peter.tokens == ("Peter", "Blackburn") and peter.document == 0
    assert brussels.document == 1
    assert len(eu) == 2


def test_documents_count_alike_wherever_their_marks_stand():
    marks_after = "EU NNP I-NP I-ORG\n\n-DOCSTART- -X- O O\n\nUN NNP I-NP I-ORG\n\n-DOCSTART- -X- O O"
    assert [sentence.document for sentence in parse(marks_after)] == [0, 1]


def test_other_columns():
    (sentence,) = parse("1\tEU\tx\tB-ORG\r\n2\tvs\tx\tO", columns=("_", "token", "_", "tag"))[:1]
    assert sentence.tokens == ("EU", "vs") and sentence.pos == sentence.chunks == ()
    assert parse("a\xa0b\n", columns=["token"])[0].tokens == ("a\xa0b",)
    for columns in (("pos",), ("token", "token"), ("token", "word")):
        with pytest.raises(DataError, match="columns are token and any of pos, chunk, tag"):
            parse(TEXT, columns=columns)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "eng.txt: no sentences; expected lines of token pos chunk tag"),
        ("\n \n\t\n", "eng.txt: no sentences"),
        ("-DOCSTART- -X- O O\n", "eng.txt: no sentences"),
        ("EU NNP I-NP O\n\nUN NNP O\n", "eng.txt:3: expected 4 columns (token pos chunk tag), got 3"),
        ("EU NNP I-NP O O\n", "eng.txt:1: expected 4 columns"),
        ("EU NNP I-NP O\nUN NNP I-NP ORG\n", "eng.txt:2: a tag is O or B-, I-, E- or S- with a type, got 'ORG'"),
    ],
)
def test_bad_text_is_reported_by_line(text, message):
    with pytest.raises(ParseError) as caught:
        parse(text, file="eng.txt")
    assert str(caught.value).startswith(message)


def test_files_that_hold_no_sentences(tmp_path):
    with pytest.raises(FileError):
        read(tmp_path / "none")
    for content, message in ((b"\x89PNG\x00\x00", "a binary file"), (b"EU NNP O O\ncaf\xe9 NN O O", ":2: byte 0xe9")):
        (tmp_path / "eng.txt").write_bytes(content)
        with pytest.raises(ParseError, match=message):
            read(tmp_path / "eng.txt")


def test_columns_of_a_sentence_must_agree():
    with pytest.raises(DataError, match="a sentence of 2 tokens has 1 tags"):
        Sentence(("a", "b"), tags=("O",))


@given(st.text() | st.text("EU NOI-PER\n\t-DOCSTART-", max_size=60))
def test_any_text_is_sentences_or_an_error_of_ours(text):
    try:
        to_knowledge_base(parse(text))
        to_knowledge_base(parse(text, columns=("token", "tag")))
    except RulewrightError as error:
        assert "\n" not in str(error)


def test_knowledge_base():
    eu, peter, brussels = parse(TEXT)
    kb = to_knowledge_base([eu, peter], splits={"testa": [brussels]})
    assert kb.worlds == ("0", "1", "testa:0")
    assert kb.tuples("next") == [("0#0 EU", "0#1 rejects"), ("1#0 Peter", "1#1 Blackburn")]
    assert [value for _, value in kb.tuples("label")] == ["S-ORG", "O", "B-PER", "E-PER"]
    assert kb.predicate("label").classes == bioes_classes(["LOC", "ORG", "PER"])
    assert kb.predicate("chunk").classes == ("I-NP", "I-VP")
    assert kb.tuples("pos")[:2] == [("0#0 EU", "NNP"), ("0#1 rejects", "VBZ")]
    assert kb.closed == {"next", "word"}
    assert list(kb.split("testa").facts()) == [
        ("word", ("testa:0#0 BRUSSELS", "BRUSSELS")),
        ("label", ("testa:0#0 BRUSSELS", "S-LOC")),
        ("pos", ("testa:0#0 BRUSSELS", "NNP")),
        ("chunk", ("testa:0#0 BRUSSELS", "I-NP")),
    ]
    value, observed = kb.tensor("next", world="1")
    assert value.tolist() == [[False, True], [False, False]] and observed.all()
    with pytest.raises(DataError, match="a split needs a name"):
        to_knowledge_base([eu], splits={"": [peter]})


def test_equal_words_are_one_word_in_all_worlds():
    kb = to_knowledge_base([Sentence(("no", "no")), Sentence(("no",))])
    assert kb.tuples("word") == [("0#0 no", "no"), ("0#1 no", "no"), ("1#0 no", "no")]
    assert [*kb.predicates] == ["next", "word"]


@pytest.mark.slow
@needs_conll
def test_conll2003():
    parts = {name: read(DATA / f"conll2003/eng.{name}") for name in ("train", "testa", "testb")}
    assert [len(part) for part in parts.values()] == [14_041, 3_250, 3_453]
    assert [part[-1].document + 1 for part in parts.values()] == [946, 216, 231]
    assert [sum(map(len, part)) for part in parts.values()] == [203_621, 51_362, 46_435]
    assert [sum(len(spans(each.tags)) for each in part) for part in parts.values()] == [23_499, 5_942, 5_648]
    kb = to_knowledge_base(parts["train"], splits={"testa": parts["testa"], "testb": parts["testb"]})
    assert kb.predicate("label").classes == bioes_classes(["LOC", "MISC", "ORG", "PER"])
    assert kb.count("label") == 203_621
    assert kb.count("next") == 203_621 - 14_041
    assert kb.split("testb").count("word") == 46_435
