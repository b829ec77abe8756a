r"""Graphs as RDF: N-Triples (``.nt``) and Turtle (``.ttl``), by way of pyoxigraph.

Every term becomes a name that says which term it was: an IRI stands as it is, a blank node as ``_:b``, a literal as
in N-Triples, ``"Bonn"@de``. Where all objects of a predicate are numerals, they are numbers; where all are dates, times
or years, they are years with a fraction; where all are booleans, the predicate has one argument, and what is false of a
subject is observed false.

Names that are no IRIs are written as IRIs below ``base``, with what an IRI cannot hold in percent code, and read back
as the names they were. Only facts over an entity, two, or an entity and a number can be written.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable
from itertools import compress
from typing import Any, Literal
from urllib.parse import quote, unquote

import numpy as np
import numpy.typing as npt

from rulewright.data import ENTITY_TYPE, KnowledgeBase
from rulewright.data.facts import Column
from rulewright.data.vocabulary import lay_out_domains
from rulewright.errors import DataError, FileError, MissingExtraError, ParseError
from rulewright.files import read_bytes, write_text
from rulewright.io.formats import plain_suffix, refuse_all_but_true_facts, shorten_list
from rulewright.io.values import DATES_NOTE, read_years
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration

BASE = "urn:rulewright:"
"""Where names that are no IRIs live, unless another base is given."""

_XSD = "http://www.w3.org/2001/XMLSchema#"
_INTEGERS = frozenset(
    _XSD + name for name in ("integer", "int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger")
)
_REALS = frozenset(_XSD + name for name in ("decimal", "double", "float"))
_DATES = {_XSD + name: "" for name in ("date", "dateTime", "dateTimeStamp")} | {
    f"{_XSD}gYearMonth": "-01",  # what makes a whole date of it
    f"{_XSD}gYear": "-01-01",
}
_OFFSET = re.compile(r"(Z|[+-][0-9]{2}:[0-9]{2})$")  # behind a year or a month it says nothing worth keeping
_BOOLEAN = f"{_XSD}boolean"
_TRUTHS = {"true": 1.0, "1": 1.0, "false": 0.0, "0": 0.0}
_Kind = Literal["name", "number", "date", "truth"]
"""What the objects of a predicate are."""


def read(path: str | os.PathLike[str], *, base: str = BASE) -> KnowledgeBase:
    """Read an RDF file, ``-`` for standard input (Turtle, which includes N-Triples).

    >>> _ = (folder / "a.ttl").write_text("@prefix e: <urn:rulewright:> . e:ann e:age 42 ; e:knows e:bob .")
    >>> kb = read(folder / "a.ttl")
    >>> kb.tuples("age"), kb.tuples("knows")
    ([('ann', 42.0)], [('ann', 'bob')])
    """
    oxigraph = _oxigraph()
    format = oxigraph.RdfFormat.N_TRIPLES if plain_suffix(path) == ".nt" else oxigraph.RdfFormat.TURTLE
    try:
        triples = [*oxigraph.parse(read_bytes(path), format=format)]
    except SyntaxError as error:
        message = str(error.msg).replace("\n", " ")
        raise ParseError(message, file=os.fspath(path), line=error.lineno, column=error.offset) from None
    if not triples:
        raise ParseError("no triples", file=os.fspath(path))
    return _knowledge_base(triples, oxigraph, base)


def write(kb: KnowledgeBase, path: str | os.PathLike[str], *, base: str = BASE) -> None:
    """Write the facts of a graph: N-Triples, or Turtle where the name ends in ``.ttl``."""
    oxigraph = _oxigraph()
    refuse_all_but_true_facts(kb, "an RDF file", "e[en]?", "e")
    format = oxigraph.RdfFormat.TURTLE if plain_suffix(path) == ".ttl" else oxigraph.RdfFormat.N_TRIPLES
    terms = {label: _term(label, oxigraph, base) for domain in kb.domains.values() for label in domain.labels}
    triples = []
    for declaration in kb.predicates.values():
        relation = _iri(declaration.name, oxigraph, base)
        for truth in (True, False):
            for head, *tails in kb.tuples(declaration.name, truth=truth):
                subject = terms[head]
                if isinstance(subject, oxigraph.Literal):
                    raise DataError(f"a literal is no subject in RDF, got {declaration.name}({head}, …)")
                if not tails:
                    value = oxigraph.Literal("true" if truth else "false", datatype=oxigraph.NamedNode(_BOOLEAN))
                else:
                    value = terms[tails[0]] if isinstance(tails[0], str) else _number_literal(tails[0], oxigraph)
                triples.append(oxigraph.Triple(subject, relation, value))
    write_text(path, oxigraph.serialize(triples, format=format).decode())


def _oxigraph() -> Any:
    try:
        import pyoxigraph
    except ImportError:
        raise MissingExtraError("RDF needs pyoxigraph: pip install -c constraints.txt 'rulewright[rdf]'") from None
    return pyoxigraph


def _knowledge_base(triples: Iterable[Any], oxigraph: Any, base: str) -> KnowledgeBase:
    terms: dict[Any, int] = {}
    relations: dict[Any, int] = {}
    rows = [
        (relations.setdefault(triple.predicate, len(relations)), terms.setdefault(triple.subject, len(terms)),
         terms.setdefault(triple.object, len(terms)))
        for triple in triples
    ]  # fmt: skip
    relation, head, tail = np.array(rows, dtype=np.int64).T
    values = _read_values(terms, oxigraph)
    names = [_strip_base(str(node.value), base) for node in relations]
    kinds: list[_Kind] = ["name"] * len(names)
    for kind, numbers in values.items():
        is_kind = np.ones(len(names), dtype=bool)
        is_kind[relation[np.isnan(numbers[tail])]] = False
        kinds = [kind if found else known for known, found in zip(kinds, is_kind, strict=True)]
    has_names = np.array([kind == "name" for kind in kinds])
    is_entity = np.zeros(len(terms), dtype=bool)
    is_entity[head] = True
    is_entity[tail[has_names[relation]]] = True
    entity_indices = (np.cumsum(is_entity) - 1).astype(np.int32)
    labels = [
        _strip_base(str(term.value), base) if isinstance(term, oxigraph.NamedNode) else str(term)
        for term in compress(terms, is_entity)
    ]
    if len(set(labels)) < len(labels):
        raise DataError(f"two terms below {base} would have the same name; give another base")
    predicates: list[PredicateDeclaration] = []
    columns: dict[str, list[Column]] = {}
    false_columns: dict[str, list[Column]] = {}
    for relation_index, (name, kind) in enumerate(zip(names, kinds, strict=True)):
        is_fact = relation == relation_index
        heads, tails = entity_indices[head[is_fact]], tail[is_fact]
        if kind == "truth":
            is_true = values[kind][tails] > 0
            predicates.append(PredicateDeclaration(name, (ENTITY_TYPE,)))
            columns[name], false_columns[name] = [heads[is_true]], [heads[~is_true]]
        else:
            predicates.append(PredicateDeclaration(name, (ENTITY_TYPE, ENTITY_TYPE if kind == "name" else NUMBER_TYPE)))
            columns[name] = [heads, entity_indices[tails] if kind == "name" else values[kind][tails]]
    domains = lay_out_domains([(ENTITY_TYPE, labels, None)])
    dated = [name for name, kind in zip(names, kinds, strict=True) if kind == "date"]
    kb = KnowledgeBase.from_columns(domains, predicates, columns, false_columns)
    return kb.with_notes([f"{DATES_NOTE}: {shorten_list(dated)}"] if dated else [])


def _read_values(terms: Iterable[Any], oxigraph: Any) -> dict[_Kind, npt.NDArray[np.float64]]:
    """Return by kind what each term is worth, NaN for terms of any other kind."""
    literals = [
        (str(term.value), term.datatype.value) if isinstance(term, oxigraph.Literal) else ("", "") for term in terms
    ]
    values: dict[_Kind, npt.NDArray[np.float64]] = {
        "number": np.array([_read_number(term, oxigraph) for term in terms]),
        "truth": np.array([_TRUTHS.get(text if name == _BOOLEAN else "", math.nan) for text, name in literals]),
    }
    dates = [_complete_date(text, _DATES[name]) if name in _DATES else "" for text, name in literals]
    if any(dates):
        values["date"] = read_years(dates)
    return values


def _complete_date(text: str, rest: str) -> str:
    return _OFFSET.sub("", text) + rest if rest else text


def _read_number(term: Any, oxigraph: Any) -> float:
    """Return the value of a numeral, NaN for any other term and where a double cannot hold it."""
    if not isinstance(term, oxigraph.Literal) or term.datatype.value not in _INTEGERS | _REALS:
        return math.nan
    try:
        value = float(term.value)
        exact = term.datatype.value in _REALS or int(term.value) == value
    except (ValueError, OverflowError):
        return math.nan
    return value if exact and math.isfinite(value) else math.nan


def _strip_base(iri: str, base: str) -> str:
    return unquote(iri.removeprefix(base)) if iri.startswith(base) else iri


def _term(label: str, oxigraph: Any, base: str) -> Any:
    """Return the term that a name stands for; whatever is not the name of one becomes an IRI below the base."""
    if label.startswith(("_:", '"')):
        try:
            subject = oxigraph.NamedNode(BASE)
            text = f"{subject} {subject} {label} ."
            (triple,) = oxigraph.parse(text, format=oxigraph.RdfFormat.N_TRIPLES)
            if str(triple.object) == label:
                return triple.object
        except (SyntaxError, ValueError):
            pass
    return _iri(label, oxigraph, base)


def _iri(label: str, oxigraph: Any, base: str) -> Any:
    if not label.startswith(base):
        try:
            node = oxigraph.NamedNode(label)
            if node.value == label:
                return node
        except ValueError:
            pass
    try:
        return oxigraph.NamedNode(base + quote(label, safe=""))
    except UnicodeEncodeError:
        raise FileError(f"an RDF file cannot hold the name {label!r}: it holds half of a character") from None
    except ValueError as error:
        raise DataError(f"base must be an IRI such as {BASE}, got {base!r}: {error}") from None


def _number_literal(value: float, oxigraph: Any) -> Any:
    if not math.isfinite(value):
        raise DataError(f"only finite numbers can be written, got {value}")
    if value.is_integer() and abs(value) <= 2.0**53:
        return oxigraph.Literal(str(int(value)), datatype=oxigraph.NamedNode(_XSD + "integer"))
    return oxigraph.Literal(repr(value), datatype=oxigraph.NamedNode(_XSD + "double"))
