"""The scene graphs of GQA and of Visual Genome, and the filter for what is rare in them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rulewright.errors import DataError
from rulewright.io.box import Box
from rulewright.io.json_shape import Json, load, shortened
from rulewright.io.scenes import MAIN_SPLIT, Scene, SceneObject, SceneRelation


def read_gqa(path: str | os.PathLike[str]) -> tuple[Scene, ...]:
    """Read GQA's scene graphs: ``{image: {"objects": {id: {"name": …, "relations": [{"object": id, "name": …}]}}}}``.

    The split is what the file's name begins with, ``train_sceneGraphs.json`` or ``val_sceneGraphs.json``; another name
    is ``train``. Attributes are left out.
    """
    start = Path(os.fspath(path)).name.partition("_")[0]
    split = start if start in ("train", "val", "test") else MAIN_SPLIT
    scenes = []
    for image, graph in load(path).fields():
        named = graph.called(f"image {shortened(image)}")
        members = dict(named["objects"].fields())
        place = {key: number for number, key in enumerate(members)}
        objects = [SceneObject(key, each["name"].text(), _box(each)) for key, each in members.items()]
        relations = []
        for key, each in members.items():
            for relation in () if each.get("relations") is None else each["relations"].items("relations"):
                target = relation["object"]
                other = _known(target, target.text(), place)
                relations.append(SceneRelation(place[key], relation["name"].text(), other))
        scenes.append(Scene(image, split, tuple(objects), tuple(relations)))
    return tuple(scenes)


def read_visual_genome(path: str | os.PathLike[str], *, split: str = MAIN_SPLIT) -> tuple[Scene, ...]:
    """Read Visual Genome's ``scene_graphs.json``: a list of images with ``objects`` and ``relationships``.

    An object has the first of its ``names``, in lower case as predicates are; objects without a name are left out, and
    relationships with them.
    """
    scenes = []
    for graph in load(path).items("images"):
        image = str(graph["image_id"].integer())
        named = graph.called(f"image {image}")
        members: dict[int, SceneObject] = {}
        unnamed = set()
        for each in named["objects"].items("objects"):
            number = each["object_id"].integer()
            names = each["names"].texts()
            if names and names[0].strip():
                members.setdefault(number, SceneObject(str(number), names[0].strip().lower(), _box(each)))
            else:
                unnamed.add(number)
        place = {number: position for position, number in enumerate(members)}
        relations = []
        for each in named["relationships"].items("relationships"):
            ends = [each["subject_id"], each["object_id"]]
            predicate = each["predicate"].text().strip().lower()
            if predicate and not any(end.integer() in unnamed for end in ends):
                subject, target = (_known(end, end.integer(), place) for end in ends)
                relations.append(SceneRelation(subject, predicate, target))
        scenes.append(Scene(image, split, tuple(members.values()), tuple(relations)))
    return tuple(scenes)


def without_rare(scenes: Iterable[Scene], min_count: int = 1500) -> tuple[Scene, ...]:
    """Leave out the relations, and the objects, whose predicate or class occurs less than ``min_count`` times.

    What is left of an image keeps its order; the paper's filter for Visual Genome is 1500. Images without an object
    are left out.

    >>> one = Scene("a", "train", (SceneObject("0", "cat"), SceneObject("1", "cat"), SceneObject("2", "owl")))
    >>> [each.label for scene in without_rare([one], min_count=2) for each in scene.objects]
    ['cat', 'cat']
    """
    if min_count < 1:
        raise DataError(f"min_count must be >= 1, got {min_count}")
    kept = tuple(scenes)
    labels = Counter(each.label for scene in kept for each in scene.objects)
    predicates = Counter(each.predicate for scene in kept for each in scene.relations)
    found = []
    for scene in kept:
        members = [number for number, each in enumerate(scene.objects) if labels[each.label] >= min_count]
        place = {number: position for position, number in enumerate(members)}
        relations = [
            SceneRelation(place[each.subject], each.predicate, place[each.object])
            for each in scene.relations
            if predicates[each.predicate] >= min_count and each.subject in place and each.object in place
        ]
        if members:
            objects = tuple(scene.objects[number] for number in members)
            found.append(replace(scene, objects=objects, relations=tuple(relations)))
    return tuple(found)


def _known(value: Json, key: int | str, place: Mapping[Any, int]) -> int:
    if key not in place:
        raise value.fault(f"is {shortened(key)} but the image has no such object")
    return place[key]


def _box(item: Json) -> Box | None:
    sides = [item.get(each) for each in ("x", "y", "w", "h")]
    if any(each is None for each in sides):
        return None
    left, top, width, height = (each.integer() for each in sides if each is not None)
    return Box(left, top, left + width, top + height)
