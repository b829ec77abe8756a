import gzip
import json
import os
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rulewright.errors import DataError, FileError, ParseError, RulewrightError
from rulewright.io.scenes import (
    PixelBox,
    Scene,
    SceneObject,
    SceneRelation,
    predicate_names,
    read_tidy,
    read_vrd,
    to_knowledge_base,
)

DATA = Path(os.environ.get("RULEWRIGHT_DATA") or Path(__file__).parents[2].parent / "shared" / "data")
needs_vrd = pytest.mark.skipif(not (DATA / "vrd").is_dir(), reason="needs VRD: set RULEWRIGHT_DATA")
one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

OBJECTS = """split image object_id class ymin ymax xmin xmax
train a.jpg 0 person 10 20 30 40
train a.jpg 1 face 11 12 31 32
test b.jpg 0 hat 1 2 3 4
""".replace(" ", "\t")
RELATIONS = """split image subject_id predicate object_id
train a.jpg 0 has 1
train a.jpg 1 face 0
train a.jpg 0 has 1
test b.jpg 0 on 0
""".replace(" ", "\t")
SCENES = (
    Scene(
        "a.jpg",
        "train",
        (SceneObject("0", "person", PixelBox(30, 10, 40, 20)), SceneObject("1", "face", PixelBox(31, 11, 32, 12))),
        (SceneRelation(0, "has", 1), SceneRelation(1, "face", 0), SceneRelation(0, "has", 1)),
    ),
    Scene("b.jpg", "test", (SceneObject("0", "hat", PixelBox(3, 1, 4, 2)),), (SceneRelation(0, "on", 0),)),
)

PERSON = {"category": 0, "bbox": [10, 20, 30, 40]}
FACE = {"category": 1, "bbox": [11, 12, 31, 32]}
HAT = {"category": 2, "bbox": [1, 2, 3, 4]}
VRD = {
    "objects.json": ["person", "face", "hat"],
    "predicates.json": ["has", "face", "on"],
    "annotations_train.json": {
        "a.jpg": [
            {"subject": PERSON, "predicate": 0, "object": FACE},
            {"subject": FACE, "predicate": 1, "object": PERSON},
            {"subject": PERSON, "predicate": 0, "object": FACE},
        ],
        "nothing.jpg": [],
    },
    "annotations_test.json": {"b.jpg": [{"subject": HAT, "predicate": 2, "object": HAT}]},
}

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 50) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["subject", "object", "predicate", "category", "bbox", "x.jpg"]), inner)
    ),
    max_leaves=20,
)


@st.composite
def mutated(draw):
    """Return VRD's files with one part, at any depth, replaced or removed."""
    files = json.loads(json.dumps(VRD))
    parent, key = files, draw(st.sampled_from([*VRD]))
    while isinstance(parent[key], dict | list) and parent[key] and draw(st.integers(0, 5)):
        parent = parent[key]
        key = draw(st.sampled_from([*parent] if isinstance(parent, dict) else range(len(parent))))
    if draw(st.booleans()):
        del parent[key]
    else:
        parent[key] = draw(anything)
    return files


def tidy(folder, objects=OBJECTS, relations=RELATIONS):
    (folder / "objects.tsv").write_text(objects)
    (folder / "relations.tsv").write_text(relations)
    return folder


def vrd(folder, files):
    for name in VRD:
        (folder / name).unlink(missing_ok=True)
    for name, value in files.items():
        (folder / name).write_text(json.dumps(value))
    return folder


def test_tidy_tables(tmp_path):
    assert read_tidy(tidy(tmp_path)) == SCENES
    assert read_tidy(tmp_path / "objects.tsv", tmp_path / "relations.tsv") == SCENES


def test_compressed_tables_and_tables_without_boxes(tmp_path):
    bare = "split\timage\tobject_id\tclass\ntrain\ta.jpg\tcat-7\tcat\n"
    (tmp_path / "objects.tsv.gz").write_bytes(gzip.compress(bare.encode()))
    (tmp_path / "relations.tsv.gz").write_bytes(gzip.compress(RELATIONS.split("\n")[0].encode()))
    assert read_tidy(tmp_path) == (Scene("a.jpg", "train", (SceneObject("cat-7", "cat"),)),)


def test_empty_box_cells_mean_no_box(tmp_path):
    scenes = read_tidy(tidy(tmp_path, OBJECTS.replace("1\t2\t3\t4", "\t\t\t")))
    assert [each.box for scene in scenes for each in scene.objects][2] is None


def test_vrd_json_gives_the_same_scenes(tmp_path):
    assert read_vrd(vrd(tmp_path, VRD)) == SCENES


def test_knowledge_base():
    kb = to_knowledge_base(SCENES)
    assert list(kb.facts()) == [
        ("face", ("a.jpg#1",)),
        ("person", ("a.jpg#0",)),
        ("face (relation)", ("a.jpg#1", "a.jpg#0")),
        ("has", ("a.jpg#0", "a.jpg#1")),
    ]
    assert kb.duplicates == 1
    assert list(kb.split("test").facts()) == [("hat", ("b.jpg#0",)), ("on", ("b.jpg#0", "b.jpg#0"))]
    assert kb.worlds == ("a.jpg", "b.jpg")
    assert kb.domains["entity"].labels.tolist() == ["a.jpg#0", "a.jpg#1", "b.jpg#0"]


def test_images_must_differ_and_may_be_empty():
    with pytest.raises(DataError, match=r"image 'a.jpg' occurs twice, in split 'train' and in 'test'"):
        to_knowledge_base([Scene("a.jpg", "train", ()), Scene("a.jpg", "test", ())])
    assert to_knowledge_base([Scene("a.jpg", "train", ())]).worlds == ("a.jpg",)


def test_values_made_by_hand_are_checked():
    cat = SceneObject("0", "cat")
    with pytest.raises(DataError, match="two objects with one id"):
        Scene("a.jpg", "train", (cat, cat))
    for relation in (SceneRelation(0, "on", 1), SceneRelation(-1, "on", 0)):
        with pytest.raises(DataError, match="outside 0 … 0"):
            Scene("a.jpg", "train", (cat,), (relation,))


@given(*[st.sets(st.sampled_from(["a", "a (relation)", "a (relation) (relation)", "b", "b (relation)"]))] * 2)
def test_predicate_names_never_collide(classes, relations):
    unary, binary = predicate_names(classes, relations)
    assert set(unary) == classes and set(binary) == relations
    assert len({*unary.values(), *binary.values()}) == len(classes) + len(relations)
    assert all(binary[name] == name for name in relations - classes)


@pytest.mark.parametrize(
    ("objects", "relations", "message"),
    [
        ("", RELATIONS, "objects.tsv:1: the first line must name the columns split image object_id class ymin"),
        (OBJECTS, "", "relations.tsv:1: the first line must name the columns"),
        (OBJECTS.replace("\tclass", "\tkind"), RELATIONS, "objects.tsv:1: the first line must name"),
        (OBJECTS.replace("\t40\n", "\n"), RELATIONS, "objects.tsv:2: expected 8 columns between tabs, got 7"),
        (OBJECTS.replace("\t40\n", "\tforty\n"), RELATIONS, "objects.tsv:2: ymin ymax xmin xmax must be four whole"),
        (OBJECTS.replace("\t40\n", "\t\n"), RELATIONS, "or all empty"),
        (OBJECTS.replace("1\tface", "0\tface"), RELATIONS, "objects.tsv:3: image 'a.jpg' has a second object '0'"),
        (OBJECTS, RELATIONS.replace("has\t1", "has\t5"), "relations.tsv:2: object_id is '5' but image 'a.jpg' has no"),
        (OBJECTS, RELATIONS.replace("test\tb", "test\tz"), "relations.tsv:5: image 'z.jpg' of split 'test' has no"),
        (OBJECTS, RELATIONS.replace("\tb.jpg", ""), "relations.tsv:5: expected 5 columns between tabs, got 4"),
    ],
)
def test_bad_tables_are_reported_by_line(tmp_path, objects, relations, message):
    with pytest.raises(ParseError) as caught:
        read_tidy(tidy(tmp_path, objects, relations))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("file", "value", "message"),
    [
        ("objects.json", {}, "objects.json: the top level must be a list of strings, got an object"),
        ("objects.json", ["person"], "image 'a.jpg': [0].object.category is 1 but there are 1 classes"),
        ("predicates.json", ["has"], "image 'a.jpg': [1].predicate is 1 but there are 1 predicates"),
        ("annotations_train.json", [], "annotations_train.json: the top level must be an object, got a list"),
        ("annotations_test.json", {"b.jpg": [{}]}, "image 'b.jpg': [0] has no 'subject'; it has nothing"),
        ("annotations_test.json", {"b.jpg": {}}, "image 'b.jpg' must be a list of relations, got an object"),
        (
            "annotations_test.json",
            {"b.jpg": [{"subject": {"category": 0, "bbox": [1, 2, 3]}}]},
            "image 'b.jpg': [0].subject.bbox must hold 4 whole numbers, got 3",
        ),
    ],
)
def test_bad_vrd_files_are_reported_by_image(tmp_path, file, value, message):
    with pytest.raises(ParseError) as caught:
        read_vrd(vrd(tmp_path, VRD | {file: value}))
    assert message in str(caught.value)


def test_missing_files(tmp_path):
    with pytest.raises(FileError, match="no such folder"):
        read_tidy(tmp_path / "none")
    with pytest.raises(FileError, match=r"objects\.tsv: neither this file nor objects\.tsv\.gz is there"):
        read_tidy(tmp_path)
    with pytest.raises(FileError, match=r"objects\.json"):
        read_vrd(tmp_path)
    with pytest.raises(FileError, match="cannot read"):
        read_tidy(tmp_path / "a.tsv", tmp_path / "b.tsv")


def test_a_picture_is_no_table(tmp_path):
    picture = tmp_path / "objects.tsv"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    with pytest.raises(ParseError, match="a binary file"):
        read_tidy(picture, picture)


@pytest.mark.slow
@one_folder
@given(mutated() | st.fixed_dictionaries(dict.fromkeys(VRD, anything)))
def test_any_json_is_scenes_or_an_error_of_ours(tmp_path, files):
    try:
        to_knowledge_base(read_vrd(vrd(tmp_path, files)))
    except RulewrightError as error:
        assert "\n" not in str(error)


@one_folder
@given(st.booleans(), st.integers(0, 1000), st.integers(0, 3), st.text(max_size=3) | st.sampled_from("\t\n0"))
def test_damaged_tables_are_scenes_or_an_error_of_ours(tmp_path, of_objects, place, removed, inserted):
    text = OBJECTS if of_objects else RELATIONS
    place %= len(text)
    damaged = text[:place] + inserted + text[place + removed :]
    try:
        to_knowledge_base(read_tidy(tidy(tmp_path, *((damaged, RELATIONS) if of_objects else (OBJECTS, damaged)))))
    except RulewrightError as error:
        assert "\n" not in str(error)


@pytest.mark.slow
@needs_vrd
@pytest.mark.parametrize(("reader", "folder", "repeated"), [(read_tidy, "vrd", 0), (read_vrd, "vrd/raw", 654)])
def test_vrd(reader, folder, repeated):
    scenes = reader(DATA / folder)
    assert Counter(scene.split for scene in scenes) == {"train": 3_780, "test": 955}
    for split, objects, relations in (("train", 26_430, 29_861), ("test", 6_735, 7_478)):
        members = [scene for scene in scenes if scene.split == split]
        assert sum(len(scene.objects) for scene in members) == objects
        assert sum(len(set(scene.relations)) for scene in members) == relations
    kb = to_knowledge_base(scenes)
    assert Counter(each.arity for each in kb.predicates.values()) == {1: 100, 2: 70}
    assert [name for name in kb.predicates if name.endswith("(relation)")] == ["face (relation)", "watch (relation)"]
    assert (kb.n_facts, kb.split("test").n_facts) == (26_430 + 29_861, 6_735 + 7_478)
    assert kb.duplicates + sum(split.duplicates for split in kb.splits.values()) == repeated


@pytest.mark.slow
@needs_vrd
def test_both_forms_of_vrd_agree_but_for_order_and_repeats():
    def by_name(scenes):
        return {scene.name: (scene.split, scene.objects, tuple(dict.fromkeys(scene.relations))) for scene in scenes}

    assert by_name(read_tidy(DATA / "vrd")) == by_name(read_vrd(DATA / "vrd/raw"))
