"""Predictions beside gold labels, of worlds of any shape."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rulewright.errors import RulewrightError
from rulewright.inject import RuleDecoder
from rulewright.inject.atom_space import AtomSpace
from rulewright.inject.labelled_worlds import read_labelled_worlds

NAMES = ("likes", "knows")
SPACE = AtomSpace(
    "predicate dog(animal). predicate tag(animal) in {b, i, o}. predicate rain. predicate sees(animal, man)."
)


def draw(shape, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(size=shape), random.random(shape) < 0.4


def test_relations_are_views_without_diagonal_padding_and_evidence():
    logits, gold = draw((2, 3, 3, 2))
    mask = np.array([[True, True, True], [True, True, False]])
    where = np.zeros((2, 3, 3), dtype=bool)
    where[0, 0, 1] = True
    (world,) = read_labelled_worlds(
        logits, gold, relations=NAMES, evidence={"likes": (np.zeros((2, 3, 3), dtype=bool), where)}, mask=mask
    )
    assert world.batch == (2,) and world.rows == 2 and not world.has_classes("likes")
    assert np.shares_memory(world.logits["knows"], logits) and np.shares_memory(world.gold["knows"], gold)
    assert np.array_equal(world.logits["knows"], logits[..., 1])
    counted = np.einsum("bi,bj->bij", mask, mask) & ~np.eye(3, dtype=bool)
    assert np.array_equal(world.counted["knows"], counted)
    assert np.array_equal(world.counted["likes"], counted & ~where)
    assert world.given is logits and world.mask is mask


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor])
def test_documents_of_different_sizes(convert):
    sizes = (3, 2, 1, 0)
    drawn = [draw((size, size, 2), size) for size in sizes]
    worlds = read_labelled_worlds(
        [convert(logits) for logits, _ in drawn],
        [convert(gold) for _, gold in drawn],
        relations=NAMES,
        mask=[convert(np.ones(size, dtype=bool)) for size in sizes],
    )
    assert [int(world.counted["likes"].sum()) for world in worlds] == [6, 2, 0, 0]
    for world, (logits, gold) in zip(worlds, drawn, strict=True):
        assert np.array_equal(world.logits["likes"], logits[None, ..., 0])
        assert np.array_equal(world.gold["likes"], gold[None, ..., 0])
    decoder = RuleDecoder("hard !(likes(X, Y) & knows(X, Y)).", relations=NAMES)
    for world in worlds:
        decoder(world.given, world.evidence, world.mask)


def test_predicates_of_any_arity_with_classes_and_a_batch():
    dog, tag, rain, sees = (draw(shape)[0] for shape in ((4, 3), (4, 3, 3), (4,), (4, 3, 2)))
    gold = {"dog": dog > 0, "tag": tag.argmax(-1), "rain": rain > 0, "sees": sees > 0}
    gold["tag"][1, 2] = -100  # padding
    mask = np.ones((4, 3), dtype=bool)
    mask[1, 2] = False
    (world,) = read_labelled_worlds(
        {"dog": dog, "tag": tag, "rain": rain, "sees": sees}, gold, space=SPACE, mask={"animal": mask}
    )
    assert world.has_classes("tag")
    assert {name: part.shape for name, part in world.logits.items()} == {
        "dog": (4, 3),
        "tag": (4, 3, 3),
        "rain": (4,),
        "sees": (4, 3, 2),
    }
    assert {name: int(part.sum()) for name, part in world.counted.items()} == {
        "dog": 11,
        "tag": 11,
        "rain": 4,
        "sees": 22,
    }


def test_what_is_not_declared_is_read_off_the_shapes():
    logits, gold = {"dog": np.zeros(3), "tag": np.zeros((3, 4))}, {"dog": np.ones(3), "tag": np.array([0, 1, 3])}
    (world,) = read_labelled_worlds(logits, gold, evidence={"tag": np.array([0, 1, 2])})
    assert world.space.predicates["tag"].classes == ("0", "1", "2", "3") and world.rows == 1
    assert world.gold["dog"].tolist() == [[True, True, True]]
    assert not world.counted["tag"].any() and world.counted["dog"].all()


PAIRS = np.zeros((2, 2, 2))
TRUTHS = PAIRS > 0


@pytest.mark.parametrize(
    ("predictions", "gold", "options", "message"),
    [
        ([PAIRS], TRUTHS, {"relations": NAMES}, "gold has the structure of the predictions: a list of 1, got one"),
        ([PAIRS], [TRUTHS] * 2, {"relations": NAMES}, "a list of 1, got a list of 2"),
        ([], [], {"relations": NAMES}, "there are no predictions"),
        (
            [PAIRS, PAIRS],
            [TRUTHS, TRUTHS[1:]],
            {"relations": NAMES},
            r"world 1: gold .* the shape \[1, 2, 2\]",
        ),
        (PAIRS, TRUTHS, {}, "needs relations"),
        (PAIRS, TRUTHS, {"relations": ["a"]}, r"\[B, n, n, 1\], got \[2, 2, 2\]"),
        (PAIRS, TRUTHS, {"relations": NAMES, "space": SPACE}, "leave them out"),
        ([PAIRS], [TRUTHS], {"relations": NAMES, "mask": [None, None]}, "mask must be one, or a list of 1"),
        (PAIRS, TRUTHS, {"relations": NAMES, "mask": np.ones(3, dtype=bool)}, "has 3 entities, expected 2"),
        ({"dog": np.zeros(3)}, {"dog": np.zeros(2)}, {"space": SPACE}, r"dog\(animal\).* shape \[2\], expected \[3\]"),
        ({"dog": np.zeros(3)}, {}, {}, "dog has predictions and no gold labels"),
        ({"dog": np.zeros(3)}, {"dog": np.ones(3), "cat": np.ones(3)}, {}, "cat"),
        ({"dog": np.zeros(3)}, {"dog": np.array([0, 1, 2])}, {}, "gold labels of dog must be true or false.* got 2"),
        ({"dog": np.zeros(3)}, {"dog": np.array(["a"] * 3)}, {}, "gold labels of dog must be boolean"),
        ({"dog": np.array([0, np.nan])}, {"dog": np.ones(2)}, {}, r"logits of dog must be finite, got nan at \[0, 1\]"),
        ({"dog": np.zeros(3)}, {"dog": np.ones(3)}, {"mask": {"animal": np.ones(3)}}, "give the declarations"),
        ({"dog": np.zeros(3)}, {"dog": np.ones(3)}, {"space": SPACE, "mask": np.ones(3)}, "given by type"),
        ({"tag": np.zeros((2, 3))}, {"tag": np.array([0, 3])}, {"space": SPACE}, "class indices below 3, got 3"),
        ({"tag": np.zeros((2, 3))}, {"tag": np.zeros(2)}, {"space": SPACE}, "class indices, got float64"),
        ([{"dog": np.zeros(2)}, {"cat": np.zeros(2)}], [{"dog": np.zeros(2)}, {"cat": np.zeros(2)}], {}, "world 1"),
        (
            [{"dog": np.zeros(2)}, {"rain": np.zeros(())}],
            [{"dog": np.zeros(2)}, {"rain": np.zeros(())}],
            {"space": SPACE},
            "world 1: it has predictions of rain, but world 0 of dog",
        ),
    ],
)
def test_errors_say_what_and_where(predictions, gold, options, message):
    with pytest.raises(RulewrightError, match=message):
        read_labelled_worlds(predictions, gold, **options)


def test_what_does_not_count_may_be_anything():
    logits, gold = np.array([np.nan, 1.0]), np.array([-1, 1])
    where = np.array([True, False])
    (world,) = read_labelled_worlds({"dog": logits}, {"dog": gold}, evidence={"dog": (where, where)})
    assert world.counted["dog"].tolist() == [[False, True]] and world.gold["dog"].tolist() == [[False, True]]
