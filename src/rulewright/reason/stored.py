"""What was inferred in a Parquet file, with what it was inferred from, so that an update can go on from there.

The file is one table: head, relation and tail of a graph, or predicate, ``arg1`` … and class of other facts; ``status``
is ``new``, ``known`` or ``false`` (observed so). New facts have a score, the round that gave them, and the numbers and
scores of their rules. Which rules and options that were stands in the metadata of the file.

Names are for whoever else reads the file. ``indices`` has the same facts as integers, and rows of status ``entity``
name these: an update reads nothing else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from rulewright.data import FactTable, KnowledgeBase, signature
from rulewright.data.facts import Column, group_by_signature
from rulewright.data.index import range_bounds
from rulewright.data.vocabulary import lay_out_domains
from rulewright.errors import DataError, FileError, ParseError
from rulewright.files import STDIO, file_error
from rulewright.io.frames import RESULT_KEY
from rulewright.logic import PredicateDeclaration, Rule, RuleSet, Template
from rulewright.reason.inferred import Application, Inferred, InferredColumns

_VERSION = 2


def write_inferred(inferred: Inferred, path: str | os.PathLike[str]) -> None:
    """Write new facts with scores and rules, and the facts that they were inferred from, as a Parquet file."""
    import duckdb

    if os.fspath(path) == STDIO:
        raise DataError("a Parquet file cannot go to standard output; name a file")
    target = Path(path)
    temporary = target.with_name(f".{target.name}.writing")
    with contextlib.closing(duckdb.connect()) as connection:
        try:
            _fill_table(connection, inferred)
            metadata = json.dumps(_describe(inferred)).replace("'", "''")
            file = str(temporary).replace("'", "''")
            connection.execute(f"COPY stored TO '{file}' (FORMAT parquet, KV_METADATA {{{RESULT_KEY}: '{metadata}'}})")
            temporary.replace(target)
        except (duckdb.Error, OSError) as error:
            temporary.unlink(missing_ok=True)
            raise file_error("write", str(target), OSError(str(error).splitlines()[0])) from None


def _describe(inferred: Inferred) -> dict[str, Any]:
    """Return what the metadata says."""
    kb, application = inferred.kb, inferred.application
    description: dict[str, Any] = {
        "version": _VERSION,
        "predicates": [[name, part.types, part.classes] for name, part in kb.predicates.items()],
        "domains": [[name, len(domain)] for name, domain in kb.domains.items()],
        "closed": sorted(kb.closed),
        "rounds": inferred.rounds,
        "note": inferred.note,
    }
    if application is not None:
        description |= {
            "rules": _hash_rules(application.rules),
            "aggregation": application.aggregation,
            "min_score": application.min_score,
            "max_rounds": application.max_rounds,
            "max_facts": application.max_facts,
            "is_cut": application.is_cut,
        }
    return description


def _hash_rules(rules: RuleSet) -> str:
    return hashlib.sha256(str(rules).encode("utf-8", "surrogatepass")).hexdigest()


def _name_columns(predicates: Sequence[PredicateDeclaration]) -> list[str]:
    """Return how the columns of facts are called: the predicate, the arguments, and the class where there are any."""
    if all(signature(declaration) == "ee" for declaration in predicates):
        return ["relation", "head", "tail"]
    widest = max(declaration.arity for declaration in predicates)
    has_classes = any(declaration.classes is not None for declaration in predicates)
    return ["predicate", *(f"arg{position + 1}" for position in range(widest)), *(["class"] if has_classes else [])]


def _fill_table(connection: Any, inferred: Inferred) -> None:
    """Make the table ``stored``: labels are looked up in the database, which has each but once."""
    kb = inferred.kb
    names = _name_columns([*kb.predicates.values()])
    shown = ["head", "relation", "tail"] if names[0] == "relation" else names
    labels = np.concatenate([np.empty(0, dtype=object), *(domain.labels for domain in kb.domains.values())])
    _put(connection, "entity", {"id": np.arange(len(labels)), "label": labels})
    _put(
        connection,
        "predicate",
        {"id": np.arange(len(kb.predicates)), "label": np.array([*kb.predicates], dtype=object)},
    )
    classes = [
        (index, place, label)
        for index, part in enumerate(kb.predicates.values())
        for place, label in enumerate(part.classes or ())
    ]
    _put(
        connection,
        "class",
        {
            "p": np.array([row[0] for row in classes], dtype=np.int64),
            "id": np.array([row[1] for row in classes], dtype=np.int64),
            "label": np.array([row[2] for row in classes], dtype=object),
        },
    )
    columns = ", ".join(f'"{name}" VARCHAR' for name in shown)
    width = max(len(signature(declaration)) for declaration in kb.predicates.values())
    fields = ["p", *(f"a{position}" for position in range(width)), "n"]
    connection.execute(
        f"CREATE TABLE stored ({columns}, status VARCHAR, score DOUBLE, round INTEGER, rules INTEGER[], "
        f"rule_scores DOUBLE[], indices STRUCT({', '.join(f'{field} INTEGER' for field in fields)}))"
    )
    if len(labels):
        connection.execute(
            f"INSERT INTO stored (\"{names[1]}\", status) SELECT label, 'entity' FROM entity ORDER BY id"
        )
    new = {name: facts.columns for name, facts in inferred.derived.items()}
    tables = {
        "new": group_by_signature(kb.predicates, new),
        "known": kb.tables(),
        "false": kb.tables(truth=False),
    }
    for status, parts in tables.items():
        for letters, table in parts.items():
            _put_facts(connection, table)
            scored = "NULL, NULL, NULL, NULL"
            source = "facts"
            if status == "new":
                _put_rules(connection, inferred, letters)
                scored = "given.score, given.round, given.rules, given.rule_scores"
                source = "facts JOIN given USING (id)"
            expressions = dict.fromkeys(shown, "NULL") | {names[0]: "predicate.label"}
            joins = ["JOIN predicate ON predicate.id = facts.p"]
            indices = dict.fromkeys(fields, "NULL") | {"p": "facts.p"}
            if status == "new":
                indices["n"] = "len(given.rules)"
            for position, letter in enumerate(letters):
                column = f"facts.a{position}"
                if letter != "n":
                    indices[f"a{position}"] = column
                if letter == "n":
                    expressions[names[position + 1]] = f"CAST({column} AS VARCHAR)"
                elif letter == "c":
                    expressions["class"] = "class.label"
                    joins.append(f"JOIN class ON class.p = facts.p AND class.id = {column}")
                else:
                    expressions[names[position + 1]] = f"e{position}.label"
                    joins.append(f"JOIN entity AS e{position} ON e{position}.id = {column}")
            selected = ", ".join(expressions[name] for name in shown)
            coded = ", ".join(f"{field} := {value}" for field, value in indices.items())
            connection.execute(
                f"INSERT INTO stored SELECT {selected}, '{status}', {scored}, struct_pack({coded}) "
                f"FROM {source} {' '.join(joins)} ORDER BY facts.id"
            )


def _put(connection: Any, name: str, columns: dict[str, Column]) -> None:
    connection.register("incoming", {key: np.ascontiguousarray(column) for key, column in columns.items()})
    connection.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT * FROM incoming")
    connection.unregister("incoming")


def _put_facts(connection: Any, table: FactTable) -> None:
    arguments = {f"a{position}": column for position, column in enumerate(table.columns)}
    _put(connection, "facts", {"id": np.arange(len(table)), "p": table.predicate, **arguments})


def _put_rules(connection: Any, inferred: Inferred, letters: str) -> None:
    """Make the table ``given``: score, round and rules of each new fact of a signature, in order of predicates."""
    kb = inferred.kb
    names = sorted(
        (name for name in inferred.derived if signature(kb.predicate(name)) == letters), key=kb.predicate_index
    )
    parts = [inferred.derived[name] for name in names]
    scores = np.concatenate([part.scores for part in parts])
    lengths = np.concatenate([np.diff(part.source_bounds) for part in parts])
    _put(
        connection,
        "scored",
        {"id": np.arange(len(scores)), "score": scores, "round": np.concatenate([part.rounds for part in parts])},
    )
    _put(
        connection,
        "by_rule",
        {
            "id": np.repeat(np.arange(len(scores)), lengths),
            "place": np.arange(int(lengths.sum())),
            "n": np.array(inferred.numbers)[np.concatenate([part.source_indices for part in parts])],
            "s": np.concatenate([part.source_scores for part in parts]),
        },
    )
    connection.execute("""
        CREATE OR REPLACE TABLE given AS SELECT scored.*, rules, rule_scores FROM scored JOIN (
            SELECT id, list(n ORDER BY place) AS rules, list(s ORDER BY place) AS rule_scores FROM by_rule GROUP BY id
        ) USING (id)
    """)


def read_inferred(path: str | os.PathLike[str], rules: RuleSet) -> Inferred:
    """Read what `write_inferred` wrote, given the rules that it was inferred by; other rules are refused."""
    import duckdb

    name = os.fspath(path)
    if not Path(name).is_file():
        raise FileError(f"cannot read {name}: no such file")
    with contextlib.closing(duckdb.connect()) as connection:
        try:
            described = connection.execute("SELECT key, value FROM parquet_kv_metadata(?)", [name]).fetchall()
            metadata = {key.decode(): value.decode() for key, value in described}
            if RESULT_KEY not in metadata:
                raise DataError(
                    f"{name} is a Parquet file, but not one that apply wrote; write one with: rulewright apply RULES "
                    "FACTS -o OLD.parquet"
                )
            description = json.loads(metadata[RESULT_KEY])
            _check_description(description, rules, name)
            connection.read_parquet(name).create_view("stored")
            return _read_table(connection, description, rules)
        except duckdb.Error as error:
            raise ParseError(f"not a Parquet file: {str(error).splitlines()[0]}", file=name) from None


def _check_description(description: dict[str, Any], rules: RuleSet, name: str) -> None:
    if description.get("version") != _VERSION:
        raise DataError(f"{name} was written by another version; apply the rules anew")
    if "rules" not in description:
        raise DataError(f"{name} holds what weights gave, which cannot be updated; apply the rules anew")
    if description["rules"] != _hash_rules(rules):
        raise DataError(f"{name} was inferred by other rules; apply these anew, without --update")


def _read_table(connection: Any, description: dict[str, Any], rules: RuleSet) -> Inferred:
    predicates = [
        PredicateDeclaration(name, tuple(types), None if classes is None else tuple(classes))
        for name, types, classes in description["predicates"]
    ]
    declared = {declaration.name: declaration for declaration in predicates}
    names = _name_columns(predicates)
    labels = np.empty(0, dtype=object)
    if len(names) > 1:
        rows = connection.execute(f"SELECT \"{names[1]}\" AS label FROM stored WHERE status = 'entity'").fetchnumpy()
        labels = np.asarray(rows["label"], dtype=object)
    bounds = range_bounds([size for _, size in description["domains"]])
    domains = lay_out_domains(
        (name, labels[bounds[index] : bounds[index + 1]], None)
        for index, (name, _) in enumerate(description["domains"])
    )
    columns: dict[str, dict[str, tuple[Column, ...]]] = {"new": {}, "known": {}, "false": {}}
    derived: dict[str, InferredColumns] = {}
    confidences = None
    if description["max_rounds"] == 1:  # all premises are known, so what a rule gives has the score of the rule
        confidences = np.array([rule.confidence if isinstance(rule, Rule) else 1.0 for rule in rules])
    for letters in sorted({signature(part) for part in predicates}):
        own = [index for index, part in enumerate(predicates) if signature(part) == letters]
        for status, tables in columns.items():
            which = f"status = '{status}'"
            if len(own) < len(predicates):
                which += f" AND indices.p IN ({', '.join(map(str, own))})"
            table = _read_facts(connection, letters, which, names)
            given = _read_given(connection, which, rules.numbers, confidences) if status == "new" else None
            for index in own:
                start, stop = np.searchsorted(table.predicate, [index, index + 1])
                if start == stop:
                    continue
                name = predicates[index].name
                tables[name] = tuple(column[start:stop] for column in table.columns)
                if given is not None:
                    derived[name] = _slice(given, tables[name], start, stop)
    kb = KnowledgeBase(
        domains,
        predicates,
        group_by_signature(declared, columns["known"]),
        group_by_signature(declared, columns["false"]),
        closed=description["closed"],
    )
    application = Application(
        rules,
        description["aggregation"],
        description["min_score"],
        description["max_rounds"],
        description["max_facts"],
        description["is_cut"],
    )
    return Inferred(
        kb,
        tuple(rule for rule in rules if not isinstance(rule, Template)),  # of which an application has none
        derived,
        numbers=rules.numbers,
        rounds=description["rounds"],
        note=description["note"],
        by_lists=application.aggregation == "max-plus",
        application=application,
    )


def _read_facts(connection: Any, letters: str, which: str, names: Sequence[str]) -> FactTable:
    """Read the facts of a signature and a status, in the order of the file: by predicate."""
    selected = ["indices.p AS p"]
    for position, letter in enumerate(letters):
        column = f'CAST("{names[position + 1]}" AS DOUBLE)' if letter == "n" else f"indices.a{position}"
        selected.append(f"{column} AS a{position}")
    rows = connection.execute(f"SELECT {', '.join(selected)} FROM stored WHERE {which}").fetchnumpy()
    arguments = (
        np.asarray(rows[f"a{position}"], dtype=np.float64 if letter == "n" else np.int32)
        for position, letter in enumerate(letters)
    )
    return FactTable(letters, np.asarray(rows["p"], dtype=np.int32), tuple(arguments))


def _read_given(
    connection: Any, which: str, numbers: Sequence[int], confidences: npt.NDArray[np.float64] | None
) -> InferredColumns:
    """Read what is said of the new facts of a signature, without the facts themselves."""
    is_once = confidences is not None
    selected = f"score, indices.n AS n{'' if is_once else ', round'}"
    rows = connection.execute(f"SELECT {selected} FROM stored WHERE {which}").fetchnumpy()
    of_number = np.full(max(numbers, default=0) + 1, -1, dtype=np.int32)
    of_number[np.array(numbers, dtype=np.int64)] = np.arange(len(numbers))
    sources = of_number[_read_lists(connection, "rules", which)]
    return InferredColumns(
        (),
        np.asarray(rows["score"]),
        np.ones(len(rows["n"]), dtype=np.int32) if is_once else np.asarray(rows["round"], dtype=np.int32),
        range_bounds(rows["n"]),
        sources,
        _read_lists(connection, "rule_scores", which) if confidences is None else confidences[sources],
    )


def _read_lists(connection: Any, name: str, which: str) -> npt.NDArray[Any]:
    return np.asarray(connection.execute(f"SELECT unnest({name}) AS x FROM stored WHERE {which}").fetchnumpy()["x"])


def _slice(given: InferredColumns, columns: tuple[Column, ...], start: int, stop: int) -> InferredColumns:
    """Return some of the new facts of a signature."""
    first, last = given.source_bounds[start], given.source_bounds[stop]
    return InferredColumns(
        columns,
        given.scores[start:stop],
        given.rounds[start:stop],
        given.source_bounds[start : stop + 1] - first,
        given.source_indices[first:last],
        given.source_scores[first:last],
    )
