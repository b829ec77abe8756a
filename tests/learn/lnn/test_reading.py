"""Crisp rules, applied, give the facts that the network with crisp weights holds true."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from learn.lnn.test_template import TARGETS, TEMPLATES, random_facts

import rulewright as rw
from rulewright.errors import DataError
from rulewright.learn.lnn import ready
from rulewright.learn.lnn.grounding import ground
from rulewright.learn.lnn.network import NetworkOptions, TemplateNetwork
from rulewright.learn.lnn.operators import Pred
from rulewright.learn.lnn.reading import load_parameters, write_crisp_rules
from rulewright.learn.lnn.template import read_templates, resolve


def crisp(network: TemplateNetwork, seed: int) -> TemplateNetwork:
    """Give each leaf one predicate."""
    generator = torch.Generator().manual_seed(seed)
    for key in network.operators:
        operator = network.operator(key)
        if isinstance(operator, Pred):
            chosen = int(torch.randint(operator.arity, (1,), generator=generator))
            operator.load_values([1.0, *(float(place == chosen) for place in range(operator.arity))])
    return network.eval()


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("seed", range(3))
def test_rules_give_what_the_network_holds_true(name, seed):
    kb = random_facts(seed + 20)
    target, _ = TARGETS.get(name, ("t", 2))
    program = resolve(read_templates(TEMPLATES[name]), kb, target)
    network = crisp(TemplateNetwork(program, NetworkOptions()), seed)
    grounding = ground(program, kb, hide=False)
    with torch.no_grad():
        values = network(grounding)
    assert set(values.tolist()) <= {0.0, 1.0}
    domain = kb.domains["entity"]
    columns = [domain.labels_of(column[values.numpy() > 0.5]).tolist() for column in grounding.facts]
    known = set(kb.tuples(target)) if target in kb.predicates else set()
    wanted = set(zip(*columns, strict=True)) - known
    rules = write_crisp_rules(network, grounding).rules
    found = {each.args for each in rw.apply(rw.RuleSet(rules), kb, max_rounds=1) if each.predicate == target}
    assert found == wanted
    assert all(rule.confidence == 1 for rule in rules)


def test_a_rule_is_as_sure_as_the_network():
    kb = random_facts(4)
    program = resolve("template t(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in {a, b}, ?Q in {a}.", kb)
    network, grounding = TemplateNetwork(program).eval(), ground(program, kb, hide=False)
    network.operator("0_P").load_values([1.0, 0.9, 0.7])
    network.operator("0_Q").load_values([1.0, 1.0])
    first, second = write_crisp_rules(network, grounding).rules
    assert first.confidence > second.confidence > 0.5
    both = network.operator("0_and")(torch.tensor([0.9, 1.0]).double()).item()
    assert first.confidence == pytest.approx(both, abs=1e-3)
    assert first.annotations["disagreement"] == 0 and first.annotations["P"] == {"a": 0.9, "b": 0.7}
    assert first.annotations["and"] == (1.06, 1.06, 1.06)
    (both,) = write_crisp_rules(network, grounding, min_truth=0.99).rules
    assert both.canonical() == rw.parse_rule("t(X, Z) :- a(X, Y), b(X, Y), a(Y, Z).").canonical()


UNARY, BINARY = ("a", "b", "c"), ("r", "s")


@st.composite
def drawn_templates(draw):
    """Return a template with ∧, ∨ and ¬ nested two deep, whether a head is negated, and all its domains."""
    domains: list[str] = []
    has_head = draw(st.booleans())

    def leaf(*terms: str) -> str:
        names = list(UNARY if len(terms) == 1 else BINARY)
        if has_head and len(terms) == 1 and len(domains) > 1:
            names.append("u")
        chosen = draw(st.lists(st.sampled_from(names), min_size=1, max_size=3, unique=True))
        domains.append(f"?P{len(domains)} in {{{', '.join(chosen)}}}")
        return f"?P{len(domains) - 1}({', '.join(terms)})"

    def literal(*bound: str, owns: bool = True) -> str:
        if owns and draw(st.integers(0, 3)) == 0:  # with a variable of its own
            own = f"Z{len(domains)}"
            return leaf(*draw(st.permutations([draw(st.sampled_from(bound)), own])))
        terms = draw(st.lists(st.sampled_from(bound), min_size=1, max_size=2))
        return draw(st.sampled_from(["", "!"])) + leaf(*terms)

    is_relation = draw(st.booleans())

    def part() -> str:
        """Return a conjunction that binds the variables of the head, with an alternative in it."""
        is_unary = not is_relation and draw(st.booleans())
        binds = [leaf("X")] if is_unary else [leaf(*draw(st.permutations(["X", "Y"])))]
        bound = ("X", "Y") if "Y" in binds[0] else ("X",)
        for _ in range(draw(st.integers(0, 2))):
            binds.append(literal(*bound))
        if draw(st.booleans()):
            both = ", ".join(literal(*bound, owns=False) for _ in range(2))
            binds.append(f"({literal(*bound)} ; {both})")
        return ", ".join(binds)

    body = " ; ".join(part() for _ in range(draw(st.integers(1, 2))))
    listed = f" where {', '.join(domains)}"
    text = f"template t({'X, Y' if is_relation else 'X'}) :- {body}{listed}."
    if has_head:
        text += " template u(X) :- ?A(X), !?B(X) ; ?C(X, Y) where ?A in {a, b, c}, ?B in {a, c}, ?C in {r, s}."
    return text


@st.composite
def drawn_facts(draw):
    names = [f"e{index}" for index in range(draw(st.integers(1, 4)))]
    facts = [("known", name) for name in names]
    for predicate, every in (
        *((name, [(one,) for one in names]) for name in UNARY),
        *((name, [(one, other) for one in names for other in names]) for name in BINARY),
    ):
        facts += [(predicate, *args) for args in draw(st.lists(st.sampled_from(every), min_size=1, unique=True))]
    return rw.KnowledgeBase.from_facts(facts)


def set_operators(network: TemplateNetwork, seed: int) -> TemplateNetwork:
    """Give all operators any values that their constraints allow, often such as decide by a hair."""
    random = np.random.default_rng(seed)
    with torch.no_grad():
        for key in network.operators:
            for parameter in network.operator(key).parameters():
                spread = random.choice([0.2, 1.0, 2.0])
                parameter.copy_(torch.from_numpy(random.random(parameter.shape) * spread))
    return network.eval()


OPTIONS = [
    NetworkOptions(),
    NetworkOptions(connectives="product", leaves="attention"),
    NetworkOptions(connectives="lukasiewicz"),
    NetworkOptions(reduction="sum"),
]


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_templates(), drawn_facts(), st.sampled_from(OPTIONS), st.integers(0, 10_000))
def test_rules_hold_what_the_network_holds_at_least_half_true(text, kb, options, seed):
    program = resolve(text, kb, "t")
    network = set_operators(TemplateNetwork(program, options), seed)
    grounding = ground(program, kb)
    with torch.no_grad():
        values = network(grounding).numpy()
    assume((abs(values - 0.5) > 1e-6).all())
    labels = [kb.domains["entity"].labels_of(column[values > 0.5]).tolist() for column in grounding.facts]
    wanted = set(zip(*labels, strict=True))
    reading = write_crisp_rules(network, grounding, max_disagreement=0.0)
    if reading.disagreement > 0:  # what is refused is refused for a reason: sums, or heads that are half true
        assert reading.rules == () and (options.reduction == "sum" or "u" in "".join(text.split("where")[1:2]))
        return
    assert bool(reading.rules) == bool(wanted)
    if wanted:
        found = {fact.args for fact in rw.apply(rw.RuleSet(reading.rules), kb, max_rounds=1) if fact.predicate == "t"}
        assert found == wanted
        assert all(rule.annotations["disagreement"] == 0 for rule in reading.rules)


@settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
@given(drawn_facts(), st.integers(0, 10_000), st.sampled_from(["chain", "either", "not both ways"]))
def test_a_fact_hidden_from_its_evidence_is_hidden_from_the_rule_too(kb, seed, shape):
    text = {
        "chain": "template r(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in {r, s}, ?Q in {r, s}.",
        "either": "template r(X, Y) :- ?P(X, Y) ; ?Q(Y, X), ?A(X) where ?P in {r, s}, ?Q in {r, s}, ?A in {a, b}.",
        "not both ways": "template r(X, Y) :- ?P(X, Z), ?Q(X, Y), !?N(Y, X) where ?P in {r}, ?Q in *, ?N in *.",
    }[shape]
    program = resolve(text, kb)
    network, grounding = set_operators(TemplateNetwork(program), seed), ground(program, kb)
    positions = grounding.find(kb.columns("r"))
    with torch.no_grad():
        values = torch.cat([network(grounding), torch.zeros(1)])[positions].numpy()
    assume((abs(values - 0.5) > 1e-6).all())
    reading = write_crisp_rules(network, grounding, facts=positions, max_disagreement=0.0)
    assert reading.disagreement == 0 and bool(reading.rules) == bool((values > 0.5).any())
    for fact, value in zip(kb.tuples("r"), values, strict=True):
        others = kb.remove([("r", *fact)])
        found = {given.args for given in rw.apply(rw.RuleSet(reading.rules), others, max_rounds=1)}
        assert (fact in found) == (value > 0.5)


def test_what_crisp_rules_cannot_say_is_not_given():
    facts = [("r", "x", f"y{index}") for index in range(4)] + [("r", "z", "y0"), ("a", "x"), ("a", "z")]
    kb = rw.KnowledgeBase.from_facts(facts)
    program = resolve("template t(X) :- a(X), ?P(X, Y) where ?P in {r}.", kb)
    network = TemplateNetwork(program, NetworkOptions(connectives="product", reduction="sum")).eval()
    network.operator("0_P").load_values([1.0, 0.2])  # two are not enough, three are
    reading = write_crisp_rules(network, ground(program, kb))
    assert reading.rules == () and reading.disagreement == 0.5
    assert len(write_crisp_rules(network, ground(program, kb), max_disagreement=0.5).rules) == 1
    assert write_crisp_rules(network, ground(program, kb), min_truth=0.9).highest == pytest.approx(0.8)


def test_one_of_several_members_that_are_alike_is_enough():
    """Where one predicate never holds without the other, the shorter rule says the same."""
    facts = [(name, f"e{index}") for index in range(6) for name in ("a", "b") if index < 3] + [("c", "e5"), ("a", "e1")]
    kb = rw.KnowledgeBase.from_facts(facts)
    program = resolve("template t(X) :- ?P(X) where ?P in {a, b, c}.", kb)
    network = TemplateNetwork(program).eval()
    network.operator("0_P").load_values([1.0, 0.4, 0.3, 0.2])
    (rule,) = write_crisp_rules(network, ground(program, kb)).rules
    assert rule.canonical() == rw.parse_rule("t(X) :- a(X).").canonical() and rule.confidence == 0.7


def test_weights_for_another_domain_are_refused():
    kb = random_facts(0)
    text = "template t(X, Z) :- ?P(X, Z) where ?P in {a, b}. @{'P': {a: 1.0}}"
    templates = read_templates(text)
    with pytest.raises(DataError, match=r"weights of \?P and its domain differ in b"):
        load_parameters(TemplateNetwork(resolve(templates, kb)), templates)


def test_ready_made_templates():
    kb = random_facts(1)
    for templates in (ready.chains(3, target="t"), ready.chains(2, target="t", inverses=True, predicates=["a", "b"])):
        program = resolve(templates, kb)
        assert ground(program, kb).facts
    with pytest.raises(DataError, match="max_length must be >= 1"):
        ready.chains(0)
    with pytest.raises(DataError, match="at least one predicate"):
        ready.one_chain(2, predicates=[])
    with pytest.raises(DataError, match="1, 2 and 3"):
        ready.countries(4)
