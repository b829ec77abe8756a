"""Facts and rules as JSON lines: one object a line, for programs that would rather not parse a language.

Facts say all that a ``.facts`` file can, in the same order of statements::

    {"declare": "label", "types": ["token"], "classes": ["B-PER", "o"]}
    {"closed": "friend"}                                                  {"shared": "word"}
    {"predicate": "parent_of", "args": ["ann", "bob"]}                    numbers among the arguments are numbers
    {"predicate": "smoke", "args": ["ann"], "truth": false}               observed false
    {"predicate": "label", "args": ["t1"], "class": "B-PER", "world": "doc 1", "split": "test"}
    {"entity": "zoe", "type": "person", "world": "doc 1"}                 {"world": "doc 2"}    {"split": "valid"}

A fact may carry ``score`` and ``rules``, as ``rulewright apply`` gives them; they are passed over.

Rules keep their text and give confidence, weight and annotations as values::

    {"rule": "child_of(X, Y) :- parent_of(Y, X).", "confidence": 0.9, "annotations": {"support": 9}}
    {"formula": "smoke(X) => cancer(X)", "weight": 1.5}                   or "hard", or "learn"
    {"template": "template p(X) :- ?Q(X) where ?Q in *."}
    {"declare": "friend", "types": ["person", "person"]}                  {"closed": "friend"}
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from rulewright.data import ENTITY_TYPE, KnowledgeBase, KnowledgeBaseBuilder, Value
from rulewright.data.builder import MAIN
from rulewright.errors import DataError, ParseError, RulewrightError
from rulewright.files import read_text, write_text
from rulewright.io.facts import all_predicates, worlds_of
from rulewright.io.json_shape import Json, parsed
from rulewright.logic import (
    Annotations,
    PredicateDeclaration,
    Rule,
    RuleSet,
    Statement,
    Template,
    WeightedFormula,
    parse_formula,
    parse_rule,
    parse_template,
)

Record = Mapping[str, object]


def fact_records(kb: KnowledgeBase) -> Iterator[Record]:
    """Yield the records of a knowledge base: declarations, then entities in order, then facts.

    >>> kb = KnowledgeBase.from_facts([("age", "ann", 42)])
    >>> [record for record in fact_records(kb) if "args" in record]
    [{'predicate': 'age', 'args': ['ann', 42]}]
    """
    predicates = all_predicates(kb)
    yield from (_declared(each) for each in predicates.values())
    yield from ({"closed": name} for name in predicates if name in kb.closed)
    yield from ({"shared": kind} for kind, domain in kb.domains.items() if kb.worlds and domain.worlds is None)
    yield from ({"world": world} for world in kb.worlds)
    yield from ({"split": split} for split in kb.splits)
    yield from _entities(kb)
    for split, part in {MAIN: kb, **kb.splits}.items():
        if part is not kb and split == MAIN:
            raise DataError("a split without a name cannot be written; name it")
        for declaration in part.predicates.values():
            for truth in (True, False):
                yield from _facts(part, declaration, truth, {} if split == MAIN else {"split": split})


def _declared(declaration: PredicateDeclaration) -> Record:
    record: Record = {"declare": declaration.name, "types": list(declaration.types)}
    return record if declaration.classes is None else {**record, "classes": list(declaration.classes)}


def _entities(kb: KnowledgeBase) -> Iterator[Record]:
    """Name every entity, so that those without facts and the order of all are kept."""
    for kind, domain in kb.domains.items():
        type_of = {} if kind == ENTITY_TYPE else {"type": kind}
        for position, label in enumerate(domain.labels):
            world = {} if domain.worlds is None else {"world": kb.worlds[int(domain.worlds[position])]}
            yield {"entity": label, **type_of, **world}


def _facts(kb: KnowledgeBase, declaration: PredicateDeclaration, truth: bool, where: Record) -> Iterator[Record]:
    columns = kb.columns(declaration.name, truth=truth)
    worlds = worlds_of(kb, declaration, columns)
    sign: Record = {} if truth else {"truth": False}
    for row, values in enumerate(kb.label_rows(declaration.name, columns)):
        args = [_write_number(declaration, each) if isinstance(each, float) else each for each in values]
        chosen: Record = {} if declaration.classes is None else {"class": args.pop()}
        world: Record = {} if worlds is None else {"world": kb.worlds[int(worlds[row])]}
        yield {"predicate": declaration.name, "args": args, **sign, **chosen, **world, **where}


def _write_number(declaration: PredicateDeclaration, value: float) -> Value:
    if not math.isfinite(value):
        raise DataError(f"a fact of {declaration.name} has the number {value}; only finite ones can be written")
    return int(value) if value.is_integer() and abs(value) <= 2.0**53 and str(value) != "-0.0" else value


def rule_records(rules: RuleSet) -> Iterator[Record]:
    """Yield the records of a rule set: declarations first, then its statements in order."""
    yield from (_declared(each) for each in rules.predicates)
    yield from ({"closed": name} for name in rules.closed)
    for statement in rules:
        notes = {"annotations": _plain(statement.annotations)} if statement.annotations else {}
        if isinstance(statement, Rule):
            text = str(replace(statement, confidence=1.0, annotations=Annotations()))
            confidence = {} if statement.confidence == 1 else {"confidence": statement.confidence}
            yield {"rule": text, **confidence, **notes}
        elif isinstance(statement, Template):
            yield {"template": str(replace(statement, annotations=Annotations())), **notes}
        else:
            weight = statement.weight if statement.kind == "soft" else statement.kind
            yield {"formula": str(statement.formula), "weight": weight, **notes}


def _plain(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


__all__ = ["parse", "parse_rules", "read", "read_rules", "write", "write_rules"]

_Into = TypeVar("_Into")


def read(path: str | os.PathLike[str]) -> KnowledgeBase:
    """Read facts from a file of JSON lines, ``-`` for standard input."""
    return parse(read_text(path), file=os.fspath(path))


def write(kb: KnowledgeBase, path: str | os.PathLike[str]) -> None:
    """Write all of a knowledge base as JSON lines, in one step."""
    write_text(path, _text(fact_records(kb)))


def read_rules(path: str | os.PathLike[str]) -> RuleSet:
    """Read rules from a file of JSON lines, ``-`` for standard input."""
    return parse_rules(read_text(path), file=os.fspath(path))


def write_rules(rules: RuleSet, path: str | os.PathLike[str]) -> None:
    """Write a rule set as JSON lines, in one step; it reads back as an equal one."""
    write_text(path, _text(rule_records(rules)))


def _text(records: Iterator[Mapping[str, object]]) -> str:
    return "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in records)


def parse(text: str, *, file: str | None = None) -> KnowledgeBase:
    """Read facts from the text of such a file.

    >>> parse('{"predicate": "age", "args": ["ann", 42]}').tuples("age")
    [('ann', 42.0)]
    >>> parse('{"predicate": "age", "values": ["ann", 42]}')
    Traceback (most recent call last):
    ...
    rulewright.errors.ParseError: <text>:1: a fact has no 'values'; it has predicate, args, truth, class, world, split
    """
    builder = KnowledgeBaseBuilder()
    take: dict[str, Callable[[Json, KnowledgeBaseBuilder], None]] = {
        "predicate": _fact,
        "declare": lambda record, builder: builder.declare(_declaration(record)),
        "closed": lambda record, builder: builder.close(_only(record, "closed")),
        "shared": lambda record, builder: builder.share(_only(record, "shared")),
        "entity": _entity,
        "world": lambda record, builder: builder.world(_only(record, "world")),
        "split": lambda record, builder: builder.split(_split(_only(record, "split"))),
    }
    _each_record(text, file, take, builder, _plain_fact)
    try:
        return builder.build()
    except DataError as error:
        raise ParseError(_one_line(error), file=file) from None


def parse_rules(text: str, *, file: str | None = None) -> RuleSet:
    """Read rules from the text of such a file.

    >>> print(parse_rules('{"rule": "p(X) :- q(X).", "confidence": 0.5, "annotations": {"support": 3}}'), end="")
    0.5 :: p(X) :- q(X). @{support: 3}
    """
    rules = _Rules()
    take: dict[str, Callable[[Json, _Rules], None]] = {
        "rule": lambda record, rules: rules.statements.append(_rule(record)),
        "formula": lambda record, rules: rules.statements.append(_formula(record)),
        "template": lambda record, rules: rules.statements.append(_template(record)),
        "declare": lambda record, rules: rules.declared.append(_declaration(record)),
        "closed": lambda record, rules: rules.closed.append(_only(record, "closed")),
    }
    _each_record(text, file, take, rules)
    try:
        return RuleSet(rules.statements, predicates=rules.declared, closed=rules.closed)
    except DataError as error:
        raise ParseError(_one_line(error), file=file) from None


class _Rules:
    """What the lines have said so far."""

    def __init__(self) -> None:
        self.statements: list[Statement] = []
        self.declared: list[PredicateDeclaration] = []
        self.closed: list[str] = []


def _each_record(
    text: str,
    file: str | None,
    take: Mapping[str, Callable[[Json, _Into], None]],
    into: _Into,
    take_plain: Callable[[str, _Into], bool] = lambda line, into: False,
) -> None:
    """Give each line's object to the function for its first known key, unless ``take_plain`` takes the line."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            if take_plain(line, into):
                continue
            record = parsed(line, file=file or "<text>").called("the line")
            kind = next((key for key, _ in record.fields() if key in take), None)
            if kind is None:
                raise DataError(f"an object with one of {', '.join(take)} is expected, got {line.strip()[:60]!r}")
            take[kind](record, into)
        except ParseError as error:
            raise ParseError(_one_line(error.message), file=file, line=number, column=error.column) from None
        except RulewrightError as error:
            raise ParseError(_one_line(error), file=file, line=number) from None


def _plain_fact(line: str, builder: KnowledgeBaseBuilder) -> bool:
    """Take a fact that has names as arguments and nothing else, which most are; tell whether it was one."""
    if "\\" in line or line.count('"predicate"') != 1 or line.count('"args"') != 1:
        return False
    try:
        record = json.loads(line)
    except ValueError:
        return False
    plain = type(record) is dict and len(record) == 2 and type(record.get("args")) is list
    if not plain or not all(type(each) is str for each in (record.get("predicate"), *record["args"])):
        return False
    builder.add(record["predicate"], record["args"])
    return True


def _one_line(error: object) -> str:
    return str(error).replace("\n", "\\n")


def _known(record: Json, what: str, *keys: str, passed_over: tuple[str, ...] = ()) -> None:
    for key, _ in record.fields():
        if key not in keys and key not in passed_over:
            raise DataError(f"{what} has no {key!r}; it has {', '.join(keys)}")


def _only(record: Json, key: str) -> str:
    _known(record, f"a line with {key!r}", key)
    return record[key].text()


def _optional(record: Json, key: str) -> str | None:
    found = record.get(key)
    return None if found is None else found.text()


def _fact(record: Json, builder: KnowledgeBaseBuilder) -> None:
    keys = ("predicate", "args", "truth", "class", "world", "split")
    _known(record, "a fact", *keys, passed_over=("score", "rules"))
    truth = record.get("truth")
    if truth is not None and not isinstance(truth.value, bool):
        raise truth.expected("true or false")
    builder.add(
        record["predicate"].text(),
        [_value(each) for each in record["args"].items("names and numbers")],
        truth=truth is None or bool(truth.value),
        value=_optional(record, "class"),
        world=_optional(record, "world"),
        split=MAIN if (split := _optional(record, "split")) is None else _split(split),
    )


def _split(name: str) -> str:
    if name == MAIN:
        raise DataError("a split needs a name; a fact without 'split' belongs to the main facts")
    return name


def _value(argument: Json) -> Value:
    value = argument.value
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise argument.expected("a name or a number")
    if isinstance(value, int) and (abs(value) > 2**1023 or int(float(value)) != value):
        raise argument.fault("has no exact value as a number; quote it if it names something")
    return value


def _declaration(record: Json) -> PredicateDeclaration:
    _known(record, "a declaration", "declare", "types", "classes")
    classes = record.get("classes")
    return PredicateDeclaration(
        record["declare"].text(), record["types"].texts(), None if classes is None else classes.texts()
    )


def _entity(record: Json, builder: KnowledgeBaseBuilder) -> None:
    _known(record, "an entity", "entity", "type", "world")
    kind = _optional(record, "type")
    builder.entity(
        record["entity"].text(), type=ENTITY_TYPE if kind is None else kind, world=_optional(record, "world")
    )


def _annotations(record: Json) -> Annotations:
    found = record.get("annotations")
    if found is None:
        return Annotations()
    if not isinstance(found.value, dict):
        raise found.expected("an object")
    return Annotations(found.value)


def _number(record: Json, key: str) -> float | None:
    found = record.get(key)
    if found is None:
        return None
    if isinstance(found.value, bool) or not isinstance(found.value, int | float):
        raise found.expected("a number")
    return found.value


def _rule(record: Json) -> Statement:
    _known(record, "a rule", "rule", "confidence", "annotations")
    rule = parse_rule(record["rule"].text())
    confidence = _number(record, "confidence")
    return replace(
        rule,
        confidence=rule.confidence if confidence is None else confidence,
        annotations=Annotations({**rule.annotations, **_annotations(record)}),
    )


def _formula(record: Json) -> Statement:
    _known(record, "a formula", "formula", "weight", "annotations")
    formula = parse_formula(record["formula"].text())
    weight = record["weight"]
    if weight.value == "hard":
        return WeightedFormula(formula, "hard", None, _annotations(record))
    if weight.value == "learn":
        return WeightedFormula(formula, "learn", None, _annotations(record))
    if isinstance(weight.value, str):
        raise weight.expected('a number, "hard" or "learn"')
    return WeightedFormula(formula, "soft", _number(record, "weight"), _annotations(record))


def _template(record: Json) -> Statement:
    _known(record, "a template", "template", "annotations")
    template = parse_template(record["template"].text())
    return replace(template, annotations=Annotations({**template.annotations, **_annotations(record)}))
