"""``rulewright demo``: the main job on a family that is made up on the spot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated

import typer

from rulewright.cli.console import print_json, print_line, print_table, progress

if TYPE_CHECKING:
    from rulewright.data import KnowledgeBase
    from rulewright.evaluate import Agreement
    from rulewright.logic import Rule, RuleSet
    from rulewright.reason import Inferred

_COLUMNS = ("predicate", "hidden", "inferred", "correct", "precision", "recall")
_SHOWN = 5


def demo(
    people: Annotated[int, typer.Option(min=10, help="How many people the family has.")] = 300,
    missing: Annotated[float, typer.Option(min=0, max=1, help="The share of all facts that is hidden.")] = 0.1,
    noise: Annotated[float, typer.Option(min=0, max=1, help="The share of wrong facts that is put in.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same family.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Hide a tenth of a family's facts, mine rules from the rest, infer the hidden ones, and say why.

    Example: rulewright demo --people 1000 --missing 0.2 --noise 0.01
    """
    from rulewright.data import generators
    from rulewright.evaluate import Agreement, agreement
    from rulewright.learn import RuleMiner
    from rulewright.logic import Annotations
    from rulewright.reason import apply

    family = generators.family(people, missing=missing, noise=noise, seed=seed)
    rules = RuleMiner(max_length=2, min_confidence=0.8 * (1 - missing), min_support=5).fit(family.kb).rules_
    with progress("applying rules") as advance:
        inferred = apply(rules, family.kb, max_rounds=1, progress=advance)
    by_predicate = agreement(inferred.facts, family.hidden)
    total = sum(by_predicate.values(), Agreement(0, 0, 0))
    rows = [_row(name, each) for name, each in by_predicate.items() if each.wanted or each.given]
    reasons = _reasons(rules, family.kb, inferred)
    if json:
        figures = {"people": people, "facts": family.kb.n_facts, "hidden": family.hidden.n_facts}
        figures |= {"wrong": family.noise.n_facts, "rules": len(rules)}
        summary = {"precision": total.precision, "recall": total.recall}
        table = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
        print_json({**figures, **summary, "predicates": table, "sample": reasons})
        return
    wrong = f", {family.noise.n_facts:,} of them wrong" if family.noise.n_facts else ""
    print_line(f"A family of {people:,} people. {family.kb.n_facts:,} facts are known{wrong};")
    print_line(
        f"{family.hidden.n_facts:,} true ones are hidden. From the known ones {len(rules)} rules are mined, such as"
    )
    for rule in _one_of_each(rules)[:_SHOWN]:
        print_line(f"    {replace(rule, confidence=round(rule.confidence, 2), annotations=Annotations())}")
        print_line(f"        holds in {rule.annotations['support']} of {rule.annotations['body']} cases")
    print_line()
    print_line("What they infer, and why:")
    for each in reasons:
        print_line(f"    {each['fact']}")
        print_line(f"        because {each['because']}")
    print_line()
    print_table(_COLUMNS, rows, total=_row("all", total))
    print_line()
    print_line(
        f"Of {total.wanted:,} hidden facts the rules found {total.correct:,} ({total.recall:.0%}); "
        f"of {total.given:,} facts they inferred {total.precision:.0%} are true."
    )


def _row(name: str, each: Agreement) -> tuple[str, int, int, int, float, float]:
    return name, each.wanted, each.given, each.correct, each.precision, each.recall


def _one_of_each(rules: RuleSet) -> list[Rule]:
    """Choose the best rule for each head, the heads with most facts to give first."""
    chosen = [each.sort("support").rules[0] for each in rules.by_head().values()]
    return sorted(chosen, key=lambda rule: -(rule.support or 0))


def _reasons(rules: RuleSet, kb: KnowledgeBase, inferred: Inferred) -> list[dict[str, object]]:
    """Explain one fact each of a few predicates."""
    from rulewright.reason import Explainer

    chosen = {fact.predicate: fact for fact in reversed(inferred)}
    reasons: list[dict[str, object]] = []
    with Explainer(rules, kb) as explainer:
        for fact in sorted(chosen.values(), key=lambda fact: -len(str(fact.rules[0])))[:_SHOWN]:
            proof = explainer.explain((fact.predicate, *fact.args), depth=1).proofs[0]
            because = " and ".join(map(str, proof.leaves()))
            reasons.append({"fact": str(fact), "score": fact.score, "because": because, "rule": str(proof.source)})
    return reasons
