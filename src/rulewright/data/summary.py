"""A knowledge base in figures, for people and for machines."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rulewright.data.knowledge_base import KnowledgeBase


@dataclass(frozen=True)
class PredicateSummary:
    """One predicate's figures."""

    name: str
    types: tuple[str, ...]
    classes: tuple[str, ...] | None
    closed: bool
    facts: int
    false_facts: int


@dataclass(frozen=True)
class Summary:
    """The figures of a knowledge base; ``str`` is a table of plain text.

    >>> print(KnowledgeBase.from_triples([("ann", "parent_of", "bob")]).summary())
    entities        2
    predicates      1
    facts           1
    <BLANKLINE>
    predicate                       facts
    parent_of(entity, entity)           1
    """

    entities: int
    types: dict[str, int]
    worlds: int
    facts: int
    false_facts: int
    duplicates: int
    splits: dict[str, int]
    predicates: tuple[PredicateSummary, ...]

    def as_dict(self) -> dict[str, object]:
        """Return plain values, ready for JSON."""
        return asdict(self)

    def figures(self) -> list[tuple[str, int]]:
        """Return the named totals that are worth showing."""
        rows = [("entities", self.entities)]
        if len(self.types) > 1:
            rows += [(f"  {name}", size) for name, size in self.types.items()]
        if self.worlds:
            rows.append(("worlds", self.worlds))
        rows += [("predicates", len(self.predicates)), ("facts", self.facts)]
        if self.false_facts:
            rows.append(("observed false", self.false_facts))
        if self.duplicates:
            rows.append(("repeated facts", self.duplicates))
        return rows + [(f"{name} facts", size) for name, size in self.splits.items()]

    def __str__(self) -> str:
        lines = [f"{name:<15} {value:,}" for name, value in self.figures()]
        shown = sorted(self.predicates, key=lambda each: -each.facts)
        names = [f"{each.name}({', '.join(each.types)})" for each in shown]
        width = max([27, *map(len, names)])
        lines += ["", f"{'predicate':<{width}} {'facts':>9}"]
        lines += [f"{name:<{width}} {each.facts:>9,}" for name, each in zip(names, shown, strict=True)]
        return "\n".join(lines)


def summarise(kb: KnowledgeBase) -> Summary:
    """Count what is in a knowledge base."""
    return Summary(
        entities=kb.n_entities,
        types={name: len(domain) for name, domain in kb.domains.items()},
        worlds=len(kb.worlds),
        facts=kb.n_facts,
        false_facts=kb.n_false_facts,
        duplicates=kb.duplicates,
        splits={name: split.n_facts + split.n_false_facts for name, split in kb.splits.items()},
        predicates=tuple(
            PredicateSummary(
                name, each.types, each.classes, name in kb.closed, kb.count(name), kb.count(name, truth=False)
            )
            for name, each in kb.predicates.items()
        ),
    )
