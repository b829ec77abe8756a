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
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import numpy as np

from rulewright.data import ENTITY_TYPE, KnowledgeBase
from rulewright.data.vocabulary import lay_out_domains
from rulewright.errors import DataError, FileError, MissingExtraError, ParseError
from rulewright.files import read_bytes, write_text
from rulewright.io.formats import refuse_all_but_true_facts
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
    plain = Path(os.fspath(path).removesuffix(".gz")).suffix
    format = oxigraph.RdfFormat.N_TRIPLES if plain == ".nt" else oxigraph.RdfFormat.TURTLE
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
    format = oxigraph.RdfFormat.N_TRIPLES
    if Path(os.fspath(path).removesuffix(".gz")).suffix == ".ttl":
        format = oxigraph.RdfFormat.TURTLE
    terms = {label: _term(label, oxigraph, base) for domain in kb.domains.values() for label in domain.labels}
    triples = []
    for declaration in kb.predicates.values():
        relation = _iri(declaration.name, oxigraph, base)
        for head, tail in kb.tuples(declaration.name):
            subject = terms[head]
            if isinstance(subject, oxigraph.Literal):
                raise DataError(f"a literal is no subject in RDF, got {declaration.name}({head}, …)")
            triples.append(
                oxigraph.Triple(subject, relation, terms[tail] if isinstance(tail, str) else _figure(tail, oxigraph))
            )
    content = oxigraph.serialize(triples, format=format)
    write_text(path, content.decode())


def _oxigraph() -> Any:
    try:
        import pyoxigraph
    except ImportError:
        raise MissingExtraError("RDF needs pyoxigraph: pip install -c constraints.txt 'rulewright[rdf]'") from None
    return pyoxigraph


def _knowledge_base(triples: Iterable[Any], oxigraph: Any, base: str) -> KnowledgeBase:
    known: dict[Any, int] = {}
    relations: dict[Any, int] = {}
    rows = [
        (relations.setdefault(each.predicate, len(relations)), known.setdefault(each.subject, len(known)),
         known.setdefault(each.object, len(known)))
        for each in triples
    ]  # fmt: skip
    relation, head, tail = np.array(rows, dtype=np.int64).T
    numbers = np.array([_number(term, oxigraph) for term in known])
    names = [_relation_name(each, base) for each in relations]
    of_numbers = np.ones(len(names), dtype=bool)
    of_numbers[relation[np.isnan(numbers[tail])]] = False
    used = np.zeros(len(known), dtype=bool)
    used[head] = True
    used[tail[~of_numbers[relation]]] = True
    place = np.cumsum(used) - 1
    labels = [_label(term, oxigraph, base) for term in compress(known, used)]
    if len(set(labels)) < len(labels):
        raise DataError(f"two terms below {base} would have the same name; give another base")
    predicates, columns = [], {}
    for number, name in enumerate(names):
        rows_here = relation == number
        kind = NUMBER_TYPE if of_numbers[number] else ENTITY_TYPE
        predicates.append(PredicateDeclaration(name, (ENTITY_TYPE, kind)))
        ends = numbers[tail[rows_here]] if of_numbers[number] else place[tail[rows_here]].astype(np.int32)
        columns[name] = [place[head[rows_here]].astype(np.int32), ends]
    return KnowledgeBase.from_columns(lay_out_domains([(ENTITY_TYPE, labels, None)]), predicates, columns)


def _number(term: Any, oxigraph: Any) -> float:
    """Return the value of a numeral, NaN for any other term and where a double cannot hold it."""
    if not isinstance(term, oxigraph.Literal) or term.datatype.value not in _INTEGERS | _REALS:
        return math.nan
    try:
        value = float(term.value)
        exact = term.datatype.value in _REALS or int(term.value) == value
    except (ValueError, OverflowError):
        return math.nan
    return value if exact and math.isfinite(value) else math.nan


def _relation_name(node: Any, base: str) -> str:
    return _below(str(node.value), base)


def _label(term: Any, oxigraph: Any, base: str) -> str:
    return _below(str(term.value), base) if isinstance(term, oxigraph.NamedNode) else str(term)


def _below(iri: str, base: str) -> str:
    return unquote(iri.removeprefix(base)) if iri.startswith(base) else iri


def _term(label: str, oxigraph: Any, base: str) -> Any:
    """Return the term that a name stands for; whatever is not the name of one becomes an IRI below the base."""
    if label.startswith(("_:", '"')):
        try:
            subject = oxigraph.NamedNode(BASE)
            text = f"{subject} {subject} {label} ."
            (found,) = oxigraph.parse(text, format=oxigraph.RdfFormat.N_TRIPLES)
            if str(found.object) == label:
                return found.object
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


def _figure(value: float, oxigraph: Any) -> Any:
    if not math.isfinite(value):
        raise DataError(f"only finite numbers can be written, got {value}")
    if value.is_integer() and abs(value) <= 2.0**53:
        return oxigraph.Literal(str(int(value)), datatype=oxigraph.NamedNode(_XSD + "integer"))
    return oxigraph.Literal(repr(value), datatype=oxigraph.NamedNode(_XSD + "double"))
