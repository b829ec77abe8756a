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
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from rulewright.data import ENTITY_TYPE, KnowledgeBase, KnowledgeBaseBuilder, Value
from rulewright.data.builder import MAIN
from rulewright.errors import DataError, ParseError, RulewrightError
from rulewright.files import read_text, write_text
from rulewright.io.facts import all_predicates, check_finite, find_worlds
from rulewright.io.json_shape import Json, parse_json
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
    yield from map(_declaration_record, predicates.values())
    yield from ({"closed": name} for name in predicates if name in kb.closed)
    yield from ({"shared": name} for name, domain in kb.domains.items() if kb.worlds and domain.worlds is None)
    yield from ({"world": world} for world in kb.worlds)
    yield from ({"split": split} for split in kb.splits)
    for type_name, domain in kb.domains.items():  # all, so that those without facts and the order are kept
        of_type = {} if type_name == ENTITY_TYPE else {"type": type_name}
        for position, label in enumerate(domain.labels):
            world = {} if domain.worlds is None else {"world": kb.worlds[int(domain.worlds[position])]}
            yield {"entity": label, **of_type, **world}
    for split, part in {MAIN: kb, **kb.splits}.items():
        if part is not kb and split == MAIN:
            raise DataError("a split without a name cannot be written; name it")
        for declaration in part.predicates.values():
            for truth in (True, False):
                yield from _fact_records(part, declaration, truth, {} if split == MAIN else {"split": split})


def _declaration_record(declaration: PredicateDeclaration) -> Record:
    record: Record = {"declare": declaration.name, "types": list(declaration.types)}
    return record if declaration.classes is None else {**record, "classes": list(declaration.classes)}


def _fact_records(kb: KnowledgeBase, declaration: PredicateDeclaration, truth: bool, where: Record) -> Iterator[Record]:
    columns = kb.columns(declaration.name, truth=truth)
    worlds = find_worlds(kb, declaration, columns)
    sign: Record = {} if truth else {"truth": False}
    for row, values in enumerate(kb.label_rows(declaration.name, columns)):
        args = [_plain_number(declaration, value) if isinstance(value, float) else value for value in values]
        of_class: Record = {} if declaration.classes is None else {"class": args.pop()}
        world: Record = {} if worlds is None else {"world": kb.worlds[int(worlds[row])]}
        yield {"predicate": declaration.name, "args": args, **sign, **of_class, **world, **where}


def _plain_number(declaration: PredicateDeclaration, value: float) -> Value:
    check_finite(declaration, value)
    return int(value) if value.is_integer() and abs(value) <= 2.0**53 and str(value) != "-0.0" else value


def rule_records(rules: RuleSet) -> Iterator[Record]:
    """Yield the records of a rule set: declarations first, then its statements in order."""
    yield from map(_declaration_record, rules.predicates)
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
        return {key: _plain(part) for key, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, tuple) else value


def read(path: str | os.PathLike[str]) -> KnowledgeBase:
    """Read facts from a file of JSON lines, ``-`` for standard input."""
    return parse(read_text(path), file=os.fspath(path))


def write_scored(
    kb: KnowledgeBase,
    scores: Mapping[tuple[Value, ...], tuple[float, Sequence[int]]],
    path: str | os.PathLike[str],
    probabilities: Mapping[tuple[Value, ...], float] | None = None,
) -> None:
    """Write facts, each with its score and the numbers of the rules that gave it, by (predicate, argument, …).

    Those that ``probabilities`` has get theirs too.
    """

    def add_scores() -> Iterator[Record]:
        for record in fact_records(kb):
            args = record.get("args")
            key = (record.get("predicate"), *(args if isinstance(args, list) else ()))
            full_key = (*key, record["class"]) if "class" in record else key
            scored = by_key.get(full_key)
            if scored is None:
                yield record
                continue
            chance = {"probability": chances[full_key]} if full_key in chances else {}
            yield {**record, "score": scored[0], **chance, "rules": list(scored[1])}

    by_key: Mapping[tuple[object, ...], tuple[float, Sequence[int]]] = dict(scores.items())
    chances: Mapping[tuple[object, ...], float] = dict((probabilities or {}).items())
    _write_records(add_scores(), path)


def write(kb: KnowledgeBase, path: str | os.PathLike[str]) -> None:
    """Write all of a knowledge base as JSON lines, in one step."""
    _write_records(fact_records(kb), path)


def read_rules(path: str | os.PathLike[str]) -> RuleSet:
    """Read rules from a file of JSON lines, ``-`` for standard input."""
    return parse_rules(read_text(path), file=os.fspath(path))


def write_rules(rules: RuleSet, path: str | os.PathLike[str]) -> None:
    """Write a rule set as JSON lines, in one step; it reads back as an equal one."""
    _write_records(rule_records(rules), path)


def _write_records(records: Iterator[Record], path: str | os.PathLike[str]) -> None:
    write_text(path, "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records))


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
    take: dict[str, Callable[[Json], object]] = {
        "predicate": lambda record: _add_fact(record, builder),
        "declare": lambda record: builder.declare(_read_declaration(record)),
        "closed": lambda record: builder.close(_read_only(record, "closed")),
        "shared": lambda record: builder.share(_read_only(record, "shared")),
        "entity": lambda record: _add_entity(record, builder),
        "world": lambda record: builder.world(_read_only(record, "world")),
        "split": lambda record: builder.split(_check_split(_read_only(record, "split"))),
    }
    _take_records(text, file, take, lambda line: _add_plain_fact(line, builder))
    try:
        return builder.build()
    except DataError as error:
        raise ParseError(_one_line(error), file=file) from None


def parse_rules(text: str, *, file: str | None = None) -> RuleSet:
    """Read rules from the text of such a file.

    >>> print(parse_rules('{"rule": "p(X) :- q(X).", "confidence": 0.5, "annotations": {"support": 3}}'), end="")
    0.5 :: p(X) :- q(X). @{support: 3}
    """
    statements: list[Statement] = []
    declarations: list[PredicateDeclaration] = []
    closed: list[str] = []
    take: dict[str, Callable[[Json], object]] = {
        "rule": lambda record: statements.append(_read_rule(record)),
        "formula": lambda record: statements.append(_read_formula(record)),
        "template": lambda record: statements.append(_read_template(record)),
        "declare": lambda record: declarations.append(_read_declaration(record)),
        "closed": lambda record: closed.append(_read_only(record, "closed")),
    }
    _take_records(text, file, take)
    try:
        return RuleSet(statements, predicates=declarations, closed=closed)
    except DataError as error:
        raise ParseError(_one_line(error), file=file) from None


def _take_records(
    text: str,
    file: str | None,
    take: Mapping[str, Callable[[Json], object]],
    take_plain: Callable[[str], bool] = lambda line: False,
) -> None:
    """Give each line's object to the function for its first known key, unless ``take_plain`` takes the line."""
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            if take_plain(line):
                continue
            record = parse_json(line, file=file or "<text>").called("the line")
            key = next((key for key, _ in record.fields() if key in take), None)
            if key is None:
                raise DataError(f"an object with one of {', '.join(take)} is expected, got {line.strip()[:60]!r}")
            take[key](record)
        except ParseError as error:
            raise ParseError(_one_line(error.message), file=file, line=number, column=error.column) from None
        except RulewrightError as error:
            raise ParseError(_one_line(error), file=file, line=number) from None


def _add_plain_fact(line: str, builder: KnowledgeBaseBuilder) -> bool:
    """Take a fact that has names as arguments and nothing else, which most are; tell whether it was one."""
    if "\\" in line or line.count('"predicate"') != 1 or line.count('"args"') != 1:
        return False
    try:
        record = json.loads(line)
    except ValueError:
        return False
    plain = type(record) is dict and len(record) == 2 and type(record.get("args")) is list
    if not plain or not all(type(name) is str for name in (record.get("predicate"), *record["args"])):
        return False
    builder.add(record["predicate"], record["args"])
    return True


def _one_line(error: object) -> str:
    return str(error).replace("\n", "\\n")


def _check_keys(record: Json, name: str, *keys: str, passed_over: tuple[str, ...] = ()) -> None:
    for key, _ in record.fields():
        if key not in keys and key not in passed_over:
            raise DataError(f"{name} has no {key!r}; it has {', '.join(keys)}")


def _read_only(record: Json, key: str) -> str:
    _check_keys(record, f"a line with {key!r}", key)
    return record[key].text()


def _add_fact(record: Json, builder: KnowledgeBaseBuilder) -> None:
    keys = ("predicate", "args", "truth", "class", "world", "split")
    _check_keys(record, "a fact", *keys, passed_over=("score", "rules"))
    truth = record.get("truth")
    if truth is not None and not isinstance(truth.value, bool):
        raise truth.expected("true or false")
    builder.add(
        record["predicate"].text(),
        [_read_value(argument) for argument in record["args"].items("names and numbers")],
        truth=truth is None or bool(truth.value),
        value=record.optional_text("class"),
        world=record.optional_text("world"),
        split=MAIN if (split := record.optional_text("split")) is None else _check_split(split),
    )


def _check_split(name: str) -> str:
    if name == MAIN:
        raise DataError("a split needs a name; a fact without 'split' belongs to the main facts")
    return name


def _read_value(argument: Json) -> Value:
    value = argument.value
    if isinstance(value, str):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise argument.expected("a name or a number")
    if isinstance(value, int) and (abs(value) > 2**1023 or int(float(value)) != value):
        raise argument.fault("has no exact value as a number; quote it if it names something")
    return value


def _read_declaration(record: Json) -> PredicateDeclaration:
    _check_keys(record, "a declaration", "declare", "types", "classes")
    classes = record.get("classes")
    return PredicateDeclaration(
        record["declare"].text(), record["types"].texts(), None if classes is None else classes.texts()
    )


def _add_entity(record: Json, builder: KnowledgeBaseBuilder) -> None:
    _check_keys(record, "an entity", "entity", "type", "world")
    type_name = record.optional_text("type")
    builder.entity(
        record["entity"].text(),
        type=ENTITY_TYPE if type_name is None else type_name,
        world=record.optional_text("world"),
    )


def _read_annotations(record: Json) -> Annotations:
    field = record.get("annotations")
    if field is None:
        return Annotations()
    if not isinstance(field.value, dict):
        raise field.expected("an object")
    return Annotations(field.value)


def _read_rule(record: Json) -> Statement:
    _check_keys(record, "a rule", "rule", "confidence", "annotations")
    rule = parse_rule(record["rule"].text())
    confidence = record.get("confidence")
    return replace(
        rule,
        confidence=rule.confidence if confidence is None else confidence.number(),
        annotations=Annotations({**rule.annotations, **_read_annotations(record)}),
    )


def _read_formula(record: Json) -> Statement:
    _check_keys(record, "a formula", "formula", "weight", "annotations")
    formula = parse_formula(record["formula"].text())
    weight, annotations = record["weight"], _read_annotations(record)
    if weight.value == "hard":
        return WeightedFormula(formula, "hard", None, annotations)
    if weight.value == "learn":
        return WeightedFormula(formula, "learn", None, annotations)
    if isinstance(weight.value, str):
        raise weight.expected('a number, "hard" or "learn"')
    return WeightedFormula(formula, "soft", weight.number(), annotations)


def _read_template(record: Json) -> Statement:
    _check_keys(record, "a template", "template", "annotations")
    template = parse_template(record["template"].text())
    return replace(template, annotations=Annotations({**template.annotations, **_read_annotations(record)}))
