r"""Graphs as RDF: N-Triples (``.nt``) and Turtle (``.ttl``), by way of pyoxigraph.

Every term becomes a name that says which term it was: an IRI stands as it is, a blank node as ``_:b``, a literal as
in N-Triples, ``"Bonn"@de``. Where all objects of a predicate are numerals, they are numbers.

Names that are no IRIs are written as IRIs below ``base``, with what an IRI cannot hold in percent code, and read back
as the names they were. Only facts over two entities, or an entity and a number, can be written.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from itertools import compress
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from rulewright.data import ENTITY_TYPE, KnowledgeBase
from rulewright.data.vocabulary import lay_out_domains
from rulewright.errors import DataError, FileError, MissingExtraError, ParseError
from rulewright.files import read_bytes, write_text
from rulewright.io.formats import plain_suffix, refuse_all_but_true_facts
from rulewright.logic import NUMBER_TYPE, PredicateDeclaration

BASE = "urn:rulewright:"
"""Where names that are no IRIs live, unless another base is given."""

_XSD = "http://www.w3.org/2001/XMLSchema#"
_INTEGERS = frozenset(
    _XSD + name for name in ("integer", "int", "long", "short", "byte", "nonNegativeInteger", "positiveInteger")
)
_REALS = frozenset(_XSD + name for name in ("decimal", "double", "float"))


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
    refuse_all_but_true_facts(kb, "an RDF file", "e[en]")
    format = oxigraph.RdfFormat.TURTLE if plain_suffix(path) == ".ttl" else oxigraph.RdfFormat.N_TRIPLES
    terms = {label: _term(label, oxigraph, base) for domain in kb.domains.values() for label in domain.labels}
    triples = []
    for declaration in kb.predicates.values():
        relation = _iri(declaration.name, oxigraph, base)
        for head, tail in kb.tuples(declaration.name):
            subject = terms[head]
            if isinstance(subject, oxigraph.Literal):
                raise DataError(f"a literal is no subject in RDF, got {declaration.name}({head}, …)")
            value = terms[tail] if isinstance(tail, str) else _number_literal(tail, oxigraph)
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
    numbers = np.array([_read_number(term, oxigraph) for term in terms])
    names = [_strip_base(str(node.value), base) for node in relations]
    has_numbers = np.ones(len(names), dtype=bool)
    has_numbers[relation[np.isnan(numbers[tail])]] = False
    is_entity = np.zeros(len(terms), dtype=bool)
    is_entity[head] = True
    is_entity[tail[~has_numbers[relation]]] = True
    entity_indices = (np.cumsum(is_entity) - 1).astype(np.int32)
    labels = [
        _strip_base(str(term.value), base) if isinstance(term, oxigraph.NamedNode) else str(term)
        for term in compress(terms, is_entity)
    ]
    if len(set(labels)) < len(labels):
        raise DataError(f"two terms below {base} would have the same name; give another base")
    predicates, columns = [], {}
    for relation_index, name in enumerate(names):
        heads, tails = head[relation == relation_index], tail[relation == relation_index]
        tail_type, values = (NUMBER_TYPE, numbers) if has_numbers[relation_index] else (ENTITY_TYPE, entity_indices)
        predicates.append(PredicateDeclaration(name, (ENTITY_TYPE, tail_type)))
        columns[name] = [entity_indices[heads], values[tails]]
    return KnowledgeBase.from_columns(lay_out_domains([(ENTITY_TYPE, labels, None)]), predicates, columns)


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
