import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rulewright.data import Domain
from rulewright.data.vocabulary import MOST_COMPARED, lay_out_domains
from rulewright.errors import DataError, UnknownNameError

labels = st.lists(st.text(max_size=8), unique=True, max_size=30)


@pytest.mark.slow
@given(labels, st.integers(0, 1000))
def test_every_label_has_its_own_id_and_comes_back(names: list[str], start: int) -> None:
    domain = Domain("thing", names, start=start)
    assert len(domain) == len(names)
    assert [domain.index_of(name) for name in names] == list(range(start, start + len(names)))
    assert [domain.find(name) for name in names] == list(range(start, start + len(names)))
    assert domain.labels_of(domain.members()).tolist() == names
    assert all(name in domain for name in names)
    assert domain.members().dtype == np.int32


@given(labels, labels)
def test_what_is_not_there_is_not_found(names: list[str], others: list[str]) -> None:
    domain = Domain("thing", names)
    for other in set(others) - set(names):
        assert other not in domain
        assert domain.find(other) is None
        with pytest.raises(UnknownNameError, match="unknown thing"):
            domain.index_of(other)


@pytest.mark.parametrize("label", ["", "'", '"', "a\tb", "a\nb", "naïve", "日本", "🙂", "a\\b", " ", "0", "X", "\x00"])
def test_hostile_labels_are_only_labels(label: str) -> None:
    domain = Domain("thing", ["plain", label], start=7)
    assert domain.index_of(label) == 8
    assert domain.labels_of([8]).tolist() == [label]


def test_labels_from_an_array_are_plain_strings() -> None:
    domain = Domain("thing", np.array(["ann", "bob"]))
    assert [type(label) for label in domain.labels.tolist()] == [str, str]
    assert domain.index_of("bob") == 1


def test_an_unknown_label_names_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match="unknown person 'anne'; did you mean 'ann'"):
        Domain("person", ["ann", "bob"]).index_of("anne")


def test_among_very_many_labels_those_that_begin_alike_are_compared() -> None:
    domain = Domain("person", [f"person_{number}" for number in range(MOST_COMPARED + 1)])
    with pytest.raises(UnknownNameError, match="unknown person 'Person_77' among 20,001; did you mean 'person_77'"):
        domain.index_of("Person_77")
    with pytest.raises(UnknownNameError, match=r"unknown person 'ann' among 20,001$"):
        domain.index_of("ann")


def test_a_repeated_label_is_refused() -> None:
    with pytest.raises(DataError, match="type person has the same label twice"):
        Domain("person", ["ann", "ann"]).index_of("ann")


def test_worlds_choose_members() -> None:
    domain = Domain("token", ["a", "b", "c", "d"], start=5, worlds=np.array([0, 1, 0, 2], dtype=np.int32))
    assert domain.members().tolist() == [5, 6, 7, 8]
    assert [domain.members(world).tolist() for world in range(4)] == [[5, 7], [6], [8], []]
    assert domain.members(0).dtype == np.int32


def test_worlds_must_be_as_many_as_entities() -> None:
    with pytest.raises(DataError, match="type token has 2 entities but 1 worlds"):
        Domain("token", ["a", "b"], worlds=np.array([0], dtype=np.int32))


@given(st.dictionaries(st.text(min_size=1, max_size=5), labels, max_size=5))
def test_types_share_no_id(types: dict[str, list[str]]) -> None:
    domains = lay_out_domains((name, names, None) for name, names in types.items())
    assert list(domains) == list(types)
    ids = [number for domain in domains.values() for number in domain.members().tolist()]
    assert ids == list(range(sum(map(len, types.values()))))


def test_repr_is_short() -> None:
    assert repr(Domain("person", ["ann"])) == "Domain('person', 1 entity)"
