"""``rulewright demo``: learn, correct, complete, explain and inject, on a family that is made up on the spot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rulewright.cli.console import print_json, print_line, print_table, progress

if TYPE_CHECKING:
    from rulewright.data import KnowledgeBase
    from rulewright.evaluate import Agreement
    from rulewright.logic import Rule, RuleSet
    from rulewright.reason import Inferred

_COLUMNS = ("predicate", "hidden", "inferred", "correct", "precision", "recall")
_SHOWN = 3
_CONSTRAINTS = """
hard !(male(X) & female(X)).
hard !(parent_of(X, Y) & child_of(X, Y)).
hard !(spouse_of(X, Y) & sibling_of(X, Y)).
"""
_PAIRS = ("parent_of", "child_of", "spouse_of", "sibling_of", "grandparent_of")
_DOCUMENT = 24
"""How many people the document has that the network reads; with its relations, `_PAIRS`."""


def demo(
    people: Annotated[int, typer.Option(min=10, help="How many people the family has.")] = 300,
    missing: Annotated[float, typer.Option(min=0, max=1, help="The share of all facts that is hidden.")] = 0.1,
    noise: Annotated[float, typer.Option(min=0, max=1, help="The share of wrong facts that is put in.")] = 0.0,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same family.")] = 0,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Learn rules from a family with gaps and errors, correct them, complete it, say why, and put them on a network.

    Example: rulewright demo --people 1000 --missing 0.2 --noise 0.02
    """
    from rulewright.data import generators
    from rulewright.evaluate import Agreement, agreement
    from rulewright.learn import RuleMiner
    from rulewright.logic import parse_rules
    from rulewright.reason import apply

    family = generators.family(people, missing=missing, noise=noise, seed=seed)
    miner = RuleMiner(max_length=2, min_confidence=0.55 * (1 - missing), min_support=5, constants=False)
    learned = miner.fit(family.kb).rules_
    rules, struck = _correct(learned, generators.family(people, seed=seed).kb)
    constraints = parse_rules(_CONSTRAINTS)
    with progress("applying rules") as report:
        inferred = apply(rules.merge(constraints), family.kb, max_rounds=1, progress=report)
    uncorrected = sum(
        agreement(apply(learned, family.kb, max_rounds=1).facts, family.hidden).values(), Agreement(0, 0, 0)
    )
    by_predicate = agreement(inferred.facts, family.hidden)
    total = sum(by_predicate.values(), Agreement(0, 0, 0))
    rows = [_row(name, counts) for name, counts in by_predicate.items() if counts.wanted or counts.given]
    reasons = _explain_some(rules, family.kb, inferred)
    injected = _decode_scores(rules, seed)
    broken = {str(violation.formula): violation.groundings for violation in inferred.violations}
    if json:
        figures = {"people": people, "facts": family.kb.n_facts, "hidden": family.hidden.n_facts}
        figures |= {"wrong": family.noise.n_facts, "rules": len(rules), "struck": len(struck)}
        summary: dict[str, Any] = {"precision": total.precision, "recall": total.recall}
        summary |= {"uncorrected_precision": uncorrected.precision, "broken": broken, "injected": injected}
        table = [dict(zip(_COLUMNS, row, strict=True)) for row in rows]
        print_json({**figures, **summary, "predicates": table, "sample": reasons})
        return
    wrong = f", {family.noise.n_facts:,} of them wrong" if family.noise.n_facts else ""
    print_line(f"A family of {people:,} people. {family.kb.n_facts:,} facts are known{wrong};")
    print_line(f"{family.hidden.n_facts:,} true ones are hidden.")
    print_line()
    print_line(f"1. Learn: {len(learned)} rules are mined from the known facts, such as")
    _print_rules(_best_by_head(learned))
    print_line()
    if struck:
        print_line(f"2. Correct: someone who knows families strikes {len(struck)} that are not always true, such as")
        _print_rules(struck)
        print_line("   and adds what no chain of relations can say:")
    else:
        print_line("2. Correct: someone who knows families finds them all true and adds what no chain can say:")
    for formula in constraints.formulas:
        count = broken.get(str(formula), 0)
        print_line(f"    {formula}")
        print_line(
            f"        {f'known facts break it {count} times: a wrong one is among them' if count else 'is kept'}"
        )
    print_line()
    print_line("3. Complete: what the rules infer, beside what was hidden")
    print_line()
    print_table(_COLUMNS, rows, total=_row("all", total))
    if struck:
        print_line()
        print_line(f"   With all {len(learned)} rules {uncorrected.precision:.0%} of what they infer would be true.")
    print_line()
    print_line("4. Explain: why they infer it")
    for reason in reasons:
        print_line(f"    {reason['fact']}")
        print_line(f"        because {reason['because']}")
    print_line()
    print_line(
        f"5. Inject: a made-up network scores {_DOCUMENT} people of another family, with errors. The best answer"
    )
    print_line(f"   that keeps the rules, found by integer programming, changes {injected['changes']} of its labels:")
    print_line(f"   F1 {injected['f1_alone']:.3f} alone, {injected['f1_decoded']:.3f} decoded; for example")
    for line in injected["because"]:
        print_line(f"    {line}")
    print_line()
    print_line(
        f"Of {total.wanted:,} hidden facts the rules found {total.correct:,} ({total.recall:.0%}); "
        f"of {total.given:,} facts they inferred {total.precision:.0%} are true."
    )


def _row(name: str, counts: Agreement) -> tuple[str, int, int, int, float, float]:
    return name, counts.wanted, counts.given, counts.correct, counts.precision, counts.recall


def _print_rules(rules: list[Rule]) -> None:
    from rulewright.logic import Annotations

    for rule in rules[:_SHOWN]:
        print_line(f"    {replace(rule, confidence=round(rule.confidence, 2), annotations=Annotations())}")
        print_line(f"        holds in {rule.annotations['support']} of {rule.annotations['body']} cases")


def _best_by_head(rules: RuleSet) -> list[Rule]:
    """Choose the best rule for each head, the heads with most facts to give first."""
    best = [same_head.sort("support").rules[0] for same_head in rules.by_head().values()]
    return sorted(best, key=lambda rule: -(rule.support or 0))


def _correct(rules: RuleSet, truth: KnowledgeBase) -> tuple[RuleSet, list[Rule]]:
    """Strike the rules that have an exception in the whole family, which is what a person knows and no file says."""
    from rulewright.engine import Engine
    from rulewright.logic import RuleSet

    struck = []
    with Engine(truth) as engine:
        for rule in rules.rules:
            counts = engine.support(rule.head, rule.body)
            if counts.groundings < counts.body_groundings:
                struck.append(rule)
    return RuleSet([rule for rule in rules if rule not in struck], predicates=rules.predicates), struck


def _explain_some(rules: RuleSet, kb: KnowledgeBase, inferred: Inferred) -> list[dict[str, object]]:
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


def _decode_scores(rules: RuleSet, seed: int) -> dict[str, Any]:
    """Decode a network's scores of another family's pairs with those rules that are about `_PAIRS`."""
    import numpy as np

    from rulewright.data import generators
    from rulewright.inject import RuleDecoder
    from rulewright.logic import Atom, RuleSet

    family = generators.family(_DOCUMENT, seed=seed + 1).kb
    gold = np.zeros((_DOCUMENT, _DOCUMENT, len(_PAIRS)), dtype=bool)
    for relation_index, name in enumerate(_PAIRS):
        heads, tails = family.columns(name)
        gold[heads, tails, relation_index] = True
    logits = np.where(gold, 2.5, -3.5) + 1.8 * np.random.default_rng(seed).standard_normal(gold.shape)
    about_pairs = [
        replace(rule, confidence=round(rule.confidence, 2))
        for rule in rules.rules
        if all(str(atom.predicate) in _PAIRS for atom in (rule.head, *rule.body) if isinstance(atom, Atom))
    ]
    answer = RuleDecoder(RuleSet(about_pairs), relations=_PAIRS)(logits)
    names = family.domains["person"].labels_of(np.arange(_DOCUMENT)).tolist()

    def f1(labels: Any) -> float:
        return float(2 * (labels & gold).sum() / (labels.sum() + gold.sum()))

    return {
        "f1_alone": f1(answer.before),
        "f1_decoded": f1(answer.labels),
        "changes": len(answer.changes),
        "because": [change.text(names) for change in answer.changes if change.rule is not None][:_SHOWN],
    }
