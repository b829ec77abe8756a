"""Scene graphs: the objects of images and the relations between them, as tidy tables or in the JSON of VRD."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from rulewright.checks import Whole, check_parameter
from rulewright.data import ENTITY_TYPE, KnowledgeBase, KnowledgeBaseBuilder
from rulewright.errors import DataError, FileError, ParseError
from rulewright.files import read_text
from rulewright.io.json_shape import Json, load, show_short
from rulewright.logic import PredicateDeclaration

MAIN_SPLIT = "train"
"""The split whose facts are the main facts of a knowledge base."""

OBJECT_COLUMNS = ("split", "image", "object_id", "class")
BOX_COLUMNS = ("ymin", "ymax", "xmin", "xmax")
RELATION_COLUMNS = ("split", "image", "subject_id", "predicate", "object_id")


class PixelBox(NamedTuple):
    """A rectangle in pixels; x grows to the right and y downwards."""

    left: int
    top: int
    right: int
    bottom: int


@dataclass(frozen=True, slots=True)
class SceneObject:
    """An object of an image: its class is ``label``, its ``id`` is unique within the image."""

    id: str
    label: str
    box: PixelBox | None = None


@dataclass(frozen=True, slots=True)
class SceneRelation:
    """A relation between two objects, given by their positions in the scene."""

    subject: int
    predicate: str
    object: int


@dataclass(frozen=True, slots=True)
class Scene:
    """An image. Its relations stand as in the file, repeated or not."""

    name: str
    split: str
    objects: tuple[SceneObject, ...]
    relations: tuple[SceneRelation, ...] = ()

    def __post_init__(self) -> None:
        if len({thing.id for thing in self.objects}) != len(self.objects):
            raise DataError(f"image {self.name!r} has two objects with one id")
        for relation in self.relations:
            if not (0 <= relation.subject < len(self.objects) and 0 <= relation.object < len(self.objects)):
                raise DataError(f"image {self.name!r}: {relation} joins objects outside 0 … {len(self.objects) - 1}")


@dataclass(slots=True)
class _Draft:
    """A scene while its objects and relations are being collected."""

    objects: dict[str, SceneObject] = field(default_factory=dict)
    positions: dict[str, int] = field(default_factory=dict)
    relations: list[SceneRelation] = field(default_factory=list)

    def add(self, thing: SceneObject, key: str) -> int:
        self.objects[key] = thing
        return self.positions.setdefault(key, len(self.positions))

    def scene(self, name: str, split: str) -> Scene:
        return Scene(name, split, tuple(self.objects.values()), tuple(self.relations))


def read_tidy(path: str | os.PathLike[str], relations_path: str | os.PathLike[str] | None = None) -> tuple[Scene, ...]:
    """Read scenes from two tables: a folder with objects.tsv and relations.tsv (or .gz), or the two files.

    The first line names the columns: ``split image object_id class`` and, as far as boxes are known,
    ``ymin ymax xmin xmax``; ``split image subject_id predicate object_id``.
    """
    objects_path = Path(path)
    if relations_path is None:
        if not objects_path.is_dir():
            raise FileError(f"cannot read {objects_path}: no such folder; give a folder, or objects and relations")
        objects_path, relations_path = _member(path, "objects", ".tsv"), _member(path, "relations", ".tsv")
    drafts: dict[tuple[str, str], _Draft] = {}
    file = os.fspath(objects_path)
    for line, row in _read_rows(objects_path, OBJECT_COLUMNS, BOX_COLUMNS):
        draft = drafts.setdefault((row["split"], row["image"]), _Draft())
        key = row["object_id"]
        if key in draft.objects:
            raise ParseError(
                f"image {row['image']!r} has a second object {key!r}; ids must differ", file=file, line=line
            )
        draft.add(SceneObject(key, row["class"], _read_tidy_box(row, file, line)), key)
    file = os.fspath(relations_path)
    for line, row in _read_rows(relations_path, RELATION_COLUMNS):
        scene = drafts.get((row["split"], row["image"]))
        if scene is None:
            raise ParseError(
                f"image {row['image']!r} of split {row['split']!r} has no objects in {objects_path}",
                file=file,
                line=line,
            )
        ends = []
        for column in ("subject_id", "object_id"):
            if row[column] not in scene.positions:
                raise ParseError(
                    f"{column} is {row[column]!r} but image {row['image']!r} has no such object", file=file, line=line
                )
            ends.append(scene.positions[row[column]])
        scene.relations.append(SceneRelation(ends[0], row["predicate"], ends[1]))
    return tuple(draft.scene(image, split) for (split, image), draft in drafts.items())


def _member(folder: str | os.PathLike[str], name: str, ending: str) -> Path:
    candidates = [Path(folder, f"{name}{ending}"), Path(folder, f"{name}{ending}.gz")]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    raise FileError(f"cannot read {candidates[0]}: neither this file nor {candidates[1].name} is there")


def _read_rows(
    path: str | os.PathLike[str], columns: tuple[str, ...], optional: tuple[str, ...] = ()
) -> Iterator[tuple[int, dict[str, str]]]:
    file = os.fspath(path)
    lines = read_text(path).split("\n")
    header = tuple(lines[0].split("\t"))
    if header not in (columns, columns + optional):
        raise ParseError(
            f"the first line must name the columns {' '.join(columns + optional)} between tabs, got "
            f"{show_short(lines[0])}",
            file=file,
            line=1,
        )
    for number, line in enumerate(lines[1:], start=2):
        if not line:
            continue
        cells = line.split("\t")
        if len(cells) != len(header):
            raise ParseError(f"expected {len(header)} columns between tabs, got {len(cells)}", file=file, line=number)
        yield number, dict(zip(header, cells, strict=True))


def _read_tidy_box(row: Mapping[str, str], file: str, line: int) -> PixelBox | None:
    cells = [row.get(column, "") for column in BOX_COLUMNS]
    if not any(cells):
        return None
    try:
        top, bottom, left, right = map(int, cells)
    except ValueError:
        raise ParseError(
            f"{' '.join(BOX_COLUMNS)} must be four whole numbers or all empty, got {show_short(cells)}",
            file=file,
            line=line,
        ) from None
    return PixelBox(left, top, right, bottom)


def read_vrd(folder: str | os.PathLike[str]) -> tuple[Scene, ...]:
    """Read VRD's files annotations_train.json, annotations_test.json, objects.json and predicates.json (or .gz).

    The annotations are relations whose ends have a class and a box; ends of one image that agree in both are one
    object. Objects are numbered as they first occur, subject before object; images without relations are left out.
    """
    classes = load(_member(folder, "objects", ".json")).texts()
    predicates = load(_member(folder, "predicates", ".json")).texts()
    scenes = []
    for split in ("train", "test"):
        for image, relations in load(_member(folder, f"annotations_{split}", ".json")).fields():
            draft = _Draft()
            for item in relations.called(f"image {show_short(image)}").items("relations"):
                subject, target = (_read_vrd_object(item[end], classes, draft) for end in ("subject", "object"))
                predicate = predicates[item["predicate"].index(len(predicates), "predicates")]
                draft.relations.append(SceneRelation(subject, predicate, target))
            if draft.relations:
                scenes.append(draft.scene(image, split))
    return tuple(scenes)


def _read_vrd_object(item: Json, classes: tuple[str, ...], draft: _Draft) -> int:
    category = item["category"].index(len(classes), "classes")
    top, bottom, left, right = item["bbox"].integers(4)
    key = f"{category} {top} {bottom} {left} {right}"
    if key in draft.positions:
        return draft.positions[key]
    thing = SceneObject(str(len(draft.objects)), classes[category], PixelBox(left, top, right, bottom))
    return draft.add(thing, key)


def predicate_names(classes: Iterable[str], relations: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the predicate that stands for each class and for each relation, both sorted.

    A predicate has one arity, so where a class and a relation share a name the relation's gets ``(relation)``
    behind it, as often as it takes.

    >>> predicate_names(["face", "person"], ["on", "face"])
    ({'face': 'face', 'person': 'person'}, {'face': 'face (relation)', 'on': 'on'})
    """
    unary = {name: name for name in sorted(set(classes))}
    wanted = sorted(set(relations))
    taken = {*unary, *wanted}
    binary = {}
    for relation in wanted:
        name = relation
        while name in unary or (name != relation and name in taken):
            name += " (relation)"
        taken.add(name)
        binary[relation] = name
    return unary, binary


def to_knowledge_base(scenes: Iterable[Scene]) -> KnowledgeBase:
    """Turn scenes into a knowledge base: an image is a world, a class a unary and a relation a binary predicate.

    Objects are labelled ``image#id`` and stand in the order of the scene; `predicate_names` tells a class from a
    relation of the same name. The facts of the split train are the main facts, the others those of their split.

    >>> objects = (SceneObject("0", "person"), SceneObject("1", "hat"))
    >>> kb = to_knowledge_base([Scene("a.jpg", "train", objects, (SceneRelation(0, "wear", 1),))])
    >>> list(kb.facts())
    [('hat', ('a.jpg#1',)), ('person', ('a.jpg#0',)), ('wear', ('a.jpg#0', 'a.jpg#1'))]
    """
    scenes = tuple(scenes)
    unary, binary = predicate_names(
        (thing.label for scene in scenes for thing in scene.objects),
        (relation.predicate for scene in scenes for relation in scene.relations),
    )
    builder = KnowledgeBaseBuilder(
        [PredicateDeclaration(name, (ENTITY_TYPE,)) for name in unary.values()]
        + [PredicateDeclaration(name, (ENTITY_TYPE, ENTITY_TYPE)) for name in binary.values()]
    )
    splits: dict[str, str] = {}
    for scene in scenes:
        if scene.name in splits:
            raise DataError(
                f"image {scene.name!r} occurs twice, in split {splits[scene.name]!r} and in {scene.split!r}; "
                "images name worlds and must differ"
            )
        splits[scene.name] = scene.split
        split = "" if scene.split == MAIN_SPLIT else scene.split
        builder.world(scene.name)
        labels = [f"{scene.name}#{thing.id}" for thing in scene.objects]
        for label, thing in zip(labels, scene.objects, strict=True):
            builder.add(unary[thing.label], [label], world=scene.name, split=split)
        for relation in scene.relations:
            ends = [labels[relation.subject], labels[relation.object]]
            builder.add(binary[relation.predicate], ends, world=scene.name, split=split)
    return builder.build()


def read_gqa(path: str | os.PathLike[str]) -> tuple[Scene, ...]:
    """Read GQA's scene graphs: ``{image: {"objects": {id: {"name": …, "relations": [{"object": id, "name": …}]}}}}``.

    The split is what the file's name begins with, ``train_sceneGraphs.json`` or ``val_sceneGraphs.json``; another name
    is ``train``. Attributes are left out.
    """
    start = Path(os.fspath(path)).name.partition("_")[0]
    split = start if start in ("train", "val", "test") else MAIN_SPLIT
    scenes = []
    for image, graph in load(path).fields():
        items = dict(graph.called(f"image {show_short(image)}")["objects"].fields())
        positions = {key: position for position, key in enumerate(items)}
        objects = [SceneObject(key, item["name"].text(), _read_box(item)) for key, item in items.items()]
        relations = []
        for key, item in items.items():
            for relation in item.optional_items("relations", "relations"):
                target = relation["object"]
                other = _look_up(target, target.text(), positions)
                relations.append(SceneRelation(positions[key], relation["name"].text(), other))
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
        objects: dict[int, SceneObject] = {}
        unnamed = set()
        for item in named["objects"].items("objects"):
            object_id = item["object_id"].integer()
            names = item["names"].texts()
            if names and names[0].strip():
                objects.setdefault(object_id, SceneObject(str(object_id), names[0].strip().lower(), _read_box(item)))
            else:
                unnamed.add(object_id)
        positions = {object_id: position for position, object_id in enumerate(objects)}
        relations = []
        for item in named["relationships"].items("relationships"):
            ends = [item["subject_id"], item["object_id"]]
            predicate = item["predicate"].text().strip().lower()
            if predicate and not any(end.integer() in unnamed for end in ends):
                subject, target = (_look_up(end, end.integer(), positions) for end in ends)
                relations.append(SceneRelation(subject, predicate, target))
        scenes.append(Scene(image, split, tuple(objects.values()), tuple(relations)))
    return tuple(scenes)


def without_rare(scenes: Iterable[Scene], min_count: int = 1500) -> tuple[Scene, ...]:
    """Leave out the relations, and the objects, whose predicate or class occurs less than ``min_count`` times.

    What is left of an image keeps its order; the paper's filter for Visual Genome is 1500. Images without an object
    are left out.

    >>> one = Scene("a", "train", (SceneObject("0", "cat"), SceneObject("1", "cat"), SceneObject("2", "owl")))
    >>> [thing.label for scene in without_rare([one], min_count=2) for thing in scene.objects]
    ['cat', 'cat']
    """
    check_parameter("min_count", min_count, Whole(1))
    scenes = tuple(scenes)
    labels = Counter(thing.label for scene in scenes for thing in scene.objects)
    predicates = Counter(relation.predicate for scene in scenes for relation in scene.relations)
    reduced = []
    for scene in scenes:
        kept = [position for position, thing in enumerate(scene.objects) if labels[thing.label] >= min_count]
        new_positions = {old: new for new, old in enumerate(kept)}
        relations = [
            SceneRelation(new_positions[relation.subject], relation.predicate, new_positions[relation.object])
            for relation in scene.relations
            if predicates[relation.predicate] >= min_count
            and {relation.subject, relation.object} <= new_positions.keys()
        ]
        if kept:
            objects = tuple(scene.objects[position] for position in kept)
            reduced.append(replace(scene, objects=objects, relations=tuple(relations)))
    return tuple(reduced)


def _look_up(value: Json, key: int | str, positions: Mapping[Any, int]) -> int:
    if key not in positions:
        raise value.fault(f"is {show_short(key)} but the image has no such object")
    return positions[key]


def _read_box(item: Json) -> PixelBox | None:
    sides = [side for side in map(item.get, ("x", "y", "w", "h")) if side is not None]
    if len(sides) < 4:
        return None
    left, top, width, height = (side.integer() for side in sides)
    return PixelBox(left, top, left + width, top + height)
