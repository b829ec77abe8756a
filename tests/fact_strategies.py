"""Knowledge bases of every shape for hypothesis, and what a file must keep of one."""

from __future__ import annotations

import contextlib

from hypothesis import strategies as st

from rulewright.data import KnowledgeBase, KnowledgeBaseBuilder
from rulewright.errors import DataError
from rulewright.logic import PredicateDeclaration


def contents(kb: KnowledgeBase) -> dict[str, object]:
    """Everything that a file must keep, by label; the order of predicates, classes, worlds and splits counts."""

    def worlds(kind: str) -> object:
        domain = kb.domains[kind]
        numbers = [None] * len(domain) if domain.worlds is None else domain.worlds.tolist()
        return sorted(
            (label, None if number is None else kb.worlds[number])
            for label, number in zip(domain.labels.tolist(), numbers, strict=True)
        )

    return {
        "predicates": list(kb.predicates.values()),
        "closed": kb.closed,
        "worlds": kb.worlds,
        "entities": {kind: worlds(kind) for kind in kb.domains},
        "facts": {truth: frozenset(kb.facts(truth=truth)) for truth in (True, False)},
        "splits": [
            (name, {truth: frozenset(part.facts(truth=truth)) for truth in (True, False)})
            for name, part in kb.splits.items()
        ],
    }


NAMES = st.one_of(
    st.sampled_from(
        ["a", "b", "in", "world", "split", "entity", "number", "42", "it's", "a\tb\n", "", "\\", "X", "'', '"]
    ),
    st.text(max_size=6),
    st.text(alphabet="ab'\\ ,.(){}%!\n\t\r\ud800\x85\u2028", max_size=5),
)
NUMBERS = st.one_of(
    st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False), st.just(1e22), st.just(-0.0)
)


@st.composite
def knowledge_bases(draw: st.DrawFn) -> KnowledgeBase:
    types = draw(st.lists(NAMES.filter(lambda name: name != "number"), min_size=1, max_size=3, unique=True))
    declarations = []
    for name in draw(st.lists(NAMES, max_size=4, unique=True)):
        places = draw(st.lists(st.sampled_from(["entity", "number", *types]), min_size=1, max_size=3))
        classes = draw(st.none() | st.lists(NAMES, min_size=2, max_size=3, unique=True))
        declarations.append(PredicateDeclaration(name, tuple(places), None if classes is None else tuple(classes)))
    closed = [each.name for each in declarations if draw(st.booleans())]
    shared = draw(st.lists(st.sampled_from(["entity", *types]), max_size=2))
    builder = KnowledgeBaseBuilder(declarations, closed=closed, shared=shared)
    worlds: list[str | None] = [*draw(st.lists(NAMES, max_size=2, unique=True))] or [None]
    splits = ["", *draw(st.lists(NAMES.filter(bool), max_size=2, unique=True))]
    for world in worlds:
        if world is not None:
            builder.world(world)
    for _ in range(draw(st.integers(0, 12))):
        world, split = draw(st.sampled_from(worlds)), draw(st.sampled_from(splits))
        # An entity of another world is refused, and a fact that contradicts an earlier one
        if not declarations or draw(st.booleans()):
            with contextlib.suppress(DataError):
                builder.entity(draw(NAMES), type=draw(st.sampled_from(types)), world=world)
            continue
        each = draw(st.sampled_from(declarations))
        args = [draw(NUMBERS if kind == "number" else NAMES) for kind in each.types]
        value = None if each.classes is None else draw(st.sampled_from(each.classes))
        truth = each.classes is not None or draw(st.booleans())
        with contextlib.suppress(DataError):
            builder.add(each.name, args, truth=truth, value=value, world=world, split=split)
    return builder.build()
