"""What is in some facts and rules, before anything is learned from them: figures, and what looks wrong."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from rulewright.data import KnowledgeBase, signature
from rulewright.data.index import Ids, match_pairs
from rulewright.data.vocabulary import format_count
from rulewright.errors import DataError
from rulewright.logic.parser import read_statements
from rulewright.reason.program import Rules, read_rule_set
from rulewright.reason.rule_check import LEVELS, SHOWN, Finding, Level, check_rules

Column = npt.NDArray[Any]
_SAME = 0.8  # the share of facts from which on two relations say the same
_FEW_FACTS = 5  # fewer say nothing about a relation


@dataclass(frozen=True)
class PredicateFigures:
    """One predicate: its facts, how many different values stand first and last, and what kind of relation it is.

    ``symmetric`` is the share of its facts whose mirror image is one too. A relation is ``functional`` where nothing
    has two values, ``inverse_functional`` where no value has two owners. Numbers have a ``lowest`` and a ``highest``.
    """

    name: str
    types: tuple[str, ...]
    facts: int
    first: int
    last: int
    loops: int = 0
    symmetric: float = 0.0
    functional: bool = False
    inverse_functional: bool = False
    lowest: float | None = None
    highest: float | None = None

    def kind(self) -> str:
        """Return in words what kind of relation it is."""
        words = []
        if self.symmetric >= _SAME and self.facts >= _FEW_FACTS:
            words.append("symmetric")
        if self.functional and self.facts >= _FEW_FACTS:
            words.append("one value each")
        if self.inverse_functional and self.facts >= _FEW_FACTS:
            words.append("one owner each")
        if self.lowest is not None and self.highest is not None:
            words.append(f"numbers {self.lowest:g} … {self.highest:g}")
        return ", ".join(words)


@dataclass(frozen=True)
class Checkup:
    """What `check` found: figures of the facts and of each predicate, and findings, the worst first."""

    figures: tuple[tuple[str, int], ...]
    predicates: tuple[PredicateFigures, ...]
    findings: tuple[Finding, ...]

    @property
    def is_sound(self) -> bool:
        """Whether nothing is wrong."""
        return all(finding.level != "error" for finding in self.findings)

    def as_dict(self) -> dict[str, object]:
        """Return plain values, ready for JSON."""
        findings = [{**asdict(finding), **finding.as_record()} for finding in self.findings]
        return {"sound": self.is_sound, **asdict(self), "figures": dict(self.figures), "findings": findings}

    def __str__(self) -> str:
        lines = [f"{name:<15} {value:,}" for name, value in self.figures]
        lines += [f"{finding.level}: {finding}" for finding in self.findings]
        return "\n".join(lines)


def check(kb: KnowledgeBase | None = None, rules: Rules | str | None = None, *, file: str | None = None) -> Checkup:
    """Look through facts, rules or both for what a person should know before going on.

    Of rules given as text, every finding has its line and column; ``file`` is what they are read from.

    >>> kb = KnowledgeBase.from_triples([("ann", "likes", "bob"), ("Ann", "likes", "ann"), ("cid", "likes", "cid")])
    >>> for finding in check(kb).findings:
    ...     print(finding.level, finding)
    warning 2 names differ only in case, spaces or signs: Ann = ann
    note 1 fact is about an entity and itself: likes(cid, cid)
    note the graph falls into 2 parts that no fact joins; the largest has 3 of 4 entities
    >>> print(check(rules="hard dog(X) => animal(X). hard dog(Y) => animal(Y)."))
    rules           2
    warning: says what line 1 does
    """
    if kb is None and rules is None:
        raise DataError("there is nothing to check: give facts, rules or both")
    predicates: tuple[PredicateFigures, ...] = ()
    findings: list[Finding] = []
    figures: list[tuple[str, int]] = []
    if kb is not None:
        predicates = tuple(_describe_predicate(kb, name) for name in kb.predicates)
        findings += [*_look_at_names(kb), *_look_at_relations(kb, predicates), *_look_at_splits(kb)]
        figures += kb.summary().figures()
    if rules is not None:
        rules = rules if isinstance(rules, str) else read_rule_set(rules)
        count = len(read_statements(rules).stated) if isinstance(rules, str) else len(rules)
        figures.append(("rules", count))
        findings += check_rules(rules, kb, file=file)
    findings.sort(key=lambda finding: LEVELS[finding.level])
    return Checkup(tuple(figures), predicates, tuple(findings))


def _describe_predicate(kb: KnowledgeBase, name: str) -> PredicateFigures:
    declaration, columns = kb.predicate(name), kb.columns(name)
    letters = signature(declaration)
    counts = [len(np.unique(column)) for column in columns]
    figures = PredicateFigures(name, declaration.types, len(columns[0]), counts[0], counts[len(declaration.types) - 1])
    if letters == "ee" and figures.facts:
        keys, mirrored = (columns[a].astype(np.int64) * kb.n_entities + columns[b] for a, b in ((0, 1), (1, 0)))
        loops = int((columns[0] == columns[1]).sum())
        both = int(np.isin(keys, mirrored).sum()) - loops
        figures = replace(
            figures,
            loops=loops,
            symmetric=both / (figures.facts - loops) if figures.facts > loops else 0.0,
            functional=counts[0] == figures.facts,
            inverse_functional=counts[1] == figures.facts,
        )
    elif letters == "en" and figures.facts:
        figures = replace(
            figures,
            lowest=float(columns[1].min()),
            highest=float(columns[1].max()),
            functional=counts[0] == figures.facts,
        )
    return figures


def _look_at_names(kb: KnowledgeBase) -> Iterator[Finding]:
    """Find names that may mean the same, and entities without facts."""
    groups = [(f"{name} names", domain.labels.tolist()) for name, domain in kb.domains.items()]
    for what, labels in [*groups, ("predicates", list(kb.predicates))]:
        alike: dict[str, list[str]] = defaultdict(list)
        for label in labels:
            alike[re.sub(r"[\W_]+", " ", str(label)).strip().casefold()].append(str(label))
        same = [names for key, names in alike.items() if key and len(names) > 1]
        if same:
            kinds = "names" if len(kb.domains) == 1 and what != "predicates" else what
            yield Finding(
                "warning",
                f"{sum(map(len, same)):,} {kinds} differ only in case, spaces or signs",
                tuple(" = ".join(sorted(names)) for names in same[:SHOWN]),
            )
    if kb.duplicates:
        yield Finding(
            "note", f"{format_count(kb.duplicates, 'fact is', 'facts are')} given more than once and count once"
        )
    is_named = np.zeros(kb.n_entities, dtype=bool)
    for table in (*kb.tables().values(), *kb.tables(truth=False).values()):
        for column, letter in zip(table.columns, table.signature, strict=True):
            if letter == "e":
                is_named[column] = True
    if kb.n_facts and not is_named.all():
        alone = np.flatnonzero(~is_named)
        where = "the facts to learn from" if kb.splits else "any fact"
        yield Finding(
            "warning" if kb.splits else "note",
            f"{format_count(len(alone), 'entity is', 'entities are')} not in {where}",
            tuple(_name_entities(kb, alone[:SHOWN])),
        )


def _name_entities(kb: KnowledgeBase, entities: Iterable[int]) -> Iterator[str]:
    for entity in entities:
        for domain in kb.domains.values():
            if domain.start <= entity < domain.start + len(domain):
                yield str(domain.labels[entity - domain.start])


def _look_at_relations(kb: KnowledgeBase, predicates: Sequence[PredicateFigures]) -> Iterator[Finding]:
    """Find loops, relations that say the same or each other's inverse, scarce relations, and parts of the graph."""
    if "ee" not in kb.tables() or len(kb.tables()["ee"]) == 0:
        return
    table, names = kb.tables()["ee"], list(kb.predicates)
    relation, heads, tails = (column.astype(np.int64) for column in (table.predicate, *table.columns))
    loops = np.flatnonzero(heads == tails)
    if len(loops):
        named = zip(loops[:SHOWN], _name_entities(kb, heads[loops[:SHOWN]]), strict=True)
        yield Finding(
            "note",
            f"{format_count(len(loops), 'fact is', 'facts are')} about an entity and itself",
            tuple(f"{names[relation[row]]}({name}, {name})" for row, name in named),
        )
    is_apart = heads != tails
    relation, heads, tails = relation[is_apart], heads[is_apart], tails[is_apart]
    counts = np.bincount(relation, minlength=len(names))
    keys, mirrored = heads * kb.n_entities + tails, tails * kb.n_entities + heads
    for others, are, level in ((keys, "facts", "warning"), (mirrored, "mirrored facts", "note")):
        left, right = match_pairs(keys, others)
        pairs, together = np.unique(relation[left] * len(names) + relation[right], return_counts=True)
        one, other = pairs // len(names), pairs % len(names)
        is_same = (one != other) & (together >= _SAME * counts[one]) & (counts[one] >= _FEW_FACTS)
        if is_same.any():
            shown = [
                f"{names[one[at]]} in {names[other[at]]} ({together[at]:,} of {counts[one[at]]:,})"
                for at in np.flatnonzero(is_same)[np.argsort(-together[is_same], kind="stable")]
            ]
            yield Finding(
                cast(Level, level),
                f"the facts of {format_count(len(shown), 'relation', 'relations')} are mostly {are} of another",
                tuple(shown[:SHOWN]),
            )
    scarce = [figures.name for figures in predicates if 0 < figures.facts < 2]
    if scarce:
        yield Finding(
            "note",
            f"{format_count(len(scarce), 'predicate has', 'predicates have')} one fact, too few to learn from",
            tuple(scarce[:SHOWN]),
        )
    empty = [figures.name for figures in predicates if figures.facts == 0 and kb.count(figures.name, truth=False) == 0]
    if empty:
        where = " to learn from" if kb.splits else ""
        yield Finding(
            "warning",
            f"{format_count(len(empty), 'predicate has', 'predicates have')} no fact{where}",
            tuple(empty[:SHOWN]),
        )
    yield from _look_at_parts(kb, heads, tails)


def _look_at_parts(kb: KnowledgeBase, heads: Ids, tails: Ids) -> Iterator[Finding]:
    """Find parts of the graph that no fact joins, where it is one world."""
    if kb.worlds:
        return
    from scipy import sparse

    edges = sparse.coo_array((np.ones(len(heads)), (heads, tails)), shape=(kb.n_entities, kb.n_entities))
    _, part = sparse.csgraph.connected_components(edges, directed=False)
    is_named = np.zeros(kb.n_entities, dtype=bool)
    for column in kb.tables()["ee"].columns:
        is_named[column] = True
    sizes = np.bincount(part[is_named])
    sizes = sizes[sizes > 0]
    if len(sizes) > 1:
        yield Finding(
            "note",
            f"the graph falls into {len(sizes):,} parts that no fact joins; the largest has {sizes.max():,} of "
            f"{int(is_named.sum()):,} entities",
        )


def _look_at_splits(kb: KnowledgeBase) -> Iterator[Finding]:
    """Find facts that stand in two splits, mirror images that give answers away, and names that training has not."""
    parts = {"the facts to learn from": kb, **kb.splits}
    for later, (name, split) in enumerate(parts.items()):
        for other_name, other in list(parts.items())[:later]:
            shared, example = 0, ""
            for predicate in kb.predicates:
                rows = _find_shared(split.columns(predicate), other.columns(predicate))
                shared += len(rows[0])
                if len(rows[0]) and not example:
                    values = kb.label_rows(predicate, [column[:1] for column in rows])[0]
                    example = f"{predicate}({', '.join(map(str, values))})"
            if shared:
                yield Finding(
                    "error",
                    f"{format_count(shared, 'fact of', 'facts of')} {name} {'is' if shared == 1 else 'are'} among "
                    f"{other_name} too, so that asking for them shows nothing",
                    (example,),
                )
    if not kb.splits or "ee" not in kb.tables():
        return
    table = kb.tables()["ee"]
    known = np.unique(np.concatenate([_pair_keys(kb, *table.columns), _pair_keys(kb, *reversed(table.columns))]))
    is_known = np.zeros(kb.n_entities, dtype=bool)
    for column in table.columns:
        is_known[column] = True
    for name, split in kb.splits.items():
        asked = split.tables().get("ee")
        if asked is None or len(asked) == 0:
            continue
        joined = int(np.isin(_pair_keys(kb, *asked.columns), known).sum())
        if joined >= max(_FEW_FACTS, 0.2 * len(asked)):
            yield Finding(
                "warning",
                f"{joined:,} of {len(asked):,} facts of {name} join entities that a fact to learn from joins already, "
                "in some direction: a relation and its inverse, or two names for one, make asking easy",
            )
        unseen = int((~(is_known[asked.columns[0]] & is_known[asked.columns[1]])).sum())
        if unseen:
            yield Finding(
                "warning",
                f"{unseen:,} of {len(asked):,} facts of {name} have an entity that no fact to learn from names, which "
                "no rule can find",
            )


def _find_shared(columns: Sequence[Column], others: Sequence[Column]) -> list[Column]:
    """Return the rows that stand in both tables."""
    rows, counts = np.unique(
        np.concatenate([np.stack(part, axis=1).astype(np.float64) for part in (columns, others)]),
        axis=0,
        return_counts=True,
    )
    shared = rows[counts > 1]
    return [shared[:, position].astype(column.dtype) for position, column in enumerate(columns)]


def _pair_keys(kb: KnowledgeBase, first: Ids, second: Ids) -> Ids:
    return first.astype(np.int64) * kb.n_entities + second
