"""What the columns of a table are: by the words of its header, or as they are given.

A column is the head, the relation or the tail of facts, the world that they belong to, or passed over (``_``). A
header is *clear* where it has one best word for each of head, relation and tail: of the words for one role the earlier
in `HEADER_WORDS` wins, so that in ``subject,predicate,object,source`` the source is passed over.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from rulewright.data.vocabulary import format_count
from rulewright.errors import DataError

FACT_ROLES = ("head", "relation", "tail")
ROLES = (*FACT_ROLES, "name", "world", "_")
"""What a column can be. ``name`` is a tail that names entities even where all tails are numerals."""

HEADER_WORDS = {
    "head": (
        *("head", "head_id", "subject", "subject_id", "subj", "h", "s", "start", "start_id", "source", "source_id"),
        *("src", "from", "from_id", "entity1", "entity_1", "node1", "node_1", "head_label", "subject_label"),
    ),
    "relation": (
        *("relation", "relation_id", "predicate", "predicate_id", "relationship", "property", "rel", "pred", "r", "p"),
        *("edge", "edge_type", "edge_label", "type", "label", "relation_label", "predicate_label"),
    ),
    "tail": (
        *("tail", "tail_id", "object", "object_id", "obj", "t", "o", "end", "end_id", "target", "target_id"),
        *("dst", "dest", "to", "to_id", "entity2", "entity_2", "node2", "node_2", "tail_label", "object_label"),
    ),
    "world": ("world", "document", "image", "doc"),
}
"""The words by which a header names each role, the surest first."""

_ROLE_OF = {word: (role, rank) for role, words in HEADER_WORDS.items() for rank, word in enumerate(words)}
_OTHER_WORDS = frozenset(
    (
        *("id", "_id", "uid", "uuid", "key", "index", "row", "row_id", "line", "confidence", "conf", "score", "weight"),
        *("probability", "prob", "support", "count", "frequency", "rank", "timestamp", "provenance", "evidence"),
        *("comment", "rules", "start_date", "end_date", "start_time", "end_time", "valid_from", "valid_to"),
    )
)
_NEO4J_FIELD = re.compile(r"[^:]*:(START_ID|END_ID|TYPE|ID|LABEL)\b.*")


def _normalise(field: str) -> str:
    return re.sub(r"[\s-]+", "_", field.strip().lower().lstrip("#:? ")).strip("_")


def read_header(fields: Sequence[str]) -> tuple[str, ...] | None:
    """Return the role of each column where the first line is a clear header, else None.

    >>> read_header(["id", "subject", "predicate", "object", "source"])
    ('_', 'head', 'relation', 'tail', '_')
    >>> read_header(["ann", "parent_of", "bob"])
    """
    ranks: dict[str, dict[int, int]] = {}  # role → rank of a word → the column that has it
    for position, field in enumerate(fields):
        role, rank = _ROLE_OF.get(_normalise(field), ("_", 0))
        if role != "_" and rank in ranks.setdefault(role, {}):
            return None  # one word twice
        if role != "_":
            ranks[role][rank] = position
    if not ranks.keys() >= set(FACT_ROLES):
        return None
    best = {by_rank[min(by_rank)]: role for role, by_rank in ranks.items()}
    letters = {word for position, role in best.items() if len(word := _normalise(fields[position])) == 1}
    if letters and letters not in ({"h", "r", "t"}, {"s", "p", "o"}):
        return None  # the names of a small example
    return tuple(best.get(position, "_") for position in range(len(fields)))


def has_header_word(fields: Iterable[str]) -> bool:
    """Tell whether one of the fields is a word that headers have and facts seldom do."""
    words = {_normalise(field) for field in fields}
    is_role = any(len(word) > 1 and word in _ROLE_OF for word in words)
    return is_role or not words.isdisjoint(_OTHER_WORDS) or any(map(_NEO4J_FIELD.fullmatch, fields))


def lacks_relation(fields: Sequence[str]) -> bool:
    """Tell whether a header has words for a head and a tail, and none for a relation.

    >>> lacks_relation(["source", "target", "weight"])
    True
    """
    roles = {_ROLE_OF.get(_normalise(field), ("_", 0))[0] for field in fields}
    return {"head", "tail"} <= roles and "relation" not in roles


def guess_roles(fields: Sequence[str]) -> tuple[str, ...]:
    """Return roles that the columns below an unclear header may have, as an example: the first three that can.

    >>> guess_roles(["id", "who", "does", "whom", "score"])
    ('_', 'head', 'relation', 'tail', '_')
    """
    possible = [position for position, field in enumerate(fields) if _normalise(field) not in _OTHER_WORDS]
    chosen = dict(zip(possible if len(possible) >= 3 else range(3), FACT_ROLES, strict=False))
    return tuple(chosen.get(position, "_") for position in range(len(fields)))


def is_by_name(columns: Sequence[str]) -> bool:
    """Tell whether columns are given by their names in the header, ``head=subject``, and not by position."""
    named = ["=" in column for column in columns]
    if any(named) and not all(named):
        raise DataError(
            "columns are given either in order, such as head,relation,tail,_, or all by name, such as "
            f"head=subject,relation=predicate,tail=object; got {','.join(columns)}"
        )
    return any(named)


def choose_columns(columns: Sequence[str], fields: Sequence[str]) -> tuple[str, ...]:
    """Return the role of each of the ``fields`` where ``columns`` says it, in order or by name.

    >>> choose_columns(["head", "relation", "tail"], ["ann", "likes", "bob", "0.7"])
    ('head', 'relation', 'tail', '_')
    >>> choose_columns(["tail=who", "head=whom", "relation=how"], ["id", "who", "how", "whom"])
    ('_', 'tail', 'relation', 'head')
    """
    by_name = is_by_name(columns)
    roles = [column.partition("=")[0].strip() for column in columns]
    tails = roles.count("tail") + roles.count("name")
    if (
        not set(roles) <= set(ROLES)
        or (roles.count("head"), roles.count("relation"), tails) != (1, 1, 1)
        or roles.count("world") > 1
    ):
        raise DataError(
            "columns must name head, relation and tail once and may name world and _ (name instead of tail keeps "
            f"numerals as names), got {list(columns)}"
        )
    if not by_name:
        if len(roles) > len(fields):
            raise DataError(
                f"found {format_count(len(fields), 'column', 'columns')}, expected {len(roles)} ({', '.join(roles)})"
            )
        return (*roles, *["_"] * (len(fields) - len(roles)))
    chosen = ["_"] * len(fields)
    for role, name in zip(roles, (column.partition("=")[2] for column in columns), strict=True):
        chosen[find_field(name, fields)] = role
    return tuple(chosen)


def find_field(name: str, fields: Sequence[str]) -> int:
    """Return the position of the column with this name, which the header must have once."""
    positions = [position for position, field in enumerate(fields) if field.strip() == name.strip()]
    if len(positions) != 1:
        found = "no column" if not positions else f"{len(positions)} columns"
        raise DataError(f"{found} with the name {name!r}; the first line has {', '.join(map(repr, fields))}")
    return positions[0]


def describe_columns(roles: Sequence[str], fields: Sequence[str] | None) -> str:
    """Say how the columns of a table were read, nothing where there is nothing to say.

    >>> describe_columns(["head", "relation", "tail", "_"], ["subject", "predicate", "object", "source"])
    'head = subject, relation = predicate, tail = object; 1 more column ignored: source'
    >>> describe_columns(["head", "relation", "tail", "_"], None)
    'the first three columns are head, relation and tail; 1 more column ignored'
    >>> describe_columns(["head", "relation", "tail"], None)
    ''
    """
    ignored = [position for position, role in enumerate(roles) if role == "_"]
    count = f"{format_count(len(ignored), 'more column', 'more columns')} ignored"
    if fields is None:
        return f"the first three columns are head, relation and tail; {count}" if ignored else ""
    named: Mapping[str, str] = {role: fields[roles.index(role)].strip() for role in ROLES[:-1] if role in roles}
    parts = []
    if any(role != name.lower() for role, name in named.items()):
        parts.append(", ".join(f"{role} = {name}" for role, name in named.items()))
    if ignored:
        parts.append(f"{count}: " + ", ".join(fields[position].strip() or "(no name)" for position in ignored))
    return "; ".join(parts)
