"""Crisp rules, applied, give the facts that the network with crisp weights holds true."""

from __future__ import annotations

import pytest
import torch
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


@pytest.mark.parametrize("name", [each for each in TEMPLATES if each != "nested"])
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
    rules = write_crisp_rules(network)
    found = {each.args for each in rw.apply(rw.RuleSet(rules), kb, max_rounds=1) if each.predicate == target}
    assert found == wanted
    assert all(rule.confidence == 1 for rule in rules)


def test_a_rule_is_as_sure_as_the_network():
    kb = random_facts(0)
    network = TemplateNetwork(
        resolve("template t(X, Z) :- ?P(X, Y), ?Q(Y, Z) where ?P in {a, b}, ?Q in {a}.", kb)
    ).eval()
    network.operator("0_P").load_values([1.0, 0.9, 0.7])
    network.operator("0_Q").load_values([1.0, 1.0])
    first, second = write_crisp_rules(network)
    assert first.confidence > second.confidence > 0.5
    assert first.confidence == pytest.approx(
        network.operator("0_and")(torch.tensor([0.9, 1.0]).double()).item(), abs=1e-5
    )
    assert len(write_crisp_rules(network, min_truth=0.99)) == 1


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
