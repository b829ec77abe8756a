import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rulewright.data import Domain, KnowledgeBase
from rulewright.data.facts import FactTable, distinct_rows, empty_columns
from rulewright.data.vocabulary import lay_out_domains
from rulewright.errors import DataError, UnknownNameError
from rulewright.logic import PredicateDeclaration

PREDICATES = {
    each.name: each
    for each in [
        PredicateDeclaration("tall", ("person",)),
        PredicateDeclaration("reads", ("person", "book")),
        PredicateDeclaration("age", ("person", "number")),
        PredicateDeclaration("mood", ("person",), ("good", "bad", "so-so")),
    ]
}

rows = st.lists(st.tuples(st.integers(-2, 2), st.integers(0, 2), st.sampled_from([0.0, -0.0, 0.5])), max_size=30)


@given(rows, st.sampled_from([1, 2, 3]), st.sampled_from([np.int32, np.int64, np.uint8]))
def test_distinct_rows_keeps_the_first_of_each(
    given_rows: list[tuple[int, int, float]], width: int, dtype: type[np.generic]
) -> None:
    kinds = [dtype if np.dtype(dtype).kind == "i" else np.int8, dtype, np.float64]
    columns = [np.array([row[place] for row in given_rows], dtype=kinds[place]) for place in range(width)]
    expected = list(dict.fromkeys(row[:width] for row in given_rows))
    found = distinct_rows(columns)
    assert list(zip(*(column.tolist() for column in found), strict=True)) == expected
    assert [column.dtype for column in found] == [column.dtype for column in columns]


def test_distinct_rows_too_wide_to_number() -> None:
    far = np.array([0, 2**40, 0, 2**40], dtype=np.int64)
    assert [column.tolist() for column in distinct_rows([far, far])] == [[0, 2**40], [0, 2**40]]


def test_distinct_rows_returns_the_columns_where_nothing_repeats() -> None:
    columns = [np.array([3, 1, 2], dtype=np.int32), np.array([1, 1, 1], dtype=np.int32)]
    assert all(one is other for one, other in zip(distinct_rows(columns), columns, strict=True))


@given(st.lists(st.tuples(st.integers(0, 4), st.lists(st.integers(0, 9), max_size=4)), unique_by=lambda part: part[0]))
def test_a_table_gives_back_each_predicate(parts: list[tuple[int, list[int]]]) -> None:
    table = FactTable.stack("e", {index: [np.array(values, dtype=np.int64)] for index, values in parts})
    assert table.predicate.dtype == table.columns[0].dtype == np.int32
    assert len(table) == sum(len(values) for _, values in parts)
    values_of = dict(parts)
    for index in range(6):
        assert table.columns_of(index)[0].tolist() == values_of.get(index, [])


def test_empty_columns_have_their_types() -> None:
    assert [column.dtype for column in empty_columns("enc")] == [np.int32, np.float64, np.int32]


def ids(*values: float) -> npt.NDArray[np.int64]:
    return np.array(values)


@pytest.fixture
def domains() -> dict[str, Domain]:
    return lay_out_domains([("person", ["ann", "bob", "cid"], None), ("book", ["emma", "ulysses"], None)])


def test_columns_from_outside(domains: dict[str, Domain]) -> None:
    kb = KnowledgeBase.from_columns(
        domains,
        PREDICATES.values(),
        {"reads": [ids(0, 2, 0), ids(3, 4, 3)], "age": [ids(1), np.array([7])], "mood": [ids(0, 1), ids(2, 0)]},
        {"reads": [ids(1, 1), ids(3, 3)]},
        closed=["reads"],
    )
    assert kb.tuples("reads") == [("ann", "emma"), ("cid", "ulysses")]
    assert kb.tuples("reads", truth=False) == [("bob", "emma")]
    assert kb.tuples("age") == [("bob", 7.0)]
    assert kb.tuples("mood") == [("ann", "so-so"), ("bob", "good")]
    assert kb.duplicates == 1
    assert kb.closed == {"reads"}
    assert [column.dtype for column in kb.columns("mood")] == [np.int32, np.int32]


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("read", [ids(0), ids(3)], "unknown predicate 'read'; did you mean 'reads'"),
        ("reads", [ids(0)], r"reads needs 2 columns of one length, got \[1\]"),
        ("reads", [ids(0, 1), ids(3)], r"reads needs 2 columns of one length, got \[2, 1\]"),
        ("reads", [], r"reads needs 2 columns of one length, got \[\]"),
        ("reads", [ids(0), ids(1)], r"ids of type book are 3 … 4, got 1 in reads"),
        ("reads", [ids(3), ids(3)], r"ids of type person are 0 … 2, got 3 in reads"),
        ("mood", [ids(0), ids(3)], "classes of mood are 0 … 2, got 3 in mood"),
        ("mood", [ids(0, 0), ids(1, 2)], "contradictory facts: mood has two classes for the same arguments"),
        ("age", [ids(0), np.array([np.nan])], "argument 2 of age must be finite numbers"),
    ],
)
def test_columns_that_cannot_be_meant(
    domains: dict[str, Domain], name: str, columns: list[npt.NDArray[np.int64]], message: str
) -> None:
    with pytest.raises((DataError, UnknownNameError), match=message):
        KnowledgeBase.from_columns(domains, PREDICATES.values(), {name: columns})


def test_columns_both_true_and_false(domains: dict[str, Domain]) -> None:
    with pytest.raises(DataError, match="contradictory facts: tall is both true and false"):
        KnowledgeBase.from_columns(domains, PREDICATES.values(), {"tall": [ids(0, 1)]}, {"tall": [ids(1)]})
    with pytest.raises(DataError, match="mood is multi-class"):
        KnowledgeBase.from_columns(domains, PREDICATES.values(), {}, {"mood": [ids(1), ids(0)]})


def test_columns_across_worlds() -> None:
    worlds = np.array([0, 1], dtype=np.int32)
    domains = lay_out_domains([("person", ["a", "b"], worlds), ("book", ["c", "d"], worlds)])
    kb = KnowledgeBase.from_columns(
        domains, PREDICATES.values(), {"reads": [ids(0, 1), ids(2, 3)]}, worlds=["w0", "w1"]
    )
    assert kb.in_worlds(["w1"]).tuples("reads") == [("b", "d")]
    with pytest.raises(DataError, match="a fact of reads has arguments of two worlds"):
        KnowledgeBase.from_columns(domains, PREDICATES.values(), {"reads": [ids(0), ids(3)]}, worlds=["w0", "w1"])
