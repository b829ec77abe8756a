"""Exports of Neo4j: nodes, labels, properties and relationships become facts, and what does not is said."""

from __future__ import annotations

import pytest

from rulewright import read_facts
from rulewright.errors import DataError, ParseError
from rulewright.io import neo4j


def write(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def test_ids_of_two_spaces_are_kept_apart_where_they_coincide(tmp_path):
    people = "id:ID(Person),:LABEL\n1,Person\n2,Person\n"
    films = "id:ID(Film),year:int,:LABEL\n{},1999,Film\n"
    links = ":START_ID(Person),:END_ID(Film),:TYPE\n2,{},SAW\n"
    kb = read_facts(write(tmp_path, people=people, films=films.format(9), links=links.format(9)))
    assert kb.tuples("SAW") == [("2", "9")]
    kb = read_facts(write(tmp_path, people=people, films=films.format(1), links=links.format(1)))
    assert kb.tuples("SAW") == [("Person:2", "Film:1")]
    assert kb.tuples("Person") == [("Person:1",), ("Person:2",)]


def test_types_of_properties(tmp_path):
    header = "personId:ID,tags:string[],marks:double[],born:date,seen:datetime,ok:boolean,skip:IGNORE,wait:duration\n"
    row = "ann,a;b,1.5;2,2020-07-02,2020-07-02T00:00:00Z,TRUE,x,P1D\nbob,,,,,false,,\n"
    kb = read_facts(write(tmp_path, nodes=header + row))
    assert kb.tuples("tags") == [("ann", "a"), ("ann", "b")]
    assert kb.tuples("marks") == [("ann", 1.5), ("ann", 2.0)]
    assert kb.tuples("born") == kb.tuples("seen") == [("ann", 2020.5)]
    assert kb.tuples("ok"), kb.tuples("ok", truth=False) == ([("ann",)], [("bob",)])
    assert "skip" not in kb.predicates
    assert kb.notes == ("nodes.csv: empty or of a type that is not read: wait",)


def test_a_node_without_facts_is_an_entity(tmp_path):
    kb = read_facts(write(tmp_path, nodes=":ID\nann\nbob\n", KNOWS=":START_ID,:END_ID\nann,cid\n"))
    assert kb.domains["entity"].labels.tolist() == ["ann", "bob", "cid"]
    assert kb.tuples("KNOWS") == [("ann", "cid")]
    assert kb.notes == ("KNOWS.csv: no column is :TYPE; the relation is called KNOWS",)


def test_other_files_beside_one_are_named(tmp_path):
    kb = read_facts(write(tmp_path, nodes=":ID\nann\n", links=":START_ID,:END_ID,:TYPE\nann,cid,KNOWS\n") / "links.csv")
    assert kb.notes == ("not read, beside links.csv: nodes.csv; name the folder to read all",)


def test_a_property_gives_way_to_a_label(tmp_path):
    kb = read_facts(
        write(tmp_path, nodes=":ID,Person:int,KNOWS,:LABEL\nann,3,x,Person\n", k=":START_ID,:END_ID,:TYPE\na,b,KNOWS\n")
    )
    assert kb.tuples("Person_value") == [("ann", 3.0)]
    assert kb.tuples("KNOWS_value") == [("ann", "x")]
    assert "Person is read as Person_value, KNOWS is read as KNOWS_value" in kb.notes[-1]


def test_a_file_of_apoc(tmp_path):
    text = (
        '"_id","_labels","age","name","_start","_end","_type","since"\n'
        '"1",":Person:Boss","71","Ann","","","",""\n"2",":Person","42","Bob","","","",""\n'
        '"","","","","1","2","KNOWS","2020"\n'
    )
    kb = read_facts(write(tmp_path, all=text) / "all.csv")
    assert kb.tuples("Boss") == [("1",)]
    assert kb.tuples("age") == [("1", 71.0), ("2", 42.0)]
    assert kb.tuples("name") == [("1", "Ann"), ("2", "Bob")]
    assert kb.tuples("KNOWS") == [("1", "2")]
    assert kb.notes == ("all.csv: empty or of a type that is not read: since",)


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(ParseError, match="the column age:int holds 'old'"):
        read_facts(write(tmp_path, a=":ID,age:int\nann,old\n") / "a.csv")
    with pytest.raises(ParseError, match=r"b\.csv:2: the END_ID is empty"):
        read_facts(write(tmp_path, b=":START_ID,:END_ID,:TYPE\nann,,KNOWS\n") / "b.csv")
    with pytest.raises(ParseError, match="expected a column :ID, or :START_ID and :END_ID"):
        neo4j.read(write(tmp_path, c="x,y\n1,2\n") / "c.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no file here has a header of Neo4j"):
        neo4j.read(tmp_path / "empty")
