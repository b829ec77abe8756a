import pytest

from rulewright.errors import FileError, ParseError
from rulewright.io.json_shape import Json, describe, dump_records, load, show_short


def write(folder, content):
    path = folder / "a.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "a.json: the file is empty; expected JSON"),
        (" \n ", "the file is empty"),
        ('[1,\n2,\n"', "a.json:3:1: not JSON: unterminated string starting at, got '\"'"),
        ("[1,\n2", "a.json:2:2: the JSON ends too early; is the file complete?"),
        ("[1 2]", "a.json:1:4: not JSON: expecting ',' delimiter, got '2]'"),
        ("{}\n{}", "a.json:2:1: more text after the JSON value"),
        ('{"a": 1, "b": 2, "b": 3}', "has the key 'b' twice; keep one"),
        ("[NaN]", "NaN is no JSON number"),
        ("[-Infinity]", "-Infinity is no JSON number"),
        (f"[{'9' * 5000}]", "a number has too many digits"),
        ("[" * 100_000, "nested too deeply"),
        (r'["\ud83d"]', "half a character"),
        (b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR", "a binary file, not text"),
        (b'["caf\xe9"]', "a.json:1: byte 0xe9 is not UTF-8 text"),
        (b"\x1f\x8b\x08\x00", "not a complete gzip file"),
    ],
)
def test_what_is_not_json_is_reported_on_one_line(tmp_path, content, message):
    with pytest.raises(ParseError) as caught:
        load(write(tmp_path, content))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(FileError, match="cannot read"):
            load(path)


def test_escaped_pairs_and_other_encodings_are_read(tmp_path):
    assert load(write(tmp_path, r'["\ud83d\ude00"]')).texts() == ("😀",)
    assert load(write(tmp_path, '["é"]'.encode("utf-16"))).texts() == ("é",)
    assert load(write(tmp_path, b'\xef\xbb\xbf["a"]')).texts() == ("a",)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda root: root.items("forms"), "a.json: the top level must be a list of forms, got an object"),
        (lambda root: root["none"], "a.json: the top level has no 'none'; it has 'list', 'text', 'yes'"),
        (lambda root: root["list"].integers(2), "a.json: list must hold 2 whole numbers, got 3"),
        (lambda root: root["list"].texts(), "a.json: list[0] must be a string, got the number 1"),
        (lambda root: root["yes"].integer(), "a.json: yes must be a whole number, got true"),
        (lambda root: root["list"].items()[2].index(2, "cats"), "a.json: list[2] is -3 but there are 2 cats"),
        (lambda root: root["list"]["x"], "a.json: list must be an object, got a list"),
        (lambda root: root["text"].texts(), "a.json: text must be a list of strings, got the string 't'"),
        (lambda root: root.called("form 3")["text"].items(), "a.json: form 3: text must be a list"),
        (lambda root: root.called("form 3").items(), "a.json: form 3 must be a list, got an object"),
    ],
)
def test_what_has_another_shape_is_reported_with_its_place(ask, message):
    root = Json({"list": [1, 2, -3], "text": "t", "yes": True, "null": None}, file="a.json")
    del root.value["null"]
    with pytest.raises(ParseError) as caught:
        ask(root)
    assert str(caught.value).startswith(message)


def test_null_is_as_good_as_absent():
    assert Json({"a": None}, file="a.json").get("a") is None


def test_descriptions_stay_short():
    assert len(show_short("x" * 1000)) == 60
    assert describe("x" * 1000).endswith("…")


def test_an_empty_list_is_written_as_one(tmp_path):
    assert load(write(tmp_path, dump_records([]))).items() == []
