"""A knowledge base or a rule set as the records of a file of JSON lines."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rulewright.data import ENTITY_TYPE, KnowledgeBase, Value
from rulewright.data.builder import MAIN
from rulewright.errors import DataError
from rulewright.io.facts_writer import all_predicates, worlds_of
from rulewright.logic import Annotations, PredicateDeclaration, Rule, RuleSet, Template

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
    for row, values in enumerate(kb.labelled(declaration.name, columns)):
        args = [_number(declaration, each) if isinstance(each, float) else each for each in values]
        chosen: Record = {} if declaration.classes is None else {"class": args.pop()}
        world: Record = {} if worlds is None else {"world": kb.worlds[int(worlds[row])]}
        yield {"predicate": declaration.name, "args": args, **sign, **chosen, **world, **where}


def _number(declaration: PredicateDeclaration, value: float) -> Value:
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
