"""What a plain format cannot say of a knowledge base, refused by name."""

from __future__ import annotations

import re

from rulewright.data import KnowledgeBase, signature
from rulewright.errors import DataError

WAY_OUT = "write a .facts or .jsonl file instead"


def only_true_facts(kb: KnowledgeBase, format: str, shapes: str = "[en]+") -> None:
    """Refuse false facts, worlds, splits, and facts whose signature does not match ``shapes``.

    >>> only_true_facts(KnowledgeBase.from_facts([("tall", "ann")]), "an RDF file", "e[en]")
    Traceback (most recent call last):
    ...
    rulewright.errors.DataError: an RDF file has no place for facts of predicate tall(entity).; write a .facts or .jsonl
    file instead
    """
    for what, found in (("observed-false facts", kb.n_false_facts), ("worlds", kb.worlds), ("splits", kb.splits)):
        if found:
            raise DataError(f"{format} has no place for {what}; {WAY_OUT}")
    for declaration in kb.predicates.values():
        if not re.fullmatch(shapes, signature(declaration)) and kb.count(declaration.name):
            raise DataError(f"{format} has no place for facts of {declaration}; {WAY_OUT}")
