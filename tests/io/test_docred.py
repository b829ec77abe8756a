import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rulewright.errors import DataError, FileError, ParseError, RulewrightError
from rulewright.io.docred import (
    Document,
    Entity,
    Fact,
    Mention,
    Prediction,
    read_documents,
    read_predictions,
    read_relation_names,
    to_knowledge_base,
    write_documents,
    write_predictions,
)

DATA = Path(os.environ.get("RULEWRIGHT_DATA") or Path(__file__).parents[2].parent / "shared" / "data")
needs_dwie = pytest.mark.skipif(not (DATA / "dwie").is_dir(), reason="needs DWIE: set RULEWRIGHT_DATA")
needs_redocred = pytest.mark.skipif(not (DATA / "redocred").is_dir(), reason="needs Re-DocRED: set RULEWRIGHT_DATA")
one_folder = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)

VALID = [
    {
        "title": "Bonn",
        "sents": [["Bonn", "lies", "in", "Germany", "."], ["Bonn", "is", "old", "."]],
        "vertexSet": [
            [
                {"name": "Bonn", "pos": [0, 1], "sent_id": 0, "type": "LOC", "index": "0_0"},
                {"name": "Bonn", "pos": [0, 1], "sent_id": 1, "type": "LOC"},
            ],
            [{"name": "Germany", "pos": [3, 4], "sent_id": 0, "type": "LOC"}],
        ],
        "labels": [
            {"r": "P17", "h": 0, "t": 1, "evidence": [0]},
            {"r": "P17", "h": 0, "t": 1, "evidence": []},
            {"r": "P150", "h": 1, "t": 0},
        ],
    },
    {"title": "Empty", "vertexSet": [], "labels": []},
    {"title": "No text", "vertexSet": [[{"name": "EU", "char_span": [18, 20], "type": "type::organization"}]]},
]

anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 50) | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["title", "sents", "vertexSet", "labels", "name", "type", "pos", "sent_id", "h", "t", "r"]),
            inner,
        )
    ),
    max_leaves=20,
)


@st.composite
def mutated(draw):
    """Return the valid documents with one part, at any depth, replaced or removed."""
    documents = json.loads(json.dumps(VALID))
    parent, key = documents, draw(st.integers(0, 2))
    while isinstance(parent[key], dict | list) and parent[key] and draw(st.integers(0, 5)):
        parent = parent[key]
        key = draw(st.sampled_from([*parent] if isinstance(parent, dict) else range(len(parent))))
    if draw(st.booleans()):
        del parent[key]
    else:
        parent[key] = draw(anything)
    return documents


names = st.text(max_size=5)
mentions = st.builds(Mention, names, names, characters=st.none() | st.just((3, 7)))


@st.composite
def documents(draw):
    sentences = tuple(map(tuple, draw(st.lists(st.lists(names, min_size=1, max_size=3), max_size=3))))
    if sentences:
        placed = st.builds(Mention, names, names, st.just(len(sentences) - 1), st.just(0), st.just(1))
        entities = draw(st.lists(st.builds(Entity, st.tuples(placed | mentions, mentions)), max_size=3))
        evidence = st.lists(st.integers(0, len(sentences) - 1), max_size=2).map(tuple)
    else:
        entities = draw(st.lists(st.builds(Entity, st.tuples(mentions)), max_size=3))
        evidence = st.just(())
    ends = st.integers(0, max(0, len(entities) - 1))
    facts = draw(st.lists(st.builds(Fact, ends, names, ends, evidence), max_size=5 if entities else 0))
    return Document(draw(names), sentences, tuple(entities), tuple(facts))


collections = st.lists(documents(), max_size=4, unique_by=lambda document: document.title).map(tuple)


def written(folder, value):
    path = folder / "docs.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def changed(*steps, to):
    """Return the valid documents with the value at a path replaced."""
    result = json.loads(json.dumps(VALID))
    parent = result
    for step in steps[:-1]:
        parent = parent[step]
    if to is None:
        del parent[steps[-1]]
    else:
        parent[steps[-1]] = to
    return result


def test_reading(tmp_path):
    bonn, empty, bare = read_documents(written(tmp_path, VALID))
    assert bonn.sentences[1] == ("Bonn", "is", "old", ".")
    assert [(entity.name, entity.type, len(entity.mentions)) for entity in bonn.entities] == [
        ("Bonn", "LOC", 2),
        ("Germany", "LOC", 1),
    ]
    assert bonn.entities[1].mentions == (Mention("Germany", "LOC", 0, 3, 4),)
    assert bonn.facts == (Fact(0, "P17", 1, (0,)), Fact(0, "P17", 1), Fact(1, "P150", 0))
    assert empty == Document("Empty", (), (), ())
    assert bare.entities[0].mentions == (Mention("EU", "type::organization", characters=(18, 20)),)
    assert bare.facts == ()


def test_knowledge_base(tmp_path):
    documents = read_documents(written(tmp_path, VALID))
    kb = to_knowledge_base(documents)
    assert kb.worlds == ("Bonn", "Empty", "No text")
    assert [*kb.predicates] == ["P150", "P17"]
    assert kb.tuples("P17") == [("Bonn#0 Bonn", "Bonn#1 Germany")]
    assert (kb.n_facts, kb.duplicates) == (2, 1)
    assert [len(kb.domains["entity"].members(world)) for world in range(3)] == [2, 0, 1]
    value, _ = kb.tensor("P150", world="Bonn")
    assert value.tolist() == [[False, False], [True, False]]


def test_options_of_the_knowledge_base(tmp_path):
    bonn, empty, bare = read_documents(written(tmp_path, VALID))
    kb = to_knowledge_base([bonn], relations=["P17", "P9", "P150"], names={"P17": "country"}, splits={"dev": [bare]})
    assert [*kb.predicates] == ["country", "P9", "P150"]
    assert (kb.worlds, kb.split("dev").n_facts) == (("Bonn", "No text"), 0)
    assert kb.contains("country", "Bonn#0 Bonn", "Bonn#1 Germany")
    assert to_knowledge_base([], splits={"dev": [bonn]}).split("dev").n_facts == 2
    assert to_knowledge_base([]).n_entities == 0
    with pytest.raises(DataError, match=r"'Bonn': unknown relation 'P17'; known: P9"):
        to_knowledge_base([bonn], relations=["P9"])
    with pytest.raises(DataError, match="both named 'same'"):
        to_knowledge_base([bonn], names={"P17": "same", "P150": "same"})
    with pytest.raises(DataError, match="two documents are titled 'Bonn'"):
        to_knowledge_base([bonn], splits={"dev": [empty, bonn]})
    with pytest.raises(DataError, match="a split needs a name"):
        to_knowledge_base([bonn], splits={"": [bare]})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"title": "Bonn"}, "the top level must be a list of documents, got an object"),
        (["Bonn"], "document 1 must be an object, got the string 'Bonn'"),
        (changed(1, "title", to=None), "document 2 has no 'title'; it has 'vertexSet', 'labels'"),
        (changed(1, "title", to=7), "document 2: title must be a string, got the number 7"),
        (changed(2, "title", to="Bonn"), "documents 1 and 3 are both titled 'Bonn'; titles must differ"),
        (changed(0, "vertexSet", to=None), "document 1 ('Bonn') has no 'vertexSet'"),
        (changed(0, "vertexSet", 1, to=[]), "document 1 ('Bonn'): vertexSet[1] is empty"),
        (changed(0, "vertexSet", 1, 0, "name", to=None), "document 1 ('Bonn'): vertexSet[1][0] has no 'name'"),
        (changed(0, "vertexSet", 1, 0, "type", to=3), "vertexSet[1][0].type must be a string, got the number 3"),
        (changed(0, "vertexSet", 1, 0, "pos", to=[3]), "vertexSet[1][0].pos must hold 2 whole numbers, got 1"),
        (changed(0, "vertexSet", 1, 0, "pos", to=[4, 4]), "0 <= start < end, got [4, 4]"),
        (changed(0, "vertexSet", 1, 0, "pos", to=[4, 6]), "pos ends at 6 but sentence 0 has 5 tokens"),
        (changed(0, "vertexSet", 1, 0, "sent_id", to=2), "sent_id is 2 but there are 2 sentences"),
        (changed(0, "vertexSet", 1, 0, "sent_id", to=None), "vertexSet[1][0] has no 'sent_id'"),
        (changed(0, "labels", 2, "h", to=44), "document 1 ('Bonn'): labels[2].h is 44 but there are 2 entities"),
        (changed(0, "labels", 2, "t", to=-1), "labels[2].t is -1 but there are 2 entities"),
        (changed(0, "labels", 2, "t", to=True), "labels[2].t must be a whole number, got true"),
        (changed(0, "labels", 2, "r", to=17), "labels[2].r must be a string, got the number 17"),
        (changed(0, "labels", 0, "evidence", 0, to=9), "labels[0].evidence[0] is 9 but there are 2 sentences"),
        (changed(0, "labels", to={}), "labels must be a list of facts, got an object"),
        (changed(0, "sents", 1, to="Bonn is old."), "sents[1] must be a list of strings"),
        (changed(0, "sents", 1, 2, to=5), "sents[1][2] must be a string, got the number 5"),
        ("", "the file is empty"),
        ('[{"title": "A",\n "vertexSet": [}]', "docs.json:2:16: not JSON: expecting value"),
    ],
)
def test_bad_documents_are_reported_by_place(tmp_path, value, message):
    with pytest.raises(ParseError) as caught:
        read_documents(written(tmp_path, value))
    assert message in str(caught.value)
    assert str(tmp_path / "docs.json") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path):
    with pytest.raises(FileError):
        read_documents(tmp_path / "none.json")
    picture = tmp_path / "picture.png"
    picture.write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    for reader in (read_documents, read_predictions, read_relation_names):
        with pytest.raises(ParseError, match="a binary file"):
            reader(picture)


def test_values_made_by_hand_are_checked():
    with pytest.raises(DataError, match="at least one mention"):
        Entity(())
    entity = Entity((Mention("Bonn", "LOC"),))
    for fact in (Fact(0, "r", 1), Fact(-1, "r", 0)):
        with pytest.raises(DataError, match="outside 0 … 0"):
            Document("A", (), (entity,), (fact,))


@pytest.mark.slow
@one_folder
@given(collections)
def test_written_documents_are_read_back(tmp_path, documents):
    path = tmp_path / "docs.json.gz"
    write_documents(documents, path)
    assert read_documents(path) == documents


@pytest.mark.slow
@given(collections)
def test_the_knowledge_base_holds_each_fact_of_each_document_once(documents):
    kb = to_knowledge_base(documents)
    expected = {
        (fact.relation, f"{each.title}#{fact.head} {each.entities[fact.head].name}", fact.tail)
        for each in documents
        for fact in each.facts
    }
    assert kb.n_facts == len(expected)
    assert kb.duplicates == sum(len(each.facts) for each in documents) - len(expected)
    assert len(kb.worlds) == len(documents)
    for number, each in enumerate(documents):
        members = kb.domains["entity"].members(number) if each.entities else []
        assert len(members) == len(each.entities)
        for fact in each.facts:
            ends = kb.domains["entity"].labels_of([members[fact.head], members[fact.tail]])
            assert kb.contains(fact.relation, *ends)


@pytest.mark.slow
@one_folder
@given(anything | mutated())
def test_any_json_is_documents_or_an_error_of_ours(tmp_path, value):
    path = written(tmp_path, value)
    for reader in (read_documents, read_predictions, read_relation_names):
        try:
            found = reader(path)
            if reader is read_documents:
                to_knowledge_base(found)
        except RulewrightError as error:
            assert "\n" not in str(error)


@one_folder
@given(st.integers(0, 10_000), st.integers(0, 5), st.binary(max_size=3))
def test_damaged_files_are_documents_or_an_error_of_ours(tmp_path, place, removed, inserted):
    content = json.dumps(VALID).encode()
    place %= len(content)
    path = tmp_path / "damaged.json"
    path.write_bytes(content[:place] + inserted + content[place + removed :])
    try:
        to_knowledge_base(read_documents(path))
    except RulewrightError as error:
        assert "\n" not in str(error)


def test_predictions(tmp_path):
    path = tmp_path / "result.json"
    predictions = (Prediction("Bonn", 0, "P17", 1), Prediction("Zoë \n", 5, "in0-x", 2))
    write_predictions(predictions, path)
    assert read_predictions(path) == predictions
    assert json.loads(path.read_text())[0] == {"title": "Bonn", "h_idx": 0, "t_idx": 1, "r": "P17"}
    write_predictions([], path)
    assert read_predictions(path) == ()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({}, "must be a list of predictions"),
        ([{"title": "A", "h_idx": 0, "r": "P17"}], "prediction 1 has no 't_idx'"),
        ([{"title": "A", "h_idx": -1, "t_idx": 0, "r": "P17"}], "prediction 1: h_idx is -1; entities count from 0"),
        ([{"title": "A", "h_idx": 0, "t_idx": 0.5, "r": "P17"}], "t_idx must be a whole number, got the number 0.5"),
        ([{"title": "A", "h_idx": 0, "t_idx": 0, "r": None}], "prediction 1 has no 'r'"),
    ],
)
def test_bad_predictions(tmp_path, value, message):
    with pytest.raises(ParseError) as caught:
        read_predictions(written(tmp_path, value))
    assert message in str(caught.value)


def test_relation_names(tmp_path):
    assert read_relation_names(written(tmp_path, {"P17": "country"})) == {"P17": "country"}
    with pytest.raises(ParseError, match="must be a string"):
        read_relation_names(written(tmp_path, {"P17": 3}))


@pytest.mark.slow
@needs_dwie
@pytest.mark.parametrize(
    ("file", "size", "facts", "repeated"),
    [
        ("train_annotations_notext.json", 602, 14_403, 17),
        ("dev.json", 98, 2_624, 4),
        ("test.json", 99, 2_459, 6),
    ],
)
def test_dwie(file, size, facts, repeated):
    documents = read_documents(DATA / "dwie" / file)
    assert len(documents) == size
    assert sum(len(document.facts) for document in documents) == facts
    kb = to_knowledge_base(documents)
    assert (kb.n_facts, kb.duplicates) == (facts - repeated, repeated)


@pytest.mark.slow
@needs_dwie
def test_dwie_with_all_its_splits_and_its_order_of_relations():
    relations = [*json.loads((DATA / "dwie/rel2id.json").read_text())][1:]
    train, dev, test = (
        read_documents(DATA / "dwie" / file) for file in ("train_annotations_notext.json", "dev.json", "test.json")
    )
    kb = to_knowledge_base(train, relations=relations, splits={"dev": dev, "test": test})
    assert [*kb.predicates] == relations
    assert len(kb.worlds) == 602 + 98 + 99
    assert (kb.n_facts, kb.split("dev").n_facts, kb.split("test").n_facts) == (14_386, 2_620, 2_453)


@needs_dwie
def test_reference_predictions_name_documents_and_entities(tmp_path):
    documents = {document.title: document for document in read_documents(DATA / "dwie/test.json")}
    predictions = read_predictions(DATA / "dwie/reference_predictions/result_MILR_test.json")
    assert all(max(each.head, each.tail) < len(documents[each.title].entities) for each in predictions)
    write_predictions(predictions, tmp_path / "again.json")
    assert read_predictions(tmp_path / "again.json") == predictions


@pytest.mark.slow
@needs_redocred
@pytest.mark.parametrize(("file", "facts"), [("dev_revised.json", 17_284), ("test_revised.json", 17_448)])
def test_redocred(tmp_path, file, facts):
    documents = read_documents(DATA / "redocred" / file)
    kb = to_knowledge_base(documents, names=read_relation_names(DATA / "docred_meta/rel_info.json"))
    assert (len(documents), kb.n_facts, kb.duplicates) == (500, facts, 0)
    assert "country" in kb.predicates
    write_documents(documents, tmp_path / "again.json")
    assert read_documents(tmp_path / "again.json") == documents
