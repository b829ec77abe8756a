import hashlib
import os
import re
import string
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from rulewright.datasets import Dataset, DatasetFile, catalogue, find
from rulewright.errors import DataError, UnknownNameError

NAMES = [
    "umls",
    "kinship",
    "wn18",
    "wn18rr",
    "fb15k237",
    "countries_s1",
    "countries_s2",
    "countries_s3",
    "dwie",
    "redocred",
    "smoke",
    "kinship_mln",
    "uw_cse",
    "cora",
    "funsd",
    "conll2003",
    "vrd",
]
REAL_DATA = Path(os.environ.get("RULEWRIGHT_DATA") or Path(__file__).parents[3] / "shared" / "data")
needs_real_data = pytest.mark.skipif(
    not REAL_DATA.is_dir(), reason="needs the real files: set RULEWRIGHT_DATA to a folder with the catalogue's layout"
)


def paths(name: str) -> set[str]:
    return {file.path for file in catalogue()[name].files}


def test_every_named_set_is_there_and_no_other() -> None:
    assert list(catalogue()) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_set_says_what_it_is_and_under_which_terms(name: str) -> None:
    dataset = catalogue()[name]
    assert dataset.name == name
    assert dataset.title
    assert re.fullmatch(r"\S[^\n]*\.", dataset.description)
    assert dataset.licence
    assert "\n" not in dataset.licence
    assert re.search(r"\b(19|20)\d\d\b", dataset.citation)
    assert "\n" not in dataset.citation
    assert dataset.statistics
    assert all(count > 0 for count in dataset.statistics.values())
    assert dataset.files


@pytest.mark.parametrize("name", ["funsd", "conll2003"])
def test_research_only_sets_say_so(name: str) -> None:
    assert "research" in catalogue()[name].licence
    assert "never redistributed" in catalogue()[name].licence


def test_every_file_row_is_well_formed() -> None:
    listed = [file for dataset in catalogue().values() for file in dataset.files]
    assert len({file.path for file in listed}) == len(listed)
    for file in listed:
        assert file.size > 0
        assert len(file.sha256) == 64
        assert set(file.sha256) <= set(string.hexdigits.lower())
        if file.url is not None:
            address = urlsplit(file.url)
            assert (address.scheme, address.netloc) == ("https", "raw.githubusercontent.com")
            assert re.fullmatch(r"/[^/]+/[^/]+/[0-9a-f]{40}/[\w./%-]+", address.path)


def test_every_row_of_the_file_list_belongs_to_a_set() -> None:
    rows = files("rulewright.datasets").joinpath("files.tsv").read_text().splitlines()[1:]
    assert sum(len(dataset.files) for dataset in catalogue().values()) == len(rows)


def test_a_set_takes_no_files_of_a_folder_that_merely_starts_alike() -> None:
    assert paths("wn18") == {"kbc/wn18/train.tsv", "kbc/wn18/valid.tsv", "kbc/wn18/test.tsv"}


def test_answers_and_leaking_facts_of_countries_are_not_loaded() -> None:
    for name in ("countries_s1", "countries_s2", "countries_s3"):
        assert {Path(path).name for path in paths(name)} == {"graph.tsv", "train.tsv", "test.tsv"}


def test_extra_folders_belong_to_their_set() -> None:
    assert "docred_meta/train_annotated.fact" in paths("redocred")
    assert {"dwie/dwie.grules.txt", "dwie/reference_predictions/result_MILR_dev.json"} <= paths("dwie")


def test_local_only_files() -> None:
    local = {file.path for dataset in catalogue().values() for file in dataset.files if file.url is None}
    assert local == {"kbc/wn18/train.tsv", "dwie/train_annotations_notext.json"} | paths("vrd")


@pytest.mark.parametrize("name", NAMES)
def test_parts_cover_a_set_that_has_them(name: str) -> None:
    dataset = catalogue()[name]
    if dataset.parts:
        assert {file for part in dataset.parts for file in dataset.files_of(part)} == set(dataset.files)
        assert {what.split("/")[0] for what in dataset.statistics if "/" in what} == set(dataset.parts)


def test_find_takes_a_part() -> None:
    assert find("cora") == (catalogue()["cora"], None)
    assert find("cora/S2") == (catalogue()["cora"], "S2")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("umsl", "unknown data set 'umsl'; did you mean 'umls'?"),
        ("cora/S9", "unknown part of cora 'S9'; known: S1, S2, S3"),
        ("cora/", "unknown part of cora ''; known: S1, S2, S3"),
        ("umls/S1", "unknown part of umls 'S1'; no part of umls is known here"),
    ],
)
def test_find_names_what_is_unknown(name: str, message: str) -> None:
    with pytest.raises(UnknownNameError) as error:
        find(name)
    assert str(error.value) == message


def test_the_catalogue_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        catalogue()["umls"].statistics["entities"] = 0  # type: ignore[index]
    with pytest.raises(AttributeError):
        catalogue()["umls"].title = "mine"  # type: ignore[misc]


@pytest.mark.parametrize("path", ["", ".", "../a", "a/../../b", "/etc/passwd", "a\\..\\b", "C:/a", "a\0b"])
def test_a_file_cannot_lie_outside_the_data_folder(path: str) -> None:
    with pytest.raises(DataError, match="must lie inside the data folder"):
        DatasetFile(path=path, url=None, size=1, sha256="0" * 64)


@needs_real_data
@pytest.mark.parametrize("name", NAMES)
def test_real_files_have_the_listed_size_and_checksum(name: str) -> None:
    dataset = catalogue()[name]
    present = [file for file in dataset.files if (REAL_DATA / file.path).is_file()]
    if len(present) < len(dataset.files):
        pytest.skip(f"{REAL_DATA} does not hold all files of {name}")
    for file in present:
        content = (REAL_DATA / file.path).read_bytes()
        assert (file.path, len(content), hashlib.sha256(content).hexdigest()) == (file.path, file.size, file.sha256)


@pytest.mark.slow
@needs_real_data
@pytest.mark.parametrize("name", [name for name in NAMES if catalogue()[name].folder.startswith("kbc/")])
def test_statistics_of_graphs_are_those_of_the_files(name: str) -> None:
    dataset: Dataset = catalogue()[name]
    if not all((REAL_DATA / file.path).is_file() for file in dataset.files):
        pytest.skip(f"{REAL_DATA} does not hold all files of {name}")
    counted: dict[str, int] = {}
    entities: set[str] = set()
    relations: set[str] = set()
    for file in dataset.files:
        rows = [line.split("\t") for line in (REAL_DATA / file.path).read_text().splitlines()]
        counted[Path(file.path).stem] = len(rows)
        entities.update(name for head, _, tail in rows for name in (head, tail))
        relations.update(relation for _, relation, _ in rows)
    assert {**counted, "entities": len(entities), "relations": len(relations)} == dict(dataset.statistics)
