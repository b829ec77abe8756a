"""Every learner's rules in every use: with the meaning of the design's table, or refused with the reason."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from real_data import DATA, needs_data

from rulewright import ConsistencyLoss, KnowledgeBase, LNNLearner, LogicLayer, RuleDecoder, RuleMiner, apply, read_rules
from rulewright.data.generators import family
from rulewright.errors import DataError, RulewrightError
from rulewright.io.docred import read_documents, to_knowledge_base
from rulewright.learn.lnn.ready import one_chain
from rulewright.learn.nlil.learner import NLILLearner
from rulewright.logic import Atom, Comparison, Literal, Rule, RuleSet, Variable, parse_rules

ETA = 0.05
SURE = 30.0


def generated() -> KnowledgeBase:
    """Three generations of nine families, one in three grandchildren missing."""
    people = [(f"p{i}", f"q{i}", f"r{i}") for i in range(9)]
    facts = [each for p, q, r in people for each in ((p, "child_of", q), (q, "child_of", r), (q, "parent_of", p))]
    facts += [(p, "likes", r) for p, _, r in people[:5]]
    return KnowledgeBase.from_triples([*facts, *((p, "grandchild_of", r) for p, _, r in people[:6])])


def mined(kb: KnowledgeBase, target: str) -> RuleSet:
    return RuleMiner(max_length=2, min_confidence=0.5, targets=[target], constants=False).fit(kb).rules_


def lnn(kb: KnowledgeBase, target: str) -> RuleSet:
    near = [name for name, each in kb.predicates.items() if each.arity == 2 and name != target and kb.count(name)][:8]
    return LNNLearner(one_chain(2, target=target, predicates=near), epochs=150, seed=0).fit(kb).rules_


def nlil(kb: KnowledgeBase, target: str) -> RuleSet:
    options = {"levels": 0, "rounds": 1, "slots": 2, "epochs": 5, "width": 16, "layers": 1, "min_support": 1}
    return NLILLearner(targets=[target], held_out=0, **options).fit(kb).rules_


LEARNERS: dict[str, Callable[[KnowledgeBase, str], RuleSet]] = {"mine": mined, "lnn": lnn, "nlil": nlil}


@pytest.fixture(scope="module", params=LEARNERS)
def learned(request) -> tuple[KnowledgeBase, RuleSet]:
    torch.manual_seed(0)
    kb = generated()
    rules = LEARNERS[request.param](kb, "grandchild_of")
    assert len(rules.rules) > 0
    return kb, rules


@pytest.mark.slow
def test_files_keep_what_was_learned(learned, tmp_path):
    _, rules = learned
    rules.save(tmp_path / "learned.rules")
    assert read_rules(tmp_path / "learned.rules") == rules


def test_apply_scores_by_confidence(learned):
    kb, rules = learned
    inferred = apply(rules, kb, max_rounds=1)
    for fact in inferred:
        assert fact.score == max(rule.confidence for rule in fact.rules)
    body_heads = {
        (rule.head.predicate, *args)
        for rule in rules.rules
        for body in rule.alternatives()
        for args in joined(kb, rule.head, body)
    }
    known = {(name, *args) for name, args in kb.facts()}
    assert {(fact.predicate, *fact.args) for fact in inferred} == body_heads - known


def joined(kb: KnowledgeBase, head: Atom, body: tuple[Literal, ...]):
    """Yield the arguments of a head by trying every assignment of entities."""
    names = sorted({term for each in body for term in each.unit.args if isinstance(term, Variable)}, key=str)
    facts = {(name, *args) for name, args in kb.facts()}
    for values in itertools.product(kb.domains["entity"].labels, repeat=len(names)):
        given = dict(zip(names, values, strict=True))
        if all(holds(each, given, facts) for each in body):
            yield tuple(given[term] for term in head.args)


def holds(literal: Literal, given: dict, facts: set) -> bool:
    values = [given[term] for term in literal.unit.args]
    if isinstance(literal.unit, Comparison):
        return ((values[0] == values[1]) == (literal.unit.operator == "=")) == literal.positive
    return ((literal.unit.predicate, *values) in facts) == literal.positive


def pair_body(rule: Rule) -> list[tuple[str, int, int]] | None:
    """Return the body as relations between numbered variables, the head's first; None where it has another shape."""
    numbers: dict = {}
    atoms = [rule.head, *(each for each in rule.body if not isinstance(each, Comparison))]
    if any(not isinstance(each, Atom) or each.arity != 2 for each in atoms):
        return None
    found = [(each.predicate, *(numbers.setdefault(term, len(numbers)) for term in each.args)) for each in atoms]
    return None if any(first == second for _, first, second in found) else found


def logits_of(rule: Rule, relations: list[str], head: float) -> tuple[torch.Tensor, tuple[int, int, int]]:
    """Return log-odds under which one instance of a body is sure, and the place of its head."""
    (name, first, second), *body = pair_body(rule)
    size = 1 + max(each for _, *pair in [(name, first, second), *body] for each in pair)
    logits = torch.full((size, size, len(relations)), -SURE)
    logits[first, second, relations.index(name)] = head
    for relation, one, other in body:
        logits[one, other, relations.index(relation)] = SURE
    return logits, (first, second, relations.index(name))


def relations_of(kb: KnowledgeBase) -> list[str]:
    return [name for name, each in kb.predicates.items() if each.arity == 2]


def pair_rules(kb: KnowledgeBase, rules: RuleSet) -> list[Rule]:
    """Return the rules that speak of pairs only; loss and decoder refuse the others by name."""
    kept = []
    for rule in rules.rules:
        recursive = pair_body(rule) is not None and pair_body(rule)[0] in pair_body(rule)[1:]
        if pair_body(rule) is not None and not recursive:
            kept.append(rule)
            continue
        for use in (ConsistencyLoss, RuleDecoder):
            if not recursive:
                with pytest.raises(RulewrightError) as caught:
                    use(rule, relations=relations_of(kb))
                assert str(rule) in str(caught.value)
    return kept


def check_loss(kb: KnowledgeBase, rules: RuleSet) -> None:
    for rule in pair_rules(kb, rules):
        loss = ConsistencyLoss(rule, relations=relations_of(kb), eta=ETA)
        assert loss.clauses[0].confidence == rule.confidence
        logits, _ = logits_of(rule, relations_of(kb), -2.0)
        length = len(pair_body(rule)) - 1
        expected = math.log(rule.confidence) - ETA * length + math.log(1 + math.exp(2.0))
        assert loss(logits[None]).item() >= expected - 1e-3  # the same facts may break the rule in other ways too
    if pair_rules(kb, rules):
        together = ConsistencyLoss(pair_rules(kb, rules), relations=relations_of(kb))
        assert math.isfinite(together(torch.randn(2, 4, 4, len(relations_of(kb)))).item())


def check_layer(kb: KnowledgeBase, rules: RuleSet) -> None:
    for rule in pair_rules(kb, rules)[:20]:
        relations = relations_of(kb)
        logits, (first, second, number) = logits_of(rule, relations, 0.0)
        named = {name: logits[:, :, place] for place, name in enumerate(relations) if name in RuleSet([rule]).arities}
        layer = LogicLayer(RuleSet([rule]), iterations=1)
        assert layer.weights.value(0) == 1.0
        assert layer(named)[relations[number]][first, second] > 0.9
        sure = LogicLayer(RuleSet([rule]), iterations=1, weights="logit")
        clipped = min(max(rule.confidence, 1e-3), 1 - 1e-3)
        assert sure.weights.value(0) == pytest.approx(math.log(clipped / (1 - clipped)))


def check_decoder(kb: KnowledgeBase, rules: RuleSet) -> None:
    usable = pair_rules(kb, rules)
    if not usable:
        return
    relations = relations_of(kb)
    decoder = RuleDecoder(usable, relations=relations)
    for rule in usable[:10]:
        logits, _ = logits_of(rule, relations, -1.0)
        labels = decoder(logits.clamp(-4, 4).numpy()).labels
        for each in usable:
            (name, first, second), *body = pair_body(each)
            size = 1 + max(place for _, *pair in [(name, first, second), *body] for place in pair)
            for chosen in itertools.permutations(range(len(labels)), size):
                true = all(
                    labels[chosen[one], chosen[other], relations.index(relation)] for relation, one, other in body
                )
                assert not true or labels[chosen[first], chosen[second], relations.index(name)]


def test_the_loss_takes_confidences(learned):
    check_loss(*learned)


def test_the_layer_takes_weights(learned):
    check_layer(*learned)


def test_the_decoder_takes_constraints(learned):
    check_decoder(*learned)


@pytest.mark.slow
@needs_data
@pytest.mark.parametrize("learner", LEARNERS)
def test_the_matrix_on_real_documents(learner):
    documents = read_documents(DATA / "dwie" / "train_annotations_notext.json")[:60]
    kb = to_knowledge_base(documents)
    rules = LEARNERS[learner](kb, "based_in0")
    check_loss(kb, rules)
    check_layer(kb, rules)
    check_decoder(kb, rules)
    assert all(
        fact.score == max(rule.confidence for rule in fact.rules) for fact in apply(rules, kb, max_rounds=1)[:50]
    )


def test_rules_with_unary_predicates_need_logits_by_predicate():
    kb = family(30, seed=1).kb
    rules = parse_rules("0.9 :: mother_of(X, Y) :- parent_of(X, Y), female(X).")
    for use in (ConsistencyLoss, RuleDecoder):
        with pytest.raises(RulewrightError, match="unknown relation 'female'"):
            use(rules, relations=relations_of(kb))
    logits = {name: torch.full((3, 3), -9.0) for name in ("mother_of", "parent_of")}
    logits["parent_of"][0, 1] = 9.0
    logits["mother_of"][0, 1] = 0.0
    assert LogicLayer(rules, iterations=1)({**logits, "female": torch.full((3,), 9.0)})["mother_of"][0, 1] > 0.9
    assert RuleDecoder(rules)({**logits, "female": torch.full((3,), 9.0)}).labels["mother_of"][0, 1]
    assert len(apply(rules, kb)) == len(apply(rules, kb, max_rounds=None))


STATEMENTS = {
    "rule": "0.9 :: c(X, Z) :- a(X, Y), b(Y, Z).",
    "weighted": "2.5 a(X, Y) & b(Y, Z) => c(X, Z).",
    "learnable": "learn a(X, Y) & b(Y, Z) => c(X, Z).",
    "hard": "hard a(X, Y) & b(Y, Z) => c(X, Z).",
    "template": "template c(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in *, ?Q in *.",
}
REFUSED = {
    ("weighted", "loss"): "a weight is no confidence",
    ("weighted", "decoder"): "a weight is no confidence",
    ("weighted", "apply"): "a weight is no score",
    ("learnable", "loss"): "the weight is not known",
    ("learnable", "decoder"): "the weight is not known",
    ("learnable", "apply"): "its weight is not known",
    **{("template", use): "a template .* until" for use in ("loss", "decoder", "apply", "layer")},
}


def used(use: str, rules: RuleSet):
    relations = ["a", "b", "c"]
    logits = np.full((3, 3, 3), -9.0)
    logits[0, 1, 0] = logits[1, 2, 1] = 9.0
    if use == "loss":
        loss = ConsistencyLoss(rules, relations=relations, eta=ETA)
        return loss(torch.tensor(logits)[None]).item() - 9.0 + 2 * ETA
    if use == "layer":
        layer = LogicLayer(rules, iterations=1)
        named = {name: torch.tensor(logits[:, :, place]) for place, name in enumerate(relations)}
        return (layer(named)["c"][0, 2] + 9.0).item()
    if use == "decoder":
        logits[0, 2, 2] = -1.0
        return np.argwhere(RuleDecoder(rules, relations=relations)(logits).labels).tolist()
    inferred = apply(rules, KnowledgeBase.from_triples([("x", "a", "y"), ("y", "b", "z")]))
    return [(str(fact), fact.score) for fact in inferred]


MEANT = {
    ("rule", "loss"): math.log(0.9),
    ("hard", "loss"): 0.0,
    ("rule", "layer"): 1.0,
    ("weighted", "layer"): 2.5,
    ("learnable", "layer"): 1.0,
    ("hard", "layer"): 20.0,
    ("rule", "decoder"): [[0, 1, 0], [0, 2, 2], [1, 2, 1]],
    ("hard", "decoder"): [[0, 1, 0], [0, 2, 2], [1, 2, 1]],
    ("rule", "apply"): [("c(x, z)", 0.9)],
    ("hard", "apply"): [("c(x, z)", 1.0)],
}


@pytest.mark.parametrize("use", ["loss", "layer", "decoder", "apply"])
@pytest.mark.parametrize("kind", STATEMENTS)
def test_every_statement_means_what_the_table_says(kind, use):
    rules = parse_rules(STATEMENTS[kind])
    if (kind, use) in REFUSED:
        with pytest.raises(DataError, match=REFUSED[kind, use]):
            used(use, rules)
    else:
        found, meant = used(use, rules), MEANT[kind, use]
        assert found == (pytest.approx(meant, abs=0.02, rel=0.01) if isinstance(meant, float) else meant)
