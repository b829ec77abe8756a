import gzip
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rulewright.errors import DataError, FileError, ParseError, RulewrightError
from rulewright.io.funsd import LABELS, Block, Form, Word, read, read_form, to_knowledge_base
from rulewright.io.scenes import PixelBox

DATA = Path(os.environ.get("RULEWRIGHT_DATA") or Path(__file__).parents[2].parent / "shared" / "data")
needs_funsd = pytest.mark.skipif(not (DATA / "funsd").is_dir(), reason="needs FUNSD: set RULEWRIGHT_DATA")
one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

BOX = [1, 2, 30, 40]
VALID = {
    "form": [
        {
            "id": 4,
            "box": BOX,
            "text": "Date:",
            "label": "question",
            "words": [{"text": "Date:", "box": BOX}, {"text": "", "box": BOX}],
            "linking": [[4, 0]],
        },
        {
            "id": 0,
            "box": BOX,
            "text": "May 2",
            "label": "answer",
            "words": [{"text": "May", "box": BOX}, {"text": " ", "box": BOX}, {"text": "2", "box": BOX}],
            "linking": [[4, 0]],
        },
        {"id": 1, "box": BOX, "text": "", "label": "other", "words": [], "linking": []},
    ]
}
A_BOX = PixelBox(1, 2, 30, 40)
BLOCKS = (
    Block(4, "question", (Word("Date:", A_BOX),), ((4, 0),), A_BOX),
    Block(0, "answer", (Word("May", A_BOX), Word("2", A_BOX)), ((4, 0),), A_BOX),
    Block(1, "other", (), (), A_BOX),
)

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 50) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["form", "id", "box", "text", "label", "words", "linking"]), inner)
    ),
    max_leaves=20,
)


@st.composite
def mutated(draw):
    """Return the valid form with one part, at any depth, replaced or removed."""
    form = json.loads(json.dumps(VALID))
    parent, key = form, "form"
    while isinstance(parent[key], dict | list) and parent[key] and draw(st.integers(0, 5)):
        parent = parent[key]
        key = draw(st.sampled_from([*parent] if isinstance(parent, dict) else range(len(parent))))
    if draw(st.booleans()):
        del parent[key]
    else:
        parent[key] = draw(anything)
    return form


def written(folder, value, name="a.json"):
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value))
    return path


def changed(*steps, to):
    """Return the valid form with the value at a path replaced, or removed where ``to`` is None."""
    result = json.loads(json.dumps(VALID))
    parent = result
    for step in steps[:-1]:
        parent = parent[step]
    if to is None:
        del parent[steps[-1]]
    else:
        parent[steps[-1]] = to
    return result


def test_a_form(tmp_path):
    form = read_form(written(tmp_path, VALID, "87.v1.json"), split="test")
    assert form == Form("87.v1", BLOCKS, "test", empty_words=2)
    assert [word.text for word in form.words] == ["Date:", "May", "2"]
    assert form.links == ((4, 0),)
    assert [block.text for block in form.blocks] == ["Date:", "May 2", ""]


def test_every_kind_of_folder(tmp_path):
    train, test = (tmp_path / part / "annotations" for part in ("training_data", "testing_data"))
    for name in ("b.json", "a.json"):
        written(train, VALID, name)
    written(train, "not read", "notes.txt")
    test.mkdir(parents=True)
    (test / "c.json.gz").write_bytes(gzip.compress(json.dumps(VALID).encode()))

    def found(folder):
        return [(form.name, form.split) for form in read(folder)]

    assert found(tmp_path) == [("a", "train"), ("b", "train"), ("c", "test")]
    assert found(train.parent) == found(train) == [("a", "train"), ("b", "train")]
    assert found(test.parent) == found(test) == [("c", "test")]
    written(tmp_path / "mine", VALID)
    assert found(tmp_path / "mine") == [("a", "train")]


def test_knowledge_base():
    kb = to_knowledge_base([Form("a", BLOCKS), Form("b", BLOCKS[2:], "test"), Form("c", ())])
    assert kb.worlds == ("a", "b", "c")
    assert kb.tuples("part_of") == [("a#4.0 Date:", "a#4"), ("a#0.0 May", "a#0"), ("a#0.1 2", "a#0")]
    assert kb.tuples("linked") == [("a#4", "a#0")]
    assert kb.tuples("label") == [("a#4", "question"), ("a#0", "answer"), ("a#1", "other")]
    assert kb.predicate("label").classes == LABELS
    assert kb.domains["block"].labels.tolist() == ["a#4", "a#0", "a#1", "b#1"]
    assert kb.duplicates == 0
    assert kb.closed == {"part_of"}
    assert list(kb.split("test").facts()) == [("label", ("b#1", "other"))]
    value, observed = kb.tensor("part_of", world="a")
    assert value.tolist() == [[True, False, False], [False, True, False], [False, True, False]]
    assert observed.all()


def test_forms_must_differ():
    with pytest.raises(DataError, match="form 'a' occurs twice, in split 'train' and in 'test'"):
        to_knowledge_base([Form("a", ()), Form("a", (), "test")])


def test_values_made_by_hand_are_checked():
    with pytest.raises(DataError, match="two blocks with one id"):
        Form("a", BLOCKS[2:] * 2)
    with pytest.raises(DataError, match="links 4 to 0 but has no such block"):
        Form("a", BLOCKS[:1])


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("", "the file is empty"),
        ("{", "a.json:1:2: "),
        ([], "the top level must be an object, got a list"),
        ({"forms": []}, "the top level has no 'form'; it has 'forms'"),
        ({"form": {}}, "form must be a list of blocks, got an object"),
        (changed("form", 1, "id", to=None), "form[1] has no 'id'"),
        (changed("form", 1, "id", to="0"), "form[1].id must be a whole number, got the string '0'"),
        (changed("form", 2, "id", to=4), "form[0] and form[2] have the same id 4; ids must differ"),
        (changed("form", 1, "label", to="title"), "form[1].label must be one of question, answer, header, other, got"),
        (changed("form", 1, "label", to=3), "form[1].label must be a string, got the number 3"),
        (changed("form", 1, "words", to=None), "form[1] has no 'words'"),
        (changed("form", 1, "words", 0, "text", to=5), "form[1].words[0].text must be a string"),
        (changed("form", 1, "words", 0, "box", to=[1, 2]), "form[1].words[0].box must hold 4 whole numbers, got 2"),
        (changed("form", 1, "words", 1, "box", 3, to="x"), "form[1].words[1].box[3] must be a whole number"),
        (changed("form", 1, "linking", 0, to=[4]), "form[1].linking[0] must hold 2 whole numbers, got 1"),
        (changed("form", 1, "linking", 0, to=[4, 9]), "form[1].linking[0] names block 9 but the form has no block"),
        (changed("form", 1, "box", to=None), "form[1] has no 'box'"),
    ],
)
def test_bad_forms_are_reported_by_place(tmp_path, value, message):
    path = written(tmp_path, value)
    for reader, place in ((read_form, path), (read, tmp_path)):
        with pytest.raises(ParseError) as caught:
            reader(place)
        assert message in str(caught.value)
        assert str(path) in str(caught.value)


def test_folders_that_cannot_be_read(tmp_path):
    with pytest.raises(FileError, match=r"cannot read .*none: No such file"):
        read(tmp_path / "none")
    with pytest.raises(FileError, match="no JSON files; expected training_data, testing_data or annotations"):
        read(tmp_path)
    with pytest.raises(FileError, match="Not a directory"):
        read(written(tmp_path, VALID))


def test_a_picture_is_no_form(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    with pytest.raises(ParseError, match="a binary file"):
        read(tmp_path)


@pytest.mark.slow
@one_folder
@given(anything | mutated())
def test_any_json_is_a_form_or_an_error_of_ours(tmp_path, value):
    try:
        to_knowledge_base([read_form(written(tmp_path, value))])
    except RulewrightError as error:
        assert "\n" not in str(error)


@one_folder
@given(st.integers(0, 10_000), st.integers(0, 5), st.binary(max_size=3))
def test_damaged_files_are_a_form_or_an_error_of_ours(tmp_path, place, removed, inserted):
    content = json.dumps(VALID).encode()
    place %= len(content)
    path = tmp_path / "damaged.json"
    path.write_bytes(content[:place] + inserted + content[place + removed :])
    try:
        to_knowledge_base([read_form(path)])
    except RulewrightError as error:
        assert "\n" not in str(error)


@pytest.mark.slow
@needs_funsd
def test_funsd():
    forms = read(DATA / "funsd")
    assert Counter(form.split for form in forms) == {"train": 149, "test": 50}
    assert sum(form.empty_words for form in forms) == 890
    assert max(len(form.words) for form in forms) == 433
    kb = to_knowledge_base(forms)
    assert [kb.count(name) for name in ("part_of", "label", "linked")] == [21_888, 7_411, 4_230]
    assert [kb.split("test").count(name) for name in ("part_of", "label", "linked")] == [8_707, 2_332, 1_064]
    assert len(read(DATA / "funsd/testing_data")) == 50
