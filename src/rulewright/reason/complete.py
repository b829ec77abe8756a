"""Completing a graph: the best new facts of all, each with its reason."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from rulewright.checks import Names, Progress, Whole, check_parameter, read_names
from rulewright.data import KnowledgeBase, signature
from rulewright.errors import unknown_name
from rulewright.logic import Comparison, RuleSet
from rulewright.reason.apply import apply
from rulewright.reason.explain import Explainer
from rulewright.reason.inferred import AGGREGATION, Aggregation, Inferred, InferredFact
from rulewright.reason.program import RuleProgram, Rules, adds_weights, find_relevant, read_rule_set
from rulewright.reason.proofs import Proof
from rulewright.tables import FrameLibrary, build_frame, html_table

if TYPE_CHECKING:
    from rulewright.reason.calibrate import RankingCalibration


@dataclass(frozen=True)
class NewLink:
    """A new fact with its score, and the reason: its best proof, or what the strongest rule adds to its score.

    ``probability`` is what a calibration makes of the score; None for what is no relation of two entities.
    """

    fact: InferredFact
    reason: Proof
    probability: float | None = None

    @property
    def score(self) -> float:
        """The score of the fact."""
        return self.fact.score

    def __str__(self) -> str:
        probability = "" if self.probability is None else f"  p {self.probability:.3g}"
        return f"{self.fact}  {self.score:.3g}{probability}"


class Completion(Sequence[NewLink]):
    """The best new facts of a graph, best first; see `complete`. ``note`` says what was left out."""

    def __init__(
        self,
        links: Sequence[NewLink],
        inferred: Inferred,
        aggregation: Aggregation,
        calibration: RankingCalibration | None = None,
        note: str = "",
    ) -> None:
        self._links, self.inferred, self.aggregation = tuple(links), inferred, aggregation
        self.calibration = calibration
        self.note = "; ".join(part for part in (inferred.note, note) if part)

    def __len__(self) -> int:
        return len(self._links)

    def __getitem__(self, index: Any) -> Any:
        return self._links[index]

    def __iter__(self) -> Iterator[NewLink]:
        return iter(self._links)

    def to_frame(self, library: FrameLibrary | None = None) -> Any:
        """Return the facts as a data frame of pandas or Polars: fact, predicate, score, rule, premises."""
        columns: dict[str, list[Any]] = {
            "fact": [str(link.fact) for link in self],
            "predicate": [link.fact.predicate for link in self],
            "score": [link.score for link in self],
            **({} if self.calibration is None else {"probability": [link.probability for link in self]}),
            "rule": [str(link.reason.source) for link in self],
            "premises": [", ".join(map(str, link.reason.leaves())) for link in self],
        }
        return build_frame(columns, library)

    def _repr_html_(self) -> str:
        rows = ((link.score, link.fact, link.reason.source, ", ".join(map(str, link.reason.leaves()))) for link in self)
        return html_table(["score", "new fact", "by", "since"], rows, caption=repr(self))

    def __repr__(self) -> str:
        return f"Completion({len(self):,} new facts by {self.aggregation})"


def complete(
    rules: Rules,
    kb: KnowledgeBase,
    *,
    count: int = 100,
    predicates: str | Collection[str] | None = None,
    aggregation: Aggregation | None = None,
    calibration: RankingCalibration | None = None,
    memory_limit: int | str | None = None,
    progress: Progress | None = None,
) -> Completion:
    """Return the ``count`` best new facts of the whole graph, or of some predicates, each with its reason.

    Rules are applied once to the known facts, and facts ordered as ``aggregation`` says (`apply`): ``max-plus``, by the
    most confident rule for each, of equals by the second most confident, and so on, or ``weight``, by the sum of
    weights. None chooses ``weight`` for rules that carry weights, and else ``max-plus``. No other fact would come
    before one of these; which of equally good ones are left out is said in ``note``. A ``calibration``
    (`calibrate_ranking`) adds how probable each fact is.

    >>> from rulewright.logic import parse_rules
    >>> kb = KnowledgeBase.from_triples([("ann", "parent_of", "bob"), ("bob", "parent_of", "cid")])
    >>> rules = parse_rules('''
    ...     0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).
    ...     0.3 :: knows(X, Y) :- parent_of(X, Y).
    ... ''')
    >>> for link in complete(rules, kb, count=1):
    ...     print(link.score, link.reason)
    0.9 grandparent_of(ann, cid)  0.9
    └─ by 0.9 :: grandparent_of(X, Z) :- parent_of(X, Y), parent_of(Y, Z).
       ├─ parent_of(ann, bob)  known
       └─ parent_of(bob, cid)  known
    """
    check_parameter("count", count, Whole(1))
    check_parameter("predicates", predicates, Names())
    predicates = read_names(predicates)
    rule_set = read_rule_set(rules)
    aggregation = aggregation or ("weight" if adds_weights(rule_set) else "max-plus")
    check_parameter("aggregation", aggregation, AGGREGATION)
    note = "" if calibration is None else calibration.check_use(aggregation, len(rule_set))
    max_facts = count
    if predicates is not None:
        chosen = choose_heads(rule_set, kb, predicates)
        if aggregation != "weight" and (absent := _find_absent(rule_set, chosen, kb)):
            # what others conclude and these ask to be absent is no answer, but it must be found
            chosen, max_facts = choose_heads(rule_set, kb, {*predicates, *absent}), sys.maxsize
        rule_set = chosen
    inferred = apply(
        rule_set, kb, aggregation=aggregation, max_facts=max_facts, memory_limit=memory_limit, progress=progress
    )
    wanted = (fact for fact in inferred if predicates is None or fact.predicate in predicates)
    facts = [((fact.predicate, *fact.args), fact) for fact in islice(wanted, count)]
    links: list[NewLink] = []
    if aggregation == "weight":
        from rulewright.reason.weighted import WeightedRules

        with closing(WeightedRules(rule_set, kb)) as weighted:
            links = [NewLink(fact, weighted.find_reason(key)) for key, fact in facts]
    else:
        with closing(Explainer(rule_set, kb, memory_limit=memory_limit)) as explainer:
            for done, (key, fact) in enumerate(facts):
                if progress is not None:
                    progress("looking for reasons", done, len(facts))
                links.append(NewLink(fact, explainer.prove_once(key)))
    if calibration is not None:
        found = probabilities_of([link.fact for link in links], inferred.kb, calibration)
        links = [replace(link, probability=value) for link, value in zip(links, found, strict=True)]
    return Completion(links, inferred, aggregation, calibration, note)


def probabilities_of(
    facts: Sequence[InferredFact], kb: KnowledgeBase, calibration: RankingCalibration
) -> list[float | None]:
    """Return how probable new facts are; None for one that is no relation of two entities."""
    probabilities: list[float | None] = [None] * len(facts)
    positions: dict[str, list[int]] = {}
    for position, fact in enumerate(facts):
        if signature(kb.predicate(fact.predicate)) == "ee":
            positions.setdefault(fact.predicate, []).append(position)
    for name, rows in positions.items():
        values = calibration.probabilities(name, [facts[row].score for row in rows], "fact").tolist()
        for row, value in zip(rows, values, strict=True):
            probabilities[row] = value
    return probabilities


def _find_absent(rules: RuleSet, chosen: RuleSet, kb: KnowledgeBase) -> set[str]:
    """Return what rules conclude, and what that follows from, that the chosen ones ask to be absent."""
    derivations = RuleProgram.of(rules, kb).derivations
    derived = {str(derivation.head.predicate) for derivation in derivations}
    absent = {
        str(literal.unit.predicate)
        for derivation in derivations
        if derivation.source in chosen.statements
        for literal in derivation.body
        if not literal.positive and not isinstance(literal.unit, Comparison)
    }
    return set[str]().union(*(find_relevant(derivations, name) for name in absent & derived)) & derived


def choose_heads(rules: RuleSet, kb: KnowledgeBase, predicates: Collection[str]) -> RuleSet:
    """Return the statements that conclude one of some predicates, or speak against it."""
    from rulewright.reason.rule_rows import find_conclusions

    known = {*kb.predicates, *rules.arities}
    for name in predicates:
        if name not in known:
            raise unknown_name("predicate", name, known)
    return rules.filter(lambda statement: bool(find_conclusions(statement) & set(predicates)))
