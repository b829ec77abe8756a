"""The scene graphs of GQA and Visual Genome."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rulewright.errors import DataError, ParseError, RulewrightError
from rulewright.io import read_facts
from rulewright.io.scenes import PixelBox, SceneRelation, read_gqa, read_visual_genome, to_knowledge_base, without_rare

GQA = {
    "2407890": {
        "width": 640,
        "height": 480,
        "objects": {
            "271881": {
                "name": "chair",
                "x": 1,
                "y": 2,
                "w": 10,
                "h": 20,
                "attributes": ["brown"],
                "relations": [{"object": "32452", "name": "to the left of"}],
            },
            "32452": {"name": "table", "x": 5, "y": 5, "w": 1, "h": 1, "relations": []},
        },
    },
    "1": {"objects": {}},
}
GENOME = [
    {
        "image_id": 1,
        "objects": [
            {"object_id": 10, "names": ["Man", "person"], "x": 0, "y": 0, "w": 2, "h": 3},
            {"object_id": 11, "names": ["hat"]},
            {"object_id": 12, "names": []},
        ],
        "relationships": [
            {"subject_id": 10, "object_id": 11, "predicate": "WEARS"},
            {"subject_id": 12, "object_id": 11, "predicate": "near"},
        ],
    }
]


def written(folder: Path, name: str, value: object) -> Path:
    path = folder / name
    path.write_text(json.dumps(value), encoding="utf-8")
    return path


def test_gqa(tmp_path: Path) -> None:
    scenes = read_gqa(written(tmp_path, "val_sceneGraphs.json", GQA))
    assert [(scene.name, scene.split, len(scene.objects)) for scene in scenes] == [
        ("2407890", "val", 2),
        ("1", "val", 0),
    ]
    assert scenes[0].objects[0].box == PixelBox(1, 2, 11, 22)
    assert scenes[0].relations == (SceneRelation(0, "to the left of", 1),)
    train = written(tmp_path, "train_sceneGraphs.json", GQA)
    assert read_facts(train, format="gqa").tuples("to the left of") == [("2407890#271881", "2407890#32452")]


def test_visual_genome(tmp_path: Path) -> None:
    path = written(tmp_path, "scene_graphs.json", GENOME)
    (scene,) = read_visual_genome(path)
    assert [each.label for each in scene.objects] == ["man", "hat"]
    assert scene.relations == (SceneRelation(0, "wears", 1),)
    assert read_facts(path, format="visual-genome").tuples("wears") == [("1#10", "1#11")]


def test_what_is_rare_is_left_out(tmp_path: Path) -> None:
    scenes = read_gqa(
        written(tmp_path, "a.json", {**GQA, "3": GQA["2407890"], "4": {"objects": {"0": {"name": "owl"}}}})
    )
    kept = without_rare(scenes, min_count=2)
    assert [scene.name for scene in kept] == ["2407890", "3"]
    assert {each.label for scene in kept for each in scene.objects} == {"chair", "table"}
    assert all(len(scene.relations) == 1 for scene in kept)
    assert without_rare(scenes) == ()
    with pytest.raises(DataError, match="min_count must be >= 1, got 0"):
        without_rare(scenes, min_count=0)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"7": {"objects": {"0": {"name": "a", "relations": [{"object": "9", "name": "on"}]}}}}, "no such object"),
        ({"7": {"objects": {"0": {"title": "a"}}}}, "has no 'name'"),
        ({"7": []}, "must be an object"),
    ],
)
def test_faults_name_their_place(tmp_path: Path, value: object, message: str) -> None:
    with pytest.raises(ParseError, match=message) as caught:
        read_gqa(written(tmp_path, "a.json", value))
    assert "image '7'" in str(caught.value)


anything = st.recursive(
    st.none() | st.integers(-2, 2) | st.text(max_size=2),
    lambda part: (
        st.lists(part, max_size=2)
        | st.dictionaries(
            st.sampled_from(["objects", "name", "names", "relations", "object_id", "image_id", "0"]), part
        )
    ),
    max_leaves=8,
)


@given(value=anything)
def test_any_json_is_scenes_or_an_error_of_ours(tmp_path_factory: pytest.TempPathFactory, value: object) -> None:
    path = written(tmp_path_factory.mktemp("scenes"), "a.json", value)
    for reader in (read_gqa, read_visual_genome):
        try:
            to_knowledge_base(reader(path))
        except RulewrightError as error:
            assert "\n" not in str(error)
